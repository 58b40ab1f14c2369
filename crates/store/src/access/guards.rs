//! What an access may touch, the stripes that it has locked for that, and what it makes hot there.

use std::cell::OnceCell;
use std::sync::MutexGuard;

use journal::Keyspace;

use crate::error::{Stop, StoreError};
use crate::foresight::Foreseen;
use crate::hash::{KeyHash, STRIPES};
use crate::index::stripe::{Current, Seek, Space, Stripe};
use crate::index::table::Spot;
use crate::object::{Object, Word};
use crate::policy::Verdict;
use crate::prepared::Prepared;
use crate::{KeyRef, Store};

/// What an access may touch; it locks the stripes of all of it, but of what is claimed.
#[derive(Clone, Copy, Debug)]
pub enum Scope<'a> {
    /// These keys and no others.
    Keys(&'a [KeyRef<'a>]),
    /// This key alone, and what [`Foresight::add`](crate::Foresight::add) told of it.
    Foreseen(&'a KeyRef<'a>, Foreseen),
    /// These keys and no others, for a command on so many that others must not wait for their stripes: they are claimed, to be
    /// changed or only read, and each is locked when it is [turned to](super::Access::turn_to). Waits while another claims one of
    /// them: for threads that may.
    Claimed {
        /// The keys.
        keys: &'a [KeyRef<'a>],
        /// They may be changed.
        writes: bool,
    },
    /// Any key, and the keyspaces themselves.
    Everything,
    /// Any key, but each stripe at a moment of its own: for answers about a whole database that nothing else depends
    /// on. Only [`Access::len`](super::Access::len), [`Access::scan`](super::Access::scan) and [`Access::random_key`](super::Access::random_key) work with it.
    Walk,
}

impl<'a> Scope<'a> {
    /// The keys, where they are named.
    #[must_use]
    pub fn keys(self) -> Option<&'a [KeyRef<'a>]> {
        match self {
            Self::Keys(keys) | Self::Claimed { keys, .. } => Some(keys),
            Self::Foreseen(key, _) => Some(std::slice::from_ref(key)),
            Self::Everything | Self::Walk => None,
        }
    }
}

/// The locked stripes.
pub(super) struct Guards<'s> {
    held: Held<'s>,
    /// One more, which has leaves of a collection that was renamed.
    beside: OnceCell<(usize, MutexGuard<'s, Stripe>)>,
}

