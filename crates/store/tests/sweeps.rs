//! Leaves of collections that were removed, over the loss of power at any I/O, checkpoints and cleaning: none comes back, and none stays.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clock::{SimClock, UnixMs};
use store::{
    Access, Collections, EngineKind, KeyRef, ListChange, Options, Prepared, Scope, Stop, Store, Value,
    ValueKind, check,
};
use vfs::SimDisk;
use vfs::sim::{Effect, Fault, Kinds};

const DIR: &str = "/data";
/// Those that are removed, each named by the first letter of its type's commands.
const COLLECTIONS: [&[u8]; 5] = [b"hash", b"set", b"list", b"zset", b"xstream"];
const KEPT: &[u8] = b"z-kept";
const ELEMENTS: u32 = 1_000;
/// Most I/Os of a sweep at which power is lost.
const POINTS_MAX: u64 = 400;
/// Hashes so short that some leaves have the bits of others, and are removed by records of their own.
const BITS_FEW: u32 = 22;

fn open(disk: &SimDisk, hash_bits: u32) -> Arc<Store> {
    let identity = Some(journal::Identity { folder: 1, hash_key: 2, hash_bits });
    let options = Options {
        engine: EngineKind::Log,
        background: false,
        readers: 0,
        clock: Arc::new(SimClock::new(UnixMs(1_000_000))),
        vfs: Arc::new(disk.clone()),
        dir: PathBuf::from(DIR),
        leaf_bytes: 128,
        transaction_bytes_max: 1 << 20,
        hash_bits,
        journal: journal::Options { segment_size_bytes: 128 << 10, identity, ..journal::Options::small() },
        ..Options::default()
    };
    let store = Store::open(options).expect("the folder opens");
    while store.drive() {}
    store
}

/// A folder with a large collection of each type, and one more that is kept.
fn filled(disk: &SimDisk, hash_bits: u32) -> Arc<Store> {
    let store = open(disk, hash_bits);
    for chunk in (0..ELEMENTS).collect::<Vec<_>>().chunks(50) {
        let names: Vec<String> = chunk.iter().map(|number| format!("element-{number:05}")).collect();
        for key in COLLECTIONS.into_iter().chain([KEPT]) {
            with(&store, key, |access| put(access, key, &names));
        }
        housekeep(&store);
    }
    store
}

/// Puts elements into the collection at `key`, whose name begins as that of its type.
fn put(access: &mut Access<'_>, key: &[u8], names: &[String]) -> Result<(), Stop> {
    let elements = names.iter().map(|name| name.as_bytes());
    match key[0] {
        b'l' => {
            let pushes: Vec<_> = elements.map(ListChange::PushBack).collect();
            access.change_list(0, key, &pushes)?.expect("a list");
        }
        b'x' => {
            let changes: Vec<_> = elements.map(|name| (name, Some(&b"value"[..]))).collect();
            access.change_stream(0, key, &changes)?.expect("a stream");
        }
        b'z' => {
            let score = |_, at: usize| Ok::<_, Infallible>(Some((at * 7 % 50) as f64));
            let Ok(()) = access.rescore(0, key, elements, score)?.expect("a sorted set");
        }
        first => {
            let kind = if first == b'h' { ValueKind::Hash } else { ValueKind::Set };
            let change = |edit: &mut store::Edit<'_>, tag, at: usize| match kind {
                ValueKind::Hash => _ = edit.put(tag, names[at].as_bytes(), b"value"),
                _ => _ = edit.add(tag, names[at].as_bytes()),
            };
            access.edit_each(0, key, kind, elements, change)?.expect("of this type");
        }
    }
    Ok(())
}

fn housekeep(store: &Store) {
    if store.housekeep().is_ok() {
        while store.drive() {}
    }
}

fn sweep(store: &Store) {
    for _ in 0..10_000 {
        if store.leaf_report().swept == 0 {
            return;
        }
        store.tend(0);
        while store.drive() {}
    }
    panic!("leaves stay: {:?}", store.leaf_report());
}

