//! A child process that answers each line of its input with a line of JSON, and ends with its input.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;

use crate::Failure;

/// The child, killed when this drops.
#[derive(Debug)]
pub(crate) struct Asked {
    name: &'static str,
    child: Child,
    pipes: Mutex<(ChildStdin, BufReader<ChildStdout>)>,
}

impl Asked {
    /// Starts `command`, which is called `name` in failures.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn start(name: &'static str, command: &mut Command) -> Result<Self, Failure> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start {name}: {error}"))?;
        let pipes = child.stdin.take().zip(child.stdout.take()).ok_or("a process without pipes")?;
        Ok(Self { name, child, pipes: Mutex::new((pipes.0, BufReader::new(pipes.1))) })
    }

    /// What it answers to `question`, a line without its end.
    ///
    /// # Errors
    /// It has ended, or says something else.
    pub(crate) fn ask<T: DeserializeOwned>(&self, question: &str) -> Result<T, Failure> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let ended = |_| format!("{} has ended", self.name);
        pipes.0.write_all(format!("{question}\n").as_bytes()).map_err(ended)?;
        let mut line = String::new();
        pipes.1.read_line(&mut line).map_err(ended)?;
        serde_json::from_str(&line).map_err(|_| format!("{} said: {line:?}", self.name))
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // The end of its input is the end of its work; one that does not see it is past helping.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
