//! Folding a delta of the test collection into its image, on payloads as they lie in the log.
//!
//! The collection is the seam that hashes, sets and the like will take: small records on top of an image, merged when
//! the image is moved. Layouts are in `record`.
//!
//! Invariant: fields of an image ascend and are distinct; a fold keeps that.

use std::collections::BTreeMap;

use crate::record::{self, Payload};

/// The payload of the image in `base` after the delta of `kind` in `delta`; `None` when they do not fit each other.
pub(crate) fn fold(base: &[u8], kind: u8, delta: &[u8]) -> Option<Vec<u8>> {
    let Payload::Whole { key, value } = record::decode(record::IMAGE, base)? else { return None };
    let Payload::Delta { key: delta_key, body, .. } = record::decode(kind, delta)? else { return None };
    if key != delta_key {
        return None;
    }
    let mut fields = decode_image(value)?;
    let (len, rest) = split_u32(body)?;
    let (field, value) = rest.split_at_checked(len)?;
    match kind & !record::SHARED {
        record::FIELD_SET => drop(fields.insert(field, value)),
        record::FIELD_DELETE if value.is_empty() => drop(fields.remove(field)),
        _ => return None,
    }
    let mut payload = (key.len() as u32).to_le_bytes().to_vec();
    payload.extend_from_slice(key);
    payload.extend(encode_image(&fields));
    Some(payload)
}

/// The fields of an image's body.
pub(crate) fn decode_image(body: &[u8]) -> Option<BTreeMap<&[u8], &[u8]>> {
    let (count, mut rest) = split_u32(body)?;
    let mut fields = BTreeMap::new();
    for _ in 0..count {
        let (field_len, after) = split_u32(rest)?;
        let (value_len, after) = split_u32(after)?;
        let (field, after) = after.split_at_checked(field_len)?;
        let (value, after) = after.split_at_checked(value_len)?;
        let ascends = fields.last_key_value().is_none_or(|(last, _)| *last < field);
        if !ascends {
            return None;
        }
        fields.insert(field, value);
        rest = after;
    }
    rest.is_empty().then_some(fields)
}

/// An image's body.
pub(crate) fn encode_image(fields: &BTreeMap<&[u8], &[u8]>) -> Vec<u8> {
    let mut body = (fields.len() as u32).to_le_bytes().to_vec();
    for (field, value) in fields {
        body.extend((field.len() as u32).to_le_bytes());
        body.extend((value.len() as u32).to_le_bytes());
        body.extend_from_slice(field);
        body.extend_from_slice(value);
    }
    body
}

fn split_u32(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_le_bytes(*head) as usize, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Draft;

    fn payload(draft: &Draft<'_>) -> Vec<u8> {
        draft.parts().concat()
    }

    fn image(fields: &[(&str, &str)]) -> Vec<u8> {
        let fields = fields.iter().map(|(field, value)| (field.as_bytes(), value.as_bytes())).collect();
        payload(&Draft::whole(record::IMAGE, 1, b"k", &encode_image(&fields), 0))
    }

    fn set(field: &str, value: &str) -> Vec<u8> {
        let body = [&(field.len() as u32).to_le_bytes(), field.as_bytes(), value.as_bytes()].concat();
        payload(&Draft::delta(record::FIELD_SET, 1, b"k", 5, &body, 0))
    }

    #[test]
    fn fields_are_set_replaced_and_deleted() {
        let base = image(&[("a", "1"), ("c", "3")]);
        let base = fold(&base, record::FIELD_SET, &set("b", "2")).expect("fits");
        let base = fold(&base, record::FIELD_SET, &set("a", "9")).expect("fits");
        let body = [&1_u32.to_le_bytes()[..], b"c"].concat();
        let delete = payload(&Draft::delta(record::FIELD_DELETE, 1, b"k", 7, &body, 0));
        let base = fold(&base, record::FIELD_DELETE | record::SHARED, &delete).expect("fits");
        assert_eq!(base, image(&[("a", "9"), ("b", "2")]));
    }

    #[test]
    fn delta_of_another_key_or_kind_is_refused() {
        let base = image(&[("a", "1")]);
        let other = payload(&Draft::delta(record::FIELD_SET, 1, b"x", 5, b"\x01\0\0\0av", 0));
        assert_eq!(fold(&base, record::FIELD_SET, &other), None);
        let expiry = payload(&Draft::delta(record::EXPIRY, 1, b"k", 5, &[], 9));
        assert_eq!(fold(&base, record::EXPIRY, &expiry), None);
        let string = payload(&Draft::whole(record::STRING, 1, b"k", b"plain", 0));
        assert_eq!(fold(&string, record::FIELD_SET, &set("a", "1")), None);
    }

    #[test]
    fn image_with_unsorted_or_doubled_fields_is_refused() {
        let mut body = 2_u32.to_le_bytes().to_vec();
        for field in [b"b", b"a"] {
            body.extend([1, 0, 0, 0, 0, 0, 0, 0]);
            body.extend_from_slice(field);
        }
        assert_eq!(decode_image(&body), None);
    }
}
