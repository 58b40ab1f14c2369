//! A blocking client of one connection: asks servers about themselves and fills them with keys.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use resp::Value;

use crate::Failure;
use crate::drive::Target;

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    input: Vec<u8>,
    consumed: usize,
}

impl Client {
    /// Connects to `port` of this machine.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn connect(port: u16) -> Result<Self, Failure> {
        let stream =
            TcpStream::connect(("127.0.0.1", port)).map_err(|error| format!("port {port}: {error}"))?;
        Self::over(stream)
    }

    /// Connects and logs in.
    ///
    /// # Errors
    /// Nobody listens there, or it does not let us in.
    pub fn connect_to(target: &Target) -> Result<Self, Failure> {
        let failed = |error: &dyn std::fmt::Display| format!("cannot connect to {target}: {error}");
        if target.secured.is_some() {
            return Err(failed(&"it measures plain connections alone, so far"));
        }
        let stream = TcpStream::connect_timeout(&target.address, CONNECT_TIMEOUT).map_err(|e| failed(&e))?;
        let mut client = Self::over(stream)?;
        for command in target.login() {
            client.send(command.as_bytes())?;
            if let Value::Error(text) = client.receive()? {
                return Err(failed(&String::from_utf8_lossy(&text)));
            }
        }
        Ok(client)
    }

    fn over(stream: TcpStream) -> Result<Self, Failure> {
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        stream.set_read_timeout(Some(Duration::from_secs(60))).map_err(|error| error.to_string())?;
        Ok(Self { stream, input: Vec::new(), consumed: 0 })
    }

    /// Sends a command and waits for its reply.
    ///
    /// # Errors
    /// The connection broke, or the reply is an error.
    pub fn call(&mut self, command: &[&str]) -> Result<Value, Failure> {
        let mut request = Vec::new();
        resp::encode_command(&mut request, command);
        self.send(&request)?;
        match self.receive()? {
            Value::Error(text) => Err(format!("{}: {}", command.join(" "), String::from_utf8_lossy(&text))),
            value => Ok(value),
        }
    }

    /// Sends requests that are encoded already.
    ///
    /// # Errors
    /// The connection broke.
    pub fn send(&mut self, requests: &[u8]) -> Result<(), Failure> {
        self.stream.write_all(requests).map_err(|error| format!("sending: {error}"))
    }

    /// Waits for the next reply.
    ///
    /// # Errors
    /// The connection broke, or what came is no reply.
    pub fn receive(&mut self) -> Result<Value, Failure> {
        loop {
            if let Some((value, length)) =
                resp::decode_value(&self.input[self.consumed..]).map_err(|error| error.to_string())?
            {
                self.consumed += length;
                return Ok(value);
            }
            self.input.drain(..self.consumed);
            self.consumed = 0;
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk).map_err(|error| format!("receiving: {error}"))? {
                0 => return Err("the server closed the connection".to_owned()),
                length => self.input.extend_from_slice(&chunk[..length]),
            }
        }
    }

    /// The fields of `INFO section` whose names begin with `prefix`, without it, and their numbers.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn info_numbers(&mut self, section: &str, prefix: &str) -> Result<Vec<(String, f64)>, Failure> {
        let text = self.info_text(section)?;
        let number = |line: &str| {
            let (name, number) = line.strip_prefix(prefix)?.split_once(':')?;
            Some((name.to_owned(), number.trim().parse().ok()?))
        };
        Ok(text.lines().filter_map(number).collect())
    }

    /// The number behind `field` in `INFO section`.
    ///
    /// # Errors
    /// The server does not know the section, or the field is missing or no number.
    pub fn info(&mut self, section: &str, field: &str) -> Result<u64, Failure> {
        let text = self.info_text(section)?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let number = line.and_then(|number| number.trim().parse().ok());
        number.ok_or_else(|| format!("INFO {section} has no number {field}"))
    }

    /// `INFO section` as it came.
    ///
    /// # Errors
    /// The server does not know the section.
    pub fn info_text(&mut self, section: &str) -> Result<String, Failure> {
        match self.call(&["INFO", section])? {
            Value::Bulk(text) | Value::Verbatim { text, .. } => {
                Ok(String::from_utf8_lossy(&text).into_owned())
            }
            other => Err(format!("INFO {section}: {other:?}")),
        }
    }
}

/// Requests that are sent together.
#[derive(Debug, Default)]
pub(crate) struct Requests {
    bytes: Vec<u8>,
    pub(crate) count: usize,
}

impl Requests {
    /// Adds one.
    pub(crate) fn add<A: AsRef<[u8]>>(&mut self, arguments: &[A]) {
        resp::encode_command(&mut self.bytes, arguments);
        self.count += 1;
    }

    /// Sends all, and takes their replies.
    ///
    /// # Errors
    /// A reply is an error, or the connection broke.
    pub(crate) fn ask(&self, client: &mut Client) -> Result<(), Failure> {
        self.ask_for(client, |reply| !matches!(reply, Value::Error(_)))
    }

    /// The same, where each reply is to be one that `is_wanted`.
    ///
    /// # Errors
    /// A reply is another one, or the connection broke.
    pub(crate) fn ask_for(
        &self,
        client: &mut Client,
        is_wanted: impl Fn(&Value) -> bool,
    ) -> Result<(), Failure> {
        client.send(&self.bytes)?;
        (0..self.count).try_for_each(|_| match client.receive()? {
            reply if is_wanted(&reply) => Ok(()),
            Value::Error(text) => Err(String::from_utf8_lossy(&text).into_owned()),
            other => Err(format!("not what was asked for: {other:?}")),
        })
    }
}

const CONNECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Key `number` as redis-benchmark names it: 16 bytes.
#[must_use]
pub fn key(number: u64) -> Vec<u8> {
    format!("key:{number:012}").into_bytes()
}

/// A value that differs from key to key and does not compress: hexadecimal digits of a small generator.
#[must_use]
pub fn value(number: u64, bytes: usize) -> Vec<u8> {
    let mut state = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(bytes);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.push(b'!' + (state >> 32) as u8 % 90);
    }
    out
}
