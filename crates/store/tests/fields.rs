//! Fields of hashes that end, on engine `log`: beside a model, over restarts, in the background, and under clocks that jump; in one value each,
//! and in leaves.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SimClock, UnixMs};
use store::{
    Access, Deadline, Edit, EngineKind, KeyRef, Moment, Options, Prepared, Scope, Stop, Store, Value,
    ValueKind,
};
use vfs::SimDisk;

const START_MS: u64 = 1_700_000_000_000;

/// Fields with values and deadlines, in the order of their names.
type Fields = BTreeMap<Vec<u8>, (Vec<u8>, Option<Deadline>)>;

struct Machine {
    disk: SimDisk,
    clock: Arc<SimClock>,
    store: Arc<Store>,
    leaf_bytes: u64,
}

impl Machine {
    fn new() -> Self {
        Self::with_leaves_of(4096)
    }

    /// Hashes that have a value of more than 64 bytes are in leaves from twice `leaf_bytes` on.
    fn with_leaves_of(leaf_bytes: u64) -> Self {
        let (disk, clock) = (SimDisk::new(7), Arc::new(SimClock::new(UnixMs(START_MS))));
        let store = open(&disk, &clock, leaf_bytes);
        Self { disk, clock, store, leaf_bytes }
    }

    /// What `f` answers when all is there that it reads; then what it did is committed.
    fn with<T>(&self, key: &[u8], bytes: u64, f: impl FnMut(&mut Access<'_>) -> Result<T, Stop>) -> T {
        self.with_keys(&[KeyRef { db: 0, key }], bytes, f)
    }

    fn with_keys<T>(
        &self,
        keys: &[KeyRef<'_>],
        bytes: u64,
        mut f: impl FnMut(&mut Access<'_>) -> Result<T, Stop>,
    ) -> T {
        let mut prepared = Prepared::default();
        loop {
            while !self.store.missing(keys, &mut prepared) {
                prepared = self.fetch(prepared);
            }
            let mut access = self.store.access(Scope::Keys(keys), &prepared, bytes).expect("room");
            match f(&mut access).and_then(|value| access.commit().map(|_| value)) {
                Ok(value) => {
                    while self.store.drive() {}
                    return value;
                }
                Err(Stop::Cold) => {}
                Err(stop) => panic!("{stop:?}"),
            }
            let wanted = access.into_wanted();
            prepared.want(wanted);
            prepared = self.fetch(prepared);
        }
    }

    fn fetch(&self, prepared: Prepared) -> Prepared {
        let (sender, receiver) = std::sync::mpsc::channel();
        self.store.fetch(prepared, Box::new(move |fetched| sender.send(fetched).expect("waits")));
        receiver.recv().expect("fetched at once")
    }

    fn edit<T>(&self, key: &[u8], field: &[u8], change: impl Fn(&mut Edit<'_>, Moment) -> T) -> T {
        self.with(key, 4096, |access| {
            let now = access.now();
            let edited = access.edit_element(0, key, ValueKind::Hash, field, |edit, _| change(edit, now));
            Ok(edited?.expect("a hash"))
        })
    }

    fn put(&self, key: &[u8], field: &[u8], value: &[u8], deadline: Option<Deadline>) {
        let tag = self.tag(field);
        self.edit(key, field, |edit, _| {
            edit.put(tag, field, value);
            edit.set_deadline(tag, field, deadline);
        });
    }

    fn tag(&self, field: &[u8]) -> u16 {
        self.with(b"any", 0, |access| Ok(access.tag(field)))
    }

    fn read(&self, key: &[u8]) -> Fields {
        self.with(key, 0, |access| {
            let hash = access.collection(0, key, ValueKind::Hash)?.expect("a hash");
            let field = |at| (hash.element(at).0.to_vec(), (hash.element(at).1.to_vec(), hash.deadline(at)));
            Ok((0..hash.len()).map(field).collect())
        })
    }

    fn names(&self, key: &[u8]) -> Vec<String> {
        self.read(key).into_keys().map(|name| String::from_utf8(name).expect("text")).collect()
    }

    fn count(&self, key: &[u8]) -> u64 {
        self.with(key, 0, |access| Ok(access.count(0, key, ValueKind::Hash)?.expect("a hash")))
    }

    fn rename(&self, from: &[u8], to: &[u8]) {
        let keys = [from, to].map(|key| KeyRef { db: 0, key });
        self.with_keys(&keys, 64, |access| access.rename_paged(0, from, to).map(|done| assert!(done)));
    }

    fn expiry(&self, key: &[u8]) -> Option<Deadline> {
        self.with(key, 0, |access| Ok(access.meta(0, key)?.and_then(|meta| meta.expiry)))
    }

    fn now(&self) -> Moment {
        self.store.now()
    }

    fn set_wall(&self, by_ms: i64) {
        self.clock.set_unix_ms(UnixMs(self.clock.unix_ms().0.saturating_add_signed(by_ms)));
    }

    /// Stops, and looks whether all is whole that is on the disk.
    fn check(&mut self, context: &str) {
        self.store.close();
        self.disk = self.disk.process_death();
        let checked = store::check(&self.disk, &PathBuf::from("/data")).expect("readable");
        assert!(checked.journal.damage.is_empty(), "{context}: {:?}", checked.journal.damage);
        self.store = open(&self.disk, &self.clock, self.leaf_bytes);
    }

    fn restart(&mut self, kill: bool) {
        if !kill {
            self.store.close();
        }
        self.disk = self.disk.process_death();
        self.store = open(&self.disk, &self.clock, self.leaf_bytes);
    }
}

fn open(disk: &SimDisk, clock: &Arc<SimClock>, leaf_bytes: u64) -> Arc<Store> {
    let options = Options {
        engine: EngineKind::Log,
        dir: PathBuf::from("/data"),
        vfs: Arc::new(disk.clone()),
        clock: clock.clone(),
        background: false,
        readers: 0,
        leaf_bytes,
        journal: journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() },
        ..Options::default()
    };
    let store = Store::open(options).expect("opens");
    while store.drive() {}
    store
}

/// A generator of its own, so that a failure's seed says all.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

/// What a hash is in the model: its fields, and when its key ends.
#[derive(Clone, Debug, Default)]
struct Hash {
    fields: Fields,
    own: Option<Deadline>,
}

impl Hash {
    fn pass(&mut self, now: Moment) {
        if self.own.is_some_and(|at| now.has_passed(at)) {
            *self = Self::default();
        }
        self.fields.retain(|_, (_, at)| !at.is_some_and(|at| now.has_passed(at)));
        if self.fields.is_empty() {
            self.own = None;
        }
    }
}

fn random_deadline(dice: &mut Dice, now: Moment) -> Option<Deadline> {
    let ms = 1 + dice.below(400);
    match dice.below(3) {
        0 => None,
        1 => Some(now.after(ms)),
        _ => Some(Deadline::at(UnixMs(now.unix().0 + ms))),
    }
}

/// One random step on `key`, in the store and in the model.
fn step(machine: &mut Machine, dice: &mut Dice, key: &[u8], hash: &mut Hash) {
    let field = format!("field{:02}-------------", dice.below(40)).into_bytes();
    let (tag, now) = (machine.tag(&field), machine.now());
    match dice.below(12) {
        0..4 => {
            let (value, at) = (vec![b'v'; dice.below(90) as usize], random_deadline(dice, now));
            machine.put(key, &field, &value, at);
            hash.fields.insert(field, (value, at));
        }
        4 => {
            let value = vec![b'w'; dice.below(90) as usize];
            machine.edit(key, &field, |edit, _| edit.put_kept(tag, &field, &value));
            hash.fields.entry(field).or_default().0 = value;
        }
        5 => {
            let was = machine.edit(key, &field, |edit, _| edit.delete(tag, &field));
            assert_eq!(hash.fields.remove(&field).is_some(), was);
        }
        6 | 7 => {
            let at = random_deadline(dice, now);
            let was = machine.edit(key, &field, |edit, _| edit.set_deadline(tag, &field, at));
            assert_eq!(hash.fields.get_mut(&field).map(|field| field.1 = at).is_some(), was);
        }
        8 => {
            let at = random_deadline(dice, now);
            let was = machine.with(key, 64, |access| access.set_expiry(0, key, at));
            assert_eq!(was, !hash.fields.is_empty());
            hash.own = at.filter(|_| was);
        }
        9 => machine.clock.advance(Duration::from_millis(dice.below(120))),
        10 => drop(machine.store.tend(100)),
        _ if dice.below(3) == 0 => {
            let kill = dice.below(2) == 0;
            machine.restart(kill);
        }
        _ => {
            // it goes elsewhere and comes back
            machine.with(key, 8 << 10, |access| {
                let found = access.get(0, key)?.map(|found| (found.value.to_vec(), found.expiry));
                if let Some((value, expiry)) = found {
                    access.remove(0, key)?;
                    access.put(0, key, Value::Collection(ValueKind::Hash, &value), expiry);
                }
                Ok(())
            });
        }
    }
}

#[test]
fn fields_end_as_in_a_model_over_restarts_and_changes_of_their_key() {
    let mut has_leaves = false;
    for seed in 0..24 {
        let leaf_bytes = if seed % 2 == 0 { 4096 } else { 150 };
        let (mut machine, mut dice) = (Machine::with_leaves_of(leaf_bytes), Dice(seed));
        let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
        let mut model = [const { Hash { fields: BTreeMap::new(), own: None } }; 3];
        for number in 0..400 {
            let at = dice.below(3) as usize;
            let now = machine.now();
            model[at].pass(now);
            step(&mut machine, &mut dice, keys[at], &mut model[at]);
            let now = machine.now();
            for (key, hash) in keys.iter().zip(&mut model) {
                hash.pass(now);
                // some are not looked at for long
                if dice.below(3) == 0 {
                    assert_eq!(machine.read(key), hash.fields, "seed {seed} step {number} at {now:?}");
                    assert_eq!(machine.expiry(key), hash.own, "seed {seed} step {number}");
                }
            }
            machine.store.check_state();
        }
        has_leaves |= machine.store.leaf_report().leaves > 0;
        machine.check(&format!("seed {seed}"));
    }
    assert!(has_leaves);
}

#[test]
fn fields_and_the_hash_of_the_last_one_go_in_the_background() {
    for restart in [false, true] {
        let mut machine = Machine::new();
        let soon = machine.now().after(50);
        for number in 0..100_u32 {
            machine.put(
                b"large",
                format!("{number:04}").as_bytes(),
                b"value",
                Some(soon).filter(|_| number % 2 == 0),
            );
            machine.put(b"all", format!("{number:04}").as_bytes(), b"value", Some(soon));
        }
        machine.put(b"later", b"f", b"v", Some(machine.now().after(80)));
        if restart {
            machine.restart(true);
        }
        assert_eq!(machine.store.key_counts()[0].0, 3);
        machine.clock.advance(Duration::from_millis(60));
        machine.store.tend(100);
        while machine.store.drive() {}
        let next = machine.store.tend(100).expect("one is left");
        assert_eq!(next.0, machine.now().unix().0 + 20, "when the next field is due");
        assert_eq!(machine.store.key_counts()[0], (2, 1));
        assert_eq!((machine.store.expired_fields(), machine.store.expired_keys()), (50, 1));
        assert_eq!(machine.read(b"large").len(), 50);
        machine.clock.advance(Duration::from_millis(30));
        machine.store.tend(100);
        while machine.store.drive() {}
        assert_eq!(machine.store.tend(100), None);
        assert_eq!(machine.store.key_counts()[0], (1, 0));
        machine.restart(false);
        assert_eq!(machine.read(b"large").len(), 50);
    }
}

/// Who finds a leaf whose time has come must find the key, wherever that is by then.
#[test]
fn fields_in_leaves_and_the_hash_of_the_last_one_go_in_the_background() {
    for (restarts, renames) in [(false, false), (true, false), (false, true), (true, true)] {
        let mut machine = Machine::with_leaves_of(300);
        let (soon, value) = (machine.now().after(50), [b'v'; 70]);
        for number in 0..100_u32 {
            let (field, at) = (format!("{number:04}"), Some(soon).filter(|_| number % 2 == 0));
            machine.put(b"some", field.as_bytes(), &value, at);
            machine.put(b"all", field.as_bytes(), &value, Some(soon));
        }
        let (mut some, mut all): (&[u8], &[u8]) = (b"some", b"all");
        if renames {
            for (from, to) in [(some, &b"other"[..]), (all, b"another")] {
                machine.rename(from, to);
            }
            (some, all) = (b"other", b"another");
        }
        if restarts {
            machine.restart(true);
        }
        let leaves = machine.store.leaf_report().leaves;
        assert!(leaves > 40, "{leaves}");
        assert_eq!(machine.store.key_counts()[0].0, 2);
        machine.clock.advance(Duration::from_millis(60));
        let tends = (0..400).take_while(|_| {
            machine.store.tend(100);
            while machine.store.drive() {}
            machine.store.leaf_report().leaves > leaves / 2
        });
        assert!(tends.count() < 400, "leaves of the key that is gone go, too");
        assert_eq!(machine.store.key_counts()[0].0, 1, "{restarts} {renames}");
        assert_eq!((machine.count(some), machine.count(all)), (50, 0));
        assert_eq!(machine.store.tend(100), None, "nothing else is due");
        machine.store.check_state();
        machine.check("purged in the background");
        assert_eq!((machine.read(some).len(), machine.read(all).len()), (50, 0));
    }
}

/// The root counts what has ended until its leaf is looked up: HLEN told that number, also within a transaction.
#[test]
fn count_of_a_hash_in_leaves_has_no_fields_that_have_ended() {
    for restarts in [false, true] {
        let mut machine = Machine::with_leaves_of(300);
        let (soon, value) = (machine.now().after(50), [b'v'; 70]);
        for number in 0..100_u32 {
            let (field, at) = (format!("{number:04}"), Some(soon).filter(|_| number % 2 == 0));
            machine.put(b"some", field.as_bytes(), &value, at);
            machine.put(b"all", field.as_bytes(), &value, Some(soon));
            machine.put(b"none", field.as_bytes(), &value, None);
        }
        if restarts {
            machine.restart(true);
        }
        assert_eq!(machine.count(b"some"), 100);
        machine.clock.advance(Duration::from_millis(60));
        let counts = [&b"some"[..], b"all", b"none"].map(|key| machine.count(key));
        assert_eq!(counts, [50, 0, 100], "after a restart: {restarts}");
        assert_eq!(machine.store.key_counts()[0].0, 2, "the key goes with its last field");
        machine.store.check_state();
        machine.check("counted");
        assert_eq!(machine.read(b"some").len(), 50);
    }
}

#[test]
fn reading_all_of_a_hash_in_leaves_that_has_ended_removes_its_key() {
    let mut machine = Machine::with_leaves_of(300);
    let soon = machine.now().after(50);
    for number in 0..40_u32 {
        machine.put(b"h", format!("{number:04}").as_bytes(), &[b'v'; 70], Some(soon));
    }
    machine.clock.advance(Duration::from_millis(60));
    assert_eq!(machine.read(b"h").len(), 0);
    assert_eq!(machine.store.key_counts()[0].0, 0);
    machine.put(b"h", b"new", b"v", None);
    assert_eq!(machine.names(b"h"), ["new"]);
    machine.check("read");
}

/// A read purges first: what it answers depends on the purge, which is in the log before the reply leaves.
#[test]
fn field_that_was_seen_as_ended_stays_so_when_the_wall_clock_is_set_back() {
    for looks in [false, true] {
        let mut machine = Machine::new();
        let at = Deadline::at(UnixMs(START_MS + 1_000));
        machine.put(b"h", b"ends", b"v", Some(at));
        machine.put(b"h", b"stays", b"v", None);
        machine.set_wall(5_000);
        if looks {
            assert_eq!(machine.names(b"h"), ["stays"]);
        } else {
            // another key is judged by that time
            machine.put(b"other", b"f", b"v", Some(machine.now().after(1)));
        }
        machine.set_wall(-5_000);
        assert_eq!(machine.names(b"h"), ["stays"], "seen: {looks}");
        machine.put(b"h", b"new", b"v", Some(at));
        assert_eq!(machine.names(b"h"), ["new", "stays"], "set after the clock was right again");
        machine.restart(true);
        assert_eq!(machine.names(b"h"), ["new", "stays"]);
        machine.clock.advance(Duration::from_millis(1_000));
        assert_eq!(machine.names(b"h"), ["stays"]);
    }
}

#[test]
fn watch_sees_a_field_end_as_it_sees_a_key_end() {
    // in one value, and in leaves that are hot, or cold
    for (fields, is_cold) in [(0, false), (100, false), (100, true)] {
        let mut machine = Machine::with_leaves_of(150);
        for number in 0..fields {
            machine.put(b"h", format!("one of many {number}").as_bytes(), &[b'v'; 70], None);
        }
        watch_sees_fields_end(&mut machine, is_cold);
        assert_eq!(machine.store.leaf_report().leaves > 0, fields > 0);
    }
}

fn watch_sees_fields_end(machine: &mut Machine, is_cold: bool) {
    machine.put(b"h", b"ends", b"v", Some(machine.now().after(50)));
    machine.put(b"h", b"ends too", b"v", Some(machine.now().after(90)));
    machine.put(b"h", b"stays", b"v", None);
    if is_cold {
        machine.restart(true);
    }
    let changed = |watch: &store::Watch| machine.with(b"h", 0, |access| access.changed(watch));
    let watch = machine.store.watch(0, b"h");
    assert!(!changed(&watch));
    machine.clock.advance(Duration::from_millis(50));
    assert!(changed(&watch), "though nobody has removed it");
    let later = machine.store.watch(0, b"h");
    assert!(!changed(&later), "it had ended before");
    machine.clock.advance(Duration::from_millis(40));
    assert!(changed(&later), "another one");
    machine.store.tend(10);
    assert!(changed(&watch));
    assert!(!changed(&machine.store.watch(0, b"h")), "it had ended before");
}

#[test]
fn scan_shows_a_hash_until_its_last_field_has_ended() {
    let mut machine = Machine::new();
    let soon = machine.now().after(50);
    for key in [&b"some"[..], b"all"] {
        for number in 0..60_u32 {
            let at = Some(soon).filter(|_| key == b"all" || number % 2 == 0);
            machine.put(key, format!("{number:04}").as_bytes(), b"a value", at);
        }
    }
    for restart in [false, true] {
        if restart {
            machine.restart(true);
        }
        machine.clock.advance(Duration::from_millis(60));
        let (mut prepared, mut found) = (Prepared::default(), Vec::new());
        loop {
            found.clear();
            let access = machine.store.access(Scope::Walk, &prepared, 0).expect("room");
            if access.scan(0, 0, usize::MAX, &mut |key, _| found.push(key.to_vec())).is_ok() {
                break;
            }
            let wanted = access.into_wanted();
            prepared.want(wanted);
            prepared = machine.fetch(prepared);
        }
        assert_eq!(found, [b"some"], "restart: {restart}");
    }
}
