//! What the threads of a reactor share, and steering it from others: posts, kills, moves, releases, limits, the stop.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use clock::Clock;

use crate::balance::active_count::Active;
use crate::balance::assign::{self, Candidate, Hosts};
use crate::balance::steering::Steering;
use crate::budget::{Budget, PRESSED_SOFT_BYTES};
use crate::connection::Killer;
use crate::handshakes::HandshakeStats;
use crate::peer::Peer;
use crate::stats::Tally;
use crate::threads::workers::Workers;
use crate::tls::TlsOptions;
use crate::{
    AcceptStats, Address, Assignment, Balance, BudgetLimits, BudgetReport, CloseReason, Connection,
    Connector, Limits, LoopStats, MoveError, Options, Protocol, handover, mailbox,
};

/// Steers a reactor from any thread. Clones are cheap and steer the same reactor.
pub struct Handle<P: Protocol> {
    pub(crate) shared: Arc<Shared<P>>,
}

impl<P: Protocol> Clone for Handle<P> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<P: Protocol> fmt::Debug for Handle<P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("connections", &self.connection_count()).finish_non_exhaustive()
    }
}

impl<P: Protocol> Handle<P> {
    /// Gives `message` to a connection, wherever it lives; `false` when it has ended.
    ///
    /// A message to a connection that ends before it is delivered is dropped.
    pub fn post(&self, connection_id: u64, message: P::Message) -> bool {
        self.connection(connection_id).is_some_and(|connection| self.post_to(&connection, message))
    }

    /// As [`Handle::post`], without the look-up: under `epoll` no lock is shared between loops.
    pub fn post_to(&self, connection: &Arc<Connection>, message: P::Message) -> bool {
        self.shared.send(connection, Post::Message(Arc::clone(connection), message))
    }

    /// Ends a connection soon; `false` when there is none with this id.
    pub fn kill(&self, connection_id: u64) -> bool {
        let connection = self.connection(connection_id);
        connection.inspect(|connection| connection.kill()).is_some()
    }

    /// Has a connection change to another loop, between two of its callbacks and, when it is parked, after
    /// the message that ends that. Returns when the move is under way; see [`Connection::loop_index`].
    ///
    /// # Errors
    /// [`MoveError`] when there is no such connection or loop, or the connector cannot move connections.
    pub fn move_connection(&self, connection_id: u64, loop_index: usize) -> Result<(), MoveError> {
        if self.shared.options.connector == Connector::Threads {
            return Err(MoveError::Connector);
        }
        let count = self.shared.mailboxes.len();
        if loop_index >= count {
            return Err(MoveError::UnknownLoop { index: loop_index, count });
        }
        let active = self.shared.active.count();
        if loop_index >= active {
            return Err(MoveError::ParkedLoop { index: loop_index, active });
        }
        let unknown = MoveError::UnknownConnection(connection_id);
        let connection = self.connection(connection_id).ok_or(unknown)?;
        if self.shared.order_to_move(&connection, loop_index) { Ok(()) } else { Err(unknown) }
    }

    /// Wakes the loops whose held replies may leave now that [`Protocol::released`] has grown.
    ///
    /// Call it after each advance. Costs an atomic load for each loop, and one system call for each that
    /// sleeps on such replies.
    pub fn wake_released(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
        let released = self.shared.protocol.released();
        for mailbox in &self.shared.mailboxes {
            mailbox.wake_released(released);
        }
        if self.shared.options.connector == Connector::Threads {
            self.shared.holders.wake_released(released);
        }
    }

    /// Has every thread that runs callbacks drop a clone of `token` as soon as none of those runs any more that run now. When the
    /// last clone is gone, all callbacks that run see what was written before this call.
    ///
    /// Wakes all threads: not for the path of a request.
    pub fn pass(&self, token: &Arc<dyn Any + Send + Sync>) {
        for mailbox in &self.shared.mailboxes {
            mailbox.post(Post::Pass(Arc::clone(token)));
        }
        let of_threads: Vec<_> =
            self.shared.table().values().filter_map(|route| route.mailbox.clone()).collect();
        of_threads.iter().for_each(|mailbox| mailbox.post(Post::Pass(Arc::clone(token))));
    }

    /// The connection with this id, if it has not ended.
    #[must_use]
    pub fn connection(&self, id: u64) -> Option<Arc<Connection>> {
        self.shared.table().get(&id).map(|route| Arc::clone(&route.connection))
    }

    /// All connections, by id.
    #[must_use]
    pub fn connections(&self) -> Vec<Arc<Connection>> {
        let mut all = self.shared.some_order();
        all.sort_unstable_by_key(|connection| connection.id());
        all
    }

