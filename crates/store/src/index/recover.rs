//! What recovery, checkpoints and cleaning do with the index.
//!
//! Recovery replays in LSN order, and addresses grow with LSNs (segment numbers only grow), so for each key the
//! higher address wins and slots need no seq. A moved copy obeys the same rule, because the cleaner appends it
//! under the stripe's lock after checking that the slot still names the source. Two records with equal hash bits
//! are of one key, or the earlier one is dead, unless either is SHARED (`record`): then `same_key` reads.
//!
//! A checkpoint is fuzzy: slots, then expiries, page by page; whatever changed meanwhile is replayed over it.
//! A cold slot does not know its expiry, so expiries are saved as they stand, by time and hash. Replay may leave
//! some behind that no key has any more; they are dropped when they are due (`tend`).
//!
//! Out of scope: reading files, counting live bytes (`log`).

use collections::Deadline;
use journal::{Keyspace, LogAddress, Seq};

use crate::error::StoreError;
use crate::hash::{KeyHash, STRIPES};
use crate::index::Index;
use crate::index::delta::{Delta, broken_chain};
use crate::index::expiry::ExpiryEntry;
use crate::index::stripe::{Current, Deltas, Space};
use crate::index::table::Spot;
use crate::keyspaces::{is_own, keys_of};
use crate::object::{ObjectRef, WORD_DELTAS, WORD_SHARED, Word};
use crate::record::{self, Draft, Role};

/// The records that make up a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Owned {
    /// Address of the base.
    pub(crate) base: LogAddress,
    /// What lies on top, oldest first.
    pub(crate) deltas: Vec<Delta>,
    /// The base's SHARED mark.
    pub(crate) shared: bool,
}

/// One entry of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotItem<'a> {
    /// A key, as far as the index knows it.
    Slot { keyspace: Keyspace, hash: KeyHash, address: LogAddress, shared: bool, deltas: &'a [Delta] },
    /// Some key with this hash expires then.
    Expires { keyspace: Keyspace, hash: KeyHash, expiry: Deadline },
}

/// Where the next slice of a snapshot begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnapshotAt {
    /// Slots of `keyspace` from hash bits `bits` on.
    Slots { keyspace: Keyspace, bits: u64 },
    /// Expiries of `keyspace` after `last`.
    Expiries { keyspace: Keyspace, last: Option<ExpiryEntry> },
}

impl SnapshotAt {
    /// The beginning of a stripe.
    pub(crate) const START: Self = Self::Slots { keyspace: Keyspace::NONE, bits: 0 };
}

/// A record as recovery meets it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replayed {
    pub(crate) keyspace: Keyspace,
    pub(crate) hash: KeyHash,
    pub(crate) address: LogAddress,
    pub(crate) seq: Seq,
    /// Of a delta: [`Delta::since`].
    pub(crate) since: Seq,
    /// With SHARED.
    pub(crate) kind: u8,
    /// The header's expiry.
    pub(crate) expiry: Option<Deadline>,
    /// Bytes in its segment.
    pub(crate) record_bytes: u32,
    /// A copy that cleaning made.
    pub(crate) moved: bool,
}

/// A key as a checkpoint has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LoadedSlot<'a> {
    pub(crate) hash: KeyHash,
    /// Of the base.
    pub(crate) address: LogAddress,
    pub(crate) shared: bool,
    /// On top of the base.
    pub(crate) deltas: &'a [Delta],
}

/// A key in memory, as one record.
#[derive(Clone, Debug)]
pub(crate) struct HotRecord {
    /// What it consists of in the log.
    pub(crate) owned: Owned,
    /// Bytes of its base in its segment.
    pub(crate) base_bytes: u64,
    /// With SHARED.
    pub(crate) kind: u8,
    /// The newest effect in it.
    pub(crate) seq: Seq,
    pub(crate) expiry: Option<Deadline>,
    pub(crate) payload: Box<[u8]>,
}

/// What a replayed record did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replay {
    /// The record is part of its key's newest state.
    pub(crate) live: bool,
    /// The base that it replaced or removed.
    pub(crate) dead_base: Option<LogAddress>,
    /// The deltas that died with it.
    pub(crate) dead_deltas: Vec<Delta>,
}

impl Index {
    /// The records of the key that `address` is part of; `None` when it is part of none.
    pub(crate) fn owns(&self, keyspace: Keyspace, hash: KeyHash, address: LogAddress) -> Option<Owned> {
        let stripe = self.lock(hash.stripe());
        self.lives(keyspace).then_some(())?;
        let space = stripe.space(keyspace)?;
        let spot = space.owner(hash, address)?;
        let word = space.table.word(spot);
        let deltas = space.deltas_of(word.address()).to_vec();
        Some(Owned { base: word.address(), deltas, shared: word.marks() & WORD_SHARED != 0 })
    }

