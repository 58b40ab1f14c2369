//! Test binaries, side by side: what waits for a server or a disk leaves a core to another.
//!
//! ```text
//!  cargo test --no-run --message-format json ──> binaries ──> queue ──> a lane ──> output, as a whole, when it has ended
//!                                                               └────> a lane
//! ```
//!
//! Tests measure no time, but for those of benchmarks, whose shortest runs are to have figures: they run alone, after all others.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::failure::Failure;
use crate::process::Run;

/// A program with tests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Binary {
    program: PathBuf,
    /// Where its package is: tests find their files from there.
    folder: PathBuf,
    /// Its source, within the package.
    source: String,
}

/// Builds what `cargo`, a `cargo test`, names, and runs it with `variables`; each line that a binary writes goes to `on_line`.
///
/// # Errors
/// What does not build; a binary could not start, took too long, or a test of it failed; the others ran all the same.
pub(crate) fn run(
    cargo: Run,
    variables: &[(&str, &str)],
    on_line: &mut dyn FnMut(&str),
) -> Result<(), Failure> {
    let artifacts = cargo.args(["--no-run", "--message-format", "json-render-diagnostics"]).read()?;
    let mut binaries: Vec<Binary> = artifacts.lines().filter_map(binary).collect();
    // The largest have the most to do: they are not left for the end, where the other lanes have nothing.
    binaries.sort_by_key(|binary| std::cmp::Reverse(binary.program.metadata().map_or(0, |it| it.len())));
    if binaries.is_empty() {
        return Err("no test binary was built".to_owned());
    }
    let (alone, others): (Vec<&Binary>, Vec<&Binary>) =
        binaries.iter().partition(|binary| binary.source.contains(MEASURES));
    let mut failed = run_in_lanes(&others, LANES, variables, on_line);
    failed.extend(run_in_lanes(&alone, 1, variables, on_line));
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// Runs `binaries`, so many at a time; returns the names of those that failed.
fn run_in_lanes(
    binaries: &[&Binary],
    lanes: usize,
    variables: &[(&str, &str)],
    on_line: &mut dyn FnMut(&str),
) -> Vec<String> {
    let queue = Mutex::new(binaries.iter());
    let (ended, results) = mpsc::channel();
    let mut failed = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..lanes {
            let (queue, ended) = (&queue, ended.clone());
            scope.spawn(move || {
                loop {
                    let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some(binary) = next else { break };
                    let started = Instant::now();
                    let outcome = run_one(binary, variables);
                    if ended.send((binary, started.elapsed(), outcome)).is_err() {
                        break;
                    }
                }
            });
        }
        drop(ended);
        for (binary, took, outcome) in results {
            println!("\n     Running {} ({:.1} s)", binary.name(), took.as_secs_f64());
            match outcome {
                Ok((output, is_well)) => {
                    println!("{output}");
                    output.lines().for_each(&mut *on_line);
                    if !is_well {
                        failed.push(binary.name());
                    }
                }
                Err(failure) => {
                    println!("{failure}");
                    failed.push(binary.name());
                }
            }
        }
    });
    failed
}

fn run_one(binary: &Binary, variables: &[(&str, &str)]) -> Result<(String, bool), Failure> {
    let folder = binary.folder.to_string_lossy();
    let mut run = Run::new(&binary.folder, &binary.program.to_string_lossy()).time_max(TIME_MAX);
    for (name, value) in variables {
        run = run.env(name, value);
    }
    run.env("CARGO_MANIFEST_DIR", &folder).all_output()
}

impl Binary {
    fn name(&self) -> String {
        let package = self.folder.file_name().unwrap_or_default();
        format!("{} {}", package.to_string_lossy(), self.source)
    }
}

/// The test binary that a line of cargo tells of, if it does.
fn binary(line: &str) -> Option<Binary> {
    let told: Value = serde_json::from_str(line).ok()?;
    let is_test = told["reason"] == "compiler-artifact" && told["profile"]["test"] == true;
    let program = PathBuf::from(told["executable"].as_str().filter(|_| is_test)?);
    let folder = Path::new(told["manifest_path"].as_str()?).parent()?.to_path_buf();
    let source = Path::new(told["target"]["src_path"].as_str()?);
    let source = source.strip_prefix(&folder).unwrap_or(source).to_string_lossy().into_owned();
    Some(Binary { program, folder, source })
}

/// In the name of a source whose tests measure.
const MEASURES: &str = "bench";
/// Binaries that run at a time: each has as many threads as there are cores.
const LANES: usize = 2;
/// The longest run takes a tenth of it.
const TIME_MAX: Duration = Duration::from_secs(1_200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binary_is_what_cargo_has_made_for_tests() {
        let told = |test: bool, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"manifest_path\":\"/w/crates/a/Cargo.toml\",\"profile\":{{\"test\":{test}}},\
                 \"target\":{{\"src_path\":\"/w/crates/a/tests/t.rs\"}},\"executable\":{executable}}}"
            )
        };
        let expected = Binary {
            program: "/t/deps/t-1".into(),
            folder: "/w/crates/a".into(),
            source: "tests/t.rs".to_owned(),
        };
        assert_eq!(expected.name(), "a tests/t.rs");
        assert_eq!(binary(&told(true, "\"/t/deps/t-1\"")), Some(expected));
        assert_eq!(binary(&told(false, "\"/t/a\"")), None);
        assert_eq!(binary(&told(true, "null")), None);
        assert_eq!(binary("{\"reason\":\"build-finished\",\"success\":true}"), None);
        assert_eq!(binary("no JSON"), None);
    }
}
