//! Paged collections: a large one is a root and leaves, so that a command reads and changes the leaf of its element alone.
//!
//! ```text
//! keyspace 1   key -> PAGED_HASH { object 0x..a7, 3 leaves, 90 elements }
//! its leaves   (object, 0) -> HASH { ... }     (object, 1) -> HASH { ... }     (object, 2) -> HASH { ... }
//! ```
//!
//! Leaves are values like any other, in a keyspace of the store that belongs to the database's and ends with it: logged, cleaned, evicted
//! from memory and recovered as keys are. What is done to an element changes its leaf and what the root counts, by one record.
//!
//! Which leaf has an element is linear hashing: the lowest bits of the element's keyed hash, one more for leaves that have been split. A
//! leaf's hash begins with the lowest byte of the object's number, which is the stripe of the key at which it was made: root and leaves have
//! one lock, until the key is renamed. The root is then in the stripe of its new key, and who reads or changes leaves locks both.
//!
//! Large lists, sorted sets and streams are found in their order, too: they have a counted tree ([`tree`](crate::tree)) in the same keyspace. A sorted set has
//! both: leaves by hash say which score a member has.
//!
//! Out of scope: who changes leaves, and who removes those of an object that is gone (`store`).

use smallvec::SmallVec;

use crate::tree::{NODE, TREE_BYTES, Tree};
use crate::varint;

/// A root as its key has it.
pub type RootBytes = SmallVec<[u8; ROOT_BYTES_MAX]>;

/// What a key has that is a paged collection.
///
/// ```text
/// 0 object u64 | 8 count u64 | 16 bytes u64 | 24 leaves u32 | 28 flags u32: bit 0 TIMED | [32 tree]
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// The number of the collection. Of those that are there no two have the same.
    pub object: u64,
    /// Elements.
    pub count: u64,
    /// Bytes of all leaves that are found by hash.
    pub bytes: u64,
    /// How many these are: from 1 to [`LEAVES_MAX`], and 0 in lists and streams.
    pub leaves: u32,
    /// Of a list, a sorted set or a stream.
    pub tree: Option<Tree>,
    /// Fields of the hash have deadlines, or had: one node more, [`KEY_NODE`], says at which key it is.
    pub is_timed: bool,
}

