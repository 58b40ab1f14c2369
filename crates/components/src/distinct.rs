//! `distinct`: how many different values a field has had, in a HyperLogLog of the server: 12 KiB each, within about 1 %.

use resp::Value as Reply;
use topology::builder::Factory;
use topology::component::{Fault, Tuple};
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::asking::{self, Ask, Asking, PIPELINE, Requests, Server, URL_OPTION, Writing};
use crate::convert::{append_field, text_value};
use crate::counting::{BY, total};
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};

/// Which values are counted, and by what.
#[derive(Clone, Debug)]
struct Distinct {
    prefix: Vec<u8>,
    by: String,
    of: String,
}

impl Ask for Distinct {
    type Kept = Vec<u8>;

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<Vec<u8>, Fault> {
        let (mut by, mut of) = (Vec::new(), Vec::new());
        append_field(tuple, &self.by, &mut by)?;
        append_field(tuple, &self.of, &mut of)?;
        let key = [&self.prefix[..], &by].concat();
        out.push(&[&b"PFADD"[..], &key, &of]);
        out.push(&[&b"PFCOUNT"[..], &key]);
        Ok(by)
    }

    fn reply(&mut self, by: &mut Vec<u8>, place: usize, reply: Reply) -> Result<Option<Values>, Fault> {
        if place == 0 {
            return Ok(None);
        }
        asking::values(&[text_value(by), total(reply)?])
    }
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let server = Server::read(arguments)?;
    let (by, of, prefix) =
        (arguments.needed("--by")?, arguments.needed("--of")?, arguments.needed("--prefix")?.into_bytes());
    let reads = vec![by.clone(), of.clone()];
    let distinct = Distinct { prefix, by, of };
    let writes = distinct.clone();
    let exact = Exact::Silent(Factory::bolt(move || Writing::new(writes.clone())));
    let factory = Factory::bolt(move || Asking::new(distinct.clone(), server.clone()));
    let emits = Emits::Values(2..=2, "the value of `--by` and how many different ones there were");
    Ok(Made { factory, reads, reach: Reach::Server, emits, exact })
}

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "distinct",
    what: "counts the different values of a field by those of another one, within about 1 %",
    signature: Signature {
        words: "",
        words_count: (0, 0),
        options: &[
            BY,
            Opt {
                name: "--of",
                value: Kind::Text,
                default: "",
                what: "field whose different values are counted; needed",
            },
            Opt {
                name: "--prefix",
                value: Kind::Text,
                default: "",
                what: "each value of `--by` has the key of this prefix and the value; needed",
            },
            URL_OPTION,
            PIPELINE,
        ],
    },
    keeps: &[Keeps::Keys],
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{made, tuple};
    use topology::value::Value;

    #[test]
    fn value_is_added_and_then_counted() {
        let mut distinct = Distinct { prefix: b"u:".to_vec(), by: "page".into(), of: "user".into() };
        let mut out = Requests::default();
        let values = [Value::from("p"), Value::from("ann")];
        let mut by =
            tuple(&["page", "user"], &values, |tuple| distinct.request(tuple, &mut out)).expect("it fits");
        assert!(
            out.bytes()
                .starts_with(b"*3\r\n$5\r\nPFADD\r\n$3\r\nu:p\r\n$3\r\nann\r\n*2\r\n$7\r\nPFCOUNT\r\n")
        );
        assert_eq!(distinct.reply(&mut by, 0, Reply::Integer(1)), Ok(None));
        let emitted = distinct.reply(&mut by, 1, Reply::Integer(3)).expect("a number");
        assert_eq!(emitted, Some(Values::encode(&[Value::from("p"), Value::from(3)]).expect("they fit")));
        assert!(made(&ROW, "--by page --of user").expect_err("refused").contains("`--prefix` is missing"));
    }
}
