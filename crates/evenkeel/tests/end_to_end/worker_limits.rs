//! Workers that run as another user, with limits of memory and processor time. The tests need to be root, as the server does.
#![allow(clippy::disallowed_methods, reason = "tests make the files that users make, and look at processes")]

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use resp::Value;

use crate::common::{self, Server, bulk, eventually, field, finished, kill, ok, processes};

/// A user that no test machine uses.
const USER: &str = "65123:65124";

/// A folder of data that only root reads, and one of components that all read.
fn folders() -> (tempfile::TempDir, tempfile::TempDir) {
    let rights = supervisor::Account::check_rights();
    rights.expect("these tests start processes as another user, which takes root");
    let (data, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let open = |path: &Path| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).expect("its owner");
    };
    std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(0o700)).expect("its owner");
    open(place.path());
    let begin = r#"read -r line; read -r end; echo '{"pid": 1}'; echo end"#;
    let daemon = format!("{begin}\nsetsid sleep 1000 <&- >&- 2>&- &\nwhile read -r line; do :; done\n");
    let bomb = format!("{begin}\ni=0; while [ $i -lt 10000 ]; do sleep 1000 & i=$((i+1)); done; wait\n");
    for (name, text) in [("daemon.sh", daemon), ("bomb.sh", bomb)] {
        std::fs::write(place.path().join(name), text).expect("written");
        open(&place.path().join(name));
    }
    (data, place)
}

/// From a stream to keys, with a program beside it.
fn definition(program: &str) -> String {
    let class = "org.apache.storm.flux.wrappers";
    format!(
        "name: it\nspouts:\n- {{id: source, className: {class}.spouts.FluxShellSpout, constructorArgs: [[evenkeel, component, stream-spout, orders], [word]]}}\n\
         bolts:\n- {{id: sink, className: {class}.bolts.FluxShellBolt, constructorArgs: [[evenkeel, component, key-sink, HSET, found, \"{{word}}\", \"{{word}}\"], [x]]}}\n\
         - {{id: program, className: {class}.bolts.FluxShellBolt, constructorArgs: [[sh, {program}], [x]]}}\n\
         streams:\n- {{from: source, to: sink, grouping: {{type: SHUFFLE}}}}\n- {{from: sink, to: program, grouping: {{type: SHUFFLE}}}}\n"
    )
}

fn start(data: &Path, place: &Path, more: &[&str]) -> Server {
    let place = place.to_str().expect("text");
    Server::start(data, &[&["--topologies-dir", place, "--topologies-worker-user", USER], more].concat())
}

fn owner(pid: i32) -> Option<(u32, u32)> {
    std::fs::metadata(format!("/proc/{pid}")).ok().map(|it| (it.uid(), it.gid()))
}

/// What the system says of a process behind its name.
fn state(pid: i32) -> String {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    text.rsplit(')').next().unwrap_or_default().to_owned()
}

/// The worker of `server` among the processes of its topology. The order of their numbers says nothing: these begin again at the lowest that is free.
fn worker_of(server: &Server, data: &Path) -> i32 {
    let parent = server.child.id().to_string();
    let is_child = |pid: &i32| state(*pid).split_whitespace().nth(1) == Some(&parent);
    let children: Vec<i32> = processes(data).into_iter().filter(is_child).collect();
    let [worker] = children[..] else { panic!("{children:?}") };
    worker
}

