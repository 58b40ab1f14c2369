//! The usual commands of each type beside Redis and Valkey: `evenkeel bench collections --only types`.
//!
//! The figures of both groups are plotted by type (`collections::plots`).

use serde_json::Value;

use crate::Failure;
use crate::figure::{Figure, Series};

use super::context::Context;
use super::reported::{Reported, values};

/// Without a log.
pub(super) fn no_log(context: &Context) -> Result<Vec<Figure>, Failure> {
    of_setting(context, "types", "no-log")
}

/// Durable before the reply.
pub(super) fn durable(context: &Context) -> Result<Vec<Figure>, Failure> {
    of_setting(context, "types-durable", "durable")
}

/// Three runs, with which a group takes less than twenty minutes.
fn of_setting(context: &Context, group: &str, setting: &str) -> Result<Vec<Figure>, Failure> {
    let (runs, folder) = (context.runs.min(RUNS_MAX).to_string(), context.folder.to_string_lossy());
    let fixed = ["collections", "--only", "types", "--against", "redis,valkey", "--json"];
    let given = ["--settings", setting, "--runs", &runs, "--folder", &folder];
    let quick: &[&str] = if context.quick { &["--duration", "200ms"] } else { &[] };
    let Reported { command, report, .. } = Reported::of(&[&fixed[..], &given, quick].concat())?;
    let figures = report["figures"].as_array().into_iter().flatten();
    let mut figures = figures.map(|it| figure(it, group)).collect::<Result<Vec<_>, _>>()?;
    // It is the same for all.
    if let Some(first) = figures.first_mut() {
        first.commands.push(command);
    }
    Ok(figures)
}

/// A figure of the report, as one of `group`.
fn figure(reported: &Value, group: &str) -> Result<Figure, Failure> {
    let text =
        |value: &Value| value.as_str().map(str::to_owned).ok_or_else(|| format!("no text: {reported}"));
    let id = text(&reported["id"])?;
    let name = id.split_once('/').map_or(&*id, |(_, name)| name);
    let peer = &reported["against"];
    let theirs = match peer {
        Value::Null => None,
        peer => Some(Series::new(&text(&peer["server"])?, values(&peer["runs"]))),
    };
    let ours = Series::new("evenkeel", values(&reported["runs"]));
    let peer = theirs.as_ref().map(|series| series.label.clone());
    let (title, unit) = (text(&reported["subject"])?, text(&reported["unit"])?);
    let figure = Figure::new(&format!("{group}/{name}"), &title, None, &unit, ours, theirs);
    Ok(Figure { peer, ..figure })
}

const RUNS_MAX: usize = 3;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn figure_of_the_report_keeps_its_runs_and_belongs_to_the_group() {
        let against = json!({"server": "Valkey 9.1.2", "value": 2.0, "runs": [1.0, 2.0, 4.0], "ratio": 2.0});
        let reported = json!({"id": "types/sets-sadd-durable-1-valkey", "subject": "SADD", "unit": "requests/s",
                              "runs": [2.0, 4.0, 8.0], "against": against});
        let of_group = figure(&reported, "types-durable").expect("a figure");
        assert_eq!(of_group.id, "types-durable/sets-sadd-durable-1-valkey");
        assert_eq!(of_group.outcomes(), [2.0, 2.0, 2.0]);
        assert_eq!(of_group.heading(), "SADD, beside Valkey 9.1.2");
        assert_eq!(of_group.b.map(|b| b.label).as_deref(), Some("Valkey 9.1.2"));
        assert!(figure(&json!({"id": 1}), "types").is_err());
    }
}
