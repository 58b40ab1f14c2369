//! Which processes there are, and what those of a child take: one look at `/proc` serves all children for a while.
//!
//! A process is a child's if it is in its process group, or has its mark in its environment. The environment is read until it was there once: one that
//! clears it later is still known, and one that is just being executed has none for a moment.
//!
//! Out of scope: where there is no `/proc`, nothing is counted.
#![expect(clippy::disallowed_methods, reason = "files of the kernel, which no simulation has")]

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clock::Nanos;

use crate::child::MARK;

/// What a child takes, with all that it has started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// Processes beside the child's own.
    pub(crate) children: u64,
    /// Resident memory; pages that processes share count for each of them.
    pub(crate) memory_bytes: u64,
}

/// A process of this user.
#[derive(Clone, Debug)]
struct Process {
    group: i32,
    mark: Option<Vec<u8>>,
    /// Its environment was there.
    is_known: bool,
}

/// Processes by their numbers and when they began, in ticks of the kernel: so one number means one process.
type Processes = BTreeMap<(i32, u64), Process>;

#[derive(Debug)]
struct Census {
    taken: Option<Nanos>,
    processes: Processes,
}

/// What the child with this process group and mark takes; `now` and no older than `age_max`.
pub(crate) fn usage(now: Nanos, age_max: Duration, group: i32, mark: &str) -> Usage {
    let pids = {
        let mut census = CENSUS.lock().unwrap_or_else(PoisonError::into_inner);
        if census.taken.is_none_or(|taken| now.since(taken) > age_max) {
            processes::end_orphans(MARK);
            census.processes = look(&census.processes);
            census.taken = Some(now);
        }
        let is_its =
            |process: &Process| process.group == group || process.mark.as_deref() == Some(mark.as_bytes());
        let its = census.processes.iter().filter(|(_, process)| is_its(process));
        its.map(|(&(pid, _), _)| pid).collect::<Vec<i32>>()
    };
    let memory_bytes = pids.iter().filter_map(|&pid| resident_bytes(pid)).sum();
    Usage { children: (pids.len() as u64).saturating_sub(1), memory_bytes }
}

/// How many processes and threads this user has, about.
pub(crate) fn processes_of_user() -> u64 {
    use std::os::unix::fs::MetadataExt;
    let user = rustix::process::getuid().as_raw();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let own = entries.filter(|entry| entry.metadata().is_ok_and(|data| data.uid() == user));
    let threads = own.filter_map(|entry| {
        entry.file_name().to_str()?.parse::<i32>().ok()?;
        Some(fs::read_dir(entry.path().join("task")).ok()?.count() as u64)
    });
    threads.sum()
}

/// All processes; what was `known` is not read again.
fn look(known: &Processes) -> Processes {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let mut processes = Processes::new();
    for pid in pids {
        let Some((group, start)) = stat(pid) else { continue };
        let process = match known.get(&(pid, start)).filter(|process| process.is_known) {
            Some(process) => Process { group, ..process.clone() },
            None => {
                let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
                let mark = processes::values_in(&environment, MARK).next().map(<[u8]>::to_vec);
                Process { group, mark, is_known: !environment.is_empty() }
            }
        };
        processes.insert((pid, start), process);
    }
    processes
}

/// Its process group, and when it began.
fn stat(pid: i32) -> Option<(i32, u64)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name is in parentheses, and may have any characters.
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some((fields.get(GROUP)?.parse().ok()?, fields.get(START)?.parse().ok()?))
}

fn resident_bytes(pid: i32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

static CENSUS: Mutex<Census> = Mutex::new(Census { taken: None, processes: Processes::new() });
/// Places of fields behind the name.
const GROUP: usize = 2;
const START: usize = 19;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::child::Child;

    #[test]
    fn processes_of_a_child_are_counted_in_its_group_and_out_of_it() {
        let script = "sleep 60 & setsid sleep 60 & setsid -f sleep 60; sleep 60";
        let command = ["sh", "-c", script].map(str::to_owned);
        let mut child = Child::start(&command, None, None).expect("it starts");
        let mut now = 0;
        let counted = loop {
            now += 1;
            let usage = usage(Nanos(now), Duration::ZERO, child.group(), child.mark());
            if usage.children >= 4 {
                break usage;
            }
            assert!(now < 1_000_000, "{usage:?}");
        };
        assert!(counted.children == 4 && counted.memory_bytes > 0, "{counted:?}");
        let (group, mark) = (child.group(), child.mark().to_owned());
        child.end().expect("it ends");
        assert_eq!(usage(Nanos(now + 1), Duration::ZERO, group, &mark).memory_bytes, 0);
    }
}
