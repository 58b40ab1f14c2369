//! `evenkeel topology package FILE -o JAR`: a definition and its components as a jar, which is a zip file, for Apache Storm.
//!
//! ```text
//!  words.yaml                 the definition as it was written
//!  resources/                 the entry that Storm looks for
//!  resources/split.py ...     what is in the folder of the components
//! ```
//!
//! Invariants
//!   1. Equal files give equal jars: names are in order, and times are not kept.
//!   2. What is packed is a plain file below the folder: a symbolic link could lead out of it, and is refused.
#![expect(clippy::disallowed_methods, reason = "a user's files, outside of the data that a simulation owns")]

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use zip::ZipWriter;
use zip::write::SimpleFileOptions;

use crate::failure::Failure;

/// A file for the jar.
struct Part {
    /// Its name there.
    name: String,
    path: PathBuf,
    bytes: u64,
    is_executable: bool,
}

/// Packs the definition `file` and what is in `folder`, if its components need one, into `out`; what was done, for the user.
///
/// # Errors
/// One line: a file cannot be packed, or they are too many or too large.
pub(super) fn package(file: &Path, folder: Option<&Path>, out: &Path) -> Result<String, Failure> {
    let name = file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = name.ok_or_else(|| Failure::Usage(format!("{} is no file", file.display())))?;
    let mut parts = Vec::new();
    if let Some(folder) = folder {
        collect(folder, "resources", &[file, out], &mut parts)?;
    }
    write(file, &name, &parts, out)?;
    let (count, bytes) = (parts.len(), parts.iter().map(|part| part.bytes).sum::<u64>());
    let packed = match folder {
        Some(folder) => format!("{count} files of {}, {bytes} B", folder.display()),
        None => "no files: all its components are built in".to_owned(),
    };
    Ok(format!("{}: {name} and {packed}\n", out.display()))
}

/// Appends what is in `folder`, in the order of names, but for hidden files and `others`.
fn collect(folder: &Path, prefix: &str, others: &[&Path], parts: &mut Vec<Part>) -> Result<(), Failure> {
    let wrong = |path: &Path, why: &str| Failure::Usage(format!("{}: {why}", path.display()));
    let read = |error: io::Error| wrong(folder, &error.to_string());
    if folder.join(journal::MANIFEST_NAME).exists() {
        let why = "it is a server's data, not a component's: put the components into a folder `resources`";
        return Err(wrong(folder, why));
    }
    let mut entries = fs::read_dir(folder).map_err(read)?.collect::<Result<Vec<_>, _>>().map_err(read)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let Ok(own) = entry.file_name().into_string() else {
            return Err(wrong(&path, "its name is not UTF-8"));
        };
        if own.starts_with('.') || others.iter().any(|other| is_same(&path, other)) {
            continue;
        }
        let data = entry.metadata().map_err(read)?; // of a link itself
        let name = format!("{prefix}/{own}");
        if data.is_symlink() {
            return Err(wrong(&path, "it is a symbolic link: put the file itself there"));
        } else if data.is_dir() {
            collect(&path, &name, others, parts)?;
        } else if data.is_file() {
            let is_executable = data.permissions().mode() & 0o111 != 0;
            parts.push(Part { name, path, bytes: data.len(), is_executable });
        } else {
            return Err(wrong(&path, "it is neither a file nor a folder"));
        }
        let bytes: u64 = parts.iter().map(|part| part.bytes).sum();
        if parts.len() > FILES_MAX || bytes > BYTES_MAX {
            let (count, most) = (parts.len(), BYTES_MAX >> 20);
            let text =
                format!("{count} files of {bytes} B: a jar has at most {FILES_MAX} files and {most} MiB");
            return Err(wrong(folder, &text));
        }
    }
    Ok(())
}

fn is_same(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}

/// Writes the jar beside `out`, and puts it there when it is whole.
fn write(file: &Path, name: &str, parts: &[Part], out: &Path) -> Result<(), Failure> {
    let written = |error: io::Error| cannot("write", out, &error);
    let mut beside = out.as_os_str().to_owned();
    beside.push(".part");
    let beside = PathBuf::from(beside);
    let mut jar = ZipWriter::new(BufWriter::new(File::create(&beside).map_err(written)?));
    add(&mut jar, name, file, 0o644)?;
    let folder = options().unix_permissions(0o755);
    jar.add_directory("resources/", folder).map_err(|error| written(error.into()))?;
    for part in parts {
        add(&mut jar, &part.name, &part.path, if part.is_executable { 0o755 } else { 0o644 })?;
    }
    let mut writer = jar.finish().map_err(|error| written(error.into()))?;
    writer.flush().and_then(|()| writer.get_ref().sync_all()).map_err(written)?;
    fs::rename(&beside, out).map_err(written)
}

