//! `check` on large collections: whole ones pass; leaves without a root, roots without a leaf, and counts that are not what leaves have are
//! found, by the key's name.

mod hurt;

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clock::{Clock, SimClock, UnixMs};
use journal::Keyspace;
use store::{
    Access, Collections, EngineKind, KeyRef, ListChange, Options, Prepared, Scope, Stop, Store, ValueKind,
    check,
};
use vfs::{SimDisk, Vfs};

const DIR: &str = "/data";
/// Of database 0 in a new folder.
const KEYS: Keyspace = Keyspace(1);
const LEAVES: Keyspace = Keyspace(1 | 1 << 31);
/// Kinds of the store's records (`record`).
const REMOVED: u8 = 2;
const REMOVALS: u8 = 22;
const LIST: u8 = 9;
const FIELDS: usize = 300;

fn open(disk: &SimDisk) -> Arc<Store> {
    open_in(disk, DIR)
}

fn open_in(disk: &SimDisk, dir: &str) -> Arc<Store> {
    open_with(disk, dir, 128)
}

fn open_with(disk: &SimDisk, dir: &str, hash_bits: u32) -> Arc<Store> {
    let clock: Arc<dyn Clock> = Arc::new(SimClock::new(UnixMs(1_000_000)));
    let identity = Some(journal::Identity { folder: 1, hash_key: 2, hash_bits });
    let options = Options {
        engine: EngineKind::Log,
        background: false,
        readers: 0,
        clock,
        vfs: Arc::new(disk.clone()),
        dir: PathBuf::from(dir),
        leaf_bytes: 256,
        hash_bits,
        journal: journal::Options { identity, ..Options::default().journal },
        ..Options::default()
    };
    let store = Store::open(options).expect("the folder opens");
    while store.drive() {}
    store
}

/// Runs `change` on keys of database 0.
fn change<R>(store: &Arc<Store>, names: &[&[u8]], change: impl Fn(&mut Access<'_>) -> Result<R, Stop>) -> R {
    let keys: Vec<KeyRef<'_>> = names.iter().map(|key| KeyRef { db: 0, key }).collect();
    let mut prepared = Prepared::default();
    for _ in 0..1_000 {
        let mut access = store.access(Scope::Keys(&keys), &prepared, 100_000).expect("room");
        match change(&mut access).and_then(|done| access.commit().map(|_| done)) {
            Ok(done) => {
                while store.drive() {}
                return done;
            }
            Err(Stop::Cold) => {
                let wanted = access.into_wanted();
                prepared.want(wanted);
                store.missing(&keys, &mut prepared);
                let (sender, receiver) = std::sync::mpsc::channel();
                store.fetch(prepared, Box::new(move |fetched| sender.send(fetched).expect("it is awaited")));
                prepared = receiver.recv().expect("what is fetched comes back");
            }
            Err(stop) => panic!("{stop:?}"),
        }
    }
    panic!("it is never ready");
}

/// Lets hash `key` have so many fields more.
fn fill(store: &Arc<Store>, key: &[u8], fields: std::ops::Range<usize>) {
    let names: Vec<String> = fields.map(|number| format!("field-{number}")).collect();
    change(store, &[key], |access| {
        let put = |edit: &mut store::Edit<'_>, tag, number: usize| {
            edit.put(tag, names[number].as_bytes(), b"value");
        };
        let named = names.iter().map(|name| name.as_bytes());
        access.edit_each(0, key, ValueKind::Hash, named, put)?.expect("a hash");
        Ok(())
    });
}

