//! `window`: counts or sums by time, tumbling or sliding; each window is a hash of the server.
//!
//! A window begins at a multiple of `--slide-ms` and lasts `--size-ms`. The time is that of a field, so a tuple that comes late, or again after
//! a crash, finds its window. Each tuple emits the window's number as it is now; the hash has the last one, and ends `--keep-ms` after its last change.
//!
//! With exactly-once the hash is state: its numbers are set, and PEXPIRE is a command of the epoch, once for each window. A task does not notice that a
//! hash has ended: a tuple that comes after that counts on from the number that the task remembers, or from 0. Neither counts a tuple twice.

use resp::Value as Reply;
use topology::builder::Factory;
use topology::changes::StateKey;
use topology::component::{Bolt, BoltOut, Fault, Outcome, Tuple};
use topology::value::Value;
use topology::values::Values;

use crate::arguments::{Arguments, CommandError, Kind, Opt, Signature};
use crate::asking::{self, Ask, Asking, PIPELINE, Requests, Server, URL_OPTION};
use crate::convert::{append_field, number_value, text_value};
use crate::counting::{BY, added, increased, total};
use crate::row::{Emits, Exact, Keeps, Made, Reach, Row};

/// What is added up, and for which windows.
#[derive(Clone, Debug)]
struct Window {
    prefix: String,
    by: String,
    /// `None`: tuples are counted.
    field: Option<String>,
    time: String,
    size_ms: u64,
    slide_ms: u64,
    keep_ms: u64,
}

/// Of one tuple: the value, and where its windows begin.
type Kept = (Vec<u8>, Vec<u64>);

impl Window {
    /// Of a tuple: its value, what is added, and its windows.
    fn read(&self, tuple: &Tuple<'_>) -> Result<(Vec<u8>, String, Vec<u64>), Fault> {
        let mut value = Vec::new();
        append_field(tuple, &self.by, &mut value)?;
        let added = added(tuple, self.field.as_deref())?;
        Ok((value, added, starts(time_ms(tuple, &self.time)?, self.size_ms, self.slide_ms)))
    }

    fn key(&self, start: u64) -> String {
        format!("{}{start}", self.prefix)
    }
}

/// As state of an exactly-once topology.
#[derive(Clone, Debug)]
struct Exactly(Window);

impl Bolt for Exactly {
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let Self(window) = self;
        let (value, added, starts) = window.read(tuple)?;
        let places = starts.into_iter().map(|start| {
            let place = StateKey::of_field(window.key(start), value.clone());
            (start, place)
        });
        let totals =
            places.map(|(start, place)| increased(out, &place, &added).map(|total| (start, place, total)));
        // All are asked for before one is waited for.
        let totals: Vec<_> = totals.collect();
        for (start, place, total) in totals.into_iter().collect::<Result<Vec<_>, _>>()? {
            let keep_ms = window.keep_ms.to_string().into();
            out.command_once(vec!["PEXPIRE".into(), place.key.clone(), keep_ms])?;
            out.emit(&[Value::Int(start as i64), text_value(&value), number_value(&total)])?;
            out.set(place, Some(total.into()))?;
        }
        Ok(Outcome::Ack)
    }
}

/// When the windows begin that have `time_ms`, the oldest first.
pub(crate) fn starts(time_ms: u64, size_ms: u64, slide_ms: u64) -> Vec<u64> {
    let last = time_ms - time_ms % slide_ms;
    let starts = (0..size_ms.div_ceil(slide_ms)).filter_map(|back| last.checked_sub(back * slide_ms));
    let mut starts: Vec<u64> = starts.filter(|start| start + size_ms > time_ms).collect();
    starts.reverse();
    starts
}

/// The time in a field: milliseconds, or the id of an entry, which begins with them.
pub(crate) fn time_ms(tuple: &Tuple<'_>, field: &str) -> Result<u64, Fault> {
    let mut text = Vec::new();
    append_field(tuple, field, &mut text)?;
    let text = String::from_utf8_lossy(&text);
    let time = text.split_once('-').map_or(&*text, |(time, _)| time).parse().ok();
    time.filter(|time| *time <= TIME_MS_MAX).ok_or_else(|| {
        let shown: String = text.chars().take(100).collect();
        Fault::fatal(format!("field `{field}` is no time in milliseconds: `{shown}`"))
    })
}

