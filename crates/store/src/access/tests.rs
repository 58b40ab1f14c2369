//! Access over a log whose releasing, evicting and crashing the test owns.

mod memory;
mod model;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clock::{SimClock, UnixMs};
use journal::Keyspace;

use crate::hash::KeyHasher;
use crate::index::Index;
use crate::testlog::TestLog;
use crate::{
    Deadline, EngineKind, KeyRef, Moment, Options, Prepared, Scope, Stop, Store, StoreError, Value,
    ValueKind, record,
};

struct Bench {
    store: Arc<Store>,
    log: Arc<TestLog>,
    clock: Arc<SimClock>,
    hasher: KeyHasher,
}

const DATABASES: u16 = 2;
const KEYS: u8 = 24;

fn options(clock: &Arc<SimClock>, bits: u32) -> Options {
    Options {
        engine: EngineKind::Log,
        databases: DATABASES,
        hash_bits: bits,
        background: false,
        expiry_delta_bytes_min: 20,
        clock: Arc::<SimClock>::clone(clock),
        ..Options::default()
    }
}

impl Bench {
    fn new(bits: u32) -> Self {
        let clock = Arc::new(SimClock::new(UnixMs(1_000)));
        let hasher = KeyHasher::new(&[9; 16], bits);
        Self::over(TestLog::default(), Index::new(DATABASES), clock, hasher, bits)
    }

    fn over(log: TestLog, index: Index, clock: Arc<SimClock>, hasher: KeyHasher, bits: u32) -> Self {
        let log = Arc::new(log);
        let options = options(&clock, bits);
        let store =
            Store::assemble(options, Arc::<TestLog>::clone(&log), Arc::new(index), hasher.clone(), 0, None)
                .expect("no threads");
        Self { store, log, clock, hasher }
    }

    /// Prepares and executes as the server does; returns the ticket and what `body` made of it.
    fn run<T>(
        &self,
        scope: Scope<'_>,
        mut body: impl FnMut(&mut crate::Access<'_>) -> Result<T, Stop>,
    ) -> (u64, T) {
        let mut prepared = Prepared::default();
        for _ in 0..100 {
            if let Scope::Keys(keys) = scope
                && !self.store.missing(keys, &mut prepared)
            {
                prepared = self.fetched(prepared);
            }
            let mut access = self.store.access(scope, &prepared, 1).expect("room");
            let result = body(&mut access);
            let wanted = match result {
                Err(Stop::Cold) => access.into_wanted(),
                Err(stop) => panic!("{stop:?}"),
                Ok(value) => match access.commit() {
                    Ok(ticket) => return (ticket.pack(), value),
                    Err(Stop::Cold) => continue,
                    Err(stop) => panic!("{stop:?}"),
                },
            };
            prepared.want(wanted);
            prepared = self.fetched(prepared);
        }
        panic!("never all prepared");
    }

    fn fetched(&self, prepared: Prepared) -> Prepared {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.store.fetch(prepared, Box::new(move |done| sender.send(done).expect("received below")));
        receiver.recv().expect("sent above")
    }

    fn set(&self, key: &[u8], value: &[u8], expiry: Option<u64>) -> u64 {
        let keys = [KeyRef { db: 0, key }];
        let put = |access: &mut crate::Access<'_>| {
            access.put(0, key, Value::String(value), expiry.map(|at| Deadline::at(UnixMs(at))));
            Ok(())
        };
        self.run(Scope::Keys(&keys), put).0
    }

    /// Sets `key`, so that it can leave memory.
    fn set_released(&self, key: &[u8], value: &[u8]) {
        self.log.release(self.set(key, value, None));
    }

    fn get(&self, key: &[u8]) -> (u64, Option<Vec<u8>>) {
        let keys = [KeyRef { db: 0, key }];
        self.run(Scope::Keys(&keys), |access| Ok(access.get(0, key)?.map(|found| found.value.to_vec())))
    }

    /// Reads `keys`, which are there, in one command that has nothing to write.
    fn read(&self, keys: &[Vec<u8>]) {
        let keys: Vec<_> = keys.iter().map(|key| KeyRef { db: 0, key }).collect();
        let mut prepared = Prepared::default();
        // again where a value left memory to make room for what was read
        for _ in 0..keys.len() {
            while !self.store.missing(&keys, &mut prepared) {
                prepared = self.fetched(prepared);
            }
            let access = self.store.access(Scope::Keys(&keys), &prepared, 0).expect("reads need no room");
            let found: Result<Vec<bool>, Stop> =
                keys.iter().map(|key| access.get(0, key.key).map(|found| found.is_some())).collect();
            match found {
                Ok(found) => return assert!(found.iter().all(|found| *found)),
                Err(stop) => assert!(matches!(stop, Stop::Cold), "{stop:?}"),
            }
        }
        panic!("never all in memory");
    }