#[test]
fn worker_and_its_programs_run_as_another_user_reach_the_server_and_leave_nothing() {
    let (data, place) = folders();
    let mut server = start(data.path(), place.path(), &["--topologies-worker-nice", "7"]);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &definition("daemon.sh")]), ok());
    server.call(&["XADD", "orders", "*", "word", "keel"]);
    eventually("the tuple came through", || server.call(&["HGET", "found", "keel"]) == bulk("keel"));
    // a worker, a shell and its daemon
    eventually("all run", || processes(data.path()).len() == 3);
    let former = processes(data.path());
    for &pid in &former {
        assert_eq!(owner(pid), Some((65_123, 65_124)), "{pid}");
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        assert!(text.lines().any(|line| line.trim_end() == "Groups:"), "groups of the server: {text}");
        let state = state(pid);
        assert_eq!(state.split_whitespace().nth(16), Some("7"), "nice: {state}");
    }
    kill(worker_of(&server, data.path()).into());
    eventually("others run", || {
        let now = processes(data.path());
        now.len() == 3 && former.iter().all(|pid| !now.contains(pid))
    });

    let former = processes(data.path());
    server.signal(libc::SIGSTOP);
    kill(worker_of(&server, data.path()).into());
    server.child.kill().expect("it runs");
    server.child.wait().expect("it ends");
    let server = start(data.path(), place.path(), &[]);
    eventually("the next server kills them", || {
        former.iter().all(|pid| !processes(data.path()).contains(pid))
    });
    assert_eq!(server.call(&["TOPOLOGY", "KILL", "it", "WAIT", "0"]), ok());
    eventually("nothing is left", || processes(data.path()).is_empty());
}

#[test]
fn program_that_starts_more_and_more_processes_is_bounded_by_the_system_and_killed() {
    let (data, place) = folders();
    let server = start(data.path(), place.path(), &[]);
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &definition("bomb.sh")]), ok());
    let error = || match field(&server.call(&["TOPOLOGY", "SHOW", "it"]), "components") {
        Value::Array(all) if all.len() == 3 => format!("{:?}", field(&all[2], "last_error")),
        _ => String::new(),
    };
    let mut most = 0;
    eventually("it is killed", || {
        most = most.max(processes(data.path()).len());
        !error().is_empty() && error() != format!("{:?}", bulk(""))
    });
    assert!(most <= 2_500, "{most} processes");
    assert_eq!(server.call(&["PING"]), Value::Simple(b"PONG".to_vec()));
    assert_eq!(server.call(&["TOPOLOGY", "KILL", "it", "WAIT", "0"]), ok());
    eventually("nothing is left", || processes(data.path()).is_empty());
}

#[test]
fn worker_beyond_its_memory_ends_with_an_error_that_names_the_setting() {
    let (data, place) = folders();
    let server = start(data.path(), place.path(), &["--topologies-worker-memory-max", "96MiB"]);
    // One reply has all of them.
    let word = "x".repeat(1 << 20);
    for _ in 0..60 {
        server.call(&["XADD", "orders", "*", "word", &word]);
    }
    let text =
        definition("daemon.sh").replace("stream-spout, orders", "stream-spout, orders, --count, \"10000\"");
    assert_eq!(server.call(&["TOPOLOGY", "SUBMIT", "it", &text]), ok());
    let error = || match field(&server.call(&["TOPOLOGY", "SHOW", "it"]), "last_error") {
        Value::Bulk(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{other:?}"),
    };
    eventually("it has ended", || !error().is_empty());
    let (text, named) = (error(), "topologies.worker_memory_max (100663296 B)");
    assert!(text.contains("signal 6") && text.contains(named), "{text}");
    assert_eq!(server.call(&["PING"]), Value::Simple(b"PONG".to_vec()));
}

#[test]
fn user_that_there_is_not_and_a_limit_without_sense_are_refused_at_the_start() {
    let (data, place) = folders();
    let refused = |flag: &str, value: &str| {
        let place = place.path().to_str().expect("text");
        finished(&mut common::serve(data.path(), &["--topologies-dir", place, flag, value]))
    };
    let (status, text) = refused("--topologies-worker-user", "no-such-user");
    assert!(
        status == 2 && text.contains("topologies.worker_user = no-such-user: there is no user"),
        "{text}"
    );
    std::fs::set_permissions(data.path(), std::fs::Permissions::from_mode(0o755)).expect("its owner");
    let (status, text) = refused("--topologies-worker-user", USER);
    assert!(status == 2 && text.contains("(mode 755): chmod 700 this folder"), "{text}");
    let (status, text) = refused("--topologies-worker-memory-max", "1MiB");
    assert!(status == 2 && text.contains("needs at least 67108864 B"), "{text}");
}
