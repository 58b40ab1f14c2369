//! Statements in databases that answer when a test says so.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::Clock as _;
use reactor::Step;
use resp::encode_command;
use sql::{
    AddressError, AdoptError, Answered, Database, DatabaseOptions, Done, Sessions, StartError, Statement,
    StatementError,
};
use txn::dummy::Dummy;
use txn::id::BranchId;
use txn::resource::{Reply, Resource, Unready};

use super::{Harness, Wire};
use crate::settings::{ResourceKind, Settings, Size};
use crate::tx::Named;
use crate::tx::TransactionsError;

/// A database that is ready unless it is told otherwise, and keeps statements until they are answered.
#[derive(Debug)]
struct Scripted {
    protocol: Dummy,
    /// Why it is not ready.
    down: Mutex<Option<Unready>>,
    given: Mutex<VecDeque<Given>>,
    /// Addresses that it was given anew.
    renewed: Mutex<Vec<String>>,
}

struct Given {
    text: String,
    done: Done,
}

impl std::fmt::Debug for Given {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.text)
    }
}

impl Scripted {
    fn named(name: &str, kind: ResourceKind) -> (Arc<Self>, Named) {
        let database = Arc::new(Self {
            protocol: Dummy::new(name),
            down: Mutex::default(),
            given: Mutex::default(),
            renewed: Mutex::default(),
        });
        (Arc::clone(&database), Named { name: name.into(), kind, database })
    }

    /// The statements that wait for an answer.
    fn given(&self) -> Vec<String> {
        self.given.lock().unwrap().iter().map(|given| given.text.clone()).collect()
    }

    /// It is not ready from now on, or is again.
    fn falls(&self, why: Option<Unready>) {
        *self.down.lock().unwrap() = why;
    }

    /// Answers the first of them.
    fn answer(&self, answered: Result<Answered, StatementError>) {
        let given = self.given.lock().unwrap().pop_front().expect("a statement waits");
        (given.done)(answered);
    }
}

impl Resource for Scripted {
    fn name(&self) -> &str {
        self.protocol.name()
    }

    fn ready(&self) -> Result<(), Unready> {
        self.down.lock().unwrap().clone().map_or(Ok(()), Err)
    }

    fn prepare(&self, branch: BranchId, reply: Reply) {
        self.protocol.prepare(branch, reply);
    }

    fn commit(&self, branch: BranchId, reply: Reply) {
        self.protocol.commit(branch, reply);
    }

    fn commit_one_phase(&self, branch: BranchId, reply: Reply) {
        self.protocol.commit_one_phase(branch, reply);
    }

    fn rollback(&self, branch: BranchId, reply: Reply) {
        self.protocol.rollback(branch, reply);
    }

    fn recover(&self, reply: Reply) {
        self.protocol.recover(reply);
    }
}

impl Database for Scripted {
    fn run(&self, _: BranchId, statement: Statement, done: Done) {
        let parameters = statement.parameters.iter().flatten();
        let words: Vec<_> = parameters.map(|it| String::from_utf8_lossy(it).into_owned()).collect();
        let text = [vec![statement.text], words].concat().join(" ");
        self.given.lock().unwrap().push_back(Given { text, done });
    }

    fn adopt(&self, _: BranchId, _: Option<u64>) -> Result<(), AdoptError> {
        Ok(())
    }

    fn sessions(&self) -> Sessions {
        Sessions::default()
    }

    fn renew(&self, options: &DatabaseOptions) -> Result<(), StartError> {
        self.renewed.lock().unwrap().push(options.url.clone());
        let why = AddressError::Malformed("it names no host".to_owned());
        let wrong =
            StartError::Address { name: options.name.clone(), system: "a script", form: "script://", why };
        if options.url.contains("wrong") { Err(wrong) } else { Ok(()) }
    }

    fn close(&self) {
        self.given.lock().unwrap().clear();
    }
}

/// A server with two databases, a connection to it, and a transaction that it began.
struct Scene {
    harness: Harness,
    wire: Wire,
    one: Arc<Scripted>,
    other: Arc<Scripted>,
}

impl Scene {
    fn new() -> Self {
        Self::with(|_| {})
    }

