//! Topologies that a server runs, as a user meets them: workers that die, servers that die, and nothing that is left over.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make")]

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

use resp::Value;

use crate::common::{self, Server, bulk, evenkeel, eventually, field, finished, kill, ok, processes};

/// A folder of data and one of components: a spout that emits `x` whenever it is asked, and a bolt that acknowledges it and has started a daemon.
fn folders() -> (tempfile::TempDir, tempfile::TempDir) {
    let (data, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let hear = "hear() { while read -r line && [ \"$line\" != end ]; do said=\"$line\"; done; [ -n \"$said\" ]; }; say() { echo \"$1\"; echo end; }";
    let begin = format!("{hear}; hear; say '{{\"pid\": 1}}'; said=");
    let spout = r#"while hear; do case "$said" in *next*) say '{"command": "emit", "tuple": ["x"], "need_task_ids": false}';; esac; say '{"command": "sync"}'; said=; done"#;
    let bolt = r#"setsid sleep 1000 <&- >&- 2>&- &
while hear; do id=${said#*\"id\":\"}; id=${id%%\"*}; case "$said" in *__heartbeat*) say '{"command": "sync"}';; *) say '{"command": "ack", "id": "'$id'"}';; esac; said=; done"#;
    let write = |name: &str, text: String| std::fs::write(place.path().join(name), text).expect("written");
    write("spout.sh", format!("{begin}\n{spout}\n"));
    write("bolt.sh", format!("{begin}\n{bolt}\n"));
    let unsure = r#"while hear; do id=${said#*\"id\":\"}; id=${id%%\"*}; n=$((n+1)); case "$said" in *__heartbeat*) say '{"command": "sync"}';; *) [ $((n%3)) = 0 ] && say '{"command": "fail", "id": "'$id'"}' || say '{"command": "ack", "id": "'$id'"}';; esac; said=; done"#;
    write("unsure.sh", format!("{begin}\n{unsure}\n"));
    write("crash.sh", "echo it crashes >&2; exit 3\n".to_owned());
    (data, place)
}

/// A topology of a spout, and a bolt that runs `bolt`.
fn definition(bolt: &str) -> String {
    let class = "org.apache.storm.flux.wrappers";
    format!(
        "name: scripts\nconfig: {{evenkeel.backoff_ms: [0], topology.max.spout.pending: 10}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[sh, spout.sh], [x]]\nbolts:\n- id: sink\n  className: {class}.bolts.FluxShellBolt\n  constructorArgs: [[sh, {bolt}], [y]]\nstreams:\n- {{from: source, to: sink, grouping: {{type: SHUFFLE}}}}\n"
    )
}

fn start(data: &Path, place: &Path) -> Server {
    Server::start(data, &["--topologies-dir", place.to_str().expect("text")])
}

fn number(value: Value) -> i64 {
    match value {
        Value::Integer(number) => number,
        Value::Null => 0,
        other => panic!("no number: {other:?}"),
    }
}

fn show(server: &Server, name: &str) -> Value {
    server.call(&["TOPOLOGY", "SHOW", name])
}

/// What component number `at` has acknowledged.
fn acked(server: &Server, at: usize) -> i64 {
    match field(&show(server, "words"), "components") {
        Value::Array(all) if all.len() > at => number(field(&all[at], "acked")),
        _ => 0,
    }
}

/// The process of the worker; 0 if there is none.
fn worker(server: &Server, name: &str) -> i64 {
    let Value::Array(workers) = field(&show(server, name), "workers") else { panic!("no workers") };
    number(field(&workers[0], "pid"))
}

#[test]
fn topology_outlives_the_death_of_its_worker_and_of_its_server_and_leaves_nothing_when_it_is_killed() {
    let (data, place) = folders();
    let mut server = start(data.path(), place.path());
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "words", &definition("bolt.sh")]), ok());
    eventually("tuples are acknowledged", || acked(&server, 0) > 20 && acked(&server, 1) > 20);
    // a worker, a spout, a bolt and the bolt's daemon
    eventually("all run", || processes(data.path()).len() == 4);

    let former = processes(data.path());
    let first = worker(&server, "words");
    kill(first);
    eventually("another worker runs", || ![0, first].contains(&worker(&server, "words")));
    eventually("it works", || acked(&server, 1) > 20);
    let now = processes(data.path());
    assert!(former.iter().all(|pid| !now.contains(pid)), "{former:?} {now:?}");
    let shown = show(&server, "words");
    assert_eq!(
        (field(&shown, "status"), field(&shown, "last_error")),
        (bulk("active"), bulk("it was killed by signal 9"))
    );

    let former = processes(data.path());
    server.child.kill().expect("it runs");
    server.child.wait().expect("it ends");
    eventually("nothing is left", || former.iter().all(|pid| !Path::new(&format!("/proc/{pid}")).exists()));
    let server = start(data.path(), place.path());
    eventually("it works again", || acked(&server, 1) > 20);

    assert_eq!(server.call(&["TOPOLOGY", "KILL", "words", "WAIT", "5"]), ok());
    eventually("it is gone", || server.call(&["TOPOLOGY", "LIST"]) == Value::Array(Vec::new()));
    assert_eq!(processes(data.path()), [0; 0]);
    drop(server);
    let server = start(data.path(), place.path());
    assert_eq!(server.call(&["TOPOLOGY", "LIST"]), Value::Array(Vec::new()));
}

