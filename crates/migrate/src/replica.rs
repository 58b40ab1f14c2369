//! A running server: as a replica of it, its keys and then its commands.
//!
//! ```text
//!  > REPLCONF listening-port, capa eof capa psync2; PSYNC ? -1
//!  < +FULLRESYNC id offset | blank lines | $len, or $EOF:40 letters | file | [the letters] | commands ...
//!  > REPLCONF ACK offset, each second
//!  after a loss:  > PSYNC id offset + 1   < +CONTINUE [id] | commands ...
//! ```
//!
//! The offset that is acknowledged is that up to which the server that takes the keys has replied.

use std::io::{self, Read, Write};
use std::time::Duration;

use clock::{Clock, Nanos, SystemClock};
use connection::{Client, ClientError, Stream, Target};
use rdb::{Limits, Reader};
use resp::ValueEnd;

use crate::aof::{LoadError, Progress, load};
use crate::error::MigrateError;
use crate::options::{Control, Import};
use crate::replay::{Replayer, next_command};
use crate::sink::{Sink, text_of};

/// Imports all keys, and follows until it is told to end.
pub(crate) fn import(
    target: &Target,
    options: &Import,
    sink: &mut Sink,
    control: &Control<'_>,
) -> Result<(), MigrateError> {
    let mut link = Link::connect(target, control)?;
    let answer = link.ask(&["PSYNC", "?", "-1"])?;
    let words: Vec<&str> = answer.split(' ').collect();
    let ["+FULLRESYNC", id, offset] = words[..] else {
        return Err(MigrateError::Source(format!("{target} does not send its keys: {answer}")));
    };
    let mut id = id.to_owned();
    link.offset = offset.parse().map_err(|_| odd("an offset", &answer))?;
    (control.tell)(&format!("{target} prepares its keys"));
    let mut link = load_all(link, options, sink, control)?;
    sink.settle()?;
    if options.dry_run {
        return Ok(());
    }
    (control.tell)(&format!("{} keys came; commands since then follow", sink.report.keys()));
    sink.applied = link.offset;
    let mut follower = Follower {
        target,
        options,
        control,
        replayer: Replayer::new(options.db),
        watch: Client::connect_within(target, Some(CONNECT_MAX)).ok(),
        looked: SystemClock.now(),
        offset: None,
        has_caught_up: false,
    };
    loop {
        let why = match follower.follow(&mut link, sink)? {
            Ended::Done => break,
            Ended::Lost(why) => why,
        };
        sink.settle()?;
        follower.replayer.abandon();
        (control.tell)(&format!("the connection to {target} is lost: {why}"));
        link = reconnect(target, control, &mut id, link.offset)?;
        follower.watch = Client::connect_within(target, Some(CONNECT_MAX)).ok();
    }
    sink.settle()?;
    let known = if follower.has_caught_up { "" } else { ", which was not all that it had" };
    sink.report.note(format!("followed {target} up to offset {}{known}", sink.applied));
    Ok(())
}

fn odd(what: &str, answer: &str) -> MigrateError {
    MigrateError::Source(format!("the server answered something else than {what}: {answer}"))
}

/// How following ended.
enum Ended {
    Done,
    Lost(String),
}

/// Reads the file, and leaves the connection where the commands begin.
fn load_all<'a>(
    mut link: Link<'a>,
    options: &Import,
    sink: &mut Sink,
    control: &Control<'_>,
) -> Result<Link<'a>, MigrateError> {
    let head = loop {
        let line = link.line()?;
        if !line.is_empty() {
            break line;
        }
    };
    link.has_begun = true;
    let mark = head.strip_prefix("$EOF:").map(str::to_owned);
    let len: u64 = match (&mark, head.strip_prefix('$').map(str::parse)) {
        (Some(_), _) => 0,
        (None, Some(Ok(len))) => len,
        _ => return Err(odd("the length of its file", &head)),
    };
    let mut progress = Progress::new(control, len);
    let broken = |error: rdb::Error| MigrateError::Source(format!("its file: {error}"));
    let mut reader = Reader::open(link, Limits::default()).map_err(broken)?;
    load(&mut reader, options, sink, &mut progress).map_err(|error| match error {
        LoadError::Rdb(error) => broken(error),
        LoadError::Other(error) => error,
    })?;
    let read = reader.offset();
    let (mut link, more) = reader.into_parts();
    link.input.splice(..link.taken, more);
    link.taken = 0;
    match mark {
        Some(mark) => {
            let found = link.exactly(mark.len())?;
            if found != mark.as_bytes() {
                return Err(odd("the end of its file", &found.escape_ascii().to_string()));
            }
        }
        None if read != len => return Err(odd("a file of its length", &format!("{read} of {len} B"))),
        None => {}
    }
    link.is_loaded = true;
    Ok(link)
}

