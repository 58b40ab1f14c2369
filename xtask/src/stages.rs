//! The stages of `cargo xtask test`: what CI runs, in an order that fails early and builds once.
//!
//! Everything is built in profile `ci` (development checks, light optimization: crash and differential tests
//! are bound by the server's speed), always with `--workspace` and the features of all transports, so that features resolve alike
//! and no stage rebuilds what another built; that it compiles as users build it, stage clippy sees. Integration tests belong to a stage by the name of their file (`CLASSES`).
//!
//! Ends with a table of times and, alone on the last line, `N passed, N failed`: the sum over all test
//! binaries, where a stage that has no test binary (format, tidy, ...) counts as one.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::process::Run;
use crate::{binaries, package as packaging, packages, tidy};

/// One stage: its name and how it runs.
struct Stage {
    name: &'static str,
    run: fn(&Path, &mut Tally) -> Result<(), Failure>,
}

const STAGES: &[Stage] = &[
    Stage { name: "format", run: format },
    Stage { name: "tidy", run: |root, _| tidy::run(root, &[]) },
    Stage { name: "clippy", run: clippy },
    Stage { name: "build", run: build },
    Stage { name: "unit", run: unit },
    Stage { name: "fuzz", run: fuzz },
    Stage { name: "crash", run: crash },
    Stage { name: "clients", run: clients },
    Stage { name: "differential", run: differential },
    Stage { name: "docs", run: docs },
    Stage { name: "package", run: package },
];

/// Which stage an integration test belongs to, by what its file name starts with; all others are `unit`.
const CLASSES: &[(&str, &str)] = &[
    ("crash", "crash"),
    ("kill", "crash"),
    ("power", "crash"),
    ("client", "clients"),
    ("differential", "differential"),
];

/// Tests counted so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tally {
    passed: u64,
    failed: u64,
}

impl Tally {
    /// Adds what a line of a test binary's output says, if it is a summary line.
    fn read(&mut self, line: &str) {
        let Some((_, counts)) = line.split_once("test result: ") else { return };
        let words: Vec<&str> = counts.split_whitespace().collect();
        for pair in words.windows(2) {
            let Ok(count) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed;" => self.passed += count,
                "failed;" => self.failed += count,
                _ => {}
            }
        }
    }
}

/// Runs the named stages, or all.
///
/// # Errors
/// A stage is unknown, or at least one failed; the others ran all the same.
pub(crate) fn run(root: &Path, names: &[String]) -> Result<(), Failure> {
    let unknown = names.iter().find(|name| STAGES.iter().all(|stage| stage.name != name.as_str()));
    if let Some(name) = unknown {
        let known: Vec<&str> = STAGES.iter().map(|stage| stage.name).collect();
        return Err(format!("no stage named `{name}`: {}", known.join(" ")));
    }
    let chosen =
        STAGES.iter().filter(|stage| names.is_empty() || names.iter().any(|name| name == stage.name));
    let outcomes: Vec<Outcome> = chosen.map(|stage| run_stage(root, stage)).collect();
    summarize(&outcomes)
}

struct Outcome {
    name: &'static str,
    took: Duration,
    tally: Tally,
    failure: Option<Failure>,
}

fn run_stage(root: &Path, stage: &Stage) -> Outcome {
    println!("\n== {}", stage.name);
    let started = Instant::now();
    let mut tally = Tally::default();
    let failure = (stage.run)(root, &mut tally).err();
    let took = started.elapsed();
    if let Some(failure) = &failure {
        println!("{failure}");
    }
    match (&failure, tally) {
        (None, Tally { passed: 0, failed: 0 }) => tally.passed = 1,
        (Some(_), Tally { failed: 0, .. }) => tally.failed = 1,
        _ => {}
    }
    println!(
        "== {}: {} in {:.1} s",
        stage.name,
        if failure.is_none() { "ok" } else { "FAILED" },
        took.as_secs_f64()
    );
    Outcome { name: stage.name, took, tally, failure }
}

