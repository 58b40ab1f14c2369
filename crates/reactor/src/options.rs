//! What a reactor is started with. The server's table of settings has names, bounds and reasons of each.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::tls::TlsOptions;
use crate::{Assignment, Balance, BudgetLimits};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// How sockets meet threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connector {
    /// A few loops, each waiting for readiness of many connections.
    #[default]
    Epoll,
    /// A few loops, each with an `io_uring` to which bytes come by themselves. Falls back to `Epoll` where the system has it
    /// switched off; [`crate::Handle::connector`] tells.
    Uring,
    /// One blocking thread for each connection; connections do not move.
    Threads,
}

impl fmt::Display for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Epoll => "epoll",
            Self::Uring => "uring",
            Self::Threads => "threads",
        })
    }
}

/// Bounds of one connection's buffers, in bytes; changeable at run time through
/// [`crate::Handle::set_limits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most input kept while a request is not complete. A protocol may set less for a connection.
    pub input_bytes_max: usize,
    /// Unsent replies above which a connection's input is not read.
    pub output_bytes_soft: usize,
    /// Released but unsent replies above which a connection that does not read is cut.
    pub output_bytes_max: usize,
    /// Replies waiting for the disk above which a connection's input is not read. Never a reason to cut.
    pub held_bytes_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            input_bytes_max: 1 << 30,
            output_bytes_soft: 1 << 20,
            output_bytes_max: 256 << 20,
            held_bytes_max: 1 << 20,
        }
    }
}

/// Raises this process's limit of open descriptors to at least `wanted`, as far as the system lets it;
/// returns the limit that now holds. A server asks for its connections and some more for files.
///
/// # Errors
/// The system refused to change the limit within what it said is allowed.
pub fn raise_descriptor_limit(wanted: u64) -> std::io::Result<u64> {
    let now = getrlimit(Resource::Nofile);
    let (Some(current), most) = (now.current, now.maximum.unwrap_or(u64::MAX)) else { return Ok(u64::MAX) };
    let next = wanted.min(most);
    if next <= current {
        return Ok(current);
    }
    setrlimit(Resource::Nofile, Rlimit { current: Some(next), maximum: now.maximum })?;
    Ok(next)
}

/// What a reactor is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// How sockets meet threads.
    pub connector: Connector,
    /// Loops of the connectors `epoll` and `uring`, at least 1.
    pub loops: usize,
    /// As few of them are active as the load needs; otherwise all are.
    pub adapts_loops: bool,
    /// TCP addresses to listen on; port 0 takes a free one.
    pub tcp: Vec<SocketAddr>,
    /// TCP addresses to listen on for clients that speak TLS; port 0 takes a free one.
    pub tls_tcp: Vec<SocketAddr>,
    /// How connections to these begin; nobody is taken in there without.
    pub tls: Option<TlsOptions>,
    /// Unix socket to listen on; a socket file that nobody serves is replaced.
    pub unix: Option<PathBuf>,
    /// Connections served at once; the next is refused with [`crate::Protocol::refusal`].
    pub connections_max: usize,
    /// Bounds of one connection's buffers.
    pub limits: Limits,
    /// Send small replies at once (`TCP_NODELAY`).
    pub tcp_nodelay: bool,
    /// What the kernel buffers for a peer on loopback, each way (the kernel takes twice as much, for its own structures);
    /// `None`: as much as it likes.
    pub tcp_loopback_buffer_bytes: Option<usize>,
    /// Idle time after which the kernel probes a silent peer; `None`: never.
    pub tcp_keepalive: Option<Duration>,
    /// Connections that the kernel keeps for us to accept.
    pub backlog: u16,
    /// Which loop a new connection goes to.
    pub assignment: Assignment,
    /// How connections are balanced over the loops.
    pub balance: Balance,
    /// Bounds of what all connections together keep.
    pub budget: BudgetLimits,
    /// How long a stop, or a close, waits for replies that are not released or not read.
    pub close_grace: Duration,
    /// Stack of a connection's thread under the connector `threads`, in bytes.
    pub thread_stack_bytes: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connector: Connector::Epoll,
            loops: 1,
            adapts_loops: false,
            tcp: Vec::new(),
            tls_tcp: Vec::new(),
            tls: None,
            unix: None,
            connections_max: 10_000,
            limits: Limits::default(),
            tcp_nodelay: true,
            tcp_loopback_buffer_bytes: None,
            tcp_keepalive: Some(Duration::from_secs(300)),
            backlog: 4_096,
            assignment: Assignment::default(),
            balance: Balance::default(),
            budget: BudgetLimits::default(),
            close_grace: Duration::from_secs(10),
            thread_stack_bytes: 256 << 10,
        }
    }
}
