//! What the folder takes on disk, for any sequence of value sizes: `store.space_ratio_max` times what lives, and a constant.
//!
//! Housekeeping runs as it does beside commands, on a simulated disk and clock; writers wait when they are told to.

use std::sync::Arc;
use std::time::Duration;

use clock::{SimClock, UnixMs};
use proptest::prelude::*;
use vfs::SimDisk;

use super::Manner;
use crate::{KeyRef, Prepared, Scope, Stop, Store, Value, testlog};

/// A write, as COPY, RESTORE and SET end up at the log, a whole value of some size, or as APPEND and SETRANGE do.
#[derive(Clone, Debug)]
enum Write {
    Set {
        key: u8,
        size: u32,
    },
    /// Some bytes of the value, from some place in it on or behind it: often enough to write it anew.
    Part {
        key: u8,
        at: u32,
        size: u32,
        times: u32,
    },
    Copy {
        from: u8,
        to: u8,
    },
    Delete {
        key: u8,
    },
    Flush,
    Restart,
    /// Nobody writes for a while.
    Rest,
}

struct Bench {
    disk: SimDisk,
    clock: Arc<SimClock>,
    file_bytes: u64,
    store: Arc<Store>,
    sizes: Vec<u32>,
    /// Writes until the next turn of housekeeping.
    countdown: u32,
    /// The largest value that was written.
    largest: u64,
    /// What lived before the last flush: its room comes back when housekeeping comes to it.
    flushed_bytes: u64,
}

const SEGMENT_BYTES: u64 = 256 << 10;
const VALUE_BYTES_MAX: u64 = 512 << 10;
const KEYS: u8 = 24;

impl Bench {
    /// A folder whose files begin at `file_bytes`.
    fn new(file_bytes: u64) -> Self {
        let (disk, clock) = (SimDisk::new(1), Arc::new(SimClock::new(UnixMs(1_000_000))));
        let store = Self::open(&disk, &clock, file_bytes);
        Self {
            disk,
            clock,
            file_bytes,
            store,
            sizes: vec![0; KEYS.into()],
            countdown: 0,
            largest: 0,
            flushed_bytes: 0,
        }
    }

    fn open(disk: &SimDisk, clock: &Arc<SimClock>, file_bytes: u64) -> Arc<Store> {
        testlog::simulated(disk, clock, SEGMENT_BYTES, |options| {
            options.value_bytes_max = VALUE_BYTES_MAX;
            options.transaction_bytes_max = 2 * VALUE_BYTES_MAX;
            options.journal.file_size_bytes_min = file_bytes;
        })
    }

    /// Time passes, and housekeeping has its turn.
    fn turn(&mut self) {
        self.clock.advance(Duration::from_millis(2));
        let (housekeeping, parts) = self.store.housekeeping().expect("engine log");
        housekeeping.turn(parts, Manner::Paced).expect("the journal runs");
        while self.store.drive() {}
    }

    fn run(&mut self, write: &Write) {
        match *write {
            Write::Set { key, size } => self.put(key, size),
            Write::Part { key, at, size, times } => (0..times).for_each(|n| {
                let old = self.sizes[usize::from(key)];
                let start = if n % 2 == 0 { old } else { at.min(old) };
                if start + size <= VALUE_BYTES_MAX as u32 - 16 {
                    self.part(key, start..start + size);
                }
            }),
            Write::Copy { from, to } => {
                let size = self.sizes[usize::from(from)];
                self.put(to, size);
            }
            Write::Delete { key } => {
                self.sizes[usize::from(key)] = 0;
                self.commit(key, |access| access.remove(0, &[key]).map(drop));
            }
            Write::Flush => {
                let live_bytes = self.store.log_report().expect("engine log").live_bytes;
                self.flushed_bytes = self.flushed_bytes.max(live_bytes);
                let prepared = Prepared::default();
                let mut access = self.store.access(Scope::Everything, &prepared, 0).expect("room");
                access.flush(0).expect("all is in scope");
                access.commit().expect("a flush frees");
                self.sizes.fill(0);
            }
            Write::Restart => {
                self.store.close();
                self.disk = self.disk.process_death();
                self.store = Self::open(&self.disk, &self.clock, self.file_bytes);
            }
            Write::Rest => {
                for _ in 0..100 {
                    self.clock.advance(Duration::from_millis(50));
                    self.turn();
                }
                self.flushed_bytes = 0;
            }
        }
        // a fast writer: many writes for each turn
        if self.countdown == 0 {
            self.countdown = 8;
            self.turn();
        }
        self.countdown -= 1;
        while self.store.drive() {}
        self.check(write);
    }

    fn put(&mut self, key: u8, size: u32) {
        let value = vec![7; size as usize];
        self.sizes[usize::from(key)] = size;
        self.largest = self.largest.max(size.into());
        self.commit(key, |access| {
            access.put(0, &[key], Value::String(&value), None);
            Ok(())
        });
    }

