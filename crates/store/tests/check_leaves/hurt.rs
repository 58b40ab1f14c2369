//! Folders in which records of a large collection are lost: `check` names the key, and what salvage saves is a collection like any other,
//! with elements that were there.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clock::{Clock, SimClock, UnixMs};
use journal::Keyspace;
use store::{ListChange, Salvaged, Stop, Store, ValueKind, check, salvage};
use vfs::sim::Rng;
use vfs::{SimDisk, Vfs};

use super::{
    DIR, KEYS, LEAVES, LIST, REMOVALS, REMOVED, TYPES, add, append, change, fresh, open, open_in, put,
    root_record, value_at,
};

const OUT: &str = "/saved";
const ELEMENTS: usize = 600;

type Element = (Vec<u8>, Vec<u8>);

/// A folder with a collection that has been changed element by element, and what it had.
struct Changed {
    disk: SimDisk,
    kind: ValueKind,
    /// Elements that were there at some time, and those that were there in the end.
    ever: BTreeSet<Element>,
    last: BTreeSet<Element>,
}

/// A record of it.
struct Record {
    file: PathBuf,
    offset: u64,
    kind: u8,
    is_root: bool,
    /// It is of the first group, which has all of the collection.
    is_first: bool,
}

/// What else is known of the folder.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Beside {
    /// No checkpoint: the server was killed.
    Nothing,
    Checkpoint,
    /// There was one, which is damaged.
    LostCheckpoint,
}

fn changed(kind: ValueKind, beside: Beside) -> Changed {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    let mut ever = BTreeSet::new();
    add(&store, kind, 0..ELEMENTS);
    ever.extend(content(&store, kind));
    let mut rng = Rng::new(5);
    for step in 0..150 {
        let number = if step % 3 == 0 { ELEMENTS + step } else { rng.index(ELEMENTS / 10) };
        let name = format!("element-{number:05}");
        match kind {
            ValueKind::List if step % 3 == 1 => remove(&store, number),
            ValueKind::List if step % 3 == 2 => {
                change(&store, &[b"key"], |access| {
                    let insert = ListChange::Insert(number * 7, name.as_bytes());
                    access.change_list(0, b"key", &[insert])?.expect("a list");
                    Ok(())
                });
            }
            _ => put(&store, kind, &[(&name, number + step)], "later"),
        }
        ever.extend(content(&store, kind));
        if beside != Beside::Nothing && step == 80 {
            store.checkpoint().expect("no fault");
        }
    }
    let last = content(&store, kind).into_iter().collect();
    if beside != Beside::Nothing {
        store.close();
    }
    let disk = disk.process_death();
    Changed { disk, kind, ever, last }
}

fn remove(store: &Arc<Store>, number: usize) {
    change(store, &[b"key"], |access| {
        access.change_list(0, b"key", &[ListChange::Remove(number, 1)])?.expect("a list");
        Ok(())
    });
}

/// All elements of `key`, read in each way that its type has.
fn content(store: &Arc<Store>, kind: ValueKind) -> Vec<Element> {
    change(store, &[b"key"], |access| {
        let all = access.collection(0, b"key", kind)?.expect("of this type");
        let all: Vec<Element> = all.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
        assert_eq!(access.count(0, b"key", kind)?, Ok(all.len() as u64));
        if matches!(kind, ValueKind::List | ValueKind::SortedSet | ValueKind::Stream) {
            let sequence = access.sequence(0, b"key", kind)?.expect("of this type");
            let elements = sequence.range(0..usize::MAX)?;
            assert!(
                elements.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).eq(all.iter().cloned())
            );
        }
        if matches!(kind, ValueKind::Hash | ValueKind::Set | ValueKind::SortedSet) {
            let names = all.iter().map(|(key, _)| &key[..]);
            let values = access.values(0, b"key", kind, names)?.expect("of this type").unwrap_or_default();
            assert!(values.into_iter().eq(all.iter().map(|(_, value)| Some(&value[..]))));
        }
        Ok(all)
    })
}

