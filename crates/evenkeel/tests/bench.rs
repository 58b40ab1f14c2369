//! `evenkeel bench` as a user runs it: against servers that it starts, that run already, that are killed under way, that lie.

#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test fails by panicking")]

mod common;
#[path = "../../bench/tests/fake/mod.rs"]
mod fake;

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

use common::{Server, evenkeel, eventually, finished};
use fake::Manners;
use resp::Value as Reply;
use serde_json::Value;

fn bench(arguments: &[&str]) -> Command {
    let mut command = evenkeel();
    command.arg("bench").args(arguments);
    command
}

/// Runs it with `--json`; its status and the object on its last line.
fn measured(arguments: &[&str]) -> (i32, Value) {
    let (status, text) = finished(bench(arguments).arg("--json"));
    let last = text.lines().last().unwrap_or_default();
    (status, serde_json::from_str(last).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn has_the_common_shape(value: &Value, experiment: &str) {
    assert_eq!(value["experiment"], experiment);
    assert!(value["server"].is_string() && value["settings"].is_object(), "{value}");
    assert!(value["operations_per_second"].as_f64().unwrap() > 0.0);
    for name in ["p50", "p99", "p999", "max"] {
        assert!(value["latency_us"][name].as_f64().unwrap() > 0.0, "{name}");
    }
    assert!(value["errors"].is_u64() && value["lost"].is_u64());
}

#[test]
fn remote_test_counts_what_it_wrote_and_deleted_of_a_server_of_its_own() {
    let small = ["remote-test", "--clients", "5", "--requests", "300", "--iterations", "2"];
    let (status, value) = measured(&[&small[..], &["--value-size", "100", "--loops", "1"]].concat());
    assert_eq!(status, 0);
    has_the_common_shape(&value, "remote-test");
    assert_eq!((value["written"].as_u64(), value["deleted"].as_u64()), (Some(600), Some(600)));
    assert_eq!((value["errors"].as_u64(), value["lost"].as_u64()), (Some(0), Some(0)));
    assert_eq!(value["valid"], true);
    assert_eq!(value["iterations"].as_array().unwrap().len(), 4);
    assert!(value["spread_percent"].is_number());
    assert_eq!(value["settings"]["requests"], 300);
}

#[test]
fn all_operations_run_from_several_processes_and_values_are_verified() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &[]);
    let url = format!("redis://127.0.0.1:{}/1", server.port);
    let (status, value) = measured(&[
        "remote-test",
        "--url",
        &url,
        "--operations",
        "write,read,mixed,delete",
        "--verify",
        "--percent-cached",
        "50",
        "--clients",
        "8",
        "--requests",
        "400",
        "--iterations",
        "1",
        "--start-key",
        "1000000",
        "--processes",
        "2",
        "--pipeline",
        "4",
    ]);
    assert_eq!(status, 0, "{value}");
    assert_eq!((value["written"].as_u64(), value["found"].as_u64()), (Some(600), Some(600)));
    assert_eq!((value["deleted"].as_u64(), value["lost"].as_u64()), (Some(400), Some(0)));
    assert_eq!(server.call(&["DBSIZE"]), Reply::Integer(0));
}

#[test]
fn each_client_count_and_value_size_is_a_test_of_its_own() {
    let (status, value) = measured(&[
        "remote-test",
        "--clients",
        "2,4",
        "--value-size",
        "64..128",
        "--requests",
        "50",
        "--iterations",
        "1",
        "--engine",
        "noop",
    ]);
    assert_eq!(status, 0);
    let of = |name: &str| -> Vec<_> {
        value["tests"].as_array().unwrap().iter().map(|test| test[name].as_u64().unwrap()).collect()
    };
    assert_eq!((of("clients"), of("value_size")), (vec![2, 2, 4, 4], vec![64, 128, 64, 128]));
    assert_eq!(value["lost"], 0, "the engine noop keeps nothing, and is known not to");
}

#[test]
fn churn_ends_by_itself_and_tells_how_much_of_the_limit_is_resident() {
    for engine in ["log", "memory"] {
        let shape = ["--memory-limit-mib", "32", "--duration", "3s", "--clients", "2", "--pipeline", "8"];
        let (status, value) = measured(&[&["churn", "--engine", engine][..], &shape].concat());
        assert_eq!(status, 0, "{value}");
        has_the_common_shape(&value, "churn");
        let of = |name: &str| value[name].as_u64().unwrap_or_else(|| panic!("{name}: {value}"));
        assert!(of("rss_start_bytes") > 0 && of("used_max_bytes") > 0 && of("written_bytes") > 0);
        assert!(of("rss_max_bytes") >= of("rss_sampled_max_bytes"));
        let ratio = of("rss_max_bytes") as f64 / f64::from(32 << 20);
        assert!((value["ratio"].as_f64().unwrap() - ratio).abs() < 0.001);
        assert_eq!(value["within"], ratio <= 1.10);
        assert!(value["samples"].as_array().unwrap().len() >= 2, "one each second");
    }
}

