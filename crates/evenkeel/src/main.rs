//! The binary: `serve`, `check`, `backup`, `capture`, `tx`, `topology`, `worker`, `bench`, `generate`, `import`, `export`.
//!
//! It reads the command line, wires settings to store, reactor and server, and turns every failure into one line on
//! standard error and an exit status: 2 for a wrong setting or flag, 1 for anything else. What it does not have: commands
//! (`server`), data (`store`), sockets (`reactor`).

mod allocator;
mod backup;
mod bench;
mod capture;
mod check;
mod cli;
mod client;
mod exposure;
mod failure;
mod generate;
mod greeting;
mod logging;
mod machine;
mod notify;
mod output;
mod peer;
mod reload;
mod reply;
mod running;
mod secure;
mod serve;
mod small;
#[cfg(debug_assertions)]
mod steps;
mod supervising;
mod topologies;
mod transfer;
mod tx;
mod watching;

use std::process::ExitCode;

use output::say;

fn main() -> ExitCode {
    allocator::tune();
    let request = match cli::parse(std::env::args_os()) {
        Ok(request) => request,
        Err(failure) => return fail(&failure),
    };
    let done = match request {
        cli::Request::Print(text) => {
            say(std::io::stdout(), &text);
            Ok(())
        }
        cli::Request::Bench(arguments) => bench::run(&arguments),
        cli::Request::Capture(options) => capture::run(&options),
        cli::Request::Component(words) => topologies::component(&words),
        cli::Request::Topology(options) => topologies::run(&options),
        cli::Request::Worker => topologies::worker::run(),
        cli::Request::Import(options) => transfer::import(&options),
        cli::Request::Export(options) => transfer::export(&options),
        cli::Request::Tx(options) => tx::run(&options),
        cli::Request::Backup { dir, out, secure } => backup::run(&dir, &out, &secure),
        cli::Request::Generate { out } => generate::run(cli::command(), &out),
        cli::Request::Serve { settings, file } => serve::run(*settings, file),
        cli::Request::Check { dir, salvage } => check::run(&dir, salvage.as_deref()),
    };
    done.map_or_else(|failure| fail(&failure), |()| ExitCode::SUCCESS)
}

fn fail(failure: &failure::Failure) -> ExitCode {
    say(std::io::stderr(), &format!("evenkeel: {failure}\n"));
    ExitCode::from(failure.status())
}
