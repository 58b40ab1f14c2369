//! What the kernel says about a process: processor time, memory, bytes written; what a folder takes on disk; where we run.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::Failure;

/// Processor seconds of process `id`, of all its threads, user and system (`/proc/PID/stat`).
///
/// # Errors
/// The process is gone.
pub fn cpu_seconds(id: u32) -> Result<f64, Failure> {
    let stat = read(&format!("/proc/{id}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or("");
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    Ok((ticks(11) + ticks(12)) as f64 / TICKS_PER_SECOND)
}

/// Processor time of the threads that process `id` has now, in seconds, to the nanosecond: for short spans of a process whose threads
/// stay.
///
/// # Errors
/// The process is gone.
pub fn threads_cpu_seconds(id: u32) -> Result<f64, Failure> {
    let folder = format!("/proc/{id}/task");
    let threads = fs::read_dir(&folder).map_err(|error| format!("{folder}: {error}"))?;
    let mut nanos = 0;
    for thread in threads.filter_map(Result::ok) {
        // One that ended meanwhile took next to nothing.
        let stat = fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        nanos += stat.split(' ').next().and_then(|field| field.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(nanos as f64 / 1e9)
}

/// Resident bytes of process `id` (`VmRSS`).
///
/// # Errors
/// The process is gone.
pub fn rss_bytes(id: u32) -> Result<u64, Failure> {
    Ok(number_of(&read(&format!("/proc/{id}/status"))?, "VmRSS:") * 1024)
}

/// The most bytes of process `id` that were ever resident (`VmHWM`).
///
/// # Errors
/// The process is gone.
pub fn rss_bytes_max(id: u32) -> Result<u64, Failure> {
    Ok(number_of(&read(&format!("/proc/{id}/status"))?, "VmHWM:") * 1024)
}

/// Threads of process `id`.
///
/// # Errors
/// The process is gone.
pub fn thread_count(id: u32) -> Result<u64, Failure> {
    Ok(number_of(&read(&format!("/proc/{id}/status"))?, "Threads:"))
}

/// Bytes that process `id` caused to be written to disk (`/proc/PID/io`).
///
/// # Errors
/// The process is gone, or belongs to somebody else.
pub fn written_bytes(id: u32) -> Result<u64, Failure> {
    Ok(number_of(&read(&format!("/proc/{id}/io"))?, "write_bytes:"))
}

/// Bytes that the files below `folder` occupy on disk.
#[must_use]
pub fn disk_bytes(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => disk_bytes(&entry.path()),
        Ok(metadata) => metadata.blocks() * 512,
        Err(_) => 0, // removed meanwhile
    });
    sizes.sum()
}

/// Drops the files below `folder` from the page cache, as if the machine had just started.
pub fn forget_cached(folder: &Path) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        if let Ok(file) = fs::File::open(entry.path()) {
            rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).ok();
        }
    }
}

/// What `look` sees once it stands still: looks `every` so often, until two looks follow each other of which `is_still` says so, or else for at
/// most `patience`.
///
/// # Errors
/// Those of `look`.
pub fn settled<T: Copy>(
    every: Duration,
    patience: Duration,
    is_still: impl Fn(T, T) -> bool,
    mut look: impl FnMut() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let started = Instant::now();
    let mut last = look()?;
    while started.elapsed() < patience {
        std::thread::sleep(every);
        let now = look()?;
        if is_still(last, now) {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}

/// While it lives, this thread and all that it starts, processes too, run on core 0 alone.
#[derive(Debug)]
pub struct OneCore {
    before: CpuSet,
}

impl OneCore {
    /// Moves this thread to core 0.
    ///
    /// # Errors
    /// The system does not let it.
    pub fn enter() -> Result<Self, Failure> {
        let failed = |error| format!("pinning to core 0: {error}");
        let before = sched_getaffinity(None).map_err(failed)?;
        let mut core = CpuSet::new();
        core.set(0);
        sched_setaffinity(None, &core).map_err(failed)?;
        Ok(Self { before })
    }
}

impl Drop for OneCore {
    fn drop(&mut self) {
        if let Err(error) = sched_setaffinity(None, &self.before) {
            eprintln!("cannot leave core 0, figures that follow are of one core: {error}");
        }
    }
}

fn number_of(text: &str, name: &str) -> u64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

fn read(path: &str) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

/// `USER_HZ`: what the kernel counts in towards user space, on every architecture that we run on.
const TICKS_PER_SECOND: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_still_has_settled_and_what_does_not_is_waited_for_no_longer_than_told() {
        let settle = |patience_ms| {
            let mut looks = [9, 5, 5, 3, 1].into_iter();
            let (every, patience) = (Duration::from_millis(1), Duration::from_millis(patience_ms));
            let seen = settled(
                every,
                patience,
                |last, now| last == now,
                || looks.next().ok_or("no more".to_owned()),
            );
            (seen, looks.len())
        };
        assert_eq!(settle(60_000), (Ok(5), 2));
        assert_eq!(settle(0), (Ok(9), 4));
        let (every, patience) = (Duration::from_millis(1), Duration::from_secs(60));
        assert!(settled(every, patience, |_: u8, _| false, || Err("gone".to_owned())).is_err());
    }

    #[test]
    fn one_core_holds_for_what_is_started_and_ends() {
        let allowed = || sched_getaffinity(None).expect("known").count();
        let before = allowed();
        let core = OneCore::enter().expect("core 0 is there");
        let of_a_thread = std::thread::spawn(allowed).join().expect("runs");
        drop(core);
        assert_eq!((of_a_thread, allowed()), (1, before));
    }
}