/// Figures of a part of `collections` by their ids.
fn of_collections(part: &str, arguments: &[&str]) -> std::collections::BTreeMap<String, Value> {
    let small = ["collections", "--only", part, "--elements", "2000", "--runs", "1"];
    let few = ["--duration", "15ms", "--collections", "10", "--hashes", "2", "--waiters", "20"];
    let (status, value) = measured(&[&small[..], &few, arguments].concat());
    assert_eq!((status, &value["valid"]), (0, &Value::Bool(true)), "{value}");
    assert_eq!(
        (&value["experiment"], &value["failures"]),
        (&"collections".into(), &Value::Array(Vec::new()))
    );
    let figures = value["figures"].as_array().unwrap().iter();
    figures.map(|figure| (figure["id"].as_str().unwrap().to_owned(), figure.clone())).collect()
}

/// At once: most of the time they wait for what goes on in the background of their servers.
#[test]
fn every_part_of_collections_has_finite_figures() {
    let parts = [
        ("rates", 28, "rates/hset-durable-16"),
        ("types", 60, "types/streams-xreadgroup-xack-no-log-16"),
        ("memory", 5, "memory/pending-entry"),
        ("cold-reads", 18, "cold-reads/zrange-100-limit"),
        ("write-amplification", 2, "write-amplification/16"),
        ("deletes", 30, "deletes/stream-renamed-over"),
        ("start", 2, "start/killed"),
        ("places", 3, "places/linsert"),
        ("waiters", 1, "waiters/blpop-p99"),
    ];
    let has_figures = |part: &str, count: usize, id: &str| {
        let figures = of_collections(part, &[]);
        assert!(figures.len() == count && figures.contains_key(id), "{part}: {:?}", figures.keys());
        for (id, figure) in &figures {
            let value = figure["value"].as_f64();
            assert!(value.is_some_and(f64::is_finite), "{id}: {figure}");
        }
    };
    std::thread::scope(|scope| {
        for (part, count, id) in parts {
            scope.spawn(move || has_figures(part, count, id));
        }
    });
}

#[test]
fn collections_are_compared_with_redis_where_it_has_them() {
    let figures = of_collections("places,waiters", &["--against", "redis"]);
    for figure in figures.values() {
        let ratio = figure["against"]["ratio"].as_f64().unwrap();
        assert!(ratio.is_finite() && ratio > 0.0, "{figure}");
    }
    assert_eq!(figures["places/lindex"]["against"]["server"], "Redis 7.0 off");
}

#[test]
fn types_are_plotted_beside_the_peers_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let plots = folder.path().to_string_lossy().into_owned();
    let few = ["--types", "lists", "--settings", "no-log", "--against", "redis", "--svg", &plots];
    let figures = of_collections("types", &few);
    assert_eq!(figures.len(), 5, "{:?}", figures.keys());
    let queue = &figures["types/lists-lpush-brpop-no-log-1"];
    assert_eq!(queue["title"], "LPUSH + BRPOP, no log, pipeline 1, beside Redis 7.0");
    assert!(
        queue["against"]["ratio"].as_f64().is_some_and(|ratio| ratio.is_finite() && ratio > 0.0),
        "{queue}"
    );
    let files: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["types-lists.svg"]);
    let plot = std::fs::read_to_string(folder.path().join("types-lists.svg")).unwrap();
    assert!(
        plot.contains("\nLPUSH + BRPOP, no log, pipeline 1\n") && plot.contains("Evenkeel / Redis 7.0"),
        "{plot}"
    );
}

#[test]
fn redis_is_measured_beside_and_gets_a_ratio() {
    let small = ["remote-test", "--clients", "5", "--requests", "500", "--iterations", "1"];
    let (status, value) = measured(&[&small[..], &["--against", "redis"]].concat());
    assert_eq!(status, 0);
    let redis = &value["against"][0];
    has_the_common_shape(redis, "remote-test");
    assert_eq!((redis["server"].as_str(), redis["deleted"].as_u64()), (Some("redis"), Some(500)));
    assert!(redis["ratio"].as_f64().unwrap() > 0.0);
}

