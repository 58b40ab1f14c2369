//! Background care of the journal log: segments that are not needed, records in the way, and removals that nothing followed.
//!
//! Invariants
//!   1. What it writes waits for no sync of its own: it becomes durable with what others write.
//!   2. A record that cannot be read back ends the log: it was durable, and is damaged.

use std::sync::atomic::Ordering;
use std::time::Duration;

use journal::{Class, Draft, Keyspace, SegmentInfo, SegmentState, footprint};

use super::records::{KIND_DECISION, KIND_START};
use super::{Inner, Live, One, START};
use crate::id::TxId;

impl Inner {
    /// What the thread of the log does.
    pub(super) fn tend_until_over(&self) {
        let mut has_worked = true;
        while !self.shared.is_over.load(Ordering::Acquire) {
            has_worked = (self.shared.has_rolled.swap(false, Ordering::AcqRel) || has_worked) && self.tend();
            if has_worked {
                std::thread::park_timeout(PAUSE);
            } else if self.may_rest() {
                std::thread::park();
            } else {
                std::thread::park_timeout(IDLE);
                self.append_idle_removals();
            }
        }
    }

    /// Whether nothing is to be looked after: whoever removes next wakes this thread.
    fn may_rest(&self) -> bool {
        self.shared.is_attended.store(false, Ordering::SeqCst);
        let may = self.shared.state().removals.is_empty();
        self.shared.is_attended.store(!may, Ordering::SeqCst);
        may
    }

    /// Gives up what can be given up, and writes again what is in the way; false when there was nothing to do.
    pub(super) fn tend(&self) -> bool {
        let mut retired = self.retired.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let segments = self.journal.segments();
        let sealed = segments.iter().filter(|info| info.state != SegmentState::Open);
        let kept: Vec<&SegmentInfo> = sealed.filter(|info| info.segment > *retired).collect();
        let mut has_worked = false;
        for info in &kept {
            if !self.shared.state().ledger.is_free(info.segment, self.journal.durable_seq()) {
                break;
            }
            if let Err(error) = self.journal.retire(info.segment) {
                tracing::error!(%error, "a segment of the decision log stays");
                break;
            }
            *retired = info.segment;
            has_worked = true;
        }
        let rest: Vec<&SegmentInfo> = kept.into_iter().filter(|info| info.segment > *retired).collect();
        has_worked || self.move_oldest(&rest)
    }

    /// Writes the oldest records again if few hold up much.
    fn move_oldest(&self, sealed: &[&SegmentInfo]) -> bool {
        let used: u64 = sealed.iter().map(|info| info.end_bytes).sum();
        let state = self.shared.state();
        let is_due = sealed.len() > SEGMENTS_KEPT && used > LIVE_SHARE * state.ledger.bytes();
        let Some(oldest) = sealed.first().filter(|_| is_due && state.stopped.is_none()) else { return false };
        let records = state.ledger.oldest_of(oldest.segment, MOVED_TOGETHER);
        drop(state);
        let mut payload = Vec::new();
        records.into_iter().fold(false, |moved, (tx, live)| self.move_one(tx, live, &mut payload) || moved)
    }

    fn move_one(&self, tx: TxId, live: Live, payload: &mut Vec<u8>) -> bool {
        let read = self.journal.read(live.address, live.payload_len as usize, payload);
        let Ok(credits) = self.journal.reserve(footprint([live.payload_len]), Class::Reclaim) else {
            return false;
        };
        let mut state = self.shared.state();
        if !state.ledger.is_at(tx, live) || state.stopped.is_some() {
            return false;
        }
        if let Err(error) = read {
            // Those that wait are on their way.
            self.shared.stop(&mut state, &format!("the decision of {tx} cannot be read back: {error}"));
            drop(state);
            tracing::error!(%tx, %error, "a decision cannot be read back");
            return false;
        }
        let parts = [&payload[..]];
        let kind = if tx == START { KIND_START } else { KIND_DECISION };
        let mut one = One::default();
        let seq =
            self.journal.append(credits, &[Draft::new(kind, Keyspace::NONE, &parts)], &mut one).last_seq;
        state.ledger.put(tx, Live { address: one.address(), ..live }, seq);
        true
    }

    /// Nobody has written for a while: removals become durable, so that the next start need not look at what they remove.
    fn append_idle_removals(&self) {
        let mut state = self.shared.state();
        if state.waiting.is_empty() && state.stopped.is_none() {
            state.append_removals(&self.journal);
            drop(state);
            self.journal.offer();
        }
    }
}

/// Between pieces of work.
const PAUSE: Duration = Duration::from_millis(10);
/// After so long removals are written though nobody writes a decision.
const IDLE: Duration = Duration::from_secs(1);
/// Sealed segments that may be held up by whatever.
const SEGMENTS_KEPT: usize = 4;
/// Sealed segments may take so many times what is needed.
const LIVE_SHARE: u64 = 2;
/// Records that are written again in one go.
const MOVED_TOGETHER: usize = 64;
