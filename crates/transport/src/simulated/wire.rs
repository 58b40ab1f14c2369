//! One simulated connection: a session at each end, and the bytes that are on their way to it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::Nanos;

use super::Faults;
use crate::link::Doorbell;
use crate::rng::Rng;
use crate::session::Session;
use crate::{LinkError, NodeId};

/// Bytes on their way, or not read, above which nothing more is written.
const PIPE_BYTES_MAX: usize = 256 << 10;
/// About what one write brings.
const WRITE_BYTES: usize = 64 << 10;

/// What an end is told by those that send.
#[derive(Default)]
pub(super) struct Bell {
    is_rung: AtomicBool,
    is_hung_up: AtomicBool,
}

impl Doorbell for Bell {
    fn ring(&self) {
        self.is_rung.store(true, Ordering::SeqCst);
    }

    fn hang_up(&self) {
        self.is_hung_up.store(true, Ordering::SeqCst);
    }
}

/// One end.
pub(super) struct End {
    pub(super) owner: NodeId,
    /// Gone when it is closed.
    pub(super) session: Option<Session>,
    bell: Arc<Bell>,
    /// Pieces that are on their way here, in the order of their arrival.
    coming: VecDeque<(Nanos, Vec<u8>)>,
    coming_bytes: usize,
    /// When the end of what comes arrives.
    ends_at: Option<Nanos>,
    /// What arrived and is not a whole chunk.
    input: Vec<u8>,
    /// There is more to write than the pipe takes.
    has_more: bool,
}

impl End {
    pub(super) fn new(owner: NodeId, session: impl FnOnce(Arc<dyn Doorbell>) -> Session) -> Self {
        let bell = Arc::new(Bell::default());
        let session = session(Arc::clone(&bell) as Arc<dyn Doorbell>);
        bell.ring();
        Self {
            owner,
            session: Some(session),
            bell,
            coming: VecDeque::new(),
            coming_bytes: 0,
            ends_at: None,
            input: Vec::new(),
            has_more: false,
        }
    }

    /// When something is due here.
    pub(super) fn next_event(&self) -> Option<Nanos> {
        let session = self.session.as_ref()?;
        if self.bell.is_rung.load(Ordering::SeqCst) || self.bell.is_hung_up.load(Ordering::SeqCst) {
            return Some(Nanos::default());
        }
        let arrival = self.coming.front().map(|(at, _)| *at).or(self.ends_at);
        let deadline = session.deadline(self.has_more);
        Some(arrival.map_or(deadline, |at| at.min(deadline)))
    }

    /// Adds bytes that arrive here later than all that are on their way, in pieces.
    fn send(&mut self, bytes: &[u8], now: Nanos, faults: &Faults, rng: &mut Rng) {
        let last = self.coming.back().map_or(now, |(at, _)| *at);
        let mut rest = bytes;
        let mut at = last;
        while !rest.is_empty() {
            let span = faults.piece_bytes.end.saturating_sub(faults.piece_bytes.start) as u64;
            let count = (faults.piece_bytes.start + rng.below(span) as usize).clamp(1, rest.len());
            let (piece, after) = rest.split_at(count);
            let jitter = faults.delay.end.saturating_sub(faults.delay.start).as_nanos() as u64;
            let delay = faults.delay.start + std::time::Duration::from_nanos(rng.below(jitter));
            at = at.max(now + delay);
            self.coming.push_back((at, piece.to_vec()));
            rest = after;
        }
        self.coming_bytes += bytes.len();
    }

    /// Only a part of what is on its way here arrives, and then the end.
    fn cut(&mut self, now: Nanos, rng: &mut Rng) {
        let mut left = rng.below(self.coming_bytes as u64 + 1) as usize;
        for (_, piece) in &mut self.coming {
            piece.truncate(left);
            left -= piece.len();
        }
        self.coming.retain(|(_, piece)| !piece.is_empty());
        self.coming_bytes = self.coming.iter().map(|(_, piece)| piece.len()).sum();
        let last = self.coming.back().map_or(now, |(at, _)| *at);
        self.ends_at = Some(self.ends_at.map_or(last, |at| at.min(last)));
    }
}

