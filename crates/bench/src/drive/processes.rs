//! Load from several processes: this program, started again, told phases on its input, answering outcomes.
//!
//! ```text
//!  parent -> {"target":…,"options":…}   {"groups":…}      {"groups":…}   end of input
//!  child  <-                     {"opened":…}    {"outcome":…}    {"outcome":…}        one line each
//! ```

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde::{Deserialize, Serialize};

use super::fleet::{Fleet, FleetOptions};
use super::outcome::{Outcome, Row};
use super::tally::Failures;
use super::work::{Group, Limit, Phase, Pick};
use crate::Failure;
use connection::Target;

/// What a child is told first.
#[derive(Serialize, Deserialize)]
struct Opening {
    target: Target,
    options: FleetOptions,
}

/// What a child answers.
#[derive(Serialize, Deserialize)]
enum Answer {
    Opened(Failures),
    Outcome(Outcome),
    Failed(Failure),
}

/// Who drives a server.
#[derive(Debug)]
pub enum Drivers {
    /// This process.
    Here(Fleet),
    /// Others.
    Workers(Workers),
}

impl Drivers {
    /// Opens the connections in `processes` processes, which `program` with `arguments` becomes; 1 is this one.
    ///
    /// # Errors
    /// As [`Fleet::open`].
    pub fn open(
        target: &Target,
        options: &FleetOptions,
        processes: usize,
        (program, arguments): (&Path, &[&str]),
    ) -> Result<Self, Failure> {
        if processes <= 1 {
            return Fleet::open(target, options).map(Self::Here);
        }
        let opened = Workers::open(target, options, processes, (program, arguments));
        opened.map(Self::Workers)
    }

    /// Connections that were not made.
    #[must_use]
    pub fn failures(&self) -> &Failures {
        match self {
            Self::Here(fleet) => &fleet.failures,
            Self::Workers(workers) => &workers.failures,
        }
    }

    /// Runs `phase`; `observe` sees its rows as they come when this process drives.
    ///
    /// # Errors
    /// A worker ended, or there are too few connections.
    pub fn run(&mut self, phase: &Phase, observe: &mut dyn FnMut(&[Row])) -> Result<Outcome, Failure> {
        match self {
            Self::Here(fleet) => fleet.run(phase, observe),
            Self::Workers(workers) => workers.run(phase),
        }
    }
}

/// Processes that drive a server together.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
    failures: Failures,
}

#[derive(Debug)]
struct Worker {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Workers {
    fn open(
        target: &Target,
        options: &FleetOptions,
        count: usize,
        (program, arguments): (&Path, &[&str]),
    ) -> Result<Self, Failure> {
        let mut all = Self { workers: Vec::new(), failures: Failures::default() };
        for index in 0..count {
            let connections = part(options.connections as u64, index, count) as usize;
            let options = FleetOptions { connections, ..options.clone() };
            let mut worker = Worker::start(program, arguments)?;
            worker.tell(&Opening { target: target.clone(), options })?;
            all.workers.push(worker);
        }
        for worker in &mut all.workers {
            match worker.answer()? {
                Answer::Opened(failures) => all.failures.add(&failures),
                _ => return Err("a load process answered out of turn".to_owned()),
            }
        }
        Ok(all)
    }

    fn run(&mut self, phase: &Phase) -> Result<Outcome, Failure> {
        let count = self.workers.len();
        for (index, worker) in self.workers.iter_mut().enumerate() {
            let groups = phase.groups.iter().map(|group| part_of(group, index, count)).collect();
            worker.tell(&Phase { groups, ..phase.clone() })?;
        }
        let mut all = Outcome::default();
        for worker in &mut self.workers {
            match worker.answer()? {
                Answer::Outcome(outcome) => all.add(&outcome),
                _ => return Err("a load process answered out of turn".to_owned()),
            }
        }
        Ok(all)
    }
}

impl Worker {
    fn start(program: &Path, arguments: &[&str]) -> Result<Self, Failure> {
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start a load process: {error}"))?;
        let answers = BufReader::new(child.stdout.take().ok_or("a load process has no output")?);
        Ok(Self { child, answers })
    }

