//! Accesses on behalf of transactions: they see what was staged, and keep what they change instead of committing it; and the
//! accesses that prepare a workspace and end a branch.

use std::sync::Arc;

use journal::{Keyspace, Seq};
use ticket::Ticket;

use crate::KeyRef;
use crate::engine::Credits;
use crate::error::{Locked, Stop, StoreError};
use crate::hash::{KeyHash, STRIPES};
use crate::index::stripe::{Current, Seek, Space, Stripe};
use crate::keyspaces::PREPARED_KEYSPACE;
use crate::large::Bytes;
use crate::object::Object;
use crate::prepared::Obstacle;
use crate::record;
use crate::sought::Sought;
use crate::staging::{Branch, BranchKey, Intent, Move, RECORD_DB, Staging, Touched, Workspace};
use collections::{Deadline, Edit, Packed, Shape};

use super::overlay::{Cause, Change, Mapping, Staged};
use super::{Access, Guards};

impl<'s> Access<'s> {
    /// Shows this access what `workspace` means to do to the keys of its scope. To be called before anything else, in an access that
    /// ends in [`Access::keep`] or is dropped. An access of scope [`Scope::Walk`](super::Scope::Walk) sees what is committed.
    ///
    /// Looks at the keys that the scope names; at all that `workspace` has touched where it is everything.
    pub fn resume(&mut self, workspace: &Workspace) {
        self.keeps_to_workspace = true;
        if !workspace.contents().is_empty() {
            let index = &self.store.index;
            let (before, first) = (index.mapping(), index.next_keyspace());
            let contents = workspace.contents().iter();
            let mapping = contents.map(|it| keyspace_of(*it, &before, first)).collect();
            self.overlay.change_mapping(|| (mapping, first.plus(workspace.made)));
        }
        match self.keys {
            Some(keys) => keys.iter().for_each(|key| self.resume_named(workspace, *key)),
            None if self.guards.everything().is_ok() => {
                workspace.touched().for_each(|touched| self.resume_key(workspace, touched));
            }
            None => {}
        }
        debug_assert!(self.overlay.iter().all(|staged| staged.cause == Cause::Resumed), "called too late");
    }

    fn resume_named(&mut self, workspace: &Workspace, KeyRef { db, key }: KeyRef<'_>) {
        let hash = self.hash(key);
        // Engine `noop` locks nothing, and shows nothing.
        if (self.is_claimed() || self.guards.stripe(hash.stripe()).is_ok())
            && let Some(touched) = workspace.find(workspace.contents_of(db), hash, key)
        {
            self.resume_key(workspace, touched);
        }
    }

    fn resume_key(&mut self, workspace: &Workspace, touched: &Touched) {
        touched.on_look();
        let (Some(intent), Some(db)) = (&touched.intent, workspace.target(touched.contents)) else { return };
        let Some(keyspace) = self.keyspace(db) else { return };
        let intent = match intent {
            Intent::Put(object) => self.as_of_now(object).unwrap_or_else(|| intent.copied()),
            Intent::Remove => Intent::Remove,
        };
        self.stage_intent(intent, db, keyspace, touched.hash, touched.key(), Cause::Resumed);
    }

    /// What has become of a value that a transaction has stored: it goes when its time has come, as fields of a hash do. `None`: nothing.
    fn as_of_now(&self, object: &Object) -> Option<Intent> {
        let current = Current::Hot(object.view());
        if self.expires_by_now(current.own_expiry(), Seq::MAX) {
            return Some(Intent::Remove);
        }
        let passed = self.passed_for(Seq::MAX);
        let times = current.times().filter(|times| Self::has_passed(*times, passed))?;
        let mut edit = Edit::new(Packed::new(Shape::Map, object.view().value()));
        edit.purge(passed);
        if edit.is_empty() {
            return Some(Intent::Remove);
        }
        let change = self.hash_change(current.key(), &edit.encode(), Deadline::of(times.own), None, None);
        let Change::Put(purged) = change else { unreachable!("it changes nothing that is there") };
        Some(Intent::Put(purged))
    }

