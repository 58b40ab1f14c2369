//! A client that dies alone: what it left open ends by its time-out, and what it asked to commit is told to whoever asks for it later.

use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use resp::Value;

use crate::common::{eventually, receive};
use crate::judge;
use crate::parties::Parties;
use crate::wire::{field, text};

/// A client that can be killed: its socket closes.
#[derive(Debug)]
struct Mortal(TcpStream);

impl Mortal {
    #[allow(clippy::disallowed_methods, reason = "a test speaks to the server through a socket of its own")]
    fn new(parties: &Parties) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, parties.server.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        Self(stream)
    }

    fn send(&mut self, command: &[&str]) {
        let mut request = Vec::new();
        resp::encode_command(&mut request, command);
        std::io::Write::write_all(&mut self.0, &request).unwrap();
    }

    fn call(&mut self, command: &[&str]) -> Value {
        self.send(command);
        let answer = receive(&mut self.0).unwrap();
        assert!(!matches!(answer, Value::Error(_)), "{command:?}: {}", text(&answer));
        answer
    }

    /// Begins a transfer of one from PostgreSQL to MariaDB and one to a key, and does all of it but the commit.
    fn work(&mut self, number: u64, timeout_ms: &str) -> String {
        let begun = self.call(&["TX.BEGIN", "TIMEOUT", timeout_ms]);
        let id = field(&begun, "id").map(text).unwrap();
        let number = number.to_string();
        self.call(&["TX.SQL", &id, "pg", "UPDATE accounts SET balance = balance - 2 WHERE id = 0"]);
        self.call(&["TX.SQL", &id, "pg", "INSERT INTO journal VALUES ($1)", &number]);
        self.call(&["TX.SQL", &id, "my", "UPDATE accounts SET balance = balance + 1 WHERE id = 0"]);
        self.call(&["TX.SQL", &id, "my", "INSERT INTO journal VALUES (?)", &number]);
        self.call(&["TX.DO", &id, "INCRBY", "account:0", "1"]);
        id
    }
}

/// What TX.STATUS says.
fn state(parties: &Parties, id: &str) -> String {
    field(&parties.server.call(&["TX.STATUS", id]), "state").map(text).unwrap()
}

fn balances(parties: &Parties) -> [String; 3] {
    [
        parties.postgres.sql("SELECT balance FROM accounts WHERE id = 0").trim().to_owned(),
        parties.mariadb_sql("SELECT balance FROM accounts WHERE id = 0"),
        text(&parties.server.call(&["GET", "account:0"])),
    ]
}

#[test]
fn transaction_whose_client_died_ends_and_tells_how_also_after_a_restart() {
    let Some(mut parties) = Parties::start() else { return };

    let mut client = Mortal::new(&parties);
    let aborted = client.work(1, "2000");
    drop(client);
    eventually("its time-out", || state(&parties, &aborted) == "aborted");
    judge::settle(&parties).unwrap();
    assert_eq!(balances(&parties), ["1000", "1000", "1000"]);
    assert_eq!(text(&parties.server.call(&["SET", "account:0", "1000"])), "OK");

    let mut client = Mortal::new(&parties);
    let committed = client.work(2, "10000");
    client.send(&["TX.COMMIT", &committed]);
    drop(client);
    eventually("its outcome", || state(&parties, &committed) == "committed");

    let mut client = Mortal::new(&parties);
    let open = client.work(3, "60000");
    parties.server.kill();
    parties.server.run();
    assert_ne!(state(&parties, &committed), "none", "its decision is kept, and carried out again");
    judge::settle(&parties).unwrap();
    assert_eq!(balances(&parties), ["998", "1001", "1001"]);
    assert_eq!(text(&parties.server.call(&["SET", "account:0", "1001"])), "OK");
    assert_eq!([&committed, &open, &aborted].map(|id| state(&parties, id)), ["committed", "none", "none"]);
}

/// Nobody is there whose requests would wake what waits: a commit of keys whose record was durable before the server knew whom to tell
/// was answered only when it was asked again, after 30 s.
#[test]
fn server_that_starts_alone_carries_out_what_it_had_decided() {
    let Some(mut parties) = Parties::start() else { return };
    for number in 0..8 {
        let mut client = Mortal::new(&parties);
        let id = client.work(number, "60000");
        parties.server.order_stop("decided", 1);
        client.send(&["TX.COMMIT", &id]);
        assert!(parties.server.await_stop(Duration::from_secs(20)), "it is decided");
        parties.server.kill();
        parties.server.run();
        let took = judge::settle(&parties).unwrap();
        assert!(took < Duration::from_secs(15), "{number}: it took {took:?}: an answer was lost");
        assert_eq!(state(&parties, &id), "committed");
    }
    assert_eq!(balances(&parties), ["984", "1008", "1008"]);
}

/// Databases that are swapped and flushed within a transaction are held whole from its vote on, also by a server that starts again.
#[test]
fn databases_move_with_the_row_or_stay_whatever_step_the_server_is_killed_at() {
    let Some(mut parties) = Parties::start() else { return };
    let steps = [
        ("voted", false),
        ("decide", false),
        ("decided", true),
        ("commit", true),
        ("committed", true),
        ("told", true),
    ];
    for (number, (step, moves)) in steps.into_iter().enumerate() {
        let mut client = Mortal::new(&parties);
        for (database, value) in [("4", "four"), ("5", "five"), ("6", "six")] {
            client.call(&["SELECT", database]);
            client.call(&["SET", "where", value]);
        }
        let begun = client.call(&["TX.BEGIN"]);
        let id = field(&begun, "id").map(text).unwrap();
        client.call(&["TX.SQL", &id, "pg", "INSERT INTO journal VALUES ($1)", &number.to_string()]);
        client.call(&["TX.DO", &id, "SWAPDB", "4", "5"]);
        client.call(&["TX.DO", &id, "FLUSHDB"]);
        // Both have voted.
        parties.server.order_stop(step, if step == "voted" { 2 } else { 1 });
        client.send(&["TX.COMMIT", &id]);
        assert!(parties.server.await_stop(Duration::from_secs(20)), "{step}: it comes to it");
        parties.server.kill();
        parties.server.run();
        judge::settle(&parties).unwrap();
        let mut client = Mortal::new(&parties);
        let found = ["4", "5", "6"].map(|database| {
            client.call(&["SELECT", database]);
            text(&client.call(&["GET", "where"]))
        });
        let nothing = text(&Value::Null);
        let (after, rows) =
            if moves { (["five", "four", &nothing], "1") } else { (["four", "five", "six"], "0") };
        assert_eq!(found, after, "{step}");
        let row = format!("SELECT count(*) FROM journal WHERE transfer = {number}");
        assert_eq!(parties.postgres.sql(&row).trim(), rows, "{step}");
    }
}
