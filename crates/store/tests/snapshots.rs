//! Large collections read in parts, as they were at one moment, while others change, rename and remove them: beside copies of a model.

use std::cell::Cell;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clock::{SimClock, UnixMs};
use store::{
    Access, EngineKind, KeyRef, ListChange, Options, Part, Prepared, Scope, Snapshot, Stop, Store,
    StoreError, ValueKind, Wanted,
};
use vfs::SimDisk;
use vfs::sim::Rng;

type Elements = Vec<(Vec<u8>, Vec<u8>)>;

struct World {
    store: Arc<Store>,
    clock: Arc<SimClock>,
    rng: Rng,
    key: Vec<u8>,
    kind: ValueKind,
    /// In the order of the collection; of a hash in that of its fields.
    model: Elements,
    readers: Vec<Reader>,
}

/// A snapshot that is read in parts.
struct Reader {
    snapshot: Snapshot,
    wanted: Elements,
    read: Elements,
    next: u64,
}

impl World {
    fn new(seed: u64, kind: ValueKind) -> Self {
        let clock = Arc::new(SimClock::new(UnixMs(1_000_000)));
        let options = Options {
            engine: EngineKind::Log,
            background: false,
            readers: 0,
            clock: Arc::<SimClock>::clone(&clock),
            vfs: Arc::new(SimDisk::new(seed)),
            dir: PathBuf::from("/data"),
            // short ones are written whole with each change, others by what has changed
            leaf_bytes: if seed.is_multiple_of(2) { 120 } else { 1_200 },
            memory_limit_bytes: MEMORY_BYTES,
            resident_bytes: too_much_by_turns,
            ..Options::default()
        };
        LOOKS.set(0);
        let store = Store::open(options).expect("the folder opens");
        let key = b"key".to_vec();
        Self { store, clock, rng: Rng::new(seed), key, kind, model: Vec::new(), readers: Vec::new() }
    }

    fn below(&mut self, count: usize) -> usize {
        self.rng.below(count.max(1) as u64) as usize
    }

