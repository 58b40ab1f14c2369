//! The connector `threads`: one blocking thread for each connection, the server of 2009, kept as the honest
//! comparison. Same protocol, same limits, same held replies; connections do not move.
//!
//! A thread waits in poll(2) on its socket and on an eventfd, its door for messages, releases and stops.
//! A plain blocking read would save that call and could not be woken.

pub(crate) mod workers;

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use clock::Nanos;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::handle::{Mailbox, Post, Route, Shared};
use crate::handover::NOTHING_HELD;
use crate::mailbox::Doorbell;
use crate::peer::{Context, Peer};
use crate::pool::Pool;
use crate::stats::Tally;
use crate::{CloseReason, Handle, Protocol};

/// An idle thread gives its buffers up after this.
const BUFFERS_KEPT: Duration = Duration::from_millis(100);

/// Starts the thread of a connection that was just accepted.
///
/// # Errors
/// The system gives no thread, or no eventfd; and the socket, whose client is to be told so.
pub(crate) fn start<P: Protocol>(handle: &Handle<P>, peer: Box<Peer<P>>) -> Result<(), (io::Error, OwnedFd)> {
    let connection = Arc::clone(&peer.connection);
    let doorbell = match Doorbell::new() {
        Ok(doorbell) => doorbell,
        Err(error) => return Err((error, abandon(handle, *peer))),
    };
    let worker = Worker::new(handle, peer, doorbell);
    let route = Route { connection: Arc::clone(&connection), mailbox: Some(Arc::clone(&worker.mailbox)) };
    handle.shared.table().insert(connection.id(), route);
    handle.shared.workers.enter();
    // A thread that does not start would take what it was given with it.
    let given = Arc::new(Mutex::new(Some(worker)));
    let taken = Arc::clone(&given);
    let take =
        |worker: &Mutex<Option<Worker<P>>>| worker.lock().unwrap_or_else(PoisonError::into_inner).take();
    let started = thread::Builder::new()
        .name(format!("client-{}", connection.id()))
        .stack_size(handle.shared.options.thread_stack_bytes)
        .spawn(move || take(&taken).expect("taken once").run());
    // Threads come and go: the count of workers is what a stop waits for.
    let Err(error) = started else { return Ok(()) };
    handle.shared.workers.leave();
    let worker = take(&given).expect("no thread took it");
    Err((error, abandon(handle, *worker.peer)))
}

/// Forgets a connection that nobody serves; its socket.
fn abandon<P: Protocol>(handle: &Handle<P>, peer: Peer<P>) -> OwnedFd {
    peer.connection.set_close_reason(CloseReason::System);
    handle.shared.forget(&peer.connection);
    peer.socket
}

struct Worker<P: Protocol> {
    handle: Handle<P>,
    mailbox: Arc<Mailbox<P>>,
    bell: Arc<OwnedFd>,
    peer: Box<Peer<P>>,
    pool: Pool,
    tally: Tally,
    now: Nanos,
    stopping: bool,
}

impl<P: Protocol> Worker<P> {
    fn new(handle: &Handle<P>, peer: Box<Peer<P>>, doorbell: Doorbell) -> Self {
        let bell = doorbell.descriptor();
        let mailbox = Arc::new(Mailbox::new(Box::new(doorbell)));
        Self {
            now: handle.shared.clock.now(),
            handle: handle.clone(),
            mailbox,
            bell,
            peer,
            pool: Pool::of_worker(),
            tally: Tally::default(),
            stopping: false,
        }
    }

    fn run(mut self) {
        let shared = Arc::clone(&self.handle.shared);
        self.peer.open(&shared.protocol);
        if shared.is_stopping() {
            // The stop told those that were listed then; this one came later, perhaps.
            self.mailbox.wake_always();
        }
        let reason = loop {
            if let Err(reason) = self.wait().and_then(|()| self.work()) {
                break reason;
            }
        };
        if shared.holders.leave(self.peer.connection.id(), &self.mailbox) != NOTHING_HELD {
            shared.stats[0].held.fetch_sub(1, Ordering::Relaxed);
        }
        shared.forget(&self.peer.connection);
        self.peer.close(reason, &shared, &mut self.tally);
        shared.stats[0].absorb(&mut self.tally);
        shared.workers.leave();
    }

