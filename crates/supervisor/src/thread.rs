//! The thread that has all worker processes: one loop that waits for their pipes, their ends, callers and the next time at once.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos};
use processes::duplex::{Outgoing, is_passing, wait};
use processes::{Process, ending};
use rustix::event::{PollFd, PollFlags};
use topology::statistics::Status;

use crate::lifecycle::{Action, State};
use crate::lines::Lines;
use crate::messages::{Job, STATUS_BYTES_MAX, Share, Word};
use crate::process::Program;
use crate::topologies::{Entries, Topologies};

/// The thread.
pub(crate) struct WorkersThread {
    program: Program,
    /// Where the server is reached.
    address: Option<String>,
    topologies: Arc<Topologies>,
    clock: Arc<dyn Clock>,
    /// By topologies and numbers.
    workers: BTreeMap<(String, u32), Worker>,
    /// How many were started.
    started: u64,
    buffer: Box<[u8]>,
}

/// A worker process, and what is being said.
struct Worker {
    name: String,
    number: u32,
    process: Process,
    out: Outgoing,
    statuses: Lines,
    log: Log,
}

/// What a worker writes to standard error.
struct Log {
    lines: Lines,
    /// Since when lines are counted, how many went to the log since then, and how many did not.
    since: Nanos,
    shown: u32,
    left_out: u64,
    last: String,
}

/// What a worker has said.
enum Received {
    Status(Box<Status>),
    Word(Word),
    Misuse(String),
}

impl WorkersThread {
    pub(crate) fn new(
        program: Program,
        address: Option<String>,
        topologies: Arc<Topologies>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let buffer = vec![0; READ_BYTES].into();
        Self { program, address, topologies, clock, workers: BTreeMap::new(), started: 0, buffer }
    }

    /// Until the server stops and no worker is left.
    pub(crate) fn run(mut self) {
        loop {
            self.act();
            let topologies = Arc::clone(&self.topologies);
            let mut entries = topologies.lock();
            entries.by_name.retain(|_, entry| entry.group.state() != State::Gone);
            if entries.is_stopping && self.workers.is_empty() {
                return;
            }
            let due = entries.by_name.values().filter_map(|entry| entry.group.next_due()).min();
            drop(entries);
            self.wait(due);
            self.carry();
            self.reap();
        }
    }

    /// Does what the machines say. Nothing slow is done while callers wait for the lock.
    fn act(&mut self) {
        while let Some((key, action)) = self.next_action() {
            match action {
                Action::Start => self.start(&key),
                Action::Tell(order) => self.workers.get_mut(&key).into_iter().for_each(|it| it.say(&order)),
                Action::Kill => self.workers.get_mut(&key).into_iter().for_each(|it| it.process.kill()),
            }
        }
    }

    fn next_action(&self) -> Option<((String, u32), Action)> {
        let now = self.clock.now();
        let Entries { by_name, .. } = &mut *self.topologies.lock();
        by_name.iter_mut().find_map(|(name, entry)| {
            let (worker, action) = entry.group.poll(now)?;
            Some(((name.clone(), worker), action))
        })
    }

    fn start(&mut self, key: &(String, u32)) {
        let (name, number) = (&key.0, key.1);
        self.started += 1;
        let token = hexadecimal(&random_bytes::<32>());
        let url = self.address.as_ref().map(|address| format!("redis://{USER}:{token}@{address}"));
        if let Some(entry) = self.topologies.lock().by_name.get_mut(name) {
            // Its components may log in before this thread goes on.
            entry.employ(number, token);
        }
        let started = self.program.start(self.started, self.address.as_deref(), &format!("{name}/{number}"));
        let now = self.clock.now();
        let mut entries = self.topologies.lock();
        // Only this thread removes entries.
        let Some(entry) = entries.by_name.get_mut(name) else { return };
        match started {
            Ok(process) => {
                let pid = process.id();
                tracing::info!(topology = name, worker = number, pid, "a worker was started");
                let (share, is_active) = (entry.group.share(number), entry.group.starts_active());
                entry.group.on_started(now, number);
                if let Some(worker) = entry.workers.get_mut(&number) {
                    worker.process = Some((pid, now));
                }
                let job = Arc::clone(&entry.job);
                drop(entries);
                let bounds = self.program.limits.bounds;
                let share = Share { url, ..share };
                let job = Job { share, bounds, is_active, ..Job::clone(&job) };
                self.workers.insert(key.clone(), Worker::new(&job, process));
            }
            Err(error) => {
                let why = format!("it cannot be started: {error}");
                tracing::warn!(topology = name, worker = number, why, "a worker was not started");
                let connections = entry.discharge(number);
                entry.group.on_start_failed(now, number, why);
                drop(entries);
                self.topologies.end_connections(&connections);
            }
        }
    }

