//! The tuples that a bolt's child has, and those that are told again after it has ended.
//!
//! With at-least-once, what a child had when it ended is not failed, as it may have ended of one of many: they are *suspects*, and the next child is told
//! them one at a time. The one with which a child ends alone is blamed.
//!
//! ```text
//!  told -> acknowledged or failed by the child
//!    |  the child ends, and had others, too
//!  suspect -> told alone -> acknowledged or failed by the child
//!    |          |  the child ends: blamed
//!    |  a child has answered what it was asked behind a tuple, and not the tuple: it puts tuples off, and would wait for more
//!  told with others -> ...  the child ends: blamed, as all that it has
//! ```
//!
//! Invariants
//!   1. A tuple is with the child, or waits to be told again, until it is taken out to be acknowledged or failed.
//!   2. A tuple is told twice at most.
//!   3. While there are suspects, or one is told alone, nothing else is told.
//!
//! A child may have many tuples and answer none for long, as those do that wait for a batch. One that forgets a tuple does not keep it for ever: it is given up when its
//! time is over, and what the child says of it later is of no interest.
//!
//! **Bounds.** Tuples: those that their sources have out, each for the time-out of the topology at most. Messages are kept of the first [`BYTES_MAX`] that the child has: a tuple
//! beyond is blamed with those before it if the child ends.
//! Out of scope: exactly-once, whose epochs begin anew, and at-most-once, which tells nothing twice: there all are blamed, and the owner chooses.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use clock::Nanos;

/// Tuples, which the component knows as `T`, by the numbers that the child was told.
#[derive(Debug)]
pub(crate) struct Held<T> {
    /// Whether they are told again.
    again: bool,
    /// How long the child may have one.
    timeout: Duration,
    open: BTreeMap<u64, One<T>>,
    suspects: VecDeque<(u64, One<T>)>,
    /// Of the messages of all.
    bytes: usize,
    /// The suspect that was told alone, and the number of the question behind it.
    alone: Option<(u64, u64)>,
    /// Questions that this child was asked, and those that it has answered.
    asked: u64,
    answered: u64,
    /// It has answered a question behind a tuple before that tuple.
    puts_off: bool,
    /// The highest number whose time was over.
    expired: u64,
}

#[derive(Debug)]
struct One<T> {
    tuple: T,
    /// What the child is told; empty if it is told once.
    message: Vec<u8>,
    is_suspect: bool,
    /// When it was told.
    since: Nanos,
}

impl<T: Copy> Held<T> {
    /// `again`: what a child had when it ended is told to the next one. A tuple is given up that a child has had for `timeout`.
    pub(crate) fn new(again: bool, timeout: Duration) -> Self {
        Self {
            again,
            timeout,
            open: BTreeMap::new(),
            suspects: VecDeque::new(),
            bytes: 0,
            alone: None,
            asked: 0,
            answered: 0,
            puts_off: false,
            expired: 0,
        }
    }

    /// How many the child has.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether another one may be told.
    pub(crate) fn has_room(&self) -> bool {
        self.suspects.is_empty() && self.alone.is_none()
    }

    /// The child was told `message`, which is a tuple with this number; unless it has ended just now.
    pub(crate) fn add(&mut self, now: Nanos, number: u64, tuple: T, message: Vec<u8>, is_told: bool) {
        let is_kept = self.again && (self.bytes < BYTES_MAX || !is_told);
        let message = if is_kept { message } else { Vec::new() };
        self.bytes += message.len();
        if is_told || !self.again {
            self.open.insert(number, One { tuple, message, is_suspect: false, since: now });
        } else {
            self.suspects.push_back((number, One { tuple, message, is_suspect: true, since: now }));
        }
    }

    /// A tuple that the child has had for too long, if there is one: it is given up.
    pub(crate) fn expire(&mut self, now: Nanos) -> Option<T> {
        let (&number, first) = self.open.first_key_value()?;
        if now.since(first.since) < self.timeout {
            return None;
        }
        self.expired = number;
        self.close(number)
    }

