//! Loops that connections burden unevenly: `evenkeel bench skew` of the reports' cases, and how the balancer leaves them.
//!
//! A loop's load is what `skew` takes for it: the bytes that it sent, which the server does not count by.

use serde_json::Value;

use crate::Failure;
use crate::figure::{Figure, Series, Target};

use super::context::Context;
use super::reported::Reported;

/// All on one loop, and the duplicates of nodes that start together.
pub(super) fn skew(context: &Context) -> Result<Vec<Figure>, Failure> {
    let runs = context.runs.to_string();
    // Enough for three intervals and one more.
    let seconds = if context.quick { "5s" } else { "20s" };
    let interval = if context.quick { "1s" } else { "5s" };
    let shape = ["--duration", seconds, "--balance-interval", interval, "--json"];
    let one_loop = ["--engine", "memory", "--runs", &runs];
    let one_loop = Skew::run(context, &[&one_loop[..], &shape].concat())?;
    let fresh = if context.quick { "1" } else { "10" };
    let nodes = ["--engine", "memory", "--starts", "nodes", "--balance", "on", "--runs", fresh];
    let nodes = Skew::run(context, &[&nodes[..], &shape].concat())?;
    let mut figures = vec![
        one_loop.figure("skew/one-loop", "all of 40 connections on one loop (MGET of 30 x 2,000 bytes): idlest / busiest loop after 3 intervals", "one-loop", "on", "min_max_after_3_intervals", Some(Target::AtLeast(0.85))),
        one_loop.figure("skew/one-loop-rate", "the same: requests/s beside a run that starts even", "one-loop", "on", "ratio_to_even", Some(Target::AtLeast(0.95))),
        nodes.figure("skew/nodes", "nodes that start together, duplicates closed, fresh starts: idlest / busiest loop after 3 intervals", "nodes", "on", "min_max_after_3_intervals", Some(Target::AtLeast(0.85))),
    ];
    for (balance, what) in [("off", "without the balancer"), ("by-host", "pinned by host")] {
        let id = format!("skew/one-loop-{balance}");
        let title =
            format!("all of 40 connections on one loop, {what}: requests/s beside a run that starts even");
        figures.push(one_loop.figure(&id, &title, "one-loop", balance, "ratio_to_even", None));
    }
    Ok(figures)
}

/// Moves of ten minutes under a load that does not change, once it is balanced.
pub(super) fn oscillation(context: &Context) -> Result<Vec<Figure>, Failure> {
    let seconds = if context.quick { "20s" } else { "620s" };
    let interval = if context.quick { "1s" } else { "5s" };
    let arguments =
        ["--engine", "memory", "--balance", "on", "--clients", "400", "--keys", "10", "--value-size", "200"];
    // Nothing is compared with an even start: it would take ten minutes more.
    let shape = ["--no-even", "--duration", seconds, "--balance-interval", interval, "--json"];
    let skew = Skew::run(context, &[&arguments[..], &shape].concat())?;
    let samples = skew.runs("one-loop", "on").flat_map(|run| run["loops"].as_array().cloned()).next();
    let samples = samples.ok_or("no samples of the loops")?;
    let balanced_at = if context.quick { 4.0 } else { 20.0 };
    let moves = |sample: Option<&Value>| sample.and_then(|sample| sample["moves"].as_f64()).ok_or("no moves");
    let after = samples.iter().find(|sample| sample["at_s"].as_f64().is_some_and(|at| at >= balanced_at));
    let percent = (moves(samples.last())? - moves(after)?) / 400.0 * 100.0;
    let title = "moves in 10 minutes of steady load after 4 intervals, of 400 connections";
    let series = Series::new("evenkeel memory", vec![percent]);
    let figure = Figure::new("skew/oscillation", title, Some(Target::AtMost(1.0)), "percent", series, None);
    Ok(vec![figure.by([skew.0.command])])
}

/// What `evenkeel bench skew` reported.
struct Skew(Reported);

impl Skew {
    fn run(context: &Context, arguments: &[&str]) -> Result<Self, Failure> {
        Reported::of(&[&["skew", "--loops", &context.loops.to_string()][..], arguments].concat()).map(Self)
    }

    /// The runs of one kind.
    fn runs(&self, start: &str, balance: &str) -> impl Iterator<Item = &Value> {
        let all = self.0.report["runs"].as_array().into_iter().flatten();
        all.filter(move |run| run["start"] == start && run["balance"] == balance)
    }

    fn figure(
        &self,
        id: &str,
        title: &str,
        start: &str,
        balance: &str,
        what: &str,
        target: Option<Target>,
    ) -> Figure {
        let values = self.runs(start, balance).filter_map(|run| run[what].as_f64()).collect();
        let series = Series::new("evenkeel memory", values);
        Figure::new(id, title, target, "part", series, None).by([self.0.command.clone()])
    }
}
