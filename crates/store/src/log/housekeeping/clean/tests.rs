//! Cleaning on a simulated disk: who waits for it, what it copies, and when it comes to rest.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use clock::{SimClock, UnixMs};
use ticket::Ticket;
use vfs::SimDisk;

use super::*;
use crate::log::liveness::Live;
use crate::{Durability, Hooks, KeyRef, Options, Prepared, Scope, Stop, Store, StoreError, Value};

struct Bench {
    store: Arc<Store>,
    clock: Arc<SimClock>,
    /// Calls of the hook that lets writers try again.
    told: Arc<AtomicU64>,
}

impl Bench {
    fn new() -> Self {
        Self::on(&SimDisk::new(1))
    }

    fn on(disk: &SimDisk) -> Self {
        Self::with(disk, Durability::Always)
    }

    fn with(disk: &SimDisk, durability: Durability) -> Self {
        Self::sized(disk, durability, 64 << 10)
    }

    fn sized(disk: &SimDisk, durability: Durability, segment_size_bytes: u64) -> Self {
        let (clock, told) = (Arc::new(SimClock::new(UnixMs(1_000_000))), Arc::new(AtomicU64::new(0)));
        let teller = Arc::clone(&told);
        let on_credits = Arc::new(move || {
            teller.fetch_add(1, Ordering::Relaxed);
        });
        let options = Options {
            background: false,
            readers: 0,
            clock: clock.clone(),
            vfs: Arc::new(disk.clone()),
            dir: "/data".into(),
            durability,
            journal: journal::Options {
                segment_size_bytes,
                file_size_bytes_min: segment_size_bytes,
                space_margin_bytes: segment_size_bytes / 4,
                ..journal::Options::small()
            },
            hooks: Hooks { on_credits, ..Hooks::default() },
            ..Options::default()
        };
        let store = Store::open(options).expect("a fresh folder opens");
        let bench = Self { store, clock, told };
        bench.settle();
        bench
    }

    fn settle(&self) {
        while self.store.drive() {}
    }

    fn set(&self, value: &[u8]) -> Result<Ticket, Stop> {
        self.set_key(b"k", value)
    }

    fn set_key(&self, key: &[u8], value: &[u8]) -> Result<Ticket, Stop> {
        let (keys, prepared) = ([KeyRef { db: 0, key }], Prepared::default());
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, value.len() as u64)?;
        access.put(0, key, Value::String(value), None);
        access.commit()
    }

    fn remove(&self, key: &[u8]) -> Result<Ticket, Stop> {
        let (keys, prepared) = ([KeyRef { db: 0, key }], Prepared::default());
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, 0)?;
        assert!(access.remove(0, key).expect("hot"), "it was there");
        access.commit()
    }

    /// Removes `keys` in one group.
    fn remove_all(&self, keys: &[[u8; 8]]) -> Result<Ticket, Stop> {
        let scope: Vec<_> = keys.iter().map(|key| KeyRef { db: 0, key }).collect();
        let prepared = fetched(&self.store, &scope);
        let mut access = self.store.access(Scope::Keys(&scope), &prepared, 0)?;
        for key in keys {
            assert!(access.remove(0, key).expect("hot"), "it was there");
        }
        access.commit()
    }

    /// The store after a stop or a death, while others take what it leaves.
    fn restarted(self, disk: &SimDisk, segment_bytes: u64, stops: bool) -> Self {
        self.settle();
        if stops {
            self.store.close();
        }
        disk.set_capacity(disk.used_bytes());
        drop(self);
        let bench = Self::sized(disk, Durability::Always, segment_bytes);
        bench.turn();
        disk.set_capacity(disk.used_bytes());
        bench
    }

    /// Attempts that wait for turns; the last one passes.
    fn patiently(&self, context: &str, attempt: impl Fn() -> Result<Ticket, Stop>) {
        let mut turns = 0;
        while let Err(stop) = attempt() {
            assert!(matches!(stop, Stop::Busy), "{context}: {stop:?}");
            assert!(turns < 1_000, "for ever: {context}");
            turns += 1;
            self.rest();
        }
    }

    /// A turn, a little later.
    fn rest(&self) -> bool {
        self.clock.advance(WORKED);
        self.turn()
    }

    fn turn(&self) -> bool {
        let (housekeeping, parts) = self.store.housekeeping().expect("engine log");
        let turn = housekeeping.turn(parts, Manner::Paced).expect("the journal runs");
        self.settle();
        turn.throttles
    }
}

