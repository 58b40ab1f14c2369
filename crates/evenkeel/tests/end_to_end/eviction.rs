//! Eviction through the shipped binary: a cache that forgets as `maxmemory-policy` says.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::io::Write as _;
use std::net::{Ipv4Addr, TcpStream};
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use resp::Value;

use crate::common::{Server, bulk, eventually, ok, receive};

const VALUE: &str =
    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789";

fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket option");
    stream
}

/// Sends `commands` in one write; returns the replies.
fn pipeline(stream: &mut TcpStream, commands: &[Vec<String>]) -> Vec<Value> {
    let mut request = Vec::new();
    for command in commands {
        let command: Vec<&str> = command.iter().map(String::as_str).collect();
        resp::encode_command(&mut request, &command);
    }
    stream.write_all(&request).expect("sent");
    commands.iter().map(|_| receive(stream).expect("a reply")).collect()
}

fn command(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// A field of INFO.
fn figure(server: &Server, field: &str) -> u64 {
    let Value::Bulk(text) = server.call(&["info", "everything"]) else { panic!("INFO") };
    let text = String::from_utf8(text).expect("text");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{field} in {text}")).parse().expect("a number")
}

/// Sets keys `name`0 and on, `count` of them; returns how many were refused.
fn fill(stream: &mut TcpStream, name: &str, count: usize, ttl: Option<&str>) -> usize {
    let value = VALUE.repeat(10);
    let mut refused = 0;
    for first in (0..count).step_by(500) {
        let sets = (first..count.min(first + 500)).map(|n| {
            let mut set = command(&["set", &format!("{name}{n}"), &value]);
            ttl.into_iter().for_each(|ttl| set.extend(command(&["ex", ttl])));
            set
        });
        let replies = pipeline(stream, &sets.collect::<Vec<_>>());
        refused += replies.iter().filter(|reply| **reply != ok()).count();
    }
    refused
}

/// Whether each of the keys `name`0 and on is there.
fn found(stream: &mut TcpStream, name: &str, count: usize) -> Vec<bool> {
    let gets: Vec<_> = (0..count).map(|n| command(&["get", &format!("{name}{n}")])).collect();
    let replies = gets.chunks(500).flat_map(|gets| pipeline(stream, gets));
    replies.map(|reply| matches!(reply, Value::Bulk(_))).collect()
}

fn kept(stream: &mut TcpStream, name: &str, count: usize) -> usize {
    found(stream, name, count).into_iter().filter(|found| *found).count()
}

#[test]
fn engine_memory_evicts_at_its_limit_by_each_policy() {
    for (policy, ttl) in [
        ("allkeys-lru", None),
        ("allkeys-lfu", None),
        ("allkeys-random", None),
        ("volatile-lru", Some("1000")),
        ("volatile-lfu", Some("1000")),
        ("volatile-random", Some("1000")),
        ("volatile-ttl", Some("1000")),
    ] {
        let dir = tempfile::tempdir().expect("a folder for the test");
        let policy_argument = format!("--memory-policy={policy}");
        let arguments = ["--engine=memory", "--memory-limit=16MiB", &policy_argument];
        let server = Server::start(dir.path(), &arguments);
        let mut stream = connect(&server);
        assert_eq!(fill(&mut stream, "k", 20_000, ttl), 0, "{policy}");
        // it may still evict
        eventually(&format!("all keys are there or were evicted: {policy}"), || {
            let evicted = i64::try_from(figure(&server, "evicted_keys")).expect("few");
            server.call(&["dbsize"]) == Value::Integer(20_000 - evicted)
        });
        let evicted = figure(&server, "evicted_keys");
        assert!(figure(&server, "used_memory") <= 16 << 20, "{policy}");
        assert!(evicted < 8_000, "{policy}: {evicted} evicted of 20,000, where more than 12,000 fit");
        if ttl.is_some() {
            assert_eq!(fill(&mut stream, "stays", 8_000, None), 0, "{policy}: those with an expiry go");
            assert_eq!(kept(&mut stream, "stays", 8_000), 8_000, "{policy}");
            assert!(fill(&mut stream, "more", 12_000, None) > 0, "{policy}: nothing is left to evict");
        }
    }
}

/// EXEC with 10 MB of small values was refused at a limit of 64 MiB, 16 times of 20: what it stores was counted before it was made and while it was, and
/// keys went for one of these. With values of 100 and 1,000 B it still was: what each effect takes beside its value was not counted. On a machine that is
/// busy with much else one in eighty is refused still, when keys do not go as fast as replies wait.
#[test]
fn transaction_with_many_values_evicts_keys_for_all_of_them() {
    let dir = tempfile::tempdir().expect("a folder");
    let arguments = ["--engine", "memory", "--memory-limit", "64MiB", "--memory-policy", "allkeys-lru"];
    let server = Server::start(dir.path(), &arguments);
    let mut stream = connect(&server);
    assert_eq!(fill(&mut stream, "before", 80_000, None), 0, "keys go");
    let mut refused = Vec::new();
    for (round, value_bytes) in [100, 800, 5_000, 20_000, 60_000, 100, 800, 5_000].into_iter().enumerate() {
        let value = "v".repeat(value_bytes);
        let count = (8_000_000 / value_bytes).min(10_000);
        let mut commands = vec![command(&["multi"])];
        commands.extend((0..count).map(|n| command(&["set", &format!("{round}:{n}"), &value])));
        commands.push(command(&["exec"]));
        let replies = pipeline(&mut stream, &commands);
        match replies.last() {
            Some(Value::Error(why)) => {
                refused.push((value_bytes, String::from_utf8_lossy(why).into_owned()));
                let again = pipeline(&mut stream, &commands);
                assert_eq!(
                    again.last(),
                    Some(&Value::Array(vec![ok(); count])),
                    "{value_bytes} B each, again"
                );
            }
            replied => assert!(replied == Some(&Value::Array(vec![ok(); count])), "{value_bytes} B each"),
        }
    }
    assert!(refused.len() <= 1, "{refused:?}");
}

#[test]
fn policy_is_changed_at_run_time_and_use_is_told() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let server = Server::start(dir.path(), &["--engine=memory", "--memory-limit=16MiB"]);
    let mut stream = connect(&server);
    assert!(fill(&mut stream, "k", 20_000, None) > 0, "noeviction is the default");
    let policy = |name: &str| server.call(&["config", "set", "maxmemory-policy", name]);
    assert_eq!(policy("allkeys-LFU"), ok());
    assert!(
        matches!(policy("allkeys-mru"), Value::Error(text) if String::from_utf8_lossy(&text).contains("allkeys-lfu"))
    );
    let shown = server.call(&["config", "get", "maxmemory-policy"]);
    assert_eq!(shown, Value::Array(vec![bulk("maxmemory-policy"), bulk("allkeys-lfu")]));
    assert_eq!(fill(&mut stream, "more", 20_000, None), 0);
    assert!(figure(&server, "evicted_keys") > 10_000);

    assert_eq!(server.call(&["set", "used", "v"]), ok());
    let gets = vec![command(&["get", "used"]); 1_000];
    drop(pipeline(&mut stream, &gets));
    let Value::Integer(often) = server.call(&["object", "freq", "used"]) else { panic!("a count") };
    assert!(often > 8, "{often} after 1,000 uses");
    assert!(
        matches!(server.call(&["object", "idletime", "used"]), Value::Error(text) if String::from_utf8_lossy(&text).contains("LFU"))
    );
    assert_eq!(server.call(&["object", "freq", "absent"]), Value::Null);

    // who does not touch is not counted, but for TOUCH
    assert_eq!(policy("volatile-lru"), ok());
    let idle = || match server.call(&["object", "idletime", "used"]) {
        Value::Integer(seconds) => Some(seconds),
        _ => None,
    };
    let deadline = Instant::now() + Duration::from_secs(20);
    while idle() != Some(1) {
        assert!(Instant::now() < deadline, "{:?}", server.call(&["object", "idletime", "used"]));
        std::thread::sleep(Duration::from_millis(20));
    }
    let quiet =
        ["client no-touch on", "get used", "exists used", "ttl used", "type used", "object encoding used"];
    let quiet: Vec<_> = quiet.iter().map(|line| command(&line.split(' ').collect::<Vec<_>>())).collect();
    drop(pipeline(&mut stream, &quiet));
    assert!(idle() >= Some(1));
    drop(pipeline(&mut stream, &[command(&["touch", "used"])]));
    assert_eq!(idle(), Some(0));
}

