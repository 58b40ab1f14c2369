//! CLIENT TRACKING: who keeps copies of which keys, and whom a change makes them drop.
//!
//! ```text
//! key read by a client        remember(key, client)            before it is looked up, while it is locked
//! key changed                 is_tracked(key)                  while it is locked: almost always no
//!                             invalidate(keys, origin, ticket) after it: who is remembered is told once, and forgotten
//! ```
//!
//! The table is by key alone, whatever the database, as that of Redis is: an invalidation may be one too many, never one too few.
//!
//! ```text
//! entry    [ id: varint, a client ]...  0  key          of up to FEW_CLIENTS; beyond them a set of clients
//! ```
//!
//! Invariants
//!   1. Whoever has read a key is in the table until told of its next change: the read remembers it before it looks it up, under the
//!      lock that the change needs, so there is no gap. What is told comes after the reply that it is about (`turn`).
//!   2. The table has at most `tracking.keys_max` keys, and a sixteenth of the limit of memory (at most 256 MiB), as soon as nothing is locked: beyond them keys are forgotten, and their clients
//!      told so as if they had changed.
//!   3. A key's clients are some hundred at most that have ended: they are taken out when their number doubles.
//!
//! Out of scope: when an invalidation is sent (`notices`), the commands (`handlers::tracking`).

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use hashbrown::HashTable;
use ticket::Ticket;

use crate::message::Message;
use crate::peers::Connections;
use crate::tracker::{Invalidated, Remembers, Tracker, TrackingOptions};
use crate::traffic::Traffic;

/// Who tracks what.
#[derive(Debug)]
pub(crate) struct Tracking {
    peers: Arc<Connections>,
    traffic: Arc<Traffic>,
    trackers: RwLock<HashMap<u64, Arc<Tracker>>>,
    clients: AtomicUsize,
    prefixes: RwLock<Prefixes>,
    has_prefixes: AtomicBool,
    hasher: RandomState,
    shards: OnceLock<Box<[Mutex<HashTable<Tracked>>]>>,
    /// In the table: keys, clients of them, and bytes of these.
    keys: AtomicU64,
    items: AtomicU64,
    bytes: AtomicU64,
    keys_max: AtomicU64,
    bytes_max: AtomicU64,
    /// The shard from which the next key is forgotten.
    hand: AtomicUsize,
}

/// Prefixes, and the clients that track what begins with them.
#[derive(Debug, Default)]
struct Prefixes {
    clients: HashMap<Box<[u8]>, Vec<u64>>,
    /// How many have which length.
    lengths: BTreeMap<usize, usize>,
}

/// A key, and who has read it.
#[derive(Debug)]
enum Tracked {
    /// As the picture shows.
    Few(Box<[u8]>),
    Many(Box<Crowd>),
}

#[derive(Debug)]
struct Crowd {
    key: Box<[u8]>,
    clients: HashSet<u64>,
    /// Those that have ended are looked for when there are so many.
    looked_at: usize,
}

impl Tracking {
    pub(crate) fn new(peers: Arc<Connections>, traffic: Arc<Traffic>) -> Self {
        Self {
            peers,
            traffic,
            trackers: RwLock::default(),
            clients: AtomicUsize::new(0),
            prefixes: RwLock::default(),
            has_prefixes: AtomicBool::new(false),
            hasher: RandomState::new(),
            shards: OnceLock::new(),
            keys: AtomicU64::new(0),
            items: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            keys_max: AtomicU64::new(u64::MAX),
            bytes_max: AtomicU64::new(u64::MAX),
            hand: AtomicUsize::new(0),
        }
    }