#[test]
fn worker_and_server_that_are_killed_at_once_leave_nothing_to_the_next_server() {
    let (data, place) = folders();
    let mut server = start(data.path(), place.path());
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "words", &definition("bolt.sh")]), ok());
    eventually("all run", || processes(data.path()).len() == 4);
    let former = processes(data.path());
    let first = worker(&server, "words");
    server.signal(libc::SIGSTOP);
    kill(first);
    server.child.kill().expect("it runs");
    server.child.wait().expect("it ends");
    let server = start(data.path(), place.path());
    eventually("nothing is left", || former.iter().all(|pid| !processes(data.path()).contains(pid)));
    eventually("it works again", || acked(&server, 1) > 20);
}

#[test]
fn server_that_stops_leaves_nothing_and_what_was_deactivated_stays_so() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "words", &definition("bolt.sh")]), ok());
    eventually("tuples are acknowledged", || acked(&server, 1) > 20);
    assert_eq!(server.call(&["TOPOLOGY", "DRAIN", "words", "WAIT", "15"]), ok());
    assert_eq!(field(&show(&server, "words"), "status"), bulk("drained"));
    let count = acked(&server, 0);
    server.signal(libc::SIGTERM);
    let (status, log) = server.end();
    assert!(status.success(), "{log}");
    assert_eq!(processes(data.path()), [0; 0]);
    let server = start(data.path(), place.path());
    eventually("its worker runs", || field(&show(&server, "words"), "status") == bulk("drained"));
    assert!(count > 20 && acked(&server, 0) < 20);
    assert_eq!(server.call(&["TOPOLOGY", "ACTIVATE", "words"]), ok());
    eventually("it goes on", || acked(&server, 0) > 20);
    let first = worker(&server, "words");
    assert_eq!(server.call(&["TOPOLOGY", "RESTART", "words", "WAIT", "5"]), ok());
    eventually("another worker runs", || ![0, first].contains(&worker(&server, "words")));
}

#[test]
fn show_tells_what_holds_a_stream_up_and_how_old_what_waits_there_is() {
    let (data, place) = folders();
    std::fs::write(place.path().join("keep.sh"), "while read -r line; do :; done\n").expect("written");
    let server = start(data.path(), place.path());
    let text = definition("keep.sh")
        .replace("[sh, spout.sh]", "[evenkeel, component, stream-spout, orders]")
        .replace(
            "name: scripts\nconfig: {",
            "name: scripts\nconfig: {topology.subprocess.timeout.secs: 3600, ",
        );
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "words", &text]), ok());
    let figure = |at: usize, name: &str| match field(&show(&server, "words"), "components") {
        Value::Array(all) if all.len() > at => number(field(&all[at], name)),
        _ => -1,
    };
    eventually("nothing waits", || figure(0, "lag_ms") == 0 && figure(0, "idle_permille") > 900);
    for _ in 0..30 {
        server.call(&["XADD", "orders", "*", "x", "1"]);
    }
    eventually("what waits grows old", || figure(0, "lag_ms") > 1_500);
    eventually("it waits for the bolt", || figure(0, "back_pressured_permille") > 500);
    assert_eq!((figure(0, "pending"), figure(1, "lag_ms")), (10, 0));
}

