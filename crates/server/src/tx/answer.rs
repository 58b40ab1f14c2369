//! What a statement of a transaction came to, on its way to the connection that asked for it.

use std::time::Duration;

use sql::{Answered, StatementError};

/// What a statement came to.
#[derive(Debug)]
pub struct Answer {
    pub(crate) answered: Result<Answered, StatementError>,
    pub(crate) took: Duration,
}
