//! `file-spout`: the lines of a file. A task of `n` emits every `n`-th line.
//!
//! A new start begins with the first line again; with exactly-once, behind what is durable. A line that is too long is skipped, and told: it must not stop those behind it.
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use topology::builder::Factory;
use topology::component::{Context, Fault, Next, Spout, SpoutOut};
use topology::past::Past;
use topology::tracker::Position;
use topology::value::Value;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::convert::text_value;
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};

/// Which file.
#[derive(Clone, Debug)]
struct Settings {
    path: String,
    line_bytes_max: usize,
    follows: bool,
}

#[derive(Debug)]
struct FileSpout {
    settings: Settings,
    file: Option<BufReader<File>>,
    /// What was read of a line that has no end yet, and whether its begin was thrown away.
    line: Vec<u8>,
    is_too_long: bool,
    /// Where the line begins, and its number.
    offset: u64,
    number: u64,
    place: u64,
    step: u64,
    fields: usize,
    /// Lines up to this one are not emitted, nor those that tasks have emitted when there were others.
    after: Option<u64>,
    past: Past,
}

impl FileSpout {
    fn new(settings: Settings) -> Self {
        let (file, line) = (None, Vec::new());
        Self {
            settings,
            file,
            line,
            is_too_long: false,
            offset: 0,
            number: 0,
            place: 0,
            step: 1,
            fields: 1,
            after: None,
            past: Past::default(),
        }
    }

    /// Reads on; whether there is a line.
    fn read(&mut self) -> Result<bool, Fault> {
        let Some(file) = &mut self.file else { return Ok(false) };
        loop {
            let room = (self.settings.line_bytes_max + 1).saturating_sub(self.line.len()).max(1);
            let count = file.by_ref().take(room as u64).read_until(b'\n', &mut self.line)?;
            if count == 0 {
                return Ok(!self.settings.follows && (!self.line.is_empty() || self.is_too_long));
            }
            if self.line.ends_with(b"\n") {
                return Ok(true);
            }
            if self.line.len() > self.settings.line_bytes_max {
                self.offset += self.line.len() as u64;
                self.line.clear();
                self.is_too_long = true;
            }
        }
    }

    /// Emits the line that was read, if it is one of this task's.
    fn emit(&mut self, out: &mut SpoutOut<'_>) -> Result<(), Fault> {
        let (line, offset, number) = (std::mem::take(&mut self.line), self.offset, self.number);
        self.offset += line.len() as u64;
        self.number += 1;
        let is_done = self.after.is_some_and(|after| offset <= after)
            || self.past.is_done(Position(u128::from(offset)), |tasks| number % tasks);
        if number % self.step != self.place || is_done {
            self.is_too_long = false;
            return Ok(());
        }
        let Settings { path, line_bytes_max, .. } = &self.settings;
        if std::mem::take(&mut self.is_too_long) {
            let number = number + 1;
            return Err(Fault::new(format!(
                "line {number} of {path} is skipped: it has more than {line_bytes_max} bytes (--line-bytes-max)"
            )));
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text_value(text.strip_suffix(b"\r").unwrap_or(text));
        let values = if self.fields == 1 { vec![text] } else { vec![Value::Int(offset as i64), text] };
        out.emit(Position(u128::from(offset)), &values)?;
        Ok(())
    }
}

impl Spout for FileSpout {
    fn open(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        let path = &self.settings.path;
        let of_path = |error: std::io::Error| Fault::new(format!("{path}: {error}"));
        let file = vfs::open_regular(Path::new(path)).map_err(of_path)?;
        self.file = Some(BufReader::with_capacity(READ_BYTES, file));
        (self.place, self.step) = (u64::from(context.place()), u64::from(context.tasks()));
        let streams = &context.plan().component(context.component()).streams;
        self.fields = streams.first().map_or(1, |stream| stream.fields.len());
        Ok(())
    }

    /// Lines before are read again, as their number says whose they are.
    fn seek(&mut self, after: Option<Position>) -> Result<(), Fault> {
        self.seek_past(&Past::after(after))
    }

    fn seek_past(&mut self, past: &Past) -> Result<(), Fault> {
        self.after = past.begin().map(|Position(offset)| u64::try_from(offset)).transpose()?;
        self.past = past.clone();
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        for _ in 0..out.room().max(1) {
            if !self.read()? {
                return Ok(if self.settings.follows { Next::After(FOLLOW_PAUSE) } else { Next::Woken });
            }
            self.emit(out)?;
        }
        Ok(Next::Now)
    }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let settings = Settings {
        path: arguments.words()[0].clone(),
        line_bytes_max: arguments.number("--line-bytes-max").unwrap_or_default() as usize,
        follows: arguments.has("--follow"),
    };
    let factory = Factory::spout(move || FileSpout::new(settings.clone()));
    let emits = Emits::Values(1..=2, "where the line begins and the line, or the line alone");
    Ok(Made { factory, reads: Vec::new(), reach: Reach::Machine("its path"), emits, exact: Exact::Same })
}

/// How long a file is left alone that has nothing new.
const FOLLOW_PAUSE: Duration = Duration::from_millis(100);
const READ_BYTES: usize = 64 << 10;

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "file-spout",
    what: "emits the lines of a file",
    signature: Signature {
        words: "PATH",
        words_count: (1, 1),
        options: &[
            Opt {
                name: "--line-bytes-max",
                value: Kind::Number(1, 64 << 20),
                default: "65536",
                what: "bytes of a line; longer ones are skipped with an error",
            },
            Opt {
                name: "--follow",
                value: Kind::Flag,
                default: "",
                what: "goes on at the end of the file when lines are appended",
            },
        ],
    },
    keeps: &[Keeps::Progress],
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Stand;
    use std::io::Write;

    fn lines(stand: &Stand<FileSpout>) -> Vec<&str> {
        stand.emitted.iter().map(|(_, values)| values[1].as_str()).collect()
    }

    #[test]
    fn lines_are_emitted_and_one_that_is_too_long_is_skipped() {
        let mut file = tempfile::NamedTempFile::new().expect("a file");
        write!(file, "one\r\n\n0123456789ABCDEF\ntwelve letters\nthree").expect("it is written");
        let path = file.path().display().to_string();
        for follows in [false, true] {
            let settings = Settings { path: path.clone(), line_bytes_max: 15, follows };
            let mut stand = Stand::spout(FileSpout::new(settings), &["offset", "line"]);
            let fault = stand.try_ask().expect_err("it is told");
            assert!(fault.error().contains("line 3 of") && fault.error().contains("--line-bytes-max"));
            let next = stand.ask();
            if follows {
                assert_eq!(
                    (lines(&stand), next),
                    (vec!["one", "", "twelve letters"], Next::After(FOLLOW_PAUSE))
                );
                writeln!(file, "!").expect("it is written");
                stand.ask();
                assert_eq!(lines(&stand)[3], "three!");
            } else {
                assert_eq!((lines(&stand), next), (vec!["one", "", "twelve letters", "three"], Next::Woken));
                assert_eq!(stand.emitted[2].1[0], "23", "where the line begins");
            }
        }
    }
}
