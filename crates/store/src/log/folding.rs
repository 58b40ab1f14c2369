//! Folding values that are to leave memory: one record instead of a base with many changes, so that the next read is one.
//!
//! ```text
//! the hand meets a value with changes whose turn it is --wish--> it stays in memory
//! housekeeping: wish --append_if--> copy of what is in memory --durable--> turn the index
//! the hand meets it again: no changes, and it goes
//! ```
//!
//! Nothing is read for it. Where housekeeping is behind values go with their changes; such a value becomes one record when a command has read
//! it with its changes, so that only its first read is several. While nobody writes, and at a stop for a while, all values in memory are
//! looked at: their turn comes with the next start.
//!
//! Out of scope: when the hand passes (`memory`), copies (`copies`), folding what is read (`fold`, `prepared`).

use std::collections::BTreeSet;
use std::time::Duration;

use clock::Nanos;
use journal::{Class, JournalError, Keyspace, LogAddress, Seq};

use super::capture::Survivor;
use super::copies::{Appended, Context, Copies, Image, Progress, SLICE_BYTES};
use super::wishes::{FOLD_CHANGES_MIN, ReadValue, Wish};
use crate::hash::KeyHash;
use crate::object::ObjectRef;
use crate::prepared::Fetched;
use crate::record::{self, Draft};

/// Folds one value after the other.
#[derive(Debug, Default)]
pub(crate) struct Folding {
    copies: Copies,
    sweep: Sweep,
}

/// A look at all values in memory, once nobody has written for a while.
#[derive(Debug, Default)]
struct Sweep {
    /// The newest effect, and since when it is.
    newest: Seq,
    since: Nanos,
    /// The newest effect when the look began.
    begun: Seq,
    /// Stripe, space and hash bits of the next page; `None`: all were looked at.
    next: Option<(usize, usize, u64)>,
}

/// When values in memory are looked at, and how many at once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    /// So long nobody writes before.
    quiet: Duration,
    /// Pages of the index in one turn.
    pages: usize,
}

impl Pace {
    /// Beside commands.
    pub(crate) const PACED: Self = Self { quiet: Duration::from_secs(1), pages: 64 };
    /// As fast as it goes.
    pub(crate) const EAGER: Self = Self { quiet: Duration::ZERO, pages: usize::MAX };
}

impl Folding {
    /// Takes the list of segments that the index was turned into since the last call.
    pub(crate) fn take_turned(&mut self) -> BTreeSet<u32> {
        self.copies.take_turned()
    }

    /// Whether a copy in `segment` waits for the index to turn to it.
    pub(crate) fn awaits(&self, segment: u32) -> bool {
        self.copies.awaits(segment)
    }

    /// Looks at some more values in memory, if nobody has written for a while at `now`; returns whether there are more to look at.
    pub(crate) fn sweep(&mut self, context: Context<'_>, now: Nanos, pace: Pace) -> bool {
        let newest = context.engine.journal.appended_seq();
        let sweep = &mut self.sweep;
        if sweep.newest != newest {
            (sweep.newest, sweep.since) = (newest, now);
        }
        if sweep.next.is_none() && sweep.begun != newest {
            (sweep.begun, sweep.next) = (newest, Some((0, 0, 0)));
        }
        if now.since(sweep.since) < pace.quiet {
            return false;
        }
        let wishes = &context.engine.wishes;
        for _ in 0..pace.pages {
            let Some(at) = sweep.next.filter(|_| !wishes.are_many()) else { break };
            sweep.next = visit(context, at, &mut |keyspace, object| {
                wishes.add(keyspace, object, u64::MAX);
            });
        }
        sweep.next.is_some()
    }

