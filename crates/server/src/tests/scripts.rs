//! Scripts and functions over the protocol: what they answer, what of them happens, and what nobody may see of them.

use std::time::Duration;

use reactor::Step;

use super::{Harness, Wire};

const DELETE_IF_EQUAL: &str =
    "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end";
const LIBRARY: &str = "#!lua name=mylib\n\
    redis.register_function('put', function(keys, args) return redis.call('set', keys[1], args[1]) end)\n\
    redis.register_function{function_name = 'look', callback = function(keys) return redis.call('get', keys[1]) end, \
    flags = {'no-writes'}}";

/// The reply to a command that may run beside the loop.
fn ask(harness: &Harness, wire: &mut Wire, words: &[&str]) -> String {
    harness.long(wire, &[words.iter().map(|word| (*word).to_owned()).collect()])
}

#[track_caller]
fn check(harness: &Harness, wire: &mut Wire, cases: &[(&[&str], &str)]) {
    for (words, expected) in cases {
        assert_eq!(ask(harness, wire, words), *expected, "{words:?}");
    }
}

#[test]
fn compare_and_delete_is_atomic_and_is_run_by_its_digest() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let digest = "d6fd5d46dd8b36f5d7c9d6e8d3d6b0c7d1f1a5f7";
    check(
        &harness,
        &mut wire,
        &[
            (&["set", "lock", "mine"], "+OK\r\n"),
            (&["eval", DELETE_IF_EQUAL, "1", "lock", "other"], ":0\r\n"),
            (&["eval", DELETE_IF_EQUAL, "1", "lock", "mine"], ":1\r\n"),
            (&["exists", "lock"], ":0\r\n"),
            (&["evalsha", digest, "0"], "-NOSCRIPT No matching script. Please use EVAL.\r\n"),
        ],
    );
    let loaded = ask(&harness, &mut wire, &["script", "load", DELETE_IF_EQUAL]);
    let digest = &loaded[5..45];
    check(
        &harness,
        &mut wire,
        &[
            (&["script", "exists", digest, "no"], "*2\r\n:1\r\n:0\r\n"),
            (&["set", "lock", "mine"], "+OK\r\n"),
            (&["evalsha", &digest.to_uppercase(), "1", "lock", "mine"], ":1\r\n"),
            (&["script", "flush"], "+OK\r\n"),
            (&["script", "exists", digest], "*1\r\n:0\r\n"),
            (&["evalsha", digest, "0"], "-NOSCRIPT No matching script. Please use EVAL.\r\n"),
        ],
    );
}

#[test]
fn keys_that_were_not_named_can_be_touched() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let script = "for n = 1, 300 do redis.call('set', 'key' .. n, n) end return redis.call('get', 'key77')";
    check(
        &harness,
        &mut wire,
        &[
            (&["eval", script, "0"], "$2\r\n77\r\n"),
            (&["eval", "return redis.call('dbsize')", "0"], ":300\r\n"),
            (&["eval", "return #redis.call('keys', 'key1?')", "0"], ":10\r\n"),
            (
                &["eval", "redis.call('flushdb') redis.call('set', 'a', 1) return redis.call('dbsize')", "0"],
                ":1\r\n",
            ),
            (&["eval", "redis.call('select', 1) return redis.call('set', 'b', 2)", "0"], "+OK\r\n"),
            (&["get", "b"], "$-1\r\n"),
            (&["eval", "return redis.call('mget', 'b', 'a')", "0"], "*2\r\n$-1\r\n$1\r\n1\r\n"),
        ],
    );
}

