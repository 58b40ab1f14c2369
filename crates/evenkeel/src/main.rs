//! The binary: `serve`, `check`, `backup`, `capture`, `tx`, `bench`.
//!
//! It reads the command line, wires settings to store, reactor and server, and turns every failure into one line on
//! standard error and an exit status: 2 for a wrong setting or flag, 1 for anything else, 3 for a measurement that is not valid. What it does not have: commands
//! (`server`), data (`store`), sockets (`reactor`).

mod allocator;
mod backup;
mod capture;
mod check;
mod cli;
mod client;
mod greeting;
mod logging;
mod machine;
mod notify;
mod peer;
mod reload;
mod running;
mod serve;
#[cfg(debug_assertions)]
mod steps;
mod tx;
mod watching;

use std::process::ExitCode;

fn main() -> ExitCode {
    allocator::tune();
    let request = match cli::parse(std::env::args_os()) {
        Ok(request) => request,
        Err(message) => return fail(&message, 2),
    };
    let done = match request {
        cli::Request::Print(text) => {
            say(std::io::stdout(), &text);
            Ok(())
        }
        cli::Request::Bench(bench) => return bench::experiment::run(&bench),
        cli::Request::Capture(options) => capture::run(&options),
        cli::Request::Tx(options) => tx::run(&options),
        cli::Request::Backup { dir, out } => backup::run(&dir, &out),
        cli::Request::Serve { settings, file } => serve::run(*settings, file),
        cli::Request::Check { dir, salvage } => check::run(&dir, salvage.as_deref()),
    };
    done.map_or_else(|message| fail(&message, 1), |()| ExitCode::SUCCESS)
}

fn fail(message: &str, status: u8) -> ExitCode {
    say(std::io::stderr(), &format!("evenkeel: {message}\n"));
    ExitCode::from(status)
}

/// Writes `text`, if anybody takes it: a reader that stopped reading (head) or a full disk is no reason to fail, and
/// `println!` would end the process.
fn say(mut to: impl std::io::Write, text: &str) {
    let _ = to.write_all(text.as_bytes()).and_then(|()| to.flush());
}
