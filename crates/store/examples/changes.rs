//! What one change of an element costs in the store, for callgrind to count its instructions. What it allocates is in `tests/counts.rs`.
//!
//! ```text
//! changes COMMAND [COUNT]     set, get, hset-small, hset-new, hset-old, sadd, hdel, lpush, rpop, zadd-new, zadd-old, xadd
//!
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect='*measured*' changes COMMAND COUNT
//! ```
//!
//! Engine `memory`; keys of 16 bytes, values of 60, and collections of [`ELEMENTS`] elements where a name does not say `small`.

use std::hint::black_box;
use std::sync::Arc;

use clock::{SimClock, UnixMs};
use store::{Access, EngineKind, KeyRef, ListChange, Options, Prepared, Scope, Store, Value, ValueKind};

/// Elements of a large collection.
const ELEMENTS: u64 = 100_000;
const VALUE: [u8; 60] = [b'v'; 60];

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let count: u64 = args.get(2).map_or(20_000, |count| count.parse().expect("COUNT"));
    // A clock that stands still: callgrind cannot read the system's.
    let clock = Arc::new(SimClock::new(UnixMs(1_795_000_000_000)));
    let options = Options { engine: EngineKind::Memory, background: false, clock, ..Options::default() };
    let store = Store::open(options).expect("memory always opens");
    let (prepare, run) = command(&args[1]);
    prepare.into_iter().for_each(|(to, run)| (0..to).for_each(|n| run(&store, n)));
    measured(&store, run, count);
}

#[inline(never)]
fn measured(store: &Store, run: Run, count: u64) {
    (0..count).for_each(|n| run(store, n));
}

type Run = fn(&Store, u64);

/// What makes the data, with how many steps, and the command.
fn command(name: &str) -> (Option<(u64, Run)>, Run) {
    match name {
        "set" => (Some((ELEMENTS, set)), set),
        "get" => (Some((ELEMENTS, set)), |store, n| {
            let key = key_of(n % ELEMENTS);
            read(store, &key, |access| _ = black_box(access.get(0, &key).expect("it is hot")));
        }),
        "hset-small" => (Some((10_000, small)), |store, n| small(store, n % 10_000)),
        "hset-new" => (Some((ELEMENTS, hset)), |store, n| hset(store, ELEMENTS + n)),
        "hset-old" => (Some((ELEMENTS, hset)), hset),
        "hdel" => (Some((ELEMENTS, hset)), |store, n| {
            let field = element_of(n);
            edit(store, b"hash:00000000001", ValueKind::Hash, &field, |edit, tag| {
                _ = edit.delete(tag, &field);
            });
        }),
        "sadd" => (Some((ELEMENTS, sadd)), |store, n| sadd(store, ELEMENTS + n)),
        "lpush" => (Some((ELEMENTS, lpush)), lpush),
        "rpop" => (Some((ELEMENTS, lpush)), |store, n| {
            change_list(store, ListChange::Remove((ELEMENTS - 1 - n) as usize, 1));
        }),
        "zadd-new" => (Some((ELEMENTS, zadd)), |store, n| zadd(store, ELEMENTS + n)),
        "zadd-old" => (Some((ELEMENTS, zadd)), |store, n| {
            let member = element_of(n);
            let put = |edit: &mut store::Edit<'_>, tag| _ = edit.put_score(tag, &member, mixed(n + 7) as f64);
            edit(store, b"zset:00000000001", ValueKind::SortedSet, &member, put);
        }),
        "xadd" => (Some((ELEMENTS, xadd)), |store, n| xadd(store, ELEMENTS + n)),
        _ => panic!("unknown command {name}"),
    }
}

fn set(store: &Store, n: u64) {
    let key = key_of(n % ELEMENTS);
    write(store, &key, |access| access.put(0, &key, Value::String(&VALUE), None));
}

fn small(store: &Store, n: u64) {
    let (key, field) = (key_of(n), element_of(n % 7));
    edit(store, &key, ValueKind::Hash, &field, |edit, tag| _ = edit.put(tag, &field, &VALUE));
}

fn hset(store: &Store, n: u64) {
    let field = element_of(n);
    edit(store, b"hash:00000000001", ValueKind::Hash, &field, |edit, tag| _ = edit.put(tag, &field, &VALUE));
}

fn sadd(store: &Store, n: u64) {
    let member = element_of(n);
    edit(store, b"set:000000000001", ValueKind::Set, &member, |edit, tag| _ = edit.add(tag, &member));
}

fn zadd(store: &Store, n: u64) {
    let member = element_of(n);
    let put = |edit: &mut store::Edit<'_>, tag| _ = edit.put_score(tag, &member, mixed(n) as f64);
    edit(store, b"zset:00000000001", ValueKind::SortedSet, &member, put);
}

fn lpush(store: &Store, _: u64) {
    change_list(store, ListChange::PushFront(&VALUE));
}

fn change_list(store: &Store, change: ListChange<'_>) {
    let key = b"list:00000000001";
    write(store, key, |access| _ = access.change_list(0, key, &[change]).expect("it is hot"));
}

fn xadd(store: &Store, n: u64) {
    let key = b"stream:000000001";
    let entry = [b"e".as_slice(), &n.to_be_bytes()].concat();
    write(store, key, |access| {
        _ = access.change_stream(0, key, &[(&entry, Some(&VALUE))]).expect("it is hot");
    });
}

fn edit(
    store: &Store,
    key: &[u8],
    kind: ValueKind,
    element: &[u8],
    change: impl FnOnce(&mut store::Edit<'_>, u16),
) {
    write(store, key, |access| {
        let tag = access.tag(element);
        let done = access.edit_elements(0, key, kind, std::iter::once(element), |edit| change(edit, tag));
        done.expect("it is hot").expect("it is of this type");
    });
}

fn write(store: &Store, key: &[u8], change: impl FnOnce(&mut Access<'_>)) {
    let (prepared, keys) = (Prepared::default(), [KeyRef { db: 0, key }]);
    let mut access = store.access(Scope::Keys(&keys), &prepared, 200).expect("memory never refuses");
    change(&mut access);
    access.commit().expect("memory never refuses");
}

fn read(store: &Store, key: &[u8], look: impl FnOnce(&Access<'_>)) {
    let (prepared, keys) = (Prepared::default(), [KeyRef { db: 0, key }]);
    let mut access = store.access(Scope::Keys(&keys), &prepared, 0).expect("memory never refuses");
    look(&access);
    access.commit().expect("nothing was changed");
}

fn key_of(n: u64) -> [u8; 16] {
    named(*b"key:000000000000", n)
}

fn element_of(n: u64) -> [u8; 14] {
    named(*b"el:00000000000", n)
}

/// `name` with `n` in its last digits.
fn named<const LEN: usize>(mut name: [u8; LEN], mut n: u64) -> [u8; LEN] {
    for byte in name.iter_mut().rev().take(10) {
        *byte = b'0' + (n % 10) as u8;
        n /= 10;
    }
    name
}

/// A number that looks like any: scores come in no order.
fn mixed(n: u64) -> u64 {
    n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20
}