#[test]
fn script_that_fails_keeps_what_it_did_and_read_only_ones_do_nothing() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let fails = ask(&harness, &mut wire, &["eval", "redis.call('set', 'a', 1) error('no')", "0"]);
    assert!(fails.starts_with("-ERR user_script:1: no script: "), "{fails}");
    assert_eq!(harness.line(&mut wire, "get a"), "$1\r\n1\r\n");
    let refused = ask(&harness, &mut wire, &["eval_ro", "return redis.call('del', 'a')", "0"]);
    assert!(refused.starts_with("-ERR Write commands are not allowed from read-only scripts."), "{refused}");
    let refused =
        ask(&harness, &mut wire, &["eval", "#!lua flags=no-writes\nreturn redis.call('del', 'a')", "0"]);
    assert!(refused.starts_with("-ERR Write commands are not allowed from read-only scripts."), "{refused}");
    assert_eq!(harness.line(&mut wire, "get a"), "$1\r\n1\r\n");
}

#[test]
fn text_of_an_error_forges_no_reply() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for script in [
        "return redis.error_reply('A b\\r\\n+OK\\r\\n')",
        "return {err = 'x\\r\\n+OK'}",
        "error('x\\r\\n+OK')",
        "error({err = 'x\\r\\n+OK'})",
        "return redis.status_reply('x\\r\\n+OK')",
        "return redis.call('x\\r\\n+OK')",
    ] {
        let reply = ask(&harness, &mut wire, &["eval", script, "0"]);
        assert_eq!(reply.matches("\r\n").count(), 1, "{script}: {reply:?}");
    }
}

#[test]
fn scripts_in_a_transaction_are_part_of_it() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let undeclared = "return redis.call('incr', 'other')";
    check(
        &harness,
        &mut wire,
        &[
            (&["multi"], "+OK\r\n"),
            (&["set", "a", "1"], "+QUEUED\r\n"),
            (&["eval", "return redis.call('incr', KEYS[1])", "1", "a"], "+QUEUED\r\n"),
            (&["eval", undeclared, "0"], "+QUEUED\r\n"),
            (&["eval", "return redis.call('dbsize')", "0"], "+QUEUED\r\n"),
            (&["get", "a"], "+QUEUED\r\n"),
            (&["exec"], "*5\r\n+OK\r\n:2\r\n:1\r\n:2\r\n$1\r\n2\r\n"),
        ],
    );
}

#[test]
fn messages_of_a_script_are_sent_once_and_after_it() {
    let mut harness = Harness::new();
    let (mut wire, mut listener) = (harness.connect(), harness.connect());
    harness.line(&mut listener, "subscribe c");
    // it begins anew for keys that nobody named
    let script =
        "redis.call('publish', 'c', 'm') redis.call('flushdb') return redis.call('publish', 'd', 'm')";
    assert_eq!(ask(&harness, &mut wire, &["eval", script, "0"]), ":0\r\n");
    let told = harness.deliver(&mut listener);
    for (words, reply) in
        [(&["multi"][..], "+OK\r\n"), (&["eval", script, "0"], "+QUEUED\r\n"), (&["exec"], "*1\r\n:0\r\n")]
    {
        assert_eq!(ask(&harness, &mut wire, words), reply);
    }
    assert_eq!(harness.deliver(&mut listener), told, "and from a transaction");
    assert_eq!(String::from_utf8_lossy(&told), "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nm\r\n");
}

#[test]
fn long_script_runs_beside_its_loop_and_others_get_on() {
    let mut harness = Harness::new();
    let (mut one, mut two) = (harness.connect(), harness.connect());
    let script = "local n = 0 for i = 1, 3000000 do n = n + 1 end redis.call('set', KEYS[1], n) \
                  redis.call('set', 'unnamed', n) return n";
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["eval", script, "1", "k"]);
    assert_eq!(harness.feed(&mut one, &request), b"");
    assert_eq!(one.step, Step::Park);
    assert_eq!(harness.line(&mut two, "set other v"), "+OK\r\n");
    let mut reply = Vec::new();
    while one.step == Step::Park {
        reply.extend(harness.deliver(&mut one));
        std::thread::yield_now();
    }
    assert_eq!(reply, b":3000000\r\n");
    assert_eq!(harness.line(&mut two, "mget k unnamed"), "*2\r\n$7\r\n3000000\r\n$7\r\n3000000\r\n");
}

