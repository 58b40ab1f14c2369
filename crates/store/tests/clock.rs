//! Engine `log` under clocks that jump, before, during and after restarts of process and machine.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SimClock, UnixMs};
use store::{Deadline, EngineKind, KeyRef, Options, Prepared, Scope, Store, Value};
use vfs::SimDisk;

const START_MS: u64 = 1_700_000_000_000;
const HOUR_MS: u64 = 3_600_000;

struct Machine {
    disk: SimDisk,
    clock: Arc<SimClock>,
    store: Arc<Store>,
}

impl Machine {
    fn new() -> Self {
        let (disk, clock) = (SimDisk::new(7), Arc::new(SimClock::new(UnixMs(START_MS))));
        let store = open(&disk, &clock);
        Self { disk, clock, store }
    }

    fn put(&self, key: &[u8], deadline: impl Fn(store::Moment) -> Deadline) {
        self.with(key, 64, |access| {
            let deadline = deadline(access.now());
            access.put(0, key, Value::String(b"v"), Some(deadline));
        });
        while self.store.drive() {}
    }

    /// A key with a TTL of `ms`.
    fn ttl(&self, key: &[u8], ms: u64) {
        self.put(key, |now| now.after(ms));
    }

    /// A key that ends at a time of the wall clock.
    fn at(&self, key: &[u8], unix_ms: u64) {
        self.put(key, |_| Deadline::at(UnixMs(unix_ms)));
    }

    fn left_ms(&self, key: &[u8]) -> Option<u64> {
        self.with(key, 0, |access| {
            let meta = access.meta(0, key).expect("hot");
            meta.map(|meta| access.now().left_ms(meta.expiry.expect("all have one")))
        })
    }

    fn with<T>(&self, key: &[u8], bytes: u64, mut f: impl FnMut(&mut store::Access<'_>) -> T) -> T {
        let (keys, mut prepared) = ([KeyRef { db: 0, key }], Prepared::default());
        while !self.store.missing(&keys, &mut prepared) {
            let (sender, receiver) = std::sync::mpsc::channel();
            self.store.fetch(prepared, Box::new(move |fetched| sender.send(fetched).expect("waits")));
            prepared = receiver.recv().expect("fetched at once");
        }
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, bytes).expect("room");
        let value = f(&mut access);
        access.commit().expect("room");
        value
    }

    fn set_wall(&self, by_ms: i64) {
        self.clock.set_unix_ms(UnixMs(self.clock.unix_ms().0.saturating_add_signed(by_ms)));
    }

    fn stop(&mut self, kill: bool) {
        if !kill {
            self.store.close();
        }
        self.disk = self.disk.process_death();
    }

    fn start(&mut self) {
        self.store = open(&self.disk, &self.clock);
    }
}

fn open(disk: &SimDisk, clock: &Arc<SimClock>) -> Arc<Store> {
    let options = Options {
        engine: EngineKind::Log,
        background: false,
        readers: 0,
        clock: clock.clone(),
        vfs: Arc::new(disk.clone()),
        dir: PathBuf::from("/data"),
        journal: journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() },
        ..Options::default()
    };
    let store = Store::open(options).expect("the folder opens");
    while store.drive() {}
    store
}

/// All ways in which the wall clock may be wrong: before the key is set, while it lives, while the server is down.
#[test]
fn ttl_ends_after_its_duration_wherever_the_wall_clock_jumps() {
    let jumps = [0, HOUR_MS as i64 * 2, -(HOUR_MS as i64) * 2, 1_000, -1_000];
    for (kill, checkpoint) in [(true, false), (false, false), (true, true)] {
        for before in jumps {
            for during in jumps {
                for down in jumps {
                    let mut machine = Machine::new();
                    machine.set_wall(before);
                    machine.ttl(b"k", 10_000);
                    machine.clock.advance(Duration::from_millis(1_000));
                    machine.set_wall(during);
                    assert_eq!(machine.left_ms(b"k"), Some(9_000));
                    if checkpoint {
                        machine.store.checkpoint().expect("no fault");
                    }
                    machine.stop(kill);
                    machine.clock.advance(Duration::from_millis(2_000));
                    machine.set_wall(down);
                    machine.start();
                    let context = format!("{before} {during} {down} {kill} {checkpoint}");
                    assert_eq!(machine.left_ms(b"k"), Some(7_000), "{context}");
                    machine.clock.advance(Duration::from_millis(6_999));
                    assert_eq!(machine.left_ms(b"k"), Some(1), "{context}");
                    machine.clock.advance(Duration::from_millis(1));
                    assert_eq!(machine.left_ms(b"k"), None, "{context}");
                }
            }
        }
    }
}

