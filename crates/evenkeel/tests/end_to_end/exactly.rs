//! Exactly-once with components in Rust over a real server: state, tuples that fail, components that panic, a store that goes away.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use resp::Value as Reply;
use topology::builder::TopologyBuilder;
use topology::changes::StateKey;
use topology::component::{Bolt, BoltOut, Fault, Next, Outcome, Spout, SpoutOut, Tuple};
use topology::definition::Guarantee;
use topology::tracker::Position;
use topology::values;
use worker::{Options, Running};

use crate::common::{self, Server, call, eventually};

const END: u64 = 5_000;

/// Emits the numbers from 1 to [`END`].
struct Numbers {
    next: u64,
    /// Calls of all spouts; some of them fail or panic when they have emitted.
    calls: Option<Arc<AtomicU64>>,
}

/// Counts numbers by their rest, in state; calls `before` first.
struct Count<F>(F);

impl Spout for Numbers {
    fn seek(&mut self, after: Option<Position>) -> Result<(), Fault> {
        self.next = after.map_or(1, |Position(after)| after as u64 + 1);
        Ok(())
    }

    fn next_tuple(&mut self, out: &mut SpoutOut<'_>) -> Result<Next, Fault> {
        if self.next > END {
            return Ok(Next::Woken);
        }
        out.emit(Position(self.next.into()), &values![self.next as i64])?;
        self.next += 1;
        match self.calls.as_ref().map(|calls| calls.fetch_add(1, Ordering::Relaxed)) {
            Some(100) => Err(Fault::new("a spout may fail when it has emitted")),
            Some(101) => panic!("and panic then"),
            _ => Ok(Next::Now),
        }
    }
}

impl<F: FnMut(u64) -> Result<(), Fault> + Send> Bolt for Count<F> {
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let number = tuple.int("n")? as u64;
        let key = StateKey::of_field("counts", (number % RESTS).to_string());
        let count = out
            .get(&key)?
            .map_or(Ok(0), |text| std::str::from_utf8(&text)?.parse::<u64>().map_err(Fault::from))?;
        (self.0)(number)?;
        out.set(key, Some((count + 1).to_string().into()))?;
        out.command(vec!["XADD".into(), "seen".into(), "*".into(), "n".into(), number.to_string().into()])?;
        Ok(Outcome::Ack)
    }
}

const RESTS: u64 = 7;

/// Runs the topology `name` over the server at `port`.
fn run<F>(name: &str, port: u16, before: F) -> Running
where
    F: FnMut(u64) -> Result<(), Fault> + Clone + Send + Sync + 'static,
{
    let mut builder = TopologyBuilder::new(name);
    let settings = builder.settings();
    // A tuple that is given up is written down with the epoch that passes it: a few may be before it that fail, too.
    let pending = if name == "typed" { 2 } else { 100 };
    (settings.guarantee, settings.max_spout_pending) = (Guarantee::ExactlyOnce, pending);
    let calls = (name == "spouts").then(|| Arc::new(AtomicU64::new(0)));
    builder.set_spout("numbers", move || Numbers { next: 0, calls: calls.clone() }).outputs(&["n"]);
    builder.set_bolt("count", move || Count(before.clone())).shuffle("numbers");
    let store = Some(connection::Target::local(port));
    Running::start(&builder.build().expect("it is right"), &Options { store, ..Options::with_threads(2) })
        .expect("it starts")
}

fn number(port: u16, command: &[&str]) -> u64 {
    match call(port, command) {
        Ok(Reply::Integer(number)) => number as u64,
        Ok(Reply::Bulk(text)) => String::from_utf8_lossy(&text).parse().expect("a number"),
        other => panic!("{command:?}: {other:?}"),
    }
}

/// The counts, and what they are if each number but `skipped` counted once.
fn counts(port: u16, skipped: &[u64]) -> (BTreeMap<u64, u64>, BTreeMap<u64, u64>) {
    let due = |rest| (1..=END).filter(|n| n % RESTS == rest && !skipped.contains(n)).count() as u64;
    let seen = |rest: u64| number(port, &["HGET", "counts", &rest.to_string()]);
    ((0..RESTS).map(|rest| (rest, seen(rest))).collect(), (0..RESTS).map(|rest| (rest, due(rest))).collect())
}

fn server() -> (tempfile::TempDir, Server) {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(&dir.path().join("data"), &[]);
    (dir, server)
}

