//! PostgreSQL as a resource, against a real server: statements, votes, outcomes, and what is refused.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

mod common;
mod databases;

use std::time::Duration;

use databases::{PATIENCE, World, aborted, prepared, until, value};
use sql::postgres::Postgres;
use sql::{AdoptError, Answered, Database, DatabaseOptions, Drivers, StatementError};
use txn::coordinator::Options;
use txn::id::{BranchId, TxId};
use txn::protocol::Outcome;
use txn::resource::{Answer, Ask, Resource, Vote};

#[test]
fn commit_over_two_databases_is_in_both() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    for key in 0..3 {
        let tx = node.insert(&mut lane, key, "it's $1; COMMIT");
        assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    }
    let rows = "0|it's $1; COMMIT\n1|it's $1; COMMIT\n2|it's $1; COMMIT";
    assert_eq!(world.rows(), [rows, rows]);
    assert_eq!(node.coordinator.log_counters().records, 3);
    for database in &node.databases {
        let sessions = database.sessions();
        assert_eq!((sessions.busy, sessions.waiting, sessions.failures), (0, 0, 0), "{sessions:?}");
        assert!((1..=16).contains(&sessions.open), "{sessions:?}");
    }
}

#[test]
fn rollback_leaves_nothing_in_either() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let tx = node.insert(&mut lane, 1, "gone");
    lane.rollback(tx, "changed my mind").unwrap();
    let mut told = Vec::new();
    while told.is_empty() {
        lane.wait();
        lane.turn(&mut told);
    }
    assert_eq!(told, [(tx, Outcome::Aborted("changed my mind".to_owned()))]);
    // Whoever hears of the abort tries again, and meets no locks.
    let tx = node.insert(&mut lane, 1, "kept");
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["1|kept", "1|kept"]);
}

#[test]
fn statement_that_failed_votes_no_with_its_reason() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let tx = node.insert(&mut lane, 1, "gone");
    let branch = BranchId { tx, branch: 0 };
    let failed = node.run(branch, 0, "SELECT 1/0");
    assert!(
        matches!(&failed, Err(StatementError::Failed(why)) if why.contains("division by zero")),
        "{failed:?}"
    );
    let failed = node.run(branch, 0, "SELECT 1");
    assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains("earlier")), "{failed:?}");
    let why = aborted(lane.commit_and_wait(tx).unwrap());
    assert!(why.contains("one voted no") && why.contains("division by zero"), "{why}");
    assert_eq!(world.rows(), ["", ""]);
}

/// What is checked late fails the prepare itself: PostgreSQL says so, and nothing is prepared.
#[test]
fn constraint_that_fails_at_the_prepare_votes_no() {
    let Some(world) = World::shared() else { return };
    world.sql(
        1,
        "CREATE TABLE late (key int UNIQUE DEFERRABLE INITIALLY DEFERRED); INSERT INTO late VALUES (1)",
    );
    let node = world.start();
    let mut lane = node.coordinator.lane();
    for is_alone in [false, true] {
        let tx = lane.begin(PATIENCE).unwrap();
        if !is_alone {
            let branch = lane.enlist(tx, 0).unwrap();
            node.run(branch, 0, "INSERT INTO t VALUES (1, 'gone')").unwrap();
        }
        let branch = lane.enlist(tx, 1).unwrap();
        node.run(branch, 1, "INSERT INTO late VALUES (1)").unwrap();
        let why = aborted(lane.commit_and_wait(tx).unwrap());
        assert!(why.contains("late_key_key"), "{why}");
    }
    assert_eq!((world.rows()[0].as_str(), world.sql(1, "SELECT count(*) FROM late")), ("", "1".to_owned()));
}

#[test]
fn single_branch_commits_in_one_phase() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let tx = lane.begin(PATIENCE).unwrap();
    let branch = lane.enlist(tx, 1).unwrap();
    node.run(branch, 1, "INSERT INTO t VALUES (1, 'alone')").unwrap();
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["", "1|alone"]);
    assert_eq!(node.coordinator.log_counters().records, 0);
    let late = node.run(branch, 1, "INSERT INTO t VALUES (2, 'late')");
    assert!(matches!(&late, Err(StatementError::Refused(why)) if why.contains("ended")), "{late:?}");
}

