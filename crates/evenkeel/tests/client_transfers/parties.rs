//! The parties as processes: two databases and the server between them, each to be killed and started again.
#![allow(
    clippy::disallowed_methods,
    reason = "a test starts processes, picks their ports, and waits for them"
)]

use std::fs::File;
use std::io::{Error, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use resp::Value;

use crate::client::Addresses;
use crate::common::{evenkeel, eventually, free_port};
use crate::mariadb::MariaDb;
use crate::plan::{ACCOUNTS, INITIAL};
use crate::postgres::Postgres;
use crate::wire::text;

/// All of them.
pub struct Parties {
    pub postgres: Postgres,
    pub mariadb: MariaDb,
    pub server: Server,
    /// Of MariaDB.
    database: String,
}

/// The server as a process.
pub struct Server {
    child: Option<Child>,
    pub port: u16,
    /// `txn.start_wait` of its next start.
    pub start_wait: &'static str,
    folder: tempfile::TempDir,
}

impl Parties {
    /// Starts all, with money on each account; `None`, with a word about it, where a database is not installed and need not be.
    pub fn start() -> Option<Self> {
        let postgres = Postgres::start(POSTGRES)?;
        let mariadb = MariaDb::start(MARIADB)?;
        let table = "CREATE TABLE accounts (id BIGINT PRIMARY KEY, balance BIGINT NOT NULL CHECK (balance >= 0)); \
                     CREATE TABLE journal (transfer BIGINT PRIMARY KEY);";
        let rows: Vec<String> = (0..ACCOUNTS).map(|id| format!("({id}, {INITIAL})")).collect();
        let fill = format!("{table} INSERT INTO accounts VALUES {};", rows.join(", "));
        postgres.sql(&fill);
        let database = mariadb.database();
        mariadb.sql(&format!("USE {database}; {fill}"));
        let mut server =
            Server { child: None, port: free_port(), start_wait: "5s", folder: tempfile::tempdir().unwrap() };
        let settings = format!(
            "[txn]\nrecovery_interval = '200ms'\nsafety_interval = '200ms'\n\
             [resource.pg]\nurl = '{}'\n{TIMEOUTS}[resource.my]\nurl = '{}'\n{TIMEOUTS}",
            postgres.url(),
            mariadb.url(&database),
        );
        std::fs::write(server.settings(), settings).unwrap();
        server.run();
        let mut fill = vec!["MSET".to_owned()];
        (0..ACCOUNTS).for_each(|id| fill.extend([format!("account:{id}"), INITIAL.to_string()]));
        let fill: Vec<&str> = fill.iter().map(String::as_str).collect();
        assert_eq!(server.call(&fill), Value::Simple(b"OK".to_vec()));
        let is_ready = |name| server.info(name).contains("state=ready");
        eventually("both databases are connected", || {
            is_ready("txn_resource_pg") && is_ready("txn_resource_my")
        });
        Some(Self { postgres, mariadb, server, database })
    }

    /// Runs statements in MariaDB's database, and returns rows as its client prints them.
    pub fn mariadb_sql(&self, statements: &str) -> String {
        self.mariadb.sql(&format!("USE {}; {statements}", self.database))
    }

    pub fn addresses(&self) -> Addresses {
        Addresses {
            server: self.server.port,
            postgres: self.postgres.url(),
            mariadb: self.mariadb.url(&self.database),
        }
    }
}

impl Server {
    /// Starts it, and waits until it answers.
    pub fn run(&mut self) {
        self.spawn();
        assert!(self.await_answer(), "nobody ordered a stop");
    }

    /// Starts it.
    pub fn spawn(&mut self) {
        assert!(self.child.is_none(), "it runs");
        let log = File::options().create(true).append(true).open(self.log()).unwrap();
        let mut command = evenkeel();
        command.arg("serve").arg("--dir").arg(self.folder.path().join("data"));
        command.arg("--config").arg(self.settings()).args(["--loops", "1", "--port", &self.port.to_string()]);
        command.args(["--txn-start-wait", self.start_wait]);
        command.env("EVENKEEL_STOP_FILE", self.order());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.child = Some(command.spawn().unwrap());
    }

    /// Waits until it answers; false: it has stopped at a step instead.
    pub fn await_answer(&mut self) -> bool {
        let (start, pong) = (Instant::now(), Value::Simple(b"PONG".to_vec()));
        while start.elapsed() < START_TIME_MAX {
            let child = self.child.as_mut().expect("it was started");
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the server ended with {status}:\n{}", self.last_words());
            }
            if self.is_stopped() {
                return false;
            }
            if self.try_call(&["PING"], PING_TIME_MAX).is_ok_and(|answer| answer == pong) {
                return true;
            }
            std::thread::sleep(PAUSE);
        }
        panic!("the server does not answer within {START_TIME_MAX:?}:\n{}", self.last_words());
    }

    /// kill -9, also of a process that is stopped.
    pub fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().unwrap();
        child.wait().unwrap();
    }

    pub fn is_running(&self) -> bool {
        self.child.is_some()
    }

    /// Whether the process is stopped: state T.
    pub fn is_stopped(&self) -> bool {
        let Some(child) = &self.child else { return false };
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap_or_default();
        // The name before it is in brackets, and may have any bytes.
        stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
    }

    /// Lets a stopped process go on.
    pub fn go_on(&self) {
        let id = self.child.as_ref().expect("it runs").id().to_string();
        assert!(Command::new("kill").args(["-CONT", &id]).status().unwrap().success());
    }

    /// Has it stop when it reaches `step` for the `count`th time from now on.
    pub fn order_stop(&self, step: &str, count: u64) {
        let new = self.order().with_extension("new");
        std::fs::write(&new, format!("{step} {count}")).unwrap();
        std::fs::rename(new, self.order()).unwrap();
    }

    /// Waits for that; false, and the order is taken back, if it has not come to it within `time_max`.
    pub fn await_stop(&mut self, time_max: Duration) -> bool {
        let start = Instant::now();
        while !self.is_stopped() {
            let is_late = start.elapsed() > time_max;
            if is_late && std::fs::remove_file(self.order()).is_ok() {
                return false;
            }
            assert!(start.elapsed() < time_max + START_TIME_MAX, "it took the order and does not stop");
            std::thread::sleep(PAUSE);
        }
        true
    }

    /// Sends one command on a connection of its own.
    pub fn call(&self, command: &[&str]) -> Value {
        let answer = self.try_call(command, REPLY_TIME_MAX);
        answer.unwrap_or_else(|error| panic!("{command:?}: {error}\n{}", self.last_words()))
    }

    /// A line of INFO, without its name.
    pub fn info(&self, name: &str) -> String {
        let info = text(&self.call(&["INFO", "all"]));
        let value = info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        value.unwrap_or_else(|| panic!("INFO has no {name}")).to_owned()
    }

    /// The end of its log.
    pub fn last_words(&self) -> String {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n")
    }

    fn try_call(&self, command: &[&str], time_max: Duration) -> std::io::Result<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(time_max))?;
        let mut request = Vec::new();
        resp::encode_command(&mut request, command);
        stream.write_all(&request)?;
        let (mut reply, mut chunk) = (Vec::new(), [0; 64 << 10]);
        loop {
            let count = stream.read(&mut chunk)?;
            if count == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
            reply.extend_from_slice(&chunk[..count]);
            let decoded = resp::decode_value(&reply);
            if let Some((value, _)) = decoded.map_err(|error| Error::new(ErrorKind::InvalidData, error))? {
                return Ok(value);
            }
        }
    }

    fn settings(&self) -> PathBuf {
        self.folder.path().join("evenkeel.toml")
    }

    fn order(&self) -> PathBuf {
        self.folder.path().join("stop")
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Those who wait for a row that a prepared branch holds give up soon.
pub const POSTGRES: &[&str] = &["lock_timeout=500ms", "deadlock_timeout=100ms"];
pub const MARIADB: &[&str] =
    &["--innodb-lock-wait-timeout=1", "--general-log=1", "--general-log-file=general.log"];
const TIMEOUTS: &str = "sessions_max = 8\nconnect_timeout = '2s'\nstatement_timeout = '3s'\n";
const START_TIME_MAX: Duration = Duration::from_secs(30);
/// A process that stops after it was connected to gives no answer.
const PING_TIME_MAX: Duration = Duration::from_millis(300);
const REPLY_TIME_MAX: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(2);
const LINES_SHOWN: usize = 60;
