//! `dedupe`: lets the first tuple of each value go on, and no other one.
//!
//! The key of a value has what tells the first tuple from others (`--id`), so that this one goes on again when it is tried again.

use resp::Value as Reply;
use topology::builder::Factory;
use topology::component::{Fault, Tuple};
use topology::values::Values;

use crate::arguments::{Arguments, Kind, Opt, Signature};
use crate::asking::{Ask, Asking, PIPELINE, Requests, Server, URL_OPTION};
use crate::convert::append_field;
use crate::counting::BY;
use crate::row::{Emits, Exact, Made, Reach, Row};

/// Which tuples are the same.
#[derive(Clone, Debug)]
struct Dedupe {
    prefix: Vec<u8>,
    by: String,
    id: String,
    keep_ms: String,
}

/// Of one tuple: its id, and its values.
type Kept = (Vec<u8>, Values);

impl Ask for Dedupe {
    type Kept = Kept;

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<Kept, Fault> {
        let (mut key, mut id) = (self.prefix.clone(), Vec::new());
        append_field(tuple, &self.by, &mut key)?;
        append_field(tuple, &self.id, &mut id)?;
        out.push(&[&b"SET"[..], &key, &id, b"NX", b"GET", b"PX", self.keep_ms.as_bytes()]);
        Ok((id, tuple.values().clone()))
    }

    fn reply(&mut self, (id, values): &mut Kept, _: usize, reply: Reply) -> Result<Option<Values>, Fault> {
        match reply {
            Reply::Null => Ok(Some(values.clone())),
            Reply::Bulk(first) => Ok((first == *id).then(|| values.clone())),
            other => Err(Fault::new(format!("the server answered {other:?}"))),
        }
    }
}

fn make(arguments: &Arguments) -> Result<Made, String> {
    let server = Server::read(arguments)?;
    let (by, id, prefix) =
        (arguments.needed("--by")?, arguments.needed("--id")?, arguments.needed("--prefix")?.into_bytes());
    let reads = vec![by.clone(), id.clone()];
    let dedupe = Dedupe { prefix, by, id, keep_ms: arguments.needed("--keep-ms")? };
    let factory = Factory::bolt(move || Asking::new(dedupe.clone(), server.clone()));
    let exact = Exact::None("the keys of values end by time");
    Ok(Made { factory, reads, reach: Reach::Server, emits: Emits::InputAnd(0, "what it reads"), exact })
}

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "dedupe",
    what: "lets the first tuple of each value of a field go on, and no other one",
    signature: Signature {
        words: "",
        words_count: (0, 0),
        options: &[
            BY,
            Opt {
                name: "--id",
                value: Kind::Text,
                default: "",
                what: "field that tells tuples apart, such as the id of an entry; needed",
            },
            Opt {
                name: "--prefix",
                value: Kind::Text,
                default: "",
                what: "each value has the key of this prefix and the value; needed",
            },
            Opt {
                name: "--keep-ms",
                value: Kind::Number(1, 316_224_000_000),
                default: "86400000",
                what: "time that a value is remembered (ms)",
            },
            URL_OPTION,
            PIPELINE,
        ],
    },
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::tuple;
    use topology::value::Value;

    #[test]
    fn first_tuple_goes_on_whenever_it_comes_and_others_do_not() {
        let (by, id) = ("order".to_owned(), "id".to_owned());
        let mut dedupe = Dedupe { prefix: b"d:".to_vec(), by, id, keep_ms: "5".to_owned() };
        let (mut out, values) = (Requests::default(), [Value::from("7-0"), Value::from("o1")]);
        let mut kept =
            tuple(&["id", "order"], &values, |tuple| dedupe.request(tuple, &mut out)).expect("it fits");
        let expected =
            b"*7\r\n$3\r\nSET\r\n$4\r\nd:o1\r\n$3\r\n7-0\r\n$2\r\nNX\r\n$3\r\nGET\r\n$2\r\nPX\r\n$1\r\n5\r\n";
        assert_eq!(out.bytes(), expected);
        let all = Some(Values::encode(&values).expect("they fit"));
        assert_eq!(dedupe.reply(&mut kept, 0, Reply::Null), Ok(all.clone()));
        assert_eq!(dedupe.reply(&mut kept, 0, Reply::Bulk(b"7-0".to_vec())), Ok(all), "it was tried before");
        assert_eq!(dedupe.reply(&mut kept, 0, Reply::Bulk(b"3-0".to_vec())), Ok(None));
    }
}