fn change_list(store: &Arc<Store>, changes: &[ListChange<'_>]) {
    let (keys, prepared) = ([KeyRef { db: 0, key: b"list" }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 100_000).expect("room");
    access.change_list(0, b"list", changes).expect("all is in memory").expect("a list");
    access.commit().expect("room");
    while store.drive() {}
}

/// A folder with two large hashes, one of them removed; checkpoint and changes after it, or none.
fn filled(has_checkpoint: bool) -> SimDisk {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    fill(&store, b"kept", 0..FIELDS);
    fill(&store, b"gone", 0..FIELDS);
    if has_checkpoint {
        store.checkpoint().expect("no fault");
    }
    fill(&store, b"kept", FIELDS..2 * FIELDS);
    let (keys, prepared) = ([KeyRef { db: 0, key: b"gone" }], Prepared::default());
    let mut access = store.access(Scope::Keys(&keys), &prepared, 1_000).expect("room");
    assert!(access.remove(0, b"gone").expect("it is in memory"));
    access.commit().expect("room");
    while store.drive() {}
    // some of its leaves are still there, and a note says so
    disk.process_death()
}

/// Appends a record as another owner of the journal.
fn append(disk: &SimDisk, kind: u8, keyspace: Keyspace, payload: &[u8]) {
    let content = journal::Content { version: 11, reader_version_min: 11, check: |_, _| Ok(()) };
    let clock: Arc<dyn Clock> = Arc::new(SimClock::new(UnixMs(1_000_000)));
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let options = journal::Options { content, ..Options::default().journal };
    let opened = journal::Journal::open(vfs, clock, Path::new(DIR), options);
    let (journal, mut driver) =
        opened.expect("good").start_manual(journal::Hooks::default()).expect("no fault");
    let parts: [&[u8]; 1] = [payload];
    let draft = journal::Draft::new(kind, keyspace, &parts);
    let credits = journal.reserve(journal::footprint([draft.payload_len()]), journal::Class::Write);
    journal.append(credits.expect("room"), &[draft], &mut Vec::new());
    while driver.commit() + driver.prepare() > 0 {}
}

/// Key and value of the first record of this kind and keyspace that `wanted` likes.
fn record(disk: &SimDisk, keyspace: Keyspace, wanted: impl Fn(u8, &[u8]) -> bool) -> (u8, Vec<u8>) {
    let content = journal::Content { version: 11, reader_version_min: 11, check: |_, _| Ok(()) };
    let mut found = None;
    let mut look = |view: journal::RecordView<'_>| {
        if view.header.keyspace == keyspace && wanted(view.header.kind, view.payload) && found.is_none() {
            found = Some((view.header.kind, view.payload.to_vec()));
        }
    };
    journal::check(&disk.fork(), Path::new(DIR), &content, &mut look).expect("it is readable");
    found.expect("there is one")
}

fn damage(disk: &SimDisk) -> Vec<String> {
    let checked = check(&disk.fork(), Path::new(DIR)).expect("a folder");
    checked.journal.damage.into_iter().map(|damage| damage.what).collect()
}

#[test]
fn whole_folder_passes_with_its_counts_also_while_leaves_of_what_is_gone_are_there() {
    for has_checkpoint in [false, true] {
        let disk = filled(has_checkpoint);
        let checked = check(&disk.fork(), Path::new(DIR)).expect("a folder");
        assert_eq!(checked.journal.damage, []);
        let counts = checked.collections.expect("all is whole");
        assert_eq!(counts.roots, 1);
        let store = open(&disk);
        while store.leaf_report().swept > 0 {
            store.tend(100);
            while store.drive() {}
        }
        assert_eq!(counts.leaves, store.leaf_report().leaves);
        store.close();
        let checked = check(&disk.process_death(), Path::new(DIR)).expect("a folder");
        assert_eq!((checked.journal.damage, checked.collections), (vec![], Some(counts)));
    }
}

#[test]
fn missing_leaf_is_found_and_belongs_to_a_root() {
    for has_checkpoint in [false, true] {
        let disk = filled(has_checkpoint);
        // the root of `kept`: 4 bytes of length, the key, the object
        let (_, root) =
            record(&disk, KEYS, |_, payload| payload[4..].starts_with(b"kept") && payload.len() == 40);
        let leaf = [&12_u32.to_le_bytes()[..], &root[8..16], &1_u32.to_le_bytes()].concat();
        append(&disk, REMOVED, LEAVES, &leaf);
        let disk = disk.process_death();
        let found = damage(&disk);
        assert_eq!(found.len(), 1, "{found:?}");
        let (is_named, leaves) =
            (found[0].starts_with("hash \"kept\" (object "), found[0].contains("): leaf 1 of "));
        assert!(is_named && leaves && found[0].ends_with(" is missing"), "{found:?}");
    }
}

#[test]
fn leaf_without_a_root_is_found_whether_the_root_is_gone_or_never_was() {
    for has_checkpoint in [false, true] {
        let disk = filled(has_checkpoint);
        let (kind, mut leaf) = record(&disk, LEAVES, |kind, _| kind != REMOVED);
        leaf[5] ^= 0x55;
        append(&disk, kind, LEAVES, &leaf);
        let disk = disk.process_death();
        assert_eq!(damage(&disk), ["1 leaves belong to no collection"]);
        append(&disk, REMOVED, KEYS, b"\x04\0\0\0kept");
        let found = damage(&disk.process_death());
        assert!(found[0].ends_with(" leaves belong to no collection") && found[0].len() > 30, "{found:?}");
    }
}

#[test]
fn trees_pass_with_their_nodes_and_a_missing_one_is_found() {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    let value = [b'v'; 30];
    let pushes: Vec<ListChange<'_>> = (0..500).map(|_| ListChange::PushBack(&value)).collect();
    // of what goes nodes stay that are free
    for changes in [&pushes[..], &[ListChange::Remove(40, 300)]] {
        change_list(&store, changes);
    }
    let nodes = store.leaf_report().leaves;
    store.close();
    let disk = disk.process_death();
    let checked = check(&disk.fork(), Path::new(DIR)).expect("a folder");
    assert_eq!(checked.journal.damage, []);
    assert_eq!(checked.collections, Some(Collections { roots: 1, leaves: nodes }));
    let (_, node) = record(&disk, LEAVES, |kind, payload| kind == LIST && payload[4 + 11] & 0x80 != 0);
    append(&disk, REMOVED, LEAVES, &node[..4 + 12]);
    let found = damage(&disk);
    assert!(
        found.len() == 1 && found[0].starts_with("list \"list\" (object ") && found[0].contains("missing"),
        "{found:?}"
    );
}

/// A change that leaves a leaf with as many elements as it had was logged as a change of the node above it, too, without anything that
/// changes: the folder did not open again.
#[test]
fn element_that_is_replaced_changes_no_node_above_it() {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    let (value, long) = ([b'v'; 30], [b'v'; 300]);
    let pushes: Vec<ListChange<'_>> = (0..500).map(|_| ListChange::PushBack(&value)).collect();
    change_list(&store, &pushes);
    // so many leaves of one element each that the node above them is changed by parts
    let sets: Vec<ListChange<'_>> = (0..500).map(|at| ListChange::Set(at, &long)).collect();
    sets.chunks(1).for_each(|set| change_list(&store, set));
    (0..500).for_each(|at| change_list(&store, &[ListChange::Set(at, &value)]));
    store.close();
    let disk = disk.process_death();
    assert_eq!(damage(&disk), [""; 0]);
    open(&disk);
}

/// A key whose hash had the bits of a root's was taken for what replaces the root, and its leaves for loose ones (EVENKEEL_SIM_SEED=6132).
#[test]
fn key_with_the_hash_bits_of_a_root_does_not_stand_for_it() {
    let disk = SimDisk::new(3);
    let store = open_with(&disk, DIR, 1);
    let pushes = vec![ListChange::PushBack(&[b'v'; 30]); 500];
    change_list(&store, &pushes);
    // of two hashes, one has half of these
    (0..20_u8).for_each(|key| fill(&store, &[key], 0..1));
    store.close();
    assert_eq!(damage(&disk.process_death()), [""; 0]);
}

/// Runs `body` until nothing that it needs is on disk alone; commits what it has done, or forgets it.
fn run<R>(
    store: &Arc<Store>,
    commits: bool,
    mut body: impl FnMut(&mut Access<'_>) -> Result<R, Stop>,
) -> Result<R, Stop> {
    let keys = [KeyRef { db: 0, key: b"list" }];
    let mut prepared = Prepared::default();
    for _ in 0..100 {
        if !store.missing(&keys, &mut prepared) {
            prepared = fetch(store, prepared);
            continue;
        }
        let mut access = store.access(Scope::Keys(&keys), &prepared, 100_000).expect("room");
        let done = body(&mut access);
        let ended = if commits { done.and_then(|done| access.commit().map(|_| done)) } else { done };
        match ended {
            Err(Stop::Cold) => prepared.want(access.into_wanted()),
            ended => return ended,
        }
        while store.drive() {}
    }
    panic!("it never has what it needs");
}

fn fetch(store: &Arc<Store>, prepared: Prepared) -> Prepared {
    let (to, from) = std::sync::mpsc::channel();
    store.fetch(prepared, Box::new(move |prepared| to.send(prepared).expect("somebody waits")));
    from.recv().expect("reads end")
}

#[test]
fn leaf_with_other_elements_than_are_counted_is_damage_and_no_end_of_the_server() {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    let value = [b'v'; 30];
    let pushes: Vec<ListChange<'_>> = (0..500).map(|_| ListChange::PushBack(&value)).collect();
    run(&store, true, |access| access.change_list(0, b"list", &pushes)).expect("room").expect("a list");
    while store.drive() {}
    store.close();
    let disk = disk.process_death();
    let (kind, mut leaf) = record(&disk, LEAVES, |kind, payload| kind == LIST && payload.ends_with(&value));
    leaf.truncate(4 + 12);
    // a list of one element
    leaf.extend_from_slice(b"\x01\0\0\0\x02\0\0\0\0\0\x01x");
    append(&disk, kind, LEAVES, &leaf);
    let store = open(&disk);
    let is_damage = |stop: &Stop| matches!(stop, Stop::Damaged(_));
    let all = run(&store, false, |access| {
        let list = access.sequence(0, b"list", ValueKind::List)?.expect("a list");
        list.range(0..500).map(|elements| elements.len())
    });
    assert!(all.as_ref().is_err_and(is_damage), "{all:?}");
    let mut damaged = 0;
    for at in 0..500 {
        for change in
            [ListChange::Set(at, b"new"), ListChange::Insert(at, b"new"), ListChange::Remove(at, 500 - at)]
        {
            let changed = run(&store, false, |access| access.change_list(0, b"list", &[change]));
            damaged += usize::from(changed.as_ref().is_err_and(is_damage));
        }
    }
    assert!(damaged > 0);
}

fn field(store: &Arc<Store>, key: &[u8], field: &[u8]) -> Option<Vec<u8>> {
    change(store, &[key], |access| {
        let values = access.values(0, key, ValueKind::Hash, std::iter::once(field))?.expect("a hash");
        Ok(values.and_then(|values| values[0].map(<[u8]>::to_vec)))
    })
}

#[test]
fn renamed_collection_keeps_its_leaves_over_starts_and_ends_with_them() {
    let disk = SimDisk::new(3);
    let mut store = open(&disk);
    fill(&store, b"other", 0..2 * FIELDS);
    fill(&store, b"a", 0..2 * FIELDS);
    let leaves = store.leaf_report().leaves;
    let names: Vec<Vec<u8>> = (0..8).map(|number| format!("name-{number}").into_bytes()).collect();
    let (mut at, mut disk) = (b"a".to_vec(), disk);
    for (number, name) in names.iter().enumerate() {
        assert!(change(&store, &[&at, name], |access| access.rename_paged(0, &at, name)));
        assert_eq!(field(&store, &at, b"field-7"), None);
        at.clone_from(name);
        if number % 3 == 0 {
            store.checkpoint().expect("no fault");
        }
        if number % 2 == 0 {
            disk = disk.process_death();
            let checked = check(&disk.fork(), Path::new(DIR)).expect("a folder");
            assert_eq!(checked.journal.damage, []);
            store = open(&disk);
        }
        assert_eq!(field(&store, &at, b"field-7").as_deref(), Some(&b"value"[..]), "cold and hot");
        fill(&store, &at, 2 * FIELDS + number..2 * FIELDS + number + 1);
        let count = change(&store, &[&at], |access| access.count(0, &at, ValueKind::Hash)).expect("a hash");
        assert_eq!(count, (2 * FIELDS + number + 1) as u64);
        assert!(store.leaf_report().leaves >= leaves && store.leaf_report().swept == 0);
    }
    // onto another large one, whose leaves go
    assert!(change(&store, &[&at, b"other"], |access| access.rename_paged(0, &at, b"other")));
    assert!(change(&store, &[b"other"], |access| access.remove(0, b"other")));
    assert!(store.leaf_report().swept > 0);
    let disk = disk.process_death();
    let checked = check(&disk.fork(), Path::new(DIR)).expect("a folder");
    assert_eq!(checked.journal.damage, []);
    let store = open(&disk);
    while store.leaf_report().swept > 0 {
        store.tend(100);
        while store.drive() {}
    }
    assert_eq!(store.leaf_report().leaves, 0);
}

#[test]
fn rename_and_removal_in_one_group_leave_no_leaves() {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    fill(&store, b"a", 0..2 * FIELDS);
    change(&store, &[b"a", b"b"], |access| {
        assert!(access.rename_paged(0, b"a", b"b")?);
        let put = |edit: &mut store::Edit<'_>, tag| _ = edit.put(tag, b"more", b"value");
        assert!(access.edit_element(0, b"b", ValueKind::Hash, b"more", put)?.is_ok());
        access.remove(0, b"b")
    });
    fill(&store, b"a", 0..2 * FIELDS);
    change(&store, &[b"a", b"b"], |access| {
        // there and back
        assert!(access.rename_paged(0, b"a", b"b")? && access.rename_paged(0, b"b", b"a")?);
        Ok(())
    });
    while store.leaf_report().swept > 0 {
        store.tend(100);
        while store.drive() {}
    }
    assert_eq!(field(&store, b"a", b"field-7").as_deref(), Some(&b"value"[..]));
    assert!(change(&store, &[b"a"], |access| access.remove(0, b"a")));
    while store.leaf_report().swept > 0 {
        store.tend(100);
        while store.drive() {}
    }
    assert_eq!(store.leaf_report().leaves, 0);
}

const TYPES: [ValueKind; 5] =
    [ValueKind::Hash, ValueKind::Set, ValueKind::List, ValueKind::SortedSet, ValueKind::Stream];

/// Lets the collection `key` have these elements, too, which come last in its order.
fn add(store: &Arc<Store>, kind: ValueKind, numbers: std::ops::Range<usize>) {
    let names: Vec<String> = numbers.clone().map(|number| format!("element-{number:05}")).collect();
    put(store, kind, &names.iter().map(String::as_str).zip(numbers).collect::<Vec<_>>(), "first");
}

/// Puts elements, each with a number, into the collection `key`; those that are there get this value.
fn put(store: &Arc<Store>, kind: ValueKind, elements: &[(&str, usize)], value: &str) {
    change(store, &[b"key"], |access| {
        match kind {
            ValueKind::List => {
                let pushes: Vec<_> =
                    elements.iter().map(|(name, _)| ListChange::PushBack(name.as_bytes())).collect();
                access.change_list(0, b"key", &pushes)?.expect("a list");
            }
            ValueKind::Stream => {
                let changes: Vec<_> =
                    elements.iter().map(|(name, _)| (name.as_bytes(), Some(value.as_bytes()))).collect();
                access.change_stream(0, b"key", &changes)?.expect("a stream");
            }
            _ => {
                let names = elements.iter().map(|(name, _)| name.as_bytes());
                if kind == ValueKind::SortedSet {
                    let score = |_, at: usize| Ok::<_, Infallible>(Some(elements[at].1 as f64));
                    let Ok(()) = access.rescore(0, b"key", names, score)?.expect("of this type");
                    return Ok(());
                }
                let change = |edit: &mut store::Edit<'_>, tag, at: usize| match kind {
                    ValueKind::Hash => _ = edit.put(tag, elements[at].0.as_bytes(), value.as_bytes()),
                    _ => _ = edit.add(tag, elements[at].0.as_bytes()),
                };
                access.edit_each(0, b"key", kind, names, change)?.expect("of this type");
            }
        }
        Ok(())
    });
}

/// A folder with a collection of each node's size, all of it in bases.
fn fresh(kind: ValueKind) -> SimDisk {
    let disk = SimDisk::new(3);
    let store = open(&disk);
    add(&store, kind, 0..1_000);
    store.close();
    disk.process_death()
}

/// Where in the payload of a base the value begins.
fn value_at(payload: &[u8]) -> usize {
    4 + u32::from_le_bytes(payload[..4].try_into().expect("4 bytes")) as usize
}

/// Kind and payload of the root, and of an inner node, of what [`fresh`] makes.
fn root_record(disk: &SimDisk) -> (u8, Vec<u8>) {
    record(disk, KEYS, |_, payload| payload[4..].starts_with(b"key"))
}

fn inner_record(disk: &SimDisk, of: ValueKind) -> (u8, Vec<u8>) {
    let is_leaf = |payload: &[u8]| of == ValueKind::List && payload.windows(7).any(|it| it == b"element");
    let is_large = |payload: &[u8]| payload.len() > 100;
    record(disk, LEAVES, |kind, payload| {
        kind == LIST && payload[15] & 0x80 != 0 && is_large(payload) && !is_leaf(payload)
    })
}

/// A new folder in which a number of eight bytes in a base is one more.
fn with_one_more(
    disk: &SimDisk,
    keyspace: Keyspace,
    (kind, mut payload): (u8, Vec<u8>),
    at: usize,
) -> SimDisk {
    let disk = disk.fork();
    let number = u64::from_le_bytes(payload[at..at + 8].try_into().expect("8 bytes"));
    payload[at..at + 8].copy_from_slice(&(number + 1).to_le_bytes());
    append(&disk, kind, keyspace, &payload);
    disk.process_death()
}

#[test]
fn root_that_counts_other_elements_or_bytes_than_its_leaves_have_is_found() {
    for kind in TYPES {
        let disk = fresh(kind);
        assert_eq!(damage(&disk), [""; 0], "{kind:?}");
        let root = root_record(&disk);
        let counts = value_at(&root.1) + 8;
        let found = damage(&with_one_more(&disk, KEYS, root.clone(), counts));
        let name = format!("{} \"key\" (object ", kind.name());
        assert!(!found.is_empty() && found.iter().all(|what| what.starts_with(&name)), "{found:?}");
        assert!(
            found[0].contains(": its root counts 1001 elements, ") && found[0].ends_with(" 1000"),
            "{found:?}"
        );
        if matches!(kind, ValueKind::Hash | ValueKind::Set | ValueKind::SortedSet) {
            let found = damage(&with_one_more(&disk, KEYS, root, counts + 8));
            assert!(found.len() == 1 && found[0].contains(" bytes, its "), "{found:?}");
        }
    }
}

#[test]
fn inner_node_that_counts_other_elements_than_a_node_below_it_has_is_found_once() {
    for kind in [ValueKind::List, ValueKind::SortedSet, ValueKind::Stream] {
        let disk = fresh(kind);
        let inner = inner_record(&disk, kind);
        let value = value_at(&inner.1);
        let children = inner.1[value] as usize;
        // the first child's count: behind the header, the offsets, a length of one byte and the child's number
        let found = damage(&with_one_more(&disk, LEAVES, inner, value + 8 + 2 * children + 1 + 4));
        let name = format!("{} \"key\" (object ", kind.name());
        assert!(found.iter().all(|what| what.starts_with(&name)), "{found:?}");
        assert!(found[0].contains(" counts ") && found[0].contains(", which has "), "{found:?}");
        assert!(found.len() <= 2, "the node, and who counts it: {found:?}");
    }
}