fn reconnect<'a>(
    target: &Target,
    control: &'a Control<'a>,
    id: &mut String,
    offset: u64,
) -> Result<Link<'a>, MigrateError> {
    let began = SystemClock.now();
    loop {
        if control.is_over() {
            return Err(MigrateError::Told(format!("the offset is {offset}")));
        }
        let next = (offset + 1).to_string();
        let tried = Link::connect(target, control).and_then(|mut link| {
            let answer = link.ask(&["PSYNC", id, &next])?;
            Ok((link, answer))
        });
        match tried {
            Ok((mut link, answer)) if answer.starts_with("+CONTINUE") => {
                if let Some(newer) = answer.split(' ').nth(1) {
                    newer.clone_into(id);
                }
                (link.offset, link.is_loaded) = (offset, true);
                (control.tell)(&format!("{target} goes on at offset {offset}"));
                return Ok(link);
            }
            Ok((_, answer)) if answer.starts_with("+FULLRESYNC") => {
                return Err(MigrateError::Source(format!(
                    "{target} has no more what followed offset {offset}: a full copy is needed, by the same command with \
                     --flush (repl-backlog-size of that server says how much it keeps)"
                )));
            }
            // it may be loading its own file
            _ if SystemClock.now().since(began) < PATIENCE => std::thread::park_timeout(PAUSE),
            Ok((_, answer)) => return Err(odd("a place to go on from", &answer)),
            Err(error) => return Err(error),
        }
    }
}

/// Passes on what comes.
struct Follower<'a> {
    target: &'a Target,
    options: &'a Import,
    control: &'a Control<'a>,
    replayer: Replayer,
    /// Asked how far the server is.
    watch: Option<Client>,
    looked: Nanos,
    /// How far it was when it was asked last.
    offset: Option<u64>,
    has_caught_up: bool,
}

impl Follower<'_> {
    fn follow(&mut self, link: &mut Link<'_>, sink: &mut Sink) -> Result<Ended, MigrateError> {
        let mut end = ValueEnd::default();
        loop {
            self.take_commands(link, &mut end, sink)?;
            if self.control.is_over() {
                return Ok(Ended::Done);
            }
            if SystemClock.now().since(self.looked) >= SECOND {
                self.looked = SystemClock.now();
                sink.settle()?;
                link.applied = sink.applied;
                if self.look(sink)? && self.options.until_synced {
                    return Ok(Ended::Done);
                }
            }
            match link.fill() {
                // nothing comes: what is there is sent
                Ok(false) => sink.settle()?,
                Ok(true) => {}
                Err(error) => return Ok(Ended::Lost(error.to_string())),
            }
            link.applied = sink.applied;
        }
    }

    fn take_commands(
        &mut self,
        link: &mut Link<'_>,
        end: &mut ValueEnd,
        sink: &mut Sink,
    ) -> Result<(), MigrateError> {
        loop {
            let input = &link.input[link.taken..];
            if input.first().is_some_and(|byte| *byte == b'\n') {
                link.taken += 1;
                continue;
            }
            let Some(command) = next_command(input, end).map_err(MigrateError::Source)? else {
                return Ok(());
            };
            let len = command.bytes.len();
            let asks = command.words.len() > 1 && command.words[1].eq_ignore_ascii_case(b"getack");
            self.replayer.take(&command, sink)?;
            link.taken += len;
            link.offset += len as u64;
            // within a transaction nothing is sent: what was acknowledged would be lost with it
            if !self.replayer.is_open() {
                sink.mark(link.offset);
            }
            if asks {
                sink.settle()?;
                link.applied = sink.applied;
                link.pulsed = Nanos(0);
            }
        }
    }

    /// Tells how far it is; whether all has come that was there a second ago.
    ///
    /// # Errors
    /// The server does not tell where it is.
    fn look(&mut self, sink: &Sink) -> Result<bool, MigrateError> {
        let Some(watch) = &mut self.watch else { return Ok(false) };
        let info = match watch.call(&["INFO", "replication"]) {
            Ok(info) => info,
            Err(ClientError::Refused(why)) => {
                return Err(MigrateError::Source(format!(
                    "the server that has the keys refused INFO: {why}"
                )));
            }
            Err(_) => {
                self.watch = Client::connect_within(self.target, Some(CONNECT_MAX)).ok();
                return Ok(false);
            }
        };
        let info = text_of(info);
        let offset = info
            .lines()
            .find_map(|line| line.strip_prefix("master_repl_offset:")?.trim().parse::<u64>().ok());
        let Some(offset) = offset else { return Ok(false) };
        let behind = offset.saturating_sub(sink.applied);
        // who writes on is always ahead: what it had a second ago is to be here
        let before = self.offset.replace(offset).unwrap_or(offset);
        let is_here = sink.applied >= before;
        let state = if is_here { "caught up" } else { "following" };
        (self.control.tell)(&format!("{state}: offset {}, {behind} B behind", sink.applied));
        self.has_caught_up |= is_here;
        Ok(is_here)
    }
}

/// The connection to the server that has the keys.
struct Link<'a> {
    stream: Stream,
    control: &'a Control<'a>,
    input: Vec<u8>,
    taken: usize,
    /// Of the commands that were read, and of those that the other server has replied to.
    offset: u64,
    applied: u64,
    /// The file has begun to come: before, a word from here would put off that it does.
    has_begun: bool,
    is_loaded: bool,
    pulsed: Nanos,
    /// When something came last.
    heard: Nanos,
}

