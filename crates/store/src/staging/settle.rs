//! What the store does with a workspace: prepare it, commit it at once; and with a prepared branch: commit it, roll it back.

use std::sync::Arc;

use clock::UnixMs;
use ticket::Ticket;

use super::{Branch, Move, RECORD_DB, Workspace};
use crate::access::{Access, Scope};
use crate::engine::Class;
use crate::error::{Stop, StoreError};
use crate::memory::{Asked, ROOM_PAGES_MAX};
use crate::prepared::{Prepared, Wanted};
use crate::{KeyRef, RECORD_OVERHEAD_BYTES, Store};

/// How a prepare or a commit in one phase went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Staging {
    /// It is done once this ticket is released.
    Done {
        /// The ticket.
        ticket: Ticket,
    },
    /// A key changed since the transaction first touched it: the transaction must be rolled back.
    Changed {
        /// Its database.
        db: u16,
        /// The key; one of several.
        key: Box<[u8]>,
    },
    /// A prepared branch holds a key: wait for [`crate::Hooks::on_unlock`], and try again.
    Locked {
        /// Identifier of that branch.
        by: Arc<str>,
        /// Database of the key.
        db: u16,
        /// The key; one of several. `None`: it holds all of the database.
        key: Option<Box<[u8]>>,
    },
}

/// Why nothing was done, and what to fetch before it is tried again.
#[derive(Debug)]
pub struct Halted {
    /// The reason.
    pub stop: Stop,
    /// To be added to the prepared records after [`Stop::Cold`].
    pub wanted: Wanted,
}

/// A prepared branch, as told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PreparedBranch {
    /// Its identifier.
    pub id: Arc<str>,
    /// When it was prepared.
    pub since: UnixMs,
    /// Keys that it holds, those of `databases` not counted.
    pub keys: usize,
    /// Databases that it holds whole.
    pub databases: Vec<u16>,
}

impl From<Stop> for Halted {
    fn from(stop: Stop) -> Self {
        Self { stop, wanted: Wanted::default() }
    }
}

impl From<StoreError> for Halted {
    fn from(error: StoreError) -> Self {
        Stop::Refused(error).into()
    }
}

impl Store {
    /// Prepares what `workspace` holds as the branch called `branch`: from now on only its commit or rollback changes the keys that
    /// it touched, also after a crash, if the ticket was released before.
    ///
    /// `branch` is of 1 to 1,024 bytes. The workspace may be dropped then; whatever else is returned, nothing happened, and it may
    /// be tried again.
    ///
    /// # Errors
    /// [`Halted`]: [`StoreError::Transaction`] for a name that is in use or not of that length, or engine `noop`; otherwise as
    /// [`Access::commit`] but [`Stop::Locked`], which is [`Staging::Locked`] here.
    pub fn prepare(
        &self,
        branch: &str,
        workspace: &Workspace,
        prepared: &Prepared,
    ) -> Result<Staging, Halted> {
        self.admit_staging()?;
        if !(1..=BRANCH_BYTES_MAX).contains(&branch.len()) {
            let text = format!("the name of a transaction's branch has 1 to {BRANCH_BYTES_MAX} bytes");
            return Err(StoreError::Transaction(text).into());
        }
        let _asked = self.ask_for_commit(workspace)?;
        let branch = Arc::new(Branch::of(self, branch, workspace, self.now().unix().0));
        let image = branch.encode();
        let bytes = image.len() as u64 + branch.id.len() as u64 + RECORD_OVERHEAD_BYTES;
        let credits = self.engine.reserve(bytes, 1, Class::Write)?;
        let keys = branch_keys(&branch);
        let scope = self.scope_of(&branch.moves, &keys, true);
        let mut access = Access::new(self, scope, prepared, Some(credits), self.now());
        match access.prepare(&branch, workspace, image) {
            Ok(staging) => Ok(staging),
            Err(stop) => Err(Halted { stop, wanted: access.into_wanted() }),
        }
    }

    /// Commits what `workspace` holds at once, with nothing prepared: for a transaction of this store alone. With nothing but reads it
    /// only looks whether one of them still holds.
    ///
    /// # Errors
    /// As [`Store::prepare`].
    pub fn commit_staged(&self, workspace: &Workspace, prepared: &Prepared) -> Result<Staging, Halted> {
        self.admit_staging()?;
        let _asked = self.ask_for_commit(workspace)?;
        let keys: Vec<KeyRef<'_>> =
            workspace.touched().map(|touched| KeyRef { db: touched.db(), key: touched.key() }).collect();
        let credits = match self.engine.reserve(workspace.bytes(), workspace.writes() as u64, Class::Write) {
            _ if workspace.writes() == 0 => None,
            Ok(credits) => Some(credits),
            // Only the commit knows whether all that it does is to remove: it asks again, and names the cause if not.
            Err(Stop::Refused(StoreError::DiskFull(_))) => None,
            Err(stop) => return Err(stop.into()),
        };
        let scope = self.scope_of(&workspace.moves(), &keys, workspace.writes() > 0);
        let mut access = Access::new(self, scope, prepared, credits, self.now());
        match access.commit_workspace(workspace) {
            Ok(staging) => Ok(staging),
            Err(stop) => Err(Halted { stop, wanted: access.into_wanted() }),
        }
    }

