//! MariaDB as a resource: branches are XA transactions of its sessions.
//!
//! ```text
//!  run      -> XA START 'ID','run' on a session of the pool, which is the branch's until its end was answered
//!  prepare  -> XA END, XA PREPARE in one round trip       commit -> XA COMMIT on the same session
//!  adopt    -> the application's session does GET_LOCK('ID', 0), XA START 'ID','lock' ... XA PREPARE 'ID','lock', and then closes;
//!              prepare looks whether it is listed
//!  a session is lost -> killed, waited for, and the branch is ended on another, if XA RECOVER lists it
//! ```
//!
//! Invariants
//!   1. A branch ends on the session that holds it, or after that session is known to be gone: otherwise an acknowledged XA COMMIT may be
//!      lost (`control`, docs/adr/0010-mariadb.md).
//!   2. "Unknown identifier" (XAER_NOTA) is believed only if XA RECOVER does not list the branch either.
//!   3. Sessions are never reset, and go back only clean.
//!
//! What the user of the database needs: rights on the tables, and PROCESS (`GRANT PROCESS ON *.*`): without it no branches of applications
//! are taken, and the end of a session that was lost is only waited for; CONNECTION ADMIN to end sessions of other users. A user of its own is advised: nobody else then shares its sessions.
//!
//! Written and measured for MariaDB 10.11; MySQL 8 speaks the same XA and wants XA_RECOVER_ADMIN, but has not been tried. Engines other
//! than InnoDB are out of scope.
//! Source: docs/adr/0010-mariadb.md.

mod branch;
mod control;
mod detached;
mod monitor;
mod pool;
mod session;
mod statement;
mod work;
mod xid;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::branches::{Told, questions};
use crate::error::{AdoptError, StartError};
use crate::{Database, DatabaseOptions, Done, Drivers, Sessions, Statement};
use branch::{Branch, Branches, Job, Owner};
use control::Control;
use pool::Pool;
use session::Server;
use txn::id::{BranchId, NodeName};
use txn::resource::{Abilities, Answer, Ask, Prepared, Reply, Resource, Unready};
use xid::Xid;

/// A MariaDB that takes part.
#[derive(Debug)]
pub struct MariaDb {
    shared: Arc<Shared>,
    /// Runs as long as this is there.
    _drivers: Arc<Drivers>,
}

/// Times that only this database has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// For so long a decision is kept after its branches have answered. It must cover the time in which a server that lost a commit
    /// dies, is started again and lists the branch; all that commit meanwhile stay in memory and count as under way.
    pub keep_decision: Duration,
    /// For so long an application may keep its session after XA PREPARE, before it is killed for the commit to go on.
    pub owner_grace: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self { keep_decision: Duration::from_secs(60), owner_grace: Duration::from_millis(200) }
    }
}

/// What the resource and its tasks share.
#[derive(Debug)]
struct Shared {
    name: String,
    node: NodeName,
    timing: Timing,
    handle: Handle,
    server: Arc<Server>,
    pool: Pool,
    control: Control,
    branches: Mutex<Branches>,
    closed: tokio::sync::Notify,
}

impl MariaDb {
    /// Starts with the default [`Timing`]. Connects in the background, again and again: until then [`Resource::ready`] says why not.
    ///
    /// At most `sessions_max` sessions are in branches, and one more asks the server about itself.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start(options: DatabaseOptions, drivers: &Arc<Drivers>) -> Result<Arc<Self>, StartError> {
        Self::start_with(options, Timing::default(), drivers)
    }

    /// As [`Self::start`], with other times.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn start_with(
        options: DatabaseOptions,
        timing: Timing,
        drivers: &Arc<Drivers>,
    ) -> Result<Arc<Self>, StartError> {
        let server = Arc::new(Server::new(&options)?);
        let DatabaseOptions { name, node, sessions_max, .. } = options;
        let shared = Arc::new(Shared {
            name,
            node,
            timing,
            handle: drivers.handle().clone(),
            pool: Pool::new(Arc::clone(&server), sessions_max),
            control: Control::new(Arc::clone(&server)),
            server,
            branches: Mutex::default(),
            closed: tokio::sync::Notify::new(),
        });
        let watch = Arc::clone(&shared);
        shared.handle.spawn(async move {
            let count = || {
                watch.pool.failures.fetch_add(1, Ordering::Relaxed);
            };
            tokio::select! {
                () = watch.closed.notified() => {}
                () = watch.control.keep(count) => {}
            }
        });
        Ok(Arc::new(Self { shared, _drivers: Arc::clone(drivers) }))
    }

    fn ask(&self, branch: BranchId, ask: Ask, reply: Reply) {
        self.shared.push(branch, Job::Ask(ask, reply));
    }
}