/// Where the records of the collection lie.
fn records(disk: &SimDisk) -> Vec<Record> {
    let content = journal::Content { version: 11, reader_version_min: 11, check: |_, _| Ok(()) };
    let (mut found, mut first_root) = (Vec::new(), None);
    let mut look = |view: journal::RecordView<'_>| {
        let keyspace: Keyspace = view.header.keyspace;
        if keyspace == KEYS || keyspace == LEAVES {
            if keyspace == KEYS {
                first_root = first_root.or(Some(view.header.seq));
            }
            found.push((view.address, view.header.kind, keyspace == KEYS, view.header.seq));
        }
    };
    let report = journal::check(&disk.fork(), Path::new(DIR), &content, &mut look).expect("it is readable");
    let file = |address: journal::LogAddress| {
        let mut infos = report.segments.iter().map(|segment| &segment.info);
        infos.find(|info| info.segment == address.segment()).expect("it is there").file.file_name()
    };
    let first_root = first_root.expect("there is a root");
    let record = |(address, kind, is_root, seq): (journal::LogAddress, u8, bool, journal::Seq)| Record {
        file: Path::new(DIR).join(file(address)),
        offset: address.offset_bytes(),
        kind,
        is_root,
        is_first: seq <= first_root,
    };
    found.into_iter().map(record).collect()
}

fn saved(disk: &SimDisk) -> Salvaged {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let clock: Arc<dyn Clock> = Arc::new(SimClock::new(UnixMs(1_000_000)));
    salvage(&vfs, &clock, Path::new(DIR), Path::new(OUT)).expect("it can be saved")
}

fn faults(disk: &SimDisk, dir: &str) -> Vec<String> {
    let checked = check(&disk.fork(), Path::new(dir)).expect("a folder");
    let all = checked.journal.damage.into_iter().map(|damage| damage.what);
    all.collect()
}

/// Saves a hurt folder, and uses the collection that was saved in every way; returns what it has.
fn use_saved(disk: &SimDisk, changed: &Changed, context: &str) -> (Salvaged, BTreeSet<Element>) {
    let kind = changed.kind;
    let report = saved(disk);
    assert_eq!(faults(disk, OUT), [""; 0], "{context}: {report:?}");
    let store = open_in(disk, OUT);
    let found: BTreeSet<Element> = content(&store, kind).into_iter().collect();
    assert!(found.is_subset(&changed.ever), "{context}: {report:?}");
    // it is changed as any other
    add(&store, kind, 2_000..2_100);
    let mut after = found.len() + 100;
    if kind == ValueKind::List {
        let before = content(&store, kind).len();
        (0..before.min(300)).rev().step_by(9).for_each(|number| remove(&store, number));
        after = before - before.min(300).div_ceil(9);
    } else if kind == ValueKind::SortedSet || kind == ValueKind::Stream {
        let gone = 1..found.len().min(200);
        after -= gone.len();
        change(&store, &[b"key"], |access| access.remove_range(0, b"key", kind, gone.clone()))
            .expect("of this type");
    } else {
        let names: Vec<Vec<u8>> = found.iter().take(200).map(|(name, _)| name.clone()).collect();
        after -= names.len();
        change(&store, &[b"key"], |access| {
            let delete =
                |edit: &mut store::Edit<'_>, tag, number: usize| _ = edit.delete(tag, &names[number]);
            access.edit_each(0, b"key", kind, names.iter().map(|name| &name[..]), delete)
        })
        .expect("of this type");
    }
    assert_eq!(content(&store, kind).len(), after, "{context}");
    while store.leaf_report().swept > 0 {
        store.tend(100);
        while store.drive() {}
    }
    store.close();
    assert_eq!(faults(&disk.process_death(), OUT), [""; 0], "{context}");
    (report, found)
}

/// Makes the payload of a record unreadable: one wrong bit would be put right.
fn blur(disk: &SimDisk, record: &Record) {
    for at in 0..4 {
        disk.flip_bit(&record.file, record.offset + 50 + at, 3).expect("it is there");
    }
}

/// How often `check` named the key, salvage made it anew, and how much of it was left at least.
#[derive(Debug)]
struct Tally {
    named: usize,
    rebuilt: u64,
    least: usize,
}

