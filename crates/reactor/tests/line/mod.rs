//! A protocol of lines, and a client for it, shared by the tests of the reactor.
//!
//! | line | what it does |
//! |---|---|
//! | `echo X` | answers `X` |
//! | `hold T X` | answers `X` when ticket `T` is released |
//! | `append X` | answers `X` when the next ticket is released, which it takes |
//! | `aside X` | answers `X`, for which nobody waits |
//! | `big N` | answers a line of `N` bytes |
//! | `share N` | answers a line of `N` bytes that others hold as well |
//! | `park` | parks until a message comes |
//! | `wait` | parks until a message comes or the peer closes its side |
//! | `timer MS` | answers `timer` after that time |
//! | `where` | answers the index of the loop |
//! | `refuse X` | answers `X`, takes and drops what still comes, and ends the connection |
//! | `close`, `kill` | ends the connection, softly or not |
//! | `deny` | has the kernel refuse its loop to wait from now on |
//! | `meet` | holds its loop up from one meeting with the test to the next |
//! | `later X` | answers `X` through a message that the connection posts to itself |

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
#![allow(dead_code, reason = "each test file uses its part")]
#![allow(clippy::disallowed_methods, reason = "tests connect for themselves")]

#[path = "../../../evenkeel/tests/common/seccomp.rs"]
mod seccomp;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

use clock::SystemClock;
use reactor::{
    CloseReason, Connection, Connector, Handle, Input, Io, Listeners, Options, Protocol, Reactor, Step,
};
use socket2::{Domain, Socket, Type};
use ticket::Ticket;

/// Longest that any condition of a test may take to come true.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// By which loops wait.
#[cfg(target_arch = "x86_64")]
const WAITS: [libc::c_long; 3] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_io_uring_enter];
#[cfg(not(target_arch = "x86_64"))]
const WAITS: [libc::c_long; 2] = [libc::SYS_epoll_pwait, libc::SYS_io_uring_enter];
/// Commands of one call.
const BURST: usize = 16;

#[derive(Default)]
pub(crate) struct Lines {
    pub(crate) released: AtomicU64,
    /// Tickets that `append` took.
    pub(crate) appended: AtomicU64,
    /// Connections that opened before the protocol knew how to reach them.
    pub(crate) unreachable: AtomicUsize,
    is_reachable: AtomicBool,
    pub(crate) opened: AtomicUsize,
    pub(crate) ticks: AtomicUsize,
    /// Ends of ticks at which all waited.
    pub(crate) waits: AtomicUsize,
    /// Most inputs that were announced together.
    pub(crate) announced_max: AtomicUsize,
    pub(crate) meeting: Meeting,
    pub(crate) closed: Mutex<Vec<(u64, CloseReason)>>,
    /// Parts of the reactor that work no more.
    pub(crate) failures: Mutex<Vec<&'static str>>,
    /// How long the end of a tick takes at which all wait.
    commit_ms: AtomicU64,
    /// What ran last, and for which connection.
    last: Mutex<(u64, String)>,
}

/// Where a loop and a test wait for each other.
pub(crate) struct Meeting(Barrier);

impl Meeting {
    pub(crate) fn wait(&self) {
        self.0.wait();
    }

    fn wait_twice(&self) {
        self.wait();
        self.wait();
    }
}

impl Default for Meeting {
    fn default() -> Self {
        Self(Barrier::new(2))
    }
}

pub(crate) enum Message {
    /// Answers the line and ends a park.
    Resume(String),
    /// Answers the line and leaves a park as it is.
    Push(String),
}

impl Protocol for Lines {
    type Session = usize;
    type Message = Message;

    fn on_start(&self, _: &Handle<Self>) {
        assert!(!self.is_reachable.swap(true, Ordering::SeqCst), "it starts once");
    }

    fn on_open(&self, _: &Arc<Connection>) -> usize {
        self.unreachable.fetch_add(usize::from(!self.is_reachable.load(Ordering::SeqCst)), Ordering::SeqCst);
        self.opened.fetch_add(1, Ordering::SeqCst)
    }

