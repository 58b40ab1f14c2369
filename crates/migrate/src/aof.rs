//! Files: RDB, AOF, AOF that begins as RDB, and the folder of AOF files with its manifest.
//!
//! ```text
//!  manifest  "file NAME seq N type T", a line each, other words and lines that begin with # aside; T: b the base, i what followed, h history
//! ```
//!
//! The last file may end in the middle of a command or of a transaction, as Redis's may: the rest is left out and told.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use clock::{Clock, Nanos, SystemClock};
use rdb::{Limits, Reader};
use resp::ValueEnd;

use crate::error::MigrateError;
use crate::load::Loader;
use crate::options::{Control, Import};
use crate::replay::{Replayer, next_command};
use crate::sink::Sink;

/// Imports a file or a folder.
pub(crate) fn import(
    path: &Path,
    options: &Import,
    sink: &mut Sink,
    control: &Control<'_>,
) -> Result<(), MigrateError> {
    let files = if path.is_dir() { listed(path)? } else { vec![path.to_owned()] };
    let mut replayer = Replayer::new(options.db);
    for (nth, file) in files.iter().enumerate() {
        let is_last = nth + 1 == files.len();
        import_file(file, is_last, options, &mut replayer, sink, control)?;
    }
    Ok(())
}

fn import_file(
    path: &Path,
    is_last: bool,
    options: &Import,
    replayer: &mut Replayer,
    sink: &mut Sink,
    control: &Control<'_>,
) -> Result<(), MigrateError> {
    let failed = |error: std::io::Error| MigrateError::Input(format!("{}: {error}", path.display()));
    let mut file = open(path).map_err(failed)?;
    let all = file.metadata().map_err(failed)?.len();
    let mut progress = Progress::new(control, all);
    let mut magic = [0; 1];
    let is_commands = file.read(&mut magic).map_err(failed)? == 0 || magic == *b"*" || magic == *b"#";
    let begun = std::io::Cursor::new(if is_commands && all == 0 { Vec::new() } else { magic.to_vec() });
    let input = begun.chain(file);
    if is_commands {
        return replay(path, input, Vec::new(), is_last, replayer, sink, &mut progress);
    }
    let broken = |error: rdb::Error| MigrateError::Input(format!("{}: {error}", path.display()));
    let mut reader = Reader::open(input, Limits::default()).map_err(broken)?;
    load(&mut reader, options, sink, &mut progress).map_err(|error| match error {
        LoadError::Rdb(error) => broken(error),
        LoadError::Other(error) => error,
    })?;
    // the commands that follow are about these keys
    sink.settle()?;
    let (input, more) = reader.into_parts();
    replay(path, input, more, is_last, replayer, sink, &mut progress)
}

pub(crate) enum LoadError {
    Rdb(rdb::Error),
    Other(MigrateError),
}

/// Loads all keys of a file.
pub(crate) fn load<R: Read>(
    reader: &mut Reader<R>,
    options: &Import,
    sink: &mut Sink,
    progress: &mut Progress<'_>,
) -> Result<(), LoadError> {
    let mut loader = Loader::new(options.existing, options.db, SystemClock.unix_ms().0);
    let mut items = 0_u32;
    while let Some(item) = reader.next_item().map_err(LoadError::Rdb)? {
        loader.take(item, sink).map_err(LoadError::Other)?;
        items = items.wrapping_add(1);
        if items.is_multiple_of(ITEMS_BETWEEN) {
            progress.at(reader.offset(), sink).map_err(LoadError::Other)?;
        }
    }
    Ok(())
}

fn replay(
    path: &Path,
    mut input: impl Read,
    mut bytes: Vec<u8>,
    is_last: bool,
    replayer: &mut Replayer,
    sink: &mut Sink,
    progress: &mut Progress<'_>,
) -> Result<(), MigrateError> {
    let failed = |what: String| MigrateError::Input(format!("{}: {what}", path.display()));
    let (mut taken, mut end, mut done) = (0, ValueEnd::default(), 0);
    loop {
        // an annotation with the time
        if bytes.get(taken) == Some(&b'#') {
            if let Some(len) = bytes[taken..].iter().position(|byte| *byte == b'\n') {
                taken += len + 1;
                continue;
            }
        } else if let Some(command) = next_command(&bytes[taken..], &mut end).map_err(failed)? {
            let len = command.bytes.len();
            replayer.take(&command, sink)?;
            taken += len;
            done += len as u64;
            progress.at(done, sink)?;
            continue;
        }
        bytes.drain(..taken);
        taken = 0;
        let have = bytes.len();
        bytes.resize(have + have.clamp(READ_BYTES_MIN, READ_BYTES_MAX), 0);
        let count = input.read(&mut bytes[have..]).map_err(|error| failed(error.to_string()))?;
        bytes.truncate(have + count);
        if count == 0 {
            break;
        }
    }
    if bytes.is_empty() && !replayer.is_open() {
        return Ok(());
    }
    let what = if replayer.is_open() { "a transaction" } else { "a command" };
    let text = format!("{}: ends in the middle of {what}: {} B are left out", path.display(), bytes.len());
    replayer.abandon();
    if !is_last {
        return Err(MigrateError::Input(text));
    }
    sink.report.note(text);
    Ok(())
}

