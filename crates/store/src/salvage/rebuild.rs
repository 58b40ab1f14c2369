//! Large collections of which a part is lost: made anew of what is left, so that what was saved can be read and changed.
//!
//! ```text
//! saved       root -> node 9 -> node 0, (node 4 is lost), node 7
//! made anew   root' -> node 0', node 1'         another object, with the elements of nodes 0 and 7
//! removed     all that is left of the old object
//! ```
//!
//! Leaves, then the root, then removals are appended to the saved folder as any others. What is whole is not touched. Where the root is lost, an
//! older one says the key, unless that has a value now; without one the elements get a key of their own, `lost:TYPE:OBJECT`, and the report
//! names it.
//!
//! Out of scope: which elements the new collection has, and in which order (`remains`, `runs`, `order`), its tree (`grown`).

mod grown;
mod order;
mod remains;
mod roots;
mod runs;
mod writer;

use std::collections::{BTreeSet, HashSet};
use std::path::Path;
use std::sync::Arc;

use clock::Clock;
use journal::{Hooks, Journal, Keyspace, Lsn, Recovery, Seq};
use vfs::Vfs;

use crate::check::collections::{faults_of, name_of};
use crate::check::leaves::{Collected, Leaves};
use crate::check::nodes::{Found, Node, Reader, State};
use crate::error::StoreError;
use crate::hash::KeyHasher;
use crate::keyspaces::keys_of;
use crate::objects::Objects;
use crate::record::{self, MAPPING, Payload};
use crate::value::ValueKind;
use collections::root::{KEY_NODE, LEAVES_MAX, Root, leaf_key};
use collections::tree::{NO_NODE, NODE, NODES_MAX, Tree};
use remains::Remains;
use roots::Keys;
pub(super) use roots::Roots;
use writer::Writer;

/// What was done to large collections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Those of which a part was lost: a sentence each, of the first hundred.
    pub told: Vec<String>,
    /// All of them.
    pub collections: u64,
    /// Leaves and other nodes whose root was lost, and which cannot be read.
    pub loose_leaves: u64,
}

/// Makes collections in the saved folder `out` whole. `roots` are those of the folder that was saved.
///
/// # Errors
/// [`StoreError::Open`] when a read or write fails.
pub(super) fn rebuild(
    vfs: &Arc<dyn Vfs>,
    clock: &Arc<dyn Clock>,
    out: &Path,
    roots: Roots,
) -> Result<Rebuilt, StoreError> {
    let options = journal::Options { content: record::CONTENT, ..journal::Options::default() };
    let recovery = Journal::open(Arc::clone(vfs), Arc::clone(clock), out, options)
        .map_err(|error| StoreError::Open(error.to_string()))?;
    let identity = recovery.identity();
    let hasher = KeyHasher::new(&identity.hash_key.to_le_bytes(), identity.hash_bits);
    let mut keys = roots.keys(&hasher);
    let (collected, newest) = collect(&recovery, &hasher, &mut keys)?;
    let (journal, driver) =
        recovery.start_manual(Hooks::default()).map_err(|error| StoreError::Open(error.to_string()))?;
    let objects = collected.roots.iter().map(|root| root.of.object);
    let known = objects.chain(collected.loose.iter().map(|loose| loose.node.object)).collect();
    let source = Arc::clone(&journal);
    let reader = Reader::new(move |address, len, payload| source.read(address, len, payload));
    let mut rebuilder = Rebuilder {
        found: Found { collected, reader },
        writer: Writer::new(journal, driver),
        objects: Objects::new(&hasher, newest, clock.now()),
        hasher,
        known,
        roots,
        keys,
        rebuilt: Rebuilt::default(),
    };
    for at in 0..rebuilder.found.collected.roots.len() {
        rebuilder.collection(at)?;
    }
    rebuilder.loose()?;
    rebuilder.writer.finish();
    Ok(rebuilder.rebuilt)
}

