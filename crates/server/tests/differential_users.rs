//! Random users run random commands on redis-server 7.0 and on Evenkeel: directly, in MULTI and in scripts. Each reply must be the same, whether it is
//! the command's or says that the user may not run it.
//!
//! The seed is printed; `EVENKEEL_SEED` runs one again.

#[path = "differential/dice.rs"]
mod dice;
#[path = "differential/servers.rs"]
mod servers;

use dice::Dice;
use resp::Value;
use servers::{Evenkeel, Link, Redis, small};
use store::EngineKind;

const USERS: usize = 300;
const COMMANDS_EACH: usize = 40;

/// Commands whose replies are the same whatever happened before, or depend on the data alone.
const COMMANDS: &[&str] = &[
    "GET K",
    "SET K v",
    "SET K v GET",
    "SET K v NX",
    "SETEX K 100 v",
    "GETDEL K",
    "GETEX K",
    "APPEND K v",
    "STRLEN K",
    "MGET K K",
    "MSET K v K v",
    "DEL K",
    "DEL K K",
    "EXISTS K K",
    "TYPE K",
    "TOUCH K",
    "UNLINK K",
    "INCR K",
    "EXPIRE K 100",
    "PERSIST K",
    "RENAME K K",
    "COPY K K",
    "LPUSH K v",
    "RPOP K",
    "LRANGE K 0 -1",
    "LMOVE K K LEFT RIGHT",
    "HSET K f v",
    "HGET K f",
    "HLEN K",
    "SADD K v",
    "SCARD K",
    "SISMEMBER K v",
    "SUNIONSTORE K K K",
    "SINTERCARD 2 K K",
    "ZADD K 1 v",
    "ZSCORE K v",
    "ZUNIONSTORE K 2 K K",
    "ZRANGESTORE K K 0 -1",
    "BITFIELD K GET u8 0",
    "BITFIELD K SET u8 0 1",
    "BITCOUNT K",
    "PFADD K v",
    "PFCOUNT K",
    "PFMERGE K K",
    "SORT K",
    "SORT K STORE K",
    "SORT K BY w_* ALPHA",
    "SORT K GET #",
    "TTL K",
    "DUMP nokey",
    "XLEN K",
    "XADD K 1-1 f v",
    "PUBLISH C m",
    "PING",
    "ECHO x",
    "SELECT 0",
    "DBSIZE",
    "FLUSHDB",
    "CLIENT GETNAME",
    "CLIENT SETNAME x",
    "ACL WHOAMI",
    "SCRIPT EXISTS x",
    "CONFIG SET maxmemory-samples 5",
    "GEOADD K 1 1 v",
    "GEOSEARCHSTORE K K FROMLONLAT 1 1 BYRADIUS 1 m",
    "EVAL return\u{a0}1 0",
    "EVAL_RO return\u{a0}1 1 K",
    "EVAL return\u{a0}1 2 K K",
    "NOSUCH K",
    "GET",
    "LCS K K",
    "SPUBLISH_ x",
    "WAIT 0 0",
];

