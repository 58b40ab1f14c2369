//! What TLS is made from, once for each run of a node.

use std::sync::Arc;

use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::ring::{self, cipher_suite};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName, UnixTime};
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::version::TLS13;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error as TlsError, RootCertStore, ServerConfig, SignatureScheme,
};

use super::proof::ProofKey;
use super::{Pem, Security, SecurityError};

/// Both sides of TLS, and what is proved over it.
#[derive(Debug)]
pub(crate) struct Keys {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// `None`: certificates are proof enough.
    pub(crate) proof: Option<Arc<ProofKey>>,
}

impl Keys {
    /// What `security` asks for; `None` if that is nothing.
    ///
    /// # Errors
    /// [`SecurityError`]: which setting cannot be used, and why.
    pub(crate) fn new(security: &Security) -> Result<Option<Arc<Self>>, SecurityError> {
        let keys = match security {
            Security::None => return Ok(None),
            Security::Secret { secret, cluster } => {
                Self::of_nobody(ProofKey::new(secret.bytes(), cluster)).map_err(unfit("secret"))?
            }
            Security::Certificates { ca, cert, key } => Self::of_ca(ca, cert, key)?,
        };
        Ok(Some(Arc::new(keys)))
    }

    /// With a certificate of its own that says nothing.
    fn of_nobody(proof: Arc<ProofKey>) -> Result<Self, Box<dyn std::error::Error>> {
        let own = rcgen::generate_simple_self_signed([NAME.to_owned()])?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(own.signing_key.serialize_der()));
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { roots: None, algorithms }))
            .with_no_client_auth();
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key)?;
        Ok(Self::finished(client, server, Some(proof)))
    }

    fn of_ca(ca: &Pem, cert: &Pem, key: &Pem) -> Result<Self, SecurityError> {
        let roots = Arc::new(roots(ca)?);
        let chain = certificates("tls_cert", cert)?;
        let secret = || {
            let why = "has no key in PEM that is not encrypted".to_owned();
            PrivateKeyDer::from_pem_slice(key.bytes()).map_err(|_| SecurityError { setting: "tls_key", why })
        };
        let provider = provider();
        let algorithms = provider.signature_verification_algorithms;
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let clients = clients.build().map_err(unfit("tls_ca"))?;
        let client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .map_err(unfit("tls_cert"))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Verifier { roots: Some(roots), algorithms }))
            .with_client_auth_cert(chain.clone(), secret()?)
            .map_err(unfit("tls_key"))?;
        let server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .map_err(unfit("tls_cert"))?
            .with_client_cert_verifier(clients)
            .with_single_cert(chain, secret()?)
            .map_err(unfit("tls_key"))?;
        Ok(Self::finished(client, server, None))
    }

    /// No session is taken up again: each connection proves anew who its sides are.
    fn finished(mut client: ClientConfig, mut server: ServerConfig, proof: Option<Arc<ProofKey>>) -> Self {
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        client.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.alpn_protocols = vec![PROTOCOL.to_vec()];
        server.session_storage = Arc::new(NoServerSessionStorage {});
        server.send_tls13_tickets = 0;
        Self { client: Arc::new(client), server: Arc::new(server), proof }
    }
}

/// What a client asks a server for; nobody checks it.
pub(crate) const NAME: &str = "evenkeel-transport";
/// Who speaks TLS for something else is refused by it.
const PROTOCOL: &[u8] = b"evenkeel-transport/1";

/// The fastest cipher first, where a processor has instructions for it.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}

fn unfit<E: ToString>(setting: &'static str) -> impl Fn(E) -> SecurityError {
    move |error| SecurityError { setting, why: format!("cannot be used: {}", error.to_string()) }
}

fn roots(ca: &Pem) -> Result<RootCertStore, SecurityError> {
    let mut roots = RootCertStore::empty();
    certificates("tls_ca", ca)?
        .into_iter()
        .try_for_each(|certificate| roots.add(certificate))
        .map_err(unfit("tls_ca"))?;
    Ok(roots)
}

/// The certificates of a file, at least one.
fn certificates(setting: &'static str, file: &Pem) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(file.bytes()).collect();
    let found = found.map_err(unfit(setting))?;
    if found.is_empty() {
        let why = "has no certificate in it (-----BEGIN CERTIFICATE-----)".to_owned();
        return Err(SecurityError { setting, why });
    }
    Ok(found)
}

/// Takes certificates that a CA has signed for servers, whatever names they have: nodes are dialed by address. Without a CA it takes any: who the
/// peer is, it proves afterwards.
#[derive(Debug)]
struct Verifier {
    roots: Option<Arc<RootCertStore>>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        cert: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, TlsError> {
        if let Some(roots) = &self.roots {
            let (cert, algorithms) = (ParsedCertificate::try_from(cert)?, self.algorithms.all);
            verify_server_cert_signed_by_trust_anchor(&cert, roots, between, now, algorithms)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        Err(TlsError::General("no version but TLS 1.3 is offered".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, TlsError> {
        rustls::crypto::verify_tls13_signature(message, cert, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_not_what_it_should_be_is_named() {
        let own = rcgen::generate_simple_self_signed(["node".to_owned()]).unwrap();
        let (cert, key) = (Pem::new(own.cert.pem()), Pem::new(own.signing_key.serialize_pem()));
        let other = Pem::new(rcgen::KeyPair::generate().unwrap().serialize_pem());
        let wrong = |ca: &Pem, cert: &Pem, key: &Pem| {
            let (ca, cert, key) = (ca.clone(), cert.clone(), key.clone());
            Keys::new(&Security::Certificates { ca, cert, key }).map(drop).unwrap_err().setting
        };
        assert_eq!(wrong(&key, &cert, &key), "tls_ca");
        assert_eq!(wrong(&cert, &Pem::new(""), &key), "tls_cert");
        assert_eq!(wrong(&cert, &cert, &cert), "tls_key");
        assert_eq!(wrong(&cert, &cert, &other), "tls_key");
    }
}