#[test]
fn who_only_read_needs_no_record_and_who_locked_is_prepared() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let (tx, branches) = node.begin(&mut lane);
    for (place, branch) in branches.into_iter().enumerate() {
        assert_eq!(value(node.run(branch, place, "SELECT count(*) FROM t")).as_deref(), Some("0"));
    }
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(node.coordinator.log_counters().records, 0);
    world.sql(0, "INSERT INTO t VALUES (1, 'x')");
    let statements = [
        ("SELECT 1 FROM t", Vote::ReadOnly),
        ("SELECT 1 FROM t FOR UPDATE", Vote::Yes),
        ("SELECT pg_advisory_xact_lock(7)", Vote::Yes),
        ("SELECT nextval('s')", Vote::Yes),
        ("SELECT writes()", Vote::Yes),
    ];
    world.sql(0, "CREATE SEQUENCE s");
    world.sql(
        0,
        "CREATE FUNCTION writes() RETURNS void LANGUAGE sql AS $$ INSERT INTO t VALUES (2, 'hidden') $$",
    );
    for (statement, vote) in statements {
        let (tx, [branch, _]) = node.begin(&mut lane);
        node.run(branch, 0, statement).unwrap();
        assert_eq!(node.ask(0, Ask::Prepare, branch), Answer::Voted(vote), "{statement}");
        lane.rollback(tx, "seen").unwrap();
        until("it is over", || {
            lane.turn(&mut Vec::new());
            lane.is_empty()
        });
    }
    assert_eq!(prepared(&world, 0), "0");
}

#[test]
fn branch_that_the_application_prepared_commits_with_the_others() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let (tx, branches) = node.begin(&mut lane);
    let id = world.node.branch_id(branches[1]);
    node.databases[1].adopt(branches[1], None).unwrap();
    world.sql(1, &format!("BEGIN; INSERT INTO t VALUES (1, 'theirs'); PREPARE TRANSACTION '{id}'"));
    let refused = node.run(branches[1], 1, "SELECT 1");
    assert!(
        matches!(&refused, Err(StatementError::Refused(why)) if why.contains("application")),
        "{refused:?}"
    );
    node.run(branches[0], 0, "INSERT INTO t VALUES (1, 'ours')").unwrap();
    let refused = node.databases[0].adopt(branches[0], None);
    assert!(matches!(&refused, Err(AdoptError::Taken(why)) if why.contains("were run in it")), "{refused:?}");
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["1|ours", "1|theirs"]);
    // The same in one phase, and with one that nobody prepared.
    for is_prepared in [true, false] {
        let tx = lane.begin(PATIENCE).unwrap();
        let branch = lane.enlist(tx, 0).unwrap();
        let id = world.node.branch_id(branch);
        node.databases[0].adopt(branch, None).unwrap();
        if is_prepared {
            world.sql(0, &format!("BEGIN; INSERT INTO t VALUES (2, 'theirs'); PREPARE TRANSACTION '{id}'"));
            assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
        } else {
            let why = aborted(lane.commit_and_wait(tx).unwrap());
            assert!(why.contains(&format!("PREPARE TRANSACTION '{id}'")), "{why}");
        }
    }
    assert_eq!(world.rows()[0], "1|ours\n2|theirs");
}

