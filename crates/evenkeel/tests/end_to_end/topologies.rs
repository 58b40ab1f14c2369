//! `evenkeel topology`, as a user meets it.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make")]

use std::path::Path;
use std::process::{Child, Stdio};

use crate::common::{self, evenkeel, eventually};

const WORD_COUNT: &str = include_str!("../../../flux/tests/word-count.yaml");

/// Runs `topology check` on `text`; the exit status, standard output and standard error.
fn check(text: &str, arguments: &[&str]) -> (Option<i32>, String, String) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(dir.path().join("x.yaml"), text).expect("it is written");
    std::fs::write(dir.path().join("x.properties"), "# how many\ncounters = 2\n").expect("it is written");
    let mut command = evenkeel();
    command.args(["topology", "check", "x.yaml"]).args(arguments);
    let out = command.current_dir(dir.path()).env("PYTHON", "python3").output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

#[test]
fn definition_without_mistakes_prints_what_would_run() {
    let expected = "\
word-count: at least once; 2 workers, 3 components, 8 tasks

  component  kind   tasks  threads  runs
  sentences  spout  1      1        python3 sentences.py
  split      bolt   4      2        python3 split.py
  count      bolt   3      3        python3 count.py

  from       to     grouping     stream
  sentences  split  shuffle      default (sentence)
  split      count  fields word  default (word)
  split      count  all          odd (word, length)
";
    assert_eq!(check(WORD_COUNT, &["--property", "counters=3"]), (Some(0), expected.into(), String::new()));
}

#[test]
fn option_wins_over_the_file_of_properties() {
    let tasks = |arguments: &[&str]| check(WORD_COUNT, arguments).1.lines().next().map(str::to_owned);
    let of = |tasks| Some(format!("word-count: at least once; 2 workers, 3 components, {tasks} tasks"));
    assert_eq!(tasks(&["--properties", "x.properties"]), of(7));
    assert_eq!(tasks(&["--properties", "x.properties", "--property", "counters=5"]), of(10));
}

#[test]
fn all_mistakes_are_printed_with_their_places() {
    let text = WORD_COUNT.replace("cpuLoad", "cpuload").replace("type: SHUFFLE", "type: SHUFFEL");
    let expected = "\
x.yaml:24:5: error: unknown key `cpuload` in a bolt (did you mean `cpuLoad`?)
x.yaml:43:13: error: unknown grouping `SHUFFEL` (did you mean `SHUFFLE`?)
evenkeel: x.yaml has 2 errors
";
    assert_eq!(check(&text, &["--property", "counters=3"]), (Some(2), String::new(), expected.into()));
}

#[test]
fn property_that_is_no_pair_and_file_that_is_not_there_are_refused() {
    let (status, _, error) = check(WORD_COUNT, &["--property", "counters"]);
    assert!(status == Some(2) && error.contains("it has no `=`: write NAME=VALUE"), "{error}");
    let (status, _, error) = check(WORD_COUNT, &["--properties", "no"]);
    assert!(status == Some(2) && error.contains("cannot read the file of properties no"), "{error}");
}

/// A topology of two scripts of the shell: a spout that emits `x` whenever it is asked, and a bolt that does `answer` for each tuple, whose
/// number is `$id`.
fn scripts(dir: &Path, answer: &str) -> String {
    let hear = "hear() { while read -r line && [ \"$line\" != end ]; do said=\"$line\"; done; [ -n \"$said\" ]; }; say() { echo \"$1\"; echo end; }";
    let begin = format!("{hear}; hear; say '{{\"pid\": 1}}'; said=");
    let spout = r#"while hear; do case "$said" in *next*) say '{"command": "emit", "tuple": ["x"], "need_task_ids": false}';; esac; say '{"command": "sync"}'; said=; done"#;
    let bolt = format!(
        r#"while hear; do id=${{said#*\"id\":\"}}; id=${{id%%\"*}}; case "$said" in *__heartbeat*) say '{{"command": "sync"}}';; *) {answer};; esac; said=; done"#
    );
    std::fs::write(dir.join("spout.sh"), format!("{begin}\n{spout}\n")).expect("it is written");
    std::fs::write(dir.join("bolt.sh"), format!("{begin}\n{bolt}\n")).expect("it is written");
    let class = "org.apache.storm.flux.wrappers";
    format!(
        "name: scripts\nconfig: {{evenkeel.backoff_ms: [0], topology.max.spout.pending: 10, topology.message.timeout.secs: 5, evenkeel.child_memory_bytes_max: 67108864, evenkeel.message_bytes_max: 100000}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[sh, spout.sh], [x]]\nbolts:\n- id: sink\n  className: {class}.bolts.FluxShellBolt\n  constructorArgs: [[sh, bolt.sh], [y]]\nstreams:\n- {{from: source, to: sink, grouping: {{type: SHUFFLE}}}}\n"
    )
}

