//! Transactions through lanes: a coordinator with its recovery manager, over resources that keep books.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod books;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use books::{Books, Fate};
use clock::{Clock as _, SystemClock};
use txn::coordinator::{Coordinator, Options, Started};
use txn::decision_log::{Cycle, DecisionLog, LogCounters, LogError, Refused, Waiter};
use txn::dummy::Dummy;
use txn::id::{NodeName, TxId};
use txn::lane::{Lane, LaneError};
use txn::protocol::{Outcome, State};
use txn::resource::{Abilities, Resource};

const PATIENCE: Duration = Duration::from_secs(30);

/// A log in memory that can be told to fail, and is there after its coordinator.
#[derive(Debug, Default)]
struct TestLog(Mutex<Log>);

#[derive(Debug, Default)]
struct Log {
    records: Vec<(TxId, Vec<u8>)>,
    /// What writes come to.
    refuses: bool,
    /// So many have no room yet.
    busy: u32,
    fails: Option<LogError>,
    failed: bool,
    counters: LogCounters,
    /// How often somebody said that he waits.
    offers: u32,
}

impl DecisionLog for TestLog {
    fn write(&self, tx: TxId, record: &[u8], waiter: &Arc<dyn Waiter>) -> Result<Cycle, Refused> {
        let mut log = self.0.lock().unwrap();
        if log.refuses {
            return Err(Refused::Full("journal.buffer_max".to_owned()));
        }
        if log.busy > 0 {
            log.busy -= 1;
            return Err(Refused::Busy("journal.buffer_max".to_owned()));
        }
        let result = log.fails.clone().map_or(Ok(()), Err);
        log.failed |= matches!(result, Err(LogError::Unknown(_)));
        if !matches!(result, Err(LogError::Absent(_))) {
            log.records.retain(|(other, _)| *other != tx);
            log.records.push((tx, record.to_vec()));
            log.counters.records += 1;
        }
        drop(log);
        waiter.on_logged(tx, result);
        Ok(None)
    }

    fn remove(&self, tx: TxId) {
        let mut log = self.0.lock().unwrap();
        log.records.retain(|(other, _)| *other != tx);
        log.counters.removed += 1;
    }

    fn offer(&self) {
        self.0.lock().unwrap().offers += 1;
    }

    fn is_sound(&self) -> bool {
        !self.0.lock().unwrap().failed
    }

    fn counters(&self) -> LogCounters {
        self.0.lock().unwrap().counters
    }

    fn close(&self) {}
}

/// A node with two resources.
struct World {
    node: NodeName,
    log: Arc<TestLog>,
    books: [Arc<Books>; 2],
    epoch: u32,
}

impl World {
    fn new() -> Self {
        let node = NodeName::new("n1").unwrap();
        let books = ["one", "two"].map(|name| Books::new(name, &node));
        Self { node, log: Arc::default(), books, epoch: 0 }
    }

    fn start(&mut self) -> Coordinator {
        self.start_with(&mut |_| {})
    }

    fn start_with(&mut self, change: &mut dyn FnMut(&mut Options)) -> Coordinator {
        self.epoch += 1;
        let started =
            Started { epoch: self.epoch, born: 1, records: self.log.0.lock().unwrap().records.clone() };
        let resources = self.books.iter().map(|books| Arc::clone(books) as Arc<dyn Resource>).collect();
        let mut options = Options::new(self.node.clone());
        options.recovery_interval = Duration::from_millis(20);
        options.safety_interval = Duration::from_millis(50);
        change(&mut options);
        let log = Arc::clone(&self.log) as Arc<dyn DecisionLog>;
        Coordinator::start(Arc::new(SystemClock), log, &started, resources, options).unwrap()
    }

    /// Commits a transaction over both; what it came to, and what the resources made of it.
    fn transfer(&self, lane: &mut Lane) -> (Outcome, [Option<Fate>; 2]) {
        let tx = lane.begin(PATIENCE).unwrap();
        let branches = [lane.enlist(tx, 0).unwrap(), lane.enlist(tx, 1).unwrap()];
        let outcome = lane.commit_and_wait(tx).unwrap();
        (outcome, [self.books[0].fate(branches[0]), self.books[1].fate(branches[1])])
    }

