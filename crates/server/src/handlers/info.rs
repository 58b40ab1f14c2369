//! INFO: the sections and field names that tools read, and what is true of this server.

use std::cell::OnceCell;
use std::fmt::Write as _;
use std::ops::Deref;
use std::sync::atomic::Ordering;

use commands::args::is;
use commands::call::Outcome;
use reactor::HandshakeCounts;
use resp::{ArgsView, Writer};
use store::Census;
use supervisor::ComponentStatus;

use super::connection::COMPATIBLE_VERSION;
use crate::acl::log::Reason;
use crate::calls::{Counts, Summary};
use crate::capture::Progress;
use crate::control::Control;
use crate::held::ClientFigures;
use crate::metrics::process::{ProcessFigures, machine_bytes, resident_bytes};
use crate::peers::{Accepts, Peers};
use crate::server::Server;
use crate::session::Session;
use crate::settings::{Durability, Engine, Percent};

/// Writes the fields of one section.
type Section = fn(&View<'_>, &mut String);

/// The server with its counts of keys, for sections that ask: counting waits for whoever has keys locked, and then nothing
/// could tell of a loop that is stuck in a long transaction.
pub(super) struct View<'a> {
    server: &'a Server,
    census: OnceCell<Census>,
}

impl View<'_> {
    fn census(&self) -> &Census {
        self.census.get_or_init(|| self.server.store.census())
    }

    fn counts(&self) -> &[(u64, u64)] {
        &self.census().databases
    }
}

impl Deref for View<'_> {
    type Target = Server;

    fn deref(&self) -> &Server {
        self.server
    }
}

/// Sections, in the order in which INFO shows them; with `false` only ALL and their own name show them.
const SECTIONS: [(&str, Section, bool); 17] = [
    ("Server", server_section, true),
    ("Clients", clients, true),
    ("Memory", memory, true),
    ("Persistence", persistence, true),
    ("Journal", journal, true),
    ("Transactions", transactions, true),
    ("Stats", stats, true),
    ("Replication", replication, true),
    ("CPU", cpu, true),
    ("Modules", |_, _| {}, true),
    ("Commandstats", command_stats, false),
    ("Errorstats", error_stats, true),
    ("Latencystats", latency_stats, false),
    ("Cluster", |_, text| line(text, "cluster_enabled", 0), true),
    ("Loops", super::loops::section, true),
    ("Capture", capture, true),
    ("Topologies", topologies, true),
];

