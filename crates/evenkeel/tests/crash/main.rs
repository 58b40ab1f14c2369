//! Durability of the shipped binary, seen by fifty clients over the network.
//!
//! Each cycle: load, a death at a random moment, a restart on the same folder, a comparison of every key
//! with what was acknowledged and read. Deaths are kill -9 and the loss of power under ext4.
//!
//! `EVENKEEL_CRASH_CYCLES` sets the cycles (20), `EVENKEEL_CRASH_SEED` the seed, which is always printed:
//! it fixes what the clients send, not how the machine interleaves them. `EVENKEEL_CRASH_SEGMENT_BYTES` sets the size of
//! segments (1 MiB): smaller ones roll, and are recycled, more often.
//!
//! Tests that find nothing show nothing, so planted faults run through the same cycles: a kernel that
//! answers fdatasync without doing it must be found by the loss of power, and a server without a log by
//! kill -9. redis-server with `appendfsync always` shows that a durable server passes.
#![allow(missing_docs, clippy::unwrap_used, clippy::missing_panics_doc, unreachable_pub, reason = "tests")]

mod client;
mod collections;
mod disk;
mod evidence;
mod fields;
mod fleet;
mod history;
mod load;
mod long;
mod power;
#[path = "../common/seccomp.rs"]
mod seccomp;
mod server;
mod streams;
mod tokens;

use std::path::Path;

use clock::{Clock, SystemClock};
use evidence::Evidence;
use fleet::{Fleet, Tally, announce_cut};
use power::LoopDisk;
use server::{Program, Server, log_path};

/// Room for the journal's segments and their spares.
const DISK_SIZE_BYTES: u64 = 1 << 30;
/// Name in INFO of the segments that were begun before their file was filled with zeroes.
const FALLBACKS: &str = "journal_fallocated_fallbacks";
/// Name in INFO of the keys that were evicted.
const EVICTED: &str = "evicted_keys";
/// About half of what the clients write, with room for the log to be cleaned in: keys are evicted all the time.
const EVICTING_DISK_LIMIT: &str = "--store-disk-limit=512KiB";
/// Cycles within which a planted fault must show.
const PLANTED_CYCLES_MAX: u64 = 5;

#[test]
fn kill_nine_under_load_takes_nothing_back() {
    survive("kill -9", cycles() * 3 / 4, |series| kill_cycles(&evenkeel(&[]), series));
}

/// Keys vanish, and stay away once somebody saw it; what is there is never older than what was acknowledged.
#[test]
fn deaths_under_load_bring_no_evicted_key_back() {
    let cycles = cycles() / 4;
    let evicting = |policy| evenkeel(&["--memory-policy", policy, EVICTING_DISK_LIMIT]);
    let lru = survive("kill -9, allkeys-lru", cycles, |series| kill_cycles(&evicting("allkeys-lru"), series));
    let lfu =
        survive("power, allkeys-lfu", cycles, |series| power_cycles(&evicting("allkeys-lfu"), false, series));
    for tally in [lru, lfu] {
        assert!(tally.evicted > 100 * cycles, "too few evictions to show anything: {tally:?}");
    }
}

#[test]
fn power_loss_under_load_takes_nothing_back_with_the_buffered_backend() {
    survive("power, buffered", cycles() * 3 / 4, |series| power_cycles(&backend("buffered"), false, series));
}

#[test]
fn power_loss_under_load_takes_nothing_back_with_the_direct_backend() {
    survive("power, direct", cycles(), |series| power_cycles(&backend("direct"), false, series));
}

#[test]
fn power_loss_under_load_takes_nothing_back_with_the_uring_backend() {
    let program = backend("uring");
    let folder = tempfile::tempdir().expect("a temporary folder");
    let server = Server::start(&program, &folder.path().join("data"), &log_path(folder.path()), false);
    let runs = server.info_text("journal_backend");
    assert_eq!(runs.as_deref(), Some("uring"), "io_uring must be allowed on a machine that tests it");
    drop(server);
    survive("power, uring", cycles(), |series| power_cycles(&program, false, series));
}

#[test]
fn planted_syncs_that_do_nothing_are_found_by_a_power_loss() {
    must_find(|series| power_cycles(&backend("buffered"), true, series));
}

#[test]
fn full_disk_refuses_writes_serves_reads_and_can_be_emptied() {
    disk::full_disk(&evenkeel(&[]));
}

#[test]
fn disk_without_room_for_a_write_is_named_and_no_server_starts() {
    disk::small_disk();
}

#[test]
fn failing_disk_ends_the_server_with_an_error_and_loses_nothing() {
    for name in ["buffered", "direct", "uring"] {
        disk::failing_disk(&backend(name), seed());
    }
}

#[test]
fn redis_that_syncs_always_passes_and_without_its_log_is_found() {
    let redis = |append_only| Program::Redis { append_only };
    survive("redis, kill -9", 2, |series| kill_cycles(&redis(true), series));
    survive("redis, power", 2, |series| power_cycles(&redis(true), false, series));
    must_find(|series| kill_cycles(&redis(false), series));
    must_find(|series| power_cycles(&redis(true), true, series));
}

