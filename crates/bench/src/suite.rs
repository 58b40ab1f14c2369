//! The comparisons, in groups that can be run alone, and what they have in common.
//!
//! A group starts its servers, warms each up once, and measures them in turn: A, B, A, B, ... All run on the same
//! machine as the load, unpinned; the number of loops is in each command.

mod churn;
mod clients;
mod context;
mod disk;
mod journal_alone;
mod latency;
mod map;
mod memory;
mod messages;
mod overheads;
mod reported;
mod scale;
mod skew;
mod throughput;
mod transfers;
mod tx;
mod tx_narayana;
mod types;

use crate::Failure;
use crate::figure::Figure;
pub use context::Context;

/// A named group of figures.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What it is called on the command line.
    pub name: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// Measures it.
    pub run: fn(&Context) -> Result<Vec<Figure>, Failure>,
}

/// All groups, in the order of the table.
pub const GROUPS: &[Group] = &[
    Group { name: "limit", about: "engine noop beside the bare epoll server", run: throughput::limit },
    Group {
        name: "clients",
        about: "a hundred to 19,000 clients, engine noop beside the limit",
        run: clients::clients,
    },
    Group { name: "spread", about: "how far equal iterations lie apart", run: clients::spread },
    Group { name: "connectors", about: "connector epoll beside threads", run: clients::connectors },
    Group { name: "values", about: "values of 64 bytes to 64 KiB beside the limit", run: clients::values },
    Group { name: "uring", about: "connector uring beside epoll", run: clients::uring },
    Group { name: "pool", about: "a pool behind one poller beside loops", run: clients::pool },
    Group { name: "skew", about: "loops that connections burden unevenly", run: skew::skew },
    Group { name: "oscillation", about: "moves of ten minutes under a steady load", run: skew::oscillation },
    Group { name: "overheads", about: "what metrics and a capture cost", run: overheads::overheads },
    Group { name: "map", about: "Hazelcast's map test beside Hazelcast", run: map::map },
    Group { name: "redis", about: "durable SET beside Redis appendfsync always", run: throughput::redis },
    Group {
        name: "types",
        about: "commands of each type beside Redis and Valkey, no log",
        run: types::no_log,
    },
    Group {
        name: "types-durable",
        about: "commands of each type that write beside Redis and Valkey, durable",
        run: types::durable,
    },
    Group { name: "sync", about: "durable SET beside the bare group commit", run: throughput::sync },
    Group { name: "mix", about: "90 % GET, 10 % SET: durability always beside never", run: latency::mix },
    Group { name: "hot", about: "GET of one key that is written all the time", run: latency::hot },
    Group { name: "one", about: "one client's durable SET beside a raw write and sync", run: latency::one },
    Group {
        name: "journal",
        about: "the journal alone beside a plain loop of its I/O",
        run: journal_alone::run,
    },
    Group { name: "tx", about: "transactions on each decision log beside the bare disk", run: tx::tx },
    Group { name: "tx-narayana", about: "transactions beside Narayana's", run: tx_narayana::tx_narayana },
    Group {
        name: "transfers",
        about: "transfers between databases and keys beside both databases by hand",
        run: transfers::transfers,
    },
    Group {
        name: "transport",
        about: "messages between nodes beside libzmq and Storm's messaging layer",
        run: messages::transport,
    },
    Group { name: "topology", about: "topologies beside Storm's local cluster", run: messages::topology },
    Group { name: "written", about: "bytes written for each SET", run: disk::written },
    Group { name: "idle", about: "memory of an idle connection", run: memory::idle },
    Group { name: "keys", about: "memory of a key beside Redis", run: memory::keys },
    Group { name: "churn", about: "memory that is resident under churn, of memory.limit", run: churn::churn },
    Group { name: "disk", about: "disk used after overwriting, cleaning on", run: disk::overwritten },
    Group { name: "start", about: "time to start", run: disk::start },
    Group { name: "scale", about: "cost of one of many keys beside one of few", run: scale::scale },
];