    /// Commits the prepared branch `branch`: its changes and the end of its locks are one group. Returns the ticket that the
    /// reply must be held by, `None` when there is no such branch: it has ended, or never was. That answer depends
    /// on [`Store::newest`].
    ///
    /// Calls [`crate::Hooks::on_unlock`].
    ///
    /// # Errors
    /// [`Halted`] as [`Access::commit`]; then the branch is as it was. What was bounded and admitted when it was prepared is not
    /// refused for that now, and the room in the log is that of cleaning, for what it writes frees as much: only a disk that
    /// has none for that either refuses it.
    pub fn commit_prepared(&self, branch: &str, prepared: &Prepared) -> Result<Option<Ticket>, Halted> {
        self.settle(branch, prepared, true)
    }

    /// Forgets the prepared branch `branch` and its changes: one removal in the log. Returns as [`Store::commit_prepared`].
    ///
    /// # Errors
    /// As [`Store::commit_prepared`].
    pub fn rollback_prepared(&self, branch: &str, prepared: &Prepared) -> Result<Option<Ticket>, Halted> {
        self.settle(branch, prepared, false)
    }

    /// All prepared branches, by identifier; an answer with them depends on [`Store::newest`].
    #[must_use]
    pub fn prepared_branches(&self) -> Vec<PreparedBranch> {
        let told = |branch: Arc<Branch>| PreparedBranch {
            id: Arc::clone(&branch.id),
            since: UnixMs(branch.since_ms),
            keys: branch.held_keys().count(),
            databases: branch.moves.iter().map(|it| it.db).collect(),
        };
        self.branches.all().into_iter().map(told).collect()
    }

    /// Keys that prepared branches hold. Reads a counter.
    #[must_use]
    pub fn locked_keys(&self) -> u64 {
        self.branches.locked_keys()
    }

    /// Databases that prepared branches hold whole.
    #[must_use]
    pub fn locked_databases(&self) -> u64 {
        self.branches.all().iter().map(|branch| branch.moves.len() as u64).sum()
    }

    /// Asks for the memory that a commit or a prepare takes beside the workspace: its image or its records, and its values once more.
    fn ask_for_commit(&self, workspace: &Workspace) -> Result<Option<Box<Asked>>, Stop> {
        let (bytes, mut asked) = (2 * workspace.bytes(), None);
        self.memory.make_room(self.accounts(), ROOM_PAGES_MAX, bytes);
        if workspace.writes() > 0 {
            self.memory.ask(self.accounts(), &mut asked, bytes, 0)?;
        }
        Ok(asked)
    }

    fn settle(&self, id: &str, prepared: &Prepared, commits: bool) -> Result<Option<Ticket>, Halted> {
        let Some(branch) = self.branches.find(id) else { return Ok(None) };
        let (bytes, records) = branch.room(commits, self.options.databases);
        let credits = self.engine.reserve(bytes, records, Class::Reclaim)?;
        let keys = branch_keys(&branch);
        let scope = self.scope_of(&branch.moves, &keys, true);
        let mut access = Access::new(self, scope, prepared, Some(credits), self.now());
        if !self.branches.has(&branch) {
            return Ok(None);
        }
        let ticket = match access.settle(&branch, commits) {
            Ok(ticket) => ticket,
            Err(stop) => return Err(Halted { stop, wanted: access.into_wanted() }),
        };
        drop(access);
        self.tender.on_unlock();
        (self.options.hooks.on_unlock)();
        Ok(Some(ticket))
    }

    /// Whether a transaction that has touched so many keys claims them to prepare or end ([`Options::claims_from`](crate::Options)).
    /// That takes long, and may wait for others: not on a loop.
    #[must_use]
    pub fn is_long(&self, keys: usize) -> bool {
        keys > self.options.claims_from
    }

    /// Keys that the prepared branch `branch` has touched; 0 if there is none.
    #[must_use]
    pub fn branch_keys(&self, branch: &str) -> usize {
        self.branches.find(branch).map_or(0, |branch| branch.keys.len())
    }

    /// Databases are held, and mapped anew, under all locks.
    fn scope_of<'a>(&self, moves: &[Move], keys: &'a [KeyRef<'a>], writes: bool) -> Scope<'a> {
        if !moves.is_empty() {
            Scope::Everything
        } else if self.is_long(keys.len()) {
            Scope::Claimed { keys, writes }
        } else {
            Scope::Keys(keys)
        }
    }

    fn admit_staging(&self) -> Result<(), StoreError> {
        if self.engine_keeps() {
            return Ok(());
        }
        Err(StoreError::Transaction("engine noop keeps nothing: it takes part in no transaction".to_owned()))
    }
}

/// What the access of a branch locks: its keys, and the stripe of its record, whose database no command can name.
fn branch_keys(branch: &Branch) -> Vec<KeyRef<'_>> {
    let own = KeyRef { db: RECORD_DB, key: branch.id.as_bytes() };
    branch.keys.iter().map(|key| KeyRef { db: key.db, key: &key.key }).chain([own]).collect()
}

/// Bytes of a branch's name at most; with it a commit stays within what the journal allows beyond `transaction.max`.
const BRANCH_BYTES_MAX: usize = 1_024;
