//! The limit: a socket, one thread that writes to it and one that reads. Nothing is framed, checked, acknowledged or handed on.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::apart::{Apart, Opening};
use super::load::{Carrier, Load, Outcome, join, message, observe, time_each, with_own};
use crate::Failure;

/// Bytes of a write and of a read.
const BUFFER_BYTES: usize = 64 << 10;

fn pair() -> std::io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let here = TcpStream::connect(listener.local_addr()?)?;
    let there = listener.accept()?.0;
    here.set_nodelay(true)?;
    there.set_nodelay(true)?;
    Ok((here, there))
}

/// A socket whose other end is in a process of its own.
fn apart(load: &Load, answers: bool) -> Result<(TcpStream, Apart), Failure> {
    let (apart, address) = Apart::start(&Opening::new(Carrier::Plain, load, answers, None))?;
    let here = TcpStream::connect(address).map_err(text)?;
    here.set_nodelay(true).map_err(text)?;
    Ok((here, apart))
}

fn one_way_apart(load: &Load) -> Result<Outcome, Failure> {
    let (here, apart) = apart(load, false)?;
    let stops = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| send(&here, load.size_bytes, &stops));
        let outcome = observe(load, &with_own(Some(apart.id())), &|| apart.count());
        stops.store(true, Ordering::Relaxed);
        join(sender)?;
        outcome
    })
}

pub(super) fn one_way(load: &Load) -> Result<Outcome, Failure> {
    if load.apart {
        return one_way_apart(load);
    }
    let (here, there) = pair().map_err(text)?;
    let (bytes, stops) = (AtomicU64::new(0), AtomicBool::new(false));
    let size_bytes = load.size_bytes as u64;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(|| receive(&there, &bytes));
        let sender = scope.spawn(|| send(&here, load.size_bytes, &stops));
        let outcome = observe(load, &with_own(None), &|| Ok(bytes.load(Ordering::Relaxed) / size_bytes));
        stops.store(true, Ordering::Relaxed);
        join(sender)?;
        join(receiver)?;
        outcome
    })
}

/// Copies messages into a buffer and writes it when the next one does not fit.
fn send(mut to: &TcpStream, size_bytes: usize, stops: &AtomicBool) -> Result<(), Failure> {
    let message = message(size_bytes);
    let mut buffer = Vec::with_capacity(BUFFER_BYTES.max(size_bytes));
    while !stops.load(Ordering::Relaxed) {
        buffer.extend_from_slice(&message);
        if buffer.len() + size_bytes > BUFFER_BYTES {
            to.write_all(&buffer).map_err(text)?;
            buffer.clear();
        }
    }
    to.shutdown(std::net::Shutdown::Write).map_err(text)
}

pub(super) fn receive(mut from: &TcpStream, bytes: &AtomicU64) -> Result<(), Failure> {
    let mut buffer = vec![0; BUFFER_BYTES];
    loop {
        let count = from.read(&mut buffer).map_err(text)?;
        if count == 0 {
            return Ok(());
        }
        bytes.fetch_add(count as u64, Ordering::Relaxed);
    }
}

/// There and back over `here`, whose other end answers.
fn ask(mut here: &TcpStream, load: &Load, other: Option<u32>) -> Result<Outcome, Failure> {
    let (message, mut answer) = (message(load.size_bytes), vec![0; load.size_bytes]);
    time_each(load, &with_own(other), || {
        here.write_all(&message).and_then(|()| here.read_exact(&mut answer)).map_err(text)
    })
}

pub(super) fn ping_pong(load: &Load) -> Result<Outcome, Failure> {
    if load.apart {
        let (here, apart) = apart(load, true)?;
        return ask(&here, load, Some(apart.id()));
    }
    let (here, there) = pair().map_err(text)?;
    std::thread::scope(|scope| {
        let echo = scope.spawn(|| echo(&there, load.size_bytes));
        let outcome = ask(&here, load, None);
        here.shutdown(std::net::Shutdown::Write).map_err(text)?;
        join(echo)?;
        outcome
    })
}

pub(super) fn echo(mut there: &TcpStream, size_bytes: usize) -> Result<(), Failure> {
    let mut buffer = vec![0; size_bytes];
    while there.read_exact(&mut buffer).is_ok() {
        there.write_all(&buffer).map_err(text)?;
    }
    Ok(())
}

#[expect(clippy::needless_pass_by_value, reason = "what map_err calls takes the error")]
fn text(error: std::io::Error) -> Failure {
    format!("plain: {error}")
}
