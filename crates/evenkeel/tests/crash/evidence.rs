//! What a failed cycle leaves for whoever looks into it: the data as the death left it and as the restart made it, the
//! server's log, and what `evenkeel check` says of both.
#![allow(clippy::disallowed_methods, reason = "the test copies folders outside of the server's view")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::Series;
use crate::server::tail;

/// Lines of a report that go into the failure's message.
const REPORT_LINES_MAX: usize = 40;

pub struct Evidence {
    name: String,
    /// The data as the last death left it; `None` when a failure is what the test wants.
    before: Option<PathBuf>,
}

impl Evidence {
    pub fn new(series: &Series<'_>, folder: &Path) -> Self {
        let words = series.what.split(|letter: char| !letter.is_ascii_alphanumeric());
        let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
        let name = format!("{}-{}", words.join("-"), series.seed);
        Self { name, before: series.keeps_evidence.then(|| folder.join("before")) }
    }

    /// Copies the data as a death left it, before the restart changes it.
    pub fn note(&self, data: &Path) {
        if let Some(before) = &self.before {
            let _ = std::fs::remove_dir_all(before); // there is none in the first cycle
            copy_folder(data, before);
        }
    }

    /// Keeps everything; returns the failure's message, with where to look.
    pub fn keep(&self, cycle: u64, what: &str, data: &Path, log: &Path) -> String {
        let message = format!("cycle {cycle}: {what}\nthe server's last words:\n{}", tail(log));
        let Some(before) = &self.before else { return message };
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).with_file_name("crash-evidence").join(&self.name);
        let _ = std::fs::remove_dir_all(&kept); // of an earlier run with the same seed
        copy_folder(before, &kept.join("before"));
        copy_folder(data, &kept.join("after"));
        std::fs::copy(log, kept.join("server.log")).expect("the log is copied");
        std::fs::write(kept.join("failure.txt"), &message).expect("the failure is written");
        let reports = ["before", "after"].map(|part| check(&kept.join(part)));
        format!("{message}\nkept in {}\n{}", kept.display(), reports.join("\n"))
    }
}

/// What `evenkeel check` says of a folder.
fn check(dir: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_evenkeel")).arg("check").arg(dir).output();
    let output = output.expect("evenkeel check runs");
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let shown = &lines[lines.len().saturating_sub(REPORT_LINES_MAX)..];
    format!("evenkeel check {} ({}):\n{}", dir.display(), output.status, shown.join("\n"))
}

fn copy_folder(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder for the copy is made");
    for entry in std::fs::read_dir(from).expect("the data folder is listed") {
        let entry = entry.expect("the data folder is listed");
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if source.is_dir() {
            copy_folder(&source, &target);
        } else {
            std::fs::copy(&source, &target).expect("a file is copied");
        }
    }
}
