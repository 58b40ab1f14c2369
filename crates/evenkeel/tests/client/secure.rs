//! Clients that connect with TLS: redis-cli, redis-py's library, and the binary's own commands.
#![allow(clippy::disallowed_methods, reason = "tests start processes and make files")]

use std::path::Path;
use std::process::Command;

use connection::{Client, Target};
use resp::Value;

use crate::certificates::Ca;
use crate::common::{Server, bulk, evenkeel, eventually, finished, free_port};

/// A server that has TLS on a port of its own.
struct Secure {
    ca: Ca,
    server: Server,
    port: u16,
    folder: tempfile::TempDir,
}

/// Puts a certificate for this machine, and its key, there, and returns their paths.
fn write_identity(ca: &Ca, name: &str) -> [String; 2] {
    ca.sign(name).map(|file| {
        std::fs::write(&file.path, &file.text).expect("written");
        file.path
    })
}

impl Secure {
    fn start(arguments: &[&str]) -> Self {
        let (ca, folder, port) = (Ca::new("a CA"), tempfile::tempdir().expect("a folder"), free_port());
        let [cert, key] = write_identity(&ca, "127.0.0.1");
        let own = [
            format!("--tls-port={port}"),
            format!("--tls-certificate-file={cert}"),
            format!("--tls-key-file={key}"),
            format!("--tls-ca-file={}", ca.path("ca.pem")),
        ];
        let all: Vec<&str> = own.iter().map(String::as_str).chain(arguments.iter().copied()).collect();
        let server = Server::start(&folder.path().join("data"), &all);
        Self { ca, server, port, folder }
    }

    fn url(&self) -> String {
        format!("rediss://127.0.0.1:{}?cacert={}", self.port, self.ca.path("ca.pem"))
    }

    fn connect_as(&self, more: &str) -> Client {
        let target: Target = format!("{}{more}", self.url()).parse().expect("a URL");
        Client::connect(&target).expect("connected")
    }

    fn connect(&self) -> Client {
        self.connect_as("")
    }

    fn redis_cli(&self, words: &[&str]) -> String {
        let mut command = Command::new("redis-cli");
        command.args(["-p", &self.port.to_string(), "--tls", "--cacert", &self.ca.path("ca.pem")]);
        finished(command.args(words)).1
    }

    fn info(&self, name: &str) -> String {
        let Value::Bulk(info) = self.connect().call(&["INFO", "stats"]).expect("answered") else { panic!() };
        let info = String::from_utf8_lossy(&info).into_owned();
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")).map(str::to_owned));
        line.expect("a line")
    }
}

#[test]
fn redis_cli_and_long_values_go_through_tls_under_each_connector() {
    for connector in ["epoll", "uring", "threads"] {
        let secure = Secure::start(&[
            &format!("--connector={connector}"),
            "--value-max=400MB",
            "--transaction-max=500MB",
            "--connections-input-max=600MB",
            "--connections-output-max=600MB",
            "--loops=2",
        ]);
        assert_eq!(secure.redis_cli(&["PING"]).trim(), "PONG", "{connector}");
        let mut client = secure.connect();
        let long = vec![b'v'; 300_000_000];
        assert_eq!(client.call_bytes(&[b"SET", b"long", &long]).expect("set"), Value::Simple(b"OK".to_vec()));
        assert!(client.call(&["GET", "long"]).expect("got") == Value::Bulk(long), "{connector}");
        let mut push = vec!["RPUSH".to_owned(), "list".to_owned()];
        push.extend((0..100_000).map(|number| number.to_string()));
        assert_eq!(client.call(&push).expect("pushed"), Value::Integer(100_000));
        let Value::Array(all) = client.call(&["LRANGE", "list", "0", "-1"]).expect("got") else { panic!() };
        assert!(all.iter().enumerate().all(|(at, value)| *value == bulk(&at.to_string())), "{connector}");
    }
}