#[test]
fn peer_that_is_not_installed_is_left_out_and_said_so() {
    let small =
        ["map-test", "-q", "--threads", "2", "--key-count", "50", "--duration", "50ms", "--runs", "1"];
    let mut command = bench(&[&small[..], &["--against", "valkey,memcached,hazelcast"]].concat());
    let (status, text) = finished(command.env("PATH", "/nowhere"));
    assert_eq!(status, 0, "{text}");
    for (name, program) in [("valkey", "valkey-server"), ("memcached", "memcached"), ("hazelcast", "java")] {
        assert!(text.contains(&format!("{name} is not installed here (no {program})")), "{text}");
    }
}

/// A folder with a program of this name that does nothing, as a PATH.
fn only(program: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/bin/true", folder.path().join(program)).unwrap();
    folder
}

#[test]
fn hazelcast_without_maven_is_left_out_and_said_so() {
    let (path, cache) = (only("java"), tempfile::tempdir().unwrap());
    let small =
        ["map-test", "-q", "--threads", "2", "--key-count", "50", "--duration", "50ms", "--runs", "1"];
    let mut command = bench(&[&small[..], &["--against", "hazelcast"]].concat());
    let (status, text) = finished(command.env("PATH", path.path()).env("XDG_CACHE_HOME", cache.path()));
    assert_eq!(status, 0, "{text}");
    assert!(text.contains("hazelcast must be built once, and Maven is not installed here"), "{text}");
}

#[test]
fn server_that_dies_under_way_makes_the_run_invalid_with_counted_errors() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--engine", "memory"]);
    let url = format!("redis://127.0.0.1:{}", server.port);
    let mut command = bench(&["remote-test", "--url", &url, "--clients", "10", "--requests", "50000000"]);
    let child = command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    eventually("something is written", || server.call(&["DBSIZE"]) != Reply::Integer(0));
    drop(server);
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3), "{text}");
    let value: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&value["valid"], value["failures"]["disconnected"].as_u64()),
        (&Value::Bool(false), Some(10))
    );
    assert!(value["errors"].as_u64().unwrap() >= 20, "ten connections, each with a request under way");
    assert_eq!(value["spread_percent"], Value::Null, "no ratio of what is no figure");
    assert!(text.contains("NOT VALID"), "{text}");
}

#[test]
fn keys_that_a_server_forgot_are_lost() {
    let address = fake::start(Manners { denies: Some(b'7'), ..Manners::default() });
    let url = format!("redis://{address}");
    let small = ["remote-test", "--url", &url, "--clients", "3", "--requests", "1000", "--iterations", "1"];
    let (status, value) = measured(&small);
    assert_eq!((status, value["lost"].as_u64(), value["errors"].as_u64()), (3, Some(100), Some(0)));
    assert_eq!((value["valid"].as_bool(), value["deleted"].as_u64()), (Some(false), Some(900)));
}

#[test]
fn open_loop_charges_a_stall_to_what_was_due_meanwhile() {
    let stall = std::time::Duration::from_millis(300);
    let address = fake::start(Manners { stalls: Some((20, stall)), ..Manners::default() });
    let url = format!("redis://{address}");
    let small = ["remote-test", "--url", &url, "--clients", "1", "--requests", "100", "--iterations", "1"];
    let paced = measured(&[&small[..], &["--operations", "write", "--rate", "200"]].concat()).1;
    // Closed loop: one request of a hundred is slow. Open loop: the sixty that were due meanwhile, too.
    assert!(paced["latency_us"]["p50"].as_f64().unwrap() > 20_000.0, "{paced}");
}

#[test]
fn map_test_reads_keys_on_a_fresh_server_for_each_run() {
    let small = ["map-test", "--duration", "300ms", "--runs", "2", "--threads", "4", "--key-count", "100"];
    for extra in [&["--key-locality", "single"][..], &["--put-probability", "0.5", "--key-locality", "local"]]
    {
        let (status, value) = measured(&[&small[..], extra].concat());
        assert_eq!(status, 0, "{value}");
        has_the_common_shape(&value, "map-test");
        assert_eq!((value["runs"].as_array().unwrap().len(), value["lost"].as_u64()), (2, Some(0)));
        let [min, mean, max] = ["min", "mean", "max"].map(|name| value[name].as_f64().unwrap());
        assert!(0.0 < min && min <= mean && mean <= max);
        assert!(value["probe_latency_us"]["p50"].as_f64().unwrap() > 0.0);
    }
}

