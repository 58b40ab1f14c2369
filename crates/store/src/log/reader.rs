//! Cold reads: a small pool of threads that fetch records for parked connections.
//!
//! A fetch names addresses; the pool's threads share them, so the reads of one pipeline run side by side. The last one to
//! finish calls the fetch's completion.
//!
//! Fetches take turns, one address each: a GET waits for one read of each of the others, not for the 500 that SCAN asked for before it.
//! Fetches of many addresses have at most half of the threads, so that the device is not theirs alone.
//!
//! Invariants
//!   1. A loop never blocks here: submitting takes one short lock.
//!   2. The queue is bounded by the connections: each has at most one fetch under way, and its length is counted.
//!   3. An address that does not verify is left out once (its record may have moved: the command looks it up
//!      again). Asked for again unchanged, it is damage: an error for that key alone, and its segment is quarantined.
//!
//! Out of scope: what a record means; keeping what was read (`memory`).

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use journal::LogAddress;

use crate::error::StoreError;
use crate::locks::lock;
use crate::prepared::{Fetched, Fold, Prepared};
use crate::sought::Sought;

/// What [`Readers`] call when a fetch is complete.
pub(crate) type Done = Box<dyn FnOnce(Prepared) + Send>;

/// What a read of one address found.
#[derive(Debug)]
pub(crate) enum Read {
    /// The record, verified.
    Record(Fetched),
    /// Nothing that verifies lies there: moved, or damaged.
    Elsewhere(StoreError),
    /// The disk refused.
    Failed(StoreError),
}

/// Where records come from; blocks.
pub(crate) trait Source: Send + Sync + 'static {
    /// Reads the record that is sought. Who `may_wait` holds no stripe, and nobody needs it meanwhile: a large record waits for its turn.
    fn read_record(&self, sought: &Sought, may_wait: bool) -> Read;

    /// A value was read with its changes and folded; whoever keeps them may make it one record.
    fn on_folded(&self, fold: &Fold, folded: &Fetched) {
        let _ = (fold, folded);
    }

    /// The record at `address` is damaged: its segment must not be cleaned away.
    fn quarantine(&self, address: LogAddress);
}

/// The pool.
pub(crate) struct Readers {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

struct Shared {
    source: Arc<dyn Source>,
    /// Reads under way for fetches of many addresses, at most.
    many_max: usize,
    queue: Mutex<Queue>,
    ready: Condvar,
    counters: Counters,
}

/// Fetches with addresses that nobody reads yet.
#[derive(Default)]
struct Queue {
    /// Of few addresses, and of many.
    few: VecDeque<Waiting>,
    many: VecDeque<Waiting>,
    /// Reads under way for fetches of many.
    many_in_flight: usize,
    /// Turns that were given.
    turns: u64,
    /// Addresses.
    len: usize,
    closed: bool,
}

/// A fetch that waits for its next turn.
struct Waiting {
    fetch: Arc<Fetch>,
    left: std::vec::IntoIter<Sought>,
    turn: u64,
}

struct Fetch {
    left: AtomicUsize,
    is_many: bool,
    state: Mutex<Option<(Prepared, Done)>>,
}

impl Queue {
    fn add(&mut self, fetch: Arc<Fetch>, records: Vec<Sought>) {
        self.len += records.len();
        self.wait(Waiting { fetch, left: records.into_iter(), turn: 0 });
    }

    fn wait(&mut self, waiting: Waiting) {
        self.turns += 1;
        let line = if waiting.fetch.is_many { &mut self.many } else { &mut self.few };
        line.push_back(Waiting { turn: self.turns, ..waiting });
    }