#[test]
fn redis_py_works_over_tls() {
    let Some(python) = std::env::var_os("EVENKEEL_PYTHON") else { return };
    let secure = Secure::start(&["--loops=2"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/secure.py");
    let mut command = Command::new(python);
    command.arg(script).args([secure.port.to_string(), secure.ca.path("ca.pem")]);
    let (status, text) = finished(&mut command);
    assert_eq!((status, text.trim()), (0, "fine"), "{text}");
}

#[test]
fn new_files_are_taken_and_wrong_ones_refused_by_name_while_connections_go_on() {
    let secure = Secure::start(&[]);
    let mut old = secure.connect();
    let [cert, key] = write_identity(&secure.ca, "127.0.0.1");
    secure.server.signal(libc::SIGHUP);
    let right = std::fs::read_to_string(&cert).expect("there");
    eventually("new connections are served", || {
        secure.connect().call(&["PING"]).expect("answered") == Value::Simple(b"PONG".to_vec())
    });
    std::fs::write(&cert, "nothing").expect("written");
    let mut set = |path: &str| old.call(&["CONFIG", "SET", "tls-cert-file", path]);
    let error = set(&cert).expect_err("refused").to_string();
    assert!(error.contains(&cert) && error.contains("no certificate"), "{error}");
    assert!(set("/nowhere").expect_err("refused").to_string().contains("tls.certificate_file = /nowhere"));
    assert_eq!(
        secure.connect().call(&["PING"]).expect("the former serve on"),
        Value::Simple(b"PONG".to_vec())
    );
    std::fs::write(&cert, right).expect("written");
    let both = ["CONFIG", "SET", "tls-cert-file", &cert, "tls-key-file", &key];
    assert_eq!(old.call(&both).expect("set"), Value::Simple(b"OK".to_vec()));
    assert_eq!(secure.connect().call(&["PING"]).expect("answered"), Value::Simple(b"PONG".to_vec()));
    let (_, log) = {
        secure.server.signal(libc::SIGTERM);
        secure.server.end()
    };
    assert!(log.contains("SIGHUP: files of tls.* read"), "{log}");
}

#[test]
fn certificate_lets_in_and_logs_in_whom_it_names() {
    let asks = ["--tls-client-certificates=yes", "--tls-user-from-certificate=cn", "--requirepass=secret"];
    let secure = Secure::start(&asks);
    let known = |name: &str| {
        let [cert, key] = write_identity(&secure.ca, name);
        secure.connect_as(&format!("&cert={cert}&key={key}"))
    };
    assert_eq!(known("default").call(&["SET", "a", "1"]).expect("logged in"), Value::Simple(b"OK".to_vec()));
    let error = known("somebody").call(&["GET", "a"]).expect_err("no such user").to_string();
    assert!(error.contains("NOAUTH"), "{error}");
    // With TLS 1.3 a client learns of it with its first answer.
    let target: Target = secure.url().parse().expect("a URL");
    let refused = Client::connect(&target).and_then(|mut client| client.call(&["PING"]));
    refused.expect_err("no certificate");
}

#[test]
fn own_commands_reach_a_server_that_has_tls_alone() {
    let secure = Secure::start(&["--port=0"]);
    assert_eq!(secure.redis_cli(&["SET", "a", "b"]).trim(), "OK");
    let ca = secure.ca.path("ca.pem");
    let plain = format!("redis://127.0.0.1:{}", secure.port);
    for arguments in [
        vec!["tx", "list", "--url", &secure.url()],
        vec!["tx", "list", "--url", &plain, "--tls", "--cacert", &ca],
        vec!["tx", "list", "--url", &plain, "--insecure"],
    ] {
        let (status, text) = finished(evenkeel().args(&arguments));
        assert_eq!(status, 0, "{arguments:?}: {text}");
    }
    let (status, text) = finished(evenkeel().args(["tx", "list", "--url", &plain, "--tls"]));
    assert!(status != 0 && text.contains("UnknownIssuer"), "{text}");
    let (data, copy) = (secure.folder.path().join("data"), secure.folder.path().join("copy"));
    let (status, text) = finished(evenkeel().arg("backup").args([&data, &copy]));
    assert_eq!(status, 0, "{text}");
    let copied = Server::start(&copy, &[]);
    assert_eq!(copied.call(&["GET", "a"]), bulk("b"));
}

#[test]
fn wrong_kind_of_client_is_closed_with_a_line_and_counted() {
    let secure = Secure::start(&[]);
    let mut plain = Command::new("redis-cli");
    finished(plain.args(["-p", &secure.port.to_string(), "PING"]));
    let mut tls = Command::new("redis-cli");
    finished(tls.args(["-p", &secure.server.port.to_string(), "--tls", "--insecure", "PING"]));
    assert!(secure.info("tls_handshakes_failed").contains("not_tls=1"));
    secure.server.signal(libc::SIGTERM);
    let (_, log) = secure.server.end();
    for line in
        ["it does not speak TLS, and this port (tls.port) does", "it speaks TLS, and its port does not"]
    {
        assert_eq!(log.matches(line).count(), 1, "{log}");
    }
}