    /// Folds values in memory and waits for the copies, as long as `has_time`; `rest` passes some of it.
    pub(crate) fn fold_all(&mut self, context: Context<'_>, has_time: &dyn Fn() -> bool, rest: &dyn Fn()) {
        let mut next = Some((0, 0, 0));
        while let Some(at) = next.filter(|_| has_time()) {
            let mut found = Vec::new();
            next = visit(context, at, &mut |keyspace, object| found.extend(Wish::of(keyspace, object)));
            for wish in found {
                match wish.fold(context) {
                    Ok(Some(Appended::Copied(copy))) => self.copies.push(copy),
                    Ok(None | Some(Appended::Changed)) => {}
                    // the next page may find room
                    Ok(Some(Appended::NoRoom)) => rest(),
                    Err(_) => return,
                }
            }
        }
        while !self.copies.is_empty() && has_time() {
            context.engine.journal.offer();
            rest();
            self.settle(context);
        }
    }

    /// Turns the index to the copies that are durable.
    pub(crate) fn settle(&mut self, context: Context<'_>) {
        self.copies.settle(context, |source, _| context.engine.wishes.end(source.address));
    }

    /// Does at most about [`SLICE_BYTES`] of work.
    ///
    /// # Errors
    /// When the journal takes no such record: a bug.
    pub(crate) fn slice(&mut self, context: Context<'_>) -> Result<Progress, JournalError> {
        let wishes = &context.engine.wishes;
        self.settle(context);
        let mut bytes = 0;
        while bytes < SLICE_BYTES {
            let Some(wish) = wishes.next() else { break };
            match wish.fold(context)? {
                Some(Appended::Copied(copy)) => {
                    bytes += copy.bytes();
                    self.copies.push(copy);
                }
                // it has changed: the hand comes again
                None | Some(Appended::Changed) => wishes.end(wish.base),
                Some(Appended::NoRoom) => {
                    wishes.end(wish.base);
                    break;
                }
            }
        }
        if bytes > 0 {
            context.engine.journal.offer();
            return Ok(Progress::Worked(bytes));
        }
        Ok(if self.copies.is_empty() { Progress::Done } else { Progress::Waits })
    }
}

impl Wish {
    /// Appends the value as it is in memory, or as it was read; `None` if it is not there any more, or changed since.
    fn fold(&self, context: Context<'_>) -> Result<Option<Appended>, JournalError> {
        let Self { keyspace, base, key, read } = self;
        let hash = context.hasher.hash_in(*keyspace, key);
        if let Some(read) = read {
            return read.fold(*keyspace, hash, *base, context);
        }
        let Some(hot) = context.index.hot(*keyspace, hash, *base) else { return Ok(None) };
        let image = Image { kind: hot.kind, payload: &hot.payload, seq: hot.seq, expiry: hot.expiry };
        let source = Survivor { keyspace: *keyspace, hash, address: *base };
        Copies::append(source, hot.base_bytes, &hot.owned, &image, Class::Write, context).map(Some)
    }
}

impl ReadValue {
    /// Appends the value, if its key still consists of what was read.
    fn fold(
        &self,
        keyspace: Keyspace,
        hash: KeyHash,
        base: LogAddress,
        context: Context<'_>,
    ) -> Result<Option<Appended>, JournalError> {
        let owned = context.index.owns(keyspace, hash, base);
        let owned = owned.filter(|owned| owned.base == base && owned.deltas == self.deltas);
        let Some(owned) = owned else { return Ok(None) };
        let Fetched { kind, ref key, ref value, seq, expiry, .. } = self.value;
        let kind = kind | if owned.shared { record::SHARED } else { 0 };
        let payload = Draft::whole(kind, keyspace, key, value, expiry).parts().concat();
        let image = Image { kind, payload: &payload, seq, expiry };
        let source = Survivor { keyspace, hash, address: base };
        Copies::append(source, self.value.record_bytes(), &owned, &image, Class::Write, context).map(Some)
    }
}

/// Visits the values in memory of the page at `at` that are to be folded; returns where the next one is.
fn visit(
    context: Context<'_>,
    at: (usize, usize, u64),
    visit: &mut dyn FnMut(Keyspace, ObjectRef<'_>),
) -> Option<(usize, usize, u64)> {
    context.index.visit_hot(at, &mut |keyspace, object, deltas| {
        if deltas.has_changes(object.address(), FOLD_CHANGES_MIN) {
            visit(keyspace, object);
        }
    })
}
