//! A real Prometheus scrapes a real server: it finds every figure, and the dashboard finds what it draws.
//!
//! Debian's package `prometheus` is needed, with its `promtool`: `cargo xtask test clients` installs it. Nothing of the service
//! that the package brings is used. Phases of transactions need a second resource, so PostgreSQL is needed, too.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::common::{self, Server, bulk};
use crate::postgres::Postgres;

/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(30);
/// Instances of Prometheus that found their port taken: then something is wrong.
const PORTS_TRIED_MAX: usize = 10;

/// A server on two loops that shows its figures, and the port where; `more` are arguments.
fn server(dir: &Path, more: &[&str]) -> (Server, u16) {
    let file = format!("--metrics-file={}", dir.join("metrics.jsonl").display());
    let mut arguments = vec!["--loops=2", "--metrics-listen=127.0.0.1:0", &*file, "--metrics-interval=100ms"];
    arguments.extend(more);
    let mut server = Server::start(&dir.join("data"), &arguments);
    let port = server.metrics_port();
    (server, port)
}

/// What `path` on this machine answers, without its headers; nothing when nobody listens.
fn get(port: u16, path: &str) -> Option<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).expect("set");
    stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n").as_bytes()).ok()?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).ok()?;
    reply.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
}

/// Calls `done` until it has something.
fn wait_for<T>(what: &str, mut done: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = done() {
            return found;
        }
        assert!(start.elapsed() < PATIENCE, "{what} did not come true in {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A Prometheus of our own.
struct Prometheus {
    child: Child,
    port: u16,
}

impl Prometheus {
    /// Starts one in `dir` that scrapes `port` five times a second.
    fn start(dir: &Path, port: u16) -> Self {
        let config = format!(
            "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}\nscrape_configs:\n\
             - job_name: evenkeel\n  static_configs: [{{targets: ['127.0.0.1:{port}']}}]\n"
        );
        let file = dir.join("prometheus.yml");
        std::fs::write(&file, config).expect("written");
        for _ in 0..PORTS_TRIED_MAX {
            let own_port = common::free_port();
            let mut child = Command::new("prometheus")
                .arg(format!("--config.file={}", file.display()))
                .arg(format!("--storage.tsdb.path={}", dir.join("tsdb").display()))
                .arg(format!("--web.listen-address=127.0.0.1:{own_port}"))
                .args(["--log.level=error"])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn()
                .expect("prometheus is installed (cargo xtask test clients does that)");
            let ready = wait_for("prometheus is ready, or gone", || {
                let gone = child.try_wait().expect("a child can be asked").map(|_| false);
                gone.or_else(|| get(own_port, "/-/ready").filter(|text| text.contains("Ready")).map(|_| true))
            });
            if ready {
                return Prometheus { child, port: own_port };
            }
        }
        panic!("{PORTS_TRIED_MAX} free ports in a row were taken by others");
    }

    /// The values of `expression` now, in the order of Prometheus.
    fn query(&self, expression: &str) -> Vec<f64> {
        let encoded: String = expression.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let reply = get(self.port, &format!("/api/v1/query?query={encoded}")).expect("an answer");
        let reply: Value = serde_json::from_str(&reply).expect("JSON");
        assert_eq!(reply["status"], "success", "{expression}: {reply}");
        let result = reply["data"]["result"].as_array().expect("a vector");
        let value = |sample: &Value| sample["value"][1].as_str().and_then(|text| text.parse().ok());
        result.iter().map(|sample| value(sample).expect("a number")).collect()
    }

    #[track_caller]
    fn wait_until(&self, expression: &str, expected: &[f64]) {
        let mut last = Vec::new();
        let is = || {
            last = self.query(expression);
            (last == expected).then_some(())
        };
        let start = Instant::now();
        let mut is = is;
        while is().is_none() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(last, expected, "{expression}");
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Something of everything that a server counts.
fn work(server: &Server) {
    for number in 0..10 {
        server.call(&["SET", &format!("key:{number}"), "value"]);
    }
    server.call(&["SET", "soon", "value", "EX", "1000"]);
    server.call(&["GET", "key:1"]);
    server.call(&["GET", "none"]);
    server.call(&["INCR", "key:1"]);
    server.call(&["GET"]);
    server.call(&["CONFIG", "GET", "port"]);
    transaction(server, &[&["TX.DO", "ID", "SET", "key:2", "other"]], "TX.COMMIT", "committed");
    transaction(server, &[&["TX.DO", "ID", "SET", "key:3", "other"]], "TX.ROLLBACK", "aborted");
}

/// A transaction of `steps`, in which `ID` stands for it, that `end` ends as `outcome`.
fn transaction(server: &Server, steps: &[&[&str]], end: &str, outcome: &str) {
    let resp::Value::Array(begun) = server.call(&["TX.BEGIN"]) else { panic!("no transaction begins") };
    let resp::Value::Bulk(id) = &begun[1] else { panic!("{begun:?}") };
    let id = String::from_utf8_lossy(id);
    for step in steps {
        let step: Vec<&str> = step.iter().map(|word| if *word == "ID" { &*id } else { word }).collect();
        let done = server.call(&step);
        assert!(!matches!(done, resp::Value::Error(_)), "{step:?}: {done:?}");
    }
    let resp::Value::Array(ended) = server.call(&[end, &id]) else { panic!("{end} has no outcome") };
    assert_eq!(ended[0], bulk(outcome), "{ended:?}");
}

/// A transaction over keys and the database `bank`: it commits in two phases, which one over keys alone does not.
fn work_in_bank(server: &Server, port: u16) {
    let ready = "evenkeel_resource_ready{resource=\"bank\",kind=\"postgresql\"} 1\n";
    wait_for("the database is ready", || get(port, "/metrics")?.contains(ready).then_some(()));
    let insert = ["TX.SQL", "ID", "bank", "INSERT INTO account VALUES (1)"];
    transaction(server, &[&insert, &["TX.DO", "ID", "SET", "key:4", "other"]], "TX.COMMIT", "committed");
}

#[test]
fn prometheus_finds_what_was_done_and_the_dashboard_what_it_draws() {
    let Some(postgres) = Postgres::start(&[]) else { return };
    postgres.sql("CREATE TABLE account (balance int)");
    let dir = tempfile::tempdir().expect("a folder");
    let settings = dir.path().join("settings.toml");
    std::fs::write(&settings, format!("[resource.bank]\nurl = '{}'\n", postgres.url())).expect("written");
    let (server, port) = server(dir.path(), &[&format!("--config={}", settings.display())]);
    work(&server);
    work_in_bank(&server, port);
    let prometheus = Prometheus::start(dir.path(), port);
    prometheus.wait_until("up{job='evenkeel'}", &[1.0]);
    for (expression, expected) in [
        ("sum by (command) (evenkeel_command_calls_total{command='set'})", 11.0),
        ("sum(evenkeel_command_calls_total{command='config|get'})", 1.0),
        ("sum(evenkeel_command_failures_total{command='incr'})", 1.0),
        ("sum(evenkeel_command_rejections_total{command='get'})", 1.0),
        ("evenkeel_command_duration_seconds_count{command='set'}", 11.0),
        ("sum(evenkeel_error_replies_total)", 2.0),
        ("evenkeel_keys{db='0'}", 11.0),
        ("evenkeel_keys_expiring{db='0'}", 1.0),
        ("evenkeel_keyspace_hits_total", 1.0),
        ("evenkeel_keyspace_misses_total", 1.0),
        ("count(evenkeel_loop_busy_seconds_total)", 2.0),
        ("evenkeel_journal_records_total >= bool 11", 1.0),
        ("evenkeel_journal_sync_duration_seconds_count > bool 0", 1.0),
        ("evenkeel_connections_accepted_total", 26.0),
        ("count(evenkeel_build_info{engine='log'})", 1.0),
        ("evenkeel_transactions_total{outcome='committed'}", 2.0),
        ("evenkeel_transactions_total{outcome='aborted'}", 1.0),
        ("sum(evenkeel_transactions_total{outcome=~'unknown|heuristic'})", 0.0),
        ("evenkeel_transactions_live{state='committed'}", 1.0),
        ("sum(evenkeel_transactions_live)", 1.0),
        ("evenkeel_transaction_decisions_total", 1.0),
        ("evenkeel_transaction_phase_seconds_count{phase='prepare'}", 1.0),
        ("evenkeel_transaction_phase_seconds_count{phase='decide'}", 1.0),
        ("evenkeel_transaction_phase_seconds_count{phase='commit'}", 1.0),
        ("evenkeel_transaction_locked_keys", 0.0),
        ("evenkeel_resource_ready{resource='bank',kind='postgresql'}", 1.0),
        ("evenkeel_resource_sessions > bool 0", 1.0),
    ] {
        prometheus.wait_until(expression, &[expected]);
    }
    // A rate needs two scrapes, and a scrape that came too late leaves nothing to see until the next.
    prometheus.wait_until("count_over_time(up[1m]) > bool 2", &[1.0]);
    for expression in dashboard() {
        let expression = expression.replace("$__rate_interval", "1m").replace("$instance", ".*");
        let what = format!("that the dashboard draws something for {expression}");
        wait_for(&what, || (!prometheus.query(&expression).is_empty()).then_some(()));
    }
}

/// Each rule is one that Prometheus takes, of figures that there are, and says for how long and what to do.
#[test]
fn promtool_takes_the_alert_rules_and_the_page_has_their_figures() {
    let rules = concat!(env!("CARGO_MANIFEST_DIR"), "/../../contrib/prometheus/evenkeel.rules.yml");
    let output = Command::new("promtool").args(["check", "rules", rules]).output();
    let output = output.expect("promtool is installed (cargo xtask test clients does that)");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && said.contains("SUCCESS: 20 rules found"), "{said}");
    let text = std::fs::read_to_string(rules).expect("readable");
    let count = |word: &str| text.matches(word).count();
    assert_eq!((count("alert: "), count("for: "), count("description: ")), (20, 20, 20));
    assert!(text.contains("up{job=\"evenkeel\"} == 0"));
    let page = include_str!("../../../server/tests/golden/metrics.prom");
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for expression in text.lines().filter_map(|line| line.trim().strip_prefix("expr: ")) {
        for name in expression.split(|c| !is_name(c)).filter(|name| name.starts_with("evenkeel_")) {
            assert!(
                page.lines().any(|line| line.split(['{', ' ']).next() == Some(name)),
                "{name}: {expression}"
            );
        }
        for selector in expression.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
            assert!(page.contains(selector) || selector == "job=\"evenkeel\"", "{selector}: {expression}");
        }
    }
}

/// The expressions of all panels.
fn dashboard() -> Vec<String> {
    let text = include_str!("../../../../contrib/grafana/evenkeel.json");
    let dashboard: Value = serde_json::from_str(text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("a list").iter();
    let targets = panels.flat_map(|panel| panel["targets"].as_array().into_iter().flatten());
    let all: Vec<_> =
        targets.map(|target| target["expr"].as_str().expect("an expression").to_owned()).collect();
    assert!(all.len() > 30, "{all:?}");
    all
}

#[test]
fn promtool_has_nothing_to_say_of_the_page() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, port) = server(dir.path(), &[]);
    work(&server);
    let page = get(port, "/metrics").expect("a page");
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("promtool is installed (cargo xtask test clients does that)");
    promtool.stdin.take().expect("piped").write_all(page.as_bytes()).expect("taken");
    let output = promtool.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success() && said.is_empty(), "{}\n{page}", String::from_utf8_lossy(&said));
}

#[test]
fn metrics_file_has_a_line_an_interval_and_one_at_the_end() {
    let dir = tempfile::tempdir().expect("a folder");
    let (server, _port) = server(dir.path(), &[]);
    work(&server);
    let lines = || std::fs::read_to_string(dir.path().join("metrics.jsonl")).unwrap_or_default();
    wait_for("two lines", || (lines().lines().count() > 2).then_some(()));
    server.signal(libc::SIGTERM);
    let (status, errors) = server.end();
    assert!(status.success(), "{errors}");
    let text = lines();
    let last: Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["keys"]["databases"][0]["keys"], 11, "{last}");
    let calls = last["commands"]["set"]["calls"].as_array().expect("a list").iter();
    assert_eq!(calls.map(|calls| calls.as_u64().expect("a count")).sum::<u64>(), 11, "{last}");
    assert!(last["journal"]["sync_us"]["p99"].as_f64() > Some(0.0), "{last}");
    assert!(last["interval_s"].as_f64() < Some(5.0), "{last}");
    let transactions = &last["transactions"];
    assert_eq!((&transactions["committed"], &transactions["aborted"]), (&1.into(), &1.into()), "{last}");
}
