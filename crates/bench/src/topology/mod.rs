//! Storm's speed-of-light test in this process, in one worker or several, or in Storm's local cluster: spouts emit one message over and over, levels of bolts pass it
//! on, the last one ends it.
//!
//! What is acknowledged within the time counts; without acknowledgements, what the last level has executed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use topology::builder::TopologyBuilder;
use topology::component::{Bolt, BoltOut, Fault, Next, Outcome as Verdict, Spout, SpoutOut, Tuple};
use topology::definition::Guarantee;
use topology::tracker::Position;
use topology::value::Value;
use worker::Stats;

pub use self::workers::Dealt;
use self::workers::Workers;
use crate::Failure;
use crate::storm::Storm;
use crate::transport::{Went, processor_time};

mod workers;

/// What runs.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Tasks of the spout.
    pub spouts: u32,
    /// Tasks of each level of bolts.
    pub bolts: u32,
    /// Levels of bolts.
    pub levels: u32,
    /// Tuples are acknowledged; otherwise at most once, and nobody waits for them.
    pub acks: bool,
    /// Bytes of a message.
    pub size_bytes: usize,
    /// Unfinished tuples of each spout task.
    pub max_spout_pending: u32,
    /// Threads of each worker; 0: one for each processor.
    pub threads: usize,
    /// Topologies of this shape, all at once.
    pub topologies: u32,
    /// Their workers.
    pub dealt: Dealt,
    /// Time before that does not count.
    pub warm_up: Duration,
    /// Time that counts.
    pub duration: Duration,
    /// The rate is taken each time this has passed.
    pub poll: Duration,
    /// Tasks of Storm that acknowledge; 0: one for each worker.
    pub storm_ackers: u32,
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Messages that were acknowledged, or executed at the last level; processor time of the process.
    pub went: Went,
    /// From emission to acknowledgement.
    pub complete: Quantiles,
    /// Messages a second between two polls; empty for Storm.
    pub polled: Vec<f64>,
}

/// How long half of the messages took at most, and all but one in a hundred.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quantiles {
    /// Half of them.
    pub p50: Duration,
    /// All but one in a hundred.
    pub p99: Duration,
}

/// Runs a topology of this shape.
///
/// # Errors
/// The shape is none, threads cannot be started, or a tuple failed.
pub fn run(shape: &Shape) -> Result<Outcome, Failure> {
    let program = builder(shape).build().map_err(|problems| {
        let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
        texts.join("; ")
    })?;
    let start = |_| Workers::start(&program, shape.dealt, shape.threads);
    let topologies = (0..shape.topologies).map(start).collect::<Result<Vec<_>, _>>()?;
    let stats = || topologies.iter().flat_map(Workers::stats).collect::<Vec<_>>();
    std::thread::sleep(shape.warm_up);
    let (before, start, cpu) =
        (done(shape, &stats()), Instant::now(), processor_time(&[std::process::id()])?);
    let polled = poll(shape, before, || done(shape, &stats()));
    let after = stats();
    // The slowest worker's: quantiles of several do not add up.
    let longest =
        |quantile| topologies.iter().map(|it| it.complete_within(quantile)).max().unwrap_or_default();
    let complete = Quantiles { p50: longest(0.5), p99: longest(0.99) };
    let (took, cpu) = (start.elapsed(), processor_time(&[std::process::id()])?.saturating_sub(cpu));
    let (mut is_finished, mut faults) = (true, 0);
    for topology in topologies {
        let (has_finished, stats) = topology.end(GRACE);
        is_finished &= has_finished;
        faults += stats.iter().flat_map(|it| &it.components).map(|it| it.faults + it.failed).sum::<u64>();
    }
    if faults > 0 || !is_finished {
        return Err(format!("{faults} tuples failed, all finished: {is_finished}"));
    }
    let messages = done(shape, &after).saturating_sub(before);
    Ok(Outcome { went: Went { messages, took, cpu }, complete, polled })
}

