//! What a loop records for a group, between two looks of who collects it.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::outcome::Failures;
use super::reply::Reply;
use super::source::Source;
use super::work::Op;

/// What was answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Requests answered, without error.
    pub answered: u64,
    /// SETs that were confirmed.
    pub written: u64,
    /// Keys that DEL removed.
    pub deleted: u64,
    /// GETs that found a value.
    pub found: u64,
    /// GETs that found none.
    pub missing: u64,
    /// Values that are not what was written.
    pub wrong: u64,
    /// DELs and GETs that were answered with OK, which tells nothing: what the limit server does.
    pub uncounted: u64,
    /// Connections that were missing from the start: what ended or prevented them was counted then.
    pub absent: u64,
    /// Errors where a capture has an error.
    pub errors_as_recorded: u64,
    /// What failed.
    pub failures: Failures,
}

impl Tally {
    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Self) {
        self.answered += other.answered;
        self.written += other.written;
        self.deleted += other.deleted;
        self.found += other.found;
        self.missing += other.missing;
        self.wrong += other.wrong;
        self.uncounted += other.uncounted;
        self.absent += other.absent;
        self.errors_as_recorded += other.errors_as_recorded;
        self.failures.add(&other.failures);
    }
}

/// Latencies and counts of one loop.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// In nanoseconds.
    pub(crate) histogram: Histogram<u64>,
    pub(crate) tally: Tally,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        Self { histogram: new_histogram(), tally: Tally::default() }
    }

    /// Counts the reply to `op`, of these `bytes`, which took `nanos`. An error is not timed: it is quick, and no answer.
    pub(super) fn take(&mut self, op: Op, reply: &Reply<'_>, bytes: &[u8], nanos: u64, source: &Source) {
        let tally = &mut self.tally;
        match (op, reply) {
            (Op::Recorded(expected), _) => {
                if !expected.take(reply, bytes, tally) {
                    return;
                }
            }
            (_, Reply::Error(text)) => return tally.failures.error_reply(text),
            (Op::Write, Reply::Ok) => tally.written += 1,
            (Op::Delete, Reply::Integer(count)) => tally.deleted += u64::try_from(*count).unwrap_or(0),
            (Op::Read(number), Reply::Bulk(value)) => {
                tally.found += 1;
                tally.wrong += u64::from(!source.is_value_of(number, value));
            }
            (Op::Read(_), Reply::Null) => tally.missing += 1,
            (Op::Any, _) => {}
            (_, Reply::Ok) => tally.uncounted += 1,
            (Op::Write | Op::Delete | Op::Read(_), other) => {
                return tally.failures.error_reply(format!("unexpected reply {other:?}").as_bytes());
            }
        }
        tally.answered += 1;
        self.histogram.saturating_record(nanos);
    }
}

/// From 1 ns to an hour, with three digits.
pub(super) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("these bounds are sound")
}
