//! Which records large collections consist of: of each root, leaf and other node the newest base and the changes on it.
//!
//! What is there is what a start would find: of the records below the checkpoint's lsn those that it names, above it the newest of each
//! key. Which record of a key the checkpoint names does not matter: it may be older than a whole value that was made of changes and not used.
//!
//! Memory: about eighty bytes for each leaf and each root, sixteen for each record of theirs, and twenty-four for each change.
//!
//! Out of scope: what these records say (`nodes`), whether they fit each other (`collections`).

use std::collections::{BTreeSet, HashMap};

use journal::{Keyspace, LogAddress, Lsn, RecordView, Seq};

use super::nodes::{Change, Node, Nodes, Record};
use crate::hash::KeyHasher;
use crate::keyspaces::{SWEPT_KEYSPACE, is_leaves, is_own, keys_of, leaves_of};
use crate::record::{self, Part, Parts, Payload, Removals};
use crate::sweep::waiting::split_note_key;
use collections::root::{leaf_key, split_leaf_key};
use collections::tree::NODE;

/// The newest records of roots, leaves, and notes about objects that are gone.
pub(crate) struct Leaves {
    /// Records from here on follow the checkpoint.
    from: Lsn,
    /// By the whole hash of the key: that of the index is cut in tests, and keys share it.
    roots: HashMap<(Keyspace, u128), (Newest, Root)>,
    leaves: HashMap<(Keyspace, u64, u32), Newest>,
    notes: HashMap<(Keyspace, u64), Newest>,
    /// Whose the records below `from` are, by `Newest::key`.
    records: Vec<(LogAddress, u32)>,
    changes: Vec<Change>,
    /// The newest totals of each object: they say all.
    totals: HashMap<(Keyspace, u64), (Seq, LogAddress)>,
    keys: u32,
}

/// Which keys the checkpoint names.
pub(crate) struct Named {
    /// Ascending.
    records: Vec<(LogAddress, u32)>,
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
pub(crate) struct Root {
    pub(crate) object: u64,
    leaves: u32,
    /// Beside them ([`collections::root::Root::numbered`]).
    nodes: u32,
}

/// A root that is there.
#[derive(Clone, Copy)]
pub(crate) struct RootRecord {
    /// Where its leaves are.
    pub(crate) leaves: Keyspace,
    pub(crate) of: Root,
    pub(crate) record: Record,
}

/// A leaf, or another node, of no collection.
#[derive(Clone, Copy)]
pub(crate) struct Loose {
    pub(crate) node: Node,
    /// There is a note by which it goes.
    pub(crate) is_noted: bool,
    /// There is one, or was: its collection was removed. No two have the same number.
    pub(crate) is_gone: bool,
}

/// What is there.
pub(crate) struct Collected {
    /// In the order of their objects; of those with the same object the newest first.
    pub(crate) roots: Vec<RootRecord>,
    pub(crate) nodes: Nodes,
    pub(crate) loose: Vec<Loose>,
}

impl Leaves {
    /// Nothing yet, for a folder whose checkpoint is followed by the records from `from` on.
    pub(crate) fn new(from: Lsn) -> Self {
        Self {
            from,
            roots: HashMap::new(),
            leaves: HashMap::new(),
            notes: HashMap::new(),
            records: Vec::new(),
            changes: Vec::new(),
            totals: HashMap::new(),
            keys: 0,
        }
    }

