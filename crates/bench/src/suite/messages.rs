//! Messages between nodes, and topologies, beside others who do the same: `evenkeel bench transport` and `evenkeel bench topology`, by turns.
//!
//! libzmq and Storm's messaging layer carry messages and promise less: neither acknowledges, and what is under way when a connection ends is
//! lost. The transport `zeromq` promises what `tcp` does.

use serde_json::Value;

use super::context::Context;
use super::reported::Reported;
use crate::Failure;
use crate::figure::{Figure, Series, Target};

/// `tcp` beside libzmq, Storm's Netty layer and the transport `zeromq`, by size; and what 64 senders cost.
pub(super) fn transport(context: &Context) -> Result<Vec<Figure>, Failure> {
    let others = [("zeromq", 1.4), ("libzmq", 2.0), ("storm", 2.0)];
    let names: Vec<&str> = others.iter().map(|(name, _)| *name).collect();
    let (runs, duration, sizes) = shape(context, "16,64,100,1024,8192,65536");
    let shape = ["--runs", &runs, "--duration", duration, "--json"];
    let test = Reported::of(
        &[&["transport", "--against", &names.join(","), "--sizes", sizes][..], &shape].concat(),
    )?;
    let mut figures = Vec::new();
    for (index, (name, least)) in others.iter().enumerate() {
        let what = format!("messages one way, tcp / {name}");
        figures.extend(beside(&test, "transport", (&what, name), index, Target::AtLeast(*least)));
    }
    let many = Reported::of(
        &[&["transport", "--against", "plain", "--sizes", "100", "--senders", "64,1"][..], &shape].concat(),
    )?;
    let of = |index: usize, label| Series::new(label, values(&many.report["figures"][index]["cpu_ns_runs"]));
    let title = "processor time of a message of 100 B, 64 senders / one, on one link";
    let (a, b) = (of(0, "64 senders"), of(1, "one sender"));
    figures.push(
        Figure::new("transport/senders", title, Some(Target::AtMost(1.5)), "ns", a, Some(b))
            .by([many.command]),
    );
    Ok(figures)
}

/// The small shape of Storm's speed-of-light test beside Storm's local cluster, and over `tcp` and `zeromq`, by size. Three workers each.
pub(super) fn topology(context: &Context) -> Result<Vec<Figure>, Failure> {
    let (runs, duration, sizes) = shape(context, "16,100,1024,4096");
    let shape = ["--workers", "3", "--sizes", sizes, "--runs", &runs, "--duration", duration, "--json"];
    let measured = |arguments: &[&str]| Reported::of(&[&["topology"][..], arguments, &shape].concat());
    let what = "acknowledged messages, 3 workers, 3 spouts and 3 bolts, evenkeel / Storm's local cluster";
    let storm = measured(&["--against", "storm"])?;
    let mut figures = beside(&storm, "topology", (what, "storm"), 0, Target::AtLeast(4.0));
    let what = "acknowledged messages, 3 workers, 3 spouts and 3 bolts, tcp / zeromq";
    let zeromq = measured(&["--transport", "tcp,zeromq"])?;
    figures.extend(beside(&zeromq, "topology", (what, "zeromq"), 0, Target::AtLeast(1.4)));
    Ok(figures)
}

/// Runs, duration and sizes of this context.
fn shape(context: &Context, sizes: &'static str) -> (String, &'static str, &'static str) {
    if context.quick { ("1".to_owned(), "500ms", "100") } else { (context.runs.to_string(), "2s", sizes) }
}

/// A figure for each size: rates beside those of `against[index]`.
fn beside(
    test: &Reported,
    group: &str,
    (what, name): (&str, &str),
    index: usize,
    target: Target,
) -> Vec<Figure> {
    let own = test.report["figures"].as_array().into_iter().flatten();
    let theirs = test.report["against"][index]["figures"].as_array().into_iter().flatten();
    own.zip(theirs)
        .map(|(own, theirs)| {
            let size = &own["size_bytes"];
            let series = |label: &str, figure: &Value| Series::new(label, values(&figure["rate_runs"]));
            let (a, b) = (series("evenkeel", own), series(name, theirs));
            let (id, title) = (format!("{group}/{name}-{size}"), format!("{what}, {size} B"));
            Figure::new(&id, &title, Some(target), "messages/s", a, Some(b)).by([test.command.clone()])
        })
        .collect()
}

fn values(runs: &Value) -> Vec<f64> {
    runs.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}
