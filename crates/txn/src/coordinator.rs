//! The coordinator of a node: its log, its resources, its lanes, and the recovery manager, a thread that finishes what was left.
//!
//! ```text
//!  start: records of the log -> machines of the recovery manager's lane, which commit what was decided
//!  recovery manager, while it runs: turns lanes whose threads are gone; asks resources what they hold prepared, and has orphans rolled back
//! ```
//!
//! Invariants
//!   1. Whatever the log has at a start is worked on from then on, until each branch has answered.
//!   2. Recovery from the resources up touches nothing that a lane works on, and nothing while the log is not sound.
//!   3. A lane's number is given away again only when all of its transactions have ended; its count goes on.
//!
//! Out of scope: how a log and resources are made.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use clock::{Clock, Nanos};
use crossbeam_utils::CachePadded;

use crate::decision_log::{DecisionLog, LogCounters};
use crate::event_count::EventCount;
use crate::id::{BranchId, NodeName, TxId};
use crate::inbox::{Inbox, Wake, lock};
use crate::lane::{Lane, LaneError, LaneInner, Time, lane_of};
use crate::phases::Phases;
use crate::protocol::{BranchState, Effect, Misuse, Standing, State, Timing, Transaction};
use crate::record::{Decision, RecordError};
use crate::recovery_manager::RecoveryManager;
use crate::resource::{Abilities, RESOURCE_NAME_BYTES_MAX, Resource};
use crate::table::Outcomes;

/// Transactions of one node.
#[derive(Debug)]
pub struct Coordinator {
    shared: Arc<Shared>,
    recovery_manager: Mutex<Option<JoinHandle<()>>>,
}

/// Settings of a coordinator.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whose transactions they are.
    pub node: NodeName,
    /// Times of the protocol.
    pub timing: Timing,
    /// Most transactions that have not ended.
    pub transactions_max: u64,
    /// How often resources are asked what they hold prepared.
    pub recovery_interval: Duration,
    /// For so long a branch that nobody works on must have been seen before it is rolled back.
    pub safety_interval: Duration,
}

impl Options {
    /// The defaults.
    #[must_use]
    pub fn new(node: NodeName) -> Self {
        Self {
            node,
            timing: Timing::default(),
            transactions_max: 65_536,
            recovery_interval: Duration::from_secs(10),
            safety_interval: Duration::from_secs(10),
        }
    }
}

/// What a log knew when it was opened.
#[derive(Clone, Debug, Default)]
pub struct Started {
    /// Greater than that of every start before.
    pub epoch: u32,
    /// The epoch of the log's first start.
    pub born: u32,
    /// Records that were not removed.
    pub records: Vec<(TxId, Vec<u8>)>,
}

/// Why a coordinator cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A record of the log is none.
    #[error("the decision of transaction {tx} cannot be read: {error}")]
    Record {
        /// Of which transaction.
        tx: TxId,
        /// What is wrong.
        error: RecordError,
    },
    /// Two resources have the same name, or one has none or one that is too long.
    #[error(
        "{0:?} is no name of a resource, or that of two: 1 to {RESOURCE_NAME_BYTES_MAX} bytes, each once"
    )]
    Resource(String),
    /// The system gives no thread.
    #[error("cannot start the thread of the transactions' recovery manager: {0}")]
    Thread(std::io::Error),
}

/// A transaction, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionInfo {
    /// Which.
    pub tx: TxId,
    /// Where it stands.
    pub state: State,
    /// Why it is rolled back; empty if it is not.
    pub reason: String,
    /// Its branches.
    pub branches: Vec<BranchInfo>,
}

/// A branch, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchInfo {
    /// Which of its transaction.
    pub branch: u16,
    /// Its identifier, as the resource keeps it.
    pub id: String,
    /// Name of its resource.
    pub resource: String,
    /// False: there is no resource of that name any more, and the transaction waits until there is.
    pub is_configured: bool,
    /// Where it stands.
    pub state: BranchState,
    /// How many questions it was asked.
    pub attempts: u32,
    /// What went wrong last; empty if nothing did.
    pub trouble: String,
}