/// Returns how often salvage made the collection anew.
fn lose_records(kind: ValueKind, beside: Beside) -> u64 {
    let changed = changed(kind, beside);
    assert_eq!(faults(&changed.disk, DIR), [""; 0], "{kind:?}");
    let records = records(&changed.disk);
    let later = records.iter().filter(|record| !record.is_first);
    let roots = records.iter().filter(|record| record.is_root).rev().take(1);
    let first = records.iter().find(|record| record.is_first);
    let mut tally = Tally { named: 0, rebuilt: 0, least: usize::MAX };
    for record in later.step_by(STEP).chain(roots).chain(first) {
        let hurt = changed.disk.fork();
        blur(&hurt, record);
        if beside == Beside::LostCheckpoint {
            let is_checkpoint = |path: &PathBuf| path.to_string_lossy().contains("checkpoint");
            let mut files = hurt.files().into_iter().map(|(path, _)| path);
            hurt.flip_bit(&files.find(is_checkpoint).expect("there is one"), 40, 3).expect("it is there");
        }
        let context = format!("{kind:?}, {beside:?}, root {}, {}", record.is_root, record.offset);
        let found = faults(&hurt, DIR);
        // the end of a log without a clean stop may be torn
        assert!(!found.is_empty() || beside == Beside::Nothing, "{context}");
        let name = format!("{} \"key\" (object ", kind.name());
        tally.named += usize::from(found.iter().any(|what| what.starts_with(&name)));
        let (report, kept) = use_saved(&hurt, &changed, &context);
        tally.rebuilt += report.rebuilt.collections;
        assert!(report.rebuilt.told.iter().all(|what| what.starts_with(&name)), "{context}: {report:?}");
        if !record.is_first {
            tally.least = tally.least.min(kept.intersection(&changed.last).count());
        }
    }
    assert!(tally.named > 0 || beside == Beside::LostCheckpoint, "{kind:?}: {tally:?}");
    // what was changed by the lost record and on top of it may be older, no more
    assert!(
        tally.least + 60 > changed.last.len(),
        "{kind:?}, {beside:?}: {tally:?} of {}",
        changed.last.len()
    );
    tally.rebuilt
}

#[test]
fn lost_record_of_a_collection_is_named_and_what_is_saved_is_whole() {
    for kind in TYPES {
        let all = [Beside::Nothing, Beside::Checkpoint, Beside::LostCheckpoint];
        // what is lost may have been of no use any more
        assert!(all.map(|beside| lose_records(kind, beside)).iter().sum::<u64>() > 0, "{kind:?}");
    }
}

/// Kind and payload of each leaf and node of a folder in which no record took another's place.
fn nodes(disk: &SimDisk) -> Vec<(u8, Vec<u8>)> {
    let content = journal::Content { version: 11, reader_version_min: 11, check: |_, _| Ok(()) };
    let mut nodes = Vec::new();
    let mut look = |view: journal::RecordView<'_>| {
        if view.header.keyspace == LEAVES && view.header.kind != REMOVED {
            nodes.push((view.header.kind, view.payload.to_vec()));
        }
    };
    journal::check(&disk.fork(), Path::new(DIR), &content, &mut look).expect("it is readable");
    nodes
}

/// Sorted sets have their members twice, and inner nodes have no elements.
#[test]
fn node_that_is_gone_costs_its_own_elements_alone() {
    for kind in TYPES {
        let disk = fresh(kind);
        let all: BTreeSet<Element> = content(&open(&disk.fork()), kind).into_iter().collect();
        let mut inner = 0;
        for (at, (node_kind, node)) in nodes(&disk).iter().enumerate() {
            let is_list = node_kind & 0x7f == LIST && node[15] & 0x80 != 0;
            let has_elements = kind == ValueKind::List && node.windows(8).any(|it| it == b"element-");
            let is_inner = is_list && !has_elements;
            if !is_inner && at % 17 != 0 {
                continue;
            }
            inner += usize::from(is_inner);
            let hurt = disk.fork();
            append(&hurt, REMOVED, LEAVES, &node[..4 + 12]);
            let hurt = hurt.process_death();
            let (what, report) = (faults(&hurt, DIR), saved(&hurt));
            assert!(what.iter().any(|what| what.contains("missing")), "{kind:?}: {what:?}");
            assert_eq!(faults(&hurt, OUT), [""; 0], "{kind:?}: {report:?}");
            let found = content(&open_in(&hurt, OUT), kind);
            let told = &report.rebuilt.told[0];
            assert_eq!(told.contains("come last"), kind == ValueKind::List && is_inner, "{told}");
            assert!(kind != ValueKind::Stream || found.is_sorted(), "{told}");
            let found: BTreeSet<Element> = found.into_iter().collect();
            assert!(found.is_subset(&all), "{kind:?}");
            if is_inner || kind == ValueKind::SortedSet {
                assert_eq!(found.len(), all.len(), "{told}");
            } else {
                assert!((1..60).contains(&(all.len() - found.len())), "{told}");
            }
        }
        assert_eq!(inner > 2, !matches!(kind, ValueKind::Hash | ValueKind::Set), "{kind:?}: {inner}");
    }
}

