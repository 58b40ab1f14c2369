//! Uneven burdens: what loops and clients get when the connections that work meet on few loops, with the balancer off, with
//! connections pinned by host, and with the balancer on.
//!
//! | start | how it comes about |
//! |---|---|
//! | `even` | connections alternate over the loops, balancer off: what the others are compared with |
//! | `one-loop` | all connections on loop 0, by `CLIENT MOVE` |
//! | `loads` | MGET of 1 to 100 keys, the heavy half of the connections together |
//! | `nodes` | the report's cause: round robin, each pair of nodes dials twice, and every second connection is closed |
//!
//! A loop's load is the bytes that it sent: with MGET of values of one size that is its work, whatever the server counts.
//! The server's own measure, `loopN_busy_permille`, is in the JSON beside it. Pinned by host, connections stay where the server
//! puts them. `--phases` measures something else: see [`phases`].

mod phases;

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use resp::Value as Reply;
use serde_json::{Map, Value, json};

use super::arguments::{Common, some_time};
use super::host::{Host, Running};
use super::measure::{Measured, Spread, object, rounded, rounded_3};
use super::progress::Progress;
use super::report::{Line, LoopSample, Report};
use crate::client::Client;
use crate::drive::{Action, Fleet, FleetOptions, Group, KeyForm, Keys, Limit, Phase, Pick, Work};
use crate::load::generator;
use crate::{Failure, Named};