    /// Whether the tuple of this number may have been given up for its time: the child may be late.
    pub(crate) fn is_expired(&self, number: u64) -> bool {
        number <= self.expired
    }

    /// What the child has under this number.
    pub(crate) fn tuple(&self, number: u64) -> Option<T> {
        self.open.get(&number).map(|one| one.tuple)
    }

    /// The child is done with the tuple of this number.
    pub(crate) fn close(&mut self, number: u64) -> Option<T> {
        let one = self.open.remove(&number)?;
        self.bytes -= one.message.len();
        self.alone.take_if(|(alone, _)| *alone == number);
        Some(one.tuple)
    }

    /// The child has answered a question.
    pub(crate) fn on_answer(&mut self) {
        self.answered += 1;
        if self.alone.is_some_and(|(_, question)| self.answered >= question) {
            (self.alone, self.puts_off) = (None, true);
        }
    }

    /// The child has ended: what it is blamed for, in the order in which it was told. The others are told again.
    pub(crate) fn on_end(&mut self) -> Vec<T> {
        // Tuples were told in the order of their numbers.
        let open = std::mem::take(&mut self.open);
        let is_blamed = open.len() == 1 || !self.again;
        (self.alone, self.asked, self.answered, self.puts_off) = (None, 0, 0, false);
        let mut blamed = Vec::new();
        let mut suspects = VecDeque::new();
        for (number, one) in open {
            if is_blamed || one.is_suspect || one.message.is_empty() {
                self.bytes -= one.message.len();
                blamed.push(one.tuple);
            } else {
                suspects.push_back((number, One { is_suspect: true, ..one }));
            }
        }
        suspects.append(&mut self.suspects);
        self.suspects = suspects;
        blamed
    }

    /// The message of the suspect that the child is to be told now, if there is one, and whether it is to be asked behind it.
    pub(crate) fn next_again(&self) -> Option<(&[u8], bool)> {
        let is_free = self.puts_off || self.open.is_empty();
        let (_, one) = self.suspects.front().filter(|_| is_free)?;
        Some((&one.message, !self.puts_off))
    }

    /// The child was told that.
    pub(crate) fn on_told_again(&mut self, now: Nanos) {
        let Some((number, one)) = self.suspects.pop_front() else { return };
        self.open.insert(number, One { since: now, ..one });
        if !self.puts_off {
            self.asked += 1;
            self.alone = Some((number, self.asked));
        }
    }
}

