//! What a spout task has emitted and not finished: one entry for each batch, time-outs, attempts, dead letters.
//!
//! ```text
//!            open                 XOR is 0, not failed
//!  new ----------------> out ------------------------------> Settled::Acked
//!                        ^ |  failed, or the deadline passed
//!        take_due        | v
//!      (alone in a batch) waiting (pause) -- attempts used up, or fatal --> Settled::Dead
//! ```
//!
//! Invariants
//!   1. Each tuple that was opened is settled exactly once, or is out or waiting.
//!   2. A batch fails at its deadline: not before, and with the first [`Tracker::on_time`] that is not before it.
//!   3. A tuple is emitted at most `attempts_max` times, silent failures aside.
//!   4. A tuple that failed is emitted again alone, so it does not take others of its batch with it a second time.
//!
//! **Bounds.** Tuples out or waiting: [`Limits::pending_max`]; their bytes: [`Limits::bytes_max`], and one batch. An entry has its tuples, one number
//! and, for each that failed, an error of at most 1 KiB. Settlements and completed batches wait
//! only until the caller takes them, after each call.
//!
//! **Cost.** A report and an emission cost O(log n) of the batches that are out; a deadline is an entry of an ordered set.
//!
//! A failure that is nobody's is tried again at once, and if it goes on after pauses that are doubled from 10 ms to 5 s: what is not there yet does not come sooner by
//! thousands of attempts a second, which all other readers of the tuple have, too. A delay that the component names goes before it.
//!
//! A tuple that failed waits for the rest of its batch: until nothing is out of it, the batch could fail as a whole, and it would be emitted twice.
//!
//! Performs no I/O; time is an argument. A report is what a peer sends: nothing is asserted of it.
//! Out of scope: positions that are durable (the source makes them so), who emits.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use clock::Nanos;

use crate::anchor::{Blame, Failure, Nack, Report, RootId};
use crate::definition::Settings;
use crate::ids::{ComponentId, StreamId, TaskId};
use crate::values::Values;

/// The unfinished tuples of one spout task.
#[derive(Debug)]
pub struct Tracker {
    spout: TaskId,
    life: u32,
    limits: Limits,
    /// Number of the next batch.
    next: u64,
    /// Batches that are out, by their numbers.
    roots: BTreeMap<u64, Root>,
    /// The deadline of each batch that is out.
    deadlines: BTreeSet<(Nanos, u64)>,
    /// Tuples that failed, by when they are due and the order in which they failed.
    waiting: BTreeMap<(Nanos, u64), Original>,
    /// How often tuples have failed silently, one time after the other.
    silent: BTreeMap<Position, u32>,
    /// How many tuples have failed so far.
    failures: u64,
    /// Tuples out and waiting.
    pending: u32,
    pending_bytes: u64,
    settled: VecDeque<Settled>,
    completed: VecDeque<Completed>,
}

/// A batch of which all is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completed {
    /// Time since it was emitted.
    pub latency: Duration,
    /// Its tuples that were acknowledged.
    pub acked: u32,
}

/// Bounds and times, from the settings of a topology.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Tuples that may be out or waiting.
    pub pending_max: u32,
    /// Bytes of tuples that are out or waiting, beyond which no batch begins.
    pub bytes_max: u64,
    /// A batch fails so long after it was emitted.
    pub timeout: Duration,
    /// How often a tuple is emitted at most.
    pub attempts_max: u32,
    /// Pauses before the second attempt and so on.
    pub backoff: Vec<Duration>,
}

/// Where a tuple is in its source: the identifier of a stream's entry, an offset of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u128);

/// A tuple as a spout emits it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Original {
    /// Where it is in the source.
    pub position: Position,
    /// The stream that it goes to.
    pub stream: StreamId,
    /// The task that it goes to, for direct streams.
    pub direct: Option<TaskId>,
    /// Its values, byte for byte.
    pub values: Values,
    /// How often it was emitted, this time included.
    pub attempts: u32,
}

/// A tuple that a spout is done with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Settled {
    /// All that came of it is done.
    Acked(Position),
    /// It will not be tried again. The position is settled when the dead letter is durable, not before.
    Dead(DeadLetter),
}

/// A tuple that could not be processed, as it was, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// The tuple and how often it was tried.
    pub original: Original,
    /// The component that gave it up; `None` if it was not acknowledged in time, and nobody knows where it was.
    pub component: Option<ComponentId>,
    /// What went wrong last.
    pub error: String,
}

/// A batch that is out.
#[derive(Debug)]
struct Root {
    xor: u64,
    opened: Nanos,
    deadline: Nanos,
    originals: Vec<Original>,
    failed: BTreeMap<u32, Failure>,
}

