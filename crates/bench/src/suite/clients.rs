//! The reports' questions about threads and clients: how many clients, how large values, which connector.
//!
//! Load is the engine of `evenkeel bench`, in this process, on one loop; each run has a fresh server, as Voldemort's report had. The
//! limit server divides, so its requests must have one size: keys are padded. A run in which anything failed is no figure.

use std::time::Duration;

use crate::Failure;
use crate::drive::{
    Action, Failures, Fleet, FleetOptions, Group, KeyForm, Keys, Limit, PATIENCE, Phase, Pick,
    Target as Address, Work,
};
use crate::figure::{Figure, Series, Target, median};
use crate::process::{cpu_seconds, rss_bytes, thread_count};
use crate::servers::{Recipe, Server};

use super::context::Context;

/// SETs by many clients.
#[derive(Clone, Copy, Debug)]
struct Writes {
    clients: usize,
    /// Requests under way on each.
    depth: usize,
    value_bytes: usize,
    requests: u64,
    /// Equal parts that the requests come in.
    iterations: usize,
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
struct Run {
    per_second: f64,
    /// Processor time of the server for each request, in microseconds.
    cpu_us: f64,
    /// Memory that the server's process took for each client: resident, and kernel stacks of its threads.
    client_bytes: f64,
    /// From the slowest to the fastest iteration, in percent of the mean.
    spread_percent: f64,
    /// What was refused, timed out, was lost or answered with an error.
    failures: Failures,
}

impl Run {
    fn is_valid(&self) -> bool {
        self.failures.count() == 0
    }
}

impl Writes {
    fn of(context: &Context, clients: usize) -> Self {
        Self { clients, depth: 1, value_bytes: 1_024, requests: context.amount(200_000), iterations: 1 }
    }

    /// As [`Writes::try_out`]; a run in which anything failed is none.
    fn run(&self, context: &Context, recipe: &Recipe) -> Result<Run, Failure> {
        let run = self.try_out(context, recipe)?;
        if run.is_valid() {
            return Ok(run);
        }
        let (count, words) = (run.failures.count(), run.failures.first.unwrap_or_default());
        Err(format!("{}: {count} failures of {} clients: {words}", recipe.label, self.clients))
    }

    /// Starts `recipe`, drives it, ends it.
    fn try_out(&self, context: &Context, recipe: &Recipe) -> Result<Run, Failure> {
        let server = Server::start(recipe, &context.folder)?;
        let before = memory_bytes(&server)?;
        let mut fleet = Fleet::open(&Address::local(server.port()), &FleetOptions::new(self.clients))?;
        let mut run = Run { failures: fleet.failures.clone(), ..Run::default() };
        // Connections take their buffers, the caches warm up.
        fleet.run(&self.phase(self.requests / 10), &mut |_| {})?;
        let cpu = cpu_seconds(server.id())?;
        let mut rates = Vec::new();
        for _ in 0..self.iterations {
            let outcome = fleet.run(&self.phase(self.requests / self.iterations as u64), &mut |_| {})?;
            run.failures.add(&outcome.total().tally.failures);
            rates.push(outcome.per_second());
        }
        run.client_bytes = memory_bytes(&server)?.saturating_sub(before) as f64 / self.clients as f64;
        run.cpu_us = (cpu_seconds(server.id())? - cpu) * 1e6 / self.requests as f64;
        // Equal parts: their mean rate is the harmonic one.
        run.per_second = rates.len() as f64 / rates.iter().map(|rate| 1.0 / rate).sum::<f64>();
        let (least, most) =
            rates.iter().fold((f64::MAX, 0.0_f64), |(a, b), rate| (a.min(*rate), b.max(*rate)));
        run.spread_percent = (most - least) / (rates.iter().sum::<f64>() / rates.len() as f64) * 100.0;
        Ok(run)
    }

    /// Measures two servers by turns: their rates, and their processor time for each request; reported, not judged.
    fn rate_and_cpu(
        &self,
        context: &Context,
        id: &str,
        title: &str,
        [(label_a, a), (label_b, b)]: [(&str, &Recipe); 2],
    ) -> Result<[Figure; 2], Failure> {
        let bytes = self.value_bytes;
        let of_rate = format!("writes of {bytes} bytes, {title}");
        let (rate, [of_a, of_b]) = self.rate(context, id, &of_rate, None, [(label_a, a), (label_b, b)])?;
        let title = format!("server CPU of a write of {bytes} bytes, {title}");
        let series = |label, runs: &[Run]| Series::new(label, runs.iter().map(|run| run.cpu_us).collect());
        let (a, b) = (series(label_a, &of_a), series(label_b, &of_b));
        let cpu = Figure::new(&format!("{id}-cpu"), &title, None, "us", a, Some(b)).by(rate.commands.clone());
        Ok([rate, cpu])
    }