    /// A node that has committed twenty transactions and keeps their decisions, where four may be under way.
    fn with_kept(&mut self) -> (Coordinator, Lane) {
        for books in &self.books {
            books.state().abilities.keep_decision_ms = 600_000;
        }
        let coordinator = self.start_with(&mut |options| options.transactions_max = 4);
        let mut lane = coordinator.lane();
        for _ in 0..20 {
            let (outcome, fates) = self.transfer(&mut lane);
            assert_eq!((outcome, fates), (Outcome::Committed, [Some(Fate::Committed); 2]));
        }
        (coordinator, lane)
    }

    fn records(&self) -> usize {
        self.log.0.lock().unwrap().records.len()
    }
}

#[test]
fn both_branches_commit_and_the_record_goes() {
    let mut world = World::new();
    let coordinator = world.start();
    let mut lane = coordinator.lane();
    for _ in 0..3 {
        assert_eq!(world.transfer(&mut lane), (Outcome::Committed, [Some(Fate::Committed); 2]));
    }
    let log = coordinator.log_counters();
    assert_eq!((log.records, log.removed, world.records()), (3, 3, 0));
    assert!(lane.is_empty() && coordinator.transactions(None, usize::MAX).is_empty());
    assert_eq!(coordinator.counters().committed, 3);
}

#[test]
fn one_no_rolls_all_back_and_writes_nothing() {
    let mut world = World::new();
    let coordinator = world.start();
    world.books[1].state().refuses = true;
    let (outcome, fates) = world.transfer(&mut coordinator.lane());
    assert!(matches!(&outcome, Outcome::Aborted(why) if why.contains("out of stock")), "{outcome:?}");
    world.books[0].wait_until(|books| books.calls[2] == 1);
    assert!(matches!(fates[0], Some(Fate::Prepared | Fate::RolledBack)));
    assert_eq!(coordinator.log_counters().records, 0);
}

#[test]
fn branches_that_only_read_need_no_record() {
    let mut world = World::new();
    let coordinator = world.start();
    world.books.iter().for_each(|books| books.state().reads = true);
    assert_eq!(world.transfer(&mut coordinator.lane()), (Outcome::Committed, [None; 2]));
    assert_eq!(coordinator.log_counters().records, 0);
}

#[test]
fn single_branch_commits_in_one_phase() {
    let mut world = World::new();
    let coordinator = world.start();
    let mut lane = coordinator.lane();
    let tx = lane.begin(PATIENCE).unwrap();
    let branch = lane.enlist(tx, 1).unwrap();
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(
        (world.books[1].fate(branch), world.books[1].state().calls),
        (Some(Fate::Committed), [0, 1, 0])
    );
    assert_eq!(coordinator.log_counters().records, 0);
}

#[test]
fn log_without_room_aborts() {
    let mut world = World::new();
    let coordinator = world.start();
    world.log.0.lock().unwrap().refuses = true;
    let (outcome, _) = world.transfer(&mut coordinator.lane());
    assert!(matches!(&outcome, Outcome::Aborted(why) if why.contains("journal.buffer_max")), "{outcome:?}");
}

/// Beside two cores that compiled, transactions of `bench tx --threads 2 --logical 400` were rolled back because the journal's next file
/// was not ready yet.
#[test]
fn decision_for_which_there_is_no_room_yet_is_written_again() {
    let mut world = World::new();
    let coordinator = world.start();
    world.log.0.lock().unwrap().busy = 3;
    let (outcome, fates) = world.transfer(&mut coordinator.lane());
    assert_eq!((outcome, fates), (Outcome::Committed, [Some(Fate::Committed); 2]));
    assert_eq!(world.log.0.lock().unwrap().busy, 0);
    world.log.0.lock().unwrap().busy = u32::MAX;
    let (outcome, _) = world.transfer(&mut coordinator.lane());
    assert!(matches!(&outcome, Outcome::Aborted(why) if why.contains("journal.buffer_max")), "{outcome:?}");
}

