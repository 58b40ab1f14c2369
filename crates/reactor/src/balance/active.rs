//! How many loops are active: a pure function of what was counted in the last intervals.
//!
//! ```text
//!            loops busy, cores idle                          loops wait for a core or each other, or their work fits into fewer
//!  n loops ---------------------------> more loops   n loops --------------------------------------------------------------> fewer
//!     ^                                     |
//!     +---- undone: it did not help --------+           each change is a trial: the rate before it, the rate after it
//! ```
//!
//! Invariants
//!   1. At least one loop is active and at most as many as there are. Those that are active are the first ones.
//!   2. A change is judged before the next one is made. One that did not help is undone.
//!   3. After a judgement the number that lost is not tried again for a while, which doubles each time, as long as the load is like
//!      the one that was judged: so the number of changes under any steady load is bounded by the logarithm of its duration, then
//!      by one trial per [`BACK_OFF_MAX`].
//!   4. An interval without work says nothing about busy loops; it only counts as one whose work fits into one loop.
//!
//! Why a trial, and no formula: on a machine that is shared with its clients, whether another loop raises the rate depends on what
//! the clients do with the processor time that it takes from them. Nothing that is measured on one side tells.
//! docs/adr/0005-balance.md weighs the rules.

use std::time::Duration;

/// What was counted of the active loops in one interval.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// How long it was.
    pub(crate) span: Duration,
    /// Time that loops were on a core, asked for one, or were blocked: the sum over the active loops. One that waits for the disk in a commit
    /// is not occupied: another loop would wait for the same disk.
    pub(crate) occupied: Duration,
    /// The same of the loop with most of it.
    pub(crate) occupied_most: Duration,
    /// The part of `occupied` in which loops were ready to run and waited for a core.
    pub(crate) delayed: Duration,
    /// The part of `occupied` in which loops were blocked in the midst of their work: most often by another loop that held the same data.
    pub(crate) blocked: Duration,
    /// Idle time of the cores that this process may use, as a sum.
    pub(crate) idle: Duration,
    pub(crate) commands: u64,
    /// Ends of waits for events.
    pub(crate) wakeups: u64,
}

/// Why the number of active loops is what it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reason {
    /// It was set when the server started, and does not change.
    #[default]
    Fixed,
    /// The first loop is active from the start.
    Start,
    /// The loops were busy while cores were idle.
    Busy,
    /// Loops waited for cores that others used.
    Delayed,
    /// Loops waited for data that others of them held.
    Blocked,
    /// The work fits into fewer loops.
    Fits,
    /// The change before this one did not help.
    Undone,
    /// The system does not tell how busy cores and threads are, or connections are not balanced: one loop fewer than cores.
    Unknown,
}

impl Reason {
    /// As INFO and the metrics show it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Start => "start",
            Self::Busy => "loops_busy",
            Self::Delayed => "loops_wait_for_cores",
            Self::Blocked => "loops_wait_for_each_other",
            Self::Fits => "work_fits_into_fewer",
            Self::Undone => "undone",
            Self::Unknown => "unknown_load",
        }
    }
}

/// A new number of active loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) to: usize,
    pub(crate) reason: Reason,
}

/// Decides how many loops are active.
#[derive(Debug)]
pub(crate) struct ActiveLoops {
    active: usize,
    max: usize,
    /// Intervals since the last change or judgement, at most [`WINDOW`].
    window: Vec<Sample>,
    trial: Option<Trial>,
    /// For how long the work has fitted into fewer loops.
    fits: Duration,
    /// Time since the start, as far as it was sampled.
    now: Duration,
    /// What lost against the present number: more loops, fewer loops.
    more_lost: Option<Lost>,
    fewer_lost: Option<Lost>,
}

/// A change that is not judged yet.
#[derive(Clone, Copy, Debug)]
struct Trial {
    from: usize,
    reason: Reason,
    before: View,
    /// Intervals in which connections still move.
    settles: u32,
    /// Intervals that it waits at most for a load that is steady again: one that ends or begins in the midst of a window is no verdict.
    patience: usize,
}

/// A number of loops that did worse than the present one.
#[derive(Clone, Copy, Debug)]
struct Lost {
    /// The load under which it did.
    under: View,
    back_off: Duration,
    until: Duration,
}