    fn with(change: impl FnOnce(&mut Settings)) -> Self {
        let (one, first) = Scripted::named("one", ResourceKind::Postgres);
        let (other, second) = Scripted::named("other", ResourceKind::MariaDb);
        let mut harness = Harness::over(vec![first, second], change);
        let mut wire = harness.connect();
        assert!(harness.line(&mut wire, "TX.BEGIN").starts_with('*'));
        Self { harness, wire, one, other }
    }

    /// The transaction.
    fn id(&mut self) -> String {
        self.send(&[&["TX.STATUS", "$"]]).split("\r\n").nth(4).unwrap().to_owned()
    }

    /// Sends all of it at once.
    fn send(&mut self, requests: &[&[&str]]) -> String {
        let mut bytes = Vec::new();
        requests.iter().for_each(|request| encode_command(&mut bytes, request));
        String::from_utf8(self.harness.feed(&mut self.wire, &bytes)).unwrap()
    }

    /// What has come for the connection by now, and what it answers.
    fn come(&mut self) -> String {
        String::from_utf8(self.harness.deliver(&mut self.wire)).unwrap()
    }

    /// Waits for an outcome.
    fn outcome(&mut self) -> String {
        let begun = clock::SystemClock.now();
        loop {
            let came = self.come();
            if !came.is_empty() {
                return came;
            }
            assert!(clock::SystemClock.now().since(begun) < Duration::from_secs(30), "no outcome");
            std::thread::yield_now();
        }
    }
}

const CHANGED: Result<Answered, StatementError> = Ok(Answered::Changed(1));

fn nothing() -> Vec<String> {
    Vec::new()
}

#[test]
fn statement_begins_when_the_one_before_it_in_the_pipeline_was_answered() {
    let mut scene = Scene::new();
    let told = scene.send(&[
        &["TX.SQL", "$", "one", "a", "1"],
        &["TX.SQL", "$", "other", "b", "2", "3"],
        &["tx.sql", "$", "one", "c"],
        &["TX.DO", "$", "INCR", "k"],
        &["TX.SQL", "$", "other", "d"],
    ]);
    assert_eq!((told.as_str(), scene.wire.step, scene.wire.keeps), ("", Step::Park, true));
    assert_eq!((scene.one.given(), scene.other.given()), (vec!["a 1".to_owned()], nothing()));
    scene.harness.clock.advance(Duration::from_millis(20));
    scene.one.answer(CHANGED);
    assert_eq!((scene.one.given(), scene.other.given()), (nothing(), vec!["b 2 3".to_owned()]));
    assert_eq!(scene.come(), "", "it is not woken before all are answered");
    scene.harness.clock.advance(Duration::from_millis(5));
    scene.other.answer(Ok(Answered::Rows(vec![vec![Some(b"x".to_vec()), None]])));
    assert_eq!((scene.one.given(), scene.other.given()), (vec!["c".to_owned()], nothing()));
    scene.one.answer(Ok(Answered::Changed(7)));
    // What stands behind another command is run by itself.
    assert_eq!((scene.one.given(), scene.other.given()), (nothing(), nothing()));
    assert_eq!(scene.come(), ":1\r\n*1\r\n*2\r\n$1\r\nx\r\n$-1\r\n:7\r\n:1\r\n");
    assert_eq!((scene.wire.step, scene.other.given()), (Step::Park, vec!["d".to_owned()]));
    scene.other.answer(CHANGED);
    assert_eq!(scene.come(), ":1\r\n");
    scene.send(&[&["TX.COMMIT", "$"]]);
    assert!(scene.outcome().contains("committed"));
    assert_eq!(scene.send(&[&["GET", "k"]]), "$1\r\n1\r\n");
}