fn summarize(outcomes: &[Outcome]) -> Result<(), Failure> {
    println!("\n{:<14}{:>9}{:>9}{:>9}", "stage", "seconds", "passed", "failed");
    let mut sum = Tally::default();
    for outcome in outcomes {
        let Tally { passed, failed } = outcome.tally;
        println!("{:<14}{:>9.1}{passed:>9}{failed:>9}", outcome.name, outcome.took.as_secs_f64());
        sum.passed += passed;
        sum.failed += failed;
    }
    let took: Duration = outcomes.iter().map(|outcome| outcome.took).sum();
    println!("{:<14}{:>9.1}\n", "all", took.as_secs_f64());
    for outcome in outcomes {
        if let Some(failure) = &outcome.failure {
            println!("{}: {failure}", outcome.name);
        }
    }
    println!("{} passed, {} failed", sum.passed, sum.failed);
    let failed: Vec<&str> = outcomes.iter().filter(|o| o.failure.is_some()).map(|o| o.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(" "))) }
}

fn format(root: &Path, _: &mut Tally) -> Result<(), Failure> {
    Run::cargo(root).args(["fmt", "--all", "--check"]).show(&mut |_| {})
}

fn clippy(root: &Path, _: &mut Tally) -> Result<(), Failure> {
    let run = cargo(root, &["clippy", "--workspace", "--all-targets"])?;
    run.args(["--", "-D", "warnings"]).show(&mut |_| {})?;
    // As users build it: without what tests add to dependencies, and without ZeroMQ.
    let run = profiled(root, &["clippy", "--workspace", "--bins"]);
    run.args(["--", "-D", "warnings"]).show(&mut |_| {})
}

fn build(root: &Path, _: &mut Tally) -> Result<(), Failure> {
    cargo(root, &["test", "--workspace", "--no-run"])?.show(&mut |_| {})
}

fn unit(root: &Path, tally: &mut Tally) -> Result<(), Failure> {
    // Benchmarks and replays are tested beside it.
    packages::ensure(root, &[packages::REDIS_SERVER])?;
    test(root, tally, "unit", &["--lib", "--bins"], &[])
}

fn fuzz(root: &Path, tally: &mut Tally) -> Result<(), Failure> {
    // Alone, too, it runs what the source says now. A test of its package comes with the program itself, from what stage build made.
    cargo(root, &["test", "--workspace", "--no-run", "--test", "corpus"])?.show(&mut |_| {})?;
    let binary = root.join("target").join(PROFILE).join("fuzz");
    Run::new(root, &binary.to_string_lossy()).show(&mut |line| tally.read(line))
}

fn crash(root: &Path, tally: &mut Tally) -> Result<(), Failure> {
    packages::ensure(root, &[packages::REDIS_SERVER, packages::MKFS, packages::LOSETUP])?;
    test(root, tally, "crash", &[], &[])
}

fn clients(root: &Path, tally: &mut Tally) -> Result<(), Failure> {
    let programs = [
        packages::REDIS_CLI,
        packages::REDIS_BENCHMARK,
        packages::PROMETHEUS,
        packages::MEMCACHED,
        packages::POSTGRES,
        packages::MARIADB,
        packages::GDB,
        packages::GO,
        packages::CHROMIUM,
    ];
    packages::ensure(root, &programs)?;
    let python = packages::python_with_clients(root)?;
    let redis_py = packages::redis_py_source(root, &python)?;
    let variables = [
        ("EVENKEEL_PYTHON", &*python.to_string_lossy()),
        ("EVENKEEL_REDIS_PY", &*redis_py.to_string_lossy()),
    ];
    test(root, tally, "clients", &[], &variables)
}

fn differential(root: &Path, tally: &mut Tally) -> Result<(), Failure> {
    packages::ensure(root, &[packages::REDIS_SERVER])?;
    test(root, tally, "differential", &[], &[])
}