/// Beside Hazelcast, whose threads share a connection, ours had one each: a request took a read and a write of its own.
#[test]
fn threads_of_the_map_test_share_connections() {
    let small = ["map-test", "--duration", "300ms", "--runs", "1", "--threads", "4", "--key-count", "100"];
    let (status, value) = measured(&[&small[..], &["--connections", "2"]].concat());
    assert_eq!(status, 0, "{value}");
    assert_eq!((value["lost"].as_u64(), value["settings"]["connections"].as_u64()), (Some(0), Some(2)));
    for (extra, refused) in [
        (&["--connections", "3"][..], "4 --threads cannot share 3 --connections evenly"),
        (&["--connections", "8"], "4 --threads cannot share 8 --connections evenly"),
        (&["--connections", "2", "--key-locality", "local"], "needs a connection for each thread"),
    ] {
        let output = bench(&[&small[..], extra].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(refused), "{said}");
    }
}

#[test]
fn page_has_the_plots_of_all_servers_and_needs_nothing_else() {
    let html = tempfile::NamedTempFile::new().unwrap();
    let path = html.path().to_str().unwrap();
    let small = ["map-test", "--duration", "200ms", "--runs", "2", "--threads", "2", "--key-count", "50"];
    let (status, _) =
        measured(&[&small[..], &["--against", "redis", "--html", path, "--interval", "50ms"]].concat());
    assert_eq!(status, 0);
    let page = std::fs::read_to_string(path).unwrap();
    assert_eq!(page.matches("<figure").count(), 4);
    assert!(page.contains("evenkeel / redis, operations a second") && !page.contains("<script"));
}

/// Tells `child` to end, and sees that it does so on purpose.
fn terminate(child: &mut Child) {
    let pid = libc::pid_t::try_from(child.id()).unwrap();
    // SAFETY: a plain system call on our own child, which is not reaped yet.
    #[allow(unsafe_code, reason = "kill(2) has no safe wrapper in std")]
    let sent = unsafe { libc::kill(pid, libc::SIGTERM) };
    assert_eq!((sent, child.wait().unwrap().code()), (0, Some(128 + libc::SIGTERM)));
}

/// Maven went on for half a minute after the experiment that had asked for it.
#[test]
fn build_of_hazelcast_ends_with_the_experiment() {
    let (path, cache) = (only("java"), tempfile::tempdir().unwrap());
    let (maven, pid) = (path.path().join("mvn"), cache.path().join("pid"));
    let script =
        format!("#!/bin/sh\necho $$ > {0}.new\n/bin/mv {0}.new {0}\nexec /bin/sleep 600\n", pid.display());
    std::fs::write(&maven, script).unwrap();
    std::fs::set_permissions(&maven, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut command = bench(&["map-test", "--against", "hazelcast"]);
    command.env("PATH", path.path()).env("XDG_CACHE_HOME", cache.path());
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("mvn runs", || pid.exists());
    terminate(&mut child);
    let process = format!("/proc/{}/cmdline", std::fs::read_to_string(&pid).unwrap().trim());
    // A process that has ended has no command line, even while nobody has asked for its status.
    eventually("mvn has ended", || std::fs::read(&process).map_or(true, |line| line.is_empty()));
}

#[test]
fn experiment_that_is_told_to_end_leaves_neither_server_nor_folder() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let mut command = bench(&["remote-test", "--requests", "50000000", "--folder", place]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let servers = || std::fs::read_dir(folder.path().join(format!("evenkeel-bench-{}", child.id())));
    let is_serving = |file: std::io::Result<std::fs::DirEntry>| {
        let name = file.unwrap().path();
        name.join("RUNNING")
            .exists()
            .then(|| name.to_str().unwrap().rsplit('-').next().unwrap().parse().unwrap())
    };
    let mut port: Option<u16> = None;
    eventually("a server serves", || {
        port = servers().into_iter().flatten().find_map(is_serving);
        port.is_some()
    });
    terminate(&mut child);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    // It was killed; the system closes its sockets a moment later.
    eventually("its port is closed", || common::call(port.unwrap(), &["PING"]).is_err());
}

/// Runs of `skew`: what was measured with this start and this balance.
fn of_skew<'a>(value: &'a Value, start: &str, balance: &str) -> &'a Value {
    let runs = value["runs"].as_array().unwrap();
    runs.iter().find(|run| run["start"] == start && run["balance"] == balance).unwrap()
}

