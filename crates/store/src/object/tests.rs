//! Objects and words give back what was put into them, and leak nothing.

use super::word::SEGMENT_MAX;
use super::*;
use crate::large::Ledger;
use crate::policy::LEVEL_MAX;
use crate::record;
use crate::testlog::at;

#[test]
fn object_gives_back_what_it_was_made_of() {
    for (key_len, value_len) in [(0, 0), (1, 0), (255, 65_535), (256, 0), (3, 65_536), (16, 100)] {
        for expiry in [0, 1, u64::MAX].map(Deadline::of) {
            let key = vec![b'k'; key_len];
            let value = vec![b'v'; value_len];
            let mut object = Object::new(5, &key, Bytes::Plain(&value), expiry);
            object.stamp(at(77), Seq(99));
            let view = object.view();
            assert_eq!(
                (view.address(), view.seq(), view.kind(), view.expiry()),
                (at(77), Seq(99), 5, expiry)
            );
            assert_eq!((view.key(), view.value()), (&key[..], &value[..]));
        }
    }
}

#[test]
fn object_that_is_filled_is_as_one_that_was_made_of_the_value() {
    for (key_len, value_len, expiry) in [(0, 0, 0), (1, 3, 7), (255, 65_535, 0), (256, 9, 1)] {
        let (key, value) = (vec![b'k'; key_len], vec![b'v'; value_len]);
        let expiry = Deadline::of(expiry);
        let filled = Object::filled(5, &key, value_len, expiry, |to| {
            assert!(to.iter().all(|byte| *byte == 0));
            to.copy_from_slice(&value);
        });
        let made = Object::new(5, &key, Bytes::Plain(&value), expiry);
        let parts = |object: ObjectRef<'_>| {
            let (kind, expiry, bytes) = (object.kind(), object.expiry(), object.memory_bytes());
            (kind, expiry, bytes, object.key().to_vec(), object.value().to_vec())
        };
        assert_eq!(parts(filled.view()), parts(made.view()));
    }
}

#[test]
fn large_value_is_lent_and_goes_with_its_last_holder() {
    let ledger = Ledger::default();
    let bytes = vec![7; LARGE_BYTES].into_boxed_slice();
    for (key_len, expiry) in [(0, 0), (3, 0), (3, u64::MAX), (300, 9)] {
        let expiry = Deadline::of(expiry);
        let (key, large) = (vec![b'k'; key_len], Large::new(bytes.clone(), &ledger));
        let mut object = Object::new(1, &key, Bytes::Large(&large), expiry);
        object.stamp(at(77), Seq(99));
        let view = object.view();
        assert_eq!((view.address(), view.seq(), view.expiry()), (at(77), Seq(99), expiry));
        assert_eq!((view.key(), view.value().len()), (&key[..], LARGE_BYTES));
        assert!(view.own_bytes() < 400 && view.memory_bytes() > LARGE_BYTES as u64);
        let lent = Arc::clone(view.bytes().large().expect("it is large"));
        drop((object, large));
        assert_eq!((lent.as_ref().as_ref(), ledger.bytes()), (&*bytes, LARGE_BYTES as u64));
        drop(lent);
        assert_eq!(ledger.bytes(), 0);
    }
}

#[test]
fn object_that_moves_is_the_same_and_leaves_a_place_that_owns_nothing() {
    let ledger = Ledger::default();
    let large = Large::new(vec![7; LARGE_BYTES].into_boxed_slice(), &ledger);
    for value in [Bytes::Plain(b"value"), Bytes::Large(&large)] {
        let mut object = Object::new(1, b"key", value, Deadline::of(9));
        object.stamp(at(3), Seq(4));
        let mut word = Word::hot(object, WORD_SHARED | WORD_DELTAS);
        word.set_level(2);
        let before = word.object().expect("hot").range();
        let place = Place::new(word.object().expect("hot").alloc_len());
        let there = place.range();
        let left = word.move_to(place);
        assert_eq!((left.range(), word.object().expect("hot").range()), (before, there));
        drop(left);
        let view = word.object().expect("hot");
        assert_eq!(
            (view.address(), view.seq(), view.kind(), view.expiry()),
            (at(3), Seq(4), 1, Deadline::of(9))
        );
        assert_eq!((view.key(), view.value()), (&b"key"[..], value.slice()));
        assert_eq!((word.marks(), word.level()), (WORD_SHARED | WORD_DELTAS, 2));
    }
    drop(large);
    assert_eq!(ledger.bytes(), 0, "it went with the word that owned it last");
}

