//! What keeps topologies whole on a server: their positions, their tokens, what their programs leave behind, definitions that could not begin.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make, and look at processes")]

use std::collections::BTreeMap;

use resp::Value;

use crate::common::{self, Server, bulk, eventually, field, hash, ok, processes};

const CLASS: &str = "org.apache.storm.flux.wrappers";

/// A server that runs programs of the folder `place`.
fn start(more: &[&str]) -> (tempfile::TempDir, tempfile::TempDir, Server) {
    let (data, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let dir = place.path().to_str().expect("text").to_owned();
    let server = Server::start(data.path(), &[&["--topologies-dir", &dir][..], more].concat());
    (data, place, server)
}

fn error(reply: &Value) -> String {
    match reply {
        Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("no error: {other:?}"),
    }
}

fn show(server: &Server, name: &str, what: &str) -> Value {
    field(&server.call(&["TOPOLOGY", "SHOW", name]), what)
}

/// Entries that are counted by their word, exactly once.
fn counts(spouts: u32, bolts: u32, gap_ms: u32) -> String {
    format!(
        "\
name: it
config: {{evenkeel.guarantee: exactly-once, topology.message.timeout.secs: 5}}
spouts:
- {{id: source, className: {CLASS}.spouts.FluxShellSpout, constructorArgs: [[evenkeel, component, stream-spout, orders], [word]], parallelism: {spouts}}}
bolts:
- {{id: count, className: {CLASS}.bolts.FluxShellBolt, constructorArgs: [[evenkeel, component, count, --by, word, --prefix, \"n:\"], [word, count]], parallelism: {bolts}}}
- {{id: windows, className: {CLASS}.bolts.FluxShellBolt, constructorArgs: [[evenkeel, component, closing-window, --by, word, --id, word, --time, word, --gap-ms, \"{gap_ms}\", --prefix, \"w:\"], [word, start, end, count]]}}
streams:
- {{from: source, to: count, grouping: {{type: FIELDS, args: [word]}}}}
- {{from: source, to: windows, grouping: {{type: FIELDS, args: [word]}}}}
"
    )
}

fn add(server: &Server, count: usize) {
    for n in 0..count {
        server.call(&["XADD", "orders", "*", "word", &(n % 7).to_string()]);
    }
}

fn counted(server: &Server, count: usize) -> BTreeMap<String, String> {
    let sum = || hash(server.port, "n:count").values().filter_map(|n| n.parse::<usize>().ok()).sum::<usize>();
    eventually("all are counted", || sum() >= count);
    hash(server.port, "n:count")
}

/// Each entry, by its word.
fn plain(count: usize) -> BTreeMap<String, String> {
    let mut counts = BTreeMap::new();
    (0..count).for_each(|n| *counts.entry((n % 7).to_string()).or_insert(0) += 1);
    counts.into_iter().map(|(word, count): (String, usize)| (word, count.to_string())).collect()
}

#[test]
fn each_entry_counts_once_while_the_number_of_a_spouts_tasks_changes() {
    let (_data, _place, server) = start(&[]);
    let mut entries = 0;
    for (round, tasks) in [2, 3, 1, 3, 2].into_iter().enumerate() {
        let text = counts(tasks, 2, 1_000);
        let mut words = vec!["TOPOLOGY", "SUBMIT", "it", &text];
        words.extend((round > 0).then_some("REPLACE"));
        if round > 0 {
            // Some come while the former workers end.
            add(&server, 70);
            entries += 70;
        }
        assert_eq!(server.call(&words), ok());
        add(&server, 140);
        entries += 140;
        counted(&server, entries);
    }
    let counts = counted(&server, entries);
    let sum: usize = counts.values().map(|n| n.parse::<usize>().expect("a number")).sum();
    assert_eq!(sum, entries);
    assert_eq!(counts, {
        let mut all = BTreeMap::new();
        // Each batch begins with the word 0, and is a multiple of 7.
        (0..7).for_each(|word| _ = all.insert(word.to_string(), (entries / 7).to_string()));
        all
    });
}

#[test]
fn positions_of_a_topology_that_runs_are_changed_by_nobody_else() {
    let (_data, _place, server) = start(&["--memory-policy", "allkeys-lru"]);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &counts(1, 1, 1_000)]), ok());
    add(&server, 70);
    counted(&server, 70);
    let key = "topology:it:epochs";
    for words in [
        &["DEL", key][..],
        &["UNLINK", "x", key],
        &["HSET", key, "generation", "1"],
        &["EXPIRE", key, "1"],
        &["RENAME", key, "x"],
        &["SET", key, "1"],
        &["COPY", "n:count", key, "REPLACE"],
        &["EVAL", "return redis.call('DEL', KEYS[1])", "1", key],
        &["EVAL", "return redis.call('DEL', 'topology:it:' .. 'epochs')", "0"],
    ] {
        assert!(error(&server.call(words)).contains("has the positions of the topology 'it'"), "{words:?}");
    }
    for words in [&["FLUSHALL"][..], &["FLUSHDB", "ASYNC"], &["SWAPDB", "0", "1"]] {
        let refusal = error(&server.call(words));
        assert!(refusal.contains("would take the positions of the topology 'it'"), "{words:?}: {refusal}");
    }
    let tx = server.call(&["TX.BEGIN"]);
    if let Value::Bulk(tx) = &tx {
        let tx = String::from_utf8_lossy(tx).into_owned();
        assert!(error(&server.call(&["TX.DO", &tx, "DEL", key])).contains("has the positions"));
        server.call(&["TX.ABORT", &tx]);
    }
    assert_eq!(server.call(&["EXISTS", key]), Value::Integer(1));
    add(&server, 70);
    counted(&server, 140);
    assert_eq!(hash(server.port, "n:count"), counted(&server, 140));
    assert_eq!(counted(&server, 140), {
        let mut twice = plain(70);
        twice.values_mut().for_each(|n| *n = (2 * n.parse::<usize>().expect("a number")).to_string());
        twice
    });
    assert_eq!(server.call(&["TOPOLOGY", "KILL", "it", "WAIT", "1"]), ok());
    assert_eq!(server.call(&["DEL", key]), Value::Integer(1), "it does not run any more");
}

#[test]
fn definition_that_could_not_begin_does_not_take_the_place_of_one_that_runs() {
    let (_data, _place, server) = start(&[]);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &counts(1, 1, 1_000)]), ok());
    add(&server, 7);
    counted(&server, 7);
    let another = counts(1, 1, 2_000);
    let refused = error(&server.call(&["TOPOLOGY", "SUBMIT", "it", &another, "REPLACE"]));
    assert!(refused.contains("'it' goes on: component `windows` would be blocked"), "{refused}");
    add(&server, 7);
    counted(&server, 14);
    // Nothing tells before it begins; then its status does.
    assert_eq!(server.call(&["TOPOLOGY", "KILL", "it", "WAIT", "1"]), ok());
    eventually("it is gone", || server.call(&["TOPOLOGY", "LIST"]) == Value::Array(Vec::new()));
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &another]), ok());
    add(&server, 7);
    eventually("it is blocked", || show(&server, "it", "status") == bulk("blocked"));
    let Value::Bulk(why) = show(&server, "it", "blocked") else { panic!("a text") };
    let why = String::from_utf8_lossy(&why).into_owned();
    assert!(why.contains("a tuple failed at `windows`: "), "{why}");
    // What could begin takes its place.
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &counts(1, 1, 1_000), "REPLACE"]), ok());
    eventually("it is active", || show(&server, "it", "status") == bulk("active"));
    counted(&server, 21);
}

