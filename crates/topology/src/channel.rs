//! One channel from a task to another: order, credits in bytes, and what a cut link does to both.
//!
//! Both ends count all bytes since the sender's start, so nothing is added up from messages that can be lost:
//!
//! ```text
//!   Outlet                                           Inlet
//!   waiting | sent - - - - Frame { offset } - - - -> end | queue | taken by the task
//!             taken <- - - Credit { taken } - - - -  taken = end - bytes in the queue
//! ```
//!
//! Invariants
//!   1. `taken <= end <= sent`, and `sent - taken <= window`, or there is one load that is larger than the window.
//!   2. The queue has at most the window and one load, and once more as much of the sender's last life.
//!   3. A frame is accepted once: its offset is at `end` or, if others were lost, beyond; below it is a double.
//!   4. After each reconnect the sender says where it is (`Open`), and the receiver answers: neither lost frames nor lost
//!      credits stop a channel for ever.
//!
//! A **life** is one start of the sender's task, or one place of the receiver. A frame of an earlier life than the newest seen is stale and dropped. What an earlier life
//! sent and the task has not taken stays, but only of the last one: senders that start again and again must not fill a queue.
//!
//! Credits are told when a quarter of the window was taken or the queue is empty: a message for each tuple would cost as much as the tuple.
//! Frames of one channel arrive in order or are lost; channels know nothing of each other.
//! Source: credits by absolute counters, as Aeron's status messages have them.

use std::collections::VecDeque;

use crate::parcel::Load;

/// One start of a sender, or one move of its receiver since then: what offsets count from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation {
    /// Which start of the sender.
    pub start: u32,
    /// How often the receiver has moved since.
    pub moves: u32,
}

/// What the sender of a channel says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Forward {
    /// The link is new: so many bytes were sent before.
    Open {
        /// The sender's life.
        life: Incarnation,
        /// Bytes sent since its start.
        offset: u64,
    },
    /// A load.
    Frame {
        /// The sender's life.
        life: Incarnation,
        /// Bytes sent since its start, before this load.
        offset: u64,
        /// The load.
        load: Load,
    },
}

/// What the receiver of a channel says: so many bytes were taken, lost ones included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Credit {
    /// The sender's life that it counts for.
    pub life: Incarnation,
    /// Bytes since that life's start.
    pub taken: u64,
}

/// The sender's end.
#[derive(Debug)]
pub struct Outlet {
    life: Incarnation,
    window: u64,
    sent: u64,
    taken: u64,
    waiting: VecDeque<Load>,
    state: Sending,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sending {
    Open,
    /// So many loads, the last of them the mark, are still to be sent before the receiver moves.
    Closing(usize),
    Closed,
}

/// The receiver's end.
#[derive(Debug)]
pub struct Inlet {
    life: Incarnation,
    window: u64,
    end: u64,
    /// Loads with the life that sent them and their sizes.
    queue: VecDeque<(Incarnation, u64, Load)>,
    /// Bytes in the queue that `life` has sent.
    queued: u64,
    told: u64,
    must_tell: bool,
}

/// What an inlet did with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accepted {
    /// It follows what came before.
    InOrder,
    /// Something before it was lost.
    AfterGap,
    /// It was seen before, or is of an earlier life: dropped.
    Stale,
}

impl Incarnation {
    fn moved(self) -> Self {
        Self { moves: self.moves + 1, ..self }
    }
}

impl Outlet {
    /// A channel of a sender's `start` to a task whose queue may have `window` bytes.
    #[must_use]
    pub fn new(start: u32, window: u64) -> Self {
        let life = Incarnation { start, moves: 0 };
        Self { life, window, sent: 0, taken: 0, waiting: VecDeque::new(), state: Sending::Open }
    }

    /// Adds a load behind those that wait.
    pub fn push(&mut self, load: Load) {
        self.waiting.push_back(load);
    }

    /// The next message, if one waits and there is credit for it. A load larger than the window goes when the queue is empty.
    pub fn poll(&mut self) -> Option<Forward> {
        if self.state == Sending::Closed {
            return None;
        }
        let size = self.waiting.front()?.size_bytes();
        let is_empty = self.sent == self.taken;
        if self.sent - self.taken + size > self.window && !is_empty {
            return None;
        }
        let load = self.waiting.pop_front()?;
        let offset = self.sent;
        self.sent += size;
        if let Sending::Closing(left) = self.state {
            self.state = if left == 1 { Sending::Closed } else { Sending::Closing(left - 1) };
        }
        Some(Forward::Frame { life: self.life, offset, load })
    }

