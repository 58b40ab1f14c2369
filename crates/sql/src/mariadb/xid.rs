//! Identifiers of branches as XA has them.
//!
//! | who prepares | gtrid | bqual | formatID |
//! |---|---|---|---|
//! | this crate | the branch's identifier | `run` | 1 |
//! | an application whose session holds the user lock ID: `XA START 'ID','lock'` | the branch's identifier | `lock` | 1 |
//! | any other: `XA START 'ID'` | the branch's identifier | empty | 1 |
//!
//! The qualifier tells a later start how to find the session that may still hold a branch: it is with the branch wherever that is listed,
//! and needs no record. An identifier has at most 60 bytes of the 64 of a gtrid and of the 64 characters of a user lock's name, and
//! needs no quoting (`id`).

use std::fmt;

/// A branch that was prepared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Xid {
    /// The branch's identifier.
    pub(super) id: String,
    /// Who prepared it.
    pub(super) by: By,
}

/// Who prepared a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// A session of this crate's.
    Here,
    /// An application's, which held the user lock of this name when it began the branch.
    Holder,
    /// An application's, and nothing tells which.
    Anybody,
}

impl Xid {
    /// The identifier of a branch that is run here.
    pub(super) fn own(id: String) -> Self {
        Self { id, by: By::Here }
    }

    /// What a row of XA RECOVER names: format, sizes of the two parts, both parts. `None` if nobody here would have written it.
    pub(super) fn of_row((format, gtrid, bqual, data): &(u64, usize, usize, Vec<u8>)) -> Option<Self> {
        let parts = (*format == 1 && gtrid.checked_add(*bqual)? == data.len()).then(|| data.split_at(*gtrid));
        let (id, qualifier) = parts?;
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        let by = [By::Here, By::Holder, By::Anybody]
            .into_iter()
            .find(|by| by.qualifier().as_bytes() == qualifier)?;
        let id = std::str::from_utf8(id).ok().filter(|id| id.bytes().all(|byte| is_plain(&byte)))?;
        Some(Self { id: id.to_owned(), by })
    }
}

/// As XA commands want it.
impl fmt::Display for Xid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.by {
            By::Anybody => write!(f, "'{}'", self.id),
            by => write!(f, "'{}','{}'", self.id, by.qualifier()),
        }
    }
}

impl By {
    fn qualifier(self) -> &'static str {
        match self {
            Self::Here => "run",
            Self::Holder => "lock",
            Self::Anybody => "",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_read_as_it_would_have_been_written_and_no_other() {
        let row =
            |format, gtrid, bqual, data: &str| Xid::of_row(&(format, gtrid, bqual, data.as_bytes().to_vec()));
        let known = [
            (3, "evk_a_1_2_0run", "'evk_a_1_2_0','run'", By::Here),
            (4, "evk_a_1_2_0lock", "'evk_a_1_2_0','lock'", By::Holder),
            (0, "evk_a_1_2_0", "'evk_a_1_2_0'", By::Anybody),
        ];
        for (bqual, data, text, by) in known {
            let xid = row(1, 11, bqual, data).expect("it is one");
            assert_eq!((xid.to_string().as_str(), xid.by), (text, by));
        }
        let others = [
            (2, 11, 0, "evk_a_1_2_0"),
            (1, 10, 1, "evk_a_1_2_0"),
            (1, 11, 3, "evk_a_1_2_0"),
            (1, 2, 0, "a'"),
        ];
        assert!(
            others.iter().all(|(format, gtrid, bqual, data)| row(*format, *gtrid, *bqual, data).is_none())
        );
        assert_eq!(row(1, usize::MAX, 1, "a"), None);
    }
}
