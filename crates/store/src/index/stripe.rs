//! A stripe: one lock's share of the index, with what hangs on its keys.
//!
//! ```text
//! spaces   keyspace -> Space { table, expiry (ordered), deltas (base address -> small records) }
//! pending  removals whose slots wait until the removal is released, oldest first
//! watches  keys that some transaction watches
//! locks    keys that prepared transactions hold, or long commands have claimed
//! ```
//!
//! Invariants
//!   1. `table.live` counts slots that are no pending removal.
//!   2. Each live slot with an expiry has an entry in `expiry`; entries of equal time and bits are counted. Recovery
//!      may leave entries that no slot has.
//!   3. A pending removal's slot exists until its seq is released or a newer effect took it over.
//!
//! Out of scope: locking (`index`), what commands do (`access`), appending (`engine`).

mod check;

use std::collections::{HashMap, VecDeque};
use std::hash::BuildHasherDefault;

use journal::{Keyspace, LogAddress, Seq};

use crate::error::StoreError;
use crate::evict::policy::Tracking;
use crate::hash::{KeyHash, WordHasher};
use crate::index::delta::{Delta, broken_chain, chain, later, weigh};
use crate::index::expiry::{Expiry, ExpiryEntry};
use crate::index::locks::Locks;
use crate::index::table::{Spot, Table};
use crate::index::watches::Watches;
use crate::large::Bytes;
use crate::object::{ObjectRef, View, WORD_DELTAS, WORD_SHARED, Word};
use crate::policy;
use crate::prepared::{Fetched, Fold, Prepared};
use crate::record;
use crate::sought::Sought;
use collections::{Deadline, Times};

/// One stripe.
#[derive(Debug, Default)]
pub(crate) struct Stripe {
    spaces: Vec<(Keyspace, Space)>,
    pending: VecDeque<Pending>,
    /// Keys that transactions watch.
    pub(crate) watches: Watches,
    /// Keys that prepared transactions hold; `None` when there are none.
    pub(crate) locks: Option<Box<Locks>>,
    /// How the use of keys is tracked, in all spaces.
    tracking: Option<Tracking>,
    /// Bytes that changed since they were last reported to the index.
    pub(crate) unreported_bytes: i64,
}

/// The keys of one keyspace in one stripe.
#[derive(Debug, Default)]
pub(crate) struct Space {
    /// The slots.
    pub(crate) table: Table,
    /// When keys expire.
    pub(crate) expiry: Expiry,
    /// Small records on top of a base, by the base's address.
    pub(crate) deltas: Deltas,
    pub(crate) hot_bytes: i64,
}

/// Small records on top of bases, by the address of the base, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Deltas {
    lists: HashMap<LogAddress, List, BuildHasherDefault<WordHasher>>,
    /// Deltas that the lists have room for, and that they have.
    room: usize,
    count: usize,
}

/// What lies on one base.
#[derive(Debug, Default)]
struct List {
    /// Bytes of the base in its segment, which the value in memory does not tell; 0: not known, but known wherever that is hot.
    base_bytes: u64,
    deltas: Vec<Delta>,
}

impl Deltas {
    /// Those on the base at `base`.
    pub(crate) fn of(&self, base: LogAddress) -> &[Delta] {
        self.lists.get(&base).map_or(&[], |list| &list.deltas)
    }

    /// Whether those on the base at `base` that change its value [weigh](weigh) at least `count`.
    pub(crate) fn has_changes(&self, base: LogAddress, count: usize) -> bool {
        weigh(self.of(base)) >= count
    }

    /// Bytes of the base at `base` in its segment, if it has deltas and they are known.
    pub(crate) fn base_bytes(&self, base: LogAddress) -> Option<u64> {
        self.lists.get(&base).map(|list| list.base_bytes).filter(|bytes| *bytes != 0)
    }

