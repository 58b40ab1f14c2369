//! Large collections of which a part is lost: made anew of what is left, so that what was saved can be read and changed.
//!
//! ```text
//! saved       root -> node 9 -> node 0, (node 4 is lost), node 7
//! made anew   root' -> node 0', node 1'         another object, with the elements of nodes 0 and 7
//! removed     all that is left of the old object
//! ```
//!
//! Leaves, then the root, then removals are appended to the saved folder as any others. What is whole is not touched. Where the root is lost, an
//! older one says the key, unless that has a value now; without one what is left is removed, and counted in the report.
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
use crate::check::nodes::{Found, Reader, State};
use crate::error::StoreError;
use crate::hash::KeyHasher;
use crate::keyspaces::keys_of;
use crate::paged::{Objects, Root, leaf_key};
use crate::record::{self, MAPPING, Payload};
use crate::value::ValueKind;
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
    /// Leaves and other nodes whose root was lost: nobody knows their key.
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
        self.make_anew(root.leaves, &state, (&was, &format!("its root counted {}", was.count)))
    }

    /// Makes the collection anew that has root `was`, whose record is in `state`, and removes all that is left of the former one.
    fn make_anew(
        &mut self,
        leaves: Keyspace,
        state: &State,
        (was, before): (&Root, &str),
    ) -> Result<(), StoreError> {
        let (name, keys, object) = (name_of(state, was), keys_of(leaves), self.object(state.key()));
        let kind = ValueKind::of(state.kind);
        let mut remains = Remains::gather(&mut self.found, &self.hasher, leaves, (kind, *was));
        let made = remains.write(&mut self.writer, (state.key(), object))?;
        let unplaced = remains.unplaced;
        if let Some(made) = made {
            let order = match unplaced {
                0 => String::new(),
                count => format!("; where {count} of its leaves belong is lost: they come last"),
            };
            self.tell(format!("{name} has {} elements, {before}{order}", made.count));
            self.writer.put_root(keys, state, &made)?;
        } else {
            self.tell(format!("{name} has no element any more, {before}"));
            self.writer.remove(keys, state.key())?;
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
        for loose in self.found.collected.loose.iter().filter(|loose| !loose.is_noted) {
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
                    let before = format!("its root is lost, an older one counted {}", was.count);
                    self.make_anew(leaves, &state, (&was, &before))?;
                }
                None => self.rebuilt.loose_leaves += count as u64,
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

/// Sentences of the report.
const TOLD_MAX: usize = 100;
