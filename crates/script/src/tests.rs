//! What scripts see of Lua and of the libraries, without a server.

use std::sync::Arc;
use std::time::Duration;

use clock::{Clock, Nanos, SimClock, SystemClock, UnixMs};
use resp::{Args, ArgsView, Writer};

use super::cache::{Digest, Script};
use super::{Client, Code, Ended, Host, Inputs, Interpreter, Outcome, Over, Pace};

/// Answers each command with its arguments; `fail` with an error, `end` by ending the attempt.
struct Echo;

impl Host for Echo {
    fn call(&mut self, args: ArgsView<'_>, resp3: bool, _: usize, out: &mut Vec<u8>) -> Result<(), Ended> {
        let mut writer = Writer::new(out, resp3);
        match args.get(0) {
            b"fail" => writer.error("ERR failed"),
            b"end" => return Err(Ended),
            _ => {
                writer.array(args.len());
                args.iter().for_each(|arg| writer.bulk(arg));
            }
        }
        Ok(())
    }

    fn may(&self, args: ArgsView<'_>) -> Option<bool> {
        Some(args.get(0) != b"fail").filter(|_| args.get(0) != b"unknown")
    }
}

fn interpreter() -> Interpreter {
    Interpreter::new(8 << 20).expect("memory")
}

fn pace(looks_max: u32) -> Pace {
    let clock = Arc::new(SimClock::new(UnixMs(0)));
    Pace { clock, until: Nanos(u64::MAX), looks_max, running: None }
}

fn outcome(interpreter: &mut Interpreter, source: &str, out: &mut Vec<u8>) -> Outcome {
    let digest = Digest::of(source.as_bytes());
    let script = Arc::new(Script::new(source.as_bytes(), digest).expect("a script"));
    let args = Args::from_slices(&[b"EVAL", b"", b"1", b"key", b"arg"]);
    let inputs = Inputs { args: args.view(&[]), keys_at: 3, keys: 1, seed: 7 };
    let client = Client { resp3: false, reply_bytes_max: 1 << 20 };
    interpreter.run(Code::Script(&script), inputs, &mut Echo, pace(20_000), client, out)
}

/// The reply, or the text of the error.
#[track_caller]
fn run(interpreter: &mut Interpreter, source: &str) -> String {
    let mut out = Vec::new();
    match outcome(interpreter, source, &mut out) {
        Outcome::Reply => String::from_utf8_lossy(&out).into_owned(),
        Outcome::Error(text) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{source}: {other:?}"),
    }
}

#[test]
fn script_gets_its_keys_and_arguments_and_calls_commands() {
    let lua = &mut interpreter();
    assert_eq!(run(lua, "return {KEYS[1], ARGV[1], #KEYS}"), "*3\r\n$3\r\nkey\r\n$3\r\narg\r\n:1\r\n");
    assert_eq!(run(lua, "return redis.call('x', 1, 2.5)"), "*3\r\n$1\r\nx\r\n$1\r\n1\r\n$3\r\n2.5\r\n");
    assert_eq!(run(lua, "return redis.pcall('fail')"), "-ERR failed\r\n");
    let failed = run(lua, "local a = 1\nreturn redis.call('fail')");
    assert!(
        failed.starts_with("ERR failed script: ") && failed.ends_with(", on @user_script:2."),
        "{failed}"
    );
}

#[test]
fn nothing_that_outlives_a_run_can_be_changed() {
    let lua = &mut interpreter();
    for source in [
        "x = 1",
        "_G.x = 1",
        "redis.call = 1",
        "string.format = 1",
        "cjson.x = 1",
        "KEYS = {}",
        "rawset(_G, 'x', 1)",
        "rawset(math, 'x', 1)",
        "setmetatable(_G, {})",
        "table.insert(redis, 1)",
        "getmetatable('').__index = 1",
        "getmetatable(_G).__index = 1",
    ] {
        let text = run(lua, source);
        assert!(text.contains("Attempt to modify a readonly table"), "{source}: {text}");
    }
    assert_eq!(run(lua, "return pcall(function() return x end)"), "$-1\r\n");
    let text = run(lua, "return x");
    assert!(text.contains("Script attempted to access nonexistent global variable 'x'"), "{text}");
}

