//! `evenkeel capture`: has a server tell what all its clients send, and writes that to a file.
//!
//! The server streams chunks (`CAPTURE START`); this side decides how long, and where the file lies: no client chooses paths on the
//! server. Ctrl-C or SIGTERM end the capture as its time does, and the file is whole. What this side does not take in time is dropped
//! by the server and counted in the file.

use std::fs::File;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capture::{END_BYTES, Ending};
use clap::{Args, ValueEnum};
use clock::{Clock, Nanos, SystemClock};
use connection::{Client, ClientError};
use resp::Value;
use server::settings::Size;
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::client::{self, Server};
use crate::failure::Failure;

/// The arguments of `evenkeel capture`.
#[derive(Debug, Args)]
pub(crate) struct Capture {
    /// File to write; it must not exist
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    server: Server,
    /// Duration; without it, until Ctrl-C
    #[arg(long = "for", value_name = "TIME", value_parser = server::settings::positive_duration)]
    length: Option<Duration>,
    /// Largest size of the file
    #[arg(long, value_name = "SIZE", default_value = "256MiB")]
    bytes_max: Size,
    /// How keys are recorded
    #[arg(long, value_name = "HOW", default_value = "hashed")]
    keys: Keys,
    /// Record all arguments of up to 64 KiB in full, including values; passwords are never recorded
    #[arg(long)]
    values: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Keys {
    /// As a hash, different in each capture
    Hashed,
    /// As plain text
    Plain,
}

/// Captures until the time is over, the file is full, or a signal comes.
///
/// # Errors
/// One line: no server, a refusal, a file that cannot be written, or a server that went away. What came before is in the file.
pub(crate) fn run(options: &Capture) -> Result<(), Failure> {
    let is_told = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_told))
            .map_err(|error| Failure::System(error.to_string()))?;
    }
    let mut source = Source { client: client::connect(&options.server.target()?)? };
    let header = source.start(options)?;
    let mut file = create(&options.file)?;
    let failed = |error: std::io::Error| {
        Failure::System(format!(
            "cannot write {}: {error}; it has everything recorded before",
            options.file.display()
        ))
    };
    file.write_all(&header).map_err(failed)?;
    let deadline = options.length.map(|length| SystemClock.now() + length);
    let mut given_up = None;
    loop {
        if given_up.is_none() && (is_told.load(Ordering::Relaxed) || deadline.is_some_and(is_over)) {
            source.send(&["CAPTURE", "STOP"])?;
            given_up = Some(SystemClock.now() + PATIENCE);
        }
        match source.receive()? {
            Some(Value::Bulk(chunk)) => {
                file.write_all(&chunk).map_err(failed)?;
                if let Some(told) = told_of_end(&chunk) {
                    file.sync_all().map_err(failed)?;
                    crate::output::say(std::io::stdout(), &format!("{told}; {}\n", options.file.display()));
                    return Ok(());
                }
            }
            // The reply to STOP; an error says that the end, which is on its way, came first.
            Some(_) => {}
            None if given_up.is_some_and(is_over) => {
                return Err(Failure::NoServer(format!(
                    "the server did not end the capture within {PATIENCE:?}; the file has everything recorded before"
                )));
            }
            None => {}
        }
    }
}

fn is_over(deadline: Nanos) -> bool {
    SystemClock.now() >= deadline
}

/// What the last chunk says, in words; `None` of any other.
fn told_of_end(chunk: &[u8]) -> Option<String> {
    let end = capture::decode_end_chunk(chunk).filter(|_| chunk.len() == END_BYTES)?;
    let why = if end.ending == Ending::Full { ", which filled the file" } else { "" };
    let seconds = end.length_ns as f64 / 1e9;
    let (records, dropped) = (end.records, end.dropped);
    Some(format!("{records} requests in {seconds:.1} s{why}, {dropped} more dropped"))
}

#[expect(clippy::disallowed_methods, reason = "a user's file, outside of the data that a simulation owns")]
fn create(path: &Path) -> Result<File, Failure> {
    use std::os::unix::fs::OpenOptionsExt as _;
    // As the data: with --values it has them.
    let opened = File::options().write(true).create_new(true).mode(0o640).open(path);
    opened.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::Place(format!("{} exists: name another file", path.display())),
        _ => Failure::System(format!("cannot create {}: {error}", path.display())),
    })
}

/// The connection to the server; a read never waits.
struct Source {
    client: Client,
}

impl Source {
    /// Begins the capture; returns the beginning of the file.
    fn start(&mut self, options: &Capture) -> Result<Vec<u8>, Failure> {
        let bytes_max = options.bytes_max.0.to_string();
        let keys = if options.keys == Keys::Plain { "PLAIN" } else { "HASHED" };
        let mut command = vec!["CAPTURE", "START", "KEYS", keys, "BYTES", &bytes_max];
        command.extend(options.values.then_some("VALUES"));
        self.send(&command)?;
        match self.reply()? {
            Value::Bulk(header) => Ok(header),
            Value::Error(text) => {
                Err(Failure::Refused(format!("the server refused: {}", String::from_utf8_lossy(&text))))
            }
            other => Err(Failure::NoServer(format!("the server answered something else: {other:?}"))),
        }
    }

    fn send(&mut self, command: &[&str]) -> Result<(), Failure> {
        let command: Vec<&[u8]> = command.iter().map(|word| word.as_bytes()).collect();
        self.client.stream().socket().set_nonblocking(false).map_err(ClientError::Lost)?;
        self.client.send(&command)?;
        self.client.stream().socket().set_nonblocking(true).map_err(ClientError::Lost)?;
        Ok(())
    }

    /// Waits for a reply, which comes at once.
    fn reply(&mut self) -> Result<Value, Failure> {
        let deadline = SystemClock.now() + PATIENCE;
        while !is_over(deadline) {
            if let Some(value) = self.receive()? {
                return Ok(value);
            }
        }
        Err(Failure::NoServer(format!("the server did not answer within {PATIENCE:?}")))
    }

    /// The next value; `None` if nothing came for a while.
    fn receive(&mut self) -> Result<Option<Value>, Failure> {
        let received = self.client.receive().map_err(|error| match error {
            ClientError::Closed => {
                Failure::NoServer("the server went away; the file has everything recorded before".to_owned())
            }
            ClientError::Garbage(error) => Failure::NoServer(format!("no reply of a server: {error}")),
            error => error.into(),
        })?;
        if received.is_none() {
            gather();
        }
        Ok(received)
    }
}

/// Lets packets come together, and time pass. Who waits in `read` is woken by what comes, and the server's loop does the waking,
/// which takes it as long as recording hundreds of requests.
#[expect(clippy::disallowed_methods, reason = "nothing is waited for: fewer and larger reads are wanted")]
fn gather() {
    std::thread::sleep(PACE);
}

/// How often there is a look at the socket, which has room for what comes meanwhile, at the time, and for signals.
const PACE: Duration = Duration::from_millis(5);
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_secs(10);
