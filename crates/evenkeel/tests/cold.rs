//! Keys whose values are only on disk, through the shipped binary: what a restart leaves, served as if it were hot.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

mod common;

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use common::{Server, bulk, ok, receive};
use resp::Value;

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    stream
}

/// Sends `commands` in one write; returns the replies.
fn pipeline(stream: &mut TcpStream, commands: &[&[&str]]) -> Vec<Value> {
    let mut request = Vec::new();
    for command in commands {
        resp::encode_command(&mut request, command);
    }
    stream.write_all(&request).expect("sent");
    commands.iter().map(|_| receive(stream).expect("a reply")).collect()
}

/// EXEC met a cold key and ran again as a whole, its CLIENT KILL too: the second time there was nobody left to kill,
/// and the reply said so.
#[test]
fn exec_that_waits_for_a_cold_key_runs_its_control_commands_once() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    assert_eq!(server.call(&["set", "cold", "value"]), ok());
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());

    let server = Server::start(dir.path(), &[]);
    let mut victim = connect(&server);
    let Value::Integer(id) = pipeline(&mut victim, &[&["client", "id"]]).remove(0) else { panic!("an id") };
    let id = id.to_string();
    let mut stream = connect(&server);
    let replies = pipeline(
        &mut stream,
        &[&["multi"], &["client", "kill", "id", &id], &["select", "0"], &["get", "cold"], &["exec"]],
    );
    assert_eq!(replies[4], Value::Array(vec![Value::Integer(1), ok(), bulk("value")]));
}

#[test]
fn pipeline_over_cold_keys_is_answered_in_order() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    let keys: Vec<String> = (0..200).map(|n| format!("key:{n}")).collect();
    let sets: Vec<[&str; 3]> = keys.iter().map(|key| ["set", key, key]).collect();
    let sets: Vec<&[&str]> = sets.iter().map(|set| &set[..]).collect();
    assert!(pipeline(&mut connect(&server), &sets).iter().all(|reply| *reply == ok()));
    server.signal(libc::SIGKILL);
    drop(server.end());

    let server = Server::start(dir.path(), &[]);
    let gets: Vec<[&str; 2]> = keys.iter().map(|key| ["get", key]).collect();
    let gets: Vec<&[&str]> = gets.iter().map(|get| &get[..]).collect();
    let replies = pipeline(&mut connect(&server), &gets);
    assert_eq!(replies, keys.iter().map(|key| bulk(key)).collect::<Vec<_>>());
    assert_eq!(server.call(&["dbsize"]), Value::Integer(200));
}
