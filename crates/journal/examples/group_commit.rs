//! Measures the journal alone against plain loops of the same I/O, alternating on one machine.
//!
//! 1. 400 closed-loop writers of 512-byte records (two loops of 200, as a server has them) / a loop that writes the same
//!    batch sizes to a prewritten file and calls fdatasync. Target: at least 0.8 of its records a second.
//! 2. One writer alone, 512 bytes: p50 of append to durable / p50 of a raw write + fdatasync. Target: at most 1.25.
//!
//! `cargo run --release -p journal --example group_commit -- [DIR] [buffered|direct|uring] [ROUNDS]`
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement that cannot go on panics")]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::Thread;
use std::time::{Duration, Instant};

use clock::SystemClock;
use journal::{BackendKind, Class, Counters, Draft, Hooks, Journal, Keyspace, Options, footprint};
use vfs::{File, OpenOptions, RealDisk, Vfs};

const PAYLOAD: [u8; 512] = [7; 512];
/// The same record with its headers.
const RAW: [u8; 512 + 48 + 64] = [7; 512 + 48 + 64];
const LOOPS: usize = 2;
const WRITERS_PER_LOOP: usize = 200;
const RUN: Duration = Duration::from_millis(1_500);

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "target/group-commit".into()));
    let backend = match args.next().as_deref() {
        Some("direct") => BackendKind::Direct,
        Some("uring") => BackendKind::Uring,
        _ => BackendKind::Buffered,
    };
    let rounds: usize = args.next().and_then(|text| text.parse().ok()).unwrap_or(5);
    let (mut many, mut one) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let (records, counters) = many_writers(&dir, backend);
        let batch = counters.bytes_written / counters.batches;
        let plain = plain_rate(&dir, batch) * counters.records as f64 / counters.batches as f64;
        many.push(records / plain);
        let (alone, raw) = alone_and_raw(&dir, backend);
        one.push(alone / raw);
        println!(
            "round {round}: journal {records:.0} records/s, plain loop {plain:.0} ({:.2}), {:.0} records a sync; \
             one writer p50 {alone:.1} us, raw {raw:.1} us ({:.2})",
            records / plain,
            counters.records as f64 / counters.syncs as f64,
            alone / raw
        );
    }
    println!(
        "{backend}: 400 writers / plain loop, median of {rounds}: {:.2} (at least 0.80)",
        median(&mut many)
    );
    println!(
        "{backend}: one writer / raw write + sync, median of {rounds}: {:.2} (at most 1.25)",
        median(&mut one)
    );
    std::fs::remove_dir_all(&dir).unwrap();
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Starts a journal on an empty folder; its hook unparks `sleepers`.
fn start(dir: &Path, backend: BackendKind, sleepers: &Arc<Mutex<Vec<Thread>>>) -> Arc<Journal> {
    let _ = std::fs::remove_dir_all(dir);
    let options = Options { backend, segment_size_bytes: 256 << 20, ..Options::default() };
    let recovery = Journal::open(Arc::new(RealDisk), Arc::new(SystemClock), dir, options).unwrap();
    let sleepers = Arc::clone(sleepers);
    let wake = move || sleepers.lock().unwrap().iter().for_each(Thread::unpark);
    let on_credits = wake.clone();
    let hooks =
        Hooks { on_advance: Box::new(move |_| wake()), on_credits: Box::new(on_credits), ..Hooks::default() };
    recovery.start(hooks).unwrap()
}

/// Records a second of 400 closed-loop writers, and the counters.
fn many_writers(dir: &Path, backend: BackendKind) -> (f64, Counters) {
    let sleepers = Arc::new(Mutex::new(Vec::new()));
    let journal = start(dir, backend, &sleepers);
    let (stop, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let started = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..LOOPS {
            scope.spawn(|| {
                sleepers.lock().unwrap().push(std::thread::current());
                total.fetch_add(writer_loop(&journal, &stop), Ordering::Relaxed);
            });
        }
        std::thread::sleep(RUN);
        stop.store(true, Ordering::Relaxed);
        sleepers.lock().unwrap().iter().for_each(Thread::unpark);
    });
    let rate = total.into_inner() as f64 / started.elapsed().as_secs_f64();
    (rate, journal.counters())
}

