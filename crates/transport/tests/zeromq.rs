//! Nodes that talk by libzmq on loopback.

#![cfg(feature = "zeromq")]
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use common::node::{A, Kind, Node, all_came, pair, send_on, settings};
use common::{PATIENCE, eventually};
use transport::zeromq::ZeroMq;
use transport::{Event, Incarnation, NodeId, Settings, Transport};

/// The transport `zeromq`.
struct OverZeroMq;

impl Kind for OverZeroMq {
    type Transport = ZeroMq;

    const ADDRESS: &str = "127.0.0.1:0";

    fn new_node(&self, id: u64, run: u64, settings: Settings) -> ZeroMq {
        ZeroMq::new(NodeId(id), Incarnation::new(run), settings, Arc::new(SystemClock)).unwrap()
    }
}

promises!(OverZeroMq);
promises_over_sockets!(OverZeroMq);

#[test]
fn whatever_else_comes_to_the_port_comes_to_nothing_and_the_nodes_go_on() {
    let settings = Settings { handshake_timeout: Duration::from_millis(200), ..settings() };
    let (one, two) = pair(&OverZeroMq, &settings);
    let requests: [&[u8]; 3] = [b"*1\r\n$4\r\nPING\r\n", b"GET / HTTP/1.1\r\n\r\n", &[0; 100_000]];
    for request in requests {
        let mut stranger = TcpStream::connect(&two.address).unwrap();
        // It may be closed before all is written.
        let _ = stranger.write_all(request);
    }
    let mut silent = TcpStream::connect(&two.address).unwrap();
    silent.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut greeting = Vec::new();
    silent.read_to_end(&mut greeting).unwrap();
    assert!(greeting.len() <= 64, "no more than libzmq's greeting until it is closed");
    send_on(&one.sender(2), 1, 10, 10);
    all_came(&two, 1, 10);
    assert_eq!(one.transport.status(NodeId(2)).unwrap().connections, 1);
}

#[test]
fn stranger_that_speaks_zeromq_is_told_that_it_is_over() {
    let (one, two) = pair(&OverZeroMq, &settings());
    let context = zmq::Context::new();
    let stranger = context.socket(zmq::DEALER).unwrap();
    stranger.set_linger(0).unwrap();
    stranger.set_rcvtimeo(PATIENCE.as_millis() as i32).unwrap();
    stranger.connect(&format!("tcp://{}", two.address)).unwrap();
    stranger.send("no chunk", 0).unwrap();
    assert_eq!(stranger.recv_bytes(0).unwrap(), [0]);
    stranger.send_multipart(["EV", "of", "many", "parts"], 0).unwrap();
    assert_eq!(stranger.recv_bytes(0).unwrap(), [0]);
    // Nobody answers the question whether somebody is there.
    stranger.send("", 0).unwrap();
    stranger.send("again", 0).unwrap();
    assert_eq!(stranger.recv_bytes(0).unwrap(), [0]);
    send_on(&one.sender(2), 1, 10, 10);
    all_came(&two, 1, 10);
}

#[test]
fn end_of_a_node_is_noticed_by_who_dialed_it_and_by_whom_it_dialed() {
    let settings = Settings {
        // Nothing but the end of a connection tells.
        heartbeat: Duration::from_secs(600),
        silence_max: Duration::from_secs(3_600),
        ..settings()
    };
    let nodes: Vec<Node<ZeroMq>> =
        (1..=3).map(|id| Node::start(&OverZeroMq, id, 1, settings.clone())).collect();
    for one in &nodes {
        for two in nodes.iter().filter(|two| two.transport.node() != one.transport.node()) {
            one.transport.connect(two.transport.node(), &two.address).unwrap();
        }
    }
    let [one, two, three] = &nodes[..] else { panic!("three nodes") };
    eventually("all are connected", || {
        one.is_up(2) && one.is_up(3) && two.is_up(1) && two.is_up(3) && three.is_up(1) && three.is_up(2)
    });
    two.transport.close();
    for other in [one, three] {
        eventually("its end is noticed", || other.collector.has(NodeId(2), Event::Down));
    }
    send_on(&one.sender(3), 1, 10, 10);
    eventually("the others go on", || three.collector.of(A).len() == 10);
    assert_eq!((one.is_up(3), three.is_up(1)), (true, true));
}
