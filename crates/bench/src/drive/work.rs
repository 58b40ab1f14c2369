//! What connections are asked to do, as data: it is also what worker processes are told.

use std::time::Duration;

use resp::Value;
use serde::{Deserialize, Serialize};

use super::script::Expected;
use connection::Protocol;

/// Groups of connections that start together; over when all of them are done.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Phase {
    /// Who does what; connections are dealt to groups in order.
    pub groups: Vec<Group>,
    /// An unanswered request ends its connection after this; zero: never.
    pub request_timeout: Duration,
    /// Length of a row of the time series.
    pub interval: Duration,
}

/// Connections that do the same.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Group {
    /// What they do.
    pub work: Work,
    /// How many they are.
    pub connections: usize,
    /// Requests under way on each.
    pub depth: usize,
    /// When they are done.
    pub limit: Limit,
    /// Requests a second of the whole group, at times fixed in advance; `None`: a closed loop.
    pub per_second: Option<f64>,
}

/// When a group is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Limit {
    /// After so many requests of all its connections together.
    Requests(u64),
    /// After so many requests of each connection.
    Each(u64),
    /// When nothing is sent any more that was due later than this after the start.
    For(Duration),
}

/// What is done with which keys and values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Work {
    /// The commands.
    pub action: Action,
    /// The keys.
    pub keys: Keys,
    /// Length of a value in bytes.
    pub value_bytes: usize,
    /// Values that a key may have; 1: always the same.
    pub value_count: u64,
    /// Compare values that are read with what was written; only with a value count of 1.
    pub verify: bool,
    /// Share of reads that go to a key which was read before, of a sequence of keys.
    pub percent_cached: u8,
}

impl Work {
    /// Requests with values that are always the same for a key, and that nobody looks at.
    #[must_use]
    pub fn new(action: Action, keys: Keys, value_bytes: usize) -> Self {
        Self { action, keys, value_bytes, value_count: 1, verify: false, percent_cached: 0 }
    }
}

/// The commands of a connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Action {
    /// SET.
    Write,
    /// DEL, whose reply says whether the key was there.
    Delete,
    /// GET.
    Read,
    /// GET and SET by turns.
    Mixed,
    /// SET with this probability, otherwise GET.
    Map(f64),
    /// MGET of so many keys.
    MultiGet(usize),
    /// These bytes, which are whole requests with one reply: AUTH, SELECT.
    Send(String),
    /// XREADGROUP of one new entry, as a consumer of its own in `group`, and then XACK of that entry. At the end of the stream the first
    /// connection has the group begin anew.
    Consume {
        /// Key of the stream.
        stream: String,
        /// Its group, which is there.
        group: String,
    },
    /// SET of values of `churned_bytes` (60 %), GET (25 %), DEL (10 %), and EXPIRE within a minute (5 %).
    Churn,
    /// One request, in whose bytes each run of `#` stands for the last digits of the key's number: one number for all of a request.
    Numbered(String),
}

/// Which keys, and how they are spelled.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Keys {
    /// Number of the first.
    pub first: u64,
    /// How many there are.
    pub count: u64,
    /// How a request gets its key.
    pub pick: Pick,
    /// How the number is spelled.
    pub form: KeyForm,
}

/// How a request gets its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pick {
    /// One after the other: each once before any comes again.
    Sequence,
    /// Any.
    Random,
    /// Each connection has a part of the keys for itself, and takes any of it.
    Local,
    /// All take the first.
    Single,
}

/// How a key's number is spelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum KeyForm {
    /// In decimal.
    Decimal,
    /// In decimal, with zeros before it up to this length.
    Padded(usize),
    /// As redis-benchmark does: `key:` and twelve digits.
    Benchmark,
}

/// What a reply is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Op {
    /// Bytes of the value.
    Write(usize),
    Delete,
    /// The key's number.
    Read(u64),
    Any,
    /// What is sent next depends on its reply.
    Entry,
    /// A capture's.
    Recorded(Expected),
}

/// Turns requests into bytes.
#[derive(Debug)]
pub(super) struct Encoder {
    work: Work,
    values: Values,
    /// Connections among which `Pick::Local` divides the keys.
    connections: u64,
    pub(super) protocol: Protocol,
}

