//! Paged collections under `check`: whether each root has its leaves, and each leaf its root.
//!
//! What is there is what a start would find: of the records below the checkpoint's lsn those that it names, above it the newest of each
//! key. Judged only where everything else holds: records that are lost are reported already, and would be missed here once more.
//!
//! Which record of a key the checkpoint names does not matter: it may be older than a whole value that was made of changes and not used.
//!
//! Memory: about eighty bytes for each leaf and each root, and sixteen for each record of theirs.

use std::collections::{BTreeSet, HashMap};

use journal::{Keyspace, LogAddress, Lsn, RecordView, Seq};

use crate::hash::KeyHasher;
use crate::keyspaces::{SWEPT_KEYSPACE, is_leaves, is_own, keys_of, leaves_of};
use crate::paged::split_leaf_key;
use crate::record::{self, Payload};
use crate::sweep::waiting::split_note_key;
use crate::tree::NODE;

/// Large collections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Collections {
    /// Keys that have leaves.
    pub roots: u64,
    /// Their leaves and other nodes.
    pub leaves: u64,
}

/// The newest records of roots, leaves, and notes about objects that are gone.
pub(super) struct Leaves {
    /// Records from here on follow the checkpoint.
    from: Lsn,
    /// By the whole hash of the key: that of the index is cut in tests, and keys share it.
    roots: HashMap<(Keyspace, u128), (Newest, Root)>,
    leaves: HashMap<(Keyspace, u64, u32), Newest>,
    notes: HashMap<(Keyspace, u64), Newest>,
    /// Whose the records below `from` are, by `Newest::key`.
    records: Vec<(Seq, u32)>,
    keys: u32,
}

/// Which keys the checkpoint names.
pub(super) struct Named {
    /// Ascending.
    records: Vec<(Seq, u32)>,
    is_named: Vec<bool>,
}

/// The newest record of a key.
#[derive(Clone, Copy)]
struct Newest {
    /// Counts roots, leaves and notes.
    key: u32,
    seq: Seq,
    address: LogAddress,
    follows: bool,
    /// It is no removal, nor another value in the place of a root.
    is_there: bool,
}

#[derive(Clone, Copy)]
struct Root {
    object: u64,
    leaves: u32,
    /// Of its tree.
    nodes: u32,
}

/// An object and how many of its leaves and nodes were found.
struct Object {
    of: Root,
    found: u64,
    root: LogAddress,
}

/// So many of a thing, and where the first of them lies.
#[derive(Clone, Copy, Default)]
struct Strays {
    count: u64,
    first: LogAddress,
}

impl Leaves {
    /// Nothing yet, for a folder whose checkpoint is followed by the records from `from` on.
    pub(super) fn new(from: Lsn) -> Self {
        Self {
            from,
            roots: HashMap::new(),
            leaves: HashMap::new(),
            notes: HashMap::new(),
            records: Vec::new(),
            keys: 0,
        }
    }

    /// Notes a record, if it concerns a paged collection.
    pub(super) fn take(&mut self, view: &RecordView<'_>, hasher: &KeyHasher) {
        let keyspace = view.header.keyspace;
        let may_concern = is_leaves(keyspace) || keyspace == SWEPT_KEYSPACE || !is_own(keyspace);
        let payload = if may_concern { record::decode(view.header.kind, view.payload) } else { None };
        let Some(Payload::Whole { key, value }) = payload else { return };
        let newest = Newest {
            key: self.keys,
            seq: view.header.seq,
            address: view.address,
            follows: view.lsn >= self.from,
            is_there: record::base(view.header.kind).is_some(),
        };
        if !is_leaves(keyspace) && keyspace != SWEPT_KEYSPACE {
            return self.take_key((keyspace, key), record::root_of(view.header.kind, value), newest, hasher);
        }
        let known = if is_leaves(keyspace) {
            let Some((object, number)) = split_leaf_key(key) else { return };
            self.leaves.entry((keyspace, object, number)).or_insert(newest)
        } else {
            let Some((_, object, leaves)) = split_note_key(key) else { return };
            self.notes.entry((leaves, object)).or_insert(newest)
        };
        known.on(newest);
        let key = known.key;
        self.note(key, newest);
    }

    /// Notes whose record it is.
    fn note(&mut self, key: u32, record: Newest) {
        self.keys += u32::from(key == self.keys);
        if record.is_there && !record.follows {
            self.records.push((record.seq, key));
        }
    }

