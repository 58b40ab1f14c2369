//! Topologies as JSON under the names of Storm's REST API, for tools that know it: summary, details and one component, as far as there is something to tell. Errors
//! are not: they may have data in them, and nobody is asked for a password here. All figures are since the start: there are no windows.
//!
//! ```text
//!  /api/v1/topology/summary            {"topologies": [...]}
//!  /api/v1/topology/NAME               {"id": ..., "spouts": [...], "bolts": [...]}
//!  /api/v1/topology/NAME/component/ID  {"id": ID, "name": NAME, "boltStats": [...], "inputStats": [...], ...}
//!  anything else below                 {"error": "Not Found", "errorMessage": ...}, with status 404
//! ```
//!
//! **Cost.** An answer is as long as the definition at most, and costs one pass over its edges.

use std::collections::HashMap;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use serde_json::{Value, json};
use supervisor::{ComponentStatus, EdgeStatus, Report, WorkerReport};

use crate::handlers::topology_show::status;

/// The answer to a request for `path`, or that what it names is not there; `None` if it is no path of these.
pub(crate) fn answer(path: &str, topologies: &[Report]) -> Option<Result<String, String>> {
    let path = path.strip_prefix("/api/v1/topology/")?;
    let found = find(path, topologies);
    let text = |value: Value| value.to_string();
    Some(found.map(text).map_err(|error| text(json!({ "error": "Not Found", "errorMessage": error }))))
}

fn find(path: &str, topologies: &[Report]) -> Result<Value, String> {
    if path == "summary" {
        return Ok(json!({ "topologies": topologies.iter().map(summary).collect::<Vec<_>>() }));
    }
    let parts: Vec<&str> = path.splitn(4, '/').collect();
    let (name, id) = match *parts {
        [name] => (decoded(name), None),
        [name, "component", id] => (decoded(name), Some(decoded(id))),
        _ => return Err("there are summary, NAME and NAME/component/ID".to_owned()),
    };
    let topology = topologies.iter().find(|it| it.name == name);
    let topology = topology.ok_or_else(|| format!("there is no topology `{name}`"))?;
    let Some(id) = id else { return Ok(details(topology)) };
    let component = topology.status.components.iter().find(|component| component.id == id);
    component
        .map(|component| component_details(topology, component))
        .ok_or_else(|| format!("the topology `{name}` has no component `{id}`"))
}

/// A part of a path as it was meant.
fn decoded(part: &str) -> String {
    percent_decode_str(part).decode_utf8_lossy().into_owned()
}

