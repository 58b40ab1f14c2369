//! The clock hand: which values leave memory when there is too little room.
//!
//! It goes over the pages of all stripes, one stripe's lock at a time, and only one thread moves it. What it meets `policy` judges. Who lacks
//! room that it may still make leaves a wish.
//!
//! Invariants
//!   1. A value whose effect is not released stays hot.
//!   2. It gives up only after every value was passed as often as it takes to drop it, and none was ([`BARREN_STRIPES_MAX`]).
//!
//! Out of scope: who is refused (`memory`).

use std::sync::atomic::Ordering;

use journal::{Keyspace, Seq};

use super::{Accounts, Memory, ROOM_SHARE};
use crate::engine::Engine;
use crate::hash::STRIPES;
use crate::index::stripe::Deltas;
use crate::log::wishes::FOLD_CHANGES_MIN;
use crate::object::{ObjectRef, View, WORD_DELTAS, Word};
use crate::policy::{LEVEL_MAX, Round};
use crate::record;

/// Where the clock stands.
#[derive(Debug, Default)]
pub(super) struct Hand {
    stripe: usize,
    space: usize,
    bits: u64,
    /// Stripes passed since anything was dropped.
    barren_stripes: usize,
    /// What it has met since it began at stripe 0.
    round: Round,
    /// What was released when it last dropped something, or began to look.
    began_at: Seq,
}

impl Memory {
    /// Drops clean hot values that were read least lately, until memory is well within its limit, `pages` were visited or
    /// whole rounds found none.
    ///
    /// `for_bytes` are to come beside what is used, or what those lack who wait. Takes one stripe's lock at a time; callers hold none.
    /// Whoever comes while another drops does not wait. Returns whether something was dropped.
    pub(crate) fn make_room(&self, accounts: Accounts<'_>, pages: usize, for_bytes: u64) -> bool {
        let mut has_dropped = false;
        let wished_bytes = self.wished_bytes.load(Ordering::Relaxed);
        let for_bytes = for_bytes.max(wished_bytes);
        let has_room = || self.has_room(accounts, for_bytes);
        if !has_room() && accounts.engine.has_addresses() {
            let Ok(mut hand) = self.hand.try_lock() else { return false };
            let released = accounts.engine.released().min(accounts.engine.newest());
            has_dropped = self.move_hand(&mut hand, accounts, released, pages, for_bytes);
        }
        if wished_bytes > 0 && (has_room() || !self.may_drop(accounts.engine)) {
            // what was wished meanwhile is wished again: who waits comes again by itself
            self.wished_bytes.store(0, Ordering::Relaxed);
        }
        has_dropped
    }

    /// Drops clean hot values of about `bytes` that were read least lately, whatever is used; returns whether there were any. Callers hold no stripe.
    pub(crate) fn shed(&self, accounts: Accounts<'_>, bytes: u64) -> bool {
        let limit_bytes = self.limit_bytes.load(Ordering::Relaxed);
        let used_bytes = self.used(accounts);
        let room_bytes = (limit_bytes - limit_bytes / ROOM_SHARE).saturating_sub(used_bytes);
        self.make_room(accounts, usize::MAX, room_bytes + bytes)
    }

    /// Drops every value that can leave memory, whatever the policy says: for tests. Callers hold no stripe.
    #[cold]
    pub(crate) fn drop_all(&self, accounts: Accounts<'_>) {
        if !accounts.engine.has_addresses() {
            return;
        }
        let released = accounts.engine.released().min(accounts.engine.newest());
        for number in 0..STRIPES {
            let (mut stripe, mut at) = (accounts.index.lock(number), 0);
            let mut freed_bytes = 0;
            while let Some((_, space)) = stripe.space_at_mut(at) {
                let mut next = Some(0);
                while let Some(bits) = next {
                    let (following, freed) = space.visit_words(bits, &mut |word, _| {
                        if word.object().is_some() {
                            word.set_level(0);
                            pass(word, released, &mut Round::default(), true, |_| false);
                        }
                    });
                    next = following;
                    freed_bytes += freed;
                }
                at += 1;
            }
            stripe.unreported_bytes -= freed_bytes;
            accounts.index.account(stripe.take_unreported());
        }
    }

    /// Whether the hand may find something to drop.
    pub(crate) fn may_drop(&self, engine: &dyn Engine) -> bool {
        let is_more_released =
            || engine.released().min(engine.newest()).0 > self.barren_until.load(Ordering::SeqCst);
        engine.has_addresses() && (self.has_warmed.load(Ordering::Relaxed) || is_more_released())
    }

    /// Leaves a wish for `bytes`.
    pub(super) fn wish(&self, bytes: u64, limit_bytes: u64) {
        let bytes = bytes.clamp(1, limit_bytes.max(1));
        if self.wished_bytes.fetch_max(bytes, Ordering::Relaxed) < bytes {
            self.waker.wake();
        }
    }

