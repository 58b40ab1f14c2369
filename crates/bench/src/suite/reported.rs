//! Experiments of `evenkeel bench` as a part of the comparisons: run as a user runs them, their JSON read.
//!
//! What was measured and is no figure ends the group: it is an error here.

use std::process::Command;

use serde_json::Value;

use crate::Failure;
use crate::figure::Series;
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
        let output = Command::new(sibling("evenkeel-bench"))
            .args(arguments)
            .output()
            .map_err(|error| format!("cannot start evenkeel-bench: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let report = text.lines().last().and_then(|line| serde_json::from_str(line).ok());
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let report: Value = report.ok_or_else(|| format!("no report: {said}"))?;
        if let Some(invalid) = invalid(&report) {
            return Err(format!("not valid: {}: {}", invalid["server"], invalid["failures"]));
        }
        Ok(Self { command: format!("evenkeel bench {}", arguments.join(" ")), report, said })
    }
}

/// A number of each run of `report`, but for the first one, which does not count.
pub(super) fn series(label: &str, report: &Value, of: impl Fn(&Value) -> &Value) -> Series {
    let runs = report["runs"].as_array().into_iter().flatten().skip(1);
    Series::new(label, runs.filter_map(|run| of(run).as_f64()).collect())
}

impl Reported {
    /// What the only other one reported, who is called `name`.
    ///
    /// # Errors
    /// It was not there, and so was not measured.
    pub(super) fn peer(&self, name: &str) -> Result<&Value, Failure> {
        let peer = self.report["against"].get(0);
        peer.ok_or_else(|| format!("{name} was not measured: {}", self.said.trim()))
    }
}

/// The numbers of a list in a report.
pub(super) fn values(runs: &Value) -> Vec<f64> {
    runs.as_array().into_iter().flatten().filter_map(Value::as_f64).collect()
}

/// What is no figure: the experiment itself, or one of those that it was measured beside.
fn invalid(report: &Value) -> Option<&Value> {
    let against = report["against"].as_array().into_iter().flatten();
    std::iter::once(report).chain(against).find(|it| it["valid"] != true)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn report_is_as_valid_as_all_that_it_compares() {
        let of = |own: bool, theirs: bool| {
            let others = json!([{"server": "a", "valid": true}, {"server": "b", "valid": theirs}]);
            let report = json!({"server": "own", "valid": own, "against": others});
            invalid(&report).map(|it| it["server"].clone())
        };
        assert_eq!(of(true, true), None);
        assert_eq!((of(false, true), of(true, false)), (Some(json!("own")), Some(json!("b"))));
        assert_eq!(invalid(&json!({"valid": true})), None);
        assert!(invalid(&json!({})).is_some());
    }
}