    /// Notes the bytes of the base at `base`, where it has deltas.
    pub(crate) fn note_base_bytes(&mut self, base: LogAddress, bytes: u64) {
        if let Some(list) = self.lists.get_mut(&base) {
            list.base_bytes = bytes;
        }
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Delta> {
        self.lists.values().flat_map(|list| &list.deltas)
    }

    /// Adds `delta` on a base whose record has `base_bytes`, as far as is known; returns the one that it supersedes, if so.
    pub(crate) fn push_on(&mut self, base: LogAddress, base_bytes: u64, delta: Delta) -> Option<Delta> {
        let list = self.lists.entry(base).or_default();
        if list.base_bytes == 0 {
            list.base_bytes = base_bytes;
        }
        let list = &mut list.deltas;
        if let Some(last) = list.last_mut().filter(|last| delta.supersedes(last)) {
            return Some(std::mem::replace(last, delta));
        }
        let room = list.capacity();
        if list.is_empty() {
            list.reserve_exact(1);
        }
        // the newest, but where salvage kept an older one that cleaning had moved behind it
        let at = list.partition_point(|other| other.seq < delta.seq);
        list.insert(at, delta);
        self.count += 1;
        self.room += list.capacity() - room;
        None
    }

    /// Adds `delta`; returns the one that it supersedes, if so.
    pub(crate) fn push(&mut self, base: LogAddress, delta: Delta) -> Option<Delta> {
        self.push_on(base, 0, delta)
    }

    /// The delta on `base` that `is` says, to change.
    pub(crate) fn find_mut(&mut self, base: LogAddress, is: impl Fn(&Delta) -> bool) -> Option<&mut Delta> {
        self.lists.get_mut(&base)?.deltas.iter_mut().find(|delta| is(delta))
    }

    /// Puts `deltas`, of which there are some, on a base that has none; `base_bytes` as in [`List`].
    pub(crate) fn insert(&mut self, base: LogAddress, deltas: Vec<Delta>, base_bytes: u64) {
        self.room += deltas.capacity();
        self.count += deltas.len();
        self.lists.insert(base, List { base_bytes, deltas });
    }

    /// Takes those on `base` out.
    pub(crate) fn remove(&mut self, base: LogAddress) -> Vec<Delta> {
        let Some(List { deltas, .. }) = self.lists.remove(&base) else { return Vec::new() };
        self.room -= deltas.capacity();
        self.count -= deltas.len();
        if self.lists.capacity() > 4 * self.lists.len() + 64 {
            self.lists.shrink_to(2 * self.lists.len());
        }
        deltas
    }

    /// About what they cost: the table of lists, eight slots for seven lists, and a chunk for each list.
    fn memory_bytes(&self) -> i64 {
        let table = self.lists.capacity() * 8 / 7 * TABLE_SLOT_BYTES;
        let chunks = self.room * size_of::<Delta>() + self.lists.len() * CHUNK_HEAD_BYTES;
        (table + chunks) as i64
    }
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    seq: Seq,
    keyspace: Keyspace,
    hash: KeyHash,
}

/// What a key's candidates turned out to be.
pub(crate) enum Seek<'a> {
    /// No candidate is the key. `shared`: another live key has its bits.
    Absent { shared: bool },
    /// The slot at `spot` is the key's. Not `whole`: its value is that of the base, and deltas that change it lie on top.
    At { spot: Spot, word: &'a Word, shared: bool, current: Current<'a>, whole: bool },
    /// Records that decide and were not prepared.
    Unknown(Vec<Sought>),
    /// A record that decides is damaged. `own`: it is as good as certain to be the key's, for nothing else has its bits.
    Damaged { error: StoreError, own: Option<Spot> },
}

