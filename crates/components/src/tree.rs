//! An ordered set of keys in a bolt's state: a B+ tree whose nodes are fields of a hash. So it may be larger than memory, and a change costs log n.
//!
//! Field `0` has the root, others have the numbers that field `next` counts. A node (little-endian):
//! | level u8 | for each child, or for each key of a leaf (level 0): id u64, size u32, key |
//!
//! The key of a child is a lower bound of its keys; the first one's is empty. In a leaf ids are 0.
//!
//! Invariants
//!   1. No node but the root is empty. One that has few keys stays: the height is that of the largest number of keys since the tree was empty.
//!   2. The level of a child is below that of its node. What others have made of the nodes is refused where it is not: a node that is its own child
//!      would have no end.
//!   3. All that a change needs is read before the draft is changed, or the draft is given up.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use topology::changes::StateKey;
use topology::component::Fault;

use crate::draft::Draft;

/// A set of keys in a hash.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    hash: Bytes,
}

#[derive(Debug, Default)]
struct Node {
    level: u8,
    entries: Vec<(Bytes, u64)>,
}

/// Where a node is, and below which level.
#[derive(Clone, Copy, Debug)]
struct Place {
    id: u64,
    below: u8,
}

impl Tree {
    /// The set in the hash of this key.
    pub(crate) fn new(hash: impl Into<Bytes>) -> Self {
        Self { hash: hash.into() }
    }

    /// Puts a key in.
    pub(crate) fn insert(&self, draft: &mut Draft<'_, '_>, key: Bytes) -> Result<(), Fault> {
        let Some((bound, right)) = self.insert_in(draft, TOP, key)? else { return Ok(()) };
        let left = self.load(draft, TOP)?;
        let id = self.next(draft)?;
        let root = Node { level: left.level + 1, entries: vec![(Bytes::new(), id), (bound, right)] };
        self.store(draft, id, &left);
        self.store(draft, ROOT, &root);
        Ok(())
    }

    /// Takes a key out.
    pub(crate) fn remove(&self, draft: &mut Draft<'_, '_>, key: &[u8]) -> Result<(), Fault> {
        self.remove_in(draft, TOP, key).map(drop)
    }

    /// Takes the least keys out that are below `bound`, at most `keys_max`.
    pub(crate) fn take_below(
        &self,
        draft: &mut Draft<'_, '_>,
        bound: &[u8],
        keys_max: usize,
    ) -> Result<Vec<Bytes>, Fault> {
        let mut taken = Vec::new();
        self.take_in(draft, TOP, bound, keys_max, &mut taken)?;
        Ok(taken)
    }

    /// The least key.
    pub(crate) fn first(&self, draft: &mut Draft<'_, '_>) -> Result<Option<Bytes>, Fault> {
        let mut node = self.load(draft, TOP)?;
        while node.level > 0 {
            node = self.load(draft, node.child(0))?;
        }
        Ok(node.entries.into_iter().next().map(|(key, _)| key))
    }

    /// The largest key below `bound`.
    pub(crate) fn last_below(&self, draft: &mut Draft<'_, '_>, bound: &[u8]) -> Result<Option<Bytes>, Fault> {
        self.last_in(draft, TOP, bound)
    }

    /// If the node had to be split: the right half's first key and its id.
    fn insert_in(
        &self,
        draft: &mut Draft<'_, '_>,
        place: Place,
        key: Bytes,
    ) -> Result<Option<(Bytes, u64)>, Fault> {
        let mut node = self.load(draft, place)?;
        if node.level > 0 {
            let at = node.child_of(&key);
            let Some(right) = self.insert_in(draft, node.child(at), key)? else { return Ok(None) };
            node.entries.insert(at + 1, right);
        } else {
            let Err(at) = node.entries.binary_search_by(|(of, _)| of.cmp(&key)) else { return Ok(None) };
            node.entries.insert(at, (key, 0));
        }
        let split = node.is_large().then(|| node.split());
        self.store(draft, place.id, &node);
        let Some((bound, right)) = split else { return Ok(None) };
        let id = self.next(draft)?;
        self.store(draft, id, &right);
        Ok(Some((bound, id)))
    }

    /// Whether the node is empty then, and gone.
    fn remove_in(&self, draft: &mut Draft<'_, '_>, place: Place, key: &[u8]) -> Result<bool, Fault> {
        let mut node = self.load(draft, place)?;
        if node.level > 0 {
            let at = node.child_of(key);
            if !self.remove_in(draft, node.child(at), key)? {
                return Ok(false);
            }
            node.remove_child(at);
        } else {
            let Ok(at) = node.entries.binary_search_by(|(of, _)| of[..].cmp(key)) else { return Ok(false) };
            node.entries.remove(at);
        }
        Ok(self.store(draft, place.id, &node))
    }