pub(crate) fn info(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let wants = |name: &str, by_default: bool| {
        let named = |arg: &[u8]| {
            is(arg, name) || is(arg, "all") || is(arg, "everything") || (by_default && is(arg, "default"))
        };
        if args.len() == 1 { by_default } else { args.iter().skip(1).any(named) }
    };
    let view = View { server: control.server, census: OnceCell::new() };
    let mut text = String::new();
    let sections = SECTIONS.iter().copied().chain([("Keyspace", keyspace as Section, true)]);
    for (name, write, by_default) in sections {
        if wants(name, by_default) {
            if !text.is_empty() {
                text.push_str("\r\n");
            }
            let _ = write!(text, "# {name}\r\n");
            write(&view, &mut text);
        }
    }
    out.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

fn capture(server: &View<'_>, text: &mut String) {
    let progress = server.captures.progress();
    line(text, "capture_running", u8::from(progress.is_some()));
    let Progress { client, length, bytes, records, dropped } = progress.unwrap_or_default();
    line(text, "capture_client", client);
    line(text, "capture_seconds", length.as_secs());
    line(text, "capture_bytes", bytes);
    line(text, "capture_records", records);
    line(text, "capture_dropped", dropped);
}

fn topologies(server: &View<'_>, text: &mut String) {
    let Some(topologies) = &server.topologies else { return line(text, "topologies_enabled", 0) };
    let reports = topologies.supervisor.reports();
    line(text, "topologies_enabled", 1);
    line(text, "topologies", reports.len());
    for it in &reports {
        let sum = |figure: fn(&ComponentStatus) -> u64| it.status.components.iter().map(figure).sum::<u64>();
        let most =
            |figure: fn(&ComponentStatus) -> u64| it.status.components.iter().map(figure).max().unwrap_or(0);
        let figures = format!(
            "status={},pid={},uptime_ms={},restarts={},workers={},emitted={},executed={},acked={},failed={},pending={},busy_permille_max={},back_pressured_permille_max={},lag_ms={}",
            super::topology_show::status(it),
            it.pid.unwrap_or(0),
            it.uptime.as_millis(),
            it.restarts,
            it.workers.len(),
            sum(|it| it.emitted),
            sum(|it| it.executed),
            sum(|it| it.acked),
            sum(|it| it.failed),
            sum(|it| it.pending),
            most(|it| it.shares.busy_permille),
            most(|it| it.shares.back_pressured_permille),
            most(|it| it.lag_ms.unwrap_or(0)),
        );
        line(text, &format!("topology_{}", it.name), figures);
    }
}

fn transactions(server: &View<'_>, text: &mut String) {
    let Some(transactions) = &server.transactions else { return line(text, "txn_enabled", 0) };
    let figures = transactions.figures();
    line(text, "txn_enabled", 1);
    line(text, "txn_node", &figures.node);
    line(text, "txn_epoch", figures.epoch);
    line(text, "txn_log", &figures.log);
    line(text, "txn_live", figures.counters.live);
    line(text, "txn_kept", figures.counters.kept);
    for (state, count) in &figures.states {
        line(text, &format!("txn_state_{}", state.replace('-', "_")), count);
    }
    line(text, "txn_committed", figures.counters.committed);
    line(text, "txn_aborted", figures.counters.aborted);
    line(text, "txn_unknown", figures.counters.unknown);
    line(text, "txn_heuristic", figures.counters.heuristic);
    line(text, "txn_orphans", figures.counters.orphans);
    line(text, "txn_decisions_written", figures.decisions.records);
    line(text, "txn_decisions_removed", figures.decisions.removed);
    line(text, "txn_prepared_branches", figures.prepared);
    line(text, "txn_locked_keys", figures.locked_keys);
    line(text, "txn_locked_databases", figures.locked_databases);
    for resource in &figures.resources {
        let state = if resource.trouble.is_empty() { "ready" } else { "down" };
        let (kind, it) = (resource.kind.word(), resource.sessions);
        let value = format!(
            "kind={kind},state={state},sessions={},busy={},waiting={},failures={}",
            it.open, it.busy, it.waiting, it.failures
        );
        line(text, &format!("txn_resource_{}", resource.name), value);
        if !resource.trouble.is_empty() {
            let trouble = resource.trouble.replace(['\r', '\n'], " ");
            line(text, &format!("txn_resource_{}_trouble", resource.name), trouble);
        }
    }
}

pub(super) fn line(text: &mut String, name: &str, value: impl std::fmt::Display) {
    let _ = write!(text, "{name}:{value}\r\n");
}

/// What this server does not have, under the names by which tools ask for it.
fn zeros(text: &mut String, names: &[&str]) {
    names.iter().for_each(|name| line(text, name, 0));
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.2}%", part as f64 * 100.0 / whole.max(1) as f64)
}

