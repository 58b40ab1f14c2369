//! Why settings are not taken, by what is to be changed.
//!
//! | type | whose |
//! |---|---|
//! | `Expected` | a kind's, which knows no setting |
//! | `WrongValue` | of a value, in whatever form it was given |
//! | `SettingError` | a setting's, by its name |

use std::borrow::Cow;

use sql::{TlsError, UnknownWord};

/// Why a setting is not taken. The text names it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingError {
    /// No setting has this name: it is to be another.
    #[error("{0}")]
    Unknown(String),
    /// The value is to be another.
    #[error("{0}")]
    Value(String),
    /// One of two settings is to go, or to change: they exclude each other.
    #[error("{0}")]
    Conflict(String),
    /// The setting is right, and what it names is not there, or cannot be read.
    #[error("{setting}: {why}")]
    Unreadable {
        /// Which setting.
        setting: String,
        /// What happened.
        why: Unreadable,
    },
    /// What is set of TLS cannot be obeyed.
    #[error("resource.{resource}.{error}")]
    Tls {
        /// Of which database.
        resource: String,
        /// What is wrong with it.
        error: TlsError,
    },
}

/// What happened to a file, or a variable of the environment, that a setting names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

/// What a value was to be, for a text that is something else: `a path`, `true or false`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Expected(Cow<'static, str>);

impl From<&'static str> for Expected {
    fn from(what: &'static str) -> Self {
        Self(what.into())
    }
}

impl From<String> for Expected {
    fn from(what: String) -> Self {
        Self(what.into())
    }
}

/// What is wrong with a value, in a sentence behind its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct WrongValue(Cow<'static, str>);

impl From<&'static str> for WrongValue {
    fn from(why: &'static str) -> Self {
        Self(why.into())
    }
}

impl From<String> for WrongValue {
    fn from(why: String) -> Self {
        Self(why.into())
    }
}

impl From<UnknownWord> for WrongValue {
    fn from(word: UnknownWord) -> Self {
        word.to_string().into()
    }
}
