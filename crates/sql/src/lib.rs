//! What SQL databases that take part have in common: statements run in a branch, branches that an application prepared, settings.
//!
//! ```text
//!  run(branch, statement) -> first: a session begins the branch -> prepare, commit or roll back on that session
//!  adopt(branch)          -> the application's own session has prepared it: prepare only looks whether it is so
//! ```
//!
//! | module | what |
//! |---|---|
//! | `drivers` | the thread on which drivers run, `txn-sql` (tokio): calls return at once, and what they are given for the end is called on it |
//! | `postgres`, `mariadb` | a database as a resource: sessions, statements, branches |
//! | `branches` | what branches of both databases have in common |
//! | `error` | why a database is not used |
//! | `decision_log` | decisions in a table of PostgreSQL, for who has no disk of its own |
//! | `tls` | how connections to databases are kept secret |
//!
//! Invariants
//!   1. A branch is worked on in one session, one statement at a time, in the order of the calls.
//!   2. After a statement failed, the branch only rolls back: its prepare votes no.
//!
//! Out of scope: what a statement means; what comes next in a transaction (`txn`).

// Files of tests that unit tests use, too, name this crate as other crates do.
#[cfg(test)]
extern crate self as sql;

mod branches;
pub mod decision_log;
mod drivers;
mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod mariadb;
pub mod postgres;
pub mod tls;

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use drivers::Drivers;
pub use error::{AddressError, AdoptError, StartError, TlsError, UnknownWord};
use txn::id::{BranchId, NodeName};
use txn::resource::Resource;

use crate::tls::TlsOptions;

/// A database that takes part.
pub trait Database: Resource {
    /// Runs `statement` in `branch`, which begins with its first one.
    fn run(&self, branch: BranchId, statement: Statement, done: Done);

    /// The application has prepared `branch` itself, or will before it commits. `owner` is the identifier of its session, which
    /// some databases must know.
    ///
    /// # Errors
    /// [`AdoptError`].
    fn adopt(&self, branch: BranchId, owner: Option<u64>) -> Result<(), AdoptError>;

    /// Its sessions now.
    fn sessions(&self) -> Sessions;

    /// Uses the address, password and certificates of `options` for sessions that are opened from now on.
    ///
    /// # Errors
    /// [`StartError`]; nothing has changed then.
    fn renew(&self, options: &DatabaseOptions) -> Result<(), StartError>;

    /// Ends all sessions; what is not prepared is rolled back by the database.
    fn close(&self);
}

/// A statement and its parameters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statement {
    /// In the database's own words: parameters are `$1` in PostgreSQL, `?` in MariaDB.
    pub text: String,
    /// As text; `None` is NULL. PostgreSQL makes of them what the statement needs; MariaDB calculates with them as DOUBLE unless the
    /// statement casts them.
    pub parameters: Vec<Option<Vec<u8>>>,
}

/// What a statement came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// It returned rows: each value as text, `None` for NULL.
    Rows(Vec<Vec<Option<Vec<u8>>>>),
    /// It changed so many rows.
    Changed(u64),
}

/// Why a statement failed: what happened, and what becomes of its branch.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StatementError {
    /// It was not run, and the branch is as it was.
    #[error("{0}")]
    Refused(String),
    /// The branch can only roll back now.
    #[error("{0}; the branch can only roll back")]
    Failed(String),
}

/// Called once, on the drivers' thread: must not wait.
pub type Done = Box<dyn FnOnce(Result<Answered, StatementError>) + Send>;

/// Settings of a database.
#[derive(Clone)]
pub struct DatabaseOptions {
    /// As settings, commands and logs name it.
    pub name: String,
    /// Where it is, with user and password: `postgres://USER:PASSWORD@HOST:PORT/DATABASE`, `mysql://...`.
    pub url: String,
    /// How connections are kept secret.
    pub tls: TlsOptions,
    /// Whose branches it may touch.
    pub node: NodeName,
    /// Most sessions at a time; who needs one more waits.
    pub sessions_max: usize,
    /// How the server must let us in; only PostgreSQL has a choice. `None`: with SCRAM if a password is given and the connection is plain.
    pub auth: Option<Auth>,
    /// Longest wait for a connection, or for a session that is free.
    pub connect_timeout: Duration,
    /// Longest wait for a statement or for a step of the protocol.
    pub statement_timeout: Duration,
}

impl DatabaseOptions {
    /// The defaults.
    #[must_use]
    pub fn new(name: &str, url: &str, node: NodeName) -> Self {
        Self {
            name: name.to_owned(),
            url: url.to_owned(),
            tls: TlsOptions::default(),
            node,
            sessions_max: 16,
            auth: None,
            connect_timeout: Duration::from_secs(5),
            statement_timeout: Duration::from_secs(30),
        }
    }
}

/// Branches that cannot be ended, and were told of in the log: asked again every few seconds, each is told of once.
#[derive(Debug, Default)]
pub(crate) struct Complaints(HashSet<String>);

impl Complaints {
    /// Whether nothing was told of this branch.
    pub(crate) fn is_first(&mut self, branch: &str) -> bool {
        if self.0.contains(branch) {
            return false;
        }
        // Rather told again than remembered for ever.
        if self.0.len() >= COMPLAINTS_MAX {
            self.0.clear();
        }
        self.0.insert(branch.to_owned())
    }
}

const COMPLAINTS_MAX: usize = 1_024;

/// How a server lets us in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Auth {
    /// With SCRAM: the password is not sent, and the server proves that it knows it.
    Scram,
    /// As it likes.
    Any,
}

impl std::str::FromStr for Auth {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        match text {
            "scram" => Ok(Self::Scram),
            "any" => Ok(Self::Any),
            _ => Err(UnknownWord(format!("expected scram or any, not '{text}'"))),
        }
    }
}

/// Without the address, which has a password in it.
impl std::fmt::Debug for DatabaseOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DatabaseOptions").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Sessions of a database at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sessions {
    /// Connected.
    pub open: usize,
    /// Of these, in a branch.
    pub busy: usize,
    /// Who waits for one.
    pub waiting: usize,
    /// Connections that failed since the start.
    pub failures: u64,
}

/// A guard whose thread panicked has left whole values behind: each change is one assignment or push.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MariaDB's `You are not owner of thread 11` was logged ten times a second.
    #[test]
    fn branch_that_cannot_be_ended_is_told_of_once() {
        let mut complaints = Complaints::default();
        assert!(complaints.is_first("evk_n_1_1_1"));
        assert!(!complaints.is_first("evk_n_1_1_1"));
        for number in 0..3 * COMPLAINTS_MAX {
            assert!(complaints.is_first(&format!("evk_n_2_{number}_1")));
            assert!(complaints.0.len() <= COMPLAINTS_MAX);
        }
    }
}
