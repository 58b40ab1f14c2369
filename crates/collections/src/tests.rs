//! Packed entries beside maps and vectors, their bytes, and what is refused.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::edit::{SCORE, is_integer};
use super::entries::*;
use super::*;
use clock::UnixMs;

/// How often a few bytes are repeated: most make a short value, and some one of some 100 KB.
fn heavy_tailed() -> impl Strategy<Value = usize> {
    prop_oneof![40 => 1..3_usize, 10 => 3..12_usize, 1 => 12..25_000_usize]
}

/// When the server's clock shows 500, the wall clock 1,000.
const NOW: Moment = Moment::new(500, UnixMs(1_000));

fn list(values: &[&[u8]]) -> Vec<u8> {
    let mut edit = ListEdit::new(Packed::empty(Shape::List));
    values.iter().for_each(|value| edit.push_back(value));
    edit.encode()
}

fn values(bytes: &[u8]) -> Vec<&[u8]> {
    Packed::new(Shape::List, bytes).iter().map(|(value, _)| value).collect()
}

fn tag(key: &[u8]) -> u16 {
    // few tags: elements share them
    key.iter().map(|byte| u16::from(byte % 3)).sum()
}

/// RESTORE took a value whose DUMP then was another.
#[test]
fn dump_whose_elements_are_in_another_order_is_none() {
    let mut set = Edit::new(Packed::empty(Shape::Scored));
    for (key, score) in [(b"a", 2.0), (b"b", 1.0), (b"c", 1.0)] {
        set.put_score(tag(key), key, score);
    }
    let mut map = OrderedEdit::new(Packed::empty(Shape::Ordered));
    [b"c", b"a", b"b"].iter().for_each(|key| map.put(*key, b"value"));
    for (shape, bytes) in [(Shape::Scored, set.encode()), (Shape::Ordered, map.encode())] {
        let dumped = dump(Packed::new(shape, &bytes), NOW);
        assert_eq!(load(shape, &dumped, NOW, tag), Some(bytes), "{shape:?}");
        // all elements take as many bytes
        let (first, rest) = dumped.split_at(dumped.len() / 3);
        let (second, third) = rest.split_at(rest.len() / 2);
        for parts in [[second, first, third], [first, third, second], [first, second, second]] {
            assert_eq!(load(shape, &parts.concat(), NOW, tag), None, "{shape:?}");
        }
    }
}

#[test]
fn value_is_no_part_of_another_and_of_no_two() {
    let bytes = list(&[b"\x02ab", b"ab\x02", b"ab", b"", b"b\x02", b"ab", b"a", b"\0"]);
    let packed = Packed::new(Shape::List, &bytes);
    for (value, places) in
        [(&b"ab"[..], vec![2, 5]), (b"", vec![3]), (b"a", vec![6]), (b"b\x02\x02ab", vec![]), (b"b", vec![])]
    {
        let wanted = Wanted::new(value);
        assert_eq!(packed.places_of(&wanted, 0..8).collect::<Vec<_>>(), places, "{value:?}");
        assert_eq!(packed.places_of(&wanted, 8..8).count(), 0);
    }
    assert_eq!(packed.places_of(&Wanted::new(b"ab"), 3..8).collect::<Vec<_>>(), [5]);
}

#[test]
fn bytes_are_pinned() {
    let mut map = Edit::new(Packed::empty(Shape::Map));
    assert!(map.put(0x0102, b"ab", b"xyz"));
    assert!(map.put(0x0304, b"c", b""));
    assert_eq!(map.operations(), b"\x01\x02\x01\x02\x03abxyz\x01\x04\x03\x01\x00c");
    let expected = b"\x02\0\0\0\x01\0\0\0\x02\x01\x04\x03\0\0\x07\0\x02\x03abxyz\x01\x00c";
    assert_eq!(map.encode(), expected);
    let mut set = Edit::new(Packed::empty(Shape::Set));
    assert!(set.add(1, b"17") && !set.add(1, b"17") && set.add(2, b"a") && set.delete(1, b"17"));
    assert_eq!(set.operations(), b"\x03\x01\0\x0217\x03\x02\0\x01a\x02\x01\0\x0217");
    assert_eq!(set.encode(), b"\x01\0\0\0\x01\0\0\0\x02\0\0\0\x01a");
}

