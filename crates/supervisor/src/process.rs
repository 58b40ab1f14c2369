//! How a worker process is started, and what a former server may have left behind.
//!
//! Its components are process groups of their own, so what a worker that was killed leaves behind is found by its mark. That begins with one of the
//! server's folder: a server that starts finds so what a former one has left, if both were killed at once.

use std::io;
use std::path::PathBuf;
use std::process::Command;

use processes::{Mark, Process, kill_marked};

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

impl Program {
    /// Starts worker `number` of this server, which is reached at `url`.
    pub(crate) fn start(&self, number: u64, url: Option<&str>) -> io::Result<Process> {
        let mut command = Command::new(&self.path);
        command.args(&self.arguments).env_clear();
        // What the server is told by its environment, passwords for example, is not for components.
        command.envs(KEPT_VARIABLES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
        command.envs(url.map(|url| (URL_VARIABLE, url)));
        Process::start(command, Mark { variable: MARK, value: format!("{}-{number}", self.mark) })
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
/// Where components find the server. Who can read it is this user, who could as well read the memory of the processes that need it.
const URL_VARIABLE: &str = "EVENKEEL_URL";
