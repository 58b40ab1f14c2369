//! Event loops that own their connections, under one sans-I/O protocol trait.
//!
//! A *loop* is a thread with its own poller, connections, timers and mailbox. It reads, lets the
//! [`Protocol`] work on the bytes, and writes, all on its own thread. A *connector* is how sockets meet
//! threads: `epoll` (readiness, few loops; the default), `uring` (completions, few loops) or `threads` (one blocking thread for each
//! connection, the baseline that the event loops are compared with). One protocol runs under all three. Connections come in
//! through listeners, or are made ([`Handle::connect`]): the protocol of a client is a protocol like any other.
//!
//! Invariants
//!   1. A connection belongs to exactly one thread at any time; only that thread touches its session,
//!      its buffers and its socket. It changes loops between two callbacks, whole, and in order.
//!   2. Bytes leave in the order in which they were appended, and none leaves before the ticket that
//!      holds it is covered by [`Protocol::released`].
//!   3. `on_open` and `on_close` are called exactly once for each connection that was taken in.
//!   4. Every buffer has a bound, and so have all together ([`BudgetLimits`]); an idle connection keeps no buffer.
//!   5. A request costs one read and one write; the clock is read once for each turn of a connection,
//!      never for each command; nothing is allocated on that path; the one lock, once a tick, is contended only while somebody
//!      takes figures.
//!
//! Out of scope: RESP (`resp`), commands (`server`).
//! Sources: the loop that owns its sockets, from Voldemort's NIO server; the move of a live connection,
//! from Hazelcast's IO balancer; the short read that ends a drain, from epoll(7).

mod accept;
mod balance;
mod budget;
mod connect;
mod connection;
mod epoll;
mod error;
mod event_loop;
mod handle;
mod handover;
mod handshakes;
mod input;
mod link;
mod listen;
mod mailbox;
mod options;
mod output;
mod peer;
mod pool;
mod protocol;
mod ring;
mod slots;
mod start;
mod stats;
mod sync;
mod threads;
mod timers;
mod timing;
mod tls;
mod uring;

pub use crate::tls::TlsOptions;
pub use balance::active::Reason;
pub use balance::active_count::ActiveReport;
pub use balance::{Assignment, Balance, By};
pub use budget::{BudgetLimits, BudgetReport, Keeps, NoRoom};
pub use connect::Dial;
pub use connection::{Address, CloseReason, Connection};
pub use error::{ConnectError, MoveError, StartError};
pub use handle::Handle;
pub use handshakes::{HandshakeCounts, HandshakeStats};
pub use input::Input;
pub use listen::Listeners;
pub use options::{Connector, Limits, Options, raise_descriptor_limit};
pub use output::{Output, SharedBytes};
pub use protocol::{Io, Protocol, Step};
pub use start::Reactor;
pub use stats::{AcceptStats, Interval, LoopStats};
pub use timing::{Doing, Longest};
