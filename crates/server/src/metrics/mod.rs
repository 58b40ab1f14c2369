//! All figures of a server at one moment, and how they are written.
//!
//! ```text
//!  counters of loops, commands, journal, store, process -> Snapshot -> prometheus (text for a scrape)
//!                                                                  \-> json (a line of the metrics file)
//!  supervisor -> storm (JSON of topologies for tools that know Storm's) -> console (a page for a browser)
//! ```
//!
//! A snapshot (`snapshot`) is plain values: what renders it asks nobody.
//!
//! Out of scope: INFO, which reads the same counters for the sections that were asked for; serving and keeping texts.

pub(crate) mod console;
#[cfg(test)]
mod example;
mod json;
pub(crate) mod process;
mod prometheus;
mod snapshot;
pub(crate) mod storm;

pub use crate::tx::{ResourceFigures, TransactionFigures};
pub use console::CONSOLE_PAGE;
pub use process::{ProcessFigures, resident_bytes};
pub use snapshot::{
    ActiveFigures, CallFigures, CommandFigures, ConnectionFigures, JournalFigures, KeyFigures, LoopFigures,
    MemoryFigures, Snapshot,
};

impl Snapshot {
    /// As a page that Prometheus scrapes, in its text format 0.0.4.
    #[must_use]
    pub fn prometheus(&self) -> String {
        prometheus::text(self)
    }

    /// As one line of JSON, without its end. Shares are of the time since `former`, or since the start.
    #[must_use]
    pub fn json(&self, former: Option<&Snapshot>) -> String {
        json::line(self, former)
    }
}