#[test]
fn bytes_of_fields_with_deadlines_are_pinned() {
    let mut map = Edit::of_key(Packed::empty(Shape::Map), Deadline::of(5));
    assert!(map.put(1, b"a", b"x") && map.put(2, b"b", b"y"));
    let plain = map.operations().len();
    assert!(map.set_deadline(1, b"a", Deadline::of(0x0102)));
    let operations = &map.operations()[plain..];
    assert_eq!(operations, b"\x0f\x05\0\0\0\0\0\0\0\x0d\x01\0\x01a\x02\x01\0\0\0\0\0\0");
    let bytes = map.encode();
    let expected = b"\x02\0\0\0\x01\x02\0\0\x05\0\0\0\0\0\0\0\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
        \x01\0\x02\0\0\0\x0d\0\x01\x02\x01\0\0\0\0\0\0\x01\x01ax\0\x01\x01by";
    assert_eq!(bytes, expected);
    let packed = Packed::new(Shape::Map, &bytes);
    assert_eq!((packed.deadline(0), packed.deadline(1)), (Deadline::of(0x0102), None));
    assert_eq!(times_of(&bytes), Some(Times { own: 5, wall: 0x0102, server: 0 }));
    assert_eq!(times_of(&with_own(&bytes, 9)), Some(Times { own: 9, wall: 0x0102, server: 0 }));
    for (at, byte) in [(5, 3), (16, 3), (24, 1), (40, 0), (40, 2), (41, 3)] {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        assert!(!Packed::check(Shape::Map, &bytes), "{byte} at {at}");
    }
    (0..bytes.len()).for_each(|len| assert!(!Packed::check(Shape::Map, &bytes[..len]), "cut to {len}"));
    let mut edit = Edit::new(packed);
    assert_eq!(edit.purge([0x0101, u64::MAX]), 0);
    assert_eq!(edit.purge([0x0102, 0]), 1);
    assert_eq!(edit.operations(), b"\x0e\x02\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(edit.encode(), b"\x01\0\0\0\x01\0\0\0\x02\0\0\0\x01\x01by", "as without any");
    for operations in [&b"\x0d\0\0\x01a\0\0\0\0\0\0\0"[..], b"\x0e\0", b"\x0f1234567", b"\x0d\0\0\x02a"] {
        assert!(!are_operations(operations), "{operations:?}");
    }
    assert_eq!(fold(Shape::Set, &Edit::new(Packed::empty(Shape::Set)).encode(), &[b"\x0f12345678"]), None);
}

#[test]
fn dump_keeps_deadlines_and_leaves_out_what_has_passed() {
    let mut map = Edit::new(Packed::empty(Shape::Map));
    let ends = [("ttl", NOW.after(70)), ("at", Deadline::at(UnixMs(1_200))), ("past", NOW.after(10))];
    for (field, at) in ends {
        map.put(0, field.as_bytes(), b"v");
        map.set_deadline(0, field.as_bytes(), Some(at));
    }
    map.put(0, b"stays", b"v");
    let payload = dump(Packed::new(Shape::Map, &map.encode()), NOW);
    // another server: its clock began elsewhere, and 20 ms have passed
    let there = Moment::new(9_000, UnixMs(1_020));
    let loaded = load(Shape::Map, &payload, there, |_| 0).expect("its own dump");
    let packed = Packed::new(Shape::Map, &loaded);
    let found: Vec<_> = (0..packed.len()).map(|at| (packed.element(at).0, packed.deadline(at))).collect();
    let expected: [(&[u8], _); 3] =
        [(b"ttl", Some(there.after(50))), (b"at", Some(Deadline::at(UnixMs(1_200)))), (b"stays", None)];
    assert_eq!(found, expected);
    let time = b"\x0d\0\0\x01a\x09\0\0\0\0\0\0\x80";
    let put = b"\x01\0\0\x01\0a";
    let load = |parts: &[&[u8]]| load(Shape::Map, &parts.concat(), NOW, |_| 0);
    assert!(load(&[put, time]).is_some());
    assert_eq!(load(&[time]), None);
    assert_eq!(load(&[put, time, time]), None, "twice");
    assert_eq!(load(&[put, b"\x01\0\0\x01\0b", time]), None, "of another");
    assert_eq!(load(&[put, b"\x0f12345678"]), None);
}

#[test]
fn form_widens_as_in_redis_and_never_goes_back() {
    let form = |shape, edit: &Edit<'_>| Packed::new(shape, &edit.encode()).form();
    let mut set = Edit::new(Packed::empty(Shape::Set));
    for number in 0..512 {
        set.add(0, number.to_string().as_bytes());
    }
    assert_eq!(form(Shape::Set, &set), Form::Integers);
    set.add(0, b"512");
    assert_eq!(form(Shape::Set, &set), Form::Table);
    let mut set = Edit::new(Packed::empty(Shape::Set));
    for (element, expected) in [
        ("-5", Form::Integers),
        ("0", Form::Integers),
        ("9223372036854775807", Form::Integers),
        ("007", Form::Listpack),
    ] {
        set.add(0, element.as_bytes());
        assert_eq!(form(Shape::Set, &set), expected, "{element}");
    }
    set.delete(0, b"007");
    assert_eq!(form(Shape::Set, &set), Form::Listpack);
    set.add(0, &[b'x'; 65]);
    assert_eq!(form(Shape::Set, &set), Form::Table);
    for element in ["-0", "+1", "", " 1", "9223372036854775808", "1a"] {
        assert!(!is_integer(element.as_bytes()), "{element:?}");
    }
    let mut map = Edit::new(Packed::empty(Shape::Map));
    for number in 0..512_u32 {
        map.put(0, &number.to_le_bytes(), b"v");
    }
    assert_eq!(form(Shape::Map, &map), Form::Listpack);
    map.put(0, b"one more", b"v");
    assert_eq!(form(Shape::Map, &map), Form::Table);
}

#[test]
fn many_elements_are_found_whether_offsets_are_narrow_or_wide() {
    for count in [10_u32, 5_000, 20_000] {
        let mut edit = Edit::new(Packed::empty(Shape::Map));
        for number in 0..count {
            assert!(edit.put(number as u16, &number.to_le_bytes(), &[number as u8; 9]));
        }
        let bytes = edit.encode();
        assert!(Packed::check(Shape::Map, &bytes) && !Packed::check(Shape::Set, &bytes));
        let packed = Packed::new(Shape::Map, &bytes);
        assert_eq!((packed.len(), packed.is_wide), (count as usize, count > 10));
        for number in (0..count).step_by(7) {
            let at = packed.find(number as u16, &number.to_le_bytes()).expect("it was put");
            assert_eq!(packed.element(at), (&number.to_le_bytes()[..], &[number as u8; 9][..]));
        }
        assert_eq!(packed.find(3, b"none"), None);
    }
}

#[test]
fn bytes_that_are_no_collection_are_refused() {
    let mut edit = Edit::new(Packed::empty(Shape::Map));
    edit.put(7, b"key", b"value");
    edit.put(8, b"more", b"");
    let bytes = edit.encode();
    for len in 0..bytes.len() {
        assert!(!Packed::check(Shape::Map, &bytes[..len]), "cut to {len}");
    }
    for (at, byte) in [(0, 3), (4, 3), (5, 2), (6, 1), (12, 1), (14, 9), (16, 0x80), (17, 99)] {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        assert!(!Packed::check(Shape::Map, &bytes), "{byte} at {at}");
    }
    for operations in
        [&b""[..], b"\x01", b"\x04\0\0\x01a", b"\x0b\0\0\x01a", b"\x03\0\0\x02a", b"\x03\0\0\x81\x00a"]
    {
        assert!(!are_operations(operations), "{operations:?}");
    }
    assert_eq!(fold(Shape::Map, &bytes, &[b"\x03\0\0\x01a"]), None, "ADD of a map");
}

#[test]
fn dump_loads_into_the_same_elements_and_nothing_else_does() {
    let mut map = Edit::new(Packed::empty(Shape::Map));
    map.put(7, b"a", b"1");
    map.put(8, b"b", b"");
    let bytes = map.encode();
    let dump = dump(Packed::new(Shape::Map, &bytes), NOW);
    assert_eq!(dump, b"\x01\0\0\x01\x01a1\x01\0\0\x01\0b");
    let load = |shape, dump: &[u8]| load(shape, dump, NOW, |key| u16::from(key[0]) - 90);
    assert_eq!(load(Shape::Map, &dump), Some(bytes));
    assert_eq!(load(Shape::Set, &dump), None);
    assert_eq!(load(Shape::Map, &[&dump[..], &dump].concat()), None, "each element twice");
    assert_eq!(load(Shape::Map, &dump[..dump.len() - 1]), None);
    assert_eq!(load(Shape::Map, b"\x01\x01\0\x01\0a"), None, "tagged");
    assert_eq!(load(Shape::Map, b"\x02\0\0\x01a"), None, "DELETE");
}

#[test]
fn bytes_of_lists_and_sorted_sets_are_pinned() {
    let mut edit = ListEdit::new(Packed::empty(Shape::List));
    edit.push_back(b"b");
    edit.push_front(b"aa");
    edit.insert(1, b"x");
    edit.set(2, b"");
    assert_eq!(edit.operations(), b"\x06\x01b\x05\x02aa\x07\x01\x01x\x08\x02\x00");
    assert_eq!(edit.encode(), b"\x03\0\0\0\x01\0\0\0\0\0\x03\0\x05\0\x02aa\x01x\x00");
    let base = list(&[b"a", b"b", b"a"]);
    let mut edit = ListEdit::new(Packed::new(Shape::List, &base));
    edit.remove(1, 1);
    assert_eq!((edit.remove_equal(b"a", 1, true), edit.remove_equal(b"b", 1, false)), (1, 0));
    assert_eq!(edit.operations(), b"\x09\x01\x01\x0a\x01\x01\x01a");
    assert_eq!(edit.encode(), list(&[b"a"]));
    let spliced = |splice: &[u8]| fold(Shape::List, &list(&[b"abcd", b""]), &[splice]);
    assert_eq!(spliced(b"\x10\x00\x01\x02xy"), Some(list(&[b"axyd", b""])));
    for beyond in
        [&b"\x10\x00\x03\x02xy"[..], b"\x10\x01\x00\x01x", b"\x10\x02\x00\x01x", b"\x10\x00\x05\x01x"]
    {
        assert!(are_operations(beyond) && spliced(beyond).is_none(), "{beyond:?}");
    }
    assert!(!are_operations(b"\x10\x00\x00\x00") && !are_operations(b"\x10\x00\x00\x02x"));
    let mut scored = Edit::new(Packed::empty(Shape::Scored));
    assert!(
        scored.put_score(7, b"b", 1.5) && scored.put_score(8, b"a", 1.5) && !scored.put_score(7, b"b", 2.0)
    );
    assert_eq!(scored.operations()[..13], *b"\x04\x07\0\x01b\0\0\0\0\0\0\xf8\x3f");
    let expected =
        b"\x02\0\0\0\x01\0\0\0\x08\0\x07\0\0\0\x0a\0\x01a\0\0\0\0\0\0\xf8\x3f\x01b\0\0\0\0\0\0\0\x40";
    assert_eq!(scored.encode(), expected);
}

#[test]
fn entry_that_alone_is_another_and_as_long_is_a_patch() {
    let mut map = Edit::new(Packed::empty(Shape::Map));
    assert!(map.put(1, b"a", b"xyz") && map.put(2, b"b", b"") && map.put(3, b"c", b"17"));
    let base = map.encode();
    let is_patch = |change: &dyn Fn(&mut Edit<'_>)| {
        let mut edit = Edit::new(Packed::new(Shape::Map, &base));
        change(&mut edit);
        let encoded = edit.encode();
        let Some((from, patch)) = edit.patch() else { return false };
        let bytes = &edit.operations()[patch];
        let mut patched = base.clone();
        patched[from..][..bytes.len()].copy_from_slice(bytes);
        assert_eq!(patched, encoded);
        true
    };
    assert!(is_patch(&|edit| _ = edit.put(3, b"c", b"18")));
    assert!(is_patch(&|edit| _ = edit.put(1, b"a", b"zyx")));
    assert!(is_patch(&|edit| (0..3).for_each(|n| _ = edit.put(1, b"a", &[b'0' + n; 3]))), "the last of them");
    assert!(!is_patch(&|edit| _ = edit.put(3, b"c", b"187")), "longer");
    assert!(!is_patch(&|edit| _ = edit.put(4, b"d", b"18")), "a new one");
    assert!(!is_patch(&|edit| _ = edit.delete(3, b"c")), "gone");
    assert!(!is_patch(&|edit| _ = (edit.put(3, b"c", b"18"), edit.put(1, b"a", b"zyx"))), "two");
    assert!(!is_patch(&|edit| _ = (edit.delete(3, b"c"), edit.put(3, b"c", b"18"))), "at another place");
    assert!(!is_patch(&|edit| _ = edit.set_deadline(3, b"c", Deadline::of(5))), "one that ends");
    let mut stream = OrderedEdit::new(Packed::empty(Shape::Ordered));
    [&b"a"[..], b"b"].iter().for_each(|key| stream.put(key, b"value"));
    let base = stream.encode();
    let mut edit = OrderedEdit::new(Packed::new(Shape::Ordered, &base));
    edit.put(b"b", b"VALUE");
    let (from, patch) = edit.patch().expect("as long");
    let bytes = &edit.operations()[patch];
    assert_eq!([&base[..from], bytes, &base[from + bytes.len()..]].concat(), edit.encode());
    edit.put(b"b", b"");
    assert!(edit.patch().is_none());
}

#[test]
fn sorted_set_out_of_order_or_with_a_score_that_is_none_is_refused() {
    let mut edit = Edit::new(Packed::empty(Shape::Scored));
    edit.put_score(1, b"a", 1.0);
    edit.insert(SCORE, 2, b"b", &f64::to_le_bytes(-0.0));
    edit.put_score(3, b"c", 0.0);
    let bytes = edit.encode();
    let keys: Vec<&[u8]> = Packed::new(Shape::Scored, &bytes).iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [&b"b"[..], b"c", b"a"], "both zeros are one score");
    assert!(Packed::check(Shape::Scored, &bytes));
    let first_score = bytes.len() - 3 * 10 + 2;
    for (wrong, score) in [("not ascending", 2.0), ("no number", f64::NAN)] {
        let mut bytes = bytes.clone();
        bytes[first_score..first_score + 8].copy_from_slice(&f64::to_le_bytes(score));
        assert!(!Packed::check(Shape::Scored, &bytes), "{wrong}");
    }
}

