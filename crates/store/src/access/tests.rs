//! Access over a log whose releasing, evicting and crashing the test owns.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SimClock, UnixMs};
use journal::Keyspace;
use proptest::prelude::*;

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
        self.store.memory.make_room(&self.store.index, &*self.store.engine, usize::MAX, 0);
        self.store.set_memory_limit(0);
    }
}

/// SET of 8 MiB on an event loop went through up to 16,384 pages, again at each try, while all its other clients waited: a PING for 3.8 s.
#[test]
fn thread_that_others_wait_for_looks_at_few_pages_for_a_large_value() {
    let bench = Bench::new(128);
    let fill = || {
        (0..20_000_u32).for_each(|n| _ = bench.set(&n.to_be_bytes(), &[b'v'; 100], None));
        bench.log.release(bench.store.newest_seq().0);
    };
    fill();
    let before_bytes = bench.store.memory().index_bytes;
    bench.store.set_memory_limit(before_bytes * 16 / 15);
    let (bytes, mut awaited) = (before_bytes / 4, None);
    for _ in 0..2 {
        let busy = bench.store.reserve_memory_soon(bytes, false, &mut awaited);
        assert!(matches!(busy, Err(Stop::Busy)) && awaited.is_some(), "{busy:?}");
        let left_bytes = bench.store.memory().index_bytes;
        assert!(left_bytes > before_bytes * 3 / 4, "{left_bytes} of {before_bytes} B are left");
    }
    bench.store.tend(0);
    let reserved = bench.store.reserve_memory_soon(bytes, false, &mut awaited).expect("it was found");
    assert!(awaited.is_none() && bench.store.memory().large_bytes == 2 * bytes);
    // who is gone before or after it is found leaves nothing
    for tends in [false, true] {
        assert!(bench.store.reserve_memory_soon(bytes, false, &mut awaited).is_err());
        if tends {
            bench.store.tend(0);
        }
        awaited = None;
        bench.store.tend(0);
        assert_eq!(bench.store.memory().large_bytes, 2 * bytes);
    }
    drop(reserved);
    let refill = || {
        bench.store.set_memory_limit(0);
        fill();
        bench.store.set_memory_limit(before_bytes * 16 / 15);
    };
    // what was found for another size is given back when there is no room for this one: it would be what he waits for
    refill();
    assert!(bench.store.reserve_memory_soon(bytes, false, &mut awaited).is_err());
    bench.store.tend(0);
    assert_eq!(bench.store.memory().large_bytes, 2 * bytes);
    let stop = bench.store.reserve_memory_soon(4 * bytes, false, &mut awaited).expect_err("there is no room");
    assert_eq!(bench.store.memory().large_bytes, 0, "{stop:?}");
    // what never fits is refused, once all that can go has gone
    refill();
    let bytes = 2 * before_bytes;
    let busy = bench.store.reserve_memory_soon(bytes, false, &mut awaited);
    assert!(matches!(busy, Err(Stop::Busy)), "{busy:?}");
    bench.store.tend(0);
    let refused = bench.store.reserve_memory_soon(bytes, false, &mut awaited);
    assert!(matches!(refused, Err(Stop::Refused(StoreError::MemoryLimit { .. }))), "{refused:?}");
    assert!(awaited.is_none() && bench.store.memory().large_bytes == 0);
}

