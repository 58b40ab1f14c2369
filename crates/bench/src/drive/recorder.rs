//! What a loop records for a group, between two looks of who collects it.

use hdrhistogram::Histogram;

use super::reply::Reply;
use super::source::Source;
use super::tally::{Tally, new_histogram};
use super::work::Op;

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
            (Op::Any | Op::Entry, reply) => tally.missing += u64::from(is_nothing(reply, bytes)),
            (_, Reply::Ok) => tally.uncounted += 1,
            (Op::Write | Op::Delete | Op::Read(_), other) => {
                return tally.failures.error_reply(format!("unexpected reply {other:?}").as_bytes());
            }
        }
        tally.answered += 1;
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
    fn nil_and_empty_arrays_are_nothing() {
        assert!(is_nothing(&Reply::Null, b"$-1\r\n"));
        assert!(is_nothing(&Reply::Other, b"*0\r\n") && is_nothing(&Reply::Other, b"*-1\r\n"));
        assert!(!is_nothing(&Reply::Other, b"*1\r\n$-1\r\n") && !is_nothing(&Reply::Integer(0), b":0\r\n"));
    }
}