/// A key's newest state, wherever it lies.
#[derive(Clone, Copy)]
pub(crate) enum Current<'a> {
    /// In memory (a pending removal too).
    Hot(ObjectRef<'a>),
    /// As fetched, with what the deltas in memory change.
    Cold { fetched: &'a Fetched, seq: Seq, expiry: Option<Deadline> },
}

impl<'a> Current<'a> {
    pub(crate) fn kind(self) -> u8 {
        match self {
            Self::Hot(object) => object.kind(),
            Self::Cold { fetched, .. } => fetched.kind,
        }
    }

    pub(crate) fn seq(self) -> Seq {
        match self {
            Self::Hot(object) => object.seq(),
            Self::Cold { seq, .. } => seq,
        }
    }

    pub(crate) fn expiry(self) -> Option<Deadline> {
        match self {
            Self::Hot(object) => object.expiry(),
            Self::Cold { expiry, .. } => expiry,
        }
    }

    /// What its fields say of deadlines, if it is a hash of which some have any, and its value is here.
    pub(crate) fn times(self) -> Option<Times> {
        if self.kind() != record::HASH { None } else { collections::times_of(self.value().slice()) }
    }

    /// When the key itself expires: its fields may earlier.
    pub(crate) fn own_expiry(self) -> Option<Deadline> {
        self.times().map_or_else(|| self.expiry(), |times| Deadline::of(times.own))
    }

    pub(crate) fn value(self) -> Bytes<'a> {
        match self {
            Self::Hot(object) => object.bytes(),
            Self::Cold { fetched, .. } => fetched.value.bytes(),
        }
    }

    /// Bytes of the value.
    pub(crate) fn value_len(self) -> u64 {
        match self {
            Self::Hot(object) => object.value().len() as u64,
            Self::Cold { fetched, .. } => fetched.value_len(),
        }
    }

    /// Whether the value is here.
    pub(crate) fn has_value(self) -> bool {
        !matches!(self, Self::Cold { fetched, .. } if fetched.left_out_bytes > 0)
    }

    pub(crate) fn key(self) -> &'a [u8] {
        match self {
            Self::Hot(object) => object.key(),
            Self::Cold { fetched, .. } => &fetched.key,
        }
    }

    /// Bytes of the base record in its segment; of what is hot if no deltas lie on it.
    pub(crate) fn record_bytes(self) -> u64 {
        match self {
            Self::Hot(object) => record::bytes_of(object.kind(), object.key().len(), object.value().len()),
            Self::Cold { fetched, .. } => fetched.record_bytes(),
        }
    }

    /// Whether this is a removal that waits for its release.
    pub(crate) fn is_removed(self) -> bool {
        self.kind() == record::REMOVED
    }
}

