//! Ten minutes in which nothing comes: windows, joins and counts of whole topologies are what a plain program's are, and nothing fails. The clock is injected.
//!
//! A connection that had been idle for 30 s failed its next request; with exactly-once all tasks began anew for it.
#![allow(clippy::disallowed_methods, reason = "tests talk to the server")]

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use components::Builtin;
use resp::Value;
use topology::builder::{Code, Factory, Program};
use topology::component::{Bolt, BoltOut, Fault, Outcome, Tuple};
use worker::{Options, Running};

use crate::common::{Server, call, eventually, flux_part, hash, receive};

const KEYS: u64 = 30;
const IDLE: Duration = Duration::from_secs(600);
/// Shorter than `topology.message.timeout.secs`: within a step something may be late by so much.
const STEP: Duration = Duration::from_secs(5);

/// The machine's clocks, ahead by what a test lets pass.
#[derive(Debug, Default)]
struct Ahead(AtomicU64);

impl Ahead {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_nanos() as u64, Ordering::AcqRel);
    }

    fn ahead(&self) -> Duration {
        Duration::from_nanos(self.0.load(Ordering::Acquire))
    }
}

impl Clock for Ahead {
    fn now(&self) -> Nanos {
        SystemClock.now() + self.ahead()
    }

    fn unix_us(&self) -> u64 {
        SystemClock.unix_us() + self.ahead().as_micros() as u64
    }

    fn uptime(&self) -> Nanos {
        SystemClock.uptime() + self.ahead()
    }

    fn boot(&self) -> u128 {
        SystemClock.boot()
    }
}

/// Counts ticks, which come once a second by the clock.
#[derive(Debug)]
struct Beats(Arc<AtomicU64>);

impl Bolt for Beats {
    fn execute(&mut self, _: &Tuple<'_>, _: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        Ok(Outcome::Ack)
    }

    fn tick(&mut self, _: &mut BoltOut<'_>) -> Result<(), Fault> {
        self.0.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }
}

fn definition(guarantee: &str, tasks: u32) -> String {
    let unmatched = "  configMethods: [{name: setNamedStream, args: [unmatched, [source, key, values]]}]\n";
    let join_keys = if guarantee == "exactly-once" { ", --prefix, \"j:\"" } else { "" };
    let spouts = [
        flux_part("ones", "stream-spout, ones", "id, k, t", 1, ""),
        flux_part("lefts", "stream-spout, lefts", "id, k", 1, ""),
        flux_part("rights", "stream-spout, rights", "id, k", 1, ""),
    ];
    let bolts = [
        flux_part(
            "pairs-of",
            "closing-window, --by, k, --id, id, --count, \"2\", --prefix, \"c:\"",
            "start, end, k, n",
            tasks,
            "",
        ),
        flux_part(
            "minutes",
            "closing-window, --by, k, --id, id, --time, t, --size-ms, \"1000\", --prefix, \"m:\"",
            "start, end, k, n",
            tasks,
            "",
        ),
        flux_part("counts", "count, --by, k, --prefix, \"n:\"", "k, n", tasks, ""),
        flux_part(
            "joined",
            &format!("join, lefts, rights, --by, k{join_keys}, --within-ms, \"86400000\""),
            "l, k, r, k2",
            tasks,
            unmatched,
        ),
        flux_part("pairs-out", "key-sink, HSET, pairs-of, \"{k} {start} {end} {n}\", \"1\"", "none", 2, ""),
        flux_part("minutes-out", "key-sink, HSET, minutes, \"{k} {start} {end} {n}\", \"1\"", "none", 2, ""),
        flux_part("joined-out", "key-sink, HINCRBY, joined, \"{k}\", \"1\"", "none", 2, ""),
        flux_part("passed", "key-sink, HSET, passed, \"{id} {k}\", \"1\"", "none", 2, ""),
        flux_part("beats", "key-sink, SADD, beats, \"{k}\"", "none", 1, ""),
    ];
    let streams = [
        "ones pairs-of FIELDS, args: [k]",
        "ones minutes FIELDS, args: [k]",
        "ones counts FIELDS, args: [k]",
        "lefts joined FIELDS, args: [k]",
        "rights joined FIELDS, args: [k]",
        "pairs-of pairs-out SHUFFLE",
        "minutes minutes-out SHUFFLE",
        "joined joined-out SHUFFLE",
        "ones passed SHUFFLE",
        "lefts passed SHUFFLE",
        "rights passed SHUFFLE",
        "ones beats SHUFFLE",
    ];
    let streams = streams.iter().map(|line| {
        let [from, to, grouping] = line.splitn(3, ' ').collect::<Vec<_>>().try_into().expect("three parts");
        format!("- {{from: {from}, to: {to}, grouping: {{type: {grouping}}}}}\n")
    });
    format!(
        "name: it\nconfig: {{evenkeel.guarantee: {guarantee}, topology.tick.tuple.freq.secs: 1}}\nspouts:\n{}bolts:\n{}streams:\n{}",
        spouts.concat(),
        bolts.concat(),
        streams.collect::<String>()
    )
}

