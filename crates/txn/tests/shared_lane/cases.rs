//! Transactions that begin on one thread and end on another, in a lane whose worker runs on `crate::host()`. Other crates' tests use this
//! file by its path.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../books/mod.rs"]
mod books;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use books::{Books, Fate};
use clock::SystemClock;
use txn::coordinator::{Coordinator, Options, Started};
use txn::decision_log::volatile::Volatile;
use txn::dummy::Dummy;
use txn::id::{BranchId, NodeName, TxId};
use txn::lane::LaneError;
use txn::protocol::{Misuse, Outcome, State};
use txn::resource::{Answer, Reply, Resource, Unready, Vote};
use txn::shared_lane::SharedLane;

const PATIENCE: Duration = Duration::from_secs(30);

struct World {
    books: [Arc<Books>; 2],
    coordinator: Coordinator,
    lane: SharedLane,
    told: Told,
}

fn open() -> World {
    let node = NodeName::new("n1").unwrap();
    let books = ["one", "two"].map(|name| Books::new(name, &node));
    let resources = books.each_ref().map(|books| Arc::clone(books) as Arc<dyn Resource>);
    let (coordinator, lane, told) = open_with(node, &resources);
    World { books, coordinator, lane, told }
}

type Told = mpsc::Receiver<(TxId, Outcome)>;

fn open_with(node: NodeName, resources: &[Arc<dyn Resource>; 2]) -> (Coordinator, SharedLane, Told) {
    let coordinator = start(node, resources.to_vec());
    let (tell, told) = mpsc::channel();
    let tell = move |tx, outcome| drop(tell.send((tx, outcome)));
    let lane = SharedLane::open(crate::host(), &coordinator, tell).unwrap();
    (coordinator, lane, told)
}

fn start(node: NodeName, resources: Vec<Arc<dyn Resource>>) -> Coordinator {
    let log = Volatile::open(&node, 1);
    let started = Started { epoch: 1, born: 1, records: Vec::new() };
    Coordinator::start(Arc::new(SystemClock), log.log, &started, resources, Options::new(node)).unwrap()
}

/// A resource that answers votes and commits when it is told to.
#[derive(Debug)]
struct Slow {
    dummy: Dummy,
    waiting: Mutex<Vec<(Reply, Answer)>>,
    /// Threads that had it prepare.
    askers: Mutex<BTreeSet<String>>,
}

impl Slow {
    fn new(name: &str) -> Arc<Self> {
        Arc::new(Self { dummy: Dummy::new(name), waiting: Mutex::default(), askers: Mutex::default() })
    }

    /// Answers the half that has waited longest: the others are under way still.
    fn answer(&self) {
        let mut waiting = self.waiting.lock().unwrap();
        let half = waiting.len().div_ceil(2);
        let half: Vec<_> = waiting.drain(..half).collect();
        drop(waiting);
        half.into_iter().for_each(|(reply, answer)| reply.answer(answer));
    }
}

impl Resource for Slow {
    fn name(&self) -> &str {
        self.dummy.name()
    }

    fn prepare(&self, _: BranchId, reply: Reply) {
        let asker = std::thread::current().name().unwrap_or_default().to_owned();
        self.askers.lock().unwrap().insert(asker);
        self.waiting.lock().unwrap().push((reply, Answer::Voted(Vote::Yes)));
    }

    fn commit(&self, _: BranchId, reply: Reply) {
        self.waiting.lock().unwrap().push((reply, Answer::Done));
    }

    fn commit_one_phase(&self, branch: BranchId, reply: Reply) {
        self.dummy.commit_one_phase(branch, reply);
    }

    fn rollback(&self, branch: BranchId, reply: Reply) {
        self.dummy.rollback(branch, reply);
    }

    fn recover(&self, reply: Reply) {
        self.dummy.recover(reply);
    }
}