/// A name as a part of a path.
fn encoded(name: &str) -> String {
    utf8_percent_encode(name, NON_ALPHANUMERIC).to_string()
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

/// One component, as Storm tells it, in the one window that there is. Storm has an element of `executorStats` for each executor; here figures are of workers.
fn component_details(topology: &Report, it: &ComponentStatus) -> Value {
    let id = if it.is_spout { "spoutId" } else { "boltId" };
    let mut total = of_component(it, id);
    (total["window"], total["windowPretty"]) = (json!(ALL_TIME), json!(ALL_TIME_PRETTY));
    let in_worker = |worker: &WorkerReport| {
        let own = worker.status.as_ref()?.components.iter().find(|own| own.id == it.id && own.tasks > 0)?;
        let mut stats = of_component(own, id);
        (stats["id"], stats["uptimeSeconds"]) =
            (json!(format!("worker {}", worker.number)), json!(worker.uptime.as_secs()));
        Some(stats)
    };
    let executors: Vec<Value> = topology.workers.iter().filter_map(in_worker).collect();
    let mut all = json!({
        "id": it.id, "encodedId": encoded(&it.id), "name": topology.name, "topologyId": topology.name,
        "encodedTopologyId": encoded(&topology.name), "topologyStatus": status(topology).to_uppercase(), "tasks": it.tasks,
        "componentType": if it.is_spout { "spout" } else { "bolt" }, "window": ALL_TIME, "windowHint": ALL_TIME_PRETTY,
        "faults": it.faults, "restarts": it.restarts, "executorStats": executors, "outputStats": of_outputs(it),
    });
    if it.is_spout {
        all["spoutSummary"] = json!([total]);
    } else {
        all["boltStats"] = json!([total]);
        let components = topology.status.components.iter();
        let edges = components.flat_map(|from| from.edges.iter().map(|edge| (&from.id, edge)));
        let inputs = edges.filter(|(_, edge)| edge.to == it.id).map(|(from, edge)| of_input(from, edge));
        all["inputStats"] = inputs.collect();
    }
    all
}

/// What a component has emitted, by streams.
fn of_outputs(it: &ComponentStatus) -> Value {
    let mut transferred: HashMap<&str, u64> = HashMap::new();
    it.edges.iter().for_each(|edge| *transferred.entry(&edge.stream).or_default() += edge.transferred);
    let streams = it.streams.iter().map(|(id, emitted)| {
        json!({ "stream": id, "emitted": emitted, "transferred": transferred.get(&**id).unwrap_or(&0) })
    });
    streams.collect()
}

/// What a bolt has done with the tuples of one edge, as Storm tells it of a component.
fn of_input(from: &str, it: &EdgeStatus) -> Value {
    json!({
        "component": from, "encodedComponentId": encoded(from), "stream": it.stream, "executed": it.executed, "acked": it.acked, "failed": it.failed,
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

/// The window of Storm's that is as long as all is.
const ALL_TIME: &str = ":all-time";
const ALL_TIME_PRETTY: &str = "All time";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(path: &str, topologies: &[Report]) -> String {
        answer(path, topologies).expect("a path").expect("there")
    }

    #[test]
    fn summary_and_details_have_the_names_of_storm() {
        let topologies = crate::metrics::example::example().topologies.expect("it runs topologies");
        let summary = found("/api/v1/topology/summary", &topologies);
        let expected = r#"{"topologies":[{"id":"words","name":"words","status":"ACTIVE","tasksTotal":5,"uptimeSeconds":90,"workersTotal":1}]}"#;
        assert_eq!(summary, expected);
        let details = found("/api/v1/topology/words", &topologies);
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
            "component": "lines", "encodedComponentId": "lines", "stream": "default", "executed": 221, "acked": 222, "failed": 223,
            "executeLatency": "0.060", "processLatency": "0.090",
        });
        assert_eq!(bolt["inputStats"], json!([input]));
    }

    #[test]
    fn component_has_its_totals_inputs_outputs_and_what_each_worker_did() {
        let topologies = crate::metrics::example::example().topologies.expect("it runs topologies");
        let of = |id: &str| -> Value {
            let text = found(&format!("/api/v1/topology/words/component/{id}"), &topologies);
            serde_json::from_str(&text).expect("JSON")
        };
        let spout = of("%6cines");
        assert_eq!((&spout["id"], &spout["name"]), (&json!("lines"), &json!("words")));
        assert_eq!((&spout["componentType"], &spout["tasks"]), (&json!("spout"), &json!(2)));
        let summary = &spout["spoutSummary"][0];
        assert_eq!((&summary["window"], &summary["acked"]), (&json!(":all-time"), &json!(203)));
        let output = json!({ "stream": "default", "emitted": 201, "transferred": 202 });
        assert_eq!(spout["outputStats"], json!([output]));
        assert!(spout.get("inputStats").is_none() && spout.get("componentErrors").is_none(), "{spout}");
        let bolt = of("split");
        assert_eq!(bolt["boltStats"][0]["processLatency"], "0.080");
        assert_eq!((&bolt["inputStats"][0]["component"], &bolt["faults"]), (&json!("lines"), &json!(213)));
        let executors = bolt["executorStats"].as_array().expect("an array");
        assert_eq!(executors.len(), 1, "the other worker has said nothing");
        let first = &executors[0];
        assert_eq!((&first["id"], &first["uptimeSeconds"]), (&json!("worker 0"), &json!(90)));
        assert_eq!(first["executed"], 211);
    }

    #[test]
    fn what_is_not_there_is_named() {
        let topologies = crate::metrics::example::example().topologies.expect("it runs topologies");
        for (path, why) in [
            ("no", "there is no topology `no`"),
            ("words/component/it%2Fs", "the topology `words` has no component `it/s`"),
            ("no/component/lines", "there is no topology `no`"),
            ("words/component/a/b", "there are summary, NAME and NAME/component/ID"),
            ("words/metrics", "there are summary, NAME and NAME/component/ID"),
        ] {
            let error = answer(&format!("/api/v1/topology/{path}"), &topologies).expect("a path");
            let expected = json!({ "error": "Not Found", "errorMessage": why }).to_string();
            assert_eq!(error, Err(expected), "{path}");
        }
        assert_eq!(answer("/api/v2", &topologies), None);
    }
}