#[test]
fn what_reaches_out_of_the_sandbox_is_not_there() {
    let lua = &mut interpreter();
    for name in [
        "print", "dofile", "loadfile", "require", "io", "debug", "package", "getfenv", "setfenv", "newproxy",
        "module",
    ] {
        let text = run(lua, &format!("return {name}"));
        assert!(text.contains("nonexistent global variable"), "{name}: {text}");
    }
    assert_eq!(run(lua, "return pcall(string.dump, function() end)"), "$-1\r\n");
    assert_eq!(run(lua, "return loadstring('\\27Lua')"), "$-1\r\n");
    assert_eq!(run(lua, "return loadstring('return 7')()"), ":7\r\n");
    assert_eq!(run(lua, "local f = load(function() return nil end) return type(f)"), "$8\r\nfunction\r\n");
}

#[test]
fn attempt_that_is_over_cannot_be_caught() {
    let lua = &mut interpreter();
    for source in [
        "redis.call('end') return 1",
        "pcall(redis.call, 'end') return 1",
        "redis.pcall('end') return 1",
        "xpcall(function() redis.call('end') end, function() return 1 end) return 1",
        "local co = coroutine.create(function() redis.call('end') end) coroutine.resume(co) return 1",
        "coroutine.wrap(function() pcall(redis.call, 'end') end)() return 1",
        "while true do pcall(redis.call, 'end') end",
    ] {
        let mut out = Vec::new();
        let outcome = outcome(lua, source, &mut out);
        assert!(matches!(outcome, Outcome::Over(Over::Host)) && out.is_empty(), "{source}: {outcome:?}");
    }
    assert_eq!(run(lua, "return 1"), ":1\r\n", "the next run begins anew");
}

#[test]
fn endless_loop_is_stopped_wherever_it_is() {
    let lua = &mut interpreter();
    for source in [
        "local t = {} for n = 1, 1e5 do t[n] = 'a' end \
         while true do pcall(table.sort, t, function() for n = 1, 1e9 do end end) end",
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "coroutine.wrap(function() while true do end end)()",
        "xpcall(function() while true do end end, function() while true do end end)",
    ] {
        let mut out = Vec::new();
        let outcome = outcome(lua, source, &mut out);
        assert!(matches!(outcome, Outcome::Over(Over::Time)), "{source}: {outcome:?}");
    }
}

#[test]
fn memory_beyond_the_limit_ends_a_script() {
    for source in [
        "local t = {} while true do t[#t + 1] = string.rep('x', 1000) .. #t end",
        "return string.rep('x', 1e9)",
        "local s = 'x' while true do s = s .. s end",
    ] {
        let lua = &mut interpreter();
        let mut out = Vec::new();
        let outcome = outcome(lua, source, &mut out);
        assert!(matches!(outcome, Outcome::Memory), "{source}: {outcome:?}");
        assert!(lua.is_spent());
    }
}

#[test]
fn chance_is_equal_in_runs_with_equal_seeds() {
    let lua = &mut interpreter();
    let numbers = "local t = {} for n = 1, 9 do t[n] = math.random(1000) end return t";
    assert_eq!(run(lua, numbers), run(lua, numbers));
    assert_eq!(run(lua, "math.randomseed(5) return math.random(100)"), ":53\r\n");
    assert!(run(lua, "return math.random(0)").contains("interval is empty"));
}

#[test]
fn errors_are_caught_as_in_redis() {
    let lua = &mut interpreter();
    assert_eq!(run(lua, "local _, e = pcall(redis.call, 'fail') return e"), "$10\r\nERR failed\r\n");
    assert_eq!(run(lua, "local _, e = pcall(error, {err = 'E x'}) return e"), "$3\r\nE x\r\n");
    let handled =
        "local _, e = xpcall(function() redis.call('fail') end, function(e) return e.err end) return e";
    assert_eq!(run(lua, handled), "$10\r\nERR failed\r\n");
    assert!(run(lua, "error('boom')").starts_with("ERR user_script:1: boom script: "));
    assert!(run(lua, "error({err = 'My Err'})").starts_with("My Err script: "));
}

