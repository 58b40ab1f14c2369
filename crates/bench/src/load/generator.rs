//! Our own load generator: groups of connections, in a closed loop or at a fixed rate, on one epoll.
//!
//! A closed-loop connection sends its next request when the reply to the last one has arrived. A paced group sends
//! at times fixed in advance, and latency counts from that time, not from when the generator got round to it: a
//! stalled server is charged for all that should have been sent meanwhile (no coordinated omission).
//!
//! An error reply, a nil where a value was stored, or a broken connection makes the run invalid.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rustix::event::{Timespec, epoll};

use crate::Failure;
use crate::client::{key, value};

/// Connections that do the same.
#[derive(Clone, Debug)]
pub struct Group {
    /// GET or SET.
    pub is_set: bool,
    /// Connections.
    pub connections: usize,
    /// The keys it works on, drawn evenly.
    pub keys: std::ops::Range<u64>,
    /// Requests a second of the whole group, or none for a closed loop.
    pub per_second: Option<u64>,
}

/// Drives `port` with `groups` for `duration` after a tenth of it as warm-up; latencies of each group in ns.
///
/// # Errors
/// A reply is an error, or not what was stored, or a connection broke: the run is invalid.
pub fn run(port: u16, groups: &[Group], duration: Duration) -> Result<Vec<Histogram<u64>>, Failure> {
    let mut generator = Generator::connect(port, groups)?;
    generator.run(duration / 10)?;
    for histogram in &mut generator.histograms {
        histogram.reset();
    }
    generator.run(duration)?;
    Ok(generator.histograms)
}

struct Generator {
    groups: Vec<Group>,
    connections: Vec<Connection>,
    histograms: Vec<Histogram<u64>>,
    poller: std::os::fd::OwnedFd,
    started: Instant,
    random: u64,
}

struct Connection {
    stream: TcpStream,
    group: usize,
    input: Vec<u8>,
    /// When each request under way was due, in ns since the generator's start.
    due: VecDeque<u64>,
    /// When the next paced request is due.
    next_due: u64,
}

impl Generator {
    fn connect(port: u16, groups: &[Group]) -> Result<Self, Failure> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(|error| error.to_string())?;
        let mut connections = Vec::new();
        for (group, of) in groups.iter().enumerate() {
            for index in 0..of.connections {
                let stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
                stream.set_nodelay(true).map_err(|error| error.to_string())?;
                stream.set_nonblocking(true).map_err(|error| error.to_string())?;
                let data = epoll::EventData::new_u64(connections.len() as u64);
                epoll::add(&poller, &stream, data, epoll::EventFlags::IN)
                    .map_err(|error| error.to_string())?;
                let next_due = of.per_second.map_or(u64::MAX, |rate| index as u64 * 1_000_000_000 / rate);
                connections.push(Connection {
                    stream,
                    group,
                    input: Vec::new(),
                    due: VecDeque::new(),
                    next_due,
                });
            }
        }
        let histogram =
            || Histogram::new_with_bounds(100, 60_000_000_000, 3).map_err(|error| error.to_string());
        let histograms = groups.iter().map(|_| histogram()).collect::<Result<_, _>>()?;
        let started = Instant::now();
        Ok(Self {
            groups: groups.to_vec(),
            connections,
            histograms,
            poller,
            started,
            random: 88_172_645_463_325_252,
        })
    }

    fn run(&mut self, duration: Duration) -> Result<(), Failure> {
        let end = self.now() + duration.as_nanos() as u64;
        for index in 0..self.connections.len() {
            let is_closed_loop = self.groups[self.connections[index].group].per_second.is_none();
            if is_closed_loop && self.connections[index].due.is_empty() {
                let now = self.now();
                self.send(index, now)?;
            }
        }
        let mut events = Vec::with_capacity(256);
        while self.now() < end {
            let next_due = self.send_due()?;
            let wait = next_due.min(end).saturating_sub(self.now());
            let wait = Timespec { tv_sec: (wait / 1_000_000_000) as _, tv_nsec: (wait % 1_000_000_000) as _ };
            events.clear();
            match epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut events), Some(&wait)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.to_string()),
            }
            for event in &events {
                self.receive(event.data.u64() as usize)?;
            }
        }
        Ok(())
    }

    /// Sends every paced request whose time has come; returns when the next one is due.
    fn send_due(&mut self) -> Result<u64, Failure> {
        let mut earliest = u64::MAX;
        for index in 0..self.connections.len() {
            let Some(rate) = self.groups[self.connections[index].group].per_second else { continue };
            let step = self.groups[self.connections[index].group].connections as u64 * 1_000_000_000 / rate;
            while self.connections[index].next_due <= self.now() {
                let due = self.connections[index].next_due;
                self.connections[index].next_due += step;
                self.send(index, due)?;
            }
            earliest = earliest.min(self.connections[index].next_due);
        }
        Ok(earliest)
    }

    fn send(&mut self, index: usize, due: u64) -> Result<(), Failure> {
        let group = &self.groups[self.connections[index].group];
        let number = group.keys.start + next_random(&mut self.random) % (group.keys.end - group.keys.start);
        let mut request = Vec::with_capacity(160);
        if group.is_set {
            resp::encode_command(
                &mut request,
                &[b"SET".as_slice(), &key(number), &value(number ^ due, VALUE_BYTES)],
            );
        } else {
            resp::encode_command(&mut request, &[b"GET".as_slice(), &key(number)]);
        }
        let connection = &mut self.connections[index];
        connection.due.push_back(due);
        connection.stream.write_all(&request).map_err(|error| format!("sending: {error}"))
    }

    fn receive(&mut self, index: usize) -> Result<(), Failure> {
        let mut chunk = [0; 4 << 10];
        let connection = &mut self.connections[index];
        match connection.stream.read(&mut chunk) {
            Ok(0) => return Err("the server closed a connection".to_owned()),
            Ok(length) => connection.input.extend_from_slice(&chunk[..length]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(error) => return Err(format!("receiving: {error}")),
        }
        let now = self.now();
        while self.take_reply(index, now)? {
            if self.groups[self.connections[index].group].per_second.is_none() {
                self.send(index, now)?;
            }
        }
        Ok(())
    }

    /// Takes one reply off the input and records its latency; whether there was a whole one.
    fn take_reply(&mut self, index: usize, now: u64) -> Result<bool, Failure> {
        let connection = &mut self.connections[index];
        let length = resp::skip_value(&connection.input).map_err(|error| error.to_string())?;
        let Some(length) = length else { return Ok(false) };
        let expected: &[u8] = if self.groups[connection.group].is_set { b"+OK" } else { b"$100" };
        if !connection.input.starts_with(expected) {
            return Err(format!(
                "invalid run: reply {}",
                String::from_utf8_lossy(&connection.input[..length]).trim()
            ));
        }
        connection.input.drain(..length);
        let due = connection.due.pop_front().ok_or("a reply without a request")?;
        self.histograms[connection.group].saturating_record(now.saturating_sub(due));
        Ok(true)
    }

    fn now(&self) -> u64 {
        self.started.elapsed().as_nanos() as u64
    }
}

fn next_random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

const VALUE_BYTES: usize = 100;
