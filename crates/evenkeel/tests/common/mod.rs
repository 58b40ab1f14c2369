//! The binary as a user starts it: arguments, what it prints, how it ends.
#![allow(
    clippy::disallowed_methods,
    dead_code,
    unreachable_pub,
    reason = "tests start processes and sockets; each binary of tests uses a part of this"
)]

pub mod crowd;
pub mod stress;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use resp::Value;

/// Longest wait for anything.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until `holds`.
#[allow(dead_code, reason = "each test file uses its part")]
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::park_timeout(Duration::from_millis(2));
    }
}

/// What the server's process has in memory.
pub fn resident_bytes(server: &Server) -> u64 {
    status_bytes(server, "VmRSS:")
}

/// The most that it had so far.
pub fn resident_peak_bytes(server: &Server) -> u64 {
    status_bytes(server, "VmHWM:")
}

fn status_bytes(server: &Server, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(field)).expect("a field of that name");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// A disk of so little room; unmounted when it goes.
#[allow(dead_code, reason = "each test file uses its part")]
pub(crate) struct SmallDisk(tempfile::TempDir);

#[allow(dead_code, reason = "each test file uses its part")]
impl SmallDisk {
    /// Mounts one of `size`, as mount has it.
    ///
    /// # Panics
    /// Where this user may not mount.
    pub(crate) fn mount(size: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder.path());
        let mounted = mount.status().expect("mount is there");
        assert!(mounted.success(), "this test needs the right to mount a tmpfs (root): {mounted}");
        Self(folder)
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

/// A part of a Flux definition that is a built-in component, in lines: what runs it, its fields, how many tasks it has, and `more` lines.
#[allow(dead_code, reason = "each test file uses its part")]
pub(crate) fn flux_part(id: &str, words: &str, fields: &str, tasks: u32, more: &str) -> String {
    let class =
        if words.starts_with("stream-spout") { "spouts.FluxShellSpout" } else { "bolts.FluxShellBolt" };
    format!(
        "- id: {id}\n  className: org.apache.storm.flux.wrappers.{class}\n  constructorArgs: [[evenkeel, component, {words}], [{fields}]]\n  parallelism: {tasks}\n{more}"
    )
}

/// Ports that others took one after the other: then something is wrong.
const PORTS_TRIED_MAX: usize = 10;

/// A running server.
pub struct Server {
    pub child: Child,
    pub port: u16,
    /// The lines it printed until it served.
    pub greeting: String,
}

impl Server {
    /// Starts a server on `dir` and a free port, and waits for its greeting.
    pub fn start(dir: &Path, arguments: &[&str]) -> Self {
        Self::spawn_on(|port| serve_on(dir, arguments, port))
    }

    /// Starts what `command` makes for a free port, and waits for its greeting. Tests run side by side: a port that another
    /// one took meanwhile is no failure.
    pub fn spawn_on(command: impl Fn(u16) -> Command) -> Self {
        let mut last = String::new();
        for _ in 0..PORTS_TRIED_MAX {
            match Self::try_spawn(&mut command(free_port())) {
                Ok(server) => return server,
                Err(errors) if errors.contains("cannot listen on") => last = errors,
                Err(errors) => panic!("no greeting: {errors}"),
            }
        }
        panic!("{PORTS_TRIED_MAX} free ports in a row were taken by others: {last}");
    }

    /// Starts `command`, which serves, and waits for its greeting: only the process that listens writes one. Otherwise what it
    /// wrote instead.
    fn try_spawn(command: &mut Command) -> Result<Self, String> {
        let mut child =
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped"));
        let mut greeting = String::new();
        while !greeting.contains("  stop ") {
            if lines.read_line(&mut greeting).expect("the greeting is text") == 0 {
                let mut errors = String::new();
                let _ = child.stderr.take().expect("piped").read_to_string(&mut errors);
                let _ = child.wait();
                return Err(greeting + &errors);
            }
        }
        let port = greeting.split("127.0.0.1:").nth(1).map(|rest| {
            rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a port")
        });
        Ok(Self { child, port: port.unwrap_or(0), greeting })
    }

