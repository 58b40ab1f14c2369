//! Replay, moved copies, snapshots and what they leave in the index.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::hash::{KeyHasher, STRIPES};
use crate::testlog::at;

const KEYSPACE: Keyspace = Keyspace(1);

struct Bench {
    index: Index,
    hasher: KeyHasher,
}

impl Bench {
    fn new() -> Self {
        Self { index: Index::new(2), hasher: KeyHasher::new(&[1; 16], 128) }
    }

    fn hash(&self, key: &[u8]) -> KeyHash {
        self.hasher.hash(key)
    }

    fn replay(&self, key: &[u8], kind: u8, address: u64, seq: u64, moved: bool) -> Replay {
        let replayed = Replayed { seq: Seq(seq), moved, ..self.replayed(key, kind, address) };
        self.index.replay(&replayed, &mut |_| panic!("no key is SHARED")).expect("reads nothing")
    }

    /// A record of `key` at `address` whose seq is that, too.
    fn replayed(&self, key: &[u8], kind: u8, address: u64) -> Replayed {
        Replayed {
            keyspace: KEYSPACE,
            hash: self.hash(key),
            address: at(address),
            seq: Seq(address),
            since: Seq::NONE,
            kind,
            expiry: None,
            record_bytes: 64,
            moved: false,
        }
    }

    fn owned(&self, key: &[u8], address: u64) -> Option<Owned> {
        self.index.owns(KEYSPACE, self.hash(key), at(address))
    }
}

#[test]
fn higher_address_wins_whatever_the_order() {
    let bench = Bench::new();
    assert!(bench.replay(b"k", record::STRING, 10, 1, false).live);
    assert_eq!(bench.replay(b"k", record::STRING, 20, 2, false).dead_base, Some(at(10)));
    assert_eq!(bench.replay(b"k", record::STRING, 15, 3, true), Replay::default());
    assert!(bench.replay(b"k", record::STRING, 20, 2, false).live, "the same record again");
    assert_eq!(bench.replay(b"k", record::REMOVED, 12, 4, false), Replay::default());
    assert_eq!(bench.replay(b"k", record::REMOVED, 30, 5, false).dead_base, Some(at(20)));
    assert_eq!(bench.owned(b"k", 20), None);
    assert_eq!(bench.replay(b"k", record::STRING, 40, 2, true), Replay::default(), "a copy never creates");
}

#[test]
fn copy_of_a_base_keeps_only_later_deltas() {
    let bench = Bench::new();
    bench.replay(b"k", record::STRING, 10, 1, false);
    bench.replay(b"k", record::EXPIRY, 11, 2, false);
    bench.replay(b"k", record::EXPIRY, 12, 3, false);
    let replay = bench.replay(b"k", record::STRING, 13, 2, true);
    assert_eq!(replay.dead_deltas.iter().map(|delta| delta.address).collect::<Vec<_>>(), [at(11)]);
    let owned = bench.owned(b"k", 12).expect("a delta is owned");
    assert_eq!((owned.base, owned.deltas.len()), (at(13), 1));
    let replay = bench.replay(b"k", record::STRING, 14, 4, false);
    assert_eq!((replay.dead_base, replay.dead_deltas.len()), (Some(at(13)), 1), "a new value outlives them");
    assert_eq!(bench.owned(b"k", 14).expect("live").deltas, []);
}

#[test]
fn turn_moves_base_and_deltas_unless_the_key_moved_on() {
    let bench = Bench::new();
    bench.replay(b"k", record::STRING, 10, 1, false);
    bench.replay(b"k", record::EXPIRY, 11, 2, false);
    bench.replay(b"k", record::EXPIRY, 12, 3, false);
    let hash = bench.hash(b"k");
    assert_eq!(bench.index.turn(KEYSPACE, hash, at(12), at(40), 64, Seq(3)), Some(vec![]), "a delta alone");
    let dropped = bench.index.turn(KEYSPACE, hash, at(10), at(50), 64, Seq(2)).expect("still there");
    assert_eq!(dropped.iter().map(|delta| delta.address).collect::<Vec<_>>(), [at(11)]);
    let owned = bench.owned(b"k", 50).expect("turned");
    assert_eq!(owned.deltas.iter().map(|delta| delta.address).collect::<Vec<_>>(), [at(40)]);
    assert_eq!(bench.index.turn(KEYSPACE, hash, at(10), at(60), 64, Seq(9)), None, "gone");
}

