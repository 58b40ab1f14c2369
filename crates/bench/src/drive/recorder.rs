//! What is recorded of requests: counts and latencies, of one loop between two looks of who collects it, or of one client for a whole run.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::reply::Reply;
use super::source::Source;
use super::tally::{Tally, new_histogram};
use super::work::Op;

/// Latencies and counts.
#[derive(Clone, Debug)]
pub struct Recorder {
    /// In nanoseconds.
    pub histogram: Histogram<u64>,
    /// Counts.
    pub tally: Tally,
}

impl Default for Recorder {
    fn default() -> Self {
        Self { histogram: new_histogram(), tally: Tally::default() }
    }
}

impl Recorder {
    /// Counts a request that was answered after `took`.
    pub(crate) fn answered(&mut self, took: Duration) {
        self.answered_in(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// Adds what `other` recorded.
    pub(crate) fn add(&mut self, other: &Self) {
        self.tally.add(&other.tally);
        self.histogram.add(&other.histogram).expect("all have the same bounds");
    }

    /// Counts the reply to `op`, whose bytes are `whole`, which took `nanos`. An error is not timed: it is quick, and no answer.
    pub(super) fn take(&mut self, op: Op, reply: &Reply<'_>, whole: &[u8], nanos: u64, source: &Source) {
        let tally = &mut self.tally;
        match (op, reply) {
            (Op::Recorded(expected), _) => {
                if !expected.take(reply, whole, tally) {
                    return;
                }
            }
            (_, Reply::Error(text)) => return tally.failures.error_reply(text),
            (Op::Write(bytes), Reply::Ok) => {
                tally.written += 1;
                tally.written_bytes += bytes as u64;
            }
            (Op::Delete, Reply::Integer(count)) => tally.deleted += u64::try_from(*count).unwrap_or(0),
            (Op::Read(number), Reply::Bulk(value)) => {
                tally.found += 1;
                tally.wrong += u64::from(!source.is_value_of(number, value));
            }
            (Op::Read(_), Reply::Null) => tally.missing += 1,
            (Op::Any | Op::Entry, reply) => tally.missing += u64::from(is_nothing(reply, whole)),
            (_, Reply::Ok) => tally.uncounted += 1,
            (Op::Write(_) | Op::Delete | Op::Read(_), other) => {
                return tally.failures.error_reply(format!("unexpected reply {other:?}").as_bytes());
            }
        }
        self.answered_in(nanos);
    }

    fn answered_in(&mut self, nanos: u64) {
        self.tally.answered += 1;
        self.histogram.saturating_record(nanos);
    }
}

/// Whether a reply of these bytes is nil, or an array that is nil or empty.
fn is_nothing(reply: &Reply<'_>, bytes: &[u8]) -> bool {
    matches!(reply, Reply::Null) || matches!(bytes, b"*-1\r\n" | b"*0\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_recorded_is_counted_once_and_an_answer_that_never_came_is_the_longest() {
        let mut both = Recorder::default();
        let mut one = Recorder::default();
        one.answered(Duration::from_millis(2));
        one.answered(Duration::MAX);
        one.tally.failures.error_reply(b"ERR");
        both.add(&one);
        both.add(&one);
        assert_eq!((both.tally.answered, both.histogram.len(), both.tally.failures.count()), (4, 4, 2));
    }

    #[test]
    fn nil_and_empty_arrays_are_nothing() {
        assert!(is_nothing(&Reply::Null, b"$-1\r\n"));
        assert!(is_nothing(&Reply::Other, b"*0\r\n") && is_nothing(&Reply::Other, b"*-1\r\n"));
        assert!(!is_nothing(&Reply::Other, b"*1\r\n$-1\r\n") && !is_nothing(&Reply::Integer(0), b":0\r\n"));
    }
}
