//! A hurt folder under `check` and `salvage`: what is wrong is found, and what is saved was written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clock::{Clock, SimClock, UnixMs};
use journal::Keyspace;
use store::{EngineKind, KeyRef, Options, Prepared, Scope, Stop, Store, Value, check, salvage};
use vfs::sim::Rng;
use vfs::{OpenOptions, SimDisk, Vfs};

const DIR: &str = "/data";
const OUT: &str = "/saved";
const KEYS: u64 = 60;

fn clock() -> Arc<SimClock> {
    Arc::new(SimClock::new(UnixMs(1_000_000)))
}

fn open(disk: &SimDisk, dir: &str) -> Arc<Store> {
    let options = Options {
        engine: EngineKind::Log,
        databases: 2,
        background: false,
        readers: 0,
        clock: clock(),
        vfs: Arc::new(disk.clone()),
        dir: PathBuf::from(dir),
        transaction_bytes_max: 1 << 20,
        journal: journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() },
        ..Options::default()
    };
    let store = Store::open(options).expect("the folder opens");
    while store.drive() {}
    store
}

/// Runs `f` on one key with everything cold fetched.
fn with<T>(store: &Arc<Store>, key: u64, f: impl Fn(&mut store::Access<'_>, &[u8]) -> Result<T, Stop>) -> T {
    let name = key.to_le_bytes();
    let keys = [KeyRef { db: 0, key: &name }];
    let mut prepared = Prepared::default();
    loop {
        if !store.missing(&keys, &mut prepared) {
            let (sender, receiver) = std::sync::mpsc::channel();
            store.fetch(prepared, Box::new(move |fetched| sender.send(fetched).expect("the test waits")));
            prepared = receiver.recv().expect("it is fetched at once");
            continue;
        }
        match store.access(Scope::Keys(&keys), &prepared, 2_000) {
            Ok(mut access) => match f(&mut access, &name).and_then(|value| access.commit().map(|_| value)) {
                Ok(value) => return value,
                Err(Stop::Cold) => continue,
                Err(Stop::Busy) => while store.drive() {},
                Err(stop) => panic!("{stop:?}"),
            },
            Err(Stop::Busy) => while store.drive() {},
            Err(stop) => panic!("{stop:?}"),
        }
    }
}

fn value(key: u64, version: u64) -> Vec<u8> {
    let name = format!("{key}.{version}.");
    name.bytes().cycle().take(700 + (key * 31 + version) as usize % 300).collect()
}

/// A folder with sealed and footed segments and a checkpoint, and writes after it; and what each key holds.
fn filled() -> (SimDisk, BTreeMap<u64, u64>) {
    let disk = SimDisk::new(3);
    let store = open(&disk, DIR);
    let mut newest = BTreeMap::new();
    for version in 1..=7 {
        for key in 0..KEYS {
            if version == 3 && key % 5 == 0 {
                with(&store, key, |access, name| access.remove(0, name));
                newest.remove(&key);
            } else if version < 4 || key % 5 != 0 {
                with(&store, key, |access, name| {
                    access.put(0, name, Value::String(&value(key, version)), None);
                    Ok(())
                });
                newest.insert(key, version);
            }
            while store.drive() {}
        }
        if version == 5 {
            store.checkpoint().expect("no fault");
        }
    }
    for _ in 0..500 {
        store.housekeep().expect("no fault");
        while store.drive() {}
    }
    store.close();
    (disk.process_death(), newest)
}

fn checkpoint_file(disk: &SimDisk) -> (PathBuf, u64) {
    let is_checkpoint = |path: &Path| path.to_string_lossy().contains("checkpoint");
    disk.files().into_iter().find(|(path, _)| is_checkpoint(path)).expect("there is one")
}

/// All files of the folder with their bytes.
fn all_bytes(disk: &SimDisk) -> Vec<(PathBuf, Vec<u8>)> {
    disk.files().into_iter().map(|(path, _)| (path.clone(), bytes(disk, &path))).collect()
}

fn opening_fails(disk: &SimDisk) -> String {
    let options = Options {
        engine: EngineKind::Log,
        background: false,
        readers: 0,
        clock: clock(),
        vfs: Arc::new(disk.clone()),
        dir: DIR.into(),
        journal: journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() },
        ..Options::default()
    };
    Store::open(options).expect_err("refused").to_string()
}

