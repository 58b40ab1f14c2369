//! What clients make the server hold, by parts, and what was done about it: one list for INFO, the metrics page and the metrics file.
//!
//! Out of scope: who is ended when it is too much (`reactor`), and what single connections may hold (`docs/manual/limits.md`).

use std::sync::atomic::{AtomicU64, Ordering};

use reactor::BudgetReport;

use crate::peers::Peers;
use crate::server::Server;

/// What clients make the server hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFigures {
    /// Most that all of them together may; the parts count against it.
    pub max_bytes: u64,
    /// What is held, in bytes, by what it is for.
    pub parts: Vec<(&'static str, u64)>,
    /// Of all parts, what clients hold that have not authenticated.
    pub unauthenticated_bytes: u64,
    /// Requests that wait for room now.
    pub waiting: u64,
    /// What was done about it: name, meaning, count.
    pub counts: Vec<(&'static str, &'static str, u64)>,
}

impl ClientFigures {
    pub(crate) fn of(server: &Server) -> Self {
        let report = server.peers.get().map(Peers::budget).unwrap_or_default();
        Self::from_report(&report, server)
    }

    /// All of it.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|(_, bytes)| bytes).sum()
    }

    fn from_report(report: &BudgetReport, server: &Server) -> Self {
        let strangers = &server.strangers.counts;
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ClientFigures {
            max_bytes: report.max_bytes,
            parts: vec![
                ("connections", report.connections_bytes),
                ("input", report.input_bytes),
                ("requests", report.requests_bytes),
                ("output", report.output_bytes),
                ("sessions", report.session_bytes),
                ("messages", server.traffic.kept_bytes()),
                ("slowlog", server.slowlog.bytes()),
            ],
            unauthenticated_bytes: report.strangers_bytes,
            waiting: report.waiting,
            counts: vec![
                ("clients_cut_for_memory", "Clients closed because all together held too much.", report.cut),
                ("requests_waited_for_room", "Requests that waited for room for their rest.", report.waits),
                (
                    "requests_refused_for_room",
                    "Requests refused because no room came in time.",
                    report.refused,
                ),
                (
                    "requests_stalled",
                    "Requests ended because others waited and they did not come.",
                    report.stalled,
                ),
                (
                    "unauthenticated_cut_for_memory",
                    "Clients closed before AUTH because all such together held too much.",
                    report.strangers_cut,
                ),
                (
                    "unauthenticated_cut_for_output",
                    "Clients closed because they asked for too much before AUTH.",
                    count(&strangers.cut_for_output),
                ),
                (
                    "unauthenticated_timeouts",
                    "Clients closed because they did not authenticate in time.",
                    count(&strangers.timed_out),
                ),
                ("auth_failures", "Wrong passwords.", count(&strangers.auth_failures)),
                (
                    "auth_delays",
                    "Passwords that had to wait because of wrong ones before.",
                    count(&strangers.auth_delays),
                ),
            ],
        }
    }
}
