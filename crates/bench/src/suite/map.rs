//! Hazelcast's map test, Evenkeel and Hazelcast as whole systems: `evenkeel bench map-test --against hazelcast`, by turns.
//!
//! Each has its own client. Hazelcast's 40 threads of a JVM share one connection, as clients of ours do that put requests of several
//! threads together (Lettuce, redis-rs); others give each thread a connection. Both are measured, with the load engine in the
//! place of threads. Both sides share the machine with their clients, so operations a second compare systems; processor time of the server for each operation compares servers.

use serde_json::Value;

use crate::Failure;
use crate::figure::{Figure, Target};

use super::context::Context;
use super::reported::{Reported, series};

/// Rate, p99 and server CPU of gets by 40 threads, beside Hazelcast: each with its own connection, and all with one as there.
pub(super) fn map(context: &Context) -> Result<Vec<Figure>, Failure> {
    let mut figures = beside_hazelcast(context, "map", "40 connections", &[])?;
    figures.extend(beside_hazelcast(context, "map-shared", "one connection", &["--connections", "1"])?);
    Ok(figures)
}

/// `connections`: those of our threads, in words.
fn beside_hazelcast(
    context: &Context,
    group: &str,
    connections: &str,
    extra: &[&str],
) -> Result<Vec<Figure>, Failure> {
    let (duration, warm_up) = if context.quick { ("2s", "2s") } else { ("10s", "40s") };
    // The first run of each does not count.
    let (loops, runs) = (context.loops.to_string(), (context.runs + 1).to_string());
    let shape = ["--loops", &loops, "--runs", &runs, "--duration", duration, "--jvm-warm-up", warm_up];
    let arguments = [&["map-test", "--against", "hazelcast"][..], extra, &shape, &["--json"]].concat();
    let test = Reported::of(&arguments)?;
    let theirs = test.peer("Hazelcast")?;
    let figure = |id: &str, what: &str, target: Target, unit: &str, of: fn(&Value) -> &Value| {
        let title = format!("gets by 40 threads (map test) over {connections}: {what}, evenkeel / Hazelcast");
        let (a, b) = (series("evenkeel", &test.report, of), series("Hazelcast", theirs, of));
        let id = format!("{group}/{id}");
        Figure::new(&id, &title, Some(target), unit, a, Some(b)).by([test.command.clone()])
    };
    Ok(vec![
        figure(
            "rate",
            "operations",
            Target::AtLeast(2.0),
            "operations/s",
            |run| &run["operations_per_second"],
        ),
        figure("p99", "p99", Target::AtMost(0.5), "us", |run| &run["latency_us"]["p99"]),
        figure(
            "cpu",
            "server CPU of an operation",
            Target::AtMost(0.5),
            "us",
            |run| &run["server_cpu_us_per_operation"],
        ),
    ])
}
