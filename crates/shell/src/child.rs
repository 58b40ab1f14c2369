//! One child: its process, and the folder where it puts its pid.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicU64, Ordering};

use processes::{Mark, Process};
use rustix::process::{Resource, Rlimit, prlimit};

use crate::secret::Secret;

/// A child that was started. When it is dropped it is killed, with all that it has started.
#[derive(Debug)]
pub(crate) struct Child {
    pub(crate) process: Process,
    pid_dir: PathBuf,
}

impl Child {
    /// Starts `command` in `folder`, with `secret`.
    pub(crate) fn start(
        command: &[String],
        folder: Option<&Path>,
        secret: Option<&Secret>,
    ) -> io::Result<Self> {
        let mark = mark();
        let pid_dir = std::env::temp_dir().join(format!("evenkeel-{mark}"));
        fs::create_dir(&pid_dir)?;
        let mut builder = Command::new(&command[0]);
        builder.args(&command[1..]);
        folder.iter().for_each(|folder| _ = builder.current_dir(folder));
        let handed = secret.map(|secret| secret.hand_over(&mut builder)).transpose();
        let started = handed.and_then(|_until_here| {
            let mark = Mark { variable: MARK, value: mark };
            Process::start(builder, mark)
        });
        if started.is_err() {
            let _ = fs::remove_dir_all(&pid_dir);
        }
        Ok(Self { process: started?, pid_dir })
    }

    /// Where it puts its pid.
    pub(crate) fn pid_dir(&self) -> &Path {
        &self.pid_dir
    }

    /// The number of its process group.
    pub(crate) fn group(&self) -> i32 {
        self.process.pid().as_raw_nonzero().get()
    }

    /// What its processes have in their environment.
    pub(crate) fn mark(&self) -> &str {
        &self.process.mark().value
    }

    /// Has the system refuse it new processes when its user has so many more than now. A user with rights is refused nothing: then only the
    /// watch is left.
    pub(crate) fn limit_processes(&self, more: u64) {
        let most = crate::census::processes_of_user() + more;
        let limit = Rlimit { current: Some(most), maximum: Some(most) };
        // A limit that is lower already stays.
        let _ = prlimit(Some(self.process.pid()), Resource::Nproc, limit);
    }

    /// Kills it with all that it has started; how it ended.
    pub(crate) fn end(&mut self) -> io::Result<ExitStatus> {
        let status = self.process.end();
        let _ = fs::remove_dir_all(&self.pid_dir);
        status
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.pid_dir);
    }
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
