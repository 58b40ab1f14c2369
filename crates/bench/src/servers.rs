//! Servers under measurement: child processes with a free port and a fresh folder, killed when dropped.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Failure;
use crate::client::Client;
use crate::drive::Target;
use crate::load::generator;
use crate::process;

/// How to start a server; `{port}` and `{dir}` in its arguments stand for what it is given.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// What tables call it.
    pub label: String,
    program: PathBuf,
    arguments: Vec<String>,
    ready: Ready,
}

/// What shows that a server has started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// It answers PING.
    Answers,
    /// It accepts a connection: it knows no PING.
    Accepts,
    /// There is a file of this name in its folder.
    Writes(&'static str),
}

impl Recipe {
    /// The server of this workspace, built for release.
    #[must_use]
    pub fn evenkeel(engine: &str, durability: &str, loops: usize) -> Self {
        let arguments = format!(
            "serve --bind 127.0.0.1 --port {{port}} --dir {{dir}} --loops {loops} --engine {engine} --durability {durability}"
        );
        let label =
            if engine == "noop" { "evenkeel noop".to_owned() } else { format!("evenkeel {durability}") };
        Self::new(&label, sibling("evenkeel"), &arguments)
    }

    /// Debian's Redis; `fsync` is `always`, `everysec` or `no`, or `off`: then there is no log.
    #[must_use]
    pub fn redis(fsync: &str) -> Self {
        let log = match fsync {
            "off" => "--appendonly no".to_owned(),
            // The log is never rewritten during a run: that would be to Redis's disadvantage.
            fsync => format!("--appendonly yes --appendfsync {fsync} --auto-aof-rewrite-percentage 0"),
        };
        let arguments = format!("--bind 127.0.0.1 --port {{port}} --dir {{dir}} --save  {log}");
        Self::new(&format!("Redis 7.0 {fsync}"), PathBuf::from("redis-server"), &arguments)
    }

    /// Valkey as it is on the PATH, with its version in its label; `fsync` as for Redis.
    #[must_use]
    pub fn valkey(fsync: &str) -> Self {
        let program = PathBuf::from("valkey-server");
        let said = Command::new(&program).arg("--version").output();
        let said =
            said.map_or_else(|_| String::new(), |said| String::from_utf8_lossy(&said.stdout).into_owned());
        let version = said.split_whitespace().find_map(|word| word.strip_prefix("v=")).unwrap_or("");
        let label = format!("Valkey {version} {fsync}").replace("  ", " ");
        Self { program, ..Self::redis(fsync) }.labelled(&label)
    }

    /// The limit server.
    #[must_use]
    pub fn limit(loops: usize, journal: bool, parse: bool) -> Self {
        let journal_flag = if journal { " --journal {dir}/journal" } else { "" };
        let parse_flag = if parse { " --parse" } else { "" };
        let arguments =
            format!("limit --port {{port}} --loops {loops} --request-bytes 144{journal_flag}{parse_flag}");
        let label = match (journal, parse) {
            (true, _) => "limit with journal",
            (false, true) => "limit that parses",
            (false, false) => "limit",
        };
        Self::new(label, sibling("evenkeel-bench"), &arguments).ready_when(Ready::Accepts)
    }

    /// The limit server for clients that send requests of `request_bytes` and no greeting.
    #[must_use]
    pub fn limit_for(loops: usize, request_bytes: usize) -> Self {
        let arguments =
            format!("limit --port {{port}} --loops {loops} --no-greeting --request-bytes {request_bytes}");
        Self::new("limit", sibling("evenkeel-bench"), &arguments).ready_when(Ready::Accepts)
    }

    /// Any program, called by its name; `{port}` and `{dir}` among its arguments are filled in.
    #[must_use]
    pub fn of(program: &Path, arguments: Vec<String>) -> Self {
        let label = program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        Self { label, program: program.to_path_buf(), arguments, ready: Ready::Answers }
    }

    /// Called `label`.
    #[must_use]
    pub fn labelled(self, label: &str) -> Self {
        Self { label: label.to_owned(), ..self }
    }

    /// Ready when `ready` is so.
    #[must_use]
    pub fn ready_when(self, ready: Ready) -> Self {
        Self { ready, ..self }
    }

    /// What is run.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// With `value` where its arguments say `name`.
    #[must_use]
    pub fn filled(&self, name: &str, value: &str) -> Self {
        let arguments = self.arguments.iter().map(|argument| argument.replace(name, value)).collect();
        Self { arguments, ..self.clone() }
    }

