//! TOPOLOGY: what is checked and kept. Workers are not started: the supervisor has no thread here.
#![allow(clippy::disallowed_methods, reason = "tests make the files that operators make")]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SimClock};
use supervisor::{Options, Supervisor};

use super::{Harness, Wire};
use crate::topologies::Topologies;

const TEXT: &str = include_str!("topology.yaml");

/// A server with at most four topologies, whose components are in the folder.
fn server() -> (Harness, tempfile::TempDir) {
    let place = tempfile::tempdir().expect("a folder");
    for name in ["source.sh", "sink.sh"] {
        std::fs::write(place.path().join(name), "").expect("written");
    }
    let mut harness = Harness::new();
    let clock = Arc::clone(&harness.clock);
    Arc::get_mut(&mut harness.server).expect("nobody else has it").topologies =
        Some(Topologies::new(supervisor(place.path(), clock)));
    (harness, place)
}

fn supervisor(dir: &Path, clock: Arc<SimClock>) -> Arc<Supervisor> {
    let options = Options {
        program: "/bin/false".into(),
        arguments: Vec::new(),
        mark: "test".to_owned(),
        dir: dir.to_owned(),
        topologies_max: 4,
        tasks_max: 8,
        workers_max: 4,
        http_hosts: Vec::new(),
        transport: topology::definition::Transport::Tcp,
        has_zeromq: false,
        limits: supervisor::Limits::default(),
        clock,
    };
    Arc::new(Supervisor::new(options).expect("a descriptor"))
}

fn call(harness: &Harness, wire: &mut Wire, args: &[&str]) -> String {
    harness.raw(wire, args)
}

fn submit(harness: &Harness, wire: &mut Wire, name: &str, text: &str, more: &[&str]) -> String {
    call(harness, wire, &[&["TOPOLOGY", "SUBMIT", name, text], more].concat())
}

#[test]
fn without_the_setting_all_is_refused_by_its_name() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for args in [&["TOPOLOGY", "LIST"][..], &["TOPOLOGY", "SUBMIT", "a", "x"], &["TOPOLOGY", "KILL", "a"]] {
        let reply = call(&harness, &mut wire, args);
        assert!(
            reply.starts_with("-ERR this server runs no topologies: topologies.dir is not set"),
            "{reply}"
        );
    }
    assert!(call(&harness, &mut wire, &["TOPOLOGY", "HELP"]).contains("SUBMIT <name> <definition>"));
}

#[test]
fn what_is_submitted_is_kept_and_runs_after_a_restart_as_it_was() {
    let (mut harness, place) = server();
    let mut wire = harness.connect();
    for name in ["a", "b", "c"] {
        let reply = submit(&harness, &mut wire, name, TEXT, &["PROPERTY", "tasks", "2"]);
        assert_eq!(reply, "+OK\r\n");
    }
    assert_eq!(call(&harness, &mut wire, &["TOPOLOGY", "DEACTIVATE", "b"]), "+OK\r\n");
    assert_eq!(call(&harness, &mut wire, &["TOPOLOGY", "KILL", "c"]), "+OK\r\n");
    let again = Topologies::new(supervisor(place.path(), Arc::clone(&harness.clock)));
    again.recover(&harness.server.store).expect("it can be read");
    let names: Vec<_> = again.supervisor.reports().into_iter().map(|report| report.name).collect();
    assert_eq!(names, ["a", "b"]);
    assert!(call(&harness, &mut wire, &["DBSIZE"]).starts_with(":0"), "no key of clients");
    let list = call(&harness, &mut wire, &["TOPOLOGY", "LIST"]);
    assert!(list.contains("waiting"), "{list}");
}

#[test]
fn transport_is_tcp_or_one_that_the_build_has() {
    let (mut harness, _place) = server();
    let mut wire = harness.connect();
    for (transport, expected) in [
        ("zeromq", "evenkeel.transport is zeromq, which this build has not"),
        ("zmq", "`evenkeel.transport` must be tcp or zeromq, not `zmq`"),
    ] {
        let text = TEXT.replacen("config:", &format!("config:\n  evenkeel.transport: {transport}"), 1);
        assert_ne!(text, TEXT, "the definition has settings");
        let reply = submit(&harness, &mut wire, "a", &text, &["PROPERTY", "tasks", "2"]);
        assert!(reply.contains(expected), "{reply}");
    }
}

