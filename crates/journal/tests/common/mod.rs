//! What the journal's tests share: a folder on a simulated disk, driven by hand.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test binary uses a part")]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use clock::{SimClock, UnixMs};
use journal::{
    Class, Draft, Driver, FOOTER_CHUNK_ENTRIES_MAX, FooterEntry, Hooks, Journal, JournalError, Keyspace,
    LogAddress, Lsn, Options, Recovery, SegmentId, Seq, footprint,
};
use vfs::SimDisk;

pub fn dir() -> PathBuf {
    PathBuf::from("/data")
}

pub fn clock() -> Arc<SimClock> {
    Arc::new(SimClock::new(UnixMs(1_795_000_000_000)))
}

pub fn open(disk: &SimDisk, options: &Options) -> Result<Recovery, JournalError> {
    Journal::open(Arc::new(disk.clone()), clock(), &dir(), options.clone())
}

pub fn start(disk: &SimDisk, options: &Options) -> (Arc<Journal>, Driver) {
    let (journal, mut driver) = open(disk, options).unwrap().start_manual(Hooks::default()).unwrap();
    driver.prepare();
    (journal, driver)
}

/// Appends one group; `None` when credits are refused.
pub fn append(journal: &Journal, payloads: &[&[u8]]) -> Option<(Vec<LogAddress>, Seq, Lsn)> {
    append_as(journal, payloads, Class::Write)
}

pub fn append_as(journal: &Journal, payloads: &[&[u8]], class: Class) -> Option<(Vec<LogAddress>, Seq, Lsn)> {
    let bytes = footprint(payloads.iter().map(|payload| payload.len() as u32));
    let credits = journal.reserve(bytes, class).ok()?;
    let parts: Vec<[&[u8]; 1]> = payloads.iter().map(|payload| [*payload]).collect();
    let drafts: Vec<Draft<'_>> = parts.iter().map(|parts| Draft::new(1, Keyspace(7), parts)).collect();
    let mut addresses = Vec::new();
    let appended = journal.append(credits, &drafts, &mut addresses);
    Some((addresses, appended.last_seq, appended.last_lsn))
}

/// Writes a whole footer; does nothing when there is no descriptor for it.
pub fn write_footer(
    journal: &Journal,
    segment: SegmentId,
    entries: &[FooterEntry],
) -> Result<(), JournalError> {
    let Some(mut footer) = journal.footer(segment)? else { return Ok(()) };
    entries.chunks(FOOTER_CHUNK_ENTRIES_MAX).try_for_each(|chunk| footer.write(chunk))?;
    footer.finish()
}

/// A record: lsn, seq, payload, and whether it ends its group.
pub type Found = (u64, u64, Vec<u8>, bool);

/// Every record: lsn, seq, payload, and whether it ends its group.
pub fn records(recovery: &Recovery) -> Result<Vec<Found>, JournalError> {
    let mut found = Vec::new();
    for segment in recovery.segments() {
        recovery.scan(segment.segment, Lsn(0), &mut |view| {
            let group_end = view.header.flags & journal::record_flags::GROUP_END != 0;
            found.push((view.lsn.0, view.header.seq.0, view.payload.to_vec(), group_end));
        })?;
    }
    Ok(found)
}

/// Hooks that keep what they were told.
#[derive(Default)]
pub struct Told {
    pub advances: Mutex<Vec<Seq>>,
    pub credits: Mutex<u32>,
    pub failures: Mutex<Vec<String>>,
}

pub fn hooks(told: &Arc<Told>) -> Hooks {
    let (advance, credits, failure) = (Arc::clone(told), Arc::clone(told), Arc::clone(told));
    Hooks {
        on_advance: Box::new(move |seq| advance.advances.lock().unwrap().push(seq)),
        on_credits: Box::new(move || *credits.credits.lock().unwrap() += 1),
        on_failure: Box::new(move |error| failure.failures.lock().unwrap().push(error.to_string())),
    }
}

pub fn path(name: &str) -> PathBuf {
    dir().join(Path::new(name))
}
