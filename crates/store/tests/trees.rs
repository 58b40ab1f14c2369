//! Large lists, sorted sets and streams against simple models, with leaves so small that trees have many levels.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;

use clock::{SimClock, UnixMs};
use store::{
    Access, Element, EngineKind, KeyRef, ListChange, ListEnd, Options, Popped, Prepared, Scope, Sequence,
    Stop, Store, ValueKind, score_of,
};
use vfs::SimDisk;
use vfs::sim::Rng;

/// An element.
type Owned = (Vec<u8>, Vec<u8>);

struct World {
    store: Arc<Store>,
    /// What the store was made with; a log is on this disk.
    options: Options,
    disk: SimDisk,
    /// Of the collection: it is renamed.
    key: Vec<u8>,
    rng: Rng,
}

impl World {
    fn new(seed: u64, leaf_bytes: u64) -> Self {
        Self::with_engine(EngineKind::Memory, seed, leaf_bytes)
    }

    fn with_engine(engine: EngineKind, seed: u64, leaf_bytes: u64) -> Self {
        let disk = SimDisk::new(seed);
        let options = Options {
            engine,
            vfs: Arc::new(disk.clone()),
            dir: "/data".into(),
            readers: 0,
            background: false,
            leaf_bytes,
            clock: Arc::new(SimClock::new(UnixMs(1_000_000))),
            ..Options::default()
        };
        let store = Store::open(options.clone()).expect("it opens");
        Self { store, options, disk, key: b"key".to_vec(), rng: Rng::new(seed) }
    }

    /// Lets the process die, and starts again with what it wrote.
    fn restart(&mut self) {
        while self.store.drive() {}
        self.disk = self.disk.process_death();
        self.options.vfs = Arc::new(self.disk.clone());
        self.store = Store::open(self.options.clone()).expect("it opens");
    }

    fn run<R>(&self, work: impl FnOnce(&mut Access<'_>) -> Result<R, Stop>) -> R {
        let (keys, prepared) = ([KeyRef { db: 0, key: &self.key }], Prepared::default());
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, 1).expect("memory has room");
        let done = work(&mut access).expect("all is hot");
        access.commit().expect("memory has room");
        done
    }

