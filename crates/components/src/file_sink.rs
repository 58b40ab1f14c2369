//! `file-sink`: a line of a file for each tuple. A tuple is acknowledged when its line is synced; many lines share a sync.
//!
//! ```text
//!  component --lines--> writer (its own thread): write, sync --how many are durable--> component
//! ```
//!
//! A line may be there twice after a failure. Part of a line that a crash has left becomes a line of its own.
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use topology::bolt::TupleId;
use topology::builder::Factory;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Tuple, Waker};

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::convert::append_field;
use crate::row::{Emits, Exact, Made, Reach, Row};
use crate::template::Template;

/// Which file, and what a line is.
#[derive(Clone, Debug)]
struct Settings {
    path: String,
    /// `None`: all fields with tabs between them.
    line: Option<Template>,
}

#[derive(Debug)]
struct FileSink {
    settings: Settings,
    shared: Arc<Shared>,
    /// Tuples whose lines are not known to be durable, in their order.
    open: VecDeque<TupleId>,
    line: Vec<u8>,
}

/// Shared by the component and the writer.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Lines that wait to be written, and how many.
    bytes: Vec<u8>,
    lines: usize,
    /// What has become of lines since the component looked: so many, and what went wrong with them.
    done: VecDeque<(usize, Option<String>)>,
    is_stopped: bool,
}

impl FileSink {
    fn new(settings: Settings) -> Self {
        Self { settings, shared: Arc::default(), open: VecDeque::new(), line: Vec::new() }
    }

    fn fill_line(&mut self, tuple: &Tuple<'_>) -> Result<(), Fault> {
        self.line.clear();
        match &self.settings.line {
            Some(template) => template.append(tuple, &mut self.line)?,
            None => {
                for (place, name) in tuple.stream().fields.iter().enumerate() {
                    if place > 0 {
                        self.line.push(b'\t');
                    }
                    append_field(tuple, name, &mut self.line)?;
                }
            }
        }
        if self.line.contains(&b'\n') {
            return Err(Fault::fatal("its line would have an end of a line in it"));
        }
        self.line.push(b'\n');
        Ok(())
    }
}

impl Bolt for FileSink {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        let path = &self.settings.path;
        let file = open(path).map_err(|error| Fault::new(format!("{path}: {error}")))?;
        let (shared, waker) = (Arc::clone(&self.shared), context.waker());
        let builder = std::thread::Builder::new().name(format!("file of {}", context.id()));
        builder.spawn(move || shared.write_all(file, &waker))?;
        Ok(())
    }

    fn is_ready(&self) -> bool {
        self.shared.lock().bytes.len() < WAITING_BYTES_MAX && self.open.len() < OPEN_MAX
    }

    fn execute(&mut self, tuple: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        self.fill_line(tuple)?;
        let mut state = self.shared.lock();
        state.bytes.extend_from_slice(&self.line);
        state.lines += 1;
        drop(state);
        self.shared.bell.notify_one();
        self.open.push_back(tuple.id());
        Ok(Outcome::Keep)
    }

    fn wake(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let (done, mut result) = (std::mem::take(&mut self.shared.lock().done), Ok(()));
        for (lines, error) in done {
            let fault = error.map(|error| Fault::new(format!("{}: {error}", self.settings.path)));
            for tuple in self.open.drain(..lines.min(self.open.len())) {
                match &fault {
                    None => out.ack(tuple).unwrap_or(()),
                    Some(fault) => out.fail(tuple, fault).unwrap_or(()),
                }
            }
            result = fault.map_or(result, Err);
        }
        result
    }

    fn close(&mut self) {
        self.shared.lock().is_stopped = true;
        self.shared.bell.notify_one();
    }
}

impl Drop for FileSink {
    /// A bolt that has panicked is not closed.
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// Writes until the component has ended.
    fn write_all(&self, mut file: File, waker: &Waker) {
        let mut bytes = Vec::new();
        loop {
            let is_idle = |state: &mut State| state.lines == 0 && !state.is_stopped;
            let waited = self.bell.wait_while(self.lock(), is_idle);
            let mut state = waited.unwrap_or_else(PoisonError::into_inner);
            if state.lines == 0 {
                return;
            }
            bytes.clear();
            std::mem::swap(&mut bytes, &mut state.bytes);
            let lines = std::mem::take(&mut state.lines);
            drop(state);
            let written =
                end_line(&mut file).and_then(|()| file.write_all(&bytes)).and_then(|()| file.sync_data());
            self.lock().done.push_back((lines, written.err().map(|error| error.to_string())));
            waker.wake();
        }
    }

    /// A panic while this was locked left it whole: each change is one step.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn open(path: &str) -> io::Result<File> {
    vfs::append_regular(Path::new(path))
}

/// Ends the last line, if a crash or an error has left a part of one.
fn end_line(file: &mut File) -> io::Result<()> {
    let mut last = [b'\n'];
    if file.seek(SeekFrom::End(0))? > 0 {
        file.seek(SeekFrom::End(-1))?;
        file.read_exact(&mut last)?;
    }
    if last == *b"\n" { Ok(()) } else { file.write_all(b"\n") }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let line = arguments.text("--line").map(Template::read).transpose()?;
    let reads = line.iter().flat_map(Template::fields).cloned().collect();
    let settings = Settings { path: arguments.words()[0].clone(), line };
    let factory = Factory::bolt(move || FileSink::new(settings.clone()));
    let exact = Exact::None("a file is not part of an epoch");
    Ok(Made { factory, reads, reach: Reach::Machine("its path"), emits: Emits::Nothing, exact })
}

const WAITING_BYTES_MAX: usize = 1 << 20;
const OPEN_MAX: usize = 10_000;

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "file-sink",
    what: "appends a line to a file for each tuple",
    signature: Signature {
        words: "PATH",
        words_count: (1, 1),
        options: &[Opt {
            name: "--line",
            value: Kind::Text,
            default: "",
            what: "the line, with `{field}` for values; without it all fields with tabs between them",
        }],
    },
    keeps: &[],
    make,
};

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests make and read the file")]
mod tests {
    use super::*;
    use crate::testing::Stand;
    use topology::value::Value;

    #[test]
    fn tuple_is_acknowledged_when_its_line_is_in_the_file() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), "torn").expect("it is written");
        let settings = Settings { path: file.path().display().to_string(), line: None };
        let mut stand = Stand::bolt(FileSink::new(settings), &["word", "n"], &["nothing"]);
        stand.execute(&[Value::from("a"), Value::from(1)]);
        stand.execute(&[Value::from("b\nc"), Value::from(2)]);
        stand.execute(&[Value::from("d"), Value::from(3)]);
        while stand.record.acked.len() < 2 {
            stand.rest();
            stand.wake();
        }
        assert_eq!(stand.record.acked, [1, 3]);
        assert!(stand.record.failed[0].1.contains("an end of a line in it"));
        assert_eq!(std::fs::read_to_string(file.path()).expect("text"), "torn\na\t1\nd\t3\n");
    }
}
