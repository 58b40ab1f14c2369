//! What operators see of waiting and slow commands: SLOWLOG, LATENCY, INFO, CLIENT LIST.

use std::time::Duration;

use super::{Harness, Wire};

#[test]
fn command_that_waited_for_more_than_the_threshold_is_in_slowlog_and_latency() {
    // A command that parked was timed from its last run: DEBUG SLEEP 1, which people try alarms with, left no
    // trace, and a read that waited for a slow disk neither.
    let mut harness = Harness::with(|settings| {
        settings.set("slowlog.threshold", "100ms").expect("a time");
        settings.set("latency.threshold", "100ms").expect("a time");
    });
    let mut wire = harness.connect();
    assert_eq!(harness.line(&mut wire, "DEBUG SLEEP 0.2"), "");
    assert_eq!(harness.after(&mut wire, Duration::from_millis(200)), b"+OK\r\n");
    let kept = harness.line(&mut wire, "SLOWLOG GET");
    assert!(kept.contains(":200000\r\n*3\r\n$5\r\nDEBUG\r\n$5\r\nSLEEP\r\n"), "{kept}");
    let events = harness.line(&mut wire, "LATENCY LATEST");
    assert!(events.ends_with("$7\r\ncommand\r\n:1700000000\r\n:200\r\n:200\r\n"), "{events}");
    let stats = harness.line(&mut wire, "INFO commandstats");
    assert!(stats.contains("cmdstat_debug|sleep:calls=1,usec=200000,"), "{stats}");
}

#[test]
fn command_that_was_told_to_wait_is_not_slow() {
    let mut harness = Harness::with(|settings| settings.set("slowlog.threshold", "100ms").expect("a time"));
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut wire, "WAIT 1 500"), "");
    assert_eq!(harness.after(&mut wire, Duration::from_millis(500)), b":0\r\n");
    harness.expect(&mut other, &[("CLIENT PAUSE 500 WRITE", "+OK\r\n")]);
    assert_eq!(harness.line(&mut wire, "SET k v"), "");
    assert_eq!(harness.after(&mut wire, Duration::from_millis(500)), b"+OK\r\n");
    harness.expect(&mut wire, &[("SLOWLOG LEN", ":0\r\n")]);
}

#[test]
fn client_that_waits_for_the_end_of_a_pause_counts_as_blocked() {
    // Scripts that pause writes for a switch wait until `blocked_clients` tells that the writers stand still.
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    harness.expect(&mut other, &[("CLIENT PAUSE 500 WRITE", "+OK\r\n")]);
    assert_eq!(harness.line(&mut wire, "SET k v"), "");
    let clients = harness.line(&mut other, "INFO clients");
    assert!(clients.contains("blocked_clients:1\r\n"), "{clients}");
    let list = harness.line(&mut other, "CLIENT LIST ID 1");
    assert!(list.contains(" flags=b "), "{list}");
    harness.expect(&mut other, &[("CLIENT UNPAUSE", "+OK\r\n")]);
    assert_eq!(harness.deliver(&mut wire), b"+OK\r\n");
    let clients = harness.line(&mut other, "INFO clients");
    assert!(clients.contains("blocked_clients:0\r\n"), "{clients}");
}

/// What a transaction had queued was counted until the next one: connections that had each sent a large one once filled
/// `memory.limit` with nothing, and writes were refused. CLIENT LIST showed keys as watched that were not.
#[test]
fn transaction_that_has_ended_keeps_nothing_and_says_so() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    let shown = |harness: &Harness, other: &mut Wire, wanted: &str| {
        let list = harness.line(other, "CLIENT LIST ID 1");
        assert!(list.contains(wanted), "{wanted}: {list}");
    };
    let value = "v".repeat(10_000);
    for end in ["EXEC", "DISCARD", "RESET", "EXEC with too many arguments"] {
        harness.expect(&mut wire, &[("WATCH a b", "+OK\r\n"), ("MULTI", "+OK\r\n")]);
        harness.line(&mut wire, &format!("SET k {value}"));
        shown(&harness, &mut other, " multi=1 watch=2 qbuf=0 ");
        shown(&harness, &mut other, " multi-mem=10030 ");
        harness.line(&mut wire, end);
        shown(&harness, &mut other, " multi=-1 watch=0 ");
        shown(&harness, &mut other, " multi-mem=0 ");
    }
}