/// Each is as slow as it was, not as all of them.
#[test]
fn statements_of_a_pipeline_are_timed_one_by_one() {
    let mut scene = Scene::new();
    scene.send(&[&["CONFIG", "SET", "slowlog-log-slower-than", "10000"]]);
    scene.send(&[&["TX.SQL", "$", "one", "a"], &["TX.SQL", "$", "other", "b"], &["TX.SQL", "$", "one", "c"]]);
    for (database, ms) in [(&scene.one, 1), (&scene.other, 30), (&scene.one, 2)] {
        scene.harness.clock.advance(Duration::from_millis(ms));
        database.answer(CHANGED);
    }
    assert_eq!(scene.come(), ":1\r\n:1\r\n:1\r\n");
    let slow = scene.send(&[&["SLOWLOG", "GET", "-1"]]);
    assert!(slow.starts_with("*1\r\n"), "{slow}");
    assert!(slow.contains(":30000\r\n") && slow.contains("\r\nother\r\n"), "{slow}");
}

#[test]
fn error_ends_what_is_run_together() {
    let mut scene = Scene::new();
    scene.send(&[
        &["TX.SQL", "$", "one", "a"],
        &["TX.SQL", "$", "other", "b"],
        &["TX.SQL", "$", "one", "c"],
        &["TX.COMMIT", "$"],
    ]);
    scene.one.answer(CHANGED);
    scene.other.answer(Err(StatementError::Failed("no such table".to_owned())));
    let mut told = scene.come();
    assert_eq!((scene.one.given(), scene.other.given()), (nothing(), nothing()));
    while told.matches("\r\n").count() < 8 {
        told += &scene.outcome();
    }
    let lines: Vec<&str> = told.split("\r\n").collect();
    assert_eq!(lines[..2], [":1", "-ERR no such table; the branch can only roll back"], "{told}");
    assert!(lines[2].starts_with("-ERR transaction "), "{told}");
    assert_eq!(lines[4..7], ["$7", "aborted", "$56"], "{told}");
    assert_eq!(lines[7], "TX.SQL: ERR no such table; the branch can only roll back", "{told}");
}

/// An answer belongs to the command whose statement it answers, whatever the ones before it came to.
#[test]
fn answers_behind_an_error_are_forgotten() {
    let mut scene = Scene::with(|settings| settings.connections_output_max = Size(1_000));
    scene.send(&[&["TX.SQL", "$", "one", "a"], &["TX.SQL", "$", "other", "b"]]);
    // Fits between statements, but not into a reply.
    scene.one.answer(Ok(Answered::Rows(vec![vec![Some(vec![b'x'; 1_000])]])));
    scene.other.answer(Ok(Answered::Changed(5)));
    let told = scene.come();
    assert_eq!(told.lines().filter(|line| line.starts_with("-ERR")).count(), 2, "{told}");
    let begun = scene.send(&[&["TX.BEGIN"]]);
    assert!(begun.starts_with('*'), "{begun}");
    assert_eq!(scene.send(&[&["TX.SQL", "$", "one", "c"]]), "");
    assert_eq!(scene.one.given(), ["c"]);
    scene.one.answer(CHANGED);
    assert_eq!(scene.come(), ":1\r\n");
}

/// PostgreSQL was down: its statement was refused, that of MariaDB and the key were carried out, and TX.COMMIT said `committed`.
#[test]
fn statement_that_was_not_run_leaves_nothing_to_commit() {
    for answers_early in [true, false] {
        let mut scene = Scene::new();
        let id = scene.id();
        scene.send(&[&["TX.SQL", &id, "one", "a"]]);
        if !answers_early {
            // Its client has waited long enough, and goes on with another connection.
            scene.wire = scene.harness.connect();
        }
        scene.one.answer(Err(StatementError::Refused("all sessions are busy".to_owned())));
        assert_eq!(scene.come(), if answers_early { "-ERR all sessions are busy\r\n" } else { "" });
        for line in [&["TX.SQL", &id, "other", "b"][..], &["TX.DO", &id, "INCR", "k"]] {
            let no = scene.send(&[line]);
            assert!(no.starts_with(&format!("-ERR transaction {id} ")), "{no}");
        }
        assert_eq!(scene.other.given(), nothing());
        let mut outcome = scene.send(&[&["TX.COMMIT", &id]]);
        if outcome.is_empty() {
            outcome = scene.outcome();
        }
        let why = "TX.SQL: ERR all sessions are busy";
        assert_eq!(outcome, format!("*2\r\n$7\r\naborted\r\n${}\r\n{why}\r\n", why.len()));
        assert_eq!(scene.send(&[&["EXISTS", "k"]]), ":0\r\n");
    }
}

