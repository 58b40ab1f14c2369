//! The load engine against a server that misbehaves as it is told: what went wrong is counted, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;

use std::time::Duration;

use bench::drive::{
    Action, Fleet, FleetOptions, Group, KeyForm, Keys, Limit, Outcome, Phase, Pick, Target, Work,
};
use clock::{Clock, SystemClock};
use fake::Manners;

const COUNT: u64 = 1_000;

fn target(manners: Manners) -> Target {
    format!("redis://{}", fake::start(manners)).parse().unwrap()
}

fn fleet(target: &Target, connections: usize) -> Fleet {
    let connect_timeout = Duration::from_secs(10);
    Fleet::open(target, &FleetOptions { connections, loops: 2, connect_timeout, from: Vec::new() }).unwrap()
}

fn group(action: Action, connections: usize) -> Group {
    let keys = Keys { first: 0, count: COUNT, pick: Pick::Sequence, form: KeyForm::Decimal };
    let work = Work { action, keys, value_bytes: 100, value_count: 1, verify: true, percent_cached: 0 };
    Group { work, connections, depth: 1, limit: Limit::Requests(COUNT), per_second: None }
}

fn run(fleet: &mut Fleet, groups: Vec<Group>) -> Outcome {
    run_within(Duration::from_secs(20), fleet, groups)
}

/// As `run`, with so much time for an answer.
fn run_within(request_timeout: Duration, fleet: &mut Fleet, groups: Vec<Group>) -> Outcome {
    let phase = Phase { groups, request_timeout, interval: Duration::from_millis(20) };
    fleet.run(&phase, &mut |_| {}).unwrap()
}

#[test]
fn what_was_written_is_deleted_and_each_request_is_in_one_row() {
    for depth in [1, 16] {
        let mut fleet = fleet(&target(Manners::default()), 7);
        let deep = |action| Group { depth, ..group(action, 7) };
        let written = run(&mut fleet, vec![deep(Action::Write)]).total();
        assert_eq!((written.tally.written, written.tally.answered), (COUNT, COUNT));
        assert_eq!(written.rows.iter().map(|row| row.answered).sum::<u64>(), COUNT);
        assert_eq!(written.histogram().len(), COUNT);
        let deleted = run(&mut fleet, vec![deep(Action::Delete)]).total();
        assert_eq!(deleted.tally.deleted, COUNT);
        assert_eq!(deleted.tally.failures.count(), 0);
    }
}

#[test]
fn keys_that_the_server_denies_are_not_among_the_deleted() {
    let mut fleet = fleet(&target(Manners { denies: Some(b'7'), ..Manners::default() }), 3);
    run(&mut fleet, vec![group(Action::Write, 3)]);
    assert_eq!(run(&mut fleet, vec![group(Action::Delete, 3)]).total().tally.deleted, COUNT - COUNT / 10);
}

#[test]
fn value_that_is_not_what_was_written_is_wrong() {
    let mut fleet = fleet(&target(Manners { corrupts: true, ..Manners::default() }), 3);
    assert_eq!(run(&mut fleet, vec![group(Action::Read, 3)]).total().tally.wrong, COUNT);
}

#[test]
fn closed_connections_are_counted_with_what_was_under_way_and_others_finish() {
    let mut fleet = fleet(&target(Manners { closes: Some(300), ..Manners::default() }), 2);
    let tally = run(&mut fleet, vec![group(Action::Write, 2)]).total().tally;
    assert_eq!((tally.failures.disconnected, tally.failures.unanswered), (2, 2));
    assert_eq!(tally.answered, 600);
    assert!(tally.failures.first.unwrap().contains("closed"), "says why");
    let after = run(&mut fleet, vec![group(Action::Write, 2)]).total().tally;
    assert_eq!((after.answered, after.absent), (0, 2), "they are missed later");
    assert_eq!(after.failures.count(), 0, "and failed once");
}

#[test]
fn request_without_an_answer_times_out_and_is_not_timed() {
    let mut fleet = fleet(&target(Manners { hangs: Some(10), ..Manners::default() }), 1);
    // Long enough for the ten that are answered, also on a machine that has other things to do.
    let total = run_within(Duration::from_secs(2), &mut fleet, vec![group(Action::Write, 1)]).total();
    assert_eq!((total.tally.failures.request_timeouts, total.tally.answered), (1, 10));
    assert_eq!(total.histogram().len(), 10);
}

#[test]
fn error_replies_are_counted_and_quoted() {
    let mut fleet = fleet(&target(Manners { errs: Some(5), ..Manners::default() }), 4);
    let tally = run(&mut fleet, vec![group(Action::Write, 4)]).total().tally;
    assert_eq!((tally.failures.error_replies, tally.answered), (4, COUNT - 4));
    assert_eq!(tally.failures.first.as_deref(), Some("ERR not today"));
}

/// The server stands still for 200 ms of half a second. A generator that waits for it, and then measures only what it sends,
/// sees one slow request of a hundred; those that were due meanwhile waited as well.
#[test]
fn stall_is_charged_to_every_request_that_was_due_meanwhile() {
    let stall = Duration::from_millis(200);
    let mut fleet = fleet(&target(Manners { stalls: Some((20, stall)), ..Manners::default() }), 1);
    let paced = Group {
        per_second: Some(200.0),
        limit: Limit::For(Duration::from_millis(500)),
        ..group(Action::Write, 1)
    };
    let total = run(&mut fleet, vec![paced]).total();
    assert_eq!(total.tally.answered, 100);
    let histogram = total.histogram();
    let slow = histogram.len() - histogram.count_between(0, stall.as_nanos() as u64 / 4);
    // Thirty at least: not more than that on a machine that has nothing else to do.
    assert!(slow >= 25, "{slow} of 100 waited for 50 ms or more");
    assert!(histogram.max() >= stall.as_nanos() as u64 * 9 / 10);
}

/// The pacer went on alone to the end of its plan: a slow run of a day against a server that died took the day.
#[test]
fn open_loop_ends_when_all_its_connections_have() {
    let mut fleet = fleet(&target(Manners { closes: Some(3), ..Manners::default() }), 2);
    let limit = Limit::For(Duration::from_secs(30));
    let paced = Group { per_second: Some(200.0), limit, ..group(Action::Write, 2) };
    let began = SystemClock.now();
    let tally = run(&mut fleet, vec![paced]).total().tally;
    assert_eq!((tally.answered, tally.failures.disconnected), (6, 2));
    assert!(SystemClock.now() - began < Duration::from_secs(15));
}

#[test]
fn groups_are_counted_apart() {
    let mut fleet = fleet(&target(Manners::default()), 5);
    let each = Group { limit: Limit::Each(10), ..group(Action::Write, 2) };
    let outcome = run(&mut fleet, vec![each, group(Action::Delete, 3)]);
    let tallies: Vec<_> =
        outcome.groups.iter().map(|group| (group.tally.written, group.tally.answered)).collect();
    assert_eq!(tallies, [(20, 20), (0, COUNT)]);
}

#[test]
fn server_that_is_not_there_is_said_so() {
    let gone = std::net::SocketAddr::from(([127, 0, 0, 1], 1));
    let target: Target = format!("redis://{gone}").parse().unwrap();
    let connect_timeout = Duration::from_secs(5);
    let options = FleetOptions { connections: 3, loops: 1, connect_timeout, from: Vec::new() };
    let error = Fleet::open(&target, &options).unwrap_err();
    assert!(error.contains("cannot connect to redis://127.0.0.1:1"), "{error}");
}