/// How transactions ended, and how many have not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Outcomes that were told.
    pub committed: u64,
    /// See above.
    pub aborted: u64,
    /// See above.
    pub unknown: u64,
    /// See above.
    pub heuristic: u64,
    /// Transactions that are under way.
    pub live: u64,
    /// Those that are done, and whose decision is kept for a while.
    pub kept: u64,
    /// Orphans that were told to roll back.
    pub orphans: u64,
}

/// What lanes and the recovery manager share. What changes with each transaction has cache lines of its own: the rest is read by all.
pub(crate) struct Shared {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) log: Arc<dyn DecisionLog>,
    pub(crate) resources: Box<[Arc<dyn Resource>]>,
    pub(crate) options: Options,
    pub(crate) epoch: u32,
    pub(crate) born: u32,
    /// Records that were written and not heard of.
    pub(crate) writing: CachePadded<AtomicU64>,
    pub(crate) orphans: AtomicU64,
    pub(crate) ends: AtomicBool,
    /// Recovery is wanted before its time.
    pub(crate) recover_now: AtomicBool,
    live: CachePadded<AtomicU64>,
    /// Under way as well: of earlier starts.
    left: AtomicU64,
    /// Done, and kept.
    kept: CachePadded<AtomicU64>,
    lanes: Mutex<Lanes>,
    /// Threads that wait for the log sleep on it.
    pub(crate) event_count: Arc<EventCount>,
}

/// All lanes, by number; the first is the recovery manager's.
#[derive(Debug, Default)]
struct Lanes {
    all: Vec<Arc<LaneInner>>,
    /// Lanes whose threads are gone, with transactions that have not ended.
    adopted: Vec<u16>,
    /// Lanes that can be given away.
    free: Vec<u16>,
}

impl Coordinator {
    /// Starts with what the log knew; commits what it says was decided.
    ///
    /// # Errors
    /// [`StartError`]; nothing was done then.
    pub fn start(
        clock: Arc<dyn Clock>,
        log: Arc<dyn DecisionLog>,
        started: &Started,
        resources: Vec<Arc<dyn Resource>>,
        options: Options,
    ) -> Result<Self, StartError> {
        check_names(&resources)?;
        let decisions = started.records.iter().map(|(tx, record)| {
            Decision::decode(record).map_err(|error| StartError::Record { tx: *tx, error })
        });
        let decisions = decisions.collect::<Result<Vec<_>, _>>()?;
        let shared = Arc::new(Shared {
            clock,
            log,
            resources: resources.into(),
            options,
            epoch: started.epoch,
            born: started.born,
            writing: CachePadded::default(),
            orphans: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            recover_now: AtomicBool::new(false),
            live: CachePadded::default(),
            left: AtomicU64::new(0),
            kept: CachePadded::default(),
            lanes: Mutex::default(),
            event_count: Arc::default(),
        });
        for (place, resource) in shared.resources.iter().enumerate() {
            let shared = Arc::downgrade(&shared);
            let back = move || shared.upgrade().into_iter().for_each(|shared| shared.on_back(place as u16));
            resource.watch(Box::new(back));
        }
        let own = shared.new_lane(&mut lock(&shared.lanes));
        let recovery_manager = RecoveryManager::new(Arc::clone(&shared), own, &decisions);
        let run = move || recovery_manager.run();
        #[allow(clippy::disallowed_methods, reason = "the coordinator owns this thread, and ends it")]
        let thread = std::thread::Builder::new().name("txn-recovery".to_owned()).spawn(run);
        let recovery_manager = Mutex::new(Some(thread.map_err(StartError::Thread)?));
        Ok(Self { shared, recovery_manager })
    }