    /// Measures two servers by turns: a figure of their rates, and their runs.
    fn rate(
        &self,
        context: &Context,
        id: &str,
        title: &str,
        target: Option<Target>,
        [(label_a, a), (label_b, b)]: [(&str, &Recipe); 2],
    ) -> Result<(Figure, [Vec<Run>; 2]), Failure> {
        let (of_a, of_b) = context.alternate(|| self.run(context, a), || self.run(context, b))?;
        let (series_a, series_b) = (Series::new(label_a, rates(&of_a)), Series::new(label_b, rates(&of_b)));
        let figure = Figure::new(id, title, target, "requests/s", series_a, Some(series_b));
        Ok((figure.by([a.command(), b.command(), self.command()]), [of_a, of_b]))
    }

    /// Bytes of one request, as the engine encodes it.
    fn request_bytes(&self) -> usize {
        let (key, value) = ("0".repeat(KEY_BYTES), "v".repeat(self.value_bytes));
        let mut request = Vec::new();
        resp::encode_command(&mut request, &["SET", &key, &value]);
        request.len()
    }

    fn phase(&self, requests: u64) -> Phase {
        let group =
            closed_loop(Action::Write, Pick::Random, self.value_bytes, self.clients, self.depth, requests);
        Phase { groups: vec![group], request_timeout: PATIENCE, interval: Duration::from_secs(1) }
    }

    /// The same by hand, but for the length of the keys.
    fn command(&self) -> String {
        format!(
            "evenkeel bench remote-test --url redis://127.0.0.1:PORT --operations write --clients {} --pipeline {} --value-size {} --requests {} --iterations {}",
            self.clients,
            self.depth,
            self.value_bytes,
            self.requests / self.iterations as u64,
            self.iterations
        )
    }
}

/// Requests on [`KEYS`] keys of one length, of so many connections with so many under way on each.
pub(super) fn closed_loop(
    action: Action,
    pick: Pick,
    value_bytes: usize,
    connections: usize,
    depth: usize,
    requests: u64,
) -> Group {
    let keys = Keys { first: 0, count: KEYS, pick, form: KeyForm::Padded(KEY_BYTES) };
    let work = Work::new(action, keys, value_bytes);
    Group { work, connections, depth, limit: Limit::Requests(requests), per_second: None }
}

/// Many clients: rates beside a hundred clients and beside the limit server, what failed, memory for each.
pub(super) fn clients(context: &Context) -> Result<Vec<Figure>, Failure> {
    let counts = if context.quick { [100, 500, 1_000] } else { [100, 10_000, 19_000] };
    let places = (counts[2] + 32).to_string();
    let ours = ours("noop", "epoll", context).with(&["--connections-max", &places]);
    let mut steps = counts.map(|clients| Step { clients, ours: Vec::new(), limit: Vec::new() });
    // The first round warms the machine up and does not count.
    for round in 0..=context.runs {
        for step in &mut steps {
            let writes = Writes::of(context, step.clients);
            let limit = Recipe::limit_for(context.loops, writes.request_bytes());
            let pair = (writes.try_out(context, &ours)?, writes.run(context, &limit)?);
            if round > 0 {
                step.ours.push(pair.0);
                step.limit.push(pair.1);
            }
        }
    }
    let most = Writes::of(context, counts[2]);
    let limit = Recipe::limit_for(context.loops, most.request_bytes());
    let commands = [ours.command(), limit.command(), most.command()];
    let [few, many, most] = &steps;
    let mut figures = Vec::new();
    figures.extend(many.beside(few, 0.85));
    figures.extend(most.beside(few, 0.75));
    figures.extend(steps.iter().filter_map(Step::beside_limit));
    figures.extend([most.failures(), many.memory()]);
    Ok(figures.into_iter().map(|figure| figure.by(commands.clone())).collect())
}

/// Runs of our server and of the limit server, by turns, with so many clients.
struct Step {
    clients: usize,
    ours: Vec<Run>,
    limit: Vec<Run>,
}

impl Step {
    /// This many clients beside few; none where anything failed: survivors mislead.
    fn beside(&self, few: &Step, least: f64) -> Option<Figure> {
        let (many, few_clients) = (self.clients, few.clients);
        let limits: Vec<f64> =
            rates(&self.limit).iter().zip(rates(&few.limit)).map(|(many, few)| many / few).collect();
        let figure = Figure::new(
            &format!("clients/noop-{many}-beside-{few_clients}"),
            &format!("writes of 1,024 bytes, {many} clients / {few_clients} clients, engine noop"),
            Some(Target::AtLeast(least)),
            "requests/s",
            Series::new(&format!("{many} clients"), rates(&self.ours)),
            Some(Series::new(&format!("{few_clients} clients"), rates(&few.ours))),
        );
        let figure = figure.note(&format!("The limit server: {:.2}.", median(&limits)));
        (self.is_valid() && few.is_valid()).then_some(figure)
    }

