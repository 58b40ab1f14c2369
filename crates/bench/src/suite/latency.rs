//! Latencies, by our own generator: reads beside durable writes, a hot key, one client alone.

use std::time::Duration;

use hdrhistogram::Histogram;

use crate::Failure;
use crate::figure::{Figure, Series, Target};
use crate::load::generator::{self, Group};
use crate::load::sync_probe;
use crate::process::OneCore;
use crate::servers::{Recipe, Server};

use super::context::Context;

/// GETs of the 90/10 mix with durability `always` beside `never`; Redis's for comparison.
pub(super) fn mix(context: &Context) -> Result<Vec<Figure>, Failure> {
    let loops = context.loops;
    let ours = [Recipe::evenkeel("log", "always", loops), Recipe::evenkeel("log", "never", loops)];
    let redis = [Recipe::redis("always"), Recipe::redis("no")];
    let mut figures = Vec::new();
    for (name, recipes, target) in [("evenkeel", ours, Some(Target::AtMost(1.15))), ("redis", redis, None)] {
        let servers = [started(context, &recipes[0])?, started(context, &recipes[1])?];
        let run = |server: &Server| generator::run(server.port(), &MIX, seconds(context, 5));
        let (always, never) = context.alternate(|| run(&servers[0]), || run(&servers[1]))?;
        let commands = [recipes[0].command(), recipes[1].command(), command(&MIX)];
        for (measure, quantile) in [("p50", 0.5), ("p99", 0.99)] {
            let of = |runs: &[Vec<Histogram<u64>>]| runs.iter().map(|run| us(&run[0], quantile)).collect();
            let a = Series::new(&recipes[0].label, of(&always));
            let b = Series::new(&recipes[1].label, of(&never));
            let id = format!("mix/{name}-{measure}");
            let title = format!("GET {measure} of the 90/10 mix, {} / {}", a.label, b.label);
            let target = target.filter(|_| measure == "p50");
            figures.push(Figure::new(&id, &title, target, "us", a, Some(b)).by(commands.clone()));
        }
        let rate = |runs: &[Vec<Histogram<u64>>]| {
            runs.iter().map(|run| run[0].len() as f64 / seconds(context, 5).as_secs_f64()).collect()
        };
        let a = Series::new(&recipes[0].label, rate(&always));
        let b = Series::new(&recipes[1].label, rate(&never));
        let title = format!("GETs a second of the 90/10 mix, {} / {}", a.label, b.label);
        figures
            .push(Figure::new(&format!("mix/{name}-rate"), &title, None, "GET/s", a, Some(b)).by(commands));
    }
    Ok(figures)
}

/// GET p99 of one key that is written all the time, beside twice the time of a sync and 0.2 ms.
pub(super) fn hot(context: &Context) -> Result<Vec<Figure>, Failure> {
    let recipe = Recipe::evenkeel("log", "always", context.loops);
    let server = started(context, &recipe)?;
    let reads = || {
        let histograms = generator::run(server.port(), &HOT, seconds(context, 5))?;
        Ok(us(&histograms[0], 0.99))
    };
    let syncs = || {
        let histogram = sync_probe::run(&context.folder, RAW_BYTES, seconds(context, 2))?;
        Ok(2.0 * us(&histogram, 0.99) + 200.0)
    };
    let (reads, bound) = context.alternate(reads, syncs)?;
    let a = Series::new("GET p99", reads);
    let b = Series::new("2 x p99 of write + sync, + 200 us", bound);
    let title = "GET p99 of one key that is SET all the time / 2 sync times + 0.2 ms";
    let figure = Figure::new("hot/get-p99", title, Some(Target::AtMost(1.0)), "us", a, Some(b));
    let note = "A sync time here is the p99 of a raw write and sync, as the read's p99 meets slow syncs too.";
    Ok(vec![figure.by([recipe.command(), command(&HOT), probe_command()]).note(note)])
}

/// One client's durable SET beside a raw write and sync of as many bytes, and beside Redis's.
pub(super) fn one(context: &Context) -> Result<Vec<Figure>, Failure> {
    let recipe = Recipe::evenkeel("log", "always", context.loops);
    let redis = Recipe::redis("always");
    let title = "one client, p50 of durable SET / raw write + sync";
    let commands = [recipe.command(), command(&ONE), probe_command()];
    let free = one_to_raw(context, &recipe, "one/set-p50", title)?.by(commands.clone());
    let pinned = {
        let _core = OneCore::enter()?;
        let title = format!("{title}, server and load pinned to one core");
        one_to_raw(context, &recipe, "one/set-p50-pinned", &title)?
            .by(commands.map(|line| format!("taskset -c 0 {line}")))
    };
    let (server, beside) = (started(context, &recipe)?, started(context, &redis)?);
    let (ours, theirs) = context.alternate(|| set_p50(context, &server), || set_p50(context, &beside))?;
    let (a, b) = (Series::new(&recipe.label, ours), Series::new(&redis.label, theirs));
    let to_redis =
        Figure::new("one/set-p50-redis", "one client, p50 of durable SET / Redis's", None, "us", a, Some(b));
    Ok(vec![free, pinned, to_redis.by([recipe.command(), redis.command(), command(&ONE)])])
}

fn one_to_raw(context: &Context, recipe: &Recipe, name: &str, title: &str) -> Result<Figure, Failure> {
    let server = started(context, recipe)?;
    let raw = || Ok(us(&sync_probe::run(&context.folder, RAW_BYTES, seconds(context, 3))?, 0.5));
    let (ours, disk) = context.alternate(|| set_p50(context, &server), raw)?;
    let (a, b) = (Series::new(&recipe.label, ours), Series::new("raw write + sync", disk));
    Ok(Figure::new(name, title, Some(Target::AtMost(1.25)), "us", a, Some(b)))
}

fn set_p50(context: &Context, server: &Server) -> Result<f64, Failure> {
    let histograms = generator::run(server.port(), &ONE, seconds(context, 3))?;
    Ok(us(&histograms[0], 0.5))
}

/// The generator's command line.
fn command(loads: &[Group]) -> String {
    let texts: Vec<String> = loads.iter().map(Group::to_string).collect();
    format!("evenkeel-bench load --port PORT --fill {KEYS} {}", texts.join(" "))
}

fn probe_command() -> String {
    format!("evenkeel-bench sync-probe --bytes {RAW_BYTES} --folder DIR")
}

/// A server that has all keys.
fn started(context: &Context, recipe: &Recipe) -> Result<Server, Failure> {
    let server = Server::start(recipe, &context.folder)?;
    server.fill(0..KEYS)?;
    Ok(server)
}

fn seconds(context: &Context, full: u64) -> Duration {
    if context.quick { Duration::from_secs(1) } else { Duration::from_secs(full) }
}

fn us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e3
}

const KEYS: u64 = 200_000;
/// A durable SET of 16 + 100 bytes as the journal writes it, with the header of its batch, in whole 8 bytes.
const RAW_BYTES: usize = 232;
const MIX: [Group; 2] = [
    Group { is_set: false, connections: 45, keys: 0..100_000, per_second: None },
    Group { is_set: true, connections: 5, keys: 100_000..200_000, per_second: Some(5_000) },
];
const HOT: [Group; 2] = [
    Group { is_set: false, connections: 1, keys: 0..1, per_second: None },
    Group { is_set: true, connections: 1, keys: 0..1, per_second: None },
];
const ONE: [Group; 1] = [Group { is_set: true, connections: 1, keys: 0..100_000, per_second: None }];
