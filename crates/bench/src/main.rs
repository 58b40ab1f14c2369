//! The command line of the harness: `evenkeel-bench suite | limit | ...`; `cargo xtask bench` calls `suite`.
//!
//! Each subcommand can be run alone, so that any figure can be repeated by hand with the command beside it.

#![allow(
    clippy::disallowed_methods,
    reason = "measures the real machine from outside: no simulation runs it"
)]

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use bench::count::Counts;
use bench::limit::{self, Limit};
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "evenkeel-bench", about = "Limit servers, load generators and comparisons")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// The bare epoll server: answers +OK to so many bytes; a line on its input makes it print its counts
    Limit {
        #[arg(long, default_value_t = 7001)]
        port: u16,
        /// Loops, each a thread with its own epoll
        #[arg(long, default_value_t = 2)]
        loops: usize,
        /// Bytes of every request
        #[arg(long, default_value_t = 144)]
        request_bytes: usize,
        /// Write each loop's batch to FILE.<loop> (written before) and sync it before the replies leave
        #[arg(long, value_name = "FILE")]
        journal: Option<PathBuf>,
        /// Count requests by parsing RESP instead of dividing
        #[arg(long)]
        parse: bool,
    },
}

fn main() -> ExitCode {
    let outcome = match Arguments::parse().task {
        Task::Limit { port, loops, request_bytes, journal, parse } => {
            serve_limit(port, &Limit { loops, request_bytes, journal, parse })
        }
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("evenkeel-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve_limit(port: u16, limit: &Limit) -> Result<(), String> {
    let listener = TcpListener::bind(("127.0.0.1", port)).map_err(|error| format!("port {port}: {error}"))?;
    let counts = Arc::new(Counts::default());
    let asked = Arc::clone(&counts);
    let answer = move || {
        for _ in std::io::stdin().lines().map_while(Result::ok) {
            let (requests, syncs) = (&asked.requests, &asked.syncs);
            println!("{} {}", requests.load(Ordering::Relaxed), syncs.load(Ordering::Relaxed));
        }
    };
    std::thread::Builder::new().name("counts".to_owned()).spawn(answer).map_err(|error| error.to_string())?;
    limit::serve(&listener, limit, &counts).map_err(|error| error.to_string())
}
