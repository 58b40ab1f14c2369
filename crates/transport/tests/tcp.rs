//! Nodes that talk over real sockets on loopback.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use clock::SystemClock;
use common::node::{A, Node, all_came, join, pair, send_on, settings};
use common::proxy::Proxy;
use common::{Collector, PATIENCE, eventually, number_of, numbered, send_patiently};
use transport::tcp::Tcp;
use transport::{BindError, Channel, Event, Incarnation, NodeId, Receive, SendError, Settings, Transport};

#[test]
fn messages_of_all_sizes_arrive_in_order_in_both_directions_at_once() {
    let (one, two) = pair(&settings());
    let sizes = [0_usize, 1, 127, 128, 8 << 10, 64 << 10, (64 << 10) + 1, 1 << 20];
    std::thread::scope(|scope| {
        for (node, peer) in [(&one, 2), (&two, 1)] {
            let sender = node.sender(peer);
            scope.spawn(move || {
                for number in 0..400_u64 {
                    let message = numbered(number, sizes[number as usize % sizes.len()]);
                    send_patiently(&sender, A, &message);
                }
            });
        }
    });
    for node in [&one, &two] {
        all_came(node, 1, 400);
        let came = node.collector.of(A);
        let right = |(number, message): (usize, &Vec<u8>)| {
            *message == numbered(number as u64, sizes[number % sizes.len()])
        };
        assert!(came.iter().enumerate().all(right));
    }
    let too_large = one.sender(2).send(A, &vec![0; (1 << 20) + 1]).unwrap_err().to_string();
    assert_eq!(too_large, "a message of 1048577 B exceeds transport.message_size_max (1048576 B)");
}

#[test]
fn connections_that_are_cut_under_load_lose_and_double_nothing() {
    const COUNT: u64 = 30_000;
    let (one, two) = (Node::start(1, 1, settings()), Node::start(2, 1, settings()));
    let proxy = Proxy::start(&two.address);
    join(&one, &two, Some(&proxy.address()));
    std::thread::scope(|scope| {
        let (sender, back) = (one.sender(2), two.sender(1));
        scope.spawn(move || send_on(&sender, 3, COUNT, 300));
        scope.spawn(move || send_on(&back, 2, COUNT, 100));
        scope.spawn(|| {
            let mut at = proxy.forwarded_bytes();
            for _ in 0..20 {
                eventually("more is under way", || {
                    let all = two.collector.count() == 3 * COUNT as usize;
                    all || proxy.forwarded_bytes() >= at + 300_000
                });
                proxy.cut();
                at = proxy.forwarded_bytes();
            }
        });
    });
    all_came(&two, 3, COUNT);
    all_came(&one, 2, COUNT);
    let status = one.tcp.status(NodeId(2)).unwrap();
    assert!(status.connections > 5 && status.lost_messages == 0, "{status:?}");
}

#[test]
fn slow_receiver_stops_its_sender_within_the_bounds_of_memory() {
    let settings = Settings {
        channel_window_bytes: 2 << 20,
        link_window_bytes: 4 << 20,
        unacked_bytes_max: 4 << 20,
        ..settings()
    };
    let (one, two) = pair(&settings);
    two.collector.keep(A);
    let sender = one.sender(2);
    let mut sent = 0;
    eventually("the sender is told to wait", || match sender.send(A, &numbered(sent, 1_000)) {
        Ok(_) => {
            sent += 1;
            // For as long as its window lasts, which takes more than one refusal for want of acknowledgements.
            false
        }
        Err(error) => error == SendError::NoCredit && two.collector.kept() as u64 == sent,
    });
    assert!(sent * 1_016 <= 2 << 20, "{sent} messages");
    let (here, there) = (sender.status(), two.tcp.status(NodeId(1)).unwrap());
    assert!(here.kept_bytes <= settings.unacked_bytes_max, "{here:?}");
    assert!(there.held_bytes <= settings.channel_window_bytes, "{there:?}");
    send_patiently(&sender, Channel::reliable(1), b"another channel goes on");
    eventually("it came", || two.collector.of(Channel::reliable(1)).len() == 1);
    two.collector.release();
    eventually("the sender is told", || one.collector.has(NodeId(2), Event::Credit(A)));
    send_patiently(&sender, A, &numbered(sent, 1_000));
    eventually("nothing is missing", || two.numbers(A).into_iter().eq(0..=sent));
}

#[test]
fn whatever_else_comes_to_the_port_is_closed_and_the_nodes_go_on() {
    let (one, two) = pair(&Settings { handshake_timeout: Duration::from_millis(200), ..settings() });
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
    assert_eq!(one.tcp.status(NodeId(2)).unwrap().connections, 1);
}

/// What makes a header of the bytes before.
const HEADER_REST: usize = 32;