    fn on_input(&self, _: &mut usize, io: &mut Io<'_, Self>) -> Step {
        for _ in 0..BURST {
            let Some(end) = io.input.bytes().iter().position(|byte| *byte == b'\n') else {
                return Step::Continue;
            };
            let line = String::from_utf8(io.input.bytes()[..end].to_vec()).unwrap();
            io.input.consume(end + 1);
            io.connection.add_commands(1);
            let step = self.run(&line, io);
            if step != Step::Continue {
                return step;
            }
            if io.output.is_full() {
                break;
            }
        }
        Step::Yield
    }

    fn on_ahead(&self, inputs: &mut dyn Iterator<Item = (&usize, &Input)>) {
        let count = inputs.filter(|(_, input)| input.bytes().ends_with(b"\n")).count();
        self.announced_max.fetch_max(count, Ordering::SeqCst);
    }

    fn on_message(&self, _: &mut usize, message: Message, io: &mut Io<'_, Self>) -> Step {
        match message {
            Message::Resume(text) => {
                answer(io, &text, 0);
                Step::Continue
            }
            Message::Push(text) => {
                answer(io, &text, 0);
                if io.parked { Step::Park } else { Step::Continue }
            }
        }
    }

    fn on_timer(&self, _: &mut usize, io: &mut Io<'_, Self>) -> Step {
        answer(io, "timer", 0);
        Step::Continue
    }

    fn on_close(&self, _: usize, connection: &Arc<Connection>) {
        self.closed.lock().unwrap().push((connection.id(), connection.close_reason()));
    }

    fn on_tick_end(&self, _: usize, all_wait: bool) {
        self.ticks.fetch_add(1, Ordering::SeqCst);
        self.waits.fetch_add(usize::from(all_wait), Ordering::SeqCst);
        let takes = Duration::from_millis(self.commit_ms.load(Ordering::SeqCst));
        if all_wait && !takes.is_zero() {
            let start = Instant::now();
            while start.elapsed() < takes {
                std::thread::park_timeout(takes);
            }
        }
    }

    fn doing(&self, connection_id: u64) -> Option<String> {
        let last = self.last.lock().unwrap();
        (last.0 == connection_id).then(|| last.1.clone())
    }

    fn released(&self) -> Ticket {
        Ticket::of(self.released.load(Ordering::SeqCst))
    }

    fn on_failure(&self, what: &'static str) {
        self.failures.lock().unwrap().push(what);
    }

    fn refusal(&self) -> &'static [u8] {
        b"too many\n"
    }
}

impl Lines {
    pub(crate) fn commit_takes(&self, time: Duration) {
        self.commit_ms.store(time.as_millis() as u64, Ordering::SeqCst);
    }

    fn run(&self, line: &str, io: &mut Io<'_, Self>) -> Step {
        let (name, rest) = line.split_once(' ').unwrap_or((line, ""));
        *self.last.lock().unwrap() = (io.connection.id(), name.to_owned());
        match name {
            "echo" => answer(io, rest, 0),
            "aside" => {
                io.set_patient();
                answer(io, rest, 0);
            }
            "hold" => {
                let (ticket, text) = rest.split_once(' ').unwrap();
                answer(io, text, ticket.parse().unwrap());
            }
            "append" => {
                let ticket = self.appended.fetch_add(1, Ordering::SeqCst) + 1;
                answer(io, rest, ticket);
            }
            "big" => answer(io, &"x".repeat(rest.parse().unwrap()), 0),
            "share" => {
                let bytes = "x".repeat(rest.parse().unwrap()).into_bytes();
                let (at, length) = (io.output.buffer().len(), bytes.len());
                io.output.buffer().push(b'\n');
                io.output.attach(at, Arc::new(bytes), 0..length);
                io.output.hold(Ticket::of(0));
            }
            "park" => return Step::Park,
            "wait" => {
                io.end_with_peer();
                return Step::Park;
            }
            "keep" => {
                io.keep_output();
                return Step::Park;
            }
            "withhold" => {
                io.withhold_output();
                return Step::Park;
            }
            "timer" => io.set_timer(Some(io.now + Duration::from_millis(rest.parse().unwrap()))),
            "where" => answer(io, &io.loop_index.to_string(), 0),
            "deny" => seccomp::answer(&WAITS, libc::EPERM as u32).unwrap(),
            "meet" => self.meeting.wait_twice(),
            "close" => return Step::Close,
            "refuse" => {
                answer(io, rest, 0);
                return Step::Refuse(64 << 20);
            }
            "kill" => return Step::Kill,
            "later" => {
                assert!(io.handle.post_to(io.connection, Message::Resume(rest.to_owned())));
                return Step::Park;
            }
            other => panic!("no such line: {other}"),
        }
        Step::Continue
    }
}