/// Some intervals together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct View {
    /// Commands a second.
    rate: f64,
    commands_per_wakeup: f64,
    /// In loops: 1.0 is one loop that never slept.
    occupied: f64,
    occupied_most: f64,
    delayed: f64,
    blocked: f64,
    /// In cores.
    idle: f64,
    /// The intervals are alike: their mean tells about the next one.
    is_steady: bool,
}

/// Intervals that are looked at together: the system counts idle time in hundredths of a second.
pub(crate) const WINDOW: usize = 3;
/// Intervals after a change in which connections move and their clients catch up.
const SETTLES: u32 = 2;
/// The same where they had waited for each other: what one of them had is brought to the core of the other for a second or so.
const SETTLES_TOGETHER: u32 = 12;
/// Intervals that a verdict waits for a steady load.
const PATIENCE: usize = 4 * WINDOW;
/// Mean share of its time that a busy loop is occupied.
const BUSY: f64 = 0.9;
/// Idle cores, in cores, that another loop could use.
const IDLE: f64 = 0.2;
/// Mean share of its time that a loop waits for a core, from which on one loop fewer is tried.
const DELAYED: f64 = 0.15;
/// Mean share of its time that a loop beside others is blocked, from which on one loop fewer is tried before one more is.
const BLOCKED: f64 = 0.1;
/// Work fits into fewer loops that would be occupied by so much.
const FITS: f64 = 0.6;
/// The same where each wake-up brings less than [`FEW_COMMANDS`]: the wake-ups are most of the work, and fewer loops need fewer.
const FITS_FEW: f64 = 0.8;
const FEW_COMMANDS: f64 = 2.0;
/// For how long the work must have fitted: moves cost something, and so would the way back.
const FITS_FOR: Duration = Duration::from_secs(3);
/// A rate that is higher by this is more than chance.
const GAIN: f64 = 1.05;
/// A rate that is lower by this is less than chance.
const LOSS: f64 = 0.97;
/// A rate that is lower by this is another load, not a verdict.
const COLLAPSE: f64 = 0.5;
/// Loads whose rates or commands per wake-up differ by more than this factor are different ones.
const ALIKE: f64 = 1.6;
/// The same of idle cores and of loops that wait for one, as a difference.
const NEAR: f64 = 0.3;
/// Intervals whose rates differ by more than this factor are not steady.
const STEADY: f64 = 1.4;
const BACK_OFF_MIN: Duration = Duration::from_secs(15);
const BACK_OFF_MAX: Duration = Duration::from_secs(300);
/// Least time between two trials, however much the load changes.
const REST: Duration = Duration::from_secs(2);

impl ActiveLoops {
    /// Goes on from `active` loops of `max`.
    pub(crate) fn from(active: usize, max: usize) -> Self {
        assert!((1..=max).contains(&active), "{active} loops of {max} are active");
        Self {
            active,
            max,
            window: Vec::with_capacity(WINDOW),
            trial: None,
            fits: Duration::ZERO,
            now: Duration::ZERO,
            more_lost: None,
            fewer_lost: None,
        }
    }

    pub(crate) fn active(&self) -> usize {
        self.active
    }

    /// Takes in an interval; returns the change to make now.
    pub(crate) fn on_interval(&mut self, sample: &Sample) -> Option<Change> {
        self.now += sample.span;
        if let Some(trial) = &mut self.trial
            && trial.settles > 0
        {
            trial.settles -= 1;
            return None;
        }
        if self.window.len() == WINDOW {
            self.window.remove(0);
        }
        self.window.push(*sample);
        if self.window.len() < WINDOW {
            return None;
        }
        let view = View::of(&self.window);
        let change = match self.trial.take() {
            Some(trial) if !view.is_steady && trial.patience > 0 => {
                self.trial = Some(Trial { patience: trial.patience - 1, ..trial });
                None
            }
            Some(trial) => self.judge(&trial, &view),
            None => self.consider(&view, sample.span),
        }?;
        self.active = change.to;
        self.window.clear();
        self.fits = Duration::ZERO;
        Some(change)
    }

