//! A figure: what was measured beside what, how often, what was wanted, and how to repeat it.
//!
//! Two series are compared run by run: the ratio of each pair, then the median of the ratios. A and B alternate, so a
//! pair was measured within seconds and a slow minute of the machine hits both. Spread is the least and the
//! greatest ratio.

use serde::{Deserialize, Serialize};

/// What was measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Figure {
    /// Short and stable: `group/what`; a new measurement replaces the one with the same id.
    pub id: String,
    /// A line for the table, without its peer.
    pub title: String,
    /// With whom it compares what other figures of the same title compare with others: they are a group of a plot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer: Option<String>,
    /// What is wanted; none when the figure is only reported.
    pub target: Option<Target>,
    /// Unit of the series.
    pub unit: String,
    /// What is judged.
    pub a: Series,
    /// What it is compared with; none when `a` is judged by itself.
    pub b: Option<Series>,
    /// How to repeat it by hand.
    pub commands: Vec<String>,
    /// What a reader must know to judge it.
    pub note: String,
    /// Where it was measured, a sentence; empty when that is the machine of the results.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
}

/// One value a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Series {
    /// Of which server or setting.
    pub label: String,
    /// In the order of the runs.
    pub values: Vec<f64>,
}

/// A bound on the measured value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Target {
    /// This or more.
    AtLeast(f64),
    /// This or less.
    AtMost(f64),
}

/// How a figure stands to its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Within the bound.
    Met,
    /// Outside.
    Missed,
    /// There is no bound.
    Reported,
}

impl Figure {
    /// A figure without commands, note and machine.
    #[must_use]
    pub fn new(
        id: &str,
        title: &str,
        target: Option<Target>,
        unit: &str,
        a: Series,
        b: Option<Series>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            title: title.to_owned(),
            peer: None,
            target,
            unit: unit.to_owned(),
            a,
            b,
            commands: Vec::new(),
            note: String::new(),
            machine: String::new(),
        }
    }

    /// Adds the commands that repeat it.
    #[must_use]
    pub fn by<S: Into<String>>(mut self, commands: impl IntoIterator<Item = S>) -> Self {
        self.commands.extend(commands.into_iter().map(Into::into));
        self
    }

    /// Adds what a reader must know.
    #[must_use]
    pub fn note(mut self, note: &str) -> Self {
        note.clone_into(&mut self.note);
        self
    }

    /// Its title, and its peer.
    #[must_use]
    pub fn heading(&self) -> String {
        self.peer.as_ref().map_or_else(|| self.title.clone(), |peer| format!("{}, beside {peer}", self.title))
    }

    /// The value of each run: the ratio of `a` to `b`, or `a`.
    #[must_use]
    pub fn outcomes(&self) -> Vec<f64> {
        match &self.b {
            Some(b) => self.a.values.iter().zip(&b.values).map(|(a, b)| a / b).collect(),
            None => self.a.values.clone(),
        }
    }

    /// The median of the outcomes.
    #[must_use]
    pub fn measured(&self) -> f64 {
        median(&self.outcomes())
    }

    /// The least and the greatest outcome.
    #[must_use]
    pub fn spread(&self) -> (f64, f64) {
        let outcomes = self.outcomes();
        let least = outcomes.iter().copied().fold(f64::INFINITY, f64::min);
        (least, outcomes.iter().copied().fold(f64::NEG_INFINITY, f64::max))
    }

    /// How it stands to its target.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let is_met = match self.target {
            None => return Verdict::Reported,
            Some(Target::AtLeast(least)) => self.measured() >= least,
            Some(Target::AtMost(most)) => self.measured() <= most,
        };
        if is_met { Verdict::Met } else { Verdict::Missed }
    }
}

impl Series {
    /// A series of one value a run.
    #[must_use]
    pub fn new(label: &str, values: Vec<f64>) -> Self {
        Self { label: label.to_owned(), values }
    }

    /// The median of its values.
    #[must_use]
    pub fn median(&self) -> f64 {
        median(&self.values)
    }
}

/// The middle value, or the mean of the two in the middle; not a number when there is none.
#[must_use]
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        odd if odd % 2 == 1 => sorted[odd / 2],
        even => f64::midpoint(sorted[even / 2 - 1], sorted[even / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(a: &[f64], b: &[f64], target: Target) -> Figure {
        let b = Some(Series::new("b", b.to_vec()));
        Figure::new("x", "x", Some(target), "", Series::new("a", a.to_vec()), b)
    }

    #[test]
    fn ratio_is_the_median_over_pairs_so_a_slow_minute_hits_both() {
        let figure = pair(&[100.0, 10.0, 100.0], &[100.0, 10.0, 50.0], Target::AtLeast(1.0));
        assert_eq!(figure.measured(), 1.0);
        assert_eq!(figure.spread(), (1.0, 2.0));
        assert_eq!(figure.verdict(), Verdict::Met);
    }

    #[test]
    fn bound_holds_on_its_own_value_and_fails_beyond() {
        assert_eq!(pair(&[9.0], &[10.0], Target::AtLeast(0.9)).verdict(), Verdict::Met);
        assert_eq!(pair(&[8.9], &[10.0], Target::AtLeast(0.9)).verdict(), Verdict::Missed);
        assert_eq!(pair(&[11.0], &[10.0], Target::AtMost(1.05)).verdict(), Verdict::Missed);
    }

    #[test]
    fn median_of_an_even_count_lies_between_and_of_none_is_no_number() {
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), 2.5);
        assert!(median(&[]).is_nan());
        assert_eq!(pair(&[], &[], Target::AtLeast(0.0)).verdict(), Verdict::Missed);
    }
}
