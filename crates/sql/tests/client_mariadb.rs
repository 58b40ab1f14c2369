//! MariaDB as a resource, against a real one: what it promises as a resource, and each trap that the server lays.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

#[path = "common/mariadb.rs"]
mod mariadb;
mod mariadb_bench;

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use mariadb::MariaDb as Server;
use mariadb_bench::{App, Bench, PATIENCE, branch, options, timing, wait_until};
use sql::mariadb::MariaDb;
use sql::{AdoptError, Answered, Database, DatabaseOptions, Drivers, Sessions, StartError, StatementError};
use txn::id::{BranchId, TxId};
use txn::resource::{Answer, Ask, Resource, Unready, Vote};

/// A server, and a database of the test's own with a table `t`.
struct World<S: Deref<Target = Server>> {
    server: S,
    database: String,
}

/// One that others use at the same time.
fn shared() -> Option<World<Arc<Server>>> {
    Some(World::new(Server::shared()?))
}

/// One that may be killed, locked and set.
fn own(settings: &[&str]) -> Option<World<Box<Server>>> {
    Some(World::new(Box::new(Server::start(settings)?)))
}

impl<S: Deref<Target = Server>> World<S> {
    fn new(server: S) -> Self {
        let database = server.database();
        server.sql(&format!(
            "CREATE TABLE {database}.t (id BIGINT PRIMARY KEY, v BIGINT NOT NULL) ENGINE=InnoDB"
        ));
        Self { server, database }
    }

    fn url(&self) -> String {
        self.server.url(&self.database)
    }

    fn bench(&self) -> Bench {
        Bench::new(&self.url())
    }

    /// One that waits so long for an answer.
    fn bench_within(&self, statement_timeout: Duration) -> Bench {
        Bench::with(DatabaseOptions { statement_timeout, ..options("db", &self.url()) })
    }

    fn app(&self) -> App {
        App::connect(&self.url())
    }

    fn root(&self) -> App {
        App::connect(&self.server.root_url(&self.database))
    }

    /// Runs statements as root in the test's database.
    fn sql(&self, text: &str) -> String {
        self.server.sql(&format!("USE {}; {text}", self.database))
    }

    fn count(&self) -> String {
        self.sql("SELECT COUNT(*) FROM t")
    }
}

#[test]
fn branch_commits_in_two_phases_and_in_one_and_rolls_back() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    let (first, _) = bench.prepared(1);
    assert_eq!(bench.found(), [bench.id(first)]);
    assert_eq!(world.count(), "0");
    assert_eq!(bench.ask(first, Ask::Commit), Answer::Done);
    assert_eq!(bench.ask(first, Ask::Commit), Answer::Done, "asked again");
    assert_eq!(bench.run(first, "SELECT 1"), Err(StatementError::Refused("the branch has ended".to_owned())));

    let second = branch();
    assert_eq!(bench.run(second, "INSERT INTO t VALUES (2, 0), (3, 0)"), Ok(Answered::Changed(2)));
    assert_eq!(bench.ask(second, Ask::CommitOnePhase), Answer::Done);
    let (third, _) = bench.prepared(4);
    assert_eq!(bench.ask(third, Ask::Rollback), Answer::Done);
    let fourth = branch();
    bench.run(fourth, "INSERT INTO t VALUES (5, 0)").unwrap();
    assert_eq!(bench.ask(fourth, Ask::Rollback), Answer::Done);
    assert_eq!((world.count().as_str(), bench.found().len()), ("3", 0));
    let sessions = Sessions { open: 1, busy: 0, waiting: 0, failures: 0 };
    assert_eq!(bench.db.sessions(), sessions, "one session did it all");
}

#[test]
fn branch_in_which_nothing_was_run_votes_no() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    assert!(matches!(bench.ask(branch(), Ask::Prepare), Answer::Voted(Vote::No(_))));
    assert!(matches!(bench.ask(branch(), Ask::CommitOnePhase), Answer::RolledBack(_)));
    assert_eq!(bench.ask(branch(), Ask::Rollback), Answer::Done);
    assert_eq!(bench.ask(branch(), Ask::Commit), Answer::Done);
}