#[derive(Debug, Args)]
pub struct Skew {
    #[command(flatten)]
    pub(super) common: Common,
    /// Connections
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = clap::value_parser!(u32).range(2..=20_000))]
    clients: u32,
    /// How connections are distributed over the loops at the start; `even` is measured in any case, for comparison
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "one-loop")]
    starts: Vec<Start>,
    /// Show instead how many loops are active while the load grows, while another thread uses a core, and after the load has fallen
    #[arg(long, conflicts_with_all = ["starts", "balance", "no_even"])]
    phases: bool,
    /// Leave out the even start and the comparison with it
    #[arg(long)]
    no_even: bool,
    /// Whether connections are balanced, or assigned by host
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "off,by-host,on")]
    balance: Vec<Balance>,
    /// The balancer's interval when it is on
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = some_time)]
    balance_interval: Duration,
    /// Duration of a run
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = some_time)]
    duration: Duration,
    /// Fresh starts of each kind
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Keys of an MGET
    #[arg(long, value_name = "N", default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    keys: u16,
    /// Bytes of a value
    #[arg(long, value_name = "BYTES", default_value_t = 2_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    value_size: u32,
    /// Number of keys
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    key_count: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Start {
    Even,
    OneLoop,
    Loads,
    Nodes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Balance {
    Off,
    ByHost,
    On,
}

impl Start {
    /// The loop that connection `index` of `count` is put on; `None`: where the server puts it.
    fn place(self, index: usize, count: usize, loops: usize) -> Option<usize> {
        match self {
            Self::Even => Some(index % loops),
            Self::OneLoop => Some(0),
            // The heavy ones come first.
            Self::Loads => Some(index * loops / count),
            Self::Nodes => None,
        }
    }
}

/// One fresh start, measured.
struct Run {
    start: Start,
    balance: Balance,
    measured: Measured,
    samples: Vec<Sample>,
}

/// What the server said of its loops at one moment, sums since its start.
#[derive(Clone, Debug, Default)]
struct Sample {
    at: f64,
    bytes_out: Vec<f64>,
    busy_permille: Vec<f64>,
    connections: Vec<f64>,
    moves: f64,
}

impl Skew {
    /// Runs all starts, each beside an even one if that is wanted.
    ///
    /// # Errors
    /// A server does not start, or knows no loops.
    pub(super) fn run(&self) -> Result<Vec<Report>, Failure> {
        let common = &self.common;
        let is_ours = common.server.split('=').next() == Some("evenkeel") && common.against.is_empty();
        if common.url.is_some() || !is_ours || common.processes > 1 {
            return Err(
                "skew measures evenkeel alone, which it starts, from one process: it takes neither --url, another --server, --against nor --processes".to_owned(),
            );
        }
        if self.duration < self.balance_interval {
            return Err(format!(
                "--duration {:?} is shorter than --balance-interval {:?}: the balancer would do nothing, and no interval could be shown",
                self.duration, self.balance_interval
            ));
        }
        if self.phases {
            return Ok(vec![self.run_phases()?]);
        }
        let mut kinds = if self.no_even { Vec::new() } else { vec![EVEN] };
        for start in &self.starts {
            kinds.extend(self.balance.iter().map(|balance| (*start, *balance)));
        }
        kinds.dedup();
        let progress = Progress::new(kinds.len() * self.runs as usize);
        let mut runs: Vec<Vec<Run>> = kinds.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.runs {
            for ((start, balance), runs) in kinds.iter().zip(&mut runs) {
                runs.push(self.run_once(*start, *balance, &progress)?);
                progress.step();
            }
        }
        Ok(vec![self.report(&runs)?])
    }

    /// What `--server evenkeel=FLAGS` gives.
    fn server_flags(&self) -> Vec<String> {
        let flags = self.common.server.split_once('=').map_or("", |parts| parts.1);
        flags.split_whitespace().map(Into::into).collect()
    }

    fn host(&self, start: Start, balance: Balance) -> Result<Host, Failure> {
        let common = &self.common;
        let mut flags = self.server_flags();
        let mut add = |flag: &str, value: &str| flags.extend([flag.to_owned(), value.to_owned()]);
        if common.engine.is_none() {
            add("--engine", "memory");
        }
        if common.loops.is_none() {
            add("--loops", "2");
        }
        if balance == Balance::ByHost {
            add("--assignment", "by-host");
        } else if start == Start::Nodes {
            add("--assignment", "round-robin");
        }
        match balance {
            Balance::On => add("--balance-interval", &format!("{}ms", self.balance_interval.as_millis())),
            Balance::Off | Balance::ByHost => add("--balance-interval", "0"),
        }
        Host::evenkeel(&flags, "evenkeel".to_owned(), common)
    }

    fn run_once(&self, start: Start, balance: Balance, progress: &Progress) -> Result<Run, Failure> {
        let what = format!("start {}, balance {}", start.name(), balance.name());
        progress.say(what.clone());
        let clients = self.clients as usize;
        let running = self.host(start, balance)?.fresh(2 * clients)?;
        let mut control = running.client()?;
        generator::fill(&running.target, 0..u64::from(self.key_count), self.value_size as usize)?;
        let mut fleet = self.open(start, &running)?;
        let loops = sample(&mut control, Instant::now())?.connections.len();
        if balance != Balance::ByHost {
            place(&mut control, &fleet.local_addresses(), |index| start.place(index, clients, loops))?;
        }
        let began = Instant::now();
        let phase = self.phase(start);
        let (measured, mut samples) =
            sampled(&mut fleet, &phase, &what, progress, || sample(&mut control, began))?;
        // The rest of an interval, at the end, has too few requests to tell shares from.
        if let [.., before, last] = &samples[..]
            && last.at - before.at < phase.interval.as_secs_f64() / 2.0
        {
            samples.pop();
        }
        Ok(Run { start, balance, measured, samples })
    }

    /// Opens the connections, each node from an address of its own.
    fn open(&self, start: Start, running: &Running) -> Result<Fleet, Failure> {
        let clients = self.clients as usize;
        let copies = if start == Start::Nodes { 2 } else { 1 };
        let options = FleetOptions {
            from: (0..clients * copies).map(|index| node_address(index / copies)).collect(),
            ..self.common.fleet(clients * copies)
        };
        let mut fleet = Fleet::open(&running.target, &options)?;
        if start == Start::Nodes {
            fleet.close(|index| index % 2 == 1);
            let mut control = running.client()?;
            wait_until(|| Ok(client_list(&mut control)?.len() <= clients + CONTROLS))?;
        }
        Ok(fleet)
    }

    fn group(&self, keys: usize, connections: usize) -> Group {
        let picked =
            Keys { first: 0, count: u64::from(self.key_count), pick: Pick::Random, form: KeyForm::Benchmark };
        Group {
            work: Work::new(Action::MultiGet(keys), picked, self.value_size as usize),
            connections,
            depth: usize::from(self.common.pipeline),
            limit: Limit::For(self.duration),
            per_second: self.common.rate,
        }
    }

    fn phase(&self, start: Start) -> Phase {
        let clients = self.clients as usize;
        let groups = match start {
            Start::Loads => {
                let part = |index: usize| (index + 1) * clients / LOADS.len() - index * clients / LOADS.len();
                LOADS.iter().enumerate().map(|(index, keys)| self.group(*keys, part(index))).collect()
            }
            _ => vec![self.group(usize::from(self.keys), clients)],
        };
        let interval = self.common.interval.min(self.balance_interval);
        Phase { groups, request_timeout: self.common.request_timeout, interval }
    }

    fn report(&self, runs: &[Vec<Run>]) -> Result<Report, Failure> {
        let is_even = |runs: &&Vec<Run>| runs.first().is_some_and(|run| (run.start, run.balance) == EVEN);
        let even = runs.iter().find(is_even).and_then(|runs| mean_rate(runs));
        let lines = runs.iter().filter_map(|runs| self.line(runs, even)).collect();
        let (start, balance) = (Start::OneLoop, Balance::On);
        let host = self.host(start, balance)?;
        let own = json!({
            "clients": self.clients,
            "starts": self.starts.iter().map(|start| start.name()).collect::<Vec<_>>(),
            "balance": self.balance.iter().map(|balance| balance.name()).collect::<Vec<_>>(),
            "balance_interval_ms": self.balance_interval.as_millis() as u64,
            "duration_ms": self.duration.as_millis() as u64,
            "runs": self.runs,
            "keys": self.keys,
            "value_size": self.value_size,
            "key_count": self.key_count,
        });
        let mut settings = self.common.settings();
        settings.extend(object(own));
        let each = runs.iter().flatten().map(|run| self.run_json(run, even)).collect();
        let mut fields = Map::new();
        fields.insert("runs".to_owned(), Value::Array(each));
        Ok(Report {
            experiment: "skew",
            server: host.label.clone(),
            command: host.command(),
            settings,
            fields,
            lines,
        })
    }

    fn line(&self, runs: &[Run], even: Option<f64>) -> Option<Line> {
        let first = runs.first()?;
        let ratio =
            even.zip(mean_rate(runs)).map(|(even, rate)| format!("{:.3} of the even start; ", rate / even));
        let balance: Vec<f64> = runs.iter().filter_map(|run| self.min_max(run).last().copied()).collect();
        let least = Spread::of(&balance).map_or("-".to_owned(), |spread| format!("{:.2}", spread.min));
        Some(Line {
            what: format!("start {}, balance {}", first.start.name(), first.balance.name()),
            command: "MGET".to_owned(),
            runs: runs.iter().map(|run| run.measured.clone()).collect(),
            note: format!("{}least/most loaded loop at the end: {least}", ratio.unwrap_or_default()),
            loops: loop_samples(&first.samples),
        })
    }

    /// The least loaded loop's load of the most loaded one's, in each interval of the balancer.
    fn min_max(&self, run: &Run) -> Vec<f64> {
        let step = self.balance_interval.as_secs_f64();
        let at = |time: f64| run.samples.iter().rev().find(|sample| sample.at <= time + step / 10.0);
        let end = run.samples.last().map_or(0.0, |sample| sample.at);
        let count = (end / step + 0.1) as usize;
        let window = |index: usize| {
            let (from, to) = (at(index as f64 * step)?, at((index + 1) as f64 * step)?);
            Some(rounded_3(between(from, to).min_max()))
        };
        (0..count).filter_map(window).collect()
    }

    fn run_json(&self, run: &Run, even: Option<f64>) -> Value {
        let measured = &run.measured;
        let min_max = self.min_max(run);
        let is_valid = measured.is_valid();
        let ratio = even.filter(|_| is_valid).map(|even| rounded_3(measured.per_second() / even));
        let samples = run.samples.windows(2).map(|pair| {
            let load = between(&pair[0], &pair[1]);
            json!({
                "at_s": rounded(load.at),
                "shares": shares(&load.loads),
                "busy_permille": pair[1].busy_permille,
                "connections": pair[1].connections,
                "moves": moves_since_start(run, &pair[1]),
            })
        });
        json!({
            "start": run.start.name(),
            "balance": run.balance.name(),
            "operations_per_second": rounded(measured.per_second()),
            "ratio_to_even": ratio,
            "latency_us": measured.latency_json(),
            "min_max_by_interval": min_max,
            "min_max_after_3_intervals": min_max.get(3),
            "moves": run.samples.last().map_or(0, |last| moves_since_start(run, last)),
            "loops": samples.collect::<Vec<_>>(),
            "errors": measured.errors(),
            "valid": is_valid,
        })
    }
}

/// Mean rate of the valid runs.
fn mean_rate(runs: &[Run]) -> Option<f64> {
    Spread::of_rates(runs.iter().map(|run| &run.measured)).map(|spread| spread.mean)
}

fn loop_samples(samples: &[Sample]) -> Vec<LoopSample> {
    samples.windows(2).map(|pair| between(&pair[0], &pair[1])).collect()
}

/// The loops' loads from one sample to the next.
fn between(from: &Sample, to: &Sample) -> LoopSample {
    let loads = to.bytes_out.iter().zip(&from.bytes_out).map(|(to, from)| to - from).collect();
    LoopSample { at: to.at, loads }
}

/// Connections that changed loops: not those that were put where they started.
fn moves_since_start(run: &Run, sample: &Sample) -> u64 {
    let before = run.samples.first().map_or(0.0, |first| first.moves);
    (sample.moves - before).max(0.0) as u64
}

/// Each load's share of the sum.
fn shares(loads: &[f64]) -> Vec<f64> {
    let sum: f64 = loads.iter().sum();
    loads.iter().map(|load| rounded_3(load / sum.max(1.0))).collect()
}

/// Runs `phase`, and looks before it and after each of its intervals.
fn sampled<S>(
    fleet: &mut Fleet,
    phase: &Phase,
    what: &str,
    progress: &Progress,
    mut look: impl FnMut() -> Result<S, Failure>,
) -> Result<(Measured, Vec<S>), Failure> {
    let mut samples = vec![look()];
    let outcome = fleet.run(phase, &mut |rows| {
        progress.rows(what, rows);
        samples.push(look());
    })?;
    let mut measured = Measured::of(&outcome, 0);
    measured.add_failures(&fleet.failures);
    Ok((measured, samples.into_iter().collect::<Result<_, _>>()?))
}

/// Asks the server about its loops.
fn sample(control: &mut Client, began: Instant) -> Result<Sample, Failure> {
    let numbers = control.info_numbers("loops", "loop")?;
    let of = |field: &str| -> Vec<f64> {
        let is_it = |name: &str| name.split_once('_').is_some_and(|(_, rest)| rest == field);
        numbers.iter().filter(|(name, _)| is_it(name)).map(|(_, number)| *number).collect()
    };
    let connections = of("connections");
    if connections.is_empty() {
        return Err("the server says nothing about loops (INFO loops)".to_owned());
    }
    Ok(Sample {
        at: began.elapsed().as_secs_f64(),
        bytes_out: of("bytes_out"),
        busy_permille: of("busy_permille"),
        moves: of("moves_in").iter().sum(),
        connections,
    })
}

/// Moves connections, named by their own addresses, to where `to` wants them, and waits until they are there.
fn place(
    control: &mut Client,
    addresses: &[String],
    to: impl Fn(usize) -> Option<usize>,
) -> Result<(), Failure> {
    let wanted: HashMap<&str, usize> =
        addresses.iter().enumerate().filter_map(|(i, address)| Some((address.as_str(), to(i)?))).collect();
    wait_until(|| {
        // Those that the server has not accepted yet are not listed.
        let mut there = 0;
        for client in client_list(control)? {
            let Some(place) = wanted.get(client.address.as_str()) else { continue };
            if client.loop_index == *place {
                there += 1;
            } else {
                control.call(&["CLIENT", "MOVE", &client.id, &place.to_string()])?;
            }
        }
        Ok(there == wanted.len())
    })
}

/// A connection as the server lists it.
struct Listed {
    id: String,
    address: String,
    loop_index: usize,
}

fn client_list(control: &mut Client) -> Result<Vec<Listed>, Failure> {
    let text = match control.call(&["CLIENT", "LIST"])? {
        Reply::Bulk(text) | Reply::Verbatim { text, .. } => String::from_utf8_lossy(&text).into_owned(),
        other => return Err(format!("CLIENT LIST: {other:?}")),
    };
    let listed = |line: &str| {
        let field = |name: &str| {
            line.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('=')).map(str::to_owned)
        };
        Some(Listed { id: field("id")?, address: field("addr")?, loop_index: field("loop")?.parse().ok()? })
    };
    Ok(text.lines().filter_map(listed).collect())
}

fn wait_until(mut is_so: impl FnMut() -> Result<bool, Failure>) -> Result<(), Failure> {
    let began = Instant::now();
    while !is_so()? {
        if began.elapsed() > PATIENCE {
            return Err("the server does not move or close connections in time".to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// The own address of a node: any of the loopback network will do.
fn node_address(node: usize) -> IpAddr {
    let [.., high, low] = (node as u32 + 1).to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 1, high, low))
}

/// What the others are compared with.
const EVEN: (Start, Balance) = (Start::Even, Balance::Off);
/// Keys of the MGETs when loads differ.
const LOADS: [usize; 6] = [100, 40, 16, 6, 2, 1];
/// Connections of ours to the server.
const CONTROLS: usize = 2;
const PATIENCE: Duration = Duration::from_secs(20);
