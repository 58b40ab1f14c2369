//! Transactions over keys and databases, as connections use them.
//!
//! ```text
//!  TX.* on any loop -> Transactions -> SharedLane -> machines -> Keys (the store), databases (drivers' thread), decision log
//!                          ^------ outcome, by the lane's worker -> the connections that wait are woken
//! ```
//!
//! Invariants
//!   1. A loop waits for nothing here: what takes time parks the connection, and wakes it.
//!   2. A transaction belongs to no connection: whoever knows its identifier goes on with it.
//!   3. An outcome is told to all who ask for it, until it is forgotten ([`ENDED_MAX`]).
//!
//! | module | what |
//! |---|---|
//! | `answer` | what a statement came to |
//! | `chain` | statements that follow each other in one pipeline |
//! | `error` | why something is refused |
//! | `figures` | for INFO and metrics |
//! | `open` | from settings to a running coordinator |
//! | `keys` | the server's own keys as a resource |
//! | `summary` | what operators are told of a transaction beside its protocol |
//! | `stage` | TX.DO: a command that is staged |
//! | `staged` | such a command |
//! | `work` | what a branch of keys means to change |
//!
//! Out of scope: the protocol (`txn`), what a stage is (`store`).

pub(crate) mod answer;
pub(crate) mod chain;
pub(crate) mod error;
mod figures;
mod keys;
mod open;
pub(crate) mod stage;
pub(crate) mod staged;
mod summary;
pub(crate) mod work;

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use clock::{Clock, Nanos};
use sql::{AdoptError, Database, Drivers};
use txn::coordinator::{Coordinator, TransactionInfo};
use txn::id::{BranchId, NodeName, TxId};
use txn::lane::LaneError;
use txn::protocol::{self, BranchState, Misuse, Outcome};
use txn::resource::Unready;
use txn::shared_lane::SharedLane;

use crate::long::LongCommands;
use crate::message::Message;
use crate::peers::Connections;
use crate::settings::{KEYS, ResourceKind};
pub use error::TransactionsError;
pub(crate) use error::TxError;
pub use figures::{ResourceFigures, TransactionFigures};
pub use open::TransactionsOptions;

use chain::{Chain, Statements};
use keys::Keys;
use work::Work;

pub(crate) use keys::Stray;
pub(crate) use summary::Summary;

/// All transactions of a server.
#[derive(Debug)]
pub struct Transactions {
    node: NodeName,
    epoch: u32,
    /// Where decisions are kept, in words.
    log: String,
    databases: Vec<Named>,
    // In the order in which they end.
    lane: SharedLane,
    coordinator: Coordinator,
    _drivers: Option<Arc<Drivers>>,
    shared: Arc<Shared>,
    /// Until then a database that is not ready is waited for (`txn.start_wait`).
    starts_until: Nanos,
}

/// A database, as the settings name it.
#[derive(Debug)]
pub(crate) struct Named {
    pub(crate) name: Box<str>,
    pub(crate) kind: ResourceKind,
    pub(crate) database: Arc<dyn Database>,
}

/// What the lane's worker shares with the connections.
#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    keys: Arc<Keys>,
    peers: OnceLock<Weak<Connections>>,
}

#[derive(Debug, Default)]
struct State {
    live: HashMap<TxId, Live>,
    ended: HashMap<TxId, Outcome>,
    /// By age.
    order: VecDeque<TxId>,
    left: summary::Left,
}

/// A transaction that has not ended.
#[derive(Debug, Default)]
struct Live {
    /// Its end was chosen.
    ends: bool,
    /// Connections that wait for its outcome.
    waiting: Vec<u64>,
    summary: Summary,
}

/// What became of the wish to end a transaction.
#[derive(Debug)]
pub(crate) enum Ending {
    /// It has ended so, now or before.
    Ended(Outcome),
    /// It is on its way; the connection is woken.
    Waits,
}

/// What is known of a transaction.
#[derive(Debug)]
pub(crate) enum Known {
    /// It has not ended, or its decision is still kept.
    Live(TransactionInfo),
    /// It has ended.
    Ended(Outcome),
    /// Neither.
    Nothing,
}

