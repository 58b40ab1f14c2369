//! Executable model of recovery, cleaning and expiry: the rules, without bytes, files or threads.
//!
//! The store's log side (`recovery`, `checkpoint`, `cleaner`) is written against these rules. The model
//! runs random histories (set, delete, expire, change of one field or of part of a text, flush, swap, clean, checkpoint,
//! retire, sync, crash, restart, in any order) and compares what a start finds with the prefix of history that
//! the surviving log states.
//!
//! Rules
//!   1. The log is one order. A crash keeps a prefix of it that holds everything durable.
//!   2. A copy is appended only while the key still is exactly what was copied (under the stripe's lock), and
//!      carries the seq of that state. A copy never creates anything: it only changes where something lies.
//!   3. The index turns to a copy when the copy is durable and the source has not been replaced since.
//!   4. A checkpoint names the LSN appended when its capture *began*, captures stripe by stripe, and is
//!      published when everything that it captured is durable.
//!   5. A segment is retired when nothing points into it and a checkpoint whose capture began after that is
//!      published. So a tombstone vanishes only when a durable checkpoint covers it. A capture is itself a look: of what was
//!      sealed when it began nothing lives but what it met, but for copies turned to since, or waiting to be.
//!   6. A start loads the checkpoint and replays the records above its LSN in LSN order; the later address wins.
//!   7. Slots hold a few hash bits and no key. A record that meets another live key of equal bits says so
//!      (SHARED); where neither of two is SHARED, equal bits are the same key, or the earlier one is dead. So a replayed
//!      record is matched with older slots first: a younger one may be of a key that came when the record's was dead.
//!   8. A delta names the seq of the state that it changes. A folded copy with seq `s` keeps the deltas above `s`. A change of
//!      the expiry supersedes the newest delta if that is one, too, and says since when the value is the same. At a start a
//!      base may be older than the one that the change was made on: it supersedes only a delta whose value it reaches back to.
//!   9. Server time goes on with the uptime of the machine; over a restart of the machine, as the newest clock record and the
//!      wall clock say. A clock record that is not too old precedes each TTL in the log, and a checkpoint repeats the newest one.
//!  10. A step of the wall clock is in the log before anything is judged by it. A step back leaves a ceiling: deadlines up to it
//!      that earlier effects set have passed.
//!
//! Each rule has a planted bug that breaks it, and a test that the model notices; but for the durable copy of rule 3: a
//! source is retired under rules 4 and 5 alone, which wait for the copy too. The store keeps both.

#[path = "model/clocks.rs"]
mod clocks;

use std::collections::{BTreeMap, BTreeSet};

use clocks::{ClockRecord, Clocks};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

type Lsn = u64;
type Seq = u64;
type Keyspace = u32;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct LogAddress {
    segment: u32,
    offset: usize,
}

/// A value of any type: a scalar, a text and the fields of the test-only collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Image {
    scalar: u16,
    text: Vec<u8>,
    fields: BTreeMap<u8, u8>,
}

#[derive(Clone, Debug)]
enum Body {
    Image(Image),
    Removed,
    Expiry {
        base_seq: Seq,
        since: Seq,
    },
    Field {
        base_seq: Seq,
        field: u8,
        value: Option<u8>,
    },
    /// `byte` at `at` of the text, which is its length at most; the record's expiry, unless 0, replaces the key's.
    Part {
        base_seq: Seq,
        at: usize,
        byte: u8,
    },
    Mapping {
        mapping: [Keyspace; DATABASES],
        next: Keyspace,
    },
    Clock(ClockRecord),
}

#[derive(Clone, Debug)]
struct Record {
    lsn: Lsn,
    seq: Seq,
    keyspace: Keyspace,
    key: u8,
    shared: bool,
    moved: bool,
    expiry: u64,
    body: Body,
}

/// What the index knows of a key: no key, no seq of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Slot {
    base: LogAddress,
    shared: bool,
    /// Deltas on the base, by seq.
    deltas: BTreeMap<Seq, LogAddress>,
}

type Index = BTreeMap<(Keyspace, u8), Vec<Slot>>;
/// What a client can see: (database, key) -> (value, expiry).
type Visible = BTreeMap<(usize, u8), (Image, u64)>;

#[derive(Clone, Debug, Default)]
struct Checkpoint {
    lsn: Lsn,
    began: u64,
    captured: Lsn,
    mapping: [Keyspace; DATABASES],
    next: Keyspace,
    clock: Option<(Seq, ClockRecord)>,
    index: Index,
    stripes_left: Vec<u8>,
    /// Segments that were sealed when it began -> what something pointed at.
    met: BTreeMap<u32, BTreeSet<LogAddress>>,
}

/// A copy on its way: read, then appended, then turned to.
#[derive(Clone, Debug)]
struct Copy {
    keyspace: Keyspace,
    from: LogAddress,
    record: Record,
    to: Option<(LogAddress, Lsn)>,
}

/// Breaks one rule, to show that the model notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Planted {
    Nothing,
    CopyAppendedWithoutCheck,
    CopyAppendedAfterDelta,
    CopyCreates,
    PublishBeforeDurable,
    CheckpointNamesItsEnd,
    RetireWithoutCheckpoint,
    RetireUnderOlderCapture,
    EmptiedThoughAwaited,
    UnreferencedThoughTurnedTo,
    UnreferencedThoughAwaited,
    UnreferencedThoughSealedLater,
    SharedIgnored,
    YoungerSlotFirst,
    FoldDropsLaterDeltas,
    SupersedesAnyExpiry,
    TtlByTheWallClock,
    TtlWithoutRecord,
    DownTimeByTheWallClock,
    StepBackWithoutCeiling,
    CeilingForLaterEffects,
    CheckpointForgetsTheClock,
}

