//! Pages are emptied on a simulated disk: what was in them is read back, and who waits is told.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clock::{SimClock, UnixMs};

use crate::access::Scope;
use crate::log::housekeeping::Manner;
use crate::prepared::Prepared;
use crate::{KeyRef, Stop, Store, Value, testlog};

const MIB: u64 = 1 << 20;
const LIMIT_BYTES: u64 = 64 * MIB;
const VALUES: usize = 16_000;

thread_local! {
    /// What the process has resident, for the stores of this thread.
    static RESIDENT_BYTES: Cell<u64> = const { Cell::new(0) };
}

/// A store that knows how much is resident.
struct Bench {
    store: Arc<Store>,
    clock: Arc<SimClock>,
    told: Arc<AtomicUsize>,
}

impl Bench {
    fn new() -> Self {
        RESIDENT_BYTES.set(10 * MIB);
        let (disk, clock) = (vfs::SimDisk::new(1), Arc::new(SimClock::new(UnixMs(1_000_000))));
        let told = Arc::new(AtomicUsize::new(0));
        let hears = Arc::clone(&told);
        let store = testlog::simulated(&disk, &clock, MIB, |options| {
            options.memory_limit_bytes = LIMIT_BYTES;
            options.resident_bytes = || RESIDENT_BYTES.get();
            options.hooks.on_credits = Arc::new(move || _ = hears.fetch_add(1, Ordering::Relaxed));
        });
        store.tend(100);
        Self { store, clock, told }
    }

    /// Housekeeping has its turn.
    fn turn(&self) {
        let (housekeeping, parts) = self.store.housekeeping().expect("engine log");
        housekeeping.turn(parts, Manner::Paced).expect("the journal runs");
        while self.store.drive() {}
    }

    fn try_put(&self, name: &str, value: &[u8]) -> Result<(), Stop> {
        let (keys, prepared) = ([KeyRef { db: 0, key: name.as_bytes() }], Prepared::default());
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, value.len() as u64)?;
        access.put(0, name.as_bytes(), Value::String(value), None);
        access.commit().map(drop)
    }

    fn fill(&self) {
        for n in 0..VALUES {
            while let Err(stop) = self.try_put(&n.to_string(), &value(n)) {
                assert!(matches!(stop, Stop::Busy), "{stop:?}");
                self.turn();
            }
        }
        self.turn();
    }

    fn get(&self, name: &str) -> Option<Vec<u8>> {
        let (keys, mut prepared) = ([KeyRef { db: 0, key: name.as_bytes() }], Prepared::default());
        while !self.store.missing(&keys, &mut prepared) {
            for sought in prepared.take_wanted() {
                prepared.supply(sought.address, self.store.engine.read(&sought));
            }
        }
        let access = self.store.access(Scope::Keys(&keys), &prepared, 0).expect("reads need no room");
        let found = access.get(0, name.as_bytes()).expect("it was prepared");
        found.map(|found| found.value.to_vec())
    }

    fn hot_bytes(&self) -> u64 {
        self.store.census().hot_bytes
    }

    fn tend_until(&self, is_done: impl Fn() -> bool) {
        let mut turns = 0;
        while !is_done() {
            assert!(turns < 10_000, "no end");
            self.store.tend(100);
            turns += 1;
        }
    }

    fn is_vacating(&self) -> bool {
        self.store.tender.vacating.lock().expect("no panic").is_some()
    }
}

/// Value `n`: of some 700 bytes, and like no other.
fn value(n: usize) -> Vec<u8> {
    n.to_string().into_bytes().repeat(100 + n % 70)
}

#[test]
fn values_of_emptied_pages_are_read_back_and_the_others_stay_in_memory() {
    let bench = Bench::new();
    bench.fill();
    let before_bytes = bench.hot_bytes();
    RESIDENT_BYTES.set(10 * MIB + LIMIT_BYTES + 7 * MIB);
    bench.store.tend(100);
    assert!(bench.is_vacating() && bench.hot_bytes() == before_bytes, "a turn does little");
    bench.tend_until(|| !bench.is_vacating());
    let dropped_bytes = before_bytes - bench.hot_bytes();
    assert!((2 * MIB..12 * MIB).contains(&dropped_bytes), "{dropped_bytes} of {before_bytes}");
    bench.store.tend(100);
    assert!(!bench.is_vacating(), "as much is resident as before: a pause");
    for n in 0..VALUES {
        assert!(bench.get(&n.to_string()) == Some(value(n)), "value {n}");
    }
    bench.store.index.check();
}