#[test]
fn component_that_crashes_at_once_is_named_and_harms_nobody() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "words", &definition("crash.sh")]), ok());
    let error = |server: &Server| match field(&show(server, "words"), "components") {
        Value::Array(all) if all.len() == 2 => field(&all[1], "last_error"),
        _ => bulk(""),
    };
    eventually(
        "the error is told",
        || matches!(error(&server), Value::Bulk(text) if String::from_utf8_lossy(&text).contains("status 3")),
    );
    assert_eq!(server.call(&["PING"]), Value::Simple(b"PONG".to_vec()));
    assert_eq!(server.call(&["TOPOLOGY", "KILL", "words", "WAIT", "0"]), ok());
    eventually("it is gone", || server.call(&["TOPOLOGY", "LIST"]) == Value::Array(Vec::new()));
    assert_eq!(processes(data.path()), [0; 0]);
}

/// Runs `evenkeel topology` with `arguments` for `server`; status and what it printed.
fn topology(server: &Server, dir: &Path, arguments: &[&str]) -> (i32, String) {
    let mut command = evenkeel();
    command.arg("topology").args(arguments).args(["--url", &format!("redis://127.0.0.1:{}", server.port)]);
    finished(command.current_dir(dir).env("BOLT", "bolt.sh"))
}

#[test]
fn command_line_submits_shows_and_ends_topologies() {
    let (data, place) = folders();
    let listen = format!("127.0.0.1:{}", common::free_port());
    let server = Server::start(
        data.path(),
        &["--topologies-dir", place.path().to_str().expect("text"), "--metrics-listen", &listen],
    );
    let dir = tempfile::tempdir().expect("a folder");
    std::fs::write(dir.path().join("x.yaml"), definition("${ENV-BOLT}")).expect("written");
    let run = |arguments: &[&str]| topology(&server, dir.path(), arguments);
    assert_eq!(run(&["list"]), (0, "no topology\n".to_owned()));
    let (status, text) = run(&["run", "x.yaml", "--name", "words"]);
    assert!(status == 0 && text.starts_with("words runs on "), "{text}");
    let (status, text) = run(&["run", "x.yaml", "--name", "words"]);
    assert!(status == 1 && text.contains("words runs already"), "{status} {text}");
    eventually("tuples are acknowledged", || acked(&server, 1) > 20);
    let (_, text) = run(&["list"]);
    assert!(text.lines().nth(1).is_some_and(|line| line.trim_start().starts_with("words  active")), "{text}");
    let (_, text) = run(&["show", "words"]);
    assert!(text.starts_with("words: active\nworker 0: process ") && text.contains("  sink "), "{text}");
    let (_, text) = run(&["show", "words", "--json"]);
    assert!(text.contains("\"components\": [") && text.contains("\"id\": \"sink\""), "{text}");
    let info = server.call(&["INFO", "topologies"]);
    assert!(format!("{info:?}").len() > 100);
    for (path, part) in [
        ("/metrics", "evenkeel_topology_acked_total{topology=\"words\",component=\"sink\"}"),
        ("/api/v1/topology/summary", "\"status\":\"ACTIVE\""),
        ("/api/v1/topology/words", "\"boltId\":\"sink\""),
        ("/api/v1/topology/words/component/sink", "\"executorStats\":[{"),
        ("/api/v1/topology/words/component/sink", "\"inputStats\":[{"),
        ("/api/v1/topology/words/component/nothing", "HTTP/1.1 404 "),
        ("/api/v1/topology/words/component/nothing", "the topology `words` has no component `nothing`"),
    ] {
        let page = page(&listen, path);
        assert!(page.contains(part), "{path}: {page}");
    }
    assert_eq!(run(&["rebalance", "words", "--workers", "2"]), (0, "words has 2 workers\n".to_owned()));
    let (_, text) = run(&["show", "words"]);
    assert!(text.lines().filter(|line| line.contains("; 1 task; 0 restarts")).count() == 2, "{text}");
    assert_eq!(run(&["drain", "words", "--wait", "15"]).0, 0);
    assert_eq!(run(&["activate", "words"]), (0, "words is active\n".to_owned()));
    assert_eq!(run(&["deactivate", "words"]), (0, "words is inactive\n".to_owned()));
    assert_eq!(run(&["restart", "words", "--wait", "5"]), (0, "words is started anew\n".to_owned()));
    assert_eq!(run(&["kill", "words", "--wait", "5"]), (0, "words is ended and forgotten\n".to_owned()));
    assert_eq!(processes(data.path()), [0; 0]);
    let (status, text) = run(&["show", "words"]);
    assert!(status == 1 && text.contains("there is no topology 'words'"), "{text}");
}

