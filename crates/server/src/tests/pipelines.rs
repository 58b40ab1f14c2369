//! Requests that came together: parsed ahead, run one by one.

use reactor::Step;
use resp::encode_command;

use super::Harness;

/// What was parsed ahead is forgotten when a turn ends in the middle of it, whatever the reason.
#[test]
fn pipeline_is_answered_in_order_however_it_is_cut() {
    let mut harness = Harness::new();
    let mut pipeline = Vec::new();
    let mut expected = String::new();
    for number in 0..40 {
        encode_command(&mut pipeline, &["ECHO", &number.to_string()]);
        let text = number.to_string();
        expected += &format!("${}\r\n{text}\r\n", text.len());
        // what is skipped, and what is not in an array
        pipeline.extend_from_slice(b"\r\n*0\r\nPING\r\n");
        expected += "+PONG\r\n";
    }
    for cut in 0..pipeline.len() {
        let mut wire = harness.connect();
        let mut replies = harness.feed(&mut wire, &pipeline[..cut]);
        replies.extend(harness.feed(&mut wire, &pipeline[cut..]));
        assert_eq!(String::from_utf8_lossy(&replies), expected, "cut at {cut}");
    }
}

#[test]
fn request_that_is_wrong_ends_the_pipeline_after_the_replies_before_it() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let replies = harness.feed(&mut wire, b"PING\r\n*1\r\n$4\r\nPING\r\n*1\r\n!\r\nPING\r\n");
    let said = "+PONG\r\n+PONG\r\n-ERR Protocol error: expected '$', got '!'\r\n";
    assert_eq!(String::from_utf8_lossy(&replies), said);
    assert!(matches!(wire.step, Step::Refuse(_)), "{:?}", wire.step);
}

/// The limits before AUTH hold for nothing behind it, though it was there when AUTH was read.
#[test]
fn request_behind_auth_in_its_pipeline_has_the_limits_of_a_client_that_is_known() {
    let mut harness = Harness::new();
    let mut operator = harness.connect();
    assert_eq!(harness.line(&mut operator, "CONFIG SET requirepass secret"), "+OK\r\n");
    let mut wire = harness.connect();
    let (mut pipeline, large) = (Vec::new(), "x".repeat(20 << 10));
    encode_command(&mut pipeline, &["AUTH", "secret"]);
    encode_command(&mut pipeline, &["SET", "key", &large]);
    encode_command(&mut pipeline, &["STRLEN", "key"]);
    let replies = harness.feed(&mut wire, &pipeline);
    assert_eq!(String::from_utf8_lossy(&replies), "+OK\r\n+OK\r\n:20480\r\n");
}

/// A parked request waits for its turn with all that came behind it.
#[test]
fn pipeline_goes_on_behind_a_request_that_waited() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut other, "CLIENT PAUSE 1000"), "+OK\r\n");
    assert!(harness.feed(&mut wire, b"ECHO a\r\nECHO b\r\n").is_empty());
    assert_eq!(wire.step, Step::Park);
    wire.input.feed(b"ECHO c\r\n");
    let replies = harness.after(&mut wire, std::time::Duration::from_millis(1_001));
    assert_eq!(String::from_utf8_lossy(&replies), "$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n");
}
