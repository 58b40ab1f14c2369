//! Files of a package: what goes where, with which mode. Modes do not depend on the umask.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::process::Run;

/// A file of a package.
pub(super) struct File {
    pub(super) from: PathBuf,
    /// Relative to the package's root.
    pub(super) to: PathBuf,
    pub(super) mode: u32,
}

impl File {
    pub(super) fn new(from: PathBuf, to: &str, mode: u32) -> Self {
        Self { from, to: to.into(), mode }
    }
}

/// The failure that names the path.
pub(super) fn wrong(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| format!("{}: {error}", path.display())
}

pub(super) fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(wrong(path))
}

/// Writes a file that all may read, and makes its folders.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    make_folders(path.parent())?;
    fs::write(path, text).map_err(wrong(path))?;
    set_mode(path, 0o644)
}

/// Copies a file, and makes its folders.
pub(super) fn install(from: &Path, to: &Path, mode: u32) -> Result<(), Failure> {
    make_folders(to.parent())?;
    fs::copy(from, to).map_err(wrong(from))?;
    set_mode(to, mode)
}

/// Replaces a file of `folder` by `NAME.gz`, with nothing of its time.
pub(super) fn gzip(folder: &Path, name: &str) -> Result<(), Failure> {
    Run::new(folder, "gzip").args(["-n9", name]).read().map(|_| ())
}

/// The names in a folder, in order.
pub(super) fn names(folder: &Path) -> Result<Vec<String>, Failure> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(wrong(folder))? {
        names.push(entry.map_err(wrong(folder))?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn make_folders(folder: Option<&Path>) -> Result<(), Failure> {
    let Some(folder) = folder.filter(|folder| !folder.exists()) else { return Ok(()) };
    make_folders(folder.parent())?;
    fs::create_dir(folder).map_err(wrong(folder))?;
    set_mode(folder, 0o755)
}

fn set_mode(path: &Path, mode: u32) -> Result<(), Failure> {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(wrong(path))
}
