//! Replaces `${name}` and `${ENV-NAME}` in the text, before it is read as YAML, as Flux does; says where a place was before.
//!
//! A value may be any text of one line: a number, or a whole list. What has no value stays as it is: in a comment it means nothing,
//! and elsewhere it is refused with its place ([`open_names`]).

use std::collections::HashMap;

use crate::definition::Variables;
use crate::fault::{FAULTS_MAX, Place};
use crate::tree::TEXT_BYTES_MAX;

/// Where places of the new text were in the old one.
#[derive(Debug, Default)]
pub(crate) struct Origin {
    /// In the order of the text.
    replaced: Vec<Replaced>,
    /// Where the second of several different names in one line is: the first [`FAULTS_MAX`].
    second_names: Vec<Place>,
}

/// One that was replaced; columns are in characters, from 0.
#[derive(Debug)]
struct Replaced {
    line: usize,
    new_start: usize,
    new_end: usize,
    old_start: usize,
    old_end: usize,
}

/// The text with values for names. Lines end with `\n` alone: YAML has three ways to end one. A text that becomes larger than a file may be is cut behind
/// that size, and refused for it by whoever reads it.
pub(crate) fn replace(text: &str, variables: &Variables<'_>) -> (String, Origin) {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut replacing =
        Replacing { variables, values: HashMap::new(), out: String::new(), origin: Origin::default() };
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            replacing.out.push('\n');
        }
        replacing.line(line, number + 1);
        if replacing.is_full() {
            break;
        }
    }
    (replacing.out, replacing.origin)
}

/// The new text, as far as it is made.
struct Replacing<'t, 'v> {
    variables: &'v Variables<'v>,
    /// The value of each name that was met, and its characters: it is looked up once, however often the name is there.
    values: HashMap<&'t str, Option<(String, usize)>>,
    out: String,
    origin: Origin,
}

impl<'t> Replacing<'t, '_> {
    fn line(&mut self, line: &'t str, number: usize) {
        let (mut rest, mut old, mut new) = (line, 0, 0);
        let mut former = None;
        while let Some((before, name, after)) = next_name(rest) {
            let whole = name.chars().count() + "${}".len();
            let gap = before.chars().count();
            self.out.push_str(before);
            let value = self.values.entry(name).or_insert_with(|| {
                let value = value_of(name, self.variables).filter(|value| !value.contains(['\n', '\r']))?;
                let length = value.chars().count();
                Some((value, length))
            });
            let length = value.as_ref().map_or(whole, |(_, length)| *length);
            match value {
                Some((value, _)) => self.out.push_str(value),
                None => self.out.extend(["${", name, "}"]),
            }
            (old, new) = (old + gap, new + gap);
            if former.is_some_and(|former| former != name) && self.origin.second_names.len() < FAULTS_MAX {
                self.origin.second_names.push(Place { line: number, column: new + 1 });
            }
            former = Some(name);
            self.origin.replaced.push(Replaced {
                line: number,
                new_start: new,
                new_end: new + length,
                old_start: old,
                old_end: old + whole,
            });
            (old, new) = (old + whole, new + length);
            rest = after;
            if self.is_full() {
                return;
            }
        }
        self.out.push_str(rest);
    }

    fn is_full(&self) -> bool {
        self.out.len() > TEXT_BYTES_MAX
    }
}

/// Names that have no value in a scalar of the file.
pub(crate) fn open_names(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (_, name, after) = next_name(rest)?;
        rest = after;
        Some(name)
    })
}

/// What is before the next `${name}`, the name, and what is after it.
fn next_name(text: &str) -> Option<(&str, &str, &str)> {
    let start = text.find("${")?;
    let length = text[start + 2..].find('}')?;
    let (name, after) = text[start + 2..].split_at(length);
    Some((&text[..start], name, &after[1..]))
}

