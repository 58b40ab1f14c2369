//! Situations of a spout's task under each guarantee, and of barriers.

use super::*;
use crate::anchor::Nack;
use crate::bench::Bench;
use crate::changes::StateKey;
use crate::definition::fixture::topology;
use crate::definition::{Component, Grouping, Stream, Subscription};

fn bench(guarantee: Guarantee) -> Bench {
    let spout = |id| Component::spout(id, vec![Stream::default_with(&["v"])]);
    let inputs = ["s", "t"].map(|from| Subscription::to(from, Grouping::Global)).to_vec();
    let bolt = Component::bolt("a", inputs, vec![Stream::default_with(&["v"])]);
    let sink = Component::bolt("b", vec![Subscription::to("a", Grouping::Global)], vec![]);
    let mut definition = topology(vec![spout("s"), spout("t"), bolt, sink]);
    definition.settings.guarantee = guarantee;
    definition.settings.max_spout_pending = 4;
    definition.settings.backoff = vec![];
    Bench::new(definition)
}

fn barrier(bench: &mut Bench, epoch: u64) -> Vec<Option<Position>> {
    let mut positions = Vec::new();
    for task in [0, 1] {
        let spout = bench.spouts.get_mut(&TaskId(task)).unwrap();
        positions.push(spout.pass_barrier(Nanos(0), Epoch(epoch)).position);
        bench.flush(task);
    }
    positions
}

#[test]
fn at_most_once_settles_before_anything_leaves_and_wants_no_reports() {
    let mut bench = bench(Guarantee::AtMostOnce);
    let stream = bench.plan.stream(bench.plan.component_of(TaskId(0)), "default").unwrap();
    let emission =
        Emission { position: Position(7), stream, values: Values::new(&["x"]), direct: None, refused: None };
    let spout = bench.spouts.get_mut(&TaskId(0)).unwrap();
    spout.emit(Nanos(0), vec![emission]).unwrap();
    assert_eq!(spout.poll_settled(), Some(Settled::Acked(Position(7))));
    bench.flush(0);
    bench.deliver();
    assert_eq!((bench.relay(2), bench.sink(3), bench.reports.len()), (1, 1, 0));
    assert!(bench.spouts[&TaskId(0)].is_idle());
}

#[test]
fn inactive_spout_emits_nothing_new_and_finishes_what_is_out() {
    let mut bench = bench(Guarantee::AtLeastOnce);
    bench.emit(0, &[&["x"]]);
    bench.deliver();
    bench.run(2, |bolt, id, _| bolt.fail(id, "later", Nack::FAIL).unwrap());
    let spout = bench.spouts.get_mut(&TaskId(0)).unwrap();
    spout.set_active(false);
    assert_eq!((spout.room(), spout.is_idle(), spout.next_due()), (0, false, Some(Nanos(0))));
    spout.on_time(Nanos(0));
    bench.flush(0);
    bench.deliver();
    bench.sink(2);
    assert_eq!(bench.settled(0), [Settled::Acked(Position(1))]);
    assert!(bench.spouts[&TaskId(0)].is_idle());
}

#[test]
fn room_ends_at_max_spout_pending_and_batches_at_their_size() {
    let mut bench = bench(Guarantee::AtLeastOnce);
    assert_eq!(bench.spouts[&TaskId(0)].room(), 4);
    bench.emit(0, &[&["x"], &["y"], &["z"]]);
    assert_eq!(bench.spouts[&TaskId(0)].room(), 1);
    bench.emit(0, &[&["w"]]);
    assert_eq!(bench.spouts[&TaskId(0)].room(), 0);
}

