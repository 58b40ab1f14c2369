//! The side that is connected to.

use std::sync::Arc;

use rustls::crypto::ring::Ticketer;
use rustls::server::{NoServerSessionStorage, ServerSessionMemoryCache, WebPkiClientVerifier};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, SupportedProtocolVersion};

use crate::pem::{AUTHORITY, CERTIFICATE};
use crate::{PemFile, TlsError, provider};

/// Whether clients show certificates, which an authority that is trusted has signed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ClientCertificates {
    /// They are not asked.
    #[default]
    No,
    /// They may; one that is shown must be right.
    Optional,
    /// They must.
    Required,
}

/// Versions that are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// 1.3 alone.
    Tls13,
    /// 1.2 alone.
    Tls12,
    /// Both.
    Both,
}

impl Versions {
    fn list(self) -> &'static [&'static SupportedProtocolVersion] {
        static ALL: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
        match self {
            Self::Tls13 => &ALL[..1],
            Self::Tls12 => &ALL[1..],
            Self::Both => &ALL,
        }
    }
}

/// Who the server is, and what it asks of clients.
#[derive(Clone, Debug)]
pub struct ServerFiles {
    /// Its certificate, with those between it and its authority behind it.
    pub certificate: PemFile,
    /// The key of that.
    pub key: PemFile,
    /// Authorities that sign certificates of clients.
    pub ca: Option<PemFile>,
    /// Whether clients show theirs.
    pub clients: ClientCertificates,
    /// Versions that are spoken.
    pub versions: Versions,
    /// Whether a session may be taken up again.
    pub resumes: bool,
}

impl ServerFiles {
    /// What connections are made from. Sessions of an earlier one are not taken up again: whom that trusted, this need not.
    ///
    /// # Errors
    /// [`TlsError`]: which file cannot be used, and why.
    pub fn config(&self) -> Result<ServerConfig, TlsError> {
        let builder = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(self.versions.list())
            .map_err(|error| self.error(CERTIFICATE, &self.certificate, &error))?;
        let builder = match (self.clients, &self.ca) {
            (ClientCertificates::No, _) => builder.with_no_client_auth(),
            (_, None) => {
                return Err(TlsError {
                    what: AUTHORITY,
                    path: "(none)".to_owned(),
                    why: "certificates of clients are asked for, and nobody is trusted to sign them"
                        .to_owned(),
                });
            }
            (asked, Some(ca)) => {
                let roots = Arc::new(ca.authorities()?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = match asked {
                    ClientCertificates::Optional => verifier.allow_unauthenticated(),
                    _ => verifier,
                };
                let verifier = verifier.build().map_err(|error| self.error(AUTHORITY, ca, &error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let chain = self.certificate.certificates(CERTIFICATE)?;
        let mut config = builder
            .with_single_cert(chain, self.key.key()?)
            .map_err(|error| self.key.unfit(&self.certificate, &error))?;
        if self.resumes {
            config.ticketer =
                Ticketer::new().map_err(|error| self.error(CERTIFICATE, &self.certificate, &error))?;
            config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
        } else {
            config.send_tls13_tickets = 0;
            config.session_storage = Arc::new(NoServerSessionStorage {});
        }
        Ok(config)
    }

    #[expect(clippy::unused_self, reason = "reads as the other errors do")]
    fn error(&self, what: &'static str, file: &PemFile, error: &dyn std::error::Error) -> TlsError {
        TlsError { what, path: file.path.clone(), why: error.to_string() }
    }
}

/// Sessions of TLS 1.2 that are kept for clients which take no tickets.
const SESSIONS_MAX: usize = 4_096;

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> (PemFile, PemFile) {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let file = |path: &str, text: String| PemFile { path: path.to_owned(), text };
        (file("/own.pem", own.cert.pem()), file("/own.key", own.signing_key.serialize_pem()))
    }

    fn files() -> ServerFiles {
        let (certificate, key) = own();
        ServerFiles {
            certificate,
            key,
            ca: None,
            clients: ClientCertificates::No,
            versions: Versions::Both,
            resumes: true,
        }
    }

    #[test]
    fn right_files_are_taken_and_resumption_is_as_told() {
        let resumes = files().config().expect("right");
        assert!(resumes.ticketer.enabled() && resumes.session_storage.can_cache());
        let not = ServerFiles { resumes: false, ..files() }.config().expect("right");
        assert!(!not.ticketer.enabled() && !not.session_storage.can_cache() && not.send_tls13_tickets == 0);
    }

    #[test]
    fn wrong_files_are_refused_by_name_and_keys_are_not_shown() {
        let error = |files: ServerFiles| files.config().expect_err("refused").to_string();
        let other = own().1;
        let text = other.text.clone();
        let wrong = error(ServerFiles { key: other, ..files() });
        assert_eq!(wrong, "the key /own.key: is not the key of /own.pem");
        let none = PemFile { path: "/x".to_owned(), text: "x".to_owned() };
        assert!(
            error(ServerFiles { certificate: none.clone(), ..files() }).contains("/x: has no certificate")
        );
        assert!(error(ServerFiles { key: none.clone(), ..files() }).contains("/x: has no key"));
        let asked = ServerFiles { clients: ClientCertificates::Required, ..files() };
        assert!(error(asked.clone()).contains("nobody is trusted"));
        assert!(error(ServerFiles { ca: Some(none), ..asked.clone() }).contains("the CA /x: has no"));
        assert!(!format!("{asked:?}").contains(&text[30..60]));
        let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n";
        let encrypted = PemFile { path: "/k".to_owned(), text: encrypted.to_owned() };
        assert!(error(ServerFiles { key: encrypted, ..files() }).contains("encrypted"));
    }
}