impl Root {
    /// The root in `value`.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (hashed, rest) = value.split_first_chunk::<HASHED_BYTES>()?;
        let (numbers, _) = hashed.as_chunks::<8>();
        let [object, count, bytes, last] = *<&[[u8; 8]; 4]>::try_from(numbers).ok()?;
        let [object, count, bytes, last] = [object, count, bytes, last].map(u64::from_le_bytes);
        let leaves = Some(last as u32).filter(|leaves| *leaves <= LEAVES_MAX)?;
        let is_timed = match last >> 32 {
            0 => false,
            TIMED => true,
            _ => return None,
        };
        let tree = if rest.is_empty() { None } else { Some(Tree::decode(rest)?) };
        let is_valid = (leaves > 0 || tree.is_some()) && !(is_timed && tree.is_some());
        is_valid.then_some(Self { object, count, bytes, leaves, tree, is_timed })
    }

    /// Its bytes.
    pub fn encode(&self) -> RootBytes {
        let mut out = [0; ROOT_BYTES_MAX];
        let (hashed, tree) = out.split_at_mut(HASHED_BYTES);
        let flags = if self.is_timed { TIMED << 32 } else { 0 };
        let numbers = [self.object, self.count, self.bytes, u64::from(self.leaves) | flags];
        for (to, number) in hashed.chunks_exact_mut(8).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        let mut len = HASHED_BYTES;
        if let Some(of_tree) = &self.tree {
            tree.copy_from_slice(&of_tree.encode());
            len += TREE_BYTES;
        }
        RootBytes::from_buf_and_len(out, len)
    }

    /// What it counts: `count | bytes | bytes of the tree`, each a varint; the last is 0 where there is no tree.
    pub fn totals(&self) -> SmallVec<[u8; TOTALS_BYTES_MAX]> {
        let mut out = SmallVec::new();
        let tree_bytes = self.tree.map_or(0, |tree| tree.bytes);
        for number in [self.count, self.bytes, tree_bytes] {
            out.extend_from_slice(&varint::encode(number));
        }
        out
    }

    /// The numbers of [`Root::totals`]; `None` when these bytes are not such numbers.
    pub fn take_totals(mut totals: &[u8]) -> Option<[u64; 3]> {
        let bytes = &mut totals;
        let numbers = [varint::take(bytes)?, varint::take(bytes)?, varint::take(bytes)?];
        bytes.is_empty().then_some(numbers)
    }

    /// The same root that counts so; `None` when these are no totals of it.
    pub fn with_totals(&self, totals: &[u8]) -> Option<Self> {
        let [count, bytes, tree_bytes] = Self::take_totals(totals)?;
        let tree = self.tree.map(|tree| Tree { bytes: tree_bytes, ..tree });
        (tree.is_some() || tree_bytes == 0).then_some(Self { count, bytes, tree, ..*self })
    }

    /// Whether `other` is the same root but for what it counts.
    pub fn is_same_but_for_totals(&self, other: &Self) -> bool {
        let tree =
            self.tree.map(|tree| Tree { bytes: other.tree.map_or(tree.bytes, |other| other.bytes), ..tree });
        Self { count: other.count, bytes: other.bytes, tree, ..*self } == *other
    }

    /// Whether all of it is in one leaf, of each structure that it has.
    pub fn has_one_leaf(&self) -> bool {
        self.leaves <= 1 && self.tree.is_none_or(|tree| tree.depth == 0)
    }

    /// Leaves and other nodes.
    pub fn nodes(&self) -> u64 {
        u64::from(self.leaves) + u64::from(self.numbered())
    }

    /// How many values there are beside those that are found by hash, numbered from [`NODE`] on.
    pub fn numbered(&self) -> u32 {
        self.tree.map_or(u32::from(self.is_timed), |tree| tree.nodes)
    }

    /// Bytes of all leaves, about.
    pub fn all_bytes(&self) -> u64 {
        self.bytes + self.tree.map_or(0, |tree| tree.bytes)
    }

    /// Which leaf has the element with this hash.
    pub fn leaf_of(&self, element: u128) -> u32 {
        leaf_of(element, self.leaves)
    }

    /// The leaf that has the elements at `place`, and the place where its share ends: elements are in the order of their bits reversed.
    pub fn leaf_at(&self, place: u64) -> (u32, u64) {
        let bits = (place as u32).reverse_bits();
        let leaf = leaf_of(u128::from(bits) << TAG_BITS, self.leaves);
        let level = self.leaves.ilog2();
        // what has been split, and what it was split into, have a share of half the size
        let is_split = leaf < self.next_to_split() || leaf >= 1 << level;
        let depth = level + u32::from(is_split);
        let begin = u64::from(leaf.reverse_bits());
        (leaf, begin + (PLACES >> depth))
    }

    /// The leaf that is split when there is one leaf more.
    pub fn next_to_split(&self) -> u32 {
        self.leaves - (1 << self.leaves.ilog2())
    }
}

/// The bits that say which leaf has the element with this hash: above its tag, by which the leaf finds it.
pub fn bits_of(element: u128) -> u32 {
    (element >> TAG_BITS) as u32
}

/// Which of `leaves` has the element with this hash.
pub fn leaf_of(element: u128, leaves: u32) -> u32 {
    let bits = bits_of(element);
    let half = (1 << leaves.ilog2()) - 1;
    let leaf = bits & (half << 1 | 1);
    if leaf < leaves { leaf } else { leaf & half }
}

/// The key of a leaf.
pub fn leaf_key(object: u64, leaf: u32) -> [u8; LEAF_KEY_BYTES] {
    let mut key = [0; LEAF_KEY_BYTES];
    key[..8].copy_from_slice(&object.to_le_bytes());
    key[8..].copy_from_slice(&leaf.to_le_bytes());
    key
}

/// The stripe that has the leaves of `object`: that of the key at which it was made.
pub fn stripe_of(object: u64) -> usize {
    (object & 0xff) as usize
}

/// The object of the leaf that has this key.
pub fn object_of(key: &[u8]) -> Option<u64> {
    key.first_chunk().map(|object| u64::from_le_bytes(*object))
}

/// Object and number of the leaf that has this key.
pub fn split_leaf_key(key: &[u8]) -> Option<(u64, u32)> {
    let (object, leaf) = key.split_first_chunk()?;
    Some((u64::from_le_bytes(*object), u32::from_le_bytes(leaf.try_into().ok()?)))
}