#[test]
fn values_are_text_and_parameters_are_what_the_statement_needs() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    world.sql(
        "CREATE TABLE v (i INT, u BIGINT UNSIGNED, f FLOAT, d DOUBLE, m DECIMAL(10,2), s VARCHAR(9), b BLOB, \
         a DATE, t DATETIME(3), h TIME, n INT) ENGINE=InnoDB;
         CREATE TABLE w (i BIGINT, m DECIMAL(36,18)) ENGINE=InnoDB;
         INSERT INTO w VALUES (9007199254740992, 1234567890.123456789012345678)",
    );
    let branch = branch();
    let given: [Option<&[u8]>; 11] = [
        Some(b"-7"),
        Some(b"18446744073709551615"),
        Some(b"0.5"),
        Some(b"1.25"),
        Some(b"3.10"),
        Some("\u{e4}'b".as_bytes()),
        Some(b"\x00\xff"),
        Some(b"2026-02-03"),
        Some(b"2026-02-03 04:05:06.789"),
        Some(b"-30:01:02"),
        None,
    ];
    let insert = "INSERT INTO v VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
    assert_eq!(bench.run_with(branch, insert, &given), Ok(Answered::Changed(1)));
    let row = given.iter().map(|value| value.map(<[u8]>::to_vec)).collect();
    assert_eq!(bench.run(branch, "SELECT * FROM v"), Ok(Answered::Rows(vec![row])));
    assert_eq!(bench.run(branch, "SELECT * FROM v WHERE i = 5"), Ok(Answered::Rows(vec![])));
    let limited = bench.run_with(branch, "SELECT u FROM v WHERE i < ? LIMIT ?", &[Some(b"0"), Some(b"1")]);
    assert_eq!(limited, Ok(Answered::Rows(vec![vec![Some(b"18446744073709551615".to_vec())]])));
    // A text in a calculation would be a DOUBLE, which rounds: the manual says to write what it is.
    let adds = "UPDATE w SET i = i + CAST(? AS SIGNED), m = m - CAST(? AS DECIMAL(36,18))";
    assert_eq!(
        bench.run_with(branch, adds, &[Some(b"1"), Some(b"0.000000000000000001")]),
        Ok(Answered::Changed(1))
    );
    let exact =
        ["9007199254740993", "1234567890.123456789012345677"].map(|text| Some(text.as_bytes().to_vec()));
    assert_eq!(bench.run(branch, "SELECT i, m FROM w"), Ok(Answered::Rows(vec![exact.to_vec()])));
    let wrong = bench.run_with(branch, "SELECT ?", &[]);
    assert!(matches!(wrong, Err(StatementError::Refused(_))), "{wrong:?}");
    assert_eq!(bench.ask(branch, Ask::CommitOnePhase), Answer::Done);
}

#[test]
fn what_is_refused_leaves_the_branch_as_it_was_and_what_failed_only_rolls_back() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    let branch = branch();
    bench.run(branch, "INSERT INTO t VALUES (1, 0)").unwrap();
    for text in
        ["COMMIT", "SET autocommit = 0", "XA END 'x'", "/*! COMMIT */", "CREATE TABLE x (i INT)", "USE two"]
    {
        assert!(matches!(bench.run(branch, text), Err(StatementError::Refused(_))), "{text}");
    }
    // What only the server sees is refused by the server.
    let twice = bench.run(branch, "SELECT 1; COMMIT");
    assert!(matches!(&twice, Err(StatementError::Failed(why)) if why.contains("syntax")), "{twice:?}");
    let late = bench.run(branch, "SELECT 1");
    assert!(matches!(late, Err(StatementError::Failed(_))), "{late:?}");
    assert!(matches!(bench.ask(branch, Ask::Prepare), Answer::Voted(Vote::No(_))));

    let branch = mariadb_bench::branch();
    bench.run(branch, "INSERT INTO t VALUES (1, 0)").unwrap();
    assert!(matches!(bench.run(branch, "INSERT INTO t VALUES (1, 0)"), Err(StatementError::Failed(_))));
    assert!(matches!(bench.ask(branch, Ask::CommitOnePhase), Answer::RolledBack(_)));
    assert_eq!(world.count(), "0");
}

#[test]
fn procedure_cannot_end_the_branch_and_its_session_is_not_used_again() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    world.sql("CREATE PROCEDURE ends() COMMIT; CREATE PROCEDURE leaves() SET @left = 7;");
    let ended = branch();
    bench.run(ended, "INSERT INTO t VALUES (1, 0)").unwrap();
    let failed = bench.run(ended, "CALL ends()");
    assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains("XAER_RMFAIL")), "{failed:?}");
    assert_eq!(bench.ask(ended, Ask::Rollback), Answer::Done);
    let first = branch();
    bench.run(first, "CALL leaves()").unwrap();
    assert_eq!(bench.value(first, "SELECT @left"), "7");
    assert_eq!(bench.ask(first, Ask::CommitOnePhase), Answer::Done);
    let second = branch();
    assert_eq!(bench.value(second, "SELECT @left IS NULL"), "1");
    assert_eq!(bench.ask(second, Ask::Rollback), Answer::Done);
}

