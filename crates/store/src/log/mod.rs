//! Engine `log`: the log is the database. Checkpoints, cleaning and cold reads over the journal.
//!
//! | module | what |
//! |---|---|
//! | [`checkpoint`] | bytes of checkpoint files |
//! | [`checkpoint_file`] | their life on disk |
//! | [`liveness`] | how much of each segment lives, what to clean and how fast |
//! | [`reader`] | the pool that fetches cold records |
//!
//! Out of scope: bytes of segments and batches, group commit (`journal`); the index (`index`).
//! Decisions: docs/adr/0003-cleaning-and-checkpoints.md.

pub(crate) mod checkpoint;
pub(crate) mod checkpoint_file;
pub(crate) mod fold;
pub(crate) mod liveness;
pub(crate) mod reader;
