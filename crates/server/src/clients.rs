//! What other threads know of each connection, and the list of all.
//!
//! The session's thread writes the numbers with relaxed stores; readers are a little late. Names are behind
//! a mutex that only CLIENT commands take.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clock::Nanos;
use commands::lookup::Table;
use reactor::Connection;

use crate::holds::Hold;
use crate::look::Look;
use crate::tracker::Tracker;

/// Who connections are that have not said who they are.
pub(crate) const DEFAULT_USER: &[u8] = b"default";

/// One connection, as others see it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) id: u64,
    /// Absent in tests, which have no sockets.
    pub(crate) connection: Option<Arc<Connection>>,
    pub(crate) created: Nanos,
    pub(crate) db: AtomicU16,
    pub(crate) resp3: AtomicBool,
    pub(crate) channels: AtomicU32,
    pub(crate) patterns: AtomicU32,
    pub(crate) shards: AtomicU32,
    /// Queued commands, -1 outside of MULTI.
    pub(crate) queued: AtomicI32,
    pub(crate) queued_bytes: AtomicU32,
    pub(crate) watched: AtomicU32,
    /// Id of the newest command + 1; 0 before the first.
    pub(crate) last_command: AtomicU16,
    pub(crate) monitor: AtomicBool,
    /// Number of the capture that it gets; 0: none.
    pub(crate) capture: AtomicU64,
    /// Waits for others: in a command that blocks, or in WAIT or WAITAOF.
    pub(crate) blocked: AtomicBool,
    /// Waits in WAIT or WAITAOF. Whoever clears it says how the wait ends: its time, or CLIENT UNBLOCK.
    pub(crate) in_wait: AtomicBool,
    /// Its command waits, and looks beside the loops.
    pub(crate) look: Look,
    /// Parked because of CLIENT PAUSE.
    pub(crate) paused: AtomicBool,
    pub(crate) no_evict: AtomicBool,
    pub(crate) no_touch: AtomicBool,
    /// What it keeps copies of.
    tracker: Mutex<Option<Arc<Tracker>>>,
    /// Most clients call themselves nothing.
    labels: Mutex<Option<Box<Labels>>>,
}

/// What a client calls itself, and who it is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels {
    pub(crate) name: Box<[u8]>,
    pub(crate) lib_name: Box<[u8]>,
    pub(crate) lib_ver: Box<[u8]>,
    /// Its user, unless it is `default`.
    pub(crate) user: Option<Arc<[u8]>>,
}

impl Labels {
    fn is_empty(&self) -> bool {
        self.name.is_empty() && self.lib_name.is_empty() && self.lib_ver.is_empty() && self.user.is_none()
    }
}

impl Client {
    pub(crate) fn new(id: u64, connection: Option<Arc<Connection>>, created: Nanos) -> Self {
        Client {
            id,
            connection,
            created,
            db: AtomicU16::new(0),
            resp3: AtomicBool::new(false),
            channels: AtomicU32::new(0),
            patterns: AtomicU32::new(0),
            shards: AtomicU32::new(0),
            queued: AtomicI32::new(-1),
            queued_bytes: AtomicU32::new(0),
            watched: AtomicU32::new(0),
            last_command: AtomicU16::new(0),
            monitor: AtomicBool::new(false),
            capture: AtomicU64::new(0),
            blocked: AtomicBool::new(false),
            in_wait: AtomicBool::new(false),
            look: Look::default(),
            paused: AtomicBool::new(false),
            no_evict: AtomicBool::new(false),
            no_touch: AtomicBool::new(false),
            tracker: Mutex::default(),
            labels: Mutex::default(),
        }
    }

