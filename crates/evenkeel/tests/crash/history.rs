//! What each key may hold, given what was sent, acknowledged and read. Pure: no I/O, no threads.
//!
//! A key has one writer, so its states form a line of **versions**: 0 is what it held when the round began,
//! and each write adds one. At any moment the server is at one version.
//!
//! ```text
//!   version   0 ......... acked ........ sent
//!                           |             +-- newest that was ever sent: beyond it, all is invented
//!                           +-- newest that was acknowledged: before it, all is lost
//! ```
//!
//! A read is sent when `acked` is known and answered before `sent` is asked, so what it saw is a version
//! between the two. The oldest version that fits it is the read's **floor**: a server that is behind a
//! floor after a crash took back what a reader saw, absence included.
//!
//! Under a server that evicts keys any version may vanish, and then stays away until the next write: whoever saw it gone must not see
//! it again, before a crash or after it.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use clock::Nanos;

/// Clocks of two processes are compared, and servers count milliseconds.
const SLACK: Duration = Duration::from_millis(50);

pub type Version = u64;

/// What a key holds at one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Absent,
    /// The value that `written` made, until the deadline, if there is one.
    Present {
        written: Version,
        deadline: Option<Deadline>,
    },
}

/// When a key goes away by itself: known to lie between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline {
    pub earliest: Nanos,
    pub latest: Nanos,
}

/// What somebody learnt of a key's deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expires {
    Unknown,
    Never,
    Between(Nanos, Nanos),
}

/// What somebody saw of a key, some time between two moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The version that wrote the value; `None` for nil.
    pub value: Option<Version>,
    pub expires: Expires,
    pub from: Nanos,
    pub to: Nanos,
}

impl State {
    fn fits(self, sight: &Sight, evicts: bool) -> bool {
        match (self, sight.value) {
            (Self::Present { .. }, None) if evicts => true,
            (Self::Absent, None) => true,
            (Self::Absent, Some(_)) => false,
            (Self::Present { deadline, .. }, None) => {
                deadline.is_some_and(|deadline| sight.to + SLACK >= deadline.earliest)
            }
            (Self::Present { written, deadline }, Some(seen)) => {
                let in_time = deadline.is_none_or(|deadline| sight.from <= deadline.latest + SLACK);
                written == seen && in_time && sight.expires.fits(deadline)
            }
        }
    }
}

impl Expires {
    fn fits(self, deadline: Option<Deadline>) -> bool {
        match (self, deadline) {
            (Self::Unknown, _) | (Self::Never, None) => true,
            (Self::Never, Some(_)) | (Self::Between(..), None) => false,
            (Self::Between(from, to), Some(deadline)) => {
                from <= deadline.latest + SLACK && to + SLACK >= deadline.earliest
            }
        }
    }
}

/// The version a reader has seen, at least; `gone` when it saw that version expired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Floor {
    pub version: Version,
    pub gone: bool,
}

/// The line of versions of one key.
#[derive(Clone, Debug)]
pub struct History {
    base: Version,
    states: Vec<State>,
    acked: Version,
    floor: Floor,
    /// The server may evict the key.
    evicts: bool,
    /// Since the last start, by version: when it was first known to be gone, and when a read that found it was last sent.
    seen: BTreeMap<Version, (Option<Nanos>, Option<Nanos>)>,
}

impl History {
    /// A key that was never written, and that the server may evict or not.
    pub fn new(evicts: bool) -> Self {
        let (floor, seen) = Default::default();
        Self { base: 0, states: vec![State::Absent], acked: 0, floor, evicts, seen }
    }

    /// Whether the server may evict the key.
    pub fn evicts(&self) -> bool {
        self.evicts
    }

    pub fn sent(&self) -> Version {
        self.base + self.states.len() as u64 - 1
    }

    pub fn acked(&self) -> Version {
        self.acked
    }

    pub fn newest(&self) -> State {
        self.states[self.states.len() - 1]
    }

    /// Adds a version that is about to be sent.
    pub fn send(&mut self, state: State) -> Version {
        self.states.push(state);
        self.sent()
    }

