//! Text with fields of a tuple in it: `order:{id}`. `{{` and `}}` are braces.

use topology::component::{Fault, Tuple};

use crate::arguments::CommandError;
use crate::convert::append_field;

/// A text that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Field(String),
}

impl Template {
    /// Reads `text`.
    ///
    /// # Errors
    /// A brace has no other one, or there is no name between them.
    pub(crate) fn read(text: &str) -> Result<Self, CommandError> {
        let (mut parts, mut plain, mut rest) = (Vec::new(), String::new(), text);
        while let Some(place) = rest.find(['{', '}']) {
            let (before, brace) = rest.split_at(place);
            plain.push_str(before);
            if brace.starts_with("{{") || brace.starts_with("}}") {
                plain.push_str(&brace[..1]);
                rest = &brace[2..];
                continue;
            }
            let name = brace.strip_prefix('{').and_then(|rest| rest.split_once('}'));
            let Some((name, after)) = name.filter(|(name, _)| !name.is_empty() && !name.contains('{')) else {
                return Err(format!("`{text}` has a brace alone: write {{name}}, or {{{{ for a brace").into());
            };
            if !plain.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut plain)));
            }
            parts.push(Part::Field(name.to_owned()));
            rest = after;
        }
        plain.push_str(rest);
        if !plain.is_empty() {
            parts.push(Part::Text(plain));
        }
        Ok(Self(parts))
    }

    /// The fields that it names.
    pub(crate) fn fields(&self) -> impl Iterator<Item = &String> {
        self.0.iter().filter_map(|part| match part {
            Part::Field(name) => Some(name),
            Part::Text(_) => None,
        })
    }

    /// The text with the values of `tuple`.
    ///
    /// # Errors
    /// As [`Template::append`].
    pub(crate) fn filled(&self, tuple: &Tuple<'_>) -> Result<Vec<u8>, Fault> {
        let mut out = Vec::new();
        self.append(tuple, &mut out)?;
        Ok(out)
    }

    /// Appends it with the values of `tuple`.
    ///
    /// # Errors
    /// A value is a list, or the tuple has no such field: it never will.
    pub(crate) fn append(&self, tuple: &Tuple<'_>, out: &mut Vec<u8>) -> Result<(), Fault> {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Field(name) => append_field(tuple, name, out)?,
            }
        }
        Ok(())
    }

    /// The same, with what `encode` makes of each value.
    ///
    /// # Errors
    /// As [`Template::append`].
    pub(crate) fn append_with(
        &self,
        tuple: &Tuple<'_>,
        out: &mut Vec<u8>,
        encode: impl Fn(&[u8]) -> Vec<u8>,
    ) -> Result<(), Fault> {
        for part in &self.0 {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Field(name) => {
                    let mut value = Vec::new();
                    append_field(tuple, name, &mut value)?;
                    out.append(&mut encode(&value));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tuple;
    use topology::value::Value;

    fn filled(text: &str) -> String {
        let values = [Value::from("é"), Value::from(-7), Value::from(1.5), Value::Null, Value::from(true)];
        let mut out = Vec::new();
        let template = Template::read(text).expect("it is right");
        tuple(&["word", "n", "f", "nothing", "is"], &values, |tuple| template.append(tuple, &mut out))
            .expect("it has all");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn fields_are_put_in_as_text() {
        assert_eq!(filled("w:{word}:{n}{f}[{nothing}]{is}"), "w:é:-71.5[]1");
        assert_eq!(filled("{{{word}}} {{}}"), "{é} {}");
        assert_eq!(filled("plain"), "plain");
    }

    #[test]
    fn brace_alone_is_refused_and_so_is_a_list() {
        for text in ["a{b", "a}b", "{}", "{a{b}}"] {
            assert!(
                Template::read(text).expect_err("refused").to_string().contains("a brace alone"),
                "{text}"
            );
        }
        let template = Template::read("{l}").expect("it is right");
        let list = [Value::List(Vec::new())];
        let fault = tuple(&["l"], &list, |tuple| template.append(tuple, &mut Vec::new()));
        assert_eq!(fault.expect_err("refused").error(), "field `l` is a list: it has no text");
    }
}
