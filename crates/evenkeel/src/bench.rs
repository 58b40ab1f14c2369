//! `evenkeel bench`: hands over to `evenkeel-bench`, a program of its own.
//!
//! A server needs none of what measures servers: load engines, drivers of databases, plots. The program is looked for
//! beside this one, where a build puts it, and then on the PATH. It takes the place of this process, so signals and the exit
//! status are its own.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::failure::Failure;

/// Replaces this process with `evenkeel-bench`, which gets `arguments`.
///
/// # Errors
/// The program is not there, or cannot be started: one line that says how to build it. On success it does not return.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    let beside = std::env::current_exe().ok().map(|program| program.with_file_name(NAME));
    let programs = beside.iter().map(|path| path.as_path()).chain([Path::new(NAME)]);
    for program in programs {
        let error = Command::new(program).args(arguments).exec();
        if error.kind() != io::ErrorKind::NotFound {
            return Err(Failure::System(format!("cannot start {}: {error}", program.display())));
        }
    }
    Err(Failure::Place(format!(
        "{NAME} is neither beside this program nor on the PATH: build it with `cargo build --release -p bench`"
    )))
}

const NAME: &str = "evenkeel-bench";
