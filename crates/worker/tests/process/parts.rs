//! One topology in several workers, here of one process: tuples between them, tasks that move, a worker that starts anew, the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::SystemClock;
use topology::builder::Program;
use topology::component::Outcome;
use topology::ids::{TaskId, WorkerId};
use topology::values;
use transport::Transport;
use transport::local::{Hub, Local};
use worker::carrier::{self, Carrier};
use worker::{Move, Options, Part, Running};

use crate::fixture::{GRACE, Test, Told, all_acked, next};

/// The workers of a topology.
struct Workers {
    program: Program,
    hub: Arc<Hub>,
    places: Vec<WorkerId>,
    running: Vec<Option<(Running, Arc<Local>)>>,
    starts: u32,
    moves: (Arc<Mutex<Sender<Move>>>, Receiver<Move>),
}

impl Workers {
    /// Deals tasks to `count` workers in turn.
    fn start(program: Program, count: u32) -> Self {
        let places = (0..program.plan().tasks_count()).map(|task| WorkerId(task % count)).collect();
        let (sender, moves) = channel();
        let hub = Hub::start(Arc::new(SystemClock)).unwrap();
        let running = (0..count).map(|_| None).collect();
        let moves = (Arc::new(Mutex::new(sender)), moves);
        let mut workers = Self { program, hub, places, running, starts: 0, moves };
        (0..count).for_each(|worker| workers.begin(worker));
        workers
    }

    fn begin(&mut self, number: u32) {
        self.starts += 1;
        let (worker, start) = (WorkerId(number), self.starts);
        let node =
            self.hub.join(carrier::node(worker), carrier::incarnation(start), carrier::settings()).unwrap();
        let node = Arc::new(node);
        let carrier = Carrier::new(Arc::clone(&node) as Arc<dyn Transport>);
        let moves = Arc::clone(&self.moves.0);
        let part = Part {
            worker,
            places: self.places.clone(),
            start,
            held: Vec::new(),
            links: Arc::clone(&carrier) as _,
            moves: Arc::new(move |it| moves.lock().unwrap().send(it).unwrap_or(())),
        };
        let running = Running::start_part(&self.program, &Options::with_threads(2), &part).unwrap();
        carrier.listen(running.inbox(), "local:worker").unwrap();
        for other in (0..self.running.len() as u32).filter(|other| *other != number) {
            carrier.connect(WorkerId(other), "local:worker").unwrap();
        }
        self.running[number as usize] = Some((running, node));
    }

    /// Ends a worker with all that it has, and starts it again.
    fn crash(&mut self, number: u32) {
        let (running, node) = self.running[number as usize].take().unwrap();
        node.close();
        drop(running);
        self.begin(number);
    }

    fn all(&self) -> impl Iterator<Item = &Running> {
        self.running.iter().flatten().map(|(running, _)| running)
    }

    fn at(&self, worker: WorkerId) -> &Running {
        &self.running[worker.0 as usize].as_ref().unwrap().0
    }

    fn move_task(&mut self, task: TaskId, to: WorkerId) {
        self.starts += 1;
        self.all().for_each(|running| running.hold(task));
        assert_eq!(self.moves.1.recv_timeout(GRACE), Ok(Move::Released(task)));
        self.at(to).adopt(task, self.starts);
        assert_eq!(self.moves.1.recv_timeout(GRACE), Ok(Move::Adopted(task)));
        self.all().for_each(|running| running.place(task, to));
        self.all().for_each(|running| running.resume(task));
        self.places[task.0 as usize] = to;
    }

    /// Ends all of them, when nothing is under way in any.
    fn end(mut self) {
        self.all().for_each(Running::begin_drain);
        let mut before = None;
        loop {
            let round: Option<Vec<u64>> = self.all().map(Running::quiet).collect();
            if round.is_some() && round == before {
                break;
            }
            before = round;
            std::thread::park_timeout(Duration::from_millis(1));
        }
        for (running, _) in self.running.drain(..).flatten() {
            // Also that of a thread whose last task has moved.
            let ended = running.kill(Duration::ZERO);
            assert_eq!((ended.is_stopped, ended.stalled), (true, Vec::new()));
            assert!(ended.stats.components.iter().all(|it| it.pending == 0 && it.queued_bytes == 0));
        }
    }

