//! What ties a tuple to the spout batch that it comes from, and what is reported to that spout.
//!
//! A spout emits a *batch* of tuples, which is one **root**. Tuples of one root that travel together from a task to another are one
//! *parcel*, with one **token**: a random number that stands for work not yet done. The root keeps the XOR of all tokens that are
//! out:
//!
//! ```text
//!  a parcel with token t is done, and led to     reported to the spout
//!    nothing                                      t                 (the end of a branch)
//!    one parcel                                   nothing: the new parcel goes on under the token t
//!    parcels with new tokens u, v, ...            t ^ u ^ v ^ ...   (the tree splits)
//! ```
//!
//! So a chain of bolts costs one report for each batch, however long the chain is. The XOR is 0 when nothing is out, in whatever order reports come;
//! with 64-bit tokens it is 0 by mistake once in 2^64 trees.
//!
//! Invariants
//!   1. A report is applied at most once and as a whole. One that is lost leaves the XOR at other than 0: the root times out.
//!   2. A failure is in the report that has the token of its parcel: a failure that came later than the last token would be lost.
//!   3. A parcel that arrives twice and is done twice is reported with other new tokens or with the same token: what is left over
//!      delays the root until its time-out, and never completes it.
//!
//! Source: the XOR is Storm's (Marz 2011); tokens that go on where a tree does not split are ours.

use std::time::Duration;

use crate::ids::{ComponentId, TaskId};

/// A spout batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RootId {
    /// Whose batch.
    pub spout: TaskId,
    /// Which start of that task: what an earlier one has emitted is nobody's any more.
    pub life: u32,
    /// Which of its batches.
    pub number: u64,
}

/// The tuple of a spout that something comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ancestor {
    /// Its batch.
    pub root: RootId,
    /// Its place in the batch.
    pub origin: u32,
}

/// One root of a parcel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The root.
    pub root: RootId,
    /// What stands for this parcel in the root's XOR; never 0.
    pub token: u64,
    /// For a parcel with several anchors, which is one tuple: the place in this root of the tuple that it comes from.
    pub origin: u32,
}

/// What a task tells the spout of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The root.
    pub root: RootId,
    /// Tokens that are done and tokens that are new.
    pub xor: u64,
    /// Tuples of the parcel that failed.
    pub failed: Vec<Failure>,
    /// The time-out begins anew: a component is working on it.
    pub extends: bool,
}

/// A tuple that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Its place in the root's batch.
    pub origin: u32,
    /// The component that gave it up.
    pub component: ComponentId,
    /// Why, at most [`ERROR_BYTES_MAX`].
    pub error: String,
    /// What is to become of it.
    pub nack: Nack,
}

/// A negative acknowledgement, with the meanings of XNACK in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nack {
    /// Whose fault it is.
    pub blame: Blame,
    /// The next attempt begins so long from now; `None`: as the list of pauses says.
    pub delay: Option<Duration>,
}

/// Whose fault a failure is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blame {
    /// Nobody's: the component stops, say. The attempt does not count.
    Silent,
    /// It could not be processed now. The attempt counts.
    Fail,
    /// It never can be: it becomes a dead letter at once.
    Fatal,
}

impl Report {
    /// Takes over what `later` says, if it is of the same root; whether it is.
    pub(crate) fn absorb(&mut self, later: &mut Self) -> bool {
        let is_same = self.root == later.root;
        if is_same {
            self.xor ^= later.xor;
            self.failed.append(&mut later.failed);
            self.extends |= later.extends;
        }
        is_same
    }

    /// Whether it would change anything.
    pub(crate) fn says_something(&self) -> bool {
        self.xor != 0 || self.extends || !self.failed.is_empty()
    }
}

impl Nack {
    /// A failure that counts, after which the list of pauses holds.
    pub const FAIL: Self = Self { blame: Blame::Fail, delay: None };
    /// A failure that does not count.
    pub const SILENT: Self = Self { blame: Blame::Silent, delay: None };
}

impl Failure {
    /// A failure with `error` cut to [`ERROR_BYTES_MAX`].
    #[must_use]
    pub fn new(origin: u32, component: ComponentId, error: &str, nack: Nack) -> Self {
        let end = error.floor_char_boundary(ERROR_BYTES_MAX);
        Self { origin, component, error: error[..end].to_owned(), nack }
    }
}

/// Longest text of an error that is kept, in bytes.
pub const ERROR_BYTES_MAX: usize = 1_024;
