//! Engine `log` from outside, on the simulated disk, driven by hand: what a start finds again.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc;

use clock::{SimClock, UnixMs};
use proptest::prelude::*;
use store::{
    Deadline, Durability, EngineKind, KeyRef, Options, Prepared, Scope, Stop, Store, StoreError, Value,
    ValueKind,
};
use ticket::Ticket;
use vfs::{OpenOptions, SimDisk, Vfs};

struct Machine {
    disk: SimDisk,
    clock: Arc<SimClock>,
    hash_bits: u32,
    store: Arc<Store>,
}

fn options(disk: &SimDisk, clock: &Arc<SimClock>, hash_bits: u32) -> Options {
    Options {
        engine: EngineKind::Log,
        databases: 3,
        hash_bits,
        background: false,
        readers: 0,
        clock: clock.clone(),
        vfs: Arc::new(disk.clone()),
        dir: PathBuf::from("/data"),
        transaction_bytes_max: 1 << 20,
        journal: journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() },
        ..Options::default()
    }
}

impl Machine {
    fn new(hash_bits: u32) -> Self {
        let (disk, clock) = (SimDisk::new(7), Arc::new(SimClock::new(UnixMs(1_000_000))));
        let store = Store::open(options(&disk, &clock, hash_bits)).expect("a fresh folder opens");
        while store.drive() {}
        Self { disk, clock, hash_bits, store }
    }

    fn try_open(&mut self) -> Result<(), StoreError> {
        self.store = Store::open(options(&self.disk, &self.clock, self.hash_bits))?;
        while self.store.drive() {}
        Ok(())
    }

    fn crash(&mut self, seed: u64) {
        self.disk = self.disk.crash(seed);
        self.try_open().expect("a folder opens after power loss");
    }

    fn restart(&mut self) {
        self.store.close();
        self.disk = self.disk.process_death();
        self.try_open().expect("a folder opens after a clean stop");
    }

    fn settle(&self) {
        while self.store.drive() {}
    }

