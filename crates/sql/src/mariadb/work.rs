//! What a branch's task does with its session: begin, run, prepare, commit, roll back.
//!
//! ```text
//!  New -XA START-> Open -XA END, XA PREPARE-> Prepared -XA COMMIT-> Over
//!   |               |  '-error-> Broken -XA ROLLBACK-> Over   |
//!   |               '---session lost, end sent-> Detached <------'      ended on another session, once the lost one is gone
//!   '- prepared by an application, or before a restart -'
//! ```
//!
//! Invariants
//!   1. As long as there is a session, the branch ends on it.
//!   2. After an answer that was not expected from a step of the protocol, the session is killed, and what XA RECOVER lists is believed.
//!   3. A lost session keeps its place until the server has torn it down.
//!
//! Out of scope: ending a branch on another session (`detached`).

use tokio::time::{Instant, sleep};

use super::Shared;
use super::branch::Branch;
use super::control::Attached;
use super::pool::Permit;
use super::session::{RBDEADLOCK, RBROLLBACK, RBTIMEOUT, RMFAIL, Session, Trouble, Wrong};
use super::statement::{self, Kind};
use super::xid::Xid;
use crate::{Answered, Statement, StatementError};
use txn::resource::{Answer, Ask, Vote};

/// What a branch has, and how far it is.
#[derive(Debug, Default)]
pub(super) struct Work {
    pub(super) state: BranchState,
    session: Option<(Session, Permit)>,
    /// A session that may live still.
    lost: Option<(u64, Permit)>,
    /// Rows that the session had written when the branch began, if nothing but reads was run since.
    written: Option<u64>,
    /// When the server had started, as of the moment in which the session was known that an application prepares the branch in.
    pub(super) started: Option<Instant>,
    /// Who was seen to hold the branch's lock.
    pub(super) holder: Option<u64>,
    /// Who may hold the branch, if nobody knows.
    pub(super) held: Option<Vec<Attached>>,
}

/// How far a branch is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum BranchState {
    /// Nothing was done here.
    #[default]
    New,
    /// Statements can be run.
    Open,
    /// It only rolls back, because.
    Broken(String),
    /// Prepared, and its session is here.
    Prepared,
    /// Its session was here and is gone, and what became of the branch is for XA RECOVER to say.
    Detached,
    /// It has ended.
    Over,
}

impl Work {
    /// Runs a statement.
    pub(super) async fn run(
        &mut self,
        shared: &Shared,
        branch: &Branch,
        statement: Statement,
    ) -> Result<Answered, StatementError> {
        let kind = statement::judge(&statement.text)?;
        match &self.state {
            BranchState::New | BranchState::Open => {}
            BranchState::Broken(why) => return Err(StatementError::Failed(why.clone())),
            BranchState::Prepared | BranchState::Detached => {
                return Err(StatementError::Refused("the branch is prepared".to_owned()));
            }
            BranchState::Over => return Err(StatementError::Refused("the branch has ended".to_owned())),
        }
        let xid = shared.own(branch);
        tokio::select! {
            biased;
            () = branch.interrupted() => {}
            result = self.run_in(shared, &xid, statement, kind) => return result,
        }
        let why = "the branch is being rolled back".to_owned();
        self.lose();
        self.state = BranchState::Broken(why.clone());
        Err(StatementError::Failed(why))
    }

    /// Answers a question of the coordinator.
    pub(super) async fn ask(&mut self, shared: &Shared, branch: &Branch, ask: Ask) -> Answer {
        let xid = shared.own(branch);
        let answer = match ask {
            Ask::Prepare => {
                let prepared = tokio::select! {
                    biased;
                    () = branch.interrupted() => None,
                    answer = self.prepare(shared, branch, &xid) => Some(answer),
                };
                prepared.unwrap_or_else(|| {
                    self.lose();
                    Answer::Lost("it was rolled back while it prepared".to_owned())
                })
            }
            Ask::Commit => self.commit(shared, branch, &xid).await,
            Ask::CommitOnePhase => self.commit_one_phase(shared, branch, &xid).await,
            Ask::Rollback => self.rollback(shared, branch, &xid).await,
            Ask::Recover | Ask::Forget => Answer::Done,
        };
        if matches!(answer, Answer::Voted(Vote::No(_)) | Answer::RolledBack(_)) {
            // Nobody will ask again.
            self.state = BranchState::Over;
        }
        if self.lost.is_some() {
            // The sooner it is gone, the sooner are its locks; whoever asks next tries again.
            let _ = self.settle(shared).await;
        }
        answer
    }

    /// Whether the branch can be forgotten, once nothing is owed.
    pub(super) fn is_over(&self) -> bool {
        self.state == BranchState::Over
    }

