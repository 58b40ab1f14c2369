//! A PostgreSQL database that takes part in transactions.
//!
//! ```text
//!  run -> branch: its statements in order -> session -> BEGIN, statements -> PREPARE TRANSACTION 'evk_...' -> session is free again
//!  commit, rollback of what is prepared, recover -> any session of the same database
//! ```
//!
//! Invariants
//!   1. A branch votes yes only when the server has answered that it prepared it, or lists it as prepared in this database.
//!   2. A rollback is done only when nothing is left that could still prepare the branch, except in a session of an application's own.
//!   3. Each wait ends: for a connection, and for a session, within `connect_timeout`; for a statement or a step of the protocol within
//!      `statement_timeout`. Each queue has a bound.
//!
//! When the node dies, the server rolls back what is not prepared as soon as it sees the connections end; what is prepared is listed by
//! [`Resource::recover`], and committed or rolled back by the next start.
//!
//! **Who only reads** commits when it is asked to prepare, and is out. It needs a look whether the transaction has a number, so it is tried only
//! of branches all of whose statements were queries (`guard`); who writes pays nothing for it. What remains: a function that only
//! sends notifications, or only takes advisory locks, in a query that does not name either, does so at the vote, whatever becomes of
//! the transaction.
//!
//! Needs PostgreSQL 13, `max_prepared_transactions`, and `fsync`; the same user for as long as something is prepared.
//! Out of scope: a pooler that gives each transaction another session: the address must be the server's.

pub(crate) mod address;
mod branch;
pub(crate) mod failure;
pub(crate) mod gate;
mod guard;
mod pool;
pub(crate) mod session;
mod steps;
pub(crate) mod tags;
mod value;

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio_postgres::Config;

use crate::branches::{Told, questions};
use crate::error::{AddressError, AdoptError, StartError};
use crate::lock;
use crate::tls::Tls;
use crate::{Complaints, Database, DatabaseOptions, Done, Drivers, Sessions, Statement, StatementError};
use branch::{Branches, ENDS, Job, Work};
use failure::Failure;
use gate::Proof;
use pool::Pool;
use txn::id::{BranchId, NodeName};
use txn::resource::{Answer, Ask, Reply, Resource, Unready};

/// A database.
#[derive(Debug)]
pub struct Postgres {
    inner: Arc<Inner>,
    handle: Handle,
    /// They run until nobody needs them.
    _drivers: Arc<Drivers>,
}

/// What the database's tasks share.
#[derive(Debug)]
struct Inner {
    name: String,
    node: NodeName,
    limit: Duration,
    pool: Arc<Pool>,
    branches: Mutex<Branches>,
    /// A look at what is prepared is under way.
    recovers: AtomicBool,
    /// Looks at what this node has prepared, shared by those who ask meanwhile: one at a time.
    looks: tokio::sync::Mutex<()>,
    lists: Mutex<Lists>,
    complaints: Mutex<Complaints>,
}

/// Looks at what is prepared, and whether this user may end it.
#[derive(Debug)]
struct Lists {
    /// So many have begun.
    begun: u64,
    /// Which of them the last one was that came to something.
    newest: u64,
    found: Result<Arc<HashMap<String, bool>>, Failure>,
}

impl Default for Lists {
    fn default() -> Self {
        Self { begun: 0, newest: 0, found: Ok(Arc::default()) }
    }
}

impl Postgres {
    /// Takes `options.url` for a database of the coordinator, and begins to connect, which is tried for as long as it takes;
    /// [`Resource::ready`] says how it goes. Of `options.sessions_max` sessions, at least two, a quarter is kept for commits.
    ///
    /// # Errors
    /// [`StartError`]. A server that is not there is none.
    pub fn start(options: &DatabaseOptions, drivers: &Arc<Drivers>) -> Result<Arc<Self>, StartError> {
        let (config, trust) = login(options)?;
        let pool = Arc::new(Pool::new(config, trust, options));
        let inner = Arc::new(Inner {
            name: options.name.clone(),
            node: options.node.clone(),
            limit: options.statement_timeout,
            pool: Arc::clone(&pool),
            branches: Mutex::default(),
            recovers: AtomicBool::new(false),
            looks: tokio::sync::Mutex::default(),
            lists: Mutex::default(),
            complaints: Mutex::default(),
        });
        let handle = drivers.handle().clone();
        handle.spawn(pool.tend());
        Ok(Arc::new(Self { inner, handle, _drivers: Arc::clone(drivers) }))
    }

    fn ask(&self, branch: BranchId, ask: Ask, reply: Reply) {
        let (starts, dropped, before) = lock(&self.inner.branches).ask(branch, ask, reply);
        if let Some(reply) = before {
            reply.answer(Answer::Lost("it was asked anew, or the database was closed".to_owned()));
        }
        if !dropped.is_empty() {
            self.handle.spawn(async move { drop(dropped) });
        }
        if starts {
            self.handle.spawn(drive(Arc::clone(&self.inner), branch));
        }
    }
}

