//! The control plane: a thread beside the loops that shows figures to whoever watches, over HTTP and in a file.
//!
//! ```text
//!  thread "control" (tokio, one thread)
//!    accept -> at most 16 connections -> a host that is known -> GET /metrics, /api/..., /ready -> what it was given
//!    every interval                   -> a line that it was given -> file, rotated
//! ```
//!
//! Invariants
//!   1. No loop waits for it: it asks closures, which read counters, and they run on this thread.
//!   2. A client costs at most a connection for a minute, 16 KiB of headers, and one page at a time. A connection too many ends
//!      the one that has asked nothing for longest.
//!   3. What goes wrong with the file is told once, loses lines of the file, and nothing else.
//!   4. A page is for requests that name an IP address, `localhost` or one of [`Options::hosts`]: a web page whose own name leads to
//!      this machine (DNS rebinding) gets none.
//!
//! It knows nothing of what the figures are of. hyper by itself, not axum: there is one page, and the bounds on headers, time
//! and connections are settings of hyper's that axum's own server hides. Out of scope: TLS, passwords; listen on loopback.

mod file;
mod http;

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use tokio::sync::watch;

use file::MetricsFile;
use http::Pages;

/// Where figures are shown.
#[derive(Debug, Default)]
pub struct Options {
    /// Serves the page, if there is one; see [`listen`].
    pub listener: Option<TcpListener>,
    /// Names of this machine that a request may be for, beside IP addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Keeps lines, if there is one.
    pub file: Option<FileOptions>,
}

/// A file of lines.
#[derive(Clone, Debug)]
pub struct FileOptions {
    /// Where; its folder must be there.
    pub path: PathBuf,
    /// Time from line to line.
    pub interval: Duration,
    /// A line that would make the file larger begins a new one, in bytes.
    pub bytes_max: u64,
    /// Former files that are kept, as `path.1` (the newest) and on.
    pub former_max: usize,
}

/// Makes an answer for a path, if there is one: `Err` is told with status 404.
pub type Api = Box<dyn Fn(&str) -> Option<Result<String, String>> + Send>;

/// Says whether the server serves, or why not.
pub type Ready = Box<dyn Fn() -> Result<(), &'static str> + Send>;

/// What is shown, made anew each time on the thread of the control plane.
pub struct Sources {
    /// The page for Prometheus, in its text format.
    pub page: Box<dyn Fn() -> String + Send>,
    /// The page for a browser, in HTML; its script asks for JSON under `/api/`, and nobody else for anything.
    pub console: &'static str,
    /// JSON for a request under `/api/`, by its path; `Err`: that there is no such thing, in JSON; `None`: the same without a word.
    pub api: Api,
    /// A line for the file, without its end, if there is one now.
    pub line: Box<dyn FnMut() -> Option<String> + Send>,
    /// Whether what is shown is there, and serves; or why it does not, in a few words. While it does not, all but `/health` is answered
    /// with status 503.
    pub ready: Ready,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sources")
    }
}

/// A running control plane.
#[derive(Debug)]
pub struct Console {
    stop: watch::Sender<bool>,
    ended: mpsc::Receiver<()>,
    address: Option<SocketAddr>,
}

/// Listens on `address`, for [`Options::listener`]; apart, so that a server that cannot listen fails before it touches anything.
///
/// # Errors
/// The system's.
#[expect(clippy::disallowed_methods, reason = "the control plane's sockets are its own, not the reactor's")]
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

impl Console {
    /// Starts the thread.
    ///
    /// # Errors
    /// The system grants no thread or no poller.
    pub fn start(options: Options, sources: Sources) -> io::Result<Self> {
        let address = options.listener.as_ref().map(TcpListener::local_addr).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let (stop, stopped) = watch::channel(false);
        let (end, ended) = mpsc::channel();
        let run = move || {
            runtime.block_on(run(options, sources, stopped));
            drop(end);
        };
        std::thread::Builder::new().name("control".to_owned()).spawn(run)?;
        Ok(Console { stop, ended, address })
    }

    /// Where the page is served.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Writes a last line and ends, within a second: a disk that hangs holds up no stop.
    pub fn stop(self) {
        let _ = self.stop.send(true);
        // Nothing is ever sent: the other end is dropped when the thread has done its work.
        let _ = self.ended.recv_timeout(STOP_MAX);
    }
}

async fn run(options: Options, sources: Sources, stopped: watch::Receiver<bool>) {
    let Sources { page, console, api, mut line, ready } = sources;
    let serving = async {
        if let Some(listener) = options.listener {
            http::serve(listener, Pages { page, console, api, ready }, options.hosts).await;
        }
        std::future::pending::<()>().await;
    };
    let mut file = options.file.map(MetricsFile::new);
    let writing = async {
        let Some(file) = &mut file else { return std::future::pending().await };
        let mut ticks = tokio::time::interval(file.interval());
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if let Some(line) = line() {
                file.append(&line);
            }
        }
    };
    let mut asked = stopped;
    tokio::select! {
        () = serving => {}
        () = writing => {}
        // An error means that nobody is left to ask for a stop: that is one.
        _ = asked.wait_for(|stopped| *stopped) => {}
    }
    if let (Some(file), Some(line)) = (&mut file, line()) {
        file.append(&line);
    }
}

/// Longest wait for the last line.
const STOP_MAX: Duration = Duration::from_secs(1);
