//! What others may do while a claimed group is on its way, asked at each of its steps.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use clock::{Clock, SimClock, UnixMs};
use journal::{LogAddress, Seq};

use crate::engine::{Class, Credits, Engine};
use crate::error::{Stop, StoreError};
use crate::hash::{KeyHasher, STRIPES};
use crate::index::Index;
use crate::policy::{LEVEL_MAX, Round};
use crate::prepared::Fetched;
use crate::prepared::Wanted;
use crate::record::Draft;
use crate::sought::Sought;
use crate::testlog::TestLog;
use crate::{
    EngineKind, KeyRef, ListChange, Options, Part, Prepared, Scope, Staging, Store, Value, ValueKind,
    Workspace,
};

/// A log that looks at the store whenever it is called, if there are many records.
#[derive(Debug, Default)]
struct Probe {
    log: TestLog,
    store: OnceLock<Weak<Store>>,
    /// What others met at the append.
    met: Mutex<Vec<(&'static str, bool)>>,
    /// Most stripes that were locked at once while the group was applied, and how often that was looked at.
    stripes_max: AtomicUsize,
    looks: AtomicU64,
    /// Look at each append, also of one record.
    asks: AtomicBool,
    /// Evict everything at an append and when a change is applied, as if memory was short.
    evicts: AtomicBool,
}

impl Probe {
    fn store(&self) -> Option<Arc<Store>> {
        self.store.get().and_then(Weak::upgrade)
    }

    fn look(&self) {
        let Some(store) = self.store() else { return };
        let locked = (0..STRIPES).filter(|number| store.index.is_locked(*number)).count();
        self.stripes_max.fetch_max(locked, Ordering::Relaxed);
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    fn evict_all(&self) {
        if let Some(store) = self.store().filter(|_| self.evicts.load(Ordering::Relaxed)) {
            self.log.release(self.log.newest().0);
            (0..STRIPES).filter(|number| !store.index.is_locked(*number)).for_each(|number| {
                evict(&store, number);
            });
        }
    }

    fn ask(&self, store: &Arc<Store>) {
        let is_busy = |result: Result<(), Stop>| matches!(result, Err(Stop::Busy));
        let mut met = self.met.lock().expect("no panic");
        met.push(("a claimed key is read", !is_busy(read(store, &key(3)))));
        met.push(("another key is read", !is_busy(read(store, b"other"))));
        met.push(("a claimed key is written", !is_busy(put(store, &key(3)))));
        met.push(("a database is flushed", !is_busy(flush(store))));
        let mut workspace = store.workspace();
        store.touch(&mut workspace, &[KeyRef { db: 0, key: &key(4) }]).expect("room");
        let prepared = store.prepare("branch", &workspace, &Prepared::default());
        met.push(("a claimed key is prepared", prepared.is_ok_and(|it| matches!(it, Staging::Done { .. }))));
    }
}

impl Engine for Probe {
    fn reserve(&self, bytes: u64, records: u64, class: Class) -> Result<Credits, Stop> {
        self.log.reserve(bytes, records, class)
    }

