//! Doors for fuzz targets: what databases and applications send, as functions of bytes. Not part of the interface.

use crate::mariadb::fuzzing as mariadb;
use crate::postgres::fuzzing as postgres;

/// Reads `raw` as a value of each type that PostgreSQL sends and that is told as text; returns for how many types it is one.
///
/// # Panics
/// When what was made of a value that is no text is not text: a bug of the decoder.
#[must_use]
pub fn postgres_value(raw: &[u8]) -> usize {
    postgres::value(raw)
}

/// Hears what a PostgreSQL sends, in pieces of this many bytes; returns how often it says that a transaction was prepared, or `None` if it
/// sends what is refused.
#[must_use]
pub fn postgres_tags(sent: &[u8], piece_bytes: usize) -> Option<u64> {
    postgres::tags(sent, piece_bytes)
}

/// Judges `text` as a statement of each database; returns how many would run it.
///
/// # Panics
/// When a comment before it changes what it is: a bug of a guard.
#[must_use]
pub fn statement(text: &str) -> usize {
    let commented = ["/* a */ ", "-- a\n\t", " /**/\n"].map(|comment| format!("{comment}{text}"));
    for other in &commented {
        assert_eq!(postgres::judge(text), postgres::judge(other), "PostgreSQL: {other:?}");
        assert_eq!(mariadb::judge(text), mariadb::judge(other), "MariaDB: {other:?}");
    }
    usize::from(postgres::judge(text).is_some()) + usize::from(mariadb::judge(text).is_some())
}

/// Reads a row of XA RECOVER; returns whether it is one of a branch that is written as this crate or its applications do.
///
/// # Panics
/// When it would be written otherwise: a bug of the parser.
#[must_use]
pub fn xid(format: u64, gtrid: usize, bqual: usize, data: &[u8]) -> bool {
    mariadb::xid(format, gtrid, bqual, data)
}

/// Reads `text` as what MariaDB's engine says of its transactions; returns how many have a session.
///
/// # Panics
/// When it hides a transaction that is behind it: a bug of the parser.
#[must_use]
pub fn monitor(text: &str) -> usize {
    mariadb::monitor(text)
}
