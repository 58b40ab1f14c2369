//! Counters of the server that belong to no command, store or loop: connections, errors, waits, and rates for INFO.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use clock::Nanos;
use commands::failure::Failure;
use resp::Writer;

/// Counters of the server.
#[derive(Debug, Default)]
pub(crate) struct Stats {
    /// Errors by their first word.
    errors: Mutex<BTreeMap<String, u64>>,
    /// Totals as INFO found them at least a second ago, and what they grew by a second then.
    rates: Mutex<Rates>,
    /// Most used memory that INFO has found.
    pub(crate) used_bytes_peak: AtomicU64,
    pub(crate) connections_received: AtomicU64,
    pub(crate) error_replies: AtomicU64,
    pub(crate) fetches: AtomicU64,
    pub(crate) waits_for_credits: AtomicU64,
    pub(crate) fetches_given_up: AtomicU64,
    /// Replies that were sent in parts, and those of them that could not be finished.
    pub(crate) chunked_replies: AtomicU64,
    pub(crate) chunked_replies_broken: AtomicU64,
    /// The most elements that a command has touched on a loop.
    #[cfg(test)]
    pub(crate) touched_max: AtomicU64,
}

/// Totals at a moment, and how fast they grew before.
#[derive(Debug, Default)]
struct Rates {
    at: Nanos,
    totals: [u64; 3],
    per_second: [f64; 3],
}

impl Stats {
    /// Counts an error reply; `text` starts with its code.
    pub(crate) fn error(&self, text: &[u8]) {
        self.error_replies.fetch_add(1, Ordering::Relaxed);
        let code: String = text
            .iter()
            .take(ERROR_CODE_BYTES_MAX)
            .take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_')
            .map(|byte| char::from(*byte))
            .collect();
        let mut errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        if errors.len() < ERROR_CODES_MAX || errors.contains_key(&code) {
            *errors.entry(code).or_default() += 1;
        }
    }

    /// Writes an error reply and counts it.
    pub(crate) fn write_failure(&self, failure: Failure, resp3: bool, out: &mut Vec<u8>) {
        let text: Vec<u8> = match failure {
            Failure::Error(text) => text.into_owned().into_bytes(),
            Failure::Bytes(text) => text,
            // None of these reaches this place: the callers handle them.
            Failure::Stop(stop) => format!("ERR {stop:?}").into_bytes(),
            Failure::Make(splice) => format!("ERR {splice:?}").into_bytes(),
            Failure::Wait(_) | Failure::Blocked(_) | Failure::Keys(_) => {
                b"ERR cannot wait inside a transaction".to_vec()
            }
        };
        self.error(&text);
        Writer::new(out, resp3).error_bytes(&text);
    }

    /// Errors by code.
    pub(crate) fn errors(&self) -> BTreeMap<String, u64> {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// By how much commands, bytes in and bytes out grow a second: between the last INFO that is at least a second old
    /// and this one. Nothing samples them while nobody asks.
    pub(crate) fn rates(&self, now: Nanos, totals: [u64; 3]) -> [f64; 3] {
        let mut rates = self.rates.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.since(rates.at).as_secs_f64();
        if since >= 1.0 {
            let former = rates.totals;
            for ((rate, former), total) in rates.per_second.iter_mut().zip(former).zip(totals) {
                *rate = total.saturating_sub(former) as f64 / since;
            }
            (rates.at, rates.totals) = (now, totals);
        }
        rates.per_second
    }

    /// CONFIG RESETSTAT.
    pub(crate) fn reset(&self) {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clear();
        for counter in [
            &self.connections_received,
            &self.error_replies,
            &self.fetches,
            &self.waits_for_credits,
            &self.fetches_given_up,
            &self.chunked_replies,
            &self.chunked_replies_broken,
        ] {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// An error's code is a word.
const ERROR_CODE_BYTES_MAX: usize = 32;
/// So many different codes are counted.
const ERROR_CODES_MAX: usize = 128;
