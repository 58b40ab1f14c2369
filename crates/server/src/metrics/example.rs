//! A snapshot for the tests of what writes it.

use std::sync::Arc;
use std::time::Duration;

use hdrhistogram::Histogram;
use reactor::Longest;
use sql::Sessions;
use store::LogReport;
use supervisor::{
    ComponentStatus, EdgeStatus, FigureStatus, Latencies, Report, Shares, State, Status, TimeSpent,
    WorkerReport,
};
use txn::coordinator::Counters;
use txn::decision_log::LogCounters;
use txn::phases::{Phases, Times};

use super::*;
use crate::held::ClientFigures;
use crate::settings::ResourceKind;
use reactor::HandshakeCounts;

fn handshakes() -> HandshakeCounts {
    let names = ["not_tls", "protocol", "certificate", "refused", "timed_out", "cut", "crowded"];
    let mut count = 33;
    let failed = names.map(|name| {
        count += 1;
        (name, count)
    });
    HandshakeCounts { done: 31, resumed: 32, under_way: 33, failed }
}

/// What a server has to show, as far as its writers tell things apart.
pub(super) fn example() -> Snapshot {
    let set = CommandFigures {
        name: "set",
        loops: vec![
            CallFigures { calls: 20, failed: 1, rejected: 2 },
            CallFigures { calls: 30, failed: 0, rejected: 0 },
        ],
        nanos: histogram(&[900, 1_000, 40_000, 2_000_000]),
        nanos_sum: 2_041_900,
    };
    Snapshot {
        unix_ms: 1_700_000_000_000,
        uptime: Duration::from_secs(100),
        build: vec![("version", "1.2.3".to_owned()), ("engine", "log".to_owned())],
        loops: vec![of_loop(5), of_loop(6)],
        active: Some(ActiveFigures { count: 2, reason: "loops_busy", changes: 3 }),
        commands: vec![set],
        errors: [("ERR".to_owned(), 3), ("WRONGTYPE".to_owned(), 1)].into(),
        connections: ConnectionFigures {
            accepted: 12,
            refused: 1,
            failures: 0,
            handshakes: handshakes(),
            max: 100,
            blocked: 1,
            message_bytes: 64,
        },
        keys: keys(),
        journal: Some(JournalFigures {
            counters: journal::Counters {
                batches: 9,
                records: 40,
                syncs: 8,
                segments_open: 1,
                ..Default::default()
            },
            syncs: journal::SyncFigures::default(),
            newest_seq: 40,
            durable_seq: 39,
            released_seq: 38,
        }),
        log: Some(LogReport { log_bytes: 1_000, live_bytes: 600, cold_reads: 4, ..Default::default() }),
        transactions: Some(transactions()),
        topologies: Some(vec![topology()]),
        memory: MemoryFigures {
            limit: 1 << 30,
            index: 1_000,
            hot: 2_000,
            large: 0,
            buffers: 300,
            journal: 40,
            process: 50,
        },
        clients: ClientFigures {
            max_bytes: 1 << 29,
            parts: vec![("connections", 200), ("output", 100)],
            unauthenticated_bytes: 50,
            waiting: 2,
            counts: vec![("auth_failures", "Wrong passwords.", 3)],
        },
        process: ProcessFigures {
            cpu_user_s: 1.5,
            cpu_system_s: 0.25,
            resident_bytes: 8 << 20,
            threads: 9,
            files_open: 30,
            files_max: 1_024,
        },
    }
}

fn keys() -> KeyFigures {
    KeyFigures {
        hits: 5,
        misses: 6,
        expired: 7,
        evicted: 8,
        databases: vec![(10, 2), (0, 0)],
        leaves: store::LeafReport { leaves: 21, hot_bytes: 22, swept: 23, changes: 24 },
    }
}

fn topology() -> Report {
    let (lines, split) = components();
    let status = Arc::new(Status { is_idle: false, blocked: None, components: vec![lines, split] });
    let first = WorkerReport { status: Some(Arc::clone(&status)), ..worker(0, Some(4_711)) };
    Report {
        name: "words".to_owned(),
        state: State::Active,
        pid: Some(4_711),
        uptime: Duration::from_secs(90),
        restarts: 7,
        last_error: None,
        status,
        is_drained: false,
        workers: vec![first, worker(1, None)],
    }
}

