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
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use clock::{Clock, Nanos};

use crate::decision_log::{DecisionLog, LogCounters};
use crate::id::TxId;
use crate::inbox::{Wake, lock};
pub use crate::info::{BranchInfo, TransactionInfo};
use crate::lane::Lane;
use crate::phases::Phases;
use crate::protocol::{Misuse, State};
use crate::record::{Decision, RecordError};
use crate::recovery_manager::RecoveryManager;
use crate::resource::{RESOURCE_NAME_BYTES_MAX, Resource};
pub use crate::shared::Options;
use crate::shared::{Epochs, Shared};
use crate::table::Outcomes;

/// Transactions of one node.
#[derive(Debug)]
pub struct Coordinator {
    shared: Arc<Shared>,
    recovery_manager: Mutex<Option<JoinHandle<()>>>,
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
        let epochs = Epochs { epoch: started.epoch, born: started.born };
        let shared = Arc::new(Shared::new(clock, log, epochs, resources, options));
        for (place, resource) in shared.resources.iter().enumerate() {
            let shared = Arc::downgrade(&shared);
            let back = move || shared.upgrade().into_iter().for_each(|shared| shared.on_back(place as u16));
            resource.watch(Box::new(back));
        }
        let own = shared.lane();
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
        let lane = self.shared.lane();
        lane.inbox.set_wake(Wake::Nobody);
        Lane::new(Arc::clone(&self.shared), lane)
    }

    /// The newest of those that are done, and whose decision is kept for a while: `most` of what may be very many, in the order of
    /// their numbers.
    #[must_use]
    pub fn kept(&self, most: usize) -> Vec<TransactionInfo> {
        let all = self.shared.lanes();
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
        let all = self.shared.lanes();
        let mut states = BTreeMap::new();
        all.iter().for_each(|lane| lane.table().count_states(&mut states));
        states
    }

    /// The `most` transactions with the least numbers that are under way, of all or of those in `state`, in the order of their numbers.
    #[must_use]
    pub fn transactions(&self, state: Option<State>, most: usize) -> Vec<TransactionInfo> {
        let all = self.shared.lanes();
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
    /// [`crate::protocol::Transaction::resolve`]. `None`: there is no such transaction.
    ///
    /// # Errors
    /// [`Misuse::NotResolvable`].
    pub fn resolve(&self, tx: TxId, commit: bool) -> Option<Result<(), Misuse>> {
        let time = self.shared.time();
        self.shared.change(tx, |machine, effects| machine.resolve(time.now, time.wall, commit, effects))
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
        let all = shared.lanes();
        let mut outcomes = Outcomes::default();
        all.iter().for_each(|lane| outcomes.add(lane.table().outcomes()));
        let Outcomes { committed, aborted, unknown, heuristic } = outcomes;
        Counters {
            committed,
            aborted,
            unknown,
            heuristic,
            live: shared.live(),
            kept: shared.kept(),
            orphans: shared.orphans.load(Ordering::Relaxed),
        }
    }

    /// How long the phases of committed transactions took, since the start.
    #[must_use]
    pub fn phases(&self) -> Phases {
        let all = self.shared.lanes();
        let mut sum = Phases::default();
        all.iter().for_each(|lane| sum.add(lane.table().phases()));
        sum
    }

    /// Has resources asked now what they hold prepared, instead of at the next [`Options::recovery_interval`].
    pub fn recover_now(&self) {
        self.shared.recover_now.store(true, Ordering::SeqCst);
        self.shared.wake_recovery();
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
        self.shared.wake_recovery();
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

fn in_order(all: impl Iterator<Item = TransactionInfo>) -> Vec<TransactionInfo> {
    let mut all: Vec<_> = all.collect();
    all.sort_unstable_by_key(|info| info.tx);
    all
}

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