#[test]
fn operations_on_elements_that_are_not_there_do_not_fold() {
    let bytes = list(&[b"a", b"b"]);
    for operations in [
        &b"\x07\x03\x01x"[..],
        b"\x08\x02\x01x",
        b"\x09\x01\x02",
        b"\x09\x00\x00",
        b"\x09\xff\xff\xff\xff\x0f\xff\xff\xff\xff\x0f",
        b"\x0a\x02\x01\x01a",
        b"\x03\0\0\x01a",
    ] {
        assert_eq!(fold(Shape::List, &bytes, &[operations]), None, "{operations:?}");
    }
    assert_eq!(fold(Shape::List, &bytes, &[b"\x07\x02\x01x"]), Some(list(&[b"a", b"b", b"x"])));
}

#[test]
fn list_is_a_listpack_up_to_8_kib_and_again_from_half_of_that() {
    let (mut bytes, mut form) = (list(&[]), Form::Listpack);
    let mut lens = Vec::new();
    for _ in 0..90 {
        let mut edit = ListEdit::new(Packed::new(Shape::List, &bytes));
        edit.push_back(&[7; 98]);
        bytes = edit.encode();
        if Packed::new(Shape::List, &bytes).form() != form {
            form = Form::Table;
            lens.push(Packed::new(Shape::List, &bytes).len());
        }
    }
    let mut edit = ListEdit::new(Packed::new(Shape::List, &bytes));
    edit.remove(0, 48);
    assert_eq!((lens, Packed::new(Shape::List, &edit.encode()).form()), (vec![82], Form::Table));
    edit.remove(0, 2);
    assert_eq!(Packed::new(Shape::List, &edit.encode()).form(), Form::Listpack);
}

