//! The binary from outside: through its ports, its command line, its files and its processes. Each module says what it is about.

mod abuse;
mod balance;
mod capture;
mod cli;
mod clock;
mod cold;
#[path = "../common/mod.rs"]
mod common;
mod eviction;
mod exactly;
mod exactly_windows;
mod faults;
mod full_disk;
mod guard_topologies;
mod http_sink;
mod idle_topologies;
mod large_removals;
mod leave;
mod operate_topologies;
mod refusals;
mod scripts;
#[path = "../common/seccomp.rs"]
mod seccomp;
mod space;
mod stress;
mod supervised;
mod topologies;
mod tx;
mod uring;
mod worker_limits;
#[cfg(feature = "zeromq")]
mod worker_transport;
