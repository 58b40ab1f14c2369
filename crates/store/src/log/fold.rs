//! Folding a delta into its base, on payloads as they lie in the log: part of a string, or a field of the test collection.
//!
//! The collection is the seam that hashes, sets and the like will take: small records on top of an image, merged when
//! the image is moved. Layouts are in `record`.
//!
//! Invariant: fields of an image ascend and are distinct; a fold keeps that.

use std::collections::BTreeMap;

use crate::record::{self, Payload};

/// Makes of `payload`, a record of kind `base`, what it is after the delta of `kind` in `delta`; `None` when they do not fit each
/// other.
pub(crate) fn fold(payload: &mut Vec<u8>, base: u8, kind: u8, delta: &[u8]) -> Option<()> {
    let Payload::Delta { key: delta_key, body, .. } = record::decode(kind, delta)? else { return None };
    let Payload::Whole { key, value } = record::decode(base, payload)? else { return None };
    if key != delta_key {
        return None;
    }
    match (base & !record::SHARED, kind & !record::SHARED) {
        (record::STRING, record::PART) => {
            let value_at = payload.len() - value.len();
            put_part(payload, value_at, body)
        }
        (record::IMAGE, kind) => {
            *payload = fold_field((key, value), kind, body)?;
            Some(())
        }
        _ => None,
    }
}

/// Puts the bytes in `body`, of a PART, over the string that is all of `bytes` from `value_at` on; `None` when there would be a gap.
pub(crate) fn put_part(bytes: &mut Vec<u8>, value_at: usize, body: &[u8]) -> Option<()> {
    let (offset, part) = split_part(body)?;
    let from = value_at.checked_add(usize::try_from(offset).ok()?)?;
    let over = bytes.len().checked_sub(from)?.min(part.len());
    let (inside, beyond) = part.split_at(over);
    bytes[from..from + over].copy_from_slice(inside);
    bytes.extend_from_slice(beyond);
    Some(())
}

/// The offset and the bytes in the body of a PART.
pub(crate) fn split_part(body: &[u8]) -> Option<(u64, &[u8])> {
    let (offset, part) = body.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*offset), part))
}

/// The payload of the image `value` of `key` after a change of a field.
fn fold_field((key, value): (&[u8], &[u8]), kind: u8, body: &[u8]) -> Option<Vec<u8>> {
    let mut fields = decode_image(value)?;
    let (len, rest) = split_u32(body)?;
    let (field, value) = rest.split_at_checked(len)?;
    match kind {
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

    fn part(offset: u64, bytes: &[u8]) -> Vec<u8> {
        payload(&Draft::part(0, 1, b"k", 5, (offset, bytes), 0))
    }

    #[test]
    fn parts_replace_and_extend_and_leave_no_gap() {
        let mut string = payload(&Draft::whole(record::STRING, 1, b"k", b"abcdef", 0));
        for (offset, bytes, expected) in [
            (0, "XY", "XYcdef"),
            (5, "ZZ", "XYcdeZZ"),
            (7, "end", "XYcdeZZend"),
            (0, "0123456789++", "0123456789++"),
        ] {
            fold(&mut string, record::STRING | record::SHARED, record::PART, &part(offset, bytes.as_bytes()))
                .expect("fits");
            assert_eq!(string, payload(&Draft::whole(record::STRING, 1, b"k", expected.as_bytes(), 0)));
        }
        for offset in [13, u64::MAX] {
            assert_eq!(fold(&mut string, record::STRING, record::PART, &part(offset, b"x")), None, "a gap");
        }
        assert_eq!(fold(&mut image(&[]), record::IMAGE, record::PART, &part(0, b"x")), None);
    }

    #[test]
    fn fields_are_set_replaced_and_deleted() {
        let mut base = image(&[("a", "1"), ("c", "3")]);
        fold(&mut base, record::IMAGE, record::FIELD_SET, &set("b", "2")).expect("fits");
        fold(&mut base, record::IMAGE, record::FIELD_SET, &set("a", "9")).expect("fits");
        let body = [&1_u32.to_le_bytes()[..], b"c"].concat();
        let delete = payload(&Draft::delta(record::FIELD_DELETE, 1, b"k", 7, &body, 0));
        fold(&mut base, record::IMAGE, record::FIELD_DELETE | record::SHARED, &delete).expect("fits");
        assert_eq!(base, image(&[("a", "9"), ("b", "2")]));
    }

    #[test]
    fn delta_of_another_key_or_kind_is_refused() {
        let mut base = image(&[("a", "1")]);
        let other = payload(&Draft::delta(record::FIELD_SET, 1, b"x", 5, b"\x01\0\0\0av", 0));
        assert_eq!(fold(&mut base, record::IMAGE, record::FIELD_SET, &other), None);
        let expiry = payload(&Draft::delta(record::EXPIRY, 1, b"k", 5, &[], 9));
        assert_eq!(fold(&mut base, record::IMAGE, record::EXPIRY, &expiry), None);
        let mut string = payload(&Draft::whole(record::STRING, 1, b"k", b"plain", 0));
        assert_eq!(fold(&mut string, record::STRING, record::FIELD_SET, &set("a", "1")), None);
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
