//! `evenkeel worker`: one topology for a server, which starts it and talks to it over standard input and output (`supervisor`).
//!
//! The end of standard input is the end of the server: then it ends at once, with all its children. So does SIGTERM, which the system sends when
//! the server dies.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use clock::{Clock, SystemClock};
use components::Builtin;
use flux::{Definition, Variables};
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, Signal, set_dumpable_behavior, set_parent_process_death_signal,
    setpriority_process, setrlimit,
};
use supervisor::{Bounds, EDGE_LATENCIES_MAX, JOB_BYTES_MAX, Job, Misplaced, Order, Place, Trial, Word};
use topology::ids::{TaskId, WorkerId};
use topology::statistics::{ComponentStatus, Latencies, Shares, Status, TimeSpent};
use worker::{Move, Options, Running, Stats};

use super::builtin;
use super::peers::Peers;
use super::tapped;
use crate::failure::Failure;

/// What comes from the server.
#[derive(Debug)]
enum Event {
    Order(Order),
    /// A task that moves has ended or started here.
    Moved(Move),
    /// It is gone, or wants the worker to be.
    Gone,
}

/// What the time of each component went to at the last times when that was told.
#[derive(Debug, Default)]
struct Recent {
    spent: VecDeque<Vec<TimeSpent>>,
}

/// Runs what standard input says.
///
/// # Errors
/// One line: what it says cannot be run.
pub(crate) fn run() -> Result<(), Failure> {
    crate::logging::start_for_server();
    protect().map_err(|error| Failure::System(format!("cannot keep this worker to itself: {error}")))?;
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Failure::System(format!("cannot watch for the server's end: {error}")))?;
    let mut input = BufReader::new(std::io::stdin());
    let job = read_job(&mut input)?;
    if let Some(url) = &job.share.url {
        crate::client::set_url(url);
    }
    take_bounds(&job.bounds)
        .map_err(|error| Failure::System(format!("cannot set the limits of this worker: {error}")))?;
    let definition = read_definition(&job)?;
    let folder = checked_folder(&job, &definition)?;
    let program = super::code::program(&definition, &job.name, &folder)?;
    let (events, to_do) = channel();
    let moved = events.clone();
    listen(input, events)?;
    let peers = Peers::new(&job.share, &job.name, &job.transport)?;
    let moves = move |it| moved.send(Event::Moved(it)).unwrap_or(());
    let part = peers.part(&job.share, &definition.plan, moves)?;
    let options = Options { store: super::code::store(&definition)?, ..Options::default() };
    let running =
        Running::start_part(&program, &options, &part).map_err(|error| Failure::Usage(error.to_string()))?;
    if !job.is_active {
        running.deactivate();
    }
    let grace = serve(&running, &peers, &to_do);
    bound_the_end(grace)?;
    let ended = running.kill(grace);
    let left = shell::wait_for_children(CHILDREN_GRACE);
    say(&Recent::default().status(ended.stats));
    if left > 0 {
        return Err(Failure::System(format!("{left} children could not be ended")));
    }
    Ok(())
}

/// Names this process for those who list processes; keeps its memory and descriptors from others of its user, who may be components of other topologies; makes
/// it the parent of what its components leave behind.
fn protect() -> std::io::Result<()> {
    rustix::thread::set_name(c"evenkeel-worker")?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    processes::adopt_orphans(processes::Orphans::Unmarked)
}

/// Limits this process, which has one thread so far, and all that it starts.
fn take_bounds(bounds: &Bounds) -> rustix::io::Result<()> {
    if let Some(most) = bounds.memory_bytes_max {
        setrlimit(Resource::Data, Rlimit { current: Some(most), maximum: Some(most) })?;
    }
    if bounds.nice > 0 {
        setpriority_process(None, bounds.nice.cast_signed())?;
    }
    Ok(())
}

fn read_job(input: &mut impl BufRead) -> Result<Job, Failure> {
    let mut line = Vec::new();
    let read = input.by_ref().take(JOB_BYTES_MAX as u64).read_until(b'\n', &mut line);
    read.map_err(|error| Failure::System(format!("cannot read what to run: {error}")))?;
    let hint = "`evenkeel worker` is started by a server: use `evenkeel topology run`";
    serde_json::from_slice(&line).map_err(|error| Failure::Usage(format!("{hint} ({error})")))
}

