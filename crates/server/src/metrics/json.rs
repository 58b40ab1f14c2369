//! A snapshot as one line of JSON, for the metrics file.
//!
//! Everything counts since the start, but for `interval_s` and what ends in `_permille`: shares of the time since the line before.
//! Times have their unit in their names. Absent parts (the journal without engine `log`) are absent. Fields may be added; one
//! that is there keeps its meaning. docs/manual/monitoring.md lists them.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};
use supervisor::{ComponentStatus, Report};

use super::{CommandFigures, ConnectionFigures, JournalFigures, LoopFigures, Snapshot, TransactionFigures};

/// The line, without its end.
pub(super) fn line(snapshot: &Snapshot, former: Option<&Snapshot>) -> String {
    let interval_s =
        former.map_or(snapshot.uptime, |former| snapshot.uptime.saturating_sub(former.uptime)).as_secs_f64();
    let loops = snapshot.loops.iter().enumerate().map(|(index, figures)| {
        let before = former.and_then(|former| former.loops.get(index));
        of_loop(index, figures, before, interval_s)
    });
    let commands = snapshot.commands.iter().map(|command| (command.name.to_owned(), of_command(command)));
    let (connections, keys, process) = (&snapshot.connections, &snapshot.keys, &snapshot.process);
    let databases = keys.databases.iter().enumerate().filter(|(_, (keys, _))| *keys > 0);
    let mut all = json!({
        "unix_ms": snapshot.unix_ms,
        "uptime_s": rounded(snapshot.uptime.as_secs_f64()),
        "interval_s": rounded(interval_s),
        "loops": loops.collect::<Vec<_>>(),
        "commands": commands.collect::<Map<_, _>>(),
        "errors": snapshot.errors,
        "connections": of_connections(connections),
        "keys": {
            "hits": keys.hits, "misses": keys.misses, "expired": keys.expired, "evicted": keys.evicted,
            "databases": databases.map(|(db, (keys, expiring))| json!({"db": db, "keys": keys, "expiring": expiring})).collect::<Vec<_>>(),
            "leaves": keys.leaves.leaves, "leaves_hot_bytes": keys.leaves.hot_bytes, "leaves_swept": keys.leaves.swept, "leaves_changes": keys.leaves.changes,
        },
        "memory": {"limit_bytes": snapshot.memory.limit},
        "process": {
            "cpu_user_s": process.cpu_user_s, "cpu_system_s": process.cpu_system_s, "resident_bytes": process.resident_bytes,
            "threads": process.threads, "files_open": process.files_open, "files_max": process.files_max,
        },
    });
    if let Some(active) = &snapshot.active {
        all["loops_active"] =
            json!({"count": active.count, "reason": active.reason, "changes": active.changes});
    }
    for (part, bytes) in snapshot.memory.parts() {
        all["memory"][format!("{part}_bytes")] = bytes.into();
    }
    let clients = &snapshot.clients;
    all["clients"] = json!({
        "memory_max_bytes": clients.max_bytes, "unauthenticated_bytes": clients.unauthenticated_bytes,
        "waiting_for_room": clients.waiting,
    });
    for (part, bytes) in &clients.parts {
        all["clients"][format!("{part}_bytes")] = (*bytes).into();
    }
    for (name, _, count) in &clients.counts {
        all["clients"][*name] = (*count).into();
    }
    if let Some(figures) = &snapshot.journal {
        all["journal"] = journal(figures);
    }
    if let Some(figures) = &snapshot.transactions {
        all["transactions"] = transactions(figures);
    }
    if let Some(topologies) = &snapshot.topologies {
        all["topologies"] = topologies.iter().map(topology).collect();
    }
    if let Some(log) = &snapshot.log {
        all["log"] = json!({
            "bytes": log.log_bytes, "live_bytes": log.live_bytes, "disk_bytes": log.disk_bytes,
            "cleaned_bytes": log.cleaned_bytes, "folded_bytes": log.folded_bytes, "checkpoints": log.checkpoints, "damaged_segments": log.damaged_segments,
            "cold_reads": log.cold_reads, "cold_retries": log.cold_retries, "cold_failures": log.cold_failures,
            "writer_waits": log.throttle_waits,
        });
    }
    all.to_string()
}

fn of_loop(index: usize, figures: &LoopFigures, before: Option<&LoopFigures>, interval_s: f64) -> Value {
    let busy = figures.busy.saturating_sub(before.map_or_else(Default::default, |before| before.busy));
    let permille = (busy.as_secs_f64() * 1_000.0 / interval_s.max(1e-9)).round().min(1_000.0);
    let mut all = json!({
        "loop": index, "connections": figures.connections, "held": figures.held, "inbox": figures.inbox,
        "ticks": figures.ticks, "read_events": figures.read_events, "write_events": figures.write_events,
        "bytes_in": figures.bytes_in, "bytes_out": figures.bytes_out, "commands": figures.commands,
        "messages": figures.messages, "wakes": figures.wakes, "stuck": figures.stuck, "moves_in": figures.moves_in, "moves_out": figures.moves_out,
        "busy_permille": permille as u64, "busy_s": rounded(figures.busy.as_secs_f64()),
        "cpu_s": rounded(figures.cpu.as_secs_f64()), "commit_s": rounded(figures.committing.as_secs_f64()),
        "lag_us": percentiles(&figures.lag_us, 1.0),
    });
    if let Some(delay) = figures.run_queue_delay {
        all["run_queue_delay_s"] = rounded(delay.as_secs_f64()).into();
    }
    if let Some(longest) = &figures.longest {
        let micros = rounded(longest.took.as_secs_f64() * 1e6);
        all["longest_callback"] = json!({"us": micros, "command": longest.what});
    }
    all
}

