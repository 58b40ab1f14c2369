//! The metrics file: one line an interval, rotated by size.
//!
//! ```text
//!  metrics.jsonl     the newest lines; each is written by one call
//!  metrics.jsonl.1   former files, the newest first; the last one is removed when there are too many
//! ```
//!
//! No link is followed, of either kind: whoever may write the folder could let it lead to any file of the server's user.
//!
//! The file is opened for each line: one that logrotate or a person moved away or removed is begun anew. A line that a full disk
//! took half of is taken back; one that a crash cut off gets its end before the next.

#![allow(
    clippy::disallowed_methods,
    reason = "a file for other programs, outside of the data that a simulation owns"
)]

use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::time::Duration;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::FileOptions;

/// The file, and whether it works.
#[derive(Debug)]
pub(crate) struct MetricsFile {
    options: FileOptions,
    /// The last line was lost, and that was told.
    failing: bool,
}

impl MetricsFile {
    pub(crate) fn new(options: FileOptions) -> Self {
        MetricsFile { options, failing: false }
    }

    pub(crate) fn interval(&self) -> Duration {
        self.options.interval
    }

    /// Adds a line. What goes wrong is logged when it begins and when it ends.
    pub(crate) fn append(&mut self, line: &str) {
        let path = self.options.path.display();
        let result = self.try_append(line);
        match &result {
            Ok(()) if self.failing => tracing::info!("metrics.file = {path}: works again"),
            Err(error) if !self.failing => {
                tracing::warn!("metrics.file = {path}: {error}; lines are lost until it works again");
            }
            _ => {}
        }
        self.failing = result.is_err();
    }

    fn try_append(&self, line: &str) -> io::Result<()> {
        let mut file = self.open()?;
        let mut size = file.metadata()?.len();
        let mut text = format!("{line}\n");
        if size > 0 && size + text.len() as u64 > self.options.bytes_max {
            self.rotate()?;
            file = self.open()?;
            size = file.metadata()?.len();
        }
        if size > 0 && !ends_in_newline(&file, size)? {
            text.insert(0, '\n');
        }
        file.write_all(text.as_bytes()).inspect_err(|_| {
            // Half a line is no JSON. If that fails, too, the next one begins on a line of its own.
            let _ = file.set_len(size);
        })
    }

    fn open(&self) -> io::Result<File> {
        let mut options = OpenOptions::new();
        // A pipe that nobody reads fills up and fails, instead of waiting.
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        options.read(true).append(true).create(true).mode(0o640).custom_flags(flags);
        let refused = |why: &str| io::Error::new(io::ErrorKind::InvalidInput, why);
        let file = options.open(&self.options.path).map_err(|error| {
            let is_link = error.raw_os_error() == Some(Errno::LOOP.raw_os_error());
            if is_link {
                refused("it is a symbolic link, which is not followed: name the file itself")
            } else {
                error
            }
        })?;
        let facts = file.metadata()?;
        if facts.is_file() && facts.nlink() > 1 {
            return Err(refused(
                "it has a second name (a hard link): whoever made that may not mean this file",
            ));
        }
        Ok(file)
    }

    /// Makes the file the newest of the former ones.
    fn rotate(&self) -> io::Result<()> {
        for number in (0..self.options.former_max).rev() {
            match std::fs::rename(self.name(number), self.name(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        if self.options.former_max == 0 { std::fs::remove_file(&self.options.path) } else { Ok(()) }
    }

    /// The former file of this number; 0 is the one that is written.
    fn name(&self, number: usize) -> PathBuf {
        let mut name = self.options.path.clone().into_os_string();
        if number > 0 {
            name.push(format!(".{number}"));
        }
        name.into()
    }
}

fn ends_in_newline(file: &File, size: u64) -> io::Result<bool> {
    let mut last = [0];
    file.read_exact_at(&mut last, size - 1)?;
    Ok(last == *b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(dir: &std::path::Path, bytes_max: u64, former_max: usize) -> MetricsFile {
        let path = dir.join("metrics.jsonl");
        MetricsFile::new(FileOptions { path, interval: Duration::from_secs(1), bytes_max, former_max })
    }

    fn text(file: &MetricsFile, number: usize) -> String {
        std::fs::read_to_string(file.name(number)).unwrap_or_else(|_| "none".to_owned())
    }

    #[test]
    fn lines_go_to_new_files_by_size_and_the_oldest_files_leave() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = file(dir.path(), 8, 2);
        for line in ["aaa", "bbb", "ccc", "ddd", "eee", "fff", "ggg is longer than a file"] {
            file.append(line);
        }
        assert_eq!(text(&file, 0), "ggg is longer than a file\n");
        assert_eq!((text(&file, 1), text(&file, 2)), ("eee\nfff\n".to_owned(), "ccc\nddd\n".to_owned()));
        assert_eq!(text(&file, 3), "none");
    }

    #[test]
    fn without_former_files_the_only_one_begins_anew() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = file(dir.path(), 4, 0);
        file.append("aaa");
        file.append("bbb");
        assert_eq!((text(&file, 0), text(&file, 1)), ("bbb\n".to_owned(), "none".to_owned()));
    }

    #[test]
    fn line_that_a_crash_cut_off_keeps_to_itself() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = file(dir.path(), 100, 1);
        std::fs::write(file.name(0), "{\"a\":1}\n{\"b\"").expect("written");
        file.append("{}");
        assert_eq!(text(&file, 0), "{\"a\":1}\n{\"b\"\n{}\n");
    }

    #[test]
    fn file_that_cannot_be_written_costs_its_lines_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = file(&dir.path().join("missing"), 100, 1);
        file.append("lost");
        assert!(file.failing);
        std::fs::create_dir(dir.path().join("missing")).expect("made");
        file.append("kept");
        assert!(!file.failing);
        assert_eq!(text(&file, 0), "kept\n");
    }

    #[test]
    fn pipe_that_nobody_reads_holds_nothing_up() {
        let dir = tempfile::tempdir().expect("a folder");
        let mut file = file(dir.path(), 1 << 20, 1);
        rustix::fs::mkfifoat(rustix::fs::CWD, file.name(0), rustix::fs::Mode::RWXU).expect("a pipe");
        file.append(&"x".repeat(100_000));
        assert!(file.failing, "64 KiB fit into a pipe");
    }

    /// What a link led to got the lines: any file that the server's user may write.
    #[test]
    fn link_in_place_of_the_file_is_not_followed() {
        let dir = tempfile::tempdir().expect("a folder");
        let victim = dir.path().join("victim");
        let mut file = file(dir.path(), 100, 1);
        for (number, is_hard) in [false, true].into_iter().enumerate() {
            std::fs::write(&victim, "mine").expect("written");
            if is_hard {
                std::fs::hard_link(&victim, file.name(0)).expect("a link");
            } else {
                std::os::unix::fs::symlink(&victim, file.name(0)).expect("a link");
            }
            file.append("lost");
            assert!(file.failing, "link {number}");
            assert_eq!(std::fs::read_to_string(&victim).expect("text"), "mine");
            std::fs::remove_file(file.name(0)).expect("removed");
            file.append("kept");
            assert_eq!((file.failing, text(&file, 0)), (false, "kept\n".to_owned()));
            std::fs::remove_file(file.name(0)).expect("removed");
        }
    }

    #[test]
    fn full_disk_is_left_without_half_a_line() {
        let mut file = file(std::path::Path::new("/nowhere"), 100, 1);
        file.options.path = "/dev/full".into();
        file.append("lost");
        assert!(file.failing);
    }
}
