//! Commands on many elements of a large collection that is on disk alone: what they need is read in a few rounds, since a command that
//! has waited a hundred times is answered with an error.

mod reading;

use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};

use store::{Access, KeyRef, ListChange, Prepared, Scope, Stop, Store, ValueKind};
use vfs::SimDisk;

use reading::KEY;

/// Rounds of reading that a change may take: each level of a tree is one, and a few more for what is put together.
const ROUNDS_MAX: usize = 25;

fn open(disk: &SimDisk) -> Arc<Store> {
    reading::open(disk, 256)
}

/// Runs `change` until all that it needs is there, and commits it; returns how often something was read.
fn rounds(store: &Arc<Store>, change: impl FnMut(&mut Access<'_>) -> Result<(), Stop>) -> usize {
    reading::run(store, false, change).1
}

/// A folder with what `fill` makes of it, opened anew: nothing but the index is in memory.
fn cold(fill: impl Fn(&Arc<Store>)) -> (SimDisk, Arc<Store>) {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    fill(&store);
    store.close();
    let disk = disk.process_death();
    let store = open(&disk);
    (disk, store)
}

fn members(numbers: impl Iterator<Item = u64>) -> Vec<Vec<u8>> {
    numbers.map(|number| format!("member-{number:06}").into_bytes()).collect()
}

/// Lets members have their places in a sorted set, or fields of a hash this value; without one they are removed.
fn change(store: &Arc<Store>, kind: ValueKind, members: &[Vec<u8>], value: Option<&[u8]>) -> usize {
    rounds(store, |access| {
        let elements = members.iter().map(|member| &member[..]);
        if kind == ValueKind::SortedSet {
            let score = |_, at: usize| Ok::<_, Infallible>(value.map(|value| (at + value.len()) as f64));
            let Ok(()) = access.rescore(0, KEY, elements, score)?.expect("of this type");
            return Ok(());
        }
        let change = |edit: &mut store::Edit<'_>, tag, at: usize| match value {
            Some(value) => _ = edit.put(tag, &members[at], value),
            None => _ = edit.delete(tag, &members[at]),
        };
        access.edit_each(0, KEY, kind, elements, change)?.expect("of this type");
        Ok(())
    })
}

fn len(store: &Arc<Store>, kind: ValueKind) -> u64 {
    let mut len = 0;
    rounds(store, |access| {
        len = access.count(0, KEY, kind)?.expect("of this type");
        Ok(())
    });
    len
}

#[test]
fn members_that_lie_far_apart_are_removed_in_a_few_rounds() {
    for kind in [ValueKind::SortedSet, ValueKind::Hash] {
        let all = members(0..20_000);
        let (_disk, store) = cold(|store| _ = change(store, kind, &all, Some(b"value")));
        // leaves that become small, beside others that nobody needs
        let some = members((0..20_000).filter(|number| number / 12 % 6 == 0));
        let rounds = change(&store, kind, &some, None);
        assert!(rounds <= ROUNDS_MAX, "{kind:?}: {rounds} rounds");
        assert_eq!(len(&store, kind), (all.len() - some.len()) as u64);
    }
}

#[test]
fn hash_whose_large_fields_come_and_go_has_other_leaves_after_a_few_rounds() {
    let (disk, store) = cold(|store| _ = change(store, ValueKind::Hash, &members(0..8_000), Some(b"value")));
    let (large, value) = (members(8_000..8_100), [b'v'; 3_000]);
    let rounds = change(&store, ValueKind::Hash, &large, Some(&value));
    assert!(rounds <= ROUNDS_MAX, "{rounds} rounds");
    store.close();
    let store = open(&disk.process_death());
    let rounds = change(&store, ValueKind::Hash, &large, None);
    assert!(rounds <= ROUNDS_MAX, "{rounds} rounds");
    assert_eq!(len(&store, ValueKind::Hash), 8_000);
}

#[test]
fn range_of_members_is_removed_in_a_few_rounds() {
    let (_disk, store) = cold(|store| _ = change(store, ValueKind::SortedSet, &members(0..6_000), Some(b"")));
    let rounds = rounds(&store, |access| {
        access.remove_range(0, KEY, ValueKind::SortedSet, 1_000..5_000)?.expect("a sorted set");
        Ok(())
    });
    assert!(rounds <= ROUNDS_MAX, "{rounds} rounds");
    assert_eq!(len(&store, ValueKind::SortedSet), 2_000);
}

#[test]
fn list_is_trimmed_and_grows_again_in_a_few_rounds() {
    let change = |store: &Arc<Store>, changes: &[ListChange<'_>]| {
        rounds(store, |access| access.change_list(0, KEY, changes)?.map(drop).map_err(|_| unreachable!()))
    };
    let value = [b'v'; 30];
    let pushes = vec![ListChange::PushBack(&value); 20_000];
    let (disk, store) = cold(|store| _ = change(store, &pushes));
    let trimmed = change(&store, &[ListChange::Remove(1_000, 18_000)]);
    assert!(trimmed <= ROUNDS_MAX, "{trimmed} rounds");
    store.close();
    // the nodes that went are free ones, and each names the next
    let store = open(&disk.process_death());
    let grown = change(&store, &pushes);
    assert!(grown <= ROUNDS_MAX, "{grown} rounds");
}

