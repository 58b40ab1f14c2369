//! Figures that a component reports of itself by name: how often, all together, and the last one.
//!
//! **Bounds.** 100 names of 128 bytes; what has no place is counted.

use std::collections::BTreeMap;

/// What was reported under one name.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figure {
    /// How often.
    pub count: u64,
    /// All together.
    pub sum: f64,
    /// The last time.
    pub last: f64,
}

/// What a component has reported.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    by_name: BTreeMap<String, Figure>,
    left_out: u64,
}

impl Figures {
    /// Reports `value` as `name`.
    pub fn report(&mut self, name: &str, value: f64) {
        let is_new = !self.by_name.contains_key(name);
        if name.len() > NAME_BYTES_MAX || (is_new && self.by_name.len() >= NAMES_MAX) {
            self.left_out += 1;
            return;
        }
        let figure = self.by_name.entry(name.to_owned()).or_default();
        *figure = Figure { count: figure.count + 1, sum: figure.sum + value, last: value };
    }

    /// All, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Figure)> {
        self.by_name.iter().map(|(name, figure)| (name.as_str(), *figure))
    }

    /// Adds what another task has reported.
    pub fn add(&mut self, other: &Self) {
        for (name, figure) in &other.by_name {
            let all = self.by_name.entry(name.clone()).or_default();
            *all = Figure { count: all.count + figure.count, sum: all.sum + figure.sum, last: figure.last };
        }
        self.left_out += other.left_out;
    }

    /// Reports that had no place: too many names, or a name that is too long.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty() && self.left_out == 0
    }
}

/// Names that a component may report.
const NAMES_MAX: usize = 100;
/// Of each of them.
const NAME_BYTES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_a_name_are_added_up_and_names_are_bounded() {
        let mut figures = Figures::default();
        figures.report("lines", 3.0);
        figures.report("lines", 2.0);
        assert_eq!(figures.iter().collect::<Vec<_>>(), [("lines", Figure { count: 2, sum: 5.0, last: 2.0 })]);
        (0..NAMES_MAX).for_each(|n| figures.report(&n.to_string(), 1.0));
        figures.report(&"x".repeat(NAME_BYTES_MAX + 1), 1.0);
        assert_eq!((figures.iter().count(), figures.left_out()), (NAMES_MAX, 2));
    }
}
