//! A connection as other threads see it: identity, counters, and a way to end it.
//!
//! Counters are written only by the thread that owns the connection, with a plain load and store: no
//! locked instruction on the path of a request. Others read them at any time, a little late.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use clock::Nanos;

use crate::balance::account::Account;

/// One end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// Address and port.
    Tcp(SocketAddr),
    /// Path of the unix socket that was connected to.
    Unix(Arc<str>),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "{path}:0"),
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CloseReason {
    /// It has not ended.
    Open = 0,
    /// The peer closed or reset it.
    Peer,
    /// The protocol answered `Close` or `Kill`.
    Protocol,
    /// Another thread killed it.
    Killed,
    /// A request that is not complete reached the input limit, and the protocol did not answer it.
    InputLimit,
    /// The peer did not read, and its unsent replies reached the output limit.
    OutputLimit,
    /// The server stopped.
    Shutdown,
    /// It was to be closed, but its last replies could not be sent within the grace time.
    Grace,
    /// The system gave no thread, or refused the socket.
    System,
    /// All connections together kept more than they may, and it was among those that kept most.
    Memory,
    /// Nobody knew who it was, and all such connections together kept more than they may.
    Stranger,
    /// What came was not sealed by the peer, or nothing more could be sealed for it.
    Tls,
}

impl CloseReason {
    const ALL: [Self; 12] = [
        Self::Open,
        Self::Peer,
        Self::Protocol,
        Self::Killed,
        Self::InputLimit,
        Self::OutputLimit,
        Self::Shutdown,
        Self::Grace,
        Self::System,
        Self::Memory,
        Self::Stranger,
        Self::Tls,
    ];
}

/// Ends connections for threads that do not own them.
pub(crate) trait Killer: Send + Sync {
    /// Asks the owner of `connection` to close it now.
    fn kill(&self, connection: &Arc<Connection>);
}

/// A connection's identity and counters.
pub struct Connection {
    id: u64,
    peer: Address,
    peer_user: Option<u32>,
    /// What TLS told of it, if it speaks that.
    tls: Option<TlsPeer>,
    /// Shared: most were accepted at the same one.
    local: Arc<Address>,
    created: Nanos,
    descriptor: i32,
    killer: Weak<dyn Killer>,
    /// Changes only while the mailboxes of both loops are locked.
    pub(crate) loop_index: AtomicU32,
    /// Where the owning loop keeps it; meaningless to others.
    pub(crate) slot: AtomicU32,
    pub(crate) killed: AtomicBool,
    /// Why it was killed.
    kill_reason: AtomicU8,
    is_stranger: AtomicBool,
    is_receiving: AtomicBool,
    is_parked: AtomicBool,
    reason: AtomicU8,
    pub(crate) read_events: Counter,
    pub(crate) write_events: Counter,
    pub(crate) bytes_in: Counter,
    pub(crate) bytes_out: Counter,
    commands: Counter,
    pub(crate) busy_ns: Counter,
    pub(crate) last_active: Counter,
    pub(crate) input_bytes: Counter,
    pub(crate) output_bytes: Counter,
    pub(crate) attached_bytes: Counter,
    pub(crate) unsent_bytes: Counter,
    pub(crate) kept_bytes: Counter,
    pub(crate) moves: Counter,
    account: Mutex<Account>,
    /// By host: the balancer leaves it where it is.
    is_bound: bool,
    /// The newest order to move that was not taken; [`NOWHERE`] without one.
    ordered_to: AtomicU32,
}

/// What a handshake told of a peer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct TlsPeer {
    /// The common name of its certificate, if it has shown one.
    pub(crate) name: Option<Arc<str>>,
}

/// No loop.
const NOWHERE: u32 = u32::MAX;

/// What a new connection is made from.
pub(crate) struct NewConnection {
    pub(crate) id: u64,
    pub(crate) peer: Address,
    pub(crate) peer_user: Option<u32>,
    pub(crate) tls: Option<TlsPeer>,
    pub(crate) local: Arc<Address>,
    pub(crate) created: Nanos,
    pub(crate) descriptor: i32,
    pub(crate) loop_index: usize,
    pub(crate) killer: Weak<dyn Killer>,
    pub(crate) is_bound: bool,
}

