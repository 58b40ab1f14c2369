//! The server as a protocol of the reactor: callbacks in, calls of `turn` out.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::Nanos;
use reactor::{
    ActiveReport, BudgetReport, Connection, Connector, Handle, Input, Io, Keeps, LoopStats, MoveError,
    NoRoom, Output, Protocol, Step,
};
use resp::Writer;
use store::StoreError;
use ticket::Ticket;

use crate::acl::user::User;
use crate::blocked;
use crate::clients::Client;
use crate::errors;
use crate::handlers::{function, topology};
use crate::holds::Hold;
use crate::message::Message;
use crate::metrics::{self, Snapshot, storm};
use crate::peers::{Accepts, Peers};
use crate::pipeline;
use crate::server::{Server, ServerOptions, ShutdownKind};
use crate::session::Session;
use crate::settings::CertificateUser;
use crate::table::commands;
use crate::topologies::Login;
use crate::turn::{self, Turn};

/// Evenkeel, as the reactor sees it.
pub struct EvenkeelProtocol {
    server: Arc<Server>,
}

impl fmt::Debug for EvenkeelProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EvenkeelProtocol").field("server", &self.server).finish()
    }
}

impl EvenkeelProtocol {
    /// A server without connections.
    pub fn new(options: ServerOptions) -> Arc<Self> {
        Arc::new(EvenkeelProtocol { server: Server::new(options, commands()) })
    }

    /// Reads what the store keeps for the server itself: libraries of functions, and topologies. Before it serves.
    ///
    /// # Errors
    /// [`StoreError`] when that cannot be read.
    pub fn recover(&self) -> Result<(), StoreError> {
        function::recover(&self.server)?;
        topology::recover(&self.server)
    }

    /// The journal's hook: replies that waited may leave.
    pub fn on_advance(&self) {
        if let Some(peers) = self.server.peers.get() {
            peers.wake_released();
        }
        if let Some(transactions) = &self.server.transactions {
            transactions.on_advance();
        }
    }

    /// The store's hook: a prepared transaction has ended.
    pub fn on_unlock(&self) {
        self.server.waits.on_unlock();
        blocked::serve_changed(&self.server);
    }

    /// The store's hook: it has changed keys that somebody waits for.
    pub fn on_changed_waited(&self) {
        blocked::serve_changed(&self.server);
    }

    /// All figures, now. Not for a loop: it waits for the disk where it must, and adds up what loops keep apart.
    #[must_use]
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.server)
    }

    /// The answer in JSON to a request for `path`: that of Storm's REST API about topologies, and `/api/v1/loops`. `None` if there is no such
    /// path. `Err` says in JSON that what it names is not there.
    #[must_use]
    pub fn api(&self, path: &str) -> Option<Result<String, String>> {
        if path == "/api/v1/loops" {
            return Some(Ok(metrics::console::loops(self.server.peers.get())));
        }
        storm::answer(path, &self.server.topologies.as_ref()?.supervisor.reports())
    }

    /// Begins no more long commands, and waits for those that run: before the store is closed.
    pub fn close(&self) {
        self.server.long.close();
    }

    /// The journal's hook: there are credits again.
    pub fn on_credits(&self) {
        self.server.waits.on_credits();
    }

    fn settle(&self, session: &Session, turn: Turn, io: &mut Io<'_, Self>) -> Step {
        io.connection.add_commands(turn.commands);
        if turn.step == Step::Park {
            io.set_timer(turn.wake);
            if turn.keeps {
                io.keep_output();
            }
            if turn.withholds {
                io.withhold_output();
            }
            if turn.ends_with_peer {
                io.end_with_peer();
            }
        } else {
            self.put_off_idle_timeout(session, io);
        }
        if let Some(prepared) = turn.fetch {
            let (handle, connection) = (io.handle.clone(), Arc::clone(io.connection));
            let done = move |prepared| {
                handle.post_to(&connection, Message::Fetched(prepared));
            };
            self.server.store.fetch(prepared, Box::new(done));
        }
        turn.step
    }

    fn put_off_idle_timeout(&self, session: &Session, io: &mut Io<'_, Self>) {
        let timeout = self.server.tuned.idle_timeout_ns.load(Ordering::Relaxed);
        let idle = (timeout != 0 && !session.listens()).then(|| io.now + Duration::from_nanos(timeout));
        let auth = if session.authenticated {
            None
        } else {
            self.server.tuned.auth_deadline(session.stranger.since)
        };
        if let Some(deadline) = idle.into_iter().chain(auth).min() {
            io.set_timer(Some(deadline));
        }
    }

    /// The user that the certificate of the client names, if it logs clients in.
    fn user_of_certificate(&self, connection: &Connection) -> Option<Arc<User>> {
        let name = connection.peer_name()?;
        let setting = self.server.settings.current().tls_user_from_certificate;
        let user = self.server.acl.find(name.as_bytes()).filter(|user| user.enabled);
        user.filter(|_| setting == CertificateUser::CommonName)
    }

    /// Closes a connection that did not authenticate in time.
    fn end_stranger(&self, io: &mut Io<'_, Self>) -> Step {
        self.server.strangers.counts.timed_out.fetch_add(1, Ordering::Relaxed);
        Writer::new(io.output.buffer(), false).error("ERR no AUTH within connections.auth_timeout");
        Step::Close
    }
}

