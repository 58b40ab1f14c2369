//! Starting a reactor: its loops, the threads beside them, and then whoever takes connections in.
//!
//! Nothing here is needed again: what runs on knows [`Handle`] and what it shares, and not how that was put together.

use std::sync::Arc;

use clock::Clock;

use crate::balance::runner;
use crate::budget::tender;
use crate::handle::Shared;
use crate::{
    Connector, Handle, Listeners, Options, Protocol, StartError, accept, epoll, event_loop, listen, uring,
};

/// Starts reactors.
#[derive(Debug)]
pub struct Reactor;

impl Reactor {
    /// Listens, starts the loops, and returns how to steer them. Connections are served from now on.
    ///
    /// # Errors
    /// [`StartError`] when an address is taken, or the system gives no poller or thread; nothing is left
    /// running then.
    pub fn start<P: Protocol>(
        options: Options,
        protocol: Arc<P>,
        clock: Arc<dyn Clock>,
    ) -> Result<Handle<P>, StartError> {
        let listeners = Listeners::open(&options)?;
        Self::start_on(listeners, options, protocol, clock)
    }

    /// As [`Reactor::start`], on sockets that listen already: who opens these first learns that an address is taken
    /// before anything else is done.
    ///
    /// # Errors
    /// [`StartError`] when the system gives no poller or thread.
    pub fn start_on<P: Protocol>(
        Listeners(listeners): Listeners,
        mut options: Options,
        protocol: Arc<P>,
        clock: Arc<dyn Clock>,
    ) -> Result<Handle<P>, StartError> {
        if options.loops == 0 || options.loops > 1_024 {
            return Err(StartError::Options("loops must be from 1 to 1024"));
        }
        let (mut rings, mut polls) = (Vec::new(), Vec::new());
        if options.connector == Connector::Uring {
            rings = uring::parts(options.loops).unwrap_or_else(|error| {
                tracing::warn!(%error, "no io_uring for the loops: the connector is epoll");
                options.connector = Connector::Epoll;
                Vec::new()
            });
        }
        if options.connector == Connector::Epoll {
            polls = epoll::parts(options.loops)?;
        }
        let of_rings = rings.iter().map(|parts| Arc::clone(&parts.mailbox));
        let mailboxes = of_rings.chain(polls.iter().map(|parts| Arc::clone(&parts.mailbox))).collect();
        let stats = (0..if options.connector == Connector::Threads { 1 } else { options.loops })
            .map(|_| Arc::default())
            .collect();
        let addresses = |is_tls: bool| {
            let those = listeners.iter().filter(|listener| listener.is_tls == is_tls);
            those.filter_map(listen::Listener::tcp_address).collect()
        };
        let addresses = [addresses(false), addresses(true)];
        let shared = Shared::new(options, protocol, clock, mailboxes, stats, addresses);
        let handle = Handle { shared: Arc::new(shared) };
        handle.shared.protocol.on_start(&handle);
        let started = event_loop::start(&handle, rings)
            .and_then(|()| event_loop::start(&handle, polls))
            .and_then(|()| runner::start(&handle))
            .and_then(|()| tender::start(&handle))
            .and_then(|()| accept::start(&handle, listeners));
        if let Err(error) = started {
            handle.shutdown();
            handle.join();
            return Err(error);
        }
        Ok(handle)
    }
}
