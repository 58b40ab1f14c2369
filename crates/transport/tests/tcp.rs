//! Nodes that talk over real sockets on loopback.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::node::{Node, OverTcp, all_came, pair, send_on, settings};
use common::{PATIENCE, eventually};
use transport::{NodeId, Settings, Transport};

promises!(OverTcp);
promises_over_sockets!(OverTcp);

#[test]
fn whatever_else_comes_to_the_port_is_closed_and_the_nodes_go_on() {
    let settings = Settings { handshake_timeout: Duration::from_millis(200), ..settings() };
    let (one, two) = pair(&OverTcp, &settings);
    let requests: [&[u8]; 4] =
        [b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\n\r\n", &[0; 100_000], b"EV\x01\x04\xFF\xFF\xFF\xFF"];
    for request in requests {
        let mut stranger = TcpStream::connect(&two.address).unwrap();
        stranger.set_read_timeout(Some(PATIENCE)).unwrap();
        // It may be closed before all is written.
        let _ = stranger.write_all(request);
        let _ = stranger.write_all(&[0; HEADER_REST]);
        let mut answer = Vec::new();
        let _ = stranger.read_to_end(&mut answer);
        assert!(answer.is_empty(), "nothing is told to a stranger");
    }
    let mut silent = TcpStream::connect(&two.address).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0, "closed after handshake_timeout");
    send_on(&one.sender(2), 1, 10, 10);
    all_came(&two, 1, 10);
    assert_eq!(one.transport.status(NodeId(2)).unwrap().connections, 1);
}

/// What makes a header of the bytes before.
const HEADER_REST: usize = 32;

#[test]
fn links_are_counted_on_the_loops_and_move_between_them_under_load() {
    const COUNT: u64 = 20_000;
    let (one, two) = pair(&OverTcp, &Settings { threads: 2, ..settings() });
    let loops = |node: &Node| node.transport.loops().iter().map(|one| one.connections()).sum::<usize>();
    assert_eq!((loops(&one), loops(&two)), (1, 1));
    std::thread::scope(|scope| {
        let sender = one.sender(2);
        scope.spawn(move || send_on(&sender, 1, COUNT, 64));
        for node in [&one, &two] {
            let connection = node.transport.connections()[0].clone();
            for _ in 0..10 {
                let to = 1 - connection.loop_index();
                node.transport.move_connection(connection.id(), to).unwrap();
                eventually("it moved", || connection.loop_index() == to);
            }
        }
    });
    all_came(&two, 1, COUNT);
    assert_eq!(one.transport.status(NodeId(2)).unwrap().connections, 1);
}