impl<'a> Link<'a> {
    fn connect(target: &Target, control: &'a Control<'a>) -> Result<Self, MigrateError> {
        let source = |error: &dyn std::fmt::Display| MigrateError::Source(error.to_string());
        let stream = Client::connect_within(target, Some(CONNECT_MAX)).map_err(|error| source(&error))?;
        let stream = stream.into_stream();
        stream.socket().set_read_timeout(Some(TICK)).map_err(|error| source(&error))?;
        let now = SystemClock.now();
        let mut link = Self {
            stream,
            control,
            input: Vec::new(),
            taken: 0,
            offset: 0,
            applied: 0,
            has_begun: false,
            is_loaded: false,
            pulsed: now,
            heard: now,
        };
        // whoever refuses these sends its keys all the same
        link.ask(&["REPLCONF", "listening-port", "0"])?;
        link.ask(&["REPLCONF", "capa", "eof", "capa", "psync2"])?;
        Ok(link)
    }

    /// Sends a command, and reads the line that answers it.
    fn ask(&mut self, words: &[&str]) -> Result<String, MigrateError> {
        let mut request = Vec::new();
        resp::encode_command(&mut request, words);
        self.stream.write_all(&request).map_err(|error| lost(&error))?;
        loop {
            let line = self.line()?;
            if line.starts_with("-NOAUTH") || line.starts_with("-NOPERM") || line.starts_with("-LOADING") {
                return Err(MigrateError::Source(format!("the server that has the keys refused: {line}")));
            }
            // while it prepares it sends blank lines
            if !line.is_empty() {
                return Ok(line);
            }
        }
    }

    fn line(&mut self) -> Result<String, MigrateError> {
        loop {
            let input = &self.input[self.taken..];
            if let Some(len) = input.iter().position(|byte| *byte == b'\n') {
                let line = String::from_utf8_lossy(&input[..len]).trim_end().to_owned();
                self.taken += len + 1;
                return Ok(line);
            }
            if input.len() > LINE_BYTES_MAX {
                return Err(odd("a line", "a long one"));
            }
            self.wait()?;
        }
    }

    fn exactly(&mut self, len: usize) -> Result<Vec<u8>, MigrateError> {
        while self.input.len() - self.taken < len {
            self.wait()?;
        }
        let bytes = self.input[self.taken..][..len].to_vec();
        self.taken += len;
        Ok(bytes)
    }

    /// Waits until something comes.
    fn wait(&mut self) -> Result<(), MigrateError> {
        while !self.fill().map_err(|error| lost(&error))? {
            if self.control.is_over() {
                return Err(MigrateError::Told("nothing has come".to_owned()));
            }
        }
        Ok(())
    }

    /// Reads what is there; `false`: nothing came for a moment.
    fn fill(&mut self) -> io::Result<bool> {
        self.pulse()?;
        self.input.drain(..self.taken);
        self.taken = 0;
        let have = self.input.len();
        self.input.resize(have + have.clamp(READ_BYTES_MIN, READ_BYTES_MAX), 0);
        let result = self.stream.read(&mut self.input[have..]);
        self.input.truncate(have + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was closed")),
            Ok(_) => {
                self.heard = SystemClock.now();
                Ok(true)
            }
            Err(error) if processes::duplex::is_passing(&error) => {
                if SystemClock.now().since(self.heard) > PATIENCE {
                    return Err(io::Error::new(io::ErrorKind::TimedOut, "nothing came for a minute"));
                }
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Says each second that it lives, and how far it is.
    fn pulse(&mut self) -> io::Result<()> {
        let now = SystemClock.now();
        if now.since(self.pulsed) < SECOND {
            return Ok(());
        }
        self.pulsed = now;
        match (self.is_loaded, self.has_begun) {
            (false, true) => return self.stream.write_all(b"\n"),
            // it waits for others to come for the same file, until nobody has said anything for some seconds
            (false, false) => return Ok(()),
            (true, _) => {}
        }
        let mut request = Vec::new();
        resp::encode_command(&mut request, &["REPLCONF", "ACK", &self.applied.to_string()]);
        self.stream.write_all(&request)
    }
}

/// The file in what comes.
impl Read for Link<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.input.len() {
            if self.control.is_over() {
                return Err(io::Error::other("ended by a signal"));
            }
            self.fill()?;
        }
        let count = buffer.len().min(self.input.len() - self.taken);
        buffer[..count].copy_from_slice(&self.input[self.taken..][..count]);
        self.taken += count;
        Ok(count)
    }
}

fn lost(error: &io::Error) -> MigrateError {
    MigrateError::Source(format!("the connection to the server that has the keys: {error}"))
}

/// For a handshake, and for each answer to a login.
const CONNECT_MAX: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(500);
const PATIENCE: Duration = Duration::from_secs(60);
const LINE_BYTES_MAX: usize = 4 << 10;
const READ_BYTES_MIN: usize = 64 << 10;
const READ_BYTES_MAX: usize = 16 << 20;