/// What went wrong with a tuple.
struct Trouble {
    component: Option<ComponentId>,
    error: String,
    nack: Nack,
}

impl Limits {
    /// The limits that `settings` name.
    #[must_use]
    pub fn new(settings: &Settings) -> Self {
        Self {
            pending_max: settings.max_spout_pending,
            bytes_max: settings.spout_bytes_max,
            timeout: settings.message_timeout,
            attempts_max: settings.attempts_max,
            backoff: settings.backoff.clone(),
        }
    }

    /// The pause after the attempt of this number.
    fn pause(&self, attempts: u32) -> Duration {
        let place = (attempts.max(1) as usize - 1).min(self.backoff.len().saturating_sub(1));
        self.backoff.get(place).copied().unwrap_or_default()
    }
}

impl Tracker {
    /// The tracker of a spout task that has started for the `life`th time.
    #[must_use]
    pub fn new(spout: TaskId, life: u32, limits: Limits) -> Self {
        Self {
            spout,
            life,
            limits,
            next: 0,
            roots: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            waiting: BTreeMap::new(),
            silent: BTreeMap::new(),
            failures: 0,
            pending: 0,
            pending_bytes: 0,
            settled: VecDeque::new(),
            completed: VecDeque::new(),
        }
    }

    /// The identifier that the next batch gets, for the tokens of its parcels.
    #[must_use]
    pub fn next_root(&self) -> RootId {
        RootId { spout: self.spout, life: self.life, number: self.next }
    }

    /// A batch was emitted; `xor` is the XOR of its parcels' tokens, 0 if nobody reads it: then it is done.
    ///
    /// `is_new`: its tuples have not been emitted before.
    ///
    /// # Panics
    /// If new tuples are more than [`Tracker::room`].
    pub fn open(&mut self, now: Nanos, originals: Vec<Original>, xor: u64, is_new: bool) {
        if is_new {
            assert!(originals.len() as u64 <= u64::from(self.room()), "a spout emits what there is room for");
            self.pending += originals.len() as u32;
            self.pending_bytes += originals.iter().map(size_bytes).sum::<u64>();
        }
        let (number, deadline) = (self.next, now + self.limits.timeout);
        self.next += 1;
        self.deadlines.insert((deadline, number));
        self.roots.insert(number, Root { xor, opened: now, deadline, originals, failed: BTreeMap::new() });
        if xor == 0 {
            self.complete(now, number);
        }
    }

    /// A tuple that was not emitted is a dead letter.
    pub fn give_up(&mut self, letter: DeadLetter) {
        self.settled.push_back(Settled::Dead(letter));
    }

    /// A task reports. What is not out any more, or not of this life, is ignored.
    pub fn on_report(&mut self, now: Nanos, report: &Report) {
        let RootId { spout, life, number } = report.root;
        let is_own = (spout, life) == (self.spout, self.life);
        let Some(root) = self.roots.get_mut(&number).filter(|_| is_own) else { return };
        let is_known = |failure: &&Failure| (failure.origin as usize) < root.originals.len();
        for failure in report.failed.iter().filter(is_known) {
            root.failed.entry(failure.origin).or_insert_with(|| failure.clone());
        }
        root.xor ^= report.xor;
        if root.xor == 0 {
            self.complete(now, number);
        } else if report.extends {
            let deadline = now + self.limits.timeout;
            self.deadlines.remove(&(std::mem::replace(&mut root.deadline, deadline), number));
            self.deadlines.insert((deadline, number));
        }
    }

    /// Fails the batches whose deadlines have passed.
    pub fn on_time(&mut self, now: Nanos) {
        while let Some(&(deadline, number)) = self.deadlines.first()
            && deadline <= now
        {
            let root = self.remove(number);
            let error = format!("not acknowledged within {:?} (message_timeout)", self.limits.timeout);
            for (origin, original) in (0..).zip(root.originals) {
                let trouble = match root.failed.get(&origin) {
                    Some(failure) => Trouble::of(failure),
                    None => Trouble { component: None, error: error.clone(), nack: Nack::FAIL },
                };
                self.fail(now, original, trouble);
            }
        }
    }

    /// A tuple whose pause is over, to be emitted again, alone in its batch. Tuples come in the order in which they are due.
    pub fn take_due(&mut self, now: Nanos) -> Option<Original> {
        let entry = self.waiting.first_entry().filter(|entry| entry.key().0 <= now)?;
        let mut original = entry.remove();
        original.attempts += 1;
        Some(original)
    }

    /// What was settled since the last call, in order.
    pub fn poll_settled(&mut self) -> Option<Settled> {
        self.settled.pop_front()
    }

