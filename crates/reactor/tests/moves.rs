//! Live moves of connections between loops: nothing lost, nothing doubled, order kept.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod line;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use line::{Message, Server, eventually, options};
use reactor::{Balance, Connection, Connector, MoveError, Options};

const LOOPS: usize = 3;
/// Moves of the test under load.
const MOVES: u64 = 5_000;

macro_rules! under_both_drivers {
    ($($name:ident),+ $(,)?) => {
        mod epoll { $(#[test] fn $name() { super::$name(reactor::Connector::Epoll); })+ }
        mod uring { $(#[test] fn $name() { super::$name(reactor::Connector::Uring); })+ }
    };
}

under_both_drivers! {
    moved_connection_is_served_by_its_new_loop,
    move_of_what_is_not_there_is_refused_with_a_reason,
    half_a_request_moves_with_its_connection,
    held_replies_move_and_are_released_by_the_new_loop,
    parked_connection_moves_after_its_message,
    timer_moves_with_its_connection,
    unsent_output_and_unread_input_move_with_a_client_that_does_not_read,
    kill_reaches_a_connection_that_keeps_moving,
    shutdown_while_connections_move_sends_what_was_released_and_ends_each_once,
    thousands_of_moves_under_pipelined_load_lose_and_double_nothing,
    of_several_orders_to_move_the_last_holds,
    connection_that_comes_back_with_a_held_reply_is_listed_once,
    thousands_of_messages_are_handled_in_several_ticks,
    messages_that_wait_for_their_turn_move_with_their_connection,
}

fn server(connector: Connector) -> Server {
    Server::start(options(connector, LOOPS))
}

/// One whose balancer has its own idea of where connections belong, a hundred times a second.
fn server_with_opinions(connector: Connector) -> Server {
    let balance = Balance { interval: Some(Duration::from_millis(10)), ..Balance::default() };
    Server::start(Options { balance, ..options(connector, LOOPS) })
}

fn move_and_wait(server: &Server, connection: &Connection, to: usize) {
    server.handle.move_connection(connection.id(), to).unwrap();
    eventually("it moved", || connection.loop_index() == to);
}

fn moved_connection_is_served_by_its_new_loop(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    for to in [1, 2, 0, 2, 1, 0] {
        move_and_wait(&server, &connection, to);
        assert_eq!(client.ask("where"), to.to_string());
    }
    assert!(connection.moves() >= 5);
    let stats = server.handle.loops();
    let moves_in: u64 = stats.iter().map(|stats| stats.moves_in()).sum();
    let moves_out: u64 = stats.iter().map(|stats| stats.moves_out()).sum();
    assert_eq!((moves_in, moves_out), (connection.moves(), connection.moves()));
    assert_eq!(stats[0].connections(), 1);
}

fn move_of_what_is_not_there_is_refused_with_a_reason(connector: Connector) {
    let server = server(connector);
    let (_client, connection) = server.connect_known();
    let id = connection.id();
    let unknown = server.handle.move_connection(id + 77, 0);
    assert_eq!(unknown, Err(MoveError::UnknownConnection(id + 77)));
    let loops = server.handle.move_connection(id, LOOPS);
    assert_eq!(loops, Err(MoveError::UnknownLoop { index: LOOPS, count: LOOPS }));
}

fn half_a_request_moves_with_its_connection(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    client.send("echo half ");
    eventually("the half came", || connection.input_bytes() == 10);
    move_and_wait(&server, &connection, 1);
    client.send("and half\n");
    client.expect("half and half");
}

fn held_replies_move_and_are_released_by_the_new_loop(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    client.send("hold 4 four\nhold 6 six\n");
    eventually("replies are held", || connection.output_bytes() > 0);
    move_and_wait(&server, &connection, 1);
    client.send("hold 8 eight\n");
    eventually("one more is held", || connection.output_bytes() == 15);
    move_and_wait(&server, &connection, 2);
    for (ticket, text) in [(6, "four"), (6, "six"), (8, "eight")] {
        server.release(ticket);
        client.expect(text);
    }
}

fn parked_connection_moves_after_its_message(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    let from = connection.loop_index();
    client.send("park\nwhere\n");
    eventually("it parks", || connection.commands() == 2);
    let to = (from + 1) % LOOPS;
    server.handle.move_connection(connection.id(), to).unwrap();
    server.handle.post_to(&connection, Message::Push("still here".to_owned()));
    client.expect("still here");
    assert_eq!(connection.loop_index(), from);
    server.handle.post_to(&connection, Message::Resume("go".to_owned()));
    client.expect("go");
    eventually("it moved", || connection.loop_index() == to);
    assert!(client.line().is_some());
}

fn timer_moves_with_its_connection(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    client.send("timer 50\n");
    eventually("the timer is set", || connection.commands() == 2);
    move_and_wait(&server, &connection, 1);
    client.expect("timer");
}

fn unsent_output_and_unread_input_move_with_a_client_that_does_not_read(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    client.send(&"big 100000\n".repeat(300));
    eventually("it is paused", || connection.output_bytes() > 1_000_000);
    for to in [1, 2, 0, 1] {
        move_and_wait(&server, &connection, to);
    }
    for _ in 0..300 {
        assert_eq!(client.line().unwrap().len(), 100_000);
    }
}

fn kill_reaches_a_connection_that_keeps_moving(connector: Connector) {
    let server = server(connector);
    for round in 0..50 {
        let (mut client, connection) = server.connect_known();
        for to in 0..LOOPS {
            server.handle.move_connection(connection.id(), (round + to) % LOOPS).unwrap();
        }
        connection.kill();
        assert_eq!(client.line(), None);
    }
}

fn shutdown_while_connections_move_sends_what_was_released_and_ends_each_once(connector: Connector) {
    for round in 0..5 {
        let server = server(connector);
        let (mut clients, connections): (Vec<_>, Vec<_>) = (0..12).map(|_| server.connect_known()).unzip();
        clients.iter_mut().for_each(|client| client.send("hold 1 kept\n"));
        eventually("all hold", || connections.iter().all(|connection| connection.output_bytes() == 5));
        thread::scope(|scope| {
            scope.spawn(|| {
                while server.handle.connection_count() > 0 {
                    for (index, connection) in connections.iter().enumerate() {
                        let _ = server.handle.move_connection(connection.id(), (round + index) % LOOPS);
                        let _ = server.handle.move_connection(connection.id(), index % LOOPS);
                    }
                }
            });
            server.release(1);
            clients.iter_mut().for_each(|client| client.expect("kept"));
            clients.iter_mut().for_each(|client| client.send("hold 2 lost\n"));
            server.handle.shutdown();
            // One on its way to a loop that has ended already is ended here.
            server.handle.join();
            clients.iter_mut().for_each(|client| assert_eq!(client.rest(), b""));
        });
    }
}

/// Moves every connection around until enough moves took place, then says so.
fn shuffle(server: &Server, connections: &[Arc<Connection>], enough: &AtomicBool) {
    let mut round = 0;
    while connections.iter().map(|connection| connection.moves()).sum::<u64>() < MOVES {
        for (index, connection) in connections.iter().enumerate() {
            // Refused only when the connection has ended, which its client would notice.
            let _ = server.handle.move_connection(connection.id(), (round + index) % LOOPS);
        }
        round += 1;
        thread::yield_now();
    }
    enough.store(true, Ordering::Relaxed);
}

fn thousands_of_moves_under_pipelined_load_lose_and_double_nothing(connector: Connector) {
    const CLIENTS: usize = 8;
    let server = server_with_opinions(connector);
    let (clients, connections): (Vec<_>, Vec<_>) = (0..CLIENTS).map(|_| server.connect_known()).unzip();
    let (enough, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let enough = &enough;
    thread::scope(|scope| {
        scope.spawn(|| shuffle(&server, &connections, enough));
        scope.spawn(|| {
            // Every ticket is released soon, as a journal would.
            let mut ticket = 0;
            while !stop.load(Ordering::Relaxed) {
                ticket += 25;
                server.release(ticket);
                thread::yield_now();
            }
        });
        let poster = scope.spawn(|| {
            for number in 0..2_000 {
                for connection in &connections {
                    assert!(server.handle.post_to(connection, Message::Push(format!("push {number}"))));
                }
            }
        });
        let running: Vec<_> = clients
            .into_iter()
            .map(|mut client| scope.spawn(move || client.ask_until(enough, 2_000)))
            .collect();
        for client in running {
            client.join().unwrap();
        }
        poster.join().unwrap();
        stop.store(true, Ordering::Relaxed);
    });
}

/// A reply that waits for its ticket was listed again by each loop to which its connection came back, once a visit.
fn connection_that_comes_back_with_a_held_reply_is_listed_once(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    let home = connection.loop_index();
    client.send("hold 5 five\n");
    for _ in 0..3 {
        move_and_wait(&server, &connection, (home + 1) % LOOPS);
        move_and_wait(&server, &connection, home);
    }
    let stats = &server.handle.loops()[home];
    // The tick that takes the next line in is after the one of the arrival.
    client.send("hold 6 six\n");
    eventually("both are held", || connection.output_bytes() == 9);
    eventually("listed once", || stats.held() == 1);
    server.release(6);
    client.expect("five");
    client.expect("six");
}

/// An order that followed a connection to its next loop came after a newer one that was given there directly, and won.
fn of_several_orders_to_move_the_last_holds(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    let order = |to| server.handle.move_connection(connection.id(), to).unwrap();
    for round in 0..100 {
        let last = round % LOOPS;
        for step in 0..20 {
            order((round + step) % LOOPS);
            order((round + step + 1) % LOOPS);
        }
        order(last);
        // Not one after the other: it is also there in passing, on its way to where an earlier order sent it.
        eventually("it came, and no order is left", || {
            let moves = connection.moves();
            let taken = (0..LOOPS).all(|index| server.handle.mailbox_depth(index) == 0);
            taken && connection.loop_index() == last && connection.moves() == moves
        });
        // Two turns of its loop later whatever was on its way has arrived.
        (0..2).for_each(|_| assert_eq!(client.ask("where"), last.to_string(), "round {round}"));
    }
}

/// A message to 9,000 listeners came to a loop as so many posts, and it handled all of them before anybody else's request.
fn thousands_of_messages_are_handled_in_several_ticks(connector: Connector) {
    let server = Server::start(options(connector, 1));
    let (mut client, connection) = server.connect_known();
    client.send("meet\n");
    server.protocol.meeting.wait();
    let ticks = server.protocol.ticks.load(Ordering::SeqCst);
    for n in 0..8_000 {
        assert!(server.handle.post(connection.id(), Message::Push(n.to_string())));
    }
    server.protocol.meeting.wait();
    (0..8_000).for_each(|n| client.expect(&n.to_string()));
    let took = server.protocol.ticks.load(Ordering::SeqCst) - ticks;
    assert!(took >= 8_000 / 512, "{took} ticks");
}

fn messages_that_wait_for_their_turn_move_with_their_connection(connector: Connector) {
    let server = server(connector);
    let (mut client, connection) = server.connect_known();
    let to = (connection.loop_index() + 1) % LOOPS;
    client.send("meet\n");
    server.protocol.meeting.wait();
    let post = |n: u32| assert!(server.handle.post(connection.id(), Message::Push(n.to_string())));
    (0..300).for_each(post);
    server.handle.move_connection(connection.id(), to).unwrap();
    (300..3_000).for_each(post);
    server.protocol.meeting.wait();
    (0..3_000).for_each(|n: u32| client.expect(&n.to_string()));
    eventually("it has moved", || connection.loop_index() == to);
}
