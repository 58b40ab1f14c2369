//! Sessions for branches: opened on demand, kept while they are clean, never more than there may be.
//!
//! ```text
//!  take: a place, then an idle session or a new one -> a branch's until its end was answered -> idle, or closed
//! ```
//!
//! Invariants
//!   1. A place is held until the server has no session in it any more: there are never more sessions than permits.
//!   2. Idle sessions are in no branch, and nothing was left in them.
//!
//! Out of scope: the session that asks about others (`control`).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::session::{Server, Session, Trouble};
use crate::Sessions;
use txn::resource::Unready;

/// The sessions.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) server: Arc<Server>,
    sessions_max: usize,
    permits: Arc<Semaphore>,
    idle: Mutex<Vec<Session>>,
    waiting: AtomicUsize,
    pub(super) failures: AtomicU64,
}

/// A place among the sessions, held by whoever has the session, or has lost it.
#[derive(Debug)]
pub(super) struct Permit(#[expect(dead_code, reason = "held")] OwnedSemaphorePermit);

impl Pool {
    pub(super) fn new(server: Arc<Server>, sessions_max: usize) -> Self {
        let sessions_max = sessions_max.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            server,
            sessions_max,
            permits: Arc::new(Semaphore::new(sessions_max)),
            idle: Mutex::default(),
            waiting: AtomicUsize::new(0),
            failures: AtomicU64::new(0),
        }
    }

    /// A place, once there is one.
    ///
    /// # Errors
    /// None was free in time.
    pub(super) async fn place(&self) -> Result<Permit, Unready> {
        let limit = self.server.connect_timeout;
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waits = Waits(&self.waiting);
        let permit = tokio::time::timeout(limit, Arc::clone(&self.permits).acquire_owned()).await;
        match permit {
            Ok(Ok(permit)) => Ok(Permit(permit)),
            Ok(Err(_)) => Err(Unready::Closed("the database was closed")),
            Err(_) => Err(Unready::Retry(format!(
                "no session was free within {limit:?}, all {} are in branches",
                self.sessions_max
            ))),
        }
    }

    /// A session for who has a place: one that is idle, and then `true`, or a new one.
    pub(super) async fn session(&self, _place: &Permit) -> Result<(Session, bool), Trouble> {
        if let Some(session) = self.idle().pop() {
            return Ok((session, true));
        }
        let opened = Session::open(&self.server).await;
        if opened.is_err() {
            self.failures.fetch_add(1, Ordering::Relaxed);
        }
        Ok((opened?, false))
    }

    /// Takes a session back that is in no branch any more.
    pub(super) fn put(&self, session: Session, place: Permit) {
        if session.is_clean && !self.permits.is_closed() {
            self.idle().push(session);
        }
        drop(place);
    }

    /// Gives no more sessions, and closes those that are idle.
    pub(super) fn close(&self) {
        self.permits.close();
        self.idle().clear();
    }

    pub(super) fn sessions(&self) -> Sessions {
        let busy = self.sessions_max.saturating_sub(self.permits.available_permits());
        Sessions {
            open: busy + self.idle().len(),
            busy,
            waiting: self.waiting.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Session>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counted as waiting until it is dropped.
struct Waits<'a>(&'a AtomicUsize);

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("id", &self.id).finish_non_exhaustive()
    }
}
