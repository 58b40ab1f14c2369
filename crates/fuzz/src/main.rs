//! `cargo run -p fuzz -- [--target NAME] [--seconds N] [--seed N]`: replay, mutate, save what breaks.
//!
//! Without arguments all targets share about thirty seconds. Prints the seed, which replays the run on any
//! machine that gets as far in the time.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use clock::{Clock, SystemClock};
use fuzz::{Plan, TARGETS, Target};

/// Feeds every decoder with bytes that nobody meant to send.
#[derive(Parser)]
#[command(name = "fuzz")]
struct Arguments {
    /// Only this target; all of them without it.
    #[arg(long)]
    target: Option<String>,
    /// Seconds of mutations for all targets together.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Decides every mutation; the time of day without it.
    #[arg(long)]
    seed: Option<u64>,
    /// Prints the names of the targets and ends.
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let chosen = arguments.target.as_ref();
    let targets: Vec<&Target> = TARGETS.iter().filter(|t| chosen.is_none_or(|name| t.name == name)).collect();
    if arguments.list || targets.is_empty() {
        TARGETS.iter().for_each(|target| println!("{}", target.name));
        return if arguments.list { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let seed = arguments.seed.unwrap_or_else(|| SystemClock.unix_us());
    let time = Duration::from_secs(arguments.seconds) / targets.len() as u32;
    let failed = targets.iter().filter(|target| !passes(target, Plan { time, seed })).count();
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn passes(target: &Target, plan: Plan) -> bool {
    let Target { name, .. } = target;
    match fuzz::run(target, plan) {
        Ok(tried) => {
            println!("{name}: {tried} inputs, seed {}", plan.seed);
            println!("test result: ok. 1 passed; 0 failed;");
            true
        }
        Err(finding) => {
            println!("{name}: seed {}: {}", plan.seed, finding.what);
            match finding.save(&target.corpus()) {
                Ok(path) => {
                    println!("{name}: input of {} bytes saved as {}", finding.input.len(), path.display());
                }
                Err(error) => println!("{name}: input {:02x?} not saved: {error}", finding.input),
            }
            println!("test result: FAILED. 0 passed; 1 failed;");
            false
        }
    }
}