/// Runs a bolt that does `answer` until the log has `line`; whether it was finished, and what was printed.
fn run(answer: &str, line: &str) -> (bool, String) {
    run_changed(answer, ("name: scripts", "name: scripts"), line)
}

/// The same with another setting, in place of one.
fn run_changed(answer: &str, (from, to): (&str, &str), line: &str) -> (bool, String) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let text = scripts(dir.path(), answer).replace(from, to);
    std::fs::write(dir.path().join("x.yaml"), text).expect("it is written");
    let errors = std::fs::File::create(dir.path().join("log")).expect("it is made");
    let mut command = evenkeel();
    command.args(["topology", "run", "x.yaml", "--local"]).current_dir(dir.path());
    let run = command.stdout(Stdio::piped()).stderr(errors).spawn().expect("it starts");
    let log = || std::fs::read_to_string(dir.path().join("log")).expect("it is there");
    eventually("the log has the line", || log().contains(line));
    interrupted(run)
}

/// Ends a run as Ctrl-C does; whether it was finished, and what was printed.
fn interrupted(run: Child) -> (bool, String) {
    let pid = libc::pid_t::try_from(run.id()).expect("a process");
    // SAFETY: the process is a child that was not waited for.
    #[expect(unsafe_code, reason = "a signal as Ctrl-C sends it")]
    let sent = unsafe { libc::kill(pid, libc::SIGINT) };
    assert_eq!(sent, 0);
    let output = run.wait_with_output().expect("it ends");
    (output.status.success(), String::from_utf8(output.stdout).expect("text"))
}

#[test]
fn child_that_does_what_it_may_not_is_ended_and_named() {
    let unknown = r#"say '{"command": "emit", "stream": "odd", "tuple": [1], "anchors": ["'$id'"]}'"#;
    let (_, figures) = run(unknown, "it emitted what it may not");
    let sink = figures.lines().find(|line| line.trim_start().starts_with("sink")).expect("a line");
    assert!(
        sink.contains("its child has ended: it emitted what it may not") && sink.contains("odd"),
        "{figures}"
    );
    let foreign = r#"say '{"command": "ack", "id": "99999"}'"#;
    let (_, figures) = run(foreign, "which it does not have");
    assert!(figures.contains("`ack` of the tuple 99999, which it does not have"), "{figures}");
    let garbage = "echo something; echo else; echo end";
    let (_, figures) = run(garbage, "no message of the protocol");
    assert!(figures.contains("`something else`"), "{figures}");
}

/// `topology.shellbolt.max.pending` counted what was not acknowledged: at so many tuples the bolt was told nothing more, no tick either, and those that it had forgotten stayed.
#[test]
fn child_may_hold_more_tuples_than_wait_to_be_written_until_a_tick_comes() {
    let batch = r#"if [ "$id" = 0 ]; then for one in $held; do say '{"command": "ack", "id": "'$one'"}'; done; [ -n "$held" ] && say '{"command": "log", "msg": "batch of'"$held"' ends"}'; held=; else held="$held $id"; fi"#;
    let config = "config: {topology.shellbolt.max.pending: 3, topology.tick.tuple.freq.secs: 1, ";
    let (is_finished, figures) =
        run_changed(batch, ("config: {", config), "batch of 1 2 3 4 5 6 7 8 9 10 ends");
    assert!(is_finished, "{figures}");
}

