//! TX.*: transactions over keys, without databases.

use std::time::Duration;

use commands::command::Flags;

use super::*;
use crate::table::commands;

/// Runs a command that waits for an outcome, and waits for it.
pub(super) fn told(harness: &Harness, wire: &mut Wire, line: &str) -> String {
    let mut reply = harness.line(wire, line).into_bytes();
    let begun = clock::SystemClock.now();
    while reply.is_empty() {
        assert!(clock::SystemClock.now().since(begun) < Duration::from_secs(30), "no outcome of {line}");
        reply = harness.deliver(wire);
        std::thread::yield_now();
    }
    String::from_utf8(reply).unwrap()
}

/// Begins a transaction; its identifier.
pub(super) fn begin(harness: &Harness, wire: &mut Wire) -> String {
    let reply = harness.line(wire, "TX.BEGIN");
    let lines: Vec<&str> = reply.split("\r\n").collect();
    assert_eq!((lines[2], lines[6]), ("id", "branches"), "{reply}");
    lines[4].to_owned()
}

pub(super) const COMMITTED: &str = "*2\r\n$9\r\ncommitted\r\n$0\r\n\r\n";

#[test]
fn staged_writes_are_read_by_their_transaction_alone_until_it_commits() {
    let mut harness = Harness::new();
    let (mut one, mut other) = (harness.connect(), harness.connect());
    harness.expect(&mut one, &[("SET a 1", "+OK\r\n"), ("SET b old", "+OK\r\n")]);
    let id = begin(&harness, &mut one);
    harness.expect(
        &mut one,
        &[
            (&format!("TX.DO {id} INCRBY a 10"), ":11\r\n"),
            (&format!("TX.DO {id} GET a"), "$2\r\n11\r\n"),
            (&format!("TX.DO {id} DEL b"), ":1\r\n"),
            (&format!("TX.DO {id} EXISTS b"), ":0\r\n"),
            (&format!("TX.DO {id} SET c new EX 100"), "+OK\r\n"),
            ("GET a", "$1\r\n1\r\n"),
        ],
    );
    harness
        .expect(&mut other, &[("GET a", "$1\r\n1\r\n"), ("GET b", "$3\r\nold\r\n"), ("EXISTS c", ":0\r\n")]);
    assert_eq!(told(&harness, &mut one, &format!("TX.COMMIT {id}")), COMMITTED);
    let after = [("GET a", "$2\r\n11\r\n"), ("EXISTS b", ":0\r\n"), ("TTL c", ":100\r\n")];
    harness.expect(&mut other, &after);
    // Asked again, as a client does that lost the answer; from another connection, too.
    assert_eq!(told(&harness, &mut other, &format!("TX.COMMIT {id}")), COMMITTED);
    let error = harness.line(&mut other, &format!("TX.DO {id} SET a 5"));
    assert_eq!(error, format!("-ERR transaction {id} has ended: committed\r\n"));
}

#[test]
fn newest_transaction_of_a_connection_has_a_short_name_there() {
    let mut harness = Harness::with(|settings| settings.txn_transactions_max = 2);
    let (mut one, mut other) = (harness.connect(), harness.connect());
    let none = "-NOTX this connection has begun no transaction for $ to name: TX.BEGIN begins one\r\n";
    harness.expect(&mut one, &[("TX.DO $ SET a 1", none), ("TX.COMMIT $", none)]);
    let first = begin(&harness, &mut one);
    harness.expect(&mut one, &[("TX.DO $ SET a 1", "+OK\r\n")]);
    let second = begin(&harness, &mut one);
    harness.expect(&mut one, &[("TX.DO $ GET a", "$-1\r\n")]);
    harness.expect(&mut other, &[("TX.STATUS $", none)]);
    assert!(harness.line(&mut one, "TX.STATUS $").contains(&second));
    // One that was not begun must not be taken for the one before it.
    let no = harness.line(&mut one, "TX.BEGIN");
    assert!(no.starts_with('-'), "{no}");
    harness.expect(&mut one, &[("TX.DO $ SET b 1", none)]);
    assert!(harness.line(&mut one, "TX.BEGIN TIMEOUT soon").starts_with('-'));
    harness.expect(&mut one, &[("TX.DO $ SET b 1", none)]);
    assert_eq!(told(&harness, &mut one, &format!("TX.COMMIT {second}")), COMMITTED);
    let third = begin(&harness, &mut one);
    assert_eq!(told(&harness, &mut one, "TX.COMMIT $"), COMMITTED);
    assert!(harness.line(&mut one, "TX.STATUS $").contains(&third), "it is known until the next");
    harness.expect(&mut one, &[("RESET", "+RESET\r\n"), ("TX.STATUS $", none)]);
    assert_eq!(told(&harness, &mut other, &format!("TX.COMMIT {first}")), COMMITTED);
    harness.expect(&mut other, &[("GET a", "$1\r\n1\r\n")]);
}

/// What a transaction answers when it is asked to commit after an error.
fn aborted(why: &str) -> String {
    format!("*2\r\n$7\r\naborted\r\n${}\r\n{why}\r\n", why.len())
}

