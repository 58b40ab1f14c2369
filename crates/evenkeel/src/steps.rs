//! Builds with debug assertions stop themselves at a step of a transaction, when a drill says so; releases have none of this.
//!
//! `EVENKEEL_STOP_FILE` names a file that a drill writes: `STEP COUNT`, as in `decided 2`. When that step is reached for the `COUNT`th time
//! after the file was written, the file is removed and the process stops (SIGSTOP), until it is continued or killed. Without the
//! variable nothing is looked at.
#![allow(clippy::disallowed_methods, reason = "a drill speaks through a file of its own")]

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use signal_hook::consts::SIGSTOP;
use signal_hook::low_level::raise;
use txn::steps::{Step, set_hook};

/// What the file said last, and how often its step was reached since.
#[derive(Debug, Default)]
struct Order {
    text: String,
    reached: u64,
}

/// Does from now on what the drill says, if there is one.
pub(crate) fn obey() {
    let Some(path) = std::env::var_os("EVENKEEL_STOP_FILE") else { return };
    let order = Mutex::new(Order::default());
    set_hook(Box::new(move |step| {
        let mut order = order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.is_due(step, Path::new(&path)) && std::fs::remove_file(&path).is_ok() {
            *order = Order::default();
            let _ = raise(SIGSTOP); // it cannot be refused
        }
    }));
}

impl Order {
    /// Counts `step`; true if it is the one to stop at.
    fn is_due(&mut self, step: Step, path: &Path) -> bool {
        let Ok(text) = std::fs::read_to_string(path) else { return false };
        if text != self.text {
            *self = Self { text, reached: 0 };
        }
        let Some((name, count)) = self.text.trim().split_once(' ') else { return false };
        if name != step.name() {
            return false;
        }
        self.reached += 1;
        count.parse() == Ok(self.reached)
    }
}
