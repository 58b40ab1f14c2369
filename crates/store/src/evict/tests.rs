//! Which keys go: by the policies, in memory and on a simulated disk.

use collections::Deadline;
use std::sync::Arc;
use std::time::Duration;

use clock::{SimClock, UnixMs};

use super::policy::{TICK_MS, Usage, minute};
use super::*;
use crate::{Access, EngineKind, Options, Value, testlog};

const LIMIT_BYTES: u64 = 1 << 20;

struct Bench {
    clock: Arc<SimClock>,
    store: Arc<Store>,
}

impl Bench {
    fn new(eviction: Eviction) -> Self {
        let clock = Arc::new(SimClock::new(UnixMs(1_000_000)));
        let options = Options {
            engine: EngineKind::Memory,
            background: false,
            clock: clock.clone(),
            memory_limit_bytes: LIMIT_BYTES,
            eviction,
            never_evicted: |key| key.starts_with(b"positions"),
            ..Options::default()
        };
        Self { clock, store: Store::open(options).expect("nothing to read") }
    }

    fn put(&self, key: &str, bytes: usize, ttl_ms: Option<u64>) -> Result<(), Stop> {
        self.clock.advance(Duration::from_millis(20));
        let (prepared, value) = (Prepared::default(), vec![b'v'; bytes]);
        let keys = [KeyRef { db: 0, key: key.as_bytes() }];
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, bytes as u64 + 64)?;
        let expiry = ttl_ms.map(|ms| self.store.now().after(ms));
        access.put(0, key.as_bytes(), Value::String(&value), expiry);
        access.commit().map(drop)
    }

    fn get(&self, key: &str) -> bool {
        let prepared = Prepared::default();
        let keys = [KeyRef { db: 0, key: key.as_bytes() }];
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, 0).expect("room");
        let found = access.get(0, key.as_bytes()).expect("all is in memory").is_some();
        access.commit().expect("room");
        found
    }

    fn usage(&self, key: &str) -> Option<Usage> {
        let prepared = Prepared::default();
        let keys = [KeyRef { db: 0, key: key.as_bytes() }];
        let access = self.store.access(Scope::Keys(&keys), &prepared, 0).expect("room");
        access.usage(0, key.as_bytes()).expect("all is in memory")
    }

    fn kept(&self, name: &str, count: usize) -> usize {
        (0..count).filter(|i| self.get(&format!("{name}{i}"))).count()
    }
}

#[test]
fn idle_time_is_measured_over_the_wrap_and_a_clock_that_is_behind_measures_none() {
    let recency = Tracking::Recency;
    let now_ms = (u64::from(u32::MAX) + 10) * TICK_MS;
    let stamp = recency.fresh(now_ms - 20 * TICK_MS);
    assert_eq!(recency.usage(stamp, now_ms), Usage::IdleMs(20 * TICK_MS));
    assert_eq!(recency.usage(recency.fresh(now_ms + TICK_MS), now_ms), Usage::IdleMs(0));
}

#[test]
fn count_grows_ever_more_rarely_and_falls_by_one_a_minute() {
    let frequency = Tracking::Frequency;
    let (mut stamp, mut dice) = (frequency.fresh(0), 1_u32);
    for _ in 0..10_000 {
        dice = dice.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        stamp = frequency.used(stamp, 0, || dice >> 8);
    }
    let Usage::Frequency(count) = frequency.usage(stamp, 0) else { panic!("{stamp}") };
    // each step takes ten uses more than the last: about the root of a fifth of the uses
    assert!((30..80).contains(&count), "{count} after 10,000 uses");
    assert_eq!(frequency.usage(stamp, 10 * 60_000), Usage::Frequency(count - 10));
    assert_eq!(frequency.usage(stamp, 300 * 60_000), Usage::Frequency(0));
    let full = frequency.used(minute(0) << 8 | 255, 0, || 0);
    assert_eq!(frequency.usage(full, 0), Usage::Frequency(255));
}