/// 200 writers, each with one record on its way; returns how many became durable.
fn writer_loop(journal: &Journal, stop: &AtomicBool) -> u64 {
    let mut waiting: std::collections::VecDeque<u64> = std::iter::repeat_n(0, WRITERS_PER_LOOP).collect();
    let (mut addresses, mut done) = (Vec::new(), 0);
    while !stop.load(Ordering::Relaxed) {
        let durable = journal.durable_seq().0;
        let mut appended = false;
        while waiting.front().is_some_and(|ticket| *ticket <= durable) {
            let Ok(credits) = journal.reserve(footprint([PAYLOAD.len() as u32]), Class::Write) else { break };
            let parts: [&[u8]; 1] = [&PAYLOAD];
            addresses.clear();
            let ticket =
                journal.append(credits, &[Draft::new(1, Keyspace::NONE, &parts)], &mut addresses).last_seq.0;
            done += u64::from(waiting.pop_front() != Some(0));
            waiting.push_back(ticket);
            appended = true;
        }
        if appended {
            journal.offer();
        }
        std::thread::park();
    }
    done
}

/// A prewritten file of 64 MiB.
fn prewritten(dir: &Path) -> Arc<dyn File> {
    let path = dir.join("plain");
    let _ = std::fs::remove_file(&path);
    let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = RealDisk.open(&path, options).unwrap();
    let zeroes = vec![0_u8; 1 << 20];
    for n in 0..64 {
        assert_eq!(file.write_at(&zeroes, n << 20).unwrap(), zeroes.len());
    }
    file.sync_data().unwrap();
    file
}

/// Writes and syncs of `batch` bytes a second.
fn plain_rate(dir: &Path, batch: u64) -> f64 {
    let file = prewritten(dir);
    let bytes = vec![7_u8; batch as usize];
    let (started, mut count, mut at) = (Instant::now(), 0_u64, 0);
    while started.elapsed() < RUN {
        file.write_at(&bytes, at).unwrap();
        file.sync_data().unwrap();
        at = if at + 2 * batch > 64 << 20 { 0 } else { at + batch };
        count += 1;
    }
    count as f64 / started.elapsed().as_secs_f64()
}

/// Median microseconds from append to durable for one writer alone that sleeps between, and of a raw write and
/// fdatasync of the same bytes; in turns of 100, so that both meet the same disk.
fn alone_and_raw(dir: &Path, backend: BackendKind) -> (f64, f64) {
    let sleepers = Arc::new(Mutex::new(vec![std::thread::current()]));
    let journal = start(dir, backend, &sleepers);
    let file = prewritten(dir);
    let (mut alone, mut raw, mut at) = (Vec::new(), Vec::new(), 0);
    for _ in 0..30 {
        alone.extend((0..100).map(|_| append_and_wait(&journal)));
        raw.extend((0..100).map(|_| {
            at += RAW.len() as u64;
            write_and_sync(&*file, at)
        }));
    }
    (median(&mut alone), median(&mut raw))
}

fn append_and_wait(journal: &Journal) -> f64 {
    let started = Instant::now();
    let credits = journal.reserve(footprint([PAYLOAD.len() as u32]), Class::Write).unwrap();
    let parts: [&[u8]; 1] = [&PAYLOAD];
    let ticket = journal.append(credits, &[Draft::new(1, Keyspace::NONE, &parts)], &mut Vec::new()).last_seq;
    journal.offer();
    while journal.durable_seq() < ticket {
        std::thread::park();
    }
    started.elapsed().as_secs_f64() * 1e6
}

fn write_and_sync(file: &dyn File, at: u64) -> f64 {
    let started = Instant::now();
    file.write_at(&RAW, at).unwrap();
    file.sync_data().unwrap();
    started.elapsed().as_secs_f64() * 1e6
}
