//! What a command fetched from disk before it took any lock.
//!
//! Records are kept by address. The index decides at execution whether a slot still names that address, so a record
//! that went stale meanwhile is simply not asked for.
//!
//! A value with changes on top of it is folded once all of these records are here, before anybody locks anything: it is
//! then as if the record at its base's address held the state of the newest of them. Deltas that came later lie on top of that.

use collections::Deadline;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use journal::{Keyspace, LogAddress, Seq};

use crate::engine::Class;
use crate::error::StoreError;
use crate::hash::KeyHash;
use crate::index::delta::{Delta, broken_chain, later};
use crate::large::{Large, Ledger, Owned};
use crate::log::fold::parts_len;
use crate::record::{self, Changes};
use crate::sought::Sought;
use collections::root::{LEAF_KEY_BYTES, split_leaf_key};

/// Addresses to fetch, and what was fetched; travels from [`crate::Store::missing`] through
/// [`crate::Store::fetch`] to [`crate::Store::access`].
///
/// Most commands fetch nothing: an empty one costs nothing to make, which trees promise and hashed sets do not.
#[derive(Debug, Default)]
pub struct Prepared {
    wanted: BTreeMap<Place, Sought>,
    records: BTreeMap<Place, Result<Fetched, StoreError>>,
    reading: Option<Box<Reading>>,
    attempts: Option<Box<Attempts>>,
    /// Set once nobody waits for the command any more.
    abandoned: Option<Arc<AtomicBool>>,
}

/// Address and [`Sought::slot`] of what is read: a record may have parts of several keys.
type Place = (LogAddress, u64);

/// What a command that is executed again knows of its attempts so far.
#[derive(Debug, Default)]
struct Attempts {
    /// What it draws its random numbers from: each attempt draws the same ones, and so needs the same elements.
    seed: Option<u64>,
    obstacle: Option<Obstacle>,
}

/// What ended an attempt that had done its work: the next attempt looks first whether it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The log or memory had no room for its effects.
    Room(EffectRoom),
    /// A long command had claimed this key, which the attempt would read, or (`writes`) change.
    Claim { keyspace: Keyspace, hash: KeyHash, writes: bool },
    /// A prepared transaction held this key.
    Lock { db: u16, keyspace: Keyspace, hash: KeyHash, key: Box<[u8]> },
}

/// The room that the effects of a command need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EffectRoom {
    /// Their records in the log: bytes and number.
    pub(crate) bytes: u64,
    pub(crate) records: u64,
    pub(crate) class: Class,
    /// They make memory hold more.
    pub(crate) grows: bool,
}

impl Obstacle {
    /// What is to be looked at after both attempts, of which this ended the later one.
    fn after(self, before: Option<Self>) -> Self {
        match (self, before) {
            (Self::Room(now), Some(Self::Room(before))) => Self::Room(EffectRoom {
                bytes: now.bytes.max(before.bytes),
                records: now.records.max(before.records),
                class: if now.records == 0 { before.class } else { now.class },
                grows: now.grows || before.grows,
            }),
            (now, _) => now,
        }
    }
}

/// What matters while records are read.
#[derive(Debug)]
struct Reading {
    elsewhere: Vec<Place>,
    ledger: Ledger,
    /// Bytes of values that may be kept.
    kept_bytes_max: u64,
    /// Values that are kept though they are more than half of what may be, and bytes of all others that are kept.
    kept_large: u32,
    kept_bytes: u64,
    /// Of these, what `ledger` holds for small values.
    small_bytes: u64,
    /// What to fold once it is here.
    folds: Vec<Fold>,
    /// What is no key of the command.
    leaves: Vec<WantedLeaf>,
    /// Object and number of the leaves that were fetched; a client's key of as many bytes looks like one.
    fetched_leaves: BTreeSet<(u64, u32)>,
    /// Where leaves are that are not in the stripes of the command's keys.
    stripes: Vec<usize>,
}

/// A value and the deltas on it.
#[derive(Clone, Debug)]
pub(crate) struct Fold {
    /// The base.
    pub(crate) base: Sought,
    /// All on top of it, oldest first.
    pub(crate) deltas: Vec<Delta>,
}

impl Default for Reading {
    fn default() -> Self {
        let ledger = Ledger::default();
        Self {
            elsewhere: Vec::new(),
            ledger,
            kept_bytes_max: u64::MAX,
            kept_large: 0,
            kept_bytes: 0,
            small_bytes: 0,
            folds: Vec::new(),
            leaves: Vec::new(),
            fetched_leaves: BTreeSet::new(),
            stripes: Vec::new(),
        }
    }
}