/// What the folder has of large collections, and its newest effect.
fn collect(recovery: &Recovery, hasher: &KeyHasher, keys: &mut Keys) -> Result<(Collected, Seq), StoreError> {
    let (mut leaves, mut newest, mut mapping) = (Leaves::new(Lsn(0)), Seq::NONE, None);
    for info in recovery.segments() {
        let scanned = recovery.scan(info.segment, Lsn(0), &mut |view| {
            leaves.take(&view, hasher);
            keys.take(&view, hasher);
            newest = newest.max(view.header.seq);
            if view.header.kind == MAPPING
                && let Some(Payload::Mapping { keyspaces, .. }) = record::decode(MAPPING, view.payload)
                && mapping.as_ref().is_none_or(|(seq, _)| *seq < view.header.seq)
            {
                mapping = Some((view.header.seq, record::mapping_ids(keyspaces)));
            }
        });
        scanned.map_err(|error| StoreError::Open(error.to_string()))?;
    }
    let used: Option<BTreeSet<Keyspace>> = mapping.map(|(_, ids)| ids.into_iter().collect());
    let named = leaves.begin_naming();
    Ok((leaves.settle(&named, used.as_ref()), newest))
}

struct Rebuilder<'a> {
    found: Found<'a>,
    writer: Writer,
    hasher: KeyHasher,
    objects: Objects,
    /// Numbers of objects that are taken.
    known: HashSet<u64>,
    roots: Roots,
    keys: Keys,
    rebuilt: Rebuilt,
}

impl Rebuilder<'_> {
    /// Makes the collection of root number `at` anew, if it is not whole.
    fn collection(&mut self, at: usize) -> Result<(), StoreError> {
        let roots = &self.found.collected.roots;
        let root = roots[at];
        let is_former = at > 0 && {
            let newer = &roots[at - 1];
            (newer.leaves, newer.of.object) == (root.leaves, root.of.object)
        };
        let Ok(state) = self.found.state(&root.record) else { return Ok(()) };
        let Some(was) = record::root_of(state.kind, state.value()) else { return Ok(()) };
        if is_former {
            let name = name_of(&state, &was);
            self.tell(format!("{name} is left out: its leaves are at the key that has them since"));
            return self.writer.remove(keys_of(root.leaves), state.key());
        }
        if faults_of(&root, &mut self.found, &self.hasher).is_empty() {
            return Ok(());
        }
        self.make_anew(root.leaves, &state, &was, "its root counted ")
    }

    /// Makes the collection anew that has root `was`, whose record is in `state`, and removes all that is left of the former one. `before`: what
    /// the report says before the former count; without one `was` counts 0.
    fn make_anew(
        &mut self,
        leaves: Keyspace,
        state: &State,
        was: &Root,
        before: &str,
    ) -> Result<(), StoreError> {
        let (name, keys, object) = (name_of(state, was), keys_of(leaves), self.object(state.key()));
        let kind = ValueKind::of(state.kind);
        let mut remains = Remains::gather(&mut self.found, &self.hasher, leaves, kind, *was);
        let made = remains.write(&mut self.writer, state.key(), object)?;
        let (unplaced, others) = (remains.unplaced, remains.others);
        let before = match was.count {
            0 => before.to_owned(),
            count => format!("{before}{}", count.saturating_sub(others)),
        };
        if let Some(made) = made {
            let order = match unplaced {
                0 => String::new(),
                count => format!("; where {count} of its leaves belong is lost: they come last"),
            };
            let count = made.count.saturating_sub(others);
            self.tell(format!("{name} has {count} elements, {before}{order}"));
            self.writer.put_root(keys, state, &made)?;
        } else {
            self.tell(format!("{name} has no element any more, {before}"));
            self.writer.remove(keys, state.key())?;
            // leaves that an older root of it names may be there
            self.keys.vacate(leaves, state.key(), &self.hasher);
        }
        let (hashed, nodes) = self.found.collected.nodes.of(leaves, was.object);
        hashed
            .iter()
            .chain(nodes)
            .try_for_each(|node| self.writer.remove(leaves, &leaf_key(node.object, node.number)))
    }

    fn tell(&mut self, what: String) {
        self.rebuilt.collections += 1;
        if self.rebuilt.told.len() < TOLD_MAX {
            self.rebuilt.told.push(what);
        }
    }

    /// A number for a collection at `key` that no other has.
    fn object(&mut self, key: &[u8]) -> u64 {
        loop {
            let object = self.objects.next(self.hasher.hash(key).stripe());
            if self.known.insert(object) {
                return object;
            }
        }
    }

    /// Makes collections anew of leaves whose root is lost, as far as their key is known; removes all that is loose.
    fn loose(&mut self) -> Result<(), StoreError> {
        let mut objects: Vec<(Keyspace, u64)> = Vec::new();
        for loose in self.found.collected.loose.iter().filter(|loose| !loose.is_gone) {
            objects.push((loose.node.leaves, loose.node.object));
        }
        objects.sort_unstable();
        let roots = &self.found.collected.roots;
        let has_root = |of: &(Keyspace, u64)| {
            roots.binary_search_by_key(of, |root| (root.leaves, root.of.object)).is_ok()
        };
        objects.retain(|of| !has_root(of));
        let leaves_of_objects: Vec<_> = objects.chunk_by(|a, b| a == b).map(|of| (of[0], of.len())).collect();
        for ((leaves, object), count) in leaves_of_objects {
            let state = self.roots.of(leaves, object);
            let state = state.filter(|state| self.keys.occupy(leaves, state.key(), &self.hasher));
            match state.and_then(|state| Some((record::root_of(state.kind, state.value())?, state))) {
                Some((was, state)) => {
                    self.make_anew(leaves, &state, &was, "its root is lost, an older one counted ")?;
                }
                None => match self.stand_in(leaves, object) {
                    Some((was, state, before)) => self.make_anew(leaves, &state, &was, &before)?,
                    None => self.rebuilt.loose_leaves += count as u64,
                },
            }
        }
        self.found
            .collected
            .loose
            .iter()
            .map(|loose| &loose.node)
            .try_for_each(|node| self.writer.remove(node.leaves, &leaf_key(node.object, node.number)))
    }
}