/// The first clients after a restart met `not connected yet`.
#[test]
fn server_that_has_just_started_waits_for_a_database_and_not_for_ever() {
    for comes in [true, false] {
        let mut scene = Scene::with(|settings| settings.txn_start_wait = Duration::from_secs(2));
        let id = scene.id();
        scene.one.falls(Some(Unready::Retry("not connected yet".to_owned())));
        let statement = ["TX.SQL", "$", "one", "a"];
        let enlist = ["TX.ENLIST", &id, "RESOURCE", "one"];
        let mut enlists = scene.harness.connect();
        assert_eq!(scene.send(&[&statement]), "");
        assert_eq!(scene.harness.raw(&mut enlists, &enlist), "");
        assert_eq!((scene.wire.step, enlists.step), (Step::Park, Step::Park));
        assert_eq!(scene.harness.after(&mut scene.wire, Duration::from_millis(1_900)), b"");
        if comes {
            scene.one.falls(None);
        }
        let told = scene.harness.after(&mut scene.wire, Duration::from_millis(100));
        let enlisted = scene.harness.after(&mut enlists, Duration::ZERO);
        if comes {
            assert_eq!((told.as_slice(), scene.one.given()), (&b""[..], vec!["a".to_owned()]));
            assert!(enlisted.starts_with(b"$"), "{enlisted:?}");
            scene.one.answer(CHANGED);
            assert_eq!(scene.come(), ":1\r\n");
            continue;
        }
        let told = String::from_utf8_lossy(&told).into_owned();
        assert!(told.starts_with("-ERR") && told.contains("not connected yet"), "{told}");
        // The server is no longer new: nobody waits.
        let id = scene.send(&[&["TX.BEGIN"]]).split("\r\n").nth(4).unwrap().to_owned();
        let told = scene.send(&[&["TX.SQL", &id, "one", "a"]]);
        assert!(told.starts_with("-ERR"), "{told}");
    }
}

/// With `fsync = off` nothing but its operator makes a database ready: its clients waited for `txn.start_wait` and were refused then.
#[test]
fn database_that_a_setting_keeps_from_being_ready_is_not_waited_for_after_the_start() {
    for why in [Unready::Setting("it runs with fsync = off".to_owned()), Unready::Closed("it was closed")] {
        for rest in [["TX.SQL", "one"], ["TX.ENLIST", "RESOURCE"]] {
            let mut scene = Scene::with(|settings| settings.txn_start_wait = Duration::from_secs(2));
            let id = scene.id();
            scene.one.falls(Some(why.clone()));
            let told = scene.send(&[&[rest[0], &id, rest[1], "one"]]);
            assert!(told.starts_with("-ERR") && told.contains(&why.to_string()), "{told}");
        }
    }
}

/// What was run and cannot be told must not be committed.
#[test]
fn statement_whose_rows_are_too_large_to_reply_is_rolled_back() {
    let mut scene = Scene::with(|settings| settings.connections_output_max = Size(1_000));
    let id = scene.id();
    assert_eq!(scene.send(&[&["TX.SQL", &id, "one", "INSERT … RETURNING …"]]), "");
    scene.one.answer(Ok(Answered::Rows(vec![vec![Some(vec![b'x'; 1_000])]])));
    let told = scene.come();
    let error = "-ERR the rows of the statement are larger than connections.output_max (1000 B); its transaction is rolled back\r\n";
    assert_eq!(told, error);
    let mut outcome = scene.send(&[&["TX.COMMIT", &id]]);
    if outcome.is_empty() {
        outcome = scene.outcome();
    }
    assert!(
        outcome.starts_with("*2\r\n$7\r\naborted\r\n") && outcome.contains("are larger than"),
        "{outcome}"
    );
}

#[test]
fn large_answer_is_not_kept_for_the_statements_behind_it() {
    let mut scene = Scene::new();
    scene.send(&[&["TX.SQL", "$", "one", "a"], &["TX.SQL", "$", "other", "b"]]);
    scene.one.answer(Ok(Answered::Rows(vec![vec![Some(vec![b'x'; 17 << 10])]])));
    assert_eq!(scene.other.given(), nothing());
    assert_eq!(scene.come().len(), (17 << 10) + "*1\r\n*1\r\n$17408\r\n\r\n".len());
    assert_eq!(scene.other.given(), ["b"]);
    scene.other.answer(CHANGED);
    assert_eq!(scene.come(), ":1\r\n");
}

