//! Entries of a stream: their ids, and the values that become a tuple.

use std::collections::VecDeque;

use clock::UnixMs;
use topology::component::{Backlog, Fault, SpoutOut};
use topology::definition::DEFAULT_STREAM;
use topology::tracker::Position;
use topology::value::{Value, ValueError};
use topology::values::Values;

use crate::convert::text_value;

/// What an entry has: names and values in turn.
pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;

/// An entry that is to be emitted.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: u128,
    pub(super) values: Result<Values, ValueError>,
}

/// What of an entry is a field of the tuple.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Its id.
    Id,
    /// The field of this name; null if it has none.
    Field(String),
}

impl Wanted {
    /// The field of this name; `id` is the entry's.
    pub(super) fn named(name: &str) -> Self {
        if name == "id" { Self::Id } else { Self::Field(name.to_owned()) }
    }
}

/// What of an entry becomes the fields that are `declared`: those that are `chosen`, in their order, or else those of the same names.
pub(crate) fn wanted(chosen: Option<&[String]>, declared: &[String]) -> Vec<Wanted> {
    let chosen = |place| chosen.and_then(|fields| fields.get(place));
    declared.iter().enumerate().map(|(place, name)| Wanted::named(chosen(place).unwrap_or(name))).collect()
}

impl Entry {
    pub(super) fn new(id: u128, fields: &Fields, wanted: &[Wanted]) -> Self {
        let value = |wanted: &Wanted| match wanted {
            Wanted::Id => Value::Str(shown(id).into()),
            Wanted::Field(name) => {
                let field = fields.iter().find(|(field, _)| field == name.as_bytes());
                field.map_or(Value::Null, |(_, value)| text_value(value))
            }
        };
        let values: Vec<Value<'_>> = wanted.iter().map(value).collect();
        Self { id, values: Values::encode(&values) }
    }
}

/// Emits what waits of the stream at `key`, as far as there is room.
///
/// # Errors
/// An entry that is no tuple, which is left out.
pub(super) fn emit(waiting: &mut VecDeque<Entry>, key: &str, out: &mut SpoutOut<'_>) -> Result<(), Fault> {
    while out.room() > 0
        && let Some(Entry { id, values }) = waiting.pop_front()
    {
        let sent = values
            .map_err(Fault::from)
            .and_then(|values| out.send(DEFAULT_STREAM, Position(id), values, None).map_err(Fault::from));
        if let Err(fault) = sent {
            return Err(Fault::new(format!("entry {} of `{key}`: {}", shown(id), fault.error())));
        }
    }
    Ok(())
}

/// What of the stream is not emitted, if there is a connection. The server makes ids of the time; while nothing waits here, it is asked for more.
pub(super) fn backlog(life: Option<u64>, waiting: &VecDeque<Entry>) -> Backlog {
    let oldest = waiting.iter().map(|entry| entry.id).min();
    match (life, oldest) {
        (None, None) => Backlog::Unknown,
        (Some(_), None) => Backlog::Nothing,
        (_, Some(id)) => Backlog::Since(UnixMs((id >> 64) as u64)),
    }
}

/// The id of an entry as a number that has its order.
#[must_use]
pub fn number(id: &[u8]) -> Option<u128> {
    let (milliseconds, sequence) = std::str::from_utf8(id).ok()?.split_once('-')?;
    let milliseconds: u64 = milliseconds.parse().ok()?;
    Some(u128::from(milliseconds) << 64 | u128::from(sequence.parse::<u64>().ok()?))
}

/// The number of an id, or of the first one of a time in milliseconds.
pub(super) fn number_or_time(text: &str) -> Option<u128> {
    number(text.as_bytes()).or_else(|| text.parse::<u64>().ok().map(|ms| u128::from(ms) << 64))
}

/// The id of a number.
pub(super) fn shown(id: u128) -> String {
    format!("{}-{}", id >> 64, id as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_numbers_in_their_order() {
        let id = number(b"1700000000000-18446744073709551615").expect("an id");
        assert_eq!(shown(id), "1700000000000-18446744073709551615");
        assert!(number(b"1-2") < number(b"2-0") && number(b"1-2") < number(b"1-10"));
        assert!(number(b"1").is_none() && number(b"x-1").is_none());
        assert_eq!((number_or_time("5"), number_or_time("5-1")), (Some(5 << 64), Some(5 << 64 | 1)));
    }

    #[test]
    fn backlog_is_as_old_as_the_oldest_entry_that_waits() {
        let entry = |id: &[u8]| Entry::new(number(id).expect("an id"), &Vec::new(), &[]);
        let waiting: VecDeque<Entry> = [b"1700-0", b"1600-9"].map(|id| entry(id)).into();
        assert_eq!(backlog(Some(1), &waiting), Backlog::Since(UnixMs(1_600)));
        assert_eq!(backlog(Some(1), &VecDeque::new()), Backlog::Nothing);
        assert_eq!(backlog(None, &VecDeque::new()), Backlog::Unknown);
    }

    #[test]
    fn values_are_those_that_are_wanted() {
        let fields = vec![(b"a".to_vec(), b"1".to_vec()), (b"b".to_vec(), vec![0xff])];
        let entry = Entry::new(5, &fields, &["b", "id", "c", "a"].map(Wanted::named));
        let expected = [Value::Bytes(vec![0xff].into()), "0-5".into(), Value::Null, "1".into()];
        assert_eq!(entry.values, Values::encode(&expected));
    }
}
