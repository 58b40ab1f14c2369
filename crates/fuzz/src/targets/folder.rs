//! A whole journal folder, hurt: manifest and segments of a good one, changed as the input says.
//!
//! The input is a list of edits of [`EDIT_SIZE_BYTES`] each; its first byte chooses the folder (stopped cleanly, or
//! killed). Whatever was changed, a start, `check` and `salvage` answer with an error value or a report, and no record
//! that any of them hands out holds anything but what was appended under its seq.
//!
//! | at | size | field of an edit |
//! |---|---|---|
//! | 0 | 1 | which file, modulo their number |
//! | 1 | 1 | what to do, modulo 8: see [`edit`] |
//! | 2 | 4 | offset, modulo the file's length |
//! | 6 | 8 | operand |

use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use clock::{SimClock, UnixMs};
use journal::format::crc32c;
use journal::{
    Choice, Class, Content, Draft, Hooks, Journal, Keep, Keyspace, Lsn, Options, RecordView, SegmentState,
    Seq, check, footprint, salvage,
};
use vfs::{OpenOptions, SimDisk, Vfs};

const EDIT_SIZE_BYTES: usize = 14;
const DIR: &str = "/data";
const RECORDS: u64 = 160;

/// Bytes that mean something in an edit: what to do with which file, and numbers at the edges.
pub(super) const WORDS: &[&[u8]] = &[
    b"\0\x06",
    b"\x01\x02",
    b"\x02\x05",
    b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF",
    b"\0\0\0\0\0\0\0\x80",
    b"\0\x10\0\0",
];

/// What was appended under `seq`.
fn payload(seq: u64) -> Vec<u8> {
    seq.to_le_bytes().repeat(1 + (seq as usize * 37) % 150)
}

fn options() -> Options {
    Options {
        segment_size_bytes: 64 << 10,
        buffer_bytes_max: 256 << 10,
        transaction_bytes_max: 1 << 20,
        ..Options::small()
    }
}

fn clock() -> Arc<SimClock> {
    Arc::new(SimClock::new(UnixMs(1_795_000_000_000)))
}

/// A folder with an open segment, sealed ones, one with a footer, ready files and a recycled one.
fn folder(clean: bool) -> SimDisk {
    let disk = SimDisk::new(1);
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let recovery = Journal::open(vfs, clock(), Path::new(DIR), options()).expect("a new folder");
    let (journal, mut driver) = recovery.start_manual(Hooks::default()).expect("files open");
    for seq in 1..=RECORDS {
        let bytes = payload(seq);
        let parts: [&[u8]; 1] = [&bytes];
        let credits = journal.reserve(footprint([bytes.len() as u32]), Class::Write).expect("room");
        journal.append(credits, &[Draft::new(1, Keyspace(7), &parts)], &mut Vec::new());
        if seq % 3 == 0 {
            driver.commit();
        }
        if seq == RECORDS / 2 {
            let oldest = journal.segments()[0];
            journal.set_checkpoint("checkpoint", Lsn(oldest.last_lsn.0 + 1)).expect("no fault");
            journal.retire(oldest.segment).expect("it is sealed");
        }
        driver.prepare();
    }
    driver.commit();
    let sealed = journal.segments().into_iter().find(|info| info.state == SegmentState::Sealed);
    write_footer(&journal, sealed.expect("several segments").segment);
    if clean {
        journal.close();
        driver.seal();
    }
    disk.fork()
}

fn write_footer(journal: &Journal, segment: journal::SegmentId) {
    let mut entries = Vec::new();
    let mut scanner = journal.scanner(segment).expect("it is sealed");
    let mut note = |view: RecordView<'_>| entries.push(view.footer_entry(view.header.seq.0.into()));
    while scanner.slice(u64::MAX / 2, &mut note).expect("no damage") {}
    let mut footer = journal.footer(segment).expect("no fault").expect("a descriptor");
    footer.write(&entries).expect("a few records are one chunk");
    footer.finish().expect("no fault");
}

fn read(disk: &SimDisk, path: &Path) -> Vec<u8> {
    let Ok(file) = disk.open(path, OpenOptions::default()) else { return Vec::new() };
    let mut bytes = vec![0; file.len().expect("no fault") as usize];
    let read = file.read_at(&mut bytes, 0).expect("no fault");
    bytes.truncate(read);
    bytes
}

fn write(disk: &SimDisk, path: &Path, at: usize, bytes: &[u8]) {
    let options = OpenOptions { write: true, ..OpenOptions::default() };
    if let Ok(file) = disk.open(path, options) {
        file.write_at(bytes, at as u64).expect("no fault");
    }
}

/// Does one edit to one of `files`.
fn edit(disk: &SimDisk, files: &[PathBuf], edit: &[u8; EDIT_SIZE_BYTES]) {
    let number = |from: usize, to: usize| {
        edit[from..to].iter().rev().fold(0_usize, |number, byte| number << 8 | usize::from(*byte))
    };
    let path = &files[usize::from(edit[0]) % files.len()];
    let bytes = read(disk, path);
    if bytes.is_empty() {
        return;
    }
    let (at, operand) = (number(2, 6) % bytes.len(), number(6, 14));
    match edit[1] % 8 {
        0 => write(disk, path, at, &[bytes[at] ^ (1 << (operand % 8))]),
        1 => write(disk, path, at, &edit[6..14]),
        2 => write(disk, path, at, &vec![0; (operand % 8192).min(bytes.len() - at)]),
        3 => {
            let options = OpenOptions { write: true, ..OpenOptions::default() };
            let file = disk.open(path, options).expect("it was just read");
            file.set_len(at as u64).expect("no fault");
        }
        4 => disk.remove(path).expect("it was just read"),
        5 => {
            // a block that went to the wrong place, or to the wrong file
            let other = read(disk, &files[operand % files.len()]);
            let from = operand / files.len() / 4096 * 4096;
            if let Some(block) = other.get(from..(from + 4096).min(other.len())) {
                write(disk, path, at / 4096 * 4096, block);
            }
        }
        6 => reseal(disk, &bytes, at, &edit[6..14]),
        _ => {
            let to = &files[operand % files.len()];
            disk.rename(path, to).expect("it was just read");
        }
    }
}

