//! Both sides of a connection prove that they know the shared secret, over TLS whose certificates prove nothing.
//!
//! ```text
//!  dialer                                    acceptor
//!    TLS 1.3 handshake, both get the same exporter value, nobody in the middle does
//!    proof(dialer, node, peer)     -->         right: proof(acceptor, peer, node), open
//!    right: open                   <--         wrong: refused, closed
//! ```
//!
//! | part of what HMAC-SHA256 goes over | size |
//! |---|---|
//! | `evenkeel transport proof 1` | 26 |
//! | exporter value of the TLS session | 32 |
//! | kind: dialer or acceptor | 1 |
//! | node that proves, node that it talks to | 8 + 8 |
//! | name of the cluster | the rest |
//!
//! Invariants
//!   1. A proof is of one TLS session, one direction and two nodes: sent again, or back, it is wrong.
//!   2. The acceptor proves nothing to a dialer that has not.
//!   3. Codes are compared in constant time; nothing of a secret is shown.
//!
//! Whoever answers at an address that is dialed gets a code of the secret, and can try secrets on it at leisure: a secret has to be
//! random, not a word. Performs no I/O.

use std::fmt;
use std::sync::Arc;

use ring::hmac;

use super::Refusal;
use crate::NodeId;
use crate::wire::{PROOF_BYTES, ProofKind, ProofRecord};

/// Bytes of the exporter value.
pub(crate) const BINDING_BYTES: usize = 32;

const DOMAIN: &[u8] = b"evenkeel transport proof 1";

/// What a node proves with.
pub(crate) struct ProofKey {
    key: hmac::Key,
    cluster: String,
}

impl ProofKey {
    pub(crate) fn new(secret: &[u8], cluster: &str) -> Arc<Self> {
        Arc::new(Self { key: hmac::Key::new(hmac::HMAC_SHA256, secret), cluster: cluster.to_owned() })
    }

    /// What goes into the code of a proof.
    fn text(&self, binding: &[u8; BINDING_BYTES], kind: ProofKind, from: NodeId, to: NodeId) -> Vec<u8> {
        let (from, to) = (from.0.to_le_bytes(), to.0.to_le_bytes());
        [DOMAIN, binding, &[kind as u8], &from, &to, self.cluster.as_bytes()].concat()
    }
}

/// Without the secret.
impl fmt::Debug for ProofKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProofKey").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// One side that waits for the other's proof.
#[derive(Debug)]
pub(crate) struct Proof {
    key: Arc<ProofKey>,
    binding: [u8; BINDING_BYTES],
    own: NodeId,
    /// Who was dialed; `None`: this side accepted.
    dialed: Option<NodeId>,
}

/// The other side's proof is right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Proved {
    /// Who it is.
    pub(crate) peer: NodeId,
    /// What to send before anything else.
    pub(crate) answer: Option<[u8; PROOF_BYTES]>,
}

impl Proof {
    /// For the TLS session whose exporter value is `binding`.
    pub(crate) fn new(
        key: Arc<ProofKey>,
        binding: [u8; BINDING_BYTES],
        own: NodeId,
        dialed: Option<NodeId>,
    ) -> Self {
        Self { key, binding, own, dialed }
    }

    /// What to send first: the dialer's proof.
    pub(crate) fn opening(&self) -> Option<[u8; PROOF_BYTES]> {
        self.dialed.map(|peer| self.prove(ProofKind::Dialer, peer))
    }

    /// Takes the other side's proof.
    ///
    /// # Errors
    /// Why it is none.
    pub(crate) fn on_record(&self, bytes: &[u8; PROOF_BYTES]) -> Result<Proved, Refusal> {
        let record = ProofRecord::decode(bytes).map_err(|_| Refusal::NoProof)?;
        let expected = if self.dialed.is_some() { ProofKind::Acceptor } else { ProofKind::Dialer };
        if record.kind == ProofKind::Refused && self.dialed.is_some() {
            return Err(Refusal::PeerRefusesSecret);
        }
        if record.kind != expected {
            return Err(Refusal::WrongSecret);
        }
        let (from, to) = (NodeId(record.node), NodeId(record.to));
        let text = self.key.text(&self.binding, expected, from, to);
        hmac::verify(&self.key.key, &text, &record.mac).map_err(|_| Refusal::WrongSecret)?;
        if to != self.own || self.dialed.is_some_and(|meant| meant != from) {
            return Err(Refusal::WrongNode);
        }
        let answer = self.dialed.is_none().then(|| self.prove(ProofKind::Acceptor, from));
        Ok(Proved { peer: from, answer })
    }

