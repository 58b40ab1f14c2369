//! A shared lane whose worker runs between the tasks of the databases' drivers.
#![allow(clippy::unwrap_used, missing_docs, reason = "a test fails by panicking")]

#[path = "../../txn/tests/shared_lane/cases.rs"]
mod cases;
#[path = "../../txn/tests/shared_lane/hand_offs.rs"]
mod hand_offs;

use std::sync::Arc;

use sql::Drivers;
use txn::shared_lane::LaneHost;

fn host() -> Arc<dyn LaneHost> {
    Drivers::start().unwrap()
}

const THREAD: &str = "txn-sql";
