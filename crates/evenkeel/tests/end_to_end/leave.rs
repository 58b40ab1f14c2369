//! Clients that leave while they wait, against the shipped binary: each way of waiting that a client can choose, each way of leaving,
//! each connector.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, TcpStream};
use std::time::Duration;

use resp::Value;

use crate::common::{PATIENCE, Server, eventually, ok, receive};

const CONNECTORS: [&str; 3] = ["--connector=epoll", "--connector=uring", "--connector=threads"];

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    stream
}

fn requests(lines: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    lines.iter().for_each(|line| resp::encode_command(&mut bytes, &line.split(' ').collect::<Vec<_>>()));
    bytes
}

fn info(server: &Server) -> String {
    let Value::Bulk(info) = server.call(&["INFO", "everything"]) else { panic!("a text") };
    String::from_utf8(info).expect("text")
}

/// A field of INFO.
fn field(server: &Server, name: &str) -> u64 {
    let info = info(server);
    let value = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
    value.expect(name).trim().parse().expect("a number")
}

/// What a client sends, after which it waits.
const WAITS: [(&str, &[&str]); 8] = [
    ("wait", &["WAIT 1 0"]),
    ("wait with a pipeline behind it", &["WAIT 1 0", "SET behind 1", "WAIT 1 0"]),
    ("wait behind writes", &["SET a 1", "SET b 2", "WAIT 1 0"]),
    ("wait for the disk of a replica", &["WAITAOF 0 1 0"]),
    ("a long wait with an end", &["WAIT 1 3600000"]),
    ("sleep", &["DEBUG SLEEP 3600"]),
    ("a pause of writes", &["SET paused 1"]),
    ("a pause of a transaction", &["MULTI", "SET paused 1", "EXEC"]),
];

#[derive(Clone, Copy, Debug)]
enum Leave {
    Close,
    Half,
    Reset,
    Kill,
}

/// `WAIT 1 0` and a close left the connection there until the stop: a hundred of them locked everyone else out where
/// `connections.max` was 100.
#[test]
fn clients_that_leave_while_they_wait_leave_nothing_behind() {
    for connector in CONNECTORS {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let server = Server::start(dir.path(), &[connector, "--loops=2", "--durability=never"]);
        for (what, lines) in WAITS {
            for leave in [Leave::Close, Leave::Half, Leave::Reset, Leave::Kill] {
                let case = format!("{connector}: {what}, {leave:?}");
                if what.starts_with("a pause") {
                    assert_eq!(server.call(&["CLIENT", "PAUSE", "3600000", "WRITE"]), ok());
                }
                leaves(&server, lines, leave, &case);
                assert_eq!(server.call(&["CLIENT", "UNPAUSE"]), ok());
            }
        }
        assert_eq!(
            server.call(&["EXISTS", "behind", "paused"]),
            Value::Integer(0),
            "what waited did not run"
        );
        assert_eq!(field(&server, "blocked_clients"), 0);
        server.signal(libc::SIGTERM);
        assert!(server.end().0.success());
    }
}

fn leaves(server: &Server, lines: &[&str], leave: Leave, case: &str) {
    let clients: Vec<TcpStream> = (0..3).map(|_| connect(server)).collect();
    clients.iter().for_each(|mut client| client.write_all(&requests(lines)).expect("sent"));
    let last = lines.iter().rfind(|line| !line.starts_with("SET behind")).expect("some");
    let command = last.split(' ').next().expect("a word").to_ascii_lowercase();
    let waits = || match server.call(&["CLIENT", "LIST"]) {
        Value::Bulk(list) => {
            let list = String::from_utf8(list).expect("text");
            list.lines().filter(|line| !line.contains("cmd=client")).count() == 3
                && (command == "set"
                    || command == "exec"
                    || list.matches(&format!("cmd={command}")).count() >= 3)
        }
        other => panic!("{other:?}"),
    };
    eventually(case, waits);
    match leave {
        Leave::Close => {}
        Leave::Half => {
            clients.iter().for_each(|client| client.shutdown(Shutdown::Write).expect("half-closed"));
        }
        Leave::Reset => {
            let linger = |client: &TcpStream| socket2::SockRef::from(client).set_linger(Some(Duration::ZERO));
            clients.iter().for_each(|client| linger(client).expect("a socket option"));
        }
        Leave::Kill => {
            assert!(matches!(server.call(&["CLIENT", "KILL", "TYPE", "normal"]), Value::Integer(3..)));
        }
    }
    let mut kept = clients;
    if matches!(leave, Leave::Close | Leave::Reset) {
        kept.clear();
    }
    eventually(case, || field(server, "connected_clients") == 1);
    for mut client in kept {
        // The replies that were due, or nothing; and the end.
        let mut replies = Vec::new();
        let _ = client.read_to_end(&mut replies);
        if matches!(leave, Leave::Half) && lines[0] == "SET a 1" {
            assert_eq!(replies, b"+OK\r\n+OK\r\n", "{case}");
        }
    }
}

