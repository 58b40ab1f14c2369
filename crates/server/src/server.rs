//! What all connections share: the store, the settings, the registries and the counters.
//!
//! Settings that are read for each command are in [`Tuned`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use clock::{Clock, Nanos, Throttle};
use store::Store;

use crate::calls::Calls;
use crate::capture::Captures;
use crate::clients::Clients;
use crate::latency::Latency;
use crate::long::LongCommands;
use crate::lookup::Table;
use crate::message::{Line, Message, Peers};
use crate::metrics::resident_bytes;
use crate::pubsub::PubSub;
use crate::run::Runner;
use crate::settings::Config;
use crate::slowlog::SlowLog;
use crate::stats::Stats;
use crate::strangers::Addresses;
use crate::tuned::Tuned;
use crate::tx::Transactions;

/// What a server is made from.
pub struct ServerOptions {
    /// The data, opened.
    pub store: Arc<Store>,
    /// The settings in force.
    pub settings: Arc<Config>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Version of the binary, for INFO and HELLO.
    pub version: &'static str,
    /// Transactions over keys and databases; without, TX.* answer with an error.
    pub transactions: Option<Arc<Transactions>>,
    /// Called by SHUTDOWN, and when a part of the server works no more; must not wait.
    pub shutdown: Box<dyn Fn(ShutdownKind) + Send + Sync>,
}

impl fmt::Debug for ServerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerOptions").field("version", &self.version).finish_non_exhaustive()
    }
}

/// How a server is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShutdownKind {
    /// As SIGTERM.
    Clean,
    /// NOW or FORCE were given: do not wait for clients.
    Now,
    /// A part of the server works no more, and which.
    Failed(&'static str),
}

/// What all connections share.
pub(crate) struct Server {
    pub(crate) store: Arc<Store>,
    pub(crate) settings: Arc<Config>,
    pub(crate) transactions: Option<Arc<Transactions>>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) version: &'static str,
    pub(crate) shutdown: Box<dyn Fn(ShutdownKind) + Send + Sync>,
    pub(crate) run_id: String,
    pub(crate) started: Nanos,
    pub(crate) clients: Clients,
    pub(crate) pubsub: PubSub,
    pub(crate) stats: Stats,
    pub(crate) calls: Calls,
    pub(crate) captures: Captures,
    pub(crate) slowlog: SlowLog,
    pub(crate) addresses: Addresses,
    /// The log's share of requests that cannot be taken.
    pub(crate) refused_log: Throttle,
    pub(crate) latency: Latency,
    pub(crate) tuned: Tuned,
    pub(crate) pause: Pause,
    /// Ids of connections in MONITOR.
    pub(crate) monitors: RwLock<Vec<u64>>,
    pub(crate) monitor_count: AtomicUsize,
    /// Connections that wait for credits.
    pub(crate) busy: Mutex<BTreeSet<u64>>,
    /// Connections that wait for keys which prepared transactions hold.
    pub(crate) locked: Mutex<BTreeSet<u64>>,
    /// Commands that run beside their loops.
    pub(crate) long: LongCommands,
    pub(crate) active_expiry: AtomicBool,
    pub(crate) last_save_unix_s: AtomicU64,
    /// Memory of the process before it served, keys that were found left out.
    pub(crate) startup_bytes: u64,
    peers: OnceLock<Box<dyn Peers>>,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

/// CLIENT PAUSE.
#[derive(Debug, Default)]
pub(crate) struct Pause {
    /// Monotonic end in nanoseconds; 0 is none.
    until_ns: AtomicU64,
    all: AtomicBool,
    /// Ids that wait for its end.
    waiting: Mutex<BTreeSet<u64>>,
}