fn docs(root: &Path, tally: &mut Tally) -> Result<(), Failure> {
    let rustdoc = cargo(root, &["doc", "--workspace", "--no-deps"])?.env("RUSTDOCFLAGS", "-D warnings");
    rustdoc.show(&mut |_| {})?;
    cargo(root, &["test", "--workspace", "--doc"])?.show(&mut |line| tally.read(line))
}

fn package(root: &Path, _: &mut Tally) -> Result<(), Failure> {
    // As in stage fuzz: a test of its package brings the program.
    cargo(root, &["test", "--workspace", "--no-run", "--test", "costly"])?.show(&mut |_| {})?;
    packaging::check(root, &root.join("target").join(PROFILE).join("evenkeel"), false)
}

/// Runs the integration tests of `class`, and what `targets` names beside them.
fn test(
    root: &Path,
    tally: &mut Tally,
    class: &str,
    targets: &[&str],
    variables: &[(&str, &str)],
) -> Result<(), Failure> {
    let classes = integration_tests(root)?;
    let files = classes.get(class).map_or(&[][..], Vec::as_slice);
    if files.is_empty() && targets.is_empty() {
        return Err(format!("no integration test belongs to stage {class}"));
    }
    let mut build = cargo(root, &["test", "--workspace"])?.args(targets.iter().copied());
    for file in files {
        build = build.args(["--test", file]);
    }
    binaries::run(build, variables, &mut |line| tally.read(line))
}

/// The workspace's integration tests by stage: the names of the files in each crate's `tests` folder.
fn integration_tests(root: &Path) -> Result<BTreeMap<&'static str, Vec<String>>, Failure> {
    let metadata = tidy::metadata(root)?;
    let mut classes: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for target in package["targets"].as_array().into_iter().flatten() {
            let is_test =
                target["kind"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "test"));
            if let (true, Some(name)) = (is_test, target["name"].as_str()) {
                let names = classes.entry(class_of(name)).or_default();
                if !names.iter().any(|known| known == name) {
                    names.push(name.to_owned()); // a name that two crates use stands for both
                }
            }
        }
    }
    Ok(classes)
}

fn class_of(name: &str) -> &'static str {
    CLASSES.iter().find(|(prefix, _)| name.starts_with(prefix)).map_or("unit", |(_, class)| class)
}

/// A cargo command in the one profile that all stages share, with the features of all transports and Debian's libzmq: `zmq-sys` would
/// build its own.
fn cargo(root: &Path, arguments: &[&str]) -> Result<Run, Failure> {
    packages::ensure(root, &[packages::LIBZMQ])?;
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let linked = format!("target.{target}.zmq.rustc-link-lib=[\"zmq\"]");
    Ok(profiled(root, arguments).args([
        "--features",
        "evenkeel/zeromq,bench/zeromq",
        "--config",
        linked.as_str(),
    ]))
}

/// A cargo command in the one profile.
fn profiled(root: &Path, arguments: &[&str]) -> Run {
    let run = Run::cargo(root).args(arguments.iter().copied()).args(["--profile", PROFILE]);
    run.time_max(Duration::from_secs(1_800))
}

const PROFILE: &str = "ci";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_lines_of_several_binaries_add_up() {
        let mut tally = Tally::default();
        tally.read(
            "test result: ok. 12 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.10s",
        );
        tally.read("test that_failed ... FAILED");
        tally.read(
            "test result: FAILED. 3 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s",
        );
        assert_eq!(tally, Tally { passed: 15, failed: 2 });
    }

    #[test]
    fn integration_test_belongs_to_the_stage_that_its_name_starts_with() {
        assert_eq!(class_of("crash_kill"), "crash");
        assert_eq!(class_of("power_loss"), "crash");
        assert_eq!(class_of("clients_python"), "clients");
        assert_eq!(class_of("differential"), "differential");
        assert_eq!(class_of("commands"), "unit");
    }

    #[test]
    fn unknown_stage_is_refused_with_the_known_ones() {
        let failure = run(Path::new("/"), &["untidy".to_owned()]).unwrap_err();
        assert!(failure.contains("untidy") && failure.contains("differential"));
    }
}