#[test]
fn result_that_is_too_large_fails_and_its_session_is_gone() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    let row = format!("SELECT {}", ["REPEAT('x', 10000000)"; 8].join(", "));
    for (statement, limit) in [
        ("SELECT REPEAT('x', 60000) FROM seq_1_to_1000", "more than 16777216 B, the most"),
        // Not read whole: the driver stops before.
        (&row, "a packet of its answer has more than 67108864 B, the most"),
    ] {
        let branch = branch();
        let failed = bench.run(branch, statement);
        assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains(limit)), "{failed:?}");
        assert_eq!(bench.ask(branch, Ask::Rollback), Answer::Done);
        assert_eq!(bench.db.sessions().busy, 0);
    }
}

#[test]
fn branch_that_only_read_drops_out_when_it_prepares() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    world.sql("INSERT INTO t VALUES (1, 0)");
    for text in ["SELECT * FROM t", "SELECT DISTINCT v FROM t UNION SELECT 1 ORDER BY 1"] {
        let branch = branch();
        bench.run(branch, text).unwrap();
        assert_eq!(bench.ask(branch, Ask::Prepare), Answer::Voted(Vote::ReadOnly), "{text}");
    }
    // What others wait for is held until the decision.
    let locks = branch();
    bench.run(locks, "SELECT * FROM t FOR UPDATE").unwrap();
    assert_eq!(bench.ask(locks, Ask::Prepare), Answer::Voted(Vote::Yes));
    let app = world.app().sql("SET innodb_lock_wait_timeout = 0; UPDATE t SET v = 1");
    assert!(app.is_err(), "the rows are locked");
    assert_eq!(bench.ask(locks, Ask::Commit), Answer::Done);
    world.sql("UPDATE t SET v = 0");
    // A function that writes is found by what it wrote.
    world.sql(
        "\nDELIMITER //\nCREATE FUNCTION f() RETURNS INT BEGIN INSERT INTO t VALUES (2, 0); RETURN 1; END//",
    );
    let writes = branch();
    assert_eq!(bench.value(writes, "SELECT f()"), "1");
    assert_eq!(bench.ask(writes, Ask::Prepare), Answer::Voted(Vote::Yes));
    assert_eq!(bench.ask(writes, Ask::Commit), Answer::Done);
    assert_eq!(world.count(), "2");
}

/// A branch that only read is rolled back when its session leaves, and XA COMMIT says so (XA_RBROLLBACK): nothing of it is lost.
#[test]
fn commit_of_a_branch_that_only_read_is_done_after_its_session_left() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    let branch = branch();
    let mut app = world.app();
    let owner = app.prepare(&bench.id(branch), "SELECT * FROM t");
    bench.db.adopt(branch, Some(owner)).unwrap();
    assert_eq!(bench.ask(branch, Ask::Prepare), Answer::Voted(Vote::Yes));
    app.close();
    assert_eq!(bench.ask(branch, Ask::Commit), Answer::Done);
    assert_eq!(bench.found().len(), 0);
}

/// XA COMMIT elsewhere, while the session of a branch is being torn down, is acknowledged and lost: 1 and 7 of 1,600. Here the
/// sessions are killed, the branches committed at once, and the server shows after `kill -9` what it has kept.
#[test]
fn commit_after_the_session_was_killed_is_never_lost() {
    let Some(mut world) = own(&[]) else { return };
    let bench = world.bench();
    for round in 0..25 {
        let prepared: Vec<(BranchId, u64)> = (0..8).map(|n| bench.prepared(round * 8 + n)).collect();
        let kills: String = prepared.iter().map(|(_, session)| format!("KILL {session};")).collect();
        let answers: Vec<_> = std::thread::scope(|scope| {
            scope.spawn(|| world.sql(&kills));
            prepared.iter().map(|(branch, _)| bench.begin(*branch, Ask::Commit)).collect()
        });
        for (answer, (branch, _)) in answers.into_iter().zip(&prepared) {
            if answer.recv_timeout(PATIENCE).unwrap() != Answer::Done {
                bench.ask_until_done(*branch, Ask::Commit);
            }
        }
    }
    world.server.kill();
    world.server.run(&[]);
    assert_eq!((world.sql("XA RECOVER").as_str(), world.count().as_str()), ("", "200"));
}

#[test]
fn sessions_are_never_reset() {
    let Some(world) = own(&["--general-log", "--log-output=TABLE"]) else { return };
    let bench = world.bench();
    for n in 0..3 {
        let (branch, _) = bench.prepared(n);
        assert_eq!(bench.ask(branch, Ask::Commit), Answer::Done);
    }
    let commands = world.sql("SELECT DISTINCT command_type FROM mysql.general_log ORDER BY 1");
    assert!(commands.contains("Execute") && commands.contains("Query"), "{commands}");
    assert!(!commands.contains("Reset") && !commands.contains("Change"), "{commands}");
    let connects = world.sql(
        "SELECT COUNT(*) FROM mysql.general_log WHERE command_type = 'Connect' AND argument LIKE 'evenkeel%'",
    );
    assert_eq!(connects, "2", "one session for branches, one for questions");
}

