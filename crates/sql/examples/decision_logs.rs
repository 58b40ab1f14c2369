//! Measures the decision logs alone: records a second of 1, 100 and 400 threads that each write a record, wait for it and remove it.
//!
//! 1. `bare`: as many threads that do the same with plain files, for the file log, and one thread that writes 512 B to a prewritten
//!    file and calls fdatasync, for the journal.
//! 2. The logs. Targets: `journal`, one thread: 0.85 of the bare loop. `file`, 100 threads: the bare threads' rate.
//!    `journal`, 400 threads: above 200,000 records a second on two cores.
//!
//! `cargo run --release -p sql --example decision_logs -- [DIR] [SECONDS] [POSTGRES_URL]`
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a measurement that cannot go on panics")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::{Duration, Instant};

use clock::{SystemClock, UnixMs};
use sql::decision_log::SqlLog;
use sql::tls::TlsOptions;
use txn::decision_log::file::{self, FileLog};
use txn::decision_log::journal::JournalLog;
use txn::decision_log::volatile::Volatile;
use txn::decision_log::{DecisionLog, LogError, Waiter};
use txn::id::{NodeName, TxId};
use txn::record::{Decision, DecisionKind, Participant, ParticipantState};
use vfs::{OpenOptions, RealDisk, Vfs};

const THREADS: [usize; 3] = [1, 100, 400];

fn main() {
    let mut args = std::env::args().skip(1);
    let dir = PathBuf::from(args.next().unwrap_or_else(|| "target/decision-logs".into()));
    let run = Duration::from_secs_f64(args.next().and_then(|text| text.parse().ok()).unwrap_or(2.0));
    let url = args.next();
    println!("encode: {:.0} ns a record", encode_ns());
    println!("bare loop, 512 B + fdatasync: {:.0}/s", plain_rate(&dir, run));
    for threads in THREADS {
        println!("bare file + folder, {threads} threads: {:.0}/s", bare_files(&dir, threads, run));
    }
    let node = NodeName::new("bench").unwrap();
    for threads in THREADS {
        measure("volatile", &*Volatile::open(&node, 1).log, threads, run);
        let folder = fresh(&dir, "file");
        let opened =
            FileLog::open(Arc::new(RealDisk), &SystemClock, &folder, &node, file::Options::default())
                .unwrap();
        measure("file", &*opened.log, threads, run);
        let folder = fresh(&dir, "journal");
        let (disk, clock) = (Arc::new(RealDisk), Arc::new(SystemClock));
        let opened = JournalLog::open(disk, clock, &folder, &node, journal::Options::default()).unwrap();
        measure("journal", &*opened.log, threads, run);
        if let Some(url) = &url {
            measure("sql", &*SqlLog::open(url, &TlsOptions::default(), &node).unwrap().log, threads, run);
        }
    }
    std::fs::remove_dir_all(&dir).unwrap();
}

fn fresh(dir: &Path, name: &str) -> PathBuf {
    let folder = dir.join(name);
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn decision(number: u64) -> Decision {
    let participant = |branch| Participant {
        branch,
        resource: format!("resource-{branch}").into(),
        state: ParticipantState::ToCommit,
    };
    Decision {
        tx: TxId { epoch: 1, number },
        kind: DecisionKind::Commit,
        decided: UnixMs(1_795_000_000_000),
        participants: vec![participant(0), participant(1)],
    }
}

fn encode_ns() -> f64 {
    let (decision, mut out, started) = (decision(7), Vec::with_capacity(512), Instant::now());
    for _ in 0..1_000_000 {
        out.clear();
        decision.encode(std::hint::black_box(&mut out));
    }
    started.elapsed().as_secs_f64() * 1e3
}

/// A thread that waits for its record.
struct Sleeper {
    thread: Thread,
    done: AtomicU64,
}

impl Waiter for Sleeper {
    fn on_logged(&self, tx: TxId, result: Result<(), LogError>) {
        result.unwrap();
        self.done.store(tx.number, Ordering::Release);
        if self.thread.id() != std::thread::current().id() {
            self.thread.unpark();
        }
    }
}

fn measure(name: &str, log: &dyn DecisionLog, threads: usize, run: Duration) {
    let (stop, total, refused) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (before, cpu_before) = (log.counters(), cpu_us());
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (stop, total, refused) = (&stop, &total, &refused);
            scope.spawn(move || {
                let (done, no) = closed_loop(log, thread as u64, threads == 1, stop);
                total.fetch_add(done, Ordering::Relaxed);
                refused.fetch_add(no, Ordering::Relaxed);
            });
        }
        std::thread::sleep(run);
        stop.store(true, Ordering::Relaxed);
    });
    let rate = total.into_inner() as f64 / started.elapsed().as_secs_f64();
    let (after, cpu) = (log.counters(), cpu_us() - cpu_before);
    let records = (after.records - before.records).max(1) as f64;
    println!(
        "{name}, {threads} threads: {rate:.0}/s, {:.4} syncs, {:.0} B and {:.1} us of processors a record, {} refused",
        (after.syncs - before.syncs) as f64 / records,
        (after.bytes - before.bytes) as f64 / records,
        cpu / records,
        refused.into_inner()
    );
    log.close();
}

