//! What one command on hot data takes from the allocator: bounds that nobody is to exceed unnoticed.
//!
//! Counted on one thread, in engine `memory`, without a background thread, so each run counts the same. `examples/changes.rs` has the same commands
//! for callgrind.
#![allow(unsafe_code, reason = "an allocator that counts")]

mod commands;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use store::{EngineKind, Options, Store};

use commands::{fill, get, hdel, hset, hset_small, lpush, mixed, remove_at, sadd, set, xadd, zadd, zadd_any};

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

const ELEMENTS: u64 = 10_000;
const COMMANDS: u64 = 1_000;

/// One command, with its number.
type Run<'r> = &'r dyn Fn(u64);

#[test]
fn command_on_one_element_takes_few_allocations() {
    let store = Store::open(Options { engine: EngineKind::Memory, background: false, ..Options::default() });
    let store = store.expect("memory always opens");
    (0..ELEMENTS).for_each(|n| fill(&store, n));
    (0..COMMANDS).for_each(|n| hset_small(&store, n));
    let each: [(&str, f64, Run<'_>); 12] = [
        ("SET", 1.0, &|n| set(&store, n)),
        ("GET", 0.0, &|n| get(&store, n)),
        ("HSET of a small hash", 2.0, &|n| hset_small(&store, n)),
        ("HSET of a field that is there", 2.0, &|n| hset(&store, n)),
        // with splits
        ("HSET of a new field", 4.0, &|n| hset(&store, ELEMENTS + n)),
        ("HDEL", 4.1, &|n| hdel(&store, n)),
        ("SADD of a new member", 3.5, &|n| sadd(&store, ELEMENTS + n)),
        ("LPUSH", 9.0, &|n| lpush(&store, n)),
        ("RPOP", 9.5, &|n| remove_at(&store, ELEMENTS + COMMANDS - 1 - n)),
        ("ZADD of a new member", 17.0, &|n| zadd_any(&store, ELEMENTS + n)),
        ("ZADD of a new score", 23.0, &|n| zadd(&store, n, mixed(n + 7))),
        ("XADD", 10.5, &|n| xadd(&store, ELEMENTS + n)),
    ];
    for (name, most, run) in each {
        let before = ALLOCATIONS.get();
        (0..COMMANDS).for_each(run);
        let allocations = (ALLOCATIONS.get() - before) as f64 / COMMANDS as f64;
        println!("{name}: {allocations} allocations");
        assert!(allocations <= most + 0.05, "{name}: {allocations} allocations, {most} at most");
    }
}
