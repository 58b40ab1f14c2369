//! The binary.

mod cli;

use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        Ok(cli::Request::Print(text)) => {
            let _ = std::io::stdout().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Ok(_) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("evenkeel: {message}");
            ExitCode::from(2)
        }
    }
}