#[test]
fn value_that_is_rewritten_is_as_one_that_was_made_so() {
    for kind in [record::STRING, record::LIST] {
        let (mut moved, mut stayed) = (0, 0);
        let mut word =
            Word::hot(Object::new(kind, b"key", Bytes::Plain(b"value"), Deadline::of(9)), WORD_DELTAS);
        word.set_level(2);
        for len in (0..2_000).step_by(37).chain([65_535, 0, 600, 601, 1, 1_500]) {
            let (value, start) = (vec![len as u8; len], word.object().expect("hot").start());
            word.rewrite(Seq(len as u64), &value);
            let (view, made) = (
                word.object().expect("hot"),
                Object::new(kind, b"key", Bytes::Plain(&value), Deadline::of(9)),
            );
            assert_eq!((view.key(), view.value()), (&b"key"[..], &value[..]));
            assert_eq!((view.kind(), view.seq(), view.expiry()), (kind, Seq(len as u64), Deadline::of(9)));
            assert_eq!(view.alloc_len(), made.view().alloc_len());
            assert_eq!((word.marks(), word.level()), (WORD_DELTAS, 2));
            *(if view.start() == start { &mut stayed } else { &mut moved }) += 1;
        }
        assert!(moved > 5, "{moved} moved");
        assert!(kind == record::STRING || stayed > 20, "{stayed} stayed");
    }
}

#[test]
fn usual_key_and_value_fill_a_chunk_of_144_bytes() {
    let object = Object::new(1, &[b'k'; 16], Bytes::Plain(&[b'v'; 100]), None);
    assert_eq!(object.view().memory_bytes(), 144);
}

#[test]
fn word_keeps_marks_and_address_apart() {
    let address = at(u64::from(SEGMENT_MAX) << 32 | 0xffff_ffff);
    let mut word = Word::cold(address, WORD_SHARED);
    word.set_mark(WORD_DELTAS);
    assert!(matches!(word.view(), View::Cold(p) if p == address));
    assert!(!word.is_marked(), "the largest segment is no mark");
    word.set_marked(true);
    word.swing(at(8));
    assert_eq!((word.address(), word.marks()), (at(8), WORD_SHARED | WORD_DELTAS));
    assert!(word.is_marked(), "the same value lies elsewhere");
    word.set_marked(false);
    assert_eq!((word.address(), word.is_marked()), (at(8), false));
    word.clear_mark(WORD_DELTAS);
    assert_eq!(word.marks(), WORD_SHARED);
}

#[test]
fn hot_word_owns_its_object_and_swings_in_place() {
    let mut object = Object::new(1, b"key", Bytes::Plain(b"value"), None);
    object.stamp(at(3), Seq(4));
    let mut word = Word::hot(object, WORD_SHARED);
    (0..5).for_each(|_| word.refer());
    word.swing(at(9));
    let view = word.object().expect("hot");
    assert_eq!(
        (view.address(), view.seq(), view.key(), view.value()),
        (at(9), Seq(4), &b"key"[..], &b"value"[..])
    );
    assert_eq!((word.marks(), word.level(), word.is_marked()), (WORD_SHARED, LEVEL_MAX, false));
    word.set_level(1);
    assert_eq!((word.marks(), word.level(), word.address()), (WORD_SHARED, 1, at(9)));
}
