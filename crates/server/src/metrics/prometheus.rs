//! A snapshot as Prometheus reads it: its text format 0.0.4.
//!
//! Names end in their unit, always a base unit, and counters in `_total`; what is counted by loop has the label `loop`. The
//! crate `prometheus` writes the text. Rejected: `prometheus-client`, which writes OpenMetrics alone, where the type of
//! `x_total` is said of `x`: `promtool check metrics` and other readers of the text format take that for metrics without one.

use std::time::Duration;

use hdrhistogram::Histogram;
use prometheus::TextEncoder;
use prometheus::proto::{Bucket, Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};

mod topologies;
mod transactions;

use super::{JournalFigures, LoopFigures, Snapshot};

/// The page.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut page = Page::default();
    about(snapshot, &mut page);
    loops(snapshot, &mut page);
    commands(snapshot, &mut page);
    connections(snapshot, &mut page);
    keys(snapshot, &mut page);
    if let Some(figures) = &snapshot.journal {
        journal(figures, &mut page);
    }
    log(snapshot, &mut page);
    if let Some(figures) = &snapshot.transactions {
        transactions::write(figures, &mut page);
    }
    topologies::write(snapshot.topologies.as_deref().unwrap_or_default(), &mut page);
    memory(snapshot, &mut page);
    clients(snapshot, &mut page);
    process(snapshot, &mut page);
    TextEncoder::new().encode_to_string(&page.0).expect("every family has a name and a metric")
}

/// Labels of one metric.
type Labels = Vec<LabelPair>;

/// Families of metrics, in order.
#[derive(Default)]
struct Page(Vec<MetricFamily>);

impl Page {
    fn family(&mut self, kind: MetricType, name: &str, help: &str, metrics: Vec<Metric>) {
        if metrics.is_empty() {
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(format!("{PREFIX}{name}"));
        family.set_help(help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        self.0.push(family);
    }

    fn counters(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        let metric = |(labels, value)| {
            let (mut metric, mut counter) = (Metric::from_label(labels), Counter::default());
            counter.set_value(value);
            metric.set_counter(counter);
            metric
        };
        self.family(MetricType::COUNTER, name, help, values.into_iter().map(metric).collect());
    }

    fn gauges(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, f64)>) {
        let metric = |(labels, value)| {
            let (mut metric, mut gauge) = (Metric::from_label(labels), Gauge::default());
            gauge.set_value(value);
            metric.set_gauge(gauge);
            metric
        };
        self.family(MetricType::GAUGE, name, help, values.into_iter().map(metric).collect());
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counters(name, help, [(vec![], value as f64)]);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.gauges(name, help, [(vec![], value as f64)]);
    }

    fn histograms(&mut self, name: &str, help: &str, metrics: Vec<Metric>) {
        self.family(MetricType::HISTOGRAM, name, help, metrics);
    }
}

/// Values of a histogram as Prometheus counts them: at or below each of `bounds`, which are in units of `unit` values.
struct Distribution<'a> {
    values: &'a Histogram<u64>,
    /// Values to one unit of `bounds`.
    unit: f64,
    /// In units.
    sum: f64,
    bounds: &'a [f64],
}

impl Distribution<'_> {
    fn metric(&self, labels: Labels) -> Metric {
        let mut recorded = self.values.iter_recorded().peekable();
        let mut seen = 0;
        let bucket = |bound: &f64| {
            while let Some(value) =
                recorded.next_if(|value| value.value_iterated_to() as f64 <= bound * self.unit)
            {
                seen += value.count_at_value();
            }
            let mut bucket = Bucket::default();
            bucket.set_upper_bound(*bound);
            bucket.set_cumulative_count(seen);
            bucket
        };
        let mut histogram = prometheus::proto::Histogram::default();
        histogram.set_bucket(self.bounds.iter().map(bucket).collect());
        histogram.set_sample_count(self.values.len());
        histogram.set_sample_sum(self.sum);
        let mut metric = Metric::from_label(labels);
        metric.set_histogram(histogram);
        metric
    }
}

fn label(name: &str, value: &dyn std::fmt::Display) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_string());
    pair
}

fn about(snapshot: &Snapshot, page: &mut Page) {
    let labels = snapshot.build.iter().map(|(name, value)| label(name, value)).collect();
    page.gauges("build_info", "The running version, as labels; always 1.", [(labels, 1.0)]);
    page.gauges("uptime_seconds", "Time since the start.", [(vec![], snapshot.uptime.as_secs_f64())]);
}

