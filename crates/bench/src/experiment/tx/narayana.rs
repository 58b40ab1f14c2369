//! Narayana: the same transactions by the transaction manager that JBossTS became, in a JVM of its own.
//!
//! The Java part is the Maven project in bench/peers/narayana (`maven`); its header says what "tuned" sets. It warms up, measures, and
//! prints a line of JSON:
//!
//! ```text
//!  {"rate":…,"p50":…,"p99":…,"p999":…,"transactions":…,"took_us":…,"cpu_us":…,"errors":…,"failure":…,"latencies_ns":[[value,count],…]}
//! ```

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;

use super::contender::{Costs, Ran, one_interval};
use crate::Failure;
use crate::drive::{Failures, Sparse, Tally};
use crate::experiment::measure::Measured;
use crate::maven::Project;
use crate::servers::is_installed;
use crate::tx::Load;

/// Its store of decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Store {
    /// As its program names it.
    pub(super) name: &'static str,
    /// Whether its settings are better than its defaults.
    pub(super) is_tuned: bool,
}

impl std::str::FromStr for Store {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, is_tuned) = text.strip_suffix("-tuned").map_or((text, false), |name| (name, true));
        let known = STORES.iter().find(|known| **known == name);
        // The settings are those of its journal.
        match known {
            Some(name) if !is_tuned || name.starts_with("journal") => Ok(Self { name, is_tuned }),
            _ => Err(format!(
                "narayana has no store `{text}`: {}, journal-tuned or journal-aio-tuned",
                STORES.join(", ")
            )),
        }
    }
}

impl std::fmt::Display for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}{}", self.name, if self.is_tuned { "-tuned" } else { "" })
    }
}

/// Sees that it can be measured, and builds it once.
///
/// # Errors
/// What is in the way, said of Narayana.
pub(super) fn prepare() -> Result<(), Failure> {
    if !is_installed("java".as_ref()) {
        return Err("is not installed here (no java)".to_owned());
    }
    PROJECT.build()
}

/// Commits as `load` says, after `warm_up`, with its store in `folder`.
///
/// # Errors
/// It did not start, or failed before there was anything to measure.
pub(super) fn run(store: Store, folder: &Path, load: &Load, warm_up: Duration) -> Result<Ran, Failure> {
    let mut child = PROJECT
        .java()
        .args([format!("--store={}", store.name), format!("--tuned={}", store.is_tuned)])
        .arg(format!("--dir={}", folder.display()))
        .arg(format!("--threads={}", load.clients()))
        .arg(format!("--warm-up-ms={}", warm_up.as_millis()))
        .arg(format!("--duration-ms={}", load.duration.as_millis()))
        // It ends when its input does: with us.
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cannot start java: {error}"))?;
    let input = child.stdin.take();
    let output = child.wait_with_output().map_err(|error| format!("narayana: {error}"))?;
    drop(input);
    let said = String::from_utf8_lossy(&output.stdout);
    let answer = said.lines().last().and_then(|line| serde_json::from_str::<Answer>(line).ok());
    answer.map(Answer::ran).ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr);
        let first = why.lines().find(|line| !line.starts_with("SLF4J")).unwrap_or("it said nothing");
        format!("narayana, store {store}: {first}")
    })
}

/// What it prints, but for what is there for people who start it by hand.
#[derive(Deserialize)]
struct Answer {
    transactions: u64,
    took_us: u64,
    cpu_us: u64,
    errors: u64,
    failure: Option<String>,
    latencies_ns: Sparse,
}

impl Answer {
    fn ran(self) -> Ran {
        let failures = Failures { error_replies: self.errors, first: self.failure, ..Failures::default() };
        let tally = Tally { answered: self.transactions, failures, ..Tally::default() };
        let cpu_us = (self.transactions > 0).then(|| self.cpu_us as f64 / self.transactions as f64);
        let took = Duration::from_micros(self.took_us);
        let costs = Costs { cpu_us, ..Costs::default() };
        let run = Measured { tally, took, latencies: self.latencies_ns, ..Measured::default() };
        Ran { measured: one_interval(run), costs }
    }
}

const STORES: [&str; 4] = ["volatile", "file", "journal", "journal-aio"];
const PROJECT: Project = Project {
    name: "narayana",
    files: &[
        ("pom.xml", include_str!("../../../../../bench/peers/narayana/pom.xml")),
        (
            "src/main/java/evenkeel/Peer.java",
            include_str!("../../../../../bench/peers/narayana/src/main/java/evenkeel/Peer.java"),
        ),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_read_as_they_are_written_and_only_the_journal_is_tuned() {
        for text in ["volatile", "file", "journal", "journal-aio", "journal-tuned", "journal-aio-tuned"] {
            assert_eq!(text.parse::<Store>().map(|store| store.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "aio", "file-tuned", "tuned"] {
            assert!(text.parse::<Store>().is_err(), "{text}");
        }
    }

    #[test]
    fn line_of_the_peer_becomes_a_run_and_a_failure_makes_it_no_figure() {
        let ran = |errors: u64, failure: &str| {
            let line = format!(
                r#"{{"rate":1.5,"p50":2.0,"p99":2.0,"p999":2.0,"transactions":3,"took_us":2000000,"cpu_us":600,
                   "errors":{errors},"failure":{failure},"latencies_ns":[[1000,2],[9000,1]]}}"#
            );
            serde_json::from_str::<Answer>(&line).expect("as the peer prints it").ran()
        };
        let good = ran(0, "null");
        assert!(good.measured.is_valid() && (good.measured.per_second() - 1.5).abs() < 1e-9);
        assert_eq!((good.measured.us(0.5), good.costs.cpu_us), (1.0, Some(200.0)));
        let bad = ran(1, "\"it is gone\"");
        assert_eq!((bad.measured.is_valid(), bad.measured.errors()), (false, 1));
    }
}
