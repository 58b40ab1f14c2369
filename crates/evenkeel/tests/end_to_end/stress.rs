//! A second of mixed clients that leave in the middle of anything, under each connector. A minute of each is in `long`.
#![allow(clippy::disallowed_methods, reason = "tests start processes and sockets")]

use std::time::Duration;

use crate::common::stress;

#[test]
fn no_connection_is_lost_or_stuck_under_epoll() {
    stress::run("epoll", Duration::from_secs(1));
}

#[test]
fn no_connection_is_lost_or_stuck_under_uring() {
    stress::run("uring", Duration::from_secs(1));
}

#[test]
fn no_connection_is_lost_or_stuck_under_threads() {
    stress::run("threads", Duration::from_secs(1));
}
