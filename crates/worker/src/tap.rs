//! Looks at what components emit, each for as long as somebody asks for it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clock::Nanos;
use topology::Plan;
use topology::ids::ComponentId;
use topology::tap::{Choice, Seen, Tap};

use crate::sync::lock;

/// The taps of all components, and the looks that are open.
#[derive(Debug)]
pub(crate) struct Taps {
    /// In the order of the plan.
    taps: Vec<Arc<Tap>>,
    /// By their numbers: whose, and when somebody asked last.
    looks: Mutex<BTreeMap<u64, (ComponentId, Nanos)>>,
}

impl Taps {
    /// A tap for each component, without looks.
    pub(crate) fn new(plan: &Plan) -> Self {
        Self { taps: plan.components().map(|_| Arc::default()).collect(), looks: Mutex::default() }
    }

    /// The tap of a component.
    pub(crate) fn of(&self, component: ComponentId) -> &Arc<Tap> {
        &self.taps[usize::from(component.0)]
    }

    /// What the look `id` has seen since the last time. It begins with the first time, if there are not too many.
    pub(crate) fn look(&self, now: Nanos, id: u64, component: ComponentId, choice: Choice) -> Seen {
        let mut looks = lock(&self.looks);
        if !looks.contains_key(&id) && looks.len() >= LOOKS_MAX {
            return Seen::default();
        }
        // One that has another component by now is another look.
        if let Some((former, _)) =
            looks.insert(id, (component, now)).filter(|(former, _)| *former != component)
        {
            self.of(former).close(id);
        }
        drop(looks);
        let tap = self.of(component);
        tap.open(id, choice);
        tap.drain(id)
    }

    /// Ends looks that nobody has asked for.
    pub(crate) fn expire(&self, now: Nanos) {
        lock(&self.looks).retain(|id, (component, asked)| {
            let lasts = now.since(*asked) < IDLE_MAX;
            if !lasts {
                self.of(*component).close(*id);
            }
            lasts
        });
    }
}

/// Most looks at a worker: the supervisor allows no more of a server.
const LOOKS_MAX: usize = 16;
/// A look that nobody has asked for so long ends.
const IDLE_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use topology::definition::{Component, Settings, Stream, Topology};

    use super::*;

    const ALL: Choice = Choice { stream: None, every: 1 };

    fn taps() -> Taps {
        let components = vec![Component::spout("it", vec![Stream::default_with(&["x"])])];
        let topology = Topology { name: "t".to_owned(), settings: Settings::default(), components };
        Taps::new(&Plan::new(topology).expect("it is right").0)
    }

    fn at(s: u64) -> Nanos {
        Nanos(s * 1_000_000_000)
    }

    #[test]
    fn look_ends_when_nobody_asks_for_it() {
        let taps = taps();
        taps.look(at(1), 5, ComponentId(0), ALL);
        taps.look(at(9), 5, ComponentId(0), ALL);
        taps.expire(at(18));
        assert_eq!(lock(&taps.looks).len(), 1);
        taps.expire(at(19));
        assert!(lock(&taps.looks).is_empty());
    }

    #[test]
    fn number_of_looks_is_bounded() {
        let taps = taps();
        for id in 0..10_000 {
            taps.look(at(1), id, ComponentId(0), ALL);
        }
        assert_eq!(lock(&taps.looks).len(), LOOKS_MAX);
    }
}