#[test]
fn failures_and_panics_change_nothing_and_poison_is_a_dead_letter() {
    let (_dir, server) = server();
    let port = server.port;
    let calls = Arc::new(AtomicU64::new(0));
    let running = run("faulty", port, move |number| {
        match calls.fetch_add(1, Ordering::Relaxed) {
            1_000 => panic!("a bolt may panic"),
            call if call % 1_500 == 1_499 => return Err(Fault::silent("not now")),
            _ => {}
        }
        if number == 4_321 { Err(Fault::new("never")) } else { Ok(()) }
    });
    eventually("all numbers are counted", || number(port, &["XLEN", "seen"]) == END - 1);
    let (seen, due) = counts(port, &[4_321]);
    assert_eq!(seen, due);
    assert_eq!(number(port, &["HGET", "topology:faulty:epochs", "position:numbers:0/1"]), END);
    assert_eq!(number(port, &["XLEN", "topology:faulty:dead-letters"]), 1);
    let letter =
        format!("{:?}", call(port, &["XRANGE", "topology:faulty:dead-letters", "-", "+"]).expect("a letter"));
    let bulk = |text: &str| format!("{:?}", text.as_bytes().to_vec());
    for part in ["numbers", "4321", "count", "never", "field:n"] {
        assert!(letter.contains(&bulk(part)[1..bulk(part).len() - 1]), "{part} in {letter}");
    }
    assert!(running.kill(std::time::Duration::from_secs(10)).is_finished);
}

/// The spout's next one began before what the last call had emitted: the positions did not grow, and the thread of the tasks ended.
#[test]
fn spout_that_fails_and_panics_when_it_has_emitted_goes_on_behind_that() {
    let (_dir, server) = server();
    let port = server.port;
    let running = run("spouts", port, |_| Ok(()));
    eventually("all numbers are counted", || number(port, &["XLEN", "seen"]) == END);
    assert_eq!(running.stats().component("numbers").map(|spout| spout.restarts), Some(1));
    let (seen, due) = counts(port, &[]);
    assert_eq!(seen, due);
    assert!(running.kill(std::time::Duration::from_secs(10)).is_finished);
}

/// The dead letters at a key, as their fields.
fn letters(port: u16, key: &str, count: &str) -> Vec<BTreeMap<String, String>> {
    let reply = call(port, &["XRANGE", key, "-", "+", "COUNT", count]).expect("letters");
    let items = |value: &Reply| match value {
        Reply::Array(items) => items.clone(),
        other => panic!("{other:?}"),
    };
    let text = |value: &Reply| match value {
        Reply::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        other => panic!("{other:?}"),
    };
    let fields = |letter: &Reply| items(&items(letter)[1]);
    let letter =
        |letter: &Reply| fields(letter).chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect();
    items(&reply).iter().map(letter).collect()
}

/// The letter had the command alone: nobody could tell which tuple it came from, nor send that back.
#[test]
fn tuple_of_a_command_that_the_server_refuses_is_a_dead_letter_and_the_others_are_there() {
    let (_dir, server) = server();
    let port = server.port;
    assert!(call(port, &["SET", "seen", "no stream"]).is_ok());
    let running = run("refused", port, |_| Ok(()));
    eventually("all are refused", || number(port, &["XLEN", "topology:refused:dead-letters"]) == END);
    let (seen, due) = counts(port, &[]);
    assert_eq!(seen, due);
    // In any order: some tuples wait for state.
    for letter in letters(port, "topology:refused:dead-letters", "50") {
        let n = letter["field:n"].clone();
        let command = format!("XADD seen * n {n}");
        let expected = [
            ("spout", "numbers"),
            ("position", &n),
            ("component", "count"),
            ("attempts", "1"),
            ("command", &command),
        ];
        for (field, value) in expected {
            assert_eq!(letter.get(field).map(String::as_str), Some(value), "{field} of {letter:?}");
        }
        assert!(letter["error"].starts_with("WRONGTYPE"), "{letter:?}");
    }
    let stats = running.stats();
    let error = stats.component("numbers").and_then(|spout| spout.last_error.clone()).unwrap_or_default();
    assert!(error.contains("the store refused XADD") && error.contains("WRONGTYPE"), "{error}");
}

/// Has the server execute what it makes of a number.
struct Write<F>(F);

