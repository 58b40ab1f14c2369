//! The other side of the protocol: this process is the child, and runs a component for whoever started it, Apache Storm or a [`crate::Supervisor`].
//!
//! ```text
//!  stdin --handshake, tuples, commands--> session: calls the component --emit, ack, fail, sync--> stdout
//!                                           ^ the component's waker rings a bell
//! ```
//!
//! A session has no I/O: messages come in, bytes for standard output go out.
//!
//! Out of scope: MessagePack; direct streams.

mod bolt;
mod place;
mod said;
mod spout;
#[cfg(test)]
mod tests;

use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use topology::builder::Factory;
use topology::component::Waker;

use crate::framing::Frames;
use bolt::BoltSession;
use place::Place;
use spout::SpoutSession;

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
    let bell =
        eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|error| error.to_string())?;
    let bell = Arc::new(bell);
    let mut child = Child::new(factory, Arc::clone(&bell));
    let mut input = std::io::stdin().lock();
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let (is_readable, is_rung) = wait(&input, &bell);
        if is_rung {
            let mut count = [0; 8];
            let _ = rustix::io::read(&*bell, &mut count);
            child.on_bell();
        }
        if is_readable {
            let count = input.read(&mut buffer).map_err(|error| format!("standard input: {error}"))?;
            if count == 0 {
                child.close();
                return Ok(());
            }
            child.on_bytes(&buffer[..count])?;
        }
        if child.write_out().is_err() {
            child.close(); // nobody listens any more
            return Ok(());
        }
    }
}

/// The session, once there was a handshake, and its bytes.
struct Child<'a> {
    factory: &'a Factory,
    waker: Waker,
    frames: Frames,
    session: Option<Session>,
    out: Vec<u8>,
}

impl<'a> Child<'a> {
    fn new(factory: &'a Factory, bell: Arc<OwnedFd>) -> Self {
        let waker = Waker::new(move || {
            // It fails when it was rung 2^64 times and not heard: then it is ringing.
            let _ = rustix::io::write(&*bell, &1_u64.to_ne_bytes());
        });
        Self { factory, waker, frames: Frames::new(MESSAGE_BYTES_MAX), session: None, out: Vec::new() }
    }

    fn on_bytes(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.frames.push(bytes);
        while let Some(message) = self.frames.read().map_err(|garbage| garbage.to_string())? {
            match &mut self.session {
                Some(Session::Bolt(session)) => session.on_message(message, &mut self.out)?,
                Some(Session::Spout(session)) => session.on_message(message, &mut self.out)?,
                None => {
                    let place = Place::read(message, self.factory)?;
                    begin(&place, &mut self.out)?;
                    let session = match self.factory {
                        Factory::Bolt(make) => {
                            BoltSession::new(make(), place, &self.waker).map(Session::Bolt)
                        }
                        Factory::Spout(make) => {
                            SpoutSession::new(make(), place, &self.waker).map(Session::Spout)
                        }
                    };
                    self.session = Some(session.map_err(|fault| fault.error().to_owned())?);
                }
            }
        }
        Ok(())
    }

    fn on_bell(&mut self) {
        // A spout looks at what has happened when it is asked for the next tuple.
        if let Some(Session::Bolt(session)) = &mut self.session {
            session.wake(&mut self.out);
        }
    }

    fn write_out(&mut self) -> std::io::Result<()> {
        let mut output = std::io::stdout().lock();
        output.write_all(&self.out)?;
        output.flush()?;
        self.out.clear();
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

/// Puts the pid where the parent looks for it, and tells it.
fn begin(place: &Place, out: &mut Vec<u8>) -> Result<(), String> {
    let pid = std::process::id();
    if let Some(folder) = &place.pid_dir {
        let file = Path::new(folder).join(pid.to_string());
        #[expect(clippy::disallowed_methods, reason = "a file of the protocol's, which no simulation has")]
        std::fs::write(&file, "").map_err(|error| format!("{}: {error}", file.display()))?;
    }
    said::pid(pid, out);
    Ok(())
}

/// Waits for the two; which is ready.
fn wait(input: &impl AsFd, bell: &OwnedFd) -> (bool, bool) {
    let mut fds = [PollFd::new(input, PollFlags::IN), PollFd::new(bell, PollFlags::IN)];
    // A signal ends it early, which does no harm.
    let _ = poll(&mut fds, None);
    let [input, bell] = fds.map(|fd| !fd.revents().is_empty());
    (input, bell)
}

/// A tuple as large as a server's largest value, and more.
const MESSAGE_BYTES_MAX: usize = 256 << 20;
const READ_BYTES: usize = 64 << 10;
