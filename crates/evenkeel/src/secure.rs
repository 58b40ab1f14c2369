//! TLS of the server: from its files to what connections are made from, at the start and again.

use std::sync::Arc;

use reactor::TlsOptions;
use server::settings::{SettingError, Settings};

use crate::small::read_small;

/// How connections to `tls.port` begin; `None` without such a port.
///
/// # Errors
/// The setting whose file is missing or wrong.
pub(crate) fn options(settings: &Settings) -> Result<Option<TlsOptions>, SettingError> {
    let read = |path: &std::path::Path| read_small("the file", path).map_err(|failure| failure.to_string());
    let config = settings.tls_config(read)?;
    Ok(config.map(|config| TlsOptions {
        config: Arc::new(config),
        handshake_timeout: settings.tls_handshake_timeout,
        handshakes_max: settings.tls_handshakes_max,
    }))
}
