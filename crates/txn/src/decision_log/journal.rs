//! Decisions in a group-commit journal: one sync for all that were written meanwhile.
//!
//! ```text
//!  write -> reserve -> [ append, note who waits ] -> offer, or help() -> one sync -> on_advance: all who waited, in order
//!  remove -> [ noted ] -> with some others: one record, appended, not offered
//! ```
//!
//! Invariants
//!   1. Who waits is noted under the lock under which the record is appended: the order of the queue is that of the journal.
//!   2. No waiter is called under that lock.
//!   3. A record that was appended is never called absent: when the journal fails it is unknown.
//!   4. A segment is given up only when nothing in it and before it is needed (`ledger`). One that a few records hold up is freed by
//!      writing them again at the tail, so that the folder never takes more than twice what is needed, and some segments.
//!   5. The start of this epoch is durable before the log is open.
//!
//! | module | what |
//! |---|---|
//! | `records` | every byte |
//! | `ledger` | which records are needed, and where they lie |
//! | `tender` | gives segments up, writes records again, and removals that nothing followed |
//! | `waiting` | who waits for which record |
//!
//! Who waits offers, so that nobody is woken in vain for a record whose thread commits it itself ([`DecisionLog::help`]).
//!
//! Source: JBossTS's store on a journal; docs/adr/0004-commits-by-loops.md, docs/adr/0009-decision-logs.md.

mod ledger;
mod records;
mod tender;
mod waiting;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::Clock;
use journal::{
    Class, Draft, Driver, Hooks, Journal, JournalError, Keyspace, LogAddress, Recovery, Refusal, Seq,
    footprint,
};
use vfs::Vfs;

use crate::decision_log::{
    Cycle, DecisionLog, LogCounters, LogError, OpenError, Opened, Refused, Waiter, next_epochs,
};
use crate::id::{NodeName, TxId};
use ledger::{Ledger, Live};
use records::{Found, KEY_BYTES, KIND_DECISION, KIND_REMOVAL, KIND_START, key};
use waiting::{Known, Queue};

/// The log.
#[derive(Debug)]
pub struct JournalLog {
    inner: Arc<Inner>,
    tender: Mutex<Option<JoinHandle<()>>>,
    /// Its turns are run by a [`Driver`].
    is_manual: bool,
}

impl JournalLog {
    /// Opens the folder `dir` for `node`, or makes it; starts the journal's threads and one of its own.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        node: &NodeName,
        options: journal::Options,
    ) -> Result<Opened<Self>, OpenError> {
        let begun = Begun::read(vfs, clock, dir, node, options)?;
        let shared = Arc::clone(&begun.shared);
        let journal = begun.recovery.start(hooks(&shared)).map_err(failed)?;
        let inner = Arc::new(Inner { journal, shared, retired: Mutex::default() });
        let gate = inner.append_start(node, begun.epoch, begun.born)?;
        inner.journal.offer();
        gate.wait()?;
        inner.await_room()?;
        let for_thread = Arc::clone(&inner);
        let tender = std::thread::Builder::new()
            .name("txn-log".into())
            .spawn(move || for_thread.tend_until_over())
            .map_err(|error| OpenError::Failed(format!("starting a thread: {error}")))?;
        inner.shared.set_tender(tender.thread().clone());
        let log = Self { inner, tender: Mutex::new(Some(tender)), is_manual: false };
        Ok(Opened { log: Arc::new(log), epoch: begun.epoch, born: begun.born, records: begun.records })
    }

    /// As [`JournalLog::open`], without threads: the driver does the journal's work, and [`JournalLog::tend`] this log's.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open_manual(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        node: &NodeName,
        options: journal::Options,
    ) -> Result<(Opened<Self>, Driver), OpenError> {
        let begun = Begun::read(vfs, clock, dir, node, options)?;
        let shared = Arc::clone(&begun.shared);
        let (journal, mut driver) = begun.recovery.start_manual(hooks(&shared)).map_err(failed)?;
        driver.prepare();
        let inner = Arc::new(Inner { journal, shared, retired: Mutex::default() });
        let gate = inner.append_start(node, begun.epoch, begun.born)?;
        driver.commit();
        gate.wait()?;
        let log = Self { inner, tender: Mutex::default(), is_manual: true };
        Ok((
            Opened { log: Arc::new(log), epoch: begun.epoch, born: begun.born, records: begun.records },
            driver,
        ))
    }

    /// Gives up what can be given up, and writes again what is in the way; false when there was nothing to do.
    pub fn tend(&self) -> bool {
        self.inner.tend()
    }

    /// The journal below: its counters and syncs.
    #[must_use]
    pub fn journal(&self) -> &Journal {
        &self.inner.journal
    }
}

