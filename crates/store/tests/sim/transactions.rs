//! Transactions in the lives of a store: one is staged at a time, some are prepared, and both meet everything else.
//!
//! What the store says of conflicts is judged from both sides. *Done* must be true: each key that the transaction touched reads as
//! it did then. *Changed* and *locked* must have a reason: somebody did something to that key since, or a branch holds it.

use std::collections::{BTreeMap, BTreeSet};

use store::{Halted, KeyRef, Prepared, Scope, Staging, Stop, Wanted, Workspace};

use crate::collections::resolve;
use crate::model::{Branch, DATABASES, Effect, Entry, Name};
use crate::world::{Outcome, Trouble, World, entry, never, stage, violation};

/// Branches that are prepared at once, at most.
const BRANCHES_MAX: usize = 3;

/// A transaction that is being staged.
pub struct Open {
    workspace: Workspace,
    /// What it has staged, by contents and key; `None` is a removal.
    changes: BTreeMap<Name, Option<Entry>>,
    /// The contents of each database: those that one had before, or made since.
    contents: [u16; DATABASES as usize],
    made: u16,
    /// What it saw of each key when it touched it, by the database that has it until the commit.
    seen: BTreeMap<Name, Option<Entry>>,
    /// Keys of these that somebody did something to since.
    changed: BTreeSet<Name>,
}

impl World {
    /// One step of some transaction.
    pub fn transaction_step(&mut self) -> Outcome<()> {
        match self.rng.below(20) {
            0..11 => self.stage_command(),
            11..14 => self.prepare(),
            14 => self.commit_staged(),
            15 => {
                self.open = None;
                Ok(())
            }
            _ => self.end_branch(),
        }
    }

    /// Takes note of what others did.
    pub(crate) fn note(&mut self, effects: &[Effect]) {
        let Some(open) = &mut self.open else { return };
        let concerned =
            open.seen.keys().filter(|(db, key)| effects.iter().any(|effect| effect.concerns(*db, key)));
        open.changed.extend(concerned.cloned());
    }

    /// Takes note of keys that others set and removed again in one group. Of one that had expired, and is there still, the group logs the
    /// removal, and who watches it hears of a change; otherwise there is nothing to hear of.
    pub(crate) fn note_undone(&mut self, names: &[Name]) -> Outcome<()> {
        let now = self.now()?;
        let expired = names.iter().filter(|(db, key)| self.model.may_have_expired(*db, key, now));
        let removals: Vec<Effect> = expired.cloned().map(|(db, key)| Effect::Remove { db, key }).collect();
        self.note(&removals);
        Ok(())
    }

    /// What a command did, unless a lock stopped it: then `held` says that it had to.
    pub(crate) fn past_locks<T>(&mut self, held: Option<Name>, outcome: Outcome<T>) -> Outcome<Option<T>> {
        match (held, outcome) {
            (None, Ok(done)) => Ok(Some(done)),
            (Some((db, key)), Ok(_)) => {
                violation(format!("db {db} {} is locked, and was changed", key.escape_ascii()))
            }
            (Some(_), Err(Trouble::Locked(locked))) => {
                self.met.locked += 1;
                self.check_lock(&locked.by, locked.db, locked.key.as_deref())
            }
            (_, Err(trouble @ Trouble::Locked(_))) => {
                violation(format!("nothing holds its keys: {trouble:?}"))
            }
            (_, Err(trouble)) => Err(trouble),
        }
    }

    fn check_lock<T>(&self, by: &str, db: u16, key: Option<&[u8]>) -> Outcome<Option<T>> {
        let current = self.model.current();
        match key.map_or_else(|| current.whole_holder(db), |key| current.holder(db, key)) {
            Some(holder) if holder == by => Ok(None),
            holder => violation(format!("db {db} {key:?} is held by {holder:?}, not by {by}")),
        }
    }

    /// A command of the open transaction, on one to three keys.
    fn stage_command(&mut self) -> Outcome<()> {
        let store = self.store().clone();
        let mut open = self.open.take().unwrap_or_else(|| Open {
            workspace: store.workspace(),
            changes: BTreeMap::new(),
            contents: std::array::from_fn(|db| db as u16),
            made: DATABASES,
            seen: BTreeMap::new(),
            changed: BTreeSet::new(),
        });
        let outcome = match self.rng.below(24) {
            0 => self.stage_move(&mut open, &Effect::Flush { db: self.rng.clone().below(3) as u16 }),
            1 => self.stage_move(&mut open, &Effect::Swap { a: 0, b: 1 + self.rng.clone().below(2) as u16 }),
            2 if self.rng.chance(1, 3) => self.stage_move(&mut open, &Effect::FlushAll),
            _ => {
                let effects: Vec<Effect> = (0..1 + self.rng.below(3)).map(|_| self.random_change()).collect();
                self.stage_effects(&mut open, &effects)
            }
        };
        self.open = Some(open);
        outcome
    }

