//! A list of scripts to redis-server 7.0 and to Evenkeel: every reply must be the same, or a listed difference.

#[path = "differential/servers.rs"]
mod servers;

use resp::Value;
use servers::{Evenkeel, Link, Redis, small};
use store::EngineKind;

/// Scripts, one a line; each is run for a client of either version of the protocol.
const SCRIPTS: &str = include_str!("differential/scripts.lua");

/// Scripts that are answered otherwise, and why.
const LISTED: &[(&str, &str)] = &[
    ("return redis.REDIS_VERSION", "the version that we follow is 7.4"),
    ("return redis.REDIS_VERSION_NUM", "the version that we follow is 7.4"),
    ("return redis.call('info', 'server'):sub(1, 8)", "commands about the server are not for scripts"),
    ("return redis.call('command', 'count') > 100", "commands about the server are not for scripts"),
    ("return redis.call('lastsave') > 0", "commands about the server are not for scripts"),
    ("return {double = 1e300}", "a double is as short as it can be read back"),
    ("return struct.pack('i')", "a value that is missing is no nil"),
    ("return type(os.clock())", "7.2 has it, 7.0 not"),
    ("return redis.call('echo', 1e17)", "7.2 writes integers whole"),
    ("local t = nil return t.x", "errors of the language have the words of Luau"),
    ("local t = {} t.x.y = 1", "errors of the language have the words of Luau"),
    ("return 1 + {}", "errors of the language have the words of Luau"),
    ("return {} .. 'x'", "errors of the language have the words of Luau"),
    ("return ('x'):bad()", "errors of the language have the words of Luau"),
    ("local f, e = loadstring('not lua') return e", "errors of the language have the words of Luau"),
    ("return type(string.dump(function() end))", "Luau has no bytecode for scripts"),
];

fn ask(link: &mut Link, words: &[&[u8]]) -> Value {
    link.send(&[words.iter().map(|word| word.to_vec()).collect()]);
    link.reply().expect("a reply")
}

/// The scripts of the list: what is between lines of `--`.
fn scripts() -> impl Iterator<Item = &'static str> {
    SCRIPTS.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("--"))
}

/// The same value with the order of maps and sets, which is that of a hash table, taken out; doubles as they are read.
fn ordered(value: Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.into_iter().map(ordered).collect()),
        Value::Set(items) => {
            let mut items: Vec<Value> = items.into_iter().map(ordered).collect();
            items.sort_by_key(|item| format!("{item:?}"));
            Value::Set(items)
        }
        Value::Map(pairs) => {
            let mut pairs: Vec<_> =
                pairs.into_iter().map(|(key, value)| (ordered(key), ordered(value))).collect();
            pairs.sort_by_key(|pair| format!("{pair:?}"));
            Value::Map(pairs)
        }
        other => other,
    }
}

#[test]
fn scripts_are_answered_as_by_redis_7_0() {
    let (redis, evenkeel) = (Redis::start(), Evenkeel::start(small(EngineKind::Memory)));
    let (mut found, mut unused) = (Vec::new(), LISTED.iter().map(|(script, _)| *script).collect::<Vec<_>>());
    for version in [&b"2"[..], b"3"] {
        let mut links = [Link::open(redis.port), Link::open(evenkeel.port)];
        links.iter_mut().for_each(|link| {
            ask(link, &[b"HELLO", version]);
            ask(link, &[b"FLUSHALL"]);
        });
        for script in scripts() {
            let words = [&b"EVAL"[..], script.as_bytes(), b"2", b"k1", b"k2", b"a1", b"a2"];
            let [theirs, ours] = links.each_mut().map(|link| ordered(ask(link, &words)));
            if theirs == ours {
                continue;
            }
            if LISTED.iter().any(|(listed, _)| *listed == script) {
                unused.retain(|listed| *listed != script);
                continue;
            }
            found.push(format!("{script}\n  redis:    {}\n  evenkeel: {}", shown(&theirs), shown(&ours)));
        }
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
    assert!(unused.is_empty(), "listed, and no difference: {unused:?}");
}

fn shown(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => format!("bulk {}", bytes.escape_ascii()),
        Value::Error(bytes) => format!("error {}", bytes.escape_ascii()),
        Value::Simple(bytes) => format!("simple {}", bytes.escape_ascii()),
        Value::Array(items) => format!("[{}]", items.iter().map(shown).collect::<Vec<_>>().join(", ")),
        other => format!("{other:?}"),
    }
}