impl Protocol for EvenkeelProtocol {
    type Session = Session;
    type Message = Message;

    fn on_start(&self, handle: &Handle<Self>) {
        self.server.peers.attach(Box::new(Reach(handle.clone())));
    }

    fn on_open(&self, connection: &Arc<Connection>) -> Session {
        let server = &self.server;
        let client = Client::new(connection.id(), Some(Arc::clone(connection)), connection.created());
        let client = Arc::new(client);
        server.clients.add(&client);
        server.stats.connections_received.fetch_add(1, Ordering::Relaxed);
        let mut session = Session::new(client, !server.wants_password());
        if let Some(user) = self.user_of_certificate(connection) {
            session.log_in(Login { user: Arc::clone(&user.name), rights: None, hold: None });
        }
        session
    }

    fn on_input(&self, session: &mut Session, io: &mut Io<'_, Self>) -> Step {
        let turn = turn::on_input(&self.server, session, io.input, io.output, io.loop_index);
        self.settle(session, turn, io)
    }

    fn on_ahead(&self, inputs: &mut dyn Iterator<Item = (&Session, &Input)>) {
        pipeline::on_ahead(&self.server, inputs);
    }

    fn on_message(&self, session: &mut Session, message: Message, io: &mut Io<'_, Self>) -> Step {
        if matches!(message, Message::Captured(_)) {
            // The loop of who captures would else commit nothing for its clients, and each SET cost a third more.
            io.set_patient();
        }
        turn::on_message(&self.server, session, message, io.output, io.parked)
    }

    fn on_timer(&self, session: &mut Session, io: &mut Io<'_, Self>) -> Step {
        if io.parked {
            if session.awaited.is_some() {
                // It waits for no time.
                return Step::Park;
            }
            self.server.pause.end_wait(&session.client);
            return Step::Continue;
        }
        let auth = if session.authenticated {
            None
        } else {
            self.server.tuned.auth_deadline(session.stranger.since)
        };
        if auth.is_some_and(|deadline| deadline <= io.now) {
            return self.end_stranger(io);
        }
        io.set_timer(auth);
        let timeout = self.server.tuned.idle_timeout_ns.load(Ordering::Relaxed);
        if timeout == 0 || session.listens() {
            return Step::Continue;
        }
        let (active, timeout) = (io.connection.last_active(), Duration::from_nanos(timeout));
        let again = idle_until(io.output, active, io.now, timeout);
        io.set_timer(again.into_iter().chain(auth).min());
        if again.is_some() { Step::Continue } else { Step::Close }
    }

    fn first_deadline(&self, connection: &Connection) -> Option<Nanos> {
        let timeout = self.server.tuned.idle_timeout_ns.load(Ordering::Relaxed);
        let idle = (timeout != 0).then(|| connection.created() + Duration::from_nanos(timeout));
        let wants_password = self.server.wants_password();
        let auth = wants_password.then(|| self.server.tuned.auth_deadline(connection.created())).flatten();
        idle.into_iter().chain(auth).min()
    }

