//! All figures of a server at one moment, as plain values.
//!
//! Taking them is work for a thread that may wait: the journal's gauges are behind a lock that syncs hold. No loop waits for it, but
//! for the few instructions in which a counter moves.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use reactor::{HandshakeCounts, Longest, LoopStats};
use store::{Census, LogReport, MemoryReport};
use supervisor::Report;

use super::process::ProcessFigures;
use crate::calls::Summary;
use crate::held::ClientFigures;
use crate::peers::{Accepts, Peers};
use crate::server::Server;
use crate::tx::TransactionFigures;

/// The figures.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// When it was taken, in ms since 1970.
    pub unix_ms: u64,
    /// Since the start.
    pub uptime: Duration,
    /// What runs: name and value.
    pub build: Vec<(&'static str, String)>,
    /// Loops, by their number.
    pub loops: Vec<LoopFigures>,
    /// How many of them are active; `None` without a reactor.
    pub active: Option<ActiveFigures>,
    /// Commands that were called or refused.
    pub commands: Vec<CommandFigures>,
    /// Error replies by their code.
    pub errors: BTreeMap<String, u64>,
    /// Connections and listeners.
    pub connections: ConnectionFigures,
    /// Keys.
    pub keys: KeyFigures,
    /// The journal; engine `log` only.
    pub journal: Option<JournalFigures>,
    /// The log behind the store; engine `log` only.
    pub log: Option<LogReport>,
    /// Transactions over keys and databases, unless the server was started without.
    pub transactions: Option<TransactionFigures>,
    /// Topologies, if the server runs any.
    pub topologies: Option<Vec<Report>>,
    /// Memory by budget.
    pub memory: MemoryFigures,
    /// What clients make the server hold.
    pub clients: ClientFigures,
    /// The process.
    pub process: ProcessFigures,
}

/// How many loops are active.
#[derive(Clone, Debug)]
pub struct ActiveFigures {
    /// They are the first ones.
    pub count: u64,
    /// Why there are so many.
    pub reason: &'static str,
    /// How often the number changed.
    pub changes: u64,
}

/// One loop.
#[derive(Clone, Debug)]
pub struct LoopFigures {
    /// Connections now.
    pub connections: u64,
    /// Connections whose replies wait for the disk now.
    pub held: u64,
    /// Messages that it has not taken yet.
    pub inbox: u64,
    /// Turns.
    pub ticks: u64,
    /// Reads that brought bytes.
    pub read_events: u64,
    /// Writes that took bytes.
    pub write_events: u64,
    /// Bytes read.
    pub bytes_in: u64,
    /// Bytes written.
    pub bytes_out: u64,
    /// Commands.
    pub commands: u64,
    /// Messages taken.
    pub messages: u64,
    /// Times that another thread had to wake it.
    pub wakes: u64,
    /// Connections that came from another loop.
    pub moves_in: u64,
    /// Connections that left for another loop.
    pub moves_out: u64,
    /// Time spent on connections.
    pub busy: Duration,
    /// Processor time of its thread.
    pub cpu: Duration,
    /// Time that its thread was ready to run and waited for a core, where the system tells.
    pub run_queue_delay: Option<Duration>,
    /// Time that it waited for the disk because all its clients did.
    pub committing: Duration,
    /// How long ticks took, in microseconds.
    pub lag_us: Histogram<u64>,
    /// Times that it was found stuck.
    pub stuck: u64,
    /// The longest callback in the last interval of the balancer.
    pub longest: Option<Longest>,
}

/// One command.
#[derive(Clone, Debug)]
pub struct CommandFigures {
    /// As in the table: `config|get`.
    pub name: &'static str,
    /// Calls on each loop, in the order of the loops.
    pub loops: Vec<CallFigures>,
    /// Time of each, in nanoseconds, of all loops.
    pub nanos: Histogram<u64>,
    /// Their sum, exact.
    pub nanos_sum: u64,
}

/// How often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFigures {
    /// Calls that ran.
    pub calls: u64,
    /// Of these, those that answered with an error.
    pub failed: u64,
    /// Calls refused before they ran.
    pub rejected: u64,
}

/// Connections and listeners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionFigures {
    /// Taken in.
    pub accepted: u64,
    /// One too many.
    pub refused: u64,
    /// Could not be accepted, for want of descriptors or memory.
    pub failures: u64,
    /// Of TLS.
    pub handshakes: HandshakeCounts,
    /// Served at once, at most.
    pub max: u64,
    /// Whose command waits for something but the disk.
    pub blocked: u64,
    /// Bytes of published messages on their way to listeners.
    pub message_bytes: u64,
}

/// Keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyFigures {
    /// Found by commands that read.
    pub hits: u64,
    /// Not found.
    pub misses: u64,
    /// Removed because their time had come.
    pub expired: u64,
    /// Keys removed to make room.
    pub evicted: u64,
    /// Keys, and those of them with an expiry, of each database.
    pub databases: Vec<(u64, u64)>,
    /// Leaves of large collections.
    pub leaves: store::LeafReport,
}

/// The journal.
#[derive(Clone, Debug)]
pub struct JournalFigures {
    /// Its counters.
    pub counters: journal::Counters,
    /// Its syncs.
    pub syncs: journal::SyncFigures,
    /// The newest effect.
    pub newest_seq: u64,
    /// The newest that is on disk.
    pub durable_seq: u64,
    /// The newest whose replies may leave.
    pub released_seq: u64,
}

