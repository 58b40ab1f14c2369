//! `cargo xtask bench`: builds the optimized binaries once and hands over to the harness in `crates/bench`.

use std::path::Path;
use std::time::Duration;

use crate::failure::Failure;
use crate::process::Run;
use crate::{packages, valkey};

/// Builds the server and the harness with profile `release`, then runs the harness with `arguments`.
///
/// # Errors
/// A package is missing, the build fails, or a comparison could not be measured.
pub(crate) fn run(root: &Path, arguments: &[String]) -> Result<(), Failure> {
    packages::ensure(root, &[packages::REDIS_SERVER, packages::REDIS_BENCHMARK])?;
    if ["map", "tx-narayana", "transport", "topology"].iter().any(|group| measures(group, arguments)) {
        packages::ensure(root, &[packages::JAVA, packages::MAVEN])?;
    }
    if measures("tx-narayana", arguments) {
        packages::ensure(root, &[packages::LIBAIO])?;
    }
    if measures("transfers", arguments) {
        packages::ensure(root, &[packages::POSTGRES, packages::MARIADB])?;
    }
    let build = ["build", "--release", "-p", "evenkeel", "-p", "bench", "--bins"];
    let with_zeromq = ["transport", "topology"].iter().any(|group| measures(group, arguments));
    let zeromq: &[&str] = if with_zeromq { &["--features", "evenkeel/zeromq,bench/zeromq"] } else { &[] };
    Run::cargo(root)
        .args(build)
        .args(zeromq.iter().copied())
        .time_max(Duration::from_secs(1_800))
        .show(&mut |_| {})?;
    let harness = root.join("target/release/evenkeel-bench");
    let mut run = Run::new(root, &harness.to_string_lossy()).args(["suite"]).args(arguments.iter().cloned());
    if ["types", "types-durable"].iter().any(|group| measures(group, arguments)) {
        let server = valkey::ensure(root)?;
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let folders =
            server.parent().map(Path::to_path_buf).into_iter().chain(std::env::split_paths(&folders));
        let path = std::env::join_paths(folders).map_err(|error| format!("PATH: {error}"))?;
        run = run.env("PATH", &path.to_string_lossy());
    }
    run.time_max(Duration::from_secs(6 * 3_600)).show(&mut |_| {})
}

/// Whether `group` is among those that `arguments` name; all are when none is.
fn measures(group: &str, arguments: &[String]) -> bool {
    let is_name = |argument: &&String| argument.starts_with(|c: char| c.is_ascii_lowercase());
    let mut names = arguments.iter().filter(is_name).peekable();
    if names.peek().is_none() {
        !arguments.iter().any(|a| a == "--list" || a == "--help")
    } else {
        names.any(|name| name == group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn group_is_measured_when_it_is_named_or_none_is() {
        let is =
            |words: &str| measures("map", &words.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        assert!(is("") && is("--quick --runs 3") && is("skew map --runs 3"));
        assert!(!is("skew --runs 3") && !is("--list"));
    }
}
