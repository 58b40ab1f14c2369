//! Links between workers: messages of two tasks stay in order, those of others do not; a cut loses what is on the way, or sends it again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use topology::ids::{TaskId, WorkerId};
use topology::message::{Envelope, Message};

use crate::world::{Event, World};

/// All links.
#[derive(Debug, Default)]
pub struct Network {
    links: BTreeMap<(WorkerId, WorkerId), Link>,
    /// When the last message between two tasks arrives: the next one is later.
    last_us: BTreeMap<(TaskId, TaskId), u64>,
    next: u64,
}

/// One direction between two workers.
#[derive(Debug, Default)]
struct Link {
    is_down: bool,
    /// On the way, in the order of sending.
    flying: BTreeMap<u64, Envelope>,
    /// Those of them that have arrived before.
    doubles: BTreeSet<u64>,
    /// Delivered last: a link that comes back may send them again.
    recent: VecDeque<Envelope>,
    /// To be sent again when the link comes back.
    kept: Vec<Envelope>,
}

impl World {
    /// Sends what tasks of `from` have to say.
    pub(crate) fn send(&mut self, from: WorkerId, outbox: Vec<Envelope>) {
        for envelope in outbox {
            let to = self.place_as_seen(from, envelope.to);
            self.fly((from, to), envelope);
        }
    }

    fn fly(&mut self, way: (WorkerId, WorkerId), envelope: Envelope) {
        let is_local = way.0 == way.1;
        let longest_us = match self.random.below(20) {
            _ if is_local => 20,
            0 if self.is_bad() => 40_000,
            1..=3 => 3_000,
            _ => 500,
        };
        let arrives_us = self.now_us + 5 + self.random.below(longest_us);
        let link = self.network.links.entry(way).or_default();
        if link.is_down {
            self.met.not_sent += 1;
            return;
        }
        let last_us = self.network.last_us.entry((envelope.from, envelope.to)).or_default();
        *last_us = arrives_us.max(*last_us);
        let (number, at_us) = (self.network.next, *last_us);
        self.network.next += 1;
        link.flying.insert(number, envelope);
        self.at(at_us, Event::Deliver(way, number));
    }

    /// A message arrives, unless it was lost.
    pub(crate) fn deliver(&mut self, way: (WorkerId, WorkerId), number: u64) {
        let Some(link) = self.network.links.get_mut(&way) else { return };
        let Some(envelope) = link.flying.remove(&number) else { return };
        link.recent.push_back(envelope.clone());
        if link.recent.len() > RECENT_MAX {
            link.recent.pop_front();
        }
        let is_there = self.nodes.get(&envelope.to).is_some_and(|node| node.worker == way.1);
        if is_there && self.place_as_seen(way.1, envelope.to) == way.1 {
            self.receive(envelope);
        }
    }

    /// The link between two workers is cut, in both directions.
    pub(crate) fn cut(&mut self, one: WorkerId, other: WorkerId) {
        if one == other {
            return;
        }
        self.met.cuts += 1;
        let keeps = self.random.chance(1, 2);
        for way in [(one, other), (other, one)] {
            let link = self.network.links.entry(way).or_default();
            let doubles = std::mem::take(&mut link.doubles);
            let flying = std::mem::take(&mut link.flying).into_iter();
            let flying: Vec<Envelope> = flying
                .filter(|(number, _)| !doubles.contains(number))
                .map(|(_, envelope)| envelope)
                .collect();
            if keeps {
                link.kept.extend(flying);
            } else {
                self.met.lost += flying.len() as u64;
            }
            link.is_down = true;
        }
        let down_us = 100 + self.random.below(30_000);
        self.after(down_us, Event::Mend(one, other));
    }

    /// The link is there again: it may send again what has arrived, then what was kept, then its tasks say where they are.
    pub(crate) fn mend(&mut self, one: WorkerId, other: WorkerId) {
        for way in [(one, other), (other, one)] {
            let link = self.network.links.entry(way).or_default();
            if !std::mem::take(&mut link.is_down) {
                continue;
            }
            let (recent, kept) = (std::mem::take(&mut link.recent), std::mem::take(&mut link.kept));
            if self.random.chance(1, 2) {
                self.met.doubled += recent.len() as u64;
                let first = self.network.next;
                recent.into_iter().for_each(|envelope| self.fly(way, envelope));
                let doubles = first..self.network.next;
                self.network.links.entry(way).or_default().doubles.extend(doubles);
            }
            kept.into_iter().for_each(|envelope| self.fly(way, envelope));
            self.say_open(way.0, &|world, to| world.place_as_seen(way.0, to) == way.1);
        }
    }

    /// What is on the way to a worker that died is lost; what it has sent may arrive.
    pub(crate) fn lose_to(&mut self, worker: WorkerId) {
        for ((_, to), link) in &mut self.network.links {
            if *to == worker {
                self.met.lost += link.flying.len() as u64;
                link.flying.clear();
                link.kept.clear();
                link.recent.clear();
            }
        }
    }

    /// A task starts anew: what an earlier start has got does not come again.
    pub(crate) fn forget_recent(&mut self, task: TaskId) {
        for link in self.network.links.values_mut() {
            link.recent.retain(|envelope| envelope.to != task);
            let doubles = &link.doubles;
            link.flying.retain(|number, envelope| envelope.to != task || !doubles.contains(number));
        }
    }

    /// Messages that matter are on the way.
    pub(crate) fn is_flying(&self) -> bool {
        let matters = |envelope: &Envelope| !matches!(envelope.message, Message::Credit(_));
        self.network.links.values().any(|link| link.flying.values().any(matters) || !link.kept.is_empty())
    }
}

const RECENT_MAX: usize = 6;