/// What `skew` finds with six clients.
fn skewed(arguments: &[&str]) -> Value {
    let small = ["skew", "--clients", "6", "--keys", "10", "--value-size", "2000"];
    let often = ["--interval", "100ms", "--balance-interval", "200ms"];
    let (status, value) = measured(&[&small[..], &often, arguments].concat());
    assert_eq!(status, 0, "{value}");
    value
}

/// The share of the loop that sent most, in each sample in which anything was sent.
fn greatest_shares(run: &Value) -> Vec<f64> {
    let samples = run["loops"].as_array().unwrap().iter();
    let shares = samples.map(|sample| sample["shares"].as_array().unwrap().iter().filter_map(Value::as_f64));
    shares.map(|shares| shares.fold(0.0, f64::max)).filter(|share| *share > 0.0).collect()
}

#[test]
fn skew_shows_who_carries_the_load() {
    let html = tempfile::NamedTempFile::new().unwrap();
    let page = ["--html", html.path().to_str().unwrap()];
    let value = skewed(&[&["--duration", "500ms", "--starts", "one-loop,loads,nodes"][..], &page].concat());
    has_the_common_shape(&value, "skew");
    assert_eq!(value["runs"].as_array().unwrap().len(), 10, "an even start, and three of three kinds");
    for start in ["one-loop", "nodes"] {
        let off = of_skew(&value, start, "off");
        assert!(
            greatest_shares(off).iter().all(|share| *share > 0.99),
            "all on one loop from {start}: {off}"
        );
        assert_eq!((off["moves"].as_u64(), off["min_max_by_interval"][0].as_f64()), (Some(0), Some(0.0)));
    }
    let by_host = of_skew(&value, "nodes", "by-host");
    assert!(
        greatest_shares(by_host).iter().any(|share| *share < 0.9),
        "hosts are dealt over the loops: {by_host}"
    );
    assert_eq!(of_skew(&value, "even", "off")["ratio_to_even"], 1.0);
    let page = std::fs::read_to_string(html.path()).unwrap();
    assert!(page.contains("<figure") && page.contains("start one-loop, balance on"));
}

/// Ten of the balancer's intervals: on a busy machine the clients get nothing done in some of them.
#[test]
fn skew_shows_what_the_balancer_does_about_it() {
    let on = ["--balance", "on", "--no-even", "--starts", "one-loop,nodes", "--duration", "2s"];
    let value = skewed(&on);
    for start in ["one-loop", "nodes"] {
        let on = of_skew(&value, start, "on");
        let is_shared = greatest_shares(on).iter().any(|share| *share < 0.99);
        assert!(on["moves"].as_u64().unwrap() > 0 && is_shared, "{on}");
    }
}

#[test]
fn skew_without_the_even_start_measures_only_what_was_asked_for() {
    let small =
        ["skew", "--no-even", "--balance", "on", "--clients", "4", "--keys", "2", "--value-size", "100"];
    let short = ["--duration", "100ms", "--balance-interval", "50ms"];
    let (status, value) = measured(&[&small[..], &short].concat());
    assert_eq!(status, 0, "{value}");
    let runs = value["runs"].as_array().unwrap();
    assert_eq!((runs.len(), &runs[0]["start"]), (1, &Value::from("one-loop")));
    assert_eq!(runs[0]["ratio_to_even"], Value::Null);
}

#[test]
fn skew_in_phases_shows_how_many_loops_are_active_and_why() {
    let small = ["skew", "--phases", "--clients", "20", "--keys", "2", "--value-size", "100"];
    let short = ["--duration", "300ms", "--balance-interval", "200ms", "--interval", "100ms"];
    let (status, value) = measured(&[&small[..], &short].concat());
    assert_eq!(status, 0, "{value}");
    has_the_common_shape(&value, "skew");
    let phases = value["phases"].as_array().unwrap();
    let names: Vec<_> = phases.iter().map(|phase| phase["phase"].as_str().unwrap()).collect();
    assert_eq!(names, ["light", "grown", "contended", "fallen"]);
    let first = &phases[0]["loops"][0];
    assert_eq!((&first["active"], &first["changes"]), (&Value::from(1), &Value::from(0)), "{first}");
    let samples: Vec<_> = phases.iter().flat_map(|phase| phase["loops"].as_array().unwrap()).collect();
    let changes = samples.iter().map(|sample| sample["changes"].as_u64().unwrap());
    assert!(changes.is_sorted(), "{value}");
    for sample in samples {
        let loops = sample["connections"].as_array().unwrap().len();
        let active = sample["active"].as_u64().unwrap() as usize;
        assert!((1..=loops).contains(&active) && sample["reason"].is_string(), "{sample}");
    }
    let light = phases[0]["operations_per_second"].as_f64().unwrap();
    assert!(light <= 1_100.0, "its rate is fixed: {light}");
}