    fn sum(&self, id: &str, of: impl Fn(&topology::statistics::ComponentStatus) -> u64) -> u64 {
        self.all().map(|running| of(running.stats().component(id).unwrap())).sum()
    }
}

/// Numbers that two levels of bolts pass on; how many the last one has seen.
fn chain(end: u64, timeout: Duration) -> (Program, Receiver<Told>, Arc<AtomicU64>) {
    let mut test = Test::new(end);
    test.builder.settings().message_timeout = timeout;
    let pass = test.bolt("pass", |tuple, out| {
        out.emit(&values![tuple.int(0)?])?;
        Ok(Outcome::Ack)
    });
    pass.outputs(&["n"]).tasks(4).shuffle("numbers");
    let seen = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&seen);
    let last = test.bolt("last", move |_, _| {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Outcome::Ack)
    });
    last.tasks(3).fields("pass", &["n"]);
    (test.builder.build().unwrap(), test.told, seen)
}

#[test]
fn tuples_go_between_three_workers_and_all_end_together() {
    let (program, told, seen) = chain(20_000, GRACE);
    let workers = Workers::start(program, 3);
    all_acked(&told, 20_000);
    assert_eq!(seen.load(Ordering::Relaxed), 20_000);
    workers.end();
}

#[test]
fn tasks_move_between_workers_and_nothing_is_tried_twice() {
    let (program, told, seen) = chain(60_000, GRACE);
    let mut workers = Workers::start(program, 3);
    for task in (0..8).map(TaskId) {
        let to = WorkerId((workers.places[task.0 as usize].0 + 1) % 3);
        workers.move_task(task, to);
    }
    workers.move_task(TaskId(7), WorkerId(7 % 3));
    assert!(told.try_iter().count() < 60_000, "tuples were under way");
    let is_told = |n: u64| n == 60_000;
    while !is_told(seen.load(Ordering::Relaxed)) {
        assert!(matches!(next(&told), Told::Acked(_) | Told::Inactive));
    }
    workers.all().for_each(Running::begin_drain);
    workers.end();
    assert_eq!(seen.load(Ordering::Relaxed), 60_000, "none twice: none has waited for its time-out");
}

#[test]
fn counters_of_tasks_that_have_moved_stay() {
    let (program, told, _) = chain(1_000, GRACE);
    let mut workers = Workers::start(program, 2);
    all_acked(&told, 1_000);
    for _ in 0..2 {
        for task in (0..8).map(TaskId) {
            let to = WorkerId(1 - workers.places[task.0 as usize].0);
            workers.move_task(task, to);
        }
    }
    workers.all().for_each(Running::begin_drain);
    while workers.all().any(|running| running.quiet().is_none()) {
        std::thread::park_timeout(Duration::from_millis(1));
    }
    assert_eq!(workers.sum("last", |it| it.executed), 1_000);
    assert_eq!(workers.sum("numbers", |it| it.acked), 1_000);
    assert_eq!(workers.sum("pass", |it| it.tasks), 4);
    workers.end();
}

#[test]
fn worker_that_starts_anew_loses_no_tuple_of_spouts_elsewhere() {
    let (program, told, seen) = chain(50_000, Duration::from_millis(500));
    let mut workers = Workers::start(program, 3);
    assert_eq!(workers.places[0], WorkerId(0), "the spout");
    let mut acked = 0;
    for round in 1..=6 {
        while acked < round * 1_000 {
            acked += u64::from(matches!(next(&told), Told::Acked(_)));
        }
        workers.crash(1 + (round % 2) as u32);
    }
    while acked < 50_000 {
        match next(&told) {
            Told::Acked(_) => acked += 1,
            other => panic!("{other:?}"),
        }
    }
    assert!(seen.load(Ordering::Relaxed) >= 50_000);
    workers.end();
}
