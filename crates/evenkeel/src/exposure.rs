//! Whether other machines reach the server without a password: refused, unless `protected_mode` is off.

use std::path::Path;

use server::UserFile;
use server::settings::Settings;
use tls::ClientCertificates::Required;

use crate::failure::Failure;

/// Whether other machines reach the server without a password, also by the users that it starts with.
fn exposed(settings: &Settings) -> bool {
    // Who has to show a certificate is known by that.
    let takes_anybody_by_tls = settings.tls_port != 0 && settings.tls_client_certificates != Required;
    let takes_anybody = settings.port != 0 || takes_anybody_by_tls;
    let reachable = takes_anybody && settings.bind.iter().any(|address| !address.is_loopback());
    let users = |path: &Path| {
        UserFile::read(path, server::commands(), false).is_ok_and(|users| users.asks_for_password())
    };
    let asks = settings.requirepass.reveal().is_some() || settings.acl_file.as_deref().is_some_and(users);
    reachable && !asks
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
        "bind = {} lets other machines in without a password: set requirepass_file (or requirepass, or a password of \
         the user default in acl.file), bind 127.0.0.1, or use --protected-mode=false if something else protects the server",
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