    /// Ends the access and keeps what it changed in `workspace`, instead of committing it. Returns the ticket that the reply must
    /// be held by (0: none).
    ///
    /// Expired keys that it met are not removed. Whole values are kept, of a changed expiry too; large ones are shared.
    ///
    /// # Errors
    /// [`Stop::Refused`]: an earlier refusal of this access; [`StoreError::TransactionTooLarge`]; [`StoreError::StagedTooMuch`];
    /// [`StoreError::MemoryLimit`]; [`StoreError::OutOfScope`] for
    /// a key that was not [touched](crate::Store::touch). [`Stop::Busy`] where memory waits for the disk. The workspace is then as it
    /// was.
    pub fn keep(mut self, workspace: &mut Workspace) -> Result<Ticket, Stop> {
        if let Some(stop) = self.take_stop() {
            return Err(stop);
        }
        self.charge(0)?;
        let (before, first) = (self.store.index.mapping(), self.store.index.next_keyspace());
        // Only who has all locks can have changed it.
        let mapping = self.overlay.take_mapping().filter(|_| self.guards.everything().is_ok());
        self.overlay.retain(|staged| staged.cause != Cause::Resumed);
        let contents = |keyspace| contents_in(keyspace, &before, first);
        self.admit_kept(workspace, mapping.is_some(), contents)?;
        let events = self.take_events();
        let (size_bytes, limit_bytes) =
            (workspace.events_bytes_with(&events), self.store.options.transaction_bytes_max);
        if size_bytes > limit_bytes {
            return Err(StoreError::TransactionTooLarge { size_bytes, limit_bytes }.into());
        }
        workspace.add_events(events);
        if let Some((mapping, next)) = mapping {
            workspace.rearrange(mapping.into_iter().map(contents).collect(), next.0 - first.0);
        }
        for staged in self.overlay.drain() {
            let intent = match staged.change {
                Change::Put(object) | Change::Delta { object, .. } => Intent::Put(object),
                Change::Remove(object) => {
                    let key = object.view().key();
                    workspace.intend(contents(staged.keyspace), staged.hash, key, Intent::Remove);
                    continue;
                }
            };
            let key: Box<[u8]> = staged_key(&intent);
            workspace.intend(contents(staged.keyspace), staged.hash, &key, intent);
        }
        workspace.looked = workspace.looked.max(self.looked.get());
        Ok(self.ticket())
    }

    /// Whether the workspace may take what was staged.
    fn admit_kept(
        &self,
        workspace: &Workspace,
        moves: bool,
        contents: impl Fn(Keyspace) -> u32,
    ) -> Result<(), Stop> {
        let (mut kept, mut memory) = (Vec::with_capacity(self.overlay.len()), Vec::new());
        for staged in self.overlay.iter() {
            let view = staged.object().view();
            let touched = workspace
                .find(contents(staged.keyspace), staged.hash, view.key())
                .ok_or(StoreError::OutOfScope)?;
            kept.push((touched, view.value().len() as u64));
            memory.push((touched, view.memory_bytes()));
        }
        let memory_bytes = workspace.memory_bytes_with(memory.into_iter());
        if memory_bytes > workspace.memory_bytes() {
            self.store.memory.admit_staged(memory_bytes)?;
        }
        let limit_bytes = self.store.options.transaction_bytes_max;
        let size_bytes =
            workspace.bytes_with(kept.into_iter(), moves.then_some(self.store.options.databases));
        if size_bytes > limit_bytes {
            return Err(StoreError::TransactionTooLarge { size_bytes, limit_bytes }.into());
        }
        if size_bytes > workspace.bytes() {
            let own_credit_bytes = self.credits.as_ref().map_or(0, Credits::held_bytes);
            self.store.memory.admit(self.store.accounts(), own_credit_bytes)?;
        }
        Ok(())
    }

