//! What one command on hot data writes into the log: bounds that nobody is to exceed unnoticed. What it allocates is in `counts`.

mod commands;

use std::sync::Arc;

use clock::{SimClock, UnixMs};
use store::{EngineKind, Options, Store};
use vfs::SimDisk;

use commands::{
    COLLECTIONS, RUN, fill, hdel, hset, hset_run, hset_small, lpush, lpush_run, mixed, remove, remove_at,
    sadd, sadd_run, set, xadd, xadd_run, zadd, zadd_any, zadd_equal, zadd_run,
};

const ELEMENTS: u64 = 10_000;
const COMMANDS: u64 = 1_000;
const SERIES: u64 = 200;

/// One command, with its number.
type Run<'r> = &'r dyn Fn(u64);

/// Records and bytes that were written.
fn written(store: &Store) -> (u64, u64) {
    while store.drive() {}
    let counters = store.journal_counters().expect("it has a log");
    (counters.records, counters.bytes_written)
}

/// A store with a log and [`ELEMENTS`] elements in the collection of each type.
fn filled() -> Arc<Store> {
    let options = Options {
        engine: EngineKind::Log,
        background: false,
        readers: 0,
        vfs: Arc::new(SimDisk::new(1)),
        dir: "/data".into(),
        clock: Arc::new(SimClock::new(UnixMs(1_795_000_000_000))),
        ..Options::default()
    };
    let store = Store::open(options).expect("a fresh folder opens");
    for n in 0..ELEMENTS {
        fill(&store, n);
        while n % 100 == 0 && store.drive() {}
    }
    store
}

#[test]
fn command_on_one_element_writes_few_records() {
    let store = filled();
    // Records, bytes of key, element and value, and bytes beyond those; headers of batches included.
    let each: [(&str, f64, u64, f64, Run<'_>); 11] = [
        ("SET", 1.0, 76, 60.0, &|n| set(&store, n)),
        ("HSET of a small hash", 1.0, 92, 80.0, &|n| hset_small(&store, n)),
        ("HSET of a field that is there", 1.0, 74, 90.0, &|n| hset(&store, n)),
        // with splits
        ("HSET of a new field", 1.15, 74, 240.0, &|n| hset(&store, ELEMENTS + n)),
        ("HDEL", 1.1, 14, 110.0, &|n| hdel(&store, n)),
        ("SADD of a new member", 1.1, 14, 200.0, &|n| sadd(&store, ELEMENTS + n)),
        ("LPUSH", 1.2, 60, 380.0, &|n| lpush(&store, n)),
        ("RPOP", 1.3, 0, 350.0, &|n| remove_at(&store, ELEMENTS + COMMANDS - 1 - n)),
        ("ZADD of a new member", 1.15, 22, 350.0, &|n| zadd_any(&store, ELEMENTS + n)),
        ("ZADD of a new score", 1.1, 22, 290.0, &|n| zadd(&store, n, mixed(n + 7))),
        ("XADD", 1.25, 80, 410.0, &|n| xadd(&store, ELEMENTS + n)),
    ];
    for (name, records_max, own_bytes, bytes_max, run) in each {
        let before = written(&store);
        (0..COMMANDS).for_each(run);
        let after = written(&store);
        let [records, bytes] = [after.0 - before.0, after.1 - before.1].map(|n| n as f64 / COMMANDS as f64);
        let bytes = bytes - own_bytes as f64;
        println!("{name}: {records} records, {bytes:.0} B beyond what it stores");
        assert!(records <= records_max, "{name}: {records} records, {records_max} at most");
        assert!(bytes <= bytes_max, "{name}: {bytes} B beyond what it stores, {bytes_max} at most");
    }
}

/// What goes with its key goes in the background, leaf by leaf. Before, each leaf had a record of its own, 64 B.
#[test]
fn removal_of_a_large_collection_writes_a_few_bytes_a_leaf() {
    let store = filled();
    for key in COLLECTIONS {
        let (leaves, before) = (store.leaf_report().leaves, written(&store));
        remove(&store, key);
        written(&store);
        let at_once = written(&store).1 - before.1;
        while store.leaf_report().swept > 0 {
            store.tend(100);
        }
        let (leaves, after) = (leaves - store.leaf_report().leaves, written(&store));
        let (records, bytes) = (after.0 - before.0, after.1 - before.1);
        let name = key.escape_ascii();
        println!(
            "{name}: {leaves} leaves go with {records} records of {bytes} B, {at_once} B of them at once"
        );
        assert!(leaves > 50, "{name}: {leaves} leaves");
        // of the group that removes the key, and of the note
        assert!(bytes <= 800 + 2 * leaves, "{name}: {bytes} B for {leaves} leaves");
    }
    assert_eq!(store.leaf_report().leaves, 0);
}

/// What members begin with that are all alike is the bound of nodes' children. It is not logged with what they count.
#[test]
fn change_beside_long_common_prefixes_writes_as_little() {
    let store = filled();
    let member = |n: u64| format!("{}{n:010}", "p".repeat(300));
    (0..2_000).for_each(|n| zadd_equal(&store, member(n * 2).as_bytes()));
    let before = written(&store);
    (0..COMMANDS).for_each(|n| zadd_equal(&store, member(mixed(n) as u64 % 2_000 * 2 + 1).as_bytes()));
    let after = written(&store);
    let bytes = (after.1 - before.1) as f64 / COMMANDS as f64 - 318.0;
    println!("ZADD of a member of 310 B: {bytes:.0} B beyond what it stores");
    assert!(bytes <= 1_000.0, "{bytes:.0} B");
}

/// As many commands as a series has are one change: records and bytes for each of its elements.
#[test]
fn change_of_as_many_elements_as_a_series_has_writes_less_for_each() {
    let store = filled();
    let run = |n: u64| n * RUN as u64;
    let each: [(&str, f64, u64, f64, Run<'_>); 7] = [
        ("HSET of fields that are there", 0.1, 74, 50.0, &|n| hset_run(&store, run(n) % ELEMENTS)),
        ("HSET of new fields", 0.22, 74, 200.0, &|n| hset_run(&store, ELEMENTS + run(n))),
        ("SADD of new members", 0.13, 14, 110.0, &|n| sadd_run(&store, ELEMENTS + run(n))),
        ("LPUSH", 0.2, 60, 150.0, &|n| lpush_run(&store, n)),
        ("ZADD of new members", 0.22, 22, 285.0, &|n| zadd_run(&store, ELEMENTS + run(n), 0)),
        ("ZADD of new scores", 0.22, 22, 305.0, &|n| zadd_run(&store, run(n) % ELEMENTS, 7)),
        ("XADD", 0.25, 80, 200.0, &|n| xadd_run(&store, ELEMENTS + run(n))),
    ];
    for (name, records_max, own_bytes, bytes_max, change) in each {
        let before = written(&store);
        (0..SERIES).for_each(change);
        let after = written(&store);
        let elements = (SERIES * RUN as u64) as f64;
        let [records, bytes] = [after.0 - before.0, after.1 - before.1].map(|n| n as f64 / elements);
        let bytes = bytes - own_bytes as f64;
        println!("{name}: {records:.3} records, {bytes:.0} B beyond what it stores");
        assert!(records <= records_max, "{name}: {records} records, {records_max} at most");
        assert!(bytes <= bytes_max, "{name}: {bytes} B beyond what it stores, {bytes_max} at most");
    }
}
