//! What scripts see of Lua and of the libraries, without a server.

use std::sync::Arc;

use clock::{Nanos, SimClock, UnixMs};
use resp::{Args, ArgsView, Writer};

use super::cache::{Digest, Script};
use super::{Client, Code, Ended, Host, Inputs, Interpreter, Outcome, Over, Pace};

/// Answers each command with its arguments; `fail` with an error, `end` by ending the attempt.
struct Echo;

impl Host for Echo {
    fn call(&mut self, args: ArgsView<'_>, resp3: bool, out: &mut Vec<u8>) -> Result<(), Ended> {
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
}

fn interpreter() -> Interpreter {
    Interpreter::new(8 << 20, crate::table::commands()).expect("memory")
}

fn pace(steps_max: u32) -> Pace {
    let clock = Arc::new(SimClock::new(UnixMs(0)));
    Pace { clock, until: Nanos(u64::MAX), steps_max, running: None }
}

fn outcome(interpreter: &mut Interpreter, source: &str, out: &mut Vec<u8>) -> Outcome {
    let digest = Digest::of(source.as_bytes());
    let script = Arc::new(Script::new(source.as_bytes(), digest).expect("a script"));
    let args = Args::from_slices(&[b"EVAL", b"", b"1", b"key", b"arg"]);
    let inputs = Inputs { args: args.view(&[]), keys_at: 3, keys: 1, seed: 7 };
    let client = Client { resp3: false, reply_bytes_max: 1 << 20 };
    interpreter.run(Code::Script(&script), inputs, (&mut Echo, pace(20)), client, out)
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
    assert_eq!(run(lua, "return loadstring(string.dump(function() end))"), "$-1\r\n");
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
        "while true do end",
        "while true do pcall(function() while true do end end) end",
        "coroutine.wrap(function() while true do end end)()",
        "local function f() return f() end f()",
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
    for count in [18, 19, 20, 21, 100, 5_000] {
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
        "find(string.rep('(', 100000), string.rep('%b()', 2))",
    ] {
        let source = format!(
            "local text, pattern = string.rep('a', 200), string.rep('a-', 60) .. 'b' \
             return pcall(function() return string.{call} end)"
        );
        let outcome = outcome(&mut interpreter, &source, &mut Vec::new());
        assert!(matches!(outcome, Outcome::Over(Over::Time)), "{call}: {outcome:?}");
    }
}
