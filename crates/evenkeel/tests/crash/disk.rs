//! A disk that fills up, and one that fails, under the shipped binary.

use std::process::Command;
use std::time::Duration;

use clock::{Clock, SystemClock};
use resp::Value;
use vfs::sim::Rng;

use crate::client::Client;
use crate::fleet::Fleet;
use crate::power::LoopDisk;
use crate::server::{Program, Server, log_path, tail};

/// Values are large, so that the disk is full after a few thousand.
const VALUE_SIZE_BYTES: usize = 64 << 10;
const DISK_SIZE_BYTES: u64 = 256 << 20;
/// Too little for a segment, the reserve of removals, and a checkpoint.
const SMALL_DISK_SIZE_BYTES: u64 = 40 << 20;
const KEYS_MAX: u64 = 2 * DISK_SIZE_BYTES / VALUE_SIZE_BYTES as u64;
/// Cleaning must have freed space within this.
const CLEANING_TIME_MAX: Duration = Duration::from_secs(30);
/// A server whose disk fails must have ended within this.
const END_TIME_MAX: Duration = Duration::from_secs(20);

/// Fills the disk, empties a part of it, fills it again, and starts once more.
pub fn full_disk(program: &Program) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (disk, log) = (LoopDisk::new(folder.path(), DISK_SIZE_BYTES), log_path(folder.path()));
    let data = disk.path().join("data");
    let mut server = Server::start(program, &data, &log, false);
    let mut client = Client::connect(server.port).unwrap();
    let (stored, refusal) = fill(&mut client);
    println!("full after {stored} values: {refusal}");
    let names_the_cause = ["disk", "space"].iter().any(|word| refusal.to_lowercase().contains(word));
    assert!(names_the_cause, "a refusal names what is missing: {refusal}");
    assert_eq!(client.call(&["PING"]).unwrap(), Value::Simple(b"PONG".to_vec()));
    (0..stored).for_each(|number| assert_stored(&mut client, number));
    let removed = stored / 2;
    for number in 0..removed {
        assert_eq!(client.call(&["DEL", &key(number)]).unwrap(), Value::Integer(1), "DEL passes when full");
    }
    await_space(&mut client, removed);
    server.kill();
    let server = Server::start(program, &data, &log, false);
    let mut client = Client::connect(server.port).unwrap();
    for number in 1..removed {
        assert_eq!(client.call(&["GET", &key(number)]).unwrap(), Value::Null, "deleted values stay deleted");
    }
    (removed..stored).chain([0]).for_each(|number| assert_stored(&mut client, number));
}

/// A fresh folder on a disk without room for a single write: one line that says what is missing, and an error.
pub fn small_disk() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let disk = LoopDisk::new(folder.path(), SMALL_DISK_SIZE_BYTES);
    let started = Command::new(env!("CARGO_BIN_EXE_evenkeel"))
        .args(["serve", "--port=0", "--unixsocket"])
        .arg(folder.path().join("socket"))
        .arg("--dir")
        .arg(disk.path().join("data"))
        .output()
        .expect("the binary runs");
    let text = String::from_utf8_lossy(&started.stderr);
    assert_eq!((started.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    let tells = ["disk full", "needed", "available", "journal.segment_size"];
    assert!(tells.iter().all(|word| text.contains(word)), "{text}");
}

/// The disk fails under load: the server must end by itself, with an error, and lose nothing.
pub fn failing_disk(program: &Program, seed: u64) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut disk, log) = (LoopDisk::new(folder.path(), DISK_SIZE_BYTES), log_path(folder.path()));
    let data = disk.path().join("data");
    let mut fleet = Fleet::new(seed, false);
    let mut server = Server::start(program, &data, &log, false);
    let duration = fleet.random_moment();
    let mut status = None;
    let tally = fleet.round(server.port, duration, |shared| {
        crate::announce_cut(shared);
        disk.cut();
        status = server.await_end(END_TIME_MAX);
        server.kill(); // so that the clients end, whatever the server did
    });
    tally.unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    let status = status.unwrap_or_else(|| panic!("the server lives on a dead disk:\n{}", tail(&log)));
    assert!(!status.success(), "a server whose disk failed ends with an error, not with {status}");
    disk.restore();
    let server = Server::start(program, &data, &log, false);
    fleet.verify(server.port).unwrap_or_else(|what| panic!("seed {seed}: {what}\n{}", tail(&log)));
    drop(server); // before its disk
}

/// Writes values until one is refused; returns how many were stored, and the refusal.
fn fill(client: &mut Client) -> (u64, String) {
    for number in 0..KEYS_MAX {
        match set(client, number) {
            Value::Simple(_) => {}
            Value::Error(text) => return (number, String::from_utf8_lossy(&text).into_owned()),
            other => panic!("SET: {other:?}"),
        }
    }
    panic!("{KEYS_MAX} values fit on a disk for half of them");
}

/// Waits until a write passes again: `removed` values were deleted.
fn await_space(client: &mut Client, removed: u64) {
    let start = SystemClock.now();
    loop {
        match set(client, 0) {
            Value::Simple(_) => return,
            other => assert!(
                SystemClock.now() - start < CLEANING_TIME_MAX,
                "{removed} values were deleted and still: {other:?}"
            ),
        }
    }
}

fn set(client: &mut Client, number: u64) -> Value {
    client
        .call(&[b"SET", key(number).as_bytes(), &value(number)])
        .expect("the server answers when its disk is full")
}

fn assert_stored(client: &mut Client, number: u64) {
    let found = client.call(&["GET", &key(number)]).expect("the server answers");
    assert!(found == Value::Bulk(value(number)), "{} holds something else", key(number));
}

fn key(number: u64) -> String {
    format!("large:{number}")
}

/// Bytes that follow from the number and do not compress.
fn value(number: u64) -> Vec<u8> {
    let mut rng = Rng::new(number);
    (0..VALUE_SIZE_BYTES / 8).flat_map(|_| rng.bits().to_le_bytes()).collect()
}