/// An owner of the same version that takes any record.
const TOLERANT: journal::Content =
    journal::Content { version: 11, reader_version_min: 11, check: |_, _| Ok(()) };

/// Lets another owner of the journal in the folder write a record of `kind`.
fn strange(disk: &SimDisk, kind: u8, content: journal::Content, seals: bool) {
    append(disk, kind, b"\x01\0\0\0k and what this version does not know", content, seals);
}

fn append(disk: &SimDisk, kind: u8, payload: &[u8], content: journal::Content, seals: bool) {
    let options = journal::Options { segment_size_bytes: 64 << 10, content, ..journal::Options::small() };
    let opened = journal::Journal::open(Arc::new(disk.clone()), clock(), Path::new(DIR), options);
    let (journal, mut driver) =
        opened.expect("good").start_manual(journal::Hooks::default()).expect("no fault");
    let parts: [&[u8]; 1] = [payload];
    let draft = journal::Draft::new(kind, Keyspace(1), &parts);
    let room = journal::footprint([draft.payload_len()]);
    let credits = journal.reserve(room, journal::Class::Write).expect("room");
    journal.append(credits, &[draft], &mut Vec::new());
    while driver.commit() + driver.prepare() > 0 {}
    if seals {
        journal.close();
        driver.seal();
    }
}

/// Records of an unknown kind vanished at recovery without a word: a newer version's data was lost as soon as an older binary
/// had opened the folder.
#[test]
fn record_of_an_unknown_kind_is_refused_with_its_address_and_nothing_is_changed() {
    for (kind, seals) in [(99, false), (99, true), (15, true), (99 | 0x80, false)] {
        let (disk, _) = filled();
        strange(&disk, kind, TOLERANT, seals);
        let disk = disk.process_death();
        let before = all_bytes(&disk);
        let error = opening_fails(&disk);
        assert!(error.contains(&format!("a record of kind {kind}, which this version")), "{error}");
        assert!(error.contains(".seg at offset "), "{error}");
        assert!(all_bytes(&disk) == before, "the folder was changed");
        let found = check(&disk, Path::new(DIR)).expect("a folder").journal.damage;
        assert!(found.iter().any(|damage| damage.what.contains(&format!("kind {kind}"))), "{found:?}");
    }
}

/// Two of the store's kinds, with payloads that no version wrote.
#[test]
fn payload_that_does_not_fit_its_kind_is_refused_with_its_address_and_nothing_is_changed() {
    for kind in [4, 5] {
        let (disk, _) = filled();
        strange(&disk, kind, TOLERANT, false);
        let disk = disk.process_death();
        let before = all_bytes(&disk);
        let error = opening_fails(&disk);
        assert!(error.contains(&format!("a record of kind {kind} whose payload does not fit")), "{error}");
        assert!(all_bytes(&disk) == before, "the folder was changed");
    }
}

/// Salvage copied what a server refuses to start on.
#[test]
fn record_that_does_not_fit_its_kind_is_counted_and_left_out_of_what_is_saved() {
    for kind in [4, 5, 7, 24, 99] {
        let (disk, newest) = filled();
        strange(&disk, kind, TOLERANT, true);
        let disk = disk.process_death();
        let report = salvaged(&disk.fork(), Path::new(OUT)).expect("saved");
        assert_eq!((report.strange, report.journal.records_lost), (1, 0), "kind {kind}");
        assert_eq!(saved(&disk, &newest, "strange"), Some(KEYS as usize), "kind {kind}");
    }
}

