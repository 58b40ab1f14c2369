//! LATENCY: for each kind of event, the seconds in which something took longer than the threshold.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// One second with its slowest event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) unix_s: u64,
    pub(crate) millis: u64,
}

/// History of one kind of event.
#[derive(Clone, Debug, Default)]
pub(crate) struct History {
    pub(crate) samples: VecDeque<Sample>,
    pub(crate) max_millis: u64,
}

/// All histories, by event.
#[derive(Debug, Default)]
pub(crate) struct Latency(Mutex<BTreeMap<&'static str, History>>);

impl Latency {
    /// Notes an event that was over the threshold.
    pub(crate) fn add(&self, event: &'static str, unix_s: u64, millis: u64) {
        let mut all = self.lock();
        let history = all.entry(event).or_default();
        history.max_millis = history.max_millis.max(millis);
        match history.samples.back_mut() {
            Some(last) if last.unix_s == unix_s => last.millis = last.millis.max(millis),
            _ => {
                if history.samples.len() == SAMPLES_MAX {
                    history.samples.pop_front();
                }
                history.samples.push_back(Sample { unix_s, millis });
            }
        }
    }

    pub(crate) fn history(&self, event: &[u8]) -> Option<History> {
        self.lock().iter().find(|(name, _)| name.as_bytes() == event).map(|(_, history)| history.clone())
    }

    pub(crate) fn all(&self) -> Vec<(&'static str, History)> {
        self.lock().iter().map(|(name, history)| (*name, history.clone())).collect()
    }

    /// Forgets events that `matches`; returns how many.
    pub(crate) fn reset(&self, mut matches: impl FnMut(&str) -> bool) -> usize {
        let mut all = self.lock();
        let before = all.len();
        all.retain(|name, _| !matches(name));
        before - all.len()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, History>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Seconds remembered for each event, as in Redis.
const SAMPLES_MAX: usize = 160;
