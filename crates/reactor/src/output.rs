//! Replies on their way out, some of them held until their ticket is released.
//!
//! ```text
//!  bytes:   | sent | may leave      | held by marks[0] | held by marks[1] | appended now |
//!           0     sent      marks[0].start      marks[1].start          cursor          len
//!  attached:         ^ shared bytes that leave between two of these, without a copy of their own
//! ```
//!
//! Invariants
//!   1. Marks are sorted by start, and the ticket of each covers that of the one before: what is behind a held byte waits at least as long.
//!   2. Everything before the first mark may leave; `released` of the protocol removes marks from the front.
//!   3. Starts are positions in the stream of the connection (`base` is that of `bytes[0]`), so that
//!      dropping what was sent touches no mark.
//!   4. Attached bytes lie before a byte of the buffer, and wait for what that byte waits for.

use std::collections::VecDeque;
use std::fmt;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use ticket::Ticket;

use crate::pool::{LARGE_BYTES, Pool, SMALL_BYTES};
use crate::ring::Parcel;

/// Sent bytes are dropped from a buffer that never runs empty when there are this many.
const COMPACT_BYTES: usize = 64 << 10;

/// Up to here a copy costs less than another buffer does.
const PARCEL_COPY_BYTES_MAX: usize = 1 << 10;
/// Most that is copied into one parcel.
const PARCEL_BYTES_MAX: usize = 64 << 10;

/// Places for marks, and for attached bytes, that an output keeps when it is empty.
const LISTED_KEPT_MAX: usize = 16;

/// From `start` on, bytes wait for `ticket`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    start: u64,
    ticket: Ticket,
}

/// Bytes that somebody else may hold as well.
pub type SharedBytes = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Shared bytes among those of the buffer.
struct Attached {
    /// Position in the stream of the byte of the buffer that follows.
    at: u64,
    bytes: SharedBytes,
    /// What of them is not sent.
    rest: Range<usize>,
}

/// What is attached, in order. Most connections never have anything attached: it takes one pointer of theirs.
#[derive(Default)]
#[expect(clippy::box_collection, reason = "a VecDeque takes four words of each connection, a pointer one")]
struct Attachments(Option<Box<VecDeque<Attached>>>);

impl Attachments {
    fn push_back(&mut self, attached: Attached) {
        self.0.get_or_insert_default().push_back(attached);
    }

    fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|list| list.is_empty())
    }

    fn pop_front(&mut self) {
        self.0.as_mut().and_then(|list| list.pop_front());
    }

    fn front_mut(&mut self) -> Option<&mut Attached> {
        self.0.as_mut()?.front_mut()
    }

    fn front(&self) -> Option<&Attached> {
        self.0.as_ref()?.front()
    }

    fn back(&self) -> Option<&Attached> {
        self.0.as_ref()?.back()
    }

    fn iter(&self) -> impl DoubleEndedIterator<Item = &Attached> {
        self.0.iter().flat_map(|list| list.iter())
    }

    fn capacity(&self) -> usize {
        self.0.as_ref().map_or(0, |list| list.capacity())
    }

    fn kept_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |list| size_of_val(&**list) + list.capacity() * size_of::<Attached>())
    }
}

/// Bytes to send, in order.
pub struct Output {
    bytes: Vec<u8>,
    /// Position in the stream of `bytes[0]`.
    base: u64,
    /// Index of the first byte that is not sent.
    sent: usize,
    /// Position up to which it is decided what bytes wait for.
    cursor: u64,
    /// Marks at or beyond this position were made in this turn.
    turn_start: u64,
    /// What the protocol had released when this turn began.
    released: Ticket,
    marks: VecDeque<Mark>,
    attached: Attachments,
    /// What of all attached is not sent.
    attached_bytes: usize,
    soft_bytes: usize,
    held_bytes_max: usize,
}

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").field("unsent", &self.len()).field("held", &self.held_bytes()).finish()
    }
}