impl Resource for MariaDb {
    fn name(&self) -> &str {
        &self.shared.name
    }

    fn abilities(&self) -> Abilities {
        let keep = self.shared.timing.keep_decision.as_millis();
        Abilities { prepares: true, keep_decision_ms: u64::try_from(keep).unwrap_or(u64::MAX) }
    }

    fn ready(&self) -> Result<(), Unready> {
        self.shared.control.state().trouble.map_or(Ok(()), Err)
    }

    fn watch(&self, back: Box<dyn Fn() + Send + Sync>) {
        self.shared.control.watch(back);
    }

    questions!();

    fn recover(&self, reply: Reply) {
        let shared = Arc::clone(&self.shared);
        self.shared.handle.spawn(async move {
            reply.answer(match shared.control.prepared().await {
                Ok(xids) => {
                    let prepared = xids.iter().map(|xid| Prepared { id: xid.id.clone(), since: None });
                    Answer::Found(prepared.collect())
                }
                Err(trouble) => Answer::Failed(trouble.text().to_owned()),
            });
        });
    }
}

impl Database for MariaDb {
    fn run(&self, branch: BranchId, statement: Statement, done: Done) {
        self.shared
            .push(branch, Job::Run(statement, Told::new(done, "the database was closed while it ran")));
    }

    fn adopt(&self, branch: BranchId, owner: Option<u64>) -> Result<(), AdoptError> {
        self.ready()?;
        if !self.shared.control.state().sees_all {
            let why = "the database's user does not see who holds a branch: GRANT PROCESS ON *.* to it";
            return Err(Unready::Setting(why.to_owned()).into());
        }
        self.shared.adopt(branch, Owner(owner))
    }

    fn sessions(&self) -> Sessions {
        self.shared.pool.sessions()
    }

    fn renew(&self, options: &DatabaseOptions) -> Result<(), StartError> {
        self.shared.server.renew(options)
    }

    fn close(&self) {
        let _runtime = self.shared.handle.enter();
        self.shared.closed.notify_one();
        self.shared.pool.close();
        self.shared.control.hang_up();
        self.shared.close_branches();
    }
}

impl Drop for MariaDb {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    /// The identifier of a branch that is run here.
    fn own(&self, branch: &Branch) -> Xid {
        Xid::own(self.node.branch_id(branch.id))
    }
}

/// See [`crate::fuzzing`].
pub(crate) mod fuzzing {
    use super::monitor;
    use super::statement::{self, Kind};
    use super::xid::Xid;

    /// What it is; `None`: it is not run.
    pub(crate) fn judge(text: &str) -> Option<Kind> {
        statement::judge(text).ok()
    }

    pub(crate) fn xid(format: u64, gtrid: usize, bqual: usize, data: &[u8]) -> bool {
        let Some(xid) = Xid::of_row(&(format, gtrid, bqual, data.to_vec())) else { return false };
        let written = xid.to_string();
        let plain: String = written.chars().filter(|sign| !matches!(sign, '\'' | ',')).collect();
        assert_eq!(plain.as_bytes(), data, "{written}");
        true
    }

    pub(crate) fn monitor(text: &str) -> usize {
        let behind = "---TRANSACTION 28, ACTIVE (PREPARED) 6 sec\nMariaDB thread id 7, OS thread handle 1\n";
        let whole = format!("LIST OF TRANSACTIONS FOR EACH SESSION:\n{text}\n{behind}");
        let is_it = |it: &monitor::Shown| it.id == 28 && it.session == 7 && it.is_prepared;
        let shown = monitor::transactions(&whole);
        assert!(shown.is_none_or(|shown| shown.iter().any(is_it)), "{whole:?}");
        monitor::transactions(text).map_or(0, |shown| shown.len())
    }
}
