//! ACL LOG: what was refused, newest first; what is refused again soon is counted, not added.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What was refused.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) reason: Reason,
    /// Where the command was: `toplevel`, `multi` or `lua`.
    pub(crate) context: &'static str,
    /// The command, key, channel or database; at most [`OBJECT_BYTES_MAX`] of it.
    pub(crate) object: Box<[u8]>,
    pub(crate) user: Box<[u8]>,
    /// As CLIENT LIST shows it.
    pub(crate) client: Box<[u8]>,
}

/// Why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    Command,
    Key,
    Channel,
    Database,
    Auth,
}

impl Reason {
    /// As ACL LOG names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
            Self::Database => "database",
            Self::Auth => "auth",
        }
    }

    /// All, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] = [Self::Command, Self::Key, Self::Channel, Self::Database, Self::Auth];
}

/// An entry that is kept.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) entry: Entry,
    pub(crate) count: u64,
    pub(crate) id: u64,
    pub(crate) first_unix_ms: u64,
    pub(crate) last_unix_ms: u64,
}

/// The newest refusals.
#[derive(Debug, Default)]
pub(crate) struct Log(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    entries: VecDeque<Kept>,
    next_id: u64,
    /// Refusals since the last reset, by reason.
    denied: [u64; Reason::ALL.len()],
}

impl Log {
    /// Keeps a refusal; `length_max` entries are kept.
    pub(crate) fn add(&self, mut entry: Entry, unix_ms: u64, length_max: usize) {
        if entry.object.len() > OBJECT_BYTES_MAX {
            entry.object = entry.object[..OBJECT_BYTES_MAX].into();
        }
        let mut state = self.lock();
        state.denied[entry.reason as usize] += 1;
        let same = |kept: &Kept| {
            let it = &kept.entry;
            let is_recent = unix_ms.saturating_sub(kept.last_unix_ms) <= GROUPED_MS;
            is_recent
                && it.reason == entry.reason
                && it.context == entry.context
                && it.object == entry.object
                && it.user == entry.user
        };
        let looked_at = state.entries.iter().take(GROUPED_ENTRIES_MAX);
        let found = looked_at.into_iter().position(same);
        let kept = match found.and_then(|at| state.entries.remove(at)) {
            Some(kept) => Kept { entry, count: kept.count + 1, last_unix_ms: unix_ms, ..kept },
            None => {
                state.next_id += 1;
                let id = state.next_id - 1;
                Kept { entry, count: 1, id, first_unix_ms: unix_ms, last_unix_ms: unix_ms }
            }
        };
        state.entries.push_front(kept);
        state.entries.truncate(length_max);
    }

    /// The newest `count`.
    pub(crate) fn newest(&self, count: usize) -> Vec<Kept> {
        self.lock().entries.iter().take(count).cloned().collect()
    }

    /// Refusals of a kind since the last reset.
    pub(crate) fn denied(&self, reason: Reason) -> u64 {
        self.lock().denied[reason as usize]
    }

    /// Forgets all entries.
    pub(crate) fn clear(&self) {
        self.lock().entries.clear();
    }

    /// Begins to count anew.
    pub(crate) fn reset(&self) {
        self.lock().denied = Default::default();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is kept of a key or a channel.
const OBJECT_BYTES_MAX: usize = 1 << 10;
/// A refusal like one that is not older is counted there.
const GROUPED_MS: u64 = 60_000;
/// Entries among which one like it is looked for.
const GROUPED_ENTRIES_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(object: &[u8]) -> Entry {
        let (user, client) = (Box::from(&b"u"[..]), Box::from(&b"id=1"[..]));
        Entry { reason: Reason::Key, context: "toplevel", object: object.into(), user, client }
    }

    #[test]
    fn what_is_refused_again_soon_is_counted_and_becomes_the_newest() {
        let log = Log::default();
        for (object, unix_ms) in [(&b"a"[..], 0), (b"b", 10), (b"a", 60_000), (b"a", 120_001)] {
            log.add(refused(object), unix_ms, 128);
        }
        let seen: Vec<_> =
            log.newest(9).iter().map(|it| (it.entry.object.to_vec(), it.count, it.id)).collect();
        assert_eq!(seen, [(b"a".to_vec(), 1, 2), (b"a".to_vec(), 2, 0), (b"b".to_vec(), 1, 1)]);
        assert_eq!(log.denied(Reason::Key), 4);
    }

    #[test]
    fn entries_and_what_they_show_are_bounded() {
        let log = Log::default();
        for number in 0..300_u32 {
            log.add(refused(&[number.to_le_bytes().as_slice(), &[b'x'; 5_000]].concat()), 0, 100);
        }
        let kept = log.newest(usize::MAX);
        assert_eq!(kept.len(), 100);
        assert!(kept.iter().all(|it| it.entry.object.len() == OBJECT_BYTES_MAX));
        log.clear();
        assert!(log.newest(9).is_empty());
    }
}
