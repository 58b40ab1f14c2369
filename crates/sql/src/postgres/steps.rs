//! The steps of the protocol, each with an answer that is right whatever breaks.
//!
//! | asked | of a branch | done | when the connection breaks |
//! |---|---|---|---|
//! | prepare | open | `PREPARE TRANSACTION`, behind what fails in a transaction that has failed, and a look whether it is there | nobody is told yes; its process may still prepare it, which the rollback sees to |
//! | prepare | open, and it has only read | `COMMIT`: read-only | it is rolled back |
//! | prepare | elsewhere | a look whether it is there | asked again |
//! | commit | prepared here, first asked | `COMMIT PREPARED` | asked again |
//! | commit, rollback | perhaps prepared: of an earlier start, or asked again | the list: not there: done before; another user's: not done, and said why; else as above | asked again |
//! | commit in one phase | open | its number, `COMMIT` | `pg_xact_status` of the number |
//! | rollback | open | `ROLLBACK` | the server rolls back |
//! | rollback | perhaps prepared | its process is ended, and has gone; then as above | asked again |
//!
//! **Why a broken prepare is not looked up for a yes.** The process that was told to prepare may not have begun, so that a look that finds nothing
//! proves nothing until the process has gone; and one that is ended while it waits for its standby leaves what is prepared here alone.
//! A transaction that is rolled back and tried again costs less than either.
//!
//! **Why a look at the number is to be believed.** A transaction that was lost in a crash, with its number, may have had no byte on the disk:
//! then the number is given away again. So `committed` counts only if the server has not started anew since the number was read;
//! every other word means that it was not committed, as a commit on the disk keeps its number.
//!
//! Out of scope: a database that comes back without what it acknowledged; one whose operator ends prepared transactions by hand, which
//! leaves no trace there.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::error::SqlState;

use super::Inner;
use super::branch::{Open, Work};
use super::failure::Failure;
use super::guard::{self, Kind};
use super::pool::{Lease, Use};
use super::session::{Backend, Committed, Unanswered};
use crate::lock;
use crate::{Answered, Statement, StatementError};
use txn::id::BranchId;
use txn::resource::{Answer, Ask, Prepared, Unready, Vote};

impl Inner {
    /// Runs a statement; the first begins the transaction.
    pub(super) async fn run(
        &self,
        branch: BranchId,
        work: &mut Work,
        statement: &Statement,
    ) -> Result<Answered, StatementError> {
        let kind = check(statement)?;
        let answered = match work {
            Work::Away => {
                let begun = self.begin(work, statement).await;
                begun.map_err(|unready| StatementError::Refused(unready.to_string()))?
            }
            Work::Open(open) => open.lease.run(statement).await,
            Work::Failed(why) => {
                return Err(StatementError::Failed(format!("an earlier statement failed: {why}")));
            }
            Work::Unsure(_) => unreachable!("{branch:?}: a statement after its prepare"),
        };
        let Work::Open(open) = work else { unreachable!("it was just opened") };
        open.reads &= kind == Kind::Reads;
        let (why, is_lost) = match answered {
            Ok(answered) => return Ok(answered),
            Err(Unanswered::NotRun(why)) => return Err(StatementError::Refused(why)),
            Err(Unanswered::Failed(why)) => (why, false),
            Err(Unanswered::Lost(why)) => (why, true),
        };
        // Its locks go at once: it can only roll back now.
        let Work::Open(open) = std::mem::replace(work, Work::Failed(why.clone())) else {
            unreachable!("it was open")
        };
        if is_lost {
            open.lease.abandon();
        } else {
            let is_clean = open.lease.rollback().await;
            open.lease.give_back_if(is_clean);
        }
        Err(StatementError::Failed(why))
    }

    /// Begins a transaction with its first statement. A session that broke while nobody looked is left for the next: what it was
    /// given came to nothing.
    async fn begin(
        &self,
        work: &mut Work,
        statement: &Statement,
    ) -> Result<Result<Answered, Unanswered>, Unready> {
        let mut why = String::new();
        for _ in 0..BEGINS_MAX {
            let lease = self.pool.lease(Use::Branch).await?;
            // Whoever has this stopped finds the session there.
            *work = Work::Open(Box::new(Open { lease, reads: true }));
            let Work::Open(open) = work else { unreachable!("it was just opened") };
            match open.lease.begin(statement).await {
                (Ok(()), answered) => return Ok(answered),
                // What it answers is too much, and would be again.
                (Err(_), _) if let Some(refused) = open.lease.refused() => {
                    return Ok(Err(Unanswered::Lost(refused)));
                }
                (Err(failure), _) => why = failure.text(),
            }
            *work = Work::Away;
        }
        Err(Unready::Retry(format!("{}: {why}", self.pool.place())))
    }

