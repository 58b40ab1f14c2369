//! A shared lane whose worker has a thread of its own.
#![allow(missing_docs, reason = "a test")]

mod cases;
mod hand_offs;

use std::sync::Arc;

use txn::shared_lane::{LaneHost, LaneThread};

fn host() -> Arc<dyn LaneHost> {
    Arc::new(LaneThread::default())
}

const THREAD: &str = "txn-lane";
