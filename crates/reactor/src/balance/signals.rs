//! What the system tells of the loops' threads and of the cores: files of `/proc` that are kept open and read again.
//!
//! ```text
//!  /proc/self/task/TID/schedstat   ns on a core | ns ready to run and waiting for one | turns on a core
//!  /proc/stat                      cpuN user nice system idle iowait ...      in hundredths of a second
//! ```
//!
//! Where a container hides them, there are no figures, and who asks goes by fixed rules.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::thread::{CpuSet, sched_getaffinity};

/// What a thread has used of the cores since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ThreadTimes {
    /// It ran.
    pub(crate) ran: Duration,
    /// It was ready to run and waited for a core: its run-queue delay.
    pub(crate) delayed: Duration,
}

/// The file that tells the times of a thread.
#[derive(Debug)]
pub(crate) struct ThreadFile(File);

impl ThreadFile {
    /// The file of the calling thread.
    ///
    /// # Errors
    /// The system does not have it, or does not show it.
    pub(crate) fn of_this_thread() -> io::Result<Self> {
        let id = rustix::thread::gettid().as_raw_nonzero();
        open(&format!("/proc/self/task/{id}/schedstat")).map(Self)
    }

    /// The times until now; `None` when the thread has ended.
    pub(crate) fn read(&self) -> Option<ThreadTimes> {
        let mut bytes = [0; 96];
        let count = self.0.read_at(&mut bytes, 0).ok()?;
        thread_times(str::from_utf8(&bytes[..count]).ok()?)
    }
}

/// The file that tells how idle the cores are.
#[derive(Debug)]
pub(crate) struct CoresFile {
    file: File,
    text: Vec<u8>,
}

impl CoresFile {
    /// # Errors
    /// The system does not show it.
    pub(crate) fn open() -> io::Result<Self> {
        Ok(Self { file: open("/proc/stat")?, text: vec![0; CORES_BYTES_MAX] })
    }

    /// Idle time until now, as a sum over the cores that the calling thread may use.
    pub(crate) fn read_idle(&mut self) -> Option<Duration> {
        let mine = sched_getaffinity(None).ok()?;
        let count = self.file.read_at(&mut self.text, 0).ok()?;
        // What is cut off at the end is about interrupts.
        let text = String::from_utf8_lossy(&self.text[..count]);
        idle(&text, |core| core < CpuSet::MAX_CPU && mine.is_set(core))
    }
}

/// Enough for the lines of 1,024 cores at their longest.
const CORES_BYTES_MAX: usize = 128 << 10;
/// The unit of `/proc/stat` for all programs (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

#[allow(clippy::disallowed_methods, reason = "files of /proc are no data")]
fn open(path: &str) -> io::Result<File> {
    File::open(path)
}

fn thread_times(text: &str) -> Option<ThreadTimes> {
    let mut fields = text.split_ascii_whitespace().map(|field| field.parse().map(Duration::from_nanos));
    let mut next = || fields.next()?.ok();
    Some(ThreadTimes { ran: next()?, delayed: next()? })
}

/// Idle time of the cores that `is_mine`, in the text of `/proc/stat`; `None` if it has none of them.
fn idle(text: &str, is_mine: impl Fn(usize) -> bool) -> Option<Duration> {
    let of_core = |line: &str| {
        let fields = line.strip_prefix("cpu")?;
        if fields.starts_with(' ') {
            // Of all cores together.
            return None;
        }
        let mut fields = fields.split_ascii_whitespace();
        let core: usize = fields.next()?.parse().ok()?;
        let mut ticks = fields.skip(3).map(|field| field.parse::<u32>().ok());
        let (idle, waits) = (ticks.next()??, ticks.next()??);
        is_mine(core).then(|| TICK * idle + TICK * waits)
    };
    text.lines().take_while(|line| line.starts_with("cpu")).filter_map(of_core).reduce(|sum, one| sum + one)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_that_of_the_own_cores() {
        let text =
            "cpu  9 9 9 99 9\ncpu0 10 0 20 300 7 0\ncpu1 1 2 3 400 5 6 7\ncpu10 1 1 1 50 0\nintr 5 cpu1 7\n";
        let ticks = |count| Some(TICK * count);
        assert_eq!(idle(text, |_| true), ticks(307 + 405 + 50));
        assert_eq!(idle(text, |core| core == 1), ticks(405));
        assert_eq!(idle(text, |core| core == 2), None);
    }

    #[test]
    fn text_that_is_none_gives_no_figures() {
        for text in ["", "cpu", "cpu0", "cpu0 1 2 3", "cpu0 a b c d e", "btime 7"] {
            assert_eq!(idle(text, |_| true), None, "{text:?}");
        }
        for text in ["", "7", "x y z", "7 -1 3"] {
            assert_eq!(thread_times(text), None, "{text:?}");
        }
    }

    #[test]
    fn time_on_a_core_and_time_in_its_queue_are_told_apart() {
        let (ran, delayed) = (Duration::from_nanos(802_122), Duration::from_nanos(17));
        assert_eq!(thread_times("802122 17 1\n"), Some(ThreadTimes { ran, delayed }));
    }

    #[test]
    fn this_machine_tells_them() {
        let file = ThreadFile::of_this_thread().expect("schedstat");
        let before = file.read().expect("times");
        let mut sum = 0u64;
        while file.read().expect("times").ran == before.ran {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(CoresFile::open().expect("stat").read_idle().is_some());
    }
}
