//! Ending a branch on another session than its own: the own one was lost, or is the application's, or was another start's.
//!
//! | branch | who may hold it | what is waited for |
//! |---|---|---|
//! | `run`: run here | a session that was lost | that it is gone; it is killed; then that no session that is being torn down has a prepared transaction |
//! | `run`: run by an earlier start | a session with this node's lock | that all such are gone; they are killed; then the same |
//! | `lock`, and the lock is, or was seen to be, held | who held it | that it has let go; killed if that takes long |
//! | `lock`, and the lock was free at the first look | a session that is being torn down | that none of those has a prepared transaction |
//! | an application's, its session known | that session | that it has let go; killed if that takes long |
//! | an application's, before a restart | any session with a prepared transaction | that each has let go, and 2 s more |
//!
//! An application closes its session after XA PREPARE, or lets it be killed: as long as it lives, XA COMMIT elsewhere is XAER_NOTA.
//! A branch that only read is rolled back by the server when its session leaves (XA_RBROLLBACK): nothing of it is lost, so it is done.

use super::Shared;
use super::branch::{Branch, Owner};
use super::control::TEARDOWN_MAX;
use super::session::{NOTA, RBDEADLOCK, RBROLLBACK, RBTIMEOUT, Trouble};
use super::work::{BranchState, Work};
use super::xid::{By, Xid};
use txn::resource::{Answer, Vote};

impl Work {
    /// Votes on a branch that was not run here.
    pub(super) async fn vote_foreign(&mut self, shared: &Shared, branch: &Branch, xid: &Xid) -> Answer {
        match self.try_vote_foreign(shared, branch, xid).await {
            Ok(vote) => Answer::Voted(vote),
            Err(trouble) => Answer::Failed(trouble.text().to_owned()),
        }
    }

    async fn try_vote_foreign(
        &mut self,
        shared: &Shared,
        branch: &Branch,
        xid: &Xid,
    ) -> Result<Vote, Trouble> {
        let no = |why: &str| Ok(Vote::No(why.to_owned()));
        let (found, owner) = match (shared.control.find(&xid.id).await?, branch.adopted()) {
            (None, None) => return no(NOTHING),
            (None, Some(_)) => return no("the application has not prepared it (XA PREPARE)"),
            (Some(_), None) => return no(NOT_TOLD),
            (Some(found), Some(Owner(owner))) => (found, owner),
        };
        if self.started.is_none() {
            self.started = Some(shared.control.started().await?);
        }
        if found.by == By::Holder {
            self.see_holder(shared, xid).await?;
        }
        match (self.holder, owner) {
            (Some(holder), Some(owner)) if holder != owner => {
                let why = format!("OWNER is {owner}, but session {holder} holds the lock '{}'", xid.id);
                return Ok(Vote::No(why));
            }
            (None, None) if found.by != By::Holder => return no(NOT_TOLD),
            _ => {}
        }
        self.state = BranchState::Detached;
        Ok(Vote::Yes)
    }

    /// Notes who holds the branch's lock, if somebody does: it is whose session has to let go.
    pub(super) async fn see_holder(&mut self, shared: &Shared, xid: &Xid) -> Result<(), Trouble> {
        let started = shared.control.started().await?;
        if let Some(holder) = shared.control.holder(&xid.id).await? {
            (self.holder, self.started) = (Some(holder), Some(started));
        }
        Ok(())
    }

    /// Commits the only branch of a transaction, which was not run here.
    pub(super) async fn commit_foreign(&mut self, shared: &Shared, branch: &Branch, xid: &Xid) -> Answer {
        match self.vote_foreign(shared, branch, xid).await {
            Answer::Voted(Vote::Yes) => {}
            Answer::Voted(Vote::No(why)) if why == NOT_TOLD => return Answer::Failed(why),
            Answer::Voted(Vote::No(why)) => return Answer::RolledBack(why),
            other => return other,
        }
        // It is prepared: what a lost connection did shows in the list.
        let mut lost = None;
        for _ in 0..TRIES_MAX {
            match self.end_detached(shared, branch, xid, true).await {
                Answer::Lost(why) => lost = Some(why),
                // The session that holds it may be the one that was told to commit it, and has not answered.
                Answer::Failed(why) if lost.is_some() => lost = Some(why),
                other => return other,
            }
        }
        Answer::Lost(lost.unwrap_or_default())
    }

    /// Commits or rolls back a branch that is prepared, or not there any more.
    pub(super) async fn end_detached(
        &mut self,
        shared: &Shared,
        branch: &Branch,
        xid: &Xid,
        commits: bool,
    ) -> Answer {
        match self.try_end_detached(shared, branch, xid, commits).await {
            Ok(()) => {
                self.state = BranchState::Over;
                Answer::Done
            }
            Err(Trouble::Refused(_, why)) => Answer::Failed(why),
            Err(Trouble::Lost(why)) => Answer::Lost(why),
        }
    }

    async fn try_end_detached(
        &mut self,
        shared: &Shared,
        branch: &Branch,
        xid: &Xid,
        commits: bool,
    ) -> Result<(), Trouble> {
        self.settle(shared).await.map_err(|trouble| Trouble::Refused(0, trouble.text().to_owned()))?;
        let Some(found) = shared.control.find(&xid.id).await? else { return Ok(()) };
        match found.by {
            By::Here => {
                if self.state != BranchState::Detached {
                    shared.control.end_former().await?;
                }
                shared.control.wait_torn_down().await?;
            }
            By::Holder => {
                self.see_holder(shared, xid).await?;
                self.wait_foreign(shared, branch, xid, By::Holder).await?;
            }
            By::Anybody => self.wait_foreign(shared, branch, xid, By::Anybody).await?,
        }
        let command = if commits { "XA COMMIT" } else { "XA ROLLBACK" };
        match shared.control.command(&format!("{command} {found}")).await {
            Err(trouble) if [RBROLLBACK, RBTIMEOUT, RBDEADLOCK].iter().any(|code| trouble.is(*code)) => {
                Ok(())
            }
            Err(trouble) if trouble.is(NOTA) => match shared.control.find(&xid.id).await? {
                None => Ok(()),
                Some(_) => Err(Trouble::Refused(NOTA, "a session holds the branch still".to_owned())),
            },
            other => other,
        }
    }

    /// Waits until no session of the application holds the branch.
    async fn wait_foreign(
        &mut self,
        shared: &Shared,
        branch: &Branch,
        xid: &Xid,
        by: By,
    ) -> Result<(), Trouble> {
        let named = branch.adopted().and_then(|Owner(owner)| owner);
        if let Some(owner) = self.holder.or(named) {
            let started = match self.started {
                Some(started) => started,
                None => *self.started.insert(shared.control.started().await?),
            };
            return shared.control.end_owner(owner, started, shared.timing.owner_grace, &xid.id).await;
        }
        if by == By::Holder {
            return shared.control.wait_torn_down().await;
        }
        let is_first = self.held.is_none();
        if is_first {
            self.held = Some(shared.control.attached_elsewhere().await?);
        }
        shared.control.wait_detached(self.held.as_deref().unwrap_or_default()).await?;
        if is_first {
            // Nothing is known of whose it is: the look has to be right about all of them.
            tokio::time::sleep(TEARDOWN_MAX).await;
        }
        Ok(())
    }
}

const NOT_TOLD: &str = "it is prepared, but nobody said by whom: the branch takes a lock (GET_LOCK, XA START 'ID','lock'), or the \
                        identifier of the session (CONNECTION_ID()) is needed";
const NOTHING: &str = "no statement was run in it";
const TRIES_MAX: usize = 3;
