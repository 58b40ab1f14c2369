//! A store by hand, on a simulated disk or without one, and what a server does around its calls.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, mpsc};

use clock::{SimClock, UnixMs};
use store::{
    Access, Deadline, EngineKind, Halted, Hooks, KeyRef, Options, Prepared, Scope, Staging, Stop, Store,
    StoreError, Value, Workspace,
};
use ticket::Ticket;
use vfs::SimDisk;

pub struct Bench {
    pub store: Arc<Store>,
    pub clock: Arc<SimClock>,
    pub disk: SimDisk,
    pub unlocks: Arc<AtomicU64>,
    pub options: Options,
}

impl Bench {
    pub fn new(engine: EngineKind, hash_bits: u32) -> Self {
        Self::with(engine, hash_bits, |_| {})
    }

    pub fn with(engine: EngineKind, hash_bits: u32, change: impl Fn(&mut Options)) -> Self {
        let (disk, clock) = (SimDisk::new(7), Arc::new(SimClock::new(UnixMs(1_000_000))));
        let unlocks = Arc::new(AtomicU64::new(0));
        let counted = unlocks.clone();
        let mut options = Options {
            engine,
            databases: 3,
            hash_bits,
            background: false,
            readers: 0,
            clock: clock.clone(),
            vfs: Arc::new(disk.clone()),
            dir: PathBuf::from("/data"),
            transaction_bytes_max: 1 << 20,
            journal: journal::Options { segment_size_bytes: 64 << 10, ..journal::Options::small() },
            hooks: Hooks {
                on_unlock: Arc::new(move || {
                    counted.fetch_add(1, SeqCst);
                }),
                ..Hooks::default()
            },
            ..Options::default()
        };
        change(&mut options);
        let store = Store::open(options.clone()).expect("a fresh folder opens");
        Self { store, clock, disk, unlocks, options }
    }

    /// Both engines that keep something, with hashes that are whole and hashes that all collide, and with keys that are locked
    /// together or claimed.
    pub fn each(test: impl Fn(Self)) {
        for engine in [EngineKind::Memory, EngineKind::Log] {
            for (bits, claims_from) in [(8, usize::MAX), (128, usize::MAX), (8, 0), (128, 1)] {
                test(Self::with(engine, bits, |options| options.claims_from = claims_from));
            }
        }
    }

    pub fn is_log(&self) -> bool {
        self.options.engine == EngineKind::Log
    }

    /// Opens what `disk` holds instead.
    pub fn reopen(&mut self, disk: SimDisk) -> Result<(), StoreError> {
        self.disk = disk;
        self.options.vfs = Arc::new(self.disk.clone());
        self.store = Store::open(self.options.clone())?;
        self.settle();
        Ok(())
    }

    pub fn crash(&mut self) {
        let disk = self.disk.crash(3);
        self.reopen(disk).expect("a folder opens after power loss");
    }

    pub fn restart(&mut self) {
        self.store.close();
        let disk = self.disk.process_death();
        self.reopen(disk).expect("a folder opens after a clean stop");
    }

    pub fn settle(&self) {
        while self.store.drive() {}
    }

    fn fetched(&self, prepared: Prepared) -> Prepared {
        let (sender, receiver) = mpsc::channel();
        self.store.fetch(prepared, Box::new(move |prepared| drop(sender.send(prepared))));
        receiver.try_recv().expect("with no readers, fetching happens on this thread")
    }

