//! Experiments of `evenkeel bench` as a part of the comparisons: run as a user runs them, their JSON read.
//!
//! What was measured and is no figure ends the group: it is an error here.

use std::process::Command;

use serde_json::Value;

use crate::Failure;
use crate::servers::sibling;

/// What an experiment reported.
pub(super) struct Reported {
    /// How to repeat it.
    pub(super) command: String,
    /// The JSON.
    pub(super) report: Value,
    /// What it said beside.
    pub(super) said: String,
}

impl Reported {
    /// Runs `evenkeel bench` with `arguments`, which ask for JSON.
    ///
    /// # Errors
    /// It measured nothing, or nothing valid.
    pub(super) fn of(arguments: &[&str]) -> Result<Self, Failure> {
        let arguments = [&["bench"][..], arguments].concat();
        let output = Command::new(sibling("evenkeel"))
            .args(&arguments)
            .output()
            .map_err(|error| format!("cannot start evenkeel: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let report = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report: Value = report.ok_or_else(|| format!("no report: {said}"))?;
        if report["valid"] != true {
            return Err(format!("not valid: {}", report["failures"]));
        }
        Ok(Self { command: format!("evenkeel {}", arguments.join(" ")), report, said })
    }
}
