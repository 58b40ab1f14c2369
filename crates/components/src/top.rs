//! `top-k`: the values with the largest counts or sums, in a sorted set of the server that keeps the largest `--keep`.
//!
//! A value that was dropped begins at 0 again, so numbers near the end of the set may be too small. More than ten times as many are kept as are asked for.
//!
//! A score has 53 bits, so the numbers themselves are in a hash beside the set: a script adds, exactly, and ranks.

use resp::Value as Reply;
use topology::builder::Factory;
use topology::component::{Fault, Tuple};
use topology::value::Value;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::asking::{self, Ask, Asking, PIPELINE, Requests, Server, URL_OPTION, Writing};
use crate::convert::{append_field, text_value};
use crate::counting::{BY, added, total};
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};

/// What is ranked.
#[derive(Clone, Debug)]
struct Top {
    key: String,
    sums: String,
    by: String,
    /// `None`: tuples are counted.
    field: Option<String>,
    k: i64,
    /// The last place that is dropped, counted from the largest.
    drops: String,
}

impl Ask for Top {
    type Kept = Vec<u8>;

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<Vec<u8>, Fault> {
        let mut value = Vec::new();
        append_field(tuple, &self.by, &mut value)?;
        let added = added(tuple, self.field.as_deref())?;
        let (top, sums) = (self.key.as_bytes(), self.sums.as_bytes());
        out.push(&[
            b"EVAL",
            SCRIPT.as_bytes(),
            b"2",
            top,
            sums,
            &value,
            added.as_bytes(),
            self.drops.as_bytes(),
        ]);
        Ok(value)
    }

    fn reply(&mut self, value: &mut Vec<u8>, _: usize, reply: Reply) -> Result<Option<Values>, Fault> {
        let Reply::Array(parts) = reply else { return Err(Fault::new("the server answered no place")) };
        match <[Reply; 2]>::try_from(parts) {
            Ok([sum, Reply::Integer(rank)]) if rank < self.k => {
                asking::values(&[Value::Int(rank + 1), text_value(value), total(sum)?])
            }
            Ok([_, Reply::Integer(_) | Reply::Null]) => Ok(None),
            _ => Err(Fault::new("the server answered no place")),
        }
    }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let server = Server::read(arguments)?;
    let word = &arguments.words()[0];
    let k = word.parse().ok().filter(|k| (1..=K_MAX).contains(k));
    let k = k.ok_or_else(|| format!("K must be an integer of 1 to {K_MAX}, not `{word}`"))?;
    let (by, key) = (arguments.needed("--by")?, arguments.needed("--prefix")? + "top");
    let keep = arguments.number("--keep").unwrap_or(10 * k as u64 + 1_000);
    if keep < k as u64 {
        return Err(format!("--keep {keep} is less than the {k} that are asked for").into());
    }
    let field = arguments.text("--field").map(str::to_owned);
    let reads = std::iter::once(by.clone()).chain(field.clone()).collect();
    let sums = format!("{key}:sums");
    let top = Top { key, sums, by, field, k, drops: format!("-{}", keep + 1) };
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

const SCRIPT: &str = include_str!("top/script.lua");
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
                what: "the sorted set is the key of this prefix and `top`, its exact numbers the hash with `top:sums`; needed",
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
        let [key, sums, by, drops] = ["t:top", "t:top:sums", "word", "-1011"].map(str::to_owned);
        let mut top = Top { key, sums, by, field: None, k: 3, drops };
        let mut out = Requests::default();
        let mut kept =
            tuple(&["word"], &[Value::from("a")], |tuple| top.request(tuple, &mut out)).expect("it fits");
        let end = b"$1\r\n2\r\n$5\r\nt:top\r\n$10\r\nt:top:sums\r\n$1\r\na\r\n$1\r\n1\r\n$5\r\n-1011\r\n";
        assert!(out.bytes().starts_with(b"*8\r\n$4\r\nEVAL\r\n") && out.bytes().ends_with(end));
        let mut told = |rank| {
            let sum = Reply::Bulk(b"12.5".to_vec());
            top.reply(&mut kept, 0, Reply::Array(vec![sum, rank])).expect("it fits")
        };
        assert_eq!(told(Reply::Integer(3)), None);
        let expected =
            Values::encode(&[Value::from(1), Value::from("a"), Value::from(12.5)]).expect("they fit");
        assert_eq!(told(Reply::Integer(0)), Some(expected));
        assert_eq!(told(Reply::Null), None, "it was dropped at once");
        assert!(top.reply(&mut Vec::new(), 0, Reply::Integer(1)).is_err());
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        assert!(made(&ROW, "0 --by a --prefix p").expect_err("refused").contains("K must be an integer"));
        assert!(made(&ROW, "9 --by a --prefix p --keep 8").expect_err("refused").contains("less than the 9"));
    }
}
