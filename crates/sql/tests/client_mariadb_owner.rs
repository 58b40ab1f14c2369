//! Branches of MariaDB that an application prepared: how the session that holds one is known, and what is waited for before it ends.
//!
//! XA COMMIT elsewhere is acknowledged and lost from when the session has let go of the identifier until the engine has let go of the
//! transaction. A debugger (`gdb`) holds a session there, which needs the right to attach to a process.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test fails by panicking, and starts a debugger"
)]

#[path = "common/mariadb.rs"]
mod mariadb;
mod mariadb_bench;

use std::process::{Command, Stdio};
use std::sync::mpsc;

use mariadb::MariaDb as Server;
use mariadb_bench::{App, Bench, PATIENCE, branch, wait_until};
use sql::Database;
use txn::id::{BranchId, NODE_NAME_BYTES_MAX, NodeName, TxId};
use txn::resource::{Answer, Ask, Vote};

/// A server of the test's own, with a table `t`.
struct World {
    server: Server,
    database: String,
    bench: Bench,
    root: App,
}

impl World {
    fn start() -> Option<Self> {
        let server = Server::start(&[])?;
        let database = server.database();
        server.sql(&format!(
            "CREATE TABLE {database}.t (id BIGINT PRIMARY KEY, v BIGINT NOT NULL) ENGINE=InnoDB"
        ));
        let bench = Bench::new(&server.url(&database));
        let root = App::connect(&server.root_url(&database));
        Some(Self { server, database, bench, root })
    }

    fn app(&self) -> App {
        App::connect(&self.server.url(&self.database))
    }

    fn rows(&self) -> String {
        self.server.sql(&format!("SELECT id FROM {}.t ORDER BY id", self.database))
    }

    fn holder(&mut self, branch: BranchId) -> Option<u64> {
        let id = self.bench.id(branch);
        self.root.value(&format!("SELECT IS_USED_LOCK('{id}')"))
    }

    fn is_listed(&mut self, session: u64) -> bool {
        let count = format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {session}");
        self.root.value(&count) == Some(1)
    }

    /// What the engine has kept, and still holds prepared: a commit that was lost shows after a crash.
    fn after_a_crash(&mut self) -> (String, String) {
        // A rollback is on disk with what comes behind it.
        self.server.sql(&format!("CREATE TABLE {}.flushes (id INT) ENGINE=InnoDB", self.database));
        self.server.kill();
        self.server.run(&[]);
        (self.rows(), self.server.sql("XA RECOVER"))
    }
}

fn insert(row: u64) -> String {
    format!("INSERT INTO t VALUES ({row}, 0)")
}

#[test]
fn session_that_holds_the_lock_of_its_branch_is_the_owner() {
    let Some(mut world) = World::start() else { return };
    let [committed, rolled_back, alone, late] = [(); 4].map(|()| branch());
    for (row, branch) in [committed, rolled_back, alone].into_iter().enumerate() {
        let (mut app, id) = (world.app(), world.bench.id(branch));
        app.lock(&id);
        world.bench.db.adopt(branch, None).unwrap();
        app.prepare_locked(&id, &insert(row as u64));
        if branch != alone {
            assert_eq!(world.bench.ask(branch, Ask::Prepare), Answer::Voted(Vote::Yes));
        }
        app.close();
    }
    assert_eq!(world.bench.ask(committed, Ask::Commit), Answer::Done);
    assert_eq!(world.bench.ask(rolled_back, Ask::Rollback), Answer::Done);
    assert_eq!(world.bench.ask(alone, Ask::CommitOnePhase), Answer::Done);
    // Enlisted when its session had gone: the qualifier tells that there was a lock.
    let (mut app, id) = (world.app(), world.bench.id(late));
    app.lock(&id);
    app.prepare_locked(&id, &insert(3));
    app.close();
    world.bench.db.adopt(late, None).unwrap();
    assert_eq!(world.bench.ask(late, Ask::Prepare), Answer::Voted(Vote::Yes));
    assert_eq!(world.bench.ask(late, Ask::Commit), Answer::Done);
    assert_eq!(world.after_a_crash(), ("0\n2\n3".to_owned(), String::new()));
}

#[test]
fn branch_without_lock_and_owner_and_owner_who_does_not_hold_the_lock_are_refused() {
    let Some(mut world) = World::start() else { return };
    let [nobodys, anothers] = [(); 2].map(|()| branch());
    let mut app = world.app();
    app.prepare(&world.bench.id(nobodys), &insert(1));
    world.bench.db.adopt(nobodys, None).unwrap();
    let vote = world.bench.ask(nobodys, Ask::Prepare);
    assert!(
        matches!(&vote, Answer::Voted(Vote::No(why)) if why.contains("GET_LOCK") && why.contains("CONNECTION_ID()")),
        "{vote:?}"
    );
    let (mut app, id) = (world.app(), world.bench.id(anothers));
    app.lock(&id);
    let holder = app.prepare_locked(&id, &insert(2));
    world.bench.db.adopt(anothers, Some(holder + 1)).unwrap();
    let vote = world.bench.ask(anothers, Ask::Prepare);
    let says = format!("OWNER is {}, but session {holder} holds the lock", holder + 1);
    assert!(matches!(&vote, Answer::Voted(Vote::No(why)) if why.contains(&says)), "{vote:?}");
    assert_eq!(world.holder(anothers), Some(holder), "it was not touched");
}