/// How sessions are opened, and what proves to each side who the other is.
fn login(options: &DatabaseOptions) -> Result<(Config, (Tls, Proof)), StartError> {
    let name = || options.name.clone();
    let no = |why: AddressError| StartError::Address { name: name(), system: "PostgreSQL", form: FORM, why };
    let mut config = address::read(&options.url).map_err(no)?;
    let tls = Tls::new(&options.tls, address::is_here(&config));
    let tls = tls.map_err(|why| StartError::Tls { name: name(), why })?;
    address::secure(&mut config, &tls).map_err(no)?;
    let proof = address::proof(&config, &tls, options.auth).map_err(no)?;
    Ok((config, (tls, proof)))
}

impl Resource for Postgres {
    fn name(&self) -> &str {
        &self.inner.name
    }

    fn ready(&self) -> Result<(), Unready> {
        self.inner.pool.ready()
    }

    fn watch(&self, back: Box<dyn Fn() + Send + Sync>) {
        self.inner.pool.watch(back);
    }

    questions!();

    fn recover(&self, reply: Reply) {
        if self.inner.recovers.swap(true, Ordering::Relaxed) {
            return reply.answer(Answer::Lost("the last look at it is still under way".to_owned()));
        }
        let inner = Arc::clone(&self.inner);
        self.handle.spawn(async move {
            let answer = inner.recover().await;
            inner.recovers.store(false, Ordering::Relaxed);
            reply.answer(answer);
        });
    }
}

impl Database for Postgres {
    fn run(&self, branch: BranchId, statement: Statement, done: Done) {
        let pushed = lock(&self.inner.branches).push(branch, statement, Told::new(done, ENDS));
        match pushed {
            Ok(true) => drop(self.handle.spawn(drive(Arc::clone(&self.inner), branch))),
            Ok(false) => {}
            Err((told, why)) => {
                self.handle.spawn(async move { told.tell(Err(StatementError::Refused(why))) });
            }
        }
    }

    fn adopt(&self, branch: BranchId, _: Option<u64>) -> Result<(), AdoptError> {
        lock(&self.inner.branches).adopt(branch)
    }

    fn sessions(&self) -> Sessions {
        self.inner.pool.sessions()
    }

    fn renew(&self, options: &DatabaseOptions) -> Result<(), StartError> {
        let (config, trust) = login(options)?;
        self.inner.pool.renew(config, trust, options);
        Ok(())
    }

    fn close(&self) {
        let left = lock(&self.inner.branches).close();
        self.inner.pool.close();
        self.handle.spawn(async move { drop(left) });
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.close();
    }
}

/// Works for a branch until nothing is left to do.
async fn drive(inner: Arc<Inner>, branch: BranchId) {
    let (mut work, stop) = lock(&inner.branches).begin(branch);
    let mut stops = stop.subscribe();
    let mut ends = false;
    loop {
        let job = lock(&inner.branches).next(branch, &mut work, ends);
        match job {
            None => return,
            Some(Job::Run(statement, told)) => {
                let answered = tokio::select! {
                    biased;
                    _ = stops.wait_for(|stops| *stops) => None,
                    answered = inner.run(branch, &mut work, &statement) => Some(answered),
                };
                match answered {
                    Some(answered) => told.tell(answered),
                    None => {
                        inner.break_off(&mut work).await;
                        told.tell(Err(StatementError::Failed("the branch is rolled back".to_owned())));
                    }
                }
            }
            Some(Job::Answer(ask, reply)) => {
                let (answer, is_over) = inner.answer(branch, &mut work, ask).await;
                ends |= is_over;
                if ends {
                    work = Work::Away;
                }
                reply.answer(answer);
            }
        }
    }
}

/// What an address looks like.
const FORM: &str = "postgres://USER:PASSWORD@HOST:PORT/DATABASE";

/// See [`crate::fuzzing`].
pub(crate) mod fuzzing {
    use tokio_postgres::types::Type;

    use super::gate::Proof;
    use super::tags::Decoder;
    use super::{guard, value};

    pub(crate) fn value(raw: &[u8]) -> usize {
        let told = |kind: &&Type| {
            let text = value::decode(kind, raw);
            let is_same = text.as_deref() == Some(raw);
            assert!(
                is_same
                    || text
                        .as_ref()
                        .is_none_or(|text| std::str::from_utf8(text).is_ok() || **kind == Type::JSONB),
                "{kind}"
            );
            text.is_some()
        };
        value::KNOWN.iter().filter(told).count()
    }

    /// `None`: it is refused before its end.
    pub(crate) fn tags(sent: &[u8], piece_bytes: usize) -> Option<u64> {
        let mut decoder = Decoder::new(Proof::Scram);
        sent.chunks(piece_bytes.max(1)).map(|piece| decoder.feed(piece).ok()).sum()
    }

    /// What it is; `None`: it is not run.
    pub(crate) fn judge(text: &str) -> Option<bool> {
        guard::look(text).ok().map(|kind| kind == guard::Kind::Reads)
    }
}
