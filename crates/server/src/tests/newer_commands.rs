//! Commands newer than Redis 7.2, which the oracle of the differential test does not know: replies as their servers document them.

use std::time::Duration;

use super::{Harness, Wire};

fn run(script: &[(&str, &str)]) {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(&mut wire, script);
}

/// The reply in RESP3.
fn in_resp3(harness: &Harness, wire: &mut Wire, line: &str) -> String {
    harness.line(wire, "HELLO 3");
    harness.line(wire, line)
}

const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
const SYNTAX: &str = "-ERR syntax error\r\n";

#[test]
fn set_compares_the_value_that_is_there() {
    run(&[
        ("SET k new IFEQ old", "$-1\r\n"),
        ("EXISTS k", ":0\r\n"),
        ("SET k one IFNE old", "+OK\r\n"),
        ("SET k two IFEQ other", "$-1\r\n"),
        ("SET k two IFEQ one EX 100", "+OK\r\n"),
        ("TTL k", ":100\r\n"),
        ("SET k three IFEQ two KEEPTTL", "+OK\r\n"),
        ("TTL k", ":100\r\n"),
        ("SET k four IFEQ x GET", "$5\r\nthree\r\n"),
        ("SET k four GET ifeq three", "$5\r\nthree\r\n"),
        ("GET k", "$4\r\nfour\r\n"),
        ("SET k five IFNE four", "$-1\r\n"),
        ("SET k five IFNE x", "+OK\r\n"),
        ("SET k v NX IFEQ five", SYNTAX),
        ("SET k v IFEQ five IFNE six", SYNTAX),
        ("SET k v IFEQ five IFEQ five", SYNTAX),
        ("SET k v IFEQ", SYNTAX),
        ("SADD s m", ":1\r\n"),
        ("SET s v IFEQ m", WRONG_TYPE),
        ("SET s v IFNE m", WRONG_TYPE),
        ("SET s v XX KEEPTTL", "+OK\r\n"),
    ]);
}

#[test]
fn digests_are_those_that_redis_documents() {
    run(&[
        ("DIGEST none", "$-1\r\n"),
        ("SET k v", "+OK\r\n"),
        ("SET k v2 IFDEQ 0", "-ERR digest must be exactly 16 hexadecimal characters\r\n"),
        ("SET k v2 IFDNE 000000000000000g", "-ERR digest must be exactly 16 hexadecimal characters\r\n"),
        ("SET k v2 IFDEQ 0000000000000000", "$-1\r\n"),
        ("SET k v2 IFDNE 0000000000000000", "+OK\r\n"),
        ("SADD s m", ":1\r\n"),
        ("DIGEST s", WRONG_TYPE),
    ]);
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.raw(&mut wire, &["SET", "key1", "Hello world"]);
    harness.expect(
        &mut wire,
        &[
            ("DIGEST key1", "$16\r\nb6acb9d84a38ff74\r\n"),
            ("SET key1 v IFDNE b6acb9d84a38ff74", "$-1\r\n"),
            ("SET key1 v IFDEQ B6ACB9D84A38FF74", "+OK\r\n"),
            ("DELEX key1 IFDEQ b6acb9d84a38ff74", ":0\r\n"),
            ("DELEX key1 IFDNE b6acb9d84a38ff74", ":1\r\n"),
        ],
    );
}

#[test]
fn deletes_on_a_condition() {
    run(&[
        ("SET k v", "+OK\r\n"),
        ("DELEX k IFEQ x", ":0\r\n"),
        ("DELEX k IFNE v", ":0\r\n"),
        ("DELEX k IFEQ", SYNTAX),
        ("DELEX k NX v", SYNTAX),
        ("DELEX k IFEQ v", ":1\r\n"),
        ("DELEX k IFEQ v", ":0\r\n"),
        ("DELEX k IFNE v", ":0\r\n"),
        ("SADD s m", ":1\r\n"),
        ("DELEX s IFEQ m", WRONG_TYPE),
        ("DELIFEQ s m", WRONG_TYPE),
        ("DELEX s", ":1\r\n"),
        ("SET k v", "+OK\r\n"),
        ("DELIFEQ k x", ":0\r\n"),
        ("DELIFEQ k v", ":1\r\n"),
        ("DELIFEQ k v", ":0\r\n"),
    ]);
}

