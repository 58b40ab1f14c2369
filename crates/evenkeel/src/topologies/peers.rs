//! The other workers of a topology, as one of them reaches them. Which transport carries the tuples is decided here alone.

use std::sync::Arc;

use clock::SystemClock;
use supervisor::{Peer, Share};
use topology::Plan;
use topology::definition::Transport as Kind;
use topology::ids::{TaskId, WorkerId};
use transport::tcp::Tcp;
use transport::{BindError, Secret, Security, Transport};
use worker::carrier::{Carrier, incarnation, node, settings};
use worker::{Inbox, Move, Part};

use crate::failure::Failure;

/// The way to the other workers.
#[derive(Debug)]
pub(super) struct Peers {
    carrier: Arc<Carrier>,
}

impl Peers {
    /// No other worker so far; `transport` carries tuples to them. Those of the topology that runs as `name` have the same secret.
    ///
    /// # Errors
    /// One line: the secret is none, or this build has no such transport.
    pub(super) fn new(share: &Share, name: &str, transport: &str) -> Result<Self, Failure> {
        let transport = match Kind::named(transport) {
            Some(Kind::ZeroMq) => zeromq(share)?,
            _ => tcp(share, name)?,
        };
        Ok(Self { carrier: Carrier::new(transport) })
    }

    /// What this worker has of the topology `plan`. `moves` is told of its tasks that move.
    ///
    /// # Errors
    /// One line: it is of another topology.
    pub(super) fn part(
        &self,
        share: &Share,
        plan: &Plan,
        moves: impl Fn(Move) + Send + Sync + 'static,
    ) -> Result<Part, Failure> {
        let all = Part::all(plan);
        let places = match share.places.len() {
            0 => all.places,
            count if count == plan.tasks_count() as usize => {
                share.places.iter().map(|worker| WorkerId(*worker)).collect()
            }
            count => {
                let tasks = plan.tasks_count();
                return Err(Failure::Usage(format!("{count} tasks have places, and there are {tasks}")));
            }
        };
        Ok(Part {
            worker: WorkerId(share.worker),
            places,
            start: share.start.max(1),
            held: share.held.iter().map(|task| TaskId(*task)).collect(),
            links: Arc::clone(&self.carrier) as _,
            moves: Arc::new(moves),
        })
    }

    /// Begins to take what other workers send; where.
    ///
    /// # Errors
    /// Those of the transport.
    pub(super) fn listen(&self, inbox: Inbox) -> Result<String, BindError> {
        self.carrier.listen(inbox, LOOPBACK)
    }

    /// Talks to another worker from now on.
    pub(super) fn connect(&self, peer: &Peer) {
        let Peer { worker, address } = peer;
        if let Err(error) = self.carrier.connect(WorkerId(*worker), address) {
            tracing::error!(worker, address, %error, "another worker cannot be reached");
        }
    }
}

/// The transport `tcp`, on loopback. Others of this machine can connect there, and do not have the secret.
fn tcp(share: &Share, name: &str) -> Result<Arc<dyn Transport>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Usage(format!("no way to other workers: {error}"));
    let (id, run) = (node(WorkerId(share.worker)), incarnation(share.start.max(1)));
    let tcp = Tcp::new(id, run, settings(), Arc::new(SystemClock)).map_err(|error| failed(&error))?;
    if share.secret.is_empty() {
        return Ok(Arc::new(tcp));
    }
    let secret = Secret::new(share.secret.as_bytes()).map_err(|error| failed(&error))?;
    let security = Security::Secret { secret, cluster: name.to_owned() };
    Ok(Arc::new(tcp.secured(&security).map_err(|error| failed(&error))?))
}

/// The transport `zeromq`, on loopback, where it takes the word of whoever connects.
#[cfg(feature = "zeromq")]
fn zeromq(share: &Share) -> Result<Arc<dyn Transport>, Failure> {
    let (id, run) = (node(WorkerId(share.worker)), incarnation(share.start.max(1)));
    let made = transport::zeromq::ZeroMq::new(id, run, settings(), Arc::new(SystemClock));
    let failed = |error| Failure::Usage(format!("no way to other workers: {error}"));
    made.map(|it| Arc::new(it) as _).map_err(failed)
}

#[cfg(not(feature = "zeromq"))]
fn zeromq(_: &Share) -> Result<Arc<dyn Transport>, Failure> {
    let text = "this build has no transport zeromq: build evenkeel with `--features zeromq`";
    Err(Failure::Usage(text.to_owned()))
}

const LOOPBACK: &str = "127.0.0.1:0";
