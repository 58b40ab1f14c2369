//! One budget for what all connections make the server hold ([ADR 0013](../../../docs/adr/0013-client-memory.md)).
//!
//! ```text
//!  each peer, after each callback: what it keeps now - what it kept before -> tally of its thread   (plain integers)
//!  each thread, at the end of a tick:                     tally -> LoopStats.kept               (one add, if any)
//!  a thread that grew by CHECK_BYTES since it last did:   sum of all loops > limit? -> pressure, tender
//!  the tender, while there is something to do:            ends who makes it too much, grants room to who waits
//! ```
//!
//! What counts is the capacity of buffers, not their length. A small request that comes whole keeps nothing after its turn, and is
//! neither counted nor held up.
//!
//! Past the limit ([`Pressure::Over`]) only connections that keep little are read, messages are published slowly, and the tender
//! ends connections until 7/8 of the limit are kept: those with most unsent bytes first, then those that keep most. A request
//! beyond [`FREE_BYTES`] is read only as far as it has a grant ([`requests`]): what is granted counts as if it had come.
//!
//! Ends take a while: their loops have other things to do. So it is not they that bound what is kept, but that nothing more is
//! read: past 9/8 of the limit ([`Pressure::FarOver`]) from nobody, but for what was granted. Beyond that come the replies of the
//! commands that run just then, one on each loop. Whoever is not read is told when it may go on ([`Budget::hold_back`]).

pub(crate) mod requests;
pub(crate) mod tender;

use std::ops::{AddAssign, Sub};
use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use self::requests::Requests;
use crate::Connection;

/// Bounds of what all connections together may make the server hold; changeable through [`crate::Handle::set_budget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetLimits {
    /// Bytes of all connections together.
    pub kept_bytes_max: u64,
    /// Of these, what strangers ([`Keeps::is_stranger`]) may hold together.
    pub strangers_bytes_max: u64,
    /// Longest wait of a request for room.
    pub room_wait_max: Duration,
}

impl BudgetLimits {
    /// Most that requests may be granted. The rest is for what comes beside them: else whoever sends the least would make it too
    /// much, and those who wait would be ended for it.
    #[must_use]
    pub fn requests_bytes_max(&self) -> u64 {
        self.kept_bytes_max - self.kept_bytes_max / 8
    }
}

impl Default for BudgetLimits {
    fn default() -> Self {
        Self {
            kept_bytes_max: u64::MAX,
            strangers_bytes_max: u64::MAX,
            room_wait_max: Duration::from_secs(10),
        }
    }
}

/// What the protocol keeps for a connection, beside its buffers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keeps {
    /// Bytes of its session, and of what others keep for it.
    pub bytes: usize,
    /// Nobody knows yet who it is.
    pub is_stranger: bool,
}

/// Why a connection that wanted to send a request is told so, and closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// The request is larger than what all requests may be granted: its bytes, and those.
    TooLarge(u64, u64),
    /// Others did not make room within the longest wait.
    Waited,
    /// It had room that others waited for, and did not send.
    Stalled,
}

/// Bytes by what they are kept for; of one connection, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The connections themselves.
    pub(crate) connections: i64,
    pub(crate) input: i64,
    pub(crate) output: i64,
    pub(crate) session: i64,
    /// How much of all that is of strangers; no part of the sum.
    pub(crate) strangers: i64,
}

impl Kept {
    pub(crate) fn sum(&self) -> i64 {
        self.connections + self.input + self.output + self.session
    }
}

impl Sub for Kept {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self {
            connections: self.connections - other.connections,
            input: self.input - other.input,
            output: self.output - other.output,
            session: self.session - other.session,
            strangers: self.strangers - other.strangers,
        }
    }
}

impl AddAssign for Kept {
    fn add_assign(&mut self, other: Self) {
        self.connections += other.connections;
        self.input += other.input;
        self.output += other.output;
        self.session += other.session;
        self.strangers += other.strangers;
    }
}

/// [`Kept`] of one loop, for others to read. One cell may be below zero, for a connection moves with what it keeps; their sum is not.
#[derive(Debug, Default)]
pub(crate) struct KeptCells([AtomicI64; 5]);

