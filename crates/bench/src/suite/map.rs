//! Hazelcast's map test, Evenkeel and Hazelcast as whole systems: `evenkeel bench map-test --against hazelcast`, by turns.
//!
//! Each has its own client: ours 40 connections of the load engine, Hazelcast's 40 threads of a JVM. Both sides share the machine with
//! their clients, so operations a second compare systems; processor time of the server for each operation compares servers.

use serde_json::Value;

use crate::Failure;
use crate::figure::{Figure, Series, Target};

use super::Context;
use super::reported::Reported;

/// Rate, p99 and server CPU of gets by 40 threads, beside Hazelcast.
pub(super) fn map(context: &Context) -> Result<Vec<Figure>, Failure> {
    let (duration, warm_up) = if context.quick { ("2s", "2s") } else { ("20s", "40s") };
    // The first run of each does not count.
    let (loops, runs) = (context.loops.to_string(), (context.runs + 1).to_string());
    let shape = ["--loops", &loops, "--runs", &runs, "--duration", duration, "--jvm-warm-up", warm_up];
    let test = Reported::of(&[&["map-test", "--against", "hazelcast"][..], &shape, &["--json"]].concat())?;
    let theirs = &test.report["against"][0];
    if theirs["valid"] != true {
        return Err(format!("Hazelcast was not measured: {} {}", test.said.trim(), theirs["failures"]));
    }
    let figure = |id: &str, what: &str, target: Target, unit: &str, of: fn(&Value) -> &Value| {
        let title = format!("gets by 40 threads (map test): {what}, evenkeel / Hazelcast");
        let series = |label: &str, report: &Value| {
            let runs = report["runs"].as_array().into_iter().flatten().skip(1);
            Series::new(label, runs.filter_map(|run| of(run).as_f64()).collect())
        };
        let (a, b) = (series("evenkeel", &test.report), series("Hazelcast", theirs));
        Figure::new(id, &title, Some(target), unit, a, Some(b)).by([test.command.clone()])
    };
    Ok(vec![
        figure(
            "map/rate",
            "operations",
            Target::AtLeast(2.0),
            "operations/s",
            |run| &run["operations_per_second"],
        ),
        figure("map/p99", "p99", Target::AtMost(0.5), "us", |run| &run["latency_us"]["p99"]),
        figure(
            "map/cpu",
            "server CPU of an operation",
            Target::AtMost(0.5),
            "us",
            |run| &run["server_cpu_us_per_operation"],
        ),
    ])
}