/// A statement was refused because its database was down, the next ones in another database and in keys were carried out, and TX.COMMIT said
/// `committed`: half of a transfer. Only `$` doomed its transaction, and only for three commands.
#[test]
fn any_error_of_a_command_leaves_its_transaction_nothing_to_commit_however_it_is_named() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    harness.expect(&mut wire, &[("SET text x", "+OK\r\n")]);
    for (wrong, why) in [
        ("TX.DO ID INCR text", "TX.DO: ERR value is not an integer or out of range"),
        ("TX.DO ID INCR", "TX.DO: ERR wrong number of arguments for 'incr' command"),
        ("TX.DO ID", "TX.DO: ERR wrong number of arguments for 'tx.do' command"),
        ("tx.do ID NOSUCH x", "TX.DO: ERR unknown command 'NOSUCH', with args beginning with: 'x'"),
        (
            "TX.DO ID PING",
            "TX.DO: ERR TX.DO cannot stage PING: it names no keys; run it outside of the transaction",
        ),
        ("TX.SQL ID nowhere x", "TX.SQL: ERR there is no resource 'nowhere': none is in the settings file"),
        ("TX.SQL ID", "TX.SQL: ERR wrong number of arguments for 'tx.sql' command"),
        (
            "TX.ENLIST ID RESOURCE nowhere",
            "TX.ENLIST: ERR there is no resource 'nowhere': none is in the settings file",
        ),
        ("TX.ENLIST ID nowhere nowhere", "TX.ENLIST: ERR syntax error"),
        ("TX.COMMIT ID now", "TX.COMMIT: ERR wrong number of arguments for 'tx.commit' command"),
        (
            "TX.DOO ID SET k v",
            "TX.DOO: ERR unknown command 'TX.DOO', with args beginning with: 'ID' 'SET' 'k' 'v'",
        ),
    ] {
        for by_identifier in [false, true] {
            let id = begin(&harness, &mut wire);
            let name = if by_identifier { &*id } else { "$" };
            let named = |line: &str| line.replace("ID", name);
            harness.expect(&mut wire, &[(&named("TX.DO ID SET a 1"), "+OK\r\n")]);
            // By its identifier, whoever made the mistake.
            let whose = if by_identifier { &mut other } else { &mut wire };
            assert!(harness.line(whose, &named(wrong)).starts_with('-'), "{wrong}");
            for late in ["TX.DO ID SET b 1", "TX.DO ID INCR text"] {
                let late = harness.line(&mut wire, &named(late));
                assert!(late.starts_with(&format!("-ERR transaction {id} ")), "{late}");
            }
            let first = named(why);
            assert_eq!(told(&harness, &mut wire, &named("TX.COMMIT ID")), aborted(&first), "{wrong}");
            assert_eq!(told(&harness, &mut other, &format!("TX.COMMIT {id}")), aborted(&first), "{wrong}");
            harness.expect(&mut wire, &[("EXISTS a b", ":0\r\n")]);
        }
    }
}

/// Which state a connection is in does not matter: the refused command belonged to the transaction.
#[test]
fn command_that_its_connection_may_not_run_now_dooms_its_transaction_too() {
    for (before, why) in [
        ("MULTI", "TX.DO: ERR Command not allowed inside a transaction"),
        (
            "SUBSCRIBE c",
            "TX.DO: ERR Can't execute 'tx.do': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
        ),
        ("CLIENT REPLY OFF", "TX.DO: ERR value is not an integer or out of range"),
    ] {
        let mut harness = Harness::new();
        let (mut wire, mut other) = (harness.connect(), harness.connect());
        harness.expect(&mut wire, &[("SET text x", "+OK\r\n")]);
        let id = begin(&harness, &mut wire);
        harness.line(&mut wire, before);
        harness.line(&mut wire, &format!("TX.DO {id} INCR text"));
        assert_eq!(told(&harness, &mut other, &format!("TX.COMMIT {id}")), aborted(why));
    }
}

/// Its connection is closed, but its transaction belongs to no connection.
#[test]
fn request_that_cannot_be_parsed_dooms_the_transaction_that_it_names() {
    for wrong in [
        "*5\r\n$5\r\nTX.DO\r\n$LEN\r\nID\r\n$3\r\nSET\r\n$1\r\nk\r\n$999999999999\r\n",
        "*3\r\n$6\r\ntx.sql\r\n$LEN\r\nID\r\nx\r\n",
        "TX.DO ID SET k \"v\r\n",
    ] {
        let mut harness = Harness::new();
        let (mut wire, mut other) = (harness.connect(), harness.connect());
        let id = begin(&harness, &mut wire);
        harness.expect(&mut wire, &[(&format!("TX.DO {id} SET a 1"), "+OK\r\n")]);
        let wrong = wrong.replace("LEN", &id.len().to_string()).replace("ID", &id);
        let error = String::from_utf8(harness.feed(&mut wire, wrong.as_bytes())).unwrap();
        assert!(error.starts_with("-ERR Protocol error") && matches!(wire.step, Step::Refuse(_)), "{error}");
        let outcome = told(&harness, &mut other, &format!("TX.COMMIT {id}"));
        assert!(outcome.contains("aborted") && outcome.contains("ERR Protocol error"), "{outcome}");
    }
}