#[test]
fn child_that_forgets_tuples_goes_on_and_they_are_given_up_when_their_time_is_over() {
    let forget = r#"case $id in *5) ;; *) say '{"command": "ack", "id": "'$id'"}'; say '{"command": "log", "msg": "tuple '$id'"}';; esac"#;
    let config = "topology.shellbolt.max.pending: 2, topology.message.timeout.secs: 1";
    let (_, figures) = run_changed(forget, ("topology.message.timeout.secs: 5", config), "tuple 121");
    assert!(
        figures.contains("its child did not answer a tuple for 1s (topology.message.timeout.secs)"),
        "{figures}"
    );
}

/// Processes of this machine with `argument` in their command.
fn running(argument: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("it is there").flatten();
    let commands = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    commands
        .filter(|command| command.split(|&byte| byte == 0).any(|word| word == argument.as_bytes()))
        .count()
}

#[test]
fn child_that_starts_too_many_processes_is_ended_with_all_of_them() {
    // A number that no other test has. Half of them leave the process group.
    let seconds = format!("3{}.5", std::process::id());
    let bomb = format!(
        "i=0; while [ $i -lt 40 ]; do sleep {seconds} & setsid sleep {seconds} & i=$((i+1)); done; wait"
    );
    let (_, figures) = run(&bomb, "more than evenkeel.children_max (64)");
    let sink = figures.lines().find(|line| line.trim_start().starts_with("sink")).expect("a line");
    assert!(sink.contains("its child has ended: it has started"), "{figures}");
    assert_eq!(running(&seconds), 0, "none is left");
}

#[test]
fn child_that_takes_too_much_memory_or_says_too_much_is_ended_with_the_setting() {
    let hog = "{ head -c 150000000 /dev/zero; sleep 60; } | tail -c 150000000";
    let (_, figures) = run(hog, "more than evenkeel.child_memory_bytes_max (67108864 B)");
    assert!(figures.contains("B of memory"), "{figures}");
    let long = "head -c 200000 /dev/zero | tr '\\0' x; echo; echo end";
    let (_, figures) = run(long, "more than 100000 bytes (evenkeel.message_bytes_max)");
    assert!(figures.contains("xxxxxxxx"), "{figures}");
}

#[test]
fn package_checks_the_definition_and_says_what_it_has_packed() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    std::fs::write(dir.path().join("x.yaml"), scripts(dir.path(), "true")).expect("it is written");
    let package = |file: &str| {
        let mut command = evenkeel();
        common::finished(
            command.args(["topology", "package", file, "-o", "topo.jar"]).current_dir(dir.path()),
        )
    };
    let (status, said) = package("x.yaml");
    assert!(status == 0 && said.starts_with("topo.jar: x.yaml and 2 files of ., "), "{said}");
    assert!(dir.path().join("topo.jar").exists());
    std::fs::write(dir.path().join("y.yaml"), "name: y\n").expect("it is written");
    let (status, said) = package("y.yaml");
    assert!(status == 2 && said.contains("no spout"), "{said}");
}

#[test]
fn what_is_under_way_is_finished_before_the_end() {
    let answer = r#"say '{"command": "log", "msg": "tuple '$id'"}'; say '{"command": "ack", "id": "'$id'"}'"#;
    let (is_finished, figures) = run(answer, "tuple 100");
    assert!(is_finished, "{figures}");
    let numbers = |id: &str| -> Vec<u64> {
        let line = figures.lines().find(|line| line.trim_start().starts_with(id)).expect("a line");
        line.split_whitespace().skip(1).map_while(|cell| cell.parse().ok()).collect()
    };
    // emitted, executed, acked, failed, pending, faults
    let (source, sink) = (numbers("source"), numbers("sink"));
    assert_eq!((source[0], source[2], source[4]), (sink[1], sink[2], 0), "{figures}");
    assert!(sink[2] >= 100 && sink[3] == 0, "{figures}");
}

