//! A topology in several workers of this process: each has its own threads and its own node, and what they send each other goes over a transport.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ::transport::local::Hub;
use ::transport::{NodeId, Transport};
use clock::SystemClock;
use topology::builder::Program;
use topology::ids::{TaskId, WorkerId};
use worker::carrier::{self, Carrier as Links};
use worker::{Options, Part, Running, Stats};

use crate::Failure;
use crate::transport::{Carrier, node};

/// How a topology is dealt.
#[derive(Clone, Copy, Debug)]
pub struct Dealt {
    /// Workers. Each has the tasks of a component in turn.
    pub workers: u32,
    /// What carries tuples between them.
    pub carrier: Carrier,
    /// Threads of the node of each.
    pub node_threads: usize,
}

/// Workers that run.
pub(super) struct Workers {
    running: Vec<Running>,
    nodes: Vec<Arc<dyn Transport>>,
}

impl Workers {
    /// Starts the workers of `program`, each with so many `threads`.
    ///
    /// # Errors
    /// The system refuses threads or sockets, or the carrier is none for workers.
    pub(super) fn start(program: &Program, dealt: Dealt, threads: usize) -> Result<Self, Failure> {
        let options = Options::with_threads(threads);
        let plan = program.plan();
        let all = Part::all(plan);
        if dealt.workers == 1 {
            let running = Running::start(program, &options).map_err(|error| error.to_string())?;
            return Ok(Self { running: vec![running], nodes: Vec::new() });
        }
        let place =
            |task| WorkerId((task - plan.tasks(plan.component_of(TaskId(task))).start) % dealt.workers);
        let places: Vec<WorkerId> = (0..plan.tasks_count()).map(place).collect();
        let hub = Hub::start(Arc::new(SystemClock)).map_err(|error| error.to_string())?;
        let (mut workers, mut links) = (Self { running: Vec::new(), nodes: Vec::new() }, Vec::new());
        for worker in (0..dealt.workers).map(WorkerId) {
            let node = join(&hub, dealt, carrier::node(worker))?;
            let carrier = Links::new(Arc::clone(&node));
            let part =
                Part { worker, places: places.clone(), links: Arc::clone(&carrier) as _, ..all.clone() };
            let running = Running::start_part(program, &options, &part).map_err(|error| error.to_string())?;
            let address = if dealt.carrier == Carrier::Local { "local:worker" } else { "127.0.0.1:0" };
            let address = carrier.listen(running.inbox(), address).map_err(|error| error.to_string())?;
            links.push((worker, carrier, address));
            workers.nodes.push(node);
            workers.running.push(running);
        }
        for (worker, carrier, _) in &links {
            for (other, _, address) in links.iter().filter(|(other, ..)| other != worker) {
                carrier.connect(*other, address).map_err(|error| error.to_string())?;
            }
        }
        Ok(workers)
    }

    /// What each has done.
    pub(super) fn stats(&self) -> Vec<Stats> {
        self.running.iter().map(Running::stats).collect()
    }

    /// Within this time the part `quantile` of the messages were acknowledged, at the slowest worker.
    pub(super) fn complete_within(&self, quantile: f64) -> Duration {
        let workers = self.running.iter();
        workers.map(|it| it.complete_within(super::SPOUT, quantile)).max().unwrap_or_default()
    }

    /// Ends them when nothing is under way, at the latest after `grace`: whether nothing was, and what each had done.
    pub(super) fn end(self, grace: Duration) -> (bool, Vec<Stats>) {
        self.running.iter().for_each(Running::begin_drain);
        let until = Instant::now() + grace;
        let mut before = None;
        // Two rounds that give the same, the second begun after the first: nothing is under way in any of them.
        let is_finished = loop {
            let round: Option<Vec<u64>> = self.running.iter().map(Running::quiet).collect();
            if round.is_some() && round == before {
                break true;
            }
            if Instant::now() > until {
                break false;
            }
            before = round;
            std::thread::sleep(Duration::from_millis(1));
        };
        let stats = self.running.into_iter().map(|running| running.kill(Duration::ZERO).stats).collect();
        self.nodes.iter().for_each(|node| node.close());
        (is_finished, stats)
    }
}

fn join(hub: &Arc<Hub>, dealt: Dealt, id: NodeId) -> Result<Arc<dyn Transport>, Failure> {
    let settings = ::transport::Settings { threads: dealt.node_threads, ..carrier::settings() };
    match dealt.carrier {
        Carrier::Local => {
            let local = hub.join(id, carrier::incarnation(1), settings).map_err(|error| error.to_string())?;
            Ok(Arc::new(local))
        }
        Carrier::Tcp | Carrier::Tls | Carrier::ZeroMq => node(dealt.carrier, id, settings).map(Arc::from),
        other => Err(format!("{other} carries no topology: tcp, tls, zeromq or local do")),
    }
}
