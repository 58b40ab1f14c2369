//! The end of several workers together: questions in rounds, until nothing is under way in any of them.
//!
//! Each worker answers whether nothing is under way in it and the others have got all that it has sent, and if so how much it has got since its start.
//! If two rounds, the second begun when all had answered the first, have the same answers, then between them nothing was under way anywhere.
//! Source: the method of four counters, Mattern 1987.

use std::collections::BTreeMap;
use std::time::Duration;

use clock::Nanos;

/// The rounds of one end.
#[derive(Debug)]
pub(crate) struct Drain {
    until: Nanos,
    round: u64,
    /// How many are to answer.
    asked: usize,
    answers: BTreeMap<u32, Option<u64>>,
    /// Those of the round before.
    before: BTreeMap<u32, Option<u64>>,
    /// When the next round begins.
    next: Nanos,
    is_quiet: bool,
}

impl Drain {
    pub(crate) fn new(now: Nanos, until: Nanos) -> Self {
        Self {
            until,
            round: 0,
            asked: 0,
            answers: BTreeMap::new(),
            before: BTreeMap::new(),
            next: now,
            is_quiet: false,
        }
    }

    /// It is to be over at this time, if not before.
    pub(crate) fn hurry(&mut self, until: Nanos) {
        self.until = self.until.min(until);
    }

    /// Whether nothing is under way, or its time is over.
    pub(crate) fn is_over(&self, now: Nanos) -> bool {
        self.is_quiet || self.until <= now
    }

    /// The question that all `workers` are to be asked now, if it is time for one.
    pub(crate) fn poll_question(&mut self, now: Nanos, workers: usize) -> Option<u64> {
        if self.is_open() || now < self.next {
            return None;
        }
        self.before = std::mem::take(&mut self.answers);
        self.asked = workers;
        self.round += 1;
        Some(self.round)
    }

    /// A worker has died: what was answered so far counts for nothing.
    pub(crate) fn begin_anew(&mut self) {
        self.round += 1;
        self.asked = 0;
        self.answers.clear();
    }

    fn is_open(&self) -> bool {
        self.answers.len() < self.asked
    }

    /// A worker has answered.
    pub(crate) fn on_answer(&mut self, now: Nanos, worker: u32, round: u64, received: Option<u64>) {
        if round != self.round || !self.is_open() {
            return;
        }
        self.answers.insert(worker, received);
        if !self.is_open() {
            self.is_quiet = self.answers.values().all(Option::is_some) && self.answers == self.before;
            self.next = now + PAUSE;
        }
    }

    /// When there is something to do; `can_ask`: whether all workers are there.
    pub(crate) fn next_due(&self, can_ask: bool) -> Nanos {
        if self.is_open() || !can_ask { self.until } else { self.next.min(self.until) }
    }
}

/// Between two rounds.
const PAUSE: Duration = Duration::from_millis(5);

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Nanos = Nanos(1_000_000_000);

    /// A round with these answers; whether it is over.
    fn round(drain: &mut Drain, now: Nanos, answers: [Option<u64>; 2]) -> bool {
        let round = drain.poll_question(now, 2).expect("it is time");
        assert_eq!(drain.poll_question(now, 2), None, "one at a time");
        (0..).zip(answers).for_each(|(worker, answer)| drain.on_answer(now, worker, round, answer));
        drain.is_over(now)
    }

    #[test]
    fn end_is_when_two_rounds_have_the_same_answers() {
        let mut drain = Drain::new(NOW, NOW + Duration::from_secs(9));
        let mut now = NOW;
        for (answers, is_over) in [
            ([Some(1), Some(1)], false),
            ([Some(1), Some(2)], false),
            ([Some(1), None], false),
            ([Some(1), Some(2)], false),
            ([Some(1), Some(2)], true),
        ] {
            assert_eq!(round(&mut drain, now, answers), is_over);
            now = now + PAUSE;
        }
    }

    #[test]
    fn answer_to_a_former_question_counts_for_nothing() {
        let mut drain = Drain::new(NOW, NOW + Duration::from_secs(9));
        round(&mut drain, NOW, [Some(0), Some(0)]);
        let now = NOW + PAUSE;
        drain.poll_question(now, 2).expect("it is time");
        drain.on_answer(now, 0, 1, Some(0));
        drain.on_answer(now, 1, 1, Some(0));
        assert!(!drain.is_over(now));
    }

    #[test]
    fn end_is_at_the_latest_when_its_time_is_over_which_may_be_shortened() {
        let mut drain = Drain::new(NOW, NOW + Duration::from_secs(9));
        drain.hurry(NOW + Duration::from_secs(5));
        drain.hurry(NOW + Duration::from_secs(7));
        assert!(!drain.is_over(NOW + Duration::from_secs(4)) && drain.is_over(NOW + Duration::from_secs(5)));
    }

    #[test]
    fn question_that_a_dead_worker_does_not_answer_is_asked_anew() {
        let mut drain = Drain::new(NOW, NOW + Duration::from_secs(9));
        let first = drain.poll_question(NOW, 2).expect("it is time");
        drain.on_answer(NOW, 0, first, Some(3));
        drain.begin_anew();
        assert!(drain.poll_question(NOW, 2).is_some_and(|second| second > first));
    }
}