/// What the server answers to GET `path`.
fn page(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(common::PATIENCE)).expect("set");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut page = String::new();
    stream.read_to_string(&mut page).expect("text");
    page
}

/// Built-in components log in with what their worker was given, and count each entry however often it and the server die.
#[test]
fn stream_is_counted_into_keys_while_worker_and_server_are_killed_also_with_a_password() {
    const ENTRIES: usize = 3_000;
    let (data, place) = folders();
    let class = "org.apache.storm.flux.wrappers";
    let text = format!(
        "name: orders\nconfig: {{topology.max.spout.pending: 20, evenkeel.backoff_ms: [10, 100]}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[evenkeel, component, stream-spout, orders, --group, g, --from, start], [id, word]]\nbolts:\n- id: seen\n  className: {class}.bolts.FluxShellBolt\n  constructorArgs: [[evenkeel, component, key-sink, HSET, seen, \"{{id}}\", \"{{word}}\"], [nothing]]\nstreams:\n- {{from: source, to: seen, grouping: {{type: SHUFFLE}}}}\n"
    );
    let place = place.path().to_str().expect("text");
    let start = || Server::start(data.path(), &["--topologies-dir", place, "--requirepass", "secret"]);
    let mut server = start();
    let ask = |server: &Server, command: &[&str]| {
        let mut replies = batch(server.port, &[&["AUTH", "secret"], command]);
        replies.pop().expect("two replies")
    };
    let added: Vec<String> = (0..ENTRIES).map(|number| format!("w{}", number % 7)).collect();
    let entries: Vec<Vec<&str>> =
        added.iter().map(|word| vec!["XADD", "orders", "*", "word", word]).collect();
    let mut commands: Vec<&[&str]> = vec![&["AUTH", "secret"]];
    commands.extend(entries.iter().map(Vec::as_slice));
    batch(server.port, &commands);
    assert_eq!(server.call(&["TOPOLOGY", "LIST"]), Value::Error(b"NOAUTH Authentication required.".to_vec()));
    assert_eq!(ask(&server, &["TOPOLOGY", "SUBMIT", "orders", &text]), ok());
    let seen = |server: &Server| usize::try_from(number(ask(server, &["HLEN", "seen"]))).expect("a count");
    let pid = |server: &Server| match ask(server, &["TOPOLOGY", "LIST"]) {
        Value::Array(all) if all.len() == 1 => number(field(&all[0], "pid")),
        _ => 0,
    };
    for part in 1..=2 {
        eventually("some are there", || seen(&server) >= part * 300);
        let mut worker = 0;
        eventually("a worker runs", || {
            worker = pid(&server);
            worker != 0
        });
        kill(worker);
        eventually("more are there", || seen(&server) >= part * 300 + 200);
        server.child.kill().expect("it runs");
        server.child.wait().expect("it ends");
        server = start();
    }
    eventually("all are there", || seen(&server) == ENTRIES);
    let wrong = batch(server.port, &[&["AUTH", "topology", &"0".repeat(64)]]);
    assert!(matches!(&wrong[0], Value::Error(text) if text.starts_with(b"WRONGPASS")), "{wrong:?}");
}

#[test]
fn failures_of_a_bolt_are_shown_at_the_edge_on_which_the_tuples_came() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "words", &definition("unsure.sh")]), ok());
    let edge = || match field(&show(&server, "words"), "edges") {
        Value::Array(edges) if edges.len() == 1 => Some(edges[0].clone()),
        _ => None,
    };
    let count = |edge: &Value, name: &str| number(field(edge, name));
    // of the first few tuples most may have failed
    let mut seen = None;
    eventually("some have failed, and more were acked", || {
        seen =
            edge().filter(|edge| count(edge, "failed") > 10 && count(edge, "acked") > count(edge, "failed"));
        seen.is_some()
    });
    let edge = seen.expect("it was there");
    let names = ["from", "stream", "to"].map(|name| field(&edge, name));
    assert_eq!(names, [bulk("source"), bulk("default"), bulk("sink")]);
    let [executed, acked, failed] = ["executed", "acked", "failed"].map(|name| count(&edge, name));
    assert!(acked + failed <= executed, "{edge:?}");
    assert!(count(&edge, "transferred") >= executed && count(&edge, "process_us") > 0, "{edge:?}");
    let url = format!("redis://127.0.0.1:{}", server.port);
    let mut command = evenkeel();
    let (status, said) = finished(command.args(["topology", "show", "words", "--url", &url]));
    let line = said.lines().rfind(|line| line.trim_start().starts_with("source  sink  default"));
    assert!(status == 0 && line.is_some(), "{said}");
}

