//! How the journal's thread gets a batch onto the disk: three ways behind one trait.
//!
//! Invariants
//!   1. `write` returns `Ok` only if the full length was written, `sync` only if the system returned 0.
//!   2. After an error nothing is tried again: a second sync may lie (Linux marks the pages clean).

pub(crate) mod buffered;
pub(crate) mod direct;
pub(crate) mod uring;
mod writer;

use std::io;
use std::path::Path;

use vfs::{OpenOptions, Vfs};

use crate::options::{Backend, BackendKind, SyncMode};
pub(crate) use writer::Writer;

/// The writer for `kind`, or the buffered one where that does not work for the file at `probe`.
pub(crate) fn choose(
    kind: BackendKind,
    sync: SyncMode,
    vfs: &dyn Vfs,
    probe: &Path,
) -> (Box<dyn Writer>, Backend) {
    let works = |writer: Box<dyn Writer>| (writer, Backend { kind, fallback: None });
    let falls_back = |error: &io::Error| {
        let fallback = Some(format!("{kind} does not work here: {error}"));
        let buffered: Box<dyn Writer> = Box::new(buffered::Buffered::default());
        (buffered, Backend { kind: BackendKind::Buffered, fallback })
    };
    match kind {
        BackendKind::Buffered => works(Box::<buffered::Buffered>::default()),
        BackendKind::Direct => {
            let dsync = sync == SyncMode::Always;
            match vfs.open(probe, direct::open_options(dsync)) {
                Ok(_) => works(Box::new(direct::Direct::new(dsync))),
                Err(error) => falls_back(&error),
            }
        }
        BackendKind::Uring => match probe_uring(vfs, probe) {
            Ok(uring) => works(Box::new(uring)),
            Err(error) => falls_back(&error),
        },
    }
}

fn probe_uring(vfs: &dyn Vfs, probe: &Path) -> io::Result<uring::Uring> {
    if vfs.open(probe, OpenOptions::default())?.raw_fd().is_none() {
        return Err(io::Error::other("this disk has no descriptors"));
    }
    uring::Uring::probe()
}
