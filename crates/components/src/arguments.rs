//! Arguments of a component: words and options, checked by a table.
//!
//! `--name value` and `--name=value` are the same; after `--` there are no options.

use std::collections::BTreeMap;
use std::fmt;

use topology::nearest::nearest;

/// What a component takes.
#[derive(Clone, Copy, Debug)]
pub struct Signature {
    /// Its words, in the form of a usage: `KEY`.
    pub words: &'static str,
    /// How many words it takes at least and at most.
    pub words_count: (usize, usize),
    /// Its options.
    pub options: &'static [Opt],
}

/// An option.
#[derive(Clone, Copy, Debug)]
pub struct Opt {
    /// With its dashes.
    pub name: &'static str,
    /// What its value is.
    pub value: Kind,
    /// What holds without it, as it would be written; empty: nothing.
    pub default: &'static str,
    /// What it does, with the unit.
    pub what: &'static str,
}

/// What the value of an option is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text but the empty one.
    Text,
    /// One of these words.
    Word(&'static [&'static str]),
    /// A whole number within these bounds.
    Number(u64, u64),
    /// Names, separated by commas.
    Names,
    /// Nothing: it is there or not.
    Flag,
}

/// Arguments that fit a signature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    words: Vec<String>,
    options: BTreeMap<&'static str, String>,
}

/// Why a command names no component that can run: the command, or what it names, is to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommandError(String);

impl fmt::Display for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for CommandError {}

impl<T: Into<String>> From<T> for CommandError {
    fn from(text: T) -> Self {
        Self(text.into())
    }
}

impl Arguments {
    /// Reads `given`.
    ///
    /// # Errors
    /// The first argument that does not fit.
    pub fn read(signature: &Signature, given: &[String]) -> Result<Self, CommandError> {
        let mut read = Self { words: Vec::new(), options: BTreeMap::new() };
        for option in signature.options.iter().filter(|option| !option.default.is_empty()) {
            read.options.insert(option.name, option.default.to_owned());
        }
        let mut rest = given.iter();
        let mut has_options = true;
        while let Some(argument) = rest.next() {
            if has_options && argument == "--" {
                has_options = false;
            } else if has_options && argument.starts_with("--") {
                let (name, value) = argument
                    .split_once('=')
                    .map_or((argument.as_str(), None), |(name, value)| (name, Some(value.to_owned())));
                let option = find(signature, name)?;
                let value = match value {
                    None if option.value == Kind::Flag => "yes".to_owned(),
                    None => rest.next().cloned().ok_or_else(|| format!("`{name}` has no value"))?,
                    Some(value) => value,
                };
                option.check(&value)?;
                read.options.insert(option.name, value);
            } else {
                read.words.push(argument.clone());
            }
        }
        let (least, most) = signature.words_count;
        if !(least..=most).contains(&read.words.len()) {
            let words = if signature.words.is_empty() { "no words" } else { signature.words };
            return Err(format!("it takes {words}, not {} words", read.words.len()).into());
        }
        Ok(read)
    }

    /// Its words that are no options.
    #[must_use]
    pub fn words(&self) -> &[String] {
        &self.words
    }

    /// The value of an option, if it was given or has a default.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// The value of an option that has no default.
    ///
    /// # Errors
    /// It was not given.
    pub(crate) fn needed(&self, name: &str) -> Result<String, CommandError> {
        self.text(name).map(str::to_owned).ok_or_else(|| format!("`{name}` is missing").into())
    }

