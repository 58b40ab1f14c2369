//! A capture, played against a server: the same requests in the same order on as many connections, at the times at which they came
//! or as fast as the server answers.
//!
//! Recorded latencies are the server's (from arrival until the reply might leave), those of the replay the client's: the network
//! and its own queue lie between them. Hits are those of GET, GETEX and MGET on both sides.

use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use serde_json::{Value, json};

use super::arguments::Common;
use super::host::Host;
use super::measure::{Measured, object, rounded};
use super::progress::Progress;
use super::report::{Line, Report};
use crate::Failure;
use crate::drive::{Fleet, Playing, Protocol, Recorded, Script, Sparse, Speed, per_second};

#[derive(Debug, Args)]
pub struct Replay {
    #[command(flatten)]
    pub(super) common: Common,
    /// File that `evenkeel capture` wrote
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// 1: as recorded; N: N times as fast; max: each connection sends its next requests as soon as the ones before are answered
    #[arg(long, value_name = "1|N|max", default_value = "1", value_parser = speed)]
    speed: Speed,
}

impl Replay {
    /// Plays the capture on all servers, one after the other.
    ///
    /// # Errors
    /// The file is no capture; a server does not start, or cannot be reached.
    pub(super) fn run(&self) -> Result<Vec<Report>, Failure> {
        let Common { processes, pipeline, rate, .. } = self.common;
        if processes != 1 || pipeline != 1 || rate.is_some() {
            return Err(
                "--processes, --pipeline and --rate are not for a replay: the capture says what is sent"
                    .to_owned(),
            );
        }
        let file = std::fs::read(&self.file);
        let file = file.map_err(|error| format!("cannot read {}: {error}", self.file.display()))?;
        let script = Script::of(file).map_err(|error| format!("{}: {error}", self.file.display()))?;
        if let Some(lacks) = &script.lacks {
            eprintln!("evenkeel: {}: {lacks}; what is before it is played", self.file.display());
        }
        let script = Arc::new(script);
        let hosts = Host::all(&self.common)?;
        let progress = Progress::new(hosts.len());
        let mut reports = Vec::new();
        for host in &hosts {
            let running = host.fresh(script.connections())?;
            if running.target.protocol != Protocol::Resp {
                return Err(format!("{}: a replay is for servers that speak the Redis protocol", host.label));
            }
            let mut fleet = Fleet::open(&running.target, &self.common.fleet(script.connections()))?;
            let playing = Playing {
                speed: self.speed,
                request_timeout: self.common.request_timeout,
                interval: self.common.interval,
            };
            let what = format!("{}: replay", host.label);
            let outcome = fleet.play(&script, &playing, &mut |rows| progress.rows(&what, rows));
            let mut measured = Measured::of(&outcome, 0);
            measured.add_failures(&fleet.failures);
            reports.push(self.report(host, &script, measured));
            progress.step();
        }
        Ok(reports)
    }

    fn report(&self, host: &Host, script: &Script, measured: Measured) -> Report {
        let (found, missing) = (measured.tally.found, measured.tally.missing);
        let recorded = &script.recorded;
        let skipped: u64 = script.skipped.values().sum();
        let fields = json!({
            "requests": recorded.requests,
            "connections": script.connections(),
            "hits": found,
            "misses": missing,
            "hit_ratio": ratio(found, missing),
            "errors_as_recorded": measured.tally.errors_as_recorded,
            "skipped": script.skipped,
            "recorded": recorded_json(recorded),
            "lacks": script.lacks,
        });
        let mut settings = self.common.settings();
        settings.insert("speed".to_owned(), json!(spelled(self.speed)));
        settings.insert("file".to_owned(), json!(self.file.display().to_string()));
        let line = Line {
            what: format!("replay, speed {}", spelled(self.speed)),
            command: "REPLAY".to_owned(),
            note: note(recorded, found, missing, skipped),
            runs: vec![measured],
            ..Line::default()
        };
        Report {
            experiment: "replay",
            server: host.label.clone(),
            command: host.command(),
            settings,
            fields: object(fields),
            lines: vec![line],
        }
    }
}

/// The recorded figures, and what was left out, in words.
fn note(recorded: &Recorded, found: u64, missing: u64, skipped: u64) -> String {
    let us = |quantile: f64| recorded.latencies.value_at_quantile(quantile) as f64 / 1e3;
    let percent =
        |ratio: Option<f64>| ratio.map_or("none read".to_owned(), |ratio| format!("{:.1} %", ratio * 100.0));
    format!(
        "recorded: {:.0}/s, in the server p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us; hits {} (recorded {}); \
         {skipped} requests skipped, {} dropped by the capture",
        per_second(recorded.requests, recorded.length),
        us(0.5),
        us(0.99),
        us(0.999),
        percent(ratio(found, missing)),
        percent(ratio(recorded.hits, recorded.misses)),
        recorded.dropped,
    )
}

fn recorded_json(recorded: &Recorded) -> Value {
    let latencies = Measured { latencies: Sparse::of(&recorded.latencies), ..Measured::default() };
    json!({
        "operations_per_second": rounded(per_second(recorded.requests, recorded.length)),
        "latency_us": latencies.latency_json(),
        "hits": recorded.hits,
        "misses": recorded.misses,
        "hit_ratio": ratio(recorded.hits, recorded.misses),
        "errors": recorded.errors,
        "latencies_unknown": recorded.unknown,
        "dropped": recorded.dropped,
        "seconds": recorded.length.as_secs_f64(),
    })
}

/// Hits of all; `None` of none.
fn ratio(hits: u64, misses: u64) -> Option<f64> {
    (hits + misses > 0).then(|| (hits as f64 / (hits + misses) as f64 * 1e4).round() / 1e4)
}

fn speed(text: &str) -> Result<Speed, String> {
    let number = text.trim_end_matches('x');
    match number.parse::<f64>() {
        _ if text == "max" => Ok(Speed::Max),
        Ok(times) if times > 0.0 && times.is_finite() => Ok(Speed::Times(times)),
        _ => Err("write 1, another number above 0, or max".to_owned()),
    }
}

fn spelled(speed: Speed) -> String {
    match speed {
        Speed::Max => "max".to_owned(),
        Speed::Times(times) => format!("{times}"),
    }
}
