//! Files that people write: settings, passwords, definitions.

use std::io::Read as _;
use std::path::Path;

use crate::failure::Failure;

/// Reads a file that a person wrote; `what` is its name in errors. Waits for nobody: what is no regular file is refused.
pub(crate) fn read_small(what: &str, path: &Path) -> Result<String, Failure> {
    bounded(what, path, vfs::read_regular(path, FILE_BYTES_MAX))
}

/// The same for a command whose user waits, and may have named a pipe.
#[expect(clippy::disallowed_methods, reason = "a user's file, outside of the data that a simulation owns")]
pub(crate) fn read_small_or_pipe(what: &str, path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    bounded(what, path, read.map(|_| text))
}

fn bounded(what: &str, path: &Path, read: std::io::Result<String>) -> Result<String, Failure> {
    let too_large = || Failure::Usage(format!("{what} {} is larger than 1 MiB, the limit", path.display()));
    match read {
        Ok(text) if text.len() as u64 > FILE_BYTES_MAX => Err(too_large()),
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::FileTooLarge => Err(too_large()),
        Err(error) => Err(Failure::Usage(format!("cannot read {what} {}: {error}", path.display()))),
    }
}

/// A hundred times what all settings take with their comments.
const FILE_BYTES_MAX: u64 = 1 << 20;