#[test]
fn decision_that_may_be_on_disk_is_never_said_to_be_aborted() {
    let mut world = World::new();
    let coordinator = world.start();
    world.log.0.lock().unwrap().fails = Some(LogError::Unknown("EIO".to_owned()));
    let mut lane = coordinator.lane();
    let (outcome, fates) = world.transfer(&mut lane);
    assert!(matches!(&outcome, Outcome::Unknown(why) if why.contains("EIO")), "{outcome:?}");
    assert_eq!(fates, [Some(Fate::Prepared); 2]);
    assert!(matches!(lane.begin(PATIENCE), Err(LaneError::Closed(_))));
    assert_eq!(coordinator.transactions(None, usize::MAX)[0].state, State::InDoubt);
    drop(lane);
    coordinator.close();
    // It was on disk: the next start commits it.
    world.log.0.lock().unwrap().fails = None;
    world.log.0.lock().unwrap().failed = false;
    let coordinator = world.start();
    for books in &world.books {
        books.wait_until(|books| books.branches.values().all(|fate| *fate == Fate::Committed));
    }
    while !coordinator.transactions(None, usize::MAX).is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(world.records(), 0);
}

#[test]
fn branch_that_does_not_answer_now_commits_later_without_its_thread() {
    let mut world = World::new();
    let coordinator = world.start_with(&mut |options| {
        options.timing.retry_least = Duration::from_millis(1);
        options.timing.retry_most = Duration::from_millis(5);
        options.timing.answer_max = Duration::from_millis(50);
    });
    let mut lane = coordinator.lane();
    let tx = lane.begin(PATIENCE).unwrap();
    lane.enlist(tx, 0).unwrap();
    lane.enlist(tx, 1).unwrap();
    world.books[1].state().fails = 20;
    lane.commit(tx).unwrap();
    let mut told = Vec::new();
    lane.turn(&mut told);
    drop(lane);
    world.books[1].wait_until(|books| books.branches.values().all(|fate| *fate == Fate::Committed));
    while coordinator.counters().live > 0 {
        std::thread::yield_now();
    }
    assert_eq!(world.records(), 0);
    // The number of the lane is free again, and its transactions are others.
    assert_ne!(coordinator.lane().begin(PATIENCE).unwrap(), tx);
}

#[test]
fn orphan_of_this_node_is_rolled_back_and_nothing_else() {
    let mut world = World::new();
    let others = ["evk_n2_1_1_0", "evk_n11_1_1_0", "somebody", "evk_n1_1_1_0_"];
    let orphan = "evk_n1_1_7_0";
    for id in others.iter().chain([&orphan]) {
        world.books[0].state().branches.insert((*id).to_owned(), Fate::Prepared);
    }
    let coordinator = world.start();
    // One that is under way is left alone, however long it takes.
    let mut lane = coordinator.lane();
    let tx = lane.begin(PATIENCE).unwrap();
    let live = world.node.branch_id(lane.enlist(tx, 0).unwrap());
    world.books[0].state().branches.insert(live.clone(), Fate::Prepared);
    world.books[0].wait_until(|books| books.branches[orphan] == Fate::RolledBack);
    while coordinator.counters().orphans == 0 {
        std::thread::yield_now();
    }
    let state = world.books[0].state();
    assert!(
        others.iter().chain([&live.as_str()]).all(|id| state.branches[*id] == Fate::Prepared),
        "{state:?}"
    );
}

#[test]
fn nothing_is_presumed_while_the_log_is_not_sound() {
    let mut world = World::new();
    world.books[0].state().branches.insert("evk_n1_1_7_0".to_owned(), Fate::Prepared);
    world.log.0.lock().unwrap().failed = true;
    let coordinator = world.start();
    // The recovery manager asks every 20 ms, and believes what it has seen for 50 ms: in the tenth pass it would have acted.
    world.books[0].wait_until(|books| books.asked >= 10);
    assert_eq!(world.books[0].state().branches["evk_n1_1_7_0"], Fate::Prepared);
    assert_eq!(coordinator.counters().orphans, 0);
}