    /// The receiver has taken bytes. Credits of other lives, or for more than was sent, are ignored: a peer sends them.
    pub fn on_credit(&mut self, credit: Credit) {
        if credit.life == self.life && credit.taken <= self.sent {
            self.taken = self.taken.max(credit.taken);
        }
    }

    /// The link is new: what to say on it first. A mark that may be lost with the old link is sent again.
    pub fn on_connected(&mut self) -> Forward {
        if self.state == Sending::Closed {
            self.waiting.push_front(Load::Close);
            self.state = Sending::Closing(1);
        }
        Forward::Open { life: self.life, offset: self.sent }
    }

    /// The receiver is to move: what waits now is still sent, then a mark, then nothing until [`Outlet::resume`].
    pub fn close(&mut self) {
        if self.state == Sending::Open {
            self.push(Load::Close);
            self.state = Sending::Closing(self.waiting.len());
        }
    }

    /// The receiver is at its new place and empty. What waits goes there, under the next life.
    pub fn resume(&mut self) {
        if self.state != Sending::Open {
            self.waiting.retain(|load| *load != Load::Close);
            (self.life, self.sent, self.taken, self.state) = (self.life.moved(), 0, 0, Sending::Open);
        }
    }

    /// Whether nothing waits for credit: the task may go on.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether the receiver has taken all that was pushed, as far as it has told: nothing of this sender is on the way.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.waiting.is_empty() && self.taken == self.sent
    }

    /// Looks whether the counters agree.
    ///
    /// # Panics
    /// If they do not: a bug.
    pub fn check(&self) {
        assert!(self.taken <= self.sent, "more taken than sent: {self:?}");
    }
}

impl Inlet {
    /// A channel whose queue may have `window` bytes.
    #[must_use]
    pub fn new(window: u64) -> Self {
        Self {
            life: Incarnation::default(),
            window,
            end: 0,
            queue: VecDeque::new(),
            queued: 0,
            told: 0,
            must_tell: false,
        }
    }

    /// The same, for a sender whose start is known: anything earlier is stale.
    #[must_use]
    pub fn of_start(window: u64, start: u32) -> Self {
        Self { life: Incarnation { start, moves: 0 }, ..Self::new(window) }
    }

    /// Takes a message of the sender.
    pub fn on_forward(&mut self, forward: Forward) -> Accepted {
        let (life, offset, load) = match forward {
            Forward::Open { life, offset } => (life, offset, None),
            Forward::Frame { life, offset, load } => (life, offset, Some(load)),
        };
        if life < self.life {
            return Accepted::Stale;
        }
        if life > self.life {
            self.begin(life);
        }
        self.must_tell |= load.is_none();
        if offset < self.end {
            return Accepted::Stale;
        }
        let accepted = if offset == self.end { Accepted::InOrder } else { Accepted::AfterGap };
        self.end = offset;
        if let Some(load) = load {
            let size = load.size_bytes();
            self.end += size;
            self.queued += size;
            self.queue.push_back((life, size, load));
        }
        accepted
    }

    /// The load that is next.
    #[must_use]
    pub fn peek(&self) -> Option<&Load> {
        self.queue.front().map(|(_, _, load)| load)
    }

    /// Takes the load that is next.
    pub fn pop(&mut self) -> Option<Load> {
        let (life, size, load) = self.queue.pop_front()?;
        if life == self.life {
            self.queued -= size;
        }
        Some(load)
    }

    /// What to tell the sender, if enough was taken since it was told.
    pub fn poll_credit(&mut self) -> Option<Credit> {
        let taken = self.end - self.queued;
        let is_much = taken - self.told >= self.window.div_ceil(4);
        let is_rest = self.queue.is_empty() && taken > self.told;
        if !(self.must_tell || is_much || is_rest) {
            return None;
        }
        (self.told, self.must_tell) = (taken, false);
        Some(Credit { life: self.life, taken })
    }

    /// Bytes in the queue.
    #[must_use]
    pub fn queued_bytes(&self) -> u64 {
        self.queue.iter().map(|(_, size, _)| size).sum()
    }

    /// How many loads are in the queue.
    #[must_use]
    pub fn loads(&self) -> usize {
        self.queue.len()
    }

