//! The requests of a group: made as its work says, as many as its limit allows, at the times of its rate if it has one.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::Nanos;

use super::source::Turn;
use super::work::{Encoder, Group, Limit};
use connection::Protocol;

#[derive(Debug)]
pub(super) struct Load {
    pub(super) group: Group,
    pub(super) encoder: Encoder,
    start: Nanos,
    next: AtomicU64,
}

impl Load {
    pub(super) fn new(group: &Group, protocol: Protocol, start: Nanos) -> Self {
        let encoder = Encoder::new(group, protocol);
        Self { group: group.clone(), encoder, start, next: AtomicU64::new(0) }
    }

    /// What connection `number` does next, which has sent `sent` requests.
    pub(super) fn turn(&self, number: u64, sent: u64, now: Nanos) -> Turn {
        if let Limit::Each(count) = self.group.limit
            && sent >= count
        {
            return Turn::Done;
        }
        if let Some(rate) = self.group.per_second {
            let index = number + sent * self.group.connections as u64;
            return match self.due(index, rate) {
                Some(due) if due <= now => Turn::Send(index, due),
                Some(_) => Turn::Wait,
                None => Turn::Done,
            };
        }
        let is_late = matches!(self.group.limit, Limit::For(length) if now >= self.start + length);
        if is_late {
            return Turn::Done;
        }
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        match self.group.limit {
            Limit::Requests(count) if index >= count => Turn::Done,
            _ => Turn::Send(index, now),
        }
    }

    /// When the requests of an open loop are due, and on which connections, in order.
    pub(super) fn plan(&self) -> Option<impl Iterator<Item = (Nanos, usize)>> {
        let (rate, connections) = (self.group.per_second?, self.group.connections.max(1) as u64);
        Some((0..).map_while(move |index| Some((self.due(index, rate)?, (index % connections) as usize))))
    }

    /// When an open loop at `rate` sends request `index`; `None` when that is beyond its limit.
    fn due(&self, index: u64, rate: f64) -> Option<Nanos> {
        let after = Duration::from_secs_f64(index as f64 / rate);
        let is_planned = match self.group.limit {
            Limit::Requests(count) => index < count,
            Limit::Each(count) => index < count * self.group.connections as u64,
            Limit::For(length) => after < length,
        };
        is_planned.then(|| self.start + after)
    }
}

#[cfg(test)]
mod tests {
    use super::super::work::{Action, Pick, tests::work};
    use super::*;

    fn load(limit: Limit, per_second: Option<f64>) -> Load {
        let work = work(Action::Read, Pick::Sequence);
        let group = Group { work, connections: 2, depth: 1, limit, per_second };
        Load::new(&group, Protocol::Resp, Nanos(1_000))
    }

    #[test]
    fn quota_of_requests_is_shared() {
        let load = load(Limit::Requests(2), None);
        assert_eq!(load.turn(0, 0, Nanos(5)), Turn::Send(0, Nanos(5)));
        assert_eq!(load.turn(0, 1, Nanos(6)), Turn::Send(1, Nanos(6)));
        assert_eq!(load.turn(1, 0, Nanos(7)), Turn::Done);
    }

    #[test]
    fn open_loop_is_due_by_plan_however_late_it_is_asked() {
        let load = load(Limit::For(Duration::from_secs(1)), Some(4.0));
        let quarter = 250_000_000;
        assert_eq!(load.turn(0, 0, Nanos(1_000)), Turn::Send(0, Nanos(1_000)));
        assert_eq!(load.turn(1, 0, Nanos(1_000)), Turn::Wait);
        let late = Nanos(60_000_000_000);
        assert_eq!(load.turn(1, 0, late), Turn::Send(1, Nanos(1_000 + quarter)));
        assert_eq!(load.turn(0, 1, late), Turn::Send(2, Nanos(1_000 + 2 * quarter)));
        assert_eq!(load.turn(1, 1, late), Turn::Send(3, Nanos(1_000 + 3 * quarter)));
        assert_eq!(load.turn(0, 2, late), Turn::Done);
    }

    #[test]
    fn closed_loop_ends_at_its_time() {
        let load = load(Limit::For(Duration::from_nanos(10)), None);
        assert_eq!(load.turn(0, 0, Nanos(1_009)), Turn::Send(0, Nanos(1_009)));
        assert_eq!(load.turn(0, 1, Nanos(1_010)), Turn::Done);
    }
}