impl Server {
    pub(crate) fn new(options: ServerOptions) -> Arc<Self> {
        let ServerOptions { store, settings, clock, version, transactions, shutdown } = options;
        let loaded = settings.current();
        let unix_us = clock.unix_us();
        let server = Arc::new(Server {
            run_id: run_id(unix_us, clock.now()),
            started: clock.now(),
            clients: Clients::default(),
            pubsub: PubSub::default(),
            stats: Stats::default(),
            calls: Calls::new(loaded.loops_resolved(), Table::of_server().entries().len()),
            captures: Captures::new(loaded.loops_resolved(), loaded.connector),
            slowlog: SlowLog::default(),
            addresses: Addresses::default(),
            refused_log: Throttle::new(LOGGED_EVERY),
            latency: Latency::default(),
            tuned: Tuned::new(),
            pause: Pause::default(),
            monitors: RwLock::default(),
            monitor_count: AtomicUsize::new(0),
            busy: Mutex::default(),
            locked: Mutex::default(),
            long: LongCommands::default(),
            active_expiry: AtomicBool::new(true),
            last_save_unix_s: AtomicU64::new(unix_us / 1_000_000),
            startup_bytes: resident_bytes().saturating_sub(store.memory().used_bytes()),
            peers: OnceLock::new(),
            store,
            settings,
            transactions,
            clock,
            version,
            shutdown,
        });
        server.refresh_settings();
        if let Some(transactions) = &server.transactions {
            transactions.attach(&server);
        }
        server
    }

    /// Connects the server with its connections. Once, before the first of them opens.
    pub(crate) fn attach(&self, peers: Box<dyn Peers>) {
        let attached = self.peers.set(peers);
        debug_assert!(attached.is_ok(), "attached twice");
    }

    /// Gives a message to a connection; `false` when it has ended.
    pub(crate) fn post(&self, id: u64, message: Message) -> bool {
        self.peers.get().is_some_and(|peers| peers.post(id, message))
    }

    /// The other connections; absent in tests without sockets.
    pub(crate) fn peers(&self) -> Option<&dyn Peers> {
        self.peers.get().map(|peers| &**peers)
    }

    /// How sockets meet threads: what serves, which need not be what the setting asks for. Nothing while nobody serves.
    pub(crate) fn connector(&self) -> String {
        self.peers().map_or_else(String::new, |peers| peers.connector().to_string())
    }

    /// Copies the settings that are read for each command, if they have changed.
    #[inline]
    pub(crate) fn refresh_settings(&self) {
        if self.tuned.refresh(&self.settings) {
            let slowlog_bytes_max = match self.store.memory().limit_bytes {
                0 => SLOWLOG_BYTES_MAX,
                limit_bytes => (limit_bytes / SLOWLOG_SHARE).min(SLOWLOG_BYTES_MAX),
            };
            self.slowlog.set_max(self.settings.current().slowlog_length_max, slowlog_bytes_max);
        }
    }

