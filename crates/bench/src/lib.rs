//! Measuring servers: `evenkeel bench` for everybody, and the project's own figures.
//!
//! - `drive` is the load engine, `experiment` what `evenkeel bench` does with it: for any server, in a user's hands.
//! - `suite` are the comparisons that docs/benchmarks/figures.md shows, `limit` the servers that do the least there is to do.
//!
//! Everything measured here is measured from outside: servers are processes of their own (`servers`), driven by
//! redis-benchmark or by our own engine (`load`), A and B alternating on the same machine (`suite`). A run in which
//! one request failed is invalid and ends the figure (`figure`).
//!
//! Not for production: errors are texts, and files and clocks are used directly.

#![allow(
    clippy::disallowed_methods,
    reason = "measures the real machine from outside: no simulation runs it"
)]

mod asked;
pub mod client;
pub mod collections;
pub mod count;
pub mod drive;
pub mod experiment;
pub mod figure;
#[doc(hidden)]
pub mod fuzzing;
pub mod limit;
pub mod load;
mod maven;
mod plot;
pub mod process;
pub mod report;
pub mod servers;
mod storm;
pub mod suite;
pub mod topology;
pub mod transport;
pub mod tx;

/// What went wrong, in words; a figure fails with it.
pub type Failure = String;

/// Values of the command line that say what they are called there.
pub trait Named: clap::ValueEnum {
    /// As it is typed, and in reports.
    fn name(&self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl<T: clap::ValueEnum> Named for T {}
