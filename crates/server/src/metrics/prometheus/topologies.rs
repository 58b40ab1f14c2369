//! Topologies that the server runs. Names of components come from clients: only the first [`COMPONENTS_MAX`] are shown, and latencies of the first
//! [`LATENCIES_MAX`]; so of their edges.

use prometheus::proto::{Bucket, Histogram, Metric};
use supervisor::{ComponentStatus, EdgeStatus, FigureStatus, Latencies, Report, Times};

use super::{Labels, Page, label};

pub(super) fn write(topologies: &[Report], page: &mut Page) {
    let of_each = |figure: fn(&Report) -> u64| {
        topologies.iter().map(move |it| (vec![label("topology", &it.name)], figure(it) as f64))
    };
    page.gauges(
        "topology_worker_up",
        "Whether a worker process of a topology runs.",
        of_each(|it| u64::from(it.workers.iter().any(|worker| worker.pid.is_some()))),
    );
    page.gauges(
        "topology_workers_running",
        "Worker processes of a topology that run.",
        of_each(|it| it.workers.iter().filter(|worker| worker.pid.is_some()).count() as u64),
    );
    page.gauges("topology_workers", "Workers that a topology has.", of_each(|it| it.workers.len() as u64));
    page.counters(
        "topology_worker_restarts_total",
        "Workers that were started again after they had died.",
        of_each(|it| it.restarts),
    );
    let components: Vec<(&Report, &ComponentStatus)> = topologies
        .iter()
        .flat_map(|topology| topology.status.components.iter().map(move |it| (topology, it)))
        .take(COMPONENTS_MAX)
        .collect();
    for (name, help, figure) in COUNTERS {
        page.counters(name, help, components.iter().map(|it| (labels(it), figure(it.1) as f64)));
    }
    for (name, help, figure) in GAUGES {
        page.gauges(name, help, components.iter().map(|it| (labels(it), figure(it.1) as f64)));
    }
    figures(&components, page);
    page.gauges(
        "topology_blocked",
        "Whether nothing of a topology can go on, though its workers run.",
        of_each(|it| u64::from(it.blocked().is_some())),
    );
    time(&components, page);
    latencies(&components[..components.len().min(LATENCIES_MAX)], page);
    edges(&components, page);
}

/// Streams of components and their readers.
fn edges(components: &[(&Report, &ComponentStatus)], page: &mut Page) {
    let all = components.iter().flat_map(|it| it.1.edges.iter().map(move |edge| (it, edge)));
    let labelled = all.take(COMPONENTS_MAX).map(|(component, edge)| {
        let more = [label("stream", &edge.stream), label("to", &edge.to)];
        ([labels(component), more.to_vec()].concat(), edge)
    });
    let edges: Vec<(Labels, &EdgeStatus)> = labelled.collect();
    for (name, help, figure) in EDGE_COUNTERS {
        page.counters(name, help, edges.iter().map(|(labels, edge)| (labels.clone(), figure(edge) as f64)));
    }
    page.gauges(
        "topology_edge_queue_bytes",
        "Bytes in the queues of a reader that came from a component, of all its streams.",
        edges.iter().map(|(labels, edge)| (labels.clone(), edge.queued_bytes as f64)),
    );
    for (name, help, of) in EDGE_LATENCIES {
        let first = edges.iter().take(LATENCIES_MAX);
        let measured = first.filter(|(_, edge)| of(&edge.latencies).count > 0);
        let metrics = measured.map(|(labels, edge)| metric(of(&edge.latencies), labels.clone()));
        page.histograms(name, help, metrics.collect());
    }
}

/// What programs report of themselves: of the first [`COMPONENTS_MAX`] names.
fn figures(components: &[(&Report, &ComponentStatus)], page: &mut Page) {
    let all = components.iter().flat_map(|it| it.1.figures.iter().map(move |figure| (it, figure)));
    let figures: Vec<(Labels, &FigureStatus)> = all
        .take(COMPONENTS_MAX)
        .map(|(component, figure)| ([labels(component), vec![label("name", &figure.name)]].concat(), figure))
        .collect();
    let of_each = |value: fn(&FigureStatus) -> f64| {
        figures.iter().map(move |(labels, figure)| (labels.clone(), value(figure)))
    };
    page.counters(
        "topology_component_metric_reports_total",
        "How often a program has reported a figure of its own.",
        of_each(|it| it.count as f64),
    );
    page.gauges(
        "topology_component_metric_added",
        "All values of a figure that a program has reported, added up.",
        of_each(|it| it.sum),
    );
    page.gauges(
        "topology_component_metric_last",
        "The last value of a figure that a program has reported.",
        of_each(|it| it.last),
    );
}

