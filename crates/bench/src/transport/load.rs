//! What is sent, how long, and what is counted of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::drive::{new_histogram, per_second};
use crate::{Failure, Named};

/// Who carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Carrier {
    /// The transport `tcp`, over loopback.
    Tcp,
    /// The same with TLS, whose nodes prove by a secret who they are.
    Tls,
    /// The transport `zeromq`, over loopback.
    #[value(name = "zeromq")]
    ZeroMq,
    /// The transport `local`.
    Local,
    /// Threads that copy messages into buffers of 64 KiB and write these to a socket: no frames, no answers, nothing kept.
    Plain,
    /// libzmq by itself.
    Libzmq,
    /// Storm's messaging layer, in two JVMs.
    Storm,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

/// How messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Pattern {
    /// From one node to the other.
    OneWay,
    /// There and back, one at a time.
    PingPong,
}

/// What is sent.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// How messages go.
    pub pattern: Pattern,
    /// Bytes of each.
    pub size_bytes: usize,
    /// Threads that send, one way.
    pub senders: usize,
    /// Loops of each node of `tcp`.
    pub threads: usize,
    /// The other side is a process of its own. `local` is of one process by nature.
    pub apart: bool,
    /// Time before that does not count.
    pub warm_up: Duration,
    /// The same of a JVM, if that is longer.
    pub jvm_warm_up: Duration,
    /// Time that counts.
    pub duration: Duration,
}

/// Messages that went, and what they took.
#[derive(Clone, Copy, Debug, Default)]
pub struct Went {
    /// How many.
    pub messages: u64,
    /// How long.
    pub took: Duration,
    /// Processor time of all who had to do with it.
    pub cpu: Duration,
}

impl Went {
    /// Messages a second.
    pub(crate) fn per_second(&self) -> f64 {
        per_second(self.messages, self.took)
    }

    /// Processor time of a message.
    pub(crate) fn cpu_ns_each(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.messages.max(1) as f64
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Messages that the other side got, there and back is one; processor time of both sides, with those that send.
    pub went: Went,
    /// Of there and back, in nanoseconds.
    pub latencies: Histogram<u64>,
}

/// Counts `count` over the time of `load`, while something else sends; `processes` are those of both sides.
pub(super) fn observe(
    load: &Load,
    processes: &[u32],
    count: &dyn Fn() -> Result<u64, Failure>,
) -> Result<Outcome, Failure> {
    std::thread::sleep(load.warm_up);
    let (before, start, cpu) = (count()?, std::time::Instant::now(), processor_time(processes)?);
    std::thread::sleep(load.duration);
    let (messages, took) = (count()? - before, start.elapsed());
    let cpu = processor_time(processes)?.saturating_sub(cpu);
    Ok(Outcome { went: Went { messages, took, cpu }, latencies: new_histogram() })
}

/// Times `ask` over and over, for the time of `load`; `processes` as for [`observe`].
pub(super) fn time_each(
    load: &Load,
    processes: &[u32],
    mut ask: impl FnMut() -> Result<(), Failure>,
) -> Result<Outcome, Failure> {
    let mut latencies = new_histogram();
    let warm = std::time::Instant::now();
    while warm.elapsed() < load.warm_up {
        ask()?;
    }
    let (start, cpu, mut messages) = (std::time::Instant::now(), processor_time(processes)?, 0);
    let mut last = start;
    while last.duration_since(start) < load.duration {
        ask()?;
        let now = std::time::Instant::now();
        latencies.saturating_record(now.duration_since(last).as_nanos() as u64);
        (last, messages) = (now, messages + 1);
    }
    let (took, cpu) = (start.elapsed(), processor_time(processes)?.saturating_sub(cpu));
    Ok(Outcome { went: Went { messages, took, cpu }, latencies })
}

/// Of all threads that `processes` have now.
pub(crate) fn processor_time(processes: &[u32]) -> Result<Duration, Failure> {
    let of = |id: &u32| crate::process::threads_cpu_seconds(*id).map(Duration::from_secs_f64);
    processes.iter().map(of).sum()
}

/// This process, and that of the other side, if it is another one.
pub(super) fn with_own(other: Option<u32>) -> Vec<u32> {
    std::iter::once(std::process::id()).chain(other).collect()
}

/// A thread that sends or receives; a panic of it is a failure of the run.
pub(super) fn join(thread: std::thread::ScopedJoinHandle<'_, Result<(), Failure>>) -> Result<(), Failure> {
    thread.join().unwrap_or_else(|_| Err("a thread of the measurement panicked".to_owned()))
}

/// A message of `size_bytes`.
pub(super) fn message(size_bytes: usize) -> Arc<[u8]> {
    (0..size_bytes).map(|index| index as u8).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were 0.0 us in every report: the histogram had the bounds of its kind that grows, and was told not to grow.
    #[test]
    fn latencies_there_and_back_are_as_long_as_they_took() {
        let load = Load {
            pattern: Pattern::PingPong,
            size_bytes: 1,
            senders: 1,
            threads: 1,
            apart: false,
            warm_up: Duration::ZERO,
            jvm_warm_up: Duration::ZERO,
            duration: Duration::from_millis(30),
        };
        let wait = || {
            std::thread::sleep(Duration::from_millis(2));
            Ok(())
        };
        let outcome = time_each(&load, &[std::process::id()], wait).expect("timed");
        assert_eq!(outcome.latencies.len(), outcome.went.messages);
        assert!(outcome.latencies.min() >= 2_000_000, "{}", outcome.latencies.min());
    }
}