    /// Records that `version` was acknowledged at `now`, which also bounds the deadline it may have set.
    pub fn acknowledge(&mut self, version: Version, now: Nanos, ttl: Option<Duration>) {
        assert!(self.acked <= version && version <= self.sent(), "replies come in order");
        self.acked = version;
        if let (State::Present { deadline: Some(deadline), .. }, Some(ttl)) = (self.state_mut(version), ttl) {
            deadline.latest = now + ttl;
        }
    }

    /// Records that `version`, which would have kept a value, found none.
    pub fn found_none(&mut self, version: Version) {
        *self.state_mut(version) = State::Absent;
    }

    /// Records what a reader saw while the server was between two versions.
    pub fn observe(&mut self, between: RangeInclusive<Version>, sight: &Sight) -> Result<(), Violation> {
        let oldest = self.fitting(between.clone(), sight).next();
        match oldest {
            Some(version) => {
                self.raise_floor(version, sight);
                self.note(between, sight)
            }
            None => Err(self.violation("a reader saw what was not there", between, sight)),
        }
    }

    /// Takes note of what was seen of which version, if that is certain.
    fn note(&mut self, between: RangeInclusive<Version>, sight: &Sight) -> Result<(), Violation> {
        let mut fitting = self.fitting(between.clone(), sight);
        let (Some(version), None) = (fitting.next(), fitting.next()) else { return Ok(()) };
        drop(fitting);
        let (gone, there) = self.seen.entry(version).or_default();
        match sight.value {
            None => *gone = Some(gone.map_or(sight.to, |gone| gone.min(sight.to))),
            Some(_) => *there = (*there).max(Some(sight.from)),
        }
        match (*gone, *there) {
            (Some(gone), Some(there)) if gone < there => {
                Err(self.violation("what a reader saw gone came back", between, sight))
            }
            _ => Ok(()),
        }
    }

    /// As [`History::observe`] for two keys that are only written together, and were read together.
    pub fn observe_pair(
        pair: [&mut Self; 2],
        between: RangeInclusive<Version>,
        sights: &[Sight; 2],
    ) -> Result<(), Violation> {
        let [one, two] = pair;
        let mut both = one.fitting(between.clone(), &sights[0]).filter(|&v| two.fits(v, &sights[1]));
        let oldest = both.next();
        drop(both);
        let Some(version) = oldest else {
            return Err(one.violation("a reader saw half of a transaction", between, &sights[0]));
        };
        one.raise_floor(version, &sights[0]);
        two.raise_floor(version, &sights[1]);
        one.note(between.clone(), &sights[0])?;
        two.note(between, &sights[1])
    }

    /// Settles on the version that a restarted server is at.
    pub fn settle(&mut self, sight: &Sight) -> Result<(), Violation> {
        let version = self.survivors(sight)?.pop().expect("survivors are not empty");
        self.restart_at(version, sight);
        Ok(())
    }

    /// Settles two keys that are only written together on one version.
    pub fn settle_pair(pair: [&mut Self; 2], sights: &[Sight; 2]) -> Result<(), Violation> {
        let [one, two] = pair;
        let (first, second) = (one.survivors(&sights[0])?, two.survivors(&sights[1])?);
        match first.iter().rev().find(|version| second.contains(version)) {
            None => Err(one.violation("half of a transaction survived", one.acked..=one.sent(), &sights[0])),
            Some(&version) => {
                one.restart_at(version, &sights[0]);
                two.restart_at(version, &sights[1]);
                Ok(())
            }
        }
    }

    /// Versions that the server may be at after a crash, oldest first; never empty.
    fn survivors(&self, sight: &Sight) -> Result<Vec<Version>, Violation> {
        let oldest = self.acked.max(self.floor.version);
        let taken_back = |version| version == self.floor.version && self.floor.gone && sight.value.is_some();
        let survivors: Vec<_> =
            self.fitting(oldest..=self.sent(), sight).filter(|&version| !taken_back(version)).collect();
        if !survivors.is_empty() {
            return Ok(survivors);
        }
        let older = self.fitting(self.base..=self.sent(), sight).last();
        let what = match older {
            Some(version) if version >= self.acked => "what a reader saw was taken back",
            Some(_) => "an acknowledged write is lost",
            None => "the value was never written, or outlived its deadline",
        };
        Err(self.violation(what, oldest..=self.sent(), sight))
    }

