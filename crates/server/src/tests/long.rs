//! Commands on many keys, which run on a thread of their own.

use reactor::Step;
use resp::encode_command;

use super::tx::{COMMITTED, begin, told};
use super::{Harness, Wire};
use crate::turn;

/// A server where ten keys are many.
fn harness() -> Harness {
    let harness = Harness::new();
    harness.server.long.set_from(10);
    harness
}

impl Harness {
    /// Runs `commands` as one pipeline to the end, and returns all replies.
    pub(super) fn long(&self, wire: &mut Wire, commands: &[Vec<String>]) -> String {
        let mut bytes = Vec::new();
        commands.iter().for_each(|command| encode_command(&mut bytes, command));
        let mut replies = self.feed(wire, &bytes);
        while wire.step == Step::Park {
            replies.extend(self.deliver(wire));
            std::thread::yield_now();
        }
        String::from_utf8_lossy(&replies).into_owned()
    }
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}

/// `name`, and for each of `numbers` a key; with a value behind it if there is one.
fn of_keys(name: &str, numbers: std::ops::Range<u32>, value: Option<&str>) -> Vec<String> {
    let keys = numbers.flat_map(|n| [Some(format!("key{n}")), value.map(str::to_owned)]).flatten();
    std::iter::once(name.to_owned()).chain(keys).collect()
}

/// DEL of a million keys kept its loop, and every other one, from serving anybody for seconds.
#[test]
fn command_on_many_keys_is_parked_and_its_loop_goes_on() {
    let mut harness = harness();
    let (mut one, mut two) = (harness.connect(), harness.connect());
    assert_eq!(harness.long(&mut one, &[of_keys("mset", 0..50, Some("v"))]), "+OK\r\n");
    let mut request = Vec::new();
    encode_command(&mut request, &of_keys("del", 0..50, None));
    assert_eq!(harness.feed(&mut one, &request), b"", "it waits for no loop");
    assert_eq!(one.step, Step::Park);
    assert_eq!(harness.line(&mut two, "set other v"), "+OK\r\n");
    assert_eq!(harness.long(&mut one, &[words("ping")]), ":50\r\n+PONG\r\n");
    assert_eq!(harness.server.long.count(), 2);
    assert_eq!(harness.server.long.bytes(), 0, "no request is held any more");
    assert_eq!(harness.line(&mut two, "get key7"), "$-1\r\n");
}

/// Each of these is answered the same whether it is long or not, and leaves the same behind.
#[test]
fn long_commands_answer_as_short_ones_do() {
    let large = "x".repeat(70_000);
    let scripts: Vec<Vec<Vec<String>>> = vec![
        vec![of_keys("mset", 0..40, Some("v")), words("dbsize"), of_keys("mget", 30..50, None)],
        vec![words("get key1"), of_keys("exists", 20..60, None), words("get key2")],
        vec![of_keys("touch", 0..40, None), of_keys("msetnx", 35..60, Some("w")), words("dbsize")],
        vec![of_keys("msetnx", 100..120, Some("w")), words("dbsize"), of_keys("mset", 0..20, None)],
        vec![words("set large 1"), of_keys("mset", 200..215, Some(&large)), of_keys("mget", 195..230, None)],
        vec![words("keys key20*"), words("keys nothing*"), words("dbsize")],
        vec![words("set text v"), words("multi"), words("set a 1"), words("incr a"), words("incr text")],
        (0..30).map(|_| words("incr a")).collect(),
        vec![words("select 1"), words("set in-db-1 v"), of_keys("mget", 0..12, None), words("select 0")],
        vec![words("publish channel text"), words("exec"), words("get a"), words("ping")],
        vec![words("client reply skip"), of_keys("del", 100..120, None), words("ping")],
        vec![words("watch a"), words("multi"), of_keys("del", 0..20, None), words("exec")],
        vec![words("client reply off"), of_keys("del", 20..40, None), words("client reply on")],
        vec![of_keys("unlink", 190..240, None), words("dbsize"), words("get in-db-1")],
    ];
    let (mut long, mut short) = (harness(), Harness::new());
    let (mut long_wire, mut short_wire) = (long.connect(), short.connect());
    for script in &scripts {
        let (found, expected) = (long.long(&mut long_wire, script), short.long(&mut short_wire, script));
        // KEYS has no order
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort_unstable();
            lines
        };
        assert_eq!(sorted(&found), sorted(&expected), "{:.200}", format!("{script:?}"));
        assert_eq!(found.len(), expected.len());
    }
    assert!(long.server.long.count() >= 14, "{} were long", long.server.long.count());
    assert_eq!(short.server.long.count(), 0);
    let stats = |harness: &Harness, wire: &mut Wire| {
        let text = harness.long(wire, &[words("info commandstats")]);
        let calls = text
            .lines()
            .filter_map(|line| Some((line.split(',').next()?.to_owned(), line.contains("failed_calls=0"))));
        calls.filter(|(line, _)| line.starts_with("cmdstat")).collect::<Vec<_>>()
    };
    assert_eq!(stats(&long, &mut long_wire), stats(&short, &mut short_wire));
}

