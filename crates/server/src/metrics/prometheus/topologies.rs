//! Topologies that the server runs. Names of components come from clients: only the first [`COMPONENTS_MAX`] are shown.

use supervisor::{ComponentStatus, Report};

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
}

fn labels((topology, component): &(&Report, &ComponentStatus)) -> Labels {
    vec![label("topology", &topology.name), label("component", &component.id)]
}

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
const GAUGES: [Figure; 2] = [
    ("topology_pending", "Tuples that are not finished.", |it| it.pending),
    ("topology_queue_bytes", "Bytes in the queues of a component.", |it| it.queued_bytes),
];
const COMPONENTS_MAX: usize = 500;