fn commands(rule: &str) -> Vec<Vec<u8>> {
    rule.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// A command with keys and channels drawn for its letters.
fn command(dice: &mut Dice) -> Vec<Vec<u8>> {
    let line = dice.pick(COMMANDS);
    line.split(' ')
        .map(|word| match word {
            "K" => key(dice),
            "C" => [b"news:", key(dice).as_slice()].concat(),
            word => word.replace('\u{a0}', " ").into_bytes(),
        })
        .collect()
}

fn key(dice: &mut Dice) -> Vec<u8> {
    let keys = ["a", "ab", "abc", "b", "b:1", "x*y", "w_1"];
    dice.pick(&keys).as_bytes().to_vec()
}

/// The rules of a user, drawn.
fn rules(dice: &mut Dice) -> Vec<Vec<u8>> {
    let mut rules = commands("reset on >pw");
    let more = 1 + dice.below(8);
    (0..more).for_each(|_| rules.extend(commands(&rule(dice))));
    if dice.below(3) == 0 {
        let inner: Vec<String> = (0..1 + dice.below(4)).map(|_| rule(dice)).collect();
        let inner: Vec<_> = inner.iter().filter(|it| !it.contains('(')).map(String::as_str).collect();
        rules.extend(commands(&format!("({})", inner.join(" "))));
    }
    rules
}

fn rule(dice: &mut Dice) -> String {
    let pick = |dice: &mut Dice, of: &[&str]| dice.pick(of).to_owned();
    match dice.below(9) {
        0 => pick(
            dice,
            &[
                "+@all",
                "-@all",
                "+@read",
                "+@write",
                "-@dangerous",
                "+@fast",
                "-@slow",
                "+@keyspace",
                "+@string",
                "-@hash",
            ],
        ),
        1 | 2 => {
            let name = dice.pick(COMMANDS).split(' ').next().unwrap_or_default();
            format!("{}{}", pick(dice, &["+", "+", "-"]), name.to_lowercase())
        }
        3 => pick(
            dice,
            &[
                "+client|getname",
                "-client|setname",
                "+config|set",
                "+select|0",
                "+object|encoding",
                "+acl|whoami",
                "+get|a",
            ],
        ),
        4 | 5 => format!(
            "{}{}",
            pick(dice, &["~", "~", "%R~", "%W~", "%RW~"]),
            pick(dice, &["a*", "b", "b:*", "?", "*", "x[*]y", "w_*", "a[b-z]"])
        ),
        6 => pick(dice, &["~*", "allkeys", "resetkeys", "allcommands", "nocommands"]),
        7 => pick(dice, &["&news:*", "&news:a", "&*", "resetchannels", "allchannels"]),
        _ => pick(dice, &["+eval +eval_ro", "+multi +exec", "+@scripting", "+@transaction +@connection"]),
    }
}

fn ask(link: &mut Link, words: &[Vec<u8>]) -> Value {
    link.send(&[words.to_vec()]);
    link.reply().expect("a reply")
}

/// The same with what names the script, and with what the servers are known to say otherwise of errors, taken out.
fn comparable(value: Value) -> Value {
    match value {
        Value::Error(text) => {
            let text = String::from_utf8_lossy(&text).into_owned();
            Value::Simple(format!("-{}", text.split(" script: ").next().unwrap_or_default().trim()).into())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(comparable).collect()),
        other => other,
    }
}

/// A reply as a failure shows it.
fn told(value: &Value) -> String {
    match value {
        Value::Simple(text) | Value::Bulk(text) => String::from_utf8_lossy(text).into_owned(),
        Value::Array(items) => format!("[{}]", items.iter().map(told).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}

#[test]
fn users_may_do_what_they_may_do_in_redis_7_0() {
    let (redis, evenkeel) = (Redis::start(), Evenkeel::start(small(EngineKind::Memory)));
    let seed = std::env::var("EVENKEEL_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or(0x5EED);
    println!("EVENKEEL_SEED={seed}");
    let mut dice = Dice::new(seed);
    let ports = [redis.port, evenkeel.port];
    let mut admins = ports.map(Link::open);
    let mut differences = Vec::new();
    for number in 0..USERS {
        let rules = rules(&mut dice);
        let shown = String::from_utf8_lossy(&rules.join(&b' ')).into_owned();
        let set = [commands("ACL SETUSER u"), rules].concat();
        let [theirs, ours] = admins.each_mut().map(|link| ask(link, &set));
        assert_eq!(theirs, ours, "user {number}: {shown}");
        if matches!(theirs, Value::Error(_)) {
            continue;
        }
        let mut links = ports.map(Link::open);
        let [theirs, ours] = links.each_mut().map(|link| ask(link, &commands("AUTH u pw")));
        assert_eq!(theirs, ours, "user {number}: {shown}");
        for _ in 0..COMMANDS_EACH {
            let way = dice.below(5);
            let words = command(&mut dice);
            let requests = match way {
                0 => vec![commands("MULTI"), words, command(&mut dice), commands("EXEC")],
                1 => {
                    let script = b"return redis.pcall(unpack(ARGV))".to_vec();
                    let head = [commands("EVAL"), vec![script], commands("0")].concat();
                    vec![[head, words].concat()]
                }
                _ => vec![words],
            };
            for request in requests {
                let [theirs, ours] = links.each_mut().map(|link| comparable(ask(link, &request)));
                let sent = String::from_utf8_lossy(&request.join(&b' ')).into_owned();
                if theirs != ours {
                    differences.push(format!(
                        "user {number} ({shown}) sent {sent}\n  {}\n  {}",
                        told(&theirs),
                        told(&ours)
                    ));
                }
            }
        }
    }
    assert!(
        differences.is_empty(),
        "{} differences:\n{}",
        differences.len(),
        differences[..differences.len().min(20)].join("\n")
    );
}