#[derive(Debug)]
struct World {
    planted: Planted,
    segments: BTreeMap<u32, Vec<Record>>,
    open: u32,
    appended: Lsn,
    durable: Lsn,
    seq: Seq,
    clocks: Clocks,
    /// The newest clock record.
    clock: Option<(Seq, ClockRecord)>,
    mapping: [Keyspace; DATABASES],
    next: Keyspace,
    index: Index,
    copies: Vec<Copy>,
    capture: Option<Checkpoint>,
    checkpoint: Checkpoint,
    captures_begun: u64,
    /// Segment -> captures begun when nothing pointed into it any more.
    emptied: BTreeMap<u32, u64>,
    /// Segment -> captures begun when the index was last turned to a copy in it.
    turned: BTreeMap<u32, u64>,
    /// What a checkpoint met in a segment: all that lives there.
    listed: BTreeMap<u32, BTreeSet<LogAddress>>,
    /// What is visible after each LSN since the last start (key: LSN).
    history: BTreeMap<Lsn, Visible>,
}

#[derive(Clone, Debug)]
enum Op {
    Set { db: usize, key: u8, scalar: u16, ttl: u64, at_wall: bool },
    Field { db: usize, key: u8, field: u8, value: Option<u8> },
    Part { db: usize, key: u8, at: usize, byte: u8, ttl: u64 },
    Delete { db: usize, key: u8 },
    Expire { db: usize, key: u8, ttl: u64, at_wall: bool },
    ActiveExpiry,
    Flush { db: usize },
    Swap { a: usize, b: usize },
    Tick { ms: u64 },
    SetWall { by: i64 },
    Sync,
    Roll,
    CleanRead { pick: usize },
    CleanAppend { pick: usize },
    CleanTurn { pick: usize },
    CheckpointBegin,
    CheckpointStripe,
    CheckpointPublish,
    Empty { pick: usize },
    Retire,
    Crash { keep: u64, off: u64, by: i64, reboots: bool },
}

impl World {
    fn new(planted: Planted) -> Self {
        let mapping = std::array::from_fn(|db| db as Keyspace);
        let next = DATABASES as Keyspace;
        let checkpoint = Checkpoint { mapping, next, ..Checkpoint::default() };
        let mut world = Self {
            planted,
            segments: BTreeMap::from([(1, Vec::new())]),
            open: 1,
            appended: 0,
            durable: 0,
            seq: 0,
            clocks: Clocks::new(planted),
            clock: None,
            mapping,
            next,
            index: Index::new(),
            copies: Vec::new(),
            capture: None,
            checkpoint,
            captures_begun: 0,
            emptied: BTreeMap::new(),
            turned: BTreeMap::new(),
            listed: BTreeMap::new(),
            history: BTreeMap::new(),
        };
        world.remember();
        world
    }

    fn run(&mut self, op: &Op) -> Result<(), String> {
        match *op {
            Op::Set { db, key, scalar, ttl, at_wall } => {
                let image = Image { scalar, ..Image::default() };
                self.write_until(self.mapping[db], key, Body::Image(image), (ttl, at_wall));
            }
            Op::Field { db, key, field, value } => self.change_field(db, key, field, value),
            Op::Part { db, key, at, byte, ttl } => {
                if let Some((base_seq, image, _)) = self.state(self.mapping[db], key) {
                    let at = at.min(image.text.len());
                    let body = Body::Part { base_seq, at, byte };
                    self.write_until(self.mapping[db], key, body, (ttl, false));
                }
            }
            Op::Delete { db, key } => self.delete(self.mapping[db], key),
            Op::Expire { db, key, ttl, at_wall } => {
                if let Some((base_seq, _, _)) = self.state(self.mapping[db], key) {
                    let since = self.superseded(self.mapping[db], key).map_or(base_seq, |(_, since)| since);
                    let body = Body::Expiry { base_seq, since };
                    self.write_until(self.mapping[db], key, body, (ttl, at_wall));
                }
            }
            Op::ActiveExpiry => self.active_expiry(),
            Op::Flush { db } => {
                let mut mapping = self.mapping;
                mapping[db] = self.next;
                self.remap(mapping, self.next + 1);
            }
            Op::Swap { a, b } => {
                let mut mapping = self.mapping;
                mapping.swap(a, b);
                self.remap(mapping, self.next);
            }
            Op::Tick { ms } => self.clocks.tick(ms),
            Op::SetWall { by } => self.set_wall(by),
            Op::Sync => self.durable = self.appended,
            Op::Roll => {
                self.open += 1;
                self.segments.insert(self.open, Vec::new());
            }
            Op::CleanRead { pick } => self.clean_read(pick),
            Op::CleanAppend { pick } => self.clean_append(pick),
            Op::CleanTurn { pick } => self.clean_turn(pick),
            Op::CheckpointBegin => self.checkpoint_begin(),
            Op::CheckpointStripe => self.checkpoint_stripe(),
            Op::CheckpointPublish => self.checkpoint_publish(),
            Op::Empty { pick } => self.note_emptied(pick),
            Op::Retire => self.retire(),
            Op::Crash { keep, off, by, reboots } => return self.crash(keep, off, by, reboots),
        }
        self.check_live()
    }