    fn del(&self, key: &[u8]) -> (u64, bool) {
        let keys = [KeyRef { db: 0, key }];
        self.run(Scope::Keys(&keys), |access| access.remove(0, key))
    }

    /// Drops everything clean from memory.
    fn evict(&self) {
        self.store.set_memory_limit(1);
        self.store.memory.make_room(self.store.accounts(), usize::MAX, 0);
        self.store.set_memory_limit(0);
    }
}

#[test]
fn every_answer_waits_for_what_it_looked_at() {
    let bench = Bench::new(128);
    let set = bench.set(b"k", b"v", None);
    assert_eq!(set, 1);
    assert_eq!(bench.get(b"k"), (1, Some(b"v".to_vec())), "a value not yet durable");
    assert_eq!(bench.get(b"other"), (0, None), "never there");
    bench.log.release(1);
    assert_eq!(bench.get(b"k").0, 0);
    assert_eq!(bench.del(b"k"), (2, true));
    assert_eq!(bench.get(b"k"), (2, None), "an absence that a crash could take back");
    assert_eq!(bench.del(b"k"), (2, false));
    let len = bench.run(Scope::Everything, |access| access.len(0));
    assert_eq!(len, (2, 0), "a whole-keyspace answer");
    bench.log.release(2);
    assert_eq!(bench.get(b"k"), (0, None));
    bench.store.tend(10);
    assert_eq!(
        bench
            .store
            .index
            .lock(bench.hasher.hash(b"k").stripe())
            .space(Keyspace(1))
            .expect("used")
            .table
            .slots(),
        0
    );
}

#[test]
fn flush_is_one_record_that_every_answer_waits_for() {
    let bench = Bench::new(128);
    for i in 0..50_u8 {
        bench.set(&[i], b"v", None);
    }
    bench.log.release(50);
    let (ticket, ()) = bench.run(Scope::Everything, |access| access.flush(0));
    assert_eq!((ticket, bench.store.newest_seq().0), (51, 51));
    assert_eq!(bench.get(&[1]), (51, None));
    bench.set(&[1], b"new", None);
    let (_, index) = bench.log.recover(52, &bench.hasher, DATABASES);
    assert_eq!(
        index
            .lock(bench.hasher.hash(&[1]).stripe())
            .space(index.keyspace(0).expect("db 0"))
            .expect("used")
            .table
            .live,
        1
    );
}

#[test]
fn cold_keys_are_read_before_they_are_overwritten_or_removed() {
    for bits in [8, 128] {
        let bench = Bench::new(bits);
        (0..100_u8).for_each(|i| {
            bench.set(&[i], &[i; 50], None);
        });
        bench.log.release(100);
        bench.evict();
        let keys = [KeyRef { db: 0, key: &[7] }];
        assert!(!bench.store.missing(&keys, &mut Prepared::default()), "cold");
        let unprepared = Prepared::default();
        let mut access = bench.store.access(Scope::Keys(&keys), &unprepared, 1).expect("room");
        access.put(0, &[7], Value::String(b"new"), None);
        assert!(matches!(access.commit(), Err(Stop::Cold)));
        bench.set(&[7], b"new", None);
        assert_eq!(bench.get(&[7]).1.as_deref(), Some(&b"new"[..]));
        assert_eq!(bench.get(&[8]).1, Some(vec![8; 50]));
        assert!(bench.store.missing(&[KeyRef { db: 0, key: &[8] }], &mut Prepared::default()), "hot again");
        assert!(bench.del(&[9]).1);
        let (_, len) = bench.run(Scope::Everything, |access| access.len(0));
        assert_eq!(len, 99);
    }
}