/// A definition that names its keys reaches no others, with built-in components or with what its programs send.
#[test]
fn topology_that_names_its_keys_reaches_no_others() {
    let (data, place) = folders();
    let class = "org.apache.storm.flux.wrappers";
    let sink = |id: &str, key: &str| {
        format!(
            "- id: {id}\n  className: {class}.bolts.FluxShellBolt\n  constructorArgs: [[evenkeel, component, key-sink, HSET, {key}, \"{{id}}\", x], [nothing]]\n"
        )
    };
    let text = format!(
        "name: orders\nconfig: {{evenkeel.keys: [orders, \"seen:*\"], evenkeel.backoff_ms: [10], evenkeel.attempts_max: 2}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[evenkeel, component, stream-spout, orders, --group, g, --from, start], [id, word]]\nbolts:\n{}{}streams:\n- {{from: source, to: may, grouping: {{type: SHUFFLE}}}}\n- {{from: source, to: mayNot, grouping: {{type: SHUFFLE}}}}\n",
        sink("may", "seen:all"),
        sink("mayNot", "salaries"),
    );
    let place = place.path().to_str().expect("text");
    let server = Server::start(data.path(), &["--topologies-dir", place, "--requirepass", "secret"]);
    let ask =
        |command: &[&str]| batch(server.port, &[&["AUTH", "secret"], command]).pop().expect("two replies");
    ask(&["XADD", "orders", "*", "word", "a"]);
    assert_eq!(ask(&["TOPOLOGY", "SUBMIT", "orders", &text]), ok());
    eventually("its own key is written", || ask(&["HLEN", "seen:all"]) == Value::Integer(1));
    let refusal = "NOPERM topology 'orders' may not use the key 'salaries'";
    eventually("the other one is refused by name", || {
        let Value::Array(all) = field(&ask(&["TOPOLOGY", "SHOW", "orders"]), "components") else {
            return false;
        };
        let error = all.get(2).map(|it| field(it, "last_error"));
        matches!(error, Some(Value::Bulk(text)) if String::from_utf8_lossy(&text).contains(refusal))
    });
    assert_eq!(ask(&["EXISTS", "salaries"]), Value::Integer(0));
}

/// With exactly-once all began anew for ever, 25 times in 25 s; with at-least-once the tuple was asked for again each second, and was among those that may be under way.
#[test]
fn tuple_whose_key_the_definition_does_not_name_is_a_dead_letter_and_the_others_go_on() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    let class = "org.apache.storm.flux.wrappers";
    for (name, guarantee, letters) in
        [("least", "at-least-once", "least:dead"), ("once", "exactly-once", "topology:once:dead-letters")]
    {
        let words = if name == "least" { ", --dead-letter, \"least:dead\"" } else { "" };
        let text = format!(
            "name: {name}\nconfig: {{evenkeel.guarantee: {guarantee}, evenkeel.keys: [\"{name}:*\"], evenkeel.backoff_ms: [10], evenkeel.attempts_max: 2, topology.max.spout.pending: 3}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[evenkeel, component, stream-spout, \"{name}:in\"{words}], [id, k]]\nbolts:\n- id: sink\n  className: {class}.bolts.FluxShellBolt\n  constructorArgs: [[evenkeel, component, key-sink, SET, \"{{k}}\", \"{{id}}\"], [nothing]]\nstreams:\n- {{from: source, to: sink, grouping: {{type: SHUFFLE}}}}\n"
        );
        assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", name, &text]), ok());
        for k in 0..12 {
            let key = if k % 3 == 1 { format!("foreign{k}") } else { format!("{name}:{k}") };
            server.call(&["XADD", &format!("{name}:in"), "*", "k", &key]);
        }
        eventually("each is there or given up", || {
            let kept = (0..12).filter(|k| k % 3 != 1).map(|k| format!("{name}:{k}"));
            let keys: Vec<String> = ["EXISTS".to_owned()].into_iter().chain(kept).collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            server.call(&keys) == Value::Integer(8) && server.call(&["XLEN", letters]) == Value::Integer(4)
        });
        let letter = format!("{:?}", server.call(&["XRANGE", letters, "-", "+", "COUNT", "1"]));
        let shown = |text: &str| {
            let bytes = format!("{:?}", text.as_bytes());
            bytes[1..bytes.len() - 1].to_owned()
        };
        assert!(letter.contains(&shown("NOPERM")) && letter.contains(&shown("foreign1")), "{letter}");
        assert_eq!(server.call(&["EXISTS", "foreign1"]), Value::Integer(0));
    }
}

