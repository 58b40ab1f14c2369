//! A load that changes: how many loops are active while it grows, while others want the cores, and after it has fallen.
//!
//! | phase | load | beside it |
//! |---|---|---|
//! | `light` | a tenth of the connections, 1,000 requests a second | |
//! | `grown` | all connections, as fast as they are answered | |
//! | `contended` | the same | a thread of this program that is always busy |
//! | `fallen` | as `light` | |
//!
//! The phases follow each other on one server, with all connections open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use serde_json::{Map, Value, json};

use super::{Skew, sampled};
use crate::Failure;
use crate::client::Client;
use crate::drive::{Fleet, Group, Phase};
use crate::experiment::host::Host;
use crate::experiment::measure::{Measured, object, rounded};
use crate::experiment::progress::Progress;
use crate::experiment::report::{Line, Report};
use crate::load::generator;

/// A part of the run.
#[derive(Clone, Copy)]
struct Part {
    name: &'static str,
    is_full: bool,
    is_contended: bool,
}

const PARTS: [Part; 4] = [
    Part { name: "light", is_full: false, is_contended: false },
    Part { name: "grown", is_full: true, is_contended: false },
    Part { name: "contended", is_full: true, is_contended: true },
    Part { name: "fallen", is_full: false, is_contended: false },
];
const LIGHT_PER_SECOND: f64 = 1_000.0;

/// What the server said of its loops at one moment.
struct Sample {
    at: f64,
    active: u64,
    reason: String,
    changes: u64,
    connections: Vec<f64>,
}

/// One phase of one run.
struct Run {
    part: Part,
    measured: Measured,
    samples: Vec<Sample>,
}

impl Skew {
    /// Runs the phases `runs` times, each time on a fresh server.
    ///
    /// # Errors
    /// A server does not start, or does not tell how many loops are active.
    pub(super) fn run_phases(&self) -> Result<Report, Failure> {
        let host = Host::evenkeel(&self.flags_of_phases(), "evenkeel".to_owned(), &self.common)?;
        let progress = Progress::new(PARTS.len() * self.runs as usize);
        let mut runs = Vec::new();
        for _ in 0..self.runs {
            runs.extend(self.run_phases_once(&host, &progress)?);
        }
        let mut settings = self.common.settings();
        let own = json!({
            "clients": self.clients,
            "duration_ms": self.duration.as_millis() as u64,
            "runs": self.runs,
            "keys": self.keys,
            "value_size": self.value_size,
            "key_count": self.key_count,
        });
        settings.extend(object(own));
        let mut fields = Map::new();
        fields.insert("phases".to_owned(), runs.iter().map(Run::json).collect());
        Ok(Report {
            experiment: "skew",
            server: host.label.clone(),
            command: host.command(),
            settings,
            fields,
            lines: PARTS.iter().map(|part| line(part.name, &runs)).collect(),
        })
    }

    fn flags_of_phases(&self) -> Vec<String> {
        let mut flags = self.server_flags();
        if self.common.engine.is_none() {
            flags.extend(["--engine", "memory"].map(str::to_owned));
        }
        flags.extend(["--balance-interval".to_owned(), format!("{}ms", self.balance_interval.as_millis())]);
        flags
    }

    fn run_phases_once(&self, host: &Host, progress: &Progress) -> Result<Vec<Run>, Failure> {
        let clients = self.clients as usize;
        let running = host.fresh(2 * clients)?;
        let mut control = running.client()?;
        generator::fill(&running.target, 0..u64::from(self.key_count), self.value_size as usize)?;
        let mut fleet = Fleet::open(&running.target, &self.common.fleet(clients))?;
        let began = Instant::now();
        let mut runs = Vec::new();
        for part in PARTS {
            let what = format!("phase {}", part.name);
            progress.say(what.clone());
            let (measured, samples) = beside_a_busy_thread(part.is_contended, || {
                sampled(&mut fleet, &self.phase_of(part), &what, progress, || sample(&mut control, began))
            })?;
            runs.push(Run { part, measured, samples });
            progress.step();
        }
        Ok(runs)
    }

    fn phase_of(&self, part: Part) -> Phase {
        let clients = self.clients as usize;
        let full = self.group(usize::from(self.keys), clients);
        let group = if part.is_full {
            full
        } else {
            Group { connections: clients.div_ceil(10), depth: 1, per_second: Some(LIGHT_PER_SECOND), ..full }
        };
        Phase {
            groups: vec![group],
            request_timeout: self.common.request_timeout,
            interval: self.common.interval,
        }
    }
}

impl Run {
    fn json(&self) -> Value {
        let samples = self.samples.iter().map(|sample| {
            json!({
                "at_s": rounded(sample.at),
                "active": sample.active,
                "reason": sample.reason,
                "changes": sample.changes,
                "connections": sample.connections,
            })
        });
        json!({
            "phase": self.part.name,
            "operations_per_second": rounded(self.measured.per_second()),
            "latency_us": self.measured.latency_json(),
            "loops": samples.collect::<Vec<_>>(),
            "errors": self.measured.errors(),
            "valid": self.measured.is_valid(),
        })
    }

    /// The numbers of active loops and why they came about: `1, 2 (loops_busy)`.
    fn course(&self) -> String {
        let mut course = String::new();
        let mut before = None;
        for sample in &self.samples {
            if before.is_some_and(|before| before == sample.changes) {
                continue;
            }
            let comma = if course.is_empty() { "" } else { ", " };
            course += &format!("{comma}{} ({})", sample.active, sample.reason);
            before = Some(sample.changes);
        }
        course
    }
}

fn line(name: &str, runs: &[Run]) -> Line {
    let of_part = || runs.iter().filter(|run| run.part.name == name);
    let course = of_part().map(Run::course).collect::<Vec<_>>().join("; ");
    Line {
        what: format!("phase {name}"),
        command: "MGET".to_owned(),
        runs: of_part().map(|run| run.measured.clone()).collect(),
        note: format!("active loops: {course}"),
        loops: Vec::new(),
    }
}

/// Does `work` while a thread wants a core at all times, if that `is_wanted`.
fn beside_a_busy_thread<T>(is_wanted: bool, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(!is_wanted);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let _ends = SetOnDrop(&is_over);
        work()
    })
}

/// Also when the work panics: the thread would never end.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Asks the server how many loops are active.
fn sample(control: &mut Client, began: Instant) -> Result<Sample, Failure> {
    let text = control.info_text("loops")?;
    let field = |name: &str| {
        let find =
            |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(|value| value.trim().to_owned());
        text.lines().find_map(find).ok_or_else(|| format!("INFO loops has no {name}"))
    };
    let number = |name: &str| field(name)?.parse().map_err(|error| format!("INFO loops, {name}: {error}"));
    let connections = (0..).map_while(|index| field(&format!("loop{index}_connections")).ok()?.parse().ok());
    Ok(Sample {
        at: began.elapsed().as_secs_f64(),
        active: number("loops_active")?,
        reason: field("loops_active_reason")?,
        changes: number("loops_active_changes")?,
        connections: connections.collect(),
    })
}
