//! What is counted of requests and replies, and how latencies are kept.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// What was answered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// Requests answered, without error.
    pub answered: u64,
    /// SETs that were confirmed.
    pub written: u64,
    /// Bytes of their values.
    pub written_bytes: u64,
    /// Keys that DEL removed.
    pub deleted: u64,
    /// GETs that found a value.
    pub found: u64,
    /// GETs that found none, and replies of other commands that are nil or empty.
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
        self.written_bytes += other.written_bytes;
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

/// What failed, by kind. Any of it makes a run invalid.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Failures {
    /// Connections that were not made.
    pub refused: u64,
    /// Connections that were not made in time.
    pub connect_timeouts: u64,
    /// Connections that ended while they were needed.
    pub disconnected: u64,
    /// Requests that were not answered in time.
    pub request_timeouts: u64,
    /// Requests that were under way when their connection ended.
    pub unanswered: u64,
    /// Replies that were errors, or of a type that does not answer the request.
    pub error_replies: u64,
    /// The first of them, in words.
    pub first: Option<String>,
}

impl Failures {
    /// All of them.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.refused
            + self.connect_timeouts
            + self.disconnected
            + self.request_timeouts
            + self.unanswered
            + self.error_replies
    }

    /// Adds what `other` counted.
    pub fn add(&mut self, other: &Self) {
        self.refused += other.refused;
        self.connect_timeouts += other.connect_timeouts;
        self.disconnected += other.disconnected;
        self.request_timeouts += other.request_timeouts;
        self.unanswered += other.unanswered;
        self.error_replies += other.error_replies;
        if self.first.is_none() {
            self.first.clone_from(&other.first);
        }
    }

    /// Keeps `text` if nothing failed before.
    pub(super) fn say(&mut self, text: impl FnOnce() -> String) {
        self.first.get_or_insert_with(text);
    }

    pub(crate) fn error_reply(&mut self, text: &[u8]) {
        self.error_replies += 1;
        self.say(|| String::from_utf8_lossy(&text[..text.len().min(200)]).into_owned());
    }
}

/// From 1 ns to an hour, with three digits.
pub(crate) fn new_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, 3).expect("these bounds are sound")
}
