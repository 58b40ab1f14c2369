//! A protocol with more to send than it wants in its output: it adds portions as the socket takes them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clock::SystemClock;
use reactor::{Connection, Connector, Handle, Io, Options, Protocol, Reactor, Step};

const PORTION: usize = 64 << 10;
const PORTIONS: usize = 200;
const PATIENCE: Duration = Duration::from_secs(20);

/// Sends so many portions for each byte that comes; a `p` parks it before.
#[derive(Default)]
struct Portions {
    output_max: AtomicUsize,
    sent: AtomicUsize,
}

impl Portions {
    fn send(&self, left: &mut usize, io: &mut Io<'_, Self>) {
        if *left > 0 && io.output.is_empty() {
            *left -= 1;
            io.output.buffer().extend_from_slice(&[*left as u8; PORTION]);
            self.sent.fetch_add(1, Ordering::SeqCst);
        }
        self.output_max.fetch_max(io.output.len(), Ordering::SeqCst);
        if *left > 0 {
            io.tell_when_sent();
        }
    }
}

impl Protocol for Portions {
    type Session = usize;
    type Message = ();

    fn on_open(&self, _: &Arc<Connection>) -> usize {
        0
    }

    fn on_input(&self, left: &mut usize, io: &mut Io<'_, Self>) -> Step {
        let (count, parks) = (io.input.len(), io.input.bytes().contains(&b'p'));
        io.input.consume(count);
        *left += count * PORTIONS;
        self.send(left, io);
        if parks { Step::Park } else { Step::Continue }
    }

    fn on_message(&self, _: &mut usize, (): (), _: &mut Io<'_, Self>) -> Step {
        Step::Continue
    }

    fn on_sent(&self, left: &mut usize, io: &mut Io<'_, Self>) -> Step {
        self.send(left, io);
        if io.parked { Step::Park } else { Step::Continue }
    }

    fn on_close(&self, _: usize, _: &Arc<Connection>) {}

    fn refusal(&self) -> &'static [u8] {
        b""
    }
}

struct Server {
    handle: Handle<Portions>,
    protocol: Arc<Portions>,
}

impl Server {
    fn start(connector: Connector) -> Self {
        let protocol = Arc::new(Portions::default());
        let tcp = vec!["127.0.0.1:0".parse().unwrap()];
        let options = Options { connector, tcp, loops: 2, ..Options::default() };
        let handle = Reactor::start(options, Arc::clone(&protocol), Arc::new(SystemClock)).unwrap();
        Self { handle, protocol }
    }

    fn client(&self, request: &[u8]) -> TcpStream {
        let mut client = TcpStream::connect(self.handle.tcp_addresses()[0]).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(request).unwrap();
        client
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.handle.join();
    }
}

fn portions_leave_one_by_one(connector: Connector, request: &[u8]) {
    let server = Server::start(connector);
    let mut slow = server.client(request);
    // What the kernel takes for one that does not read is far less than all.
    let start = Instant::now();
    while server.protocol.sent.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    // Others are served meanwhile.
    for _ in 0..2 {
        read_all(&mut server.client(b"x"));
    }
    read_all(&mut slow);
    assert_eq!(server.protocol.sent.load(Ordering::SeqCst), 3 * PORTIONS);
    assert_eq!(server.protocol.output_max.load(Ordering::SeqCst), PORTION, "one portion at a time");
}

fn read_all(client: &mut TcpStream) {
    let mut portion = vec![0; PORTION];
    for left in (0..PORTIONS).rev() {
        client.read_exact(&mut portion).unwrap();
        assert!(portion.iter().all(|byte| *byte == left as u8), "portion {left}");
    }
}

#[test]
fn portions_leave_one_by_one_under_epoll() {
    portions_leave_one_by_one(Connector::Epoll, b"x");
}

#[test]
fn portions_leave_one_by_one_under_uring() {
    portions_leave_one_by_one(Connector::Uring, b"x");
}

#[test]
fn portions_leave_one_by_one_under_threads() {
    portions_leave_one_by_one(Connector::Threads, b"x");
}

#[test]
fn portions_leave_also_while_the_connection_is_parked() {
    portions_leave_one_by_one(Connector::Epoll, b"p");
}

#[test]
fn connection_goes_on_sending_where_it_moved_to() {
    let server = Server::start(Connector::Epoll);
    let mut client = server.client(b"x");
    let start = Instant::now();
    while server.protocol.sent.load(Ordering::SeqCst) == 0 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::yield_now();
    }
    let connection = server.handle.connections()[0].clone();
    let to = 1 - connection.loop_index();
    server.handle.move_connection(connection.id(), to).unwrap();
    read_all(&mut client);
    assert_eq!((connection.loop_index(), connection.moves()), (to, 1));
}
