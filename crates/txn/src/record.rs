//! The record of a decision: what a log keeps of a transaction, and recovery acts on.
//!
//! All numbers are little-endian.
//!
//! ```text
//!  record | version u8, 1 | kind u8: 1 commit, 2 heuristic | branches u16 | epoch u32 | number u64 | decided u64, Unix time in ms
//!         | each branch | crc u32, CRC-32C of all before it
//!  branch | number u16 | state u8: 1 to be committed, 2 committed, 3 rolled back, 4 mixed, 5 to be rolled back
//!         | length of the resource's name u8 | its name
//! ```
//!
//! Invariants
//!   1. What is decoded is what was encoded: every bit is under the checksum, nothing may follow, each branch is there once, in the order of
//!      their numbers; there are at most [`BRANCHES_MAX`].
//!
//! Out of scope: where records are kept (`decision_log`).

use std::sync::Arc;

use clock::UnixMs;

use crate::id::TxId;
use crate::protocol::BRANCHES_MAX;
use crate::resource::RESOURCE_NAME_BYTES_MAX;

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The transaction.
    pub tx: TxId,
    /// What became of it.
    pub kind: DecisionKind,
    /// When.
    pub decided: UnixMs,
    /// Who takes part, in the order of their numbers; those that only read or rolled back are left out.
    pub participants: Vec<Participant>,
}

impl Decision {
    /// Appends the record's bytes to `out`: some 100 ns, and no allocation when `out` has room.
    ///
    /// # Panics
    /// If there are more than [`BRANCHES_MAX`] participants, if one is there twice or has a name of no length or of more than
    /// [`RESOURCE_NAME_BYTES_MAX`] bytes: `protocol` and `resource` refuse such.
    pub fn encode(&self, out: &mut Vec<u8>) {
        assert!(self.participants.len() <= BRANCHES_MAX, "{} participants", self.participants.len());
        let start = out.len();
        out.extend_from_slice(&[VERSION, self.kind as u8]);
        out.extend_from_slice(&(self.participants.len() as u16).to_le_bytes());
        out.extend_from_slice(&self.tx.epoch.to_le_bytes());
        out.extend_from_slice(&self.tx.number.to_le_bytes());
        out.extend_from_slice(&self.decided.0.to_le_bytes());
        let mut last = None;
        for Participant { branch, resource, state } in &self.participants {
            assert!(last.replace(*branch) < Some(*branch), "branch {branch} is there twice or out of order");
            let len = resource.len();
            assert!((1..=RESOURCE_NAME_BYTES_MAX).contains(&len), "name of {len} B");
            out.extend_from_slice(&branch.to_le_bytes());
            out.extend_from_slice(&[*state as u8, len as u8]);
            out.extend_from_slice(resource.as_bytes());
        }
        let crc = crc_fast::crc32_iscsi(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }

    /// What [`Decision::encode`] was called on; `bytes` is one record and nothing else.
    ///
    /// # Errors
    /// [`RecordError`]: what does not hold first.
    pub fn decode(bytes: &[u8]) -> Result<Self, RecordError> {
        let (bytes, crc) = bytes.split_last_chunk().ok_or(RecordError::Short)?;
        if crc_fast::crc32_iscsi(bytes) != u32::from_le_bytes(*crc) {
            return Err(RecordError::Checksum);
        }
        let mut rest = bytes;
        let [version, kind] = *take(&mut rest)?;
        if version != VERSION {
            return Err(RecordError::Version(version));
        }
        let kind = DecisionKind::of(kind).ok_or(RecordError::Value { what: "kind", value: kind.into() })?;
        let count = u16::from_le_bytes(*take(&mut rest)?);
        if usize::from(count) > BRANCHES_MAX {
            return Err(RecordError::Value { what: "number of branches", value: count.into() });
        }
        let epoch = u32::from_le_bytes(*take(&mut rest)?);
        let number = u64::from_le_bytes(*take(&mut rest)?);
        let decided = UnixMs(u64::from_le_bytes(*take(&mut rest)?));
        let participants = participants(&mut rest, count)?;
        match rest {
            [] => Ok(Self { tx: TxId { epoch, number }, kind, decided, participants }),
            _ => Err(RecordError::Long(rest.len())),
        }
    }
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// They end too early.
    #[error("the record is cut short")]
    Short,
    /// Something changed since they were written.
    #[error("the record's checksum does not match")]
    Checksum,
    /// A newer version wrote it.
    #[error("the record has version {0}, this one reads {VERSION}; upgrade evenkeel")]
    Version(u8),
    /// A field has a value that was never written.
    #[error("the record's {what} is {value}")]
    Value {
        /// Which field.
        what: &'static str,
        /// Its value.
        value: u64,
    },
    /// The name of a resource is no text.
    #[error("the name of a resource is no text")]
    Name,
    /// A branch is there twice, or they are out of order.
    #[error("branch {0} is there twice or out of order")]
    Order(u16),
    /// So many bytes follow.
    #[error("{0} B follow the record")]
    Long(usize),
}

/// What becomes of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// It is committed, and branches are to hear of it.
    Commit = 1,
    /// Branches disagree, which is kept until an operator has seen it.
    Heuristic = 2,
}