    /// Whether nothing was done here, and nothing is remembered.
    pub(super) fn is_idle(&self) -> bool {
        self.state == BranchState::New && self.session.is_none() && self.held.is_none()
    }

    /// Whether a session that nobody asks for any more may live still.
    pub(super) fn owes(&self) -> bool {
        self.lost.is_some() && matches!(self.state, BranchState::Over | BranchState::New)
    }

    /// Tries to get rid of a session that is owed, or waits for a while.
    pub(super) async fn pay(&mut self, shared: &Shared) {
        if self.settle(shared).await.is_err() {
            sleep(shared.server.connect_timeout / 10).await;
        }
    }

    async fn run_in(
        &mut self,
        shared: &Shared,
        xid: &Xid,
        statement: Statement,
        kind: Kind,
    ) -> Result<Answered, StatementError> {
        if self.state == BranchState::New {
            self.begin(shared, xid, kind).await?;
        }
        let (session, _) = self.session.as_mut().expect("an open branch has a session");
        session.is_clean &= kind != Kind::Sullies;
        if kind != Kind::Reads {
            self.written = None;
        }
        let trouble = match session.run(statement).await {
            Ok(answered) => return Ok(answered),
            Err(Wrong::NotRun(why)) => return Err(StatementError::Refused(why)),
            Err(Wrong::Trouble(trouble)) => trouble,
        };
        let text = trouble.text().to_owned();
        self.state = BranchState::Broken(text.clone());
        if matches!(trouble, Trouble::Lost(_)) {
            self.lose();
            // Whoever tries again soon must not meet its locks.
            let _ = self.settle(shared).await;
        }
        Err(StatementError::Failed(text))
    }

    /// Takes a session and begins the branch in it. A session that was idle may be dead: then the next is tried.
    ///
    /// # Errors
    /// [`StatementError::Refused`].
    async fn begin(&mut self, shared: &Shared, xid: &Xid, kind: Kind) -> Result<(), StatementError> {
        let refused = |trouble: &Trouble| StatementError::Refused(trouble.text().to_owned());
        loop {
            self.settle(shared).await.map_err(|trouble| refused(&trouble))?;
            let place = shared.pool.place().await;
            let place = place.map_err(|unready| StatementError::Refused(unready.to_string()))?;
            let taken = shared.pool.session(&place).await;
            let (session, was_idle) = taken.map_err(|trouble| refused(&trouble))?;
            let (session, _) = self.session.insert((session, place));
            let written = if kind == Kind::Reads { session.writes().await.map(Some) } else { Ok(None) };
            let begun = match written {
                Ok(_) => session.start(xid).await,
                Err(ref trouble) => Err(trouble.clone()),
            };
            match begun {
                Ok(()) => {
                    self.written = written.ok().flatten();
                    self.state = BranchState::Open;
                    return Ok(());
                }
                Err(Trouble::Lost(_)) if was_idle => self.lose(),
                Err(trouble) => {
                    self.lose();
                    return Err(refused(&trouble));
                }
            }
        }
    }

    async fn prepare(&mut self, shared: &Shared, branch: &Branch, xid: &Xid) -> Answer {
        match self.state.clone() {
            BranchState::New => self.vote_foreign(shared, branch, xid).await,
            BranchState::Open => self.prepare_open(shared, xid).await,
            BranchState::Prepared => Answer::Voted(Vote::Yes),
            BranchState::Detached => self.vote_detached(shared, xid, "its session was lost").await,
            BranchState::Broken(why) => {
                self.give_up(shared, xid).await;
                Answer::Voted(Vote::No(why))
            }
            BranchState::Over => Answer::Voted(Vote::No("it has ended".to_owned())),
        }
    }

    async fn prepare_open(&mut self, shared: &Shared, xid: &Xid) -> Answer {
        match self.try_prepare_open(xid).await {
            Ok(Vote::Yes) => {
                self.state = BranchState::Prepared;
                Answer::Voted(Vote::Yes)
            }
            Ok(vote) => {
                self.release(shared);
                Answer::Voted(vote)
            }
            Err(trouble) => {
                self.lose();
                self.vote_detached(shared, xid, trouble.text()).await
            }
        }
    }

    /// Prepares, or rolls back what has not written.
    async fn try_prepare_open(&mut self, xid: &Xid) -> Result<Vote, Trouble> {
        let (session, _) = self.session.as_mut().expect("an open branch has a session");
        if let Some(before) = self.written
            && session.writes().await? == before
        {
            session.step(&format!("XA END {xid}; XA ROLLBACK {xid}")).await?;
            return Ok(Vote::ReadOnly);
        }
        session.step(&format!("XA END {xid}; XA PREPARE {xid}")).await?;
        Ok(Vote::Yes)
    }