/// What `keys` miss that is on disk.
fn fetched(store: &Store, keys: &[KeyRef<'_>]) -> Prepared {
    let mut prepared = Prepared::default();
    store.missing(keys, &mut prepared);
    let (sender, values) = std::sync::mpsc::channel();
    store.fetch(prepared, Box::new(move |prepared| sender.send(prepared).expect("somebody waits")));
    values.recv().expect("reads end")
}

/// Cleaning had no hold on writers: under a stream of overwrites the log grew to 9.7 times what lived.
#[test]
fn writers_wait_while_cleaning_is_behind_and_go_on_when_it_has_caught_up() {
    let bench = Bench::new();
    let value = [7; 8_000];
    for _ in 0..100 {
        bench.set(&value).expect("nothing is counted yet");
        bench.settle();
    }
    assert!(bench.turn(), "a hundred values in the log, one lives");
    let refused = (0..1_000).find(|_| matches!(bench.set(&value), Err(Stop::Busy)));
    assert!(refused.is_some(), "the allowance of one turn is used up");
    let (keys, prepared) = ([KeyRef { db: 0, key: b"k" }], Prepared::default());
    let mut access =
        bench.store.access(Scope::Keys(&keys), &prepared, 0).expect("a removal needs no credits");
    assert!(access.remove(0, b"k").expect("hot"), "it was there");
    access.commit().expect("removals never wait for cleaning");
    let told = bench.told.load(Ordering::Relaxed);
    bench.clock.advance(Duration::from_millis(20));
    bench.turn();
    assert!(bench.told.load(Ordering::Relaxed) > told, "who waited may try again");
    bench.set(&value).expect("time has granted something");
    let turns = (0..1_000).take_while(|_| {
        bench.clock.advance(Duration::from_millis(2));
        bench.turn()
    });
    assert!(turns.count() < 1_000, "what is dead comes back, and the throttle is let go");
    let report = bench.store.log_report().expect("engine log");
    assert!(report.log_bytes <= 5 * (64 << 10), "{report:?}");
    assert!(report.throttle_waits > 0 && report.throttle_bytes_per_second == 0, "{report:?}");
    assert_eq!(report.cleaned_bytes, 0, "segments that died whole are not read");
}

/// Deletes that came faster than housekeeping used up the room that is kept for them, and more than half of 30,000 were refused. Beside slow
/// ones cleaning used it up: it copied a part of a segment in which nearly all lived. Of values not larger than the record of a delete, no
/// segment became empty before the room was used up, and four of seven deletes were refused: what deletes write comes back by a checkpoint
/// once its own segment is sealed.
#[test]
fn deletes_in_a_row_on_a_full_disk_wait_for_the_segments_that_they_free() {
    for (step, value, beside) in [
        (1, 1_000, false),
        (7_919, 1_000, false),
        (7_919, 1_000, true),
        (7_919, 60, false),
        (7_919, 60, true),
        (7_919, 9_000, false),
    ] {
        let disk = SimDisk::new(1);
        let bench = Bench::on(&disk);
        bench.turn();
        disk.set_capacity(disk.used_bytes() + (1 << 20));
        let (key, value) = (|n: u32| n.to_be_bytes(), vec![7; value]);
        let is_full = |n: &u32| {
            let result = bench.set_key(&key(*n), &value);
            bench.settle();
            if n.is_multiple_of(8) {
                bench.rest();
            }
            matches!(result, Err(Stop::Refused(StoreError::DiskFull(_))))
        };
        let stored = (0..100_000).find(is_full).expect("the disk is full");
        // others fill what is left
        disk.set_capacity(disk.used_bytes());
        let mut waits = 0;
        for n in 0..stored {
            let key = key((n * step) % stored);
            let mut turns = 0;
            while let Err(stop) = bench.remove(&key) {
                assert!(
                    matches!(stop, Stop::Busy),
                    "{n} of {stored}, {step} {} {beside}: {stop:?}",
                    value.len()
                );
                assert!(turns < 100, "{n} of {stored} waits for ever");
                turns += 1;
                bench.rest();
            }
            if beside {
                bench.rest();
            }
            bench.settle();
            waits += u32::from(turns > 0);
        }
        assert!(waits > 0 || beside || value.len() > 1_000, "{stored} deletes never waited");
        let mut turns = 0;
        while bench.set_key(&key(0), &value).is_err() {
            assert!(turns < 1_000, "no writes on an empty store: {} {beside}", value.len());
            turns += 1;
            bench.rest();
        }
    }
}

/// Deletes of 100 B values were refused when a third was deleted: the open segment held copies beside the records of deletes, and their room was
/// taken for twice what it is.
#[test]
fn open_segment_with_copies_for_which_there_is_room_can_be_sealed() {
    let candidate =
        |records, bytes| Candidate { segment: 1, used_bytes: 4_165_424, live: Live { records, bytes } };
    let room_bytes = 6_282_240;
    assert!(is_within(&candidate(15_089, 2_534_952), room_bytes));
    assert!(is_within(&candidate(23_000, 3_864_000), room_bytes));
    assert!(!is_within(&candidate(25_000, 4_200_000), room_bytes), "some room for what is folded");
}

/// Deletes in a row over stops and deaths, with groups of them, records that are not durable yet, and others that take at each start what is free. A
/// delete was refused where housekeeping had looked before the commit: what is not durable can neither be sealed nor cleaned.
#[test]
fn all_can_be_deleted_on_a_full_disk_over_restarts() {
    for seed in 0..24 {
        delete_all_over_restarts(seed);
    }
}

fn delete_all_over_restarts(seed: u64) {
    let mut random = seed + 1;
    let mut below = |n: u64| {
        random = crate::mixed(random);
        random % n
    };
    let value = vec![7; [0, 16, 60, 100, 100, 300, 1_000, 4_000][below(8) as usize]];
    let (together, step) = ([1, 1, 10, 100][below(4) as usize], [1, 7_919][below(2) as usize]);
    let (turn_each, settle_each) = ([1, 8, 64][below(3) as usize], [1, 1, 20][below(3) as usize]);
    let (segments, restart_each) = (8 + below(24), 2 + below(4));
    let segment_bytes = [64 << 10, 64 << 10, 64 << 10, 1 << 20][below(4) as usize];
    let disk = SimDisk::new(seed);
    let mut bench = Bench::sized(&disk, Durability::Always, segment_bytes);
    bench.turn();
    disk.set_capacity(disk.used_bytes() + segments * segment_bytes);
    let key = |n: u64| n.to_be_bytes();
    let (mut stored, mut is_full) = (0, false);
    while !is_full {
        let result = bench.set_key(&key(stored), &value);
        bench.settle();
        is_full = matches!(result, Err(Stop::Refused(StoreError::DiskFull(_))));
        stored += u64::from(result.is_ok());
        if result.is_err() || below(turn_each) == 0 {
            bench.rest();
        }
    }
    let mut restart_at = below(stored / restart_each + 1);
    let context = format!(
        "seed {seed}: {stored} of {} B, {together} together, step {step}, a turn each {turn_each}, settled each {settle_each}",
        value.len()
    );
    disk.set_capacity(disk.used_bytes());
    let mut deleted = 0;
    while deleted < stored {
        let names: Vec<_> =
            (deleted..(deleted + together).min(stored)).map(|n| key(n * step % stored)).collect();
        bench.patiently(&format!("{deleted} deleted, {context}"), || bench.remove_all(&names));
        deleted += names.len() as u64;
        if below(settle_each) == 0 {
            bench.settle();
        }
        if below(turn_each) == 0 {
            bench.rest();
        }
        if deleted >= restart_at && deleted < stored {
            bench = bench.restarted(&disk, segment_bytes, below(2) == 0);
            restart_at = deleted + below(stored / restart_each + 1);
        }
    }
    assert_eq!(bench.store.key_counts().first().map_or(0, |count| count.0), 0, "{context}");
    bench.patiently(&format!("writes, {context}"), || match bench.set_key(&key(0), &value) {
        Err(Stop::Refused(StoreError::DiskFull(_))) => Err(Stop::Busy),
        result => result,
    });
}

/// With `durability` 1s a segment was cleaned each second, since its copies waited for the sync: writers had 1 MiB a second, and ZPOPMIN took 10 s.
#[test]
fn cleaning_does_not_wait_for_the_interval_of_syncs() {
    for durability in [Durability::Interval(Duration::from_secs(3_600)), Durability::Never] {
        let bench = Bench::with(&SimDisk::new(1), durability);
        for (key, round) in (0..4).flat_map(|round| (0..400_u32).map(move |key| (key, round))) {
            if round == 0 || key % 4 > 0 {
                bench.set_key(&key.to_be_bytes(), &[7; 1_000]).expect("nothing is counted yet");
                bench.settle();
            }
        }
        let ratio_percent = || {
            let report = bench.store.log_report().expect("engine log");
            report.log_bytes * 100 / report.live_bytes
        };
        assert!(ratio_percent() > 200, "{durability:?}: {} %", ratio_percent());
        (0..2_000).for_each(|_| _ = bench.rest());
        assert!(ratio_percent() < 150, "{durability:?}: {} %", ratio_percent());
    }
}

/// A removal of 100,000 members was planned anew at each wake-up to find that the throttle still held: 45 times, 17 s.
#[test]
fn command_that_found_no_room_is_executed_again_once_there_is() {
    let bench = Bench::new();
    let value = [7; 8_000];
    for _ in 0..100 {
        bench.set(&value).expect("nothing is counted yet");
        bench.settle();
    }
    assert!(bench.turn(), "a hundred values in the log, one lives");
    let (keys, mut prepared) = ([KeyRef { db: 0, key: b"k" }], Prepared::default());
    let (mut attempts, mut waits) = (0, 0);
    // as a command that removes: nobody knows beforehand what it writes
    for _ in 0..100 {
        // others take what there is
        while waits < 5 && bench.set(&value).is_ok() {}
        let attempt = bench.store.access(Scope::Keys(&keys), &prepared, 0).map(|mut access| {
            attempts += 1;
            access.put(0, b"k", Value::String(&value), None);
            (access.commit(), access.into_wanted())
        });
        let stop = match attempt {
            Ok((Ok(_), _)) => {
                return assert!(attempts <= 2 && waits > 2, "{attempts} attempts, {waits} waits");
            }
            Ok((Err(stop), wanted)) => {
                prepared.want(wanted);
                stop
            }
            Err(stop) => stop,
        };
        assert!(matches!(stop, Stop::Busy), "{stop:?}");
        waits += 1;
        if waits > 5 {
            bench.clock.advance(Duration::from_millis(20));
            bench.turn();
        }
    }
    panic!("{attempts} attempts, {waits} waits");
}

/// A backup kept housekeeping's lock while it copied: nothing was cleaned, the throttle was let go, and a group of 2,000 keys waited for all
/// of the copy (14 s).
#[test]
fn log_is_cleaned_and_large_groups_are_stored_while_a_backup_is_copied() {
    let disk = SimDisk::new(1);
    let bench = Bench::on(&disk);
    let names: Vec<[u8; 4]> = (0..100_u32).map(u32::to_be_bytes).collect();
    let fill = |value: &[u8]| {
        for name in &names {
            while bench.set_key(name, value).is_err() {
                bench.clock.advance(Duration::from_millis(20));
                bench.turn();
            }
            bench.settle();
        }
    };
    (0..5).for_each(|_| fill(&[7; 1_000]));
    let (housekeeping, parts) = bench.store.housekeeping().expect("engine log");
    let (mut pieces, report) = (0, || bench.store.log_report().expect("engine log"));
    let before = report();
    let mut pace = |_| {
        pieces += 1;
        assert!(parts.engine.applying.try_lock().is_ok(), "a large group would wait");
        if pieces == 1 {
            (0..20).for_each(|_| fill(&[8; 1_000]));
            bench.store.checkpoint().expect("published");
            for _ in 0..200 {
                bench.clock.advance(Duration::from_millis(50));
                bench.turn();
            }
        }
    };
    housekeeping.paced_backup(parts, "/out".as_ref(), &mut pace).expect("copied");
    assert!(pieces > 1, "the checkpoint, and what is not linked");
    assert!(report().checkpoints > before.checkpoints + 1, "{:?}", report());
    let copy = Store::open(Options {
        background: false,
        readers: 0,
        vfs: Arc::new(disk),
        dir: "/out".into(),
        journal: journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() },
        ..Options::default()
    })
    .expect("the copy opens");
    assert_eq!(copy.key_counts()[0].0, names.len() as u64);
    let keys: Vec<_> = names.iter().map(|key| KeyRef { db: 0, key }).collect();
    let prepared = fetched(&copy, &keys);
    let access = copy.access(Scope::Keys(&keys), &prepared, 0).expect("a read");
    for name in &names {
        let found = access.get(0, name).expect("it was read").expect("it was there");
        assert!(found.value == [7; 1_000], "as it was when the backup began");
    }
    assert_eq!(copy.log_report().expect("engine log").cold_failures, 0);
}

