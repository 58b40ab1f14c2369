//! What the components of a topology have done: counters, times and latencies, which are added up over tasks, workers and restarts.
//!
//! A worker makes a [`Status`] each second. It goes to the supervisor as JSON, which adds those of all workers up, and from there to metrics and replies.

use serde::{Deserialize, Serialize};

mod times;

pub use times::{Latencies, Shares, TimeSpent, Times};

/// How a worker is. Counters are those since its start.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct Status {
    /// Nothing is under way.
    pub is_idle: bool,
    /// Why nothing can go on, for some seconds now.
    #[serde(default)]
    pub blocked: Option<String>,
    /// In the order of the definition.
    pub components: Vec<ComponentStatus>,
}

/// What a component has done, all its tasks together.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct ComponentStatus {
    /// Its id.
    pub id: String,
    /// Whether it is a spout.
    pub is_spout: bool,
    /// How many tasks it has.
    pub tasks: u64,
    /// Tuples that it emitted, further attempts included.
    pub emitted: u64,
    /// Tuples that went to tasks of its readers.
    pub transferred: u64,
    /// Tuples that a bolt executed.
    pub executed: u64,
    /// Tuples that were acknowledged.
    pub acked: u64,
    /// Tuples that failed, and of a spout's, were given up.
    pub failed: u64,
    /// Tuples that are not finished.
    pub pending: u64,
    /// Bytes in its queues.
    pub queued_bytes: u64,
    /// Calls that failed.
    pub faults: u64,
    /// How often it was made anew.
    pub restarts: u64,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// How long ago that was, in milliseconds.
    #[serde(default)]
    pub last_error_age_ms: Option<u64>,
    /// What its tasks have reported of themselves.
    #[serde(default)]
    pub figures: Vec<FigureStatus>,
    /// What its time went to.
    pub time: TimeSpent,
    /// The same of the last seconds.
    pub shares: Shares,
    /// How long things took.
    pub latencies: Latencies,
    /// Of a spout that can tell: the age of the oldest that its source has and that was not emitted; 0 if there is nothing.
    pub lag_ms: Option<u64>,
    /// Who reads what it emits.
    #[serde(default)]
    pub edges: Vec<EdgeStatus>,
    /// What it emits on, and how many tuples.
    #[serde(default)]
    pub streams: Vec<(String, u64)>,
}

/// What a component has reported of itself under a name.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
pub struct FigureStatus {
    /// The name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// All together.
    pub sum: f64,
    /// The last time.
    pub last: f64,
}

/// A stream of a component and one of its readers.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct EdgeStatus {
    /// The stream.
    pub stream: String,
    /// The reader.
    pub to: String,
    /// Tuples that went to its tasks.
    pub transferred: u64,
    /// Bytes that wait there from this component, of all its streams.
    pub queued_bytes: u64,
    /// Tuples of it that the reader executed.
    #[serde(default)]
    pub executed: u64,
    /// Tuples of it that the reader acknowledged.
    #[serde(default)]
    pub acked: u64,
    /// Tuples of it that failed there.
    #[serde(default)]
    pub failed: u64,
    /// How long its tuples took there. A worker tells those of the first 1,000 edges of a topology.
    #[serde(default, skip_serializing_if = "Latencies::is_empty")]
    pub latencies: Latencies,
}

impl Status {
    /// Adds what another worker has done. A share is the average over tasks, a lag the longest.
    pub fn add(&mut self, other: &Self) {
        self.is_idle &= other.is_idle;
        self.blocked = self.blocked.take().or_else(|| other.blocked.clone());
        add_each(&mut self.components, &other.components, |one, other| one.id == other.id, add_component);
    }

    /// What counts on of a worker that has ended: what it has done, and nothing that it had.
    #[must_use]
    pub fn without_current(mut self) -> Self {
        self.blocked = None;
        for component in &mut self.components {
            (component.tasks, component.pending, component.queued_bytes) = (0, 0, 0);
            (component.shares, component.lag_ms) = (Shares::default(), None);
            component.edges.iter_mut().for_each(|edge| edge.queued_bytes = 0);
        }
        self
    }
}