impl DecisionKind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Commit, Self::Heuristic].into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One branch of a decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Participant {
    /// Its number.
    pub branch: u16,
    /// Name of its resource.
    pub resource: Arc<str>,
    /// What is known of it.
    pub state: ParticipantState,
}

/// What is known of a branch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParticipantState {
    /// It is prepared and is to commit.
    ToCommit = 1,
    /// It has committed.
    Committed = 2,
    /// It has rolled back, on its own.
    RolledBack = 3,
    /// A part of it has.
    Mixed = 4,
    /// It is prepared and is to roll back: an operator said so.
    ToRollBack = 5,
}

impl ParticipantState {
    fn of(byte: u8) -> Option<Self> {
        let states = [Self::ToCommit, Self::Committed, Self::RolledBack, Self::Mixed, Self::ToRollBack];
        states.into_iter().find(|state| *state as u8 == byte)
    }
}

fn participants(rest: &mut &[u8], count: u16) -> Result<Vec<Participant>, RecordError> {
    let mut participants: Vec<Participant> = Vec::with_capacity(count.into());
    for _ in 0..count {
        let branch = u16::from_le_bytes(*take(rest)?);
        if participants.last().is_some_and(|last| last.branch >= branch) {
            return Err(RecordError::Order(branch));
        }
        let [state, len] = *take(rest)?;
        let unknown = RecordError::Value { what: "state of a branch", value: state.into() };
        let state = ParticipantState::of(state).ok_or(unknown)?;
        let len = usize::from(len);
        if !(1..=RESOURCE_NAME_BYTES_MAX).contains(&len) {
            return Err(RecordError::Value { what: "length of a name", value: len as u64 });
        }
        let (name, behind) = rest.split_at_checked(len).ok_or(RecordError::Short)?;
        *rest = behind;
        let resource = std::str::from_utf8(name).map_err(|_| RecordError::Name)?.into();
        participants.push(Participant { branch, resource, state });
    }
    Ok(participants)
}

/// The next `N` bytes, taken off `rest`.
fn take<'a, const N: usize>(rest: &mut &'a [u8]) -> Result<&'a [u8; N], RecordError> {
    let (taken, behind) = rest.split_first_chunk().ok_or(RecordError::Short)?;
    *rest = behind;
    Ok(taken)
}

const VERSION: u8 = 1;
// Counts and lengths fit the fields that they are written to.
const _: () = assert!(BRANCHES_MAX <= u16::MAX as usize && RESOURCE_NAME_BYTES_MAX <= u8::MAX as usize);