/// A definition of a spout that reads `NAME:in`, and a sink that writes the hash `NAME:out`.
fn through(name: &str, guarantee: &str, config: &str) -> String {
    let class = "org.apache.storm.flux.wrappers";
    let letters =
        if guarantee == "exactly-once" { String::new() } else { format!(", --dead-letter, \"{name}:dead\"") };
    format!(
        "name: {name}\nconfig: {{evenkeel.guarantee: {guarantee}{config}}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[evenkeel, component, stream-spout, \"{name}:in\"{letters}], [id, k]]\nbolts:\n- id: sink\n  className: {class}.bolts.FluxShellBolt\n  constructorArgs: [[evenkeel, component, key-sink, HSET, \"{name}:out\", \"{{id}}\", \"{{k}}\"], [nothing]]\nstreams:\n- {{from: source, to: sink, grouping: {{type: SHUFFLE}}}}\n"
    )
}

/// With exactly-once it was dropped, and with at-least-once it stayed pending although there was a stream for dead letters.
#[test]
fn tuple_that_is_larger_than_a_channel_takes_is_a_dead_letter() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    for (name, guarantee, letters) in
        [("least", "at-least-once", "least:dead"), ("once", "exactly-once", "topology:once:dead-letters")]
    {
        let text = through(name, guarantee, ", evenkeel.channel_bytes_max: 1024");
        assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", name, &text]), ok());
        for size in [10, 5_000, 20] {
            server.call(&["XADD", &format!("{name}:in"), "*", "k", &"x".repeat(size)]);
        }
        eventually("two are there, and one is given up", || {
            server.call(&["HLEN", &format!("{name}:out")]) == Value::Integer(2)
                && server.call(&["XLEN", letters]) == Value::Integer(1)
        });
        let letter = format!("{:?}", server.call(&["XRANGE", letters, "-", "+"]));
        let value = format!("{:?}", bulk(&"x".repeat(5_000)));
        assert!(letter.contains(&value), "the letter has the value");
    }
    let pending = || server.call(&["XPENDING", "least:in", "least"]);
    eventually(
        "it is acknowledged",
        || matches!(pending(), Value::Array(parts) if parts[0] == Value::Integer(0)),
    );
}

#[test]
fn entries_that_were_trimmed_before_they_were_read_are_told() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    for (name, guarantee) in [("least", "at-least-once"), ("once", "exactly-once")] {
        let stream = format!("{name}:in");
        let add =
            |count: usize| (0..count).for_each(|_| drop(server.call(&["XADD", &stream, "*", "k", "x"])));
        assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", name, &through(name, guarantee, "")]), ok());
        let seen = |count| server.call(&["HLEN", &format!("{name}:out")]) == Value::Integer(count);
        add(5);
        eventually("five are there", || seen(5));
        // What was asked for before takes the next ones.
        assert_eq!(server.call(&["TOPOLOGY", "DRAIN", name]), ok());
        add(20);
        server.call(&["XTRIM", &stream, "MAXLEN", "3"]);
        assert_eq!(server.call(&["TOPOLOGY", "ACTIVATE", name]), ok());
        let of_spout = |what: &str| match field(&server.call(&["TOPOLOGY", "SHOW", name]), "components") {
            Value::Array(all) if !all.is_empty() => field(&all[0], what),
            _ => Value::Null,
        };
        let error = || match of_spout("last_error") {
            Value::Bulk(error) => String::from_utf8_lossy(&error).into_owned(),
            _ => String::new(),
        };
        let told = format!("entries of `{stream}` were removed before they were read");
        eventually(&format!("it is told, not {}", error()), || error().contains(&told));
        // How many there are then is not known: what was asked for before it was deactivated may have been given its part.
        let last = server.call(&["XADD", &stream, "*", "k", "x"]);
        let Value::Bulk(last) = last else { panic!("{last:?} is no ID") };
        let last = String::from_utf8(last).expect("an ID is text");
        let is_there = || server.call(&["HEXISTS", &format!("{name}:out"), &last]) == Value::Integer(1);
        eventually("it goes on, and has read all", is_there);
        // While nobody reads, too.
        assert_eq!(server.call(&["TOPOLOGY", "KILL", name]), ok());
        eventually("it is gone", || server.call(&["TOPOLOGY", "LIST"]) == Value::Array(Vec::new()));
        add(30);
        server.call(&["XTRIM", &stream, "MAXLEN", "4"]);
        assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", name, &through(name, guarantee, "")]), ok());
        let told = format!("26 entries of `{stream}` were removed before they were read");
        eventually(&format!("it is told, not {}", error()), || error().contains(&told));
        let figures = || match of_spout("metrics") {
            Value::Array(figures) if !figures.is_empty() => field(&figures[0], "sum"),
            _ => Value::Null,
        };
        eventually("it is counted", || figures() == bulk("26"));
        assert_eq!(server.call(&["TOPOLOGY", "KILL", name]), ok());
        eventually("it is gone", || server.call(&["TOPOLOGY", "LIST"]) == Value::Array(Vec::new()));
    }
}