/// TX.COMMIT took 30 s, and told `unknown: … it has committed or rolled back by itself`, while the branch was prepared as before.
#[test]
fn branch_that_another_user_prepared_votes_no_at_once_and_says_who_can_end_it() {
    let Some(world) = World::shared() else { return };
    let name = format!("server_{}", world.names[0]);
    world.sql(0, &format!("CREATE ROLE {name} LOGIN; GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}"));
    let own = |database: &mut DatabaseOptions, _: &mut Options| {
        database.url = database.url.replace("postgres@", &format!("{name}@"));
    };
    let node = world.start_with(&mut { own }, |log| log);
    world.sql(1, &format!("GRANT ALL ON ALL TABLES IN SCHEMA public TO {name}"));
    let mut lane = node.coordinator.lane();
    for has_other in [false, true] {
        let tx = lane.begin(PATIENCE).unwrap();
        let branch = lane.enlist(tx, 0).unwrap();
        let id = world.node.branch_id(branch);
        node.databases[0].adopt(branch, None).unwrap();
        if has_other {
            let other = lane.enlist(tx, 1).unwrap();
            node.run(other, 1, "INSERT INTO t VALUES (1, 'ours')").unwrap();
        }
        // By a superuser, who is neither this node's user nor owned by it.
        world.sql(0, &format!("BEGIN; INSERT INTO t VALUES (1, 'theirs'); PREPARE TRANSACTION '{id}'"));
        let why = aborted(lane.commit_and_wait(tx).unwrap());
        for part in
            ["one voted no", "another user has prepared", "superuser", &format!("ROLLBACK PREPARED '{id}'")]
        {
            assert!(why.contains(part), "{why}");
        }
        assert_eq!(prepared(&world, 0), "1", "it is as it was");
        // Whoever has to end it is told why it cannot, and nothing is sent that the database would refuse.
        for (ask, end) in [(Ask::Rollback, "ROLLBACK"), (Ask::Commit, "COMMIT")] {
            let answer = node.ask(0, ask, branch);
            let is_told =
                matches!(&answer, Answer::Failed(why) if why.contains(&format!("{end} PREPARED '{id}'")));
            assert!(is_told, "{answer:?}");
        }
        world.sql(0, &format!("ROLLBACK PREPARED '{id}'"));
        assert_eq!(node.ask(0, Ask::Rollback, branch), Answer::Done);
    }
    assert_eq!(world.rows(), ["", ""]);
}

#[test]
fn branch_that_was_prepared_nowhere_votes_no_and_says_what_to_do() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let (tx, branches) = node.begin(&mut lane);
    let id = world.node.branch_id(branches[1]);
    node.databases[1].adopt(branches[1], None).unwrap();
    // In another database: it is not this branch, and not this branch's to roll back.
    world.sql(0, &format!("BEGIN; INSERT INTO t VALUES (9, 'stray'); PREPARE TRANSACTION '{id}'"));
    node.run(branches[0], 0, "INSERT INTO t VALUES (1, 'gone')").unwrap();
    let why = aborted(lane.commit_and_wait(tx).unwrap());
    assert!(why.contains(&format!("PREPARE TRANSACTION '{id}'")), "{why}");
    assert_eq!(node.ask(1, Ask::Rollback, branches[1]), Answer::Done);
    let failed = node.ask(1, Ask::Commit, branches[1]);
    assert!(matches!(&failed, Answer::Failed(why) if why.contains("another database")), "{failed:?}");
    until("recovery finds it there, and rolls it back", || node.found(0).is_empty());
    assert_eq!(world.rows(), ["", ""]);
}

#[test]
fn questions_can_be_asked_again_and_unknown_branches_vote_no() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let (_, [branch, _]) = node.begin(&mut lane);
    node.run(branch, 0, "INSERT INTO t VALUES (1, 'x')").unwrap();
    assert_eq!(node.ask(0, Ask::Prepare, branch), Answer::Voted(Vote::Yes));
    assert_eq!(node.ask(0, Ask::Prepare, branch), Answer::Voted(Vote::Yes));
    let found = node.found(0);
    assert_eq!((found.len(), &*found[0].id), (1, &*world.node.branch_id(branch)));
    let since = found[0].since.unwrap().0;
    assert!((1_600_000_000_000..5_000_000_000_000).contains(&since), "{since} ms");
    for _ in 0..2 {
        assert_eq!(node.ask(0, Ask::Commit, branch), Answer::Done);
    }
    assert_eq!(node.ask(0, Ask::Rollback, branch), Answer::Done, "it is gone");
    assert_eq!(world.rows()[0], "1|x");
    let unknown = BranchId { tx: TxId { epoch: 9, number: 9 }, branch: 9 };
    assert!(matches!(node.ask(0, Ask::Prepare, unknown), Answer::Voted(Vote::No(_))));
    assert!(matches!(node.ask(0, Ask::CommitOnePhase, unknown), Answer::RolledBack(_)));
}