fn server_section(server: &View<'_>, text: &mut String) {
    let uptime_s = server.clock.now().since(server.started).as_secs();
    line(text, "redis_version", COMPATIBLE_VERSION);
    line(text, "evenkeel_version", server.version);
    line(text, "redis_git_sha1", "00000000");
    line(text, "redis_git_dirty", 0);
    line(text, "redis_build_id", server.version);
    line(text, "redis_mode", "standalone");
    line(text, "os", format!("{} {}", std::env::consts::OS, std::env::consts::ARCH));
    line(text, "arch_bits", usize::BITS);
    line(text, "process_id", std::process::id());
    line(text, "run_id", &server.run_id);
    line(text, "tcp_port", server.peers.get().map_or(0, Peers::port));
    line(text, "server_time_usec", server.clock.unix_us());
    let clock = server.store.clock_report();
    line(text, "clock_jumps_forward", clock.jumps_forward);
    line(text, "clock_jumps_back", clock.jumps_back);
    line(text, "clock_last_jump_ms", clock.last_jump_ms);
    line(text, "clock_offset_ms", clock.offset_ms);
    line(text, "uptime_in_seconds", uptime_s);
    line(text, "uptime_in_days", uptime_s / 86_400);
    line(text, "executable", std::env::current_exe().unwrap_or_default().display());
    line(text, "config_file", server.settings.file().unwrap_or(std::path::Path::new("")).display());
    line(text, "io_threads_active", 0);
    line(text, "loops", server.settings.current().loops_resolved());
    line(text, "connector", server.peers.connector());
    line(text, "engine", format!("{:?}", server.settings.current().engine).to_lowercase());
}

fn clients(server: &View<'_>, text: &mut String) {
    let all = server.clients.all();
    let count = |is: fn(&crate::clients::Client) -> bool| all.iter().filter(|client| is(client)).count();
    line(text, "connected_clients", all.len());
    line(text, "cluster_connections", 0);
    line(text, "maxclients", server.settings.current().connections_max);
    line(text, "blocked_clients", count(crate::clients::Client::is_blocked));
    line(text, "pubsub_clients", count(|client| client.kind() == "pubsub"));
    line(text, "watching_clients", count(|client| client.watched.load(Ordering::Relaxed) > 0));
    let largest = |bytes: fn(&reactor::Connection) -> u64| {
        all.iter().filter_map(|client| client.connection.as_deref()).map(bytes).max().unwrap_or(0)
    };
    line(text, "client_recent_max_input_buffer", largest(reactor::Connection::input_bytes));
    line(text, "client_recent_max_output_buffer", largest(reactor::Connection::output_bytes));
    line(text, "tracking_clients", server.notices.tracking.clients());
    zeros(text, &["clients_in_timeout_table"]);
}

fn memory(server: &View<'_>, text: &mut String) {
    let report = server.store.memory();
    let Used { bytes: used, peak_bytes: peak, startup_bytes: startup, needed_bytes: needed, fragmentation } =
        Used::of(server);
    let rss = resident_bytes();
    let keys: u64 = server.counts().iter().map(|(keys, _)| keys).sum();
    line(text, "used_memory", used);
    line(text, "used_memory_human", human(used));
    line(text, "used_memory_rss", rss);
    line(text, "used_memory_rss_human", human(rss));
    line(text, "used_memory_peak", peak);
    line(text, "used_memory_peak_human", human(peak));
    line(text, "used_memory_peak_perc", percent(used, peak));
    line(text, "used_memory_overhead", report.reported_bytes + report.process_bytes);
    line(text, "used_memory_startup", startup);
    line(text, "used_memory_dataset", report.index_bytes);
    line(text, "used_memory_dataset_perc", percent(report.index_bytes, used));
    let machine = machine_bytes();
    line(text, "total_system_memory", machine);
    line(text, "total_system_memory_human", human(machine));
    let clients = ClientFigures::of(server);
    line(text, "mem_clients_normal", clients.bytes());
    let buffered = server.store.journal_counters().map_or(0, |counters| counters.buffered_bytes);
    line(text, "mem_aof_buffer", buffered);
    zeros(text, &["mem_clients_slaves", "mem_replication_backlog"]);
    zeros(text, &["active_defrag_running", "lazyfree_pending_objects"]);
    line(text, "used_memory_buffers", report.reported_bytes);
    line(text, "used_memory_clients", clients.bytes());
    line(text, "clients_memory_max", clients.max_bytes);
    for (part, bytes) in &clients.parts {
        line(text, &format!("clients_memory_{part}"), bytes);
    }
    line(text, "clients_memory_unauthenticated", clients.unauthenticated_bytes);
    let values = server.census().hot_bytes + report.large_bytes;
    let whole = if report.limit_bytes == 0 { used } else { report.limit_bytes };
    for (part, bytes) in [
        ("values", values),
        ("index", report.index_bytes.saturating_sub(values)),
        ("journal", report.journal_bytes),
        ("buffers", report.reported_bytes.saturating_sub(report.journal_bytes)),
        ("process", report.process_bytes),
    ] {
        line(text, &format!("memory_{part}"), bytes);
        line(text, &format!("memory_{part}_perc"), percent(bytes, whole));
    }
    line(text, "used_memory_bytes_per_key", report.index_bytes.checked_div(keys).unwrap_or(0));
    let scripts = server.scripts.figures();
    line(text, "used_memory_lua", scripts.memory_bytes);
    line(text, "used_memory_vm_eval", scripts.memory_bytes);
    line(text, "used_memory_scripts_eval", scripts.script_bytes);
    line(text, "number_of_cached_scripts", scripts.scripts);
    line(text, "number_of_functions", scripts.functions);
    line(text, "number_of_libraries", scripts.libraries);
    line(text, "used_memory_functions", scripts.library_bytes);
    line(text, "used_memory_scripts", scripts.script_bytes + scripts.library_bytes);
    line(text, "maxmemory", report.limit_bytes);
    line(text, "maxmemory_human", human(report.limit_bytes));
    line(text, "maxmemory_policy", server.settings.current().memory_policy);
    line(text, "mem_fragmentation_ratio", format!("{fragmentation:.2}"));
    line(text, "mem_fragmentation_bytes", rss.cast_signed() - needed.cast_signed());
    line(text, "mem_allocator", "system");
}

