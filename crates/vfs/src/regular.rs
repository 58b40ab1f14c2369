//! Files that people name in settings and commands: whatever is at the path, opening and reading it waits for nobody.
//!
//! A pipe that nobody writes holds its reader up for ever, and a device has no end. So what is opened is a regular file, found out about the open
//! file, not about its name.
//!
//! Out of scope: the data folder (`Vfs`).

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};

/// Opens a regular file for reading.
///
/// # Errors
/// The system's, and for what is no regular file `InvalidInput`.
pub fn open_regular(path: &Path) -> io::Result<File> {
    // Without NONBLOCK the open of a pipe waits for a writer.
    regular(path, OFlags::RDONLY | OFlags::NONBLOCK)
}

/// Opens a regular file for reading and appending, and makes it, for its user and group, if it is not there.
///
/// # Errors
/// As [`open_regular`].
pub fn append_regular(path: &Path) -> io::Result<File> {
    regular(path, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::NONBLOCK)
}

/// Reads a regular file of at most `bytes_max`.
///
/// # Errors
/// As [`open_regular`]; `InvalidData` for what is no UTF-8, `FileTooLarge` for a longer one.
pub fn read_regular(path: &Path, bytes_max: u64) -> io::Result<String> {
    let mut text = String::new();
    open_regular(path)?.take(bytes_max + 1).read_to_string(&mut text)?;
    if text.len() as u64 > bytes_max {
        let why = format!("it has more than {bytes_max} bytes, the limit");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
    }
    Ok(text)
}

fn regular(path: &Path, flags: OFlags) -> io::Result<File> {
    let file = rustix::fs::open(path, flags | OFlags::CLOEXEC, Mode::from_raw_mode(0o640))?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode);
    if kind != FileType::RegularFile {
        let text = format!("it is no regular file, but {}", called(kind));
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    Ok(File::from(file))
}

fn called(kind: FileType) -> &'static str {
    match kind {
        FileType::Fifo => "a pipe",
        FileType::Directory => "a folder",
        FileType::Socket => "a socket",
        _ => "a device",
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make the files that a person would")]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::symlink;

    use super::*;

    fn error<T>(result: io::Result<T>) -> String {
        result.err().expect("refused").to_string()
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let dir = tempfile::tempdir().expect("a folder");
        let pipe = dir.path().join("pipe");
        rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, Mode::RWXU).expect("a pipe");
        let alias = dir.path().join("alias");
        symlink(&pipe, &alias).expect("a link");
        for path in [&pipe, &alias] {
            assert!(error(read_regular(path, 10)).contains("a pipe"));
        }
        assert!(error(append_regular(&pipe)).contains("a pipe"));
        assert!(error(read_regular(dir.path(), 10)).contains("a folder"));
        assert!(error(read_regular(Path::new("/dev/zero"), 10)).contains("a device"));
        assert!(error(read_regular(&dir.path().join("none"), 10)).contains("os error 2"));
    }

    #[test]
    fn links_are_followed_and_long_files_are_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        let [file, link] = ["file", "link"].map(|name| dir.path().join(name));
        append_regular(&file).expect("made").write_all(b"abc").expect("written");
        symlink(&file, &link).expect("a link");
        append_regular(&link).expect("opened").write_all(b"d").expect("written");
        assert_eq!(read_regular(&link, 4).expect("read"), "abcd");
        assert!(error(read_regular(&file, 3)).contains("more than 3 bytes"));
    }
}