/// Cleaning read every segment whole, for the few records that lived there: 0.4 us for each SET of a benchmark.
#[test]
fn few_survivors_are_copied_without_reading_their_segment() {
    let disk = SimDisk::new(1);
    let bench = Bench::on(&disk);
    let name = |n: u32| n.to_be_bytes();
    for n in 0..2_000 {
        // every hundredth key is written once, the others all the time
        let key = if n % 100 == 0 { n } else { n % 20 };
        bench.set_key(&name(key), &[7; 1_000]).expect("room");
        bench.settle();
    }
    bench.store.checkpoint().expect("published");
    let before = bench.store.log_report().expect("engine log");
    for _ in 0..2_000 {
        bench.turn();
        bench.clock.advance(Duration::from_millis(5));
    }
    let report = bench.store.log_report().expect("engine log");
    let read = report.cleaned_bytes - before.cleaned_bytes;
    assert!(report.log_bytes < before.log_bytes / 5, "{report:?} after {before:?}");
    assert!(read > 10_000 && read < before.log_bytes / 10, "{read} B read or copied: {report:?}");
    drop(bench);
    let bench = Bench::on(&disk.crash(1));
    assert_eq!(bench.store.key_counts()[0].0, 39);
}

/// It was given back: whether it is damaged was looked at when it was found empty, and not when the checkpoint covered that.
#[test]
fn segment_in_which_damage_is_found_after_it_was_emptied_is_kept() {
    let bench = Bench::new();
    // some of each segment lives, so that it is cleaned before it is empty
    for (key, round) in (0..4).flat_map(|round| (0..400_u32).map(move |key| (key, round))) {
        if round == 0 || key % 4 > 0 {
            bench.patiently("a value", || bench.set_key(&key.to_be_bytes(), &[7; 1_000]));
            bench.settle();
        }
    }
    let (housekeeping, parts) = bench.store.housekeeping().expect("engine log");
    let emptied = || housekeeping.work().emptied.keys().next().copied();
    let mut turns = 0..1_000;
    while emptied().is_none() {
        assert!(turns.next().is_some(), "no segment is emptied");
        bench.rest();
    }
    let segment = emptied().expect("one is");
    parts.engine.quarantine().add(segment, "a test says so");
    (0..1_000).for_each(|_| _ = bench.rest());
    let is_listed = parts.engine.journal.segments().iter().any(|info| info.segment.0 == segment);
    assert!(is_listed && !housekeeping.work().emptied.contains_key(&segment), "{segment} is given back");
}