#[test]
fn folder_of_a_newer_store_is_refused_by_version_and_nothing_is_changed() {
    let (disk, _) = filled();
    let newer = journal::Content { version: 12, reader_version_min: 12, ..journal::Content::default() };
    strange(&disk, 1, newer, true);
    let disk = disk.process_death();
    let before = all_bytes(&disk);
    let clock: Arc<dyn Clock> = clock();
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let errors = [
        opening_fails(&disk),
        check(&disk, Path::new(DIR)).expect_err("refused").to_string(),
        salvage(&vfs, &clock, Path::new(DIR), Path::new(OUT)).expect_err("refused").to_string(),
    ];
    for error in errors {
        assert!(error.contains("MANIFEST was written by a newer version of evenkeel"), "{error}");
        assert!(error.contains("version 12"), "{error}");
    }
    assert!(all_bytes(&disk) == before, "the folder was changed");
}

/// A change of the expiry names the state whose value it leaves. Nobody read that: on any other state it changed the expiry all
/// the same.
#[test]
fn delta_of_another_state_is_found_wherever_it_meets_its_base() {
    let (disk, newest) = filled();
    let (key, damaged) = (1_u64, "belong to another state");
    let payload = [&8_u32.to_le_bytes()[..], &key.to_le_bytes(), &1_000_000_u64.to_le_bytes()].concat();
    append(&disk, 3, &payload, TOLERANT, true);
    let disk = disk.process_death();
    let store = open(&disk, DIR);
    let reads = |store: &Arc<Store>| {
        let name = key.to_le_bytes();
        let (keys, mut prepared) = ([KeyRef { db: 0, key: &name }], Prepared::default());
        while !store.missing(&keys, &mut prepared) {
            let (sender, receiver) = std::sync::mpsc::channel();
            store.fetch(prepared, Box::new(move |fetched| sender.send(fetched).expect("the test waits")));
            prepared = receiver.recv().expect("it is fetched at once");
        }
        let access = store.access(Scope::Keys(&keys), &prepared, 0).expect("no room is asked for");
        access.get(0, &name).map(|found| found.is_some())
    };
    let Err(Stop::Damaged(error)) = reads(&store) else { panic!("{:?}", reads(&store)) };
    assert!(error.to_string().contains(damaged), "{error}");
    assert_eq!(with(&store, 2, |access, name| Ok(access.get(0, name)?.is_some())), newest.contains_key(&2));
    store.checkpoint().expect("no fault");
    store.close();
    let disk = disk.process_death();
    let found = check(&disk, Path::new(DIR)).expect("a folder").journal.damage;
    assert!(found.iter().any(|damage| damage.what.contains(damaged)), "{found:?}");
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let time: Arc<dyn Clock> = clock();
    let saved = salvage(&vfs, &time, Path::new(DIR), Path::new(OUT)).expect("readable");
    assert_eq!(saved.broken_chains, 1);
    let store = open(&disk, DIR);
    with(&store, key, |access, name| {
        access.put(0, name, Value::String(b"new"), None);
        Ok(())
    });
    assert_eq!(reads(&store).ok(), Some(true), "what cannot be read can be replaced");
}

/// As they are from before the store had a version.
#[test]
fn folder_whose_manifest_states_no_version_of_the_records_opens() {
    let (disk, newest) = filled();
    strange(&disk, 1, journal::Content { reader_version_min: 0, ..TOLERANT }, true);
    let store = open(&disk.process_death(), DIR);
    assert_eq!(store.key_counts()[0].0, newest.len() as u64 + 1);
}

#[test]
fn good_folder_passes_with_the_keys_of_its_checkpoint() {
    let (disk, newest) = filled();
    let checked = check(&disk, Path::new(DIR)).expect("a folder");
    assert_eq!(checked.journal.damage, []);
    assert_eq!(checked.checkpoint_keys, Some(newest.len() as u64));
    assert!(checked.payload_bytes > 0);
}

#[test]
fn flipped_bit_anywhere_in_a_checkpoint_is_found() {
    let (disk, _) = filled();
    let (path, len) = checkpoint_file(&disk);
    for offset in (0..len).step_by(len as usize / 60) {
        let hurt = disk.fork();
        hurt.flip_bit(&path, offset, offset as u8 % 8).expect("it is there");
        let checked = check(&hurt, Path::new(DIR)).expect("a folder");
        let found = checked.journal.damage.iter().any(|damage| path.ends_with(&damage.file));
        assert!(found, "bit at {offset} of {len}: {:?}", checked.journal.damage);
        assert_eq!(checked.checkpoint_keys, None);
    }
}

