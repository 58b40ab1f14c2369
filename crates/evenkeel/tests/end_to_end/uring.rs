//! The connector `uring` through the shipped binary; its tests need a kernel that has io_uring switched on, and name it if not.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]
#![allow(unsafe_code, reason = "a filter of system calls is installed between fork and exec")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::time::Duration;

use resp::Value;

use crate::common::{Server, bulk, ok, receive, serve};
use crate::seccomp;

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder for the test")
}

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    stream
}

fn call(stream: &mut TcpStream, command: &[&str]) -> Value {
    let mut request = Vec::new();
    resp::encode_command(&mut request, command);
    stream.write_all(&request).expect("sent");
    receive(stream).expect("a reply")
}

fn connector_of(server: &Server) -> String {
    let Value::Bulk(info) = server.call(&["INFO", "server"]) else { panic!("a text") };
    let info = String::from_utf8(info).expect("text");
    info.lines().find_map(|line| line.strip_prefix("connector:")).expect("a line").trim().to_owned()
}

#[test]
fn uring_serves_durable_writes_and_cold_reads() {
    let dir = folder();
    let value = "v".repeat(30_000);
    let server = Server::start(dir.path(), &["--connector=uring", "--loops=2"]);
    assert!(server.greeting.contains("2 event loops on io_uring"), "{}", server.greeting);
    assert_eq!(connector_of(&server), "uring");
    for n in 0..5 {
        assert_eq!(server.call(&["SET", &format!("key:{n}"), &value]), ok());
    }
    server.signal(libc::SIGKILL);
    drop(server.end());
    let server = Server::start(dir.path(), &["--connector=uring", "--loops=2"]);
    let mut stream = connect(&server);
    for n in 0..5 {
        assert_eq!(call(&mut stream, &["GET", &format!("key:{n}")]), bulk(&value));
    }
    server.signal(libc::SIGTERM);
    assert!(server.end().0.success());
}

#[test]
fn transaction_and_subscription_survive_moves_between_rings() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--connector=uring", "--loops=3"]);
    let mut stream = connect(&server);
    let Value::Integer(id) = call(&mut stream, &["CLIENT", "ID"]) else { panic!("an id") };
    let go_to = |to: usize| {
        assert_eq!(server.call(&["CLIENT", "MOVE", &id.to_string(), &to.to_string()]), ok());
    };
    assert_eq!(call(&mut stream, &["MULTI"]), ok());
    for to in [1, 2, 0, 1] {
        go_to(to);
        assert_eq!(call(&mut stream, &["INCR", "n"]), Value::Simple(b"QUEUED".to_vec()));
    }
    go_to(2);
    assert_eq!(call(&mut stream, &["EXEC"]), Value::Array((1..=4).map(Value::Integer).collect()));
    call(&mut stream, &["SUBSCRIBE", "news"]);
    for to in [0, 1, 2] {
        go_to(to);
        assert_eq!(server.call(&["PUBLISH", "news", "x"]), Value::Integer(1));
        let message = receive(&mut stream).expect("the message");
        assert_eq!(message, Value::Array(vec![bulk("message"), bulk("news"), bulk("x")]));
    }
}

#[test]
fn client_that_sends_ahead_without_reading_is_paused_and_loses_nothing() {
    let dir = folder();
    let server = Server::start(dir.path(), &["--connector=uring", "--engine=memory"]);
    let value = "v".repeat(10_000);
    assert_eq!(server.call(&["SET", "key", &value]), ok());
    let mut stream = connect(&server);
    let mut writer = stream.try_clone().expect("a second handle");
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["GET", "key"]);
    let count = 5_000;
    std::thread::scope(|scope| {
        scope.spawn(|| (0..count).for_each(|_| writer.write_all(&request).expect("sent")));
        // Others are served meanwhile.
        assert_eq!(server.call(&["PING"]), Value::Simple(b"PONG".to_vec()));
        let expected = format!("$10000\r\n{value}\r\n");
        let mut reply = vec![0; expected.len()];
        for _ in 0..count {
            stream.read_exact(&mut reply).expect("a reply");
            assert!(reply == expected.as_bytes());
        }
    });
}

/// Containers and hardened kernels refuse io_uring: the server said so and served, rather than ended. Where they refused a part of it
/// alone, it started, answered nobody, and filled its log.
#[test]
fn where_io_uring_or_a_part_of_it_is_refused_the_server_says_so_and_serves_by_epoll() {
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
        for errno in [libc::EPERM, libc::ENOSYS] {
            serves_without(call, errno as u32);
        }
    }
}

fn serves_without(call: libc::c_long, errno: u32) {
    let dir = folder();
    let server = Server::spawn_on(|port| {
        let port = format!("--port={port}");
        let mut command = serve(dir.path(), &["--connector=uring", "--journal-backend=uring", &port]);
        // SAFETY: the closure only makes two system calls with data on its own stack: nothing that allocates or takes locks
        // between fork and exec.
        unsafe { command.pre_exec(move || seccomp::answer(&[call], errno)) };
        command
    });
    assert!(!server.greeting.contains("io_uring"), "{}", server.greeting);
    assert_eq!(connector_of(&server), "epoll");
    assert_eq!(server.call(&["SET", "key", "value"]), ok());
    server.signal(libc::SIGTERM);
    let (status, errors) = server.end();
    assert!(status.success(), "{errors}");
    assert!(errors.contains("no io_uring for the loops"), "call {call}, error {errno}: {errors}");
}
