//! What supervisor and worker say to each other: lines of JSON over the worker's standard input and output.
//!
//! ```text
//!  to the worker:    job                 once, the first line
//!                    order               as it is given
//!                    end of the input    end at once: the server is gone
//!  from the worker:  status              each second
//!                    word                in answer to some orders
//! ```

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a worker runs.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Job {
    /// The topology's name on this server, which goes before that in its definition.
    pub name: String,
    /// The text of the definition.
    pub definition: String,
    /// Values for `${name}`; those for `${ENV-NAME}` as `ENV-NAME`.
    pub properties: BTreeMap<String, String>,
    /// Where components may be.
    pub dir: PathBuf,
    /// The folder of it where those of this topology run; `None`: it itself.
    pub folder: Option<String>,
    /// Hosts that its components may post to.
    pub http_hosts: Vec<String>,
    /// What carries tuples between its workers: a name of `topology::definition::Transport`.
    pub transport: String,
    /// Spouts emit from the start.
    pub is_active: bool,
    /// What this process, and all that it starts, may take of the machine; the supervisor fills it in.
    #[serde(default)]
    pub bounds: Bounds,
    /// How it is tried, if it is.
    #[serde(default)]
    pub trial: Option<Trial>,
    /// What this worker has of it; the supervisor fills it in.
    #[serde(default)]
    pub share: Share,
}

/// How a definition is tried, beside the topology that it is to take the place of.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Trial {
    /// That topology.
    pub of: String,
    /// What the keys begin with that it writes.
    pub prefix: String,
    /// Where its spouts begin.
    pub from: String,
}

/// What a process may take of the machine. It sets them for itself before it starts anything: to set those of another user's process takes one more right.
#[derive(Clone, Copy, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Bounds {
    /// Most private writable memory of each process, in bytes.
    pub memory_bytes_max: Option<u64>,
    /// How much they give way to others: 0 to 19.
    pub nice: u32,
}

/// What a worker has of a topology.
#[derive(Clone, Default, Deserialize, Serialize, PartialEq, Eq)]
pub struct Share {
    /// Its number.
    pub worker: u32,
    /// Which start of its tasks this is: higher than each one before.
    pub start: u32,
    /// What its workers know, and nobody else.
    pub secret: String,
    /// Where this worker and its components reach the server, with the user and the token that they log in with.
    #[serde(default)]
    pub url: Option<String>,
    /// The worker of each task. Empty: all are here.
    pub places: Vec<u32>,
    /// Tasks that are about to move.
    pub held: Vec<u32>,
}

/// Another worker.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub struct Peer {
    /// Its number.
    pub worker: u32,
    /// Where it listens.
    pub address: String,
}

/// What a worker is told.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Let spouts emit.
    Activate,
    /// Let spouts emit nothing new.
    Deactivate,
    /// Finish what is under way, and end.
    Kill {
        /// Longest time for that.
        wait_ms: u64,
    },
    /// Listen to other workers, and say where.
    Listen,
    /// Talk to these workers.
    Peers(Vec<Peer>),
    /// A task is about to move: hold for it; where it is, finish what it has, end it and say so.
    Hold {
        /// The task.
        task: u32,
    },
    /// Start a task that was elsewhere, and say so; it waits for `Resume`.
    Adopt {
        /// The task.
        task: u32,
        /// Which start of it this is.
        start: u32,
    },
    /// A task is at another worker from now on: say that it is known.
    Place {
        /// The task.
        task: u32,
        /// Its worker.
        worker: u32,
    },
    /// All know where the task is: go on.
    Resume {
        /// The task.
        task: u32,
    },
    /// With exactly-once, to the worker that has the coordinator of epochs: all tasks are to begin anew, each at its worker here. Say when they have.
    Deal {
        /// The worker of each task.
        places: Vec<u32>,
    },
    /// Emit nothing new, and watch when nothing is under way.
    Drain,
    /// Say what was seen of what a component emits since the last time: the first time begins that.
    Tap {
        /// Names the look.
        cursor: u64,
        /// The component.
        component: String,
        /// The stream; `None`: all.
        stream: Option<String>,
        /// One tuple of so many.
        every: u64,
    },
    /// Say whether nothing is under way.
    Ask {
        /// The number of the question.
        round: u64,
    },
}

/// What a worker says beside its status.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Word {
    /// It listens to other workers.
    Listening {
        /// Where.
        address: String,
    },
    /// A task that is to move has ended here.
    Released {
        /// The task.
        task: u32,
    },
    /// A task that has moved has started here.
    Adopted {
        /// The task.
        task: u32,
    },
    /// It knows where a task is.
    Placed {
        /// The task.
        task: u32,
    },
    /// All tasks have begun where they were dealt.
    Dealt,
    /// What was seen of what a component emits.
    Tapped {
        /// Names the look.
        cursor: u64,
        /// Tuples, a line of JSON each.
        tuples: Vec<String>,
        /// Tuples for which there was no room.
        skipped: u64,
    },
    /// Whether nothing is under way.
    Quiet {
        /// The number of the question.
        round: u64,
        /// If so: how much other workers have sent since its start.
        received: Option<u64>,
    },
}

impl std::fmt::Debug for Share {
    /// Without the secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { worker, start, places, held, .. } = self;
        f.debug_struct("Share")
            .field("worker", worker)
            .field("start", start)
            .field("places", places)
            .field("held", held)
            .finish_non_exhaustive()
    }
}

/// Most bytes of the line of a job: a definition of 1 MiB, its properties, and what JSON adds.
pub const JOB_BYTES_MAX: usize = 16 << 20;
/// Most bytes of tuples in an answer to [`Order::Tap`].
pub const TAPPED_BYTES_MAX: usize = 1 << 20;
/// Edges of a topology of which latencies are told: they take most of a status, and there may be thousands of edges.
pub const EDGE_LATENCIES_MAX: usize = 1_000;
/// Most bytes of the line of a status.
pub const STATUS_BYTES_MAX: usize = 4 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_these_lines() {
        let line = |order| serde_json::to_string(&order).expect("JSON");
        assert_eq!(line(Order::Activate), r#""activate""#);
        assert_eq!(line(Order::Deactivate), r#""deactivate""#);
        assert_eq!(line(Order::Kill { wait_ms: 5 }), r#"{"kill":{"wait_ms":5}}"#);
        assert_eq!(line(Order::Adopt { task: 3, start: 9 }), r#"{"adopt":{"task":3,"start":9}}"#);
    }
}