/// Looking at a transaction is not working in it, nor does a stranger end one by guessing its identifier.
#[test]
fn error_of_who_only_looks_or_has_no_password_dooms_nothing() {
    let mut harness = Harness::with(|settings| settings.set("requirepass", "secret").unwrap());
    let (mut wire, mut stranger) = (harness.connect(), harness.connect());
    harness.expect(&mut wire, &[("AUTH secret", "+OK\r\n")]);
    let id = begin(&harness, &mut wire);
    for line in ["TX.DO ID SET", "TX.DOO ID", "TX.COMMIT ID"] {
        let no = harness.line(&mut stranger, &line.replace("ID", &id));
        assert!(no.starts_with('-'), "{no}");
    }
    for line in ["TX.STATUS ID x", "TX.RESOLVE ID COMMIT", "TX.RESOLVE ID x", "TX.LIST ID", "GET ID x"] {
        let no = harness.line(&mut wire, &line.replace("ID", &id));
        assert!(no.starts_with('-'), "{no}");
    }
    harness.expect(&mut wire, &[("TX.DO $ SET a 1", "+OK\r\n")]);
    assert_eq!(told(&harness, &mut wire, "TX.COMMIT $"), COMMITTED);
}

#[test]
fn refusal_for_want_of_room_dooms_its_transaction() {
    let mut harness = Harness::with(|settings| settings.set("value.max", "1KiB").unwrap());
    let mut wire = harness.connect();
    let id = begin(&harness, &mut wire);
    harness.expect(&mut wire, &[(&format!("TX.DO {id} SET k v"), "+OK\r\n")]);
    let no = harness.line(&mut wire, &format!("TX.DO {id} SETRANGE k 1024 x"));
    assert!(no.starts_with('-'), "{no}");
    let outcome = told(&harness, &mut wire, &format!("TX.COMMIT {id}"));
    assert!(outcome.contains("aborted") && outcome.contains(no[1..].trim_end()), "{outcome}");
    harness.expect(&mut wire, &[("DBSIZE", ":0\r\n")]);
}

/// `TX.BEGIN TIMEOUT 86400000` kept sessions of databases, and rows, for a day.
#[test]
fn timeout_of_a_transaction_is_bounded_by_a_setting() {
    let mut harness = Harness::with(|settings| settings.txn_timeout_max = Duration::from_secs(90));
    let mut wire = harness.connect();
    assert!(harness.line(&mut wire, "TX.BEGIN TIMEOUT 90000").starts_with('*'));
    let no =
        "-ERR TIMEOUT '90001' is not a whole number of milliseconds from 1 to 90000 (txn.timeout_max)\r\n";
    harness.expect(&mut wire, &[("TX.BEGIN TIMEOUT 90001", no)]);
    harness.expect(&mut wire, &[("CONFIG SET txn.timeout_max 50ms", "+OK\r\n")]);
    let id = begin(&harness, &mut wire);
    harness.clock.advance(Duration::from_millis(51));
    let outcome = told(&harness, &mut wire, &format!("TX.COMMIT {id}"));
    assert!(outcome.contains("the transaction's time is over"), "{outcome}");
}

#[test]
fn list_tells_so_many_as_are_asked_for() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let ids: Vec<String> = (0..120).map(|_| begin(&harness, &mut wire)).collect();
    for (line, told) in [
        ("TX.LIST", 100),
        ("TX.LIST COUNT 2", 2),
        ("TX.LIST active count 110", 110),
        ("TX.LIST active COUNT 10000", 120),
        ("TX.LIST committed", 0),
    ] {
        let reply = harness.line(&mut wire, line);
        assert!(reply.starts_with(&format!("*{told}\r\n")), "{line}: {reply}");
        let known = |id: &&String| reply.contains(&format!("\r\n{id}\r\n"));
        assert_eq!(ids.iter().take_while(known).count(), told, "{line}: the first");
    }
}

#[test]
fn replies_of_a_pipeline_wait_together_but_leave_before_the_commit_begins() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let mut requests = Vec::new();
    for request in [&["TX.BEGIN"][..], &["TX.DO", "$", "SET", "a", "1"], &["TX.COMMIT", "$"]] {
        encode_command(&mut requests, request);
    }
    let first = harness.turn(&mut wire, &requests);
    assert!(first.ends_with(b"+OK\r\n") && wire.step == Step::Yield, "{first:?}");
    let active = Some(txn::protocol::State::Active);
    assert_eq!(harness.server.transactions.as_ref().unwrap().coordinator().transactions(active, 2).len(), 1);
    assert_eq!((harness.turn(&mut wire, b""), wire.step, wire.keeps), (Vec::new(), Step::Park, true));
    let mut other = harness.connect();
    let id = begin(&harness, &mut other);
    assert_eq!((harness.line(&mut other, &format!("TX.COMMIT {id}")), other.keeps), (String::new(), false));
}

#[test]
fn transaction_goes_on_over_several_connections_and_rolls_back() {
    let mut harness = Harness::new();
    let (mut one, mut other) = (harness.connect(), harness.connect());
    let id = begin(&harness, &mut one);
    harness.expect(&mut one, &[(&format!("TX.DO {id} SET k v"), "+OK\r\n")]);
    harness.expect(&mut other, &[(&format!("TX.DO {id} APPEND k w"), ":2\r\n")]);
    let outcome = told(&harness, &mut other, &format!("TX.ROLLBACK {id}"));
    assert_eq!(outcome, "*2\r\n$7\r\naborted\r\n$26\r\nthe client rolled it back\r\n".replace("$26", "$25"));
    harness.expect(&mut one, &[("EXISTS k", ":0\r\n")]);
    let status = harness.line(&mut one, &format!("TX.STATUS {id}"));
    assert!(status.contains("aborted"), "{status}");
}