#[test]
fn statements_are_not_run_any_more_once_their_transaction_ends() {
    let mut scene = Scene::new();
    let id = scene.id();
    scene.send(&[&["TX.SQL", "$", "one", "a"], &["TX.SQL", "$", "other", "b"]]);
    let mut operator = scene.harness.connect();
    scene.harness.line(&mut operator, &format!("TX.ROLLBACK {id}"));
    scene.one.answer(CHANGED);
    assert_eq!(scene.other.given(), nothing());
    let told = scene.come();
    assert!(told.starts_with(&format!(":1\r\n-ERR transaction {id} ")), "{told}");
}

/// By their identifier, replies leave as they come: nothing is run ahead of them.
#[test]
fn statements_of_other_transactions_or_no_resource_are_run_by_themselves() {
    for (at, next) in [
        &["TX.SQL", "$", "nowhere", "b"][..],
        &["TX.SQL", "$", "other"],
        &["TX.DO", "$", "PING"],
        &["TX.SQL", "ID", "other", "b"],
    ]
    .into_iter()
    .enumerate()
    {
        let mut scene = Scene::new();
        let id = scene.id();
        let next: Vec<&str> = next.iter().map(|word| if *word == "ID" { &id } else { *word }).collect();
        let first = if at == 3 { &id } else { "$" };
        assert_eq!(scene.send(&[&["TX.SQL", first, "one", "a"], &next]), "");
        scene.one.answer(CHANGED);
        assert_eq!(scene.other.given(), nothing(), "{next:?}");
        let told = scene.come();
        assert!(told.starts_with(if at == 3 { ":1\r\n" } else { ":1\r\n-ERR " }), "{next:?}: {told}");
        assert_eq!(scene.other.given().len(), usize::from(at == 3), "{next:?}");
    }
}

#[test]
fn no_more_than_some_statements_are_run_together() {
    let mut scene = Scene::new();
    let texts: Vec<String> = (0..40).map(|number| format!("s{number}")).collect();
    let requests: Vec<Vec<&str>> = texts.iter().map(|text| vec!["TX.SQL", "$", "one", text]).collect();
    let requests: Vec<&[&str]> = requests.iter().map(Vec::as_slice).collect();
    scene.send(&requests);
    let mut told = Vec::new();
    for text in &texts {
        if scene.one.given().is_empty() {
            told.push(scene.come());
        }
        assert_eq!(scene.one.given(), [text.as_str()]);
        scene.one.answer(CHANGED);
    }
    told.push(scene.come());
    assert_eq!(told, [":1\r\n".repeat(16), ":1\r\n".repeat(16), ":1\r\n".repeat(8)]);
}

/// Passwords and certificates held until the next start, and SIGHUP ended the server.
#[test]
fn databases_are_given_new_passwords_by_name_and_one_that_is_wrong_is_named() {
    let scene = Scene::new();
    let resources = |urls: [(&str, &str); 2]| {
        let mut settings = Settings::default();
        let toml: String =
            urls.iter().map(|(name, url)| format!("[resource.{name}]\nurl = '{url}'\n")).collect();
        settings.apply_toml(&toml).unwrap();
        settings.resources
    };
    let transactions = scene.harness.server.transactions.as_ref().unwrap();
    let new = resources([("one", "postgres://a:new@h/d"), ("elsewhere", "postgres://a@h/d")]);
    assert_eq!(transactions.renew(&new), Ok(()));
    assert_eq!(*scene.one.renewed.lock().unwrap(), ["postgres://a:new@h/d"]);
    assert!(scene.other.renewed.lock().unwrap().is_empty());
    let wrong = resources([("one", "postgres://a@h/d"), ("other", "mysql://a@wrong/d")]);
    assert_eq!(
        transactions.renew(&wrong),
        Err(TransactionsError::Setting(
            "resource.other: not an address of a script: it names no host (script://)".to_owned()
        ))
    );
}