#[test]
fn script_is_killed_and_leaves_nothing() {
    let mut harness = Harness::new();
    let (mut one, mut two) = (harness.connect(), harness.connect());
    let busy = "-NOTBUSY No scripts in execution right now.\r\n";
    assert_eq!(harness.line(&mut two, "script kill"), busy);
    let mut request = Vec::new();
    let script = "redis.call('set', KEYS[1], 1) while true do pcall(redis.call, 'get', KEYS[1]) end";
    resp::encode_command(&mut request, &["eval", script, "1", "k"]);
    assert_eq!(harness.feed(&mut one, &request), b"");
    let mut killed = harness.line(&mut two, "script kill");
    while killed == busy {
        std::thread::yield_now();
        killed = harness.line(&mut two, "script kill");
    }
    while two.step == Step::Park {
        killed.push_str(&String::from_utf8_lossy(&harness.deliver(&mut two)));
        std::thread::yield_now();
    }
    assert_eq!(killed, "+OK\r\n");
    assert!(harness.server.scripts.running(false).is_none(), "it has ended when that is said");
    let mut reply = Vec::new();
    while one.step == Step::Park {
        reply.extend(harness.deliver(&mut one));
        std::thread::yield_now();
    }
    assert_eq!(String::from_utf8_lossy(&reply), "-ERR Script killed by user with SCRIPT KILL.\r\n");
    assert_eq!(harness.line(&mut two, "get k"), "$-1\r\n");
}

#[test]
fn script_beyond_the_limit_of_memory_leaves_nothing() {
    let mut harness = Harness::with(|settings| settings.script_memory_limit = crate::settings::Size(4 << 20));
    let mut wire = harness.connect();
    let script = "redis.call('set', KEYS[1], 1) local s = 'x' while true do s = s .. s end";
    let reply = ask(&harness, &mut wire, &["eval", script, "1", "k"]);
    assert!(reply.starts_with("-ERR the script needs more memory than script.memory_limit"), "{reply}");
    assert_eq!(harness.line(&mut wire, "get k"), "$-1\r\n");
    assert_eq!(ask(&harness, &mut wire, &["eval", "return 1", "0"]), ":1\r\n");
}

#[test]
fn script_beyond_the_limit_of_time_leaves_nothing() {
    let mut harness = Harness::with(|settings| settings.script_time_limit = Duration::from_secs(1));
    let (mut one, mut two) = (harness.connect(), harness.connect());
    let mut request = Vec::new();
    resp::encode_command(
        &mut request,
        &["eval", "redis.call('set', KEYS[1], 1) while true do end", "1", "k"],
    );
    assert_eq!(harness.feed(&mut one, &request), b"");
    let mut reply = Vec::new();
    while one.step == Step::Park {
        harness.clock.advance(Duration::from_millis(100));
        reply.extend(harness.deliver(&mut one));
        std::thread::yield_now();
    }
    let reply = String::from_utf8_lossy(&reply);
    assert!(reply.starts_with("-ERR the script ran for longer than script.time_limit (1s)"), "{reply}");
    assert_eq!(harness.line(&mut two, "get k"), "$-1\r\n");
}

#[test]
fn time_stands_still_in_a_script() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let script =
        "local a, b = redis.call('time'), redis.call('time') return {a[1] == b[1], a[2] == b[2], a[1]}";
    assert_eq!(ask(&harness, &mut wire, &["eval", script, "0"]), "*3\r\n:1\r\n:1\r\n$10\r\n1700000000\r\n");
}

#[test]
fn large_values_are_read_and_written_whole() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let script = "redis.call('set', KEYS[1], string.rep('x', 200000)) redis.call('append', KEYS[1], 'yz') \
                  local v = redis.call('get', KEYS[1]) \
                  redis.call('restore', 'copy', 0, redis.call('dump', KEYS[1])) return {#v, v:sub(-3)}";
    check(
        &harness,
        &mut wire,
        &[
            (&["eval", script, "1", "k"], "*2\r\n:200002\r\n$3\r\nxyz\r\n"),
            (&["strlen", "copy"], ":200002\r\n"),
        ],
    );
}