#[test]
fn statement_that_would_end_the_branch_is_refused_and_the_branch_goes_on() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let tx = node.insert(&mut lane, 1, "kept");
    let branch = BranchId { tx, branch: 0 };
    for statement in ["COMMIT", "/* x */ rollback", ";END", "COPY t TO STDOUT", ""] {
        let refused = node.run(branch, 0, statement);
        assert!(matches!(refused, Err(StatementError::Refused(_))), "{statement}: {refused:?}");
    }
    let refused = node.run_with(branch, 0, "SELECT $1::int", &[]);
    assert!(
        matches!(&refused, Err(StatementError::Refused(why)) if why.contains("0 parameters")),
        "{refused:?}"
    );
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["1|kept", "1|kept"]);
    // Several at once are refused by the server, whatever they are.
    let (tx, [branch, _]) = node.begin(&mut lane);
    let failed = node.run(branch, 0, "SELECT 1; COMMIT");
    assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains("multiple")), "{failed:?}");
    lane.rollback(tx, "").unwrap();
}

#[test]
fn statements_of_a_branch_run_in_the_order_of_the_calls() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let (tx, branches) = node.begin(&mut lane);
    node.run(branches[1], 1, "INSERT INTO t VALUES (1, '')").unwrap();
    let insert = node.send(branches[0], 0, "INSERT INTO t VALUES (1, '')", &[]);
    let updates: Vec<_> = (0..30)
        .map(|n| {
            let text = "UPDATE t SET value = value || $1 || ' ' RETURNING value";
            node.send(branches[0], 0, text, &[Some(&n.to_string())])
        })
        .collect();
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(insert.recv_timeout(PATIENCE).unwrap(), Ok(Answered::Changed(1)));
    let mut expected = String::new();
    for (n, update) in updates.into_iter().enumerate() {
        expected += &format!("{n} ");
        assert_eq!(value(update.recv_timeout(PATIENCE).unwrap()), Some(expected.clone()));
    }
}

#[test]
fn values_read_as_the_server_writes_them() {
    let Some(world) = World::shared() else { return };
    world.sql(0, "CREATE TYPE mood AS ENUM ('sad', 'it''s fine')");
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let (tx, [branch, _]) = node.begin(&mut lane);
    for value in VALUES {
        let text = format!("SELECT {value}, ({value})::text");
        let answered = node.run(branch, 0, &text);
        let Ok(Answered::Rows(rows)) = answered else { panic!("{value}: {answered:?}") };
        let (ours, theirs) = (rows[0][0].as_deref(), rows[0][1].as_deref());
        // A conversion writes some otherwise than they are sent: without blanks at the end, and as a word.
        let ours = match *value {
            "true" | "false" => ours.map(|ours| if ours == b"t" { &b"true"[..] } else { b"false" }),
            _ if value.contains("char(5)") => ours.map(<[u8]>::trim_ascii_end),
            _ => ours,
        };
        let show = |text: Option<&[u8]>| text.map(|text| String::from_utf8_lossy(text).into_owned());
        assert_eq!(show(ours), show(theirs), "{value}");
    }
    for (column, kind) in
        [("now() AS at", "timestamptz"), ("ARRAY[1] AS list", "_int4"), ("ROW(1) AS pair", "record")]
    {
        let refused = node.run(branch, 0, &format!("SELECT 1 AS one, {column}"));
        let Err(StatementError::Refused(why)) = refused else { panic!("{column}: {refused:?}") };
        assert!(why.contains(kind) && why.contains("::text"), "{why}");
    }
    // Nothing of that has harmed the branch.
    assert_eq!(value(node.run(branch, 0, "SELECT now()::text IS NOT NULL")).as_deref(), Some("t"));
    lane.rollback(tx, "").unwrap();
}

