//! The thread that takes connections in and gives each to a loop ([`crate::Assignment`]).
//!
//! It is a thread of its own so that no loop has its ticks disturbed by a storm of connections, and so that
//! a failing accept stops nobody. Clients with TLS have a thread of their own, which does their handshakes as well (`handshakes`):
//!
//! ```text
//!  AGAIN                      wait for the next
//!  one too many, or no thread answer the refusal, linger briefly, close
//!  EMFILE, ENFILE             give up the spare descriptor, accept, refuse, close, take the spare back
//!  ENOBUFS, ENOMEM            back off, 50 ms doubling to 1 s
//!  other (aborted, network)   concerns one connection: go on
//! ```
//!
//! A refused connection lingers because closing a socket with unread input resets it, and a reset may take
//! the refusal away from a client that sent its first request before it read.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use clock::{Nanos, Throttle};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use rustix::event::EventfdFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_send_buffer_size};
use rustix::net::{SendFlags, Shutdown};

use crate::connection::{Killer, NewConnection, TlsPeer};
use crate::event_loop::WAIT_FAILURES_MAX;
use crate::handle::{Post, Route};
use crate::handshakes::{Done, Handshakes};
use crate::listen::{Accepted, Listener};
use crate::peer::Peer;
use crate::tls::Tls;
use crate::{Address, Connection, Connector, Handle, Protocol, StartError, threads};

const WAKE: Token = Token(usize::MAX);
/// Handshakes that go on before it is looked who else comes.
const EVENTS_PER_TURN_MAX: usize = 64;
/// Accepts of one listener before the others get their turn.
const ACCEPTS_PER_TURN_MAX: usize = 256;
const BACK_OFF_LEAST: Duration = Duration::from_millis(50);
const BACK_OFF_MOST: Duration = Duration::from_secs(1);
/// Time that a refused client has to read why.
const LINGER: Duration = Duration::from_millis(500);
const LINGERING_MAX: usize = 64;
/// One line in this time, however many clients are refused.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// Starts the acceptor's thread, and that of clients with TLS where there are some.
pub(crate) fn start<P: Protocol>(handle: &Handle<P>, listeners: Vec<Listener>) -> Result<(), StartError> {
    let (tls, plain): (Vec<_>, Vec<_>) = listeners.into_iter().partition(|listener| listener.is_tls);
    start_one(handle, plain, "accept")?;
    if tls.is_empty() { Ok(()) } else { start_one(handle, tls, "accept-tls") }
}

fn start_one<P: Protocol>(
    handle: &Handle<P>,
    listeners: Vec<Listener>,
    name: &str,
) -> Result<(), StartError> {
    let mut acceptor = Acceptor::new(handle.clone(), listeners)
        .map_err(|source| StartError::System { what: "the acceptor's poller", source })?;
    let thread = thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || acceptor.run())
        .map_err(|source| StartError::System { what: "the acceptor's thread", source })?;
    handle.shared.keep_thread(thread);
    Ok(())
}

/// How a turn of accepting ended.
enum Outcome {
    Drained,
    MoreWait,
    /// As many handshakes are under way as may be, for so long at most.
    Crowded(Duration),
    BackOff,
}

struct Acceptor<P: Protocol> {
    handle: Handle<P>,
    poll: Poll,
    listeners: Vec<Listener>,
    /// Of clients with TLS, which come to its listeners alone.
    handshakes: Handshakes,
    /// Given up when descriptors run out, to be able to refuse.
    spare: Option<OwnedFd>,
    lingering: VecDeque<(Nanos, OwnedFd)>,
    back_off: Duration,
    failing: bool,
    log: Throttle,
    unserved_log: Throttle,
}