    fn change_field(&mut self, db: usize, key: u8, field: u8, value: Option<u8>) {
        let keyspace = self.mapping[db];
        match (self.state(keyspace, key), value) {
            (Some((base_seq, _, expiry)), value) => {
                self.write(keyspace, key, Body::Field { base_seq, field, value }, expiry);
            }
            (None, Some(value)) => {
                let image = Image { fields: BTreeMap::from([(field, value)]), ..Image::default() };
                self.write(keyspace, key, Body::Image(image), 0);
            }
            (None, None) => {}
        }
    }

    fn delete(&mut self, keyspace: Keyspace, key: u8) {
        if self.find(keyspace, key).is_some() {
            self.write(keyspace, key, Body::Removed, 0);
        }
    }

    /// Removing an expired key is an effect of its own, logged like any other.
    fn active_expiry(&mut self) {
        for db in 0..DATABASES {
            for key in 0..KEYS {
                let expired = self
                    .slot_state(self.mapping[db], key)
                    .is_some_and(|(seq, _, at)| self.clocks.has_passed(at, seq));
                if expired {
                    self.delete(self.mapping[db], key);
                }
            }
        }
    }

    fn remap(&mut self, mapping: [Keyspace; DATABASES], next: Keyspace) {
        self.seq += 1;
        self.append(Record {
            lsn: 0,
            seq: self.seq,
            keyspace: 0,
            key: 0,
            shared: false,
            moved: false,
            expiry: 0,
            body: Body::Mapping { mapping, next },
        });
        (self.mapping, self.next) = (mapping, next);
        self.index.retain(|(keyspace, _), _| mapping.contains(keyspace));
        self.remember();
    }

    /// A write that gives the key a TTL (0: none), or the time of the wall clock when that would end.
    fn write_until(&mut self, keyspace: Keyspace, key: u8, body: Body, (ttl, at_wall): (u64, bool)) {
        let deadline = self.clocks.deadline(ttl, at_wall);
        if self.clocks.is_due(deadline) {
            let record = self.clocks.record();
            self.append_clock(&record);
            self.clocks.on_recorded(&record, self.appended);
        }
        self.write(keyspace, key, body, deadline);
        if deadline != 0 {
            self.clocks.on_set(deadline, (!at_wall).then_some(ttl), self.seq, self.appended);
        }
    }

    fn set_wall(&mut self, by: i64) {
        let record = self.clocks.set_wall(by, self.seq);
        self.append_clock(&record);
        self.clocks.on_step(&record, self.appended);
    }

    fn append_clock(&mut self, record: &ClockRecord) {
        self.seq += 1;
        let (seq, body) = (self.seq, Body::Clock(record.clone()));
        let (keyspace, key, shared, moved, expiry) = (0, 0, false, false, 0);
        self.append(Record { lsn: 0, seq, keyspace, key, shared, moved, expiry, body });
        self.clock = Some((seq, record.clone()));
        self.remember();
    }

    /// Appends an effect and applies it to the index, as a commit does under the stripe's lock.
    fn write(&mut self, keyspace: Keyspace, key: u8, body: Body, expiry: u64) {
        self.seq += 1;
        let found = self.find(keyspace, key);
        let bucket_len = self.index.get(&(keyspace, hash(key))).map_or(0, Vec::len);
        let shared = self.planted != Planted::SharedIgnored && bucket_len > usize::from(found.is_some());
        let seq = self.seq;
        let address = self.append(Record {
            lsn: 0,
            seq,
            keyspace,
            key,
            shared,
            moved: false,
            expiry,
            body: body.clone(),
        });
        let supersedes = matches!(body, Body::Expiry { .. });
        let dead = self.superseded(keyspace, key).map(|(seq, _)| seq).filter(|_| supersedes);
        let bucket = self.index.entry((keyspace, hash(key))).or_default();
        match (body, found) {
            (Body::Image(_), Some(at)) => {
                bucket[at] = Slot { base: address, shared, deltas: BTreeMap::new() }
            }
            (Body::Image(_), None) => bucket.push(Slot { base: address, shared, deltas: BTreeMap::new() }),
            (Body::Removed, Some(at)) => drop(bucket.remove(at)),
            (Body::Expiry { .. } | Body::Field { .. } | Body::Part { .. }, Some(at)) => {
                if let Some(dead) = dead {
                    bucket[at].deltas.remove(&dead);
                }
                bucket[at].deltas.insert(seq, address);
            }

            (body, None) => unreachable!("{body:?} needs a key that is there"),
            (Body::Mapping { .. } | Body::Clock(_), Some(_)) => unreachable!("has no key"),
        }
        self.remember();
    }

    /// The newest delta of a key, if it changes the expiry: the next one that does supersedes it. Its seq, and since when the
    /// value is the same.
    fn superseded(&self, keyspace: Keyspace, key: u8) -> Option<(Seq, Seq)> {
        let slot = &self.index.get(&(keyspace, hash(key)))?[self.find(keyspace, key)?];
        let (&seq, &address) = slot.deltas.last_key_value()?;
        match self.record(address).body {
            Body::Expiry { since, .. } => Some((seq, since)),
            _ => None,
        }
    }