#[test]
fn functions_are_loaded_called_listed_and_deleted() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    check(
        &harness,
        &mut wire,
        &[
            (&["function", "load", LIBRARY], "$5\r\nmylib\r\n"),
            (&["function", "load", LIBRARY], "-ERR Library 'mylib' already exists\r\n"),
            (&["function", "load", "replace", LIBRARY], "$5\r\nmylib\r\n"),
            (&["fcall", "put", "1", "k", "v"], "+OK\r\n"),
            (&["fcall_ro", "look", "1", "k"], "$1\r\nv\r\n"),
            (
                &["fcall_ro", "put", "1", "k", "v"],
                "-ERR Can not execute a script with write flag using *_ro command.\r\n",
            ),
            (&["fcall", "nothing", "0"], "-ERR Function not found\r\n"),
            (&["function", "delete", "mylib"], "+OK\r\n"),
            (&["function", "delete", "mylib"], "-ERR Library not found\r\n"),
            (&["fcall", "put", "1", "k", "v"], "-ERR Function not found\r\n"),
            (&["function", "list"], "*0\r\n"),
        ],
    );
}

#[test]
fn libraries_come_back_from_the_store_and_from_a_dump() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    ask(&harness, &mut wire, &["function", "load", LIBRARY]);
    harness.server.scripts.set_libraries(script::library::Libraries::default());
    assert_eq!(ask(&harness, &mut wire, &["fcall", "look", "1", "k"]), "-ERR Function not found\r\n");
    crate::handlers::function::recover(&harness.server).expect("it is in the store");
    assert_eq!(ask(&harness, &mut wire, &["fcall", "look", "1", "k"]), "$-1\r\n");
    let mut request = Vec::new();
    resp::encode_command(&mut request, &["function", "dump"]);
    let dump = harness.feed(&mut wire, &request);
    let dump = &dump[dump.iter().position(|byte| *byte == b'\n').expect("a line") + 1..dump.len() - 2];
    assert_eq!(harness.line(&mut wire, "function flush"), "+OK\r\n");
    // the code that they run may take long: it is run beside the loop
    let mut restore = |payload: &[u8]| {
        let mut reply = harness.raw(&mut wire, &[&b"function"[..], b"restore", payload]);
        while reply.is_empty() {
            reply = String::from_utf8_lossy(&harness.deliver(&mut wire)).into_owned();
        }
        reply
    };
    assert_eq!(restore(dump), "+OK\r\n");
    assert_eq!(restore(dump), "-ERR Library 'mylib' already exists\r\n");
    assert_eq!(restore(&dump[..dump.len() - 1]), "-ERR DUMP payload version or checksum are wrong\r\n");
    assert_eq!(ask(&harness, &mut wire, &["fcall", "put", "1", "k", "v"]), "+OK\r\n");
}

/// A client of redis-py waits for the line of a command that its script ran.
#[test]
fn monitor_shows_the_commands_of_a_script_that_has_ended_and_of_none_that_was_refused() {
    let mut harness = Harness::new();
    let (mut watcher, mut wire) = (harness.connect(), harness.connect());
    harness.line(&mut watcher, "MONITOR");
    let script = "redis.call('set', KEYS[1], 'v') redis.call('select', 3) redis.pcall('get') return redis.call('GET', 'k')";
    ask(&harness, &mut wire, &["eval", script, "1", "k"]);
    let seen = String::from_utf8(harness.deliver(&mut watcher)).expect("text");
    let shown: Vec<&str> = seen.lines().map(|line| &line[line.find('[').expect("a source")..]).collect();
    assert!(shown[0].starts_with("[0 127.0.0.1:0] \"eval\""), "{seen}");
    let expected = ["[0 lua] \"set\" \"k\" \"v\"", "[0 lua] \"select\" \"3\"", "[3 lua] \"GET\" \"k\""];
    assert_eq!(shown[1..], expected);
    for line in [&["multi"][..], &["eval", "return redis.call('incr', 'n')", "0"], &["exec"]] {
        ask(&harness, &mut wire, line);
    }
    ask(&harness, &mut wire, &["eval", "for n = 1, 10000 do redis.call('get', 'k') end", "0"]);
    let seen = String::from_utf8(harness.deliver(&mut watcher)).expect("text");
    assert_eq!(seen.matches("[0 lua] \"incr\" \"n\"").count(), 1, "{seen}");
    assert!((1_000..3_000).contains(&seen.matches("\"get\"").count()), "bounded");
}

