//! Counters and latencies of a topology, by components and edges.
//!
//! Threads write plain atomics of their own tasks, at least each 100 ms and before they park; a reader adds them up. Executions are sampled: one of
//! 16, each one while they take longer than 10 us.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use clock::{Nanos, UnixMs};
use topology::Plan;
use topology::bolt::InputCounts;
use topology::component::{Backlog, Condition, Figure, Figures};
use topology::definition::Kind;
use topology::ids::{ComponentId, StreamId, TaskId};
use topology::plan::Edge;
use topology::statistics::{ComponentStatus, EdgeStatus, FigureStatus, Latencies, Shares, TimeSpent};

use crate::measured::Measurements;
use crate::sync::lock;
use crate::times::{self, ACTIVITIES, Times};
use crate::trouble::Trouble;

/// What a topology has done since its start.
#[derive(Clone, Debug)]
pub struct Stats {
    /// In the order of the definition. Without shares of time, which are those between two looks.
    pub components: Vec<ComponentStatus>,
    /// Components whose code does not return: for each, the task and for how long by now.
    pub stalled: Vec<(String, TaskId, Duration)>,
    /// Why nothing can go on, for some seconds now: no task of a component here can do anything, or with exactly-once no epoch ends.
    pub blocked: Option<String>,
}

impl Stats {
    /// The component of this id.
    #[must_use]
    pub fn component(&self, id: &str) -> Option<&ComponentStatus> {
        self.components.iter().find(|component| component.id == id)
    }
}

