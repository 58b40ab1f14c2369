//! Which branches that resources hold prepared are orphans.

/// Recovery from the resources up.
#[derive(Debug)]
pub struct Recovery;