/// Memory in use, for INFO and MEMORY.
pub(crate) struct Used {
    /// Keys, values and buffers: what counts against `memory.limit`. Each connection takes some, counted or not yet.
    pub(crate) bytes: u64,
    /// The most that anybody who asked was told.
    pub(crate) peak_bytes: u64,
    /// What the process took before it served; all ratios know it.
    pub(crate) startup_bytes: u64,
    /// What the process should need.
    pub(crate) needed_bytes: u64,
    /// Memory of the process over that.
    pub(crate) fragmentation: f64,
}

impl Used {
    pub(crate) fn of(server: &Server) -> Self {
        let clients_bytes = server.clients.count() as u64 * CLIENT_BYTES;
        let report = server.store.memory();
        let bytes = report.used_bytes().max(clients_bytes);
        let peak_bytes = server.stats.used_bytes_peak.fetch_max(bytes, Ordering::Relaxed).max(bytes);
        let startup_bytes = server.startup_bytes;
        let needed_bytes = startup_bytes + report.counted_bytes().max(clients_bytes);
        let fragmentation = resident_bytes() as f64 / needed_bytes.max(1) as f64;
        Used { bytes, needed_bytes, peak_bytes, startup_bytes, fragmentation }
    }
}

/// Whether an acknowledged write survives the loss of power.
pub(crate) fn keeps_first_promise(server: &Server) -> bool {
    let settings = server.settings.current();
    settings.engine == Engine::Log && settings.durability == Durability::Always
}

fn persistence(server: &View<'_>, text: &mut String) {
    let settings = server.settings.current();
    let on_disk = settings.engine == Engine::Log;
    line(text, "loading", 0);
    line(text, "async_loading", 0);
    let durability = match settings.durability {
        _ if !on_disk => "none".to_owned(),
        Durability::Always => "always".to_owned(),
        Durability::Interval(every) => format!("{}ms", every.as_millis()),
        Durability::Never => "never".to_owned(),
    };
    line(text, "durability", durability);
    let kept = keeps_first_promise(server);
    line(text, "acknowledged_writes_survive_power_loss", if kept { "yes" } else { "no" });
    if !kept {
        let why = if on_disk { "durability is not always" } else { "the engine keeps nothing on disk" };
        line(text, "first_promise", format!("off: {why}"));
    }
    line(text, "rdb_changes_since_last_save", 0);
    line(text, "rdb_bgsave_in_progress", 0);
    line(text, "rdb_last_save_time", server.last_save_unix_s.load(Ordering::Relaxed));
    line(text, "rdb_last_bgsave_status", "ok");
    line(text, "aof_enabled", u8::from(on_disk));
    // All is saved at any time, by no process that could be counted or timed.
    zeros(text, &["rdb_saves", "aof_rewrite_in_progress", "aof_rewrite_scheduled"]);
    for name in ["rdb_last_bgsave_time_sec", "rdb_current_bgsave_time_sec"] {
        line(text, name, -1);
    }
    for name in ["aof_last_rewrite_time_sec", "aof_current_rewrite_time_sec"] {
        line(text, name, -1);
    }
    line(text, "aof_last_bgrewrite_status", "ok");
    line(text, "aof_last_write_status", "ok");
}

