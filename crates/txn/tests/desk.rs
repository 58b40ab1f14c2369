//! Transactions that begin on one thread and end on another.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod books;

use std::sync::{Arc, mpsc};
use std::time::Duration;

use books::{Books, Fate};
use clock::SystemClock;
use txn::coordinator::{Coordinator, Options, Started};
use txn::decision_log::volatile::Volatile;
use txn::desk::Desk;
use txn::id::{BranchId, NodeName, TxId};
use txn::lane::LaneError;
use txn::protocol::{Misuse, Outcome};
use txn::resource::Resource;
use txn::sql::Drivers;

const PATIENCE: Duration = Duration::from_secs(30);

struct World {
    books: [Arc<Books>; 2],
    coordinator: Coordinator,
    desk: Desk,
    told: mpsc::Receiver<(TxId, Outcome)>,
}

/// One whose desk has a thread, and one whose desk is turned by the databases' drivers.
fn both() -> [World; 2] {
    [open(None), open(Some(Drivers::start().unwrap()))]
}

fn open(drivers: Option<Arc<Drivers>>) -> World {
    let node = NodeName::new("n1").unwrap();
    let books = ["one", "two"].map(|name| Books::new(name, &node));
    let resources = books.iter().map(|books| Arc::clone(books) as Arc<dyn Resource>).collect();
    let log = Volatile::open(&node, 1);
    let started = Started { epoch: 1, records: Vec::new() };
    let options = Options::new(node);
    let coordinator =
        Coordinator::start(Arc::new(SystemClock), log.log, &started, resources, options).unwrap();
    let (tell, told) = mpsc::channel();
    let tell = move |tx, outcome| drop(tell.send((tx, outcome)));
    let desk = match drivers {
        Some(drivers) => Desk::open_on(&drivers, &coordinator, tell),
        None => Desk::open(&coordinator, tell).unwrap(),
    };
    World { books, coordinator, desk, told }
}

#[test]
fn transactions_of_many_threads_end_once_each() {
    for world in both() {
        std::thread::scope(|threads| {
            for _ in 0..8 {
                threads.spawn(|| {
                    for number in 0..200 {
                        let tx = world.desk.begin(PATIENCE).unwrap();
                        world.desk.enlist(tx, 0).unwrap();
                        world.desk.enlist(tx, 1).unwrap();
                        if number % 2 == 0 {
                            world.desk.commit(tx).unwrap();
                        } else {
                            world.desk.rollback(tx, "no more").unwrap();
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
}

#[test]
fn branch_is_known_before_it_is_enlisted_and_enlisted_once() {
    for world in both() {
        let tx = world.desk.begin(PATIENCE).unwrap();
        let branch = Desk::branch(tx, 1);
        assert_eq!(branch, BranchId { tx, branch: 1 });
        assert_eq!(world.desk.enlist(tx, 1), Ok(branch));
        assert_eq!(world.desk.enlist(tx, 1), Err(LaneError::Misuse(Misuse::EnlistedBefore)));
        assert_eq!(world.desk.enlist(tx, 2), Err(LaneError::NoResource(2)));
        assert!(world.desk.enlist(tx, 0).is_ok());
        world.desk.commit(tx).unwrap();
        assert_eq!(world.told.recv_timeout(PATIENCE).unwrap(), (tx, Outcome::Committed));
        assert_eq!(world.books[1].fate(branch), Some(Fate::Committed));
        assert_eq!(world.desk.commit(tx), Err(LaneError::Unknown(tx)));
    }
}

#[test]
fn resource_that_is_not_ready_says_so_at_enlistment() {
    let world = open(None);
    world.books[0].state().not_ready = Some("it has max_prepared_transactions = 0".to_owned());
    let tx = world.desk.begin(PATIENCE).unwrap();
    let error = world.desk.enlist(tx, 0).unwrap_err().to_string();
    assert_eq!(error, "resource one takes no branches: it has max_prepared_transactions = 0");
}

/// The desk sleeps until the first time that anybody waits for, which a new transaction may bring forward.
#[test]
fn transaction_without_an_end_is_rolled_back_in_time() {
    for world in both() {
        world.desk.begin(PATIENCE).unwrap();
        let tx = world.desk.begin(Duration::from_millis(1)).unwrap();
        let (told, outcome) = world.told.recv_timeout(PATIENCE).unwrap();
        assert_eq!(told, tx);
        assert!(matches!(outcome, Outcome::Aborted(_)), "{outcome:?}");
    }
}

/// The drivers' thread may be the one that lets go of a desk last: it must not wait for itself.
#[test]
fn desk_that_is_closed_tells_no_more_whoever_closes_it() {
    for is_there in [false, true] {
        let drivers = Drivers::start().unwrap();
        let World { coordinator, desk, told, .. } = open(Some(Arc::clone(&drivers)));
        let tx = desk.begin(PATIENCE).unwrap();
        if is_there {
            let (gone, is_gone) = mpsc::channel();
            drivers.handle().spawn(async move {
                drop(desk);
                gone.send(()).unwrap();
            });
            is_gone.recv_timeout(PATIENCE).unwrap();
        } else {
            drop(desk);
        }
        assert_eq!(told.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
        assert!(coordinator.transaction(tx).is_some(), "it is the keeper's now");
    }
}
