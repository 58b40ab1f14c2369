//! Whether a topology emits: activate, deactivate, kill with a wait.
//!
//! ```text
//!   Active <-> Inactive       kill: either -> Draining --all is finished, or the wait is over--> Stopped
//! ```
//!
//! Invariants
//!   1. Spouts emit new tuples in [`State::Active`] alone.
//!   2. A kill cannot be taken back, and comes to its end at the wait's end at the latest.

use std::time::Duration;

use clock::Nanos;

/// Where a topology stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Spouts emit.
    Active,
    /// Spouts emit nothing new; what is out is finished.
    Inactive,
    /// As inactive, until all is finished or this time.
    Draining(Nanos),
    /// Nothing runs.
    Stopped,
}

/// The life of a topology.
#[derive(Debug)]
pub struct Lifecycle {
    state: State,
}

impl Lifecycle {
    /// A topology that was just submitted: it is active.
    #[must_use]
    pub fn new() -> Self {
        Self { state: State::Active }
    }

    /// Where it stands.
    #[must_use]
    pub fn state(&self) -> State {
        self.state
    }

    /// Lets spouts emit; whether the state allows it.
    pub fn activate(&mut self) -> bool {
        self.turn(State::Active)
    }

    /// Lets spouts emit nothing new; whether the state allows it.
    pub fn deactivate(&mut self) -> bool {
        self.turn(State::Inactive)
    }

    /// Stops it when all is finished, or after `wait`. A second kill may only shorten the wait.
    pub fn kill(&mut self, now: Nanos, wait: Duration) {
        self.state = match self.state {
            State::Active | State::Inactive => State::Draining(now + wait),
            State::Draining(until) => State::Draining(until.min(now + wait)),
            State::Stopped => State::Stopped,
        };
    }

    /// Time has passed; `is_idle`: every task has finished what it had.
    pub fn on_time(&mut self, now: Nanos, is_idle: bool) -> State {
        if let State::Draining(until) = self.state
            && (is_idle || until <= now)
        {
            self.state = State::Stopped;
        }
        self.state
    }

    fn turn(&mut self, to: State) -> bool {
        let may = matches!(self.state, State::Active | State::Inactive);
        if may {
            self.state = to;
        }
        may
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    #[test]
    fn killed_topology_stops_when_it_is_idle() {
        let mut life = Lifecycle::new();
        life.kill(Nanos(0), WAIT);
        assert_eq!(life.on_time(Nanos(1), false), State::Draining(Nanos(0) + WAIT));
        assert_eq!(life.on_time(Nanos(2), true), State::Stopped);
    }

    #[test]
    fn killed_topology_that_does_not_finish_stops_at_the_end_of_the_wait_which_may_be_shortened() {
        let mut life = Lifecycle::new();
        life.kill(Nanos(0), WAIT);
        life.kill(Nanos(5), 2 * WAIT);
        assert_eq!(life.state(), State::Draining(Nanos(0) + WAIT));
        life.kill(Nanos(5), Duration::from_nanos(10));
        assert_eq!(life.on_time(Nanos(14), false), State::Draining(Nanos(15)));
        assert_eq!(life.on_time(Nanos(15), false), State::Stopped);
    }

    #[test]
    fn activation_ends_with_a_kill() {
        let mut life = Lifecycle::new();
        assert!(life.deactivate() && life.state() == State::Inactive && life.activate());
        life.kill(Nanos(0), WAIT);
        assert!(!life.activate() && !life.deactivate());
        life.on_time(Nanos(0), true);
        life.kill(Nanos(9), WAIT);
        assert_eq!(life.state(), State::Stopped);
    }
}
