//! The balancer on running loops: connections spread, stuck loops are avoided, hosts stay together, nothing is kept.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod line;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clock::{Clock, SystemClock};
use line::{Client, Server, connect_from, eventually, options};
use reactor::{Assignment, Balance, By, Connection, Connector, Doing, Options};

const INTERVAL: Duration = Duration::from_millis(200);

fn every(interval: Duration) -> Balance {
    Balance { interval: Some(interval), ..Balance::default() }
}

fn start(loops: usize, assignment: Assignment, balance: Balance) -> Server {
    start_with(Connector::Epoll, loops, assignment, balance)
}

fn start_with(connector: Connector, loops: usize, assignment: Assignment, balance: Balance) -> Server {
    Server::start(Options { assignment, balance, ..options(connector, loops) })
}

fn off() -> Balance {
    Balance { interval: None, ..Balance::default() }
}

/// Puts all on loop 0.
fn gather(server: &Server, connections: &[Arc<Connection>]) {
    for connection in connections {
        server.handle.move_connection(connection.id(), 0).unwrap();
    }
    eventually("all are there", || connections.iter().all(|connection| connection.loop_index() == 0));
}

/// Has each client ask as fast as it is answered, in order, while `test` runs.
fn under_load(clients: Vec<Client<TcpStream>>, test: impl FnOnce()) {
    let stop = AtomicBool::new(false);
    let stop = &stop;
    thread::scope(|scope| {
        for mut client in clients {
            scope.spawn(move || {
                let mut number = 0u64;
                while !stop.load(Ordering::Relaxed) {
                    let asked: Vec<String> = (number..number + 20).map(|n| format!("echo {n}")).collect();
                    client.send(&format!("{}\n", asked.join("\n")));
                    asked.iter().for_each(|line| client.expect(line.strip_prefix("echo ").unwrap()));
                    number += 20;
                }
            });
        }
        test();
        stop.store(true, Ordering::Relaxed);
    });
}

fn counts(server: &Server) -> Vec<usize> {
    server.handle.loops().iter().map(|stats| stats.connections()).collect()
}

/// Spread by `by`, from all on one loop.
fn spreads(connector: Connector, by: By) {
    let server = start_with(connector, 2, Assignment::LeastLoaded, off());
    let (clients, connections): (Vec<_>, Vec<_>) = (0..12).map(|_| server.connect_known()).unzip();
    gather(&server, &connections);
    under_load(clients, || {
        server.handle.set_balance(Balance { by, ..every(INTERVAL) });
        eventually("they spread", || counts(&server).iter().all(|count| (3..=9).contains(count)));
        let stats = server.handle.loops();
        eventually("both loops are busy", || stats.iter().all(|stats| stats.interval().busy_permille() > 50));
        let busy = connections.iter().filter(|connection| connection.load_ns() > 0).count();
        assert!(busy > 6, "loads are told: {busy}");
        assert!(stats.iter().all(|stats| stats.interval().span >= INTERVAL / 2));
    });
    let moves: u64 = connections.iter().map(|connection| connection.moves()).sum();
    assert!(moves < 12 + 40, "{moves} moves, the gathering included");
}

#[test]
fn connections_on_one_loop_spread_by_time() {
    spreads(Connector::Epoll, By::Time);
}

/// The kernel's work for a connection is done in the ring's wait, not in its callback.
#[test]
fn connections_on_one_ring_spread_by_time() {
    spreads(Connector::Uring, By::Time);
}

#[test]
fn connections_on_one_loop_spread_by_bytes() {
    spreads(Connector::Epoll, By::Bytes);
}

#[test]
fn connections_on_one_loop_spread_by_events() {
    spreads(Connector::Epoll, By::Events);
}

