//! What users connect with: clients, libraries, tools, examples and databases. Each module says what it is about.

#[path = "../../../sql/tests/common/certificates.rs"]
mod certificates;
#[path = "../common/mod.rs"]
mod common;
mod console;
mod copy;
mod examples;
#[path = "../../../sql/tests/common/mariadb.rs"]
mod mariadb;
mod memcached;
#[path = "../../../sql/tests/common/postgres.rs"]
mod postgres;
mod prometheus;
mod queues;
mod redis_py;
mod redis_py_tour;
mod secure;
mod tls;
mod topologies;
#[path = "../../../sql/examples/transfer.rs"]
#[allow(dead_code, reason = "what it does with its process is left out")]
mod transfer;