/// A definition with components of this program; `{}` is the command of the bolt `count`, `sink` that of the sink.
fn builtins(count: &str, sink: &str) -> String {
    let class = "org.apache.storm.flux.wrappers";
    format!(
        "\
name: built-in
spouts:
- id: source
  className: {class}.spouts.FluxShellSpout
  constructorArgs: [[evenkeel, component, generator, --count, \"1000\", --distinct, \"7\"], [number, text]]
bolts:
- id: count
  className: {class}.bolts.FluxShellBolt
  constructorArgs:
  - [{count}]
  - [text, count]
- id: sink
  className: {class}.bolts.FluxShellBolt
  constructorArgs:
  - [{sink}]
  - [nothing]
streams:
- {{from: source, to: count, grouping: {{type: FIELDS, args: [text]}}}}
- {{from: count, to: sink, grouping: {{type: SHUFFLE}}}}
"
    )
}

#[test]
fn components_of_this_program_are_checked_with_their_places() {
    let text = builtins(
        "evenkeel, component, count, --by, txt",
        "evenkeel, component, key-sink, HSTE, counts, \"{text}\", \"{count}\"",
    );
    let expected = "\
x.yaml:10:5: error: `count` reads the field `txt`, which stream `default` of `source` does not have (did you mean `text`?)
x.yaml:15:5: error: `key-sink`: `HSTE` is no command of this sink (did you mean `HSET`?): there are SET, DEL, INCRBY, INCRBYFLOAT, HSET, HINCRBY, HINCRBYFLOAT, SADD, ZADD, ZINCRBY, PFADD, RPUSH
evenkeel: x.yaml has 2 errors
";
    assert_eq!(check(&text, &[]), (Some(2), String::new(), expected.into()));
    let text = builtins(
        "evenkeel, component, count, --by, text",
        "evenkeel, component, key-sink, SET, \"{text}\", \"{count}\", --url, \"redis://me:secret@127.0.0.1:1\"",
    );
    let (status, described, _) = check(&text, &[]);
    assert!(status == Some(0) && described.contains("--url redis://127.0.0.1:1"), "{described}");
    assert!(!described.contains("secret"), "{described}");
}

#[test]
fn components_of_this_program_change_keys_of_a_server() {
    count_into_keys("evenkeel");
}

/// As Apache Storm runs them.
#[test]
fn components_of_this_program_run_as_processes_that_speak_multilang() {
    count_into_keys(env!("CARGO_BIN_EXE_evenkeel"));
}

/// Counts with components of `program`: this one's by its name, or children by its path.
fn count_into_keys(program: &str) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = common::Server::start(&dir.path().join("data"), &[]);
    let url = format!("redis://127.0.0.1:{}", server.port);
    let text = builtins(
        "evenkeel, component, count, --by, text",
        &format!(
            "evenkeel, component, key-sink, HSET, counts, \"{{text}}\", \"{{count}}\", --url, \"{url}\""
        ),
    );
    let text = text.replace("[evenkeel, component", &format!("[{program}, component"));
    std::fs::write(dir.path().join("x.yaml"), text).expect("it is written");
    let mut command = evenkeel();
    command.args(["topology", "run", "x.yaml", "--local"]).current_dir(dir.path());
    let errors = std::fs::File::create(dir.path().join("log")).expect("it is made");
    let run = command.stdout(Stdio::piped()).stderr(errors).spawn().expect("it starts");
    let counts = || match server.call(&["HVALS", "counts"]) {
        resp::Value::Array(counts) => counts,
        other => panic!("{other:?}"),
    };
    let total = || counts().iter().map(number).sum::<u64>();
    eventually("all are counted", || total() == 1_000);
    assert_eq!(counts().len(), 7);
    let (is_finished, figures) = interrupted(run);
    assert!(is_finished, "{figures}");
}

/// A bolt of this program that reads `from`.
fn bolt(id: &str, command: &str, fields: &str, from: &str) -> (String, String) {
    let class = "org.apache.storm.flux.wrappers.bolts.FluxShellBolt";
    (
        format!(
            "- {{id: {id}, className: {class}, constructorArgs: [[evenkeel, component, {command}], [{fields}]]}}\n"
        ),
        format!("- {{from: {from}, to: {id}, grouping: {{type: SHUFFLE}}}}\n"),
    )
}

#[test]
fn ready_bolts_and_sinks_do_what_they_say_with_a_server() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = common::Server::start(&dir.path().join("data"), &[]);
    server.call(&["SET", "greeting", "hello"]);
    let bolts = [
        bolt("distinct", "distinct, --by, text, --of, number, --prefix, \"d:\"", "text, count", "source"),
        bolt(
            "window",
            "window, --by, text, --time, number, --size-ms, \"100\", --slide-ms, \"50\", --prefix, \"w:\"",
            "start, text, count",
            "source",
        ),
        bolt("top", "top-k, \"3\", --by, text, --prefix, \"t:\"", "place, text, count", "source"),
        bolt("first", "dedupe, --by, text, --id, number, --prefix, \"f:\"", "number, text", "source"),
        bolt("greeted", "enrich, greeting", "number, text, greeting", "first"),
        bolt("out", "stream-sink, out, --maxlen, \"100\"", "nothing", "greeted"),
        bolt("told", "pubsub-sink, news, \"{text}\"", "nothing", "greeted"),
        bolt("file", "file-sink, lines, --line, \"{number} {greeting}\"", "nothing", "greeted"),
        bolt("slow", "rate-limit, \"100000\", --burst, \"1000\"", "number, text", "source"),
        bolt("total", "sum, --by, text, --field, number, --prefix, \"s:\"", "text, sum", "slow"),
    ];
    let (bolts, streams): (Vec<String>, Vec<String>) = bolts.into_iter().unzip();
    let spout = "- {id: source, className: org.apache.storm.flux.wrappers.spouts.FluxShellSpout, constructorArgs: [[evenkeel, component, generator, --count, \"700\", --distinct, \"7\"], [number, text]]}\n";
    let text =
        format!("name: ready\nspouts:\n{spout}bolts:\n{}streams:\n{}", bolts.concat(), streams.concat());
    std::fs::write(dir.path().join("x.yaml"), text).expect("it is written");
    let mut command = evenkeel();
    command.args(["topology", "run", "x.yaml", "--local"]).current_dir(dir.path());
    command.env("EVENKEEL_URL", format!("redis://127.0.0.1:{}", server.port));
    let errors = std::fs::File::create(dir.path().join("log")).expect("it is made");
    let run = command.stdout(Stdio::piped()).stderr(errors).spawn().expect("it starts");
    let sums = || -> Vec<u64> {
        let resp::Value::Array(sums) = server.call(&["HVALS", "s:sum"]) else { panic!("a hash") };
        sums.iter().map(number).collect()
    };
    eventually("all are added up", || sums().iter().sum::<u64>() == 699 * 700 / 2);
    eventually("all are told", || server.call(&["XLEN", "out"]) == resp::Value::Integer(7));
    eventually("all are ranked", || {
        let resp::Value::Array(top) = server.call(&["ZRANGE", "t:top", "0", "-1", "WITHSCORES"]) else {
            panic!("a set")
        };
        top.chunks(2).map(|pair| number(&pair[1])).eq([100; 7])
    });
    eventually("all windows are full", || {
        let resp::Value::Array(counts) = server.call(&["HVALS", "w:50"]) else { panic!("a hash") };
        counts.iter().map(number).sum::<u64>() == 100
    });
    let (is_finished, figures) = interrupted(run);
    assert!(is_finished, "{figures}");
    let lines = std::fs::read_to_string(dir.path().join("lines")).expect("it is there");
    let mut lines: Vec<&str> = lines.lines().collect();
    lines.sort_unstable();
    let expected = ["0 hello", "1 hello", "2 hello", "3 hello", "4 hello", "5 hello", "6 hello"];
    assert_eq!(lines, expected, "the first of each text");
    let resp::Value::Array(keys) = server.call(&["KEYS", "d:*"]) else { panic!("keys") };
    let resp::Value::Bulk(key) = &keys[0] else { panic!("a key") };
    let resp::Value::Integer(count) = server.call(&["PFCOUNT", &String::from_utf8_lossy(key)]) else {
        panic!("a number")
    };
    assert!(keys.len() == 7 && (95..=105).contains(&count), "{count}");
}

