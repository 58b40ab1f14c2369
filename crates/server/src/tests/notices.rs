//! Events of keys, and invalidations of copies: who is told what, and when.

use std::collections::HashMap;
use std::time::Duration;

use super::{Harness, Wire, tx};

/// Names the events of database 0 that were told since the last call, by key: "key event".
fn told(harness: &Harness, listener: &mut Wire) -> Vec<String> {
    let text = String::from_utf8_lossy(&harness.deliver(listener)).into_owned();
    let words: Vec<&str> = text.split("\r\n").filter(|word| !word.starts_with(['*', '$'])).collect();
    let messages = words.chunks(4).filter(|words| words.len() == 4);
    messages.map(|words| format!("{} {}", &words[2]["__keyspace@0__:".len()..], words[3])).collect()
}

/// Runs commands, and waits for the end of transactions.
fn run(harness: &Harness, wire: &mut Wire, lines: &[&str]) {
    for line in lines {
        if line.starts_with("TX.COMMIT") || line.starts_with("TX.ROLLBACK") {
            tx::told(harness, wire, line);
        } else {
            harness.line(wire, line);
        }
    }
}

fn listening(harness: &mut Harness) -> Wire {
    let mut listener = harness.connect();
    harness.line(&mut listener, "PSUBSCRIBE __keyspace@0__:*");
    listener
}

fn with_classes(classes: &str) -> Harness {
    Harness::with(|settings| settings.set("notify.keyspace_events", classes).expect("classes"))
}

#[test]
fn each_way_of_changing_a_key_tells_its_event_once() {
    let mut harness = with_classes("KEA");
    let (mut listener, mut wire, mut waiting) =
        (listening(&mut harness), harness.connect(), harness.connect());
    for (lines, expected) in [
        (&["SET a 1", "GET a", "INCR a"][..], &["a set", "a incrby"][..]),
        (&["MULTI", "SET a 1", "DEL a", "EXEC"], &["a set", "a del"]),
        (&["MULTI", "SET a 1", "DISCARD"], &[]),
        (&["EVAL redis.call('SET',KEYS[1],1)redis.call('EXPIRE',KEYS[1],100) 1 s"], &["s set", "s expire"]),
        (&["EVAL redis.call('SET',KEYS[1],1)error('no') 1 s"], &["s set"]),
        (&["SET s 1 PX 100000 NX", "LPUSH s 1", "HINCRBY h f x"], &[]),
        (
            &["RENAME s t", "COPY t u", "SET t 1 EX 5"],
            &["s rename_from", "t rename_to", "u copy_to", "t set", "t expire"],
        ),
        (&["TX.BEGIN", "TX.DO $ SET x 1", "TX.DO $ DEL u"], &[]),
        (&["TX.COMMIT $"], &["x set", "u del"]),
        (&["TX.BEGIN", "TX.DO $ SET x 1", "TX.ROLLBACK $"], &[]),
        (
            &["RPUSH l a b", "LPOP l 2", "SADD m a", "SMOVE m n a"],
            &["l rpush", "l lpop", "l del", "m sadd", "m srem", "m del", "n sadd"],
        ),
        (&["FLUSHALL", "DEL a"], &[]),
    ] {
        run(&harness, &mut wire, lines);
        assert_eq!(told(&harness, &mut listener), expected, "{lines:?}");
    }
    harness.line(&mut waiting, "BLPOP q 0");
    harness.line(&mut wire, "RPUSH q a");
    assert_eq!(told(&harness, &mut listener), ["q rpush", "q lpop", "q del"]);
    let mut pipeline = Vec::new();
    for value in ["a", "b", "c"] {
        resp::encode_command(&mut pipeline, &["RPUSH", "series", value]);
    }
    harness.feed(&mut wire, &pipeline);
    assert_eq!(told(&harness, &mut listener), ["series rpush"; 3]);
}

