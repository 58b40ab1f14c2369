//! What both sides of TLS to clients are made from: certificates, keys, and who is trusted.
//!
//! | module | what |
//! |---|---|
//! | [`server`] | the side that is connected to: its certificate, what it asks of clients, sessions that are taken up again |
//! | [`client`] | the side that connects: whom it trusts, and who it is |
//! | [`pem`] | texts of files |
//! | [`name`] | the name in a certificate |
//!
//! Performs no I/O. Out of scope: connections (`reactor`, `connection`), TLS between workers (`transport`) and to databases (`sql`).

pub mod client;
pub mod name;
pub mod pem;
pub mod server;

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{self, cipher_suite};

pub use client::ClientFiles;
pub use pem::PemFile;
pub use rustls::{ClientConfig, ServerConfig};
pub use server::{ClientCertificates, ServerFiles, Versions};

/// A file cannot be used. Says nothing of a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what} {path}: {why}")]
pub struct TlsError {
    /// What it is to be.
    pub what: &'static str,
    /// The file.
    pub path: String,
    /// What is wrong with it.
    pub why: String,
}

/// The fastest cipher first, where a processor has instructions for it.
fn provider() -> Arc<CryptoProvider> {
    let cipher_suites = vec![
        cipher_suite::TLS13_AES_128_GCM_SHA256,
        cipher_suite::TLS13_AES_256_GCM_SHA384,
        cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        cipher_suite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        cipher_suite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(CryptoProvider { cipher_suites, ..ring::default_provider() })
}