    fn append(&mut self, mut record: Record) -> LogAddress {
        self.appended += 1;
        record.lsn = self.appended;
        let segment = self.segments.get_mut(&self.open).expect("the open segment is there");
        segment.push(record);
        LogAddress { segment: self.open, offset: segment.len() - 1 }
    }

    /// The cleaner looks at one record of a sealed segment and reads what a copy of it would hold.
    fn clean_read(&mut self, pick: usize) {
        let addresses: Vec<LogAddress> = self.sealed_addresses().collect();
        if addresses.is_empty() {
            return;
        }
        let from = addresses[pick % addresses.len()];
        let record = self.record(from).clone();
        let Some(slot) = self.owner(from) else { return };
        let mut copy = record.clone();
        copy.moved = true;
        if slot.base == from {
            let (seq, image, expiry) = self.fold(slot);
            (copy.seq, copy.body, copy.expiry) = (seq, Body::Image(image), expiry);
        }
        self.copies.push(Copy { keyspace: record.keyspace, from, record: copy, to: None });
    }

    fn clean_append(&mut self, pick: usize) {
        let waiting: Vec<usize> = (0..self.copies.len()).filter(|&at| self.copies[at].to.is_none()).collect();
        if waiting.is_empty() {
            return;
        }
        let at = waiting[pick % waiting.len()];
        let (from, seq) = (self.copies[at].from, self.copies[at].record.seq);
        let unchanged = match self.owner(from) {
            Some(slot) if slot.base == from && self.planted != Planted::CopyAppendedAfterDelta => {
                self.fold(slot).0 == seq
            }
            owner => owner.is_some(),
        };
        if !unchanged && self.planted != Planted::CopyAppendedWithoutCheck {
            self.copies.remove(at);
            return;
        }
        let record = self.copies[at].record.clone();
        let address = self.append(record);
        self.copies[at].to = Some((address, self.appended));
        self.remember();
    }

    fn clean_turn(&mut self, pick: usize) {
        let durable = self.durable;
        let ready: Vec<usize> = (0..self.copies.len())
            .filter(|&at| self.copies[at].to.is_some_and(|(_, lsn)| lsn <= durable))
            .collect();
        if ready.is_empty() {
            return;
        }
        let copy = self.copies.remove(ready[pick % ready.len()]);
        let (to, _) = copy.to.expect("only appended copies are ready");
        let drop_all = self.planted == Planted::FoldDropsLaterDeltas;
        let Some(bucket) = self.index.get_mut(&(copy.keyspace, hash(copy.record.key))) else { return };
        if let Some(slot) = bucket.iter_mut().find(|slot| slot.base == copy.from) {
            slot.base = to;
            slot.deltas.retain(|&seq, _| seq > copy.record.seq && !drop_all);
            self.turned.insert(to.segment, self.captures_begun);
        } else if let Some(delta) =
            bucket.iter_mut().flat_map(|slot| slot.deltas.values_mut()).find(|at| **at == copy.from)
        {
            *delta = to;
            self.turned.insert(to.segment, self.captures_begun);
        }
    }

    fn checkpoint_begin(&mut self) {
        self.captures_begun += 1;
        self.capture = Some(Checkpoint {
            lsn: self.appended,
            began: self.captures_begun,
            captured: self.appended,
            mapping: self.mapping,
            next: self.next,
            clock: self.clock.clone().filter(|_| self.planted != Planted::CheckpointForgetsTheClock),
            index: Index::new(),
            stripes_left: (0..HASHES).collect(),
            met: self.sealed().map(|segment| (segment, BTreeSet::new())).collect(),
        });
    }

    fn checkpoint_stripe(&mut self) {
        let Some(capture) = &mut self.capture else { return };
        let Some(stripe) = capture.stripes_left.pop() else { return };
        for (&(keyspace, bits), slots) in self.index.iter().filter(|((_, bits), _)| *bits == stripe) {
            capture.index.insert((keyspace, bits), slots.clone());
            for address in slots.iter().flat_map(|slot| slot.deltas.values().chain([&slot.base])) {
                capture.met.entry(address.segment).and_modify(|met| met.extend([*address]));
            }
        }
        capture.captured = self.appended;
    }

    fn checkpoint_publish(&mut self) {
        let early = self.planted == Planted::PublishBeforeDurable;
        let ready = |capture: &mut Checkpoint| {
            capture.stripes_left.is_empty() && (early || capture.captured <= self.durable)
        };
        if let Some(mut capture) = self.capture.take_if(ready) {
            if self.planted == Planted::CheckpointNamesItsEnd {
                capture.lsn = capture.captured;
            }
            self.note_met(&capture);
            self.checkpoint = capture;
        }
    }

    /// What the checkpoint met in a segment is all that lives there, unless a copy in it was or will be turned to.
    fn note_met(&mut self, checkpoint: &Checkpoint) {
        let slots = checkpoint.index.values().flatten();
        let addresses: Vec<LogAddress> =
            slots.flat_map(|slot| slot.deltas.values().chain([&slot.base])).copied().collect();
        let mut met = checkpoint.met.clone();
        if self.planted == Planted::UnreferencedThoughSealedLater {
            let of =
                |segment| addresses.iter().copied().filter(|address| address.segment == segment).collect();
            met = self.sealed().map(|segment| (segment, of(segment))).collect();
        }
        self.listed.clear();
        for (segment, met) in met {
            let turned = self.turned.get(&segment).is_some_and(|begun| *begun >= checkpoint.began);
            let spared = turned && self.planted != Planted::UnreferencedThoughTurnedTo
                || self.awaits(segment) && self.planted != Planted::UnreferencedThoughAwaited;
            if !spared && met.is_empty() {
                self.emptied.insert(segment, checkpoint.began - 1);
            }
            if !spared {
                self.listed.insert(segment, met);
            }
        }
    }