    /// Logs `image` as the record of `branch`, which is what `workspace` holds, and locks its keys, if all it touched is as it was.
    pub(crate) fn prepare(
        &mut self,
        branch: &Arc<Branch>,
        workspace: &Workspace,
        image: Vec<u8>,
    ) -> Result<Staging, Stop> {
        if self.store.branches.find(&branch.id).is_some() {
            let text = format!("transaction {} is prepared already: commit it, or roll it back", branch.id);
            return Err(StoreError::Transaction(text).into());
        }
        if let Some(conflict) = self.conflict(workspace)? {
            return Ok(conflict);
        }
        self.map(&branch.moves);
        let met = self.meet_keys(branch.keys.iter());
        self.overlay.take_mapping();
        met?;
        let value = self.store.memory.large(image);
        let bytes = match &value {
            Ok(large) => Bytes::Large(large),
            Err(small) => Bytes::Plain(small),
        };
        self.stage_record(
            branch,
            Change::Put(Object::new(record::STRING, branch.id.as_bytes(), bytes, None)),
        );
        let ticket = self.carry_out()?;
        let mut locks = 0;
        for keyspace in self.keyspaces_of(branch) {
            for number in 0..STRIPES {
                let stripe = self.guards.stripe_mut(number).expect("databases are moved under all locks");
                stripe.hold_whole(keyspace, &branch.id);
            }
        }
        for key in branch.held_keys() {
            let keyspace = self.keyspace(key.db).expect("touched by its number");
            self.turn_to_stripe(key.hash.stripe());
            let stripe = self.guards.stripe_mut(key.hash.stripe()).expect("of the scope");
            let held = stripe.hold(keyspace, key.hash, &key.key, &branch.id);
            assert!(held, "the conflict was looked for");
            locks += 1;
        }
        self.store.branches.insert(Arc::clone(branch), locks);
        self.guards = Guards::none();
        self.claim = None;
        Ok(Staging::Done { ticket })
    }

    /// Commits what `workspace` holds, if all it touched is as it was.
    pub(crate) fn commit_workspace(&mut self, workspace: &Workspace) -> Result<Staging, Stop> {
        if let Some(conflict) = self.conflict(workspace)? {
            return Ok(conflict);
        }
        let branch = Branch::of(self.store, "", workspace, 0);
        self.map(&branch.moves);
        self.stage_branch(&branch)?;
        self.resume_events(workspace.events());
        self.look(workspace.looked);
        let ticket = self.commit()?;
        Ok(Staging::Done { ticket })
    }

    /// Ends `branch`: its changes if it `commits`, the removal of its record, the end of its locks.
    pub(crate) fn settle(&mut self, branch: &'s Arc<Branch>, commits: bool) -> Result<Ticket, Stop> {
        self.settles = Some(&branch.id);
        let held = self.keyspaces_of(branch);
        if commits {
            self.map(&branch.moves);
            self.stage_branch(branch)?;
            self.resume_events(&branch.events);
        }
        let removal = Object::new(record::REMOVED, branch.id.as_bytes(), Bytes::Plain(&[]), None);
        self.stage_record(branch, Change::Remove(removal));
        let ticket = self.carry_out()?;
        let mut locks = 0;
        for keyspace in held {
            for number in 0..STRIPES {
                let stripe = self.guards.stripe_mut(number).expect("databases are moved under all locks");
                stripe.let_whole_go(keyspace, &branch.id);
            }
        }
        for key in branch.held_keys() {
            let keyspace = self.keyspace(key.db).expect("touched by its number");
            self.turn_to_stripe(key.hash.stripe());
            let stripe = self.guards.stripe_mut(key.hash.stripe()).expect("of the scope");
            locks += u64::from(stripe.let_go(keyspace, key.hash, &key.key, &branch.id));
        }
        self.store.branches.remove(&branch.id, locks);
        let is_told = self.hand_over(ticket);
        self.guards = Guards::none();
        self.claim = None;
        if is_told {
            self.deliver();
        }
        Ok(ticket)
    }

