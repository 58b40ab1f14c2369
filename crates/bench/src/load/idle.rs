//! Idle connections: each has been used once, then stays open and says nothing.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::Failure;

/// Opens `count` connections to `port`, uses each once (PING), and returns them open.
///
/// # Errors
/// A connection was refused or not answered; or this process may not open so many files.
pub fn open(port: u16, count: usize) -> Result<Vec<TcpStream>, Failure> {
    let mut connections = Vec::with_capacity(count);
    for _ in 0..count {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(|error| error.to_string())?;
        stream.write_all(b"*1\r\n$4\r\nPING\r\n").map_err(|error| error.to_string())?;
        let mut reply = [0; 7];
        stream.read_exact(&mut reply).map_err(|error| error.to_string())?;
        if &reply != b"+PONG\r\n" {
            return Err(format!(
                "PING on connection {}: {}",
                connections.len(),
                String::from_utf8_lossy(&reply)
            ));
        }
        connections.push(stream);
    }
    Ok(connections)
}

/// Raises the limit of open files of this process, and so of the servers that it starts, to the most allowed.
pub fn allow_many_files() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).ok();
}
