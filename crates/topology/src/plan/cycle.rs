//! Finds a way from a component back to itself.

use std::collections::HashMap;

use crate::definition::Topology;

/// One cycle of subscriptions, from a component to itself; `None` if there is none. Subscriptions to what does not exist lead nowhere.
pub(super) fn find(topology: &Topology, by_id: &HashMap<&str, usize>) -> Option<Vec<String>> {
    let count = topology.components.len();
    let mut search =
        Search { next: readers(topology, by_id), state: vec![State::New; count], path: Vec::new() };
    let cycle = (0..count).find_map(|start| search.visit(start))?;
    Some(cycle.into_iter().map(|at| topology.components[at].id.clone()).collect())
}

/// Who reads what each component emits.
fn readers(topology: &Topology, by_id: &HashMap<&str, usize>) -> Vec<Vec<usize>> {
    let mut next = vec![Vec::new(); topology.components.len()];
    for (at, component) in topology.components.iter().enumerate() {
        for input in &component.inputs {
            if let Some(from) = by_id.get(input.from.as_str()) {
                next[*from].push(at);
            }
        }
    }
    next
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    New,
    OnPath,
    Done,
}

/// Depth first; `path` is the way from the start to where the search is.
struct Search {
    next: Vec<Vec<usize>>,
    state: Vec<State>,
    path: Vec<usize>,
}

impl Search {
    /// As deep as the longest path of the definition, which has at most [`super::COMPONENTS_MAX`] components.
    fn visit(&mut self, at: usize) -> Option<Vec<usize>> {
        match self.state[at] {
            State::Done => return None,
            State::OnPath => {
                let start = self.path.iter().position(|&on_path| on_path == at).expect("it is on the path");
                return Some(self.path[start..].iter().copied().chain([at]).collect());
            }
            State::New => {}
        }
        self.state[at] = State::OnPath;
        self.path.push(at);
        let found = (0..self.next[at].len()).find_map(|edge| self.visit(self.next[at][edge]));
        self.path.pop();
        self.state[at] = State::Done;
        found
    }
}