impl DecisionLog for JournalLog {
    fn write(&self, tx: TxId, record: &[u8], waiter: &Arc<dyn Waiter>) -> Result<Cycle, Refused> {
        assert_ne!(tx, START, "no transaction is called so");
        let Inner { journal, shared, .. } = &*self.inner;
        let key = key(tx);
        let parts = [&key[..], record];
        let draft = Draft::new(KIND_DECISION, Keyspace::NONE, &parts);
        let len = draft.payload_len();
        let credits = journal.reserve(footprint([len]), Class::Write).map_err(|refusal| refused(&refusal))?;
        let mut state = shared.state();
        if let Some(reason) = &state.stopped {
            return Err(Refused::Closed(reason.clone()));
        }
        let mut one = One::default();
        let journal::Appended { last_seq: seq, cycle, .. } = journal.append(credits, &[draft], &mut one);
        state.waiting.push(seq, tx, waiter);
        let has_rolled = state.note_record(tx, Live { address: one.address(), payload_len: len }, seq);
        drop(state);
        if has_rolled {
            shared.has_rolled.store(true, Ordering::Release);
            shared.wake_tender();
        }
        Ok(Some(cycle))
    }

    fn remove(&self, tx: TxId) {
        let Inner { journal, shared, .. } = &*self.inner;
        let mut state = shared.state();
        if !state.ledger.remove(tx) {
            return;
        }
        state.removed += 1;
        state.removals.push(tx);
        let count = state.removals.len();
        if count >= REMOVALS_TOGETHER {
            state.append_removals(journal);
        }
        drop(state);
        if count == 1 && !shared.is_attended.swap(true, Ordering::AcqRel) {
            shared.wake_tender();
        }
    }

    fn offer(&self) {
        self.inner.journal.offer();
    }

    fn help(&self, is_alone: bool) -> bool {
        is_alone && self.inner.journal.commit_here()
    }

    fn is_sound(&self) -> bool {
        !self.inner.shared.is_stopped.load(Ordering::Acquire) && !self.inner.journal.has_failed()
    }

    fn counters(&self) -> LogCounters {
        let journal = self.inner.journal.counters();
        let state = self.inner.shared.state();
        LogCounters {
            records: state.records,
            removed: state.removed,
            syncs: journal.syncs - journal.syncs_unawaited,
            bytes: journal.bytes_written,
        }
    }

    fn close(&self) {
        let Inner { journal, shared, .. } = &*self.inner;
        let mut state = shared.state();
        if state.stopped.is_none() {
            state.append_removals(journal);
            shared.stop(&mut state, "it was closed");
        }
        drop(state);
        shared.is_over.store(true, Ordering::Release);
        shared.wake_tender();
        let tender = self.tender.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(tender) = tender
            && tender.thread().id() != std::thread::current().id()
            && tender.join().is_err()
        {
            tracing::error!("the thread of the decision log panicked");
        }
        journal.close();
        if !self.is_manual {
            shared.give_up("the decision log was closed before its journal had it");
        }
    }
}

impl Drop for JournalLog {
    fn drop(&mut self) {
        self.close();
    }
}