/// What was found in the libraries of Redis's scripts: ranges, widths and depths beyond all use, and types that scripts share.
/// `unpack` and a long pattern ended the server. The classes of CVE-2024-31449, CVE-2025-46817, CVE-2025-46818, CVE-2025-49844, CVE-2018-11218 and CVE-2020-14147.
#[test]
fn script_that_is_made_to_do_harm_does_none() {
    let mut harness = Harness::new();
    let (mut wire, mut other) = (harness.connect(), harness.connect());
    for source in [
        "return {unpack({}, -2147483648, 2147483647)}",
        "return {unpack({}, 2147483646, 2147483647)}",
        "return {unpack({}, 0, 2^53)}",
        "return bit.tohex(65535, -2147483648)",
        "return bit.tohex(65535, 2147483648)",
        "return bit.lshift(1, -2147483648)",
        "return struct.pack('>I2147483648', 1)",
        "return struct.pack('!2147483648 i', 1)",
        "return struct.unpack('c0', string.rep('x', 9), -2147483648)",
        "return struct.unpack('>I2147483647', 'x')",
        "return struct.size('c2147483647c2147483647')",
        "local t = {} for _ = 1, 100000 do t = {t} end return cjson.encode(t)",
        "local t = {} for _ = 1, 100000 do t = {t} end return cmsgpack.pack(t)",
        "return cjson.decode(string.rep('[', 100000))",
        "return cmsgpack.unpack(string.rep('\\145', 100000))",
        "return cmsgpack.unpack_limit(string.rep('\\1', 99), 2^31, -2^31)",
        "return cmsgpack.unpack('\\221')",
        "return cmsgpack.unpack('\\222\\255\\255\\255\\255')",
        "return loadstring('\\27Lua\\81\\0\\1\\4\\8\\4\\8\\0')",
        "return string.rep('x', 2^53)",
        "return string.rep('x', -1)",
        "return string.format('%99999d', 1)",
        "return ('x'):rep(1e9)",
        "return table.concat({}, 'x', -2^31, 2^31)",
        "local t = {} for _ = 1, 100000 do t = {t} end return t",
        "return string.find('a', string.rep('a?', 500000) .. 'b')",
        "return string.gsub(string.rep('a', 500), string.rep('a-', 500000) .. 'b', '')",
        "return [[",
        "getmetatable('').__index = function() return 1 end return ('x').y",
        "getmetatable('').__add = nil return 1",
        "return setmetatable({}, {__gc = function() error('x') end})",
        "return tostring(setmetatable({}, {__tostring = function() return nil end}))",
        "local function f() return f() + 1 end return f()",
        "return pcall(pcall, pcall, error)",
        "return redis.call(unpack({'set', 'k'}, -2^31, 2))",
    ] {
        let reply = ask(&harness, &mut wire, &["eval", source, "0"]);
        assert!(!reply.is_empty() && wire.step != Step::Kill, "{source}: {reply}");
        assert_eq!(
            ask(&harness, &mut other, &["eval", "return ('x'):rep(3)", "0"]),
            "$3\r\nxxx\r\n",
            "{source}"
        );
    }
}

