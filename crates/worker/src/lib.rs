//! Runs a topology, or a worker's part of it, in one process: threads that drive the tasks of the core, and mailboxes between them.
//!
//! ```text
//!   thread 0                                        thread 1
//!   mailbox -> cells (task of the core + component) -> post -> mailbox -> cells ...
//!                 ^------ own tasks, no mailbox -----'
//! ```
//!
//! | module | what |
//! |---|---|
//! | [`running`] | start, activate, deactivate, kill with a wait, counters |
//! | `executor` | one thread: letters, timers, turns of its tasks, parking |
//! | `cell` | one task with its component: a turn; panics and pauses before a restart; state of bolts |
//! | `epochs` | exactly-once: the coordinator's thread, and what the server keeps of epochs |
//! | [`part`], `maker` | which tasks are this worker's; how they are made |
//! | `mailbox`, `post` | what threads send each other |
//! | [`links`], [`carrier`], `inbox` | what workers send each other |
//! | `quiet` | whether all is finished, asked only while a topology drains |
//! | [`stats`], `measured`, `times` | counters and latencies by components and edges; what the time of tasks goes to |
//! | `tap` | looks at what components emit |
//!
//! Invariants
//!   1. A task and its component are touched by one thread only.
//!   2. Tasks of one thread hand each other messages without a lock; messages of one task to another keep their order.
//!   3. A thread that has nothing to do waits in the kernel until a letter comes or the next timer is due.
//!   4. A panic of a component ends that component alone: its tuples fail, and another one is made after a pause.
//!
//! **Bounds.** A mailbox has what credits allow: `channel_bytes_max` for each channel, a few credits beside it, and one report for each root of what was
//! finished, of which there are at most `max_spout_pending` a spout task. A waker that is called often is one letter.
//!
//! Out of scope: which worker has which task (`supervisor`).
//! Source: docs/adr/0032-topologies.md.

pub mod carrier;
mod cell;
mod epochs;
mod executor;
mod inbox;
pub mod links;
mod mailbox;
mod maker;
mod measured;
pub mod part;
mod post;
mod quiet;
pub mod running;
pub mod stats;
mod sync;
mod tap;
mod times;
mod trouble;

pub use inbox::Inbox;
pub use part::{Move, Part};
pub use running::{Ended, Options, Running, StartError};
pub use stats::Stats;