#[test]
fn key_that_changed_meanwhile_aborts() {
    let mut harness = Harness::new();
    let (mut one, mut other) = (harness.connect(), harness.connect());
    harness.expect(&mut one, &[("SET a 1", "+OK\r\n")]);
    let id = begin(&harness, &mut one);
    harness.expect(
        &mut one,
        &[(&format!("TX.DO {id} GET a"), "$1\r\n1\r\n"), (&format!("TX.DO {id} SET b 1"), "+OK\r\n")],
    );
    harness.expect(&mut other, &[("SET a 2", "+OK\r\n")]);
    let outcome = told(&harness, &mut one, &format!("TX.COMMIT {id}"));
    assert!(outcome.contains("aborted") && outcome.contains("key 'a' has changed"), "{outcome}");
    harness.expect(&mut one, &[("EXISTS b", ":0\r\n")]);
}

#[test]
fn what_cannot_be_is_said_and_changes_nothing() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for (line, expected) in [
        (
            "TX.DO ID PING",
            "-ERR TX.DO cannot stage PING: it names no keys; run it outside of the transaction\r\n",
        ),
        (
            "TX.DO ID OBJECT HELP",
            "-ERR TX.DO cannot stage OBJECT|HELP: it names no keys; run it outside of the transaction\r\n",
        ),
        ("TX.DO ID NOSUCH x", "-ERR unknown command 'NOSUCH', with args beginning with: 'x' \r\n"),
        ("TX.DO ID GET", "-ERR wrong number of arguments for 'get' command\r\n"),
        ("TX.DO ID", "-ERR wrong number of arguments for 'tx.do' command\r\n"),
        ("TX.DO x-y SET a b", "-ERR 'x-y' is no identifier of a transaction: TX.BEGIN gives them\r\n"),
        ("TX.SQL ID orders SELECT", "-ERR there is no resource 'orders': none is in the settings file\r\n"),
        (
            "TX.ENLIST ID RESOURCE orders",
            "-ERR there is no resource 'orders': none is in the settings file\r\n",
        ),
        ("TX.ENLIST ID orders orders", "-ERR syntax error\r\n"),
        ("TX.BEGIN TIMEOUT", "-ERR syntax error\r\n"),
        (
            "TX.BEGIN TIMEOUT 0",
            "-ERR TIMEOUT '0' is not a whole number of milliseconds from 1 to 600000 (txn.timeout_max)\r\n",
        ),
        (
            "TX.RESOLVE ID COMMIT",
            "-ERR the transaction is active: there is nothing for an operator to resolve\r\n",
        ),
        ("TX.RESOLVE ID MAYBE", "-ERR syntax error\r\n"),
        (
            "TX.LIST nonsense",
            "-ERR 'nonsense' is no state: one of active, preparing, deciding, committing, rolling-back, heuristic, in-doubt, committed\r\n",
        ),
        (
            "TX.LIST COUNT",
            "-ERR 'COUNT' is no state: one of active, preparing, deciding, committing, rolling-back, heuristic, in-doubt, committed\r\n",
        ),
        ("TX.LIST COUNT 0", "-ERR COUNT is a whole number from 1 to 10000\r\n"),
        ("TX.LIST active COUNT 10001", "-ERR COUNT is a whole number from 1 to 10000\r\n"),
        ("TX.LIST active LIMIT 1", "-ERR syntax error\r\n"),
        ("TX.LIST active COUNT 1 1", "-ERR syntax error\r\n"),
    ] {
        let id = begin(&harness, &mut wire);
        assert_eq!(harness.line(&mut wire, &line.replace("ID", &id)), expected, "{line}");
        told(&harness, &mut wire, &format!("TX.ROLLBACK {id}"));
    }
    let unknown = harness.line(&mut wire, "TX.COMMIT 1-1");
    assert!(unknown.starts_with("-NOTX no transaction 1-1 is known"), "{unknown}");
    harness.expect(
        &mut wire,
        &[("MULTI", "+OK\r\n"), ("TX.BEGIN", "-ERR Command not allowed inside a transaction\r\n")],
    );
    harness.expect(&mut wire, &[("DISCARD", "+OK\r\n")]);
    let id = begin(&harness, &mut wire);
    harness.expect(&mut wire, &[(&format!("TX.DO {id} SET k v"), "+OK\r\n")]);
    assert_eq!(told(&harness, &mut wire, &format!("TX.COMMIT {id}")), COMMITTED);
    let info = harness.line(&mut wire, "INFO transactions");
    assert!(info.contains("txn_committed:1\r\n") && info.contains("txn_live:0\r\n"), "{info}");
}

/// The shared lane sleeps by the real clock; the store and the coordinator go by this one.
#[test]
fn transaction_that_nobody_ends_rolls_back() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let reply = harness.line(&mut wire, "TX.BEGIN TIMEOUT 100");
    let id = reply.split("\r\n").nth(4).unwrap().to_owned();
    harness.expect(&mut wire, &[(&format!("TX.DO {id} SET k v"), "+OK\r\n")]);
    harness.clock.advance(Duration::from_millis(101));
    let outcome = told(&harness, &mut wire, &format!("TX.COMMIT {id}"));
    assert!(outcome.contains("aborted"), "{outcome}");
    harness.expect(&mut wire, &[("EXISTS k", ":0\r\n")]);
}

/// A branch that is prepared while its databases are asked.
fn prepare(harness: &Harness, key: &[u8]) {
    let store = &harness.server.store;
    let mut workspace = store.workspace();
    store.touch(&mut workspace, &[store::KeyRef { db: 0, key }]).unwrap();
    let staging = store.prepare("evk_n_1_2a_0", &workspace, &store::Prepared::default()).unwrap();
    assert!(matches!(staging, store::Staging::Done { .. }), "{staging:?}");
}