fn loops(snapshot: &Snapshot, page: &mut Page) {
    let of_each = |figure: fn(&LoopFigures) -> f64| {
        let of_one = move |(index, figures)| (vec![label("loop", &index)], figure(figures));
        snapshot.loops.iter().enumerate().map(of_one)
    };
    if let Some(active) = &snapshot.active {
        let reason = vec![label("reason", &active.reason)];
        page.gauge("loops_active", "Number of active loops: those that own connections.", active.count);
        page.gauges(
            "loops_active_reason",
            "Reason for the number of active loops, as a label; always 1.",
            [(reason, 1.0)],
        );
        page.counter("loops_active_changes_total", "Changes of the number of active loops.", active.changes);
    }
    for (name, help, figure) in LOOP_GAUGES {
        page.gauges(name, help, of_each(*figure));
    }
    for (name, help, figure) in LOOP_COUNTERS {
        page.counters(name, help, of_each(*figure));
    }
    let delays = snapshot.loops.iter().enumerate().filter_map(|(index, figures)| {
        Some((vec![label("loop", &index)], figures.run_queue_delay?.as_secs_f64()))
    });
    page.counters(
        "loop_run_queue_delay_seconds_total",
        "Time that the loop's thread was ready to run and waited for a core.",
        delays,
    );
    let longest = snapshot.loops.iter().enumerate().filter_map(|(index, figures)| {
        let longest = figures.longest.as_ref()?;
        let labels = vec![label("loop", &index), label("command", &longest.what.as_deref().unwrap_or(""))];
        Some((labels, longest.took.as_secs_f64()))
    });
    page.gauges(
        "loop_longest_callback_seconds",
        "Longest turn of one connection in the last interval of the balancer, and its command.",
        longest,
    );
    let lag = |(index, figures): (usize, &LoopFigures)| {
        let values = &figures.lag_us;
        let sum = values.mean() * values.len() as f64 / 1e6;
        Distribution { values, unit: 1e6, sum, bounds: SECONDS }.metric(vec![label("loop", &index)])
    };
    let lags = snapshot.loops.iter().enumerate().map(lag).collect();
    page.histograms(
        "loop_lag_seconds",
        "Duration of ticks: the longest time that a request waits for its loop.",
        lags,
    );
}

fn commands(snapshot: &Snapshot, page: &mut Page) {
    let of_each = |figure: fn(&super::CallFigures) -> u64| {
        snapshot.commands.iter().flat_map(move |command| {
            let of_one = move |(index, calls)| {
                (vec![label("command", &command.name), label("loop", &index)], figure(calls) as f64)
            };
            command.loops.iter().enumerate().map(of_one)
        })
    };
    page.counters("command_calls_total", "Calls that were executed.", of_each(|calls| calls.calls));
    page.counters(
        "command_failures_total",
        "Calls that were executed and answered with an error.",
        of_each(|calls| calls.failed),
    );
    page.counters(
        "command_rejections_total",
        "Calls refused before execution.",
        of_each(|calls| calls.rejected),
    );
    let timed = snapshot.commands.iter().filter(|command| !command.nanos.is_empty()).map(|command| {
        let sum = command.nanos_sum as f64 / 1e9;
        Distribution { values: &command.nanos, unit: 1e9, sum, bounds: SECONDS }
            .metric(vec![label("command", &command.name)])
    });
    let help = "Time of calls on their loop, with waits for values on disk and for memory, without the wait for the sync.";
    page.histograms("command_duration_seconds", help, timed.collect());
    let errors = snapshot.errors.iter().map(|(code, count)| (vec![label("code", &code)], *count as f64));
    page.counters("error_replies_total", "Error replies by their first word.", errors);
}