    /// Whether nothing is in the queue.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Looks whether the counters agree and the bound holds.
    ///
    /// # Panics
    /// If they do not: a bug.
    pub fn check(&self) {
        let of_life = |life| self.queue.iter().filter(move |(of, _, _)| *of == life).map(|(_, size, _)| size);
        assert_eq!(of_life(self.life).sum::<u64>(), self.queued, "bytes in the queue: {self:?}");
        let mut lives: Vec<Incarnation> = self.queue.iter().map(|(life, _, _)| *life).collect();
        lives.dedup();
        assert!(lives.len() <= 2 && lives.is_sorted(), "the last two lives in order: {lives:?}");
        for life in lives {
            // Without the last load it fits: the last one was sent because the queue was below its bound, or empty.
            let before_last: u64 = of_life(life).rev().skip(1).sum();
            assert!(before_last <= self.window, "{before_last} bytes in a queue of {}", self.window);
        }
        assert!(self.told <= self.end - self.queued, "told more than was taken: {self:?}");
    }

    /// The sender has started again.
    fn begin(&mut self, life: Incarnation) {
        let last = self.life;
        self.queue.retain(|(of, _, _)| *of == last);
        (self.life, self.end, self.queued, self.told) = (life, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StreamId;
    use crate::parcel::{Item, Parcel};
    use crate::random::Random;
    use crate::values::Values;
    use proptest::prelude::*;

    fn load(size: usize) -> Load {
        let item = Item { origin: 0, stream: StreamId(0), values: Values::new(&[vec![b'x'; size]]) };
        Load::Parcel(Parcel { anchors: vec![], items: vec![item] })
    }

    fn start(start: u32) -> Incarnation {
        Incarnation { start, moves: 0 }
    }

    /// A window that fits `count` loads of `size` bytes.
    fn window(count: u64, size: usize) -> u64 {
        load(size).size_bytes() * count
    }

    fn send(outlet: &mut Outlet, inlet: &mut Inlet) -> usize {
        let frames: Vec<Forward> = std::iter::from_fn(|| outlet.poll()).collect();
        let count = frames.len();
        frames.into_iter().for_each(|frame| assert_eq!(inlet.on_forward(frame), Accepted::InOrder));
        count
    }

    #[test]
    fn sender_stops_at_the_window_and_goes_on_with_credit() {
        let (mut outlet, mut inlet) = (Outlet::new(0, window(4, 10)), Inlet::new(window(4, 10)));
        (0..6).for_each(|_| outlet.push(load(10)));
        assert_eq!((send(&mut outlet, &mut inlet), outlet.is_clear()), (4, false));
        assert_eq!(inlet.poll_credit(), None);
        inlet.pop();
        outlet.on_credit(inlet.poll_credit().expect("a quarter was taken"));
        assert_eq!((send(&mut outlet, &mut inlet), outlet.is_clear()), (1, false));
        inlet.check();
    }

    #[test]
    fn load_larger_than_the_window_goes_when_the_queue_is_empty() {
        let (mut outlet, mut inlet) = (Outlet::new(0, 100), Inlet::new(100));
        outlet.push(load(1));
        outlet.push(load(5_000));
        assert_eq!(send(&mut outlet, &mut inlet), 1);
        inlet.pop();
        outlet.on_credit(inlet.poll_credit().unwrap());
        assert_eq!(send(&mut outlet, &mut inlet), 1);
        inlet.check();
    }

    #[test]
    fn frame_that_comes_twice_is_dropped_and_a_lost_one_is_noticed() {
        let (mut outlet, mut inlet) = (Outlet::new(0, 10_000), Inlet::new(10_000));
        (0..3).for_each(|_| outlet.push(load(10)));
        let frames: Vec<Forward> = std::iter::from_fn(|| outlet.poll()).collect();
        assert_eq!(inlet.on_forward(frames[0].clone()), Accepted::InOrder);
        assert_eq!(inlet.on_forward(frames[0].clone()), Accepted::Stale);
        assert_eq!(inlet.on_forward(frames[2].clone()), Accepted::AfterGap);
        assert_eq!(inlet.on_forward(frames[1].clone()), Accepted::Stale);
    }

    #[test]
    fn credit_of_lost_frames_comes_back_after_a_reconnect() {
        let (mut outlet, mut inlet) = (Outlet::new(0, window(2, 10)), Inlet::new(window(2, 10)));
        (0..3).for_each(|_| outlet.push(load(10)));
        while outlet.poll().is_some() {}
        assert!(!outlet.is_clear(), "all credit is on the cut link");
        assert_eq!(inlet.on_forward(outlet.on_connected()), Accepted::AfterGap);
        outlet.on_credit(inlet.poll_credit().expect("a new link is answered"));
        assert!(outlet.poll().is_some());
    }

    #[test]
    fn lost_credit_is_told_again_after_a_reconnect() {
        let (mut outlet, mut inlet) = (Outlet::new(0, window(1, 10)), Inlet::new(window(1, 10)));
        (0..2).for_each(|_| outlet.push(load(10)));
        send(&mut outlet, &mut inlet);
        inlet.pop();
        inlet.poll_credit().expect("this one is lost");
        assert_eq!(inlet.on_forward(outlet.on_connected()), Accepted::InOrder);
        outlet.on_credit(inlet.poll_credit().expect("a new link is answered"));
        assert!(outlet.poll().is_some());
    }

    #[test]
    fn earlier_life_is_stale_and_what_only_the_last_one_sent_stays() {
        let mut inlet = Inlet::new(10_000);
        let frame = |life, offset| Forward::Frame { life: start(life), offset, load: load(10) };
        for life in 1..=3 {
            inlet.on_forward(frame(life, 0));
            inlet.check();
        }
        assert_eq!(inlet.on_forward(frame(2, load(10).size_bytes())), Accepted::Stale);
        assert_eq!(inlet.queue.iter().map(|(life, _, _)| *life).collect::<Vec<_>>(), [2, 3].map(start));
        inlet.pop();
        assert_eq!(inlet.poll_credit(), None, "what an earlier life sent gives the new one no credit");
    }

    #[test]
    fn credit_for_another_life_or_for_more_than_was_sent_is_ignored() {
        let mut outlet = Outlet::new(3, window(1, 10));
        (0..2).for_each(|_| outlet.push(load(10)));
        outlet.poll();
        outlet.on_credit(Credit { life: start(2), taken: load(10).size_bytes() });
        outlet.on_credit(Credit { life: start(3), taken: 1 << 40 });
        assert_eq!(outlet.poll(), None);
        outlet.check();
    }

    #[test]
    fn closed_channel_sends_what_waited_and_the_mark_and_resumes_under_a_new_life() {
        let (mut outlet, mut inlet) = (Outlet::new(0, 10_000), Inlet::new(10_000));
        outlet.push(load(10));
        outlet.close();
        outlet.push(load(20));
        assert_eq!(send(&mut outlet, &mut inlet), 2);
        assert_eq!((inlet.pop(), inlet.pop()), (Some(load(10)), Some(Load::Close)));
        outlet.resume();
        let mut moved = Inlet::new(10_000);
        assert_eq!((send(&mut outlet, &mut moved), moved.pop()), (1, Some(load(20))));
        assert_eq!(moved.poll_credit().map(|credit| credit.life), Some(Incarnation { start: 0, moves: 1 }));
    }

    #[test]
    fn mark_that_may_be_lost_with_its_link_is_sent_again() {
        let mut outlet = Outlet::new(0, 10_000);
        outlet.close();
        outlet.push(load(10));
        assert!(outlet.poll().is_some() && outlet.poll().is_none());
        let mut inlet = Inlet::new(10_000);
        inlet.on_forward(outlet.on_connected());
        inlet.on_forward(outlet.poll().expect("the mark"));
        assert_eq!((inlet.pop(), outlet.poll()), (Some(Load::Close), None));
    }

    proptest! {
        /// Frames and credits are lost with links, at random: bounds hold, and when the links stay everything that is sent then arrives.
        #[test]
        fn channel_over_links_that_are_cut_is_bounded_and_never_stuck(seed: u64) {
            let mut random = Random::new(seed);
            let window = 100 + random.below(400);
            let (mut outlet, mut inlet) = (Outlet::new(0, window), Inlet::new(window));
            for _ in 0..200 {
                match random.below(5) {
                    0 | 1 if outlet.is_clear() => outlet.push(load(random.index(100))),
                    2 => drop(inlet.pop()),
                    3 => {
                        let lost = std::iter::from_fn(|| outlet.poll()).count();
                        inlet.poll_credit().into_iter().for_each(drop);
                        prop_assert!(lost < 100);
                        inlet.on_forward(outlet.on_connected());
                    }
                    _ => {
                        while let Some(frame) = outlet.poll() {
                            inlet.on_forward(frame);
                        }
                        inlet.poll_credit().into_iter().for_each(|credit| outlet.on_credit(credit));
                    }
                }
                inlet.check();
                outlet.check();
            }
            inlet.on_forward(outlet.on_connected());
            for _ in 0..100 {
                inlet.pop();
                inlet.poll_credit().into_iter().for_each(|credit| outlet.on_credit(credit));
                while let Some(frame) = outlet.poll() {
                    inlet.on_forward(frame);
                }
            }
            prop_assert!(outlet.is_clear() && inlet.is_empty());
        }
    }
}
