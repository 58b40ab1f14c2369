//! The other side of the protocol: this process is the child, and runs a component for whoever started it, Apache Storm or a [`crate::child_thread`].
//!
//! ```text
//!  stdin --handshake, tuples, commands--> session: calls the component --emit, ack, fail, sync--> stdout
//!                                           ^ the component's waker
//! ```
//!
//! [`Child`] has no I/O: messages come in, bytes for standard output go out. It speaks as its parent does, JSON or MessagePack.
//!
//! Out of scope: direct streams.

mod bolt;
mod place;
mod said;
mod spout;
#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::path::Path;
use std::sync::Arc;

use processes::duplex::{EventFd, wait};
use rustix::event::{PollFd, PollFlags};
use topology::builder::Factory;
use topology::component::Waker;

use crate::codec::Codec;
use crate::framing::Frames;
use crate::message::Garbage;
use bolt::BoltSession;
use place::Place;
use spout::SpoutSession;

/// A component that is the child of whoever speaks to it: messages come in, and bytes for standard output go out.
pub struct Child<'a> {
    factory: &'a Factory,
    waker: Waker,
    /// What has come, once something has: its first byte tells the codec.
    frames: Option<Frames>,
    session: Option<Session>,
    /// Where the parent looks for the pid.
    pid_dir: Option<String>,
    out: Vec<u8>,
}

/// A component that is called for messages.
enum Session {
    Bolt(BoltSession),
    Spout(SpoutSession),
}

/// Runs one component of `factory` for the process at the other ends of standard input and output, until that one closes them.
///
/// # Errors
/// What it was sent is no message of the protocol, or the component could not begin.
pub fn serve(factory: &Factory) -> Result<(), String> {
    let wakes = Arc::new(EventFd::new().map_err(|error| error.to_string())?);
    let wake = Arc::clone(&wakes);
    let waker = Waker::new(move || wake.wake());
    let mut child = Child::new(factory, waker);
    let mut input = std::io::stdin().lock();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let mut fds = [PollFd::new(&input, PollFlags::IN), wakes.poll_fd()];
        wait(&mut fds, None);
        let [is_readable, is_woken] = fds.map(|fd| !fd.revents().is_empty());
        if is_woken {
            wakes.clear();
            child.on_wake();
        }
        if is_readable {
            let count = input.read(&mut buffer).map_err(|error| format!("standard input: {error}"))?;
            if count == 0 {
                child.close();
                return Ok(());
            }
            child.on_bytes(&buffer[..count])?;
        }
        if let Some(folder) = child.pid_dir.take() {
            leave_pid(&folder)?;
        }
        if write_out(&mut child.out).is_err() {
            child.close(); // nobody listens any more
            return Ok(());
        }
    }
}

impl<'a> Child<'a> {
    /// A child of `factory`, whose component calls `waker` for [`Child::on_wake`].
    #[must_use]
    pub fn new(factory: &'a Factory, waker: Waker) -> Self {
        Self { factory, waker, frames: None, session: None, pid_dir: None, out: Vec::new() }
    }

    /// Bytes have come: all messages in them are handled.
    ///
    /// # Errors
    /// They are no message, or the component could not begin. Nothing that follows can be handled.
    pub fn on_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        let Some(&first) = bytes.first() else { return Ok(()) };
        let mut frames =
            self.frames.take().unwrap_or_else(|| Frames::new(Codec::of_first(first), MESSAGE_BYTES_MAX));
        frames.push(bytes);
        let codec = frames.codec();
        while let Some(message) = frames.read().map_err(|garbage| unreadable(&garbage))? {
            match &mut self.session {
                Some(Session::Bolt(session)) => session.on_message(message, &mut self.out)?,
                Some(Session::Spout(session)) => session.on_message(message, &mut self.out)?,
                None => self.begin(codec, message)?,
            }
        }
        self.frames = Some(frames);
        Ok(())
    }

    /// The component's waker was called.
    pub fn on_wake(&mut self) {
        // A spout looks at what has happened when it is asked for the next tuple.
        if let Some(Session::Bolt(session)) = &mut self.session {
            session.wake(&mut self.out);
        }
    }

    /// Takes the bytes for standard output.
    #[must_use]
    pub fn take_out(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    /// The handshake has come.
    fn begin(&mut self, codec: Codec, message: &[u8]) -> Result<(), String> {
        let mut place = Place::read(codec, message, self.factory)?;
        self.pid_dir = place.pid_dir.take();
        said::pid(codec, std::process::id(), &mut self.out);
        let session = match self.factory {
            Factory::Bolt(make) => BoltSession::new(make(), place, &self.waker).map(Session::Bolt),
            Factory::Spout(make) => SpoutSession::new(make(), place, &self.waker).map(Session::Spout),
        };
        self.session = Some(session.map_err(|fault| fault.error().to_owned())?);
        Ok(())
    }

    fn close(&mut self) {
        match &mut self.session {
            Some(Session::Bolt(session)) => session.close(),
            Some(Session::Spout(session)) => session.close(),
            None => {}
        }
    }
}

impl std::fmt::Debug for Child<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Child").field("frames", &self.frames).finish_non_exhaustive()
    }
}

/// Puts the pid where the parent looks for it.
fn leave_pid(folder: &str) -> Result<(), String> {
    let file = Path::new(folder).join(std::process::id().to_string());
    #[expect(clippy::disallowed_methods, reason = "a file of the protocol's, which no simulation has")]
    std::fs::write(&file, "").map_err(|error| format!("{}: {error}", file.display()))
}

fn write_out(out: &mut Vec<u8>) -> std::io::Result<()> {
    let mut output = std::io::stdout().lock();
    output.write_all(out)?;
    output.flush()?;
    out.clear();
    Ok(())
}

/// What is wrong with bytes of the parent's.
fn unreadable(garbage: &Garbage) -> String {
    match garbage {
        Garbage::NoMessage { error, begin } => format!("standard input has no message: {error}: `{begin}`"),
        other => other.to_string(),
    }
}

/// A tuple as large as a server's largest value, and more.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
const READ_BYTES: usize = 64 << 10;
