//! The side that connects: it trusts authorities, or anybody, and may show a certificate of its own.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use crate::pem::{AUTHORITY, CERTIFICATE};
use crate::{PemFile, TlsError, provider};

/// Whom a client trusts, and who it is.
#[derive(Clone, Debug, Default)]
pub struct ClientFiles {
    /// Authorities that sign servers' certificates; `None`: those that Mozilla trusts.
    pub ca: Option<PemFile>,
    /// The client's certificate and its key.
    pub identity: Option<(PemFile, PemFile)>,
    /// Any server will do.
    pub trusts_anybody: bool,
}

impl ClientFiles {
    /// What connections are made from.
    ///
    /// # Errors
    /// [`TlsError`]: which file cannot be used, and why.
    pub fn config(&self) -> Result<ClientConfig, TlsError> {
        let provider = provider();
        let error = |what: &'static str, why: String| TlsError {
            what,
            path: self.ca.as_ref().map_or("(public)", |ca| ca.path.as_str()).to_owned(),
            why,
        };
        let verifier: Arc<dyn ServerCertVerifier> = if self.trusts_anybody {
            Arc::new(Anybody(provider.signature_verification_algorithms))
        } else {
            let roots = match &self.ca {
                None => RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
                Some(file) => file.authorities()?,
            };
            let verifier =
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
            verifier.build().map_err(|why| error(AUTHORITY, why.to_string()))?
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|why| error(AUTHORITY, why.to_string()))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let Some((certificate, key)) = &self.identity else { return Ok(config.with_no_client_auth()) };
        let chain = certificate.certificates(CERTIFICATE)?;
        config.with_client_auth_cert(chain, key.key()?).map_err(|error| key.unfit(certificate, &error))
    }
}

/// Takes the certificate of anybody who has its key.
#[derive(Debug)]
struct Anybody(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, cert, signed, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}
