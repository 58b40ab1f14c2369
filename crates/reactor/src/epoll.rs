//! The connector `epoll`: a few loops, each a thread that waits for the readiness of its connections.
//!
//! One tick:
//!
//! ```text
//!  wait -> posts -> released replies -> receive -> work -> ready list -> timers -> on_tick_end -> moves
//! ```
//!
//! Invariants
//!   1. A connection with held replies is in `held` once; one with work left is in `ready` once.
//!   2. Between two ticks every connection that could get further is in `ready`, or waits for an event, a
//!      post, a timer or a release that will come.
//!   3. The protocol hears of the end of a tick before the loop sleeps.
//!   4. A connection leaves for another loop only at the end of a tick, when no taken post is left.

mod moves;
mod receive;

use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clock::Nanos;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};

use crate::mailbox::{Mailbox, Post};
use crate::peer::{Context, Peer};
use crate::pool::Pool;
use crate::slots::{Slots, token_of};
use crate::stats::Tally;
use crate::timers::Timers;
use crate::{CloseReason, Connection, Handle, LoopStats, Protocol, StartError};

const WAKE: Token = Token(usize::MAX);
/// Few, so that what was released meanwhile leaves soon and what was appended is offered soon.
const EVENTS_PER_TICK_MAX: usize = 16;
/// A loop has only writers once nobody else was answered for this long.
const ALL_WAIT_AFTER: Duration = Duration::from_millis(100);
/// Longest that ticks are one to the protocol.
const GATHER_MAX: Duration = Duration::from_micros(500);

/// What a loop is made from, before its thread starts.
pub(crate) struct Parts<P: Protocol> {
    poll: Poll,
    mailbox: Arc<Mailbox<P>>,
}

impl<P: Protocol> Parts<P> {
    /// Pollers and mailboxes of `count` loops.
    pub(crate) fn make(count: usize) -> Result<Vec<Self>, StartError> {
        (0..count)
            .map(|_| {
                let poll = Poll::new()?;
                let waker = Waker::new(poll.registry(), WAKE)?;
                Ok(Self { poll, mailbox: Arc::new(Mailbox::new(Box::new(waker))) })
            })
            .collect::<Result<_, std::io::Error>>()
            .map_err(|source| StartError::System { what: "a poller", source })
    }

    /// The door of this loop.
    pub(crate) fn mailbox(&self) -> Arc<Mailbox<P>> {
        Arc::clone(&self.mailbox)
    }
}

/// Starts the loops' threads.
pub(crate) fn start<P: Protocol>(handle: &Handle<P>, parts: Vec<Parts<P>>) -> Result<(), StartError> {
    for (index, parts) in parts.into_iter().enumerate() {
        let mut event_loop = Loop::new(handle.clone(), index, parts);
        let thread = thread::Builder::new()
            .name(format!("loop-{index}"))
            .spawn(move || event_loop.run())
            .map_err(|source| StartError::System { what: "a loop's thread", source })?;
        handle.shared.keep_thread(thread);
    }
    Ok(())
}

/// A connection that waits for a ticket.
#[derive(Clone, Copy)]
struct Held {
    ticket: u64,
    token: u64,
}

struct Loop<P: Protocol> {
    handle: Handle<P>,
    index: usize,
    poll: Poll,
    mailbox: Arc<Mailbox<P>>,
    stats: Arc<LoopStats>,
    slots: Slots<P>,
    pool: Pool,
    tally: Tally,
    timers: Timers,
    posts: Vec<Post<P>>,
    held: Vec<Held>,
    lowest_held: u64,
    ready: Vec<u64>,
    ready_now: Vec<u64>,
    /// Connections that were read and not yet handled; empty between ticks.
    received: Vec<u64>,
    moves: Vec<u64>,
    now: Nanos,
    /// When a callback was last answered without a held reply.
    unheld_at: Nanos,
    /// When the first of the ticks ended of whose end the protocol does not know yet.
    gathers_since: Option<Nanos>,
    stopping: bool,
}

impl<P: Protocol> Loop<P> {
    fn new(handle: Handle<P>, index: usize, parts: Parts<P>) -> Self {
        Self {
            stats: Arc::clone(&handle.shared.stats[index]),
            now: handle.shared.clock.now(),
            unheld_at: handle.shared.clock.now(),
            handle,
            index,
            poll: parts.poll,
            mailbox: parts.mailbox,
            slots: Slots::default(),
            pool: Pool::default(),
            tally: Tally::default(),
            timers: Timers::default(),
            posts: Vec::new(),
            held: Vec::new(),
            lowest_held: u64::MAX,
            ready: Vec::new(),
            ready_now: Vec::new(),
            received: Vec::new(),
            gathers_since: None,
            moves: Vec::new(),
            stopping: false,
        }
    }