    /// A batch that was completed since the last call, in order.
    pub fn poll_completed(&mut self) -> Option<Completed> {
        self.completed.pop_front()
    }

    /// How many new tuples may be emitted.
    #[must_use]
    pub fn room(&self) -> u32 {
        if self.pending_bytes >= self.limits.bytes_max { 0 } else { self.limits.pending_max - self.pending }
    }

    /// Tuples out and waiting.
    #[must_use]
    pub fn pending(&self) -> u32 {
        self.pending
    }

    /// When something is to be done without a report: [`Tracker::on_time`], then [`Tracker::take_due`].
    #[must_use]
    pub fn next_due(&self) -> Option<Nanos> {
        let deadline = self.deadlines.first().map(|(deadline, _)| *deadline);
        let waiting = self.waiting.first_key_value().map(|((due, _), _)| *due);
        deadline.into_iter().chain(waiting).min()
    }

    /// Looks whether the parts agree. O(n): for tests.
    ///
    /// # Panics
    /// If they do not: a bug.
    pub fn check(&self) {
        let out: usize = self.roots.values().map(|root| root.originals.len()).sum();
        assert_eq!(out + self.waiting.len(), self.pending as usize, "pending tuples are out or waiting");
        let originals = self.roots.values().flat_map(|root| &root.originals).chain(self.waiting.values());
        assert_eq!(originals.map(size_bytes).sum::<u64>(), self.pending_bytes, "bytes of pending tuples");
        assert!(self.pending <= self.limits.pending_max, "more tuples than max_spout_pending");
        let deadlines: BTreeSet<(Nanos, u64)> =
            self.roots.iter().map(|(number, root)| (root.deadline, *number)).collect();
        assert_eq!(deadlines, self.deadlines, "each batch has its deadline");
        assert!(self.roots.values().all(|root| root.xor != 0), "a batch that is done is settled");
    }

    /// Nothing of a batch is out any more.
    fn complete(&mut self, now: Nanos, number: u64) {
        let root = self.remove(number);
        let acked = (root.originals.len() - root.failed.len()) as u32;
        self.completed.push_back(Completed { latency: now.since(root.opened), acked });
        for (origin, original) in (0..).zip(root.originals) {
            match root.failed.get(&origin) {
                Some(failure) => self.fail(now, original, Trouble::of(failure)),
                None => self.settle(&original, Settled::Acked(original.position)),
            }
        }
    }

    /// An attempt has failed.
    fn fail(&mut self, now: Nanos, mut original: Original, trouble: Trouble) {
        let Nack { blame, delay } = trouble.nack;
        if blame == Blame::Silent {
            original.attempts -= 1;
        }
        let is_last = original.attempts >= self.limits.attempts_max;
        if blame == Blame::Fatal || (blame == Blame::Fail && is_last) {
            let Trouble { component, error, .. } = trouble;
            let letter = DeadLetter { original: original.clone(), component, error };
            return self.settle(&original, Settled::Dead(letter));
        }
        let pause = if blame == Blame::Silent {
            let times = self.silent.entry(original.position).or_default();
            *times += 1;
            silent_pause(*times)
        } else {
            self.silent.remove(&original.position);
            self.limits.pause(original.attempts)
        };
        self.failures += 1;
        self.waiting.insert((now + delay.unwrap_or(pause), self.failures), original);
    }

    fn settle(&mut self, original: &Original, settled: Settled) {
        self.silent.remove(&original.position);
        self.pending -= 1;
        self.pending_bytes -= size_bytes(original);
        self.settled.push_back(settled);
    }

    fn remove(&mut self, number: u64) -> Root {
        let root = self.roots.remove(&number).expect("its deadline is there, so it is");
        assert!(self.deadlines.remove(&(root.deadline, number)), "a batch has a deadline");
        root
    }
}

impl Trouble {
    fn of(failure: &Failure) -> Self {
        let Failure { component, error, nack, .. } = failure;
        Self { component: Some(*component), error: error.clone(), nack: *nack }
    }
}

/// The pause after so many silent failures of a tuple in a row.
fn silent_pause(times: u32) -> Duration {
    if times <= 1 { Duration::ZERO } else { SILENT_MAX.min(SILENT_MIN * 2_u32.saturating_pow(times - 2)) }
}

/// The second pause after silent failures, and the longest.
const SILENT_MIN: Duration = Duration::from_millis(10);
const SILENT_MAX: Duration = Duration::from_secs(5);

/// What a tuple counts for, in bytes.
fn size_bytes(original: &Original) -> u64 {
    original.values.size_bytes() as u64
}