impl Space {
    /// The hot object of `key`, if it is hot: what most lookups are.
    pub(crate) fn hot<'a>(&'a self, hash: KeyHash, key: &[u8]) -> Option<(Spot, ObjectRef<'a>)> {
        self.table.candidates(hash).find_map(|spot| {
            let object = self.table.word(spot).object();
            object.filter(|object| object.key() == key).map(|object| (spot, object))
        })
    }

    /// The word of `key` and what it is, where it was met at `spot`, is in memory, and nothing else has its bits.
    pub(crate) fn met(&self, spot: Spot, key: &[u8]) -> Option<(&Word, ObjectRef<'_>)> {
        let word = self.table.only_word(spot)?;
        word.object().filter(|object| object.key() == key).map(|object| (word, object))
    }

    /// Looks for `key` among all candidates of `hash`; `keyspace` is that of this space.
    pub(crate) fn seek<'a>(
        &'a self,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
        prepared: &'a Prepared,
    ) -> Seek<'a> {
        let mut candidates = self.table.candidates(hash);
        let Some(spot) = candidates.next() else { return Seek::Absent { shared: false } };
        let word = self.table.word(spot);
        match word.object() {
            Some(object) if object.key() == key && candidates.next().is_none() => {
                Seek::At { spot, word, shared: false, current: Current::Hot(object), whole: true }
            }
            _ => self.seek_among_all(keyspace, hash, key, prepared),
        }
    }

    /// As [`Space::seek`], where the first candidate is not all.
    fn seek_among_all<'a>(
        &'a self,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
        prepared: &'a Prepared,
    ) -> Seek<'a> {
        let (mut found, mut shared, mut unknown, mut damaged) = (None, false, Vec::new(), Vec::new());
        for spot in self.table.candidates(hash) {
            match self.current(spot, prepared) {
                Ok(Some(current)) if current.key() == key => found = Some((spot, current)),
                Ok(Some(current)) => shared |= !current.is_removed(),
                Ok(None) => unknown.push(Sought::base(self.table.word(spot).address(), keyspace, hash)),
                Err(error) => damaged.push((spot, error)),
            }
        }
        match found {
            Some((spot, current)) => {
                let word = self.table.word(spot);
                let mut whole = true;
                if let Current::Cold { fetched, .. } = current {
                    let changes = || self.changes(word, fetched.seq);
                    let mut read = changes().filter_map(|delta| prepared.change(delta.address, hash));
                    if let Some(Err(error)) = read.find(|read| read.is_err()) {
                        return Seek::Damaged { error: error.clone(), own: Some(spot) };
                    }
                    whole = changes().next().is_none();
                }
                Seek::At {
                    spot,
                    word,
                    shared: shared || !unknown.is_empty() || !damaged.is_empty(),
                    current,
                    whole,
                }
            }
            None if !unknown.is_empty() => Seek::Unknown(unknown),
            None => match damaged.first() {
                None => Seek::Absent { shared },
                Some((spot, error)) => {
                    let spot = *spot;
                    let alone = !shared && damaged.len() == 1;
                    let alone = alone && self.table.word(spot).marks() & WORD_SHARED == 0;
                    Seek::Damaged { error: error.clone(), own: alone.then_some(spot) }
                }
            },
        }
    }

    /// The candidate of `hash` whose record lies at an address that `is_it`.
    pub(crate) fn spot_at(&self, hash: KeyHash, is_it: impl Fn(LogAddress) -> bool) -> Option<Spot> {
        self.table.candidates(hash).find(|spot| is_it(self.table.word(*spot).address()))
    }

    /// The state of the slot at `spot`; `None` when it is cold and not prepared.
    pub(crate) fn current<'a>(
        &'a self,
        spot: Spot,
        prepared: &'a Prepared,
    ) -> Result<Option<Current<'a>>, StoreError> {
        let address = match self.table.word(spot).view() {
            View::Hot(object) => return Ok(Some(Current::Hot(object))),
            View::Cold(address) => address,
        };
        let Some(fetched) = prepared.record(address) else { return Ok(None) };
        let fetched = fetched.as_ref().map_err(Clone::clone)?;
        let deltas = later(self.deltas.of(address), fetched.seq);
        let seq = chain(fetched.seq, deltas).ok_or_else(|| broken_chain(address))?;
        let expiry = deltas.iter().fold(fetched.expiry, |before, delta| delta.expiry_after(before));
        Ok(Some(Current::Cold { fetched, seq, expiry }))
    }

    /// The deltas on top of a slot's base that change the value of effect `seq`.
    pub(crate) fn changes<'a>(&'a self, word: &Word, seq: Seq) -> impl Iterator<Item = &'a Delta> + use<'a> {
        later(self.deltas_on(word), seq).iter().filter(|delta| record::changes_value(delta.kind))
    }

    /// Whether a hash may have fields with deadlines that only its value with all its changes can tell.
    pub(crate) fn may_be_timed(&self, word: &Word, current: Current<'_>) -> bool {
        let has_deadline = |delta: &Delta| delta.kind == record::CHANGE && delta.expiry.is_some();
        current.kind() == record::HASH
            && (current.times().is_some() || self.deltas_of(word.address()).iter().any(has_deadline))
    }

    /// What is to be folded where changes of the value lie on `base`.
    pub(crate) fn fold_of(&self, base: Sought) -> Option<Fold> {
        let deltas = self.deltas_of(base.address);
        let is_changed = deltas.iter().any(|delta| record::changes_value(delta.kind));
        is_changed.then(|| Fold { base, deltas: deltas.to_vec() })
    }

    /// The deltas on the base of `word`, which need not be looked for where there are none.
    pub(crate) fn deltas_on(&self, word: &Word) -> &[Delta] {
        if word.marks() & WORD_DELTAS == 0 { &[] } else { self.deltas_of(word.address()) }
    }

    /// The deltas on the base at `base`.
    pub(crate) fn deltas_of(&self, base: LogAddress) -> &[Delta] {
        self.deltas.of(base)
    }

    /// Replaces the word at `spot`; accounts its hot bytes. What takes the place of a hot object keeps its level of use.
    pub(crate) fn set_word(&mut self, spot: Spot, word: Word) -> i64 {
        let slot = self.table.word_mut(spot);
        if slot.object().is_some() && word.object().is_some() {
            word.set_level(policy::rewritten(slot.level()));
        }
        let change = hot_bytes(&word) - hot_bytes(slot);
        *slot = word;
        self.hot_bytes += change;
        change
    }

    /// Adds a slot; returns by how many bytes memory grew.
    pub(crate) fn insert(&mut self, hash: KeyHash, word: Word) -> (Spot, i64) {
        let hot = hot_bytes(&word);
        self.hot_bytes += hot;
        let (spot, grown) = self.table.insert(hash, word);
        (spot, grown + hot)
    }

    /// Removes the slot at `spot`; returns by how many bytes memory shrank.
    pub(crate) fn remove(&mut self, spot: Spot) -> i64 {
        let (word, freed) = self.table.remove(spot);
        self.hot_bytes -= hot_bytes(&word);
        freed as i64 + hot_bytes(&word)
    }

    /// Lets `visit` change the words of the page at `bits`, with the small records of all; returns where the next page begins and how
    /// many bytes of hot objects went.
    pub(crate) fn visit_words(
        &mut self,
        bits: u64,
        visit: &mut dyn FnMut(&mut Word, &Deltas),
    ) -> (Option<u64>, i64) {
        let mut freed = 0;
        let next = self.table.visit_page_mut(bits, &mut |word| {
            let before = hot_bytes(word);
            visit(word, &self.deltas);
            freed += before - hot_bytes(word);
        });
        self.hot_bytes -= freed;
        (next, freed)
    }

    /// Visits address and bytes of every record that a key here consists of; 0 bytes where a cold slot does not know, `None` of a record of which
    /// another part tells.
    pub(crate) fn each_record(&self, visit: &mut dyn FnMut(LogAddress, Option<u64>)) {
        let mut at = Some(0);
        while let Some(bits) = at {
            at = self.table.visit_page(bits, &mut |_, _, slot| match slot.word.view() {
                View::Cold(address) => visit(address, Some(0)),
                View::Hot(object) if object.kind() == record::REMOVED => {}
                View::Hot(object) => {
                    let own = || Current::Hot(object).record_bytes();
                    let bytes = self.deltas.base_bytes(object.address()).unwrap_or_else(own);
                    visit(object.address(), Some(bytes));
                }
            });
        }
        self.deltas.iter().for_each(|delta| visit(delta.address, delta.counted_bytes()));
    }

    /// Bytes of table, hot objects and what hangs beside them.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.table.memory_bytes() + (self.hot_bytes + self.side_bytes()).max(0) as u64
    }

    /// About what expiries and deltas cost.
    pub(crate) fn side_bytes(&self) -> i64 {
        self.expiry.len() as i64 * EXPIRY_BYTES + self.deltas.memory_bytes()
    }
}