#[test]
fn last_resource_decides() {
    let mut world = World::new();
    world.books[1].state().abilities = Abilities { prepares: false, ..Abilities::default() };
    let coordinator = world.start();
    assert_eq!(world.transfer(&mut coordinator.lane()), (Outcome::Committed, [Some(Fate::Committed); 2]));
    assert_eq!(world.books[1].state().calls, [0, 1, 0], "it was never asked to prepare");
}

#[test]
fn one_transaction_too_many_is_refused_and_the_next_is_not() {
    let mut world = World::new();
    let coordinator = world.start_with(&mut |options| options.transactions_max = 2);
    let mut lane = coordinator.lane();
    let first = lane.begin(PATIENCE).unwrap();
    lane.begin(PATIENCE).unwrap();
    assert_eq!(lane.begin(PATIENCE), Err(LaneError::TooMany(2)));
    lane.rollback(first, "changed my mind").unwrap();
    let mut told = Vec::new();
    while told.is_empty() {
        lane.turn(&mut told);
    }
    assert_eq!(told, [(first, Outcome::Aborted("changed my mind".to_owned()))]);
    assert!(lane.begin(PATIENCE).is_ok());
}

#[test]
fn transaction_that_nobody_ends_rolls_back_by_itself() {
    let mut world = World::new();
    let coordinator = world.start();
    let mut lane = coordinator.lane();
    let tx = lane.begin(Duration::from_millis(20)).unwrap();
    lane.enlist(tx, 0).unwrap();
    let mut told = Vec::new();
    while told.is_empty() {
        lane.wait();
        lane.turn(&mut told);
    }
    assert!(matches!(&told[..], [(it, Outcome::Aborted(_))] if *it == tx), "{told:?}");
    world.books[0].wait_until(|books| books.calls[2] > 0);
}

#[test]
fn many_threads_commit_beside_each_other_under_numbers_of_their_own() {
    let mut world = World::new();
    let coordinator = world.start();
    let all = Mutex::new(std::collections::BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..50 {
            scope.spawn(|| {
                let mut lane = coordinator.lane();
                for _ in 0..20 {
                    let tx = lane.begin(PATIENCE).unwrap();
                    lane.enlist(tx, 0).unwrap();
                    lane.enlist(tx, 1).unwrap();
                    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
                    assert!(all.lock().unwrap().insert(tx), "{tx} twice");
                }
            });
        }
    });
    assert_eq!((all.into_inner().unwrap().len(), world.records()), (1_000, 0));
}

/// A lane of hundreds of clients told the log of their decisions when it had dealt with all of them: lane and disk took turns.
#[test]
fn lane_that_decides_many_in_a_row_tells_the_log_before_it_rests() {
    let log = Arc::new(TestLog::default());
    let resources = ["one", "two"].map(|name| Arc::new(Dummy::new(name)) as Arc<dyn Resource>);
    let started = Started { epoch: 1, born: 1, records: Vec::new() };
    let options = Options::new(NodeName::new("n1").unwrap());
    let shared = Arc::clone(&log) as Arc<dyn DecisionLog>;
    let clock = Arc::new(SystemClock);
    let coordinator = Coordinator::start(clock, shared, &started, resources.into(), options).unwrap();
    let offers = |many: usize| {
        let before = log.0.lock().unwrap().offers;
        let mut lane = coordinator.lane();
        for _ in 0..many {
            let tx = lane.begin(PATIENCE).unwrap();
            lane.enlist(tx, 0).unwrap();
            lane.enlist(tx, 1).unwrap();
            lane.commit(tx).unwrap();
        }
        let mut finished = Vec::new();
        while finished.len() < many {
            lane.turn(&mut finished);
        }
        log.0.lock().unwrap().offers - before
    };
    assert_eq!(offers(100), 0, "few are told of when it rests");
    assert_eq!(offers(400), 3);
}

