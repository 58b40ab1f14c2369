//! Tests of the protocol without sockets: bytes in, bytes out, on a store in memory and a clock that stands still.

mod agreements;
mod basics;
mod blocking;
mod captured;
mod chunked;
mod costly;
mod edges;
mod elements;
mod fields;
mod geo;
mod holds;
mod large;
mod limits;
mod long;
mod newer;
mod newer_commands;
mod newer_streams;
mod notices;
mod observed;
mod paged;
mod pipelines;
mod scripts;
mod series;
mod sessions;
mod streams;
mod topologies;
mod tx;
mod tx_sql;
mod users;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use clock::{Clock, Nanos, SimClock, UnixMs};
use commands::call::DataFn;
use reactor::{Input, MoveError, Output, Step};
use resp::encode_command;
use store::{EngineKind, Hooks, Options, Store};

use crate::blocked;
use crate::clients::Client;
use crate::message::Message;
use crate::peers::{Accepts, Peers};
use crate::server::{Server, ServerOptions, ShutdownKind};
use crate::session::Session;
use crate::settings::{Config, Settings};
use crate::table::row::Handler;
use crate::table::{commands, handler};
use crate::turn;
use crate::tx::{Named, Transactions, TransactionsOptions};

/// What runs a command over its keys alone.
pub(crate) fn data_handler(name: &str) -> DataFn {
    match handler(commands().find(name.as_bytes()).expect("a command")) {
        Handler::Data(run) => run,
        other => panic!("{name} has {other:?}"),
    }
}

/// A server whose connections are values.
pub(crate) struct Harness {
    pub(crate) server: Arc<Server>,
    pub(crate) clock: Arc<SimClock>,
    posts: Arc<Posts>,
    pub(crate) stopped: Arc<Mutex<Option<ShutdownKind>>>,
    connections: u64,
    /// Whom the store's hook serves, from the first connection on.
    served: Arc<OnceLock<Weak<Server>>>,
}

#[derive(Default)]
struct Posts {
    messages: Mutex<HashMap<u64, Vec<Message>>>,
    /// Noted, not acted on.
    killed: Mutex<Vec<u64>>,
    ended: Mutex<Vec<u64>>,
}

impl Peers for Arc<Posts> {
    fn post(&self, id: u64, message: Message) -> bool {
        if self.ended.lock().unwrap().contains(&id) {
            return false;
        }
        self.messages.lock().unwrap().entry(id).or_default().push(message);
        true
    }

    fn kill(&self, id: u64) -> bool {
        self.killed.lock().unwrap().push(id);
        true
    }

    fn pass(&self, _hold: &crate::holds::Hold) {}

    fn move_connection(&self, id: u64, loop_index: usize) -> Result<(), MoveError> {
        let _ = id;
        if loop_index == 0 { Ok(()) } else { Err(MoveError::UnknownLoop { index: loop_index, count: 1 }) }
    }

    fn active_loops(&self) -> reactor::ActiveReport {
        reactor::ActiveReport { count: 1, ..Default::default() }
    }

    fn loops(&self) -> Vec<Arc<reactor::LoopStats>> {
        Vec::new()
    }

    fn mailbox_depth(&self, _loop_index: usize) -> usize {
        0
    }

    fn accepts(&self) -> Accepts {
        Accepts::default()
    }

    fn budget(&self) -> reactor::BudgetReport {
        reactor::BudgetReport::default()
    }

    fn is_pressed(&self) -> bool {
        false
    }

    fn connector(&self) -> reactor::Connector {
        reactor::Connector::Epoll
    }

    fn port(&self) -> u16 {
        6379
    }

    fn wake_released(&self) {}
}

/// One connection.
pub(crate) struct Wire {
    pub(crate) session: Session,
    input: Input,
    output: Output,
    pub(crate) step: Step,
    pub(crate) wake: Option<Nanos>,
    /// Replies wait until it goes on.
    pub(crate) keeps: bool,
    withholds: bool,
}

impl Harness {
    pub(crate) fn new() -> Self {
        Self::with(|_| {})
    }

    /// A server with settings changed by `change`.
    pub(crate) fn with(change: impl FnOnce(&mut Settings)) -> Self {
        Self::over(Vec::new(), change)
    }

    /// The same, with databases that take part in transactions.
    pub(crate) fn over(databases: Vec<Named>, change: impl FnOnce(&mut Settings)) -> Self {
        let clock = Arc::new(SimClock::new(UnixMs(1_700_000_000_000)));
        let mut settings = Settings::default();
        change(&mut settings);
        // As in a process, where the protocol comes later than the store.
        let served: Arc<OnceLock<Weak<Server>>> = Arc::default();
        let of_hook = Arc::clone(&served);
        let hooks = Hooks {
            on_changed_waited: Arc::new(move || {
                if let Some(server) = of_hook.get().and_then(Weak::upgrade) {
                    blocked::serve_changed(&server);
                }
            }),
            ..Hooks::default()
        };
        let store = Store::open(Options {
            hooks,
            engine: EngineKind::Memory,
            databases: settings.databases,
            value_bytes_max: settings.value_max.0,
            clock: clock.clone(),
            background: false,
            claims_from: 10,
            ..Options::default()
        })
        .expect("a store in memory opens");
        let stopped = Arc::new(Mutex::new(None));
        let options = TransactionsOptions {
            store: Arc::clone(&store),
            settings: &settings,
            clock: clock.clone(),
            vfs: Arc::new(vfs::SimDisk::new(1)),
        };
        let transactions = Transactions::open_over(options, |_, _| Ok((databases, None)));
        let server = Server::new(
            ServerOptions {
                users: None,
                store,
                settings: Arc::new(Config::new(settings, None)),
                clock: clock.clone(),
                version: "0.0.0",
                transactions: Some(transactions.expect("without databases nothing is opened")),
                supervisor: None,
                shutdown: Box::new({
                    let stopped = Arc::clone(&stopped);
                    move |kind| *stopped.lock().unwrap() = Some(kind)
                }),
            },
            commands(),
        );
        let posts = Arc::new(Posts::default());
        server.peers.attach(Box::new(Arc::clone(&posts)));
        Harness { server, clock, posts, stopped, connections: 0, served }
    }

