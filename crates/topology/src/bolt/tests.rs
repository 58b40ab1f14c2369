//! Situations of a bolt's task among others.

use std::time::Duration;

use super::*;
use crate::anchor::Blame;
use crate::bench::Bench;
use crate::definition::fixture::topology;
use crate::definition::{Component, Grouping, Stream, Subscription};
use crate::tracker::{Position, Settled};

fn spout(id: &str) -> Component {
    Component::spout(id, vec![Stream::default_with(&["v"])])
}

fn relay(id: &str, from: &[&str]) -> Component {
    let inputs = from.iter().map(|from| Subscription::to(from, Grouping::Shuffle)).collect();
    Component::bolt(id, inputs, vec![Stream::default_with(&["v"])])
}

/// Tasks 0 -> 1 -> 2 -> 3.
fn chain() -> Bench {
    Bench::new(topology(vec![spout("s"), relay("a", &["s"]), relay("b", &["a"]), relay("c", &["b"])]))
}

/// Task 0 to 1 and 2, both to 3.
fn diamond() -> Bench {
    Bench::new(topology(vec![spout("s"), relay("a", &["s"]), relay("b", &["s"]), relay("c", &["a", "b"])]))
}

fn acked(positions: std::ops::RangeInclusive<u128>) -> Vec<Settled> {
    positions.map(|position| Settled::Acked(Position(position))).collect()
}

#[test]
fn chain_of_bolts_costs_one_report_for_each_batch() {
    let mut bench = chain();
    bench.emit(0, &[&["x"], &["y"], &["z"]]);
    bench.deliver();
    assert_eq!((bench.relay(1), bench.relay(2), bench.reports.len()), (3, 3, 0));
    assert_eq!((bench.sink(3), bench.reports.len()), (3, 1));
    assert_eq!(bench.settled(0), acked(1..=3));
}

#[test]
fn batch_that_splits_is_done_when_all_its_parts_are() {
    let mut bench = diamond();
    bench.emit(0, &[&["x"]]);
    bench.deliver();
    bench.relay(1);
    bench.sink(3);
    assert_eq!(bench.settled(0), []);
    bench.relay(2);
    assert_eq!(bench.settled(0), []);
    bench.sink(3);
    assert_eq!(bench.settled(0), acked(1..=1));
}

#[test]
fn failure_is_in_the_report_with_the_token_even_if_the_rest_goes_on() {
    let mut bench = chain();
    bench.emit(0, &[&["good"], &["bad"]]);
    bench.deliver();
    let stream = StreamId(1);
    bench.run(1, |bolt, id, values| {
        if values.field(0) == Some(b"bad") {
            bolt.fail(id, "bad", Nack { blame: Blame::Fatal, delay: None }).unwrap();
        } else {
            bolt.emit(stream, values.clone(), &[id], None).unwrap();
            bolt.ack(id).unwrap();
        }
    });
    assert_eq!(bench.reports.len(), 1, "tokens do not go on past a failure");
    assert!(bench.reports[0].xor != 0 && bench.reports[0].failed[0].origin == 1);
    bench.relay(2);
    bench.sink(3);
    let settled = bench.settled(0);
    assert!(matches!(&settled[..], [Settled::Acked(Position(1)), Settled::Dead(letter)]
        if letter.original.position == Position(2) && letter.component == Some(ComponentId(1))));
}

#[test]
fn tuple_of_two_roots_holds_both_until_it_is_done() {
    let join = Component::bolt(
        "j",
        ["s", "t"].map(|from| Subscription::to(from, Grouping::Global)).to_vec(),
        vec![Stream::default_with(&["v"])],
    );
    let mut bench = Bench::new(topology(vec![spout("s"), spout("t"), join, relay("c", &["j"])]));
    bench.emit(0, &[&["x"], &["x2"]]);
    bench.emit(1, &[&["y0"], &["y"]]);
    bench.deliver();
    let mut held: Vec<TupleId> = Vec::new();
    bench.run(2, |_, id, _| held.push(id));
    // the second tuple of one channel, and the first one of the other
    let pair = [held[1], held[2]];
    bench.run(2, |_, _, _| ());
    let bolt = bench.bolts.get_mut(&TaskId(2)).unwrap();
    bolt.emit(StreamId(2), Values::new(&["xy"]), &pair, None).unwrap();
    held.into_iter().for_each(|id| bolt.ack(id).unwrap());
    bench.flush(2);
    bench.deliver();
    assert_eq!((bench.settled(0), bench.settled(1)), (vec![], vec![]));
    bench.run(3, |bolt, id, _| bolt.fail(id, "no", Nack { blame: Blame::Fatal, delay: None }).unwrap());
    let dead = |settled: Vec<Settled>| {
        let dead = settled.into_iter().filter_map(|settled| match settled {
            Settled::Dead(letter) => Some(letter.original.position.0),
            Settled::Acked(_) => None,
        });
        dead.collect::<Vec<_>>()
    };
    assert_eq!((dead(bench.settled(0)), dead(bench.settled(1))), (vec![2], vec![3]));
}

