//! What Redis does where it is easy to do otherwise.

use super::Harness;

#[test]
fn scores_are_added_from_the_smallest_set_up() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("ZADD big 1 m 1 a 1 b", ":3\r\n"),
            ("ZADD small inf m", ":1\r\n"),
            ("ZADD middle -inf m 0 a", ":2\r\n"),
            ("ZUNIONSTORE d 3 big small middle", ":3\r\n"),
            // infinities of both signs make 0, which 1 is then added to
            ("ZSCORE d m", "$1\r\n1\r\n"),
            ("ZINTERSTORE d 3 middle big small", ":1\r\n"),
            ("ZSCORE d m", "$1\r\n1\r\n"),
        ],
    );
}

#[test]
fn number_of_which_nothing_is_left_is_no_score() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let refused = "-ERR value is not a valid float\r\n";
    harness.expect(
        &mut wire,
        &[
            ("ZADD z 1e-400 m", refused),
            ("ZADD z -1e-400 m", refused),
            ("ZADD z 1e400 m", refused),
            ("ZADD z 1e-320 tiny 0e-400 zero -0x0p-9999 none", ":3\r\n"),
            ("ZINCRBY z 1e-400 m", refused),
            // a bound is what `strtod` makes of it
            ("ZCOUNT z -1e-400 1e-400", ":2\r\n"),
        ],
    );
}

#[test]
fn table_tells_keys_and_subcommands_as_clients_expect() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("COMMAND GETKEYS SORT k STORE a LIMIT 0 1 STORE b", "*2\r\n$1\r\nk\r\n$1\r\nb\r\n"),
            ("COMMAND GETKEYS SORT k BY store GET store ASC", "*1\r\n$1\r\nk\r\n"),
            ("COMMAND GETKEYS SORT k STORE store", "*2\r\n$1\r\nk\r\n$5\r\nstore\r\n"),
            ("COMMAND GETKEYS EVALSHA x 0 arg", "*0\r\n"),
            ("MODULE LIST", "*0\r\n"),
            ("RPUSH k 2 1", ":2\r\n"),
            ("SORT k STORE a STORE store", ":2\r\n"),
            ("EXISTS a store", ":1\r\n"),
        ],
    );
    assert!(harness.line(&mut wire, "COMMAND INFO SORT_RO").contains("movablekeys"));
    assert!(harness.line(&mut wire, "COMMAND LIST").contains("config|get"));
}

/// A key that was in neither database counted as changed by SWAPDB.
#[test]
fn swap_of_databases_leaves_a_watched_key_alone_that_is_in_neither() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    harness.line(&mut wire, "SET there v");
    for (watched, reply) in [("missing", "*1\r\n+PONG\r\n"), ("there", "*-1\r\n")] {
        harness.line(&mut wire, &format!("WATCH {watched}"));
        harness.line(&mut other, "SWAPDB 0 1");
        harness.line(&mut wire, "MULTI");
        harness.line(&mut wire, "PING");
        assert_eq!(harness.line(&mut wire, "EXEC"), reply, "{watched}");
        harness.line(&mut other, "SWAPDB 0 1");
    }
}
