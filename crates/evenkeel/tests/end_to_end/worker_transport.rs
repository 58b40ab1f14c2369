//! What carries tuples between the workers of a topology.
#![allow(clippy::disallowed_methods, reason = "tests look at the kernel's files")]

use std::path::Path;

use crate::common::{self, call, evenkeel, eventually, finished, processes};

/// Words of a stream, counted by 2 tasks of each component in 2 workers.
fn definition(transport: &str) -> String {
    let component = |id: &str, class: &str, words: &str, fields: &str| {
        format!(
            "- id: {id}\n  className: org.apache.storm.flux.wrappers.{class}\n  constructorArgs: [[evenkeel, component, {words}], [{fields}]]\n  parallelism: 2\n"
        )
    };
    let source = component("source", "spouts.FluxShellSpout", "stream-spout, orders", "word");
    let count =
        component("count", "bolts.FluxShellBolt", "count, --by, word, --prefix, \"orders:\"", "word, count");
    format!(
        "name: orders\nconfig: {{topology.workers: 2{transport}}}\nspouts:\n{source}bolts:\n{count}streams:\n- {{from: source, to: count, grouping: {{type: FIELDS, args: [word]}}}}\n"
    )
}

fn start(data: &Path, place: &Path) -> common::Server {
    common::Server::start(data, &["--topologies-dir", place.to_str().expect("text")])
}

/// Runs `definition` on `server` by the command line; status and what it printed.
fn run(server: &common::Server, place: &Path, definition: &str, more: &[&str]) -> (i32, String) {
    let file = place.join("orders.yaml");
    std::fs::write(&file, definition).expect("written");
    let url = format!("redis://127.0.0.1:{}", server.port);
    finished(evenkeel().args(["topology", "run"]).arg(file).args(["--url", &url]).args(more))
}

#[test]
fn words_are_counted_by_two_workers_over_libzmq_or_tcp() {
    for (transport, more, is_zeromq) in [
        ("", &["--transport", "zeromq"][..], true),
        (", evenkeel.transport: zeromq", &[], true),
        (", evenkeel.transport: zeromq", &["--transport", "tcp"], false),
    ] {
        let (data, place) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let server = start(data.path(), place.path());
        let (status, text) = run(&server, place.path(), &definition(transport), more);
        assert_eq!(status, 0, "{text}");
        for number in 0..1_000 {
            call(server.port, &["XADD", "orders", "*", "word", &format!("w{}", number % 10)])
                .expect("a reply");
        }
        let is_counted =
            |word: u32| server.call(&["HGET", "orders:count", &format!("w{word}")]) == common::bulk("100");
        eventually("all are counted", || (0..10).all(is_counted));
        let workers = processes(data.path());
        assert_eq!(workers.len(), 2);
        for pid in workers {
            let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
            let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
            let has_zeromq = threads.filter_map(|it| name(it).ok()).any(|name| name.starts_with("ZMQbg"));
            assert_eq!(has_zeromq, is_zeromq, "{pid}");
        }
    }
}