/// They were added in binary floating point: 2^53 + 1 + 1 + 1 was 2^53, 0.1 + 0.2 had another text with each guarantee, and an infinity stayed.
#[test]
fn sums_are_exact_and_have_the_same_text_with_both_guarantees() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    let class = "org.apache.storm.flux.wrappers";
    let tuples = [
        ("a", "9007199254740992"),
        ("b", "0.1"),
        ("a", "1"),
        ("inf", "inf"),
        ("a", "1"),
        ("c", "1e25"),
        ("b", "0.2"),
        ("c", "0.5"),
        ("a", "1"),
    ];
    let sums = BTreeMap::from(
        [("a", "9007199254740995"), ("b", "0.3"), ("c", "10000000000000000000000000.5")]
            .map(|(k, n)| (k.to_owned(), n.to_owned())),
    );
    for (name, guarantee) in [("least", "at-least-once"), ("once", "exactly-once")] {
        let bolt = |id: &str, command: &str, fields: &str| {
            format!(
                "- id: {id}\n  className: {class}.bolts.FluxShellBolt\n  constructorArgs: [[evenkeel, component, {command}], [{fields}]]\n"
            )
        };
        let prefix = format!("--by, k, --field, n, --prefix, \"{name}:\"");
        let bolts = [
            bolt("sums", &format!("sum, {prefix}"), "k, n"),
            bolt("windows", &format!("window, {prefix}, --time, t, --size-ms, \"1000\""), "start, k, n"),
            bolt("tops", &format!("top-k, \"9\", {prefix}"), "place, k, n"),
            bolt(
                "panes",
                &format!("closing-window, {prefix}, --id, id, --count, \"2\", --every, \"1\""),
                "start, end, k, n",
            ),
            bolt("told", &format!("key-sink, HSET, \"{name}:told\", \"{{k}}\", \"{{n}}\""), "nothing"),
            bolt(
                "closed",
                &format!("key-sink, HSET, \"{name}:closed\", \"{{k}} {{start}}\", \"{{n}}\""),
                "nothing",
            ),
        ];
        let by_key = ["sums", "windows", "tops", "panes"]
            .map(|to| format!("- {{from: source, to: {to}, grouping: {{type: FIELDS, args: [k]}}}}\n"));
        let text = format!(
            "name: {name}\nconfig: {{evenkeel.guarantee: {guarantee}, evenkeel.attempts_max: 1}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[evenkeel, component, stream-spout, \"{name}:in\"], [id, k, n, t]]\nbolts:\n{}streams:\n{}- {{from: sums, to: told, grouping: {{type: SHUFFLE}}}}\n- {{from: panes, to: closed, grouping: {{type: SHUFFLE}}}}\n",
            bolts.concat(),
            by_key.concat()
        );
        assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", name, &text]), ok());
        for (k, n) in tuples {
            server.call(&["XADD", &format!("{name}:in"), "*", "k", k, "n", n, "t", "5"]);
        }
        let kept = |key: &str| common::hash(server.port, &format!("{name}:{key}"));
        for key in ["sum", "0", "top:sums", "told"] {
            eventually(&format!("{name}:{key} has the sums, not {:?}", kept(key)), || kept(key) == sums);
        }
        let closed = [
            ("a 0", "9007199254740993"),
            ("a 1", "2"),
            ("a 2", "2"),
            ("b 0", "0.3"),
            ("c 0", "10000000000000000000000000.5"),
        ];
        let closed = BTreeMap::from(closed.map(|(k, n)| (k.to_owned(), n.to_owned())));
        eventually(&format!("windows have closed, not {:?}", kept("closed")), || kept("closed") == closed);
        assert_eq!(server.call(&["ZREVRANK", &format!("{name}:top"), "b"]), Value::Integer(2));
    }
}