    /// A new connection.
    pub(crate) fn connect(&mut self) -> Wire {
        self.connections += 1;
        self.served.get_or_init(|| Arc::downgrade(&self.server));
        let client = Arc::new(Client::new(self.connections, None, self.clock.now()));
        self.server.clients.add(&client);
        Wire {
            session: Session::new(client, !self.server.wants_password()),
            input: Input::new(usize::MAX),
            output: Output::default(),
            step: Step::Continue,
            wake: None,
            keeps: false,
            withholds: false,
        }
    }

    /// Feeds bytes and answers what can be answered; returns what was written.
    pub(crate) fn feed(&self, wire: &mut Wire, bytes: &[u8]) -> Vec<u8> {
        wire.input.feed(bytes);
        if wire.step == Step::Park {
            return Vec::new();
        }
        let mut written = self.run(wire);
        if wire.withholds && wire.step == Step::Park {
            // What it waits for may have been done by the turn's end.
            written.extend(self.deliver(wire));
        }
        written
    }

    fn run(&self, wire: &mut Wire) -> Vec<u8> {
        let mut written = Vec::new();
        loop {
            written.extend(self.turn(wire, b""));
            if wire.step != Step::Yield {
                return written;
            }
        }
    }

    /// Feeds bytes and takes one turn; what was written.
    pub(crate) fn turn(&self, wire: &mut Wire, bytes: &[u8]) -> Vec<u8> {
        wire.input.feed(bytes);
        let turn = turn::on_input(&self.server, &mut wire.session, &mut wire.input, &mut wire.output, 0);
        (wire.step, wire.wake, wire.keeps) = (turn.step, turn.wake, turn.keeps);
        wire.withholds = turn.withholds;
        if wire.withholds { Vec::new() } else { wire.output.take() }
    }

    /// Delivers what was posted to `wire`, and goes on with its input; returns what was written.
    pub(crate) fn deliver(&self, wire: &mut Wire) -> Vec<u8> {
        let messages =
            self.posts.messages.lock().unwrap().remove(&wire.session.client.id).unwrap_or_default();
        for message in messages {
            let parked = wire.step == Step::Park;
            wire.step = turn::on_message(&self.server, &mut wire.session, message, &mut wire.output, parked);
            if wire.step == Step::Kill {
                break;
            }
        }
        match wire.step {
            Step::Park if wire.withholds => Vec::new(),
            Step::Park | Step::Kill => wire.output.take(),
            _ => self.run(wire),
        }
    }

    /// Delivers what was posted to `wire` and sends nothing; returns how many bytes of its output are shared.
    pub(crate) fn take_in(&self, wire: &mut Wire) -> usize {
        let messages =
            self.posts.messages.lock().unwrap().remove(&wire.session.client.id).unwrap_or_default();
        for message in messages {
            wire.step = turn::on_message(&self.server, &mut wire.session, message, &mut wire.output, false);
        }
        wire.output.attached_bytes()
    }

    /// Sends what is in the output of `wire`.
    pub(crate) fn sent(&self, wire: &mut Wire) -> String {
        String::from_utf8_lossy(&wire.output.take()).into_owned()
    }

    /// Ends a connection, as its loop would.
    pub(crate) fn end(&self, mut wire: Wire) {
        self.posts.ended.lock().unwrap().push(wire.session.client.id);
        turn::on_close(&self.server, &mut wire.session);
    }

    /// Connections that were to be ended.
    pub(crate) fn killed(&self) -> Vec<u64> {
        self.posts.killed.lock().unwrap().clone()
    }

    /// Moves time on and wakes `wire` as its timer would.
    pub(crate) fn after(&self, wire: &mut Wire, time: Duration) -> Vec<u8> {
        self.clock.advance(time);
        if wire.wake.take().is_some_and(|at| at <= self.clock.now()) {
            self.server.pause.end_wait(&wire.session.client);
            return self.run(wire);
        }
        Vec::new()
    }

    /// Runs one command; returns its reply as sent.
    pub(crate) fn raw<A: AsRef<[u8]>>(&self, wire: &mut Wire, command: &[A]) -> String {
        let mut request = Vec::new();
        encode_command(&mut request, command);
        String::from_utf8_lossy(&self.feed(wire, &request)).into_owned()
    }

    /// Runs a command given as one line.
    pub(crate) fn line(&self, wire: &mut Wire, line: &str) -> String {
        let words: Vec<&str> = line.split(' ').collect();
        self.raw(wire, &words)
    }

    /// Checks that each line gets the reply beside it.
    #[track_caller]
    pub(crate) fn expect(&self, wire: &mut Wire, script: &[(&str, &str)]) {
        for (line, expected) in script {
            assert_eq!(self.line(wire, line), *expected, "reply to {line}");
        }
    }
}