/// Engine `log`: values go to disk first, and keys when the log may come to more than its limit.
#[test]
fn engine_log_evicts_at_the_limit_of_the_disk_and_what_went_stays_gone_after_kill() {
    let dir = tempfile::tempdir().expect("a folder for the test");
    let arguments = [
        "--memory-limit=16MiB",
        "--memory-policy=allkeys-lru",
        "--store-disk-limit=32MiB",
        "--journal-segment-size=2MiB",
    ];
    let server = Server::start(dir.path(), &arguments);
    let mut stream = connect(&server);
    assert_eq!(fill(&mut stream, "k", 40_000, None), 0);
    assert!(figure(&server, "evicted_keys") > 15_000, "40 MB do not fit 32 MiB");
    let before = found(&mut stream, "k", 40_000);
    let count = before.iter().filter(|found| **found).count();
    assert!(count > 7_000, "{count} of about 15,000 kept");
    server.signal(libc::SIGKILL);
    drop(server.end());

    let server = Server::start(dir.path(), &arguments);
    let mut stream = connect(&server);
    let after = found(&mut stream, "k", 40_000);
    let back = before.iter().zip(&after).filter(|(before, after)| **after && !**before).count();
    assert_eq!(back, 0, "keys that were seen to be gone are there again");
    assert_eq!(fill(&mut stream, "again", 2_000, None), 0);
}