#[test]
fn what_expires_is_told_whoever_notices_it() {
    let mut harness = with_classes("Kxg$h");
    let (mut listener, mut wire) = (listening(&mut harness), harness.connect());
    for line in
        ["SET a 1 PX 10", "SET b 1 PX 10", "SET c 1 PX 10", "HSET h f 1 g 2", "HPEXPIRE h 10 FIELDS 1 f"]
    {
        harness.line(&mut wire, line);
    }
    told(&harness, &mut listener);
    harness.clock.advance(Duration::from_millis(20));
    harness.line(&mut wire, "GET a");
    harness.line(&mut wire, "SET b 2");
    harness.line(&mut wire, "HGET h g");
    assert_eq!(told(&harness, &mut listener), ["a expired", "b expired", "b set", "h hexpired"]);
    harness.server.store.tend(100);
    assert_eq!(told(&harness, &mut listener), ["c expired"]);
}

#[test]
fn only_what_is_asked_for_is_told() {
    let mut harness = with_classes("");
    let (mut listener, mut wire) = (listening(&mut harness), harness.connect());
    harness.line(&mut wire, "SET a 1");
    harness.line(&mut wire, "CONFIG SET notify-keyspace-events K$mn");
    for line in ["SET a 1", "SET b 1", "GET c", "EXISTS a d", "LPUSH l 1", "DEL a"] {
        harness.line(&mut wire, line);
    }
    assert_eq!(told(&harness, &mut listener), ["a set", "b new", "b set", "c keymiss", "d keymiss", "l new"]);
    harness.expect(
        &mut wire,
        &[("CONFIG GET notify-keyspace-events", "*2\r\n$22\r\nnotify-keyspace-events\r\n$4\r\n$nKm\r\n")],
    );
    harness.line(&mut wire, "CONFIG SET notify-keyspace-events g");
    harness.line(&mut wire, "DEL b");
    assert!(told(&harness, &mut listener).is_empty(), "neither K nor E");
}

fn tracking(harness: &mut Harness, options: &str) -> Wire {
    let mut wire = harness.connect();
    harness.line(&mut wire, "HELLO 3");
    assert_eq!(harness.line(&mut wire, &format!("CLIENT TRACKING ON{options}")), "+OK\r\n");
    wire
}

fn push(keys: &[&str]) -> String {
    let keys: String = keys.iter().map(|key| format!("${}\r\n{key}\r\n", key.len())).collect::<String>();
    let count = keys.matches('$').count();
    format!(">2\r\n$10\r\ninvalidate\r\n*{count}\r\n{keys}")
}

const ALL: &str = ">2\r\n$10\r\ninvalidate\r\n_\r\n";

fn heard(harness: &Harness, wire: &mut Wire) -> String {
    String::from_utf8_lossy(&harness.deliver(wire)).into_owned()
}

#[test]
fn reader_is_told_once_of_the_next_change_whatever_makes_it() {
    let mut harness = Harness::new();
    let (mut reader, mut wire) = (tracking(&mut harness, ""), harness.connect());
    let changes = [
        "SET k 1",
        "DEL k",
        "EVAL redis.call('SET',KEYS[1],1) 1 k",
        "PEXPIRE k 100000",
        "RENAME k other",
        "RENAME other k",
        "APPEND k x",
        "MSET k 1 z 2",
    ];
    for change in changes {
        harness.line(&mut reader, "GET k");
        harness.line(&mut wire, change);
        assert_eq!(heard(&harness, &mut reader), push(&["k"]), "{change}");
        harness.line(&mut wire, change);
        assert_eq!(heard(&harness, &mut reader), "", "it has read nothing since");
    }
    for lines in [
        &["MULTI", "SET k 1", "EXEC"][..],
        &["TX.BEGIN", "TX.DO $ SET k 1", "TX.COMMIT $"],
        &["SELECT 1", "SET k 1", "SELECT 0"],
    ] {
        harness.line(&mut reader, "EVAL return(redis.call('GET',KEYS[1])) 1 k");
        harness.line(&mut reader, "MGET k other");
        run(&harness, &mut wire, lines);
        assert_eq!(heard(&harness, &mut reader), push(&["k"]), "{lines:?}");
    }
    harness.line(&mut wire, "SET k 1 PX 10");
    harness.line(&mut reader, "GET k");
    harness.clock.advance(Duration::from_millis(20));
    harness.server.store.tend(100);
    assert_eq!(heard(&harness, &mut reader), push(&["k"]), "it has expired");
    for line in ["FLUSHALL", "FLUSHDB", "SWAPDB 0 1"] {
        harness.line(&mut reader, "GET k");
        harness.line(&mut wire, line);
        assert_eq!(heard(&harness, &mut reader), ALL, "{line}");
    }
    assert_eq!(harness.server.notices.tracking.totals(), [0, 0, 0]);
}