impl Transactions {
    /// Begins a transaction for `client`.
    pub(crate) fn begin(&self, timeout: Duration, now: Nanos, client: &str) -> Result<TxId, LaneError> {
        let tx = self.lane.begin(timeout)?;
        let live = Live { summary: Summary::new(now, client), ..Live::default() };
        self.shared.state().live.insert(tx, live);
        // A time-out of some milliseconds may have ended it before it was noted.
        if self.coordinator.transaction(tx).is_none() {
            self.shared.state().live.remove(&tx);
        }
        Ok(tx)
    }

    /// The identifiers of the branches that `tx` may have in databases, by their names.
    pub(crate) fn branches(&self, tx: TxId) -> impl ExactSizeIterator<Item = (&str, String)> {
        let places = self.databases.iter().enumerate();
        places.map(move |(at, named)| (&*named.name, self.branch_id(tx, at as u16 + 1)))
    }

    /// The place and the database called `name`.
    pub(crate) fn database(&self, name: &[u8]) -> Option<(u16, &Named)> {
        let at = self.databases.iter().position(|named| named.name.as_bytes() == name)?;
        Some((at as u16 + 1, &self.databases[at]))
    }

    /// Names of all databases, for errors.
    pub(crate) fn names(&self) -> String {
        let names: Vec<&str> = self.databases.iter().map(|named| &*named.name).collect();
        if names.is_empty() { "none is in the settings file".to_owned() } else { names.join(", ") }
    }

    /// Whether the database at `place` is not ready and worth waiting for: the server has just started, and `tx` may still use it.
    pub(crate) fn may_become_ready(&self, tx: TxId, place: u16, now: Nanos) -> bool {
        now < self.starts_until
            && matches!(self.databases[usize::from(place) - 1].database.ready(), Err(Unready::Retry(_)))
            && self.check_active(tx).is_ok()
    }

    /// Adds the branch that the application prepares itself.
    pub(crate) fn adopt(
        &self,
        tx: TxId,
        place: u16,
        named: &Named,
        owner: Option<u64>,
    ) -> Result<BranchId, TxError> {
        self.check_active(tx)?;
        named.database.ready().map_err(AdoptError::from)?;
        named.database.adopt(SharedLane::branch(tx, place), owner)?;
        self.enlist(tx, place)
    }

    /// Runs statements one after the other, each in the branch of its database, and posts [`Message::Answered`] to connection `client`.
    ///
    /// # Errors
    /// Why the first is not run.
    pub(crate) fn run(
        self: &Arc<Self>,
        peers: &Arc<Connections>,
        clock: &Arc<dyn Clock>,
        client: u64,
        tx: TxId,
        statements: Statements,
    ) -> Result<(), TxError> {
        let chain = Chain::new(self, peers, clock, client, tx, statements);
        let branch = self.enlist(tx, chain.next_place().expect("there is a statement"))?;
        chain.begin_next(self, branch);
        Ok(())
    }

    /// What the branch of keys means to change, which begins with this.
    pub(crate) fn work(&self, tx: TxId) -> Result<Arc<Mutex<Work>>, TxError> {
        let branch = self.enlist(tx, KEYS_PLACE)?;
        let state = self.shared.state();
        match state.live.get(&tx) {
            Some(live) if !live.ends => Ok(self.shared.keys.work(branch)),
            _ => Err(TxError::Ending(tx)),
        }
    }

    /// A statement is run, in the resource at `place`.
    pub(crate) fn note(&self, tx: TxId, place: u16, text: &str) {
        let name = place.checked_sub(1).map_or(KEYS, |at| &self.databases[usize::from(at)].name);
        if let Some(live) = self.shared.state().live.get_mut(&tx) {
            live.summary.ran(name, text);
        }
    }

    /// What was noted of a transaction of this start that is under way, or was until lately.
    pub(crate) fn noted(&self, tx: TxId) -> Option<Summary> {
        let state = self.shared.state();
        state.live.get(&tx).map(|live| &live.summary).or_else(|| state.left.find(tx)).cloned()
    }