    fn run<R>(&self, keys: &[&[u8]], work: impl Fn(&mut Access<'_>) -> Result<R, Stop>) -> R {
        let keys: Vec<KeyRef<'_>> = keys.iter().map(|key| KeyRef { db: 0, key }).collect();
        let mut prepared = Prepared::default();
        for _ in 0..1_000 {
            prepared = fetched(&self.store, prepared, &keys);
            let mut access = match self.store.access(Scope::Keys(&keys), &prepared, 1_000) {
                Ok(access) => access,
                Err(stop) => {
                    assert!(matches!(stop, Stop::Busy), "{stop:?}");
                    self.store.tend(0);
                    continue;
                }
            };
            match work(&mut access).and_then(|done| access.commit().map(|_| done)) {
                Ok(done) => {
                    while self.store.drive() {}
                    return done;
                }
                Err(Stop::Cold) => {
                    let wanted = access.into_wanted();
                    prepared.want(wanted);
                }
                // memory is full of what the log does not have yet
                Err(Stop::Refused(StoreError::MemoryLimit { .. })) => while self.store.drive() {},
                // room is made for it by turns, which are taken here by hand
                Err(Stop::Busy) => {
                    self.store.tend(0);
                    while self.store.drive() {}
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
        panic!("it is never ready");
    }

    /// Changes the collection somehow.
    fn change(&mut self) {
        let (at, len) = (self.below(self.model.len()), self.model.len());
        let values: Vec<Vec<u8>> = (0..1 + self.below(20)).map(|_| self.value()).collect();
        match (self.kind, self.below(12)) {
            (_, 0) => self.rename(),
            (_, 1) if self.below(4) == 0 => {
                self.run(&[&self.key], |access| access.remove(0, &self.key));
                self.model.clear();
            }
            (ValueKind::List, 2..4) => {
                let count = [1, 9, 200][self.below(3)].min(len - at.min(len));
                if count > 0 {
                    self.change_list(&[ListChange::Remove(at, count)]);
                    self.model.drain(at..at + count);
                }
            }
            (ValueKind::List, which) => {
                let at = if which < 8 { len } else { at };
                for value in values {
                    self.change_list(&[ListChange::Insert(at, &value)]);
                    self.model.insert(at, (value, Vec::new()));
                }
            }
            (ValueKind::SortedSet, 2..4) => {
                let to = (at + [1, 9, 200][self.below(3)]).min(len);
                self.run(&[&self.key], |access| access.remove_range(0, &self.key, self.kind, at..to))
                    .expect("of this type");
                self.model.drain(at..to);
            }
            (kind, which) => {
                let gone = which < 4 && len > 0;
                let names: Vec<Vec<u8>> = match gone {
                    true => self.model.iter().skip(at).take(values.len()).map(|it| it.0.clone()).collect(),
                    false => values,
                };
                self.run(&[&self.key], |access| {
                    let named = names.iter().map(|it| &it[..]);
                    if kind == ValueKind::SortedSet {
                        let score = |_, number: usize| {
                            Ok::<_, Infallible>((!gone).then_some(names[number].len() as f64))
                        };
                        return Ok(access.rescore(0, &self.key, named, score)?.map(|Ok(())| ()));
                    }
                    access.edit_each(0, &self.key, kind, named, |edit, tag, number| match gone {
                        true => _ = edit.delete(tag, &names[number]),
                        false => _ = edit.put(tag, &names[number], &names[number]),
                    })
                })
                .expect("of this type");
                self.model.retain(|(name, _)| !names.contains(name));
                if !gone {
                    let value = |name: &Vec<u8>| match kind {
                        ValueKind::SortedSet => (name.len() as f64).to_le_bytes().to_vec(),
                        _ => name.clone(),
                    };
                    self.model.extend(names.iter().map(|name| (name.clone(), value(name))));
                }
                let by_len = |name: &[u8]| if kind == ValueKind::SortedSet { name.len() } else { 0 };
                self.model.sort_by(|(a, _), (b, _)| by_len(a).cmp(&by_len(b)).then_with(|| a.cmp(b)));
                self.model.dedup();
            }
        }
    }

    fn change_list(&self, changes: &[ListChange<'_>]) {
        self.run(&[&self.key], |access| access.change_list(0, &self.key, changes)).expect("a list");
    }

    fn rename(&mut self) {
        let to = format!("key-{}", self.below(1_000)).into_bytes();
        if to != self.key && self.run(&[&self.key, &to], |access| access.rename_paged(0, &self.key, &to)) {
            self.key = to;
        }
    }

    fn value(&mut self) -> Vec<u8> {
        let mut value = format!("{}-", self.below(3_000)).into_bytes();
        let len = value.len() + [0, 3, 60][self.below(3)];
        value.resize(len, b'v');
        value
    }

    fn open_reader(&mut self) {
        let snapshot = self.run(&[&self.key], |access| access.snapshot(0, &self.key, self.kind));
        if let Some(snapshot) = snapshot.expect("of this type") {
            assert_eq!(snapshot.count(), self.model.len() as u64);
            let (wanted, read) = (self.model.clone(), Vec::new());
            self.readers.push(Reader { snapshot, wanted, read, next: 0 });
        }
    }

    /// Lets what is in memory be on disk alone.
    fn cool(&self) {
        self.store.set_memory_limit(1);
        self.store.tend(0);
        self.store.set_memory_limit(MEMORY_BYTES);
    }

    /// Reads a part; ends a reader that has read all.
    fn read_on(&mut self) {
        let at = self.below(self.readers.len());
        let count = 1 + self.below(40) as u64;
        let is_ordered = self.kind != ValueKind::Hash;
        let bytes_max = [1, 300, u64::MAX][self.below(3)];
        let Some(reader) = self.readers.get_mut(at) else { return };
        let end = if is_ordered { reader.snapshot.count() } else { reader.snapshot.leaves().into() };
        let to = (reader.next + count).min(end);
        let mut part = Elements::new();
        let next = until_ready(&self.store, |store, prepared| {
            part.clear();
            let each = |(name, value): store::Element<'_>| part.push((name.to_vec(), value.to_vec()));
            let bounds = Part { prepared, bytes_max };
            match is_ordered {
                true => reader
                    .snapshot
                    .read_range(store, bounds, reader.next..to, false, each)
                    .map(|left| left.start),
                false => {
                    let leaves = reader.next as u32..to as u32;
                    reader.snapshot.read_leaves(store, bounds, leaves, each).map(u64::from)
                }
            }
        })
        .expect("nothing is lost");
        assert!(next > reader.next, "a part has one element at least");
        reader.read.append(&mut part);
        reader.next = next;
        if next == end {
            let mut reader = self.readers.remove(at);
            if !is_ordered {
                reader.read.sort();
            }
            assert!(reader.read == reader.wanted, "{} of {}", reader.read.len(), reader.wanted.len());
        }
    }
}

fn fetched(store: &Store, mut prepared: Prepared, keys: &[KeyRef<'_>]) -> Prepared {
    while !store.missing(keys, &mut prepared) {
        let (sender, receiver) = std::sync::mpsc::channel();
        store.fetch(prepared, Box::new(move |fetched| sender.send(fetched).expect("it is awaited")));
        prepared = receiver.recv().expect("what is fetched comes back");
    }
    prepared
}

/// A part of any size.
fn whole(prepared: &Prepared) -> Part<'_> {
    Part { prepared, bytes_max: u64::MAX }
}

fn until_ready<R>(
    store: &Store,
    mut read: impl FnMut(&Store, &Prepared) -> Result<R, (Stop, Wanted)>,
) -> Result<R, Stop> {
    let mut prepared = Prepared::default();
    loop {
        match read(store, &prepared) {
            Ok(read) => return Ok(read),
            Err((Stop::Cold, wanted)) => {
                prepared.want(wanted);
                prepared = fetched(store, prepared, &[]);
            }
            Err((stop, _)) => return Err(stop),
        }
    }
}

#[test]
fn snapshot_is_read_as_it_was_whatever_becomes_of_the_collection() {
    for seed in 0..4 {
        for kind in [ValueKind::Hash, ValueKind::List, ValueKind::SortedSet] {
            println!("seed {seed}, {kind:?}");
            let mut world = World::new(seed, kind);
            let mut read = 0;
            for step in 0..STEPS {
                match world.below(8) {
                    0 if world.readers.len() < 4 => world.open_reader(),
                    0..4 if !world.readers.is_empty() => {
                        let before = world.readers.len();
                        world.read_on();
                        read += before - world.readers.len();
                    }
                    _ => world.change(),
                }
                if step % 16 == 0 {
                    world.store.tend(100);
                    while world.store.drive() {}
                    world.cool();
                }
            }
            assert!(read > 5, "{read} snapshots were read to their ends");
            world.run(&[&world.key], |access| access.remove(0, &world.key));
            world.store.tend(100);
            while world.store.drive() {}
            world.readers.clear();
            while world.store.leaf_report().swept > 0 {
                world.store.tend(100);
                while world.store.drive() {}
            }
            assert_eq!(world.store.leaf_report().leaves, 0);
        }
    }
}

#[test]
fn leaves_of_what_is_removed_stay_until_the_last_reader_ends() {
    let mut world = World::new(1, ValueKind::Hash);
    while world.model.len() < 900 {
        world.change();
    }
    world.open_reader();
    world.run(&[&world.key], |access| access.remove(0, &world.key));
    for _ in 0..200 {
        world.store.tend(100);
        while world.store.drive() {}
    }
    assert!(world.store.leaf_report().leaves > 0);
    while !world.readers.is_empty() {
        world.read_on();
    }
    while world.store.leaf_report().swept > 0 {
        world.store.tend(100);
        while world.store.drive() {}
    }
    assert_eq!(world.store.leaf_report().leaves, 0);
}

#[test]
fn reader_that_takes_nothing_for_a_minute_holds_up_no_leaves() {
    let mut world = World::new(1, ValueKind::Hash);
    while world.model.len() < 900 {
        world.change();
    }
    world.open_reader();
    world.run(&[&world.key], |access| access.remove(0, &world.key));
    let sweep = |world: &World| {
        for _ in 0..200 {
            world.store.tend(100);
            while world.store.drive() {}
        }
        world.store.leaf_report().leaves
    };
    world.clock.advance(Duration::from_secs(59));
    assert!(sweep(&world) > 0);
    world.clock.advance(Duration::from_secs(2));
    assert_eq!(sweep(&world), 0);
    let reader = &world.readers[0];
    let read = until_ready(&world.store, |store, prepared| {
        reader.snapshot.read_leaves(store, whole(prepared), 0..1, |_| {})
    });
    assert!(matches!(read, Err(Stop::Refused(StoreError::SnapshotLost(_)))), "{read:?}");
}

#[test]
fn what_is_kept_for_all_readers_is_bounded() {
    let mut world = World::new(1, ValueKind::Hash);
    while world.model.len() < 1_500 {
        world.change();
    }
    (0..20).for_each(|_| world.open_reader());
    let names: Vec<Vec<u8>> = world.model.iter().map(|(name, _)| name.clone()).collect();
    let mut kept_bytes = 0;
    for names in names.chunks(20) {
        world
            .run(&[&world.key], |access| {
                let named = names.iter().map(|it| &it[..]);
                access.edit_each(0, &world.key, ValueKind::Hash, named, |edit, tag, number| {
                    edit.put(tag, &names[number], b"other");
                })
            })
            .expect("a hash");
        kept_bytes = kept_bytes.max(world.store.snapshot_bytes());
    }
    // 20 copies of all would be more than an eighth of the limit
    assert!((MEMORY_BYTES / 16..=MEMORY_BYTES / 8).contains(&kept_bytes), "{kept_bytes} B were kept");
    let is_lost = |reader: &Reader| {
        let read = |store: &Store, prepared: &Prepared| {
            reader.snapshot.read_leaves(store, whole(prepared), 0..1, |_| {})
        };
        matches!(until_ready(&world.store, read), Err(Stop::Refused(StoreError::SnapshotLost(_))))
    };
    assert!(world.readers.iter().any(is_lost));
    world.readers.clear();
    assert_eq!(world.store.snapshot_bytes(), 0);
}

#[test]
fn flush_ends_a_snapshot_with_an_error() {
    let mut world = World::new(1, ValueKind::List);
    while world.model.len() < 400 {
        world.change();
    }
    world.open_reader();
    let prepared = Prepared::default();
    let mut access = world.store.access(Scope::Everything, &prepared, 0).expect("room");
    access.flush(0).expect("all is locked");
    access.commit().expect("room");
    while world.store.drive() {}
    let reader = &world.readers[0];
    let read = until_ready(&world.store, |store, prepared| {
        reader.snapshot.read_range(store, whole(prepared), 0..400, false, |_| {})
    });
    assert!(matches!(read, Err(Stop::Refused(StoreError::SnapshotLost(_)))), "{read:?}");
}

const STEPS: usize = 1_500;
/// An eighth of it holds copies of all that four readers read, which no test here but one outgrows.
const MEMORY_BYTES: u64 = 8 << 20;

thread_local! {
    static LOOKS: Cell<u64> = const { Cell::new(0) };
}

/// What is resident: at first the program alone, and then so much every other time that values move.
fn too_much_by_turns() -> u64 {
    LOOKS.set(LOOKS.get() + 1);
    (4 << 20) + if LOOKS.get().is_multiple_of(2) { MEMORY_BYTES + (4 << 20) } else { 0 }
}