/// 2,000 values of a megabyte were held until the end, where they were refused.
#[test]
fn effects_beyond_one_group_are_refused_when_they_are_made() {
    let mut harness = Harness::with(|settings| settings.transaction_max = crate::settings::Size(4 << 20));
    let mut wire = harness.connect();
    let many =
        "local made = 0 for n = 1, 2000 do redis.call('set', 'k' .. n, string.rep('x', 1e6)) made = n end";
    let few = "for n = 1, 3 do redis.call('set', 'k' .. n, string.rep('x', 1e6)) end return redis.call('exists', 'k3')";
    let again = "for n = 1, 100 do redis.call('set', 'k', string.rep('x', 1e6)) end return 1";
    let reply = ask(&harness, &mut wire, &["eval", many, "0"]);
    assert!(reply.starts_with("-ERR the script changes more"), "{reply}");
    assert_eq!(harness.line(&mut wire, "exists k1"), ":0\r\n");
    check(&harness, &mut wire, &[(&["eval", few, "0"], ":1\r\n"), (&["eval", again, "0"], ":1\r\n")]);
    let grows = "for n = 1, 100 do redis.call('setrange', 'g' .. n, 1000000, 'x') end";
    let reply = ask(&harness, &mut wire, &["eval", grows, "0"]);
    assert!(reply.starts_with("-ERR the script changes more"), "{reply}");
    let mut listener = harness.connect();
    harness.line(&mut listener, "subscribe c");
    let tells = "for n = 1, 100 do redis.call('publish', 'c', string.rep('x', 1e6)) end";
    let reply = ask(&harness, &mut wire, &["eval", tells, "0"]);
    assert!(reply.starts_with("-ERR the script publishes more"), "{reply}");
    assert_eq!(harness.deliver(&mut listener), b"");
}

#[test]
fn reply_that_memory_has_no_room_for_ends_the_script() {
    let mut harness = Harness::with(|settings| settings.script_memory_limit = crate::settings::Size(2 << 20));
    let mut wire = harness.connect();
    harness.raw::<&[u8]>(&mut wire, &[b"set", b"large", &vec![b'x'; 3 << 20]]);
    for n in 0..300 {
        harness.raw::<&[u8]>(&mut wire, &[b"hset", b"h", format!("f{n}").as_bytes(), &[b'x'; 10_000]]);
    }
    for source in ["return redis.call('get', 'large')", "return #redis.call('hgetall', 'h')"] {
        let reply = ask(&harness, &mut wire, &["eval", source, "0"]);
        assert!(
            reply.starts_with("-ERR the reply to a command of the script needs more memory"),
            "{source}: {reply}"
        );
    }
    assert_eq!(
        ask(&harness, &mut wire, &["eval", "return redis.call('strlen', 'large')", "0"]),
        ":3145728\r\n"
    );
}

#[test]
fn read_only_scripts_tell_nobody_anything() {
    let mut harness = Harness::new();
    let (mut wire, mut listener) = (harness.connect(), harness.connect());
    harness.line(&mut listener, "subscribe c");
    for command in ["'publish', 'c', 'm'", "'pfcount', 'k'"] {
        let source = format!("return redis.call({command})");
        let reply = ask(&harness, &mut wire, &["eval_ro", &source, "0"]);
        assert!(reply.starts_with("-ERR Write commands are not allowed from read-only scripts."), "{reply}");
    }
    assert_eq!(harness.deliver(&mut listener), b"");
}

#[test]
fn numbers_as_text_and_names_in_any_case_are_taken_as_by_redis() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let library = "#!lua name=\"x\"\nredis.register_function('test', function() return 1 end)";
    let other = "#!lua NAME='y'\nredis.register_function('Test', function() return 1 end)";
    check(
        &harness,
        &mut wire,
        &[
            (&["eval", "redis.setresp('3') return redis.call('get', 'none') == nil", "0"], ":1\r\n"),
            (&["eval", "redis.log('2', 'x') redis.set_repl('3') return 1", "0"], ":1\r\n"),
            (&["function", "load", library], "$1\r\nx\r\n"),
            (&["fcall", "TEST", "0"], ":1\r\n"),
            (&["fcall", "test", "0"], ":1\r\n"),
            (&["function", "load", other], "-ERR Function Test already exists\r\n"),
            (&["function", "delete", "x"], "+OK\r\n"),
            (&["fcall", "TEST", "0"], "-ERR Function not found\r\n"),
        ],
    );
}