/// A client waited in line for a key; a topology took its name, and the command was refused when it was woken. It stood in line on: what came
/// there was taken for it, and its next blocking command was the former one.
#[test]
fn who_is_refused_when_it_is_woken_stands_in_line_no_longer() {
    let (mut harness, _place) = server();
    let (mut waits, mut other) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, "BLPOP topology:a:epochs 1"), "");
    assert_eq!(submit(&harness, &mut other, "a", TEXT, &["PROPERTY", "tasks", "2"]), "+OK\r\n");
    let reply = harness.after(&mut waits, Duration::from_secs(2));
    assert!(reply.starts_with(b"-NOPERM"), "{}", String::from_utf8_lossy(&reply));
    assert_eq!(harness.line(&mut waits, "BLPOP q 1"), "");
    harness.expect(&mut other, &[("RPUSH q x", ":1\r\n")]);
    assert_eq!(String::from_utf8(harness.deliver(&mut waits)).expect("text"), "*2\r\n$1\r\nq\r\n$1\r\nx\r\n");
}

#[test]
fn number_of_workers_is_kept_and_bounded() {
    let (mut harness, place) = server();
    let mut wire = harness.connect();
    let reply = submit(&harness, &mut wire, "a", TEXT, &["PROPERTY", "tasks", "3", "WORKERS", "2"]);
    assert_eq!(reply, "+OK\r\n");
    let workers = |supervisor: &Supervisor| supervisor.report("a").expect("it is there").workers.len();
    let supervisor_of = |harness: &Harness| {
        Arc::clone(&harness.server.topologies.as_ref().expect("it runs topologies").supervisor)
    };
    assert_eq!(workers(&supervisor_of(&harness)), 2);
    let mut rebalance =
        |more: &[&str]| call(&harness, &mut wire, &[&["TOPOLOGY", "REBALANCE", "a"], more].concat());
    assert_eq!(rebalance(&["WORKERS", "4"]), "+OK\r\n");
    assert_eq!(rebalance(&[]), "+OK\r\n");
    assert!(rebalance(&["WORKERS", "5"]).contains("more than topologies.workers_max (4)"));
    assert!(rebalance(&["WORKERS"]).contains("wrong number of arguments for 'REBALANCE'"));
    assert_eq!(workers(&supervisor_of(&harness)), 4);
    let again = Topologies::new(supervisor(place.path(), Arc::clone(&harness.clock)));
    again.recover(&harness.server.store).expect("it can be read");
    assert_eq!(workers(&again.supervisor), 4, "as it was to be");
}

#[test]
fn definition_that_cannot_run_is_refused_with_its_place_or_its_limit() {
    let (mut harness, _place) = server();
    let mut wire = harness.connect();
    let mut refusal = |text: &str, more: &[&str]| submit(&harness, &mut wire, "a", text, more);
    let two = &["PROPERTY", "tasks", "2"][..];
    let large = "#".repeat((1 << 20) + 1);
    for (reply, wanted) in [
        (refusal(&TEXT.replace("SHUFFLE", "SHUFFEL"), two), "21:22: error: unknown grouping `SHUFFEL`"),
        (refusal("a: [", &[]), "error: "),
        (refusal("\u{1}\u{2}", &[]), "error: "),
        (refusal(TEXT, &[]), "${tasks}"),
        (
            refusal(TEXT, &["PROPERTY", "tasks", "8"]),
            "it has 9 tasks, each a process, more than topologies.tasks_max (8)",
        ),
        (
            refusal(TEXT, &["PROPERTY", "tasks", "2", "WORKERS", "5"]),
            "it has 5 workers, more than topologies.workers_max (4)",
        ),
        (
            refusal(TEXT, &["PROPERTY", "tasks", "2", "WORKERS", "0"]),
            "WORKERS 0: a whole number of at least 1",
        ),
        (
            refusal(&TEXT.replace("[sh, sink.sh]", "[sh, -c, 'rm -r /']"), two),
            "16:23: error: component `sink`: `sh -c`: the word behind sh has to be a file",
        ),
        (refusal(&TEXT.replace("[sh, sink.sh]", "[/bin/sh, sink.sh]"), two), "is not below topologies.dir"),
        (refusal(&TEXT.replace("[sh, sink.sh]", "[sh, no.sh]"), two), "component `sink`:"),
        (
            refusal(&TEXT.replace("[sh, sink.sh]", "[evenkeel, component, cuont]"), two),
            "component `sink`: there is no component `cuont` (did you mean `count`?)",
        ),
        (
            refusal(&TEXT.replace("at-least-once", "exactly-once"), two),
            "a spout that is a program cannot be exactly-once",
        ),
        (refusal(TEXT, &["PROPERTY", "tasks", "2", "FOLDER", ".."]), "is not below topologies.dir"),
        (refusal(&large, &[]), "ERR the definition: 1048577 B, more than the limit of 1048576 B"),
        (refusal(TEXT, &["PROPERTY", "tasks", &large[1..]]), "ERR all properties and the folder: 1048581 B"),
        (
            refusal(TEXT, &["PROPERTY", "tasks"]),
            "unknown subcommand or wrong number of arguments for 'SUBMIT'",
        ),
        (refusal(TEXT, &["REPLACES"]), "unknown subcommand or wrong number of arguments for 'SUBMIT'"),
    ] {
        assert!(
            reply.starts_with("-ERR") && reply.contains(wanted),
            "{wanted}: {}",
            &reply[..reply.len().min(300)]
        );
    }
    assert_eq!(call(&harness, &mut wire, &["TOPOLOGY", "LIST"]), "*0\r\n");
}

