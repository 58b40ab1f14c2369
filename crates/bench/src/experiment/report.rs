//! The result of an experiment on one server: text, one line, JSON.
//!
//! Every experiment's JSON has `experiment`, `server`, `operations_per_second`, `latency_us`, `errors`, `lost`, `valid`,
//! `failures` and `settings`; beside them its own fields, and `against`: the same of further servers, each with the
//! first one's ratio to it, if both are valid: of operations a second, of p99, and of server CPU for each operation if known.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use super::measure::{Measured, Spread, rounded, rounded_3};

/// What an experiment says about one server.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) experiment: &'static str,
    pub(super) server: String,
    /// How the server was started.
    pub(super) command: Option<String>,
    pub(super) settings: Map<String, Value>,
    /// The experiment's own part of the JSON.
    pub(super) fields: Map<String, Value>,
    pub(super) lines: Vec<Line>,
}

/// Equal runs, as one line of a table.
#[derive(Clone, Debug, Default)]
pub(super) struct Line {
    pub(super) what: String,
    /// What redis-benchmark would call it.
    pub(super) command: String,
    /// Each run.
    pub(super) runs: Vec<Measured>,
    /// What else is known, in words.
    pub(super) note: String,
    /// Loads of the loops over time.
    pub(super) loops: Vec<LoopSample>,
}

/// The loops' loads in one interval.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct LoopSample {
    /// When it ended, after the start of the run, in seconds.
    pub(super) at: f64,
    /// Of each loop, in any unit.
    pub(super) loads: Vec<f64>,
}

impl LoopSample {
    /// The least loaded loop's load, of the most loaded one's.
    pub(super) fn min_max(&self) -> f64 {
        let most = self.loads.iter().copied().fold(0.0, f64::max);
        if most <= 0.0 { 0.0 } else { self.loads.iter().copied().fold(f64::MAX, f64::min) / most }
    }
}

impl Line {
    /// All runs together.
    pub(super) fn all(&self) -> Measured {
        let mut all = Measured::default();
        self.runs.iter().for_each(|run| all.add(run));
        all
    }

    /// How far apart the valid runs lie.
    pub(super) fn spread(&self) -> Option<Spread> {
        Spread::of_rates(&self.runs)
    }

    /// Why it is no figure, if it is none.
    pub(super) fn why_not_valid(&self) -> Option<String> {
        if self.is_valid() {
            return None;
        }
        let all = self.all();
        let other = if all.tally.absent > 0 {
            "connections were missing that had failed before"
        } else {
            "nothing was answered, or keys were lost"
        };
        let why = all.tally.failures.first.as_deref().unwrap_or(other);
        Some(format!("NOT VALID, no figure: {} errors, {} lost: {why}", all.errors(), all.lost))
    }

    pub(super) fn is_valid(&self) -> bool {
        !self.runs.is_empty() && self.runs.iter().all(Measured::is_valid)
    }
}

impl Report {
    pub(super) fn all(&self) -> Measured {
        let mut all = Measured::default();
        self.lines.iter().for_each(|line| all.add(&line.all()));
        all
    }

    pub(super) fn is_valid(&self) -> bool {
        !self.lines.is_empty() && self.lines.iter().all(Line::is_valid)
    }

    /// A table for people.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{} of {}\n", self.experiment, self.server);
        if let Some(command) = &self.command {
            let _ = writeln!(text, "  {command}");
        }
        let _ = writeln!(
            text,
            "  {:<34}{:>11}{:>11}{:>11}{:>9}{:>10}{:>10}{:>10}",
            "", "per second", "least", "most", "spread", "p50 us", "p99 us", "p99.9 us"
        );
        for line in &self.lines {
            line.write_to(&mut text);
        }
        text
    }

    /// A line for each operation, as redis-benchmark prints with `-q`.
    pub(super) fn one_line(&self) -> String {
        let mut text = String::new();
        for line in &self.lines {
            let all = line.all();
            let state = if line.is_valid() { "" } else { " (not valid)" };
            let (rate, p50) = (all.per_second(), all.us(0.5) / 1e3);
            let name = &line.command;
            let _ = writeln!(text, "{name}: {rate:.2} requests per second, p50={p50:.3} msec{state}");
        }
        text
    }

    fn json(&self) -> Map<String, Value> {
        let all = self.all();
        let mut map = self.fields.clone();
        let common = json!({
            "experiment": self.experiment,
            "server": self.server,
            "command": self.command,
            "operations_per_second": rounded(all.per_second()),
            "latency_us": all.latency_json(),
            "errors": all.errors(),
            "lost": all.lost,
            "valid": self.is_valid(),
            "failures": all.failures_json(),
            "settings": self.settings,
        });
        if let Value::Object(common) = common {
            map.extend(common);
        }
        map
    }
}

impl Line {
    fn write_to(&self, text: &mut String) {
        let all = self.all();
        let spread = self.spread();
        let figure =
            |of: fn(&Spread) -> f64| spread.as_ref().map_or("-".to_owned(), |s| format!("{:.0}", of(s)));
        let percent = spread.map_or("-".to_owned(), |spread| format!("{:.1} %", spread.percent()));
        let _ = writeln!(
            text,
            "  {:<34}{:>11.0}{:>11}{:>11}{:>9}{:>10.1}{:>10.1}{:>10.1}",
            self.what,
            all.per_second(),
            figure(|spread| spread.min),
            figure(|spread| spread.max),
            percent,
            all.us(0.5),
            all.us(0.99),
            all.us(0.999)
        );
        if !self.note.is_empty() {
            let _ = writeln!(text, "    {}", self.note);
        }
        if let Some(why) = self.why_not_valid() {
            let _ = writeln!(text, "    {why}");
        }
    }
}