/// A session that nobody knows is not killed, and everybody's is waited for: the lock tells whose it is, also to a later start.
#[test]
fn session_that_holds_the_lock_is_closed_for_the_end_also_after_a_restart_of_the_coordinator() {
    let Some(mut world) = World::start() else { return };
    let [committed, rolled_back] = [(); 2].map(|()| branch());
    // Another application is in a branch all the while: nobody waits for it.
    let mut other = world.app();
    let stays = other.prepare("other", &insert(9));
    let mut apps = Vec::new();
    for (row, branch) in [committed, rolled_back].into_iter().enumerate() {
        let (mut app, id) = (world.app(), world.bench.id(branch));
        app.lock(&id);
        app.prepare_locked(&id, &insert(row as u64));
        apps.push(app);
    }
    let successor = world.bench.successor();
    successor.ask_until_done(committed, Ask::Commit);
    successor.ask_until_done(rolled_back, Ask::Rollback);
    assert!(apps.iter_mut().all(|app| app.sql("SELECT 1").is_err()), "they were killed");
    assert!(world.is_listed(stays));
    other.sql("XA ROLLBACK 'other'").unwrap();
    assert_eq!(world.after_a_crash(), ("0".to_owned(), String::new()));
}

/// The lock is free then, and the session lives: XA COMMIT elsewhere would be lost each time.
#[test]
fn branch_whose_session_was_reset_ends_after_the_session() {
    let Some(mut world) = World::start() else { return };
    let [locked, named] = [(); 2].map(|()| branch());
    let (mut app, id) = (world.app(), world.bench.id(locked));
    app.lock(&id);
    world.bench.db.adopt(locked, None).unwrap();
    app.prepare_locked(&id, &insert(1));
    assert_eq!(world.bench.ask(locked, Ask::Prepare), Answer::Voted(Vote::Yes));
    app.reset();
    assert_eq!(world.holder(locked), None);
    world.bench.ask_until_done(locked, Ask::Commit);
    assert!(app.sql("SELECT 1").is_err(), "it was killed");
    let mut app = world.app();
    let owner = app.prepare(&world.bench.id(named), &insert(2));
    world.bench.db.adopt(named, Some(owner)).unwrap();
    assert_eq!(world.bench.ask(named, Ask::Prepare), Answer::Voted(Vote::Yes));
    app.reset();
    world.bench.ask_until_done(named, Ask::Commit);
    assert_eq!(world.after_a_crash(), ("1\n2".to_owned(), String::new()));
}

#[test]
fn longest_identifier_is_a_name_of_a_lock() {
    let Some(mut world) = World::start() else { return };
    let node = NodeName::new(&"n".repeat(NODE_NAME_BYTES_MAX)).unwrap();
    let longest =
        node.branch_id(BranchId { tx: TxId { epoch: u32::MAX, number: u64::MAX }, branch: u16::MAX });
    world.root.lock(&longest);
}

#[test]
fn end_waits_for_a_session_that_is_held_in_its_teardown() {
    for whose in [Whose::Holder, Whose::Owner, Whose::Here] {
        let Some(world) = World::start() else { return };
        if held_in_its_teardown(world, whose).is_none() {
            return;
        }
    }
}

/// As a later start finds them, which knows of no session.
#[test]
fn end_after_a_restart_waits_for_a_session_that_is_held_in_its_teardown() {
    for whose in [Whose::HolderBefore, Whose::HolderCloses, Whose::HereBefore, Whose::NobodyKnows] {
        let Some(world) = World::start() else { return };
        if held_in_its_teardown(world, whose).is_none() {
            return;
        }
    }
}

/// Whose session is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Holder,
    Owner,
    Here,
    HolderBefore,
    /// As [`Self::HolderBefore`], closed instead of killed, and held earlier: it is in the list of processes still.
    HolderCloses,
    HereBefore,
    NobodyKnows,
}