    /// The port of a server that was started with `--metrics-listen=127.0.0.1:0`: reads standard error up to the line that has it, and not a byte more.
    pub fn metrics_port(&mut self) -> u16 {
        let errors = self.child.stderr.as_mut().expect("piped");
        let (mut text, mut byte) = (String::new(), [0]);
        while !text.contains("/metrics\n") {
            assert_eq!(errors.read(&mut byte).expect("readable"), 1, "no address in: {text}");
            text.push(byte[0].into());
        }
        let port = text.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split('/').next());
        port.expect("an address").parse().expect("a port")
    }

    /// Sends one command on a new connection; returns the reply.
    pub fn call(&self, command: &[&str]) -> Value {
        call(self.port, command).expect("a reply")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: i32) {
        let pid = libc::pid_t::try_from(self.child.id()).expect("a pid");
        // SAFETY: a plain system call on our own child, which is not reaped yet.
        #[allow(unsafe_code, reason = "kill(2) has no safe wrapper in std")]
        let sent = unsafe { libc::kill(pid, signal) };
        assert_eq!(sent, 0);
    }

    /// Waits for the end; returns status and standard error.
    pub fn end(mut self) -> (ExitStatus, String) {
        let status = wait(&mut self.child);
        let mut errors = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut errors).expect("text");
        (status, errors)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `evenkeel serve` on `dir` and a free port, unless `arguments` say where.
pub fn serve(dir: &Path, arguments: &[&str]) -> Command {
    serve_on(dir, arguments, free_port())
}

fn serve_on(dir: &Path, arguments: &[&str], port: u16) -> Command {
    let mut command = evenkeel();
    command.arg("serve").arg("--dir").arg(dir).args(arguments);
    if !arguments.iter().any(|argument| argument.starts_with("--loops")) {
        command.args(["--loops", "1"]);
    }
    let is_limited = arguments.iter().any(|argument| argument.starts_with("--memory-limit"));
    if std::env::var_os("EVENKEEL_ALWAYS_COLD").is_some() && !is_limited {
        command.arg("--memory-limit=16MiB");
    }
    if !arguments.iter().any(|argument| argument.starts_with("--port") || *argument == "--config") {
        command.args(["--port", &port.to_string()]);
    }
    command
}

/// The binary, with an environment that says nothing.
pub fn evenkeel() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_evenkeel"));
    command.stdin(Stdio::null());
    for variable in ["NOTIFY_SOCKET", "REDISCLI_AUTH", "EVENKEEL_URL"] {
        command.env_remove(variable);
    }
    command
}

/// Runs `command` to its end; returns the status code and what it printed, errors last.
pub fn finished(command: &mut Command) -> (i32, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the binary starts");
    // A pipe that nobody reads holds 64 KiB, and then its writer.
    let out = read(child.stdout.take().expect("piped"));
    let errors = read(child.stderr.take().expect("piped"));
    let status = wait(&mut child);
    let text = [out, errors].map(|reader| reader.join().expect("it ends"));
    (status.code().unwrap_or(-1), text.concat())
}

/// Reads a pipe to its end.
fn read(mut pipe: impl Read + Send + 'static) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut text = String::new();
        pipe.read_to_string(&mut text).expect("text");
        text
    })
}

/// Sends one command on a new connection.
pub fn call(port: u16, command: &[&str]) -> std::io::Result<Value> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut request = Vec::new();
    resp::encode_command(&mut request, command);
    stream.write_all(&request)?;
    receive(&mut stream)
}

/// Reads one reply.
pub fn receive(stream: &mut TcpStream) -> std::io::Result<Value> {
    let mut reply = Vec::new();
    read_reply(stream, &mut reply)?;
    let (value, _) = resp::decode_value(&reply).expect("the server speaks RESP").expect("all of it is here");
    Ok(value)
}