/// Each key is set once, and read by others: what was told to be gone never comes back, whenever the server dies.
#[test]
fn keys_that_were_seen_to_be_gone_stay_gone_over_kills_under_load() {
    const CYCLES: usize = 3;
    let dir = tempfile::tempdir().expect("a folder for the test");
    let arguments = [
        "--memory-limit=16MiB",
        "--memory-policy=allkeys-random",
        "--store-disk-limit=16MiB",
        "--journal-segment-size=1MiB",
    ];
    // of each key: 0 not acknowledged, 1 acknowledged, 2 seen to be gone after that
    let states: Vec<AtomicU8> = (0..200_000).map(|_| AtomicU8::new(0)).collect();
    let next = AtomicUsize::new(0);
    for cycle in 0..CYCLES {
        let server = Server::start(dir.path(), &arguments);
        let mut stream = connect(&server);
        let (mut back, mut gone) = (0, 0);
        let newest = next.load(SeqCst);
        for (found, state) in found(&mut stream, "k", newest).into_iter().zip(&states) {
            back += usize::from(found && state.load(SeqCst) == 2);
            gone += usize::from(state.load(SeqCst) == 2);
        }
        assert_eq!(back, 0, "cycle {cycle}: of {gone} keys that were seen to be gone, so many came back");
        assert!(
            cycle < 2 || gone > 300,
            "cycle {cycle}: {gone} keys were seen to be gone: too few to show anything"
        );
        std::thread::scope(|scope| {
            for worker in 0..4 {
                let (states, next, mut stream) = (&states, &next, connect(&server));
                scope.spawn(move || while turn(worker, &mut stream, states, next).is_ok() {});
            }
            let evicted = figure(&server, "evicted_keys");
            let deadline = Instant::now() + Duration::from_secs(30);
            while figure(&server, "evicted_keys") < evicted + 4_000 {
                assert!(Instant::now() < deadline, "nothing is evicted");
                std::thread::sleep(Duration::from_millis(20));
            }
            server.signal(libc::SIGKILL);
        });
        drop(server.end());
    }
}

/// Sets some new keys and reads some older ones; ends when the server does.
fn turn(
    worker: usize,
    stream: &mut TcpStream,
    states: &[AtomicU8],
    next: &AtomicUsize,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    let first = next.fetch_add(16, SeqCst);
    assert!(first + 16 <= states.len(), "more keys than were thought of");
    let read: Vec<usize> =
        (1..17).map(|n| ((first + worker) * n).wrapping_mul(2_654_435_761) % (first + 1)).collect();
    let value = VALUE.repeat(10);
    for n in first..first + 16 {
        resp::encode_command(&mut request, &["set", &format!("k{n}"), &value]);
    }
    // what had been acknowledged before the read
    let known: Vec<bool> = read.iter().map(|n| states[*n].load(SeqCst) == 1).collect();
    read.iter().for_each(|n| resp::encode_command(&mut request, &["get", &format!("k{n}")]));
    stream.write_all(&request)?;
    for state in &states[first..first + 16] {
        if receive(stream)? == ok() {
            state.store(1, SeqCst);
        }
    }
    for (n, known) in read.into_iter().zip(known) {
        if receive(stream)? == Value::Null && known {
            states[n].store(2, SeqCst);
        }
    }
    Ok(())
}

