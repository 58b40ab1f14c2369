//! Transactions over several resources: prepare in parallel, one durable decision, recovery from both sides.
//!
//! ```text
//!  application -> Lane (begin, enlist, commit) -> Transaction (machine without I/O) -> Resource: prepare, commit, roll back
//!                   ^- answers, decisions that are durable <------------------------- DecisionLog: one sync for many
//! ```
//!
//! A program that commits over two resources, here dummies:
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use txn::coordinator::{Coordinator, Options, Started};
//! use txn::{decision_log::journal::JournalLog, dummy::Dummy, id::NodeName, protocol::Outcome};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let (clock, folder) = (Arc::new(clock::SystemClock), tempfile::tempdir()?);
//! let node = NodeName::new("shop-1")?;
//! let disk = Arc::new(vfs::RealDisk);
//! let log = JournalLog::open(disk, clock.clone(), folder.path(), &node, journal::Options::default())?;
//! let coordinator = Coordinator::start(
//!     clock,
//!     log.log,
//!     &Started { epoch: log.epoch, born: log.born, records: log.records },
//!     vec![Arc::new(Dummy::new("orders")), Arc::new(Dummy::new("stock"))],
//!     Options::new(node),
//! )?;
//!
//! let mut lane = coordinator.lane();
//! let tx = lane.begin(Duration::from_secs(30))?;
//! let (_orders, _stock) = (lane.enlist(tx, 0)?, lane.enlist(tx, 1)?);
//! // ... work in both branches, then:
//! assert_eq!(lane.commit_and_wait(tx)?, Outcome::Committed);
//! # Ok(())
//! # }
//! ```
//!
//! Invariants
//!   1. A branch is asked to commit only after the decision is durable (or it is the only one that wrote).
//!   2. `Aborted` is said only when no branch has committed or ever will; when the decision may be on disk, `Unknown` is said.
//!   3. One durable wait a transaction: the decision. Its removal rides along with a later one.
//!   4. What is not in the log was not committed (presumed abort); so a log that cannot be read whole is not opened.
//!   5. Only branches with this node's name, byte for byte, are ever touched by recovery.
//!
//! Out of scope: isolation between resources (atomic commit is not atomic visibility); the protocol by which applications talk to a
//! server (`server`); databases (`sql`).
//! Source: Gray 1978; Mohan, Lindsay 1983 (presumed abort); JBossTS's object store on a journal.

mod commit_delay;
pub mod coordinator;
pub mod decision_log;
pub mod dummy;
mod event_count;
pub mod id;
mod inbox;
mod info;
pub mod lane;
pub mod phases;
pub mod protocol;
pub mod record;
mod recovery_manager;
pub mod resource;
mod shared;
pub mod shared_lane;
pub mod steps;
mod table;
