//! Clients of which nobody knows yet who they are: what they may ask for, and how fast they may guess passwords.
//!
//! ```text
//!  wrong passwords of a connection:   1     2     3     4  ...
//!  the next one is looked at after   50   100   200   400 ... 5,000 ms
//! ```
//!
//! Who connects anew does not begin anew: from the 16th wrong password of an address on, the first one of each of its connections
//! waits as well, up to a second. Not longer, for those who know the password may come from the same address.
//!
//! Bounds: [`REPLIES_BYTES_MAX`] of replies before AUTH; addresses in `Addresses`, of which the oldest are forgotten.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use clock::{Nanos, Throttle};
use reactor::{Address, Connection};

use crate::clients::Client;

/// What is remembered of a client that has to say who it is.
#[derive(Debug, Default)]
pub(crate) struct Stranger {
    /// Since when it is one.
    pub(crate) since: Nanos,
    /// Bytes of replies since then.
    pub(crate) replies_bytes: u32,
    /// Wrong passwords of the connection.
    pub(crate) failures: u32,
    /// No password is looked at before.
    pub(crate) ready_at: Nanos,
    /// Whether the failures of its address were looked at.
    pub(crate) is_placed: bool,
}

/// All of them: what they may do, and what was done about it.
#[derive(Debug)]
pub(crate) struct Strangers {
    addresses: Addresses,
    /// The log's share of wrong passwords.
    log: Throttle,
    pub(crate) counts: Counts,
}

/// What was done about clients that have not authenticated.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) cut_for_output: AtomicU64,
    pub(crate) timed_out: AtomicU64,
    pub(crate) auth_failures: AtomicU64,
    pub(crate) auth_delays: AtomicU64,
}

/// Wrong passwords by address.
#[derive(Debug, Default)]
struct Addresses {
    failures: Mutex<HashMap<IpAddr, (u32, Nanos)>>,
}

impl Default for Strangers {
    fn default() -> Self {
        Self { addresses: Addresses::default(), log: Throttle::new(LOGGED_EVERY), counts: Counts::default() }
    }
}

impl Strangers {
    /// When a password of this connection may be looked at, if not now.
    pub(crate) fn password_at(&self, stranger: &mut Stranger, client: &Client, now: Nanos) -> Option<Nanos> {
        if !std::mem::replace(&mut stranger.is_placed, true)
            && let Some(address) = address_of(client)
        {
            let count = self.addresses.count(address, now);
            if let Some(doublings) = count.checked_sub(ADDRESS_FAILURES_FREE) {
                stranger.ready_at = now + doubled(doublings).min(ADDRESS_DELAY_MAX);
            }
        }
        let until = Some(stranger.ready_at).filter(|at| *at > now);
        if until.is_some() {
            self.counts.auth_delays.fetch_add(1, Ordering::Relaxed);
        }
        until
    }

    /// Counts a wrong password, tells the log, and lets the next one of this connection wait.
    pub(crate) fn note_wrong_password(&self, stranger: &mut Stranger, client: &Client, now: Nanos) {
        stranger.ready_at = now + doubled(stranger.failures).min(DELAY_MAX);
        stranger.failures = stranger.failures.saturating_add(1);
        self.counts.auth_failures.fetch_add(1, Ordering::Relaxed);
        if let Some(address) = address_of(client) {
            self.addresses.add(address, now);
        }
        if let Some(skipped) = self.log.admit(now) {
            tracing::warn!(client = client.address(), skipped, "wrong password");
        }
    }

    /// Whether a client has asked for more than it may before AUTH; `bytes` are those of its newest reply.
    pub(crate) fn is_talkative(&self, stranger: &mut Stranger, bytes: usize) -> bool {
        stranger.replies_bytes =
            stranger.replies_bytes.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        let is_talkative = stranger.replies_bytes > REPLIES_BYTES_MAX;
        if is_talkative {
            self.counts.cut_for_output.fetch_add(1, Ordering::Relaxed);
        }
        is_talkative
    }
}

impl Counts {
    /// Begins anew.
    pub(crate) fn reset(&self) {
        for count in [&self.cut_for_output, &self.timed_out, &self.auth_failures, &self.auth_delays] {
            count.store(0, Ordering::Relaxed);
        }
    }
}

impl Addresses {
    fn count(&self, address: IpAddr, now: Nanos) -> u32 {
        let failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures
            .get(&address)
            .filter(|(_, last)| now - *last < FORGOTTEN_AFTER)
            .map_or(0, |(count, _)| *count)
    }

    fn add(&self, address: IpAddr, now: Nanos) {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        if failures.len() >= ADDRESSES_MAX && !failures.contains_key(&address) {
            failures.retain(|_, (_, last)| now - *last < FORGOTTEN_AFTER);
            let oldest = failures.iter().min_by_key(|(_, (_, last))| *last).map(|(address, _)| *address);
            if let Some(oldest) = oldest.filter(|_| failures.len() >= ADDRESSES_MAX) {
                failures.remove(&oldest);
            }
        }
        let entry = failures.entry(address).or_insert((0, now));
        let is_old = now - entry.1 >= FORGOTTEN_AFTER;
        *entry = (if is_old { 1 } else { entry.0.saturating_add(1) }, now);
    }
}

fn doubled(doublings: u32) -> Duration {
    DELAY_FIRST * (1 << doublings.min(16))
}

fn address_of(client: &Client) -> Option<IpAddr> {
    match client.connection.as_deref().map(Connection::peer) {
        Some(Address::Tcp(address)) => Some(address.ip()),
        _ => None,
    }
}

/// Most bytes of replies before AUTH: some dozens of errors.
pub(crate) const REPLIES_BYTES_MAX: u32 = 8 << 10;
/// What a client is told then.
pub(crate) const TOO_TALKATIVE: &str = "ERR more than 8192 B of replies before AUTH";

const DELAY_FIRST: Duration = Duration::from_millis(50);
const DELAY_MAX: Duration = Duration::from_secs(5);
/// Wrong passwords of an address that cost its new connections nothing.
const ADDRESS_FAILURES_FREE: u32 = 16;
const ADDRESS_DELAY_MAX: Duration = Duration::from_secs(1);
const ADDRESSES_MAX: usize = 1_024;
/// An address from which no wrong password came for so long begins anew.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
/// One line in this time, however many passwords are wrong.
const LOGGED_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn addresses_are_bounded_and_forgotten_after_a_minute() {
        let (addresses, second) = (Addresses::default(), 1_000_000_000);
        let address = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(n));
        for n in 0..5_000 {
            addresses.add(address(n), Nanos(u64::from(n)));
        }
        assert_eq!(addresses.failures.lock().unwrap().len(), ADDRESSES_MAX);
        let last = address(4_999);
        addresses.add(last, Nanos(second));
        assert_eq!(addresses.count(last, Nanos(2 * second)), 2);
        assert_eq!(addresses.count(address(1), Nanos(2 * second)), 0, "the oldest are forgotten");
        assert_eq!(addresses.count(last, Nanos(61 * second)), 0);
        addresses.add(last, Nanos(62 * second));
        assert_eq!(addresses.count(last, Nanos(62 * second)), 1);
    }
}
