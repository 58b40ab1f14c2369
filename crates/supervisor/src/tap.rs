//! Looks of clients at the tuples that a component emits: what workers have told and nobody has taken yet.
//!
//! ```text
//!  client: take -> what is there ; when nothing is left: workers are asked for more -> they tell -> it is there
//! ```
//!
//! **Bounds.** A worker is asked again when it has told and all was taken: a look has at most what each worker tells at a time. A look that nobody has asked for
//! [`IDLE_MAX`] is gone.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use clock::Nanos;
use topology::Plan;
use topology::nearest::nearest;

use crate::messages::Order;

/// Which tuples are looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Look {
    /// The component that emits them.
    pub component: String,
    /// The stream; `None`: all.
    pub stream: Option<String>,
    /// One of so many, at least 1.
    pub every: u64,
}

/// What was seen since the last time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tapped {
    /// Names the look.
    pub cursor: u64,
    /// Tuples, a line of JSON each.
    pub tuples: Vec<String>,
    /// Tuples for which there was no room.
    pub skipped: u64,
}

/// Why nothing can be seen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TapError {
    /// There is no such topology.
    #[error("there is no such topology")]
    NoTopology,
    /// There is no such component or stream.
    #[error("{0}")]
    Unknown(String),
    /// There are too many looks.
    #[error("there are {LOOKS_MAX} taps, the most: each ends when nobody has asked for it for 10 s")]
    TooMany,
    /// It was not asked for, or there is another definition by now.
    #[error("the tap has ended: nobody has asked for it for 10 s, or the topology was replaced")]
    Ended,
}

/// The looks at a topology, by their cursors.
#[derive(Debug, Default)]
pub(crate) struct Looks(BTreeMap<u64, Seen>);

/// A look.
#[derive(Debug)]
struct Seen {
    look: Look,
    asked: Nanos,
    /// Workers that were asked and have not told.
    awaited: BTreeSet<u32>,
    tuples: VecDeque<String>,
    skipped: u64,
}

impl Looks {
    pub(crate) fn open(&mut self, now: Nanos, cursor: u64, look: Look) {
        let (awaited, tuples) = (BTreeSet::new(), VecDeque::new());
        self.0.insert(cursor, Seen { look, asked: now, awaited, tuples, skipped: 0 });
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Ends what nobody has asked for.
    pub(crate) fn expire(&mut self, now: Nanos) {
        self.0.retain(|_, seen| now.since(seen.asked) < IDLE_MAX);
    }

    /// Takes what was seen, at most `count` tuples; and whom of `workers` to ask what.
    pub(crate) fn take(
        &mut self,
        now: Nanos,
        cursor: u64,
        count: usize,
        workers: impl Iterator<Item = u32>,
    ) -> Option<(Tapped, Vec<(u32, Order)>)> {
        let seen = self.0.get_mut(&cursor)?;
        seen.asked = now;
        let taken = seen.tuples.drain(..count.min(seen.tuples.len())).collect();
        let tapped = Tapped { cursor, tuples: taken, skipped: std::mem::take(&mut seen.skipped) };
        let mut orders = Vec::new();
        if seen.tuples.is_empty() {
            let Look { component, stream, every } = seen.look.clone();
            let order = Order::Tap { cursor, component, stream, every };
            let asked = workers.filter(|worker| seen.awaited.insert(*worker));
            orders.extend(asked.map(|worker| (worker, order.clone())));
        }
        Some((tapped, orders))
    }

    /// A worker has told what it has seen.
    pub(crate) fn on_tapped(&mut self, worker: u32, cursor: u64, tuples: Vec<String>, skipped: u64) {
        if let Some(seen) = self.0.get_mut(&cursor).filter(|seen| seen.awaited.contains(&worker)) {
            seen.awaited.remove(&worker);
            seen.tuples.extend(tuples);
            seen.skipped += skipped;
        }
    }

    /// A worker has ended: it tells nothing any more.
    pub(crate) fn on_exit(&mut self, worker: u32) {
        self.0.values_mut().for_each(|seen| _ = seen.awaited.remove(&worker));
    }
}

impl Look {
    /// Whether `plan` has what is looked at.
    pub(crate) fn check(&self, plan: &Plan) -> Result<(), TapError> {
        let hint = |name: &str, known: Vec<&str>| {
            nearest(name, known).map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
        };
        let Self { component, stream, .. } = self;
        let Some(id) = plan.find(component) else {
            let known = plan.components().map(|(_, it)| it.id.as_str()).collect();
            let hint = hint(component, known);
            return Err(TapError::Unknown(format!("there is no component `{component}`{hint}")));
        };
        let streams = &plan.component(id).streams;
        match stream.as_deref().filter(|stream| plan.stream(id, stream).is_none()) {
            None => Ok(()),
            Some(stream) => {
                let hint = hint(stream, streams.iter().map(|it| it.id.as_str()).collect());
                Err(TapError::Unknown(format!("`{component}` declares no stream `{stream}`{hint}")))
            }
        }
    }
}

/// Most looks at all topologies.
pub(crate) const LOOKS_MAX: usize = 16;
/// A look that nobody has asked for so long ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    fn looks() -> Looks {
        let mut looks = Looks::default();
        looks.open(at(1), 7, Look { component: "it".to_owned(), stream: None, every: 1 });
        looks
    }

    fn tell(looks: &mut Looks, worker: u32, count: usize) {
        looks.on_tapped(worker, 7, vec!["{}".to_owned(); count], 1);
    }

    #[test]
    fn worker_is_asked_again_when_it_has_told_and_all_was_taken() {
        let mut looks = looks();
        let take = |looks: &mut Looks, count| {
            let (tapped, orders) = looks.take(at(2), 7, count, [0, 1].into_iter()).expect("it is open");
            (tapped.tuples.len(), tapped.skipped, orders.len())
        };
        assert_eq!(take(&mut looks, 9), (0, 0, 2));
        assert_eq!(take(&mut looks, 9), (0, 0, 0), "both were asked");
        tell(&mut looks, 0, 5);
        tell(&mut looks, 0, 5);
        assert_eq!(take(&mut looks, 3), (3, 1, 0), "what was not asked for is not kept, and two are left");
        assert_eq!(take(&mut looks, 3), (2, 0, 1));
        looks.on_exit(1);
        assert_eq!(take(&mut looks, 3), (0, 0, 1), "another one has its number by now");
    }

    #[test]
    fn look_that_nobody_has_asked_for_ends() {
        let mut looks = looks();
        looks.expire(at(10));
        assert!(looks.take(at(10), 7, 1, [0].into_iter()).is_some());
        looks.expire(at(20));
        assert!(looks.take(at(20), 7, 1, [0].into_iter()).is_none());
        tell(&mut looks, 0, 5);
        assert_eq!(looks.count(), 0);
    }
}
