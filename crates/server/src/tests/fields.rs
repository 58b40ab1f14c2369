//! Fields of hashes that end: replies as Redis and Valkey document them, and what becomes of deadlines under other commands.

use std::time::Duration;

use super::{Harness, Wire};

fn start() -> (Harness, Wire) {
    let mut harness = Harness::new();
    let wire = harness.connect();
    (harness, wire)
}

fn pass(harness: &Harness, ms: u64) {
    harness.clock.advance(Duration::from_millis(ms));
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

#[test]
fn hexpire_sets_times_on_conditions_and_fields_end_then() {
    let (harness, mut wire) = start();
    harness.expect(
        &mut wire,
        &[
            ("HEXPIRE none 10 FIELDS 2 a b", "*2\r\n:-2\r\n:-2\r\n"),
            ("EXISTS none", ":0\r\n"),
            ("HSET h a 1 b 2 c 3", ":3\r\n"),
            ("HEXPIRE h 10 FIELDS 2 a x", "*2\r\n:1\r\n:-2\r\n"),
            ("HTTL h FIELDS 3 a b x", "*3\r\n:10\r\n:-1\r\n:-2\r\n"),
            ("HEXPIRE h 20 NX FIELDS 2 a b", "*2\r\n:0\r\n:1\r\n"),
            ("HEXPIRE h 5 GT FIELDS 3 a b c", "*3\r\n:0\r\n:0\r\n:0\r\n"),
            ("HEXPIRE h 15 GT FIELDS 2 a b", "*2\r\n:1\r\n:0\r\n"),
            ("HEXPIRE h 30 LT FIELDS 3 a b c", "*3\r\n:0\r\n:0\r\n:1\r\n"),
            ("HPEXPIRE h 1500 XX FIELDS 1 c", "*1\r\n:1\r\n"),
            ("HTTL h FIELDS 1 c", "*1\r\n:2\r\n"),
            ("HPTTL h FIELDS 1 c", "*1\r\n:1500\r\n"),
            ("HPEXPIRETIME h FIELDS 1 c", "*1\r\n:1700000001500\r\n"),
            ("HEXPIRETIME h FIELDS 1 c", "*1\r\n:1700000002\r\n"),
            ("OBJECT ENCODING h", "$10\r\nlistpackex\r\n"),
            ("TTL h", ":-1\r\n"),
        ],
    );
    pass(&harness, 1_500);
    harness.expect(
        &mut wire,
        &[
            ("HGET h c", "$-1\r\n"),
            ("HLEN h", ":2\r\n"),
            ("HEXISTS h c", ":0\r\n"),
            ("HMGET h a c", "*2\r\n$1\r\n1\r\n$-1\r\n"),
            ("HSTRLEN h c", ":0\r\n"),
            ("HKEYS h", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
            ("HSCAN h 0", "*2\r\n$1\r\n0\r\n*4\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n$1\r\n2\r\n"),
            ("HRANDFIELD h 9", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
            (
                "EVAL return{redis.call('hlen','h'),redis.call('httl','h','fields',1,'a')[1]} 0",
                "*2\r\n:2\r\n:14\r\n",
            ),
            ("HSETNX h c 4", ":1\r\n"),
            ("HTTL h FIELDS 1 c", "*1\r\n:-1\r\n"),
            ("HDEL h c", ":1\r\n"),
        ],
    );
    pass(&harness, 30_000);
    harness.expect(&mut wire, &[("EXISTS h", ":0\r\n"), ("TYPE h", "+none\r\n"), ("HGETALL h", "*0\r\n")]);
    let info = harness.line(&mut wire, "INFO stats");
    assert!(info.contains("\nexpired_subkeys:1\r\n") && info.contains("\nexpired_keys:1\r\n"), "{info}");
}

#[test]
fn times_that_have_passed_delete_fields_at_once() {
    let (harness, mut wire) = start();
    harness.expect(
        &mut wire,
        &[
            ("HSET h a 1 b 2 c 3 d 4", ":4\r\n"),
            ("HEXPIRE h 0 FIELDS 2 a x", "*2\r\n:2\r\n:-2\r\n"),
            ("HEXPIREAT h 1600000000 FIELDS 1 b", "*1\r\n:2\r\n"),
            ("HPEXPIREAT h 1700000000001 FIELDS 1 c", "*1\r\n:1\r\n"),
            ("HPEXPIREAT h 0 XX FIELDS 2 c d", "*2\r\n:2\r\n:0\r\n"),
            ("HGETALL h", "*2\r\n$1\r\nd\r\n$1\r\n4\r\n"),
            ("HPEXPIRE h 0 FIELDS 1 d", "*1\r\n:2\r\n"),
            ("EXISTS h", ":0\r\n"),
        ],
    );
}

#[test]
fn wrong_arguments_are_refused_and_change_nothing() {
    let (harness, mut wire) = start();
    let misplaced = "-ERR Mandatory argument FIELDS is missing or not at the right position\r\n";
    let mismatch = "-ERR The `numfields` parameter must match the number of arguments\r\n";
    let positive = "-ERR Number of fields must be a positive integer\r\n";
    let negative = "-ERR invalid expire time, must be >= 0\r\n";
    let single = "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified\r\n";
    harness.expect(
        &mut wire,
        &[
            ("HSET h a 1", ":1\r\n"),
            ("SET s v", "+OK\r\n"),
            ("HEXPIRE s 1 FIELDS 1 a", WRONG_TYPE),
            ("HTTL s FIELDS 1 a", WRONG_TYPE),
            ("HEXPIRE h 1 NX XX FIELDS 1 a", misplaced),
            ("HEXPIRE h 1 FIELDS 2 a", mismatch),
            ("HEXPIRE h 1 FIELDS 0 a", positive),
            ("HEXPIRE h 1 FIELDS -1 a", positive),
            ("HEXPIRE h -1 FIELDS 1 a", negative),
            ("HEXPIRE h x FIELDS 1 a", "-ERR value is not an integer or out of range\r\n"),
            ("HEXPIRE h 9223372036854775807 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command\r\n"),
            (
                "HPEXPIRE h 9223372036854775807 FIELDS 1 a",
                "-ERR invalid expire time in 'hpexpire' command\r\n",
            ),
            ("HTTL h FIELD 1 a", misplaced),
            ("HSETEX h EX 1 KEEPTTL FIELDS 1 a 2", single),
            ("HSETEX h FNX FXX FIELDS 1 a 2", "-ERR Only one of FXX or FNX arguments can be specified\r\n"),
            ("HSETEX h FIELDS 2 a 2 b", mismatch),
            ("HSETEX h PX x FIELDS 1 a 2", "-ERR value is not an integer or out of range\r\n"),
            ("HGETEX h NX FIELDS 1 a", "-ERR syntax error\r\n"),
            ("HGETALL h", "*2\r\n$1\r\na\r\n$1\r\n1\r\n"),
            ("HTTL h FIELDS 1 a", "*1\r\n:-1\r\n"),
        ],
    );
}

#[test]
fn hsetex_and_hgetex_set_values_and_times_together() {
    let (harness, mut wire) = start();
    harness.expect(
        &mut wire,
        &[
            ("HSETEX h EX 10 FIELDS 2 a 1 b 2", ":1\r\n"),
            ("HSETEX h FNX FIELDS 2 b 3 c 4", ":0\r\n"),
            ("HSETEX h FXX FIELDS 2 b 3 c 4", ":0\r\n"),
            ("HSETEX none FXX FIELDS 1 a 1", ":0\r\n"),
            ("HSETEX h FXX KEEPTTL FIELDS 1 a 5", ":1\r\n"),
            ("HSETEX h FXX FIELDS 1 b 6", ":1\r\n"),
            ("HTTL h FIELDS 2 a b", "*2\r\n:10\r\n:-1\r\n"),
            ("HGETEX h FIELDS 3 a b x", "*3\r\n$1\r\n5\r\n$1\r\n6\r\n$-1\r\n"),
            ("HGETEX h PX 700 FIELDS 1 b", "*1\r\n$1\r\n6\r\n"),
            ("HPTTL h FIELDS 1 b", "*1\r\n:700\r\n"),
            ("HGETEX h PERSIST FIELDS 1 a", "*1\r\n$1\r\n5\r\n"),
            ("HTTL h FIELDS 1 a", "*1\r\n:-1\r\n"),
            ("HGETEX h EXAT 1 FIELDS 1 a", "*1\r\n$1\r\n5\r\n"),
            ("HGETEX h FIELDS 1 a", "*1\r\n$-1\r\n"),
            ("HSETEX new EX 0 FIELDS 1 a 1", ":1\r\n"),
            ("EXISTS new", ":0\r\n"),
            ("HSETEX h PXAT 1 FIELDS 1 b 9", ":1\r\n"),
            ("EXISTS h", ":0\r\n"),
        ],
    );
}

#[test]
fn writes_of_a_field_drop_its_time_and_changes_of_its_value_keep_it() {
    let (harness, mut wire) = start();
    harness.expect(
        &mut wire,
        &[
            ("HSET h a 1 b 2 c 3", ":3\r\n"),
            ("HEXPIRE h 10 FIELDS 3 a b c", "*3\r\n:1\r\n:1\r\n:1\r\n"),
            ("HSET h a 4", ":0\r\n"),
            ("HINCRBY h b 5", ":7\r\n"),
            ("HINCRBYFLOAT h c 0.5", "$3\r\n3.5\r\n"),
            ("HTTL h FIELDS 3 a b c", "*3\r\n:-1\r\n:10\r\n:10\r\n"),
            ("HPERSIST h FIELDS 4 a b c x", "*4\r\n:-1\r\n:1\r\n:1\r\n:-2\r\n"),
            ("HPERSIST none FIELDS 1 a", "*1\r\n:-2\r\n"),
            ("HTTL h FIELDS 2 b c", "*2\r\n:-1\r\n:-1\r\n"),
            ("OBJECT ENCODING h", "$8\r\nlistpack\r\n"),
            ("HGETDEL h FIELDS 1 b", "*1\r\n$1\r\n7\r\n"),
        ],
    );
}

#[test]
fn key_and_fields_have_times_of_their_own() {
    let (harness, mut wire) = start();
    harness.expect(
        &mut wire,
        &[
            ("HSET h a 1 b 2", ":2\r\n"),
            ("EXPIRE h 100", ":1\r\n"),
            ("HEXPIRE h 10 FIELDS 1 a", "*1\r\n:1\r\n"),
            ("TTL h", ":100\r\n"),
            ("EXPIRE h 50 LT", ":1\r\n"),
            ("TTL h", ":50\r\n"),
            ("HTTL h FIELDS 1 a", "*1\r\n:10\r\n"),
        ],
    );
    pass(&harness, 10_000);
    harness.expect(
        &mut wire,
        &[
            ("TTL h", ":40\r\n"),
            ("HLEN h", ":1\r\n"),
            ("HEXPIRE h 100 FIELDS 1 b", "*1\r\n:1\r\n"),
            ("PERSIST h", ":1\r\n"),
            ("TTL h", ":-1\r\n"),
            ("HTTL h FIELDS 1 b", "*1\r\n:100\r\n"),
            ("PEXPIRE h 5", ":1\r\n"),
        ],
    );
    pass(&harness, 5);
    harness.expect(&mut wire, &[("EXISTS h", ":0\r\n")]);
}

#[test]
fn copies_of_a_hash_have_its_times() {
    let (harness, mut wire) = start();
    harness.expect(
        &mut wire,
        &[
            ("HSET h a 1 b 2 c 3", ":3\r\n"),
            ("HEXPIRE h 10 FIELDS 1 a", "*1\r\n:1\r\n"),
            ("HPEXPIREAT h 1700000020000 FIELDS 1 b", "*1\r\n:1\r\n"),
            ("COPY h copy", ":1\r\n"),
            ("RENAME copy other", "+OK\r\n"),
            ("MOVE other 1", ":1\r\n"),
        ],
    );
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["DUMP", "h"]);
    let reply = harness.feed(&mut wire, &request);
    let start = reply.iter().position(|byte| *byte == b'\n').expect("a head") + 1;
    let payload = &reply[start..reply.len() - 2];
    assert_eq!(payload[0], rdb::value::HASH_TIMED, "older servers would not see the times");
    assert_eq!(rdb::verify(payload).expect("a payload of Redis").1, rdb::VERSION_TIMED);
    let restore = |wire: &mut Wire, key: &str| {
        let command: [&[u8]; 4] = [b"RESTORE", key.as_bytes(), b"0", payload];
        assert_eq!(harness.raw(wire, &command), "+OK\r\n");
    };
    restore(&mut wire, "restored");
    let times = "HTTL restored FIELDS 3 a b c";
    harness.expect(
        &mut wire,
        &[(times, "*3\r\n:10\r\n:20\r\n:-1\r\n"), ("SELECT 1", "+OK\r\n"), ("HLEN other", ":3\r\n")],
    );
    pass(&harness, 10_000);
    harness
        .expect(&mut wire, &[("HLEN other", ":2\r\n"), ("SELECT 0", "+OK\r\n"), ("HLEN restored", ":2\r\n")]);
    restore(&mut wire, "later");
    harness.expect(&mut wire, &[("HTTL later FIELDS 3 a b c", "*3\r\n:-2\r\n:10\r\n:-1\r\n")]);
}

#[test]
fn transactions_see_fields_end() {
    let (mut harness, mut wire) = start();
    let mut other = harness.connect();
    harness.expect(
        &mut wire,
        &[("HSET h a 1 b 2", ":2\r\n"), ("HPEXPIRE h 50 FIELDS 1 a", "*1\r\n:1\r\n"), ("WATCH h", "+OK\r\n")],
    );
    pass(&harness, 50);
    assert_eq!(harness.line(&mut other, "HLEN h"), ":1\r\n");
    harness.expect(&mut wire, &[("MULTI", "+OK\r\n"), ("HLEN h", "+QUEUED\r\n"), ("EXEC", "*-1\r\n")]);
    harness.expect(
        &mut wire,
        &[
            ("HPEXPIRE h 50 FIELDS 1 b", "*1\r\n:1\r\n"),
            ("MULTI", "+OK\r\n"),
            ("HSET h c 3", "+QUEUED\r\n"),
            ("HPEXPIRE h 0 FIELDS 1 b", "+QUEUED\r\n"),
            ("HGETALL h", "+QUEUED\r\n"),
            ("EXEC", "*3\r\n:1\r\n*1\r\n:2\r\n*2\r\n$1\r\nc\r\n$1\r\n3\r\n"),
        ],
    );
}

#[test]
fn staged_fields_end_too() {
    let (harness, mut wire) = start();
    assert!(!harness.line(&mut wire, "TX.BEGIN").starts_with('-'));
    harness.expect(
        &mut wire,
        &[
            ("TX.DO $ HSETEX h PX 50 FIELDS 2 a 1 b 2", ":1\r\n"),
            ("TX.DO $ HSET h c 3", ":1\r\n"),
            ("TX.DO $ HPTTL h FIELDS 2 a c", "*2\r\n:50\r\n:-1\r\n"),
        ],
    );
    pass(&harness, 50);
    let ended =
        [("TX.DO $ HLEN h", ":1\r\n"), ("TX.DO $ HDEL h c", ":1\r\n"), ("TX.DO $ EXISTS h", ":0\r\n")];
    harness.expect(&mut wire, &ended);
}

/// Of a hash in leaves HLEN told the number of its root, which counts a field until its leaf is looked up.
#[test]
fn transactions_count_no_field_of_a_hash_in_leaves_that_has_ended() {
    let (harness, mut wire) = start();
    let fields: String = (0..200).map(|number| format!(" f{number} {}", "v".repeat(60))).collect();
    harness.expect(
        &mut wire,
        &[
            (&format!("HSET h{fields}"), ":200\r\n"),
            ("HPEXPIRE h 50 FIELDS 2 f1 f2", "*2\r\n:1\r\n:1\r\n"),
            ("DEBUG SET-ACTIVE-EXPIRE 0", "+OK\r\n"),
        ],
    );
    assert!(!harness.line(&mut wire, "TX.BEGIN").starts_with('-'));
    harness.expect(&mut wire, &[("TX.DO $ HLEN h", ":200\r\n"), ("TX.DO $ HDEL h f3", ":1\r\n")]);
    pass(&harness, 50);
    harness.expect(
        &mut wire,
        &[
            ("TX.DO $ HLEN h", ":197\r\n"),
            ("MULTI", "+OK\r\n"),
            ("HLEN h", "+QUEUED\r\n"),
            ("HSET h new 1", "+QUEUED\r\n"),
            ("HLEN h", "+QUEUED\r\n"),
            ("EXEC", "*3\r\n:198\r\n:1\r\n:199\r\n"),
            ("EVAL return{redis.call('hlen','h')} 0", "*1\r\n:199\r\n"),
        ],
    );
}
