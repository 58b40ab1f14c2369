//! What all connections share: the store, the settings, the registries and the counters.
//!
//! Settings that are read for each command are in [`Tuned`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use clock::{Clock, Nanos, Throttle};
use commands::lookup::Table;
use script::cache::Scripts;
use store::Store;
use supervisor::Supervisor;

use crate::acl::Acl;
use crate::acl::file::UserFile;
use crate::calls::Calls;
use crate::capture::Captures;
use crate::clients::Clients;
use crate::latency::Latency;
use crate::lines::Blocked;
use crate::long::LongCommands;
use crate::metrics::process::resident_bytes;
use crate::monitor::Monitors;
use crate::notices::Notices;
use crate::pause::Pause;
use crate::peers::Connections;
use crate::pubsub::PubSub;
use crate::run::Runner;
use crate::settings::Config;
use crate::slowlog::SlowLog;
use crate::stats::Stats;
use crate::strangers::Strangers;
use crate::topologies::Topologies;
use crate::tracking::Tracking;
use crate::traffic::Traffic;
use crate::tuned::Tuned;
use crate::tx::Transactions;
use crate::waits::Waits;

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
    /// The users of acl.file.
    pub users: Option<UserFile>,
    /// What runs topologies; without, TOPOLOGY answers with an error.
    pub supervisor: Option<Arc<Supervisor>>,
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
    pub(crate) topologies: Option<Topologies>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) version: &'static str,
    pub(crate) shutdown: Box<dyn Fn(ShutdownKind) + Send + Sync>,
    pub(crate) run_id: String,
    pub(crate) started: Nanos,
    pub(crate) clients: Clients,
    pub(crate) pubsub: Arc<PubSub>,
    pub(crate) notices: Arc<Notices>,
    pub(crate) stats: Stats,
    pub(crate) calls: Calls,
    pub(crate) captures: Captures,
    pub(crate) slowlog: SlowLog,
    pub(crate) strangers: Strangers,
    /// Users.
    pub(crate) acl: Acl,
    /// The log's share of requests that cannot be taken.
    pub(crate) refused_log: Throttle,
    pub(crate) latency: Latency,
    pub(crate) tuned: Tuned,
    pub(crate) pause: Pause,
    pub(crate) traffic: Arc<Traffic>,
    pub(crate) monitors: Monitors,
    pub(crate) waits: Waits,
    pub(crate) blocked: Arc<Blocked>,
    /// Scripts, and libraries of functions.
    pub(crate) scripts: Arc<Scripts>,
    /// Commands that run beside their loops.
    pub(crate) long: Arc<LongCommands>,
    pub(crate) active_expiry: AtomicBool,
    pub(crate) last_save_unix_s: AtomicU64,
    /// Memory of the process before it served, keys that were found left out.
    pub(crate) startup_bytes: u64,
    pub(crate) peers: Arc<Connections>,
    pub(crate) table: &'static Table,
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("run_id", &self.run_id).finish_non_exhaustive()
    }
}

impl Server {
    /// A server without connections, with the commands of `table`.
    pub(crate) fn new(options: ServerOptions, table: &'static Table) -> Arc<Self> {
        let ServerOptions { store, settings, clock, version, transactions, users, supervisor, shutdown } =
            options;
        let loaded = settings.current();
        let unix_us = clock.unix_us();
        let (peers, traffic) = (Arc::new(Connections::default()), Arc::new(Traffic::new(Arc::clone(&store))));
        let long = Arc::new(LongCommands::new(Arc::clone(&store)));
        let pubsub = Arc::new(PubSub::new(Arc::clone(&peers), Arc::clone(&traffic)));
        let tracking = Tracking::new(Arc::clone(&peers), Arc::clone(&traffic));
        let notices = Notices::new(&store, &pubsub, &traffic, &long, tracking);
        if let Some(transactions) = &transactions {
            transactions.attach(&peers, &long);
        }
        let server = Arc::new(Server {
            run_id: run_id(unix_us, clock.now()),
            started: clock.now(),
            clients: Clients::default(),
            pubsub,
            notices,
            stats: Stats::default(),
            calls: Calls::new(loaded.loops_resolved(), table.entries().len()),
            captures: Captures::new(
                loaded.loops_resolved(),
                loaded.connector,
                Arc::clone(&store),
                Arc::clone(&clock),
                Arc::clone(&peers),
                table,
            ),
            slowlog: SlowLog::default(),
            strangers: Strangers::default(),
            acl: Acl::new(&loaded.requirepass, table),
            refused_log: Throttle::new(LOGGED_EVERY),
            latency: Latency::default(),
            tuned: Tuned::new(),
            pause: Pause::default(),
            monitors: Monitors::new(Arc::clone(&clock), Arc::clone(&peers), Arc::clone(&traffic)),
            waits: Waits::new(Arc::clone(&peers)),
            blocked: Arc::default(),
            traffic,
            scripts: Arc::default(),
            long,
            active_expiry: AtomicBool::new(true),
            last_save_unix_s: AtomicU64::new(unix_us / 1_000_000),
            startup_bytes: resident_bytes().saturating_sub(store.memory().counted_bytes()),
            peers,
            table,
            store,
            settings,
            transactions,
            topologies: supervisor.map(Topologies::new),
            clock,
            version,
            shutdown,
        });
        server.refresh_settings();
        if let Some(users) = users {
            server.acl.replace(users.into_users());
        }
        server
    }

    /// Copies the settings that are read for each command, if they have changed.
    #[inline]
    pub(crate) fn refresh_settings(&self) {
        if self.tuned.refresh(&self.settings) {
            let slowlog_bytes_max = match self.store.memory().limit_bytes {
                0 => SLOWLOG_BYTES_MAX,
                limit_bytes => (limit_bytes / SLOWLOG_SHARE).min(SLOWLOG_BYTES_MAX),
            };
            let settings = self.settings.current();
            self.acl.take_password(&settings.requirepass);
            self.slowlog.set_max(settings.slowlog_length_max, slowlog_bytes_max);
            self.traffic.set_max(settings.connections_messages_max.0);
            self.notices.set_classes(settings.notify_keyspace_events);
            let tracked_bytes_max = match self.store.memory().limit_bytes {
                0 => TRACKED_BYTES_MAX,
                limit_bytes => (limit_bytes / TRACKED_SHARE).min(TRACKED_BYTES_MAX),
            };
            self.notices.tracking.set_max(settings.tracking_keys_max as u64, tracked_bytes_max);
        }
    }

    /// What runs data commands.
    #[inline]
    pub(crate) fn runner(&self) -> Runner<'_> {
        Runner {
            store: &self.store,
            tuned: &self.tuned,
            stats: &self.stats,
            remembers: &self.notices.tracking,
        }
    }

    /// Whether a client must authenticate.
    pub(crate) fn wants_password(&self) -> bool {
        !self.acl.default_user().is_open()
    }
}

/// One line in this time, however many requests cannot be taken.
const LOGGED_EVERY: std::time::Duration = std::time::Duration::from_secs(10);
/// What the table of tracked keys may hold of the limit of memory.
const TRACKED_SHARE: u64 = 16;
/// And at most.
const TRACKED_BYTES_MAX: u64 = 256 << 20;
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
