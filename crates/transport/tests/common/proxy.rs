//! A proxy between two nodes, which a test has cut connections or swallow what comes.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

/// Forwards connections to one address.
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    to: SocketAddr,
    streams: Mutex<Vec<TcpStream>>,
    swallows: AtomicBool,
    /// Most that is forwarded at once.
    piece_bytes: usize,
    /// What connections sent to `to`, one after the other.
    sent: Mutex<Vec<u8>>,
    stops: AtomicBool,
    forwarded_bytes: AtomicUsize,
}

impl Proxy {
    pub fn start(to: &str) -> Self {
        Self::in_pieces(to, 10_000)
    }

    /// Forwards at most `piece_bytes` at once.
    pub fn in_pieces(to: &str, piece_bytes: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            to: to.parse().unwrap(),
            streams: Mutex::default(),
            swallows: AtomicBool::new(false),
            piece_bytes,
            sent: Mutex::default(),
            stops: AtomicBool::new(false),
            forwarded_bytes: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        thread::Builder::new().spawn(move || shared.accept(&listener)).unwrap();
        Self { address, state }
    }

    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends all connections, after whatever bytes are forwarded by now.
    pub fn cut(&self) {
        for stream in self.state.streams.lock().unwrap().drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Keeps connections open and forwards nothing, or goes on.
    pub fn swallow(&self, swallows: bool) {
        self.state.swallows.store(swallows, Ordering::SeqCst);
    }

    /// The first `count` bytes that were sent through it to where it forwards to, as far as they came.
    pub fn first_sent(&self, count: usize) -> Vec<u8> {
        self.state.sent.lock().unwrap().iter().copied().take(count).collect()
    }

    pub fn forwarded_bytes(&self) -> usize {
        self.state.forwarded_bytes.load(Ordering::SeqCst)
    }
}

/// So much of what was sent is kept.
const SENT_BYTES_MAX: usize = 64 << 10;

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.stops.store(true, Ordering::SeqCst);
        self.cut();
        let _ = TcpStream::connect(self.address);
    }
}

impl State {
    fn accept(self: &Arc<Self>, listener: &TcpListener) {
        for here in listener.incoming().map_while(Result::ok) {
            if self.stops.load(Ordering::SeqCst) {
                return;
            }
            let Ok(there) = TcpStream::connect(self.to) else { continue };
            let (here_too, there_too) = (here.try_clone().unwrap(), there.try_clone().unwrap());
            self.streams.lock().unwrap().extend([here_too, there_too]);
            let there_and_back = [(here.try_clone().unwrap(), there.try_clone().unwrap()), (there, here)];
            for (index, (from, to)) in there_and_back.into_iter().enumerate() {
                let state = Arc::clone(self);
                thread::Builder::new().spawn(move || state.forward(from, to, index == 0)).unwrap();
            }
        }
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream, is_sent: bool) {
        let mut buffer = vec![0; self.piece_bytes];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if self.swallows.load(Ordering::SeqCst) {
                continue;
            }
            if is_sent {
                let mut sent = self.sent.lock().unwrap();
                let room = SENT_BYTES_MAX.saturating_sub(sent.len());
                sent.extend_from_slice(&buffer[..count.min(room)]);
            }
            if to.write_all(&buffer[..count]).is_err() {
                break;
            }
            self.forwarded_bytes.fetch_add(count, Ordering::SeqCst);
        }
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
}
