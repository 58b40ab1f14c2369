//! What a log holds whose process was killed under way, and whether damage to it would be seen.

use std::path::Path;

use txn::id::NodeName;
use txn::record::Decision;

use super::log::{LogKind, LogOptions};
use crate::Failure;

/// Records of a log that was not closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How many there are; each was read and understood.
    pub records: usize,
    /// Those in which a bit can be flipped so that they are still taken for records.
    pub unchecked: usize,
}

/// Opens the log in `folder` and flips each bit of each record that it holds.
///
/// # Errors
/// It does not open, or a record is none as it is.
pub fn left(kind: LogKind, options: &LogOptions, folder: &Path, node: &str) -> Result<Left, Failure> {
    let node = NodeName::new(node).map_err(|error| error.to_string())?;
    let opened = kind.open(folder, &node, options)?;
    opened.log.close();
    let mut left = Left { records: opened.records.len(), unchecked: 0 };
    for (tx, record) in opened.records {
        let decision = Decision::decode(&record).map_err(|error| format!("record of {tx}: {error}"))?;
        if decision.tx != tx {
            return Err(format!("record of {tx} is of {}", decision.tx));
        }
        left.unchecked += usize::from(passes_damaged(record));
    }
    Ok(left)
}

/// Whether `record` is taken for a record with one bit of it flipped.
fn passes_damaged(mut record: Vec<u8>) -> bool {
    (0..record.len() * 8).any(|bit| {
        record[bit / 8] ^= 1 << (bit % 8);
        let passes = Decision::decode(&record).is_ok();
        record[bit / 8] ^= 1 << (bit % 8);
        passes
    })
}
