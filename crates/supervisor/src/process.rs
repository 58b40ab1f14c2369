//! One worker process: a process group of its own, its three pipes, and its end, after which nothing of it is left.
//!
//! Its components are process groups of their own, so what a worker that was killed leaves behind is found by a variable of the environment,
//! which all that it starts inherits. The variable begins with a mark of the server's folder: a server that starts finds so what
//! a former one has left, if both were killed at once.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::ioctl_fionbio;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};

/// How workers are started.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// What all workers of this server's folder have in their environment.
    pub(crate) mark: String,
}

/// A worker process. When it is dropped it is killed, with all that it has started.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    /// Readable when the process has ended.
    pub(crate) exit: OwnedFd,
    pub(crate) stdin: Option<ChildStdin>,
    pub(crate) stdout: Option<ChildStdout>,
    pub(crate) stderr: Option<ChildStderr>,
    mark: String,
    is_reaped: bool,
}

impl Process {
    /// Starts worker `number` of this server, which is reached at `url`; its pipes do not block.
    pub(crate) fn start(program: &Program, number: u64, url: Option<&str>) -> io::Result<Self> {
        let mark = format!("{}-{number}", program.mark);
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).process_group(0).env_clear();
        // What the server is told by its environment, passwords for example, is not for components.
        command.envs(KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.env(MARK, &mark).envs(url.map(|url| (URL_VARIABLE, url)));
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let exit = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| {
            let _ = child.kill();
            let _ = child.wait();
        })?;
        let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let process = Self { child, exit, stdin, stdout, stderr, mark, is_reaped: false };
        process.stdin.iter().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        process.stdout.iter().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        process.stderr.iter().try_for_each(|pipe| ioctl_fionbio(pipe, true))?;
        Ok(process)
    }

    /// Its number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended and is to be waited for.
    pub(crate) fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.exit, PollFlags::IN)];
        poll(&mut fds, Some(&Timespec::default())).is_ok_and(|count| count > 0)
    }

    /// Kills it; its exit follows.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Kills it with all that it has started; how it ended, in words.
    pub(crate) fn end(&mut self) -> String {
        let has_ended = self.child.try_wait();
        // The group keeps its number as long as one of its processes lives.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let status = has_ended.and_then(|status| status.map_or_else(|| self.child.wait(), Ok));
        self.is_reaped = true;
        kill_marked(|mark| mark == self.mark.as_bytes());
        ending(status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.is_reaped {
            let _ = self.end();
        }
    }
}

/// Kills what workers of this folder have left behind, when their server and they were killed at once.
pub(crate) fn kill_former(program: &Program) {
    let begin = format!("{}-", program.mark);
    kill_marked(|mark| mark.starts_with(begin.as_bytes()));
}

fn ending(status: io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("it exited with status {code}"),
            (None, Some(signal)) => format!("it was killed by signal {signal}"),
            (None, None) => "it ended".to_owned(),
        },
        Err(error) => format!("it could not be waited for: {error}"),
    }
}

/// Kills all whose mark fits. What starts others meanwhile is found in the next round.
fn kill_marked(fits: impl Fn(&[u8]) -> bool) {
    for _ in 0..ROUNDS_MAX {
        let found = marked(&fits);
        if found.is_empty() {
            return;
        }
        for pid in found {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// Processes of this user whose mark fits; none where there is no `/proc`.
#[expect(clippy::disallowed_methods, reason = "files of the kernel, which no simulation has")]
fn marked(fits: &impl Fn(&[u8]) -> bool) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
    let own = std::process::id().cast_signed();
    let has_mark = |(pid, path): &(i32, PathBuf)| {
        let environment = fs::read(path.join("environ")).unwrap_or_default();
        let values = environment.split(|&byte| byte == 0);
        let mut marks = values.filter_map(|value| value.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="));
        *pid != own && marks.any(fits)
    };
    pids.filter(has_mark).filter_map(|(pid, _)| Pid::from_raw(pid)).collect()
}

/// The variable that workers, and all that they start, are known by.
const MARK: &str = "EVENKEEL_WORKER";
/// What workers get of the server's environment: what programs need to be found and to read text.
const KEPT_VARIABLES: [&str; 9] =
    ["PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"];
/// Where components find the server. Who can read it is this user, who could as well read the memory of the processes that need it.
const URL_VARIABLE: &str = "EVENKEEL_URL";
const ROUNDS_MAX: usize = 10;
