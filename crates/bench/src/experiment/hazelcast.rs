//! Hazelcast, for the map test: its member is the server, its own client makes the load, both in Java.
//!
//! The Java part is the Maven project in bench/peers/hazelcast (`maven`). What the client measured it prints as a line of JSON:
//!
//! ```text
//!  measuring                              the warm-up is over
//!  {"experiment":"map-test", ..., "map":{"found":…,"missing":…,"written":…,"errors":…,"failure":…,"took_us":…,"rows":[
//!      {"at_us":…,"length_us":…,"answered":…,"latencies_ns":[[value,count],…]},…]}, "probe":{the same}}
//! ```
//!
//! Latencies are of histograms with the bounds of our own, so that runs of both are put together alike.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::Duration;

use serde::Deserialize;

use super::host::Running;
use super::measure::Measured;
use crate::Failure;
use crate::drive::{Failures, Row, Sparse, Tally};
use crate::maven::{LEAVES_NOTHING, Project};
use crate::servers::{Ready, Recipe};

/// What the client came to.
pub(super) struct Driven {
    pub(super) map: Measured,
    pub(super) probe: Measured,
    /// Processor seconds of the member while the client measured.
    pub(super) cpu_seconds: Option<f64>,
}

/// How a member is started, once the project is built; `flags` are Java's.
///
/// # Errors
/// The path of the cache folder is no text.
pub(super) fn member(flags: &[String]) -> Result<Recipe, Failure> {
    let jar = PROJECT.jar();
    let jar = jar.to_str().ok_or_else(|| format!("{} is no text", jar.display()))?;
    let ours = [LEAVES_NOTHING, "-jar", jar, "member", "--port={port}", "--dir={dir}"].map(str::to_owned);
    let arguments = flags.iter().cloned().chain(ours).collect();
    Ok(Recipe::of("java".as_ref(), arguments).labelled("hazelcast").ready_when(Ready::Writes("ready")))
}

/// Builds the project, unless that is done.
///
/// # Errors
/// What is in the way, said of Hazelcast.
pub(super) fn build() -> Result<(), Failure> {
    PROJECT.build()
}

/// Has Hazelcast's client load `running`; `words` are its further arguments.
///
/// # Errors
/// It did not start, or failed before there was anything to measure.
pub(super) fn drive(running: &Running, words: &[String]) -> Result<Driven, Failure> {
    let folder = running.folder().ok_or("hazelcast is measured only where it was started")?;
    let log_path = folder.join("client.log");
    let log = fs::File::create(&log_path).map_err(|error| format!("{}: {error}", log_path.display()))?;
    let child = PROJECT
        .java()
        .arg("client")
        .arg(format!("--port={}", running.target.address.port()))
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(|error| format!("cannot start java: {error}"))?;
    let mut client = Client(child);
    let mut lines = BufReader::new(client.0.stdout.take().ok_or("java has no output")?).lines();
    let mut next = || {
        let said = || fs::read_to_string(&log_path).unwrap_or_default();
        let line = lines.next().and_then(Result::ok);
        line.ok_or_else(|| format!("hazelcast's client has ended: {}", said().trim()))
    };
    while next()? != "measuring" {}
    let before = running.cpu_seconds();
    let answer = next()?;
    let cpu_seconds = before.zip(running.cpu_seconds()).map(|(before, after)| after - before);
    let answer: Answer =
        serde_json::from_str(&answer).map_err(|error| format!("hazelcast's client: {error}"))?;
    Ok(Driven { map: answer.map.measured(), probe: answer.probe.measured(), cpu_seconds })
}

/// The client's process, which ends with this.
struct Client(Child);

impl Drop for Client {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// What it prints. Beside this there is the shape of all experiments, for people who start it by hand.
#[derive(Deserialize)]
struct Answer {
    map: Group,
    probe: Group,
}

#[derive(Deserialize)]
struct Group {
    found: u64,
    missing: u64,
    written: u64,
    errors: u64,
    /// The first of them, in words.
    failure: Option<String>,
    took_us: u64,
    rows: Vec<Interval>,
}

#[derive(Deserialize)]
struct Interval {
    at_us: u64,
    length_us: u64,
    answered: u64,
    latencies_ns: Sparse,
}

impl Group {
    fn measured(self) -> Measured {
        let failures = Failures { error_replies: self.errors, first: self.failure, ..Failures::default() };
        let tally = Tally {
            answered: self.found + self.missing + self.written,
            written: self.written,
            found: self.found,
            missing: self.missing,
            failures,
            ..Tally::default()
        };
        let mut latencies = Sparse::default();
        self.rows.iter().for_each(|row| latencies.merge(&row.latencies_ns));
        let rows = self.rows.into_iter().map(|row| Row {
            at: Duration::from_micros(row.at_us),
            length: Duration::from_micros(row.length_us),
            answered: row.answered,
            failed: 0,
            latencies: row.latencies_ns,
        });
        let took = Duration::from_micros(self.took_us);
        // All keys are there before the load begins.
        Measured { tally, took, lost: self.missing, rows: rows.collect(), latencies }
    }
}

const PROJECT: Project = Project {
    name: "hazelcast",
    files: &[
        ("pom.xml", include_str!("../../../../bench/peers/hazelcast/pom.xml")),
        (
            "src/main/java/evenkeel/Peer.java",
            include_str!("../../../../bench/peers/hazelcast/src/main/java/evenkeel/Peer.java"),
        ),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Measured {
        let probe = r#"{"found":1,"missing":0,"written":0,"errors":0,"failure":null,"took_us":9,"rows":[]}"#;
        let line =
            format!(r#"{{"experiment":"map-test","latency_us":{{"p50":1.5}},"map":{text},"probe":{probe}}}"#);
        serde_json::from_str::<Answer>(&line).expect("as the client prints it").map.measured()
    }

    #[test]
    fn rows_of_the_client_become_a_run() {
        let run = answer(
            r#"{"found":5,"missing":0,"written":2,"errors":0,"failure":null,"took_us":2000000,"rows":[
                {"at_us":1000000,"length_us":1000000,"answered":4,"latencies_ns":[[1000,3],[5000,1]]},
                {"at_us":2000000,"length_us":1000000,"answered":3,"latencies_ns":[[1000,1],[9007103,2]]}]}"#,
        );
        assert!(run.is_valid());
        assert!((run.per_second() - 3.5).abs() < 1e-9);
        assert_eq!((run.us(0.5), run.us(0.99), run.tally.written), (1.0, 9007.1, 2));
        assert_eq!(
            run.rows.iter().map(|row| (row.at.as_secs(), row.answered)).collect::<Vec<_>>(),
            [(1, 4), (2, 3)]
        );
    }

    #[test]
    fn key_that_is_not_there_is_lost_and_a_thread_that_failed_is_an_error() {
        let rows =
            r#""took_us":10,"rows":[{"at_us":10,"length_us":10,"answered":2,"latencies_ns":[[7,2]]}]}"#;
        let lost =
            answer(&format!(r#"{{"found":1,"missing":1,"written":0,"errors":0,"failure":null,{rows}"#));
        assert_eq!((lost.is_valid(), lost.lost), (false, 1));
        let failed = answer(&format!(
            r#"{{"found":2,"missing":0,"written":0,"errors":1,"failure":"it is gone",{rows}"#
        ));
        assert_eq!((failed.is_valid(), failed.errors()), (false, 1));
        assert_eq!(failed.tally.failures.first.as_deref(), Some("it is gone"));
    }
}