#[test]
fn copy_is_appended_only_while_the_key_is_as_it_was() {
    let bench = Bench::new();
    bench.replay(b"k", record::STRING, 10, 1, false);
    let owned = bench.owned(b"k", 10).expect("live");
    assert_eq!(bench.index.append_if(KEYSPACE, bench.hash(b"k"), &owned, || at(70)), Some(at(70)));
    bench.replay(b"k", record::EXPIRY, 11, 2, false);
    let changed = bench.index.append_if(KEYSPACE, bench.hash(b"k"), &owned, || panic!("changed"));
    assert_eq!(changed, None);
}

#[test]
fn shared_records_are_told_apart_by_their_keys() {
    let bench = Bench::new();
    let replayed = |address, kind| bench.replayed(b"same bits", kind, address);
    let other = &mut |_| Ok(false);
    bench.index.replay(&replayed(10, record::STRING), other).expect("reads");
    let second = bench.index.replay(&replayed(20, record::STRING | record::SHARED), other).expect("reads");
    assert_eq!((second.live, second.dead_base), (true, None));
    let same = &mut |address| Ok(address == at(10));
    let removed = bench.index.replay(&replayed(30, record::REMOVED | record::SHARED), same).expect("reads");
    assert_eq!(removed.dead_base, Some(at(10)));
    assert!(bench.owned(b"same bits", 20).is_some());
}

/// Found by the model: keys 2 and 0 have equal bits. A checkpoint captured key 2 as it was written last, when key 0 was
/// dead; replay brought key 0 back, because its removal was taken for one of key 2, an old one.
#[test]
fn removal_finds_the_older_slot_and_not_a_younger_one_of_equal_bits() {
    let bench = Bench::new();
    let hash = bench.hash(b"same bits");
    let slot = LoadedSlot { hash, address: at(50), shared: false, deltas: &[] };
    bench.index.load_slots(KEYSPACE, hash.stripe(), std::iter::once(slot));
    let replayed = |address, kind| bench.replayed(b"same bits", kind, address);
    let other = &mut |_| Ok(false);
    let set = bench.index.replay(&replayed(20, record::STRING | record::SHARED), other).expect("reads");
    assert!(set.live, "key 0 is another one than key 2");
    let same = &mut |address| Ok(address == at(20));
    let removed = bench.index.replay(&replayed(40, record::REMOVED), same).expect("reads");
    assert_eq!(removed.dead_base, Some(at(20)));
    assert_eq!(bench.owned(b"same bits", 50).map(|owned| owned.base), Some(at(50)), "key 2 stays");
}

/// Housekeeping read the mapping before it took a lock. While SWAPDB wrote it, a keyspace was in neither place: cleaning
/// took a live record for a dead one, and a checkpoint left keys out.
#[test]
fn swapped_databases_never_look_dead_to_housekeeping() {
    const DATABASES: u16 = 100;
    let bench = Bench { index: Index::new(DATABASES), ..Bench::new() };
    bench.replay(b"k", record::STRING, 10, 10, false);
    let (hash, done) = (bench.hash(b"k"), AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for seq in 0..4_000 {
                let stripes: Vec<_> = (0..STRIPES).map(|number| bench.index.lock(number)).collect();
                let mut mapping = bench.index.mapping();
                mapping.swap(0, usize::from(DATABASES) - 1);
                bench.index.set_mapping(&mapping, Keyspace::NONE, Seq(seq));
                drop(stripes);
            }
            done.store(true, Ordering::Release);
        });
        let (mut lost, mut left_out) = (0, 0);
        while !done.load(Ordering::Acquire) {
            lost += u32::from(bench.owned(b"k", 10).is_none());
            let mut slots = 0;
            bench.index.snapshot_slice(hash.stripe(), SnapshotAt::START, 100, &mut |_| slots += 1);
            left_out += 1 - slots;
        }
        assert_eq!((lost, left_out), (0, 0), "lost to cleaning, left out of a checkpoint");
    });
}