/// SET over a cold string of 15 MiB held that string while it waited, which it does not need: others were refused for it.
#[test]
fn large_string_on_disk_is_not_kept_for_a_command_that_needs_none_of_it() {
    let bench = Bench::new(128);
    let (key, value) = (b"large", vec![b'v'; 100_000]);
    bench.set_released(key, &value);
    let keys = [KeyRef { db: 0, key }];
    type Command = fn(&mut crate::Access<'_>) -> Result<(), Stop>;
    let needs_none: [Command; 3] = [
        |access| {
            access.put(0, b"large", Value::String(b"small"), None);
            Ok(())
        },
        |access| access.meta(0, b"large").map(|meta| assert_eq!(meta.map(|it| it.value_len), Some(100_000))),
        |access| access.remove(0, b"large").map(|was_there| assert!(was_there)),
    ];
    for (number, command) in needs_none.into_iter().enumerate() {
        bench.evict();
        let (mut prepared, mut attempts) = (Prepared::default(), 0);
        loop {
            let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 1).expect("room");
            access.bound_effort(1_000);
            match command(&mut access).and_then(|()| access.commit()) {
                Ok(_) => break,
                Err(Stop::Cold) if attempts == 0 => attempts += 1,
                Err(stop) => panic!("command {number}: {stop:?}"),
            }
            prepared.want(access.into_wanted());
            bench.store.missing(&keys, &mut prepared);
            prepared = bench.fetched(prepared);
            assert_eq!(bench.store.memory().large_bytes, 0, "command {number} keeps it");
        }
        assert_eq!(attempts, 1, "command {number} has read nothing");
        let after = bench.get(key).1;
        match number {
            0 => assert_eq!(after.as_deref(), Some(&b"small"[..])),
            1 => assert_eq!(after.as_deref(), Some(&value[..])),
            _ => assert_eq!(after, None),
        }
        drop(prepared);
        bench.set_released(key, &value);
    }
    // how long it is with what was appended to it is known without it
    let longer = [&value[..], b"more"].concat();
    let part = || (Value::String(&longer), 100_000..100_004);
    let part = bench.run(Scope::Keys(&keys), |access| access.put_part(0, key, part(), None)).0;
    bench.log.release(part);
    bench.evict();
    let mut prepared = Prepared::default();
    for known in [None, Some(100_004)] {
        let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 0).expect("reads need no room");
        access.bound_effort(1_000);
        let value_len = access.meta(0, key).ok().flatten().map(|meta| meta.value_len);
        assert_eq!(value_len, known);
        prepared.want(access.into_wanted());
        prepared = bench.fetched(prepared);
    }
    // one that does need it goes on where it can read it
    bench.evict();
    let mut prepared = Prepared::default();
    for expected in ["Cold", "Long"] {
        let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 0).expect("reads need no room");
        access.bound_effort(1_000);
        let stop = access.meta(0, key).and_then(|_| access.get(0, key).map(drop)).expect_err("it is cold");
        assert_eq!(format!("{stop:?}"), expected);
        prepared.want(access.into_wanted());
        prepared = bench.fetched(prepared);
    }
}

/// What was forgotten counted on: a value that was read again after each wait was left out at last.
#[test]
fn large_values_that_were_forgotten_are_read_again_however_often() {
    let bench = Bench::new(128);
    let (key, value) = (b"large", vec![b'v'; 100_000]);
    bench.set_released(key, &value);
    let (keys, mut prepared) = ([KeyRef { db: 0, key }], Prepared::default());
    prepared.bound_values(250_000);
    for _ in 0..10 {
        bench.evict();
        assert!(!bench.store.missing(&keys, &mut prepared), "it is on disk");
        prepared = bench.fetched(prepared);
        assert_eq!((prepared.read_bytes(), prepared.bytes_left()), (100_000, 150_000));
        prepared.forget_large();
        assert_eq!((prepared.read_bytes(), prepared.bytes_left()), (0, 250_000));
    }
}

/// One SET of 64 KiB on a server at its limit dropped three eighths of what it held in memory: as much as its clients' buffers might have come to.
#[test]
fn large_value_alone_makes_room_for_itself_and_not_for_buffers_that_may_come() {
    let bench = Bench::new(128);
    for n in 0..200 {
        bench.set(&[n], &[b'v'; 1_000], None);
    }
    bench.log.release(200);
    let before_bytes = bench.store.memory().index_bytes;
    bench.store.set_memory_limit(before_bytes * 16 / 15);
    bench.store.report_buffers(0, before_bytes / 2);
    drop(bench.store.reserve_memory(1_000, true).expect("values leave memory for it"));
    let dropped_bytes = before_bytes - bench.store.memory().index_bytes;
    assert!((1_000..before_bytes / 10).contains(&dropped_bytes), "{dropped_bytes} of {before_bytes} B");
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

#[test]
fn full_memory_refuses_growth_by_name_while_the_rest_goes_on() {
    let bench = Bench::new(128);
    (0..100_u8).for_each(|i| {
        bench.set(&[i], &[i; 500], None);
    });
    let keys = [KeyRef { db: 0, key: b"more" }];
    bench.store.set_memory_limit(30_000);
    let prepared = Prepared::default();
    let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 1).expect("room");
    access.put(0, b"more", Value::String(&[0; 500]), None);
    let Err(Stop::Refused(error @ StoreError::MemoryLimit { .. })) = access.commit() else { panic!("over") };
    assert!(error.to_string().contains("memory.limit"));
    assert_eq!(bench.get(&[3]).1, Some(vec![3; 500]), "reads go on");
    assert!(bench.del(&[4]).1, "so do removals");
    let keys = [KeyRef { db: 0, key: &[5] }];
    assert!(
        bench
            .run(Scope::Keys(&keys), |access| access.set_expiry(0, &[5], Some(Deadline::at(UnixMs(9_000)))))
            .1
    );
    bench.log.release(bench.store.newest_seq().0);
    bench.store.tend(1);
    bench.set(b"more", &[0; 500], None);
    assert_eq!(bench.get(b"more").1, Some(vec![0; 500]), "once values are clean they make room");
}