    /// FLUSHDB, FLUSHALL or SWAPDB.
    fn stage_move(&mut self, open: &mut Open, effect: &Effect) -> Outcome<()> {
        let (store, staging) = (self.store(), &mut open.workspace);
        self.tries(&[], |prepared| {
            let none = |stop| (stop, Wanted::default());
            let mut access = store.access(Scope::Everything, prepared, 0).map_err(none)?;
            access.resume(staging);
            let moved = match effect {
                Effect::Flush { db } => access.flush(*db),
                Effect::Swap { a, b } => access.swap(*a, *b),
                _ => access.flush_all(),
            };
            moved.map_err(none)?;
            access.keep(staging).map_err(none)
        })?;
        for db in 0..DATABASES {
            if matches!(effect, Effect::FlushAll) || matches!(effect, Effect::Flush { db: of } if *of == db) {
                open.contents[usize::from(db)] = open.made;
                open.made += 1;
            }
        }
        if let Effect::Swap { a, b } = effect {
            open.contents.swap(usize::from(*a), usize::from(*b));
        }
        let contents = open.contents;
        open.changes.retain(|(of, _), _| contents.contains(of));
        Ok(())
    }

    fn random_change(&mut self) -> Effect {
        let (db, key) = self.random_key();
        match self.rng.below(11) {
            8.. => self.random_collection_change(),
            0 | 1 => Effect::Remove { db, key },
            2 | 3 => self.random_retime(db, key),
            _ => self.random_put(),
        }
    }

    fn stage_effects(&mut self, open: &mut Open, effects: &[Effect]) -> Outcome<()> {
        let names: Vec<Name> = effects.iter().map(key_of).map(|(db, key)| (db, key.to_vec())).collect();
        let keys: Vec<KeyRef<'_>> = names.iter().map(|(db, key)| KeyRef { db: *db, key }).collect();
        let now = self.now()?;
        // what it reads is looked at before each change, so that one command reads what an earlier one staged
        let mut changes = open.changes.clone();
        let (mut wanted, mut presence) = (Vec::new(), Vec::new());
        for (effect, name) in effects.iter().zip(&names) {
            let name = &(open.contents[usize::from(name.0)], name.1.clone());
            let visible = match changes.get(name) {
                Some(change) => change.clone().and_then(|entry| entry.visible(now)),
                None if name.0 < DATABASES => self.model.current().get(name.0, &name.1, now).cloned(),
                None => None,
            };
            wanted.push(visible.clone());
            let (present, resolved) = resolve(effect, visible.as_ref());
            presence.push(present);
            let entry = match resolved {
                Some(Effect::Put { value, expiry, .. }) => Some(Entry::new(value, expiry)),
                Some(Effect::Expiry { expiry, .. }) => visible.clone().map(|entry| Entry { expiry, ..entry }),
                Some(_) => None,
                None => continue,
            };
            if matches!(effect, Effect::Change { .. }) && entry == visible {
                // the store may see that nothing changes, and then what others do to the key is seen
                return Ok(());
            }
            changes.insert(name.clone(), entry);
        }
        let store = self.store();
        store.touch(&mut open.workspace, &keys).map_err(Trouble::Refused)?;
        for (db, key) in &names {
            let contents = open.contents[usize::from(*db)];
            // what it emptied is its own, whatever others do there
            if contents < DATABASES {
                let seen = || self.model.current().get(contents, key, now).cloned();
                open.seen.entry((contents, key.clone())).or_insert_with(seen);
            }
        }
        let staging = &mut open.workspace;
        let found = self.tries(&keys, |prepared| staged(store, staging, &keys, effects, prepared))?;
        if found != (wanted.clone(), presence.clone()) {
            return violation(format!("{effects:?} staged on {wanted:?} found {found:?}, not {presence:?}"));
        }
        open.changes = changes;
        Ok(())
    }

