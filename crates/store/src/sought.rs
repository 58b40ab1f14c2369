//! A record that the index names: where it lies, and what is known of it before it is read.
//!
//! A disk can put a write at another place of the file than it was told to. What lies there verifies, checksums and all, and is
//! of another key. Without this it would look like a key of equal hash bits, and the key that the index means like an absent one. So
//! each record that is read by its address is compared with what named the address: a slot knows keyspace, 48 bits of the hash
//! and that it is a whole value, a list of deltas the seq, too. What differs is damage.
//!
//! Out of scope: an older record of the same key. The address of a key's newest record is above those of all older ones, and was
//! written once: a write that went elsewhere has left nothing there that verifies.

use journal::{Keyspace, LogAddress, Seq};
use smallvec::{SmallVec, smallvec};

use crate::hash::{KeyHash, KeyHasher};
use crate::index::delta::Delta;
use crate::keyspaces::keys_of;
use crate::record::{self, Named, Part, Parts, Payload};
use collections::root::leaf_key;

/// A record to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Sought {
    /// Where it lies.
    pub(crate) address: LogAddress,
    keyspace: Keyspace,
    /// [`KeyHash::slot`] of its key.
    slot: u64,
    /// The effect, of a delta; NONE: a whole value.
    delta_seq: Seq,
    /// Only what is known of the key is needed: a large string is left out once its key was seen.
    is_for_state: bool,
}

impl Sought {
    /// The whole value at `address` of a key with this hash.
    pub(crate) fn base(address: LogAddress, keyspace: Keyspace, hash: KeyHash) -> Self {
        Self { address, keyspace, slot: hash.slot(), delta_seq: Seq::NONE, is_for_state: false }
    }

    /// `delta` on this base.
    pub(crate) fn delta(self, delta: &Delta) -> Self {
        Self { address: delta.address, delta_seq: delta.seq, ..self }
    }

    /// The same for one who does not need the value.
    pub(crate) fn for_state(self) -> Self {
        Self { is_for_state: true, ..self }
    }

    /// Whether the value is not needed.
    pub(crate) fn is_for_state(&self) -> bool {
        self.is_for_state
    }

    /// The keyspace of its key.
    pub(crate) fn keyspace(&self) -> Keyspace {
        self.keyspace
    }

    /// Whether it is no whole value.
    pub(crate) fn is_delta(&self) -> bool {
        self.delta_seq != Seq::NONE
    }

    /// The part of a record that is this one, of those in `parts`.
    pub(crate) fn part<'a>(
        &self,
        header: &journal::RecordHeader,
        parts: Parts<'a>,
        hasher: &KeyHasher,
    ) -> Option<Part<'a>> {
        let mut all = parts.filter(|_| header.seq == self.delta_seq);
        let is_it = |part: &Part<'a>| {
            let (keyspace, hash) = place_of(header.keyspace, parts.object, part.named(), hasher);
            (keyspace, hash.slot()) == (self.keyspace, self.slot)
        };
        all.find(is_it)
    }

    /// Its address, and the slot of its key.
    pub(crate) fn place(&self) -> (LogAddress, u64) {
        (self.address, self.slot)
    }

    /// Whether the record that was read may be this one.
    pub(crate) fn is(&self, header: &journal::RecordHeader, key: &[u8], hasher: &KeyHasher) -> bool {
        let fits = match self.delta_seq {
            Seq::NONE => record::base(header.kind).is_some(),
            seq => record::is_delta(header.kind) && header.seq == seq,
        };
        fits && header.keyspace == self.keyspace && hasher.hash_in(header.keyspace, key).slot() == self.slot
    }
}

/// Keyspace and hash of the key of what a record of `keyspace` changes of `object`; of a root's hash what [`KeyHash::slot`] has.
pub(crate) fn place_of(
    keyspace: Keyspace,
    object: u64,
    named: Named,
    hasher: &KeyHasher,
) -> (Keyspace, KeyHash) {
    match named {
        Named::Root(slot) => (keys_of(keyspace), KeyHash::of_slot(slot)),
        Named::Node(number) => (keyspace, hasher.hash_in(keyspace, &leaf_key(object, number))),
    }
}

/// A few bits of whose record one is, for `check` and salvage, which keep them for many.
pub(crate) fn mark(keyspace: Keyspace, hash: KeyHash) -> u32 {
    let mixed = (hash.slot() ^ u64::from(keyspace.0) << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> 32) as u32
}

/// The mark of a record, 0 of one without a key; of one with parts that of each.
pub(crate) fn marks_of(view: &journal::RecordView<'_>, hasher: &KeyHasher) -> SmallVec<[u32; 4]> {
    match record::decode(view.header.kind, view.payload) {
        Some(Payload::Deltas(parts)) => {
            let mark_of = |part: Part<'_>| {
                let (keyspace, hash) = place_of(view.header.keyspace, parts.object, part.named(), hasher);
                mark(keyspace, hash)
            };
            parts.map(mark_of).collect()
        }
        payload => {
            let key = payload.and_then(|payload| payload.key());
            let mark_of = |key| mark(view.header.keyspace, hasher.hash_in(view.header.keyspace, key));
            smallvec![key.map_or(0, mark_of)]
        }
    }
}

/// What is said of a record that is not the one that was sought.
pub(crate) const OF_ANOTHER: &str = "the record is of another key than the index says";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testlog::at;

    #[test]
    fn record_is_the_one_that_was_sought_by_kind_keyspace_hash_and_seq() {
        let hasher = KeyHasher::new(&[1; 16], 128);
        let header = |kind, keyspace, seq| journal::RecordHeader {
            kind,
            keyspace: Keyspace(keyspace),
            seq: Seq(seq),
            ..journal::RecordHeader::default()
        };
        let base = Sought::base(at(5), Keyspace(1), hasher.hash(b"k"));
        for kind in [record::STRING, record::HASH, record::STRING | record::SHARED] {
            assert!(base.is(&header(kind, 1, 9), b"k", &hasher));
        }
        assert!(!base.is(&header(record::STRING, 1, 9), b"other", &hasher));
        assert!(
            !base.is(&header(record::STRING, 0, 9), b"k", &hasher),
            "a prepared transaction of that name"
        );
        for kind in [record::REMOVED, record::EXPIRY, record::PART, record::CHANGE] {
            assert!(!base.is(&header(kind, 1, 9), b"k", &hasher), "kind {kind} is no value");
        }
        let delta = Delta {
            address: at(7),
            seq: Seq(9),
            since: Seq(8),
            kind: record::PART,
            record_bytes: 64,
            expiry: None,
        };
        let delta = base.delta(&delta);
        assert!(delta.is(&header(record::PART, 1, 9), b"k", &hasher));
        assert!(!delta.is(&header(record::PART, 1, 8), b"k", &hasher), "an older part of the same string");
        assert!(!delta.is(&header(record::STRING, 1, 9), b"k", &hasher));
    }

    #[test]
    fn marks_tell_keys_and_keyspaces_apart() {
        let hasher = KeyHasher::new(&[1; 16], 128);
        let marks = [(1, "k"), (2, "k"), (0, "k"), (1, "l")]
            .map(|(id, key)| mark(Keyspace(id), hasher.hash(key.as_bytes())));
        let distinct: std::collections::BTreeSet<_> = marks.into_iter().collect();
        assert_eq!(distinct.len(), marks.len());
    }
}