    /// As [`World::run`], of work that may be done several times, with what it misses read for it.
    fn run_cold<R>(&self, work: impl Fn(&mut Access<'_>) -> Result<R, Stop>) -> R {
        let (keys, mut prepared) = ([KeyRef { db: 0, key: &self.key }], Prepared::default());
        loop {
            while !self.store.missing(&keys, &mut prepared) {
                let (sender, receiver) = std::sync::mpsc::channel();
                self.store
                    .fetch(prepared, Box::new(move |fetched| sender.send(fetched).expect("it is awaited")));
                prepared = receiver.recv().expect("what is fetched comes back");
            }
            let mut access = self.store.access(Scope::Keys(&keys), &prepared, 1).expect("there is room");
            match work(&mut access).and_then(|done| access.commit().map(|_| done)) {
                Ok(done) => return done,
                Err(Stop::Cold) => {
                    let wanted = access.into_wanted();
                    prepared.want(wanted);
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
    }

    fn read<R>(&self, kind: ValueKind, work: impl FnOnce(&Sequence<'_, '_>) -> Result<R, Stop>) -> R {
        self.run(|access| work(&access.sequence(0, &self.key, kind)?.expect("of this type")))
    }

    fn below(&mut self, count: usize) -> usize {
        self.rng.below(count.max(1) as u64) as usize
    }

    /// Compares all of the collection, and some parts, with `model`; there are as many nodes as the root says.
    fn check(&mut self, kind: ValueKind, model: &[(Vec<u8>, Vec<u8>)]) {
        self.rename();
        let from = self.below(model.len() + 1);
        let to = (from + self.below(40)).min(model.len());
        let owned = |elements: Vec<Element<'_>>| -> Vec<(Vec<u8>, Vec<u8>)> {
            elements.into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
        };
        let (all, part, len) = self.read(kind, |sequence| {
            let (all, part) = (sequence.range(0..usize::MAX)?, sequence.range(from..to)?);
            Ok((owned(all), owned(part), sequence.len()))
        });
        // not assert_eq: nobody reads so much
        assert!(all == model, "all {} elements, {} of the model", all.len(), model.len());
        assert!(part == model[from..to], "elements from {from} to {to}");
        assert_eq!(len, model.len());
        let gathered = self.run(|access| {
            let all = access.collection(0, &self.key, kind)?.expect("of this type");
            Ok(owned(all.iter().collect()))
        });
        assert!(gathered == model, "{} elements put together", gathered.len());
        let nodes = self.run(|access| access.leaf_count(0, &self.key));
        while self.store.leaf_report().swept > 0 {
            self.store.tend(1_000);
        }
        assert_eq!(self.store.leaf_report().leaves, nodes);
    }

    /// Lets the collection be at another key.
    fn rename(&mut self) {
        let (before, after) = (self.key.clone(), format!("key-{}", self.below(1_000)).into_bytes());
        let keys = [&before, &after].map(|key| KeyRef { db: 0, key });
        let prepared = Prepared::default();
        let mut access = self.store.access(Scope::Keys(&keys), &prepared, 1).expect("memory has room");
        let is_paged = access.rename_paged(0, &before, &after).expect("all is hot");
        access.commit().expect("memory has room");
        if is_paged {
            self.key.clone_from(&after);
        }
    }

    /// Removes some elements that follow each other, of `len`; returns which.
    fn remove_range(&mut self, kind: ValueKind, len: usize) -> std::ops::Range<usize> {
        let from = self.below(len + 1);
        let to = (from + [1, 7, 90, 400, len][self.below(5)]).min(len);
        let removed = self.run(|access| access.remove_range(0, &self.key, kind, from..to));
        removed.expect("of this type, or nothing at all");
        from..to
    }

    /// Takes an element off an end of the list that is as `model`.
    fn pop(&mut self, model: &mut Vec<Vec<u8>>) {
        let is_front = self.below(2) == 0;
        let end = if is_front { ListEnd::Front } else { ListEnd::Back };
        let popped =
            self.run(|access| access.pop(0, &self.key, end, 1_000)).expect("a list, or nothing at all");
        let at = if is_front { 0 } else { model.len().saturating_sub(1) };
        let expected = match model.get(at) {
            None => Popped::Nothing,
            Some(value) if value.len() > 1_000 => Popped::TooLarge,
            Some(_) => Popped::Value(model.remove(at)),
        };
        assert_eq!(popped, expected);
    }

    fn end(&self) {
        self.run(|access| access.remove(0, &self.key));
        while self.store.leaf_report().swept > 0 {
            self.store.tend(1_000);
        }
        assert_eq!(self.store.leaf_report().leaves, 0);
    }

    fn value(&mut self) -> Vec<u8> {
        let len = [0, 3, 9, 40, 300, 0, 3, 9, 40, 5_000][self.below(10)];
        // values that are shared, which others are not
        let len = if self.below(60) == 0 { 70_000 } else { len };
        let mut value = format!("{}-", self.below(60)).into_bytes();
        value.resize(value.len() + len, b'v');
        value
    }
}

fn seeds(name: &str, test: impl Fn(&mut World)) {
    for seed in 0..SEEDS {
        for leaf_bytes in [40, 120, 400] {
            println!("{name}: seed {seed}, leaves of {leaf_bytes} B");
            test(&mut World::new(seed, leaf_bytes));
        }
    }
}

#[test]
fn list_is_as_its_model_after_any_changes() {
    seeds("list", |world| {
        let mut model: Vec<Vec<u8>> = Vec::new();
        for step in 0..STEPS {
            let len = model.len();
            let at = world.below(len);
            let batch = if len < 600 { [1, 1, 2, 30, 150][world.below(5)] } else { 1 };
            let values: Vec<Vec<u8>> = (0..batch).map(|_| world.value()).collect();
            let mut changes = Vec::new();
            match world.below(11) {
                0 | 1 => changes.extend(values.iter().map(|value| ListChange::PushBack(value))),
                2 | 3 => changes.extend(values.iter().map(|value| ListChange::PushFront(value))),
                4 => changes.extend(values.iter().take(3).map(|value| ListChange::Insert(at, value))),
                5 if len > 0 => changes.push(ListChange::Set(at, &values[0])),
                6 if len > 0 => {
                    let count = [1, 2, 60, len][world.below(4)].min(len - at);
                    changes.push(ListChange::Remove(at, count));
                    changes.push(ListChange::PushBack(&values[0]));
                }
                7 if len > 0 => {
                    let (most, from_back) = ([1, 3, usize::MAX][world.below(3)], world.below(2) == 0);
                    changes.push(ListChange::RemoveEqual { value: &values[0], most, from_back });
                }
                8 | 9 => {
                    for _ in 0..[1, 5, 40][world.below(3)] {
                        world.pop(&mut model);
                    }
                    continue;
                }
                _ => {}
            }
            let mut removed = 0;
            changes.iter().for_each(|change| removed += apply(&mut model, change));
            let changed = world
                .run(|access| access.change_list(0, &world.key, &changes))
                .expect("a list, or nothing at all");
            assert_eq!((changed.len, changed.removed), (model.len(), removed), "step {step}");
            if step % 10 == 0 {
                let elements: Vec<_> = model.iter().map(|value| (value.clone(), Vec::new())).collect();
                world.check(ValueKind::List, &elements);
            }
        }
        world.end();
    });
}

fn apply(model: &mut Vec<Vec<u8>>, change: &ListChange<'_>) -> usize {
    match *change {
        ListChange::PushFront(value) => model.insert(0, value.to_vec()),
        ListChange::PushBack(value) => model.push(value.to_vec()),
        ListChange::Insert(at, value) => model.insert(at, value.to_vec()),
        ListChange::Set(at, value) => model[at] = value.to_vec(),
        ListChange::Remove(at, count) => drop(model.drain(at..at + count)),
        ListChange::RemoveEqual { value, most, from_back } => {
            let mut equal: Vec<usize> = (0..model.len()).filter(|at| model[*at] == value).collect();
            if from_back {
                equal.reverse();
            }
            equal.truncate(most);
            equal.sort_unstable();
            equal.iter().rev().for_each(|at| drop(model.remove(*at)));
            return equal.len();
        }
    }
    0
}

#[test]
fn sorted_set_is_as_its_model_after_any_changes() {
    seeds("sorted set", |world| {
        let mut model: BTreeMap<Vec<u8>, f64> = BTreeMap::new();
        for step in 0..STEPS {
            let mut sorted: Vec<(Vec<u8>, f64)> = model.clone().into_iter().collect();
            sorted.sort_by(|(a, x), (b, y)| x.total_cmp(y).then_with(|| a.cmp(b)));
            let batch = if model.len() < 900 { [1, 2, 20, 150][world.below(4)] } else { 1 };
            let changes: Vec<(Vec<u8>, Option<f64>)> = match world.below(4) {
                // members that follow each other go
                0 => {
                    let from = world.below(sorted.len());
                    let gone = sorted.iter().skip(from).take([1, 5, 80, 400][world.below(4)]);
                    gone.map(|(member, _)| (member.clone(), None)).collect()
                }
                1 => (0..batch).map(|_| (member(world), None)).collect(),
                _ => (0..batch).map(|_| (member(world), Some(score(world)))).collect(),
            };
            if step % 3 == 0 {
                let gone = world.remove_range(ValueKind::SortedSet, sorted.len());
                sorted[gone].iter().for_each(|(member, _)| _ = model.remove(member));
            }
            for (member, score) in &changes {
                match score {
                    Some(score) => _ = model.insert(member.clone(), *score),
                    None => _ = model.remove(member),
                }
            }
            world.run(|access| {
                let named = changes.iter().map(|(member, _)| &member[..]);
                let score = |_, number: usize| Ok::<_, Infallible>(changes[number].1);
                let Ok(()) =
                    access.rescore(0, &world.key, named, score)?.expect("a sorted set, or nothing at all");
                Ok(())
            });
            if step % 10 == 0 {
                check_sorted(world, &model);
            }
        }
        world.end();
    });
}

fn member(world: &mut World) -> Vec<u8> {
    let number = world.below(2_000);
    if number < 20 {
        return format!("large{number}{}", "-".repeat(66_000)).into_bytes();
    }
    // long beginnings in common, and members that begin others
    let filling = if number.is_multiple_of(7) { "-".repeat(90) } else { String::new() };
    format!("member{filling}{number}").into_bytes()
}

fn score(world: &mut World) -> f64 {
    [
        0.0,
        1.0,
        f64::INFINITY,
        f64::NEG_INFINITY,
        world.below(50) as f64 - 25.0,
        world.below(1 << 30) as f64 / 7.0,
    ][world.below(6)]
}

fn check_sorted(world: &mut World, model: &BTreeMap<Vec<u8>, f64>) {
    let mut elements: Vec<(Vec<u8>, Vec<u8>)> =
        model.iter().map(|(member, score)| (member.clone(), score.to_le_bytes().to_vec())).collect();
    elements.sort_by(|(a, x), (b, y)| score_of(x).total_cmp(&score_of(y)).then_with(|| a.cmp(b)));
    world.check(ValueKind::SortedSet, &elements);
    let limit = score(world);
    let below = elements.iter().filter(|(_, score)| score_of(score) < limit).count();
    let found =
        world.read(ValueKind::SortedSet, |set| set.partition_point(|(_, score)| score_of(score) < limit));
    assert_eq!(found, below);
    let at = world.below(elements.len());
    let Some((member, score)) = elements.get(at) else { return };
    assert_eq!(world.read(ValueKind::SortedSet, |set| set.rank(member, score)), at);
    let values = world.run(|access| {
        let named = [&member[..], b"nobody"].into_iter();
        let values = access.values(0, &world.key, ValueKind::SortedSet, named)?.expect("a sorted set");
        let values = values.expect("it is there").into_iter();
        Ok(values.map(|value| value.map(<[u8]>::to_vec)).collect::<Vec<_>>())
    });
    assert_eq!(values, [Some(score.clone()), None]);
}

/// A change of all elements asked for memory for an inner node once more with each of its children, and copied what had become of it each
/// time: XACK of a million entries asked for 6 GiB.
#[test]
fn change_of_all_elements_asks_for_about_as_much_memory_as_it_takes() {
    let world = World::new(1, 256);
    let keys: Vec<Vec<u8>> = (0..20_000_u64).map(|number| number.to_be_bytes().to_vec()).collect();
    let change_to = |value: Option<&'static [u8]>| {
        let changes: Vec<_> = keys.iter().map(|key| (&key[..], value)).collect();
        world.run(|access| access.change_stream(0, &world.key, &changes)).expect("a stream");
    };
    change_to(Some(b"0123456789"));
    let used_bytes = world.store.memory().used_bytes();
    // room for the change itself beside what it replaces, its effects, and a little
    world.store.set_memory_limit(4 * used_bytes);
    change_to(Some(b"abcdefghij"));
    change_to(None);
}

#[test]
fn stream_is_as_its_model_after_any_changes() {
    seeds("stream", |world| {
        let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
        let mut newest = 0_u64;
        for step in 0..STEPS {
            let batch = if model.len() < 900 { [1, 2, 20, 150][world.below(4)] } else { 1 };
            let changes: Vec<(Vec<u8>, Option<Vec<u8>>)> = match world.below(5) {
                0 => {
                    let (from, count) = (world.below(model.len()), [1, 5, 80, 400][world.below(4)]);
                    model.keys().skip(from).take(count).map(|key| (key.clone(), None)).collect()
                }
                1 | 2 => (0..batch)
                    .map(|_| {
                        newest += 1;
                        ([b"e", &newest.to_be_bytes()[..]].concat(), Some(world.value()))
                    })
                    .collect(),
                _ => (0..batch)
                    .map(|_| {
                        let key = format!("{}{}", ["c", "k", "p"][world.below(3)], world.below(300));
                        (key.into_bytes(), (world.below(3) > 0).then(|| world.value()))
                    })
                    .collect(),
            };
            if step % 3 == 0 {
                let keys: Vec<Vec<u8>> = model.keys().cloned().collect();
                let gone = world.remove_range(ValueKind::Stream, keys.len());
                keys[gone].iter().for_each(|key| _ = model.remove(key));
            }
            for (key, value) in &changes {
                match value {
                    Some(value) => _ = model.insert(key.clone(), value.clone()),
                    None => _ = model.remove(key),
                }
            }
            let changes: Vec<_> = changes.iter().map(|(key, value)| (&key[..], value.as_deref())).collect();
            world
                .run(|access| access.change_stream(0, &world.key, &changes))
                .expect("a stream, or nothing at all");
            if step % 10 == 0 {
                let elements: Vec<_> = model.clone().into_iter().collect();
                world.check(ValueKind::Stream, &elements);
                let (at, missing) = (world.below(elements.len()), b"d".to_vec());
                let until = elements.get(world.below(elements.len())).map_or(&missing, |(key, _)| key);
                let most = [0, 1, 3, 40, usize::MAX][world.below(5)];
                for key in elements.get(at).map(|(key, _)| key).into_iter().chain([&missing]) {
                    let keys =
                        |of: &[Element<'_>]| of.iter().map(|(key, _)| key.to_vec()).collect::<Vec<_>>();
                    let (value, before, up_to, between) = world.read(ValueKind::Stream, |stream| {
                        let before = stream.partition_point(|(other, _)| other < key)?;
                        let up_to = stream.last_up_to(key)?.map(|(key, _)| key.to_vec());
                        let between = keys(&stream.between(key, until, most)?);
                        Ok((stream.value(key)?.map(<[u8]>::to_vec), before, up_to, between))
                    });
                    assert_eq!(value.as_ref(), model.get(key));
                    assert_eq!(before, model.range(..key.clone()).count());
                    assert_eq!(up_to.as_ref(), model.range(..=key.clone()).next_back().map(|(key, _)| key));
                    let after = model.range(key.clone()..).map(|(key, _)| key);
                    let expected: Vec<_> =
                        after.take_while(|key| *key <= until).take(most).cloned().collect();
                    assert_eq!(between, expected);
                }
            }
        }
        world.end();
    });
}

/// Single elements change, several times in an access: what nodes and roots count then is seen at once, and gone if the access is not committed.
#[test]
fn change_of_one_element_is_seen_at_once_and_happens_at_the_commit() {
    for kind in [ValueKind::List, ValueKind::SortedSet, ValueKind::Stream, ValueKind::Hash] {
        seeds(&format!("{kind:?}"), |world| {
            let mut model: Vec<Owned> = Vec::new();
            for step in 0..STEPS * 3 {
                let mut after = model.clone();
                let ones: Vec<One> = (0..1 + world.below(3)).map(|_| one(world, kind, &mut after)).collect();
                let (ends, looks) = (world.below(8), [world.below(8), world.below(1_000)]);
                let watch = world.store.watch(0, &world.key);
                let (keys, prepared) = ([KeyRef { db: 0, key: &world.key }], Prepared::default());
                let mut access = world.store.access(Scope::Keys(&keys), &prepared, 1).expect("there is room");
                let mut so_far = model.clone();
                for change in &ones {
                    if looks[0] == 7 {
                        // what is taken back was never there
                        access.save();
                        change.make(&mut access, &world.key, kind);
                        access.undo();
                    }
                    change.make(&mut access, &world.key, kind);
                    change.note(kind, &mut so_far);
                    if looks[0] > 2 && !so_far.is_empty() {
                        look(&access, &world.key, (kind, &so_far), looks[1] % so_far.len());
                    }
                }
                if looks[0] == 6 && !so_far.is_empty() {
                    assert!(access.set_expiry(0, &world.key, None).expect("all is hot"));
                }
                if ends > 0 {
                    access.commit().expect("there is room");
                    model = after;
                }
                drop(access);
                let is_changed = world.run(|access| access.changed(&watch));
                assert!(!is_changed || ends > 0, "step {step}");
                assert!(is_changed || ends == 0 || ones.iter().all(One::may_do_nothing), "step {step}");
                if step % 25 == 0 && kind != ValueKind::Hash {
                    world.check(kind, &model);
                }
            }
            world.end();
        });
    }
}

/// As above with a log, in a life with kills: what a group wrote of several changes says all of them.
#[test]
fn changes_of_single_elements_are_there_after_a_kill() {
    for kind in [ValueKind::List, ValueKind::SortedSet, ValueKind::Stream, ValueKind::Hash] {
        for (seed, leaf_bytes) in (0..SEEDS).flat_map(|seed| [(seed, 400), (seed, 1_500)]) {
            println!("{kind:?}: seed {seed}, leaves of {leaf_bytes} B");
            let world = &mut World::with_engine(EngineKind::Log, seed, leaf_bytes);
            let mut model: Vec<Owned> = Vec::new();
            for step in 0..STEPS {
                let ones: Vec<One> = (0..1 + world.below(3)).map(|_| one(world, kind, &mut model)).collect();
                world.run_cold(|access| ones.iter().try_for_each(|one| one.try_make(access, b"key", kind)));
                while world.store.drive() {}
                if world.below(20) == 0 {
                    world.restart();
                }
                if step % 40 == 39 {
                    world.restart();
                    let found = world.run_cold(|access| {
                        let all = access.collection(0, b"key", kind)?.expect("of this type");
                        let owned = |(name, value): Element<'_>| (name.to_vec(), value.to_vec());
                        let mut found: Vec<Owned> = all.iter().map(owned).collect();
                        if kind == ValueKind::Hash {
                            found.sort();
                        }
                        Ok(found)
                    });
                    assert!(
                        found == model,
                        "step {step}: {} elements, {} of the model",
                        found.len(),
                        model.len()
                    );
                }
            }
        }
    }
}

/// A change of one element.
enum One {
    /// At its place, which is this number in a list.
    Put(usize, Vec<u8>, Vec<u8>),
    Remove(usize, Vec<u8>),
}

/// One that can be made of a collection of type `kind` that has the elements in `model`, where it is made.
fn one(world: &mut World, kind: ValueKind, model: &mut Vec<Owned>) -> One {
    let at = [0, model.len(), world.below(model.len() + 1)][world.below(3)];
    let gone = model.get(at).filter(|_| world.rng.below(if model.len() > 400 { 2 } else { 4 }) == 0);
    let one = match (gone, kind) {
        (Some((name, _)), _) => One::Remove(at, name.clone()),
        (None, ValueKind::List) => One::Put(at, world.value(), Vec::new()),
        (None, ValueKind::SortedSet) => One::Put(0, member(world), score(world).to_le_bytes().to_vec()),
        (None, _) => {
            // what is there gets a value of another size, too
            let known = model.get(at).filter(|_| world.below(3) == 0).map(|(name, _)| name.clone());
            let name = known.unwrap_or_else(|| format!("name{}", world.below(1_500)).into_bytes());
            One::Put(0, name, world.value())
        }
    };
    one.note(kind, model);
    one
}

impl One {
    fn make(&self, access: &mut Access<'_>, key: &[u8], kind: ValueKind) {
        self.try_make(access, key, kind).expect("all is hot");
    }

    fn try_make(&self, access: &mut Access<'_>, key: &[u8], kind: ValueKind) -> Result<(), Stop> {
        let changed = match (self, kind) {
            (Self::Put(at, value, _), ValueKind::List) => {
                access.change_list(0, key, &[ListChange::Insert(*at, value)]).map(|it| it.map(drop))
            }
            (Self::Remove(at, _), ValueKind::List) => {
                access.change_list(0, key, &[ListChange::Remove(*at, 1)]).map(|it| it.map(drop))
            }
            (Self::Put(_, name, value), ValueKind::Stream) => {
                access.change_stream(0, key, &[(name, Some(value))]).map(|it| it.map(drop))
            }
            (Self::Remove(_, name), ValueKind::Stream) => {
                access.change_stream(0, key, &[(name, None)]).map(|it| it.map(drop))
            }
            (Self::Put(_, name, _) | Self::Remove(_, name), _) => {
                if kind == ValueKind::SortedSet {
                    let score = match self {
                        Self::Put(_, _, value) => Some(score_of(value)),
                        Self::Remove(..) => None,
                    };
                    let change = |_, _| Ok::<_, Infallible>(score);
                    access.rescore(0, key, [&name[..]].into_iter(), change).map(|it| it.map(|Ok(())| ()))
                } else {
                    access.edit_element(0, key, kind, name, |edit, tag| match self {
                        Self::Put(_, name, value) => _ = edit.put(tag, name, value),
                        Self::Remove(..) => _ = edit.delete(tag, name),
                    })
                }
            }
        };
        changed?.expect("of this type");
        Ok(())
    }

    fn note(&self, kind: ValueKind, model: &mut Vec<Owned>) {
        match self {
            Self::Remove(at, _) => drop(model.remove(*at)),
            Self::Put(at, value, _) if kind == ValueKind::List => {
                model.insert(*at, (value.clone(), Vec::new()));
            }
            Self::Put(_, name, value) => {
                model.retain(|(other, _)| other != name);
                let is_before = |other: &Owned| match kind {
                    ValueKind::SortedSet => {
                        let by_score = score_of(&other.1).total_cmp(&score_of(value));
                        by_score.then_with(|| other.0.cmp(name)).is_lt()
                    }
                    _ => other.0 < *name,
                };
                let at = model.partition_point(is_before);
                model.insert(at, (name.clone(), value.clone()));
            }
        }
    }

    /// Whether it may leave all as it was.
    fn may_do_nothing(&self) -> bool {
        matches!(self, Self::Put(..))
    }
}

/// Compares what the access sees with `model`: how many there are, and element number `at`.
fn look(access: &Access<'_>, key: &[u8], (kind, model): (ValueKind, &[Owned]), at: usize) {
    let (name, value) = &model[at];
    let hot = "all is hot";
    assert_eq!(access.count(0, key, kind).expect(hot).expect("of this type"), model.len() as u64);
    match kind {
        ValueKind::Hash => {
            let found = access.values(0, key, kind, [&name[..]].into_iter()).expect(hot).expect("a hash");
            assert_eq!(found.expect("it is there")[..], [Some(&value[..])]);
        }
        _ => {
            let sequence = access.sequence(0, key, kind).expect(hot).expect("of this type");
            assert_eq!(sequence.len(), model.len());
            assert_eq!(sequence.element(at).expect(hot), Some((&name[..], &value[..])));
        }
    }
    match kind {
        ValueKind::SortedSet => {
            let set = access.sequence(0, key, kind).expect(hot).expect("of this type");
            assert_eq!(set.rank(name, value).expect(hot), at);
        }
        ValueKind::Stream => {
            let stream = access.sequence(0, key, kind).expect(hot).expect("of this type");
            assert_eq!(stream.partition_point(|(other, _)| other < &name[..]).expect(hot), at);
        }
        _ => {}
    }
}

const SEEDS: u64 = 3;
const STEPS: usize = 400;

/// One element of 300 KB had 147 leaves, and a large one beside small ones as many: all were cut by their bytes.
#[test]
fn large_elements_have_a_leaf_each_and_multiply_none() {
    const LEAF_BYTES: u64 = 400;
    for kind in [ValueKind::Hash, ValueKind::Set, ValueKind::List, ValueKind::SortedSet, ValueKind::Stream] {
        // leaves when elements of these sizes were added one after the other
        let leaves = |sizes: &[usize]| {
            let world = World::new(1, LEAF_BYTES);
            for (at, size) in sizes.iter().enumerate() {
                world.run(|access| add(access, kind, at, *size));
            }
            world.run(|access| access.leaf_count(0, &world.key))
        };
        let structures = if kind == ValueKind::SortedSet { 2 } else { 1 };
        assert_eq!(leaves(&[400_000]), structures, "{kind:?}");
        let large = [20_000; 40];
        // in a tree a level of inner nodes is above them
        assert!(leaves(&large) <= structures * 44, "{kind:?}: {} leaves", leaves(&large));
        let small = [20; 2_000];
        let (of_small, with_large) = (leaves(&small), leaves(&[&[4_000_000][..], &small].concat()));
        let among = leaves(&[&small[..1_000], &[4_000_000], &small[1_000..]].concat());
        for found in [with_large, among] {
            assert!(found <= of_small * 7 / 4 + 6, "{kind:?}: {found} leaves, {of_small} without");
        }
    }
}

/// A new element number `at`, with so many bytes.
fn add(access: &mut Access<'_>, kind: ValueKind, at: usize, size: usize) -> Result<(), Stop> {
    let (name, mut value) = (format!("{at:08}").into_bytes(), format!("{at:08}").into_bytes());
    value.resize(size.max(8), b'v');
    match kind {
        ValueKind::List => {
            access.change_list(0, b"key", &[ListChange::PushBack(&value)])?.expect("a list");
        }
        ValueKind::Stream => {
            access.change_stream(0, b"key", &[(&name, Some(&value))])?.expect("a stream");
        }
        _ => {
            let element = if kind == ValueKind::Hash { &name } else { &value };
            if kind == ValueKind::SortedSet {
                let score = |_, _| Ok::<_, Infallible>(Some(1.0));
                let Ok(()) = access.rescore(0, b"key", [&element[..]].into_iter(), score)?.expect("its type");
                return Ok(());
            }
            let change = |edit: &mut store::Edit<'_>, tag| match kind {
                ValueKind::Hash => _ = edit.put(tag, element, &value),
                _ => _ = edit.add(tag, element),
            };
            access.edit_element(0, b"key", kind, element, change)?.expect("its type");
        }
    }
    Ok(())
}