fn read_definition(job: &Job) -> Result<Definition, Failure> {
    let environment = |name: &str| job.properties.get(&format!("ENV-{name}")).cloned();
    let variables = Variables { properties: &job.properties, environment: &environment };
    let read = flux::read(&job.definition, &variables);
    let checked = read.and_then(|(mut definition, _)| {
        redirect(&mut definition, job);
        let faults = builtin::faults(&definition);
        if faults.is_empty() { Ok(definition) } else { Err(faults) }
    });
    checked.map_err(|faults| {
        let first = faults.first().map(ToString::to_string).unwrap_or_default();
        Failure::Usage(format!("the definition is refused: {first}"))
    })
}

/// Has a definition that is tried write elsewhere.
fn redirect(definition: &mut Definition, job: &Job) {
    let Some(Trial { of, prefix, from }) = &job.trial else { return };
    let trial = components::Trial { of, prefix, from };
    for program in &mut definition.programs {
        // It fails for what is no right command, which is refused right after this.
        let _ = components::redirect(&mut program.command, &trial);
    }
}

/// Where its components run, if all their programs are where they may be: the server has checked that, and files change.
fn checked_folder(job: &Job, definition: &Definition) -> Result<PathBuf, Failure> {
    let place = Place::new(&job.dir);
    let refused = |error: Misplaced| Failure::Usage(error.to_string());
    let folder = place.folder(job.folder.as_deref()).map_err(refused)?;
    for ((id, _), program) in definition.plan.components().zip(&definition.programs) {
        match Builtin::check_for_client(&program.command, &definition.plan, id, &job.http_hosts) {
            Some(checked) => checked.map_err(|error| Failure::Usage(error.to_string()))?,
            None => place.check(&folder, &program.command).map_err(refused)?,
        }
    }
    Ok(folder)
}

/// Has what comes from the server, and SIGTERM, sent to `events`.
fn listen(input: BufReader<std::io::Stdin>, events: Sender<Event>) -> Result<(), Failure> {
    use signal_hook::consts::{SIGINT, SIGTERM};
    let system = |error: std::io::Error| Failure::System(format!("cannot listen to the server: {error}"));
    let mut signals = signal_hook::iterator::Signals::new([SIGTERM, SIGINT]).map_err(system)?;
    let gone = events.clone();
    let watch = move || {
        for _ in signals.forever() {
            let _ = gone.send(Event::Gone);
        }
    };
    std::thread::Builder::new().name("signals".to_owned()).spawn(watch).map_err(system)?;
    let hear = move || {
        for line in input.lines() {
            let order = line.ok().and_then(|line| serde_json::from_str(&line).ok());
            let Some(order) = order else { break };
            let _ = events.send(Event::Order(order));
        }
        let _ = events.send(Event::Gone);
    };
    std::thread::Builder::new().name("orders".to_owned()).spawn(hear).map_err(system).map(drop)
}

/// Does what the server wants until it wants the end, and says each second how it is; how long what is under way may take.
fn serve(running: &Running, peers: &Peers, to_do: &Receiver<Event>) -> Duration {
    let (mut next, mut recent) = (SystemClock.now(), Recent::default());
    loop {
        let now = SystemClock.now();
        if next <= now {
            next = now + STATUS_INTERVAL;
            running.expire_looks();
            if !say(&recent.status(running.stats())) {
                return Duration::ZERO;
            }
        }
        let is_heard = match to_do.recv_timeout(next.since(now)) {
            Ok(Event::Order(Order::Kill { wait_ms })) => return Duration::from_millis(wait_ms),
            Ok(Event::Order(order)) => obey(running, peers, order),
            Ok(Event::Moved(Move::Released(TaskId(task)))) => say(&Word::Released { task }),
            Ok(Event::Moved(Move::Adopted(TaskId(task)))) => say(&Word::Adopted { task }),
            Ok(Event::Moved(Move::Dealt)) => say(&Word::Dealt),
            Ok(Event::Gone) | Err(RecvTimeoutError::Disconnected) => return Duration::ZERO,
            Err(RecvTimeoutError::Timeout) => true,
        };
        if !is_heard {
            return Duration::ZERO;
        }
    }
}