    /// What to try under the load of `view`, whose newest interval took `span`.
    fn consider(&mut self, view: &View, span: Duration) -> Option<Change> {
        let active = self.active as f64;
        // one alone waits for something else
        let is_blocked = self.active > 1 && view.is_steady && view.blocked >= BLOCKED * active;
        if is_blocked && self.may_try(self.fewer_lost.as_ref(), view) {
            return Some(self.attempt(self.active - 1, Reason::Blocked, view));
        }
        let is_busy = view.is_steady && view.occupied >= BUSY * active && view.idle >= IDLE;
        if is_busy && self.active < self.max && self.may_try(self.more_lost.as_ref(), view) {
            // As many as there are idle cores for, and at most twice as many as now.
            let step = (view.idle as usize).clamp(1, self.active);
            return Some(self.attempt((self.active + step).min(self.max), Reason::Busy, view));
        }
        if self.active == 1 {
            return None;
        }
        let is_delayed = view.is_steady && view.delayed >= DELAYED * active && view.idle < IDLE;
        if is_delayed && self.may_try(self.fewer_lost.as_ref(), view) {
            return Some(self.attempt(self.active - 1, Reason::Delayed, view));
        }
        let share = if view.commands_per_wakeup < FEW_COMMANDS { FITS_FEW } else { FITS };
        let needed = ((view.occupied / share).ceil() as usize).max(1);
        self.fits = if needed < self.active { self.fits + span } else { Duration::ZERO };
        (self.fits >= FITS_FOR && self.may_try(self.fewer_lost.as_ref(), view))
            .then(|| self.attempt(needed, Reason::Fits, view))
    }

    fn may_try(&self, lost: Option<&Lost>, view: &View) -> bool {
        lost.is_none_or(|lost| {
            let rested = self.now + lost.back_off >= lost.until + REST;
            self.now >= lost.until || (rested && !view.is_like(&lost.under))
        })
    }

    fn attempt(&mut self, to: usize, reason: Reason, before: &View) -> Change {
        let settles = if reason == Reason::Blocked { SETTLES_TOGETHER } else { SETTLES };
        self.trial = Some(Trial { from: self.active, reason, before: *before, settles, patience: PATIENCE });
        Change { to, reason }
    }

    /// Ends `trial`, after which the load was as in `after`; the change back, if it did not help.
    fn judge(&mut self, trial: &Trial, after: &View) -> Option<Change> {
        self.window.clear();
        let gain = after.rate / trial.before.rate.max(1.0);
        let is_busy = after.occupied_most >= BUSY;
        if gain < COLLAPSE && !is_busy {
            // The load went away meanwhile.
            return None;
        }
        let helped = match trial.reason {
            Reason::Busy => gain >= GAIN || (gain >= LOSS && !is_busy && after.idle >= IDLE),
            Reason::Delayed | Reason::Blocked => gain >= LOSS,
            _ => gain >= LOSS || !is_busy,
        };
        let is_more = self.active > trial.from;
        if !helped {
            self.note_lost(is_more, &trial.before, true);
            return Some(Change { to: trial.from, reason: Reason::Undone });
        }
        if trial.reason != Reason::Fits {
            self.note_lost(!is_more, after, false);
        }
        None
    }

    /// Notes that more loops, or fewer, do worse than the present number; `was_tried`: and that it was tried, maybe again.
    fn note_lost(&mut self, more: bool, under: &View, was_tried: bool) {
        let now = self.now;
        let lost = if more { &mut self.more_lost } else { &mut self.fewer_lost };
        let before = lost.filter(|lost| was_tried && lost.under.is_like(under));
        let back_off = before.map_or(BACK_OFF_MIN, |lost| (lost.back_off * 2).min(BACK_OFF_MAX));
        *lost = Some(Lost { under: *under, back_off, until: now + back_off });
    }
}

impl View {
    fn of(samples: &[Sample]) -> Self {
        let sum = |of: fn(&Sample) -> Duration| samples.iter().map(of).sum::<Duration>().as_secs_f64();
        let count = |of: fn(&Sample) -> u64| samples.iter().map(of).sum::<u64>() as f64;
        let span = sum(|sample| sample.span).max(f64::MIN_POSITIVE);
        let (commands, wakeups) = (count(|sample| sample.commands), count(|sample| sample.wakeups));
        Self {
            rate: commands / span,
            commands_per_wakeup: commands / wakeups.max(1.0),
            occupied: sum(|sample| sample.occupied) / span,
            occupied_most: sum(|sample| sample.occupied_most) / span,
            delayed: sum(|sample| sample.delayed) / span,
            blocked: sum(|sample| sample.blocked) / span,
            idle: sum(|sample| sample.idle) / span,
            is_steady: is_steady(samples.iter().map(|it| it.commands as f64 / it.span.as_secs_f64())),
        }
    }