#[test]
fn tuple_of_two_anchors_of_which_one_has_a_root_fails_at_its_place_in_that_root() {
    let mut bench = chain();
    bench.emit(0, &[&["x"], &["y"]]);
    bench.deliver();
    let mut held = Vec::new();
    bench.run(1, |_, id, _| held.push(id));
    let bolt = bench.bolts.get_mut(&TaskId(1)).unwrap();
    // a parcel that nobody waits for
    let item = Item { origin: 9, stream: StreamId(0), values: Values::new(&["z"]) };
    bolt.begin(TaskId(0), Parcel { anchors: vec![], items: vec![item] });
    bench.run(1, |_, id, _| held.push(id));
    let bolt = bench.bolts.get_mut(&TaskId(1)).unwrap();
    bolt.emit(StreamId(1), Values::new(&["yz"]), &[held[1], held[2]], None).unwrap();
    held.into_iter().for_each(|id| bolt.ack(id).unwrap());
    bench.flush(1);
    bench.deliver();
    bench.run(2, |bolt, id, _| bolt.fail(id, "no", Nack::FAIL).unwrap());
    assert_eq!(bench.reports.last().unwrap().failed[0].origin, 1);
}

#[test]
fn tuple_that_is_kept_holds_its_batch_and_a_report_of_work_extends_it() {
    let mut bench = chain();
    bench.emit(0, &[&["x"], &["y"]]);
    bench.deliver();
    let mut held = Vec::new();
    bench.run(1, |bolt, id, values| match values.field(0) {
        Some(b"x") => held.push(id),
        _ => bolt.ack(id).unwrap(),
    });
    assert_eq!((bench.reports.len(), bench.bolts[&TaskId(1)].unfinished()), (0, 1));
    bench.bolts.get_mut(&TaskId(1)).unwrap().extend(held[0]).unwrap();
    bench.run(1, |_, _, _| ());
    assert!(bench.reports[0].extends && bench.reports[0].xor == 0);
    bench.bolts.get_mut(&TaskId(1)).unwrap().ack(held[0]).unwrap();
    bench.run(1, |_, _, _| ());
    assert_eq!(bench.settled(0), acked(1..=2));
}

#[test]
fn slow_bolt_stops_its_own_source_and_no_other() {
    let mut definition = topology(vec![spout("s"), spout("t"), relay("slow", &["s"]), relay("fast", &["t"])]);
    definition.settings.channel_bytes_max = 300;
    definition.settings.batch_tuples_max = 1;
    let mut bench = Bench::new(definition);
    let mut emitted = 0;
    for _ in 0..100 {
        for task in [0, 1] {
            if bench.spouts[&TaskId(task)].room() > 0 {
                bench.emit(task, &[&["some value"]]);
                emitted += 1 - task;
            }
        }
        bench.deliver();
        bench.sink(3);
    }
    assert!(
        emitted < 10 && bench.bolts[&TaskId(2)].queued_bytes().all(|(_, bytes)| bytes <= 300),
        "{emitted} tuples of the first"
    );
    assert_eq!(bench.settled(1).len(), 100, "the other one does not wait");
    bench.sink(2);
    bench.flush(0);
    assert!(bench.spouts[&TaskId(0)].room() > 0, "credit came back");
}