impl Reading {
    /// `fetched` with its value shared if it is large, or left out if there is no room for it. Two of any size are always kept, whatever
    /// small ones (such as the nodes on the way to a large element) come before or after: RENAME and LCS cannot do with less. So are deltas,
    /// which are no values, and roots, which are small.
    fn keep(&mut self, fetched: Fetched) -> Fetched {
        let (bytes, is_delta) = (fetched.value.len() as u64, record::is_delta(fetched.kind));
        let is_root = record::root_of(fetched.kind, &fetched.value).is_some();
        let is_large = bytes > self.kept_bytes_max / 2;
        if is_large && !is_delta && self.kept_large < LARGE_KEPT {
            self.kept_large += 1;
        } else if !is_delta && !is_root && self.kept_bytes + bytes > self.kept_bytes_max {
            return fetched.without_value();
        } else {
            self.kept_bytes += bytes;
        }
        let value = self.shared(fetched.value);
        Fetched { value, ..fetched }
    }

    /// `value`, counted, and shared if it is large.
    fn shared(&mut self, value: Owned) -> Owned {
        let value = value.shared(&self.ledger);
        if value.bytes().large().is_none() {
            self.ledger.add(value.len() as u64);
            self.small_bytes += value.len() as u64;
        }
        value
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.ledger.take(self.small_bytes);
    }
}

/// A record as read from its segment, its checksums verified. A delta's value is its body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fetched {
    pub(crate) kind: u8,
    pub(crate) key: Box<[u8]>,
    pub(crate) value: Owned,
    pub(crate) seq: Seq,
    pub(crate) expiry: Option<Deadline>,
    /// Bytes of the value, which was left out: more was read already than one command may hold. 0: it is here.
    pub(crate) left_out_bytes: u64,
    /// After folding: bytes of the base in its segment.
    pub(crate) base_bytes: Option<u64>,
}

impl Fetched {
    /// Bytes of the value, left out or not.
    pub(crate) fn value_len(&self) -> u64 {
        self.value.len() as u64 + self.left_out_bytes
    }

    /// The same with its value left out.
    fn without_value(self) -> Self {
        let left_out_bytes = self.value_len();
        Self { value: Owned::from(&[][..]), left_out_bytes, ..self }
    }

    /// Bytes of the record in its segment.
    pub(crate) fn record_bytes(&self) -> u64 {
        let own = || record::bytes_of(self.kind, self.key.len(), self.value_len() as usize);
        self.base_bytes.unwrap_or_else(own)
    }
}

impl Fold {
    /// The value with its deltas in it; `None` if not all of them are here, or one is damaged.
    fn fold(
        &self,
        records: &BTreeMap<Place, Result<Fetched, StoreError>>,
    ) -> Option<Result<Fetched, StoreError>> {
        let base = records.get(&self.base.place())?.as_ref().ok()?;
        let deltas = later(&self.deltas, base.seq);
        let mut read = Vec::with_capacity(deltas.len());
        for delta in deltas {
            read.push(match record::changes_value(delta.kind) {
                false => None,
                true => Some(records.get(&self.base.delta(delta).place())?.as_ref().ok()?),
            });
        }
        Some(folded(base, deltas, &read).ok_or_else(|| broken_chain(self.base.address)))
    }
}

/// `base` after `deltas`, of which those that change the value are `read`; `None` if they do not fit each other.
fn folded(base: &Fetched, deltas: &[Delta], read: &[Option<&Fetched>]) -> Option<Fetched> {
    let (row, mut bodies) = (record::base(base.kind)?, Vec::with_capacity(read.len()));
    let (mut seq, mut expiry) = (base.seq, base.expiry);
    for (delta, read) in deltas.iter().zip(read) {
        if !delta.follows(seq) {
            return None;
        }
        (seq, expiry) = (delta.seq, delta.expiry_after(expiry));
        if let Some(change) = read {
            // totals say whose they are
            let is_its = row.changes == Changes::Totals || change.key == base.key;
            let fits = change.seq == seq && is_its;
            if !fits || record::changes(change.kind) != Some(row.changes) {
                return None;
            }
            bodies.push(&*change.value);
        }
    }
    // what was left out stays so
    let (value, left_out_bytes) = match (base.left_out_bytes, row.changes) {
        (0, _) => ((row.fold)(&base.value, &bodies)?, 0),
        (bytes, Changes::Bytes) => (Vec::new(), parts_len(bytes, &bodies)?),
        // how long it is now nobody asks
        (bytes, Changes::Elements | Changes::Expiry | Changes::Totals) => (Vec::new(), bytes),
    };
    let base_bytes = Some(base.record_bytes());
    let (key, value) = (base.key.clone(), Owned::Plain(value.into_boxed_slice()));
    Some(Fetched { kind: base.kind, key, value, seq, expiry, left_out_bytes, base_bytes })
}