fn journal(server: &View<'_>, text: &mut String) {
    line(text, "journal_newest_seq", server.store.newest_seq().0);
    line(text, "journal_released_seq", server.store.released_seq().0);
    if let Some(counters) = server.store.journal_counters() {
        line(text, "journal_backend", server.store.backend().unwrap_or_default());
        for (name, value) in [
            ("journal_durable_seq", server.store.durable_seq().0),
            ("journal_batches", counters.batches),
            ("journal_records", counters.records),
            ("journal_bytes_written", counters.bytes_written),
            ("journal_commits_by_loops", counters.commits_here),
            ("journal_syncs", counters.syncs),
            ("journal_syncs_unawaited", counters.syncs_unawaited),
            ("journal_sync_usec", counters.sync_ns_sum / 1_000),
            ("journal_sync_usec_max", counters.sync_ns_max / 1_000),
            ("journal_sync_usec_last", counters.sync_ns_last / 1_000),
            ("journal_stamps", counters.stamps),
            ("journal_fallocated_fallbacks", counters.fallocated_fallbacks),
            ("journal_files_created", counters.files_created),
            ("journal_files_recycled", counters.files_recycled),
            ("journal_files_removed", counters.files_removed),
            ("journal_refused_busy", counters.refused_busy),
            ("journal_refused_full", counters.refused_full),
            ("journal_buffered_bytes", counters.buffered_bytes),
            ("journal_segments_open", counters.segments_open),
            ("journal_segments_sealed", counters.segments_sealed),
            ("journal_segments_footed", counters.segments_footed),
            ("journal_segments_trimmed", counters.segments_trimmed),
            ("journal_files_ready", counters.files_ready),
        ] {
            line(text, name, value);
        }
    }
    if let Some(report) = server.store.log_report() {
        for (name, value) in [
            ("log_bytes", report.log_bytes),
            ("log_disk_bytes", report.disk_bytes),
            ("log_live_bytes", report.live_bytes),
            ("log_ratio_percent", report.log_bytes * 100 / report.live_bytes.max(1)),
            ("log_cleaned_bytes", report.cleaned_bytes),
            ("log_folded_bytes", report.folded_bytes),
            ("log_checkpoints", report.checkpoints),
            ("log_checkpoint_bytes", report.checkpoint_bytes),
            ("log_damaged_segments", report.damaged_segments),
            ("log_cold_reads", report.cold_reads),
            ("log_cold_second_reads", report.cold_second_reads),
            ("log_cold_retries", report.cold_retries),
            ("log_cold_failures", report.cold_failures),
            ("log_writers_bytes_per_second_max", report.throttle_bytes_per_second),
            ("log_writers_waits", report.throttle_waits),
        ] {
            line(text, name, value);
        }
    }
    line(text, "journal_waits_for_credits", server.stats.waits_for_credits.load(Ordering::Relaxed));
    line(text, "journal_fetches", server.stats.fetches.load(Ordering::Relaxed));
    line(text, "journal_fetches_given_up", server.stats.fetches_given_up.load(Ordering::Relaxed));
}

