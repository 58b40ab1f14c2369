//! `top-k`: the values with the largest counts or sums, in a sorted set of the server that keeps the largest `--keep`.
//!
//! A value that was dropped begins at 0 again, so numbers near the end of the set may be too small. More than ten times as many are kept as are asked for.

use resp::Value as Reply;
use topology::builder::Factory;
use topology::component::{Fault, Tuple};
use topology::value::Value;
use topology::values::Values;

use crate::arguments::{Arguments, Kind, Opt, Signature};
use crate::asking::{self, Ask, Asking, PIPELINE, Requests, Server, URL_OPTION, Writing};
use crate::convert::{append_field, number, text_value};
use crate::counting::{BY, total};
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};

/// What is ranked.
#[derive(Clone, Debug)]
struct Top {
    key: String,
    by: String,
    /// `None`: tuples are counted.
    field: Option<String>,
    k: i64,
    /// The last place that is dropped, counted from the largest.
    drops: String,
}

/// Of one tuple: the value, and its number.
type Kept = (Vec<u8>, Value<'static>);

impl Ask for Top {
    type Kept = Kept;

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<Kept, Fault> {
        let mut value = Vec::new();
        append_field(tuple, &self.by, &mut value)?;
        let added = match &self.field {
            None => "1".to_owned(),
            Some(field) => number(tuple, field)?.to_string(),
        };
        out.push(&[&b"ZINCRBY"[..], self.key.as_bytes(), added.as_bytes(), &value]);
        out.push(&[&b"ZREMRANGEBYRANK"[..], self.key.as_bytes(), b"0", self.drops.as_bytes()]);
        out.push(&[&b"ZREVRANK"[..], self.key.as_bytes(), &value]);
        Ok((value, Value::Null))
    }

    fn reply(
        &mut self,
        (value, sum): &mut Kept,
        place: usize,
        reply: Reply,
    ) -> Result<Option<Values>, Fault> {
        match (place, reply) {
            (0, reply) => {
                *sum = total(reply)?;
                Ok(None)
            }
            (2, Reply::Integer(rank)) if rank < self.k => {
                asking::values(&[Value::Int(rank + 1), text_value(value), sum.clone()])
            }
            _ => Ok(None),
        }
    }
}

fn make(arguments: &Arguments) -> Result<Made, String> {
    let server = Server::read(arguments)?;
    let word = &arguments.words()[0];
    let k = word.parse().ok().filter(|k| (1..=K_MAX).contains(k));
    let k = k.ok_or_else(|| format!("K must be an integer of 1 to {K_MAX}, not `{word}`"))?;
    let (by, key) = (arguments.needed("--by")?, arguments.needed("--prefix")? + "top");
    let keep = arguments.number("--keep").unwrap_or(10 * k as u64 + 1_000);
    if keep < k as u64 {
        return Err(format!("--keep {keep} is less than the {k} that are asked for"));
    }
    let field = arguments.text("--field").map(str::to_owned);
    let reads = std::iter::once(by.clone()).chain(field.clone()).collect();
    let top = Top { key, by, field, k, drops: format!("-{}", keep + 1) };
    let writes = top.clone();
    let exact = Exact::Silent(Factory::bolt(move || Writing::new(writes.clone())));
    let factory = Factory::bolt(move || Asking::new(top.clone(), server.clone()));
    Ok(Made {
        factory,
        reads,
        reach: Reach::Server,
        emits: Emits::Values(3..=3, "the place, the value and its number"),
        exact,
    })
}

const K_MAX: i64 = 100_000;

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "top-k",
    what: "ranks the values of a field by count or sum; emits place, value and number while the value is among the first K",
    signature: Signature {
        words: "K",
        words_count: (1, 1),
        options: &[
            BY,
            Opt {
                name: "--field",
                value: Kind::Text,
                default: "",
                what: "field with the number that is added up; without it tuples are counted",
            },
            Opt {
                name: "--prefix",
                value: Kind::Text,
                default: "",
                what: "the sorted set is the key of this prefix and `top`; needed",
            },
            Opt {
                name: "--keep",
                value: Kind::Number(1, 10_000_000),
                default: "",
                what: "values that the sorted set keeps; without it 10 times K and 1,000",
            },
            URL_OPTION,
            PIPELINE,
        ],
    },
    keeps: &[Keeps::Key("top")],
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{made, tuple};

    #[test]
    fn value_among_the_first_is_emitted_with_its_place() {
        let (key, by, drops) = ("t:top".to_owned(), "word".to_owned(), "-1011".to_owned());
        let (mut top, mut out) = (Top { key, by, field: None, k: 3, drops }, Requests::default());
        let mut kept =
            tuple(&["word"], &[Value::from("a")], |tuple| top.request(tuple, &mut out)).expect("it fits");
        let begin =
            b"*4\r\n$7\r\nZINCRBY\r\n$5\r\nt:top\r\n$1\r\n1\r\n$1\r\na\r\n*4\r\n$15\r\nZREMRANGEBYRANK\r\n";
        assert!(out.bytes().starts_with(begin));
        let mut told = |place, reply| top.reply(&mut kept, place, reply).expect("it fits");
        assert_eq!((told(0, Reply::Bulk(b"12".to_vec())), told(1, Reply::Integer(0))), (None, None));
        assert_eq!(told(2, Reply::Integer(3)), None);
        let expected =
            Values::encode(&[Value::from(1), Value::from("a"), Value::from(12)]).expect("they fit");
        assert_eq!(told(2, Reply::Integer(0)), Some(expected));
        assert_eq!(told(2, Reply::Null), None, "it was dropped at once");
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert!(made(&ROW, "0 --by a --prefix p").expect_err("refused").contains("K must be an integer"));
        assert!(made(&ROW, "9 --by a --prefix p --keep 8").expect_err("refused").contains("less than the 9"));
    }
}
