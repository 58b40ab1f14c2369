//! A connection that is asked one thing after the other: blocking, and as long as the answer takes.

use std::io::{self, Read, Write};
use std::time::Duration;

use resp::{DecodeError, Value};

use crate::replies::{Misfit, Replies};
use crate::stream::Stream;
use crate::target::{Protocol, Target};

/// A connection over `S`.
#[derive(Debug)]
pub struct Client<S = Stream> {
    stream: S,
    replies: Replies,
}

/// Why a server did not answer what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Another server is to be named.
    #[error("{0} does not speak the Redis protocol")]
    NotRedis(String),
    /// It is to be started.
    #[error("no server answers at {0}: {1}")]
    NoServer(String, #[source] io::Error),
    /// Whether it did what it was asked for is not known.
    #[error("the server went away: {0}")]
    Lost(#[from] io::Error),
    /// The same: its log may say why.
    #[error("the server closed the connection without an answer; see its log")]
    Closed,
    /// It is no server of this protocol.
    #[error("the server answered something else: {0}")]
    Garbage(DecodeError),
    /// It has done nothing.
    #[error("the server refused: {0}")]
    Refused(String),
}

impl Client {
    /// Connects, and logs in with what `target` says.
    ///
    /// # Errors
    /// As [`Client::call`], and [`ClientError::NotRedis`], [`ClientError::NoServer`].
    pub fn connect(target: &Target) -> Result<Self, ClientError> {
        Self::connect_within(target, None)
    }

    /// The same; to connect, and each answer on the way, take no longer than `timeout`, which the socket keeps.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_within(target: &Target, timeout: Option<Duration>) -> Result<Self, ClientError> {
        if target.protocol != Protocol::Resp {
            return Err(ClientError::NotRedis(target.to_string()));
        }
        let stream = Stream::open(target, timeout)
            .map_err(|error| ClientError::NoServer(target.to_string(), error))?;
        stream.socket().set_read_timeout(timeout)?;
        let mut client = Self::new(stream);
        for command in target.login() {
            client.stream.write_all(command.as_bytes())?;
            client.answer()?;
        }
        Ok(client)
    }
}

impl<S: Read + Write> Client<S> {
    /// One over a stream that is connected.
    pub fn new(stream: S) -> Self {
        Self { stream, replies: Replies::default() }
    }

    /// Sends a command of words and waits for its answer.
    ///
    /// # Errors
    /// What the server refused, or how the connection ended.
    pub fn call(&mut self, words: &[impl AsRef<str>]) -> Result<Value, ClientError> {
        let words: Vec<&[u8]> = words.iter().map(|word| word.as_ref().as_bytes()).collect();
        self.call_bytes(&words)
    }

    /// The same, of words that need not be text.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn call_bytes(&mut self, words: &[&[u8]]) -> Result<Value, ClientError> {
        self.send(words)?;
        self.answer()
    }

    /// Sends a command, whose reply is to be received.
    ///
    /// # Errors
    /// How the connection ended.
    pub fn send(&mut self, words: &[&[u8]]) -> Result<(), ClientError> {
        let mut request = Vec::new();
        resp::encode_command(&mut request, words);
        Ok(self.stream.write_all(&request)?)
    }

    /// Sends commands that are encoded, whose replies are to be received.
    ///
    /// # Errors
    /// How the connection ended.
    pub fn send_encoded(&mut self, requests: &[u8]) -> Result<(), ClientError> {
        Ok(self.stream.write_all(requests)?)
    }

    /// The next reply, errors of the server's included; `None`: it has not all come, and the stream does not wait.
    ///
    /// # Errors
    /// How the connection ended.
    pub fn receive(&mut self) -> Result<Option<Value>, ClientError> {
        loop {
            match self.replies.next(usize::MAX) {
                Ok(None) => {}
                Ok(Some((value, _))) => return Ok(Some(value)),
                Err(Misfit::Garbage(error)) => return Err(ClientError::Garbage(error)),
                Err(Misfit::TooLong) => unreachable!("no length is beyond that"),
            }
            match self.replies.read_from(&mut self.stream) {
                Ok(0) => return Err(ClientError::Closed),
                Ok(_) => {}
                Err(error) if processes::duplex::is_passing(&error) => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn answer(&mut self) -> Result<Value, ClientError> {
        loop {
            match self.receive()? {
                Some(Value::Error(text)) => {
                    return Err(ClientError::Refused(String::from_utf8_lossy(&text).into_owned()));
                }
                Some(value) => return Ok(value),
                None => {}
            }
        }
    }

    /// What it was over: all replies have been received.
    pub fn into_stream(self) -> S {
        self.stream
    }

    /// What it is over.
    pub fn stream(&self) -> &S {
        &self.stream
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives so many bytes at a time, and takes all.
    struct Slow(Vec<u8>, usize);

    impl Read for Slow {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = self.1.min(self.0.len()).min(buffer.len());
            self.0.drain(..count).zip(buffer).for_each(|(byte, place)| *place = byte);
            Ok(count)
        }
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn answers_come_in_order_in_whatever_pieces_and_a_refusal_is_an_error() {
        for piece in [1, 3, 100] {
            let bytes = b"*2\r\n$1\r\na\r\n:7\r\n-ERR no\r\n+OK\r\n!".to_vec();
            let mut client = Client::new(Slow(bytes, piece));
            let list = client.call(&["A"]).expect("an answer");
            assert_eq!(list, Value::Array(vec![Value::Bulk(b"a".to_vec()), Value::Integer(7)]));
            assert_eq!(client.call(&["B"]).expect_err("refused").to_string(), "the server refused: ERR no");
            assert_eq!(client.receive().expect("an answer"), Some(Value::Simple(b"OK".to_vec())));
            let end = client.receive().expect_err("no line, or no reply");
            assert!(matches!(end, ClientError::Closed | ClientError::Garbage(_)), "{end}");
        }
    }
}
