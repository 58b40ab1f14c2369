//! The journal without a server: 400 writers of 512 bytes beside a plain loop of the same I/O.
//!
//! Two threads stand for the loops of a server, each with 200 writers in a closed loop: a writer appends its next
//! record when the last one is durable. Sealed segments are given up at once, so that their files come round again, as
//! in a steady server. The plain loop writes 400 such records at a time into a prewritten file and syncs it: as
//! many as can ever share a sync.

use std::collections::VecDeque;
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::Thread;
use std::time::{Duration, Instant};

use clock::SystemClock;
use journal::{Class, Draft, Hooks, Journal, Keyspace, Options, SegmentState, Seq};
use vfs::RealDisk;

use crate::Failure;
use crate::figure::{Figure, Series, Target};
use crate::load::sync_probe;

use super::context::Context;

/// Records a second of the journal beside those of the plain loop.
pub(super) fn run(context: &Context) -> Result<Vec<Figure>, Failure> {
    let duration = Duration::from_secs(if context.quick { 1 } else { 5 });
    let mut per_sync = Vec::new();
    let journal = || {
        let outcome = run_journal(context, duration)?;
        per_sync.push(outcome.records_per_sync);
        Ok(outcome.per_second)
    };
    let batch_bytes = 64 + WRITERS * journal::record_size_bytes(RECORD_BYTES as u32) as usize;
    let plain = || {
        let histogram = sync_probe::run(&context.folder, batch_bytes, duration)?;
        Ok(histogram.len() as f64 * WRITERS as f64 / duration.as_secs_f64())
    };
    let (a, b) = context.alternate(journal, plain)?;
    per_sync.remove(0); // of the warm-up
    let title =
        format!("journal alone, {WRITERS} writers x {RECORD_BYTES} bytes / a plain loop of the same I/O");
    let (a, b) = (Series::new("journal", a), Series::new("plain loop", b));
    let commands = [
        "cargo xtask bench journal".to_owned(),
        format!("evenkeel-bench sync-probe --bytes {batch_bytes} --folder DIR   # times {WRITERS}"),
    ];
    let rate = Figure::new("journal/alone", &title, Some(Target::AtLeast(0.8)), "records/s", a, Some(b));
    let title = format!("journal alone, {WRITERS} writers: records for each sync");
    let shared =
        Figure::new("journal/per-sync", &title, None, "records", Series::new("journal", per_sync), None);
    Ok(vec![rate.by(commands.clone()), shared.by(commands)])
}

struct Outcome {
    per_second: f64,
    records_per_sync: f64,
}

fn run_journal(context: &Context, duration: Duration) -> Result<Outcome, Failure> {
    let folder = context.folder.join("journal-alone");
    fs::remove_dir_all(&folder).ok();
    let threads: Arc<OnceLock<Vec<Thread>>> = Arc::default();
    let waiters = Arc::clone(&threads);
    let hooks = Hooks {
        on_advance: Box::new(move |_| waiters.get().into_iter().flatten().for_each(Thread::unpark)),
        ..Hooks::default()
    };
    let recovery = Journal::open(Arc::new(RealDisk), Arc::new(SystemClock), &folder, Options::default());
    let journal = recovery.and_then(|recovery| recovery.start(hooks)).map_err(|error| error.to_string())?;
    let outcome = drive(&journal, &threads, duration);
    journal.close();
    drop(journal);
    fs::remove_dir_all(&folder).ok();
    outcome
}

/// Warms up until segments have come round, then counts for `duration`.
fn drive(
    journal: &Arc<Journal>,
    threads: &OnceLock<Vec<Thread>>,
    duration: Duration,
) -> Result<Outcome, Failure> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let handles: Vec<_> =
            (0..DRIVERS).map(|_| scope.spawn(|| drive_writers(journal, &stop, &done))).collect();
        threads.set(handles.iter().map(|handle| handle.thread().clone()).collect()).ok();
        give_up_sealed(journal, duration / 2);
        let (before, counters) = (done.load(Ordering::Relaxed), journal.counters());
        let started = Instant::now();
        give_up_sealed(journal, duration);
        let elapsed = started.elapsed();
        let (after, counters_after) = (done.load(Ordering::Relaxed), journal.counters());
        stop.store(true, Ordering::Relaxed);
        for handle in handles {
            handle.join().map_err(|_| "a driver panicked".to_owned())??;
        }
        let records = (counters_after.records - counters.records) as f64;
        Ok(Outcome {
            per_second: (after - before) as f64 / elapsed.as_secs_f64(),
            records_per_sync: records / (counters_after.syncs - counters.syncs).max(1) as f64,
        })
    })
}

/// One thread with its share of the writers, each of which has one record under way.
fn drive_writers(journal: &Journal, stop: &AtomicBool, done: &AtomicU64) -> Result<(), Failure> {
    let mut waiting: VecDeque<Seq> = VecDeque::new();
    let mut places = Vec::new();
    let payload = [b'x'; RECORD_BYTES];
    let parts: [&[u8]; 1] = [&payload];
    let bytes = journal::footprint([RECORD_BYTES as u32]);
    while !stop.load(Ordering::Relaxed) {
        let durable = journal.durable_seq();
        let mut released = 0;
        while waiting.front().is_some_and(|seq| *seq <= durable) {
            waiting.pop_front();
            released += 1;
        }
        done.fetch_add(released, Ordering::Relaxed);
        let mut appended = false;
        while waiting.len() < WRITERS / DRIVERS {
            let Ok(credits) = journal.reserve(bytes, Class::Write) else { break };
            places.clear();
            let draft = Draft::new(1, Keyspace::NONE, &parts);
            waiting.push_back(journal.append(credits, &[draft], &mut places).last_seq);
            appended = true;
        }
        if appended {
            journal.offer();
        } else {
            std::thread::park_timeout(Duration::from_millis(10));
        }
    }
    Ok(())
}

/// Retires what is sealed, for `duration`.
fn give_up_sealed(journal: &Journal, duration: Duration) {
    let started = Instant::now();
    while started.elapsed() < duration {
        for info in journal.segments() {
            if info.state != SegmentState::Open {
                journal.retire(info.segment).ok();
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

const WRITERS: usize = 400;
const DRIVERS: usize = 2;
const RECORD_BYTES: usize = 512;
