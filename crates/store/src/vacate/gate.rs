//! Who stores or reads more waits while too much of the process is resident, until pages have gone back to the system.
//!
//! What is resident is asked for after every [`LOOK_SHARE`]-th of the limit that somebody is about to store, or has read from disk: a thread that looks a few times a
//! second would come late for large values, of which a client sends a GB in that time.
//!
//! Invariants
//!   1. Whoever waits is told: a pass that has ended, or takes long, opens the gate, whether it helped or not. So does the thread that finds it closed and begins none.
//!   2. Reads wait in the gate only while it is closed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::prepared::Prepared;

/// See the module.
pub(crate) struct Gate {
    /// Asks the system what is resident; 0: it does not tell.
    resident_bytes: fn() -> u64,
    /// The most that may be resident while more is stored; 0: whatever it is.
    most_bytes: AtomicU64,
    /// What was to be stored since the last look.
    unlooked_bytes: AtomicU64,
    /// By how much too much is resident, with what is to be stored; 0: the gate is open.
    excess_bytes: AtomicU64,
    reads: Mutex<Vec<Read>>,
    /// Told when the gate opens.
    opened: Condvar,
}

/// What is to be read from disk, and who is told.
pub(crate) struct Read {
    pub(crate) prepared: Prepared,
    pub(crate) done: Box<dyn FnOnce(Prepared) + Send>,
}

impl Gate {
    /// An open gate.
    pub(crate) fn new(resident_bytes: fn() -> u64) -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            resident_bytes,
            most_bytes: zero(),
            unlooked_bytes: zero(),
            excess_bytes: zero(),
            reads: Mutex::default(),
            opened: Condvar::new(),
        }
    }

    /// Whether one who is about to store `bytes`, and has stored `own_bytes` of the same, has to wait. `limit_bytes` is `memory.limit`; `wake` is
    /// called if the gate closes by this.
    pub(crate) fn waits(&self, bytes: u64, own_bytes: u64, limit_bytes: u64, wake: impl FnOnce()) -> bool {
        let most_bytes = self.most_bytes.load(Ordering::Relaxed);
        if most_bytes == 0 {
            return false;
        }
        if self.is_closed() {
            return bytes >= WAITING_BYTES_MIN;
        }
        let unlooked = &self.unlooked_bytes;
        let before_bytes = if bytes == 0 {
            unlooked.load(Ordering::Relaxed)
        } else {
            unlooked.fetch_add(bytes, Ordering::Relaxed)
        };
        if before_bytes.saturating_add(bytes) < limit_bytes / LOOK_SHARE {
            return false;
        }
        self.unlooked_bytes.store(0, Ordering::Relaxed);
        let needed_bytes = (self.resident_bytes)().saturating_add(bytes);
        if needed_bytes <= most_bytes {
            return false;
        }
        // who begins anew needs again what it has so far
        self.excess_bytes.fetch_max(needed_bytes - most_bytes + own_bytes, Ordering::Relaxed);
        wake();
        bytes >= WAITING_BYTES_MIN
    }

    /// What is resident.
    pub(crate) fn resident_bytes(&self) -> u64 {
        (self.resident_bytes)()
    }

    /// Whether somebody waits.
    pub(crate) fn is_closed(&self) -> bool {
        self.excess_bytes() > 0
    }

    /// So much has to go for those who wait.
    pub(crate) fn excess_bytes(&self) -> u64 {
        self.excess_bytes.load(Ordering::Relaxed)
    }

    /// From now on so much may be resident; 0: whatever it is.
    pub(crate) fn set_most(&self, most_bytes: u64) {
        self.most_bytes.store(most_bytes, Ordering::Relaxed);
    }

    /// Has `read` wait if the gate is closed; returns it if not.
    pub(crate) fn hold(&self, read: Read) -> Option<Read> {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_closed() {
            return Some(read);
        }
        reads.push(read);
        None
    }

    /// Has the calling thread wait while `waits` says so, for `most` at most. It is asked when the gate opens, and every millisecond: values that others drop
    /// tell nobody.
    pub(crate) fn wait_while(&self, most: Duration, waits: impl Fn() -> bool) {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        for _ in 0..most.as_millis() {
            if !waits() {
                return;
            }
            let waited = self.opened.wait_timeout(reads, Duration::from_millis(1));
            reads = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Lets everybody pass; returns whether somebody may have waited, and what is to be read now.
    pub(crate) fn open(&self) -> (bool, Vec<Read>) {
        let mut reads = self.reads.lock().unwrap_or_else(PoisonError::into_inner);
        let was_closed = self.excess_bytes.swap(0, Ordering::Relaxed) > 0;
        self.opened.notify_all();
        (was_closed, std::mem::take(&mut *reads))
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Gate(most {:?} B, excess {:?} B)", self.most_bytes, self.excess_bytes)
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new(|| 0)
    }
}

/// Who stores less need not wait: as much as comes in that time is little.
const WAITING_BYTES_MIN: u64 = 512;
/// A look takes some 5 us; so much of the smallest limit is copied in a hundred times that.
const LOOK_SHARE: u64 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const LIMIT: u64 = 64 * MIB;

    #[test]
    fn gate_closes_for_all_when_too_much_is_resident_and_says_how_much() {
        let gate = Gate::new(|| 80 * MIB);
        let waits = |bytes, own| gate.waits(bytes, own, LIMIT, || ());
        assert!(!waits(LIMIT, 0), "nothing is known");
        gate.set_most(82 * MIB);
        assert!(!waits(2 * MIB, 0));
        assert!((0..10).all(|_| !waits(MIB / 2, 0)), "80.5 of 82");
        assert!(waits(4 * MIB, 3 * MIB) && waits(512, 0));
        assert!(!waits(511, 0), "it is little");
        assert_eq!(gate.excess_bytes(), 5 * MIB);
        assert!(gate.open().0 && !gate.open().0);
        assert!(!waits(512, 0));
    }

    #[test]
    fn read_waits_at_a_closed_gate_alone() {
        let gate = Gate::new(|| 90 * MIB);
        let read = || Read { prepared: Prepared::default(), done: Box::new(|_| ()) };
        gate.set_most(82 * MIB);
        assert!(gate.hold(read()).is_some());
        assert!(gate.waits(MIB, 0, LIMIT, || ()));
        assert!(gate.hold(read()).is_none());
        assert!(matches!(gate.open(), (true, reads) if reads.len() == 1));
        assert!(matches!(gate.open(), (false, reads) if reads.is_empty()));
    }

    #[test]
    fn who_waits_goes_on_when_the_gate_opens_or_it_took_too_long() {
        let gate = Gate::new(|| 90 * MIB);
        gate.set_most(82 * MIB);
        gate.wait_while(Duration::from_secs(60), || gate.is_closed());
        assert!(gate.waits(MIB, 0, LIMIT, || ()));
        gate.wait_while(Duration::from_millis(3), || gate.is_closed());
        assert!(gate.is_closed(), "it was not waited for any longer");
        std::thread::scope(|scope| {
            scope.spawn(|| gate.wait_while(Duration::from_secs(3_600), || gate.is_closed()));
            gate.open();
        });
    }

    #[test]
    fn small_writes_look_once_in_a_while() {
        let gate = Gate::new(|| 90 * MIB);
        gate.set_most(82 * MIB);
        let mut woken = 0;
        let passed = (0..10_000).take_while(|_| !gate.waits(1_000, 0, LIMIT, || woken += 1)).count();
        assert_eq!((passed, woken), (1_048, 1), "a MiB");
    }
}
