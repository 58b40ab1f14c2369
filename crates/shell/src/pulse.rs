//! Whether a child still answers: any message shows that it lives; one that owes an answer for too long is given up.
//!
//! A bolt is asked by a heartbeat when it has said nothing for a while. A spout is asked nothing beside its commands: it owes an answer while one
//! is out.

use std::time::Duration;

use clock::Nanos;

/// When a child said something last, and what it owes.
#[derive(Clone, Copy, Debug)]
pub struct Pulse {
    /// The last message, or when it began to owe an answer.
    since: Nanos,
    owes: bool,
    timeout: Duration,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beat {
    /// Nothing.
    Rest,
    /// Ask it.
    Ask,
    /// Give it up.
    Dead,
}

impl Pulse {
    /// A child that was started at `now`, and owes the answer to its handshake.
    #[must_use]
    pub fn new(now: Nanos, timeout: Duration) -> Self {
        Self { since: now, owes: true, timeout }
    }

    /// It said something. Whether it owes more is a matter of what it was told.
    pub fn on_message(&mut self, now: Nanos, owes: bool) {
        (self.since, self.owes) = (now, owes);
    }

    /// It was told something that it has to answer.
    pub fn on_told(&mut self, now: Nanos) {
        if !self.owes {
            (self.since, self.owes) = (now, true);
        }
    }

    /// What is to be done now; `may_ask`: it takes heartbeats.
    #[must_use]
    pub fn poll(&self, now: Nanos, may_ask: bool) -> Beat {
        let rested = now.since(self.since);
        match self.owes {
            true if rested >= self.timeout => Beat::Dead,
            false if may_ask && rested >= self.timeout / ASKS => Beat::Ask,
            _ => Beat::Rest,
        }
    }

    /// When there may be something to do.
    #[must_use]
    pub fn next_due(&self, may_ask: bool) -> Option<Nanos> {
        match (self.owes, may_ask) {
            (true, _) => Some(self.since + self.timeout),
            (false, true) => Some(self.since + self.timeout / ASKS),
            (false, false) => None,
        }
    }
}

/// A child that rests is asked so often in the time that it has for an answer.
const ASKS: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Nanos {
        Nanos(0) + Duration::from_secs(seconds)
    }

    #[test]
    fn child_that_does_not_answer_is_given_up_at_its_time_and_not_earlier() {
        let mut pulse = Pulse::new(at(0), TIMEOUT);
        assert_eq!((pulse.poll(at(29), true), pulse.poll(at(30), true)), (Beat::Rest, Beat::Dead));
        pulse.on_message(at(29), false);
        assert_eq!((pulse.poll(at(31), true), pulse.poll(at(32), true)), (Beat::Rest, Beat::Ask));
        assert_eq!(pulse.next_due(true), Some(at(32)));
        pulse.on_told(at(32));
        pulse.on_told(at(40));
        assert_eq!((pulse.poll(at(61), true), pulse.poll(at(62), true)), (Beat::Rest, Beat::Dead));
    }

    #[test]
    fn spout_that_owes_nothing_may_rest_for_ever() {
        let mut pulse = Pulse::new(at(0), TIMEOUT);
        pulse.on_message(at(1), false);
        assert_eq!((pulse.poll(at(1_000), false), pulse.next_due(false)), (Beat::Rest, None));
        pulse.on_told(at(1_000));
        assert_eq!(pulse.next_due(false), Some(at(1_030)));
    }
}
