//! The server under test as a process: started, asked whether it answers, killed.
#![allow(clippy::disallowed_methods, reason = "a test starts processes and picks their ports itself")]
#![allow(unsafe_code, reason = "a filter of system calls is installed between fork and exec")]

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use clock::{Clock, SystemClock};
use resp::Value;

use crate::client::Client;
use crate::seccomp;

/// Longest wait for the first PONG.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// Ports that others took one after the other: then something is wrong.
const PORTS_TRIED_MAX: usize = 10;

/// Which program, with which promises.
#[derive(Clone, Debug)]
pub enum Program {
    /// The binary of this crate, with further arguments.
    Evenkeel(Vec<String>),
    /// redis-server: it shows that the tests accept a durable server, and find one that is not.
    Redis { append_only: bool },
}

pub struct Server {
    child: Child,
    pub port: u16,
}

impl Server {
    /// Starts `program` on the data in `dir` and waits until it answers, this very process.
    ///
    /// With `lying_syncs` the kernel answers the process's fsync and fdatasync with success and does
    /// nothing: a disk that lies, or a program that forgot to sync.
    pub fn start(program: &Program, dir: &Path, log: &Path, lying_syncs: bool) -> Self {
        for _ in 0..PORTS_TRIED_MAX {
            let port = free_port();
            let mut server = Self { child: spawn(program, dir, port, log, lying_syncs), port };
            if server.await_pong(log) {
                return server;
            }
        }
        panic!("{PORTS_TRIED_MAX} free ports in a row were taken by others:\n{}", tail(log));
    }

    /// False when the process ended and another one answers on its port: tests run side by side, and the same free port
    /// may be found twice. Whoever takes the other server's data for this one's sees writes lost.
    fn await_pong(&mut self, log: &Path) -> bool {
        let start = SystemClock.now();
        let mut strange = false;
        while SystemClock.now() - start < START_TIME_MAX {
            let answers = self.info("process_id");
            if answers == Some(self.child.id().into()) {
                return true;
            }
            strange |= answers.is_some();
            match self.child.try_wait().expect("a child can be asked") {
                None => std::thread::sleep(Duration::from_millis(2)),
                Some(_) if strange => return false,
                Some(status) => {
                    panic!("the server ended with {status} instead of answering:\n{}", tail(log))
                }
            }
        }
        panic!("no PONG within {START_TIME_MAX:?}:\n{}", tail(log));
    }

    /// A number of INFO; `None` when the server does not answer, has not loaded its data, or has no such line.
    pub fn info(&self, name: &str) -> Option<u64> {
        self.info_text(name)?.parse().ok()
    }

    /// A line of INFO, without its name.
    pub fn info_text(&self, name: &str) -> Option<String> {
        let mut client = Client::connect(self.port).ok()?;
        let pong = client.call(&["PING"]).ok()?;
        let Value::Bulk(text) = client.call(&["INFO", "all"]).ok()? else { return None };
        let text = String::from_utf8_lossy(&text);
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        (pong == Value::Simple(b"PONG".to_vec())).then(|| value.to_owned())
    }

    /// kill -9, and wait until the process is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill(); // it may have ended by itself
        self.child.wait().expect("a killed child ends");
    }

    /// Waits until the process has ended by itself; `None` if it has not after `time_max`.
    pub fn await_end(&mut self, time_max: Duration) -> Option<ExitStatus> {
        let start = SystemClock.now();
        while SystemClock.now() - start < time_max {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }
}

fn spawn(program: &Program, dir: &Path, port: u16, log: &Path, lying_syncs: bool) -> Child {
    let mut command = program.command(dir, port);
    let sink = File::options().create(true).append(true).open(log).expect("the log file opens");
    command.stdin(Stdio::null()).stdout(sink.try_clone().expect("a file has a twin")).stderr(sink);
    if lying_syncs {
        // SAFETY: the closure only makes two system calls with data on its own stack: nothing that
        // allocates or takes locks between fork and exec.
        unsafe { command.pre_exec(|| seccomp::answer(&[libc::SYS_fdatasync, libc::SYS_fsync], 0)) };
    }
    let name = command.get_program().to_owned();
    command.spawn().unwrap_or_else(|error| panic!("{name:?} does not start: {error}"))
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    /// Whether keys may be gone without a word.
    pub fn evicts(&self) -> bool {
        matches!(self, Self::Evenkeel(arguments) if arguments.iter().any(|it| it == "--memory-policy"))
    }

    fn command(&self, dir: &Path, port: u16) -> Command {
        let port = port.to_string();
        match self {
            Self::Evenkeel(arguments) => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
                command.arg("serve").arg("--dir").arg(dir).args(["--port", &port]).args(arguments);
                command
            }
            Self::Redis { append_only } => {
                let append_only = if *append_only { "yes" } else { "no" };
                let mut command = Command::new("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--dir"]).arg(dir);
                command.args(["--appendonly", append_only, "--appendfsync", "always"]);
                command
            }
        }
    }
}

/// The last lines of a server's log.
pub fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}

/// Where the log of the server of a test goes.
pub fn log_path(folder: &Path) -> PathBuf {
    folder.join("server.log")
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
    listener.local_addr().expect("a bound socket has an address").port()
}
