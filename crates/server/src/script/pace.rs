//! How long a run may take, and why it is over before its end.

use std::sync::Arc;

use clock::{Clock, Nanos};

use super::cache::Running;

/// How long a run may take.
#[derive(Clone, Debug)]
pub(crate) struct Pace {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) until: Nanos,
    /// How often it is looked at, at most; bounds a run where the clock stands still.
    pub(crate) looks_max: u32,
    /// Where it is told to stop.
    pub(crate) running: Option<Arc<Running>>,
}

/// Why a run is over that did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    /// The host said so.
    Host,
    /// It took longer than its pace allows.
    Time,
    Killed,
}