impl<F: FnMut(u64) -> Vec<&'static str> + Send> Bolt for Write<F> {
    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let number = tuple.int("n")? as u64;
        let words = (self.0)(number).into_iter().map(Into::into).collect();
        out.command(words)?;
        out.command(vec!["SADD".into(), "seen".into(), number.to_string().into()])?;
        Ok(Outcome::Ack)
    }
}

/// All began anew for ever, once a second: EXEC fails as a whole for a command that is not queued.
#[test]
fn tuple_of_a_command_that_is_not_queued_is_a_dead_letter_and_epochs_that_are_too_large_become_smaller() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server =
        Server::start(&dir.path().join("data"), &["--value-max", "64KiB", "--transaction-max", "64KiB"]);
    let port = server.port;
    let large: &'static str = "x".repeat(100_000).leak();
    let some: &'static str = "x".repeat(5_000).leak();
    let mut builder = TopologyBuilder::new("unqueued");
    let settings = builder.settings();
    (settings.guarantee, settings.max_spout_pending) = (Guarantee::ExactlyOnce, 100);
    builder.set_spout("numbers", || Numbers { next: 0, calls: None }).outputs(&["n"]);
    let words = move |number| match number {
        100 => vec!["GET"],
        200 => vec!["NO.SUCH", "command"],
        300 => vec!["SET", "large", large],
        1_000..1_100 => vec!["XADD", "some", "*", "v", some],
        _ => vec!["INCR", "others"],
    };
    builder.set_bolt("write", move || Write(words)).shuffle("numbers");
    let options = Options { store: Some(connection::Target::local(port)), ..Options::with_threads(2) };
    let running = Running::start(&builder.build().expect("it is right"), &options).expect("it starts");
    let error = || {
        let stats = running.stats();
        let error = stats.component("numbers").and_then(|spout| spout.last_error.clone());
        error.unwrap_or_default()
    };
    let seen = || number(port, &["SCARD", "seen"]);
    eventually(&format!("all are seen, not {} ({})", seen(), error()), || seen() == END);
    assert_eq!(number(port, &["GET", "others"]), END - 103, "each once");
    assert_eq!(number(port, &["XLEN", "some"]), 100, "each once");
    assert_eq!(number(port, &["EXISTS", "large"]), 0);
    let letters = letters(port, "topology:unqueued:dead-letters", "10");
    let numbers: Vec<&str> = letters.iter().map(|letter| &*letter["field:n"]).collect();
    assert_eq!(numbers, ["100", "200", "300"]);
    for (letter, error) in letters.iter().zip(["wrong number of arguments", "unknown command", "value.max"]) {
        assert!(letter["error"].contains(error) && letter["component"] == "write", "{letter:?}");
    }
    let command = &letters[2]["command"];
    assert!(command.starts_with("SET large xxx") && command.ends_with("... (100000 B)"), "{command}");
    assert!(running.kill(std::time::Duration::from_secs(10)).is_finished);
}

#[test]
fn second_runner_of_a_topology_does_not_count_twice() {
    let (_dir, server) = server();
    let port = server.port;
    let has_other_begun = Arc::new(AtomicBool::new(false));
    let (wait, begun) = (Arc::clone(&has_other_begun), has_other_begun);
    let one = run("twice", port, move |number| {
        // In the middle of an epoch, with others behind it that are durable.
        while number == END / 2 && !wait.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(())
    });
    eventually("the first one counts", || number(port, &["XLEN", "seen"]) > 0);
    let other = run("twice", port, move |_| {
        begun.store(true, Ordering::Release);
        Ok(())
    });
    eventually("all numbers are counted", || number(port, &["XLEN", "seen"]) == END);
    let error =
        |running: &Running| running.stats().component("numbers").and_then(|spout| spout.last_error.clone());
    eventually("the first one is told", || {
        error(&one).is_some_and(|error| error.contains("does it run twice?"))
    });
    drop((one, other));
    let (seen, due) = counts(port, &[]);
    assert_eq!((seen, number(port, &["XLEN", "seen"])), (due, END));
}