#[test]
fn quiet_prints_a_line_for_each_operation() {
    let small = ["remote-test", "-q", "--clients", "2", "--requests", "50", "--iterations", "1"];
    let (status, text) = finished(&mut bench(&small));
    assert_eq!(status, 0);
    let lines: Vec<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    for (line, name) in lines.iter().zip(["SET: ", "DEL: "]) {
        assert!(line.starts_with(name) && line.contains(" requests per second, p50="), "{line}");
    }
}

#[test]
fn messages_go_to_a_process_of_its_own_in_plain_and_by_tls() {
    let small = ["transport", "--tls", "--sizes", "64,100000", "--runs", "1"];
    for pattern in ["one-way", "ping-pong"] {
        let times = ["--duration", "50ms", "--warm-up", "20ms", "--pattern", pattern];
        let (status, text) = finished(bench(&[&small[..], &times].concat()).arg("--json"));
        assert_eq!(status, 0, "{text}");
        let first: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let reports: Vec<&Value> =
            std::iter::once(&first).chain(first["against"].as_array().unwrap()).collect();
        let names: Vec<_> = reports.iter().map(|report| report["server"].as_str().unwrap()).collect();
        assert_eq!(names, ["tcp", "tls", "plain"], "{text}");
        for figure in reports.iter().flat_map(|report| report["figures"].as_array().unwrap()) {
            assert!(figure["messages_per_second"].as_f64().unwrap() > 0.0, "{text}");
            assert!(figure["cpu_ns_per_message"].as_f64().unwrap() > 0.0, "{text}");
        }
        assert_eq!(reports[0]["settings"]["processes"], 2);
    }
}

#[test]
fn what_cannot_be_measured_is_said_in_one_line() {
    for (arguments, status, part) in [
        (&["remote-test", "--url", "redis://127.0.0.1:1"][..], 1, "cannot connect to redis://127.0.0.1:1"),
        (&["remote-test", "--url", "localhost:6379"], 2, "use redis://"),
        (&["remote-test", "--clients", "0"], 2, "--clients"),
        (&["remote-test", "--request-timeout", "5"], 2, "no duration"),
        (&["remote-test", "--requets", "5"], 2, "--requets"),
        (&["remote-test", "--server", "oracle"], 1, "no server `oracle`"),
        (&["map-test", "--put-probability", "1.5"], 2, "from 0.0 to 1.0"),
        (&["map-test", "--against", "hazelcast", "--pipeline", "2"], 1, "neither --pipeline"),
        (&["remote-test", "--against", "redis,hazelcast"], 1, "map-test only"),
        (&["skew", "--against", "redis"], 1, "skew measures evenkeel alone"),
        // It ran, and showed a balancer that had had no time to do anything.
        (&["skew", "--duration", "2s"], 1, "--duration 2s is shorter than --balance-interval 5s"),
        (&["collections", "--only", "rats"], 2, "rats"),
        (&["collections", "--collections", "7"], 2, "not 1, 10, 100"),
        (&["collections", "--against", "memcached"], 2, "redis, valkey"),
        (&["collections", "--types", "bitmaps"], 2, "sorted-sets"),
        (&["skwe"], 2, "skwe"),
    ] {
        let (got, text) = finished(&mut bench(arguments));
        assert_eq!(got, status, "{arguments:?}: {text}");
        assert!(text.contains(part) && text.lines().count() == 1, "{arguments:?}: {text}");
    }
}

#[test]
fn password_and_user_of_the_address_log_in() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path(), &["--requirepass", "s3cret"]);
    let with = |login: &str| format!("redis://{login}127.0.0.1:{}", server.port);
    let small = |url: &str| {
        finished(&mut bench(&[
            "remote-test",
            "-q",
            "--url",
            url,
            "--clients",
            "2",
            "--requests",
            "9",
            "--iterations",
            "1",
        ]))
    };
    assert_eq!(small(&with(":s3cret@")).0, 0);
    assert_eq!(small(&with("default:s3cret@")).0, 0);
    let (status, text) = small(&with(":wrong@"));
    assert!(status == 1 && text.contains("WRONGPASS") && !text.contains("wrong@"), "{text}");
}
