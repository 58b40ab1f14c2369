//! What the lanes of a coordinator and its recovery manager share: log, resources, settings, and who has which transaction.
//!
//! Invariants
//!   1. Transactions under way are counted from [`Shared::admit`] to [`Shared::ended`], those of earlier starts apart.
//!   2. A lane's number is given away again only when all of its transactions have ended.
//!
//! Out of scope: what happens in a lane (`lane`), who starts and ends all of it (`coordinator`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::Clock;
use crossbeam_utils::CachePadded;

use crate::decision_log::DecisionLog;
use crate::event_count::EventCount;
use crate::id::{BranchId, NodeName, TxId};
use crate::inbox::{Inbox, Wake, lock};
use crate::lane::error::LaneError;
use crate::lane::inner::{LaneInner, Time, lane_of};
use crate::protocol::{Effect, Standing, Timing, Transaction};
use crate::resource::{Abilities, Resource};

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

/// Which start of a log it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epochs {
    /// Of this start.
    pub(crate) epoch: u32,
    /// Of the log's first one.
    pub(crate) born: u32,
}

impl Shared {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        log: Arc<dyn DecisionLog>,
        Epochs { epoch, born }: Epochs,
        resources: Vec<Arc<dyn Resource>>,
        options: Options,
    ) -> Self {
        Self {
            clock,
            log,
            resources: resources.into(),
            options,
            epoch,
            born,
            writing: CachePadded::default(),
            orphans: AtomicU64::new(0),
            ends: AtomicBool::new(false),
            recover_now: AtomicBool::new(false),
            live: CachePadded::default(),
            left: AtomicU64::new(0),
            kept: CachePadded::default(),
            lanes: Mutex::default(),
            event_count: Arc::default(),
        }
    }

    pub(crate) fn time(&self) -> Time {
        Time { now: self.clock.now(), wall: self.clock.unix_ms() }
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

    /// A decision is written, or was refused.
    pub(crate) fn end_write(&self) {
        let before = self.writing.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more writes of decisions ended than began");
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
    pub(crate) fn on_back(&self, resource: u16) {
        self.lanes().iter().for_each(|lane| lane.on_back(self, resource));
    }

    /// The lane that has `tx`: the one in which it began, or the recovery manager's, if it began before this start or is an orphan.
    pub(crate) fn lane_with(&self, tx: TxId) -> Option<Arc<LaneInner>> {
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

    /// A lane that nobody has.
    ///
    /// # Panics
    /// If there are 65,536 lanes.
    pub(crate) fn lane(&self) -> Arc<LaneInner> {
        let mut lanes = lock(&self.lanes);
        if let Some(index) = lanes.free.pop() {
            return Arc::clone(&lanes.all[usize::from(index)]);
        }
        let index = u16::try_from(lanes.all.len()).expect("65,536 lanes are more than threads");
        let inbox = Inbox::new(Wake::Nobody, Arc::clone(&self.event_count));
        let lane = Arc::new(LaneInner::new(index, inbox, &self.resources));
        lanes.all.push(Arc::clone(&lane));
        lane
    }

    /// All lanes, whoever has them.
    pub(crate) fn lanes(&self) -> Vec<Arc<LaneInner>> {
        lock(&self.lanes).all.clone()
    }

    /// Has the recovery manager look.
    pub(crate) fn wake_recovery(&self) {
        lock(&self.lanes).all[usize::from(RECOVERY_LANE)].inbox.wake();
    }

    /// Transactions that are under way, also of earlier starts.
    pub(crate) fn live(&self) -> u64 {
        self.live.load(Ordering::Relaxed) + self.left.load(Ordering::Relaxed)
    }

    /// Those that are done, and whose decision is kept.
    pub(crate) fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
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

/// The recovery manager's lane.
const RECOVERY_LANE: u16 = 0;
