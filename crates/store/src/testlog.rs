//! A log in memory for tests: records have addresses, releasing is up to the test, and a crash keeps a prefix. And the real log on a
//! simulated disk, without threads.

use collections::Deadline;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use clock::SimClock;
use journal::{Keyspace, LogAddress, Seq};
use vfs::SimDisk;

use crate::engine::{Class, Credits, Engine};
use crate::error::{Stop, StoreError};
use crate::hash::KeyHasher;
use crate::index::Index;
use crate::index::recover::Replayed;
use crate::prepared::Fetched;
use crate::record::{self, Draft, Payload};
use crate::sought::Sought;
use crate::{Options, Store};

/// A store of engine `log` on `disk`: what its threads would do is up to the test. `change` has the last word.
pub(crate) fn simulated(
    disk: &SimDisk,
    clock: &Arc<SimClock>,
    segment_size_bytes: u64,
    change: impl FnOnce(&mut Options),
) -> Arc<Store> {
    let mut options = Options {
        background: false,
        readers: 0,
        clock: clock.clone(),
        vfs: Arc::new(disk.clone()),
        dir: "/data".into(),
        journal: journal::Options {
            segment_size_bytes,
            file_size_bytes_min: segment_size_bytes,
            ..journal::Options::small()
        },
        ..Options::default()
    };
    change(&mut options);
    let store = Store::open(options).expect("opens");
    store.keep_spares();
    while store.drive() {}
    store
}

/// The address that is word `n`.
pub(crate) fn at(n: u64) -> LogAddress {
    LogAddress::unpack(n)
}

/// Records in append order; record n has address and seq n + 1.
#[derive(Debug, Default)]
pub(crate) struct TestLog {
    records: Mutex<Vec<Record>>,
    released: AtomicU64,
    is_full: AtomicBool,
    groups: AtomicU64,
    reads: AtomicU64,
    waiting_bytes: AtomicU64,
}

#[derive(Clone, Debug)]
struct Record {
    kind: u8,
    keyspace: Keyspace,
    expiry: Option<Deadline>,
    payload: Vec<u8>,
}

impl TestLog {
    /// Releases everything up to `seq`.
    pub(crate) fn release(&self, seq: u64) {
        self.released.fetch_max(seq, Ordering::Relaxed);
    }

    /// Refuses everything from now on, or no longer.
    pub(crate) fn fill(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// So much waits for the disk, it says.
    pub(crate) fn set_waiting(&self, bytes: u64) {
        self.waiting_bytes.store(bytes, Ordering::Relaxed);
    }

    /// Appends a record of no key.
    pub(crate) fn append_mapping(&self) {
        let payload = record::encode_mapping(Keyspace(1), &[Keyspace(0)]);
        let draft = Draft::mapping(&payload);
        let credits = Credits::free(draft.record_bytes(), 1);
        self.append(credits, &[draft], &mut [LogAddress::default()]);
    }

    /// Groups appended.
    pub(crate) fn groups(&self) -> u64 {
        self.groups.load(Ordering::Relaxed)
    }

    /// Records read.
    pub(crate) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// What recovery would make of the first `count` records.
    pub(crate) fn recover(&self, count: u64, hasher: &KeyHasher, databases: u16) -> (Self, Index) {
        let records = self.records.lock().expect("no panic")[..count as usize].to_vec();
        let index = Index::new(databases);
        let log =
            Self { records: Mutex::new(records.clone()), released: AtomicU64::new(count), ..Self::default() };
        for (seq, record) in (1..).zip(&records) {
            log.replay(&index, hasher, seq, record);
        }
        index.finish();
        (log, index)
    }

    /// The kind of the record of effect `seq`.
    pub(crate) fn kind_at(&self, seq: u64) -> u8 {
        self.records.lock().expect("no test panics here")[seq as usize - 1].kind
    }

    fn replay(&self, index: &Index, hasher: &KeyHasher, seq: u64, record: &Record) {
        let payload = record::decode(record.kind, &record.payload).expect("we wrote it");
        if let Payload::Mapping { next_keyspace, keyspaces } = payload {
            return index.set_mapping(&record::mapping_ids(keyspaces), next_keyspace, Seq(seq));
        }
        if let Payload::Clock(body) = payload {
            return index.set_clock(Seq(seq), record::decode_clock(body).expect("we wrote it"));
        }
        let key = payload.key().expect("all others have one");
        let replayed = Replayed {
            keyspace: record.keyspace,
            hash: hasher.hash_in(record.keyspace, key),
            address: at(seq),
            seq: Seq(seq),
            since: record::since(record.kind, &record.payload),
            kind: record.kind,
            expiry: record.expiry,
            record_bytes: 0,
            moved: false,
        };
        let mut same_key = |address| self.read_at(address).map(|fetched| *fetched.key == *key);
        index.replay(&replayed, &mut same_key).expect("test logs are whole");
    }
}

impl Engine for TestLog {
    fn reserve(&self, bytes: u64, records: u64, _class: Class) -> Result<Credits, Stop> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(Stop::Refused(StoreError::DiskFull("disk full: the test says so".into())));
        }
        Ok(Credits::free(bytes, records))
    }

    fn append(&self, credits: Credits, drafts: &[Draft<'_>], addresses: &mut [LogAddress]) -> Seq {
        assert!(credits.cover(drafts.iter().map(Draft::record_bytes).sum(), drafts.len() as u64));
        self.groups.fetch_add(1, Ordering::Relaxed);
        let mut records = self.records.lock().expect("no panic");
        for (draft, address) in drafts.iter().zip(addresses) {
            records.push(Record {
                kind: draft.kind,
                keyspace: draft.keyspace,
                expiry: draft.expiry,
                payload: draft.parts().concat(),
            });
            *address = at(records.len() as u64);
        }
        Seq(records.len() as u64)
    }

    fn waiting_bytes(&self) -> u64 {
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    fn released(&self) -> Seq {
        Seq(self.released.load(Ordering::Relaxed))
    }

    fn newest(&self) -> Seq {
        Seq(self.records.lock().expect("no panic").len() as u64)
    }

    fn read(&self, sought: &Sought) -> Result<Fetched, StoreError> {
        self.read_at(sought.address)
    }

    fn has_addresses(&self) -> bool {
        true
    }

    fn on_live(&self, _address: LogAddress, _bytes: u64) {}

    fn on_dead(&self, _address: LogAddress, _bytes: u64) {}
}

impl TestLog {
    fn read_at(&self, address: LogAddress) -> Result<Fetched, StoreError> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let records = self.records.lock().expect("no panic");
        let record = &records[address.pack() as usize - 1];
        let payload = record::decode(record.kind, &record.payload).expect("we wrote it");
        let (Payload::Whole { key, value } | Payload::Delta { key, body: value, .. }) = payload else {
            panic!("mappings are not read");
        };
        Ok(Fetched {
            kind: record.kind & !record::SHARED,
            key: key.into(),
            value: value.into(),
            seq: Seq(address.pack()),
            expiry: record.expiry,
            left_out_bytes: 0,
            base_bytes: None,
        })
    }
}