/// Memory by budget, in bytes. The parts are disjoint; `limit` holds for their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryFigures {
    /// The setting; 0 is none.
    pub limit: u64,
    /// Index pages, expiries and what else finds keys.
    pub index: u64,
    /// Values in memory but the large ones.
    pub hot: u64,
    /// Values of 64 KiB or more.
    pub large: u64,
    /// Buffers of connections, and messages.
    pub buffers: u64,
    /// What waits in the journal for the disk.
    pub journal: u64,
    /// What the process holds beside all that, as far as it takes a part of the limit.
    pub process: u64,
}

impl Snapshot {
    /// The figures of `server`, now.
    pub(crate) fn take(server: &Server) -> Self {
        let census = server.store.census();
        let (hits, misses) = server.calls.hits_and_misses();
        Snapshot {
            unix_ms: server.clock.unix_us() / 1_000,
            uptime: server.clock.now().since(server.started),
            build: build(server),
            loops: loops(server.peers.get()),
            active: server.peers.get().map(active),
            commands: commands(server),
            errors: server.stats.errors(),
            connections: connections(server),
            clients: ClientFigures::of(server),
            memory: MemoryFigures::of(&server.store.memory(), &census),
            keys: KeyFigures {
                hits,
                misses,
                expired: server.store.expired_keys(),
                evicted: server.store.evicted_keys(),
                databases: census.databases,
                leaves: server.store.leaf_report(),
            },
            journal: journal(server),
            log: server.store.log_report(),
            transactions: server.transactions.as_ref().map(|it| it.figures()),
            topologies: server.topologies.as_ref().map(|it| it.supervisor.reports()),
            process: ProcessFigures::read(),
        }
    }
}

impl LoopFigures {
    fn of(stats: &LoopStats, inbox: u64) -> Self {
        LoopFigures {
            connections: stats.connections() as u64,
            held: stats.held() as u64,
            inbox,
            ticks: stats.ticks(),
            read_events: stats.read_events(),
            write_events: stats.write_events(),
            bytes_in: stats.bytes_in(),
            bytes_out: stats.bytes_out(),
            commands: stats.commands(),
            messages: stats.messages(),
            wakes: stats.wakes(),
            moves_in: stats.moves_in(),
            moves_out: stats.moves_out(),
            busy: Duration::from_nanos(stats.busy_ns()),
            cpu: Duration::from_nanos(stats.cpu_ns()),
            run_queue_delay: stats.run_queue_delay(),
            committing: Duration::from_nanos(stats.waited_ns()),
            lag_us: stats.lag_us(),
            stuck: stats.stuck_count(),
            longest: stats.interval().longest,
        }
    }
}

impl MemoryFigures {
    fn of(report: &MemoryReport, census: &Census) -> Self {
        let small = report.index_bytes - report.large_bytes;
        MemoryFigures {
            limit: report.limit_bytes,
            // the two were not counted at the same moment
            index: small.saturating_sub(census.hot_bytes),
            hot: census.hot_bytes.min(small),
            large: report.large_bytes,
            buffers: report.reported_bytes - report.journal_bytes,
            journal: report.journal_bytes,
            process: report.process_bytes,
        }
    }

    /// By name.
    pub(crate) fn parts(&self) -> [(&'static str, u64); 6] {
        let MemoryFigures { limit: _, index, hot, large, buffers, journal, process } = *self;
        [
            ("index", index),
            ("hot", hot),
            ("large", large),
            ("buffers", buffers),
            ("journal", journal),
            ("process", process),
        ]
    }
}

fn build(server: &Server) -> Vec<(&'static str, String)> {
    let settings = server.settings.current();
    vec![
        ("version", server.version.to_owned()),
        ("engine", settings.engine.to_string()),
        ("connector", server.peers.connector()),
        ("journal_backend", server.store.backend().unwrap_or_default()),
    ]
}

pub(super) fn active(peers: &dyn Peers) -> ActiveFigures {
    let reactor::ActiveReport { count, reason, changes, since: _ } = peers.active_loops();
    ActiveFigures { count: count as u64, reason: reason.as_str(), changes }
}

pub(super) fn loops(peers: Option<&dyn Peers>) -> Vec<LoopFigures> {
    let Some(peers) = peers else { return Vec::new() };
    let figures = |(index, stats): (usize, &std::sync::Arc<LoopStats>)| {
        LoopFigures::of(stats, peers.mailbox_depth(index) as u64)
    };
    peers.loops().iter().enumerate().map(figures).collect()
}

fn commands(server: &Server) -> Vec<CommandFigures> {
    let reading = server.calls.read();
    let entries = server.table.entries().iter();
    let figures = entries.filter_map(|entry| {
        let Summary { counts, loops, latencies } = reading.summary(entry.id)?;
        let of_loop = |counts: &crate::calls::Counts| CallFigures {
            calls: counts.calls,
            failed: counts.failed,
            rejected: counts.rejected,
        };
        Some(CommandFigures {
            name: entry.command.name,
            loops: loops.iter().map(of_loop).collect(),
            nanos: latencies,
            nanos_sum: counts.nanos,
        })
    });
    figures.collect()
}

fn connections(server: &Server) -> ConnectionFigures {
    let Accepts { accepted, refused, failures, handshakes } =
        server.peers.get().map(Peers::accepts).unwrap_or_default();
    ConnectionFigures {
        accepted,
        refused,
        failures,
        handshakes,
        max: server.settings.current().connections_max as u64,
        blocked: server.clients.all().iter().filter(|client| client.is_blocked()).count() as u64,
        message_bytes: server.traffic.bytes_on_the_way(),
    }
}

fn journal(server: &Server) -> Option<JournalFigures> {
    let newest_seq = server.store.newest_seq().0;
    Some(JournalFigures {
        counters: server.store.journal_counters()?,
        syncs: server.store.journal_syncs()?,
        newest_seq,
        durable_seq: server.store.durable_seq().0,
        released_seq: server.store.released_seq().0,
    })
}