    /// How many connections there are.
    #[must_use]
    pub fn connection_count(&self) -> usize {
        self.shared.open.load(Ordering::Relaxed)
    }

    /// Counters of each loop; of all threads together under the connector `threads`.
    #[must_use]
    pub fn loops(&self) -> &[Arc<LoopStats>] {
        &self.shared.stats
    }

    /// Posts that the loop `loop_index` has not taken yet; 0 under the connector `threads`.
    ///
    /// A protocol that turns one request into many messages should yield while this is high, for a mailbox
    /// has no bound of its own: a message that ends a park must never be refused.
    #[must_use]
    pub fn mailbox_depth(&self, loop_index: usize) -> usize {
        self.shared.mailboxes.get(loop_index).map_or(0, |mailbox| mailbox.depth())
    }

    /// Counters of the acceptor.
    #[must_use]
    pub fn accept_stats(&self) -> &AcceptStats {
        &self.shared.accept_stats
    }

    /// Counters of TLS handshakes.
    #[must_use]
    pub fn handshake_stats(&self) -> &HandshakeStats {
        &self.shared.handshake_stats
    }

    /// TCP addresses listened on, with the port that was chosen for port 0.
    #[must_use]
    pub fn tcp_addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses[0]
    }

    /// The same for those of clients that speak TLS.
    #[must_use]
    pub fn tls_addresses(&self) -> &[SocketAddr] {
        &self.shared.addresses[1]
    }

    /// Changes how connections with TLS begin: those whose handshake has begun go on as they are.
    pub fn set_tls(&self, tls: TlsOptions) {
        *self.shared.tls.lock().unwrap_or_else(PoisonError::into_inner) = Some(tls);
    }

    /// The connector in use.
    #[must_use]
    pub fn connector(&self) -> Connector {
        self.shared.options.connector
    }

    /// Connections served at once.
    #[must_use]
    pub fn connections_max(&self) -> usize {
        self.shared.connections_max.load(Ordering::Relaxed)
    }

    /// Changes how many connections are served at once; those that are open stay.
    pub fn set_connections_max(&self, count: usize) {
        self.shared.connections_max.store(count, Ordering::Relaxed);
    }

    /// How connections are balanced.
    #[must_use]
    pub fn balance(&self) -> Balance {
        self.shared.steering.balance()
    }

    /// Changes how connections are balanced, from the interval on that runs.
    pub fn set_balance(&self, balance: Balance) {
        self.shared.steering.set_balance(balance);
    }

    /// Bounds of one connection's buffers.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.shared.limits.load()
    }

    /// Changes the bounds of one connection's buffers: that of input for new connections, the others for
    /// all from their next turn.
    pub fn set_limits(&self, limits: &Limits) {
        self.shared.limits.store(limits);
    }

    /// What all connections keep, and what was done about it. Looks whether it is too much, as loops do only when they grow.
    #[must_use]
    pub fn budget(&self) -> BudgetReport {
        self.shared.check_budget();
        self.shared.budget_report()
    }

    /// Changes what all connections together may keep.
    pub fn set_budget(&self, limits: &BudgetLimits) {
        self.shared.budget.set_limits(limits);
        self.shared.check_budget();
    }

    /// Whether more is kept than may be. One load.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.shared.budget.is_pressed()
    }

    /// Begins a stop: no more connections, no more input; what is or gets released within the grace time
    /// is sent. Returns at once.
    pub fn shutdown(&self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        self.shared.steering.stop();
        self.shared.budget.stop();
        for waker in &*self.shared.acceptors.lock().unwrap_or_else(PoisonError::into_inner) {
            // A failed wake-up costs the acceptor's poll interval, no more.
            let _ = waker.wake();
        }
        for mailbox in &self.shared.mailboxes {
            mailbox.wake_always();
        }
        for route in self.shared.table().values() {
            if let Some(mailbox) = &route.mailbox {
                mailbox.wake_always();
            }
        }
    }

    /// Waits until all threads of the reactor have ended, which they do after [`Handle::shutdown`].
    pub fn join(&self) {
        loop {
            let thread = self.shared.threads.lock().unwrap_or_else(PoisonError::into_inner).pop();
            let Some(thread) = thread else { break };
            if thread.join().is_err() {
                tracing::error!("a reactor thread panicked");
            }
        }
        self.shared.workers.wait_for_none();
        self.shared.end_late_arrivals();
    }
}

/// Something for a loop to do.
pub(crate) type Post<P> = mailbox::Post<Box<Peer<P>>, <P as Protocol>::Message>;

/// The door of a loop, or of a connection's thread.
pub(crate) type Mailbox<P> = handover::Mailbox<Post<P>>;

