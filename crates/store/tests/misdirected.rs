//! A disk that puts records in each other's places: each of them verifies there, and is damage of both keys.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use clock::{Clock, SimClock, UnixMs};
use store::{EngineKind, KeyRef, Meta, Options, Prepared, Scope, Stop, Store, StoreError, Value};
use vfs::{OpenOptions, SimDisk, Vfs};

const DIR: &str = "/data";
/// What a disk writes at once.
const SECTOR_BYTES: usize = 512;
const HEADERS_BYTES: usize = 48 + 4;
/// Their records come to one sector each.
const A: &[u8] = b"first key";
const B: &[u8] = b"other key";

struct Machine {
    disk: SimDisk,
    store: Arc<Store>,
}

/// Which records change places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    /// Two of one batch.
    Together,
    /// Two batches of one record each.
    Apart,
}

impl Machine {
    fn open(disk: SimDisk, dir: &str) -> Result<Self, StoreError> {
        let clock: Arc<dyn Clock> = Arc::new(SimClock::new(UnixMs(1_000_000)));
        let options = Options {
            engine: EngineKind::Log,
            databases: 2,
            background: false,
            readers: 0,
            clock,
            vfs: Arc::new(disk.clone()),
            dir: PathBuf::from(dir),
            transaction_bytes_max: 1 << 20,
            journal: journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() },
            ..Options::default()
        };
        let machine = Self { disk, store: Store::open(options)? };
        machine.settle();
        Ok(machine)
    }

    /// A stopped store in whose first segment the records of `A` and `B` have changed places.
    fn hurt(written: Written) -> SimDisk {
        let machine = Self::open(SimDisk::new(7), DIR).expect("a fresh folder opens");
        let header_bytes = 64;
        let (mut filled, mut sizes) = (SECTOR_BYTES - header_bytes, [SECTOR_BYTES; 2]);
        if written == Written::Apart {
            sizes = [SECTOR_BYTES - header_bytes; 2];
            filled = sizes[0];
        }
        machine.set(b"filler", filled);
        for (key, size) in [A, B].into_iter().zip(sizes) {
            if written == Written::Apart {
                machine.settle();
            }
            machine.set(key, size);
        }
        machine.settle();
        for n in 0..200_u32 {
            machine.set(&n.to_le_bytes(), 700);
            machine.settle();
        }
        machine.store.checkpoint().expect("the disk is fine");
        machine.store.close();
        let disk = machine.disk.process_death();
        swap(&disk, written);
        disk
    }

    fn settle(&self) {
        while self.store.drive() {}
    }

    /// Runs `f` with the records that `keys` need.
    fn with<T>(
        &self,
        keys: &[&[u8]],
        f: impl Fn(&mut store::Access<'_>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        let keys: Vec<_> = keys.iter().map(|key| KeyRef { db: 0, key }).collect();
        let mut prepared = Prepared::default();
        loop {
            if !self.store.missing(&keys, &mut prepared) {
                prepared = self.fetch(prepared);
                continue;
            }
            let access = self.store.access(Scope::Keys(&keys), &prepared, 2_000);
            let done = access.and_then(|mut access| {
                let value = f(&mut access)?;
                access.commit().map(|_| value)
            });
            match done {
                Err(Stop::Cold) => {}
                Err(Stop::Busy) => self.settle(),
                done => return done,
            }
        }
    }

    fn fetch(&self, prepared: Prepared) -> Prepared {
        let (sender, receiver) = mpsc::channel();
        self.store.fetch(prepared, Box::new(move |fetched| sender.send(fetched).expect("the test waits")));
        receiver.recv().expect("it is fetched at once")
    }

    /// Gives `key` a value with which its record takes `size` bytes.
    fn set(&self, key: &[u8], size: usize) {
        let value = vec![key[0]; size - HEADERS_BYTES - key.len()];
        let put = |access: &mut store::Access<'_>| {
            access.put(0, key, Value::String(&value), None);
            Ok(())
        };
        self.with(&[key], put).expect("room");
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Stop> {
        self.with(&[key], |access| Ok(access.get(0, key)?.map(|found| found.value.to_vec())))
    }

    /// What a whole SCAN shows.
    fn keys(&self) -> Vec<Vec<u8>> {
        let mut prepared = Prepared::default();
        loop {
            let (mut keys, mut cursor) = (Vec::new(), 0);
            let access = self.store.access(Scope::Everything, &prepared, 0).expect("all keys");
            let scanned = loop {
                match access.scan(0, cursor, 10, &mut |key, _: Meta| keys.push(key.to_vec())) {
                    Ok(0) => break Ok(()),
                    Ok(next) => cursor = next,
                    Err(stop) => break Err(stop),
                }
            };
            let wanted = access.into_wanted();
            match scanned {
                Ok(()) => return keys,
                Err(Stop::Cold) => prepared.want(wanted),
                Err(stop) => panic!("{stop:?}"),
            }
            prepared = self.fetch(prepared);
        }
    }
}

