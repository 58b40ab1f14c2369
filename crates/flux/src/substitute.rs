//! Replaces `${name}` and `${ENV-NAME}` in the text, before it is read as YAML, as Flux does; says where a place was before.
//!
//! A value may be any text of one line: a number, or a whole list. What has no value stays as it is: in a comment it means nothing,
//! and elsewhere it is refused with its place ([`open_names`]).

use crate::definition::Variables;
use crate::fault::Place;

/// Where places of the new text were in the old one.
#[derive(Debug, Default)]
pub(crate) struct Origin(Vec<Replaced>);

/// One that was replaced; columns are in characters, from 0.
#[derive(Debug)]
struct Replaced {
    name: String,
    line: usize,
    new_start: usize,
    new_end: usize,
    old_start: usize,
    old_end: usize,
}

/// The text with values for names. Lines end with `\n` alone: YAML has three ways to end one.
pub(crate) fn replace(text: &str, variables: &Variables<'_>) -> (String, Origin) {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let (mut out, mut origin) = (String::with_capacity(text.len()), Origin::default());
    for (number, line) in text.split('\n').enumerate() {
        if number > 0 {
            out.push('\n');
        }
        replace_line(line, number + 1, variables, &mut out, &mut origin);
        if out.len() > crate::tree::TEXT_BYTES_MAX {
            break; // it is refused for its size
        }
    }
    (out, origin)
}

fn replace_line(line: &str, number: usize, variables: &Variables<'_>, out: &mut String, origin: &mut Origin) {
    let (mut rest, mut old, mut new) = (line, 0, 0);
    while let Some((before, name, after)) = next_name(rest) {
        let whole = name.chars().count() + "${}".len();
        let value = value_of(name, variables).filter(|value| !value.contains(['\n', '\r']));
        let length = value.as_ref().map_or(whole, |value| value.chars().count());
        let gap = before.chars().count();
        out.push_str(before);
        match &value {
            Some(value) => out.push_str(value),
            None => out.extend(["${", name, "}"]),
        }
        (old, new) = (old + gap, new + gap);
        origin.0.push(Replaced {
            name: name.to_owned(),
            line: number,
            new_start: new,
            new_end: new + length,
            old_start: old,
            old_end: old + whole,
        });
        (old, new) = (old + whole, new + length);
        rest = after;
    }
    out.push_str(rest);
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
        let pairs = self.0.windows(2).filter(|two| two[0].line == two[1].line && two[0].name != two[1].name);
        pairs.map(|two| Place { line: two[1].line, column: two[1].new_start + 1 })
    }

    /// Where `place` was in the file.
    pub(crate) fn of(&self, place: Place) -> Place {
        let column = place.column.saturating_sub(1);
        let is_before = |one: &&Replaced| one.line == place.line && one.new_start <= column;
        let Some(last) = self.0.iter().rfind(is_before) else { return place };
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
