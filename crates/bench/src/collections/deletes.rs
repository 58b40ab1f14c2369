//! Longest PING of another client while a collection goes: deleted, expired, renamed over, flushed; bytes that UNLINK and RENAME write.
//!
//! The server has one loop, so that the client that asks and the one that deletes share it. The client asks every 200 us until the background
//! work is over, too. What it sees of an idle server for as long is the machine's own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use resp::Value;

use crate::Failure;
use crate::client::Client;
use crate::figure::Figure;
use crate::process::settled;
use crate::servers::{Recipe, Server};

use super::fill::Kind;
use super::shape::Shape;
use super::sides::alone;

/// How a collection goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Deleted,
    Expired,
    RenamedOver,
    Flushed,
}

/// All kinds, all ways.
pub(super) fn measure(shape: &Shape, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    // Nothing of the filling is still to be written when a command is counted.
    let recipe = Recipe::evenkeel("log", "always", 1);
    let server = Server::start(&recipe, &shape.folder)?;
    let mut figures = Vec::new();
    for kind in Kind::ALL {
        figures.extend(of_kind(kind, &server, elements, say)?);
    }
    Ok(figures)
}

fn of_kind(kind: Kind, server: &Server, elements: u64, say: &dyn Fn(&str)) -> Result<Vec<Figure>, Failure> {
    let (mut figures, mut renamed, mut unlinked) = (Vec::new(), Vec::new(), Vec::new());
    let mut client = server.client()?;
    let rest = || {
        std::thread::sleep(REST);
        Ok(())
    };
    for way in [Way::Deleted, Way::Expired, Way::RenamedOver, Way::Flushed] {
        say(&format!("deletes: {}, {}", kind.name(), way.name()));
        kind.fill(&mut client, KEY, 0..elements, VALUE_BYTES)?;
        settled_bytes(&mut client)?;
        renamed.push(written_by(&mut client, |client| client.call(&["RENAME", KEY, FULL]).map(drop))?);
        let idle = longest_ping(server.port(), rest)?.0;
        let (stall, bytes) = longest_ping(server.port(), || {
            written_by(&mut client, |client| way.end(client).and_then(|()| swept(client)))
        })?;
        if way == Way::Deleted {
            unlinked.push(bytes);
        }
        let id = format!("deletes/{}-{}", kind.name(), way.name().replace(' ', "-"));
        let title = format!("longest PING, {} {}", kind.name(), way.name());
        let note = format!("of an idle server: {idle:.2} ms");
        figures.push(alone(&id, &title, "ms", server.label(), vec![stall]).note(&note));
    }
    for (command, bytes) in [("RENAME", renamed), ("UNLINK", unlinked)] {
        let id = format!("deletes/{}-{}-bytes", kind.name(), command.to_lowercase());
        let title = format!("bytes in the log of {command} of a {}", kind.name());
        figures.push(alone(&id, &title, "bytes", server.label(), bytes));
    }
    Ok(figures)
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Self::Deleted => "deleted",
            Self::Expired => "expired",
            Self::RenamedOver => "renamed over",
            Self::Flushed => "flushed",
        }
    }

    /// Has it go, and sees that it has.
    fn end(self, client: &mut Client) -> Result<(), Failure> {
        match self {
            Self::Deleted => client.call(&["UNLINK", FULL])?,
            Self::Expired => {
                let reply = client.call(&["PEXPIRE", FULL, "1"])?;
                std::thread::sleep(SETTLE);
                reply
            }
            Self::RenamedOver => {
                client.call(&["SET", KEY, "small"])?;
                client.call(&["RENAME", KEY, FULL])?;
                client.call(&["UNLINK", FULL])?
            }
            Self::Flushed => client.call(&["FLUSHALL"])?,
        };
        match client.call(&["DBSIZE"])? {
            Value::Integer(0) => Ok(()),
            other => Err(format!("{}, and DBSIZE says {other:?}", self.name())),
        }
    }
}

/// Waits until no leaf is left to be removed in the background.
fn swept(client: &mut Client) -> Result<(), Failure> {
    let started = Instant::now();
    loop {
        std::thread::sleep(SETTLE);
        match client.info("stats", "leaves_swept")? {
            0 => return Ok(()),
            left if started.elapsed() > SWEEP_TIME_MAX => {
                return Err(format!("{left} leaves are left after {SWEEP_TIME_MAX:?}"));
            }
            _ => {}
        }
    }
}

/// Bytes that `work` appended to the journal.
fn written_by(
    client: &mut Client,
    work: impl FnOnce(&mut Client) -> Result<(), Failure>,
) -> Result<f64, Failure> {
    let before = client.info("all", "journal_bytes_written")?;
    work(client)?;
    Ok((client.info("all", "journal_bytes_written")? - before) as f64)
}

/// Waits until the journal stands still: leaves are also written in the background.
fn settled_bytes(client: &mut Client) -> Result<u64, Failure> {
    let (every, patience) = (SETTLE, SWEEP_TIME_MAX);
    settled(every, patience, |last, now| last == now, || client.info("all", "journal_bytes_written"))
}

/// The longest PING in ms while `work` goes on, and what that returns.
fn longest_ping<T>(port: u16, work: impl FnOnce() -> Result<T, Failure>) -> Result<(f64, T), Failure> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let pings = scope.spawn(|| ping_until(port, &is_over));
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        let longest = pings.join().map_err(|_| "the thread that asks panicked".to_owned())??;
        Ok((longest.as_secs_f64() * 1e3, done?))
    })
}

fn ping_until(port: u16, is_over: &AtomicBool) -> Result<Duration, Failure> {
    let mut client = Client::connect(port)?;
    client.call(&["PING"])?;
    let mut longest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let asked = Instant::now();
        client.call(&["PING"])?;
        longest = longest.max(asked.elapsed());
        std::thread::sleep(PING_INTERVAL);
    }
    Ok(longest)
}

const KEY: &str = "collection";
const FULL: &str = "renamed";
const VALUE_BYTES: usize = 30;
const PING_INTERVAL: Duration = Duration::from_micros(200);
/// A wait for what goes on in the background.
const SETTLE: Duration = Duration::from_millis(100);
const SWEEP_TIME_MAX: Duration = Duration::from_secs(120);
/// About as long as it takes to see a collection go.
const REST: Duration = Duration::from_millis(300);