    /// A walk over one sealed segment, or over what a checkpoint listed of it, finds that nothing points into it.
    fn note_emptied(&mut self, pick: usize) {
        let sealed: Vec<u32> = self.sealed().collect();
        if sealed.is_empty() {
            return;
        }
        let number = sealed[pick % sealed.len()];
        let durable = self.segments[&number].last().is_none_or(|last| last.lsn <= self.durable);
        // the store cleans one segment at a time, and has turned to all copies before it walks over the next
        let awaited = self.awaits(number) && self.planted != Planted::EmptiedThoughAwaited;
        let all = || {
            (0..self.segments[&number].len()).map(|offset| LogAddress { segment: number, offset }).collect()
        };
        let addresses: Vec<_> =
            self.listed.get(&number).map_or_else(all, |listed| listed.iter().copied().collect());
        if durable && !awaited && addresses.into_iter().all(|address| self.owner(address).is_none()) {
            self.emptied.entry(number).or_insert(self.captures_begun);
        }
    }

    fn retire(&mut self) {
        let began = match self.planted {
            Planted::RetireWithoutCheckpoint => u64::MAX,
            Planted::RetireUnderOlderCapture => self.checkpoint.began + 1,
            _ => self.checkpoint.began,
        };
        let free: Vec<u32> =
            self.emptied.iter().filter(|(_, begun)| **begun < began).map(|(&n, _)| n).collect();
        for number in free {
            self.emptied.remove(&number);
            self.segments.remove(&number);
            self.copies.retain(|copy| copy.from.segment != number || copy.to.is_some());
        }
    }

    /// Power is lost: a prefix stays that holds all that is durable. Then a start, and the comparison.
    fn crash(&mut self, keep: u64, off: u64, by: i64, reboots: bool) -> Result<(), String> {
        let kept = self.durable + keep % (self.appended - self.durable + 1);
        for records in self.segments.values_mut() {
            records.retain(|record| record.lsn <= kept);
        }
        let expected = self.history.get(&kept).cloned().ok_or("the history of the kept prefix is unknown")?;
        self.clocks.crash(kept, off, by, reboots);
        self.recover()?;
        (self.appended, self.durable) = (kept, kept);
        self.open += 1;
        self.segments.insert(self.open, Vec::new());
        let found = self.visible()?;
        if found != expected {
            return Err(format!("after a crash at LSN {kept}: found {found:?}, expected {expected:?}"));
        }
        self.history.clear();
        self.remember();
        self.clocks.recover(self.clock.as_ref().map(|(_, record)| record), self.seq);
        self.check_live()
    }

    /// The start: checkpoint, then the records above it in LSN order.
    fn recover(&mut self) -> Result<(), String> {
        (self.capture, self.copies) = (None, Vec::new());
        self.emptied.clear();
        self.turned.clear();
        self.listed.clear();
        self.captures_begun = self.checkpoint.began;
        (self.mapping, self.next) = (self.checkpoint.mapping, self.checkpoint.next);
        self.clock.clone_from(&self.checkpoint.clock);
        self.index = self.checkpoint.index.clone();
        let mut tail: Vec<(LogAddress, Record)> = Vec::new();
        for (&segment, records) in &self.segments {
            for (offset, record) in records.iter().enumerate() {
                self.seq = self.seq.max(record.seq);
                if record.lsn > self.checkpoint.lsn {
                    tail.push((LogAddress { segment, offset }, record.clone()));
                }
            }
        }
        tail.sort_by_key(|(_, record)| record.lsn);
        for (address, record) in tail {
            self.replay(address, &record)?;
        }
        let mapping = self.mapping;
        self.index.retain(|(keyspace, _), slots| mapping.contains(keyspace) && !slots.is_empty());
        Ok(())
    }

    fn replay(&mut self, address: LogAddress, record: &Record) -> Result<(), String> {
        if let Body::Mapping { mapping, next } = record.body {
            (self.mapping, self.next) = (mapping, next.max(self.next));
            return Ok(());
        }
        if let Body::Clock(clock) = &record.body {
            self.clock = Some((record.seq, clock.clone()));
            return Ok(());
        }
        let bits = (record.keyspace, hash(record.key));
        let mut bucket = self.index.remove(&bits).unwrap_or_default();
        let at = self.same_key(&bucket, address, record)?;
        let creates = !record.moved || self.planted == Planted::CopyCreates;
        match (&record.body, at) {
            (Body::Image(_), Some(at)) if bucket[at].base < address => {
                let mut deltas = std::mem::take(&mut bucket[at].deltas);
                deltas.retain(|&seq, _| record.moved && seq > record.seq);
                bucket[at] = Slot { base: address, shared: record.shared, deltas };
            }
            (Body::Image(_), None) if creates => {
                bucket.push(Slot { base: address, shared: record.shared, deltas: BTreeMap::new() });
            }
            (Body::Removed, Some(at)) if bucket[at].base < address => drop(bucket.remove(at)),
            (Body::Expiry { .. } | Body::Field { .. } | Body::Part { .. }, Some(at))
                if bucket[at].base < address =>
            {
                let known = bucket[at].deltas.get(&record.seq).copied();
                let last = bucket[at].deltas.last_key_value().map(|(&seq, &address)| (seq, address));
                // a later one without it: it was superseded
                let is_dead = known.is_none() && last.is_some_and(|(seq, _)| seq > record.seq);
                if !is_dead && known.map_or(creates, |known| known < address) {
                    if let (Body::Expiry { since, .. }, None, Some((seq, address))) =
                        (&record.body, known, last)
                        && let Body::Expiry { since: last_since, .. } = self.try_record(address)?.body
                        && (*since <= last_since || self.planted == Planted::SupersedesAnyExpiry)
                    {
                        bucket[at].deltas.remove(&seq);
                    }
                    bucket[at].deltas.insert(record.seq, address);
                }
            }
            _ => {}
        }
        self.index.insert(bits, bucket);
        Ok(())
    }