    /// The key whose base is at `base`, as a record of all that is in memory; `None` if it is not there.
    pub(crate) fn hot(&self, keyspace: Keyspace, hash: KeyHash, base: LogAddress) -> Option<HotRecord> {
        let stripe = self.lock(hash.stripe());
        self.lives(keyspace).then_some(())?;
        let space = stripe.space(keyspace)?;
        let word = space.table.word(space.owner(hash, base)?);
        let object = word.object().filter(|object| object.address() == base)?;
        let owned =
            Owned { base, deltas: space.deltas_of(base).to_vec(), shared: word.marks() & WORD_SHARED != 0 };
        let own_bytes = || Current::Hot(object).record_bytes();
        let base_bytes = space.deltas.base_bytes(base).unwrap_or_else(own_bytes);
        let shared = if owned.shared { record::SHARED } else { 0 };
        let (kind, expiry) = (object.kind() | shared, object.expiry());
        let draft = Draft::whole(kind, keyspace, object.key(), object.value(), expiry);
        let payload = draft.parts().concat().into();
        Some(HotRecord { owned, base_bytes, kind, seq: object.seq(), expiry, payload })
    }

    /// Visits the objects in memory of the page at stripe, space and hash bits `at`, but for removed ones, with the small records of their
    /// space; returns where to go on, `None` at the end.
    pub(crate) fn visit_hot(
        &self,
        at: (usize, usize, u64),
        visit: &mut dyn FnMut(Keyspace, ObjectRef<'_>, &Deltas),
    ) -> Option<(usize, usize, u64)> {
        let (number, space_at, bits) = at;
        let mut stripe = self.lock(number);
        let Some((keyspace, space)) = stripe.space_at_mut(space_at) else {
            return (number + 1 < STRIPES).then_some((number + 1, 0, 0));
        };
        let next = space.table.visit_page(bits, &mut |_, _, slot| {
            let object = slot.word.object().filter(|object| object.kind() != record::REMOVED);
            if let Some(object) = object {
                visit(keyspace, object, &space.deltas);
            }
        });
        Some(next.map_or((number, space_at + 1, 0), |bits| (number, space_at, bits)))
    }

    /// Calls `append` under the stripe's lock if the key at `base` still consists of what `owned` says, so that
    /// the copy which it appends follows the source in the log with nothing of that key between; the index stays as it is until [`Index::turn`].
    pub(crate) fn append_if(
        &self,
        keyspace: Keyspace,
        hash: KeyHash,
        owned: &Owned,
        append: impl FnOnce() -> LogAddress,
    ) -> Option<LogAddress> {
        let stripe = self.lock(hash.stripe());
        self.lives(keyspace).then_some(())?;
        let space = stripe.space(keyspace)?;
        let spot = space.owner(hash, owned.base)?;
        let address = space.table.word(spot).address();
        let same = address == owned.base && space.deltas_of(address) == owned.deltas;
        let copy = same.then(append)?;
        let is_behind = owned.deltas.iter().all(|delta| delta.address < copy) && owned.base < copy;
        assert!(is_behind, "the copy at {copy:?} lies before what it is of: replay would take {owned:?}");
        Some(copy)
    }

    /// Turns the key from the record at `from` to its durable copy of `bytes` at `to`.
    ///
    /// A base's copy is the state of effect `seq`: it replaces the deltas up to there, which are returned; later
    /// ones stay on top of it. `None` if the key moved on meanwhile: then the copy is dead.
    pub(crate) fn turn(
        &self,
        keyspace: Keyspace,
        hash: KeyHash,
        from: LogAddress,
        to: LogAddress,
        bytes: u64,
        seq: Seq,
    ) -> Option<Vec<Delta>> {
        assert!(from < to, "a copy at {to:?} of {from:?}, which replay would take");
        let mut stripe = self.lock(hash.stripe());
        self.lives(keyspace).then_some(())?;
        let space = stripe.existing_space_mut(keyspace)?;
        let spot = space.owner(hash, from)?;
        let base = space.table.word(spot).address();
        if base != from {
            let delta = space.deltas.find_mut(base, |delta| delta.address == from)?;
            (delta.address, delta.record_bytes) = (to, bytes as u32);
            return Some(Vec::new());
        }
        let side_bytes = space.side_bytes();
        let dropped = space.rebase(spot, from, to, bytes, seq);
        space.table.word_mut(spot).swing(to);
        let freed = side_bytes - space.side_bytes();
        stripe.unreported_bytes -= freed;
        self.account(stripe.take_unreported());
        Some(dropped)
    }

    /// Visits some of stripe `number` from `at` on, under its lock, at least `budget` entries if there are as
    /// many; returns where to go on, `None` at the end. Dead keyspaces are left out.
    pub(crate) fn snapshot_slice(
        &self,
        number: usize,
        at: SnapshotAt,
        budget: usize,
        visit: &mut dyn FnMut(SnapshotItem<'_>),
    ) -> Option<SnapshotAt> {
        assert!(budget > 0, "a slice without a budget gets no further");
        let stripe = self.lock(number);
        let mapping = self.mapping();
        let (SnapshotAt::Slots { keyspace: from, .. } | SnapshotAt::Expiries { keyspace: from, .. }) = at;
        let mut ids: Vec<Keyspace> = stripe.spaces().map(|(id, _)| id).filter(|id| *id >= from).collect();
        ids.retain(|id| is_own(*id) || mapping.contains(&keys_of(*id)));
        ids.sort_unstable();
        let mut left = budget;
        let mut resume = Some(at).filter(|_| ids.first() == Some(&from));
        for keyspace in ids {
            let space = stripe.space(keyspace).expect("listed above under the same lock");
            let begin = resume.take().unwrap_or(SnapshotAt::Slots { keyspace, bits: 0 });
            let next = match begin {
                SnapshotAt::Slots { bits, .. } => {
                    space.snapshot_slots(number, keyspace, bits, &mut left, visit)
                }
                SnapshotAt::Expiries { last, .. } => {
                    space.snapshot_expiries(number, keyspace, last, &mut left, visit)
                }
            };
            if next.is_some() {
                return next;
            }
        }
        None
    }

    /// Adds slots of a checkpoint, all of stripe `number`, to an index that has not seen their keys.
    pub(crate) fn load_slots<'a>(
        &self,
        keyspace: Keyspace,
        number: usize,
        slots: impl Iterator<Item = LoadedSlot<'a>>,
    ) {
        let mut stripe = self.lock(number);
        let (mut loaded, mut grown) = (0, 0);
        let space = stripe.space_mut(keyspace);
        for LoadedSlot { hash, address, shared, deltas } in slots {
            let mut marks = if shared { WORD_SHARED } else { 0 };
            if !deltas.is_empty() {
                marks |= WORD_DELTAS;
                space.deltas.insert(address, deltas.to_vec(), 0);
            }
            grown += space.insert(hash, Word::cold(address, marks)).1;
            loaded += 1;
        }
        space.table.live += loaded;
        stripe.unreported_bytes += grown;
        self.account(stripe.take_unreported());
    }

    /// Adds expiries of a checkpoint, all of stripe `number`.
    pub(crate) fn load_expiries(
        &self,
        keyspace: Keyspace,
        number: usize,
        expiries: impl Iterator<Item = (KeyHash, Option<Deadline>)>,
    ) {
        let mut stripe = self.lock(number);
        let space = stripe.space_mut(keyspace);
        expiries.for_each(|(hash, expiry)| space.expiry.insert(expiry, hash));
    }

    /// Replays one record with a key; `same_key` reads whether the record at an address has this record's key.
    ///
    /// # Errors
    /// What `same_key` returns.
    pub(crate) fn replay(
        &self,
        replayed: &Replayed,
        same_key: &mut dyn FnMut(LogAddress) -> Result<bool, StoreError>,
    ) -> Result<Replay, StoreError> {
        let mut stripe = self.lock(replayed.hash.stripe());
        let space = stripe.space_mut(replayed.keyspace);
        let spot = space.same_key_slot(replayed, same_key)?;
        let (replay, grown) = space.replay(replayed, spot)?;
        stripe.unreported_bytes += grown;
        self.account(stripe.take_unreported());
        Ok(replay)
    }

    /// Ends recovery: spaces of dead keyspaces go, keys are counted, and memory is accounted to the byte.
    pub(crate) fn finish(&self) {
        for number in 0..STRIPES {
            let mut stripe = self.lock(number);
            // of dead ones, too: whoever frees a space gives back all that it takes
            let side_bytes: i64 = stripe.spaces().map(|(_, space)| space.side_bytes()).sum();
            let dead: Vec<Keyspace> =
                stripe.spaces().map(|(id, _)| id).filter(|id| !self.lives(*id)).collect();
            for id in dead {
                stripe.take_space(id).into_iter().for_each(|space| self.defer_free(space));
            }
            for (id, space) in stripe.spaces() {
                assert_eq!(space.hot_bytes, 0, "recovery makes no hot objects");
                self.count_keys(id, space.table.live as i64);
            }
            self.account(std::mem::take(&mut stripe.unreported_bytes) + side_bytes);
        }
    }
}

impl Space {
    /// The slot of a live key whose base or one of whose deltas lies at `address`.
    fn owner(&self, hash: KeyHash, address: LogAddress) -> Option<Spot> {
        self.table.candidates(hash).find(|spot| {
            let word = self.table.word(*spot);
            let removed = word.object().is_some_and(|object| object.kind() == record::REMOVED);
            let base = word.address();
            !removed && (base == address || self.deltas_of(base).iter().any(|delta| delta.address == address))
        })
    }