impl KeptCells {
    pub(crate) fn add(&self, kept: Kept) {
        let values = [kept.connections, kept.input, kept.output, kept.session, kept.strangers];
        for (cell, value) in self.0.iter().zip(values).filter(|(_, value)| *value != 0) {
            cell.fetch_add(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self) -> Kept {
        let [connections, input, output, session, strangers] =
            self.0.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        Kept { connections, input, output, session, strangers }
    }
}

/// What all connections make the server hold now, in bytes, and what was done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BudgetReport {
    /// The limit.
    pub max_bytes: u64,
    /// All that counts against it.
    pub kept_bytes: u64,
    /// The connections themselves.
    pub connections_bytes: u64,
    /// Input buffers, but for what was granted.
    pub input_bytes: u64,
    /// Granted to long requests, whether it came or not.
    pub requests_bytes: u64,
    /// Output buffers.
    pub output_bytes: u64,
    /// Kept by the protocol for single connections.
    pub session_bytes: u64,
    /// Kept by the protocol for several connections.
    pub shared_bytes: u64,
    /// Kept by strangers; part of the others.
    pub strangers_bytes: u64,
    /// Requests that wait for room.
    pub waiting: u64,
    /// Requests that have waited for room.
    pub waits: u64,
    /// Requests that were refused for want of room.
    pub refused: u64,
    /// Requests that were ended because others waited and they did not come.
    pub stalled: u64,
    /// Connections that were cut for what they did not read, or kept.
    pub cut: u64,
    /// Strangers that were cut because they kept too much together.
    pub strangers_cut: u64,
}

/// How far what is kept is from what may be, and who is read no more because of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Pressure {
    /// All are read.
    Low,
    /// A request has waited long for room that connections of other kinds keep: those that keep more than a little are not read.
    Wanted,
    /// More is kept than may be: the same, and messages wait.
    Over,
    /// So much more that nobody is read.
    FarOver,
}

impl Pressure {
    const ALL: [Self; 4] = [Self::Low, Self::Wanted, Self::Over, Self::FarOver];

    fn of(kept_bytes: u64, max_bytes: u64) -> Self {
        match kept_bytes.saturating_sub(max_bytes) {
            0 => Self::Low,
            over_bytes if over_bytes <= max_bytes / 8 => Self::Over,
            _ => Self::FarOver,
        }
    }

    /// Whether a connection is not read that keeps `own_bytes` beside itself.
    fn holds_back(self, own_bytes: u64) -> bool {
        match self {
            Self::Low => false,
            Self::Wanted | Self::Over => own_bytes > MODEST_BYTES,
            Self::FarOver => true,
        }
    }
}

/// The budget of a reactor.
#[derive(Debug)]
pub(crate) struct Budget {
    kept_bytes_max: AtomicU64,
    strangers_bytes_max: AtomicU64,
    room_wait_max_ns: AtomicU64,
    /// A [`Pressure`].
    pressure: AtomicU8,
    state: Mutex<BudgetState>,
    called: Condvar,
    waits: AtomicU64,
    refused: AtomicU64,
    stalled: AtomicU64,
    cut: AtomicU64,
    strangers_cut: AtomicU64,
}

/// What is behind the lock of the budget.
#[derive(Debug, Default)]
struct BudgetState {
    requests: Requests,
    /// Connections that are not read. Ended ones leave with the tender's next look.
    held_back: Vec<Arc<Connection>>,
    is_called: bool,
    is_stopping: bool,
}

impl Budget {
    pub(crate) fn new(limits: &BudgetLimits) -> Self {
        let budget = Self {
            kept_bytes_max: AtomicU64::new(0),
            strangers_bytes_max: AtomicU64::new(0),
            room_wait_max_ns: AtomicU64::new(0),
            pressure: AtomicU8::new(Pressure::Low as u8),
            state: Mutex::default(),
            called: Condvar::new(),
            waits: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            stalled: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            strangers_cut: AtomicU64::new(0),
        };
        budget.set_limits(limits);
        budget
    }

    pub(crate) fn set_limits(&self, limits: &BudgetLimits) {
        let wait_ns = u64::try_from(limits.room_wait_max.as_nanos()).unwrap_or(u64::MAX);
        self.kept_bytes_max.store(limits.kept_bytes_max, Ordering::Relaxed);
        self.strangers_bytes_max.store(limits.strangers_bytes_max, Ordering::Relaxed);
        self.room_wait_max_ns.store(wait_ns, Ordering::Relaxed);
    }