#[test]
fn state_that_is_of_another_type_fails_its_tuples_alone() {
    let (_dir, server) = server();
    let port = server.port;
    assert!(call(port, &["SET", "counts", "no hash"]).is_ok());
    let running = run("typed", port, |_| Ok(()));
    let error = || {
        running.stats().component("numbers").and_then(|spout| spout.last_error.clone()).unwrap_or_default()
    };
    let letters = || number(port, &["XLEN", "topology:typed:dead-letters"]);
    eventually(&format!("tuples are given up ({})", error()), || letters() >= 5);
    let letter =
        call(port, &["XRANGE", "topology:typed:dead-letters", "-", "+", "COUNT", "1"]).expect("a letter");
    let wrong = format!("{:?}", b"WRONGTYPE".to_vec());
    assert!(format!("{letter:?}").contains(&wrong[1..wrong.len() - 1]), "{letter:?}");
    assert_eq!(number(port, &["DEL", "counts"]), 1);
    eventually("it goes on", || number(port, &["XLEN", "seen"]) > 0);
}

#[test]
fn bolt_that_fails_each_tuple_is_made_anew_less_and_less_often_and_it_is_said_why() {
    let (_dir, server) = server();
    let port = server.port;
    let is_well = Arc::new(AtomicBool::new(false));
    let well = Arc::clone(&is_well);
    let running = run("failing", port, move |_| {
        if well.load(Ordering::Acquire) { Ok(()) } else { Err(Fault::silent("not yet")) }
    });
    let error = || {
        running.stats().component("numbers").and_then(|spout| spout.last_error.clone()).unwrap_or_default()
    };
    let said = "times in a row they began anew and nothing came of it, the last time because a tuple failed at `count`: not yet";
    eventually("it is said", || error().starts_with("all tasks wait for ") && error().ends_with(said));
    is_well.store(true, Ordering::Release);
    eventually("it goes on", || number(port, &["XLEN", "seen"]) == END);
    let (seen, due) = counts(port, &[]);
    assert_eq!(seen, due);
}

#[test]
fn letters_go_back_to_their_stream_and_the_others_stay() {
    let (_dir, server) = server();
    let port = server.port;
    let add = |words: &[&str]| {
        let words = [&["XADD", "letters", "*"], words].concat();
        assert!(matches!(call(port, &words), Ok(Reply::Bulk(_))), "{words:?}");
    };
    for n in ["1", "2"] {
        add(&["stream", "orders", "error", "no such product", "field:product", "tea", "field:n", n]);
    }
    add(&["stream", "orders", "error", "timed out", "field:n", "3"]);
    add(&["spout", "orders", "error", "no such product", "component", "count", "field:n", "4"]);
    add(&["error", "no such product", "command", "XADD seen * n 5"]);
    let url = format!("redis://127.0.0.1:{port}");
    let replay = |more: &[&str]| {
        let mut command = common::evenkeel();
        common::finished(command.args(["topology", "replay", "letters", "--url", &url]).args(more))
    };
    let product = ["--error", "no such product"];
    let (status, said) = replay(&[&product[..], &["--dry-run"]].concat());
    assert!(status == 0 && said.starts_with("2 letters would be sent back\n"), "{said}");
    assert_eq!(number(port, &["XLEN", "letters"]), 5);
    let (status, said) = replay(&[&product[..], &["--count", "1"]].concat());
    assert!(status == 0 && said.starts_with("1 letter sent back\n"), "{said}");
    let (status, said) = replay(&product);
    assert_eq!(status, 0, "{said}");
    for part in ["1 letter sent back", "1 letter left: they do not match", "are commands", "with --to"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!((number(port, &["XLEN", "orders"]), number(port, &["XLEN", "letters"])), (2, 3));
    let entries = format!("{:?}", call(port, &["XRANGE", "orders", "-", "+"]).expect("entries"));
    let bulk = |text: &str| format!("{:?}", Reply::Bulk(text.as_bytes().to_vec()));
    for part in ["product", "tea", "n", "1", "2"] {
        assert!(entries.contains(&bulk(part)), "{part} in {entries}");
    }
    assert!(call(port, &["SET", "no-stream", "x"]).is_ok());
    let (status, said) = replay(&["--to", "no-stream"]);
    assert!(status != 0 && said.contains("WRONGTYPE"), "{said}");
    assert_eq!(number(port, &["XLEN", "letters"]), 3, "nothing is lost");
    let (status, said) = replay(&["--component", "count", "--to", "again"]);
    assert!(status == 0 && said.starts_with("1 letter sent back\n"), "{said}");
    assert_eq!((number(port, &["XLEN", "again"]), number(port, &["XLEN", "letters"])), (1, 2));
    let (status, said) = replay(&["--to", "letters"]);
    assert!(status == 0 && said.starts_with("1 letter sent back\n"), "what is new is left alone: {said}");
}