#[test]
fn peer_that_falls_silent_is_noticed_and_met_again() {
    let settings = Settings {
        heartbeat: Duration::from_millis(20),
        silence_max: Duration::from_millis(200),
        ..settings()
    };
    let (one, two) = (Node::start(1, 1, settings.clone()), Node::start(2, 1, settings));
    let proxy = Proxy::start(&two.address);
    join(&one, &two, Some(&proxy.address()));
    proxy.swallow(true);
    send_patiently(&one.sender(2), A, &numbered(0, 100));
    eventually("both notice", || !one.is_up(2) && !two.is_up(1));
    assert_eq!(one.sender(2).send(A, b"nobody"), Err(SendError::NotConnected));
    proxy.swallow(false);
    eventually("what was taken before the silence comes", || two.numbers(A) == [0]);
    assert!(one.collector.has(NodeId(2), Event::Down));
}

#[test]
fn idle_link_stays_up_by_its_heartbeats() {
    let settings = Settings {
        heartbeat: Duration::from_millis(10),
        silence_max: Duration::from_millis(300),
        ..settings()
    };
    let (one, two) = pair(&settings);
    let bytes_in = |node: &Node| node.tcp.connections().iter().map(|c| c.bytes_in()).sum::<u64>();
    let (before, start) = (bytes_in(&one), std::time::Instant::now());
    eventually("for longer than a silence", || start.elapsed() > 2 * settings.silence_max);
    assert!(bytes_in(&one) > before + 10 * 32, "heartbeats come");
    assert_eq!(one.tcp.status(NodeId(2)).unwrap().connections, 1);
    assert!(two.is_up(1));
}

#[test]
fn node_that_comes_back_with_nothing_gets_what_is_sent_to_it_and_no_more() {
    let (one, two) = pair(&settings());
    send_on(&one.sender(2), 1, 5, 10);
    all_came(&two, 1, 5);
    let address = two.address.clone();
    drop(two);
    eventually("its end is noticed", || !one.is_up(2));
    let two = Tcp::new(NodeId(2), Incarnation::new(2), settings(), Arc::new(SystemClock)).unwrap();
    let collector = Arc::new(Collector::default());
    two.receive(Arc::clone(&collector) as Arc<dyn Receive>);
    two.bind(&address).unwrap();
    two.connect(NodeId(1), &one.address).unwrap();
    send_patiently(&one.sender(2), A, &numbered(5, 10));
    eventually("what is new comes", || collector.count() == 1);
    assert_eq!((number_of(&collector.of(A)[0]), one.collector.restarts(NodeId(2))), (5, 1));
}

#[test]
fn unreachable_peer_is_told_of_once_while_attempts_go_on() {
    let settings = Settings { retries_max: 2, ..settings() };
    let one = Node::start(1, 1, settings.clone());
    let gone = Node::start(2, 1, settings.clone());
    let address = gone.address.clone();
    drop(gone);
    one.tcp.connect(NodeId(2), &address).unwrap();
    eventually("it is called unreachable", || one.collector.has(NodeId(2), Event::Unreachable));
    let two = Tcp::new(NodeId(2), Incarnation::new(1), settings, Arc::new(SystemClock)).unwrap();
    two.bind(&address).unwrap();
    two.connect(NodeId(1), &one.address).unwrap();
    eventually("it is met all the same", || one.is_up(2));
    assert_eq!(one.collector.times(NodeId(2), Event::Unreachable), 1);
}

#[test]
fn links_are_counted_on_the_loops_and_move_between_them_under_load() {
    const COUNT: u64 = 20_000;
    let (one, two) = pair(&Settings { threads: 2, ..settings() });
    let loops = |node: &Node| node.tcp.loops().iter().map(|one| one.connections()).sum::<usize>();
    assert_eq!((loops(&one), loops(&two)), (1, 1));
    std::thread::scope(|scope| {
        let sender = one.sender(2);
        scope.spawn(move || send_on(&sender, 1, COUNT, 64));
        for node in [&one, &two] {
            let connection = node.tcp.connections()[0].clone();
            for _ in 0..10 {
                let to = 1 - connection.loop_index();
                node.tcp.move_connection(connection.id(), to).unwrap();
                eventually("it moved", || connection.loop_index() == to);
            }
        }
    });
    all_came(&two, 1, COUNT);
    assert_eq!(one.tcp.status(NodeId(2)).unwrap().connections, 1);
}

#[test]
fn misuse_is_refused_with_the_reason() {
    let new = || Tcp::new(NodeId(1), Incarnation::new(1), settings(), Arc::new(SystemClock)).unwrap();
    let one = new();
    let exposed = one.bind("0.0.0.0:0").unwrap_err().to_string();
    assert!(exposed.starts_with("0.0.0.0:0 is beyond loopback"), "{exposed}");
    assert!(matches!(one.connect(NodeId(2), "10.0.0.7:7100"), Err(BindError::Exposed(_))));
    assert!(matches!(one.bind("localhost"), Err(BindError::Address { .. })));
    let address = one.bind("127.0.0.1:0").unwrap();
    assert!(matches!(one.bind("127.0.0.1:0"), Err(BindError::Bound)));
    assert!(matches!(new().bind(&address), Err(BindError::Listen { .. })));
    let sender = one.connect(NodeId(2), &address).unwrap();
    one.close();
    assert_eq!(sender.send(A, b""), Err(SendError::Closed));
    assert!(matches!(one.bind("127.0.0.1:0"), Err(BindError::Closed)));
    one.close();
}