/// Has commits gathered: 32 are under way, each time one ends another is begun, until `count` have ended; then those that are under way.
fn keep_busy(lane: &SharedLane, told: &Told, count: usize) -> BTreeSet<TxId> {
    let mut open: BTreeSet<TxId> = (0..32).map(|_| commit(lane)).collect();
    for _ in 0..count {
        end_one(&mut open, told);
        open.insert(commit(lane));
    }
    open
}

fn commit(lane: &SharedLane) -> TxId {
    let tx = lane.begin(PATIENCE).unwrap();
    for place in 0..2 {
        lane.enlist(tx, place).unwrap();
    }
    lane.commit(tx).unwrap();
    tx
}

fn end_one(open: &mut BTreeSet<TxId>, told: &Told) {
    let (tx, outcome) = told.recv_timeout(PATIENCE).unwrap();
    assert!(open.remove(&tx) && outcome == Outcome::Committed, "{tx}: {outcome:?}");
}

/// A shared lane over two slow resources, which answer every 10 ms.
#[allow(clippy::disallowed_methods, reason = "the databases of these tests are slow")]
fn with_slow(test: impl FnOnce(&Coordinator, &SharedLane, &Told, &Slow)) {
    let slow = [Slow::new("one"), Slow::new("two")];
    let resources = slow.each_ref().map(|slow| Arc::clone(slow) as Arc<dyn Resource>);
    let (coordinator, lane, told) = open_with(NodeName::new("n1").unwrap(), &resources);
    let (stop, stopped) = mpsc::channel::<()>();
    std::thread::scope(|threads| {
        threads.spawn(|| {
            let stopped = stopped;
            while stopped.recv_timeout(Duration::from_millis(10)) == Err(mpsc::RecvTimeoutError::Timeout) {
                slow.iter().for_each(|slow| slow.answer());
            }
        });
        let _stop = stop;
        test(&coordinator, &lane, &told, &slow[0]);
    });
}

/// Then the worker gathers commits, and begins them itself.
#[test]
fn commits_that_are_gathered_where_databases_are_slow_all_end() {
    with_slow(|_, lane, told, slow| {
        let mut open = keep_busy(lane, told, 600);
        // Fewer and fewer at the end: then nothing is gathered any more, and nothing left lying.
        while !open.is_empty() {
            end_one(&mut open, told);
        }
        let askers = slow.askers.lock().unwrap();
        assert!(askers.contains(crate::THREAD), "none was gathered: {askers:?}");
        // Known to be none before it would wait.
        let tx = lane.begin(PATIENCE).unwrap();
        lane.rollback(tx, "no more").unwrap();
        assert_eq!(told.recv_timeout(PATIENCE).unwrap().0, tx);
        assert_eq!(lane.commit(tx), Err(LaneError::Unknown(tx)));
    });
}

/// Its worker begins what it has gathered before it goes, and nothing is left for one that has gone.
#[test]
fn commit_is_begun_though_the_lane_is_closed() {
    with_slow(|coordinator, lane, told, _| {
        let mut open = keep_busy(lane, told, 200);
        lane.close();
        open.insert(commit(lane));
        // Those that have ended meanwhile are not there any more.
        let states = open.iter().filter_map(|tx| coordinator.transaction(*tx)).map(|info| info.state);
        assert_eq!(states.filter(|state| *state == State::Active).count(), 0);
    });
}

