//! Two sessions of one process, each of which takes what the other writes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::Nanos;

use super::Signal;
use crate::LinkError;
use crate::link::{Doorbell, Payload};
use crate::node::Node;
use crate::session::{Session, Sink};
use crate::wire::{Chunk, Header};

/// About what one end hands to the other before it is the other's turn.
const WRITE_BYTES: usize = 256 << 10;
/// Turns of both ends before other wires have theirs.
const ROUNDS_MAX: usize = 8;

/// What an end is told by those that send.
struct Bell {
    signal: Arc<Signal>,
    is_rung: AtomicBool,
    is_hung_up: AtomicBool,
}

impl Doorbell for Bell {
    fn ring(&self) {
        self.is_rung.store(true, Ordering::SeqCst);
        self.signal.set();
    }

    fn hang_up(&self) {
        self.is_hung_up.store(true, Ordering::SeqCst);
        self.signal.set();
    }
}

/// Chunks on their way from one end to the other.
#[derive(Default)]
struct Chunks(Vec<(Header, Carried)>);

enum Carried {
    Own(Vec<u8>),
    Shared(Payload),
}

impl Sink for Chunks {
    fn own(&mut self, header: &Header, payload: &[u8]) {
        self.0.push((*header, Carried::Own(payload.to_vec())));
    }

    fn shared(&mut self, header: &Header, payload: &Payload) {
        self.0.push((*header, Carried::Shared(Arc::clone(payload))));
    }
}

struct End {
    node: Arc<Node>,
    session: Session,
    bell: Arc<Bell>,
    /// It took chunks, or has more to write: it is its turn without a bell.
    is_due: bool,
}

impl End {
    fn new(
        node: &Arc<Node>,
        signal: &Arc<Signal>,
        session: impl FnOnce(Arc<dyn Doorbell>) -> Session,
    ) -> Self {
        let bell = Arc::new(Bell {
            signal: Arc::clone(signal),
            is_rung: AtomicBool::new(false),
            is_hung_up: AtomicBool::new(false),
        });
        let session = session(Arc::clone(&bell) as Arc<dyn Doorbell>);
        Self { node: Arc::clone(node), session, bell, is_due: true }
    }
}

/// A connection within the process.
pub(super) struct Wire {
    ends: [End; 2],
    chunks: Chunks,
}

impl Wire {
    /// Between `one`, which has the lower number, and `other`.
    pub(super) fn new(one: &Arc<Node>, other: &Arc<Node>, signal: &Arc<Signal>, now: Nanos) -> Self {
        let dialer = End::new(one, signal, |bell| Session::dialed(Arc::clone(one), bell, now, other.id));
        let acceptor = End::new(other, signal, |bell| Session::accepted(Arc::clone(other), bell, now));
        Self { ends: [dialer, acceptor], chunks: Chunks::default() }
    }

    /// Whether it is between these runs of these two.
    pub(super) fn joins(&self, one: &Arc<Node>, other: &Arc<Node>) -> bool {
        Arc::ptr_eq(&self.ends[0].node, one) && Arc::ptr_eq(&self.ends[1].node, other)
    }

    /// Has both ends take turns while they have something to say; whether they still have.
    ///
    /// # Errors
    /// An end was closed.
    pub(super) fn pump(&mut self, now: Nanos) -> Result<bool, LinkError> {
        for _ in 0..ROUNDS_MAX {
            let first = self.turn(0, now)?;
            let second = self.turn(1, now)?;
            if !(first || second) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Hands what end `side` has to say to the other; whether there was anything.
    fn turn(&mut self, side: usize, now: Nanos) -> Result<bool, LinkError> {
        let [one, two] = &mut self.ends;
        let (end, other) = if side == 0 { (one, two) } else { (two, one) };
        if end.bell.is_hung_up.load(Ordering::SeqCst) {
            return Err(LinkError::Superseded);
        }
        let is_rung = end.bell.is_rung.swap(false, Ordering::SeqCst);
        if !(is_rung || end.is_due || end.session.deadline(false) <= now) {
            return Ok(false);
        }
        end.session.on_time(now)?;
        end.is_due = end.session.write(now, WRITE_BYTES, &mut self.chunks)?;
        let has_chunks = !self.chunks.0.is_empty();
        for (header, carried) in self.chunks.0.drain(..) {
            let payload = match &carried {
                Carried::Own(bytes) => bytes,
                Carried::Shared(payload) => payload.as_slice(),
            };
            other.session.on_chunk(&Chunk { header, payload }, now)?;
            other.is_due = true;
        }
        Ok(has_chunks)
    }

    /// When an end is due although nothing happens.
    pub(super) fn deadline(&self) -> Nanos {
        self.ends[0].session.deadline(false).min(self.ends[1].session.deadline(false))
    }

    /// Tells both links that it has ended.
    pub(super) fn close(&mut self) {
        self.ends.iter().for_each(|end| end.session.on_close());
    }
}