#[test]
fn memory_stays_within_its_limit_under_every_policy_for_all_keys() {
    for policy in [Eviction::AllKeysLru, Eviction::AllKeysLfu, Eviction::AllKeysRandom] {
        let bench = Bench::new(policy);
        for i in 0..4_000 {
            bench.put(&format!("k{i}"), 1_000, None).expect("others make room");
            assert!(bench.store.memory().used_bytes() <= LIMIT_BYTES, "{policy:?} at {i}");
        }
        let (kept, evicted) = (bench.kept("k", 4_000), bench.store.evicted_keys());
        assert_eq!(kept as u64 + evicted, 4_000, "{policy:?}");
        assert!(kept > 700, "{policy:?}: {kept} of about 940 kept");
    }
}

#[test]
fn keys_in_use_stay() {
    for policy in [Eviction::AllKeysLru, Eviction::AllKeysLfu] {
        let bench = Bench::new(policy);
        for i in 0..4_000 {
            bench.put(&format!("k{i}"), 1_000, None).expect("others make room");
            if i >= 100 {
                (0..100).filter(|hot| (hot + i) % 4 == 0).for_each(|hot| _ = bench.get(&format!("k{hot}")));
            }
        }
        let kept = bench.kept("k", 100);
        assert!(kept >= 98, "{policy:?}: {kept} of 100 hot keys kept");
    }
}

#[test]
fn keys_without_expiry_stay_under_volatile_policies_and_growth_is_refused_at_the_end() {
    use Eviction::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
    for policy in [VolatileLru, VolatileLfu, VolatileRandom, VolatileTtl] {
        let bench = Bench::new(policy);
        for i in 0..400 {
            bench.put(&format!("stays{i}"), 1_000, None).expect("room");
            bench.put(&format!("goes{i}"), 1_000, Some(1_000_000 + i)).expect("room");
        }
        let refused = (400..4_000).find(|i| bench.put(&format!("stays{i}"), 1_000, None).is_err());
        let refused = refused.unwrap_or_else(|| panic!("{policy:?}: nothing more can go"));
        assert!(refused > 800, "{policy:?}: refused at {refused}");
        assert_eq!((bench.kept("goes", 400), bench.kept("stays", refused as usize)), (0, refused as usize));
        assert_eq!(bench.store.evicted_keys(), 400, "{policy:?}");
    }
}

#[test]
fn keys_that_expire_first_go_first() {
    let bench = Bench::new(Eviction::VolatileTtl);
    for i in 0..2_000_u64 {
        // the first half expires later than the second
        let ttl_ms = if i < 400 { 50_000_000 } else { 1_000_000 + i };
        bench.put(&format!("k{i}"), 1_000, Some(ttl_ms)).expect("others make room");
    }
    assert!(bench.kept("k", 400) >= 395, "{} of those that expire last", bench.kept("k", 400));
}

/// Keys whose time has come are the first to go under `volatile-ttl`, and nobody may have removed them yet.
#[test]
fn expired_keys_make_room_as_well() {
    for policy in [Eviction::VolatileTtl, Eviction::AllKeysLru] {
        let bench = Bench::new(policy);
        (0..900).for_each(|i| bench.put(&format!("short{i}"), 1_000, Some(60_000)).expect("room"));
        bench.clock.advance(Duration::from_secs(120));
        for i in 0..900 {
            bench.put(&format!("k{i}"), 1_000, Some(100_000_000)).expect("the expired ones go");
        }
        assert!(bench.store.expired_keys() > 700, "{policy:?}: {}", bench.store.expired_keys());
        assert!(bench.kept("k", 900) > 800, "{policy:?}: {} kept", bench.kept("k", 900));
    }
}

