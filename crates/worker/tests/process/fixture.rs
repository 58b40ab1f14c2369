//! A spout that counts, bolts of closures, and what a test is told.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use topology::builder::{Declarer, TopologyBuilder};
use topology::component::{Bolt, BoltOut, Fault, Next, Outcome, Spout, SpoutOut, Tuple};
use topology::tracker::{DeadLetter, Position};
use topology::values;
use worker::{Options, Running};

/// What a spout was told of a tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Acked(u64),
    Dead(u64, String),
    /// The topology is inactive.
    Inactive,
}

/// What all spouts of a test share.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    /// Numbers from 0 to this.
    pub(crate) end: u64,
    pub(crate) next: Arc<AtomicU64>,
    /// The most tuples that one spout had out at a time.
    pub(crate) out_most: Arc<AtomicU64>,
    told: Arc<Mutex<Sender<Told>>>,
}

/// A spout that emits numbers.
pub(crate) struct Numbers {
    source: Source,
    out: u64,
}

/// A bolt that calls a closure.
pub(crate) struct Each<F>(pub(crate) F);

/// A test's view of a topology.
pub(crate) struct Test {
    pub(crate) builder: TopologyBuilder,
    pub(crate) source: Source,
    pub(crate) told: Receiver<Told>,
}

impl Test {
    /// A topology with a spout `numbers` that emits each number below `end` once.
    pub(crate) fn new(end: u64) -> Self {
        let (sender, told) = channel();
        let count = || Arc::new(AtomicU64::new(0));
        let source = Source { end, next: count(), out_most: count(), told: Arc::new(Mutex::new(sender)) };
        let mut builder = TopologyBuilder::new("test");
        builder.settings().backoff = Vec::new();
        let shared = source.clone();
        builder.set_spout("numbers", move || Numbers { source: shared.clone(), out: 0 }).outputs(&["n"]);
        Self { builder, source, told }
    }

    pub(crate) fn bolt<F>(&mut self, id: &str, execute: F) -> Declarer<'_>
    where
        F: FnMut(&Tuple<'_>, &mut BoltOut<'_>) -> Result<Outcome, Fault> + Clone + Send + Sync + 'static,
    {
        self.builder.set_bolt(id, move || Each(execute.clone()))
    }

    pub(crate) fn start(self, threads: usize) -> (Running, Receiver<Told>) {
        let program = self.builder.build().unwrap();
        (Running::start(&program, &Options::with_threads(threads)).unwrap(), self.told)
    }
}

impl Spout for Numbers {
    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        let n = self.source.next.fetch_add(1, Ordering::Relaxed);
        if n >= self.source.end {
            return Ok(Next::Woken);
        }
        self.out += 1;
        self.source.out_most.fetch_max(self.out, Ordering::Relaxed);
        out.emit(Position(n.into()), &values![n as i64])?;
        Ok(Next::Now)
    }

    fn ack(&mut self, position: Position) {
        self.out -= 1;
        self.tell(Told::Acked(position.0 as u64));
    }

    fn fail(&mut self, letter: &DeadLetter) {
        self.out -= 1;
        self.tell(Told::Dead(letter.original.position.0 as u64, letter.error.clone()));
    }

    fn deactivate(&mut self) {
        self.tell(Told::Inactive);
    }
}

impl Numbers {
    fn tell(&self, told: Told) {
        // The test may have seen enough.
        let _ = self.source.told.lock().unwrap().send(told);
    }
}

impl<F> Bolt for Each<F>
where
    F: FnMut(&Tuple<'_>, &mut BoltOut<'_>) -> Result<Outcome, Fault> + Send,
{
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        (self.0)(tuple, out)
    }
}

/// The next thing that a spout was told.
pub(crate) fn next(told: &Receiver<Told>) -> Told {
    told.recv_timeout(PATIENCE).expect("the spout is told of each tuple")
}

/// Waits until all numbers below `end` are acknowledged, each once.
pub(crate) fn all_acked(told: &Receiver<Told>, end: u64) {
    let mut acked = HashSet::new();
    while (acked.len() as u64) < end {
        let Told::Acked(n) = next(told) else { panic!("a tuple was given up") };
        assert!(acked.insert(n), "{n} was acknowledged twice");
    }
}

/// A failed test ends after so long.
const PATIENCE: Duration = Duration::from_secs(60);
/// More than any test needs for its end.
pub(crate) const GRACE: Duration = Duration::from_secs(60);