#[test]
fn msetex_sets_all_keys_or_none() {
    run(&[
        ("MSETEX 2 a 1 b 2 EX 10", ":1\r\n"),
        ("TTL b", ":10\r\n"),
        ("MSETEX 2 a 3 c 4 NX", ":0\r\n"),
        ("MSETEX 2 a 3 c 4 XX", ":0\r\n"),
        ("GET a", "$1\r\n1\r\n"),
        ("MSETEX 2 a 3 b 4 KEEPTTL XX", ":1\r\n"),
        ("TTL a", ":10\r\n"),
        ("MSETEX 1 a 5", ":1\r\n"),
        ("TTL a", ":-1\r\n"),
        ("MSETEX 2 x 1 x 2 NX PX 5000", ":1\r\n"),
        ("GET x", "$1\r\n2\r\n"),
        ("MSETEX 2 a 1 b 2 EXAT 1", ":1\r\n"),
        ("EXISTS a b", ":0\r\n"),
        ("MSETEX 0 a 1", "-ERR invalid numkeys value\r\n"),
        ("MSETEX 9223372036854775807 a 1", "-ERR invalid numkeys value\r\n"),
        ("MSETEX 2 a 1", "-ERR wrong number of key-value pairs\r\n"),
        ("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command\r\n"),
        ("MSETEX 1 a 1 EX 1 PX 1", SYNTAX),
        ("MSETEX 1 a 1 NX XX", SYNTAX),
        ("COMMAND GETKEYS MSETEX 2 a 1 b 2 EX 10", "*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
    ]);
}

#[test]
fn hgetdel_takes_fields_out() {
    run(&[
        ("HSET h a 1 b 2 c 3", ":3\r\n"),
        ("HGETDEL h FIELDS 3 a x a", "*3\r\n$1\r\n1\r\n$-1\r\n$-1\r\n"),
        ("HLEN h", ":2\r\n"),
        ("HGETDEL none FIELDS 1 a", "*1\r\n$-1\r\n"),
        ("HGETDEL h FIELDS 2 a", "-ERR The `numfields` parameter must match the number of arguments\r\n"),
        ("HGETDEL h FIELDS 0 a", "-ERR Number of fields must be a positive integer\r\n"),
        ("HGETDEL h FIELD 1 a", "-ERR Mandatory argument FIELDS is missing or not at the right position\r\n"),
        ("HGETDEL h FIELDS 2 b c", "*2\r\n$1\r\n2\r\n$1\r\n3\r\n"),
        ("EXISTS h", ":0\r\n"),
        ("SADD s m", ":1\r\n"),
        ("HGETDEL s FIELDS 1 m", WRONG_TYPE),
        ("HSET h a 1 b 2", ":2\r\n"),
        ("HSCAN h 0 NOVALUES COUNT 5", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\na\r\n$1\r\nb\r\n"),
        ("SSCAN s 0 NOVALUES", SYNTAX),
    ]);
}

#[test]
fn increx_stays_within_its_bounds() {
    run(&[
        ("INCREX n", "*2\r\n:1\r\n:1\r\n"),
        ("INCREX n BYINT 5 EX 100 ENX", "*2\r\n:6\r\n:5\r\n"),
        ("INCREX n BYINT -1 EX 50 ENX", "*2\r\n:5\r\n:-1\r\n"),
        ("TTL n", ":100\r\n"),
        ("INCREX n BYINT 10 UBOUND 9", "*2\r\n:5\r\n:0\r\n"),
        ("INCREX n BYINT 10 UBOUND 9 SATURATE EX 20", "*2\r\n:9\r\n:4\r\n"),
        ("TTL n", ":20\r\n"),
        ("INCREX n BYINT -15 LBOUND -3 SATURATE PERSIST", "*2\r\n:-3\r\n:-12\r\n"),
        ("TTL n", ":-1\r\n"),
        ("INCREX n BYINT 1 LBOUND 5 UBOUND 4", "-ERR LBOUND can't be greater than UBOUND\r\n"),
        ("INCREX n ENX", SYNTAX),
        ("INCREX n PERSIST ENX", SYNTAX),
        ("INCREX n BYINT 1 BYFLOAT 1", SYNTAX),
        ("INCREX n BYINT x", "-ERR value is not an integer or out of range\r\n"),
        ("INCREX none BYINT 5 UBOUND 4", "*2\r\n:0\r\n:0\r\n"),
        ("EXISTS none", ":0\r\n"),
        ("SET m 9223372036854775807", "+OK\r\n"),
        ("INCREX m", "*2\r\n:9223372036854775807\r\n:0\r\n"),
        ("INCREX m SATURATE", "*2\r\n:9223372036854775807\r\n:0\r\n"),
        ("INCREX m UBOUND -9 SATURATE", "-ERR increment or decrement would overflow\r\n"),
        ("SET f 1.5", "+OK\r\n"),
        ("INCREX f", "-ERR value is not an integer or out of range\r\n"),
        ("INCREX f BYFLOAT 0.25", "*2\r\n$4\r\n1.75\r\n$4\r\n0.25\r\n"),
        ("INCREX f BYFLOAT 5 UBOUND 2.5 SATURATE", "*2\r\n$3\r\n2.5\r\n$4\r\n0.75\r\n"),
        ("INCREX f BYFLOAT 5 UBOUND 2.5", "*2\r\n$3\r\n2.5\r\n$1\r\n0\r\n"),
        ("INCREX f BYFLOAT inf", "-ERR increment would produce NaN or Infinity\r\n"),
        ("SADD s m", ":1\r\n"),
        ("INCREX s", WRONG_TYPE),
    ]);
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    assert_eq!(in_resp3(&harness, &mut wire, "INCREX f BYFLOAT 0.5"), "*2\r\n,0.5\r\n,0.5\r\n");
}

#[test]
fn bitop_has_the_newer_operators() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let values: [[u8; 3]; 3] = [[0b1100_1010, 0xff, 0x01], [0b1010_0110, 0x0f, 0], [0b1001_0011, 0, 0x80]];
    let keys = ["x", "y", "z"];
    for (key, value) in keys.iter().zip(&values) {
        let set: [&[u8]; 3] = [b"SET", key.as_bytes(), value];
        assert_eq!(harness.raw(&mut wire, &set), "+OK\r\n");
    }
    type Model = fn(u8, u8, u8) -> u8;
    let model: [(&str, Model); 4] = [
        ("DIFF", |x, y, z| x & !(y | z)),
        ("DIFF1", |x, y, z| !x & (y | z)),
        ("ANDOR", |x, y, z| x & (y | z)),
        ("ONE", |x, y, z| (x & !y & !z) | (!x & y & !z) | (!x & !y & z)),
    ];
    for (name, of) in model {
        assert_eq!(harness.line(&mut wire, &format!("BITOP {name} d x y z none")), ":3\r\n");
        for at in 0..24_usize {
            let byte = of(values[0][at / 8], values[1][at / 8], values[2][at / 8]);
            let bit = (byte >> (7 - at % 8)) & 1;
            assert_eq!(
                harness.line(&mut wire, &format!("GETBIT d {at}")),
                format!(":{bit}\r\n"),
                "{name} {at}"
            );
        }
    }
    harness.expect(
        &mut wire,
        &[
            ("BITOP ONE d x", ":3\r\n"),
            ("BITCOUNT d", ":13\r\n"),
            ("BITOP DIFF d none x", ":3\r\n"),
            ("BITCOUNT d", ":0\r\n"),
            ("BITOP DIFF d x", "-ERR BITOP DIFF must be called with at least two source keys.\r\n"),
            ("BITOP ANDOR d x", "-ERR BITOP ANDOR must be called with at least two source keys.\r\n"),
        ],
    );
}

#[test]
fn cardinalities_of_unions_and_differences() {
    run(&[
        ("SADD a 1 2 3", ":3\r\n"),
        ("SADD b 3 4 5", ":3\r\n"),
        ("SUNIONCARD 2 a b", ":5\r\n"),
        ("SUNIONCARD 3 a b none LIMIT 3", ":3\r\n"),
        ("SUNIONCARD 2 a b APPROX", ":5\r\n"),
        ("SUNIONCARD 2 a b LIMIT 2 APPROX", ":2\r\n"),
        ("SDIFFCARD 2 a b", ":2\r\n"),
        ("SDIFFCARD 2 a b LIMIT 1", ":1\r\n"),
        ("SDIFFCARD 2 a b LIMIT 0", ":2\r\n"),
        ("SDIFFCARD 2 a b APPROX", SYNTAX),
        ("SDIFFCARD 0 a", "-ERR numkeys should be greater than 0\r\n"),
        ("SUNIONCARD 1 a LIMIT -1", "-ERR LIMIT can't be negative\r\n"),
        ("SET s v", "+OK\r\n"),
        ("SUNIONCARD 2 a s", WRONG_TYPE),
    ]);
}

/// Elements are moved as the text says, whatever ends are named, within a list and from one to another.
#[test]
fn lmovem_is_as_a_model_of_two_lists() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for same in [false, true] {
        for (from, to) in [("LEFT", "LEFT"), ("LEFT", "RIGHT"), ("RIGHT", "LEFT"), ("RIGHT", "RIGHT")] {
            for count in [1, 2, 4] {
                for order in ["OBO", "BULK"] {
                    harness.line(&mut wire, "DEL s t");
                    harness.line(&mut wire, "RPUSH s a b c d");
                    harness.line(&mut wire, "RPUSH t x");
                    let target = if same { "s" } else { "t" };
                    let mut source: Vec<&str> = vec!["a", "b", "c", "d"];
                    let mut popped: Vec<&str> = (0..count)
                        .map(|_| if from == "LEFT" { source.remove(0) } else { source.pop().unwrap() })
                        .collect();
                    if (order == "BULK" && from == "RIGHT") || (order == "OBO" && to == "LEFT") {
                        popped.reverse();
                    }
                    let rest = if same { source.clone() } else { vec!["x"] };
                    let both = if to == "LEFT" { [popped.clone(), rest] } else { [rest, popped.clone()] };
                    let line = format!("LMOVEM s {target} {from} {to} COUNT {count} {order}");
                    assert_eq!(harness.line(&mut wire, &line), array(&popped), "{line}");
                    let list = harness.line(&mut wire, &format!("LRANGE {target} 0 -1"));
                    assert_eq!(list, array(&both.concat()), "{line}");
                    if !same {
                        assert_eq!(harness.line(&mut wire, "LRANGE s 0 -1"), array(&source), "{line}");
                    }
                }
            }
        }
    }
}

