//! What a store is opened with: engine, durability, limits, and where time comes from. Defaults are the settings'.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SystemClock};
use vfs::{RealDisk, Vfs};

use crate::error::StoreError;
use crate::evict::policy::Eviction;

/// Which engine keeps the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// The log is the database.
    #[default]
    Log,
    /// No disk: everything is lost when the process ends.
    Memory,
    /// Accepts and forgets: measures the layers above.
    Noop,
}

/// When a reply may leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Once all that it depends on is on disk.
    #[default]
    Always,
    /// At once; a sync at least this often.
    Interval(Duration),
    /// At once; the system syncs when it likes.
    Never,
}

/// What a store is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which engine keeps the data.
    pub engine: EngineKind,
    /// When a reply may leave.
    pub durability: Durability,
    /// How many databases SELECT reaches.
    pub databases: u16,
    /// Most bytes of index, hot values and the buffers that are reported in; 0 is no limit.
    pub memory_limit_bytes: u64,
    /// Which keys go when memory (engine `memory`) or disk (engine `log`) has no room.
    pub eviction: Eviction,
    /// Most bytes of the folder, beyond which keys are evicted or writes refused; 0: as the file system has room.
    pub disk_limit_bytes: u64,
    /// Most bytes of one key with its value.
    pub value_bytes_max: u64,
    /// Most bytes of all effects of one transaction.
    pub transaction_bytes_max: u64,
    /// Bits of the keys' hash that are used; tests cut it to 8 so that everything collides.
    pub hash_bits: u32,
    /// Values longer than this get a small record when their expiry changes; shorter ones are written again.
    pub expiry_delta_bytes_min: u64,
    /// Log beside live data, in percent, beyond which writers are slowed down until cleaning has caught up; 0 is never.
    pub space_ratio_max_percent: u64,
    /// Bytes of the leaves of large collections, about; twice as many make a collection one that has leaves.
    pub leaf_bytes: u64,
    /// Whether the store runs its own threads; tests that drive it by hand switch them off.
    pub background: bool,
    /// Before each command everything leaves memory that can, and of what it reads about half stays until the next one, as if memory were always
    /// full: for tests, which so meet every command with data that is on disk alone.
    pub is_always_cold: bool,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// The data folder (engine `log`).
    pub dir: PathBuf,
    /// The disk that holds it.
    pub vfs: Arc<dyn Vfs>,
    /// A transaction that has touched more keys than this claims them when it prepares or ends, and others go on meanwhile; fewer
    /// are locked together, which is quicker.
    pub claims_from: usize,
    /// Settings of the journal; `sync` and `transaction_bytes_max` follow from the fields above.
    pub journal: journal::Options,
    /// Threads that read cold values, and the most that replay the log at a start; 0 does both on the calling thread, for simulations.
    pub readers: usize,
    /// Bytes of the process that are resident, asked four times a second: what of them is not counted takes a part of the memory limit. 0:
    /// nobody knows, and it takes none.
    pub resident_bytes: fn() -> u64,
    /// Keys that are evicted by no policy. Asked often: it looks at the key alone.
    pub never_evicted: fn(&[u8]) -> bool,
    /// Whom the store tells of events.
    pub hooks: Hooks,
}

/// Whom the store tells of events; called from its own threads, so they should only wake others.
#[derive(Clone)]
pub struct Hooks {
    /// More replies may leave: [`crate::Store::released`] has grown.
    pub on_advance: Arc<dyn Fn() + Send + Sync>,
    /// Whoever met [`crate::Stop::Busy`] may try again.
    pub on_credits: Arc<dyn Fn() + Send + Sync>,
    /// A write or sync failed for good: effects that are not released have an unknown outcome.
    pub on_failure: Arc<dyn Fn(StoreError) + Send + Sync>,
    /// Whoever met [`crate::Stop::Locked`] may try again: a prepared transaction has ended. Called on the thread that ended it, with
    /// no lock held.
    pub on_unlock: Arc<dyn Fn() + Send + Sync>,
    /// The store itself has changed keys that somebody waits for ([`crate::Store::wait_for`]): their time had come, or they were evicted.
    /// Called on its thread, with no lock held.
    pub on_changed_waited: Arc<dyn Fn() + Send + Sync>,
}

impl Default for Hooks {
    fn default() -> Self {
        Self {
            on_advance: Arc::new(|| {}),
            on_credits: Arc::new(|| {}),
            on_failure: Arc::new(|error| tracing::error!(%error, "the store stops")),
            on_unlock: Arc::new(|| {}),
            on_changed_waited: Arc::new(|| {}),
        }
    }
}

impl std::fmt::Debug for Hooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooks")
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engine: EngineKind::default(),
            durability: Durability::default(),
            databases: 16,
            memory_limit_bytes: 0,
            eviction: Eviction::default(),
            disk_limit_bytes: 0,
            value_bytes_max: 16 << 20,
            transaction_bytes_max: 64 << 20,
            hash_bits: 128,
            expiry_delta_bytes_min: 128,
            space_ratio_max_percent: 200,
            leaf_bytes: 2 << 10,
            background: true,
            is_always_cold: false,
            clock: Arc::new(SystemClock),
            dir: PathBuf::from("evenkeel-data"),
            vfs: Arc::new(RealDisk),
            claims_from: 1_024,
            journal: journal::Options::default(),
            readers: 8,
            resident_bytes: || 0,
            never_evicted: |_| false,
            hooks: Hooks::default(),
        }
    }
}
