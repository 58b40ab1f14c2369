//! The link's thread: one loop that waits for the socket, the bell and the next time at once.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos};
use resp::Value;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Options;
use super::shared::{Duties, Shared};
use crate::target::{Protocol, Target};

/// What the thread knows.
pub(super) struct Attendant {
    pub(super) target: Target,
    pub(super) options: Options,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) shared: Arc<Shared>,
}

/// One connection.
struct Life<'a> {
    of: &'a Attendant,
    stream: TcpStream,
    /// What is being sent, and how much of it is.
    out: Vec<u8>,
    sent: usize,
    /// What came and was not read, from `read` on.
    input: Vec<u8>,
    read: usize,
    replies: Vec<(Value, usize)>,
    /// Replies of the login that are to come.
    login: usize,
    has_answered: bool,
    silence: Silence,
}

/// How long the server has sent nothing although it owes a reply.
#[derive(Debug, Default)]
pub(super) struct Silence {
    /// When it sent something last, or began to owe a reply; `None` while it owes none.
    since: Option<Nanos>,
}

impl Attendant {
    /// One connection after the other, until it is stopped.
    pub(super) fn run(self) {
        let (mut life, mut pause) = (0, self.options.pause_min);
        while !self.shared.is_stopped() {
            life += 1;
            let (why, has_answered) = self.live(life);
            if self.shared.is_stopped() {
                return;
            }
            self.shared.end_life(why);
            if has_answered {
                pause = self.options.pause_min;
            }
            self.rest(self.clock.now() + pause);
            pause = (pause * 2).min(self.options.pause_max);
        }
    }

    /// Keeps a connection to its end: why it ended, and whether the server has answered a request.
    fn live(&self, number: u64) -> (String, bool) {
        match self.connect() {
            Err(error) => (format!("no server answers at {}: {error}", self.target), false),
            Ok(stream) => {
                let mut life = Life::new(self, stream);
                let why = life.run(number);
                (format!("the connection to {} is lost: {why}", self.target), life.has_answered)
            }
        }
    }

    fn connect(&self) -> std::io::Result<TcpStream> {
        if self.target.protocol != Protocol::Resp {
            return Err(std::io::Error::other("it does not speak the Redis protocol"));
        }
        let stream = TcpStream::connect_timeout(&self.target.address, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(stream)
    }

    /// Waits until `end`, or until it is stopped.
    fn rest(&self, end: Nanos) {
        while !self.shared.is_stopped() && self.clock.now() < end {
            self.shared.hear();
            let mut fds = [PollFd::new(&self.shared.bell, PollFlags::IN)];
            wait(&mut fds, Some(end.since(self.clock.now())));
        }
    }
}

impl<'a> Life<'a> {
    fn new(of: &'a Attendant, stream: TcpStream) -> Self {
        let login = of.target.login();
        Self {
            of,
            stream,
            out: login.concat().into_bytes(),
            sent: 0,
            input: Vec::new(),
            read: 0,
            replies: Vec::new(),
            login: login.len(),
            has_answered: false,
            silence: Silence::default(),
        }
    }

    /// Carries bytes until the connection has ended, or has to be: why.
    fn run(&mut self, number: u64) -> String {
        if self.login == 0 {
            self.of.shared.begin_life(number);
        }
        loop {
            if self.sent == self.out.len() {
                self.out.clear();
                self.sent = 0;
            }
            // The login goes alone: what follows is for a connection that is logged in.
            let duties = self.of.shared.duties(&mut self.out);
            if duties.is_stopped {
                return "it is stopped".to_owned();
            }
            let (is_readable, is_writable) = match self.wait(duties) {
                Ok(ready) => ready,
                Err(why) => return why,
            };
            if is_writable && let Err(error) = self.write() {
                return error.to_string();
            }
            if is_readable && let Err(why) = self.read(number) {
                return why;
            }
        }
    }