    /// Stops what is under way in a branch that is to roll back.
    pub(super) async fn break_off(&self, work: &mut Work) {
        let Work::Open(open) = std::mem::replace(work, Work::Failed("it is rolled back".to_owned())) else {
            return;
        };
        open.lease.cancel().await;
        // The word to stop may come late, and meet what is done next: so nothing is done in this session any more.
        if open.lease.rollback().await { open.lease.close() } else { open.lease.abandon() }
    }

    /// Answers a question; whether the branch is over then.
    pub(super) async fn answer(&self, branch: BranchId, work: &mut Work, ask: Ask) -> (Answer, bool) {
        let id = self.node.branch_id(branch);
        assert!(id.len() <= ID_BYTES_MAX, "{id} is longer than an identifier may be");
        match ask {
            Ask::Prepare => {
                let answer = self.prepare(&id, work).await;
                if answer == Answer::Voted(Vote::Yes) {
                    lock(&self.branches).note_prepared(branch);
                }
                let is_over = matches!(answer, Answer::Voted(_));
                (answer, is_over)
            }
            Ask::Commit => {
                let answer = match work {
                    Work::Away => self.finish(branch, &id, true).await,
                    _ => Answer::Failed("it is not prepared".to_owned()),
                };
                let is_over = answer == Answer::Done;
                (answer, is_over)
            }
            Ask::CommitOnePhase => {
                let answer = self.commit_one_phase(&id, work).await;
                let is_over = !matches!(answer, Answer::Failed(_));
                (answer, is_over)
            }
            Ask::Rollback => {
                let answer = self.rollback(branch, &id, work).await;
                let is_over = answer == Answer::Done;
                (answer, is_over)
            }
            Ask::Recover | Ask::Forget => unreachable!("{ask:?} is not asked of a branch's task"),
        }
    }

    async fn prepare(&self, id: &str, work: &mut Work) -> Answer {
        match std::mem::take(work) {
            Work::Open(open) => self.prepare_open(id, work, *open).await,
            Work::Away => self.find(id).await,
            Work::Failed(why) => Answer::Voted(Vote::No(why)),
            Work::Unsure(backend) => {
                *work = Work::Unsure(backend);
                Answer::Lost("it was asked to prepare before, and did not answer".to_owned())
            }
        }
    }

    async fn prepare_open(&self, id: &str, work: &mut Work, open: Open) -> Answer {
        if open.reads {
            match open.lease.has_written().await {
                Ok(false) => return vote_of_reader(open.lease).await,
                Ok(true) => {}
                // Nothing was prepared.
                Err(failure) => return Answer::Voted(Vote::No(failure.text())),
            }
        }
        let lease = open.lease;
        match lease.prepare(id).await {
            Ok(true) => {
                lease.give_back();
                Answer::Voted(Vote::Yes)
            }
            Ok(false) => {
                lease.give_back();
                Answer::Voted(Vote::No("the database rolled it back instead of preparing it".to_owned()))
            }
            Err(Failure::Refused(_, why)) => {
                let is_clean = lease.rollback().await;
                lease.give_back_if(is_clean);
                Answer::Voted(Vote::No(why))
            }
            Err(Failure::Lost(why)) => {
                *work = Work::Unsure(lease.facts().backend.clone());
                lease.abandon();
                Answer::Lost(why)
            }
        }
    }

    /// Whether the application has prepared it.
    async fn find(&self, id: &str) -> Answer {
        match self.ask(async |lease| lease.is_prepared_and_ours(id).await).await {
            Ok(Some(true)) => Answer::Voted(Vote::Yes),
            Ok(Some(false)) => Answer::Voted(Vote::No(self.of_another_user(id, "ROLLBACK"))),
            Ok(None) => Answer::Voted(Vote::No(self.nothing_here(id))),
            Err(failure) => Answer::Failed(failure.text()),
        }
    }

    fn nothing_here(&self, id: &str) -> String {
        format!(
            "{}: nothing was run in this branch, and nothing is prepared as {id}: run its statements here, or \
             PREPARE TRANSACTION '{id}' in that database before the commit",
            self.pool.place()
        )
    }