/// Lua with the checks of its debug build ended the process here.
#[test]
fn any_number_of_values_is_returned_through_pcall() {
    let lua = &mut interpreter();
    for count in [18, 19, 20, 21, 100, 5_000, 7_998, 7_999] {
        let source = format!(
            "local t = {{}} for n = 1, {count} do t[n] = n end \
             local co = coroutine.create(function(...) return unpack(...) end) \
             return {{select('#', pcall(unpack, t)), select('#', coroutine.resume(co, t))}}"
        );
        let many = count + 1;
        assert_eq!(run(lua, &source), format!("*2\r\n:{many}\r\n:{many}\r\n"));
    }
}

#[test]
fn libraries_give_the_results_of_redis() {
    let lua = &mut interpreter();
    let cases = [
        ("return cjson.encode({1, 2, {a = 'x/\"', b = cjson.null}})", ""),
        ("return cjson.encode({})", "{}"),
        ("return cjson.encode({1.5, 1e15, 0.1, true})", "[1.5,1e+15,0.1,true]"),
        ("return cjson.encode('\\1\\127/')", "\"\\u0001\\u007f\\/\""),
        ("return tostring(cjson.decode('[1,{\"a\":null}]')[2].a == cjson.null)", "true"),
        ("return cjson.encode(cjson.decode('\"\\\\ud83d\\\\ude00\"'))", "\"\u{1f600}\""),
        ("return struct.unpack('z', 'a')", ""),
        ("return struct.unpack('>I2', struct.pack('>I2', 513))", ":513"),
        ("return cmsgpack.unpack(cmsgpack.pack({1, 'two', {a = 3.5}}))[2]", "two"),
        ("return bit.tohex(bit.bor(1, 2, 0xf0))", "000000f3"),
        ("return bit.band(-1, 255)", ":255"),
        ("return redis.sha1hex('')", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
    ];
    for (source, expected) in cases {
        let reply = run(lua, source);
        assert!(reply.contains(expected), "{source}: {reply}");
    }
}

/// Lua's own functions tried for as long as it took: neither the limit nor SCRIPT KILL ended them.
#[test]
fn pattern_that_tries_without_end_is_ended_with_the_run() {
    let mut interpreter = interpreter();
    for call in [
        "find(text, pattern)",
        "match(text, pattern)",
        "gsub(text, pattern, '')",
        "gmatch(text, pattern)()",
        "find(text, '(a*)' .. pattern)",
    ] {
        let source = format!(
            "local text, pattern = string.rep('a', 200), string.rep('a-', 60) .. 'b' \
             return pcall(function() return string.{call} end)"
        );
        let outcome = outcome(&mut interpreter, &source, &mut Vec::new());
        assert!(matches!(outcome, Outcome::Over(Over::Time)), "{call}: {outcome:?}");
    }
}

/// What the run came to under a clock that goes, within `ms` of a second.
fn timed(interpreter: &mut Interpreter, source: &str, ms: u64, out: &mut Vec<u8>) -> Outcome {
    let digest = Digest::of(source.as_bytes());
    let script = Arc::new(Script::new(source.as_bytes(), digest).expect("a script"));
    let args = Args::from_slices(&[b"EVAL", b"", b"1", b"key", b"arg"]);
    let inputs = Inputs { args: args.view(&[]), keys_at: 3, keys: 1, seed: 7 };
    let client = Client { resp3: false, reply_bytes_max: 1 << 20 };
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let until = clock.now() + Duration::from_millis(ms);
    let pace = Pace { clock, until, looks_max: u32::MAX, running: None };
    interpreter.run(Code::Script(&script), inputs, &mut Echo, pace, client, out)
}

/// One of them ended the process, others held the loop for minutes or took gigabytes: `unpack({}, 4294967296, 2147483647)`,
/// `string.rep('', 2147483647)`, a plain search for half of a text, `table.sort` of long texts, `cjson.encode` of tables in tables.
#[test]
fn what_takes_long_or_much_is_ended_or_refused() {
    for source in [
        "return unpack({}, 4294967296, 2147483647)",
        "return unpack({}, -2^31, 2^31 - 1)",
        "return unpack({}, 0/0, 2^53)",
        "return unpack({}, '1', '2147483647')",
        "return string.rep('', 2147483647)",
        "return string.rep('x', 2^53)",
        "local t = {1} for n = 1, 14 do t = {t, t, t, t} end return t",
        "local t = {1} for n = 1, 14 do t = {t, t, t, t} end return cjson.encode(t)",
        "local t = {1} for n = 1, 14 do t = {t, t, t, t} end return cmsgpack.pack(t)",
        "local t = {} t[1] = t return cmsgpack.pack(t)",
        "local t = {} t[1] = t return cjson.encode(t)",
        "local s = string.rep('x', 1e6) local t = {} for n = 1, 2000 do t[n] = s end return cjson.encode(t)",
        "local s = string.rep('x', 1e6) local t = {} for n = 1, 2000 do t[n] = s end return cmsgpack.pack(t)",
        "local s = string.rep('x', 1e6) return string.gsub(string.rep('a', 2000), 'a', s)",
        "local s = string.rep('x', 1e6) return struct.pack(string.rep('s', 2000), unpack({s, s, s}))",
        "return cmsgpack.unpack(string.rep('a', 3e6))",
        "return struct.unpack(string.rep('B', 1e6), string.rep('a', 1e6))",
        "return string.find(string.rep('a', 2e6), string.rep('a', 1e6) .. 'b', 1, true)",
        "return string.find(string.rep('a', 2e6), string.rep('a', 1e6) .. 'b')",
        "return string.find(string.rep('b', 1e6), '[^' .. string.rep('a', 1e5) .. ']*c')",
        "local s = string.rep('a', 2e6) local t = {} for n = 1, 5e4 do t[n] = n % 2 == 0 and s .. 'b' or t[n - 2] or s .. 'c' end \
         table.sort(t)",
        "return string.format(string.rep('%99.99f', 7999), unpack({1e308, 1e308}))",
        "return table.concat({}, string.rep('x', 1e6), 1, 2^31 - 1)",
        "table.insert({}, -2^31, 5) return table.insert({}, 2^53, 5)",
        "return table.remove({}, 2^53)",
        "return string.byte(string.rep('x', 1e6), 1, -1)",
        "return loadstring(string.rep('(', 1e6))",
        "return loadstring('return ' .. string.rep('{', 1e5))",
        "local f = 'return 1' for n = 1, 1e3 do f = 'return ' .. f:rep(2) end return loadstring(f)",
        "local co = coroutine.wrap(function() end) \
         local function nest(n) return coroutine.wrap(function() return nest(n + 1) end)() end return pcall(nest, 1)",
        "local function f() return pcall(f) end return f()",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) return t[1]",
        "return redis.call('x', unpack({string.rep('x', 3e6), string.rep('y', 3e6)}))",
        "local s = 'x' for n = 1, 1e6 do s = s .. 'x' end return #s",
        "for n = 1, 1e7 do pcall(string.rep, 'x', 1e6) end",
        "for n = 1, 1e7 do collectgarbage() end",
        "return math.random(-2^53, 2^53) + math.random(0/0)",
        "redis.log(redis.LOG_WARNING + 9, string.rep('x', 1e6))",
        "return redis.sha1hex(string.rep('x', 3e6))",
    ] {
        let mut interpreter = interpreter();
        let mut out = Vec::new();
        let outcome = timed(&mut interpreter, source, 20, &mut out);
        assert!(matches!(outcome, Outcome::Reply) || out.is_empty(), "{source}: {outcome:?}");
        assert!(interpreter.memory_bytes() < (8 << 20) + (1 << 20), "{source}");
        assert!(out.capacity() <= 8 << 20, "{source}");
    }
}

