//! The session that asks about others: what is prepared, who still holds it, and how it ends when its own session is gone.
//!
//! XA COMMIT of a branch whose session is being torn down is acknowledged and lost: the server lets go of the identifier before the
//! engine lets go of the transaction. What a session that ends lets go of, in this order:
//!
//! ```text
//!  killed -> identifier -> user locks -> list of processes -> the engine's transaction
//!            '------------ XA COMMIT elsewhere is lost ------------'
//! ```
//!
//! So neither a lock that is free nor a list of processes without the session proves anything: only the engine does. Its monitor
//! (SHOW ENGINE INNODB STATUS, needs PROCESS) names the session of each prepared transaction, until the engine has let go of it, and is
//! never a copy.
//!
//! | session | the branch is let go of when no prepared transaction |
//! |---|---|
//! | known | is that session's, or the server has restarted since it was known |
//! | unknown, its lock is free | is of a session that is being torn down: killed, or not in the list of processes |
//! | unknown | of those at the first look has its session still |
//!
//! Invariants
//!   1. Its session is in no branch: every command stands for itself, and several that belong together follow each other.
//!   2. A session that did not answer as expected is not used again.
//!   3. A look at the monitor counts only if it shows this very session: then it was read as it was meant, and whole.
//!   4. A list of what is prepared answers all who asked before it began: after a start thousands of branches ask at once.
//!
//! Out of scope: which branch has which session (`branch`).
//! Source: `unlink_thd` and `THD::cleanup` of MariaDB 10.11; docs/adr/0010-mariadb.md.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use mysql_async::prelude::{FromRow, Queryable};
use mysql_async::{Conn, Row};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, timeout};

use super::monitor;
use super::session::{NO_SUCH_THREAD, Server, Trouble, all, first, within};
use super::xid::Xid;
use crate::Complaints;
use txn::resource::Unready;

/// Asks the server.
#[derive(Debug)]
pub(super) struct Control {
    server: Arc<Server>,
    conn: tokio::sync::Mutex<Option<Conn>>,
    lists: Mutex<Lists>,
    complaints: Mutex<Complaints>,
    state: Mutex<State>,
    /// The connection broke.
    broke: Notify,
    back: OnceLock<Back>,
}

/// Who is called when the server answers again.
struct Back(Box<dyn Fn() + Send + Sync>);

/// Lists of what is prepared.
#[derive(Debug, Default)]
struct Lists {
    /// So many have begun.
    begun: u64,
    /// Which of them the last one was that came.
    newest: u64,
    found: Arc<[Xid]>,
}

/// What is known of the server.
#[derive(Clone, Debug)]
pub(super) struct State {
    /// Why no branch can be taken; `None`: one can.
    pub(super) trouble: Option<Unready>,
    /// It sees other users' sessions, and the engine's transactions.
    pub(super) sees_all: bool,
}

/// A prepared transaction of the engine, and the session that it belongs to.
pub(super) type Attached = (u64, u64);

impl Control {
    pub(super) fn new(server: Arc<Server>) -> Self {
        let trouble = Some(Unready::Retry("it has not connected yet".to_owned()));
        let state = State { trouble, sees_all: false };
        Self {
            server,
            conn: tokio::sync::Mutex::default(),
            lists: Mutex::default(),
            complaints: Mutex::default(),
            state: Mutex::new(state),
            broke: Notify::new(),
            back: OnceLock::new(),
        }
    }

