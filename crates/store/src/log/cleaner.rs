//! Cleaning one segment: copies what lives elsewhere, so that nothing points into it any more.
//!
//! ```text
//! scan a slice --> found: what the index points at --append_if--> copies --durable--> turn the index
//! or read a few of  ^------------- still points here, but not as it was copied ------------'
//! what is listed
//! ```
//!
//! Where little lives a checkpoint has listed all of it (`capture`): then the rest is not read.
//!
//! Invariants
//!   1. A copy is appended under the stripe's lock, while the index still points at its source.
//!   2. The index turns to a copy only when it is durable.
//!   3. *Done* means: each record was met by the scan or by the checkpoint that listed them, and nothing points at any of
//!      them. A record that is dead stays dead, so looking once is enough.
//!
//! Out of scope: which segment (`liveness`), when and how fast (`housekeeping::rules`), when the segment may vanish (`housekeeping`).

use collections::Deadline;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use journal::{
    Class, Journal, JournalError, Keyspace, LogAddress, ReadError, RecordView, Records, Scanner, SegmentId,
    Seq,
};
use smallvec::SmallVec;

use super::capture::Survivor;
use super::copies::{Appended, Context, Copies, Image, Progress, SLICE_BYTES};
use super::{EXPECTED_PAYLOAD_BYTES, fold};
use crate::hash::{KeyHash, KeyHasher};
use crate::index::ahead::AHEAD_KEYS_MAX;
use crate::index::delta::chain;
use crate::index::recover::Owned;
use crate::keyspaces::keys_of;
use crate::memory::Passing;
use crate::record::{self, Part, Parts, Payload};
use crate::sought::{OF_ANOTHER, Sought, place_of};

/// A segment being cleaned.
#[derive(Debug)]
pub(crate) struct Cleaning {
    segment: u32,
    rest: Rest,
    found: Vec<Found>,
    copies: Copies,
}

/// What was not looked at yet.
#[derive(Debug)]
enum Rest {
    /// The records from here on.
    Records(Box<Scanner>),
    /// Of all that may live these, the last in the segment first.
    Listed(Vec<Survivor>),
    Nothing,
}

/// A part, and all of its record.
type PartOf<'a> = (Parts<'a>, Part<'a>);

/// A record, or a part of one, that the index points at.
#[derive(Debug)]
struct Found {
    keyspace: Keyspace,
    hash: KeyHash,
    address: LogAddress,
    kind: u8,
    seq: Seq,
    expiry: Option<Deadline>,
    payload: Box<[u8]>,
    _counted: Option<Passing>,
}

impl Cleaning {
    /// Begins to clean `segment`, in which nothing lives but `survivors` if they are known.
    ///
    /// # Errors
    /// When the segment cannot be opened.
    pub(crate) fn begin(
        journal: &Journal,
        segment: u32,
        survivors: Option<Vec<Survivor>>,
    ) -> Result<Self, JournalError> {
        let rest = match survivors {
            Some(mut listed) => {
                listed.sort_unstable_by_key(|survivor| Reverse(survivor.address));
                Rest::Listed(listed)
            }
            None => Rest::Records(Box::new(journal.scanner(SegmentId(segment))?)),
        };
        Ok(Self { segment, rest, found: Vec::new(), copies: Copies::default() })
    }

    /// The segment's number.
    pub(crate) fn segment(&self) -> u32 {
        self.segment
    }

    /// Takes the list of segments that the index was turned into since the last call.
    pub(crate) fn take_turned(&mut self) -> BTreeSet<u32> {
        self.copies.take_turned()
    }

    /// Whether a copy in `segment` waits for the index to turn to it.
    pub(crate) fn awaits(&self, segment: u32) -> bool {
        self.copies.awaits(segment)
    }

    /// Whether copies wait for the disk.
    pub(crate) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Does at most about [`SLICE_BYTES`] of work.
    ///
    /// # Errors
    /// [`JournalError::Damaged`] when a record of the segment does not verify: it must be quarantined, not retired.
    pub(crate) fn slice(&mut self, context: Context<'_>) -> Result<Progress, JournalError> {
        self.settle(context)?;
        if !self.found.is_empty() {
            return self.copy(context);
        }
        Ok(match self.look(context)? {
            Some(bytes) => Progress::Worked(bytes),
            None if self.copies.is_empty() => Progress::Done,
            None => Progress::Waits,
        })
    }

    /// Turns the index to the copies that are durable.
    fn settle(&mut self, context: Context<'_>) -> Result<(), JournalError> {
        let mut stale = Vec::new();
        self.copies.settle(context, |source, has_turned| stale.extend((!has_turned).then_some(source)));
        for source in stale {
            // it points there still, but not as it was copied
            self.found.extend(Found::read(&source, context)?);
        }
        Ok(())
    }

