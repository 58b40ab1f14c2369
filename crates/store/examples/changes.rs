//! What one change of an element costs in the store, for callgrind to count its instructions. What it allocates is in `tests/counts.rs`.
//!
//! ```text
//! changes COMMAND [COUNT]     set, get, hset-small, hset-new, hset-old, sadd, hdel, lpush, rpop, zadd-new, zadd-old, zpopmin, xadd, linsert
//!
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null --collect-atstart=no --toggle-collect='*measured*' changes COMMAND COUNT
//! ```
//!
//! Engine `memory`; keys of 16 bytes, values of 60, and collections of [`ELEMENTS`] elements where a name does not say `small`; LINSERT is in the middle of ten times as many.

#[path = "../tests/commands/mod.rs"]
mod commands;

use std::sync::Arc;

use clock::{SimClock, UnixMs};
use store::{EngineKind, Options, Store};

use commands::{
    MANY, RUN, get, hdel, hset, hset_run, hset_small, linsert, lpush, lpush_run, mixed, remove_run_at, rpop,
    rpush_many, sadd, sadd_run, set, xadd, xadd_run, zadd, zadd_any, zadd_run, zpopmin, zpopmin_run,
};

/// Elements of a large collection.
const ELEMENTS: u64 = 100_000;
/// Small hashes.
const SMALL: u64 = 10_000;

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let count: u64 = args.get(2).map_or(20_000, |count| count.parse().expect("COUNT"));
    // A clock that stands still: callgrind cannot read the system's.
    let clock = Arc::new(SimClock::new(UnixMs(1_795_000_000_000)));
    let options = Options { engine: EngineKind::Memory, background: false, clock, ..Options::default() };
    let store = Store::open(options).expect("memory always opens");
    let ((elements, prepare), run) = command(&args[1]);
    (0..elements).for_each(|n| prepare(&store, n));
    measured(&store, run, count);
}

#[inline(never)]
fn measured(store: &Store, run: Run, count: u64) {
    (0..count).for_each(|n| run(store, n));
}

type Run = fn(&Store, u64);

/// What makes the data, with how many steps, and the command.
fn command(name: &str) -> ((u64, Run), Run) {
    match name {
        "set" => ((ELEMENTS, set), |store, n| set(store, n % ELEMENTS)),
        "get" => ((ELEMENTS, set), |store, n| get(store, n % ELEMENTS)),
        "hset-small" => ((SMALL, hset_small), |store, n| hset_small(store, n % SMALL)),
        "hset-new" => ((ELEMENTS, hset), |store, n| hset(store, ELEMENTS + n)),
        "hset-old" => ((ELEMENTS, hset), hset),
        "hdel" => ((ELEMENTS, hset), hdel),
        "sadd" => ((ELEMENTS, sadd), |store, n| sadd(store, ELEMENTS + n)),
        "lpush" => ((ELEMENTS, lpush), lpush),
        "rpop" => ((ELEMENTS, lpush), rpop),
        "zadd-new" => ((ELEMENTS, zadd_any), |store, n| zadd_any(store, ELEMENTS + n)),
        "zadd-old" => ((ELEMENTS, zadd_any), |store, n| zadd(store, n, mixed(n + 7))),
        "zpopmin" => ((ELEMENTS, zadd_any), zpopmin),
        "zpopmin-run" => ((ELEMENTS, zadd_any), zpopmin_run),
        "xadd" => ((ELEMENTS, xadd), |store, n| xadd(store, ELEMENTS + n)),
        "linsert" => ((10 * ELEMENTS / MANY, rpush_many), |store, _| linsert(store, 5 * ELEMENTS)),
        "hset-new-run" => ((ELEMENTS, hset), |store, n| hset_run(store, ELEMENTS + n * RUN as u64)),
        "hset-old-run" => ((ELEMENTS, hset), |store, n| hset_run(store, n * RUN as u64)),
        "sadd-run" => ((ELEMENTS, sadd), |store, n| sadd_run(store, ELEMENTS + n * RUN as u64)),
        "lpush-run" => ((ELEMENTS, lpush), lpush_run),
        "rpop-run" => ((ELEMENTS, lpush), |store, n| remove_run_at(store, ELEMENTS - (n + 1) * RUN as u64)),
        "zadd-new-run" => ((ELEMENTS, zadd_any), |store, n| zadd_run(store, ELEMENTS + n * RUN as u64, 0)),
        "zadd-old-run" => ((ELEMENTS, zadd_any), |store, n| zadd_run(store, n * RUN as u64, 7)),
        "xadd-run" => ((ELEMENTS, xadd), |store, n| xadd_run(store, ELEMENTS + n * RUN as u64)),
        _ => panic!("unknown command {name}"),
    }
}
