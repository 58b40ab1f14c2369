//! Memory: of an idle connection, of a key.

use std::time::Duration;

use crate::Failure;
use crate::figure::{Figure, Series, Target};
use crate::load::idle;
use crate::process::{rss_bytes, settled};
use crate::servers::{Recipe, Server};

use super::context::Context;

/// User-space memory of an idle connection: the slope of RSS from 1,000 to 10,000 of them.
pub(super) fn idle(context: &Context) -> Result<Vec<Figure>, Failure> {
    let ours = Recipe::evenkeel("log", "always", context.loops).with(&["--connections-max", "20000"]);
    let redis = Recipe::redis("off").with(&["--maxclients", "20000"]);
    let slope = |recipe: &Recipe| -> Result<f64, Failure> {
        let server = Server::start(recipe, &context.folder)?;
        let few = idle::open(server.port(), 1_000)?;
        let before = settled_rss(&server)?;
        let many = idle::open(server.port(), 9_000)?;
        let after = settled_rss(&server)?;
        drop((few, many));
        Ok(after.saturating_sub(before) as f64 / 9_000.0)
    };
    let (a, b) = context.alternate(|| slope(&ours), || slope(&redis))?;
    let commands =
        [ours.command(), redis.command(), "evenkeel-bench idle --port PORT --count 10000".to_owned()];
    let title = "memory of an idle connection, slope of RSS from 1,000 to 10,000";
    let most = Some(Target::AtMost(1_024.0));
    Ok(vec![
        Figure::new("idle/evenkeel", title, most, "bytes", Series::new(&ours.label, a), None)
            .by(commands.clone()),
        Figure::new(
            "idle/redis",
            &format!("{title}, Redis"),
            None,
            "bytes",
            Series::new(&redis.label, b),
            None,
        )
        .by(commands),
    ])
}

/// RSS of each of 1 M keys of 16 bytes with values of 100 bytes, all in memory.
pub(super) fn keys(context: &Context) -> Result<Vec<Figure>, Failure> {
    let ours = Recipe::evenkeel("log", "always", context.loops);
    let redis = Recipe::redis("off");
    let count = context.amount(1_000_000);
    let per_key = |recipe: &Recipe| -> Result<f64, Failure> {
        let server = Server::start(recipe, &context.folder)?;
        server.fill(0..1_000)?; // buffers that any work needs are there before the count starts
        let before = settled_rss(&server)?;
        server.fill(1_000..1_000 + count)?;
        Ok(settled_rss(&server)?.saturating_sub(before) as f64 / count as f64)
    };
    let (a, b) = context.alternate(|| per_key(&ours), || per_key(&redis))?;
    let title =
        format!("RSS of each of {count} keys of 16 bytes with 100-byte values, all hot, evenkeel / Redis");
    let (a, b) = (Series::new(&ours.label, a), Series::new(&redis.label, b));
    let fill = format!("evenkeel-bench load --port PORT --fill {count}");
    let figure = Figure::new("keys/rss", &title, Some(Target::AtMost(0.8)), "bytes", a, Some(b));
    Ok(vec![figure.by([ours.command(), redis.command(), fill, "grep VmRSS /proc/PID/status".to_owned()])])
}

/// RSS once it stands still: no change of more than 64 KiB in half a second.
fn settled_rss(server: &Server) -> Result<u64, Failure> {
    let (every, patience) = (Duration::from_millis(500), Duration::from_secs(10));
    settled(every, patience, |last: u64, now| now.abs_diff(last) <= 64 << 10, || rss_bytes(server.id()))
}
