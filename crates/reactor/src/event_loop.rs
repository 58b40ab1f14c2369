//! A loop: a thread that reads, lets the protocol work, and writes, for its connections. How it meets their sockets is its
//! [`Driver`]'s: by readiness (`epoll`) or by completions (`uring`).
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
mod posts;
mod turns;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use clock::Nanos;
use ticket::Ticket;

use crate::handle::{Mailbox, Post};
use crate::handover::NOTHING_HELD;
use crate::peer::{Context, Peer};
use crate::pool::Pool;
use crate::slots::{Slots, token_of};
use crate::stats::Tally;
use crate::timers::Timers;
use crate::timing::{CPU_READ_EVERY, CpuMark, Tick, thread_cpu_ns};
use crate::{CloseReason, Handle, LoopStats, Protocol, StartError};

/// A loop has only writers once nobody else was answered for this long.
const ALL_WAIT_AFTER: Duration = Duration::from_millis(100);
/// Waits that fail in a row before a loop gives up: the kernel may lack memory for a moment.
pub(crate) const WAIT_FAILURES_MAX: u32 = 100;
/// Longest that ticks are one to the protocol.
const GATHER_MAX: Duration = Duration::from_micros(500);

/// How a loop meets its sockets.
pub(crate) trait Driver<P: Protocol>: Send + Sized + 'static {
    /// Waits until something happens: for ever, or for `timeout`. An interruption is no error.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// Takes in what the last wait brought, before any of it is looked at: lists in `received` who got bytes. Returns whether
    /// anything had happened.
    fn receive(of: &mut Loop<P, Self>) -> bool;

    /// Watches the socket of `peer`, whose slot is known; what came before is told of, too.
    fn attach(&mut self, peer: &mut Peer<P>) -> io::Result<()>;

    /// Asks the system for what `peer` waits for after its callbacks.
    fn settle(&mut self, peer: &mut Peer<P>) -> io::Result<()>;

    /// Whether `peer` can go to another loop now, as far as the system is concerned.
    fn may_leave(&self, _peer: &Peer<P>) -> bool {
        true
    }

    /// Watches the socket of `peer` no more; it goes to another loop.
    fn detach(&mut self, peer: &mut Peer<P>) -> io::Result<()>;

    /// Closes the socket of `peer`, which has ended; whether its slot is free at once. If not, `receive` frees it.
    fn end(&mut self, peer: Box<Peer<P>>) -> bool;
}

/// What a loop is made from, before its thread starts.
pub(crate) struct Parts<P: Protocol, D> {
    pub(crate) driver: D,
    pub(crate) mailbox: Arc<Mailbox<P>>,
}

/// Starts the loops' threads.
pub(crate) fn start<P: Protocol, D: Driver<P>>(
    handle: &Handle<P>,
    parts: Vec<Parts<P, D>>,
) -> Result<(), StartError> {
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
    ticket: Ticket,
    token: u64,
}

pub(crate) struct Loop<P: Protocol, D> {
    handle: Handle<P>,
    index: usize,
    pub(crate) driver: D,
    mailbox: Arc<Mailbox<P>>,
    stats: Arc<LoopStats>,
    pub(crate) slots: Slots<P>,
    pub(crate) pool: Pool,
    pub(crate) tally: Tally,
    timers: Timers,
    /// What was taken from the mailbox and waits for its turn.
    posts: VecDeque<Post<P>>,
    held: Vec<Held>,
    lowest_held: Ticket,
    ready: Vec<u64>,
    ready_now: Vec<u64>,
    /// Connections that were read and not yet handled; empty between ticks.
    pub(crate) received: Vec<u64>,
    moves: Vec<u64>,
    pub(crate) now: Nanos,
    cpu_read_at: Nanos,
    /// When a callback was last answered without a held reply.
    unheld_at: Nanos,
    /// When the first of the ticks ended of whose end the protocol does not know yet.
    gathers_since: Option<Nanos>,
    stopping: bool,
    /// By how much its connections grew since it last looked whether all keep too much.
    grown_bytes: i64,
    /// Waits in a row that failed.
    failures: u32,
    /// The next slot whose connection is sent away, since the loop is parked; the number of slots when all were.
    leaves_from: usize,
}