/// Sliding sessions: each EXPIRE of a long value added a delta that stayed, and that no figure of memory knew.
#[test]
fn expiry_that_is_changed_again_and_again_is_one_delta_which_memory_counts() {
    let bench = Bench::new(128);
    let each = |f: &dyn Fn(&mut crate::Access<'_>, &[u8])| {
        for key in 0..100_u8 {
            bench.run(Scope::Keys(&[KeyRef { db: 0, key: &[key] }]), |access| {
                f(access, &[key]);
                Ok(())
            });
        }
    };
    let retime = |at: u64| {
        each(&|access, key| {
            let found = access.set_expiry(0, key, Some(Deadline::at(UnixMs(9_000 + at))));
            assert!(found.expect("hot"));
        });
    };
    let index_bytes = || bench.store.memory().index_bytes;
    each(&|access, key| access.put(0, key, Value::String(&[7; 200]), Some(Deadline::at(UnixMs(9_000)))));
    let bare = index_bytes();
    retime(1);
    let once = index_bytes();
    (2..20).for_each(retime);
    let per_key = (once - bare) / 100;
    assert!((60..300).contains(&per_key), "{per_key} B a key are counted, one in nearly each stripe");
    assert_eq!(index_bytes(), once, "after many as after one");
}

#[test]
fn server_time_goes_on_whatever_the_wall_clock_does() {
    let bench = Bench::new(128);
    bench.clock.advance(Duration::from_millis(500));
    assert_eq!(bench.store.now(), Moment::new(1_500, UnixMs(1_500)));
    bench.clock.set_unix_ms(UnixMs(3));
    assert_eq!(bench.store.now(), Moment::new(1_500, UnixMs(3)));
    bench.clock.advance(Duration::from_millis(2));
    bench.clock.set_unix_ms(UnixMs(7_000));
    assert_eq!(bench.store.now(), Moment::new(1_502, UnixMs(7_000)));
}

#[test]
fn expiry_of_a_long_value_is_a_small_record_that_recovery_puts_back() {
    let bench = Bench::new(128);
    let keys = [KeyRef { db: 0, key: b"k" }];
    bench.set(b"k", &[1; 100], None);
    bench.run(Scope::Keys(&keys), |access| access.set_expiry(0, b"k", Some(Deadline::at(UnixMs(5_000)))));
    bench.run(Scope::Keys(&keys), |access| access.set_expiry(0, b"k", Some(Deadline::at(UnixMs(6_000)))));
    bench.log.release(3);
    bench.evict();
    let expiry =
        |bench: &Bench| bench.run(Scope::Keys(&keys), |access| Ok(access.get(0, b"k")?.map(|f| f.expiry))).1;
    assert_eq!(expiry(&bench), Some(Some(Deadline::at(UnixMs(6_000)))));
    let (log, index) = bench.log.recover(3, &bench.hasher, DATABASES);
    let again = Bench::over(log, index, Arc::clone(&bench.clock), bench.hasher.clone(), 128);
    assert_eq!(expiry(&again), Some(Some(Deadline::at(UnixMs(6_000)))));
    again.clock.advance(Duration::from_millis(5_000));
    again.store.tend(10);
    assert_eq!(again.get(b"k").1, None);
    assert_eq!(again.store.expired_keys(), 1);
    again.log.release(again.store.newest_seq().0);
    assert_eq!(again.store.tend(10), None, "entries that no key has any more are gone");
}

/// Half of all cursors were 2^63 or more: redis_exporter, which reads them as signed numbers, never ended. Some clients have
/// numbers of 53 bits.
#[test]
fn cursors_fit_into_what_clients_read_them_as_and_older_ones_are_still_taken() {
    let bench = Bench::new(128);
    (0..600_u16).for_each(|i| {
        bench.set(&i.to_le_bytes(), b"v", None);
    });
    let scan = |from: u64| {
        let (_, found) = bench.run(Scope::Everything, |access| {
            let mut keys = Vec::new();
            let next = access.scan(0, from, 1, &mut |key, _| keys.push(key.to_vec()))?;
            Ok((keys, next))
        });
        found
    };
    let (mut seen, mut cursor, mut most) = (std::collections::BTreeSet::new(), 0, 0);
    loop {
        let (keys, next) = scan(cursor);
        assert_eq!(scan(cursor << 24), (keys.clone(), next), "as an earlier release wrote {cursor}");
        keys.into_iter().for_each(|key| assert!(seen.insert(key), "met once"));
        assert!(next == 0 || next > cursor, "{next} after {cursor}");
        (cursor, most) = (next, most.max(next));
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen.len(), 600);
    assert!((1 << 39..1 << 40).contains(&most), "{most}");
    assert_eq!(scan(u64::MAX).1, 0);
}

