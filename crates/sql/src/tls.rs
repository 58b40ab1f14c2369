//! TLS to databases: what settings ask for, checked once, and made into what both drivers take.
//!
//! | mode | on the wire | certificate of the server |
//! |---|---|---|
//! | `disable` | plain | |
//! | `require` | TLS, or no connection | any: keeps out who listens, not who answers in the server's place |
//! | `verify-full` | TLS, or no connection | signed by a CA that is trusted, for the host of the address |
//!
//! Words are libpq's `sslmode`. Of its others, `allow` and `prefer` go on in plain when somebody on the way says that there is no TLS, and
//! `verify-ca` takes the certificate of anybody whom the same CA has signed for.
//!
//! Invariants
//!   1. A connection is plain only with `disable`, said, or by default for a database on this machine. Nothing falls back to it.
//!   2. What is given and would have no effect is refused.
//!   3. No message shows a key.
//!
//! Out of scope: reading files (whoever starts the server does); when files are read anew (the server does, at SIGHUP).

use std::error::Error;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::sync::Arc;

use mysql_async::{ClientIdentity, DriverError, SslOpts};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::{AddressError, TlsError, UnknownWord};

/// What is asked for. By default a database on this machine is spoken to in plain, all others as [`TlsMode::VerifyFull`] says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsOptions {
    /// `None` for the default, which is [`TlsMode::VerifyFull`] also if a file is given.
    pub mode: Option<TlsMode>,
    /// The only CAs that are trusted, instead of the public ones.
    pub ca: Option<PemFile>,
    /// The certificate that is shown to the server, with those between it and its CA behind it.
    pub cert: Option<PemFile>,
    /// Its key, which has no password.
    pub key: Option<PemFile>,
}

/// How much TLS does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// Plain.
    Disable,
    /// TLS with any certificate.
    Require,
    /// TLS with a certificate that proves whose server it is.
    VerifyFull,
}

/// A file that was read.
#[derive(Clone, PartialEq, Eq)]
pub struct PemFile {
    /// For messages.
    pub path: String,
    /// What is in it.
    pub text: String,
}

/// What connections to one database use.
#[derive(Clone)]
pub(crate) struct Tls {
    mode: TlsMode,
    was_said: bool,
    options: TlsOptions,
    connect: MakeRustlsConnect,
}

impl TlsOptions {
    /// Looks whether it can be obeyed: files have in them what they should, fit together, and have an effect.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn check(&self) -> Result<(), TlsError> {
        let Self { mode, ca, cert, key } = self;
        let no = |setting, why: String| Err(TlsError { setting, why });
        match (cert, key) {
            (Some(_), None) => return no("tls_cert", "it needs tls_key, the file of its key".to_owned()),
            (None, Some(_)) => {
                return no("tls_key", "it needs tls_cert, the file of its certificate".to_owned());
            }
            _ => {}
        }
        match mode {
            Some(mode @ TlsMode::Disable) if cert.is_some() => {
                return no(
                    "tls_cert",
                    format!("tls = {mode} shows no certificate: leave it away, or say {CHECKS}"),
                );
            }
            Some(mode @ (TlsMode::Disable | TlsMode::Require)) if ca.is_some() => {
                return no(
                    "tls_ca",
                    format!("tls = {mode} checks no certificate: leave it away, or say {CHECKS}"),
                );
            }
            _ => {}
        }
        self.config(mode.unwrap_or(TlsMode::VerifyFull)).map(drop)
    }

    fn config(&self, mode: TlsMode) -> Result<ClientConfig, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let failed = |setting| move |error: rustls::Error| TlsError { setting, why: error.to_string() };
        let verifier: Arc<dyn ServerCertVerifier> = if mode == TlsMode::VerifyFull {
            let roots = Arc::new(self.roots()?);
            let verifier = WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(&provider)).build();
            verifier.map_err(|error| TlsError { setting: "tls_ca", why: error.to_string() })?
        } else {
            Arc::new(Anybody(provider.signature_verification_algorithms))
        };
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(failed("tls"))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let (Some(cert), Some(key)) = (&self.cert, &self.key) else {
            return Ok(config.with_no_client_auth());
        };
        let chain = certificates("tls_cert", cert)?;
        let not_one = |error| TlsError {
            setting: "tls_key",
            why: format!("{} has no key in PEM that is not encrypted: {error}", key.path),
        };
        let secret = PrivateKeyDer::from_pem_slice(key.text.as_bytes()).map_err(not_one)?;
        let unfit = |error| TlsError {
            setting: "tls_key",
            why: format!("{} is not the key of {}: {error}", key.path, cert.path),
        };
        config.with_client_auth_cert(chain, secret).map_err(unfit)
    }

    fn roots(&self) -> Result<RootCertStore, TlsError> {
        let Some(file) = &self.ca else {
            return Ok(RootCertStore::from_iter(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()));
        };
        let mut roots = RootCertStore::empty();
        for (index, certificate) in certificates("tls_ca", file)?.into_iter().enumerate() {
            roots.add(certificate).map_err(|error| TlsError {
                setting: "tls_ca",
                why: format!("{}: certificate {} is none of a CA: {error}", file.path, index + 1),
            })?;
        }
        Ok(roots)
    }
}

