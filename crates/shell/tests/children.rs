#![allow(missing_docs, reason = "tests")]
#![allow(clippy::disallowed_methods, reason = "tests look at processes, by the files of the kernel")]
//! Real children, those that behave and those that do not. They are scripts of the shell that every system has.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use clock::{Clock, SystemClock};
use serde_json::Map;
use shell::child_thread::{Asks, ChildThread, Event, Limits, Spec};
use shell::codec::Codec;
use shell::message::Message;
use shell::speak::{self, Command};
use topology::Plan;
use topology::component::Waker;
use topology::definition::{Component, Grouping, Settings, Stream, Subscription, Topology};
use topology::ids::TaskId;

/// A child with its events.
struct Watched {
    supervisor: ChildThread,
    events: VecDeque<Event>,
    bell: Arc<(Mutex<bool>, Condvar)>,
}

/// Those that look at the memory of this process run one after the other.
static ALONE: Mutex<()> = Mutex::new(());
const SPOUT: TaskId = TaskId(0);
const BOLT: TaskId = TaskId(1);

/// Answers the handshake, and is then `rest`. What it reads is gone up to `end`.
fn polite(rest: &str) -> String {
    let until_end = "hear() { while read -r line && [ \"$line\" != end ]; do said=\"$line\"; done; }";
    format!("{until_end}\nhear; echo '{{\"pid\": '$$'}}'; echo end\n{rest}")
}

fn limits() -> Limits {
    Limits { pause_min: Duration::from_millis(1), pause_max: Duration::from_millis(4), ..Limits::default() }
}

impl Watched {
    fn new(script: &str, task: TaskId, limits: Limits) -> Self {
        let inputs = vec![Subscription::to("source", Grouping::Shuffle)];
        let components = vec![
            Component::spout("source", vec![Stream::default_with(&["x"])]),
            Component::bolt("bolt", inputs, vec![]),
        ];
        let topology = Topology { name: "t".into(), settings: Settings::default(), components };
        let (plan, _) = Plan::new(topology).expect("a plan");
        let command = ["sh", "-c", script].map(str::to_owned).to_vec();
        let spec =
            Spec { command, folder: None, config: Map::new(), codec: Codec::Json, limits, secret: None };
        let bell = Arc::new((Mutex::new(false), Condvar::new()));
        let ringer = Arc::clone(&bell);
        let waker = Waker::new(move || {
            *ringer.0.lock().expect("no panic") = true;
            ringer.1.notify_one();
        });
        let supervisor = ChildThread::start(&spec, &plan, task, waker).expect("a thread");
        Self { supervisor, events: VecDeque::new(), bell }
    }

    /// The next event.
    fn next(&mut self) -> Event {
        loop {
            self.supervisor.take(&mut self.events);
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            let (lock, bell) = &*self.bell;
            let is_rung = lock.lock().expect("no panic");
            let (mut is_rung, wait) = bell
                .wait_timeout_while(is_rung, Duration::from_secs(20), |is_rung| !*is_rung)
                .expect("no panic");
            assert!(!wait.timed_out(), "no event for 20 s");
            *is_rung = false;
        }
    }

    fn started(&mut self) -> u64 {
        match self.next() {
            Event::Started(life) => life,
            other => panic!("{other:?}"),
        }
    }

    fn ended(&mut self) -> String {
        match self.next() {
            Event::Ended(why) => why,
            other => panic!("{other:?}"),
        }
    }

    fn tell(&self, life: u64, command: &Command) {
        self.supervisor
            .tell(life, Asks { answers: 1, tuples: 0 }, |out| speak::command(Codec::Json, command, out))
            .expect("it lives");
    }
}

/// What the first child of `script` came to.
fn end_of(script: &str) -> String {
    let mut child = Watched::new(script, BOLT, limits());
    loop {
        if let Event::Ended(why) = child.next() {
            return why;
        }
    }
}

/// Resident memory of this process, in bytes.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is there");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("it is there");
    line.split_whitespace().nth(1).and_then(|number| number.parse::<u64>().ok()).expect("a number") << 10
}

fn is_there(pid: &str) -> bool {
    // What was killed and not waited for is gone as well.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

/// Waits for a condition on something that tells nobody.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let start = SystemClock.now();
    while !condition() {
        assert!(SystemClock.now().since(start) < Duration::from_secs(20), "{what}");
        std::thread::yield_now();
    }
}

