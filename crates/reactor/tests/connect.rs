//! The client's side: connections that a reactor makes are served as those that come to it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests listen for themselves")]

mod line;

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use line::{Client, PATIENCE, Server, eventually, options};
use reactor::{Address, ConnectError, Connector, Dial, Options};

/// A reactor that listens nowhere.
fn client_side(connector: Connector, loops: usize) -> Server {
    Server::start(Options { tcp: Vec::new(), ..options(connector, loops) })
}

fn meets_its_server(connector: Connector) {
    let there = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = there.local_addr().unwrap();
    let here = client_side(connector, 2);
    let connection = here.handle.connect(Dial::to(address), PATIENCE).unwrap();
    let mut other = Client::new(there.accept().unwrap().0);
    assert_eq!(connection.peer(), &Address::Tcp(address));
    assert_eq!(connection.local().to_string(), other.stream().peer_addr().unwrap().to_string());
    assert_eq!(other.ask("echo both speak"), "both speak");
    assert_eq!(here.protocol.opened.load(Ordering::SeqCst), 1);
    assert_eq!(here.handle.connection_count(), 1);
    drop(other);
    here.close_reason(connection.id());
}

#[test]
fn connection_that_was_made_is_served_under_epoll() {
    meets_its_server(Connector::Epoll);
}

#[test]
fn connection_that_was_made_is_served_under_threads() {
    meets_its_server(Connector::Threads);
}

#[test]
fn thousands_open_in_seconds_and_are_spread_over_the_loops() {
    const COUNT: usize = 1_500;
    reactor::raise_descriptor_limit(4 * COUNT as u64).unwrap();
    let server = Server::start(options(Connector::Epoll, 1));
    let here = client_side(Connector::Epoll, 3);
    let start = Instant::now();
    let outcomes = here.handle.connect_all(vec![Dial::to(server.address()); COUNT], PATIENCE);
    assert!(outcomes.iter().all(Result::is_ok));
    assert!(start.elapsed() < PATIENCE / 2, "took {:?}", start.elapsed());
    let loads: Vec<_> = here.handle.loops().iter().map(|stats| stats.connections()).collect();
    assert!(loads.iter().all(|count| *count == COUNT / 3), "{loads:?}");
    eventually("the server has them all", || server.handle.connection_count() == COUNT);
}

#[test]
fn dial_chooses_its_loop_and_its_own_address() {
    let server = Server::start(options(Connector::Epoll, 1));
    let here = client_side(Connector::Epoll, 3);
    let from = "127.0.0.7".parse().unwrap();
    let dial = Dial { from: Some(from), loop_index: Some(2), ..Dial::to(server.address()) };
    let connection = here.handle.connect(dial.clone(), PATIENCE).unwrap();
    assert_eq!(connection.loop_index(), 2);
    // A connection is counted before it is listed: by its acceptor, so that a limit holds; then by its loop.
    eventually("the server lists it", || server.handle.connections().len() == 1);
    let peer = server.handle.connections()[0].peer().clone();
    assert!(matches!(peer, Address::Tcp(address) if address.ip() == from), "{peer}");
    let nowhere = here.handle.connect(Dial { loop_index: Some(3), ..dial }, PATIENCE);
    assert!(matches!(nowhere, Err(ConnectError::UnknownLoop(3))), "{nowhere:?}");
}

#[test]
fn nobody_there_is_refused_and_others_are_not_held_up() {
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = Server::start(options(Connector::Epoll, 1));
    let here = client_side(Connector::Epoll, 1);
    let outcomes = here.handle.connect_all(vec![Dial::to(gone), Dial::to(server.address())], PATIENCE);
    assert!(matches!(outcomes[0], Err(ConnectError::Refused(_))), "{:?}", outcomes[0]);
    assert!(outcomes[1].is_ok());
}

/// A listener whose backlog is full drops what comes: the kernel tries again, a second later and then ever more seldom.
#[test]
fn connection_that_nobody_takes_ends_at_its_deadline() {
    let deaf = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    deaf.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    deaf.listen(0).unwrap();
    let address = deaf.local_addr().unwrap().as_socket().unwrap();
    let here = client_side(Connector::Epoll, 1);
    let (timeout, start) = (Duration::from_millis(300), Instant::now());
    let outcomes = here.handle.connect_all(vec![Dial::to(address); 8], timeout);
    let late = outcomes.iter().filter(|outcome| matches!(outcome, Err(ConnectError::TimedOut(_)))).count();
    assert!((1..8).contains(&late), "{outcomes:?}");
    assert!(start.elapsed() >= timeout && start.elapsed() < PATIENCE);
}

#[test]
fn unix_socket_is_connected_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("reactor.sock");
    let server = Server::start(Options { unix: Some(path.clone()), ..options(Connector::Epoll, 1) });
    let here = client_side(Connector::Epoll, 1);
    let to = Address::Unix(Arc::from(path.to_str().unwrap()));
    let dial = Dial { to, from: None, loop_index: None };
    here.handle.connect(dial.clone(), PATIENCE).unwrap();
    eventually("the server has it", || server.handle.connection_count() == 1);
    drop(server);
    assert!(matches!(here.handle.connect(dial, PATIENCE), Err(ConnectError::Refused(_))));
}