/// A client sent larger values faster than any thread looked: 416 MiB were resident with a limit of 256 MiB.
#[test]
fn who_stores_more_while_too_much_is_resident_waits_until_pages_went_back() {
    let bench = Bench::new();
    bench.fill();
    bench.store.tend(100);
    RESIDENT_BYTES.set(10 * MIB + LIMIT_BYTES + 9 * MIB);
    assert!(matches!(bench.store.reserve_memory(2 * MIB, false), Err(Stop::Busy)));
    assert!(matches!(bench.try_put("more", &[b'v'; 1_000]), Err(Stop::Busy)));
    assert!(bench.try_put("little", b"v").is_ok());
    let (read, reads) = (Arc::new(AtomicUsize::new(0)), Prepared::default());
    let done = Arc::clone(&read);
    bench.store.fetch(reads, Box::new(move |_| _ = done.fetch_add(1, Ordering::Relaxed)));
    assert_eq!(read.load(Ordering::Relaxed), 0, "who reads waits, too");
    let told = bench.told.load(Ordering::Relaxed);
    bench.store.tend(100);
    RESIDENT_BYTES.set(10 * MIB + LIMIT_BYTES);
    bench.tend_until(|| bench.told.load(Ordering::Relaxed) > told);
    assert_eq!(read.load(Ordering::Relaxed), 1);
    assert!(
        bench.store.reserve_memory(2 * MIB, false).is_ok() && bench.try_put("more", &[b'v'; 1_000]).is_ok()
    );
}

/// The gate closed behind a pass that had not helped, and reads waited for the next one: for a minute, in the end.
#[test]
fn nobody_waits_in_the_pause_after_a_pass_that_did_not_help() {
    let bench = Bench::new();
    bench.fill();
    bench.store.tend(100);
    RESIDENT_BYTES.set(10 * MIB + LIMIT_BYTES + 9 * MIB);
    assert!(bench.store.reserve_memory(2 * MIB, false).is_err());
    let told = bench.told.load(Ordering::Relaxed);
    bench.tend_until(|| bench.told.load(Ordering::Relaxed) > told);
    assert!(bench.store.reserve_memory(2 * MIB, false).is_err(), "it closes before the pause is known");
    bench.store.tend(100);
    assert!(!bench.is_vacating(), "a pause");
    let read = Arc::new(AtomicUsize::new(0));
    let done = Arc::clone(&read);
    bench.store.fetch(Prepared::default(), Box::new(move |_| _ = done.fetch_add(1, Ordering::Relaxed)));
    assert_eq!(read.load(Ordering::Relaxed), 1);
    assert!(bench.store.reserve_memory(2 * MIB, false).is_ok());
}

/// With tens of GiB a pass takes seconds.
#[test]
fn nobody_waits_for_a_pass_that_takes_long() {
    let bench = Bench::new();
    bench.fill();
    bench.store.tend(100);
    RESIDENT_BYTES.set(10 * MIB + LIMIT_BYTES + 9 * MIB);
    assert!(matches!(bench.try_put("more", &[b'v'; 2 << 20]), Err(Stop::Busy)));
    bench.store.tend(100);
    assert!(matches!(bench.try_put("more", &[b'v'; 1_000]), Err(Stop::Busy)), "the pass has just begun");
    let told = bench.told.load(Ordering::Relaxed);
    bench.clock.advance(Duration::from_millis(200));
    bench.store.tend(100);
    assert!(bench.is_vacating(), "it goes on");
    assert!(bench.told.load(Ordering::Relaxed) > told);
    assert!(
        bench.try_put("more", &[b'v'; 1_000]).is_ok() && bench.store.reserve_memory(2 * MIB, false).is_ok()
    );
}

#[test]
fn engine_that_keeps_nothing_on_disk_lets_everybody_pass() {
    RESIDENT_BYTES.set(10 * MIB);
    let options = crate::Options {
        engine: crate::EngineKind::Memory,
        background: false,
        memory_limit_bytes: LIMIT_BYTES,
        resident_bytes: || RESIDENT_BYTES.get(),
        ..crate::Options::default()
    };
    let store = Store::open(options).expect("nothing to read");
    store.tend(100);
    RESIDENT_BYTES.set(200 * MIB);
    store.tend(100);
    assert!(store.reserve_memory(2 * MIB, false).is_ok());
}
