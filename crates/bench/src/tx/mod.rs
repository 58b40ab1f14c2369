//! The load of `evenkeel bench tx`: empty transactions over two resources that answer at once, in this process.
//!
//! ```text
//!  run_once ──> log: opened in a fresh folder ──> Coordinator ──> clients: a lane on each thread
//!      └──────> log: closed and opened again: what it holds is compared with what was committed
//!  left ──> a log whose process was killed: what it holds, and whether damage to it would be seen
//! ```
//!
//! | clients | what |
//! |---|---|
//! | one a thread | begins, enlists two branches, commits and waits, again: what an application's thread does |
//! | many a thread | so many transactions under way on each lane; one that has ended is followed by the next |
//!
//! Invariants
//!   1. Any outcome but `Committed` is an error, and no transaction with an error is timed.
//!   2. Each commit that was reported has its record in the log's count; what is missing is lost.
//!   3. After a clean stop the log holds no record: nothing was left in doubt.
//!
//! Out of scope: work in the branches (the manager alone is measured), crashes (the tests of `txn`).
//! Source: the microbenchmark of the report on JBossTS with a journal as its log, 2011.

mod clients;
mod left;
mod log;
mod run;

pub use left::{Left, left};
pub use log::{LogKind, LogOptions};
pub use run::{Run, run_once};

use std::time::Duration;

/// Who commits, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Threads, each with a lane of its own.
    pub threads: usize,
    /// Transactions under way at a time, over all threads; `None`: each thread waits for its own.
    pub logical: Option<usize>,
    /// First part, which does not count.
    pub warm_up: Duration,
    /// The part that counts.
    pub duration: Duration,
}

impl Load {
    /// Transactions that are under way at a time.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.logical.unwrap_or(self.threads)
    }
}