impl Encoder {
    pub(super) fn new(group: &Group, protocol: Protocol) -> Self {
        let values = Values::new(group.work.value_bytes);
        Self { work: group.work.clone(), values, connections: group.connections.max(1) as u64, protocol }
    }

    /// Appends the group's request number `index`, sent by its connection number `connection`.
    pub(super) fn encode(&self, out: &mut Vec<u8>, index: u64, connection: u64, random: &mut Random) -> Op {
        let work = &self.work;
        match &work.action {
            Action::Write => self.set(out, self.key(index, connection, random), random),
            Action::Delete => {
                self.put_one(out, b"*2\r\n$3\r\nDEL\r\n", b"delete ", self.key(index, connection, random));
                Op::Delete
            }
            Action::Read => self.get(out, self.read_key(index, connection, random)),
            Action::Mixed if index.is_multiple_of(2) => {
                self.get(out, self.read_key(index, connection, random))
            }
            Action::Mixed => self.set(out, self.key(index, connection, random), random),
            Action::Map(puts) => {
                let number = self.key(index, connection, random);
                if random.unit() < *puts { self.set(out, number, random) } else { self.get(out, number) }
            }
            Action::MultiGet(count) => {
                self.multi_get(out, (0..*count).map(|_| self.key(index, connection, random)));
                Op::Any
            }
            Action::Send(bytes) => {
                put(out, bytes.as_bytes());
                Op::Any
            }
            Action::Consume { stream, group } => {
                let mut writer = resp::Writer::new(out, false);
                writer.array(9);
                for word in [b"XREADGROUP".as_slice(), b"GROUP", group.as_bytes()] {
                    writer.bulk(word);
                }
                writer.bulk(itoa::Buffer::new().format(connection).as_bytes());
                for word in [b"COUNT".as_slice(), b"1", b"STREAMS", stream.as_bytes(), b">"] {
                    writer.bulk(word);
                }
                Op::Entry
            }
            Action::Churn => self.churn(out, self.key(index, connection, random), random),
            Action::Numbered(bytes) => {
                let start = out.len();
                put(out, bytes.as_bytes());
                number_runs(&mut out[start..], self.key(index, connection, random));
                Op::Any
            }
        }
    }

    /// What connection `connection` sends after this reply to an [`Op::Entry`]: nothing if it was an error.
    pub(super) fn follow_up(&self, reply: &[u8], connection: u64) -> Option<Vec<u8>> {
        let Action::Consume { stream, group } = &self.work.action else { return None };
        let mut out = Vec::new();
        match resp::decode_value(reply) {
            Ok(Some((Value::Error(_), _))) => return None,
            Ok(Some((streams, _))) => match entry_id(streams) {
                Some(id) => {
                    resp::encode_command(&mut out, &[b"XACK", stream.as_bytes(), group.as_bytes(), &id]);
                }
                None if connection == 0 => {
                    resp::encode_command(&mut out, &["XGROUP", "SETID", stream, group, "0"]);
                }
                None => return None,
            },
            _ => return None,
        }
        Some(out)
    }

    /// Whether `value` is what key `number` was given.
    pub(super) fn is_value_of(&self, number: u64, value: &[u8]) -> bool {
        !self.work.verify || value == self.values.of(number)
    }

    fn key(&self, index: u64, connection: u64, random: &mut Random) -> u64 {
        let Keys { first, count, pick, .. } = self.work.keys;
        first
            + match pick {
                Pick::Sequence => index % count,
                Pick::Random => random.below(count),
                Pick::Local => {
                    let share = (count / self.connections).max(1);
                    (connection * share + random.below(share)) % count
                }
                Pick::Single => 0,
            }
    }

    fn read_key(&self, index: u64, connection: u64, random: &mut Random) -> u64 {
        let before = index % self.work.keys.count;
        if before > 0 && random.below(100) < u64::from(self.work.percent_cached) {
            return self.work.keys.first + random.below(before);
        }
        self.key(index, connection, random)
    }

    fn get(&self, out: &mut Vec<u8>, number: u64) -> Op {
        self.put_one(out, b"*2\r\n$3\r\nGET\r\n", b"get ", number);
        Op::Read(number)
    }

