//! Calls of commands by loop: how many, how they failed, how long they took.
//!
//! ```text
//!  call -> note, one word on the loop's own thread -> end of the turn -> fresh (one lock that nobody wants)
//!                                        whoever asks: takes fresh away whole -> total, a histogram at a time
//! ```
//!
//! Invariants
//!   1. A loop waits for whoever asks for as long as it takes to move a pointer, however much there is to add up; but for one
//!      that was asked the same by its own client (INFO commandstats, LATENCY HISTOGRAM), which waits for its turn.
//!   2. What a client was answered is in what the next one asks for: notes are settled before the turn's replies leave.
//!   3. Loops stay apart until somebody asks for a sum.
//!
//! A loop counts times in the layout of `hdrhistogram` ([`slot`]), and whoever asks gets them as a histogram. Both are made
//! when a loop first times a command, and take 26 KiB each. One hundred commands, each used on each of two loops, take
//! 10 MiB; the ten that an application uses take 1 MiB.
//!
//! Rejected: atomic counters, two locked instructions a call (as many as a turn takes now); [`Histogram::record`] for each
//! call, 78 instructions where this takes 20 of a pipelined SET's 1,883; the recorders of `hdrhistogram`, whose reader waits
//! until every writer has recorded again, which an idle loop does not.

use std::cell::Cell;
use std::sync::{Mutex, MutexGuard, PoisonError};

use commands::call::Lookups;
use hdrhistogram::Histogram;

/// Times in nanoseconds: two digits, steps of 16 ns below 4 us, up to a minute; what took longer counts as that.
pub(crate) type Latencies = Histogram<u64>;

/// No latencies yet.
fn no_latencies() -> Latencies {
    Histogram::new_with_bounds(LATENCY_NS_STEP, LATENCY_NS_MAX, DIGITS).expect("a test makes one")
}

/// The calls of all commands.
#[derive(Debug)]
pub(crate) struct Calls {
    loops: Box<[OfLoop]>,
    commands: usize,
}

/// One loop; a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct OfLoop {
    /// Since somebody asked last. The loop's lock.
    fresh: Mutex<Fresh>,
    /// Before that. Taken by whoever asks, first.
    total: Mutex<Vec<Command>>,
}

#[derive(Debug, Default)]
struct Fresh {
    /// By the command's number; empty until something is counted.
    commands: Vec<FreshCommand>,
    /// Calls of all commands; this and what follows is never taken away.
    calls: u64,
    hits: u64,
    misses: u64,
}

/// One command, as a loop counts.
#[derive(Debug, Default)]
struct FreshCommand {
    counts: Counts,
    slots: Option<Box<[u64]>>,
}

/// One command, as it is read.
#[derive(Debug, Default)]
struct Command {
    counts: Counts,
    latencies: Option<Box<Latencies>>,
}

/// How often, and how long in all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Calls that ran.
    pub(crate) calls: u64,
    /// Time of those that were timed, in nanoseconds.
    pub(crate) nanos: u64,
    /// Calls refused before they ran.
    pub(crate) rejected: u64,
    /// Calls that ran and answered with an error.
    pub(crate) failed: u64,
}

/// A command over all loops.
#[derive(Clone, Debug)]
pub(crate) struct Summary {
    /// Sum of `loops`.
    pub(crate) counts: Counts,
    pub(crate) loops: Vec<Counts>,
    /// Those calls that were timed.
    pub(crate) latencies: Latencies,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Answered = 0,
    Failed = 1,
    Rejected = 2,
}

/// What a thread has counted in this turn.
struct TurnCounts {
    /// A thread runs one loop.
    loop_index: Cell<usize>,
    count: Cell<usize>,
    /// | nanoseconds, or [`UNTIMED`] 46 bits | ending 2 | command 16 |
    list: [Cell<u64>; TURN_CALLS_MAX],
    hits: Cell<u64>,
    misses: Cell<u64>,
}

thread_local! {
    static TURN: TurnCounts = const {
        TurnCounts {
            loop_index: Cell::new(0),
            count: Cell::new(0),
            list: [const { Cell::new(0) }; TURN_CALLS_MAX],
            hits: Cell::new(0),
            misses: Cell::new(0),
        }
    };
}

impl Calls {
    pub(crate) fn new(loops: usize, commands: usize) -> Self {
        Calls { loops: (0..loops.max(1)).map(|_| OfLoop::default()).collect(), commands }
    }

    /// Counts a call on the loop of this thread; `nanos` is absent for one that was not timed.
    #[inline]
    pub(crate) fn note(&self, loop_index: usize, command: u16, nanos: Option<u64>, ending: Ending) {
        let nanos = nanos.map_or(UNTIMED, |nanos| nanos.min(UNTIMED - 1));
        let is_full = TURN.with(|notes| {
            let at = notes.count.get() % TURN_CALLS_MAX;
            notes.list[at].set(nanos << 18 | (ending as u64) << 16 | u64::from(command));
            notes.count.set(at + 1);
            notes.loop_index.set(loop_index);
            at + 1 == TURN_CALLS_MAX
        });
        if is_full {
            self.settle();
        }
    }