    /// Notes a record, if it concerns a paged collection.
    pub(crate) fn take(&mut self, view: &RecordView<'_>, hasher: &KeyHasher) {
        let keyspace = view.header.keyspace;
        let may_concern = is_leaves(keyspace) || keyspace == SWEPT_KEYSPACE || !is_own(keyspace);
        let payload = if may_concern { record::decode(view.header.kind, view.payload) } else { None };
        let (key, value) = match payload {
            Some(Payload::Whole { key, value }) => (key, value),
            Some(Payload::Delta { key, .. }) => return self.take_delta(keyspace, key, view, hasher),
            Some(Payload::Deltas(parts)) => return self.take_parts(parts, view, hasher),
            Some(Payload::Removals(removals)) => return self.take_removals(removals, view),
            _ => return,
        };
        let newest = self.newest(view);
        if !is_leaves(keyspace) && keyspace != SWEPT_KEYSPACE {
            return self.take_key(keyspace, key, record::root_of(view.header.kind, value), newest, hasher);
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

    /// A record of a key that was not met before.
    fn newest(&self, view: &RecordView<'_>) -> Newest {
        Newest {
            key: self.keys,
            seq: view.header.seq,
            address: view.address,
            follows: view.lsn >= self.from,
            is_there: record::base(view.header.kind).is_some(),
        }
    }

    /// Notes that leaves or other nodes are gone. Records are read in the order of the log: those that are removed were met before.
    fn take_removals(&mut self, removals: Removals, view: &RecordView<'_>) {
        let newest = self.newest(view);
        for number in removals.numbers() {
            if let Some(known) = self.leaves.get_mut(&(view.header.keyspace, removals.object, number)) {
                known.on(newest);
            }
        }
    }

    /// Notes a change of a leaf, or of a root's expiry.
    fn take_delta(&mut self, keyspace: Keyspace, key: &[u8], view: &RecordView<'_>, hasher: &KeyHasher) {
        let known = if is_leaves(keyspace) {
            let Some((object, number)) = split_leaf_key(key) else { return };
            Some(self.leaves.entry((keyspace, object, number)).or_insert(Newest::unknown(self.keys)).key)
        } else if self.roots.is_empty() {
            None
        } else {
            self.roots.get(&(keyspace, hasher.uncut(key))).map(|(known, _)| known.key)
        };
        if let Some(key) = known {
            self.keys += u32::from(key == self.keys);
            self.changes.push(Change { key, seq: view.header.seq, address: view.address });
        }
    }

    /// Notes changes of leaves, and what their root counts.
    fn take_parts(&mut self, parts: Parts<'_>, view: &RecordView<'_>, hasher: &KeyHasher) {
        let leaves = leaves_of(view.header.keyspace);
        for part in parts {
            match part {
                Part::Node { number, .. } => {
                    self.take_delta(leaves, &leaf_key(parts.object, number), view, hasher);
                }
                Part::Root { .. } => {
                    let newest = self.totals.entry((leaves, parts.object)).or_default();
                    *newest = (*newest).max((view.header.seq, view.address));
                }
            }
        }
    }

    /// Notes whose record it is.
    fn note(&mut self, key: u32, record: Newest) {
        self.keys += u32::from(key == self.keys);
        if record.is_there && !record.follows {
            self.records.push((record.address, key));
        }
    }

    fn take_key(
        &mut self,
        keyspace: Keyspace,
        key: &[u8],
        root: Option<collections::root::Root>,
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
    pub(crate) fn begin_naming(&mut self) -> Named {
        let mut records = std::mem::take(&mut self.records);
        records.sort_unstable();
        Named { records, is_named: vec![false; self.keys as usize] }
    }

    /// What is there. `named` is what the checkpoint names; `used` are the keyspaces of the databases, `None` if nothing states them.
    pub(crate) fn settle(self, named: &Named, used: Option<&BTreeSet<Keyspace>>) -> Collected {
        let is_there =
            |newest: &Newest| newest.is_there && (newest.follows || named.is_named[newest.key as usize]);
        let is_used = |keyspace| used.is_none_or(|used| used.contains(&keys_of(keyspace)));
        let roots =
            self.roots.iter().filter(|((keyspace, _), (newest, _))| is_used(*keyspace) && is_there(newest));
        let mut roots: Vec<RootRecord> = roots
            .map(|((keyspace, _), (newest, of))| RootRecord {
                leaves: leaves_of(*keyspace),
                of: *of,
                record: newest.record(),
            })
            .collect();
        roots.sort_unstable_by_key(|root| (root.leaves, root.of.object, std::cmp::Reverse(root.record.seq)));
        let mut changes = self.changes;
        changes.extend(roots.iter().filter_map(|root| {
            let (seq, address) = *self.totals.get(&(root.leaves, root.of.object))?;
            (seq > root.record.seq).then_some(Change { key: root.record.key, seq, address })
        }));
        let (mut nodes, mut loose) = (Vec::new(), Vec::new());
        let leaves =
            self.leaves.iter().filter(|((keyspace, ..), newest)| is_used(*keyspace) && is_there(newest));
        for ((leaves, object, number), newest) in leaves {
            let node = Node { leaves: *leaves, object: *object, number: *number, record: newest.record() };
            let at = roots.partition_point(|root| (root.leaves, root.of.object) < (*leaves, *object));
            let root = roots.get(at).filter(|root| (root.leaves, root.of.object) == (*leaves, *object));
            match root.filter(|root| root.of.has(*number)) {
                Some(_) => nodes.push(node),
                None => {
                    let note = self.notes.get(&(*leaves, *object));
                    loose.push(Loose { node, is_noted: note.is_some_and(is_there), is_gone: note.is_some() });
                }
            }
        }
        Collected { roots, nodes: Nodes::new(nodes, changes), loose }
    }
}

impl From<collections::root::Root> for Root {
    fn from(root: collections::root::Root) -> Self {
        Self { object: root.object, leaves: root.leaves, nodes: root.numbered() }
    }
}

impl Root {
    /// Whether the leaf or node with this number is one of it.
    fn has(self, number: u32) -> bool {
        if number & NODE == 0 { number < self.leaves } else { number & !NODE < self.nodes }
    }
}

impl Named {
    /// The checkpoint names the record at this address.
    pub(crate) fn name(&mut self, address: LogAddress) {
        if let Ok(at) = self.records.binary_search_by_key(&address, |(address, _)| *address) {
            self.is_named[self.records[at].1 as usize] = true;
        }
    }
}

impl Newest {
    /// Of a key of which only changes were met.
    fn unknown(key: u32) -> Self {
        Self { key, seq: Seq::NONE, address: LogAddress::default(), follows: false, is_there: false }
    }

    fn record(&self) -> Record {
        Record { key: self.key, seq: self.seq, address: self.address }
    }

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
