//! Counters and latencies of a topology, by components and edges.
//!
//! Threads write plain atomics of their own tasks, at least each 100 ms and before they park; a reader adds them up. Latencies are
//! histograms of a component with two significant digits. Executions are sampled: one of 16, each one while they take longer than 10 us.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use clock::{Nanos, UnixMs};
use hdrhistogram::Histogram;
use topology::Plan;
use topology::bolt::InputCounts;
use topology::component::{Backlog, Condition, Figures};
use topology::definition::Kind;
use topology::ids::{ComponentId, StreamId, TaskId};
use topology::plan::Edge;

use crate::measured::{EdgeLatency, Latencies};
use crate::sync::lock;
use crate::times::{STANDINGS, TimeSpent, Times};
use crate::trouble::Trouble;

/// What a topology has done since its start.
#[derive(Clone, Debug)]
pub struct Stats {
    /// In the order of the definition.
    pub components: Vec<ComponentStats>,
    /// Components whose code does not return: for each, the task and for how long by now.
    pub stalled: Vec<(String, TaskId, Duration)>,
    /// Why nothing can go on, for some seconds now: no task of a component here can do anything, or with exactly-once no epoch ends.
    pub blocked: Option<String>,
}

/// What a component has done, all its tasks together.
#[derive(Clone, Debug)]
pub struct ComponentStats {
    /// Its id.
    pub id: String,
    /// Whether it is a spout.
    pub kind: Kind,
    /// How many of its tasks are in this worker.
    pub tasks: u32,
    /// Tuples that were executed, by a bolt.
    pub executed: u64,
    /// Tuples that were acknowledged: by a bolt, or of a spout's, all that came of them.
    pub acked: u64,
    /// Tuples that failed at a bolt; tuples of a spout's that will not be tried again.
    pub failed: u64,
    /// Tuples of a spout's that are not finished; tuples that a bolt has kept.
    pub pending: u64,
    /// Bytes in its queues.
    pub queued_bytes: u64,
    /// Calls that failed or panicked, those of tuples included.
    pub faults: u64,
    /// How often a component was made anew.
    pub restarts: u64,
    /// What went wrong last, and how long ago.
    pub last_error: Option<(Duration, String)>,
    /// What it has reported of itself.
    pub figures: Figures,
    /// What it has emitted.
    pub streams: Vec<StreamStats>,
    /// Time of an execution.
    pub execute: Latency,
    /// Time from the execution of a tuple to its acknowledgement, for bolts.
    pub process: Latency,
    /// Time that tuples wait in its queues.
    pub queue: Latency,
    /// Time from the emission of a tuple to its acknowledgement, for spouts.
    pub complete: Latency,
    /// What the time of its tasks went to, added up.
    pub time: TimeSpent,
    /// For spouts that can tell: the age of the oldest that its source has and that was not emitted; zero if there is nothing.
    pub lag: Option<Duration>,
}

/// A stream of a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamStats {
    /// Its id.
    pub id: String,
    /// Tuples that were emitted, further attempts included.
    pub emitted: u64,
    /// Who reads it.
    pub readers: Vec<EdgeStats>,
}

/// An edge: a stream and one of its readers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EdgeStats {
    /// The reader.
    pub to: String,
    /// Tuples that went to its tasks.
    pub transferred: u64,
    /// Bytes that wait there in queues from this component, of all its streams.
    pub queued_bytes: u64,
    /// Tuples of it that the reader executed.
    pub executed: u64,
    /// Tuples of it that the reader acknowledged.
    pub acked: u64,
    /// Tuples of it that failed there.
    pub failed: u64,
    /// Time of an execution.
    pub execute: EdgeLatency,
    /// Time from the execution of a tuple to its acknowledgement by the reader.
    pub process: EdgeLatency,
    /// Time that tuples wait in the reader's queues.
    pub queue: EdgeLatency,
}

/// A latency.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many were measured.
    pub samples: u64,
    /// On average.
    pub mean: Duration,
    /// Half of them took no longer.
    pub p50: Duration,
    /// One in a hundred took longer.
    pub p99: Duration,
    /// The longest.
    pub max: Duration,
    /// How many took at most so long as each of [`BOUNDS`] says, and more than the one before; then those beyond all.
    pub buckets: [u64; BOUNDS.len() + 1],
}

