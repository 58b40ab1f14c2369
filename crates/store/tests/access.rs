//! Access from outside, on engine `memory`: what commands rely on, checked against a model.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SimClock, UnixMs};
use proptest::prelude::*;
use store::{Deadline, EngineKind, KeyRef, Options, Prepared, Scope, Stop, Store, StoreError, Value};
use ticket::Ticket;

fn open(hash_bits: u32) -> (Arc<Store>, Arc<SimClock>) {
    let clock = Arc::new(SimClock::new(UnixMs(1_000_000)));
    let options = Options {
        engine: EngineKind::Memory,
        databases: 3,
        hash_bits,
        background: false,
        clock: clock.clone(),
        ..Options::default()
    };
    (Store::open(options).expect("memory always opens"), clock)
}

fn set(store: &Store, key: &[u8], value: &[u8], expiry: Option<u64>) {
    let (keys, prepared) = ([KeyRef { db: 0, key }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1).expect("memory never refuses");
    access.put(0, key, Value::String(value), expiry.map(|at| Deadline::at(UnixMs(at))));
    access.commit().expect("memory never refuses");
}

fn get(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    let (keys, prepared) = ([KeyRef { db: 0, key }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 0).expect("a read");
    let value = access.get(0, key).expect("hot").map(|found| found.value.to_vec());
    access.commit().expect("a read");
    value
}

fn del(store: &Store, key: &[u8]) -> bool {
    let (keys, prepared) = ([KeyRef { db: 0, key }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1).expect("memory never refuses");
    let removed = access.remove(0, key).expect("hot");
    access.commit().expect("memory never refuses");
    removed
}

fn flush(store: &Store) {
    let prepared = Prepared::default();
    let mut access = store.access(Scope::Everything, &prepared, 1).expect("memory never refuses");
    access.flush(0).expect("everything is in scope");
    access.commit().expect("memory never refuses");
}

fn changed(store: &Store, watch: &store::Watch) -> bool {
    let (keys, prepared) = ([KeyRef { db: watch.db(), key: watch.key() }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 0).expect("a read");
    let changed = access.changed(watch).expect("in scope");
    access.commit().expect("a read");
    changed
}

#[test]
fn nothing_is_applied_before_commit() {
    let (store, _) = open(128);
    let (keys, prepared) = ([KeyRef { db: 0, key: b"k" }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1).expect("room");
    access.put(0, b"k", Value::String(b"v"), None);
    assert_eq!(access.get(0, b"k").expect("staged").expect("staged").value, b"v");
    drop(access);
    assert_eq!(get(&store, b"k"), None);
}

#[test]
fn key_outside_the_scope_is_refused() {
    let (store, _) = open(128);
    let (keys, prepared) = ([KeyRef { db: 0, key: b"a" }], Prepared::default());
    let access = store.access(Scope::Keys(&keys), &prepared, 0).expect("a read");
    let refused =
        (0..100_u8).any(|i| matches!(access.get(0, &[b'x', i]), Err(Stop::Refused(StoreError::OutOfScope))));
    assert!(refused);
    assert!(matches!(access.len(0), Err(Stop::Refused(StoreError::OutOfScope))));
}

#[test]
fn value_beyond_its_limit_is_refused_by_name_and_leaves_no_trace() {
    let store = Store::open(Options {
        engine: EngineKind::Memory,
        value_bytes_max: 10,
        background: false,
        ..Options::default()
    })
    .expect("memory always opens");
    let (keys, prepared) = ([KeyRef { db: 0, key: b"k" }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1).expect("room");
    access.put(0, b"k", Value::String(b"0123456789"), None);
    let Err(Stop::Refused(error)) = access.commit() else { panic!("must be refused") };
    assert!(error.to_string().contains("value.max"), "{error}");
    assert_eq!(get(&store, b"k"), None);
}

#[test]
fn watch_sees_what_versions_would_miss() {
    let (store, clock) = open(128);
    let absent = store.watch(0, b"k");
    set(&store, b"other", b"v", None);
    del(&store, b"other");
    assert!(!changed(&store, &absent), "another key");
    set(&store, b"k", b"v", None);
    del(&store, b"k");
    assert!(changed(&store, &absent), "set and deleted again");

    set(&store, b"k", b"v", None);
    let flushed = store.watch(0, b"k");
    let untouched = store.watch(0, b"nothing");
    flush(&store);
    assert!(changed(&store, &flushed), "flushed");
    assert!(!changed(&store, &untouched), "flushed, though it was not there");

    set(&store, b"k", b"v", Some(clock.unix_ms().0 + 10));
    let expiring = store.watch(0, b"k");
    clock.advance(Duration::from_millis(10));
    assert!(changed(&store, &expiring), "expired, not yet removed");
    let expired = store.watch(0, b"k");
    assert!(!changed(&store, &expired), "had expired before");
    let live = store.watch(0, b"l");
    set(&store, b"l", b"v", None);
    flush(&store);
    assert!(!changed(&store, &expired), "flushed, but had expired before");
    assert!(changed(&store, &live));
    assert!(changed(&store, &expiring));

    set(&store, b"k", b"v", Some(clock.unix_ms().0 + 10));
    clock.advance(Duration::from_millis(10));
    let expired = store.watch(0, b"k");
    store.tend(100);
    assert!(!changed(&store, &expired), "removed, but had expired before");
}

/// FLUSHALL looked at each watched key with everything locked: half a million of them held all others up for half a second.
#[test]
fn flush_beside_very_many_watched_keys_changes_them_all_and_beside_few_those_that_were_there() {
    let (store, _) = open(128);
    set(&store, b"there", b"v", None);
    let few = [b"there".as_slice(), b"absent"].map(|key| store.watch(0, key));
    flush(&store);
    assert_eq!(few.each_ref().map(|watch| changed(&store, watch)), [true, false]);
    let names: Vec<[u8; 4]> = (0..40_000_u32).map(u32::to_le_bytes).collect();
    let many: Vec<store::Watch> = names.iter().map(|key| store.watch(0, key)).collect();
    let elsewhere = store.watch(1, b"absent");
    flush(&store);
    assert!(many.iter().all(|watch| changed(&store, watch)) && !changed(&store, &elsewhere));
    let again = store.watch(0, &names[0]);
    assert!(!changed(&store, &again), "it began after the flush");
    drop(many);
    assert!(!changed(&store, &again) && changed(&store, &few[0]));
}

#[test]
fn expired_key_is_removed_in_the_turn_it_is_due() {
    let (store, clock) = open(128);
    let now = clock.unix_ms().0;
    set(&store, b"a", b"v", Some(now + 5));
    set(&store, b"b", b"v", Some(now + 7));
    set(&store, b"c", b"v", None);
    assert_eq!(store.tend(100), Some(UnixMs(now + 5)));
    clock.advance(Duration::from_millis(5));
    assert_eq!(store.tend(100), Some(UnixMs(now + 7)));
    assert_eq!(store.key_counts()[0], (2, 1));
    clock.advance(Duration::from_millis(5));
    assert_eq!(store.tend(100), None);
    assert_eq!(store.key_counts()[0], (1, 0));
    assert_eq!(store.expired_keys(), 2);
}

#[test]
fn background_thread_removes_expired_keys_unasked() {
    let store = Store::open(Options { engine: EngineKind::Memory, ..Options::default() }).expect("opens");
    set(&store, b"long", b"v", Some(store.now().unix().0 + 100_000));
    set(&store, b"k", b"v", Some(store.now().unix().0 + 20));
    let deadline = store.now().unix().0 + 20_000;
    while store.key_counts()[0].0 == 2 {
        assert!(store.now().unix().0 < deadline, "never removed");
        std::thread::yield_now();
    }
    store.close();
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, u8, u8, Option<u8>),
    Remove(u16, u8),
    Expire(u16, u8, Option<u8>),
    Flush(u16),
    Swap(u16, u16),
    FlushAll,
    Abandon(u16, u8),
    Advance(u8),
    Tend,
}

fn step() -> impl Strategy<Value = Step> {
    let (db, key) = (0..2_u16, 0..40_u8);
    prop_oneof![
        12 => (db.clone(), key.clone(), any::<u8>(), proptest::option::of(1..30_u8))
            .prop_map(|(d, k, v, e)| Step::Put(d, k, v, e)),
        6 => (db.clone(), key.clone()).prop_map(|(d, k)| Step::Remove(d, k)),
        4 => (db.clone(), key.clone(), proptest::option::of(0..30_u8)).prop_map(|(d, k, e)| Step::Expire(d, k, e)),
        1 => db.clone().prop_map(Step::Flush),
        1 => (db.clone(), db.clone()).prop_map(|(a, b)| Step::Swap(a, b)),
        1 => Just(Step::FlushAll),
        1 => (db, key).prop_map(|(d, k)| Step::Abandon(d, k)),
        3 => (0..20_u8).prop_map(Step::Advance),
        2 => Just(Step::Tend),
    ]
}

type Model = [BTreeMap<u8, (Vec<u8>, Option<u64>)>; 3];

fn value_of(seed: u8) -> Vec<u8> {
    vec![seed; usize::from(seed) * 3]
}

/// Runs some steps as one access, on store and model alike.
fn run_group(store: &Store, clock: &SimClock, model: &mut Model, steps: &[Step]) {
    let prepared = Prepared::default();
    let now = clock.unix_ms().0;
    let mut access = store.access(Scope::Everything, &prepared, 1).expect("room");
    for map in model.iter_mut() {
        map.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now));
    }
    for step in steps {
        match *step {
            Step::Put(db, key, value, ttl) => {
                let expiry = ttl.map(|ttl| now + u64::from(ttl));
                access.put(
                    db,
                    &[key],
                    Value::String(&value_of(value)),
                    expiry.map(|at| Deadline::at(UnixMs(at))),
                );
                model[usize::from(db)].insert(key, (value_of(value), expiry));
            }
            Step::Remove(db, key) => {
                let removed = access.remove(db, &[key]).expect("hot");
                assert_eq!(removed, model[usize::from(db)].remove(&key).is_some());
            }
            Step::Expire(db, key, ttl) => {
                let expiry = ttl.map(|ttl| now + 1 + u64::from(ttl));
                let found =
                    access.set_expiry(db, &[key], expiry.map(|at| Deadline::at(UnixMs(at)))).expect("hot");
                let entry = model[usize::from(db)].get_mut(&key);
                assert_eq!(found, entry.is_some());
                entry.into_iter().for_each(|entry| entry.1 = expiry);
            }
            Step::Flush(db) => {
                access.flush(db).expect("in scope");
                model[usize::from(db)].clear();
            }
            Step::FlushAll => {
                access.flush_all().expect("in scope");
                model.iter_mut().for_each(BTreeMap::clear);
            }
            Step::Swap(a, b) => {
                access.swap(a, b).expect("in scope");
                model.swap(a.into(), b.into());
            }
            Step::Abandon(..) | Step::Advance(_) | Step::Tend => {}
        }
        compare(&access, model);
    }
    access.commit().expect("room");
}

fn compare(access: &store::Access<'_>, model: &Model) {
    for (db, map) in (0_u16..).zip(model) {
        for key in 0..40_u8 {
            let found = access.get(db, &[key]).expect("hot");
            let unix = |at| access.now().unix_of(at).0;
            let found = found.map(|found| (found.value.to_vec(), found.expiry.map(unix)));
            assert_eq!(found.as_ref(), map.get(&key), "db {db} key {key}");
        }
    }
}

fn scan_all(access: &store::Access<'_>, db: u16) -> Vec<u8> {
    let (mut keys, mut cursor) = (Vec::new(), 0);
    loop {
        cursor = access.scan(db, cursor, 5, &mut |key, _| keys.push(key[0])).expect("hot");
        if cursor == 0 {
            keys.sort_unstable();
            return keys;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn access_behaves_as_a_map_of_databases(
        bits in prop_oneof![Just(8_u32), Just(128)],
        groups in prop::collection::vec(prop::collection::vec(step(), 1..5), 1..40),
    ) {
        let (store, clock) = open(bits);
        let mut model = Model::default();
        for group in groups {
            run_group(&store, &clock, &mut model, &group);
            for step in &group {
                match *step {
                    Step::Advance(ms) => clock.advance(Duration::from_millis(ms.into())),
                    Step::Tend => {
                        store.tend(1_000);
                    }
                    Step::Abandon(db, key) => {
                        let prepared = Prepared::default();
                        let mut access = store.access(Scope::Everything, &prepared, 1).expect("room");
                        access.put(db, &[key], Value::String(b"abandoned"), None);
                        access.flush(1).expect("in scope");
                    }
                    _ => {}
                }
            }
            let now = clock.unix_ms().0;
            model.iter_mut().for_each(|map| map.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now)));
            store.tend(1_000);
            let prepared = Prepared::default();
            let access = store.access(Scope::Everything, &prepared, 0).expect("a read");
            compare(&access, &model);
            for (db, map) in (0_u16..).zip(&model) {
                prop_assert_eq!(access.len(db).expect("in scope"), map.len() as u64);
                prop_assert_eq!(scan_all(&access, db), map.keys().copied().collect::<Vec<_>>());
                let random = access.random_key(db).expect("hot");
                prop_assert_eq!(random.is_some(), !map.is_empty());
                prop_assert!(random.is_none_or(|key| map.contains_key(&key[0])));
            }
            drop(access);
            let walk = store.access(Scope::Walk, &prepared, 0).expect("a read");
            for (db, map) in (0_u16..).zip(&model) {
                prop_assert_eq!(walk.len(db).expect("in scope"), map.len() as u64);
                prop_assert_eq!(scan_all(&walk, db), map.keys().copied().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn scan_meets_every_key_that_stays_though_the_table_grows(
        bits in prop_oneof![Just(8_u32), Just(10), Just(128)],
        churn in prop::collection::vec((any::<u16>(), any::<bool>()), 0..3_000),
    ) {
        let (store, _) = open(bits);
        let stays: Vec<Vec<u8>> = (0..200_u32).map(|i| format!("stays-{i}").into_bytes()).collect();
        stays.iter().for_each(|key| set(&store, key, b"v", None));
        let (mut seen, mut cursor, mut churn) = (Vec::new(), 0, churn.into_iter());
        loop {
            let prepared = Prepared::default();
            let access = store.access(Scope::Walk, &prepared, 0).expect("a read");
            cursor = access.scan(0, cursor, 10, &mut |key, _| seen.push(key.to_vec())).expect("hot");
            drop(access);
            if cursor == 0 {
                break;
            }
            for (number, add) in churn.by_ref().take(100) {
                let key = format!("churn-{number}").into_bytes();
                if add { set(&store, &key, b"v", None) } else { del(&store, &key); }
            }
        }
        prop_assert!(stays.iter().all(|key| seen.contains(key)));
        let mut unique = seen.clone();
        unique.sort_unstable();
        unique.dedup();
        prop_assert_eq!(unique.len(), seen.len(), "a position is passed once");
    }
}

#[test]
fn commits_of_several_threads_keep_the_order_of_each_key() {
    let (store, _) = open(128);
    let newest = std::sync::Mutex::new(BTreeMap::<u8, u64>::new());
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let (store, newest) = (&store, &newest);
            scope.spawn(move || {
                for round in 0..2_000_u32 {
                    let key = [(round % 7) as u8 ^ thread];
                    let other = [key[0].wrapping_add(1)];
                    let keys = [KeyRef { db: 0, key: &key }, KeyRef { db: 0, key: &other }];
                    let prepared = Prepared::default();
                    let mut access = store.access(Scope::Keys(&keys), &prepared, 1).expect("room");
                    for key in [&key[..], &other] {
                        let seq = access.get(0, key).expect("hot").map_or(0, |found| found.seq.0);
                        let mut newest = newest.lock().expect("no panic");
                        let last = newest.entry(key[0]).or_default();
                        assert!(seq >= *last, "key {} went back from {last} to {seq}", key[0]);
                        *last = seq;
                        drop(newest);
                        access.put(0, key, Value::String(&round.to_le_bytes()), None);
                    }
                    access.commit().expect("room");
                }
            });
        }
    });
    assert_eq!(store.newest_seq().0, 16_000);
}

/// DBSIZE locked all stripes. Their sum, taken one by one, would count a key that moves meanwhile twice or not at all.
#[test]
fn count_without_locks_never_shows_half_of_a_move() {
    let (store, _) = open(128);
    (0..50).for_each(|n| set(&store, &[n, 0], b"v", None));
    let mover = || {
        for round in 0..5_000_u32 {
            let (n, side) = ((round % 50) as u8, (round / 50 % 2) as u8);
            let (from, to) = ([n, side], [n, 1 - side]);
            let keys = [KeyRef { db: 0, key: &from }, KeyRef { db: 0, key: &to }];
            let prepared = Prepared::default();
            let mut access = store.access(Scope::Keys(&keys), &prepared, 1).expect("room");
            assert!(access.remove(0, &from).expect("hot"));
            access.put(0, &to, Value::String(b"v"), None);
            access.commit().expect("room");
        }
    };
    std::thread::scope(|scope| {
        let mover = scope.spawn(mover);
        while !mover.is_finished() {
            let prepared = Prepared::default();
            let access = store.access(Scope::Walk, &prepared, 0).expect("a read");
            assert_eq!(access.len(0).expect("in scope"), 50);
            assert!(access.get(0, &[0, 0]).is_err(), "a walk holds no key");
        }
    });
}

#[test]
fn flushes_scans_and_writes_of_several_threads_end() {
    let store = Store::open(Options { engine: EngineKind::Memory, ..Options::default() })
        .expect("memory always opens");
    let now = store.now().unix().0;
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let store = &store;
            scope.spawn(move || {
                for round in 0..500_u64 {
                    let watch = store.watch(0, &[(round % 50) as u8]);
                    set(store, &[(round % 50) as u8], b"v", Some(now + round % 3));
                    get(store, &[(round * thread % 50) as u8]);
                    changed(store, &watch);
                    if round % 50 == thread {
                        flush(store);
                        let prepared = Prepared::default();
                        let access = store.access(Scope::Everything, &prepared, 0).expect("a read");
                        scan_all(&access, 0);
                        drop(access);
                        scan_all(&store.access(Scope::Walk, &prepared, 0).expect("a read"), 0);
                    }
                }
            });
        }
    });
    flush(&store);
    store.tend(1_000);
    assert_eq!(store.key_counts()[0], (0, 0));
    store.close();
}

#[test]
fn engine_noop_takes_every_change_and_finds_nothing() {
    let clock = Arc::new(SimClock::new(UnixMs(1_000_000)));
    let options = Options { engine: EngineKind::Noop, background: false, clock, ..Options::default() };
    let store = Store::open(options).expect("noop always opens");
    let watch = store.watch(0, b"key");
    set(&store, b"key", b"value", Some(2_000_000));
    assert_eq!(get(&store, b"key"), None);
    assert!(!del(&store, b"key") && !changed(&store, &watch));
    let (keys, prepared) = ([KeyRef { db: 0, key: b"key" }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1).expect("noop never refuses");
    assert!(!access.set_expiry(0, b"key", None).expect("nothing is found"));
    access.commit().expect("noop never refuses");
    flush(&store);
}

#[test]
fn overdue_key_that_must_stay_gives_the_tender_nothing_to_do() {
    // With DEBUG SET-ACTIVE-EXPIRE 0 one expired key kept the thread at work without a pause: it was due, and stayed.
    let (store, clock) = open(128);
    let now = clock.unix_ms().0;
    set(&store, b"k", b"v", Some(now + 5));
    clock.advance(Duration::from_millis(10));
    store.set_active_expiry(false);
    assert_eq!(store.tend(100), None);
    store.set_active_expiry(true);
    assert_eq!(store.tend(100), None);
    assert_eq!(store.expired_keys(), 1);
}

/// One command of a group, at the limit of memory.
#[derive(Clone, Debug)]
enum Charged {
    Set { key: u8, size: u16 },
    Expire { key: u8, at: bool },
    Del { key: u8 },
    Rename { from: u8, to: u8 },
}

fn charged() -> impl Strategy<Value = Charged> {
    let key = || 0_u8..40;
    prop_oneof![
        3 => (key(), 0_u16..40_000).prop_map(|(key, size)| Charged::Set { key, size }),
        4 => (key(), any::<bool>()).prop_map(|(key, at)| Charged::Expire { key, at }),
        1 => key().prop_map(|key| Charged::Del { key }),
        1 => (key(), key()).prop_map(|(from, to)| Charged::Rename { from, to }),
    ]
}

fn run_charged(store: &Store, group: &[Charged]) -> Result<Ticket, Stop> {
    let names: Vec<[u8; 1]> = (0_u8..40).map(|key| [key]).collect();
    let (prepared, db) = (Prepared::default(), 0);
    let keys: Vec<KeyRef<'_>> = names.iter().map(|key| KeyRef { db, key }).collect();
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1).expect("memory never refuses");
    for command in group {
        match *command {
            Charged::Set { key, size } => access.put(db, &[key], Value::String(&vec![7; size.into()]), None),
            Charged::Expire { key, at } => {
                _ = access
                    .set_expiry(db, &[key], at.then_some(Deadline::at(UnixMs(1_000_000_000))))
                    .expect("hot");
            }
            Charged::Del { key } => _ = access.remove(db, &[key]).expect("hot"),
            Charged::Rename { from, to } => {
                let value = access.get(db, &[from]).expect("hot").map(|found| found.value.to_vec());
                if let Some(value) = value {
                    access.put(db, &[to], Value::String(&value), None);
                    access.remove(db, &[from]).expect("hot");
                }
            }
        }
    }
    access.commit()
}

/// Effects were charged by the last command on their key: `MULTI`, `SET new`, `EXPIRE new 100`, `EXEC` stored whatever it
/// liked beyond `memory.limit`.
#[test]
fn value_that_a_group_stores_is_charged_whatever_the_group_does_to_its_key_after_that() {
    let (store, _) = open(128);
    set(&store, &[0], &[7; 20_000], None);
    store.set_memory_limit(1);
    let (new, old) = (Charged::Set { key: 1, size: 400 }, Charged::Set { key: 0, size: 10_000 });
    let (expire, persist) = (Charged::Expire { key: 1, at: true }, Charged::Expire { key: 1, at: false });
    for last in
        [std::slice::from_ref(&expire), std::slice::from_ref(&persist), &[expire.clone(), persist.clone()]]
    {
        let group = [std::slice::from_ref(&new), last].concat();
        let refused = run_charged(&store, &group).expect_err("it grows");
        assert!(matches!(refused, Stop::Refused(StoreError::MemoryLimit { .. })), "{refused:?} {group:?}");
    }
    let retime = Charged::Expire { key: 0, at: true };
    run_charged(&store, std::slice::from_ref(&retime)).expect("a key that is there gets another time");
    run_charged(&store, &[retime.clone(), old, retime]).expect("less than what is there");
    run_charged(&store, &[Charged::Rename { from: 0, to: 2 }]).expect("as much as what is there");
    run_charged(&store, &[new, Charged::Del { key: 1 }]).expect("nothing");
    run_charged(&store, &[Charged::Del { key: 2 }]).expect("a removal");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    /// With engine `memory` nothing leaves memory but by removal: at the limit no group may make it more, but for the times
    /// at which keys expire.
    #[test]
    fn no_group_of_commands_grows_memory_beyond_its_limit(
        groups in prop::collection::vec(prop::collection::vec(charged(), 1..6), 1..120)
    ) {
        const LIMIT: u64 = 400_000;
        let (store, _) = open(128);
        store.set_memory_limit(LIMIT + store.memory().used_bytes());
        let most = LIMIT + store.memory().used_bytes() + 6 * 41_000 + 40 * UNREPORTED_BYTES;
        for group in &groups {
            let before = store.memory().used_bytes();
            match run_charged(&store, group) {
                Ok(_) => prop_assert!(store.memory().used_bytes() <= most, "{group:?}"),
                Err(Stop::Refused(StoreError::MemoryLimit { .. })) => {
                    prop_assert_eq!(store.memory().used_bytes(), before);
                }
                Err(stop) => prop_assert!(false, "{stop:?}"),
            }
        }
    }
}

/// By how much the count of a stripe may be behind, and more than what the time of a key takes.
const UNREPORTED_BYTES: u64 = 4_096 + 256;
