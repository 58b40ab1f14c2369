//! libzmq itself: PUSH and PULL with its default settings, one message for each of ours; there and back by PAIR.
//!
//! Nothing is acknowledged, and what is in its queues when a connection ends is lost: less than our transports promise.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use zmq::{Context, Message, Socket, SocketType};

use super::apart::{Apart, Opening};
use super::load::{Carrier, Load, Outcome, Pattern, join, message, observe, time_each};
use crate::Failure;

/// A sender without room looks this often whether it is the end.
const LOOK_EVERY_MS: i32 = 100;

pub(super) fn run(load: &Load) -> Result<Outcome, Failure> {
    let answers = load.pattern == Pattern::PingPong;
    let (apart, address) = Apart::start(&Opening::new(Carrier::Libzmq, load, answers, None))?;
    let context = Context::new();
    if answers { ask(&context, &address, load, &apart) } else { one_way(&context, &address, load, &apart) }
}

fn one_way(context: &Context, address: &str, load: &Load, apart: &Apart) -> Result<Outcome, Failure> {
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let senders: Vec<_> = (0..load.senders)
            .map(|_| scope.spawn(|| send(context, address, load.size_bytes, &stops)))
            .collect();
        let outcome = observe(load, &[std::process::id(), apart.id()], &|| apart.count());
        stops.store(true, Ordering::Relaxed);
        senders.into_iter().try_for_each(join)?;
        outcome
    })
}

/// A socket is for one thread, so each sender has its own.
fn send(context: &Context, address: &str, size_bytes: usize, stops: &AtomicBool) -> Result<(), Failure> {
    let socket = connected(context, SocketType::PUSH, address)?;
    let message = message(size_bytes);
    while !stops.load(Ordering::Relaxed) {
        match socket.send(&message[..], 0) {
            Ok(()) | Err(zmq::Error::EAGAIN) => {}
            Err(error) => return Err(text(error)),
        }
    }
    Ok(())
}

fn ask(context: &Context, address: &str, load: &Load, apart: &Apart) -> Result<Outcome, Failure> {
    let socket = connected(context, SocketType::PAIR, address)?;
    let (message, mut answer) = (message(load.size_bytes), Message::new());
    time_each(load, &[std::process::id(), apart.id()], || {
        socket.send(&message[..], 0).and_then(|()| socket.recv(&mut answer, 0)).map_err(text)
    })
}

fn connected(context: &Context, kind: SocketType, address: &str) -> Result<Socket, Failure> {
    let connect = || {
        let socket = context.socket(kind)?;
        socket.set_sndtimeo(LOOK_EVERY_MS)?;
        socket.set_linger(0)?;
        socket.connect(address)?;
        Ok(socket)
    };
    connect().map_err(text)
}

/// The receiving socket, and where it listens.
pub(super) fn listen(answers: bool) -> Result<(Socket, String), Failure> {
    let bind = || {
        let socket = Context::new().socket(if answers { SocketType::PAIR } else { SocketType::PULL })?;
        socket.bind("tcp://127.0.0.1:*")?;
        let address = socket.get_last_endpoint()?.unwrap_or_default();
        Ok((socket, address))
    };
    bind().map_err(text)
}

/// Counts what comes, and sends it back if asked.
pub(super) fn receive(socket: &Socket, answers: bool, bytes: &AtomicU64) {
    let mut message = Message::new();
    let mut count = 0;
    while socket.recv(&mut message, 0).is_ok() {
        count += message.len() as u64;
        bytes.store(count, Ordering::Relaxed);
        if answers && socket.send(&message[..], 0).is_err() {
            return;
        }
    }
}

fn text(error: zmq::Error) -> Failure {
    format!("libzmq: {error}")
}
