//! Long commands of several threads over the same keys, beside housekeeping and evicting: nobody sees half of one, and a
//! start finds all or nothing of each.
#![allow(missing_docs, clippy::unwrap_used, reason = "tests")]

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;

use clock::{SimClock, UnixMs};
use store::{Access, EngineKind, KeyRef, Options, Prepared, Scope, Stop, Store, Value};
use vfs::SimDisk;

const KEYS: u32 = 300;
const ROUNDS: u64 = 60;

fn options(disk: &SimDisk) -> Options {
    Options {
        engine: EngineKind::Log,
        databases: 2,
        hash_bits: 14,
        clock: Arc::new(SimClock::new(UnixMs(1_000_000))),
        vfs: Arc::new(disk.clone()),
        dir: PathBuf::from("/data"),
        transaction_bytes_max: 1 << 20,
        memory_limit_bytes: 400 << 10,
        journal: journal::Options { segment_size_bytes: 256 << 10, ..journal::Options::small() },
        ..Options::default()
    }
}

/// Runs `body` until nothing stops it.
fn run<T>(
    store: &Store,
    scope: Scope<'_>,
    keys: &[KeyRef<'_>],
    mut body: impl FnMut(&mut Access<'_>) -> Result<T, Stop>,
) -> T {
    let mut prepared = Prepared::default();
    loop {
        let (stop, wanted) = match store.access(scope, &prepared, 64 * keys.len() as u64) {
            Err(stop) => (stop, None),
            Ok(mut access) => match body(&mut access).and_then(|value| access.commit().map(|_| value)) {
                Ok(value) => return value,
                Err(stop) => (stop, Some(access.into_wanted())),
            },
        };
        match stop {
            Stop::Cold => {
                prepared.want(wanted.expect("of an access"));
                store.missing(keys, &mut prepared);
                let (sender, receiver) = mpsc::channel();
                store.fetch(prepared, Box::new(move |done| sender.send(done).unwrap()));
                prepared = receiver.recv().unwrap();
            }
            Stop::Busy => {
                store.offer();
                std::thread::yield_now();
            }
            stop => panic!("{stop:?}"),
        }
    }
}

fn set_all(store: &Store, scope: Scope<'_>, keys: &[KeyRef<'_>], round: u64) {
    run(store, scope, keys, |access| {
        for key in keys {
            access.put(0, key.key, Value::String(&round.to_le_bytes().repeat(8)), None);
        }
        Ok(())
    });
}

/// The round that all keys are of.
fn read_all(store: &Store, scope: Scope<'_>, keys: &[KeyRef<'_>]) -> Vec<u64> {
    run(store, scope, keys, |access| {
        let mut rounds = Vec::new();
        for key in keys {
            access.turn_to(&[*key]);
            let value = access.get(0, key.key)?.map_or(&[0; 8][..], |found| &found.value[..8]);
            rounds.push(u64::from_le_bytes(value.try_into().unwrap()));
        }
        rounds.dedup();
        Ok(rounds)
    })
}

#[test]
fn readers_beside_long_commands_see_all_of_each_or_nothing_and_so_does_a_start() {
    let disk = SimDisk::new(5);
    let store = Store::open(options(&disk)).expect("a fresh folder opens");
    let names: Vec<String> = (0..KEYS).map(|n| format!("key{n:05}")).collect();
    let keys: Vec<KeyRef<'_>> = names.iter().map(|name| KeyRef { db: 0, key: name.as_bytes() }).collect();
    let (round, is_over, reads) = (AtomicU64::new(0), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|threads| {
        let writers = [true, false].map(|claims| {
            let (store, keys, round) = (&store, &keys, &round);
            threads.spawn(move || {
                for _ in 0..ROUNDS {
                    let scope =
                        if claims { Scope::Claimed { keys, writes: true } } else { Scope::Keys(keys) };
                    set_all(store, scope, keys, round.fetch_add(1, Ordering::Relaxed) + 1);
                }
            })
        });
        for claims in [true, false] {
            let (store, keys, is_over, reads) = (&store, &keys, &is_over, &reads);
            threads.spawn(move || {
                while !is_over.load(Ordering::Relaxed) {
                    let scope =
                        if claims { Scope::Claimed { keys, writes: false } } else { Scope::Keys(keys) };
                    let rounds = read_all(store, scope, keys);
                    assert_eq!(rounds.len(), 1, "half of a command was seen: rounds {rounds:?}");
                    reads.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        threads.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                store.checkpoint().expect("the disk is well");
            }
        });
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        is_over.store(true, Ordering::Relaxed);
    });
    assert!(reads.load(Ordering::Relaxed) > 2, "somebody has looked");
    assert_eq!(store.keys_of(0), u64::from(KEYS));
    let last = read_all(&store, Scope::Keys(&keys), &keys);
    drop(store);
    let again = Store::open(options(&disk.process_death())).expect("opens after the process has died");
    assert_eq!(again.keys_of(0), u64::from(KEYS));
    let found = read_all(&again, Scope::Keys(&keys), &keys);
    assert!(found.len() == 1 && found <= last, "a prefix of the log: {found:?}, was {last:?}");
    again.close();
}
