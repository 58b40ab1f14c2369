//! The client's side: connections that this process makes, which then live on the loops as accepted ones do.
//!
//! Thousands are opened by one thread, each with its own deadline:
//!
//! ```text
//!  connect: at once --------------------------------> handed to its loop, on_open
//!           EINPROGRESS -> poller: writable, SO_ERROR 0 ----^
//!                                  SO_ERROR, deadline ------> ConnectError
//! ```
//!
//! The thread is the caller's: a loop must not wait, so a callback must not connect.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use clock::Nanos;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rustix::io::Errno;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::accept::admit;
use crate::listen::{Accepted, keepalive};
use crate::{Address, ConnectError, Connection, Handle, Protocol};

/// Connections under way at once: fewer than the backlog that servers usually have, so that none is dropped and
/// tried again a second later.
const UNDER_WAY_MAX: usize = 256;

/// A connection to make.
#[derive(Clone, Debug)]
pub struct Dial {
    /// Who to connect to.
    pub to: Address,
    /// The own address to connect from, where the machine has several; `None`: the system chooses.
    pub from: Option<IpAddr>,
    /// The loop that gets it; `None`: the one with the fewest connections.
    pub loop_index: Option<usize>,
}

impl Dial {
    /// A connection to `address`, from any address, on any loop.
    #[must_use]
    pub fn to(address: SocketAddr) -> Self {
        Self { to: Address::Tcp(address), from: None, loop_index: None }
    }
}

impl<P: Protocol> Handle<P> {
    /// Connects, and gives the connection to a loop, which calls `on_open`. Waits for at most `timeout`.
    ///
    /// Not for callbacks: it blocks. Not bounded by [`crate::Options::connections_max`], which is about who comes uninvited.
    ///
    /// # Errors
    /// [`ConnectError`] when nobody listens there, nobody answers in time, or the system refuses.
    ///
    /// # Panics
    /// Never: one dial has one outcome.
    pub fn connect(&self, dial: Dial, timeout: Duration) -> Result<Arc<Connection>, ConnectError> {
        self.connect_all(vec![dial], timeout).pop().expect("one dial has one outcome")
    }

    /// As [`Handle::connect`] for many, some hundreds of them under way at once; the outcomes are in the order of `dials`.
    /// `timeout` is that of each.
    pub fn connect_all(
        &self,
        dials: Vec<Dial>,
        timeout: Duration,
    ) -> Vec<Result<Arc<Connection>, ConnectError>> {
        match Poll::new() {
            Ok(poll) => Dialer::new(self, poll, dials, timeout).run(),
            Err(error) => dials.iter().map(|_| Err(ConnectError::System(error.kind().into()))).collect(),
        }
    }
}

/// Many connections on their way.
struct Dialer<'a, P: Protocol> {
    handle: &'a Handle<P>,
    poll: Poll,
    dials: Vec<Dial>,
    timeout: Duration,
    /// By the index of the dial. They begin in that order, so the first has the earliest deadline.
    under_way: BTreeMap<usize, (Socket, Nanos)>,
    outcomes: Vec<Option<Result<Arc<Connection>, ConnectError>>>,
}

impl<'a, P: Protocol> Dialer<'a, P> {
    fn new(handle: &'a Handle<P>, poll: Poll, dials: Vec<Dial>, timeout: Duration) -> Self {
        let outcomes = dials.iter().map(|_| None).collect();
        Self { handle, poll, dials, timeout, under_way: BTreeMap::new(), outcomes }
    }

    fn run(mut self) -> Vec<Result<Arc<Connection>, ConnectError>> {
        let mut events = Events::with_capacity(UNDER_WAY_MAX);
        let mut next = 0;
        while next < self.dials.len() || !self.under_way.is_empty() {
            while next < self.dials.len() && self.under_way.len() < UNDER_WAY_MAX {
                self.begin(next);
                next += 1;
            }
            self.wait(&mut events);
        }
        self.outcomes.into_iter().map(|outcome| outcome.expect("each dial has ended")).collect()
    }