/// What a series of cycles is about.
struct Series<'a> {
    what: &'a str,
    seed: u64,
    cycles: u64,
    /// A failure is a surprise: what it leaves is kept.
    keeps_evidence: bool,
}

/// kill -9 at a random moment, over one folder.
fn kill_cycles(program: &Program, series: &Series<'_>) -> Result<Tally, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (data, log) = (folder.path().join("data"), log_path(folder.path()));
    let evidence = Evidence::new(series, folder.path());
    make_folder(&data);
    let mut fleet = Fleet::new(series.seed, program.evicts());
    let mut total = Tally::default();
    let mut server = Server::start(program, &data, &log, false);
    for cycle in 0..series.cycles {
        let duration = fleet.random_moment();
        let (mut fallbacks, mut evicted) = (0, 0);
        let tally = fleet.round(server.port, duration, |_| {
            fallbacks = server.info(FALLBACKS).unwrap_or(0);
            evicted = server.info(EVICTED).unwrap_or(0);
            server.kill();
        });
        evidence.note(&data);
        total.add(&tally.map_err(|what| evidence.keep(cycle, &what, &data, &log))?);
        total.fallocated_fallbacks += fallbacks;
        total.evicted += evicted;
        server = Server::start(program, &data, &log, false);
        if let Err(what) = fleet.verify(server.port) {
            server.kill();
            return Err(evidence.keep(cycle, &what, &data, &log));
        }
    }
    Ok(total)
}

/// Loss of power at a random moment, over one file system.
fn power_cycles(program: &Program, lying_syncs: bool, series: &Series<'_>) -> Result<Tally, String> {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let (mut disk, log) = (LoopDisk::new(folder.path(), DISK_SIZE_BYTES), log_path(folder.path()));
    let evidence = Evidence::new(series, folder.path());
    let data = disk.path().join("data");
    make_folder(&data);
    run_sync(disk.path());
    let mut fleet = Fleet::new(series.seed, program.evicts());
    let mut total = Tally::default();
    let mut server = Server::start(program, &data, &log, lying_syncs);
    for cycle in 0..series.cycles {
        let duration = fleet.random_moment();
        let (mut fallbacks, mut evicted) = (0, 0);
        let tally = fleet.round(server.port, duration, |shared| {
            fallbacks = server.info(FALLBACKS).unwrap_or(0);
            evicted = server.info(EVICTED).unwrap_or(0);
            announce_cut(shared);
            disk.cut();
            server.kill();
        });
        disk.restore();
        evidence.note(&data);
        total.add(&tally.map_err(|what| evidence.keep(cycle, &what, &data, &log))?);
        total.fallocated_fallbacks += fallbacks;
        total.evicted += evicted;
        server = Server::start(program, &data, &log, lying_syncs);
        if let Err(what) = fleet.verify(server.port) {
            server.kill();
            return Err(evidence.keep(cycle, &what, &data, &log));
        }
    }
    drop(server); // before its disk
    Ok(total)
}

fn survive(what: &str, cycles: u64, run: impl FnOnce(&Series<'_>) -> Result<Tally, String>) -> Tally {
    let seed = seed();
    println!("{what}: seed {seed}, {cycles} cycles");
    let series = Series { what, seed, cycles, keeps_evidence: true };
    let tally = run(&series).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    println!("{what}: {tally:?}");
    assert!(tally.acknowledged > 100 * cycles, "too little load to show anything: {tally:?}");
    assert!(tally.observed > 100 * cycles, "too few reads to show anything: {tally:?}");
    tally
}

fn must_find(run: impl FnOnce(&Series<'_>) -> Result<Tally, String>) {
    let series = Series { what: "planted", seed: seed(), cycles: PLANTED_CYCLES_MAX, keeps_evidence: false };
    match run(&series) {
        Err(what) => println!("found, as it must: {}", what.lines().take(2).collect::<Vec<_>>().join(" ")),
        Ok(tally) => panic!("a planted fault survived {PLANTED_CYCLES_MAX} cycles unseen: {tally:?}"),
    }
}

/// The shipped binary with small segments, so that a cycle seals, cleans and recycles some.
fn evenkeel(arguments: &[&str]) -> Program {
    let size_bytes = number("EVENKEEL_CRASH_SEGMENT_BYTES").unwrap_or(1 << 20).to_string();
    let small = ["--journal-segment-size", size_bytes.as_str(), "--store-leaf-size", "256"];
    Program::Evenkeel(small.iter().chain(arguments).map(|&argument| argument.to_owned()).collect())
}

fn backend(name: &str) -> Program {
    evenkeel(&["--journal-backend", name])
}

fn make_folder(path: &Path) {
    std::fs::create_dir_all(path).expect("the data folder is made");
}

/// The empty folder itself must outlive the first power loss: redis-server does not make its own.
fn run_sync(mount_point: &Path) {
    vfs::Vfs::sync_dir(&vfs::RealDisk, mount_point).expect("the fresh file system syncs");
}

fn cycles() -> u64 {
    number("EVENKEEL_CRASH_CYCLES").unwrap_or(20)
}

fn seed() -> u64 {
    number("EVENKEEL_CRASH_SEED").unwrap_or_else(|| SystemClock.unix_us())
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable} is a number, not {text:?}")))
}