/// A session keeps what it has parsed: one round trip less for each statement that comes again. What the table then is may be
/// something else.
#[test]
fn statement_that_was_parsed_for_another_table_is_parsed_again() {
    let Some(world) = World::shared() else { return };
    world.sql(0, "CREATE TABLE changes (v int); INSERT INTO changes VALUES (7)");
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let mut read = || {
        let tx = lane.begin(PATIENCE).unwrap();
        let branch = lane.enlist(tx, 0).unwrap();
        let answered = node.run(branch, 0, "SELECT v FROM changes");
        let outcome = lane.commit_and_wait(tx).unwrap();
        (answered, outcome)
    };
    let rows = |text: &str| Ok(Answered::Rows(vec![vec![Some(text.into())]]));
    assert_eq!(read(), (rows("7"), Outcome::Committed));
    assert_eq!(read(), (rows("7"), Outcome::Committed));
    world.sql(0, "ALTER TABLE changes ALTER v TYPE text USING 'seven'");
    // A session that has parsed it fails once; others parse it now.
    let mut failures = 0;
    for _ in 0..20 {
        let (answered, outcome) = read();
        if answered == rows("seven") {
            assert_eq!(outcome, Outcome::Committed);
            continue;
        }
        let is_old = matches!(&answered, Err(StatementError::Failed(why)) if why.contains("cached plan"));
        assert!(is_old, "{answered:?}");
        aborted(outcome);
        failures += 1;
    }
    assert!(failures <= 2, "{failures} failures, and two sessions at most knew it");
    assert_eq!(read(), (rows("seven"), Outcome::Committed));
}

#[test]
fn parameters_of_any_type_go_as_text() {
    let Some(world) = World::shared() else { return };
    world.sql(
        0,
        "CREATE TABLE p (i int8, f float8, n numeric, b bytea, j jsonb, at timestamptz, l int[], x text)",
    );
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let (tx, [branch, _]) = node.begin(&mut lane);
    let given =
        ["-5", "0.5", "1.10", "\\x00ff", "{\"a\": 1}", "2026-01-02 03:04:05+00", "{1,2}", "it's"].map(Some);
    let insert = "INSERT INTO p VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";
    assert_eq!(node.run_with(branch, 0, insert, &given), Ok(Answered::Changed(1)));
    assert_eq!(node.run_with(branch, 0, insert, &[None; 8]), Ok(Answered::Changed(1)));
    let select = "SELECT i, f, n, b, j, (at AT TIME ZONE 'UTC')::text, l::text, x FROM p WHERE i = $1 OR $1 IS NULL ORDER BY i";
    let Ok(Answered::Rows(rows)) = node.run_with(branch, 0, select, &[None]) else { panic!("no rows") };
    let first: Vec<_> =
        rows[0].iter().map(|value| String::from_utf8(value.clone().unwrap()).unwrap()).collect();
    assert_eq!(first, ["-5", "0.5", "1.10", "\\x00ff", "{\"a\": 1}", "2026-01-02 03:04:05", "{1,2}", "it's"]);
    assert_eq!(rows[1], vec![None; 8]);
    let failed = node.run_with(branch, 0, "SELECT $1::int", &[Some("five")]);
    assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains("five")), "{failed:?}");
    lane.rollback(tx, "").unwrap();
}

#[test]
fn result_that_is_too_large_is_refused_with_a_word_about_it() {
    let too_large = [
        ("SELECT generate_series(1, 70000)", "65536 rows"),
        ("SELECT repeat('x', 10000000) FROM generate_series(1, 10)", "67108864 bytes"),
        // Not read at all: its length is told first.
        ("SELECT repeat('x', 100000000)", "67174400 B are the most"),
        ("SELECT repeat('x', 50000000), repeat('y', 50000000)", "67174400 B are the most"),
    ];
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    for (statement, limit) in too_large {
        let (tx, [branch, other]) = node.begin(&mut lane);
        let failed = node.run(branch, 0, statement);
        assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains(limit)), "{failed:?}");
        let failed = node.run(branch, 0, "SELECT 1");
        assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains(limit)), "{failed:?}");
        node.run(other, 1, "SELECT 1").unwrap();
        lane.rollback(tx, "").unwrap();
    }
}

