//! Topologies as JSON under the names of Storm's REST API, for tools that know it: summary and details, as far as there is something to tell. Errors are not: they
//! may have data in them, and nobody is asked for a password here.
//!
//! ```text
//!  /api/v1/topology/summary     {"topologies": [...]}
//!  /api/v1/topology/NAME        {"id": ..., "spouts": [...], "bolts": [...]}
//! ```

use std::collections::HashMap;

use serde_json::{Value, json};
use supervisor::{ComponentStatus, EdgeStatus, Report};

use crate::handlers::topology_show::status;

/// The answer to a request for `path`; `None` if there is no such thing.
pub(crate) fn answer(path: &str, topologies: &[Report]) -> Option<String> {
    let name = path.strip_prefix("/api/v1/topology/")?;
    let answer = match topologies.iter().find(|it| it.name == name) {
        _ if name == "summary" => json!({ "topologies": topologies.iter().map(summary).collect::<Vec<_>>() }),
        Some(topology) => details(topology),
        None => return None,
    };
    Some(answer.to_string())
}

fn summary(it: &Report) -> Value {
    let tasks: u64 = it.status.components.iter().map(|component| component.tasks).sum();
    json!({
        "id": it.name, "name": it.name, "status": status(it).to_uppercase(), "uptimeSeconds": it.uptime.as_secs(),
        "workersTotal": it.workers.iter().filter(|worker| worker.pid.is_some()).count(), "tasksTotal": tasks,
    })
}

fn details(it: &Report) -> Value {
    let mut all = summary(it);
    let of_kind =
        |is_spout| it.status.components.iter().filter(move |component| component.is_spout == is_spout);
    let mut inputs: HashMap<&str, Vec<Value>> = HashMap::new();
    for component in &it.status.components {
        for edge in &component.edges {
            inputs.entry(&edge.to).or_default().push(of_input(&component.id, edge));
        }
    }
    let bolt = |component: &ComponentStatus| {
        let mut bolt = of_component(component, "boltId");
        bolt["inputStats"] = inputs.remove(&*component.id).unwrap_or_default().into();
        bolt
    };
    all["spouts"] = of_kind(true).map(|component| of_component(component, "spoutId")).collect();
    all["bolts"] = of_kind(false).map(bolt).collect();
    all
}

fn of_component(it: &ComponentStatus, id: &str) -> Value {
    let (latencies, shares) = (&it.latencies, &it.shares);
    json!({
        id: it.id, "tasks": it.tasks, "emitted": it.emitted, "transferred": it.transferred, "executed": it.executed,
        "acked": it.acked, "failed": it.failed, "pending": it.pending, "completeLatency": thousandths(latencies.complete.mean_us()),
        "executeLatency": thousandths(latencies.execute.mean_us()), "processLatency": thousandths(latencies.process.mean_us()),
        "capacity": thousandths(shares.busy_permille), "queueLatency": thousandths(latencies.queue.mean_us()), "queuedBytes": it.queued_bytes,
        "backPressured": thousandths(shares.back_pressured_permille), "idle": thousandths(shares.idle_permille), "lagMs": it.lag_ms,
        "edges": it.edges.iter().map(of_edge).collect::<Vec<_>>(),
    })
}

/// What a bolt has done with the tuples of one edge, as Storm tells it of a component.
fn of_input(from: &str, it: &EdgeStatus) -> Value {
    json!({
        "component": from, "stream": it.stream, "executed": it.executed, "acked": it.acked, "failed": it.failed,
        "executeLatency": thousandths(it.latencies.execute.mean_us()), "processLatency": thousandths(it.latencies.process.mean_us()),
    })
}

/// Not in Storm's answer, as `queuedBytes`, `queueLatency`, `backPressured`, `idle` and `lagMs`: the console draws it.
fn of_edge(it: &EdgeStatus) -> Value {
    let latencies = &it.latencies;
    json!({
        "stream": it.stream, "to": it.to, "transferred": it.transferred, "queuedBytes": it.queued_bytes, "executed": it.executed,
        "acked": it.acked, "failed": it.failed, "executeLatency": thousandths(latencies.execute.mean_us()),
        "processLatency": thousandths(latencies.process.mean_us()), "queueLatency": thousandths(latencies.queue.mean_us()),
    })
}

/// Latencies are text there, in milliseconds.
fn thousandths(all: u64) -> String {
    format!("{}.{:03}", all / 1_000, all % 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_and_details_have_the_names_of_storm() {
        let topologies = crate::metrics::example::example().topologies.expect("it runs topologies");
        let summary = answer("/api/v1/topology/summary", &topologies).expect("there");
        let expected = r#"{"topologies":[{"id":"words","name":"words","status":"ACTIVE","tasksTotal":5,"uptimeSeconds":90,"workersTotal":1}]}"#;
        assert_eq!(summary, expected);
        let details = answer("/api/v1/topology/words", &topologies).expect("there");
        let details: Value = serde_json::from_str(&details).expect("JSON");
        assert_eq!(
            (&details["spouts"][0]["spoutId"], &details["bolts"][0]["boltId"]),
            (&json!("lines"), &json!("split"))
        );
        assert_eq!(details["spouts"][0]["completeLatency"], "1.500");
        let bolt = &details["bolts"][0];
        assert_eq!(
            (&bolt["capacity"], &bolt["idle"], &bolt["processLatency"]),
            (&json!("0.400"), &json!("0.500"), &json!("0.080"))
        );
        let spout = &details["spouts"][0];
        assert_eq!((&spout["backPressured"], &spout["lagMs"]), (&json!("0.700"), &json!(2_500)));
        let edge = json!({
            "stream": "default", "to": "split", "transferred": 202, "queuedBytes": 212, "executed": 221, "acked": 222, "failed": 223,
            "executeLatency": "0.060", "processLatency": "0.090", "queueLatency": "8.000",
        });
        assert_eq!(details["spouts"][0]["edges"], json!([edge]));
        let input = json!({
            "component": "lines", "stream": "default", "executed": 221, "acked": 222, "failed": 223, "executeLatency": "0.060",
            "processLatency": "0.090",
        });
        assert_eq!(bolt["inputStats"], json!([input]));
        assert_eq!(answer("/api/v1/topology/no", &topologies), None);
        assert_eq!(answer("/api/v2", &topologies), None);
    }
}