    fn tell(&mut self, what: &impl Serialize) -> Result<(), Failure> {
        let mut line = serde_json::to_vec(what).map_err(|error| error.to_string())?;
        line.push(b'\n');
        let input = self.child.stdin.as_mut().ok_or("a load process has no input")?;
        input.write_all(&line).map_err(|error| format!("a load process has ended: {error}"))
    }

    fn answer(&mut self) -> Result<Answer, Failure> {
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|error| error.to_string())?;
        if line.is_empty() {
            return Err("a load process has ended".to_owned());
        }
        match serde_json::from_str(&line).map_err(|error| format!("a load process: {error}"))? {
            Answer::Failed(failure) => Err(failure),
            answer => Ok(answer),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        // The end of its input is the end of its work; one that does not see it is past helping.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// The share of part `index` of `count` in `total`; the shares differ by at most 1.
fn part(total: u64, index: usize, count: usize) -> u64 {
    total / count as u64 + u64::from((index as u64) < total % count as u64)
}

/// What process `index` of `count` does of a group's work.
fn part_of(group: &Group, index: usize, count: usize) -> Group {
    let mut mine = group.clone();
    mine.connections = part(group.connections as u64, index, count) as usize;
    let share = mine.connections as f64 / group.connections.max(1) as f64;
    mine.per_second = group.per_second.map(|rate| rate * share);
    if let Limit::Requests(total) = group.limit {
        mine.limit = Limit::Requests(part(total, index, count));
    }
    let keys = &mut mine.work.keys;
    if matches!(keys.pick, Pick::Sequence | Pick::Local) && keys.count >= count as u64 {
        let before: u64 = (0..index).map(|index| part(keys.count, index, count)).sum();
        keys.first += before;
        keys.count = part(keys.count, index, count);
    }
    mine
}

/// Drives as this process's input says, until it ends: what a worker's program does.
///
/// # Errors
/// The parent is no parent of this version, or is gone.
pub fn work_for_parent() -> Result<(), Failure> {
    let mut lines = std::io::stdin().lines().map_while(Result::ok);
    let opening: Opening = told(&lines.next().ok_or("nobody says what to do")?)?;
    let mut fleet = match Fleet::open(&opening.target, &opening.options) {
        Ok(fleet) => fleet,
        Err(failure) => return answer(&Answer::Failed(failure)),
    };
    answer(&Answer::Opened(fleet.failures.clone()))?;
    for line in lines {
        let phase: Phase = told(&line)?;
        answer(&fleet.run(&phase, &mut |_| {}).map_or_else(Answer::Failed, Answer::Outcome))?;
    }
    Ok(())
}

fn told<T: for<'a> Deserialize<'a>>(line: &str) -> Result<T, Failure> {
    serde_json::from_str(line).map_err(|error| format!("not understood: {error}"))
}

fn answer(answer: &Answer) -> Result<(), Failure> {
    let line = serde_json::to_string(answer).map_err(|error| error.to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::work::{Action, tests::work};
    use super::*;

    #[test]
    fn parts_of_a_group_make_the_whole() {
        let mut work = work(Action::Write, Pick::Sequence);
        (work.keys.first, work.keys.count) = (100, 1_001);
        let limit = Limit::Requests(1_001);
        let whole = Group { work, connections: 10, depth: 1, limit, per_second: Some(50.0) };
        let parts: Vec<_> = (0..4).map(|index| part_of(&whole, index, 4)).collect();
        assert_eq!(parts.iter().map(|part| part.connections).collect::<Vec<_>>(), [3, 3, 2, 2]);
        let mut next = 100;
        for part in &parts {
            assert_eq!(part.work.keys.first, next);
            assert_eq!(part.limit, Limit::Requests(part.work.keys.count));
            next += part.work.keys.count;
        }
        assert_eq!(next, 1_101);
        assert!((parts.iter().filter_map(|part| part.per_second).sum::<f64>() - 50.0).abs() < 1e-9);
    }
}