    /// The slot that the record at `address` speaks of: an older one first. A younger one comes from a fuzzy checkpoint; where
    /// neither is SHARED it may be of another key, which came when this record's was dead.
    fn same_key(
        &self,
        bucket: &[Slot],
        address: LogAddress,
        record: &Record,
    ) -> Result<Option<usize>, String> {
        let mut slots: Vec<usize> = (0..bucket.len()).collect();
        if self.planted != Planted::YoungerSlotFirst {
            slots.sort_by_key(|&at| bucket[at].base > address);
        }
        for at in slots {
            let read = record.shared || bucket[at].shared;
            if !read || self.try_record(bucket[at].base)?.key == record.key {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Whether a copy in `segment` waits for the index to turn to it.
    fn awaits(&self, segment: u32) -> bool {
        self.copies.iter().any(|copy| copy.to.is_some_and(|(to, _)| to.segment == segment))
    }

    fn sealed(&self) -> impl Iterator<Item = u32> {
        self.segments.keys().copied().filter(|&number| number != self.open)
    }

    fn sealed_addresses(&self) -> impl Iterator<Item = LogAddress> {
        let sealed = self.segments.iter().filter(|(number, _)| **number != self.open);
        sealed.flat_map(|(&segment, records)| {
            (0..records.len()).map(move |offset| LogAddress { segment, offset })
        })
    }

    fn try_record(&self, address: LogAddress) -> Result<&Record, String> {
        let records =
            self.segments.get(&address.segment).ok_or_else(|| format!("{address:?} was retired"))?;
        records.get(address.offset).ok_or_else(|| format!("{address:?} was lost"))
    }

    fn record(&self, address: LogAddress) -> &Record {
        self.try_record(address).expect("the index points at records that are there")
    }

    /// The slot that needs the record at `address`, as its base or as a delta.
    fn owner(&self, address: LogAddress) -> Option<&Slot> {
        let record = self.try_record(address).ok()?;
        let bucket = self.index.get(&(record.keyspace, hash(record.key)))?;
        bucket.iter().find(|slot| slot.base == address || slot.deltas.values().any(|&delta| delta == address))
    }

    fn find(&self, keyspace: Keyspace, key: u8) -> Option<usize> {
        let bucket = self.index.get(&(keyspace, hash(key)))?;
        bucket.iter().position(|slot| self.record(slot.base).key == key)
    }

    /// Newest seq, value and expiry of a slot: its base with its deltas, links checked.
    fn try_fold(&self, slot: &Slot) -> Result<(Seq, Image, u64), String> {
        let base = self.try_record(slot.base)?;
        let Body::Image(image) = &base.body else { return Err(format!("{base:?} is no image")) };
        let (mut seq, mut image, mut expiry) = (base.seq, image.clone(), base.expiry);
        for &address in slot.deltas.values() {
            let delta = self.try_record(address)?;
            match delta.body {
                Body::Expiry { base_seq, since } if since <= seq && seq <= base_seq => expiry = delta.expiry,
                Body::Field { base_seq, field, value: Some(value) } if base_seq == seq => {
                    image.fields.insert(field, value);
                }
                Body::Field { base_seq, field, value: None } if base_seq == seq => {
                    image.fields.remove(&field);
                }
                Body::Part { base_seq, at, byte } if base_seq == seq && at <= image.text.len() => {
                    image.text.resize(image.text.len().max(at + 1), 0);
                    image.text[at] = byte;
                    expiry = if delta.expiry == 0 { expiry } else { delta.expiry };
                }
                _ => return Err(format!("{delta:?} does not follow seq {seq}")),
            }
            seq = delta.seq;
        }
        Ok((seq, image, expiry))
    }

    fn fold(&self, slot: &Slot) -> (Seq, Image, u64) {
        self.try_fold(slot).expect("check_live has just folded every slot")
    }

    fn slot_state(&self, keyspace: Keyspace, key: u8) -> Option<(Seq, Image, u64)> {
        let at = self.find(keyspace, key)?;
        Some(self.fold(&self.index[&(keyspace, hash(key))][at]))
    }

    /// What a command sees: an expired key is absent.
    fn state(&self, keyspace: Keyspace, key: u8) -> Option<(Seq, Image, u64)> {
        self.slot_state(keyspace, key).filter(|(seq, _, expiry)| !self.clocks.has_passed(*expiry, *seq))
    }

    /// Everything that is there, expired keys included: they are there until their removal is logged.
    fn visible(&self) -> Result<Visible, String> {
        let mut visible = Visible::new();
        for (&(keyspace, _), slots) in &self.index {
            let Some(db) = self.mapping.iter().position(|&mapped| mapped == keyspace) else { continue };
            for slot in slots {
                let (_, image, expiry) = self.try_fold(slot)?;
                let key = self.try_record(slot.base)?.key;
                if visible.insert((db, key), (image, expiry)).is_some() {
                    return Err(format!("key {key} of database {db} has two slots"));
                }
            }
        }
        Ok(visible)
    }

    /// Notes what is visible at the newest LSN; copies must not change it.
    fn remember(&mut self) {
        let visible = self.visible().unwrap_or_default();
        self.history.insert(self.appended, visible);
    }

    /// Background work and time change nothing that is visible.
    fn check_live(&mut self) -> Result<(), String> {
        self.clocks.check()?;
        let visible = self.visible()?;
        let expected = &self.history[&self.appended];
        if visible == *expected {
            return Ok(());
        }
        Err(format!("at LSN {}: {visible:?}, expected {expected:?}", self.appended))
    }
}

const DATABASES: usize = 2;
const KEYS: u8 = 5;
/// Keys share hash bits often.
const HASHES: u8 = 2;

fn hash(key: u8) -> u8 {
    key % HASHES
}

/// An operation. Without `clocks` they only go on, all deadlines are TTLs, and the machine stays up.
fn op(clocks: bool) -> impl Strategy<Value = Op> {
    let at_wall = if clocks { any::<bool>().boxed() } else { Just(false).boxed() };
    let ttl = (prop_oneof![2 => Just(0_u64), 1 => 1..50_u64], at_wall);
    let (db, key, pick) = (0..DATABASES, 0..KEYS, 0..64_usize);
    let wall = if clocks { prop_oneof![Just(0_i64), -100..100_i64].boxed() } else { Just(0).boxed() };
    let set_wall = if clocks { (-60..60_i64).boxed() } else { Just(0).boxed() };
    let off = if clocks { (0..30_u64).boxed() } else { Just(0).boxed() };
    prop_oneof![
        10 => (db.clone(), key.clone(), any::<u16>(), ttl.clone())
            .prop_map(|(db, key, scalar, (ttl, at_wall))| Op::Set { db, key, scalar, ttl, at_wall }),
        6 => (db.clone(), key.clone(), 0..3_u8, proptest::option::weighted(0.7, any::<u8>()))
            .prop_map(|(db, key, field, value)| Op::Field { db, key, field, value }),
        6 => (db.clone(), key.clone(), 0..4_usize, any::<u8>(), prop_oneof![3 => Just(0), 1 => 1..50_u64])
            .prop_map(|(db, key, at, byte, ttl)| Op::Part { db, key, at, byte, ttl }),
        6 => (db.clone(), key.clone()).prop_map(|(db, key)| Op::Delete { db, key }),
        4 => (db.clone(), key, ttl)
            .prop_map(|(db, key, (ttl, at_wall))| Op::Expire { db, key, ttl, at_wall }),
        2 => Just(Op::ActiveExpiry),
        1 => db.clone().prop_map(|db| Op::Flush { db }),
        1 => (db.clone(), db).prop_map(|(a, b)| Op::Swap { a, b }),
        3 => (1..40_u64).prop_map(|ms| Op::Tick { ms }),
        6 => Just(Op::Sync),
        4 => Just(Op::Roll),
        8 => pick.clone().prop_map(|pick| Op::CleanRead { pick }),
        8 => pick.clone().prop_map(|pick| Op::CleanAppend { pick }),
        8 => pick.clone().prop_map(|pick| Op::CleanTurn { pick }),
        3 => Just(Op::CheckpointBegin),
        7 => Just(Op::CheckpointStripe),
        5 => Just(Op::CheckpointPublish),
        8 => pick.prop_map(|pick| Op::Empty { pick }),
        4 => Just(Op::Retire),
        3 => (any::<u64>(), off, wall, proptest::bool::weighted(if clocks { 0.4 } else { 0.0 }))
            .prop_map(|(keep, off, by, reboots)| Op::Crash { keep, off, by, reboots }),
        1 => set_wall.prop_map(move |by| if clocks { Op::SetWall { by } } else { Op::Tick { ms: 1 } }),
    ]
}

fn run_history(ops: &[Op], planted: Planted) -> Result<(), String> {
    let mut world = World::new(planted);
    for (at, op) in ops.iter().enumerate() {
        world.run(op).map_err(|error| format!("op {at} {op:?}: {error}"))?;
    }
    world.run(&Op::Crash { keep: u64::MAX, off: 0, by: 0, reboots: false })
}

proptest! {
    #![proptest_config(Config { cases: cases(), failure_persistence: None, ..Config::default() })]

    #[test]
    fn random_history_loses_nothing_durable_and_brings_nothing_back(ops in prop::collection::vec(op(true), 1..160)) {
        run_history(&ops, Planted::Nothing).map_err(TestCaseError::fail)?;
    }
}

/// How many histories: more on demand.
fn cases() -> u32 {
    std::env::var("EVENKEEL_MODEL_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(3_000)
}

/// Whether random histories notice `planted` within `cases` runs of one fixed seed.
fn is_noticed(planted: Planted, cases: u32) -> bool {
    let clocks = planted as u8 >= Planted::TtlByTheWallClock as u8;
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let config = Config { cases, max_shrink_iters: 0, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, rng);
    let result = runner.run(&prop::collection::vec(op(clocks), 100..260), |ops| {
        let outcome = std::panic::catch_unwind(|| run_history(&ops, planted));
        outcome.unwrap_or_else(|_| Err("panicked".to_owned())).map_err(TestCaseError::fail)
    });
    result.is_err()
}

macro_rules! planted_is_noticed {
    ($($name:ident: $planted:ident;)*) => {$(
        #[test]
        fn $name() {
            assert!(is_noticed(Planted::$planted, 20_000), "{:?} went unnoticed", Planted::$planted);
        }
    )*};
}

planted_is_noticed! {
    copy_appended_without_a_check_is_noticed: CopyAppendedWithoutCheck;
    copy_of_a_state_that_a_delta_changed_is_noticed: CopyAppendedAfterDelta;
    checkpoint_published_before_its_content_is_durable_is_noticed: PublishBeforeDurable;
    checkpoint_that_names_its_end_is_noticed: CheckpointNamesItsEnd;
    segment_retired_without_a_checkpoint_is_noticed: RetireWithoutCheckpoint;
    segment_retired_under_a_capture_that_began_before_is_noticed: RetireUnderOlderCapture;
    segment_retired_though_a_copy_in_it_was_turned_to_is_noticed: UnreferencedThoughTurnedTo;
    segment_retired_though_a_copy_in_it_waits_is_noticed: UnreferencedThoughAwaited;
    segment_retired_though_it_was_sealed_after_the_capture_began_is_noticed: UnreferencedThoughSealedLater;
    shared_hash_bits_left_unmarked_are_noticed: SharedIgnored;
    fold_that_drops_a_later_delta_is_noticed: FoldDropsLaterDeltas;
    copy_that_creates_is_noticed: CopyCreates;
    ttl_that_goes_by_the_wall_clock_is_noticed: TtlByTheWallClock;
    ttl_without_a_clock_record_before_it_is_noticed: TtlWithoutRecord;
    time_off_measured_by_the_wall_clock_alone_is_noticed: DownTimeByTheWallClock;
    wall_clock_set_back_without_a_ceiling_is_noticed: StepBackWithoutCeiling;
    ceiling_that_later_deadlines_obey_is_noticed: CeilingForLaterEffects;
    checkpoint_without_the_clock_record_is_noticed: CheckpointForgetsTheClock;
}

/// Nor here: a key of equal bits comes and goes beside another one, which a checkpoint captures as it was written again.
#[test]
fn removal_taken_for_one_of_a_younger_key_is_noticed() {
    let set = |key| Op::Set { db: 0, key, scalar: key.into(), ttl: 0, at_wall: false };
    let delete = |key| Op::Delete { db: 0, key };
    let written = [Op::CheckpointBegin, set(2), set(0), delete(2), delete(0), set(2), Op::Sync];
    let ops = [&written[..], &[Op::CheckpointStripe, Op::CheckpointStripe, Op::CheckpointPublish]].concat();
    assert_eq!(run_history(&ops, Planted::Nothing), Ok(()));
    let noticed = std::panic::catch_unwind(|| run_history(&ops, Planted::YoungerSlotFirst));
    assert!(!matches!(noticed, Ok(Ok(()))), "a key is back unseen");
}

/// Nor here: the checkpoint captures a changed expiry on its base, a copy that holds both takes their place before the
/// expiry changes again, and lies below the checkpoint.
#[test]
fn expiry_that_supersedes_one_that_it_does_not_reach_back_to_is_noticed() {
    let expire = || Op::Expire { db: 0, key: 1, ttl: 9, at_wall: false };
    let set = Op::Set { db: 0, key: 1, scalar: 1, ttl: 0, at_wall: false };
    let copied =
        [set, expire(), Op::Sync, Op::Roll, Op::CleanRead { pick: 0 }, Op::CleanAppend { pick: 0 }, Op::Sync];
    let captured = [Op::CheckpointBegin, Op::CheckpointStripe, Op::CheckpointStripe, Op::CheckpointPublish];
    let ops = [&copied[..], &captured, &[Op::CleanTurn { pick: 0 }, expire()]].concat();
    assert_eq!(run_history(&ops, Planted::Nothing), Ok(()));
    assert!(run_history(&ops, Planted::SupersedesAnyExpiry).is_err(), "a broken chain went unseen");
}

/// Random histories seldom get there: a copy is appended, its segment sealed and walked over before the index turns to it.
#[test]
fn segment_walked_over_while_a_copy_in_it_waits_is_noticed() {
    let set = Op::Set { db: 0, key: 0, scalar: 1, ttl: 0, at_wall: false };
    let copied = [set, Op::Sync, Op::Roll, Op::CleanRead { pick: 0 }, Op::CleanAppend { pick: 0 }];
    let walked = [Op::Sync, Op::Roll, Op::Empty { pick: 1 }, Op::CleanTurn { pick: 0 }];
    let checkpoint = [Op::CheckpointBegin, Op::CheckpointStripe, Op::CheckpointStripe, Op::Sync];
    let ops = [&copied[..], &walked, &checkpoint, &[Op::CheckpointPublish, Op::Retire]].concat();
    assert_eq!(run_history(&ops, Planted::Nothing), Ok(()));
    let noticed = std::panic::catch_unwind(|| run_history(&ops, Planted::EmptiedThoughAwaited));
    assert!(!matches!(noticed, Ok(Ok(()))), "a segment that the index turned into vanished unseen");
}
