//! Load from several processes: this program, started again, told phases on its input, answering outcomes.
//!
//! ```text
//!  parent -> {"target":…,"options":…}   {"groups":…}      {"groups":…}   end of input
//!  child  <-                     {"Opened":…}    {"Outcome":…}    {"Outcome":…}        one line each
//! ```

use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::fleet::{Fleet, FleetOptions};
use super::outcome::{Outcome, Row};
use super::tally::Failures;
use super::work::{Group, Limit, Phase, Pick};
use crate::Failure;
use crate::asked::{Asked, answer, line, told};
use connection::Target;

/// What a child is told first.
#[derive(Serialize, Deserialize)]
struct Opening {
    target: Target,
    options: FleetOptions,
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
        program: &Path,
        arguments: &[&str],
    ) -> Result<Self, Failure> {
        if processes <= 1 {
            return Fleet::open(target, options).map(Self::Here);
        }
        let opened = Workers::open(target, options, processes, program, arguments);
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
    workers: Vec<Asked>,
    failures: Failures,
}

impl Workers {
    fn open(
        target: &Target,
        options: &FleetOptions,
        count: usize,
        program: &Path,
        arguments: &[&str],
    ) -> Result<Self, Failure> {
        let mut all = Self { workers: Vec::new(), failures: Failures::default() };
        for index in 0..count {
            let connections = part(options.connections as u64, index, count) as usize;
            let options = FleetOptions { connections, ..options.clone() };
            let worker = Asked::start("a load process", Command::new(program).args(arguments))?;
            worker.tell(&line(&Opening { target: target.clone(), options })?)?;
            all.workers.push(worker);
        }
        for worker in &all.workers {
            all.failures.add(&worker.hear("Opened")?);
        }
        Ok(all)
    }

    fn run(&mut self, phase: &Phase) -> Result<Outcome, Failure> {
        let count = self.workers.len();
        for (index, worker) in self.workers.iter().enumerate() {
            let groups = phase.groups.iter().map(|group| part_of(group, index, count)).collect();
            worker.tell(&line(&Phase { groups, ..phase.clone() })?)?;
        }
        let mut all = Outcome::default();
        for worker in &self.workers {
            all.add(&worker.hear("Outcome")?);
        }
        Ok(all)
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
    let opening: Opening = told(lines.next())?;
    let mut fleet = match Fleet::open(&opening.target, &opening.options) {
        Ok(fleet) => fleet,
        Err(failure) => return answer("Opened", Err::<(), _>(failure)),
    };
    answer("Opened", Ok(&fleet.failures))?;
    lines.try_for_each(|line| {
        let phase: Phase = told(Some(line))?;
        answer("Outcome", fleet.run(&phase, &mut |_| {}))
    })
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
