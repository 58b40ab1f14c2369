//! How long the phases of committed transactions took.

use clock::Nanos;

/// When a transaction came to what; zero: it did not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Marks {
    /// Its end was chosen.
    pub(crate) asked: Nanos,
    /// All voted, and the decision went to the log.
    pub(crate) voted: Nanos,
    /// The decision is durable.
    pub(crate) decided: Nanos,
    /// The outcome was told.
    pub(crate) finished: Nanos,
}

/// Times of the three phases.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Phases {
    /// From the wish to commit until all had voted.
    pub prepare: Times,
    /// From there until the decision was durable.
    pub decide: Times,
    /// From there until the branches had committed, or until the outcome was told without some of them.
    pub commit: Times,
}

/// How many, how long together, and how many of at most so long.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// How many.
    pub count: u64,
    /// Their sum, in nanoseconds.
    pub sum_ns: u64,
    /// How many took at most [`Times::bound_ns`] of this place, and more than that of the place before.
    pub buckets: [u64; BUCKETS],
}

impl Times {
    /// The longest time of a bucket, in nanoseconds; the last has none.
    #[must_use]
    pub fn bound_ns(bucket: usize) -> Option<u64> {
        (bucket + 1 < BUCKETS).then(|| FIRST_NS << bucket)
    }

    fn note(&mut self, ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        let at = (0..BUCKETS).find(|at| Self::bound_ns(*at).is_none_or(|bound| ns <= bound));
        self.buckets[at.expect("the last has no bound")] += 1;
    }

    fn add(&mut self, other: &Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.buckets.iter_mut().zip(other.buckets).for_each(|(to, of)| *to += of);
    }
}

impl Phases {
    /// Counts a transaction that committed in two phases; others have no decision.
    pub(crate) fn note(&mut self, marks: Marks) {
        if marks.decided.0 == 0 || marks.voted.0 == 0 {
            return;
        }
        let between = |from: Nanos, to: Nanos| to.0.saturating_sub(from.0);
        self.prepare.note(between(marks.asked, marks.voted));
        self.decide.note(between(marks.voted, marks.decided));
        self.commit.note(between(marks.decided, marks.finished));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.prepare.add(&other.prepare);
        self.decide.add(&other.decide);
        self.commit.add(&other.commit);
    }
}

/// 64 us to 8.4 s, doubled each time, and what took longer.
pub const BUCKETS: usize = 19;
const FIRST_NS: u64 = 64_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_phase_is_counted_where_it_belongs() {
        let mut phases = Phases::default();
        let marks = Marks {
            asked: Nanos(1_000),
            voted: Nanos(65_000),
            decided: Nanos(65_000 + 64_001),
            finished: Nanos(60_000_000_000),
        };
        phases.note(marks);
        phases.note(Marks { decided: Nanos(0), ..marks });
        let at = |times: &Times| times.buckets.iter().position(|count| *count == 1);
        assert_eq!(
            (at(&phases.prepare), at(&phases.decide), at(&phases.commit)),
            (Some(0), Some(1), Some(BUCKETS - 1))
        );
        assert_eq!((phases.prepare.count, phases.prepare.sum_ns), (1, 64_000));
        let mut sum = phases.clone();
        sum.add(&phases);
        assert_eq!((sum.decide.count, sum.decide.buckets[1]), (2, 2));
    }
}
