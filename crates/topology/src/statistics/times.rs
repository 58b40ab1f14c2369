//! Figures of components that can be added up: what their time went to, and how long things took.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What the time of a component's tasks went to since the start, in microseconds.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct TimeSpent {
    /// It was called, or took no tuple though some waited.
    pub busy_us: u64,
    /// It had something to do, and no room downstream, or too many unfinished tuples.
    pub back_pressured_us: u64,
    /// There was nothing to do.
    pub idle_us: u64,
    /// It had something to do, and its thread was at another task.
    pub runnable_us: u64,
}

/// Shares of the time of a component's tasks in the last seconds, in thousandths. What is left of 1000 they waited for their threads.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Shares {
    /// Of [`TimeSpent::busy_us`].
    pub busy_permille: u64,
    /// Of [`TimeSpent::back_pressured_us`].
    pub back_pressured_permille: u64,
    /// Of [`TimeSpent::idle_us`].
    pub idle_permille: u64,
}

/// Latencies of a component, or of its tuples of one edge. Executions and waits in queues are sampled.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Latencies {
    /// Of a call with a tuple, or of one that asks a spout.
    pub execute: Times,
    /// From the execution of a tuple to its acknowledgement.
    pub process: Times,
    /// In the queues of a bolt.
    pub queue: Times,
    /// From the emission of a spout's tuple to its acknowledgement.
    pub complete: Times,
}

/// How long something took, over all times since the start.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Times {
    /// How many were measured.
    pub count: u64,
    /// All together, in nanoseconds.
    pub sum_ns: u64,
    /// How many took at most so long as each of [`Times::BOUNDS_US`], and more than the one before; then those beyond all. The last that are 0 may be left out.
    pub buckets: Vec<u64>,
}

impl TimeSpent {
    /// Adds what other tasks have spent.
    pub fn add(&mut self, other: &Self) {
        self.busy_us += other.busy_us;
        self.back_pressured_us += other.back_pressured_us;
        self.idle_us += other.idle_us;
        self.runnable_us += other.runnable_us;
    }

    /// The shares of what was spent since `former`.
    #[must_use]
    pub fn shares_since(&self, former: &Self) -> Shares {
        let busy = self.busy_us.saturating_sub(former.busy_us);
        let back_pressured = self.back_pressured_us.saturating_sub(former.back_pressured_us);
        let idle = self.idle_us.saturating_sub(former.idle_us);
        let runnable = self.runnable_us.saturating_sub(former.runnable_us);
        let all = busy + back_pressured + idle + runnable;
        let permille = |part: u64| (part * 1_000).checked_div(all).unwrap_or(0);
        Shares {
            busy_permille: permille(busy),
            back_pressured_permille: permille(back_pressured),
            idle_permille: permille(idle),
        }
    }
}

impl Shares {
    /// The shares of `ones` tasks that have these, and of `others` that have those of `other`.
    #[must_use]
    pub fn averaged(self, ones: u64, other: Self, others: u64) -> Self {
        let mean =
            |one: u64, other: u64| (one * ones + other * others).checked_div(ones + others).unwrap_or(0);
        Self {
            busy_permille: mean(self.busy_permille, other.busy_permille),
            back_pressured_permille: mean(self.back_pressured_permille, other.back_pressured_permille),
            idle_permille: mean(self.idle_permille, other.idle_permille),
        }
    }
}

impl Latencies {
    /// Adds those of other tasks.
    pub fn add(&mut self, other: &Self) {
        self.execute.add(&other.execute);
        self.process.add(&other.process);
        self.queue.add(&other.queue);
        self.complete.add(&other.complete);
    }

    /// Whether nothing was measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [&self.execute, &self.process, &self.queue, &self.complete].iter().all(|times| times.count == 0)
    }
}

impl Times {
    /// Bounds of the buckets, in microseconds.
    pub const BOUNDS_US: [u64; 25] = bounds_us();

    /// Adds `count` measurements of `latency`.
    pub fn record(&mut self, latency: Duration, count: u64) {
        let place = Self::BOUNDS_US.partition_point(|bound| Duration::from_micros(*bound) < latency);
        if self.buckets.len() <= place {
            self.buckets.resize(place + 1, 0);
        }
        self.buckets[place] += count;
        self.count += count;
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns = self.sum_ns.saturating_add(nanos.saturating_mul(count));
    }

    /// Adds others.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.buckets.resize(self.buckets.len().max(other.buckets.len()), 0);
        self.buckets.iter_mut().zip(&other.buckets).for_each(|(all, one)| *all += one);
    }

    /// The average, in microseconds.
    #[must_use]
    pub fn mean_us(&self) -> u64 {
        (self.sum_ns / 1_000).checked_div(self.count).unwrap_or(0)
    }

    /// A bound that all but one in a hundred kept, in microseconds: that of a bucket.
    #[must_use]
    pub fn p99_us(&self) -> u64 {
        let most = self.count - self.count / 100;
        let place = (0..Self::BOUNDS_US.len()).find(|place| self.at_most(*place) >= most);
        Self::BOUNDS_US[place.unwrap_or(Self::BOUNDS_US.len() - 1)] * u64::from(self.count > 0)
    }

    /// How many took at most as long as the bound at `place`.
    #[must_use]
    pub fn at_most(&self, place: usize) -> u64 {
        self.buckets.iter().take(place + 1).sum()
    }
}

/// Three for each power of ten, from 1 us to 100 s.
const fn bounds_us() -> [u64; 25] {
    let (mut bounds, mut at) = ([0; 25], 0);
    while at < bounds.len() {
        bounds[at] = [1, 2, 5][at % 3] * 10_u64.pow(at as u32 / 3);
        at += 1;
    }
    bounds
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_of_the_time_since_then() {
        let former = TimeSpent { busy_us: 10, back_pressured_us: 20, idle_us: 30, runnable_us: 40 };
        let spent = TimeSpent { busy_us: 35, back_pressured_us: 30, idle_us: 90, runnable_us: 45 };
        let shares = Shares { busy_permille: 250, back_pressured_permille: 100, idle_permille: 600 };
        assert_eq!(spent.shares_since(&former), shares);
        assert_eq!(spent.shares_since(&spent), Shares::default(), "no time has passed");
    }

    #[test]
    fn times_are_added_up_by_buckets() {
        let mut all = Times { count: 99, sum_ns: 99_000, buckets: vec![99] };
        assert_eq!((all.mean_us(), all.p99_us()), (1, 1));
        all.add(&Times { count: 2, sum_ns: 2_000_000, buckets: vec![0, 0, 0, 2] });
        assert_eq!((all.count, all.mean_us(), all.p99_us()), (101, 20, 10));
        assert_eq!((all.at_most(2), all.at_most(24)), (99, 101));
        assert_eq!((Times::default().mean_us(), Times::default().p99_us()), (0, 0));
    }
}
