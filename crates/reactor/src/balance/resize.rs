//! Loops that park and wake: who lives on how many of them.
//!
//! The active loops are the first ones. A parked loop sends its connections away, as many a tick as do not hold up the others, and
//! then sleeps until it is posted to; what arrives there late is sent on. A loop that wakes is given the connections that make it as
//! busy as the others, by what they cost lately: the balancer's next interval may be seconds away.
//!
//! Order of events: the number changes first, then the loops that park are woken. One that took a connection in before is woken to
//! send it away, one that takes it in later sees the new number.

use std::sync::Arc;

use super::account::Estimate;
use super::active::Reason;
use super::active_count::ActiveReport;
use super::decide::{LoopView, MOVES_MAX, Member, Rules, decide};
use crate::handle::Shared;
use crate::{Address, Assignment, Connection, Handle, Protocol};

impl<P: Protocol> Handle<P> {
    /// How many loops are active, and why.
    #[must_use]
    pub fn active_loops(&self) -> ActiveReport {
        self.shared.active.report()
    }

    /// Parks or wakes loops until the first `count` are active: at least one, at most all. A reactor that adapts their number goes on
    /// from there.
    pub fn set_active_loops(&self, count: usize) {
        self.shared.resize(count.clamp(1, self.shared.stats.len()), Reason::Fixed);
    }
}

impl<P: Protocol> Shared<P> {
    /// Has the first `to` loops be active, for `reason`.
    pub(crate) fn resize(&self, to: usize, reason: Reason) {
        let Some(from) = self.active.note_change(to, reason, self.clock.now()) else { return };
        tracing::info!(from, to, reason = reason.as_str(), "the number of active loops changes");
        {
            let mut hosts = self.hosts();
            hosts.resize(to);
            self.active.set_count(to);
        }
        if to < from {
            self.mailboxes[to..from].iter().for_each(|mailbox| mailbox.wake_always());
        }
        let connections = self.some_order();
        if self.options.assignment == Assignment::ByHost {
            self.follow_hosts(&connections);
        }
        if to > from {
            self.spread(&connections, to);
        }
    }

    /// Sends connections that are bound to where the others of their host are.
    fn follow_hosts(&self, connections: &[Arc<Connection>]) {
        for connection in connections.iter().filter(|connection| connection.is_bound()) {
            let Address::Tcp(address) = connection.peer() else { continue };
            let home = self.hosts().loop_of(address.ip());
            if let Some(to) = home.filter(|to| *to != connection.loop_index()) {
                self.order_to_move(connection, to);
            }
        }
    }

    /// Gives loops of which some have just become active equally much to do.
    fn spread(&self, connections: &[Arc<Connection>], active: usize) {
        let mut views = vec![LoopView { busy_permille: 1_000, ..LoopView::default() }; active];
        for (index, connection) in connections.iter().enumerate() {
            let load = connection.account().busy_lately_ns(connection.busy_ns());
            if let Some(view) = views.get_mut(connection.loop_index()) {
                let cost = Estimate { load, variance: 0.0 };
                view.members.push(Member { id: index as u64, cost, is_free: !connection.is_bound() });
            }
        }
        let rules = Rules { threshold_percent: 5, busy_permille_min: 0, moves_max: MOVES_MAX };
        for order in decide(&views, &rules) {
            self.order_to_move(&connections[order.id as usize], order.to);
        }
    }
}