impl Rebuilder<'_> {
    /// A root for the leaves of `object`, whose own is lost and whose key nobody knows, at a key of its own; and what the report says of it.
    /// `None`: none of them can be read.
    fn stand_in(&mut self, leaves: Keyspace, object: u64) -> Option<(Root, State, String)> {
        let of = |node: &Node| (node.leaves, node.object) == (leaves, object);
        let nodes: Vec<Node> = self.found.collected.loose.iter().map(|loose| loose.node).filter(of).collect();
        let (mut kinds, mut named) = (BTreeSet::new(), None);
        for node in &nodes {
            let Ok(state) = self.found.state(&node.record) else { continue };
            match ValueKind::of(state.kind) {
                ValueKind::String if node.number == KEY_NODE => named = Some(state.value().to_vec()),
                kind => _ = kinds.insert((kind.name(), node.number & NODE != 0)),
            }
        }
        let has = |kind: ValueKind, in_tree| kinds.contains(&(kind.name(), in_tree));
        let kind = [
            (ValueKind::Stream, true),
            (ValueKind::SortedSet, true),
            (ValueKind::Set, false),
            (ValueKind::Hash, false),
            (ValueKind::List, true),
        ];
        let (kind, _) = kind.into_iter().find(|(kind, in_tree)| has(*kind, *in_tree))?;
        let is_ordered = matches!(kind, ValueKind::Stream | ValueKind::SortedSet | ValueKind::List);
        let end = |in_tree: bool| {
            let numbers = nodes.iter().map(|node| node.number);
            let numbers = numbers.filter(|number| (number & NODE != 0) == in_tree);
            numbers.map(|number| (number & !NODE).saturating_add(1)).max().unwrap_or(0)
        };
        let is_hashed = matches!(kind, ValueKind::Hash | ValueKind::Set | ValueKind::SortedSet);
        let hashed = if is_hashed { end(false).clamp(1, LEAVES_MAX) } else { 0 };
        let tree = Tree { bytes: 0, nodes: end(true).clamp(1, NODES_MAX), top: 0, free: NO_NODE, depth: 0 };
        let tree = is_ordered.then_some(tree);
        let root = Root { object, count: 1, bytes: 0, leaves: hashed, tree, is_timed: named.is_some() };
        let key = format!("lost:{}:{object:016x}", kind.name()).into_bytes();
        let payload = [&(key.len() as u32).to_le_bytes()[..], &key, &root.encode()].concat();
        let state = State::whole(record::paged_kind_of(kind)?, payload, Seq::NONE, None);
        let named = named.map_or_else(
            || "and so is its key".to_owned(),
            |key| format!("its key was \"{}\"", key.escape_ascii()),
        );
        let before = format!("the record of its root is lost, {named}");
        // nobody knows which node is the top: none of them is
        let tree = tree.map(|tree| Tree { top: tree.nodes, ..tree });
        Some((Root { count: 0, tree, ..root }, state, before))
    }
}

/// Sentences of the report.
const TOLD_MAX: usize = 100;