/// What the word's object costs; a large value is in its ledger.
pub(crate) fn hot_bytes(word: &Word) -> i64 {
    word.object().map_or(0, |object| object.own_bytes() as i64)
}

impl Stripe {
    /// The space of `keyspace`, if it has any slots.
    pub(crate) fn space(&self, keyspace: Keyspace) -> Option<&Space> {
        self.spaces.iter().find(|(id, _)| *id == keyspace).map(|(_, space)| space)
    }

    /// The space of `keyspace`, created when missing.
    pub(crate) fn space_mut(&mut self, keyspace: Keyspace) -> &mut Space {
        let at = self.spaces.iter().position(|(id, _)| *id == keyspace).unwrap_or_else(|| {
            let mut space = Space::default();
            space.table.track(self.tracking, 0);
            self.spaces.push((keyspace, space));
            self.spaces.len() - 1
        });
        &mut self.spaces[at].1
    }

    /// The space of `keyspace`, if it has any slots, to change.
    pub(crate) fn existing_space_mut(&mut self, keyspace: Keyspace) -> Option<&mut Space> {
        self.spaces.iter_mut().find(|(id, _)| *id == keyspace).map(|(_, space)| space)
    }

    /// Drops an expiry that no key has any more.
    pub(crate) fn drop_stale(&mut self, keyspace: Keyspace, entry: ExpiryEntry) {
        let Some(space) = self.existing_space_mut(keyspace) else { return };
        let before = space.side_bytes();
        space.expiry.drop_stale(entry);
        let freed = before - space.side_bytes();
        self.unreported_bytes -= freed;
    }