/// Time of processors that this process took, in microseconds: on a machine with other work it says more than a rate.
fn cpu_us() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields = stat.rsplit(')').next().unwrap().split_whitespace();
    // utime and stime, in hundredths of a second
    fields.skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap() * 1e4).sum()
}

fn closed_loop(log: &dyn DecisionLog, thread: u64, is_alone: bool, stop: &AtomicBool) -> (u64, u64) {
    let sleeper = Arc::new(Sleeper { thread: std::thread::current(), done: AtomicU64::new(0) });
    let waiter: Arc<dyn Waiter> = Arc::clone(&sleeper) as _;
    let (mut record, mut done, mut refused) = (Vec::new(), 0, 0);
    let mut decision = decision(thread << 32);
    while !stop.load(Ordering::Relaxed) {
        decision.tx.number += 1;
        record.clear();
        decision.encode(&mut record);
        if log.write(decision.tx, &record, &waiter).is_err() {
            refused += 1;
            std::thread::yield_now();
            continue;
        }
        if sleeper.done.load(Ordering::Acquire) != decision.tx.number && !log.help(is_alone) {
            log.offer();
        }
        while sleeper.done.load(Ordering::Acquire) != decision.tx.number {
            std::thread::park();
        }
        log.remove(decision.tx);
        done += 1;
    }
    (done, refused)
}

/// Writes of 512 B and fdatasyncs a second, to a prewritten file.
fn plain_rate(dir: &Path, run: Duration) -> f64 {
    let folder = fresh(dir, "plain");
    std::fs::create_dir_all(&folder).unwrap();
    let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
    let file = RealDisk.open(&folder.join("plain"), options).unwrap();
    let zeroes = vec![0_u8; 1 << 20];
    for n in 0..64 {
        assert_eq!(file.write_at(&zeroes, n << 20).unwrap(), zeroes.len());
    }
    file.sync_data().unwrap();
    let (started, mut count) = (Instant::now(), 0_u64);
    while started.elapsed() < run {
        file.write_at(&[7; 512], (count * 512) % (64 << 20)).unwrap();
        file.sync_data().unwrap();
        count += 1;
    }
    count as f64 / started.elapsed().as_secs_f64()
}

/// Threads that each write a file, sync it, sync the folder and unlink it.
fn bare_files(dir: &Path, threads: usize, run: Duration) -> f64 {
    let folder = fresh(dir, "bare");
    std::fs::create_dir_all(&folder).unwrap();
    let (stop, total) = (AtomicBool::new(false), AtomicU64::new(0));
    let names = RealDisk.open_dir(&folder).unwrap();
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (folder, names, stop, total) = (&folder, &names, &stop, &total);
            scope.spawn(move || {
                let options = OpenOptions { write: true, create_new: true, ..OpenOptions::default() };
                for n in 0_u64.. {
                    let path = folder.join(format!("{thread:08x}-{n:016x}.tx"));
                    let file = RealDisk.open(&path, options).unwrap();
                    file.write_at(&[7; 512], 0).unwrap();
                    file.sync_data().unwrap();
                    names.sync().unwrap();
                    RealDisk.remove(&path).unwrap();
                    total.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            });
        }
        std::thread::sleep(run);
        stop.store(true, Ordering::Relaxed);
    });
    total.into_inner() as f64 / started.elapsed().as_secs_f64()
}
