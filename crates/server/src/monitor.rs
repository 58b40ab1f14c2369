//! MONITOR: every command that runs, as a line, for the connections that asked for it.
//!
//! `+<seconds>.<microseconds> [<db> <address>] "<name>" "<argument>" ...`; passwords are not shown.

use std::fmt::Display;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use clock::Clock;
use commands::command::{Command, Flags, Kind};
use commands::lookup::Entry;
use resp::ArgsView;
use ticket::Ticket;

use crate::clients::Client;
use crate::message::{Line, Message};
use crate::peers::Connections;
use crate::secrets::{REDACTED, is_secret};
use crate::traffic::Traffic;

/// Connections in MONITOR.
#[derive(Debug)]
pub(crate) struct Monitors {
    clock: Arc<dyn Clock>,
    peers: Arc<Connections>,
    traffic: Arc<Traffic>,
    ids: RwLock<Vec<u64>>,
    count: AtomicUsize,
    /// Those that could not keep up.
    cut: AtomicU64,
}

impl Monitors {
    pub(crate) fn new(clock: Arc<dyn Clock>, peers: Arc<Connections>, traffic: Arc<Traffic>) -> Self {
        let (ids, count, cut) = (RwLock::default(), AtomicUsize::new(0), AtomicU64::new(0));
        Monitors { clock, peers, traffic, ids, count, cut }
    }

    /// Whether nobody is. One load.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn add(&self, id: u64) {
        let mut ids = self.ids.write().unwrap_or_else(PoisonError::into_inner);
        if !ids.contains(&id) {
            ids.push(id);
        }
        self.count.store(ids.len(), Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, id: u64) {
        let mut ids = self.ids.write().unwrap_or_else(PoisonError::into_inner);
        ids.retain(|other| *other != id);
        self.count.store(ids.len(), Ordering::Relaxed);
    }

    /// How many were cut off because they could not keep up.
    pub(crate) fn cut(&self) -> u64 {
        self.cut.load(Ordering::Relaxed)
    }

    /// Counts one that was.
    pub(crate) fn note_cut(&self) {
        self.cut.fetch_add(1, Ordering::Relaxed);
    }

    /// Begins to count them anew.
    pub(crate) fn reset(&self) {
        self.cut.store(0, Ordering::Relaxed);
    }

    /// Shows a command that ran in database `db`.
    pub(crate) fn show(&self, client: &Client, db: u16, entry: &Entry, args: ArgsView<'_>) {
        let mut line = Vec::new();
        self.write(client.address(), db, entry, args, &mut line);
        self.feed(line);
    }

    /// Adds the line of a command that a script ran; those of one script are bounded.
    pub(crate) fn note(&self, db: u16, entry: &Entry, args: ArgsView<'_>, lines: &mut Vec<u8>) {
        if !self.is_empty() && lines.len() < SCRIPT_BYTES_MAX {
            self.write("lua", db, entry, args, lines);
        }
    }

    fn write(&self, source: impl Display, db: u16, entry: &Entry, args: ArgsView<'_>, lines: &mut Vec<u8>) {
        let Command { flags, kind, .. } = entry.command;
        // Scripts have the flag since Redis shows them in another way: before their commands.
        let is_skipped = flags.has(Flags::SKIP_MONITOR) && !matches!(kind, Kind::Script(_));
        if is_skipped || flags.has(Flags::ADMIN) {
            return;
        }
        let micros = self.clock.unix_us();
        let head = format!("+{}.{:06} [{db} {source}]", micros / 1_000_000, micros % 1_000_000);
        lines.extend_from_slice(head.as_bytes());
        for (index, arg) in args.iter().enumerate() {
            lines.push(b' ');
            quote(if is_secret(entry, args, index) { REDACTED } else { arg }, lines);
        }
        lines.extend_from_slice(b"\r\n");
    }

    /// Sends lines to all of them, and cuts them off if they cannot keep up: nobody else waits for them.
    pub(crate) fn feed(&self, line: Vec<u8>) {
        if line.is_empty() {
            return;
        }
        let ids = self.ids.read().unwrap_or_else(PoisonError::into_inner);
        if self.traffic.is_full() {
            for id in ids.iter() {
                let _ = self.peers.get().is_some_and(|peers| peers.kill(*id));
                self.note_cut();
            }
            return;
        }
        let weight = self.traffic.weigh(0, line.len(), ids.len(), Ticket::NOTHING);
        let line = Arc::new(Line { bytes: line.into(), _weight: weight });
        for id in ids.iter() {
            self.peers.post(*id, Message::Monitor(Arc::clone(&line)));
        }
    }
}

/// What is shown of one script's commands.
const SCRIPT_BYTES_MAX: usize = 64 << 10;

/// Appends `bytes` between quotes, everything but printable ASCII escaped.
pub(crate) fn quote(bytes: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in bytes {
        match byte {
            b'\\' | b'"' => out.extend_from_slice(&[b'\\', *byte]),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            7 => out.extend_from_slice(b"\\a"),
            8 => out.extend_from_slice(b"\\b"),
            b' '..=b'~' => out.push(*byte),
            _ => out.extend_from_slice(format!("\\x{byte:02x}").as_bytes()),
        }
    }
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_could_end_the_line_are_escaped() {
        let mut out = Vec::new();
        quote(b"a\r\n\"\\\x00\x07\x08\t\xff", &mut out);
        assert_eq!(out, br#""a\r\n\"\\\x00\a\b\t\xff""#);
    }
}
