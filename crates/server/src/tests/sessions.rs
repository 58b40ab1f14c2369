//! What a connection remembers: passwords, subscriptions, pauses, silenced replies, and what others see of it.

use std::time::Duration;

use reactor::Step;

use super::Harness;
use crate::turn;

#[test]
fn password_is_asked_for_and_little_is_read_before_it() {
    let mut harness = Harness::with(|settings| settings.set("requirepass", "secret").expect("a password"));
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("GET k", "-NOAUTH Authentication required.\r\n"),
            ("AUTH wrong", "-WRONGPASS invalid username-password pair or user is disabled.\r\n"),
        ],
    );
    let wrong = b"-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    assert_eq!(harness.line(&mut wire, "AUTH other secret"), "");
    assert_eq!(harness.after(&mut wire, Duration::from_millis(50)), wrong);
    assert_eq!(harness.line(&mut wire, "AUTH secret"), "");
    assert_eq!(harness.after(&mut wire, Duration::from_millis(100)), b"+OK\r\n");
    harness.expect(
        &mut wire,
        &[
            ("GET k", "$-1\r\n"),
            ("RESET", "+RESET\r\n"),
            ("GET k", "-NOAUTH Authentication required.\r\n"),
            ("AUTH default secret", "+OK\r\n"),
        ],
    );
    let mut flood = harness.connect();
    let reply = harness.feed(&mut flood, b"*100\r\n");
    assert_eq!(reply, b"-ERR Protocol error: unauthenticated multibulk length\r\n");
    assert!(matches!(flood.step, Step::Refuse(_)), "{:?}", flood.step);
    let mut large = harness.connect();
    let reply = harness.feed(&mut large, b"*2\r\n$4\r\nAUTH\r\n$20000\r\n");
    assert_eq!(reply, b"-ERR Protocol error: unauthenticated bulk length\r\n");
}

/// COMMAND alone stands for COMMAND INFO, and went past the password and the limits of a subscriber.
#[test]
fn command_alone_is_refused_like_any_other() {
    let mut harness = Harness::with(|settings| settings.set("requirepass", "secret").expect("a password"));
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[("COMMAND", "-NOAUTH Authentication required.\r\n"), ("AUTH secret", "+OK\r\n")],
    );
    harness.line(&mut wire, "SUBSCRIBE c");
    let refused = harness.line(&mut wire, "COMMAND");
    assert!(refused.starts_with("-ERR Can't execute 'command'"), "{refused}");
}

#[test]
fn shard_channels_are_apart_from_channels_and_patterns() {
    let mut harness = Harness::new();
    let (mut two, mut three, mut publisher) = (harness.connect(), harness.connect(), harness.connect());
    harness.expect(
        &mut two,
        &[
            ("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"),
            ("SSUBSCRIBE news", "*3\r\n$10\r\nssubscribe\r\n$4\r\nnews\r\n:1\r\n"),
            ("PSUBSCRIBE n*", "*3\r\n$10\r\npsubscribe\r\n$2\r\nn*\r\n:2\r\n"),
        ],
    );
    harness.line(&mut three, "HELLO 3");
    harness.expect(&mut three, &[("SSUBSCRIBE news", ">3\r\n$10\r\nssubscribe\r\n$4\r\nnews\r\n:1\r\n")]);
    harness.expect(
        &mut publisher,
        &[
            ("SPUBLISH news hi", ":2\r\n"),
            ("SPUBLISH other hi", ":0\r\n"),
            ("PUBSUB SHARDCHANNELS", "*1\r\n$4\r\nnews\r\n"),
            ("PUBSUB SHARDNUMSUB news nobody", "*4\r\n$4\r\nnews\r\n:2\r\n$6\r\nnobody\r\n:0\r\n"),
            ("PUBSUB NUMSUB news", "*2\r\n$4\r\nnews\r\n:1\r\n"),
            ("MULTI", "+OK\r\n"),
            ("SPUBLISH news exec", "+QUEUED\r\n"),
            ("EXEC", "*1\r\n:2\r\n"),
        ],
    );
    let of = |payload: &str| {
        let length = payload.len();
        format!("3\r\n$8\r\nsmessage\r\n$4\r\nnews\r\n${length}\r\n{payload}\r\n")
    };
    let heard: String = ["hi", "exec"].iter().map(|payload| format!("*{}", of(payload))).collect();
    assert_eq!(String::from_utf8_lossy(&harness.deliver(&mut two)), heard);
    let heard = heard.replace("*3", ">3");
    assert_eq!(String::from_utf8_lossy(&harness.deliver(&mut three)), heard);
    let clients = harness.line(&mut publisher, "CLIENT LIST");
    assert!(clients.contains(" sub=1 psub=1 ssub=1 "), "{clients}");
    harness.expect(
        &mut two,
        &[
            ("UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:1\r\n"),
            ("SUNSUBSCRIBE", "*3\r\n$12\r\nsunsubscribe\r\n$4\r\nnews\r\n:0\r\n"),
            ("SUNSUBSCRIBE", "*3\r\n$12\r\nsunsubscribe\r\n$-1\r\n:0\r\n"),
        ],
    );
    harness.end(three);
    harness.expect(&mut publisher, &[("SPUBLISH news hi", ":0\r\n"), ("PUBLISH news hi", ":1\r\n")]);
}

