//! Users: what they may do, wherever their commands come from, and what happens to those whose user changes.

use reactor::Step;

use super::{Harness, Wire};

const NO_KEY: &str = "-NOPERM this user has no permissions to access one of the keys used as arguments\r\n";

/// A connection of the user `u`, who has these rules.
fn user(harness: &mut Harness, rules: &str) -> Wire {
    let (mut admin, mut wire) = (harness.connect(), harness.connect());
    assert_eq!(harness.line(&mut admin, &format!("ACL SETUSER u on >pw {rules}")), "+OK\r\n");
    assert_eq!(harness.line(&mut wire, "AUTH u pw"), "+OK\r\n");
    wire
}

#[test]
fn everybody_is_the_default_user_who_may_do_everything() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("ACL WHOAMI", "$7\r\ndefault\r\n"),
            ("ACL USERS", "*1\r\n$7\r\ndefault\r\n"),
            ("ACL LIST", "*1\r\n$34\r\nuser default on nopass ~* &* +@all\r\n"),
            ("ACL GETUSER nobody", "$-1\r\n"),
            ("ACL DELUSER default", "-ERR The 'default' user cannot be removed\r\n"),
            ("ACL SAVE", "-ERR This server has no file of users: start it with acl.file set\r\n"),
        ],
    );
}

#[test]
fn line_of_a_user_makes_the_same_user_again() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let rules = "on >pw <pw >other nopass >x ~a* %R~b* %W~c &news:* db=0,3 +get +@hash -hset +config|get +select|0 \
                 (+set ~x* resetdbs) (allcommands allkeys)";
    assert_eq!(harness.line(&mut wire, &format!("ACL SETUSER a {rules}")), "+OK\r\n");
    let list = harness.line(&mut wire, "ACL LIST");
    let line = list.split("\r\n").find(|line| line.starts_with("user a ")).expect("listed");
    let again = line.replacen("user a ", "ACL SETUSER b ", 1);
    assert_eq!(harness.line(&mut wire, &again), "+OK\r\n");
    let list = harness.line(&mut wire, "ACL LIST");
    assert!(list.contains(&line.replacen("user a ", "user b ", 1)), "{list}");
    assert!(line.contains(
        "~a* %R~b* %W~c resetchannels &news:* db=0,3 -@all +get +@hash -hset +config|get +select|0 (~x*"
    ));
}

#[test]
fn rule_that_is_wrong_changes_nothing() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    harness.line(&mut wire, "ACL SETUSER u on +get ~a");
    let before = harness.line(&mut wire, "ACL LIST");
    for (rules, why) in [
        ("~b +nosuch", "modifier '+nosuch': Unknown command or category name"),
        ("off x", "modifier 'x': Syntax error"),
        ("+config|nosuch", "Unknown command"),
        ("+config|get|x", "Allowing first-arg of a subcommand"),
        ("%Q~x", "Syntax error"),
        ("#12", "must be exactly 64 characters"),
        ("<pw", "does not exist"),
        ("allkeys ~x", "Adding a pattern after the *"),
        ("db=x", "Syntax error"),
        ("db=0, ~b", "Syntax error"),
        ("(+get ~x", "Unmatched parenthesis in acl selector starting at '(+get ~x'"),
        ("(on)", "Syntax error"),
    ] {
        let reply = harness.line(&mut wire, &format!("ACL SETUSER u {rules}"));
        assert!(reply.starts_with("-ERR") && reply.contains(why), "{rules}: {reply}");
    }
    let long = "x".repeat(1_100);
    assert!(harness.line(&mut wire, &format!("ACL SETUSER u ~{long}")).contains("longer than the limit"));
    assert_eq!(harness.line(&mut wire, "ACL LIST"), before);
}

#[test]
fn one_check_decides_for_direct_commands_transactions_scripts_and_staged_ones() {
    let mut harness = Harness::new();
    let mut wire = user(&mut harness, "+@all -flushall ~a* %R~b &news");
    harness.expect(
        &mut wire,
        &[
            ("SET a 1", "+OK\r\n"),
            ("SET b 1", NO_KEY),
            ("GET b", "$-1\r\n"),
            ("COPY b a2", ":0\r\n"),
            ("COPY a b", NO_KEY),
            ("FLUSHALL", "-NOPERM this user has no permissions to run the 'flushall' command\r\n"),
            (
                "PUBLISH x m",
                "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n",
            ),
            (
                "PSUBSCRIBE new*",
                "-NOPERM this user has no permissions to access one of the channels used as arguments\r\n",
            ),
            ("SORT a BY w_*", "-ERR BY option of SORT denied due to insufficient ACL permissions.\r\n"),
            ("MULTI", "+OK\r\n"),
            ("SET c 1", NO_KEY),
            ("EXEC", "-EXECABORT Transaction discarded because of previous errors.\r\n"),
        ],
    );
    let script = harness.raw(&mut wire, &["EVAL", "return redis.call('set', 'c', '1')", "0"]);
    assert!(script.contains("can't access at least one of the keys"), "{script}");
    let may = "return {redis.acl_check_cmd('set', 'a', 1), redis.acl_check_cmd('set', 'c', 1)}";
    assert_eq!(harness.raw(&mut wire, &["EVAL", may, "0"]), "*2\r\n:1\r\n$-1\r\n");
    harness.line(&mut wire, "TX.BEGIN");
    assert_eq!(harness.line(&mut wire, "TX.DO $ SET a 2"), "+OK\r\n");
    assert_eq!(harness.line(&mut wire, "TX.DO $ SET c 1"), NO_KEY);
}