#[test]
fn server_killed_between_prepare_and_commit_commits_after_its_restart() {
    let Some(mut world) = own(&[]) else { return };
    let bench = world.bench();
    let (first, _) = bench.prepared(1);
    let (second, _) = bench.prepared(2);
    world.server.kill();
    wait_until("it notices", || bench.db.ready().is_err());
    assert!(matches!(bench.ask(first, Ask::Commit), Answer::Failed(_) | Answer::Lost(_)));
    world.server.run(&[]);
    bench.ask_until_done(first, Ask::Commit);
    bench.ask_until_done(second, Ask::Rollback);
    assert_eq!((world.count().as_str(), bench.found().len()), ("1", 0));
    wait_until("it is ready again", || bench.db.ready().is_ok());
}

/// A server that restarts gives identifiers of sessions again. The older session, once it was found dead, took the younger one's
/// registration along, and was looked for and killed by an identifier that is now the younger one's.
#[test]
fn session_with_the_identifier_of_a_lost_one_from_before_a_restart_goes_on() {
    let Some(mut world) = own(&[]) else { return };
    // The next start uses some identifiers up before it can be asked.
    (0..30).for_each(|_| drop(world.sql("SELECT 1")));
    let bench = world.bench();
    let [older, younger] = [(); 2].map(|()| branch());
    let id: u64 = bench.value(older, "SELECT CONNECTION_ID()").parse().unwrap();
    world.server.kill();
    world.server.run(&[]);
    wait_until("it is connected again", || matches!(bench.ask(branch(), Ask::Recover), Answer::Found(_)));
    wait_until("the identifier is the next", || {
        let last: u64 = world.sql("SELECT CONNECTION_ID()").parse().unwrap();
        assert!(last < id, "identifier {last} is behind {id}");
        last + 1 == id
    });
    assert_eq!(bench.value(younger, "SELECT CONNECTION_ID()"), id.to_string());
    assert!(matches!(bench.run(older, "SELECT 1"), Err(StatementError::Failed(_))));
    assert_eq!(bench.run(younger, "INSERT INTO t VALUES (1, 0)"), Ok(Answered::Changed(1)));
    assert_eq!(bench.ask(younger, Ask::CommitOnePhase), Answer::Done);
    assert_eq!(world.count(), "1");
}

/// FLUSH TABLES WITH READ LOCK holds XA PREPARE and XA COMMIT up: the session is killed while it is in one of them.
#[test]
fn session_killed_within_a_step_is_looked_up() {
    let Some(world) = own(&[]) else { return };
    let bench = world.bench();
    let in_step = |session: u64, step: &str| {
        let ask = format!(
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {session} AND INFO LIKE '{step}%'"
        );
        wait_until(step, || world.sql(&ask) == "1");
    };
    // Prepare: it came to nothing, which the list tells.
    let preparing = branch();
    bench.run(preparing, "INSERT INTO t VALUES (1, 0)").unwrap();
    let session = bench.value(preparing, "SELECT CONNECTION_ID()").parse().unwrap();
    let mut root = world.root();
    root.sql("FLUSH TABLES WITH READ LOCK").unwrap();
    let answer = bench.begin(preparing, Ask::Prepare);
    in_step(session, "XA PREPARE");
    world.sql(&format!("KILL {session}"));
    let answer = answer.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(answer, Answer::Voted(Vote::No(_))), "{answer:?}");
    root.sql("UNLOCK TABLES").unwrap();
    // In one phase: nobody can know, and nobody says that he does.
    let alone = branch();
    bench.run(alone, "INSERT INTO t VALUES (2, 0)").unwrap();
    let session = bench.value(alone, "SELECT CONNECTION_ID()").parse().unwrap();
    root.sql("FLUSH TABLES WITH READ LOCK").unwrap();
    let answer = bench.begin(alone, Ask::CommitOnePhase);
    in_step(session, "XA COMMIT");
    world.sql(&format!("KILL {session}"));
    assert!(matches!(answer.recv_timeout(PATIENCE).unwrap(), Answer::Lost(_)));
    root.sql("UNLOCK TABLES").unwrap();
    // Commit: it is prepared still, and committed elsewhere.
    let (committing, session) = bench.prepared(3);
    root.sql("FLUSH TABLES WITH READ LOCK").unwrap();
    let answer = bench.begin(committing, Ask::Commit);
    in_step(session, "XA COMMIT");
    world.sql(&format!("KILL {session}"));
    root.sql("UNLOCK TABLES").unwrap();
    if answer.recv_timeout(PATIENCE).unwrap() != Answer::Done {
        bench.ask_until_done(committing, Ask::Commit);
    }
    assert_eq!(world.sql("SELECT COUNT(*) FROM t WHERE id = 3"), "1");
    assert_eq!(bench.found().len(), 0);
}