impl Connection {
    pub(crate) fn new(new: NewConnection) -> Self {
        let NewConnection {
            id,
            peer,
            peer_user,
            tls,
            local,
            created,
            descriptor,
            loop_index,
            killer,
            is_bound,
        } = new;
        Self {
            id,
            peer,
            peer_user,
            tls,
            local,
            created,
            descriptor,
            killer,
            loop_index: AtomicU32::new(loop_index as u32),
            slot: AtomicU32::new(u32::MAX),
            killed: AtomicBool::new(false),
            kill_reason: AtomicU8::new(CloseReason::Killed as u8),
            is_stranger: AtomicBool::new(false),
            is_receiving: AtomicBool::new(false),
            is_parked: AtomicBool::new(false),
            reason: AtomicU8::new(CloseReason::Open as u8),
            read_events: Counter::default(),
            write_events: Counter::default(),
            bytes_in: Counter::default(),
            bytes_out: Counter::default(),
            commands: Counter::default(),
            busy_ns: Counter::default(),
            last_active: Counter(AtomicU64::new(created.0)),
            input_bytes: Counter::default(),
            output_bytes: Counter::default(),
            attached_bytes: Counter::default(),
            unsent_bytes: Counter::default(),
            kept_bytes: Counter::default(),
            moves: Counter::default(),
            account: Mutex::default(),
            is_bound,
            ordered_to: AtomicU32::new(NOWHERE),
        }
    }

    /// Counts commands. Only for the connection's own callbacks.
    pub fn add_commands(&self, count: u64) {
        self.commands.add(count);
    }

    /// Ends the connection soon, from any thread; nothing more is sent. Harmless when it has ended.
    pub fn kill(self: &Arc<Self>) {
        if let Some(killer) = self.killer.upgrade() {
            killer.kill(self);
        }
    }

    /// As [`Connection::kill`], for a reason of the reactor's own.
    pub(crate) fn kill_for(self: &Arc<Self>, reason: CloseReason) {
        self.kill_reason.store(reason as u8, Ordering::Relaxed);
        self.kill();
    }

    /// Why it was killed.
    pub(crate) fn kill_reason(&self) -> CloseReason {
        CloseReason::ALL[usize::from(self.kill_reason.load(Ordering::Relaxed))]
    }

    /// Number of the connection, from 1, never reused while the process lives.
    #[must_use]
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Who connected.
    #[must_use]
    pub fn peer(&self) -> &Address {
        &self.peer
    }

    /// The user (`uid`) whose process connected, over a Unix socket; `None` over TCP, which does not tell.
    #[must_use]
    pub fn peer_user(&self) -> Option<u32> {
        self.peer_user
    }

    /// Whether its bytes are sealed by TLS.
    #[must_use]
    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// The common name of the certificate that the peer has shown, signed by an authority that is trusted.
    #[must_use]
    pub fn peer_name(&self) -> Option<&Arc<str>> {
        self.tls.as_ref()?.name.as_ref()
    }

    /// What was connected to.
    #[must_use]
    pub fn local(&self) -> &Address {
        &self.local
    }

    /// Monotonic time of the accept.
    #[must_use]
    pub fn created(&self) -> Nanos {
        self.created
    }

    /// The socket's descriptor, for display.
    #[must_use]
    pub fn descriptor(&self) -> i32 {
        self.descriptor
    }

    /// The loop that owns it now.
    #[must_use]
    pub fn loop_index(&self) -> usize {
        self.loop_index.load(Ordering::Acquire) as usize
    }

    /// Reads that brought bytes.
    #[must_use]
    pub fn read_events(&self) -> u64 {
        self.read_events.load()
    }

    /// Writes that took bytes.
    #[must_use]
    pub fn write_events(&self) -> u64 {
        self.write_events.load()
    }

