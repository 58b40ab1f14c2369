//! Hello: the first chunk of each side of a connection. The side that dialed speaks first.
//!
//! | at | size | field of the payload (little-endian) |
//! |---|---|---|
//! | 0 | 8 | node that sends it |
//! | 8 | 8 | its incarnation: which run of this node it is, never 0, higher for a later one |
//! | 16 | 8 | node that it means to talk to |
//! | 24 | 8 | incarnation of that node which it has met last; 0 if none |
//! | 32 | 8 | bytes that it takes ahead of being consumed, of each channel |
//! | 40 | 8 | the same of all channels together |
//! | 48 | 4 | largest message that it takes, in bytes |
//! | 52 | 4 | largest payload of a chunk that it takes, in bytes |
//!
//! The acknowledgement in the chunk's header is about what that incarnation has sent.

use super::WireError;

/// Bytes of its payload.
pub const HELLO_BYTES: usize = 56;

/// Who a side is, and what it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello {
    /// Who sends it.
    pub node: u64,
    /// Which run of this node.
    pub incarnation: u64,
    /// Who it means to talk to.
    pub to: u64,
    /// Which run of that node it has met last.
    pub knows: Option<u64>,
    /// Bytes that it takes of a channel ahead of being consumed.
    pub channel_window_bytes: u64,
    /// The same of all channels together.
    pub link_window_bytes: u64,
    /// Largest message that it takes.
    pub message_bytes_max: u32,
    /// Largest payload of a chunk that it takes.
    pub payload_bytes_max: u32,
}

impl Hello {
    /// Its payload.
    #[must_use]
    pub fn encode(&self) -> [u8; HELLO_BYTES] {
        let longs = [
            self.node,
            self.incarnation,
            self.to,
            self.knows.unwrap_or(0),
            self.channel_window_bytes,
            self.link_window_bytes,
        ];
        let mut bytes = [0; HELLO_BYTES];
        for (place, long) in bytes.chunks_exact_mut(8).zip(longs) {
            place.copy_from_slice(&long.to_le_bytes());
        }
        bytes[48..52].copy_from_slice(&self.message_bytes_max.to_le_bytes());
        bytes[52..].copy_from_slice(&self.payload_bytes_max.to_le_bytes());
        bytes
    }

    /// What `payload` says.
    ///
    /// # Errors
    /// [`WireError::Malformed`] when it has another length, or an incarnation of 0.
    pub fn decode(payload: &[u8]) -> Result<Self, WireError> {
        let malformed = WireError::Malformed { what: "hello", offset: 0 };
        let bytes: &[u8; HELLO_BYTES] = payload.try_into().map_err(|_| malformed)?;
        let hello = Self {
            node: long_at(bytes, 0),
            incarnation: long_at(bytes, 8),
            to: long_at(bytes, 16),
            knows: Some(long_at(bytes, 24)).filter(|knows| *knows != 0),
            channel_window_bytes: long_at(bytes, 32),
            link_window_bytes: long_at(bytes, 40),
            message_bytes_max: long_at(bytes, 48) as u32,
            payload_bytes_max: (long_at(bytes, 48) >> 32) as u32,
        };
        if hello.incarnation == 0 { Err(malformed) } else { Ok(hello) }
    }
}

fn long_at(bytes: &[u8; HELLO_BYTES], at: usize) -> u64 {
    let mut long = [0; 8];
    long.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(long)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hello_comes_back_and_another_length_or_no_incarnation_is_refused() {
        let hello = Hello {
            node: 1,
            incarnation: u64::MAX,
            to: 3,
            knows: None,
            channel_window_bytes: 5,
            link_window_bytes: 6,
            message_bytes_max: 7,
            payload_bytes_max: u32::MAX,
        };
        for hello in [hello, Hello { knows: Some(4), ..hello }] {
            assert_eq!(Hello::decode(&hello.encode()), Ok(hello));
            assert!(Hello::decode(&hello.encode()[..HELLO_BYTES - 1]).is_err());
            assert!(Hello::decode(&Hello { incarnation: 0, ..hello }.encode()).is_err());
        }
    }
}
