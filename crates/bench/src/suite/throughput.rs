//! Requests a second and processor time of each, by redis-benchmark.

use std::cell::RefCell;

use crate::Failure;
use crate::figure::{Figure, Series, Target};
use crate::load::redis_benchmark::{Outcome, Shape};
use crate::servers::{Recipe, Server};

use super::context::Context;

/// Engine `noop` beside the bare limit server, and beside the one that parses.
pub(super) fn limit(context: &Context) -> Result<Vec<Figure>, Failure> {
    let ours = Recipe::evenkeel("noop", "never", context.loops);
    let bare = Recipe::limit(context.loops, false, false);
    let parsing = Recipe::limit(context.loops, false, true);
    let mut figures = Vec::new();
    for (clients, pipeline) in [(50, 1), (400, 1), (50, 16), (400, 16)] {
        let case = Case { group: "limit", what: "noop", clients, pipeline };
        let pair = Pair::measure(context, &ours, &bare, case)?;
        figures.push(pair.rate(Some(Target::AtLeast(0.9))));
        if pipeline == 1 {
            figures.push(pair.cpu(Some(Target::AtMost(1.15))));
        }
        if clients == 50 {
            let case = Case { what: "noop-parse", ..case };
            figures.push(Pair::measure(context, &ours, &parsing, case)?.rate(None));
        }
    }
    Ok(figures)
}

/// Durable SET beside Redis with `appendfsync always`.
pub(super) fn redis(context: &Context) -> Result<Vec<Figure>, Failure> {
    let ours = Recipe::evenkeel("log", "always", context.loops);
    let redis = Recipe::redis("always");
    let mut figures = Vec::new();
    for (clients, pipeline, least) in [(50, 1, 1.25), (400, 1, 1.0), (50, 16, 1.8)] {
        let case = Case { group: "redis", what: "durable", clients, pipeline };
        let pair = Pair::measure(context, &ours, &redis, case)?;
        figures.push(pair.rate(Some(Target::AtLeast(least))));
        if pipeline == 1 {
            figures.push(pair.cpu(Some(Target::AtMost(0.85))));
            figures.push(pair.p99());
        }
    }
    Ok(figures)
}

/// Durable SET beside the limit server with its bare journal; records for each sync.
pub(super) fn sync(context: &Context) -> Result<Vec<Figure>, Failure> {
    let ours = Recipe::evenkeel("log", "always", context.loops);
    let bare = Recipe::limit(context.loops, true, false);
    let mut figures = Vec::new();
    for (clients, pipeline, least) in [(50, 1, 0.85), (50, 16, 0.6)] {
        let case = Case { group: "sync", what: "durable", clients, pipeline };
        figures.push(Pair::measure(context, &ours, &bare, case)?.rate(Some(Target::AtLeast(least))));
    }
    figures.extend(records_per_sync(context, &ours, &bare)?);
    Ok(figures)
}

fn records_per_sync(context: &Context, ours: &Recipe, bare: &Recipe) -> Result<Vec<Figure>, Failure> {
    let shape = Case { group: "sync", what: "records", clients: 400, pipeline: 1 }.shape(context);
    let a = Server::start(ours, &context.folder)?;
    let b = RefCell::new(Server::start(bare, &context.folder)?);
    let mut client = a.client()?;
    let mut counts = || -> Result<[u64; 3], Failure> {
        let mut field = |name| client.info("journal", name);
        Ok([field("journal_records")?, field("journal_syncs")?, field("journal_syncs_unawaited")?])
    };
    let mut unawaited = Vec::new();
    let run_a = || {
        let before = counts()?;
        shape.run(&a)?;
        let after = counts()?;
        unawaited.push((after[2] - before[2]) as f64);
        Ok((after[0] - before[0]) as f64 / (after[1] - before[1]).max(1) as f64)
    };
    let run_b = || {
        let before = b.borrow_mut().limit_counts()?;
        shape.run(&b.borrow())?;
        let after = b.borrow_mut().limit_counts()?;
        Ok((after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64)
    };
    let (of_a, of_b) = context.alternate(run_a, run_b)?;
    let commands =
        [ours.command(), bare.command(), shape.command(), "redis-cli -p PORT info journal".to_owned()];
    let (label_a, label_b) = (ours.label.as_str(), bare.label.as_str());
    let per_sync = (Series::new(label_a, of_a), Some(Series::new(label_b, of_b)));
    let title = "records for each sync, 400 clients, pipeline 1";
    let target = Some(Target::AtLeast(0.8));
    let none = Some(Target::AtMost(0.0));
    let waited = Series::new(label_a, unawaited);
    Ok(vec![
        Figure::new("sync/records-400-p1", title, target, "records", per_sync.0, per_sync.1)
            .by(commands.clone()),
        Figure::new(
            "sync/unawaited",
            "syncs that nobody waited for, 400 clients",
            none,
            "syncs",
            waited,
            None,
        )
        .by(commands),
    ])
}

/// One shape of load in a group.
#[derive(Clone, Copy)]
struct Case {
    group: &'static str,
    what: &'static str,
    clients: usize,
    pipeline: usize,
}

impl Case {
    fn shape(self, context: &Context) -> Shape {
        let requests = context.amount(if self.pipeline == 1 { 200_000 } else { 1_000_000 });
        Shape { clients: self.clients, pipeline: self.pipeline, requests, keys: 100_000 }
    }

    fn id(self, measure: &str) -> String {
        format!("{}/{}-{}-p{}{measure}", self.group, self.what, self.clients, self.pipeline)
    }

    fn title(self) -> String {
        format!("{} clients, pipeline {}", self.clients, self.pipeline)
    }
}

/// What two servers did under the same load.
struct Pair {
    case: Case,
    labels: [String; 2],
    outcomes: [Vec<Outcome>; 2],
    commands: [String; 3],
}

impl Pair {
    fn measure(context: &Context, a: &Recipe, b: &Recipe, case: Case) -> Result<Self, Failure> {
        let shape = case.shape(context);
        let server_a = Server::start(a, &context.folder)?;
        let server_b = Server::start(b, &context.folder)?;
        let (of_a, of_b) = context.alternate(|| shape.run(&server_a), || shape.run(&server_b))?;
        Ok(Self {
            case,
            labels: [a.label.clone(), b.label.clone()],
            outcomes: [of_a, of_b],
            commands: [a.command(), b.command(), shape.command()],
        })
    }

    fn rate(&self, target: Option<Target>) -> Figure {
        let title = format!("SET, {} / {}: {}", self.labels[0], self.labels[1], self.case.title());
        self.figure("", &title, target, "requests/s", |outcome| outcome.per_second)
    }

    fn cpu(&self, target: Option<Target>) -> Figure {
        let title =
            format!("server CPU of a SET, {} / {}: {}", self.labels[0], self.labels[1], self.case.title());
        self.figure("-cpu", &title, target, "us", |outcome| outcome.cpu_us)
    }

    fn p99(&self) -> Figure {
        let title = format!("p99 of SET, {} / {}: {}", self.labels[0], self.labels[1], self.case.title());
        self.figure("-p99", &title, None, "us", |outcome| outcome.p99_us)
    }

    fn figure(
        &self,
        measure: &str,
        title: &str,
        target: Option<Target>,
        unit: &str,
        of: fn(&Outcome) -> f64,
    ) -> Figure {
        let [a, b] = &self.outcomes;
        let a = Series::new(&self.labels[0], a.iter().map(of).collect());
        let b = Series::new(&self.labels[1], b.iter().map(of).collect());
        Figure::new(&self.case.id(measure), title, target, unit, a, Some(b)).by(self.commands.clone())
    }
}
