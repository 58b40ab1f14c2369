//! What goes wrong in a component, and what becomes of the tuple that it had.

use std::error::Error;
use std::fmt::Write;
use std::time::Duration;

use crate::anchor::{Blame, Nack};

/// What went wrong. Any error becomes one by `?`: then the tuple is tried again after the topology's list of pauses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    error: String,
    nack: Nack,
    is_pending: bool,
}

impl Fault {
    /// A failure for now: the attempt counts, and the tuple is tried again.
    #[must_use]
    pub fn new(error: impl Into<String>) -> Self {
        Self { error: error.into(), nack: Nack::FAIL, is_pending: false }
    }

    /// The tuple can never be processed: it becomes a dead letter at once.
    #[must_use]
    pub fn fatal(error: impl Into<String>) -> Self {
        Self::new(error).with(Blame::Fatal)
    }

    /// Not the tuple's fault: the attempt does not count.
    #[must_use]
    pub fn silent(error: impl Into<String>) -> Self {
        Self::new(error).with(Blame::Silent)
    }

    /// State that the component needs is being read: it is called again with the same tuple when that is known.
    pub(super) fn pending() -> Self {
        Self { is_pending: true, ..Self::silent("its state is being read") }
    }

    /// Whether nothing is wrong but that state is being read.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// The same, and the next attempt begins after `delay` instead of what the list of pauses says.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.nack.delay = Some(delay);
        self
    }

    /// What went wrong, with its causes.
    #[must_use]
    pub fn error(&self) -> &str {
        &self.error
    }

    /// What becomes of the tuple.
    #[must_use]
    pub fn nack(&self) -> Nack {
        self.nack
    }

    fn with(mut self, blame: Blame) -> Self {
        self.nack.blame = blame;
        self
    }
}

impl<E: Error> From<E> for Fault {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            let _ = write!(text, ": {error}");
            cause = error.source();
        }
        Self::new(text)
    }
}