#[test]
fn long_transaction_is_called_off_by_what_it_watched() {
    let mut harness = harness();
    let (mut one, mut two) = (harness.connect(), harness.connect());
    let script = [words("watch a"), words("multi"), of_keys("mset", 0..30, Some("v"))];
    assert_eq!(harness.long(&mut one, &script), "+OK\r\n+OK\r\n+QUEUED\r\n");
    assert_eq!(harness.line(&mut two, "set a 1"), "+OK\r\n");
    assert_eq!(harness.long(&mut one, &[words("exec"), words("dbsize")]), "*-1\r\n:1\r\n");
    assert_eq!(harness.server.long.count(), 1);
}

/// A client that closes while its command runs leaves nothing behind but what the command did.
#[test]
fn client_that_leaves_its_long_command_is_not_waited_for() {
    let mut harness = harness();
    let mut one = harness.connect();
    let mut request = Vec::new();
    encode_command(&mut request, &of_keys("mset", 0..30, Some("v")));
    assert_eq!(harness.feed(&mut one, &request), b"");
    turn::on_close(&harness.server, &mut one.session);
    drop(one);
    while harness.server.long.waiting() > 0 {
        std::thread::yield_now();
    }
    let mut two = harness.connect();
    assert_eq!(harness.line(&mut two, "dbsize"), ":30\r\n");
}

/// TX.DO of half a million keys, and the commit of what it staged, ran on a loop for seconds each, with all stripes locked.
#[test]
fn transaction_over_many_keys_works_and_ends_beside_the_loop() {
    let mut harness = harness();
    let (mut one, mut two) = (harness.connect(), harness.connect());
    for (end, outcome) in [("commit", COMMITTED), ("rollback", "aborted")] {
        harness.line(&mut two, "flushall");
        let (id, before) = (begin(&harness, &mut one), harness.server.long.count());
        let staged = |command: Vec<String>| [words("tx.do"), vec![id.clone()], command].concat();
        let mut request = Vec::new();
        encode_command(&mut request, &staged(of_keys("mset", 0..50, Some("v"))));
        assert_eq!(harness.feed(&mut one, &request), b"", "it waits for no loop");
        assert_eq!(one.step, Step::Park);
        assert_eq!(harness.line(&mut two, "set other v"), "+OK\r\n");
        let script = [staged(of_keys("exists", 40..60, None)), staged(words("get key7"))];
        assert_eq!(harness.long(&mut one, &script), "+OK\r\n:10\r\n$1\r\nv\r\n");
        let deleted = [staged(of_keys("del", 0..20, None)), staged(words("get key7"))];
        assert_eq!(harness.long(&mut two, &deleted), ":20\r\n$-1\r\n", "from another connection");
        assert_eq!(harness.line(&mut two, "dbsize"), ":1\r\n", "nobody else sees it");
        let told = told(&harness, &mut one, &format!("tx.{end} {id}"));
        assert!(told.contains(outcome), "{told}");
        assert!(harness.server.long.count() >= before + 4, "three commands and the end");
        let left = if end == "commit" { ":31\r\n" } else { ":1\r\n" };
        assert_eq!(harness.line(&mut two, "dbsize"), left);
        assert_eq!(harness.server.store.locked_keys(), 0);
        assert_eq!(harness.server.long.bytes(), 0, "no request is held any more");
    }
}

/// Another connection may work in a transaction, or end it, while a long command of it runs: the loop waited for that.
#[test]
fn loop_does_not_wait_for_a_long_command_of_the_same_transaction() {
    let mut harness = harness();
    let (mut one, mut two) = (harness.connect(), harness.connect());
    let id = begin(&harness, &mut one);
    harness.expect(&mut one, &[(&format!("tx.do {id} set a 1"), "+OK\r\n")]);
    let transactions = harness.server.transactions.clone().expect("it has them");
    let work = transactions.work(id.parse().expect("an identifier")).expect("it has not ended");
    let at_work = work.lock().expect("nobody panicked");
    assert_eq!(harness.line(&mut one, &format!("tx.do {id} set b 1")), "");
    assert_eq!(one.step, Step::Park);
    assert_eq!(harness.line(&mut two, "ping"), "+PONG\r\n");
    drop(at_work);
    assert_eq!(harness.long(&mut one, &[]), "+OK\r\n");
    let at_work = work.lock().expect("nobody panicked");
    assert_eq!(harness.line(&mut two, &format!("tx.commit {id}")), "", "it goes on without the loop");
    assert_eq!(harness.line(&mut one, "ping"), "+PONG\r\n");
    drop(at_work);
    assert_eq!(harness.long(&mut two, &[]), COMMITTED);
    harness.expect(&mut one, &[("get a", "$1\r\n1\r\n"), ("get b", "$1\r\n1\r\n")]);
}