    /// Waits until there is something to do.
    fn wait(&self, due: Option<Nanos>) {
        let mut fds = vec![self.topologies.waker.poll_fd()];
        for Worker { process, out, .. } in self.workers.values() {
            fds.push(PollFd::new(&process.exit, PollFlags::IN));
            fds.extend(process.stdout.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            fds.extend(process.stderr.iter().map(|pipe| PollFd::new(pipe, PollFlags::IN)));
            let stdin = process.stdin.iter().filter(|_| !out.is_empty());
            fds.extend(stdin.map(|pipe| PollFd::new(pipe, PollFlags::OUT)));
        }
        wait(&mut fds, due.map(|due| due.since(self.clock.now()) + Duration::from_millis(1)));
        self.topologies.waker.clear();
    }

    /// Carries what can be carried without waiting.
    fn carry(&mut self) {
        for worker in self.workers.values_mut() {
            let now = self.clock.now();
            worker.write();
            worker.read_log(now, &mut self.buffer);
            for received in worker.read(&mut self.buffer) {
                self.topologies.lock().on_received(now, &worker.name, worker.number, received);
            }
        }
    }

    /// Ends what has ended, with all that is left of it.
    fn reap(&mut self) {
        let ended = self.workers.iter().filter(|(_, it)| it.process.has_ended()).map(|(key, _)| key.clone());
        for key in ended.collect::<Vec<_>>() {
            let Some(mut worker) = self.workers.remove(&key) else { continue };
            let (name, number) = key;
            self.receive_rest(&mut worker);
            let mut why = ending(worker.process.end());
            worker.read_log(self.clock.now(), &mut self.buffer);
            if !worker.log.last.is_empty() {
                why = format!("{why}: {}", worker.log.last);
            }
            why = self.program.explained(why);
            tracing::info!(topology = name, worker = number, why, "a worker has ended");
            let now = self.clock.now();
            let mut connections = Vec::new();
            if let Some(entry) = self.topologies.lock().by_name.get_mut(&name) {
                entry.group.on_exit(now, number, why);
                connections = entry.discharge(number);
            }
            self.topologies.end_connections(&connections);
        }
    }

    /// Takes what a worker that has ended had said: its last counters.
    fn receive_rest(&mut self, worker: &mut Worker) {
        for _ in 0..LOG_READS {
            let now = self.clock.now();
            for received in worker.read(&mut self.buffer) {
                self.topologies.lock().on_received(now, &worker.name, worker.number, received);
            }
        }
    }
}

impl Entries {
    fn on_received(&mut self, now: Nanos, name: &str, number: u32, received: Received) {
        let Some(entry) = self.by_name.get_mut(name) else { return };
        match received {
            Received::Status(status) => entry.on_status(now, number, *status),
            Received::Word(Word::Tapped { cursor, tuples, skipped }) => {
                entry.looks.on_tapped(number, cursor, tuples, skipped);
            }
            Received::Word(word) => entry.group.on_word(now, number, word),
            Received::Misuse(why) => {
                tracing::warn!(topology = name, worker = number, why, "a worker is killed");
                entry.group.on_misuse(now, number, why);
            }
        }
    }
}

impl Worker {
    fn new(job: &Job, process: Process) -> Self {
        let log = Log {
            lines: Lines::new(LOG_LINE_BYTES_MAX),
            since: Nanos(0),
            shown: 0,
            left_out: 0,
            last: String::new(),
        };
        let statuses = Lines::new(STATUS_BYTES_MAX);
        let (name, number) = (job.name.clone(), job.share.worker);
        let mut worker = Self { name, number, process, out: Outgoing::default(), statuses, log };
        worker.say(job);
        worker
    }

