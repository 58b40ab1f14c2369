//! What a command takes, as a row of the table says it in one line, and as COMMAND DOCS shows it.
//!
//! ```text
//!  arguments = [ argument { ' ' argument } ]
//!  argument  = '[' argument ']'                                 may be left out
//!            | name [ kind ] [ '=' token ] [ '@' since ] [ '~' deprecated since ] [ '+' | '++' ]
//!  kind      = ':key' index of its key spec | ':' type | '(' argument { '|' argument } ')'   one of
//!            | '{' argument { ' ' argument } '}'                 all of, in this order
//!  token     = word | '=' | '~'                                 the signs only at the end
//!  '+' may come several times; '++' with its token each time; without a kind it is the token alone
//! ```
//!
//! `SET` is `key:key0 value:string [condition(nx=NX|xx=XX)@2.6.12] [get=GET@6.2.0] ...`. A test parses every row.

use resp::Writer;

/// One argument of a command, borrowed from its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Argument<'a> {
    pub(crate) name: &'a str,
    pub(crate) kind: Kind<'a>,
    pub(crate) token: Option<&'a str>,
    since: Option<&'a str>,
    deprecated_since: Option<&'a str>,
    pub(crate) optional: bool,
    multiple: bool,
    multiple_token: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind<'a> {
    Key(u8),
    Value(&'a str),
    Token,
    OneOf(Vec<Argument<'a>>),
    Block(Vec<Argument<'a>>),
}

/// The arguments that `text` describes; `None` if it does not follow the grammar.
pub(crate) fn parse(text: &str) -> Option<Vec<Argument<'_>>> {
    split(text, ' ').into_iter().map(argument).collect()
}

fn argument(text: &str) -> Option<Argument<'_>> {
    if let Some(inner) = text.strip_prefix('[') {
        return Some(Argument { optional: true, ..argument(inner.strip_suffix(']')?)? });
    }
    let (rest, multiple) = cut_suffix(text, "+");
    let (rest, multiple_token) = cut_suffix(rest, "+");
    let sign = ["=", "~"].into_iter().find(|sign| rest.ends_with(&format!("={sign}")));
    let rest = sign.map_or(rest, |sign| &rest[..rest.len() - sign.len() - 1]);
    let (rest, deprecated_since) = cut(rest, '~');
    let (rest, since) = cut(rest, '@');
    let (rest, token) = cut(rest, '=');
    let token = sign.or(token);
    let (name, kind) = if let Some(inner) = rest.strip_suffix(')') {
        let (name, inner) = inner.split_once('(')?;
        (name, Kind::OneOf(split(inner, '|').into_iter().map(argument).collect::<Option<_>>()?))
    } else if let Some(inner) = rest.strip_suffix('}') {
        let (name, inner) = inner.split_once('{')?;
        (name, Kind::Block(parse(inner)?))
    } else {
        match rest.rsplit_once(':') {
            None => (rest, Kind::Token),
            Some((name, kind)) => match kind.strip_prefix("key") {
                Some(index) => (name, Kind::Key(index.parse().ok()?)),
                None => (name, Kind::Value(kind)),
            },
        }
    };
    let optional = false;
    let found = Argument { name, kind, token, since, deprecated_since, optional, multiple, multiple_token };
    (!name.is_empty()).then_some(found)
}

/// The parts of `text` between `separator`s outside of brackets; none of an empty text.
fn split(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0);
    for (at, letter) in text.char_indices() {
        depth += i32::from("([{".contains(letter)) - i32::from(")]}".contains(letter));
        if letter == separator && depth == 0 {
            parts.push(&text[start..at]);
            start = at + 1;
        }
    }
    if !text.is_empty() {
        parts.push(&text[start..]);
    }
    parts
}

/// What stands before and after the last `mark` that is behind all brackets.
fn cut(text: &str, mark: char) -> (&str, Option<&str>) {
    let brackets = text.rfind([')', '}']).unwrap_or(0);
    match text[brackets..].rfind(mark) {
        Some(at) => (&text[..brackets + at], Some(&text[brackets + at + 1..])),
        None => (text, None),
    }
}

fn cut_suffix<'a>(text: &'a str, suffix: &str) -> (&'a str, bool) {
    text.strip_suffix(suffix).map_or((text, false), |rest| (rest, true))
}