/// A connection.
pub(super) struct Wire {
    pub(super) ends: [End; 2],
}

impl Wire {
    /// Whether it is between these two.
    pub(super) fn joins(&self, one: NodeId, other: NodeId) -> bool {
        let owners = self.ends.each_ref().map(|end| end.owner);
        owners == [one, other] || owners == [other, one]
    }

    /// Has end `side` take what came, notice the time, and write. `Err`: it is to be closed, for this reason or because the peer did.
    pub(super) fn step(
        &mut self,
        side: usize,
        now: Nanos,
        faults: &Faults,
        rng: &mut Rng,
    ) -> Result<(), Option<LinkError>> {
        let end = &mut self.ends[side];
        let Some(session) = &mut end.session else { return Ok(()) };
        end.bell.is_rung.store(false, Ordering::SeqCst);
        if end.bell.is_hung_up.load(Ordering::SeqCst) {
            return Err(Some(LinkError::Superseded));
        }
        session.on_time(now).map_err(Some)?;
        let has_ended = self.take_in(side, now);
        let end = &mut self.ends[side];
        let Some(session) = &mut end.session else { return Ok(()) };
        let taken = session.on_bytes(&end.input, now).map_err(Some)?;
        end.input.drain(..taken.consumed_bytes);
        if has_ended {
            return Err(None);
        }
        self.write(side, now, faults, rng).map_err(Some)
    }

    /// Takes in what has arrived at end `side`, and tells the other if there is room again; whether that is all that will come.
    fn take_in(&mut self, side: usize, now: Nanos) -> bool {
        let end = &mut self.ends[side];
        while let Some((_, piece)) = end.coming.pop_front_if(|(at, _)| *at <= now) {
            end.coming_bytes -= piece.len();
            end.input.extend_from_slice(&piece);
        }
        let (has_ended, has_room) = (
            end.coming.is_empty() && end.ends_at.is_some_and(|at| at <= now),
            end.coming_bytes < PIPE_BYTES_MAX,
        );
        let other = &self.ends[1 - side];
        if has_room && other.has_more {
            other.bell.ring();
        }
        has_ended
    }

    fn write(&mut self, side: usize, now: Nanos, faults: &Faults, rng: &mut Rng) -> Result<(), LinkError> {
        let [one, two] = &mut self.ends;
        let (end, other) = if side == 0 { (one, two) } else { (two, one) };
        let Some(session) = &mut end.session else { return Ok(()) };
        end.has_more = true;
        let mut is_cut = false;
        while end.has_more && other.coming_bytes < PIPE_BYTES_MAX {
            let mut bytes = Vec::new();
            end.has_more = session.write(now, WRITE_BYTES, &mut bytes)?;
            if bytes.is_empty() {
                break;
            }
            if other.ends_at.is_none() {
                other.send(&bytes, now, faults, rng);
                is_cut |= rng.below(1_000) < faults.cuts_per_mille;
            }
        }
        if is_cut {
            self.cut(now, rng);
        }
        Ok(())
    }

    /// Both ends will see the end of the connection.
    pub(super) fn cut(&mut self, now: Nanos, rng: &mut Rng) {
        self.ends.iter_mut().for_each(|end| end.cut(now, rng));
    }

    /// Closes end `side`; who its peer is, and whether they had talked.
    pub(super) fn close(&mut self, side: usize, now: Nanos) -> (Option<NodeId>, bool) {
        let Some(session) = self.ends[side].session.take() else { return (None, false) };
        session.on_close();
        let other = &mut self.ends[1 - side];
        let last = other.coming.back().map_or(now, |(at, _)| *at);
        other.ends_at.get_or_insert(last);
        (session.peer(), !session.is_stranger())
    }

    /// Node `id` is gone.
    pub(super) fn abandon(&mut self, id: NodeId, now: Nanos, silently: bool) {
        for side in [0, 1] {
            if self.ends[side].owner == id && self.ends[side].session.take().is_some() && !silently {
                let other = &mut self.ends[1 - side];
                let last = other.coming.back().map_or(now, |(at, _)| *at);
                other.ends_at.get_or_insert(last);
            }
        }
    }
}
