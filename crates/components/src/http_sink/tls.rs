//! TLS to a server that proves its name.

use std::io;
use std::sync::Arc;

use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

/// The configuration that trusts who is in the file `ca`, or else Mozilla's list.
///
/// # Errors
/// The file cannot be read, or has no certificates of authorities.
pub(super) fn config(ca: Option<&str>) -> io::Result<Arc<ClientConfig>> {
    let roots = match ca {
        None => RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => roots(path).map_err(|why| io::Error::other(format!("--ca {path}: {why}")))?,
    };
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

fn roots(path: &str) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|error| error.to_string())? {
        let certificate = certificate.map_err(|error| error.to_string())?;
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if roots.is_empty() { Err("it has no certificates in PEM".to_owned()) } else { Ok(roots) }
}