#[test]
fn executors_of_a_component_change_and_stay_so() {
    let (data, place, server) = start(&[]);
    let text = counts(1, 4, 1_000);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &text, "WORKERS", "4"]), ok());
    let workers = |server: &Server| {
        let Value::Array(all) = show(server, "it", "workers") else { panic!("a list") };
        all.len()
    };
    eventually("all workers are there", || workers(&server) == 4);
    let rebalance = |words: &[&str]| server.call(&[&["TOPOLOGY", "REBALANCE", "it"][..], words].concat());
    let refused = error(&rebalance(&["EXECUTORS", "count", "5"]));
    assert!(refused.contains("it has 4 tasks, and may have 1 to 4 executors"), "{refused}");
    let refused = error(&rebalance(&["EXECUTORS", "cuont", "2"]));
    assert!(refused.contains("did you mean `count`?"), "{refused}");
    add(&server, 70);
    assert_eq!(rebalance(&["EXECUTORS", "count", "1"]), ok());
    // Three executors in all: no more workers have something to do.
    eventually("fewer workers are there", || workers(&server) == 3);
    add(&server, 70);
    assert_eq!(
        counted(&server, 140).values().map(|n| n.parse::<usize>().expect("a number")).sum::<usize>(),
        140
    );
    let port = server.port.to_string();
    server.signal(libc::SIGTERM);
    server.end();
    let dir = place.path().to_str().expect("text");
    let server = Server::start(data.path(), &["--topologies-dir", dir, "--port", &port]);
    eventually("as many are there after a restart", || workers(&server) == 3);
}

