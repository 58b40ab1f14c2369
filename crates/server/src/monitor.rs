//! MONITOR: every command that runs, as a line.
//!
//! `+<seconds>.<microseconds> [<db> <address>] "<name>" "<argument>" ...`; passwords are not shown.

use std::sync::atomic::Ordering;

use resp::ArgsView;

use crate::clients::Client;
use crate::command::Flags;
use crate::exec::Course;
use crate::lookup::Entry;
use crate::secrets::{REDACTED, is_secret};
use crate::server::Server;
use crate::session::Transaction;

impl Server {
    /// Shows a command that ran in database `db` to everybody in MONITOR.
    pub(crate) fn monitor(&self, client: &Client, db: u16, entry: &Entry, args: ArgsView<'_>) {
        let flags = entry.command.flags;
        if flags.has(Flags::SKIP_MONITOR) || flags.has(Flags::ADMIN) {
            return;
        }
        let micros = self.clock.unix_us();
        let address = client.address();
        let head = format!("+{}.{:06} [{} {address}]", micros / 1_000_000, micros % 1_000_000, db);
        let mut line = head.into_bytes();
        for (index, arg) in args.iter().enumerate() {
            line.push(b' ');
            quote(if is_secret(entry, args, index) { REDACTED } else { arg }, &mut line);
        }
        line.extend_from_slice(b"\r\n");
        self.feed_monitors(line);
    }

    /// Shows the commands of a transaction that began as `course` tells, in their order.
    pub(crate) fn monitor_transaction(&self, client: &Client, mut course: Course, transaction: &Transaction) {
        if self.monitor_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        for queued in &transaction.queue {
            self.monitor(client, course.db, queued.entry, queued.args.view(&[]));
            course.pass(self, queued);
        }
    }
}

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