#[test]
fn nothing_of_a_branch_is_left_in_its_session() {
    let Some(world) = World::shared() else { return };
    world.sql(0, "CREATE ROLE low_0; GRANT ALL ON t TO low_0; CREATE SCHEMA other; CREATE SEQUENCE s");
    // One session for branches, and one for commits.
    let node = world.start_with(&mut |database, _| database.sessions_max = 2, |log| log);
    let mut lane = node.coordinator.lane();
    // What has touched a temporary table cannot be prepared: only a branch that is alone leaves one.
    for is_alone in [true, false] {
        let tx = lane.begin(PATIENCE).unwrap();
        let branch = lane.enlist(tx, 0).unwrap();
        let pid = value(node.run(branch, 0, "SELECT pg_backend_pid()")).unwrap();
        if is_alone {
            node.run(branch, 0, "CREATE TEMP TABLE scratch (key int)").unwrap();
            node.run(branch, 0, "DO $$ BEGIN EXECUTE 'LISTEN news'; END $$").unwrap();
        } else {
            let other = lane.enlist(tx, 1).unwrap();
            node.run(other, 1, "INSERT INTO t VALUES (1, '')").unwrap();
            node.run(branch, 0, "INSERT INTO t VALUES (1, '')").unwrap();
        }
        for statement in [
            "SELECT nextval('s')",
            "SET synchronous_commit TO off",
            "SET statement_timeout TO 77",
            "SET application_name TO 'somebody'",
            "SELECT set_config('search_path', 'other', false)",
            "SELECT pg_advisory_lock(4711)",
            "SET ROLE low_0",
        ] {
            node.run(branch, 0, statement).unwrap();
        }
        assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
        let (tx, [branch, other]) = node.begin_in(&mut lane, 0, &pid);
        let state =
            "SELECT concat_ws(' ', current_setting('synchronous_commit'), current_setting('application_name'),
            current_setting('search_path'), current_user, to_regclass('pg_temp.scratch') IS NULL,
            (SELECT count(*) FROM pg_listening_channels()),
            (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database =
                (SELECT oid FROM pg_database WHERE datname = current_database())))";
        let state = value(node.run(branch, 0, state));
        assert_eq!(state.as_deref(), Some("on evenkeel \"$user\", public postgres t 0 0"), "{is_alone}");
        node.run(other, 1, "SELECT 1").unwrap();
        let last = node.run(branch, 0, "SELECT lastval()");
        assert!(
            matches!(&last, Err(StatementError::Failed(why)) if why.contains("not yet defined")),
            "{last:?}"
        );
        lane.rollback(tx, "it failed").unwrap();
    }
}

/// What is deferred runs where a prepare ends otherwise, with nothing behind it that takes away what it has set.
#[test]
fn trigger_that_runs_at_the_prepare_leaves_nothing_in_its_session() {
    let Some(world) = World::shared() else { return };
    world.sql(
        0,
        "CREATE FUNCTION sets() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            PERFORM set_config('synchronous_commit', 'off', false), set_config('statement_timeout', '77', false),
                set_config('default_transaction_read_only', 'off', false), pg_advisory_lock(4711);
            INSERT INTO seen VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$;
         CREATE TABLE seen (sync text);
         CREATE CONSTRAINT TRIGGER sets AFTER INSERT ON t DEFERRABLE INITIALLY DEFERRED
            FOR EACH ROW EXECUTE FUNCTION sets()",
    );
    let node = world.start_with(&mut |database, _| database.sessions_max = 2, |log| log);
    let mut lane = node.coordinator.lane();
    let (tx, branches) = node.begin(&mut lane);
    let pid = value(node.run(branches[0], 0, "SELECT pg_backend_pid()")).unwrap();
    for (place, branch) in branches.into_iter().enumerate() {
        node.run(branch, place, "INSERT INTO t VALUES (1, '')").unwrap();
    }
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    let (tx, [branch, _]) = node.begin_in(&mut lane, 0, &pid);
    let state = "SELECT concat_ws(' ', (SELECT count(*) FROM seen WHERE sync = 'off'),
        current_setting('synchronous_commit'), current_setting('default_transaction_read_only'),
        current_setting('transaction_read_only'), current_setting('statement_timeout'),
        (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database =
            (SELECT oid FROM pg_database WHERE datname = current_database())))";
    assert_eq!(value(node.run(branch, 0, state)).as_deref(), Some("1 on on off 30s 0"));
    lane.rollback(tx, "seen").unwrap();
}

