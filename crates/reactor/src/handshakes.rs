//! TLS handshakes, before their connections go to a loop: on the thread that accepts them, which does nothing else
//! ([ADR 0069](../../../docs/adr/0069-tls.md)).
//!
//! ```text
//!  accepted --> under way (by number) --done----------------------> admitted, with what else came
//!                 |  not TLS, broken, certificate, cut, too long --> closed, counted by reason
//!                 '- all places taken: who began first and has had its second goes
//! ```
//!
//! Invariants
//!   1. At most `handshakes_max` are under way; each ends by its deadline, and keeps at most [`CAME_BYTES_MAX`] of what came.
//!   2. A loop sees a connection only when its handshake is done: a storm of them costs a loop no more than the processor's share that
//!      this one thread takes.
//!
//! Out of scope: accepting, admitting (`accept`); bytes behind the handshake (`tls`).

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use clock::{Nanos, Throttle};
use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, sendmsg};
use rustls::{Error as TlsError, HandshakeKind, ServerConnection};

use crate::connection::TlsPeer;
use crate::listen::Accepted;
use crate::tls::TlsOptions;

/// Most that comes before a handshake is done: a chain of certificates, and what is sent behind it at once.
const CAME_BYTES_MAX: usize = 64 << 10;
/// Bytes read at a time.
const READ_BYTES: usize = 4 << 10;
/// What a record of a handshake begins with.
const HANDSHAKE_RECORD: u8 = 0x16;
/// Time that a handshake has before it makes room for another.
const UNDISTURBED: Duration = Duration::from_secs(1);
/// One line of a reason in this time.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

/// Why a handshake failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Failure {
    /// What came is no TLS.
    NotTls,
    /// The two have no version or cipher in common, or what came breaks the rules.
    Protocol,
    /// The client has shown no certificate that is trusted.
    Certificate,
    /// The client does not take ours.
    Refused,
    /// It was not done in time.
    TimedOut,
    /// The client went away.
    Cut,
    /// Others needed its place.
    Crowded,
}

const FAILURES: usize = 7;

/// Names of [`Failure`], in order.
const NAMES: [&str; FAILURES] =
    ["not_tls", "protocol", "certificate", "refused", "timed_out", "cut", "crowded"];

/// Handshakes of TLS since the start.
#[derive(Debug, Default)]
pub struct HandshakeStats {
    pub(crate) done: AtomicU64,
    pub(crate) resumed: AtomicU64,
    pub(crate) under_way: AtomicUsize,
    failed: [AtomicU64; FAILURES],
}

impl HandshakeStats {
    /// Handshakes that made a connection.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// How many of them took up an earlier session.
    #[must_use]
    pub fn resumed(&self) -> u64 {
        self.resumed.load(Ordering::Relaxed)
    }

    /// Handshakes that go on now.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.under_way.load(Ordering::Relaxed)
    }

    /// Handshakes that failed, by the name of the reason.
    #[must_use]
    pub fn failed(&self) -> [(&'static str, u64); FAILURES] {
        std::array::from_fn(|index| (NAMES[index], self.failed[index].load(Ordering::Relaxed)))
    }

    /// All of them.
    #[must_use]
    pub fn counts(&self) -> HandshakeCounts {
        let (done, resumed, under_way) = (self.done(), self.resumed(), self.under_way() as u64);
        HandshakeCounts { done, resumed, under_way, failed: self.failed() }
    }
}

