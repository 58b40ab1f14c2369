//! Why a database is not used, by what the caller can do about it.
//!
//! Out of scope: why it takes no branches now ([`txn::resource::Unready`]), why a statement failed ([`StatementError`]).
//!
//! [`StatementError`]: crate::StatementError

use txn::resource::Unready;

/// Why a database cannot be used at all.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StartError {
    /// Its address, or what is set beside it, is to be changed.
    #[error("not an address of {system}: {why} ({form})")]
    Address {
        /// Of which database.
        name: String,
        /// Of what.
        system: &'static str,
        /// What such an address looks like.
        form: &'static str,
        /// What is wrong with it.
        why: AddressError,
    },
    /// It is to be spoken to in a way that cannot be.
    #[error("{why}")]
    Tls {
        /// Which database.
        name: String,
        /// The setting.
        why: TlsError,
    },
}

/// What is wrong with the address of a database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// It leads nowhere: it is to be written anew.
    #[error("{0}")]
    Malformed(String),
    /// It has a parameter in it that is a setting beside it: that is to be moved there.
    #[error(
        "{0} does not belong there: TLS is set beside it, with tls = disable, require or verify-full, tls_ca, tls_cert, tls_key"
    )]
    HasTls(String),
    /// It excludes what is set beside it, or one of its parts excludes another: one of the two is to go.
    #[error("{0}")]
    Conflict(String),
}

/// A setting of TLS that cannot be obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{setting}: {why}")]
pub struct TlsError {
    /// `tls`, `tls_ca`, `tls_cert` or `tls_key`.
    pub setting: &'static str,
    /// What is wrong with it.
    pub why: String,
}

/// Why a branch cannot be left to the application.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdoptError {
    /// The database takes none now.
    #[error(transparent)]
    Unready(#[from] Unready),
    /// Not this branch: it has ended, or its statements are run here. Another transaction can have one.
    #[error("{0}")]
    Taken(&'static str),
}

/// A text that is none of the words that a setting takes. What was expected is in it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct UnknownWord(pub(crate) String);