    /// What runs data commands.
    #[inline]
    pub(crate) fn runner(&self) -> Runner<'_> {
        Runner { store: &self.store, tuned: &self.tuned, stats: &self.stats }
    }

    /// Has the connections that wait for credits try again.
    pub(crate) fn on_credits(&self) {
        let waiting = std::mem::take(&mut *self.busy.lock().unwrap_or_else(PoisonError::into_inner));
        for id in waiting {
            self.post(id, Message::Retry);
        }
    }

    /// Has the connections try again that wait for keys which prepared transactions hold.
    pub(crate) fn on_unlock(&self) {
        let waiting = std::mem::take(&mut *self.locked.lock().unwrap_or_else(PoisonError::into_inner));
        for id in waiting {
            self.post(id, Message::Retry);
        }
    }

    /// Notes that a connection waits for such a key.
    pub(crate) fn wait_for_unlock(&self, id: u64) {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// Notes that a connection waits for credits.
    pub(crate) fn wait_for_credits(&self, id: u64) {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// A connection ended while it waited for credits or for such a key.
    pub(crate) fn forget_waits(&self, id: u64) {
        for waiting in [&self.busy, &self.locked] {
            waiting.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        }
    }

    /// Sends `line` to everybody in MONITOR, and cuts them off if they cannot keep up: nobody else waits for them.
    pub(crate) fn feed_monitors(&self, line: Vec<u8>) {
        let monitors = self.monitors.read().unwrap_or_else(PoisonError::into_inner);
        let on_the_way = self.pubsub.bytes_on_the_way(self.store.released());
        if on_the_way >= self.tuned.messages_bytes_max.load(Ordering::Relaxed) {
            for id in monitors.iter() {
                let _ = self.peers().is_some_and(|peers| peers.kill(*id));
                self.stats.monitors_cut.fetch_add(1, Ordering::Relaxed);
            }
            return;
        }
        let weight = self.pubsub.weigh(line.len(), monitors.len());
        let line = Arc::new(Line { bytes: line.into(), _weight: weight });
        for id in monitors.iter() {
            self.post(*id, Message::Monitor(Arc::clone(&line)));
        }
    }

    pub(crate) fn add_monitor(&self, id: u64) {
        let mut monitors = self.monitors.write().unwrap_or_else(PoisonError::into_inner);
        if !monitors.contains(&id) {
            monitors.push(id);
        }
        self.monitor_count.store(monitors.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove_monitor(&self, id: u64) {
        let mut monitors = self.monitors.write().unwrap_or_else(PoisonError::into_inner);
        monitors.retain(|other| *other != id);
        self.monitor_count.store(monitors.len(), Ordering::Relaxed);
    }

    /// Whether a client must authenticate.
    pub(crate) fn wants_password(&self) -> bool {
        self.settings.current().requirepass.reveal().is_some()
    }
}

impl Pause {
    /// Pauses until `until`; of two pauses the later end and the stricter kind hold.
    pub(crate) fn start(&self, until: Nanos, all: bool, now: Nanos) {
        let running = self.until_ns.load(Ordering::Relaxed) > now.0;
        self.all.store(all || (running && self.all.load(Ordering::Relaxed)), Ordering::Relaxed);
        self.until_ns.fetch_max(until.0.max(1), Ordering::Release);
    }

    /// Ends it; returns who waits.
    pub(crate) fn end(&self) -> BTreeSet<u64> {
        self.until_ns.store(0, Ordering::Release);
        std::mem::take(&mut *self.waiting())
    }

    /// Whether there is a pause at all: one load.
    #[inline]
    pub(crate) fn is_set(&self) -> bool {
        self.until_ns.load(Ordering::Relaxed) != 0
    }

    /// When a command that `writes` may run; `None`: now.
    fn until(&self, writes: bool, now: Nanos) -> Option<Nanos> {
        let until = self.until_ns.load(Ordering::Acquire);
        if until <= now.0 {
            return None;
        }
        (writes || self.all.load(Ordering::Relaxed)).then_some(Nanos(until))
    }

    /// As [`Pause::until`], and has the connection woken when the pause is ended before that.
    pub(crate) fn wait(&self, id: u64, writes: bool, now: Nanos) -> Option<Nanos> {
        self.until(writes, now)?;
        self.waiting().insert(id);
        // Whoever ended it since then may have looked for those who wait too early.
        let until = self.until(writes, now);
        if until.is_none() {
            self.forget(id);
        }
        until
    }

    /// The connection waits no longer.
    pub(crate) fn forget(&self, id: u64) {
        self.waiting().remove(&id);
    }

    pub(crate) fn waiting(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One line in this time, however many requests cannot be taken.
const LOGGED_EVERY: std::time::Duration = std::time::Duration::from_secs(10);
/// What SLOWLOG may hold of the limit of memory.
const SLOWLOG_SHARE: u64 = 64;
/// And at most.
const SLOWLOG_BYTES_MAX: u64 = 64 << 20;

/// Forty hexadecimal digits that differ from run to run; nothing secret.
fn run_id(unix_us: u64, now: Nanos) -> String {
    let mut state = unix_us ^ now.0.rotate_left(32) ^ u64::from(std::process::id()).rotate_left(48);
    let mut text = String::new();
    while text.len() < 40 {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        text.push_str(&format!("{:016x}", word ^ (word >> 31)));
    }
    text.truncate(40);
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    /// A client asked whether there was a pause, CLIENT UNPAUSE on another loop woke all that waited, and then the client
    /// noted that it waited: until the time that the pause was to last, which may be years.
    #[test]
    fn pause_that_ends_while_a_client_begins_to_wait_wakes_it() {
        let (pause, barrier, now) = (Pause::default(), Barrier::new(2), Nanos(1));
        for round in 0..20_000 {
            pause.start(Nanos(u64::MAX), true, now);
            let (parked, woken) = std::thread::scope(|threads| {
                let waits = threads.spawn(|| {
                    barrier.wait();
                    pause.wait(7, true, now).is_some()
                });
                barrier.wait();
                let woken = pause.end();
                (waits.join().expect("no panic"), woken)
            });
            assert!(!parked || woken.contains(&7), "round {round}");
            assert!(pause.waiting().is_empty(), "round {round}");
        }
    }
}
