//! The binary: `serve`, `check`, `backup`.
//!
//! It reads the command line, wires settings to store, reactor and server, and turns every failure into one line on
//! standard error and an exit status: 2 for a wrong setting or flag, 1 for anything else. What it does not have: commands
//! (`server`), data (`store`), sockets (`reactor`).

mod backup;
mod check;
mod cli;
mod greeting;
mod logging;
mod machine;
mod notify;
mod running;
mod serve;

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    let request = match cli::parse(std::env::args_os()) {
        Ok(request) => request,
        Err(message) => return fail(&message, 2),
    };
    let done = match request {
        cli::Request::Print(text) => {
            // A reader that stops reading (head) is no failure.
            let _ = std::io::stdout().write_all(text.as_bytes());
            Ok(())
        }
        cli::Request::Backup { dir, out } => backup::run(&dir, &out),
        cli::Request::Serve { settings, file } => serve::run(*settings, file),
        cli::Request::Check { dir, salvage } => check::run(&dir, salvage.as_deref()),
    };
    done.map_or_else(|message| fail(&message, 1), |()| ExitCode::SUCCESS)
}

fn fail(message: &str, status: u8) -> ExitCode {
    eprintln!("evenkeel: {message}");
    ExitCode::from(status)
}