#[test]
fn rollback_does_not_wait_for_a_statement_nor_for_a_prepare() {
    let Some(world) = own(&[]) else { return };
    let bench = world.bench();
    let running = branch();
    bench.run(running, "INSERT INTO t VALUES (1, 0)").unwrap();
    let statement = bench.start(running, "SELECT SLEEP(25)");
    let behind = bench.start(running, "INSERT INTO t VALUES (2, 0)");
    wait_until("it runs", || {
        world.sql("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND STATE = 'User sleep'") == "1"
    });
    bench.ask_until_done(running, Ask::Rollback);
    for result in [statement, behind] {
        assert!(matches!(result.recv_timeout(PATIENCE).unwrap(), Err(StatementError::Failed(_))));
    }
    assert_eq!(
        world.sql("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND STATE = 'User sleep'"),
        "0"
    );

    let preparing = branch();
    bench.run(preparing, "INSERT INTO t VALUES (3, 0)").unwrap();
    let mut root = world.root();
    root.sql("FLUSH TABLES WITH READ LOCK").unwrap();
    let vote = bench.begin(preparing, Ask::Prepare);
    bench.ask_until_done(preparing, Ask::Rollback);
    assert!(!matches!(vote.recv_timeout(PATIENCE).unwrap(), Answer::Voted(Vote::Yes)));
    root.sql("UNLOCK TABLES").unwrap();
    assert_eq!((world.count().as_str(), bench.found().len()), ("0", 0));
}

#[test]
fn statement_that_takes_too_long_fails_and_leaves_no_locks() {
    let Some(world) = shared() else { return };
    let bench = world.bench_within(Duration::from_millis(300));
    let slow = branch();
    bench.run(slow, "INSERT INTO t VALUES (1, 0)").unwrap();
    let failed = bench.run(slow, "SELECT SLEEP(25)");
    assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains("300ms")), "{failed:?}");
    let other = branch();
    bench.run(other, "INSERT INTO t VALUES (1, 0)").unwrap();
    assert_eq!(bench.ask(other, Ask::CommitOnePhase), Answer::Done);
    assert_eq!(bench.ask(slow, Ask::Rollback), Answer::Done);
}

/// An answer that comes late would be taken for that to the next question, and be a yes to a prepare that was not answered.
#[test]
fn answer_that_comes_late_is_not_taken_for_that_to_the_next_question() {
    let Some(world) = own(&[]) else { return };
    let bench = world.bench_within(Duration::from_millis(400));
    let late = branch();
    bench.run(late, "SELECT * FROM t").unwrap();
    world.server.signal("STOP");
    let answer = bench.begin(late, Ask::Prepare);
    // Half as long again as an answer may take: the question that comes first is given up by then.
    let early = answer.recv_timeout(Duration::from_millis(600));
    world.server.signal("CONT");
    let answer = early.unwrap_or_else(|_| answer.recv_timeout(PATIENCE).unwrap());
    assert!(matches!(answer, Answer::Voted(Vote::No(_)) | Answer::Failed(_)), "{answer:?}");
    bench.ask_until_done(late, Ask::Rollback);
    for row in 0..4 {
        let next = branch();
        assert_eq!(bench.run(next, &format!("INSERT INTO t VALUES ({row}, 7)")), Ok(Answered::Changed(1)));
        assert_eq!(bench.value(next, "SELECT SUM(v) FROM t"), (7 * (row + 1)).to_string());
        assert_eq!(bench.ask(next, Ask::Prepare), Answer::Voted(Vote::Yes));
        assert_eq!(bench.ask(next, Ask::Commit), Answer::Done);
    }
    assert_eq!((world.count().as_str(), bench.found().len()), ("4", 0));
}

#[test]
fn identifier_that_one_branch_was_given_is_not_there_in_the_next() {
    let Some(world) = shared() else { return };
    let mut options = options("db", &world.url());
    options.sessions_max = 1;
    let bench = Bench::with(options);
    world.sql("CREATE TABLE g (id BIGINT AUTO_INCREMENT PRIMARY KEY) ENGINE=InnoDB; CREATE SEQUENCE s");
    for (text, told) in [
        ("INSERT INTO g VALUES (DEFAULT)", "SELECT LAST_INSERT_ID()"),
        ("SELECT LAST_INSERT_ID(77)", "SELECT LAST_INSERT_ID()"),
        ("SELECT NEXTVAL(s)", "SELECT COALESCE(LASTVAL(s), 0)"),
    ] {
        for end in [Ask::CommitOnePhase, Ask::Rollback] {
            let first = branch();
            bench.run(first, text).unwrap();
            assert_eq!(bench.ask(first, end), Answer::Done);
            let second = branch();
            assert_eq!(bench.value(second, told), "0", "{text}");
            assert_eq!(bench.ask(second, Ask::Rollback), Answer::Done);
        }
    }
}

