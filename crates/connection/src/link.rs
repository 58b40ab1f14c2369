//! A connection on a thread of its own: many requests under way, their replies as events, and another connection when one is lost.
//!
//! ```text
//!  connect -> log in -> Event::Connected(life) ... Event::Reply ... -> Event::Lost(why) -> pause -> connect
//! ```
//!
//! A *life* is one connection. A request is for a life: it is refused if that one is over, and without an answer if it ends. Whether the server has
//! executed it then, nobody knows.
//!
//! Invariants
//!   1. Replies come in the order of their requests. After [`Event::Lost`] nothing of that life comes.
//!   2. What waits for the owner has at most `inbox_bytes_max`, and what one read gives beyond it: then nothing is read.
//!   3. A pause doubles from `pause_min` to `pause_max`; a connection that has answered sets it back.
//!
//! **Bounds.** What waits to be sent is the owner's matter ([`Link::waiting_bytes`]).
//! The thread and its owner share a [`Duplex`].

mod attend;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar};
use std::time::Duration;

use clock::{Clock, SystemClock};
use processes::duplex::Duplex;
use resp::Value;

use crate::target::Target;
use attend::Attendant;

/// How a link behaves.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of its thread.
    pub name: String,
    /// Bytes of replies that wait for the owner, beyond which nothing is read.
    pub inbox_bytes_max: usize,
    /// Most bytes of a reply: a longer one ends the connection.
    pub reply_bytes_max: usize,
    /// A server that owes a reply and sends nothing for so long is given up.
    pub timeout: Duration,
    /// Pause after a connection was lost.
    pub pause_min: Duration,
    /// Pause after many were lost.
    pub pause_max: Duration,
}

/// Why there is no connection, by what its owner can do about it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Loss {
    /// None could be made: the server is to be started, or another one to be named.
    #[error("no server answers at {target}: {why}")]
    NoServer {
        /// Where.
        target: String,
        /// What the system says.
        why: String,
    },
    /// A reply had more than [`Options::reply_bytes_max`]: less is to be asked for.
    #[error("the connection to {target} is lost: a reply has more than {bytes_max} bytes")]
    ReplyTooLong {
        /// Where.
        target: String,
        /// The bound.
        bytes_max: usize,
    },
    /// It has ended: the next one may do better.
    #[error("the connection to {target} is lost: {why}")]
    Ended {
        /// Where.
        target: String,
        /// How it ended.
        why: String,
    },
}

/// What an owner hears.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// There is a connection, logged in. Its life has this number.
    Connected(u64),
    /// The reply to the request of this token, which may be an error of the server's.
    Reply(u64, Value),
    /// The connection is gone, or there was none; and why.
    Lost(Loss),
}

/// Keeps a connection until it is dropped.
#[derive(Debug)]
pub struct Link {
    shared: Arc<Shared>,
    /// Notified when something has come.
    came: Arc<Condvar>,
}

/// With the tokens of the requests that have no reply, in their order.
type Shared = Duplex<Event, VecDeque<u64>>;

impl Link {
    /// Starts the thread, which connects. `wake` is called when there are events.
    ///
    /// # Errors
    /// The system has no thread or no descriptor. A server that cannot be reached is an event.
    pub fn start(
        target: &Target,
        options: Options,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        Self::start_at(target, options, Arc::new(SystemClock), wake)
    }

    /// As [`Link::start`], with the time of `clock`: a test lets hours pass.
    ///
    /// # Errors
    /// As [`Link::start`].
    pub fn start_at(
        target: &Target,
        options: Options,
        clock: Arc<dyn Clock>,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let came = Arc::new(Condvar::new());
        let notify = Arc::clone(&came);
        let wake_both = move || {
            notify.notify_all();
            wake();
        };
        let shared = Arc::new(Shared::new(wake_both, options.inbox_bytes_max)?);
        let builder = std::thread::Builder::new().name(options.name.clone());
        let target = target.clone();
        let attendant = Attendant { target, options, clock, shared: Arc::clone(&shared) };
        builder.spawn(move || attendant.run())?;
        Ok(Self { shared, came })
    }

    /// What has happened since the last call, in order.
    #[must_use]
    pub fn take(&self) -> VecDeque<Event> {
        self.shared.take()
    }

    /// Has the request sent that `append` appends, on the connection of `life`; its reply comes with `token`. Whether that life goes on: if
    /// not, nothing is sent.
    pub fn send(&self, life: u64, token: u64, append: impl FnOnce(&mut Vec<u8>)) -> bool {
        let sent = self.shared.send(life, |out, owed| {
            append(out);
            owed.push_back(token);
        });
        sent.is_some()
    }

    /// Bytes that wait to be sent.
    #[must_use]
    pub fn waiting_bytes(&self) -> usize {
        self.shared.lock().out.len()
    }

    /// Waits until all requests have a reply, or the connection is lost, at most for `time`.
    pub fn wait(&self, time: Duration) {
        let state = self.shared.lock();
        drop(self.came.wait_timeout_while(state, time, |it| it.life.is_some() && !it.more.is_empty()));
    }
}

impl Drop for Link {
    /// Has the connection closed; does not wait for that.
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl Options {
    /// What suits most owners; `name` is that of the thread.
    #[must_use]
    pub fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            inbox_bytes_max: 4 << 20,
            reply_bytes_max: 256 << 20,
            timeout: Duration::from_secs(30),
            pause_min: Duration::from_millis(50),
            pause_max: Duration::from_secs(5),
        }
    }
}