/// A minute of decisions that are kept for a database which may lose what it acknowledged was as many as may be under way: no more
/// than 1,090 a second could commit.
#[test]
fn decisions_that_are_only_kept_are_not_under_way() {
    let mut world = World::new();
    let (coordinator, mut lane) = world.with_kept();
    let counters = coordinator.counters();
    assert_eq!((counters.live, counters.kept), (0, 20));
    assert_eq!(
        (coordinator.transactions(None, usize::MAX), coordinator.kept(usize::MAX).len()),
        (Vec::new(), 20)
    );
    let all = coordinator.kept(usize::MAX);
    assert!(all.iter().all(|info| info.state == State::Done) && all.is_sorted_by_key(|info| info.tx));
    // A list that was made before a branch committed may have had it asked again: which three ended last is not sure here.
    let three = coordinator.kept(3);
    assert!(three.len() == 3 && three.iter().all(|info| all.contains(info)), "{three:?}");
    // A database lists a branch that it had committed: it is asked again, and its decision is kept for as long again.
    let again = all[0].branches[0].id.clone();
    *world.books[0].state().branches.get_mut(&again).unwrap() = Fate::Prepared;
    let begun = SystemClock.now();
    while world.books[0].state().branches[&again] != Fate::Committed || coordinator.counters().live > 0 {
        assert!(SystemClock.now().since(begun) < PATIENCE, "it is not asked again");
        lane.turn(&mut Vec::new());
        std::thread::yield_now();
    }
    let after: Vec<TxId> = coordinator.kept(usize::MAX).iter().map(|info| info.tx).collect();
    assert_eq!(after, all.iter().map(|info| info.tx).collect::<Vec<_>>(), "each once");
    assert_eq!(coordinator.kept(1)[0].tx, all[0].tx, "it ended last");
    assert_eq!(coordinator.states(), [(State::Done, 20)].into());
}

/// They may be more than may be under way, and wait for a database that is down.
#[test]
fn decisions_that_an_earlier_start_left_bar_no_transaction() {
    let mut world = World::new();
    let (coordinator, lane) = world.with_kept();
    drop(lane);
    coordinator.close();
    world.books[1].state().is_mute = true;
    let coordinator = world.start_with(&mut |options| options.transactions_max = 4);
    let mut lane = coordinator.lane();
    assert_eq!(coordinator.counters().live, 20);
    let begun: Vec<TxId> = (0..4).map(|_| lane.begin(PATIENCE).unwrap()).collect();
    assert_eq!((begun.len(), lane.begin(PATIENCE)), (4, Err(LaneError::TooMany(4))));
}

#[test]
fn lists_of_transactions_are_cut_at_those_that_began_first() {
    let mut world = World::new();
    let coordinator = world.start_with(&mut |_| {});
    let mut lane = coordinator.lane();
    let all: Vec<TxId> = (0..20).map(|_| lane.begin(Duration::from_secs(60)).unwrap()).collect();
    for (state, most, told) in [
        (None, 3, &all[..3]),
        (Some(State::Active), 19, &all[..19]),
        (Some(State::Active), 20, &all[..]),
        (Some(State::InDoubt), 20, &[]),
    ] {
        let listed: Vec<TxId> = coordinator.transactions(state, most).iter().map(|info| info.tx).collect();
        assert_eq!(listed, told, "{state:?} {most}");
    }
}

#[test]
fn kept_decision_goes_when_its_time_has_come() {
    let mut world = World::new();
    for books in &world.books {
        books.state().abilities.keep_decision_ms = 50;
    }
    let coordinator = world.start();
    let mut lane = coordinator.lane();
    assert_eq!(world.transfer(&mut lane).0, Outcome::Committed);
    let begun = SystemClock.now();
    while !lane.is_empty() {
        assert!(SystemClock.now().since(begun) < PATIENCE, "it is still kept");
        lane.turn(&mut Vec::new());
        lane.wait();
    }
    assert_eq!((coordinator.counters().kept, world.log.0.lock().unwrap().records.len()), (0, 0));
}