fn number(value: &resp::Value) -> u64 {
    match value {
        resp::Value::Bulk(text) => String::from_utf8_lossy(text).parse().expect("a number"),
        other => panic!("{other:?}"),
    }
}

/// A definition that reads the stream `in`, whose entries have the fields `t`, `word` and `n`, by windows.
fn windows(bolts: &[(&str, &str)]) -> String {
    let class = "org.apache.storm.flux.wrappers";
    let mut text = format!(
        "name: windows\nconfig: {{evenkeel.backoff_ms: [10, 100]}}\nspouts:\n- id: source\n  className: {class}.spouts.FluxShellSpout\n  constructorArgs: [[evenkeel, component, stream-spout, in], [id, t, word, n]]\nbolts:\n"
    );
    let mut streams = String::new();
    for (id, options) in bolts {
        text.push_str(&format!(
            "- id: {id}
  className: {class}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, closing-window, --by, word, --id, id, --prefix, \"{id}:\", {options}], [start, end, word, n]]
  configMethods: [{{name: setNamedStream, args: [late, [id, t, word, n]]}}]
- id: {id}-out
  className: {class}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, stream-sink, {id}-out], [nothing]]
- id: {id}-last
  className: {class}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, key-sink, HSET, {id}-last, \"{{start}}:{{word}}\", \"{{n}}\"], [nothing]]
- id: {id}-late
  className: {class}.bolts.FluxShellBolt
  constructorArgs: [[evenkeel, component, stream-sink, {id}-late, --fields, \"t,word\"], [nothing]]
"
        ));
        for (from, to, stream, grouping) in [
            ("source", (*id).to_owned(), "default", "FIELDS, args: [word]"),
            (id, format!("{id}-out"), "default", "SHUFFLE"),
            (id, format!("{id}-last"), "default", "SHUFFLE"),
            (id, format!("{id}-late"), "late", "SHUFFLE"),
        ] {
            streams.push_str(&format!(
                "- {{from: {from}, to: {to}, grouping: {{streamId: {stream}, type: {grouping}}}}}\n"
            ));
        }
    }
    format!("{text}streams:\n{streams}")
}