    fn multi_get(&self, out: &mut Vec<u8>, numbers: impl ExactSizeIterator<Item = u64>) {
        match self.protocol {
            Protocol::Resp => {
                put(out, format!("*{}\r\n$4\r\nMGET\r\n", numbers.len() + 1).as_bytes());
                numbers.for_each(|number| self.put_key(out, number));
            }
            Protocol::Memcached => {
                put(out, b"get");
                for number in numbers {
                    put(out, b" ");
                    self.put_key(out, number);
                }
                put(out, b"\r\n");
            }
        }
    }

    /// A request of one key: how it begins, in each protocol, and the key.
    fn put_one(&self, out: &mut Vec<u8>, resp: &[u8], memcached: &[u8], number: u64) {
        match self.protocol {
            Protocol::Resp => {
                put(out, resp);
                self.put_key(out, number);
            }
            Protocol::Memcached => {
                put(out, memcached);
                self.put_key(out, number);
                put(out, b"\r\n");
            }
        }
    }

    fn set(&self, out: &mut Vec<u8>, number: u64, random: &mut Random) -> Op {
        let variant = if self.work.value_count > 1 { random.below(self.work.value_count) } else { number };
        self.set_to(out, number, self.values.of(variant))
    }

    fn churn(&self, out: &mut Vec<u8>, number: u64, random: &mut Random) -> Op {
        match random.below(100) {
            0..60 => {
                let bytes = churned_bytes(random.unit()).min(self.work.value_bytes);
                self.set_to(out, number, &self.values.of(number)[..bytes])
            }
            60..85 => self.get(out, number),
            85..95 => {
                self.put_one(out, b"*2\r\n$3\r\nDEL\r\n", b"delete ", number);
                Op::Delete
            }
            _ => {
                put(out, b"*3\r\n$6\r\nEXPIRE\r\n");
                self.put_key(out, number);
                let seconds = 1 + random.below(CHURNED_EXPIRY_S_MAX);
                resp::Writer::new(out, false).bulk(itoa::Buffer::new().format(seconds).as_bytes());
                Op::Any
            }
        }
    }

    fn set_to(&self, out: &mut Vec<u8>, number: u64, value: &[u8]) -> Op {
        match self.protocol {
            Protocol::Resp => {
                put(out, b"*3\r\n$3\r\nSET\r\n");
                self.put_key(out, number);
                resp::Writer::new(out, false).bulk(value);
            }
            Protocol::Memcached => {
                put(out, b"set ");
                self.put_key(out, number);
                // Flags and the time of expiry, neither of which is used, and the length.
                put(out, b" 0 0 ");
                put(out, itoa::Buffer::new().format(value.len()).as_bytes());
                put(out, b"\r\n");
                put(out, value);
                put(out, b"\r\n");
            }
        }
        Op::Write(value.len())
    }

    /// The key as an argument of RESP, or bare.
    fn put_key(&self, out: &mut Vec<u8>, number: u64) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number).as_bytes();
        let (prefix, width) = match self.work.keys.form {
            KeyForm::Decimal => (&b""[..], digits.len()),
            KeyForm::Padded(width) => (&b""[..], width.max(digits.len())),
            KeyForm::Benchmark => (&b"key:"[..], 12.max(digits.len())),
        };
        let is_resp = self.protocol == Protocol::Resp;
        if is_resp {
            out.push(b'$');
            put(out, itoa::Buffer::new().format(prefix.len() + width).as_bytes());
            put(out, b"\r\n");
        }
        put(out, prefix);
        out.resize(out.len() + width - digits.len(), b'0');
        put(out, digits);
        if is_resp {
            put(out, b"\r\n");
        }
    }
}

/// The id of the first entry of the first stream in a reply of XREADGROUP.
fn entry_id(streams: Value) -> Option<Vec<u8>> {
    let first = |value: Value, index: usize| match value {
        Value::Array(values) => values.into_iter().nth(index),
        _ => None,
    };
    let entries = first(first(streams, 0)?, 1)?;
    match first(first(entries, 0)?, 0)? {
        Value::Bulk(id) => Some(id),
        _ => None,
    }
}

/// Writes the last digits of `number` over each run of `#`.
fn number_runs(bytes: &mut [u8], number: u64) {
    let mut rest = number;
    for byte in bytes.iter_mut().rev() {
        if *byte == b'#' {
            *byte = b'0' + (rest % 10) as u8;
            rest /= 10;
        } else {
            rest = number;
        }
    }
}

fn put(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(bytes);
}

