//! Commands about other connections and threads are answered when what they say is done.

use std::sync::Arc;
use std::time::Duration;

use reactor::Step;
use store::{KeyRef, Prepared, Scope};

use super::{Harness, Wire};
use crate::holds::Hold;
use crate::message::Message;

const PARKED: &str = "";

fn delivered(harness: &Harness, wire: &mut Wire) -> String {
    String::from_utf8_lossy(&harness.deliver(wire)).into_owned()
}

/// The reply to CLIENT KILL left at once: what was pushed behind it in the same pipeline went to the client that was killed.
#[test]
fn what_is_added_behind_client_kill_stays_and_nothing_of_the_killed_client_is_left() {
    let mut harness = Harness::new();
    let (mut kills, mut waits, mut listens) = (harness.connect(), harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, "BLPOP k 0"), PARKED);
    harness.line(&mut listens, "SUBSCRIBE news");
    let pipeline = b"CLIENT KILL ID 2\r\nRPUSH k v\r\nLRANGE k 0 -1\r\nCLIENT KILL ID 3\r\nPUBLISH news x\r\nPUBSUB NUMSUB news\r\nCLIENT LIST\r\n";
    assert_eq!(harness.feed(&mut kills, pipeline), b"");
    assert_eq!((kills.step, harness.killed()), (Step::Park, vec![2]));
    // Another client's element, before its loop has ended it.
    let mut adds = harness.connect();
    harness.expect(&mut adds, &[("RPUSH k u", ":1\r\n"), ("LLEN k", ":1\r\n")]);
    harness.end(waits);
    assert_eq!(
        delivered(&harness, &mut kills),
        PARKED,
        "the next one waits, and all before it leaves with it"
    );
    assert_eq!((kills.step, harness.killed()), (Step::Park, vec![2, 3]));
    // Whatever else comes for it does not let the reply go.
    harness.server.peers.post(1, Message::Retry);
    assert_eq!(delivered(&harness, &mut kills), PARKED);
    harness.end(listens);
    let rest = delivered(&harness, &mut kills);
    let lists = ":1\r\n:2\r\n*2\r\n$1\r\nu\r\n$1\r\nv\r\n";
    let listeners = ":1\r\n:0\r\n*2\r\n$4\r\nnews\r\n:0\r\n";
    assert!(rest.starts_with(&format!("{lists}{listeners}")), "{rest}");
    assert!(rest.contains("id=1 ") && rest.contains("id=4 ") && !rest.contains("id=3 "), "{rest}");
}

#[test]
fn reply_to_a_transaction_that_kills_waits_for_all_ends() {
    let mut harness = Harness::new();
    let (mut kills, one, two) = (harness.connect(), harness.connect(), harness.connect());
    let queue = ["MULTI", "CLIENT KILL ID 2", "SET k v", "CLIENT KILL ID 3"];
    queue.iter().for_each(|line| drop(harness.line(&mut kills, line)));
    assert_eq!(harness.line(&mut kills, "EXEC"), PARKED);
    harness.end(two);
    assert_eq!(delivered(&harness, &mut kills), PARKED);
    harness.end(one);
    assert_eq!(delivered(&harness, &mut kills), "*3\r\n:1\r\n+OK\r\n:1\r\n");
    harness.expect(&mut kills, &[("CLIENT KILL ID 2", ":0\r\n"), ("GET k", "$1\r\nv\r\n")]);
}

#[test]
fn client_that_kills_and_ends_first_leaves_nothing_behind() {
    let mut harness = Harness::new();
    let (mut kills, killed, mut other) = (harness.connect(), harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut kills, "CLIENT KILL ID 2"), PARKED);
    harness.end(kills);
    assert_eq!(harness.line(&mut other, "CLIENT KILL ID 2"), PARKED);
    harness.end(killed);
    assert_eq!(delivered(&harness, &mut other), ":1\r\n");
}

/// CLIENT UNBLOCK only told the loop of the client that waited: what came before this loop looked was given to it.
#[test]
fn element_that_comes_after_client_unblock_is_not_given_to_the_client() {
    let mut harness = Harness::new();
    let (mut waits, mut behind, mut other) = (harness.connect(), harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, "BLPOP k 0"), PARKED);
    assert_eq!(harness.line(&mut behind, "BLPOP k 0"), PARKED);
    harness.expect(
        &mut other,
        &[
            ("CLIENT UNBLOCK 1", ":1\r\n"),
            ("CLIENT UNBLOCK 1", ":0\r\n"),
            ("RPUSH k a b", ":2\r\n"),
            ("LRANGE k 0 -1", "*1\r\n$1\r\nb\r\n"),
        ],
    );
    assert!(harness.line(&mut other, "CLIENT LIST ID 1").contains(" flags=N "));
    assert_eq!(delivered(&harness, &mut waits), "*-1\r\n");
    assert_eq!(delivered(&harness, &mut behind), "*2\r\n$1\r\nk\r\n$1\r\na\r\n");
}

