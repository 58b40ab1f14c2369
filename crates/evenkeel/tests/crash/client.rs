//! A blocking client of one connection: as small as a test can use.
#![allow(clippy::disallowed_methods, reason = "a test speaks to the server through a socket of its own")]

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use resp::Value;

/// A reply that takes longer than this never comes.
const REPLY_TIME_MAX: Duration = Duration::from_secs(20);

pub struct Client {
    stream: TcpStream,
    output: Vec<u8>,
    input: Vec<u8>,
    consumed: usize,
}

impl Client {
    pub fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(REPLY_TIME_MAX))?;
        Ok(Self { stream, output: Vec::new(), input: Vec::new(), consumed: 0 })
    }

    /// Adds a command to what [`Client::flush`] sends.
    pub fn queue<A: AsRef<[u8]>>(&mut self, command: &[A]) {
        resp::encode_command(&mut self.output, command);
    }

    pub fn flush(&mut self) -> std::io::Result<()> {
        let result = self.stream.write_all(&self.output);
        self.output.clear();
        result
    }

    pub fn receive(&mut self) -> std::io::Result<Value> {
        loop {
            let pending = &self.input[self.consumed..];
            let decoded = resp::decode_value(pending).map_err(|e| Error::new(ErrorKind::InvalidData, e))?;
            if let Some((value, length)) = decoded {
                self.consumed += length;
                return Ok(value);
            }
            self.input.drain(..std::mem::take(&mut self.consumed));
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => self.input.extend_from_slice(&chunk[..count]),
            }
        }
    }

    /// Sends one command and waits for its reply.
    pub fn call<A: AsRef<[u8]>>(&mut self, command: &[A]) -> std::io::Result<Value> {
        self.queue(command);
        self.flush()?;
        self.receive()
    }
}