impl<P: Protocol> Acceptor<P> {
    fn new(handle: Handle<P>, listeners: Vec<Listener>) -> io::Result<Self> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        for (index, listener) in listeners.iter().enumerate() {
            let raw = listener.descriptor().as_fd().as_raw_fd();
            poll.registry().register(&mut SourceFd(&raw), Token(index), Interest::READABLE)?;
        }
        handle.shared.acceptors.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
        let (stats, registry) = (Arc::clone(&handle.shared.handshake_stats), poll.registry().try_clone()?);
        Ok(Self {
            handle,
            poll,
            handshakes: Handshakes::new(stats, registry, listeners.len()),
            listeners,
            spare: make_spare(),
            lingering: VecDeque::new(),
            back_off: BACK_OFF_LEAST,
            failing: false,
            log: Throttle::new(LOGGED_EVERY),
            unserved_log: Throttle::new(LOGGED_EVERY),
        })
    }

    fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS_PER_TURN_MAX);
        let (mut timeout, mut failures) = (Some(Duration::ZERO), 0);
        while !self.handle.shared.is_stopping() {
            match self.poll.poll(&mut events, timeout) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    failures += 1;
                    if failures == WAIT_FAILURES_MAX {
                        tracing::error!(%error, "cannot wait for connections");
                        return self.handle.shared.protocol.on_failure("connections cannot be waited for");
                    }
                }
                _ => failures = 0,
            }
            if self.handle.shared.is_stopping() {
                return;
            }
            for event in &events {
                let now = self.handle.shared.clock.now();
                if let Some(done) = self.handshakes.go_on(event.token(), now) {
                    self.take_in_sealed(done);
                }
            }
            timeout = self.accept_all();
        }
    }

    /// Takes in what waits on any listener; returns how long to wait at most before the next time.
    fn accept_all(&mut self) -> Option<Duration> {
        let late = self.handshakes.end_late(self.handle.shared.clock.now());
        let mut timeout = self.end_lingering().into_iter().chain(late).min();
        for index in 0..self.listeners.len() {
            let limit = match self.accept_some(index) {
                Outcome::Drained => continue,
                Outcome::MoreWait => Duration::ZERO,
                Outcome::Crowded(wait) => wait,
                Outcome::BackOff => {
                    let wait = self.back_off;
                    self.back_off = (wait * 2).min(BACK_OFF_MOST);
                    wait
                }
            };
            timeout = Some(timeout.map_or(limit, |other| other.min(limit)));
        }
        timeout
    }

    fn accept_some(&mut self, index: usize) -> Outcome {
        let is_tls = self.listeners[index].is_tls;
        let tls = is_tls.then(|| self.handle.shared.tls()).flatten();
        for _ in 0..ACCEPTS_PER_TURN_MAX {
            let now = self.handle.shared.clock.now();
            if tls.as_ref().is_some_and(|options| !self.handshakes.make_room(options, now)) {
                return Outcome::Crowded(self.handshakes.room_in(now));
            }
            match self.listeners[index].accept() {
                Ok(accepted) => {
                    self.succeeded();
                    match &tls {
                        Some(options) => self.handshakes.begin(accepted, options, now),
                        None if is_tls => {}
                        None => self.take_in(accepted),
                    }
                }
                Err(Errno::AGAIN) => return Outcome::Drained,
                Err(error @ (Errno::MFILE | Errno::NFILE)) => {
                    self.failed(error);
                    if !self.refuse_with_spare(index) {
                        return Outcome::BackOff;
                    }
                }
                Err(error @ (Errno::NOBUFS | Errno::NOMEM)) => {
                    self.failed(error);
                    return Outcome::BackOff;
                }
                Err(_) => {
                    self.handle.shared.accept_stats.failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
        Outcome::MoreWait
    }

    fn take_in(&mut self, accepted: Accepted) {
        let shared = &self.handle.shared;
        if shared.open.load(Ordering::Relaxed) >= shared.connections_max.load(Ordering::Relaxed) {
            self.say_full();
            return self.refuse(accepted.socket);
        }
        let place = shared.choose_loop(&accepted.peer);
        match admit(&self.handle, accepted, None, place) {
            Ok(_) => _ = shared.accept_stats.accepted.fetch_add(1, Ordering::Relaxed),
            Err((error, socket)) => {
                self.say_unserved(&error);
                self.refuse(socket);
            }
        }
    }

    /// As [`Acceptor::take_in`], of a client whose handshake is done.
    fn take_in_sealed(&mut self, done: Done) {
        let shared = &self.handle.shared;
        let Done { accepted, session, peer } = done;
        if shared.open.load(Ordering::Relaxed) >= shared.connections_max.load(Ordering::Relaxed) {
            self.say_full();
            let mut tls = Tls::new(session);
            shared.accept_stats.refused.fetch_add(1, Ordering::Relaxed);
            let _ = rustix::net::send(
                &accepted.socket,
                &tls.refusal(shared.protocol.refusal()),
                SendFlags::NOSIGNAL,
            );
            let _ = rustix::net::shutdown(&accepted.socket, Shutdown::Write);
            return self.let_linger(accepted.socket);
        }
        let place = shared.choose_loop(&accepted.peer);
        match admit(&self.handle, accepted, Some((Box::new(Tls::new(session)), peer)), place) {
            Ok(_) => _ = shared.accept_stats.accepted.fetch_add(1, Ordering::Relaxed),
            // Its client sees the stream end: what it would be told can be sealed no more.
            Err((error, _)) => {
                shared.accept_stats.refused.fetch_add(1, Ordering::Relaxed);
                self.say_unserved(&error);
            }
        }
    }

    /// Logs now and then that a client is one too many.
    fn say_full(&self) {
        let shared = &self.handle.shared;
        if let Some(skipped) = self.log.admit(shared.clock.now()) {
            let max = shared.connections_max.load(Ordering::Relaxed);
            tracing::warn!(max, skipped, "a client was refused: connections.max is reached");
        }
    }

    /// Logs now and then that the system gives no thread for a connection.
    fn say_unserved(&self, error: &io::Error) {
        if let Some(skipped) = self.unserved_log.admit(self.handle.shared.clock.now()) {
            let connections = self.handle.connection_count();
            tracing::warn!(
                %error, connections, skipped,
                "a client was refused: no thread for it (limits: ulimit -u, TasksMax)"
            );
        }
    }

    /// Tells a client that it is one too many.
    fn refuse(&mut self, socket: OwnedFd) {
        self.say_refusal(&socket);
        self.let_linger(socket);
    }

    fn let_linger(&mut self, socket: OwnedFd) {
        if self.lingering.len() == LINGERING_MAX {
            self.lingering.pop_front();
        }
        self.lingering.push_back((self.handle.shared.clock.now() + LINGER, socket));
    }

    fn say_refusal(&self, socket: &OwnedFd) {
        self.handle.shared.accept_stats.refused.fetch_add(1, Ordering::Relaxed);
        let refusal = self.handle.shared.protocol.refusal();
        // A client that has gone, or whose buffer is full from the start, is not told.
        let _ = rustix::net::send(socket, refusal, SendFlags::NOSIGNAL);
        let _ = rustix::net::shutdown(socket, Shutdown::Write);
    }

    /// Closes refused sockets whose time is over; returns the time until the next.
    fn end_lingering(&mut self) -> Option<Duration> {
        let now = self.handle.shared.clock.now();
        while self.lingering.front().is_some_and(|(deadline, _)| *deadline <= now) {
            self.lingering.pop_front();
        }
        self.lingering.front().map(|(deadline, _)| *deadline - now)
    }

    /// Uses the spare descriptor to answer the connection that waits; whether that worked.
    fn refuse_with_spare(&mut self, index: usize) -> bool {
        self.lingering.clear();
        let Some(spare) = self.spare.take().or_else(make_spare) else { return false };
        drop(spare);
        // Another thread may be faster to take the descriptor; then backing off is what is left.
        let accepted = self.listeners[index].accept();
        if let Ok(accepted) = &accepted
            && !self.listeners[index].is_tls
        {
            self.say_refusal(&accepted.socket);
        }
        let worked = accepted.is_ok();
        drop(accepted);
        self.spare = make_spare();
        worked
    }

    fn failed(&mut self, error: Errno) {
        self.handle.shared.accept_stats.failures.fetch_add(1, Ordering::Relaxed);
        if !std::mem::replace(&mut self.failing, true) {
            let connections = self.handle.connection_count();
            tracing::warn!(%error, connections, "cannot take connections in; those that are open go on");
        }
    }

    fn succeeded(&mut self) {
        if std::mem::replace(&mut self.failing, false) {
            self.back_off = BACK_OFF_LEAST;
            tracing::info!("taking connections in again");
        }
    }
}

/// Makes a socket one of the reactor's connections: it is counted, found by its id, and on its way to its loop, which with the word
/// whether it is bound to that is its place. With TLS its handshake is done.
///
/// # Errors
/// The system gives no thread for it; the socket comes back.
pub(crate) fn admit<P: Protocol>(
    handle: &Handle<P>,
    accepted: Accepted,
    tls: Option<(Box<Tls>, TlsPeer)>,
    (loop_index, is_bound): (usize, bool),
) -> Result<Arc<Connection>, (io::Error, OwnedFd)> {
    let shared = &handle.shared;
    bound_buffers(&accepted, shared.options.tcp_loopback_buffer_bytes);
    shared.open.fetch_add(1, Ordering::Relaxed);
    shared.stats[loop_index].connections.fetch_add(1, Ordering::Relaxed);
    shared.stats[loop_index].arrivals.fetch_add(1, Ordering::Relaxed);
    let as_killer: Arc<dyn Killer> = Arc::clone(shared) as Arc<dyn Killer>;
    let killer: Weak<dyn Killer> = Arc::downgrade(&as_killer);
    let (tls, tls_peer) = tls.unzip();
    let connection = Arc::new(Connection::new(NewConnection {
        id: shared.next_id.fetch_add(1, Ordering::Relaxed),
        peer_user: user_of(&accepted),
        tls: tls_peer,
        peer: accepted.peer,
        local: accepted.local,
        created: shared.clock.now(),
        descriptor: accepted.socket.as_raw_fd(),
        loop_index,
        killer,
        is_bound,
    }));
    let mut peer = Box::new(Peer::new(Arc::clone(&connection), accepted.socket, &shared.limits.load()));
    if let Some(tls) = tls {
        peer.speak_tls(tls);
    }
    if shared.options.connector == Connector::Threads {
        return threads::start(handle, peer).map(|()| connection);
    }
    shared.table().insert(connection.id(), Route { connection: Arc::clone(&connection), mailbox: None });
    shared.mailboxes[loop_index].post(Post::Arrive(peer, VecDeque::new()));
    Ok(connection)
}

/// The user whose process is at the other end, which the kernel tells of a Unix socket.
fn user_of(accepted: &Accepted) -> Option<u32> {
    let is_unix = matches!(accepted.peer, Address::Unix(_));
    let told = is_unix.then(|| rustix::net::sockopt::socket_peercred(&accepted.socket).ok()).flatten();
    told.map(|told| told.uid.as_raw())
}

/// Bounds what the kernel buffers for a peer on loopback. A connection works without that: an error is none of it.
fn bound_buffers(accepted: &Accepted, bytes: Option<usize>) {
    let (Address::Tcp(peer), Some(bytes)) = (&accepted.peer, bytes) else { return };
    if !peer.ip().is_loopback() {
        return;
    }
    let sizes = set_socket_recv_buffer_size(&accepted.socket, bytes)
        .and_then(|()| set_socket_send_buffer_size(&accepted.socket, bytes));
    if let Err(error) = sizes {
        tracing::debug!(%error, "the buffers of a connection keep the system's sizes");
    }
}

fn make_spare() -> Option<OwnedFd> {
    rustix::event::eventfd(0, EventfdFlags::CLOEXEC).ok()
}

#[cfg(test)]
mod tests {
    use rustix::net::sockopt::{socket_recv_buffer_size, socket_send_buffer_size};
    use socket2::{Domain, Socket, Type};

    use super::*;

    fn buffers(peer: &str, bytes: Option<usize>) -> (usize, usize) {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap().into();
        let peer = Address::Tcp(peer.parse().unwrap());
        let accepted = Accepted { socket, local: Arc::new(peer.clone()), peer };
        bound_buffers(&accepted, bytes);
        let sizes = [socket_recv_buffer_size(&accepted.socket), socket_send_buffer_size(&accepted.socket)];
        sizes.map(Result::unwrap).into()
    }

    #[test]
    fn buffers_are_bounded_for_peers_on_loopback_alone() {
        let system = buffers("127.0.0.1:1", None);
        assert_eq!(buffers("192.0.2.1:1", Some(4 << 10)), system);
        // The kernel takes twice as much.
        assert_eq!(buffers("127.0.0.1:1", Some(4 << 10)), (8 << 10, 8 << 10));
        assert_ne!(system, (8 << 10, 8 << 10));
    }
}