/// Entries that cannot be added up are letters, and go back to where they came from, under the names that they had there.
#[test]
fn dead_letters_of_a_topology_are_shown_and_sent_back_whatever_its_guarantee() {
    let (data, place) = folders();
    let server = start(data.path(), place.path());
    let class = "org.apache.storm.flux.wrappers";
    let dir = tempfile::tempdir().expect("a folder");
    for (name, guarantee, words) in
        [("least", "at-least-once", ", --dead-letter, \"least:dead\""), ("once", "exactly-once", "")]
    {
        let text = format!(
            "name: {name}\nconfig: {{evenkeel.guarantee: {guarantee}, evenkeel.backoff_ms: [10]}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[evenkeel, component, stream-spout, \"{name}:in\", --fields, \"product,amount\"{words}], [what, n]]\nbolts:\n- id: totals\n  className: {class}.bolts.FluxShellBolt\n  constructorArgs: [[evenkeel, component, sum, --by, what, --field, n, --prefix, \"{name}:\"], [what, total]]\nstreams:\n- {{from: source, to: totals, grouping: {{type: FIELDS, args: [what]}}}}\n"
        );
        std::fs::write(dir.path().join("x.yaml"), text).expect("written");
        let run = |arguments: &[&str]| topology(&server, dir.path(), arguments);
        let entries = format!("{name}:in");
        for amount in ["3", "x"] {
            server.call(&["XADD", &entries, "*", "product", "tea", "amount", amount]);
        }
        assert_eq!(run(&["run", "x.yaml"]).0, 0);
        let Value::Array(keys) = field(&show(&server, name), "dead_letters") else { panic!("no keys") };
        let [Value::Bulk(key)] = &keys[..] else { panic!("{keys:?}") };
        let key = String::from_utf8_lossy(key).into_owned();
        let letters = || number(server.call(&["XLEN", &key]));
        eventually("it is a letter", || letters() == 1);
        let shown = format!("1 dead letter in `{key}`; `evenkeel topology replay {name} --dead-letter`");
        assert!(run(&["show", name]).1.contains(&shown), "{name}");
        let replay = |more: &[&str]| run(&[&["replay", name, "--dead-letter"], more].concat());
        let (status, said) = replay(&["--error", "something else"]);
        assert!(status == 0 && said.contains("1 letter left: they do not match"), "{said}");
        let (status, said) = replay(&["--error", "number"]);
        assert!(status == 0 && said.starts_with("1 letter sent back\n"), "{said}");
        let newest = server.call(&["XREVRANGE", &entries, "+", "-", "COUNT", "1"]);
        let fields = ["product", "tea", "amount", "x"].map(bulk).to_vec();
        let Value::Array(newest) = newest else { panic!("{newest:?}") };
        assert!(matches!(&newest[0], Value::Array(entry) if entry[1] == Value::Array(fields)), "{newest:?}");
        assert_eq!(number(server.call(&["XLEN", &entries])), 3);
        eventually("it is a letter again", || letters() == 1);
        assert_eq!(run(&["kill", name, "--wait", "5"]).0, 0);
    }
    let (status, said) = topology(&server, dir.path(), &["replay", "once", "--dead-letter"]);
    assert!(status == 1 && said.contains("there is no topology 'once'"), "{said}");
}

/// Sends commands on one connection; the replies.
fn batch(port: u16, commands: &[&[&str]]) -> Vec<Value> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(common::PATIENCE)).expect("set");
    let mut request = Vec::new();
    commands.iter().for_each(|command| resp::encode_command(&mut request, command));
    stream.write_all(&request).expect("sent");
    commands.iter().map(|_| common::receive(&mut stream).expect("a reply")).collect()
}
