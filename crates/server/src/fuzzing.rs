//! Doors for fuzz targets: the decoders of this crate as functions of bytes. Not part of the interface.

use std::cell::RefCell;
use std::sync::Arc;

use clock::{Nanos, SimClock, UnixMs};
use resp::{Args, ArgsView};
use script::cache::{Digest, Script};
use script::library::Libraries;
use script::{Client, Code, Ended, Host, Inputs, Interpreter, Outcome, Pace};

use crate::topologies::record::{Definition, decode_list, encode_list};

/// Decodes a payload of FUNCTION RESTORE, with the right checksum or as it is; returns whether it is one.
///
/// # Panics
/// When what was taken is not what FUNCTION DUMP writes for the same libraries, read once more: a bug of the decoder.
#[must_use]
pub fn libraries(payload: &[u8]) -> bool {
    let sealed = commands::sealed::seal(payload.to_vec());
    let taken = |bytes: &[u8]| {
        let Some(libraries) = Libraries::decode(bytes) else { return false };
        let written = libraries.encode();
        let again = Libraries::decode(&written).expect("what was written is read");
        assert_eq!(again.encode(), written, "the same libraries, two payloads");
        true
    };
    taken(payload) | taken(&sealed)
}

/// Decodes what the store keeps of topologies, with the right checksum or as it is; returns whether it is that.
///
/// # Panics
/// When what was taken is written otherwise than it was: a bug of the decoder.
#[must_use]
pub fn topologies(record: &[u8]) -> bool {
    let taken = |bytes: &[u8]| {
        let definition = Definition::decode(bytes);
        if let Some(definition) = &definition {
            assert_eq!(Definition::decode(&definition.encode()).as_ref(), Some(definition));
        }
        let list = decode_list(bytes);
        if let Some(list) = &list {
            let written = encode_list(list.iter().map(|(name, listed)| (name.as_str(), listed)));
            assert_eq!(decode_list(&written).as_ref(), Some(list));
        }
        definition.is_some() || list.is_some()
    };
    taken(record) | taken(&commands::sealed::seal(record.to_vec()))
}

/// Has a script decode `input` as JSON, as MessagePack, and by itself as a format of `struct`, and encode what it was.
///
/// # Panics
/// When the script neither ends nor is ended by its limits: a bug of a library.
pub fn script_decoders(input: &[u8]) {
    thread_local! {
        static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
    }
    let source = b"for _, decode in ipairs({cjson.decode, cmsgpack.unpack}) do \
        local ok, value = pcall(decode, ARGV[1]) \
        if ok then pcall(cjson.encode, value) pcall(cmsgpack.pack, value) end \
        end \
        pcall(struct.unpack, ARGV[1], ARGV[1]) pcall(struct.size, ARGV[1]) pcall(struct.pack, ARGV[1], 1, 'a', 2)";
    let script = Arc::new(Script::new(source, Digest::of(source)).expect("it has no first line"));
    let args = Args::from_slices(&[b"EVAL", b"", b"0", input]);
    let inputs = Inputs { args: args.view(&[]), keys_at: 3, keys: 0, seed: 0 };
    let clock = Arc::new(SimClock::new(UnixMs(0)));
    let pace = Pace { clock, until: Nanos(u64::MAX), looks_max: 20_000, running: None };
    let client = Client { resp3: false, reply_bytes_max: 1 << 20 };
    let made = || Interpreter::new(8 << 20).expect("there is memory");
    let mut interpreter = INTERPRETER.take().filter(|it| !it.is_spent()).unwrap_or_else(made);
    let outcome = interpreter.run(Code::Script(&script), inputs, &mut NoHost, pace, client, &mut Vec::new());
    assert!(matches!(outcome, Outcome::Reply | Outcome::Memory), "{outcome:?}");
    INTERPRETER.set(Some(interpreter));
}

/// Has a script call functions of its libraries: each three bytes of `input` choose one and its arguments.
///
/// # Panics
/// When a function does: a bug.
pub fn script_functions(input: &[u8]) {
    thread_local! {
        static INTERPRETER: RefCell<Option<Interpreter>> = const { RefCell::new(None) };
    }
    let source = b"local seen, names, all = {[_G] = true}, {}, {} \
        local function walk(prefix, t) for k, v in pairs(t) do local name = prefix .. tostring(k) \
            if type(v) == 'function' then names[#names + 1] = name all[name] = v \
            elseif type(v) == 'table' and not seen[v] then seen[v] = true walk(name .. '.', v) end end end \
        walk('', _G) table.sort(names) \
        local me = {1, 2, 3} me.me = me \
        local some = {0, 1, -1, 2, 0/0, 1/0, 2^31 - 1, 2^31, -2^31, 2^53, '', 'a', '9', '%a*', '>i2', ARGV[1], me, {}, true, \
            string.rep('a', 999), cjson.encode, KEYS, ARGV, _G} \
        local program, last = ARGV[1], nil \
        for at = 1, #program - 2, 3 do \
            local f, a, b = program:byte(at, at + 2) \
            local x, y = some[a % (#some + 1)], some[b % (#some + 1)] \
            if a > 200 then x = last end if b > 230 then y = program:sub(at) end \
            local ok, result = pcall(all[names[f % #names + 1]], x, y, some[(a + b) % (#some + 1)]) \
            if ok then last = result end \
        end";
    let script = Arc::new(Script::new(source, Digest::of(source)).expect("it has no first line"));
    let args = Args::from_slices(&[b"EVAL", b"", b"0", input]);
    let inputs = Inputs { args: args.view(&[]), keys_at: 3, keys: 0, seed: 0 };
    let clock = Arc::new(SimClock::new(UnixMs(0)));
    let pace = Pace { clock, until: Nanos(u64::MAX), looks_max: 2_000, running: None };
    let client = Client { resp3: false, reply_bytes_max: 1 << 20 };
    let made = || Interpreter::new(8 << 20).expect("there is memory");
    let mut interpreter = INTERPRETER.take().filter(|it| !it.is_spent()).unwrap_or_else(made);
    let outcome = interpreter.run(Code::Script(&script), inputs, &mut NoHost, pace, client, &mut Vec::new());
    assert!(
        !matches!(&outcome, Outcome::Error(text) if text.starts_with(b"ERR Error compiling")),
        "{outcome:?}"
    );
    INTERPRETER.set(Some(interpreter));
}

/// Runs no commands: all of them are answered alike.
struct NoHost;

impl Host for NoHost {
    fn call(&mut self, _: ArgsView<'_>, _: bool, _: usize, out: &mut Vec<u8>) -> Result<(), Ended> {
        out.extend_from_slice(b"+OK\r\n");
        Ok(())
    }

    fn may(&self, _: ArgsView<'_>) -> Option<bool> {
        Some(true)
    }
}
