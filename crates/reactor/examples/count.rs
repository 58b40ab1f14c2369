//! The reactor's own cost: a server that is told the size of a request, parses nothing and answers `+OK` for
//! each, as the limit server of `bench` does on bare epoll.
//!
//! `cargo run --release -p reactor --example count -- PORT LOOPS [REQUEST_BYTES] [epoll|uring|threads]`

#![allow(clippy::unwrap_used, reason = "a tool for the developer: a wrong argument may panic")]

use std::sync::Arc;

use clock::SystemClock;
use reactor::{Connection, Connector, Io, Options, Protocol, Reactor, Step};
use ticket::Ticket;

struct Count {
    request_bytes: usize,
}

impl Protocol for Count {
    type Session = ();
    type Message = ();

    fn on_open(&self, _: &Arc<Connection>) {}

    fn on_input(&self, (): &mut (), io: &mut Io<'_, Self>) -> Step {
        let count = io.input.len() / self.request_bytes;
        if count == 0 && io.connection.commands() == 0 {
            // A client's greeting (redis-benchmark asks for CONFIG).
            io.input.consume(io.input.len());
            io.output.buffer().extend_from_slice(b"-ERR size\r\n");
            return Step::Continue;
        }
        for _ in 0..count {
            io.output.buffer().extend_from_slice(b"+OK\r\n");
            io.output.hold(Ticket::NOTHING);
        }
        io.connection.add_commands(count as u64);
        io.input.consume(count * self.request_bytes);
        Step::Continue
    }

    fn on_message(&self, (): &mut (), (): (), _: &mut Io<'_, Self>) -> Step {
        Step::Continue
    }

    fn on_close(&self, (): (), _: &Arc<Connection>) {}

    fn refusal(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: usize| {
        arguments.get(index).map_or(default, |argument| argument.parse().unwrap())
    };
    let connector = match arguments.get(3).map(String::as_str) {
        Some("threads") => Connector::Threads,
        Some("uring") => Connector::Uring,
        _ => Connector::Epoll,
    };
    let options = Options {
        connector,
        loops: number(1, 2),
        tcp: vec![([127, 0, 0, 1], number(0, 7_002) as u16).into()],
        connections_max: 1_000_000,
        ..Options::default()
    };
    let protocol = Arc::new(Count { request_bytes: number(2, 144) });
    let handle = Reactor::start(options, protocol, Arc::new(SystemClock)).unwrap();
    println!("listening on {:?}", handle.tcp_addresses());
    handle.join();
}