fn array(items: &[&str]) -> String {
    let bulks: String = items.iter().map(|item| format!("${}\r\n{item}\r\n", item.len())).collect();
    format!("*{}\r\n{bulks}", items.len())
}

#[test]
fn lmovem_answers_what_is_documented_where_there_are_not_enough() {
    run(&[
        ("LMOVEM none t LEFT LEFT", "$-1\r\n"),
        ("LMOVEM none t LEFT LEFT COUNT 2 OBO", "$-1\r\n"),
        ("LMOVEM none t LEFT LEFT EXACTLY 2 OBO", "$-1\r\n"),
        ("RPUSH s a b c", ":3\r\n"),
        ("LMOVEM s t LEFT RIGHT EXACTLY 4 BULK", "$-1\r\n"),
        ("LMOVEM s t LEFT RIGHT COUNT 9 BULK", "*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n"),
        ("EXISTS s", ":0\r\n"),
        ("LMOVEM t s LEFT RIGHT", "*1\r\n$1\r\na\r\n"),
        ("LMOVEM t s LEFT RIGHT COUNT 1", SYNTAX),
        ("LMOVEM t s LEFT RIGHT OBO 1 COUNT", SYNTAX),
        ("LMOVEM t s LEFT RIGHT COUNT 0 OBO", "-ERR value is out of range, must be positive\r\n"),
        ("SET k v", "+OK\r\n"),
        ("LMOVEM k s LEFT RIGHT", WRONG_TYPE),
        ("LMOVEM t k LEFT RIGHT", WRONG_TYPE),
        ("LLEN t", ":2\r\n"),
    ]);
}

