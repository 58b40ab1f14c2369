//! What the time of a task goes to: its component works, room is missing downstream, its thread has others to drive, or there is nothing to do.
//!
//! An executor reads the clock once a turn anyway, and accounts the time since the task's last change to the state that it was in. What a reader
//! is shown goes on from there to its own `now`, so a thread that waits in the kernel has nothing to write.

use clock::Nanos;
use topology::statistics::TimeSpent;

/// What a task is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Activity {
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
    spent: [u64; ACTIVITIES],
    /// What it is at, and since when; `None`: it is not here.
    now: Option<(Activity, Nanos)>,
}

impl Times {
    /// A task that has its first turn soon.
    pub(crate) fn new(now: Nanos) -> Self {
        Self { spent: [0; ACTIVITIES], now: Some((Activity::Runnable, now)) }
    }

    /// The task is at something from `now` on.
    pub(crate) fn enter(&mut self, now: Nanos, activity: Activity) {
        self.stop(now);
        self.now = Some((activity, now));
    }

    /// Something has come for the task.
    pub(crate) fn on_work(&mut self, now: Nanos) {
        if let Some((Activity::Idle, _)) = self.now {
            self.enter(now, Activity::Runnable);
        }
    }

    /// The task is not here any more.
    pub(crate) fn stop(&mut self, now: Nanos) {
        if let Some((activity, since)) = self.now.take() {
            self.spent[activity as usize] += now.0.saturating_sub(since.0);
        }
    }

    /// All until `now`, in nanoseconds. `turn`: a turn of it has begun then and is not over.
    pub(crate) fn until(mut self, now: Nanos, turn: Option<Nanos>) -> [u64; ACTIVITIES] {
        if let (Some(began), Some((_, since))) = (turn, self.now)
            && began > since
        {
            self.enter(began, Activity::Busy);
        }
        self.stop(now);
        self.spent
    }

    /// Adds what another one has spent.
    pub(crate) fn add(&mut self, other: &Self) {
        self.spent.iter_mut().zip(other.spent).for_each(|(all, one)| *all += one);
    }
}

/// As it is told: in microseconds.
pub(crate) fn time_spent(spent_ns: [u64; ACTIVITIES]) -> TimeSpent {
    let of = |activity| spent_ns[activity as usize] / 1_000;
    TimeSpent {
        busy_us: of(Activity::Busy),
        back_pressured_us: of(Activity::BackPressured),
        idle_us: of(Activity::Idle),
        runnable_us: of(Activity::Runnable),
    }
}

/// How many there are.
pub(crate) const ACTIVITIES: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_moment_is_of_one_kind() {
        let mut times = Times::new(Nanos(100));
        times.enter(Nanos(110), Activity::Busy);
        times.enter(Nanos(115), Activity::BackPressured);
        times.on_work(Nanos(120));
        times.enter(Nanos(130), Activity::Busy);
        times.enter(Nanos(131), Activity::Idle);
        times.on_work(Nanos(181));
        assert_eq!(times.until(Nanos(200), None), [6, 15, 50, 29]);
        assert_eq!(times.until(Nanos(200), Some(Nanos(190))), [16, 15, 50, 19]);
        let spent = TimeSpent { busy_us: 1, back_pressured_us: 2, idle_us: 3, runnable_us: 4 };
        assert_eq!(time_spent([1_000, 2_999, 3_000, 4_000]), spent);
    }

    #[test]
    fn task_that_is_gone_spends_nothing() {
        let (mut times, mut former) = (Times::new(Nanos(0)), Times::default());
        times.stop(Nanos(7));
        former.add(&times);
        former.add(&times);
        assert_eq!(former.until(Nanos(1_000), None), [0, 0, 0, 14]);
    }
}