    /// Has a line written.
    fn say(&mut self, line: &impl serde::Serialize) {
        let out = self.out.bytes();
        out.extend(serde_json::to_vec(line).expect("plain values are JSON"));
        out.push(b'\n');
    }

    fn write(&mut self) {
        let Some(pipe) = &mut self.process.stdin else { return };
        if self.out.write_to(pipe).is_err() {
            // Its end follows.
            self.process.stdin = None;
            self.out = Outgoing::default();
        }
    }

    /// One read of standard output: what the worker has said.
    fn read(&mut self, buffer: &mut [u8]) -> Vec<Received> {
        let Some(pipe) = &mut self.process.stdout else { return Vec::new() };
        let count = match pipe.read(buffer) {
            Err(error) if is_passing(&error) => return Vec::new(),
            Ok(0) | Err(_) => {
                self.process.stdout = None;
                return Vec::new();
            }
            Ok(count) => count,
        };
        let mut received = Vec::new();
        let fits = self.statuses.push(&buffer[..count], |line| {
            received.push(match serde_json::from_slice(line) {
                Ok(status) => Received::Status(Box::new(status)),
                Err(error) => match serde_json::from_slice(line) {
                    Ok(word) => Received::Word(word),
                    Err(_) => Received::Misuse(format!("it said what is no status: {error}")),
                },
            });
        });
        if !fits {
            received.push(Received::Misuse(format!("its status has more than {STATUS_BYTES_MAX} B")));
        }
        received
    }

    /// Reads standard error until it is empty, or for a while.
    fn read_log(&mut self, now: Nanos, buffer: &mut [u8]) {
        for _ in 0..LOG_READS {
            let Some(pipe) = &mut self.process.stderr else { return };
            match pipe.read(buffer) {
                Ok(0) => self.process.stderr = None,
                Ok(count) => self.log.push(now, &self.name, &buffer[..count]),
                Err(_) => return,
            }
        }
    }
}

impl Log {
    fn push(&mut self, now: Nanos, name: &str, bytes: &[u8]) {
        let Self { lines, since, shown, left_out, last } = self;
        if now.since(*since) >= LOG_SPAN {
            if *left_out > 0 {
                tracing::warn!(topology = name, lines = *left_out, "lines of its log were left out");
            }
            (*since, *shown, *left_out) = (now, 0, 0);
        }
        lines.push(bytes, |line| {
            let line = String::from_utf8_lossy(line);
            let line = line.trim();
            if *shown < LOG_LINES_MAX {
                show(name, line);
                *shown += 1;
            } else {
                *left_out += 1;
            }
            // Rust says so behind a panic or when there is no memory: why is in the line before.
            if !line.starts_with("note: ") {
                line.clone_into(last);
            }
        });
    }
}

/// Logs a line of a worker at the level that it begins with.
fn show(name: &str, line: &str) {
    match line.split_once(' ') {
        Some(("ERROR", text)) => tracing::error!(topology = name, "{text}"),
        Some(("WARN", text)) => tracing::warn!(topology = name, "{text}"),
        Some(("INFO", text)) => tracing::info!(topology = name, "{text}"),
        _ => tracing::info!(topology = name, "{line}"),
    }
}

/// What the workers of a topology know and nobody else.
pub(crate) fn secret() -> String {
    hexadecimal(&random_bytes::<32>())
}

/// What nobody guesses.
pub(crate) fn random_bytes<const N: usize>() -> [u8; N] {
    let (mut random, mut filled) = ([0; N], 0);
    while filled < random.len() {
        let taken = rustix::rand::getrandom(&mut random[filled..], rustix::rand::GetRandomFlags::empty());
        filled += taken.unwrap_or(0);
    }
    random
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Who workers say they are when they log in.
pub const USER: &str = "topology";
const READ_BYTES: usize = 64 << 10;
/// A worker that writes without end to standard error is read so often before others are looked at.
const LOG_READS: usize = 16;
/// More of a line is cut.
const LOG_LINE_BYTES_MAX: usize = 2 << 10;
/// So many lines of a topology go to the server's log in a span; others are counted.
const LOG_LINES_MAX: u32 = 20;
const LOG_SPAN: Duration = Duration::from_secs(1);
