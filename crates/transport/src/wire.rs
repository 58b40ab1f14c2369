//! What travels between two nodes: chunks with one header each, and in them frames.
//!
//! ```text
//!  connection: | chunk | chunk | chunk ...
//!  chunk:      | header, 32 B | payload: credit records, then frames |
//!  frame:      | varint length | varint channel | flags u8 | length bytes |
//! ```
//!
//! The header and its checksum are paid once a chunk, not once a message: a checksum for each message of 64 B would take a sixth of
//! the time that there is for it.
//!
//! Invariants
//!   1. A length is compared with its limit and with the bytes that are there before it is used.
//!   2. Frames are read only out of a chunk whose checksum is right, or which came by what authenticates its bytes.
//!   3. One encoding for each value: what decodes also encodes to the same bytes.
//!
//! Performs no I/O and allocates nothing to decode.
//! Out of scope: what sequences, acknowledgements and credits mean to a link.

mod chunk;
mod credit;
mod frame;
mod hello;
mod proof;
mod varint;

pub use chunk::{
    Chunk, HEADER_BYTES, Header, Kind, Parsed, VERSION, decode, decode_carried, encode_carried_header,
    encode_header,
};
pub use credit::{CREDIT_BYTES_MAX, CreditRecord, append_credit, credits};
pub use frame::{FRAME_HEADER_BYTES_MAX, Frame, Frames, append_frame};
pub use hello::{HELLO_BYTES, Hello};
pub use proof::{MAC_BYTES, PROOF_BYTES, ProofError, ProofKind, ProofRecord};

/// What is wrong with bytes that a peer sent. The connection that they came by is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// Not a node of ours: somebody else found the port.
    #[error("what came is not a chunk: it begins with {0:02x?}")]
    NotAChunk([u8; 2]),
    /// Upgrade the older node.
    #[error("the peer speaks version {theirs} of the transport, this node version {VERSION}")]
    Version {
        /// What the peer speaks.
        theirs: u8,
    },
    /// No kind has this number.
    #[error("a chunk of unknown kind {0}")]
    UnknownKind(u8),
    /// Both nodes need the same `transport.buffer_size`, or the peer is not what it says.
    #[error("a chunk of {length_bytes} B exceeds the limit of {limit_bytes} B")]
    TooLong {
        /// What the header says.
        length_bytes: u32,
        /// What is accepted here.
        limit_bytes: u32,
    },
    /// Bytes changed on their way.
    #[error("the checksum of a chunk of {length_bytes} B is wrong")]
    Checksum {
        /// Of its payload.
        length_bytes: u32,
    },
    /// A reliable chunk has a sequence number, others have none.
    #[error("a chunk of kind {kind:?} with sequence {sequence}")]
    Sequence {
        /// Of the chunk.
        kind: Kind,
        /// As the header has it.
        sequence: u64,
    },
    /// What a payload says of itself does not fit into it.
    #[error("malformed {what} at offset {offset} of a chunk's payload")]
    Malformed {
        /// Which part.
        what: &'static str,
        /// Where it begins.
        offset: usize,
    },
}