fn answer(io: &mut Io<'_, Lines>, text: &str, ticket: u64) {
    io.output.buffer().extend_from_slice(text.as_bytes());
    io.output.buffer().push(b'\n');
    io.output.hold(Ticket::of(ticket));
}

/// A running reactor that stops, in bounded time, when it is dropped.
pub(crate) struct Server {
    pub(crate) protocol: Arc<Lines>,
    pub(crate) handle: Handle<Lines>,
}

impl Server {
    pub(crate) fn start(options: Options) -> Self {
        Self::start_on(Listeners::open(&options).unwrap(), options)
    }

    pub(crate) fn start_on(listeners: Listeners, options: Options) -> Self {
        let (protocol, clock) = (Arc::new(Lines::default()), Arc::new(SystemClock));
        let connector = options.connector;
        let handle = Reactor::start_on(listeners, options, Arc::clone(&protocol), clock).unwrap();
        assert_eq!(handle.connector(), connector, "this test needs it: is io_uring switched off here?");
        Self { protocol, handle }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.handle.tcp_addresses()[0]
    }

    pub(crate) fn connect(&self) -> Client<TcpStream> {
        let stream = TcpStream::connect(self.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client::new(stream)
    }

    /// A client and the server's view of it, which has sent its greeting and keeps nothing.
    pub(crate) fn connect_known(&self) -> (Client<TcpStream>, Arc<Connection>) {
        let mut client = self.connect();
        assert_eq!(client.ask("echo here"), "here");
        let own = client.stream().local_addr().unwrap().to_string();
        let connections = self.handle.connections();
        let known = connections.into_iter().find(|connection| connection.peer().to_string() == own);
        let known = known.unwrap();
        all_sent(&known, 5);
        (client, known)
    }

    pub(crate) fn release(&self, ticket: u64) {
        self.protocol.released.store(ticket, Ordering::SeqCst);
        self.handle.wake_released();
    }

    pub(crate) fn close_reason(&self, id: u64) -> CloseReason {
        let closed = &self.protocol.closed;
        let find = || closed.lock().unwrap().iter().find(|(other, _)| *other == id).map(|(_, why)| *why);
        eventually("the connection ends", || find().is_some());
        find().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.handle.shutdown();
        self.handle.join();
        if std::thread::panicking() {
            return;
        }
        let closed = self.protocol.closed.lock().unwrap().len();
        assert_eq!(closed, self.protocol.opened.load(Ordering::SeqCst), "each open has its close");
        assert_eq!(self.handle.connection_count(), 0);
        assert!(self.handle.connections().is_empty());
        assert!(self.handle.loops().iter().all(|stats| stats.connections() == 0));
    }
}

pub(crate) fn connect_from(server: &Server, host: u8) -> (Client<TcpStream>, Arc<Connection>) {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from(([127, 0, 0, host], 0)).into()).unwrap();
    socket.connect(&server.address().into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let own = stream.local_addr().unwrap().to_string();
    let mut client = Client::new(stream);
    assert_eq!(client.ask("echo here"), "here");
    let known = server.handle.connections().into_iter().find(|c| c.peer().to_string() == own);
    (client, known.unwrap())
}

/// Options of a test: a free port, short grace.
pub(crate) fn options(connector: Connector, loops: usize) -> Options {
    Options {
        connector,
        loops,
        tcp: vec!["127.0.0.1:0".parse().unwrap()],
        close_grace: Duration::from_millis(300),
        ..Options::default()
    }
}

pub(crate) struct Client<S: Read + Write> {
    reader: BufReader<S>,
}

impl Client<UnixStream> {
    pub(crate) fn unix(path: &std::path::Path) -> Self {
        let stream = UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::new(stream)
    }
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { reader: BufReader::new(stream) }
    }

