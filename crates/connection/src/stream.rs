//! The bytes of a connection: plain, or sealed by TLS.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};
use tls::{ClientFiles, PemFile};

use crate::target::{Secured, Target};

/// A socket that is connected, and what its bytes go through.
#[derive(Debug)]
pub enum Stream {
    /// Nothing.
    Plain(TcpStream),
    /// TLS, whose handshake is done.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// Connects to where `target` is, within `timeout` if there is one, and does the handshake if it is to be TLS.
    ///
    /// # Errors
    /// Nobody listens there, a file cannot be used, or one of the two does not trust the other.
    #[expect(clippy::disallowed_methods, reason = "a client, not the server: one blocking connection")]
    pub fn open(target: &Target, timeout: Option<Duration>) -> io::Result<Self> {
        let socket = match timeout {
            Some(timeout) => TcpStream::connect_timeout(&target.address, timeout)?,
            None => TcpStream::connect(target.address)?,
        };
        let Some(secured) = &target.secured else { return Ok(Self::Plain(socket)) };
        secured.over(socket, timeout)
    }

    /// The socket.
    #[must_use]
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => &stream.sock,
        }
    }

    /// Whether what was written waits for the socket to take it.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(stream) => stream.conn.wants_write(),
        }
    }
}

impl Secured {
    /// Does the handshake over `socket`, within `timeout` if there is one.
    ///
    /// # Errors
    /// As [`Stream::open`].
    pub fn over(&self, mut socket: TcpStream, timeout: Option<Duration>) -> io::Result<Stream> {
        let config = Arc::new(self.files()?.config().map_err(io::Error::other)?);
        let name = ServerName::try_from(self.host.clone())
            .map_err(|_| io::Error::other(format!("{} is no name that a certificate can have", self.host)))?;
        let mut session = ClientConnection::new(config, name).map_err(io::Error::other)?;
        socket.set_read_timeout(timeout)?;
        socket.set_write_timeout(timeout)?;
        while session.is_handshaking() {
            session.complete_io(&mut socket).map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    io::Error::other("it ended the handshake of TLS: does it speak that on this port?")
                }
                _ => error,
            })?;
        }
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(session, socket))))
    }

    fn files(&self) -> io::Result<ClientFiles> {
        let read = |path: &Path| {
            let shown = path.display().to_string();
            let text = std::fs::read_to_string(path);
            let text = text.map_err(|error| io::Error::new(error.kind(), format!("{shown}: {error}")))?;
            Ok::<_, io::Error>(PemFile { path: shown, text })
        };
        let ca = self.ca.as_deref().map(read).transpose()?;
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => Some((read(cert)?, read(key)?)),
            (None, None) => None,
            _ => return Err(io::Error::other("a certificate and its key go together")),
        };
        Ok(ClientFiles { ca, identity, trusts_anybody: self.trusts_anybody })
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(buffer),
            Self::Tls(stream) => match stream.read(buffer) {
                // Most servers end so; a reply that is cut off is found to be.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(0),
                result => result,
            },
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Plain(socket) => socket.flush(),
            Self::Tls(stream) => stream.flush(),
        }
    }
}
