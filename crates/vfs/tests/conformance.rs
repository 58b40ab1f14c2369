//! One suite, two disks: whatever the production code may rely on must hold on both.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::io::ErrorKind;
use std::path::Path;

use vfs::{AlignedBuffer, BLOCK_SIZE_BYTES, OpenOptions, RealDisk, SimDisk, Vfs};

const CREATE: OpenOptions = OpenOptions { write: true, create_new: true, direct: false, dsync: false };
const WRITE: OpenOptions = OpenOptions { create_new: false, ..CREATE };
const READ: OpenOptions = OpenOptions { write: false, ..WRITE };

fn on_both(test: fn(&dyn Vfs, &Path)) {
    // Not in /tmp: a tmpfs there may refuse O_DIRECT, and then nothing would be tested.
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    test(&RealDisk, folder.path());
    let (disk, root) = (SimDisk::new(1), Path::new("/sim"));
    disk.create_dir_all(root).unwrap();
    test(&disk, root);
}

fn create(disk: &dyn Vfs, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, CREATE).unwrap();
    assert_eq!(file.write_at(bytes, 0).unwrap(), bytes.len());
}

fn contents(disk: &dyn Vfs, path: &Path) -> Vec<u8> {
    let file = disk.open(path, READ).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

fn kind<T: std::fmt::Debug>(result: std::io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn written_bytes_are_read_back_and_gaps_are_zeroes() {
    on_both(|disk, root| {
        let file = disk.open(&root.join("a"), CREATE).unwrap();
        assert!(file.is_empty().unwrap());
        assert_eq!(file.write_at(b"tail", 10_000).unwrap(), 4);
        assert_eq!(file.len().unwrap(), 10_004);
        let mut bytes = [7; 8];
        assert_eq!(file.read_at(&mut bytes, 9_998).unwrap(), 6);
        assert_eq!(&bytes, b"\0\0tail\x07\x07");
        assert_eq!(file.read_at(&mut bytes, 10_004).unwrap(), 0);
        file.sync_data().unwrap();
        disk.sync_dir(root).unwrap();
    });
}

#[test]
fn file_cut_and_grown_again_holds_zeroes() {
    on_both(|disk, root| {
        let path = root.join("a");
        create(disk, &path, &[1; 9_000]);
        let file = disk.open(&path, WRITE).unwrap();
        file.set_len(5_000).unwrap();
        file.set_len(9_000).unwrap();
        let bytes = contents(disk, &path);
        assert!(bytes[..5_000].iter().all(|&byte| byte == 1) && bytes[5_000..].iter().all(|&byte| byte == 0));
    });
}

#[test]
fn punched_range_reads_as_zeroes_and_the_length_stays() {
    on_both(|disk, root| {
        let path = root.join("a");
        create(disk, &path, &[1; 5 * BLOCK_SIZE_BYTES]);
        let file = disk.open(&path, WRITE).unwrap();
        match file.punch(BLOCK_SIZE_BYTES as u64, 2 * BLOCK_SIZE_BYTES as u64) {
            Err(error) if error.kind() == ErrorKind::Unsupported => return,
            punched => punched.unwrap(),
        }
        let bytes = contents(disk, &path);
        assert_eq!(bytes.len(), 5 * BLOCK_SIZE_BYTES);
        let expected = |at: usize| u8::from(!(1..3).contains(&(at / BLOCK_SIZE_BYTES)));
        assert!(bytes.iter().enumerate().all(|(at, &byte)| byte == expected(at)));
        assert_eq!(file.write_at(&[2; 10], 2 * BLOCK_SIZE_BYTES as u64).unwrap(), 10);
        assert_eq!(contents(disk, &path)[2 * BLOCK_SIZE_BYTES], 2);
    });
}

#[test]
fn allocation_extends_the_file_and_keeps_its_bytes() {
    on_both(|disk, root| {
        let path = root.join("a");
        create(disk, &path, b"kept");
        let file = disk.open(&path, WRITE).unwrap();
        file.allocate(0, 8_192).unwrap();
        assert_eq!(file.len().unwrap(), 8_192);
        assert_eq!(&contents(disk, &path)[..6], b"kept\0\0");
        file.drop_cache(0, 8_192).unwrap();
        assert_eq!(&contents(disk, &path)[..6], b"kept\0\0");
        assert_eq!(kind(file.allocate(0, 0)), ErrorKind::InvalidInput);
    });
}

#[test]
fn direct_synchronous_write_is_read_back() {
    on_both(|disk, root| {
        let path = root.join("a");
        let file = disk.open(&path, OpenOptions { direct: true, dsync: true, ..CREATE }).unwrap();
        let mut buffer = AlignedBuffer::zeroed(2 * BLOCK_SIZE_BYTES);
        buffer.fill(9);
        assert_eq!(file.write_at(&buffer, 4_096).unwrap(), 8_192);
        buffer.fill(0);
        assert_eq!(file.read_at(&mut buffer, 8_192).unwrap(), 4_096);
        assert_eq!((buffer[4_095], buffer[4_096]), (9, 0));
        assert_eq!(contents(disk, &path)[4_095..4_097], [0, 9]);
    });
}

#[test]
fn missing_and_existing_names_are_told_apart() {
    on_both(|disk, root| {
        let (here, gone) = (root.join("here"), root.join("gone"));
        create(disk, &here, b"x");
        assert_eq!(kind(disk.open(&here, CREATE)), ErrorKind::AlreadyExists);
        assert_eq!(kind(disk.open(&gone, READ)), ErrorKind::NotFound);
        assert_eq!(kind(disk.remove(&gone)), ErrorKind::NotFound);
        assert_eq!(kind(disk.rename(&gone, &here)), ErrorKind::NotFound);
        assert_eq!(kind(disk.link_count(&gone)), ErrorKind::NotFound);
        assert_eq!(kind(disk.list(&gone)), ErrorKind::NotFound);
        assert_eq!(kind(disk.sync_dir(&gone)), ErrorKind::NotFound);
        assert_eq!(kind(disk.open(&gone.join("child"), CREATE)), ErrorKind::NotFound);
        assert_eq!(kind(disk.open(&here, READ).unwrap().write_at(b"y", 0)), kind_of_ebadf());
    });
}

fn kind_of_ebadf() -> ErrorKind {
    std::io::Error::from_raw_os_error(libc::EBADF).kind()
}

#[test]
fn rename_replaces_its_target_and_open_handles_keep_the_old_file() {
    on_both(|disk, root| {
        let (from, to) = (root.join("new.tmp"), root.join("file"));
        create(disk, &from, b"new");
        create(disk, &to, b"old");
        let old = disk.open(&to, READ).unwrap();
        disk.rename(&from, &to).unwrap();
        disk.sync_dir(root).unwrap();
        assert_eq!(disk.list(root).unwrap(), ["file"]);
        assert_eq!(contents(disk, &to), b"new");
        let mut bytes = [0; 3];
        assert_eq!((old.read_at(&mut bytes, 0).unwrap(), &bytes), (3, b"old"));
    });
}

#[test]
fn hard_link_shares_bytes_and_is_counted() {
    on_both(|disk, root| {
        let (first, second) = (root.join("first"), root.join("second"));
        create(disk, &first, b"abc");
        disk.hard_link(&first, &second).unwrap();
        assert_eq!(kind(disk.hard_link(&first, &second)), ErrorKind::AlreadyExists);
        assert_eq!(disk.link_count(&second).unwrap(), 2);
        disk.rename(&first, &second).unwrap(); // the same file twice: nothing happens
        assert_eq!(disk.list(root).unwrap(), ["first", "second"]);
        disk.open(&first, WRITE).unwrap().write_at(b"X", 1).unwrap();
        assert_eq!(contents(disk, &second), b"aXc");
        disk.remove(&first).unwrap();
        assert_eq!(disk.link_count(&second).unwrap(), 1);
        assert_eq!(contents(disk, &second), b"aXc");
    });
}

#[test]
fn rename_into_another_folder_moves_the_file() {
    on_both(|disk, root| {
        let other = root.join("x/y");
        disk.create_dir_all(&other).unwrap();
        disk.create_dir_all(&other).unwrap();
        create(disk, &root.join("a"), b"moved");
        disk.rename(&root.join("a"), &other.join("b")).unwrap();
        assert_eq!(disk.list(root).unwrap(), Vec::<String>::new());
        assert_eq!(contents(disk, &other.join("b")), b"moved");
    });
}

#[test]
fn lock_excludes_a_second_one_until_it_is_dropped() {
    on_both(|disk, root| {
        let path = root.join("LOCK");
        let held = disk.lock(&path).unwrap();
        assert_eq!(kind(disk.lock(&path)), ErrorKind::WouldBlock);
        drop(held);
        drop(disk.lock(&path).unwrap());
        assert_eq!(disk.list(root).unwrap(), ["LOCK"]);
    });
}

#[test]
fn space_is_reported() {
    on_both(|disk, root| {
        let space = disk.space(root).unwrap();
        assert!(space.available_bytes > 0 && space.total_bytes >= space.available_bytes);
    });
}