    /// What it keeps copies of, if it does.
    pub(crate) fn tracker(&self) -> Option<Arc<Tracker>> {
        self.tracker.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Shows what it keeps copies of.
    pub(crate) fn set_tracker(&self, tracker: Option<Arc<Tracker>>) {
        *self.tracker.lock().unwrap_or_else(PoisonError::into_inner) = tracker;
    }

    /// What it calls itself.
    pub(crate) fn labels(&self) -> Labels {
        self.lock_labels().as_deref().cloned().unwrap_or_default()
    }

    /// Its user.
    pub(crate) fn user(&self) -> Arc<[u8]> {
        self.lock_labels()
            .as_ref()
            .and_then(|labels| labels.user.clone())
            .unwrap_or_else(|| DEFAULT_USER.into())
    }

    /// Changes what it calls itself.
    pub(crate) fn relabel(&self, change: impl FnOnce(&mut Labels)) {
        let mut labels = self.lock_labels();
        let changed = labels.get_or_insert_default();
        change(changed);
        if changed.is_empty() {
            *labels = None;
        }
    }

    fn lock_labels(&self) -> MutexGuard<'_, Option<Box<Labels>>> {
        self.labels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Address of the peer, as CLIENT LIST prints it.
    pub(crate) fn address(&self) -> String {
        self.connection.as_ref().map_or_else(|| "127.0.0.1:0".to_owned(), |c| c.peer().to_string())
    }

    /// Our own address of this connection.
    pub(crate) fn local_address(&self) -> String {
        self.connection.as_ref().map_or_else(|| "127.0.0.1:0".to_owned(), |c| c.local().to_string())
    }

    /// Name of the command that it runs, or ran last.
    pub(crate) fn last_command(&self, table: &'static Table) -> Option<&'static str> {
        let id = self.last_command.load(Ordering::Relaxed).checked_sub(1)?;
        table.entries().get(usize::from(id)).map(|entry| entry.command.name)
    }

    /// What CLIENT KILL TYPE calls it.
    pub(crate) fn kind(&self) -> &'static str {
        let counts = [&self.channels, &self.patterns, &self.shards];
        let subscribed = counts.into_iter().any(|count| count.load(Ordering::Relaxed) > 0);
        if subscribed { "pubsub" } else { "normal" }
    }

    /// Whether it waits for something that others do, or for the end of CLIENT PAUSE.
    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed) || self.paused.load(Ordering::Relaxed)
    }

    /// DeadLetterKeys of CLIENT LIST's `flags`.
    pub(crate) fn flags(&self) -> String {
        let mut letters = String::new();
        let (subscribed, tracker) = (self.kind() == "pubsub", self.tracker());
        let tracks = |is: fn(&Tracker) -> bool| tracker.as_deref().is_some_and(is);
        for (set, letter) in [
            (self.monitor.load(Ordering::Relaxed), 'O'),
            (subscribed, 'P'),
            (self.queued.load(Ordering::Relaxed) >= 0, 'x'),
            (self.is_blocked(), 'b'),
            (tracker.is_some(), 't'),
            (tracks(|it| it.is_broken.load(Ordering::Relaxed)), 'R'),
            (tracks(|it| it.options.bcast), 'B'),
            (self.no_evict.load(Ordering::Relaxed), 'e'),
            (self.no_touch.load(Ordering::Relaxed), 'T'),
        ] {
            if set {
                letters.push(letter);
            }
        }
        if letters.is_empty() { "N".to_owned() } else { letters }
    }
}

/// All clients, by id.
#[derive(Debug, Default)]
pub(crate) struct Clients(Mutex<Listed>);

#[derive(Debug, Default)]
struct Listed {
    clients: BTreeMap<u64, Arc<Client>>,
    /// Who waits for the end of which.
    ends: HashMap<u64, Vec<Hold>>,
}

impl Clients {
    pub(crate) fn add(&self, client: &Arc<Client>) {
        self.lock().clients.insert(client.id, Arc::clone(client));
    }

    /// A client has ended; returns what those hold who wait for that, to be dropped when nothing of it is left.
    pub(crate) fn remove(&self, id: u64) -> Vec<Hold> {
        let mut listed = self.lock();
        listed.clients.remove(&id);
        listed.ends.remove(&id).unwrap_or_default()
    }

    /// Keeps `hold` until the client has ended, if it has not.
    pub(crate) fn wait_for_end(&self, id: u64, hold: Hold) {
        let mut listed = self.lock();
        if listed.clients.contains_key(&id) {
            listed.ends.entry(id).or_default().push(hold);
        }
    }

    pub(crate) fn find(&self, id: u64) -> Option<Arc<Client>> {
        self.lock().clients.get(&id).cloned()
    }

    /// All, by id.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().clients.values().cloned().collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.lock().clients.len()
    }

    fn lock(&self) -> MutexGuard<'_, Listed> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
