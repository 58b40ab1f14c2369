//! Loops that park and wake: connections leave a parked loop whole, it costs nothing, and nothing is lost while loops come and go.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use line::{Message, Server, connect_from, eventually, options};
use reactor::{Assignment, Balance, Connection, Connector, MoveError, Options, Reason};

const LOOPS: usize = 3;

macro_rules! under_both_drivers {
    ($($(#[$attribute:meta])* $name:ident),+ $(,)?) => {
        mod epoll { $($(#[$attribute])* #[test] fn $name() { super::$name(reactor::Connector::Epoll); })+ }
        mod uring { $($(#[$attribute])* #[test] fn $name() { super::$name(reactor::Connector::Uring); })+ }
    };
}

under_both_drivers! {
    parked_loops_send_all_connections_to_the_active_ones,
    whatever_a_connection_is_in_the_middle_of_goes_on_elsewhere,
    connection_whose_command_waits_leaves_after_its_message,
    parked_loop_does_nothing_until_it_is_posted_to,
    new_connections_go_to_active_loops,
    connection_is_not_moved_to_a_parked_loop,
    connection_on_its_way_to_a_loop_that_parks_is_sent_on,
    hosts_move_as_a_whole,
    loops_that_park_and_wake_under_pipelines_lose_and_double_nothing,
    shutdown_of_parked_loops_ends_each_connection_once,
    #[ignore = "minutes"]
    a_million_moves_of_loops_that_park_and_wake_lose_and_double_nothing,
}

fn server(connector: Connector) -> Server {
    let balance = Balance { interval: None, ..Balance::default() };
    Server::start(Options { balance, ..options(connector, LOOPS) })
}

fn counts(server: &Server) -> Vec<usize> {
    server.handle.loops().iter().map(|stats| stats.connections()).collect()
}

fn parked_loops_send_all_connections_to_the_active_ones(connector: Connector) {
    let server = server(connector);
    let (mut clients, connections): (Vec<_>, Vec<_>) = (0..90).map(|_| server.connect_known()).unzip();
    assert_eq!(counts(&server), [30, 30, 30]);
    server.handle.set_active_loops(2);
    eventually("one is empty", || counts(&server)[2] == 0);
    assert!(counts(&server)[..2].iter().all(|count| *count >= 30), "{:?}", counts(&server));
    server.handle.set_active_loops(1);
    eventually("two are empty", || counts(&server) == [90, 0, 0]);
    for (client, connection) in clients.iter_mut().zip(&connections) {
        assert_eq!(client.ask("where"), "0");
        assert_eq!(connection.loop_index(), 0);
    }
    let report = server.handle.active_loops();
    assert_eq!((report.count, report.reason, report.changes), (1, Reason::Fixed, 2));
}

fn whatever_a_connection_is_in_the_middle_of_goes_on_elsewhere(connector: Connector) {
    let server = server(connector);
    let (mut clients, connections): (Vec<_>, Vec<_>) = (0..LOOPS).map(|_| server.connect_known()).unzip();
    for client in &mut clients {
        client.send("hold 4 four\ntimer 50\necho half ");
    }
    eventually("all is there", || {
        connections.iter().all(|it| (it.output_bytes(), it.input_bytes()) == (5, 10))
    });
    server.handle.set_active_loops(1);
    eventually("all are on one loop", || counts(&server) == [LOOPS, 0, 0]);
    server.release(4);
    for client in &mut clients {
        client.expect("four");
        client.expect("timer");
        client.send("and half\n");
        client.expect("half and half");
    }
}

fn connection_whose_command_waits_leaves_after_its_message(connector: Connector) {
    let server = server(connector);
    let (mut clients, connections): (Vec<_>, Vec<_>) = (0..LOOPS).map(|_| server.connect_known()).unzip();
    clients.iter_mut().for_each(|client| client.send("park\nwhere\n"));
    eventually("all wait", || connections.iter().all(|connection| connection.commands() == 2));
    server.handle.set_active_loops(1);
    for (client, connection) in clients.iter_mut().zip(&connections) {
        // A parked loop takes posts.
        server.handle.post_to(connection, Message::Push("still there".to_owned()));
        client.expect("still there");
    }
    assert_eq!(counts(&server), [1, 1, 1]);
    for (client, connection) in clients.iter_mut().zip(&connections) {
        server.handle.post_to(connection, Message::Resume("go on".to_owned()));
        client.expect("go on");
        client.line().unwrap();
        eventually("it left", || connection.loop_index() == 0);
        assert_eq!(client.ask("where"), "0");
    }
}

fn parked_loop_does_nothing_until_it_is_posted_to(connector: Connector) {
    let server = server(connector);
    let (mut clients, connections): (Vec<_>, Vec<_>) = (0..LOOPS * 2).map(|_| server.connect_known()).unzip();
    // Timers that would be due on the loop that their connections leave.
    clients.iter_mut().for_each(|client| client.send("timer 30\n"));
    eventually("timers are set", || connections.iter().all(|connection| connection.commands() == 2));
    server.handle.set_active_loops(1);
    eventually("all left", || counts(&server) == [LOOPS * 2, 0, 0]);
    clients.iter_mut().for_each(|client| client.expect("timer"));
    let ticks = || [1, 2].map(|index| server.handle.loops()[index].ticks());
    let mut before = ticks();
    eventually("they have come to rest", || {
        let same = clients.iter_mut().all(|client| client.ask("echo on") == "on") && ticks() == before;
        before = ticks();
        same
    });
    for _ in 0..200 {
        clients.iter_mut().for_each(|client| assert_eq!(client.ask("echo on"), "on"));
        clients[0].send("hold 7 seven\n");
        server.release(7);
        clients[0].expect("seven");
    }
    assert_eq!(ticks(), before);
    assert!(server.handle.loops()[1].silent_for(clock::Nanos(u64::MAX)).is_none(), "it sleeps");
}

fn new_connections_go_to_active_loops(connector: Connector) {
    for assignment in [Assignment::LeastLoaded, Assignment::RoundRobin, Assignment::ByHost] {
        let server = Server::start(Options { assignment, ..options(connector, LOOPS) });
        server.handle.set_active_loops(2);
        let clients: Vec<_> = (1..=12).map(|host| connect_from(&server, host)).collect();
        assert_eq!(counts(&server), [6, 6, 0], "{assignment:?}");
        drop(clients);
    }
}

fn connection_is_not_moved_to_a_parked_loop(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    server.handle.set_active_loops(2);
    let moved = server.handle.move_connection(connection.id(), 2);
    assert_eq!(moved, Err(MoveError::ParkedLoop { index: 2, active: 2 }));
    server.handle.move_connection(connection.id(), 1).unwrap();
    eventually("it moved", || connection.loop_index() == 1);
    assert_eq!(client.ask("where"), "1");
}

/// An order is given, the loop that it names parks, and only then the order is followed.
fn connection_on_its_way_to_a_loop_that_parks_is_sent_on(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    server.handle.set_active_loops(LOOPS);
    client.send("park\n");
    eventually("it waits", || connection.commands() == 2);
    server.handle.move_connection(connection.id(), 2).unwrap();
    eventually("the order was taken", || server.handle.mailbox_depth(connection.loop_index()) == 0);
    server.handle.set_active_loops(2);
    server.handle.post_to(&connection, Message::Resume("go".to_owned()));
    client.expect("go");
    eventually("it is on an active loop", || counts(&server)[2] == 0);
    assert_eq!(client.ask("echo here"), "here");
    assert!(connection.loop_index() < 2);
}

fn hosts_move_as_a_whole(connector: Connector) {
    let server = Server::start(Options { assignment: Assignment::ByHost, ..options(connector, LOOPS) });
    let from = |host| (0..3).map(|_| connect_from(&server, host)).collect::<Vec<_>>();
    let mut hosts: Vec<_> = (1..=6).map(from).collect();
    for (active, expected) in [(1, [18, 0, 0]), (3, [6, 6, 6]), (2, [9, 9, 0]), (3, [6, 6, 6])] {
        server.handle.set_active_loops(active);
        eventually("hosts are dealt", || counts(&server) == expected);
        for host in &mut hosts {
            let homes: Vec<_> = host.iter().map(|(_, connection)| connection.loop_index()).collect();
            assert!(homes.iter().all(|home| *home == homes[0]), "{active}: {homes:?}");
            host.iter_mut().for_each(|(client, _)| assert_eq!(client.ask("echo on"), "on"));
        }
        // And whoever comes goes to the others of the host.
        let (_client, late) = connect_from(&server, 1);
        assert_eq!(late.loop_index(), hosts[0][0].1.loop_index());
        drop(_client);
        eventually("it left", || server.handle.connection_count() == 18);
    }
}

/// Parks and wakes loops until connections have moved `moves` times.
fn park_and_wake(server: &Server, connections: &[Arc<Connection>], moves: u64, enough: &AtomicBool) {
    let mut round = 0;
    while connections.iter().map(|connection| connection.moves()).sum::<u64>() < moves {
        for active in [1, LOOPS, 2, 1, 2, LOOPS] {
            server.handle.set_active_loops(active);
            for (index, connection) in connections.iter().enumerate() {
                // Refused when that loop is parked: others need not know which are.
                let _ = server.handle.move_connection(connection.id(), (round + index) % LOOPS);
            }
            thread::yield_now();
        }
        round += 1;
    }
    enough.store(true, Ordering::Relaxed);
}

fn moves_under_pipelines(connector: Connector, moves: u64) {
    const CLIENTS: usize = 8;
    let balance = Balance { interval: Some(Duration::from_millis(10)), ..Balance::default() };
    let server = Server::start(Options { balance, ..options(connector, LOOPS) });
    let (clients, connections): (Vec<_>, Vec<_>) = (0..CLIENTS).map(|_| server.connect_known()).unzip();
    let (enough, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let enough = &enough;
    thread::scope(|scope| {
        scope.spawn(|| park_and_wake(&server, &connections, moves, enough));
        scope.spawn(|| {
            // Every ticket is released soon, as a journal would.
            let mut ticket = 0;
            while !stop.load(Ordering::Relaxed) {
                ticket += 25;
                server.release(ticket);
                thread::yield_now();
            }
        });
        scope.spawn(|| {
            for number in 0..500 {
                for connection in &connections {
                    assert!(server.handle.post_to(connection, Message::Push(format!("push {number}"))));
                }
            }
        });
        let ask = |mut client: line::Client<_>| scope.spawn(move || client.ask_until(enough, 500));
        let running: Vec<_> = clients.into_iter().map(ask).collect();
        running.into_iter().for_each(|client| client.join().unwrap());
        stop.store(true, Ordering::Relaxed);
    });
    server.handle.set_active_loops(1);
    eventually("all came to the last one", || counts(&server)[1..] == [0, 0]);
}

fn loops_that_park_and_wake_under_pipelines_lose_and_double_nothing(connector: Connector) {
    moves_under_pipelines(connector, 2_000);
}

fn a_million_moves_of_loops_that_park_and_wake_lose_and_double_nothing(connector: Connector) {
    moves_under_pipelines(connector, 1_000_000);
}

fn shutdown_of_parked_loops_ends_each_connection_once(connector: Connector) {
    for _ in 0..10 {
        let server = server(connector);
        let mut clients: Vec<_> = (0..12).map(|_| server.connect_known().0).collect();
        server.handle.set_active_loops(1);
        server.handle.shutdown();
        server.handle.join();
        clients.iter_mut().for_each(|client| assert_eq!(client.rest(), b""));
    }
}

/// A reactor that adapts begins with one loop, and says why there are as many as there are.
#[test]
fn number_of_loops_at_the_start_is_one_or_has_a_reason() {
    let adaptive =
        |loops, balance| Options { adapts_loops: true, balance, ..options(Connector::Epoll, loops) };
    let off = Balance { interval: None, ..Balance::default() };
    for (options, count, reason) in [
        (adaptive(4, Balance::default()), 1, Reason::Start),
        (adaptive(4, off), 3, Reason::Unknown),
        (adaptive(1, off), 1, Reason::Unknown),
        (options(Connector::Epoll, 4), 4, Reason::Fixed),
        (options(Connector::Threads, 4), 1, Reason::Fixed),
    ] {
        let server = Server::start(options);
        let report = server.handle.active_loops();
        assert_eq!((report.count, report.reason, report.changes), (count, reason, 0));
        let (mut client, connection) = server.connect_known();
        assert_eq!(client.ask("echo on"), "on");
        assert!(connection.loop_index() < count);
    }
}

#[test]
fn run_queue_delay_of_each_loop_is_told() {
    let server = Server::start(options(Connector::Epoll, 2));
    let told = || server.handle.loops().iter().all(|stats| stats.run_queue_delay().is_some());
    eventually("both threads have begun", told);
}