    /// Our server beside the limit server; none where anything failed.
    fn beside_limit(&self) -> Option<Figure> {
        let figure = Figure::new(
            &format!("clients/noop-{}-limit", self.clients),
            &format!("writes of 1,024 bytes, {} clients, evenkeel noop / limit", self.clients),
            Some(Target::AtLeast(0.9)),
            "requests/s",
            Series::new("evenkeel noop", rates(&self.ours)),
            Some(Series::new("limit", rates(&self.limit))),
        );
        self.is_valid().then_some(figure)
    }

    fn failures(&self) -> Figure {
        let title = format!("requests lost, timed out or refused, {} clients", self.clients);
        let failed = self.ours.iter().map(|run| run.failures.count() as f64).collect();
        let failed = Series::new("evenkeel noop", failed);
        Figure::new("clients/failures", &title, Some(Target::AtMost(0.0)), "requests", failed, None)
    }

    fn memory(&self) -> Figure {
        let title = format!("server memory for each of {} clients under load", self.clients);
        let bytes = self.ours.iter().map(|run| run.client_bytes).collect();
        let memory = Series::new("evenkeel noop", bytes);
        Figure::new("clients/memory", &title, Some(Target::AtMost(16_384.0)), "bytes", memory, None)
    }

    fn is_valid(&self) -> bool {
        self.ours.iter().all(Run::is_valid)
    }
}

/// How far equal iterations lie apart, by connector and beside the limit server.
pub(super) fn spread(context: &Context) -> Result<Vec<Figure>, Failure> {
    // An iteration takes about a second: shorter ones show the machine's unrest alone.
    let requests = context.amount(500_000);
    let writes = Writes { requests, iterations: 10, ..Writes::of(context, 1_000) };
    let (epoll, threads) = (ours("noop", "epoll", context), ours("noop", "threads", context));
    let limit = Recipe::limit_for(context.loops, writes.request_bytes());
    let mut spreads = [(); 3].map(|()| Vec::new());
    for round in 0..=context.runs {
        for (recipe, spreads) in [&epoll, &limit, &threads].into_iter().zip(&mut spreads) {
            let run = writes.run(context, recipe)?;
            if round > 0 {
                spreads.push(run.spread_percent);
            }
        }
    }
    let [of_epoll, of_limit, of_threads] = spreads;
    let beyond = of_epoll.iter().zip(&of_limit).map(|(ours, limit)| ours - limit).collect();
    let commands = [epoll.command(), limit.command(), writes.command()];
    let note = format!("Medians: epoll {:.1} %, limit {:.1} %.", median(&of_epoll), median(&of_limit));
    Ok(vec![
        Figure::new(
            "spread/epoll",
            "slowest to fastest of 10 equal iterations, 1,000 clients: beyond the limit server's",
            Some(Target::AtMost(2.0)),
            "percent points",
            Series::new("evenkeel noop", beyond),
            None,
        )
        .by(commands.clone())
        .note(&note),
        Figure::new(
            "spread/threads",
            "slowest to fastest of 10 equal iterations, 1,000 clients, connector threads",
            None,
            "percent",
            Series::new("evenkeel noop, threads", of_threads),
            None,
        )
        .by(commands),
    ])
}

/// `epoll` beside `threads`: rates, and what memory a client costs.
pub(super) fn connectors(context: &Context) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for engine in ["noop", "log"] {
        let (epoll, threads) = (ours(engine, "epoll", context), ours(engine, "threads", context));
        let mut slopes = (Vec::new(), Vec::new());
        for clients in [100, 1_000, 5_000] {
            let writes = Writes { requests: context.amount(100_000), ..Writes::of(context, clients) };
            let id = format!("connectors/{engine}-{clients}");
            let title = format!("writes of 1,024 bytes, {clients} clients, engine {engine}, epoll / threads");
            let (target, sides) = (Some(Target::AtLeast(1.0)), [("epoll", &epoll), ("threads", &threads)]);
            let (figure, [a, b]) = writes.rate(context, &id, &title, target, sides)?;
            figures.push(figure);
            let total = |runs: &[Run]| -> Vec<f64> {
                runs.iter().map(|run| run.client_bytes * clients as f64).collect()
            };
            slopes.0.push((clients, total(&a)));
            slopes.1.push((clients, total(&b)));
        }
        figures.push(
            Figure::new(
                &format!("connectors/{engine}-memory"),
                &format!("memory (resident and kernel stacks) of a client, slope from 1,000 to 5,000, engine {engine}, epoll / threads"),
                Some(Target::AtMost(0.5)),
                "bytes",
                Series::new("epoll", slope(&slopes.0)),
                Some(Series::new("threads", slope(&slopes.1))),
            )
            .by([epoll.command(), threads.command()]),
        );
    }
    Ok(figures)
}