    /// Why `workspace` cannot be prepared or committed: what changed first, for then waiting is in vain.
    fn conflict(&mut self, workspace: &Workspace) -> Result<Option<Staging>, Stop> {
        let mut cold = Vec::new();
        // stripe by stripe, so that each is locked once
        for touched in workspace.watched() {
            self.turn_to_stripe(touched.hash.stripe());
            if self.changed(&touched.watch)? {
                return Ok(Some(Staging::Changed { db: touched.db(), key: touched.key().into() }));
            }
            cold.extend(self.may_expire_unseen(touched)?);
        }
        for touched in workspace.watched() {
            self.turn_to_stripe(touched.hash.stripe());
            let stripe = self.guards.stripe(touched.hash.stripe())?;
            let Some(keyspace) = self.store.index.keyspace(touched.db()) else { continue };
            if stripe.locks.is_some() {
                self.check_claim(stripe, keyspace, touched.hash, true)?;
            }
            if let Some(by) = stripe.holder(keyspace, touched.hash, touched.key()) {
                let (by, db, key) = (Arc::clone(by), touched.db(), Some(touched.key().into()));
                return Ok(Some(Staging::Locked { by, db, key }));
            }
        }
        if !workspace.moves().is_empty() {
            self.check_no_claims()?;
        }
        let moved = workspace.moves().into_iter().map(|it| (it.db, it.db));
        let moved = moved.filter_map(|(db, of)| Some((db, self.store.index.keyspace(of)?)));
        if let Some(Locked { by, db, key }) = self.lock_in(&moved.collect::<Vec<_>>()) {
            return Ok(Some(Staging::Locked { by, db, key }));
        }
        if cold.is_empty() { Ok(None) } else { Err(self.miss(cold)) }
    }

    /// Gives databases their contents, for the commit.
    fn map(&mut self, moves: &[Move]) {
        if moves.is_empty() {
            return;
        }
        let index = &self.store.index;
        let before = index.mapping();
        let (mapping, next) = self.overlay.change_mapping(|| (before.clone(), index.next_keyspace()));
        for Move { db, from } in moves {
            mapping[usize::from(*db)] = from.map_or(*next, |from| before[usize::from(from)]);
            *next = next.plus(u32::from(from.is_none()));
        }
    }

    /// The keyspaces that `branch` holds whole.
    fn keyspaces_of(&self, branch: &Branch) -> Vec<Keyspace> {
        branch.moves.iter().filter_map(|it| self.store.index.keyspace(it.db)).collect()
    }

    /// Stages what the commit of `branch` does to keys.
    fn stage_branch(&mut self, branch: &Branch) -> Result<(), Stop> {
        self.meet_keys(branch.keys.iter())?;
        for key in &branch.keys {
            let (Some(intent), Some(keyspace)) = (&key.intent, self.keyspace(key.db)) else { continue };
            self.stage_intent(intent.copied(), key.db, keyspace, key.hash, &key.key, Cause::Command);
        }
        Ok(())
    }

    /// Records that say whether the key has expired since it was touched, and were not prepared.
    fn may_expire_unseen(&self, touched: &Touched) -> Result<Vec<Sought>, Stop> {
        let stripe = self.guards.stripe(touched.hash.stripe())?;
        let Some(keyspace) = self.store.index.keyspace(touched.db()) else { return Ok(Vec::new()) };
        let has_expiries = |space: &&Space| space.expiry.len() > 0 && !touched.watch.expired;
        let Some(space) = stripe.space(keyspace).filter(has_expiries) else { return Ok(Vec::new()) };
        match space.seek(keyspace, touched.hash, touched.key(), self.prepared()) {
            Seek::Unknown(records) => Ok(records),
            _ => Ok(Vec::new()),
        }
    }

