//! Everything that a developer or CI runs: `cargo xtask test | tidy | docs | bench | planted | package | release | storm | valkey | words`.
//!
//! Depends on nothing of the workspace, so that it builds in seconds and can judge a tree that does not
//! compile. `test` (module `stages`) runs the stages that CI runs, `tidy` checks what the compiler cannot
//! (floor plan, headers, lengths, module cycles, links), `docs` builds the manual as a site, `bench` builds the optimized binaries and hands over to the
//! harness in `crates/bench`, `storm` has Apache Storm's Flux read our definitions, `valkey` builds a server to compare with, `words` counts words with pystorm, `planted` asks whether the simulation finds bugs that it is given, `package` makes what users install, `release` checks before it does.

#![allow(
    clippy::disallowed_methods,
    reason = "a developer's tool: it reads the tree and the clock directly, no simulation runs it"
)]

mod bench;
mod binaries;
mod failure;
mod manual;
mod package;
mod packages;
mod planted;
mod process;
mod stages;
mod storm;
mod tidy;
mod valkey;
mod words;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (task, rest) = match arguments.split_first() {
        Some((task, rest)) => (task.as_str(), rest),
        None => ("help", [].as_slice()),
    };
    let root = workspace_root();
    let outcome = match task {
        "test" => stages::run(&root, rest),
        "tidy" => tidy::run(&root, rest),
        "docs" => manual::run(&root, rest),
        "bench" => bench::run(&root, rest),
        "planted" => planted::run(&root, rest),
        "package" => package::run(&root, rest),
        "release" => package::release(&root, rest),
        "storm" => storm::run(&root),
        "words" => words::run(&root, rest),
        "valkey" => valkey::run(&root),
        "help" | "--help" | "-h" => {
            println!("{HELP}");
            Ok(())
        }
        other => Err(format!("no task named `{other}`\n\n{HELP}")),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("xtask: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// The folder of the workspace: cargo states where this crate is, and the workspace is its parent.
fn workspace_root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().map_or_else(|| here.to_path_buf(), Path::to_path_buf)
}

const HELP: &str = "\
cargo xtask test [STAGE...]     all stages, or the named ones, in the order below
    format        cargo fmt --check
    tidy          floor plan, headers, lengths, links
    clippy        every target, warnings denied
    build         every test binary and the server, once, in profile `ci`
    unit          unit tests, and integration tests that belong to no stage below
    fuzz          every decoder's corpus, then mutations for a fixed time
    crash         kill -9 and power-loss cycles (tests named crash*, kill*, power*)
    clients       redis-cli, redis-py, redis-rs, Go, job queues, databases, Prometheus, memcached, Chromium (tests named client*)
    differential  random commands beside redis-server (tests named differential*)
    docs          rustdoc without warnings, examples in the docs
    package       packages of the program in profile `ci`: content, the unit's score, a life from installation to purge

cargo xtask planted [NAME...]   bugs planted in a copy of the tree: does the simulation find each?

cargo xtask package [--binary PATH] [--check] [--systemd]
                                a Debian package, an archive, a container file and checksums, in target/package; of PATH, or of a build in
                                profile `dist`. --check makes none and does what stage `package` does; --systemd has a systemd of its own for it

cargo xtask release VERSION     is the tree ready to be VERSION? Then packages, and what to push

cargo xtask storm               does Flux's own parser take our definitions? Needs Java and Maven

cargo xtask valkey              builds valkey-server of Debian sid below target/ once, prints its path

cargo xtask words [--text-mb N] [--runs N] [--codec json|msgpack] [--storm] [--binary PATH]
                                pystorm's word count over generated text, beside a plain program

cargo xtask tidy [--update]     the checks of stage `tidy`; --update shrinks the list of long functions

cargo xtask docs                the manual as a site with search, in target/manual/html; installs mdBook below target/

cargo xtask bench [NAME...] [--quick] [--runs N]
                                comparisons side by side, written to docs/benchmarks/figures.md; --help lists them";