fn value_of(name: &str, variables: &Variables<'_>) -> Option<String> {
    match name.strip_prefix(ENVIRONMENT) {
        Some(name) => (variables.environment)(name),
        None => variables.properties.get(name).cloned(),
    }
}

impl Origin {
    /// Where the second of several different names in one line is.
    pub(crate) fn second_names(&self) -> impl Iterator<Item = Place> {
        self.second_names.iter().copied()
    }

    /// Where `place` was in the file.
    pub(crate) fn of(&self, place: Place) -> Place {
        let column = place.column.saturating_sub(1);
        let before = self.replaced.partition_point(|one| (one.line, one.new_start) <= (place.line, column));
        let last = self.replaced[..before].last().filter(|last| last.line == place.line);
        let Some(last) = last else { return place };
        let old = if column < last.new_end { last.old_start } else { last.old_end + column - last.new_end };
        Place { column: old + 1, ..place }
    }
}

/// What names of the environment begin with.
pub(crate) const ENVIRONMENT: &str = "ENV-";

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn replaced(text: &str) -> (String, Origin) {
        let properties = [("n", "12"), ("list", "[a, b]"), ("lines", "a\nb")];
        let properties = BTreeMap::from(properties.map(|(name, value)| (name.to_owned(), value.to_owned())));
        let environment = |name: &str| (name == "HOST").then(|| "h".to_owned());
        replace(text, &Variables { properties: &properties, environment: &environment })
    }

    #[test]
    fn names_get_their_values_and_others_stay() {
        let (text, _) = replaced("a: ${n}${n}\nb: ${list} # ${x}\nc: ${ENV-HOST}:${ENV-NO} ${ $\n${lines}");
        assert_eq!(text, "a: 1212\nb: [a, b] # ${x}\nc: h:${ENV-NO} ${ $\n${lines}");
        assert_eq!(open_names("${x} ${y").collect::<Vec<_>>(), ["x"]);
    }

    /// One line of 1 MB with 200,000 names had all of them replaced before its size was looked at: 200 GB.
    #[test]
    fn line_that_becomes_too_large_is_cut_behind_the_limit_and_each_value_is_looked_up_once() {
        let value = "x".repeat(TEXT_BYTES_MAX);
        let lookups = std::cell::Cell::new(0);
        let environment = |name: &str| {
            lookups.set(lookups.get() + 1);
            Some(if name == "LINES" { format!("{value}\n") } else { value.clone() })
        };
        let properties = BTreeMap::new();
        let variables = Variables { properties: &properties, environment: &environment };
        for (text, most) in [("${ENV-A}", 2 * TEXT_BYTES_MAX), ("${ENV-A}${ENV-B}", 2 * TEXT_BYTES_MAX)] {
            let (text, origin) = replace(&text.repeat(60_000), &variables);
            assert!(text.len() > TEXT_BYTES_MAX && text.len() <= most, "{}", text.len());
            assert!(origin.replaced.len() <= 2);
        }
        lookups.set(0);
        // A value of several lines is left out, and not searched for their ends again each time.
        let (text, _) = replace(&"${ENV-LINES}".repeat(60_000), &variables);
        assert_eq!((text.len(), lookups.get()), (12 * 60_000, 1));
    }

    #[test]
    fn places_are_those_of_the_file() {
        let (text, origin) = replaced("é: [${list}, ${n}, z]");
        assert_eq!(text, "é: [[a, b], 12, z]");
        let old = |column| origin.of(Place { line: 1, column }).column;
        // before; at the end of a value: where it was written; after it; after both
        assert_eq!((old(4), old(10), old(11), old(13), old(17)), (4, 5, 12, 14, 20));
        assert_eq!(origin.of(Place { line: 2, column: 9 }), Place { line: 2, column: 9 });
        let second: Vec<Place> = origin.second_names().map(|place| origin.of(place)).collect();
        assert_eq!(second, [Place { line: 1, column: 14 }]);
    }
}
