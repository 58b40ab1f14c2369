//! The receiving side in a process of its own: this program, started again, told what to do on its input.
//!
//! ```text
//!  parent -> {"carrier":"tls", …}        "count"     "count"     end of input
//!  child  <-          {"Listens":"…"}    {"Count":0} {"Count":9}              one line each
//! ```
//!
//! A child ends with its input, and after the time of its run at the latest: neither waits for the other for ever.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::load::{Carrier, Load};
use crate::Failure;

/// How another copy of this program becomes the receiving side.
const RECEIVER: [&str; 2] = ["bench", "transport-receiver"];
/// What a run may take beside its own time.
const GRACE: Duration = Duration::from_secs(30);

/// What a child is told first.
#[derive(Serialize, Deserialize)]
pub(super) struct Opening {
    carrier: String,
    pub(super) threads: usize,
    pub(super) size_bytes: usize,
    /// It sends back what comes.
    pub(super) answers: bool,
    /// Where the parent's node listens, if it is one.
    pub(super) parent: Option<String>,
    /// It ends then at the latest.
    pub(super) seconds_max: u64,
}

/// What a child answers.
#[derive(Serialize, Deserialize)]
pub(super) enum Answer {
    /// Where it listens.
    Listens(String),
    /// How many messages it has got.
    Count(u64),
    /// It cannot.
    Failed(Failure),
}

/// A child that receives.
#[derive(Debug)]
pub(super) struct Apart {
    child: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Opening {
    pub(super) fn new(carrier: Carrier, load: &Load, answers: bool, parent: Option<String>) -> Self {
        Self {
            carrier: carrier.to_string(),
            threads: load.threads,
            size_bytes: load.size_bytes,
            answers,
            parent,
            seconds_max: (load.warm_up + load.duration + GRACE).as_secs(),
        }
    }

    pub(super) fn carrier(&self) -> Result<Carrier, Failure> {
        self.carrier.parse()
    }
}

impl Apart {
    /// Starts a child, and says where it listens.
    pub(super) fn start(opening: &Opening) -> Result<(Self, String), Failure> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut child = Command::new(program)
            .args(RECEIVER)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the receiving process: {error}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take()).ok_or("a process without pipes")?;
        let apart = Self { child, pipes: Mutex::new((pipes.0, BufReader::new(pipes.1))) };
        match apart.ask(&line(opening)?)? {
            Answer::Listens(address) => Ok((apart, address)),
            _ => Err("the receiving process answered out of turn".to_owned()),
        }
    }

    /// How many messages it has got.
    pub(super) fn count(&self) -> Result<u64, Failure> {
        match self.ask("count\n")? {
            Answer::Count(count) => Ok(count),
            _ => Err("the receiving process answered out of turn".to_owned()),
        }
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    fn ask(&self, question: &str) -> Result<Answer, Failure> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = |_| "the receiving process has ended".to_owned();
        pipes.0.write_all(question.as_bytes()).map_err(ended)?;
        let mut line = String::new();
        pipes.1.read_line(&mut line).map_err(ended)?;
        match serde_json::from_str(&line).map_err(|_| format!("the receiving process said: {line:?}"))? {
            Answer::Failed(failure) => Err(failure),
            answer => Ok(answer),
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // The end of its input is the end of its work; one that does not see it is past helping.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

pub(super) fn line(what: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(what).map(|text| text + "\n").map_err(|error| error.to_string())
}
