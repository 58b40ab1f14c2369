//! What one command on hot data takes from the allocator: bounds that nobody is to exceed unnoticed.
//!
//! Counted on one thread, in engine `memory`, without a background thread, so each run counts the same. `examples/changes.rs` has the same commands
//! for callgrind.
#![allow(unsafe_code, reason = "an allocator that counts")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use store::{Access, EngineKind, KeyRef, Options, Prepared, Scope, Store, Value, ValueKind};

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

const VALUE: [u8; 60] = [b'v'; 60];
const ELEMENTS: u64 = 10_000;
const COMMANDS: u64 = 1_000;

/// One command, with its number.
type Run<'r> = &'r dyn Fn(u64);

#[test]
fn command_on_one_element_takes_few_allocations() {
    let store = Store::open(Options { engine: EngineKind::Memory, background: false, ..Options::default() });
    let store = store.expect("memory always opens");
    let (hash, set) = ((&b"hash"[..], ValueKind::Hash), (&b"set"[..], ValueKind::Set));
    let hset = |n| edit(&store, hash, n, |edit, tag, field| _ = edit.put(tag, field, &VALUE));
    let sadd = |n| edit(&store, set, n, |edit, tag, member| _ = edit.add(tag, member));
    let small = |n: u64| {
        let key = format!("small:{}", n % COMMANDS);
        edit(&store, (key.as_bytes(), ValueKind::Hash), n % 7, |edit, tag, field| {
            _ = edit.put(tag, field, &VALUE);
        });
    };
    (0..ELEMENTS).for_each(|n| {
        put(&store, n);
        hset(n);
        sadd(n);
    });
    (0..7 * COMMANDS).for_each(|n| small(n / COMMANDS + n * 7));
    // the first command of each kind may fill what later ones find
    let each: [(&str, f64, Run<'_>); 7] = [
        ("SET", 1.0, &|n| put(&store, n)),
        ("GET", 0.0, &|n| get(&store, n)),
        // its key is made here
        ("HSET of a small hash", 3.0, &small),
        ("HSET of a field that is there", 2.0, &hset),
        // with splits
        ("HSET of a new field", 7.0, &|n| hset(ELEMENTS + n)),
        ("HDEL", 7.0, &|n| edit(&store, hash, n, |edit, tag, field| _ = edit.delete(tag, field))),
        ("SADD of a new member", 6.5, &|n| sadd(ELEMENTS + n)),
    ];
    for (name, most, run) in each {
        let before = ALLOCATIONS.get();
        (0..COMMANDS).for_each(run);
        let allocations = (ALLOCATIONS.get() - before) as f64 / COMMANDS as f64;
        println!("{name}: {allocations} allocations");
        assert!(allocations <= most + 0.05, "{name}: {allocations} allocations, {most} at most");
    }
}

fn put(store: &Store, n: u64) {
    let key = named(*b"key:000000000000", n);
    write(store, &key, |access| access.put(0, &key, Value::String(&VALUE), None));
}

fn get(store: &Store, n: u64) {
    let (key, prepared) = (named(*b"key:000000000000", n), Prepared::default());
    let keys = [KeyRef { db: 0, key: &key }];
    let mut access = store.access(Scope::Keys(&keys), &prepared, 0).expect("memory never refuses");
    assert!(access.get(0, &key).expect("it is hot").is_some());
    access.commit().expect("nothing was changed");
}

fn edit(
    store: &Store,
    (key, kind): (&[u8], ValueKind),
    n: u64,
    change: impl FnOnce(&mut store::Edit<'_>, u16, &[u8]),
) {
    let element = named(*b"el:00000000000", n);
    write(store, key, |access| {
        let tag = access.tag(&element);
        let elements = std::iter::once(&element[..]);
        let done = access.edit_elements(0, key, kind, elements, |edit| change(edit, tag, &element));
        done.expect("it is hot").expect("it is of this type");
    });
}

fn write(store: &Store, key: &[u8], change: impl FnOnce(&mut Access<'_>)) {
    let (prepared, keys) = (Prepared::default(), [KeyRef { db: 0, key }]);
    let mut access = store.access(Scope::Keys(&keys), &prepared, 200).expect("memory never refuses");
    change(&mut access);
    access.commit().expect("memory never refuses");
}

/// `name` with `n` in its last digits.
fn named<const LEN: usize>(mut name: [u8; LEN], mut n: u64) -> [u8; LEN] {
    for byte in name.iter_mut().rev().take(10) {
        *byte = b'0' + (n % 10) as u8;
        n /= 10;
    }
    name
}
