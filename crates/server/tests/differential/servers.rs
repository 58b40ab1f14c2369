//! The two servers and the links to them.

use std::collections::{BTreeSet, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, SystemClock};
use reactor::{Handle, Reactor};
use resp::{Value, decode_value, encode_command};
use server::settings::{Config, Settings};
use server::{EvenkeelProtocol, ServerOptions, Transactions, TransactionsOptions};
use store::{Durability, EngineKind, Store};
use vfs::RealDisk;

/// A redis-server of this test's own.
pub(crate) struct Redis {
    child: Child,
    pub(crate) port: u16,
    _dir: tempfile::TempDir,
}

impl Redis {
    /// Starts one on a free port. Tests run side by side: when another one took the port meanwhile, on the next.
    pub(crate) fn start() -> Redis {
        let redis = (0..PORTS_TRIED_MAX).find_map(|_| Redis::start_on(free_port()));
        redis.unwrap_or_else(|| panic!("{PORTS_TRIED_MAX} free ports in a row were taken by others"))
    }

    /// `None` when it ended instead of answering.
    #[expect(
        clippy::disallowed_methods,
        reason = "the only sign that another process is ready is that it answers"
    )]
    fn start_on(port: u16) -> Option<Redis> {
        let dir = tempfile::tempdir().expect("a folder");
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no", "--bind", "127.0.0.1"])
            .args(["--enable-debug-command", "yes", "--dir"])
            .arg(dir.path())
            .stdout(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| {
                panic!("no redis-server ({error}): install it with `apt-get install redis-server`")
            });
        let mut redis = Redis { child, port, _dir: dir };
        for _ in 0..TRIES_MAX {
            if let Some(info) = info(port)
                && info.contains(&format!("process_id:{}\r\n", redis.child.id()))
            {
                assert!(info.contains("redis_version:7.0."), "the oracle must be redis-server 7.0");
                return Some(redis);
            }
            if redis.child.try_wait().expect("a child can be asked").is_some() {
                return None;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("redis-server does not answer on port {port}");
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An Evenkeel in this process.
pub(crate) struct Evenkeel {
    handle: Handle<EvenkeelProtocol>,
    pub(crate) store: Arc<Store>,
    pub(crate) port: u16,
    _dir: tempfile::TempDir,
}

/// What a store is opened with: leaves so small that collections have some, and a new folder unless there is another.
pub(crate) fn small(engine: EngineKind) -> store::Options {
    store::Options { engine, dir: PathBuf::new(), leaf_bytes: 64, ..store::Options::default() }
}

/// Whether all data is on disk alone when a command runs, with as little memory as a server can have.
pub(crate) fn is_always_cold() -> bool {
    std::env::var_os("EVENKEEL_ALWAYS_COLD").is_some()
}

/// `options` with nothing in memory that can leave it; what is not kept on a disk of its own is not synced, so that each effect can leave memory
/// as soon as it is there.
pub(crate) fn always_cold(options: store::Options) -> store::Options {
    let is_disk_real = options.dir.as_os_str().is_empty();
    store::Options {
        engine: EngineKind::Log,
        is_always_cold: true,
        memory_limit_bytes: match options.memory_limit_bytes {
            0 => COLD_MEMORY_BYTES,
            limit_bytes => limit_bytes,
        },
        durability: if is_disk_real { Durability::Never } else { options.durability },
        ..options
    }
}

impl Evenkeel {
    pub(crate) fn start(options: store::Options) -> Evenkeel {
        let options = if is_always_cold() { always_cold(options) } else { options };
        let dir = tempfile::tempdir().expect("a folder");
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let protocol: Arc<std::sync::OnceLock<Arc<EvenkeelProtocol>>> = Arc::default();
        let hook = |call: fn(&EvenkeelProtocol)| {
            let protocol = Arc::clone(&protocol);
            Arc::new(move || protocol.get().into_iter().for_each(|protocol| call(protocol)))
        };
        let hooks = store::Hooks {
            on_advance: hook(EvenkeelProtocol::on_advance),
            on_credits: hook(EvenkeelProtocol::on_credits),
            on_unlock: hook(EvenkeelProtocol::on_unlock),
            ..store::Hooks::default()
        };
        let of_options = !options.dir.as_os_str().is_empty();
        let limit_bytes = options.memory_limit_bytes;
        let store = Store::open(store::Options {
            dir: if of_options { options.dir } else { dir.path().to_owned() },
            clock: Arc::clone(&clock),
            hooks,
            ..options
        })
        .expect("the folder opens");
        let settings = Settings { dir: dir.path().to_owned(), ..Settings::default() };
        let transactions = Transactions::open(TransactionsOptions {
            store: Arc::clone(&store),
            settings: &settings,
            clock: Arc::clone(&clock),
            vfs: Arc::new(RealDisk),
        });
        let served = EvenkeelProtocol::new(ServerOptions {
            users: None,
            store: Arc::clone(&store),
            settings: Arc::new(Config::new(settings, None)),
            clock: Arc::clone(&clock),
            transactions: Some(transactions.expect("transactions over keys alone")),
            version: "0.0.0",
            supervisor: None,
            shutdown: Box::new(|_| {}),
        });
        let any: SocketAddr = "127.0.0.1:0".parse().expect("an address");
        let mut options = reactor::Options { loops: 2, tcp: vec![any], ..reactor::Options::default() };
        if limit_bytes != 0 {
            options.budget.kept_bytes_max = limit_bytes / 8 * 3;
        }
        let _ = protocol.set(Arc::clone(&served));
        let handle = Reactor::start(options, served, clock).expect("a free port");
        let port = handle.tcp_addresses()[0].port();
        Evenkeel { handle, store, port, _dir: dir }
    }
}

impl Drop for Evenkeel {
    fn drop(&mut self) {
        // A loop that hangs must not keep the failure from being told.
        if !std::thread::panicking() {
            self.handle.shutdown();
            self.handle.join();
            self.store.close();
        }
    }
}

/// A client's connection.
pub(crate) struct Link {
    stream: TcpStream,
    input: Vec<u8>,
    start: usize,
    staging: Option<Staging>,
}

/// How a connection stages commands.
struct Staging {
    /// Commands that TX.DO does not take.
    unstaged: BTreeSet<String>,
    /// Of each reply that is to come: whether its command was staged.
    sent: VecDeque<bool>,
    /// Commands so far.
    count: u64,
}

impl Link {
    /// Connects, for as long as a server takes to start.
    #[expect(clippy::disallowed_methods, reason = "a test is a client")]
    pub(crate) fn open(port: u16) -> Link {
        let mut tries = 0;
        let stream = loop {
            match TcpStream::connect(("127.0.0.1", port)) {
                Ok(stream) => break stream,
                Err(error) if tries > TRIES_MAX => panic!("nobody listens on {port}: {error}"),
                // The only sign that another process is ready is that it takes a connection.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
            tries += 1;
        };
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a timeout");
        stream.set_nodelay(true).expect("no delay");
        Link { stream, input: Vec::new(), start: 0, staging: None }
    }

    /// Connects to Evenkeel, and from then on stages two of three commands, each in a transaction of its own, which commits. What is
    /// committed is one value: only the commands between them make leaves of it.
    #[allow(dead_code, reason = "each test that includes this file uses a part of it")]
    pub(crate) fn staging(port: u16) -> Link {
        let mut link = Link::open(port);
        let mut unstaged = BTreeSet::new();
        for entry in server::commands().entries() {
            let name = entry.command.name;
            let words: Vec<Vec<u8>> = name.split('|').map(|word| word.as_bytes().to_vec()).collect();
            let missing = usize::from(entry.command.arity.unsigned_abs() as u16).saturating_sub(words.len());
            let command = [words, vec![b"x".to_vec(); missing]].concat();
            link.send(&[words_of("TX.BEGIN"), staged(&command), words_of("TX.ROLLBACK $")]);
            let [_, reply, _] = [(); 3].map(|()| link.reply().expect("a reply"));
            if matches!(reply, Value::Error(text) if String::from_utf8_lossy(&text).contains("cannot stage"))
            {
                unstaged.insert(name.to_owned());
            }
        }
        link.staging = Some(Staging { unstaged, sent: VecDeque::new(), count: 0 });
        link
    }

    /// Whether TX.DO takes `command`, for a connection that stages.
    #[allow(dead_code, reason = "each test that includes this file uses a part of it")]
    pub(crate) fn can_stage(&self, command: &[Vec<u8>]) -> bool {
        self.staging.as_ref().is_some_and(|staging| staging.takes(command))
    }

    /// Stages all of `commands` in one transaction, which commits if it `commits`; the replies to them, and to its end.
    #[allow(dead_code, reason = "each test that includes this file uses a part of it")]
    pub(crate) fn stage_together(&mut self, commands: &[Vec<Vec<u8>>], commits: bool) -> (Vec<Value>, Value) {
        let mut bytes = Vec::new();
        encode_command(&mut bytes, &words_of("TX.BEGIN"));
        commands.iter().for_each(|command| encode_command(&mut bytes, &staged(command)));
        encode_command(&mut bytes, &words_of(if commits { "TX.COMMIT $" } else { "TX.ROLLBACK $" }));
        self.stream.write_all(&bytes).expect("the server reads");
        let mut next = || self.next().expect("a reply");
        next();
        (commands.iter().map(|_| next()).collect(), next())
    }

    pub(crate) fn send(&mut self, commands: &[Vec<Vec<u8>>]) {
        let mut bytes = Vec::new();
        for command in commands {
            let is_staged = self.staging.as_mut().is_some_and(|staging| staging.stages(command));
            if is_staged {
                encode_command(&mut bytes, &words_of("TX.BEGIN"));
                encode_command(&mut bytes, &staged(command));
                encode_command(&mut bytes, &words_of("TX.COMMIT $"));
            } else {
                encode_command(&mut bytes, command);
            }
        }
        self.stream.write_all(&bytes).expect("the server reads");
    }

    /// The next reply, of a staged command its own; `None` when none came in time.
    pub(crate) fn reply(&mut self) -> Option<Value> {
        if self.staging.as_mut().and_then(|staging| staging.sent.pop_front()) != Some(true) {
            return self.next();
        }
        let (begun, reply, ended) = (self.next()?, self.next()?, self.next()?);
        let is_failed = matches!(reply, Value::Error(_));
        let expected: &[u8] = if is_failed { b"aborted" } else { b"committed" };
        match &ended {
            Value::Array(words) if words.first() == Some(&Value::Bulk(expected.to_vec())) => Some(reply),
            _ => Some(Value::Error(format!("{begun:?}, {reply:?}, then {ended:?}").into_bytes())),
        }
    }

    fn next(&mut self) -> Option<Value> {
        loop {
            if let Some((value, used)) = decode_value(&self.input[self.start..]).expect("a reply") {
                self.start += used;
                return Some(value);
            }
            self.input.drain(..self.start);
            self.start = 0;
            let mut chunk = [0; 64 << 10];
            let count = self.stream.read(&mut chunk).unwrap_or(0);
            if count == 0 {
                return None;
            }
            self.input.extend_from_slice(&chunk[..count]);
        }
    }
}

impl Staging {
    /// Whether `command` is to be staged; noted for its reply.
    fn stages(&mut self, command: &[Vec<u8>]) -> bool {
        self.count += 1;
        let stages = !self.count.is_multiple_of(3) && self.takes(command);
        self.sent.push_back(stages);
        stages
    }

    /// Whether TX.DO takes it.
    fn takes(&self, command: &[Vec<u8>]) -> bool {
        let table = server::commands();
        let entry = table.find(&command[0]).and_then(|entry| match command.get(1) {
            Some(name) if entry.command.is_container() => table.find_sub(entry, name),
            _ => Some(entry),
        });
        entry.is_some_and(|entry| {
            entry.command.takes(command.len()) && !self.unstaged.contains(entry.command.name)
        })
    }
}

/// The words of a line.
fn words_of(line: &str) -> Vec<Vec<u8>> {
    line.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// TX.DO of `command` in the newest transaction.
fn staged(command: &[Vec<u8>]) -> Vec<Vec<u8>> {
    [&words_of("TX.DO $")[..], command].concat()
}

/// What the server on `port` says of itself.
#[expect(clippy::disallowed_methods, reason = "a test is a client")]
fn info(port: u16) -> Option<String> {
    let mut link = Link {
        stream: TcpStream::connect(("127.0.0.1", port)).ok()?,
        input: Vec::new(),
        start: 0,
        staging: None,
    };
    link.stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
    link.stream.write_all(b"INFO server\r\n").ok()?;
    match link.reply()? {
        Value::Bulk(info) => Some(String::from_utf8_lossy(&info).into_owned()),
        _ => None,
    }
}

/// Memory of a server whose data is always cold.
const COLD_MEMORY_BYTES: u64 = 16 << 20;
/// Ports that others took one after the other: then something is wrong.
const PORTS_TRIED_MAX: usize = 10;
/// Times that a server is asked whether it answers.
const TRIES_MAX: usize = 1_000;

#[expect(clippy::disallowed_methods, reason = "asks the system for a port that nobody has")]
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}
