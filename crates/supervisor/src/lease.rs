//! The token of a worker while it runs, and the connections that have logged in with it: they end with the worker, whatever keeps them open.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What whoever logs in with the token of a worker has.
#[derive(Debug)]
pub struct Lease {
    topology: String,
    is_over: AtomicBool,
    /// Connections, by the numbers of their logins: one may log in again.
    holders: Mutex<Holders>,
}

#[derive(Debug, Default)]
struct Holders {
    logins: u64,
    by_login: BTreeMap<u64, u64>,
}

/// A connection that has logged in with a token.
#[derive(Debug)]
pub struct Hold {
    lease: Arc<Lease>,
    login: u64,
}

impl Lease {
    pub(crate) fn new(topology: &str) -> Self {
        Self { topology: topology.to_owned(), is_over: AtomicBool::new(false), holders: Mutex::default() }
    }

    /// Connection `connection` logs in; `None` if the worker has ended meanwhile.
    pub fn hold(self: &Arc<Self>, connection: u64) -> Option<Hold> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_over.load(Ordering::Acquire) {
            return None;
        }
        holders.logins += 1;
        let login = holders.logins;
        holders.by_login.insert(login, connection);
        Some(Hold { lease: Arc::clone(self), login })
    }

    /// The worker has ended: the connections that are to end with it.
    pub(crate) fn end(&self) -> Vec<u64> {
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_over.store(true, Ordering::Release);
        std::mem::take(&mut holders.by_login).into_values().collect()
    }
}

impl Hold {
    /// Whether the worker has ended, and the connection may do nothing any more.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.lease.is_over.load(Ordering::Acquire)
    }

    /// The topology of the worker.
    #[must_use]
    pub fn topology(&self) -> &str {
        &self.lease.topology
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let mut holders = self.lease.holders.lock().unwrap_or_else(PoisonError::into_inner);
        holders.by_login.remove(&self.login);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_a_worker_end_with_it_and_none_begins_later() {
        let lease = Arc::new(Lease::new("t"));
        let (first, again) = (lease.hold(2).expect("it runs"), lease.hold(1).expect("it runs"));
        let second = lease.hold(2).expect("it logs in again");
        drop((first, again));
        assert!(!second.is_over());
        assert_eq!((lease.end(), second.is_over(), second.topology()), (vec![2], true, "t"));
        assert!(lease.hold(3).is_none());
    }
}