/// Writes `arguments` as the array of maps that COMMAND DOCS has.
pub(crate) fn write(arguments: &[Argument<'_>], out: &mut Writer<'_>) {
    out.array(arguments.len());
    arguments.iter().for_each(|argument| argument.write(out));
}

impl Argument<'_> {
    fn write(&self, out: &mut Writer<'_>) {
        let flags: Vec<&str> = [
            (self.optional, "optional"),
            (self.multiple, "multiple"),
            (self.multiple_token, "multiple_token"),
        ]
        .into_iter()
        .filter_map(|(set, name)| set.then_some(name))
        .collect();
        let texts =
            [("token", self.token), ("since", self.since), ("deprecated_since", self.deprecated_since)];
        let count = texts.iter().filter(|(_, text)| text.is_some()).count();
        let (kind, key, parts) = match &self.kind {
            Kind::Key(index) => ("key", Some(*index), None),
            Kind::Value(kind) => (*kind, None, None),
            Kind::Token => ("pure-token", None, None),
            Kind::OneOf(parts) => ("oneof", None, Some(parts)),
            Kind::Block(parts) => ("block", None, Some(parts)),
        };
        let fields = 2 + usize::from(key.is_some()) + count;
        out.map(fields + usize::from(!flags.is_empty()) + usize::from(parts.is_some()));
        pair(out, "name", self.name);
        pair(out, "type", kind);
        if let Some(index) = key {
            out.bulk(b"key_spec_index");
            out.integer(index.into());
        }
        for (name, text) in texts {
            text.into_iter().for_each(|text| pair(out, name, text));
        }
        if !flags.is_empty() {
            out.bulk(b"flags");
            out.set(flags.len());
            flags.iter().for_each(|flag| out.simple(flag));
        }
        if let Some(parts) = parts {
            out.bulk(b"arguments");
            write(parts, out);
        }
    }
}

fn pair(out: &mut Writer<'_>, name: &str, value: &str) {
    out.bulk(name.as_bytes());
    out.bulk(value.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::commands;

    #[test]
    fn every_row_describes_its_arguments_and_names_key_specs_that_it_has() {
        fn keys(arguments: &[Argument<'_>], found: &mut Vec<u8>) {
            for argument in arguments {
                match &argument.kind {
                    Kind::Key(index) => found.push(*index),
                    Kind::OneOf(parts) | Kind::Block(parts) => keys(parts, found),
                    Kind::Value(_) | Kind::Token => {}
                }
            }
        }
        for entry in commands().entries() {
            let command = entry.command;
            let arguments =
                parse(command.args).unwrap_or_else(|| panic!("{}: {}", command.name, command.args));
            let mut indices = Vec::new();
            keys(&arguments, &mut indices);
            assert!(indices.iter().all(|index| usize::from(*index) < command.keys.len()), "{}", command.name);
            let takes_arguments = command.arity != 1 + i32::from(command.name.contains('|'));
            let tells = !arguments.is_empty() || command.is_container();
            let variadic_for_later = ["quit", "command|getkeys", "command|getkeysandflags", "debug|reload"];
            let excused = variadic_for_later.contains(&command.name);
            assert!(excused || takes_arguments == tells, "{}: {}", command.name, command.arity);
        }
    }

    #[test]
    fn all_of_the_grammar_is_understood() {
        let text = "ip:port:string~2.8.12 [filter(id:integer=ID@2.0|[on=ON])=BY@1.0+] pair{k:key0 v:string}+ p:string=P++";
        let parsed = parse(text).expect("follows the grammar");
        assert_eq!((parsed[0].name, &parsed[0].kind), ("ip:port", &Kind::Value("string")));
        assert_eq!(parsed[0].deprecated_since, Some("2.8.12"));
        let Kind::OneOf(choices) = &parsed[1].kind else { panic!("a choice") };
        assert_eq!((parsed[1].token, parsed[1].since), (Some("BY"), Some("1.0")));
        assert!(parsed[1].optional && parsed[1].multiple && !parsed[1].multiple_token);
        assert_eq!((choices[0].token, choices[0].since), (Some("ID"), Some("2.0")));
        assert!(choices[1].optional && choices[1].kind == Kind::Token);
        let Kind::Block(parts) = &parsed[2].kind else { panic!("a block") };
        assert_eq!((parts.len(), &parts[0].kind), (2, &Kind::Key(0)));
        assert!(parsed[3].multiple_token);
        assert_eq!(parse(""), Some(Vec::new()));
        for wrong in ["[a", "a:keyx", "=A", "(a)", "a  b"] {
            assert_eq!(parse(wrong), None, "{wrong}");
        }
    }
}
