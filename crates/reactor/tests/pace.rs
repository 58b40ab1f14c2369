//! What a loop tells of itself while it works: heartbeat, lag, longest callback, processor time.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod line;

use std::time::Duration;

use clock::{Clock, SystemClock};
use line::{Server, eventually, options};
use reactor::{Connector, Doing};

#[test]
fn loop_in_a_callback_that_does_not_end_says_so_and_for_whom() {
    let server = Server::start(options(Connector::Epoll, 1));
    let (mut client, connection) = server.connect_known();
    let stats = &server.handle.loops()[0];
    eventually("it sleeps", || stats.silent_for(SystemClock.now()).is_none());
    let former_us = stats.lag_us().max();
    client.send("meet\n");
    server.protocol.meeting.wait();
    assert_eq!(stats.doing(), Doing::Callback(connection.id()));
    // No other callback may be longer, whatever keeps this machine from its work.
    let longer = Duration::from_micros(former_us + 2_000);
    eventually("its heart stands still", || stats.silent_for(SystemClock.now()).unwrap() > longer);
    server.protocol.meeting.wait();
    eventually("it sleeps again", || stats.silent_for(SystemClock.now()).is_none());
    eventually("the tick is in the books", || stats.lag_us().max() >= former_us + 2_000);
    let mut told = None;
    eventually("the callback is told of", || {
        told = stats.interval().longest.filter(|longest| longest.took >= longer);
        told.is_some()
    });
    let longest = told.unwrap();
    assert_eq!((longest.connection_id, longest.what.as_deref()), (connection.id(), Some("meet")));
    assert_eq!(client.ask("echo on"), "on");
}

#[test]
fn commit_at_the_end_of_a_tick_is_lag_and_waiting_but_no_load() {
    let server = Server::start(options(Connector::Epoll, 1));
    let (mut client, connection) = server.connect_known();
    let stats = &server.handle.loops()[0];
    server.protocol.commit_takes(Duration::from_millis(20));
    let mut ticket = 1;
    // Whether all wait is decided by time: ask for held replies until the loop believes it.
    eventually("a commit was waited for", || {
        client.send(&format!("hold {ticket} x\n"));
        eventually("it is held", || connection.output_bytes() > 0);
        server.release(ticket);
        client.expect("x");
        ticket += 1;
        stats.waited_ns() > 0
    });
    eventually("the tick is in the books", || stats.lag_us().max() >= 20_000);
    assert!(stats.waited_ns() >= 20_000_000);
    let (busy_ns, waited_ns, lags) = (stats.busy_ns(), stats.waited_ns(), stats.lag_us());
    let lags_ns = lags.mean() * lags.len() as f64 * 1e3;
    assert!(((busy_ns + waited_ns) as f64) < lags_ns + waited_ns as f64 / 2.0, "the wait is no work");
}

#[test]
fn loop_that_works_reads_its_processor_time_now_and_then() {
    let server = Server::start(options(Connector::Epoll, 1));
    let mut client = server.connect();
    let stats = &server.handle.loops()[0];
    eventually("processor time is known and grows", || {
        let before = stats.cpu_ns();
        client.send(&"echo x\n".repeat(100));
        (0..100).for_each(|_| client.expect("x"));
        before > 0 && stats.cpu_ns() > before
    });
    assert!(stats.lag_us().len() <= stats.ticks());
}