    /// Prepares the open transaction.
    fn prepare(&mut self) -> Outcome<()> {
        if self.model.current().1.len() >= BRANCHES_MAX {
            return self.end_branch();
        }
        let Some(open) = self.open.take() else { return Ok(()) };
        let id = format!("branch-{}", self.rng.below(1 << 40));
        let first = self.store().newest_seq().0 + 1;
        let store = self.store();
        let staging =
            self.tries(&[], |prepared| store.prepare(&id, &open.workspace, prepared).map_err(halted))?;
        let Some(ticket) = self.judge(&open, staging)? else { return Ok(()) };
        let whole: BTreeSet<u16> =
            (0..DATABASES).filter(|db| open.contents[usize::from(*db)] != *db).collect();
        let held = open.seen.keys().filter(|(db, _)| !whole.contains(db)).cloned().collect();
        let (effects, undone) = self.effects_of(&open);
        let branch = Branch { held, whole, effects, undone };
        self.model.commit(first..=ticket, vec![Effect::Prepare { id, branch }]);
        self.met.branches_prepared += 1;
        Ok(())
    }

    /// Commits the open transaction with nothing prepared.
    fn commit_staged(&mut self) -> Outcome<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let first = self.store().newest_seq().0 + 1;
        let store = self.store();
        let staging =
            self.tries(&[], |prepared| store.commit_staged(&open.workspace, prepared).map_err(halted))?;
        let Some(ticket) = self.judge(&open, staging)? else { return Ok(()) };
        if self.store().newest_seq().0 >= first {
            let (effects, _) = self.effects_of(&open);
            self.note(&effects);
            self.model.commit(first..=ticket, effects);
        }
        Ok(())
    }

    /// The ticket, if it is done and rightly so.
    fn judge(&mut self, open: &Open, staging: Staging) -> Outcome<Option<u64>> {
        let now = self.now()?;
        match staging {
            Staging::Done { ticket } => {
                for ((db, key), seen) in &open.seen {
                    let current = self.model.current();
                    let (there, holder) = (current.get(*db, key, now), current.holder(*db, key));
                    if there != seen.as_ref() || holder.is_some() {
                        let key = key.escape_ascii();
                        return violation(format!(
                            "db {db} {key} was {seen:?}, is {there:?}, held by {holder:?}: no conflict"
                        ));
                    }
                }
                Ok(Some(ticket.pack()))
            }
            Staging::Changed { db, key } => {
                self.met.conflicts += 1;
                let name = (db, key.to_vec());
                let seen = open.seen.get(&name);
                // gone and not changed: its time had come, though the wall clock may have been set back since
                let is_gone = self.model.current().get(db, &name.1, now).is_none();
                let has_expired = is_gone && seen.is_some_and(Option::is_some);
                // a purge after the touch of what had ended before it counts as a change as well
                let has_ended = self.model.ended.contains_key(&name.1);
                // of a key that cannot be read nobody knows that it had expired, and so that a flush took nothing
                if open.changed.contains(&name) || has_expired || has_ended || self.is_struck {
                    return Ok(None);
                }
                violation(format!("db {db} {} was {seen:?}, and nobody changed it", key.escape_ascii()))
            }
            Staging::Locked { by, db, key } => {
                self.met.conflicts += 1;
                self.check_lock(&by, db, key.as_deref())
            }
        }
    }

    /// What the commit of `open` does, as long as its keys are as they are; and keys that it sets and removes again.
    fn effects_of(&self, open: &Open) -> (Vec<Effect>, Vec<Name>) {
        let now = self.store().now();
        let (mut effects, mut undone) = (Vec::new(), Vec::new());
        if (0..).zip(open.contents).any(|(db, contents)| db != contents) {
            let from = open.contents.map(|contents| (contents < DATABASES).then_some(contents));
            effects.push(Effect::Rearrange { from });
        }
        for ((contents, key), change) in &open.changes {
            let db = (0..).zip(open.contents).find(|(_, it)| it == contents);
            let (db, key) = (db.expect("others are forgotten").0, key.clone());
            match change {
                Some(Entry { value, expiry, .. }) => {
                    let (value, expiry) = (value.clone(), *expiry);
                    effects.push(Effect::Put { db, key, value, expiry, lapsed: false });
                }
                // what it set and removed again was never there
                None if *contents < DATABASES && self.model.current().get(*contents, &key, now).is_some() => {
                    effects.push(Effect::Remove { db, key });
                }
                None => undone.push((db, key)),
            }
        }
        (effects, undone)
    }

    /// Commits or rolls back some prepared branch; now and then one that there is not.
    fn end_branch(&mut self) -> Outcome<()> {
        let ids: Vec<String> = self.model.current().1.keys().cloned().collect();
        let id = if ids.is_empty() || self.rng.chance(1, 8) {
            "nobody".to_owned()
        } else {
            ids[self.rng.index(ids.len())].clone()
        };
        let commits = self.rng.chance(1, 2);
        let first = self.store().newest_seq().0 + 1;
        let (store, known) = (self.store(), self.model.current().1.get(&id).cloned());
        let outcome = self.tries(&[], |prepared| {
            let ended = if commits {
                store.commit_prepared(&id, prepared)
            } else {
                store.rollback_prepared(&id, prepared)
            };
            ended.map_err(halted)
        });
        // A full disk may refuse a commit, which stays prepared, as it may refuse a write; a rollback is a removal.
        let ended = match outcome {
            // What was prepared was admitted then.
            Err(Trouble::Waits) => violation("a prepared branch waits for evictions".into()),
            outcome if commits => outcome,
            outcome => self.insist(outcome, "a rollback"),
        }?;
        let (Some(ticket), Some(branch)) = (ended, &known) else {
            return match (ended, known) {
                (None, None) => Ok(()),
                (ended, known) => violation(format!("{id} is {known:?}, and its end answers {ended:?}")),
            };
        };
        let mut effects = if commits { branch.effects.clone() } else { Vec::new() };
        *if commits { &mut self.met.branches_committed } else { &mut self.met.branches_rolled_back } += 1;
        self.note(&effects);
        if commits {
            self.note_undone(&branch.undone)?;
        }
        effects.push(Effect::End { id });
        self.model.commit(first..=ticket.pack(), effects);
        Ok(())
    }

    /// The prepared branches, with all of `keys` that they hold.
    pub(crate) fn read_branches(
        &self,
        keys: impl Iterator<Item = Vec<u8>>,
    ) -> Outcome<BTreeMap<String, Branch>> {
        let store = self.store();
        let listed = store.prepared_branches();
        let mut branches: BTreeMap<String, Branch> = listed
            .iter()
            .map(|told| {
                let whole = told.databases.iter().copied().collect();
                (told.id.to_string(), Branch { whole, ..Branch::default() })
            })
            .collect();
        for key in keys {
            for db in 0..DATABASES {
                let mut probe = store.workspace();
                store.touch(&mut probe, &[KeyRef { db, key: &key }]).map_err(Trouble::Refused)?;
                let look = self.tries(&[], |prepared| store.commit_staged(&probe, prepared).map_err(halted));
                if let Staging::Locked { by, .. } = look.map_err(never)? {
                    let Some(branch) = branches.get_mut(&*by) else {
                        return violation(format!(
                            "db {db} {} is locked by {by}, which is not there",
                            key.escape_ascii()
                        ));
                    };
                    if !branch.whole.contains(&db) {
                        branch.held.insert((db, key.clone()));
                    }
                }
            }
        }
        let held: usize = branches.values().map(|branch| branch.held.len()).sum();
        if held as u64 != store.locked_keys()
            || listed.iter().any(|told| branches[&*told.id].held.len() != told.keys)
        {
            return violation(format!("{held} keys are locked, of {branches:?}; {listed:?} are told"));
        }
        Ok(branches)
    }
}

