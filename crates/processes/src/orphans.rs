//! Processes whose parent has ended: a process that [adopts](adopt_orphans) them becomes their parent (`PR_SET_CHILD_SUBREAPER`), whatever group or session they
//! are in and whatever they have done to their environment. So what a child has started can always be found, and ended.
//!
//! ```text
//!  server (adopts) -> worker (adopts) -> component -> ... -> daemon
//!      ^                  ^-- the component has ended: the daemon is the worker's child, and goes if it has no mark
//!      '-- the worker has ended: what it had is the server's child, and goes
//! ```
//!
//! A child that was started by [`Process`](crate::Process), or was there before, is known; any other child is an orphan. So a process that adopts orphans starts all its children here.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};

/// Which orphans are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Orphans {
    /// All: whatever started them has ended.
    All,
    /// Those without a mark in their environment: nobody knows whose they are, and who started them wanted that.
    Unmarked,
}

/// The children of this process.
#[derive(Debug, Default)]
pub(crate) struct Children {
    adopts: Option<Orphans>,
    /// Those that were started here, each with the number of its start: the system may use the number of a process again.
    known: BTreeMap<i32, u64>,
    started: u64,
}

/// Makes this process the parent of what its children leave behind, and has `which` of that ended: when a child ends, and by [`end_orphans`].
///
/// # Errors
/// Those of the system.
pub fn adopt_orphans(which: Orphans) -> io::Result<()> {
    set_child_subreaper(Some(getpid()))?;
    let mut children = children();
    children.adopts = Some(which);
    // Whoever became this process by `exec` may have started some: they are nobody's orphans.
    for (pid, _) in children_of_this() {
        children.known.entry(pid).or_insert(0);
    }
    Ok(())
}

/// Ends orphans, if this process adopts them, and waits for them; `variable` is where processes have their marks. Takes away those that have ended by themselves.
pub fn end_orphans(variable: &str) {
    for _ in 0..crate::ROUNDS_MAX {
        // Nothing is started meanwhile: it would be taken for an orphan.
        let children = children();
        let Some(which) = children.adopts else { return };
        let orphans = children_of_this().into_iter().filter(|(pid, _)| !children.known.contains_key(pid));
        let mut is_over = true;
        for (pid, has_ended) in orphans.collect::<Vec<_>>() {
            let Some(number) = Pid::from_raw(pid) else { continue };
            if !has_ended {
                if which == Orphans::Unmarked && crate::has_variable(pid, variable) {
                    continue;
                }
                is_over = false;
                let _ = kill_process(number, Signal::KILL);
            }
            let options = if has_ended { WaitOptions::NOHANG } else { WaitOptions::empty() };
            let _ = waitpid(Some(number), options);
        }
        // What one that was killed had started is an orphan now.
        if is_over {
            return;
        }
    }
}

/// What is locked while a child is started.
pub(crate) fn children() -> MutexGuard<'static, Children> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Children {
    /// A child was started: the number of its start.
    pub(crate) fn add(&mut self, pid: i32) -> u64 {
        self.started += 1;
        self.known.insert(pid, self.started);
        self.started
    }

    /// A child was waited for.
    pub(crate) fn remove(&mut self, pid: i32, start: u64) {
        if self.known.get(&pid) == Some(&start) {
            self.known.remove(&pid);
        }
    }
}

/// All children, and whether each has ended.
fn children_of_this() -> Vec<(i32, bool)> {
    let own = getpid().as_raw_nonzero().get();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let child = |pid: i32| {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Its name is in parentheses, and may have any characters.
        let mut fields = text.rsplit_once(')')?.1.split_whitespace();
        let (state, parent) = (fields.next()?, fields.next()?.parse::<i32>().ok()?);
        (parent == own).then_some((pid, state == "Z"))
    };
    pids.filter_map(child).collect()
}

static CHILDREN: Mutex<Children> = Mutex::new(Children { adopts: None, known: BTreeMap::new(), started: 0 });
