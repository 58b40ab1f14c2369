//! What the data takes, on disk and in memory, through the shipped binary.
#![allow(clippy::disallowed_methods, reason = "tests start processes and look into folders")]

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::time::Duration;

use resp::Value;

use crate::common::{Server, ok, receive};

/// Segment files in `dir`.
fn files(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).expect("a folder");
    entries
        .filter(|entry| entry.as_ref().is_ok_and(|it| it.path().extension().is_some_and(|it| it == "seg")))
        .count()
}

/// Sends commands together on a connection of their own.
fn pipeline(server: &Server, commands: &[&[&str]]) -> Vec<Value> {
    let mut request = Vec::new();
    commands.iter().for_each(|command| resp::encode_command(&mut request, command));
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    client.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket option");
    client.write_all(&request).expect("sent");
    commands.iter().map(|_| receive(&mut client).expect("a reply")).collect()
}

/// `SET big <3 MB>`, wait, `APPEND big x`: within a second there were 900 files of 8 MiB, and the reply was `MISCONF disk full`.
/// So with COPY and SETRANGE, in EXEC too, and with every journal backend.
#[test]
fn small_commands_on_large_values_need_a_file_each_and_no_more() {
    for backend in ["buffered", "direct", "uring"] {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let server = Server::start(dir.path(), &[&format!("--journal-backend={backend}")]);
        let value = "v".repeat(3_000_000);
        assert_eq!(server.call(&["SET", "big", &value]), ok());
        let begun = files(dir.path());
        let length = |extra: i64| Value::Integer(3_000_000 + extra);
        assert_eq!(server.call(&["APPEND", "big", "x"]), length(1), "{backend}");
        assert_eq!(server.call(&["SETRANGE", "big", "7", "x"]), length(1), "{backend}");
        assert_eq!(server.call(&["COPY", "big", "other"]), Value::Integer(1), "{backend}");
        let commands: [&[&str]; 5] = [
            &["MULTI"],
            &["APPEND", "big", "x"],
            &["COPY", "big", "third"],
            &["SETRANGE", "other", "1", "x"],
            &["EXEC"],
        ];
        let replies = pipeline(&server, &commands);
        let results = Value::Array(vec![length(2), Value::Integer(1), length(1)]);
        assert_eq!(replies.last(), Some(&results), "{backend}");
        let made = files(dir.path()) - begun;
        assert!(made <= 8, "{made} files were made ({backend})");
    }
}

/// `MULTI`, `SET new`, `EXPIRE new 100`, `EXEC` was accepted at `memory.limit`, 400 times of 400: 36.8 MB were used of 16 MiB.
#[test]
fn value_that_expires_is_refused_at_the_limit_of_memory_as_any_other() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--engine=memory", "--memory-limit=16MiB"]);
    let value = "v".repeat(50_000);
    let is_refused = |reply: &Value| matches!(reply, Value::Error(text) if text.starts_with(b"OOM"));
    let full = (0..1_000).find(|n| is_refused(&server.call(&["SET", &format!("key:{n}"), &value])));
    assert!(full.is_some_and(|full| full > 200), "{full:?}");
    let lasts: [&[&str]; 4] = [
        &["EXPIRE", "new", "100"],
        &["PERSIST", "new"],
        &["GETEX", "new", "EX", "100"],
        &["RENAME", "new", "newer"],
    ];
    for last in lasts {
        let replies = pipeline(&server, &[&["MULTI"], &["SET", "new", &value], last, &["EXEC"]]);
        assert!(is_refused(&replies[3]), "{last:?}: {:?}", replies[3]);
        assert_eq!(server.call(&["EXISTS", "new", "newer"]), Value::Integer(0), "{last:?}");
    }
    assert_eq!(
        server.call(&["EXPIRE", "key:0", "100"]),
        Value::Integer(1),
        "what is there gets another time"
    );
    assert_eq!(server.call(&["STRLEN", "key:0"]), Value::Integer(50_000));
    assert_eq!(server.call(&["DEL", "key:0"]), Value::Integer(1));
}