/// Reads one reply and not a byte more, each once: an array of 10,000 took a minute when all of it was decoded at each byte.
fn read_reply(stream: &mut TcpStream, reply: &mut Vec<u8>) -> std::io::Result<()> {
    let start = reply.len();
    while !reply[start..].ends_with(b"\r\n") {
        let mut byte = [0];
        // Not `read`: a signal ends it where a time-out is set.
        stream.read_exact(&mut byte)?;
        reply.push(byte[0]);
    }
    let line = &reply[start..reply.len() - 2];
    let count = || std::str::from_utf8(&line[1..]).ok().and_then(|count| count.parse::<usize>().ok());
    match line.first() {
        Some(b'$' | b'=' | b'!') => {
            if let Some(bytes) = count() {
                let from = reply.len();
                reply.resize(from + bytes + 2, 0);
                stream.read_exact(&mut reply[from..])?;
            }
        }
        Some(b'*' | b'~' | b'>') => {
            for _ in 0..count().unwrap_or(0) {
                read_reply(stream, reply)?;
            }
        }
        Some(b'%') => {
            for _ in 0..2 * count().unwrap_or(0) {
                read_reply(stream, reply)?;
            }
        }
        _ => {}
    }
    Ok(())
}

/// A port that nobody has now.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port is free");
    listener.local_addr().expect("a bound socket has an address").port()
}

pub fn ok() -> Value {
    Value::Simple(b"OK".to_vec())
}

pub fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

fn wait(child: &mut Child) -> ExitStatus {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("a child can be asked") {
            return status;
        }
        if start.elapsed() > PATIENCE {
            let _ = child.kill();
            panic!("still running after {PATIENCE:?}");
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A hash as text, of any size: [`receive`] looks at all of a reply for each byte.
pub fn hash(port: u16, key: &str) -> BTreeMap<String, String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("it connects");
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["HGETALL", key]);
    stream.write_all(&request).expect("it is sent");
    let (mut reply, mut chunk) = (Vec::new(), [0; 64 << 10]);
    let parts = loop {
        if let Some((value, _)) = resp::decode_value(&reply).expect("the server speaks RESP") {
            let Value::Array(parts) = value else { panic!("a hash, not {value:?}") };
            break parts;
        }
        let count = stream.read(&mut chunk).expect("it comes");
        assert!(count > 0, "the server closed the connection");
        reply.extend_from_slice(&chunk[..count]);
    };
    let text = |value: &Value| match value {
        Value::Bulk(text) => String::from_utf8(text.clone()).expect("text"),
        other => panic!("{other:?}"),
    };
    parts.chunks(2).map(|pair| (text(&pair[0]), text(&pair[1]))).collect()
}

/// The value of `name` in a map.
pub fn field(map: &Value, name: &str) -> Value {
    let Value::Array(items) = map else { panic!("no map: {map:?}") };
    let mut pairs = items.chunks_exact(2).filter(|pair| pair[0] == bulk(name));
    pairs.next().unwrap_or_else(|| panic!("no {name} in {map:?}"))[1].clone()
}

/// Processes that workers of the server on `data` are or have started.
pub fn processes(data: &Path) -> Vec<libc::pid_t> {
    let meta = data.metadata().expect("there");
    let mark = format!("EVENKEEL_WORKER={:x}.{:x}-", meta.dev(), meta.ino());
    let entries = std::fs::read_dir("/proc").expect("there").flatten();
    let marked = |path: &Path| {
        let environment = std::fs::read(path.join("environ")).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|value| value.starts_with(mark.as_bytes()))
    };
    let pids = entries.filter(|entry| marked(&entry.path()));
    pids.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub fn kill(pid: i64) {
    let pid = libc::pid_t::try_from(pid).expect("a process");
    assert!(pid > 0);
    // SAFETY: a plain system call; the process is a worker of this test's server.
    #[expect(unsafe_code, reason = "kill(2) has no safe wrapper in std")]
    let sent = unsafe { libc::kill(pid, libc::SIGKILL) };
    assert_eq!(sent, 0);
}
