//! `evenkeel bench`: the reports' experiments, with their parameters as defaults, for any server of Redis's protocol,
//! for memcached, and (the map test) for Hazelcast.
//!
//! An experiment starts servers (`host`) or takes the one it is told, drives them with the load engine
//! ([`crate::drive`]), and makes a `Report` of each: text, one line, JSON or HTML. A run in which anything failed or was
//! lost is not valid: it is said so, leaves every ratio and mean, and ends the program with a status of its own.

mod arguments;
mod churn;
mod collections;
mod hazelcast;
mod host;
mod html;
mod map_test;
mod measure;
mod origin;
mod progress;
mod remote_test;
mod replay;
mod report;
mod skew;
mod topology;
mod transfers;
mod transport;
mod tx;

use std::io::Write;
use std::process::ExitCode;

use clap::Subcommand;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::Failure;
use crate::{drive, servers};
use arguments::Shown;
use report::Report;

/// An experiment and its arguments.
#[derive(Debug, Subcommand)]
pub enum Experiment {
    /// Voldemort's remote test: iterations of writes and deletes by many clients; detects lost keys
    RemoteTest(remote_test::RemoteTest),
    /// Hazelcast's map test: gets and puts by a few threads, in runs on fresh servers, with their spread
    MapTest(map_test::MapTest),
    /// Connections that load the event loops unevenly, with and without the balancer
    Skew(skew::Skew),
    /// Replay what `evenkeel capture` recorded against any server, and compare with the recording
    Replay(replay::Replay),
    /// Empty transactions over two resources: the transaction manager and its decision logs, compared with the bare disk
    Tx(tx::Tx),
    /// Money transfers between PostgreSQL, MariaDB and keys, compared with a program that prepares and commits both databases itself
    Transfers(transfers::Transfers),
    /// Messages between two nodes, of 16 B to 64 KiB, beside a plain batched loop over TCP
    Transport(transport::Transport),
    /// A topology in this process: spouts, levels of bolts, messages of 16 B to 4 KiB, acknowledged or not
    Topology(topology::Topology),
    /// Keys of all sizes come and go on a server with a small memory.limit; says how much of it is resident at most
    Churn(churn::Churn),
    /// Hashes, lists, sets, sorted sets and streams: rates, memory, reads and writes of the device, stalls, beside Redis
    Collections(collections::Collections),
    /// Part of a load of several processes
    #[command(hide = true)]
    Worker,
    /// The receiving side of `transport`
    #[command(hide = true)]
    TransportReceiver,
}

/// How another copy of this program becomes a load process.
const WORKER: [&str; 1] = ["worker"];

/// Runs the experiment and prints its reports; what the process ends with.
///
/// Status 0 is a valid run, 1 one that could not be made, 3 one that was made and is not valid.
pub fn run(experiment: &Experiment) -> ExitCode {
    if let Err(error) = clean_up_when_told_to_end() {
        return ended(Err(format!("cannot listen to signals: {error}")));
    }
    let (shown, reports) = match experiment {
        Experiment::RemoteTest(test) => (&test.common.shown, test.run()),
        Experiment::MapTest(test) => (&test.common.shown, test.run()),
        Experiment::Skew(test) => (&test.common.shown, test.run()),
        Experiment::Replay(test) => (&test.common.shown, test.run()),
        Experiment::Tx(test) => (&test.shown, test.run()),
        Experiment::Transfers(test) => (&test.shown, test.run()),
        Experiment::Transport(test) => (&test.shown, test.run()),
        Experiment::Topology(test) => (&test.shown, test.run()),
        Experiment::Churn(test) => (&test.shown, test.run()),
        Experiment::Collections(test) => {
            return ended(test.run().map(|(text, is_valid)| print(&text, is_valid)));
        }
        Experiment::TransportReceiver => {
            return ended(crate::transport::receive_for_parent().map(|()| true));
        }
        Experiment::Worker => return ended(drive::work_for_parent().map(|()| true)),
    };
    ended(reports.and_then(|reports| show(shown, &reports)))
}

/// Has Ctrl-C and SIGTERM end the servers that were started, and remove their folders.
fn clean_up_when_told_to_end() -> std::io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM])?;
    let wait = move || {
        if let Some(signal) = signals.forever().next() {
            servers::end_all();
            std::process::exit(128 + signal);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(wait).map(drop)
}

/// Prints the reports; whether all are valid.
fn show(shown: &Shown, reports: &[Report]) -> Result<bool, Failure> {
    if let Some(path) = &shown.html {
        std::fs::write(path, html::page(reports, &origin::of_this_run()))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let mut text = String::new();
    for report in reports {
        text += &if shown.quiet { report.one_line() } else { report.text() };
    }
    if !shown.quiet {
        text += &report::comparison(reports);
    }
    if shown.json {
        text += &format!("{}\n", report::json(reports));
    }
    Ok(print(&text, reports.iter().all(Report::is_valid)))
}

/// Prints `text`; returns `is_valid`. A reader that stopped reading is no failure of the experiment.
fn print(text: &str, is_valid: bool) -> bool {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    is_valid
}

fn ended(outcome: Result<bool, Failure>) -> ExitCode {
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(STATUS_INVALID),
        Err(failure) => {
            let _ = writeln!(std::io::stderr(), "evenkeel: {failure}");
            ExitCode::FAILURE
        }
    }
}

/// A run was made, and is no figure: a script that goes on must do so knowingly.
const STATUS_INVALID: u8 = 3;
