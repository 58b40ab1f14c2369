//! SIGHUP: files of passwords and certificates are read again. Nothing stops, and nothing else changes.
//!
//! All of them are read and checked before any of it is used: one that is missing or wrong leaves everything as it was. One line
//! says what was done, or why not. Files of figures need no signal: `metrics.file` is opened for each line.
//!
//! Out of scope: the settings file (CONFIG SET changes settings while it runs).

use server::Transactions;
use server::settings::{Config, Secret, Settings};

use crate::cli;
use crate::failure::Failure;

/// Reads the files again, and logs one line.
pub(crate) fn reload(config: &Config, transactions: &Transactions) {
    match try_reload(config, transactions) {
        Ok(what) => tracing::info!("SIGHUP: {what}"),
        Err(why) => tracing::warn!("SIGHUP: nothing was reloaded: {why}"),
    }
}

fn try_reload(config: &Config, transactions: &Transactions) -> Result<String, Failure> {
    let mut settings = Settings::clone(&config.current());
    if settings.requirepass_file.is_some() {
        settings.requirepass = Secret::default();
    }
    cli::read_secrets(&mut settings)?;
    transactions.renew(&settings.resources)?;
    let mut what = Vec::new();
    if let Some(path) = &settings.requirepass_file {
        let is_new = config
            .renew_password(&settings.requirepass)
            .map_err(|error| Failure::Usage(error.to_string()))?;
        let how = if is_new { "a new password" } else { "the same password" };
        what.push(format!("requirepass_file {} read, {how}", path.display()));
    }
    if !settings.resources.is_empty() {
        let names: Vec<_> = settings.resources.iter().map(|resource| resource.name.as_str()).collect();
        what.push(format!("passwords and certificates of {} read, for new sessions", names.join(", ")));
    }
    if what.is_empty() {
        what.push("there are no files of passwords or certificates to read again".to_owned());
    }
    if let Some(path) = &settings.metrics_file {
        what.push(format!("metrics.file {} is opened for each line", path.display()));
    }
    Ok(what.join("; "))
}
