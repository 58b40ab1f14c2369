//! The connection of a bolt to its server, with the tuples that wait for replies on it, in the order of these.
//!
//! **Bounds.** `--pipeline` tuples, and about [`WAITING_BYTES_MAX`] that wait to be sent: beyond it no tuple is taken.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use clock::{Clock, SystemClock};
use connection::{Event, Link, Loss, Options};
use topology::bolt::TupleId;
use topology::component::{BoltOut, Context, Fault};

use crate::asking::Server;

/// A connection with the tuples that wait on it; of each, `K` is kept.
#[derive(Debug)]
pub(crate) struct Line<K> {
    server: Server,
    link: Option<Link>,
    /// The connection that can be asked.
    life: Option<u64>,
    pub(crate) open: VecDeque<(TupleId, K)>,
}

impl<K> Line<K> {
    pub(crate) fn new(server: Server) -> Self {
        Self { server, link: None, life: None, open: VecDeque::new() }
    }

    /// Connects, for the component of `context`.
    ///
    /// # Errors
    /// The system has no thread. A server that cannot be reached is an event.
    pub(crate) fn start(&mut self, context: &Context<'_>) -> io::Result<()> {
        let (waker, options) = (context.waker(), Options::named(&format!("link of {}", context.id())));
        let clock = context.clock_or(&(Arc::new(SystemClock) as Arc<dyn Clock>));
        self.link = Some(Link::start_at(&self.server.target, options, clock, move || waker.wake())?);
        Ok(())
    }

    /// Whether there is a connection with room for another tuple.
    pub(crate) fn is_ready(&self) -> bool {
        let has_room = |link: &Link| link.waiting_bytes() < WAITING_BYTES_MAX;
        self.life.is_some()
            && self.open.len() < self.server.pipeline
            && self.link.as_ref().is_some_and(has_room)
    }

    /// Sends the request that `append` appends; its reply comes with `token`.
    ///
    /// # Errors
    /// There is no connection.
    pub(crate) fn send(&self, token: u64, append: impl FnOnce(&mut Vec<u8>)) -> Result<(), Fault> {
        let (Some(link), Some(life)) = (&self.link, self.life) else {
            return Err(Fault::silent("there is no connection"));
        };
        if link.send(life, token, append) { Ok(()) } else { Err(Fault::silent("the connection is lost")) }
    }

    /// What has happened since the last call. Connections are to be told to [`Line::on_connected`], losses to [`Line::on_loss`].
    pub(crate) fn events(&self) -> VecDeque<Event> {
        self.link.as_ref().map(Link::take).unwrap_or_default()
    }

    pub(crate) fn on_connected(&mut self, life: u64) {
        self.life = Some(life);
    }

    /// What was under way fails: whether it was done is not known.
    pub(crate) fn on_loss(&mut self, loss: &Loss, out: &mut BoltOut<'_>) -> Fault {
        self.life = None;
        let fault = Fault::silent(loss.to_string());
        for (tuple, _) in self.open.drain(..) {
            out.fail(tuple, &fault).unwrap_or(());
        }
        fault
    }

    pub(crate) fn close(&mut self) {
        self.link = None;
    }
}

/// Bytes that may wait to be sent.
const WAITING_BYTES_MAX: usize = 1 << 20;
