//! What the driver does not look at, where its bytes come in: tags of commands, and how much a server sends.
//!
//! ```text
//!  socket -> [asked for TLS -> TLS] -> Tapped: counts each "PREPARE TRANSACTION", refuses what is too much (gate) -> driver -> answer
//! ```
//!
//! The driver's hook for TLS is where a stream can be put in between, so connections without TLS take it, too: what is made of the socket there
//! is the socket. The driver asks for the hook only where it knows the name of a host: connections to a socket in the file system are not
//! tapped, their count stays nothing, and who made the socket is trusted. The server is asked for TLS here, as the driver takes every answer but
//! a yes for a no.
//!
//! Invariants
//!   1. The driver reads what came, no more and no less, or an error.
//!   2. A tag is counted before the driver reads its last byte.
//!
//! Source: PostgreSQL's manual, "Message Formats": a byte that says what it is, four of its length with themselves, and the rest; the tag
//! of a `CommandComplete`, `C`, ends with a zero.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::gate::{Gate, Proof, Refused};

/// Makes streams that count, of plain connections and of those with TLS.
#[derive(Clone)]
pub(crate) struct Tap {
    tls: Option<MakeRustlsConnect>,
    proof: Proof,
    heard: Arc<Heard>,
}

/// What was heard on streams.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    /// How often the server said that a transaction was prepared.
    pub(super) prepared: AtomicU64,
    /// Why no more is read. The driver tells who waits for an answer only that the connection is closed.
    pub(super) refused: OnceLock<Refused>,
}

/// A stream that counts.
pub(crate) struct Tapped {
    stream: Stream,
    decoder: Decoder,
    heard: Arc<Heard>,
}

/// What is written to and read from.
enum Stream {
    Plain(Socket),
    Secret(Box<Secret>),
}

type Secret = <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream;
type SecretConnect = <MakeRustlsConnect as MakeTlsConnect<Socket>>::TlsConnect;

/// Makes one stream.
pub(crate) struct TapOnce {
    tls: Option<SecretConnect>,
    proof: Proof,
    heard: Arc<Heard>,
}

/// Finds the tags in what a server sends, however it is cut into pieces, and refuses what is too much.
#[derive(Debug)]
pub(super) struct Decoder {
    gate: Gate,
    head: [u8; HEAD_BYTES],
    head_len: usize,
    /// Bytes of the message that have not come.
    left: usize,
    /// So many bytes of the tag that is looked for have come; more than it has: it is another message.
    matched: usize,
}

impl Tap {
    /// Tells `heard` what it hears; `None`: without TLS.
    pub(crate) fn new(tls: Option<MakeRustlsConnect>, proof: Proof, heard: Arc<Heard>) -> Self {
        Self { tls, proof, heard }
    }
}

impl MakeTlsConnect<Socket> for Tap {
    type Stream = Tapped;
    type TlsConnect = TapOnce;
    type Error = Box<dyn Error + Send + Sync>;

    fn make_tls_connect(&mut self, host: &str) -> Result<TapOnce, Self::Error> {
        let secret = |tls: &mut MakeRustlsConnect| MakeTlsConnect::<Socket>::make_tls_connect(tls, host);
        let (tls, heard) = (self.tls.as_mut().map(secret).transpose()?, Arc::clone(&self.heard));
        Ok(TapOnce { tls, proof: self.proof, heard })
    }
}

impl TlsConnect<Socket> for TapOnce {
    type Stream = Tapped;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Tapped>> + Send>>;

    fn connect(self, mut socket: Socket) -> Self::Future {
        Box::pin(async move {
            let stream = match self.tls {
                Some(tls) => {
                    ask_for_tls(&mut socket).await?;
                    Stream::Secret(Box::new(tls.connect(socket).await?))
                }
                None => Stream::Plain(socket),
            };
            Ok(Tapped { stream, decoder: Decoder::new(self.proof), heard: self.heard })
        })
    }
}

impl TlsStream for Tapped {
    fn channel_binding(&self) -> ChannelBinding {
        match &self.stream {
            Stream::Plain(_) => ChannelBinding::none(),
            Stream::Secret(stream) => stream.channel_binding(),
        }
    }
}

impl AsyncRead for Tapped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, into),
            Stream::Secret(stream) => Pin::new(&mut **stream).poll_read(context, into),
        })?;
        let found = self.decoder.feed(&into.filled()[before..]).map_err(|refused| {
            let _ = self.heard.refused.set(refused.clone());
            io::Error::other(refused)
        })?;
        if found > 0 {
            self.heard.prepared.fetch_add(found, Ordering::Relaxed);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tapped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_write(context, bytes),
            Stream::Secret(stream) => Pin::new(&mut **stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(context),
            Stream::Secret(stream) => Pin::new(&mut **stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(context),
            Stream::Secret(stream) => Pin::new(&mut **stream).poll_shutdown(context),
        }
    }
}

impl Decoder {
    pub(super) fn new(proof: Proof) -> Self {
        Self { gate: Gate::new(proof), head: [0; HEAD_BYTES], head_len: 0, left: 0, matched: usize::MAX }
    }