    pub(super) fn state(&self) -> State {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Has `back` called whenever it connects after it could not, or lost its connection; the first one that is given.
    pub(super) fn watch(&self, back: Box<dyn Fn() + Send + Sync>) {
        let _ = self.back.set(Back(back));
    }

    /// Keeps the connection; never returns. `failed` is called for each attempt that failed.
    pub(super) async fn keep(&self, failed: impl Fn()) {
        let (mut pause, mut was_lost) = (PAUSE_LEAST, false);
        loop {
            match self.rows::<u8>("SELECT 1").await {
                Ok(_) => {
                    if was_lost && let Some(Back(back)) = self.back.get() {
                        back();
                    }
                    pause = PAUSE_LEAST;
                    was_lost = timeout(LOOK_EVERY, self.broke.notified()).await.is_ok();
                }
                Err(_) => {
                    was_lost = true;
                    failed();
                    sleep(pause).await;
                    pause = (pause * 2).min(PAUSE_MOST);
                }
            }
        }
    }

    /// Closes the connection, unless a question is on its way.
    pub(super) fn hang_up(&self) {
        if let Ok(mut place) = self.conn.try_lock() {
            drop(place.take());
        }
    }

    /// What is prepared, whoever did it; identifiers of other formats are left out.
    pub(super) async fn prepared(&self) -> Result<Arc<[Xid]>, Trouble> {
        let wanted = self.lists().begun + 1;
        let mut place = self.conn.lock().await;
        let number = {
            let mut lists = self.lists();
            if lists.newest >= wanted {
                return Ok(Arc::clone(&lists.found));
            }
            lists.begun += 1;
            lists.begun
        };
        let rows = self.ask_on::<(u64, usize, usize, Vec<u8>)>(&mut place, &["XA RECOVER"]).await?;
        let found: Arc<[Xid]> = rows.iter().filter_map(Xid::of_row).collect();
        let mut lists = self.lists();
        (lists.newest, lists.found) = (number, Arc::clone(&found));
        Ok(found)
    }

    /// What is prepared under this identifier.
    pub(super) async fn find(&self, id: &str) -> Result<Option<Xid>, Trouble> {
        Ok(self.prepared().await?.iter().find(|xid| xid.id == id).cloned())
    }

    fn lists(&self) -> MutexGuard<'_, Lists> {
        self.lists.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a command that returns nothing.
    pub(super) async fn command(&self, command: &str) -> Result<(), Trouble> {
        self.rows::<Row>(command).await.map(|_| ())
    }

    /// Ends session `id` of this process, and waits until the server has torn it down.
    ///
    /// # Errors
    /// It is not known to be gone.
    pub(super) async fn end(&self, id: u64) -> Result<(), Trouble> {
        let ask = format!("SELECT IS_USED_LOCK('{}') = {id}", self.server.lock(id));
        self.wait(|| async {
            if self.server.has(id) {
                // The server has restarted, and gave the identifier to a younger session of ours.
                return Ok(None);
            }
            let is_alive = self.rows::<Option<u8>>(&ask).await? == [Some(1)];
            if is_alive {
                self.kill(id).await?;
            }
            Ok(is_alive.then_some(vec![id]))
        })
        .await
    }

    /// Ends the sessions that an earlier life of this node left, and waits until they are gone.
    ///
    /// # Errors
    /// They are not known to be gone.
    pub(super) async fn end_former(&self) -> Result<(), Trouble> {
        let lock = self.server.lock("");
        let ask = format!(
            "SELECT ID FROM information_schema.PROCESSLIST WHERE IS_USED_LOCK(CONCAT('{lock}', ID)) = ID"
        );
        self.wait(|| async {
            let mut ids = self.rows::<u64>(&ask).await?;
            ids.retain(|id| !self.server.has(*id));
            for id in &ids {
                tracing::info!("session {id} was left by an earlier start of this node: it is killed");
                self.kill(*id).await?;
            }
            Ok((!ids.is_empty()).then_some(ids))
        })
        .await
    }

    /// Who holds the user lock called `name`.
    pub(super) async fn holder(&self, name: &str) -> Result<Option<u64>, Trouble> {
        let rows = self.rows::<Option<u64>>(&format!("SELECT IS_USED_LOCK('{name}')")).await?;
        Ok(rows.into_iter().next().flatten())
    }

    /// Waits until session `id`, known `since` then, has no prepared transaction; kills it if that takes longer than `grace`.
    ///
    /// # Errors
    /// It may have one.
    pub(super) async fn end_owner(
        &self,
        id: u64,
        since: Instant,
        grace: Duration,
        branch: &str,
    ) -> Result<(), Trouble> {
        let (began, refused) = (Instant::now(), AtomicBool::new(false));
        let waited = self.wait(|| async {
            if !self.attached().await?.iter().any(|(_, session)| *session == id)
                || self.started().await? > since + RESTART
            {
                return Ok(None);
            }
            if began.elapsed() >= grace {
                match self.kill(id).await {
                    Err(Trouble::Refused(_, text)) => {
                        refused.store(true, Ordering::Relaxed);
                        self.complain(branch, &held_by(id, branch, &text));
                    }
                    other => other?,
                }
            }
            Ok(Some(vec![id]))
        });
        match waited.await {
            Err(Trouble::Lost(_)) if refused.load(Ordering::Relaxed) => {
                Err(Trouble::Lost(held_by(id, branch, "this user may not close it")))
            }
            other => other,
        }
    }

    /// Says in the log why a branch cannot be ended, once.
    fn complain(&self, branch: &str, why: &str) {
        if self.complaints.lock().unwrap_or_else(PoisonError::into_inner).is_first(branch) {
            tracing::warn!("{why}");
        }
    }

    /// Waits until no session that is being torn down has a prepared transaction: one whose lock was free before has none then.
    ///
    /// Who may not look can only give it time.
    ///
    /// # Errors
    /// One may have.
    pub(super) async fn wait_torn_down(&self) -> Result<(), Trouble> {
        if !self.state().sees_all {
            sleep(TEARDOWN_MAX).await;
            return Ok(());
        }
        self.wait(|| async {
            let mut ids: Vec<u64> = self.attached().await?.into_iter().map(|(_, id)| id).collect();
            if !ids.is_empty() {
                let alive = self.rows::<u64>(ALIVE).await?;
                ids.retain(|id| !alive.contains(id));
            }
            Ok((!ids.is_empty()).then_some(ids))
        })
        .await
    }

    /// The engine's prepared transactions that have a session, and that.
    ///
    /// # Errors
    /// The server does not show them.
    pub(super) async fn attached(&self) -> Result<Vec<Attached>, Trouble> {
        // A transaction of its own is shown with it, if all are.
        let questions = [SHOWN, "SELECT CONNECTION_ID()", MONITOR, "COMMIT"];
        let rows = self.ask::<Row>(&questions).await?;
        let (own, text) = match rows.as_slice() {
            [own, text] => (own.get_opt(0).and_then(Result::ok), text.get_opt(2).and_then(Result::ok)),
            _ => (None, None),
        };
        let (own, text): (u64, Vec<u8>) = own.zip(text).ok_or_else(|| unreadable("its form is unknown"))?;
        let shown = monitor::transactions(&String::from_utf8_lossy(&text))
            .ok_or_else(|| unreadable("it is cut off"))?;
        if !shown.iter().any(|it| it.session == own) {
            return Err(unreadable("it does not show who asks"));
        }
        Ok(shown.iter().filter(|it| it.is_prepared).map(|it| (it.id, it.session)).collect())
    }

    /// The prepared transactions of sessions that are not of this process.
    ///
    /// # Errors
    /// The server does not show them.
    pub(super) async fn attached_elsewhere(&self) -> Result<Vec<Attached>, Trouble> {
        let mut attached = self.attached().await?;
        attached.retain(|(_, id)| !self.server.has(*id));
        Ok(attached)
    }

    /// Waits until none of `held` has its session any more.
    ///
    /// # Errors
    /// One has.
    pub(super) async fn wait_detached(&self, held: &[Attached]) -> Result<(), Trouble> {
        if held.is_empty() {
            return Ok(());
        }
        self.wait(|| async {
            let now = self.attached().await?;
            let ids: Vec<u64> = held.iter().filter(|it| now.contains(it)).map(|(_, id)| *id).collect();
            Ok((!ids.is_empty()).then_some(ids))
        })
        .await
    }

    /// When the server started, by this process's clock.
    pub(super) async fn started(&self) -> Result<Instant, Trouble> {
        let rows = self.rows::<(String, u64)>("SHOW GLOBAL STATUS LIKE 'Uptime'").await?;
        let uptime = rows.first().map_or(0, |(_, seconds)| *seconds);
        let now = Instant::now();
        Ok(now.checked_sub(Duration::from_secs(uptime)).unwrap_or(now))
    }

    async fn kill(&self, id: u64) -> Result<(), Trouble> {
        match self.command(&format!("KILL {id}")).await {
            Err(trouble) if trouble.is(NO_SUCH_THREAD) => Ok(()),
            other => other,
        }
    }

    /// Asks `who` until it names nobody who is in the way; for [`WAIT_MOST`].
    async fn wait<F: Future<Output = Result<Option<Vec<u64>>, Trouble>>>(
        &self,
        who: impl Fn() -> F,
    ) -> Result<(), Trouble> {
        let (began, mut pause) = (Instant::now(), WAIT_LEAST);
        while let Some(ids) = who().await? {
            if began.elapsed() >= WAIT_MOST {
                let text = format!("session {ids:?} may hold the branch still: it has to be closed");
                return Err(Trouble::Lost(text));
            }
            sleep(pause).await;
            pause = (pause * 2).min(WAIT_PAUSE_MOST);
        }
        Ok(())
    }

    /// Asks, on a new connection if there is none.
    async fn rows<T: FromRow>(&self, question: &str) -> Result<Vec<T>, Trouble> {
        self.ask(&[question]).await
    }

    /// Asks several questions with nothing in between; returns the rows of all.
    async fn ask<T: FromRow>(&self, questions: &[&str]) -> Result<Vec<T>, Trouble> {
        self.ask_on(&mut *self.conn.lock().await, questions).await
    }

    async fn ask_on<T: FromRow>(
        &self,
        place: &mut Option<Conn>,
        questions: &[&str],
    ) -> Result<Vec<T>, Trouble> {
        let mut conn = match place.take() {
            Some(conn) => conn,
            None => self.connect().await?,
        };
        let mut rows = Vec::new();
        for question in questions {
            match within(self.server.statement_timeout, all::<T>(&mut conn, question)).await {
                Ok(more) => rows.extend(more),
                Err(trouble) => {
                    match &trouble {
                        Trouble::Lost(why) => self.note(Some(Unready::Retry(why.clone()))),
                        // Of several, the others may have left something.
                        Trouble::Refused(..) if questions.len() == 1 => *place = Some(conn),
                        Trouble::Refused(..) => {}
                    }
                    return Err(trouble);
                }
            }
        }
        *place = Some(conn);
        Ok(rows)
    }

    async fn connect(&self) -> Result<Conn, Trouble> {
        let connected = self.server.connect().await;
        let mut conn = connected.map_err(|(trouble, unready)| {
            self.note(Some(unready));
            trouble
        })?;
        let sees_all = check(&mut conn, self.server.connect_timeout).await.map_err(|unready| {
            let trouble = Trouble::Lost(unready.to_string());
            self.note(Some(unready));
            trouble
        })?;
        self.state.lock().unwrap_or_else(PoisonError::into_inner).sees_all = sees_all;
        self.note(None);
        Ok(conn)
    }

    fn note(&self, trouble: Option<Unready>) {
        if trouble.is_some() {
            self.broke.notify_one();
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner).trouble = trouble;
    }
}

impl std::fmt::Debug for Back {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Back")
    }
}