/// A value larger than what one command may evict for.
#[test]
fn large_value_comes_again_until_there_is_room() {
    let bench = Bench::new(Eviction::AllKeysLru);
    (0..20_000).for_each(|i| bench.put(&format!("k{i}"), 1, None).expect("room"));
    let (bytes, mut tries) = (LIMIT_BYTES as usize * 3 / 4, 1);
    let reserved = loop {
        match bench.store.reserve_memory(bytes as u64, false) {
            Ok(reserved) => break reserved,
            Err(Stop::Busy) => tries += 1,
            Err(stop) => panic!("{stop:?}"),
        }
    };
    assert!(tries > 2, "{tries}");
    drop(reserved);
    bench.put("large", bytes, None).expect("room");
    let evicted = bench.store.evicted_keys();
    bench.put("too large", 2 * LIMIT_BYTES as usize, None).expect_err("it never fits");
    // what cannot be stored makes no room but for its first 64 KiB
    let more = bench.store.evicted_keys() - evicted;
    assert!(more <= 2_000, "{more} keys went for nothing");
}

#[test]
fn use_is_tracked_from_the_moment_that_a_policy_needs_it() {
    let bench = Bench::new(Eviction::NoEviction);
    bench.put("k", 10, None).expect("room");
    let before = bench.store.memory().index_bytes;
    assert_eq!(bench.usage("k"), Some(Usage::Untracked));
    bench.store.set_eviction(Eviction::AllKeysLru);
    bench.store.tend(10);
    bench.clock.advance(Duration::from_secs(5));
    assert_eq!(bench.usage("k"), Some(Usage::IdleMs(4_992)));
    assert!(bench.get("k"));
    assert_eq!(bench.usage("k"), Some(Usage::IdleMs(0)));
    bench.store.set_eviction(Eviction::VolatileLfu);
    bench.store.tend(10);
    assert_eq!((bench.usage("k"), bench.usage("none")), (Some(Usage::Frequency(5)), None));
    assert!(bench.store.memory().index_bytes > before);
    bench.store.set_eviction(Eviction::NoEviction);
    bench.store.tend(10);
    assert_eq!(bench.store.memory().index_bytes, before, "stamps cost nothing then");
}
/// Engine `log` on a simulated disk, with housekeeping by hand.
struct LogBench {
    disk: vfs::SimDisk,
    clock: Arc<SimClock>,
    eviction: Eviction,
    store: Arc<Store>,
}

const DISK_LIMIT_BYTES: u64 = 8 << 20;
const SEGMENT_BYTES: u64 = 256 << 10;

impl LogBench {
    fn new(eviction: Eviction) -> Self {
        let (disk, clock) = (vfs::SimDisk::new(1), Arc::new(SimClock::new(UnixMs(1_000_000))));
        let store = Self::open(&disk, &clock, eviction);
        Self { disk, clock, eviction, store }
    }

    fn open(disk: &vfs::SimDisk, clock: &Arc<SimClock>, eviction: Eviction) -> Arc<Store> {
        testlog::simulated(disk, clock, SEGMENT_BYTES, |options| {
            options.value_bytes_max = 64 << 10;
            options.transaction_bytes_max = 128 << 10;
            options.memory_limit_bytes = 2 << 20;
            options.eviction = eviction;
            options.disk_limit_bytes = DISK_LIMIT_BYTES;
        })
    }

    /// Housekeeping, expiry and eviction have their turn.
    fn turn(&self) {
        self.clock.advance(Duration::from_millis(2));
        let (housekeeping, parts) = self.store.housekeeping().expect("engine log");
        housekeeping.turn(parts, crate::log::housekeeping::Manner::Paced).expect("the journal runs");
        while self.store.drive() {}
        self.store.tend(100);
        while self.store.drive() {}
    }