    fn keeps(&self, session: &Session) -> Keeps {
        Keeps { bytes: session.kept_bytes(), is_stranger: !session.authenticated }
    }

    fn shared_bytes(&self) -> u64 {
        self.server.traffic.kept_bytes() + self.server.slowlog.bytes() + self.server.long.bytes()
    }

    fn on_kept(&self, bytes: u64, bytes_max: u64) {
        self.server.store.report_buffers(bytes, bytes_max);
    }

    fn holds_requests(&self) -> bool {
        self.server.store.awaits_pages()
    }

    fn no_room(&self, why: NoRoom) -> Vec<u8> {
        let mut text = Vec::new();
        Writer::new(&mut text, false).error(&errors::no_room(why));
        self.server.stats.error(b"OOM");
        text
    }

    fn on_close(&self, mut session: Session, _connection: &Arc<Connection>) {
        turn::on_close(&self.server, &mut session);
        session.end(&self.server.long);
    }

    fn on_tick_end(&self, loop_index: usize, all_wait: bool) {
        self.server.captures.tend(loop_index);
        if all_wait {
            self.server.store.offer_idly();
        } else {
            self.server.store.offer();
        }
    }

    fn doing(&self, connection_id: u64) -> Option<String> {
        self.server.clients.find(connection_id)?.last_command(self.server.table).map(str::to_owned)
    }

    fn released(&self) -> Ticket {
        self.server.store.released()
    }

    fn on_failure(&self, what: &'static str) {
        (self.server.shutdown)(ShutdownKind::Failed(what));
    }

    fn refusal(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }
}

/// The reactor, as the server needs it.
struct Reach(Handle<EvenkeelProtocol>);

impl Peers for Reach {
    fn post(&self, id: u64, message: Message) -> bool {
        self.0.post(id, message)
    }

    fn kill(&self, id: u64) -> bool {
        self.0.kill(id)
    }

    fn pass(&self, hold: &Hold) {
        self.0.pass(hold);
    }

    fn move_connection(&self, id: u64, loop_index: usize) -> Result<(), MoveError> {
        self.0.move_connection(id, loop_index)
    }

    fn active_loops(&self) -> ActiveReport {
        self.0.active_loops()
    }

    fn loops(&self) -> Vec<Arc<LoopStats>> {
        self.0.loops().to_vec()
    }

    fn mailbox_depth(&self, loop_index: usize) -> usize {
        self.0.mailbox_depth(loop_index)
    }

    fn budget(&self) -> BudgetReport {
        self.0.budget()
    }

    fn is_pressed(&self) -> bool {
        self.0.is_pressed()
    }

    fn accepts(&self) -> Accepts {
        let stats = self.0.accept_stats();
        let handshakes = self.0.handshake_stats().counts();
        Accepts {
            accepted: stats.accepted(),
            refused: stats.refused(),
            failures: stats.failures(),
            handshakes,
        }
    }

    fn connector(&self) -> Connector {
        self.0.connector()
    }

    fn port(&self) -> u16 {
        let first = self.0.tcp_addresses().first().or(self.0.tls_addresses().first());
        first.map_or(0, std::net::SocketAddr::port)
    }

    fn wake_released(&self) {
        self.0.wake_released();
    }
}

/// When to look again whether a client is idle; `None` if it has been for `timeout`. Whoever waits for the disk is not.
fn idle_until(output: &Output, active: Nanos, now: Nanos, timeout: Duration) -> Option<Nanos> {
    let since = if output.held_bytes() > 0 { now } else { active };
    Some(since + timeout).filter(|end| *end > now)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that stood still for longer than `connections.idle_timeout` had the clients cut that waited for it.
    #[test]
    fn client_whose_reply_waits_for_the_disk_is_not_idle() {
        let (mut output, second) = (Output::default(), Duration::from_secs(1));
        let check = |output: &Output, now| idle_until(output, Nanos(0), Nanos(now), second).map(|end| end.0);
        assert_eq!(check(&output, 400_000_000), Some(1_000_000_000), "half a second later");
        assert_eq!(check(&output, 1_000_000_000), None);
        output.buffer().extend_from_slice(b"+OK\r\n");
        output.hold(Ticket::of(7));
        assert_eq!(check(&output, 5_000_000_000), Some(6_000_000_000));
    }
}