#[test]
fn own_changes_are_told_unless_noloop_and_only_what_is_opted_for() {
    let mut harness = Harness::new();
    let mut own = tracking(&mut harness, "");
    harness.line(&mut own, "GET k");
    harness.line(&mut own, "SET k 1");
    assert_eq!(heard(&harness, &mut own), push(&["k"]));
    harness.line(&mut own, "CLIENT TRACKING OFF");
    let (mut reader, mut wire) = (tracking(&mut harness, " NOLOOP OPTIN"), harness.connect());
    for (lines, expected) in [
        (&["GET k"][..], String::new()),
        (&["CLIENT CACHING YES", "GET k", "GET other"], push(&["k"])),
        (&["CLIENT CACHING YES", "MULTI", "GET k", "EXEC", "GET other"], push(&["k"])),
        (&["CLIENT CACHING YES", "GET k", "SET k 2"], String::new()),
    ] {
        lines.iter().for_each(|line| drop(harness.line(&mut reader, line)));
        harness.line(&mut wire, "SET k 1");
        harness.line(&mut wire, "SET other 1");
        assert_eq!(heard(&harness, &mut reader), expected, "{lines:?}");
    }
    let mut reader = tracking(&mut harness, " OPTOUT");
    harness.line(&mut reader, "CLIENT CACHING NO");
    harness.line(&mut reader, "GET k");
    harness.line(&mut reader, "GET other");
    harness.line(&mut wire, "SET k 1");
    harness.line(&mut wire, "SET other 1");
    assert_eq!(heard(&harness, &mut reader), push(&["other"]));
}

#[test]
fn prefixes_are_told_of_all_their_keys_and_redirection_tells_another() {
    let mut harness = Harness::new();
    let (mut reader, mut wire) = (tracking(&mut harness, " BCAST PREFIX a: PREFIX b:"), harness.connect());
    for _ in 0..2 {
        harness.line(&mut wire, "MSET a:1 x a:2 x c:1 x");
        assert_eq!(heard(&harness, &mut reader), push(&["a:1", "a:2"]));
    }
    harness.line(&mut wire, "SET b: 1");
    assert_eq!(heard(&harness, &mut reader), push(&["b:"]));
    let info = harness.line(&mut wire, "INFO");
    assert!(info.contains("tracking_clients:1\r\n") && info.contains("tracking_total_prefixes:2\r\n"));
    harness.end(reader);
    assert_eq!(harness.server.notices.tracking.totals(), [0; 3]);
    let mut target = harness.connect();
    harness.line(&mut target, "SUBSCRIBE __redis__:invalidate");
    let id = target.session.client.id;
    let mut reader = harness.connect();
    harness.expect(&mut reader, &[("CLIENT GETREDIR", ":-1\r\n")]);
    harness.line(&mut reader, &format!("CLIENT TRACKING ON REDIRECT {id}"));
    harness.line(&mut reader, "GET k");
    harness.line(&mut wire, "SET k 1");
    assert_eq!(heard(&harness, &mut reader), "");
    let message = "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n";
    assert_eq!(heard(&harness, &mut target), format!("{message}*1\r\n$1\r\nk\r\n"));
    harness.line(&mut wire, "FLUSHALL");
    assert_eq!(heard(&harness, &mut target), format!("{message}$-1\r\n"));
    let clients = harness.line(&mut wire, "CLIENT LIST");
    assert!(clients.contains("flags=t db=0") && clients.contains(&format!(" redir={id} ")), "{clients}");
    harness.line(&mut reader, "HELLO 3");
    harness.line(&mut reader, "GET k");
    harness.end(target);
    harness.line(&mut wire, "SET k 1");
    assert_eq!(heard(&harness, &mut reader), format!(">2\r\n$21\r\ntracking-redir-broken\r\n:{id}\r\n"));
    let info = harness.line(&mut reader, "CLIENT TRACKINGINFO");
    assert!(info.contains("broken_redirect"), "{info}");
}

