//! What can go wrong, by what a caller can do about it.

use std::io;
use std::sync::Arc;

use crate::types::{LogAddress, SegmentId};

/// Why the journal did not open, or stopped.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalError {
    /// Another process (or handle) has the folder.
    #[error("{dir} is in use by another server (its LOCK file is held)")]
    Locked {
        /// The folder.
        dir: String,
    },
    /// The folder was written by a newer version.
    #[error(
        "{file} was written by a newer version: it asks for a reader of format {reader_version_min}, this one reads up to {version}; upgrade evenkeel"
    )]
    Newer {
        /// The file that says so.
        file: String,
        /// What it asks for.
        reader_version_min: u16,
        /// What this code reads.
        version: u16,
    },
    /// A newer version of the journal's owner wrote the records.
    #[error(
        "{file} was written by a newer version of evenkeel: its records ask for a reader of version {reader_version_min}, this one reads up to {version}; upgrade evenkeel"
    )]
    NewerContent {
        /// The file that says so.
        file: String,
        /// What it asks for.
        reader_version_min: u16,
        /// What this code reads.
        version: u16,
    },
    /// A record that the journal's owner does not know. The folder was not changed.
    #[error("{file} at offset {offset}: {what}; nothing in the folder was changed")]
    UnknownRecord {
        /// The file.
        file: String,
        /// Where in it, in bytes.
        offset: u64,
        /// What the owner says of it.
        what: String,
    },
    /// Something that was durable does not verify. Never served; `evenkeel check` tells more.
    #[error("damage in {file} at offset {offset}: {what}; see `evenkeel check DIR` and its --salvage")]
    Damaged {
        /// The file.
        file: String,
        /// Where in it, in bytes.
        offset: u64,
        /// What does not hold.
        what: String,
    },
    /// The disk has no room for what the journal needs to start or go on.
    #[error(
        "disk full: {needed_bytes} B needed in {dir}, {available_bytes} B available; free space or lower journal.segment_size"
    )]
    Full {
        /// The folder.
        dir: String,
        /// What is needed.
        needed_bytes: u64,
        /// What there is.
        available_bytes: u64,
    },
    /// The system refused something. Of a journal that runs it is final: nothing more becomes durable, and what was not
    /// acknowledged has an unknown outcome. Of one that starts nothing was acknowledged yet, and what the folder holds is kept.
    #[error("{}{action} failed: {source}", cause(source))]
    Failed {
        /// What was tried, with the file's name.
        action: String,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The folder was removed, renamed or replaced under a journal that runs: what is written goes where nobody finds it. Final.
    #[error(
        "the folder {dir} is not the one that was opened: it, or its LOCK file, was removed, renamed or replaced while the server ran"
    )]
    FolderGone {
        /// The folder.
        dir: String,
    },
    /// A request that this journal cannot serve; says why.
    #[error("{0}")]
    Invalid(String),
    /// A setting that is out of its bounds.
    #[error("{0}")]
    Setting(#[from] SettingError),
}

/// A setting, by its documented name, that is out of its bounds.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// Too small or too large.
    #[error("{name} is {value}, must be {least} to {most}")]
    OutOfBounds {
        /// The setting.
        name: &'static str,
        /// What it is.
        value: u64,
        /// The least that it may be.
        least: u64,
        /// The most.
        most: u64,
    },
    /// No multiple of what the disk writes at once.
    #[error("{name} is {value}, no multiple of {unit}")]
    NoMultiple {
        /// The setting.
        name: &'static str,
        /// What it is.
        value: u64,
        /// What it must be a multiple of.
        unit: u64,
    },
}

/// Why a record is none of the journal's owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// A newer version may know it.
    #[error("a record of kind {kind}, which this version of evenkeel does not know")]
    UnknownKind {
        /// Its kind.
        kind: u8,
    },
    /// It is damaged, or was written by something else.
    #[error("a record of kind {kind} whose payload does not fit its kind")]
    Payload {
        /// Its kind.
        kind: u8,
    },
}

impl JournalError {
    pub(crate) fn failed(action: impl Into<String>, source: io::Error) -> Self {
        Self::Failed { action: action.into(), source: Arc::new(source) }
    }

    pub(crate) fn damaged(file: impl Into<String>, offset: u64, what: impl Into<String>) -> Self {
        Self::Damaged { file: file.into(), offset, what: what.into() }
    }
}

/// What the manual calls this cause, where it has a name for it.
fn cause(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => "disk full: ",
        _ => "",
    }
}

/// Why credits were not given. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// Buffers or prepared segments are in use: wait for the `on_credits` hook and ask again.
    #[error("journal is busy: {buffered_bytes} B wait for the disk, journal.buffer_max is {limit_bytes} B")]
    Busy {
        /// Bytes reserved or appended and not yet durable.
        buffered_bytes: u64,
        /// journal.buffer_max.
        limit_bytes: u64,
    },
    /// The disk has no room for another segment.
    #[error(
        "disk full: journal needs {needed_bytes} B for its next segment, {available_bytes} B are available; delete keys or free space"
    )]
    Full {
        /// Size of the segment that could not be made.
        needed_bytes: u64,
        /// What the file system has left.
        available_bytes: u64,
    },
    /// More than one group may have.
    #[error("transaction of {bytes} B exceeds transaction.max ({limit_bytes} B)")]
    TooLarge {
        /// Asked for.
        bytes: u64,
        /// transaction.max.
        limit_bytes: u64,
    },
    /// The journal has failed or was closed; nothing more becomes durable.
    #[error("journal is closed: no more writes")]
    Closed,
}

/// Why a record was not read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The segment is no more (cleaned, recycled): look the key up again.
    #[error("segment {0} is no more")]
    Gone(SegmentId),
    /// Nothing at this address verifies. Look the key up again; an unchanged address then means damage.
    #[error("record at segment {} offset {} does not verify", .0.segment(), .0.offset_bytes())]
    Mismatch(LogAddress),
    /// The system's error.
    #[error("reading segment {} at offset {}: {source}", .address.segment(), .address.offset_bytes())]
    Io {
        /// The address asked for.
        address: LogAddress,
        /// What the system said.
        source: io::Error,
    },
}