/// A folder that was read.
struct Begun {
    recovery: Recovery,
    shared: Arc<Shared>,
    epoch: u32,
    born: u32,
    records: Vec<(TxId, Vec<u8>)>,
}

impl Begun {
    fn read(
        vfs: Arc<dyn Vfs>,
        clock: Arc<dyn Clock>,
        dir: &Path,
        node: &NodeName,
        options: journal::Options,
    ) -> Result<Self, OpenError> {
        let wall = Arc::clone(&clock);
        let recovery = Journal::open(vfs, clock, dir, options).map_err(failed)?;
        let found = scan(&recovery, dir)?;
        let place = dir.display().to_string();
        let mut needed = Vec::with_capacity(found.records.len() + 1);
        match &found.start {
            Some(start) if start.node != node.as_str() => {
                return Err(OpenError::OtherNode {
                    place,
                    found: start.node.clone(),
                    wanted: node.to_string(),
                });
            }
            Some(start) => {
                needed.push((START, Live { address: start.address, payload_len: start.payload_len }));
            }
            None if found.is_used => {
                return Err(OpenError::Damaged(format!("{place} has records, but none says of which node")));
            }
            None => {}
        }
        for (tx, (address, record)) in &found.records {
            needed.push((*tx, Live { address: *address, payload_len: (KEY_BYTES + record.len()) as u32 }));
        }
        let noted = found.start.as_ref().map(|start| (start.epoch, start.born));
        let (epoch, born) = next_epochs(noted, &*wall, &place)?;
        let ledger = Ledger::of(needed);
        let mut records: Vec<_> = found.records.into_iter().map(|(tx, (_, record))| (tx, record)).collect();
        records.sort_unstable_by_key(|(tx, _)| *tx);
        let shared = Arc::new(Shared::new(ledger));
        Ok(Self { recovery, shared, epoch, born, records })
    }
}

fn scan(recovery: &Recovery, dir: &Path) -> Result<Found, OpenError> {
    let mut found = Found::default();
    for info in recovery.segments() {
        let mut wrong = None;
        let from = info.first_lsn;
        let mut apply = |view: journal::RecordView<'_>| {
            if let (None, Err(what)) = (wrong, found.apply(&view)) {
                wrong = Some((view.address.offset_bytes(), what));
            }
        };
        recovery.scan(info.segment, from, &mut apply).map_err(failed)?;
        if let Some((at, what)) = wrong {
            let file = dir.join(info.file.file_name());
            return Err(OpenError::Damaged(format!("{}, offset {at}: {what}", file.display())));
        }
    }
    Ok(found)
}

/// What the callers and the tender work with; the journal's hooks know `shared` alone.
#[derive(Debug)]
struct Inner {
    journal: Arc<Journal>,
    shared: Arc<Shared>,
    /// Segments up to this one were given up; held by who tends.
    retired: Mutex<journal::SegmentId>,
}

impl Inner {
    /// Appends the start of `epoch`, in a log whose first was `born`.
    fn append_start(&self, node: &NodeName, epoch: u32, born: u32) -> Result<Arc<Gate>, OpenError> {
        let (epoch, born) = (epoch.to_le_bytes(), born.to_le_bytes());
        let parts = [&epoch[..], &born[..], node.as_str().as_bytes()];
        let draft = Draft::new(KIND_START, Keyspace::NONE, &parts);
        let payload_len = draft.payload_len();
        let credits = self.await_credits(footprint([payload_len]), Class::Reclaim)?;
        let (gate, mut one) = (Arc::new(Gate::default()), One::default());
        let mut state = self.shared.state();
        let seq = self.journal.append(credits, &[draft], &mut one).last_seq;
        let waiter: Arc<dyn Waiter> = Arc::clone(&gate) as _;
        state.waiting.push(seq, START, &waiter);
        state.ledger.put(START, Live { address: one.address(), payload_len }, seq);
        if self.journal.has_failed() {
            // Perhaps the hook came before it was noted.
            drop(state);
            self.shared.give_up("the journal failed");
        }
        Ok(gate)
    }

