//! Golden replies of what redis-server 7.0, the oracle of the differential test, does not know, and of what is ours.

use std::time::Duration;

use reactor::Step;

use super::Harness;

#[test]
fn library_names_are_shown_in_client_info() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
            ("CLIENT SETINFO lib-ver 5.0.1", "+OK\r\n"),
            ("CLIENT SETINFO lib-x y", "-ERR Unrecognized option 'lib-x'\r\n"),
            ("CLIENT NO-TOUCH on", "+OK\r\n"),
            ("CLIENT NO-TOUCH maybe", "-ERR syntax error\r\n"),
        ],
    );
    let bad = harness.raw(&mut wire, &["CLIENT", "SETINFO", "LIB-NAME", "a b"]);
    assert_eq!(bad, "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n");
    let info = harness.line(&mut wire, "CLIENT INFO");
    assert!(info.contains(" lib-name=redis-py lib-ver=5.0.1 "), "{info}");
    assert!(info.contains("flags=T "), "{info}");
}

#[test]
fn waitaof_without_a_log_is_refused_and_replicas_are_waited_for_in_vain() {
    let mut harness = Harness::with(|settings| settings.engine = crate::settings::Engine::Memory);
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("WAITAOF 0 0 10", "*2\r\n:0\r\n:0\r\n"),
            ("WAITAOF 2 0 10", "-ERR value is out of range\r\n"),
            ("WAITAOF 0 0 -1", "-ERR timeout is negative\r\n"),
        ],
    );
    assert!(harness.line(&mut wire, "WAITAOF 1 0 10").starts_with("-ERR WAITAOF cannot be used"));
    assert_eq!(harness.line(&mut wire, "WAIT 1 50"), "");
    assert_eq!(wire.step, Step::Park);
    assert_eq!(harness.after(&mut wire, Duration::from_millis(50)), b":0\r\n");
}

#[test]
fn maxage_kills_only_connections_that_are_old_enough() {
    let mut harness = Harness::new();
    let (old, mut operator) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut operator, "CLIENT KILL MAXAGE 10"), ":0\r\n");
    harness.clock.advance(Duration::from_secs(11));
    let mut young = harness.connect();
    assert_eq!(harness.line(&mut young, "CLIENT KILL MAXAGE 10 SKIPME yes"), "", "they have not ended yet");
    assert_eq!(harness.killed(), [1, 2]);
    harness.end(old);
    harness.end(operator);
    assert_eq!(harness.deliver(&mut young), b":2\r\n");
}

#[test]
fn tracking_checks_its_options() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    assert_eq!(harness.line(&mut wire, "CLIENT TRACKING off"), "+OK\r\n");
    let no_mix = "Prefixes for a single client must not overlap.\r\n";
    harness.expect(
        &mut wire,
        &[
            ("CLIENT TRACKING on OPTIN OPTOUT", "-ERR You can't specify both OPTIN mode and OPTOUT mode\r\n"),
            ("CLIENT TRACKING on PREFIX a", "-ERR PREFIX option requires BCAST mode to be enabled\r\n"),
            ("CLIENT TRACKING on BCAST OPTIN", "-ERR OPTIN and OPTOUT are not compatible with BCAST\r\n"),
            (
                "CLIENT TRACKING on BCAST PREFIX a PREFIX ab",
                &format!("-ERR Prefix 'a' overlaps with another provided prefix 'ab'. {no_mix}"),
            ),
            ("CLIENT TRACKING on BCAST PREFIX foo", "+OK\r\n"),
            (
                "CLIENT TRACKING on BCAST PREFIX fo",
                &format!("-ERR Prefix 'fo' overlaps with an existing prefix 'foo'. {no_mix}"),
            ),
            ("CLIENT TRACKING on BCAST PREFIX bar", "+OK\r\n"),
            ("CLIENT GETREDIR", ":0\r\n"),
            ("CLIENT TRACKING off", "+OK\r\n"),
        ],
    );
    harness.expect(
        &mut wire,
        &[
            ("CLIENT TRACKING off BCAST PREFIX a NOLOOP", "+OK\r\n"),
            ("CLIENT TRACKING off REDIRECT 1", "+OK\r\n"),
            ("CLIENT TRACKING off REDIRECT 99", "-ERR The client ID you want redirect to does not exist\r\n"),
            ("CLIENT TRACKING off FOO", "-ERR syntax error\r\n"),
            ("CLIENT TRACKING maybe", "-ERR syntax error\r\n"),
        ],
    );
}

#[test]
fn persistence_tells_when_the_first_promise_is_off() {
    let mut kept = Harness::new();
    let mut wire = kept.connect();
    assert!(kept.line(&mut wire, "INFO persistence").contains("acknowledged_writes_survive_power_loss:yes"));
    let mut off = Harness::with(|settings| settings.durability = crate::settings::Durability::Never);
    let mut wire = off.connect();
    let info = off.line(&mut wire, "INFO persistence");
    assert!(info.contains("first_promise:off: durability is not always"), "{info}");
}

