//! Sessions of a database: made on demand, kept for the next, and looked after when they break.
//!
//! ```text
//!  lease(Branch)    a permit of the branches', or wait -.
//!  lease(Protocol)  one that is kept, or any, or wait ---'-> idle session, or connect -> Lease -give back-> idle
//!
//!  tender: not ready, or the last session ended -> connect, with pauses that double -> ready, or why not
//! ```
//!
//! A quarter of the sessions is kept for the protocol: branches that wait for a lock of a prepared one, and hold all sessions there are,
//! would have its commit wait for themselves.
//!
//! Invariants
//!   1. There are never more sessions than `sessions_max`, at least two: whoever connects holds a permit and found none idle.
//!   2. Whether the database is ready was said by the newest connection, or attempt to connect.
//!   3. A wait for a session and its connection ends within twice `connect_timeout`.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;
use tokio_postgres::Config;

use super::failure::place;
use super::gate::Proof;
use super::session::Session;
use crate::lock;
use crate::tls::Tls;
use crate::{DatabaseOptions, Sessions};
use txn::resource::Unready;

/// The sessions.
pub(super) struct Pool {
    /// How the next session is opened.
    login: Mutex<Arc<Login>>,
    connect_max: Duration,
    limit: Duration,
    /// As many as branches may have.
    branches: Arc<Semaphore>,
    /// Those that are kept for the protocol.
    reserve: Arc<Semaphore>,
    sessions_max: usize,
    state: Mutex<State>,
    /// Something happened that the tender looks at.
    look: Notify,
    /// Called when the server answers again.
    back: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// How sessions are opened.
struct Login {
    config: Config,
    tls: Tls,
    proof: Proof,
}

impl Login {
    fn new(mut config: Config, (tls, proof): (Tls, Proof), options: &DatabaseOptions) -> Arc<Self> {
        config
            .application_name("evenkeel")
            .connect_timeout(options.connect_timeout)
            .tcp_user_timeout(options.statement_timeout);
        Arc::new(Self { config, tls, proof })
    }
}

/// Who needs a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// A branch that begins.
    Branch,
    /// Everything else.
    Protocol,
}

/// A session for one user, broken off unless it is given back.
pub(super) struct Lease {
    session: Option<Session>,
    pool: Arc<Pool>,
    _busy: Option<Count>,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
struct State {
    idle: Vec<Session>,
    /// Connections, to break them off.
    open: HashMap<u64, Option<AbortHandle>>,
    count: u64,
    sessions: Sessions,
    ready: Result<(), Unready>,
    is_closed: bool,
}

impl Pool {
    pub(super) fn new(config: Config, trust: (Tls, Proof), options: &DatabaseOptions) -> Self {
        let login = Login::new(config, trust, options);
        let sessions_max = options.sessions_max.clamp(SESSIONS_LEAST, SESSIONS_MOST);
        let reserve = reserve_size(sessions_max);
        let ready = Err(Unready::Retry(format!("{}: not connected yet", place(&login.config))));
        Self {
            login: Mutex::new(login),
            connect_max: options.connect_timeout,
            limit: options.statement_timeout,
            branches: Arc::new(Semaphore::new(sessions_max - reserve)),
            reserve: Arc::new(Semaphore::new(reserve)),
            sessions_max,
            state: Mutex::new(State {
                idle: Vec::new(),
                open: HashMap::new(),
                count: 0,
                sessions: Sessions::default(),
                ready,
                is_closed: false,
            }),
            look: Notify::new(),
            back: OnceLock::new(),
        }
    }

    /// Has `back` called whenever the server answers again after it did not; the first one that is given.
    pub(super) fn watch(&self, back: Box<dyn Fn() + Send + Sync>) {
        let _ = self.back.set(back);
    }

    /// Opens sessions in this way from now on; those that are idle are closed.
    pub(super) fn renew(&self, config: Config, trust: (Tls, Proof), options: &DatabaseOptions) {
        *lock(&self.login) = Login::new(config, trust, options);
        let idle = std::mem::take(&mut self.state().idle);
        drop(idle);
        self.look.notify_one();
    }

    fn login(&self) -> Arc<Login> {
        Arc::clone(&lock(&self.login))
    }

    /// Where it is, for messages.
    pub(super) fn place(&self) -> String {
        place(&self.login().config)
    }

    pub(super) fn ready(&self) -> Result<(), Unready> {
        self.state().ready.clone()
    }

    pub(super) fn sessions(&self) -> Sessions {
        let state = self.state();
        Sessions { open: state.open.values().flatten().count(), ..state.sessions }
    }

