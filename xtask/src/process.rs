//! Runs other programs: in the workspace, with a time limit, with their output shown and read.
//!
//! A program gets a process group of its own. When its time is up the whole group is killed, so that no
//! server of a hung test outlives the run.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::failure::Failure;

/// One program to run, with what it needs.
pub(crate) struct Run {
    program: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    folder: PathBuf,
    time_max: Duration,
}

impl Run {
    /// `program` in `folder`, for ten minutes at most.
    pub(crate) fn new(folder: &Path, program: &str) -> Self {
        Self {
            program: program.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            folder: folder.to_path_buf(),
            time_max: Duration::from_secs(600),
        }
    }

    /// The cargo that runs this task.
    pub(crate) fn cargo(folder: &Path) -> Self {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        Self::new(folder, &cargo)
    }

    /// Adds arguments.
    pub(crate) fn args<I: IntoIterator<Item = S>, S: Into<String>>(mut self, arguments: I) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets how long it may take before its group is killed.
    pub(crate) fn time_max(mut self, time_max: Duration) -> Self {
        self.time_max = time_max;
        self
    }

    /// Runs it, shows its output as it comes, and gives each line of standard output to `on_line`.
    ///
    /// # Errors
    /// It could not start, took too long, or ended with a status that is not zero.
    pub(crate) fn show(&self, on_line: &mut dyn FnMut(&str)) -> Result<(), Failure> {
        println!("$ {}", self.text());
        let mut child = self
            .command()
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start `{}`: {error}", self.program))?;
        let output = child.stdout.take().expect("it is piped");
        let status = self.wait(child, output, &mut |line| {
            println!("{line}");
            on_line(line);
        })?;
        if status.success() { Ok(()) } else { Err(format!("`{}` ended with {status}", self.text())) }
    }

    /// Runs it without showing anything; returns what it wrote, errors among the rest, and whether it ended well.
    ///
    /// # Errors
    /// It could not start, or took too long: then with what it had written.
    pub(crate) fn all_output(&self) -> Result<(String, bool), Failure> {
        let cannot = |error: std::io::Error| format!("cannot start `{}`: {error}", self.program);
        let (output, input) = std::io::pipe().map_err(cannot)?;
        let errors = input.try_clone().map_err(cannot)?;
        // The pipe ends with the child: this process keeps no end of it.
        let child = self.command().stdout(input).stderr(errors).spawn().map_err(cannot)?;
        let mut said = String::new();
        match self.wait(child, output, &mut |line| said.extend([line, "\n"])) {
            Ok(status) => Ok((said, status.success())),
            Err(failure) => Err(format!("{said}{failure}")),
        }
    }

    /// Gives each line of `output` to `on_line`, until all who have `child`'s end of it are gone; returns how it ended.
    ///
    /// # Errors
    /// It took too long, and was killed.
    fn wait(
        &self,
        mut child: Child,
        output: impl Read + Send + 'static,
        on_line: &mut dyn FnMut(&str),
    ) -> Result<ExitStatus, Failure> {
        let lines = lines_of(output);
        let deadline = Instant::now() + self.time_max;
        loop {
            match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => on_line(&line),
                Err(mpsc::RecvTimeoutError::Disconnected) => break,
                Err(mpsc::RecvTimeoutError::Timeout) => {
                    kill_group(&mut child);
                    return Err(format!("`{}` took more than {:?}: killed", self.text(), self.time_max));
                }
            }
        }
        child.wait().map_err(|error| format!("waiting for `{}`: {error}", self.program))
    }

    /// Runs it without showing anything; returns its standard output.
    ///
    /// # Errors
    /// It could not start, or ended with a status that is not zero: then with what it said on standard error.
    pub(crate) fn read(&self) -> Result<String, Failure> {
        let output =
            self.command().output().map_err(|error| format!("cannot start `{}`: {error}", self.program))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("`{}` ended with {}: {}", self.text(), output.status, said.trim()))
    }

    /// Runs it without showing anything; returns whether it ended well, and its standard output, or what it said on standard
    /// error if that is all.
    ///
    /// # Errors
    /// It could not start.
    pub(crate) fn outcome(&self) -> Result<(bool, String), Failure> {
        let output =
            self.command().output().map_err(|error| format!("cannot start `{}`: {error}", self.program))?;
        let said = if output.stdout.is_empty() { &output.stderr } else { &output.stdout };
        Ok((output.status.success(), String::from_utf8_lossy(said).into_owned()))
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder).stdin(Stdio::null()).process_group(0);
        // Cargo tells this task of its own package. Who looks there when it is built (ring) would be built anew for each stage that is
        // run after a plain `cargo test`, and the other way round, with all that depends on it.
        let is_own = |name: &OsString| {
            let name = name.as_encoded_bytes();
            name.starts_with(b"CARGO_PKG_") || name.starts_with(b"CARGO_MANIFEST_")
        };
        for name in std::env::vars_os().map(|(name, _)| name).filter(is_own) {
            command.env_remove(name);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    fn text(&self) -> String {
        let name =
            Path::new(&self.program).file_name().map_or(self.program.clone().into(), |n| n.to_string_lossy());
        let variables = self.environment.iter().map(|(name, value)| format!("{name}={value} "));
        format!("{}{name} {}", variables.collect::<String>(), self.arguments.join(" "))
    }
}

/// A channel with the lines of what a child writes; it closes when every holder of the pipe is gone.
fn lines_of(output: impl Read + Send + 'static) -> mpsc::Receiver<String> {
    let (sender, receiver) = mpsc::channel();
    let reader = std::thread::Builder::new().name("output".to_owned()).spawn(move || {
        for line in BufReader::new(output).split(b'\n') {
            let Ok(line) = line else { break };
            if sender.send(String::from_utf8_lossy(&line).into_owned()).is_err() {
                break;
            }
        }
    });
    drop(reader); // detached: it ends with the pipe
    receiver
}

fn kill_group(child: &mut Child) {
    std::io::stdout().flush().ok();
    let group = format!("-{}", child.id());
    Command::new("kill").args(["-KILL", "--", &group]).status().ok();
    child.wait().ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_that_takes_too_long_is_killed_with_its_children() {
        let started = Instant::now();
        let run = Run::new(Path::new("/"), "sh").args(["-c", "sleep 60 & sleep 60"]);
        let outcome = run.time_max(Duration::from_millis(100)).show(&mut |_| {});
        assert!(outcome.unwrap_err().contains("killed"));
        assert!(started.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn output_comes_as_a_whole_with_what_went_wrong_among_it() {
        let run = |script: &str| Run::new(Path::new("/"), "sh").args(["-c", script]);
        let outcome = run("echo to stderr >&2; echo to stdout; exit 3").all_output();
        assert_eq!(outcome, Ok(("to stderr\nto stdout\n".to_owned(), false)));
        let late = run("echo begun; sleep 60").time_max(Duration::from_millis(300)).all_output();
        let failure = late.unwrap_err();
        assert!(failure.contains("begun") && failure.contains("killed"), "{failure}");
    }

    #[test]
    fn lines_are_handed_over_in_order_and_status_is_reported() {
        let mut lines = Vec::new();
        let run = Run::new(Path::new("/"), "sh").args(["-c", "echo one; echo two; exit 3"]);
        let outcome = run.show(&mut |line| lines.push(line.to_owned()));
        assert_eq!(lines, ["one", "two"]);
        assert!(outcome.unwrap_err().contains("exit status: 3"));
    }
}