    /// A lane for the calling thread, or for one that it is sent to.
    ///
    /// # Panics
    /// If there are 65,536 lanes.
    #[must_use]
    pub fn lane(&self) -> Lane {
        let mut lanes = lock(&self.shared.lanes);
        let free = lanes.free.pop().map(|index| Arc::clone(&lanes.all[usize::from(index)]));
        let lane = free.unwrap_or_else(|| self.shared.new_lane(&mut lanes));
        drop(lanes);
        lane.inbox.set_wake(Wake::Nobody);
        Lane::new(Arc::clone(&self.shared), lane)
    }

    /// The newest of those that are done, and whose decision is kept for a while: `most` of what may be very many, in the order of
    /// their numbers.
    #[must_use]
    pub fn kept(&self, most: usize) -> Vec<TransactionInfo> {
        let all = lock(&self.shared.lanes).all.clone();
        let node = &self.shared.options.node;
        let newest = all.iter().flat_map(|lane| lane.table().newest_kept(node, most));
        let mut newest: Vec<(Nanos, TransactionInfo)> = newest.collect();
        newest.sort_unstable_by_key(|(goes_at, info)| Reverse((*goes_at, info.tx)));
        newest.truncate(most);
        in_order(newest.into_iter().map(|(_, info)| info))
    }

    /// How many transactions are in which state, those that are kept among them. Cheap: for figures.
    #[must_use]
    pub fn states(&self) -> BTreeMap<State, u64> {
        let all = lock(&self.shared.lanes).all.clone();
        let mut states = BTreeMap::new();
        all.iter().for_each(|lane| lane.table().count_states(&mut states));
        states
    }

    /// The `most` transactions with the least numbers that are under way, of all or of those in `state`, in the order of their numbers.
    #[must_use]
    pub fn transactions(&self, state: Option<State>, most: usize) -> Vec<TransactionInfo> {
        let all = lock(&self.shared.lanes).all.clone();
        let node = &self.shared.options.node;
        let first = all.iter().flat_map(|lane| lane.table().first_live(node, state, most));
        let mut first = in_order(first);
        first.truncate(most);
        first
    }

    /// The transaction `tx`, unless it has ended.
    #[must_use]
    pub fn transaction(&self, tx: TxId) -> Option<TransactionInfo> {
        let node = &self.shared.options.node;
        self.shared.lane_with(tx)?.table().info(node, tx)
    }

    /// An operator's word about a transaction that is in doubt because of a last resource, or heuristic: see
    /// [`Transaction::resolve`]. `None`: there is no such transaction.
    ///
    /// # Errors
    /// [`Misuse::NotResolvable`].
    pub fn resolve(&self, tx: TxId, commit: bool) -> Option<Result<(), Misuse>> {
        let (now, wall) = self.shared.time();
        self.shared.change(tx, |machine, effects| machine.resolve(now, wall, commit, effects))
    }

    /// Whether [`Coordinator::resolve`] would be obeyed. `None`: there is no such transaction.
    ///
    /// # Errors
    /// [`Misuse::NotResolvable`].
    pub fn check_resolvable(&self, tx: TxId) -> Option<Result<(), Misuse>> {
        self.shared.change(tx, |machine, _| machine.check_resolvable())
    }