fn stats(server: &View<'_>, text: &mut String) {
    let (hits, misses) = server.calls.hits_and_misses();
    let [channels, patterns, shards] = server.pubsub.counts();
    let loops = server.peers.get().map(Peers::loops).unwrap_or_default();
    let Accepts { refused, failures, handshakes, .. } =
        server.peers.get().map(Peers::accepts).unwrap_or_default();
    let received = server.stats.connections_received.load(Ordering::Relaxed);
    let totals = [
        server.calls.calls(),
        loops.iter().map(|l| l.bytes_in()).sum::<u64>(),
        loops.iter().map(|l| l.bytes_out()).sum::<u64>(),
    ];
    let [commands, bytes_in, bytes_out] = server.stats.rates(server.clock.now(), totals);
    line(text, "total_connections_received", received);
    line(text, "total_commands_processed", totals[0]);
    line(text, "instantaneous_ops_per_sec", commands.round());
    line(text, "total_net_input_bytes", totals[1]);
    line(text, "total_net_output_bytes", totals[2]);
    line(text, "instantaneous_input_kbps", format!("{:.2}", bytes_in / 1024.0));
    line(text, "instantaneous_output_kbps", format!("{:.2}", bytes_out / 1024.0));
    line(text, "replies_in_parts", server.stats.chunked_replies.load(Ordering::Relaxed));
    line(text, "replies_in_parts_broken", server.stats.chunked_replies_broken.load(Ordering::Relaxed));
    line(text, "rejected_connections", refused);
    line(text, "failed_accepts", failures);
    line(text, "expired_keys", server.store.expired_keys());
    line(text, "expired_subkeys", server.store.expired_fields());
    line(text, "evicted_keys", server.store.evicted_keys());
    line(text, "evicted_scripts", server.scripts.figures().evicted);
    let leaves = server.store.leaf_report();
    line(text, "leaves", leaves.leaves);
    line(text, "leaves_hot_bytes", leaves.hot_bytes);
    line(text, "leaves_swept", leaves.swept);
    line(text, "leaves_changes", leaves.changes);
    zeros(text, &["evicted_clients", "expired_time_cap_reached_count"]);
    line(text, "expired_stale_perc", "0.00");
    zeros(text, &["sync_full", "sync_partial_ok", "sync_partial_err"]);
    line(text, "keyspace_hits", hits);
    line(text, "keyspace_misses", misses);
    line(text, "pubsub_channels", channels);
    line(text, "pubsub_patterns", patterns);
    let on_the_way = server.traffic.bytes_on_the_way();
    line(text, "pubsub_bytes_on_the_way", on_the_way);
    line(text, "pubsub_waits", server.pubsub.waits());
    let clients = ClientFigures::of(server);
    line(text, "requests_waiting_for_room", clients.waiting);
    for (name, _, count) in &clients.counts {
        line(text, name, count);
    }
    line(text, "monitors_cut", server.monitors.cut());
    line(text, "long_commands", server.long.count());
    line(text, "long_commands_waiting", server.long.waiting());
    line(text, "long_commands_held_others_back", server.store.claim_report().waits);
    line(text, "pubsubshard_channels", shards);
    zeros(text, &["latest_fork_usec", "total_forks", "migrate_cached_sockets"]);
    zeros(text, &["slave_expires_tracked_keys"]);
    line(text, "total_error_replies", server.stats.error_replies.load(Ordering::Relaxed));
    line(text, "total_reads_processed", loops.iter().map(|l| l.read_events()).sum::<u64>());
    line(text, "total_writes_processed", loops.iter().map(|l| l.write_events()).sum::<u64>());
    line(text, "unexpected_error_replies", 0);
    stats_of_clients(server, &handshakes, text);
}

