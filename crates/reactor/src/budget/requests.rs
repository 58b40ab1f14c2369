//! Room for long requests: who has it, who waits for it, and who has to go so that somebody gets on.
//!
//! ```text
//!             fits                       all came, and was answered
//!  ask ---------------------> granted ---------------------------------> given back
//!   |                            |  a wait is under way and next to nothing came: stalled, closed
//!   | does not fit               v
//!   +--> waits --- poll -----> granted
//!   |      |  for longer than the longest wait, or all who have room wait for more: refused, closed
//!   +--> never: more than all there is
//! ```
//!
//! Invariants
//!   1. `granted_bytes` is the sum of all grants.
//!   2. Whoever waits is granted or refused after at most the longest wait, whatever the others do: the sum of requests that came
//!      in parts cannot block itself.
//!   3. One who waits for long is overtaken by nobody.
//!
//! No I/O, no clock: the time is an argument.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use clock::Nanos;

/// What may be granted: bytes that there are, and what others than requests take of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    pub(crate) max_bytes: u64,
    pub(crate) other_bytes: u64,
    /// The protocol has none for more requests now: nobody is granted any, nor ended because others wait.
    pub(crate) is_held: bool,
}

/// What one who asked gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Granted,
    Waits,
    /// There is less than that, even if nobody else had any.
    Never,
}

/// What became of those who asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The wait is over.
    Granted(u64),
    /// It waited too long, or others would never get on.
    Refused(u64),
    /// It has room that others wait for, and does not use it.
    Stalled(u64),
}

/// What a connection with a grant does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// The rest of its request is to come; so many bytes came so far.
    Receiving(u64),
    /// Its request is complete and runs.
    Running,
}

#[derive(Debug)]
struct Grant {
    bytes: u64,
    /// When it was last seen to get on, and how many bytes had come then.
    marked_at: Nanos,
    marked_bytes: Option<u64>,
    ending: bool,
}

#[derive(Debug)]
struct Waiter {
    id: u64,
    more_bytes: u64,
    since: Nanos,
}

/// All grants, and all who wait for one.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    grants: HashMap<u64, Grant>,
    waiters: VecDeque<Waiter>,
    granted_bytes: u64,
}

impl Requests {
    /// Asks for `more_bytes` for the connection `id`, which does not wait.
    pub(crate) fn ask(&mut self, id: u64, more_bytes: u64, room: Room, now: Nanos) -> Answer {
        let has_bytes = self.granted_to(id);
        if has_bytes + more_bytes > room.max_bytes {
            return Answer::Never;
        }
        if self.waiters.is_empty() && !room.is_held && more_bytes <= self.free_bytes(room) {
            self.grant(id, more_bytes, now);
            return Answer::Granted;
        }
        self.waiters.push_back(Waiter { id, more_bytes, since: now });
        Answer::Waits
    }

    /// Takes back what `id` has beyond `kept_bytes`; whether others wait for it.
    pub(crate) fn give_back(&mut self, id: u64, kept_bytes: u64) -> bool {
        if let Some(grant) = self.grants.get_mut(&id) {
            self.granted_bytes -= grant.bytes.saturating_sub(kept_bytes);
            grant.bytes = grant.bytes.min(kept_bytes);
            if grant.bytes == 0 {
                self.grants.remove(&id);
            }
        }
        !self.waiters.is_empty()
    }

    /// Forgets a connection that has ended; whether others wait.
    pub(crate) fn forget(&mut self, id: u64) -> bool {
        self.waiters.retain(|waiter| waiter.id != id);
        self.give_back(id, 0)
    }

    /// A connection that was to end has got on.
    pub(crate) fn spare(&mut self, id: u64) {
        if let Some(grant) = self.grants.get_mut(&id) {
            grant.ending = false;
        }
    }

    /// Bytes of all grants.
    pub(crate) fn granted_bytes(&self) -> u64 {
        self.granted_bytes
    }

    /// Bytes granted to `id`.
    pub(crate) fn granted_to(&self, id: u64) -> u64 {
        self.grants.get(&id).map_or(0, |grant| grant.bytes)
    }

    /// Who waits, those who have waited longest first.
    pub(crate) fn waiting_ids(&self) -> Vec<u64> {
        self.waiters.iter().map(|waiter| waiter.id).collect()
    }