#[test]
fn who_finds_no_free_session_is_refused_in_time_and_figures_tell() {
    let Some(world) = shared() else { return };
    let mut options = options("db", &world.url());
    options.sessions_max = 2;
    options.connect_timeout = Duration::from_millis(400);
    let bench = Bench::with(options);
    let (first, second, third) = (branch(), branch(), branch());
    for branch in [first, second] {
        bench.run(branch, "SELECT 1").unwrap();
    }
    let waits = bench.start(third, "SELECT 1");
    wait_until("it waits", || bench.db.sessions() == Sessions { open: 2, busy: 2, waiting: 1, failures: 0 });
    let refused = waits.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(&refused, Err(StatementError::Refused(why)) if why.contains("400ms")), "{refused:?}");
    let waits = bench.start(third, "SELECT 1");
    assert_eq!(bench.ask(first, Ask::Rollback), Answer::Done);
    assert!(waits.recv_timeout(PATIENCE).unwrap().is_ok());
    for branch in [second, third] {
        assert_eq!(bench.ask(branch, Ask::Rollback), Answer::Done);
    }
    assert_eq!(bench.db.sessions(), Sessions { open: 2, busy: 0, waiting: 0, failures: 0 });
}

#[test]
fn session_that_died_while_idle_is_replaced() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    let (first, session) = bench.prepared(1);
    assert_eq!(bench.ask(first, Ask::Commit), Answer::Done);
    world.sql(&format!("KILL {session}"));
    let (second, other) = bench.prepared(2);
    assert_eq!(bench.ask(second, Ask::Commit), Answer::Done);
    assert!(other != session && world.count() == "2");
}

#[test]
fn application_prepares_and_closes_and_the_branch_commits() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    let (committed, rolled_back, missing) = (branch(), branch(), branch());
    for (branch, row) in [(committed, 1), (rolled_back, 2)] {
        let mut app = world.app();
        let owner = app.prepare(&bench.id(branch), &format!("INSERT INTO t VALUES ({row}, 0)"));
        bench.db.adopt(branch, Some(owner)).unwrap();
        assert_eq!(bench.ask(branch, Ask::Prepare), Answer::Voted(Vote::Yes));
        let refused = bench.run(branch, "SELECT 1");
        assert!(matches!(refused, Err(StatementError::Refused(_))), "{refused:?}");
        app.close();
    }
    assert_eq!(bench.ask(committed, Ask::Commit), Answer::Done);
    assert_eq!(bench.ask(rolled_back, Ask::Rollback), Answer::Done);
    bench.db.adopt(missing, Some(1)).unwrap();
    assert!(matches!(bench.ask(missing, Ask::Prepare), Answer::Voted(Vote::No(_))));
    assert_eq!((world.sql("SELECT id FROM t").as_str(), bench.found().len()), ("1", 0));
    let alone = branch();
    let mut app = world.app();
    let owner = app.prepare(&bench.id(alone), "INSERT INTO t VALUES (3, 0)");
    app.close();
    bench.db.adopt(alone, Some(owner)).unwrap();
    assert_eq!(bench.ask(alone, Ask::CommitOnePhase), Answer::Done);
    assert_eq!(world.count(), "2");
}

/// XAER_NOTA is what the server says, too, of a branch that another session is committing: then the commit may be done yet.
#[test]
fn commit_in_one_phase_that_had_no_answer_is_not_said_to_be_not_done() {
    let Some(world) = own(&[]) else { return };
    let bench = world.bench_within(Duration::from_millis(300));
    let branch = branch();
    let mut app = world.app();
    let owner = app.prepare(&bench.id(branch), "INSERT INTO t VALUES (1, 0)");
    app.close();
    bench.db.adopt(branch, Some(owner)).unwrap();
    let mut root = world.root();
    root.sql("FLUSH TABLES WITH READ LOCK").unwrap();
    let answer = bench.ask(branch, Ask::CommitOnePhase);
    assert!(matches!(answer, Answer::Lost(_)), "{answer:?}");
    root.sql("UNLOCK TABLES").unwrap();
    bench.ask_until_done(branch, Ask::Commit);
    assert_eq!((world.count().as_str(), bench.found().len()), ("1", 0));
}