/// Scores count for nothing, weights do.
#[test]
fn aggregate_count_says_in_how_many_a_member_is() {
    run(&[
        ("ZADD a 1 a1 2 a2 1 a3", ":3\r\n"),
        ("ZADD b 2 a1 2 a2 2 a3", ":3\r\n"),
        ("ZADD c 6 a1 5 a3 4 a4", ":3\r\n"),
        ("ZINTERSTORE d 3 a b c AGGREGATE COUNT", ":2\r\n"),
        ("ZRANGE d 0 -1 WITHSCORES", &array(&["a1", "3", "a3", "3"])),
        ("ZINTER 3 a b c WEIGHTS 1 2 3 AGGREGATE COUNT WITHSCORES", &array(&["a1", "6", "a3", "6"])),
        ("ZUNIONSTORE d 3 a b c AGGREGATE COUNT", ":4\r\n"),
        ("ZRANGE d 0 -1 WITHSCORES", &array(&["a4", "1", "a2", "2", "a1", "3", "a3", "3"])),
        ("SADD s a1 s1", ":2\r\n"),
        (
            "ZUNION 2 a s WEIGHTS 5 -1 AGGREGATE count WITHSCORES",
            &array(&["s1", "-1", "a1", "4", "a2", "5", "a3", "5"]),
        ),
        ("ZUNION 1 a AGGREGATE COUNTS", SYNTAX),
    ]);
}

