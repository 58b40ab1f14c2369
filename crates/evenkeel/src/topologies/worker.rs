//! `evenkeel worker`: one topology for a server, which starts it and talks to it over standard input and output (`supervisor`).
//!
//! The end of standard input is the end of the server: then it ends at once, with all its children. So does SIGTERM, which the system sends when
//! the server dies.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use components::Builtin;
use flux::{Definition, Variables};
use rustix::process::{Signal, set_parent_process_death_signal};
use supervisor::{ComponentStatus, EdgeStatus, JOB_BYTES_MAX, Job, Misplaced, Order, Place, Status};
use topology::definition::Kind;
use worker::{ComponentStats, Options, Running, StreamStats};

use super::builtin;
use crate::failure::Failure;

/// What comes from the server.
#[derive(Debug)]
enum Event {
    Order(Order),
    /// It is gone, or wants the worker to be.
    Gone,
}

/// Runs what standard input says.
///
/// # Errors
/// One line: what it says cannot be run.
pub(crate) fn run() -> Result<(), Failure> {
    crate::logging::start_for_server();
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| Failure::System(format!("cannot watch for the server's end: {error}")))?;
    let mut input = BufReader::new(std::io::stdin());
    let job = read_job(&mut input)?;
    let definition = read_definition(&job)?;
    let folder = checked_folder(&job, &definition)?;
    let program = super::code::program(&definition, &job.name, &folder)?;
    let (events, to_do) = channel();
    listen(input, events)?;
    let options = Options { store: super::code::store(&definition)?, ..Options::default() };
    let running = Running::start(&program, &options).map_err(|error| Failure::Usage(error.to_string()))?;
    if !job.is_active {
        running.deactivate();
    }
    let grace = serve(&running, &definition, &to_do);
    bound_the_end(grace)?;
    let ended = running.kill(grace);
    let left = shell::wait_for_children(CHILDREN_GRACE);
    say_status(&status(&ended.stats.components, &definition));
    if left > 0 {
        return Err(Failure::System(format!("{left} children could not be ended")));
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
    let checked = read.and_then(|(definition, _)| {
        let faults = builtin::faults(&definition);
        if faults.is_empty() { Ok(definition) } else { Err(faults) }
    });
    checked.map_err(|faults| {
        let first = faults.first().map(ToString::to_string).unwrap_or_default();
        Failure::Usage(format!("the definition is refused: {first}"))
    })
}

/// Where its components run, if all their programs are where they may be: the server has checked that, and files change.
fn checked_folder(job: &Job, definition: &Definition) -> Result<PathBuf, Failure> {
    let place = Place::new(&job.dir);
    let refused = |error: Misplaced| Failure::Usage(error.to_string());
    let folder = place.folder(job.folder.as_deref()).map_err(refused)?;
    for ((id, _), program) in definition.plan.components().zip(&definition.programs) {
        match Builtin::check_for_client(&program.command, &definition.plan, id) {
            Some(checked) => checked.map_err(Failure::Usage)?,
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
fn serve(running: &Running, definition: &Definition, to_do: &Receiver<Event>) -> Duration {
    loop {
        match to_do.recv_timeout(STATUS_INTERVAL) {
            Ok(Event::Order(Order::Activate)) => drop(running.activate()),
            Ok(Event::Order(Order::Deactivate)) => drop(running.deactivate()),
            Ok(Event::Order(Order::Kill { wait_ms })) => return Duration::from_millis(wait_ms),
            Ok(Event::Gone) | Err(RecvTimeoutError::Disconnected) => return Duration::ZERO,
            Err(RecvTimeoutError::Timeout) => {}
        }
        if !say_status(&status(&running.stats().components, definition)) {
            return Duration::ZERO;
        }
    }
}

fn status(components: &[ComponentStats], definition: &Definition) -> Status {
    let is_idle = components.iter().all(|it| it.pending == 0 && it.queued_bytes == 0);
    let tasks = definition.plan.components().map(|(id, _)| definition.plan.tasks(id).len() as u64);
    let components = components.iter().zip(tasks).map(|(it, tasks)| component(it, tasks));
    Status { is_idle, components: components.collect() }
}

fn component(it: &ComponentStats, tasks: u64) -> ComponentStatus {
    let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let readers = it.streams.iter().flat_map(|stream| &stream.readers);
    let error = it.last_error.as_ref();
    ComponentStatus {
        id: it.id.clone(),
        is_spout: it.kind == Kind::Spout,
        tasks,
        emitted: it.emitted(),
        transferred: readers.map(|edge| edge.transferred).sum(),
        executed: it.executed,
        acked: it.acked,
        failed: it.failed,
        pending: it.pending,
        queued_bytes: it.queued_bytes,
        faults: it.faults,
        restarts: it.restarts,
        last_error: error.map(|error| error[..error.floor_char_boundary(ERROR_BYTES_MAX)].to_owned()),
        execute_us: micros(it.execute.mean),
        complete_us: micros(it.complete.mean),
        edges: it.streams.iter().flat_map(edges).collect(),
    }
}

fn edges(stream: &StreamStats) -> impl Iterator<Item = EdgeStatus> {
    stream.readers.iter().map(|edge| EdgeStatus {
        stream: stream.id.clone(),
        to: edge.to.clone(),
        transferred: edge.transferred,
    })
}

/// Whether the server can hear it.
fn say_status(status: &Status) -> bool {
    let mut line = serde_json::to_vec(status).expect("plain values are JSON");
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
/// More than a child has to end by itself.
const CHILDREN_GRACE: Duration = Duration::from_secs(5);
const END_MAX: Duration = Duration::from_secs(7);
/// What is told of an error.
const ERROR_BYTES_MAX: usize = 500;
