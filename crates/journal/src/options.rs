//! Settings of a journal, each with its default, bounds and reason.
//!
//! | field | unit | default | least | most | simulated | reason |
//! |---|---|---|---|---|---|---|
//! | segment_size_bytes | B | 64 Mi | 64 Ki | 4 Gi | 64 Ki-256 Ki | one sequential read of a segment takes ~60 ms; a small log has smaller files |
//! | file_size_bytes_min | B | 8 Mi | 64 Ki | - | 64 Ki | of a small folder, ready files would be most |
//! | buffer_bytes_max | B | 32 Mi | 64 Ki | 4 Gi | 64 Ki | bounds what a stalled disk piles up |
//! | transaction_bytes_max | B | 1 Gi | 4 Ki | 4 Gi | 256 Ki | one group is one write |
//! | ready_segments | count | 1 | 1 | 16 | 1 | zero-filling keeps ahead of 400 MB/s with one |
//! | reserve_segments | count | 2 | 0 | 16 | 2 | deletes go on when the disk is full; of two or more, one is for what gives files back |
//! | space_margin_bytes | B | 64 Mi | 0 | any | 0 | leaves room for checkpoints, which free space |
//! | idle_stamp_ms | ms | 200 | 1 | 60,000 | - | the last batch is vouched for soon after traffic ends |

use std::time::Duration;

use crate::error::{ContentError, SettingError};
use crate::format::segment_header::Identity;

/// When appended records become durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SyncMode {
    /// Each write cycle ends with a sync.
    #[default]
    Always,
    /// Written at once, synced when this much time has passed since the last sync, or when somebody asks (`Journal::sync_soon`).
    Interval(Duration),
    /// Written at once, synced when a segment is sealed, at a clean stop, and when somebody asks.
    Never,
}

/// How bytes reach the disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BackendKind {
    /// `pwrite` and `fdatasync`.
    #[default]
    Buffered,
    /// `O_DIRECT | O_DSYNC`: past the page cache, one system call.
    Direct,
    /// `io_uring`: write linked with fdatasync, one system call. Falls back to `Buffered` where it is switched off.
    Uring,
}

impl std::fmt::Display for BackendKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Buffered => "buffered",
            Self::Direct => "direct",
            Self::Uring => "uring",
        })
    }
}

/// Which backend runs, and why not the one that was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// The one that runs.
    pub kind: BackendKind,
    /// Set when another one was asked for: what the system said.
    pub fallback: Option<String>,
}

impl std::fmt::Display for Backend {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.fallback {
            None => write!(f, "{}", self.kind),
            Some(reason) => write!(f, "{} ({reason})", self.kind),
        }
    }
}

/// What the owner of a journal writes into it.
#[derive(Clone, Copy, Debug)]
pub struct Content {
    /// Version of what this owner writes; 0: it has none, and tells no records apart.
    pub version: u16,
    /// The oldest version that understands it.
    pub reader_version_min: u16,
    /// Whether a record of this kind, with this payload (`None`: not at hand), is one of the owner's; otherwise what is wrong.
    pub check: fn(kind: u8, payload: Option<&[u8]>) -> Result<(), ContentError>,
}

impl Default for Content {
    fn default() -> Self {
        Self { version: 0, reader_version_min: 0, check: |_, _| Ok(()) }
    }
}

/// Settings of a journal. The module's header has units, bounds and reasons.
#[derive(Clone, Debug)]
pub struct Options {
    /// Size of a segment file once the log is large; see `Options::file_size_bytes`.
    pub segment_size_bytes: u64,
    /// Size of the first files, unless `segment_size_bytes` is smaller.
    pub file_size_bytes_min: u64,
    /// How bytes reach the disk.
    pub backend: BackendKind,
    /// When appended records become durable.
    pub sync: SyncMode,
    /// Most bytes reserved or appended and not yet durable.
    pub buffer_bytes_max: u64,
    /// Most bytes of one group.
    pub transaction_bytes_max: u64,
    /// Zero-filled segments kept ahead of need.
    pub ready_segments: u32,
    /// Segments that only deletes and cleaning may use; of two or more, one is for cleaning alone.
    pub reserve_segments: u32,
    /// Space that a new segment must leave on the file system.
    pub space_margin_bytes: u64,
    /// Time without traffic after which a stamp is written, in milliseconds.
    pub idle_stamp_ms: u64,
    /// What the records are to their owner.
    pub content: Content,
    /// Identity of a folder that is created by this open; `None` draws random ones. Tests set it.
    pub identity: Option<Identity>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            segment_size_bytes: 64 << 20,
            file_size_bytes_min: SMALL_FILE_SIZE_BYTES,
            backend: BackendKind::default(),
            sync: SyncMode::default(),
            buffer_bytes_max: 32 << 20,
            transaction_bytes_max: 1 << 30,
            ready_segments: 1,
            reserve_segments: 2,
            space_margin_bytes: 64 << 20,
            idle_stamp_ms: 200,
            content: Content::default(),
            identity: None,
        }
    }
}

