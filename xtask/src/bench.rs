//! `cargo xtask bench`: builds the optimized binaries once and hands over to the harness in `crates/bench`.

use std::path::Path;
use std::time::Duration;

use crate::process::Run;
use crate::{Failure, packages};

/// Builds the server and the harness with profile `release`, then runs the harness with `arguments`.
///
/// # Errors
/// A package is missing, the build fails, or a comparison could not be measured.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    packages::ensure(root, &[packages::REDIS_SERVER, packages::REDIS_BENCHMARK])?;
    let build = ["build", "--release", "-p", "evenkeel", "-p", "bench", "--bins"];
    Run::cargo(root).args(build).time_max(Duration::from_secs(1_800)).show(&mut |_| {})?;
    let harness = root.join("target/release/evenkeel-bench");
    let run = Run::new(root, &harness.to_string_lossy()).args(["suite"]).args(arguments.iter().cloned());
    run.time_max(Duration::from_secs(6 * 3_600)).show(&mut |_| {})
}