    fn append(&self, credits: Credits, drafts: &[Draft<'_>], addresses: &mut [LogAddress]) -> Seq {
        let asks = drafts.len() > 1 || self.asks.load(Ordering::Relaxed);
        if let Some(store) = self.store().filter(|_| asks) {
            self.look();
            self.ask(&store);
        }
        self.evict_all();
        self.log.append(credits, drafts, addresses)
    }

    fn released(&self) -> Seq {
        self.log.released()
    }

    fn newest(&self) -> Seq {
        self.log.newest()
    }

    fn read(&self, sought: &Sought) -> Result<Fetched, StoreError> {
        self.log.read(sought)
    }

    fn has_addresses(&self) -> bool {
        true
    }

    fn on_live(&self, address: LogAddress, _bytes: u64) {
        if address.pack() > u64::from(KEYS) {
            self.look();
        }
    }

    fn on_dead(&self, _address: LogAddress, _bytes: u64) {
        self.evict_all();
    }
}

const KEYS: u8 = 100;

fn key(number: u8) -> [u8; 2] {
    [b'k', number]
}

fn open(bits: u32) -> (Arc<Store>, Arc<Probe>) {
    let clock = Arc::new(SimClock::new(UnixMs(1_000)));
    let options = Options {
        engine: EngineKind::Log,
        hash_bits: bits,
        background: false,
        claims_from: 10,
        clock: Arc::<SimClock>::clone(&clock) as Arc<dyn Clock>,
        ..Options::default()
    };
    let probe = Arc::<Probe>::default();
    let (index, hasher) = (Arc::new(Index::new(options.databases)), KeyHasher::new(&[9; 16], bits));
    let engine: Arc<dyn Engine> = Arc::<Probe>::clone(&probe);
    let store = Store::assemble(options, engine, index, hasher, 0, None).expect("no threads");
    probe.store.set(Arc::downgrade(&store)).expect("set once");
    (store, probe)
}

/// Turns what is clean in a stripe back into addresses.
fn evict(store: &Store, number: usize) {
    let mut stripe = store.index.lock(number);
    for at in 0.. {
        let Some((_, space)) = stripe.space_at_mut(at) else { return };
        let mut next = Some(0);
        while let Some(bits) = next {
            next = space
                .visit_words(bits, &mut |word, _| {
                    let mut round = Round::default();
                    (0..=LEVEL_MAX).for_each(|_| {
                        crate::memory::pass(word, store.newest_seq(), &mut round, false, |_| false);
                    });
                })
                .0;
        }
    }
}

fn read(store: &Store, key: &[u8]) -> Result<(), Stop> {
    let (keys, prepared) = ([KeyRef { db: 0, key }], Prepared::default());
    let access = store.access(Scope::Keys(&keys), &prepared, 0)?;
    access.meta(0, key).map(|_| ())
}

fn put(store: &Store, key: &[u8]) -> Result<(), Stop> {
    let (keys, prepared) = ([KeyRef { db: 0, key }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1)?;
    access.put(0, key, Value::String(b"v"), None);
    access.commit().map(|_| ())
}

fn flush(store: &Store) -> Result<(), Stop> {
    let prepared = Prepared::default();
    let mut access = store.access(Scope::Everything, &prepared, 1)?;
    access.flush(1)?;
    access.commit().map(|_| ())
}

/// Overwrites the first half of the keys and removes the rest, as one claimed group.
fn change_all(store: &Store) {
    let names: Vec<[u8; 2]> = (0..KEYS).map(key).collect();
    let keys: Vec<KeyRef<'_>> = names.iter().map(|key| KeyRef { db: 0, key }).collect();
    let mut prepared = Prepared::default();
    loop {
        let scope = Scope::Claimed { keys: &keys, writes: true };
        let mut access = store.access(scope, &prepared, 1).expect("room");
        for (n, key) in keys.iter().enumerate() {
            access.turn_to(&[*key]);
            if n < keys.len() / 2 {
                access.put(0, key.key, Value::String(b"new"), None);
            } else if let Err(stop) = access.remove(0, key.key) {
                assert!(matches!(stop, Stop::Cold), "{stop:?}");
            }
        }
        match access.commit() {
            Ok(_) => return,
            Err(Stop::Cold) => {}
            Err(stop) => panic!("{stop:?}"),
        }
        prepared.want(access.into_wanted());
        store.missing(&keys, &mut prepared);
        let (sender, receiver) = std::sync::mpsc::channel();
        store.fetch(prepared, Box::new(move |done| sender.send(done).expect("received below")));
        prepared = receiver.recv().expect("sent above");
    }
}

/// DEL of a million keys locked all stripes for seconds: each request of every other client waited.
#[test]
fn claimed_group_locks_one_stripe_at_a_time_and_shows_nothing_before_it_is_applied_whole() {
    let (store, probe) = open(128);
    (0..KEYS).for_each(|n| put(&store, &key(n)).expect("room"));
    change_all(&store);
    let met = [
        ("a claimed key is read", false),
        ("another key is read", true),
        ("a claimed key is written", false),
        ("a database is flushed", false),
        ("a claimed key is prepared", false),
    ];
    assert_eq!(*probe.met.lock().expect("no panic"), met);
    assert_eq!(probe.stripes_max.load(Ordering::Relaxed), 1);
    assert_eq!(probe.looks.load(Ordering::Relaxed), 1 + u64::from(KEYS) / 2, "each change was looked at");
    assert_eq!(store.keys_of(0), u64::from(KEYS) / 2);
    assert!((0..STRIPES).all(|number| store.index.lock(number).locks.is_none()), "claims are let go");
    assert!(read(&store, &key(3)).is_ok() && put(&store, &key(3)).is_ok() && flush(&store).is_ok());
    assert_eq!(store.claim_report().claims, 1);
    assert!(store.claim_report().waits >= 4, "{:?}", store.claim_report());
}

/// Between plan and apply a key's value may leave memory: what the plan found is looked for anew, in the log if need be.
#[test]
fn keys_whose_values_are_evicted_while_a_claimed_group_is_applied_are_changed_all_the_same() {
    for bits in [8, 12, 128] {
        let (store, probe) = open(bits);
        (0..KEYS).for_each(|n| put(&store, &key(n)).expect("room"));
        probe.evicts.store(true, Ordering::Relaxed);
        change_all(&store);
        assert_eq!(store.keys_of(0), u64::from(KEYS) / 2, "{bits} bits");
        let census = store.census();
        assert_eq!(census.databases[0].0, u64::from(KEYS) / 2, "{bits} bits");
    }
}

/// A reply in parts was cut: leaves that had left memory between plan and apply were not kept as they were.
#[test]
fn who_reads_a_list_in_parts_reads_on_when_its_leaves_are_evicted_while_a_claimed_group_is_applied() {
    let (store, probe) = open(128);
    let (name, keys) = (b"list", [KeyRef { db: 0, key: b"list" }]);
    let elements: Vec<Vec<u8>> =
        (0..600).map(|n| if n % 3 == 0 { vec![b'x'] } else { vec![n as u8; 60] }).collect();
    let change = |changes: &[ListChange<'_>]| {
        let mut prepared = Prepared::default();
        loop {
            let scope = Scope::Claimed { keys: &keys, writes: true };
            let mut access = store.access(scope, &prepared, 1).expect("room");
            access.turn_to(&keys);
            let changed = access.change_list(0, name, changes).and_then(|_| access.commit());
            match changed {
                Ok(_) => return,
                Err(Stop::Cold) => {
                    let wanted = access.into_wanted();
                    prepared = fetched(&store, prepared, wanted);
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
    };
    for element in &elements {
        change(&[ListChange::PushBack(element)]);
    }
    let none = Prepared::default();
    let access = store.access(Scope::Keys(&keys), &none, 0).expect("room");
    let snapshot =
        access.snapshot(0, name, ValueKind::List).expect("hot").expect("a list").expect("in leaves");
    drop(access);
    probe.evicts.store(true, Ordering::Relaxed);
    change(&[ListChange::RemoveEqual { value: b"x", most: 100, from_back: false }]);
    let (mut told, mut left, mut prepared) = (Vec::new(), 0..600, Prepared::default());
    while !left.is_empty() {
        let part = Part { prepared: &prepared, bytes_max: 4096 };
        let tell = |(element, _): (&[u8], &[u8])| told.push(element.to_vec());
        match snapshot.read_range(&store, part, left.clone(), false, tell) {
            Ok(rest) => left = rest,
            Err((Stop::Cold, wanted)) => prepared = fetched(&store, prepared, wanted),
            Err((stop, _)) => panic!("{stop:?}"),
        }
    }
    assert!(told == elements, "{} elements", told.len());
}

fn fetched(store: &Store, mut prepared: Prepared, wanted: Wanted) -> Prepared {
    prepared.want(wanted);
    let (sender, receiver) = std::sync::mpsc::channel();
    store.fetch(prepared, Box::new(move |done| sender.send(done).expect("received below")));
    receiver.recv().expect("sent above")
}

/// TX.COMMIT of half a million keys locked all stripes for seconds, and on a loop.
#[test]
fn branch_of_many_keys_locks_one_stripe_at_a_time_when_it_prepares_and_ends() {
    let (store, probe) = open(128);
    (0..KEYS).for_each(|n| put(&store, &key(n)).expect("room"));
    let names: Vec<[u8; 2]> = (0..KEYS).map(key).collect();
    let keys: Vec<KeyRef<'_>> = names.iter().map(|key| KeyRef { db: 0, key }).collect();
    let prepared = Prepared::default();
    let stage_all = || {
        let mut workspace = store.workspace();
        store.touch(&mut workspace, &keys).expect("room");
        let scope = Scope::Claimed { keys: &keys, writes: false };
        let mut access = store.access(scope, &prepared, 0).expect("room");
        access.resume(&workspace);
        keys.iter().for_each(|key| access.put(0, key.key, Value::String(b"new"), None));
        access.keep(&mut workspace).expect("room");
        access_again(&store, &keys, &mut workspace);
        workspace
    };
    let of_claimed = |reads| {
        let seen = [("a claimed key is read", reads), ("another key is read", true)];
        let not = ["a claimed key is written", "a database is flushed", "a claimed key is prepared"];
        seen.into_iter().chain(not.map(|what| (what, false))).collect::<Vec<_>>()
    };
    let met = || std::mem::take(&mut *probe.met.lock().expect("no panic"));
    probe.asks.store(true, Ordering::Relaxed);
    for commits in [true, false] {
        let workspace = stage_all();
        let done = store.prepare("tx", &workspace, &prepared).expect("room");
        assert!(matches!(done, Staging::Done { .. }), "{done:?}");
        assert_eq!(met(), of_claimed(true), "a prepare changes no key");
        assert_eq!(store.locked_keys(), u64::from(KEYS));
        let end = if commits { Store::commit_prepared } else { Store::rollback_prepared };
        assert!(end(&store, "tx", &prepared).expect("room").is_some());
        assert_eq!(met(), of_claimed(!commits), "commits: {commits}");
        assert_eq!(store.locked_keys(), 0);
        assert!(end(&store, "tx", &prepared).expect("room").is_none(), "it has ended");
    }
    let done = store.commit_staged(&stage_all(), &prepared).expect("room");
    assert!(matches!(done, Staging::Done { .. }), "{done:?}");
    assert_eq!(met(), of_claimed(false));
    assert_eq!(probe.stripes_max.load(Ordering::Relaxed), 1);
    assert!((0..STRIPES).all(|number| store.index.lock(number).locks.is_none()), "claims are let go");
}

/// A later command of the transaction sees what it has staged.
fn access_again(store: &Store, keys: &[KeyRef<'_>], workspace: &mut Workspace) {
    let prepared = Prepared::default();
    let mut access = store.access(Scope::Claimed { keys, writes: false }, &prepared, 0).expect("room");
    access.resume(workspace);
    for key in keys {
        access.turn_to(&[*key]);
        let found = access.get(0, key.key).expect("hot").expect("staged");
        assert_eq!(found.value, b"new");
    }
    access.keep(workspace).expect("room");
}

#[test]
fn claim_to_read_lets_others_read_and_dropped_it_lets_them_write() {
    let (store, _) = open(128);
    put(&store, &key(1)).expect("room");
    let names = [key(1), key(2)];
    let keys = names.each_ref().map(|key| KeyRef { db: 0, key });
    let prepared = Prepared::default();
    let claim = |writes| store.access(Scope::Claimed { keys: &keys, writes }, &prepared, 0).expect("room");
    let reading = claim(false);
    let also = claim(false);
    assert!(read(&store, &key(1)).is_ok() && matches!(put(&store, &key(1)), Err(Stop::Busy)));
    assert!(matches!(flush(&store), Err(Stop::Busy)), "what was read would be gone");
    drop(reading);
    assert!(matches!(put(&store, &key(2)), Err(Stop::Busy)), "of one of them");
    drop(also);
    let writing = claim(true);
    assert!(read(&store, &key(1)).is_ok(), "nothing is appended yet");
    drop(writing);
    assert!(put(&store, &key(1)).is_ok() && flush(&store).is_ok());
}