    /// Waits until records are taken: a folder that was just made has no file ready.
    fn await_room(&self) -> Result<(), OpenError> {
        self.await_credits(footprint([ROOM_BYTES]), Class::Write).map(drop)
    }

    fn await_credits(&self, bytes: u64, class: Class) -> Result<journal::Credits, OpenError> {
        let mut state = self.shared.state();
        for _ in 0..CREDITS_WAITS_MAX {
            match self.journal.reserve(bytes, class) {
                Ok(credits) => return Ok(credits),
                Err(Refusal::Busy { .. }) => {}
                Err(refusal) => return Err(OpenError::Failed(refusal.to_string())),
            }
            let waited = self.shared.credits.wait_timeout(state, CREDITS_WAIT);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Err(OpenError::Failed("the journal prepares no file to write to".to_owned()))
    }
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Credits may be had.
    credits: Condvar,
    /// The tender looks after removals, or is about to.
    is_attended: AtomicBool,
    /// A segment was begun since the tender looked.
    has_rolled: AtomicBool,
    is_over: AtomicBool,
    /// `state.stopped` says why: for who only wants to know whether.
    is_stopped: AtomicBool,
    tender: Mutex<Option<std::thread::Thread>>,
}

impl Shared {
    fn new(ledger: Ledger) -> Self {
        Self {
            state: Mutex::new(State { ledger, ..State::default() }),
            credits: Condvar::new(),
            is_attended: AtomicBool::new(false),
            has_rolled: AtomicBool::new(false),
            is_over: AtomicBool::new(false),
            is_stopped: AtomicBool::new(false),
            tender: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("a panic under the decision log's lock is a bug: stop")
    }

    /// Everything up to `durable` is: tells who waited for it.
    fn release(&self, durable: Seq) {
        let mut state = self.state();
        let mut known = std::mem::take(&mut state.known);
        state.waiting.take(durable, &mut known);
        drop(state);
        known.tell(&Ok(()));
        if known.capacity() <= KNOWN_KEPT_MAX {
            self.state().known = known;
        }
    }

    /// Nothing more becomes durable: nobody knows what was appended and not released.
    fn give_up(&self, reason: &str) {
        let mut state = self.state();
        self.stop(&mut state, reason);
        let mut known = Known::default();
        state.waiting.take(Seq(u64::MAX), &mut known);
        drop(state);
        known.tell(&Err(LogError::Unknown(reason.to_owned())));
    }

    /// Takes no more records, because of `reason` or of what was in the way before.
    fn stop(&self, state: &mut State, reason: &str) {
        state.stopped.get_or_insert_with(|| reason.to_owned());
        self.is_stopped.store(true, Ordering::Release);
    }

    fn wake_tender(&self) {
        if let Some(tender) = &*self.tender.lock().unwrap_or_else(PoisonError::into_inner) {
            tender.unpark();
        }
    }

    fn set_tender(&self, tender: std::thread::Thread) {
        *self.tender.lock().unwrap_or_else(PoisonError::into_inner) = Some(tender);
    }
}

/// What one lock guards; held for an append, never for a disk.
#[derive(Debug, Default)]
struct State {
    waiting: Queue,
    /// Room for what is told, used again and again.
    known: Known,
    ledger: Ledger,
    /// Removed, and not yet in the journal.
    removals: Vec<TxId>,
    /// Why no more records are taken.
    stopped: Option<String>,
    newest: journal::SegmentId,
    records: u64,
    removed: u64,
}

impl State {
    /// Notes a record; true when it is the first of a segment.
    fn note_record(&mut self, tx: TxId, live: Live, seq: Seq) -> bool {
        self.records += 1;
        // A removal that came behind it would remove it.
        if let Some(at) = self.removals.iter().position(|removed| *removed == tx) {
            self.removals.swap_remove(at);
        }
        self.ledger.put(tx, live, seq);
        let segment = live.address.segment();
        std::mem::replace(&mut self.newest, segment) != segment
    }