#[test]
fn missing_or_older_checkpoint_is_found() {
    let (disk, _) = filled();
    let (path, _) = checkpoint_file(&disk);
    let gone = disk.fork();
    gone.remove(&path).expect("it is there");
    let checked = check(&gone, Path::new(DIR)).expect("a folder");
    assert_eq!(checked.journal.damage.len(), 1, "{:?}", checked.journal.damage);
    let store = open(&disk, DIR);
    let older = bytes(&disk, &path);
    with(&store, 1, |access, name| {
        access.put(0, name, Value::String(b"one more"), None);
        Ok(())
    });
    store.checkpoint().expect("no fault");
    store.close();
    let disk = disk.process_death();
    let (newer, _) = checkpoint_file(&disk);
    disk.remove(&newer).expect("it is there");
    let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    disk.open(&newer, options).and_then(|file| file.write_at(&older, 0)).expect("no fault");
    let checked = check(&disk, Path::new(DIR)).expect("a folder");
    let named = |what: &str| what.contains("the manifest replays from lsn");
    assert!(checked.journal.damage.iter().any(|damage| named(&damage.what)), "{:?}", checked.journal.damage);
}

fn bytes(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let file = disk.open(path, OpenOptions::default()).expect("it is there");
    let mut bytes = vec![0; file.len().expect("no fault") as usize];
    file.read_at(&mut bytes, 0).expect("no fault");
    bytes
}

/// Salvages `disk`; returns how many keys hold their newest value. None may hold what it never held.
fn saved(disk: &SimDisk, newest: &BTreeMap<u64, u64>, context: &str) -> Option<usize> {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let time: Arc<dyn Clock> = clock();
    salvage(&vfs, &time, Path::new(DIR), Path::new(OUT)).ok()?;
    let store = open(disk, OUT);
    let mut exact = 0;
    for key in 0..KEYS {
        let found = with(&store, key, |access, name| {
            let found = access.get(0, name)?;
            Ok(found.map(|found| found.value.to_vec()))
        });
        let version = found.as_ref().map(|bytes| (1..=7).find(|version| *bytes == value(key, *version)));
        assert_ne!(version, Some(None), "{context}: key {key} holds what it never held");
        exact += usize::from(version.flatten() == newest.get(&key).copied());
    }
    Some(exact)
}

/// Cleaning had moved two keys of three. Salvage kept the MOVED flag of the copies, without what they were copied from, and
/// a copy never creates: a start of the salvaged folder found none of these keys, of a folder without any damage.
#[test]
fn salvage_of_a_good_folder_is_that_folder() {
    let (disk, newest) = filled();
    assert_eq!(saved(&disk, &newest, "good"), Some(KEYS as usize));
}

/// A key with a string of 40,000 bytes and 30 parts behind it, each of a sync of its own, among other keys that come and go;
/// cleaned, if `cleans`, and with a checkpoint.
fn lengthened(cleans: bool) -> (SimDisk, Vec<u8>) {
    let (disk, mut string) = (SimDisk::new(4), vec![b'x'; 40_000]);
    let store = open(&disk, DIR);
    let put = |key, bytes: &[u8]| {
        with(&store, key, |access, name| {
            access.put(0, name, Value::String(bytes), None);
            Ok(())
        });
        while store.drive() {}
    };
    put(1, &string);
    for n in 0..30 {
        let from = string.len();
        string.extend(&value(1, n)[..200]);
        with(&store, 1, |access, name| {
            access.put_part(0, name, Value::String(&string), from..string.len(), None)
        });
        while store.drive() {}
        if cleans {
            (2..8).for_each(|key| put(key, &value(key, n)));
        }
    }
    if cleans {
        for _ in 0..500 {
            store.housekeep().expect("no fault");
            while store.drive() {}
        }
        store.close();
    }
    (disk.process_death(), string)
}