#[test]
fn barrier_waits_for_all_channels_and_nothing_behind_it_is_taken() {
    let mut bench = bench(Guarantee::ExactlyOnce);
    bench.emit(0, &[&["before"]]);
    let first = bench.spouts.get_mut(&TaskId(0)).unwrap().pass_barrier(Nanos(0), Epoch(1));
    assert_eq!(first.position, Some(Position(1)));
    bench.flush(0);
    bench.emit(0, &[&["behind"]]);
    bench.emit(1, &[&["other"]]);
    bench.deliver();
    assert_eq!(bench.relay(2), 2, "the other channel has not come to its barrier");
    let bolt = bench.bolts.get_mut(&TaskId(2)).unwrap();
    bolt.set(StateKey::of_key("k"), Some("1".into()));
    assert_eq!(bolt.poll_barrier(), None);
    bench.spouts.get_mut(&TaskId(1)).unwrap().pass_barrier(Nanos(0), Epoch(1));
    bench.flush(1);
    bench.deliver();
    assert_eq!(bench.relay(2), 0);
    let bolt = bench.bolts.get_mut(&TaskId(2)).unwrap();
    let capture = bolt.poll_barrier().expect("it has come on both");
    assert_eq!((capture.epoch, capture.changes.values.len()), (Epoch(1), 1));
    bench.flush(2);
    assert_eq!((bench.relay(2), bench.sink(3)), (1, 2), "and the sink has not read past its barrier");
    assert!(bench.bolts.get_mut(&TaskId(3)).unwrap().poll_barrier().is_some());
    assert_eq!(bench.sink(3), 1);
}

#[test]
fn barrier_waits_for_tuples_that_the_component_keeps() {
    let mut bench = bench(Guarantee::ExactlyOnce);
    bench.emit(0, &[&["x"]]);
    barrier(&mut bench, 1);
    bench.deliver();
    let mut kept = Vec::new();
    bench.run(2, |_, id, _| kept.push(id));
    let bolt = bench.bolts.get_mut(&TaskId(2)).unwrap();
    assert_eq!((bolt.next_input(Nanos(0)), bolt.poll_barrier()), (None, None));
    bolt.ack(kept[0]).unwrap();
    bench.flush(2);
    assert!(bench.bolts.get_mut(&TaskId(2)).unwrap().poll_barrier().is_some());
}

#[test]
fn barrier_does_not_pass_a_task_where_a_tuple_has_failed() {
    let mut bench = bench(Guarantee::ExactlyOnce);
    bench.emit(0, &[&["x"]]);
    barrier(&mut bench, 1);
    bench.deliver();
    bench.run(2, |bolt, id, _| bolt.fail(id, "bad", Nack::FAIL).unwrap());
    assert_eq!(bench.bolts.get_mut(&TaskId(2)).unwrap().poll_barrier(), None);
}

#[test]
fn what_is_not_durable_counts_as_pending_and_acks_are_not_reported() {
    let mut bench = bench(Guarantee::ExactlyOnce);
    bench.emit(0, &[&["x"], &["y"], &["z"]]);
    assert!(bench.spouts[&TaskId(0)].is_dirty());
    assert_eq!(barrier(&mut bench, 1), [Some(Position(3)), None]);
    bench.emit(0, &[&["w"]]);
    bench.deliver();
    bench.sink(2);
    assert_eq!((bench.reports.len(), bench.spouts[&TaskId(0)].room()), (0, 0));
    let spout = bench.spouts.get_mut(&TaskId(0)).unwrap();
    spout.on_durable(Nanos(0), Epoch(1));
    assert_eq!((spout.room(), spout.pending()), (3, 1));
    spout.check();
}

#[test]
fn failure_names_its_tuple_and_poison_is_skipped_and_captured() {
    let mut bench = bench(Guarantee::ExactlyOnce);
    bench.emit(0, &[&["x"], &["bad"]]);
    bench.deliver();
    bench.run(2, |bolt, id, values| match values.field(0) {
        Some(b"bad") => bolt.fail(id, "bad", Nack::FAIL).unwrap(),
        _ => bolt.ack(id).unwrap(),
    });
    let spout = bench.spouts.get_mut(&TaskId(0)).unwrap();
    let (original, failure) = spout.poll_failed().expect("the failure");
    assert_eq!((original.position, failure.error.as_str()), (Position(2), "bad"));
    let letter = DeadLetter { original, component: Some(failure.component), error: failure.error };
    let poison = Poison::from([(Position(2), letter.clone())]);
    let mut unsealed = Unsealed::new(Limits::new(bench.plan.settings()), poison);
    let original = |position| Original { position: Position(position), ..letter.original.clone() };
    let (_, kept) = unsealed.open(Nanos(0), vec![original(1), original(2)]);
    assert_eq!((kept, unsealed.room()), (vec![original(1)], 0), "nothing before the barrier that passes it");
    assert_eq!(unsealed.seal(Nanos(0), Epoch(1)), (Some(Position(2)), vec![letter]));
    assert_ne!(unsealed.room(), 0);
}