/// It drew another leaf each time it was run again, until it met one that was in memory: 21 reads.
#[test]
fn random_elements_are_a_leaf_each() {
    let kind = ValueKind::Hash;
    let (_disk, store) = cold(|store| _ = change(store, kind, &members(0..20_000), Some(b"value")));
    for _ in 0..20 {
        let rounds = rounds(&store, |access| {
            let dice = store.random();
            assert_eq!(access.sample(0, KEY, kind, 1, dice)?.expect("a hash").len(), 1);
            Ok(())
        });
        // the root, and the leaf
        assert!(rounds <= 2, "{rounds} rounds");
    }
    let reads = || store.log_report().expect("it has a log").cold_reads;
    for wanted in [3, 30] {
        let before = reads();
        let rounds = rounds(&store, |access| {
            let dice = store.random();
            assert_eq!(access.sample(0, KEY, kind, wanted, dice)?.expect("a hash").len(), wanted);
            Ok(())
        });
        // leaves that were in memory count, and others are drawn for them when it is run again
        assert!(rounds <= ROUNDS_MAX, "{rounds} rounds");
        assert!(reads() - before <= 2 * wanted as u64, "{wanted}: {} reads", reads() - before);
    }
}

/// LPOS and LINSERT went on from each part of a list that was cold by beginning anew: the hundredth time was answered with an error, and
/// before that all parts were looked at again for each.
#[test]
fn list_is_looked_through_in_a_few_rounds_from_either_end() {
    let value = [b'v'; 30];
    let pushes = vec![ListChange::PushBack(&value); 20_000];
    let (_disk, store) = cold(|store| {
        rounds(store, |access| access.change_list(0, KEY, &pushes)?.map(drop).map_err(|_| unreachable!()));
    });
    for is_reversed in [false, true] {
        let (mut looked_at, part) = (0, 100);
        let rounds = rounds(&store, |access| {
            let list = access.sequence(0, KEY, ValueKind::List)?.expect("a list");
            for nth in 0..list.len() / part {
                let from = if is_reversed { list.len() - (nth + 1) * part } else { nth * part };
                looked_at += list.range(from..from + part)?.len();
            }
            Ok(())
        });
        assert!(rounds <= ROUNDS_MAX, "{rounds} rounds");
        assert!(looked_at <= 5 * 20_000, "{looked_at} elements were looked at, reversed: {is_reversed}");
    }
}

/// ZRANDMEMBER drew other members each time it was executed again, which were cold as well: it never ended.
#[test]
fn members_by_chance_are_the_same_when_a_command_runs_again() {
    let (_disk, store) =
        cold(|store| _ = change(store, ValueKind::SortedSet, &members(0..20_000), Some(b"value")));
    let rounds = rounds(&store, |access| {
        let set = access.sequence(0, KEY, ValueKind::SortedSet)?.expect("a sorted set");
        let places: Vec<usize> = (0..300).map(|_| access.random() as usize % set.len()).collect();
        assert_eq!(set.pick(&places)?.len(), 300);
        Ok(())
    });
    assert!(rounds <= ROUNDS_MAX, "{rounds} rounds");
}

/// A leaf with eight changes was nine reads once it had left memory.
#[test]
fn what_leaves_memory_is_one_record() {
    for kind in [ValueKind::Hash, ValueKind::SortedSet] {
        let (store, all) = (open(&SimDisk::new(3)), members(0..4_000));
        let report = || store.log_report().expect("it has a log");
        change(&store, kind, &all, Some(b"value"));
        // a few changes of each leaf, one after another
        for part in 0..10 {
            let some: Vec<_> = all.iter().skip(part).step_by(10).cloned().collect();
            change(&store, kind, &some, Some(b"value 2"));
        }
        while store.housekeep().expect("the disk works") | store.drive() {}
        assert!(report().folded_bytes > 0, "{kind:?}: {:?}", report());
        store.set_memory_limit(1);
        store.tend(0);
        store.set_memory_limit(0);
        let before = report().cold_reads;
        rounds(&store, |access| {
            access.collection(0, KEY, kind)?.expect("of this type");
            Ok(())
        });
        let (read, leaves) = (report().cold_reads - before, store.leaf_report().leaves);
        // a leaf of one or two changes is left as it is
        assert!(read <= leaves + leaves / 4 + 9, "{kind:?}: {read} reads of {leaves} leaves");
        assert_eq!(len(&store, kind), 4_000);
    }
}

