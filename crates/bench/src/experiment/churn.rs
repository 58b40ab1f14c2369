//! Churn: keys of very different sizes come and go on a server whose `memory.limit` is a fraction of them, and its resident memory is watched.
//!
//! ```text
//!  clients, a thread each    SET 60 %, GET 25 %, DEL 10 %, EXPIRE 5 % of random keys, in pipelines; values 16 B to 64 KiB (log-uniform)
//!  this thread               each second: VmRSS of the server, and used_memory as the server tells it; at the end VmHWM
//! ```
//!
//! Allocators keep the pages of what was freed while something else lies in them. What that costs shows only after a while, and only where sizes
//! mix. The verdict is about VmHWM, the most that was ever resident: a sample can miss a peak.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clock::{Clock as _, Nanos, SystemClock};
use resp::Value as Reply;
use serde_json::{Map, Value, json};

use super::arguments::{Shown, some_time};
use super::measure::Measured;
use super::progress::Progress;
use super::report::{Line, Report};
use crate::Failure;
use crate::client::{Client, key, value};
use crate::drive::{Random, Recorder};
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
    /// Clients, a thread and a connection each
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
        let begins = SystemClock.now();
        let ends = begins + self.duration;
        let (watched, worked) = std::thread::scope(|scope| {
            let port = server.port();
            let worker = |seed| move || Worker::new(self, seed).work(port, ends);
            let workers: Vec<_> =
                (0..self.clients).map(|number| scope.spawn(worker(u64::from(number)))).collect();
            let watched = self.watch(&server, begins, ends);
            let worked = workers.into_iter().map(|worker| worker.join().expect("it does not panic"));
            (watched, worked.collect::<Vec<_>>())
        });
        Ok(vec![self.report(&recipe, &watched?, worked)])
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

    fn report(&self, recipe: &Recipe, watched: &Watched, worked: Vec<Worker>) -> Report {
        let (mut all, mut written_bytes) = (Recorder::default(), 0);
        for one in worked {
            all.add(&one.recorder);
            written_bytes += one.written_bytes;
        }
        let run = Measured::by(all, self.duration, 0);
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
        Map::from_iter([
            ("engine".to_owned(), json!(self.engine)),
            ("memory_limit_mib".to_owned(), json!(self.memory_limit_mib)),
            ("duration_ms".to_owned(), json!(self.duration.as_millis() as u64)),
            ("clients".to_owned(), json!(self.clients)),
            ("pipeline".to_owned(), json!(self.pipeline)),
            ("loops".to_owned(), json!(self.loops)),
        ])
    }

    /// Keys whose values would take [`DATA_PER_LIMIT`] times the limit.
    fn key_count(&self) -> u64 {
        (self.memory_limit_mib << 20) * DATA_PER_LIMIT / VALUE_BYTES_MEAN
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
        Map::from_iter([
            ("limit_bytes".to_owned(), json!(self.limit_bytes)),
            ("rss_start_bytes".to_owned(), json!(self.start_bytes)),
            ("rss_max_bytes".to_owned(), json!(self.most_bytes)),
            ("rss_sampled_max_bytes".to_owned(), json!(self.most(|sample| sample.rss_bytes))),
            ("used_max_bytes".to_owned(), json!(self.most(|sample| sample.used_bytes))),
            ("ratio".to_owned(), json!(thousandth(self.ratio()))),
            ("ratio_without_start".to_owned(), json!(thousandth(self.ratio_without_start()))),
            ("ratio_max".to_owned(), json!(RATIO_MAX)),
            ("within".to_owned(), json!(self.is_within())),
            ("samples".to_owned(), self.samples.iter().map(sample).collect()),
        ])
    }
}

/// One client.
struct Worker {
    random: Random,
    key_count: u64,
    depth: u16,
    /// Values are the beginnings of this.
    text: Vec<u8>,
    requests: Vec<u8>,
    recorder: Recorder,
    written_bytes: u64,
}

