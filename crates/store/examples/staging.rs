//! What staging costs as a transaction grows: fresh keys of 16 bytes with values of 16, by commands of as many keys.
//!
//! `cargo run --release -p store --example staging [COMMANDS [KEYS]]`: 500 commands of 1,000 keys unless told otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant};

use clock::{SimClock, UnixMs};
use store::{EngineKind, KeyRef, Options, Prepared, Scope, Store, Value, Workspace};

#[expect(clippy::disallowed_methods, reason = "a measurement reads the clock itself")]
fn main() {
    let number = |at, default| std::env::args().nth(at).map_or(default, |arg| arg.parse().expect("a number"));
    let (commands, keys): (u64, u64) = (number(1, 500), number(2, 1_000));
    let (engine, transaction_bytes_max) = (EngineKind::Memory, u64::MAX);
    // A clock that stands still: callgrind cannot read the system's.
    let clock = Arc::new(SimClock::new(UnixMs(1_795_000_000_000)));
    let options = Options { engine, transaction_bytes_max, background: false, clock, ..Options::default() };
    let store = Store::open(options).expect("memory always opens");
    let mut workspace = store.workspace();
    let part = (commands / PARTS).max(1);
    let (mut touched, mut locked, mut longest) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    for command in 1..=commands {
        let names: Vec<String> =
            (0..keys).map(|key| format!("key:{:012}", (command - 1) * keys + key)).collect();
        let names: Vec<KeyRef<'_>> =
            names.iter().map(|name| KeyRef { db: 0, key: name.as_bytes() }).collect();
        let start = Instant::now();
        store.touch(&mut workspace, &names).expect("memory never refuses");
        let watched = Instant::now();
        put(&store, &mut workspace, &names);
        let held = watched.elapsed();
        (touched, locked, longest) = (touched + (watched - start), locked + held, longest.max(held));
        if command % part == 0 {
            let ns = |time: Duration| time.as_nanos() as u64 / (part * keys);
            let (touched_ns, locked_ns) = (ns(touched), ns(locked));
            println!(
                "{:7} keys: {touched_ns} ns a key to touch, {locked_ns} ns under its lock; at most {longest:?}",
                command * keys
            );
            (touched, locked, longest) = Default::default();
        }
    }
}

/// MSET: the stripes of `names` are locked from beginning to end.
fn put(store: &Store, workspace: &mut Workspace, names: &[KeyRef<'_>]) {
    let prepared = Prepared::default();
    let mut access = store.access(Scope::Keys(names), &prepared, 0).expect("memory never refuses");
    access.resume(workspace);
    for name in names {
        access.put(name.db, name.key, Value::String(&[b'v'; 16]), None);
    }
    access.keep(workspace).expect("memory never refuses");
}

/// Lines that are printed.
const PARTS: u64 = 5;
