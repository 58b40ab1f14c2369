//! The link's thread: one loop that waits for the socket, the owner and the next time at once.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos};
use processes::duplex::{Outgoing, Pauses, is_passing, wait};
use resp::Value;
use rustix::event::{PollFd, PollFlags};

use super::{Event, Loss, Options, Shared};
use crate::replies::{Misfit, Replies};
use crate::stream::Stream;
use crate::target::{Protocol, Target};

/// What the thread knows.
pub(super) struct Attendant {
    pub(super) target: Target,
    pub(super) options: Options,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) shared: Arc<Shared>,
}

/// One connection.
struct Connection<'a> {
    of: &'a Attendant,
    stream: Stream,
    out: Outgoing,
    input: Replies,
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
        let pauses = Pauses { least: self.options.pause_min, most: self.options.pause_max };
        let now = || Duration::from_nanos(self.clock.now().0);
        self.shared.run(pauses, now, |number| {
            let (why, has_answered) = self.live(number);
            (Event::Lost(why), has_answered)
        });
    }

    /// Keeps a connection to its end: why it ended, and whether the server has answered a request.
    fn live(&self, number: u64) -> (Loss, bool) {
        match self.connect() {
            Err(error) => (Loss::NoServer { target: self.target.to_string(), why: error.to_string() }, false),
            Ok(stream) => {
                let mut life = Connection::new(self, stream);
                (life.run(number), life.has_answered)
            }
        }
    }

    fn ended(&self, why: &(impl ToString + ?Sized)) -> Loss {
        Loss::Ended { target: self.target.to_string(), why: why.to_string() }
    }

    fn connect(&self) -> std::io::Result<Stream> {
        if self.target.protocol != Protocol::Resp {
            return Err(std::io::Error::other("it does not speak the Redis protocol"));
        }
        let stream = Stream::open(&self.target, Some(CONNECT_TIMEOUT))?;
        stream.socket().set_nodelay(true)?;
        stream.socket().set_nonblocking(true)?;
        Ok(stream)
    }
}

impl<'a> Connection<'a> {
    fn new(of: &'a Attendant, stream: Stream) -> Self {
        let (login, mut out) = (of.target.login(), Outgoing::default());
        out.bytes().extend(login.concat().into_bytes());
        Self {
            of,
            stream,
            out,
            input: Replies::default(),
            replies: Vec::new(),
            login: login.len(),
            has_answered: false,
            silence: Silence::default(),
        }
    }

    /// Carries bytes until the connection has ended, or has to be: why.
    fn run(&mut self, number: u64) -> Loss {
        if self.login == 0 {
            self.of.shared.begin(number, Event::Connected(number));
        }
        loop {
            let Some((is_full, is_owed)) = self.take_requests() else {
                return self.of.ended("it is stopped");
            };
            let (is_readable, is_writable) = match self.wait(is_full, is_owed) {
                Ok(ready) => ready,
                Err(loss) => return loss,
            };
            if is_writable && let Err(error) = self.write() {
                return self.of.ended(&error);
            }
            if is_readable && let Err(loss) = self.read(number) {
                return loss;
            }
        }
    }

    fn write(&mut self) -> std::io::Result<()> {
        self.out.write_to(&mut self.stream)?;
        // With TLS what was taken may wait.
        self.stream.flush().or_else(|error| if is_passing(&error) { Ok(()) } else { Err(error) })
    }

    /// Takes what is to be sent, if nothing is being sent; whether the owner is behind, and whether a reply is to come. `None`: the thread is to end.
    fn take_requests(&mut self) -> Option<(bool, bool)> {
        let mut state = self.of.shared.lock();
        // The login goes alone: what follows is for a connection that is logged in.
        if self.out.is_empty() {
            std::mem::swap(self.out.bytes(), &mut state.out);
        }
        (!state.is_stopped).then_some((state.is_full, !state.more.is_empty()))
    }

    /// Waits for the socket and the owner; whether the socket can be read and written.
    fn wait(&mut self, is_full: bool, is_owed: bool) -> Result<(bool, bool), Loss> {
        let (now, timeout) = (self.of.clock.now(), self.of.options.timeout);
        let is_owed = (is_owed || self.login > 0) && !is_full;
        let left = self.silence.left(is_owed, now, timeout);
        if left == Some(Duration::ZERO) {
            return Err(self.of.ended(&format!("no reply within {timeout:?}")));
        }
        let is_writing = !self.out.is_empty() || self.stream.wants_write();
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, !is_full);
        flags.set(PollFlags::OUT, is_writing);
        let mut fds = [self.of.shared.waker.poll_fd(), PollFd::new(self.stream.socket(), flags)];
        // A socket that nobody will read is left out: its end would be told again and again.
        let count = if flags.is_empty() { 1 } else { 2 };
        wait(&mut fds[..count], left);
        let [waker, socket] = fds.map(|fd| fd.revents());
        if !waker.is_empty() {
            self.of.shared.waker.clear();
        }
        let is_ready = !socket.is_empty();
        Ok((is_ready && !is_full, is_ready && is_writing))
    }

    /// One read of the socket.
    fn read(&mut self, number: u64) -> Result<(), Loss> {
        match self.input.read_from(&mut self.stream) {
            Ok(0) => Err(self.of.ended("the server closed it")),
            Ok(_) => {
                self.silence.end();
                self.take_replies(number)
            }
            Err(error) if is_passing(&error) => Ok(()),
            Err(error) => Err(self.of.ended(&error)),
        }
    }

    fn take_replies(&mut self, number: u64) -> Result<(), Loss> {
        while let Some((value, bytes)) = self.next_reply()? {
            if self.login == 0 {
                self.replies.push((value, bytes));
                continue;
            }
            if let Value::Error(text) = value {
                let text = String::from_utf8_lossy(&text);
                return Err(self.of.ended(&format!("the server refused the login: {text}")));
            }
            self.login -= 1;
            if self.login == 0 {
                self.of.shared.begin(number, Event::Connected(number));
            }
        }
        if self.replies.is_empty() {
            return Ok(());
        }
        self.has_answered = true;
        let excess = self.of.shared.post(|state| {
            let mut excess = 0;
            for (value, bytes) in self.replies.drain(..) {
                match state.more.pop_front() {
                    Some(token) => state.push(Event::Reply(token, value), bytes),
                    None => excess += 1,
                }
            }
            excess
        });
        if excess > 0 {
            return Err(self.of.ended(&format!("{excess} replies that nobody has asked for")));
        }
        Ok(())
    }

    /// The next reply, if it has all come, and its length.
    fn next_reply(&mut self) -> Result<Option<(Value, usize)>, Loss> {
        let bytes_max = self.of.options.reply_bytes_max;
        self.input.next(bytes_max).map_err(|misfit| match misfit {
            Misfit::TooLong => Loss::ReplyTooLong { target: self.of.target.to_string(), bytes_max },
            Misfit::Garbage(error) => self.of.ended(&format!("what it sent is no reply: {error}")),
        })
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

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
