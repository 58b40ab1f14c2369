//! The receiving side in a process of its own: this program, started again, told what to do on its input.
//!
//! ```text
//!  parent -> {"carrier":"tls", …}        "count"     "count"     end of input
//!  child  <-          {"Listens":"…"}    {"Count":0} {"Count":9}              one line each
//! ```
//!
//! A child ends with its input, and after the time of its run at the latest: neither waits for the other for ever.

use std::process::Command;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::load::{Carrier, Load};
use crate::Failure;
use crate::asked::{Asked, line};

/// How another copy of this program becomes the receiving side.
const RECEIVER: [&str; 1] = ["transport-receiver"];
/// What a run may take beside its own time.
const GRACE: Duration = Duration::from_secs(30);

/// What a child is told first.
#[derive(Serialize, Deserialize)]
pub(super) struct Opening {
    pub(super) carrier: Carrier,
    pub(super) threads: usize,
    pub(super) size_bytes: usize,
    /// It sends back what comes.
    pub(super) answers: bool,
    /// Where the parent's node listens, if it is one.
    pub(super) parent: Option<String>,
    /// It ends then at the latest.
    pub(super) seconds_max: u64,
}

/// A child that receives.
#[derive(Debug)]
pub(super) struct Apart(Asked);

impl Opening {
    pub(super) fn new(carrier: Carrier, load: &Load, answers: bool, parent: Option<String>) -> Self {
        Self {
            carrier,
            threads: load.threads,
            size_bytes: load.size_bytes,
            answers,
            parent,
            seconds_max: (load.warm_up + load.duration + GRACE).as_secs(),
        }
    }
}

impl Apart {
    /// Starts a child, and says where it listens.
    pub(super) fn start(opening: &Opening) -> Result<(Self, String), Failure> {
        let program = std::env::current_exe().map_err(|error| error.to_string())?;
        let apart = Self(Asked::start("the receiving process", Command::new(program).args(RECEIVER))?);
        let address = apart.0.ask(&line(opening)?, "Listens")?;
        Ok((apart, address))
    }

    /// How many messages it has got.
    pub(super) fn count(&self) -> Result<u64, Failure> {
        self.0.ask("count", "Count")
    }

    /// Its process.
    pub(super) fn id(&self) -> u32 {
        self.0.id()
    }
}