#[test]
fn bolt_without_credit_downstream_takes_no_input() {
    let mut definition = topology(vec![spout("s"), relay("a", &["s"]), relay("b", &["a"])]);
    definition.settings.channel_bytes_max = 150;
    let mut bench = Bench::new(definition);
    for _ in 0..2 {
        bench.emit(0, &[&["x"]]);
        bench.deliver();
        bench.relay(1);
        bench.flush(0);
    }
    bench.deliver();
    assert!(!bench.bolts[&TaskId(1)].emitter.is_clear());
    bench.emit(0, &[&["x"]]);
    bench.deliver();
    assert_eq!(bench.relay(1), 0);
    bench.sink(2);
    bench.flush(1);
    assert_eq!(bench.relay(1), 1);
}

#[test]
fn wait_of_what_is_watched_ends_when_its_tuple_is_given() {
    let mut bench = Bench::new(topology(vec![spout("s"), spout("t"), relay("c", &["s", "t"])]));
    for task in [0, 0, 1] {
        bench.emit(task, &[&["x"]]);
    }
    bench.deliver();
    let bolt = bench.bolts.get_mut(&TaskId(2)).unwrap();
    bolt.watch(Nanos(10), TaskId(0));
    bolt.watch(Nanos(15), TaskId(1));
    let mut taken = Vec::new();
    while let Some(Input::Tuple { from, .. }) = bolt.next_input(Nanos(20 + taken.len() as u64)) {
        taken.push((from.0, bolt.poll_waited().map(|waited| waited.1.as_nanos())));
    }
    let watched = taken.iter().rposition(|(from, _)| *from == 0).unwrap();
    let waits: Vec<_> = taken.iter().map(|(_, waited)| *waited).collect();
    let expected: Vec<_> = (0..3).map(|at| (at == watched).then_some(10 + at as u128)).collect();
    assert_eq!(waits, expected, "the last one of task 0 alone");
    bolt.watch(Nanos(50), TaskId(0));
    assert_eq!(bolt.next_input(Nanos(60)), None);
    assert_eq!(bolt.poll_waited(), None, "nothing was there to be watched");
}

#[test]
fn channels_take_turns() {
    let mut bench = Bench::new(topology(vec![spout("s"), spout("t"), relay("c", &["s", "t"])]));
    for task in [0, 0, 0, 1, 1, 1] {
        bench.emit(task, &[&["x"]]);
    }
    bench.deliver();
    let bolt = bench.bolts.get_mut(&TaskId(2)).unwrap();
    let mut order = Vec::new();
    while let Some(Input::Tuple { from, .. }) = bolt.next_input(Nanos(0)) {
        order.push(from.0);
    }
    assert!(order == [1, 0, 1, 0, 1, 0] || order == [0, 1, 0, 1, 0, 1], "{order:?}");
}

#[test]
fn ticks_come_between_tuples() {
    let mut definition = topology(vec![spout("s"), relay("a", &["s"])]);
    definition.settings.tick_interval = Some(Duration::from_nanos(10));
    let mut bench = Bench::new(definition);
    bench.emit(0, &[&["x"]]);
    bench.deliver();
    let bolt = bench.bolts.get_mut(&TaskId(1)).unwrap();
    assert_eq!(bolt.next_due(), Some(Nanos(10)));
    assert_eq!(bolt.next_input(Nanos(10)), Some(Input::Tick));
    assert!(matches!(bolt.next_input(Nanos(10)), Some(Input::Tuple { .. })));
}

#[test]
fn misuse_by_a_component_is_refused_and_changes_nothing() {
    let mut bench = chain();
    bench.emit(0, &[&["x"]]);
    bench.deliver();
    bench.run(1, |bolt, id, values| {
        let foreign = bolt.emit(StreamId(0), values.clone(), &[id], None);
        let fields = bolt.emit(StreamId(1), Values::new(&["a", "b"]), &[id], None);
        let large = bolt.emit(StreamId(1), Values::new(&[vec![0; 300 << 10]]), &[id], None);
        assert_eq!(foreign, Err(Misuse::ForeignStream));
        assert_eq!(fields, Err(Misuse::Fields { values: 2, fields: 1 }));
        assert!(matches!(large, Err(Misuse::TooLarge { .. })));
        bolt.ack(id).unwrap();
        let again = [bolt.ack(id), bolt.fail(id, "", Nack::FAIL), bolt.extend(id)];
        assert!(again.iter().all(|result| *result == Err(Misuse::UnknownTuple)));
        assert_eq!(bolt.emit(StreamId(1), values.clone(), &[id], None), Err(Misuse::UnknownTuple));
    });
    assert_eq!((bench.settled(0), bench.sink(2)), (acked(1..=1), 0));
}