    fn prepare(&self, keys: &[KeyRef<'_>]) -> Prepared {
        let mut prepared = Prepared::default();
        while !self.store.missing(keys, &mut prepared) {
            for sought in prepared.take_wanted() {
                prepared.supply(&sought, self.store.engine.read(&sought));
            }
        }
        prepared
    }

    fn put(&self, key: &str) -> Result<(), Stop> {
        self.put_until(key, None)
    }

    /// Puts a value; waits for room as a server does.
    fn put_until(&self, key: &str, expiry: Option<Deadline>) -> Result<(), Stop> {
        let value = [b'v'; 1_000];
        for _ in 0..10_000 {
            let keys = [KeyRef { db: 0, key: key.as_bytes() }];
            let prepared = self.prepare(&keys);
            let access = self.store.access(Scope::Keys(&keys), &prepared, 1_100);
            let ended = access.and_then(|mut access| {
                access.put(0, key.as_bytes(), Value::String(&value), expiry);
                access.commit()
            });
            match ended {
                Err(Stop::Busy) => self.turn(),
                ended => return ended.map(drop),
            }
        }
        panic!("{key} waited for ever");
    }

    /// Changes a key that is there.
    fn change(&self, key: &str, change: impl Fn(&mut Access<'_>, &[u8]) -> Result<bool, Stop>) {
        while self.store.drive() {}
        let keys = [KeyRef { db: 0, key: key.as_bytes() }];
        let prepared = self.prepare(&keys);
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, 100).expect("room");
        assert!(change(&mut access, key.as_bytes()).expect("it was prepared"));
        access.commit().expect("room");
    }

    fn is_there(&self, key: &str) -> bool {
        let keys = [KeyRef { db: 0, key: key.as_bytes() }];
        let prepared = self.prepare(&keys);
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, 0).expect("room");
        let found = access.meta(0, key.as_bytes()).expect("it was prepared").is_some();
        access.commit().expect("a read");
        found
    }
}

#[test]
fn keys_are_evicted_for_the_disk_and_stay_gone_after_a_power_loss() {
    for policy in [Eviction::AllKeysLru, Eviction::AllKeysLfu, Eviction::AllKeysRandom] {
        let mut bench = LogBench::new(policy);
        for i in 0..20_000 {
            bench.put(&format!("k{i}")).expect("keys are evicted for it");
            if i % 8 == 0 {
                bench.turn();
            }
            let taken = bench.store.log_report().expect("engine log").disk_bytes;
            let most = DISK_LIMIT_BYTES + 12 * SEGMENT_BYTES;
            assert!(taken <= most, "{policy:?}: {taken} B at key {i}, of {most} at most");
        }
        let evicted = bench.store.evicted_keys();
        let kept: Vec<bool> = (0..20_000).map(|i| bench.is_there(&format!("k{i}"))).collect();
        let count = kept.iter().filter(|it| **it).count() as u64;
        assert_eq!(count + evicted, 20_000, "{policy:?}");
        assert!(count > 2_000, "{policy:?}: {count} keys kept");
        // all that was found absent was on disk before it was told
        while bench.store.drive() {}
        bench.disk = bench.disk.crash(7);
        bench.store = LogBench::open(&bench.disk, &bench.clock, bench.eviction);
        for (i, kept) in kept.iter().enumerate() {
            assert_eq!(bench.is_there(&format!("k{i}")), *kept, "{policy:?}: k{i}");
        }
    }
}

/// The store's own thread took the moment at which another one made room, or memory had just filled again, for one in which no
/// value could leave it: keys went from the disk for want of memory, under the load that engine `log` is for.
#[test]
fn keys_stay_on_disk_while_values_can_leave_memory() {
    let bench = LogBench::new(Eviction::AllKeysLru);
    for i in 0..2_500 {
        bench.put(&format!("k{i}")).expect("there is room");
        if i % 8 == 0 {
            bench.turn();
        }
        while bench.store.drive() {}
        let _other = bench.store.memory.as_if_making_room();
        bench.store.tend(100);
    }
    assert_eq!(bench.store.evicted_keys(), 0, "2.5 MB fit the disk");
}

#[test]
fn without_eviction_growth_is_refused_at_the_limit_of_the_disk_and_removals_go_on() {
    let bench = LogBench::new(Eviction::NoEviction);
    let refused = (0..20_000).find_map(|i| {
        if i % 8 == 0 {
            bench.turn();
        }
        bench.put(&format!("k{i}")).err().map(|stop| (i, stop))
    });
    let (at, stop) = refused.expect("the limit is 8 MiB, and these are 20 MB");
    let text = format!("{stop:?}");
    assert!(text.contains("store.disk_limit (8388608 B)"), "{text}");
    assert!(at > 3_000, "refused at {at}");
    for i in 0..at {
        bench.change(&format!("k{i}"), |access, key| access.remove(0, key));
    }
    bench.turn();
    bench.put("again").expect("there is room");
}