fn connections(snapshot: &Snapshot, page: &mut Page) {
    let figures = &snapshot.connections;
    page.counter("connections_accepted_total", "Connections accepted.", figures.accepted);
    page.counter(
        "connections_refused_total",
        "Connections refused because connections.max was reached.",
        figures.refused,
    );
    page.counter(
        "accept_failures_total",
        "Accepts that failed for lack of descriptors or memory.",
        figures.failures,
    );
    let handshakes = &figures.handshakes;
    page.counter("tls_handshakes_total", "TLS handshakes that made a connection.", handshakes.done);
    page.counter(
        "tls_handshakes_resumed_total",
        "Those that took up an earlier session.",
        handshakes.resumed,
    );
    let failed = handshakes.failed.iter();
    page.counters(
        "tls_handshakes_failed_total",
        "TLS handshakes that failed, by reason.",
        failed.map(|(reason, count)| (vec![label("reason", reason)], *count as f64)),
    );
    page.gauge("tls_handshakes_under_way", "TLS handshakes that go on now.", handshakes.under_way);
    page.gauge("connections_max", "Most connections at a time.", figures.max);
    page.gauge(
        "clients_blocked",
        "Clients whose command waits for something other than the disk.",
        figures.blocked,
    );
    page.gauge("messages_bytes", "Published messages on their way to listeners.", figures.message_bytes);
}

fn keys(snapshot: &Snapshot, page: &mut Page) {
    let keys = &snapshot.keys;
    page.counter("keyspace_hits_total", "Keys that commands looked up and found.", keys.hits);
    page.counter("keyspace_misses_total", "Keys that commands looked up and did not find.", keys.misses);
    page.counter("expired_keys_total", "Keys removed because they expired.", keys.expired);
    page.counter("evicted_keys_total", "Keys evicted for lack of room.", keys.evicted);
    let used = || {
        let all = keys.databases.iter().enumerate();
        all.filter(|(db, (keys, _))| *db == 0 || *keys > 0)
            .map(|(db, counts)| (vec![label("db", &db)], *counts))
    };
    page.gauges("keys", "Keys.", used().map(|(labels, (keys, _))| (labels, keys as f64)));
    page.gauges(
        "keys_expiring",
        "Keys that have an expiry.",
        used().map(|(labels, (_, some))| (labels, some as f64)),
    );
    let leaves = &keys.leaves;
    page.gauge("leaves", "Leaves of large collections.", leaves.leaves);
    page.gauge("leaves_hot_bytes", "Bytes of leaves that are in memory.", leaves.hot_bytes);
    page.gauge("leaves_swept", "Leaves of keys that are gone, still to be removed.", leaves.swept);
    page.gauge(
        "leaves_changes",
        "Changes of leaves in the log, each a record, until the leaf is written as one.",
        leaves.changes,
    );
}

fn journal(figures: &JournalFigures, page: &mut Page) {
    let counters = &figures.counters;
    for (name, help, value) in [
        ("batches_total", "Batches written.", counters.batches),
        ("records_total", "Records written.", counters.records),
        (
            "written_bytes_total",
            "Bytes of batches written, with headers and padding.",
            counters.bytes_written,
        ),
        (
            "commits_by_loops_total",
            "Batches that loops, or the worker of a lone transaction, wrote and synced themselves.",
            counters.commits_here,
        ),
        ("syncs_unawaited_total", "Syncs for which no reply waited.", counters.syncs_unawaited),
        ("stamps_total", "Stamps written while idle.", counters.stamps),
        (
            "fallocated_segments_total",
            "Segments begun in a file that was not filled in time.",
            counters.fallocated_fallbacks,
        ),
        ("files_created_total", "Files created.", counters.files_created),
        ("files_recycled_total", "Files used again.", counters.files_recycled),
        ("files_removed_total", "Files removed.", counters.files_removed),
    ] {
        page.counter(&format!("journal_{name}"), help, value);
    }
    let refused = [("buffers", counters.refused_busy), ("disk", counters.refused_full)];
    let refused = refused.map(|(full, count)| (vec![label("full", &full)], count as f64));
    page.counters(
        "journal_refusals_total",
        "Times that a writer had to wait or was refused, by what was full.",
        refused,
    );
    let segments = [
        ("open", counters.segments_open),
        ("sealed", counters.segments_sealed),
        ("footed", counters.segments_footed),
        ("trimmed", counters.segments_trimmed),
    ];
    let segments = segments.map(|(state, count)| (vec![label("state", &state)], count as f64));
    page.gauges("journal_segments", "Segments by state.", segments);
    page.gauge(
        "journal_segments_retired",
        "Retired segments whose files are still in use.",
        counters.segments_retired,
    );
    page.gauge("journal_files_ready", "Files prepared for segments.", counters.files_ready);
    page.gauge(
        "journal_disk_bytes",
        "Size of segment files on disk, with prepared ones.",
        counters.disk_bytes,
    );
    let seqs = [
        ("newest", figures.newest_seq),
        ("durable", figures.durable_seq),
        ("released", figures.released_seq),
    ];
    let seqs = seqs.map(|(which, seq)| (vec![label("which", &which)], seq as f64));
    page.gauges(
        "journal_sequence",
        "Sequence numbers of effects: the newest, the newest on disk, the newest that replies may show.",
        seqs,
    );
    syncs(&figures.syncs, page);
}

