//! Collections: what commands on hashes, lists, sets, sorted sets and streams cost, in parts that can be measured alone.
//!
//! A figure is a number with a unit, not a rate of operations: this report has a form of its own. A part that fails has no figure, the others go on,
//! and the whole is not valid.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::arguments::some_time;
use super::progress::Progress;
use crate::collections::{self, Part, Peer, Setting, Shape, Type};
use crate::figure::Figure;
use crate::report::number;
use crate::servers::{Folder, is_installed};
use crate::{Failure, Named};

#[derive(Debug, Args)]
pub struct Collections {
    /// Parts to measure; all but `types` when none is named
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<Part>,
    /// Elements of the collections; each part has its own default, with which it ends within two minutes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    elements: Option<u64>,
    /// Servers whose runs alternate with ours, where there is something to compare
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    against: Vec<Peer>,
    /// Types of `types`; all when none is named
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    types: Vec<Type>,
    /// Settings of `types`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "no-log,durable")]
    settings: Vec<Setting>,
    /// Collections of each type in `rates`: 1, 10, 100, ... which share its elements
    #[arg(long, value_name = "N", default_value = "1000", value_parser = power_of_ten)]
    collections: usize,
    /// Hashes of `write-amplification`, which share its elements
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    hashes: u64,
    /// Clients of `waiters`
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u16).range(1..=50_000))]
    waiters: u16,
    /// memory.limit in the second half of `cold-reads`, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16, value_parser = clap::value_parser!(u64).range(16..=1 << 20))]
    memory_limit_mib: u64,
    /// Length of a run of `rates` (250ms) and `types` (2s)
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    duration: Option<Duration>,
    /// Runs of each side (5; 3 of `types`); parts that fill again for each run make fewer
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: Option<u32>,
    /// Loops of the server; 0: as it chooses
    #[arg(long, value_name = "N", default_value_t = 0)]
    loops: usize,
    /// Where the servers' folders are created and removed
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Write a plot of each type that `types` compares into this folder
    #[arg(long, value_name = "DIR")]
    svg: Option<PathBuf>,
    /// Print one JSON object as the last line
    #[arg(long)]
    json: bool,
}

/// What a part came to.
type Measured = (Part, Result<Vec<Figure>, Failure>);

impl Collections {
    /// Measures the parts; the text, and whether all of them have figures.
    ///
    /// # Errors
    /// A folder cannot be created, or a plot not be written.
    pub(super) fn run(&self) -> Result<(String, bool), Failure> {
        let parent = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let folder = Folder::fresh(parent.join(format!("evenkeel-bench-{}", std::process::id())))?;
        let peers = self.peers();
        let parts = if self.only.is_empty() { Part::USUAL } else { &self.only };
        let progress = Progress::new(parts.len());
        let measured: Vec<Measured> = parts
            .iter()
            .map(|part| {
                let shape = self.shape(*part, &peers, folder.path());
                let figures = part.measure(&shape, &|what| progress.say(what.to_owned()));
                progress.step();
                (*part, figures)
            })
            .collect();
        let is_valid = measured.iter().all(|(_, figures)| figures.is_ok());
        if let Some(folder) = &self.svg {
            write_plots(folder, &measured)?;
        }
        let mut text = text(&measured);
        if self.json {
            let _ = writeln!(text, "{}", self.report(&measured, is_valid));
        }
        Ok((text, is_valid))
    }

    /// Those to compare with that are installed.
    fn peers(&self) -> Vec<Peer> {
        let is_there = |peer: &&Peer| {
            let recipe = peer.recipe("off");
            let is_there = is_installed(recipe.program());
            if !is_there {
                let (name, program) = (peer.name(), recipe.program().display());
                eprintln!("evenkeel: {name} is not installed here (no {program}): measured without it");
            }
            is_there
        };
        self.against.iter().filter(is_there).copied().collect()
    }

    fn shape(&self, part: Part, peers: &[Peer], folder: &Path) -> Shape {
        Shape {
            elements: self.elements,
            collection_digits: self.collections.ilog10() as usize,
            runs: self.runs.map_or_else(|| part.runs(), |runs| runs as usize),
            duration: self.duration.unwrap_or_else(|| part.duration()),
            hashes: self.hashes,
            waiters: usize::from(self.waiters),
            memory_limit_mib: self.memory_limit_mib,
            loops: self.loops,
            peers: peers.to_vec(),
            types: if self.types.is_empty() { Type::ALL.to_vec() } else { self.types.clone() },
            settings: self.settings.clone(),
            folder: folder.to_path_buf(),
        }
    }

