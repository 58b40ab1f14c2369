//! Pages are emptied: what was in them moves and stays what it was, and who waits is told.

use std::cell::Cell;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use clock::{SimClock, UnixMs};

use crate::access::Scope;
use crate::hash::STRIPES;
use crate::log::housekeeping::Manner;
use crate::prepared::Prepared;
use crate::{EngineKind, KeyRef, Options, Stop, Store, Value, testlog};
use collections::Deadline;

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

    /// As `new`, with engine `memory`.
    fn in_memory() -> Self {
        RESIDENT_BYTES.set(10 * MIB);
        let (clock, told) = (Arc::new(SimClock::new(UnixMs(1_000_000))), Arc::new(AtomicUsize::new(0)));
        let hears = Arc::clone(&told);
        let mut options = Options {
            engine: EngineKind::Memory,
            background: false,
            clock: clock.clone(),
            memory_limit_bytes: LIMIT_BYTES,
            resident_bytes: || RESIDENT_BYTES.get(),
            ..Options::default()
        };
        options.hooks.on_credits = Arc::new(move || _ = hears.fetch_add(1, Ordering::Relaxed));
        let store = Store::open(options).expect("nothing to read");
        store.tend(100);
        Self { store, clock, told }
    }

    /// Housekeeping has its turn, if there is any.
    fn turn(&self) {
        let Some((housekeeping, parts)) = self.store.housekeeping() else { return };
        housekeeping.turn(parts, Manner::Paced).expect("the journal runs");
        while self.store.drive() {}
    }

    fn put(&self, name: &str, value: &[u8], expiry: Option<Deadline>) {
        while let Err(stop) = self.try_put_with(name, value, expiry) {
            assert!(matches!(stop, Stop::Busy), "{stop:?}");
            self.turn();
            // writes that are slowed down go on with time
            self.clock.advance(Duration::from_millis(1));
        }
    }

    fn try_put(&self, name: &str, value: &[u8]) -> Result<(), Stop> {
        self.try_put_with(name, value, None)
    }

    fn try_put_with(&self, name: &str, value: &[u8], expiry: Option<Deadline>) -> Result<(), Stop> {
        let (keys, prepared) = ([KeyRef { db: 0, key: name.as_bytes() }], Prepared::default());
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, value.len() as u64)?;
        access.put(0, name.as_bytes(), Value::String(value), expiry);
        access.commit().map(drop)
    }

    fn fill(&self) {
        (0..VALUES).for_each(|n| self.put(&n.to_string(), &value(n), None));
        self.turn();
    }

    fn get(&self, name: &str) -> Option<Vec<u8>> {
        let (keys, mut prepared) = ([KeyRef { db: 0, key: name.as_bytes() }], Prepared::default());
        while !self.store.missing(&keys, &mut prepared) {
            for sought in prepared.take_wanted() {
                prepared.supply(&sought, self.store.engine.read(&sought));
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

    /// Where the objects of hot slots begin.
    fn objects(&self) -> Vec<usize> {
        let mut starts = Vec::new();
        for number in 0..STRIPES {
            for (_, space) in self.store.index.lock(number).spaces() {
                space.table.each(&mut |_, _, word| starts.extend(word.object().map(|object| object.start())));
            }
        }
        starts
    }

    fn pages(&self) -> usize {
        self.objects().iter().map(|start| start / 4_096).collect::<HashSet<_>>().len()
    }

    fn remove(&self, name: &str) {
        let (keys, prepared) = ([KeyRef { db: 0, key: name.as_bytes() }], Prepared::default());
        let remove = || {
            let mut access = self.store.access(Scope::Keys(&keys), &prepared, 0)?;
            assert!(access.remove(0, name.as_bytes())?);
            access.commit().map(drop)
        };
        while let Err(stop) = remove() {
            assert!(matches!(stop, Stop::Busy), "{stop:?}");
            self.turn();
        }
    }
}

/// Value `n`: of some 700 bytes, and like no other.
fn value(n: usize) -> Vec<u8> {
    n.to_string().into_bytes().repeat(100 + n % 70)
}

/// Three of four values go, and a pass closes up the rest.
fn values_move_and_are_what_they_were(bench: &Bench) {
    bench.fill();
    (0..VALUES).filter(|n| n % 4 != 0).for_each(|n| bench.remove(&n.to_string()));
    bench.turn();
    (0..4).for_each(|_| _ = bench.store.tend(100));
    let left = || (0..VALUES).step_by(4);
    let deadline = bench.store.now().after(1_000_000);
    left().filter(|n| n % 3 == 0).for_each(|n| bench.put(&n.to_string(), &value(n), Some(deadline)));
    bench.turn();
    let (memory, before) = (bench.store.memory(), (bench.hot_bytes(), bench.pages(), bench.objects()));
    RESIDENT_BYTES.set(10 * MIB + LIMIT_BYTES + 7 * MIB);
    bench.store.tend(100);
    assert!(bench.is_vacating() && bench.objects() == before.2, "a turn does little");
    // as much goes as is wanted
    RESIDENT_BYTES.set(10 * MIB + LIMIT_BYTES);
    bench.tend_until(|| !bench.is_vacating());
    let after = bench.objects();
    assert_eq!((bench.store.memory(), bench.hot_bytes(), after.len()), (memory, before.0, before.2.len()));
    assert!(bench.pages() < before.1 * 4 / 5, "{} of {} pages", bench.pages(), before.1);
    assert!(after.iter().zip(&before.2).filter(|(after, before)| after != before).count() > VALUES / 32);
    for n in left() {
        assert!(bench.get(&n.to_string()) == Some(value(n)), "value {n}");
    }
    bench.store.index.check();
    bench.clock.advance(Duration::from_secs(3_600));
    assert!(left().all(|n| bench.get(&n.to_string()).is_none() == (n % 3 == 0)), "their deadlines were kept");
    bench.store.index.check();
}

#[test]
fn values_that_move_out_of_pages_that_hold_little_are_what_they_were() {
    values_move_and_are_what_they_were(&Bench::new());
}

/// Its values could not leave memory, so holes stayed: 146 MiB were resident with a limit of 64 MiB.
#[test]
fn values_of_an_engine_without_a_disk_move_as_well() {
    values_move_and_are_what_they_were(&Bench::in_memory());
}

#[test]
fn values_leave_memory_where_moving_is_not_enough() {
    let bench = Bench::new();
    bench.fill();
    let before_bytes = bench.hot_bytes();
    RESIDENT_BYTES.set(10 * MIB + LIMIT_BYTES + 7 * MIB);
    bench.store.tend(100);
    bench.tend_until(|| !bench.is_vacating());
    let shed_bytes = before_bytes - bench.hot_bytes();
    assert!((2 * MIB..12 * MIB).contains(&shed_bytes), "{shed_bytes} of {before_bytes}");
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
    let bench = Bench::in_memory();
    bench.fill();
    bench.store.tend(100);
    RESIDENT_BYTES.set(40 * MIB + LIMIT_BYTES);
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

/// What a client had sent went as it began to wait, and was there again as it went on: each pass was taken for enough, and nothing left memory for it.
#[test]
fn value_that_still_does_not_fit_after_a_pass_has_others_leave_memory() {
    let bench = Bench::new();
    bench.fill();
    bench.store.tend(100);
    let (before_bytes, with_it) = (bench.hot_bytes(), 10 * MIB + LIMIT_BYTES + 7 * MIB);
    let mut rounds = 0;
    while bench.hot_bytes() == before_bytes {
        rounds += 1;
        assert!(rounds < 4, "nothing leaves memory");
        RESIDENT_BYTES.set(with_it);
        assert!(bench.store.reserve_memory(2 * MIB, false).is_err());
        bench.store.tend(100);
        RESIDENT_BYTES.set(with_it - 6 * MIB);
        bench.tend_until(|| !bench.is_vacating());
    }
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
