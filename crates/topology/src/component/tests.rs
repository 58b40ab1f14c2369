//! Components over real tasks: what they emit, and what is refused.

use std::collections::VecDeque;
use std::time::Duration;

use super::*;
use crate::anchor::{Blame, Nack};
use crate::bench::Bench;
use crate::bolt::Input;
use crate::definition::fixture::word_count;
use crate::message::Misuse;
use crate::tracker::Settled;
use crate::value::Value;
use crate::values;
use crate::values::Values;

/// Word count with what the spout emits through its handle: one tuple with the text `sentence`.
fn emitted(sentence: &str) -> Bench {
    let mut bench = Bench::new(word_count(1, 1));
    let mut emissions = VecDeque::new();
    let spout = &bench.spouts[&TaskId(0)];
    let mut out = SpoutOut::new(&bench.plan, ComponentId(0), spout, &mut emissions);
    let room = out.room();
    out.emit(Position(1), &values![sentence]).unwrap();
    assert_eq!(out.room(), room - 1);
    let now = bench.now;
    bench.spouts.get_mut(&TaskId(0)).unwrap().emit(now, emissions.into()).unwrap();
    bench.flush(0);
    bench.deliver();
    bench
}

/// Executes `bolt` on the next tuple of `task`.
fn execute<R>(bench: &mut Bench, task: u32, bolt: impl FnOnce(&Tuple<'_>, &mut BoltOut<'_>) -> R) -> R {
    let Bench { plan, bolts, now, .. } = bench;
    let component = plan.component_of(TaskId(task));
    let task = bolts.get_mut(&TaskId(task)).unwrap();
    let Some(Input::Tuple { id, from, stream, values }) = task.next_input(*now) else { panic!("no tuple") };
    let tuple = Tuple::new(plan, id, from, stream, &values);
    bolt(&tuple, &mut BoltOut::new(plan, component, task, Some(id)))
}

#[test]
fn what_a_bolt_emits_is_anchored_to_its_input() {
    let mut bench = emitted("one");
    execute(&mut bench, 1, |tuple, out| {
        assert_eq!(
            (tuple.str("sentence"), tuple.component(), tuple.task()),
            (Ok("one"), "sentences", TaskId(0))
        );
        out.emit(&values!["one"]).unwrap();
        out.ack(tuple.id()).unwrap();
        assert_eq!(out.ack(tuple.id()), Err(Misuse::UnknownTuple));
    });
    bench.flush(1);
    bench.deliver();
    assert_eq!(bench.spouts[&TaskId(0)].pending(), 1);
    execute(&mut bench, 2, |tuple, out| out.ack(tuple.id())).unwrap();
    bench.flush(2);
    bench.deliver();
    let settled = bench.spouts.get_mut(&TaskId(0)).unwrap().poll_settled();
    assert_eq!(settled, Some(Settled::Acked(Position(1))));
}

#[test]
fn fields_are_read_by_place_and_name_and_misfits_say_what_is_there() {
    let mut bench = emitted("one");
    execute(&mut bench, 1, |tuple, _| {
        assert_eq!((tuple.str(0), tuple.bytes(0)), (Ok("one"), Ok(&b"one"[..])));
        assert_eq!(tuple.get("sentence"), Ok(Value::from("one")));
        let error = tuple.int("sentence").unwrap_err().to_string();
        assert_eq!(error, "field `sentence` of `sentences` is text, not an integer");
        let error = tuple.str("word").unwrap_err().to_string();
        assert_eq!(error, "stream `default` of `sentences` declares no field `word`: it has sentence");
        assert!(tuple.float(0).is_err() && tuple.bool(0).is_err() && tuple.get(1).is_err());
    });
}

#[test]
fn emission_that_the_definition_does_not_allow_is_refused_with_its_names() {
    let mut bench = emitted("one");
    let errors = execute(&mut bench, 1, |_, out| {
        let deep = (0..17).fold(Value::Null, |inner, _| Value::List(vec![inner]));
        [out.emit_to("wrods", &values!["one"]), out.emit(&values!["one", 2]), out.emit(&[deep])]
            .map(|refused| refused.unwrap_err().to_string())
    });
    let expected = [
        "`split` emits on stream `wrods`, which it does not declare",
        "a tuple of 2 values for a stream that declares 1 fields",
        "lists more than 16 deep",
    ];
    assert_eq!(errors, expected);
}

#[test]
fn tuple_can_be_anchored_to_nothing() {
    let mut bench = emitted("one");
    execute(&mut bench, 1, |tuple, out| {
        let values = Values::encode(&values!["tick"]).unwrap();
        out.send(Outgoing { stream: "default", values, anchors: &[], direct: None }).unwrap();
        out.ack(tuple.id()).unwrap();
    });
    bench.flush(1);
    bench.deliver();
    assert_eq!(bench.spouts[&TaskId(0)].pending(), 0, "nobody waits for it");
}

#[test]
fn fault_says_whose_fault_it_is_and_when_to_try_again() {
    let nack = |fault: Fault| fault.nack();
    assert_eq!(nack(Fault::new("x")), Nack::FAIL);
    assert_eq!(nack(Fault::fatal("x")).blame, Blame::Fatal);
    let later = Fault::silent("x").after(Duration::from_secs(1));
    assert_eq!(later.nack(), Nack { blame: Blame::Silent, delay: Some(Duration::from_secs(1)) });
    let misuse = Fault::from(Misuse::UnknownTuple);
    assert_eq!(misuse.error(), Misuse::UnknownTuple.to_string());
}

#[test]
fn context_tells_where_a_component_is() {
    let bench = Bench::new(word_count(2, 3));
    let waker = Waker::new(|| {});
    let context = Context::new(&bench.plan, TaskId(4), &waker);
    assert_eq!((context.id(), context.place(), context.tasks()), ("count", 1, 3));
    context.waker().wake();
}