/// Keys go while their values are read from disk for a command: it finds the value or nothing, and never fails or waits for ever.
#[test]
fn commands_on_cold_keys_that_are_evicted_meanwhile_answer_with_the_value_or_nothing() {
    const KEYS: usize = 40_000;
    let dir = tempfile::tempdir().expect("a folder for the test");
    let arguments = [
        "--memory-limit=16MiB",
        "--memory-policy=allkeys-random",
        "--store-disk-limit=64MiB",
        "--journal-segment-size=2MiB",
    ];
    let server = Server::start(dir.path(), &arguments);
    assert_eq!(fill(&mut connect(&server), "k", KEYS, None), 0);
    let (evicted, fetches) = (figure(&server, "evicted_keys"), figure(&server, "journal_fetches"));
    let have_read = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let filler = scope.spawn(|| {
            let mut stream = connect(&server);
            while have_read.load(SeqCst) < READERS {
                assert_eq!(fill(&mut stream, "k", KEYS / 8, None), 0);
                assert_eq!(fill(&mut stream, "other", KEYS / 8, None), 0);
            }
        });
        for reader in 0..READERS {
            let (have_read, mut stream) = (&have_read, connect(&server));
            scope.spawn(move || {
                let _ends = Ends(have_read);
                let mut lengths = vec![0; APPENDED];
                (0..300).for_each(|round| read_cold(reader, round, &mut stream, KEYS, &mut lengths));
            });
        }
        filler.join().expect("sets are accepted");
    });
    let evicted = figure(&server, "evicted_keys") - evicted;
    let fetches = figure(&server, "journal_fetches") - fetches;
    println!("{evicted} keys evicted, {fetches} fetches");
    assert!(
        evicted > 5_000 && fetches > 1_000,
        "{evicted} evicted, {fetches} fetches: too few to show anything"
    );
    assert_eq!(figure(&server, "journal_fetches_given_up"), 0);
}

/// Counts a reader that has ended, one way or the other.
struct Ends<'a>(&'a AtomicUsize);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

const READERS: usize = 4;
/// Keys that one reader appends to.
const APPENDED: usize = 500;

/// GET, MGET, APPEND, and all of them in EXEC, on keys that may go at any time. `lengths`: of this reader's own keys, as last told.
fn read_cold(reader: usize, round: usize, stream: &mut TcpStream, keys: usize, lengths: &mut [usize]) {
    let any =
        |n: usize| format!("k{}", (round * 31 + reader * 7 + n * 977).wrapping_mul(2_654_435_761) % keys);
    let at = |n: usize| (round * 5 + n) % APPENDED;
    let own = |n: usize| format!("own{reader}:{}", at(n));
    let part = VALUE.repeat(5);
    let mut commands: Vec<_> = (0..4).map(|n| command(&["get", &any(n)])).collect();
    commands.push(command(&["mget", &any(4), &any(5), &any(6)]));
    commands.extend((0..2).map(|n| command(&["append", &own(n), &part])));
    commands.push(command(&["multi"]));
    commands.extend([command(&["get", &any(7)]), command(&["append", &own(2), &part])]);
    commands.extend([command(&["get", &own(2)]), command(&["mget", &any(8), &any(9)]), command(&["exec"])]);
    let mut replies = pipeline(stream, &commands).into_iter();
    let value = VALUE.repeat(10).into_bytes();
    let check = |reply: &Value| match reply {
        Value::Null => {}
        Value::Bulk(bytes) => assert!(*bytes == value, "another value"),
        other => panic!("{other:?}"),
    };
    let mut appended = |n: usize, reply: &Value| {
        let Value::Integer(length) = reply else { panic!("{reply:?}") };
        let (length, before) = (*length as usize, lengths[at(n)]);
        assert!(length == part.len() || length == before + part.len(), "{length} B after {before} B");
        lengths[at(n)] = length;
        length
    };
    (0..4).for_each(|_| check(&replies.next().expect("GET")));
    let Some(Value::Array(values)) = replies.next() else { panic!("MGET") };
    values.iter().for_each(check);
    (0..2).for_each(|n| _ = appended(n, &replies.next().expect("APPEND")));
    let Some(Value::Array(results)) = replies.last() else { panic!("EXEC") };
    let [get, append, own, mget] = &results[..] else { panic!("{results:?}") };
    check(get);
    let length = appended(2, append);
    assert_eq!(
        *own,
        Value::Bulk(part.repeat(length / part.len()).into_bytes()),
        "what EXEC itself has made is there"
    );
    let Value::Array(values) = mget else { panic!("{mget:?}") };
    values.iter().for_each(check);
}