/// What an access missed, to be added to a [`Prepared`]. Most miss nothing, and pay for a pointer.
#[derive(Debug, Default)]
pub struct Wanted(Option<Box<Missed>>);

#[derive(Debug, Default)]
struct Missed {
    records: Vec<Sought>,
    leaves: Vec<WantedLeaf>,
    folds: Vec<Fold>,
    /// What the access has read itself.
    read: Option<Box<Prepared>>,
    attempts: Attempts,
}

/// A leaf of a paged collection that an access could not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WantedLeaf {
    pub(crate) keyspace: Keyspace,
    pub(crate) hash: KeyHash,
    pub(crate) key: [u8; LEAF_KEY_BYTES],
    /// Its stripe is none of the command's keys, since its collection was renamed.
    pub(crate) is_beside: bool,
}

impl Wanted {
    /// How many records and leaves.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.as_ref().map_or(0, |missed| missed.records.len() + missed.folds.len() + missed.leaves.len())
    }

    fn missed(&mut self) -> &mut Missed {
        self.0.get_or_insert_default()
    }

    /// Adds what was read already.
    pub(crate) fn add_read(&mut self, read: Option<Box<Prepared>>) {
        if read.is_some() {
            self.missed().read = read;
        }
    }

    /// Adds these records. Elements that follow each other are often in one leaf: what was added last is not added again.
    pub(crate) fn add(&mut self, records: Vec<Sought>) {
        let before = &mut self.missed().records;
        if !before.ends_with(&records) {
            before.extend(records);
        }
    }

    /// Adds a leaf, to be kept in memory once it is read; as with [`Wanted::add`].
    pub(crate) fn add_leaf(&mut self, leaf: WantedLeaf) {
        let leaves = &mut self.missed().leaves;
        if leaves.last() != Some(&leaf) {
            leaves.push(leaf);
        }
    }

    /// Adds what is to be folded; as with [`Wanted::add`].
    pub(crate) fn add_fold(&mut self, fold: Fold) {
        let folds = &mut self.missed().folds;
        if folds.last().is_none_or(|last| last.base != fold.base) {
            folds.push(fold);
        }
    }

    /// What random numbers are drawn from: `seed` the first time, and the same from then on.
    pub(crate) fn seed_or(&mut self, seed: impl FnOnce() -> u64) -> u64 {
        *self.missed().attempts.seed.get_or_insert_with(seed)
    }

    /// Notes what ended the attempt.
    pub(crate) fn meet(&mut self, obstacle: Obstacle) {
        self.missed().attempts.obstacle = Some(obstacle);
    }
}

impl Prepared {
    /// Adds what an access missed.
    pub fn want(&mut self, wanted: Wanted) {
        let Some(missed) = wanted.0 else { return };
        let Missed { records, leaves, folds, read, attempts: Attempts { seed, obstacle } } = *missed;
        if let Some(read) = read {
            self.absorb(*read);
        }
        folds.into_iter().for_each(|fold| self.want_fold(fold));
        if seed.is_some() || obstacle.is_some() {
            let attempts = self.attempts.get_or_insert_default();
            attempts.seed = attempts.seed.or(seed);
            if let Some(obstacle) = obstacle {
                attempts.obstacle = Some(obstacle.after(attempts.obstacle.take()));
            }
        }
        records.into_iter().for_each(|record| self.want_record(record));
        for leaf in leaves {
            let (reading, stripe) = (self.reading.get_or_insert_default(), leaf.hash.stripe());
            if leaf.is_beside && !reading.stripes.contains(&stripe) {
                reading.stripes.push(stripe);
            }
            reading.leaves.push(leaf);
        }
    }

    /// Takes over what another has read.
    fn absorb(&mut self, mut other: Self) {
        self.records.append(&mut other.records);
        let Some(mut read) = other.reading.take() else { return };
        let reading = self.reading.get_or_insert_default();
        if reading.small_bytes == 0 {
            reading.ledger = read.ledger.clone();
        }
        reading.kept_large += read.kept_large;
        reading.kept_bytes += read.kept_bytes;
        reading.small_bytes += std::mem::take(&mut read.small_bytes);
        reading.fetched_leaves.append(&mut read.fetched_leaves);
        reading.leaves.append(&mut read.leaves);
    }