    /// Commits or rolls back what is prepared. If it is not certain that it is, the database's list is looked at first: a start asks for
    /// each decision that is kept, nearly all of which were carried out, and the database would log an error for each.
    async fn finish(&self, branch: BranchId, id: &str, commits: bool) -> Answer {
        let is_prepared = lock(&self.branches).take_prepared(branch);
        if !is_prepared {
            match self.listed(id).await {
                // It has ended before.
                Ok(None) => return Answer::Done,
                Ok(Some(true)) => {}
                Ok(Some(false)) => return Answer::Failed(self.complain(id, commits)),
                Err(failure) => return unfinished(failure),
            }
        }
        match self.ask(async |lease| lease.finish(id, commits).await).await {
            Ok(_) => Answer::Done,
            Err(Failure::Refused(SqlState::INSUFFICIENT_PRIVILEGE, _)) => {
                Answer::Failed(self.complain(id, commits))
            }
            Err(failure) => unfinished(failure),
        }
    }

    /// Whether the server lists `id` as prepared, in whatever database, and this user may end it. Those who ask meanwhile share one look.
    async fn listed(&self, id: &str) -> Result<Option<bool>, Failure> {
        let wanted = lock(&self.lists).begun + 1;
        let _turn = self.looks.lock().await;
        let number = {
            let mut lists = lock(&self.lists);
            if lists.newest >= wanted {
                return lists.found.clone().map(|found| found.get(id).copied());
            }
            lists.begun += 1;
            lists.begun
        };
        let looked = self.ask(async |lease| lease.prepared_by(self.node.as_str()).await).await;
        let found = looked.map(|found| Arc::new(found.into_iter().collect::<HashMap<_, _>>()));
        let mut lists = lock(&self.lists);
        (lists.newest, lists.found) = (number, found);
        lists.found.clone().map(|found| found.get(id).copied())
    }

    /// Says why a branch cannot be ended, and what to do; in the log, too, but once.
    fn complain(&self, id: &str, commits: bool) -> String {
        let why = self.of_another_user(id, if commits { "COMMIT" } else { "ROLLBACK" });
        if lock(&self.complaints).is_first(id) {
            tracing::warn!(resource = self.name, "{why}");
        }
        why
    }

    fn of_another_user(&self, id: &str, end: &str) -> String {
        format!(
            "{}: another user has prepared {id}, and only that user or a superuser may end it: it stays prepared, and its rows locked, \
             until one of them runs {end} PREPARED '{id}'; applications must prepare as the user of this resource",
            self.pool.place()
        )
    }

    async fn commit_one_phase(&self, id: &str, work: &mut Work) -> Answer {
        match std::mem::take(work) {
            Work::Open(open) => {
                let (committed, is_clean) = open.lease.commit().await;
                let incarnation = open.lease.facts().incarnation.clone();
                // If it was not heard of it is not told to stop, either.
                open.lease.give_back_if(is_clean);
                match committed {
                    Committed::Yes => Answer::Done,
                    Committed::No(why) => Answer::RolledBack(why),
                    Committed::Unknown(why, None) => Answer::Lost(why),
                    Committed::Unknown(why, Some(number)) => self.look_up(&number, &incarnation, why).await,
                }
            }
            Work::Away => self.commit_adopted(id).await,
            Work::Failed(why) => Answer::RolledBack(why),
            Work::Unsure(backend) => {
                *work = Work::Unsure(backend);
                Answer::Failed("it was asked to prepare before, and did not answer".to_owned())
            }
        }
    }

