//! Who takes part: the node, a transaction, a branch of it, and the identifiers that resources keep for them.
//!
//! Invariants
//!   1. An identifier is never used twice: an epoch belongs to one start of a node, a number to one transaction of an epoch.
//!   2. What is read back from a resource is this node's only if it is, byte for byte, what this node would have written.
//!
//! ```text
//!  evk_NODE_EPOCH_NUMBER_BRANCH     NODE as it is named, the others in hexadecimal without leading zeroes
//!  evk_NODE_EPOCH_NUMBER            the transaction: the global part where a resource wants two (XA)
//! ```
//!
//! Out of scope: how resources quote them.

use std::fmt;
use std::sync::Arc;

/// Name of a node: it tells its branches from those of all others that use the same resources.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NodeName(Arc<str>);

/// A transaction of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TxId {
    /// Which start of the node; the first is 1.
    pub epoch: u32,
    /// Which transaction of it; the first is 1.
    pub number: u64,
}

/// What one resource does for a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BranchId {
    /// The transaction.
    pub tx: TxId,
    /// Which branch of it; the first is 0.
    pub branch: u16,
}

/// Why something is no name of a node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is no name of a node: 1 to {NODE_NAME_BYTES_MAX} of a-z, 0-9 and - (txn.node)")]
pub struct NodeNameError {
    name: String,
}

impl NodeName {
    /// # Errors
    /// If `name` is not 1 to [`NODE_NAME_BYTES_MAX`] of `a-z`, `0-9` and `-`.
    pub fn new(name: &str) -> Result<Self, NodeNameError> {
        let is_part = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=NODE_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_part) {
            Ok(Self(name.into()))
        } else {
            Err(NodeNameError { name: name.chars().take(64).collect() })
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The identifier of `tx`: at most 55 bytes of `a-z`, `0-9`, `-` and `_`.
    #[must_use]
    pub fn global_id(&self, tx: TxId) -> String {
        format!("evk_{}_{:x}_{:x}", self.0, tx.epoch, tx.number)
    }

    /// The identifier of a branch: at most 60 bytes of the same.
    #[must_use]
    pub fn branch_id(&self, branch: BranchId) -> String {
        format!("{}_{:x}", self.global_id(branch.tx), branch.branch)
    }

    /// Whose branch of this node `id` names; `None` if it is of another node, or nobody's.
    #[must_use]
    pub fn parse_branch_id(&self, id: &str) -> Option<BranchId> {
        let rest = id.strip_prefix("evk_")?.strip_prefix(&*self.0)?.strip_prefix('_')?;
        let mut parts = rest.split('_');
        let epoch = u32::from_str_radix(parts.next()?, 16).ok()?;
        let number = u64::from_str_radix(parts.next()?, 16).ok()?;
        let branch = u16::from_str_radix(parts.next()?, 16).ok()?;
        let branch = BranchId { tx: TxId { epoch, number }, branch };
        // Signs, zeroes in front and capitals would make two names of one.
        (parts.next().is_none() && self.branch_id(branch) == id).then_some(branch)
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As users see it and type it: `EPOCH-NUMBER`, in hexadecimal.
impl fmt::Display for TxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.epoch, self.number)
    }
}

impl std::str::FromStr for TxId {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (epoch, number) = text.split_once('-').ok_or(())?;
        let epoch = u32::from_str_radix(epoch, 16).map_err(|_| ())?;
        let number = u64::from_str_radix(number, 16).map_err(|_| ())?;
        let tx = Self { epoch, number };
        if tx.to_string() == text { Ok(tx) } else { Err(()) }
    }
}

/// So that identifiers fit into the 64 bytes that XA has for each part.
pub const NODE_NAME_BYTES_MAX: usize = 24;

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).expect("a name")
    }

    #[test]
    fn identifier_is_read_back_by_its_node_alone() {
        let branch = BranchId { tx: TxId { epoch: u32::MAX, number: u64::MAX }, branch: u16::MAX };
        let one = node(&"n".repeat(NODE_NAME_BYTES_MAX));
        let id = one.branch_id(branch);
        assert!(id.len() <= 64 && one.global_id(branch.tx).len() <= 64, "{id}");
        assert_eq!(one.parse_branch_id(&id), Some(branch));
        assert_eq!(node("n").parse_branch_id(&id), None);
        assert_eq!(node("nn").parse_branch_id("evk_n_1_2_3"), None);
    }

    #[test]
    fn what_this_node_would_not_have_written_is_not_its_own() {
        let ids = [
            "",
            "evk_a_1_2",
            "evk_a_1_2_3_4",
            "evk_a_01_2_3",
            "evk_a_+1_2_3",
            "evk_a_A_2_3",
            "evk_a_1_2_10000",
            "EVK_a_1_2_3",
        ];
        assert!(ids.iter().all(|id| node("a").parse_branch_id(id).is_none()));
        assert!(node("a").parse_branch_id("evk_a_1_2_3").is_some());
    }

    #[test]
    fn name_has_no_sign_that_identifiers_are_made_with() {
        for name in ["", "a_b", "A", "a'b", "ä", &"a".repeat(NODE_NAME_BYTES_MAX + 1)] {
            assert!(NodeName::new(name).is_err(), "{name}");
        }
    }

    #[test]
    fn transaction_is_typed_as_it_is_shown() {
        let tx = TxId { epoch: 26, number: 255 };
        assert_eq!((tx.to_string().as_str(), "1a-ff".parse()), ("1a-ff", Ok(tx)));
        for text in ["", "1a", "1a-", "01a-ff", "1A-ff", "+1-2", "1-2-3"] {
            assert_eq!(text.parse::<TxId>(), Err(()), "{text}");
        }
    }
}
