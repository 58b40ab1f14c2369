//! Disk: bytes written for each SET, room used after overwriting, time to start from what is there.

use std::time::Duration;

use resp::Value;

use crate::Failure;
use crate::figure::{Figure, Series, Target};
use crate::load::redis_benchmark::Shape;
use crate::process::{disk_bytes, settled, written_bytes};
use crate::servers::{Recipe, Server};

use super::context::Context;

/// Bytes written for each SET, while the folder grows and when segments come round again.
pub(super) fn written(context: &Context) -> Result<Vec<Figure>, Failure> {
    let ours = Recipe::evenkeel("log", "always", context.loops);
    let redis = Recipe::redis("always");
    let mut figures = Vec::new();
    for clients in [1, 50, 400] {
        let requests = context.amount(if clients == 1 { 30_000 } else { 300_000 });
        let shape = Shape { clients, pipeline: 1, requests, keys: 100_000 };
        let fresh = |recipe: &Recipe| per_set(&Server::start(recipe, &context.folder)?, shape);
        let few = Context { runs: context.runs.min(3), ..context.clone() };
        let (growing, theirs) = few.alternate(|| fresh(&ours), || fresh(&redis))?;
        let server = Server::start(&ours, &context.folder)?;
        for _ in 0..context.amount(30) {
            server.fill(0..100_000)?;
        }
        let steady = (0..few.runs).map(|_| per_set(&server, shape)).collect::<Result<Vec<_>, _>>()?;
        let commands =
            [ours.command(), redis.command(), shape.command(), "grep ^write_bytes /proc/PID/io".to_owned()];
        let id = |what: &str| format!("written/{what}-{clients}");
        let title = |what: &str| format!("bytes written for each SET, {clients} clients, {what}");
        let (a, b) = (Series::new(&ours.label, growing), Series::new(&redis.label, theirs));
        let steady = Series::new(&ours.label, steady);
        figures.push(
            Figure::new(&id("growing"), &title("growing, evenkeel / Redis"), None, "bytes", a, Some(b))
                .by(commands.clone()),
        );
        figures.push(Figure::new(&id("steady"), &title("steady"), None, "bytes", steady, None).by(commands));
    }
    Ok(figures)
}

fn per_set(server: &Server, shape: Shape) -> Result<f64, Failure> {
    let before = written_bytes(server.id())?;
    shape.run(server)?;
    Ok((written_bytes(server.id())? - before) as f64 / shape.requests as f64)
}

/// Disk used by keys that were overwritten ten times, beside the bytes of keys and values.
pub(super) fn overwritten(context: &Context) -> Result<Vec<Figure>, Failure> {
    let recipe = Recipe::evenkeel("log", "always", context.loops);
    let keys = context.amount(1_000_000);
    let live = (keys * LIVE_BYTES_PER_KEY) as f64;
    let (mut at_end, mut most) = (Vec::new(), Vec::new());
    for _ in 0..context.runs.min(3) {
        let server = Server::start(&recipe, &context.folder)?;
        let mut greatest = 0;
        for _ in 0..11 {
            server.fill(0..keys)?;
            greatest = greatest.max(disk_bytes(server.folder()));
        }
        at_end.push(settled_disk(&server)? as f64 / live);
        most.push(greatest as f64 / live);
        expect_keys(&server, keys)?;
    }
    let commands = [
        recipe.command(),
        format!("evenkeel-bench load --port PORT --fill {keys}   # 11 times"),
        "du -s DIR".to_owned(),
    ];
    let title = format!("{keys} keys overwritten 10 times: disk used / bytes of live keys and values");
    let (a, b) = (Series::new(&recipe.label, at_end), Series::new(&recipe.label, most));
    Ok(vec![
        Figure::new("disk/overwritten", &title, Some(Target::AtMost(2.5)), "times", a, None)
            .by(commands.clone()),
        Figure::new(
            "disk/overwritten-most",
            &format!("{title}, the most seen meanwhile"),
            None,
            "times",
            b,
            None,
        )
        .by(commands),
    ])
}

/// Disk used once it stands still for two seconds.
fn settled_disk(server: &Server) -> Result<u64, Failure> {
    let (every, patience) = (Duration::from_secs(2), Duration::from_secs(60));
    settled(every, patience, |last, now| last == now, || Ok(disk_bytes(server.folder())))
}

/// Time from the start of the process to its first answer, with 1 M keys, the files out of the page cache.
pub(super) fn start(context: &Context) -> Result<Vec<Figure>, Failure> {
    let recipe = Recipe::evenkeel("log", "always", context.loops);
    let keys = context.amount(1_000_000);
    let mut server = Server::start(&recipe, &context.folder)?;
    server.fill(0..keys)?;
    let (mut clean, mut killed) = (Vec::new(), Vec::new());
    for _ in 0..context.runs {
        server = server.restart(true)?;
        clean.push(server.ready_after.as_secs_f64());
        expect_keys(&server, keys)?;
        server.fill(0..context.amount(TAIL_RECORDS))?;
        server = server.restart(false)?;
        killed.push(server.ready_after.as_secs_f64());
        expect_keys(&server, keys)?;
    }
    let figure = |id, title: &str, most, values| {
        let title = format!("start with {keys} keys {title}");
        let commands = [recipe.command(), format!("evenkeel-bench load --port PORT --fill {keys}")];
        Figure::new(id, &title, Some(Target::AtMost(most)), "s", Series::new(&recipe.label, values), None)
            .by(commands)
    };
    let note = format!(
        "{TAIL_RECORDS} SETs after the last clean stop: nine tenths of a segment of 64 MiB, or several smaller ones."
    );
    Ok(vec![
        figure("start/clean", "after a clean stop", 0.3, clean),
        figure("start/killed", "after kill -9 with a full tail segment", 1.0, killed).note(&note),
    ])
}

fn expect_keys(server: &Server, keys: u64) -> Result<(), Failure> {
    match server.client()?.call(&["DBSIZE"])? {
        Value::Integer(size) if size == keys as i64 => Ok(()),
        other => Err(format!("{keys} keys were stored, DBSIZE says {other:?}")),
    }
}

const LIVE_BYTES_PER_KEY: u64 = 116;
const TAIL_RECORDS: u64 = 285_000;
