//! How often a commit that is alone goes from one thread to another. Other crates' tests use this file by its path.
//!
//! A hand-off is counted where it happens: whoever does something for the commit notes the thread that does it, and each change is one.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::thread::{JoinHandle, ThreadId};
use std::time::Duration;

use clock::SystemClock;
use txn::coordinator::{Coordinator, Options, Started};
use txn::decision_log::{Cycle, DecisionLog, LogCounters, Refused, Waiter};
use txn::dummy::Dummy;
use txn::id::{BranchId, NodeName, TxId};
use txn::protocol::Outcome;
use txn::resource::{Answer, Reply, Resource, Vote};
use txn::shared_lane::SharedLane;

const PATIENCE: Duration = Duration::from_secs(30);

/// Who did something, in order.
#[derive(Debug, Default)]
struct Trace(Mutex<Vec<(ThreadId, &'static str)>>);

impl Trace {
    fn note(&self, what: &'static str) {
        self.0.lock().unwrap().push((std::thread::current().id(), what));
    }

    /// How often the thread changed since the last call.
    fn take_hand_offs(&self) -> (usize, String) {
        let all = std::mem::take(&mut *self.0.lock().unwrap());
        (all.windows(2).filter(|two| two[0].0 != two[1].0).count(), format!("{all:?}"))
    }
}

/// What is done when a write is durable.
type Done = Box<dyn FnOnce() + Send>;

/// A disk with a thread that makes durable what was offered; a slow one does so when the test lets it.
struct Disk {
    shared: Arc<DiskShared>,
    thread: Option<JoinHandle<()>>,
    trace: Arc<Trace>,
    is_slow: bool,
}

#[derive(Default)]
struct DiskShared {
    state: Mutex<DiskState>,
    changed: Condvar,
}

#[derive(Default)]
struct DiskState {
    waiting: Vec<Done>,
    is_offered: bool,
    is_over: bool,
    offers: u32,
    /// So many writes may become durable; a quick disk has no need of them.
    allowed: u32,
}

impl Disk {
    fn new(trace: &Arc<Trace>, is_slow: bool) -> Arc<Self> {
        let shared = Arc::<DiskShared>::default();
        let (of_thread, its) = (Arc::clone(&shared), Arc::clone(trace));
        #[allow(clippy::disallowed_methods, reason = "a disk of a test, which joins it")]
        let thread = std::thread::spawn(move || of_thread.run(&its, is_slow));
        Arc::new(Self { shared, thread: Some(thread), trace: Arc::clone(trace), is_slow })
    }

    fn write(&self, done: Done) {
        self.shared.state().waiting.push(done);
    }

    fn offer(&self) {
        let mut state = self.shared.state();
        state.offers += 1;
        state.is_offered = true;
        self.shared.changed.notify_all();
    }

    /// Writes on this thread, unless that takes long.
    fn commit_here(&self) -> bool {
        if self.is_slow {
            return false;
        }
        let waiting = std::mem::take(&mut self.shared.state().waiting);
        self.trace.note("durable");
        waiting.into_iter().for_each(|done| done());
        true
    }

    /// Lets one write of a slow disk become durable.
    fn allow(&self) {
        self.shared.state().allowed += 1;
        self.shared.changed.notify_all();
    }
}

impl DiskShared {
    fn state(&self) -> MutexGuard<'_, DiskState> {
        self.state.lock().unwrap()
    }

    fn run(&self, trace: &Trace, is_slow: bool) {
        let mut state = self.state();
        loop {
            let may = !is_slow || state.allowed > 0;
            if state.is_offered && may && !state.waiting.is_empty() {
                state.allowed = state.allowed.saturating_sub(1);
                state.is_offered = false;
                let waiting = std::mem::take(&mut state.waiting);
                drop(state);
                trace.note("durable");
                waiting.into_iter().for_each(|done| done());
                state = self.state();
                continue;
            }
            if state.is_over {
                return;
            }
            state = self.changed.wait(state).unwrap();
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disk").field("is_slow", &self.is_slow).finish_non_exhaustive()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shared.state().is_over = true;
        self.shared.changed.notify_all();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Keys on a disk, as the server has them.
#[derive(Debug)]
struct Keys {
    disk: Arc<Disk>,
    dummy: Dummy,
}

impl Keys {
    fn ask(&self, reply: Reply, answer: Answer) {
        self.disk.trace.note("asked");
        let is_helped = reply.is_helped();
        self.disk.write(Box::new(move || reply.answer(answer)));
        if !is_helped {
            self.disk.offer();
        }
    }
}

impl Resource for Keys {
    fn name(&self) -> &str {
        self.dummy.name()
    }

    fn prepare(&self, _: BranchId, reply: Reply) {
        self.ask(reply, Answer::Voted(Vote::Yes));
    }

    fn commit(&self, _: BranchId, reply: Reply) {
        self.ask(reply, Answer::Done);
    }

    fn commit_one_phase(&self, _: BranchId, reply: Reply) {
        self.ask(reply, Answer::Done);
    }

    fn rollback(&self, _: BranchId, reply: Reply) {
        self.ask(reply, Answer::Done);
    }

    fn offer(&self) {
        self.disk.offer();
    }

    fn help(&self) {
        if !self.disk.commit_here() {
            self.disk.offer();
        }
    }

    fn recover(&self, reply: Reply) {
        reply.answer(Answer::Found(Vec::new()));
    }
}

/// A decision log on a disk.
#[derive(Debug)]
struct Log(Arc<Disk>);

impl DecisionLog for Log {
    fn write(&self, tx: TxId, _: &[u8], waiter: &Arc<dyn Waiter>) -> Result<Cycle, Refused> {
        self.0.trace.note("decides");
        let waiter = Arc::clone(waiter);
        self.0.write(Box::new(move || waiter.on_logged(tx, Ok(()))));
        Ok(None)
    }

    fn remove(&self, _: TxId) {}

    fn offer(&self) {
        self.0.offer();
    }

    fn help(&self, is_alone: bool) -> bool {
        is_alone && self.0.commit_here()
    }

    fn is_sound(&self) -> bool {
        true
    }

    fn counters(&self) -> LogCounters {
        LogCounters::default()
    }

    fn close(&self) {}
}

struct World {
    // In the order in which they end.
    lane: SharedLane,
    _coordinator: Coordinator,
    disks: [Arc<Disk>; 2],
    trace: Arc<Trace>,
    told: mpsc::Receiver<Outcome>,
}

impl World {
    fn new(is_slow: bool) -> Self {
        let trace = Arc::<Trace>::default();
        let disks = [0, 1].map(|_| Disk::new(&trace, is_slow));
        let node = NodeName::new("n1").unwrap();
        let keys = Arc::new(Keys { disk: Arc::clone(&disks[0]), dummy: Dummy::new("keys") });
        let resources: Vec<Arc<dyn Resource>> = vec![keys, Arc::new(Dummy::new("database"))];
        let started = Started { epoch: 1, born: 1, records: Vec::new() };
        let log = Arc::new(Log(Arc::clone(&disks[1])));
        let coordinator =
            Coordinator::start(Arc::new(SystemClock), log, &started, resources, Options::new(node)).unwrap();
        let (tell, told) = mpsc::channel();
        let its = Arc::clone(&trace);
        let tell = move |_, outcome| {
            its.note("told");
            let _ = tell.send(outcome);
        };
        let lane = SharedLane::open(crate::host(), &coordinator, tell).unwrap();
        Self { lane, _coordinator: coordinator, disks, trace, told }
    }

    fn begin_commit(&self) {
        let tx = self.lane.begin(PATIENCE).unwrap();
        for place in 0..2 {
            self.lane.enlist(tx, place).unwrap();
        }
        self.trace.take_hand_offs();
        self.trace.note("commit");
        self.lane.commit(tx).unwrap();
    }

    fn hear(&self) {
        assert_eq!(self.told.recv_timeout(PATIENCE), Ok(Outcome::Committed));
        self.trace.note("heard");
    }
}

/// It went from one thread to another seven times: to each journal's thread and back, three times, and to who waits for the outcome.
#[test]
fn lone_commit_over_keys_and_a_database_has_at_most_three_hand_offs() {
    let world = World::new(false);
    // The worker's first turn: before it nobody leaves it anything.
    world.begin_commit();
    world.hear();
    for _ in 0..20 {
        world.begin_commit();
        world.hear();
        let (count, trace) = world.trace.take_hand_offs();
        assert!(count <= 3, "{count} hand-offs: {trace}");
    }
}

/// A worker that had tried to write tried again instead of telling the journal's thread: it span, or slept with nobody at work.
#[test]
fn lone_commit_on_a_slow_disk_is_left_to_the_disks_threads_once_for_each_write() {
    let world = World::new(true);
    for _ in 0..20 {
        let before = world.disks.each_ref().map(|disk| disk.shared.state().offers);
        world.begin_commit();
        // Prepare, decision, commit: each is let through when the disk was asked for it.
        for disk in [0, 1, 0] {
            world.disks[disk].allow();
        }
        world.hear();
        let after = world.disks.each_ref().map(|disk| disk.shared.state().offers);
        let offers = [after[0] - before[0], after[1] - before[1]];
        assert_eq!(offers, [2, 1], "it was offered again and again, or by two");
    }
}

/// Those that come while a lone one is under way are begun by who asks for them.
#[test]
fn commits_of_many_threads_beside_lone_ones_all_end() {
    let world = World::new(false);
    let count = 8 * 200;
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| {
                for _ in 0..200 {
                    let tx = world.lane.begin(PATIENCE).unwrap();
                    for place in 0..2 {
                        world.lane.enlist(tx, place).unwrap();
                    }
                    world.lane.commit(tx).unwrap();
                }
            });
        }
    });
    (0..count).for_each(|_| world.hear());
}