    fn run(&mut self) {
        let mut events = Events::with_capacity(EVENTS_PER_TICK_MAX);
        while !(self.stopping && self.slots.count() == 0) {
            self.wait(&mut events);
            let began = self.handle.shared.clock.now();
            self.now = began;
            self.tick(&events);
            self.tally.ticks += 1;
            self.tally.busy_ns += (self.now - began).as_nanos() as u64;
            self.stats.absorb(&mut self.tally);
        }
    }

    /// Waits for events, unless there is work already.
    fn wait(&mut self, events: &mut Events) {
        let shared = &self.handle.shared;
        let idle = self.ready.is_empty() && self.gathers_since.is_none();
        let timeout = if idle && !self.mailbox.begin_sleep(|| shared.protocol.released()) {
            self.timers.next().map(|deadline| deadline - shared.clock.now())
        } else {
            Some(Duration::ZERO)
        };
        if let Err(error) = self.poll.poll(events, timeout) {
            events.clear();
            if error.kind() != std::io::ErrorKind::Interrupted {
                tracing::error!(%error, loop_index = self.index, "cannot wait for events");
            }
        }
        self.mailbox.end_sleep();
    }

    fn tick(&mut self, events: &Events) {
        self.take_posts();
        self.release_held();
        self.receive(events);
        self.work();
        self.run_ready();
        self.fire_timers();
        self.end_tick(!events.is_empty());
        self.move_peers();
        if !self.stopping && self.handle.shared.is_stopping() {
            self.stop();
        }
        self.mailbox.set_lowest_held(self.lowest_held);
        self.stats.held.store(self.held.len(), Ordering::Relaxed);
    }

    /// Tells the protocol that a tick ends. While all wait, ticks that follow each other at once are one to it: what is
    /// ready now shares the tickets of what came before.
    fn end_tick(&mut self, brought_events: bool) {
        let all_wait = self.lowest_held != u64::MAX && self.now - self.unheld_at >= ALL_WAIT_AFTER;
        let since = self.gathers_since.unwrap_or(self.now);
        let gathers = all_wait && brought_events && self.now - since < GATHER_MAX;
        self.gathers_since = gathers.then_some(since);
        if !gathers {
            self.handle.shared.protocol.on_tick_end(self.index, all_wait);
        }
    }