#[test]
fn requests_of_scripts_and_functions_are_answered_as_by_redis_7_0() {
    let (redis, evenkeel) = (Redis::start(), Evenkeel::start(small(EngineKind::Memory)));
    let mut links = [Link::open(redis.port), Link::open(evenkeel.port)];
    let mut found = Vec::new();
    for words in REQUESTS {
        let bytes: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
        let [theirs, ours] = links.each_mut().map(|link| ordered(ask(link, &bytes)));
        if theirs != ours && !OTHERWISE.contains(&words.join(" ").as_str()) {
            found.push(format!("{words:?}\n  redis:    {}\n  evenkeel: {}", shown(&theirs), shown(&ours)));
        }
    }
    assert!(found.is_empty(), "{} differences:\n{}", found.len(), found.join("\n"));
}

/// Requests that are answered otherwise.
const OTHERWISE: &[&str] =
    // there is no `call` in both, and we have no text of our own for that
    &[
        "FUNCTION LOAD #!lua name=a\nredis.call('get', 'x')",
        // errors of the language have the words of Luau
        "EVAL not lua 0",
        "EVAL return ' 0",
        "SCRIPT LOAD not lua",
        "FUNCTION LOAD #!lua name=a\nnot lua",
    ];

/// A library of them.
const LIBRARY: &str = "#!lua name=lib\nredis.register_function('f', function(keys, args) return {keys, args} end)\n\
                   redis.register_function{function_name='g', callback=function(keys, args) return redis.call('get', keys[1]) end, \
                   flags={'no-writes'}, description='looks'}\n\
                   redis.register_function('w', function(keys) return redis.call('set', keys[1], 'v') end)\n\
                   redis.register_function('bad', function(keys) return redis.call('incr', keys[1]) end)\n\
                   redis.register_function('global', function(keys) x = 1 end)\n\
                   redis.register_function('keys', function(keys) return KEYS end)";

