//! Texts of files of certificates and keys.

use std::fmt;

use rustls::RootCertStore;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::TlsError;

/// A file, and what is in it.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    /// Where it is.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl PemFile {
    fn error(&self, what: &'static str, why: impl fmt::Display) -> TlsError {
        TlsError { what, path: self.path.clone(), why: why.to_string() }
    }

    /// The certificates in it, at least one. `what` says what the file is.
    ///
    /// # Errors
    /// It is no PEM, or has none.
    pub(crate) fn certificates(&self, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.text.as_bytes()).collect();
        let found = found.map_err(|error| self.error(what, error))?;
        if found.is_empty() {
            return Err(self.error(what, "has no certificate in it (-----BEGIN CERTIFICATE-----)"));
        }
        Ok(found)
    }

    /// The key in it.
    ///
    /// # Errors
    /// It has none, or one that needs a password.
    pub(crate) fn key(&self) -> Result<PrivateKeyDer<'static>, TlsError> {
        let is_encrypted = self.text.contains("ENCRYPTED");
        PrivateKeyDer::from_pem_slice(self.text.as_bytes()).map_err(|_| {
            let why = if is_encrypted {
                "the key is encrypted: `openssl pkey -in FILE -out PLAIN` writes one that is not"
            } else {
                "has no key in PEM (-----BEGIN PRIVATE KEY-----)"
            };
            self.error(KEY, why)
        })
    }

    /// The authorities in it, at least one.
    ///
    /// # Errors
    /// One of them is none.
    pub(crate) fn authorities(&self) -> Result<RootCertStore, TlsError> {
        let mut roots = RootCertStore::empty();
        for (index, certificate) in self.certificates(AUTHORITY)?.into_iter().enumerate() {
            roots.add(certificate).map_err(|error| {
                self.error(AUTHORITY, format!("certificate {} is none of an authority: {error}", index + 1))
            })?;
        }
        Ok(roots)
    }

    /// That the key in it is not that of `certificate`, or something else the library says of the two.
    pub(crate) fn unfit(&self, certificate: &Self, error: &rustls::Error) -> TlsError {
        match error {
            rustls::Error::InconsistentKeys(_) => {
                self.error(KEY, format!("is not the key of {}", certificate.path))
            }
            other => self.error(KEY, format!("cannot be used with {}: {other}", certificate.path)),
        }
    }
}

/// Without what is in it: it may be a key.
impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemFile").field("path", &self.path).finish_non_exhaustive()
    }
}

/// What files are, in errors.
pub(crate) const CERTIFICATE: &str = "the certificate";
pub(crate) const KEY: &str = "the key";
pub(crate) const AUTHORITY: &str = "the CA";