#[test]
fn published_messages_reach_channels_and_patterns_in_both_versions() {
    let mut harness = Harness::new();
    let (mut two, mut three, mut publisher) = (harness.connect(), harness.connect(), harness.connect());
    harness.expect(
        &mut two,
        &[
            ("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n"),
            ("PING", "*2\r\n$4\r\npong\r\n$0\r\n\r\n"),
            (
                "GET k",
                "-ERR Can't execute 'get': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are \
                 allowed in this context\r\n",
            ),
        ],
    );
    harness.line(&mut three, "HELLO 3");
    harness.expect(
        &mut three,
        &[("PSUBSCRIBE n*", ">3\r\n$10\r\npsubscribe\r\n$2\r\nn*\r\n:1\r\n"), ("GET k", "_\r\n")],
    );
    harness.expect(
        &mut publisher,
        &[
            ("PUBLISH news hi", ":2\r\n"),
            ("PUBLISH other hi", ":0\r\n"),
            ("PUBSUB NUMSUB news x", "*4\r\n$4\r\nnews\r\n:1\r\n$1\r\nx\r\n:0\r\n"),
            ("PUBSUB NUMPAT", ":1\r\n"),
        ],
    );
    assert_eq!(harness.deliver(&mut two), b"*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$2\r\nhi\r\n");
    assert_eq!(
        harness.deliver(&mut three),
        b">4\r\n$8\r\npmessage\r\n$2\r\nn*\r\n$4\r\nnews\r\n$2\r\nhi\r\n"
    );
    assert_eq!(harness.line(&mut two, "UNSUBSCRIBE"), "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:0\r\n");
    assert_eq!(harness.line(&mut publisher, "PUBLISH news again"), ":1\r\n");
}

#[test]
fn message_published_in_a_transaction_leaves_when_it_is_done_and_once() {
    let mut harness = Harness::new();
    let (mut listener, mut publisher) = (harness.connect(), harness.connect());
    harness.line(&mut listener, "SUBSCRIBE c");
    harness.expect(&mut publisher, &[("MULTI", "+OK\r\n"), ("PUBLISH c m", "+QUEUED\r\n")]);
    assert_eq!(harness.deliver(&mut listener), b"");
    assert_eq!(harness.line(&mut publisher, "EXEC"), "*1\r\n:1\r\n");
    assert_eq!(harness.deliver(&mut listener), b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
}

#[test]
fn paused_writes_wait_and_go_on_when_the_pause_ends() {
    let mut harness = Harness::new();
    let (mut operator, mut wire) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut operator, "CLIENT PAUSE 1000 WRITE"), "+OK\r\n");
    assert_eq!(harness.line(&mut wire, "GET k"), "$-1\r\n");
    assert_eq!(harness.line(&mut wire, "SET k v"), "");
    assert_eq!(wire.step, Step::Park);
    assert_eq!(harness.after(&mut wire, Duration::from_millis(1_000)), b"+OK\r\n");
    assert_eq!(harness.line(&mut operator, "CLIENT PAUSE 100000"), "+OK\r\n");
    assert_eq!(harness.line(&mut wire, "GET k"), "");
    assert_eq!(harness.line(&mut operator, "CLIENT UNPAUSE"), "+OK\r\n");
    assert_eq!(harness.deliver(&mut wire), b"$1\r\nv\r\n");
}