#[test]
fn databases_are_bound_to_those_that_a_rule_names() {
    let mut harness = Harness::new();
    let mut wire = user(&mut harness, "+@all ~* db=0,2");
    let refused =
        "-NOPERM this user has no permissions to access one of the databases that the command uses\r\n";
    harness.expect(
        &mut wire,
        &[
            ("SET a 1", "+OK\r\n"),
            ("SELECT 1", refused),
            ("SELECT 2", "+OK\r\n"),
            ("MOVE a 1", refused),
            ("COPY a a DB 1", refused),
            ("COPY a b DB 0", ":0\r\n"),
            ("SWAPDB 0 1", refused),
            ("FLUSHALL", refused),
            ("FLUSHDB", "+OK\r\n"),
            ("MULTI", "+OK\r\n"),
            ("SELECT 1", refused),
            ("DISCARD", "+OK\r\n"),
        ],
    );
    let script =
        harness.raw(&mut wire, &["EVAL", "redis.call('select', 1) return redis.call('get', 'x')", "0"]);
    assert!(script.contains("can't access this database"), "{script}");
}

#[test]
fn change_of_a_user_reaches_its_connections_at_once() {
    let mut harness = Harness::new();
    let mut wire = user(&mut harness, "+@all ~* &*");
    let mut admin = harness.connect();
    harness
        .expect(&mut wire, &[("MULTI", "+OK\r\n"), ("SET b 1", "+QUEUED\r\n"), ("SET a 1", "+QUEUED\r\n")]);
    assert_eq!(harness.line(&mut admin, "ACL SETUSER u resetkeys ~a"), "+OK\r\n");
    assert_eq!(harness.line(&mut wire, "EXEC"), format!("*2\r\n{NO_KEY}+OK\r\n"));
    harness.expect(&mut admin, &[("EXISTS a b", ":1\r\n")]);

    // one that waits is looked at again
    assert_eq!(
        harness.line(&mut wire, "BLPOP a 0"),
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
    );
    harness.line(&mut admin, "DEL a");
    assert_eq!(harness.line(&mut wire, "BLPOP a 0"), "");
    harness.line(&mut admin, "ACL SETUSER u resetkeys ~b");
    assert_eq!(String::from_utf8(harness.deliver(&mut wire)).unwrap(), NO_KEY);
    harness.expect(&mut admin, &[("LPUSH a x", ":1\r\n"), ("LLEN a", ":1\r\n")]);

    // and one that listens to what it may not hear any more is closed
    assert!(harness.line(&mut wire, "SUBSCRIBE news").contains("subscribe"));
    harness.line(&mut admin, "ACL SETUSER u resetchannels &news");
    harness.deliver(&mut wire);
    assert_ne!(wire.step, Step::Kill);
    harness.line(&mut admin, "ACL SETUSER u resetchannels &other");
    harness.deliver(&mut wire);
    assert_eq!(wire.step, Step::Kill);
}

#[test]
fn removed_user_has_no_connection_left_and_cannot_come_back() {
    let mut harness = Harness::new();
    let mut wire = user(&mut harness, "+@all ~*");
    let mut admin = harness.connect();
    assert_eq!(harness.line(&mut admin, "ACL DELUSER u nobody"), "");
    assert_eq!(harness.killed().len(), 1);
    // its requests that are in the input already
    assert_eq!(harness.line(&mut wire, "SET a 1"), "-NOAUTH the user was removed\r\n");
    assert_eq!(wire.step, Step::Close);
    let mut again = harness.connect();
    assert!(harness.line(&mut again, "AUTH u pw").starts_with("-WRONGPASS"));
}

#[test]
fn password_of_the_default_user_is_requirepass_until_a_rule_says_otherwise() {
    let mut harness = Harness::with(|settings| settings.set("requirepass", "first").expect("a password"));
    let mut wire = harness.connect();
    harness.expect(
        &mut wire,
        &[
            ("PING", "-NOAUTH Authentication required.\r\n"),
            ("AUTH first", "+OK\r\n"),
            ("CONFIG SET requirepass second", "+OK\r\n"),
            ("AUTH default second", "+OK\r\n"),
            ("ACL SETUSER default >third", "+OK\r\n"),
            ("AUTH third", "+OK\r\n"),
            ("ACL SETUSER default nopass", "+OK\r\n"),
            ("AUTH default whatever", "+OK\r\n"),
            ("ACL SETUSER default off", "+OK\r\n"),
        ],
    );
    let mut other = harness.connect();
    assert_eq!(harness.line(&mut other, "PING"), "-NOAUTH Authentication required.\r\n");
}