/// Adds the file at `path` under `name`.
fn add(
    jar: &mut ZipWriter<BufWriter<File>>,
    name: &str,
    path: &Path,
    permissions: u32,
) -> Result<(), Failure> {
    let failed = |error: io::Error| cannot("pack", path, &error);
    let mut source = File::open(path).map_err(failed)?;
    jar.start_file(name, options().unix_permissions(permissions)).map_err(|error| failed(error.into()))?;
    io::copy(&mut source, jar).map(drop).map_err(failed)
}

fn options() -> SimpleFileOptions {
    SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored)
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::System(format!("cannot {what} {}: {error}", path.display()))
}

const FILES_MAX: usize = 10_000;
/// Below what needs zip64, and more than sources take.
const BYTES_MAX: u64 = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn folder() -> tempfile::TempDir {
        let dir = tempfile::tempdir().expect("a folder");
        fs::create_dir_all(dir.path().join("resources/lib")).expect("it is made");
        let files = [
            ("x.yaml", "name: x\n"),
            ("resources/split.py", "split"),
            ("resources/lib/words.py", "words"),
            ("resources/.hidden", "no"),
        ];
        for (name, text) in files {
            fs::write(dir.path().join(name), text).expect("it is written");
        }
        dir
    }

    fn packed(dir: &Path, out: &str) -> Result<Vec<u8>, String> {
        let out = dir.join(out);
        package(&dir.join("x.yaml"), Some(&dir.join("resources")), &out)
            .map_err(|failure| failure.to_string())?;
        Ok(fs::read(out).expect("it is there"))
    }

    #[test]
    fn jar_has_the_definition_and_the_folder_and_is_the_same_each_time() {
        let dir = folder();
        let bytes = packed(dir.path(), "topo.jar").expect("it is packed");
        assert_eq!(packed(dir.path(), "resources/again.jar").expect("it is packed"), bytes);
        assert_eq!(packed(dir.path(), "resources/again.jar").expect("without itself"), bytes);
        let mut jar = zip::ZipArchive::new(io::Cursor::new(bytes)).expect("a zip file");
        let names: Vec<String> = jar.file_names().map(|name| name.expect("text").into_owned()).collect();
        assert_eq!(names, ["x.yaml", "resources/", "resources/lib/words.py", "resources/split.py"]);
        let mut text = String::new();
        jar.by_name("resources/split.py").expect("it is there").read_to_string(&mut text).expect("text");
        assert_eq!(text, "split");
    }

    #[test]
    fn data_of_a_server_is_refused_and_without_components_no_file_is_packed() {
        let dir = folder();
        fs::create_dir(dir.path().join("resources/data")).expect("it is made");
        fs::write(dir.path().join("resources/data").join(journal::MANIFEST_NAME), "").expect("it is written");
        assert!(packed(dir.path(), "topo.jar").expect_err("refused").contains("a server's data"));
        let beside = package(
            &dir.path().join("x.yaml"),
            Some(&dir.path().join("resources/data")),
            &dir.path().join("y.jar"),
        );
        assert!(beside.expect_err("the folder itself is one").to_string().contains("a server's data"));
        let out = dir.path().join("topo.jar");
        package(&dir.path().join("x.yaml"), None, &out).expect("it is packed");
        let jar = zip::ZipArchive::new(File::open(&out).expect("it is there")).expect("a zip file");
        let names: Vec<String> = jar.file_names().map(|name| name.expect("text").into_owned()).collect();
        assert_eq!(names, ["x.yaml", "resources/"]);
    }

    #[test]
    fn link_is_refused() {
        let dir = folder();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("resources/link")).expect("it is made");
        assert!(packed(dir.path(), "topo.jar").expect_err("refused").contains("a symbolic link"));
        assert!(!dir.path().join("topo.jar").exists());
    }
}
