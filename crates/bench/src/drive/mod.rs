//! The load engine: clients of any server of Redis's protocol, or memcached's, on the reactor's loops.
//!
//! ```text
//!  Group  ──> Load ─┐
//!  Script ──> Play ─┴> Source of a Task ──> Session of each connection: encode, send, match replies, record
//!                          ^                   |
//!   pacer, of what has a time of its own       v
//!                           recorder of each loop ──> rows, an interval each ──> Outcome
//! ```
//!
//! A *closed loop* sends the next request when a reply has come, up to `depth` under way on each connection. An *open
//! loop* has its times fixed in advance, and latency counts from the planned time: a server that stalls is charged for
//! all that should have been sent meanwhile (no coordinated omission).
//!
//! Invariants
//!   1. Each request that was sent ends as exactly one of: answered, answered with an error, timed out, unanswered.
//!   2. What failed is counted and never timed: survivors mislead. An outcome with a failure is not valid.
//!   3. A phase ends only when every connection has ended its part: what a phase did is complete before the next begins.
//!
//! A capture is played ([`Fleet::play`]) by the same connections: what each sends, and when, is the capture's.
//!
//! Several processes drive as one ([`Workers`]): phases are split, outcomes merged.

mod fleet;
mod load;
pub(crate) mod memcached;
mod outcome;
mod play;
mod processes;
mod recorder;
pub(crate) mod reply;
mod script;
mod session;
mod source;
mod tally;
mod task;
mod work;

pub use connection::{Protocol, Target};
pub(crate) use fleet::PATIENCE;
pub use fleet::{Fleet, FleetOptions};
pub(crate) use outcome::per_second;
pub use outcome::{GroupOutcome, Outcome, Row, Sparse};
pub use play::{Playing, Speed};
pub use processes::{Drivers, Workers, work_for_parent};
pub use recorder::Recorder;
pub use script::{Recorded, Script};
pub(crate) use tally::new_histogram;
pub use tally::{Failures, Tally};
pub use work::{Action, Group, KeyForm, Keys, Limit, Phase, Pick, Work};
pub(crate) use work::{CHURNED_BYTES_MAX, CHURNED_BYTES_MEAN, Random};