    /// Takes what came next; how many tags say that a transaction was prepared. What is no message of the protocol, the driver refuses.
    ///
    /// # Errors
    /// What is too much, or not what was agreed; nothing more may be read.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) -> Result<u64, Refused> {
        let mut found = 0;
        while !bytes.is_empty() {
            let wanted = if self.left == 0 { HEAD_BYTES - self.head_len } else { self.left };
            let (piece, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.left == 0 {
                self.head[self.head_len..][..piece.len()].copy_from_slice(piece);
                self.head_len += piece.len();
                if self.head_len == HEAD_BYTES {
                    self.begin()?;
                }
                continue;
            }
            self.gate.body(piece)?;
            let is_next = PREPARED.get(self.matched..).is_some_and(|tag| tag.starts_with(piece));
            self.matched = if is_next { self.matched + piece.len() } else { usize::MAX };
            self.left -= piece.len();
            if self.left == 0 {
                self.gate.end()?;
                found += u64::from(self.matched == PREPARED.len());
            }
        }
        Ok(found)
    }

    /// A message begins, whose head has come.
    fn begin(&mut self) -> Result<(), Refused> {
        let [kind, length @ ..] = self.head;
        // Its length counts itself.
        self.left = (u32::from_be_bytes(length) as usize).saturating_sub(size_of_val(&length));
        self.matched = if kind == COMMAND_COMPLETE { 0 } else { usize::MAX };
        self.head_len = 0;
        self.gate.begin(kind, self.left)
    }
}

/// Asks whether the server goes on with TLS.
///
/// # Errors
/// It does not; or what it answers instead.
async fn ask_for_tls(socket: &mut Socket) -> io::Result<()> {
    socket.write_all(&TLS_REQUEST).await?;
    let mut answer = [0; ANSWER_BYTES];
    let mut len = socket.read(&mut answer[..1]).await?;
    match &answer[..len] {
        b"S" => return Ok(()),
        b"N" => return Err(io::Error::other(NO_TLS)),
        b"" => return Err(io::Error::other("it closed the connection when it was asked for TLS")),
        _ => {}
    }
    // What comes with it tells more of what it is.
    let more = tokio::time::timeout(ANSWER_WAIT, socket.read(&mut answer[1..])).await;
    len += more.ok().and_then(Result::ok).unwrap_or(0);
    let said = answer[..len].escape_ascii();
    Err(io::Error::other(format!("asked for TLS it answers '{said}', and a PostgreSQL answers S or N")))
}

/// What it is, and its length.
const HEAD_BYTES: usize = 5;
/// Its length, and the number that asks for TLS.
const TLS_REQUEST: [u8; 8] = [0, 0, 0, 8, 4, 210, 22, 47];
/// In the words that `tls` looks for.
pub(crate) const NO_TLS: &str = "server does not support TLS";
/// So much of an answer that is none is told, and so long it is waited for.
const ANSWER_BYTES: usize = 64;
const ANSWER_WAIT: Duration = Duration::from_millis(200);
const COMMAND_COMPLETE: u8 = b'C';
const PREPARED: &[u8] = b"PREPARE TRANSACTION\0";

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(body.len() + 4).expect("short");
        [&[kind], &length.to_be_bytes()[..], body].concat()
    }

    /// A decoder behind a login.
    fn inside() -> Decoder {
        let mut decoder = Decoder::new(Proof::Any);
        let login = [message(b'R', &[0; 4]), message(b'Z', b"I")].concat();
        assert_eq!(decoder.feed(&login), Ok(0));
        decoder
    }

    #[test]
    fn tag_is_found_however_it_is_cut_and_nothing_else_is_taken_for_it() {
        let row = message(b'D', &message(b'C', PREPARED));
        let stream = [
            message(b'C', b"SET CONSTRAINTS\0"),
            message(b'C', PREPARED),
            message(b'n', b""),
            row,
            message(b'C', b"PREPARE TRANSACTION"),
            message(b'C', b"PREPARE TRANSACTION\0\0"),
            message(b'C', b"ROLLBACK\0"),
            message(b'c', PREPARED),
            message(b'Z', b"I"),
            message(b'C', PREPARED),
        ];
        let stream = stream.concat();
        for size in 1..=stream.len() {
            let mut decoder = inside();
            let found: Result<u64, _> = stream.chunks(size).map(|piece| decoder.feed(piece)).sum();
            assert_eq!(found, Ok(2), "in pieces of {size}");
        }
    }

    #[test]
    fn length_that_is_none_takes_nothing_with_it() {
        let mut decoder = inside();
        assert_eq!(decoder.feed(&[b'C', 0, 0, 0, 3]), Ok(0));
        assert_eq!(decoder.feed(&message(b'C', PREPARED)), Ok(1));
        assert!(matches!(decoder.feed(&[b'C', 0xFF, 0xFF, 0xFF, 0xFF]), Err(Refused::Message(b'C', _))));
    }
}