    /// Bytes read.
    #[must_use]
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in.load()
    }

    /// Bytes written.
    #[must_use]
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out.load()
    }

    /// Commands, as the protocol counted them.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.commands.load()
    }

    /// Time that its loop spent on it, in nanoseconds.
    #[must_use]
    pub fn busy_ns(&self) -> u64 {
        self.busy_ns.load()
    }

    /// What of that the last interval of the balancer added, scaled by the processor time of its loop; all of it before it
    /// has seen the end of an interval.
    #[must_use]
    pub fn load_ns(&self) -> u64 {
        self.account().busy_ns().unwrap_or_else(|| self.busy_ns())
    }

    /// When bytes last came or went.
    #[must_use]
    pub fn last_active(&self) -> Nanos {
        Nanos(self.last_active.load())
    }

    /// Bytes of input kept after its last turn.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.input_bytes.load()
    }

    /// Bytes of output kept after its last turn, held ones included.
    #[must_use]
    pub fn output_bytes(&self) -> u64 {
        self.output_bytes.load()
    }

    /// How many of [`Connection::output_bytes`] are shared with others ([`crate::Output::attach`]).
    #[must_use]
    pub fn attached_bytes(&self) -> u64 {
        self.attached_bytes.load()
    }

    /// Bytes that may leave and that the peer has not taken.
    #[must_use]
    pub fn unsent_bytes(&self) -> u64 {
        self.unsent_bytes.load()
    }

    /// Bytes of memory that are kept for it alone, but for what was granted to its request.
    #[must_use]
    pub fn kept_bytes(&self) -> u64 {
        self.kept_bytes.load()
    }

    /// Whether nobody knows who it is ([`crate::Keeps::is_stranger`]).
    #[must_use]
    pub fn is_stranger(&self) -> bool {
        self.is_stranger.load(Ordering::Relaxed)
    }

    pub(crate) fn set_stranger(&self, is_stranger: bool) {
        self.is_stranger.store(is_stranger, Ordering::Relaxed);
    }

    /// Whether its request waits for something.
    pub(crate) fn is_parked(&self) -> bool {
        self.is_parked.load(Ordering::Relaxed)
    }

    pub(crate) fn set_parked(&self, is_parked: bool) {
        self.is_parked.store(is_parked, Ordering::Relaxed);
    }

    /// Whether the rest of a request is to come.
    pub(crate) fn is_receiving(&self) -> bool {
        self.is_receiving.load(Ordering::Relaxed)
    }

    pub(crate) fn set_receiving(&self, is_receiving: bool) {
        self.is_receiving.store(is_receiving, Ordering::Relaxed);
    }

    /// How often it changed loops.
    #[must_use]
    pub fn moves(&self) -> u64 {
        self.moves.load()
    }

    /// Why it ended.
    #[must_use]
    pub fn close_reason(&self) -> CloseReason {
        CloseReason::ALL[usize::from(self.reason.load(Ordering::Acquire))]
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.close_reason() != CloseReason::Open
    }

    /// What the balancer remembers of it.
    pub(crate) fn account(&self) -> MutexGuard<'_, Account> {
        self.account.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the balancer leaves it where it is.
    pub(crate) fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Orders a move. The loop is told by a post, which may come late: it finds the newest order.
    pub(crate) fn order_to(&self, loop_index: usize) {
        self.ordered_to.store(loop_index as u32, Ordering::Release);
    }

    /// Takes the newest order.
    pub(crate) fn take_order(&self) -> Option<usize> {
        let to = self.ordered_to.swap(NOWHERE, Ordering::AcqRel);
        (to != NOWHERE).then_some(to as usize)
    }

    pub(crate) fn set_close_reason(&self, reason: CloseReason) {
        self.reason.store(reason as u8, Ordering::Release);
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("id", &self.id)
            .field("peer", &self.peer)
            .field("loop_index", &self.loop_index())
            .field("close_reason", &self.close_reason())
            .finish_non_exhaustive()
    }
}

/// A number with one writer at a time.
#[derive(Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn load(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_reasons_survive_their_number() {
        for reason in CloseReason::ALL {
            assert_eq!(CloseReason::ALL[reason as usize], reason);
        }
    }

    #[test]
    fn addresses_read_as_clients_expect_them() {
        assert_eq!(Address::Tcp("127.0.0.1:6379".parse().unwrap()).to_string(), "127.0.0.1:6379");
        assert_eq!(Address::Unix("/run/e.sock".into()).to_string(), "/run/e.sock:0");
    }
}