    /// Looks for what lives in the next records; returns how many bytes were read, `None` when none are left.
    fn look(&mut self, context: Context<'_>) -> Result<Option<u64>, JournalError> {
        let found = &mut self.found;
        let (bytes, more) = match &mut self.rest {
            Rest::Nothing => return Ok(None),
            Rest::Records(scanner) => {
                let before = scanner.offset_bytes();
                let mut strange = None;
                let look = &mut |records: Records<'_>| {
                    let unknown = |view: RecordView<'_>| {
                        let known = record::check(view.header.kind, Some(view.payload));
                        known.err().map(|what| damaged(view.address, &what.to_string()))
                    };
                    strange = strange.take().or_else(|| records.iter().find_map(unknown));
                    Found::among(records, context, found);
                };
                let more = scanner.groups(SLICE_BYTES, AHEAD_KEYS_MAX, look)?;
                // it may be alive: what is taken for nothing would be given back
                strange.map_or(Ok(()), Err)?;
                (scanner.offset_bytes() - before, more)
            }
            Rest::Listed(listed) => {
                let (mut bytes, mut reads) = (0, 0);
                while bytes < SLICE_BYTES && reads < READS_MAX {
                    let Some(survivor) = listed.pop() else { break };
                    let read = Found::read(&survivor, context)?;
                    bytes += read.as_ref().map_or(0, Found::record_bytes);
                    reads += 1;
                    found.extend(read);
                }
                (bytes, !listed.is_empty())
            }
        };
        if !more {
            self.rest = Rest::Nothing;
        }
        Ok(Some(bytes))
    }

    /// Appends copies of what was found; stops when the journal has no room.
    fn copy(&mut self, context: Context<'_>) -> Result<Progress, JournalError> {
        let mut bytes = 0;
        while let Some(found) = self.found.pop() {
            let Some(owned) = context.index.owns(found.keyspace, found.hash, found.address) else { continue };
            match found.append(&owned, context)? {
                Appended::Copied(copy) => {
                    bytes += copy.bytes();
                    self.copies.push(copy);
                }
                // it changes all the time: the others first, and then it is read and folded again
                Appended::Changed => {
                    bytes += found.record_bytes();
                    self.found.insert(0, found);
                }
                Appended::NoRoom => {
                    self.found.push(found);
                    break;
                }
            }
            if bytes >= SLICE_BYTES {
                break;
            }
        }
        context.engine.journal.offer();
        Ok(if bytes == 0 && !self.found.is_empty() { Progress::Waits } else { Progress::Worked(bytes) })
    }
}

impl Found {
    /// Adds those of `records`, and of their parts, that the index points at to `found`; what tells is prefetched for all of them at once.
    fn among(records: Records<'_>, context: Context<'_>, found: &mut Vec<Self>) {
        let mut keys = SmallVec::<[(Keyspace, KeyHash); AHEAD_KEYS_MAX]>::new();
        for view in records.iter() {
            each_key(&view, context.hasher, &mut |keyspace, hash, _| keys.push((keyspace, hash)));
        }
        keys.chunks(AHEAD_KEYS_MAX).for_each(|keys| context.index.prefetch(keys));
        for view in records.iter() {
            each_key(&view, context.hasher, &mut |keyspace, hash, part| {
                found.extend(Self::of(&view, keyspace, hash, part, context));
            });
        }
    }

    /// What of a record is of the key with this hash, if the index points at it.
    fn of(
        view: &RecordView<'_>,
        keyspace: Keyspace,
        hash: KeyHash,
        part: Option<PartOf<'_>>,
        context: Context<'_>,
    ) -> Option<Self> {
        let (header, address) = (&view.header, view.address);
        context.index.owns(keyspace, hash, address)?;
        let (kind, payload) = match part {
            Some((parts, part)) => parts.alone(&part),
            None => (header.kind, view.payload.to_vec()),
        };
        let (seq, expiry) = (header.seq, Deadline::of(header.expiry_ms));
        let (counted, payload) = (context.engine.count_copy(payload.len()), payload.into_boxed_slice());
        Some(Self { keyspace, hash, address, kind, seq, expiry, payload, _counted: counted })
    }

