//! `count` and `sum`: a number for each value of a field, in memory or in a hash of the server.
//!
//! In memory numbers begin at 0 with each start of the task. In a hash they are kept, and any client reads them; a tuple that is tried again
//! may count twice, but with exactly-once.

use std::collections::HashMap;

use bytes::Bytes;
use resp::Value as Reply;
use topology::builder::Factory;
use topology::changes::StateKey;
use topology::component::{Bolt, BoltOut, Fault, Outcome, Tuple};
use topology::value::Value;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::asking::{self, Ask, Asking, PIPELINE, Requests, Server, URL_OPTION};
use crate::convert::{append_field, number, number_value, sum, text_value};
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};

/// What is added up for which values.
#[derive(Clone, Debug)]
struct Adding {
    by: String,
    /// The field with the number to add; `None`: 1.
    field: Option<String>,
}

/// In memory.
#[derive(Debug)]
struct Memory {
    adding: Adding,
    keys_max: usize,
    totals: HashMap<Vec<u8>, String>,
}

/// In a hash.
#[derive(Clone, Debug)]
struct Hash {
    adding: Adding,
    key: Bytes,
}

impl Adding {
    /// The value of the field `by`, and what is added to its number.
    fn read(&self, tuple: &Tuple<'_>) -> Result<(Vec<u8>, String), Fault> {
        let mut value = Vec::new();
        append_field(tuple, &self.by, &mut value)?;
        Ok((value, added(tuple, self.field.as_deref())?))
    }
}

impl Bolt for Memory {
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let (value, added) = self.adding.read(tuple)?;
        if self.totals.len() >= self.keys_max && !self.totals.contains_key(&value) {
            let most = self.keys_max;
            return Err(Fault::fatal(format!(
                "there are {most} different values: --keys-max allows no more"
            )));
        }
        let former = self.totals.get(&value).map_or("0", String::as_str);
        let total = sum(former.as_bytes(), &added, &"the sum so far")?;
        out.emit(&[text_value(&value), number_value(&total)])?;
        self.totals.insert(value, total);
        Ok(Outcome::Ack)
    }
}

/// In a hash, as state of an exactly-once topology.
#[derive(Clone, Debug)]
struct Exactly(Hash);

impl Bolt for Exactly {
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let Self(Hash { adding, key }) = self;
        let (value, added) = adding.read(tuple)?;
        let place = StateKey::of_field(key.clone(), value.clone());
        let total = increased(out, &place, &added)?;
        out.emit(&[text_value(&value), number_value(&total)])?;
        out.set(place, Some(total.into()))?;
        Ok(Outcome::Ack)
    }
}

/// What is added for a tuple: the number in `field`, or 1.
pub(crate) fn added(tuple: &Tuple<'_>, field: Option<&str>) -> Result<String, Fault> {
    field.map_or_else(|| Ok("1".to_owned()), |field| number(tuple, field))
}

/// The number at `place`, 0 if there is none, and `added`.
pub(crate) fn increased(out: &mut BoltOut<'_>, place: &StateKey, added: &str) -> Result<String, Fault> {
    let kept = out.get(place)?.unwrap_or_else(|| "0".into());
    sum(&kept, added, &Place(place))
}

/// Where a number of the state is, in words.
struct Place<'a>(&'a StateKey);

impl std::fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let StateKey { key, field } = self.0;
        let [key, field] = [key, field.as_ref().unwrap_or(key)].map(|text| String::from_utf8_lossy(text));
        write!(f, "in the field `{field}` of the hash `{key}`: HDEL it to begin at 0")
    }
}

impl Ask for Hash {
    type Kept = Vec<u8>;

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<Vec<u8>, Fault> {
        let (value, added) = self.adding.read(tuple)?;
        let command = if self.adding.field.is_none() { &b"HINCRBY"[..] } else { b"HINCRBYFLOAT" };
        out.push(&[command, &self.key, &value, added.as_bytes()]);
        Ok(value)
    }

    fn reply(&mut self, value: &mut Vec<u8>, _: usize, reply: Reply) -> Result<Option<Values>, Fault> {
        asking::values(&[text_value(value), total(reply)?])
    }
}

/// The number that INCRBY and its like answer.
pub(crate) fn total(reply: Reply) -> Result<Value<'static>, Fault> {
    match reply {
        Reply::Integer(total) => Ok(Value::Int(total)),
        Reply::Bulk(text) => {
            let text = std::str::from_utf8(&text).ok().filter(|text| text.parse::<f64>().is_ok());
            text.map(number_value).ok_or_else(|| Fault::new("the server answered no number"))
        }
        other => Err(Fault::new(format!("the server answered {other:?}"))),
    }
}