/// A bolt that did not acknowledge what it was told was told nothing more, at 1,000 tuples. What counts is what is not written.
#[test]
fn tuples_wait_while_their_child_reads_nothing_and_the_component_is_woken_when_it_does() {
    let script = polite("hear; hear; echo '{\"command\": \"sync\"}'; echo end; hear");
    let mut child = Watched::new(&script, BOLT, Limits { tuples_max: 2, ..limits() });
    let life = child.started();
    let tell = |child: &Watched, bytes: usize| {
        let message = format!("{}\nend\n", "x".repeat(bytes));
        let asks = Asks { answers: 0, tuples: 1 };
        child.supervisor.tell(life, asks, |out| out.extend(message.as_bytes())).expect("it lives");
    };
    assert!(child.supervisor.has_room());
    // More than a pipe takes.
    tell(&child, 1 << 20);
    tell(&child, 1);
    assert!(!child.supervisor.has_room());
    let (lock, bell) = &*child.bell;
    let mut is_rung = lock.lock().expect("no panic");
    while !child.supervisor.has_room() {
        let (rung, wait) = bell.wait_timeout(is_rung, Duration::from_secs(20)).expect("no panic");
        assert!(!wait.timed_out(), "it was not woken");
        is_rung = rung;
    }
    drop(is_rung);
    assert_eq!(child.next(), Event::Said(Message::Sync), "it has both");
}

#[test]
fn child_is_told_commands_and_heard() {
    let script = polite(
        r#"hear; echo '{"command": "emit", "id": 1, "tuple": ["heard", 2]}'; echo end; echo '{"command": "sync"}'; echo end; hear"#,
    );
    let mut child = Watched::new(&script, SPOUT, limits());
    let life = child.started();
    child.tell(life, &Command::Next);
    let Event::Said(Message::Emit(emit)) = child.next() else { panic!("a tuple") };
    assert_eq!((emit.values.len(), emit.id), (2, Some(1.into())));
    assert_eq!(child.next(), Event::Said(Message::Sync));
}

#[test]
fn child_that_exits_is_started_again() {
    let mut child = Watched::new(&polite("exit 3"), BOLT, limits());
    for life in 1..=3 {
        assert_eq!((child.started(), child.ended()), (life, "it exited with status 3".into()));
    }
    assert!(
        child.supervisor.tell(1, Asks::default(), |_| ()).is_none(),
        "what is for an earlier life is dropped"
    );
}

#[test]
fn command_that_is_not_there_is_named() {
    let why = Watched::new("exec nonexistent-command-of-nobody", BOLT, limits()).ended();
    assert_eq!(why, "it exited with status 127");
}

#[test]
fn garbage_ends_the_child_and_is_shown() {
    let why = end_of(&polite("echo hello world; echo end; hear"));
    assert!(why.contains("no message of the protocol") && why.ends_with("`hello world`"), "{why}");
    let why = end_of("echo '{\"command\": \"sync\"}'; echo end; read x");
    assert_eq!(why, "it did not begin with its pid: `{\"command\": \"sync\"}`");
    let why = end_of(&polite("exec 1>&-; hear; hear"));
    assert!(why.starts_with("it closed its pipes"), "{why}");
}

#[test]
fn line_without_an_end_takes_no_memory() {
    let limits = Limits { message_bytes_max: 1 << 20, pause_min: Duration::from_secs(60), ..limits() };
    let _alone = ALONE.lock();
    let before = resident_bytes();
    let mut child = Watched::new(&polite("exec head -c 1000000000 /dev/zero"), BOLT, limits);
    child.started();
    assert!(
        child.ended().starts_with("a message has more than 1048576 bytes (evenkeel.message_bytes_max): `")
    );
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
}

#[test]
fn messages_pass_an_inbox_that_is_smaller_than_they_are() {
    let limits = Limits { inbox_bytes_max: 64 << 10, ..limits() };
    let _alone = ALONE.lock();
    let before = resident_bytes();
    let message = r#"{"command": "emit", "tuple": ["aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"]}"#;
    let mut child = Watched::new(&polite(&format!("yes '{message}\nend'")), SPOUT, limits);
    child.started();
    for _ in 0..100_000 {
        assert!(matches!(child.next(), Event::Said(Message::Emit(_))));
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
}

#[test]
fn endless_error_output_is_cut_into_lines_and_takes_no_memory() {
    let _alone = ALONE.lock();
    let before = resident_bytes();
    let script = polite("head -c 100000000 /dev/zero >&2; echo '{\"command\": \"sync\"}'; echo end; exit 0");
    let mut child = Watched::new(&script, SPOUT, limits());
    child.started();
    assert_eq!(child.next(), Event::Said(Message::Sync));
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 32 << 20, "{grown} bytes more");
}

