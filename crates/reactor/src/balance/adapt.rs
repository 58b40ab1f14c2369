//! Has as many loops active as the load needs: takes samples of loops and cores, and makes the changes that [`super::active`] decides.
//!
//! While nothing is done nothing is sampled: it only looks whether loops work again.

use std::time::Duration;

use clock::Nanos;

use super::active::{ActiveLoops, Sample};
use super::signals::{CoresFile, ThreadTimes};
use crate::handle::Shared;
use crate::{LoopStats, Protocol};

/// How long an interval is.
const SAMPLED: Duration = Duration::from_millis(100);
/// Loops that work less than this in a second rest.
const RESTS_BELOW: Duration = Duration::from_millis(10);

/// The number of active loops over time.
#[derive(Debug)]
pub(crate) struct Adapt {
    loops: ActiveLoops,
    cores: CoresFile,
    /// What was counted when the interval began.
    marks: Marks,
    /// One loop is active, and there is next to no work.
    is_resting: bool,
}

/// Counters that only grow.
#[derive(Debug, Default)]
struct Marks {
    at: Nanos,
    of_loops: Vec<ThreadTimes>,
    /// Time that each loop worked by the clock, commits left out.
    worked: Vec<Duration>,
    idle: Duration,
    commands: u64,
    wakeups: u64,
}

impl Marks {
    /// Time that all loops worked.
    fn busy(&self) -> Duration {
        self.worked.iter().sum()
    }
}

impl Adapt {
    /// Starts with the number of loops that is active now.
    ///
    /// # Errors
    /// The system does not tell how busy its cores are.
    pub(crate) fn new<P: Protocol>(shared: &Shared<P>) -> std::io::Result<Self> {
        let loops = ActiveLoops::from(shared.active.count(), shared.stats.len());
        Ok(Self { loops, cores: CoresFile::open()?, marks: Marks::default(), is_resting: true })
    }

    /// When to look next, if nothing else is to be done before.
    pub(crate) fn next_look(&self) -> Option<Nanos> {
        (!self.is_resting).then(|| self.marks.at + SAMPLED)
    }

    /// Looks at the loops; `may_move`: connections may be sent to others.
    pub(crate) fn look<P: Protocol>(&mut self, shared: &Shared<P>, now: Nanos, may_move: bool) {
        if self.loops.active() != shared.active.count() {
            self.loops = ActiveLoops::from(shared.active.count(), shared.stats.len());
            self.is_resting = false;
        }
        let span = now - self.marks.at;
        if !may_move || span < SAMPLED {
            return;
        }
        if self.is_resting {
            let before = self.marks.busy();
            self.marks = Marks { at: now, worked: worked(&shared.stats), ..Marks::default() };
            self.is_resting = is_rest(self.marks.busy().saturating_sub(before), span);
            if !self.is_resting {
                // The first interval begins now.
                self.marks = self.read(&shared.stats, now).unwrap_or_default();
            }
            return;
        }
        let Some(marks) = self.read(&shared.stats, now) else { return };
        let sample = sample(&self.marks, &marks, self.loops.active());
        self.is_resting =
            self.loops.active() == 1 && is_rest(marks.busy().saturating_sub(self.marks.busy()), span);
        self.marks = marks;
        if let Some(change) = self.loops.on_interval(&sample) {
            shared.resize(change.to, change.reason);
        }
    }

    /// What is counted now; `None` when the system does not tell.
    fn read(&mut self, stats: &[std::sync::Arc<LoopStats>], now: Nanos) -> Option<Marks> {
        Some(Marks {
            at: now,
            of_loops: stats.iter().map(|stats| stats.thread_times()).collect::<Option<_>>()?,
            worked: worked(stats),
            idle: self.cores.read_idle()?,
            commands: stats.iter().map(|stats| stats.commands()).sum(),
            wakeups: stats.iter().map(|stats| stats.ticks()).sum(),
        })
    }
}

/// Time that each loop worked since it started, by the clock.
fn worked(stats: &[std::sync::Arc<LoopStats>]) -> Vec<Duration> {
    stats.iter().map(|stats| Duration::from_nanos(stats.busy_ns())).collect()
}

fn is_rest(busy: Duration, span: Duration) -> bool {
    busy.as_secs_f64() < RESTS_BELOW.as_secs_f64() * span.as_secs_f64()
}

/// What was done between `begin` and `end` by the first `active` loops.
fn sample(begin: &Marks, end: &Marks, active: usize) -> Sample {
    let span = end.at - begin.at;
    let mut sample = Sample {
        span,
        idle: end.idle.saturating_sub(begin.idle),
        commands: end.commands.saturating_sub(begin.commands),
        wakeups: end.wakeups.saturating_sub(begin.wakeups),
        ..Sample::default()
    };
    let pairs = begin.of_loops.iter().zip(&end.of_loops).take(active);
    let worked = begin.worked.iter().zip(&end.worked).map(|(before, after)| after.saturating_sub(*before));
    for ((before, after), worked) in pairs.zip(worked) {
        let delayed = after.delayed.saturating_sub(before.delayed);
        let ran = after.ran.saturating_sub(before.ran);
        // it ran in the poller, too: so long it may have been blocked besides
        let blocked = worked.min(span).saturating_sub(ran + delayed);
        let occupied = (ran + delayed + blocked).min(span);
        sample.delayed += delayed;
        sample.blocked += blocked;
        sample.occupied += occupied;
        sample.occupied_most = sample.occupied_most.max(occupied);
    }
    sample
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sample_is_of_the_active_loops_and_no_loop_counts_more_than_once() {
        let ms = Duration::from_millis;
        let times = |ran, delayed| ThreadTimes { ran: ms(ran), delayed: ms(delayed) };
        let worked = |worked: [u64; 3]| worked.map(ms).to_vec();
        let begin = Marks {
            of_loops: vec![times(0, 0); 3],
            worked: worked([0; 3]),
            at: Nanos(5),
            ..Marks::default()
        };
        let end = Marks {
            at: begin.at + ms(100),
            of_loops: vec![times(60, 10), times(90, 20), times(99, 0)],
            worked: worked([85, 90, 99]),
            idle: ms(30),
            commands: 7,
            wakeups: 3,
        };
        let expected = Sample {
            span: ms(100),
            occupied: ms(185),
            occupied_most: ms(100),
            delayed: ms(30),
            blocked: ms(15),
            idle: ms(30),
            commands: 7,
            wakeups: 3,
        };
        assert_eq!(sample(&begin, &end, 2), expected);
    }

    #[test]
    fn one_hundredth_of_a_core_is_rest() {
        assert!(is_rest(Duration::from_millis(2), Duration::from_millis(250)));
        assert!(!is_rest(Duration::from_millis(3), Duration::from_millis(250)));
    }
}
