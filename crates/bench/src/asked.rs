//! A child process that answers each line of its input with a line of JSON, `{"KIND":…}`, and ends with its input; both sides of it.
//!
//! ```text
//!  parent -> a line, in any form         a line
//!  child  <-             {"Count":9}            {"Failed":"why"}     one line each
//! ```

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

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

    /// What it answers to `question`, which is of this `kind`.
    ///
    /// # Errors
    /// As [`Asked::tell`] and [`Asked::hear`].
    pub(crate) fn ask<T: DeserializeOwned>(&self, question: &str, kind: &str) -> Result<T, Failure> {
        self.tell(question)?;
        self.hear(kind)
    }

    /// Tells it a line, without its end.
    ///
    /// # Errors
    /// It has ended.
    pub(crate) fn tell(&self, line: &str) -> Result<(), Failure> {
        let told = self.pipes().0.write_all(format!("{line}\n").as_bytes());
        told.map_err(|_| format!("{} has ended", self.name))
    }

    /// Its next answer, which is of this `kind`.
    ///
    /// # Errors
    /// It has ended, has failed, or says something else.
    pub(crate) fn hear<T: DeserializeOwned>(&self, kind: &str) -> Result<T, Failure> {
        let mut line = String::new();
        let length = self.pipes().1.read_line(&mut line).unwrap_or(0);
        if length == 0 {
            return Err(format!("{} has ended", self.name));
        }
        let mut answer: Value = serde_json::from_str(&line).unwrap_or_default();
        if let Some(failure) = answer["Failed"].as_str() {
            return Err(format!("{}: {failure}", self.name));
        }
        let answer = answer.get_mut(kind).map(Value::take);
        let answer = answer.and_then(|answer| serde_json::from_value(answer).ok());
        answer.ok_or_else(|| format!("{} answered out of turn: {}", self.name, line.trim_end()))
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn pipes(&self) -> MutexGuard<'_, (ChildStdin, BufReader<ChildStdout>)> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        // The end of its input is the end of its work; one that does not see it is past helping.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// A line of the parent's, in the child.
///
/// # Errors
/// The parent is none of this version, or is gone.
pub(crate) fn told<T: DeserializeOwned>(line: Option<String>) -> Result<T, Failure> {
    let line = line.ok_or("nobody says what to do")?;
    serde_json::from_str(&line).map_err(|error| format!("not understood: {error}"))
}

/// Answers the parent: what was asked for, under its `kind`, or what failed.
///
/// # Errors
/// The parent is gone.
pub(crate) fn answer(kind: &str, answer: Result<impl Serialize, Failure>) -> Result<(), Failure> {
    let answer = answer.map_or_else(|failure| json!({ "Failed": failure }), |answer| json!({ kind: answer }));
    let mut out = std::io::stdout().lock();
    writeln!(out, "{answer}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// What to tell a child, as a line.
pub(crate) fn line(what: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(what).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answer_is_of_the_kind_that_was_asked_for_or_says_why_not() {
        let child = Asked::start("the child", Command::new("cat").stderr(Stdio::null())).expect("starts");
        assert_eq!(child.ask("{\"Count\":9}", "Count"), Ok(9));
        assert_eq!(child.ask::<u64>("{\"Failed\":\"no\"}", "Count"), Err("the child: no".to_owned()));
        for other in ["{\"Listens\":\"x\"}", "9", "x", "{\"Count\":\"x\"}"] {
            let said = child.ask::<u64>(other, "Count").expect_err(other);
            assert_eq!(said, format!("the child answered out of turn: {other}"));
        }
    }

    #[test]
    fn child_that_ends_is_told_of() {
        let child = Asked::start("the child", &mut Command::new("true")).expect("starts");
        assert_eq!(child.hear::<u64>("Count"), Err("the child has ended".to_owned()));
    }
}