/// What [`HandshakeStats`] had counted at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HandshakeCounts {
    /// See [`HandshakeStats::done`].
    pub done: u64,
    /// See [`HandshakeStats::resumed`].
    pub resumed: u64,
    /// See [`HandshakeStats::under_way`].
    pub under_way: u64,
    /// See [`HandshakeStats::failed`].
    pub failed: [(&'static str, u64); FAILURES],
}

/// A handshake that is done.
pub(crate) struct Done {
    pub(crate) accepted: Accepted,
    pub(crate) session: ServerConnection,
    pub(crate) peer: TlsPeer,
}

struct Handshake {
    accepted: Accepted,
    session: ServerConnection,
    began: Nanos,
    deadline: Nanos,
    came_bytes: usize,
}

/// Those under way, by the number of their token: the first began first.
pub(crate) struct Handshakes {
    stats: Arc<HandshakeStats>,
    registry: Registry,
    under_way: BTreeMap<usize, Handshake>,
    next: usize,
    logs: [Throttle; FAILURES],
}

impl Handshakes {
    /// Tokens from `first` on are its own.
    pub(crate) fn new(stats: Arc<HandshakeStats>, registry: Registry, first: usize) -> Self {
        let logs = std::array::from_fn(|_| Throttle::new(LOGGED_EVERY));
        Self { stats, registry, under_way: BTreeMap::new(), next: first, logs }
    }

    /// Whether another may begin. If not, who began first makes room once it has had its time.
    pub(crate) fn make_room(&mut self, options: &TlsOptions, now: Nanos) -> bool {
        if self.under_way.len() < options.handshakes_max {
            return true;
        }
        let Some(first) = self.under_way.first_entry().filter(|first| first.get().began + UNDISTURBED <= now)
        else {
            return false;
        };
        let handshake = first.remove();
        self.fail(&handshake, Failure::Crowded, "", now);
        true
    }

    /// When there is room at the latest, if there is none now.
    pub(crate) fn room_in(&self, now: Nanos) -> Duration {
        self.under_way.first_key_value().map_or(Duration::ZERO, |(_, first)| first.began + UNDISTURBED - now)
    }

    /// Begins one with a client that was accepted.
    pub(crate) fn begin(&mut self, accepted: Accepted, options: &TlsOptions, now: Nanos) {
        let raw = accepted.socket.as_raw_fd();
        let Ok(session) = ServerConnection::new(Arc::clone(&options.config)) else { return };
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = self.next;
        // What came already is told of.
        if let Err(error) = self.registry.register(&mut SourceFd(&raw), Token(token), interest) {
            return tracing::warn!(%error, "a client with TLS was refused: its socket cannot be watched");
        }
        self.next += 1;
        let deadline = now + options.handshake_timeout;
        self.under_way.insert(token, Handshake { accepted, session, began: now, deadline, came_bytes: 0 });
        self.count();
    }

    /// Goes on with the one called `token`, if it is still there.
    pub(crate) fn go_on(&mut self, token: Token, now: Nanos) -> Option<Done> {
        let mut handshake = self.under_way.remove(&token.0)?;
        let done = match handshake.go_on() {
            Ok(true) => Some(self.finish(handshake)),
            Ok(false) => {
                self.under_way.insert(token.0, handshake);
                None
            }
            Err((why, error)) => {
                let text = error.map(|error| error.to_string()).unwrap_or_default();
                self.fail(&handshake, why, &text, now);
                None
            }
        };
        self.count();
        done
    }

    /// Ends those whose time is over; returns the time until the next.
    pub(crate) fn end_late(&mut self, now: Nanos) -> Option<Duration> {
        while let Some(first) = self.under_way.first_entry().filter(|first| first.get().deadline <= now) {
            let handshake = first.remove();
            self.fail(&handshake, Failure::TimedOut, "", now);
        }
        self.count();
        self.under_way.first_key_value().map(|(_, first)| first.deadline - now)
    }

    fn finish(&self, handshake: Handshake) -> Done {
        let Handshake { accepted, session, .. } = handshake;
        let raw = accepted.socket.as_raw_fd();
        // It goes to another poller; one that cannot be taken out of this one is gone, which its loop will see.
        let _ = self.registry.deregister(&mut SourceFd(&raw));
        self.stats.done.fetch_add(1, Ordering::Relaxed);
        let is_resumed = session.handshake_kind() == Some(HandshakeKind::Resumed);
        self.stats.resumed.fetch_add(u64::from(is_resumed), Ordering::Relaxed);
        let shown = session.peer_certificates().and_then(<[_]>::first);
        let name = shown.and_then(tls::name::common_name).map(Into::into);
        Done { accepted, session, peer: TlsPeer { name } }
    }

    /// Counts and tells of one that failed; its socket closes.
    fn fail(&self, handshake: &Handshake, why: Failure, error: &str, now: Nanos) {
        self.stats.failed[why as usize].fetch_add(1, Ordering::Relaxed);
        let peer = &handshake.accepted.peer;
        if why == Failure::Cut {
            // Whoever looks whether somebody listens does that.
            return tracing::debug!(%peer, "a client went away before its TLS handshake was done");
        }
        let Some(skipped) = self.logs[why as usize].admit(now) else { return };
        let reason = NAMES[why as usize];
        match why {
            Failure::NotTls => {
                tracing::warn!(%peer, skipped, "a client was closed: it does not speak TLS, and this port (tls.port) does");
            }
            Failure::Crowded => tracing::warn!(
                %peer, skipped,
                "a TLS handshake made room for others: tls.handshakes_max are under way, and this one did not get on"
            ),
            _ => tracing::warn!(%peer, reason, error, skipped, "a TLS handshake failed"),
        }
    }

    fn count(&self) {
        self.stats.under_way.store(self.under_way.len(), Ordering::Relaxed);
    }
}

impl Drop for Handshakes {
    fn drop(&mut self) {
        self.under_way.clear();
        self.count();
    }
}

impl Handshake {
    /// Reads and writes as far as the socket lets it; whether it is done.
    fn go_on(&mut self) -> Result<bool, (Failure, Option<TlsError>)> {
        let mut buffer = [0; READ_BYTES];
        loop {
            self.send()?;
            if !self.session.is_handshaking() {
                // What is not sent yet goes along: tickets for later sessions.
                return Ok(true);
            }
            match rustix::net::recv(&self.accepted.socket, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, 0)) => return Err((Failure::Cut, None)),
                Ok((_, count)) => self.take(&buffer[..count])?,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                Err(_) => return Err((Failure::Cut, None)),
            }
        }
    }

    fn take(&mut self, mut bytes: &[u8]) -> Result<(), (Failure, Option<TlsError>)> {
        if self.came_bytes == 0 && bytes[0] != HANDSHAKE_RECORD {
            return Err((Failure::NotTls, None));
        }
        self.came_bytes += bytes.len();
        if self.came_bytes > CAME_BYTES_MAX {
            return Err((Failure::Protocol, None));
        }
        while !bytes.is_empty() {
            let count = self.session.read_tls(&mut bytes).map_err(|_| (Failure::Protocol, None))?;
            if let Err(error) = self.session.process_new_packets() {
                // What is wrong is said, if that goes at once.
                let _ = self.send();
                return Err((failure(&error), Some(error)));
            }
            if count == 0 {
                // The client has said that it ends.
                return Err((Failure::Cut, None));
            }
        }
        Ok(())
    }

    fn send(&mut self) -> Result<(), (Failure, Option<TlsError>)> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Writer(&self.accepted.socket)) {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err((Failure::Cut, None)),
            }
        }
        Ok(())
    }
}

fn failure(error: &TlsError) -> Failure {
    match error {
        TlsError::AlertReceived(_) => Failure::Refused,
        TlsError::InvalidCertificate(_) | TlsError::NoCertificatesPresented => Failure::Certificate,
        _ => Failure::Protocol,
    }
}

/// Sends to a socket.
struct Writer<'a>(&'a OwnedFd);

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(rustix::net::send(self.0, bytes, SendFlags::NOSIGNAL)?)
    }

    fn write_vectored(&mut self, pieces: &[io::IoSlice<'_>]) -> io::Result<usize> {
        Ok(sendmsg(self.0, pieces, &mut SendAncillaryBuffer::default(), SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