/// Where an operator wants sessions to write nothing, branches write nothing either.
#[test]
fn database_that_is_set_to_only_read_is_not_written_to() {
    let Some(world) = World::alone(&[]) else { return };
    world.sql(0, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only TO on', current_database()); END $$");
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let (_, [branch, _]) = node.begin(&mut lane);
    let refused = node.run(branch, 0, "INSERT INTO t VALUES (1, 'x')");
    assert!(matches!(&refused, Err(StatementError::Failed(why)) if why.contains("read-only")), "{refused:?}");
}

/// A branch can take away by which its session is made durable and clean: then nobody votes yes, and nothing stays prepared.
#[test]
fn prepare_that_cannot_be_made_durable_is_no_vote() {
    let Some(world) = World::shared() else { return };
    let node = world.start();
    let mut lane = node.coordinator.lane();
    let tx = node.insert(&mut lane, 1, "gone");
    let branch = BranchId { tx, branch: 0 };
    node.run(branch, 0, "DO $$ BEGIN EXECUTE 'DEALLOCATE ALL'; END $$").unwrap();
    let why = aborted(lane.commit_and_wait(tx).unwrap());
    assert!(why.contains("evenkeel_settle"), "{why}");
    until("nothing is prepared", || (0..2).all(|place| prepared(&world, place) == "0"));
    let tx = node.insert(&mut lane, 1, "kept");
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["1|kept", "1|kept"]);
}

/// PostgreSQL lets who has prepared it, or a superuser, commit it: a role that a statement took on would be neither.
#[test]
fn branch_that_took_on_another_role_is_committed_by_its_own() {
    let Some(world) = World::shared() else { return };
    world.sql(0, "CREATE ROLE app LOGIN; CREATE ROLE low; GRANT low TO app; GRANT ALL ON t TO low");
    let node = world.start_with(
        &mut |database, _| {
            if database.name == "one" {
                database.url = database.url.replace("//postgres@", "//app@");
            }
        },
        |log| log,
    );
    let mut lane = node.coordinator.lane();
    let (tx, branches) = node.begin(&mut lane);
    node.run(branches[0], 0, "SET ROLE low").unwrap();
    node.run(branches[0], 0, "INSERT INTO t VALUES (1, 'low')").unwrap();
    node.run(branches[1], 1, "INSERT INTO t VALUES (1, 'x')").unwrap();
    assert_eq!(lane.commit_and_wait(tx), Ok(Outcome::Committed));
    assert_eq!(world.rows(), ["1|low", "1|x"]);
    // What somebody else has prepared is said to be his.
    let (_, [branch, _]) = node.begin(&mut lane);
    let id = world.node.branch_id(branch);
    world.sql(0, &format!("BEGIN; INSERT INTO t VALUES (2, ''); PREPARE TRANSACTION '{id}'"));
    let failed = node.ask(0, Ask::Commit, branch);
    assert!(
        matches!(&failed, Answer::Failed(why) if why.contains("as the user of this resource")),
        "{failed:?}"
    );
    world.sql(0, &format!("ROLLBACK PREPARED '{id}'"));
}