    /// Moves the deltas above `seq` from base `from` to base `to`, of so many bytes; returns the others.
    fn rebase(&mut self, spot: Spot, from: LogAddress, to: LogAddress, bytes: u64, seq: Seq) -> Vec<Delta> {
        let deltas = self.deltas.remove(from);
        if deltas.is_empty() {
            return deltas;
        }
        let (dropped, kept): (Vec<_>, Vec<_>) = deltas.into_iter().partition(|delta| delta.seq <= seq);
        if kept.is_empty() {
            self.table.word_mut(spot).clear_mark(WORD_DELTAS);
        } else {
            self.deltas.insert(to, kept, bytes);
        }
        dropped
    }

    /// The slot that has the record's key, by the rule of SHARED: an older one first. A younger one comes from a fuzzy
    /// checkpoint; where neither is SHARED it may be of another key, which came when this record's was dead.
    fn same_key_slot(
        &self,
        replayed: &Replayed,
        same_key: &mut dyn FnMut(LogAddress) -> Result<bool, StoreError>,
    ) -> Result<Option<Spot>, StoreError> {
        let is_same_key = |spot: &Spot, same_key: &mut dyn FnMut(LogAddress) -> Result<bool, StoreError>| {
            let word = self.table.word(*spot);
            let shared = replayed.kind & record::SHARED != 0 || word.marks() & WORD_SHARED != 0;
            Ok(!shared || word.address() == replayed.address || same_key(word.address())?)
        };
        let mut younger = Vec::new();
        for spot in self.table.candidates(replayed.hash) {
            if self.table.word(spot).address() > replayed.address {
                younger.push(spot);
            } else if is_same_key(&spot, same_key)? {
                return Ok(Some(spot));
            }
        }
        for spot in younger {
            if is_same_key(&spot, same_key)? {
                return Ok(Some(spot));
            }
        }
        Ok(None)
    }