    /// Whether it is a limit server, which answers everything alike.
    #[must_use]
    pub fn is_limit(&self) -> bool {
        self.label.starts_with("limit")
    }

    /// Adds arguments.
    #[must_use]
    pub fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        self
    }

    /// The command line, for the table.
    #[must_use]
    pub fn command(&self) -> String {
        let name =
            self.program.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let quoted = self.arguments.iter().map(|a| if a.is_empty() { "''" } else { a.as_str() });
        format!(
            "{name} {}",
            quoted.collect::<Vec<_>>().join(" ").replace("{port}", "PORT").replace("{dir}", "DIR")
        )
    }

    fn new(label: &str, program: PathBuf, arguments: &str) -> Self {
        let arguments = arguments.split(' ').map(str::to_owned).collect();
        Self { label: label.to_owned(), program, arguments, ready: Ready::Answers }
    }
}

/// A running server.
#[derive(Debug)]
pub struct Server {
    recipe: Recipe,
    child: Child,
    port: u16,
    folder: PathBuf,
    /// From the start of the process to its first answer.
    pub ready_after: Duration,
}

impl Server {
    /// Starts `recipe` in a fresh folder below `parent` and waits until it answers.
    ///
    /// # Errors
    /// It did not start, or ended before it answered.
    pub fn start(recipe: &Recipe, parent: &Path) -> Result<Self, Failure> {
        let port = free_port()?;
        let folder = parent.join(format!("{}-{port}", recipe.label.replace(' ', "-")));
        fs::remove_dir_all(&folder).ok();
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Self::start_in(recipe, folder, port)
    }

    /// Ends it (gracefully, or by `kill -9`) and starts it again on the same folder, its files out of the page cache.
    ///
    /// # Errors
    /// It did not end or not start.
    pub fn restart(self, graceful: bool) -> Result<Self, Failure> {
        self.again(graceful, |folder| {
            process::forget_cached(folder);
            Ok(())
        })
    }

    /// Ends it gracefully, runs `look` on its folder, and starts it again.
    ///
    /// # Errors
    /// It did not end or not start, or `look` failed.
    pub fn check(self, look: impl FnOnce(&Path) -> Result<(), Failure>) -> Result<Self, Failure> {
        self.again(true, look)
    }

    fn again(
        mut self,
        graceful: bool,
        meanwhile: impl FnOnce(&Path) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        self.end(graceful)?;
        meanwhile(&self.folder)?;
        let (recipe, folder) = (self.recipe.clone(), std::mem::take(&mut self.folder)); // kept when `self` drops
        Self::start_in(&recipe, folder, free_port()?)
    }

    /// Its port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The folder of its data.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// What tables call it.
    #[must_use]
    pub fn label(&self) -> &str {
        &self.recipe.label
    }

    /// SETs `keys` to values of 100 bytes.
    ///
    /// # Errors
    /// It does not answer, or with an error.
    pub fn fill(&self, keys: Range<u64>) -> Result<(), Failure> {
        generator::fill(&Target::local(self.port), keys, 100)
    }

    /// A connection to it.
    ///
    /// # Errors
    /// It does not accept.
    pub fn client(&self) -> Result<Client, Failure> {
        Client::connect(self.port)
    }