    /// Commits what the application has prepared, if it has.
    async fn commit_adopted(&self, id: &str) -> Answer {
        let no = || Answer::Voted(Vote::No(self.of_another_user(id, "ROLLBACK")));
        match self.ask(async |lease| lease.is_prepared_and_ours(id).await).await {
            Ok(Some(true)) => {}
            // Nothing is tried that cannot be done: it would be refused until the time is over, and be said to be unknown then.
            Ok(Some(false)) => return no(),
            Ok(None) => return Answer::RolledBack(self.nothing_here(id)),
            Err(failure) => return Answer::Failed(failure.text()),
        }
        let (mut why, mut was_lost) = (String::new(), false);
        let until = tokio::time::Instant::now() + self.limit;
        while tokio::time::Instant::now() < until {
            match self.ask(async |lease| lease.finish(id, true).await).await {
                // Gone after it was there: an earlier try has committed it.
                Ok(_) => return Answer::Done,
                Err(Failure::Refused(SqlState::INSUFFICIENT_PRIVILEGE, _)) if !was_lost => return no(),
                Err(failure) => {
                    was_lost |= matches!(failure, Failure::Lost(_));
                    why = failure.text();
                }
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Answer::Lost(why)
    }

    /// What became of transaction `number`, whose commit was not heard of.
    async fn look_up(&self, number: &str, incarnation: &str, why: String) -> Answer {
        let until = tokio::time::Instant::now() + self.limit;
        while tokio::time::Instant::now() < until {
            let looked = self.ask(async |lease| {
                let is_same = lease.facts().incarnation == incarnation;
                Ok((lease.status(number).await?, is_same))
            });
            match looked.await {
                Ok((Some(status), true)) if status == "committed" => return Answer::Done,
                Ok((Some(status), false)) if status == "committed" => break,
                Ok((Some(status), is_same)) if status == "aborted" || !is_same => {
                    return Answer::RolledBack(why);
                }
                Ok((None, _)) => break,
                // A number that was not given away yet: it was, and got lost with its transaction.
                Err(Failure::Refused(SqlState::INVALID_PARAMETER_VALUE, _)) => {
                    return Answer::RolledBack(why);
                }
                Ok(_) | Err(_) => {}
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Answer::Lost(format!("{why}; nor does the database tell what became of transaction {number}"))
    }

    async fn rollback(&self, branch: BranchId, id: &str, work: &mut Work) -> Answer {
        match std::mem::take(work) {
            Work::Open(open) => {
                let is_clean = open.lease.rollback().await;
                open.lease.give_back_if(is_clean);
                Answer::Done
            }
            Work::Failed(_) => Answer::Done,
            Work::Away => self.finish(branch, id, false).await,
            Work::Unsure(backend) => {
                let answer = match self.end(&backend).await {
                    Ok(()) => self.finish(branch, id, false).await,
                    Err(failure) => Answer::Failed(failure.text()),
                };
                if answer != Answer::Done {
                    *work = Work::Unsure(backend);
                }
                answer
            }
        }
    }

    /// Has a process of the server end, and waits until it has.
    async fn end(&self, backend: &Backend) -> Result<(), Failure> {
        let until = tokio::time::Instant::now() + self.limit;
        while tokio::time::Instant::now() < until {
            if self.ask(async |lease| lease.ends(backend).await).await? {
                return Ok(());
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        Err(Failure::Lost("the process that was preparing it does not end".to_owned()))
    }

    /// What is prepared in the database, whoever did it.
    pub(super) async fn recover(&self) -> Answer {
        match self.ask(async |lease| lease.prepared().await).await {
            Ok(found) => Answer::Found(
                found
                    .into_iter()
                    .map(|(id, since)| Prepared { id, since: since.map(clock::UnixMs) })
                    .collect(),
            ),
            Err(failure) => Answer::Failed(failure.text()),
        }
    }

    /// Asks the server something outside of a transaction.
    async fn ask<T>(&self, how: impl AsyncFnOnce(&Lease) -> Result<T, Failure>) -> Result<T, Failure> {
        // Not sent is not done, and it is asked again.
        let nowhere = |why: Unready| Failure::Refused(SqlState::CONNECTION_EXCEPTION, why.to_string());
        let lease = self.pool.lease(Use::Protocol).await.map_err(nowhere)?;
        let answer = how(&lease).await;
        // One that is not heard of is not told to stop: a commit that waits for its standby would be made without it.
        lease.give_back_if(!matches!(answer, Err(Failure::Lost(_))));
        answer
    }
}

/// Ends a transaction that has changed nothing. Its commit makes a serializable one say whether what it has read stands.
async fn vote_of_reader(lease: Lease) -> Answer {
    let (committed, is_clean) = lease.commit().await;
    lease.give_back_if(is_clean);
    Answer::Voted(match committed {
        Committed::Yes => Vote::ReadOnly,
        Committed::No(why) | Committed::Unknown(why, _) => Vote::No(why),
    })
}

/// A commit or rollback of what is prepared that has not been done, or not for certain.
fn unfinished(failure: Failure) -> Answer {
    match failure {
        Failure::Refused(_, why) => Answer::Failed(why),
        Failure::Lost(why) => Answer::Lost(why),
    }
}

/// Whether a statement can be sent.
///
/// # Errors
/// [`StatementError::Refused`].
fn check(statement: &Statement) -> Result<Kind, StatementError> {
    let parameters = statement.parameters.iter().flatten().map(Vec::len).sum::<usize>();
    let size_bytes = statement.text.len() + parameters;
    if size_bytes > STATEMENT_BYTES_MAX {
        return Err(StatementError::Refused(format!(
            "a statement of {size_bytes} bytes with its parameters, {STATEMENT_BYTES_MAX} are the most"
        )));
    }
    guard::look(&statement.text)
}

/// So many sessions in a row that broke are chance.
const BEGINS_MAX: usize = 3;
/// Longest name of a prepared transaction.
const ID_BYTES_MAX: usize = 199;
const STATEMENT_BYTES_MAX: usize = 64 << 20;
const LOOK_PAUSE: Duration = Duration::from_millis(20);