fn syncs(syncs: &journal::SyncFigures, page: &mut Page) {
    for (name, help, values, sum, unit, bounds) in [
        ("duration_seconds", "Time of write and sync together.", &syncs.nanos, syncs.nanos_sum, 1e9, SECONDS),
        ("records", "Records that a sync made durable.", &syncs.records, syncs.records_sum, 1.0, COUNTS),
        (
            "bytes",
            "Bytes that a sync made durable, with headers and padding.",
            &syncs.bytes,
            syncs.bytes_sum,
            1.0,
            BYTES,
        ),
    ] {
        let distribution = Distribution { values, unit, sum: sum as f64 / unit, bounds };
        page.histograms(&format!("journal_sync_{name}"), help, vec![distribution.metric(vec![])]);
    }
}

fn log(snapshot: &Snapshot, page: &mut Page) {
    let Some(log) = &snapshot.log else { return };
    for (name, help, value) in [
        ("bytes", "Bytes of batches in all segments.", log.log_bytes),
        ("live_bytes", "Bytes of live records.", log.live_bytes),
        ("disk_bytes", "Size of all files on disk, with the checkpoint.", log.disk_bytes),
        ("checkpoint_bytes", "Size of the checkpoint.", log.checkpoint_bytes),
        ("damaged_segments", "Segments in quarantine because of corruption.", log.damaged_segments),
        ("cold_queue_length_max", "Most reads from disk that waited at a time.", log.cold_queue_max),
        (
            "writers_bytes_per_second_max",
            "Rate to which writers are limited while cleaning is behind; 0 for no limit.",
            log.throttle_bytes_per_second,
        ),
    ] {
        page.gauge(&format!("log_{name}"), help, value);
    }
    for (name, help, value) in [
        ("cold_reads_total", "Values read from disk.", log.cold_reads),
        ("cold_read_retries_total", "Reads from disk that met a moved record.", log.cold_retries),
        ("cold_read_failures_total", "Reads from disk that failed.", log.cold_failures),
        ("cleaned_bytes_total", "Bytes that cleaning read or copied.", log.cleaned_bytes),
        (
            "folded_bytes_total",
            "Bytes of values with changes that were written as one record before they left memory, or while nobody wrote.",
            log.folded_bytes,
        ),
        ("checkpoints_total", "Checkpoints taken.", log.checkpoints),
        (
            "writer_waits_total",
            "Times that a writer was slowed down to wait for cleaning.",
            log.throttle_waits,
        ),
    ] {
        page.counter(&format!("log_{name}"), help, value);
    }
}

fn memory(snapshot: &Snapshot, page: &mut Page) {
    let memory = &snapshot.memory;
    let parts = memory.parts().map(|(part, bytes)| (vec![label("part", &part)], bytes as f64));
    page.gauges("memory_bytes", "Memory that counts against the limit, by purpose.", parts);
    page.gauge("memory_limit_bytes", "The setting memory.limit; 0 for none.", memory.limit);
}

fn clients(snapshot: &Snapshot, page: &mut Page) {
    let clients = &snapshot.clients;
    let parts = clients.parts.iter().map(|(part, bytes)| (vec![label("part", part)], *bytes as f64));
    page.gauges("clients_memory_bytes", "Memory that clients use, by purpose.", parts);
    page.gauge(
        "clients_memory_max_bytes",
        "Limit of this memory, connections.memory_max.",
        clients.max_bytes,
    );
    page.gauge(
        "clients_memory_unauthenticated_bytes",
        "Part of this memory that unauthenticated clients use.",
        clients.unauthenticated_bytes,
    );
    page.gauge("requests_waiting_for_room", "Requests that wait for memory now.", clients.waiting);
    for (name, help, count) in &clients.counts {
        page.counter(&format!("{name}_total"), help, *count);
    }
}