/// What threads write.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) tasks: Vec<TaskBoard>,
    /// What tasks had done here before they moved elsewhere.
    former: Vec<TaskBoard>,
    pub(crate) components: Vec<Measurements>,
    /// Streams that each component reads, in order.
    inputs: Vec<Vec<StreamId>>,
    pub(crate) threads: Vec<ThreadBoard>,
    /// Why no epoch ends, with exactly-once.
    pub(crate) epochs: Mutex<Trouble>,
    /// The times of each component that were shown: those that are shown later are no less.
    shown: Vec<[AtomicU64; ACTIVITIES]>,
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
            components: inputs.iter().map(|streams| Measurements::new(streams)).collect(),
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
        now: Nanos,
        unix: UnixMs,
        is_here: &dyn Fn(TaskId) -> bool,
    ) -> Stats {
        let turns: Vec<(TaskId, Duration)> =
            self.threads.iter().filter_map(|thread| thread.current(now)).collect();
        let components = plan.components().map(|(id, _)| ComponentStatus {
            tasks: plan.tasks(id).filter(|task| is_here(TaskId(*task))).count() as u64,
            time: self.time(plan, id, now, &turns),
            lag_ms: self.lag_ms(plan, id, unix),
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

    fn component(&self, plan: &Plan, component: ComponentId, now: Nanos) -> ComponentStatus {
        let tasks = || self.boards(plan, component);
        let sum = |of: &dyn Fn(&TaskBoard) -> &AtomicU64| tasks().map(|task| read(of(task))).sum::<u64>();
        let inputs = |of: fn(&InputBoard) -> &AtomicU64| {
            tasks().flat_map(|task| &task.inputs).map(|input| read(of(input))).sum::<u64>()
        };
        let definition = plan.component(component);
        let errors = tasks().filter_map(|task| lock(&task.last_error).clone());
        let last_error = errors.max_by_key(|(at, _)| *at);
        let age_ms = |at| u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        let (streams, edges) = self.streams(plan, component);
        ComponentStatus {
            id: definition.id.clone(),
            is_spout: definition.kind == Kind::Spout,
            tasks: 0,
            emitted: streams.iter().map(|(_, emitted)| emitted).sum(),
            transferred: edges.iter().map(|edge| edge.transferred).sum(),
            executed: inputs(|input| &input.executed),
            acked: sum(&|task| &task.acked) + inputs(|input| &input.acked),
            failed: sum(&|task| &task.failed) + inputs(|input| &input.failed),
            pending: sum(&|task| &task.pending),
            queued_bytes: tasks().flat_map(|task| &task.queued).map(|(_, bytes)| read(bytes)).sum(),
            faults: sum(&|task| &task.faults),
            restarts: sum(&|task| &task.restarts),
            last_error_age_ms: last_error.as_ref().map(|(at, _)| age_ms(*at)),
            last_error: last_error.map(|(_, error)| error),
            figures: figures(tasks()),
            time: TimeSpent::default(),
            shares: Shares::default(),
            latencies: self.components[usize::from(component.0)].latencies(),
            lag_ms: None,
            edges,
            streams,
        }
    }

    fn time(
        &self,
        plan: &Plan,
        component: ComponentId,
        now: Nanos,
        turns: &[(TaskId, Duration)],
    ) -> TimeSpent {
        let mut spent = [0; ACTIVITIES];
        let mut add = |times: [u64; ACTIVITIES]| {
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
        times::time_spent(std::array::from_fn(most))
    }

    /// The age of the oldest backlog of the tasks that can tell.
    fn lag_ms(&self, plan: &Plan, component: ComponentId, unix: UnixMs) -> Option<u64> {
        let backlogs = self.tasks[range(plan, component)].iter().map(|task| read(&task.backlog));
        let known = backlogs.filter(|backlog| *backlog != UNKNOWN);
        known.map(|since| unix.0.saturating_sub(since)).max()
    }

    fn boards(&self, plan: &Plan, component: ComponentId) -> impl Iterator<Item = &TaskBoard> {
        let range = range(plan, component);
        self.tasks[range.clone()].iter().chain(&self.former[range])
    }

    /// What it has emitted on each stream, and the edges from there.
    fn streams(&self, plan: &Plan, component: ComponentId) -> (Vec<(String, u64)>, Vec<EdgeStatus>) {
        let mut at = 0;
        let mut next = || {
            at += 1;
            self.boards(plan, component).map(|task| read(&task.emitted[at - 1])).sum()
        };
        let (mut streams, mut edges) = (Vec::new(), Vec::new());
        for (number, stream) in plan.streams(component) {
            streams.push((stream.id.clone(), next()));
            for edge in plan.readers(number) {
                edges.push(EdgeStatus {
                    stream: stream.id.clone(),
                    transferred: next(),
                    ..self.edge(plan, edge)
                });
            }
        }
        (streams, edges)
    }

    /// What the reader of an edge has done with its tuples.
    fn edge(&self, plan: &Plan, edge: &Edge) -> EdgeStatus {
        let tasks = self.tasks[range(plan, edge.to)].iter();
        let queued = tasks.filter_map(|task| task.queued_from(edge.from)).map(read);
        let streams = &self.inputs[usize::from(edge.to.0)];
        let place = streams.binary_search(&edge.stream).expect("an edge is an input");
        let sum = |of: fn(&InputBoard) -> &AtomicU64| {
            self.boards(plan, edge.to).map(|task| read(of(&task.inputs[place]))).sum()
        };
        let latencies = &self.components[usize::from(edge.to.0)];
        EdgeStatus {
            stream: String::new(),
            to: plan.component(edge.to).id.clone(),
            transferred: 0,
            queued_bytes: queued.sum(),
            executed: sum(|input| &input.executed),
            acked: sum(|input| &input.acked),
            failed: sum(|input| &input.failed),
            latencies: Latencies {
                execute: latencies.execute.of_stream(place),
                process: latencies.process.of_stream(place),
                queue: latencies.queue.of_stream(place),
                ..Latencies::default()
            },
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

/// What tasks have reported of themselves, by name.
fn figures<'a>(tasks: impl Iterator<Item = &'a TaskBoard>) -> Vec<FigureStatus> {
    let mut all = Figures::default();
    tasks.for_each(|task| all.add(&lock(&task.figures)));
    let status = |(name, Figure { count, sum, last }): (&str, Figure)| FigureStatus {
        name: name.to_owned(),
        count,
        sum,
        last,
    };
    all.iter().map(status).collect()
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

/// What a source has is not known.
const UNKNOWN: u64 = 0;
/// It has nothing: later than all times, so its age is zero.
const NOTHING: u64 = u64::MAX;
/// No turn.
const NO_TASK: u32 = u32::MAX;
/// A turn that takes longer is shown.
const STALL: Duration = Duration::from_secs(1);