    /// Finds out whether changes of `keys` can be resolved, so that nothing stands against a commit later; asks for all
    /// cold records at once.
    fn meet_keys<'k>(&mut self, keys: impl Iterator<Item = &'k BranchKey>) -> Result<(), Stop> {
        let mut cold = Vec::new();
        for BranchKey { db, hash, key, intent } in keys {
            let (Some(_), Some(keyspace)) = (intent, self.keyspace(*db)) else { continue };
            self.turn_to_stripe(hash.stripe());
            match self.guards.stripe(hash.stripe())?.seek(keyspace, *hash, key, self.prepared()) {
                Seek::Unknown(records) => cold.extend(records),
                Seek::Damaged { own: None, error } => return Err(Stop::Damaged(error)),
                Seek::Damaged { own: Some(_), .. } | Seek::Absent { .. } | Seek::At { .. } => {}
            }
        }
        if cold.is_empty() { Ok(()) } else { Err(self.miss(cold)) }
    }

    fn stage_intent(
        &mut self,
        intent: Intent,
        db: u16,
        keyspace: Keyspace,
        hash: KeyHash,
        key: &[u8],
        cause: Cause,
    ) {
        let is_removal = matches!(intent, Intent::Remove);
        let object = intent.object(key);
        let change = if is_removal { Change::Remove(object) } else { Change::Put(object) };
        self.overlay.stage(Staged { db, keyspace, hash, change, cause });
    }

    /// Stages what becomes of the record of `branch`.
    fn stage_record(&mut self, branch: &Branch, change: Change) {
        let (db, keyspace, hash) = (RECORD_DB, PREPARED_KEYSPACE, branch.hash);
        self.overlay.stage(Staged { db, keyspace, hash, change, cause: Cause::Command });
    }

    /// Stops if somebody else holds the key of `staged`, or has claimed it.
    #[cold]
    pub(super) fn check_lock(&self, stripe: &Stripe, staged: &Staged) -> Result<(), Stop> {
        self.check_claim(stripe, staged.keyspace, staged.hash, true)?;
        let key = staged.object().view().key();
        match stripe.holder(staged.keyspace, staged.hash, key) {
            Some(by) if self.settles != Some(&**by) => {
                let (db, keyspace, hash) = (staged.db, staged.keyspace, staged.hash);
                self.wanted.borrow_mut().meet(Obstacle::Lock { db, keyspace, hash, key: key.into() });
                Err(Stop::Locked(Box::new(Locked { by: Arc::clone(by), db, key: Some(key.into()) })))
            }
            _ => Ok(()),
        }
    }

    /// Whether a prepared branch holds a key of this access.
    pub(super) fn is_held(&self, keyspace: Keyspace, hash: KeyHash, key: &[u8]) -> bool {
        self.guards.stripe(hash.stripe()).is_ok_and(|stripe| stripe.holder(keyspace, hash, key).is_some())
    }

    /// Stops if somebody holds a key of a database that would get another keyspace.
    pub(super) fn check_mapping_locks(&self) -> Result<(), Stop> {
        let Some(mapping) = self.overlay.mapping() else { return Ok(()) };
        self.check_no_claims()?;
        self.mapping_lock(mapping).map_or(Ok(()), |locked| Err(Stop::Locked(Box::new(locked))))
    }

    fn mapping_lock(&self, (mapping, _): &Mapping) -> Option<Locked> {
        let before = self.store.index.mapping();
        let moved: Vec<(u16, Keyspace)> = (0..)
            .zip(before.iter().zip(mapping))
            .filter(|(_, (old, new))| old != new)
            .map(|(db, (old, _))| (db, *old))
            .collect();
        self.lock_in(&moved)
    }

    /// What somebody else holds in these databases, given with their keyspaces.
    fn lock_in(&self, databases: &[(u16, Keyspace)]) -> Option<Locked> {
        let held = self.guards.everything().ok()?.iter().filter_map(|(_, stripe)| stripe.locks.as_ref());
        held.into_iter().find_map(|locks| {
            let found = databases.iter().find_map(|(db, keyspace)| {
                let (key, by) = locks.any_of(*keyspace)?;
                (self.settles != Some(&**by)).then_some((*db, key, by))
            });
            found.map(|(db, key, by)| Locked { by: Arc::clone(by), db, key: key.map(Box::from) })
        })
    }
}

/// The keyspace that has these contents, as long as all locks or some are held: `first` is the next unused one.
fn keyspace_of(contents: u32, mapping: &[Keyspace], first: Keyspace) -> Keyspace {
    let databases = mapping.len() as u32;
    if contents < databases { mapping[contents as usize] } else { first.plus(contents - databases) }
}

/// The contents that a keyspace has, as [`keyspace_of`] gave it.
fn contents_in(keyspace: Keyspace, mapping: &[Keyspace], first: Keyspace) -> u32 {
    let known = mapping.iter().position(|it| *it == keyspace);
    known.map_or_else(|| mapping.len() as u32 + (keyspace.0 - first.0), |db| db as u32)
}

fn staged_key(intent: &Intent) -> Box<[u8]> {
    if let Intent::Put(object) = intent { object.view().key().into() } else { Box::default() }
}