    /// Space number `at`, in no particular order.
    pub(crate) fn space_at_mut(&mut self, at: usize) -> Option<(Keyspace, &mut Space)> {
        self.spaces.get_mut(at).map(|(keyspace, space)| (*keyspace, space))
    }

    /// Begins to track the use of keys, from `now_ms` on, or ends it.
    pub(crate) fn track(&mut self, tracking: Option<Tracking>, now_ms: u64) {
        self.tracking = tracking;
        let grown: i64 = self.spaces.iter_mut().map(|(_, space)| space.table.track(tracking, now_ms)).sum();
        self.unreported_bytes += grown;
    }

    /// All spaces, with their keyspace.
    pub(crate) fn spaces(&self) -> impl Iterator<Item = (Keyspace, &Space)> {
        self.spaces.iter().map(|(id, space)| (*id, space))
    }

    /// Takes the space of a dead keyspace out.
    pub(crate) fn take_space(&mut self, keyspace: Keyspace) -> Option<Space> {
        let at = self.spaces.iter().position(|(id, _)| *id == keyspace)?;
        Some(self.spaces.swap_remove(at).1)
    }

    /// Looks for `key`.
    pub(crate) fn seek<'a>(
        &'a self,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
        prepared: &'a Prepared,
    ) -> Seek<'a> {
        match self.space(keyspace) {
            Some(space) => space.seek(keyspace, hash, key, prepared),
            None => Seek::Absent { shared: false },
        }
    }

    /// Remembers that the slot of a removal may go once `seq` is released.
    pub(crate) fn await_release(&mut self, seq: Seq, keyspace: Keyspace, hash: KeyHash) {
        self.pending.push_back(Pending { seq, keyspace, hash });
    }

    /// Drops the slots of removals that were released; returns whether some still wait.
    pub(crate) fn sweep_pending(&mut self, released: Seq) -> bool {
        while let Some(&Pending { seq, keyspace, hash }) = self.pending.front() {
            if seq > released {
                return true;
            }
            self.pending.pop_front();
            self.drop_removed(seq, keyspace, hash);
        }
        if self.pending.capacity() > PENDING_KEPT {
            self.pending.shrink_to(PENDING_KEPT / 4);
        }
        false
    }

    fn drop_removed(&mut self, seq: Seq, keyspace: Keyspace, hash: KeyHash) {
        let Some((_, space)) = self.spaces.iter_mut().find(|(id, _)| *id == keyspace) else { return };
        let removed = space.table.candidates(hash).find(|spot| {
            let object = space.table.word(*spot).object();
            object.is_some_and(|o| o.kind() == record::REMOVED && o.seq() == seq)
        });
        if let Some(spot) = removed {
            self.unreported_bytes -= space.remove(spot);
        }
    }

    /// Bytes of changed memory to report to the index, in portions that keep its counter from being contended.
    pub(crate) fn take_unreported(&mut self) -> i64 {
        if self.unreported_bytes.abs() < REPORT_BYTES {
            return 0;
        }
        std::mem::take(&mut self.unreported_bytes)
    }
}

/// Room for removals that wait that a stripe keeps when none waits.
const PENDING_KEPT: usize = 256;
/// An entry of the expiry index: a B-tree two thirds full.
const EXPIRY_BYTES: i64 = 32;
/// A slot of the table of deltas: address, list and a control byte.
const TABLE_SLOT_BYTES: usize = size_of::<(u64, List)>() + 1;
/// What malloc adds to a list.
const CHUNK_HEAD_BYTES: usize = 8;
/// Memory may change by this much in a stripe before the index hears of it: 1 MiB over all stripes. Unit tests
/// work with a few keys.
const REPORT_BYTES: i64 = if cfg!(test) { 1 } else { 4096 };