    /// Counts keys that the call looked up which is noted next.
    #[inline]
    pub(crate) fn lookups(&self, Lookups { hits, misses }: Lookups) {
        if hits | misses != 0 {
            TURN.with(|notes| {
                notes.hits.set(notes.hits.get() + u64::from(hits));
                notes.misses.set(notes.misses.get() + u64::from(misses));
            });
        }
    }

    /// Makes what this thread has noted known to others: at the end of each turn, and before it asks for sums itself.
    #[inline]
    pub(crate) fn settle(&self) {
        TURN.with(|notes| {
            if notes.count.get() == 0 {
                return;
            }
            let mut fresh = lock(&self.loops[notes.loop_index.get() % self.loops.len()].fresh);
            fresh.hits += notes.hits.take();
            fresh.misses += notes.misses.take();
            if fresh.commands.is_empty() {
                fresh.commands.resize_with(self.commands, FreshCommand::default);
            }
            for note in &notes.list[..notes.count.take()] {
                let note = note.get();
                fresh.calls += u64::from(note >> 16 & 3 != REJECTED);
                fresh.commands[usize::from(note as u16)].count(note);
            }
        });
    }

    /// All that was counted so far. Others who ask wait until it is dropped; loops do not.
    pub(crate) fn read(&self) -> Reading<'_> {
        self.settle();
        Reading(self.loops.iter().map(OfLoop::collected).collect())
    }

    /// Calls of all commands.
    pub(crate) fn calls(&self) -> u64 {
        self.settle();
        self.loops.iter().map(|of_loop| lock(&of_loop.fresh).calls).sum()
    }

    /// Keys that were found, and not, by commands that read.
    pub(crate) fn hits_and_misses(&self) -> (u64, u64) {
        self.settle();
        self.loops
            .iter()
            .map(|of_loop| lock(&of_loop.fresh))
            .fold((0, 0), |(hits, misses), fresh| (hits + fresh.hits, misses + fresh.misses))
    }

    /// Forgets everything.
    pub(crate) fn reset(&self) {
        self.settle();
        for of_loop in &self.loops {
            let mut total = lock(&of_loop.total);
            *lock(&of_loop.fresh) = Fresh::default();
            total.clear();
        }
    }
}

impl OfLoop {
    /// Adds what is fresh to the total, and returns that.
    fn collected(&self) -> MutexGuard<'_, Vec<Command>> {
        let mut total = lock(&self.total);
        let fresh = std::mem::take(&mut lock(&self.fresh).commands);
        if total.len() < fresh.len() {
            total.resize_with(fresh.len(), Command::default);
        }
        total.iter_mut().zip(&fresh).for_each(|(total, fresh)| total.add(fresh));
        total
    }
}

/// Totals of each loop, as of one moment.
#[derive(Debug)]
pub(crate) struct Reading<'a>(Vec<MutexGuard<'a, Vec<Command>>>);

impl Reading<'_> {
    /// What is known of a command; `None` when it was never called or refused.
    pub(crate) fn summary(&self, command: u16) -> Option<Summary> {
        let of_loops = || self.0.iter().map(|total| total.get(usize::from(command)));
        let loops: Vec<_> = of_loops().map(|of| of.map_or_else(Counts::default, |of| of.counts)).collect();
        let mut counts = Counts::default();
        loops.iter().for_each(|of| counts.add(*of));
        if counts.calls + counts.rejected == 0 {
            return None;
        }
        let mut latencies = no_latencies();
        for of_loop in of_loops().flatten().filter_map(|command| command.latencies.as_deref()) {
            latencies.add(of_loop).expect("the same bounds");
        }
        Some(Summary { counts, loops, latencies })
    }
}

impl FreshCommand {
    #[inline]
    fn count(&mut self, note: u64) {
        let nanos = note >> 18;
        match note >> 16 & 3 {
            REJECTED => return self.counts.rejected += 1,
            FAILED => self.counts.failed += 1,
            _ => {}
        }
        self.counts.calls += 1;
        if nanos != UNTIMED {
            self.counts.nanos += nanos;
            self.slots.get_or_insert_with(|| vec![0; SLOTS].into())[slot(nanos)] += 1;
        }
    }
}

impl Command {
    fn add(&mut self, fresh: &FreshCommand) {
        self.counts.add(fresh.counts);
        let Some(slots) = &fresh.slots else { return };
        let latencies = self.latencies.get_or_insert_with(|| Box::new(no_latencies()));
        for (slot, count) in slots.iter().enumerate().filter(|(_, count)| **count > 0) {
            latencies.saturating_record_n(lowest(slot), *count);
        }
    }
}

/// Where [`Latencies`] counts a time: 256 steps, then 128 for each doubling.
#[inline]
fn slot(nanos: u64) -> usize {
    let steps = nanos.min(LATENCY_NS_MAX) / LATENCY_NS_STEP;
    let doublings = (steps | 255).ilog2() - 7;
    ((doublings as usize) << 7) + (steps >> doublings) as usize
}