    fn report(&self, measured: &[Measured], is_valid: bool) -> Value {
        let failures: Vec<Value> = measured
            .iter()
            .filter_map(|(part, figures)| Some(json!({"part": part.name(), "text": figures.as_ref().err()?})))
            .collect();
        let figures: Vec<Value> =
            measured.iter().filter_map(|(_, figures)| figures.as_ref().ok()).flatten().map(figure).collect();
        json!({
            "experiment": "collections",
            "server": "evenkeel",
            "valid": is_valid,
            "failures": failures,
            "figures": figures,
            "settings": {
                "elements": self.elements,
                "against": self.against.iter().map(|peer| peer.name()).collect::<Vec<_>>(),
                "collections": self.collections,
                "hashes": self.hashes,
                "waiters": self.waiters,
                "memory_limit_mib": self.memory_limit_mib,
                "duration_ms": self.duration.map(|duration| duration.as_millis() as u64),
                "runs": self.runs,
                "loops": self.loops,
            },
        })
    }
}

/// Writes the plots of the figures that have one.
fn write_plots(folder: &Path, measured: &[Measured]) -> Result<(), Failure> {
    let figures: Vec<Figure> =
        measured.iter().filter_map(|(_, figures)| figures.as_ref().ok()).flatten().cloned().collect();
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for (name, plot) in collections::plots(&figures) {
        let path = folder.join(name);
        std::fs::write(&path, plot).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    Ok(())
}

/// A table for people.
fn text(measured: &[Measured]) -> String {
    let mut text = String::new();
    for (part, figures) in measured {
        let figures = match figures {
            Ok(figures) => figures,
            Err(failure) => {
                let _ = writeln!(text, "{}\n  NOT VALID, no figure: {failure}", part.name());
                continue;
            }
        };
        let _ = writeln!(
            text,
            "{:<72}{:>12}{:>12}{:>8}  {:<18}unit, peer",
            part.name(),
            "evenkeel",
            "peer",
            "ratio",
            "spread"
        );
        figures.iter().for_each(|figure| row(&mut text, figure));
    }
    text
}

fn row(text: &mut String, figure: &Figure) {
    let (least, most) = figure.spread();
    let peer = figure.b.as_ref().map_or("-".to_owned(), |peer| number(peer.median()));
    let ratio = figure.b.as_ref().map_or("-".to_owned(), |_| format!("{:.2}", figure.measured()));
    let label = figure.b.as_ref().map_or_else(String::new, |peer| format!(", {}", peer.label));
    let spread = format!("{} to {}", number(least), number(most));
    let _ = writeln!(
        text,
        "  {:<70}{:>12}{peer:>12}{ratio:>8}  {spread:<18}{}{label}",
        figure.heading(),
        number(figure.a.median()),
        figure.unit
    );
    if !figure.note.is_empty() {
        let _ = writeln!(text, "    {}", figure.note);
    }
}

fn figure(figure: &Figure) -> Value {
    json!({
        "id": figure.id,
        "title": figure.heading(),
        "subject": figure.title,
        "unit": figure.unit,
        "value": figure.a.median(),
        "runs": figure.a.values,
        "against": figure.b.as_ref().map(|peer| json!({
            "server": peer.label,
            "value": peer.median(),
            "runs": peer.values,
            "ratio": figure.measured(),
        })),
        "note": figure.note,
    })
}

/// `1`, `10`, `100`, ...
fn power_of_ten(text: &str) -> Result<usize, String> {
    let wrong = || format!("`{text}` is not 1, 10, 100, ... up to {COLLECTIONS_MAX}");
    let number: usize = text.parse().map_err(|_| wrong())?;
    let is_one = number.checked_ilog10().is_some_and(|digits| 10_usize.pow(digits) == number);
    if is_one && number <= COLLECTIONS_MAX { Ok(number) } else { Err(wrong()) }
}

const COLLECTIONS_MAX: usize = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn collections_are_a_power_of_ten() {
        assert_eq!(["1", "10", "1000"].map(power_of_ten), [Ok(1), Ok(10), Ok(1_000)]);
        for text in ["0", "2", "11", "-10", "x", "10000000"] {
            assert!(power_of_ten(text).is_err(), "{text}");
        }
    }

    #[test]
    fn part_that_failed_is_said_and_has_no_figure() {
        let text = text(&[(Part::Start, Err("it ended".to_owned()))]);
        assert_eq!(text, "start\n  NOT VALID, no figure: it ended\n");
    }
}
