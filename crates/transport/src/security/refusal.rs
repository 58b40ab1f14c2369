//! Why a connection is closed before its peer is known, and how often that was.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use rustls::{AlertDescription, CertificateError, Error as TlsError, PeerIncompatible};

/// Why a connection was closed before its peer had proved who it is. Each has a counter ([`SecurityStatus`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(usize)]
#[non_exhaustive]
pub enum Refusal {
    /// Give both nodes the same kind of security; or somebody else found the port.
    #[error("what came is not TLS: the peer has no transport security, or is no node")]
    NotTls,
    /// Give this node the security of its peers.
    #[error("the peer speaks TLS, and this node has no transport security")]
    UnwantedTls,
    /// Upgrade what talks an older version.
    #[error("one side offers no TLS 1.3")]
    OldTls,
    /// Bytes were changed or repeated on their way, or the peer is no node.
    #[error("what came breaks TLS")]
    BrokenTls,
    /// Give the peer a certificate.
    #[error("the peer shows no certificate")]
    NoCertificate,
    /// Have the CA of this node sign the peer's certificate.
    #[error("the CA of this node has not signed the peer's certificate")]
    ForeignCertificate,
    /// Renew the certificate, or set the clocks right.
    #[error("the peer's certificate has expired, or is not valid yet")]
    ExpiredCertificate,
    /// Make another certificate: for servers and clients, not of a CA.
    #[error("the peer's certificate cannot be used by a node")]
    UnfitCertificate,
    /// See the log of the peer.
    #[error("the peer refuses the certificate of this node")]
    PeerRefusesCertificate,
    /// See the log of the peer.
    #[error("the peer refuses TLS with this node")]
    PeerRefuses,
    /// Give both nodes the same secret and name of the cluster.
    #[error("the peer has another secret, or another name of the cluster")]
    WrongSecret,
    /// Give both nodes the same secret and name of the cluster.
    #[error("the peer says that this node has another secret, or another name of the cluster")]
    PeerRefusesSecret,
    /// The peer is no node, or of another version.
    #[error("what came in place of a proof is none of this version")]
    NoProof,
    /// Correct the addresses.
    #[error("the peer is, or means, another node")]
    WrongNode,
    /// See who connects from there.
    #[error("the peer sent too much before it proved who it is")]
    TooMuch,
    /// See who connects from there, or raise `transport.handshake_timeout`.
    #[error("the peer did not prove within transport.handshake_timeout who it is")]
    TooSlow,
    /// See who connects.
    #[error("newer connections took the place of this one before it proved who it is")]
    TooMany,
    /// See the log of the peer.
    #[error("the peer closed the connection before either side proved who it is")]
    Closed,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Self; 18] = [
        Self::NotTls,
        Self::UnwantedTls,
        Self::OldTls,
        Self::BrokenTls,
        Self::NoCertificate,
        Self::ForeignCertificate,
        Self::ExpiredCertificate,
        Self::UnfitCertificate,
        Self::PeerRefusesCertificate,
        Self::PeerRefuses,
        Self::WrongSecret,
        Self::PeerRefusesSecret,
        Self::NoProof,
        Self::WrongNode,
        Self::TooMuch,
        Self::TooSlow,
        Self::TooMany,
        Self::Closed,
    ];

    /// What an error of TLS means; `has_begun`: the peer is known to speak it.
    pub(crate) fn of_tls(error: &TlsError, has_begun: bool) -> Self {
        match error {
            TlsError::InvalidMessage(_) if !has_begun => Self::NotTls,
            TlsError::PeerIncompatible(why) => of_incompatible(why),
            TlsError::NoCertificatesPresented => Self::NoCertificate,
            TlsError::InvalidCertificate(why) => of_certificate(why),
            TlsError::AlertReceived(alert) => of_alert(*alert),
            _ => Self::BrokenTls,
        }
    }
}

fn of_incompatible(why: &PeerIncompatible) -> Refusal {
    match why {
        PeerIncompatible::SupportedVersionsExtensionRequired
        | PeerIncompatible::ServerDoesNotSupportTls12Or13
        | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
        | PeerIncompatible::Tls12NotOfferedOrEnabled
        | PeerIncompatible::Tls12NotOffered => Refusal::OldTls,
        _ => Refusal::BrokenTls,
    }
}

fn of_certificate(why: &CertificateError) -> Refusal {
    match why {
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => Refusal::ExpiredCertificate,
        // Bad: another CA of the same name has signed it.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => Refusal::ForeignCertificate,
        _ => Refusal::UnfitCertificate,
    }
}

fn of_alert(alert: AlertDescription) -> Refusal {
    match alert {
        AlertDescription::ProtocolVersion => Refusal::OldTls,
        AlertDescription::BadCertificate
        | AlertDescription::CertificateExpired
        | AlertDescription::CertificateRequired
        | AlertDescription::CertificateRevoked
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError
        | AlertDescription::UnknownCA
        | AlertDescription::UnsupportedCertificate => Refusal::PeerRefusesCertificate,
        _ => Refusal::PeerRefuses,
    }
}

/// What became of connections whose peers had to prove who they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SecurityStatus {
    /// Those whose peers did.
    pub proved: u64,
    /// Those that came and whose peers have not yet.
    pub waiting: usize,
    refused: [u64; Refusal::ALL.len()],
}

impl SecurityStatus {
    /// How many were refused for this reason.
    #[must_use]
    pub fn refused(&self, why: Refusal) -> u64 {
        self.refused[why as usize]
    }

    /// How many were refused in all.
    #[must_use]
    pub fn refused_in_all(&self) -> u64 {
        self.refused.iter().sum()
    }
}

/// Counters behind a [`SecurityStatus`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) proved: AtomicU64,
    pub(crate) waiting: AtomicUsize,
    refused: [AtomicU64; Refusal::ALL.len()],
}

impl Counters {
    pub(crate) fn on_refused(&self, why: Refusal) {
        self.refused[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn status(&self) -> SecurityStatus {
        SecurityStatus {
            proved: self.proved.load(Ordering::Relaxed),
            waiting: self.waiting.load(Ordering::Relaxed),
            refused: std::array::from_fn(|index| self.refused[index].load(Ordering::Relaxed)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter_and_words() {
        let counters = Counters::default();
        for (index, why) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(why as usize, index);
            (0..=index).for_each(|_| counters.on_refused(why));
        }
        let status = counters.status();
        assert!(Refusal::ALL.into_iter().all(|why| status.refused(why) == why as u64 + 1));
        assert_eq!(status.refused_in_all(), 18 * 19 / 2);
        let words: std::collections::BTreeSet<String> =
            Refusal::ALL.iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), Refusal::ALL.len());
    }
}