/// The topology over a server, in this process.
struct Place {
    _data: tempfile::TempDir,
    port: u16,
    _server: Server,
    clock: Arc<Ahead>,
    beats: Arc<AtomicU64>,
    running: Running,
    put: u64,
    ones: u64,
}

impl Place {
    fn new(guarantee: &str, tasks: u32) -> Self {
        let data = tempfile::tempdir().expect("a folder");
        let server = Server::start(data.path(), &[]);
        let port = server.port;
        let text = definition(guarantee, tasks);
        let properties = BTreeMap::new();
        let variables = flux::Variables { properties: &properties, environment: &|_| None };
        let (definition, _) = flux::read(&text, &variables).expect("it is right");
        let (clock, beats) = (Arc::new(Ahead::default()), Arc::new(AtomicU64::new(0)));
        let mut code = Code::default();
        let url = format!("redis://127.0.0.1:{port}");
        for ((_, component), program) in definition.plan.components().zip(&definition.programs) {
            let words = Builtin::words(&program.command).expect("one of ours");
            let builtin = Builtin::read(words, &|_| Some(url.clone())).expect("it is right");
            let factory = builtin.factory(definition.plan.settings().guarantee);
            code.components.insert(component.id.clone(), factory);
        }
        let counter = Arc::clone(&beats);
        code.components.insert("beats".to_owned(), Factory::bolt(move || Beats(Arc::clone(&counter))));
        let program = Program::new(definition.plan.topology().clone(), code).expect("it is right");
        // One thread has all tasks: when one of them has got its tick, the others have, too.
        let options = Options {
            clock: Arc::clone(&clock) as Arc<dyn Clock>,
            store: Some(connection::Target::local(port)),
            ..Options::with_threads(1)
        };
        let running = Running::start(&program, &options).expect("it starts");
        Self { _data: data, port, _server: server, clock, beats, running, put: 0, ones: 0 }
    }

    fn length(&self, hash: &str) -> u64 {
        match call(self.port, &["HLEN", hash]) {
            Ok(Value::Integer(length)) => length as u64,
            other => panic!("{hash}: {other:?}"),
        }
    }

    /// Puts entries with a key and a time into streams, and waits until they have passed.
    fn put(&mut self, entries: &[(&str, String, u64)]) {
        let mut connection = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("it connects");
        let mut requests = Vec::new();
        for (stream, k, t) in entries {
            resp::encode_command(&mut requests, &["XADD", stream, "*", "k", k, "t", &t.to_string()]);
        }
        connection.write_all(&requests).expect("it is sent");
        entries.iter().for_each(|_| assert!(matches!(receive(&mut connection), Ok(Value::Bulk(_)))));
        self.put += entries.len() as u64;
        self.ones += entries.iter().filter(|(stream, ..)| *stream == "ones").count() as u64;
        // A reply that is on its way would come minutes late.
        let acked = |id: &str| self.running.stats().component(id).map_or(0, |it| it.acked);
        let is_done = || {
            let each = ["pairs-of", "minutes", "counts"].iter().all(|id| acked(id) == self.ones);
            each && acked("passed") == self.put && self.is_quiet()
        };
        eventually(&format!("all {} have passed, not {}", self.put, acked("passed")), is_done);
    }

