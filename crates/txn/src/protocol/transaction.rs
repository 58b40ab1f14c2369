//! One transaction from begin to forget.

/// One transaction.
#[derive(Debug)]
pub struct Transaction;