fn string(store: &Arc<Store>) -> Option<Vec<u8>> {
    with(store, 1, |access, name| Ok(access.get(0, name)?.map(|found| found.value.to_vec())))
}

/// Parts that cleaning had moved lie in another order than they were written in.
#[test]
fn salvage_keeps_all_parts_of_a_string_wherever_cleaning_has_moved_them() {
    let (disk, expected) = lengthened(true);
    let report = salvaged(&disk, Path::new(OUT)).expect("saved");
    assert_eq!((report.broken_chains, report.loose_deltas), (0, 0));
    assert!(string(&open(&disk, OUT)) == Some(expected.clone()), "all of it");
    let (checkpoint, _) = checkpoint_file(&disk);
    let hurt = disk_without(&disk, &checkpoint);
    salvaged(&hurt, Path::new("/again")).expect("saved");
    assert!(string(&open(&hurt, "/again")) == Some(expected), "without a checkpoint, too");
}

/// One part lost left nothing of the string, and the folder that was saved did not open.
#[test]
fn salvage_of_a_string_that_lost_a_part_gives_back_what_it_was_before() {
    let (disk, expected) = lengthened(false);
    let is_segment = |path: &PathBuf| path.extension().is_some_and(|end| end == "seg");
    let mut cut = 0;
    for path in disk.files().into_iter().map(|(path, _)| path).filter(is_segment) {
        for at in (4_200..16_000).step_by(900) {
            let hurt = disk.fork();
            // one wrong bit of a short record would be put right
            (0..5).for_each(|more| hurt.flip_bit(&path, at + 3 * more, 1).expect("it is there"));
            let report = salvaged(&hurt, Path::new(OUT)).expect("saved");
            // the whole string is lost where its base is
            let found = string(&open(&hurt, OUT)).unwrap_or_default();
            assert!(expected.starts_with(&found), "byte {at}: {report:?}");
            assert!(report.loose_deltas == 0 || (40_000..46_000).contains(&found.len()), "{report:?}");
            cut += u32::from(report.loose_deltas > 0);
        }
    }
    assert!(cut > 3, "{cut} parts were lost with others behind them");
}

#[test]
fn salvage_without_a_checkpoint_loses_no_key() {
    let (disk, newest) = filled();
    let (path, _) = checkpoint_file(&disk);
    disk.flip_bit(&path, 40, 3).expect("it is there");
    let exact = saved(&disk, &newest, "no checkpoint").expect("saved");
    let removed = KEYS as usize - newest.len();
    assert!(exact >= KEYS as usize - removed, "only removed keys may be back: {exact} of {KEYS}");
}

#[test]
fn salvage_of_a_hurt_folder_gives_back_only_what_was_written() {
    let (disk, newest) = filled();
    let segments = check(&disk, Path::new(DIR)).expect("a folder").journal.segments;
    let mut rng = Rng::new(11);
    for n in 0..12 {
        let hurt = disk.fork();
        let info = &segments[rng.index(segments.len())].info;
        let path = Path::new(DIR).join(info.file.file_name());
        let at_least = match n % 4 {
            0 => {
                hurt.flip_bit(&path, rng.below(4096), rng.below(8) as u8).expect("it is there");
                KEYS as usize // the header of a file decides nothing
            }
            1 => {
                let at = 4096 + rng.below(info.end_bytes - 4096);
                hurt.flip_bit(&path, at, rng.below(8) as u8).expect("it is there");
                KEYS as usize - 20 // a batch of copies has 16 KiB here, a record 0.7 at least
            }
            2 => {
                let (footer, end) = (info.end_bytes.next_multiple_of(4096), info.size_bytes);
                hurt.flip_bit(&path, footer + rng.below(end - footer), 1).expect("it is there");
                KEYS as usize
            }
            _ => {
                hurt.remove(&path).expect("it is there");
                0
            }
        };
        let context = format!("hurt {n}, segment {}", info.segment);
        let exact = saved(&hurt, &newest, &context).unwrap_or_else(|| panic!("{context}: nothing saved"));
        assert!(exact >= at_least, "{context}: {exact} keys of {at_least}");
    }
}