    /// Waits for the socket and the bell; whether the socket can be read and written.
    fn wait(&mut self, duties: Duties) -> Result<(bool, bool), String> {
        let (now, timeout) = (self.of.clock.now(), self.of.options.timeout);
        let is_owed = (duties.is_owed || self.login > 0) && !duties.is_full;
        let left = self.silence.left(is_owed, now, timeout);
        if left == Some(Duration::ZERO) {
            return Err(format!("no reply within {timeout:?}"));
        }
        let is_writing = self.sent < self.out.len();
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !duties.is_full);
        flags.set(PollFlags::OUT, is_writing);
        let bell = PollFd::new(&self.of.shared.bell, PollFlags::IN);
        let mut fds = [bell, PollFd::new(&self.stream, flags)];
        // A socket that nobody will read is left out: its end would be told again and again.
        let count = if flags.is_empty() { 1 } else { 2 };
        wait(&mut fds[..count], left);
        let [bell, socket] = fds.map(|fd| fd.revents());
        if !bell.is_empty() {
            self.of.shared.hear();
        }
        let is_ready = !socket.is_empty();
        Ok((is_ready && !duties.is_full, is_ready && is_writing))
    }

    fn write(&mut self) -> std::io::Result<()> {
        match self.stream.write(&self.out[self.sent..]) {
            Ok(count) => self.sent += count,
            Err(error) if is_passing(error.kind()) => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// One read of the socket.
    fn read(&mut self, number: u64) -> Result<(), String> {
        self.input.drain(..self.read);
        self.read = 0;
        let have = self.input.len();
        // A long reply is read in pieces as long as what has come of it, so that it is looked at a few times.
        self.input.resize(have + have.clamp(READ_BYTES_MIN, READ_BYTES_MAX), 0);
        let result = self.stream.read(&mut self.input[have..]);
        self.input.truncate(have + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => Err("the server closed it".to_owned()),
            Ok(_) => {
                self.silence.end();
                self.take_replies(number)
            }
            Err(error) if is_passing(error.kind()) => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn take_replies(&mut self, number: u64) -> Result<(), String> {
        while let Some((value, bytes)) = self.next_reply()? {
            if self.login == 0 {
                self.replies.push((value, bytes));
                continue;
            }
            if let Value::Error(text) = value {
                return Err(format!("the server refused the login: {}", String::from_utf8_lossy(&text)));
            }
            self.login -= 1;
            if self.login == 0 {
                self.of.shared.begin_life(number);
            }
        }
        if self.replies.is_empty() {
            return Ok(());
        }
        self.has_answered = true;
        match self.of.shared.post(&mut self.replies) {
            0 => Ok(()),
            excess => Err(format!("{excess} replies that nobody has asked for")),
        }
    }

    /// The next reply, if it has all come, and its length.
    fn next_reply(&mut self) -> Result<Option<(Value, usize)>, String> {
        let garbage = |error: resp::DecodeError| format!("what it sent is no reply: {error}");
        let input = &self.input[self.read..];
        let length = resp::skip_value(input).map_err(garbage)?;
        let most = self.of.options.reply_bytes_max;
        if length.unwrap_or(input.len()) > most {
            return Err(format!("{TOO_LONG} {most} bytes"));
        }
        let Some(length) = length else { return Ok(None) };
        let value = resp::decode_value(&input[..length]).map_err(garbage)?;
        self.read += length;
        Ok(value)
    }
}

impl Silence {
    /// How much longer it may last, of `most`; `None` while no reply is owed, however long that is.
    pub(super) fn left(&mut self, is_owed: bool, now: Nanos, most: Duration) -> Option<Duration> {
        self.since = is_owed.then(|| self.since.unwrap_or(now));
        self.since.map(|since| most.saturating_sub(now.since(since)))
    }

    /// The server has sent something: what it owes still has the full time.
    pub(super) fn end(&mut self) {
        self.since = None;
    }
}

/// Waits until one is ready, or for `time`.
fn wait(fds: &mut [PollFd<'_>], time: Option<Duration>) {
    let timeout =
        time.map(|time| Timespec { tv_sec: time.as_secs() as i64, tv_nsec: i64::from(time.subsec_nanos()) });
    // A signal ends it early, which does no harm.
    let _ = poll(fds, timeout.as_ref());
}

fn is_passing(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

pub(super) const TOO_LONG: &str = "a reply has more than";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const READ_BYTES_MIN: usize = 64 << 10;
const READ_BYTES_MAX: usize = 16 << 20;