impl Ask for Window {
    type Kept = Kept;

    fn request(&mut self, tuple: &Tuple<'_>, out: &mut Requests) -> Result<Kept, Fault> {
        let (value, added, starts) = self.read(tuple)?;
        let command = if self.field.is_some() { "HINCRBYFLOAT" } else { "HINCRBY" };
        for start in &starts {
            let (key, keep) = (self.key(*start), self.keep_ms.to_string());
            out.push(&[command.as_bytes(), key.as_bytes(), &value, added.as_bytes()]);
            out.push(&[&b"PEXPIRE"[..], key.as_bytes(), keep.as_bytes()]);
        }
        Ok((value, starts))
    }

    fn reply(
        &mut self,
        (value, starts): &mut Kept,
        place: usize,
        reply: Reply,
    ) -> Result<Option<Values>, Fault> {
        if !place.is_multiple_of(2) {
            return Ok(None);
        }
        let start = starts.get(place / 2).map_or(Value::Null, |start| Value::Int(*start as i64));
        asking::values(&[start, text_value(value), total(reply)?])
    }
}

/// How far windows of `size_ms` are apart.
///
/// # Errors
/// They would not cover the time, or a tuple would be in too many.
pub(crate) fn slide_ms(arguments: &Arguments, size_ms: u64) -> Result<u64, CommandError> {
    let slide_ms = arguments.number("--slide-ms").unwrap_or(size_ms);
    if slide_ms > size_ms || size_ms.div_ceil(slide_ms) > WINDOWS_MAX {
        return Err(format!(
            "--slide-ms {slide_ms} does not fit --size-ms {size_ms}: a tuple is in 1 to {WINDOWS_MAX} windows"
        )
        .into());
    }
    Ok(slide_ms)
}

fn make(arguments: &Arguments) -> Result<Made, CommandError> {
    let server = Server::read(arguments)?;
    let (prefix, by, time) =
        (arguments.needed("--prefix")?, arguments.needed("--by")?, arguments.needed("--time")?);
    let size_ms: u64 = arguments.needed("--size-ms")?.parse().unwrap_or(1);
    let slide_ms = slide_ms(arguments, size_ms)?;
    let keep_ms = arguments.number("--keep-ms").unwrap_or_default();
    let field = arguments.text("--field").map(str::to_owned);
    let reads = [by.clone(), time.clone()].into_iter().chain(field.clone()).collect();
    let window = Window { prefix, by: by.clone(), field, time, size_ms, slide_ms, keep_ms };
    let exactly = Exactly(window.clone());
    let factory = Factory::bolt(move || Asking::new(window.clone(), server.clone()));
    let emits = Emits::Values(3..=3, "the window's start in milliseconds, the value and its number");
    let exact = Exact::Keyed(Factory::bolt(move || exactly.clone()), by);
    Ok(Made { factory, reads, reach: Reach::Server, emits, exact })
}

/// The year 10,000: sums of times do not overflow.
const TIME_MS_MAX: u64 = 253_402_300_800_000;
const DAY_MS: u64 = 86_400_000;
pub(crate) const WINDOWS_MAX: u64 = 100;
const OPTIONS: &[Opt] = &[
    Opt {
        name: "--prefix",
        value: Kind::Text,
        default: "",
        what: "each window is the hash of this prefix and its start; needed",
    },
    BY,
    Opt {
        name: "--field",
        value: Kind::Text,
        default: "",
        what: "field with the number that is added up; without it tuples are counted",
    },
    Opt {
        name: "--time",
        value: Kind::Text,
        default: "",
        what: "field with the time in ms since 1970, or with an entry's id; needed",
    },
    Opt {
        name: "--size-ms",
        value: Kind::Number(1, 366 * DAY_MS),
        default: "",
        what: "length of a window (ms); needed",
    },
    Opt {
        name: "--slide-ms",
        value: Kind::Number(1, 366 * DAY_MS),
        default: "",
        what: "time between the starts of two windows (ms); without it they do not overlap",
    },
    Opt {
        name: "--keep-ms",
        value: Kind::Number(1, 3_660 * DAY_MS),
        default: "86400000",
        what: "time that a window is kept after its last change (ms)",
    },
    URL_OPTION,
    PIPELINE,
];