/// A damaged manifest left nothing to salvage from: it alone named the segments and the checkpoint. Both are in the folder.
#[test]
fn salvage_with_a_damaged_manifest_loses_no_key_and_says_what_it_assumed() {
    let (disk, newest) = filled();
    let manifest = Path::new(DIR).join(journal::MANIFEST_NAME);
    for offset in (0..64 * 12).step_by(7) {
        let hurt = disk.fork();
        hurt.flip_bit(&manifest, offset, 2).expect("it is there");
        let exact = saved(&hurt, &newest, "manifest");
        assert_eq!(exact, Some(KEYS as usize), "byte {offset}");
    }
    let gone = disk.fork();
    gone.remove(&manifest).expect("it is there");
    assert_eq!(saved(&gone, &newest, "no manifest"), Some(KEYS as usize));
    let report = salvaged(&disk_without(&disk, &manifest), Path::new("/again")).expect("saved");
    assert!(report.journal.assumed[0].starts_with("MANIFEST does not verify (it is missing)"), "{report:?}");
    assert_eq!((report.journal.missing.len(), report.without_checkpoint), (0, None), "all is there");
}

#[test]
fn salvage_with_neither_manifest_nor_checkpoint_says_that_removed_keys_may_be_back() {
    let (disk, newest) = filled();
    let (checkpoint, _) = checkpoint_file(&disk);
    let hurt = disk_without(&disk_without(&disk, &checkpoint), &Path::new(DIR).join(journal::MANIFEST_NAME));
    let report = salvaged(&hurt, Path::new("/again")).expect("saved");
    assert_eq!(report.without_checkpoint.as_deref(), Some("there is none"));
    let exact = saved(&hurt, &newest, "neither").expect("saved");
    assert!(exact >= newest.len(), "only removed keys may be back: {exact} of {}", newest.len());
}

/// Whatever else is hurt beside the manifest: only what was written comes back, and what is gone is said to be.
#[test]
fn salvage_without_a_manifest_gives_back_only_what_was_written() {
    let (disk, newest) = filled();
    let disk = disk_without(&disk, &Path::new(DIR).join(journal::MANIFEST_NAME));
    let mut rng = Rng::new(12);
    let segments: Vec<_> = disk
        .files()
        .into_iter()
        .filter(|(path, _)| path.extension().is_some_and(|end| end == "seg"))
        .collect();
    for n in 0..24 {
        let hurt = disk.fork();
        let (path, length) = &segments[rng.index(segments.len())];
        if n % 3 == 0 {
            hurt.remove(path).expect("it is there");
        } else {
            let reach = if n % 3 == 1 { 8_192 } else { *length };
            hurt.flip_bit(path, rng.below(reach), rng.below(8) as u8).expect("it is there");
        }
        saved(&hurt, &newest, &format!("hurt {n}: {}", path.display()));
    }
}

#[test]
fn folder_without_any_header_that_verifies_is_not_guessed_from() {
    let (disk, _) = filled();
    let hurt = disk_without(&disk, &Path::new(DIR).join(journal::MANIFEST_NAME));
    for (path, _) in hurt.files().into_iter().filter(|(path, _)| path.extension().is_some_and(|e| e == "seg"))
    {
        hurt.flip_bit(&path, 20, 1).expect("it is there");
    }
    let error = salvaged(&hurt, Path::new("/again")).expect_err("nobody knows whose files these are");
    assert!(error.contains("neither the manifest nor the header of any segment file verifies"), "{error}");
}

fn salvaged(disk: &SimDisk, out: &Path) -> Result<store::Salvaged, String> {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let time: Arc<dyn Clock> = clock();
    salvage(&vfs, &time, Path::new(DIR), out).map_err(|error| error.to_string())
}

fn disk_without(disk: &SimDisk, path: &Path) -> SimDisk {
    let disk = disk.fork();
    disk.remove(path).expect("it is there");
    disk
}