/// A message of CLIENT UNBLOCK that came when the wait was over ended the next wait of the client.
#[test]
fn client_unblock_ends_the_wait_that_it_was_answered_for_and_no_later_one() {
    let mut harness = Harness::new();
    let (mut waits, mut other) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut waits, "WAIT 1 50"), PARKED);
    harness.expect(&mut other, &[("CLIENT UNBLOCK 1 ERROR", ":1\r\n"), ("CLIENT UNBLOCK 1", ":0\r\n")]);
    assert_eq!(harness.after(&mut waits, Duration::from_millis(50)), b"", "its time came second");
    assert_eq!(delivered(&harness, &mut waits), "-UNBLOCKED client unblocked via CLIENT UNBLOCK\r\n");
    assert_eq!(harness.line(&mut waits, "WAIT 1 50"), PARKED);
    assert_eq!(harness.after(&mut waits, Duration::from_millis(50)), b":0\r\n");
    harness.expect(&mut other, &[("CLIENT UNBLOCK 1", ":0\r\n")]);
}

/// A long command of a client that is gone ran on, and what it did came after the reply to CLIENT KILL.
#[test]
fn long_command_of_a_killed_client_has_ended_or_never_runs_when_the_kill_is_answered() {
    let mut harness = Harness::new();
    harness.server.long.set_from(2);
    let mut kills = harness.connect();
    for round in 0..50 {
        harness.line(&mut kills, "FLUSHALL");
        let mut works = harness.connect();
        assert_eq!(harness.line(&mut works, "MSET a 1 b 2 c 3 d 4"), PARKED);
        let kill = format!("CLIENT KILL ID {}", works.session.client.id);
        assert_eq!(harness.line(&mut kills, &kill), PARKED);
        harness.end(works);
        finish(&harness, &mut kills);
        let seen = harness.line(&mut kills, "EXISTS a");
        no_thread_works(&harness);
        assert_eq!(harness.line(&mut kills, "EXISTS a"), seen, "round {round}");
    }
}

/// A thread beside the loops went on with the command of a client that was killed, for as long as it took, and CLIENT KILL waited for that.
#[test]
fn long_command_of_a_client_that_is_killed_while_it_runs_changes_nothing() {
    let mut harness = Harness::new();
    harness.server.long.set_from(2);
    let (mut kills, mut works) = (harness.connect(), harness.connect());
    let store = Arc::clone(&harness.server.store);
    let (keys, prepared) = ([KeyRef { db: 0, key: b"a" }], Prepared::default());
    let stands_in_its_way = store.access(Scope::Keys(&keys), &prepared, 0).expect("room");
    assert_eq!(harness.line(&mut works, "MSET a 1 b 2 c 3 d 4"), PARKED);
    let begun: Hold = Arc::new(());
    while Arc::strong_count(&begun) == 1 {
        harness.server.long.wait_for_begun(&begun, true);
        std::thread::yield_now();
    }
    assert_eq!(harness.line(&mut kills, "CLIENT KILL ID 2"), PARKED);
    harness.end(works);
    drop(stands_in_its_way);
    assert_eq!(finish(&harness, &mut kills), ":1\r\n");
    assert_eq!(harness.line(&mut kills, "DBSIZE"), ":0\r\n");
}

/// What a thread had begun, or was about to begin, was carried out after CLIENT PAUSE had answered.
#[test]
fn long_command_is_over_when_the_pause_is_answered_or_waits_for_its_end() {
    let mut harness = Harness::new();
    harness.server.long.set_from(2);
    let (mut works, mut pauses) = (harness.connect(), harness.connect());
    for round in 0..50 {
        harness.line(&mut pauses, "FLUSHALL");
        assert_eq!(harness.line(&mut works, "MSET a 1 b 2 c 3 d 4"), PARKED);
        let mut reply = harness.line(&mut pauses, "CLIENT PAUSE 100000 WRITE");
        reply += &finish(&harness, &mut pauses);
        assert_eq!(reply, "+OK\r\n");
        let seen = harness.line(&mut pauses, "EXISTS a");
        no_thread_works(&harness);
        let done = String::from_utf8_lossy(&harness.after(&mut works, Duration::ZERO)).into_owned()
            + &delivered(&harness, &mut works);
        assert_eq!(harness.line(&mut pauses, "EXISTS a"), seen, "round {round}");
        assert_eq!(done.is_empty(), seen == ":0\r\n", "{done}");
        harness.expect(&mut pauses, &[("CLIENT UNPAUSE", "+OK\r\n")]);
        assert_eq!(done + &finish(&harness, &mut works), "+OK\r\n");
    }
}

/// Delivers what comes for `wire` until it waits no longer; returns what was written.
fn finish(harness: &Harness, wire: &mut Wire) -> String {
    let mut written = String::new();
    while wire.step == Step::Park {
        written += &delivered(harness, wire);
        written += &String::from_utf8_lossy(&harness.after(wire, Duration::ZERO));
        std::thread::yield_now();
    }
    written
}

fn no_thread_works(harness: &Harness) {
    while harness.server.long.waiting() > 0 {
        std::thread::yield_now();
    }
}