/// Tools that pipe commands in close their side at once.
#[test]
fn half_closed_client_gets_the_replies_that_are_due() {
    for connector in CONNECTORS {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let server = Server::start(dir.path(), &[connector, "--loops=2"]);
        let mut client = connect(&server);
        let lines = ["SET a 1", "INCR a", "MULTI", "INCR a", "EXEC", "WAIT 0 0", "GET a"];
        client.write_all(&requests(&lines)).expect("sent");
        client.shutdown(Shutdown::Write).expect("half-closed");
        let mut replies = String::new();
        client.read_to_string(&mut replies).expect("the replies and the end");
        assert_eq!(replies, "+OK\r\n:2\r\n+OK\r\n+QUEUED\r\n*1\r\n:3\r\n:0\r\n$1\r\n3\r\n", "{connector}");
        eventually("it is forgotten", || field(&server, "connected_clients") == 1);
    }
}

/// As in Redis, who waits and is there is not idle.
#[test]
fn client_that_waits_for_longer_than_the_idle_timeout_is_answered() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--engine=memory", "--connections-idle-timeout=1s"]);
    let mut client = connect(&server);
    client.write_all(&requests(&["WAIT 1 1500"])).expect("sent");
    assert_eq!(receive(&mut client).expect("a reply"), Value::Integer(0));
}

/// The id that a client has.
fn id_of(client: &mut TcpStream) -> i64 {
    client.write_all(&requests(&["CLIENT ID"])).expect("sent");
    let Value::Integer(id) = receive(client).expect("a reply") else { panic!("a number") };
    id
}

/// CLIENT KILL and CLIENT UNBLOCK were answered before they acted: what was pushed behind them in the same pipeline was given to the client
/// that was killed, 40 times of 40, and its own pipeline went on.
#[test]
fn nothing_of_a_killed_client_happens_after_the_reply_and_nothing_is_given_to_it() {
    for connector in CONNECTORS {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let server = Server::start(dir.path(), &[connector, "--loops=2", "--durability=never"]);
        let mut kills = connect(&server);
        for round in 0..40 {
            let case = format!("{connector}, round {round}");
            let (mut waits, mut writes, mut listens) = (connect(&server), connect(&server), connect(&server));
            let ids = [&mut waits, &mut writes, &mut listens].map(id_of);
            waits.write_all(&requests(&["BLPOP k 0"])).expect("sent");
            listens.write_all(&requests(&["SUBSCRIBE news"])).expect("sent");
            receive(&mut listens).expect("a reply");
            eventually("it waits", || field(&server, "blocked_clients") == 1);
            writes.write_all(&requests(&vec!["INCR n"; 2_000])).expect("sent");
            receive(&mut writes).expect("it has begun");
            let lines = [
                if round % 2 == 0 {
                    format!("CLIENT KILL ID {}", ids[0])
                } else {
                    format!("CLIENT UNBLOCK {}", ids[0])
                },
                "RPUSH k v".to_owned(),
                "LRANGE k 0 -1".to_owned(),
                format!("CLIENT KILL ID {}", ids[1]),
                "GET n".to_owned(),
                format!("CLIENT KILL ID {}", ids[2]),
                "PUBLISH news x".to_owned(),
                "PUBSUB NUMSUB news".to_owned(),
                "CLIENT LIST".to_owned(),
                "GET n".to_owned(),
                "DEL k n".to_owned(),
            ];
            kills.write_all(&requests(&lines.iter().map(String::as_str).collect::<Vec<_>>())).expect("sent");
            let replies: Vec<Value> = lines.iter().map(|_| receive(&mut kills).expect("a reply")).collect();
            let one = Value::Integer(1);
            assert_eq!([&replies[0], &replies[1]], [&one, &one], "{case}");
            assert_eq!(replies[2], Value::Array(vec![Value::Bulk(b"v".to_vec())]), "{case}");
            assert_eq!([&replies[5], &replies[6]], [&one, &Value::Integer(0)], "{case}");
            assert_eq!(
                replies[7],
                Value::Array(vec![Value::Bulk(b"news".to_vec()), Value::Integer(0)]),
                "{case}"
            );
            let Value::Bulk(list) = &replies[8] else { panic!("a text") };
            let list = String::from_utf8_lossy(list);
            assert!(
                !list.contains(&format!("id={} ", ids[1])) && !list.contains(&format!("id={} ", ids[2])),
                "{case}"
            );
            assert_eq!(replies[4], replies[9], "{case}: its pipeline went on");
        }
    }
}

/// A setting that was answered with OK did not hold yet on the other loops.
#[test]
fn password_that_was_set_is_asked_of_whoever_connects_after_the_reply() {
    for connector in CONNECTORS {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let server = Server::start(dir.path(), &[connector, "--loops=2", "--durability=never"]);
        let mut sets = connect(&server);
        for round in 0..50 {
            sets.write_all(&requests(&["CONFIG SET requirepass secret"])).expect("sent");
            assert_eq!(receive(&mut sets).expect("a reply"), ok());
            let mut other = connect(&server);
            other.write_all(&requests(&["PING"])).expect("sent");
            let reply = receive(&mut other).expect("a reply");
            assert!(
                matches!(&reply, Value::Error(text) if text.starts_with(b"NOAUTH")),
                "{connector}, round {round}"
            );
            sets.write_all(b"*4\r\n$6\r\nCONFIG\r\n$3\r\nSET\r\n$11\r\nrequirepass\r\n$0\r\n\r\n")
                .expect("sent");
            assert_eq!(receive(&mut sets).expect("a reply"), ok());
        }
    }
}