impl Default for Output {
    fn default() -> Self {
        Self::new(usize::MAX, usize::MAX)
    }
}

impl Output {
    /// An empty output that is full beyond `soft_bytes` unsent or `held_bytes_max` held bytes.
    #[must_use]
    pub fn new(soft_bytes: usize, held_bytes_max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            base: 0,
            sent: 0,
            cursor: 0,
            turn_start: 0,
            released: Ticket::NOTHING,
            marks: VecDeque::new(),
            attached: Attachments::default(),
            attached_bytes: 0,
            soft_bytes,
            held_bytes_max,
        }
    }

    /// The buffer, to append to. What was appended since the last [`Output::hold`] in this callback may be
    /// taken back by truncating; nothing before it may be touched.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Sends `part` of `bytes`, without copying them, before what lies at index `at` of [`Output::buffer`].
    ///
    /// # Panics
    /// If nothing lies there or something was attached behind it (it would not be decided what they wait for), or if
    /// `bytes` has no such part.
    pub fn attach(&mut self, at: usize, bytes: SharedBytes, part: Range<usize>) {
        assert!(at < self.bytes.len(), "attached behind the end");
        assert!((*bytes).as_ref().get(part.clone()).is_some(), "attached what is not there");
        let at = self.base + at as u64;
        assert!(self.attached.back().is_none_or(|last| last.at <= at), "attached out of order");
        if !part.is_empty() {
            self.attached_bytes += part.len();
            self.attached.push_back(Attached { at, bytes, rest: part });
        }
    }

    /// Says that what was appended since the last call, or since this callback began, and all behind it,
    /// leaves only when `ticket` is released.
    pub fn hold(&mut self, ticket: Ticket) {
        let (start, end) = (self.cursor, self.end());
        self.cursor = end;
        if start == end || ticket.is_covered_by(self.released) {
            return;
        }
        match self.marks.back_mut() {
            Some(last) if ticket.is_covered_by(last.ticket) => {}
            // One batch of the journal mostly takes all of a turn: one write instead of several.
            Some(last) if last.start >= self.turn_start => last.ticket = last.ticket.and(ticket),
            last => {
                let ticket = last.map_or(ticket, |last| last.ticket.and(ticket));
                self.marks.push_back(Mark { start, ticket });
            }
        }
    }

    /// Takes out all that was not sent, held or not, as if it had been: for who plays the part of a loop, as a protocol's tests do.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        while !self.is_empty() {
            let piece = self.sendable(Ticket::EVERYTHING);
            all.extend_from_slice(piece);
            let count = piece.len();
            self.advance(count);
        }
        (self.cursor, self.turn_start) = (self.end(), self.end());
        all
    }

    /// Bytes not sent, held ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent + self.attached_bytes()
    }

    /// How many of them are shared with others.
    #[must_use]
    pub fn attached_bytes(&self) -> usize {
        self.attached_bytes
    }

    /// Whether all is sent.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that wait for a ticket.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.marks
            .front()
            .map_or(0, |first| (self.end() - first.start) as usize + self.attached_from(first.start))
    }

    /// Whether no input is taken until some of this has left. A protocol in the midst of a pipeline should
    /// answer [`crate::Step::Yield`]: `on_input` comes again when there is room.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let held = self.held_bytes();
        held > self.held_bytes_max || self.len() - held > self.soft_bytes
    }

    /// Begins a callback: `released` is what the protocol says now. A callback with input gets a large
    /// buffer, for it is settled at once; a message a small one, for thousands may be on their way.
    pub(crate) fn begin_turn(&mut self, pool: &mut Pool, released: Ticket, large: bool) {
        if self.bytes.capacity() == 0 {
            self.bytes = if large { pool.take_large() } else { pool.take_small() };
        }
        self.released = released;
        self.turn_start = self.end();
        self.cursor = self.turn_start;
    }

    /// The first piece of what may leave now that `released` is released: up to where something is attached, or that.
    pub(crate) fn sendable(&mut self, released: Ticket) -> &[u8] {
        let (end, sent) = (self.free_end(released), self.base + self.sent as u64);
        let until = match self.attached.front() {
            Some(first) if first.at == sent && sent < end => {
                return &(*first.bytes).as_ref()[first.rest.clone()];
            }
            Some(first) => end.min(first.at),
            None => end,
        };
        &self.bytes[self.sent..(until - self.base) as usize]
    }

    /// The first pieces of what may leave now that `released` is released; how many they are, and whether there are more.
    pub(crate) fn pieces<'a>(&'a mut self, released: Ticket, into: &mut [IoSlice<'a>]) -> (usize, bool) {
        let (end, mut at, mut count) = (self.free_end(released), self.base + self.sent as u64, 0);
        let mut put = |bytes: &'a [u8]| {
            let place = if bytes.is_empty() { return true } else { into.get_mut(count) };
            count += usize::from(place.is_some());
            place.map(|place| *place = IoSlice::new(bytes)).is_some()
        };
        let own = |from: u64, to: u64| &self.bytes[(from - self.base) as usize..(to - self.base) as usize];
        for attached in self.attached.iter().take_while(|attached| attached.at < end) {
            let shared = &(*attached.bytes).as_ref()[attached.rest.clone()];
            if !(put(own(at, attached.at)) && put(shared)) {
                return (count, true);
            }
            at = attached.at;
        }
        let is_all = put(own(at, end));
        (count, !is_all)
    }

    /// Whether more may leave than [`Output::sendable`] shows.
    pub(crate) fn continues(&mut self, released: Ticket) -> bool {
        let end = self.free_end(released);
        self.attached.front().is_some_and(|first| first.at < end)
    }

    /// Position in the stream where what is held begins.
    fn free_end(&mut self, released: Ticket) -> u64 {
        while self.marks.front().is_some_and(|first| first.ticket.is_covered_by(released)) {
            self.marks.pop_front();
        }
        self.marks.front().map_or(self.end(), |first| first.start)
    }

    /// Moves a piece of what may leave now that `released` is released into `parcel`, which is empty; whether there is one.
    ///
    /// All of a buffer changes hands; of one that must stay, a piece is copied.
    pub(crate) fn take_parcel(&mut self, released: Ticket, parcel: &mut Parcel) -> bool {
        let count = self.sendable(released).len();
        if count == 0 {
            return false;
        }
        let sent = self.base + self.sent as u64;
        if let Some(first) = self.attached.front().filter(|first| first.at == sent) {
            (parcel.shared, parcel.range) = (Some(Arc::clone(&first.bytes)), first.rest.clone());
            self.advance(count);
        } else if count == self.bytes.len() && count > PARCEL_COPY_BYTES_MAX {
            self.base += count as u64;
            std::mem::swap(&mut self.bytes, &mut parcel.own);
            parcel.range = 0..count;
        } else {
            let count = count.min(PARCEL_BYTES_MAX);
            parcel.own.extend_from_slice(&self.bytes[self.sent..self.sent + count]);
            parcel.range = 0..count;
            self.advance(count);
        }
        parcel.continues = self.continues(released) || !self.sendable(released).is_empty();
        true
    }

    /// Takes note that `count` bytes were sent, of as many pieces as that are.
    pub(crate) fn advance(&mut self, mut count: usize) {
        while count > 0 && !self.attached.is_empty() {
            let piece = count.min(self.first_piece_bytes());
            self.advance_piece(piece);
            count -= piece;
        }
        if count > 0 {
            self.advance_piece(count);
        }
    }

    /// How much lies before the next place where something is attached, or is attached here.
    fn first_piece_bytes(&self) -> usize {
        let sent = self.base + self.sent as u64;
        match self.attached.front() {
            Some(first) if first.at == sent => first.rest.len(),
            Some(first) => (first.at - sent) as usize,
            None => self.bytes.len() - self.sent,
        }
    }

    fn advance_piece(&mut self, count: usize) {
        let sent = self.base + self.sent as u64;
        if let Some(first) = self.attached.front_mut().filter(|first| first.at == sent) {
            first.rest.start += count;
            assert!(first.rest.start <= first.rest.end, "sent more than there was");
            self.attached_bytes -= count;
            if first.rest.is_empty() {
                self.attached.pop_front();
            }
            return;
        }
        self.sent += count;
        assert!(self.sent <= self.bytes.len(), "sent more than there was");
        if self.sent == self.bytes.len() {
            self.drop_sent();
            self.bytes.clear();
        } else if self.sent >= COMPACT_BYTES && self.sent >= self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.drop_sent();
        }
    }

    /// Gives the buffer back when all is sent, and moves a short rest to a small one.
    pub(crate) fn settle(&mut self, pool: &mut Pool) {
        if self.is_empty() {
            pool.put(std::mem::take(&mut self.bytes));
            if self.attached.capacity() > LISTED_KEPT_MAX {
                self.attached = Attachments::default();
            }
            if self.marks.capacity() > LISTED_KEPT_MAX {
                self.marks = VecDeque::new();
            }
        } else if self.bytes.len() - self.sent <= SMALL_BYTES && self.bytes.capacity() >= LARGE_BYTES {
            let mut small = pool.take_small();
            small.extend_from_slice(&self.bytes[self.sent..]);
            self.drop_sent();
            pool.put(std::mem::replace(&mut self.bytes, small));
        }
    }

    /// Sets what [`Output::is_full`] means.
    pub(crate) fn set_limits(&mut self, soft_bytes: usize, held_bytes_max: usize) {
        (self.soft_bytes, self.held_bytes_max) = (soft_bytes, held_bytes_max);
    }

    /// Whether replies are held.
    pub(crate) fn has_marks(&self) -> bool {
        !self.marks.is_empty()
    }

    /// The ticket that the first held byte waits for.
    pub(crate) fn first_ticket(&self) -> Option<Ticket> {
        self.marks.front().map(|first| first.ticket)
    }

    /// Bytes of memory kept for this output alone.
    pub(crate) fn kept_bytes(&self) -> usize {
        self.bytes.capacity() + self.marks.capacity() * size_of::<Mark>() + self.attached.kept_bytes()
    }

    /// Bytes of the buffer.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    fn drop_sent(&mut self) {
        self.base += self.sent as u64;
        self.sent = 0;
    }

    /// Bytes attached at or behind a position in the stream.
    fn attached_from(&self, start: u64) -> usize {
        self.attached.iter().rev().take_while(|one| one.at >= start).map(|one| one.rest.len()).sum()
    }

    fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn append(output: &mut Output, bytes: &[u8], ticket: u64) {
        output.buffer().extend_from_slice(bytes);
        output.hold(Ticket::of(ticket));
    }

    fn turn(output: &mut Output, pool: &mut Pool, released: u64, replies: &[(&[u8], u64)]) {
        output.begin_turn(pool, Ticket::of(released), true);
        for (bytes, ticket) in replies {
            append(output, bytes, *ticket);
        }
    }

    #[test]
    fn bytes_before_the_first_unreleased_mark_leave_and_no_others() {
        let (mut pool, mut output) = (Pool::default(), Output::default());
        turn(&mut output, &mut pool, 3, &[(b"free", 0), (b"old", 3), (b"five", 5), (b"tail", 0)]);
        assert_eq!(output.sendable(Ticket::of(4)), b"freeold");
        output.advance(7);
        assert!(output.sendable(Ticket::of(4)).is_empty());
        assert_eq!(output.held_bytes(), 8);
        assert_eq!(output.sendable(Ticket::of(5)), b"fivetail");
        output.advance(8);
        output.settle(&mut pool);
        assert_eq!((output.len(), output.capacity()), (0, 0));
    }

    #[test]
    fn lower_ticket_behind_a_higher_one_waits_for_the_higher() {
        let (mut pool, mut output) = (Pool::default(), Output::default());
        turn(&mut output, &mut pool, 0, &[(b"nine", 9)]);
        turn(&mut output, &mut pool, 0, &[(b"two", 2)]);
        assert_eq!(output.sendable(Ticket::of(8)), b"");
        assert_eq!(output.sendable(Ticket::of(9)), b"ninetwo");
    }

    #[test]
    fn turns_are_released_one_by_one() {
        let (mut pool, mut output) = (Pool::default(), Output::default());
        turn(&mut output, &mut pool, 0, &[(b"a", 1), (b"b", 2)]);
        turn(&mut output, &mut pool, 0, &[(b"c", 3)]);
        assert_eq!(output.sendable(Ticket::of(1)), b"", "a turn's replies leave together");
        assert_eq!(output.sendable(Ticket::of(2)), b"ab");
        assert_eq!(output.sendable(Ticket::of(3)), b"abc");
    }

    #[test]
    fn reply_appended_without_hold_is_free_when_nothing_is_held() {
        let (mut pool, mut output) = (Pool::default(), Output::default());
        output.begin_turn(&mut pool, Ticket::NOTHING, false);
        output.buffer().extend_from_slice(b"push");
        assert_eq!(output.sendable(Ticket::of(0)), b"push");
        turn(&mut output, &mut pool, 0, &[(b"held", 7)]);
        assert_eq!(output.sendable(Ticket::of(0)), b"push", "what was decided in an earlier turn stays free");
    }

    #[test]
    fn held_reply_is_kept_in_a_small_buffer() {
        let (mut pool, mut output) = (Pool::default(), Output::default());
        turn(&mut output, &mut pool, 0, &[(b"sent", 0), (b"+OK\r\n", 1)]);
        assert_eq!(output.sendable(Ticket::of(0)), b"sent");
        output.advance(4);
        output.settle(&mut pool);
        assert!(output.capacity() < LARGE_BYTES);
        assert_eq!(output.sendable(Ticket::of(1)), b"+OK\r\n");
    }

    #[test]
    fn fullness_counts_held_and_free_bytes_apart() {
        let (mut pool, mut output) = (Pool::default(), Output::new(10, 20));
        turn(&mut output, &mut pool, 0, &[(&[0; 10], 0), (&[0; 20], 5)]);
        assert!(!output.is_full());
        append(&mut output, b"x", 5);
        assert!(output.is_full(), "21 held bytes");
        output.sendable(Ticket::of(5));
        assert!(output.is_full(), "31 free bytes");
        output.advance(21);
        assert!(!output.is_full());
    }

    #[test]
    fn all_is_taken_in_its_order_and_counts_as_sent() {
        let (mut pool, mut output) = (Pool::default(), Output::new(10, 10));
        turn(&mut output, &mut pool, 0, &[(b"free", 0), (b"[]", 7)]);
        output.attach(5, Arc::new(*b"shared"), 0..6);
        assert_eq!(output.take(), b"free[shared]");
        assert_eq!((output.len(), output.held_bytes(), output.buffer().len()), (0, 0, 0));
        turn(&mut output, &mut pool, 0, &[(b"next", 8)]);
        assert_eq!(output.take(), b"next");
    }

    #[test]
    fn attached_bytes_leave_in_their_place_and_wait_with_what_follows() {
        let (mut pool, mut output) = (Pool::default(), Output::new(10, 10));
        turn(&mut output, &mut pool, 0, &[(b"free", 0)]);
        output.buffer().extend_from_slice(b"[]");
        output.attach(5, Arc::new(*b"is shared by many"), 3..9);
        output.hold(Ticket::of(7));
        assert_eq!((output.len(), output.held_bytes(), output.attached_bytes()), (12, 8, 6));
        assert_eq!(output.sendable(Ticket::of(0)), b"free");
        assert!(!output.continues(Ticket::of(0)));
        output.advance(4);
        assert_eq!(output.sendable(Ticket::of(6)), b"");
        output.settle(&mut pool);
        assert_eq!(output.sendable(Ticket::of(7)), b"[");
        assert!(output.continues(Ticket::of(7)));
        output.advance(1);
        assert_eq!(output.sendable(Ticket::of(7)), b"shared");
        assert!(output.continues(Ticket::of(7)));
        output.advance(2);
        assert_eq!(output.sendable(Ticket::of(7)), b"ared");
        output.advance(4);
        assert_eq!(output.sendable(Ticket::of(7)), b"]");
        assert!(!output.continues(Ticket::of(7)));
        output.advance(1);
        output.settle(&mut pool);
        assert_eq!((output.len(), output.capacity()), (0, 0));
    }

    proptest! {
        #[test]
        fn any_order_of_turns_sends_and_releases_keeps_order_and_tickets(
            steps in proptest::collection::vec((0..5u8, 0..40u64, 1..3_000usize), 1..200)
        ) {
            let (mut pool, mut output) = (Pool::default(), Output::default());
            let (mut released, mut appended, mut sent) = (0u64, Vec::<(u8, u64)>::new(), 0usize);
            for (kind, ticket, count) in steps {
                match kind {
                    0 | 1 => {
                        output.begin_turn(&mut pool, Ticket::of(released), ticket % 2 == 0);
                        for part in 0..3u64 {
                            let byte = (appended.len() % 251) as u8;
                            let at = output.buffer().len();
                            output.buffer().extend_from_slice(&vec![byte; count]);
                            let shared = if part == 1 { count / 2 } else { 0 };
                            output.attach(at + count / 3, Arc::new(vec![byte; shared]), 0..shared);
                            output.hold(Ticket::of(ticket + part));
                            appended.extend(std::iter::repeat_n((byte, ticket + part), count + shared));
                        }
                    }
                    2 => released = released.max(ticket),
                    3 => output.settle(&mut pool),
                    _ if ticket % 3 == 0 => {
                        let mut pieces = [IoSlice::new(&[]); 3];
                        let (found, continues) = output.pieces(Ticket::of(released), &mut pieces);
                        prop_assert!(found == 3 || !continues);
                        let all: Vec<u8> = pieces[..found].iter().flat_map(|piece| piece.to_vec()).collect();
                        let all = &all[..all.len().min(2 * count)];
                        for (index, byte) in all.iter().enumerate() {
                            prop_assert_eq!(*byte, appended[sent + index].0);
                            prop_assert!(appended[sent + index].1 <= released);
                        }
                        sent += all.len();
                        output.advance(all.len());
                        prop_assert!(all.len() == 2 * count || continues
                            || output.sendable(Ticket::of(released)).is_empty());
                    }
                    _ => {
                        let chunk = output.sendable(Ticket::of(released));
                        let chunk = &chunk[..chunk.len().min(count)];
                        for (index, byte) in chunk.iter().enumerate() {
                            prop_assert_eq!(*byte, appended[sent + index].0);
                            prop_assert!(appended[sent + index].1 <= released);
                        }
                        let count = chunk.len();
                        sent += count;
                        output.advance(count);
                    }
                }
                prop_assert_eq!(output.len(), appended.len() - sent);
            }
            while !output.is_empty() {
                let count = output.sendable(Ticket::EVERYTHING).len();
                prop_assert!(count > 0 && output.len() >= count);
                prop_assert!(output.continues(Ticket::EVERYTHING) || output.len() == count);
                output.advance(count);
                sent += count;
            }
            prop_assert_eq!(sent, appended.len());
        }
    }
}