/// Value sizes from 64 bytes to 64 KiB beside the limit server.
pub(super) fn values(context: &Context) -> Result<Vec<Figure>, Failure> {
    let ours = ours("noop", "epoll", context);
    // Many short runs: what disturbs this machine lasts for seconds, and hits few of the pairs.
    let context = &Context { runs: context.runs * 3, ..context.clone() };
    let mut figures = Vec::new();
    for value_bytes in (6..=16).map(|power| 1_usize << power) {
        // About as long for large values as for small ones.
        let requests = context.amount(if value_bytes <= 4_096 { 75_000 } else { 30_000 });
        let writes = Writes { value_bytes, requests, ..Writes::of(context, 100) };
        let limit = Recipe::limit_for(context.loops, writes.request_bytes());
        let id = format!("values/{value_bytes}");
        let title = format!("writes of {value_bytes} bytes, 100 clients, evenkeel noop / limit");
        let (target, sides) = (Some(Target::AtLeast(0.85)), [("evenkeel noop", &ours), ("limit", &limit)]);
        figures.push(writes.rate(context, &id, &title, target, sides)?.0);
    }
    Ok(figures)
}

/// The connector `uring` beside `epoll`.
pub(super) fn uring(context: &Context) -> Result<Vec<Figure>, Failure> {
    let (uring, epoll) = (ours("noop", "uring", context), ours("noop", "epoll", context));
    let mut figures = Vec::new();
    for (clients, depth) in [(50, 1), (50, 16), (1_000, 1), (1_000, 16)] {
        let requests = context.amount(if depth == 1 { 200_000 } else { 1_000_000 });
        let writes = Writes { depth, requests, value_bytes: 100, ..Writes::of(context, clients) };
        let title = format!("{clients} clients, pipeline {depth}, engine noop, uring / epoll");
        let sides = [("uring", &uring), ("epoll", &epoll)];
        figures.extend(writes.rate_and_cpu(context, &format!("uring/{clients}-p{depth}"), &title, sides)?);
    }
    Ok(figures)
}

/// The first NIO server of Voldemort's report: a poller that hands ready sockets to a pool, beside loops that own theirs.
pub(super) fn pool(context: &Context) -> Result<Vec<Figure>, Failure> {
    let mut figures = Vec::new();
    for clients in [100, 1_000] {
        let writes = Writes::of(context, clients);
        let loops = Recipe::limit_for(context.loops, writes.request_bytes());
        let pool = loops.clone().with(&["--pool", &context.loops.to_string()]);
        let title = format!("{clients} clients, a pool behind one poller / loops (limit servers)");
        let sides = [("pool", &pool), ("loops", &loops)];
        figures.extend(writes.rate_and_cpu(context, &format!("pool/{clients}"), &title, sides)?);
    }
    Ok(figures)
}

fn rates(runs: &[Run]) -> Vec<f64> {
    runs.iter().map(|run| run.per_second).collect()
}

fn ours(engine: &str, connector: &str, context: &Context) -> Recipe {
    Recipe::evenkeel(engine, "always", context.loops).with(&["--connector", connector])
}

/// Bytes of a client, by run: from the second of `totals` to the third.
fn slope(totals: &[(usize, Vec<f64>)]) -> Vec<f64> {
    let ((few, of_few), (many, of_many)) = (&totals[1], &totals[2]);
    of_many.iter().zip(of_few).map(|(b, a)| (b - a) / (many - few) as f64).collect()
}

fn memory_bytes(server: &Server) -> Result<u64, Failure> {
    Ok(rss_bytes(server.id())? + thread_count(server.id())? * KERNEL_STACK_BYTES)
}

/// Keys that are written.
pub(super) const KEYS: u64 = 100_000;
const KEY_BYTES: usize = 16;
/// What the kernel keeps for each thread on x86-64 and aarch64 (`THREAD_SIZE`).
const KERNEL_STACK_BYTES: u64 = 16 << 10;
