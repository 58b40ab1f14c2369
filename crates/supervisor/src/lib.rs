//! Keeps the worker processes of topologies running: starts, watches, restarts and ends them.
//!
//! ```text
//!  server: submit, activate, kill ... -> Supervisor -> thread -> processes of topologies (`evenkeel worker`)
//!  server: reports           <- Supervisor <- status, a line of JSON each second <-/
//! ```
//!
//! | module | what |
//! |---|---|
//! | `lifecycle` | when a worker is started, told something, killed: a state machine without I/O |
//! | `group`, `drain` | the workers of a topology: which tasks they have, how tasks move, how all end together: the same |
//! | `messages` | what is said between supervisor and worker: job, orders, status |
//! | `tap` | looks of clients at what components emit |
//! | `place` | where the programs of components may be |
//! | `process` | one worker process, of which nothing is left when it has ended |
//! | `lease` | the token of a worker, and the connections that have logged in with it |
//! | `lines` | lines out of a pipe, with a bound |
//! | `topologies` | what all topologies are, shared by the thread and by callers |
//! | `thread` | the thread: it carries bytes, and does what the machines say |
//!
//! Invariants
//!   1. A worker has at most one process, and of one that has ended no process is left before the next one starts.
//!   2. A caller never waits for a process: it changes what is wanted, and the thread does it.
//!   3. What a worker writes is bounded: a status in bytes, its log in lines a second.
//!
//! Out of scope: keeping definitions (`server`), running them (`worker`).
//! Source: supervision trees of Erlang/OTP; docs/adr/0039-workers-and-their-supervisor.md.

mod drain;
mod group;
mod lease;
mod lifecycle;
mod lines;
mod messages;
mod place;
mod process;
mod supervisor;
mod tap;
mod thread;
mod topologies;

pub use lease::{Hold, Lease};
pub use lifecycle::State;
pub use messages::{
    Bounds, EDGE_LATENCIES_MAX, JOB_BYTES_MAX, Job, Order, Peer, STATUS_BYTES_MAX, Share, TAPPED_BYTES_MAX,
    Trial, Word,
};
pub use place::{Misplaced, Place};
pub use process::Limits;
pub use processes::Account;
pub use supervisor::{Admitted, Options, Submission, Supervisor};
pub use tap::{Look, TapError, Tapped};
pub use thread::USER;
pub use topologies::{Report, WorkerReport};
pub use topology::statistics::{
    ComponentStatus, EdgeStatus, FigureStatus, Latencies, Shares, Status, TimeSpent, Times,
};