#[test]
fn bytes_of_ordered_maps_are_pinned_and_disorder_is_refused() {
    let mut edit = OrderedEdit::new(Packed::empty(Shape::Ordered));
    edit.put(b"b", b"2");
    edit.put(b"a", b"");
    edit.put(b"c", b"3");
    assert!(edit.delete(b"c") && !edit.delete(b"c"));
    assert_eq!(edit.operations(), b"\x0b\x01\x01b2\x0b\x01\x00a\x0b\x01\x01c3\x0c\x01c");
    let bytes = edit.encode();
    assert_eq!(bytes, b"\x02\0\0\0\x02\0\0\0\0\0\x03\0\x01\0a\x01\x01b2");
    assert!(Packed::check(Shape::Ordered, &bytes));
    for (at, byte) in [(14, b'b'), (14, b'c')] {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        assert!(!Packed::check(Shape::Ordered, &bytes), "{byte} at {at}");
    }
    assert_eq!(load(Shape::Ordered, b"\x0b\x01\0a\x0b\x01\0a", NOW, |_| 0), None, "twice");
}

proptest! {
    #[test]
    fn ordered_map_is_as_a_map_and_its_operations_say_the_same(
        steps in proptest::collection::vec((0..50_u8, 0..30_u16, proptest::bool::weighted(0.3)), 0..300), sizes in 1..40_usize,
    ) {
        let (mut bytes, mut model) = (OrderedEdit::new(Packed::empty(Shape::Ordered)).encode(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
        for steps in steps.chunks(sizes) {
            let before = bytes.clone();
            let mut edit = OrderedEdit::new(Packed::new(Shape::Ordered, &before));
            for &(key, len, deletes) in steps {
                let (key, value) = (vec![key; usize::from(key) % 3 + 1], vec![key; len.into()]);
                if deletes {
                    prop_assert_eq!(edit.delete(&key), model.remove(&key).is_some());
                } else {
                    edit.put(&key, &value);
                    model.insert(key.clone(), value);
                }
                prop_assert_eq!(edit.get(&key), model.get(&key).map(|value| &value[..]));
            }
            prop_assert_eq!(edit.is_empty(), model.is_empty());
            bytes = edit.encode();
            prop_assert!(Packed::check(Shape::Ordered, &bytes));
            prop_assert_eq!(fold(Shape::Ordered, &before, &[edit.operations()]), Some(bytes.clone()));
            prop_assert!(are_operations(edit.operations()) || !edit.is_changed());
            let packed = Packed::new(Shape::Ordered, &bytes);
            prop_assert!(packed.iter().eq(model.iter().map(|(key, value)| (&key[..], &value[..]))));
            let loaded = load(Shape::Ordered, &dump(packed, NOW), NOW, |_| 0).expect("its own dump");
            prop_assert_eq!(&loaded, &bytes);
        }
    }

    #[test]
    fn list_is_as_a_vector_and_its_operations_say_the_same(
        steps in proptest::collection::vec((0..7_u8, any::<u16>(), 0..5_u8), 0..200), sizes in 1..30_usize,
    ) {
        let (mut bytes, mut model) = (list(&[]), Vec::<Vec<u8>>::new());
        for steps in steps.chunks(sizes) {
            let before = bytes.clone();
            let mut edit = ListEdit::new(Packed::new(Shape::List, &before));
            for &(kind, at, letter) in steps {
                let value = vec![letter; usize::from(letter) * 3];
                let (at, end) = (usize::from(at) % (model.len() + 1), model.len());
                match kind {
                    0 => { edit.push_front(&value); model.insert(0, value); }
                    1 => { edit.push_back(&value); model.push(value); }
                    2 => { edit.insert(at, &value); model.insert(at, value); }
                    3 if at < end => { edit.set(at, &value); model[at] = value; }
                    4 if at < end => { edit.remove(at, 1); model.remove(at); }
                    5 if at < end => { edit.remove(at, end - at); model.truncate(at); }
                    6 => {
                        let most = at % 4;
                        let mut found: Vec<usize> = (0..end).filter(|at| model[*at] == value).collect();
                        if letter % 2 == 0 { found.reverse(); }
                        found.truncate(most);
                        prop_assert_eq!(edit.remove_equal(&value, most, letter % 2 == 0), found.len());
                        found.sort_unstable();
                        found.into_iter().rev().for_each(|at| _ = model.remove(at));
                    }
                    _ => {}
                }
                prop_assert_eq!(edit.len(), model.len());
            }
            bytes = edit.encode();
            prop_assert!(Packed::check(Shape::List, &bytes));
            prop_assert!(edit.iter().eq(model.iter().map(|value| &value[..])));
            prop_assert_eq!(&values(&bytes), &model);
            prop_assert_eq!(fold(Shape::List, &before, &[edit.operations()]), Some(bytes.clone()));
            prop_assert!(are_operations(edit.operations()) || !edit.is_changed());
            let dump = dump(Packed::new(Shape::List, &bytes), NOW);
            let loaded = load(Shape::List, &dump, NOW, |_| 0).expect("its own dump");
            prop_assert_eq!(values(&loaded), values(&bytes));
        }
    }

    /// Bytes of values are lengths of others as well, so that one lies in another, or in the bytes of two.
    #[test]
    fn value_is_found_as_in_a_vector(
        values in proptest::collection::vec((proptest::collection::vec(0..4_u8, 0..5), heavy_tailed()), 0..120),
        wanted in (any::<prop::sample::Index>(), proptest::collection::vec(0..4_u8, 0..4), any::<bool>()),
        (from, to) in any::<(prop::sample::Index, prop::sample::Index)>(),
    ) {
        let repeated = |(some, times): &(Vec<u8>, usize)| some.repeat(*times);
        let model: Vec<Vec<u8>> = values.iter().map(repeated).collect();
        let all: Vec<&[u8]> = model.iter().map(|value| &value[..]).collect();
        let (bytes, (place, other, is_there)) = (list(&all), wanted);
        let value = if is_there && !model.is_empty() { &model[place.index(model.len())] } else { &other };
        let (from, to) = (from.index(model.len() + 1), to.index(model.len() + 1));
        let (packed, mut wanted) = (Packed::new(Shape::List, &bytes), Wanted::new(value));
        for range in [0..model.len(), from.min(to)..from.max(to)] {
            let expected: Vec<usize> = range.clone().filter(|at| model[*at] == *value).collect();
            prop_assert_eq!(&packed.places_of(&wanted, range.clone()).collect::<Vec<_>>(), &expected);
            wanted.fit(&packed);
            prop_assert_eq!(packed.places_of(&wanted, range).collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn sorted_set_is_as_a_map_in_the_order_of_its_scores(
        steps in proptest::collection::vec((0..40_u8, -3..4_i8, proptest::bool::weighted(0.2)), 0..200), sizes in 1..30_usize,
    ) {
        let mut bytes = Edit::new(Packed::empty(Shape::Scored)).encode();
        let mut model = BTreeMap::<Vec<u8>, f64>::new();
        for steps in steps.chunks(sizes) {
            let before = bytes.clone();
            let mut edit = Edit::new(Packed::new(Shape::Scored, &before));
            for &(key, score, deletes) in steps {
                let (key, score) = (vec![key; usize::from(key) % 3 + 1], f64::from(score) / 2.0);
                if deletes {
                    prop_assert_eq!(edit.delete(tag(&key), &key), model.remove(&key).is_some());
                } else {
                    prop_assert_eq!(edit.put_score(tag(&key), &key, score), model.insert(key.clone(), score).is_none());
                    prop_assert_eq!(edit.get(tag(&key), &key).map(score_of), Some(score));
                }
            }
            bytes = edit.encode();
            prop_assert!(Packed::check(Shape::Scored, &bytes));
            prop_assert_eq!(fold(Shape::Scored, &before, &[edit.operations()]), Some(bytes.clone()));
            let packed = Packed::new(Shape::Scored, &bytes);
            let mut expected: Vec<(f64, &[u8])> = model.iter().map(|(key, score)| (*score, &key[..])).collect();
            expected.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
            let found: Vec<(f64, &[u8])> = packed.iter().map(|(key, score)| (score_of(score), key)).collect();
            prop_assert_eq!(&found, &expected);
            for (at, (score, key)) in expected.into_iter().enumerate() {
                prop_assert_eq!(packed.find(tag(key), key), Some(at));
                let point = packed.partition_point(|(_, other)| score_of(other) < score);
                prop_assert!(point <= at && packed.score(point) == score);
            }
        }
    }

    /// As the store changes sorted sets, and the maps of their scores.
    #[test]
    fn rescored_members_are_as_in_a_map(
        steps in proptest::collection::vec((0..20_u8, prop::option::weighted(0.8, -3..4_i8), proptest::bool::weighted(0.1)), 0..80),
        is_map in any::<bool>(),
    ) {
        let shape = if is_map { Shape::Map } else { Shape::Scored };
        let empty = Edit::new(Packed::empty(shape)).encode();
        let (mut edit, mut model) = (Edit::new(Packed::new(shape, &empty)), BTreeMap::<Vec<u8>, f64>::new());
        for (key, score, fails) in steps {
            let (key, score) = (vec![key; usize::from(key) % 3 + 1], score.map(|score| f64::from(score) * -0.0 + f64::from(score)));
            let noted = edit.operations().len();
            let before = model.get(&key).copied();
            let told = edit.rescore(tag(&key), &key, |told| {
                assert_eq!(told, before);
                if fails { Err("refused") } else { Ok(score) }
            });
            if fails {
                prop_assert_eq!(told, Err("refused"));
            } else {
                prop_assert_eq!(told, Ok([before, score]));
                match score {
                    Some(score) => _ = model.insert(key.clone(), score),
                    None => _ = model.remove(&key),
                }
            }
            prop_assert_eq!(edit.operations().len() > noted, !fails && before != score, "what stays is not noted");
        }
        let bytes = edit.encode();
        let found: BTreeMap<Vec<u8>, f64> =
            Packed::new(shape, &bytes).iter().map(|(key, score)| (key.to_vec(), score_of(score))).collect();
        prop_assert_eq!(&found, &model);
        prop_assert!(found.values().all(|score| *score != 0.0 || score.is_sign_positive()), "of zeroes there is one");
        prop_assert_eq!(fold(shape, &empty, &[edit.operations()]), Some(bytes));
    }

    /// A map may hold what is no score, after a loss: it is told as nothing, and stays where nothing is to come of it.
    #[test]
    fn value_that_is_no_score_stays_until_it_gets_one(other in proptest::collection::vec(any::<u8>(), 0..7)) {
        let mut map = Edit::new(Packed::empty(Shape::Map));
        map.put(1, b"a", &other);
        let bytes = map.encode();
        let mut edit = Edit::new(Packed::new(Shape::Map, &bytes));
        prop_assert_eq!(edit.rescore(1, b"a", Ok::<_, ()>), Ok([None, None]));
        prop_assert!(!edit.is_changed());
        prop_assert_eq!(edit.rescore(1, b"a", |_| Ok::<_, ()>(Some(2.0))), Ok([None, Some(2.0)]));
        prop_assert_eq!(edit.get(1, b"a"), Some(&2_f64.to_le_bytes()[..]));
    }

    #[test]
    fn edits_are_as_a_map_in_order_of_insertion_and_their_operations_say_the_same(
        steps in proptest::collection::vec((0..60_u8, 0..30_u16, proptest::bool::weighted(0.3)), 0..300),
        is_map in any::<bool>(), sizes in 1..40_usize,
    ) {
        let shape = if is_map { Shape::Map } else { Shape::Set };
        let mut bytes = Edit::new(Packed::empty(shape)).encode();
        let (mut order, mut values) = (Vec::<Vec<u8>>::new(), BTreeMap::<Vec<u8>, Vec<u8>>::new());
        for steps in steps.chunks(sizes) {
            let before = bytes.clone();
            let mut edit = Edit::new(Packed::new(shape, &before));
            for &(key, len, deletes) in steps {
                let (key, value) = (vec![key; usize::from(key) % 4 + 1], vec![key; len.into()]);
                if deletes {
                    prop_assert_eq!(edit.delete(tag(&key), &key), values.remove(&key).is_some());
                    order.retain(|known| *known != key);
                    continue;
                }
                let value = if is_map { value } else { Vec::new() };
                let is_new = values.insert(key.clone(), value.clone()).is_none();
                if is_new {
                    order.push(key.clone());
                }
                let found = if is_map { edit.put(tag(&key), &key, &value) } else { edit.add(tag(&key), &key) };
                prop_assert_eq!(found, is_new);
                prop_assert_eq!(edit.get(tag(&key), &key), Some(&value[..]));
            }
            bytes = edit.encode();
            prop_assert!(Packed::check(shape, &bytes));
            prop_assert_eq!(fold(shape, &before, &[edit.operations()]), Some(bytes.clone()));
            prop_assert!(are_operations(edit.operations()) || !edit.is_changed());
            let found: Vec<_> = Packed::new(shape, &bytes).iter().map(|(key, _)| key.to_vec()).collect();
            prop_assert_eq!(&found, &order);
            for (key, value) in Packed::new(shape, &bytes).iter() {
                prop_assert_eq!(value, &values[key][..]);
            }
        }
    }
}

/// A field of the model: name, value, deadline as records have it.
type Field = (Vec<u8>, Vec<u8>, u64);

/// Does a step to both; checks that both answer the same.
fn step(edit: &mut Edit<'_>, model: &mut Vec<Field>, action: u8, name: u8, number: u64, is_server: bool) {
    let (name, raw) = (vec![name], if is_server { Moment::SERVER | number } else { number });
    let at = model.iter().position(|(key, ..)| *key == name);
    match action {
        0 | 1 => {
            let value = number.to_string().into_bytes();
            let put = if action == 0 { Edit::put } else { Edit::put_kept };
            assert_eq!(put(edit, 0, &name, &value), at.is_none());
            match at {
                None => model.push((name, value, 0)),
                Some(at) => model[at] = (name, value, if action == 0 { 0 } else { model[at].2 }),
            }
        }
        2 => {
            assert_eq!(edit.delete(0, &name), at.is_some());
            at.map(|at| model.remove(at));
        }
        3 | 4 => {
            let raw = if action == 3 { raw } else { 0 };
            assert_eq!(edit.set_deadline(0, &name, Deadline::of(raw)), at.is_some());
            at.into_iter().for_each(|at| model[at].2 = raw);
        }
        _ => {
            let until = [number, Moment::SERVER | (number / 2)];
            let is_over = |at: u64| at != 0 && at <= until[usize::from(at >= Moment::SERVER)];
            let left = model.iter().filter(|(.., at)| !is_over(*at)).count();
            assert_eq!(edit.purge(until) as usize, model.len() - left);
            model.retain(|(.., at)| !is_over(*at));
        }
    }
}

proptest! {
    /// Fields with deadlines beside a model; each round is a change of its own, folded alone and together with all others.
    #[test]
    fn fields_end_as_in_a_model_and_fold(
        rounds in proptest::collection::vec(
            proptest::collection::vec((0_u8..6, 0_u8..12, 1_u64..20, any::<bool>()), 1..8), 1..8)
    ) {
        let empty = Edit::new(Packed::empty(Shape::Map)).encode();
        let (mut bytes, mut logged, mut own, mut model) = (empty.clone(), Vec::new(), None, Vec::new());
        for round in &rounds {
            let before = bytes.clone();
            let mut edit = Edit::of_key(Packed::new(Shape::Map, &before), own);
            for &(action, name, number, is_server) in round {
                step(&mut edit, &mut model, action, name, number, is_server);
            }
            bytes = edit.encode();
            prop_assert!(Packed::check(Shape::Map, &bytes));
            if edit.is_changed() {
                logged.push(edit.operations().to_vec());
                prop_assert_eq!(fold(Shape::Map, &before, &[edit.operations()]), Some(bytes.clone()));
            }
            let packed = Packed::new(Shape::Map, &bytes);
            let raw = |at: usize| packed.deadline(at).map_or(0, Deadline::raw);
            let field = |at: usize| (packed.element(at).0.to_vec(), packed.element(at).1.to_vec(), raw(at));
            prop_assert_eq!(&(0..packed.len()).map(field).collect::<Vec<Field>>(), &model);
            prop_assert!(times_of(&bytes).is_none_or(|times| times.own == own.map_or(0, Deadline::raw)));
            prop_assert_eq!(packed.is_timed(), model.iter().any(|(.., at)| *at != 0));
            if !packed.is_timed() {
                // no operation says what the key's own deadline is meanwhile
                own = Deadline::of(round.len() as u64);
            }
        }
        let bodies: Vec<&[u8]> = logged.iter().map(|body| &body[..]).collect();
        prop_assert_eq!(fold(Shape::Map, &empty, &bodies), Some(bytes));
    }
}