#[test]
fn slow_log_is_off_at_minus_one_as_in_redis() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("CONFIG SET slowlog-log-slower-than -1", "+OK\r\n"),
            ("CONFIG GET slowlog-log-slower-than", "*2\r\n$23\r\nslowlog-log-slower-than\r\n$2\r\n-1\r\n"),
            ("CONFIG GET slowlog.threshold", "*2\r\n$17\r\nslowlog.threshold\r\n$3\r\noff\r\n"),
            ("SLOWLOG LEN", ":0\r\n"),
            ("CONFIG SET slowlog-log-slower-than 0", "+OK\r\n"),
            ("PING", "+PONG\r\n"),
            ("SLOWLOG LEN", ":2\r\n"),
        ],
    );
}

#[test]
fn idle_time_that_nobody_keeps_is_not_told() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.line(&mut wire, "SET key value");
    assert!(harness.line(&mut wire, "OBJECT IDLETIME key").starts_with("-ERR idle time is not tracked"));
    assert_eq!(harness.line(&mut wire, "OBJECT IDLETIME none"), "$-1\r\n");
}

#[test]
fn rates_are_those_since_the_info_before() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.after(&mut wire, Duration::from_secs(1));
    harness.line(&mut wire, "INFO stats");
    (0..30).for_each(|_| drop(harness.line(&mut wire, "PING")));
    harness.after(&mut wire, Duration::from_secs(10));
    let info = harness.line(&mut wire, "INFO stats");
    assert!(info.contains("instantaneous_ops_per_sec:3\r\n"), "{info}");
}

/// What redis_exporter, RedisInsight and the parsers of client libraries look for.
/// Where io_uring is refused INFO told that epoll serves, and the build figure of the metrics what the setting asks for.
#[test]
fn figures_tell_the_connector_that_serves_rather_than_the_one_asked_for() {
    let harness = Harness::with(|settings| settings.connector = crate::settings::Connector::Uring);
    let build = crate::metrics::Snapshot::take(&harness.server).build;
    assert!(build.contains(&("connector", "epoll".to_owned())), "{build:?}");
}

#[test]
fn info_has_the_fields_that_tools_read() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let info = harness.line(&mut wire, "INFO everything");
    for name in [
        "redis_version redis_git_sha1 redis_mode os arch_bits process_id run_id tcp_port uptime_in_seconds config_file",
        "connected_clients blocked_clients maxclients client_recent_max_input_buffer tracking_clients",
        "used_memory used_memory_human used_memory_rss used_memory_peak used_memory_peak_human maxmemory maxmemory_policy",
        "total_system_memory mem_fragmentation_ratio mem_allocator used_memory_lua number_of_cached_scripts",
        "loading rdb_changes_since_last_save rdb_bgsave_in_progress rdb_last_save_time rdb_last_bgsave_status aof_enabled",
        "rdb_last_bgsave_time_sec rdb_current_bgsave_time_sec aof_rewrite_scheduled aof_last_bgrewrite_status",
        "total_connections_received total_commands_processed instantaneous_ops_per_sec instantaneous_input_kbps",
        "instantaneous_output_kbps rejected_connections sync_full expired_keys evicted_keys keyspace_hits keyspace_misses",
        "pubsub_channels pubsub_patterns latest_fork_usec migrate_cached_sockets total_error_replies",
        "role connected_slaves master_replid master_replid2 master_repl_offset second_repl_offset repl_backlog_size",
        "used_cpu_sys used_cpu_user used_cpu_sys_children used_cpu_user_children cluster_enabled",
    ]
    .iter()
    .flat_map(|names| names.split(' '))
    {
        assert!(info.contains(&format!("\n{name}:")), "INFO has no {name}");
    }
}

/// The memory of scripts was told twice, as 0 and as what it is: clients take either.
#[test]
fn info_tells_each_field_once() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let info = harness.line(&mut wire, "INFO everything");
    let names = info.lines().filter_map(|line| line.split_once(':')).map(|(name, _)| name);
    let mut seen = std::collections::BTreeSet::new();
    let twice: Vec<&str> = names.filter(|name| !seen.insert(*name)).collect();
    assert_eq!(twice, [""; 0]);
}

/// used_memory was 0 where nothing lived, and the ratios with it were in the millions.
#[test]
fn memory_of_an_empty_server_has_ratios_that_people_can_read() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let info = harness.line(&mut wire, "INFO memory");
    let field = |name: &str| {
        let line = info.lines().find_map(|line| line.strip_prefix(&format!("{name}:")));
        line.unwrap_or_else(|| panic!("no {name}")).trim_end_matches('%').parse::<f64>().expect("a number")
    };
    assert!(field("used_memory") > 0.0 && field("used_memory_startup") > 100_000.0);
    assert!((0.2..5.0).contains(&field("mem_fragmentation_ratio")), "{info}");
    assert!((0.0..=100.0).contains(&field("used_memory_dataset_perc")), "{info}");
    let stats = harness.line(&mut wire, "MEMORY STATS");
    for name in ["peak.allocated", "total.allocated", "startup.allocated", "fragmentation", "peak.percentage"]
    {
        assert!(stats.contains(&format!("\r\n{name}\r\n")), "{name} in {stats}");
    }
}