    /// Requests answered and syncs called, of a limit server.
    ///
    /// # Errors
    /// It is no limit server, or it ended.
    pub fn limit_counts(&mut self) -> Result<(u64, u64), Failure> {
        let (Some(input), Some(output)) = (self.child.stdin.as_mut(), self.child.stdout.as_mut()) else {
            return Err("no pipes".to_owned());
        };
        input.write_all(b"\n").map_err(|error| error.to_string())?;
        let mut line = String::new();
        BufReader::with_capacity(1, output).read_line(&mut line).map_err(|error| error.to_string())?;
        let mut numbers = line.split_whitespace().map(|word| word.parse().unwrap_or(0));
        Ok((numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)))
    }

    fn start_in(recipe: &Recipe, folder: PathBuf, port: u16) -> Result<Self, Failure> {
        let dir = folder.to_string_lossy();
        let arguments =
            recipe.arguments.iter().map(|a| a.replace("{port}", &port.to_string()).replace("{dir}", &dir));
        let log_path = folder.with_extension("log");
        let log = fs::File::create(&log_path).map_err(|error| format!("{}: {error}", log_path.display()))?;
        let is_limit = recipe.is_limit();
        let started = Instant::now();
        let child = Command::new(&recipe.program)
            .args(arguments)
            .stdin(if is_limit { Stdio::piped() } else { Stdio::null() })
            .stdout(if is_limit { Stdio::piped() } else { Stdio::null() })
            .stderr(log)
            .spawn()
            .map_err(|error| format!("cannot start {}: {error}", recipe.program.display()))?;
        lock_running().push((Some(child.id()), Some(folder.clone())));
        let mut server = Self { recipe: recipe.clone(), child, port, folder, ready_after: Duration::ZERO };
        server.wait_until_ready(started)?;
        server.ready_after = started.elapsed();
        Ok(server)
    }

    fn wait_until_ready(&mut self, started: Instant) -> Result<(), Failure> {
        while started.elapsed() < START_TIME_MAX {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Err(format!("{} ended at start with {status}: {}", self.label(), self.said()));
            }
            let is_ready = match self.recipe.ready {
                Ready::Answers => self.client().and_then(|mut client| client.call(&["PING"])).is_ok(),
                Ready::Accepts => self.client().is_ok(),
                Ready::Writes(name) => self.folder.join(name).exists(),
            };
            if is_ready {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(format!("{} gave no answer within {START_TIME_MAX:?}", self.label()))
    }

    fn said(&self) -> String {
        fs::read_to_string(self.folder.with_extension("log")).unwrap_or_default().trim().to_owned()
    }

    fn end(&mut self, graceful: bool) -> Result<(), Failure> {
        let signal = if graceful { rustix::process::Signal::TERM } else { rustix::process::Signal::KILL };
        let id = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        if let Some(id) = id {
            rustix::process::kill_process(id, signal).map_err(|error| error.to_string())?;
        }
        self.child.wait().map(drop).map_err(|error| error.to_string())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        lock_running().retain(|(id, _)| *id != Some(self.child.id()));
        self.child.kill().ok();
        self.child.wait().ok();
        if !self.folder.as_os_str().is_empty() {
            fs::remove_dir_all(&self.folder).ok();
            fs::remove_file(self.folder.with_extension("log")).ok();
        }
    }
}

/// Ends all that runs and removes the folders of servers: what a program does that was told to end, and drops nothing.
pub fn end_all() {
    for (id, folder) in lock_running().drain(..) {
        let pid = id.and_then(|id| i32::try_from(id).ok()).and_then(rustix::process::Pid::from_raw);
        // It may have heard of the end by itself.
        pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        let Some(folder) = folder else { continue };
        fs::remove_dir_all(&folder).ok();
        fs::remove_file(folder.with_extension("log")).ok();
        // The folder of the folders, if this was the last one.
        folder.parent().map(fs::remove_dir);
    }
}

/// Runs `command` to its end, and keeps what it prints; [`end_all`] ends it, too.
///
/// # Errors
/// It cannot be started.
pub(crate) fn output_of(command: &mut Command) -> std::io::Result<Output> {
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let id = Some(child.id());
    lock_running().push((id, None));
    let output = child.wait_with_output();
    lock_running().retain(|(running, _)| *running != id);
    output
}

/// Whether `program` is where programs are.
pub(crate) fn is_installed(program: &Path) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // A program with a folder in its name is itself whatever it is joined to.
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A folder for something that runs in this process: removed with all that is in it when this drops, and by [`end_all`].
#[derive(Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// An empty folder at `path`.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn fresh(path: PathBuf) -> Result<Self, Failure> {
        fs::remove_dir_all(&path).ok();
        lock_running().push((None, Some(path.clone())));
        let folder = Self(path);
        fs::create_dir_all(&folder.0).map_err(|error| format!("{}: {error}", folder.0.display()))?;
        Ok(folder)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        lock_running().retain(|(_, folder)| folder.as_ref() != Some(&self.0));
        fs::remove_dir_all(&self.0).ok();
        // The folder of the folders, if this was the last one.
        self.0.parent().map(fs::remove_dir);
    }
}

/// Process ids of what runs, and the folders of servers and of what runs in this process.
static RUNNING: Mutex<Vec<(Option<u32>, Option<PathBuf>)>> = Mutex::new(Vec::new());

fn lock_running() -> MutexGuard<'static, Vec<(Option<u32>, Option<PathBuf>)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program in the same folder as this one, or else the one on the PATH.
pub(crate) fn sibling(name: &str) -> PathBuf {
    let beside = std::env::current_exe().unwrap_or_default().with_file_name(name);
    if beside.is_file() { beside } else { PathBuf::from(name) }
}

fn free_port() -> Result<u16, Failure> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(|error| error.to_string())?;
    listener.local_addr().map(|address| address.port()).map_err(|error| error.to_string())
}

const START_TIME_MAX: Duration = Duration::from_secs(60);