/// The doors of threads that hold a ticket, under the connector `threads`.
pub(crate) type Holders<P> = handover::Holders<Post<P>>;

/// Where a connection is found.
pub(crate) struct Route<P: Protocol> {
    pub(crate) connection: Arc<Connection>,
    /// Its own door under the connector `threads`.
    pub(crate) mailbox: Option<Arc<Mailbox<P>>>,
}

/// What all threads of a reactor share.
pub(crate) struct Shared<P: Protocol> {
    pub(crate) options: Options,
    pub(crate) protocol: Arc<P>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) limits: LimitCells,
    pub(crate) connections_max: AtomicUsize,
    /// One for each loop; none under the connector `threads`.
    pub(crate) mailboxes: Vec<Arc<Mailbox<P>>>,
    pub(crate) stats: Vec<Arc<LoopStats>>,
    /// Plain ones, and those of TLS.
    pub(crate) addresses: [Vec<SocketAddr>; 2],
    pub(crate) tls: Mutex<Option<TlsOptions>>,
    pub(crate) handshake_stats: Arc<HandshakeStats>,
    pub(crate) accept_stats: AcceptStats,
    pub(crate) table: Mutex<HashMap<u64, Route<P>>>,
    pub(crate) open: AtomicUsize,
    pub(crate) next_id: AtomicU64,
    pub(crate) stopping: AtomicBool,
    pub(crate) acceptors: Mutex<Vec<mio::Waker>>,
    pub(crate) threads: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) workers: Workers,
    /// Doors of threads that hold replies, under the connector `threads`.
    pub(crate) holders: Holders<P>,
    pub(crate) steering: Steering,
    pub(crate) active: Active,
    pub(crate) budget: Budget,
    /// Of the assignment by host.
    hosts: Mutex<Hosts>,
    /// Of the assignment one after the other.
    turns: AtomicUsize,
}

impl<P: Protocol> Shared<P> {
    /// What loops and handles of a reactor share; `mailboxes` and `stats` are those of its loops, in order.
    pub(crate) fn new(
        options: Options,
        protocol: Arc<P>,
        clock: Arc<dyn Clock>,
        mailboxes: Vec<Arc<Mailbox<P>>>,
        stats: Vec<Arc<LoopStats>>,
        addresses: [Vec<SocketAddr>; 2],
    ) -> Self {
        Self {
            limits: LimitCells::new(&options.limits),
            connections_max: AtomicUsize::new(options.connections_max),
            steering: Steering::new(options.balance),
            active: Active::new(&options, clock.now()),
            budget: Budget::new(&options.budget),
            tls: Mutex::new(options.tls.clone()),
            handshake_stats: Arc::default(),
            options,
            protocol,
            clock,
            mailboxes,
            stats,
            addresses,
            accept_stats: AcceptStats::default(),
            table: Mutex::default(),
            open: AtomicUsize::new(0),
            next_id: AtomicU64::new(1),
            stopping: AtomicBool::new(false),
            acceptors: Mutex::default(),
            threads: Mutex::default(),
            workers: Workers::default(),
            holders: Holders::default(),
            hosts: Mutex::default(),
            turns: AtomicUsize::new(0),
        }
    }