/// Footers were written for records that a checkpoint of a few KiB covered a moment later.
#[test]
fn few_keys_get_a_checkpoint_instead_of_footers() {
    let bench = Bench::new();
    for n in 0..90_u32 {
        bench.set_key(&(n % 10).to_be_bytes(), &[7; 1_000]).expect("room");
        bench.settle();
    }
    let (_, parts) = bench.store.housekeeping().expect("engine log");
    let is_footed = |info: &SegmentInfo| info.state == SegmentState::Footed;
    for _ in 0..100 {
        bench.clock.advance(Duration::from_millis(50));
        bench.turn();
        assert!(!parts.engine.journal.segments().iter().any(is_footed), "a footer");
    }
    let report = bench.store.log_report().expect("engine log");
    assert!(report.checkpoint_lsn >= 50 && report.checkpoints == 1, "{report:?}");
}

/// With the smallest segments the header of a file is a sixteenth of it, and counted as dead: on a disk that was nearly
/// full, all that lived was copied again and again, at full speed and for ever.
#[test]
fn housekeeping_of_what_lives_comes_to_rest_on_a_disk_that_is_nearly_full() {
    let disk = SimDisk::new(1);
    let bench = Bench::on(&disk);
    for n in 0..400_u32 {
        bench.set_key(&n.to_be_bytes(), &[7; 1_000]).expect("room");
        if n % 10 == 0 {
            bench.settle();
        }
    }
    bench.settle();
    disk.set_capacity(disk.used_bytes() + (400 << 10));
    let (housekeeping, parts) = bench.store.housekeeping().expect("engine log");
    let (mut turns, mut idle) = (0, 0);
    while idle < 100 {
        turns += 1;
        assert!(turns < 3_000, "no rest: {} B cleaned", housekeeping.counts().cleaned_bytes);
        let turn = housekeeping.turn(parts, Manner::Paced).expect("the journal runs");
        idle = if turn.worked { 0 } else { idle + 1 };
        bench.clock.advance(Duration::from_millis(50));
        bench.settle();
    }
}
