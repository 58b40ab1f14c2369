//! How a worker process is started, and what a former server may have left behind.
//!
//! Its components are process groups of their own, so what a worker that was killed leaves behind is found by its mark. That begins with one of the
//! server's folder: a server that starts finds so what a former one has left, if both were killed at once.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use crate::messages::Bounds;
use processes::{Account, Mark, Process, kill_marked};

/// How workers are started.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    /// The file.
    pub(crate) path: PathBuf,
    /// Its arguments.
    pub(crate) arguments: Vec<String>,
    /// What all workers of this server's folder have in their environment.
    pub(crate) mark: String,
    pub(crate) limits: Limits,
}

/// What workers, and all that they start, may take of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Whom they run as; `None`: the server's user.
    pub account: Option<Account>,
    /// Memory and processor time.
    pub bounds: Bounds,
}

impl Program {
    /// Starts worker `number` of this server, which is reached at `address`; who lists processes sees what it is `called`.
    pub(crate) fn start(&self, number: u64, address: Option<&str>, called: &str) -> io::Result<Process> {
        let mut command = Command::new(&self.path);
        command.arg0(CALLED).args(&self.arguments).arg(called).env_clear();
        // What the server is told by its environment, passwords for example, is not for components.
        command.envs(KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        // Without the token of the worker: other processes of this user can read it here.
        command.envs(address.map(|address| (URL_VARIABLE, format!("redis://{address}"))));
        if let Some(Account { uid, gid, person }) = &self.limits.account {
            // Other groups than this one are dropped with the user.
            command.uid(*uid).gid(*gid).env_remove("USER").env_remove("HOME");
            command.envs(
                person.iter().flat_map(|(name, home)| [("USER", name.as_ref()), ("HOME", home.as_os_str())]),
            );
        }
        let mark = Mark { variable: MARK, value: format!("{}-{number}", self.mark) };
        Process::start(command, mark)
    }

    /// What the worker's end means, if that is what a limit does.
    pub(crate) fn explained(&self, why: String) -> String {
        match self.limits.bounds.memory_bytes_max {
            Some(most) if why.contains("memory allocation of ") => {
                format!("{why}: it wanted more than topologies.worker_memory_max ({most} B)")
            }
            _ => why,
        }
    }
}

/// Kills what workers of this folder have left behind, when their server and they were killed at once.
pub(crate) fn kill_former(program: &Program) {
    let begin = format!("{}-", program.mark);
    kill_marked(MARK, |mark| mark.starts_with(begin.as_bytes()));
}

/// The variable that workers, and all that they start, are known by.
const MARK: &str = "EVENKEEL_WORKER";
/// What workers get of the server's environment: what programs need to be found and to read text.
const KEPT_VARIABLES: [&str; 9] =
    ["PATH", "HOME", "USER", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH"];
/// Where components find the server.
const URL_VARIABLE: &str = "EVENKEEL_URL";
/// What a worker is called in lists of processes; the file that it is is `/proc/self/exe`.
const CALLED: &str = "evenkeel";