    pub(crate) fn stream(&self) -> &S {
        self.reader.get_ref()
    }

    pub(crate) fn stream_mut(&mut self) -> &mut S {
        self.reader.get_mut()
    }

    pub(crate) fn send(&mut self, lines: &str) {
        self.reader.get_mut().write_all(lines.as_bytes()).unwrap();
    }

    /// The next line, or nothing when the connection ended.
    pub(crate) fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        match self.reader.read_line(&mut line) {
            Ok(_) => line.strip_suffix('\n').map(str::to_owned),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => None,
            Err(error) => panic!("no line: {error}"),
        }
    }

    pub(crate) fn expect(&mut self, line: &str) {
        assert_eq!(self.line().as_deref(), Some(line));
    }

    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.send(&format!("{line}\n"));
        self.line().expect("an answer")
    }

    /// Sends pipelines of lines, of which some are answered late, until `enough`, and expects all answers in order; between them, in
    /// order, too, `pushes` pushes by the test.
    pub(crate) fn ask_until(&mut self, enough: &AtomicBool, pushes: usize) {
        let mut pushed = 0;
        for round in 0.. {
            if enough.load(Ordering::Relaxed) {
                break;
            }
            let from = round * 30;
            let lines = (from..from + 30).map(|number| match number % 10 {
                3 => format!("hold {number} {number}\n"),
                7 => format!("later {number}\n"),
                _ => format!("echo {number}\n"),
            });
            self.send(&lines.collect::<String>());
            let mut number = from;
            while number < from + 30 {
                let line = self.line().expect("an answer");
                match line.strip_prefix("push ") {
                    Some(push) => {
                        assert_eq!(push, pushed.to_string());
                        pushed += 1;
                    }
                    None => {
                        assert_eq!(line, number.to_string());
                        number += 1;
                    }
                }
            }
        }
        while pushed < pushes {
            self.expect(&format!("push {pushed}"));
            pushed += 1;
        }
    }

    /// Reads until the end; what came.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        match self.reader.read_to_end(&mut bytes) {
            Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => panic!("{error}"),
            _ => bytes,
        }
    }
}

/// Waits until `connection` has sent `bytes_out` bytes and keeps none. A client has a reply before the ring hears that it left,
/// and until then its bytes count as kept: as if they were held.
pub(crate) fn all_sent(connection: &Connection, bytes_out: u64) {
    eventually("all is sent", || connection.bytes_out() == bytes_out && connection.output_bytes() == 0);
}

/// Waits for `condition`.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Makes a test for each connector of each of these functions, which take one.
#[allow(unused_macros, reason = "each test file uses its part")]
macro_rules! under_each_connector {
    ($($name:ident),+ $(,)?) => {
        mod epoll { $(#[test] fn $name() { super::$name(reactor::Connector::Epoll); })+ }
        mod uring { $(#[test] fn $name() { super::$name(reactor::Connector::Uring); })+ }
        mod threads { $(#[test] fn $name() { super::$name(reactor::Connector::Threads); })+ }
    };
}
#[allow(unused_imports, reason = "each test file uses its part")]
pub(crate) use under_each_connector;