/// COMMAND GETKEYS with a million arguments held its loop for 182 ms.
#[test]
fn command_on_many_arguments_alone_runs_beside_the_loop_also_in_exec() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for name in ["getkeys", "getkeysandflags"] {
        let command =
            |count: u32| [words(&format!("command {name}")), of_keys("mget", 0..count, None)].concat();
        let few = harness.long(&mut wire, &[command(2)]);
        assert_eq!(
            harness.long(&mut wire, &[words("multi"), command(2), words("exec")]),
            format!("+OK\r\n+QUEUED\r\n*1\r\n{few}")
        );
        let before = harness.server.long.count();
        let many = harness.long(&mut wire, &[command(5_000)]);
        assert_eq!(harness.server.long.count(), before + 1, "{name}");
        assert!(many.starts_with("*5000\r\n") && many.contains("$7\r\nkey4999\r\n"), "{many:.80}");
        let queued = harness.long(&mut wire, &[words("multi"), command(5_000), words("exec")]);
        assert_eq!(harness.server.long.count(), before + 2, "{name}");
        assert_eq!(queued, format!("+OK\r\n+QUEUED\r\n*1\r\n{many}"));
    }
}

/// A hundred clients that listened to 9,000 channels each, and closed together, kept their loop busy for half a second.
#[test]
fn closed_connection_is_taken_out_of_many_names_beside_the_loop() {
    let mut harness = harness();
    let (mut one, mut two) = (harness.connect(), harness.connect());
    harness.long(&mut one, &[of_keys("subscribe", 0..100, None), of_keys("psubscribe", 0..100, None)]);
    harness.long(&mut two, &[of_keys("subscribe", 90..110, None)]);
    let before = harness.server.long.count();
    turn::on_close(&harness.server, &mut one.session);
    while harness.server.long.waiting() > 0 {
        std::thread::yield_now();
    }
    assert_eq!(harness.server.long.count(), before + 1);
    assert_eq!(harness.server.pubsub.counts(), [20, 0, 0], "those of the other one are left");
    turn::on_close(&harness.server, &mut two.session);
    assert_eq!(harness.server.pubsub.counts(), [0, 0, 0], "few names are forgotten at once");
}

/// CLIENT NO-TOUCH was forgotten inside of MULTI, and by commands on many keys.
#[test]
fn keys_are_not_used_by_who_does_not_touch_in_exec_and_on_many_keys_either() {
    let mut harness = harness();
    let mut wire = harness.connect();
    harness.server.store.set_eviction(store::Eviction::AllKeysLru);
    harness.server.store.tend(1);
    harness.long(&mut wire, &[of_keys("mset", 0..50, Some("v"))]);
    let multi = |inner: &[&str]| {
        let lines = ["multi"].iter().chain(inner).chain(&["exec"]);
        lines.map(|line| words(line)).collect::<Vec<_>>()
    };
    let mut long_exec = multi(&["get key1"]);
    (0..20).for_each(|_| long_exec.insert(1, words("get key1")));
    let quiet = [multi(&["get key1", "mget key1 key2"]), long_exec, vec![of_keys("mget", 0..50, None)]];
    let idle = |harness: &Harness, wire: &mut Wire| harness.line(wire, "OBJECT IDLETIME key1");
    for commands in &quiet {
        harness.line(&mut wire, "CLIENT NO-TOUCH off");
        harness.line(&mut wire, "GET key1");
        harness.clock.advance(std::time::Duration::from_secs(10));
        harness.line(&mut wire, "CLIENT NO-TOUCH on");
        harness.long(&mut wire, commands);
        assert_eq!(idle(&harness, &mut wire), ":10\r\n", "{commands:?}");
        harness.line(&mut wire, "CLIENT NO-TOUCH off");
        harness.long(&mut wire, commands);
        assert_eq!(idle(&harness, &mut wire), ":0\r\n", "{commands:?}");
    }
}