    /// Ends all sessions, whoever has them; nobody gets one any more.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.is_closed = true;
        state.ready = Err(CLOSED);
        let (idle, open) = (std::mem::take(&mut state.idle), std::mem::take(&mut state.open));
        drop(state);
        self.branches.close();
        self.reserve.close();
        self.look.notify_one();
        // The server rolls back what is not prepared.
        for connection in open.into_values().flatten() {
            connection.abort();
        }
        drop(idle);
    }

    /// A session: one that is idle, or a new one.
    ///
    /// # Errors
    /// Why there is none: the server is not reached, or all are busy for too long.
    pub(super) async fn lease(self: &Arc<Self>, wanted: Use) -> Result<Lease, Unready> {
        let permit = self.permit(wanted).await?;
        let idle = loop {
            let found = self.state().idle.pop();
            match found {
                Some(session) if session.is_closed() => session.close(),
                found => break found,
            }
        };
        let busy = (wanted == Use::Branch).then(|| Count::up(self, |sessions| &mut sessions.busy));
        let session = match idle {
            Some(session) => session,
            None => self.connect().await?,
        };
        Ok(Lease { session: Some(session), pool: Arc::clone(self), _busy: busy, _permit: permit })
    }

    async fn permit(self: &Arc<Self>, wanted: Use) -> Result<OwnedSemaphorePermit, Unready> {
        let (branches, reserve) = (Arc::clone(&self.branches), Arc::clone(&self.reserve));
        let kept = (wanted == Use::Protocol).then(|| Arc::clone(&reserve).try_acquire_owned());
        if let Some(Ok(permit)) = kept {
            return Ok(permit);
        }
        if let Ok(permit) = Arc::clone(&branches).try_acquire_owned() {
            return Ok(permit);
        }
        if self.state().sessions.waiting >= WAITING_MAX && wanted == Use::Branch {
            let why = format!("{WAITING_MAX} branches wait for a session, the most that may");
            return Err(Unready::Retry(why));
        }
        let _waiting = Count::up(self, |sessions| &mut sessions.waiting);
        let any = async {
            match wanted {
                Use::Branch => branches.acquire_owned().await,
                Use::Protocol => tokio::select! {
                    biased;
                    permit = reserve.acquire_owned() => permit,
                    permit = branches.acquire_owned() => permit,
                },
            }
        };
        match tokio::time::timeout(self.connect_max, any).await {
            Ok(permit) => permit.map_err(|_| CLOSED),
            Err(_) => Err(Unready::Retry(none_free(self.sessions_max, wanted, self.connect_max))),
        }
    }

    /// Connects; what comes of it says whether the database is ready.
    async fn connect(self: &Arc<Self>) -> Result<Session, Unready> {
        let connected = tokio::time::timeout(self.connect_max, self.try_connect()).await;
        let late = |_| Err(Unready::Retry(format!("no answer within {} ms", self.connect_max.as_millis())));
        let unreached = |why: String| format!("{} is not reached: {why}; it is tried again", self.place());
        let connected = connected.unwrap_or_else(late).map_err(|why| why.worded(unreached));
        let mut state = self.state();
        if state.is_closed {
            return Err(CLOSED);
        }
        match &connected {
            Ok(session) => state.ready = self.worded(&session.facts().ready),
            Err(why) => {
                state.ready = Err(why.clone());
                state.sessions.failures += 1;
            }
        }
        drop(state);
        self.look.notify_one();
        connected
    }

    async fn try_connect(self: &Arc<Self>) -> Result<Session, Unready> {
        let entry = Entry::new(self);
        let index = entry.index;
        let on_end = move |is_failure: bool| entry.on_end(is_failure);
        let login = self.login();
        let session = Session::open(&login.config, &login.tls, login.proof, self.limit, on_end).await?;
        if let Some(known) = self.state().open.get_mut(&index) {
            *known = Some(session.connection().clone());
        }
        Ok(session)
    }