impl Options {
    /// Segments of 256 KiB, no margin, a fixed identity: what tests and simulations use.
    #[must_use]
    pub fn small() -> Self {
        Self {
            segment_size_bytes: 256 << 10,
            buffer_bytes_max: 1 << 20,
            transaction_bytes_max: 4 << 20,
            space_margin_bytes: 0,
            identity: Some(Identity { folder: 0xf01d, hash_key: 0x5ec7e7, hash_bits: 128 }),
            ..Self::default()
        }
    }

    /// Size of the next files of a journal whose segments take `log_bytes`: a [`LOG_SHARE`]th of it as a power of two,
    /// at least `file_size_bytes_min`, at most `segment_size_bytes`.
    ///
    /// Besides what lives, a folder holds files that are ready and one that is half full: with files of 64 MiB they would
    /// be most of a small one.
    pub(crate) fn file_size_bytes(&self, log_bytes: u64) -> u64 {
        let share = (log_bytes / LOG_SHARE).max(self.file_size_bytes_min);
        (1 << share.ilog2()).min(self.segment_size_bytes)
    }

    /// Space that a new file must leave on the file system: the reserve of deletes may take next to all of the margin, since what deletes and
    /// cleaning need beside it is kept (room of the next manifest, and of the owner's next checkpoint).
    pub(crate) fn margin_bytes(&self, is_reserve: bool) -> u64 {
        if is_reserve {
            (self.space_margin_bytes / 2).min(RESERVE_MARGIN_BYTES)
        } else {
            self.space_margin_bytes
        }
    }

    /// Checks the bounds of the table above.
    ///
    /// # Errors
    /// The first setting that is out of its bounds, by its documented name.
    pub fn validate(&self) -> Result<(), SettingError> {
        let within = |name: &'static str, value: u64, least: u64, most: u64| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(SettingError::OutOfBounds { name, value, least, most })
        };
        within("journal.segment_size", self.segment_size_bytes, 64 << 10, 4 << 30)?;
        if !self.segment_size_bytes.is_multiple_of(4096) {
            let (name, value) = ("journal.segment_size", self.segment_size_bytes);
            return Err(SettingError::NoMultiple { name, value, unit: 4096 });
        }
        within("journal.buffer_max", self.buffer_bytes_max, 64 << 10, 4 << 30)?;
        within("transaction.max", self.transaction_bytes_max, 4 << 10, 4 << 30)?;
        within("journal.ready_segments", self.ready_segments.into(), 1, 16)?;
        within("journal.reserve_segments", self.reserve_segments.into(), 0, 16)?;
        within("journal.idle_stamp", self.idle_stamp_ms, 1, 60_000)
    }
}

/// What the reserve leaves of the margin.
const RESERVE_MARGIN_BYTES: u64 = 1 << 20;
/// What share of the log one file is, until files have their full size.
const LOG_SHARE: u64 = 32;
/// Files are never smaller, unless the setting says so.
const SMALL_FILE_SIZE_BYTES: u64 = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_grow_with_the_log_up_to_the_setting() {
        let size = |log_mib: u64| Options::default().file_size_bytes(log_mib << 20) >> 20;
        assert_eq!([0, 511, 512, 1_024, 2_048, 1 << 20].map(size), [8, 8, 16, 32, 64, 64]);
        assert_eq!(Options::small().file_size_bytes(1 << 40), Options::small().segment_size_bytes);
    }
}