/// Carries an order out; whether the server can hear the answer, if there is one.
fn obey(running: &Running, peers: &Peers, order: Order) -> bool {
    match order {
        Order::Activate => _ = running.activate(),
        Order::Deactivate => _ = running.deactivate(),
        Order::Kill { .. } => unreachable!("the caller has seen it"),
        Order::Listen => match peers.listen(running.inbox()) {
            Ok(address) => return say(&Word::Listening { address }),
            Err(error) => {
                // The server starts it again, after a pause.
                tracing::error!(%error, "it cannot listen to other workers");
                return false;
            }
        },
        Order::Peers(others) => others.iter().for_each(|peer| peers.connect(peer)),
        Order::Hold { task } => running.hold(TaskId(task)),
        Order::Adopt { task, start } => running.adopt(TaskId(task), start),
        Order::Place { task, worker } => {
            running.place(TaskId(task), WorkerId(worker));
            return say(&Word::Placed { task });
        }
        Order::Resume { task } => running.resume(TaskId(task)),
        Order::Deal { places } => running.deal(places.into_iter().map(WorkerId).collect()),
        Order::Drain => running.begin_drain(),
        Order::Tap { cursor, component, stream, every } => {
            let (tuples, skipped) = tapped::look(running, cursor, &component, stream.as_deref(), every);
            return say(&Word::Tapped { cursor, tuples, skipped });
        }
        Order::Ask { round } => return say(&Word::Quiet { round, received: running.quiet() }),
    }
    true
}

impl Recent {
    /// How the topology is; shares of time are of about the last [`SHARES_INTERVALS`].
    fn status(&mut self, stats: Stats) -> Status {
        let Stats { mut components, blocked, .. } = stats;
        let is_idle = components.iter().all(|it| it.pending == 0 && it.queued_bytes == 0);
        let former = self.spent.front();
        for (at, it) in components.iter_mut().enumerate() {
            let former = former.and_then(|former| former.get(at));
            it.shares = former.map_or_else(Shares::default, |former| it.time.shares_since(former));
            shorten_error(it);
        }
        let edges = components.iter_mut().flat_map(|it| &mut it.edges);
        edges.skip(EDGE_LATENCIES_MAX).for_each(|edge| edge.latencies = Latencies::default());
        self.spent.push_back(components.iter().map(|it| it.time).collect());
        if self.spent.len() > SHARES_INTERVALS {
            self.spent.pop_front();
        }
        Status { is_idle, blocked, components }
    }
}

/// Leaves of the last error what is told: what went wrong long ago says nothing of now.
fn shorten_error(it: &mut ComponentStatus) {
    if it.last_error_age_ms.is_some_and(|age_ms| age_ms >= ERROR_SHOWN_MS) {
        (it.last_error, it.last_error_age_ms) = (None, None);
    }
    if let Some(error) = &mut it.last_error {
        error.truncate(error.floor_char_boundary(ERROR_BYTES_MAX));
    }
}

/// Whether the server can hear it.
fn say(what: &impl serde::Serialize) -> bool {
    let mut line = serde_json::to_vec(what).expect("plain values are JSON");
    line.push(b'\n');
    let mut out = std::io::stdout().lock();
    out.write_all(&line).and_then(|()| out.flush()).is_ok()
}

/// Ends the process if its end takes longer than its parts allow.
fn bound_the_end(grace: Duration) -> Result<(), Failure> {
    let bound = move || {
        std::thread::park_timeout(grace + END_MAX);
        std::process::exit(1);
    };
    let thread = std::thread::Builder::new().name("end-bound".to_owned()).spawn(bound);
    thread.map(drop).map_err(|error| Failure::System(format!("no thread to bound the end: {error}")))
}

const STATUS_INTERVAL: Duration = Duration::from_secs(1);
/// Shares of time are of so many intervals.
const SHARES_INTERVALS: usize = 10;
/// More than a child has to end by itself.
const CHILDREN_GRACE: Duration = Duration::from_secs(5);
const END_MAX: Duration = Duration::from_secs(7);
/// What is told of an error.
const ERROR_BYTES_MAX: usize = 500;
/// How long it is told.
const ERROR_SHOWN_MS: u64 = 3_600_000;