#[test]
fn write_to_a_prepared_key_waits_and_goes_on_when_the_transaction_has_ended() {
    let mut harness = Harness::new();
    let (mut one, mut other) = (harness.connect(), harness.connect());
    harness.expect(&mut one, &[("SET k old", "+OK\r\n")]);
    prepare(&harness, b"k");
    harness.expect(&mut one, &[("GET k", "$3\r\nold\r\n"), ("SET free 1", "+OK\r\n")]);
    assert_eq!(harness.line(&mut one, "SET k new"), "");
    assert_eq!((one.step, harness.line(&mut other, "FLUSHALL")), (Step::Park, String::new()));
    assert_eq!(harness.after(&mut one, Duration::from_millis(20)), b"", "it looked again, and waits");
    let ended = harness.server.store.rollback_prepared("evk_n_1_2a_0", &store::Prepared::default());
    assert!(ended.unwrap().is_some());
    harness.server.waits.on_unlock();
    assert_eq!(harness.deliver(&mut one), b"+OK\r\n");
    harness.expect(&mut one, &[("GET k", "$3\r\nnew\r\n")]);
    assert_eq!(harness.deliver(&mut other), b"+OK\r\n");
}

#[test]
fn whole_databases_are_flushed_and_swapped_by_a_transaction_alone_until_it_commits() {
    let mut harness = Harness::new();
    let (mut one, mut other) = (harness.connect(), harness.connect());
    harness.expect(
        &mut one,
        &[
            ("SET a 1", "+OK\r\n"),
            ("SELECT 1", "+OK\r\n"),
            ("SET b 2", "+OK\r\n"),
            ("SELECT 2", "+OK\r\n"),
            ("SET c 3", "+OK\r\n"),
            ("SELECT 0", "+OK\r\n"),
        ],
    );
    let id = begin(&harness, &mut one);
    harness.expect(
        &mut one,
        &[
            (&format!("TX.DO {id} SWAPDB 0 1"), "+OK\r\n"),
            (&format!("TX.DO {id} MGET a b"), "*2\r\n$-1\r\n$1\r\n2\r\n"),
            (&format!("TX.DO {id} INCR b"), ":3\r\n"),
            ("SELECT 2", "+OK\r\n"),
            (&format!("TX.DO {id} FLUSHDB"), "+OK\r\n"),
            (&format!("TX.DO {id} GET c"), "$-1\r\n"),
            (&format!("TX.DO {id} SET d 4"), "+OK\r\n"),
            ("MGET c d", "*2\r\n$1\r\n3\r\n$-1\r\n"),
        ],
    );
    harness.expect(&mut other, &[("MGET a b", "*2\r\n$1\r\n1\r\n$-1\r\n")]);
    assert_eq!(told(&harness, &mut one, &format!("TX.COMMIT {id}")), COMMITTED);
    harness.expect(
        &mut other,
        &[
            ("MGET a b", "*2\r\n$-1\r\n$1\r\n3\r\n"),
            ("SELECT 1", "+OK\r\n"),
            ("MGET a b", "*2\r\n$1\r\n1\r\n$-1\r\n"),
            ("SELECT 2", "+OK\r\n"),
            ("MGET c d", "*2\r\n$-1\r\n$1\r\n4\r\n"),
        ],
    );
    let id = begin(&harness, &mut one);
    harness.expect(&mut one, &[(&format!("TX.DO {id} FLUSHALL"), "+OK\r\n")]);
    assert_eq!(told(&harness, &mut one, &format!("TX.COMMIT {id}")), COMMITTED);
    harness.expect(&mut other, &[("DBSIZE", ":0\r\n"), ("SELECT 0", "+OK\r\n"), ("DBSIZE", ":0\r\n")]);
}

/// Prepares a branch that empties database 0, which holds it whole.
fn prepare_flush(harness: &Harness) {
    prepare_moves(harness, |access| access.flush(0));
}

