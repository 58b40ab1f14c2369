//! What the workers of a topology have done, added up.

use crate::figures::Shares;
use crate::talk::{ComponentStatus, EdgeStatus, FigureStatus, Status};

/// Adds what another worker has done. A share is the average over tasks, a lag the longest.
pub(crate) fn add(all: &mut Status, one: &Status) {
    all.is_idle &= one.is_idle;
    all.blocked = all.blocked.take().or_else(|| one.blocked.clone());
    for (at, component) in one.components.iter().enumerate() {
        let is_it = |it: &ComponentStatus| it.id == component.id;
        match place(&all.components, at, is_it) {
            Some(place) => add_component(&mut all.components[place], component),
            None => all.components.push(component.clone()),
        }
    }
}

/// What counts on of a worker that has ended: what it has done, and nothing that it had.
pub(crate) fn keep_done(mut status: Status) -> Status {
    status.blocked = None;
    for component in &mut status.components {
        (component.tasks, component.pending, component.queued_bytes) = (0, 0, 0);
        (component.shares, component.lag_ms) = (Shares::default(), None);
        component.edges.iter_mut().for_each(|edge| edge.queued_bytes = 0);
    }
    status
}

fn add_component(all: &mut ComponentStatus, one: &ComponentStatus) {
    all.shares = all.shares.averaged(all.tasks, one.shares, one.tasks);
    all.lag_ms = all.lag_ms.max(one.lag_ms);
    all.time.add(&one.time);
    all.latencies.add(&one.latencies);
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
    if one.last_error.is_some() && (all.last_error.is_none() || one.last_error_age_ms < all.last_error_age_ms)
    {
        all.last_error.clone_from(&one.last_error);
        all.last_error_age_ms = one.last_error_age_ms;
    }
    add_figures(&mut all.figures, &one.figures);
    add_streams(&mut all.streams, &one.streams);
    for (at, edge) in one.edges.iter().enumerate() {
        let is_it = |it: &EdgeStatus| it.stream == edge.stream && it.to == edge.to;
        match place(&all.edges, at, is_it) {
            Some(place) => add_edge(&mut all.edges[place], edge),
            None => all.edges.push(edge.clone()),
        }
    }
}

/// Adds what tasks in another worker have reported.
fn add_figures(all: &mut Vec<FigureStatus>, one: &[FigureStatus]) {
    for (at, figure) in one.iter().enumerate() {
        match place(all, at, |it| it.name == figure.name) {
            Some(place) => {
                let all = &mut all[place];
                (all.count, all.sum, all.last) =
                    (all.count + figure.count, all.sum + figure.sum, figure.last);
            }
            None => all.push(figure.clone()),
        }
    }
}

/// Adds what tasks in another worker have emitted.
fn add_streams(all: &mut Vec<(String, u64)>, one: &[(String, u64)]) {
    for (at, (id, emitted)) in one.iter().enumerate() {
        match place(all, at, |(it, _)| it == id) {
            Some(place) => all[place].1 += emitted,
            None => all.push((id.clone(), *emitted)),
        }
    }
}

/// Adds what tasks in another worker have sent over an edge, and what those have done that read it.
fn add_edge(all: &mut EdgeStatus, one: &EdgeStatus) {
    all.transferred += one.transferred;
    all.queued_bytes += one.queued_bytes;
    all.executed += one.executed;
    all.acked += one.acked;
    all.failed += one.failed;
    all.latencies.add(&one.latencies);
}

/// Where something is: workers of one definition have the same order, so mostly it is at `at`.
fn place<T>(all: &[T], at: usize, is_it: impl Fn(&T) -> bool) -> Option<usize> {
    if all.get(at).is_some_and(&is_it) { Some(at) } else { all.iter().position(is_it) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::{Latencies, Times};

    fn status(executed: u64, execute_us: u64) -> Status {
        let (stream, to) = ("default".to_owned(), "next".to_owned());
        let sum_ns = executed * execute_us * 1_000;
        let execute = Times { count: executed, sum_ns, buckets: vec![executed] };
        let edge = EdgeStatus {
            stream,
            to,
            transferred: executed,
            queued_bytes: 7,
            executed: 2 * executed,
            acked: executed + 1,
            failed: executed - 1,
            latencies: Latencies { queue: execute.clone(), ..Latencies::default() },
        };
        let shares = Shares { busy_permille: 10 * execute_us, ..Shares::default() };
        let component = ComponentStatus {
            id: "it".to_owned(),
            tasks: 2,
            executed,
            shares,
            latencies: Latencies { execute, ..Latencies::default() },
            lag_ms: Some(execute_us),
            pending: 5,
            edges: vec![edge],
            streams: vec![("default".to_owned(), executed)],
            ..ComponentStatus::default()
        };
        Status { is_idle: true, components: vec![component], ..Status::default() }
    }

    #[test]
    fn counters_are_added_and_latencies_are_averages() {
        let mut all = Status::default();
        add(&mut all, &status(30, 10));
        add(&mut all, &status(10, 50));
        let it = &all.components[0];
        assert_eq!((it.tasks, it.executed, it.latencies.execute.mean_us()), (4, 40, 20));
        let edge = &it.edges[0];
        assert_eq!((edge.transferred, edge.queued_bytes, edge.latencies.queue.mean_us()), (40, 14, 20));
        assert_eq!((edge.executed, edge.acked, edge.failed), (80, 42, 38));
        assert_eq!((it.shares.busy_permille, it.lag_ms), (300, Some(50)));
        assert_eq!(it.streams, [("default".to_owned(), 40)]);
    }

    #[test]
    fn worker_that_has_ended_has_done_what_it_did_and_has_nothing() {
        let mut all = keep_done(status(30, 90));
        add(&mut all, &status(10, 10));
        let it = &all.components[0];
        let edge = &it.edges[0];
        assert_eq!((it.tasks, it.executed, it.pending, edge.queued_bytes, edge.failed), (2, 40, 5, 7, 38));
        assert_eq!((it.shares.busy_permille, it.lag_ms), (100, Some(10)));
    }
}