/// Waits for the duration, and asks how many messages are done each time the poll's time has passed: their rates.
fn poll(shape: &Shape, before: u64, done: impl Fn() -> u64) -> Vec<f64> {
    let (start, mut polled) = (Instant::now(), Vec::new());
    let (mut last, mut last_done) = (start, before);
    while start.elapsed() < shape.duration {
        std::thread::sleep(shape.poll.min(shape.duration - start.elapsed().min(shape.duration)));
        let (now, now_done) = (Instant::now(), done());
        let took = now.duration_since(last);
        // What is left at the end is not long enough to be a rate.
        if polled.is_empty() || took * 2 > shape.poll {
            polled.push(now_done.saturating_sub(last_done) as f64 / took.as_secs_f64());
        }
        (last, last_done) = (now, now_done);
    }
    polled
}

/// Runs the same in Storm's local cluster, whose threads are as many as it chooses.
///
/// # Errors
/// Java is not there, Storm does not start, or a tuple failed.
pub fn run_storm(shape: &Shape) -> Result<Outcome, Failure> {
    let words = [
        "topology".to_owned(),
        format!("--workers={}", shape.dealt.workers),
        format!("--spouts={}", shape.spouts),
        format!("--bolts={}", shape.bolts),
        format!("--levels={}", shape.levels),
        format!("--acking={}", shape.acks),
        format!("--size={}", shape.size_bytes),
        format!("--pending={}", shape.max_spout_pending),
        format!("--ackers={}", shape.storm_ackers),
    ];
    let (storm, _) = Storm::start(&words)?;
    std::thread::sleep(shape.warm_up);
    let ran = storm.run(shape.duration)?;
    if ran.failed > 0 {
        return Err(format!("{} tuples failed in storm", ran.failed));
    }
    let nanos = Duration::from_nanos;
    let complete = Quantiles { p50: nanos(ran.p50_ns), p99: nanos(ran.p99_ns) };
    let went = Went { messages: ran.messages, took: nanos(ran.took_ns), cpu: nanos(ran.cpu_ns) };
    Ok(Outcome { went, complete, polled: Vec::new() })
}

fn builder(shape: &Shape) -> TopologyBuilder {
    let mut builder = TopologyBuilder::new("speed-of-light");
    let settings = builder.settings();
    settings.guarantee = if shape.acks { Guarantee::AtLeastOnce } else { Guarantee::AtMostOnce };
    settings.max_spout_pending = shape.max_spout_pending;
    let message: Arc<[u8]> = (0..shape.size_bytes).map(|index| index as u8).collect();
    builder
        .set_spout(SPOUT, move || Messages { message: Arc::clone(&message), next: 0 })
        .tasks(shape.spouts)
        .outputs(&["message"]);
    for level in 1..=shape.levels {
        let from = if level == 1 { SPOUT.to_owned() } else { bolt(level - 1) };
        let declared = if level == shape.levels {
            builder.set_bolt(&bolt(level), || End)
        } else {
            builder.set_bolt(&bolt(level), || Pass).outputs(&["message"])
        };
        declared.tasks(shape.bolts).shuffle(&from);
    }
    builder
}

fn bolt(level: u32) -> String {
    format!("bolt{level}")
}

fn done(shape: &Shape, stats: &[Stats]) -> u64 {
    let last = bolt(shape.levels);
    let of_one = |stats: &Stats| {
        if shape.acks {
            stats.component(SPOUT).map_or(0, |spout| spout.acked)
        } else {
            stats.component(&last).map_or(0, |bolt| bolt.executed)
        }
    };
    stats.iter().map(of_one).sum()
}

/// Emits one message over and over. Each tuple has bytes of its own, as those of a source have.
struct Messages {
    message: Arc<[u8]>,
    next: u128,
}

impl Spout for Messages {
    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        self.next += 1;
        out.emit(Position(self.next), &[Value::from(&self.message[..])])?;
        Ok(Next::Now)
    }
}

/// Emits what it gets.
struct Pass;

impl Bolt for Pass {
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Verdict, Fault> {
        out.emit(&[tuple.get(0)?])?;
        Ok(Verdict::Ack)
    }
}

/// Reads what it gets.
struct End;

impl Bolt for End {
    fn execute(&mut self, tuple: &Tuple<'_>, _out: &mut BoltOut<'_>) -> Result<Verdict, Fault> {
        std::hint::black_box(tuple.bytes(0)?);
        Ok(Verdict::Ack)
    }
}

const SPOUT: &str = "spout";
/// For what is under way at the end.
const GRACE: Duration = Duration::from_secs(30);
