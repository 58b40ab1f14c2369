//! The limit: what this machine's kernel lets any epoll server do. Told the request size, it parses nothing.
//!
//! N loops, each with its own epoll; an acceptor hands connections round. A loop waits, reads once from each ready
//! socket, divides what it has by the request size and answers that many `+OK`. With a journal, a loop first
//! overwrites a file with the bytes of its batch and calls fdatasync, then replies: bare group commit.
//! A first read that is shorter than one request is a client's greeting (redis-benchmark asks for CONFIG): it gets
//! an error, which clients pass over. `count` has the dividing, and the parsing of the second limit server.

mod pool;

use std::collections::HashMap;
use std::fs::File;
use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::epoll;

use crate::count::{Counter, Counts};

/// What the server is told.
#[derive(Clone, Debug)]
pub struct Limit {
    /// Loops, each a thread.
    pub loops: usize,
    /// Bytes of every request.
    pub request_bytes: usize,
    /// Where the loops' journals go (`FILE.0`, `FILE.1`, ...), if replies wait for a sync.
    pub journal: Option<PathBuf>,
    /// Count requests by parsing RESP.
    pub parse: bool,
    /// A first read that is shorter than a request is a greeting, not a part of one.
    pub greeting: bool,
    /// Threads behind one poller in place of the loops; none: loops.
    pub pool: Option<usize>,
}

/// Serves connections of `listener` for ever.
///
/// # Errors
/// A loop or its journal cannot be made, or the listener fails.
pub fn serve(listener: &TcpListener, limit: &Limit, counts: &Arc<Counts>) -> Result<()> {
    if let Some(threads) = limit.pool {
        return pool::serve(listener, limit, threads, counts);
    }
    let mut loops = Vec::new();
    for index in 0..limit.loops {
        let one = Arc::new((epoll::create(epoll::CreateFlags::CLOEXEC)?, Mutex::new(HashMap::new())));
        let journal = limit.journal.as_ref().map(|path| Journal::create(path, index)).transpose()?;
        let (shared, limit, counts) = (Arc::clone(&one), limit.clone(), Arc::clone(counts));
        let run = move || Loop { shared, limit, counts, journal, connections: Vec::new() }.run();
        std::thread::Builder::new().name(format!("limit-{index}")).spawn(run)?;
        loops.push(one);
    }
    for index in 0.. {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let (poller, arrived) = &*loops[index % loops.len()];
        let fd = stream.as_raw_fd();
        let mut arrived = arrived.lock().unwrap_or_else(PoisonError::into_inner);
        epoll::add(poller, &stream, epoll::EventData::new_u64(fd as u64), epoll::EventFlags::IN)?;
        arrived.insert(fd as usize, stream);
    }
    Ok(())
}

/// An epoll and the connections that the acceptor put there and the loop has not seen yet.
type Shared = Arc<(OwnedFd, Mutex<HashMap<usize, TcpStream>>)>;

struct Loop {
    shared: Shared,
    limit: Limit,
    counts: Arc<Counts>,
    journal: Option<Journal>,
    connections: Vec<Option<(TcpStream, Counter)>>,
}

impl Loop {
    fn run(mut self) -> Result<()> {
        let mut events = Vec::with_capacity(1_024);
        let mut buffer = vec![0; BUFFER_BYTES];
        let oks = b"+OK\r\n".repeat(buffer.len());
        let mut replies = Vec::new();
        loop {
            events.clear();
            epoll::wait(&self.shared.0, rustix::buffer::spare_capacity(&mut events), None)?;
            for event in &events {
                self.read(event.data.u64() as usize, &mut buffer, &mut replies);
            }
            if let Some(journal) = &mut self.journal {
                self.counts.syncs.fetch_add(u64::from(journal.commit()?), Relaxed);
            }
            for (id, count) in replies.drain(..) {
                let Some((stream, _)) = &mut self.connections[id] else { continue };
                let reply = if count == 0 { b"-ERR size\r\n" } else { &oks[..5 * count] };
                if stream.write_all(reply).is_err() {
                    self.connections[id] = None;
                }
                self.counts.requests.fetch_add(count as u64, Relaxed);
            }
        }
    }

    /// Reads once from connection `id` and notes how many replies it is owed.
    fn read(&mut self, id: usize, buffer: &mut [u8], replies: &mut Vec<(usize, usize)>) {
        self.connections.resize_with(self.connections.len().max(id + 1), || None);
        if self.connections[id].is_none() {
            let arrived = self.shared.1.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
            let counter = Counter::new(self.limit.request_bytes, self.limit.parse, self.limit.greeting);
            self.connections[id] = arrived.map(|stream| (stream, counter));
        }
        let Some((stream, counter)) = &mut self.connections[id] else { return };
        let length = stream.read(buffer).unwrap_or(0);
        if length == 0 {
            self.connections[id] = None; // dropping the socket takes it out of the epoll
            return;
        }
        replies.extend(counter.count(&buffer[..length]).map(|count| (id, count)));
        if let Some(journal) = &mut self.journal {
            journal.batch.extend_from_slice(&buffer[..length]);
        }
    }
}

struct Journal {
    file: File,
    at: u64,
    batch: Vec<u8>,
}

impl Journal {
    fn create(path: &Path, index: usize) -> Result<Self> {
        let file = File::create(path.with_extension(index.to_string()))?;
        file.write_all_at(&vec![0; JOURNAL_BYTES as usize], 0)?;
        file.sync_all().map(|()| Self { file, at: 0, batch: Vec::new() })
    }

    /// Makes the batch durable; whether there was one.
    fn commit(&mut self) -> Result<bool> {
        if self.batch.is_empty() {
            return Ok(false);
        }
        self.at = if self.at + self.batch.len() as u64 > JOURNAL_BYTES { 0 } else { self.at };
        self.file.write_all_at(&self.batch, self.at)?;
        self.file.sync_data()?;
        self.at += self.batch.len() as u64;
        self.batch.clear();
        Ok(true)
    }
}

const JOURNAL_BYTES: u64 = 64 << 20;
/// Room for a request with the largest value that is measured.
const BUFFER_BYTES: usize = 128 << 10;