/// The sectors of the records of `A` and `B` change places; whole batches, if each has one of its own.
fn swap(disk: &SimDisk, written: Written) {
    let is_segment = |path: &Path| path.extension().is_some_and(|extension| extension == "seg");
    for (path, length) in disk.files().into_iter().filter(|(path, _)| is_segment(path)) {
        let options = OpenOptions { write: true, ..OpenOptions::default() };
        let file = disk.open(&path, options).expect("it is there");
        let mut bytes = vec![0; length as usize];
        file.read_at(&mut bytes, 0).expect("no fault");
        let found = |key: &[u8]| bytes.windows(key.len()).position(|part| part == key);
        let (Some(a), Some(b)) = (found(A), found(B)) else { continue };
        let begin = HEADERS_BYTES + if written == Written::Apart { 64 } else { 0 };
        let (a, b) = (a - begin, b - begin);
        assert_eq!((a % SECTOR_BYTES, b % SECTOR_BYTES), (0, 0), "{written:?}: the test fills whole sectors");
        let sector = |at: usize| &bytes[at..at + SECTOR_BYTES];
        assert_eq!(file.write_at(sector(a), b as u64).expect("no fault"), SECTOR_BYTES);
        assert_eq!(file.write_at(sector(b), a as u64).expect("no fault"), SECTOR_BYTES);
        file.sync_data().expect("no fault");
        return;
    }
    panic!("the records lie in no segment");
}

/// A record of another key that a disk had put where a cold key's should be was taken for one of equal hash bits, and the key
/// for absent: it was lost without a word.
#[test]
fn cold_keys_whose_records_changed_places_are_damaged_and_not_absent() {
    for written in [Written::Together, Written::Apart] {
        let machine = Machine::open(Machine::hurt(written), DIR).expect("nothing of it is replayed");
        for key in [A, B] {
            let is_damage = |stop: &Stop| {
                matches!(stop, Stop::Damaged(StoreError::Damaged { reason, .. })
                    if reason == "the record is of another key than the index says")
            };
            let stops = [
                machine.get(key).map(drop),
                machine.with(&[b"filler", key], |access| access.get(0, key).map(drop)),
                machine.with(&[key], |access| access.meta(0, key).map(drop)),
                machine.with(&[key], |access| access.set_expiry(0, key, None).map(drop)),
            ];
            for stopped in stops {
                assert!(stopped.as_ref().is_err_and(is_damage), "{written:?}: {stopped:?}");
            }
        }
        let keys = machine.keys();
        assert_eq!(keys.len(), 201, "{written:?}: SCAN shows the others");
        assert!(!keys.iter().any(|key| key == A || key == B), "{written:?}: and neither of these");
        let report = machine.store.log_report().expect("engine log");
        assert_eq!(report.damaged_segments, 1, "{written:?}");
        assert!(report.cold_failures >= 8, "{written:?}: {} failures", report.cold_failures);
        machine.set(A, 100);
        assert_eq!(
            machine.get(A).expect("written again").map(|value| value.len()),
            Some(100 - HEADERS_BYTES - A.len())
        );
        assert!(
            machine.with(&[B], |access| access.remove(0, B)).expect("it is as good as certain to be B's")
        );
        assert_eq!(machine.get(B).expect("removed"), None);
    }
}

/// Cleaning took a record for dead that lay in the place of another key's, which the index still pointed at: the segment was
/// given back, and the next start was refused for want of it.
#[test]
fn segment_with_records_in_each_others_places_is_never_given_back() {
    for written in [Written::Together, Written::Apart] {
        let machine = Machine::open(Machine::hurt(written), DIR).expect("nothing of it is replayed");
        for round in 0..12 {
            for n in 0..200_u32 {
                machine.set(&n.to_le_bytes(), 600 + round);
                machine.settle();
            }
            for _ in 0..40 {
                machine.store.housekeep().expect("the disk is fine");
                machine.settle();
            }
        }
        machine.store.checkpoint().expect("the disk is fine");
        machine.store.close();
        let machine = Machine::open(machine.disk.process_death(), DIR).expect("all segments are there");
        for key in [A, B] {
            assert!(matches!(machine.get(key), Err(Stop::Damaged(_))), "{written:?}");
        }
    }
}

#[test]
fn check_and_salvage_tell_records_in_each_others_places_from_the_right_ones() {
    for written in [Written::Together, Written::Apart] {
        let disk = Machine::hurt(written);
        let checked = store::check(&disk, Path::new(DIR)).expect("it can be read");
        let said =
            checked.journal.damage.iter().map(|damage| damage.what.as_str()).collect::<Vec<_>>().join("; ");
        assert!(!said.is_empty(), "{written:?}: damage is reported");
        let expected = match written {
            Written::Together => "2 records that are of other keys than it says",
            Written::Apart => "out of order",
        };
        assert!(said.contains(expected), "{written:?}: {said}");
        let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
        let clock: Arc<dyn Clock> = Arc::new(SimClock::new(UnixMs(2_000_000)));
        store::salvage(&vfs, &clock, Path::new(DIR), Path::new("/saved")).expect("room");
        let saved = Machine::open(disk, "/saved").expect("it opens");
        for key in [A, B] {
            assert_eq!(
                saved.get(key).expect("whole"),
                None,
                "{written:?}: it is not known whether it is the newest"
            );
        }
        let filler = saved.get(b"filler").expect("whole");
        assert!(
            filler.is_some(),
            "{written:?}: a record whose own checksum holds is kept, whatever its batch has"
        );
    }
}