#[test]
fn beyond_the_most_keys_some_are_given_up_and_their_readers_told() {
    let mut harness = Harness::with(|settings| settings.tracking_keys_max = 10);
    let mut reader = tracking(&mut harness, "");
    for number in 0..100 {
        harness.line(&mut reader, &format!("GET key{number}"));
    }
    assert_eq!(harness.server.notices.tracking.totals()[0], 10);
    assert_eq!(heard(&harness, &mut reader).matches("invalidate").count(), 90);
    let mut many = harness.connect();
    harness.server.notices.tracking.set_max(0, u64::MAX);
    for number in 0..20_000 {
        harness.line(&mut reader, &format!("GET user:{number:011}"));
    }
    let [keys, items, _] = harness.server.notices.tracking.totals();
    let each = harness.server.notices.tracking.bytes() / keys;
    assert!(each <= 60 && keys == items, "{each} B a key");
    harness.line(&mut many, "FLUSHALL");
    assert_eq!(harness.server.notices.tracking.bytes(), 0);
}

/// Only their number was bounded: names of a megabyte took what they liked.
#[test]
fn tracked_keys_are_bounded_in_bytes_too() {
    let mut harness = Harness::new();
    let mut reader = tracking(&mut harness, "");
    harness.server.notices.tracking.set_max(0, 1 << 20);
    let long = "x".repeat(100_000);
    for number in 0..50 {
        harness.line(&mut reader, &format!("GET {number}{long}"));
    }
    assert!(harness.server.notices.tracking.bytes() <= 1 << 20);
    assert_eq!(heard(&harness, &mut reader).matches("invalidate").count(), 40);
}

#[test]
fn all_keys_may_not_follow_a_prefix_that_would_be_told_twice() {
    let mut harness = Harness::new();
    let mut reader = tracking(&mut harness, " BCAST PREFIX foo");
    let reply = harness.line(&mut reader, "CLIENT TRACKING ON BCAST");
    assert!(reply.starts_with("-ERR Prefix"), "{reply}");
}

/// What a connection that trusts invalidations keeps.
#[derive(Default)]
struct Cache {
    copies: HashMap<String, u64>,
    /// The newest version that was shown of each key.
    shown: HashMap<String, u64>,
}

impl Cache {
    /// Takes what the connection has heard beside replies.
    fn take(&mut self, heard: &str) {
        for message in heard.split(">2\r\n$10\r\ninvalidate\r\n").skip(1) {
            match message.strip_prefix('*') {
                None => self.copies.clear(),
                Some(keys) => {
                    let keys = keys.split("\r\n").skip(1).filter(|word| word.starts_with('k'));
                    keys.for_each(|key| _ = self.copies.remove(key));
                }
            }
        }
    }

    fn show(&mut self, key: &str, version: u64) {
        let newest = self.shown.entry(key.to_owned()).or_default();
        assert!(version >= *newest, "{key} was {newest}, and is {version} now");
        *newest = version;
    }
}