#[test]
fn commands_are_counted_and_timed_until_that_is_turned_off() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(&mut wire, &[("SET k v", "+OK\r\n"), ("CONFIG SET latency-tracking no", "+OK\r\n")]);
    harness.expect(&mut wire, &[("SET k v", "+OK\r\n"), ("GET k v", ARITY), ("INCR k", NO_INTEGER)]);
    let stats = harness.line(&mut wire, "INFO commandstats");
    assert!(stats.contains("cmdstat_set:calls=2,"), "{stats}");
    assert!(
        stats.contains("cmdstat_get:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,failed_calls=0"),
        "{stats}"
    );
    assert!(
        stats.contains("cmdstat_incr:calls=1,usec=0,usec_per_call=0.00,rejected_calls=0,failed_calls=1"),
        "{stats}"
    );
    let told = "*2\r\n$3\r\nset\r\n*4\r\n$5\r\ncalls\r\n:1\r\n$14\r\nhistogram_usec\r\n*2\r\n:1\r\n:1\r\n";
    assert_eq!(harness.line(&mut wire, "LATENCY HISTOGRAM set get"), told, "the one that was timed");
    let latencies = harness.line(&mut wire, "INFO latencystats");
    assert!(
        latencies.contains("percentiles_usec_set:p50=0.015,p99=0.015,p99.9=0.015,p99.99=0.015\r\n"),
        "{latencies}"
    );
    let change = "CONFIG SET latency-tracking-info-percentiles 50\t100";
    harness.expect(&mut wire, &[(change, "+OK\r\n")]);
    let latencies = harness.line(&mut wire, "INFO latencystats");
    assert!(latencies.contains("percentiles_usec_set:p50=0.015,p100=0.015\r\n"), "{latencies}");
}

const ARITY: &str = "-ERR wrong number of arguments for 'get' command\r\n";
const NO_INTEGER: &str = "-ERR value is not an integer or out of range\r\n";

/// INCR and APPEND raised the hit ratio, TYPE and COPY did not: dashboards showed another one than beside Redis.
#[test]
fn only_commands_that_ask_for_keys_count_as_hits_and_misses() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for (line, hits, misses) in [
        ("GET k", 1, 0),
        ("MGET k none k", 2, 1),
        ("GETSET k 1", 1, 0),
        ("SET k 1 GET", 1, 0),
        ("SET k 1", 0, 0),
        ("INCR k", 0, 0),
        ("INCRBYFLOAT new 1", 0, 0),
        ("APPEND new 1", 0, 0),
        ("SETRANGE k 0 1", 0, 0),
        ("SETRANGE none 0 ", 0, 0),
        ("STRLEN none", 0, 1),
        ("GETRANGE k 0 1", 1, 0),
        ("EXISTS k none", 1, 1),
        ("TYPE k", 1, 0),
        ("TYPE none", 0, 1),
        ("TTL k", 1, 0),
        ("EXPIRE k 100", 0, 0),
        ("COPY k other", 1, 0),
        ("COPY k other", 1, 0),
        ("COPY none other", 0, 1),
        ("DUMP k", 1, 0),
        ("OBJECT ENCODING none", 0, 1),
        ("OBJECT REFCOUNT k", 1, 0),
        ("LCS k none", 1, 1),
        ("DEL k none", 0, 0),
    ] {
        harness.line(&mut wire, "SET k 1");
        let before = harness.server.calls.hits_and_misses();
        harness.line(&mut wire, line);
        let after = harness.server.calls.hits_and_misses();
        assert_eq!((after.0 - before.0, after.1 - before.1), (hits, misses), "{line}");
    }
}

/// `avg_ttl` was always 0.
#[test]
fn keyspace_tells_the_average_time_that_keys_have_left() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for command in ["SET a v PX 1000", "SET b v PX 3000", "SET c v PXAT 1700000005000", "SET d v"] {
        harness.expect(&mut wire, &[(command, "+OK\r\n")]);
    }
    let text = harness.line(&mut wire, "INFO keyspace");
    assert!(text.contains("db0:keys=4,expires=3,avg_ttl=3000\r\n"), "{text}");
    harness.expect(&mut wire, &[("DEL b", ":1\r\n"), ("PERSIST c", ":1\r\n")]);
    harness.clock.advance(Duration::from_millis(400));
    let text = harness.line(&mut wire, "INFO keyspace");
    assert!(text.contains("db0:keys=3,expires=1,avg_ttl=600\r\n"), "{text}");
}

