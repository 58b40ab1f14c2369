//! Clients that everybody uses, unchanged, as a new user would try them: redis-cli, redis-py, redis-rs.
//!
//! redis-py runs under the interpreter in `EVENKEEL_PYTHON`: `cargo xtask test clients` makes one; without it that test
//! fails and says so.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use redis::{Commands as _, ConnectionLike as _};

use crate::common::{PATIENCE, Server, bulk, receive};

fn server() -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &[]);
    (dir, server)
}

/// Runs redis-cli with `arguments`; returns what it prints.
fn redis_cli(server: &Server, arguments: &[&str]) -> String {
    let mut command = Command::new("redis-cli");
    command.args(["-p", &server.port.to_string()]).args(arguments);
    let output = command.output().expect("redis-cli is installed (apt-get install redis-tools)");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").trim_end().to_owned()
}

#[test]
fn redis_cli_works_in_both_protocols() {
    let (_dir, server) = server();
    for protocol in ["-2", "-3"] {
        let cli = |arguments: &[&str]| redis_cli(&server, &[&[protocol], arguments].concat());
        assert_eq!(cli(&["ping"]), "PONG");
        assert_eq!(cli(&["set", "greeting", "hello world", "EX", "100"]), "OK");
        assert_eq!(cli(&["get", "greeting"]), "hello world");
        let left: u64 = cli(&["ttl", "greeting"]).parse().expect("seconds");
        assert!((50..=100).contains(&left), "{left} s are left");
        assert_eq!(cli(&["getrange", "greeting", "0", "4"]), "hello");
        assert_eq!(cli(&["mset", "a", "1", "b", "2"]), "OK");
        assert_eq!(cli(&["mget", "a", "b", "none"]), "1\n2");
        assert_eq!(cli(&["incrby", "a", "41"]), "42");
        assert_eq!(cli(&["get", "none"]), "");
        assert_eq!(cli(&["dbsize"]), "3");
        assert_eq!(cli(&["--scan", "--pattern", "gree*"]), "greeting");
        assert!(cli(&["info", "server"]).contains("tcp_port"));
        assert!(cli(&["nosuch"]).starts_with("ERR unknown command 'nosuch'"));
        assert_eq!(cli(&["flushall"]), "OK");
    }
}

#[test]
fn redis_cli_pipes_a_file_of_commands() {
    let (_dir, server) = server();
    let mut commands = Vec::new();
    for number in 0..1000 {
        resp::encode_command(&mut commands, &["SET".to_owned(), format!("key:{number}"), number.to_string()]);
    }
    let mut child = Command::new("redis-cli")
        .args(["-p", &server.port.to_string(), "--pipe"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .expect("redis-cli is installed (apt-get install redis-tools)");
    std::io::Write::write_all(&mut child.stdin.take().expect("piped"), &commands).expect("written");
    let output = child.wait_with_output().expect("it ends");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("errors: 0, replies: 1000"), "{text}");
    assert_eq!(redis_cli(&server, &["dbsize"]), "1000");
}

#[test]
fn redis_py_works_in_both_protocols() {
    let python = std::env::var_os("EVENKEEL_PYTHON")
        .expect("EVENKEEL_PYTHON names a Python with redis-py: `cargo xtask test clients` makes one");
    let (_dir, server) = server();
    for protocol in ["2", "3"] {
        run_python(&python, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/tour.py"), &server, protocol);
    }
    run_python(&python, concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/first_minute.py"), &server, "3");
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--connector=uring", "--loops=2"]);
    run_python(&python, concat!(env!("CARGO_MANIFEST_DIR"), "/tests/clients/tour.py"), &server, "3");
}

fn run_python(python: &std::ffi::OsStr, script: &str, server: &Server, protocol: &str) {
    let mut command = Command::new(python);
    let output =
        command.args([script, &server.port.to_string(), protocol]).output().expect("the interpreter runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}, protocol {protocol}:\n{errors}");
}

fn redis_rs(server: &Server, protocol: &str) -> redis::Connection {
    let url = format!("redis://127.0.0.1:{}/?protocol={protocol}", server.port);
    let client = redis::Client::open(url).expect("the address is right");
    let connection = client.get_connection().expect("it connects");
    connection.set_read_timeout(Some(PATIENCE)).expect("a socket option");
    connection
}

#[test]
fn redis_rs_works_in_both_protocols() {
    let (_dir, server) = server();
    for protocol in ["resp2", "resp3"] {
        let mut connection = redis_rs(&server, protocol);
        let () = connection.set("key", "value").expect("set");
        assert_eq!(connection.get("key"), Ok("value".to_owned()));
        assert_eq!(connection.get("none"), Ok(None::<String>));
        assert_eq!(connection.incr("count", 5), Ok(5));
        assert_eq!(connection.del(&["key", "count"]), Ok(2));
        let (one, two): (String, i64) = redis::pipe()
            .atomic()
            .set("one", "1")
            .ignore()
            .get("one")
            .incr("two", 2)
            .query(&mut connection)
            .expect("a transaction");
        assert_eq!((one.as_str(), two), ("1", 2));
        let keys: Vec<String> = connection.scan().expect("a scan").collect::<Result<_, _>>().expect("keys");
        assert_eq!(keys.len(), 2);
        let wrong: redis::RedisResult<i64> = connection.incr("one", "x");
        assert!(wrong.is_err());
        assert!(connection.is_open() && connection.check_connection());
        let () = redis::cmd("FLUSHALL").query(&mut connection).expect("flushed");
    }
}

#[test]
fn redis_rs_publishes_and_subscribes_in_both_protocols() {
    let (_dir, server) = server();
    for protocol in ["resp2", "resp3"] {
        let mut listener = redis_rs(&server, protocol);
        let mut subscription = listener.as_pubsub();
        subscription.subscribe("news").expect("subscribed");
        let mut speaker = redis_rs(&server, protocol);
        assert_eq!(speaker.publish("news", "hello"), Ok(1));
        let message = subscription.get_message().expect("a message");
        assert_eq!(message.get_payload(), Ok("hello".to_owned()));
    }
}

/// Who listens says nothing: MONITOR was cut by `connections.idle_timeout` as if nobody were there.
#[test]
fn idle_clients_are_cut_and_those_that_listen_are_not() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--engine=memory", "--connections-idle-timeout=1s"]);
    let open = |request: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port)).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("a socket option");
        stream.write_all(request.as_bytes()).expect("sent");
        receive(&mut stream).expect("a reply");
        stream
    };
    let (mut monitor, mut subscriber) = (open("MONITOR\r\n"), open("SUBSCRIBE c\r\n"));
    let mut idle = open("PING\r\n");
    assert_eq!(idle.read(&mut [0]).expect("its end"), 0);
    assert_eq!(server.call(&["PUBLISH", "c", "m"]), resp::Value::Integer(1));
    assert_eq!(
        receive(&mut subscriber).expect("the message"),
        resp::Value::Array(["message", "c", "m"].map(bulk).into())
    );
    let shows_it = |value: &resp::Value| matches!(value, resp::Value::Simple(text) if text.ends_with(b"\"PUBLISH\" \"c\" \"m\""));
    while !shows_it(&receive(&mut monitor).expect("lines up to this one")) {}
}