fn prepare_moves(harness: &Harness, moves: impl Fn(&mut store::Access<'_>) -> Result<(), store::Stop>) {
    let store = &harness.server.store;
    let (mut workspace, prepared) = (store.workspace(), store::Prepared::default());
    let mut access = store.access(store::Scope::Everything, &prepared, 0).unwrap();
    access.resume(&workspace);
    moves(&mut access).unwrap();
    access.keep(&mut workspace).unwrap();
    let staging = store.prepare("evk_n_1_2a_0", &workspace, &prepared).unwrap();
    assert!(matches!(staging, store::Staging::Done { .. }), "{staging:?}");
}

/// The reply to `line`, when it has waited as long as it may.
fn held(harness: &Harness, wire: &mut Wire, line: &str) -> String {
    let (mut reply, mut waited) = (harness.line(wire, line).into_bytes(), Duration::ZERO);
    while reply.is_empty() && waited < Duration::from_secs(60) {
        waited += Duration::from_millis(20);
        reply = harness.after(wire, Duration::from_millis(20));
    }
    assert_eq!(waited, Duration::from_secs(1), "{line}");
    String::from_utf8(reply).unwrap()
}

#[test]
fn database_that_stays_prepared_is_named_to_who_would_change_it() {
    let mut harness = Harness::with(|settings| settings.set("txn.node", "n").unwrap());
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[("SET a 1", "+OK\r\n"), ("SET short 1 EX 5", "+OK\r\n"), ("SELECT 1", "+OK\r\n")],
    );
    harness.expect(&mut wire, &[("SET b 2", "+OK\r\n"), ("SELECT 0", "+OK\r\n")]);
    prepare_flush(&harness);
    let told = |what: &str| {
        format!("-TRYAGAIN {what} is held by prepared transaction 1-2a, for longer than txn.lock_wait\r\n")
    };
    for (line, what) in [
        ("FLUSHDB", "database 0"),
        ("FLUSHALL", "database 0"),
        ("SWAPDB 0 1", "database 0"),
        ("SWAPDB 1 0", "database 0"),
        ("SET k v", "key 'k'"),
        ("DEL a", "key 'a'"),
        ("EXPIRE a 100", "key 'a'"),
        ("GETDEL a", "key 'a'"),
        ("RENAME a z", "key 'z'"),
        ("COPY a z", "key 'z'"),
        ("MOVE a 1", "key 'a'"),
    ] {
        assert_eq!(held(&harness, &mut wire, line), told(what), "{line}");
    }
    let queued = [("MULTI", "+OK\r\n"), ("GET a", "+QUEUED\r\n"), ("SET k 1", "+QUEUED\r\n")];
    harness.expect(&mut wire, &queued);
    assert_eq!(held(&harness, &mut wire, "EXEC"), told("key 'k'"));
    // From another database into it; what stays there goes on.
    harness.expect(&mut wire, &[("SELECT 1", "+OK\r\n")]);
    for (line, what) in [("MOVE b 0", "key 'b'"), ("COPY b z DB 0", "key 'z'")] {
        assert_eq!(held(&harness, &mut wire, line), told(what), "{line}");
    }
    harness.expect(&mut wire, &[("INCR b", ":3\r\n"), ("SELECT 0", "+OK\r\n")]);
    // Readers see what is committed; a key whose time has come is gone for them, and nothing waits for it.
    harness.expect(
        &mut wire,
        &[
            ("GET a", "$1\r\n1\r\n"),
            ("EXISTS k z", ":0\r\n"),
            ("GET short", "$-1\r\n"),
            ("EXISTS short", ":0\r\n"),
        ],
    );
    let info = harness.line(&mut wire, "INFO transactions");
    assert!(info.contains("txn_locked_keys:0\r\n") && info.contains("txn_locked_databases:1\r\n"), "{info}");
    harness.expect(
        &mut wire,
        &[("TX.RESOLVE 1-2a COMMIT", "+OK\r\n"), ("DBSIZE", ":0\r\n"), ("SET k v", "+OK\r\n")],
    );
    harness.expect(&mut wire, &[("SELECT 1", "+OK\r\n"), ("MOVE b 0", ":1\r\n")]);
}

#[test]
fn database_that_was_held_is_as_it_was_after_a_rollback() {
    let mut harness = Harness::with(|settings| settings.set("txn.node", "n").unwrap());
    let (mut one, mut other) = (harness.connect(), harness.connect());
    harness.expect(&mut one, &[("SET a 1", "+OK\r\n")]);
    prepare_flush(&harness);
    assert_eq!((harness.line(&mut one, "RENAME a b"), one.step), (String::new(), Step::Park));
    harness.expect(&mut other, &[("GET a", "$1\r\n1\r\n"), ("TX.RESOLVE 1-2a ROLLBACK", "+OK\r\n")]);
    harness.server.waits.on_unlock();
    assert_eq!(harness.deliver(&mut one), b"+OK\r\n");
    harness.expect(&mut other, &[("GET b", "$1\r\n1\r\n"), ("FLUSHDB", "+OK\r\n"), ("DBSIZE", ":0\r\n")]);
}

/// Prepares a branch that swaps databases 0 and 1, which holds both whole.
fn prepare_swap(harness: &Harness) {
    prepare_moves(harness, |access| access.swap(0, 1));
}

#[test]
fn exec_that_writes_to_a_held_database_does_none_of_it() {
    let mut harness = Harness::with(|settings| settings.set("txn.node", "n").unwrap());
    let mut wire = harness.connect();
    harness.expect(&mut wire, &[("SET a 1", "+OK\r\n"), ("SELECT 1", "+OK\r\n"), ("SET b 2", "+OK\r\n")]);
    prepare_flush(&harness);
    for (lines, what) in [
        (&["INCR b", "SELECT 0", "SET k v"][..], "key 'k'"),
        (&["INCR b", "SET new 1", "COPY b z DB 0"], "key 'z'"),
        (&["INCR b", "MOVE b 0"], "key 'b'"),
        (&["INCR b", "SELECT 0", "DEL a"], "key 'a'"),
        (&["INCR b", "FLUSHALL"], "database 0"),
        (&["INCR b", "SWAPDB 1 0"], "database 0"),
    ] {
        harness.expect(&mut wire, &[("MULTI", "+OK\r\n")]);
        lines.iter().for_each(|line| harness.expect(&mut wire, &[(line, "+QUEUED\r\n")]));
        let told = format!(
            "-TRYAGAIN {what} is held by prepared transaction 1-2a, for longer than txn.lock_wait\r\n"
        );
        assert_eq!(held(&harness, &mut wire, "EXEC"), told, "{lines:?}");
        let after = [("GET b", "$1\r\n2\r\n"), ("EXISTS new", ":0\r\n"), ("DBSIZE", ":1\r\n")];
        harness.expect(&mut wire, &after);
    }
    // One that only reads there, and one that changes nothing there, wait for nobody.
    let lines = [
        ("MULTI", "+OK\r\n"),
        ("INCR b", "+QUEUED\r\n"),
        ("SELECT 0", "+QUEUED\r\n"),
        ("GET a", "+QUEUED\r\n"),
        ("DEL none", "+QUEUED\r\n"),
        ("DBSIZE", "+QUEUED\r\n"),
        ("EXEC", "*5\r\n:3\r\n+OK\r\n$1\r\n1\r\n:0\r\n:1\r\n"),
    ];
    harness.expect(&mut wire, &lines);
}

