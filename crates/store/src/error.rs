//! What the store answers when it cannot do what it was asked, by what the caller can do about it.

use std::sync::Arc;

/// Why an [`crate::Access`] did not happen. Nothing was applied: the whole command may be tried again.
#[derive(Debug)]
pub enum Stop {
    /// A cold value is needed that was not prepared: ask [`crate::Store::missing`] (or
    /// [`crate::Access::into_wanted`]) what to fetch, and try again.
    Cold,
    /// The journal has no credits now: park until its hook says that there are some, and try again.
    Busy,
    /// Trying again does not help: answer with this error.
    Refused(StoreError),
    /// The key's record is damaged: answer with this error for this key alone.
    Damaged(StoreError),
    /// It would touch more elements than [it may](crate::Access::bound_effort) where it runs: run it where nobody waits for it.
    Long,
    /// Nobody waits for it any more ([`crate::Prepared::end_when`]): there is nobody to answer. Or who runs it has ended it
    /// ([`crate::Access::end_when`]), and answers.
    Abandoned,
    /// A prepared transaction holds a key that would change: wait for [`crate::Hooks::on_unlock`], and try again.
    Locked(Box<Locked>),
}

/// A key that a prepared transaction holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Locked {
    /// Identifier of the transaction's branch.
    pub by: Arc<str>,
    /// Database of the key.
    pub db: u16,
    /// The key; one of several. `None`: the whole database is held, and would be flushed or swapped.
    pub key: Option<Box<[u8]>>,
}

/// An error that a client or an operator reads; names the setting that would change it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// Memory is at its limit and nothing can be dropped.
    #[error("used memory ({used_bytes} B) is at memory.limit ({limit_bytes} B) and nothing can be dropped")]
    MemoryLimit {
        /// Bytes counted: index, hot values, journal and connection buffers.
        used_bytes: u64,
        /// The setting.
        limit_bytes: u64,
        /// There would be room without what is on its way: requests, replies, values that commands have read.
        may_pass: bool,
    },
    /// The folder was removed, renamed or replaced while the store was open: nothing more becomes durable, and what did since
    /// then may be gone.
    #[error("{0}")]
    FolderGone(String),
    /// One value is too large.
    #[error("key and value of {size_bytes} B exceed value.max ({limit_bytes} B)")]
    ValueTooLarge {
        /// Bytes of key and value.
        size_bytes: u64,
        /// The setting.
        limit_bytes: u64,
    },
    /// One transaction is too large.
    #[error("effects of {size_bytes} B exceed transaction.max ({limit_bytes} B)")]
    TransactionTooLarge {
        /// Bytes of all keys and values.
        size_bytes: u64,
        /// The setting.
        limit_bytes: u64,
    },
    /// What one command would make is more than there may ever be.
    #[error(
        "the reply and the effects of this command come to {bytes} B, more than memory.limit ({limit_bytes} B) has room for: ask for less at once"
    )]
    TooMuchAtOnce {
        /// What it has asked for.
        bytes: u64,
        /// The setting.
        limit_bytes: u64,
    },
    /// A transaction has staged more than leaves room for its commit.
    #[error(
        "the transaction has staged {size_bytes} B of memory: it may stage {limit_bytes} B, a quarter of memory.limit, so that there is room for its commit"
    )]
    StagedTooMuch {
        /// What it would hold.
        size_bytes: u64,
        /// What it may hold.
        limit_bytes: u64,
    },
    /// The values that one command needs from disk are too many.
    #[error(
        "the values of this command are more than {limit_bytes} B to read from disk (the least of connections.output_max \
         and an eighth of memory.limit): ask for fewer at once"
    )]
    ReadTooLarge {
        /// What one command may hold.
        limit_bytes: u64,
    },
    /// A collection that is read in parts cannot be read on as it was.
    #[error("{0}: the rest of the reply cannot be sent")]
    SnapshotLost(&'static str),
    /// The disk has no room for what was asked; deletes still pass.
    #[error("{0}")]
    DiskFull(String),
    /// A record failed its checksum or is not what the index says.
    #[error("record of segment {segment} at byte {offset} is damaged: {reason}")]
    Damaged {
        /// Segment number.
        segment: u32,
        /// Byte offset in the segment.
        offset: u64,
        /// What did not fit.
        reason: String,
    },
    /// The command used a key that its scope did not name: a bug in the command table.
    #[error("key outside the command's scope (please report this)")]
    OutOfScope,
    /// What a transaction asks for cannot be part of one.
    #[error("{0}")]
    Transaction(String),
    /// A database number beyond the setting `databases`.
    #[error("DB index is out of range")]
    NoSuchDatabase,
    /// The data folder cannot be served.
    #[error("{0}")]
    Open(String),
    /// The data folder cannot be looked at: a server uses it, it is none, it is of a newer version, or reading fails. Nothing is known of it.
    #[error("{0}")]
    Unchecked(String),
    /// A backup was not made.
    #[error("backup: {0}")]
    Backup(String),
    /// The journal failed for good: nothing is accepted any more.
    #[error("journal failed: {0}")]
    Journal(String),
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}