/// Every function of every table that a script can reach, with arguments that are large, endless, or of another kind.
#[test]
fn functions_of_all_tables_take_arguments_of_any_kind() {
    const WALK: &str = "local seen, list = {[_G] = true}, {} \
        local function walk(t) for _, v in pairs(t) do \
            if type(v) == 'function' then list[#list + 1] = v \
            elseif type(v) == 'table' and not seen[v] then seen[v] = true walk(v) end end end \
        walk(_G) walk(getmetatable('')) walk(cjson.new()) ";
    let count = {
        let mut out = Vec::new();
        assert!(matches!(
            timed(&mut interpreter(), &format!("{WALK} return #list"), 5_000, &mut out),
            Outcome::Reply
        ));
        String::from_utf8_lossy(&out[1..]).trim().parse::<usize>().expect("a number")
    };
    assert!(count > 90, "{count} functions");
    let mut interpreter = interpreter();
    for at in 1..=count {
        let source = format!(
            "{WALK} local f, me = list[{at}], {{1, 2, 3, a = 'b'}} me.me = me \
             local wide = {{}} for n = 1, 2000 do wide[n] = me end \
             local some = {{0, 1, -1, 0/0, 1/0, 2^31, -2^31, 2^53, '', '2147483647', string.rep('%a-', 60), \
                 string.rep('a', 1e5), me, wide, function(...) return ... end, true}} \
             for _, a in ipairs(some) do pcall(f, a) for _, b in ipairs(some) do pcall(f, a, b) pcall(f, a, b, some[7]) \
                 pcall(f, a, b, some[8], some[12]) end end \
             pcall(f) return pcall(f, unpack(wide))"
        );
        let mut out = Vec::new();
        let outcome = timed(&mut interpreter, &source, 8, &mut out);
        if matches!(outcome, Outcome::Memory) {
            interpreter = self::interpreter();
        }
        assert!(matches!(outcome, Outcome::Reply) || out.is_empty(), "function {at}: {outcome:?}");
    }
    assert_eq!(run(&mut self::interpreter(), "return 1"), ":1\r\n");
}

