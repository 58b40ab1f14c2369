//! The server that Voldemort's report tried first: one poller that hands ready sockets to a pool of threads.
//!
//! The poller watches each socket for one event at a time and queues those that are ready; a thread of the pool takes one, reads,
//! replies, and has the poller watch it again. Each request thus costs a hand-over, a wake-up and a change of interest on top of
//! its read and write. The rest is as in the limit server, so the two compare the hand-over alone.

use std::collections::VecDeque;
use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{BUFFER_BYTES, Limit};
use crate::count::{Counter, Counts};

/// Serves connections of `listener` for ever, with `threads` threads behind the poller.
///
/// # Errors
/// The poller or a thread cannot be made, or the listener fails.
pub(super) fn serve(
    listener: &TcpListener,
    limit: &Limit,
    threads: usize,
    counts: &Arc<Counts>,
) -> Result<()> {
    let pool = Arc::new(Pool {
        poller: epoll::create(epoll::CreateFlags::CLOEXEC)?,
        connections: Mutex::default(),
        ready: Mutex::default(),
        arrived: Condvar::new(),
    });
    let shared = Arc::clone(&pool);
    std::thread::Builder::new().name("poller".to_owned()).spawn(move || shared.poll())?;
    for index in 0..threads {
        let (pool, counts) = (Arc::clone(&pool), Arc::clone(counts));
        std::thread::Builder::new().name(format!("pool-{index}")).spawn(move || pool.work(&counts))?;
    }
    loop {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        pool.take_in(stream, limit)?;
    }
}

/// A connection while nobody works on it; whoever does has it alone.
type Slot = Option<(TcpStream, Counter)>;

struct Pool {
    poller: OwnedFd,
    /// By descriptor.
    connections: Mutex<Vec<Slot>>,
    ready: Mutex<VecDeque<usize>>,
    arrived: Condvar,
}

impl Pool {
    fn take_in(&self, stream: TcpStream, limit: &Limit) -> Result<()> {
        let id = stream.as_raw_fd() as usize;
        let counter = Counter::new(limit.request_bytes, limit.parse, limit.greeting);
        let mut connections = lock(&self.connections);
        if connections.len() <= id {
            connections.resize_with(id + 1, || None);
        }
        epoll::add(&self.poller, &stream, EventData::new_u64(id as u64), ONE_EVENT)?;
        connections[id] = Some((stream, counter));
        Ok(())
    }

    fn poll(&self) -> Result<()> {
        let mut events = Vec::with_capacity(1_024);
        loop {
            events.clear();
            epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut events), None)?;
            let mut ready = lock(&self.ready);
            ready.extend(events.iter().map(|event| event.data.u64() as usize));
            drop(ready);
            match events.len() {
                1 => self.arrived.notify_one(),
                _ => self.arrived.notify_all(),
            }
        }
    }

    fn work(&self, counts: &Counts) -> Result<()> {
        let mut buffer = vec![0; BUFFER_BYTES];
        let oks = b"+OK\r\n".repeat(buffer.len());
        loop {
            let id = self.next();
            let Some((mut stream, mut counter)) = lock(&self.connections)[id].take() else { continue };
            let length = stream.read(&mut buffer).unwrap_or(0);
            if length == 0 {
                continue; // dropping the socket takes it out of the epoll
            }
            let count = counter.count(&buffer[..length]);
            let reply =
                count.map_or(&[][..], |count| if count == 0 { b"-ERR size\r\n" } else { &oks[..5 * count] });
            if stream.write_all(reply).is_err() {
                continue;
            }
            counts.requests.fetch_add(count.unwrap_or(0) as u64, Relaxed);
            // Back in its place before the poller may tell of it again.
            let mut connections = lock(&self.connections);
            let (stream, _) = connections[id].insert((stream, counter));
            epoll::modify(&self.poller, &*stream, EventData::new_u64(id as u64), ONE_EVENT)?;
        }
    }

    fn next(&self) -> usize {
        let mut ready = lock(&self.ready);
        loop {
            if let Some(id) = ready.pop_front() {
                return id;
            }
            ready = self.arrived.wait(ready).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const ONE_EVENT: EventFlags = EventFlags::IN.union(EventFlags::ONESHOT);
