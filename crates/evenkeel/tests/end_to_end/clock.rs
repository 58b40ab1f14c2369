//! The wall clock jumps under the real binary: TTLs end when they would have, EXPIREAT follows the wall clock.
//!
//! `common/fakeclk.c` moves CLOCK_REALTIME alone. Where it cannot work (no C compiler, no x86-64, no ptrace) the tests
//! skip themselves: the store's own tests move a simulated clock.
#![allow(clippy::disallowed_methods, reason = "tests start processes, write files and measure time")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use resp::Value;

use crate::common::{Server, evenkeel, eventually};

/// A folder, and a server on it whose wall clock is off by what a file says.
struct Bench {
    dir: tempfile::TempDir,
    program: PathBuf,
}

impl Bench {
    /// `None` where the wall clock cannot be moved.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().expect("a folder");
        let program = dir.path().join("fakeclk");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/fakeclk.c");
        let built = Command::new("cc").args(["-O1", "-o"]).arg(&program).arg(source).output();
        let bench = Self { dir, program };
        bench.set(0);
        let works = built.is_ok_and(|built| built.status.success())
            && bench.command(Path::new("/bin/true")).status().is_ok_and(|status| status.success());
        if !works {
            println!("skipped: the wall clock of a process cannot be moved here");
        }
        works.then_some(bench)
    }

    /// The wall clock is off by so many seconds from now on.
    fn set(&self, seconds: i64) {
        let path = self.dir.path().join("offset");
        std::fs::write(path.with_extension("new"), seconds.to_string()).expect("written");
        std::fs::rename(path.with_extension("new"), path).expect("renamed");
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(self.dir.path().join("offset")).arg(program).env_remove("NOTIFY_SOCKET");
        command
    }

    fn start(&self) -> Server {
        Server::spawn_on(|port| {
            let mut command = self.command(Path::new(evenkeel().get_program()));
            command.arg("serve").arg("--dir").arg(self.dir.path().join("data")).args(["--loops", "1"]);
            command.args(["--port", &port.to_string()]);
            command
        })
    }
}

fn integer(server: &Server, command: &[&str]) -> i64 {
    match server.call(command) {
        Value::Integer(number) => number,
        other => panic!("{command:?}: {other:?}"),
    }
}

fn is_there(server: &Server, key: &str) -> bool {
    integer(server, &["EXISTS", key]) == 1
}

fn field(server: &Server, name: &str) -> i64 {
    let Value::Bulk(text) = server.call(&["INFO", "server"]) else { panic!("INFO is text") };
    let text = String::from_utf8(text).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {text}")).parse().expect("a number")
}

/// All ways to give a key a TTL of `ms`: names of keys, and the commands that make them.
fn with_ttls(ms: u64) -> Vec<(&'static str, Vec<Vec<String>>)> {
    let list = |text: String| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
    let s = ms.div_ceil(1_000);
    vec![
        ("px", vec![list(format!("SET px v PX {ms}"))]),
        ("ex", vec![list(format!("SET ex v EX {s}"))]),
        ("psetex", vec![list(format!("PSETEX psetex {ms} v"))]),
        ("setex", vec![list(format!("SETEX setex {s} v"))]),
        ("pexpire", vec![list("SET pexpire v".into()), list(format!("PEXPIRE pexpire {ms}"))]),
        ("expire", vec![list("SET expire v".into()), list(format!("EXPIRE expire {s}"))]),
        ("getex", vec![list("SET getex v".into()), list(format!("GETEX getex PX {ms}"))]),
    ]
}

fn set_all(server: &Server, ms: u64) -> Vec<&'static str> {
    let all = with_ttls(ms);
    for command in all.iter().flat_map(|(_, commands)| commands) {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        let reply = server.call(&command);
        assert!(!matches!(reply, Value::Error(_)), "{command:?}: {reply:?}");
    }
    all.into_iter().map(|(key, _)| key).collect()
}

/// After the clock was set back by two hours, `SET u v PX 700` lived for two hours: time stood still at the newest one in the
/// log, without a line about it. Locks and rate limits hung.
#[test]
fn ttl_ends_after_its_duration_though_the_wall_clock_is_set_back() {
    let Some(bench) = Bench::new() else { return };
    let server = bench.start();
    server.call(&["SET", "before", "v", "PX", "1500"]);
    bench.set(-7_200);
    let began = Instant::now();
    let keys = set_all(&server, 900);
    assert!(integer(&server, &["PTTL", "px"]) <= 900);
    eventually("all TTLs end", || keys.iter().chain(&["before"]).all(|key| !is_there(&server, key)));
    assert!(began.elapsed() >= Duration::from_millis(900), "none earlier");
    assert_eq!((field(&server, "clock_jumps_back"), field(&server, "clock_jumps_forward")), (1, 0));
    assert!((-7_201_000..=-7_199_000).contains(&field(&server, "clock_last_jump_ms")));
    server.signal(libc::SIGTERM);
    let (_, log) = server.end();
    assert_eq!(log.matches("the wall clock jumped").count(), 1, "{log}");
}

#[test]
fn wall_clock_set_forward_ends_what_expires_at_a_time_and_no_ttl() {
    let Some(bench) = Bench::new() else { return };
    let server = bench.start();
    let keys = set_all(&server, 600_000);
    let soon = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("later").as_secs() + 3_600;
    server.call(&["SET", "at", "v", "EXAT", &soon.to_string()]);
    bench.set(7_200);
    eventually("EXAT follows the wall clock", || !is_there(&server, "at"));
    for key in &keys {
        let left_ms = integer(&server, &["PTTL", key]);
        assert!((500_000..=600_000).contains(&left_ms), "{key}: {left_ms} ms");
        let end_s = integer(&server, &["EXPIRETIME", key]);
        assert!(
            (end_s - (soon as i64 + 3_600 + 600)).abs() < 60,
            "{key} ends by the clock that clients see: {end_s}"
        );
    }
    bench.set(0);
    eventually("the step back is met", || field(&server, "clock_jumps_back") == 1);
    assert!(!is_there(&server, "at"), "what has expired stays so");
    server.call(&["SET", "at", "v", "EXAT", &soon.to_string()]);
    assert!(is_there(&server, "at"), "a new one goes by the clock as it is");
}

/// The clock is hours ahead when keys are set, and is corrected while the server is down.
#[test]
fn ttl_counts_the_time_of_a_restart_whatever_the_wall_clock_did_meanwhile() {
    let Some(bench) = Bench::new() else { return };
    for (before_s, after_s, kill) in [(7_200, 0, true), (0, 7_200, false), (7_200, -7_200, false)] {
        bench.set(before_s);
        let server = bench.start();
        server.call(&["FLUSHALL"]);
        set_all(&server, 600_000);
        server.call(&["SET", "short", "v", "PX", "1"]);
        let began = Instant::now();
        server.signal(if kill { libc::SIGKILL } else { libc::SIGTERM });
        drop(server.end());
        bench.set(after_s);
        let server = bench.start();
        assert!(!is_there(&server, "short"));
        for (key, _) in with_ttls(1) {
            let left_ms = integer(&server, &["PTTL", key]);
            let least_ms = 599_000 - i64::try_from(began.elapsed().as_millis()).expect("short");
            assert!(
                (least_ms..=600_000).contains(&left_ms),
                "{key} from {before_s} to {after_s}: {left_ms} ms"
            );
        }
        assert_eq!(field(&server, "clock_jumps_forward") + field(&server, "clock_jumps_back"), 1);
    }
}