    /// How many wait.
    pub(crate) fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// By how much others than requests keep more than they could beside the first of those who wait, if it has waited for `long`.
    pub(crate) fn owed_bytes(&self, room: Room, now: Nanos, long: Duration) -> u64 {
        let Some(first) = self.waiters.front().filter(|first| now - first.since >= long) else { return 0 };
        let whole_bytes = self.granted_to(first.id) + first.more_bytes;
        room.other_bytes.saturating_sub(room.max_bytes.saturating_sub(whole_bytes))
    }

    /// Decides what can be decided now; nobody waits longer than `longest`.
    pub(crate) fn poll(
        &mut self,
        room: Room,
        now: Nanos,
        longest: Duration,
        doing: impl Fn(u64) -> Doing,
    ) -> Vec<Verdict> {
        let mut verdicts = Vec::new();
        if !room.is_held {
            verdicts = self.grant_what_fits(room, now, longest / PATIENCE_PARTS);
            if self.waiters.is_empty() {
                return verdicts;
            }
            self.end_stalled(room, now, longest / PATIENCE_PARTS, doing, &mut verdicts);
        }
        while let Some(late) = self.waiters.pop_front_if(|waiter| now - waiter.since >= longest) {
            verdicts.push(Verdict::Refused(late.id));
        }
        if verdicts.is_empty() && !room.is_held && self.is_blocked() {
            // The youngest has come least far.
            let youngest = self.waiters.iter().rposition(|waiter| self.grants.contains_key(&waiter.id));
            let refused = youngest.and_then(|index| self.waiters.remove(index));
            verdicts.extend(refused.map(|refused| Verdict::Refused(refused.id)));
        }
        verdicts
    }

    fn grant_what_fits(&mut self, room: Room, now: Nanos, patience: Duration) -> Vec<Verdict> {
        let (mut verdicts, mut may_overtake) = (Vec::new(), true);
        for waiter in std::mem::take(&mut self.waiters) {
            if may_overtake && waiter.more_bytes <= self.free_bytes(room) {
                self.grant(waiter.id, waiter.more_bytes, now);
                verdicts.push(Verdict::Granted(waiter.id));
            } else {
                may_overtake &= now - waiter.since < patience;
                self.waiters.push_back(waiter);
            }
        }
        verdicts
    }

    /// Ends those who have had room for `patience` and do not fill it, the longest idle first, as many as the first who waits needs.
    fn end_stalled(
        &mut self,
        room: Room,
        now: Nanos,
        patience: Duration,
        doing: impl Fn(u64) -> Doing,
        verdicts: &mut Vec<Verdict>,
    ) {
        let Some(first) = self.waiters.front() else { return };
        let mut lacking_bytes = first.more_bytes.saturating_sub(self.free_bytes(room));
        let waiting: HashSet<u64> = self.waiting_ids().into_iter().collect();
        let mut stalled = Vec::new();
        for (id, grant) in &mut self.grants {
            match doing(*id) {
                _ if grant.ending => lacking_bytes = lacking_bytes.saturating_sub(grant.bytes),
                Doing::Receiving(bytes) if !waiting.contains(id) => {
                    let came = grant.marked_bytes.map_or(u64::MAX, |marked| bytes.saturating_sub(marked));
                    if grant.marked_bytes.is_none() || came >= STALLED_BYTES {
                        (grant.marked_at, grant.marked_bytes) = (now, Some(bytes));
                    } else if now - grant.marked_at >= patience {
                        stalled.push((grant.marked_at, *id));
                    }
                }
                _ => (grant.marked_at, grant.marked_bytes) = (now, None),
            }
        }
        stalled.sort_unstable();
        for (_, id) in stalled {
            if lacking_bytes == 0 {
                return;
            }
            if let Some(grant) = self.grants.get_mut(&id) {
                grant.ending = true;
                lacking_bytes = lacking_bytes.saturating_sub(grant.bytes);
                verdicts.push(Verdict::Stalled(id));
            }
        }
    }

    /// Whether all who have room wait for more of it.
    fn is_blocked(&self) -> bool {
        let waiting_grants =
            self.waiters.iter().filter(|waiter| self.grants.contains_key(&waiter.id)).count();
        waiting_grants > 0 && waiting_grants == self.grants.len()
    }