impl Tls {
    /// For a database that is on this machine, or is not.
    ///
    /// # Errors
    /// [`TlsError`].
    pub(crate) fn new(options: &TlsOptions, is_here: bool) -> Result<Self, TlsError> {
        options.check()?;
        let has_file = options.ca.is_some() || options.cert.is_some();
        let default = if is_here && !has_file { TlsMode::Disable } else { TlsMode::VerifyFull };
        let mode = options.mode.unwrap_or(default);
        let connect = MakeRustlsConnect::new(options.config(mode)?);
        Ok(Self { mode, was_said: options.mode.is_some(), options: options.clone(), connect })
    }

    pub(crate) fn is_on(&self) -> bool {
        self.mode != TlsMode::Disable
    }

    /// Where there is no TLS by nature.
    ///
    /// # Errors
    /// It is wanted.
    pub(crate) fn refuse_socket(&self) -> Result<(), AddressError> {
        match self.is_on() {
            true => {
                let said = self.said();
                let why = format!("a socket of this machine has no TLS, and it is to have {said}");
                Err(AddressError::Conflict(why))
            }
            false => Ok(()),
        }
    }

    /// For PostgreSQL's driver, unless connections are plain.
    pub(crate) fn postgres(&self) -> Option<MakeRustlsConnect> {
        self.is_on().then(|| self.connect.clone())
    }

    /// For MariaDB's driver, if connections to `host` are not plain.
    pub(crate) fn mariadb(&self, host: &str) -> Option<SslOpts> {
        if !self.is_on() {
            return None;
        }
        // The driver takes the provider of the process: whoever has set one keeps it.
        let _ = CryptoProvider::install_default(ring::default_provider());
        let bytes = |file: &PemFile| file.text.clone().into_bytes().into();
        let TlsOptions { ca, cert, key, .. } = &self.options;
        let identity = cert.as_ref().zip(key.as_ref());
        let options = SslOpts::default()
            .with_root_certs(ca.iter().map(bytes).collect())
            .with_disable_built_in_roots(ca.is_some())
            .with_danger_accept_invalid_certs(self.mode == TlsMode::Require)
            // An address of IPv6 stands in brackets in a url, and without in a certificate.
            .with_danger_tls_hostname_override(Some(host.trim_matches(['[', ']']).to_owned()))
            .with_client_identity(identity.map(|(cert, key)| ClientIdentity::new(bytes(cert), bytes(key))));
        Some(options)
    }

    /// What to change, for an error of a connection that has to do with TLS.
    pub(crate) fn advice(&self, error: &(dyn Error + 'static)) -> Option<String> {
        let is_refused = |it: &(dyn Error + 'static)| {
            matches!(it.downcast_ref(), Some(DriverError::NoClientSslFlagFromServer))
                || it.to_string() == "server does not support TLS"
        };
        if causes(error).any(is_refused) {
            let plain = TlsMode::Disable;
            return Some(format!(
                "the server has no TLS, and {} goes on with it alone; tls = {plain} goes without",
                self.said()
            ));
        }
        let within = |it: &(dyn Error + 'static)| {
            let inner = it.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            let of_io = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
            of_io.or_else(|| it.downcast_ref()).cloned()
        };
        match causes(error).find_map(within)? {
            rustls::Error::InvalidCertificate(why) => Some(self.advice_on(&why)),
            _ => Some(self.said()),
        }
    }

    fn advice_on(&self, why: &CertificateError) -> String {
        let said = self.said();
        match why {
            // Bad: another CA of the same name has signed it.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => match &self.options.ca {
                Some(file) => format!("{said}, and no CA in {} (tls_ca) has signed it", file.path),
                None => format!("{said}, and no public CA has signed it: tls_ca names the file of another"),
            },
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("{said}, so the url must name the host as the certificate does")
            }
            why if why.to_string().contains("CaUsedAsEndEntity") => {
                format!("{said}, and it is a CA's own certificate, not one that a CA has signed for a server")
            }
            _ => said,
        }
    }

    fn said(&self) -> String {
        let default = if self.was_said { "" } else { " (the default here)" };
        format!("tls = {}{default}", self.mode)
    }
}