#[test]
fn changed_definition_is_compared_by_component_and_changes_nothing() {
    let (mut harness, _place) = server();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    let two = &["PROPERTY", "tasks", "2"][..];
    let mut diff = |name: &str, text: &str, more: &[&str]| {
        call(&harness, &mut wire, &[&["TOPOLOGY", "DIFF", name, text], two, more].concat())
    };
    assert!(diff("a", TEXT, &[]).starts_with("-ERR there is no topology 'a'"));
    submit(&harness, &mut other, "a", TEXT, two);
    let same = diff("a", TEXT, &[]);
    assert!(same.contains("kept") && !same.contains("changed"), "{same}");
    let counted = TEXT
        .replace("id: sink", "id: count")
        .replace("to: sink", "to: count")
        .replace("[sh, sink.sh], [y]", "[evenkeel, component, count, --by, x, --prefix, 'n:'], [x, n]");
    let reply = diff("a", &counted, &["WORKERS", "2"]);
    for wanted in ["added", "removed", "the key `n:count`", "what its process has in memory", "workers"] {
        assert!(reply.contains(wanted), "{wanted}: {reply}");
    }
    assert!(diff("a", &TEXT.replace("SHUFFLE", "SHUFFEL"), &[]).contains("unknown grouping `SHUFFEL`"));
    assert!(diff("a", TEXT, &["REPLACE"]).contains("wrong number of arguments for 'DIFF'"));
    assert_eq!(diff("a", TEXT, &[]), same, "nothing was changed");
}

/// 100,000 values took 130 ms, in which the loop served nobody.
#[test]
fn large_definition_is_checked_beside_the_loop() {
    let (mut harness, _place) = server();
    let mut wires = [harness.connect(), harness.connect()];
    let large = TEXT.replace("config:", &format!("config:\n  more: [{}1]", "1, ".repeat(10_000)));
    for (wire, name) in wires.iter_mut().zip(["a", "b"]) {
        assert_eq!(submit(&harness, wire, name, &large, &["PROPERTY", "tasks", "2"]), "");
    }
    let mut other = harness.connect();
    assert_eq!(harness.line(&mut other, "PING"), "+PONG\r\n");
    for wire in &mut wires {
        let mut reply = Vec::new();
        for _ in 0..10_000 {
            reply.extend(harness.deliver(wire));
            if wire.wake.is_some_and(|at| at.since(harness.clock.now()) <= Duration::from_millis(50)) {
                // The thread was another's: it asks again.
                reply.extend(harness.after(wire, Duration::from_millis(50)));
            }
            if !reply.is_empty() {
                break;
            }
            std::thread::park_timeout(Duration::from_millis(1));
        }
        assert_eq!(String::from_utf8_lossy(&reply), "+OK\r\n");
    }
    assert_eq!(submit(&harness, &mut other, "c", &large.replace("SHUFFLE", "x"), &[]), "");
}

#[test]
fn number_of_topologies_is_bounded_and_names_are_fit_for_metrics() {
    let (mut harness, _place) = server();
    let mut wire = harness.connect();
    let two = &["PROPERTY", "tasks", "2"][..];
    for name in ["", "a b", "-a", "../a", "é", &"a".repeat(129)] {
        let reply = submit(&harness, &mut wire, name, TEXT, two);
        assert!(reply.contains("cannot be the name of a topology"), "{name}: {reply}");
    }
    let mut replies = Vec::new();
    for number in 0..10_000 {
        replies.push(submit(&harness, &mut wire, &format!("t{number}"), TEXT, two));
    }
    let taken = replies.iter().filter(|reply| *reply == "+OK\r\n").count();
    assert_eq!(taken, 4);
    let wanted = "-ERR there are 4 topologies, the most (topologies.count_max)";
    assert!(replies[4..].iter().all(|reply| reply.starts_with(wanted)), "{}", replies[4]);
    assert!(
        submit(&harness, &mut wire, "t1", TEXT, two).starts_with("-ERR there is a topology 't1': REPLACE")
    );
    assert_eq!(submit(&harness, &mut wire, "t1", TEXT, &[two, &["REPLACE"]].concat()), "+OK\r\n");
}