    /// The record of `survivor`, if the index still points at it.
    fn read(survivor: &Survivor, context: Context<'_>) -> Result<Option<Self>, JournalError> {
        let Survivor { address, keyspace, hash } = *survivor;
        let Some(owned) = context.index.owns(keyspace, hash, address) else { return Ok(None) };
        let base = Sought::base(owned.base, keyspace, hash);
        let delta = owned.deltas.iter().find(|delta| delta.address == address);
        let sought = delta.map_or(base, |delta| base.delta(delta));
        let (at, mut payload) = (address, Vec::new());
        let read = context.engine.journal.read(at, EXPECTED_PAYLOAD_BYTES, &mut payload);
        let header = read.map_err(|error| match error {
            ReadError::Io { source, .. } => JournalError::Failed {
                action: format!("reading segment {} at {}", at.segment(), at.offset_bytes()),
                source: Arc::new(source),
            },
            error => damaged(at, &error.to_string()),
        })?;
        let (kind, payload) = match record::decode(header.kind, &payload) {
            Some(Payload::Deltas(parts)) => {
                let part = sought.part(&header, parts, context.hasher);
                parts.alone(&part.ok_or_else(|| damaged(at, OF_ANOTHER))?)
            }
            decoded => {
                let key = decoded.and_then(|payload| payload.key());
                if key.is_none_or(|key| !sought.is(&header, key, context.hasher)) {
                    return Err(damaged(at, OF_ANOTHER));
                }
                (header.kind, payload)
            }
        };
        let (seq, expiry) = (header.seq, Deadline::of(header.expiry_ms));
        let counted = context.engine.count_copy(payload.len());
        let payload = payload.into();
        Ok(Some(Self { keyspace, hash, address, kind, seq, expiry, payload, _counted: counted }))
    }

    fn record_bytes(&self) -> u64 {
        record::HEADER_BYTES + (self.payload.len() as u64).next_multiple_of(8)
    }

    /// Appends a copy: of a base with its deltas folded in, of a delta alone.
    fn append(&self, owned: &Owned, context: Context<'_>) -> Result<Appended, JournalError> {
        let is_base = owned.base == self.address;
        let folded = if is_base { self.folded(owned, context)? } else { None };
        let _counted = folded.as_ref().and_then(|folded| context.engine.count_copy(folded.len()));
        let payload: &[u8] = folded.as_deref().unwrap_or(&self.payload);
        let (mut seq, mut expiry) = (self.seq, self.expiry);
        if is_base && chain(self.seq, &owned.deltas).is_none() {
            return Err(damaged(self.address, "its deltas belong to another state of the key"));
        }
        for delta in owned.deltas.iter().filter(|_| is_base) {
            seq = delta.seq;
            expiry = delta.expiry_after(expiry);
        }
        let source = Survivor { keyspace: self.keyspace, hash: self.hash, address: self.address };
        let image = Image { kind: self.kind, payload, seq, expiry };
        // of a part they may be counted by another
        let delta = owned.deltas.iter().find(|delta| delta.address == self.address);
        let source_bytes = delta.map_or_else(|| self.record_bytes(), |delta| delta.record_bytes.into());
        Copies::append(source, source_bytes, owned, &image, Class::Cleaning, context)
    }

    /// A base's payload with what its deltas change; `None` when they change nothing of it.
    fn folded(&self, owned: &Owned, context: Context<'_>) -> Result<Option<Vec<u8>>, JournalError> {
        let mut deltas = Vec::new();
        for delta in owned.deltas.iter().filter(|delta| record::changes_value(delta.kind)) {
            let mut bytes = Vec::new();
            let address = delta.address;
            let read = context.engine.journal.read(address, EXPECTED_PAYLOAD_BYTES, &mut bytes);
            let header = read.map_err(|error| damaged(address, &error.to_string()))?;
            let is_of_root = header.kind == record::CHANGES && keys_of(header.keyspace) == self.keyspace;
            if header.seq != delta.seq || (header.keyspace != self.keyspace && !is_of_root) {
                return Err(damaged(address, OF_ANOTHER));
            }
            deltas.push((header.kind, bytes));
        }
        if deltas.is_empty() {
            return Ok(None);
        }
        let folded = fold::fold(&self.payload, self.kind, &deltas);
        let base = owned.base;
        folded.map(Some).ok_or_else(|| damaged(base, "its deltas do not fit it"))
    }
}

/// Lets `visit` see the keys that a record changes: keyspace and hash, and of a record with parts which of them it is.
fn each_key(
    view: &RecordView<'_>,
    hasher: &KeyHasher,
    visit: &mut dyn FnMut(Keyspace, KeyHash, Option<PartOf<'_>>),
) {
    let header = &view.header;
    match record::decode(header.kind, view.payload) {
        Some(Payload::Deltas(parts)) => parts.for_each(|part| {
            let (keyspace, hash) = place_of(header.keyspace, parts.object, part.named(), hasher);
            visit(keyspace, hash, Some((parts, part)));
        }),
        payload => {
            if let Some(key) = payload.and_then(|payload| payload.key()) {
                visit(header.keyspace, hasher.hash_in(header.keyspace, key), None);
            }
        }
    }
}

fn damaged(address: LogAddress, what: &str) -> JournalError {
    JournalError::Damaged {
        file: format!("segment {}", address.segment()),
        offset: address.offset_bytes(),
        what: what.to_owned(),
    }
}

/// Records of a list that one slice reads, one by one.
const READS_MAX: usize = 64;