    fn restart_at(&mut self, version: Version, sight: &Sight) {
        // what is gone stays away, whatever took it
        self.states = vec![if sight.value.is_none() { State::Absent } else { self.state(version) }];
        self.seen.clear();
        self.base = version;
        self.acked = version;
        self.floor = Floor { version, gone: false };
    }

    fn raise_floor(&mut self, version: Version, sight: &Sight) {
        let gone = sight.value.is_none() && self.state(version) != State::Absent;
        self.floor = self.floor.max(Floor { version, gone });
    }

    fn fitting(&self, between: RangeInclusive<Version>, sight: &Sight) -> impl Iterator<Item = Version> {
        between
            .filter(|&version| version >= self.base && version <= self.sent())
            .filter(|&version| self.fits(version, sight))
    }

    fn fits(&self, version: Version, sight: &Sight) -> bool {
        self.state(version).fits(sight, self.evicts)
    }

    fn state(&self, version: Version) -> State {
        self.states[(version - self.base) as usize]
    }

    fn state_mut(&mut self, version: Version) -> &mut State {
        &mut self.states[(version - self.base) as usize]
    }

    fn violation(&self, what: &'static str, between: RangeInclusive<Version>, sight: &Sight) -> Violation {
        let Self { acked, floor, .. } = self;
        let around = between.start().saturating_sub(3).max(self.base)..=*between.end();
        let states: Vec<_> = around.take(12).map(|version| (version, self.state(version))).collect();
        let known = format!("acked {acked}, sent {}, floor {floor:?}", self.sent());
        Violation { what, evidence: format!("{sight:?}; {known}, possible {between:?}, of {states:?}") }
    }
}

/// A broken promise, with what shows it.
#[derive(Clone, Debug)]
pub struct Violation {
    pub what: &'static str,
    #[expect(dead_code, reason = "read through Debug")]
    evidence: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(version: Version) -> State {
        State::Present { written: version, deadline: None }
    }

    fn saw(value: Option<Version>) -> Sight {
        Sight { value, expires: Expires::Unknown, from: Nanos(1_000), to: Nanos(2_000) }
    }

    /// SET (1, acked), DEL (2, acked), SET (3, sent).
    fn history() -> History {
        let mut history = History::new(false);
        history.send(value(1));
        history.send(State::Absent);
        history.send(value(3));
        history.acknowledge(1, Nanos(1), None);
        history.acknowledge(2, Nanos(2), None);
        history
    }

    #[test]
    fn unacknowledged_write_may_or_may_not_survive() {
        for seen in [None, Some(3)] {
            let mut history = history();
            history.settle(&saw(seen)).unwrap();
            assert_eq!(history.acked(), if seen.is_some() { 3 } else { 2 });
        }
    }

    #[test]
    fn deleted_value_that_comes_back_is_a_lost_write() {
        assert_eq!(history().settle(&saw(Some(1))).unwrap_err().what, "an acknowledged write is lost");
    }

    #[test]
    fn value_that_was_never_sent_is_invented() {
        assert!(history().settle(&saw(Some(7))).unwrap_err().what.contains("never written"));
    }

    #[test]
    fn value_that_a_reader_saw_must_survive() {
        let mut history = history();
        history.observe(2..=3, &saw(Some(3))).unwrap();
        assert_eq!(history.settle(&saw(None)).unwrap_err().what, "what a reader saw was taken back");
    }

    #[test]
    fn absence_that_a_reader_saw_must_survive() {
        let mut history = History::new(false);
        history.send(value(1));
        history.acknowledge(1, Nanos(1), None);
        history.send(State::Absent);
        history.observe(1..=2, &saw(None)).unwrap();
        assert_eq!(history.settle(&saw(Some(1))).unwrap_err().what, "what a reader saw was taken back");
    }

