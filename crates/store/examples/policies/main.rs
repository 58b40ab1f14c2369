//! Which policy keeps the right values in memory: hit ratios on made-up traces, the store's own policy beside those of the literature.
//!
//! `cargo run --release -p store --example policies [SEED]`; results in docs/adr/0022-which-values-stay-in-memory.md.
//!
//! All values are of one size, and memory holds a number of them. What runs as `store` is the store's policy itself, over an
//! array of slots in place of the index.

mod clocks;
#[path = "../../src/policy.rs"]
#[expect(dead_code, reason = "written values replace none here, and nothing is large enough for a hurry")]
mod policy;
mod queues;
mod trace;

use clocks::{Clock, Own, Rule};
use queues::{Lru, S3Fifo, Sieve, TinyLfu};
use vfs::sim::Rng;

/// Values in memory, by the number of their key.
pub(crate) trait Cache {
    /// A read; returns whether the value was in memory.
    fn read(&mut self, key: usize) -> bool;

    /// A write; where a policy does not tell it from a read, it is one.
    fn write(&mut self, key: usize) {
        self.read(key);
    }
}

type Make = Box<dyn Fn(usize, usize) -> Box<dyn Cache>>;

fn contenders() -> Vec<(&'static str, Make)> {
    let clock = |rule: Rule| -> Make { Box::new(move |keys, room| Box::new(Clock::new(keys, room, rule))) };
    let plain = Rule { level_max: 1, ghosts: false, second: false };
    vec![
        ("LRU", Box::new(|keys, room| Box::new(Lru::new(keys, room)))),
        ("SIEVE", Box::new(|keys, room| Box::new(Sieve::new(keys, room)))),
        ("S3-FIFO", Box::new(|keys, room| Box::new(S3Fifo::new(keys, room)))),
        ("W-TinyLFU", Box::new(|keys, room| Box::new(TinyLfu::new(keys, room)))),
        ("CLOCK, 1 bit (before)", clock(plain)),
        ("CLOCK, 2 bits", clock(Rule { level_max: 3, ..plain })),
        ("CLOCK, 3 bits", clock(Rule { level_max: 7, ..plain })),
        ("CLOCK, 1 bit, ghosts", clock(Rule { ghosts: true, ..plain })),
        ("CLOCK, 2 bits, ghosts", clock(Rule { level_max: 3, ghosts: true, ..plain })),
        ("CLOCK, 1 bit, second read", clock(Rule { second: true, ..plain })),
        ("CLOCK, 2 bits, second read", clock(Rule { level_max: 3, second: true, ..plain })),
        ("store: levels, second read, marks", Box::new(|keys, room| Box::new(Own::new(keys, room)))),
    ]
}

fn main() {
    let seed = std::env::args().nth(1).map_or(42, |arg| arg.parse().expect("a seed"));
    println!("seed {seed}; {KEYS} keys, room for {ROOM} values");
    println!(
        "shift N: hit ratio on Zipf 0.99 whose hot set is another after N reads for each key, by that of LRU; rotate: a tenth moves"
    );
    println!(
        "loop: hit ratio on a loop over 1.2 x memory; rounds: misses of 4,000 keys among 30,000 with room for 13,000"
    );
    println!("scan: hit ratio of the hot set while each key is read once beside it, by that before");
    println!(
        "{:34} | {:>7} | {:>7} | {:>7} | {:>7} | {:>5} | {:>5} | rounds 1, 2, 3 to 6",
        "policy", "shift 3", "shift10", "shift30", "rotate", "loop", "scan"
    );
    let mut of_lru = None;
    for (name, make) in contenders() {
        let full = || make(KEYS, ROOM);
        let shifts =
            [(3, 6, true), (10, 3, true), (30, 2, true), (10, 3, false)].map(|(reads, shifts, whole)| {
                trace::shifting_zipf(&mut *full(), Rng::new(seed), (KEYS, reads * KEYS, shifts), whole)
            });
        let by = *of_lru.get_or_insert(shifts);
        let looped = trace::loop_over(&mut *full(), ROOM * 12 / 10);
        let scanned = trace::scan_beside_hot_set(&mut *full(), Rng::new(seed), KEYS, ROOM / 2);
        let rounds = trace::rounds(&mut *make(30_000, 13_000), Rng::new(seed), 30_000, 4_000);
        let ratios: Vec<String> =
            shifts.iter().zip(by).map(|(own, lru)| format!("{:7.3}", own / lru)).collect();
        println!(
            "{name:34} | {} | {looped:5.3} | {scanned:5.3} | {}, {}, {}",
            ratios.join(" | "),
            rounds[0],
            rounds[1],
            rounds[2..].iter().sum::<u64>()
        );
    }
    println!("LRU's own hit ratios: {:.3?}", of_lru.unwrap_or_default());
}

const KEYS: usize = 100_000;
const ROOM: usize = KEYS / 10;