    fn prove(&self, kind: ProofKind, to: NodeId) -> [u8; PROOF_BYTES] {
        let tag = hmac::sign(&self.key.key, &self.key.text(&self.binding, kind, self.own, to));
        let mut mac = [0; crate::wire::MAC_BYTES];
        mac.copy_from_slice(tag.as_ref());
        ProofRecord { kind, node: self.own.0, to: to.0, mac }.encode()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"a secret of more than 16 bytes";
    const ONE: NodeId = NodeId(1);
    const TWO: NodeId = NodeId(2);

    fn key(secret: &[u8]) -> Arc<ProofKey> {
        ProofKey::new(secret, "east")
    }

    fn dialer(key: Arc<ProofKey>, binding: u8) -> Proof {
        Proof::new(key, [binding; BINDING_BYTES], ONE, Some(TWO))
    }

    fn acceptor(key: Arc<ProofKey>, binding: u8) -> Proof {
        Proof::new(key, [binding; BINDING_BYTES], TWO, None)
    }

    #[test]
    fn both_sides_with_the_secret_learn_who_the_other_is() {
        let (one, two) = (dialer(key(SECRET), 7), acceptor(key(SECRET), 7));
        assert_eq!(two.opening(), None, "who accepted waits");
        let at_two = two.on_record(&one.opening().unwrap()).unwrap();
        assert_eq!(at_two.peer, ONE);
        let at_one = one.on_record(&at_two.answer.unwrap()).unwrap();
        assert_eq!((at_one.peer, at_one.answer), (TWO, None));
    }

    /// The codes of the file were computed by another implementation of HMAC, after the table of this module.
    #[test]
    fn bytes_are_those_of_the_golden_file() {
        let (one, two) = (dialer(key(SECRET), 7), acceptor(key(SECRET), 7));
        let opening = one.opening().unwrap();
        let answer = two.on_record(&opening).unwrap().answer.unwrap();
        let hex = |bytes: [u8; PROOF_BYTES]| bytes.map(|byte| format!("{byte:02x}")).concat() + "\n";
        let text = [opening, answer, ProofRecord::REFUSED.encode()].map(hex).concat();
        assert_eq!(text, include_str!("../../tests/golden/proof-v1.hex"));
    }

    #[test]
    fn another_secret_cluster_or_session_is_refused() {
        let others = [
            acceptor(key(b"another secret, as long as that"), 7),
            acceptor(ProofKey::new(SECRET, "west"), 7),
            acceptor(key(SECRET), 8),
        ];
        let opening = dialer(key(SECRET), 7).opening().unwrap();
        for other in others {
            assert_eq!(other.on_record(&opening), Err(Refusal::WrongSecret), "{other:?}");
        }
    }

    #[test]
    fn proof_sent_back_is_none() {
        let one = dialer(key(SECRET), 7);
        assert_eq!(one.on_record(&one.opening().unwrap()), Err(Refusal::WrongSecret));
        let mut reflected = ProofRecord::decode(&one.opening().unwrap()).unwrap();
        (reflected.kind, reflected.node, reflected.to) = (ProofKind::Acceptor, TWO.0, ONE.0);
        assert_eq!(one.on_record(&reflected.encode()), Err(Refusal::WrongSecret));
    }

    #[test]
    fn each_changed_bit_is_noticed() {
        let (one, two) = (dialer(key(SECRET), 7), acceptor(key(SECRET), 7));
        let right = one.opening().unwrap();
        for bit in 0..PROOF_BYTES * 8 {
            let mut bytes = right;
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(two.on_record(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn right_proof_for_another_node_is_refused() {
        let three = Proof::new(key(SECRET), [7; BINDING_BYTES], NodeId(3), None);
        let opening = dialer(key(SECRET), 7).opening().unwrap();
        assert_eq!(three.on_record(&opening), Err(Refusal::WrongNode));
        let one = dialer(key(SECRET), 7);
        let of_three = three.prove(ProofKind::Acceptor, ONE);
        assert_eq!(one.on_record(&of_three), Err(Refusal::WrongNode), "node 2 was dialed");
    }

    #[test]
    fn refusal_is_told_to_the_dialer_alone() {
        let refused = ProofRecord::REFUSED.encode();
        assert_eq!(dialer(key(SECRET), 7).on_record(&refused), Err(Refusal::PeerRefusesSecret));
        assert_eq!(acceptor(key(SECRET), 7).on_record(&refused), Err(Refusal::WrongSecret));
        assert_eq!(acceptor(key(SECRET), 7).on_record(&[0; PROOF_BYTES]), Err(Refusal::NoProof));
    }

    #[test]
    fn debug_shows_no_secret() {
        let shown = format!("{:?}", dialer(ProofKey::new(b"hunter2hunter2hunter2", "east"), 7));
        assert!(shown.contains("east") && !shown.contains("hunter2"), "{shown}");
    }
}