/// Overwrites a field of the manifest's entry around `at`, and puts its checksum right: a lie that verifies.
fn reseal(disk: &SimDisk, manifest: &[u8], at: usize, operand: &[u8]) {
    let path = Path::new(DIR).join(journal::MANIFEST_NAME);
    let used = manifest.chunks_exact(64).take_while(|entry| entry.iter().any(|byte| *byte != 0)).count();
    let Some(entry) = manifest.chunks_exact(64).nth((at / 64).checked_rem(used).unwrap_or(0)) else { return };
    let mut entry = entry.to_vec();
    let field = 16 + at % 10 * 4;
    let len = if operand[7] == 0 { 4 } else { 8 }.min(entry.len() - field);
    entry[field..field + len].copy_from_slice(&operand[..len]);
    let crc = crc32c(&entry[4..]);
    entry[..4].copy_from_slice(&crc.to_le_bytes());
    write(disk, &path, (at / 64).checked_rem(used).unwrap_or(0) * 64, &entry);
}

/// What a start, a check and a salvage make of the folder that `input` describes.
pub(super) fn run(input: &[u8]) {
    static FOLDERS: OnceLock<[SimDisk; 2]> = OnceLock::new();
    let folders = FOLDERS.get_or_init(|| [folder(true), folder(false)]);
    let (first, edits) = input.split_first().unwrap_or((&0, &[]));
    let disk = folders[usize::from(*first) % 2].fork();
    let mut files: Vec<PathBuf> = disk.files().into_iter().map(|(path, _)| path).collect();
    files.sort_by_key(|path| !path.ends_with(journal::MANIFEST_NAME));
    for bytes in edits.as_chunks::<EDIT_SIZE_BYTES>().0 {
        edit(&disk, &files, bytes);
    }
    let whole = edits.len() < EDIT_SIZE_BYTES;
    let checked = checks(&disk.fork());
    assert!(checked || !whole, "a folder that nobody hurt is not damaged");
    salvages(&disk.fork());
    starts(&disk, whole);
}

fn right(view: &RecordView<'_>) {
    assert_eq!(view.payload, payload(view.header.seq.0), "seq {} holds something else", view.header.seq.0);
}

fn checks(disk: &SimDisk) -> bool {
    check(disk, Path::new(DIR), &Content::default(), &mut |view| right(&view))
        .is_ok_and(|report| report.damage.is_empty())
}

fn salvages(disk: &SimDisk) {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let clock: Arc<dyn clock::Clock> = clock();
    let out = Path::new("/out");
    let choice = Choice { wanted: &mut |_| Keep::AsItIs, mends: |_| true };
    if salvage(&vfs, &clock, Path::new(DIR), out, &options(), choice).is_err() {
        return;
    }
    let saved =
        check(disk, out, &Content::default(), &mut |view| right(&view)).expect("what was saved is a folder");
    assert_eq!(saved.damage, [], "what was saved is good");
}

fn starts(disk: &SimDisk, whole: bool) {
    let vfs: Arc<dyn Vfs> = Arc::new(disk.clone());
    let Ok(recovery) = Journal::open(vfs, clock(), Path::new(DIR), options()) else {
        assert!(!whole, "a folder that nobody hurt starts");
        return;
    };
    let mut found = 0;
    for info in recovery.segments() {
        // damage ends the walk
        let _ = recovery.scan(info.segment, Lsn(0), &mut |view| {
            right(&view);
            found += 1;
        });
        for entry in recovery.read_footer(info.segment).ok().flatten().unwrap_or_default() {
            let mut bytes = Vec::new();
            if let Ok(header) = recovery.read(entry.address, entry.payload_len as usize, &mut bytes) {
                assert_eq!(bytes, payload(header.seq.0));
            }
        }
    }
    assert!(!whole || found > RECORDS / 2, "{found} records");
    let next = recovery.next_seq();
    let Ok((journal, mut driver)) = recovery.start_manual(Hooks::default()) else { return };
    goes_on(&journal, &mut driver, next);
}

/// A journal that started takes records, whatever it found.
fn goes_on(journal: &Journal, driver: &mut journal::Driver, next: Seq) {
    // A manifest that lies may name the last number there is.
    if next.0 > u64::MAX / 2 || journal.next_lsn().0 > u64::MAX / 2 {
        return;
    }
    driver.prepare();
    let bytes = payload(7);
    let parts: [&[u8]; 1] = [&bytes];
    if let Ok(credits) = journal.reserve(footprint([bytes.len() as u32]), Class::Write) {
        journal.append(credits, &[Draft::new(1, Keyspace(7), &parts)], &mut Vec::new());
        driver.commit();
        assert!(journal.has_failed() || journal.durable_seq() >= next);
    }
}

/// The good folders, and one edit of each kind.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = vec![vec![0], vec![1]];
    for what in 0..8_u8 {
        for (file, offset) in [(0, 320_u32), (1, 4_160), (3, 9_000)] {
            let mut input = vec![what % 2, file, what];
            input.extend_from_slice(&offset.to_le_bytes());
            input.extend_from_slice(&u64::from(what).to_le_bytes());
            seeds.push(input);
        }
    }
    seeds
}
