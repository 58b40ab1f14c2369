//! Credit records, at the start of a payload: how many bytes a channel may have been sent in all.
//!
//! ```text
//!  | varint channel | limit u64 |      channel 65536: the link as a whole
//! ```
//!
//! A limit counts from the start of the link and never falls. So a record that comes twice, or late, does no harm, and one that was lost
//! with its connection is made good by the next.

use super::WireError;
use super::varint::{self, VARINT_BYTES_MAX};

/// Most bytes of a record.
pub const CREDIT_BYTES_MAX: usize = 3 + LIMIT_BYTES;

const LIMIT_BYTES: usize = 8;
const WHOLE_LINK: u32 = 1 << 16;

/// What a receiver lets its sender send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CreditRecord {
    /// For whom; `None`: for all channels of the link together.
    pub channel: Option<u16>,
    /// Bytes in all, since the link began.
    pub limit: u64,
}

/// Appends `record`.
pub fn append_credit(record: &CreditRecord, to: &mut Vec<u8>) {
    let mut number = [0; VARINT_BYTES_MAX];
    let count = varint::encode(record.channel.map_or(WHOLE_LINK, u32::from), &mut number);
    to.extend_from_slice(&number[..count]);
    to.extend_from_slice(&record.limit.to_le_bytes());
}

/// Hands the first `count` records of `payload` to `each`; returns where they end.
///
/// # Errors
/// [`WireError::Malformed`] when they are not all there.
pub fn credits(payload: &[u8], count: u32, mut each: impl FnMut(CreditRecord)) -> Result<usize, WireError> {
    let mut at = 0;
    for _ in 0..count {
        let (record, size_bytes) =
            read(&payload[at..]).ok_or(WireError::Malformed { what: "credit record", offset: at })?;
        each(record);
        at += size_bytes;
    }
    Ok(at)
}

fn read(bytes: &[u8]) -> Option<(CreditRecord, usize)> {
    let (number, size_bytes) = varint::decode(bytes)?;
    let limit = bytes[size_bytes..].first_chunk::<LIMIT_BYTES>()?;
    let channel = match number {
        WHOLE_LINK => None,
        number => Some(u16::try_from(number).ok()?),
    };
    Some((CreditRecord { channel, limit: u64::from_le_bytes(*limit) }, size_bytes + LIMIT_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back_and_tell_where_they_end() {
        let records = [
            CreditRecord { channel: Some(0), limit: 0 },
            CreditRecord { channel: None, limit: u64::MAX },
            CreditRecord { channel: Some(u16::MAX), limit: 1 << 40 },
        ];
        let mut payload = Vec::new();
        records.iter().for_each(|record| append_credit(record, &mut payload));
        let (end, mut read) = (payload.len(), Vec::new());
        assert!(end <= records.len() * CREDIT_BYTES_MAX);
        payload.extend_from_slice(b"frames");
        assert_eq!(credits(&payload, 3, |record| read.push(record)), Ok(end));
        assert_eq!(read, records);
    }

    #[test]
    fn records_that_are_not_all_there_or_of_no_channel_are_refused() {
        let mut payload = Vec::new();
        append_credit(&CreditRecord { channel: Some(3), limit: 9 }, &mut payload);
        let missing = Err(WireError::Malformed { what: "credit record", offset: payload.len() });
        assert_eq!(credits(&payload, 2, |_| {}), missing);
        assert_eq!(credits(&payload, u32::MAX, |_| {}), missing);
        let beyond = [0x81, 0x80, 4, 0, 0, 0, 0, 0, 0, 0, 0];
        let refused = Err(WireError::Malformed { what: "credit record", offset: 0 });
        assert_eq!(credits(&beyond, 1, |_| {}), refused);
    }
}