/// One stripe inline, several sorted, or all.
enum Held<'s> {
    None,
    One(usize, MutexGuard<'s, Stripe>),
    Many(Vec<(usize, MutexGuard<'s, Stripe>)>),
    /// None now, each of all for a moment.
    Walk,
}

impl<'s> Guards<'s> {
    pub(super) fn none() -> Self {
        Self { held: Held::None, beside: OnceCell::new() }
    }

    pub(super) fn one(store: &'s Store, number: usize) -> Self {
        Self { held: Held::One(number, store.index.lock(number)), beside: OnceCell::new() }
    }

    /// Locks what `scope` names, and what the attempt before lacked.
    pub(super) fn lock(store: &'s Store, scope: Scope<'_>, prepared: &Prepared) -> Self {
        Self { held: Held::lock(store, scope, prepared.stripes()), beside: OnceCell::new() }
    }

    /// Whether no stripe is locked.
    pub(super) fn is_none(&self) -> bool {
        matches!(self.held, Held::None) && self.beside.get().is_none()
    }

    pub(super) fn is_one(&self, number: usize) -> bool {
        matches!(self.held, Held::One(at, _) if at == number)
    }

    /// Whether it is the stripe that [`Guards::reach`] has locked.
    pub(super) fn is_beside(&self, number: usize) -> bool {
        self.beside.get().is_some_and(|(beside, _)| *beside == number)
    }

    /// Locks stripe `number`, too, if that needs no waiting: returns whether it is locked.
    pub(super) fn reach(&self, store: &'s Store, number: usize) -> bool {
        if self.stripe(number).is_ok() {
            return true;
        }
        // nobody waits here, so the order of the stripes does not matter
        let guard = if self.beside.get().is_none() { store.index.try_lock(number) } else { None };
        guard.is_some_and(|guard| self.beside.set((number, guard)).is_ok())
    }

    /// Makes hot what was read and is to stay in memory, of keys that the scope names.
    pub(super) fn warm_all(&mut self, store: &Store, scope: Scope<'_>, prepared: &Prepared) {
        if let Scope::Keys(_) | Scope::Foreseen(..) = scope {
            let keys = scope.keys().unwrap_or_default();
            keys.iter().for_each(|key| self.warm(store, prepared, *key));
        }
    }

    pub(super) fn warm(&mut self, store: &Store, prepared: &Prepared, key: KeyRef<'_>) {
        if let Some(keyspace) = store.index.keyspace(key.db) {
            self.warm_slot(store, prepared, keyspace, store.hasher.hash(key.key), key.key);
        }
    }

    /// As [`Guards::warm_all`], of the leaves that were missed before.
    pub(super) fn warm_leaves(&mut self, store: &Store, prepared: &Prepared) {
        for leaf in prepared.leaves() {
            self.warm_slot(store, prepared, leaf.keyspace, leaf.hash, &leaf.key);
        }
    }

    pub(super) fn warm_slot(
        &mut self,
        store: &Store,
        prepared: &Prepared,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
    ) {
        if let Ok(stripe) = self.stripe_mut(hash.stripe()) {
            stripe.warm(store, prepared, keyspace, hash, key);
        }
    }

    /// Adds a stripe that none of these is; a walk has none of its own.
    pub(super) fn add(&mut self, number: usize, guard: MutexGuard<'s, Stripe>) {
        self.held = match std::mem::replace(&mut self.held, Held::None) {
            Held::Walk => Held::Walk,
            Held::None => Held::One(number, guard),
            Held::One(other, held) => {
                let mut both = vec![(other, held), (number, guard)];
                both.sort_unstable_by_key(|(number, _)| *number);
                Held::Many(both)
            }
            Held::Many(mut all) => {
                let at = all.partition_point(|(other, _)| *other < number);
                all.insert(at, (number, guard));
                Held::Many(all)
            }
        };
    }

    pub(super) fn stripe(&self, number: usize) -> Result<&Stripe, Stop> {
        let held = match &self.held {
            Held::One(one, guard) if *one == number => Some(guard),
            Held::Many(all) => all.binary_search_by_key(&number, |(n, _)| *n).ok().map(|at| &all[at].1),
            _ => None,
        };
        let beside = || self.beside.get().filter(|(n, _)| *n == number).map(|(_, guard)| guard);
        held.or_else(beside).map(|guard| &**guard).ok_or_else(out_of_scope)
    }

    pub(super) fn stripe_mut(&mut self, number: usize) -> Result<&mut Stripe, Stop> {
        let held = match &mut self.held {
            Held::One(one, guard) if *one == number => Some(guard),
            Held::Many(all) => all.binary_search_by_key(&number, |(n, _)| *n).ok().map(|at| &mut all[at].1),
            _ => None,
        };
        let beside = self.beside.get_mut().filter(|(n, _)| *n == number).map(|(_, guard)| guard);
        held.or(beside).map(|guard| &mut **guard).ok_or_else(out_of_scope)
    }

    /// Calls `f` with stripe `number`, locked for the call alone where the scope is a walk.
    pub(super) fn with_stripe<R>(
        &self,
        store: &Store,
        number: usize,
        f: impl FnOnce(&Stripe) -> R,
    ) -> Result<R, Stop> {
        match self.held {
            Held::Walk => Ok(f(&store.index.lock(number))),
            _ => Ok(f(&self.everything()?[number].1)),
        }
    }

    pub(super) fn everything(&self) -> Result<&[(usize, MutexGuard<'s, Stripe>)], Stop> {
        match &self.held {
            Held::Many(all) if all.len() == STRIPES => Ok(all),
            _ => Err(out_of_scope()),
        }
    }
}

impl<'s> Held<'s> {
    fn lock(store: &'s Store, scope: Scope<'_>, more: &[usize]) -> Self {
        let all = || Self::Many((0..STRIPES).map(|n| (n, store.index.lock(n))).collect());
        let keys = match scope {
            Scope::Walk => return Self::Walk,
            Scope::Everything => return all(),
            Scope::Keys(_) | Scope::Foreseen(..) | Scope::Claimed { .. } => scope.keys().unwrap_or_default(),
        };
        // The engine `noop` measures the road to here: it has no keys to lock.
        if keys.is_empty() || !store.engine_keeps() {
            return Self::None;
        }
        // one more is known after each attempt: there are not to be many
        if more.len() > STRIPES_BESIDE_MAX {
            return all();
        }
        let of_keys = keys.iter().map(|key| store.hasher.hash(key.key).stripe());
        let mut numbers: Vec<usize> = of_keys.chain(more.iter().copied()).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Self::Many(numbers.into_iter().map(|n| (n, store.index.lock(n))).collect())
    }
}

impl Stripe {
    /// Makes hot what was read of a key, if it is to stay in memory.
    pub(super) fn warm(
        &mut self,
        store: &Store,
        prepared: &Prepared,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
    ) {
        let judge = |is_marked| store.memory.verdict(store.accounts(), is_marked);
        let Some((spot, word)) =
            self.space(keyspace).and_then(|space| space.warmed(keyspace, hash, key, prepared, judge))
        else {
            return;
        };
        let space = self.space_mut(keyspace);
        let base = word.address();
        if let Some(Ok(fetched)) = prepared.record(base) {
            space.deltas.note_base_bytes(base, fetched.record_bytes());
        }
        self.unreported_bytes += space.set_word(spot, word);
        store.index.account(self.take_unreported());
        store.memory.on_warm();
    }
}

impl Space {
    /// The slot of a cold key that was fetched, and its word once hot; `None` if it is to stay cold.
    fn warmed(
        &self,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
        prepared: &Prepared,
        judge: impl FnOnce(bool) -> Verdict,
    ) -> Option<(Spot, Word)> {
        let Seek::At { spot, word, current: current @ Current::Cold { .. }, whole: true, .. } =
            self.seek(keyspace, hash, key, prepared)
        else {
            return None;
        };
        if !current.has_value() {
            return None;
        }
        let Verdict::Keep(level) = judge(word.is_marked()) else {
            word.set_marked(true);
            return None;
        };
        let mut object = Object::new(current.kind(), key, current.value(), current.expiry());
        object.stamp(word.address(), current.seq());
        let hot = Word::hot(object, self.table.word(spot).marks());
        hot.set_level(level);
        Some((spot, hot))
    }
}
/// Only who is refused pays for the error.
#[cold]
fn out_of_scope() -> Stop {
    Stop::Refused(StoreError::OutOfScope)
}

/// Stripes beside those of its keys that an access locks, at most: then it locks all.
const STRIPES_BESIDE_MAX: usize = 16;