/// Its code ran for as long as it took: the limit counted instructions of Lua.
#[test]
fn code_of_a_library_that_does_not_end_is_ended() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    for body in [
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "local t = {1} for n = 1, 40 do t = {t, t, t, t} end while true do pcall(cjson.encode, t) end",
        "for n = 1, 1e9 do string.find(string.rep('a', 1e5), string.rep('a-', 60) .. 'b') end",
    ] {
        let library = format!("#!lua name=x\n{body}");
        let reply = ask(&harness, &mut wire, &["function", "load", &library]);
        assert!(reply.starts_with("-ERR FUNCTION LOAD timeout"), "{body}: {reply}");
    }
    let reply = ask(
        &harness,
        &mut wire,
        &["function", "load", "#!lua name=x\nlocal s = 'x' while true do s = s .. s end"],
    );
    assert!(reply.starts_with("-ERR FUNCTION LOAD needs more memory"), "{reply}");
}

#[test]
fn script_is_run_behind_the_load_that_brings_it_in_the_same_transaction() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let digest = "4ca238f611c9d0ae4e9a75a5dbac22aedc379801";
    check(
        &harness,
        &mut wire,
        &[
            (&["multi"], "+OK\r\n"),
            (&["evalsha", digest, "0"], "+QUEUED\r\n"),
            (&["script", "load", "return 5"], "+QUEUED\r\n"),
            (&["script", "flush"], "+QUEUED\r\n"),
            (&["evalsha", digest, "0"], "+QUEUED\r\n"),
            (&["script", "load", "return 5"], "+QUEUED\r\n"),
            (&["evalsha", digest, "0"], "+QUEUED\r\n"),
        ],
    );
    let bulk = format!("$40\r\n{digest}\r\n");
    let unknown = "-NOSCRIPT No matching script. Please use EVAL.\r\n";
    assert_eq!(
        ask(&harness, &mut wire, &["exec"]),
        format!("*6\r\n{unknown}{bulk}+OK\r\n{unknown}{bulk}:5\r\n")
    );
}

/// A source of 330 KB held its loop for 100 ms when it was loaded, one of 860 KB for 260 ms.
#[test]
fn long_sources_are_compiled_beside_the_loop_however_they_come() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let long = format!("--{}\nreturn 7", "x".repeat(100_000));
    let library = format!(
        "#!lua name=long\n--{}\nredis.register_function('f', function() return 8 end)",
        "x".repeat(100_000)
    );
    let mut count = harness.server.long.count();
    let mut beside = |wire: &mut Wire, words: &[&str], expected: &str| {
        let reply = ask(&harness, wire, words);
        assert!(reply.ends_with(expected), "{reply}");
        let before = std::mem::replace(&mut count, harness.server.long.count());
        assert_eq!(count, before + 1, "{:?}", words[0]);
        reply
    };
    let loaded = beside(&mut wire, &["script", "load", &long], "\r\n");
    let digest = &loaded[5..45];
    beside(&mut wire, &["evalsha", digest, "0"], ":7\r\n");
    beside(&mut wire, &["eval", &long, "0"], ":7\r\n");
    beside(&mut wire, &["function", "load", &library], "$4\r\nlong\r\n");
    beside(&mut wire, &["fcall", "f", "0"], ":8\r\n");
    let wrong = long.replace("return 7", "return '");
    let reply = ask(&harness, &mut wire, &["script", "load", &wrong]);
    assert!(reply.starts_with("-ERR Error compiling script"), "{reply}");
}