/// The size of a value of [`Action::Churn`] for a `share` from 0 to 1: 16 B to 64 KiB, each doubling as likely as any other.
fn churned_bytes(share: f64) -> usize {
    (CHURNED_BYTES_MIN * (CHURNED_BYTES_MAX as f64 / CHURNED_BYTES_MIN).powf(share)).round() as usize
}

/// Values that do not compress: parts of one random text, a different one for each number.
#[derive(Debug)]
struct Values {
    text: Vec<u8>,
    bytes: usize,
}

impl Values {
    fn new(bytes: usize) -> Self {
        Self { text: crate::client::value(1, START_COUNT as usize + bytes), bytes }
    }

    fn of(&self, number: u64) -> &[u8] {
        let start = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) % START_COUNT;
        &self.text[start as usize..][..self.bytes]
    }
}

const CHURNED_BYTES_MIN: f64 = 16.0;
pub(crate) const CHURNED_BYTES_MAX: usize = 65_536;
/// The mean of what `churned_bytes` returns: (most - least) / ln(most / least).
pub(crate) const CHURNED_BYTES_MEAN: u64 = 7_877;
const CHURNED_EXPIRY_S_MAX: u64 = 60;
/// Places where a value may start in the text.
const START_COUNT: u64 = 16 << 10;

