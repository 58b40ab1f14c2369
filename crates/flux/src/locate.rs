//! Where in the file is what the core finds wrong: it knows names, the file has places.

use std::collections::HashMap;

use topology::problem::{Problem, Warning};

use crate::components::Vertex;
use crate::fault::Place;
use crate::streams::Link;

/// Places of names.
#[derive(Debug)]
pub(crate) struct Places {
    topology: Place,
    components: HashMap<String, Place>,
    links: Vec<Link>,
}

impl Places {
    pub(crate) fn new(topology: Place, vertices: &[Vertex], links: Vec<Link>) -> Self {
        let components = vertices.iter().map(|vertex| (vertex.component.id.clone(), vertex.place)).collect();
        Self { topology, components, links }
    }

    /// The place of `problem`, as near as it is known.
    pub(crate) fn of(&self, problem: &Problem) -> Place {
        match problem {
            Problem::UnknownComponent { component, from, .. } => {
                self.link(component, from, None, |link| link.from_place)
            }
            Problem::SpoutSubscribes { component, from } => {
                self.link(component, from, None, |link| link.to_place)
            }
            Problem::NoSource { component, from, stream, .. } => {
                self.link(component, from, Some(stream), |link| link.stream_place)
            }
            Problem::UnknownField { component, from, stream, .. }
            | Problem::DirectMismatch { component, from, stream } => {
                self.link(component, from, Some(stream), |link| link.grouping_place)
            }
            Problem::DuplicateSubscription { component, from, stream } => {
                self.second(component, from, stream)
            }
            Problem::NoFields { component, from } | Problem::EmptyCustom { component, from } => {
                self.link(component, from, None, |link| link.grouping_place)
            }
            Problem::NoGrouping { component, .. }
            | Problem::NoCode { component }
            | Problem::OtherKind { component }
            | Problem::DuplicateComponent { id: component }
            | Problem::DuplicateStream { component, .. }
            | Problem::DuplicateField { component, .. }
            | Problem::ZeroParallelism { component, .. }
            | Problem::IdleExecutors { component, .. }
            | Problem::NoInput { component } => self.component(component),
            Problem::CycleWithBarriers(path) => self.cycle(path),
            Problem::NoSpout | Problem::EmptyId | Problem::ZeroSetting { .. } | Problem::TooMany { .. } => {
                self.topology
            }
        }
    }

    /// The place of `warning`.
    pub(crate) fn of_warning(&self, warning: &Warning) -> Place {
        let Warning::Cycle(path) = warning;
        self.cycle(path)
    }

    fn component(&self, id: &str) -> Place {
        self.components.get(id).copied().unwrap_or(self.topology)
    }

    fn link(&self, to: &str, from: &str, stream: Option<&str>, place: impl Fn(&Link) -> Place) -> Place {
        let mut links = self.links.iter().filter(|link| {
            let subscription = &link.subscription;
            link.to == to && subscription.from == from && stream.is_none_or(|id| subscription.stream == id)
        });
        links.next().map_or_else(|| self.component(to), place)
    }

    /// The second of equal subscriptions.
    fn second(&self, to: &str, from: &str, stream: &str) -> Place {
        let equal = |link: &&Link| {
            link.to == to && link.subscription.from == from && link.subscription.stream == stream
        };
        self.links.iter().filter(equal).nth(1).map_or(self.topology, |link| link.to_place)
    }

    /// The stream that closes the cycle.
    fn cycle(&self, path: &[String]) -> Place {
        match path {
            [.., from, to] => self.link(to, from, None, |link| link.from_place),
            _ => self.topology,
        }
    }
}