/// After the machine was off only its clock knows for how long.
#[test]
fn ttl_counts_the_time_that_the_machine_was_off_by_its_wall_clock_and_never_backwards() {
    for (by_ms, left_ms) in [(0, 7_000), (3_000, 4_000), (-2_000, 9_000), (-(HOUR_MS as i64), 10_000)] {
        let mut machine = Machine::new();
        machine.ttl(b"k", 10_000);
        machine.clock.advance(Duration::from_millis(1_000));
        machine.stop(true);
        machine.clock.advance(Duration::from_millis(2_000));
        machine.clock.reboot();
        machine.set_wall(by_ms);
        machine.start();
        // the newest clock record is from when the key was set
        assert_eq!(machine.left_ms(b"k"), Some(left_ms), "{by_ms}");
    }
}

#[test]
fn time_of_the_wall_clock_passes_when_the_clock_shows_it_and_stays_passed() {
    let mut machine = Machine::new();
    machine.at(b"soon", START_MS + HOUR_MS);
    machine.at(b"late", START_MS + 3 * HOUR_MS);
    machine.set_wall(2 * HOUR_MS as i64);
    let now = machine.store.now();
    assert!(now.has_passed(Deadline::at(UnixMs(START_MS + HOUR_MS))), "nobody has looked at the key yet");
    machine.set_wall(-2 * HOUR_MS as i64);
    assert_eq!(machine.left_ms(b"soon"), None, "it had passed");
    assert_eq!(machine.left_ms(b"late"), Some(3 * HOUR_MS));
    machine.at(b"again", START_MS + HOUR_MS);
    assert_eq!(machine.left_ms(b"again"), Some(HOUR_MS), "set later: what had passed is no matter");
    for kill in [true, false] {
        machine.stop(kill);
        machine.start();
        assert_eq!((machine.left_ms(b"soon"), machine.left_ms(b"again")), (None, Some(HOUR_MS)));
    }
}

/// The newest time in the log stopped time until the wall clock had caught up with it.
#[test]
fn clock_that_was_ahead_before_a_restart_freezes_nothing() {
    let mut machine = Machine::new();
    machine.set_wall(2 * HOUR_MS as i64);
    machine.ttl(b"old", 60_000);
    machine.stop(false);
    machine.set_wall(-2 * HOUR_MS as i64);
    machine.start();
    assert_eq!(machine.left_ms(b"old"), Some(60_000));
    machine.ttl(b"lock", 700);
    machine.at(b"at", START_MS + 700);
    machine.clock.advance(Duration::from_millis(700));
    assert_eq!((machine.left_ms(b"lock"), machine.left_ms(b"at")), (None, None));
    assert_eq!(machine.left_ms(b"old"), Some(59_300));
}

/// The clock was set back while the folder had no effect yet: no record said so, and the newest time in the log was taken for the ceiling of all
/// that came later. A key with a deadline between the two times was gone after the next start.
#[test]
fn clock_set_back_before_the_first_effect_ends_no_later_deadline_early() {
    for (kill, reboot, restart) in [(true, false, false), (false, true, false), (true, true, true)] {
        let mut machine = Machine::new();
        machine.set_wall(-(HOUR_MS as i64));
        if restart {
            machine.stop(true);
            machine.start();
        }
        machine.at(b"k", START_MS - HOUR_MS + 10_000);
        assert_eq!(machine.left_ms(b"k"), Some(10_000));
        machine.stop(kill);
        if reboot {
            machine.clock.reboot();
        }
        machine.start();
        assert_eq!(machine.left_ms(b"k"), Some(10_000), "kill {kill}, reboot {reboot}, restart {restart}");
        machine.clock.advance(Duration::from_millis(10_000));
        assert_eq!(machine.left_ms(b"k"), None);
    }
}

#[test]
fn many_small_steps_back_delay_no_ttl_and_each_is_on_record_once() {
    let machine = Machine::new();
    machine.ttl(b"k", 5_000);
    for step in 1..=50 {
        machine.clock.advance(Duration::from_millis(100));
        machine.set_wall(-1_000);
        assert_eq!(machine.left_ms(b"k"), Some(5_000 - step * 100).filter(|left| *left > 0), "{step}");
    }
    let report = machine.store.clock_report();
    assert_eq!((report.jumps_back, report.jumps_forward), (0, 0), "a second is no jump");
    assert_eq!(report.offset_ms, -50_000);
}

#[test]
fn jumps_in_both_directions_are_counted_over_restarts_too() {
    let mut machine = Machine::new();
    machine.ttl(b"k", HOUR_MS);
    machine.set_wall(5_000);
    assert_eq!(machine.left_ms(b"k"), Some(HOUR_MS));
    machine.set_wall(-9_000);
    assert_eq!(machine.left_ms(b"k"), Some(HOUR_MS));
    let report = machine.store.clock_report();
    assert_eq!((report.jumps_forward, report.jumps_back, report.last_jump_ms), (1, 1, -9_000));
    assert_eq!(report.offset_ms, -4_000);
    while machine.store.drive() {}
    machine.stop(true);
    machine.set_wall(8_000);
    machine.start();
    let report = machine.store.clock_report();
    assert_eq!((report.jumps_forward, report.jumps_back, report.last_jump_ms), (1, 0, 8_000));
}