    /// Sets how many keys the table may have, 0 for as many as there are, and how many bytes.
    pub(crate) fn set_max(&self, keys: u64, bytes: u64) {
        self.keys_max.store(if keys == 0 { u64::MAX } else { keys }, Ordering::Relaxed);
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    fn is_too_large(&self) -> bool {
        self.keys.load(Ordering::Relaxed) > self.keys_max.load(Ordering::Relaxed)
            || self.bytes.load(Ordering::Relaxed) > self.bytes_max.load(Ordering::Relaxed)
    }

    /// Clients that track.
    pub(crate) fn clients(&self) -> usize {
        self.clients.load(Ordering::Relaxed)
    }

    /// Keys of the table, clients of them, and prefixes.
    pub(crate) fn totals(&self) -> [u64; 3] {
        let prefixes = read(&self.prefixes).clients.len() as u64;
        [self.keys.load(Ordering::Relaxed), self.items.load(Ordering::Relaxed), prefixes]
    }

    /// Bytes of the table.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Lets a client track, in place of how it did before.
    pub(crate) fn add(&self, id: u64, options: TrackingOptions) -> Arc<Tracker> {
        self.remove(id);
        let tracker = Arc::new(Tracker { id, options, is_broken: AtomicBool::new(false) });
        let mut prefixes = write(&self.prefixes);
        for prefix in tracker.options.prefixes.iter().filter(|_| tracker.options.bcast) {
            if !prefixes.clients.contains_key(prefix) {
                *prefixes.lengths.entry(prefix.len()).or_default() += 1;
            }
            prefixes.clients.entry(prefix.clone()).or_default().push(id);
        }
        self.has_prefixes.store(!prefixes.clients.is_empty(), Ordering::Relaxed);
        drop(prefixes);
        let mut trackers = write(&self.trackers);
        trackers.insert(id, Arc::clone(&tracker));
        self.clients.store(trackers.len(), Ordering::Relaxed);
        tracker
    }

    /// A client tracks no more. What it has read stays in the table until that changes.
    pub(crate) fn remove(&self, id: u64) {
        let mut trackers = write(&self.trackers);
        let Some(tracker) = trackers.remove(&id) else { return };
        self.clients.store(trackers.len(), Ordering::Relaxed);
        let is_last = trackers.is_empty();
        drop(trackers);
        let mut prefixes = write(&self.prefixes);
        for prefix in &tracker.options.prefixes {
            let Some(clients) = prefixes.clients.get_mut(prefix) else { continue };
            clients.retain(|client| *client != id);
            if clients.is_empty() {
                prefixes.clients.remove(prefix);
                let length = prefixes.lengths.entry(prefix.len()).or_default();
                *length -= 1;
                if *length == 0 {
                    prefixes.lengths.remove(&prefix.len());
                }
            }
        }
        self.has_prefixes.store(!prefixes.clients.is_empty(), Ordering::Relaxed);
        drop(prefixes);
        if is_last {
            self.clear();
        }
    }

    /// Whether somebody is to be told of a change of `key`.
    pub(crate) fn is_tracked(&self, key: &[u8]) -> bool {
        if self.has_prefixes.load(Ordering::Relaxed) && read(&self.prefixes).any(key) {
            return true;
        }
        if self.keys.load(Ordering::Relaxed) == 0 {
            return false;
        }
        let (hash, table) = self.shard(key);
        table.find(hash, |tracked| tracked.key() == key).is_some()
    }

    /// Tells those who have copies of `keys`, which `origin` has changed, that these hold no more; they are remembered no more.
    pub(crate) fn invalidate(&self, keys: &[Box<[u8]>], origin: u64, ticket: Ticket) {
        if keys.is_empty() {
            return;
        }
        let (mut of_clients, mut of_prefixes) = (BTreeMap::<u64, Vec<Arc<[u8]>>>::new(), BTreeMap::new());
        for key in keys {
            let key: Arc<[u8]> = Arc::from(&key[..]);
            for client in self.take(&key) {
                of_clients.entry(client).or_default().push(Arc::clone(&key));
            }
            if self.has_prefixes.load(Ordering::Relaxed) {
                read(&self.prefixes).each(&key, |prefix| {
                    of_prefixes.entry(Box::from(prefix)).or_insert_with(Vec::new).push(Arc::clone(&key));
                });
            }
        }
        for (client, keys) in of_clients {
            self.post(&[client], Some(keys), origin, ticket);
        }
        for (prefix, keys) in of_prefixes {
            let clients = read(&self.prefixes).clients.get::<[u8]>(&prefix).cloned().unwrap_or_default();
            self.post(&clients, Some(keys), origin, ticket);
        }
    }

    /// Tells all who keep copies that none holds any more.
    pub(crate) fn forget_all(&self, ticket: Ticket) {
        // first: who reads from now on is told by the message, or stays remembered
        self.clear();
        let clients: Vec<u64> = read(&self.trackers).keys().copied().collect();
        self.post(&clients, None, 0, ticket);
    }

    #[cold]
    fn trim_some(&self) {
        for _ in 0..TRIMMED_AT_ONCE {
            if !self.is_too_large() {
                return;
            }
            let shards = self.shards();
            let shard = self.hand.fetch_add(1, Ordering::Relaxed) % shards.len();
            let first = lock(&shards[shard]).iter().next().map(|tracked| Box::from(tracked.key()));
            if let Some(key) = first {
                self.invalidate(&[key], 0, Ticket::NOTHING);
            }
        }
    }

    /// Takes a key out of the table; returns who has read it.
    fn take(&self, key: &[u8]) -> Vec<u64> {
        if self.keys.load(Ordering::Relaxed) == 0 {
            return Vec::new();
        }
        let (hash, mut table) = self.shard(key);
        let Ok(entry) = table.find_entry(hash, |tracked| tracked.key() == key) else { return Vec::new() };
        let (tracked, _) = entry.remove();
        if table.len() < table.capacity() / 8 {
            let len = table.len() * 2;
            table.shrink_to(len, |tracked| self.hasher.hash_one(tracked.key()));
        }
        drop(table);
        let clients = tracked.clients();
        self.keys.fetch_sub(1, Ordering::Relaxed);
        self.items.fetch_sub(clients.len() as u64, Ordering::Relaxed);
        self.bytes.fetch_sub(tracked.bytes() + SLOT_BYTES, Ordering::Relaxed);
        clients
    }

    fn clear(&self) {
        let Some(shards) = self.shards.get() else { return };
        for shard in shards {
            for tracked in std::mem::take(&mut *lock(shard)) {
                self.keys.fetch_sub(1, Ordering::Relaxed);
                self.items.fetch_sub(tracked.clients().len() as u64, Ordering::Relaxed);
                self.bytes.fetch_sub(tracked.bytes() + SLOT_BYTES, Ordering::Relaxed);
            }
        }
    }

    /// Tells these clients, of whom `origin` may not want to know.
    fn post(&self, clients: &[u64], keys: Option<Vec<Arc<[u8]>>>, origin: u64, ticket: Ticket) {
        let told: Vec<Arc<Tracker>> = {
            let trackers = read(&self.trackers);
            let is_told = |it: &Arc<Tracker>| keys.is_none() || !it.options.noloop || it.id != origin;
            clients.iter().filter_map(|id| trackers.get(id).filter(|it| is_told(it)).cloned()).collect()
        };
        if told.is_empty() {
            return;
        }
        let bytes = keys.as_ref().map_or(0, |keys| keys.iter().map(|key| key.len() + KEY_BYTES).sum());
        let _weight = self.traffic.weigh(bytes, bytes, told.len(), ticket);
        let invalidated = Arc::new(Invalidated { keys, ticket, _weight });
        for tracker in told {
            let message = |source| Message::Invalidated { source, invalidated: Arc::clone(&invalidated) };
            match tracker.options.redirect {
                0 => _ = self.peers.post(tracker.id, message(tracker.id)),
                target if self.peers.post(target, message(tracker.id)) => {}
                _ => {
                    tracker.is_broken.store(true, Ordering::Relaxed);
                    self.peers.post(tracker.id, Message::RedirectionBroken);
                }
            }
        }
    }

    fn shard(&self, key: &[u8]) -> (u64, MutexGuard<'_, HashTable<Tracked>>) {
        let (hash, shards) = (self.hasher.hash_one(key), self.shards());
        (hash, lock(&shards[(hash >> 40) as usize % shards.len()]))
    }

    fn shards(&self) -> &[Mutex<HashTable<Tracked>>] {
        self.shards.get_or_init(|| (0..SHARDS).map(|_| Mutex::default()).collect())
    }
}

impl Remembers for Tracking {
    fn remember(&self, key: &[u8], client: u64) {
        let (hash, mut table) = self.shard(key);
        if let Some(tracked) = table.find_mut(hash, |tracked| tracked.key() == key) {
            let before = tracked.bytes();
            if tracked.add(client, |client| read(&self.trackers).contains_key(&client), &self.items) {
                self.bytes.fetch_add(tracked.bytes().wrapping_sub(before), Ordering::Relaxed);
            }
            return;
        }
        let tracked = Tracked::new(key, client);
        self.bytes.fetch_add(tracked.bytes() + SLOT_BYTES, Ordering::Relaxed);
        table.insert_unique(hash, tracked, |tracked| self.hasher.hash_one(tracked.key()));
        drop(table);
        self.keys.fetch_add(1, Ordering::Relaxed);
        self.items.fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    fn trim(&self) {
        if self.is_too_large() {
            self.trim_some();
        }
    }
}

impl Prefixes {
    /// Calls `with` with each prefix of `key` that somebody tracks.
    fn each<'k>(&self, key: &'k [u8], mut with: impl FnMut(&'k [u8])) {
        for (length, _) in self.lengths.range(..=key.len()) {
            if self.clients.contains_key(&key[..*length]) {
                with(&key[..*length]);
            }
        }
    }

