//! Messages between nodes, and topologies, beside others who do the same: `evenkeel bench transport` and `evenkeel bench topology`, by turns.
//!
//! libzmq and Storm's messaging layer carry messages and promise less: neither acknowledges, and what is under way when a connection ends is
//! lost. The transport `zeromq` promises what `tcp` does.

use serde_json::Value;

use super::context::Context;
use super::reported::{Reported, values};
use crate::Failure;
use crate::figure::{Figure, Series, Target};

/// `tcp` beside the plain loop, libzmq, Storm's Netty layer and the transport `zeromq`, by size; TLS beside it; and what 64 senders cost.
pub(super) fn transport(context: &Context) -> Result<Vec<Figure>, Failure> {
    let (runs, duration, sizes) = shape(context, "16,64,100,1024,8192,65536");
    let shape = ["--runs", &runs, "--duration", duration, "--json"];
    let measured = |arguments: &[&str]| Reported::of(&[&["transport"][..], arguments, &shape].concat());
    let others: [(&str, Wanted); 4] = [
        ("plain", least_beside_plain),
        ("zeromq", |_| Some(Target::AtLeast(1.4))),
        ("libzmq", |_| Some(Target::AtLeast(2.0))),
        ("storm", |_| Some(Target::AtLeast(2.0))),
    ];
    let names = others.map(|(name, _)| name).join(",");
    let test = measured(&["--against", &names, "--sizes", sizes])?;
    let mut figures = Vec::new();
    for (index, (name, target)) in others.into_iter().enumerate() {
        let title = format!("messages one way, tcp / {name}");
        figures.extend(beside(&test, index, &format!("transport/{name}"), &title, "tcp", name, target));
    }
    let sizes = if context.quick { "64" } else { "64,65536" };
    let tls = measured(&["--transport", "tls", "--against", "tcp", "--sizes", sizes])?;
    let (id, title) = ("transport/tls", "messages one way, tls / tcp");
    figures.extend(beside(&tls, 0, id, title, "tls", "tcp", |_| Some(Target::AtLeast(0.5))));
    let many = measured(&["--against", "plain", "--sizes", "100", "--senders", "64,1"])?;
    let of = |index: usize, label| Series::new(label, values(&many.report["figures"][index]["cpu_ns_runs"]));
    let title = "processor time of a message of 100 B, 64 senders / one, on one link";
    let (a, b) = (of(0, "64 senders"), of(1, "one sender"));
    figures.push(
        Figure::new("transport/senders", title, Some(Target::AtMost(1.5)), "ns", a, Some(b))
            .by([many.command]),
    );
    Ok(figures)
}

/// What is wanted, by the bytes of a message.
type Wanted = fn(u64) -> Option<Target>;

/// What is wanted of `tcp` beside the plain loop.
fn least_beside_plain(size_bytes: u64) -> Option<Target> {
    match size_bytes {
        64 => Some(Target::AtLeast(0.4)),
        1_024.. => Some(Target::AtLeast(0.7)),
        _ => None,
    }
}

/// Storm's speed-of-light test: its small shape beside Storm's local cluster, over `tcp` and `zeromq`, with several threads of the transport and without
/// acknowledgements; its large shape in four workers.
pub(super) fn topology(context: &Context) -> Result<Vec<Figure>, Failure> {
    let (runs, duration, sizes) = shape(context, "16,100,1024,4096");
    let shape = ["--runs", &runs, "--duration", duration, "--json"];
    let measured = |arguments: &[&str]| Reported::of(&[&["topology"][..], arguments, &shape].concat());
    let what = "acknowledged messages, 3 workers, 3 spouts and 3 bolts";
    let storm = measured(&["--workers", "3", "--sizes", sizes, "--against", "storm"])?;
    let (id, title) = ("topology/storm", &*format!("{what}, evenkeel / Storm's local cluster"));
    let mut figures = beside(&storm, 0, id, title, "evenkeel", "storm", |_| Some(Target::AtLeast(4.0)));
    let zeromq = measured(&["--workers", "3", "--sizes", sizes, "--transport", "tcp,zeromq"])?;
    let (id, title) = ("topology/zeromq", &*format!("{what}, tcp / zeromq"));
    figures.extend(beside(&zeromq, 0, id, title, "tcp", "zeromq", |_| Some(Target::AtLeast(1.4))));
    let acking = measured(&["--sizes", sizes, "--acking", "on,off"])?;
    let (id, title) = ("topology/acking", "messages, 1 worker, 3 spouts and 3 bolts, acknowledged / not");
    figures.extend(beside(&acking, 0, id, title, "acking on", "acking off", |_| Some(Target::AtLeast(0.6))));
    let processors =
        std::thread::available_parallelism().map_or(1, std::num::NonZero::get).max(2).to_string();
    for workers in ["2", "3", "6"] {
        let threads = format!("1,{processors}");
        let test = measured(&["--workers", workers, "--sizes", "100", "--transport-threads", &threads])?;
        let title = format!(
            "acknowledged messages, {workers} workers, 3 spouts and 3 bolts, one thread of each transport / {processors}"
        );
        let (id, all) = (format!("topology/threads-{workers}"), format!("{processors} threads"));
        figures.extend(beside(&test, 0, &id, &title, "1 thread", &all, |_| None));
    }
    // It takes three seconds until all that may be under way is.
    let large = ["--spouts", "100", "--bolts", "100", "--levels", "5", "--workers", "4", "--warm-up", "4s"];
    let sizes = if context.quick { "100" } else { "100,4096" };
    let test = measured(&[&large[..], &["--sizes", sizes, "--transport", "tcp,zeromq"]].concat())?;
    let title = "acknowledged messages, 4 workers, 100 spouts and 5 levels of 100 bolts, tcp / zeromq";
    figures.extend(beside(&test, 0, "topology/large", title, "tcp", "zeromq", |_| None));
    Ok(figures)
}

/// Runs, duration and sizes of this context.
fn shape(context: &Context, sizes: &'static str) -> (String, &'static str, &'static str) {
    if context.quick { ("1".to_owned(), "500ms", "100") } else { (context.runs.to_string(), "2s", sizes) }
}

/// A figure for each size: rates beside those of `against[index]`.
fn beside(
    test: &Reported,
    index: usize,
    id: &str,
    title: &str,
    own: &str,
    other: &str,
    target: impl Fn(u64) -> Option<Target>,
) -> Vec<Figure> {
    let ours = test.report["figures"].as_array().into_iter().flatten();
    let theirs = test.report["against"][index]["figures"].as_array().into_iter().flatten();
    ours.zip(theirs)
        .map(|(ours, theirs)| {
            let size_bytes = ours["size_bytes"].as_u64().unwrap_or_default();
            let series = |label: &str, figure: &Value| Series::new(label, values(&figure["rate_runs"]));
            let (a, b) = (series(own, ours), series(other, theirs));
            let (id, title) = (format!("{id}-{size_bytes}"), format!("{title}, {size_bytes} B"));
            Figure::new(&id, &title, target(size_bytes), "messages/s", a, Some(b)).by([test.command.clone()])
        })
        .collect()
}
