//! A server that runs out of descriptors refuses, and serves again when some are free.
//!
//! In a process of its own, because the limit is the process's; hence one test in this file.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

mod line;

use std::net::TcpStream;

use line::{Client, PATIENCE, Server, eventually, options};
use reactor::Connector;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

fn limit_descriptors(count: u64) {
    let limit = Rlimit { current: Some(count), maximum: getrlimit(Resource::Nofile).maximum };
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn server_out_of_descriptors_refuses_and_recovers() {
    let server = Server::start(options(Connector::Epoll, 1));
    let (mut first, _) = server.connect_known();
    // Clients live in the same process: they take their sockets before the limit falls.
    let sockets: Vec<_> = (0..20)
        .map(|_| socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap())
        .collect();
    let highest = std::os::fd::AsRawFd::as_raw_fd(sockets.last().unwrap());
    limit_descriptors(highest as u64 + 6);
    let mut clients: Vec<_> = sockets
        .into_iter()
        .map(|socket| {
            socket.connect(&server.address().into()).unwrap();
            let stream = TcpStream::from(socket);
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            Client::new(stream)
        })
        .collect();
    eventually("accepts fail", || server.handle.accept_stats().failures() > 0);
    assert_eq!(first.ask("echo the open ones are served"), "the open ones are served");
    let served = clients.iter_mut().filter_map(|client| {
        client.send("echo in\n");
        client.line().filter(|line| line == "in")
    });
    let served = served.count();
    assert!((1..20).contains(&served), "{served} of 20 served");
    drop(clients);
    eventually("the served ones have gone", || server.handle.connection_count() == 1);
    let (mut late, _) = server.connect_known();
    assert_eq!(late.ask("echo there is room again"), "there is room again");
    assert!(server.handle.accept_stats().refused() > 0);
}