/// What each command found, and whether its key was there where that is asked.
type Found = (Vec<Option<Entry>>, Vec<Option<bool>>);

/// One try of a command of a transaction.
fn staged(
    store: &store::Store,
    staging: &mut Workspace,
    keys: &[KeyRef<'_>],
    effects: &[Effect],
    prepared: &Prepared,
) -> Result<Found, (Stop, Wanted)> {
    let none = |stop| (stop, Wanted::default());
    let mut access = store.access(Scope::Keys(keys), prepared, 64).map_err(none)?;
    access.resume(staging);
    let (mut found, mut presence) = (Vec::new(), Vec::new());
    for (effect, KeyRef { db, key }) in effects.iter().zip(keys) {
        let done = entry(&access, *db, key).and_then(|entry| Ok((entry, stage(&mut access, effect)?)));
        match done {
            Ok((entry, present)) => {
                found.push(entry);
                presence.push(present);
            }
            Err(stop) => return Err((stop, access.into_wanted())),
        }
    }
    access.keep(staging).map(|_| (found, presence)).map_err(none)
}

fn halted(halted: Halted) -> (Stop, Wanted) {
    (halted.stop, halted.wanted)
}

pub(crate) fn key_of(effect: &Effect) -> (u16, &[u8]) {
    match effect {
        Effect::Put { db, key, .. }
        | Effect::Remove { db, key }
        | Effect::Expiry { db, key, .. }
        | Effect::Change { db, key, .. } => (*db, key),
        _ => unreachable!("random changes are of keys"),
    }
}