/// One wrong bit of the root dropped all elements, and nothing named the key.
#[test]
fn root_with_a_wrong_bit_is_put_right_and_a_lost_one_costs_the_key_alone() {
    for kind in TYPES {
        let disk = fresh(kind);
        let all: BTreeSet<Element> = content(&open(&disk.fork()), kind).into_iter().collect();
        let roots = || records(&disk).into_iter().filter(|record| record.is_root);
        for bit in [3, 200] {
            let hurt = disk.fork();
            let change = |it: Record| hurt.flip_bit(&it.file, it.offset + 48 + bit / 8, (bit % 8) as u8);
            roots().for_each(|record| change(record).expect("it is there"));
            let report = saved(&hurt);
            assert!(report.journal.records_mended > 0 && report.rebuilt.collections == 0, "{report:?}");
            assert_eq!(content(&open_in(&hurt, OUT), kind).into_iter().collect::<BTreeSet<_>>(), all);
        }
        let hurt = disk.fork();
        roots().for_each(|record| blur(&hurt, &record));
        let report = saved(&hurt);
        assert_eq!((report.rebuilt.collections, report.rebuilt.loose_leaves), (1, 0), "{report:?}");
        let told = &report.rebuilt.told[0];
        let key = told.split('"').nth(1).expect("the key is named").to_owned();
        assert!(key.starts_with(&format!("lost:{}:", kind.name())), "{told}");
        assert!(told.contains(" has 1000 elements, the record of its root is lost"), "{told}");
        assert_eq!(faults(&hurt, OUT), [""; 0], "{told}");
        let store = open_in(&hurt, OUT);
        let found = change(&store, &[key.as_bytes()], |access| {
            let all = access.collection(0, key.as_bytes(), kind)?.expect("of this type");
            Ok(all.iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect::<BTreeSet<_>>())
        });
        assert!(found == all, "{told}");
    }
}

/// SCARD of such a set was 0, and its members were there.
#[test]
fn root_that_counts_nothing_is_damage_of_its_key_and_salvage_counts_anew() {
    for kind in TYPES {
        let disk = fresh(kind);
        let (root_kind, mut root) = root_record(&disk);
        let count = value_at(&root) + 8;
        root[count..count + 8].fill(0);
        append(&disk, root_kind, KEYS, &root);
        let disk = disk.process_death();
        let store = open(&disk.fork());
        let counted = change(&store, &[b"key"], |access| Ok(access.count(0, b"key", kind)));
        assert!(matches!(counted, Err(Stop::Damaged(_) | Stop::Cold)), "{kind:?}: {counted:?}");
        assert!(faults(&disk, DIR).iter().any(|what| what.contains(" counts 0 elements")), "{kind:?}");
        saved(&disk);
        assert_eq!(content(&open_in(&disk, OUT), kind).len(), 1_000, "{kind:?}");
    }
}

/// Of the records that are lost one by one.
const STEP: usize = 41;

/// One record says that many leaves are gone. Where it was lost they came back, as a collection at the key that had them, or at one of their own.
#[test]
fn leaves_of_a_removed_key_stay_gone_where_the_record_of_their_removal_is_lost() {
    for kind in TYPES {
        let disk = fresh(kind);
        let store = open(&disk);
        assert!(change(&store, &[b"key"], |access| access.remove(0, b"key")));
        while store.leaf_report().swept > 0 {
            store.tend(100);
            while store.drive() {}
        }
        // the end of a log without a clean stop may be torn
        (0..10).for_each(|number| {
            change(&store, &[b"other"], |access| {
                access.put(0, b"other", store::Value::String(&[number; 100]), None);
                Ok(())
            });
        });
        let disk = disk.process_death();
        let removals: Vec<Record> = records(&disk).into_iter().filter(|it| it.kind == REMOVALS).collect();
        assert!(!removals.is_empty(), "{kind:?}");
        removals.iter().for_each(|record| blur(&disk, record));
        let report = saved(&disk);
        assert_eq!((report.rebuilt.collections, report.rebuilt.loose_leaves), (0, 0), "{kind:?}: {report:?}");
        let store = open_in(&disk, OUT);
        assert_eq!(store.leaf_report(), store::LeafReport::default(), "{kind:?}");
        assert!(!change(&store, &[b"key"], |access| access.remove(0, b"key")), "{kind:?}");
        store.close();
        assert_eq!(faults(&disk.process_death(), OUT), [""; 0], "{kind:?}");
    }
}
