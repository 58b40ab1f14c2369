//! Whether other machines reach the server without a password: refused, unless `protected_mode` is off.

use server::settings::Settings;

use crate::failure::Failure;

/// Whether other machines reach the server without a password.
fn exposed(settings: &Settings) -> bool {
    let reachable = settings.port != 0 && settings.bind.iter().any(|address| !address.is_loopback());
    reachable && settings.requirepass.reveal().is_none()
}

/// Refuses to serve other machines without a password, unless told that this is meant.
///
/// # Errors
/// The line that says so.
pub(crate) fn refuse_exposure(settings: &Settings) -> Result<(), Failure> {
    if !settings.protected_mode {
        return Ok(());
    }
    if let Some(address) = settings.metrics_listen.filter(|address| !address.ip().is_loopback()) {
        return Err(Failure::Usage(format!(
            "metrics.listen = {address} shows other machines the figures, and asks for no password: listen on 127.0.0.1, or use \
             --protected-mode=false if something else protects the server"
        )));
    }
    if !exposed(settings) {
        return Ok(());
    }
    let addresses: Vec<_> = settings.bind.iter().map(ToString::to_string).collect();
    Err(Failure::Usage(format!(
        "bind = {} lets other machines in without a password: set requirepass_file (or requirepass), bind 127.0.0.1, \
         or use --protected-mode=false if something else protects the server",
        addresses.join(" ")
    )))
}

/// Says so in the log where it was meant.
pub(crate) fn warn_of_exposure(settings: &Settings) {
    if exposed(settings) {
        tracing::warn!(
            "protected_mode is off and no password is set: anybody who reaches the port can read and change the data"
        );
    }
}