    fn replay(&mut self, replayed: &Replayed, spot: Option<Spot>) -> Result<(Replay, i64), StoreError> {
        let is_cold = spot.is_none_or(|spot| self.table.word(spot).object().is_none());
        assert!(is_cold && self.hot_bytes == 0, "recovery makes no hot objects");
        Ok(match (record::role(replayed.kind), spot) {
            // A copy without its source: the key died after the copy was made, and the checkpoint says so.
            (Some(Role::Base(_)), None) if replayed.moved => (Replay::default(), 0),
            (Some(Role::Base(_)), None) => (LIVE, self.replay_new(replayed)),
            (Some(Role::Base(_)), Some(spot)) => (self.replay_base(replayed, spot), 0),
            (Some(Role::Removal), Some(spot)) if self.table.word(spot).address() < replayed.address => {
                let base = self.table.word(spot).address();
                let dead_deltas = self.deltas.remove(base);
                assert!(self.table.live > 0, "a slot of {:?} is there, and no key", replayed.hash);
                self.table.live -= 1;
                (Replay { live: false, dead_base: Some(base), dead_deltas }, -self.remove(spot))
            }
            (Some(Role::Delta(_)), Some(spot)) => (self.replay_delta(replayed, spot)?, 0),
            _ => (Replay::default(), 0),
        })
    }

    fn replay_new(&mut self, replayed: &Replayed) -> i64 {
        self.expiry.insert(replayed.expiry, replayed.hash);
        self.table.live += 1;
        self.insert(replayed.hash, Word::cold(replayed.address, shared_mark(replayed))).1
    }