/// Requests, one after the other.
const REQUESTS: &[&[&str]] = &[
    &["EVAL", "return 1"],
    &["EVAL", "return 1", "x"],
    &["EVAL", "return 1", "-1"],
    &["EVAL", "return 1", "2", "a"],
    &["EVAL", "return KEYS[1] .. ARGV[1]", "1", "a", "b"],
    &["EVAL", "not lua", "0"],
    &["EVAL", "return '", "0"],
    &["EVALSHA", "abc", "0"],
    &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8dc", "0"],
    &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8dc", "x"],
    &["EVALSHA_RO", "e0e1f9fabfc9d4800c877a703b823ac0578ff8dc", "0"],
    &["SCRIPT", "LOAD", "return 1"],
    &["EVALSHA", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "0"],
    &["EVALSHA", "E0E1F9FABFC9D4800C877A703B823AC0578FF8DB", "0"],
    &["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db", "x"],
    &["SCRIPT", "LOAD", "not lua"],
    &["SCRIPT", "LOAD"],
    &["SCRIPT", "FLUSH", "x"],
    &["SCRIPT", "FLUSH", "async"],
    &["SCRIPT", "EXISTS", "e0e1f9fabfc9d4800c877a703b823ac0578ff8db"],
    &["SCRIPT", "KILL"],
    &["SCRIPT", "DEBUG", "NO"],
    &["SCRIPT", "DEBUG", "x"],
    &["SCRIPT", "nothing"],
    &["EVAL_RO", "return redis.call('set', KEYS[1], 1)", "1", "a"],
    &["EVAL_RO", "return redis.call('get', KEYS[1])", "1", "a"],
    &["EVAL", "#!lua flags=no-writes\nreturn redis.call('set', KEYS[1], 1)", "1", "a"],
    &["EVAL", "#!lua flags=x\nreturn 1", "0"],
    &["EVAL", "#!lua name=x\nreturn 1", "0"],
    &["EVAL", "#!js\nreturn 1", "0"],
    &["EVAL", "#!lua", "0"],
    &["EVAL", "#!lua\nreturn nothing", "0"],
    &["EVAL_RO", "#!lua\nreturn 1", "0"],
    &["EVAL_RO", "#!lua flags=no-writes\nreturn 1", "0"],
    &["FUNCTION", "LOAD", "return 1"],
    &["FUNCTION", "LOAD", "#!lua"],
    &["FUNCTION", "LOAD", "#!lua\nreturn 1"],
    &["FUNCTION", "LOAD", "#!lua name=a-b\nreturn 1"],
    &["FUNCTION", "LOAD", "#!js name=a\nreturn 1"],
    &["FUNCTION", "LOAD", "#!lua name=a x=1\nreturn 1"],
    &["FUNCTION", "LOAD", "#!lua name=a name=b\nreturn 1"],
    &["FUNCTION", "LOAD", "#!lua name=a\nreturn 1"],
    &["FUNCTION", "LOAD", "#!lua name=a\nnot lua"],
    &["FUNCTION", "LOAD", "#!lua name=a\nreturn nothing"],
    &["FUNCTION", "LOAD", "#!lua name=a\nredis.call('get', 'x')"],
    &["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('a b', function() end)"],
    &["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('a')"],
    &["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function('a', 1)"],
    &["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function()"],
    &["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function{function_name='x'}"],
    &["FUNCTION", "LOAD", "#!lua name=a\nredis.register_function{callback=function() end}"],
    &[
        "FUNCTION",
        "LOAD",
        "#!lua name=a\nredis.register_function{function_name='x', callback=function() end, flags={'y'}}",
    ],
    &[
        "FUNCTION",
        "LOAD",
        "#!lua name=a\nredis.register_function{function_name='x', callback=function() end, y=1}",
    ],
    &[
        "FUNCTION",
        "LOAD",
        "#!lua name=a\nlocal f = function() end redis.register_function('x', f) redis.register_function('x', f)",
    ],
    &["FUNCTION", "LOAD", "x", LIBRARY],
    &["FUNCTION", "LOAD", LIBRARY],
    &["FUNCTION", "LOAD", LIBRARY],
    &["FUNCTION", "LOAD", "REPLACE", LIBRARY],
    &["FUNCTION", "LOAD", "#!lua name=other\nredis.register_function('f', function() end)"],
    &["FUNCTION", "LIST", "LIBRARYNAME", "no*"],
    &["FUNCTION", "LIST", "x"],
    &["FUNCTION", "LIST", "LIBRARYNAME"],
    &["FCALL", "f", "1", "k", "a"],
    &["FCALL", "f", "x"],
    &["FCALL", "f", "2", "a"],
    &["FCALL", "f", "-1"],
    &["FCALL", "none", "0"],
    &["FCALL_RO", "f", "0"],
    &["FCALL_RO", "g", "1", "k"],
    &["FCALL", "w", "1", "k"],
    &["FCALL", "bad", "1", "k"],
    &["FCALL", "global", "0"],
    &["FCALL", "keys", "0"],
    &["FUNCTION", "STATS"],
    &["FUNCTION", "KILL"],
    &["FUNCTION", "RESTORE", "x"],
    &["FUNCTION", "DELETE", "x"],
    &["FUNCTION", "DELETE", "lib"],
    &["FUNCTION", "FLUSH", "x"],
    &["FUNCTION", "FLUSH"],
    &["COMMAND", "GETKEYS", "EVAL", "return 1", "2", "a", "b", "c"],
];