/// Lines that wait, each on a connection of its own, in database 0.
fn parked(harness: &mut Harness, lines: &[&str]) -> Vec<Wire> {
    let park = |line: &&str| {
        let mut wire = harness.connect();
        assert_eq!((harness.line(&mut wire, line), wire.step), (String::new(), Step::Park), "{line}");
        wire
    };
    lines.iter().map(park).collect()
}

#[test]
fn writers_that_waited_go_on_with_what_the_end_of_the_transaction_left() {
    let lines = ["INCR n", "APPEND n 0", "COPY n k", "SET l v NX GET", "RENAME n m", "MOVE k 2"];
    for (ending, replies, n_of_1, all) in [
        ("COMMIT", [":11\r\n", ":3\r\n", ":1\r\n", "$-1\r\n", "+OK\r\n", ":1\r\n"], "1", "110"),
        ("ROLLBACK", [":2\r\n", ":2\r\n", ":1\r\n", "$-1\r\n", "+OK\r\n", ":1\r\n"], "10", "20"),
    ] {
        let mut harness = Harness::with(|settings| settings.set("txn.node", "n").unwrap());
        let mut wire = harness.connect();
        let before = [
            ("SET n 1", "+OK\r\n"),
            ("SELECT 1", "+OK\r\n"),
            ("SET n 10", "+OK\r\n"),
            ("SELECT 0", "+OK\r\n"),
        ];
        harness.expect(&mut wire, &before);
        prepare_swap(&harness);
        let mut waiting = parked(&mut harness, &lines[..5]);
        // There is no such key yet: it changes nothing, and waits for nobody.
        harness.expect(&mut wire, &[(lines[5], ":0\r\n")]);
        assert_eq!(harness.line(&mut wire, &format!("TX.RESOLVE 1-2a {ending}")), "+OK\r\n");
        harness.server.waits.on_unlock();
        for ((wire, line), reply) in waiting.iter_mut().zip(lines).zip(replies) {
            assert_eq!(String::from_utf8(harness.deliver(wire)).unwrap(), reply, "{ending}: {line}");
        }
        let bulk = |text: &str| format!("${}\r\n{text}\r\n", text.len());
        let both = format!("*2\r\n{}{}", bulk(all), bulk(all));
        harness.expect(&mut wire, &[("MGET m k", &both), (lines[5], replies[5])]);
        harness.expect(&mut wire, &[("SELECT 1", "+OK\r\n"), ("GET n", &bulk(n_of_1))]);
    }
}

#[test]
fn watched_key_of_a_held_database_is_dirty_after_a_commit_alone() {
    for (ending, reply) in [("COMMIT", "*-1\r\n"), ("ROLLBACK", "*1\r\n+OK\r\n")] {
        let mut harness = Harness::with(|settings| settings.set("txn.node", "n").unwrap());
        let (mut one, mut other) = (harness.connect(), harness.connect());
        harness.expect(&mut one, &[("SET a 1", "+OK\r\n"), ("WATCH a", "+OK\r\n")]);
        prepare_flush(&harness);
        harness.expect(&mut one, &[("MULTI", "+OK\r\n"), ("SET k v", "+QUEUED\r\n")]);
        assert_eq!((harness.line(&mut one, "EXEC"), one.step), (String::new(), Step::Park));
        harness.expect(&mut other, &[(&format!("TX.RESOLVE 1-2a {ending}"), "+OK\r\n")]);
        harness.server.waits.on_unlock();
        assert_eq!(String::from_utf8(harness.deliver(&mut one)).unwrap(), reply, "{ending}");
    }
}

/// The manual: it does not abort for what others wrote there before.
#[test]
fn key_set_behind_a_staged_flush_does_not_abort_for_what_others_write_there() {
    let mut harness = Harness::new();
    let (mut one, mut other) = (harness.connect(), harness.connect());
    let id = begin(&harness, &mut one);
    harness.expect(
        &mut one,
        &[
            (&format!("TX.DO {id} FLUSHDB"), "+OK\r\n"),
            (&format!("TX.DO {id} SET d 4"), "+OK\r\n"),
            (&format!("TX.DO {id} GET e"), "$-1\r\n"),
        ],
    );
    harness.expect(&mut other, &[("MSET d 9 e 9 f 9", "+OK\r\n")]);
    assert_eq!(told(&harness, &mut one, &format!("TX.COMMIT {id}")), COMMITTED);
    harness.expect(&mut other, &[("MGET d e f", "*3\r\n$1\r\n4\r\n$-1\r\n$-1\r\n")]);
}