#[test]
fn connection_that_ends_or_goes_on_by_itself_is_not_among_those_who_wait_for_a_pause() {
    let mut harness = Harness::new();
    let (mut operator, mut wire, mut other) = (harness.connect(), harness.connect(), harness.connect());
    harness.expect(&mut operator, &[("CLIENT PAUSE 1000 WRITE", "+OK\r\n")]);
    harness.expect(&mut wire, &[("SET k v", "")]);
    harness.expect(&mut other, &[("SET k v", "")]);
    assert_eq!(harness.server.pause.waiting().len(), 2);
    turn::on_close(&harness.server, &mut other.session);
    assert_eq!(harness.server.pause.waiting().len(), 1);
    harness.after(&mut wire, Duration::from_millis(1_000));
    assert!(harness.server.pause.waiting().is_empty());
}

#[test]
fn silenced_replies_are_left_out_and_nothing_else() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("CLIENT REPLY SKIP", ""),
            ("SET k v", ""),
            ("GET k", "$1\r\nv\r\n"),
            ("CLIENT REPLY OFF", ""),
            ("GET k", ""),
            ("NOSUCH", ""),
            ("CLIENT REPLY ON", "+OK\r\n"),
            ("GET k", "$1\r\nv\r\n"),
            // The second SKIP is skipped itself, and skips all the same.
            ("CLIENT REPLY SKIP", ""),
            ("CLIENT REPLY SKIP", ""),
            ("GET k", ""),
            ("GET k", "$1\r\nv\r\n"),
            ("CLIENT REPLY SKIP", ""),
            ("CLIENT REPLY ON", "+OK\r\n"),
        ],
    );
}

#[test]
fn subscriptions_are_confirmed_also_to_a_client_that_silenced_replies() {
    // Confirmations are messages: a client that wants nothing but messages turns replies off and counts on them.
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("CLIENT REPLY OFF", ""),
            ("SUBSCRIBE c", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"),
            ("SUBSCRIBE", ""),
            ("UNSUBSCRIBE c", "*3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n"),
            ("MULTI", ""),
            ("SUBSCRIBE c", ""),
        ],
    );
}

#[test]
fn requests_are_answered_however_they_are_cut() {
    let bytes = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$6\r\nv\r\n\r\n!\r\nGET k\r\n*0\r\n\r\n*1\r\n$4\r\nPING\r\n";
    let mut harness = Harness::new();
    for cut in 0..bytes.len() {
        let mut wire = harness.connect();
        let mut reply = harness.feed(&mut wire, &bytes[..cut]);
        reply.extend(harness.feed(&mut wire, &bytes[cut..]));
        assert_eq!(reply, b"+OK\r\n$6\r\nv\r\n\r\n!\r\n+PONG\r\n", "cut at {cut}");
    }
}

#[test]
fn error_that_echoes_what_a_client_sent_stays_on_its_line() {
    // The class of CVE-2025-67733: CR and LF in an error's text would forge replies.
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let reply = harness.raw(&mut wire, &["x\r\n+OK\r\n", "\r\n:1\r\n"]);
    assert_eq!(reply.matches("\r\n").count(), 1, "{reply:?}");
    let reply = harness.raw(&mut wire, &["CLIENT", "no\r\n$-1\r\n"]);
    assert_eq!(reply.matches("\r\n").count(), 1, "{reply:?}");
}

#[test]
fn browser_that_posts_a_form_is_cut_off() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    assert_eq!(harness.feed(&mut wire, b"POST / HTTP/1.1\r\nSET k v\r\n"), b"");
    assert_eq!(wire.step, Step::Kill);
}

#[test]
fn monitor_shows_commands_of_others_and_hides_passwords() {
    let mut harness = Harness::new();
    let (mut watcher, mut wire) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut watcher, "MONITOR"), "+OK\r\n");
    harness.line(&mut wire, "SET k v");
    harness.line(&mut wire, "AUTH secret");
    let seen = String::from_utf8(harness.deliver(&mut watcher)).expect("text");
    assert!(seen.contains("[0 127.0.0.1:0] \"SET\" \"k\" \"v\"\r\n"), "{seen}");
    assert!(seen.contains("\"AUTH\"") && !seen.contains("secret"), "{seen}");
}

