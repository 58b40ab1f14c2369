//! Resident memory under churn: `evenkeel bench churn` on each engine.

use crate::Failure;
use crate::figure::{Figure, Series, Target};

use super::context::Context;
use super::reported::Reported;

/// Twenty minutes of each engine, whatever the number of runs.
pub(super) fn churn(context: &Context) -> Result<Vec<Figure>, Failure> {
    let duration = if context.quick { "10s" } else { "20m" };
    let (folder, loops) = (context.folder.to_string_lossy(), context.loops.to_string());
    let of_engine = |engine: &str| -> Result<Figure, Failure> {
        let shape = ["--engine", engine, "--duration", duration, "--loops", &loops, "--folder", &folder];
        let Reported { command, report, .. } = Reported::of(&[&["churn", "--json"][..], &shape].concat())?;
        let ratio = |name: &str| report[name].as_f64().ok_or_else(|| format!("no {name} in the report"));
        let note = format!(
            "{:.3} without what was resident at the start; {} GiB were written.",
            ratio("ratio_without_start")?,
            report["written_bytes"].as_u64().unwrap_or(0) >> 30
        );
        let id = format!("churn/{engine}");
        let title = format!(
            "engine {engine}, {duration} of values from 16 B to 64 KiB that come and go: most that was resident / memory.limit of 256 MiB"
        );
        let series = Series::new(&format!("evenkeel {engine}"), vec![ratio("ratio")?]);
        let figure = Figure::new(&id, &title, Some(Target::AtMost(1.10)), "times", series, None);
        Ok(figure.note(&note).by([command]))
    };
    Ok(vec![of_engine("log")?, of_engine("memory")?])
}