/// The node of a hash whose fields have deadlines that says at which key the hash is: who finds a leaf whose time has come has its object alone.
pub const KEY_NODE: u32 = NODE;
/// In the flags of a root.
const TIMED: u64 = 1;
/// Leaves of a collection, at most: more elements make them larger.
pub const LEAVES_MAX: u32 = 1 << 31;
/// Places of elements.
pub const PLACES: u64 = 1 << 32;
/// Of three varints.
const TOTALS_BYTES_MAX: usize = 30;
const TAG_BITS: u32 = 16;
/// Bytes of a root without a tree.
const HASHED_BYTES: usize = 32;
/// Bytes of the key of a leaf or node.
pub const LEAF_KEY_BYTES: usize = 12;
/// Bytes of a root, at most.
pub const ROOT_BYTES_MAX: usize = HASHED_BYTES + TREE_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    fn root_of(leaves: u32) -> Root {
        Root { object: 0, count: 0, bytes: 0, leaves, tree: None, is_timed: false }
    }

    /// Bits that look random: those of a product by an odd number, folded.
    fn hash_of(number: u32) -> u128 {
        let product = u128::from(number + 1).wrapping_mul(0x2d99_787a_1c9f_3f2b_9e37_79b9_7f4a_7c15);
        product ^ product >> 64
    }

    #[test]
    fn root_is_pinned_because_folders_depend_on_it() {
        let root = Root {
            object: 0x0102_0304_0506_07a7,
            count: 90,
            bytes: 5_000,
            leaves: 3,
            tree: None,
            is_timed: false,
        };
        let bytes = root.encode();
        let mut golden = b"\xa7\x07\x06\x05\x04\x03\x02\x01\x5a\0\0\0\0\0\0\0\x88\x13\0\0\0\0\0\0".to_vec();
        golden.extend_from_slice(b"\x03\0\0\0\0\0\0\0");
        assert_eq!(bytes[..], golden);
        assert_eq!(Root::decode(&bytes), Some(root));
        assert_eq!(Root::decode(&bytes[..31]), None);
        assert_eq!(Root::decode(&[0; HASHED_BYTES]), None, "no leaf");
        let timed = Root { is_timed: true, ..root };
        golden[28] = 1;
        assert_eq!((timed.encode().to_vec(), Root::decode(&golden)), (golden.clone(), Some(timed)));
        golden[28] = 2;
        assert_eq!(Root::decode(&golden), None, "an unknown flag");
        let tree = Tree { bytes: 70, nodes: 1, top: 0, free: u32::MAX, depth: 0 };
        let list = Root { leaves: 0, tree: Some(tree), ..root };
        assert_eq!(list.encode().len(), HASHED_BYTES + TREE_BYTES);
        assert_eq!(Root::decode(&list.encode()), Some(list));
        assert_eq!(Root::decode(&list.encode()[..55]), None);
    }

    #[test]
    fn leaves_follow_each_other_over_all_places() {
        for leaves in 1..70 {
            let root = root_of(leaves);
            let (mut at, mut met) = (0, Vec::new());
            while at < PLACES {
                let (leaf, end) = root.leaf_at(at);
                assert!(end > at && root.leaf_at(end - 1) == (leaf, end), "{leaves}");
                met.push((leaf, at, end));
                at = end;
            }
            assert_eq!(met.len(), leaves as usize);
            for i in 0..200_u32 {
                let hash = hash_of(i);
                let place = u64::from(bits_of(hash).reverse_bits());
                let (leaf, ..) =
                    met.iter().find(|(_, from, end)| (*from..*end).contains(&place)).expect("one");
                assert_eq!(*leaf, root.leaf_of(hash));
            }
        }
    }

    #[test]
    fn one_leaf_more_takes_elements_from_one_leaf_alone() {
        let hashes: Vec<u128> = (0..4_000_u32).map(hash_of).collect();
        for leaves in 1..70 {
            let split = root_of(leaves).next_to_split();
            for hash in &hashes {
                let (before, after) = (leaf_of(*hash, leaves), leaf_of(*hash, leaves + 1));
                assert!(before < leaves);
                assert!(after == before || (before, after) == (split, leaves), "{leaves} {before} {after}");
            }
            assert!(hashes.iter().any(|hash| leaf_of(*hash, leaves + 1) == leaves), "{leaves}");
        }
    }
}
