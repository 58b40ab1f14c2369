//! Churn: keys of very different sizes come and go on a server whose `memory.limit` is a fraction of them, and its resident memory is watched.
//!
//! ```text
//!  clients (crate::drive)    SET 60 %, GET 25 %, DEL 10 %, EXPIRE 5 % of random keys, in pipelines; values 16 B to 64 KiB (log-uniform)
//!  this thread               each second: VmRSS of the server, and used_memory as the server tells it; at the end VmHWM
//! ```
//!
//! Allocators keep the pages of what was freed while something else lies in them. What that costs shows only after a while, and only where sizes
//! mix. The verdict is about VmHWM, the most that was ever resident: a sample can miss a peak.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clock::{Clock as _, Nanos, SystemClock};
use serde_json::{Map, Value, json};

use super::arguments::{Shown, some_time};
use super::measure::{Measured, object, rounded_3};
use super::progress::Progress;
use super::report::{Line, Report};
use crate::Failure;
use crate::drive::{
    Action, CHURNED_BYTES_MAX, CHURNED_BYTES_MEAN, Fleet, FleetOptions, Group, KeyForm, Keys, Limit,
    PATIENCE, Phase, Pick, Target, Work,
};
use crate::process::{rss_bytes, rss_bytes_max};
use crate::servers::{Folder, Recipe, Server};

#[derive(Debug, Args)]
pub struct Churn {
    #[command(flatten)]
    pub(super) shown: Shown,
    /// Engine of the server: log (durability 1s) or memory (allkeys-lru)
    #[arg(long, value_name = "ENGINE", default_value = "log", value_parser = ["log", "memory"])]
    engine: String,
    /// memory.limit of the server, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 256, value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    memory_limit_mib: u64,
    /// Duration
    #[arg(long, value_name = "TIME", default_value = "20m", value_parser = some_time)]
    duration: Duration,
    /// Clients, a connection each
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    clients: u16,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    pipeline: u16,
    /// Loops of the server; 0: as it chooses
    #[arg(long, value_name = "N", default_value_t = 0)]
    loops: usize,
    /// Where the server's folder is created and removed
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
}

/// What was looked at in one second.
#[derive(Clone, Copy, Debug)]
struct Sample {
    at: Duration,
    rss_bytes: u64,
    /// `used_memory` of INFO.
    used_bytes: u64,
}

/// What the server took.
#[derive(Debug)]
struct Watched {
    limit_bytes: u64,
    /// Before the first request.
    start_bytes: u64,
    /// VmHWM at the end.
    most_bytes: u64,
    samples: Vec<Sample>,
}

impl Churn {
    /// Starts a server, and churns on it.
    ///
    /// # Errors
    /// The server does not start, or cannot be watched.
    pub(super) fn run(&self) -> Result<Vec<Report>, Failure> {
        let parent = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let folder = Folder::fresh(parent.join(format!("evenkeel-bench-{}", std::process::id())))?;
        let recipe = self.recipe();
        let server = Server::start(&recipe, folder.path())?;
        let connections = usize::from(self.clients);
        let mut fleet = Fleet::open(&Target::local(server.port()), &FleetOptions::new(connections))?;
        let begins = SystemClock.now();
        let (watched, outcome) = std::thread::scope(|scope| {
            let driven = scope.spawn(|| fleet.run(&self.phase(), &mut |_| {}));
            let watched = self.watch(&server, begins, begins + self.duration);
            (watched, driven.join().expect("it does not panic"))
        });
        let mut run = Measured::of(&outcome?, 0);
        run.add_failures(&fleet.failures);
        Ok(vec![self.report(&recipe, &watched?, run)])
    }

    fn phase(&self) -> Phase {
        let (pick, form) = (Pick::Random, KeyForm::Benchmark);
        let keys = Keys { first: 0, count: self.key_count(), pick, form };
        let group = Group {
            work: Work::new(Action::Churn, keys, CHURNED_BYTES_MAX),
            connections: usize::from(self.clients),
            depth: usize::from(self.pipeline),
            limit: Limit::For(self.duration),
            per_second: None,
        };
        Phase { groups: vec![group], request_timeout: PATIENCE, interval: SAMPLE_INTERVAL }
    }

    fn recipe(&self) -> Recipe {
        let limit = format!("{}MiB", self.memory_limit_mib);
        let recipe = Recipe::evenkeel(&self.engine, "1s", self.loops).with(&["--memory-limit", &limit]);
        let recipe = recipe.labelled(&format!("evenkeel {}", self.engine));
        // Engine log has the disk for what memory does not hold: no key needs to go.
        if self.engine == "memory" { recipe.with(&["--memory-policy", "allkeys-lru"]) } else { recipe }
    }