/// What the time of tasks went to. The shares of a component are of the sum of its four states.
fn time(components: &[(&Report, &ComponentStatus)], page: &mut Page) {
    let of_one = |it: &(&Report, &ComponentStatus)| {
        let (labels, time) = (labels(it), it.1.time);
        let states = [
            ("busy", time.busy_us),
            ("back_pressured", time.back_pressured_us),
            ("idle", time.idle_us),
            ("runnable", time.runnable_us),
        ];
        states.map(|(state, us)| ([&labels[..], &[label("state", &state)]].concat(), us as f64 / 1e6))
    };
    page.counters(
        "topology_task_seconds_total",
        "Time of a component's tasks: busy, back-pressured, idle, or runnable while their thread was at others.",
        components.iter().flat_map(of_one),
    );
    let lags = components.iter().filter_map(|it| Some((labels(it), it.1.lag_ms? as f64 / 1e3)));
    page.gauges(
        "topology_lag_seconds",
        "Age of the oldest entry that a spout has not emitted yet; 0 if there is none.",
        lags,
    );
}

fn latencies(components: &[(&Report, &ComponentStatus)], page: &mut Page) {
    for (name, help, of) in LATENCIES {
        let measured = components.iter().filter(|it| of(&it.1.latencies).count > 0);
        page.histograms(name, help, measured.map(|it| metric(of(&it.1.latencies), labels(it))).collect());
    }
}

fn metric(times: &Times, labels: Labels) -> Metric {
    let buckets = BOUNDS.map(|place| {
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(Times::BOUNDS_US[place] as f64 / 1e6);
        bucket.set_cumulative_count(times.at_most(place));
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.to_vec());
    histogram.set_sample_count(times.count);
    histogram.set_sample_sum(times.sum_ns as f64 / 1e9);
    let mut metric = Metric::from_label(labels);
    metric.set_histogram(histogram);
    metric
}

fn labels((topology, component): &(&Report, &ComponentStatus)) -> Labels {
    vec![label("topology", &topology.name), label("component", &component.id)]
}

/// Name, help, values.
type Distribution = (&'static str, &'static str, fn(&Latencies) -> &Times);

/// Executions and waits in queues are sampled.
const LATENCIES: [Distribution; 4] = [
    ("topology_execute_seconds", "Time of calls of a component, of those that were measured.", |it| {
        &it.execute
    }),
    (
        "topology_process_seconds",
        "Time from the execution of a tuple to its acknowledgement by a bolt, of those that were measured.",
        |it| &it.process,
    ),
    ("topology_queue_seconds", "Time in the queues of a bolt, of what was measured.", |it| &it.queue),
    (
        "topology_complete_seconds",
        "Time from the emission of a spout's tuple to its acknowledgement.",
        |it| &it.complete,
    ),
];
/// They are sampled.
const EDGE_LATENCIES: [Distribution; 2] = [
    (
        "topology_edge_process_seconds",
        "Time from the execution of a tuple to its acknowledgement by the reader, by the stream on which it came.",
        |it| &it.process,
    ),
    ("topology_edge_queue_seconds", "Time in the queues of the reader, by the stream.", |it| &it.queue),
];
/// Places of the bounds that are shown: 10 us, 100 us and so on to 10 s.
const BOUNDS: [usize; 7] = [3, 6, 9, 12, 15, 18, 21];

/// Name, help, value.
type Figure = (&'static str, &'static str, fn(&ComponentStatus) -> u64);

/// They begin at zero when a server starts, and when another definition takes the place of one.
const COUNTERS: [Figure; 7] = [
    ("topology_emitted_total", "Tuples that a component emitted.", |it| it.emitted),
    ("topology_transferred_total", "Tuples that went to tasks of its readers.", |it| it.transferred),
    ("topology_executed_total", "Tuples that a bolt executed.", |it| it.executed),
    ("topology_acked_total", "Tuples that were acknowledged.", |it| it.acked),
    ("topology_failed_total", "Tuples that failed at a bolt, or that a spout gave up.", |it| it.failed),
    ("topology_faults_total", "Calls of a component that failed.", |it| it.faults),
    ("topology_component_restarts_total", "Times that a component was made anew.", |it| it.restarts),
];
/// Name, help, value.
type EdgeFigure = (&'static str, &'static str, fn(&EdgeStatus) -> u64);

const EDGE_COUNTERS: [EdgeFigure; 4] = [
    ("topology_edge_transferred_total", "Tuples of a stream that went to tasks of a reader.", |it| {
        it.transferred
    }),
    ("topology_edge_executed_total", "Tuples of a stream that a reader executed.", |it| it.executed),
    ("topology_edge_acked_total", "Tuples of a stream that a reader acknowledged.", |it| it.acked),
    ("topology_edge_failed_total", "Tuples of a stream that failed at a reader.", |it| it.failed),
];
const GAUGES: [Figure; 2] = [
    ("topology_pending", "Tuples that are not finished.", |it| it.pending),
    ("topology_queue_bytes", "Bytes in the queues of a component.", |it| it.queued_bytes),
];
/// Of edges, too.
const COMPONENTS_MAX: usize = 500;
/// A histogram is ten series.
const LATENCIES_MAX: usize = 100;