    /// What a connection borrows of the loop while it works.
    fn context(&mut self) -> Context<'_, P> {
        Context {
            handle: &self.handle,
            pool: &mut self.pool,
            tally: &mut self.tally,
            limits: self.handle.shared.limits.load(),
            now: self.now,
            loop_index: self.index,
            unheld: false,
        }
    }

    /// Runs `work` on `peer`, then puts it where it belongs by what it waits for.
    fn drive(
        &mut self,
        mut peer: Box<Peer<P>>,
        work: impl FnOnce(&mut Peer<P>, &mut Context<'_, P>) -> Result<(), CloseReason>,
    ) {
        let mut context = self.context();
        let done = work(&mut peer, &mut context);
        let unheld = context.unheld;
        let now = self.handle.shared.clock.now();
        if unheld {
            self.unheld_at = now;
        }
        peer.connection.busy_ns.add((now - self.now).as_nanos() as u64);
        self.now = now;
        match done {
            Ok(()) => self.settle(peer),
            Err(reason) => self.end(peer, reason),
        }
    }

    /// Lists `peer` by what it waits for and puts it back into its slot.
    fn settle(&mut self, mut peer: Box<Peer<P>>) {
        let token = token_of(&peer.connection);
        if peer.blocked && !peer.watches_writes {
            peer.watches_writes = true;
            let both = Interest::READABLE | Interest::WRITABLE;
            let raw = peer.socket.as_raw_fd();
            if self.poll.registry().reregister(&mut SourceFd(&raw), Token(token as usize), both).is_err() {
                return self.end(peer, CloseReason::System);
            }
        }
        if let Some(ticket) = peer.first_ticket().filter(|_| !peer.in_held) {
            peer.in_held = true;
            self.lowest_held = self.lowest_held.min(ticket);
            self.held.push(Held { ticket, token });
        }
        if peer.wants_turn() && !peer.in_ready {
            peer.in_ready = true;
            self.ready.push(token);
        }
        if let Some(deadline) = peer.timer
            && peer.timer_queued.is_none_or(|queued| deadline < queued)
        {
            peer.timer_queued = Some(deadline);
            self.timers.push(deadline, token);
        }
        if peer.move_to.is_some() && peer.may_move() {
            self.moves.push(token);
        }
        self.slots.put(peer);
    }

    /// Closes `peer`, whose slot is empty.
    #[expect(
        clippy::boxed_local,
        reason = "it lives in its box; taking it out would copy session and buffers"
    )]
    fn end(&mut self, mut peer: Box<Peer<P>>, reason: CloseReason) {
        let shared = &self.handle.shared;
        shared.forget(&peer.connection);
        peer.close(reason, &shared.protocol);
        self.slots.release(&peer.connection);
    }

    fn take_posts(&mut self) {
        let mut posts = std::mem::take(&mut self.posts);
        self.mailbox.take(&mut posts);
        for post in posts.drain(..) {
            match post {
                Post::Arrive(peer, messages) => self.arrive(peer, messages),
                Post::Message(connection, message) => self.deliver(&connection, message),
                Post::Kill(connection) => {
                    if let Some(peer) = self.take_here(&connection) {
                        self.end(peer, CloseReason::Killed);
                    }
                }
                Post::Move(connection, to) => self.ask_to_move(&connection, to),
            }
        }
        self.posts = posts;
    }

    /// Takes the peer of `connection` if it lives here.
    fn take_here(&mut self, connection: &Connection) -> Option<Box<Peer<P>>> {
        if connection.loop_index() == self.index { self.slots.take(token_of(connection)) } else { None }
    }

    fn arrive(&mut self, mut peer: Box<Peer<P>>, messages: std::collections::VecDeque<P::Message>) {
        self.slots.assign(&peer.connection);
        peer.open(&self.handle.shared.protocol);
        if peer.connection.killed.load(Ordering::Acquire) {
            return self.end(peer, CloseReason::Killed);
        }
        let token = Token(token_of(&peer.connection) as usize);
        let interest =
            if peer.watches_writes { Interest::READABLE | Interest::WRITABLE } else { Interest::READABLE };
        // Registering reports what is ready already: nothing that came during a move is missed.
        let raw = peer.socket.as_raw_fd();
        if self.poll.registry().register(&mut SourceFd(&raw), token, interest).is_err() {
            return self.end(peer, CloseReason::System);
        }
        if self.stopping {
            self.drive(peer, |peer, context| {
                peer.begin_close(CloseReason::Shutdown, context);
                peer.finish(context)
            });
        } else {
            self.drive(peer, |peer, context| {
                peer.messages(messages, context)?;
                peer.finish(context)
            });
        }
    }

    fn deliver(&mut self, connection: &Connection, message: P::Message) {
        let Some(peer) = self.take_here(connection) else { return };
        self.drive(peer, |peer, context| peer.message(message, context));
        // Sent with what else this tick brings for it.
        self.make_ready(connection);
    }

    fn make_ready(&mut self, connection: &Connection) {
        let token = token_of(connection);
        if let Some(peer) = self.slots.get_mut(token).filter(|peer| !peer.in_ready) {
            peer.in_ready = true;
            self.ready.push(token);
        }
    }

    fn run_ready(&mut self) {
        let mut ready = std::mem::replace(&mut self.ready, std::mem::take(&mut self.ready_now));
        for token in ready.drain(..) {
            if let Some(mut peer) = self.slots.take(token) {
                peer.in_ready = false;
                self.drive(peer, Peer::turn);
            }
        }
        self.ready_now = ready;
    }

    /// Sends replies whose tickets were released since the last tick.
    fn release_held(&mut self) {
        if self.lowest_held == u64::MAX {
            return;
        }
        let released = self.handle.shared.protocol.released();
        if self.lowest_held > released {
            return;
        }
        let mut held = std::mem::take(&mut self.held);
        self.lowest_held = u64::MAX;
        held.retain(|entry| {
            if entry.ticket > released {
                self.lowest_held = self.lowest_held.min(entry.ticket);
                return true;
            }
            if let Some(mut peer) = self.slots.take(entry.token) {
                peer.in_held = false;
                // A turn, not only a flush: input may have waited for room.
                self.drive(peer, Peer::turn);
            }
            false
        });
        // What is held anew was listed by `settle`.
        held.append(&mut self.held);
        self.held = held;
    }

    fn fire_timers(&mut self) {
        while let Some((deadline, token)) = self.timers.pop_due(self.now) {
            let Some(mut peer) = self.slots.take(token) else { continue };
            if peer.timer_queued != Some(deadline) {
                self.slots.put(peer);
                continue;
            }
            peer.timer_queued = None;
            if peer.timer.is_some_and(|due| due <= self.now) {
                self.drive(peer, |peer, context| {
                    peer.fire_timer(context)?;
                    peer.turn(context)
                });
            } else {
                self.settle(peer);
            }
        }
        let slots = &self.slots;
        self.timers.trim(slots.count(), |deadline, token| {
            slots.get(token).is_some_and(|peer| peer.timer_queued == Some(deadline))
        });
    }

    /// Begins the stop: every connection sends what it may, and ends.
    fn stop(&mut self) {
        self.stopping = true;
        for index in 0..self.slots.size() {
            if let Some(peer) = self.slots.take_at(index) {
                self.drive(peer, |peer, context| {
                    peer.begin_close(CloseReason::Shutdown, context);
                    peer.finish(context)
                });
            }
        }
    }
}
