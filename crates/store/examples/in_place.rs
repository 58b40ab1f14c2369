//! The least that HSET of a large hash costs where a hot leaf is changed in place: the prototype behind docs/adr/0061-changes-in-place.md.
//!
//! ```text
//! in_place new|old|undo [COUNT]
//!
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect='*measured*' in_place new COUNT
//! ```
//!
//! Hash of key and element (SipHash-1-3, 128 bits), the leaf by linear hashing, a packed leaf of about 2 KiB with slack, and one record of the
//! operation; `undo` keeps what the change replaces as well. There are no locks, no expiry, no memory budget, no watches and no journal.

use std::collections::VecDeque;
use std::hash::Hasher;
use std::hint::black_box;

use siphasher::sip128::{Hasher128, SipHasher13};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let count: u64 = args.get(2).map_or(20_000, |count| count.parse().expect("COUNT"));
    let mut hash = Hash::default();
    (0..ELEMENTS).for_each(|n| hash.put(&element_of(n), &[b'v'; 60]));
    hash.keeps_undo = args[1] == "undo";
    let first = if args[1] == "new" { ELEMENTS } else { 0 };
    measured(&mut hash, first, count);
    let bytes: usize = hash.leaves.iter().map(|leaf| leaf.bytes.capacity()).sum();
    println!(
        "{} leaves, {} bytes an element, {} undone",
        hash.leaves.len(),
        bytes / hash.count,
        hash.take_back()
    );
}

#[inline(never)]
fn measured(hash: &mut Hash, first: u64, count: u64) {
    (first..first + count).for_each(|n| hash.put(black_box(&element_of(n)), &[b'w'; 60]));
}

#[derive(Default)]
struct Hash {
    leaves: Vec<Leaf>,
    count: usize,
    bytes: usize,
    /// What would go to the journal.
    log: Vec<u8>,
    keeps_undo: bool,
    /// What changes replaced, oldest first: the leaf, and the entry as it was (`None`: there was none).
    undo: VecDeque<(u32, Option<Box<[u8]>>)>,
}

/// As `packed` has it: count u32, 4 bytes, tags u16 x count, offsets u16 x count, entries of key_len u8, value_len u8, key, value.
#[derive(Clone, Default)]
struct Leaf {
    bytes: Vec<u8>,
    count: usize,
}

impl Hash {
    fn put(&mut self, element: &[u8], value: &[u8]) {
        // the key is hashed to find the root, once for a command
        black_box(hash_of(b"hash:00000000001"));
        let hash = hash_of(element);
        if self.leaves.is_empty() {
            self.leaves.push(Leaf::new());
        }
        let number = leaf_of(hash, self.leaves.len());
        let leaf = &mut self.leaves[number];
        let before = leaf.bytes.len();
        let old = leaf.put(hash as u16, element, value, self.keeps_undo);
        self.bytes += leaf.bytes.len() - before;
        self.count += usize::from(old.is_none());
        if self.keeps_undo {
            self.undo.push_back((number as u32, old.flatten()));
            if self.undo.len() > UNCOMMITTED_MAX {
                self.undo.pop_front();
            }
        }
        self.record(number, element, value);
        if self.leaves.len() < self.bytes * 4 / 5 / LEAF_BYTES
            && self.leaves[number].bytes.len() > LEAF_BYTES * 3 / 2
        {
            self.split();
        }
    }

    /// One record: a header of 40 bytes, and the operation.
    fn record(&mut self, number: usize, element: &[u8], value: &[u8]) {
        if self.log.len() > 1 << 20 {
            self.log.clear();
        }
        self.log.extend_from_slice(&[0; 32]);
        self.log.extend_from_slice(&(number as u64).to_le_bytes());
        self.log.extend_from_slice(&[1, element.len() as u8, value.len() as u8]);
        self.log.extend_from_slice(element);
        self.log.extend_from_slice(value);
    }

    fn split(&mut self) {
        let leaves = self.leaves.len();
        let from = leaves - (1 << leaves.ilog2());
        let whole = std::mem::replace(&mut self.leaves[from], Leaf::new());
        self.leaves.push(Leaf::new());
        self.bytes -= whole.bytes.len();
        for at in 0..whole.count {
            let (element, value) = whole.entry(at);
            let number = leaf_of(hash_of(element), leaves + 1);
            self.leaves[number].put(whole.tag(at), element, value, false);
        }
        self.bytes += self.leaves[from].bytes.len() + self.leaves[leaves].bytes.len();
    }