/// FUNCTION LOAD of a long source within MULTI was compiled on the loop, as were many short sources, and the libraries of FUNCTION RESTORE.
#[test]
fn sources_within_multi_are_compiled_beside_the_loop_however_they_come() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    let library = |name: &str, bytes: usize| {
        let comment = "x".repeat(bytes);
        format!("#!lua name={name}\n--{comment}\nredis.register_function('{name}', function() return 8 end)")
    };
    let short = |n: usize| format!("--{}\nreturn {n}", "x".repeat(40_000));
    let (long, one, two) = (library("long", 100_000), library("one", 10), library("two", 10));
    let (source, other) = (short(1), short(2));
    let cases: [(&[&[&str]], &str); 4] = [
        (&[&["function", "load", &long]], "*1\r\n$4\r\nlong\r\n"),
        (
            &[&["function", "load", &one], &["function", "load", &two], &["function", "load", &two]],
            "*3\r\n$3\r\none\r\n$3\r\ntwo\r\n-ERR Library 'two' already exists\r\n",
        ),
        (&[&["eval", &source, "0"], &["eval", &other, "0"]], "*2\r\n:1\r\n:2\r\n"),
        (
            &[&["function", "restore", "x"], &["function", "load", "x"]],
            "*2\r\n-ERR DUMP payload version or checksum are wrong\r\n-ERR Missing library metadata\r\n",
        ),
    ];
    for (commands, expected) in cases {
        assert_eq!(ask(&harness, &mut wire, &["multi"]), "+OK\r\n");
        for command in commands {
            assert_eq!(ask(&harness, &mut wire, command), "+QUEUED\r\n");
        }
        let before = harness.server.long.count();
        assert_eq!(ask(&harness, &mut wire, &["exec"]), expected);
        assert_eq!(harness.server.long.count(), before + 1, "{:?}", commands[0][0]);
    }
    assert_eq!(ask(&harness, &mut wire, &["fcall", "one", "0"]), ":8\r\n");
}

/// A library that took longer to load than a script may run on a loop was loaded anew for each call, beside the loop.
#[test]
fn library_is_loaded_once_on_a_loop_however_long_its_code_runs_then() {
    let mut harness = Harness::new();
    let mut wire = harness.connect();
    // a script on a loop may do a million steps where the clock stands still, a library ten
    let library = "#!lua name=busy\nlocal n = 0 for i = 1, 3000000 do n = n + 1 end\n\
        redis.register_function('count', function() return n end)";
    assert_eq!(ask(&harness, &mut wire, &["function", "load", library]), "$4\r\nbusy\r\n");
    // any change of the libraries has interpreters forget them
    let other = "#!lua name=other\nredis.register_function('o', function() return 1 end)";
    assert_eq!(ask(&harness, &mut wire, &["function", "load", other]), "$5\r\nother\r\n");
    for _ in 0..3 {
        assert_eq!(ask(&harness, &mut wire, &["fcall", "count", "0"]), ":3000000\r\n");
    }
    assert_eq!(harness.server.long.count(), 0, "all of it on the loop");
}

#[test]
fn function_kill_ends_the_load_of_a_library() {
    let mut harness = Harness::new();
    let (mut loads, mut kills) = (harness.connect(), harness.connect());
    let library = format!("#!lua name=endless\n--{}\nwhile true do end", "x".repeat(100_000));
    assert_eq!(harness.raw(&mut loads, &["function", "load", &library]), "");
    while ask(&harness, &mut kills, &["function", "stats"]).contains("running_script\r\n$-1") {
        std::thread::yield_now();
    }
    assert_eq!(ask(&harness, &mut kills, &["function", "kill"]), "+OK\r\n");
    let mut reply = String::new();
    while reply.is_empty() {
        reply = String::from_utf8_lossy(&harness.deliver(&mut loads)).into_owned();
    }
    assert_eq!(reply, "-ERR Script killed by user with FUNCTION KILL.\r\n");
    assert_eq!(ask(&harness, &mut kills, &["function", "list"]), "*0\r\n");
}