impl Stats {
    /// The component of this id.
    #[must_use]
    pub fn component(&self, id: &str) -> Option<&ComponentStats> {
        self.components.iter().find(|component| component.id == id)
    }
}

impl ComponentStats {
    /// Tuples that were emitted on all streams.
    #[must_use]
    pub fn emitted(&self) -> u64 {
        self.streams.iter().map(|stream| stream.emitted).sum()
    }
}

/// What threads write.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) tasks: Vec<TaskBoard>,
    /// What tasks had done here before they moved elsewhere.
    former: Vec<TaskBoard>,
    pub(crate) components: Vec<Latencies>,
    /// Streams that each component reads, in order.
    inputs: Vec<Vec<StreamId>>,
    pub(crate) threads: Vec<ThreadBoard>,
    /// Why no epoch ends, with exactly-once.
    pub(crate) epochs: Mutex<Trouble>,
    /// The times of each component that were shown: those that are shown later are no less.
    shown: Vec<[AtomicU64; STANDINGS]>,
}

/// Counters of a task.
#[derive(Debug, Default)]
pub(crate) struct TaskBoard {
    /// Of a spout.
    pub(crate) acked: AtomicU64,
    pub(crate) failed: AtomicU64,
    /// Of a bolt: for each stream that it reads.
    inputs: Vec<InputBoard>,
    pub(crate) pending: AtomicU64,
    /// Bytes that wait from each component upstream, in the order of components.
    queued: Vec<(ComponentId, AtomicU64)>,
    pub(crate) faults: AtomicU64,
    pub(crate) restarts: AtomicU64,
    /// For each stream of the component what was emitted, then for each of its readers what was transferred.
    pub(crate) emitted: Vec<AtomicU64>,
    pub(crate) last_error: Mutex<Option<(Nanos, String)>>,
    /// Why its component can do nothing.
    trouble: Mutex<Trouble>,
    /// What its component reports of itself.
    figures: Mutex<Figures>,
    times: Mutex<Times>,
    /// When the oldest came that its source has and that was not emitted, in Unix milliseconds; [`UNKNOWN`], [`NOTHING`].
    backlog: AtomicU64,
}

/// Counters of the tuples that a task was given on one stream.
#[derive(Debug, Default)]
struct InputBoard {
    executed: AtomicU64,
    acked: AtomicU64,
    failed: AtomicU64,
}

/// What a thread is at.
#[derive(Debug)]
pub(crate) struct ThreadBoard {
    /// The task whose turn it is; [`NO_TASK`] between two turns.
    task: AtomicU32,
    /// When that turn has begun.
    since: AtomicU64,
}

impl Board {
    pub(crate) fn new(plan: &Plan, threads: usize) -> Self {
        let inputs: Vec<_> = plan.components().map(|(id, _)| plan.streams_to(id)).collect();
        let task = |task: u32| {
            let component = plan.component_of(TaskId(task));
            let counters = plan.component(component).streams.len() + plan.edges_from(component).count();
            let upstream: BTreeSet<ComponentId> = plan.edges_to(component).map(|edge| edge.from).collect();
            TaskBoard {
                emitted: (0..counters).map(|_| AtomicU64::new(0)).collect(),
                queued: upstream.into_iter().map(|from| (from, AtomicU64::new(0))).collect(),
                inputs: inputs[usize::from(component.0)].iter().map(|_| InputBoard::default()).collect(),
                ..Default::default()
            }
        };
        Self {
            tasks: (0..plan.tasks_count()).map(task).collect(),
            former: (0..plan.tasks_count()).map(task).collect(),
            components: inputs.iter().map(|streams| Latencies::new(streams)).collect(),
            threads: (0..threads).map(|_| ThreadBoard::new()).collect(),
            epochs: Mutex::default(),
            shown: plan.components().map(|_| Default::default()).collect(),
            inputs,
        }
    }

    /// A task has moved elsewhere: what it has done counts on, what it had is there now. Only its thread calls this.
    pub(crate) fn retire(&self, task: TaskId, times: &Times) {
        let (current, former) = (&self.tasks[task.0 as usize], &self.former[task.0 as usize]);
        let counters = current.done().zip(former.done());
        counters.for_each(|(current, former)| add(former, current.swap(0, Ordering::Relaxed)));
        write(&current.pending, 0);
        lock(&current.trouble).clear();
        write(&current.backlog, UNKNOWN);
        current.queued.iter().for_each(|(_, bytes)| write(bytes, 0));
        lock(&former.times).add(times);
        *lock(&current.times) = Times::default();
    }