impl FromStr for TlsMode {
    type Err = UnknownWord;

    fn from_str(text: &str) -> Result<Self, UnknownWord> {
        let found =
            [Self::Disable, Self::Require, Self::VerifyFull].into_iter().find(|it| it.to_string() == text);
        found.ok_or_else(|| {
            UnknownWord(match text {
                "allow" | "prefer" => {
                    format!("'{text}' would go on in plain without a word: expected {MODES}")
                }
                _ => format!("expected {MODES}, not '{text}'"),
            })
        })
    }
}

impl fmt::Display for TlsMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Disable => "disable",
            Self::Require => "require",
            Self::VerifyFull => "verify-full",
        })
    }
}

/// Without what is in it: it may be a key.
impl fmt::Debug for PemFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PemFile").field("path", &self.path).finish_non_exhaustive()
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("mode", &self.mode).finish_non_exhaustive()
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

/// An error and what it was brought about by.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    let mut next = Some(error);
    std::iter::from_fn(move || {
        let it = next?;
        next = it.source();
        Some(it)
    })
}

/// The certificates of a file, at least one.
fn certificates(setting: &'static str, file: &PemFile) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let no = |why: String| TlsError { setting, why: format!("{} {why}", file.path) };
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(file.text.as_bytes()).collect();
    let found = found.map_err(|error| no(format!("is no PEM: {error}")))?;
    if found.is_empty() {
        return Err(no("has no certificate in it (-----BEGIN CERTIFICATE-----)".to_owned()));
    }
    Ok(found)
}

/// What drivers, libpq and others take in an address is refused there: TLS is said in one place.
///
/// # Errors
/// What it is, and where it belongs.
pub(crate) fn refuse_in_address(url: &str) -> Result<(), AddressError> {
    let (_, parameters) = url.split_once('?').unwrap_or_default();
    let is_about_it = |it: &&str| {
        let key = it.split('=').next().unwrap_or_default();
        IN_ADDRESSES.iter().any(|name| key.eq_ignore_ascii_case(name))
    };
    match parameters.split('&').find(is_about_it) {
        Some(it) => Err(AddressError::HasTls(format!("'{it}'"))),
        None => Ok(()),
    }
}

/// Whether `host` of an address is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    let number = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || number.is_ok_and(|number| number.is_loopback())
}

const MODES: &str = "disable, require or verify-full";
const CHECKS: &str = "tls = verify-full";
const IN_ADDRESSES: [&str; 14] = [
    "built_in_roots",
    "require_ssl",
    "ssl",
    "ssl-mode",
    "ssl_mode",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "tls",
    "useSSL",
    "verify_ca",
    "verify_identity",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn ca() -> PemFile {
        let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let text = params.self_signed(&key).expect("signed").pem();
        PemFile { path: "/ca.pem".to_owned(), text }
    }

    /// No test can have a public CA sign for it.
    #[test]
    fn ca_that_is_named_is_the_only_one_for_both_drivers() {
        for (ca, is_alone) in [(None, false), (Some(ca()), true)] {
            let options = TlsOptions { ca, ..TlsOptions::default() };
            let roots = options.roots().expect("roots").len();
            assert_eq!(roots == 1, is_alone, "{roots}");
            let tls = Tls::new(&options, false).expect("right");
            let secret = tls.mariadb("[::1]").expect("it is on");
            assert_eq!(
                (secret.disable_built_in_roots(), secret.root_certs().len()),
                (is_alone, usize::from(is_alone))
            );
            assert!(!secret.accept_invalid_certs() && !secret.skip_domain_validation());
            assert_eq!(secret.tls_hostname_override(), Some("::1"));
        }
    }

    #[test]
    fn file_makes_it_secret_on_this_machine_too() {
        let named = TlsOptions { ca: Some(ca()), ..TlsOptions::default() };
        let on = |options: &TlsOptions| Tls::new(options, true).map(|tls| tls.is_on());
        assert_eq!((on(&TlsOptions::default()), on(&named)), (Ok(false), Ok(true)));
    }

    #[test]
    fn words_are_those_that_are_shown() {
        for mode in [TlsMode::Disable, TlsMode::Require, TlsMode::VerifyFull] {
            assert_eq!(mode.to_string().parse(), Ok(mode));
        }
        assert!(
            "verify-ca".parse::<TlsMode>().is_err_and(
                |why| why.to_string() == "expected disable, require or verify-full, not 'verify-ca'"
            )
        );
        assert!(
            "prefer".parse::<TlsMode>().is_err_and(|why| why.to_string().contains("in plain without a word"))
        );
    }
}