/// Bytes of messages, from which on no further one is kept.
const BYTES_MAX: usize = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// The tuple of this number.
    fn tuple(number: u8) -> char {
        char::from(b'a' + number)
    }

    /// The child was told tuples 1 to `count`, and has ended.
    fn ended_with(count: u8, again: bool) -> (Held<char>, Vec<char>) {
        let mut held = Held::new(again, TIMEOUT);
        for number in 1..=count {
            held.add(Nanos(0), number.into(), tuple(number), vec![number; 10], true);
        }
        let blamed = held.on_end();
        (held, blamed)
    }

    /// Tells the next one that is to be told again: its message begins so, and whether it is asked.
    fn tell(held: &mut Held<char>) -> Option<(u8, bool)> {
        let (message, asks) = held.next_again()?;
        let told = (message[0], asks);
        held.on_told_again(Nanos(0));
        Some(told)
    }

    #[test]
    fn of_many_none_is_blamed_and_each_is_told_alone_in_the_order_in_which_it_was_told() {
        let (mut held, blamed) = ended_with(3, true);
        assert_eq!((blamed, held.has_room(), held.len()), (vec![], false, 0));
        for number in 1..=3 {
            assert_eq!(tell(&mut held), Some((number, true)));
            assert_eq!((tell(&mut held), held.has_room(), held.len()), (None, false, 1), "one at a time");
            assert_eq!(held.close(number.into()), Some(tuple(number)));
            held.on_answer();
        }
        assert_eq!((tell(&mut held), held.has_room(), held.bytes), (None, true, 0));
    }

    #[test]
    fn one_with_which_the_child_ends_alone_is_blamed_and_the_others_are_told() {
        let (mut held, _) = ended_with(3, true);
        assert_eq!(tell(&mut held), Some((1, true)));
        assert_eq!(held.close(1), Some(tuple(1)));
        assert_eq!(tell(&mut held), Some((2, true)), "the answer may come behind the tuple");
        held.on_answer();
        assert_eq!(tell(&mut held), None, "that was the question of the first");
        assert_eq!((held.on_end(), tell(&mut held)), (vec![tuple(2)], Some((3, true))));
        assert_eq!(held.on_end(), [tuple(3)]);
        assert_eq!((held.has_room(), held.bytes), (true, 0));
    }

    #[test]
    fn child_that_puts_tuples_off_is_told_all_and_blamed_for_all_if_it_ends_again() {
        let (mut held, _) = ended_with(4, true);
        assert_eq!(tell(&mut held), Some((1, true)));
        held.on_answer();
        assert_eq!([tell(&mut held), tell(&mut held)], [Some((2, false)), Some((3, false))]);
        assert_eq!((held.close(2), held.has_room()), (Some(tuple(2)), false), "there is a fourth one");
        assert_eq!(held.on_end(), [tuple(1), tuple(3)]);
        assert_eq!(tell(&mut held), Some((4, true)), "the next child is not known yet");
    }

    #[test]
    fn where_nothing_is_told_twice_all_are_blamed_and_nothing_is_kept() {
        let (held, blamed) = ended_with(3, false);
        assert_eq!((blamed, held.bytes), (vec![tuple(1), tuple(2), tuple(3)], 0));
        assert_eq!((held.next_again(), held.has_room()), (None, true));
    }

    #[test]
    fn one_that_the_child_was_too_late_for_is_told_to_the_next_one_and_not_blamed() {
        let mut held = Held::new(true, TIMEOUT);
        held.add(Nanos(0), 1, tuple(1), vec![1], true);
        held.add(Nanos(0), 2, tuple(2), vec![2], false);
        assert_eq!((held.has_room(), held.on_end()), (false, vec![tuple(1)]));
        assert_eq!(tell(&mut held), Some((2, true)));
    }

    #[test]
    fn one_alone_is_blamed_at_once() {
        assert_eq!(ended_with(1, true).1, [tuple(1)]);
    }

    /// No further tuple was taken then, and no tick told: a program that waited for more had none of them for ever.
    #[test]
    fn beyond_the_bytes_that_are_kept_tuples_are_taken_and_blamed_if_the_child_ends() {
        let mut held = Held::new(true, TIMEOUT);
        held.add(Nanos(0), 1, tuple(1), vec![0; BYTES_MAX], true);
        held.add(Nanos(0), 2, tuple(2), vec![2], true);
        assert_eq!((held.has_room(), held.bytes), (true, BYTES_MAX));
        assert_eq!((held.on_end(), held.bytes), (vec![tuple(2)], BYTES_MAX));
        assert_eq!((tell(&mut held), held.close(1), held.bytes), (Some((0, true)), Some(tuple(1)), 0));
    }

    /// They were kept for ever, until there were 1,000 and no further one was taken.
    #[test]
    fn tuple_that_the_child_forgets_is_given_up_when_its_time_is_over() {
        let at = |seconds| Nanos(0) + Duration::from_secs(seconds);
        for again in [true, false] {
            let mut held = Held::new(again, TIMEOUT);
            for number in 1..=3 {
                held.add(at(number), number, tuple(number as u8), vec![1], true);
            }
            assert_eq!(held.close(2), Some(tuple(2)));
            assert_eq!((held.expire(at(30)), held.is_expired(1)), (None, false));
            assert_eq!((held.expire(at(31)), held.expire(at(31))), (Some(tuple(1)), None));
            assert_eq!(
                (held.close(1), held.is_expired(1), held.is_expired(3)),
                (None, true, false),
                "it is late"
            );
            assert_eq!((held.expire(at(33)), held.len(), held.bytes), (Some(tuple(3)), 0, 0));
        }
    }

    const TIMEOUT: Duration = Duration::from_secs(30);
}