fn with<R>(store: &Store, key: &[u8], work: impl Fn(&mut Access<'_>) -> Result<R, Stop>) -> R {
    tried(store, key, work).expect("the disk has power")
}

/// Does something with a key, as often as records are to be fetched for it or there is no room, and commits it. `None`: there is no power.
fn tried<R>(store: &Store, key: &[u8], work: impl Fn(&mut Access<'_>) -> Result<R, Stop>) -> Option<R> {
    let (keys, mut prepared) = ([KeyRef { db: 0, key }], Prepared::default());
    for _ in 0..100 {
        while !store.missing(&keys, &mut prepared) {
            let (to, from) = std::sync::mpsc::channel();
            store.fetch(prepared, Box::new(move |fetched| to.send(fetched).expect("it is awaited")));
            prepared = from.recv().expect("reads end");
        }
        let mut access = match store.access(Scope::Keys(&keys), &prepared, 20_000) {
            Ok(access) => access,
            Err(_) => {
                while store.drive() {}
                continue;
            }
        };
        match work(&mut access).and_then(|done| access.commit().map(|_| done)) {
            Ok(done) => {
                while store.drive() {}
                return Some(done);
            }
            Err(Stop::Cold) => prepared.want(access.into_wanted()),
            Err(Stop::Busy) => {
                drop(access);
                while store.drive() {}
            }
            Err(_) => return None,
        }
    }
    None
}

/// Opens a folder whose collections were removed, or were about to be, and looks for leaves that are back, or that nothing removes.
fn look(disk: &SimDisk, hash_bits: u32, context: &str) {
    let store = open(disk, hash_bits);
    sweep(&store);
    let counts = |disk: &SimDisk| {
        let checked = check(&disk.fork(), Path::new(DIR)).expect("a folder");
        assert_eq!(checked.journal.damage, [], "{context}");
        checked.collections
    };
    let there = counts(disk).expect("nothing is damaged");
    // all or nothing of the removals that were not acknowledged
    let leaves = store.leaf_report().leaves;
    assert_eq!(there.leaves, leaves, "{context}: leaves of {} collections", there.roots);
    if there.roots == 1 {
        assert_eq!(
            leaves,
            with(&store, KEPT, |access| access.leaf_count(0, KEPT)),
            "{context}: leaves are back, or were never removed"
        );
    }
    store.close();
    let disk = disk.process_death();
    assert_eq!(counts(&disk), Some(Collections { leaves, ..there }), "{context}");
    assert_eq!(open(&disk, hash_bits).leaf_report().leaves, leaves, "{context}");
}

/// Removes all collections but one, and their leaves, with housekeeping between; false if power was lost.
fn remove_all(store: &Store, disk: &SimDisk) -> bool {
    for key in COLLECTIONS {
        if tried(store, key, |access| access.remove(0, key)).is_none() {
            return false;
        }
    }
    let mut turn = 0;
    while store.leaf_report().swept > 0 && disk.is_powered() {
        store.tend(0);
        while disk.is_powered() && store.drive() {}
        housekeep(store);
        turn += 1;
        if turn == 2 {
            // in the midst of it, or refused for want of power
            _ = store.checkpoint();
        }
    }
    disk.is_powered()
}

#[test]
fn leaves_that_go_stay_gone_wherever_power_is_lost() {
    for hash_bits in [128, BITS_FEW] {
        let base = SimDisk::new(3);
        filled(&base, hash_bits);
        let base = base.process_death();
        let mut points = 0;
        for nth in 1..=POINTS_MAX {
            let disk = base.fork();
            let store = open(&disk, hash_bits);
            disk.plan(Fault::at(nth, Effect::PowerOff).of(Kinds::CHANGES));
            let is_through = remove_all(&store, &disk);
            drop(store);
            let disk = if is_through { disk.process_death() } else { disk.crash(nth) };
            disk.clear_faults();
            look(&disk, hash_bits, &format!("{hash_bits} bits, power lost at I/O {nth}"));
            points = nth;
            if is_through {
                break;
            }
        }
        assert!((20..POINTS_MAX).contains(&points), "{points} I/Os");
    }
}

#[test]
fn leaves_that_went_stay_gone_while_the_segments_of_their_removals_are_cleaned() {
    for hash_bits in [128, BITS_FEW] {
        let disk = SimDisk::new(3);
        let store = filled(&disk, hash_bits);
        assert!(remove_all(&store, &disk));
        let given_back = || store.journal_counters().expect("it has a log").files_recycled;
        let before = given_back();
        for round in 0..400_u64 {
            // most of what is written dies again
            for n in 0..20 {
                let value = [round as u8; 300];
                with(&store, &[n], |access| {
                    access.put(0, &[n], Value::String(&value), None);
                    Ok(())
                });
            }
            housekeep(&store);
            if round % 20 == 0 {
                look(&disk.fork(), hash_bits, &format!("{hash_bits} bits, round {round}"));
                look(
                    &disk.crash_copy(round),
                    hash_bits,
                    &format!("{hash_bits} bits, power lost in round {round}"),
                );
            }
        }
        assert!(given_back() > before, "no segment was given back");
    }
}
