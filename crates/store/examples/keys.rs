//! Figures of engine `log` on this machine: start-up, and disk used against live data.
//!
//! ```text
//! keys DIR fill KEYS ROUNDS [kill]    writes KEYS keys of 16 bytes with values of 100, ROUNDS times over
//! keys DIR random KEYS ROUNDS         as many writes, in random order
//! keys DIR start                      opens, prints how long it took and how many keys there are
//! ```
//!
//! `kill` ends without closing, as kill -9 does.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SystemClock};
use store::{KeyRef, Options, Prepared, Scope, Stop, Store, Value};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let dir = PathBuf::from(&args[1]);
    let clock = SystemClock;
    let began = clock.now();
    let options = Options { dir, clock: Arc::new(clock), ..Options::default() };
    let store = Store::open(options).expect("opens");
    let opened = clock.now().since(began);
    let keys: u64 = store.key_counts().iter().map(|(keys, _)| keys).sum();
    println!("opened {keys} keys in {:.3} s", opened.as_secs_f64());
    if args[2] != "start" {
        let (count, rounds): (u64, u64) = (args[3].parse().expect("KEYS"), args[4].parse().expect("ROUNDS"));
        // every key once a round, or all of them once and then any
        let is_random = args[2] == "random";
        let any = |n: u64| mixed(n) % count;
        fill(&store, count * rounds, &|n| if is_random && n >= count { any(n) } else { n % count });
        report(&store, &clock, count);
        if args.get(5).is_some_and(|arg| arg == "kill") {
            std::process::abort();
        }
    }
    let began = clock.now();
    store.close();
    println!("closed in {:.3} s", clock.now().since(began).as_secs_f64());
}

/// Writes `writes` times; `key` numbers the key of each.
fn fill(store: &Store, writes: u64, key: &dyn Fn(u64) -> u64) {
    let value = [b'v'; 100];
    let prepared = Prepared::default();
    for n in 0..writes {
        // keys that follow each other are far apart
        let key = format!("{:016x}", key(n).wrapping_mul(GOLDEN));
        let keys = [KeyRef { db: 0, key: key.as_bytes() }];
        loop {
            let put = store.access(Scope::Keys(&keys), &prepared, 116).and_then(|mut access| {
                access.put(0, key.as_bytes(), Value::String(&value), None);
                access.commit()
            });
            match put {
                Ok(_) => break,
                Err(Stop::Busy) => {
                    store.offer();
                    std::thread::park_timeout(Duration::from_micros(200));
                }
                Err(stop) => panic!("{stop:?}"),
            }
        }
        if n % 64 == 0 {
            store.offer();
        }
    }
    store.offer();
    while store.durable_seq().0 < store.newest_seq().0 {
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// A number that nobody guesses from `n`.
fn mixed(n: u64) -> u64 {
    let n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

fn report(store: &Store, clock: &SystemClock, count: u64) {
    let began = clock.now();
    let (mut same, mut last) = (0, 0);
    while same < 6 && clock.now().since(began) < Duration::from_secs(120) {
        let (report, journal) =
            (store.log_report().expect("a log"), store.journal_counters().expect("a log"));
        let disk = journal.disk_bytes + report.checkpoint_bytes;
        same = if disk == last { same + 1 } else { 1 };
        last = disk;
        println!(
            "{:5.1} s: disk {} MB, log {} MB, live {} MB, disk / live records {:.2}, disk / keys and values {:.2}; \
             {} checkpoints, {} MB cleaned",
            clock.now().since(began).as_secs_f64(),
            disk >> 20,
            report.log_bytes >> 20,
            report.live_bytes >> 20,
            disk as f64 / report.live_bytes.max(1) as f64,
            disk as f64 / (count * 116) as f64,
            report.checkpoints,
            report.cleaned_bytes >> 20,
        );
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;