#[test]
fn child_that_answers_no_heartbeat_is_killed() {
    let limits = Limits { timeout: Duration::from_millis(200), ..limits() };
    let mut child = Watched::new(&polite("trap '' TERM; while :; do hear; done"), BOLT, limits);
    child.started();
    assert_eq!(child.ended(), "it did not answer for 200ms (topology.subprocess.timeout.secs)");
    let mut child = Watched::new("while :; do read x; done", BOLT, limits);
    assert!(child.ended().starts_with("it did not answer for 200ms"), "the handshake");
}

#[test]
fn child_that_answers_heartbeats_lives_on() {
    let limits = Limits { timeout: Duration::from_millis(400), ..limits() };
    let script = polite(
        r#"n=0; while [ $n -lt 15 ]; do hear; echo '{"command": "sync"}'; echo end; n=$((n+1)); done; exit 7"#,
    );
    let mut child = Watched::new(&script, BOLT, limits);
    child.started();
    // fifteen heartbeats, one each 40 ms, are longer than the time for an answer
    for _ in 0..15 {
        assert_eq!(child.next(), Event::Said(Message::Sync));
    }
    assert_eq!(child.ended(), "it exited with status 7");
}

#[test]
fn nothing_that_a_child_has_started_is_left() {
    let script = polite(
        r#"sleep 1000 & a=$!; setsid sleep 1000 & b=$!; (setsid sh -c 'sleep 1000; true' &)
           echo '{"command": "log", "msg": "x"}'; echo end; echo '{"command": "emit", "tuple": ['$a', '$b']}'; echo end; hear; exit 0"#,
    );
    let mut child = Watched::new(&script, BOLT, Limits { pause_min: Duration::from_secs(60), ..limits() });
    let life = child.started();
    let Event::Said(Message::Emit(emit)) = child.next() else { panic!("a tuple") };
    let pid = |place| match emit.values.value(place) {
        Some(Ok(topology::value::Value::Int(pid))) => pid.to_string(),
        other => panic!("{other:?}"),
    };
    let pids = [pid(0), pid(1)];
    eventually("they run", || pids.iter().all(|pid| is_there(pid)));
    child.supervisor.tell(life, Asks::default(), |out| speak::heartbeat(Codec::Json, out)).expect("it lives");
    assert_eq!(child.ended(), "it exited with status 0");
    eventually("they are gone", || !pids.iter().any(|pid| is_there(pid)));
    assert!(!has_sleepers(&child), "nor what left the group of the group");
}

/// Whether a process is left whose environment has a mark of a child of this process and this test's command.
fn has_sleepers(_: &Watched) -> bool {
    let own = format!("EVENKEEL_CHILD={}-", std::process::id());
    let entries = std::fs::read_dir("/proc").expect("it is there").flatten();
    let is_sleeper = |path: std::path::PathBuf| {
        let read = |name| std::fs::read(path.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&read("environ")).contains(&own)
            && String::from_utf8_lossy(&read("cmdline")).contains("sleep 1000; true")
            && !String::from_utf8_lossy(&read("cmdline")).contains("hear()")
    };
    entries.map(|entry| entry.path()).any(is_sleeper)
}

#[test]
fn stop_closes_the_input_waits_a_little_and_leaves_nothing() {
    let mark = std::env::temp_dir().join(format!("evenkeel-test-{}", std::process::id()));
    let script =
        polite(&format!("while hear && [ -n \"$said\" ]; do said=; done; echo gone > {}", mark.display()));
    let mut child = Watched::new(&script, BOLT, limits());
    child.started();
    drop(child);
    eventually("it ends by itself", || std::fs::read_to_string(&mark).is_ok_and(|text| text == "gone\n"));
    std::fs::remove_file(&mark).expect("it is there");
    let script =
        polite("trap '' TERM HUP; echo '{\"command\": \"ack\", \"id\": \"'$$'\"}'; echo end; sleep 1000");
    let mut child = Watched::new(&script, BOLT, Limits { grace: Duration::from_millis(50), ..limits() });
    child.started();
    let Event::Said(Message::Ack(pid)) = child.next() else { panic!("its pid") };
    drop(child);
    eventually("it is killed", || !is_there(&pid.to_string()));
}

#[test]
fn component_can_end_its_child_for_what_it_did() {
    let mut child = Watched::new(&polite("hear; hear"), BOLT, limits());
    let life = child.started();
    child.supervisor.end(life, "it did what it may not".into());
    assert_eq!(child.ended(), "it did what it may not");
    assert_eq!(child.started(), life + 1);
}