    /// What was done, by the tasks that are here and those that were; `is_here`: which are.
    pub(crate) fn snapshot(
        &self,
        plan: &Plan,
        (now, unix): (Nanos, UnixMs),
        is_here: &dyn Fn(TaskId) -> bool,
    ) -> Stats {
        let turns: Vec<(TaskId, Duration)> =
            self.threads.iter().filter_map(|thread| thread.current(now)).collect();
        let components = plan.components().map(|(id, _)| ComponentStats {
            tasks: plan.tasks(id).filter(|task| is_here(TaskId(*task))).count() as u32,
            time: self.time(plan, id, now, &turns),
            lag: self.lag(plan, id, unix),
            ..self.component(plan, id, now)
        });
        let components = components.collect();
        let stalled = turns.iter().copied().filter(|(_, time)| *time >= STALL).map(|(task, time)| {
            let id = plan.component(plan.component_of(task)).id.clone();
            (id, task, time)
        });
        Stats { components, stalled: stalled.collect(), blocked: self.blocked(plan, now, is_here) }
    }

    /// Why nothing goes on.
    fn blocked(&self, plan: &Plan, now: Nanos, is_here: &dyn Fn(TaskId) -> bool) -> Option<String> {
        if let Some(why) = lock(&self.epochs).lasting(now) {
            return Some(why.to_owned());
        }
        plan.components().find_map(|(id, component)| {
            let mut why = None;
            for task in plan.tasks(id).filter(|task| is_here(TaskId(*task))) {
                why = Some(lock(&self.tasks[task as usize].trouble).lasting(now)?.to_owned());
            }
            why.map(|why| format!("component `{}`: {why}", component.id))
        })
    }

    pub(crate) fn set_times(&self, task: TaskId, times: Times) {
        *lock(&self.tasks[task.0 as usize].times) = times;
    }

    fn component(&self, plan: &Plan, component: ComponentId, now: Nanos) -> ComponentStats {
        let tasks = || self.boards(plan, component);
        let sum = |of: &dyn Fn(&TaskBoard) -> &AtomicU64| tasks().map(|task| read(of(task))).sum::<u64>();
        let inputs = |of: fn(&InputBoard) -> &AtomicU64| {
            tasks().flat_map(|task| &task.inputs).map(|input| read(of(input))).sum::<u64>()
        };
        let definition = plan.component(component);
        let latencies = &self.components[usize::from(component.0)];
        ComponentStats {
            id: definition.id.clone(),
            kind: definition.kind,
            tasks: 0,
            executed: inputs(|input| &input.executed),
            acked: sum(&|task| &task.acked) + inputs(|input| &input.acked),
            failed: sum(&|task| &task.failed) + inputs(|input| &input.failed),
            pending: sum(&|task| &task.pending),
            queued_bytes: tasks().flat_map(|task| &task.queued).map(|(_, bytes)| read(bytes)).sum(),
            faults: sum(&|task| &task.faults),
            restarts: sum(&|task| &task.restarts),
            last_error: tasks()
                .filter_map(|task| lock(&task.last_error).clone())
                .max_by_key(|(at, _)| *at)
                .map(|(at, error)| (now.since(at), error)),
            figures: tasks().fold(Figures::default(), |mut all, task| {
                all.add(&lock(&task.figures));
                all
            }),
            streams: self.streams(plan, component),
            execute: latencies.execute.latency(),
            process: latencies.process.latency(),
            queue: latencies.queue.latency(),
            complete: latencies.complete.latency(),
            time: TimeSpent::default(),
            lag: None,
        }
    }

    fn time(
        &self,
        plan: &Plan,
        component: ComponentId,
        now: Nanos,
        turns: &[(TaskId, Duration)],
    ) -> TimeSpent {
        let mut spent = [0; STANDINGS];
        let mut add = |times: [u64; STANDINGS]| {
            spent.iter_mut().zip(times).for_each(|(all, one)| *all += one);
        };
        for task in range(plan, component) {
            let turn = turns.iter().find(|(it, _)| it.0 as usize == task);
            let turn = turn.map(|(_, time)| Nanos(now.0.saturating_sub(time.as_nanos() as u64)));
            add(lock(&self.tasks[task].times).until(now, turn));
            add(lock(&self.former[task].times).until(now, None));
        }
        // Until a thread publishes them, times are taken to go on as they did: what was shown may have been too much.
        let shown = &self.shown[usize::from(component.0)];
        let most = |at: usize| shown[at].fetch_max(spent[at], Ordering::Relaxed).max(spent[at]);
        TimeSpent::of(std::array::from_fn(most))
    }

