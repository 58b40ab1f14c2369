//! Apache Storm, its messaging layer and its local cluster: the Maven project in bench/peers/storm, whose classes say what the lines mean.

use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;

use crate::Failure;
use crate::asked::Asked;
use crate::maven::Project;

/// Messages there and back.
#[derive(Debug, Deserialize)]
pub(crate) struct Timed {
    pub(crate) messages: u64,
    pub(crate) took_ns: u64,
    /// Values, and how often each.
    pub(crate) latencies_ns: Vec<(u64, u64)>,
}

/// A topology.
#[derive(Debug, Deserialize)]
pub(crate) struct Ran {
    pub(crate) messages: u64,
    pub(crate) failed: u64,
    pub(crate) took_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
}

/// A JVM with a part of Storm.
#[derive(Debug)]
pub(crate) struct Storm(Asked);

impl Storm {
    /// Starts one for `words`; where it listens, if it does.
    ///
    /// # Errors
    /// Java is not there, the project cannot be built, or Storm does not start.
    pub(crate) fn start(words: &[String]) -> Result<(Self, String), Failure> {
        PROJECT.build().map_err(|why| format!("storm {why}"))?;
        let mut java = PROJECT.java();
        // Storm logs each of its parts as it starts.
        java.args(words).stderr(Stdio::null());
        let storm = Self(Asked::start("storm's process", &mut java)?);
        let address = storm.0.ask("start", "Listens")?;
        Ok((storm, address))
    }

    /// Has it send to `port` from now on: one way, or one message at a time.
    pub(crate) fn send_to(&self, how: &str, port: &str) -> Result<(), Failure> {
        self.0.ask::<u64>(&format!("{how} {port}"), "Count").map(drop)
    }

    /// How many messages came.
    pub(crate) fn count(&self) -> Result<u64, Failure> {
        self.0.ask("count", "Count")
    }

    /// Times there and back.
    pub(crate) fn time(&self, duration: Duration) -> Result<Timed, Failure> {
        self.0.ask(&format!("measure {}", duration.as_millis()), "Timed")
    }

    /// Measures the topology.
    pub(crate) fn run(&self, duration: Duration) -> Result<Ran, Failure> {
        self.0.ask(&format!("measure {}", duration.as_millis()), "Ran")
    }

    /// Its process.
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }
}

const PROJECT: Project = Project {
    name: "storm",
    files: &[
        ("pom.xml", include_str!("../../../bench/peers/storm/pom.xml")),
        (
            "src/main/java/evenkeel/Peer.java",
            include_str!("../../../bench/peers/storm/src/main/java/evenkeel/Peer.java"),
        ),
        (
            "src/main/java/evenkeel/Messaging.java",
            include_str!("../../../bench/peers/storm/src/main/java/evenkeel/Messaging.java"),
        ),
        (
            "src/main/java/evenkeel/SpeedOfLight.java",
            include_str!("../../../bench/peers/storm/src/main/java/evenkeel/SpeedOfLight.java"),
        ),
    ],
};
