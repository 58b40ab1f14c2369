//! SIGHUP: files of passwords and certificates are read again. Nothing stops, and nothing else changes.
//!
//! All of them are read and checked before any of it is used: one that is missing or wrong leaves everything as it was. One line
//! says what was done, or why not. Files of figures need no signal: `metrics.file` is opened for each line.
//!
//! They are read on a thread of its own: a file system that does not answer must hold up neither a stop nor anything else. While it reads,
//! another signal does nothing but ask for one more reading after it.
//!
//! Out of scope: the settings file (CONFIG SET changes settings while it runs).

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use reactor::Handle;
use server::settings::{Config, Secret, Settings};
use server::{EvenkeelProtocol, Transactions};

use crate::failure::Failure;
use crate::{cli, secure};

/// Reads the files again whenever it is asked to.
pub(crate) struct Reloading {
    config: Arc<Config>,
    transactions: Arc<Transactions>,
    handle: Handle<EvenkeelProtocol>,
    /// Signals that were not obeyed yet; its thread runs while there are some, and rings when there are none left.
    asked: Arc<(Mutex<usize>, Condvar)>,
}

impl Reloading {
    pub(crate) fn new(
        config: &Arc<Config>,
        transactions: &Arc<Transactions>,
        handle: &Handle<EvenkeelProtocol>,
    ) -> Self {
        Self {
            config: Arc::clone(config),
            transactions: Arc::clone(transactions),
            handle: handle.clone(),
            asked: Arc::default(),
        }
    }

    /// Has the files read again, and one line logged. Waits for neither.
    pub(crate) fn begin(&self) {
        let mut asked = lock(&self.asked.0);
        *asked += 1;
        if *asked > 1 {
            return;
        }
        let (config, transactions) = (Arc::clone(&self.config), Arc::clone(&self.transactions));
        let (of_thread, handle) = (Arc::clone(&self.asked), self.handle.clone());
        let read = move || {
            let (asked, done) = &*of_thread;
            let mut obeyed = *lock(asked);
            while obeyed > 0 {
                reload(&config, &transactions, &handle);
                let mut left = lock(asked);
                *left -= obeyed;
                obeyed = *left;
            }
            done.notify_all();
        };
        if let Err(error) = std::thread::Builder::new().name("reload".to_owned()).spawn(read) {
            *asked = 0;
            tracing::warn!("SIGHUP: nothing was reloaded: no thread for it: {error}");
        }
    }

    /// Waits a moment for a reading that is under way, so that its line is in the log of a server that stops.
    pub(crate) fn end(&self) {
        let asked = lock(&self.asked.0);
        drop(self.asked.1.wait_timeout_while(asked, END_MAX, |asked| *asked > 0));
    }
}

fn lock(asked: &Mutex<usize>) -> MutexGuard<'_, usize> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the files again, and logs one line.
fn reload(config: &Config, transactions: &Transactions, handle: &Handle<EvenkeelProtocol>) {
    match try_reload(config, transactions, handle) {
        Ok(what) => tracing::info!("SIGHUP: {what}"),
        Err(why) => tracing::warn!("SIGHUP: nothing was reloaded: {why}"),
    }
}

fn try_reload(
    config: &Config,
    transactions: &Transactions,
    handle: &Handle<EvenkeelProtocol>,
) -> Result<String, Failure> {
    let mut settings = Settings::clone(&config.current());
    if settings.requirepass_file.is_some() {
        settings.requirepass = Secret::default();
    }
    cli::read_secrets(&mut settings)?;
    let tls = secure::options(&settings)?;
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
    if let Some(tls) = tls {
        handle.set_tls(tls);
        what.push("files of tls.* read, for new connections".to_owned());
    }
    if what.is_empty() {
        what.push("there are no files of passwords or certificates to read again".to_owned());
    }
    if let Some(path) = &settings.metrics_file {
        what.push(format!("metrics.file {} is opened for each line", path.display()));
    }
    Ok(what.join("; "))
}

/// A stop waits no longer for files that do not come.
const END_MAX: Duration = Duration::from_secs(1);
