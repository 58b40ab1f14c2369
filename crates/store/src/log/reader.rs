//! Cold reads: a small pool of threads that fetch records for parked connections.
//!
//! A fetch names addresses; the pool's threads share them, so the reads of one pipeline run side by side. The last one to
//! finish calls the fetch's completion.
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
use crate::prepared::{Fetched, Prepared};
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
    /// Reads the record that is sought.
    fn read_record(&self, sought: &Sought) -> Read;

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
    queue: Mutex<Queue>,
    ready: Condvar,
    counters: Counters,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Arc<Fetch>, Sought)>,
    closed: bool,
}

struct Fetch {
    left: AtomicUsize,
    state: Mutex<Option<(Prepared, Done)>>,
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
            prepared.fold();
            return done(prepared);
        }
        let fetch = Arc::new(Fetch {
            left: AtomicUsize::new(records.len()),
            state: Mutex::new(Some((prepared, done))),
        });
        if lock(&self.threads).is_empty() {
            records.into_iter().for_each(|sought| self.shared.serve(&fetch, sought));
            return;
        }
        let mut queue = lock(&self.shared.queue);
        queue.jobs.extend(records.iter().map(|&sought| (Arc::clone(&fetch), sought)));
        self.shared.counters.queue_length_max.fetch_max(queue.jobs.len(), Ordering::Relaxed);
        drop(queue);
        if records.len() == 1 { self.shared.ready.notify_one() } else { self.shared.ready.notify_all() }
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
            // a reader that panicked has aborted the process (profile), or failed its test already
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
                match queue.jobs.pop_front() {
                    Some(job) => break job,
                    None if queue.closed => return,
                    None => queue = self.ready.wait(queue).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(queue);
            self.serve(&fetch, sought);
        }
    }

    fn serve(&self, fetch: &Fetch, sought: Sought) {
        let read = self.source.read_record(&sought);
        self.counters.reads.fetch_add(1, Ordering::Relaxed);
        if let Some((prepared, _)) = lock(&fetch.state).as_mut() {
            self.supply(prepared, sought.address, read);
        }
        if fetch.left.fetch_sub(1, Ordering::AcqRel) == 1
            && let Some((mut prepared, done)) = lock(&fetch.state).take()
        {
            prepared.fold();
            done(prepared);
        }
    }

    fn supply(&self, prepared: &mut Prepared, address: LogAddress, read: Read) {
        match read {
            Read::Record(record) => prepared.supply(address, Ok(record)),
            Read::Elsewhere(_) if prepared.note_elsewhere(address) => {
                self.counters.retries.fetch_add(1, Ordering::Relaxed);
            }
            Read::Elsewhere(error) => {
                self.source.quarantine(address);
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                prepared.supply(address, Err(error));
            }
            Read::Failed(error) => {
                self.counters.failures.fetch_add(1, Ordering::Relaxed);
                prepared.supply(address, Err(error));
            }
        }
    }
}

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
        fn read_record(&self, sought: &Sought) -> Read {
            let address = sought.address.pack();
            let error = || StoreError::Damaged { segment: 1, offset: address, reason: "test".to_owned() };
            match address {
                0..1_000 => Read::Record(Fetched {
                    kind: 1,
                    key: Box::from(&b"k"[..]),
                    value: (&address.to_le_bytes()[..]).into(),
                    seq: Seq(address),
                    expiry_ms: 0,
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

    #[test]
    fn failing_disk_is_an_error_for_that_key_alone() {
        let readers = Readers::start(Arc::new(Addresses::default()), 2).expect("threads");
        let prepared = fetch(&readers, Prepared::default(), &[7, 9_999]);
        assert!(prepared.record(at(7)).expect("answered").is_ok());
        assert!(prepared.record(at(9_999)).expect("answered").is_err());
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
