//! What drives the servers: redis-benchmark, and the load engine for mixes and paced load.

pub mod generator;
pub mod idle;
pub mod redis_benchmark;
pub mod sync_probe;