    /// The oldest backlog of the tasks that can tell.
    fn lag(&self, plan: &Plan, component: ComponentId, unix: UnixMs) -> Option<Duration> {
        let backlogs = self.tasks[range(plan, component)].iter().map(|task| read(&task.backlog));
        let known = backlogs.filter(|backlog| *backlog != UNKNOWN);
        known.map(|since| Duration::from_millis(unix.0.saturating_sub(since))).max()
    }

    fn boards(&self, plan: &Plan, component: ComponentId) -> impl Iterator<Item = &TaskBoard> {
        let range = range(plan, component);
        self.tasks[range.clone()].iter().chain(&self.former[range])
    }

    fn streams(&self, plan: &Plan, component: ComponentId) -> Vec<StreamStats> {
        let mut at = 0;
        let mut next = || {
            at += 1;
            self.boards(plan, component).map(|task| read(&task.emitted[at - 1])).sum()
        };
        let streams = plan.streams(component).map(|(number, stream)| {
            let emitted = next();
            let edges = plan.readers(number);
            let readers = edges.map(|edge| EdgeStats { transferred: next(), ..self.edge(plan, edge) });
            StreamStats { id: stream.id.clone(), emitted, readers: readers.collect() }
        });
        streams.collect()
    }

    /// What the reader of an edge has done with its tuples.
    fn edge(&self, plan: &Plan, edge: &Edge) -> EdgeStats {
        let tasks = self.tasks[range(plan, edge.to)].iter();
        let queued = tasks.filter_map(|task| task.queued_from(edge.from)).map(read);
        let streams = &self.inputs[usize::from(edge.to.0)];
        let place = streams.binary_search(&edge.stream).expect("an edge is an input");
        let sum = |of: fn(&InputBoard) -> &AtomicU64| {
            self.boards(plan, edge.to).map(|task| read(of(&task.inputs[place]))).sum()
        };
        let latencies = &self.components[usize::from(edge.to.0)];
        EdgeStats {
            to: plan.component(edge.to).id.clone(),
            transferred: 0,
            queued_bytes: queued.sum(),
            executed: sum(|input| &input.executed),
            acked: sum(|input| &input.acked),
            failed: sum(|input| &input.failed),
            execute: latencies.execute.of_stream(place),
            process: latencies.process.of_stream(place),
            queue: latencies.queue.of_stream(place),
        }
    }
}

impl TaskBoard {
    /// Something went wrong.
    pub(crate) fn on_fault(&self, now: Nanos, error: &str) {
        add(&self.faults, 1);
        *lock(&self.last_error) = Some((now, error.to_owned()));
    }

    /// Writes what the component says of itself.
    pub(crate) fn set_condition(&self, now: Nanos, condition: &Condition<'_>) {
        match condition.trouble {
            None => lock(&self.trouble).clear(),
            Some(why) => lock(&self.trouble).begin(now, why),
        }
        if let Some(figures) = condition.figures {
            lock(&self.figures).clone_from(figures);
        }
    }

    /// Writes that there is no component: the last error says why.
    pub(crate) fn set_absent(&self, now: Nanos) {
        let error = lock(&self.last_error).clone();
        let (_, why) = error.unwrap_or_else(|| (now, "it is not made yet".to_owned()));
        lock(&self.trouble).begin(now, &why);
    }

    /// What it has done, without what it has now.
    fn done(&self) -> impl Iterator<Item = &AtomicU64> {
        let counters = [&self.acked, &self.failed, &self.faults, &self.restarts];
        let inputs = self.inputs.iter().flat_map(|input| [&input.executed, &input.acked, &input.failed]);
        counters.into_iter().chain(inputs).chain(&self.emitted)
    }

    /// Writes what a bolt has done, by the streams that it reads.
    pub(crate) fn set_inputs(&self, inputs: &[InputCounts]) {
        for (board, counts) in self.inputs.iter().zip(inputs) {
            write(&board.executed, counts.executed);
            write(&board.acked, counts.acked);
            write(&board.failed, counts.failed);
        }
    }