/// A start lists the expiries that the log has, also those that a later record took away. The key of such an entry lasts, and as it was not
/// used since it was the best victim of every sample: writers waited for ever while keys that may go were there.
#[test]
fn expiries_that_a_later_record_took_away_before_a_restart_hide_no_key_that_may_go() {
    for policy in [Eviction::VolatileLru, Eviction::VolatileTtl] {
        let mut bench = LogBench::new(policy);
        let after = |bench: &LogBench, ms| Some(bench.store.now().after(ms));
        for i in 0..1_000 {
            for name in ["lasts", "removed"] {
                bench.put_until(&format!("{name}{i}"), after(&bench, 1_000_000_000)).expect("there is room");
            }
            bench.change(&format!("lasts{i}"), |access, key| access.set_expiry(0, key, None));
            bench.change(&format!("removed{i}"), |access, key| access.remove(0, key));
        }
        while bench.store.drive() {}
        bench.disk = bench.disk.process_death();
        bench.store = LogBench::open(&bench.disk, &bench.clock, bench.eviction);
        for i in 0..5_000 {
            bench
                .put_until(&format!("goes{i}"), after(&bench, 2_000_000_000))
                .expect("keys are evicted for it");
            if i % 8 == 0 {
                bench.turn();
            }
        }
        assert!((0..1_000).all(|i| bench.is_there(&format!("lasts{i}"))), "{policy:?}");
    }
}

/// Writers waited for ever for an eviction of which there was none to come.
#[test]
fn growth_is_refused_at_the_limit_of_the_disk_when_no_key_may_go() {
    let bench = LogBench::new(Eviction::VolatileLru);
    let refused = (0..20_000).find_map(|i| bench.put(&format!("stays{i}")).err());
    assert!(format!("{refused:?}").contains("store.disk_limit"), "{refused:?}");
    bench.change("stays7", |access, key| access.set_expiry(0, key, Deadline::of(u64::MAX / 4)));
    bench.turn();
    bench.put("more").expect("one may go now");
    assert_eq!((bench.store.evicted_keys(), bench.is_there("stays7")), (1, false));
}

/// A sample that met only keys whose removals were on their way to the disk was taken for a store of which no key may go, and a writer was
/// refused where it had only to wait.
#[test]
fn writers_wait_while_removals_are_on_their_way_to_the_disk() {
    let bench = LogBench::new(Eviction::AllKeysLru);
    let names: Vec<String> = (0..3_000).map(|i| format!("k{i}")).collect();
    names.iter().for_each(|name| bench.put(name).expect("there is room"));
    while bench.store.drive() {}
    for name in &names[1..] {
        let keys = [KeyRef { db: 0, key: name.as_bytes() }];
        let prepared = bench.prepare(&keys);
        let mut access = bench.store.access(Scope::Keys(&keys), &prepared, 0).expect("room");
        assert!(access.remove(0, name.as_bytes()).expect("it was prepared"));
        access.commit().expect("room");
    }
    bench.store.set_disk_limit(1);
    bench.store.evict_some(1);
    let admitted = bench.store.admit_to_disk();
    assert!(
        matches!(admitted, Err(Stop::Busy)),
        "one key is left, beside thousands that are going: {admitted:?}"
    );
}

/// The positions of topologies were keys as any other, and the first to go while their topology was at rest.
#[test]
fn key_that_is_never_evicted_stays_under_each_policy() {
    for policy in [Eviction::AllKeysLru, Eviction::AllKeysLfu, Eviction::AllKeysRandom, Eviction::VolatileTtl]
    {
        let bench = Bench::new(policy);
        bench.put("positions", 100, Some(1 << 40)).expect("there is room");
        for i in 0..3_000 {
            bench.put(&format!("key{i}"), 1_000, Some(1 << 41)).expect("others go");
        }
        assert!(bench.get("positions"), "{policy:?}");
    }
}