#[test]
fn commands_of_one_topology_name_what_is_wrong() {
    let (mut harness, _place) = server();
    let mut wire = harness.connect();
    for verb in ["SHOW", "KILL", "ACTIVATE", "DEACTIVATE", "RESTART", "DRAIN"] {
        let reply = call(&harness, &mut wire, &["TOPOLOGY", verb, "no"]);
        assert_eq!(
            reply, "-ERR there is no topology 'no': TOPOLOGY LIST shows which there are\r\n",
            "{verb}"
        );
    }
    for wait in ["x", "-1", "86401"] {
        let reply = call(&harness, &mut wire, &["TOPOLOGY", "KILL", "no", "WAIT", wait]);
        assert!(
            reply.contains(&format!("WAIT {wait}: a whole number of seconds from 0 to 86400")),
            "{reply}"
        );
    }
    let reply = call(&harness, &mut wire, &["EVAL", "return redis.call('TOPOLOGY', 'LIST')", "0"]);
    assert!(reply.starts_with("-ERR This Redis command is not allowed from script"), "{reply}");
    call(&harness, &mut wire, &["MULTI"]);
    let reply = call(&harness, &mut wire, &["TOPOLOGY", "LIST"]);
    assert!(reply.starts_with("-ERR"), "{reply}");
}

#[test]
fn drain_waits_as_long_as_it_was_told() {
    let (mut harness, _place) = server();
    let mut wire = harness.connect();
    submit(&harness, &mut wire, "a", TEXT, &["PROPERTY", "tasks", "2"]);
    assert_eq!(call(&harness, &mut wire, &["TOPOLOGY", "DRAIN", "a", "WAIT", "3"]), "");
    for _ in 0..2 {
        assert_eq!(harness.after(&mut wire, Duration::from_secs(1)), b"");
    }
    let reply = harness.after(&mut wire, Duration::from_secs(1));
    let reply = String::from_utf8_lossy(&reply);
    assert!(reply.starts_with("-TRYAGAIN 'a' is inactive, and was not finished within 3 s"), "{reply}");
}

/// FLUSHALL took the positions of a topology that went on: it began anew with what was added from then on, and its sinks outside were told twice.
#[test]
fn databases_with_positions_are_neither_flushed_nor_swapped_while_their_topology_runs() {
    let (mut harness, _place) = server();
    let mut wire = harness.connect();
    let exactly_once = TEXT
        .replace("at-least-once", "exactly-once")
        .replace("[sh, source.sh], [x]", "[evenkeel, component, stream-spout, orders], [word]")
        .replace(
            "[sh, sink.sh], [y]",
            "[evenkeel, component, count, --by, word, --prefix, n], [word, count]",
        );
    let tasks = &["PROPERTY", "tasks", "2"][..];
    assert_eq!(submit(&harness, &mut wire, "other", TEXT, tasks), "+OK\r\n");
    assert_eq!(call(&harness, &mut wire, &["FLUSHALL"]), "+OK\r\n", "it has no positions");
    assert_eq!(submit(&harness, &mut wire, "it", &exactly_once, tasks), "+OK\r\n");
    let words = |line: &'static str| line.split(' ').collect::<Vec<_>>();
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1", "SWAPDB 3 0", "EVAL return(redis.call('FLUSHALL')) 0"] {
        let reply = call(&harness, &mut wire, &words(line));
        let refusal =
            "would take the positions of the topology 'it', which runs exactly-once: TOPOLOGY KILL it before";
        assert!(reply.starts_with("-NOPERM ") && reply.contains(refusal), "{line}: {reply}");
    }
    for (line, wanted) in [
        ("SWAPDB 1 2", "+OK"),
        ("SELECT 1", "+OK"),
        ("FLUSHDB", "+OK"),
        ("MULTI", "+OK"),
        ("SELECT 0", "+QUEUED"),
        ("FLUSHDB", "-NOPERM"),
        ("DISCARD", "+OK"),
        ("FLUSHALL", "-NOPERM"),
        ("TOPOLOGY KILL it", "+OK"),
        ("FLUSHALL", "+OK"),
    ] {
        let reply = call(&harness, &mut wire, &words(line));
        assert!(reply.starts_with(wanted), "{line}: {reply}");
    }
}