    fn replay_base(&mut self, replayed: &Replayed, spot: Spot) -> Replay {
        let base = self.table.word(spot).address();
        if base >= replayed.address {
            return Replay { live: base == replayed.address, ..Replay::default() };
        }
        // A copy carries its deltas up to its seq; a new value outlives them all.
        let folded = if replayed.moved { replayed.seq } else { Seq::MAX };
        let bytes = replayed.record_bytes.into();
        let dead_deltas = self.rebase(spot, base, replayed.address, bytes, folded);
        let deltas = self.table.word(spot).marks() & WORD_DELTAS;
        self.set_word(spot, Word::cold(replayed.address, shared_mark(replayed) | deltas));
        self.expiry.insert(replayed.expiry, replayed.hash);
        Replay { live: true, dead_base: Some(base), dead_deltas }
    }

    /// A change of the expiry, or totals, that are not known although a later delta is were superseded. Others are there unless a base has taken
    /// them in: one that is missing shows when the value is read, and harms no other key.
    fn replay_delta(&mut self, replayed: &Replayed, spot: Spot) -> Result<Replay, StoreError> {
        let base = self.table.word(spot).address();
        let Replayed { address, seq, since, kind, record_bytes, expiry, .. } = *replayed;
        let mut dead_deltas = Vec::new();
        let is_newest = self.deltas.of(base).last().is_none_or(|last| last.seq < seq);
        let known = if is_newest { None } else { self.deltas.find_mut(base, |delta| delta.seq == seq) };
        if let Some(delta) = known {
            delta.address = delta.address.max(address);
            if delta.address != address {
                return Ok(Replay::default());
            }
        } else {
            let last = self.deltas.of(base).last();
            let kind = kind & !record::SHARED;
            let is_expiry = kind == record::EXPIRY;
            let is_superseded =
                (is_expiry || kind == record::TOTALS) && last.is_some_and(|last| last.seq > seq);
            if replayed.moved || address < base || is_superseded {
                return Ok(Replay::default());
            }
            let delta = Delta { address, seq, since, kind, record_bytes, expiry };
            if is_expiry && !last.is_none_or(|last| delta.supersedes(last) || delta.follows(last.seq)) {
                return Err(broken_chain(address));
            }
            dead_deltas.extend(self.deltas.push(base, delta));
        }
        self.table.word_mut(spot).set_mark(WORD_DELTAS);
        self.expiry.insert(expiry, replayed.hash);
        Ok(Replay { live: true, dead_base: None, dead_deltas })
    }

    fn snapshot_slots(
        &self,
        stripe: usize,
        keyspace: Keyspace,
        from: u64,
        left: &mut usize,
        visit: &mut dyn FnMut(SnapshotItem<'_>),
    ) -> Option<SnapshotAt> {
        let mut at = Some(from);
        while let Some(bits) = at {
            if *left == 0 {
                return Some(SnapshotAt::Slots { keyspace, bits });
            }
            self.table.bring_page(bits);
            at = self.table.visit_page(bits, &mut |_, tag, slot| {
                let removed = slot.word.object().is_some_and(|object| object.kind() == record::REMOVED);
                if slot.bits() >= bits && !removed {
                    let address = slot.word.address();
                    let hash = KeyHash::from_parts(stripe, slot.bits(), tag);
                    let shared = slot.word.marks() & WORD_SHARED != 0;
                    visit(SnapshotItem::Slot {
                        keyspace,
                        hash,
                        address,
                        shared,
                        deltas: self.deltas_of(address),
                    });
                    *left = left.saturating_sub(1 + self.deltas_of(address).len());
                }
            });
        }
        self.snapshot_expiries(stripe, keyspace, None, left, visit)
    }

    fn snapshot_expiries(
        &self,
        stripe: usize,
        keyspace: Keyspace,
        last: Option<ExpiryEntry>,
        left: &mut usize,
        visit: &mut dyn FnMut(SnapshotItem<'_>),
    ) -> Option<SnapshotAt> {
        let mut reached = last;
        for (entry, count) in self.expiry.after(last) {
            if *left == 0 {
                return Some(SnapshotAt::Expiries { keyspace, last: reached });
            }
            let hash = entry.hash(stripe);
            for _ in 0..count {
                visit(SnapshotItem::Expires { keyspace, hash, expiry: entry.deadline });
            }
            *left = left.saturating_sub(count as usize);
            reached = Some(entry);
        }
        None
    }
}

const LIVE: Replay = Replay { live: true, dead_base: None, dead_deltas: Vec::new() };

fn shared_mark(replayed: &Replayed) -> u64 {
    if replayed.kind & record::SHARED != 0 { WORD_SHARED } else { 0 }
}

#[cfg(test)]
mod tests;