#[test]
fn figures_are_there_with_balancing_off_and_nobody_moves() {
    let server = start(2, Assignment::LeastLoaded, off());
    let (clients, connections): (Vec<_>, Vec<_>) = (0..6).map(|_| server.connect_known()).unzip();
    gather(&server, &connections);
    let moves = || connections.iter().map(|connection| connection.moves()).sum::<u64>();
    let gathered = moves();
    under_load(clients, || {
        let busy = || server.handle.loops()[0].interval();
        eventually("the busy share is told", || busy().busy_permille() > 10 && busy().longest.is_some());
        eventually("loads are told", || connections.iter().all(|connection| connection.load_ns() > 0));
        // Not later: the clients leave with the load.
        assert_eq!((counts(&server), moves()), (vec![6, 0], gathered));
    });
}

#[test]
fn stuck_loop_is_told_of_avoided_and_forgiven() {
    let server = start(2, Assignment::RoundRobin, off());
    let (mut client, connection) = server.connect_known();
    let stuck = connection.loop_index();
    let stats = &server.handle.loops()[stuck];
    client.send("meet\n");
    server.protocol.meeting.wait();
    eventually("it is stuck", || stats.stuck_for(SystemClock.now()).is_some());
    assert_eq!(stats.doing(), Doing::Callback(connection.id()));
    eventually("it is counted", || stats.stuck_count() == 1);
    let others: Vec<_> = (0..6).map(|_| server.connect_known()).collect();
    assert!(others.iter().all(|(_, other)| other.loop_index() != stuck));
    server.protocol.meeting.wait();
    eventually("it moves again", || stats.stuck_for(SystemClock.now()).is_none());
    let later: Vec<_> = (0..6).map(|_| server.connect_known()).collect();
    assert_eq!(later.iter().filter(|(_, other)| other.loop_index() == stuck).count(), 3);
    assert_eq!(stats.stuck_count(), 1);
}

#[test]
fn connections_of_one_host_share_a_loop_and_stay_there() {
    let server = start(2, Assignment::ByHost, every(Duration::from_millis(20)));
    let from = |host| (0..4).map(|_| connect_from(&server, host)).collect::<Vec<_>>();
    let hosts: Vec<_> = (1..=4).map(from).collect();
    for host in &hosts {
        assert!(host.iter().all(|(_, connection)| connection.loop_index() == host[0].1.loop_index()));
    }
    assert_eq!(counts(&server), [8, 8]);
    let mut hosts = hosts;
    let (clients, connections): (Vec<_>, Vec<_>) = hosts.remove(0).into_iter().unzip();
    let home = connections[0].loop_index();
    under_load(clients, || {
        let stats = &server.handle.loops()[home];
        let ticks = stats.ticks();
        eventually("it was busy for a while", || stats.ticks() > ticks + 2_000);
    });
    assert!(connections.iter().all(|connection| connection.moves() == 0), "bound by host");
}

/// Three leaks in Hazelcast's balancer were books that outlived their connections.
#[test]
fn nothing_is_kept_of_connections_that_are_gone() {
    let server = start(2, Assignment::ByHost, every(Duration::from_millis(5)));
    let (clients, connections): (Vec<_>, Vec<_>) = (1..=8).map(|host| connect_from(&server, host)).unzip();
    eventually("figures were taken", || server.handle.loops()[0].interval().span > Duration::ZERO);
    let weak: Vec<_> = connections.iter().map(Arc::downgrade).collect();
    drop((clients, connections));
    eventually("all are gone", || weak.iter().all(|connection| connection.strong_count() == 0));
    assert_eq!(counts(&server), [0, 0]);
}

#[test]
fn round_robin_goes_round_whatever_closes() {
    let server = start(3, Assignment::RoundRobin, off());
    let all: Vec<_> = (0..9).map(|_| server.connect_known()).collect();
    assert_eq!(counts(&server), [3, 3, 3]);
    drop(all);
    eventually("all are gone", || counts(&server) == [0, 0, 0]);
    let (_one, first) = server.connect_known();
    let (_two, second) = server.connect_known();
    assert_eq!([first.loop_index(), second.loop_index()], [0, 1]);
}
