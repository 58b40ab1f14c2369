//! Why a command did not do what it was asked, by what its user can do about it. The text is one line.

use std::fmt;

use server::TransactionsError;
use server::settings::SettingError;
use store::StoreError;

/// A failure of the process.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// A flag, or a setting in a file, is to be changed before it can do anything.
    Usage(String),
    /// What it was told does not fit what it found: another folder, file or address is to be named, or a setting changed.
    Place(String),
    /// No server answers, or not as one: it is to be started, or its log read.
    NoServer(String),
    /// The server understood, and refused.
    Refused(String),
    /// Data is damaged, or not to be had.
    Data(String),
    /// A folder was not checked: nothing is known of it.
    Unchecked(String),
    /// The system refuses what is needed.
    System(String),
}

impl Failure {
    /// The exit status.
    pub(crate) fn status(&self) -> u8 {
        match self {
            Self::Usage(_) => 2,
            Self::Unchecked(_) => 3,
            _ => 1,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Usage(text)
        | Self::Place(text)
        | Self::NoServer(text)
        | Self::Refused(text)
        | Self::Data(text)
        | Self::Unchecked(text)
        | Self::System(text)) = self;
        f.write_str(text)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unchecked(text) => Self::Unchecked(text),
            error => Self::Data(error.to_string()),
        }
    }
}

impl From<SettingError> for Failure {
    fn from(error: SettingError) -> Self {
        Self::Usage(error.to_string())
    }
}

impl From<TransactionsError> for Failure {
    fn from(error: TransactionsError) -> Self {
        let text = error.to_string();
        match error {
            TransactionsError::Setting(_) => Self::Place(text),
            TransactionsError::Folder(_) => Self::Data(text),
            TransactionsError::System(_) => Self::System(text),
        }
    }
}
