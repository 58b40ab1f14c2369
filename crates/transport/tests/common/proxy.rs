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
    stops: AtomicBool,
    forwarded_bytes: AtomicUsize,
}

impl Proxy {
    pub fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            to: to.parse().unwrap(),
            streams: Mutex::default(),
            swallows: AtomicBool::new(false),
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

    pub fn forwarded_bytes(&self) -> usize {
        self.state.forwarded_bytes.load(Ordering::SeqCst)
    }
}

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
            for (from, to) in [(here.try_clone().unwrap(), there.try_clone().unwrap()), (there, here)] {
                let state = Arc::clone(self);
                thread::Builder::new().spawn(move || state.forward(from, to)).unwrap();
            }
        }
    }

    fn forward(&self, mut from: TcpStream, mut to: TcpStream) {
        let mut buffer = vec![0; 10_000];
        while let Ok(count @ 1..) = from.read(&mut buffer) {
            if self.swallows.load(Ordering::SeqCst) {
                continue;
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
