//! A store on a simulated disk, and commands that are run again with what they miss read for them.
#![allow(unreachable_pub, reason = "programs use it as a module of their own")]

use std::path::PathBuf;
use std::sync::{Arc, mpsc};

use clock::{SimClock, UnixMs};
use store::{Access, EngineKind, KeyRef, Options, Prepared, Scope, Stop, Store};
use vfs::SimDisk;

pub const KEY: &[u8] = b"key";

pub fn open(disk: &SimDisk, leaf_bytes: u64) -> Arc<Store> {
    let options = Options {
        engine: EngineKind::Log,
        background: false,
        readers: 0,
        clock: Arc::new(SimClock::new(UnixMs(1_000_000))),
        vfs: Arc::new(disk.clone()),
        dir: PathBuf::from("/data"),
        leaf_bytes,
        ..Options::default()
    };
    let store = Store::open(options).expect("the folder opens");
    while store.drive() {}
    store
}

/// Runs `command` on [`KEY`] until all that it needs is there, and commits it; returns how often something was read, too. `is_beside`: as a command that takes
/// long.
pub fn run<R>(
    store: &Arc<Store>,
    is_beside: bool,
    mut command: impl FnMut(&mut Access<'_>) -> Result<R, Stop>,
) -> (R, usize) {
    let keys = [KeyRef { db: 0, key: KEY }];
    let (mut prepared, mut rounds) = (Prepared::default(), 0);
    while rounds < 1_000 {
        if !store.missing(&keys, &mut prepared) {
            rounds += 1;
            let (to, from) = mpsc::channel();
            store.fetch(prepared, Box::new(move |prepared| to.send(prepared).expect("somebody waits")));
            prepared = from.recv().expect("reads end");
            continue;
        }
        let scope = if is_beside { Scope::Claimed { keys: &keys, writes: true } } else { Scope::Keys(&keys) };
        let mut access = store.access(scope, &prepared, 1_000_000).expect("room");
        if is_beside {
            access.look_briefly();
        }
        match command(&mut access).and_then(|done| access.commit().map(|_| done)) {
            Ok(done) => {
                drop(access);
                while store.drive() {}
                return (done, rounds);
            }
            Err(Stop::Cold) => prepared.want(access.into_wanted()),
            Err(stop) => panic!("{stop:?}"),
        }
    }
    panic!("it never has what it needs");
}
