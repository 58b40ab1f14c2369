//! Doors for fuzz targets: collections and operations that anybody may have written. Not part of the interface.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::tree::{Child, element_at, next_free};
use crate::{Edit, ListEdit, OrderedEdit, Packed, Shape, are_operations, fold};

/// Lets `body` change the collection in `value`, if these are operations and a collection; returns whether they fit.
///
/// # Panics
/// When what comes of it is no collection, or comes out otherwise in two steps: a bug of this crate.
#[must_use]
pub fn change(shape: Shape, value: &[u8], body: &[u8]) -> bool {
    if !Packed::check(shape, value) {
        return false;
    }
    read_and_change(Packed::new(shape, value));
    let Some(changed) = fold(shape, value, &[body]) else { return false };
    if !Packed::check(shape, &changed) {
        // a key under two tags, as no log has it, is there twice, which an order of scores refuses
        let packed = Packed::new(shape, &changed);
        let keys: BTreeSet<&[u8]> = packed.iter().map(|(key, _)| key).collect();
        assert!(shape == Shape::Scored && keys.len() < packed.len());
        return false;
    }
    assert!(body.is_empty() || are_operations(body));
    assert_patched(Packed::new(shape, value), value, body);
    if matches!(shape, Shape::List | Shape::Ordered) {
        // elsewhere only where tags are those of their keys
        assert_eq!(fold(shape, &changed, &[body]), fold(shape, value, &[body, body]));
    }
    true
}

/// Lets `body` change `packed`, which is in `value`: where it says that some bytes alone are others, the rest is as it was.
fn assert_patched(packed: Packed<'_>, value: &[u8], body: &[u8]) {
    let patched = |patch: Option<(usize, Range<usize>)>, operations: &[u8], encoded: Vec<u8>| {
        let Some((from, patch)) = patch else { return };
        let bytes = &operations[patch];
        let mut patched = value.to_vec();
        patched[from..][..bytes.len()].copy_from_slice(bytes);
        assert_eq!(patched, encoded);
    };
    match packed.shape() {
        Shape::List => {}
        Shape::Ordered => {
            let mut edit = OrderedEdit::new(packed);
            edit.replay(body).expect("it fits");
            patched(edit.patch(), edit.operations(), edit.encode());
        }
        Shape::Map | Shape::Set | Shape::Scored => {
            let mut edit = Edit::new(packed);
            edit.replay(body).expect("it fits");
            patched(edit.patch(), edit.operations(), edit.encode());
        }
    }
}

/// Reads all of a collection, takes some elements out and folds the same.
///
/// # Panics
/// When what was read or folded is not what it must be: a bug of this crate.
pub fn read_and_change(packed: Packed<'_>) {
    match packed.shape() {
        Shape::List => return read_and_change_list(packed),
        Shape::Ordered => return read_and_change_ordered(packed),
        Shape::Map | Shape::Set | Shape::Scored => {}
    }
    let mut edit = Edit::new(packed);
    for at in 0..packed.len() {
        let (key, _) = packed.element(at);
        assert!(packed.find(packed.tag(at), key).is_some_and(|first| first <= at), "each is found");
        if at % 3 == 0 {
            edit.delete(packed.tag(at), key);
        }
    }
    let changed = edit.encode();
    assert!(Packed::check(packed.shape(), &changed));
    let unchanged = Edit::new(packed).encode();
    if edit.is_changed() {
        let folded = fold(packed.shape(), &unchanged, &[edit.operations()]);
        assert_eq!(folded.as_ref(), Some(&changed));
    }
}

/// The same with a list, by each operation; and its elements as children of an inner node, which it may be.
fn read_and_change_list(packed: Packed<'_>) {
    for element in packed.iter() {
        if let Some(child) = Child::decode(element.0) {
            assert_eq!(child.encode(), element.0);
            _ = element_at(Shape::Scored, child.bound);
        }
    }
    if let Some(next) = next_free(&ListEdit::new(packed).encode()) {
        assert_eq!(packed.element(0).0, next.to_le_bytes());
    }
    let mut edit = ListEdit::new(packed);
    if let Some((first, _)) = packed.iter().next() {
        edit.remove_equal(first, 2, true);
    }
    edit.push_front(b"new");
    edit.push_back(b"more");
    edit.insert(1, b"between");
    edit.set(0, b"");
    edit.remove(edit.len() / 2, 1);
    let changed = edit.encode();
    assert!(Packed::check(Shape::List, &changed));
    let unchanged = ListEdit::new(packed).encode();
    let folded = fold(Shape::List, &unchanged, &[edit.operations()]);
    assert_eq!(folded.as_ref(), Some(&changed));
    let elements: Vec<&[u8]> = Packed::new(Shape::List, &changed).iter().map(|(value, _)| value).collect();
    assert_eq!(elements, edit.iter().collect::<Vec<_>>());
}

/// The same with an ordered map.
fn read_and_change_ordered(packed: Packed<'_>) {
    let mut edit = OrderedEdit::new(packed);
    for at in 0..packed.len() {
        let (key, value) = packed.element(at);
        assert_eq!(packed.place_of(key), Some(at), "each is found");
        match at % 3 {
            0 => _ = edit.delete(key),
            1 => edit.put(&[key, b"+"].concat(), value),
            _ => edit.put(key, b"changed"),
        }
    }
    let changed = edit.encode();
    assert!(Packed::check(Shape::Ordered, &changed));
    let unchanged = OrderedEdit::new(packed).encode();
    let folded = fold(Shape::Ordered, &unchanged, &[edit.operations()]);
    assert_eq!(folded.as_ref(), Some(&changed));
}