    /// Keeps the database ready, or says why it is not, until all is closed.
    pub(super) async fn tend(self: Arc<Self>) {
        let (mut pause, mut was_away) = (PAUSE_LEAST, false);
        loop {
            let (is_closed, is_fine) = {
                let state = self.state();
                (state.is_closed, state.ready.is_ok() && !state.open.is_empty())
            };
            if is_closed {
                return;
            }
            was_away |= !is_fine;
            if is_fine || self.check().await {
                if std::mem::take(&mut was_away)
                    && let Some(back) = self.back.get()
                {
                    back();
                }
                pause = PAUSE_LEAST;
                self.look.notified().await;
            } else {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MOST);
            }
        }
    }

    /// Asks the server whether it is ready.
    async fn check(self: &Arc<Self>) -> bool {
        let Ok(lease) = self.lease(Use::Protocol).await else { return false };
        if self.ready().is_ok() {
            lease.give_back();
            return true;
        }
        let Ok(facts) = lease.look_again().await else {
            lease.abandon();
            return false;
        };
        let ready = self.worded(&facts.ready);
        let is_ready = ready.is_ok();
        let mut state = self.state();
        if !state.is_closed {
            state.ready = ready;
        }
        drop(state);
        lease.give_back();
        is_ready
    }

    fn worded(&self, ready: &Result<(), Unready>) -> Result<(), Unready> {
        ready.clone().map_err(|why| why.worded(|why| format!("{}: {why}", self.place())))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

impl Lease {
    /// Gives a clean session back.
    pub(super) fn give_back(mut self) {
        let Some(session) = self.session.take() else { return };
        let mut state = self.pool.state();
        if state.is_closed || session.is_closed() {
            drop(state);
            return session.close();
        }
        state.idle.push(session);
    }

    /// Gives it back if it is clean.
    pub(super) fn give_back_if(self, is_clean: bool) {
        if is_clean {
            self.give_back();
        }
    }

    /// Ends it in order: nothing is under way in it.
    pub(super) fn close(mut self) {
        if let Some(session) = self.session.take() {
            session.close();
        }
    }

    /// Breaks it off, and has the server stop what is under way in it.
    pub(super) fn abandon(mut self) {
        if let Some(session) = self.session.take() {
            session.abandon();
        }
    }
}

impl Deref for Lease {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session.as_ref().expect("taken only by what consumes the lease")
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("session", &self.session).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool")
            .field("place", &self.place())
            .field("sessions", &self.sessions())
            .finish_non_exhaustive()
    }
}

/// A connection among those that are open.
struct Entry {
    pool: Arc<Pool>,
    index: u64,
}

impl Entry {
    fn new(pool: &Arc<Pool>) -> Self {
        let mut state = pool.state();
        state.count += 1;
        let index = state.count;
        state.open.insert(index, None);
        Self { pool: Arc::clone(pool), index }
    }

    fn on_end(self, is_failure: bool) {
        self.pool.state().sessions.failures += u64::from(is_failure);
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.pool.state().open.remove(&self.index);
        self.pool.look.notify_one();
    }
}

/// One more, until it is dropped.
struct Count {
    pool: Arc<Pool>,
    of: fn(&mut Sessions) -> &mut usize,
}

impl Count {
    fn up(pool: &Arc<Pool>, of: fn(&mut Sessions) -> &mut usize) -> Self {
        *of(&mut pool.state().sessions) += 1;
        Self { pool: Arc::clone(pool), of }
    }
}

impl Drop for Count {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        let count = (self.of)(&mut state.sessions);
        assert!(*count > 0, "a count below nothing");
        *count -= 1;
    }
}

/// How many of so many sessions are kept for commits.
fn reserve_size(sessions_max: usize) -> usize {
    (sessions_max / 4).max(1)
}

/// What is told when no session was free for this use in time: which are busy, and why the others were not given.
fn none_free(sessions_max: usize, wanted: Use, waited: Duration) -> String {
    let reserve = reserve_size(sessions_max);
    let busy = match wanted {
        Use::Branch => format!(
            "the {} sessions that transactions may have are busy (sessions_max is {sessions_max}, of which {reserve} \
             for commits alone)",
            sessions_max - reserve
        ),
        Use::Protocol => format!("all {sessions_max} sessions (sessions_max) are busy"),
    };
    format!("{busy}, and none became free within {} ms", waited.as_millis())
}

/// One for a branch, one for the protocol.
const SESSIONS_LEAST: usize = 2;
const SESSIONS_MOST: usize = 10_000;
/// Most branches that wait for a session.
const WAITING_MAX: usize = 1_024;
const PAUSE_LEAST: Duration = Duration::from_millis(100);
const PAUSE_MOST: Duration = Duration::from_secs(1);
const CLOSED: Unready = Unready::Closed("it was closed");

#[cfg(test)]
mod tests {
    use super::*;

    /// With `sessions_max = 16` it said "all 12 sessions are busy".
    #[test]
    fn number_of_busy_sessions_is_that_of_those_that_could_have_been_given() {
        for (sessions_max, branches, reserve) in [(2, 1, 1), (3, 2, 1), (12, 9, 3), (16, 12, 4)] {
            let text = |wanted| none_free(sessions_max, wanted, Duration::from_millis(300));
            let branch = format!(
                "the {branches} sessions that transactions may have are busy (sessions_max is {sessions_max}, of \
                 which {reserve} for commits alone), and none became free within 300 ms"
            );
            assert_eq!(text(Use::Branch), branch);
            let protocol = format!(
                "all {sessions_max} sessions (sessions_max) are busy, and none became free within 300 ms"
            );
            assert_eq!(text(Use::Protocol), protocol);
        }
    }
}
