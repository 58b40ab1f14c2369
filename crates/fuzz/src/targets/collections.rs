//! Collections as bytes, and the operations that change them.
//!
//! ```text
//! shape u8 | value_len u8 | value | operations
//! ```

use ::collections::{Edit, ListEdit, OrderedEdit, Packed, Shape};

/// Bytes that mean something in a collection.
pub(super) const WORDS: &[&[u8]] = &[
    b"\x01\0\0\0\x01\0\0\0",
    b"\x00\0\0\0\x02\x01\0\0",
    b"\xFF\xFF\xFF\xFF",
    b"\x80\x80\x80\x80\x01",
    b"\0\0\0\0\0\0\xF8\x7F",
    b"\x05\x01v",
    b"\x09\0\x01",
    b"\x10\0\0\x01s",
    b"\x0d\0\0\x01f\x01\0\0\0\0\0\0\0",
];

const SHAPES: [Shape; 5] = [Shape::Map, Shape::Set, Shape::Scored, Shape::List, Shape::Ordered];

pub(super) fn change(input: &[u8]) {
    let Some((&[shape, len], rest)) = input.split_first_chunk() else { return };
    let Some((value, body)) = rest.split_at_checked(usize::from(len)) else { return };
    let _ = ::collections::fuzzing::change(SHAPES[usize::from(shape) % SHAPES.len()], value, body);
}

/// A collection of each shape, and operations that change it.
pub(super) fn seeds() -> Vec<Vec<u8>> {
    let of_shape = |shape: u8| {
        let kind = SHAPES[usize::from(shape)];
        let empty = Packed::empty(kind);
        let (value, body) = match kind {
            Shape::List => {
                let mut edit = ListEdit::new(empty);
                [&b"a"[..], b"", b"17"].iter().for_each(|value| edit.push_back(value));
                let value = edit.encode();
                let mut edit = ListEdit::new(Packed::new(kind, &value));
                edit.push_front(b"new");
                edit.set(1, b"other");
                edit.remove(2, 1);
                (value.clone(), edit.operations().to_vec())
            }
            Shape::Ordered => {
                let mut edit = OrderedEdit::new(empty);
                [&b"e1"[..], b"e2"].iter().for_each(|key| edit.put(key, b"fields"));
                let value = edit.encode();
                let mut edit = OrderedEdit::new(Packed::new(kind, &value));
                edit.put(b"e3", b"");
                edit.delete(b"e1");
                (value.clone(), edit.operations().to_vec())
            }
            Shape::Map | Shape::Set | Shape::Scored => {
                let add = |edit: &mut Edit<'_>, key: &[u8]| match kind {
                    Shape::Map => edit.put(7, key, b"value"),
                    Shape::Set => edit.add(7, key),
                    _ => edit.put_score(7, key, key.len() as f64),
                };
                let mut edit = Edit::new(empty);
                add(&mut edit, b"one");
                add(&mut edit, b"two");
                let value = edit.encode();
                let mut edit = Edit::new(Packed::new(kind, &value));
                add(&mut edit, b"three");
                edit.delete(7, b"one");
                (value.clone(), edit.operations().to_vec())
            }
        };
        [&[shape, value.len() as u8][..], &value, &body].concat()
    };
    (0..SHAPES.len() as u8).map(of_shape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_changes_that_fit() {
        for seed in seeds() {
            let (value, body) = seed[2..].split_at(usize::from(seed[1]));
            let shape = SHAPES[usize::from(seed[0])];
            assert!(::collections::fuzzing::change(shape, value, body), "{shape:?}");
        }
    }
}
