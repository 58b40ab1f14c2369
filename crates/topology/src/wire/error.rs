//! What can be wrong with the bytes of an envelope: each error names the part, its place and its value.

/// The version that is written and read.
pub const VERSION: u8 = 2;

/// What is wrong with bytes that another process sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// Upgrade the older process.
    #[error("an envelope of version {theirs}, this process reads version {VERSION}")]
    Version {
        /// What it says.
        theirs: u8,
    },
    /// No kind has this number.
    #[error("an envelope of unknown kind {0}")]
    UnknownKind(u8),
    /// It ends too early, or a length in it is too large.
    #[error("{what} at byte {at} needs {needs} B, and {left} are left")]
    TooShort {
        /// Which part.
        what: &'static str,
        /// Where it begins.
        at: usize,
        /// What it needs.
        needs: u64,
        /// What there is.
        left: usize,
    },
    /// Bytes that belong to nothing.
    #[error("{left} B behind the end of an envelope at byte {at}")]
    TooLong {
        /// Where it ends.
        at: usize,
        /// What follows.
        left: usize,
    },
    /// A field has a value that it cannot have.
    #[error("{what} at byte {at} cannot be {value}")]
    Field {
        /// Which field.
        what: &'static str,
        /// Where it is.
        at: usize,
        /// What it is.
        value: u64,
    },
    /// The lengths of a tuple's values do not agree with its size.
    #[error("values at byte {at}, {size} B, whose lengths do not agree")]
    Values {
        /// Where they begin.
        at: usize,
        /// Their size.
        size: usize,
    },
    /// Text of an error that is not UTF-8.
    #[error("text at byte {at} is not UTF-8")]
    Text {
        /// Where it begins.
        at: usize,
    },
}