    #[test]
    fn stale_read_is_found() {
        assert!(history().observe(2..=3, &saw(Some(1))).is_err());
    }

    #[test]
    fn expired_key_that_a_reader_missed_does_not_come_back() {
        let mut history = History::new(false);
        let deadline = Deadline { earliest: Nanos(0), latest: Nanos(u64::MAX / 2) };
        history.send(State::Present { written: 1, deadline: Some(deadline) });
        history.acknowledge(1, Nanos(1), None);
        assert!(history.clone().settle(&saw(Some(1))).is_ok());
        history.observe(1..=1, &saw(None)).unwrap();
        assert_eq!(history.settle(&saw(Some(1))).unwrap_err().what, "what a reader saw was taken back");
    }

    #[test]
    fn key_that_outlives_or_misses_its_deadline_is_found() {
        let mut history = History::new(false);
        let (early, late) = (Nanos(0) + Duration::from_secs(5), Nanos(0) + Duration::from_secs(6));
        let deadline = Some(Deadline { earliest: early, latest: late });
        history.send(State::Present { written: 1, deadline });
        history.acknowledge(1, Nanos(1), None);
        assert!(history.observe(1..=1, &saw(None)).is_err(), "too early to be gone");
        let (from, to) = (late + SLACK + SLACK, late + SLACK + SLACK + SLACK);
        assert!(history.observe(1..=1, &Sight { from, to, ..saw(Some(1)) }).is_err(), "too late to be there");
    }

    #[test]
    fn lost_time_to_live_is_found() {
        let mut history = History::new(false);
        history.send(value(1));
        history.send(State::Present {
            written: 1,
            deadline: Some(Deadline { earliest: Nanos(1 << 40), latest: Nanos(1 << 41) }),
        });
        history.acknowledge(1, Nanos(1), None);
        let never = Sight { expires: Expires::Never, ..saw(Some(1)) };
        assert!(history.clone().settle(&never).is_ok(), "the unacknowledged PEXPIRE may be lost");
        history.acknowledge(2, Nanos(2), None);
        assert!(history.clone().settle(&never).is_err());
        let then = Sight { expires: Expires::Between(Nanos(1 << 40), Nanos(1 << 40)), ..never };
        history.settle(&then).unwrap();
    }

    #[test]
    fn evicted_key_stays_away_and_no_older_value_shows() {
        let at = |ms, value| Sight { from: Nanos(ms), to: Nanos(ms + 1), ..saw(value) };
        let mut history = History::new(true);
        history.send(value(1));
        history.send(value(2));
        history.acknowledge(2, Nanos(1), None);
        history.clone().settle(&at(9, None)).unwrap();
        assert_eq!(
            history.clone().settle(&at(9, Some(1))).unwrap_err().what,
            "an acknowledged write is lost"
        );
        history.observe(2..=2, &at(5, None)).unwrap();
        assert_eq!(
            history.clone().settle(&at(9, Some(2))).unwrap_err().what,
            "what a reader saw was taken back"
        );
        history.clone().observe(2..=2, &at(3, Some(2))).unwrap();
        let back = history.clone().observe(2..=2, &at(9, Some(2))).unwrap_err();
        assert_eq!(back.what, "what a reader saw gone came back");
        history.settle(&at(9, None)).unwrap();
        assert!(history.observe(2..=2, &at(20, Some(2))).is_err(), "it was gone after the start");
    }

    #[test]
    fn half_of_a_transaction_is_found() {
        let (mut one, mut two) = (History::new(false), History::new(false));
        for key in [&mut one, &mut two] {
            key.send(value(1));
        }
        let half = [saw(Some(1)), saw(None)];
        assert!(History::observe_pair([&mut one, &mut two], 0..=1, &half).is_err());
        assert_eq!(
            History::settle_pair([&mut one, &mut two], &half).unwrap_err().what,
            "half of a transaction survived"
        );
        History::settle_pair([&mut one, &mut two], &[saw(None), saw(None)]).unwrap();
    }
}