/// Runs `x.yaml` of `dir` with the server.
fn run_with(server: &common::Server, dir: &Path) -> Child {
    let mut command = evenkeel();
    command.args(["topology", "run", "x.yaml", "--local"]).current_dir(dir);
    command.env("EVENKEEL_URL", format!("redis://127.0.0.1:{}", server.port));
    let errors = std::fs::File::create(dir.join("log")).expect("it is made");
    command.stdout(Stdio::piped()).stderr(errors).spawn().expect("it starts")
}

fn append(server: &common::Server, t: u64, word: &str, n: u64) {
    server.call(&["XADD", "in", "*", "t", &t.to_string(), "word", word, "n", &n.to_string()]);
}

/// The values of the entries of a stream, with spaces between them.
fn entries(server: &common::Server, key: &str) -> Vec<String> {
    let resp::Value::Array(entries) = server.call(&["XRANGE", key, "-", "+"]) else { panic!("entries") };
    let text = |entry: &resp::Value| {
        let resp::Value::Array(parts) = entry else { panic!("an entry") };
        let resp::Value::Array(fields) = &parts[1] else { panic!("fields") };
        let values = fields.iter().skip(1).step_by(2).map(|value| match value {
            resp::Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
            other => panic!("{other:?}"),
        });
        values.collect::<Vec<_>>().join(" ")
    };
    entries.iter().map(text).collect()
}

#[test]
fn windows_close_once_each_and_late_tuples_go_apart() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = common::Server::start(&dir.path().join("data"), &[]);
    let text = windows(&[
        ("tumbling", "--time, t, --size-ms, \"100\""),
        ("patient", "--time, t, --size-ms, \"100\", --lateness-ms, \"100\""),
        ("sliding", "--time, t, --size-ms, \"100\", --slide-ms, \"50\", --field, n"),
        ("session", "--time, t, --gap-ms, \"50\", --field, n"),
        ("counted", "--count, \"2\", --field, n"),
        ("panes", "--count, \"4\", --every, \"2\", --field, n"),
    ]);
    std::fs::write(dir.path().join("x.yaml"), text).expect("it is written");
    let tuples = [(10, "a", 1), (50, "b", 2), (99, "a", 3), (120, "a", 4), (20, "a", 5), (350, "b", 6)];
    for (t, word, n) in tuples {
        append(&server, t, word, n);
    }
    let run = run_with(&server, dir.path());
    let expect = |key: &str, expected: &[&str]| {
        eventually(&format!("{key}: {:?}", entries(&server, key)), || entries(&server, key) == expected);
    };
    expect("tumbling-out", &["0 100 a 2", "0 100 b 1", "100 200 a 1"]);
    expect("tumbling-late", &["20 a"]);
    expect("patient-out", &["0 100 a 3", "0 100 b 1", "100 200 a 1"]);
    expect("sliding-out", &["0 100 a 4", "0 100 b 2", "50 150 a 7", "50 150 b 2", "100 200 a 4"]);
    expect("session-out", &["10 60 a 1", "50 100 b 2", "99 170 a 7"]);
    expect("session-late", &["20 a"]);
    expect("counted-out", &["0 2 a 4", "2 4 a 9", "0 2 b 8"]);
    expect("panes-out", &["0 4 a 13"]);
    let (is_finished, figures) = interrupted(run);
    assert!(is_finished, "{figures}");
    assert!(entries(&server, "patient-late").is_empty());
}

