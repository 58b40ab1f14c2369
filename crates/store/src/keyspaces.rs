//! Numbers of keyspaces: which belong to databases, which to the leaves of their keys, and which to the store itself.
//!
//! ```text
//! 0                   prepared transactions
//! 1 to 2^31 - 1       one serves each database; FLUSHDB takes the next
//! 2^31 + id           leaves of the paged collections of keyspace id
//! 2^32 - 2, 2^32 - 1  notes about paged collections that are gone; what the server keeps
//! ```

use journal::Keyspace;

/// The keyspace of prepared transactions (`staging`): no database is mapped to it, whose keyspaces begin at 1, so no command
/// sees it, and it is alive all the same.
pub(crate) const PREPARED_KEYSPACE: Keyspace = Keyspace(0);

/// The keyspace of what the server keeps for itself (`kept`); no database is mapped to it either.
pub(crate) const KEPT_KEYSPACE: Keyspace = Keyspace(u32::MAX);

/// The keyspace of notes about paged collections that are gone and whose leaves are not (`sweep`).
pub(crate) const SWEPT_KEYSPACE: Keyspace = Keyspace(u32::MAX - 1);

/// The database number by which [`KEPT_KEYSPACE`] is reached: beyond the last that a server can have.
pub(crate) const KEPT_DB: u16 = u16::MAX - 1;

/// The database number of what no client can name: nobody watches keys of it.
pub(crate) const HIDDEN_DB: u16 = u16::MAX;

/// Whether keyspace `id` is no database's, and lives all the same.
pub(crate) fn is_own(id: Keyspace) -> bool {
    matches!(id, PREPARED_KEYSPACE | KEPT_KEYSPACE | SWEPT_KEYSPACE)
}

/// The keyspace of the leaves that belong to the keys of `id`.
pub(crate) fn leaves_of(id: Keyspace) -> Keyspace {
    Keyspace(id.0 | LEAVES)
}

/// Whether keyspace `id` has leaves.
pub(crate) fn is_leaves(id: Keyspace) -> bool {
    id.0 & LEAVES != 0 && !is_own(id)
}

/// The keyspace of the keys whose leaves keyspace `id` has; of any other itself.
pub(crate) fn keys_of(id: Keyspace) -> Keyspace {
    if is_leaves(id) { Keyspace(id.0 & !LEAVES) } else { id }
}

/// In the number of a keyspace: it has leaves. FLUSHDB counts keyspaces up, and would take years to come here.
const LEAVES: u32 = 1 << 31;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keyspaces_of_leaves_are_told_from_all_others() {
        for own in [KEPT_KEYSPACE, PREPARED_KEYSPACE, SWEPT_KEYSPACE] {
            assert!(is_own(own) && !is_leaves(own) && keys_of(own) == own);
        }
        let leaves = leaves_of(Keyspace(7));
        assert!(is_leaves(leaves) && !is_leaves(Keyspace(7)) && !is_own(leaves));
        assert_eq!((keys_of(leaves), keys_of(Keyspace(7))), (Keyspace(7), Keyspace(7)));
    }
}