    /// The counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let shared = &self.shared;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let all = lock(&shared.lanes).all.clone();
        let mut outcomes = Outcomes::default();
        all.iter().for_each(|lane| outcomes.add(lane.table().outcomes()));
        let Outcomes { committed, aborted, unknown, heuristic } = outcomes;
        Counters {
            committed,
            aborted,
            unknown,
            heuristic,
            live: read(&shared.live) + read(&shared.left),
            kept: read(&shared.kept),
            orphans: read(&shared.orphans),
        }
    }

    /// How long the phases of committed transactions took, since the start.
    #[must_use]
    pub fn phases(&self) -> Phases {
        let all = lock(&self.shared.lanes).all.clone();
        let mut sum = Phases::default();
        all.iter().for_each(|lane| sum.add(lane.table().phases()));
        sum
    }

    /// Has resources asked now what they hold prepared, instead of at the next [`Options::recovery_interval`].
    pub fn recover_now(&self) {
        self.shared.recover_now.store(true, Ordering::SeqCst);
        lock(&self.shared.lanes).all[0].inbox.wake();
    }

    /// Those of its log.
    #[must_use]
    pub fn log_counters(&self) -> LogCounters {
        self.shared.log.counters()
    }

    /// Ends: no transaction can begin, those that run are left as they are, and what was written becomes durable.
    /// A new start goes on with what was decided, and rolls back the rest.
    pub fn close(&self) {
        self.shared.ends.store(true, Ordering::SeqCst);
        let recovery_manager = lock(&self.recovery_manager).take();
        lock(&self.shared.lanes).all[0].inbox.wake();
        if recovery_manager.is_some_and(|recovery_manager| recovery_manager.join().is_err()) {
            tracing::error!("the transactions' recovery manager panicked");
        }
        self.shared.log.close();
    }
}

impl Drop for Coordinator {
    fn drop(&mut self) {
        self.close();
    }
}

impl Shared {
    pub(crate) fn time(&self) -> Time {
        (self.clock.now(), self.clock.unix_ms())
    }

    /// Counts one transaction more, if there may be one.
    pub(crate) fn admit(&self) -> Result<(), LaneError> {
        if self.ends.load(Ordering::Relaxed) {
            return Err(LaneError::Closed("the coordinator ends"));
        }
        if !self.log.is_sound() {
            return Err(LaneError::Closed("the decision log failed; mend its disk, and start again"));
        }
        let before = self.live.fetch_add(1, Ordering::Relaxed);
        if before >= self.options.transactions_max {
            self.live.fetch_sub(1, Ordering::Relaxed);
            return Err(LaneError::TooMany(before));
        }
        Ok(())
    }

    /// Counts one that was found in the log, or at a resource.
    pub(crate) fn resumed(&self, tx: TxId) {
        self.under_way(tx).fetch_add(1, Ordering::Relaxed);
    }

    /// One has ended, which was under way, or whose decision was only kept.
    pub(crate) fn ended(&self, tx: TxId, was_kept: bool) {
        let counter: &AtomicU64 = if was_kept { &self.kept } else { self.under_way(tx) };
        let before = counter.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more transactions ended than began");
    }

    /// One is done, and its decision is kept for a while.
    pub(crate) fn is_kept(&self, tx: TxId) {
        self.kept.fetch_add(1, Ordering::Relaxed);
        self.ended(tx, false);
    }

    /// One that was done is under way again.
    pub(crate) fn is_live(&self, tx: TxId) {
        self.under_way(tx).fetch_add(1, Ordering::Relaxed);
        self.ended(tx, true);
    }

    /// Where a transaction is counted while it is under way. What earlier starts have left bars none that would begin: a log keeps a minute
    /// of decisions, which may be more than may be under way, and their databases may be down.
    fn under_way(&self, tx: TxId) -> &AtomicU64 {
        if tx.epoch == self.epoch { &self.live } else { &self.left }
    }

    /// Place and abilities of the resource of this name.
    pub(crate) fn find(&self, name: &str) -> Option<(u16, Abilities)> {
        let at = self.resources.iter().position(|resource| resource.name() == name)?;
        Some((at as u16, self.resources[at].abilities()))
    }

    /// What is known of a branch.
    pub(crate) fn standing(&self, branch: BranchId) -> Standing {
        self.lane_with(branch.tx).map_or(Standing::Nobody, |lane| lane.table().standing(branch))
    }

    /// Changes the machine of `tx` from outside its lane; `None` if it has ended.
    pub(crate) fn change<T>(
        &self,
        tx: TxId,
        how: impl FnOnce(&mut Transaction, &mut Vec<Effect>) -> T,
    ) -> Option<T> {
        let lane = self.lane_with(tx)?;
        let done = lane.change(self, &mut lane.table(), tx, how);
        // Its owner may sleep until a time that is not the next any more.
        lane.offer(self);
        lane.inbox.wake();
        done
    }