/// A removal of a range whose leaves were more than a command may read read them for 20 s before it was refused.
#[test]
fn change_that_needs_more_than_may_be_read_is_refused_before_it_reads() {
    let (_disk, store) =
        cold(|store| _ = change(store, ValueKind::SortedSet, &members(0..20_000), Some(b"")));
    store.set_memory_limit(1 << 20);
    let reads = || store.log_report().expect("it has a log").cold_reads;
    let (keys, mut prepared) = ([KeyRef { db: 0, key: KEY }], Prepared::default());
    let before = reads();
    for _ in 0..100 {
        while !store.missing(&keys, &mut prepared) {
            let (to, from) = mpsc::channel();
            store.fetch(prepared, Box::new(move |prepared| to.send(prepared).expect("somebody waits")));
            prepared = from.recv().expect("reads end");
        }
        let attempt = store.access(Scope::Keys(&keys), &prepared, 0).map(|mut access| {
            let removed = access.remove_range(0, KEY, ValueKind::SortedSet, 100..6_000).map(drop);
            (removed, access.into_wanted())
        });
        match attempt.expect("it needs no room") {
            (Err(Stop::Cold), wanted) => prepared.want(wanted),
            (done, _) => {
                let Err(Stop::Refused(error)) = done else { panic!("{done:?}") };
                assert!(error.to_string().contains("an eighth of memory.limit"), "{error}");
                // the members that go, and none of their leaves
                assert!(reads() - before < 1_000, "{} reads", reads() - before);
                return;
            }
        }
    }
    panic!("it never ends");
}

/// A value that had left memory with its changes was read and folded for each command, and the result was dropped: up to 65 reads each time.
#[test]
fn value_that_was_read_with_its_changes_is_one_record_from_then_on() {
    let kind = ValueKind::Hash;
    let (store, all) = (reading::open(&SimDisk::new(3), 2_048), members(0..2_000));
    let values = [[b'1'; 80], [b'2'; 80]];
    change(&store, kind, &all, Some(&values[0]));
    for part in 0..5 {
        let some: Vec<_> = all.iter().skip(part).step_by(5).cloned().collect();
        change(&store, kind, &some, Some(&values[1]));
    }
    // nothing stays in memory, also of what is read
    store.set_memory_limit(1);
    store.tend(0);
    let reads = || store.log_report().expect("it has a log").cold_reads;
    let read = || {
        let before = reads();
        for element in all.iter().step_by(200) {
            rounds(&store, |access| {
                let one = std::iter::once(&element[..]);
                let found = access.values(0, KEY, kind, one)?.expect("a hash").expect("it is there");
                assert_eq!(found, [Some(&values[1][..])]);
                Ok(())
            });
        }
        reads() - before
    };
    let first = read();
    assert!(first > 40, "ten times the root, a leaf and its changes: {first} reads");
    while store.housekeep().expect("the disk works") | store.drive() {}
    let second = read();
    assert!(second <= 30, "ten times the root, and a leaf with one change at most: {second} reads");
    store.check_state();
}

/// LPOS to the end of a large list on disk held its thread to the end, although its client had been killed.
#[test]
fn who_nobody_waits_for_any_more_ends_at_the_next_part_and_changes_nothing() {
    let pushes = vec![ListChange::PushBack(b"an element"); 20_000];
    let (_disk, store) = cold(|store| {
        rounds(store, |access| access.change_list(0, KEY, &pushes)?.map(drop).map_err(|_| unreachable!()));
    });
    // by who runs the command, or by the script that calls it
    for is_of_access in [false, true] {
        let (keys, abandoned) = ([KeyRef { db: 0, key: KEY }], Arc::new(AtomicBool::new(false)));
        let mut prepared = Prepared::default();
        if !is_of_access {
            prepared.end_when(Arc::clone(&abandoned));
        }
        let scope = Scope::Claimed { keys: &keys, writes: true };
        let mut access = store.access(scope, &prepared, 1_000_000).expect("room");
        if is_of_access {
            let abandoned = Arc::clone(&abandoned);
            access.end_when(Some(Arc::new(move || abandoned.load(Ordering::Relaxed))));
        }
        access.look_briefly();
        access.change_list(0, KEY, &[ListChange::Remove(9, 1)]).expect("it is read").expect("a list");
        let sequence = access.sequence(0, KEY, ValueKind::List).expect("it is read").expect("a list");
        let first = sequence.look_at(0..600, |elements| elements.len());
        assert_eq!(first.expect("it is read"), 600);
        abandoned.store(true, Ordering::Relaxed);
        let next = sequence.look_at(600..1_200, |elements| elements.len());
        assert!(matches!(next, Err(Stop::Abandoned)), "{next:?}");
        let committed = access.commit();
        assert!(matches!(committed, Err(Stop::Abandoned)), "{committed:?}");
    }
    rounds(&store, |access| {
        assert_eq!(access.sequence(0, KEY, ValueKind::List)?.expect("a list").len(), 20_000);
        Ok(())
    });
}