    fn part(&mut self, key: u8, part: std::ops::Range<u32>) {
        let size = &mut self.sizes[usize::from(key)];
        *size = part.end.max(*size);
        let value = vec![7; *size as usize];
        self.largest = self.largest.max(value.len() as u64);
        self.commit(key, |access| {
            let part = part.start as usize..part.end as usize;
            access.get(0, &[key])?;
            access.put_part(0, &[key], Value::String(&value), part, None)
        });
    }

    fn commit(&mut self, key: u8, f: impl Fn(&mut crate::Access<'_>) -> Result<(), Stop>) {
        let name = [key];
        let keys = [KeyRef { db: 0, key: &name }];
        for _ in 0..100_000 {
            let mut prepared = Prepared::default();
            while !self.store.missing(&keys, &mut prepared) {
                let (sender, receiver) = std::sync::mpsc::channel();
                self.store.fetch(prepared, Box::new(move |prepared| sender.send(prepared).expect("waits")));
                prepared = receiver.recv().expect("every fetch is completed");
            }
            // a command guesses what it will write, and guesses little
            let store = Arc::clone(&self.store);
            let done = store.access(Scope::Keys(&keys), &prepared, 1).and_then(|mut access| {
                f(&mut access)?;
                access.commit()
            });
            match done {
                Ok(_) => return,
                Err(Stop::Busy) => {
                    while self.store.drive() {}
                    self.turn();
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
        panic!("key {key} is never written: {:?}", self.store.log_report());
    }

    /// The bound of the manual, in bytes.
    fn check(&mut self, write: &Write) {
        let report = self.store.log_report().expect("engine log");
        let live_bytes = report.live_bytes.max(self.flushed_bytes);
        let most = RATIO * live_bytes + SEGMENTS_MORE * SEGMENT_BYTES + VALUES_MORE * self.largest;
        let used = self.disk.used_bytes();
        assert!(used <= most, "{used} B used, at most {most}, after {write:?}: {report:?}");
    }
}

/// `store.space_ratio_max` by default.
const RATIO: u64 = 2;
/// What the manual allows beside it ("Sizing"), in segments of full size and in the largest values that were written.
const SEGMENTS_MORE: u64 = 32;
const VALUES_MORE: u64 = 6;

fn size() -> impl Strategy<Value = u32> {
    let most = VALUE_BYTES_MAX as u32 - 16;
    prop_oneof![1_u32..100, 1_000_u32..20_000, 20_000_u32..100_000, 100_000_u32..most, Just(most)]
}

fn write() -> impl Strategy<Value = Write> {
    let key = || 0..KEYS;
    prop_oneof![
        12 => (key(), size()).prop_map(|(key, size)| Write::Set { key, size }),
        8 => (key(), 0..VALUE_BYTES_MAX as u32, prop_oneof![1_u32..100, 1_000_u32..20_000], 1_u32..60)
            .prop_map(|(key, at, size, times)| Write::Part { key, at, size, times }),
        4 => (key(), key()).prop_map(|(from, to)| Write::Copy { from, to }),
        2 => key().prop_map(|key| Write::Delete { key }),
        1 => Just(Write::Rest),
        1 => Just(Write::Restart),
        1 => Just(Write::Flush),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn any_sequence_of_value_sizes_stays_within_the_bound(
        writes in prop::collection::vec(write(), 1..300),
        is_grown in any::<bool>(),
    ) {
        let mut bench = Bench::new(if is_grown { SEGMENT_BYTES } else { SEGMENT_BYTES / 4 });
        writes.iter().for_each(|write| bench.run(write));
    }
}

/// A large group ends the segment before its own: of a small value between two large ones, a whole file is taken.
#[test]
fn small_values_between_large_ones_stay_within_the_bound_in_fresh_and_grown_folders() {
    let most = VALUE_BYTES_MAX as u32 - 16;
    for file_bytes in [SEGMENT_BYTES / 4, SEGMENT_BYTES] {
        for (keys, large, small) in
            [(1, 70_000, 1), (1, most, 1), (12, 70_000, 1), (12, most, 1), (1, 60_000, 60_000)]
        {
            let mut bench = Bench::new(file_bytes);
            for n in 0..200_u32 {
                bench.run(&Write::Set { key: (n % keys) as u8, size: large });
                bench.run(&Write::Set { key: KEYS - 1, size: small });
            }
            bench.run(&Write::Flush);
            bench.run(&Write::Rest);
            bench.run(&Write::Rest);
            assert!(bench.disk.used_bytes() <= SEGMENTS_AT_REST * SEGMENT_BYTES, "what is flushed goes");
        }
    }
}

/// What an empty folder takes at rest, in segments: the ready ones, the open one, and what nobody cleans.
const SEGMENTS_AT_REST: u64 = 10;
