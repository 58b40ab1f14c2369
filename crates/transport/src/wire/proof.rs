//! Proof: what each side of a connection sends once, as soon as TLS is there, to show that it knows the shared secret.
//!
//! | at | size | field (little-endian) |
//! |---|---|---|
//! | 0 | 2 | `EP` |
//! | 2 | 1 | version, 1 |
//! | 3 | 1 | kind: 1 of who dialed, 2 of who accepted, 3 refused |
//! | 4 | 4 | 0 |
//! | 8 | 8 | node that sends it; 0 if refused |
//! | 16 | 8 | node that it means to talk to; 0 if refused |
//! | 24 | 32 | HMAC-SHA256 (see `security::proof`); 0 if refused |
//!
//! Its size is fixed, so nothing that a stranger sends is used as a length.

/// Bytes of one.
pub const PROOF_BYTES: usize = 56;
/// Bytes of its authentication code.
pub const MAC_BYTES: usize = 32;
/// The only version so far.
const VERSION: u8 = 1;

const MAGIC: [u8; 2] = *b"EP";
const MAC_AT: usize = PROOF_BYTES - MAC_BYTES;

/// Who sends a proof, or that one was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum ProofKind {
    /// Of the side that dialed.
    Dialer = 1,
    /// Of the side that accepted.
    Acceptor = 2,
    /// In place of the acceptor's: the dialer's is not right. Nobody's word, but a hint for an operator.
    Refused = 3,
}

/// One proof, whose authentication code is not verified yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProofRecord {
    /// Who sends it.
    pub kind: ProofKind,
    /// Node that sends it.
    pub node: u64,
    /// Node that it means to talk to.
    pub to: u64,
    /// Over the rest, and what it is bound to.
    pub mac: [u8; MAC_BYTES],
}

/// What is wrong with a proof's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProofError {
    /// Not a node of ours, or one without a secret.
    #[error("what came is no proof")]
    NotAProof,
    /// Upgrade the older node.
    #[error("the peer's proof has version {0}, this node's version {VERSION}")]
    Version(u8),
}

impl ProofRecord {
    /// That a proof is not right.
    pub const REFUSED: Self = Self { kind: ProofKind::Refused, node: 0, to: 0, mac: [0; MAC_BYTES] };

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; PROOF_BYTES] {
        let mut bytes = [0; PROOF_BYTES];
        bytes[..2].copy_from_slice(&MAGIC);
        bytes[2..4].copy_from_slice(&[VERSION, self.kind as u8]);
        bytes[8..16].copy_from_slice(&self.node.to_le_bytes());
        bytes[16..MAC_AT].copy_from_slice(&self.to.to_le_bytes());
        bytes[MAC_AT..].copy_from_slice(&self.mac);
        bytes
    }

    /// What `bytes` say.
    ///
    /// # Errors
    /// [`ProofError`]: they are not what a node of this version sends.
    pub fn decode(bytes: &[u8; PROOF_BYTES]) -> Result<Self, ProofError> {
        if bytes[..2] != MAGIC {
            return Err(ProofError::NotAProof);
        }
        if bytes[2] != VERSION {
            return Err(ProofError::Version(bytes[2]));
        }
        let kinds = [ProofKind::Dialer, ProofKind::Acceptor, ProofKind::Refused];
        let kind = kinds.into_iter().find(|kind| *kind as u8 == bytes[3]).ok_or(ProofError::NotAProof)?;
        let mut mac = [0; MAC_BYTES];
        mac.copy_from_slice(&bytes[MAC_AT..]);
        let record = Self { kind, node: long_at(bytes, 8), to: long_at(bytes, 16), mac };
        let has_rest = bytes[4..8] != [0; 4] || (kind == ProofKind::Refused && record != Self::REFUSED);
        if has_rest { Err(ProofError::NotAProof) } else { Ok(record) }
    }
}

fn long_at(bytes: &[u8; PROOF_BYTES], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proof_comes_back() {
        for kind in [ProofKind::Dialer, ProofKind::Acceptor] {
            let record = ProofRecord { kind, node: u64::MAX, to: 7, mac: [9; MAC_BYTES] };
            assert_eq!(ProofRecord::decode(&record.encode()), Ok(record));
        }
        assert_eq!(ProofRecord::decode(&ProofRecord::REFUSED.encode()), Ok(ProofRecord::REFUSED));
    }

    #[test]
    fn what_no_node_sends_is_refused() {
        let right = ProofRecord { kind: ProofKind::Dialer, node: 1, to: 2, mac: [3; MAC_BYTES] }.encode();
        let altered = |at: usize, byte| {
            let mut bytes = right;
            bytes[at] = byte;
            ProofRecord::decode(&bytes)
        };
        assert_eq!(altered(0, b'*'), Err(ProofError::NotAProof));
        assert_eq!(altered(2, 2), Err(ProofError::Version(2)));
        for (at, byte) in [(3, 0), (3, 4), (4, 1), (7, 1), (3, 3)] {
            assert_eq!(altered(at, byte), Err(ProofError::NotAProof), "{byte} at {at}");
        }
    }
}
