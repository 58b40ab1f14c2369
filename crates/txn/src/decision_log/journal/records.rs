//! The records that the decision log puts into its journal, and what they come to when they are read in order.
//!
//! Little-endian; record headers, checksums and order are the journal's.
//!
//! ```text
//!  kind d1, decision | epoch u32 | number u64 | record                   instead of what is known of that transaction
//!  kind d2, removal  | epoch u32 | number u64 | again, once or more      these are not needed any more
//!  kind d3, start    | epoch u32 | name of the node                      as d4, of versions that did not note the first epoch
//!  kind d4, start    | epoch u32 | born u32 | name of the node           a start of that node, the newest counts; born: the first one
//! ```
//!
//! Invariants
//!   1. Whatever is none of these is damage: a folder of the store's is none of ours.

use std::collections::HashMap;

use journal::{LogAddress, RecordView};

use crate::decision_log::BORN_UNKNOWN;
use crate::id::TxId;

/// What the journal held.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Epoch and node of the newest start, and where it lies.
    pub(super) start: Option<Start>,
    /// Records that were not removed, and where they lie.
    pub(super) records: HashMap<TxId, (LogAddress, Vec<u8>)>,
    /// Some record was there.
    pub(super) is_used: bool,
}

/// A start of a node.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) epoch: u32,
    pub(super) born: u32,
    /// Of the record.
    pub(super) payload_len: u32,
    pub(super) node: String,
    pub(super) address: LogAddress,
}

impl Found {
    /// Takes the next record in.
    ///
    /// # Errors
    /// What is wrong with it.
    pub(super) fn apply(&mut self, view: &RecordView<'_>) -> Result<(), &'static str> {
        self.is_used = true;
        match view.header.kind {
            KIND_DECISION => {
                let (tx, record) = split(view.payload).ok_or("a decision without a transaction")?;
                self.records.insert(tx, (view.address, record.to_vec()));
            }
            KIND_REMOVAL => {
                let keys = view.payload.chunks(KEY_BYTES).map(split);
                for key in keys {
                    let (tx, _) = key.ok_or("a removal without a transaction")?;
                    self.records.remove(&tx);
                }
            }
            kind @ (KIND_START | KIND_START_1) => {
                let (epoch, rest) = number(view.payload).ok_or("a start without an epoch")?;
                let (born, node) = match kind {
                    KIND_START => number(rest).ok_or("a start without the first epoch")?,
                    _ => (BORN_UNKNOWN, rest),
                };
                let node =
                    std::str::from_utf8(node).map_err(|_| "a start of a node whose name is no text")?;
                if self.start.as_ref().is_some_and(|last| last.epoch > epoch || last.node != node) {
                    return Err("a start of another node, or of an epoch before the last");
                }
                let payload_len = view.payload.len() as u32;
                self.start =
                    Some(Start { epoch, born, payload_len, node: node.to_owned(), address: view.address });
            }
            _ => return Err("no record of a decision log"),
        }
        Ok(())
    }
}

/// A transaction, as payloads have it.
pub(super) fn key(tx: TxId) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[..4].copy_from_slice(&tx.epoch.to_le_bytes());
    key[4..].copy_from_slice(&tx.number.to_le_bytes());
    key
}

fn number(payload: &[u8]) -> Option<(u32, &[u8])> {
    payload.split_first_chunk().map(|(number, rest)| (u32::from_le_bytes(*number), rest))
}

fn split(payload: &[u8]) -> Option<(TxId, &[u8])> {
    let (epoch, rest) = number(payload)?;
    let (number, rest) = rest.split_first_chunk()?;
    Some((TxId { epoch, number: u64::from_le_bytes(*number) }, rest))
}

pub(super) const KIND_DECISION: u8 = 0xD1;
pub(super) const KIND_REMOVAL: u8 = 0xD2;
pub(super) const KIND_START_1: u8 = 0xD3;
pub(super) const KIND_START: u8 = 0xD4;
pub(super) const KEY_BYTES: usize = 12;
