//! A capture played against a server that misbehaves as it is told: what went wrong is counted, and nothing else.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod fake;

use std::sync::Arc;
use std::time::Duration;

use bench::drive::{Fleet, FleetOptions, GroupOutcome, Playing, Script, Speed, Target};
use capture::{Argument, Command, FAILED, Head, Plan, append_record, begin_turn, chunk, end_turn, header};
use fake::Manners;

/// A turn: when it came, on which connection, the flags of its requests.
type Told<'a> = (Duration, u64, &'a [u8]);

/// A capture of GETs.
fn script(turns: &[Told<'_>]) -> Arc<Script> {
    let plan = Plan { hashes_keys: true, keeps_values: false, started_unix_us: 0 };
    let get = Command { name: "get", reads: true, writes: false, admin: false };
    let (mut out, mut file) = (Vec::new(), header(&plan, std::iter::once(get)));
    for (came, connection, requests) in turns {
        let at = begin_turn(&mut out);
        for flags in *requests {
            let head = Head { flags: *flags, ..Head::default() };
            append_record(&mut out, &head, std::iter::once(Argument::Hashed(3, 7)));
        }
        end_turn(&mut out, at, came.as_nanos() as u64, *connection);
    }
    let count = turns.iter().map(|turn| turn.2.len() as u32).sum();
    chunk(&mut file, &out, 0, count, 0);
    Arc::new(Script::of(file).unwrap())
}

fn played(manners: Manners, turns: &[Told<'_>], speed: Speed) -> GroupOutcome {
    let target: Target = format!("redis://{}", fake::start(manners)).parse().unwrap();
    let script = script(turns);
    let connect_timeout = Duration::from_secs(10);
    let options =
        FleetOptions { connections: script.connections(), loops: 2, connect_timeout, from: Vec::new() };
    let interval = Duration::from_millis(20);
    let playing = Playing { speed, request_timeout: Duration::from_millis(500), interval };
    Fleet::open(&target, &options).unwrap().play(&script, &playing, &mut |_| {}).total()
}

const NOW: Duration = Duration::ZERO;
const AT_ONCE: Speed = Speed::Times(1.0);
/// Turns of two, three and one request.
const SIX: [Told<'_>; 3] = [(NOW, 1, &[0, 0]), (NOW, 1, &[0, 0, 0]), (NOW, 1, &[0])];

#[test]
fn all_of_a_capture_is_played_on_as_many_connections() {
    for speed in [AT_ONCE, Speed::Max] {
        let turns: Vec<Told<'_>> = (0..300).map(|turn| (NOW, turn % 7, &[0, 0, 0][..])).collect();
        let total = played(Manners::default(), &turns, speed);
        assert_eq!((total.tally.answered, total.tally.missing, total.histogram().len()), (900, 900, 900));
        assert_eq!(total.rows.iter().map(|row| row.answered).sum::<u64>(), 900);
        assert_eq!((total.tally.failures.count(), total.tally.errors_as_recorded), (0, 0));
    }
}

#[test]
fn what_is_due_is_sent_unanswered_and_at_full_speed_a_turn_waits_for_the_one_before() {
    for (speed, under_way) in [(AT_ONCE, 4), (Speed::Max, 3)] {
        let hung = played(Manners { hangs: Some(2), ..Manners::default() }, &SIX, speed).tally;
        assert_eq!((hung.answered, hung.failures.request_timeouts), (2, under_way), "{speed:?}");
        assert_eq!((hung.failures.count(), hung.failures.disconnected), (under_way, 0));
        let closed = played(Manners { closes: Some(2), ..Manners::default() }, &SIX, speed).tally;
        assert_eq!((closed.answered, closed.failures.unanswered), (2, under_way), "{speed:?}");
        assert_eq!((closed.failures.count(), closed.failures.disconnected), (under_way + 1, 1));
    }
}

#[test]
fn error_that_was_recorded_is_expected_and_another_one_is_a_failure() {
    let turns: [Told<'_>; 2] = [(NOW, 1, &[0, FAILED, 0]), (NOW, 2, &[0, 0, FAILED])];
    let tally = played(Manners { errs: Some(1), ..Manners::default() }, &turns, AT_ONCE).tally;
    assert_eq!((tally.errors_as_recorded, tally.failures.error_replies, tally.answered), (1, 1, 4));
    assert_eq!(tally.failures.first.as_deref(), Some("ERR not today"));
}

#[test]
fn stall_is_charged_to_every_request_that_was_due_meanwhile() {
    let stall = Duration::from_millis(200);
    let due = |turn| Duration::from_millis(10) * turn;
    let turns: Vec<Told<'_>> = (0..60).map(|turn| (due(turn), 1, &[0][..])).collect();
    let manners = Manners { stalls: Some((20, stall)), ..Manners::default() };
    let histogram = played(manners, &turns, Speed::Times(2.0)).histogram();
    let slow = histogram.len() - histogram.count_between(0, stall.as_nanos() as u64 / 4);
    assert!((25..=40).contains(&slow), "{slow} of 60 waited for 50 ms or more");
    assert!(histogram.max() >= stall.as_nanos() as u64 * 9 / 10);
}
