//! `key-sink`: a command on a key for each tuple, its words made from fields.

use resp::Value as Reply;
use topology::builder::Factory;
use topology::component::{Fault, Tuple};
use topology::nearest::nearest;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Signature, hint};
use crate::asking::{Ask, Asking, PIPELINE, Requests, Server, URL_OPTION, Writing};
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};
use crate::template::Template;

/// The words of a command.
#[derive(Clone, Debug)]
struct KeySink {
    words: Vec<Template>,
}

impl Ask for KeySink {
    type Kept = ();

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<(), Fault> {
        let mut words = Vec::with_capacity(self.words.len());
        for template in &self.words {
            let mut word = Vec::new();
            template.append(tuple, &mut word)?;
            words.push(word);
        }
        out.push(&words);
        Ok(())
    }

    fn reply(&mut self, (): &mut (), _: usize, _: Reply) -> Result<Option<Values>, Fault> {
        Ok(None)
    }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let server = Server::read(arguments)?;
    let words = arguments.words();
    let command = words[0].to_ascii_uppercase();
    let Some(&(_, form, least, most)) = COMMANDS.iter().find(|(name, ..)| *name == command) else {
        let names = || COMMANDS.iter().map(|(name, ..)| *name);
        let (nearest, all) = (hint(nearest(&command, names())), names().collect::<Vec<_>>().join(", "));
        return Err(format!("`{}` is no command of this sink{nearest}: there are {all}", words[0]).into());
    };
    let given = words.len() - 1;
    if !(least..=most).contains(&given) {
        return Err(format!("{command} takes {form}, not {given} words").into());
    }
    if command == "HSET" && given.is_multiple_of(2) {
        return Err(format!("{command} takes {form}: a field has no value").into());
    }
    let templates = words.iter().map(|word| Template::read(word)).collect::<Result<Vec<_>, _>>()?;
    let mut reads: Vec<String> = templates.iter().flat_map(Template::fields).cloned().collect();
    reads.sort();
    reads.dedup();
    let sink = KeySink { words: templates };
    let writes = sink.clone();
    let exact = Exact::Other(Factory::bolt(move || Writing::new(writes.clone())));
    let factory = Factory::bolt(move || Asking::new(sink.clone(), server.clone()));
    Ok(Made { factory, reads, reach: Reach::Server, emits: Emits::Nothing, exact })
}

/// Commands, what they take, and how many words that is.
const COMMANDS: &[(&str, &str, usize, usize)] = &[
    ("SET", "KEY VALUE", 2, 2),
    ("DEL", "KEY", 1, 1),
    ("INCRBY", "KEY NUMBER", 2, 2),
    ("INCRBYFLOAT", "KEY NUMBER", 2, 2),
    ("HSET", "KEY FIELD VALUE ...", 3, 129),
    ("HINCRBY", "KEY FIELD NUMBER", 3, 3),
    ("HINCRBYFLOAT", "KEY FIELD NUMBER", 3, 3),
    ("SADD", "KEY MEMBER", 2, 2),
    ("ZADD", "KEY SCORE MEMBER", 3, 3),
    ("ZINCRBY", "KEY NUMBER MEMBER", 3, 3),
    ("PFADD", "KEY ELEMENT", 2, 2),
    ("RPUSH", "KEY ELEMENT", 2, 2),
];

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "key-sink",
    what: "changes a key for each tuple; `{field}` in a word is the value of a field",
    signature: Signature {
        words: "COMMAND KEY WORD ...",
        words_count: (2, 130),
        options: &[URL_OPTION, PIPELINE],
    },
    keeps: &[Keeps::Output(1)],
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{made, tuple};
    use topology::value::Value;

    #[test]
    fn command_is_made_of_fields() {
        let words = ["HINCRBY", "words:{lang}", "{word}", "1"];
        let words = words.map(|word| Template::read(word).expect("it is right")).to_vec();
        let (mut sink, mut out) = (KeySink { words }, Requests::default());
        let values = [Value::from("a b"), Value::from("en")];
        tuple(&["word", "lang"], &values, |tuple| sink.request(tuple, &mut out)).expect("it has all");
        assert_eq!(out.bytes(), b"*4\r\n$7\r\nHINCRBY\r\n$8\r\nwords:en\r\n$3\r\na b\r\n$1\r\n1\r\n");
    }

    #[test]
    fn what_is_no_command_is_refused_and_fields_are_read() {
        let refused = |text| made(&ROW, text).expect_err("refused");
        assert!(refused("HST k f v").starts_with("`HST` is no command of this sink (did you mean `HSET`?)"));
        assert_eq!(refused("INCRBY k"), "INCRBY takes KEY NUMBER, not 1 words");
        assert!(refused("HSET k f v g").contains("a field has no value"));
        assert_eq!(made(&ROW, "zincrby top {n} {word}:{n}").expect("right").reads, ["n", "word"]);
    }
}