    /// The resource at this place answers again: nobody waits any longer to ask it.
    fn on_back(&self, resource: u16) {
        let all = lock(&self.lanes).all.clone();
        all.iter().for_each(|lane| lane.on_back(self, resource));
    }

    /// The lane that has `tx`: the one in which it began, or the recovery manager's, if it began before this start or is an orphan.
    fn lane_with(&self, tx: TxId) -> Option<Arc<LaneInner>> {
        let lanes = lock(&self.lanes);
        let own = if tx.epoch == self.epoch { lane_of(tx) } else { RECOVERY_LANE };
        let all = [own, RECOVERY_LANE].map(|index| lanes.all.get(usize::from(index)).cloned());
        drop(lanes);
        all.into_iter().flatten().find(|lane| lane.table().has(tx))
    }

    /// A lane's thread is gone: the recovery manager goes on with what is unfinished.
    pub(crate) fn adopt(&self, lane: &Arc<LaneInner>) {
        let mut lanes = lock(&self.lanes);
        if lane.table().is_empty() {
            lanes.free.push(lane.index);
            return;
        }
        lanes.adopted.push(lane.index);
        let recovery_manager = Arc::clone(&lanes.all[0].inbox);
        drop(lanes);
        let wake = Arc::clone(&recovery_manager);
        lane.inbox.set_wake(Wake::Call(Arc::new(move || wake.wake())));
        recovery_manager.wake();
    }

    /// The lanes whose threads are gone; those that have nothing more to do are given back.
    pub(crate) fn adopted(&self) -> Vec<Arc<LaneInner>> {
        let mut lanes = lock(&self.lanes);
        let Lanes { all, adopted, free } = &mut *lanes;
        let (empty, busy): (Vec<u16>, Vec<u16>) =
            adopted.iter().partition(|index| all[usize::from(**index)].table().is_empty());
        free.extend(empty);
        *adopted = busy;
        adopted.iter().map(|index| Arc::clone(&all[usize::from(*index)])).collect()
    }

    fn new_lane(&self, lanes: &mut Lanes) -> Arc<LaneInner> {
        let index = u16::try_from(lanes.all.len()).expect("65,536 lanes are more than threads");
        let inbox = Inbox::new(Wake::Nobody, Arc::clone(&self.event_count));
        let lane = Arc::new(LaneInner::new(index, inbox, &self.resources));
        lanes.all.push(Arc::clone(&lane));
        lane
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared")
            .field("epoch", &self.epoch)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl TransactionInfo {
    pub(crate) fn of(node: &NodeName, machine: &Transaction) -> Self {
        let branches = machine.branches().map(|it| BranchInfo {
            branch: it.branch,
            id: node.branch_id(BranchId { tx: machine.id(), branch: it.branch }),
            resource: it.resource.to_owned(),
            is_configured: it.is_configured,
            state: it.state,
            attempts: it.attempts,
            trouble: it.trouble.to_owned(),
        });
        Self {
            tx: machine.id(),
            state: machine.state(),
            reason: machine.reason().to_owned(),
            branches: branches.collect(),
        }
    }
}

fn in_order(all: impl Iterator<Item = TransactionInfo>) -> Vec<TransactionInfo> {
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by_key(|info| info.tx);
    all
}

/// The recovery manager's lane.
const RECOVERY_LANE: u16 = 0;

fn check_names(resources: &[Arc<dyn Resource>]) -> Result<(), StartError> {
    for (at, resource) in resources.iter().enumerate() {
        let name = resource.name();
        let is_twice = resources[..at].iter().any(|other| other.name() == name);
        if is_twice || !(1..=RESOURCE_NAME_BYTES_MAX).contains(&name.len()) {
            return Err(StartError::Resource(name.to_owned()));
        }
    }
    Ok(())
}