#[test]
fn transactions_of_many_threads_end_once_each() {
    let world = open();
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for number in 0..200 {
                    let tx = world.lane.begin(PATIENCE).unwrap();
                    world.lane.enlist(tx, 0).unwrap();
                    world.lane.enlist(tx, 1).unwrap();
                    if number % 2 == 0 {
                        world.lane.commit(tx).unwrap();
                    } else {
                        world.lane.rollback(tx, "no more").unwrap();
                    }
                }
            });
        }
    });
    let mut outcomes: Vec<_> = (0..1600).map(|_| world.told.recv_timeout(PATIENCE).unwrap()).collect();
    let committed = outcomes.iter().filter(|(_, outcome)| *outcome == Outcome::Committed).count();
    outcomes.sort_by_key(|(tx, _)| *tx);
    outcomes.dedup_by_key(|(tx, _)| *tx);
    assert_eq!((outcomes.len(), committed), (1600, 800));
    let fates = world.books[1].state().branches.values().filter(|fate| **fate == Fate::Committed).count();
    assert_eq!(fates, 800);
    let phases = world.coordinator.phases();
    assert_eq!((phases.prepare.count, phases.decide.count, phases.commit.count), (800, 800, 800));
}

#[test]
fn branch_is_known_before_it_is_enlisted_and_enlisted_once() {
    let world = open();
    let tx = world.lane.begin(PATIENCE).unwrap();
    let branch = SharedLane::branch(tx, 1);
    assert_eq!(branch, BranchId { tx, branch: 1 });
    assert_eq!(world.lane.enlist(tx, 1), Ok(branch));
    assert_eq!(world.lane.enlist(tx, 1), Err(LaneError::Misuse(Misuse::EnlistedBefore)));
    assert_eq!(world.lane.enlist(tx, 2), Err(LaneError::NoResource(2)));
    assert!(world.lane.enlist(tx, 0).is_ok());
    world.lane.commit(tx).unwrap();
    assert_eq!(world.told.recv_timeout(PATIENCE).unwrap(), (tx, Outcome::Committed));
    assert_eq!(world.books[1].fate(branch), Some(Fate::Committed));
    assert_eq!(world.lane.commit(tx), Err(LaneError::Unknown(tx)));
}

#[test]
fn resource_that_is_not_ready_says_so_at_enlistment() {
    let world = open();
    world.books[0].state().not_ready =
        Some(Unready::Setting("it has max_prepared_transactions = 0".to_owned()));
    let tx = world.lane.begin(PATIENCE).unwrap();
    let error = world.lane.enlist(tx, 0).unwrap_err().to_string();
    assert_eq!(error, "resource one takes no branches: it has max_prepared_transactions = 0");
}

/// The shared lane sleeps until the first time that anybody waits for, which a new transaction may bring forward.
#[test]
fn transaction_without_an_end_is_rolled_back_in_time() {
    let world = open();
    world.lane.begin(PATIENCE).unwrap();
    let tx = world.lane.begin(Duration::from_millis(1)).unwrap();
    let (told, outcome) = world.told.recv_timeout(PATIENCE).unwrap();
    assert_eq!(told, tx);
    assert!(matches!(outcome, Outcome::Aborted(_)), "{outcome:?}");
}

#[test]
fn lane_that_is_closed_tells_no_more() {
    let World { coordinator, lane, told, .. } = open();
    let tx = lane.begin(PATIENCE).unwrap();
    drop(lane);
    assert_eq!(told.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
    assert!(coordinator.transaction(tx).is_some(), "it is the recovery manager's now");
}

/// The thread of its worker may be the one that lets go of a shared lane last: it must not wait for itself.
#[test]
fn lane_is_closed_by_its_own_worker() {
    let node = NodeName::new("n1").unwrap();
    let coordinator = start(node, vec![Arc::new(Dummy::new("one"))]);
    let (kept, (gone, is_gone)) = (Arc::new(Mutex::new(None)), mpsc::channel());
    let closes = Arc::clone(&kept);
    let told = move |_, _| {
        drop(closes.lock().unwrap().take());
        gone.send(()).unwrap();
    };
    let lane = SharedLane::open(crate::host(), &coordinator, told).unwrap();
    let tx = lane.begin(PATIENCE).unwrap();
    let mut keeps = kept.lock().unwrap();
    keeps.insert(lane).rollback(tx, "no more").unwrap();
    drop(keeps);
    is_gone.recv_timeout(PATIENCE).unwrap();
    assert_eq!(is_gone.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
}