/// A small generator (xorshift64*), one for each connection.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `bound`, evenly enough.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number from 0 to 1, 1 excluded.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn work(action: Action, pick: Pick) -> Work {
        let keys = Keys { first: 100, count: 10, pick, form: KeyForm::Decimal };
        Work { action, keys, value_bytes: 8, value_count: 1, verify: true, percent_cached: 0 }
    }

    #[test]
    fn churned_sizes_are_log_uniform_and_their_mean_is_as_stated() {
        let sizes = [0.0, 0.5, 1.0].map(churned_bytes);
        assert_eq!(sizes, [16, 1_024, CHURNED_BYTES_MAX]);
        let mut random = Random::new(1);
        let sum: usize = (0..100_000).map(|_| churned_bytes(random.unit())).sum();
        assert!((sum as u64 / 100_000).abs_diff(CHURNED_BYTES_MEAN) < 200, "{sum}");
    }

    #[test]
    fn churn_mixes_four_commands_whose_values_are_as_long_as_is_counted() {
        let encoder =
            encoder(Work::new(Action::Churn, work(Action::Read, Pick::Random).keys, CHURNED_BYTES_MAX), 1);
        let (mut random, mut seen) = (Random::new(7), [0; 4]);
        for index in 0..2_000 {
            let mut out = Vec::new();
            let op = encoder.encode(&mut out, index, 0, &mut random);
            let Ok(Some((Value::Array(words), length))) = resp::decode_value(&out) else { panic!("{out:?}") };
            assert_eq!(length, out.len());
            match (&words[..], op) {
                ([_, _, Value::Bulk(value)], Op::Write(bytes)) if value.len() == bytes => seen[0] += 1,
                ([_, _], Op::Read(_)) => seen[1] += 1,
                ([_, _], Op::Delete) => seen[2] += 1,
                ([_, _, _], Op::Any) => seen[3] += 1,
                other => panic!("{other:?}"),
            }
        }
        let [set, get, del, expire] = seen;
        assert!(set > get && get > del && del > expire && expire > 50, "{seen:?}");
    }

    fn encoder(work: Work, connections: usize) -> Encoder {
        speaking(Protocol::Resp, work, connections)
    }

    fn speaking(protocol: Protocol, work: Work, connections: usize) -> Encoder {
        let group = Group { work, connections, depth: 1, limit: Limit::Requests(1), per_second: None };
        Encoder::new(&group, protocol)
    }

    fn text(encoder: &Encoder, index: u64, connection: u64) -> (String, Op) {
        let mut out = Vec::new();
        let op = encoder.encode(&mut out, index, connection, &mut Random::new(index + 1));
        (String::from_utf8(out).expect("printable"), op)
    }

    #[test]
    fn sequence_takes_each_key_once() {
        let deletes = encoder(work(Action::Delete, Pick::Sequence), 1);
        assert_eq!(text(&deletes, 3, 0), ("*2\r\n$3\r\nDEL\r\n$3\r\n103\r\n".to_owned(), Op::Delete));
        assert_eq!(text(&deletes, 13, 0).0, text(&deletes, 3, 0).0);
    }

    #[test]
    fn value_is_recognised_and_another_ones_is_not() {
        let writes = encoder(work(Action::Write, Pick::Sequence), 1);
        let value = |index| text(&writes, index, 0).0.split("\r\n").nth(6).expect("a value").to_owned();
        assert!(writes.is_value_of(104, value(4).as_bytes()));
        assert!(!writes.is_value_of(104, value(5).as_bytes()));
    }

    #[test]
    fn local_keys_belong_to_one_connection() {
        let reads = encoder(work(Action::Read, Pick::Local), 5);
        for index in 0..100 {
            let Op::Read(number) = text(&reads, index, index % 5).1 else { panic!("a read") };
            assert_eq!((number - 100) / 2, index % 5);
        }
    }

    #[test]
    fn keys_are_spelled_as_asked() {
        for (form, key) in [
            (KeyForm::Padded(20), "$20\r\n00000000000000000100\r\n"),
            (KeyForm::Benchmark, "$16\r\nkey:000000000100\r\n"),
        ] {
            let mut single = work(Action::Read, Pick::Single);
            single.keys.form = form;
            assert_eq!(text(&encoder(single, 1), 7, 0).0, format!("*2\r\n$3\r\nGET\r\n{key}"));
        }
    }

    #[test]
    fn runs_of_a_numbered_request_have_the_last_digits_of_one_number() {
        let action = Action::Numbered("SADD set:## element:######".to_owned());
        assert_eq!(
            text(&encoder(work(action, Pick::Sequence), 1), 7, 0),
            ("SADD set:07 element:000107".to_owned(), Op::Any)
        );
    }

    #[test]
    fn entry_that_was_read_is_acknowledged_and_at_the_end_the_first_connection_begins_anew() {
        let action = Action::Consume { stream: "s".to_owned(), group: "g".to_owned() };
        let consume = encoder(work(action, Pick::Sequence), 2);
        let (read, op) = text(&consume, 0, 1);
        assert!(
            read.starts_with("*9\r\n$10\r\nXREADGROUP\r\n$5\r\nGROUP\r\n$1\r\ng\r\n$1\r\n1\r\n"),
            "{read}"
        );
        assert_eq!(op, Op::Entry);
        let next = |reply: &str, connection| {
            let bytes = consume.follow_up(reply.as_bytes(), connection)?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let entry = "*1\r\n*2\r\n$1\r\ns\r\n*1\r\n*2\r\n$3\r\n7-1\r\n*2\r\n$1\r\nf\r\n$1\r\nv\r\n";
        let acknowledged = "*4\r\n$4\r\nXACK\r\n$1\r\ns\r\n$1\r\ng\r\n$3\r\n7-1\r\n";
        assert_eq!(next(entry, 1).as_deref(), Some(acknowledged));
        let anew = "*5\r\n$6\r\nXGROUP\r\n$5\r\nSETID\r\n$1\r\ns\r\n$1\r\ng\r\n$1\r\n0\r\n";
        assert_eq!((next("*-1\r\n", 0).as_deref(), next("*-1\r\n", 1)), (Some(anew), None));
        assert_eq!(next("-NOGROUP no\r\n", 0), None);
    }

    #[test]
    fn memcached_is_asked_in_its_own_words() {
        let memcached =
            |action| text(&speaking(Protocol::Memcached, work(action, Pick::Sequence), 1), 3, 0).0;
        assert_eq!(memcached(Action::Read), "get 103\r\n");
        assert_eq!(memcached(Action::Delete), "delete 103\r\n");
        assert_eq!(memcached(Action::MultiGet(2)), "get 103 103\r\n");
        let set = memcached(Action::Write);
        let value = set.strip_prefix("set 103 0 0 8\r\n").and_then(|rest| rest.strip_suffix("\r\n"));
        let read = speaking(Protocol::Memcached, work(Action::Read, Pick::Sequence), 1);
        assert!(value.is_some_and(|value| read.is_value_of(103, value.as_bytes())), "{set}");
    }

    #[test]
    fn random_numbers_reach_every_key_about_as_often() {
        let mut counts = [0u32; 10];
        let mut random = Random::new(7);
        (0..100_000).for_each(|_| counts[random.below(10) as usize] += 1);
        assert!(counts.iter().all(|count| (9_000..11_000).contains(count)), "{counts:?}");
    }
}