#[test]
fn task_that_moves_finishes_what_it_has_and_nothing_is_lost() {
    let mut bench = chain();
    bench.emit(0, &[&["x"]]);
    bench.spouts.get_mut(&TaskId(0)).unwrap().hold(TaskId(1));
    bench.flush(0);
    bench.emit(0, &[&["y"]]);
    bench.deliver();
    assert!(!bench.bolts[&TaskId(1)].is_drained());
    assert_eq!(bench.relay(1), 1, "what was sent after the mark waits at its sender");
    assert!(bench.bolts[&TaskId(1)].is_drained());
    let moved = bench.start(TaskId(1), 2, true);
    bench.bolts.insert(TaskId(1), moved);
    bench.spouts.get_mut(&TaskId(0)).unwrap().resume(TaskId(1));
    bench.flush(0);
    bench.deliver();
    assert_eq!(bench.relay(1), 0, "not before it takes over");
    bench.bolts.get_mut(&TaskId(1)).unwrap().take_over();
    assert_eq!((bench.relay(1), bench.relay(2), bench.sink(3)), (1, 2, 2));
    assert_eq!(bench.settled(0), acked(1..=2));
}

#[test]
fn sender_that_starts_anew_while_a_task_moves_is_still_read() {
    let mut bench = chain();
    bench.spouts.get_mut(&TaskId(0)).unwrap().hold(TaskId(1));
    bench.flush(0);
    bench.deliver();
    assert_eq!(bench.relay(1), 0);
    let again = bench.start_spout(TaskId(0), 2);
    bench.spouts.insert(TaskId(0), again);
    bench.emit(0, &[&["x"]]);
    bench.deliver();
    assert_eq!((bench.relay(1), bench.bolts[&TaskId(1)].is_drained()), (1, false));
    bench.spouts.get_mut(&TaskId(0)).unwrap().hold(TaskId(1));
    bench.flush(0);
    bench.deliver();
    assert_eq!((bench.relay(1), bench.bolts[&TaskId(1)].is_drained()), (0, true));
}

#[test]
fn component_that_is_gone_fails_what_it_was_given_and_not_what_it_never_saw() {
    let mut bench = chain();
    bench.emit(0, &[&["x"], &["y"], &["z"]]);
    bench.deliver();
    let (bolt, now) = (bench.bolts.get_mut(&TaskId(1)).unwrap(), bench.now);
    assert!(bolt.next_input(now).is_some() && bolt.next_input(now).is_some());
    bolt.fail_all("it panicked", Nack::FAIL);
    assert_eq!(bolt.inputs(), [InputCounts { stream: StreamId(0), executed: 2, acked: 0, failed: 2 }]);
    let Some(Input::Tuple { id, .. }) = bolt.next_input(now) else { panic!("one is left") };
    bolt.ack(id).unwrap();
    bench.flush(1);
    bench.deliver();
    let failed: Vec<u32> = bench.reports[0].failed.iter().map(|failure| failure.origin).collect();
    assert_eq!(failed, [0, 1]);
    assert_eq!(bench.settled(0), acked(3..=3));
}

#[test]
fn what_was_done_is_counted_by_the_streams_that_are_read() {
    let mut bench = diamond();
    bench.emit(0, &[&["x"], &["y"]]);
    bench.deliver();
    bench.relay(1);
    bench.run(3, |bolt, id, values| {
        if *values == Values::new(&["x"]) {
            bolt.fail(id, "not x", Nack::FAIL).unwrap();
        } else {
            bolt.ack(id).unwrap();
        }
    });
    bench.relay(2);
    bench.sink(3);
    let of =
        |stream, executed, acked, failed| InputCounts { stream: StreamId(stream), executed, acked, failed };
    assert_eq!(bench.bolts[&TaskId(3)].inputs(), [of(1, 2, 1, 1), of(2, 2, 2, 0)]);
}