    fn move_hand(
        &self,
        hand: &mut Hand,
        accounts: Accounts<'_>,
        released: Seq,
        pages: usize,
        for_bytes: u64,
    ) -> bool {
        if !self.may_drop(accounts.engine) {
            return false;
        }
        debug_assert!(
            hand.began_at <= released,
            "what is released grows: {released:?} after {:?}",
            hand.began_at
        );
        let mut has_dropped = false;
        if self.has_warmed.swap(false, Ordering::Relaxed) || self.barren_until.load(Ordering::SeqCst) > 0 {
            // whole rounds from here on, after those that found nothing
            (hand.barren_stripes, hand.began_at) = (0, released);
            self.barren_until.store(0, Ordering::SeqCst);
        }
        for _ in 0..pages {
            if self.has_room(accounts, for_bytes) {
                break;
            }
            let hurries = !self.used_within(accounts, HURRY_SHARE, for_bytes);
            if hand.advance(accounts, released, hurries, self.folding_bytes_max(hurries)) {
                (hand.barren_stripes, hand.began_at) = (0, released);
                has_dropped = true;
            } else if hand.barren_stripes > BARREN_STRIPES_MAX {
                hand.barren_stripes = 0;
                let meanwhile = released.0.saturating_sub(hand.began_at.0);
                self.barren_until.store(released.0 + meanwhile, Ordering::SeqCst);
                break;
            }
        }
        has_dropped
    }

    /// Bytes of values that may stay in memory until they are folded: fewer where room is needed at once, but some. A load needs room all the
    /// time, and what it leaves unfolded each later read pays for.
    pub(crate) fn folding_bytes_max(&self, hurries: bool) -> u64 {
        let share = if hurries { HURRIED_FOLDING_SHARE } else { FOLDING_SHARE };
        match self.limit_bytes.load(Ordering::Relaxed) {
            0 => u64::MAX,
            limit_bytes => limit_bytes / share,
        }
    }
}

impl Hand {
    /// Visits one page; returns whether something was dropped.
    fn advance(
        &mut self,
        accounts: Accounts<'_>,
        released: Seq,
        hurries: bool,
        folding_bytes_max: u64,
    ) -> bool {
        let mut stripe = accounts.index.lock(self.stripe);
        let Some((keyspace, space)) = stripe.space_at_mut(self.space) else {
            drop(stripe);
            (self.stripe, self.space, self.bits) = ((self.stripe + 1) % STRIPES, 0, 0);
            self.barren_stripes += 1;
            if self.stripe == 0 {
                self.round.end();
            }
            return false;
        };
        let (next, freed) = space.visit_words(self.bits, &mut |word, deltas| {
            let folds = |object: ObjectRef<'_>| {
                is_folded(accounts.engine, keyspace, object, deltas, folding_bytes_max)
            };
            pass(word, released, &mut self.round, hurries, folds);
        });
        stripe.unreported_bytes -= freed;
        accounts.index.account(std::mem::take(&mut stripe.unreported_bytes));
        match next {
            Some(bits) => self.bits = bits,
            None => (self.space, self.bits) = (self.space + 1, 0),
        }
        freed > 0
    }
}

/// Whether a value is to be folded before it leaves memory, and will be.
fn is_folded(
    engine: &dyn Engine,
    keyspace: Keyspace,
    object: ObjectRef<'_>,
    deltas: &Deltas,
    bytes_max: u64,
) -> bool {
    deltas.has_changes(object.address(), FOLD_CHANGES_MIN) && engine.wish_fold(keyspace, object, bytes_max)
}

/// The hand passes `word`: a clean hot one whose turn it is becomes its address, unless it is to be folded first, as `folds` says.
pub(crate) fn pass(
    word: &mut Word,
    released: Seq,
    round: &mut Round,
    hurries: bool,
    folds: impl FnOnce(ObjectRef<'_>) -> bool,
) {
    let View::Hot(object) = word.view() else {
        if word.is_marked() && !round.pass_mark() {
            word.set_marked(false);
        }
        return;
    };
    if object.kind() == record::REMOVED || object.seq() > released {
        return;
    }
    match round.pass_value(word.level(), hurries) {
        Some(level) => word.set_level(level),
        None if word.marks() & WORD_DELTAS != 0 && folds(object) => {}
        None => *word = Word::cold(object.address(), word.marks()),
    }
}

/// With less than this share free, the hand hurries: what grows is refused soon.
const HURRY_SHARE: u64 = 32;
/// Of the limit this share is for values that wait to be folded; and if the hand hurries.
const FOLDING_SHARE: u64 = 8;
const HURRIED_FOLDING_SHARE: u64 = 32;
/// Stripes in which the hand finds nothing before it gives up: by then every value that can go has come to level 0, and was
/// passed again.
const BARREN_STRIPES_MAX: usize = (LEVEL_MAX as usize + 1) * STRIPES;