    /// The next address to be read, where fetches of many may have `many_max` reads under way.
    fn next(&mut self, many_max: usize) -> Option<(Arc<Fetch>, Sought)> {
        let turn_of = |line: &VecDeque<Waiting>| line.front().map(|waiting| waiting.turn);
        let many = turn_of(&self.many).filter(|_| self.many_in_flight < many_max);
        let is_many = match (turn_of(&self.few), many) {
            (None, None) => return None,
            (few, many) => few.is_none() || many.is_some_and(|many| few.is_some_and(|few| many < few)),
        };
        let line = if is_many { &mut self.many } else { &mut self.few };
        let mut waiting = line.pop_front()?;
        let sought = waiting.left.next()?;
        let fetch = Arc::clone(&waiting.fetch);
        self.len -= 1;
        self.many_in_flight += usize::from(is_many);
        if waiting.left.len() > 0 {
            self.wait(waiting);
        }
        Some((fetch, sought))
    }
}

/// What the pool has done so far.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Records read.
    pub(crate) reads: AtomicU64,
    /// Reads that found something else and were looked up again.
    pub(crate) retries: AtomicU64,
    /// Reads answered with an error.
    pub(crate) failures: AtomicU64,
    /// Addresses that waited at most.
    pub(crate) queue_length_max: AtomicUsize,
}

