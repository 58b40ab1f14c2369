//! Doors for fuzz targets: the decoder of this crate as a function of bytes. Not part of the interface.

use crate::drive::reply::{Parsed, Reply, parse};

/// Looks at the reply that `input` starts with as the load engine does; its length, if it is whole.
///
/// # Panics
/// When a part asks for no more than there is, or the reply is not what [`resp::decode_value`] finds: a bug of the parser.
#[must_use]
pub fn reply(input: &[u8]) -> Option<usize> {
    let (reply, length) = match parse(input) {
        Err(_) => return None,
        Ok(Parsed::Part(known)) => {
            assert!(known == 0 || known > input.len(), "asks for {known} of {}", input.len());
            return None;
        }
        Ok(Parsed::Whole(reply, length)) => (reply, length),
    };
    assert!(0 < length && length <= input.len(), "{length} of {}", input.len());
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