fn components() -> (ComponentStatus, ComponentStatus) {
    let lines = ComponentStatus {
        id: "lines".to_owned(),
        is_spout: true,
        tasks: 2,
        emitted: 201,
        transferred: 202,
        acked: 203,
        failed: 204,
        pending: 205,
        latencies: Latencies { complete: times_of(3, 1_500), ..Latencies::default() },
        time: TimeSpent {
            busy_us: 1_000_000,
            back_pressured_us: 7_000_000,
            idle_us: 1_500_000,
            runnable_us: 500_000,
        },
        shares: Shares { busy_permille: 100, back_pressured_permille: 700, idle_permille: 150 },
        lag_ms: Some(2_500),
        edges: vec![edge()],
        streams: vec![("default".to_owned(), 201)],
        ..ComponentStatus::default()
    };
    let split = ComponentStatus {
        id: "split".to_owned(),
        tasks: 3,
        executed: 211,
        queued_bytes: 212,
        faults: 213,
        restarts: 214,
        latencies: Latencies {
            execute: times_of(4, 70),
            process: times_of(5, 80),
            queue: times_of(6, 9_000),
            ..Latencies::default()
        },
        time: TimeSpent {
            busy_us: 4_000_000,
            back_pressured_us: 0,
            idle_us: 5_000_000,
            runnable_us: 1_000_000,
        },
        shares: Shares { busy_permille: 400, back_pressured_permille: 0, idle_permille: 500 },
        last_error: Some("it crashed".to_owned()),
        last_error_age_ms: Some(61_000),
        figures: vec![FigureStatus { name: "lines".to_owned(), count: 231, sum: 232.5, last: 1.5 }],
        ..ComponentStatus::default()
    };
    (lines, split)
}

fn edge() -> EdgeStatus {
    EdgeStatus {
        stream: "default".to_owned(),
        to: "split".to_owned(),
        transferred: 202,
        queued_bytes: 212,
        executed: 221,
        acked: 222,
        failed: 223,
        latencies: Latencies {
            execute: times_of(7, 60),
            process: times_of(8, 90),
            queue: times_of(9, 8_000),
            ..Latencies::default()
        },
    }
}

/// So many, of so long each.
fn times_of(count: u64, us: u64) -> supervisor::Times {
    let place = supervisor::Times::BOUNDS_US.partition_point(|bound| *bound < us);
    let mut buckets = vec![0; place + 1];
    buckets[place] = count;
    supervisor::Times { count, sum_ns: count * us * 1_000, buckets }
}

fn worker(number: u32, pid: Option<u32>) -> WorkerReport {
    WorkerReport { number, pid, uptime: Duration::from_secs(90), tasks: 2, restarts: 3, status: None }
}

/// Each figure has a value of its own: none can stand under another's name.
fn transactions() -> TransactionFigures {
    let states = ["active", "preparing", "deciding", "committing", "rolling-back", "heuristic", "in-doubt"];
    let states = states.into_iter().chain(["committed"]).zip(101..).collect();
    let resource = |name: &str, kind, trouble: &str, sessions| ResourceFigures {
        name: name.to_owned(),
        kind,
        trouble: trouble.to_owned(),
        sessions,
    };
    let orders = Sessions { open: 134, busy: 133, waiting: 132, failures: 131 };
    let stock = Sessions { open: 144, busy: 143, waiting: 142, failures: 141 };
    TransactionFigures {
        node: "shop-1".to_owned(),
        epoch: 11,
        log: "journal".to_owned(),
        counters: Counters {
            committed: 12,
            aborted: 13,
            unknown: 14,
            heuristic: 15,
            live: 728,
            kept: 108,
            orphans: 16,
        },
        states,
        phases: Phases {
            prepare: times(&[(0, 1), (3, 20)], 8_000_000),
            decide: times(&[(1, 2), (4, 21)], 17_000_000),
            commit: times(&[(2, 3), (18, 22)], 200_000_000_000),
        },
        decisions: LogCounters { records: 17, removed: 18, syncs: 19, bytes: 20 },
        prepared: 111,
        locked_keys: 112,
        locked_databases: 113,
        resources: vec![
            resource("orders", ResourceKind::Postgres, "connection refused", orders),
            resource("stock", ResourceKind::MariaDb, "", stock),
        ],
    }
}

/// Of each place how many `counted`, and the sum of all.
fn times(counted: &[(usize, u64)], sum_ns: u64) -> Times {
    let mut times = Times { sum_ns, ..Times::default() };
    for (place, count) in counted {
        times.buckets[*place] += count;
        times.count += count;
    }
    times
}

fn of_loop(connections: u64) -> LoopFigures {
    let longest =
        Longest { connection_id: 7, took: Duration::from_micros(1_500), what: Some("lcs".to_owned()) };
    LoopFigures {
        connections,
        held: 1,
        inbox: 2,
        ticks: 10,
        read_events: 20,
        write_events: 21,
        bytes_in: 3_000,
        bytes_out: 4_000,
        commands: 30,
        messages: 4,
        wakes: 3,
        moves_in: 1,
        moves_out: 2,
        busy: Duration::from_millis(250),
        cpu: Duration::from_millis(300),
        run_queue_delay: (connections == 5).then_some(Duration::from_millis(20)),
        committing: Duration::from_millis(50),
        stuck: 1,
        lag_us: histogram(&[10, 20, 30, 4_000]),
        longest: (connections == 5).then(|| longest.clone()),
    }
}

fn histogram(values: &[u64]) -> Histogram<u64> {
    let mut histogram = Histogram::new_with_bounds(1, 60_000_000_000, 2).expect("bounds");
    values.iter().for_each(|value| histogram.record(*value).expect("in bounds"));
    histogram
}
