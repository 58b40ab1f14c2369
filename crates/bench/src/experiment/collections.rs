//! Collections: what commands on hashes, lists, sets, sorted sets and streams cost, in parts that can be measured alone.
//!
//! A figure is a number with a unit, not a rate of operations: this report has a form of its own. A part that fails has no figure, the others go on,
//! and the whole is not valid.

use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};

use super::arguments::some_time;
use super::progress::Progress;
use crate::Failure;
use crate::collections::{Part, Shape};
use crate::figure::Figure;
use crate::report::number;
use crate::servers::{Folder, is_installed};

#[derive(Debug, Args)]
pub struct Collections {
    /// Parts to measure; all when none is named
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    only: Vec<Part>,
    /// Elements of the collections; each part has its own default, with which it ends within two minutes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1_000..=1_000_000_000))]
    elements: Option<u64>,
    /// Server whose runs alternate with ours, where there is something to compare
    #[arg(long, value_name = "NAME", value_parser = ["redis"])]
    against: Option<String>,
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
    /// Length of a run of `rates`
    #[arg(long, value_name = "TIME", default_value = "250ms", value_parser = some_time)]
    duration: Duration,
    /// Runs of each side; parts that fill again for each run make fewer
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    runs: u32,
    /// Loops of the server; 0: as it chooses
    #[arg(long, value_name = "N", default_value_t = 0)]
    loops: usize,
    /// Where the servers' folders are created and removed
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
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
    /// The folder cannot be created.
    pub(super) fn run(&self) -> Result<(String, bool), Failure> {
        let parent = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let folder = Folder::fresh(parent.join(format!("evenkeel-bench-{}", std::process::id())))?;
        let shape = self.shape(folder.path().to_path_buf());
        let parts = if self.only.is_empty() { Part::ALL } else { &self.only };
        let progress = Progress::new(parts.len());
        let measured: Vec<Measured> = parts
            .iter()
            .map(|part| {
                let figures = part.measure(&shape, &|what| progress.say(what.to_owned()));
                progress.step();
                (*part, figures)
            })
            .collect();
        let is_valid = measured.iter().all(|(_, figures)| figures.is_ok());
        let mut text = text(&measured);
        if self.json {
            let _ = writeln!(text, "{}", self.report(&measured, is_valid));
        }
        Ok((text, is_valid))
    }

    fn shape(&self, folder: PathBuf) -> Shape {
        let with_redis = self.against.is_some() && is_installed("redis-server".as_ref());
        if self.against.is_some() && !with_redis {
            eprintln!("evenkeel: redis is not installed here (no redis-server): measured without it");
        }
        Shape {
            elements: self.elements,
            collection_digits: self.collections.ilog10() as usize,
            runs: self.runs as usize,
            duration: self.duration,
            hashes: self.hashes,
            waiters: usize::from(self.waiters),
            memory_limit_mib: self.memory_limit_mib,
            loops: self.loops,
            with_redis,
            folder,
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
                "against": self.against,
                "collections": self.collections,
                "hashes": self.hashes,
                "waiters": self.waiters,
                "memory_limit_mib": self.memory_limit_mib,
                "duration_ms": self.duration.as_millis() as u64,
                "runs": self.runs,
                "loops": self.loops,
            },
        })
    }
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
            "{:<62}{:>12}{:>12}{:>8}  {:<16}unit",
            part.name(),
            "evenkeel",
            "redis",
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
    let spread = format!("{} to {}", number(least), number(most));
    let _ = writeln!(
        text,
        "  {:<60}{:>12}{peer:>12}{ratio:>8}  {spread:<16}{}",
        figure.title,
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
        "title": figure.title,
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