    /// Adds the branch of the resource at `place`, unless it is there.
    fn enlist(&self, tx: TxId, place: u16) -> Result<BranchId, TxError> {
        self.check_active(tx)?;
        match self.lane.enlist(tx, place) {
            Ok(branch) => Ok(branch),
            Err(LaneError::Misuse(Misuse::EnlistedBefore)) => Ok(SharedLane::branch(tx, place)),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether work may still be done in it.
    fn check_active(&self, tx: TxId) -> Result<(), TxError> {
        let state = self.shared.state();
        match (state.live.get(&tx), state.ended.get(&tx)) {
            (Some(live), _) if !live.ends => Ok(()),
            (Some(_), _) => Err(TxError::Ending(tx)),
            (None, Some(outcome)) => Err(TxError::Ended { tx, outcome: outcome.clone() }),
            (None, None) => Err(TxError::Unknown(tx)),
        }
    }

    /// Ends a transaction for connection `client`, which is woken when it has ended: commits it, or rolls it back because of a reason.
    /// One whose end was chosen before ends as it was chosen.
    pub(crate) fn end(&self, tx: TxId, client: u64, rollback: Option<&str>) -> Result<Ending, TxError> {
        let mut state = self.shared.state();
        if let Some(outcome) = state.ended.get(&tx) {
            return Ok(Ending::Ended(outcome.clone()));
        }
        let Some(live) = state.live.get_mut(&tx) else {
            drop(state);
            return self.ended_before(tx).ok_or(TxError::Unknown(tx));
        };
        if !live.waiting.contains(&client) {
            live.waiting.push(client);
        }
        if std::mem::replace(&mut live.ends, true) {
            return Ok(Ending::Waits);
        }
        drop(state);
        let done = match rollback {
            None => self.lane.commit(tx),
            Some(reason) => self.lane.rollback(tx, reason),
        };
        match done {
            // If its deadline came first, the outcome is on its way, or was told just now.
            Ok(()) | Err(LaneError::Misuse(_) | LaneError::Unknown(_)) => Ok(Ending::Waits),
            Err(error) => Err(error.into()),
        }
    }

    /// Leaves a transaction nothing but to roll back, because of a reason, unless its end was chosen.
    pub(crate) fn spoil(&self, tx: TxId, reason: &str) {
        let mut state = self.shared.state();
        let Some(live) = state.live.get_mut(&tx) else { return };
        if std::mem::replace(&mut live.ends, true) {
            return;
        }
        drop(state);
        // One that its deadline has ended in between is rolled back as well.
        let _ = self.lane.rollback(tx, shortened(reason));
    }

    /// How a transaction ended whose decision an earlier start has left, or that is no longer among the outcomes.
    fn ended_before(&self, tx: TxId) -> Option<Ending> {
        let info = self.coordinator.transaction(tx)?;
        let outcome = match info.state {
            protocol::State::Committing | protocol::State::Done => Outcome::Committed,
            protocol::State::Heuristic => Outcome::Heuristic(info.reason),
            protocol::State::InDoubt => Outcome::Unknown(info.reason),
            _ => return None,
        };
        Some(Ending::Ended(outcome))
    }

    /// The identifier of the branch of the resource at `place`.
    pub(crate) fn branch_id(&self, tx: TxId, place: u16) -> String {
        self.node.branch_id(SharedLane::branch(tx, place))
    }

    /// What is known of `tx`.
    pub(crate) fn known(&self, tx: TxId) -> Known {
        if let Some(info) = self.coordinator.transaction(tx) {
            return Known::Live(info);
        }
        self.shared.state().ended.get(&tx).map_or(Known::Nothing, |outcome| Known::Ended(outcome.clone()))
    }

    /// Resources of a committed transaction that have not carried it out yet, in words; empty if all have.
    pub(crate) fn laggards(&self, tx: TxId) -> String {
        let info = self.coordinator.transaction(tx);
        let branches = info.iter().flat_map(|info| &info.branches);
        let late = branches.filter(|branch| branch.state == BranchState::Committing);
        let names: Vec<&str> = late.map(|branch| &*branch.resource).collect();
        if names.is_empty() {
            return String::new();
        }
        format!("not carried out yet by {}, which will be asked until it is", names.join(", "))
    }

    /// Ends a branch of keys that no transaction here knows, as an operator says: one of a restored backup, of an epoch that is not of the
    /// log, or of another node.
    pub(crate) fn end_stray(&self, id: &str, commit: bool) -> Stray {
        let knows = |branch: BranchId| self.coordinator.transaction(branch.tx).is_some();
        if self.node.parse_branch_id(id).is_some_and(knows) {
            return Stray::Unknown;
        }
        self.shared.keys.end_stray(id, commit)
    }

    /// Whether [`Transactions::end_stray`] would end something.
    pub(crate) fn has_stray(&self, id: &str) -> bool {
        let knows = |branch: BranchId| self.coordinator.transaction(branch.tx).is_some();
        !self.node.parse_branch_id(id).is_some_and(knows) && self.shared.keys.holds(id)
    }

    /// The branch of keys of `tx`.
    pub(crate) fn keys_branch(&self, tx: TxId) -> String {
        self.branch_id(tx, KEYS_PLACE)
    }

    /// The transaction that `id`, the identifier of a branch, belongs to, if it is one of this server.
    pub(crate) fn transaction_of(&self, id: &str) -> Option<TxId> {
        self.node.parse_branch_id(id).map(|branch| branch.tx)
    }

    /// The coordinator: what operators do, and figures.
    pub(crate) fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// The transaction that the identifier of a branch of this server belongs to; other identifiers as they are.
    pub(crate) fn owner_of(&self, branch: &str) -> String {
        self.node.parse_branch_id(branch).map_or_else(|| branch.to_owned(), |branch| branch.tx.to_string())
    }

    /// Outcomes are told to these connections from now on, and what takes long is done beside the loops.
    pub(crate) fn attach(&self, peers: &Arc<Connections>, long: &Arc<LongCommands>) {
        self.shared.keys.attach(long);
        let attached = self.shared.peers.set(Arc::downgrade(peers));
        debug_assert!(attached.is_ok(), "attached twice");
    }

    /// The journal's hook: more is durable.
    pub(crate) fn on_advance(&self) {
        self.shared.keys.on_advance();
    }

    /// Ends: no transaction begins any more, and sessions of databases are closed, so that they roll back what is not prepared. What
    /// was decided is durable and goes on at the next start.
    pub fn close(&self) {
        self.lane.close();
        self.coordinator.close();
        self.databases.iter().for_each(|named| named.database.close());
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A transaction has ended; told by the lane's worker.
    fn told(&self, tx: TxId, outcome: Outcome) {
        let mut state = self.state();
        let mut live = state.live.remove(&tx).unwrap_or_default();
        state.left.keep(tx, std::mem::take(&mut live.summary));
        let outcome = match outcome {
            Outcome::Committed => Outcome::Committed,
            Outcome::Aborted(why) => Outcome::Aborted(shortened(&why).to_owned()),
            Outcome::Unknown(why) => Outcome::Unknown(shortened(&why).to_owned()),
            Outcome::Heuristic(why) => Outcome::Heuristic(shortened(&why).to_owned()),
        };
        state.ended.insert(tx, outcome);
        state.order.push_back(tx);
        if state.order.len() > ENDED_MAX
            && let Some(oldest) = state.order.pop_front()
        {
            state.ended.remove(&oldest);
        }
        drop(state);
        // None is made any more, see `Transactions::work`; to drop a large one takes a while.
        self.keys.forget_work(SharedLane::branch(tx, KEYS_PLACE));
        if let Some(peers) = self.peers.get().and_then(Weak::upgrade) {
            live.waiting.into_iter().for_each(|client| _ = peers.post(client, Message::Retry));
        }
    }
}

/// As much of a reason as is remembered: what clients and databases say may be long.
fn shortened(reason: &str) -> &str {
    &reason[..reason.floor_char_boundary(REASON_BYTES_MAX)]
}

/// What rows take in a reply, about.
pub(crate) fn rows_bytes(rows: &[Vec<Option<Vec<u8>>>]) -> usize {
    let values = rows.iter().flatten().map(|value| value.as_ref().map_or(0, Vec::len));
    rows.len() * 16 + values.map(|bytes| bytes + 16).sum::<usize>()
}

/// Keys are the first resource, databases follow.
pub(crate) const KEYS_PLACE: u16 = 0;
/// Outcomes that are remembered.
const ENDED_MAX: usize = 100_000;
const REASON_BYTES_MAX: usize = 1 << 10;
