//! INFO's section of the loops: how many are active and why, and what each of them does, never only as sums.
//!
//! `connections`, `inbox_depth`, `held_connections` and `stuck_*` are of this moment; `busy_permille`, `lag_us_p99` and `longest_*`
//! of the last interval (`balance.interval`, or 5 s when that is off; before the first is over, since the start); all others
//! count since the start.

use reactor::{Doing, LoopStats};

use super::info::{View, line};
use crate::server::Server;

pub(super) fn section(server: &View<'_>, text: &mut String) {
    let Some(peers) = server.peers.get() else { return };
    let active = peers.active_loops();
    line(text, "loops_active", active.count);
    line(text, "loops_active_reason", active.reason.as_str());
    line(text, "loops_active_since_s", server.clock.now().since(active.since).as_secs());
    line(text, "loops_active_changes", active.changes);
    for (index, stats) in peers.loops().iter().enumerate() {
        for (name, value) in counts(stats, peers.mailbox_depth(index)) {
            line(text, &format!("loop{index}_{name}"), value);
        }
        if let Some(delay) = stats.run_queue_delay() {
            line(text, &format!("loop{index}_run_queue_delay_us"), delay.as_micros());
        }
        longest(stats, index, text);
        stuck(server, stats, index, text);
    }
}

fn counts(stats: &LoopStats, inbox_depth: usize) -> [(&'static str, u64); 16] {
    let interval = stats.interval();
    [
        ("connections", stats.connections() as u64),
        ("busy_permille", interval.busy_permille().into()),
        ("commands", stats.commands()),
        ("read_events", stats.read_events()),
        ("write_events", stats.write_events()),
        ("bytes_in", stats.bytes_in()),
        ("bytes_out", stats.bytes_out()),
        ("moves_in", stats.moves_in()),
        ("moves_out", stats.moves_out()),
        ("lag_us_p99", interval.lag_us_p99),
        ("ticks", stats.ticks()),
        ("wakes", stats.wakes()),
        ("inbox_depth", inbox_depth as u64),
        ("held_connections", stats.held() as u64),
        ("commit_us", stats.waited_ns() / 1_000),
        ("stuck_count", stats.stuck_count()),
    ]
}

fn longest(stats: &LoopStats, index: usize, text: &mut String) {
    let longest = stats.interval().longest;
    let took_us = longest.as_ref().map_or(0, |longest| longest.took.as_micros());
    let client = longest.as_ref().map_or(0, |longest| longest.connection_id);
    line(text, &format!("loop{index}_longest_us"), took_us);
    line(text, &format!("loop{index}_longest_client"), client);
    line(
        text,
        &format!("loop{index}_longest_command"),
        longest.and_then(|longest| longest.what).unwrap_or_default(),
    );
}

fn stuck(server: &Server, stats: &LoopStats, index: usize, text: &mut String) {
    let stuck_for = stats.stuck_for(server.clock.now());
    line(text, &format!("loop{index}_stuck_us"), stuck_for.map_or(0, |stuck_for| stuck_for.as_micros()));
    let what = match stats.doing() {
        _ if stuck_for.is_none() => String::new(),
        Doing::Nothing => "between two connections".to_owned(),
        Doing::Commit => "waits for the disk".to_owned(),
        Doing::Callback(id) => {
            let client = server.clients.find(id);
            let command = client.and_then(|client| client.last_command(server.table)).unwrap_or("no command");
            format!("{command} of client {id}")
        }
    };
    line(text, &format!("loop{index}_stuck_in"), what);
}
