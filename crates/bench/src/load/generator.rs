//! Groups of connections that get or set keys, in a closed loop or at a fixed rate, for the suite's latencies; and the filling with keys.
//!
//! A thin face of the load engine ([`crate::drive`]). An error reply, a nil where a value was stored, or a broken connection
//! makes the run invalid, and here that is the end of it.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Failure;
use crate::drive::{
    Action, Fleet, FleetOptions, Group as Driven, GroupOutcome, KeyForm, Keys, Limit, Pick, Target, Work,
};

/// Connections that do the same; in text `get|set:CONNECTIONS:FIRST-END[@PER_SECOND]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// GET or SET.
    pub is_set: bool,
    /// Connections.
    pub connections: usize,
    /// The keys it works on, drawn evenly.
    pub keys: Range<u64>,
    /// Requests a second of the whole group, or none for a closed loop.
    pub per_second: Option<u64>,
}

/// Drives `port` with `groups` for `duration` after a tenth of it as warm-up; latencies of each group in ns.
///
/// # Errors
/// A reply is an error, or not what was stored, or a connection broke: the run is invalid.
pub fn run(port: u16, groups: &[Group], duration: Duration) -> Result<Vec<Histogram<u64>>, Failure> {
    let connections = groups.iter().map(|group| group.connections).sum();
    let mut fleet = Fleet::open(&Target::local(port), &FleetOptions::new(connections))?;
    let driven = |length| groups.iter().map(|group| group.driven(length)).collect();
    let mut measure = |length| {
        let outcome = fleet.measure(driven(length), Duration::from_secs(1))?;
        match outcome.total().tally.missing {
            0 => Ok(outcome),
            missing => Err(format!("invalid run: {missing} keys are missing")),
        }
    };
    measure(duration / 10)?;
    Ok(measure(duration)?.groups.iter().map(GroupOutcome::histogram).collect())
}

/// SETs `keys`, named as redis-benchmark names them, to values of `value_bytes`, in order: 256 are under way on one connection.
///
/// # Errors
/// A reply is an error, or the connection broke.
pub fn fill(target: &Target, keys: Range<u64>, value_bytes: usize) -> Result<(), Failure> {
    let count = keys.end.saturating_sub(keys.start);
    let keys = Keys { first: keys.start, count, pick: Pick::Sequence, form: KeyForm::Benchmark };
    let work = Work::new(Action::Write, keys, value_bytes);
    let limit = Limit::Requests(count);
    let group = Driven { work, connections: 1, depth: 256, limit, per_second: None };
    let mut fleet = Fleet::open(target, &FleetOptions::new(1))?;
    fleet.measure(vec![group], Duration::from_secs(1)).map(drop)
}

impl Group {
    fn driven(&self, length: Duration) -> Driven {
        let Range { start: first, end } = self.keys;
        let keys = Keys { first, count: end - first, pick: Pick::Random, form: KeyForm::Benchmark };
        let action = if self.is_set { Action::Write } else { Action::Read };
        let work = Work { value_count: VALUE_COUNT, ..Work::new(action, keys, VALUE_BYTES) };
        let per_second = self.per_second.map(|rate| rate as f64);
        Driven { work, connections: self.connections, depth: 1, limit: Limit::For(length), per_second }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { is_set, connections, keys, per_second } = self;
        write!(f, "{}:{connections}:{}-{}", if *is_set { "set" } else { "get" }, keys.start, keys.end)?;
        per_second.map_or(Ok(()), |rate| write!(f, "@{rate}"))
    }
}

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split([':', '-', '@']).collect();
        let number = |index: usize| parts.get(index).and_then(|part| part.parse::<u64>().ok());
        let group = || {
            let is_set = match parts[0] {
                "set" => true,
                "get" => false,
                _ => return None,
            };
            let connections = usize::try_from(number(1)?).ok().filter(|connections| *connections > 0)?;
            let (keys, per_second) = (number(2)?..number(3)?, number(4));
            let is_whole = !keys.is_empty() && (parts.len() == 4 || per_second.is_some());
            is_whole.then_some(Self { is_set, connections, keys, per_second })
        };
        group().ok_or_else(|| "want get|set:CONNECTIONS:FIRST-END[@PER_SECOND]".to_owned())
    }
}

const VALUE_BYTES: usize = 100;
/// Hardly any value is written twice in a row.
const VALUE_COUNT: u64 = 1 << 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_read_as_it_is_written() {
        for text in ["get:45:0-100000", "set:5:100000-200000@5000"] {
            assert_eq!(text.parse::<Group>().map(|group| group.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "del:1:0-1", "get:0:0-1", "get:1:5-5", "get:1:0", "set:1:0-1@x"] {
            assert!(text.parse::<Group>().is_err(), "{text}");
        }
    }
}
