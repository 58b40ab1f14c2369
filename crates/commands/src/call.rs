//! What a data handler gets, and what it answers. What a control handler gets is in `control`.
//!
//! Invariants
//!   1. A handler that changes data checks all that can fail before its first `put`, `remove` or
//!      `set_expiry`: a command that answers with an error has no effect.
//!   2. A data handler may be called again for the same request (a cold value, no credits): it changes
//!      nothing but the access and the reply, and both are thrown away on [`Failure::Stop`] and [`Failure::Make`].

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

use reactor::SharedBytes;
use resp::{ArgsView, Writer};
use store::{Access, EventClass, Found, KeyRef, Moment, Store};

use crate::chunked::ChunkedReply;
use crate::copies::Copied;
use crate::failure::reply_too_large;
pub use crate::failure::{Failure, Outcome, Wait, text};
use crate::ready::Ready;

/// What a data handler works on.
pub struct Data<'a, 's> {
    /// The keys, locked; effects are collected in it.
    pub access: &'a mut Access<'s>,
    /// Database of the session.
    pub db: u16,
    /// What deadlines are compared with.
    pub now: Moment,
    /// The data as a whole: large values are made there.
    pub store: &'a Store,
    /// How large a value and a reply may be.
    pub limits: &'a SizeLimits,
    /// Large arguments, copied before the keys were locked.
    pub copies: Copied<'a>,
    /// Lookups by commands that read: found, and not.
    pub lookups: Cell<Lookups>,
    /// Large values that belong into the reply, and are not copied while the keys are locked.
    pub attached: RefCell<Attachments>,
    /// What it does when it finds nothing that it could wait for.
    pub ready: Ready<'a>,
    /// A large reply may be sent in parts.
    pub in_parts: bool,
    /// The rest of the reply.
    pub chunked: Cell<Option<Box<ChunkedReply>>>,
    /// Bytes of the reply that memory was asked for.
    pub replied: Cell<usize>,
}

/// How large a value and a reply may be: settings that can change at any time.
#[derive(Debug, Default)]
pub struct SizeLimits {
    /// The largest value, in bytes.
    pub value_bytes_max: AtomicU64,
    /// The largest reply that a connection holds, in bytes.
    pub output_bytes_max: AtomicU64,
    /// Which collections are small, as OBJECT ENCODING answers.
    pub small: Small,
}

/// Up to which sizes Redis would keep a collection in its small form, by the names of its settings.
#[derive(Debug, Default)]
pub struct Small {
    /// One of them is not Redis's default: it is asked what there is, and not which form it has.
    pub is_set: AtomicBool,
    /// `hash-max-listpack-entries`, `-value`.
    pub hash: [AtomicI64; 2],
    /// `set-max-listpack-entries`, `-value`.
    pub set: [AtomicI64; 2],
    /// `set-max-intset-entries`.
    pub integers: AtomicI64,
    /// `zset-max-listpack-entries`, `-value`.
    pub sorted_set: [AtomicI64; 2],
    /// `list-max-listpack-size`: entries, or -1 to -5 for 4 to 64 KiB.
    pub list: AtomicI64,
}