#[test]
fn monitor_shows_a_transaction_when_it_has_run_and_not_one_that_was_called_off() {
    // MONITOR once showed MULTI and EXEC and nothing of what they did.
    let mut harness = Harness::new();
    let (mut watcher, mut wire, mut other) = (harness.connect(), harness.connect(), harness.connect());
    harness.line(&mut watcher, "MONITOR");
    for line in ["MULTI", "SET k v", "SELECT 3", "GET k", "EXEC"] {
        harness.line(&mut wire, line);
    }
    let shown = |harness: &Harness, watcher: &mut super::Wire| {
        let seen = String::from_utf8(harness.deliver(watcher)).expect("text");
        seen.lines()
            .map(|line| line[line.find('[').unwrap()..].replace(" 127.0.0.1:0]", "]"))
            .collect::<Vec<_>>()
    };
    let expected = [
        "[0] \"MULTI\"",
        "[0] \"SET\" \"k\" \"v\"",
        "[0] \"SELECT\" \"3\"",
        "[3] \"GET\" \"k\"",
        "[3] \"EXEC\"",
    ];
    assert_eq!(shown(&harness, &mut watcher), expected);
    harness.line(&mut wire, "WATCH w");
    harness.line(&mut other, "SELECT 3");
    harness.line(&mut other, "SET w 1");
    for line in ["MULTI", "SET k v", "EXEC"] {
        harness.line(&mut wire, line);
    }
    let seen = shown(&harness, &mut watcher);
    assert_eq!(seen[seen.len() - 2..], ["[3] \"MULTI\"", "[3] \"EXEC\""]);
    harness.expect(
        &mut wire,
        &[
            ("MULTI", "+OK\r\n"),
            ("MONITOR", "+QUEUED\r\n"),
            ("EXEC", "*1\r\n-ERR MONITOR isn't allowed for DENY BLOCKING client\r\n"),
        ],
    );
}

#[test]
fn passwords_are_in_neither_the_slow_log_nor_what_monitor_shows() {
    // SLOWLOG kept the arguments of AUTH, HELLO and CONFIG SET as they came.
    let mut harness = Harness::with(|settings| settings.set("slowlog.threshold", "0").expect("a time"));
    let (mut watcher, mut wire) = (harness.connect(), harness.connect());
    harness.line(&mut watcher, "MONITOR");
    for line in [
        "AUTH secret",
        "AUTH default secret",
        "HELLO 3 AUTH default secret SETNAME me",
        "CONFIG SET timeout 5 requirepass secret",
    ] {
        harness.line(&mut wire, line);
    }
    let kept = harness.line(&mut wire, "SLOWLOG GET -1");
    assert!(kept.contains("$10\r\n(redacted)") && kept.contains("SETNAME"), "{kept}");
    assert!(kept.contains("AUTH") && kept.contains("requirepass") && !kept.contains("secret"), "{kept}");
    let seen = String::from_utf8(harness.deliver(&mut watcher)).expect("text");
    assert!(seen.contains(r#""HELLO" "3" "AUTH" "(redacted)" "(redacted)" "SETNAME" "me""#), "{seen}");
    assert!(!seen.contains("secret"), "{seen}");
}

#[test]
fn slow_transactions_are_in_the_slow_log_as_one() {
    let mut harness = Harness::with(|settings| settings.set("slowlog.threshold", "0").expect("a time"));
    let mut wire = harness.connect();
    for line in ["MULTI", "SET k v", "EXEC"] {
        harness.line(&mut wire, line);
    }
    let kept = harness.line(&mut wire, "SLOWLOG GET");
    assert!(kept.contains("*1\r\n$4\r\nEXEC\r\n"), "{kept}");
}

#[test]
fn string_larger_than_the_setting_is_refused_by_its_name() {
    let mut harness = Harness::with(|settings| settings.set("value.max", "64KiB").expect("a size"));
    let mut wire = harness.connect();
    let reply = harness.line(&mut wire, "SETRANGE k 65536 x");
    assert!(reply.starts_with("-ERR string exceeds maximum allowed size (value.max is"), "{reply}");
    assert_eq!(harness.line(&mut wire, "EXISTS k"), ":0\r\n");
}

#[test]
fn shutdown_asks_the_owner_of_the_process_and_answers_nothing() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    // Who asks for two opposites stays without a server to ask again.
    for wrong in ["SHUTDOWN NOSAVE SAVE", "SHUTDOWN ABORT NOW", "SHUTDOWN NOW SOON"] {
        assert_eq!(harness.line(&mut wire, wrong), "-ERR syntax error\r\n", "{wrong}");
    }
    assert_eq!(harness.line(&mut wire, "SHUTDOWN ABORT"), "-ERR No shutdown in progress.\r\n");
    assert_eq!(*harness.stopped.lock().unwrap(), None);
    assert_eq!(harness.line(&mut wire, "SHUTDOWN NOSAVE NOW"), "");
    assert_eq!((wire.step, *harness.stopped.lock().unwrap()), (Step::Close, Some(crate::ShutdownKind::Now)));
}