#[test]
fn garbage_of_large_texts_is_collected_before_the_limit_is_met() {
    let lua = &mut interpreter();
    for source in [
        "local n = 0 for i = 1, 40 do n = n + #string.rep('x', 2e6) end return n",
        "local s = '' for i = 1, 40 do s = string.rep('x', 1e6) .. i end return #s > 0 and 1",
        "local n = 0 for i = 1, 20 do n = n + #cjson.encode(string.rep('x', 1e6)) end return n",
        "for i = 1, 30 do redis.call('x', string.rep('x', 1e6)) end return 1",
    ] {
        let mut out = Vec::new();
        let outcome = timed(lua, source, 60_000, &mut out);
        assert!(matches!(outcome, Outcome::Reply), "{source}: {outcome:?}");
    }
}

#[test]
fn no_script_sees_what_another_did() {
    let lua = &mut interpreter();
    for (source, look) in [
        ("local t = pairs(string) string.lower = nil", "return type(string.lower)"),
        ("local _, h = pairs(string) h.lower = function() end", "return type(string.lower)"),
        ("local m = getmetatable('') rawset(m, '__index', nil)", "return type(('').lower)"),
        ("loadstring('x = 1')()", "return type(rawget(_G, 'x')) == 'nil' and 'function'"),
        (
            "rawset(getmetatable(_G), '__index', {x = 1})",
            "return type(rawget(_G, 'x')) == 'nil' and 'function'",
        ),
        ("KEYS[1] = 'other' ARGV.x = 1", "return KEYS[1] == 'key' and not ARGV.x and 'function'"),
        (
            "cjson.encode_number_precision(3)",
            "return cjson.encode(1.23456789) == '1.23456789' and 'function'",
        ),
        ("redis.setresp(3)", "return type(redis.call)"),
    ] {
        let mut out = Vec::new();
        outcome(lua, source, &mut out);
        assert_eq!(run(lua, look), "$8\r\nfunction\r\n", "{source}");
    }
}

#[test]
fn numbers_are_shown_as_by_lua_5_1() {
    let lua = &mut interpreter();
    for (source, expected) in [
        ("tostring(1e15)", "1e+15"),
        ("tostring(0.1 + 0.2)", "0.3"),
        ("tostring(10 / 3)", "3.3333333333333"),
        ("tostring(12345678901234)", "12345678901234"),
        ("tostring(-0.0)", "-0"),
        ("string.format('%s %d %s', 0.1 + 0.2, 3, 1e15)", "0.3 3 1e+15"),
        ("string.format('%5.1f|%s', 2.25, 10 / 3)", "  2.2|3.3333333333333"),
    ] {
        assert_eq!(run(lua, &format!("return {source}")), format!("${}\r\n{expected}\r\n", expected.len()));
    }
}
