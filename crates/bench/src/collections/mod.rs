//! Figures of collections: hashes, lists, sets, sorted sets and streams, small and large, beside Redis and Valkey where there is something to compare.
//!
//! ```text
//!  rates                 requests a second of 50 clients, durable and without a log, on many collections
//!  types                 the same of the usual commands of each type, strings too, on one collection that all clients share
//!  memory                bytes of an element
//!  cold-reads            reads from the device for each command on what is not in memory
//!  write-amplification   bytes given to the device for each byte of the user's
//!  deletes               longest PING of another client while a collection goes; bytes that this writes
//!  start                 time to the first PING
//!  places                latency of a command in the middle
//!  waiters               from a push's reply to the reply of the client that waited for it
//! ```
//!
//! Each part starts servers of its own, fills them over the protocol and looks at them from outside: replies, INFO, `/proc`. An error reply
//! ends the part: it has no figure then. Sizes are by default so small that a part ends within two minutes.

mod amplification;
mod cold;
mod deletes;
mod fill;
mod load;
mod memory;
mod places;
mod rates;
mod shape;
mod sides;
mod start;
mod types;
mod waiters;

use std::time::Duration;

use clap::ValueEnum;

use crate::Failure;
use crate::figure::Figure;
pub use shape::Shape;
pub use sides::Peer;
pub use types::{Setting, Type, plots};

/// What can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Requests a second of 50 clients
    Rates,
    /// The same of the usual commands of each type
    Types,
    /// Bytes of an element
    Memory,
    /// Reads from the device for each command
    ColdReads,
    /// Bytes given to the device for each byte of the user's
    WriteAmplification,
    /// Longest PING while a collection goes
    Deletes,
    /// Time to the first PING
    Start,
    /// Commands in the middle
    Places,
    /// From a push to who waited for it
    Waiters,
}

impl Part {
    /// All but `Types`, which takes longer, in the order in which they are measured.
    pub const USUAL: &[Self] = &[
        Self::Rates,
        Self::Memory,
        Self::ColdReads,
        Self::WriteAmplification,
        Self::Deletes,
        Self::Start,
        Self::Places,
        Self::Waiters,
    ];

    /// Elements when the shape does not say how many.
    #[must_use]
    pub fn elements(self) -> u64 {
        match self {
            Self::Rates | Self::Types => 100_000,
            Self::Memory => 200_000,
            Self::Deletes => 300_000,
            Self::WriteAmplification => 400_000,
            Self::ColdReads => 500_000,
            Self::Start | Self::Places => 1_000_000,
            Self::Waiters => 0,
        }
    }

    /// Length of a run when nobody says how long.
    #[must_use]
    pub fn duration(self) -> Duration {
        if self == Self::Types { Duration::from_secs(2) } else { Duration::from_millis(250) }
    }

    /// Runs of each side when nobody says how many.
    #[must_use]
    pub fn runs(self) -> usize {
        if self == Self::Types { 3 } else { 5 }
    }

    /// Measures it; `say` is told what runs.
    ///
    /// # Errors
    /// A server did not start, answered with an error, or ended.
    pub fn measure(self, shape: &Shape, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
        let elements = shape.elements.unwrap_or_else(|| self.elements());
        match self {
            Self::Types => types::measure(shape, elements, say),
            Self::Rates => rates::measure(shape, elements, say),
            Self::Memory => memory::measure(shape, elements, say),
            Self::ColdReads => cold::measure(shape, elements, say),
            Self::WriteAmplification => amplification::measure(shape, elements, say),
            Self::Deletes => deletes::measure(shape, elements, say),
            Self::Start => start::measure(shape, elements, say),
            Self::Places => places::measure(shape, elements, say),
            Self::Waiters => waiters::measure(shape, say),
        }
    }
}