/// What a keyspace's deadlines and deltas take was not counted at a start where the keyspace turned out to be flushed, and
/// was taken off all the same when it was freed: the limit of memory came later than it was set.
#[test]
fn keyspace_that_is_dead_at_the_end_of_recovery_takes_no_memory_once_it_is_freed() {
    let bench = Bench::new();
    for i in 0..100_u64 {
        let hash = bench.hash(&i.to_le_bytes());
        bench.replay(&i.to_le_bytes(), record::STRING, i * 10 + 1, i * 10 + 1, false);
        bench.replay(&i.to_le_bytes(), record::EXPIRY, i * 10 + 2, i * 10 + 2, false);
        bench.index.load_expiries(KEYSPACE, hash.stripe(), std::iter::once((hash, Deadline::of(5))));
    }
    bench.index.set_mapping(&[Keyspace(7), Keyspace(8)], Keyspace(9), Seq(2_000));
    bench.index.finish();
    while bench.index.take_deferred().is_some() {}
    assert_eq!(bench.index.memory_bytes.load(Ordering::Relaxed), 0);
}

#[test]
fn snapshot_in_slices_of_any_size_loads_into_an_equal_index() {
    let bench = Bench::new();
    for i in 0..2_000_u64 {
        bench.replay(&i.to_le_bytes(), record::STRING, i * 10 + 1, i * 10 + 1, false);
        if i % 3 == 0 {
            bench.replay(&i.to_le_bytes(), record::EXPIRY, i * 10 + 2, i * 10 + 2, false);
        }
        let (hash, expiry) = (bench.hash(&i.to_le_bytes()), Deadline::of(1_000 + i % 5));
        bench.index.load_expiries(KEYSPACE, hash.stripe(), std::iter::once((hash, expiry)));
    }
    let take = |index: &Index, budget| {
        let (mut slots, mut expiries) = (Vec::new(), Vec::new());
        for number in 0..STRIPES {
            let mut next = Some(SnapshotAt::START);
            while let Some(from) = next {
                next = index.snapshot_slice(number, from, budget, &mut |item| match item {
                    SnapshotItem::Slot { keyspace, hash, address, shared, deltas } => {
                        slots.push((keyspace, hash, address, shared, deltas.to_vec()));
                    }
                    SnapshotItem::Expires { keyspace, hash, expiry } => {
                        expiries.push((keyspace, hash, expiry));
                    }
                });
            }
        }
        slots.sort_by_key(|slot| slot.2);
        (slots, expiries)
    };
    let whole = take(&bench.index, usize::MAX);
    assert_eq!((whole.0.len(), whole.1.len()), (2_000, 2_000));
    assert_eq!(take(&bench.index, 1), whole);
    let loaded = Index::new(2);
    for &(keyspace, hash, address, shared, ref deltas) in &whole.0 {
        let slot = LoadedSlot { hash, address, shared, deltas };
        loaded.load_slots(keyspace, hash.stripe(), std::iter::once(slot));
    }
    for &(keyspace, hash, expiry) in &whole.1 {
        loaded.load_expiries(keyspace, hash.stripe(), std::iter::once((hash, Some(expiry))));
    }
    loaded.finish();
    loaded.check();
    assert_eq!(take(&loaded, 7), whole);
}