fn of_connections(figures: &ConnectionFigures) -> Value {
    let handshakes = &figures.handshakes;
    json!({
        "accepted": figures.accepted, "refused": figures.refused, "accept_failures": figures.failures,
        "max": figures.max, "blocked": figures.blocked, "message_bytes": figures.message_bytes,
        "tls_handshakes": handshakes.done, "tls_handshakes_resumed": handshakes.resumed,
        "tls_handshakes_under_way": handshakes.under_way,
        "tls_handshakes_failed": handshakes.failed.into_iter().collect::<BTreeMap<_, _>>(),
    })
}

fn of_command(command: &CommandFigures) -> Value {
    let mut all = json!({
        "calls": command.loops.iter().map(|calls| calls.calls).collect::<Vec<_>>(),
        "failed": command.loops.iter().map(|calls| calls.failed).collect::<Vec<_>>(),
        "rejected": command.loops.iter().map(|calls| calls.rejected).collect::<Vec<_>>(),
    });
    if !command.nanos.is_empty() {
        all["us"] = percentiles(&command.nanos, 1_000.0);
    }
    all
}

fn journal(
    JournalFigures { counters, syncs, newest_seq, durable_seq, released_seq }: &JournalFigures,
) -> Value {
    json!({
        "batches": counters.batches, "records": counters.records, "bytes_written": counters.bytes_written,
        "syncs": counters.syncs, "commits_by_loops": counters.commits_here, "refused_busy": counters.refused_busy,
        "refused_full": counters.refused_full, "buffered_bytes": counters.buffered_bytes, "disk_bytes": counters.disk_bytes,
        "segments": counters.segments_open + counters.segments_sealed + counters.segments_footed + counters.segments_trimmed,
        "files_ready": counters.files_ready,
        "newest_seq": newest_seq, "durable_seq": durable_seq, "released_seq": released_seq,
        "sync_us": percentiles(&syncs.nanos, 1_000.0),
        "sync_records": percentiles(&syncs.records, 1.0),
        "sync_bytes": percentiles(&syncs.bytes, 1.0),
    })
}

fn transactions(figures: &TransactionFigures) -> Value {
    let counters = &figures.counters;
    let states = figures.states.iter().map(|(state, count)| ((*state).to_owned(), json!(count)));
    let resources = figures.resources.iter().map(|it| {
        let sessions = it.sessions;
        json!({
            "name": it.name, "kind": it.kind.word(), "ready": it.trouble.is_empty(), "sessions": sessions.open,
            "busy": sessions.busy, "waiting": sessions.waiting, "failures": sessions.failures,
        })
    });
    json!({
        "committed": counters.committed, "aborted": counters.aborted, "unknown": counters.unknown,
        "heuristic": counters.heuristic, "orphans": counters.orphans, "live": states.collect::<Map<_, _>>(),
        "decisions": figures.decisions.records, "prepared_branches": figures.prepared, "locked_keys": figures.locked_keys,
        "locked_databases": figures.locked_databases,
        "resources": resources.collect::<Vec<_>>(),
    })
}

/// All components together: a line has a size that clients cannot move.
fn topology(it: &Report) -> Value {
    let sum = |figure: fn(&ComponentStatus) -> u64| it.status.components.iter().map(figure).sum::<u64>();
    let most =
        |figure: fn(&ComponentStatus) -> u64| it.status.components.iter().map(figure).max().unwrap_or(0);
    json!({
        "name": it.name, "up": it.pid.is_some(), "restarts": it.restarts, "emitted": sum(|it| it.emitted),
        "executed": sum(|it| it.executed), "acked": sum(|it| it.acked), "failed": sum(|it| it.failed),
        "pending": sum(|it| it.pending), "busy_permille_max": most(|it| it.shares.busy_permille),
        "back_pressured_permille_max": most(|it| it.shares.back_pressured_permille), "lag_ms": most(|it| it.lag_ms.unwrap_or(0)),
    })
}

/// Since the start; `unit` values are one of the name's unit.
fn percentiles(values: &Histogram<u64>, unit: f64) -> Value {
    let at = |quantile| rounded(values.value_at_quantile(quantile) as f64 / unit);
    json!({
        "count": values.len(), "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "p9999": at(0.9999),
        "max": rounded(values.max() as f64 / unit),
    })
}

/// Three digits behind the point are enough.
fn rounded(value: f64) -> f64 {
    (value * 1_000.0).round() / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::super::example::example;
    use super::*;

    #[test]
    fn line_of_the_example_is_the_golden_one() {
        let mut before = example();
        before.uptime -= std::time::Duration::from_secs(1);
        before.loops[0].busy -= std::time::Duration::from_millis(125);
        let text = format!("{}\n", example().json(Some(&before)));
        let golden = include_str!("../../tests/golden/metrics.jsonl");
        assert!(
            text == golden,
            "the line has changed; if that is meant, tests/golden/metrics.jsonl is to be:\n{text}"
        );
        let line: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(line["loops"][0]["busy_permille"], 125);
    }

    #[test]
    fn first_line_tells_shares_since_the_start() {
        let line: Value = serde_json::from_str(&example().json(None)).expect("JSON");
        assert_eq!(line["loops"][0]["busy_permille"], 3, "250 ms of 100 s");
    }
}