    /// Whether a flag is there.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.options.contains_key(name)
    }

    /// The number of an option, if it was given or has a default.
    #[must_use]
    pub fn number(&self, name: &str) -> Option<u64> {
        self.text(name).and_then(|text| text.parse().ok())
    }

    /// The names of an option; none if it was not given.
    #[must_use]
    pub fn names(&self, name: &str) -> Vec<String> {
        let text = self.text(name).unwrap_or_default();
        text.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
    }

    /// Gives an option another value.
    pub(crate) fn set(&mut self, name: &'static str, value: String) {
        self.options.insert(name, value);
    }

    /// Makes another word of one, if it is there.
    pub(crate) fn change_word(&mut self, place: usize, change: impl Fn(&str) -> String) {
        if let Some(word) = self.words.get_mut(place) {
            *word = change(word);
        }
    }

    /// What gives these arguments when it is read.
    pub(crate) fn command(&self, signature: &Signature) -> Vec<String> {
        let is_flag = |name: &str| find(signature, name).is_ok_and(|option| option.value == Kind::Flag);
        let options = self.options.iter().flat_map(|(name, value)| {
            let value = (!is_flag(name)).then(|| value.clone());
            std::iter::once((*name).to_owned()).chain(value)
        });
        options.chain(std::iter::once("--".to_owned())).chain(self.words.iter().cloned()).collect()
    }

    /// Gives an option a value that was not given.
    pub(crate) fn set_default(&mut self, name: &'static str, value: String) {
        self.options.entry(name).or_insert(value);
    }
}

impl Opt {
    fn check(&self, value: &str) -> Result<(), CommandError> {
        let name = self.name;
        match self.value {
            Kind::Number(least, most) => match value.parse::<u64>() {
                Ok(number) if (least..=most).contains(&number) => Ok(()),
                _ => Err(format!("`{name}` must be an integer of {least} to {most}, not `{value}`").into()),
            },
            Kind::Word(words) if !words.contains(&value) => {
                let nearest = hint(nearest(value, words.iter().copied()));
                Err(format!("`{name}` must be {}, not `{value}`{nearest}", words.join(", ")).into())
            }
            Kind::Flag if value != "yes" => Err(format!("`{name}` has no value").into()),
            Kind::Text | Kind::Names if value.is_empty() => Err(format!("`{name}` is empty").into()),
            _ => Ok(()),
        }
    }
}

fn find(signature: &Signature, name: &str) -> Result<&'static Opt, CommandError> {
    signature.options.iter().find(|option| option.name == name).ok_or_else(|| {
        let nearest = hint(nearest(name, signature.options.iter().map(|option| option.name)));
        format!("unknown option `{name}`{nearest}").into()
    })
}

pub(crate) fn hint(nearest: Option<String>) -> String {
    nearest.map_or_else(String::new, |name| format!(" (did you mean `{name}`?)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: &[Opt] = &[
        Opt { name: "--group", value: Kind::Text, default: "", what: "" },
        Opt { name: "--count", value: Kind::Number(1, 100), default: "10", what: "" },
        Opt { name: "--from", value: Kind::Word(&["start", "end"]), default: "start", what: "" },
        Opt { name: "--follow", value: Kind::Flag, default: "", what: "" },
        Opt { name: "--fields", value: Kind::Names, default: "", what: "" },
    ];
    const SIGNATURE: Signature = Signature { words: "KEY", words_count: (1, 1), options: OPTIONS };

    fn read(given: &str) -> Result<Arguments, String> {
        let given: Vec<String> = given.split_whitespace().map(str::to_owned).collect();
        Arguments::read(&SIGNATURE, &given).map_err(|error| error.to_string())
    }

    #[test]
    fn options_are_read_in_both_forms_and_have_defaults() {
        let read = read("orders --group=g --fields a,b --follow").expect("they fit");
        assert_eq!((read.words(), read.text("--group")), (&["orders".to_owned()][..], Some("g")));
        assert_eq!((read.number("--count"), read.text("--from")), (Some(10), Some("start")));
        assert!(read.has("--follow") && read.names("--fields") == ["a", "b"]);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_what_would() {
        let refused = |given| read(given).expect_err("refused");
        assert_eq!(refused("k --grup g"), "unknown option `--grup` (did you mean `--group`?)");
        assert_eq!(refused("k --count 101"), "`--count` must be an integer of 1 to 100, not `101`");
        assert_eq!(refused("k --from ende"), "`--from` must be start, end, not `ende` (did you mean `end`?)");
        assert_eq!(refused("k --group"), "`--group` has no value");
        assert_eq!(refused("k --follow=no"), "`--follow` has no value");
        assert_eq!(refused(""), "it takes KEY, not 0 words");
        assert_eq!(read("-- --group").expect("a word").words(), ["--group"]);
    }
}
