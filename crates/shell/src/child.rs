//! One child: a process group of its own, its three pipes, and its end, after which nothing of it is left.
//!
//! **What is left of a child.** Its process group is killed while the child is not waited for, so that its number is nobody else's. Processes that
//! left the group (daemons) are found by a variable of their environment that no other child has.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child as Process, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::ioctl_fionbio;
use rustix::process::{
    Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process, kill_process_group, pidfd_open, prlimit,
};

/// A child that was started. When it is dropped it is killed, with all that it has started.
#[derive(Debug)]
pub(crate) struct Child {
    process: Process,
    /// Readable when the process has ended.
    pub(crate) exit: OwnedFd,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
    pid_dir: PathBuf,
    mark: String,
    is_reaped: bool,
}

impl Child {
    /// Starts `command` in `folder`; its pipes do not block.
    pub(crate) fn start(command: &[String], folder: Option<&Path>) -> io::Result<Self> {
        let mark = mark();
        let pid_dir = std::env::temp_dir().join(format!("evenkeel-{mark}"));
        fs::create_dir(&pid_dir)?;
        let started = Self::start_marked(command, folder, &pid_dir, &mark);
        if started.is_err() {
            let _ = fs::remove_dir_all(&pid_dir);
        }
        started
    }

    fn start_marked(
        command: &[String],
        folder: Option<&Path>,
        pid_dir: &Path,
        mark: &str,
    ) -> io::Result<Self> {
        let mut builder = Command::new(&command[0]);
        builder.args(&command[1..]).env(MARK, mark).process_group(0);
        builder.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(folder) = folder {
            builder.current_dir(folder);
        }
        let mut process = builder.spawn()?;
        let exit = pidfd_open(pid(&process), PidfdFlags::empty());
        let exit = match exit {
            Ok(exit) => exit,
            Err(error) => {
                let _ = process.kill();
                let _ = process.wait();
                return Err(error.into());
            }
        };
        let (stdin, stdout, stderr) = (process.stdin.take(), process.stdout.take(), process.stderr.take());
        let (pid_dir, mark) = (pid_dir.to_owned(), mark.to_owned());
        let child = Self { process, exit, stdin, stdout, stderr, pid_dir, mark, is_reaped: false };
        child.stdin.iter().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        child.stdout.iter().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        child.stderr.iter().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        Ok(child)
    }

    /// Where it puts its pid.
    pub(crate) fn pid_dir(&self) -> &Path {
        &self.pid_dir
    }

    /// The number of its process group.
    pub(crate) fn group(&self) -> i32 {
        pid(&self.process).as_raw_nonzero().get()
    }

    /// What its processes have in their environment.
    pub(crate) fn mark(&self) -> &str {
        &self.mark
    }

    /// Has the system refuse it new processes when its user has so many more than now. A user with rights is refused nothing: then only the
    /// watch is left.
    pub(crate) fn limit_processes(&self, more: u64) {
        let most = crate::census::processes_of_user() + more;
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        // A limit that is lower already stays.
        let _ = prlimit(Some(pid(&self.process)), Resource::Nproc, limit);
    }

    /// Kills it with all that it has started; how it ended.
    pub(crate) fn end(&mut self) -> io::Result<ExitStatus> {
        let has_ended = self.process.try_wait();
        // The group lives as long as one of its processes, and keeps its number; a number without a process gives an error.
        let _ = kill_process_group(pid(&self.process), Signal::KILL);
        let status = has_ended.and_then(|status| status.map_or_else(|| self.process.wait(), Ok));
        self.is_reaped = true;
        kill_marked(&self.mark);
        let _ = fs::remove_dir_all(&self.pid_dir);
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = self.end();
        }
    }
}

/// How a process ended, in words.
pub(crate) fn ending(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("it exited with status {code}"),
            (None, Some(signal)) => format!("it was killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        },
        Err(error) => format!("it could not be waited for: {error}"),
    }
}

/// Kills what has `mark` in its environment. What starts others meanwhile is found in the next round.
fn kill_marked(mark: &str) {
    let wanted = format!("{MARK}={mark}");
    for _ in 0..ROUNDS_MAX {
        let found = marked(&wanted);
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Processes of this user that have `wanted` in their environment; none where there is no `/proc`.
#[expect(clippy::disallowed_methods, reason = "files of the kernel, which no simulation has")]
fn marked(wanted: &str) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    let has_mark = |path: &Path| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let marked = pids.filter(|(_, path): &(i32, PathBuf)| has_mark(path));
    marked.filter_map(|(pid, _)| Pid::from_raw(pid)).collect()
}

fn pid(process: &Process) -> Pid {
    Pid::from_child(process)
}

/// What no other child of any process of this machine has.
fn mark() -> String {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut random = [0; 8];
    let _ = rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty());
    format!("{}-{count}-{:016x}", std::process::id(), u64::from_le_bytes(random))
}

/// The variable that children are known by.
pub(crate) const MARK: &str = "EVENKEEL_CHILD";
const ROUNDS_MAX: usize = 10;