    /// Whether what windows and joins have emitted is written.
    fn is_quiet(&self) -> bool {
        let stats = self.running.stats();
        let sinks =
            ["pairs-out", "minutes-out", "joined-out"].map(|id| stats.component(id).expect("it is there"));
        sinks.iter().all(|sink| {
            let emitted = stats.components.iter().flat_map(|it| &it.edges);
            emitted.filter(|edge| edge.to == sink.id).map(|edge| edge.transferred).sum::<u64>() == sink.acked
        })
    }

    /// Ten minutes pass, in which nothing comes.
    fn rest(&self) {
        for _ in 0..IDLE.as_secs() / STEP.as_secs() {
            let before = self.beats.load(Ordering::Acquire);
            self.clock.pass(STEP);
            // Threads that wait look at the clock.
            assert!(self.running.activate());
            eventually("the time has passed for the tasks", || self.beats.load(Ordering::Acquire) > before);
        }
    }

    /// Nothing was lost, failed or begun anew.
    fn check(&self, when: &str) {
        for component in &self.running.stats().components {
            let wrong = (component.failed, component.faults, component.restarts);
            assert_eq!(
                wrong,
                (0, 0, 0),
                "{when}: {} of {}",
                component.last_error.as_deref().unwrap_or_default(),
                component.id
            );
        }
        assert_eq!(
            call(self.port, &["EXISTS", "topology:it:dead-letters"]).expect("a reply"),
            Value::Integer(0)
        );
    }
}

fn key(k: u64) -> String {
    format!("k{k}")
}

fn rests(guarantee: &str, tasks: u32) {
    let mut place = Place::new(guarantee, tasks);
    let entries = |part: u64| {
        let ones = (0..KEYS).map(move |k| ("ones", key(k), part * 100 + k));
        let (from, to) = if part == 0 { ("lefts", part) } else { ("rights", part - 1) };
        let partners = (0..KEYS).map(move |k| (from, format!("{to}-{k}"), 0));
        ones.chain(partners).collect::<Vec<_>>()
    };
    place.put(&entries(0));
    place.rest();
    place.check("after the first rest");
    place.put(&entries(1));
    let whole = || ["pairs-of", "joined"].map(|hash| place.length(hash)) == [KEYS, KEYS];
    eventually("windows of two, and pairs", whole);
    place.rest();
    place.check("after the second rest");
    // They are behind the end of all windows.
    place.put(&(0..4 * KEYS).map(|k| ("ones", format!("last{k}"), 5_000)).collect::<Vec<_>>());
    eventually("windows by time", || place.length("minutes") == KEYS);
    place.check("at the end");
    let windows = |name: &str| hash(place.port, name).into_keys().collect::<Vec<_>>();
    let plain = |end: &str| {
        let mut rows: Vec<String> = (0..KEYS).map(|k| format!("{} 0 {end} 2", key(k))).collect();
        rows.sort();
        rows
    };
    assert_eq!((windows("pairs-of"), windows("minutes")), (plain("2"), plain("1000")));
    let counts = hash(place.port, "n:count");
    assert!((0..KEYS).all(|k| counts[&key(k)] == "2"), "{counts:?}");
    assert!(hash(place.port, "joined").values().all(|times| times == "1"), "each pair once");
    assert!(place.running.kill(Duration::from_secs(10)).is_finished);
}

#[test]
fn topology_goes_on_after_ten_idle_minutes() {
    (2..=4).for_each(|tasks| rests("at-least-once", tasks));
}

#[test]
fn with_exactly_once_a_topology_goes_on_after_ten_idle_minutes() {
    (2..=4).for_each(|tasks| rests("exactly-once", tasks));
}