/// Only writes and the tender made room. Values that were read from disk stayed out of full memory, so the same reads went to the
/// disk again and again: 16 MiB, 30,000 keys of 1 kB, 2,245 of 4,000 GETs missed in the eighth round.
#[test]
fn keys_that_are_read_again_and_again_come_to_stay_in_full_memory() {
    let bench = Bench::new(128);
    let keys: Vec<Vec<u8>> = (0..3_000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
    for key in &keys {
        let seq = bench.set(key, &[b'v'; 1_000], None);
        bench.log.release(seq);
    }
    let limit_bytes = bench.store.memory().used_bytes() / 2;
    for (how, at_once) in [("GET", 1), ("MGET", 50)] {
        bench.evict();
        bench.store.set_memory_limit(limit_bytes);
        // what nobody reads fills memory first
        for key in &keys[400..] {
            let seq = bench.set(key, &[b'w'; 1_000], None);
            bench.log.release(seq);
        }
        let misses: Vec<u64> = (0..4)
            .map(|_| {
                let before = bench.log.reads();
                keys[..400].chunks(at_once).for_each(|part| bench.read(part));
                bench.log.reads() - before
            })
            .collect();
        assert_eq!(misses, [400, 400, 0, 0], "{how}: a value stays from its second read on");
        assert!(bench.store.memory().used_bytes() <= limit_bytes, "{how}");
    }
}

/// A value that was read once took the place of one that is read often: a pass over all keys swept memory.
#[test]
fn pass_over_all_keys_displaces_nothing_that_is_in_use() {
    for (how, at_once) in [("GET", 1), ("MGET", 50)] {
        let bench = Bench::new(128);
        let keys: Vec<Vec<u8>> = (0..3_000_u32).map(|n| n.to_le_bytes().to_vec()).collect();
        for key in &keys {
            let seq = bench.set(key, &[b'v'; 1_000], None);
            bench.log.release(seq);
        }
        bench.store.set_memory_limit(bench.store.memory().used_bytes() / 2);
        bench.store.tend(1);
        let (used, rest) = keys.split_at(400);
        let misses_of = |keys: &[Vec<u8>]| {
            let before = bench.log.reads();
            keys.chunks(at_once).for_each(|part| bench.read(part));
            bench.log.reads() - before
        };
        (0..3).for_each(|_| assert!(misses_of(used) <= 400));
        assert_eq!(misses_of(used), 0, "{how}");
        assert!(misses_of(rest) > 1_000, "{how}: most of them are on disk");
        assert_eq!(misses_of(used), 0, "{how}: what is in use stayed");
    }
}

#[test]
fn accounted_memory_is_what_the_index_holds() {
    let bench = Bench::new(128);
    let held = || {
        let spaces = (0..crate::hash::STRIPES).map(|number| {
            bench.store.index.lock(number).spaces().map(|(_, space)| space.memory_bytes()).sum::<u64>()
        });
        spaces.sum::<u64>()
    };
    let close = |what: &str| {
        assert_eq!(bench.store.memory().index_bytes, held(), "{what}");
    };
    let key = |i: u64| i.to_le_bytes();
    (0..20_000).for_each(|i| {
        bench.set(&key(i), &[1; 100], Some(5_000 + i));
    });
    close("filled");
    (0..20_000).for_each(|i| {
        bench.set(&key(i), &[1; 30], None);
    });
    close("overwritten without expiry");
    bench.log.release(bench.store.newest_seq().0);
    bench.evict();
    close("evicted");
    (0..20_000).for_each(|i| {
        bench.del(&key(i));
    });
    bench.log.release(bench.store.newest_seq().0);
    bench.store.tend(1);
    close("removed");
    (0..1_000).for_each(|i| {
        bench.set(&key(i), &[1; 100], Some(1_000_000 + i));
    });
    bench.run(Scope::Everything, |access| access.flush_all());
    let turns = (1..100).find(|_| bench.store.tend(1).is_none()).expect("what was flushed is freed");
    assert!(turns > 10, "a share of it at a time");
    assert_eq!(bench.store.memory().index_bytes, 0, "flushed");
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
    if access.edit_element((db, key), ValueKind::Hash, field, put)?.is_err() {
        access.remove(db, key)?;
        access.edit_element((db, key), ValueKind::Hash, field, put)?.expect("nothing is there");
    }
    Ok(())
}

fn field_delete(access: &mut crate::Access<'_>, db: u16, key: &[u8], field: &[u8]) -> Result<bool, Stop> {
    let deleted =
        access.edit_element((db, key), ValueKind::Hash, field, |hash, tag| hash.delete(tag, field))?;
    Ok(deleted.unwrap_or(false))
}

type Fields = BTreeMap<Vec<u8>, Vec<u8>>;

fn fields(access: &crate::Access<'_>, db: u16, key: &[u8]) -> Result<Option<Fields>, Stop> {
    let Ok(hash) = access.collection(db, key, ValueKind::Hash)? else { return Ok(None) };
    let fields: BTreeMap<_, _> = hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
    Ok((!fields.is_empty()).then_some(fields))
}

#[derive(Clone, Debug)]
enum Step {
    Put(u16, u8, u8, Option<u8>),
    Remove(u16, u8),
    Expire(u16, u8, Option<u8>),
    Part(u16, u8, u16, u8),
    FieldSet(u16, u8, u8, u8),
    FieldDelete(u16, u8, u8),
    Flush(u16),
    Swap,
    Read(u16, u8),
    Len(u16),
    Advance(u8),
    Tend,
    Release(u8),
    Cool,
    Crash(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (db, key) = (0..DATABASES, 0..KEYS);
    prop_oneof![
        14 => (db.clone(), key.clone(), any::<u8>(), proptest::option::of(1..60_u8))
            .prop_map(|(d, k, v, e)| Step::Put(d, k, v, e)),
        6 => (db.clone(), key.clone()).prop_map(|(d, k)| Step::Remove(d, k)),
        6 => (db.clone(), key.clone(), proptest::option::of(1..60_u8)).prop_map(|(d, k, e)| Step::Expire(d, k, e)),
        12 => (0..1_u16, 0..3_u8, 0..6_000_u16, 1..=u8::MAX).prop_map(|(d, k, a, l)| Step::Part(d, k, a, l)),
        8 => (db.clone(), key.clone(), 0..5_u8, any::<u8>()).prop_map(|(d, k, f, v)| Step::FieldSet(d, k, f, v)),
        3 => (db.clone(), key.clone(), 0..5_u8).prop_map(|(d, k, f)| Step::FieldDelete(d, k, f)),
        1 => db.clone().prop_map(Step::Flush),
        1 => Just(Step::Swap),
        6 => (db.clone(), key).prop_map(|(d, k)| Step::Read(d, k)),
        1 => db.prop_map(Step::Len),
        2 => (0..20_u8).prop_map(Step::Advance),
        2 => Just(Step::Tend),
        4 => any::<u8>().prop_map(Step::Release),
        3 => Just(Step::Cool),
        1 => any::<u8>().prop_map(Step::Crash),
    ]
}

type State = [BTreeMap<u8, (Content, Option<u64>)>; DATABASES as usize];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    String(Vec<u8>),
    Fields(BTreeMap<Vec<u8>, Vec<u8>>),
}

fn content(access: &crate::Access<'_>, db: u16, key: &[u8]) -> Result<Option<(Content, Option<u64>)>, Stop> {
    let Some(found) = access.get(db, key)? else { return Ok(None) };
    let content = match fields(access, db, key)? {
        Some(fields) => Content::Fields(fields),
        None => Content::String(found.value.to_vec()),
    };
    Ok(Some((content, found.expiry.map(Deadline::raw))))
}

/// The truth: the state after each effect, and the newest effect that an answer was told of.
struct Model {
    states: Vec<State>,
    told: u64,
}

impl Model {
    fn now(&self) -> State {
        self.states.last().expect("there is always one").clone()
    }

    /// The state after effects up to `seq`; a group's state stands for all of its effects.
    fn push(&mut self, state: &State, newest: u64) {
        self.states.resize(newest as usize + 1, state.clone());
        *self.states.last_mut().expect("resized") = state.clone();
    }
}

fn alive(state: &State, now_ms: u64) -> State {
    let mut state = state.clone();
    state.iter_mut().for_each(|map| map.retain(|_, (_, expiry)| expiry.is_none_or(|at| at > now_ms)));
    state
}

fn apply(bench: &Bench, model: &mut Model, step: &Step) {
    let mut state = alive(&model.now(), bench.clock.unix_ms().0);
    let ticket = apply_to_key(bench, &mut state, step)
        .or_else(|| apply_to_fields(bench, &mut state, step))
        .unwrap_or_else(|| apply_to_all(bench, &mut state, step));
    model.told = model.told.max(ticket);
    model.push(&state, bench.store.newest_seq().0);
    bench.store.check_state();
}

fn apply_to_key(bench: &Bench, state: &mut State, step: &Step) -> Option<u64> {
    let now_ms = bench.clock.unix_ms().0;
    Some(match *step {
        Step::Put(db, key, seed, ttl) => {
            let value = vec![seed; usize::from(seed) / 2];
            let expiry = ttl.map(|ttl| now_ms + u64::from(ttl));
            state[usize::from(db)].insert(key, (Content::String(value.clone()), expiry));
            let id = [key];
            let keys = [KeyRef { db, key: &id }];
            bench
                .run(Scope::Keys(&keys), |access| {
                    access.put(db, &id, Value::String(&value), expiry.map(|at| Deadline::at(UnixMs(at))));
                    Ok(())
                })
                .0
        }
        Step::Remove(db, key) => {
            let expected = state[usize::from(db)].remove(&key).is_some();
            let id = [key];
            let (ticket, removed) =
                bench.run(Scope::Keys(&[KeyRef { db, key: &id }]), |access| access.remove(db, &id));
            assert_eq!(removed, expected);
            ticket
        }
        Step::Expire(db, key, ttl) => {
            let expiry = ttl.map(|ttl| now_ms + u64::from(ttl));
            let expected = state[usize::from(db)].get_mut(&key).map(|entry| entry.1 = expiry).is_some();
            let id = [key];
            let (ticket, found) = bench.run(Scope::Keys(&[KeyRef { db, key: &id }]), |access| {
                access.set_expiry(db, &id, expiry.map(|at| Deadline::at(UnixMs(at))))
            });
            assert_eq!(found, expected);
            ticket
        }
        Step::Part(db, key, at, len) => {
            let (at, bytes) = (usize::from(at), vec![len; len.into()]);
            let entry = state[usize::from(db)].entry(key).or_insert((Content::String(Vec::new()), None));
            let expiry = entry.1;
            let mut value = match &entry.0 {
                Content::String(value) => value.clone(),
                Content::Fields(_) => Vec::new(),
            };
            let changed = at.min(value.len())..at + bytes.len();
            value.resize(value.len().max(changed.end), 0);
            value[at..at + bytes.len()].copy_from_slice(&bytes);
            entry.0 = Content::String(value.clone());
            let id = [key];
            let keys = [KeyRef { db, key: &id }];
            bench
                .run(Scope::Keys(&keys), |access| {
                    let value = (Value::String(&value), changed.clone());
                    access.put_part(db, &id, value, expiry.and_then(Deadline::of))
                })
                .0
        }
        Step::Read(db, key) => {
            let id = [key];
            let (ticket, found) =
                bench.run(Scope::Keys(&[KeyRef { db, key: &id }]), |access| content(access, db, &id));
            assert_eq!(found.as_ref(), state[usize::from(db)].get(&key));
            ticket
        }
        _ => return None,
    })
}

/// Of one field long, so that changes of the others are logged as such.
fn value_of(field: u8, value: u8) -> Vec<u8> {
    vec![value; if field == 0 { 900 } else { 9 }]
}

fn apply_to_fields(bench: &Bench, state: &mut State, step: &Step) -> Option<u64> {
    Some(match *step {
        Step::FieldSet(db, key, field, value) => {
            let entry = state[usize::from(db)].entry(key).or_insert((Content::String(Vec::new()), None));
            match entry {
                (Content::Fields(fields), _) => drop(fields.insert(vec![field], value_of(field, value))),
                other => *other = (Content::Fields([(vec![field], value_of(field, value))].into()), None),
            }
            let id = [key];
            let keys = [KeyRef { db, key: &id }];
            bench
                .run(Scope::Keys(&keys), |access| {
                    field_set(access, db, &id, &[field], &value_of(field, value))
                })
                .0
        }
        Step::FieldDelete(db, key, field) => {
            let expected = match state[usize::from(db)].get_mut(&key) {
                Some((Content::Fields(fields), _)) => fields.remove(&[field][..]).is_some(),
                _ => false,
            };
            state[usize::from(db)].retain(|_, (content, _)| *content != Content::Fields(BTreeMap::new()));
            let id = [key];
            let keys = [KeyRef { db, key: &id }];
            let (ticket, deleted) =
                bench.run(Scope::Keys(&keys), |access| field_delete(access, db, &id, &[field]));
            assert_eq!(deleted, expected);
            ticket
        }
        _ => return None,
    })
}

fn apply_to_all(bench: &Bench, state: &mut State, step: &Step) -> u64 {
    match *step {
        Step::Flush(db) => {
            state[usize::from(db)].clear();
            bench.run(Scope::Everything, |access| access.flush(db)).0
        }
        Step::Swap => {
            state.swap(0, 1);
            bench.run(Scope::Everything, |access| access.swap(0, 1)).0
        }
        Step::Len(db) => {
            bench.store.tend(1_000);
            let (ticket, len) = bench.run(Scope::Everything, |access| access.len(db));
            assert_eq!(len, state[usize::from(db)].len() as u64);
            ticket
        }
        Step::Advance(ms) => {
            bench.clock.advance(Duration::from_millis(ms.into()));
            0
        }
        Step::Tend => {
            bench.store.tend(1_000);
            0
        }
        Step::Release(share) => {
            let (released, newest) = (bench.store.released_seq().0, bench.store.newest_seq().0);
            bench.log.release(released + (newest - released) * u64::from(share) / 255);
            0
        }
        Step::Cool => {
            bench.evict();
            0
        }
        _ => 0,
    }
}

/// Keeps what is released and some of the rest, as a crash does, and checks that it is a state of the past.
fn crash(bench: &Bench, model: &mut Model, share: u8, bits: u32) -> Bench {
    let (released, newest) = (bench.store.released_seq().0, bench.store.newest_seq().0);
    let kept = released + (newest - released) * u64::from(share) / 255;
    let (log, index) = bench.log.recover(kept, &bench.hasher, DATABASES);
    let again = Bench::over(log, index, Arc::clone(&bench.clock), bench.hasher.clone(), bits);
    model.states.truncate(kept as usize + 1);
    model.told = 0;
    let now_ms = bench.clock.unix_ms().0;
    let expected = alive(&model.now(), now_ms);
    for db in 0..DATABASES {
        for key in 0..KEYS {
            let id = [key];
            let (_, found) =
                again.run(Scope::Keys(&[KeyRef { db, key: &id }]), |access| content(access, db, &id));
            assert_eq!(
                found.as_ref(),
                expected[usize::from(db)].get(&key),
                "db {db} key {key} after the crash"
            );
        }
    }
    model.push(&expected, again.store.newest_seq().0);
    again
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn cold_released_and_crashed_keys_read_as_the_model_says(
        bits in prop_oneof![Just(8_u32), Just(128)],
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let mut bench = Bench::new(bits);
        let mut model = Model { states: vec![State::default()], told: 0 };
        for step in &steps {
            match step {
                Step::Crash(share) => bench = crash(&bench, &mut model, *share, bits),
                step => apply(&bench, &mut model, step),
            }
            prop_assert!(model.told <= bench.store.newest_seq().0);
        }
        crash(&bench, &mut model, 128, bits);
    }
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