    /// Votes on a branch whose session is lost.
    async fn vote_detached(&mut self, shared: &Shared, xid: &Xid, why: &str) -> Answer {
        if let Err(trouble) = self.settle(shared).await {
            return Answer::Failed(trouble.text().to_owned());
        }
        match shared.control.find(&xid.id).await {
            Ok(Some(_)) => Answer::Voted(Vote::Yes),
            Ok(None) => {
                self.state = BranchState::Over;
                Answer::Voted(Vote::No(why.to_owned()))
            }
            Err(trouble) => Answer::Failed(trouble.text().to_owned()),
        }
    }

    async fn commit(&mut self, shared: &Shared, branch: &Branch, xid: &Xid) -> Answer {
        match self.state {
            BranchState::Prepared => {
                let (session, _) =
                    self.session.as_mut().expect("a prepared branch has a session, or is detached");
                match session.step(&format!("XA COMMIT {xid}")).await {
                    Ok(()) => {
                        self.release(shared);
                        return Answer::Done;
                    }
                    Err(_) => self.lose(),
                }
            }
            BranchState::Open | BranchState::Broken(_) => {
                return Answer::Failed("the branch is not prepared".to_owned());
            }
            // What has ended here may be prepared all the same: the list tells.
            BranchState::New | BranchState::Detached | BranchState::Over => {}
        }
        self.end_detached(shared, branch, xid, true).await
    }

    async fn commit_one_phase(&mut self, shared: &Shared, branch: &Branch, xid: &Xid) -> Answer {
        match self.state.clone() {
            BranchState::New => self.commit_foreign(shared, branch, xid).await,
            BranchState::Open => self.commit_open(shared, xid).await,
            BranchState::Prepared | BranchState::Detached => self.commit(shared, branch, xid).await,
            BranchState::Broken(why) => {
                self.give_up(shared, xid).await;
                Answer::RolledBack(why)
            }
            BranchState::Over => Answer::RolledBack("it has ended".to_owned()),
        }
    }

    async fn commit_open(&mut self, shared: &Shared, xid: &Xid) -> Answer {
        let (session, _) = self.session.as_mut().expect("an open branch has a session");
        let trouble = match session.step(&format!("XA END {xid}; XA COMMIT {xid} ONE PHASE")).await {
            Ok(()) => {
                self.release(shared);
                return Answer::Done;
            }
            Err(trouble) => trouble,
        };
        self.lose();
        self.state = BranchState::Over;
        let is_certain = [RMFAIL, RBROLLBACK, RBTIMEOUT, RBDEADLOCK].iter().any(|code| trouble.is(*code));
        let text = trouble.text().to_owned();
        // What was lost leaves no trace: XA RECOVER lists neither what was committed in one phase nor what was not.
        if is_certain { Answer::RolledBack(text) } else { Answer::Lost(text) }
    }

    async fn rollback(&mut self, shared: &Shared, branch: &Branch, xid: &Xid) -> Answer {
        if self.session.is_some() {
            if self.undo(xid).await.is_ok() {
                self.release(shared);
                return Answer::Done;
            }
            self.lose();
        }
        self.end_detached(shared, branch, xid, false).await
    }

    /// Rolls back on the branch's session.
    async fn undo(&mut self, xid: &Xid) -> Result<(), Trouble> {
        let Some((session, _)) = &mut self.session else { return Ok(()) };
        if self.state != BranchState::Prepared {
            match session.step(&format!("XA END {xid}; XA ROLLBACK {xid}")).await {
                // The server has given up on it: then it is at its end already.
                Err(Trouble::Refused(..)) => {}
                other => return other,
            }
        }
        session.step(&format!("XA ROLLBACK {xid}")).await
    }

    /// Rolls back, by the end of the session if it must be.
    async fn give_up(&mut self, shared: &Shared, xid: &Xid) {
        match self.undo(xid).await {
            Ok(()) => self.release(shared),
            Err(_) => self.lose(),
        }
        self.state = BranchState::Over;
    }

    /// The branch has ended; its session goes back.
    fn release(&mut self, shared: &Shared) {
        self.state = BranchState::Over;
        match self.session.take() {
            Some((session, place)) if session.is_clean => shared.pool.put(session, place),
            Some((session, place)) => self.lost = Some((session.id, place)),
            None => {}
        }
    }

    /// Gives the session up.
    pub(super) fn lose(&mut self) {
        if let Some((session, place)) = self.session.take() {
            self.lost = Some((session.id, place));
        }
        if matches!(self.state, BranchState::Open | BranchState::Prepared) {
            self.state = BranchState::Detached;
        }
    }

    /// Waits until a session that was lost is gone.
    pub(super) async fn settle(&mut self, shared: &Shared) -> Result<(), Trouble> {
        if let Some((id, _)) = &self.lost {
            shared.control.end(*id).await?;
            self.lost = None;
        }
        Ok(())
    }
}
