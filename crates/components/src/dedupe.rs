//! `dedupe`: lets the first tuple of each value go on, and no other one.
//!
//! The key of a value has what tells the first tuple from others (`--id`), so that this one goes on again when it is tried again.
//!
//! With exactly-once no tuple comes again after its epoch. The key is state then, and has the time at which the value is forgotten, as `until:MS`: what a task has read
//! lately it does not read again, also when the server has removed the key by then. Whatever else a key has, its value is remembered until the key ends: the id of
//! at-least-once, which may be a number, or the time alone, which former versions wrote.

use std::sync::Arc;

use clock::{Clock, SystemClock};
use resp::Value as Reply;
use topology::builder::Factory;
use topology::changes::StateKey;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Outgoing, Tuple};
use topology::definition::DEFAULT_STREAM;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::asking::{Ask, Asking, PIPELINE, Requests, Server, URL_OPTION};
use crate::convert::append_field;
use crate::counting::BY;
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};

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

/// As state of an exactly-once topology.
#[derive(Clone, Debug)]
struct Exactly {
    dedupe: Dedupe,
    keep_ms: u64,
    clock: Arc<dyn Clock>,
}

impl Bolt for Exactly {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.clock = context.clock_or(&self.clock);
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let mut key = self.dedupe.prefix.clone();
        append_field(tuple, &self.dedupe.by, &mut key)?;
        let place = StateKey::of_key(key.clone());
        let now_ms = self.clock.unix_ms().0;
        if out.get(&place)?.is_some_and(|kept| is_remembered(&kept, now_ms)) {
            return Ok(Outcome::Ack);
        }
        let until_ms = (now_ms + self.keep_ms).to_string();
        out.set(place, Some(format!("{UNTIL}{until_ms}").into()))?;
        out.command(vec!["PEXPIREAT".into(), key.into(), until_ms.into()])?;
        let (values, anchors) = (tuple.values().clone(), &[tuple.id()]);
        out.send(Outgoing { stream: DEFAULT_STREAM, values, anchors, direct: None })?;
        Ok(Outcome::Ack)
    }
}

/// Whether a value whose key has `kept` is remembered at a time.
fn is_remembered(kept: &[u8], now_ms: u64) -> bool {
    let until_ms =
        std::str::from_utf8(kept).ok().and_then(|text| text.strip_prefix(UNTIL)?.parse::<u64>().ok());
    until_ms.is_none_or(|until_ms| until_ms > now_ms)
}

/// What goes before the time at which a value is forgotten.
const UNTIL: &str = "until:";

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let server = Server::read(arguments)?;
    let (by, id, prefix) =
        (arguments.needed("--by")?, arguments.needed("--id")?, arguments.needed("--prefix")?.into_bytes());
    let reads = vec![by.clone(), id.clone()];
    let dedupe = Dedupe { prefix, by: by.clone(), id, keep_ms: arguments.needed("--keep-ms")? };
    let keep_ms = arguments.number("--keep-ms").unwrap_or_default();
    let exactly = Exactly { dedupe: dedupe.clone(), keep_ms, clock: Arc::new(SystemClock) };
    let factory = Factory::bolt(move || Asking::new(dedupe.clone(), server.clone()));
    let exact = Exact::Keyed(Factory::bolt(move || exactly.clone()), by);
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
    keeps: &[Keeps::Keys],
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Stand, tuple};
    use clock::{SimClock, UnixMs};
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
    #[test]
    fn with_exactly_once_a_value_is_state_until_its_time_is_over() {
        let clock = Arc::new(SimClock::new(UnixMs(1_000)));
        let dedupe = Dedupe {
            prefix: b"d:".to_vec(),
            by: "order".to_owned(),
            id: "id".to_owned(),
            keep_ms: "5".to_owned(),
        };
        let bolt = Exactly { dedupe, keep_ms: 5, clock: Arc::clone(&clock) as _ };
        let mut stand = Stand::bolt(bolt, &["id", "order"], &["id", "order"]);
        let order = |stand: &mut Stand<Exactly>, id: &str, order: &str| {
            stand.execute(&[Value::from(id), Value::from(order)]);
        };
        order(&mut stand, "1-0", "o1");
        order(&mut stand, "2-0", "o1");
        order(&mut stand, "3-0", "o2");
        assert_eq!(stand.record.emitted, [["1-0", "o1"], ["3-0", "o2"]]);
        assert_eq!(stand.record.commands, ["PEXPIREAT d:o1 1005", "PEXPIREAT d:o2 1005"]);
        clock.set_unix_ms(UnixMs(1_005));
        order(&mut stand, "4-0", "o1");
        assert_eq!(stand.record.emitted.last().map(|it| it[0].as_str()), Some("4-0"), "it was forgotten");
        stand.record.values.insert(StateKey::of_key("d:o3"), "7-0".into());
        order(&mut stand, "8-0", "o3");
        assert_eq!((stand.record.emitted.len(), stand.record.acked.len()), (3, 5), "of at-least-once");
        assert_eq!(stand.record.values[&StateKey::of_key("d:o1")], "until:1010");
    }

    /// A numeric id was read as a time that is over, and the value forgotten.
    #[test]
    fn value_is_remembered_when_the_guarantee_changes_whatever_its_id_is() {
        for kept in ["17", "1700000000000", "7-0", "until:x", "1005"] {
            assert!(is_remembered(kept.as_bytes(), 1_700_000_000_001), "{kept}");
        }
        assert!(is_remembered(b"until:5", 4) && !is_remembered(b"until:5", 5));
    }
}
