//! What a phase came to: counts, latencies, a time series, and what failed. Mergeable, also across processes.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::tally::{Tally, new_histogram};

/// What a phase came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// In the order of the phase.
    pub groups: Vec<GroupOutcome>,
    /// From the start to the last reply.
    pub took: Duration,
}

impl Outcome {
    /// All groups as one.
    #[must_use]
    pub fn total(&self) -> GroupOutcome {
        let mut total = GroupOutcome::default();
        self.groups.iter().for_each(|group| total.add(group));
        total
    }

    /// Requests answered a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        per_second(self.total().tally.answered, self.took)
    }

    /// Adds what another process did of the same phase.
    pub fn add(&mut self, other: &Self) {
        self.groups.resize_with(self.groups.len().max(other.groups.len()), GroupOutcome::default);
        for (mine, others) in self.groups.iter_mut().zip(&other.groups) {
            mine.add(others);
        }
        self.took = self.took.max(other.took);
    }
}

/// `count` in `took`, a second.
#[must_use]
pub(crate) fn per_second(count: u64, took: Duration) -> f64 {
    count as f64 / took.as_secs_f64().max(1e-9)
}

/// What one group came to.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GroupOutcome {
    /// Counts.
    pub tally: Tally,
    /// The time series, an interval a row.
    pub rows: Vec<Row>,
}

impl GroupOutcome {
    /// Latencies of the whole phase, in nanoseconds.
    #[must_use]
    pub fn histogram(&self) -> Histogram<u64> {
        let mut all = new_histogram();
        self.rows.iter().for_each(|row| row.latencies.add_to(&mut all));
        all
    }

    /// Adds what another group, or the same one in another process, did.
    pub fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        for (index, row) in other.rows.iter().enumerate() {
            match self.rows.get_mut(index) {
                Some(mine) => mine.add(row),
                None => self.rows.push(row.clone()),
            }
        }
    }
}

/// One interval.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Row {
    /// When it ended, after the start of the phase.
    pub at: Duration,
    /// How long it was: the last one is shorter.
    pub length: Duration,
    /// Requests answered.
    pub answered: u64,
    /// Failures of any kind.
    pub failed: u64,
    /// In nanoseconds.
    pub latencies: Sparse,
}

impl Row {
    /// Requests answered a second.
    #[must_use]
    pub fn per_second(&self) -> f64 {
        per_second(self.answered, self.length)
    }

    fn add(&mut self, other: &Self) {
        self.at = self.at.max(other.at);
        self.length = self.length.max(other.length);
        self.answered += other.answered;
        self.failed += other.failed;
        self.latencies.merge(&other.latencies);
    }
}

/// The values of a histogram that occurred, with their counts, in order.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sparse(Vec<(u64, u64)>);

impl Sparse {
    /// What `histogram` has recorded.
    #[must_use]
    pub fn of(histogram: &Histogram<u64>) -> Self {
        Self(histogram.iter_recorded().map(|at| (at.value_iterated_to(), at.count_at_value())).collect())
    }

    /// Adds these values to `histogram`.
    pub fn add_to(&self, histogram: &mut Histogram<u64>) {
        self.0.iter().for_each(|(value, count)| histogram.saturating_record_n(*value, *count));
    }

    /// Adds the values of `other`, of a histogram with the same bounds.
    pub fn merge(&mut self, other: &Self) {
        let mut both = Vec::with_capacity(self.0.len().max(other.0.len()));
        let (mut ours, mut theirs) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let Some(next) = match (ours.peek(), theirs.peek()) {
            (Some(our), Some(their)) if our.0 == their.0 => {
                let value = our.0;
                Some((value, ours.next().map_or(0, |one| one.1) + theirs.next().map_or(0, |one| one.1)))
            }
            (Some(our), Some(their)) if our.0 > their.0 => theirs.next().copied(),
            (None, _) => theirs.next().copied(),
            _ => ours.next().copied(),
        } {
            both.push(next);
        }
        self.0 = both;
    }

    /// The value at or below which a share of `quantile` lies; 0 of nothing.
    #[must_use]
    pub fn quantile(&self, quantile: f64) -> u64 {
        let count: u64 = self.0.iter().map(|(_, count)| count).sum();
        let mut left = ((count as f64 * quantile).ceil() as u64).max(1);
        for (value, count) in &self.0 {
            if *count >= left {
                return *value;
            }
            left -= count;
        }
        self.0.last().map_or(0, |(value, _)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(values: &[u64]) -> Row {
        let mut histogram = new_histogram();
        values.iter().for_each(|value| histogram.saturating_record(*value));
        let length = Duration::from_secs(1);
        Row {
            at: length,
            length,
            answered: values.len() as u64,
            failed: 0,
            latencies: Sparse::of(&histogram),
        }
    }

    #[test]
    fn quantiles_of_sparse_values_are_those_of_the_histogram() {
        let values: Vec<u64> = (1..=1_000).map(|number| number * 1_000).collect();
        let sparse = row(&values).latencies;
        for (quantile, least) in [(0.5, 500_000), (0.99, 990_000), (1.0, 1_000_000), (0.0, 1_000)] {
            let value = sparse.quantile(quantile);
            assert!(value >= least && value < least + least / 500 + 1_000, "{quantile}: {value}");
        }
        assert_eq!(Sparse::default().quantile(0.5), 0);
    }

    #[test]
    fn merged_values_are_those_of_both_in_order() {
        let mut both = row(&[10, 20, 20, 400]).latencies;
        both.merge(&row(&[5, 20, 900]).latencies);
        assert_eq!(both, row(&[10, 20, 20, 400, 5, 20, 900]).latencies);
        both.merge(&Sparse::default());
        assert_eq!(both.quantile(1.0), 900);
    }

    #[test]
    fn two_processes_merge_row_by_row() {
        let tally = Tally { answered: 2, ..Tally::default() };
        let one = GroupOutcome { tally, rows: vec![row(&[10, 20])] };
        let mut both = one.clone();
        both.add(&GroupOutcome { tally: one.tally, rows: vec![row(&[30]), row(&[40])] });
        assert_eq!(both.tally.answered, 4);
        assert_eq!((both.rows.len(), both.rows[0].answered), (2, 3));
        assert_eq!(both.histogram().max(), 40);
    }
}