fn add_component(all: &mut ComponentStatus, one: &ComponentStatus) {
    all.shares = all.shares.averaged(all.tasks, one.shares, one.tasks);
    all.lag_ms = all.lag_ms.max(one.lag_ms);
    all.time.add(&one.time);
    all.latencies.add(&one.latencies);
    let pairs = [
        (&mut all.tasks, one.tasks),
        (&mut all.emitted, one.emitted),
        (&mut all.transferred, one.transferred),
        (&mut all.executed, one.executed),
        (&mut all.acked, one.acked),
        (&mut all.failed, one.failed),
        (&mut all.pending, one.pending),
        (&mut all.queued_bytes, one.queued_bytes),
        (&mut all.faults, one.faults),
        (&mut all.restarts, one.restarts),
    ];
    pairs.into_iter().for_each(|(all, one)| *all += one);
    if one.last_error.is_some() && (all.last_error.is_none() || one.last_error_age_ms < all.last_error_age_ms)
    {
        all.last_error.clone_from(&one.last_error);
        all.last_error_age_ms = one.last_error_age_ms;
    }
    add_each(
        &mut all.figures,
        &one.figures,
        |one, other| one.name == other.name,
        |all, one| {
            (all.count, all.sum, all.last) = (all.count + one.count, all.sum + one.sum, one.last);
        },
    );
    add_each(&mut all.streams, &one.streams, |one, other| one.0 == other.0, |all, one| all.1 += one.1);
    let is_same = |one: &EdgeStatus, other: &EdgeStatus| one.stream == other.stream && one.to == other.to;
    add_each(&mut all.edges, &one.edges, is_same, add_edge);
}

/// Adds what tasks in another worker have sent over an edge, and what those have done that read it.
fn add_edge(all: &mut EdgeStatus, one: &EdgeStatus) {
    all.transferred += one.transferred;
    all.queued_bytes += one.queued_bytes;
    all.executed += one.executed;
    all.acked += one.acked;
    all.failed += one.failed;
    all.latencies.add(&one.latencies);
}

/// Adds each of `others` to the one that is the same part. Workers of one definition have the same order, so mostly that is at the same place.
fn add_each<T: Clone>(
    all: &mut Vec<T>,
    others: &[T],
    is_same: impl Fn(&T, &T) -> bool,
    add: impl Fn(&mut T, &T),
) {
    for (at, other) in others.iter().enumerate() {
        let is_at_the_same_place = all.get(at).is_some_and(|it| is_same(it, other));
        let found =
            if is_at_the_same_place { Some(at) } else { all.iter().position(|it| is_same(it, other)) };
        match found {
            Some(place) => add(&mut all[place], other),
            None => all.push(other.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(executed: u64, execute_us: u64) -> Status {
        let (stream, to) = ("default".to_owned(), "next".to_owned());
        let sum_ns = executed * execute_us * 1_000;
        let execute = Times { count: executed, sum_ns, buckets: vec![executed] };
        let edge = EdgeStatus {
            stream,
            to,
            transferred: executed,
            queued_bytes: 7,
            executed: 2 * executed,
            acked: executed + 1,
            failed: executed - 1,
            latencies: Latencies { queue: execute.clone(), ..Latencies::default() },
        };
        let shares = Shares { busy_permille: 10 * execute_us, ..Shares::default() };
        let component = ComponentStatus {
            id: "it".to_owned(),
            tasks: 2,
            executed,
            shares,
            latencies: Latencies { execute, ..Latencies::default() },
            lag_ms: Some(execute_us),
            pending: 5,
            edges: vec![edge],
            streams: vec![("default".to_owned(), executed)],
            ..ComponentStatus::default()
        };
        Status { is_idle: true, components: vec![component], ..Status::default() }
    }

    #[test]
    fn counters_are_added_and_latencies_are_averages() {
        let mut all = Status::default();
        all.add(&status(30, 10));
        all.add(&status(10, 50));
        let it = &all.components[0];
        assert_eq!((it.tasks, it.executed, it.latencies.execute.mean_us()), (4, 40, 20));
        let edge = &it.edges[0];
        assert_eq!((edge.transferred, edge.queued_bytes, edge.latencies.queue.mean_us()), (40, 14, 20));
        assert_eq!((edge.executed, edge.acked, edge.failed), (80, 42, 38));
        assert_eq!((it.shares.busy_permille, it.lag_ms), (300, Some(50)));
        assert_eq!(it.streams, [("default".to_owned(), 40)]);
    }

    #[test]
    fn worker_that_has_ended_has_done_what_it_did_and_has_nothing() {
        let mut all = status(30, 90).without_current();
        all.add(&status(10, 10));
        let it = &all.components[0];
        let edge = &it.edges[0];
        assert_eq!((it.tasks, it.executed, it.pending, edge.queued_bytes, edge.failed), (2, 40, 5, 7, 38));
        assert_eq!((it.shares.busy_permille, it.lag_ms), (100, Some(10)));
    }
}
