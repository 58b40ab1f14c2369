//! What the workers of a topology have done, added up.

use crate::talk::{ComponentStatus, EdgeStatus, Status};

/// Adds what another worker has done. Latencies are averages by what was measured.
pub(crate) fn add(all: &mut Status, one: &Status) {
    all.is_idle &= one.is_idle;
    for (at, component) in one.components.iter().enumerate() {
        let is_it = |it: &ComponentStatus| it.id == component.id;
        // Workers of one definition have the same order.
        let place = if all.components.get(at).is_some_and(is_it) {
            Some(at)
        } else {
            all.components.iter().position(is_it)
        };
        match place {
            Some(place) => add_component(&mut all.components[place], component),
            None => all.components.push(component.clone()),
        }
    }
}

/// What counts on of a worker that has ended: what it has done, and nothing that it had.
pub(crate) fn keep_done(mut status: Status) -> Status {
    for component in &mut status.components {
        (component.tasks, component.pending, component.queued_bytes) = (0, 0, 0);
    }
    status
}

fn add_component(all: &mut ComponentStatus, one: &ComponentStatus) {
    all.execute_us = mean((all.execute_us, all.executed), (one.execute_us, one.executed));
    all.complete_us = mean((all.complete_us, all.acked), (one.complete_us, one.acked));
    let pairs = [
        (&mut all.tasks, one.tasks),
        (&mut all.emitted, one.emitted),
        (&mut all.transferred, one.transferred),
        (&mut all.executed, one.executed),
        (&mut all.acked, one.acked),
        (&mut all.failed, one.failed),
        (&mut all.pending, one.pending),
        (&mut all.queued_bytes, one.queued_bytes),
        (&mut all.faults, one.faults),
        (&mut all.restarts, one.restarts),
    ];
    pairs.into_iter().for_each(|(all, one)| *all += one);
    if one.last_error.is_some() {
        all.last_error.clone_from(&one.last_error);
    }
    for edge in &one.edges {
        let is_it = |it: &&mut EdgeStatus| it.stream == edge.stream && it.to == edge.to;
        match all.edges.iter_mut().find(is_it) {
            Some(it) => it.transferred += edge.transferred,
            None => all.edges.push(edge.clone()),
        }
    }
}

/// The average of two averages, each with how many it is of.
fn mean((one, ones): (u64, u64), (other, others): (u64, u64)) -> u64 {
    let sum = u128::from(one) * u128::from(ones) + u128::from(other) * u128::from(others);
    sum.checked_div(u128::from(ones) + u128::from(others)).unwrap_or(0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(executed: u64, execute_us: u64) -> Status {
        let edge = EdgeStatus { stream: "default".to_owned(), to: "next".to_owned(), transferred: executed };
        let component = ComponentStatus {
            id: "it".to_owned(),
            tasks: 2,
            executed,
            execute_us,
            pending: 5,
            edges: vec![edge],
            ..ComponentStatus::default()
        };
        Status { is_idle: true, components: vec![component] }
    }

    #[test]
    fn counters_are_added_and_latencies_are_averages() {
        let mut all = Status::default();
        add(&mut all, &status(30, 10));
        add(&mut all, &status(10, 50));
        let it = &all.components[0];
        assert_eq!((it.tasks, it.executed, it.execute_us, it.edges[0].transferred), (4, 40, 20, 40));
    }

    #[test]
    fn worker_that_has_ended_has_done_what_it_did_and_has_nothing() {
        let mut all = keep_done(status(30, 10));
        add(&mut all, &status(10, 10));
        let it = &all.components[0];
        assert_eq!((it.tasks, it.executed, it.pending), (2, 40, 5));
    }
}