    /// Whether what was learnt under `other` holds.
    fn is_like(&self, other: &Self) -> bool {
        let alike = |one: f64, two: f64| one <= two * ALIKE && two <= one * ALIKE;
        let near = |one: f64, two: f64| (one - two).abs() <= NEAR;
        alike(self.rate, other.rate)
            && alike(self.commands_per_wakeup, other.commands_per_wakeup)
            && near(self.idle, other.idle)
            && near(self.delayed, other.delayed)
    }
}

fn is_steady(rates: impl Iterator<Item = f64> + Clone) -> bool {
    rates.clone().fold(0.0, f64::max) <= STEADY * rates.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Duration = Duration::from_millis(100);

    /// An interval of `active` loops, each occupied by this share; the rest in cores.
    fn sample(active: usize, occupied: f64, delayed: f64, idle: f64, commands: u64) -> Sample {
        let of = |share: f64| SPAN.mul_f64(share);
        Sample {
            span: SPAN,
            occupied: of(occupied * active as f64),
            occupied_most: of(occupied),
            delayed: of(delayed * active as f64),
            idle: of(idle),
            commands,
            wakeups: commands / 8,
            ..Sample::default()
        }
    }

    /// Gives `sample` until there is a change, at most `count` times.
    fn feed(loops: &mut ActiveLoops, count: usize, sample: Sample) -> Option<Change> {
        (0..count).find_map(|_| loops.on_interval(&sample))
    }

    fn intervals(duration: Duration) -> usize {
        (duration.as_nanos() / SPAN.as_nanos()) as usize
    }

    fn busy(rate: u64) -> Sample {
        sample(1, 1.0, 0.0, 0.4, rate)
    }

    #[test]
    fn busy_loop_beside_idle_cores_gets_help_after_a_window() {
        let mut loops = ActiveLoops::from(1, 2);
        assert_eq!(feed(&mut loops, WINDOW - 1, busy(100)), None);
        assert_eq!(loops.on_interval(&busy(100)), Some(Change { to: 2, reason: Reason::Busy }));
        assert_eq!(feed(&mut loops, 20, sample(2, 0.7, 0.1, 0.0, 140)), None, "it helped");
    }

    #[test]
    fn busy_loop_whose_clients_use_the_other_cores_stays_alone() {
        let mut loops = ActiveLoops::from(1, 2);
        assert_eq!(feed(&mut loops, 1_000, sample(1, 1.0, 0.2, 0.05, 100)), None);
        let mut loops = ActiveLoops::from(1, 2);
        assert_eq!(feed(&mut loops, 1_000, sample(1, 0.8, 0.1, 1.0, 100)), None, "not busy");
    }

    #[test]
    fn steps_double_while_there_are_idle_cores() {
        let mut loops = ActiveLoops::from(1, 16);
        let mut steps = Vec::new();
        for _ in 0..8 {
            let active = loops.active();
            let idle = 16.0 - active as f64 - 1.0;
            steps.extend(
                feed(&mut loops, 10, sample(active, 1.0, 0.0, idle, 100 * active as u64)).map(|it| it.to),
            );
        }
        assert_eq!(steps, [2, 4, 8, 15]);
    }

    #[test]
    fn help_that_does_not_help_is_sent_back_and_not_called_for_a_while() {
        let mut loops = ActiveLoops::from(1, 2);
        let undone = Some(Change { to: 1, reason: Reason::Undone });
        for back_off in [15, 30, 60, 120, 240, 300, 300] {
            assert!(feed(&mut loops, WINDOW, busy(100)).is_some());
            assert_eq!(feed(&mut loops, 5, sample(2, 0.6, 0.2, 0.0, 101)), undone);
            let wait = intervals(Duration::from_secs(back_off)) - 1;
            assert_eq!(feed(&mut loops, wait, busy(100)), None, "{back_off} s");
        }
    }

    #[test]
    fn another_load_is_tried_before_the_back_off_is_over() {
        let mut loops = ActiveLoops::from(1, 2);
        assert!(feed(&mut loops, WINDOW, busy(100)).is_some());
        assert!(feed(&mut loops, 5, sample(2, 0.6, 0.2, 0.0, 90)).is_some());
        assert_eq!(feed(&mut loops, intervals(REST) - 1, busy(700)), None, "not at once");
        assert!(feed(&mut loops, 3, busy(700)).is_some());
    }

    #[test]
    fn calmer_loops_at_the_same_rate_are_help_while_cores_are_idle() {
        let mut loops = ActiveLoops::from(1, 2);
        assert!(feed(&mut loops, WINDOW, busy(100)).is_some());
        assert_eq!(feed(&mut loops, 20, sample(2, 0.5, 0.0, 0.8, 100)), None);
        assert_eq!(loops.active(), 2);
    }

    #[test]
    fn one_giant_connection_does_not_keep_a_second_loop() {
        let mut loops = ActiveLoops::from(1, 2);
        assert!(feed(&mut loops, WINDOW, sample(1, 1.0, 0.0, 1.0, 100)).is_some());
        let giant = Sample { occupied_most: SPAN, ..sample(2, 0.5, 0.0, 1.0, 100) };
        assert_eq!(feed(&mut loops, 5, giant), Some(Change { to: 1, reason: Reason::Undone }));
    }

    fn two_active() -> ActiveLoops {
        let mut loops = ActiveLoops::from(1, 2);
        assert!(feed(&mut loops, WINDOW, busy(100)).is_some());
        assert_eq!(feed(&mut loops, 5, sample(2, 0.8, 0.0, 0.0, 180)), None);
        loops
    }

    #[test]
    fn loops_that_wait_for_cores_are_fewer_when_that_costs_nothing() {
        let mut loops = two_active();
        let contended = sample(2, 0.9, 0.4, 0.0, 60);
        let parked = feed(&mut loops, intervals(REST) + WINDOW, contended);
        assert_eq!(parked, Some(Change { to: 1, reason: Reason::Delayed }));
        assert_eq!(feed(&mut loops, 5, sample(1, 0.9, 0.3, 0.0, 70)), None, "it helped");
        assert_eq!(loops.active(), 1);
    }

    #[test]
    fn loops_that_wait_for_each_other_are_fewer_when_that_costs_nothing() {
        let mut loops = two_active();
        let blocked = Sample { blocked: SPAN.mul_f64(0.4), ..sample(2, 0.9, 0.0, 0.5, 60) };
        let parked = feed(&mut loops, intervals(REST) + WINDOW, blocked);
        assert_eq!(parked, Some(Change { to: 1, reason: Reason::Blocked }));
        // it takes a second until the rate has risen
        assert_eq!(feed(&mut loops, 10, sample(1, 0.95, 0.0, 0.2, 55)), None);
        assert_eq!(
            feed(&mut loops, intervals(BACK_OFF_MIN) - 1, sample(1, 0.95, 0.0, 0.2, 70)),
            None,
            "it helped"
        );
        assert_eq!(loops.active(), 1);
    }

    /// Loops that waited for each other were neither on a core nor asked for one: it seemed that the load had gone away.
    #[test]
    fn second_loop_that_is_in_the_way_of_the_first_is_sent_back() {
        let mut loops = ActiveLoops::from(1, 2);
        assert!(feed(&mut loops, WINDOW, busy(100)).is_some());
        let blocked = Sample { blocked: SPAN.mul_f64(0.5), ..sample(2, 0.95, 0.0, 0.4, 45) };
        assert_eq!(feed(&mut loops, 5, blocked), Some(Change { to: 1, reason: Reason::Undone }));
    }

    #[test]
    fn blocked_loops_beside_idle_cores_do_not_get_more() {
        let mut loops = ActiveLoops::from(3, 4);
        let blocked = Sample { blocked: SPAN, ..sample(3, 1.0, 0.0, 1.0, 100) };
        assert_eq!(feed(&mut loops, WINDOW, blocked), Some(Change { to: 2, reason: Reason::Blocked }));
    }

    /// Loops are blocked by more than each other: by the journal, by threads beside them, by memory that is brought from elsewhere.
    #[test]
    fn loops_that_do_not_wait_for_each_other_get_more_though_they_are_blocked() {
        let blocked = |active: usize, rate| Sample {
            blocked: SPAN.mul_f64(0.3 * active as f64),
            ..sample(active, 1.0, 0.0, 1.0, rate)
        };
        let mut alone = ActiveLoops::from(1, 4);
        assert_eq!(feed(&mut alone, WINDOW, blocked(1, 100)), Some(Change { to: 2, reason: Reason::Busy }));
        let mut loops = ActiveLoops::from(2, 4);
        assert_eq!(
            feed(&mut loops, WINDOW, blocked(2, 100)),
            Some(Change { to: 1, reason: Reason::Blocked })
        );
        assert_eq!(feed(&mut loops, 20, blocked(1, 55)), Some(Change { to: 2, reason: Reason::Undone }));
        assert_eq!(feed(&mut loops, WINDOW, blocked(2, 100)), Some(Change { to: 3, reason: Reason::Busy }));
    }

    #[test]
    fn loop_that_was_parked_to_the_harm_of_all_is_back_at_once() {
        let mut loops = two_active();
        let contended = sample(2, 0.9, 0.4, 0.0, 90);
        assert!(feed(&mut loops, intervals(REST) + WINDOW, contended).is_some());
        let fewer = sample(1, 1.0, 0.3, 0.0, 60);
        assert_eq!(feed(&mut loops, 5, fewer), Some(Change { to: 2, reason: Reason::Undone }));
        assert_eq!(feed(&mut loops, intervals(BACK_OFF_MIN) - 1, contended), None);
    }

    #[test]
    fn light_work_is_done_by_one_loop_after_some_seconds() {
        let mut loops = two_active();
        let light = sample(2, 0.2, 0.0, 1.5, 20);
        assert_eq!(feed(&mut loops, intervals(FITS_FOR) - 1, light), None);
        assert_eq!(feed(&mut loops, 3, light), Some(Change { to: 1, reason: Reason::Fits }));
        assert_eq!(feed(&mut loops, 1_000, sample(1, 0.4, 0.0, 1.5, 20)), None);
    }

    #[test]
    fn wake_ups_for_single_commands_count_as_work_that_fewer_loops_would_not_have() {
        let needed = |wakeups| {
            let mut loops = two_active();
            let sample = Sample { wakeups, ..sample(2, 0.35, 0.0, 1.0, 100) };
            feed(&mut loops, intervals(FITS_FOR) + WINDOW, sample).map(|change| change.to)
        };
        assert_eq!((needed(100), needed(10)), (Some(1), None));
    }

    /// Short loads ended in the midst of the window after a change: its mean was less than before, so that a second loop that had helped
    /// was sent back, and the next load had to do without it for 15 s.
    #[test]
    fn load_that_ends_in_the_midst_of_a_window_is_no_verdict() {
        for busy_intervals in 1..WINDOW {
            let mut loops = ActiveLoops::from(1, 2);
            assert!(feed(&mut loops, WINDOW, busy(100)).is_some());
            let settles = SETTLES as usize;
            assert_eq!(feed(&mut loops, settles + busy_intervals, sample(2, 0.9, 0.0, 0.0, 140)), None);
            let idle = sample(2, 0.0, 0.0, 2.0, 0);
            assert_eq!(feed(&mut loops, WINDOW, idle), None, "{busy_intervals}");
            assert_eq!(feed(&mut loops, WINDOW, sample(2, 0.9, 0.0, 0.0, 140)), None);
            assert_eq!(loops.active(), 2);
        }
    }

    #[test]
    fn load_that_is_never_steady_is_judged_after_a_while() {
        let mut loops = ActiveLoops::from(1, 2);
        assert!(feed(&mut loops, WINDOW, busy(100)).is_some());
        let mut swings = (0..).map(|number| sample(2, 0.95, 0.0, 0.0, [40, 100][number % 2]));
        let mut next = || loops.on_interval(&swings.next().expect("no end"));
        let last = SETTLES as usize + WINDOW + PATIENCE;
        for interval in 1..last {
            assert_eq!(next(), None, "{interval}");
        }
        assert_eq!(next(), Some(Change { to: 1, reason: Reason::Undone }));
    }

    #[test]
    fn load_that_ends_during_a_trial_is_no_verdict() {
        let mut loops = ActiveLoops::from(1, 2);
        assert!(feed(&mut loops, WINDOW, busy(100)).is_some());
        let idle = sample(2, 0.0, 0.0, 2.0, 0);
        let parked = feed(&mut loops, intervals(FITS_FOR) + 10, idle);
        assert_eq!(parked, Some(Change { to: 1, reason: Reason::Fits }));
        assert_eq!(feed(&mut loops, 10, sample(1, 0.0, 0.0, 2.0, 0)), None);
        assert!(feed(&mut loops, 5, busy(100)).is_some(), "and nothing keeps it from the next");
    }
}