/// XAER_NOTA is what the server says of a branch that a session holds: it is no "done".
#[test]
fn application_that_stays_connected_is_closed_for_the_commit() {
    let Some(mut world) = own(&[]) else { return };
    let bench = world.bench();
    let branch = branch();
    let mut app = world.root();
    let owner = app.prepare(&bench.id(branch), "INSERT INTO t VALUES (1, 0)");
    bench.db.adopt(branch, Some(owner)).unwrap();
    assert_eq!(bench.ask(branch, Ask::Prepare), Answer::Voted(Vote::Yes));
    // The session is another user's, whom this one may not kill: then it says who is in the way.
    let answer = bench.ask(branch, Ask::Commit);
    assert!(
        matches!(&answer, Answer::Failed(why) | Answer::Lost(why) if why.contains(&owner.to_string())),
        "{answer:?}"
    );
    world.sql("GRANT CONNECTION ADMIN ON *.* TO 'evenkeel'@'%'");
    world.server.kill();
    world.server.run(&[]);
    bench.ask_until_done(branch, Ask::Commit);

    let branch = mariadb_bench::branch();
    let mut app = world.app();
    let owner = app.prepare(&bench.id(branch), "INSERT INTO t VALUES (2, 0)");
    bench.db.adopt(branch, Some(owner)).unwrap();
    assert_eq!(bench.ask(branch, Ask::Prepare), Answer::Voted(Vote::Yes));
    assert_eq!(bench.ask(branch, Ask::Commit), Answer::Done);
    assert!(app.sql("SELECT 1").is_err(), "it was killed");
    world.server.kill();
    world.server.run(&[]);
    assert_eq!((world.count().as_str(), world.sql("XA RECOVER").as_str()), ("2", ""));
}

#[test]
fn branch_of_a_session_that_nobody_knows_is_not_ended_before_that_session() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    let branch = branch();
    let mut app = world.app();
    let owner = app.prepare(&bench.id(branch), "INSERT INTO t VALUES (1, 0)");
    let vote = bench.ask(branch, Ask::Prepare);
    assert!(matches!(&vote, Answer::Voted(Vote::No(why)) if why.contains("CONNECTION_ID()")), "{vote:?}");
    // As after a restart of the coordinator, which finds its decision in its log.
    let answer = bench.ask(branch, Ask::Commit);
    assert!(
        matches!(&answer, Answer::Failed(why) | Answer::Lost(why) if why.contains(&owner.to_string())),
        "{answer:?}"
    );
    assert!(app.sql("SELECT 1").is_ok(), "a session that may be anybody's is not killed");
    app.close();
    bench.ask_until_done(branch, Ask::Commit);
    assert_eq!((world.count().as_str(), bench.found().len()), ("1", 0));
}

#[test]
fn sessions_of_an_earlier_start_are_killed_before_their_branches_end() {
    let Some(world) = shared() else { return };
    let former = world.bench();
    let (committed, session) = former.prepared(1);
    let (rolled_back, _) = former.prepared(2);
    let other = Bench::with(former.of_another_name("other"));
    let (untouched, _) = other.prepared(3);
    let bench = former.successor();
    assert_eq!(bench.ask(committed, Ask::Commit), Answer::Done);
    assert_eq!(bench.ask(rolled_back, Ask::Rollback), Answer::Done);
    let lives =
        |id: u64| world.sql(&format!("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE ID = {id}"));
    assert_eq!((lives(session).as_str(), world.count().as_str()), ("0", "1"));
    assert_eq!(other.ask(untouched, Ask::Commit), Answer::Done);
    assert_eq!(other.db.sessions(), Sessions { open: 1, busy: 0, waiting: 0, failures: 0 });
}

#[test]
fn what_is_missing_is_said() {
    let drivers = Drivers::start().unwrap();
    let error = MariaDb::start(options("db", "postgres://u:secret@h/d"), &drivers).unwrap_err();
    let StartError::Address { name, why, .. } = &error else { panic!("{error}") };
    assert!(
        name == "db" && why.to_string().contains("mysql://") && !error.to_string().contains("secret"),
        "{error}"
    );
    let down = MariaDb::start(options("db", "mysql://u:secret@127.0.0.1:1/d"), &drivers).unwrap();
    wait_until(
        "it says why",
        || matches!(down.ready(), Err(Unready::Retry(why)) if why.contains("refused") && !why.contains("secret")),
    );
    assert!(down.sessions().failures > 0);
    let Some(world) = own(&[]) else { return };
    let plain = Bench::with(options("db", &world.server.url_of("plain", &world.database)));
    let error = plain.db.adopt(branch(), Some(1)).unwrap_err();
    assert!(matches!(&error, AdoptError::Unready(Unready::Setting(_))), "{error:?}");
    assert!(error.to_string().contains("GRANT PROCESS"), "{error}");
    // What it runs itself needs no more than its own sessions.
    let (branch, session) = plain.prepared(1);
    world.sql(&format!("KILL {session}"));
    plain.ask_until_done(branch, Ask::Commit);
    let denied =
        MariaDb::start(options("db", &world.server.url_of("nobody", &world.database)), &drivers).unwrap();
    wait_until(
        "it says why",
        || matches!(denied.ready(), Err(Unready::Setting(why)) if why.contains("denied")),
    );
    world.sql("SET GLOBAL innodb_flush_log_at_trx_commit = 2");
    let careless = MariaDb::start_with(options("db", &world.url()), timing(), &drivers).unwrap();
    wait_until(
        "it says why",
        || matches!(careless.ready(), Err(Unready::Setting(why)) if why.contains("innodb_flush_log_at_trx_commit")),
    );
}

