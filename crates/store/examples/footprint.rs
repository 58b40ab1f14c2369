//! What one key costs: resident memory and time of 1 M keys of 16 bytes with values of 100 bytes, all hot.
//!
//! `cargo run --release -p store --example footprint [KEYS]`

use std::sync::Arc;
use std::time::Instant;

use clock::{SimClock, UnixMs};
use store::{EngineKind, KeyRef, Options, Prepared, Scope, Store, Value};

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock and /proc itself")]
fn main() {
    let keys: u64 = std::env::args().nth(1).map_or(1_000_000, |arg| arg.parse().expect("a number of keys"));
    // A clock that stands still: callgrind cannot read the system's.
    let clock = Arc::new(SimClock::new(UnixMs(1_795_000_000_000)));
    let options = Options { engine: EngineKind::Memory, background: false, clock, ..Options::default() };
    let store = Store::open(options).expect("memory always opens");
    let before = resident_bytes();
    let start = Instant::now();
    (0..keys).for_each(|i| set(&store, i));
    let filled = start.elapsed();
    let after = resident_bytes();
    let start = Instant::now();
    (0..keys).for_each(|i| set(&store, i * 7 % keys));
    let overwritten = start.elapsed();
    let start = Instant::now();
    let found = (0..keys).filter(|i| get(&store, i * 13 % keys)).count();
    let read = start.elapsed();
    println!("resident: {:.1} B for each key", (after - before) as f64 / keys as f64);
    println!("accounted: {:.1} B for each key", store.memory().index_bytes as f64 / keys as f64);
    println!("after overwriting: {:.1} B", (resident_bytes() - before) as f64 / keys as f64);
    for (what, time) in [("SET of a new key", filled), ("SET of an old key", overwritten), ("GET", read)] {
        println!("{what}: {:.0} ns", time.as_nanos() as f64 / keys as f64);
    }
    assert_eq!(found as u64, keys);
}

fn key(i: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    let mut rest = i;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn set(store: &Store, i: u64) {
    let key = key(i);
    let keys = [KeyRef { db: 0, key: &key }];
    let mut prepared = Prepared::default();
    assert!(store.missing(&keys, &mut prepared));
    let mut access = store.access(Scope::Keys(&keys), &prepared, 116).expect("memory never refuses");
    access.put(0, &key, Value::String(&[b'v'; 100]), None);
    access.commit().expect("memory never refuses");
}

fn get(store: &Store, i: u64) -> bool {
    let key = key(i);
    let keys = [KeyRef { db: 0, key: &key }];
    let mut prepared = Prepared::default();
    assert!(store.missing(&keys, &mut prepared));
    let mut access = store.access(Scope::Keys(&keys), &prepared, 0).expect("a read");
    let found = access.get(0, &key).expect("hot").is_some();
    access.commit().expect("a read");
    found
}

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock and /proc itself")]
fn resident_bytes() -> u64 {
    let statm = std::fs::read("/proc/self/statm").expect("Linux");
    let text = String::from_utf8(statm).expect("digits");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("pages") * 4096
}