#[test]
fn write_to_a_key_that_stays_prepared_is_answered_with_whose_it_is_until_an_operator_ends_it() {
    let mut harness = Harness::with(|settings| settings.set("txn.node", "n").unwrap());
    let mut wire = harness.connect();
    prepare(&harness, b"k");
    let told = "-TRYAGAIN key 'k' is held by prepared transaction 1-2a, for longer than txn.lock_wait\r\n";
    for line in ["SET k v", "RENAME free k"] {
        harness.expect(&mut wire, &[("SET free 1", "+OK\r\n")]);
        let (mut reply, mut waited) = (harness.line(&mut wire, line), Duration::ZERO);
        while reply.is_empty() {
            waited += Duration::from_millis(20);
            reply = String::from_utf8(harness.after(&mut wire, Duration::from_millis(20))).unwrap();
        }
        assert_eq!((reply.as_str(), waited), (told, Duration::from_secs(1)), "{line}");
    }
    let queued = [("MULTI", "+OK\r\n"), ("SET k 1", "+QUEUED\r\n"), ("SET j 1", "+QUEUED\r\n")];
    harness.expect(&mut wire, &queued);
    let mut reply = harness.line(&mut wire, "EXEC").into_bytes();
    while reply.is_empty() {
        reply = harness.after(&mut wire, Duration::from_millis(20));
    }
    assert_eq!(String::from_utf8(reply).unwrap(), told);
    harness.expect(&mut wire, &[("EXISTS j", ":0\r\n")]);
    // Nobody's log knows it, as after a restored backup.
    harness.expect(&mut wire, &[("TX.RESOLVE 1-2a ROLLBACK", "+OK\r\n"), ("SET k v", "+OK\r\n")]);
    let again = harness.line(&mut wire, "TX.RESOLVE 1-2a ROLLBACK");
    assert_eq!(again, "-NOTX no transaction 1-2a waits for an operator\r\n");
}

/// As after a restored backup without a name in the settings.
#[test]
fn keys_that_another_node_has_prepared_are_ended_by_the_name_of_their_branch() {
    let mut harness = Harness::with(|settings| settings.set("txn.node", "other").unwrap());
    let mut wire = harness.connect();
    prepare(&harness, b"k");
    let reply = held(&harness, &mut wire, "SET k v");
    assert!(reply.contains("is held by prepared transaction evk_n_1_2a_0,"), "{reply}");
    for (line, told) in [
        ("TX.RESOLVE 1-2a COMMIT", "-NOTX no transaction 1-2a waits for an operator\r\n"),
        (
            "TX.RESOLVE evk_n_1_2b_0 COMMIT",
            "-NOTX no transaction of branch evk_n_1_2b_0 waits for an operator\r\n",
        ),
        ("TX.RESOLVE evk_n_1_2a_0 NEVER", "-ERR syntax error\r\n"),
        ("TX.RESOLVE evk_n_1_2a_0 ROLLBACK", "+OK\r\n"),
        ("SET k v", "+OK\r\n"),
        (
            "TX.RESOLVE evk_n_1_2a_0 ROLLBACK",
            "-NOTX no transaction of branch evk_n_1_2a_0 waits for an operator\r\n",
        ),
    ] {
        harness.expect(&mut wire, &[(line, told)]);
    }
}

/// What is echoed of a request is remembered with its outcome.
#[test]
fn reasons_are_short_whatever_a_client_sends() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    begin(&harness, &mut wire);
    let long = "x".repeat(1 << 20);
    let error = harness.line(&mut wire, &format!("TX.SQL $ {long} y"));
    assert!(error.starts_with("-ERR there is no resource 'xxx") && error.len() < 1_024, "{}", error.len());
    let outcome = told(&harness, &mut wire, "TX.COMMIT $");
    assert!(outcome.contains("aborted") && outcome.len() < 2_048, "{}", outcome.len());
}

/// Those that are refused are those that the manual names.
#[test]
fn each_command_that_writes_is_staged_or_refused_as_the_manual_says() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let (mut refused, mut staged) = (Vec::new(), 0);
    let writes = commands().entries().iter().map(|it| it.command).filter(|it| it.flags.has(Flags::WRITE));
    for command in writes {
        let id = begin(&harness, &mut wire);
        let mut words = vec!["TX.DO".to_owned(), id.clone()];
        words.extend(command.name.split('|').map(str::to_owned));
        words.extend((words.len() - 2..command.arity.unsigned_abs() as usize).map(|n| n.to_string()));
        let reply = harness.raw(&mut wire, &words);
        assert!(!reply.contains("wrong number") && !reply.contains("unknown"), "{words:?}: {reply}");
        if reply.contains("cannot stage") {
            let name = command.name.to_ascii_uppercase();
            let told = format!(
                "-ERR TX.DO cannot stage {name}: it names no keys; run it outside of the transaction\r\n"
            );
            assert_eq!(reply, told);
            refused.push(command.name);
        } else {
            staged += 1;
        }
    }
    assert_eq!(refused, REFUSED);
    assert!(staged >= 30, "{staged} of the table's commands that write were staged");
    // None of them has reached the keys, nor the transaction another end.
    harness.expect(&mut wire, &[("DBSIZE", ":0\r\n")]);
    let manual = include_str!("../../../../docs/manual/transactions-commands.md");
    let row = manual.lines().find(|line| line.starts_with("| `ERR TX.DO cannot stage")).expect("a row");
    let (_, row) = row.split_once("; not ").expect("what it does not stage");
    for name in REFUSED {
        let name = name.to_ascii_uppercase();
        let name = name.split(['|', '.']).next().unwrap();
        assert!(row.contains(name), "{name} is refused, of which the manual says nothing: {row}");
    }
}

/// What writes, and cannot be staged: libraries of functions, and transactions themselves.
const REFUSED: [&str; 6] =
    ["function|delete", "function|flush", "function|load", "function|restore", "tx.do", "tx.commit"];