    fn take_key(
        &mut self,
        (keyspace, key): (Keyspace, &[u8]),
        root: Option<crate::paged::Root>,
        newest: Newest,
        hasher: &KeyHasher,
    ) {
        match root.map(Root::from) {
            Some(root) => {
                let known = self.roots.entry((keyspace, hasher.uncut(key)));
                let (known, of) = known.or_insert((newest, root));
                if known.on(newest) {
                    *of = root;
                }
                let key = known.key;
                self.note(key, newest);
            }
            // records are read in the order of the log: what takes the place of a root comes after it
            None if !self.roots.is_empty() => {
                if let Some((known, _)) = self.roots.get_mut(&(keyspace, hasher.uncut(key))) {
                    known.on(Newest { is_there: false, ..newest });
                }
            }
            None => {}
        }
    }

    /// All of whom the checkpoint names none yet.
    pub(super) fn begin_naming(&mut self) -> Named {
        let mut records = std::mem::take(&mut self.records);
        records.sort_unstable();
        Named { records, is_named: vec![false; self.keys as usize] }
    }

    /// Counts, and what is wrong: where, and what. `named` is what the checkpoint names; `used` are the keyspaces of the
    /// databases, `None` if nothing states them.
    pub(super) fn judge(
        &self,
        named: &Named,
        used: Option<&BTreeSet<Keyspace>>,
    ) -> (Collections, Vec<(LogAddress, String)>) {
        let is_there =
            |newest: &Newest| newest.is_there && (newest.follows || named.is_named[newest.key as usize]);
        let is_used = |keyspace| used.is_none_or(|used| used.contains(&keys_of(keyspace)));
        let roots =
            self.roots.iter().filter(|((keyspace, _), (newest, _))| is_used(*keyspace) && is_there(newest));
        let mut objects: HashMap<(Keyspace, u64), Object> = HashMap::new();
        for ((keyspace, _), (newest, of)) in roots {
            let wanted = Object { of: *of, found: 0, root: newest.address };
            objects.insert((leaves_of(*keyspace), of.object), wanted);
        }
        let (mut counts, mut loose) =
            (Collections { roots: objects.len() as u64, leaves: 0 }, Strays::default());
        let leaves =
            self.leaves.iter().filter(|((keyspace, ..), newest)| is_used(*keyspace) && is_there(newest));
        for ((keyspace, number, leaf), newest) in leaves {
            match objects.get_mut(&(*keyspace, *number)).filter(|object| object.of.has(*leaf)) {
                Some(object) => (object.found, counts.leaves) = (object.found + 1, counts.leaves + 1),
                None if self.notes.get(&(*keyspace, *number)).is_some_and(is_there) => {}
                None => loose.add(1, newest.address),
            }
        }
        let (mut hurt, mut missing) = (Strays::default(), 0);
        for object in objects.values().filter(|object| object.found < object.of.count()) {
            hurt.add(1, object.root);
            missing += object.of.count() - object.found;
        }
        let hurt = hurt.fault(|count| format!("{missing} leaves of {count} large collections are missing"));
        let loose = loose.fault(|count| format!("{count} leaves belong to no collection"));
        (counts, hurt.into_iter().chain(loose).collect())
    }
}

impl From<crate::paged::Root> for Root {
    fn from(root: crate::paged::Root) -> Self {
        Self { object: root.object, leaves: root.leaves, nodes: root.tree.map_or(0, |tree| tree.nodes) }
    }
}

impl Root {
    /// Leaves and nodes.
    fn count(self) -> u64 {
        u64::from(self.leaves) + u64::from(self.nodes)
    }

    /// Whether the leaf or node with this number is one of it.
    fn has(self, number: u32) -> bool {
        if number & NODE == 0 { number < self.leaves } else { number & !NODE < self.nodes }
    }
}

impl Named {
    /// The checkpoint names the record with this seq.
    pub(super) fn name(&mut self, seq: Seq) {
        if let Ok(at) = self.records.binary_search_by_key(&seq, |(seq, _)| *seq) {
            self.is_named[self.records[at].1 as usize] = true;
        }
    }
}

impl Newest {
    /// Takes the place of `self` if it is newer; returns whether it did. Of copies of one record one follows the checkpoint, or none.
    fn on(&mut self, other: Self) -> bool {
        self.follows |= other.follows && other.seq == self.seq;
        let is_newer = other.seq > self.seq;
        if is_newer {
            *self = Self { key: self.key, ..other };
        }
        is_newer
    }
}

impl Strays {
    fn add(&mut self, count: u64, address: LogAddress) {
        self.first = if self.count == 0 { address } else { self.first.min(address) };
        self.count += count;
    }

    fn fault(self, what: impl Fn(u64) -> String) -> Option<(LogAddress, String)> {
        (self.count > 0).then(|| (self.first, what(self.count)))
    }
}
