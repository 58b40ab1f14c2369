//! How a task fails: with words, for people who read them once.

/// What went wrong, in words that say what to do; the task fails with it.
pub(crate) type Failure = String;
