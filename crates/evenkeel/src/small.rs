//! Files that people write: settings, passwords, definitions.

use std::io::Read as _;
use std::path::Path;

use crate::failure::Failure;

/// Reads a file that a person wrote; `what` is its name in errors.
#[expect(clippy::disallowed_methods, reason = "a user's file, outside of the data that a simulation owns")]
pub(crate) fn read_small(what: &str, path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text));
    let bytes = read.map_err(|e| Failure::Usage(format!("cannot read {what} {}: {e}", path.display())))?;
    if bytes as u64 > FILE_BYTES_MAX {
        return Err(Failure::Usage(format!("{what} {} is larger than 1 MiB, the limit", path.display())));
    }
    Ok(text)
}

/// A hundred times what all settings take with their comments.
const FILE_BYTES_MAX: u64 = 1 << 20;
