//! A whole transaction in one pipeline, which looks at no reply: it commits all, or nothing of it.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use crate::common::{eventually, receive};
use crate::parties::{POSTGRES, Parties};
use crate::wire::{field, text};

/// Sends `commands` at once.
#[allow(clippy::disallowed_methods, reason = "a test speaks to the server through a socket of its own")]
fn sent(parties: &Parties, commands: &[&[&str]]) -> TcpStream {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, parties.server.port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    send(&mut stream, commands);
    stream
}

fn send(stream: &mut TcpStream, commands: &[&[&str]]) {
    let mut requests = Vec::new();
    commands.iter().for_each(|command| resp::encode_command(&mut requests, command));
    std::io::Write::write_all(stream, &requests).unwrap();
}

fn replies(stream: &mut TcpStream, count: usize) -> Vec<String> {
    (0..count).map(|_| text(&receive(stream).unwrap())).collect()
}

fn transfer<'a>(number: &'a str, pays: &'a str) -> [Vec<&'a str>; 6] {
    [
        vec!["TX.BEGIN"],
        vec!["TX.SQL", "$", "pg", "INSERT INTO journal VALUES ($1)", number],
        vec!["TX.SQL", "$", "pg", pays],
        vec!["TX.SQL", "$", "my", GETS],
        vec!["TX.DO", "$", "INCRBY", "account:0", "1"],
        vec!["TX.COMMIT", "$"],
    ]
}

const PAYS: &str = "UPDATE accounts SET balance = balance - 2 WHERE id = 0";
const GETS: &str = "UPDATE accounts SET balance = balance + 1 WHERE id = 0";

/// Rows are locked in the order of the commands: two such transactions at a time must not wait for each other, one in each database.
#[test]
fn databases_work_one_after_the_other_and_replies_come_in_order() {
    let Some(parties) = Parties::start() else { return };
    // A transaction that is open holds PostgreSQL's row.
    let begun = parties.server.call(&["TX.BEGIN"]);
    let holder = field(&begun, "id").map(text).unwrap();
    assert_eq!(text(&parties.server.call(&["TX.SQL", &holder, "pg", PAYS])), "1");
    let commands = transfer("1", PAYS);
    let mut stream = sent(&parties, &commands.each_ref().map(|it| &it[..]));
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'";
    eventually("it waits for PostgreSQL's row", || parties.postgres.sql(waits).trim() == "1");
    let locked = parties.server.call(&["TX.SQL", &holder, "my", GETS]);
    assert_eq!(text(&locked), "1", "it has not taken MariaDB's row before");
    assert_eq!(text(&parties.server.call(&["TX.ROLLBACK", &holder])), "[aborted, the client rolled it back]");
    assert_eq!(replies(&mut stream, 6)[1..], ["1", "1", "1", "1001", "[committed, ]"]);
    assert_eq!(parties.postgres.sql("SELECT balance FROM accounts WHERE id = 0").trim(), "998");
    assert_eq!(parties.mariadb_sql("SELECT balance FROM accounts WHERE id = 0"), "1001");
}

/// PostgreSQL was down: `TX.SQL id pg` was answered with an error, the commands for MariaDB and keys that followed were carried out, and
/// TX.COMMIT said `committed`.
#[test]
fn database_that_is_down_leaves_nothing_to_commit() {
    let Some(mut parties) = Parties::start() else { return };
    parties.postgres.kill();
    eventually("the server has seen that PostgreSQL is gone", || {
        parties.server.info("txn_resource_pg").contains("state=down")
    });
    for by_identifier in [true, false] {
        let mut stream = sent(&parties, &[&["TX.BEGIN"]]);
        let id = field(&receive(&mut stream).unwrap(), "id").map(text).unwrap();
        let name = if by_identifier { &id } else { "$" };
        let commands = [
            &["TX.SQL", name, "pg", PAYS][..],
            &["TX.SQL", name, "my", GETS],
            &["TX.DO", name, "INCRBY", "account:0", "1"],
            &["TX.COMMIT", name],
        ];
        send(&mut stream, &commands);
        let replies = replies(&mut stream, 4);
        assert!(replies[0].starts_with("-ERR resource pg takes no branches: "), "{replies:?}");
        assert!(replies[1].starts_with("-ERR transaction "), "{replies:?}");
        assert!(replies[2].starts_with("-ERR transaction "), "{replies:?}");
        let outcome = &replies[3];
        assert!(outcome.starts_with("[aborted, TX.SQL: ERR resource pg takes no branches: "), "{replies:?}");
        assert_eq!(text(&parties.server.call(&["TX.COMMIT", &id])), *outcome);
    }
    assert_eq!(parties.mariadb_sql("SELECT balance FROM accounts WHERE id = 0"), "1000");
    assert_eq!(text(&parties.server.call(&["GET", "account:0"])), "1000");
}

/// After a restart of everything the first clients were told that databases were `not connected yet`.
#[test]
fn server_that_has_just_started_waits_for_its_databases() {
    let Some(mut parties) = Parties::start() else { return };
    parties.server.kill();
    parties.postgres.kill();
    parties.server.start_wait = "60s";
    parties.server.run();
    let commands = transfer("1", PAYS);
    let mut stream = sent(&parties, &commands.each_ref().map(|it| &it[..]));
    eventually("its first statement waits", || parties.server.info("txn_live") == "1");
    parties.postgres.run(POSTGRES);
    let replies = replies(&mut stream, 6);
    assert_eq!(replies[5], "[committed, ]", "{replies:?}");
}

#[test]
fn statement_that_failed_leaves_nothing_of_the_others() {
    let Some(parties) = Parties::start() else { return };
    for (number, wrong, why) in [
        ("1", "UPDATE accounts SET balance = -1 WHERE id = 0", "violates check constraint"),
        // Not run at all.
        ("2", "COMMIT", "COMMIT is not run in a branch"),
    ] {
        let commands = transfer(number, wrong);
        let mut stream = sent(&parties, &commands.each_ref().map(|it| &it[..]));
        let replies = replies(&mut stream, 6);
        assert_eq!(replies[1], "1");
        assert!(replies[2].starts_with("-ERR ") && replies[2].contains(why), "{replies:?}");
        let outcome = &replies[5];
        assert!(outcome.starts_with("[aborted, TX.SQL: ERR ") && outcome.contains(why), "{replies:?}");
        assert_eq!(parties.postgres.sql("SELECT count(*) FROM journal").trim(), "0");
        assert_eq!(parties.mariadb_sql("SELECT balance FROM accounts WHERE id = 0"), "1000");
        assert_eq!(text(&parties.server.call(&["GET", "account:0"])), "1000");
    }
}