    fn with<T>(
        &self,
        db: u16,
        key: &[u8],
        credit: u64,
        f: impl Fn(&mut store::Access<'_>) -> Result<T, Stop>,
    ) -> T {
        let keys = [KeyRef { db, key }];
        let mut prepared = Prepared::default();
        loop {
            if !self.store.missing(&keys, &mut prepared) {
                prepared = fetch(&self.store, prepared);
                continue;
            }
            match self.store.access(Scope::Keys(&keys), &prepared, credit) {
                Ok(mut access) => match f(&mut access).and_then(|value| access.commit().map(|_| value)) {
                    Ok(value) => return value,
                    Err(Stop::Cold) => continue,
                    Err(Stop::Busy) => self.settle(),
                    Err(stop) => panic!("{stop:?}"),
                },
                Err(Stop::Busy) => self.settle(),
                Err(stop) => panic!("{stop:?}"),
            }
        }
    }

    fn set(&self, db: u16, key: &[u8], value: &[u8], expiry: Option<u64>) {
        self.with(db, key, 4 + value.len() as u64, |access| {
            access.put(db, key, Value::String(value), expiry.map(|at| Deadline::at(UnixMs(at))));
            Ok(())
        });
    }

    fn del(&self, db: u16, key: &[u8]) -> bool {
        self.with(db, key, 64, |access| access.remove(db, key))
    }

    fn expire(&self, db: u16, key: &[u8], expiry: Option<u64>) -> bool {
        self.with(db, key, 64, |access| access.set_expiry(db, key, expiry.map(|at| Deadline::at(UnixMs(at)))))
    }

    fn get(&self, db: u16, key: &[u8]) -> Option<(Vec<u8>, Option<u64>)> {
        self.with(db, key, 0, |access| {
            let found = access.get(db, key)?;
            Ok(found.map(|found| (found.value.to_vec(), found.expiry.map(|at| access.now().unix_of(at).0))))
        })
    }

    fn field(&self, db: u16, key: &[u8], field: u8, value: Option<u8>) {
        self.change_field(db, key, field, value.as_ref().map(std::slice::from_ref));
    }

    fn long_field(&self, db: u16, key: &[u8], field: &[u8], value: &[u8]) {
        self.with(db, key, 64 + value.len() as u64, |access| {
            let put = |hash: &mut store::Edit<'_>, tag| hash.put(tag, field, value);
            let changed = access.edit_element(db, key, ValueKind::Hash, field, put)?;
            Ok(changed.expect("it is a hash"))
        });
    }

    /// Sets or deletes a field of a hash; returns whether it was there.
    fn change_field(&self, db: u16, key: &[u8], field: u8, value: Option<&[u8]>) -> bool {
        self.with(db, key, 64 + 4_096, |access| {
            let changed =
                access.edit_element(db, key, ValueKind::Hash, &[field], |hash, tag| match value {
                    Some(value) => !hash.put(tag, &[field], value),
                    None => hash.delete(tag, &[field]),
                })?;
            Ok(changed.expect("it is a hash"))
        })
    }

    fn fields(&self, db: u16, key: &[u8]) -> Option<BTreeMap<Vec<u8>, Vec<u8>>> {
        self.with(db, key, 0, |access| {
            let hash = access.collection(db, key, ValueKind::Hash)?.expect("it is a hash");
            let fields = hash.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect();
            Ok((!hash.is_empty()).then_some(fields))
        })
    }

    /// What APPEND and SETRANGE do: `bytes` over the value from `at` on, zeroes in a gap.
    fn part(&self, db: u16, key: &[u8], at: usize, bytes: &[u8]) {
        self.with(db, key, 4 + bytes.len() as u64, |access| part(access, db, key, at, bytes));
    }

    fn everything(&self, f: impl Fn(&mut store::Access<'_>) -> Result<(), Stop>) {
        let prepared = Prepared::default();
        let mut access = self.store.access(Scope::Everything, &prepared, 64).expect("room");
        f(&mut access).expect("everything is in scope");
        access.commit().expect("room");
    }
}

fn part(access: &mut store::Access<'_>, db: u16, key: &[u8], at: usize, bytes: &[u8]) -> Result<(), Stop> {
    let found = access.get(db, key)?;
    let (mut value, expiry) = found.map_or((Vec::new(), None), |found| (found.value.to_vec(), found.expiry));
    let changed = at.min(value.len())..at + bytes.len();
    put_over(&mut value, at, bytes);
    access.put_part(db, key, Value::String(&value), changed, expiry)
}

fn put_over(value: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    value.resize(value.len().max(at + bytes.len()), 0);
    value[at..at + bytes.len()].copy_from_slice(bytes);
}

fn fetch(store: &Store, prepared: Prepared) -> Prepared {
    let (sender, receiver) = mpsc::channel();
    store.fetch(prepared, Box::new(move |prepared| sender.send(prepared).expect("waits")));
    receiver.recv().expect("every fetch is completed")
}

#[test]
fn acknowledged_keys_are_there_after_power_loss() {
    let mut machine = Machine::new(128);
    for n in 0..500_u32 {
        machine.set(0, &n.to_le_bytes(), &[n as u8; 100], None);
    }
    machine.del(0, &7_u32.to_le_bytes());
    machine.settle();
    assert_eq!(machine.store.released_seq(), machine.store.newest_seq());
    machine.crash(3);
    assert_eq!(machine.get(0, &7_u32.to_le_bytes()), None);
    for n in (0..500_u32).filter(|n| *n != 7) {
        assert_eq!(machine.get(0, &n.to_le_bytes()), Some((vec![n as u8; 100], None)), "key {n}");
    }
}

/// What waited for a slow disk was left out of the report, and of `memory.limit`.
#[test]
fn memory_counts_what_waits_in_the_journal() {
    let machine = Machine::new(128);
    let waits = || machine.store.memory().reported_bytes;
    assert_eq!(waits(), 0);
    machine.set(0, b"k", &[1; 5_000], None);
    assert!(waits() >= 5_000, "{} B", waits());
    machine.settle();
    assert_eq!(waits(), 0);
    machine.store.set_memory_limit(20_000);
    (0..5_u8).for_each(|n| machine.set(0, b"k", &[n; 3_000], None));
    let (keys, prepared) = ([KeyRef { db: 0, key: b"other" }], Prepared::default());
    let mut access = machine.store.access(Scope::Keys(&keys), &prepared, 5_000).expect("credits");
    access.put(0, b"other", Value::String(&[1; 5_000]), None);
    assert!(matches!(access.commit(), Err(Stop::Busy)), "only what waits for the disk is too much");
    machine.settle();
    machine.set(0, b"other", &[1; 5_000], None);
}

/// A damaged checkpoint stood in the way of every start, even where the log still held every record.
#[test]
fn damaged_checkpoint_is_passed_over_while_the_log_is_whole_and_refused_after() {
    let mut machine = Machine::new(128);
    let damaged = |machine: &mut Machine| {
        machine.store.close();
        machine.disk = machine.disk.process_death();
        let is_checkpoint = |path: &std::path::Path| path.to_string_lossy().contains("checkpoint-");
        let (path, len) =
            machine.disk.files().into_iter().find(|(path, _)| is_checkpoint(path)).expect("a stop takes one");
        machine.disk.flip_bit(&path, len / 2, 3).expect("it is there");
        machine.try_open()
    };
    (0..200_u32).for_each(|n| machine.set(0, &n.to_le_bytes(), &[n as u8; 100], None));
    assert!(machine.del(0, &7_u32.to_le_bytes()));
    let report = |machine: &Machine| machine.store.log_report().expect("engine log");
    assert_eq!(report(&machine).damaged_segments, 0);
    damaged(&mut machine).expect("the log holds every record");
    assert_eq!(report(&machine).damaged_segments, 1, "what a start finds is counted");
    for n in 0..200_u32 {
        let expected = (n != 7).then(|| (vec![n as u8; 100], None));
        assert_eq!(machine.get(0, &n.to_le_bytes()), expected, "key {n}");
    }
    for round in 0..20_u32 {
        (0..200_u32).for_each(|n| machine.set(0, &n.to_le_bytes(), &[round as u8; 100], None));
        for _ in 0..20 {
            machine.store.housekeep().expect("the disk is fine");
            machine.settle();
        }
    }
    let error = damaged(&mut machine).expect_err("what was given back may have held removals");
    assert!(error.to_string().contains("--salvage"), "{error}");
}

/// A start that read a segment whole, since its footer did not verify, told only the log.
#[test]
fn damaged_footer_that_a_start_goes_on_without_is_counted() {
    let mut machine = Machine::new(128);
    (0..900_u32).for_each(|n| machine.set(0, &n.to_le_bytes(), &[n as u8; 100], None));
    machine.settle();
    let is_footed =
        |machine: &Machine| machine.store.journal_counters().expect("engine log").segments_footed > 0;
    for _ in 0..100 {
        if is_footed(&machine) {
            break;
        }
        machine.store.housekeep().expect("the disk is fine");
        machine.settle();
    }
    assert!(is_footed(&machine));
    machine.disk = machine.disk.process_death();
    let files: Vec<_> = machine.disk.files();
    for (path, len) in files.iter().filter(|(path, _)| path.extension().is_some_and(|it| it == "seg")) {
        let file = machine.disk.open(path, OpenOptions::default()).expect("it is there");
        let is_footer = |at: &u64| {
            let mut magic = [0; 4];
            file.read_at(&mut magic, *at).expect("readable");
            magic == *b"EKF1"
        };
        if let Some(at) = (4_096..*len).step_by(4_096).find(is_footer) {
            machine.disk.flip_bit(path, at + 70, 3).expect("it is there");
        }
    }
    machine.try_open().expect("the records say the same");
    let report = machine.store.log_report().expect("engine log");
    assert!(report.damaged_segments > 0, "{report:?}");
    for n in 0..900_u32 {
        assert_eq!(machine.get(0, &n.to_le_bytes()), Some((vec![n as u8; 100], None)), "key {n}");
    }
}

#[test]
fn backup_of_a_running_store_opens_with_everything_acknowledged_before() {
    let machine = Machine::new(128);
    for n in 0..900_u32 {
        machine.set(0, &(n % 300).to_le_bytes(), &[n as u8; 200], None);
        machine.settle();
        if n % 20 == 0 {
            machine.store.housekeep().expect("the disk is fine");
        }
    }
    machine.store.backup(&PathBuf::from("/backup")).expect("room");
    assert!(
        machine.store.backup(&PathBuf::from("/backup")).is_err(),
        "a folder that is not empty is refused"
    );
    // what happens to the original afterwards does not reach the copy
    for n in 0..900_u32 {
        machine.set(0, &(n % 300).to_le_bytes(), b"later", None);
        machine.settle();
        if n % 5 == 0 {
            machine.store.housekeep().expect("the disk is fine");
        }
    }
    let copy = Options { dir: PathBuf::from("/backup"), ..options(&machine.disk, &machine.clock, 128) };
    let copy = Machine { store: Store::open(copy).expect("a backup opens"), ..machine };
    for n in 600..900_u32 {
        assert_eq!(copy.get(0, &(n % 300).to_le_bytes()), Some((vec![n as u8; 200], None)), "key {n}");
    }
}

#[test]
fn collection_survives_cleaning_and_power_loss_field_by_field() {
    for hash_bits in [128, 8] {
        let mut machine = Machine::new(hash_bits);
        let mut expected: BTreeMap<u8, BTreeMap<Vec<u8>, Vec<u8>>> = BTreeMap::new();
        for n in 0..1_500_u32 {
            let (key, field) = ((n % 7) as u8, (n / 7 % 11) as u8);
            let fields = expected.entry(key).or_default();
            if n == u32::from(key) {
                // so long that what follows is logged field by field
                fields.insert(b"long".to_vec(), vec![1; 4_000]);
                machine.long_field(0, &[key], b"long", &[1; 4_000]);
            }
            if n % 5 == 0 {
                fields.remove(&vec![field]);
                machine.field(0, &[key], field, None);
            } else {
                fields.insert(vec![field], vec![n as u8]);
                machine.field(0, &[key], field, Some(n as u8));
            }
            machine.set(1, &(n % 40).to_le_bytes(), &[7; 900], None);
            machine.settle();
            if n % 3 == 0 {
                machine.store.housekeep().expect("the disk is fine");
            }
            if n % 400 == 399 {
                machine.crash(u64::from(n));
            }
        }
        for (key, fields) in expected {
            assert_eq!(machine.fields(0, &[key]), Some(fields), "collection {key} with {hash_bits} bits");
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Set { db: u16, key: u8, len: usize, ttl: u64 },
    Del { db: u16, key: u8 },
    Expire { db: u16, key: u8, ttl: u64 },
    Part { db: u16, key: u8, at: usize, len: usize },
    Field { db: u16, key: u8, field: u8, len: Option<usize> },
    Flush { db: u16 },
    Swap { a: u16, b: u16 },
    Drive,
    Keep { turns: usize },
    Checkpoint,
    Restart,
    Crash { seed: u64 },
    Kill,
}

fn op() -> impl Strategy<Value = Op> {
    let (db, key, ttl) =
        (0..3_u16, 0..COLLECTIONS.start, prop_oneof![3 => Just(0_u64), 1 => 1_000_000..9_000_000_u64]);
    prop_oneof![
        60 => (db.clone(), key, 0..3_000_usize, ttl.clone())
            .prop_map(|(db, key, len, ttl)| Op::Set { db, key, len, ttl }),
        15 => (db.clone(), 0..KEYS).prop_map(|(db, key)| Op::Del { db, key }),
        // mostly of a few keys, so that they get long and are changed more often than they may have deltas
        60 => (0..2_u16, 0..4_u8, 0..12_000_usize, prop_oneof![4 => 1..60_usize, 1 => 60..5_000_usize])
            .prop_map(|(db, key, at, len)| Op::Part { db, key, at, len }),
        10 => (db.clone(), prop_oneof![0..4_u8, 0..KEYS], ttl).prop_map(|(db, key, ttl)| Op::Expire { db, key, ttl }),
        20 => (db.clone(), COLLECTIONS, 0..6_u8, proptest::option::weighted(0.7, 0..600_usize))
            .prop_map(|(db, key, field, len)| Op::Field { db, key, field, len }),
        1 => db.clone().prop_map(|db| Op::Flush { db }),
        1 => (db.clone(), db).prop_map(|(a, b)| Op::Swap { a, b }),
        20 => Just(Op::Drive),
        20 => (1..40_usize).prop_map(|turns| Op::Keep { turns }),
        2 => Just(Op::Checkpoint),
        1 => Just(Op::Restart),
        2 => any::<u64>().prop_map(|seed| Op::Crash { seed }),
        1 => Just(Op::Kill),
    ]
}

/// Keys that commands use.
const KEYS: u8 = 44;
/// Those of them that are hashes.
const COLLECTIONS: std::ops::Range<u8> = 40..KEYS;

type Expected = BTreeMap<(u16, u8), (Vec<u8>, Option<u64>)>;

fn run(machine: &mut Machine, expected: &mut Expected, at: usize, op: &Op) {
    match *op {
        Op::Set { db, key, len, ttl } => {
            let (value, expiry) = (vec![at as u8; len], (ttl > 0).then_some(1_000_000 + ttl));
            machine.set(db, &[key], &value, expiry);
            expected.insert((db, key), (value, expiry));
        }
        Op::Del { db, key } => {
            assert_eq!(machine.del(db, &[key]), expected.remove(&(db, key)).is_some());
        }
        Op::Expire { db, key, ttl } => {
            let expiry = (ttl > 0).then_some(1_000_000 + ttl);
            let there = machine.expire(db, &[key], expiry);
            assert_eq!(there, expected.contains_key(&(db, key)));
            if let Some(state) = expected.get_mut(&(db, key)) {
                state.1 = expiry;
            }
        }
        Op::Part { db, key, at: offset, len } => {
            let bytes = vec![at as u8; len];
            machine.part(db, &[key], offset, &bytes);
            put_over(&mut expected.entry((db, key)).or_default().0, offset, &bytes);
        }
        Op::Field { .. } => run_fields(machine, expected, at, op),
        Op::Flush { db } => {
            machine.everything(|access| access.flush(db));
            expected.retain(|(of, _), _| *of != db);
        }
        Op::Swap { a, b } => {
            machine.everything(|access| access.swap(a, b));
            let swapped = |db: u16| {
                if db == a {
                    b
                } else if db == b {
                    a
                } else {
                    db
                }
            };
            *expected =
                std::mem::take(expected).into_iter().map(|((db, key), v)| ((swapped(db), key), v)).collect();
        }
        Op::Drive => machine.settle(),
        Op::Keep { turns } => (0..turns).for_each(|_| {
            machine.store.housekeep().expect("the disk is fine");
            machine.store.drive();
        }),
        Op::Checkpoint => machine.store.checkpoint().expect("the disk is fine"),
        Op::Restart => machine.restart(),
        Op::Crash { seed } => {
            machine.settle();
            machine.crash(seed);
        }
        Op::Kill => {
            machine.settle();
            machine.disk = machine.disk.process_death();
            machine.try_open().expect("a folder opens after kill -9");
        }
    }
}

fn run_fields(machine: &Machine, expected: &mut Expected, at: usize, op: &Op) {
    let Op::Field { db, key, field, len } = *op else { return };
    let mut fields = expected.get(&(db, key)).map(|(image, _)| fields_of(image)).unwrap_or_default();
    let value = len.map(|len| vec![at as u8; len]);
    let was_there = match &value {
        Some(value) => fields.insert(vec![field], value.clone()).is_some(),
        None => fields.remove(&[field][..]).is_some(),
    };
    assert_eq!(machine.change_field(db, &[key], field, value.as_deref()), was_there);
    if fields.is_empty() {
        expected.remove(&(db, key));
    } else {
        expected.entry((db, key)).or_default().0 = image_of(&fields);
    }
}

/// The fields of a hash as bytes, sorted.
fn image_of(fields: &BTreeMap<Vec<u8>, Vec<u8>>) -> Vec<u8> {
    let mut image = (fields.len() as u32).to_le_bytes().to_vec();
    for (field, value) in fields {
        image.extend([(field.len() as u32).to_le_bytes(), (value.len() as u32).to_le_bytes()].concat());
        image.extend([field.as_slice(), value].concat());
    }
    image
}

fn fields_of(image: &[u8]) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (mut fields, mut rest) = (BTreeMap::new(), &image[4..]);
    while !rest.is_empty() {
        let len = |at: usize| u32::from_le_bytes(rest[at..at + 4].try_into().expect("four bytes")) as usize;
        let (field_end, end) = (8 + len(0), 8 + len(0) + len(4));
        fields.insert(rest[8..field_end].to_vec(), rest[field_end..end].to_vec());
        rest = &rest[end..];
    }
    fields
}

fn check(machine: &Machine, expected: &Expected) {
    machine.store.check_state();
    for db in 0..3 {
        for key in 0..KEYS {
            let mut found = machine.get(db, &[key]);
            if let (true, Some((value, _))) = (COLLECTIONS.contains(&key), &mut found) {
                *value = image_of(&machine.fields(db, &[key]).expect("it is there"));
            }
            assert_eq!(found, expected.get(&(db, key)).cloned(), "database {db} key {key}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 200, ..ProptestConfig::default() })]

    #[test]
    fn random_history_with_cleaning_and_restarts_keeps_every_key(
        ops in prop::collection::vec(op(), 50..400),
        hash_bits in prop_oneof![Just(128_u32), Just(8), Just(10)],
    ) {
        let mut machine = Machine::new(hash_bits);
        let mut expected = Expected::new();
        for (at, op) in ops.iter().enumerate() {
            run(&mut machine, &mut expected, at, op);
            if matches!(op, Op::Restart | Op::Crash { .. } | Op::Kill) {
                check(&machine, &expected);
            }
        }
        check(&machine, &expected);
        machine.settle();
        machine.crash(9);
        check(&machine, &expected);
    }
}

/// APPEND of 10 B to a value of 1 MB logged all of it.
#[test]
fn part_of_a_long_string_costs_its_own_bytes_and_not_those_of_the_string() {
    let machine = Machine::new(128);
    let written = || {
        machine.settle();
        machine.store.log_report().expect("engine log").log_bytes
    };
    let mut value = vec![1; 40_000];
    machine.set(0, b"k", &value, None);
    let before = written();
    for n in 0..39_u8 {
        // at the end, inside, over the end, and behind it
        let at = [value.len(), 77, value.len() - 5, value.len() + 3][usize::from(n % 4)];
        machine.part(0, b"k", at, &[n; 10]);
        put_over(&mut value, at, &[n; 10]);
    }
    let parts = written() - before;
    assert!(parts < 39 * 300, "{parts} B for 39 parts");
    machine.part(0, b"k", 0, b"the one part too many");
    let whole = written() - before - parts;
    assert!((40_000..48_000).contains(&whole), "{whole} B: the string is written anew");
    value[..21].copy_from_slice(b"the one part too many");
    assert_eq!(machine.get(0, b"k"), Some((value, None)));
}

/// Parts and changes of the expiry that one group makes of one key are one record.
#[test]
fn parts_that_one_group_writes_are_one_record_with_the_expiry_that_it_sets() {
    for sets_first in [true, false] {
        let mut machine = Machine::new(128);
        let mut value = vec![1; 20_000];
        machine.set(0, b"k", &value, None);
        machine.settle();
        let before =
            (machine.store.newest_seq().0, machine.store.log_report().expect("engine log").log_bytes);
        let at = Some(Deadline::at(UnixMs(9_000_000)));
        machine.with(0, b"k", 64, |access| {
            if sets_first {
                assert!(access.set_expiry(0, b"k", at)?);
            }
            for n in 0..20_u8 {
                let len = access.get(0, b"k")?.expect("it is there").value.len();
                part(access, 0, b"k", len, &[n; 10])?;
            }
            if sets_first { Ok(true) } else { access.set_expiry(0, b"k", at) }
        });
        (0..20_u8).for_each(|n| value.extend([n; 10]));
        machine.settle();
        let after = (machine.store.newest_seq().0, machine.store.log_report().expect("engine log").log_bytes);
        assert_eq!(after.0 - before.0, 1, "one record");
        assert!(after.1 - before.1 < 8_192, "{} B", after.1 - before.1);
        for _ in 0..2 {
            assert_eq!(machine.get(0, b"k"), Some((value.clone(), Some(9_000_000))));
            machine.crash(3);
        }
        assert_eq!(machine.store.key_counts()[0], (1, 1), "one key, one expiry");
    }
}

/// The log counted a string that had grown since its base was written as if that had been as long.
#[test]
fn live_bytes_of_strings_that_parts_made_longer_are_what_lies_in_the_log() {
    let mut machine = Machine::new(128);
    let live = |machine: &Machine| {
        machine.settle();
        machine.store.log_report().expect("engine log").live_bytes
    };
    let record = |len: u64| 48 + (4 + 1 + len).next_multiple_of(8);
    for round in 0..3 {
        machine.set(0, b"k", &[1; 20_000], None);
        assert_eq!(live(&machine), record(20_000), "round {round}");
        (0..8).for_each(|n| machine.part(0, b"k", 20_000 + n * 500, &[2; 500]));
        assert_eq!(live(&machine), record(20_000) + 8 * record(16 + 500));
        if round == 1 {
            machine.store.set_memory_limit(1);
            machine.settle();
            machine.get(0, b"k");
        }
        machine.set(0, b"k", &[3; 4_000], None);
        assert_eq!(live(&machine), record(4_000));
        machine.store.set_memory_limit(0);
    }
    assert!(machine.del(0, b"k"));
    assert_eq!(live(&machine), 0);
    machine.crash(1);
    assert_eq!(machine.get(0, b"k"), None);
}

/// Without durability a fast writer of large values got ahead of the disk, what waited in the journal filled the memory limit,
/// and writes were refused although the values themselves could all be dropped.
#[test]
fn writer_ahead_of_the_disk_waits_for_it_instead_of_meeting_the_memory_limit() {
    for durability in [Durability::Never, Durability::Always] {
        let (disk, clock) = (SimDisk::new(7), Arc::new(SimClock::new(UnixMs(1_000_000))));
        let segments = journal::Options {
            segment_size_bytes: 1 << 20,
            buffer_bytes_max: 64 << 20,
            ready_segments: 4,
            ..journal::Options::small()
        };
        let options = options(&disk, &clock, 128);
        let store =
            Store::open(Options { memory_limit_bytes: 2 << 20, durability, journal: segments, ..options });
        let store = store.expect("a fresh folder opens");
        while store.drive() {}
        let (value, prepared, mut waits) = (vec![7; 100_000], Prepared::default(), 0);
        for key in 0..30_u8 {
            let scope = [KeyRef { db: 0, key: &[key] }];
            loop {
                let put = store.access(Scope::Keys(&scope), &prepared, 100_001).and_then(|mut access| {
                    access.put(0, &[key], Value::String(&value), None);
                    access.commit()
                });
                match put {
                    Ok(_) => break,
                    Err(Stop::Busy) => {
                        waits += 1;
                        assert!(store.drive(), "who waits is waited for: key {key}, {durability:?}");
                    }
                    Err(stop) => panic!("key {key}, {durability:?}: {stop:?}"),
                }
            }
        }
        assert!(waits > 3, "{waits}");
    }
}

/// A disk without room for a new manifest stopped the start, so that nobody could delete. The manual names each cause that stops one; where the
/// room of the manifest was taken, too, the start said only `writing MANIFEST failed`.
#[test]
fn full_disk_stops_no_start_unless_the_room_of_the_manifest_was_taken() {
    let machine = Machine::new(128);
    for key in 0..40_u8 {
        machine.set(0, &[key], &[key; 900], None);
        machine.settle();
    }
    let disk = machine.disk.process_death();
    let mut refused = 0;
    for step in 0..60 {
        let full = disk.fork();
        full.set_capacity(full.used_bytes() + step * 4_096);
        let store =
            Store::open(options(&full, &machine.clock, 128)).expect("room is kept for all that it writes");
        assert_eq!(store.key_counts()[0].0, 40);
        drop(store);
        let full = disk.fork();
        full.remove("/data/MANIFEST.tmp".as_ref()).expect("it is there");
        full.set_capacity(full.used_bytes() + step * 4_096);
        if let Err(error) = Store::open(options(&full, &machine.clock, 128)) {
            refused += 1;
            assert!(error.to_string().contains("disk full: "), "{error}");
        }
    }
    assert!(refused > 0, "there was room for all");
}

/// Sliding sessions: each EXPIRE of a long value added a record that stayed in memory, uncounted, and alive in the log.
#[test]
fn expiry_that_is_changed_again_and_again_leaves_one_live_record_of_it() {
    const KEYS: u16 = 400;
    let mut machine = Machine::new(128);
    let each = |machine: &Machine, f: &dyn Fn(&Machine, &[u8])| {
        (0..KEYS).for_each(|key| f(machine, &key.to_le_bytes()));
        machine.settle();
    };
    let live_bytes = |machine: &Machine| machine.store.log_report().expect("there is a log").live_bytes;
    each(&machine, &|machine, key| machine.set(0, key, &[7; 200], Some(9_000_000)));
    let retime = |machine: &Machine, round: u64| {
        each(machine, &|machine, key| assert!(machine.expire(0, key, Some(9_000_000 + round))));
    };
    retime(&machine, 1);
    let once = live_bytes(&machine);
    (2..20).for_each(|round| retime(&machine, round));
    let often = live_bytes(&machine);
    assert_eq!(often, once, "after many as after one");
    for crash in [false, true] {
        if crash {
            machine.crash(3);
        } else {
            machine.restart();
        }
        for key in 0..KEYS {
            assert_eq!(machine.get(0, &key.to_le_bytes()), Some((vec![7; 200], Some(9_000_019))));
        }
        let (found, wanted) = (live_bytes(&machine), often);
        assert!(found.abs_diff(wanted) < wanted / 5, "{found} B live after a start, {wanted} B before");
    }
}

/// The reserve of a full disk, which is for what frees space, was open to whatever a group stored, if the last thing that it
/// did to the key was to change when it expires.
#[test]
fn group_that_stores_takes_nothing_of_what_a_full_disk_keeps_for_removals() {
    let machine = Machine::new(128);
    machine.disk.set_capacity(machine.disk.used_bytes());
    let keys = |n: u32| n.to_be_bytes();
    let group = |n: u32, retime: bool| -> Result<Ticket, Stop> {
        let (key, prepared) = (keys(n), Prepared::default());
        let scope = [KeyRef { db: 0, key: &key }];
        let mut access = machine.store.access(Scope::Keys(&scope), &prepared, 2_000)?;
        access.put(0, &key, Value::String(&[7; 2_000]), None);
        if retime {
            access.set_expiry(0, &key, Some(Deadline::at(UnixMs(1_000_000_000))))?;
        }
        let ticket = access.commit();
        machine.settle();
        ticket
    };
    let is_full =
        |result: &Result<Ticket, Stop>| matches!(result, Err(Stop::Refused(StoreError::DiskFull(_))));
    let stored = (0..10_000).find(|n| is_full(&group(*n, false))).expect("the disk is full");
    for n in 0..50 {
        let result = group(20_000 + n, true);
        assert!(is_full(&result), "{n}: {result:?}");
    }
    for n in 0..stored.min(20) {
        let is_there = machine.with(0, &keys(n), 100, |access| {
            access.set_expiry(0, &keys(n), Some(Deadline::at(UnixMs(1 << 40))))
        });
        assert!(is_there, "what is there gets another time");
        assert!(machine.with(0, &keys(n), 100, |access| access.remove(0, &keys(n))), "and can go");
        machine.settle();
    }
}

/// On a full disk a topology could not be killed, and not be told to emit nothing: both write the list of topologies again.
#[test]
fn what_is_kept_changes_on_a_full_disk_if_it_grows_by_nothing() {
    let machine = Machine::new(128);
    let keep = |changes: &[(&[u8], Option<&[u8]>)]| {
        let kept = machine.store.keep_all(changes);
        machine.settle();
        kept
    };
    let record = [7; 3_000];
    keep(&[(b"a", Some(&record)), (b"list", Some(b"a 1"))]).expect("there is room");
    machine.disk.set_capacity(machine.disk.used_bytes());
    let is_full =
        |result: &Result<Ticket, Stop>| matches!(result, Err(Stop::Refused(StoreError::DiskFull(_))));
    let fill = |n: u32| {
        let (key, prepared) = (n.to_be_bytes(), Prepared::default());
        let scope = [KeyRef { db: 0, key: &key }];
        let mut access = machine.store.access(Scope::Keys(&scope), &prepared, 2_000)?;
        access.put(0, &key, Value::String(&[7; 2_000]), None);
        let ticket = access.commit();
        machine.settle();
        ticket
    };
    (0..10_000).find(|n| is_full(&fill(*n))).expect("the disk is full");
    assert!(is_full(&keep(&[(b"b", Some(&record))])), "something new");
    assert!(is_full(&keep(&[(b"list", Some(&record))])), "something larger");
    keep(&[(b"list", Some(b"a 0"))]).expect("another value of the same length");
    keep(&[(b"a", None), (b"list", Some(b""))]).expect("a removal, and what is shorter");
    assert_eq!((machine.store.kept(b"a"), machine.store.kept(b"list")), (Ok(None), Ok(Some(Vec::new()))));
}