/// Matching a long key against a pattern takes long: a SCAN of 10,000 slots looked at all of them nevertheless.
#[test]
fn scan_ends_early_when_what_it_visits_takes_long_and_goes_on_behind_it() {
    let bench = Bench::new(128);
    let name = |i: u32| [&i.to_le_bytes()[..], &vec![b'x'; 100_000 * (i as usize % 2)]].concat();
    (0..300).for_each(|i| {
        bench.set(&name(i), b"v", None);
    });
    let (mut seen, mut cursor, mut most) = (0, 0, 0);
    loop {
        let (_, (keys, next)) = bench.run(Scope::Everything, |access| {
            let mut keys = 0;
            let next = access.scan_weighed(0, cursor, 1_000, &mut |key, _| {
                keys += 1;
                key.len() / 100
            })?;
            Ok((keys, next))
        });
        (seen, most, cursor) = (seen + keys, most.max(keys), next);
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(seen, 300);
    assert!(most <= 40, "{most} keys at once");
}

#[test]
fn scan_reads_the_cold_keys_that_it_shows_and_keeps_to_its_budget() {
    for bits in [8, 12, 128] {
        let bench = Bench::new(bits);
        (0..600_u16).for_each(|i| {
            bench.set(&i.to_le_bytes(), b"v", None);
        });
        bench.log.release(600);
        bench.evict();
        let (mut seen, mut cursor) = (std::collections::BTreeSet::new(), 0);
        loop {
            let (_, (keys, next)) = bench.run(Scope::Everything, |access| {
                let mut keys = Vec::new();
                let next = access.scan(0, cursor, 10, &mut |key, _| keys.push(key.to_vec()))?;
                Ok((keys, next))
            });
            assert!(bits < 128 || keys.len() <= 10);
            keys.into_iter().for_each(|key| assert!(seen.insert(key), "met once"));
            cursor = next;
            if cursor == 0 {
                break;
            }
        }
        assert_eq!(seen.len(), 600, "{bits} bits");
        assert!(bench.run(Scope::Everything, |access| access.random_key(0)).1.is_some());
    }
}

#[test]
fn collection_is_folded_from_image_and_deltas_when_it_is_cold() {
    for bits in [8, 128] {
        let bench = Bench::new(bits);
        let keys = [KeyRef { db: 0, key: b"c" }];
        bench.set(b"beside", b"v", None);
        let large = "x".repeat(4_000);
        for (field, value) in [("large", &*large), ("a", "1"), ("b", "2"), ("a", "3")] {
            bench.run(Scope::Keys(&keys), |access| {
                field_set(access, 0, b"c", field.as_bytes(), value.as_bytes())
            });
        }
        bench.run(Scope::Keys(&keys), |access| field_delete(access, 0, b"c", b"b"));
        bench.run(Scope::Keys(&keys), |access| field_delete(access, 0, b"c", b"none"));
        assert_eq!(bench.store.newest_seq().0, 6, "one record each, none of what changes nothing");
        let kinds: Vec<_> = (2..=6).map(|seq| bench.log.kind_at(seq)).collect();
        assert_eq!(kinds, [&[record::HASH][..], &[record::CHANGE; 4]].concat());
        bench.log.release(6);
        bench.evict();
        let expected = BTreeMap::from([(b"a".to_vec(), b"3".to_vec()), (b"large".to_vec(), large.into())]);
        let (log, index) = bench.log.recover(6, &bench.hasher, DATABASES);
        let again = Bench::over(log, index, Arc::clone(&bench.clock), bench.hasher.clone(), bits);
        for bench in [&bench, &again] {
            let found = bench.run(Scope::Everything, |access| fields(access, 0, b"c")).1;
            assert_eq!(found.as_ref(), Some(&expected));
            bench.evict();
            assert_eq!(
                bench.run(Scope::Keys(&keys), |access| fields(access, 0, b"c")).1.as_ref(),
                Some(&expected)
            );
        }
    }
}

/// With data of 20 times the memory each stay of a leaf in memory added a change or two, so that a cold HGET took 11 reads, and a ZRANK 54.
#[test]
fn collection_that_was_read_for_a_change_is_written_whole_if_changes_lie_on_it() {
    let bench = Bench::new(128);
    let keys = [KeyRef { db: 0, key: b"c" }];
    let put = |value: &str| {
        bench.run(Scope::Keys(&keys), |access| field_set(access, 0, b"c", b"field", value.as_bytes()));
        bench.log.release(bench.store.newest_seq().0);
    };
    bench
        .run(Scope::Keys(&keys), |access| field_set(access, 0, b"c", b"large", "x".repeat(4_000).as_bytes()));
    for round in 0..7 {
        put(&round.to_string());
        bench.evict();
    }
    put("hot");
    put("still");
    let kinds: Vec<_> = (1..=10).map(|seq| bench.log.kind_at(seq)).collect();
    let (whole, change) = (record::HASH, record::CHANGE);
    assert_eq!(kinds, [whole, change, change, whole, change, change, whole, change, change, change]);
    // beside the loops each lookup reads for itself
    let beside = Scope::Claimed { keys: &keys, writes: true };
    for value in ["beside", "again"] {
        bench.evict();
        bench.run(beside, |access| {
            access.look_briefly();
            field_set(access, 0, b"c", b"field", value.as_bytes())
        });
        bench.log.release(bench.store.newest_seq().0);
    }
    assert_eq!([11, 12].map(|seq| bench.log.kind_at(seq)), [whole, change]);
}

fn field_set(
    access: &mut crate::Access<'_>,
    db: u16,
    key: &[u8],
    field: &[u8],
    value: &[u8],
) -> Result<(), Stop> {
    let put = |hash: &mut crate::Edit<'_>, tag| hash.put(tag, field, value);
    if access.edit_element(db, key, ValueKind::Hash, field, put)?.is_err() {
        access.remove(db, key)?;
        access.edit_element(db, key, ValueKind::Hash, field, put)?.expect("nothing is there");
    }
    Ok(())
}

fn field_delete(access: &mut crate::Access<'_>, db: u16, key: &[u8], field: &[u8]) -> Result<bool, Stop> {
    let deleted =
        access.edit_element(db, key, ValueKind::Hash, field, |hash, tag| hash.delete(tag, field))?;
    Ok(deleted.unwrap_or(false))
}

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

fn fields(access: &crate::Access<'_>, db: u16, key: &[u8]) -> Result<Option<Fields>, Stop> {
    let Ok(hash) = access.collection(db, key, ValueKind::Hash)? else { return Ok(None) };
    let fields: BTreeMap<_, _> = hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
    Ok((!fields.is_empty()).then_some(fields))
}

#[test]
fn overdue_keys_that_a_full_disk_keeps_give_the_tender_a_pause() {
    // A removal found no room in the log, so its key stayed overdue, so the next turn was due at once: the thread that
    // tends kept a core busy until somebody freed space.
    let bench = Bench::new(128);
    bench.set(b"k", b"v", Some(1_005));
    bench.set(b"also", b"v", Some(1_006));
    bench.set(b"later", b"v", Some(9_000));
    bench.clock.advance(Duration::from_millis(10));
    bench.log.fill(true);
    assert_eq!(bench.store.tend(10), Some(UnixMs(1_110)), "not in the past");
    assert_eq!(bench.store.tend(1), Some(UnixMs(1_110)), "nor when the budget ran out on it");
    assert_eq!(bench.get(b"k").1, None, "nobody sees it");
    bench.log.fill(false);
    bench.clock.advance(Duration::from_millis(100));
    assert_eq!(bench.store.tend(1), Some(UnixMs(1_006)), "there is room: on at once");
    bench.store.tend(1);
    assert_eq!(bench.store.expired_keys(), 2);
    bench.log.release(5);
    bench.store.tend(10);
    assert_eq!(bench.store.tend(10), Some(UnixMs(9_000)));
}

/// A script meets keys that its request does not name.
#[test]
fn key_beyond_the_scope_is_included_if_nobody_holds_its_stripe() {
    let bench = Bench::new(128);
    let stripe = |key: &[u8]| bench.hasher.hash(key).stripe();
    let names: Vec<String> = (0..100).map(|n| format!("key{n}")).collect();
    let other = |from: &[u8]| {
        let name = names.iter().find(|name| stripe(name.as_bytes()) != stripe(from)).expect("of 256 stripes");
        KeyRef { db: 0, key: name.as_bytes() }
    };
    let (named, prepared) = (KeyRef { db: 0, key: b"named" }, Prepared::default());
    let (beyond, keys) = (other(named.key), [named]);
    let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 10).expect("there is room");
    assert!(matches!(access.get(0, beyond.key), Err(Stop::Refused(StoreError::OutOfScope))));
    let held = bench.store.index.lock(stripe(beyond.key));
    assert!(!access.include(beyond), "it would have to wait");
    drop(held);
    assert!(access.include(named) && access.include(beyond));
    for key in [named, beyond] {
        access.put(key.db, key.key, Value::String(b"v"), None);
    }
    access.commit().expect("there is room");
    let both = [named, beyond];
    let access = bench.store.access(Scope::Keys(&both), &prepared, 0).expect("there is room");
    for key in both {
        assert_eq!(access.get(key.db, key.key).expect("hot").expect("there").value, b"v");
    }
}