impl<P: Protocol, D: Driver<P>> Loop<P, D> {
    fn new(handle: Handle<P>, index: usize, parts: Parts<P, D>) -> Self {
        Self {
            stats: Arc::clone(&handle.shared.stats[index]),
            now: handle.shared.clock.now(),
            cpu_read_at: Nanos::default(),
            unheld_at: handle.shared.clock.now(),
            handle,
            index,
            driver: parts.driver,
            mailbox: parts.mailbox,
            slots: Slots::default(),
            pool: Pool::default(),
            tally: Tally::default(),
            timers: Timers::default(),
            posts: VecDeque::new(),
            held: Vec::new(),
            lowest_held: NOTHING_HELD,
            ready: Vec::new(),
            ready_now: Vec::new(),
            received: Vec::new(),
            gathers_since: None,
            moves: Vec::new(),
            stopping: false,
            grown_bytes: 0,
            failures: 0,
            leaves_from: 0,
        }
    }

    fn run(&mut self) {
        self.stats.set_thread();
        while !(self.stopping && self.slots.count() == 0 && self.posts.is_empty()) {
            if self.wait().is_err() {
                return self.give_up();
            }
            let began = self.handle.shared.clock.now();
            self.now = began;
            self.stats.pulse.between(began);
            self.tick();
            self.publish(began);
        }
    }

    /// Writes down what the tick that began at `began` did.
    fn publish(&mut self, began: Nanos) {
        let lag = self.now - began;
        self.tally.ticks += 1;
        self.tally.busy_ns += (lag.as_nanos() as u64).saturating_sub(self.tally.waited_ns);
        let longest = self.tally.longest;
        self.publish_kept();
        self.stats.absorb(&mut self.tally);
        let cpu = (self.now - self.cpu_read_at >= CPU_READ_EVERY).then(|| {
            self.cpu_read_at = self.now;
            CpuMark { busy_ns: self.stats.busy_ns(), cpu_ns: thread_cpu_ns() }
        });
        let is_longest = self.stats.timing.note(&Tick { lag, longest, cpu });
        if is_longest && let Some(what) = self.handle.shared.protocol.doing(longest.connection_id) {
            self.stats.timing.name_longest(what);
        }
    }

    /// Tells others what the connections keep, and looks whether that is too much once it has grown.
    fn publish_kept(&mut self) {
        let kept = std::mem::take(&mut self.tally.kept);
        self.grown_bytes += kept.sum().max(0);
        self.stats.kept.add(kept);
        if self.grown_bytes >= self.handle.shared.check_bytes() {
            self.grown_bytes = 0;
            self.handle.shared.check_budget();
        }
    }

    /// Ends all connections, for nothing that comes for them is heard of any more. What others still leave at the door, the stop takes away.
    fn give_up(&mut self) {
        while !self.posts.is_empty() {
            self.take_posts();
        }
        for index in 0..self.slots.size() {
            if let Some(peer) = self.slots.take_at(index) {
                self.end(peer, CloseReason::System);
            }
        }
        self.handle.shared.protocol.on_failure("an event loop cannot wait for events");
    }

    /// Waits for events, unless there is work already.
    ///
    /// # Errors
    /// The system refuses, time after time.
    fn wait(&mut self) -> io::Result<()> {
        let shared = &self.handle.shared;
        let nothing_to_do = self.ready.is_empty() && self.posts.is_empty() && self.gathers_since.is_none();
        let idle = nothing_to_do && !(self.is_parked() && self.leaves_from < self.slots.size());
        let timeout = if idle && !self.mailbox.begin_sleep(|| shared.protocol.released()) {
            self.timers.next().map(|deadline| deadline - shared.clock.now())
        } else {
            Some(Duration::ZERO)
        };
        self.stats.pulse.asleep();
        let waited = self.driver.wait(timeout);
        self.mailbox.end_sleep();
        let Err(error) = waited else {
            self.failures = 0;
            return Ok(());
        };
        self.failures += 1;
        if self.failures < WAIT_FAILURES_MAX {
            return Ok(());
        }
        tracing::error!(%error, loop_index = self.index, "an event loop cannot wait for events, and ends");
        Err(error)
    }

    fn tick(&mut self) {
        self.take_posts();
        self.release_held();
        let brought_events = D::receive(self);
        self.work();
        self.run_ready();
        self.fire_timers();
        self.end_tick(brought_events);
        self.leave_if_parked();
        self.move_peers();
        self.rest_if_parked();
        if !self.stopping && self.handle.shared.is_stopping() {
            self.stop();
        }
        self.mailbox.set_lowest_held(self.lowest_held);
        self.stats.held.store(self.held.len(), Ordering::Relaxed);
    }