/// Drills look for what was left behind by this: `INNODB_TRX`, asked more often than every tenth of a second, went on showing a branch that
/// had ended, and a drill failed.
#[test]
fn engine_shows_a_branch_that_the_server_has_forgotten_and_none_that_has_ended() {
    let Some(world) = own(&[]) else { return };
    let (mut app, mut root) = (world.app(), world.root());
    app.prepare("ended", "INSERT INTO t VALUES (1, 0)");
    assert_eq!(world.server.transactions().len(), 1);
    app.sql("XA ROLLBACK 'ended'").unwrap();
    assert_eq!(world.server.transactions(), Vec::<String>::new());
    // A session that was reset has let go of the identifier, but not of the transaction: what is asked elsewhere is lost.
    app.prepare("forgotten", "INSERT INTO t VALUES (2, 0)");
    app.reset();
    root.sql("XA ROLLBACK 'forgotten'").unwrap();
    app.close();
    let is_kept =
        |shown: &[String]| matches!(shown, [it] if it.contains("(PREPARED)") && !it.contains(" thread id "));
    wait_until("its session is gone", || is_kept(&world.server.transactions()));
    assert_eq!(world.sql("XA RECOVER"), "");
    // An empty branch of the same name makes the server know it again.
    let mut again = world.app();
    again.prepare("forgotten", "DO 0");
    again.close();
    wait_until("it is rolled back", || {
        world.server.try_sql("XA ROLLBACK 'forgotten'");
        world.server.transactions().is_empty()
    });
    assert_eq!(world.count(), "0");
}

#[test]
fn recover_lists_what_is_of_the_common_format_alone() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    let (own, _) = bench.prepared(1);
    let other = format!("'{}','',7", bench.id(branch()));
    let mut app = world.app();
    for text in ["XA START", "INSERT INTO t VALUES (2, 0)", "XA END", "XA PREPARE"] {
        let text = if text.starts_with("XA") { format!("{text} {other}") } else { text.to_owned() };
        app.sql(&text).unwrap();
    }
    assert_eq!(bench.found(), [bench.id(own)]);
    assert_eq!(bench.ask(own, Ask::Rollback), Answer::Done);
    app.sql(&format!("XA ROLLBACK {other}")).unwrap();
}

#[test]
fn longest_identifier_fits() {
    let Some(world) = shared() else { return };
    let mut options = options("db", &world.url());
    options.node = txn::id::NodeName::new(&"n".repeat(txn::id::NODE_NAME_BYTES_MAX)).unwrap();
    let node = options.node.clone();
    let bench = Bench::with(options);
    let longest = BranchId { tx: TxId { epoch: u32::MAX, number: u64::MAX }, branch: u16::MAX };
    bench.run(longest, "INSERT INTO t VALUES (1, 0)").unwrap();
    assert_eq!(bench.ask(longest, Ask::Prepare), Answer::Voted(Vote::Yes));
    assert_eq!(bench.found(), [node.branch_id(longest)]);
    assert_eq!(bench.ask(longest, Ask::Commit), Answer::Done);
}

#[test]
fn closed_database_answers_all_and_leaves_no_session() {
    let Some(world) = shared() else { return };
    let bench = world.bench();
    let running = branch();
    let (prepared, _) = bench.prepared(1);
    let id = bench.id(prepared);
    let statement = bench.start(running, "SELECT SLEEP(25)");
    bench.db.close();
    assert!(statement.recv_timeout(PATIENCE).unwrap().is_err());
    assert!(matches!(bench.ask(branch(), Ask::Prepare), Answer::Failed(_)));
    assert_eq!(
        bench.run(branch(), "SELECT 1"),
        Err(StatementError::Refused("the database was closed".to_owned()))
    );
    wait_until("its sessions end", || {
        let sessions =
            "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE DB = DATABASE() AND USER = 'evenkeel'";
        world.sql(sessions) == "0"
    });
    let listed = world.sql("XA RECOVER");
    assert!(listed.contains(&id), "what is prepared stays: {listed}");
}
