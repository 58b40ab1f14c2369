//! Group-commit journal: many appends, one sync, then waiters released in order.
//!
//! Invariants
//!   1. `durable <= appended`; both only grow, in lsn and in seq.
//!   2. A record counts only if its batch's write returned the full length *and* its sync returned 0.
//!   3. A failed write or sync is final: nothing more becomes durable, new credits are refused.
//!   4. A group of records is in one batch, a batch in one segment: all or nothing after a crash.
//!   5. Append cannot wait or fail: credits for buffers and disk were reserved before any lock was taken.
//!   6. A file found at start is never appended to; a segment number is never reused.
//!
//! Life of a record: [`Journal::reserve`], [`Journal::append`] (one short mutex: header checksum and a copy),
//! [`Journal::offer`] (wakes the journal's thread if it sleeps), one write and one sync for everything appended meanwhile, the
//! `on_advance` hook.
//!
//! | module | what |
//! |---|---|
//! | [`mod@format`] | every byte on disk |
//! | `admission` | credits for memory and disk, taken before any lock |
//! | `core`, `batch_buffer` | batching and placing, without I/O |
//! | `gather` | whether a cycle lets those join whom the last one released |
//! | `committer`, `backend` | write cycles, syncs, rolls, stamps, the seal; buffered, direct, uring |
//! | `preparer`, `own_files`, `segment` | files ready ahead of need, freed and recycled ones |
//! | `manifest` | which file holds which segment |
//! | `recovery` | start: read all, decide torn or damaged, copy the tail, switch by one rename |
//! | `scan`, `footer` | reading records in order, and what stands for them at start |
//! | `check`, `salvage`, `backup` | a stopped folder examined, saved; a running one copied |
//! | `thread`, `wake` | two threads around it all, or a driver by hand for simulations |
//!
//! Out of scope: what records mean, the index, checkpoints' content (`store`); replication.
//! Source: DeWitt et al. 1984 (group commit); Artemis's timed buffer, without its timer;
//! docs/adr/0001-record-batch-segment-manifest-checkpoint-identity.md.

mod admission;
mod backend;
mod backup;
mod batch_buffer;
mod check;
mod committer;
mod core;
mod counters;
mod error;
mod footer;
pub mod format;
mod gather;
mod journal;
mod manifest;
mod options;
mod own_files;
mod preparer;
mod recovery;
mod salvage;
mod scan;
mod segment;
mod shared;
mod syncs;
mod thread;
mod trim;
mod types;
mod wake;

pub use admission::{Class, Credits, footprint};
pub use backup::Backup;
pub use check::{CheckReport, Damage, SegmentReport, StoppedFolder, check, check_and_hold};
pub use counters::Counters;
pub use error::{ContentError, JournalError, ReadError, Refusal, SettingError};
pub use footer::FooterWriter;
pub use format::footer_chunk::{FOOTER_CHUNK_ENTRIES_MAX, FooterEntry};
pub use format::manifest_entry::Checkpoint;
pub use format::record::{RecordHeader, record_size_bytes};
pub use format::segment_header::Identity;
pub use journal::{Journal, Pin, SegmentInfo, SegmentState};
pub use manifest::MANIFEST_NAME;
pub use options::{Backend, BackendKind, Content, Options, SyncMode};
pub use recovery::{Recovery, Torn};
pub use salvage::{Choice, Keep, SalvageReport, Stated, salvage, stated};
pub use scan::{RecordView, Records, Scanner};
pub use shared::{Hooks, LOCK_NAME};
pub use syncs::SyncFigures;
pub use thread::Driver;
pub use types::{Appended, Draft, FileId, Keyspace, LogAddress, Lsn, Origin, SegmentId, Seq, record_flags};
