//! What each operation on a packed collection takes by itself: time, and allocations.
//!
//! ```text
//! cargo run --release -p collections --example operations [ROUNDS]
//! ```
//!
//! A *leaf* has 30 elements of 14 B, with values of 60 B where there are values; a *small* hash has 5. An operation reads the bytes, changes
//! them and gives the new ones and what is logged, as the store does. Medians of eleven runs.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use clock::{Clock, SystemClock};
use collections::{Edit, ListEdit, OrderedEdit, Packed, Shape, fold, score_of};

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // a thread that ends has no counter any more
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as the caller's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

const LEAF: u64 = 30;
const SMALL: u64 = 5;
const VALUE: [u8; 60] = [b'v'; 60];
const OTHER: [u8; 60] = [b'o'; 60];
const RUNS: usize = 11;

fn main() {
    let rounds: u64 = std::env::args().nth(1).map_or(200_000, |rounds| rounds.parse().expect("ROUNDS"));
    println!("{:36} {:>8} {:>12}", "operation", "ns", "allocations");
    hashes_and_sets(rounds);
    sorted_sets(rounds);
    lists_and_streams(rounds);
}

fn hashes_and_sets(rounds: u64) {
    let (map, small, set) = (keyed(Shape::Map, LEAF), keyed(Shape::Map, SMALL), keyed(Shape::Set, LEAF));
    measure(rounds, "field of a leaf, looked up", |n| {
        let packed = Packed::new(Shape::Map, black_box(&map));
        black_box(packed.find(tag(n % LEAF), &element(n % LEAF)));
    });
    for (name, value, len) in
        [("field of a leaf, new value", &map, LEAF), ("field of a small hash, new value", &small, SMALL)]
    {
        measure(rounds, name, |n| {
            black_box(changed(Shape::Map, value, |edit| edit.put(tag(n % len), &element(n % len), &OTHER)));
        });
    }
    measure(rounds, "field of a leaf, new field", |n| {
        black_box(changed(Shape::Map, &map, |edit| edit.put(tag(LEAF + n), &element(LEAF + n), &VALUE)));
    });
    measure(rounds, "field of a leaf, gone", |n| {
        black_box(changed(Shape::Map, &map, |edit| edit.delete(tag(n % LEAF), &element(n % LEAF))));
    });
    measure(rounds, "member of a set's leaf, new", |n| {
        black_box(changed(Shape::Set, &set, |edit| edit.add(tag(LEAF + n), &element(LEAF + n))));
    });
    let change = changed(Shape::Map, &map, |edit| edit.put(tag(7), &element(7), &OTHER)).1;
    measure(rounds, "field of a leaf, folded from the log", |_| {
        black_box(fold(Shape::Map, black_box(&map), &[&change]));
    });
}

fn sorted_sets(rounds: u64) {
    let scored = keyed(Shape::Scored, LEAF);
    measure(rounds, "member by score, looked for", |n| {
        let packed = Packed::new(Shape::Scored, black_box(&scored));
        black_box(packed.partition_point(|(_, score)| score_of(score) < (n % LEAF) as f64));
    });
    measure(rounds, "member by score, new", |n| {
        let (key, score) = (element(LEAF + n), (n % LEAF) as f64 + 0.5);
        black_box(changed(Shape::Scored, &scored, |edit| edit.put_score(tag(LEAF + n), &key, score)));
    });
    measure(rounds, "member by score, new score", |n| {
        let (key, score) = (element(n % LEAF), (n * 7 % LEAF) as f64 + 0.5);
        black_box(changed(Shape::Scored, &scored, |edit| edit.put_score(tag(n % LEAF), &key, score)));
    });
}

fn lists_and_streams(rounds: u64) {
    let (list, stream) = (list(), stream());
    measure(rounds, "list, pushed in front", |_| of_list(&list, |edit| edit.push_front(&VALUE)));
    measure(rounds, "list, pushed behind", |_| of_list(&list, |edit| edit.push_back(&VALUE)));
    measure(rounds, "list, popped behind", |_| of_list(&list, |edit| edit.remove(edit.len() - 1, 1)));
    measure(rounds, "list, element set", |n| of_list(&list, |edit| edit.set((n % LEAF) as usize, &OTHER)));
    measure(rounds, "stream, entry looked up", |n| {
        let packed = Packed::new(Shape::Ordered, black_box(&stream));
        black_box(packed.place_of(&element(n % LEAF)));
    });
    measure(rounds, "stream, entry appended", |n| {
        let mut edit = OrderedEdit::new(Packed::new(Shape::Ordered, black_box(&stream)));
        edit.put(&element(LEAF + n), &VALUE);
        black_box((edit.encode(), edit.into_operations()));
    });
}

/// Prints what `operation` takes, which is given its number.
fn measure(rounds: u64, name: &str, operation: impl Fn(u64)) {
    let mut times: Vec<f64> = Vec::with_capacity(RUNS);
    let before = ALLOCATIONS.get();
    for _ in 0..RUNS {
        let begin = SystemClock.now();
        (0..rounds).for_each(&operation);
        times.push((SystemClock.now().0 - begin.0) as f64 / rounds as f64);
    }
    let allocations = (ALLOCATIONS.get() - before) as f64 / (rounds * RUNS as u64) as f64;
    times.sort_by(f64::total_cmp);
    println!("{name:36} {:>8.0} {allocations:>12.2}", times[RUNS / 2]);
}

/// 14 bytes, in the order of numbers.
fn element(number: u64) -> [u8; 14] {
    let mut element = *b"e0000000000000";
    let (mut rest, mut at) = (number, element.len());
    while rest > 0 {
        at -= 1;
        element[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    element
}

/// Bits in which few elements are equal, as those of a hash.
fn tag(number: u64) -> u16 {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as u16
}

fn keyed(shape: Shape, len: u64) -> Vec<u8> {
    let mut edit = Edit::new(Packed::empty(shape));
    for n in 0..len {
        _ = match shape {
            Shape::Set => edit.add(tag(n), &element(n)),
            Shape::Scored => edit.put_score(tag(n), &element(n), n as f64),
            _ => edit.put(tag(n), &element(n), &VALUE),
        };
    }
    edit.encode()
}

fn list() -> Vec<u8> {
    let mut edit = ListEdit::new(Packed::empty(Shape::List));
    (0..LEAF).for_each(|_| edit.push_back(&VALUE));
    edit.encode()
}

fn stream() -> Vec<u8> {
    let mut edit = OrderedEdit::new(Packed::empty(Shape::Ordered));
    (0..LEAF).for_each(|n| edit.put(&element(n), &VALUE));
    edit.encode()
}

fn changed(shape: Shape, value: &[u8], change: impl FnOnce(&mut Edit<'_>) -> bool) -> (Vec<u8>, Vec<u8>) {
    let mut edit = Edit::new(Packed::new(shape, black_box(value)));
    change(&mut edit);
    (edit.encode(), edit.into_operations())
}

fn of_list(value: &[u8], change: impl FnOnce(&mut ListEdit<'_>)) {
    let mut edit = ListEdit::new(Packed::new(Shape::List, black_box(value)));
    change(&mut edit);
    black_box((edit.encode(), edit.into_operations()));
}
