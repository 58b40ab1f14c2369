//! What runs came to, put together: sums, percentiles, and how far apart the runs lie.

use std::time::Duration;

use serde_json::{Map, Value, json};

use crate::drive::{Failures, Outcome, Recorder, Row, Sparse, Tally, per_second};

/// One run, or several put together.
#[derive(Clone, Debug, Default)]
pub(super) struct Measured {
    pub(super) tally: Tally,
    pub(super) took: Duration,
    /// Keys that were written and are not there, or not as they were written.
    pub(super) lost: u64,
    /// One after the other; `at` counts from the first one's start.
    pub(super) rows: Vec<Row>,
    /// In nanoseconds.
    pub(super) latencies: Sparse,
}

impl Measured {
    /// What `outcome` came to; `lost` are the keys that were not found, those found changed come on top.
    pub(super) fn of(outcome: &Outcome, lost: u64) -> Self {
        let total = outcome.total();
        let latencies = Sparse::of(&total.histogram());
        let lost = lost + total.tally.wrong;
        Self { tally: total.tally, took: outcome.took, lost, rows: total.rows, latencies }
    }

    /// What was recorded in `took`, without a time series.
    pub(super) fn by(recorder: Recorder, took: Duration, lost: u64) -> Self {
        let latencies = Sparse::of(&recorder.histogram);
        Self { tally: recorder.tally, took, lost, rows: Vec::new(), latencies }
    }

    /// Puts `later` behind.
    pub(super) fn add(&mut self, later: &Self) {
        self.tally.add(&later.tally);
        let start = self.took;
        self.rows.extend(later.rows.iter().map(|row| Row { at: start + row.at, ..row.clone() }));
        self.took += later.took;
        self.lost += later.lost;
        self.latencies.merge(&later.latencies);
    }

    /// Counts what failed beside the requests: connections that were not made.
    pub(super) fn add_failures(&mut self, failures: &Failures) {
        self.tally.failures.add(failures);
    }

    pub(super) fn errors(&self) -> u64 {
        self.tally.failures.count()
    }

    pub(super) fn is_valid(&self) -> bool {
        self.errors() == 0 && self.lost == 0 && self.tally.absent == 0 && self.tally.answered > 0
    }

    pub(super) fn per_second(&self) -> f64 {
        per_second(self.tally.answered, self.took)
    }

    /// A percentile, in microseconds.
    pub(super) fn us(&self, quantile: f64) -> f64 {
        rounded(self.latencies.quantile(quantile) as f64 / 1e3)
    }

    pub(super) fn latency_json(&self) -> Value {
        json!({ "p50": self.us(0.5), "p99": self.us(0.99), "p999": self.us(0.999), "max": self.us(1.0) })
    }

    /// What reports say of each of several runs.
    pub(super) fn json(&self) -> Map<String, Value> {
        object(json!({
            "operations_per_second": rounded(self.per_second()),
            "latency_us": self.latency_json(),
            "errors": self.errors(),
            "lost": self.lost,
            "valid": self.is_valid(),
        }))
    }

    pub(super) fn failures_json(&self) -> Value {
        serde_json::to_value(&self.tally.failures).unwrap_or_default()
    }
}

/// How far apart figures of equal runs lie.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) min: f64,
    pub(super) max: f64,
    pub(super) mean: f64,
}

impl Spread {
    /// Of `figures`; `None` of none.
    pub(super) fn of(figures: &[f64]) -> Option<Self> {
        let (first, rest) = figures.split_first()?;
        let (min, max) = rest.iter().fold((*first, *first), |(min, max), one| (min.min(*one), max.max(*one)));
        Some(Self { min, max, mean: figures.iter().sum::<f64>() / figures.len() as f64 })
    }

    /// Of the rates of those of `runs` that are valid.
    pub(super) fn of_rates<'a>(runs: impl IntoIterator<Item = &'a Measured>) -> Option<Self> {
        let valid = runs.into_iter().filter(|run| run.is_valid());
        Self::of(&valid.map(Measured::per_second).collect::<Vec<_>>())
    }

    /// From the slowest to the fastest, in percent of the mean.
    pub(super) fn percent(&self) -> f64 {
        (self.max - self.min) / self.mean.max(1e-9) * 100.0
    }

    pub(super) fn json(spread: Option<Self>) -> Value {
        let Some(spread) = spread else { return Value::Null };
        json!({
            "min": rounded(spread.min),
            "max": rounded(spread.max),
            "mean": rounded(spread.mean),
            "spread_percent": rounded(spread.percent()),
        })
    }
}

/// What `json!` made of braces.
pub(super) fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// To a thousandth.
pub(super) fn rounded_3(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// To a tenth.
pub(super) fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of Hazelcast's report: 412,654 to 527,906, average 470,510.
    #[test]
    fn spread_is_of_the_mean() {
        let spread = Spread::of(&[470_970.0, 412_654.0, 527_906.0]).expect("three");
        assert_eq!((spread.min, spread.max, spread.mean), (412_654.0, 527_906.0, 470_510.0));
        assert!((spread.percent() - 24.5).abs() < 0.01);
        assert_eq!(Spread::of(&[]), None);
    }

    #[test]
    fn runs_follow_each_other_in_time() {
        let second = Duration::from_secs(1);
        let row = Row { at: second, length: second, answered: 5, ..Row::default() };
        let one = Measured { rows: vec![row], took: second, ..Measured::default() };
        let mut both = one.clone();
        both.add(&one);
        assert_eq!(both.rows.iter().map(|row| row.at.as_secs()).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(both.took.as_secs(), 2);
    }
}