    pub(crate) fn limits(&self) -> BudgetLimits {
        BudgetLimits {
            kept_bytes_max: self.kept_bytes_max.load(Ordering::Relaxed),
            strangers_bytes_max: self.strangers_bytes_max.load(Ordering::Relaxed),
            room_wait_max: Duration::from_nanos(self.room_wait_max_ns.load(Ordering::Relaxed)),
        }
    }

    /// Whether more is kept than may be. One load.
    pub(crate) fn is_pressed(&self) -> bool {
        self.pressure() >= Pressure::Over
    }

    /// One load.
    pub(crate) fn pressure(&self) -> Pressure {
        Pressure::ALL[usize::from(self.pressure.load(Ordering::Relaxed))]
    }

    /// Whether `connection`, which keeps `own_bytes` beside itself, is not read now. Then the tender lets it go on by and by.
    pub(crate) fn hold_back(&self, connection: &Arc<Connection>, own_bytes: u64) -> bool {
        if !self.pressure().holds_back(own_bytes) {
            return false;
        }
        let mut state = self.state();
        // The tender changes the pressure before it looks at the list.
        let is_held_back = self.pressure().holds_back(own_bytes);
        if is_held_back {
            state.held_back.push(Arc::clone(connection));
        }
        is_held_back
    }

    /// Takes those off the list who may be read again, by the `own_bytes` that each keeps beside itself.
    fn let_go(&self, own_bytes: impl Fn(&Connection) -> u64) -> Vec<Arc<Connection>> {
        let mut state = self.state();
        let pressure = self.pressure();
        let goes = |it: &mut Arc<Connection>| it.is_closed() || !pressure.holds_back(own_bytes(it));
        state.held_back.extract_if(.., goes).collect()
    }

    /// Ends the tender.
    pub(crate) fn stop(&self) {
        self.state().is_stopping = true;
        self.called.notify_all();
    }

    /// Has the tender look.
    pub(crate) fn call(&self) {
        self.state().is_called = true;
        self.called.notify_all();
    }

    /// Takes back what `connection` was granted beyond `kept_bytes`.
    pub(crate) fn give_back(&self, connection: &Connection, kept_bytes: u64) {
        if self.state().requests.give_back(connection.id(), kept_bytes) {
            self.call();
        }
    }

    /// Forgets a connection that was granted something, or waits.
    pub(crate) fn forget(&self, connection: &Connection) {
        if self.state().requests.forget(connection.id()) {
            self.call();
        }
    }

    /// What `connection` was granted is in use after all.
    pub(crate) fn spare(&self, connection: &Connection) {
        self.state().requests.spare(connection.id());
    }

    /// Bytes granted to `connection`.
    pub(crate) fn granted_to(&self, connection: &Connection) -> u64 {
        self.state().requests.granted_to(connection.id())
    }

    fn state(&self) -> MutexGuard<'_, BudgetState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request up to here is read as it comes.
pub(crate) const FREE_BYTES: usize = 64 << 10;
/// What a request is granted beyond what is known of it, and the least step.
pub(crate) const GRANT_STEP_BYTES: usize = 256 << 10;
/// What every connection may keep beside itself, or have unsent, whatever others keep.
const MODEST_BYTES: u64 = 4 << 10;
/// Unsent replies above which a connection is not read while too much is kept.
pub(crate) const PRESSED_SOFT_BYTES: usize = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pressure_rises_past_the_limit_and_past_nine_eighths_of_it() {
        let of = |kept_bytes| Pressure::of(kept_bytes, 800);
        assert_eq!(
            [0, 800, 801, 900, 901].map(of),
            [Pressure::Low, Pressure::Low, Pressure::Over, Pressure::Over, Pressure::FarOver]
        );
        assert_eq!(Pressure::of(u64::MAX, u64::MAX), Pressure::Low);
    }

    #[test]
    fn who_keeps_little_is_read_unless_far_too_much_is_kept() {
        let read = |own_bytes| Pressure::ALL.map(|pressure| !pressure.holds_back(own_bytes));
        assert_eq!(read(0), [true, true, true, false]);
        assert_eq!(read(MODEST_BYTES), [true, true, true, false]);
        assert_eq!(read(MODEST_BYTES + 1), [true, false, false, false]);
    }
}