impl Readers {
    /// Starts `count` threads; 0 reads on the submitting thread, for simulations.
    ///
    /// # Errors
    /// What the system says when it has no threads left.
    pub(crate) fn start(source: Arc<dyn Source>, count: usize) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            source,
            many_max: (count / 2).max(1),
            queue: Mutex::default(),
            ready: Condvar::new(),
            counters: Counters::default(),
        });
        let spawn = |number| {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new().name(format!("store-read-{number}")).spawn(move || shared.run())
        };
        let threads = (0..count).map(spawn).collect::<Result<Vec<_>, _>>()?;
        Ok(Self { shared, threads: Mutex::new(threads) })
    }

    /// Fetches what `prepared` wants and calls `done` with it, from a thread of the pool.
    pub(crate) fn submit(&self, mut prepared: Prepared, done: Done) {
        let records = prepared.take_wanted();
        if records.is_empty() {
            self.shared.fold(&mut prepared);
            return done(prepared);
        }
        let fetch = Arc::new(Fetch {
            left: AtomicUsize::new(records.len()),
            is_many: records.len() > FEW_MAX,
            state: Mutex::new(Some((prepared, done))),
        });
        if lock(&self.threads).is_empty() {
            records.into_iter().for_each(|sought| self.shared.serve(&fetch, sought, false));
            return;
        }
        let mut queue = lock(&self.shared.queue);
        let is_one = records.len() == 1;
        queue.add(fetch, records);
        self.shared.counters.queue_length_max.fetch_max(queue.len, Ordering::Relaxed);
        drop(queue);
        if is_one { self.shared.ready.notify_one() } else { self.shared.ready.notify_all() }
    }

    /// Reads what `prepared` wants on this thread, which may hold stripes.
    pub(crate) fn read_here(&self, prepared: &mut Prepared) {
        for sought in prepared.take_wanted() {
            let read = self.shared.source.read_record(&sought, false);
            self.shared.counters.reads.fetch_add(1, Ordering::Relaxed);
            self.shared.supply(prepared, &sought, read);
        }
        self.shared.fold(prepared);
    }

    /// What lies at `address` is damage, as another than the pool has found.
    pub(crate) fn on_damaged(&self, address: LogAddress) {
        self.shared.source.quarantine(address);
        self.shared.counters.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// What was done so far.
    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Ends the threads; what was submitted is completed first.
    pub(crate) fn close(&self) {
        lock(&self.shared.queue).closed = true;
        self.shared.ready.notify_all();
        for thread in std::mem::take(&mut *lock(&self.threads)) {
            // a reader that panicked has aborted the process (by its hook), or failed its test already
            let _ = thread.join();
        }
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readers").field("counters", self.counters()).finish_non_exhaustive()
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut queue = lock(&self.queue);
            let (fetch, sought) = loop {
                match queue.next(self.many_max) {
                    Some(read) => break read,
                    None if queue.closed && queue.len == 0 => return,
                    None => queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            self.serve(&fetch, sought, true);
            if fetch.is_many {
                let mut queue = lock(&self.queue);
                queue.many_in_flight -= 1;
                let (waits, closed) = (!queue.many.is_empty(), queue.closed);
                drop(queue);
                if closed {
                    self.ready.notify_all();
                } else if waits {
                    self.ready.notify_one();
                }
            }
        }
    }

    fn serve(&self, fetch: &Fetch, sought: Sought, may_wait: bool) {
        let read = self.source.read_record(&sought, may_wait);
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        if let Some((prepared, _)) = lock(&fetch.state).as_mut() {
            self.supply(prepared, &sought, read);
        }
        if fetch.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some((mut prepared, done)) = lock(&fetch.state).take()
        {
            self.fold(&mut prepared);
            done(prepared);
        }
    }

    fn fold(&self, prepared: &mut Prepared) {
        prepared.fold(&mut |fold, folded| self.source.on_folded(fold, folded));
    }

    fn supply(&self, prepared: &mut Prepared, sought: &Sought, read: Read) {
        match read {
            Read::Record(record) => prepared.supply_sought(sought, Ok(record)),
            Read::Elsewhere(_) if prepared.note_elsewhere(sought) => {
                self.counters.retries.fetch_add(1, Ordering::Relaxed);
            }
            Read::Elsewhere(error) => {
                self.source.quarantine(sought.address);
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                prepared.supply(sought, Err(error));
            }
            Read::Failed(error) => {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                prepared.supply(sought, Err(error));
            }
        }
    }
}

/// A fetch of more addresses is one of many.
const FEW_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use journal::{Keyspace, Seq};

    use super::*;
    use std::collections::HashSet;

    use crate::hash::KeyHash;
    use crate::testlog::at;
    use std::sync::mpsc;

    /// Addresses below 1,000 hold records, those below 2,000 fail to verify, the rest fail to read.
    #[derive(Default)]
    struct Addresses {
        quarantine: Mutex<HashSet<LogAddress>>,
    }

    impl Source for Addresses {
        fn read_record(&self, sought: &Sought, _may_wait: bool) -> Read {
            let address = sought.address.pack();
            let error = || StoreError::Damaged { segment: 1, offset: address, reason: "test".to_owned() };
            match address {
                0..1_000 => Read::Record(Fetched {
                    kind: 1,
                    key: Box::from(&b"k"[..]),
                    value: (&address.to_le_bytes()[..]).into(),
                    seq: Seq(address),
                    expiry: None,
                    left_out_bytes: 0,
                    base_bytes: None,
                }),
                1_000..2_000 => Read::Elsewhere(error()),
                _ => Read::Failed(error()),
            }
        }

        fn quarantine(&self, address: LogAddress) {
            lock(&self.quarantine).insert(address);
        }
    }

    fn fetch(readers: &Readers, mut prepared: Prepared, addresses: &[u64]) -> Prepared {
        addresses
            .iter()
            .for_each(|&address| prepared.want_record(Sought::base(at(address), Keyspace(1), KeyHash(0))));
        let (sender, receiver) = mpsc::channel();
        readers.submit(prepared, Box::new(move |prepared| sender.send(prepared).expect("the test waits")));
        receiver.recv().expect("every fetch is completed")
    }

    #[test]
    fn addresses_of_one_fetch_come_back_together() {
        for threads in [0, 1, 4] {
            let readers = Readers::start(Arc::new(Addresses::default()), threads).expect("threads");
            let addresses: Vec<u64> = (0..100).collect();
            let prepared = fetch(&readers, Prepared::default(), &addresses);
            for address in addresses {
                let record = prepared.record(at(address)).expect("fetched").as_ref().expect("whole");
                assert_eq!(record.seq, Seq(address));
            }
            assert_eq!(readers.counters().reads.load(Ordering::Relaxed), 100);
        }
    }

    #[test]
    fn record_that_does_not_verify_is_looked_up_again_then_damage() {
        let addresses = Arc::new(Addresses::default());
        let readers = Readers::start(Arc::clone(&addresses) as Arc<dyn Source>, 2).expect("threads");
        let prepared = fetch(&readers, Prepared::default(), &[5, 1_500]);
        assert!(prepared.record(at(5)).is_some());
        assert!(prepared.record(at(1_500)).is_none(), "the command looks the key up again");
        assert!(lock(&addresses.quarantine).is_empty());
        let prepared = fetch(&readers, prepared, &[1_500]);
        assert!(prepared.record(at(1_500)).expect("answered").is_err());
        assert!(lock(&addresses.quarantine).contains(&at(1_500)), "the segment is quarantined");
    }

    /// What was read on a thread beside the loops was neither counted nor quarantined.
    #[test]
    fn read_on_the_own_thread_is_as_one_of_the_pool() {
        let addresses = Arc::new(Addresses::default());
        let readers = Readers::start(Arc::clone(&addresses) as Arc<dyn Source>, 2).expect("threads");
        let mut prepared = Prepared::default();
        for attempt in 0..2 {
            for address in [5, 1_500] {
                prepared.want_record(Sought::base(at(address), Keyspace(1), KeyHash(0)));
            }
            readers.read_here(&mut prepared);
            assert!(prepared.record(at(5)).expect("fetched").is_ok());
            assert_eq!(prepared.record(at(1_500)).is_some(), attempt == 1, "it is looked up again first");
        }
        assert!(lock(&addresses.quarantine).contains(&at(1_500)), "the segment is quarantined");
        assert_eq!(readers.counters().reads.load(Ordering::Relaxed), 3);
    }

    #[test]
    fn failing_disk_is_an_error_for_that_key_alone() {
        let readers = Readers::start(Arc::new(Addresses::default()), 2).expect("threads");
        let prepared = fetch(&readers, Prepared::default(), &[7, 9_999]);
        assert!(prepared.record(at(7)).expect("answered").is_ok());
        assert!(prepared.record(at(9_999)).expect("answered").is_err());
    }

    /// Notes what it reads, once it may.
    #[derive(Default)]
    struct Noted {
        may_read: Mutex<bool>,
        changed: Condvar,
        order: Mutex<Vec<u64>>,
        /// Reads of addresses below 500 that are under way, and the most that were.
        under_way: Mutex<(usize, usize)>,
    }

    impl Source for Noted {
        fn read_record(&self, sought: &Sought, may_wait: bool) -> Read {
            let address = sought.address.pack();
            let count = |more: bool| {
                let mut under_way = lock(&self.under_way);
                under_way.0 = if more { under_way.0 + 1 } else { under_way.0 - 1 };
                under_way.1 = under_way.1.max(under_way.0);
            };
            if address < 500 {
                count(true);
            }
            lock(&self.order).push(address);
            drop(self.changed.wait_while(lock(&self.may_read), |may| !*may));
            if address < 500 {
                count(false);
            }
            Addresses::default().read_record(sought, may_wait)
        }

        fn quarantine(&self, _: LogAddress) {}
    }

    /// SCAN over cold keys put 500 reads before each GET: GET took four times as long.
    #[test]
    fn fetch_of_one_does_not_wait_for_one_of_many() {
        for threads in [1, 4] {
            let source = Arc::new(Noted::default());
            let readers = Readers::start(Arc::clone(&source) as Arc<dyn Source>, threads).expect("threads");
            let (sender, receiver) = mpsc::channel();
            for addresses in [0..500, 900..901] {
                let mut prepared = Prepared::default();
                let sought = |address| Sought::base(at(address), Keyspace(1), KeyHash(0));
                addresses.for_each(|address| prepared.want_record(sought(address)));
                let sender = sender.clone();
                readers.submit(prepared, Box::new(move |_| sender.send(()).expect("the test waits")));
            }
            // all threads that may read have begun to
            let begun = threads.min(threads / 2 + 1);
            while lock(&source.order).len() < begun {
                std::thread::yield_now();
            }
            *lock(&source.may_read) = true;
            source.changed.notify_all();
            (0..2).for_each(|_| receiver.recv().expect("every fetch is completed"));
            let order = lock(&source.order);
            let place = order.iter().position(|address| *address == 900).expect("it was read");
            assert!(place <= 2 * threads, "{place} reads before it, {threads} threads");
            assert_eq!(order.len(), 501);
            let most = lock(&source.under_way).1;
            assert!(most <= (threads / 2).max(1), "{most} of {threads} threads");
        }
    }

    #[test]
    fn closing_completes_what_was_submitted() {
        let readers = Readers::start(Arc::new(Addresses::default()), 2).expect("threads");
        let (sender, receiver) = mpsc::channel();
        for address in 0..50 {
            let mut prepared = Prepared::default();
            prepared.want_record(Sought::base(at(address), Keyspace(1), KeyHash(0)));
            let sender = sender.clone();
            readers.submit(prepared, Box::new(move |_| sender.send(address).expect("the test waits")));
        }
        readers.close();
        assert_eq!(receiver.try_iter().count(), 50);
    }
}
