//! Transactions over keys and databases.

use prometheus::proto::{Bucket, Histogram, Metric};
use txn::phases::Times;

use super::{Labels, Page, label};
use crate::metrics::{ResourceFigures, TransactionFigures};

pub(super) fn write(figures: &TransactionFigures, page: &mut Page) {
    let counters = &figures.counters;
    let outcomes = [
        ("committed", counters.committed),
        ("aborted", counters.aborted),
        ("unknown", counters.unknown),
        ("heuristic", counters.heuristic),
    ];
    let outcomes = outcomes.map(|(outcome, count)| (vec![label("outcome", &outcome)], count as f64));
    page.counters("transactions_total", "Transactions that ended, by outcome.", outcomes);
    let states = figures.states.iter().map(|(state, count)| (vec![label("state", state)], *count as f64));
    page.gauges(
        "transactions_live",
        "Transactions in progress, or committed with their decision kept, by state.",
        states,
    );
    page.counter(
        "transaction_orphans_total",
        "Prepared branches that no transaction knew; rolled back.",
        counters.orphans,
    );
    page.gauge("transaction_prepared_branches", "Prepared branches over keys.", figures.prepared);
    page.gauge("transaction_locked_keys", "Keys that prepared branches have locked.", figures.locked_keys);
    page.gauge(
        "transaction_locked_databases",
        "Databases that prepared branches have locked as a whole.",
        figures.locked_databases,
    );
    page.counter(
        "transaction_decisions_total",
        "Records written to the decision log.",
        figures.decisions.records,
    );
    let phases = &figures.phases;
    let phases = [("prepare", &phases.prepare), ("decide", &phases.decide), ("commit", &phases.commit)];
    page.histograms(
        "transaction_phase_seconds",
        "Time of each phase of two-phase commits.",
        phases.map(|(phase, times)| histogram(times, vec![label("phase", &phase)])).into(),
    );
    let of_each = |figure: fn(&ResourceFigures) -> f64| {
        let of_one = move |it: &ResourceFigures| {
            (vec![label("resource", &it.name), label("kind", &it.kind.word())], figure(it))
        };
        figures.resources.iter().map(of_one)
    };
    let ready = |it: &ResourceFigures| f64::from(u8::from(it.trouble.is_empty()));
    page.gauges("resource_ready", "Whether a database takes branches now.", of_each(ready));
    page.gauges("resource_sessions", "Sessions of a database.", of_each(|it| it.sessions.open as f64));
    page.gauges(
        "resource_sessions_busy",
        "Sessions of a database that work in a branch.",
        of_each(|it| it.sessions.busy as f64),
    );
    page.gauges(
        "resource_sessions_waited_for",
        "Branches that wait for a session.",
        of_each(|it| it.sessions.waiting as f64),
    );
    page.counters(
        "resource_connection_failures_total",
        "Connections to a database that failed.",
        of_each(|it| it.sessions.failures as f64),
    );
}

fn histogram(times: &Times, labels: Labels) -> Metric {
    let mut seen = 0;
    let bounded =
        times.buckets.iter().enumerate().filter_map(|(at, count)| Some((Times::bound_ns(at)?, count)));
    let buckets = bounded.map(|(bound_ns, count)| {
        seen += count;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(bound_ns as f64 / 1e9);
        bucket.set_cumulative_count(seen);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(times.count);
    histogram.set_sample_sum(times.sum_ns as f64 / 1e9);
    let mut metric = Metric::from_label(labels);
    metric.set_histogram(histogram);
    metric
}
