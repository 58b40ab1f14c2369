//! `evenkeel import` and `evenkeel export`: keys of Redis into a running server, and out of it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use connection::{ClientError, Target};
use migrate::{Control, Existing, Exported, FileKind, MigrateError, Source};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::client::{self, Server};
use crate::failure::Failure;
use crate::output::say;

/// The arguments of `evenkeel import`.
#[derive(Debug, Args)]
pub(crate) struct Import {
    /// File (RDB or AOF), folder of AOF files, or URL of a running Redis or Valkey: redis://USER:PASSWORD@HOST:PORT, where user, password and port may be left out
    #[arg(value_name = "FILE|FOLDER|URL")]
    source: String,
    #[command(flatten)]
    server: Server,
    /// Take only keys of this database
    #[arg(long, value_name = "N")]
    db: Option<u64>,
    /// Replace keys that are imported and exist already
    #[arg(long, conflicts_with_all = ["skip_existing", "flush"])]
    replace: bool,
    /// Keep keys that exist already
    #[arg(long, conflicts_with = "flush")]
    skip_existing: bool,
    /// Remove all keys of the server first
    #[arg(long)]
    flush: bool,
    /// Only read and report; needs no server
    #[arg(long)]
    dry_run: bool,
    /// From a running server: end once all has come, do not follow
    #[arg(long)]
    until_synced: bool,
}

/// The arguments of `evenkeel export`.
#[derive(Debug, Args)]
pub(crate) struct Export {
    /// File to write (RDB); one that exists is replaced at the end
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    server: Server,
    /// Keep the deadlines of fields of hashes: only Redis from 7.4 on loads the file
    #[arg(long)]
    field_expiry: bool,
}

/// Imports, and prints what was taken.
///
/// # Errors
/// One line: what could not be read, a server that went away, or that not all was taken.
pub(crate) fn import(options: &Import) -> Result<(), Failure> {
    let existing = match (options.replace, options.skip_existing, options.flush) {
        (true, ..) => Existing::Replace,
        (_, true, _) => Existing::Keep,
        (.., true) => Existing::Flush,
        _ => Existing::Refuse,
    };
    let wanted = migrate::Import {
        source: source(&options.source)?,
        db: options.db,
        existing,
        dry_run: options.dry_run,
        until_synced: options.until_synced,
    };
    let report = transfer(&options.server, |connect, control| migrate::import(&wanted, connect, control))?;
    say(std::io::stdout(), &report.to_string());
    if report.is_whole() { Ok(()) } else { Err(Failure::Data("not all was imported: see above".to_owned())) }
}

fn source(text: &str) -> Result<Source, Failure> {
    if text.contains("://") {
        let target: Target = text.parse().map_err(|error| Failure::Usage(format!("{text}: {error}")))?;
        return Ok(Source::Server(Box::new(target)));
    }
    Ok(Source::Path(text.into()))
}

/// Exports, and prints what was written.
///
/// # Errors
/// One line: no server, no file, or that not all was written.
pub(crate) fn export(options: &Export) -> Result<(), Failure> {
    let kind = if options.field_expiry { FileKind::Timed } else { FileKind::Plain };
    let done =
        transfer(&options.server, |connect, control| migrate::export(&options.file, kind, connect, control))?;
    let Exported { keys, libraries, bytes, failed, untimed } = done;
    let place = options.file.display();
    let mut text =
        format!("exported: {keys} keys, {libraries} libraries of functions, {bytes} B, to {place}\n");
    for (db, key) in untimed.iter().take(NAMES_MAX) {
        text += &format!("  db {db} \"{}\": without the deadlines of its fields\n", key.escape_ascii());
    }
    for (db, key, why) in failed.iter().take(NAMES_MAX) {
        text += &format!("  db {db} \"{}\" is not in it: {why}\n", key.escape_ascii());
    }
    say(std::io::stdout(), &text);
    if failed.is_empty() {
        return Ok(());
    }
    Err(Failure::Data(format!("{} keys were not exported: see above", failed.len())))
}

/// Runs what needs a server, until a signal ends it.
fn transfer<T>(
    server: &Server,
    run: impl FnOnce(migrate::Connect<'_>, &Control<'_>) -> Result<T, MigrateError>,
) -> Result<T, Failure> {
    let is_told = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&is_told))
            .map_err(|error| Failure::System(error.to_string()))?;
    }
    let target = server.target()?;
    let connect = || client::connect(&target).map_err(|failure| ClientError::Refused(failure.to_string()));
    let tell = |line: &str| say(std::io::stderr(), &format!("{line}\n"));
    run(&connect, &Control { is_told: &is_told, tell: &tell }).map_err(Failure::from)
}

impl From<MigrateError> for Failure {
    fn from(error: MigrateError) -> Self {
        match error {
            MigrateError::Input(_) | MigrateError::Told(_) => Self::Data(error.to_string()),
            MigrateError::Source(_) => Self::NoServer(error.to_string()),
            MigrateError::Options(_) => Self::Usage(error.to_string()),
            MigrateError::Target(error) => Self::from(error),
        }
    }
}

/// Keys that are named.
const NAMES_MAX: usize = 1_000;
