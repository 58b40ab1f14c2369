//! Who may be a node: what settings ask for, and how the two sides of a connection find out.
//!
//! | security | on the wire | a peer is known by |
//! |---|---|---|
//! | `None` | plain, on loopback only | its word |
//! | `Secret` | TLS 1.3 with certificates that nobody checks | a proof over the session that it has the secret ([`proof`]) |
//! | `Certificates` | TLS 1.3 | a certificate that the CA has signed, on both sides |
//!
//! TLS has no way of its own to use a secret that is not fresh for each pair, with the library that there is; a proof over the exporter
//! value does the same: who sits in the middle has two sessions with two values, and a proof for neither.
//!
//! Which node a peer is, it says itself: whoever has the secret, or a certificate of the CA, may be any declared node.
//!
//! Performs no I/O.
//! Out of scope: reading files (whoever starts a node does), revoked certificates.

pub(crate) mod channel;
pub(crate) mod keys;
pub(crate) mod proof;
pub(crate) mod refusal;

use std::fmt;

pub use refusal::{Refusal, SecurityStatus};

/// How nodes prove to each other who they are. The same on all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Security {
    /// They do not: for nodes of one machine.
    #[default]
    None,
    /// By a secret that all have.
    Secret {
        /// See [`Secret::new`].
        secret: Secret,
        /// Nodes of another cluster are refused, also if they have the same secret.
        cluster: String,
    },
    /// By certificates.
    Certificates {
        /// The CAs that sign them, and nothing else.
        ca: Pem,
        /// This node's, with those between it and its CA behind it.
        cert: Pem,
        /// Its key, which has no password.
        key: Pem,
    },
}

impl Security {
    /// Whether a peer has to prove anything.
    #[must_use]
    pub fn is_on(&self) -> bool {
        *self != Self::None
    }
}

/// What all nodes of a cluster know, and nobody else.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes `bytes`, which should be random: 32 bytes of `/dev/urandom` will do, a word that can be guessed will not.
    ///
    /// # Errors
    /// There are fewer than 16, or more than 1,024.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Result<Self, SecurityError> {
        let bytes = bytes.into();
        if (SECRET_BYTES_MIN..=SECRET_BYTES_MAX).contains(&bytes.len()) {
            return Ok(Self(bytes));
        }
        let why = format!(
            "has {} B, and must have {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX}: take 32 random bytes",
            bytes.len()
        );
        Err(SecurityError { setting: "secret", why })
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Without what it is.
impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

/// What is in a file of certificates or a key.
#[derive(Clone, PartialEq, Eq)]
pub struct Pem(String);

impl Pem {
    /// Takes the text of a file.
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

/// Without what is in it: it may be a key.
impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pem")
    }
}

/// A setting of the security cannot be used. Says nothing of a secret or a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("transport.{setting} {why}")]
pub struct SecurityError {
    /// Which one.
    pub setting: &'static str,
    /// What is wrong with it.
    pub why: String,
}

/// Fewer can be guessed.
const SECRET_BYTES_MIN: usize = 16;
const SECRET_BYTES_MAX: usize = 1_024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_and_keys_are_not_shown() {
        let secret = Secret::new("hunter2hunter2hunter2").unwrap();
        let shown = format!("{:?}", Security::Secret { secret, cluster: "east".to_owned() });
        assert_eq!(shown, r#"Secret { secret: Secret, cluster: "east" }"#);
        assert_eq!(format!("{:?}", Pem::new("hunter2")), "Pem");
    }

    #[test]
    fn secret_that_can_be_guessed_is_refused_without_showing_it() {
        let why = Secret::new("hunter2").unwrap_err().to_string();
        assert_eq!(why, "transport.secret has 7 B, and must have 16 to 1024: take 32 random bytes");
    }
}