fn process(snapshot: &Snapshot, page: &mut Page) {
    let process = &snapshot.process;
    let cpu = [("user", process.cpu_user_s), ("system", process.cpu_system_s)];
    let cpu = cpu.map(|(mode, seconds)| (vec![label("mode", &mode)], seconds));
    page.counters("process_cpu_seconds_total", "CPU time of the process.", cpu);
    page.gauge("process_resident_memory_bytes", "Memory of the process in RAM.", process.resident_bytes);
    page.gauge("process_threads", "Threads.", process.threads);
    page.gauge("process_open_fds", "Open files, with sockets.", process.files_open);
    page.gauge("process_max_fds", "Most open files.", process.files_max);
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

/// A figure of a loop: name, help, value.
type Figure = (&'static str, &'static str, fn(&LoopFigures) -> f64);

const LOOP_GAUGES: &[Figure] = &[
    ("loop_connections", "Connections now.", |l| l.connections as f64),
    ("loop_held_connections", "Connections whose replies wait for the disk now.", |l| l.held as f64),
    ("loop_inbox_messages", "Messages that the loop has not taken yet.", |l| l.inbox as f64),
];

const LOOP_COUNTERS: &[Figure] = &[
    ("loop_ticks_total", "Turns of the loop.", |l| l.ticks as f64),
    ("loop_read_events_total", "Reads that brought bytes.", |l| l.read_events as f64),
    ("loop_write_events_total", "Writes that took bytes.", |l| l.write_events as f64),
    ("loop_read_bytes_total", "Bytes read.", |l| l.bytes_in as f64),
    ("loop_written_bytes_total", "Bytes written.", |l| l.bytes_out as f64),
    ("loop_commands_total", "Commands.", |l| l.commands as f64),
    ("loop_messages_total", "Messages taken.", |l| l.messages as f64),
    ("loop_wakes_total", "Times that another thread had to wake the loop.", |l| l.wakes as f64),
    ("loop_stuck_total", "Times that the loop was found stuck in one callback.", |l| l.stuck as f64),
    ("loop_moves_in_total", "Connections that came from another loop.", |l| l.moves_in as f64),
    ("loop_moves_out_total", "Connections that left for another loop.", |l| l.moves_out as f64),
    ("loop_busy_seconds_total", "Time spent on connections.", |l| seconds(l.busy)),
    ("loop_cpu_seconds_total", "CPU time of the loop's thread.", |l| seconds(l.cpu)),
    (
        "loop_commit_seconds_total",
        "Time in which the loop waited for a sync, because all its clients did.",
        |l| seconds(l.committing),
    ),
];

const PREFIX: &str = "evenkeel_";

/// From a microsecond to ten seconds.
const SECONDS: &[f64] = &[
    1e-6, 2.5e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 5e-4, 1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1,
    0.25, 0.5, 1.0, 2.5, 10.0,
];
const COUNTS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1_024.0, 4_096.0, 16_384.0];
const BYTES: &[f64] =
    &[256.0, 1_024.0, 4_096.0, 16_384.0, 65_536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

#[cfg(test)]
mod tests {
    use super::super::example::example;
    use super::*;

    #[test]
    fn page_of_the_example_is_the_golden_one() {
        let text = example().prometheus();
        let golden = include_str!("../../tests/golden/metrics.prom");
        assert!(
            text == golden,
            "the page has changed; if that is meant, tests/golden/metrics.prom is to be:\n{text}"
        );
    }

    #[test]
    fn every_value_is_in_a_bucket_and_none_is_counted_twice() {
        let mut values = Histogram::new_with_bounds(1, 1_000_000, 2).expect("bounds");
        for value in [1, 10, 10, 999, 50_000] {
            values.record(value).expect("in bounds");
        }
        let distribution =
            Distribution { values: &values, unit: 1_000.0, sum: 51.02, bounds: &[0.001, 0.01, 1.0] };
        let metric = distribution.metric(vec![]);
        let histogram = metric.get_histogram();
        let counts: Vec<_> = histogram.get_bucket().iter().map(Bucket::cumulative_count).collect();
        assert_eq!((counts, histogram.get_sample_count()), (vec![1, 3, 4], 5));
    }

    #[test]
    fn an_empty_server_has_a_page() {
        let text = Snapshot::default().prometheus();
        assert!(text.contains("evenkeel_uptime_seconds 0\n") && !text.contains("_loop_"), "{text}");
    }
}
