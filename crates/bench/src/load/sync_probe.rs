//! The disk alone: write so many bytes at the next place of a prewritten file, fdatasync, again.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::Failure;
use crate::drive::new_histogram;

/// Latencies in ns of writing `bytes` and syncing, one after the other, for `duration`, in a file in `folder`.
///
/// # Errors
/// The file cannot be written or synced.
pub fn run(folder: &Path, bytes: usize, duration: Duration) -> Result<Histogram<u64>, Failure> {
    let path = folder.join("sync-probe");
    let outcome = probe(&path, bytes, duration).map_err(|error| format!("{}: {error}", path.display()));
    fs::remove_file(&path).ok();
    outcome
}

fn probe(path: &Path, bytes: usize, duration: Duration) -> std::io::Result<Histogram<u64>> {
    let file = File::create(path)?;
    file.write_all_at(&vec![0; FILE_BYTES as usize], 0)?;
    file.sync_all()?;
    let mut histogram = new_histogram();
    let batch = vec![b'x'; bytes];
    let mut at = 0;
    let started = Instant::now();
    while started.elapsed() < duration {
        let before = Instant::now();
        file.write_all_at(&batch, at)?;
        file.sync_data()?;
        histogram.saturating_record(before.elapsed().as_nanos() as u64);
        at += bytes as u64;
        if at + bytes as u64 > FILE_BYTES {
            at = 0;
        }
    }
    Ok(histogram)
}

const FILE_BYTES: u64 = 64 << 20;