fn held_in_its_teardown(mut world: World, whose: Whose) -> Option<()> {
    let branch = branch();
    let (mut app, id) = (world.app(), world.bench.id(branch));
    let (asked, session) = match whose {
        Whose::Here | Whose::HereBefore => {
            let row = insert(1);
            world.bench.run(branch, &row).unwrap();
            let session = world.bench.value(branch, "SELECT CONNECTION_ID()").parse().unwrap();
            (true, session)
        }
        Whose::Holder | Whose::HolderBefore | Whose::HolderCloses => {
            app.lock(&id);
            (whose == Whose::Holder, app.prepare_locked(&id, &insert(1)))
        }
        Whose::Owner | Whose::NobodyKnows => (whose == Whose::Owner, app.prepare(&id, &insert(1))),
    };
    match whose {
        Whose::Holder => world.bench.db.adopt(branch, None).unwrap(),
        Whose::Owner => world.bench.db.adopt(branch, Some(session)).unwrap(),
        _ => {}
    }
    if asked {
        assert_eq!(world.bench.ask(branch, Ask::Prepare), Answer::Voted(Vote::Yes), "{whose:?}");
    }
    let successor = world.bench.successor();
    let closes = whose == Whose::HolderCloses;
    let hold = Hold::sessions_that_end(&world.server, if closes { LOCKS_FREE } else { NOT_LISTED })?;
    if closes {
        app.close();
    } else {
        world.root.sql(&format!("KILL {session}")).unwrap();
    }
    wait_until("it is held", || (world.holder(branch), world.is_listed(session)) == (None, closes));
    let engine = format!("MariaDB thread id {session},");
    assert!(world.root.monitor().contains(&engine), "only the engine shows it");
    let bench = if asked && whose != Whose::HereBefore { &world.bench } else { &successor };
    let looks = |root: &mut App| {
        root.value(
            "SELECT CAST(VARIABLE_VALUE AS UNSIGNED) FROM information_schema.GLOBAL_STATUS \
             WHERE VARIABLE_NAME = 'COM_SHOW_ENGINE_STATUS'",
        )
        .unwrap()
    };
    let before = looks(&mut world.root);
    let answer = bench.begin(branch, Ask::Commit);
    let mut early = None;
    wait_until("it looks at the engine more than once", || {
        early = answer.try_recv().ok();
        early.is_some() || looks(&mut world.root) > before + 2
    });
    assert_eq!(early, None, "{whose:?}: it did not wait");
    hold.release();
    end(bench, branch, &answer);
    assert_eq!(world.after_a_crash(), ("1".to_owned(), String::new()), "{whose:?}");
    Some(())
}

/// Waits for the answer, and asks on if the first attempt was given up.
fn end(bench: &Bench, branch: BranchId, answer: &mpsc::Receiver<Answer>) {
    if answer.recv_timeout(PATIENCE).unwrap() != Answer::Done {
        bench.ask_until_done(branch, Ask::Commit);
    }
}

/// Holds sessions that end where all but the engine has let go of them: a debugger has put a jump to itself at the start of a function,
/// and is gone. (One that stays, and has the thread call something while others go on, loses its hold when they begin or end threads: with
/// some processors gdb 13 cannot write their registers back.)
struct Hold {
    process: u32,
    place: &'static str,
    original: u16,
}

impl Hold {
    /// From now on. `None`, with a word about it, where there is no debugger, or it may not attach, and none is required.
    fn sessions_that_end(server: &Server, place: &'static str) -> Option<Self> {
        let look = format!("printf \"it was %u.\\n\", *(unsigned short*)&{place}");
        let Some(said) = debug(server.id(), &[&look, &store(place, JUMP_TO_ITSELF)]) else {
            return no_debugger("is not installed");
        };
        let original = said.split_once("it was ").and_then(|(_, rest)| rest.split_once('.'));
        match original.and_then(|(number, _)| number.parse().ok()) {
            Some(original) => Some(Self { process: server.id(), place, original }),
            None => no_debugger("may not attach to a process of another user"),
        }
    }

    fn release(self) {
        debug(self.process, &[&store(self.place, self.original)]);
    }
}

/// What a debugger says that does this to a process, and leaves it.
fn debug(process: u32, commands: &[&str]) -> Option<String> {
    let mut gdb = Command::new("gdb");
    gdb.args(["-nx", "-batch", "-p", &process.to_string()]);
    commands.iter().for_each(|command| _ = gdb.args(["-ex", command]));
    let output = gdb.stdin(Stdio::null()).output().ok()?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Sets the first bytes of a function.
fn store(place: &str, bytes: u16) -> String {
    format!("set *(unsigned short*)&{place} = {bytes}")
}

fn no_debugger(why: &str) -> Option<Hold> {
    let may_skip = std::env::var_os("EVENKEEL_SKIP_CLIENTS").is_some();
    assert!(may_skip, "gdb {why}; EVENKEEL_SKIP_CLIENTS=1 skips what needs it");
    eprintln!("skipped: gdb {why}");
    None
}

/// Where the server goes on when it has released a session's user locks.
const LOCKS_FREE: &str = "'Statement_map::reset()'";
/// Where it tells the engine, after it took the session out of the list of processes.
const NOT_LISTED: &str = "ha_close_connection";
/// `jmp .` of x86-64.
const JUMP_TO_ITSELF: u16 = 0xFEEB;
