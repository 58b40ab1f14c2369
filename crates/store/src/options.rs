//! What a store is opened with: engine, durability, limits, and where time comes from. Defaults are the settings'.

use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SystemClock};

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
    /// Most bytes of one key with its value.
    pub value_bytes_max: u64,
    /// Most bytes of all effects of one transaction.
    pub transaction_bytes_max: u64,
    /// Bits of the keys' hash that are used; tests cut it to 8 so that everything collides.
    pub hash_bits: u32,
    /// Values longer than this get a small record when their expiry changes; shorter ones are written again.
    pub expiry_delta_bytes_min: u64,
    /// Whether the store runs its own threads; tests that drive it by hand switch them off.
    pub background: bool,
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            engine: EngineKind::default(),
            durability: Durability::default(),
            databases: 16,
            memory_limit_bytes: 0,
            value_bytes_max: 16 << 20,
            transaction_bytes_max: 64 << 20,
            hash_bits: 128,
            expiry_delta_bytes_min: 128,
            background: true,
            clock: Arc::new(SystemClock),
        }
    }
}