    /// Whether the node is empty then, and gone.
    fn take_in(
        &self,
        draft: &mut Draft<'_, '_>,
        place: Place,
        bound: &[u8],
        keys_max: usize,
        taken: &mut Vec<Bytes>,
    ) -> Result<bool, Fault> {
        let mut node = self.load(draft, place)?;
        if node.level > 0 {
            let before = node.entries.len();
            while !node.entries.is_empty() && self.take_in(draft, node.child(0), bound, keys_max, taken)? {
                node.remove_child(0);
            }
            if node.entries.len() == before {
                return Ok(false);
            }
        } else {
            let below = node.entries.partition_point(|(key, _)| key[..] < *bound);
            let count = below.min(keys_max - taken.len());
            if count == 0 {
                return Ok(false);
            }
            taken.extend(node.entries.drain(..count).map(|(key, _)| key));
        }
        Ok(self.store(draft, place.id, &node))
    }

    fn last_in(&self, draft: &mut Draft<'_, '_>, place: Place, bound: &[u8]) -> Result<Option<Bytes>, Fault> {
        let node = self.load(draft, place)?;
        if node.level == 0 {
            let below = node.entries.partition_point(|(key, _)| key[..] < *bound);
            return Ok(below.checked_sub(1).map(|at| node.entries[at].0.clone()));
        }
        // A child may have none below it; then the one before it has, as no child is empty.
        for at in (0..=node.child_of(bound)).rev() {
            if let Some(key) = self.last_in(draft, node.child(at), bound)? {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }

    fn place(&self, id: u64) -> StateKey {
        StateKey::of_field(self.hash.clone(), id.to_string())
    }

    fn load(&self, draft: &mut Draft<'_, '_>, Place { id, below }: Place) -> Result<Node, Fault> {
        let damaged = || {
            let hash = String::from_utf8_lossy(&self.hash);
            Fault::new(format!(
                "field `{id}` of the hash `{hash}` is no node of a tree: was it changed by others?"
            ))
        };
        match draft.get(&self.place(id))? {
            Some(bytes) => Node::decode(bytes).filter(|node| node.level < below).ok_or_else(damaged),
            None if id == ROOT => Ok(Node::default()),
            None => Err(damaged()),
        }
    }

    /// Keeps a node, unless it is empty; whether that is so.
    fn store(&self, draft: &mut Draft<'_, '_>, id: u64, node: &Node) -> bool {
        let is_empty = node.entries.is_empty();
        draft.set(self.place(id), (!is_empty).then(|| node.encode()));
        is_empty
    }

    /// A number that no node has had.
    fn next(&self, draft: &mut Draft<'_, '_>) -> Result<u64, Fault> {
        let place = StateKey::of_field(self.hash.clone(), "next");
        let next = match draft.get(&place)? {
            Some(text) => std::str::from_utf8(&text)?.parse()?,
            None => ROOT + 1,
        };
        draft.set(place, Some((next + 1).to_string().into()));
        Ok(next)
    }
}

impl Node {
    /// Where the child number `at` is.
    fn child(&self, at: usize) -> Place {
        Place { id: self.entries[at].1, below: self.level }
    }

    /// The place of the child that a key belongs to.
    fn child_of(&self, key: &[u8]) -> usize {
        self.entries.partition_point(|(bound, _)| bound[..] <= *key).saturating_sub(1)
    }

    fn remove_child(&mut self, at: usize) {
        self.entries.remove(at);
        if let Some((bound, _)) = self.entries.first_mut() {
            *bound = Bytes::new();
        }
    }

    fn is_large(&self) -> bool {
        let size = || self.entries.iter().map(|(key, _)| key.len()).sum::<usize>();
        self.entries.len() > ENTRIES_MAX || self.entries.len() > 3 && size() > KEYS_BYTES_MAX
    }

    /// Takes the right half off: its first key, and the half.
    fn split(&mut self) -> (Bytes, Self) {
        let mut entries = self.entries.split_off(self.entries.len() / 2);
        let bound = entries[0].0.clone();
        if self.level > 0 {
            entries[0].0 = Bytes::new();
        }
        (bound, Self { level: self.level, entries })
    }

    fn encode(&self) -> Bytes {
        let mut bytes = BytesMut::new();
        bytes.put_u8(self.level);
        for (key, id) in &self.entries {
            bytes.put_u64_le(*id);
            bytes.put_u32_le(key.len() as u32);
            bytes.put_slice(key);
        }
        bytes.freeze()
    }

    /// `None`: it is none.
    fn decode(mut bytes: Bytes) -> Option<Self> {
        let level = bytes.try_get_u8().ok()?;
        let mut entries = Vec::new();
        while bytes.has_remaining() {
            let (id, size) = (bytes.try_get_u64_le().ok()?, bytes.try_get_u32_le().ok()? as usize);
            if size > bytes.len() {
                return None;
            }
            entries.push((bytes.split_to(size), id));
        }
        (!entries.is_empty()).then_some(Self { level, entries })
    }
}

const ROOT: u64 = 0;
/// Keys or children of a node.
const ENTRIES_MAX: usize = 64;
/// Bytes of a node's keys, if it has more than three.
const KEYS_BYTES_MAX: usize = 16 << 10;
const LEVEL_MAX: u8 = 64;
/// The root's.
const TOP: Place = Place { id: ROOT, below: LEVEL_MAX + 1 };

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use topology::random::Random;

    use super::*;
    use crate::testing::{Record, draft};

    #[test]
    fn it_is_an_ordered_set_whatever_is_done_and_an_empty_one_has_no_nodes() {
        for seed in 1..=20 {
            let mut random = Random::new(seed);
            let (tree, mut record, mut model) = (Tree::new("t"), Record::default(), BTreeSet::new());
            // Keys of some length now and then: nodes are split by their bytes, too.
            let long = seed % 5 == 0;
            let mut key = move || {
                let number = random.below(3_000);
                let text =
                    format!("{number:05}").repeat(if long && number.is_multiple_of(7) { 2_000 } else { 1 });
                (Bytes::from(text), random.below(100))
            };
            for step in 0..4_000 {
                let (key, what) = key();
                let grows = step < 2_000;
                match what {
                    0..40 => {
                        draft(&mut record, |draft| tree.insert(draft, key.clone()));
                        model.insert(key);
                    }
                    40..70 => {
                        draft(&mut record, |draft| tree.remove(draft, &key));
                        model.remove(&key);
                    }
                    70..75 if !grows => {
                        let taken = draft(&mut record, |draft| tree.take_below(draft, &key, 10));
                        let expected: Vec<Bytes> = model.range(..key).take(10).cloned().collect();
                        expected.iter().for_each(|key| assert!(model.remove(key)));
                        assert_eq!(taken, expected, "seed {seed}, step {step}");
                    }
                    75..85 => {
                        let first = draft(&mut record, |draft| tree.first(draft));
                        assert_eq!(first.as_ref(), model.first(), "seed {seed}, step {step}");
                    }
                    _ => {
                        let last = draft(&mut record, |draft| tree.last_below(draft, &key));
                        assert_eq!(last.as_ref(), model.range(..key).next_back(), "seed {seed}, step {step}");
                    }
                }
            }
            let all = draft(&mut record, |draft| tree.take_below(draft, b"~", usize::MAX));
            assert_eq!(all, model.into_iter().collect::<Vec<_>>(), "seed {seed}");
            let left: Vec<_> = record.values.keys().map(|place| place.field.clone()).collect();
            assert_eq!(left, [Some(Bytes::from("next"))], "seed {seed}");
        }
    }

    /// The search for its least key had no end.
    #[test]
    fn node_that_is_its_own_child_is_named() {
        let mut record = Record::default();
        let node = Node { level: 1, entries: vec![(Bytes::new(), ROOT)] };
        record.values.insert(StateKey::of_field("t", "0"), node.encode());
        let tree = Tree::new("t");
        let is_named = |error: Fault| error.error().starts_with("field `0` of the hash `t` is no node");
        assert!(crate::testing::try_draft(&mut record, |draft| tree.first(draft)).is_err_and(is_named));
        let inserted = crate::testing::try_draft(&mut record, |draft| tree.insert(draft, "k".into()));
        assert!(inserted.is_err_and(is_named));
    }

    #[test]
    fn what_is_no_node_is_named() {
        let mut record = Record::default();
        record.values.insert(StateKey::of_field("t", "0"), "x".into());
        let error = crate::testing::try_draft(&mut record, |draft| Tree::new("t").first(draft));
        assert!(error.expect_err("no node").error().starts_with("field `0` of the hash `t` is no node"));
    }
}