#[test]
fn trial_of_a_topology_ends_with_it() {
    let (_data, _place, server) = start(&[]);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &counts(1, 1, 1_000)]), ok());
    add(&server, 70);
    counted(&server, 70);
    let text = counts(1, 1, 2_000);
    assert_eq!(server.call(&["TOPOLOGY", "TRY", "it", &text, "PREFIX", "try:", "FROM", "start"]), ok());
    eventually("the trial counts", || server.call(&["EXISTS", "try:n:count"]) == Value::Integer(1));
    assert_eq!(server.call(&["TOPOLOGY", "KILL", "it", "WAIT", "1"]), ok());
    eventually("both are gone", || server.call(&["TOPOLOGY", "LIST"]) == Value::Array(Vec::new()));
    eventually("nothing is left of the trial", || {
        ["try:*", "topology:it-try:*"].iter().all(|it| server.call(&["KEYS", it]) == Value::Array(Vec::new()))
    });
    assert_eq!(hash(server.port, "n:count"), plain(70), "what the live one has written stays");
    eventually("its name is free", || {
        server.call(&["TOPOLOGY", "SUBMIT", "it", &counts(1, 1, 1_000)]) == ok()
    });
}

/// A bolt that is a program, which runs beside what it is told to do at its start.
fn program(name: &str, keys: &str) -> String {
    format!(
        "\
name: {name}
config: {{topology.message.timeout.secs: 5{keys}}}
spouts:
- {{id: source, className: {CLASS}.spouts.FluxShellSpout, constructorArgs: [[evenkeel, component, generator, --rate, \"100\"], [n, text]]}}
bolts:
- {{id: program, className: {CLASS}.bolts.FluxShellBolt, constructorArgs: [[bash, {name}.sh], [x]]}}
streams:
- {{from: source, to: program, grouping: {{type: SHUFFLE}}}}
"
    )
}

/// Answers the handshake, and reads what it is told.
fn script(first: &str) -> String {
    format!(
        "read -r line; read -r end; echo '{{\"pid\": 1}}'; echo end\n{first}\nwhile read -r line; do :; done\n"
    )
}

/// A component that cleared its environment and began a session of its own outlived KILL, and its connection kept the rights of the topology.
#[test]
fn nothing_of_a_topology_outlives_it_neither_processes_nor_connections() {
    let (_data, place, server) = start(&["--requirepass", "s3cret"]);
    let found = place.path().join("found").to_str().expect("text").to_owned();
    // It logs in on a connection that it keeps open, and counts on it.
    let escaped = format!(
        "url=$(cat <&$EVENKEEL_URL_FD); token=${{url#redis://topology:}}; address=${{token#*@}}; token=${{token%%@*}}\n\
         env -i setsid -f bash -c 'exec 3<>/dev/tcp/${{1%:*}}/${{1#*:}}; printf \"AUTH topology %s\\r\\nSET alive 1\\r\\n\" \"$2\" >&3; read -r a <&3; read -r b <&3; \
         echo \"$$ $a $b\" >{found}; while sleep 0.05; do printf \"INCR beats\\r\\n\" >&3; done' bash \"$address\" \"$token\" <&- >&- 2>&-"
    );
    std::fs::write(place.path().join("it.sh"), script(&escaped)).expect("written");
    let call = |words: &[&str]| {
        let mut stream = std::net::TcpStream::connect(("127.0.0.1", server.port)).expect("it listens");
        let mut request = Vec::new();
        resp::encode_command(&mut request, &["AUTH", "s3cret"]);
        resp::encode_command(&mut request, words);
        std::io::Write::write_all(&mut stream, &request).expect("it takes it");
        common::receive(&mut stream).expect("an answer");
        common::receive(&mut stream).expect("an answer")
    };
    assert_eq!(call(&["TOPOLOGY", "SUBMIT", "it", &program("it", "")]), ok());
    eventually("it counts", || call(&["EXISTS", "beats"]) == Value::Integer(1));
    let text = std::fs::read_to_string(&found).expect("it was written");
    let pid = text.split(' ').next().expect("a number").to_owned();
    assert!(text.contains("+OK"), "{text}");
    assert_eq!(call(&["TOPOLOGY", "KILL", "it", "WAIT", "1"]), ok());
    eventually("it is gone", || call(&["TOPOLOGY", "LIST"]) == Value::Array(Vec::new()));
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "its process is left");
    let Value::Bulk(clients) = call(&["CLIENT", "LIST"]) else { panic!("a text") };
    assert_eq!(String::from_utf8_lossy(&clients).lines().count(), 1, "its connection is left");
}

/// The token of a topology was in the environment of its components, which those of another one with the same user can read.
#[test]
fn no_process_of_a_topology_shows_its_token() {
    let (data, place, server) = start(&[]);
    let names = ["one", "two"];
    for name in names {
        let own = place.path().join(format!("{name}.token")).to_str().expect("text").to_owned();
        let first = format!(
            "cat <&$EVENKEEL_URL_FD >{own}.new; echo \" $EVENKEEL_URL\" >>{own}.new; mv {own}.new {own}"
        );
        std::fs::write(place.path().join(format!("{name}.sh")), script(&first)).expect("written");
        assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", name, &program(name, "")]), ok());
    }
    let address = format!("127.0.0.1:{}", server.port);
    for name in names {
        let path = place.path().join(format!("{name}.token"));
        eventually("its program has a token", || path.exists());
        let text = std::fs::read_to_string(&path).expect("it is there");
        let (url, plain) = text.trim().split_once(' ').expect("two");
        let token =
            url.strip_prefix("redis://topology:").and_then(|rest| rest.strip_suffix(&format!("@{address}")));
        assert_eq!((token.map(str::len), plain), (Some(64), &*format!("redis://{address}")), "{text}");
        let token = token.expect("it was looked at").to_owned();
        eventually("all run", || processes(data.path()).len() >= 4);
        for pid in processes(data.path()) {
            for file in ["environ", "cmdline"] {
                let bytes = std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
                assert!(!String::from_utf8_lossy(&bytes).contains(&token), "{file} of {pid}");
            }
        }
    }
    for pid in processes(data.path()) {
        let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        assert!(
            ["evenkeel-worker", "bash", "cat", "mv"].contains(&name.trim()),
            "a process is called {name}"
        );
    }
}

/// Of a component of `name`, what SHOW says under `what`.
fn component(server: &Server, name: &str, place: usize, what: &str) -> Value {
    match show(server, name, "components") {
        Value::Array(all) if all.len() > place => field(&all[place], what),
        _ => Value::Null,
    }
}

/// A program that was slow and had room for all its tuples was busy for 0 %, and what it reported of itself was dropped.
#[test]
fn slow_program_is_busy_and_its_figures_are_shown() {
    let (_data, place, server) = start(&[]);
    let slow = r#"while read -r line; do
        [[ $line =~ \"id\":\"([0-9]+)\" ]] || continue
        sleep 0.05
        printf '{"command":"metrics","name":"seen","params":2}\nend\n{"command":"ack","id":"%s"}\nend\n' "${BASH_REMATCH[1]}"
    done"#;
    std::fs::write(place.path().join("it.sh"), script(slow)).expect("written");
    let text = program("it", "").replace("--rate, \"100\"", "--rate, \"10\"");
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &text]), ok());
    let busy = || matches!(component(&server, "it", 1, "busy_permille"), Value::Integer(300..));
    eventually("it is busy", busy);
    let Value::Array(figures) = component(&server, "it", 1, "metrics") else { panic!("a list") };
    let count = |name: &str| field(&figures[0], name);
    let Value::Integer(times @ 1..) = count("count") else { panic!("{figures:?}") };
    assert_eq!((count("name"), count("sum")), (bulk("seen"), bulk(&(2 * times).to_string())));
    assert_eq!(show(&server, "it", "status"), bulk("active"));
}

#[test]
fn topology_whose_program_cannot_begin_is_blocked_and_says_since_when() {
    let (_data, place, server) = start(&[]);
    std::fs::write(place.path().join("it.sh"), "echo there is no such module >&2; exit 3").expect("written");
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &program("it", "")]), ok());
    eventually("it is blocked", || show(&server, "it", "status") == bulk("blocked"));
    let why = show(&server, "it", "blocked");
    assert_eq!(why, bulk("component `program`: its child has ended: it exited with status 3"));
    assert!(matches!(component(&server, "it", 1, "last_error_age_ms"), Value::Integer(0..20_000)));
    std::fs::write(place.path().join("it.sh"), script("")).expect("written");
    eventually("it is active", || show(&server, "it", "status") == bulk("active"));
}
