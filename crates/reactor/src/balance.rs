//! Loops that are evenly busy: where a new connection goes, which connections change loops, and which loop does not move.
//!
//! ```text
//!  counters of connections -> account -> decide -> orders to move        every balance.interval
//!  counters of loops       -> interval figures (INFO), arrivals          every balance.interval, also when it is off
//!  heartbeats              -> watchdog -> log, INFO                      every quarter of a second
//!  threads and cores       -> active -> loops that park or wake          every tenth of a second, while loops work
//! ```
//!
//! What decides is pure ([`decide`], [`account`], [`assign`], [`active`]): counters in, orders out, no clock, no threads, no atomics. The
//! [`runner`] is a thread of its own: the acceptor must not stop accepting while twenty thousand accounts are closed, and a
//! loop cannot watch itself.
//!
//! The load of a connection is the time between its loop's looks at the clock around its callbacks, scaled by the processor time
//! of the loop's thread in the same interval: a loop that was not running, or that waited for the disk, does not blame its
//! connections. docs/adr/0005-balance.md has what was weighed, also for the number of loops.

pub(crate) mod account;
pub(crate) mod active;
pub(crate) mod active_count;
mod adapt;
pub(crate) mod assign;
mod decide;
#[cfg(test)]
mod machine;
mod resize;
pub(crate) mod runner;
pub(crate) mod signals;
#[cfg(test)]
mod simulation;
pub(crate) mod steering;
mod watchdog;

use std::time::Duration;

pub(crate) use watchdog::STUCK_AFTER;

/// What a connection's load is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum By {
    /// Time that its loop spent on it.
    #[default]
    Time,
    /// Bytes read and written.
    Bytes,
    /// Reads and writes.
    Events,
}

/// Which loop a new connection goes to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Assignment {
    /// The one that has least to do, and of equals the one with the fewest connections.
    #[default]
    LeastLoaded,
    /// One after the other.
    RoundRobin,
    /// The one that has the other connections from the same IP address. Such connections are not moved by the balancer.
    ByHost,
}

/// How connections are balanced; changeable at run time through [`crate::Handle::set_balance`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// How often loops are compared; `None`: connections stay where they are.
    pub interval: Option<Duration>,
    /// What is compared.
    pub by: By,
    /// Difference between the busiest and the idlest loop, in percent of the busiest, up to which nothing is done.
    pub threshold_percent: u16,
}

impl Default for Balance {
    fn default() -> Self {
        Self { interval: Some(INTERVAL), by: By::Time, threshold_percent: 10 }
    }
}

/// How often figures are taken when balancing is off.
const INTERVAL: Duration = Duration::from_secs(5);