    /// Calls `look` with what was read, but not with the list of leaves, which each access makes hot: many accesses would each go through all
    /// of it.
    pub fn without_leaves<R>(&mut self, look: impl FnOnce(&Self) -> R) -> R {
        let leaves = self.reading.as_mut().map(|reading| std::mem::take(&mut reading.leaves));
        let result = look(self);
        if let (Some(reading), Some(leaves)) = (&mut self.reading, leaves) {
            reading.leaves = leaves;
        }
        result
    }

    /// What the attempts before drew their random numbers from, if they drew any.
    pub(crate) fn seed(&self) -> Option<u64> {
        self.attempts.as_ref().and_then(|attempts| attempts.seed)
    }

    /// What ended the attempt before.
    pub(crate) fn obstacle(&self) -> Option<&Obstacle> {
        self.attempts.as_ref().and_then(|attempts| attempts.obstacle.as_ref())
    }

    /// Bytes of values that may still be read and kept.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.reading
            .as_ref()
            .map_or(u64::MAX, |reading| reading.kept_bytes_max.saturating_sub(reading.kept_bytes))
    }

    /// Leaves that were missed.
    pub(crate) fn leaves(&self) -> &[WantedLeaf] {
        self.reading.as_ref().map_or(&[], |reading| &reading.leaves)
    }

    /// Stripes where leaves were missed.
    pub(crate) fn stripes(&self) -> &[usize] {
        self.reading.as_ref().map_or(&[], |reading| &reading.stripes)
    }

    /// Whether nothing waits to be fetched.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.wanted.is_empty() && self.reading.as_ref().is_none_or(|reading| reading.folds.is_empty())
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.wanted.clear();
        self.records.clear();
        self.reading = None;
        self.attempts = None;
        self.abandoned = None;
    }

    /// Forgets the large values that were read: they are read again when they are asked for.
    pub fn forget_large(&mut self) {
        let is_large = |it: &Fetched| it.value.bytes().large().is_some();
        self.records.retain(|_, record| !record.as_ref().is_ok_and(is_large));
        let kept_bytes = self.read_bytes();
        if let Some(reading) = &mut self.reading {
            // else what is read again would count once more each time, and be left out at last
            (reading.kept_large, reading.kept_bytes) = (0, kept_bytes);
        }
    }

    /// From now on attempts end with [`Stop::Abandoned`](crate::Stop::Abandoned) once `abandoned` is set: before they touch anything more, wait
    /// for memory, or commit.
    pub fn end_when(&mut self, abandoned: Arc<AtomicBool>) {
        self.abandoned = Some(abandoned);
    }

    /// Whether nobody waits for the command any more.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.as_ref().is_some_and(|abandoned| abandoned.load(Ordering::Relaxed))
    }

    /// Asks for a record, unless it is here already; for all of it, if anybody needs that.
    pub(crate) fn want_record(&mut self, sought: Sought) {
        if self.records.contains_key(&sought.place()) {
            return;
        }
        let wanted = self.wanted.entry(sought.place()).or_insert(sought);
        if !sought.is_for_state() {
            *wanted = sought;
        }
    }

    /// Whether something was asked for, and only what is known of keys.
    pub(crate) fn is_for_state(&self) -> bool {
        !self.wanted.is_empty() && self.wanted.values().all(Sought::is_for_state)
    }

    /// Whether the record at `address` was asked for, and only what is known of its key.
    pub(crate) fn wants_state_of(&self, address: LogAddress) -> bool {
        at(&self.wanted, address).is_some_and(Sought::is_for_state)
    }

    /// Asks for the records of a value, and that they are folded.
    pub(crate) fn want_fold(&mut self, fold: Fold) {
        self.want_record(fold.base);
        for delta in fold.deltas.iter().filter(|delta| record::changes_value(delta.kind)) {
            self.want_record(fold.base.delta(delta));
        }
        self.reading.get_or_insert_default().folds.push(fold);
    }

    /// Folds what it was asked to, as far as it is here, and if that is little tells `told` what became of each: to be called when everything that was wanted
    /// was read, and no key is locked.
    pub(crate) fn fold(&mut self, told: &mut dyn FnMut(&Fold, &Fetched)) {
        let Some(reading) = &mut self.reading else { return };
        let folds = std::mem::take(&mut reading.folds);
        // A command that reads much is executed again for more: it would have to read what moved meanwhile a second time.
        let is_told = folds.len() <= TOLD_FOLDS_MAX;
        for fold in folds {
            // otherwise the command looks again, and asks for what is there then
            let Some(folded) = fold.fold(&self.records) else { continue };
            folded.iter().filter(|_| is_told).for_each(|folded| told(&fold, folded));
            let folded = folded.map(|it| Fetched { value: reading.shared(it.value), ..it });
            self.records.insert(fold.base.place(), folded);
            let places = fold.deltas.iter().map(|delta| fold.base.delta(delta).place());
            places.for_each(|place| drop(self.records.remove(&place)));
        }
    }

    /// Takes the list of what to fetch, in the order of the disk.
    pub(crate) fn take_wanted(&mut self) -> Vec<Sought> {
        std::mem::take(&mut self.wanted).into_values().collect()
    }

    /// Leaves out values beyond `bytes` together: a command that needs one of those is refused.
    pub fn bound_values(&mut self, bytes: u64) {
        self.reading.get_or_insert_default().kept_bytes_max = bytes;
    }

    /// Values that are supplied from now on are counted in `ledger`, large ones shared; those beyond
    /// `bytes` together are left out.
    pub(crate) fn count_in(&mut self, ledger: &Ledger, bytes: u64) {
        let reading = self.reading.get_or_insert_default();
        reading.kept_bytes_max = reading.kept_bytes_max.min(bytes);
        if reading.small_bytes == 0 {
            reading.ledger = ledger.clone();
        }
    }

    /// Bytes of values that are kept at most.
    pub(crate) fn values_bytes_max(&self) -> u64 {
        self.reading.as_ref().map_or(u64::MAX, |reading| reading.kept_bytes_max)
    }

    /// Adds what was sought, without a large string that nobody needs.
    pub(crate) fn supply_sought(&mut self, sought: &Sought, record: Result<Fetched, StoreError>) {
        let is_large = |it: &Fetched| it.kind == record::STRING && it.value.len() >= Large::BYTES_MIN;
        let record = record.map(|fetched| match sought.is_for_state() && is_large(&fetched) {
            true => fetched.without_value(),
            false => fetched,
        });
        self.supply(sought, record);
    }

    /// Adds what was read of what was sought.
    pub(crate) fn supply(&mut self, sought: &Sought, record: Result<Fetched, StoreError>) {
        let reading = self.reading.get_or_insert_default();
        let record = record.map(|fetched| reading.keep(fetched));
        reading.fetched_leaves.extend(record.as_ref().ok().and_then(|fetched| split_leaf_key(&fetched.key)));
        self.records.insert(sought.place(), record);
    }

    /// Notes that something else was where `sought` was to be, as it does once after its segment was recycled; returns false if
    /// that was noted before: then the index still says so, and it is damage.
    pub(crate) fn note_elsewhere(&mut self, sought: &Sought) -> bool {
        let elsewhere = &mut self.reading.get_or_insert_default().elsewhere;
        let first = !elsewhere.contains(&sought.place());
        if first {
            elsewhere.push(sought.place());
        }
        first
    }

    /// The base that was read at `address`.
    pub(crate) fn record(&self, address: LogAddress) -> Option<&Result<Fetched, StoreError>> {
        at(&self.records, address)
    }

    /// What was read at `address` of the key whose hash is this one.
    pub(crate) fn change(&self, address: LogAddress, hash: KeyHash) -> Option<&Result<Fetched, StoreError>> {
        self.records.get(&(address, hash.slot()))
    }

    /// The key that was fetched and comes first; any will do, but always the same.
    pub(crate) fn first_key(&self) -> Option<&[u8]> {
        self.records.values().flatten().map(|fetched| &*fetched.key).min()
    }

    /// Numbers of the leaves of `object` that were fetched.
    pub(crate) fn leaves_of(&self, object: u64) -> impl Iterator<Item = u32> {
        let of_object = (object, 0)..=(object, u32::MAX);
        let fetched =
            self.reading.iter().flat_map(move |reading| reading.fetched_leaves.range(of_object.clone()));
        fetched.map(|(_, leaf)| *leaf)
    }

    /// Number of records that were fetched.
    pub(crate) fn records_count(&self) -> usize {
        self.records.len()
    }

    /// Bytes of the values that were fetched.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.records.values().flatten().map(|fetched| fetched.value.len() as u64).sum()
    }

    /// Whether anything was fetched.
    pub(crate) fn has_records(&self) -> bool {
        !self.records.is_empty()
    }
}

/// What is at `address`, where there is one of it.
fn at<T>(all: &BTreeMap<Place, T>, address: LogAddress) -> Option<&T> {
    all.range((address, 0)..=(address, u64::MAX)).next().map(|(_, it)| it)
}

/// So many values that one fetch has folded are made one record each on disk.
const TOLD_FOLDS_MAX: usize = 8;

/// Values that are kept whatever their size.
const LARGE_KEPT: u32 = 2;
