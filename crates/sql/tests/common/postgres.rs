//! A PostgreSQL of a test's own: in a temporary folder, on a free port, stopped when it is dropped.
//!
//! The server refuses to run as root: then its programs run as the user `postgres`, whom Debian's package makes. Other crates' tests
//! use this file by its path.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test fails by panicking, and owns the processes it starts"
)]

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Postgres {
    programs: PathBuf,
    folder: tempfile::TempDir,
    port: u16,
    server: Option<Child>,
}

impl Postgres {
    /// Starts a server with `settings` (`name=value`); `None`, with a word about it, where there is none and the caller lets tests
    /// be skipped for that.
    pub(crate) fn start(settings: &[&str]) -> Option<Self> {
        let Some(programs) = programs() else {
            assert!(
                std::env::var_os("EVENKEEL_SKIP_CLIENTS").is_some(),
                "PostgreSQL is not installed; EVENKEEL_SKIP_CLIENTS=1 skips what needs it"
            );
            eprintln!("skipped: PostgreSQL is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut postgres = Self { programs, folder, port, server: None };
        if is_root() {
            run(Command::new("chown").arg(USER).arg(postgres.folder.path()));
        }
        let data = postgres.data();
        run(postgres
            .program("initdb")
            .args(["-A", "trust", "-U", USER, "--no-sync", "--locale=C", "-D"])
            .arg(data));
        postgres.run(settings);
        Some(postgres)
    }

    /// Starts the server again, and waits until it answers.
    pub(crate) fn run(&mut self, settings: &[&str]) {
        assert!(self.server.is_none(), "it runs");
        for _ in 0..TRIES_MAX {
            // What is left of a server that was killed may hold its memory for a moment: then a new one ends at once.
            let mut command = self.program("postgres");
            command
                .arg("-D")
                .arg(self.data())
                .arg("-k")
                .arg(self.folder.path())
                .arg("-p")
                .arg(self.port.to_string());
            command.args(["-c", "listen_addresses=127.0.0.1", "-c", "max_prepared_transactions=100"]);
            for setting in settings {
                command.args(["-c", setting]);
            }
            let mut server = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
            while server.try_wait().unwrap().is_none() {
                if self.is_ready() {
                    self.server = Some(server);
                    return;
                }
                std::thread::sleep(PAUSE);
            }
            std::thread::sleep(PAUSE);
        }
        panic!("the server does not start");
    }

    /// Where clients connect.
    pub(crate) fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Where clients of `database` connect.
    pub(crate) fn url_of(&self, database: &str) -> String {
        format!("postgres://{USER}@127.0.0.1:{}/{database}", self.port)
    }

    /// Kills the server and its backends as hard as can be: a backend that is left to itself may answer one statement more.
    pub(crate) fn kill(&mut self) {
        let mut server = self.server.take().unwrap();
        let pid = server.id();
        // It starts no backend while they are looked for.
        signal("-STOP", &[pid]);
        signal("-KILL", &[children_of(pid), vec![pid]].concat());
        server.wait().unwrap();
    }

    /// Runs statements, and returns what `psql` prints.
    pub(crate) fn sql(&self, statements: &str) -> String {
        self.sql_in("postgres", statements)
    }

    /// Runs statements in `database`, and returns what `psql` prints.
    pub(crate) fn sql_in(&self, database: &str, statements: &str) -> String {
        let mut psql = Command::new(self.programs.join("psql"));
        let psql = psql.args(["-X", "-A", "-t", "-q", "-v", "ON_ERROR_STOP=1", "-c", statements]);
        run(psql.arg(self.url_of(database)))
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn is_ready(&self) -> bool {
        let mut ask = Command::new(self.programs.join("pg_isready"));
        ask.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]).status().unwrap().success()
    }

    /// A program of the server, run by a user whom it accepts.
    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        let mut command = if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(path);
            command
        } else {
            Command::new(path)
        };
        command.current_dir(self.folder.path());
        command
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let Some(mut server) = self.server.take() else { return };
        let _ = Command::new("kill").args(["-INT", &server.id().to_string()]).status();
        let _ = server.wait();
    }
}

/// Sends `signal` to those of the processes that are still there.
fn signal(signal: &str, pids: &[u32]) {
    let pids = pids.iter().map(u32::to_string);
    Command::new("kill").arg(signal).args(pids).stderr(Stdio::null()).status().unwrap();
}

/// The children of process `parent`.
fn children_of(parent: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_child = |pid: &u32| {
        let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let behind_name = state.rsplit(')').next().unwrap_or_default();
        behind_name.split_whitespace().nth(1) == Some(&parent.to_string())
    };
    pids.filter(is_child).collect()
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The folder with the server's programs: the newest of Debian's, or one of the path.
fn programs() -> Option<PathBuf> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut folders: Vec<PathBuf> = versions.map(|version| version.path().join("bin")).collect();
    let number = |folder: &Path| {
        let version = folder.parent()?.file_name()?.to_str()?;
        version.parse::<u32>().ok()
    };
    folders.sort_by_key(|folder| std::cmp::Reverse(number(folder)));
    let path = std::env::var_os("PATH").unwrap_or_default();
    folders.extend(std::env::split_paths(&path));
    let has_all = |folder: &PathBuf| PROGRAMS.iter().all(|name| folder.join(name).is_file());
    folders.into_iter().find(has_all)
}

fn is_root() -> bool {
    let output = Command::new("id").arg("-u").output().unwrap();
    output.stdout.trim_ascii() == b"0"
}

const USER: &str = "postgres";
const PROGRAMS: [&str; 4] = ["initdb", "postgres", "pg_isready", "psql"];
const PAUSE: Duration = Duration::from_millis(50);
const TRIES_MAX: usize = 100;