    /// Takes back what was kept, newest first; returns how much.
    fn take_back(&mut self) -> usize {
        let mut undone = 0;
        while let Some((number, old)) = self.undo.pop_back() {
            if let Some(old) = old {
                let (element, value) = split_entry(&old);
                self.leaves[number as usize].put(hash_of(element) as u16, element, value, false);
            }
            undone += 1;
        }
        undone
    }
}

impl Leaf {
    fn new() -> Self {
        let mut bytes = Vec::with_capacity(LEAF_BYTES + SLACK_BYTES);
        bytes.extend_from_slice(&[0; 8]);
        Self { bytes, count: 0 }
    }

    fn tag(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[8 + 2 * at], self.bytes[9 + 2 * at]])
    }

    fn begin(&self, at: usize) -> usize {
        let from = 8 + 2 * (self.count + at);
        8 + 4 * self.count + usize::from(u16::from_le_bytes([self.bytes[from], self.bytes[from + 1]]))
    }

    fn entry(&self, at: usize) -> (&[u8], &[u8]) {
        split_entry(&self.bytes[self.begin(at)..])
    }

    /// Lets `element` have `value`; returns `None` if it was not there, and inside what it was, if that `is_kept`.
    fn put(&mut self, tag: u16, element: &[u8], value: &[u8], is_kept: bool) -> Option<Option<Box<[u8]>>> {
        let (tags, _) = self.bytes[8..8 + 2 * self.count].as_chunks::<2>();
        let mut equal = (0..tags.len()).filter(|at| tags[*at] == tag.to_le_bytes());
        if let Some(at) = equal.find(|at| self.entry(*at).0 == element) {
            let (from, (key, old)) = (self.begin(at), self.entry(at));
            let whole = 2 + key.len() + old.len();
            let kept = is_kept.then(|| Box::from(&self.bytes[from..from + whole]));
            // values of other lengths would move what follows
            assert_eq!(old.len(), value.len(), "the prototype keeps lengths");
            self.bytes[from + whole - value.len()..from + whole].copy_from_slice(value);
            return Some(kept);
        }
        let (len, offset) = (self.bytes.len(), self.bytes.len() - 8 - 4 * self.count);
        self.bytes.resize(len + 4, 0);
        self.bytes.copy_within(8 + 4 * self.count..len, 12 + 4 * self.count);
        self.bytes.copy_within(8 + 2 * self.count..8 + 4 * self.count, 10 + 2 * self.count);
        self.bytes[8 + 2 * self.count..10 + 2 * self.count].copy_from_slice(&tag.to_le_bytes());
        self.bytes[10 + 4 * self.count..12 + 4 * self.count].copy_from_slice(&(offset as u16).to_le_bytes());
        self.count += 1;
        self.bytes[..4].copy_from_slice(&(self.count as u32).to_le_bytes());
        self.bytes.extend_from_slice(&[element.len() as u8, value.len() as u8]);
        self.bytes.extend_from_slice(element);
        self.bytes.extend_from_slice(value);
        None
    }
}

fn split_entry(bytes: &[u8]) -> (&[u8], &[u8]) {
    let (key_len, value_len) = (usize::from(bytes[0]), usize::from(bytes[1]));
    (&bytes[2..2 + key_len], &bytes[2 + key_len..2 + key_len + value_len])
}

fn hash_of(bytes: &[u8]) -> u128 {
    let mut hasher = SipHasher13::new_with_key(&[7; 16]);
    hasher.write(bytes);
    hasher.finish128().as_u128()
}

fn leaf_of(hash: u128, leaves: usize) -> usize {
    let (bits, half) = ((hash >> 16) as usize & 0xffff_ffff, (1 << leaves.ilog2()) - 1);
    let leaf = bits & (half << 1 | 1);
    if leaf < leaves { leaf } else { leaf & half }
}

fn element_of(mut n: u64) -> [u8; 14] {
    let mut name = *b"el:00000000000";
    for byte in name.iter_mut().rev().take(10) {
        *byte = b'0' + (n % 10) as u8;
        n /= 10;
    }
    name
}

/// Elements that are there before anything is measured.
const ELEMENTS: u64 = 100_000;
const LEAF_BYTES: usize = 2_048;
const SLACK_BYTES: usize = 512;
/// Changes that may have to be taken back.
const UNCOMMITTED_MAX: usize = 1_024;
