//! What the time of a task goes to: its component works, room is missing downstream, its thread has others to drive, or there is nothing to do.
//!
//! An executor reads the clock once a turn anyway, and accounts the time since the task's last change to the state that it was in. What a reader
//! is shown goes on from there to its own `now`, so a thread that waits in the kernel has nothing to write.

use std::time::Duration;

use clock::Nanos;

/// What a task is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its component is called, or takes no tuple now though some wait: what it does goes on elsewhere.
    Busy,
    /// It has something to do, and waits for credit downstream; a spout also for unfinished tuples (`max_spout_pending`, `spout_bytes_max`).
    BackPressured,
    /// Nothing is there to do.
    Idle,
    /// It has something to do, and its thread is at another task.
    Runnable,
}

/// The times of a task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Times {
    spent: [u64; STANDINGS],
    /// What it is at, and since when; `None`: it is not here.
    now: Option<(Standing, Nanos)>,
}

/// What the time of tasks went to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeSpent {
    /// Components were called, or took no tuple though some waited.
    pub busy: Duration,
    /// There was something to do, and no room downstream, or too much was unfinished.
    pub back_pressured: Duration,
    /// There was nothing to do.
    pub idle: Duration,
    /// There was something to do, and the thread was at another task.
    pub runnable: Duration,
}

impl Times {
    /// A task that has its first turn soon.
    pub(crate) fn new(now: Nanos) -> Self {
        Self { spent: [0; STANDINGS], now: Some((Standing::Runnable, now)) }
    }

    /// The task is at something from `now` on.
    pub(crate) fn enter(&mut self, now: Nanos, standing: Standing) {
        self.stop(now);
        self.now = Some((standing, now));
    }

    /// Something has come for the task.
    pub(crate) fn on_work(&mut self, now: Nanos) {
        if let Some((Standing::Idle, _)) = self.now {
            self.enter(now, Standing::Runnable);
        }
    }

    /// The task is not here any more.
    pub(crate) fn stop(&mut self, now: Nanos) {
        if let Some((standing, since)) = self.now.take() {
            self.spent[standing as usize] += now.0.saturating_sub(since.0);
        }
    }

    /// All until `now`, in nanoseconds. `turn`: a turn of it has begun then and is not over.
    pub(crate) fn until(mut self, now: Nanos, turn: Option<Nanos>) -> [u64; STANDINGS] {
        if let (Some(began), Some((_, since))) = (turn, self.now)
            && began > since
        {
            self.enter(began, Standing::Busy);
        }
        self.stop(now);
        self.spent
    }

    /// Adds what another one has spent.
    pub(crate) fn add(&mut self, other: &Self) {
        self.spent.iter_mut().zip(other.spent).for_each(|(all, one)| *all += one);
    }
}

impl TimeSpent {
    pub(crate) fn of(spent: [u64; STANDINGS]) -> Self {
        let of = |standing| Duration::from_nanos(spent[standing as usize]);
        Self {
            busy: of(Standing::Busy),
            back_pressured: of(Standing::BackPressured),
            idle: of(Standing::Idle),
            runnable: of(Standing::Runnable),
        }
    }
}

/// How many there are.
pub(crate) const STANDINGS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(busy: u64, back_pressured: u64, idle: u64, runnable: u64) -> TimeSpent {
        TimeSpent::of([busy, back_pressured, idle, runnable])
    }

    #[test]
    fn each_moment_is_of_one_kind() {
        let mut times = Times::new(Nanos(100));
        times.enter(Nanos(110), Standing::Busy);
        times.enter(Nanos(115), Standing::BackPressured);
        times.on_work(Nanos(120));
        times.enter(Nanos(130), Standing::Busy);
        times.enter(Nanos(131), Standing::Idle);
        times.on_work(Nanos(181));
        assert_eq!(TimeSpent::of(times.until(Nanos(200), None)), spent(6, 15, 50, 29));
        assert_eq!(TimeSpent::of(times.until(Nanos(200), Some(Nanos(190)))), spent(16, 15, 50, 19));
    }

    #[test]
    fn task_that_is_gone_spends_nothing() {
        let (mut times, mut former) = (Times::new(Nanos(0)), Times::default());
        times.stop(Nanos(7));
        former.add(&times);
        former.add(&times);
        assert_eq!(TimeSpent::of(former.until(Nanos(1_000), None)), spent(0, 0, 0, 14));
    }
}