    fn begin(&mut self, index: usize) {
        let begun = match &self.dials[index].to {
            Address::Tcp(address) => begin_tcp(*address, &self.dials[index], self.handle),
            Address::Unix(path) => connect_unix(path, self.timeout).map(|socket| (socket, true)),
        };
        match begun {
            Ok((socket, true)) => self.arrive(index, socket),
            Ok((socket, false)) => self.watch(index, socket),
            Err(error) => self.fail(index, error),
        }
    }

    fn watch(&mut self, index: usize, socket: Socket) {
        let raw = socket.as_raw_fd();
        let registry = self.poll.registry();
        match registry.register(&mut SourceFd(&raw), Token(index), Interest::WRITABLE) {
            Ok(()) => {
                let deadline = self.handle.shared.clock.now() + self.timeout;
                self.under_way.insert(index, (socket, deadline));
            }
            Err(error) => self.fail(index, error),
        }
    }

    /// Waits for one that is under way, or for the first deadline.
    fn wait(&mut self, events: &mut Events) {
        let Some((_, (_, deadline))) = self.under_way.first_key_value() else { return };
        let rest = *deadline - self.handle.shared.clock.now();
        if let Err(error) = self.poll.poll(events, Some(rest)) {
            events.clear();
            if error.kind() != std::io::ErrorKind::Interrupted {
                tracing::error!(%error, "cannot wait for connections to open");
            }
        }
        for event in events.iter() {
            let Some((socket, _)) = self.under_way.remove(&event.token().0) else { continue };
            let raw = socket.as_raw_fd();
            // It goes to another poller; one that cannot be taken out of this one is gone, which its loop will see.
            let _ = self.poll.registry().deregister(&mut SourceFd(&raw));
            match socket.take_error() {
                Ok(None) => self.arrive(event.token().0, socket),
                Ok(Some(error)) | Err(error) => self.fail(event.token().0, error),
            }
        }
        let now = self.handle.shared.clock.now();
        while let Some(first) = self.under_way.first_entry().filter(|first| first.get().1 <= now) {
            let index = *first.key();
            first.remove();
            self.outcomes[index] = Some(Err(ConnectError::TimedOut(self.timeout)));
        }
    }

    fn arrive(&mut self, index: usize, socket: Socket) {
        let dial = &self.dials[index];
        let local = socket.local_addr().ok().and_then(|address| address.as_socket());
        let local = local.map_or_else(|| dial.to.clone(), Address::Tcp);
        let loop_index = dial.loop_index.unwrap_or_else(|| self.handle.shared.idlest_loop());
        self.outcomes[index] = Some(if loop_index < self.handle.loops().len() {
            let accepted = Accepted { socket: socket.into(), peer: dial.to.clone(), local: Arc::new(local) };
            admit(self.handle, accepted, None, (loop_index, false))
                .map_err(|(error, _)| ConnectError::System(error))
        } else {
            Err(ConnectError::UnknownLoop(loop_index))
        });
    }

    fn fail(&mut self, index: usize, error: std::io::Error) {
        self.outcomes[index] = Some(Err(ConnectError::from_system(error, self.timeout)));
    }
}

/// Begins to connect; whether it is done already.
fn begin_tcp<P: Protocol>(
    address: SocketAddr,
    dial: &Dial,
    handle: &Handle<P>,
) -> std::io::Result<(Socket, bool)> {
    let options = &handle.shared.options;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    socket.set_tcp_nodelay(options.tcp_nodelay)?;
    if let Some(idle) = options.tcp_keepalive {
        socket.set_tcp_keepalive(&keepalive(idle))?;
    }
    if let Some(from) = dial.from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    match socket.connect(&address.into()) {
        Ok(()) => Ok((socket, true)),
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok((socket, false)),
        Err(error) => Err(error),
    }
}

/// Connects to a unix socket. A full backlog says EAGAIN to those that do not wait, so this one waits, for `timeout`.
fn connect_unix(path: &str, timeout: Duration) -> std::io::Result<Socket> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_write_timeout(Some(timeout))?;
    socket.connect(&SockAddr::unix(path)?)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}