/// The shortest time in a slot.
fn lowest(slot: usize) -> u64 {
    let doublings = (slot / 128).saturating_sub(1);
    ((slot - doublings * 128) as u64) << doublings << LATENCY_NS_STEP.ilog2()
}

impl Counts {
    fn add(&mut self, other: Counts) {
        self.calls += other.calls;
        self.nanos += other.nanos;
        self.rejected += other.rejected;
        self.failed += other.failed;
    }
}

impl Summary {
    /// Microseconds that `percent` of the timed calls stayed at or below.
    pub(crate) fn percentile_us(&self, percent: f64) -> f64 {
        self.latencies.value_at_quantile(percent / 100.0) as f64 / 1_000.0
    }

    /// Microseconds, about doubling from 1, and the timed calls that took no longer: where there are more than for the one
    /// before. Redis answers LATENCY HISTOGRAM with the same numbers.
    pub(crate) fn by_powers(&self) -> Vec<(u64, u64)> {
        let ends = (0..).map(|power| self.latencies.highest_equivalent(1_024 << power));
        let (mut powers, mut seen, mut below) = (Vec::new(), 0, 0);
        for end in ends {
            if seen == self.latencies.len() {
                return powers;
            }
            let more = self.latencies.count_between(below, end);
            if more > 0 {
                seen += more;
                powers.push((end / 1_000, seen));
            }
            below = end + 1;
        }
        powers
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const FAILED: u64 = Ending::Failed as u64;
const REJECTED: u64 = Ending::Rejected as u64;
/// In place of a time.
const UNTIMED: u64 = (1 << 46) - 1;
/// Calls that a turn may have; more are settled in between.
const TURN_CALLS_MAX: usize = 256;
const LATENCY_NS_STEP: u64 = 16;
const LATENCY_NS_MAX: u64 = 60_000_000_000;
const DIGITS: u8 = 2;
/// Slots of [`Latencies`].
const SLOTS: usize = 26 * 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_histogram() {
        let mut latencies = no_latencies();
        assert_eq!(latencies.distinct_values(), SLOTS);
        assert_eq!(SLOTS * size_of::<u64>(), 26 * 1_024, "as the header says");
        for nanos in (0..10_000).chain((0..36).flat_map(|power| [(1 << power) - 1, 1 << power, 3 << power])) {
            let nanos = nanos.min(LATENCY_NS_MAX);
            assert_eq!(lowest(slot(nanos)), latencies.lowest_equivalent(nanos), "{nanos}");
            latencies.record(nanos).expect("within the bounds");
        }
        assert!(slot(u64::MAX) < SLOTS);
    }

    #[test]
    fn loops_stay_apart_and_their_histograms_add_up() {
        let calls = Calls::new(2, 3);
        (0..99).for_each(|_| calls.note(0, 1, Some(900), Ending::Answered));
        calls.settle();
        calls.note(1, 1, Some(100_000), Ending::Failed);
        calls.note(1, 1, None, Ending::Rejected);
        calls.note(1, 2, None, Ending::Answered);
        let sum = calls.read().summary(1).expect("called");
        assert_eq!(sum.counts, Counts { calls: 100, nanos: 189_100, rejected: 1, failed: 1 });
        assert_eq!(sum.loops[0], Counts { calls: 99, nanos: 89_100, ..Counts::default() });
        assert_eq!(sum.percentile_us(50.0), 0.911, "the end of a step of 16 ns");
        assert_eq!(sum.percentile_us(99.9), 100.351);
        assert_eq!(sum.by_powers(), [(1, 99), (132, 100)]);
        let untimed = calls.read().summary(2).expect("called");
        assert_eq!((untimed.counts.calls, untimed.latencies.len()), (1, 0));
        assert!(untimed.by_powers().is_empty());
        assert!(calls.read().summary(0).is_none());
        calls.reset();
        assert!(calls.read().summary(1).is_none());
    }

    #[test]
    fn what_is_counted_between_two_readings_is_added_to_what_was() {
        let calls = Calls::new(1, 1);
        for round in 1..=3 {
            calls.lookups(Lookups { hits: 2, misses: 1 });
            calls.note(0, 0, Some(round * 1_000), Ending::Answered);
            let sum = calls.read().summary(0).expect("called");
            assert_eq!((sum.counts.calls, sum.latencies.len()), (round, round));
            assert_eq!(calls.hits_and_misses(), (2 * round, round));
        }
        assert_eq!(calls.calls(), 3);
    }

    #[test]
    fn calls_beyond_the_bounds_are_counted_at_them() {
        let calls = Calls::new(1, 1);
        for nanos in [0, u64::MAX] {
            calls.note(0, 0, Some(nanos), Ending::Answered);
        }
        (0..3 * TURN_CALLS_MAX).for_each(|_| calls.note(0, 0, Some(1), Ending::Answered));
        let sum = calls.read().summary(0).expect("called");
        assert_eq!(sum.counts.calls, 2 + 3 * TURN_CALLS_MAX as u64);
        assert_eq!(sum.by_powers().last().map(|(_, seen)| *seen), Some(sum.counts.calls));
        assert!(sum.percentile_us(100.0) >= 60_000_000.0);
    }
}