    /// Writes what waits in its queues, by who has sent it.
    pub(crate) fn set_queued(&self, queued: impl Iterator<Item = (ComponentId, u64)>) {
        self.queued.iter().for_each(|(_, counter)| write(counter, 0));
        for (component, bytes) in queued {
            self.queued_from(component).into_iter().for_each(|counter| add(counter, bytes));
        }
    }

    fn queued_from(&self, component: ComponentId) -> Option<&AtomicU64> {
        let place = self.queued.binary_search_by_key(&component, |(from, _)| *from).ok()?;
        Some(&self.queued[place].1)
    }

    /// Writes what its source has.
    pub(crate) fn set_backlog(&self, backlog: Backlog) {
        let since = match backlog {
            Backlog::Unknown => UNKNOWN,
            Backlog::Nothing => NOTHING,
            Backlog::Since(UnixMs(time)) => time.clamp(UNKNOWN + 1, NOTHING - 1),
        };
        write(&self.backlog, since);
    }

    /// Writes what the task has emitted so far.
    pub(crate) fn set_emitted(&self, emitted: impl Iterator<Item = topology::Emitted>) {
        let mut counters = self.emitted.iter();
        let mut set = |count| counters.next().into_iter().for_each(|counter| write(counter, count));
        for stream in emitted {
            set(stream.tuples);
            stream.transferred.iter().for_each(|(_, count)| set(*count));
        }
    }
}

impl ThreadBoard {
    fn new() -> Self {
        Self { task: AtomicU32::new(NO_TASK), since: AtomicU64::new(0) }
    }

    /// A turn begins.
    pub(crate) fn begin(&self, task: TaskId, now: Nanos) {
        write(&self.since, now.0);
        self.task.store(task.0, Ordering::Release);
    }

    /// It is over.
    pub(crate) fn end(&self) {
        self.task.store(NO_TASK, Ordering::Release);
    }

    /// The task whose turn it is, and for how long.
    pub(crate) fn current(&self, now: Nanos) -> Option<(TaskId, Duration)> {
        let task = self.task.load(Ordering::Acquire);
        (task != NO_TASK).then(|| (TaskId(task), now.since(Nanos(read(&self.since)))))
    }
}

impl Latency {
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        if histogram.is_empty() {
            return Self::default();
        }
        Self {
            samples: histogram.len(),
            mean: Duration::from_nanos(histogram.mean() as u64),
            p50: Duration::from_nanos(histogram.value_at_quantile(0.5)),
            p99: Duration::from_nanos(histogram.value_at_quantile(0.99)),
            max: Duration::from_nanos(histogram.max()),
            buckets: buckets(histogram),
        }
    }
}

fn buckets(histogram: &Histogram<u64>) -> [u64; BOUNDS.len() + 1] {
    let mut buckets = [0; BOUNDS.len() + 1];
    for value in histogram.iter_recorded() {
        let nanos = value.value_iterated_to();
        let at = BOUNDS.partition_point(|bound| bound.as_nanos() < nanos.into());
        buckets[at] += value.count_at_value();
    }
    buckets
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    // One thread writes a counter, so no read-modify-write is needed.
    write(counter, read(counter) + count);
}

pub(crate) fn write(counter: &AtomicU64, count: u64) {
    counter.store(count, Ordering::Relaxed);
}

fn read(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

fn range(plan: &Plan, component: ComponentId) -> std::ops::Range<usize> {
    let tasks = plan.tasks(component);
    tasks.start as usize..tasks.end as usize
}

/// Bounds of the buckets of a [`Latency`].
pub const BOUNDS: [Duration; 25] = bounds();

const fn bounds() -> [Duration; 25] {
    let (mut bounds, mut at, mut decade) = ([Duration::ZERO; 25], 0, 1);
    while at < 25 {
        bounds[at] = Duration::from_micros(decade * [1, 2, 5][at % 3]);
        at += 1;
        if at.is_multiple_of(3) {
            decade *= 10;
        }
    }
    bounds
}

/// What a source has is not known.
const UNKNOWN: u64 = 0;
/// It has nothing: later than all times, so its age is zero.
const NOTHING: u64 = u64::MAX;
/// No turn.
const NO_TASK: u32 = u32::MAX;
/// A turn that takes longer is shown.
const STALL: Duration = Duration::from_secs(1);
/// Latencies beyond count as this one: an hour.
pub(crate) const LONGEST_NS: u64 = 3_600_000_000_000;
