//! `http-sink` in a topology: what a web server does not take is posted again under the same key, and what it never will is given up.
#![allow(clippy::disallowed_methods, reason = "tests have a server, and make the files that users make")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::thread;

use resp::Value;

use crate::common::{self, Server, evenkeel, eventually, field, ok};

/// For each path the keys that came with it.
type Seen = Arc<Mutex<BTreeMap<String, Vec<String>>>>;

/// A server that refuses each request once; how it refuses depends on the last digit, and a 7 is refused for ever. Its port, and what it saw.
fn server() -> (u16, Seen) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    (port, serve_on(listener, true))
}

/// A server that does so, or takes all; what it saw.
fn serve_on(listener: TcpListener, refuses: bool) -> Seen {
    let seen = Seen::default();
    let shared = Arc::clone(&seen);
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let seen = Arc::clone(&shared);
            let attend = move || attend(&stream, &seen, refuses);
            thread::Builder::new().name("connection".to_owned()).spawn(attend).expect("a thread");
        }
    };
    thread::Builder::new().name("web server".to_owned()).spawn(accept).expect("a thread");
    seen
}

/// Answers requests until the connection ends.
fn attend(stream: &TcpStream, seen: &Seen, refuses: bool) -> Option<()> {
    let (mut input, mut output) = (BufReader::new(stream), stream);
    loop {
        let mut lines = Vec::new();
        loop {
            let mut line = String::new();
            input.read_line(&mut line).ok().filter(|&length| length > 0)?;
            match line.trim_end() {
                "" => break,
                line => lines.push(line.to_owned()),
            }
        }
        let header = |name: &str| lines.iter().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
        let mut body = vec![0; header("content-length: ")?.parse().ok()?];
        input.read_exact(&mut body).ok()?;
        let path = lines[0].split(' ').nth(1)?.to_owned();
        let mut seen = seen.lock().expect("no panic");
        let keys = seen.entry(path.clone()).or_default();
        keys.push(header("idempotency-key: ")?);
        let answer = match (path.chars().last()?, keys.len()) {
            _ if !refuses => "204 No Content",
            ('7', _) => "422 Unprocessable Content",
            ('3', 1) => "429 Too Many Requests\r\nretry-after: 1",
            (_, 1) => "500 Internal Server Error",
            _ => "204 No Content",
        };
        drop(seen);
        let length = if answer.starts_with("204") { "" } else { "content-length: 0\r\n" };
        write!(output, "HTTP/1.1 {answer}\r\n{length}\r\n").ok()?;
    }
}

#[test]
fn request_that_fails_is_repeated_under_its_key_and_one_that_cannot_succeed_is_given_up() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let (port, seen) = server();
    let class = "org.apache.storm.flux.wrappers";
    let text = format!(
        "\
name: web
config: {{evenkeel.backoff_ms: [10]}}
spouts:
- id: source
  className: {class}.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, generator, --count, \"10\"], [number, text]]
bolts:
- id: told
  className: {class}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, http-sink, \"http://127.0.0.1:{port}/{{number}}\", --key, \"{{number}}\"], [nothing]]
streams:
- {{from: source, to: told, grouping: {{type: SHUFFLE}}}}
"
    );
    std::fs::write(dir.path().join("x.yaml"), text).expect("it is written");
    let errors = std::fs::File::create(dir.path().join("log")).expect("it is made");
    let mut command = evenkeel();
    command.args(["topology", "run", "x.yaml", "--local"]).current_dir(dir.path());
    let mut run = command.stdout(Stdio::null()).stderr(errors).spawn().expect("it starts");
    let expected: BTreeMap<String, Vec<String>> = (0..10)
        .map(|number| {
            let times = if number == 7 { 1 } else { 2 };
            (format!("/{number}"), vec![format!("\"web:told:{number}\""); times])
        })
        .collect();
    eventually("all are posted", || *seen.lock().expect("no panic") == expected);
    let log = || std::fs::read_to_string(dir.path().join("log")).expect("it is there");
    eventually("one is given up", || log().contains("the server answered 422"));
    run.kill().expect("it runs");
    run.wait().expect("it ends");
}

