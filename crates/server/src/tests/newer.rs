//! Golden replies of what redis-server 7.0, the oracle of the differential test, does not know, and of what is ours.

use std::time::Duration;

use reactor::Step;

use super::Harness;

#[test]
fn library_names_are_shown_in_client_info() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("CLIENT SETINFO LIB-NAME redis-py", "+OK\r\n"),
            ("CLIENT SETINFO lib-ver 5.0.1", "+OK\r\n"),
            ("CLIENT SETINFO lib-x y", "-ERR Unrecognized option 'lib-x'\r\n"),
            ("CLIENT NO-TOUCH on", "+OK\r\n"),
            ("CLIENT NO-TOUCH maybe", "-ERR syntax error\r\n"),
        ],
    );
    let bad = harness.raw(&mut wire, &["CLIENT", "SETINFO", "LIB-NAME", "a b"]);
    assert_eq!(bad, "-ERR lib-name cannot contain spaces, newlines or special characters.\r\n");
    let info = harness.line(&mut wire, "CLIENT INFO");
    assert!(info.contains(" lib-name=redis-py lib-ver=5.0.1 "), "{info}");
    assert!(info.contains("flags=T "), "{info}");
}

#[test]
fn waitaof_without_a_log_is_refused_and_replicas_are_waited_for_in_vain() {
    let mut harness = Harness::with(|settings| settings.engine = crate::settings::Engine::Memory);
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("WAITAOF 0 0 10", "*2\r\n:0\r\n:0\r\n"),
            ("WAITAOF 2 0 10", "-ERR value is out of range\r\n"),
            ("WAITAOF 0 0 -1", "-ERR timeout is negative\r\n"),
        ],
    );
    assert!(harness.line(&mut wire, "WAITAOF 1 0 10").starts_with("-ERR WAITAOF cannot be used"));
    assert_eq!(harness.line(&mut wire, "WAIT 1 50"), "");
    assert_eq!(wire.step, Step::Park);
    assert_eq!(harness.after(&mut wire, Duration::from_millis(50)), b":0\r\n");
}

#[test]
fn maxage_kills_only_connections_that_are_old_enough() {
    let mut harness = Harness::new();
    let (mut old, mut operator) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut operator, "CLIENT KILL MAXAGE 10"), ":0\r\n");
    harness.clock.advance(Duration::from_secs(11));
    let mut young = harness.connect();
    assert_eq!(harness.line(&mut young, "CLIENT KILL MAXAGE 10 SKIPME yes"), ":2\r\n");
    assert_eq!(harness.line(&mut old, "PING"), "+PONG\r\n", "the harness only notes who was killed");
}

#[test]
fn tracking_says_that_it_follows() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    assert_eq!(harness.line(&mut wire, "CLIENT TRACKING off"), "+OK\r\n");
    assert!(harness.line(&mut wire, "CLIENT TRACKING on").contains("follows in a later version"));
}

#[test]
fn persistence_tells_when_the_first_promise_is_off() {
    let mut kept = Harness::new();
    let mut wire = kept.connect();
    assert!(kept.line(&mut wire, "INFO persistence").contains("acknowledged_writes_survive_power_loss:yes"));
    let mut off = Harness::with(|settings| settings.durability = crate::settings::Durability::Never);
    let mut wire = off.connect();
    let info = off.line(&mut wire, "INFO persistence");
    assert!(info.contains("first_promise:off: durability is not always"), "{info}");
}