    fn any(&self, key: &[u8]) -> bool {
        self.lengths.range(..=key.len()).any(|(length, _)| self.clients.contains_key(&key[..*length]))
    }
}

impl Tracked {
    fn new(key: &[u8], client: u64) -> Self {
        Self::few(&[client], key)
    }

    /// No byte of an id is 0, for ids begin at 1: a 0 ends them.
    fn few(clients: &[u64], key: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(clients.len() * 4 + 1 + key.len());
        for client in clients {
            let mut rest = *client;
            while rest >= 0x80 {
                bytes.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            bytes.push(rest as u8);
        }
        bytes.push(0);
        bytes.extend_from_slice(key);
        Self::Few(bytes.into_boxed_slice())
    }

    /// The clients in the bytes of a few, and where the key begins.
    fn decode(bytes: &[u8]) -> (Vec<u64>, usize) {
        let (mut clients, mut id, mut shift) = (Vec::with_capacity(FEW_CLIENTS), 0, 0);
        for (at, byte) in bytes.iter().enumerate() {
            if *byte == 0 {
                return (clients, at + 1);
            }
            id |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if *byte < 0x80 {
                clients.push(id);
                (id, shift) = (0, 0);
            }
        }
        unreachable!("a 0 ends the clients")
    }

    fn key(&self) -> &[u8] {
        match self {
            Self::Few(bytes) => {
                let end = bytes.iter().position(|byte| *byte == 0).expect("a 0 ends the clients");
                &bytes[end + 1..]
            }
            Self::Many(crowd) => &crowd.key,
        }
    }

    fn clients(&self) -> Vec<u64> {
        match self {
            Self::Few(bytes) => Self::decode(bytes).0,
            Self::Many(crowd) => crowd.clients.iter().copied().collect(),
        }
    }

    /// Adds a client; returns whether it is new. `items` counts what is added and taken out.
    fn add(&mut self, client: u64, lives: impl Fn(u64) -> bool, items: &AtomicU64) -> bool {
        match self {
            Self::Few(bytes) => {
                let (mut clients, at) = Self::decode(bytes);
                if clients.contains(&client) {
                    return false;
                }
                let before = clients.len();
                clients.retain(|client| lives(*client));
                clients.push(client);
                let key = &bytes[at..];
                let changed = if clients.len() <= FEW_CLIENTS {
                    Self::few(&clients, key)
                } else {
                    let (key, clients) = (key.into(), HashSet::from_iter(clients.iter().copied()));
                    Self::Many(Box::new(Crowd { key, clients, looked_at: 4 * FEW_CLIENTS }))
                };
                items.fetch_add((clients.len() as u64).wrapping_sub(before as u64), Ordering::Relaxed);
                *self = changed;
                true
            }
            Self::Many(crowd) => {
                let before = crowd.clients.len();
                if !crowd.clients.insert(client) {
                    return false;
                }
                if crowd.clients.len() >= crowd.looked_at {
                    crowd.clients.retain(|client| lives(*client));
                    crowd.looked_at = 2 * crowd.clients.len().max(FEW_CLIENTS);
                }
                let after = crowd.clients.len();
                items.fetch_add((after as u64).wrapping_sub(before as u64), Ordering::Relaxed);
                true
            }
        }
    }

    /// Bytes beside its slot.
    fn bytes(&self) -> u64 {
        match self {
            Self::Few(bytes) => bytes.len() as u64,
            Self::Many(crowd) => (size_of::<Crowd>() + crowd.key.len() + crowd.clients.capacity() * 9) as u64,
        }
    }
}

fn read<T>(lock: &RwLock<T>) -> std::sync::RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

fn write<T>(lock: &RwLock<T>) -> std::sync::RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Parts of the table, each with a lock of its own.
const SHARDS: usize = 1_024;
/// More clients of one key are kept as a set.
const FEW_CLIENTS: usize = 8;
/// Keys that one command makes room for: it has added few.
const TRIMMED_AT_ONCE: usize = 4_096;
/// A slot of the table, which is two thirds full on average.
const SLOT_BYTES: u64 = ((size_of::<Tracked>() + 1) * 3 / 2) as u64;
/// What a key of a message takes beside its bytes.
const KEY_BYTES: usize = 16;

const _: () = assert!(size_of::<Tracked>() == 16, "a key is to take 60 bytes");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_of_a_key_are_kept_as_bytes_and_beyond_a_few_as_a_set() {
        let (items, mut tracked) = (AtomicU64::new(1), Tracked::new(b"\0key", 128));
        let ids: Vec<u64> = [128, 1, 127, 16_384, u64::MAX, 3 << 14].into_iter().chain(10..40).collect();
        for id in &ids {
            let is_new = tracked.add(*id, |_| true, &items);
            assert_eq!(is_new, *id != 128, "{id}");
            assert_eq!(tracked.key(), b"\0key");
        }
        let mut clients = tracked.clients();
        clients.sort_unstable();
        let mut expected = ids.clone();
        expected.sort_unstable();
        assert_eq!(clients, expected);
        assert_eq!(items.load(Ordering::Relaxed), ids.len() as u64);
        // a key that is read by one client after the other keeps those that live
        for id in 1_000..2_000 {
            tracked.add(id, |client| client == id, &items);
        }
        assert!(tracked.clients().len() <= 2 * ids.len() && tracked.clients().contains(&1_999));
        assert_eq!(items.load(Ordering::Relaxed), tracked.clients().len() as u64);
    }
}