    /// Waits for the socket, the bell, or the timer.
    fn wait(&mut self) -> Result<(), CloseReason> {
        let shared = Arc::clone(&self.handle.shared);
        if self.peer.wants_turn() || self.mailbox.begin_sleep(|| shared.protocol.released()) {
            return Ok(());
        }
        let ready = self.poll_until(self.timeout());
        self.mailbox.end_sleep();
        let Some((socket, bell)) = ready? else {
            self.pool = Pool::of_worker();
            return Ok(());
        };
        if bell.contains(PollFlags::IN) {
            // The count does not matter; an error means that it was read already.
            let _ = rustix::io::read(&*self.bell, &mut [0; 8]);
            self.tally.wakes += 1;
        }
        if socket.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            return self.peer.on_hang_up();
        }
        self.peer.readable |= socket.contains(PollFlags::IN);
        self.peer.read_closed |= socket.contains(PollFlags::RDHUP);
        Ok(())
    }

    fn timeout(&self) -> Option<Duration> {
        let timer = self.peer.deadline().map(|deadline| deadline - self.handle.shared.clock.now());
        let buffers = if self.pool.is_empty() { None } else { Some(BUFFERS_KEPT) };
        timer.into_iter().chain(buffers).min()
    }

    /// What happened on the socket and at the bell; `None` after `timeout`.
    fn poll_until(&self, timeout: Option<Duration>) -> Result<Option<(PollFlags, PollFlags)>, CloseReason> {
        let mut wanted = PollFlags::empty();
        wanted.set(PollFlags::IN, self.peer.takes_input() || self.peer.drains());
        wanted.set(PollFlags::OUT, self.peer.blocked);
        // Once: it stays true.
        wanted.set(PollFlags::RDHUP, !self.peer.read_closed);
        let mut entries = [PollFd::new(&self.peer.socket, wanted), PollFd::new(&*self.bell, PollFlags::IN)];
        // A wait that is too long for the type is as good as one without end.
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        match rustix::event::poll(&mut entries, timeout.as_ref()) {
            Ok(0) => Ok(None),
            Ok(_) => Ok(Some((entries[0].revents(), entries[1].revents()))),
            Err(Errno::INTR) => Ok(Some((PollFlags::empty(), PollFlags::empty()))),
            Err(_) => Err(CloseReason::System),
        }
    }

    fn work(&mut self) -> Result<(), CloseReason> {
        let shared = Arc::clone(&self.handle.shared);
        self.now = shared.clock.now();
        let mut posts = Vec::new();
        self.mailbox.take(&mut posts);
        let mut context = Context {
            handle: &self.handle,
            pool: &mut self.pool,
            tally: &mut self.tally,
            limits: shared.limits_now(),
            now: self.now,
            loop_index: 0,
            unheld: false,
        };
        let peer = &mut self.peer;
        for post in posts {
            match post {
                Post::Message(_, message) => peer.message(message, &mut context)?,
                Post::Room(_, refusal) => peer.on_room(refusal, &mut context)?,
                _ => {}
            }
        }
        if peer.connection.killed.load(Ordering::Acquire) {
            return Err(peer.connection.kill_reason());
        }
        if shared.is_stopping() && !self.stopping {
            self.stopping = true;
            peer.begin_close(CloseReason::Shutdown, &context);
        }
        if peer.deadline().is_some_and(|deadline| deadline <= self.now) {
            peer.fire_timers(&mut context)?;
        }
        let done = peer.turn(&mut context);
        shared.protocol.on_tick_end(0, false);
        self.publish(&shared);
        done
    }

    fn publish(&mut self, shared: &Shared<P>) {
        let took = (shared.clock.now() - self.now).as_nanos() as u64;
        self.peer.connection.busy_ns.add(took);
        self.tally.ticks += 1;
        self.tally.busy_ns += took;
        let grown_bytes = self.tally.kept.sum();
        shared.stats[0].absorb(&mut self.tally);
        if grown_bytes >= shared.check_bytes() {
            shared.check_budget();
        }
        let ticket = self.peer.first_ticket().unwrap_or(NOTHING_HELD);
        let id = self.peer.connection.id();
        let before = shared.holders.set_lowest_held(id, &self.mailbox, ticket);
        match (before == NOTHING_HELD, ticket == NOTHING_HELD) {
            (true, false) => drop(shared.stats[0].held.fetch_add(1, Ordering::Relaxed)),
            (false, true) => drop(shared.stats[0].held.fetch_sub(1, Ordering::Relaxed)),
            _ => {}
        }
    }
}