impl Worker {
    fn new(of: &Churn, number: u64) -> Self {
        Self {
            random: Random::new(number + 1),
            key_count: of.key_count(),
            depth: of.pipeline,
            text: value(number, VALUE_BYTES_MAX as usize),
            requests: Vec::new(),
            recorder: Recorder::default(),
            written_bytes: 0,
        }
    }

    /// Sends pipelines until `ends`; what fails ends it, and is counted.
    fn work(mut self, port: u16, ends: Nanos) -> Self {
        let done = Client::connect(port).and_then(|mut client| {
            while SystemClock.now() < ends {
                self.pipeline(&mut client)?;
            }
            Ok(())
        });
        if let Err(failure) = done {
            self.recorder.tally.failures.error_reply(failure.as_bytes());
        }
        self
    }

    fn pipeline(&mut self, client: &mut Client) -> Result<(), Failure> {
        self.requests.clear();
        for _ in 0..self.depth {
            self.encode();
        }
        let began = SystemClock.now();
        client.send(&self.requests)?;
        for _ in 0..self.depth {
            match client.receive()? {
                Reply::Error(text) => self.recorder.tally.failures.error_reply(&text),
                _ => self.recorder.tally.answered += 1,
            }
        }
        let nanos = SystemClock.now().since(began).as_nanos();
        self.recorder.histogram.saturating_record(u64::try_from(nanos).unwrap_or(u64::MAX));
        Ok(())
    }

    /// Appends a request.
    fn encode(&mut self) {
        let key = key(self.random.below(self.key_count));
        let out = &mut self.requests;
        match self.random.below(100) {
            0..60 => {
                let bytes = value_bytes(self.random.unit());
                self.written_bytes += bytes as u64;
                resp::encode_command(out, &[b"SET".as_slice(), &key, &self.text[..bytes]]);
            }
            60..85 => resp::encode_command(out, &[b"GET".as_slice(), &key]),
            85..95 => resp::encode_command(out, &[b"DEL".as_slice(), &key]),
            _ => {
                let seconds = (1 + self.random.below(EXPIRY_S_MAX)).to_string();
                resp::encode_command(out, &[b"EXPIRE".as_slice(), &key, seconds.as_bytes()]);
            }
        }
    }
}

/// The size of a value for a `share` from 0 to 1: each doubling is as likely as any other.
fn value_bytes(share: f64) -> usize {
    (VALUE_BYTES_MIN * (VALUE_BYTES_MAX / VALUE_BYTES_MIN).powf(share)).round() as usize
}

fn thousandth(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

/// What may be resident, of the limit.
const RATIO_MAX: f64 = 1.10;
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);
const VALUE_BYTES_MIN: f64 = 16.0;
const VALUE_BYTES_MAX: f64 = 65_536.0;
/// The mean of what `value_bytes` returns: (most - least) / ln(most / least).
const VALUE_BYTES_MEAN: u64 = 7_877;
/// Values of all keys together, of the limit: most are not in memory.
const DATA_PER_LIMIT: u64 = 4;
const EXPIRY_S_MAX: u64 = 60;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_log_uniform_and_their_mean_is_as_stated() {
        assert_eq!((value_bytes(0.0), value_bytes(0.5), value_bytes(1.0)), (16, 1_024, 65_536));
        let mut random = Random::new(1);
        let sum: usize = (0..100_000).map(|_| value_bytes(random.unit())).sum();
        assert!((sum as u64 / 100_000).abs_diff(VALUE_BYTES_MEAN) < 200, "{sum}");
    }

    #[test]
    fn verdict_is_about_all_that_is_resident() {
        let watched =
            |most_bytes| Watched { limit_bytes: 1_000, start_bytes: 100, most_bytes, samples: Vec::new() };
        assert!(watched(1_100).is_within() && !watched(1_101).is_within());
        assert_eq!(watched(1_101).fields()["ratio_without_start"], 1.001);
        assert!(watched(1_101).text(0).contains("1.101 of memory.limit: BEYOND 1.10"));
    }
}
