//! Arguments that all experiments, or all on servers, have; how durations and lists are spelled.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::measure::object;

use crate::drive::{FleetOptions, Target};

/// Which server, which load, and how the result is shown: what experiments on servers have.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Running server: redis://[user:password@]host[:port][/database], or memcached://host[:port]; without it, servers are started for the test
    #[arg(long, value_name = "URL", conflicts_with_all = ["server", "against", "engine", "connector", "loops"])]
    pub(super) url: Option<Target>,
    /// Server to start anew for each test: evenkeel, redis, valkey, memcached, hazelcast (map-test only) or limit, with flags
    /// after `=`
    #[arg(long, value_name = "NAME[=FLAGS]", default_value = "evenkeel")]
    pub(super) server: String,
    /// Further servers, whose runs alternate with those of --server
    #[arg(long, value_name = "NAME[=FLAGS],...", value_delimiter = ',')]
    pub(super) against: Vec<String>,
    /// Engine of an evenkeel that is started: log, memory or noop
    #[arg(long, value_name = "ENGINE", value_parser = ["log", "memory", "noop"])]
    pub(super) engine: Option<String>,
    /// Connector of an evenkeel that is started: epoll, uring or threads
    #[arg(long, value_name = "CONNECTOR")]
    pub(super) connector: Option<String>,
    /// Loops of an evenkeel (or limit, or threads of a memcached) that is started
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    pub(super) loops: Option<u16>,
    /// Where folders of servers are created and removed
    #[arg(long, value_name = "DIR")]
    pub(super) folder: Option<PathBuf>,
    /// Processes that generate the load
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) processes: u16,
    /// Event loops of each of these processes
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=64))]
    pub(super) load_loops: u16,
    /// Requests in flight on each connection
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    pub(super) pipeline: u16,
    /// Requests a second over all connections, at times fixed in advance (open loop); without it each connection waits for its reply (closed loop)
    #[arg(long, value_name = "N", value_parser = positive)]
    pub(super) rate: Option<f64>,
    /// Longest time for opening a connection
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(super) connect_timeout: Duration,
    /// Longest time for a reply; 0 for no limit
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = duration)]
    pub(super) request_timeout: Duration,
    /// Step of the time series
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub(super) interval: Duration,
    #[command(flatten)]
    pub(super) shown: Shown,
}

/// How the result is shown.
#[derive(Debug, Args)]
pub(super) struct Shown {
    /// Print one JSON object as the last line
    #[arg(long)]
    pub(super) json: bool,
    /// Print one line for each operation, as redis-benchmark does
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Write a report with plots, in one file
    #[arg(long, value_name = "FILE")]
    pub(super) html: Option<PathBuf>,
}

impl Common {
    /// How `connections` are opened.
    pub(super) fn fleet(&self, connections: usize) -> FleetOptions {
        FleetOptions {
            connections,
            loops: usize::from(self.load_loops),
            connect_timeout: self.connect_timeout,
            from: Vec::new(),
        }
    }

    /// Whether `server` is among those to be started.
    pub(super) fn names(&self, server: &str) -> bool {
        let mut names = std::iter::once(&self.server).chain(&self.against);
        names.any(|name| name.split('=').next() == Some(server))
    }

    /// The part of a report's settings that all experiments have.
    pub(super) fn settings(&self) -> serde_json::Map<String, Value> {
        object(json!({
            "processes": self.processes,
            "load_loops": self.load_loops,
            "pipeline": self.pipeline,
            "rate": self.rate,
            "connect_timeout_ms": self.connect_timeout.as_millis() as u64,
            "request_timeout_ms": self.request_timeout.as_millis() as u64,
            "engine": self.engine,
            "connector": self.connector,
            "loops": self.loops,
        }))
    }
}

/// `1s`, `250ms`, `5m`, `0`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no duration: write 1s, 250ms, 5m or 0");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.').len();
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        "h" => 3_600.0,
        "" if number == 0.0 => 0.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(number * seconds).map_err(|_| wrong())
}

/// A duration that something can last.
pub(super) fn some_time(text: &str) -> Result<Duration, String> {
    duration(text).and_then(|duration| {
        if duration.is_zero() { Err("nothing can be measured in no time".to_owned()) } else { Ok(duration) }
    })
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < INTERVAL_LEAST { Err("the least is 10ms".to_owned()) } else { Ok(interval) }
}

fn positive(text: &str) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|error| format!("{error}"))?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err("must be more than 0".to_owned()) }
}

/// Numbers from 1 on: `100`, `100,1000`, or `64..65536`, which doubles.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Numbers(pub(super) Vec<usize>);

impl std::str::FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is neither a number from 1, nor 100,1000, nor 64..65536");
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(number) if (1..=NUMBER_MOST).contains(&number) => Ok(number),
            _ => Err(wrong()),
        };
        let Some((least, most)) = text.split_once("..") else {
            return text.split(',').map(number).collect::<Result<_, _>>().map(Self);
        };
        let most = number(most)?;
        let doubled: Vec<usize> =
            std::iter::successors(Some(number(least)?), |n| Some(n * 2)).take_while(|n| *n <= most).collect();
        if doubled.is_empty() { Err(wrong()) } else { Ok(Self(doubled)) }
    }
}

const INTERVAL_LEAST: Duration = Duration::from_millis(10);
/// More bytes than a value has, more clients than a machine.
const NUMBER_MOST: usize = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        for (text, ms) in [("1s", 1_000), ("250ms", 250), ("0", 0), ("1.5s", 1_500), ("5m", 300_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "5", "s", "-1s", "1 s", "1e400s", "..s"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn numbers_are_one_several_or_doubling() {
        assert_eq!("7".parse(), Ok(Numbers(vec![7])));
        assert_eq!("100,1000".parse(), Ok(Numbers(vec![100, 1_000])));
        assert_eq!("64..500".parse(), Ok(Numbers(vec![64, 128, 256])));
        for text in ["", "0", "a", "9..3", "1,,2", "-5"] {
            assert!(text.parse::<Numbers>().is_err(), "{text}");
        }
    }
}