    /// Looks at the server each second until `ends`.
    fn watch(&self, server: &Server, begins: Nanos, ends: Nanos) -> Result<Watched, Failure> {
        let start_bytes = rss_bytes(server.id())?;
        let mut client = server.client()?;
        let progress = Progress::new(self.duration.as_secs() as usize);
        let mut samples = Vec::new();
        loop {
            let now = SystemClock.now();
            if now >= ends {
                break;
            }
            std::thread::sleep(SAMPLE_INTERVAL.min(ends.since(now)));
            let (rss_bytes, used_bytes) = (rss_bytes(server.id())?, client.info("memory", "used_memory")?);
            samples.push(Sample { at: SystemClock.now().since(begins), rss_bytes, used_bytes });
            progress.say(format!("{} MiB resident, {} MiB used", rss_bytes >> 20, used_bytes >> 20));
            progress.step();
        }
        let limit_bytes = self.memory_limit_mib << 20;
        // The kernel notes the most a little late.
        let sampled_bytes = samples.iter().map(|sample| sample.rss_bytes).max().unwrap_or(0);
        let most_bytes = rss_bytes_max(server.id())?.max(sampled_bytes);
        Ok(Watched { limit_bytes, start_bytes, most_bytes, samples })
    }

    fn report(&self, recipe: &Recipe, watched: &Watched, run: Measured) -> Report {
        let written_bytes = run.tally.written_bytes;
        let line = Line {
            what: format!("churn, {} clients", self.clients),
            command: "CHURN".to_owned(),
            runs: vec![run],
            note: watched.text(written_bytes),
            ..Line::default()
        };
        let mut fields = watched.fields();
        fields.insert("written_bytes".to_owned(), json!(written_bytes));
        Report {
            experiment: "churn",
            server: recipe.label.clone(),
            command: Some(recipe.command()),
            settings: self.settings(),
            fields,
            lines: vec![line],
        }
    }

    fn settings(&self) -> Map<String, Value> {
        object(json!({
            "engine": self.engine,
            "memory_limit_mib": self.memory_limit_mib,
            "duration_ms": self.duration.as_millis() as u64,
            "clients": self.clients,
            "pipeline": self.pipeline,
            "loops": self.loops,
        }))
    }

    /// Keys whose values would take [`DATA_PER_LIMIT`] times the limit.
    fn key_count(&self) -> u64 {
        (self.memory_limit_mib << 20) * DATA_PER_LIMIT / CHURNED_BYTES_MEAN
    }
}

impl Watched {
    /// The most that was resident, of the limit.
    fn ratio(&self) -> f64 {
        self.most_bytes as f64 / self.limit_bytes as f64
    }

    /// The same without what was resident before the first request.
    fn ratio_without_start(&self) -> f64 {
        self.most_bytes.saturating_sub(self.start_bytes) as f64 / self.limit_bytes as f64
    }

    fn is_within(&self) -> bool {
        self.ratio() <= RATIO_MAX
    }

    fn most(&self, of: fn(&Sample) -> u64) -> u64 {
        self.samples.iter().map(of).max().unwrap_or(0)
    }

    fn text(&self, written_bytes: u64) -> String {
        let verdict = if self.is_within() { "within" } else { "BEYOND" };
        format!(
            "resident at most {} MiB, {:.3} of memory.limit: {verdict} {RATIO_MAX:.2} ({:.3} without the {} MiB at the start); used_memory at most {} MiB; {} MiB were written",
            self.most_bytes >> 20,
            self.ratio(),
            self.ratio_without_start(),
            self.start_bytes >> 20,
            self.most(|sample| sample.used_bytes) >> 20,
            written_bytes >> 20,
        )
    }

    fn fields(&self) -> Map<String, Value> {
        let sample = |sample: &Sample| {
            json!({
                "at_s": sample.at.as_secs_f64().round(),
                "rss_bytes": sample.rss_bytes,
                "used_bytes": sample.used_bytes,
            })
        };
        object(json!({
            "limit_bytes": self.limit_bytes,
            "rss_start_bytes": self.start_bytes,
            "rss_max_bytes": self.most_bytes,
            "rss_sampled_max_bytes": self.most(|sample| sample.rss_bytes),
            "used_max_bytes": self.most(|sample| sample.used_bytes),
            "ratio": rounded_3(self.ratio()),
            "ratio_without_start": rounded_3(self.ratio_without_start()),
            "ratio_max": RATIO_MAX,
            "within": self.is_within(),
            "samples": self.samples.iter().map(sample).collect::<Vec<_>>(),
        }))
    }
}

/// What may be resident, of the limit.
const RATIO_MAX: f64 = 1.10;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
/// Values of all keys together, of the limit: most are not in memory.
const DATA_PER_LIMIT: u64 = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdict_is_about_all_that_is_resident() {
        let watched =
            |most_bytes| Watched { limit_bytes: 1_000, start_bytes: 100, most_bytes, samples: Vec::new() };
        assert!(watched(1_100).is_within() && !watched(1_101).is_within());
        assert_eq!(watched(1_101).fields()["ratio_without_start"], 1.001);
        assert!(watched(1_101).text(0).contains("1.101 of memory.limit: BEYOND 1.10"));
    }
}