#[test]
fn what_there_is_none_of_is_answered_as_by_a_server_without_a_cluster_and_without_scripts() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let refused = "-ERR unknown subcommand or wrong number of arguments for";
    harness.expect(
        &mut wire,
        &[
            ("PUBSUB SHARDCHANNELS", "*0\r\n"),
            ("PUBSUB SHARDCHANNELS a b", &format!("{refused} 'SHARDCHANNELS'. Try PUBSUB HELP.\r\n")),
            ("PUBSUB CHANNELS a b", &format!("{refused} 'CHANNELS'. Try PUBSUB HELP.\r\n")),
            ("PUBSUB SHARDNUMSUB", "*0\r\n"),
            ("PUBSUB SHARDNUMSUB a b", "*4\r\n$1\r\na\r\n:0\r\n$1\r\nb\r\n:0\r\n"),
            ("FUNCTION KILL", "-NOTBUSY No scripts in execution right now.\r\n"),
            ("FUNCTION LIST", "*0\r\n"),
            ("LATENCY GRAPH x", "-ERR No samples available for event 'x'\r\n"),
            ("SCAN +0", "*2\r\n$1\r\n0\r\n*0\r\n"),
            ("SCAN -0", "*2\r\n$1\r\n0\r\n*0\r\n"),
            ("SCAN ", "*2\r\n$1\r\n0\r\n*0\r\n"),
            ("SCAN +", "-ERR invalid cursor\r\n"),
            ("SCAN 18446744073709551616", "-ERR invalid cursor\r\n"),
            ("SET k 1", "+OK\r\n"),
            ("INCRBYFLOAT k 0x1p4", "$2\r\n17\r\n"),
        ],
    );
}

/// Tests of client libraries that met no such thing, or another spelling, took it for a fault of the library.
#[test]
fn small_things_that_tests_of_client_libraries_use_are_as_in_redis() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    assert_eq!(harness.raw(&mut wire, &["DEBUG", "ERROR", "LOADING a\r\nb"]), "-LOADING a  b\r\n");
    harness.expect(
        &mut wire,
        &[
            ("CONFIG GET loglevel", "*2\r\n$8\r\nloglevel\r\n$6\r\nnotice\r\n"),
            ("CONFIG GET latency-tracking", "*2\r\n$16\r\nlatency-tracking\r\n$3\r\nyes\r\n"),
            ("CLIENT PAUSE 9223372036854775807 WRITE", "+OK\r\n"),
            ("CLIENT UNPAUSE", "+OK\r\n"),
        ],
    );
}

/// HELLO with a right password and a name that is refused let the client in, and answered with an error.
#[test]
fn hello_with_a_bad_name_is_refused_as_a_whole() {
    let mut harness = Harness::new();
    let mut operator = harness.connect();
    harness.line(&mut operator, "CONFIG SET requirepass secret");
    let mut wire = harness.connect();
    let greeting = ["HELLO", "3", "AUTH", "default", "secret", "SETNAME", "a b"];
    assert!(harness.raw(&mut wire, &greeting).starts_with("-ERR Client names cannot contain"));
    assert!(harness.line(&mut wire, "PING").starts_with("-NOAUTH"));
}

#[test]
fn digests_are_equal_for_equal_contents_alone() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let empty = harness.line(&mut wire, "DEBUG DIGEST");
    assert_eq!(empty, format!("+{}\r\n", "0".repeat(40)));
    for (first, second, is_equal) in [
        ("HSET a x 1 y 2", "HSET b y 2 x 1", true),
        ("SADD a x y", "SADD b y x", true),
        ("ZADD a 1 x 2 y", "ZADD b 2 y 1 x", true),
        ("RPUSH a x y", "RPUSH b y x", false),
        ("SET a x", "SETEX b 100 x", false),
        ("SET a x", "RPUSH b x", false),
        ("HSET a xy z", "HSET b x yz", false),
    ] {
        harness.line(&mut wire, "DEL a b");
        harness.line(&mut wire, first);
        let alone = harness.line(&mut wire, "DEBUG DIGEST");
        harness.line(&mut wire, second);
        assert_ne!(harness.line(&mut wire, "DEBUG DIGEST"), alone);
        let reply = harness.line(&mut wire, "DEBUG DIGEST-VALUE a b");
        let values: Vec<&str> = reply.split("\r\n").collect();
        assert_eq!(values[1] == values[2], is_equal, "{first}, {second}: {reply}");
    }
}