#[test]
fn refusals_are_logged_counted_and_show_no_password() {
    let mut harness = Harness::new();
    let mut wire = user(&mut harness, "+get ~a +eval +multi");
    for line in ["GET b", "GET b", "SET a 1", "AUTH u wrong-password"] {
        harness.line(&mut wire, line);
    }
    harness.raw(&mut wire, &["EVAL", "return redis.pcall('get', 'c')", "0"]);
    let mut admin = harness.connect();
    let log = harness.line(&mut admin, "ACL LOG");
    assert!(!log.contains("wrong-password"));
    let seen: Vec<&str> =
        ["key", "command", "auth", "toplevel", "lua"].into_iter().filter(|it| log.contains(it)).collect();
    assert_eq!(seen.len(), 5, "{log}");
    assert!(log.starts_with("*4\r\n") && log.contains(":2\r\n"), "{log}");
    let info = harness.line(&mut admin, "INFO stats");
    for line in ["acl_access_denied_key:3", "acl_access_denied_command:1", "acl_access_denied_auth:1"] {
        assert!(info.contains(line), "{line}: {info}");
    }
    harness.expect(&mut admin, &[("ACL LOG RESET", "+OK\r\n"), ("ACL LOG", "*0\r\n")]);
}

#[test]
fn clients_are_listed_and_ended_by_user() {
    let mut harness = Harness::new();
    let _wire = user(&mut harness, "+@all ~*");
    let mut admin = harness.connect();
    assert!(harness.line(&mut admin, "CLIENT LIST").contains(" user=u "));
    assert_eq!(harness.line(&mut admin, "CLIENT KILL USER nobody"), "-ERR No such user 'nobody'\r\n");
    harness.line(&mut admin, "CLIENT KILL USER u");
    assert_eq!(harness.killed().len(), 1);
}

#[test]
fn rules_are_bounded_in_number_and_bytes_for_a_user_and_for_all() {
    let mut harness = Harness::new();
    let mut admin = harness.connect();
    let many: Vec<String> = (0..2_001).map(|number| format!("~{number}")).collect();
    let reply = harness.line(&mut admin, &format!("ACL SETUSER u {}", many.join(" ")));
    assert!(reply.contains("2001 rules") && reply.contains("limit of 2000 rules"), "{reply}");
    // step by step it comes to no more
    for part in many.chunks(900) {
        let reply = harness.line(&mut admin, &format!("ACL SETUSER u {}", part.join(" ")));
        assert!(reply == "+OK\r\n" || reply.contains("the user would have"), "{reply}");
    }
    assert!(harness.line(&mut admin, "ACL LIST").len() < 64 << 10);
    let long = "x".repeat(1_000);
    let rules: Vec<String> = (0..60).map(|number| format!("~{number}{long}")).collect();
    let refused = (0..200).find_map(|number| {
        let reply = harness.line(&mut admin, &format!("ACL SETUSER u{number} {}", rules.join(" ")));
        (reply != "+OK\r\n").then_some((number, reply))
    });
    let (number, reply) = refused.expect("all together are bounded");
    assert!((100..140).contains(&number) && reply.contains("all users would have"), "{number}: {reply}");
}

/// EXEC ran what was queued before it logged in another user as the one before.
#[test]
fn control_commands_behind_auth_in_a_transaction_are_those_of_the_new_user() {
    let mut harness = Harness::new();
    let mut wire = user(&mut harness, "+@all -config -subscribe ~*");
    let mut strong = harness.connect();
    for line in ["MULTI", "AUTH u pw", "CONFIG GET port", "ACL WHOAMI", "SUBSCRIBE c"] {
        harness.line(&mut strong, line);
    }
    let reply = harness.line(&mut strong, "EXEC");
    assert_eq!(
        reply,
        "*4\r\n+OK\r\n-NOPERM this user has no permissions to run the 'config|get' command\r\n$1\r\nu\r\n\
         -NOPERM this user has no permissions to run the 'subscribe' command\r\n"
    );
    harness.expect(&mut wire, &[("MULTI", "+OK\r\n"), ("AUTH default x", "+QUEUED\r\n")]);
}

#[test]
fn passwords_within_other_commands_are_not_shown() {
    let mut harness = Harness::with(|settings| settings.set("slowlog.threshold", "0s").expect("a time"));
    let mut admin = harness.connect();
    for line in [
        "ACL SETUSER x on >S3CRET",
        "ACL DRYRUN default AUTH u S3CRET",
        "ACL DRYRUN default ACL SETUSER x >S3CRET",
        "COMMAND GETKEYS AUTH S3CRET",
        "TX.DO $ AUTH S3CRET",
        "CONFIG SET masterauth S3CRET",
        "CONFIG SET requirepass S3CRET",
        "AUTH S3CRET",
    ] {
        harness.line(&mut admin, line);
    }
    let log = harness.line(&mut admin, "SLOWLOG GET 100");
    assert!(log.contains("dryrun") || log.contains("DRYRUN"), "{log}");
    assert!(!log.contains("S3CRET"), "{log}");
}