#[test]
fn jump_of_the_wall_clock_is_counted_and_moves_the_times_that_clients_see_but_no_ttl() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(&mut wire, &[("SET k v PX 60000", "+OK\r\n"), ("PEXPIRETIME k", ":1700000060000\r\n")]);
    for (unix_ms, jump_ms, forward, back) in [
        (1_700_007_200_000, 7_200_000, 1, 0),
        (1_700_000_000_000, -7_200_000, 1, 1),
        (1_700_000_001_000, -7_200_000, 1, 1),
    ] {
        harness.clock.set_unix_ms(clock::UnixMs(unix_ms));
        let end = format!(":{}\r\n", unix_ms + 60_000);
        harness.expect(&mut wire, &[("PTTL k", ":60000\r\n"), ("TTL k", ":60\r\n"), ("PEXPIRETIME k", &end)]);
        let text = harness.line(&mut wire, "INFO server");
        let offset_ms = unix_ms - 1_700_000_000_000;
        let wanted = format!(
            "clock_jumps_forward:{forward}\r\nclock_jumps_back:{back}\r\nclock_last_jump_ms:{jump_ms}\r\nclock_offset_ms:{offset_ms}\r\n"
        );
        assert!(text.contains(&wanted), "{text}");
    }
}

/// Every command that sets a deadline, each with a clock that is set back and forward between.
#[test]
fn every_ttl_ends_after_its_duration_and_every_time_when_the_wall_clock_shows_it() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let ttls = [
        "SET k v PX 5000",
        "SET k v EX 5",
        "PSETEX k 5000 v",
        "SETEX k 5 v",
        "PEXPIRE k 5000",
        "EXPIRE k 5",
        "GETEX k PX 5000",
        "GETEX k EX 5",
    ];
    let times = [
        "SET k v PXAT 1700000005000",
        "SET k v EXAT 1700000005",
        "PEXPIREAT k 1700000005000",
        "EXPIREAT k 1700000005",
        "GETEX k PXAT 1700000005000",
        "GETEX k EXAT 1700000005",
    ];
    for command in ttls {
        harness.clock.set_unix_ms(clock::UnixMs(1_700_000_000_000));
        harness.line(&mut wire, "SET k v");
        harness.line(&mut wire, command);
        for unix_ms in [1_600_000_000_000, 1_800_000_000_000, 1_700_000_001_000, 1_700_000_000_000] {
            harness.clock.set_unix_ms(clock::UnixMs(unix_ms));
            harness.expect(&mut wire, &[("PTTL k", ":5000\r\n"), ("EXISTS k", ":1\r\n")]);
        }
        harness.clock.advance(Duration::from_millis(4_999));
        harness.clock.set_unix_ms(clock::UnixMs(1_600_000_000_000));
        harness.expect(&mut wire, &[("PTTL k", ":1\r\n")]);
        harness.clock.advance(Duration::from_millis(1));
        harness.expect(&mut wire, &[("EXISTS k", ":0\r\n")]);
    }
    for command in times {
        harness.clock.set_unix_ms(clock::UnixMs(1_700_000_000_000));
        harness.line(&mut wire, "SET k v");
        harness.line(&mut wire, command);
        for (unix_ms, left_ms) in
            [(1_699_999_000_000, 1_005_000), (1_700_000_004_999, 1), (1_700_000_000_000, 5_000)]
        {
            harness.clock.set_unix_ms(clock::UnixMs(unix_ms));
            harness.expect(&mut wire, &[("PTTL k", &format!(":{left_ms}\r\n"))]);
        }
        harness.clock.set_unix_ms(clock::UnixMs(1_700_000_005_000));
        harness.expect(&mut wire, &[("EXISTS k", ":0\r\n")]);
        harness.clock.set_unix_ms(clock::UnixMs(1_700_000_000_000));
        harness.expect(&mut wire, &[("EXISTS k", ":0\r\n")]);
    }
}

/// A watched key that is gone, and would be back by the wall clock, is a change all the same; so is none that expired before.
#[test]
fn exec_sees_a_watched_key_expire_once_though_the_wall_clock_runs_back() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    harness.expect(&mut other, &[("SET k v PXAT 1700000001000", "+OK\r\n")]);
    harness.expect(&mut wire, &[("WATCH k", "+OK\r\n"), ("MULTI", "+OK\r\n"), ("GET k", "+QUEUED\r\n")]);
    harness.clock.set_unix_ms(clock::UnixMs(1_700_000_002_000));
    harness.expect(&mut other, &[("DBSIZE", ":1\r\n"), ("KEYS *", "*0\r\n")]);
    harness.clock.set_unix_ms(clock::UnixMs(1_700_000_000_000));
    harness.expect(&mut wire, &[("EXEC", "*-1\r\n")]);
    harness.expect(&mut wire, &[("WATCH k", "+OK\r\n"), ("MULTI", "+OK\r\n"), ("GET k", "+QUEUED\r\n")]);
    harness.clock.set_unix_ms(clock::UnixMs(1_699_999_000_000));
    harness.expect(&mut wire, &[("EXEC", "*1\r\n$-1\r\n")]);
}