/// Its row of the table.
pub(crate) const ROW: Row = Row {
    name: "window",
    what: "counts or adds up by windows of time; emits the window's start, the value and its number",
    signature: Signature { words: "", words_count: (0, 0), options: OPTIONS },
    keeps: &[Keeps::Keys],
    make,
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Stand, made, tuple};

    fn window(size_ms: u64, slide_ms: u64) -> Window {
        let [prefix, by, time] = ["w:", "word", "t"].map(str::to_owned);
        Window { prefix, by, field: None, time, size_ms, slide_ms, keep_ms: 1_000 }
    }

    #[test]
    fn tuple_is_in_the_windows_that_have_its_time() {
        assert_eq!(starts(119, 60, 60), [60]);
        assert_eq!(starts(120, 60, 60), [120]);
        assert_eq!(starts(125, 60, 20), [80, 100, 120]);
        assert_eq!(starts(5, 60, 20), [0], "none begins before 1970");
        assert_eq!(starts(99, 50, 20), [60, 80]);
        assert_eq!(starts(105, 50, 20), [60, 80, 100]);
    }

    #[test]
    fn each_window_is_a_hash_that_ends_and_its_number_is_emitted() {
        let (mut window, mut out) = (window(60, 60), Requests::default());
        let values = [Value::from("a"), Value::from("65-3")];
        let mut kept =
            tuple(&["word", "t"], &values, |tuple| window.request(tuple, &mut out)).expect("it fits");
        let expected = b"*4\r\n$7\r\nHINCRBY\r\n$4\r\nw:60\r\n$1\r\na\r\n$1\r\n1\r\n*3\r\n$7\r\nPEXPIRE\r\n$4\r\nw:60\r\n$4\r\n1000\r\n";
        assert_eq!(out.bytes(), expected);
        let emitted = window.reply(&mut kept, 0, Reply::Integer(4)).expect("a number").expect("a tuple");
        let expected = Values::encode(&[Value::from(60), Value::from("a"), Value::from(4)]);
        assert_eq!(emitted, expected.expect("they fit"));
        assert_eq!(window.reply(&mut kept, 1, Reply::Integer(1)), Ok(None));
    }

    #[test]
    fn with_exactly_once_numbers_are_state_and_hashes_end() {
        let mut stand = Stand::bolt(Exactly(window(60, 30)), &["word", "t"], &["start", "word", "count"]);
        for (word, time) in [("a", "65-3"), ("a", "80"), ("b", "95")] {
            stand.execute(&[Value::from(word), Value::from(time)]);
        }
        let record = &stand.record;
        let emitted: Vec<String> = record.emitted.iter().map(|values| values.join(" ")).collect();
        assert_eq!(emitted, ["30 a 1", "60 a 1", "30 a 2", "60 a 2", "60 b 1", "90 b 1"]);
        assert_eq!(record.commands, ["PEXPIRE w:30 1000", "PEXPIRE w:60 1000", "PEXPIRE w:90 1000"]);
        assert_eq!((record.values.len(), record.acked.len()), (4, 3));
        assert_eq!(record.values[&StateKey::of_field("w:60", "a")], "2");
    }

    #[test]
    fn times_and_slides_that_cannot_be_are_refused() {
        let values = [Value::from("a"), Value::from("soon")];
        let fault =
            tuple(&["word", "t"], &values, |tuple| window(60, 60).request(tuple, &mut Requests::default()));
        assert_eq!(fault.expect_err("refused").error(), "field `t` is no time in milliseconds: `soon`");
        let refused = |text| made(&ROW, text).expect_err("refused");
        assert!(
            refused("--prefix w: --by word --time t --size-ms 10 --slide-ms 20").contains("does not fit")
        );
        assert!(refused("--prefix w: --by word --time t").contains("`--size-ms` is missing"));
    }
}