/// What one client does next with `key`, which gets the value `version` if it is changed; `plain` tracks nothing.
fn step(
    harness: &Harness,
    (wire, cache): (&mut Wire, &mut Cache),
    (key, version): (&str, u64),
    below: &mut dyn FnMut(u64) -> u64,
    plain: &mut Wire,
) {
    let own = |cache: &mut Cache, keys: &[&str]| {
        // what it has written itself it keeps no copy of
        keys.iter().for_each(|key| _ = cache.copies.remove(*key));
    };
    match below(16) {
        0..=7 => match cache.copies.get(key).copied() {
            Some(copy) => cache.show(key, copy),
            None => {
                let line = ["GET", "EVAL return(redis.call('GET',KEYS[1])) 1"][(below(4) == 0) as usize];
                let reply = harness.line(wire, &format!("{line} {key}"));
                let (own_reply, pushed) = reply.split_at(reply.find(">2").unwrap_or(reply.len()));
                let value = own_reply.split("\r\n").nth(1).and_then(|value| value.parse().ok());
                cache.show(key, value.unwrap_or(0).max(cache.shown.get(key).copied().unwrap_or(0)));
                if let Some(value) = value {
                    cache.copies.insert(key.to_owned(), value);
                }
                cache.take(pushed);
            }
        },
        8 | 9 => {
            harness.line(wire, &format!("SET {key} {version}"));
            own(cache, &[key]);
        }
        10 => {
            harness.line(wire, &format!("SET {key} {version} PX {}", 1 + below(5)));
            own(cache, &[key]);
        }
        11 => {
            harness.clock.advance(Duration::from_millis(below(4)));
            harness.server.store.tend(3);
        }
        12 => {
            let lines = [&format!("SET {key} {version}"), "DEL k1"];
            harness.line(wire, "MULTI");
            lines.iter().for_each(|line| drop(harness.line(wire, line)));
            harness.line(wire, "EXEC");
            own(cache, &[key, "k1"]);
        }
        13 => {
            harness.line(wire, &format!("SET other {version}"));
            harness.line(wire, &format!("RENAME other {key}"));
            own(cache, &[key]);
        }
        14 => {
            harness.line(wire, &format!("EVAL redis.call('SET',KEYS[1],{version}) 1 {key}"));
            own(cache, &[key]);
        }
        _ if below(20) == 0 => {
            harness.line(wire, ["FLUSHALL", "FLUSHDB"][below(2) as usize]);
        }
        _ => {
            let staged = format!("TX.DO $ SET {key} {version}");
            run(harness, plain, &["TX.BEGIN", &staged, "TX.COMMIT $"]);
        }
    }
}

/// Values only grow: a cache that shows an older one than before has missed an invalidation, and one that differs in the end, too. Where a key
/// goes its readers forget what they have seen of it.
#[test]
fn caches_that_trust_invalidations_never_show_an_older_value() {
    for seed in 1..=20_u64 {
        let mut harness = Harness::with(|settings| settings.tracking_keys_max = 6);
        let mut dice = seed;
        let mut below = move |most: u64| {
            dice = dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (dice >> 33) % most
        };
        let modes = ["", " NOLOOP", " BCAST", " BCAST PREFIX k", ""];
        let mut clients: Vec<(Wire, Cache)> =
            modes.iter().map(|mode| (tracking(&mut harness, mode), Cache::default())).collect();
        let (mut version, mut plain) = (1, harness.connect());
        for _ in 0..3_000 {
            let (at, key) = (below(5) as usize, format!("k{}", below(8)));
            let (wire, cache) = &mut clients[at];
            cache.take(&heard(&harness, wire));
            version += 1;
            step(&harness, (wire, cache), (&key, version), &mut below, &mut plain);
        }
        harness.clock.advance(Duration::from_millis(10));
        harness.server.store.tend(100);
        for (wire, cache) in &mut clients {
            cache.take(&heard(&harness, wire));
            for (key, copy) in &cache.copies {
                let there = harness.line(&mut plain, &format!("GET {key}"));
                assert_eq!(there.split("\r\n").nth(1), Some(&copy.to_string()[..]), "seed {seed}, {key}");
            }
        }
    }
}
