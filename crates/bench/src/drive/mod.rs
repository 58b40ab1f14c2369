//! The load engine: clients of any server of Redis's protocol, or memcached's, on the reactor's loops.
//!
//! ```text
//!  Phase ──> Task for each group ──> Session of each connection: encode, send, match replies, record
//!              ^   quota, deadline        |
//!   pacer ─────+   (open loop)            v
//!                      recorder of each loop ──> rows, an interval each ──> Outcome
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
//! A capture is played by connections of their own ([`play`]): what each sends, and when, is the capture's.
//!
//! Several processes drive as one ([`Workers`]): phases are split, outcomes merged.

mod fleet;
pub(crate) mod memcached;
mod outcome;
mod player;
mod processes;
mod recorder;
pub(crate) mod reply;
mod script;
mod session;
mod target;
mod task;
mod work;

pub use fleet::{Fleet, FleetOptions};
pub use outcome::{Failures, GroupOutcome, Outcome, Row, Sparse};
pub use player::{Played, Playing, Speed, play};
pub use processes::{Drivers, Workers, work_for_parent};
pub use recorder::Tally;
pub use script::{Recorded, Script};
pub use target::{Protocol, Target};
pub use work::{Action, Group, KeyForm, Keys, Limit, Phase, Pick, Work};