#[test]
fn blmovem_waits_until_there_are_enough() {
    let mut harness = Harness::new();
    let (mut waits, mut pushes) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, "BLMOVEM s t LEFT RIGHT 0 EXACTLY 3 BULK"), "");
    harness.line(&mut pushes, "RPUSH s a b");
    assert_eq!(harness.deliver(&mut waits), b"", "two are not three");
    harness.line(&mut pushes, "RPUSH s c");
    let expected = array(&["a", "b", "c"]);
    assert_eq!(String::from_utf8_lossy(&harness.deliver(&mut waits)), expected);
    harness.expect(&mut pushes, &[("LRANGE t 0 -1", &expected), ("EXISTS s", ":0\r\n")]);
    assert_eq!(harness.line(&mut waits, "BLMOVEM s t LEFT RIGHT 0.1 COUNT 3 OBO"), "");
    assert_eq!(harness.after(&mut waits, Duration::from_millis(100)), b"*-1\r\n", "as BLMOVE");
}

/// Names of Redis that mean nothing here are taken as Redis takes them, and told again.
#[test]
fn names_of_redis_without_effect_are_set_and_told() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let pair = |name: &str, value: &str| {
        format!("*2\r\n${}\r\n{name}\r\n${}\r\n{value}\r\n", name.len(), value.len())
    };
    harness.expect(
        &mut wire,
        &[
            ("CONFIG GET zset-max-listpack-entries", &pair("zset-max-listpack-entries", "128")),
            ("CONFIG SET zset-max-ziplist-entries 7 hz 20", "+OK\r\n"),
            ("CONFIG GET zset-max-listpack-entries", &pair("zset-max-listpack-entries", "7")),
            ("CONFIG GET hz", &pair("hz", "20")),
            (
                "CONFIG SET hz 0",
                "-ERR CONFIG SET failed (possibly related to argument 'hz') - argument must be between 1 and 500 inclusive\r\n",
            ),
            (
                "CONFIG SET hz 11 activerehashing maybe",
                "-ERR CONFIG SET failed (possibly related to argument 'activerehashing') - argument must be 'yes' or 'no'\r\n",
            ),
            ("CONFIG GET hz", &pair("hz", "20")),
            ("CONFIG SET active-defrag-ignore-bytes 1mb", "+OK\r\n"),
            ("CONFIG GET active-defrag-ignore-bytes", &pair("active-defrag-ignore-bytes", "1048576")),
            ("CONFIG SET cluster-port 0", "+OK\r\n"),
            (
                "CONFIG SET cluster-port 1",
                "-ERR CONFIG SET failed (possibly related to argument 'cluster-port') - cluster-port = 1: here it is always 0\r\n",
            ),
            (
                "CONFIG SET zset-max-ziplist-value 1 zset-max-listpack-value 2",
                "-ERR CONFIG SET failed (possibly related to argument 'zset-max-listpack-value') - duplicate parameter\r\n",
            ),
            ("CONFIG SET hz 10 hz 10", "-ERR CONFIG SET failed (possibly related to argument 'hz') - duplicate parameter\r\n"),
        ],
    );
}

