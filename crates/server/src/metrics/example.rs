//! A snapshot for the tests of what writes it.

use std::time::Duration;

use hdrhistogram::Histogram;
use reactor::Longest;
use store::LogReport;

use super::*;
use crate::settings::ResourceKind;

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
        commands: vec![set],
        errors: [("ERR".to_owned(), 3), ("WRONGTYPE".to_owned(), 1)].into(),
        connections: ConnectionFigures {
            accepted: 12,
            refused: 1,
            failures: 0,
            max: 100,
            blocked: 1,
            message_bytes: 64,
        },
        keys: KeyFigures { hits: 5, misses: 6, expired: 7, databases: vec![(10, 2), (0, 0)] },
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
        transactions: Some(TransactionFigures {
            node: "shop-1".to_owned(),
            log: "journal".to_owned(),
            states: vec![("active", 2), ("in-doubt", 1)],
            resources: vec![ResourceFigures {
                name: "orders".to_owned(),
                kind: ResourceKind::Postgres,
                trouble: "connection refused".to_owned(),
                sessions: txn::sql::Sessions { failures: 3, ..Default::default() },
            }],
            ..TransactionFigures::default()
        }),
        memory: MemoryFigures {
            limit: 1 << 30,
            index: 1_000,
            hot: 2_000,
            large: 0,
            buffers: 300,
            journal: 40,
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