/// The files of a folder, in their order.
fn listed(folder: &Path) -> Result<Vec<PathBuf>, MigrateError> {
    let failed = |error: std::io::Error| MigrateError::Input(format!("{}: {error}", folder.display()));
    let is_manifest = |path: &PathBuf| path.extension().is_some_and(|it| it == "manifest");
    let entries = std::fs::read_dir(folder).map_err(failed)?;
    let manifests: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).filter(is_manifest).collect();
    let [manifest] = &manifests[..] else {
        let text = format!("{}: {} files end in .manifest, not one", folder.display(), manifests.len());
        return Err(MigrateError::Input(text));
    };
    let mut text = String::new();
    open(manifest)
        .and_then(|file| file.take(MANIFEST_BYTES_MAX).read_to_string(&mut text))
        .map_err(failed)?;
    let files = parse_manifest(&text).map_err(|line| {
        MigrateError::Input(format!("{}: a line that is not understood: {line}", manifest.display()))
    })?;
    Ok(files.into_iter().map(|name| folder.join(name)).collect())
}

/// Names of the base and of what followed, in order; the line that is wrong.
fn parse_manifest(text: &str) -> Result<Vec<String>, String> {
    let mut files = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let wrong = || line.to_owned();
        let words: Vec<&str> = line.split(' ').collect();
        let word = |name| words.chunks_exact(2).find(|pair| pair[0] == name).map(|pair| pair[1]);
        // a quoted name has blanks, which those of Redis never have
        let name = word("file").filter(|name| !name.contains(['/', '"'])).ok_or_else(wrong)?;
        let seq: u64 = word("seq").and_then(|seq| seq.parse().ok()).ok_or_else(wrong)?;
        match word("type") {
            Some("b") => files.push((0, seq, name.to_owned())),
            Some("i") => files.push((1, seq, name.to_owned())),
            Some("h") => {}
            _ => return Err(wrong()),
        }
    }
    files.sort_unstable();
    Ok(files.into_iter().map(|(_, _, name)| name).collect())
}

#[expect(clippy::disallowed_methods, reason = "a user's file, outside of the data that a simulation owns")]
fn open(path: &Path) -> std::io::Result<File> {
    File::open(path)
}

/// Tells each second how far it is.
pub(crate) struct Progress<'a> {
    control: &'a Control<'a>,
    began: Nanos,
    told: Nanos,
    all: u64,
    keys_before: u64,
}

impl<'a> Progress<'a> {
    /// Of `all` bytes; 0: nobody knows.
    pub(crate) fn new(control: &'a Control<'a>, all: u64) -> Self {
        let now = SystemClock.now();
        Self { control, began: now, told: now, all, keys_before: 0 }
    }

    /// So many bytes are read.
    ///
    /// # Errors
    /// It is to end.
    pub(crate) fn at(&mut self, bytes: u64, sink: &Sink) -> Result<(), MigrateError> {
        if self.control.is_over() {
            let text = format!(
                "{} keys were read: the same again with --replace takes the rest",
                sink.report.keys()
            );
            return Err(MigrateError::Told(text));
        }
        let now = SystemClock.now();
        let passed = now.since(self.told);
        if passed.as_secs() < 1 {
            return Ok(());
        }
        self.told = now;
        let keys = sink.report.keys();
        let rate = (keys - self.keys_before) as f64 / passed.as_secs_f64();
        self.keys_before = keys;
        let of = if self.all == 0 { String::new() } else { format!(" of {}", self.all >> 20) };
        let seconds = now.since(self.began).as_secs();
        (self.control.tell)(&format!("{seconds} s: {keys} keys, {}{of} MiB, {rate:.0} keys/s", bytes >> 20));
        Ok(())
    }
}

/// Items of a file between two looks at the clock.
const ITEMS_BETWEEN: u32 = 1_024;
const READ_BYTES_MIN: usize = 64 << 10;
const READ_BYTES_MAX: usize = 16 << 20;
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifest_of_redis_lists_its_files_in_order() {
        let text = "file appendonly.aof.2.base.rdb seq 2 type b\nfile appendonly.aof.1.incr.aof seq 1 type h\n\
                    file appendonly.aof.10.incr.aof seq 10 type i\n# a remark\n\
                    file appendonly.aof.9.incr.aof seq 9 type i startoffset 0\n";
        let wanted = ["appendonly.aof.2.base.rdb", "appendonly.aof.9.incr.aof", "appendonly.aof.10.incr.aof"];
        assert_eq!(parse_manifest(text).expect("a manifest"), wanted);
        for line in ["file ../x seq 1 type b", "file a seq x type b", "file a seq 1 type z", "hello"] {
            assert_eq!(parse_manifest(line).expect_err("refused"), line);
        }
    }
}
