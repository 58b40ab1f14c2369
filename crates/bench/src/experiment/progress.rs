//! A line that moves while an experiment runs; only on a terminal.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::drive::Row;

/// What is done, of so many steps.
#[derive(Debug)]
pub(super) struct Progress(ProgressBar);

impl Progress {
    /// A bar of `steps`; it is not drawn where nobody looks.
    pub(super) fn new(steps: usize) -> Self {
        let bar = ProgressBar::with_draw_target(Some(steps as u64), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{elapsed:>5} [{bar:30}] {pos}/{len} {msg}");
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar.enable_steady_tick(Duration::from_millis(500));
        Self(bar)
    }

    /// Says what runs.
    pub(super) fn say(&self, what: String) {
        self.0.set_message(what);
    }

    /// Shows the newest interval of `what`.
    pub(super) fn rows(&self, what: &str, rows: &[Row]) {
        if self.0.is_hidden() {
            return;
        }
        let rate: f64 = rows.iter().map(Row::per_second).sum();
        let p99 = rows.iter().map(|row| row.latencies.quantile(0.99)).max().unwrap_or(0) as f64 / 1e3;
        self.0.set_message(format!("{what}: {rate:.0}/s, p99 {p99:.0} us"));
    }

    /// One step is done.
    pub(super) fn step(&self) {
        self.0.inc(1);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
