//! Doors for fuzz targets: the decoders of this crate as functions of bytes. Not part of the interface.

use resp::DecodeError;

use crate::drive::memcached;
use crate::drive::reply::{self, Parsed, Reply};

/// Looks at the reply that `input` starts with as the load engine does; its length, if it is whole.
///
/// # Panics
/// When a part asks for no more than there is, or the reply is not what [`resp::decode_value`] finds: a bug of the parser.
#[must_use]
pub fn reply(input: &[u8]) -> Option<usize> {
    let (reply, length) = whole(reply::parse(input), input)?;
    if let Ok(Some((value, decoded_length))) = resp::decode_value(input) {
        assert_eq!(length, decoded_length, "two ideas of {value:?}");
        let agrees = match reply {
            Reply::Ok => value == resp::Value::Simple(b"OK".to_vec()),
            Reply::Integer(number) => value == resp::Value::Integer(number),
            Reply::Bulk(bytes) => value == resp::Value::Bulk(bytes.to_vec()),
            Reply::Null => value == resp::Value::Null,
            Reply::Error(text) => value == resp::Value::Error(text.to_vec()),
            Reply::Other => true,
        };
        assert!(agrees, "{reply:?} is not {value:?}");
    }
    Some(length)
}

/// The same of memcached's text protocol.
///
/// # Panics
/// When a part asks for no more than there is: a bug of the parser.
#[must_use]
pub fn memcached_reply(input: &[u8]) -> Option<usize> {
    whole(memcached::parse(input), input).map(|(_, length)| length)
}

/// What was found, if it is whole, with its length.
fn whole<'a>(parsed: Result<Parsed<'a>, DecodeError>, input: &[u8]) -> Option<(Reply<'a>, usize)> {
    match parsed.ok()? {
        Parsed::Part(known) => {
            assert!(known == 0 || known > input.len(), "asks for {known} of {}", input.len());
            None
        }
        Parsed::Whole(reply, length) => {
            assert!(0 < length && length <= input.len(), "{length} of {}", input.len());
            Some((reply, length))
        }
    }
}