    /// Appends the removals as one record that nobody waits for. Without room they wait; too many are dropped, since what was removed
    /// may come back.
    fn append_removals(&mut self, journal: &Journal) {
        if self.removals.is_empty() {
            return;
        }
        let payload: Vec<u8> = self.removals.iter().flat_map(|tx| key(*tx)).collect();
        match journal.reserve(footprint([payload.len() as u32]), Class::Reclaim) {
            Ok(credits) => {
                let parts = [&payload[..]];
                journal.append(
                    credits,
                    &[Draft::new(KIND_REMOVAL, Keyspace::NONE, &parts)],
                    &mut One::default(),
                );
                self.removals.clear();
            }
            Err(_) if self.removals.len() >= REMOVALS_MAX => self.removals.clear(),
            Err(_) => {}
        }
    }
}

/// Waits for one record.
#[derive(Debug, Default)]
struct Gate {
    result: Mutex<Option<Result<(), LogError>>>,
    changed: Condvar,
}

impl Gate {
    fn wait(&self) -> Result<(), OpenError> {
        let result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        let result = self.changed.wait_while(result, |result| result.is_none());
        let result = result.unwrap_or_else(PoisonError::into_inner).take();
        result.expect("waited for it").map_err(|error| OpenError::Failed(error.to_string()))
    }
}

impl Waiter for Gate {
    fn on_logged(&self, _: TxId, result: Result<(), LogError>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.changed.notify_all();
    }
}

/// The address of a group of one record.
#[derive(Debug, Default)]
struct One(Option<LogAddress>);

impl One {
    fn address(&self) -> LogAddress {
        self.0.expect("append names the address of each record")
    }
}

impl Extend<LogAddress> for One {
    fn extend<T: IntoIterator<Item = LogAddress>>(&mut self, addresses: T) {
        self.0 = addresses.into_iter().last().or(self.0);
    }
}

fn hooks(shared: &Arc<Shared>) -> Hooks {
    let (advance, credits, failure) = (Arc::clone(shared), Arc::clone(shared), Arc::clone(shared));
    Hooks {
        on_advance: Box::new(move |durable| advance.release(durable)),
        on_credits: Box::new(move || credits.credits.notify_all()),
        on_failure: Box::new(move |error| failure.give_up(&error.to_string())),
    }
}

fn refused(refusal: &Refusal) -> Refused {
    match refusal {
        Refusal::Closed => Refused::Closed(refusal.to_string()),
        Refusal::Busy { .. } => Refused::Busy(refusal.to_string()),
        _ => Refused::Full(refusal.to_string()),
    }
}

#[allow(clippy::needless_pass_by_value, reason = "what map_err hands over")]
fn failed(error: JournalError) -> OpenError {
    match error {
        JournalError::Damaged { file, offset, what } => {
            OpenError::Damaged(format!("{file}, offset {offset}: {what}"))
        }
        JournalError::Locked { dir } => OpenError::InUse(dir),
        other => OpenError::Failed(other.to_string()),
    }
}

/// What the start of an epoch is called among the records that are needed: no transaction has the number 0.
const START: TxId = TxId { epoch: 0, number: 0 };
/// Removals that become one record.
const REMOVALS_TOGETHER: usize = 64;
/// Removals that wait for room in the journal.
const REMOVALS_MAX: usize = 4_096;
/// What a usual record takes, at most.
const ROOM_BYTES: u32 = 4_096;
/// How long a new folder may take to have a file ready: half a minute, looked at each 10 ms.
const CREDITS_WAIT: Duration = Duration::from_millis(10);
const CREDITS_WAITS_MAX: usize = 3_000;
/// Room for what is told that is kept.
const KNOWN_KEPT_MAX: usize = 16_384;