    fn grant(&mut self, id: u64, more_bytes: u64, now: Nanos) {
        let grant = self.grants.entry(id).or_insert(Grant {
            bytes: 0,
            marked_at: now,
            marked_bytes: None,
            ending: false,
        });
        grant.bytes += more_bytes;
        (grant.marked_at, grant.marked_bytes) = (now, None);
        self.granted_bytes += more_bytes;
    }

    fn free_bytes(&self, room: Room) -> u64 {
        room.max_bytes.saturating_sub(room.other_bytes).saturating_sub(self.granted_bytes)
    }
}

/// Patience is this part of the longest wait: with one who has room and does not use it, and with one who waits and is overtaken.
const PATIENCE_PARTS: u32 = 4;
/// Fewer bytes than this in that time, and a request is stalled.
const STALLED_BYTES: u64 = 64 << 10;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LONGEST: Duration = Duration::from_millis(400);

    fn room(max_bytes: u64) -> Room {
        Room { max_bytes, other_bytes: 0, is_held: false }
    }

    fn at(ms: u64) -> Nanos {
        Nanos(ms * 1_000_000)
    }

    #[test]
    fn held_room_is_granted_to_nobody_and_ends_nobody_but_who_waited_for_long() {
        let mut requests = Requests::default();
        let held = Room { is_held: true, ..room(100) };
        assert_eq!(requests.ask(1, 50, room(100), at(0)), Answer::Granted);
        assert_eq!(requests.ask(2, 50, held, at(0)), Answer::Waits);
        assert_eq!((requests.waiting(), requests.granted_bytes()), (1, 50));
        let came = |_| Doing::Receiving(0);
        assert!(
            (1..399).all(|ms| requests.poll(held, at(ms), LONGEST, came).is_empty()),
            "1 sends nothing meanwhile"
        );
        let mut late = Requests::default();
        late.ask(2, 50, held, at(0));
        assert_eq!(late.poll(held, at(400), LONGEST, came), [Verdict::Refused(2)]);
        assert_eq!(requests.poll(room(100), at(399), LONGEST, came), [Verdict::Granted(2)]);
    }

    #[test]
    fn request_larger_than_all_room_is_refused_at_once_and_one_that_fits_waits_for_those_before() {
        let mut requests = Requests::default();
        assert_eq!(requests.ask(1, 101, room(100), at(0)), Answer::Never);
        assert_eq!(requests.ask(1, 100, room(100), at(0)), Answer::Granted);
        assert_eq!(requests.ask(2, 60, room(100), at(0)), Answer::Waits);
        assert_eq!(requests.ask(3, 40, room(100), at(0)), Answer::Waits);
        assert!(requests.give_back(1, 0));
        let verdicts = requests.poll(room(100), at(1), LONGEST, |_| Doing::Running);
        assert_eq!(verdicts, [Verdict::Granted(2), Verdict::Granted(3)]);
        assert_eq!(requests.granted_bytes(), 100);
    }

    #[test]
    fn request_that_does_not_come_is_ended_when_others_wait_and_one_that_comes_is_not() {
        let mut requests = Requests::default();
        requests.ask(1, 50, room(100), at(0));
        requests.ask(2, 50, room(100), at(0));
        requests.ask(3, 50, room(100), at(0));
        let poll = |requests: &mut Requests, ms| {
            let came = |id| Doing::Receiving(if id == 1 { 7 } else { ms << 20 });
            requests.poll(room(100), at(ms), LONGEST, came)
        };
        assert_eq!(poll(&mut requests, 1), []);
        assert_eq!(poll(&mut requests, 90), []);
        assert_eq!(poll(&mut requests, 102), [Verdict::Stalled(1)]);
        assert_eq!(poll(&mut requests, 103), [], "it is ended once");
        requests.forget(1);
        assert_eq!(poll(&mut requests, 104), [Verdict::Granted(3)]);
    }

    #[test]
    fn requests_that_all_wait_for_more_end_with_the_refusal_of_the_youngest() {
        let mut requests = Requests::default();
        for id in 1..=2 {
            assert_eq!(requests.ask(id, 50, room(100), at(id)), Answer::Granted);
        }
        for id in 1..=2 {
            assert_eq!(requests.ask(id, 30, room(100), at(10 + id)), Answer::Waits);
        }
        let poll =
            |requests: &mut Requests, ms| requests.poll(room(100), at(ms), LONGEST, |_| Doing::Receiving(0));
        assert_eq!(poll(&mut requests, 20), [Verdict::Refused(2)]);
        requests.forget(2);
        assert_eq!(poll(&mut requests, 21), [Verdict::Granted(1)]);
    }

    #[test]
    fn large_request_that_waited_long_is_overtaken_no_more() {
        let mut requests = Requests::default();
        requests.ask(1, 60, room(100), at(0));
        requests.ask(2, 80, room(100), at(0));
        requests.ask(3, 10, room(100), at(0));
        let poll =
            |requests: &mut Requests, ms| requests.poll(room(100), at(ms), LONGEST, |_| Doing::Running);
        assert_eq!(poll(&mut requests, 1), [Verdict::Granted(3)]);
        requests.ask(4, 10, room(100), at(100));
        assert_eq!(poll(&mut requests, 101), []);
        assert_eq!(poll(&mut requests, 401), [Verdict::Refused(2)], "nobody waits longer");
        assert_eq!(poll(&mut requests, 402), [Verdict::Granted(4)]);
    }

    #[test]
    fn others_owe_what_they_keep_beyond_the_rest_of_the_limit_once_a_request_has_waited_long() {
        let mut requests = Requests::default();
        let others = |other_bytes| Room { other_bytes, ..room(100) };
        requests.ask(1, 20, others(0), at(0));
        assert_eq!(requests.ask(1, 40, others(70), at(0)), Answer::Waits);
        let owed = |other_bytes, ms| requests.owed_bytes(others(other_bytes), at(ms), LONGEST / 4);
        assert_eq!(owed(70, 99), 0, "it has not waited long");
        assert_eq!(owed(70, 100), 30, "it needs 60 in all");
        assert_eq!(owed(40, 100), 0, "what it lacks is granted to others, who get on");
        assert_eq!(Requests::default().owed_bytes(others(100), at(1_000), LONGEST / 4), 0);
    }

    proptest! {
        /// Requests of any sizes, of whom some never send what they announced and some want more again and again: each is granted
        /// all it wants, or ended, within a bounded time, and grants never add up to more than there is.
        #[test]
        fn whoever_waits_is_granted_or_ended_within_the_longest_wait(
            wishes in prop::collection::vec((1u64..120, 0u64..200, any::<bool>()), 1..40),
        ) {
            let (mut requests, mut waiting) = (Requests::default(), HashMap::new());
            let mut left: HashMap<u64, (u64, bool)> = HashMap::new();
            for (index, (first, rest, comes)) in wishes.iter().enumerate() {
                let id = index as u64;
                match requests.ask(id, *first, room(100), at(0)) {
                    Answer::Never => continue,
                    Answer::Waits => _ = waiting.insert(id, at(0)),
                    Answer::Granted => {}
                }
                left.insert(id, (*rest, *comes));
            }
            for ms in 1..40_000 {
                let doing = |id| Doing::Receiving(if left[&id].1 { ms << 20 } else { 0 });
                for verdict in requests.poll(room(100), at(ms), LONGEST, doing) {
                    match verdict {
                        Verdict::Granted(id) => _ = waiting.remove(&id),
                        Verdict::Refused(id) | Verdict::Stalled(id) => {
                            waiting.remove(&id);
                            left.remove(&id);
                            requests.forget(id);
                        }
                    }
                }
                prop_assert!(requests.granted_bytes() <= 100);
                for since in waiting.values() {
                    prop_assert!(at(ms) - *since <= LONGEST + Duration::from_millis(1));
                }
                // One of those who have room and send gets on: it is complete, or wants more.
                let next = left.iter().find(|(id, (_, comes))| *comes && !waiting.contains_key(id));
                if let Some((id, (rest, _))) = next.map(|(id, it)| (*id, *it)) {
                    let more = rest.min(30);
                    if more == 0 {
                        left.remove(&id);
                        requests.forget(id);
                    } else {
                        left.insert(id, (rest - more, true));
                        match requests.ask(id, more, room(100), at(ms)) {
                            Answer::Granted => {}
                            Answer::Waits => _ = waiting.insert(id, at(ms)),
                            Answer::Never => {
                                left.remove(&id);
                                requests.forget(id);
                            }
                        }
                    }
                }
                if left.values().all(|(_, comes)| !comes) && waiting.is_empty() {
                    return Ok(());
                }
            }
            prop_assert!(false, "somebody still waits");
        }
    }
}