    /// Tells the protocol that a tick ends. While all wait, ticks that follow each other at once are one to it: what is
    /// ready now shares the tickets of what came before.
    fn end_tick(&mut self, brought_events: bool) {
        let all_wait = self.lowest_held != NOTHING_HELD && self.now - self.unheld_at >= ALL_WAIT_AFTER;
        let since = self.gathers_since.unwrap_or(self.now);
        let gathers = all_wait && brought_events && self.now - since < GATHER_MAX;
        self.gathers_since = gathers.then_some(since);
        if gathers {
            return;
        }
        let protocol = &self.handle.shared.protocol;
        if !all_wait {
            self.stats.pulse.between(self.now);
            return protocol.on_tick_end(self.index, false);
        }
        self.stats.pulse.commit(self.now);
        protocol.on_tick_end(self.index, true);
        let now = self.handle.shared.clock.now();
        self.tally.waited_ns += (now - self.now).as_nanos() as u64;
        self.stats.pulse.between(now);
        self.now = now;
    }

    /// What all loops share.
    pub(crate) fn shared(&self) -> &Arc<crate::handle::Shared<P>> {
        &self.handle.shared
    }

    /// What a connection borrows of the loop while it works.
    pub(crate) fn context(&mut self) -> Context<'_, P> {
        Context {
            handle: &self.handle,
            pool: &mut self.pool,
            tally: &mut self.tally,
            limits: self.handle.shared.limits_now(),
            now: self.now,
            loop_index: self.index,
            unheld: false,
        }
    }

    /// Runs `work` on `peer`, then puts it where it belongs by what it waits for.
    pub(crate) fn drive(
        &mut self,
        mut peer: Box<Peer<P>>,
        work: impl FnOnce(&mut Peer<P>, &mut Context<'_, P>) -> Result<(), CloseReason>,
    ) {
        match self.call(&mut peer, work) {
            Ok(()) => self.settle(peer),
            Err(reason) => self.end(peer, reason),
        }
    }

    /// Runs `work` on `peer`, whose time that is.
    fn call(
        &mut self,
        peer: &mut Peer<P>,
        work: impl FnOnce(&mut Peer<P>, &mut Context<'_, P>) -> Result<(), CloseReason>,
    ) -> Result<(), CloseReason> {
        let id = peer.connection.id();
        self.stats.pulse.callback(id, self.now);
        let mut context = self.context();
        let done = work(peer, &mut context);
        let unheld = context.unheld;
        let now = self.handle.shared.clock.now();
        if unheld {
            self.unheld_at = now;
        }
        if self.tally.kept.sum() >= self.handle.shared.check_bytes() {
            // Large replies: not only at the end of the tick.
            self.publish_kept();
        }
        let took = now - self.now;
        peer.connection.busy_ns.add(took.as_nanos() as u64);
        self.tally.longest.note(id, took);
        self.now = now;
        done
    }

    /// Lists `peer` by what it waits for and puts it back into its slot.
    pub(crate) fn settle(&mut self, mut peer: Box<Peer<P>>) {
        let token = token_of(&peer.connection);
        if self.driver.settle(&mut peer).is_err() {
            return self.end(peer, CloseReason::System);
        }
        if let Some(ticket) = peer.first_ticket().filter(|_| !peer.in_held) {
            peer.in_held = true;
            self.lowest_held = self.lowest_held.or(ticket);
            self.held.push(Held { ticket, token });
        }
        if peer.wants_turn() && !peer.in_ready {
            peer.in_ready = true;
            self.ready.push(token);
        }
        if let Some(deadline) = peer.deadline()
            && peer.timer_queued.is_none_or(|queued| deadline < queued)
        {
            peer.timer_queued = Some(deadline);
            self.timers.push(deadline, token);
        }
        if peer.move_to.is_some() && self.may_leave(&peer) {
            self.moves.push(token);
        }
        self.slots.put(peer);
    }

    /// Whether `peer` may go to another loop now.
    fn may_leave(&self, peer: &Peer<P>) -> bool {
        peer.may_move() && self.driver.may_leave(peer)
    }

    /// Closes `peer`, whose slot is empty.
    pub(crate) fn end(&mut self, mut peer: Box<Peer<P>>, reason: CloseReason) {
        let shared = &self.handle.shared;
        shared.forget(&peer.connection);
        peer.close(reason, shared, &mut self.tally);
        let connection = Arc::clone(&peer.connection);
        if self.driver.end(peer) {
            self.slots.release(&connection);
        }
    }
}