    pub(crate) fn table(&self) -> MutexGuard<'_, HashMap<u64, Route<P>>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn keep_thread(&self, thread: JoinHandle<()>) {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner).push(thread);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Relaxed)
    }

    /// Bounds of one connection's buffers, as narrow as they have to be now.
    pub(crate) fn limits_now(&self) -> Limits {
        let mut limits = self.limits.load();
        if self.budget.is_pressed() {
            limits.output_bytes_soft = limits.output_bytes_soft.min(PRESSED_SOFT_BYTES);
        }
        limits
    }

    /// Memory of a connection as such: what an idle one takes here.
    pub(crate) fn connection_bytes<Q: Protocol>(&self) -> i64 {
        let own = size_of::<Peer<Q>>() + size_of::<Connection>() + CONNECTION_LISTS_BYTES;
        let of_thread = if self.options.connector == Connector::Threads { THREAD_BYTES } else { 0 };
        (own + of_thread) as i64
    }

    /// The loop that has least to do.
    pub(crate) fn idlest_loop(&self) -> usize {
        assign::least_loaded(&self.candidates())
    }

    /// The loop for a connection that was accepted from `peer`, and whether it is bound to it.
    pub(crate) fn choose_loop(&self, peer: &Address) -> (usize, bool) {
        if let (Assignment::ByHost, Address::Tcp(address)) = (self.options.assignment, peer) {
            // First the lock: the number of active loops changes under it.
            let mut hosts = self.hosts();
            return (hosts.enter(address.ip(), &self.candidates()), true);
        }
        let candidates = self.candidates();
        if self.options.assignment == Assignment::RoundRobin {
            let turn = self.turns.fetch_add(1, Ordering::Relaxed);
            return (assign::round_robin(&candidates, turn), false);
        }
        (assign::least_loaded(&candidates), false)
    }

    /// The loop for a connection whose own is parked.
    pub(crate) fn choose_loop_again(&self, connection: &Connection) -> usize {
        let bound = match connection.peer() {
            Address::Tcp(address) if connection.is_bound() => self.hosts().loop_of(address.ip()),
            _ => None,
        };
        bound.unwrap_or_else(|| self.idlest_loop())
    }

    /// The active loops, as an arrival sees them.
    fn candidates(&self) -> Vec<Candidate> {
        let now = self.clock.now();
        self.stats[..self.active.count()].iter().map(|stats| stats.candidate(now)).collect()
    }

    pub(crate) fn hosts(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How connections with TLS begin now.
    pub(crate) fn tls(&self) -> Option<TlsOptions> {
        self.tls.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// All connections, in any order.
    pub(crate) fn some_order(&self) -> Vec<Arc<Connection>> {
        self.table().values().map(|route| Arc::clone(&route.connection)).collect()
    }

    /// Tells the loop of `connection` that it is to go to another; whether it is there to be told of.
    pub(crate) fn order_to_move(&self, connection: &Arc<Connection>, to: usize) -> bool {
        connection.order_to(to);
        self.send(connection, Post::Move(Arc::clone(connection)))
    }

    /// Leaves a post at the door of `connection`, and follows it when it moves meanwhile.
    pub(crate) fn send(&self, connection: &Connection, mut post: Post<P>) -> bool {
        if self.mailboxes.is_empty() {
            let mailbox = self.table().get(&connection.id()).and_then(|route| route.mailbox.clone());
            return mailbox.is_some_and(|mailbox| mailbox.post_if(post, || !connection.is_closed()).is_ok());
        }
        while !connection.is_closed() {
            let index = connection.loop_index();
            match self.mailboxes[index].post_if(post, || connection.loop_index() == index) {
                Ok(()) => return true,
                Err(back) => post = back,
            }
        }
        false
    }

    /// Forgets a connection that has ended.
    pub(crate) fn forget(&self, connection: &Connection) {
        self.table().remove(&connection.id());
        let before = self.open.fetch_sub(1, Ordering::Relaxed);
        assert!(before > 0, "more connections ended than began");
        self.stats[connection.loop_index()].connections.fetch_sub(1, Ordering::Relaxed);
        if connection.is_bound()
            && let Address::Tcp(address) = connection.peer()
        {
            self.hosts().leave(address.ip());
        }
    }
}

impl<P: Protocol> Shared<P> {
    /// Ends connections that were handed to a loop after it had ended.
    fn end_late_arrivals(&self) {
        let mut posts = Vec::new();
        self.mailboxes.iter().for_each(|mailbox| {
            mailbox.take(&mut posts);
            for post in posts.drain(..) {
                if let Post::Arrive(mut peer, _) = post {
                    self.forget(&peer.connection);
                    peer.close(CloseReason::Shutdown, self, &mut Tally::default());
                }
            }
        });
    }
}

impl<P: Protocol> Killer for Shared<P> {
    fn kill(&self, connection: &Arc<Connection>) {
        connection.killed.store(true, Ordering::Release);
        self.send(connection, Post::Kill(Arc::clone(connection)));
    }
}

/// Places of a connection in lists and tables.
const CONNECTION_LISTS_BYTES: usize = 160;
/// What a connection's thread takes: the used part of its stack, its mailbox, and what the system's library keeps for it.
const THREAD_BYTES: usize = 24 << 10;

/// [`Limits`] that change at run time.
pub(crate) struct LimitCells([AtomicUsize; 4]);

impl LimitCells {
    fn new(limits: &Limits) -> Self {
        let cells = Self(Default::default());
        cells.store(limits);
        cells
    }

    fn store(&self, limits: &Limits) {
        let Limits { input_bytes_max, output_bytes_soft, output_bytes_max, held_bytes_max } = *limits;
        let values = [input_bytes_max, output_bytes_soft, output_bytes_max, held_bytes_max];
        for (cell, value) in self.0.iter().zip(values) {
            cell.store(value, Ordering::Relaxed);
        }
    }

    pub(crate) fn load(&self) -> Limits {
        let [input, soft, output, held] = self.0.each_ref().map(|cell| cell.load(Ordering::Relaxed));
        Limits {
            input_bytes_max: input,
            output_bytes_soft: soft,
            output_bytes_max: output,
            held_bytes_max: held,
        }
    }
}