/// Whether the server can do what it must; whether this user sees other users' sessions.
async fn check(conn: &mut Conn, limit: Duration) -> Result<bool, Unready> {
    let later = |trouble: Trouble| Unready::Retry(trouble.text().to_owned());
    if let Err(trouble) = within(limit, conn.query_drop("XA RECOVER")).await {
        let text =
            format!("XA RECOVER: {}; MySQL wants GRANT XA_RECOVER_ADMIN ON *.* for it", trouble.text());
        return Err(match trouble {
            Trouble::Refused(..) => Unready::Setting(text),
            Trouble::Lost(_) => Unready::Retry(text),
        });
    }
    let flush = "SELECT @@innodb_flush_log_at_trx_commit";
    let flush = within(limit, first::<u8>(conn, flush)).await.map_err(later)?;
    if !matches!(flush, Some(1 | 3)) {
        let text =
            "innodb_flush_log_at_trx_commit is neither 1 nor 3: a branch that is prepared could be forgotten";
        return Err(Unready::Setting(text.to_owned()));
    }
    match within(limit, conn.query_drop(MONITOR)).await {
        Err(trouble @ Trouble::Lost(_)) => Err(later(trouble)),
        seen => Ok(seen.is_ok()),
    }
}

fn held_by(id: u64, branch: &str, why: &str) -> String {
    format!(
        "session {id} of the application holds branch {branch}, which cannot be ended before it closes: {why}. Close that session, or GRANT \
         CONNECTION ADMIN ON *.* to the user of this resource, which then closes it"
    )
}

fn unreadable(why: &str) -> Trouble {
    Trouble::Lost(format!("{MONITOR} cannot be read: {why}"))
}

const MONITOR: &str = "SHOW ENGINE INNODB STATUS";
/// Begins a transaction that the engine shows.
const SHOWN: &str = "START TRANSACTION WITH CONSISTENT SNAPSHOT";
/// Sessions that are not being torn down.
const ALIVE: &str = "SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND <> 'Killed'";
/// Longer than a session takes to be torn down: some milliseconds, and more on a machine that is busy. No proof.
pub(super) const TEARDOWN_MAX: Duration = Duration::from_secs(2);
/// So much later a server must have started to be another: it tells whole seconds.
const RESTART: Duration = Duration::from_secs(3);
const WAIT_LEAST: Duration = Duration::from_millis(1);
const WAIT_PAUSE_MOST: Duration = Duration::from_millis(100);
/// A session that is being torn down is gone by then, or something is wrong with it.
const WAIT_MOST: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_secs(2);
const PAUSE_LEAST: Duration = Duration::from_millis(50);
const PAUSE_MOST: Duration = Duration::from_secs(1);
