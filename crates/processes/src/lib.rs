//! A child process: a group of its own, its three pipes, and its end, after which nothing of it is left. And what threads that wait for such pipes share
//! ([`duplex`]).
//!
//! The group is killed while the process is not waited for, so that its number is nobody else's. Processes that left the group (daemons, groups that it
//! made) are found by a mark in their environment, which all that it starts inherits. One that clears its environment as well is found where this process
//! adopts what its children leave behind (`orphans`).
//!
//! Out of scope: what is read and written, when a process is started again (`shell`, `supervisor`).

mod account;
pub mod duplex;
mod handed;
mod orphans;

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

pub use account::{Account, AccountError};
pub use handed::{hand_over, handed_over};
pub use orphans::{Orphans, adopt_orphans, end_orphans};

/// A process that was started. When it is dropped it is killed, with all that it has started.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// Readable when the process has ended.
    pub exit: OwnedFd,
    /// Its standard input; does not block, as the others.
    pub stdin: Option<ChildStdin>,
    /// Its standard output.
    pub stdout: Option<ChildStdout>,
    /// Its standard error.
    pub stderr: Option<ChildStderr>,
    mark: Mark,
    /// The number of its start.
    start: u64,
    is_reaped: bool,
}

/// What a process and all that it starts have in their environment, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
}

impl Process {
    /// Starts `command` with `mark`, in a group of its own.
    ///
    /// # Errors
    /// Those of the system; then nothing is left of it.
    pub fn start(mut command: Command, mark: Mark) -> io::Result<Self> {
        command.env(mark.variable, &mark.value).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let (mut child, start) = {
            let mut children = orphans::children();
            let child = command.spawn()?;
            let start = children.add(Pid::from_child(&child).as_raw_nonzero().get());
            (child, start)
        };
        let exit = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
            orphans::children().remove(Pid::from_child(&child).as_raw_nonzero().get(), start);
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self { child, exit, stdin, stdout, stderr, mark, start, is_reaped: false };
        let pipes = [
            process.stdin.as_ref().map(AsFd::as_fd),
            process.stdout.as_ref().map(AsFd::as_fd),
            process.stderr.as_ref().map(AsFd::as_fd),
        ];
        pipes.into_iter().flatten().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        Ok(process)
    }

    /// Its number, which is its group's, too.
    #[must_use]
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// The same, as a plain number.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended and is to be waited for.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        ends_within(&self.exit, Timespec::default())
    }

    /// Its mark.
    #[must_use]
    pub fn mark(&self) -> &Mark {
        &self.mark
    }

    /// Kills it, and nothing that it has started; its exit follows.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Kills it with all that it has started; how it ended.
    ///
    /// # Errors
    /// It could not be waited for.
    pub fn end(&mut self) -> io::Result<ExitStatus> {
        let has_ended = self.child.try_wait();
        if !self.is_reaped {
            // The group lives as long as one of its processes, and keeps its number; a number without a process gives an error.
            let _ = kill_process_group(self.pid(), Signal::KILL);
        }
        let status = has_ended.and_then(|status| status.map_or_else(|| self.child.wait(), Ok));
        self.is_reaped = true;
        orphans::children().remove(self.pid().as_raw_nonzero().get(), self.start);
        kill_marked(self.mark.variable, |value| value == self.mark.value.as_bytes());
        end_orphans(self.mark.variable);
        status
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = self.end();
        }
    }
}

/// How a process ended, in words.
#[must_use]
pub fn ending(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("it exited with status {code}"),
            (None, Some(signal)) => format!("it was killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        },
        Err(error) => format!("it could not be waited for: {error}"),
    }
}

/// Kills all other processes whose value of `variable` fits, and waits until they have ended: the kernel takes a killed process down a moment later. What
/// starts others meanwhile is found in the next round; for one that does not end, two seconds are waited in all.
pub fn kill_marked(variable: &str, fits: impl Fn(&[u8]) -> bool) {
    for _ in 0..ROUNDS_MAX {
        let found = marked(variable, &fits);
        if found.is_empty() {
            return;
        }
        // Opened before the signal: the number may be another process's later.
        let ends: Vec<_> =
            found.iter().filter_map(|&pid| pidfd_open(pid, PidfdFlags::empty()).ok()).collect();
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = ends.iter().all(|exit| ends_within(exit, KILL_WAIT_MAX));
    }
}

/// Whether the process of `exit` ends within `wait`.
fn ends_within(exit: &OwnedFd, wait: Timespec) -> bool {
    let mut fds = [PollFd::new(exit, PollFlags::IN)];
    poll(&mut fds, Some(&wait)).is_ok_and(|count| count > 0)
}

/// The values of `variable` in an environment as the kernel shows it.
pub fn values_in<'e>(environment: &'e [u8], variable: &'e str) -> impl Iterator<Item = &'e [u8]> {
    let variables = environment.split(|&byte| byte == 0);
    variables.filter_map(|it| it.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))
}

/// Other processes that this one may look at whose mark fits: those of its user, for root all; none where there is no `/proc`.
#[expect(clippy::disallowed_methods, reason = "files of the kernel, which no simulation has")]
fn marked(variable: &str, fits: &impl Fn(&[u8]) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    let own = std::process::id().cast_signed();
    let has_mark = |(pid, path): &(i32, PathBuf)| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        *pid != own && values_in(&environment, variable).any(fits)
    };
    pids.filter(has_mark).filter_map(|(pid, _)| Pid::from_raw(pid)).collect()
}

/// Whether a process that this one may look at has `variable` in its environment. Looks twice: while a process begins to execute a file it has none for a moment.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel, which no simulation has")]
fn has_variable(pid: i32, variable: &str) -> bool {
    let has_it = || {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        values_in(&environment, variable).next().is_some()
    };
    has_it() || {
        std::thread::park_timeout(EXEC_MAX);
        has_it()
    }
}

/// More than that takes.
const EXEC_MAX: Duration = Duration::from_millis(2);
pub(crate) const ROUNDS_MAX: usize = 10;
const KILL_WAIT_MAX: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read};

    use super::*;

    #[test]
    fn nothing_is_left_of_a_process_and_how_it_ended_is_told() {
        let mut command = Command::new("sh");
        command.args(["-c", "setsid sleep 600 & sleep 600 & echo started; sleep 600"]);
        let mark = Mark { variable: "EVENKEEL_TEST_MARK", value: format!("{}-it", std::process::id()) };
        let mut process = Process::start(command, mark.clone()).expect("it starts");
        let mut heard = [0; 8];
        while process
            .stdout
            .as_mut()
            .expect("a pipe")
            .read(&mut heard)
            .is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
        {
            std::thread::yield_now();
        }
        let is_its = |value: &[u8]| value == mark.value.as_bytes();
        // one that begins to execute a file shows no environment for a moment
        let mut looks = (0..10_000).map(|_| marked(mark.variable, &is_its).len());
        assert!(looks.any(|processes| processes >= 3));
        assert_eq!(ending(process.end()), "it was killed by signal 9");
        assert_eq!(marked(mark.variable, &is_its), []);
    }

    #[test]
    fn only_the_variable_of_that_name_is_a_mark() {
        let environment = b"A=1\0MARK_MORE=2\0MARK=3\0XMARK=4\0MARK=\0";
        assert!(values_in(environment, "MARK").eq([&b"3"[..], b""]));
    }
}
