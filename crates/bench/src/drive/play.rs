//! The requests of a script: each connection sends its part in order, when it is due or when it may.
//!
//! Invariants
//!   1. A connection's requests are sent in the order in which they were recorded.
//!   2. At 1x or Nx what is due is sent, however much is unanswered, and a latency counts from when the request was due.
//!   3. At full speed a turn's requests are sent together, and the next turn when all of it is answered.
//!   4. An error that was recorded is expected; every other one is a failure.

use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use resp::Value;

use super::reply::Reply;
use super::script::{Expected, Script, Shows};
use super::source::Turn;
use super::tally::Tally;

/// How fast a script is played.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many times as fast as it was.
    Times(f64),
    /// As fast as the server answers.
    Max,
}

/// How a script is played.
#[derive(Clone, Debug)]
pub struct Playing {
    /// How fast.
    pub speed: Speed,
    /// An unanswered request ends its connection after this; zero: never.
    pub request_timeout: Duration,
    /// Length of a row of the time series.
    pub interval: Duration,
}

/// A script, and when it is played.
#[derive(Debug)]
pub(super) struct Play {
    pub(super) script: Arc<Script>,
    speed: Speed,
    /// When each turn is due, after the start in nanoseconds, and on which connection; empty at full speed.
    timeline: Vec<(u64, usize)>,
    pub(super) start: Nanos,
}

impl Play {
    /// Starts now.
    pub(super) fn new(script: &Arc<Script>, speed: Speed) -> Self {
        // Of a long capture it takes a while: the start is when it is there.
        let timeline = if speed == Speed::Max { Vec::new() } else { script.timeline() };
        Self { script: Arc::clone(script), speed, timeline, start: SystemClock.now() }
    }

    /// What connection `number` does next, which has sent `sent` requests; it is idle if all of them are answered.
    pub(super) fn turn(&self, number: u64, sent: u64, is_idle: bool, now: Nanos) -> Turn {
        let sends = &self.script.track(number as usize).sends;
        let Some(next) = sends.get(sent as usize) else { return Turn::Done };
        let due = match self.speed {
            Speed::Times(times) => self.due(next.due_ns, times),
            Speed::Max if is_idle || sends[sent as usize - 1].turn == next.turn => now,
            Speed::Max => return Turn::Wait,
        };
        if due <= now { Turn::Send(sent, due) } else { Turn::Wait }
    }

    /// When turns are due, and on which connections, in order.
    pub(super) fn plan(&self) -> Option<impl Iterator<Item = (Nanos, usize)>> {
        let Speed::Times(times) = self.speed else { return None };
        Some(self.timeline.iter().map(move |(due_ns, number)| (self.due(*due_ns, times), *number)))
    }

    /// When a request is played that was recorded `due_ns` after the start.
    fn due(&self, due_ns: u64, times: f64) -> Nanos {
        self.start + Duration::from_nanos((due_ns as f64 / times) as u64)
    }

    /// Appends request `index` of connection `number`.
    pub(super) fn encode(&self, out: &mut Vec<u8>, index: u64, number: u64) -> Expected {
        self.script.encode(out, &self.script.track(number as usize).sends[index as usize])
    }
}

impl Expected {
    /// Counts a reply, whose bytes these are; whether it is an answer, which is timed.
    pub(super) fn take(self, reply: &Reply<'_>, bytes: &[u8], tally: &mut Tally) -> bool {
        match (self.shows, reply) {
            (_, Reply::Error(_)) if self.fails => tally.errors_as_recorded += 1,
            (_, Reply::Error(text)) => tally.failures.error_reply(text),
            (Shows::One, Reply::Bulk(_)) => tally.found += 1,
            (Shows::One, Reply::Null) => tally.missing += 1,
            (Shows::Many, Reply::Other) => {
                if let Ok(Some((Value::Array(values), _))) = resp::decode_value(bytes) {
                    let missing = values.iter().filter(|value| **value == Value::Null).count() as u64;
                    tally.missing += missing;
                    tally.found += values.len() as u64 - missing;
                }
            }
            _ => {}
        }
        !self.is_ours && !matches!(reply, Reply::Error(_))
    }
}

/// A connection that has so many unanswered sends on when there are fewer; what is due meanwhile is late, and counted so.
pub(super) const UNDER_WAY_MAX: usize = 4_096;