#[test]
fn windows_survive_the_death_of_their_process_and_count_each_tuple_once() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = common::Server::start(&dir.path().join("data"), &[]);
    let text = windows(&[
        ("tumbling", "--time, t, --size-ms, \"100\""),
        ("session", "--time, t, --gap-ms, \"50\", --field, n"),
    ]);
    std::fs::write(dir.path().join("x.yaml"), text).expect("it is written");
    let results = || match server.call(&["HLEN", "tumbling-last"]) {
        resp::Value::Integer(count) => count,
        other => panic!("{other:?}"),
    };
    // Three words each 10 ms, with pauses in which sessions end.
    for round in 0..4 {
        for place in round * 500..(round + 1) * 500 {
            let t = 10 * place + 1_000 * (place / 50);
            append(&server, t, &format!("w{}", place % 3), 1);
        }
        let mut run = run_with(&server, dir.path());
        let before = results();
        eventually("windows close", || results() > before);
        run.kill().expect("it runs");
        run.wait().expect("it ends");
    }
    append(&server, 1_000_000, "w0", 1);
    let run = run_with(&server, dir.path());
    // 2,000 tuples in 200 windows of time with ten tuples each, of three words; 40 sessions of each word.
    let sums = |key: &str| -> Vec<u64> {
        let resp::Value::Array(counts) = server.call(&["HVALS", key]) else { panic!("a hash") };
        counts.iter().map(number).collect()
    };
    let total = |key: &str| sums(key).iter().sum::<u64>();
    eventually("all windows are closed", || total("tumbling-last") == 2_000);
    eventually("all sessions are closed", || total("session-last") == 2_000);
    let (is_finished, figures) = interrupted(run);
    assert!(is_finished, "{figures}");
    assert_eq!((sums("tumbling-last").len(), total("tumbling-last")), (600, 2_000));
    assert!(sums("tumbling-last").iter().all(|&count| count == 3 || count == 4));
    assert_eq!((sums("session-last").len(), total("session-last")), (120, 2_000));
    assert!(entries(&server, "tumbling-late").is_empty());
}

#[test]
fn components_of_this_program_run_on_a_server_but_for_those_with_files() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let folder = dir.path().join("components");
    std::fs::create_dir(&folder).expect("it is made");
    let server =
        common::Server::start(&dir.path().join("data"), &["--topologies-dir", &folder.display().to_string()]);
    let url = format!("redis://127.0.0.1:{}", server.port);
    let submit = |sink: &str| {
        std::fs::write(dir.path().join("x.yaml"), builtins("evenkeel, component, count, --by, text", sink))
            .expect("it is written");
        let mut command = evenkeel();
        common::finished(command.args(["topology", "run", "x.yaml", "--url", &url]).current_dir(dir.path()))
    };
    let sink = "evenkeel, component, key-sink, HSET, counts, \"{text}\", \"{count}\"";
    let (status, said) = submit("evenkeel, component, file-sink, /tmp/x");
    assert!(status != 0 && said.contains("`file-sink` uses files"), "{said}");
    let (status, said) = submit(sink);
    assert_eq!(status, 0, "{said}");
    let total = || match server.call(&["HVALS", "counts"]) {
        resp::Value::Array(counts) => counts.iter().map(number).sum::<u64>(),
        other => panic!("{other:?}"),
    };
    eventually("all are counted", || total() == 1_000);
    let mut command = evenkeel();
    let (status, said) = common::finished(command.args(["topology", "kill", "built-in", "--url", &url]));
    assert_eq!(status, 0, "{said}");
}
