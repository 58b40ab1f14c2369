//! Folding deltas into their base, on payloads as they lie in the log. How, the base's row of `record::KINDS` says.

use crate::record::{self, Changes, Part, Payload};

/// What the payload of a record of kind `base` is after the deltas, each with its kind, oldest first; `None` when they do not fit
/// each other.
pub(crate) fn fold(payload: &[u8], base: u8, deltas: &[(u8, Vec<u8>)]) -> Option<Vec<u8>> {
    let Payload::Whole { key, value } = record::decode(base, payload)? else { return None };
    let row = record::base(base)?;
    let mut bodies = Vec::with_capacity(deltas.len());
    let mut totals = Vec::new();
    for (kind, delta) in deltas {
        match record::decode(*kind, delta)? {
            Payload::Delta { key: delta_key, body, .. } => {
                if delta_key != key || record::changes(*kind) != Some(row.changes) {
                    return None;
                }
                bodies.push(body);
            }
            Payload::Deltas(parts) if row.changes == Changes::Totals => {
                // the last one says all
                totals = parts.body(&parts.of(key, true)?).1;
            }
            Payload::Deltas(parts) => match parts.of(key, false)? {
                Part::Node { operations, .. } => bodies.push(operations),
                Part::Root { .. } => return None,
            },
            _ => return None,
        }
    }
    bodies.extend((!totals.is_empty()).then_some(&totals[..]));
    let head = &payload[..payload.len() - value.len()];
    if row.changes == Changes::Bytes {
        // it may be long: one copy
        return parts_behind(head, value, &bodies);
    }
    Some([head, &(row.fold)(value, &bodies)?].concat())
}

/// The string `value` after the bodies of some PARTs, oldest first.
pub(crate) fn parts(value: &[u8], bodies: &[&[u8]]) -> Option<Vec<u8>> {
    parts_behind(&[], value, bodies)
}

/// As [`parts`], behind `head`.
fn parts_behind(head: &[u8], value: &[u8], bodies: &[&[u8]]) -> Option<Vec<u8>> {
    let string_len = usize::try_from(parts_len(value.len() as u64, bodies)?).ok()?;
    let mut bytes = Vec::with_capacity(head.len() + string_len);
    bytes.extend_from_slice(head);
    bytes.extend_from_slice(value);
    bodies.iter().try_for_each(|body| put_part(&mut bytes, head.len(), body))?;
    Some(bytes)
}

/// How long a string of `value_len` is after the bodies of some PARTs, oldest first; `None` when there would be a gap.
pub(crate) fn parts_len(value_len: u64, bodies: &[&[u8]]) -> Option<u64> {
    bodies.iter().try_fold(value_len, |len, body| {
        let (at, part) = split_part(body)?;
        if at <= len { Some(len.max(at.checked_add(part.len() as u64)?)) } else { None }
    })
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

#[cfg(test)]
mod tests {
    use collections::Deadline;

    use journal::{Keyspace, Seq};

    use super::*;
    use crate::record::Draft;
    use collections::{Edit, Packed, Shape};

    fn payload(draft: &Draft<'_>) -> Vec<u8> {
        draft.parts().concat()
    }

    fn part(offset: u64, bytes: &[u8]) -> Vec<u8> {
        payload(&Draft::part(0, Keyspace(1), b"k", Seq(5), offset, bytes, None))
    }

    #[test]
    fn parts_replace_and_extend_and_leave_no_gap() {
        let mut string = payload(&Draft::whole(record::STRING, Keyspace(1), b"k", b"abcdef", None));
        for (offset, bytes, expected) in [
            (0, "XY", "XYcdef"),
            (5, "ZZ", "XYcdeZZ"),
            (7, "end", "XYcdeZZend"),
            (0, "0123456789++", "0123456789++"),
        ] {
            let delta = [(record::PART, part(offset, bytes.as_bytes()))];
            string = fold(&string, record::STRING | record::SHARED, &delta).expect("fits");
            assert_eq!(
                string,
                payload(&Draft::whole(record::STRING, Keyspace(1), b"k", expected.as_bytes(), None))
            );
        }
        let bodies: [&[u8]; 2] = [&[12, 0, 0, 0, 0, 0, 0, 0, b'x'], &[5, 0, 0, 0, 0, 0, 0, 0, b'y', b'y']];
        assert_eq!((parts_len(12, &bodies), parts_len(11, &bodies)), (Some(13), None), "a gap");
        for offset in [13, u64::MAX] {
            assert_eq!(fold(&string, record::STRING, &[(record::PART, part(offset, b"x"))]), None, "a gap");
        }
        let both = [(record::PART, part(12, b"x")), (record::PART | record::SHARED, part(13, b"y"))];
        let expected = payload(&Draft::whole(record::STRING, Keyspace(1), b"k", b"0123456789++xy", None));
        assert_eq!(fold(&string, record::STRING, &both), Some(expected));
    }

    #[test]
    fn delta_of_another_key_or_kind_is_refused() {
        let hash = Edit::new(Packed::empty(Shape::Map)).encode();
        let hash = payload(&Draft::whole(record::HASH, Keyspace(1), b"k", &hash, None));
        let put = |key| {
            payload(&Draft::delta(record::CHANGE, Keyspace(1), key, Seq(5), b"\x01\x02\0\x01\x01fv", None))
        };
        assert!(fold(&hash, record::HASH, &[(record::CHANGE, put(b"k"))]).is_some());
        assert_eq!(fold(&hash, record::HASH, &[(record::CHANGE, put(b"x"))]), None, "another key");
        assert_eq!(fold(&hash, record::HASH, &[(record::PART, part(0, b"x"))]), None);
        let expiry = payload(&Draft::delta(record::EXPIRY, Keyspace(1), b"k", Seq(5), &[], Deadline::of(9)));
        assert_eq!(fold(&hash, record::HASH, &[(record::EXPIRY, expiry)]), None);
        let string = payload(&Draft::whole(record::STRING, Keyspace(1), b"k", b"plain", None));
        assert_eq!(fold(&string, record::STRING, &[(record::CHANGE, put(b"k"))]), None);
    }
}