    /// Runs a command as the executor does.
    pub fn run<T>(
        &self,
        scope: &[(u16, &[u8])],
        mut body: impl FnMut(&mut Access<'_>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.carry_out(scope, |mut access| match body(&mut access) {
            Ok(value) => access.commit().map(|_| value).map_err(Halted::from),
            Err(stop) => Err(Halted { stop, wanted: access.into_wanted() }),
        })
    }

    /// Runs a command of a transaction.
    pub fn staged<T>(
        &self,
        workspace: &mut Workspace,
        scope: &[(u16, &[u8])],
        mut body: impl FnMut(&mut Access<'_>) -> Result<T, Stop>,
    ) -> Result<T, Stop> {
        self.store.touch(workspace, &refs(scope))?;
        self.carry_out(scope, |mut access| {
            access.resume(workspace);
            match body(&mut access) {
                Ok(value) => access.keep(workspace).map(|_| value).map_err(Halted::from),
                Err(stop) => Err(Halted { stop, wanted: access.into_wanted() }),
            }
        })
    }

    fn carry_out<T>(
        &self,
        scope: &[(u16, &[u8])],
        mut body: impl FnMut(Access<'_>) -> Result<T, Halted>,
    ) -> Result<T, Stop> {
        let keys = refs(scope);
        let scope = if keys.is_empty() { Scope::Everything } else { Scope::Keys(&keys) };
        self.ended(|prepared| {
            if !self.store.missing(&keys, prepared) {
                return Err(Stop::Cold.into());
            }
            body(self.store.access(scope, prepared, 200)?)
        })
    }

    /// Tries until nothing is cold and the journal has room.
    fn ended<T>(&self, mut body: impl FnMut(&mut Prepared) -> Result<T, Halted>) -> Result<T, Stop> {
        let mut prepared = Prepared::default();
        for _ in 0..100 {
            match body(&mut prepared) {
                Ok(value) => return Ok(value),
                Err(Halted { stop: Stop::Cold, wanted }) => {
                    prepared.want(wanted);
                    prepared = self.fetched(prepared);
                }
                Err(Halted { stop: Stop::Busy, .. }) => self.settle(),
                Err(Halted { stop, .. }) => return Err(stop),
            }
        }
        panic!("a command did not get through");
    }

    pub fn prepare(&self, branch: &str, workspace: &Workspace) -> Result<Staging, Stop> {
        self.ended(|prepared| self.store.prepare(branch, workspace, prepared))
    }

    pub fn commit_staged(&self, workspace: &Workspace) -> Result<Staging, Stop> {
        self.ended(|prepared| self.store.commit_staged(workspace, prepared))
    }

    pub fn commit(&self, branch: &str) -> Option<Ticket> {
        self.ended(|prepared| self.store.commit_prepared(branch, prepared)).expect("a promise")
    }

    pub fn rollback(&self, branch: &str) -> Option<Ticket> {
        self.ended(|prepared| self.store.rollback_prepared(branch, prepared)).expect("a promise")
    }

    pub fn set(&self, key: &[u8], value: &[u8], expiry: Option<u64>) -> Result<(), Stop> {
        self.run(&[(0, key)], |access| {
            access.put(0, key, Value::String(value), expiry.map(|at| Deadline::at(UnixMs(at))));
            Ok(())
        })
    }

    pub fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.get_in(0, key)
    }

    pub fn get_in(&self, db: u16, key: &[u8]) -> Option<Vec<u8>> {
        self.run(&[(db, key)], |access| Ok(access.get(db, key)?.map(|found| found.value.to_vec())))
            .expect("a read")
    }

    pub fn stage_set(&self, workspace: &mut Workspace, key: &[u8], value: &[u8]) {
        self.stage_put(workspace, key, value, None).expect("room");
    }

    pub fn stage_put(
        &self,
        workspace: &mut Workspace,
        key: &[u8],
        value: &[u8],
        expiry: Option<u64>,
    ) -> Result<(), Stop> {
        self.staged(workspace, &[(0, key)], |access| {
            access.put(0, key, Value::String(value), expiry.map(|at| Deadline::at(UnixMs(at))));
            Ok(())
        })
    }

    pub fn stage_get(&self, workspace: &mut Workspace, key: &[u8]) -> Option<Vec<u8>> {
        self.staged(workspace, &[(0, key)], |access| {
            Ok(access.get(0, key)?.map(|found| found.value.to_vec()))
        })
        .expect("a read")
    }

    pub fn stage_del(&self, workspace: &mut Workspace, key: &[u8]) -> bool {
        self.staged(workspace, &[(0, key)], |access| access.remove(0, key)).expect("room")
    }

    pub fn stage_expire(&self, workspace: &mut Workspace, key: &[u8], expiry: Option<u64>) -> bool {
        self.staged(workspace, &[(0, key)], |access| {
            access.set_expiry(0, key, expiry.map(|at| Deadline::at(UnixMs(at))))
        })
        .expect("room")
    }

    /// A branch that sets `key` to `value`, prepared.
    pub fn prepared_set(&self, branch: &str, key: &[u8], value: &[u8]) {
        let mut workspace = self.store.workspace();
        self.stage_set(&mut workspace, key, value);
        assert!(matches!(self.prepare(branch, &workspace), Ok(Staging::Done { .. })));
    }
}

fn refs<'a>(scope: &'a [(u16, &'a [u8])]) -> Vec<KeyRef<'a>> {
    scope.iter().map(|&(db, key)| KeyRef { db, key }).collect()
}

/// Who holds the key that stopped a command.
pub fn holder<T: std::fmt::Debug>(outcome: Result<T, Stop>) -> (String, u16, Vec<u8>) {
    match outcome {
        Err(Stop::Locked(locked)) => {
            (locked.by.to_string(), locked.db, locked.key.as_deref().unwrap_or(b"(all)").to_vec())
        }
        other => panic!("not locked: {other:?}"),
    }
}
