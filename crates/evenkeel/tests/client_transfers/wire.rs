//! A connection to the server that a task can wait on and that goes when its task is aborted.

use std::io::{Error, ErrorKind};
use std::net::Ipv4Addr;
use std::time::Duration;

use resp::Value;
use tokio::net::TcpStream;

/// A reply that takes longer than this never comes: everything that a transaction waits for is bounded.
pub const REPLY_TIME_MAX: Duration = Duration::from_secs(40);

pub struct Wire {
    stream: TcpStream,
    input: Vec<u8>,
}

impl Wire {
    pub async fn connect(port: u16) -> std::io::Result<Self> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, input: Vec::new() })
    }

    /// Sends one command and waits for its reply.
    ///
    /// # Errors
    /// [`ErrorKind::TimedOut`]: the server lives and says nothing; all others: the connection is gone.
    pub async fn call(&mut self, command: &[&str]) -> std::io::Result<Value> {
        self.send(&[command]).await?;
        self.reply(command).await
    }

    /// Waits for the reply to a command that was sent.
    ///
    /// # Errors
    /// As [`Self::call`].
    pub async fn reply(&mut self, command: &[impl std::fmt::Debug]) -> std::io::Result<Value> {
        let late =
            || Error::new(ErrorKind::TimedOut, format!("no reply to {command:?} within {REPLY_TIME_MAX:?}"));
        tokio::time::timeout(REPLY_TIME_MAX, self.receive()).await.map_err(|_| late())?
    }

    /// Sends commands at once.
    pub async fn send(&mut self, commands: &[impl AsRef<[&str]>]) -> std::io::Result<()> {
        let mut output = Vec::new();
        commands.iter().for_each(|command| resp::encode_command(&mut output, command.as_ref()));
        let mut sent = 0;
        while sent < output.len() {
            self.stream.writable().await?;
            match self.stream.try_write(&output[sent..]) {
                Ok(count) => sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn receive(&mut self) -> std::io::Result<Value> {
        loop {
            let decoded =
                resp::decode_value(&self.input).map_err(|e| Error::new(ErrorKind::InvalidData, e))?;
            if let Some((value, length)) = decoded {
                self.input.drain(..length);
                return Ok(value);
            }
            self.stream.readable().await?;
            let mut chunk = [0; 4 << 10];
            match self.stream.try_read(&mut chunk) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => self.input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
        }
    }
}

/// What a map of RESP2 has for `name`.
pub fn field<'a>(map: &'a Value, name: &str) -> Option<&'a Value> {
    let Value::Array(items) = map else { return None };
    items.chunks_exact(2).find(|pair| text(&pair[0]) == name).map(|pair| &pair[1])
}

/// A reply as text; an error begins with a minus, an array is in brackets.
pub fn text(value: &Value) -> String {
    match value {
        Value::Simple(bytes) | Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Error(bytes) => format!("-{}", String::from_utf8_lossy(bytes)),
        Value::Integer(number) => number.to_string(),
        Value::Array(items) => format!("[{}]", items.iter().map(text).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}