/// All reports as one line: the first with the others in it.
pub(super) fn json(reports: &[Report]) -> String {
    let Some((first, others)) = reports.split_first() else { return "{}".to_owned() };
    let mut map = first.json();
    let against: Vec<Value> = others
        .iter()
        .map(|other| {
            let mut theirs = other.json();
            theirs.insert("ratio".to_owned(), json!(ratio(first, other)));
            theirs.insert("p99_ratio".to_owned(), json!(p99_ratio(first, other)));
            theirs.insert("server_cpu_ratio".to_owned(), json!(cpu_ratio(first, other)));
            Value::Object(theirs)
        })
        .collect();
    if !against.is_empty() {
        map.insert("against".to_owned(), Value::Array(against));
    }
    Value::Object(map).to_string()
}

/// How the first stands to each of the others, a line each.
pub(super) fn comparison(reports: &[Report]) -> String {
    let Some((first, others)) = reports.split_first() else { return String::new() };
    let mut text = String::new();
    for other in others {
        let ratios = ratios(first, other);
        if !ratios.is_empty() {
            let words: Vec<String> =
                ratios.iter().map(|(name, ratio)| format!("{name} {ratio:.2}")).collect();
            let _ = writeln!(text, "{} / {}: {}", first.server, other.server, words.join(", "));
        }
    }
    text
}

/// All ratios of `ours` to `theirs`, with what they are of; none if not both are figures.
pub(super) fn ratios(ours: &Report, theirs: &Report) -> Vec<(&'static str, f64)> {
    let all = [
        ("operations a second", ratio(ours, theirs)),
        ("p99", p99_ratio(ours, theirs)),
        ("server CPU of an operation", cpu_ratio(ours, theirs)),
    ];
    all.into_iter().filter_map(|(name, ratio)| Some((name, ratio?))).collect()
}

/// Operations a second of `ours` for each of `theirs`, if both are figures.
fn ratio(ours: &Report, theirs: &Report) -> Option<f64> {
    of_valid(ours, theirs, |report| Some(report.all().per_second()))
}

/// The same of the 99th percentile of latency.
fn p99_ratio(ours: &Report, theirs: &Report) -> Option<f64> {
    of_valid(ours, theirs, |report| Some(report.all().us(0.99)))
}

/// The same of processor time of the server for each operation.
fn cpu_ratio(ours: &Report, theirs: &Report) -> Option<f64> {
    of_valid(ours, theirs, |report| report.fields.get("server_cpu_us_per_operation")?.as_f64())
}

fn of_valid(ours: &Report, theirs: &Report, figure: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
    let both_valid = ours.is_valid() && theirs.is_valid();
    let ratio = both_valid.then(|| Some(figure(ours)? / figure(theirs)?)).flatten()?;
    ratio.is_finite().then(|| rounded_3(ratio))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::drive::Tally;

    fn report(answered: u64, lost: u64) -> Report {
        let tally = Tally { answered, ..Tally::default() };
        let run = Measured { tally, took: Duration::from_secs(1), lost, ..Measured::default() };
        let line =
            Line { what: "write".to_owned(), command: "SET".to_owned(), runs: vec![run], ..Line::default() };
        Report {
            experiment: "remote-test",
            server: "somebody".to_owned(),
            command: None,
            settings: Map::new(),
            fields: Map::new(),
            lines: vec![line],
        }
    }

    #[test]
    fn json_is_one_line_with_the_common_shape() {
        let text = json(&[report(300, 0), report(200, 0)]);
        assert!(!text.contains('\n'));
        let value: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(value["operations_per_second"], 300.0);
        assert_eq!((&value["errors"], &value["lost"], &value["valid"]), (&json!(0), &json!(0), &json!(true)));
        for key in ["p50", "p99", "p999", "max"] {
            assert!(value["latency_us"][key].is_number(), "{key}");
        }
        assert_eq!(value["against"][0]["ratio"], 1.5);
    }

    #[test]
    fn servers_are_compared_by_rate_and_by_processor_time_where_it_is_known() {
        let mut reports = [report(300, 0), report(200, 0)];
        assert_eq!(comparison(&reports), "somebody / somebody: operations a second 1.50\n");
        for (report, cpu_us) in reports.iter_mut().zip([10.0, 40.0]) {
            report.fields.insert("server_cpu_us_per_operation".to_owned(), json!(cpu_us));
        }
        assert!(comparison(&reports).ends_with("1.50, server CPU of an operation 0.25\n"));
        let value: Value = serde_json::from_str(&json(&reports)).expect("JSON");
        assert_eq!(value["against"][0]["server_cpu_ratio"], 0.25);
        assert_eq!(comparison(&[report(300, 0), report(200, 1)]), "", "survivors are compared with nobody");
    }

    #[test]
    fn run_that_is_not_valid_leaves_every_ratio_and_says_so() {
        let (good, bad) = (report(300, 0), report(200, 1));
        assert_eq!(ratio(&good, &bad), None);
        assert!(bad.text().contains("NOT VALID, no figure: 0 errors, 1 lost"), "{}", bad.text());
        assert!(bad.one_line().contains("not valid") && !good.one_line().contains("not valid"));
        assert_eq!(bad.lines[0].spread(), None);
    }
}