fn make(arguments: &Arguments, name: &str, field: Option<&str>) -> Result<Made, CommandError> {
    let by = arguments.text("--by").ok_or("`--by` is missing: the field whose values are told apart")?;
    let field =
        field.map(|option| arguments.text(option).ok_or("`--field` is missing: the field with the number"));
    let field = field.transpose()?.map(str::to_owned);
    let adding = Adding { by: by.to_owned(), field };
    let reads = std::iter::once(by.to_owned()).chain(adding.field.clone()).collect();
    let (factory, exact) = match arguments.text("--prefix") {
        Some(prefix) => {
            let (server, key) = (Server::read(arguments)?, Bytes::from(format!("{prefix}{name}")));
            let hash = Hash { adding, key };
            let exactly = Exactly(hash.clone());
            let exact = Exact::Keyed(Factory::bolt(move || exactly.clone()), by.to_owned());
            (Factory::bolt(move || Asking::new(hash.clone(), server.clone())), exact)
        }
        None => {
            let keys_max = arguments.number("--keys-max").unwrap_or_default() as usize;
            let memory = move || Memory { adding: adding.clone(), keys_max, totals: HashMap::new() };
            let exact = Exact::None("numbers in memory are not part of an epoch: give `--prefix`");
            (Factory::bolt(memory), exact)
        }
    };
    let what = if name == "count" { "the value and its count" } else { "the value and its sum" };
    Ok(Made { factory, reads, reach: Reach::Server, emits: Emits::Values(2..=2, what), exact })
}

pub(crate) const BY: Opt =
    Opt { name: "--by", value: Kind::Text, default: "", what: "field whose values are told apart; needed" };
const PREFIX: Opt = Opt {
    name: "--prefix",
    value: Kind::Text,
    default: "",
    what: "numbers are in the hash of this prefix and the component's name, `count` or `sum`; without it in memory",
};
pub(crate) const KEYS_MAX: Opt = Opt {
    name: "--keys-max",
    value: Kind::Number(1, 100_000_000),
    default: "1000000",
    what: "different values in the memory of a task; a tuple with one more is a dead letter",
};

/// The row of `count`.
pub(crate) const COUNT: Row = Row {
    name: "count",
    what: "counts tuples by the values of a field; emits the value and its count",
    signature: Signature {
        words: "",
        words_count: (0, 0),
        options: &[BY, PREFIX, KEYS_MAX, URL_OPTION, PIPELINE],
    },
    keeps: &[Keeps::Key("count")],
    make: |arguments| make(arguments, "count", None),
};

/// The row of `sum`.
pub(crate) const SUM: Row = Row {
    name: "sum",
    what: "adds a field up by the values of another one; emits the value and its sum",
    signature: Signature {
        words: "",
        words_count: (0, 0),
        options: &[
            BY,
            Opt { name: "--field", value: Kind::Text, default: "", what: "field with the number; needed" },
            PREFIX,
            KEYS_MAX,
            URL_OPTION,
            PIPELINE,
        ],
    },
    keeps: &[Keeps::Key("sum")],
    make: |arguments| make(arguments, "sum", Some("--field")),
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Stand, made, tuple};

    fn adding(field: Option<&str>) -> Adding {
        Adding { by: "word".to_owned(), field: field.map(str::to_owned) }
    }

    #[test]
    fn counts_and_sums_are_told_for_each_value() {
        let memory = |field| Memory { adding: adding(field), keys_max: 2, totals: HashMap::new() };
        let mut stand = Stand::bolt(memory(None), &["word"], &["word", "count"]);
        for word in ["a", "b", "a", "c"] {
            stand.execute(&[Value::from(word)]);
        }
        assert_eq!(stand.record.emitted, [["a", "1"], ["b", "1"], ["a", "2"]]);
        assert!(stand.record.failed[0].1.contains("--keys-max"), "{:?}", stand.record.failed);
        let mut stand = Stand::bolt(memory(Some("n")), &["word", "n"], &["word", "sum"]);
        for n in [Value::from(2), Value::from("1.5"), Value::from(0.5), Value::from("x")] {
            stand.execute(&[Value::from("a"), n]);
        }
        assert_eq!(stand.record.emitted, [["a", "2"], ["a", "3.5"], ["a", "4"]]);
        assert_eq!(stand.record.failed[0].1, "field `n` is no number: `x`");
    }

    #[test]
    fn hash_is_asked_and_its_answer_is_emitted() {
        let mut hash = Hash { adding: adding(None), key: "w:count".into() };
        let mut out = Requests::default();
        let mut kept =
            tuple(&["word"], &[Value::from("a")], |tuple| hash.request(tuple, &mut out)).expect("it fits");
        assert_eq!(out.bytes(), b"*4\r\n$7\r\nHINCRBY\r\n$7\r\nw:count\r\n$1\r\na\r\n$1\r\n1\r\n");
        let emitted = hash.reply(&mut kept, 0, Reply::Integer(5)).expect("a number").expect("a tuple");
        assert_eq!(emitted, Values::encode(&[Value::from("a"), Value::from(5)]).expect("they fit"));
        assert!(hash.reply(&mut Vec::new(), 0, Reply::Null).is_err());
    }

    #[test]
    fn options_that_are_needed_are_asked_for() {
        assert!(made(&COUNT, "").expect_err("refused").contains("`--by` is missing"));
        assert!(made(&SUM, "--by word").expect_err("refused").contains("`--field` is missing"));
        assert_eq!(made(&SUM, "--by word --field n").expect("right").reads, ["word", "n"]);
    }

    #[test]
    fn with_exactly_once_a_number_is_state_of_the_bolt() {
        let hash = Hash { adding: adding(Some("n")), key: "w:sum".into() };
        let mut stand = Stand::bolt(Exactly(hash), &["word", "n"], &["word", "sum"]);
        for added in [1.5, 2.5] {
            stand.execute(&[Value::from("a"), Value::from(added)]);
        }
        assert_eq!(stand.record.emitted, [["a", "1.5"], ["a", "4"]]);
        assert_eq!(stand.record.values[&StateKey::of_field("w:sum", "a")], "4");
    }
}