#[test]
fn session_that_does_not_come_free_is_waited_for_so_long_and_no_longer() {
    let Some(world) = World::shared() else { return };
    let node = world.start_with(
        &mut |database, _| {
            database.sessions_max = 2;
            database.connect_timeout = Duration::from_millis(300);
        },
        |log| log,
    );
    let mut lane = node.coordinator.lane();
    let (first, [held, _]) = node.begin(&mut lane);
    node.run(held, 0, "INSERT INTO t VALUES (1, 'x')").unwrap();
    let (second, [waits, other]) = node.begin(&mut lane);
    let refused = node.run(waits, 0, "SELECT 1");
    let Err(StatementError::Refused(why)) = refused else { panic!("{refused:?}") };
    assert!(why.contains("300 ms") && why.contains("sessions_max"), "{why}");
    // One comes free while it waits.
    node.run(other, 1, "INSERT INTO t VALUES (2, 'x')").unwrap();
    let waiting = node.send(waits, 0, "INSERT INTO t VALUES (2, 'x')", &[]);
    assert_eq!(node.ask(0, Ask::Rollback, held), Answer::Done);
    assert_eq!(waiting.recv_timeout(PATIENCE).unwrap(), Ok(Answered::Changed(1)));
    assert_eq!(node.databases[0].sessions().busy, 1);
    assert_eq!(lane.commit_and_wait(second), Ok(Outcome::Committed));
    lane.rollback(first, "").unwrap();
}

/// The only session for branches waits for a row that the prepared one has locked: its commit gets a session all the same.
#[test]
fn commit_does_not_wait_for_those_who_wait_for_it() {
    let Some(world) = World::shared() else { return };
    let node = world.start_with(&mut |database, _| database.sessions_max = 2, |log| log);
    let mut lane = node.coordinator.lane();
    let (_, [holds, _]) = node.begin(&mut lane);
    let (_, [waits, _]) = node.begin(&mut lane);
    node.run(holds, 0, "INSERT INTO t VALUES (1, 'first')").unwrap();
    assert_eq!(node.ask(0, Ask::Prepare, holds), Answer::Voted(Vote::Yes));
    let waiting = node.send(waits, 0, "INSERT INTO t VALUES (1, 'second')", &[]);
    until("it waits", || world.sql(0, "SELECT count(*) FROM pg_locks WHERE NOT granted") == "1");
    assert_eq!(node.ask(0, Ask::Commit, holds), Answer::Done);
    let failed = waiting.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(&failed, Err(StatementError::Failed(why)) if why.contains("23505")), "{failed:?}");
    assert_eq!(world.rows()[0], "1|first");
}

#[test]
fn address_that_cannot_be_read_is_refused_without_its_password() {
    let drivers = Drivers::start().unwrap();
    let node = txn::id::NodeName::new("n").unwrap();
    for url in ["nonsense", "postgres://user:secret@/", "postgres://user:secret@host:port/x"] {
        let options = DatabaseOptions::new("orders", url, node.clone());
        let error = Postgres::start(&options, &drivers).unwrap_err().to_string();
        assert!(error.contains("not an address") && !error.contains("secret"), "{error}");
    }
    let options = DatabaseOptions::new("orders", "postgres://nobody:secret@127.0.0.1:1/none", node);
    let database = Postgres::start(&options, &drivers).unwrap();
    until("it was tried", || database.sessions().failures > 0);
    let why = database.ready().unwrap_err().to_string();
    assert!(why.contains("127.0.0.1:1") && why.contains("refused") && !why.contains("secret"), "{why}");
}

/// Each as an expression.
const VALUES: &[&str] = &[
    "true",
    "false",
    "NULL::int",
    "(-7)::int2",
    "2147483647",
    "(-9223372036854775808)::int8",
    "4000000000::oid",
    "1e15::float8",
    "1e14::float8",
    "0.1::float4",
    "1e6::float4",
    "123456.7::float4",
    "(-0.0)::float8",
    "1e-5::float8",
    "0.0001234::float8",
    "2.2250738585072014e-308::float8",
    "'NaN'::float8",
    "'-Infinity'::float4",
    "0::numeric",
    "12345678901234567890.000100::numeric",
    "(-0.00001)::numeric",
    "1e20::numeric",
    "'NaN'::numeric",
    "99999999.9999::numeric(12,4)",
    "10000::numeric",
    "'-Infinity'::numeric",
    "'ä'::text",
    "'x'::char(5)",
    "'y'::varchar",
    "'n'::name",
    "'c'::\"char\"",
    "'unknown'",
    "'{\"a\": 1}'::json",
    "'{\"b\":  2}'::jsonb",
    "'\\x00ff'::bytea",
    "'00112233-4455-6677-8899-aabbccddeeff'::uuid",
    "'it''s fine'::mood",
    "''::text",
];
