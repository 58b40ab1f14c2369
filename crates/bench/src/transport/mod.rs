//! Messages from one node to another, in this process: by the transports, and by the plain loop over TCP that is their limit.
//!
//! One way: threads send as fast as they are let, each on a channel of its own, and what the other side has got by the end of the time
//! counts. Ping-pong: one message is under way at a time, and there and back is one.

mod nodes;
mod plain;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Failure;

/// Who carries the messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// The transport `tcp`, over loopback.
    Tcp,
    /// The transport `local`.
    Local,
    /// Threads that copy messages into buffers of 64 KiB and write these to a socket: no frames, no answers, nothing kept.
    Plain,
}

impl fmt::Display for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Local => "local",
            Self::Plain => "plain",
        })
    }
}

impl std::str::FromStr for Carrier {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Tcp, Self::Local, Self::Plain];
        all.into_iter()
            .find(|carrier| carrier.to_string() == text)
            .ok_or_else(|| format!("`{text}` is none of tcp, local, plain"))
    }
}

/// How messages go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Time before that does not count.
    pub warm_up: Duration,
    /// Time that counts.
    pub duration: Duration,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Messages that the other side got; there and back is one.
    pub messages: u64,
    /// How long it took.
    pub took: Duration,
    /// Processor time of the whole process, of both sides.
    pub cpu: Duration,
    /// Of there and back, in nanoseconds.
    pub latencies: Histogram<u64>,
}

/// Sends `load` by `carrier`.
///
/// # Errors
/// The system refuses sockets or threads, or messages were lost.
pub fn run(carrier: Carrier, load: &Load) -> Result<Outcome, Failure> {
    match (carrier, load.pattern) {
        (Carrier::Plain, Pattern::OneWay) => plain::one_way(load),
        (Carrier::Plain, Pattern::PingPong) => plain::ping_pong(load),
        (_, Pattern::OneWay) => nodes::one_way(&*nodes::pair(carrier, load)?, load),
        (_, Pattern::PingPong) => nodes::ping_pong(&*nodes::pair(carrier, load)?, load),
    }
}

/// Counts `count` over the time of `load`, while something else sends.
fn observe(load: &Load, count: &dyn Fn() -> u64) -> Result<Outcome, Failure> {
    std::thread::sleep(load.warm_up);
    let (before, start, cpu) = (count(), std::time::Instant::now(), cpu_time()?);
    std::thread::sleep(load.duration);
    let (messages, took, cpu) = (count() - before, start.elapsed(), cpu_time()?.saturating_sub(cpu));
    Ok(Outcome { messages, took, cpu, latencies: histogram()? })
}

/// Times `ask` over and over, for the time of `load`.
fn time_each(load: &Load, mut ask: impl FnMut() -> Result<(), Failure>) -> Result<Outcome, Failure> {
    let mut latencies = histogram()?;
    let warm = std::time::Instant::now();
    while warm.elapsed() < load.warm_up {
        ask()?;
    }
    let (start, cpu, mut messages) = (std::time::Instant::now(), cpu_time()?, 0);
    let mut last = start;
    while last.duration_since(start) < load.duration {
        ask()?;
        let now = std::time::Instant::now();
        latencies.saturating_record(now.duration_since(last).as_nanos() as u64);
        (last, messages) = (now, messages + 1);
    }
    Ok(Outcome { messages, took: start.elapsed(), cpu: cpu_time()?.saturating_sub(cpu), latencies })
}

fn histogram() -> Result<Histogram<u64>, Failure> {
    Histogram::new(3).map_err(|error| error.to_string())
}

fn cpu_time() -> Result<Duration, Failure> {
    crate::process::threads_cpu_seconds(std::process::id()).map(Duration::from_secs_f64)
}

/// A thread that sends or receives; a panic of it is a failure of the run.
fn join(thread: std::thread::ScopedJoinHandle<'_, Result<(), Failure>>) -> Result<(), Failure> {
    thread.join().unwrap_or_else(|_| Err("a thread of the measurement panicked".to_owned()))
}

/// A message of `size_bytes`.
fn message(size_bytes: usize) -> Arc<[u8]> {
    (0..size_bytes).map(|index| index as u8).collect()
}