/// Figures of handshakes, of copies that clients keep, and of what users were refused.
fn stats_of_clients(server: &View<'_>, handshakes: &HandshakeCounts, text: &mut String) {
    line(text, "tls_handshakes", handshakes.done);
    line(text, "tls_handshakes_resumed", handshakes.resumed);
    line(text, "tls_handshakes_under_way", handshakes.under_way);
    let failed = handshakes.failed.map(|(reason, count)| format!("{reason}={count}"));
    line(text, "tls_handshakes_failed", failed.join(","));
    let [keys, items, prefixes] = server.notices.tracking.totals();
    line(text, "tracking_total_keys", keys);
    line(text, "tracking_total_items", items);
    line(text, "tracking_total_prefixes", prefixes);
    line(text, "tracking_bytes", server.notices.tracking.bytes());
    line(text, "notices_dropped", server.notices.dropped());
    for reason in Reason::ALL {
        line(text, &format!("acl_access_denied_{}", reason.name()), server.acl.log.denied(reason));
    }
}

fn replication(server: &View<'_>, text: &mut String) {
    line(text, "role", "master");
    line(text, "connected_slaves", 0);
    line(text, "master_failover_state", "no-failover");
    line(text, "master_replid", &server.run_id);
    line(text, "master_replid2", "0".repeat(40));
    line(text, "master_repl_offset", 0);
    line(text, "second_repl_offset", -1);
    zeros(text, &["repl_backlog_active", "repl_backlog_size", "repl_backlog_first_byte_offset"]);
    zeros(text, &["repl_backlog_histlen"]);
}

fn cpu(_server: &View<'_>, text: &mut String) {
    let process = ProcessFigures::read();
    line(text, "used_cpu_sys", format!("{:.6}", process.cpu_system_s));
    line(text, "used_cpu_user", format!("{:.6}", process.cpu_user_s));
    line(text, "used_cpu_sys_children", "0.000000");
    line(text, "used_cpu_user_children", "0.000000");
}

fn command_stats(server: &View<'_>, text: &mut String) {
    let reading = server.calls.read();
    for entry in server.table.entries() {
        let Some(Summary { counts, .. }) = reading.summary(entry.id) else { continue };
        let Counts { calls, nanos, rejected, failed } = counts;
        let (micros, per_call) = (nanos / 1_000, nanos as f64 / 1_000.0 / calls.max(1) as f64);
        let value = format!(
            "calls={calls},usec={micros},usec_per_call={per_call:.2},rejected_calls={rejected},failed_calls={failed}"
        );
        line(text, &format!("cmdstat_{}", entry.command.name), value);
    }
}

fn error_stats(server: &View<'_>, text: &mut String) {
    for (code, count) in server.stats.errors() {
        line(text, &format!("errorstat_{code}"), format!("count={count}"));
    }
}

fn latency_stats(server: &View<'_>, text: &mut String) {
    let reading = server.calls.read();
    let percentiles = &server.settings.current().metrics_percentiles;
    for entry in server.table.entries() {
        let Some(sum) = reading.summary(entry.id).filter(|sum| !sum.latencies.is_empty()) else {
            continue;
        };
        let shown = |percent: &Percent| format!("p{percent}={:.3}", sum.percentile_us(percent.0));
        let values: Vec<_> = percentiles.iter().map(shown).collect();
        line(text, &format!("latency_percentiles_usec_{}", entry.command.name), values.join(","));
    }
}

fn keyspace(server: &View<'_>, text: &mut String) {
    let ttls = server.census().ttl_ms.iter();
    for (db, ((keys, expires), ttl)) in server.counts().iter().zip(ttls).enumerate() {
        if *keys > 0 {
            line(text, &format!("db{db}"), format!("keys={keys},expires={expires},avg_ttl={ttl}"));
        }
    }
}

/// A size as people read it, as Redis prints it.
fn human(bytes: u64) -> String {
    let units = ["B", "K", "M", "G", "T", "P"];
    let (mut size, mut unit) = (bytes as f64, 0);
    while size >= 1024.0 && unit + 1 < units.len() {
        size /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes}B") } else { format!("{size:.2}{}", units[unit]) }
}

/// What a connection takes here; its buffers belong to the reactor.
pub(crate) const CLIENT_BYTES: u64 = (size_of::<Session>() + size_of::<crate::clients::Client>()) as u64;