impl SizeLimits {
    /// The largest reply of one command, in bytes.
    pub fn reply_bytes_max(&self) -> usize {
        usize::try_from(self.output_bytes_max.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Refuses a reply of more than `bytes` if no connection could hold it. A command whose reply may be many times its
    /// request asks while it writes.
    ///
    /// # Errors
    /// The reply that says so.
    pub fn admit_reply(&self, bytes: usize) -> Outcome {
        let most = self.reply_bytes_max();
        if bytes > most { Err(reply_too_large(most)) } else { Ok(()) }
    }
}

/// A large value of a reply, or part of one, and the index in the buffer of replies before which it belongs.
pub struct Attached {
    /// The index in the buffer.
    pub at: usize,
    /// The value.
    pub bytes: SharedBytes,
    /// What of it.
    pub part: Range<usize>,
    /// The reply is a payload of DUMP whose checksum, behind this, is still to be written.
    pub unsealed: bool,
}

/// The large values of a reply, in order, and how many bytes they are: asked for after each part of a long reply.
#[derive(Debug, Default)]
pub struct Attachments {
    list: Vec<Attached>,
    bytes: usize,
}

impl Attachments {
    fn push(&mut self, attached: Attached) {
        self.bytes += attached.part.len();
        self.list.push(attached);
    }

    /// Adds those of a later part of the reply.
    pub fn append(&mut self, later: Self) {
        self.bytes += later.bytes;
        self.list.extend(later.list);
    }

    /// Lets each follow its place in the replies after bytes came in before it: `inserted` are indices as they were, in
    /// order, and how many bytes came in there.
    pub fn make_room(&mut self, inserted: &[(usize, usize)]) {
        let (mut rest, mut sum) = (inserted.iter().peekable(), 0);
        for attached in &mut self.list {
            while let Some((_, bytes)) = rest.next_if(|(at, _)| *at < attached.at) {
                sum += bytes;
            }
            attached.at += sum;
        }
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl IntoIterator for Attachments {
    type Item = Attached;
    type IntoIter = std::vec::IntoIter<Attached>;

    fn into_iter(self) -> Self::IntoIter {
        self.list.into_iter()
    }
}

impl std::fmt::Debug for Attached {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Attached({} B at {})", self.part.len(), self.at)
    }
}

/// The keys of a command with many of them.
pub(crate) struct Keys {
    /// Their numbers, where they are claimed and known.
    order: Option<Vec<u32>>,
    pub(crate) count: usize,
    step: usize,
}

impl Keys {
    /// The index of key number `at` among the arguments.
    fn index(&self, at: usize) -> usize {
        1 + self.step * self.order.as_ref().map_or(at, |order| order[at] as usize)
    }
}

/// Keys that were looked up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lookups {
    /// They were found.
    pub hits: u32,
    /// They were not.
    pub misses: u32,
}

impl std::ops::AddAssign for Lookups {
    fn add_assign(&mut self, more: Self) {
        self.hits += more.hits;
        self.misses += more.misses;
    }
}

impl Data<'_, '_> {
    /// The keys at every `step`-th argument, in the order in which it is quickest to change them: stripe by stripe. To read them once
    /// the given order is as good, in which their values may lie side by side.
    pub(crate) fn quick_keys(&self, args: ArgsView<'_>, step: usize) -> Keys {
        let count = (args.len() - 1) / step;
        Keys { order: self.access.quick_order(count), count, step }
    }

    /// The same as they come.
    pub(crate) fn keys(&self, args: ArgsView<'_>, step: usize) -> Keys {
        let count = (args.len() - 1) / step;
        Keys { order: self.access.given_order(count), count, step }
    }

    /// Turns to key number `at` of `keys`, where those of a long command are claimed, and brings those behind it near; returns
    /// its index among the arguments.
    #[inline]
    pub(crate) fn turn_to(&mut self, args: ArgsView<'_>, keys: &Keys, at: usize) -> usize {
        let index = keys.index(at);
        if self.access.is_claimed() {
            self.turn_long(args, keys, at, index);
        }
        index
    }

    /// Returns the index of key number `at` among the arguments; it is the next to be stored.
    #[inline]
    pub(crate) fn expect(&mut self, keys: &Keys, at: usize) -> usize {
        if let Some(order) = &keys.order {
            self.access.expect_next(order, at);
        }
        keys.index(at)
    }

    #[cold]
    fn turn_long(&mut self, args: ArgsView<'_>, keys: &Keys, at: usize, index: usize) {
        if let Some(order) = &keys.order {
            return self.access.turn_to_next(order, at);
        }
        let step = keys.step;
        let db = self.db;
        if at.is_multiple_of(Access::NEAR_KEYS_MAX) {
            let ahead = (index..args.len()).step_by(step).take(Access::NEAR_KEYS_MAX);
            self.access.prefetch(ahead.map(|at| KeyRef { db, key: args.get(at) }));
        }
        self.turn_to_key(args.get(index));
    }

    /// Turns to `key`, where the keys of a long command are claimed.
    pub(crate) fn turn_to_key(&mut self, key: &[u8]) {
        self.access.turn_to(&[KeyRef { db: self.db, key }]);
    }

    /// Counts a key that a command looked for, for INFO's hits and misses; names it if it is missed.
    pub(crate) fn count_lookup(&self, found: bool, key: &[u8]) {
        if !found {
            self.event(EventClass::Missed, "keymiss", key);
        }
        self.count_quietly(found);
    }

    /// Counts a key that a command looked for, and names nothing.
    pub(crate) fn count_quietly(&self, found: bool) {
        let Lookups { hits, misses } = self.lookups.get();
        let (hit, miss) = (u32::from(found), u32::from(!found));
        self.lookups.set(Lookups { hits: hits + hit, misses: misses + miss });
    }
}

impl Data<'_, '_> {
    /// Lets the rest of the reply be sent in parts.
    pub fn send_rest(&self, reply: Box<ChunkedReply>) {
        self.chunked.set(Some(reply));
    }

    /// Answers with a value: copied if it is small, lent if it is large.
    pub fn value(&self, found: Option<Found<'_>>, out: &mut Writer<'_>) {
        match found {
            Some(found) => self.part(found, 0..found.value.len(), out),
            None => out.null(),
        }
    }

    /// Answers with part of a value, in the same way.
    pub fn part(&self, found: Found<'_>, part: Range<usize>, out: &mut Writer<'_>) {
        match found.large.filter(|_| part.len() >= LENT_BYTES_MIN) {
            None => out.bulk(&found.value[part]),
            Some(large) => {
                let at = out.bulk_around(&[], part.len(), &[]);
                self.lend(Attached { at, bytes: Arc::<store::Large>::clone(large), part, unsealed: false });
            }
        }
    }

    /// Lets a large value be part of the reply.
    pub fn lend(&self, attached: Attached) {
        self.attached.borrow_mut().push(attached);
    }

    /// Refuses a reply of more than `bytes` if no connection could hold it, and asks for the memory. Called before the reply is made, or
    /// with each part of it, with all so far.
    ///
    /// # Errors
    /// The reply that says so, or as [`Data::ask`].
    pub fn admit_reply(&self, bytes: usize) -> Outcome {
        self.limits.admit_reply(bytes.saturating_add(self.attached.borrow().bytes()))?;
        let more = bytes.saturating_sub(self.replied.get());
        self.replied.set(self.replied.get() + more);
        self.ask(more)
    }

    /// Asks for memory before so much is made that is neither the reply nor an effect, or a large value to store.
    ///
    /// # Errors
    /// [`Failure::Stop`] if there is no memory for it.
    pub fn ask(&self, bytes: usize) -> Outcome {
        Ok(self.access.ask(bytes as u64)?)
    }
}

/// Function over the keys that a command names.
pub type DataFn = fn(&mut Data<'_, '_>, ArgsView<'_>, &mut Writer<'_>) -> Outcome;

/// Function over the one key of commands that follow each other in a pipeline: it makes their changes as one, and answers each. Any error but a stop says that
/// each is to run by itself; what was staged for the series is dropped then.
pub type SeriesFn = fn(&mut Data<'_, '_>, &[ArgsView<'_>], &mut Writer<'_>) -> Outcome;

/// Less of a large value is copied.
const LENT_BYTES_MIN: usize = 16 << 10;

/// Length and line ends around a short string of a reply.
pub const BULK_OVERHEAD_BYTES: usize = 7;