/// Libraries' tests set the sizes of small forms, and look at OBJECT ENCODING.
#[test]
fn sizes_of_small_collections_decide_what_their_encoding_is() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for line in [
        "HSET h a 1 b 2",
        "RPUSH l a b c",
        "SADD i 1 2 3",
        "SADD s a b",
        "ZADD z 1 a 2 b",
        "RPUSH long xxxxxxxxxxx",
    ] {
        assert!(harness.line(&mut wire, line).starts_with(':'));
    }
    let encodings = |harness: &Harness, wire: &mut Wire| -> Vec<String> {
        let keys = ["h", "l", "i", "s", "z", "long"];
        let encoding = |key: &&str| harness.line(wire, &format!("OBJECT ENCODING {key}"));
        keys.iter().map(encoding).map(|reply| reply.lines().nth(1).unwrap_or_default().to_owned()).collect()
    };
    let small = ["listpack", "listpack", "intset", "listpack", "listpack", "listpack"];
    assert_eq!(encodings(&harness, &mut wire), small);
    let sets = "CONFIG SET hash-max-listpack-entries 1 list-max-listpack-size 2 set-max-intset-entries 2 \
                set-max-listpack-entries 1 zset-max-listpack-value 0";
    assert_eq!(harness.line(&mut wire, sets), "+OK\r\n");
    let large = ["hashtable", "quicklist", "hashtable", "hashtable", "skiplist", "listpack"];
    assert_eq!(encodings(&harness, &mut wire), large);
    assert_eq!(
        harness.line(&mut wire, "CONFIG SET set-max-listpack-entries 3 list-max-listpack-size -1"),
        "+OK\r\n"
    );
    let some = ["hashtable", "listpack", "listpack", "listpack", "skiplist", "listpack"];
    assert_eq!(encodings(&harness, &mut wire), some);
}

#[test]
fn parts_of_debug_answer_or_say_why_not() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("DEBUG STRINGMATCH-LEN 100000 a*a*b", ":0\r\n"),
            ("DEBUG STRINGMATCH-LEN 3 a?a", ":1\r\n"),
            ("DEBUG STRINGMATCH-LEN 70000000 a", "-ERR the length 70000000 is more than 1048576\r\n"),
            (
                "DEBUG CHANGE-REPL-ID",
                "-ERR there is no replication ID to change: this server has no replicas\r\n",
            ),
            ("EVAL return(server.call('ping')) 0", "+PONG\r\n"),
        ],
    );
    assert!(harness.line(&mut wire, "DEBUG JMAP").starts_with("-ERR Internal allocator statistics"));
}

/// A password that is not UTF-8 was set to another one, which nobody knew.
#[test]
fn value_that_is_no_text_is_refused_and_not_changed() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for name in ["requirepass", "locale-collate"] {
        let reply = harness.raw(&mut wire, &[&b"CONFIG"[..], b"SET", name.as_bytes(), b"\xff\xfe"]);
        let argument = format!("related to argument '{name}') - the value is not UTF-8");
        assert!(reply.contains(&argument), "{reply}");
    }
    assert_eq!(harness.line(&mut wire, "CONFIG GET requirepass"), "*2\r\n$11\r\nrequirepass\r\n$0\r\n\r\n");
}