#[test]
fn server_lets_topologies_post_to_the_hosts_of_its_setting_and_to_no_others() {
    let (port, seen) = server();
    let (data, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let definition = |host: &str| {
        let class = "org.apache.storm.flux.wrappers";
        format!(
            "name: web\nspouts:\n- {{id: source, className: {class}.spouts.FluxShellSpout, constructorArgs: [[evenkeel, component, stream-spout, orders], [n]]}}\n\
             bolts:\n- {{id: told, className: {class}.bolts.FluxShellBolt, constructorArgs: [[evenkeel, component, http-sink, \"http://{host}:{port}/{{n}}\", --key, \"{{n}}\"], [nothing]]}}\n\
             streams:\n- {{from: source, to: told, grouping: {{type: SHUFFLE}}}}\n"
        )
    };
    let place = place.path().to_str().expect("text");
    let server =
        Server::start(data.path(), &["--topologies-dir", place, "--topologies-http-hosts", "127.0.0.1"]);
    let submit = |host: &str| server.call(&["TOPOLOGY", "SUBMIT", "web", &definition(host)]);
    let refused = match submit("localhost") {
        Value::Error(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    };
    assert!(refused.contains("`localhost`") && refused.ends_with("(topologies.http_hosts)"), "{refused}");
    assert_eq!(submit("127.0.0.1"), ok());
    server.call(&["XADD", "orders", "*", "n", "3"]);
    let is_posted = || seen.lock().expect("no panic").get("/3").is_some_and(|keys| keys.len() == 2);
    eventually("it is posted, and again after 429", is_posted);
}

/// 15,000 attempts a second, without an error or a line of the log; and with each of them all else that came of the spout's tuple was done again.
#[test]
fn endpoint_that_is_away_gets_each_tuple_once_when_it_is_back_and_nothing_else_is_repeated() {
    const ENTRIES: usize = 200;
    let (data, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let port = common::free_port();
    let class = "org.apache.storm.flux.wrappers";
    let definition = format!(
        "name: web\nspouts:\n- {{id: source, className: {class}.spouts.FluxShellSpout, constructorArgs: [[evenkeel, component, stream-spout, orders], [n]]}}\n\
         bolts:\n- {{id: told, className: {class}.bolts.FluxShellBolt, constructorArgs: [[evenkeel, component, http-sink, \"http://127.0.0.1:{port}/{{n}}\", --key, \"{{n}}\"], [nothing]]}}\n\
         - {{id: sibling, className: {class}.bolts.FluxShellBolt, constructorArgs: [[evenkeel, component, key-sink, HINCRBY, sibling, \"{{n}}\", \"1\"], [nothing]]}}\n\
         streams:\n- {{from: source, to: told, grouping: {{type: SHUFFLE}}}}\n- {{from: source, to: sibling, grouping: {{type: SHUFFLE}}}}\n"
    );
    let place = place.path().to_str().expect("text");
    let server =
        Server::start(data.path(), &["--topologies-dir", place, "--topologies-http-hosts", "127.0.0.1"]);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "web", &definition]), ok());
    for n in 0..ENTRIES {
        server.call(&["XADD", "orders", "*", "n", &n.to_string()]);
    }
    let told = |what: &str| match field(&server.call(&["TOPOLOGY", "SHOW", "web"]), "components") {
        Value::Array(all) => field(&all[1], what),
        other => panic!("{other:?}"),
    };
    let error = || match told("last_error") {
        Value::Bulk(error) => String::from_utf8_lossy(&error).into_owned(),
        _ => String::new(),
    };
    // The fourth attempt has failed.
    let away = format!("no connection to 127.0.0.1:{port}: ");
    let is_told = || error().starts_with(&away) && error().ends_with("the next attempt is in 800 ms");
    eventually(&format!("it is told, not {}", error()), is_told);
    eventually("all of the other branch is done", || common::hash(server.port, "sibling").len() == ENTRIES);
    let seen = serve_on(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).expect("nobody else has it"), false);
    let posted = || seen.lock().expect("no panic").len();
    eventually(&format!("all are posted, not {}", posted()), || posted() == ENTRIES);
    assert!(seen.lock().expect("no panic").values().all(|keys| keys.len() == 1), "each once");
    let repeated: Vec<_> =
        common::hash(server.port, "sibling").into_iter().filter(|(_, times)| times != "1").collect();
    assert!(repeated.is_empty(), "{repeated:?}");
    assert_eq!((told("executed"), told("failed")), (Value::Integer(ENTRIES as i64), Value::Integer(0)));
    assert!(matches!(told("faults"), Value::Integer(1..=12)), "{:?}", told("faults"));
}
