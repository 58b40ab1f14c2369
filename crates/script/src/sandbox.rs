//! An interpreter as scripts see it (`sandbox.lua`), and the functions of ours that it is made with.
//!
//! Luau's own table of globals is gone when the sandbox is made. A script's functions have a table of their own as globals: a copy of
//! that of `sandbox.lua`, made for the run and read-only, as all tables in it are. What code names is looked up when it is loaded in the
//! table of the interpreter (`base`), which has only what is the same for all.

use std::rc::Rc;

use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Function, Lua, LuaOptions, MultiValue, StdLib, Table, Value};

use super::args::Given;
use super::meter::OUT_OF_MEMORY;
use super::thrown::{self, Thrown};
use super::{Shared, api, bit, cjson, cmsgpack, interrupt, numbers, pack};

/// A sandbox.
pub(super) struct Made {
    pub(super) lua: Lua,
    /// Makes a table of globals: for a library, if it is called with `true`.
    pub(super) environment: Function,
    /// Calls a function, and one with keys and arguments.
    pub(super) call: Function,
    pub(super) call_with: Function,
}

/// A new one.
///
/// # Errors
/// What Lua refuses: memory.
pub(super) fn make(shared: &Rc<Shared>) -> mlua::Result<Made> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH | StdLib::COROUTINE;
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
    let ours = lua.create_table()?;
    let meter = &shared.meter;
    ours.raw_set("redis", api::module(&lua, shared)?)?;
    let of_library = api::module(&lua, shared)?;
    of_library.raw_set("register_function", api::register(&lua, shared)?)?;
    ours.raw_set("redis_of_library", of_library)?;
    ours.raw_set("cjson", cjson::module(&lua, meter, &shared.json)?)?;
    ours.raw_set("cmsgpack", cmsgpack::module(&lua, meter)?)?;
    ours.raw_set("struct", pack::module(&lua, meter)?)?;
    ours.raw_set("bit", bit::module(&lua, meter)?)?;
    add_errors(&lua, shared, &ours)?;
    add_chance(&lua, shared, &ours)?;
    add_texts(&lua, shared, &ours)?;
    let compiler = Compiler::new().set_debug_level(0);
    let chunk = lua.load(include_str!("sandbox.lua")).set_name("=sandbox").set_compiler(compiler);
    let (base, environment, call, call_with): (Table, Function, Function, Function) = chunk.call(&ours)?;
    base.set_safeenv(true);
    lua.set_globals(base)?;
    interrupt::install(&lua)?;
    lua.gc_collect()?;
    Ok(Made { lua, environment, call, call_with })
}

fn add_errors(lua: &Lua, shared: &Rc<Shared>, ours: &Table) -> mlua::Result<()> {
    let of_run = Rc::clone(shared);
    // what a script sees of an error that it has caught: of a reply the text alone, if it `is_text`
    let caught = move |lua: &Lua, (is_text, error): (bool, Value)| {
        of_run.meter.tick(1)?;
        match raised(lua, error)? {
            Value::Table(table) if is_text => match table.raw_get("err")? {
                text @ Value::String(_) => Ok(text),
                _ => Ok(Value::Table(table)),
            },
            other => Ok(other),
        }
    };
    ours.raw_set("caught", lua.create_function(caught)?)?;
    ours.raw_set("on_error", lua.create_function(on_error)?)
}

/// An error as a script sees it that has caught it.
fn raised(lua: &Lua, error: Value) -> mlua::Result<Value> {
    match &error {
        Value::Error(inner) => match thrown::of(inner) {
            Some(Thrown::Halt) => Err(Thrown::Halt.into()),
            Some(Thrown::Reply(text)) => Ok(Value::Table(api::error_table(lua, text)?)),
            Some(Thrown::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
            None => Ok(Value::String(lua.create_string(thrown::message(inner))?)),
        },
        Value::String(text) => match with_our_words(&text.as_bytes()) {
            Some(text) => Ok(Value::String(lua.create_string(text)?)),
            None => Ok(error),
        },
        _ => Ok(error),
    }
}

/// What Luau says of a table that is read-only, in Redis's words; `None` for all other texts.
fn with_our_words(text: &[u8]) -> Option<Vec<u8>> {
    let place = text.strip_suffix(b"attempt to modify a readonly table")?;
    Some([place, b"Attempt to modify a readonly table"].concat())
}

/// The error that ends a script, with its code and where it was raised.
fn on_error(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let is_final = |error: &Value| match error {
        Value::Error(inner) => matches!(thrown::of(inner), Some(Thrown::Halt)) || thrown::is_memory(inner),
        Value::String(text) => *text.as_bytes() == *OUT_OF_MEMORY.as_bytes(),
        _ => false,
    };
    if is_final(&error) {
        return Ok(error);
    }
    let place = thrown::raised_at(lua);
    let table = match raised(lua, error)? {
        Value::Table(table) if table.is_readonly() => api::error_table(lua, &error_text(&table)?)?,
        Value::Table(table) => table,
        other => {
            let text = match &other {
                Value::String(text) => text.as_bytes().to_vec(),
                other => match numbers::number(other) {
                    Some(number) => numbers::general(number, 14).into_bytes(),
                    None => thrown::type_name(other).as_bytes().to_vec(),
                },
            };
            api::error_table(lua, &[b"ERR ", &text[..]].concat())?
        }
    };
    if let Some((source, line)) = place {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(Value::Table(table))
}

/// What a table that was raised says.
fn error_text(table: &Table) -> mlua::Result<Vec<u8>> {
    Ok(match table.raw_get("err")? {
        Value::String(text) => text.as_bytes().to_vec(),
        _ => b"ERR unknown error".to_vec(),
    })
}

/// `math.random`, equal for equal seeds, and `os.clock`.
fn add_chance(lua: &Lua, shared: &Rc<Shared>, ours: &Table) -> mlua::Result<()> {
    let of_run = Rc::clone(shared);
    let random = move |lua: &Lua, values: MultiValue| {
        let given = Given::new(lua, "random", &values);
        let chance = next_random(&of_run);
        let (least, most) = match given.count() {
            0 => return Ok(chance),
            1 => (1.0, given.integer(1)? as f64),
            2 => (given.integer(1)? as f64, given.integer(2)? as f64),
            _ => return Err(thrown::text(lua, "wrong number of arguments")),
        };
        if least > most {
            return Err(given.wrong(given.count(), "interval is empty"));
        }
        Ok((chance * (most - least + 1.0)).floor() + least)
    };
    ours.raw_set("random", lua.create_function(random)?)?;
    let of_run = Rc::clone(shared);
    let seed = move |lua: &Lua, values: MultiValue| {
        let seed = Given::new(lua, "randomseed", &values).integer(1)?;
        of_run.random.set(u64::from(seed as u32) << 16 | super::RANDOM_SEED);
        Ok(())
    };
    ours.raw_set("randomseed", lua.create_function(seed)?)?;
    let of_run = Rc::clone(shared);
    ours.raw_set("clock", lua.create_function(move |_: &Lua, ()| Ok(of_run.meter.seconds()))?)
}

/// `loadstring`, and what bounds functions of Luau: a plain search, and how many values `string.byte` will return.
fn add_texts(lua: &Lua, shared: &Rc<Shared>, ours: &Table) -> mlua::Result<()> {
    let of_run = Rc::clone(shared);
    let load = move |lua: &Lua, values: MultiValue| {
        let given = Given::new(lua, "loadstring", &values);
        let (text, name) = (given.string(1)?, given.string(2)?);
        let environment = of_run.environment.borrow().clone();
        let loaded = load_text(lua, &of_run, &text.as_bytes(), &name.to_string_lossy(), environment);
        match loaded {
            Ok(function) => Ok((Value::Function(function), Value::Nil)),
            Err(error) if thrown::is_memory(&error) => Err(error),
            Err(error) => Ok((Value::Nil, Value::String(lua.create_string(thrown::message(&error))?))),
        }
    };
    ours.raw_set("load_text", lua.create_function(load)?)?;
    let find = |lua: &Lua, values: MultiValue| {
        let given = Given::new(lua, "find", &values);
        let (text, pattern) = (given.string(1)?, given.string(2)?);
        let from = if given.has(3) { given.integer(3)? } else { 1 };
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let from = position(from, text.len()).max(1) - 1;
        let found = text.get(from..).and_then(|rest| memchr::memmem::find(rest, &pattern));
        Ok(found.map_or((None, None), |at| (Some(from + at + 1), Some(from + at + pattern.len()))))
    };
    ours.raw_set("find_plain", lua.create_function(find)?)?;
    let count = |lua: &Lua, values: MultiValue| {
        let given = Given::new(lua, "byte", &values);
        let len = given.string(1)?.as_bytes().len();
        let (first, last) = (position(given.integer(2)?, len), position(given.integer(3)?, len));
        Ok(last.min(len).saturating_sub(first.max(1)))
    };
    ours.raw_set("count_bytes", lua.create_function(count)?)
}

/// A position in a text of so many bytes as Lua counts it: negative from the end.
fn position(at: i64, len: usize) -> usize {
    let at = if at < 0 { at.saturating_add(len as i64 + 1) } else { at };
    usize::try_from(at).unwrap_or(0)
}

/// Compiles `text`, called `name`, for `environment`; its memory is charged before.
///
/// # Errors
/// One that says what is wrong with it.
pub(super) fn load_text(
    lua: &Lua,
    shared: &Shared,
    text: &[u8],
    name: &str,
    environment: Option<Table>,
) -> mlua::Result<Function> {
    if text.len() > SOURCE_BYTES_MAX {
        return Err(mlua::Error::RuntimeError(format!("a script has at most {SOURCE_BYTES_MAX} B")));
    }
    shared.meter.look()?;
    let _compiled = shared.meter.charge(lua, text.len() * COMPILED_BYTES)?;
    let name: String = name.chars().take(NAME_LETTERS_MAX).filter(|letter| *letter != '\0').collect();
    let wrong = |message: String| mlua::Error::RuntimeError(format!("{}:{message}", shown_name(&name)));
    let code = compile(text).map_err(wrong)?;
    let chunk = lua.load(code).set_name(name).set_mode(ChunkMode::Binary);
    match environment {
        Some(environment) => chunk.set_environment(environment).into_function(),
        None => chunk.into_function(),
    }
}

/// Compiles `text`; errors begin with the line and a colon. The compiler calls itself for what is nested, up to a thousand times: what may be nested so
/// deeply is compiled on a thread with a stack for that.
fn compile(text: &[u8]) -> Result<Vec<u8>, String> {
    let compile = || {
        let ours = ["tostring", "unpack", "table.unpack", "string.byte", "string.format"];
        Compiler::new().set_disabled_builtins(ours).compile(text).map_err(|error| match error {
            mlua::Error::SyntaxError { message, .. } => message,
            other => format!(" {other}"),
        })
    };
    if text.len() <= FLAT_BYTES_MAX {
        return compile();
    }
    let thread = std::thread::Builder::new().name("compiler".to_owned()).stack_size(COMPILER_STACK_BYTES);
    std::thread::scope(|scope| {
        let thread = thread.spawn_scoped(scope, compile).map_err(|error| format!(" no thread: {error}"))?;
        thread.join().unwrap_or_else(|_| Err(" the compiler failed".to_owned()))
    })
}

/// A chunk's name as errors show it.
fn shown_name(name: &str) -> String {
    match name.strip_prefix(['@', '=']) {
        Some(name) => name.to_owned(),
        None => {
            let line = name.lines().next().unwrap_or_default();
            let dots = if line.len() < name.len() { "..." } else { "" };
            format!("[string \"{line}{dots}\"]")
        }
    }
}

/// The generator `lrand48` of C, from 0 to below 1.
fn next_random(shared: &Shared) -> f64 {
    let next = shared.random.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & super::RANDOM_MASK;
    shared.random.set(next);
    let most = u64::from(i32::MAX.unsigned_abs());
    ((next >> 17) % most) as f64 / most as f64
}

/// The largest source: it is compiled in one step.
pub(super) const SOURCE_BYTES_MAX: usize = 1 << 20;
/// Bytes that the compiler uses for each of the source.
const COMPILED_BYTES: usize = 64;
/// A source of so many bytes is not nested so deeply that it matters.
const FLAT_BYTES_MAX: usize = 512;
const COMPILER_STACK_BYTES: usize = 16 << 20;
/// Letters of the name of a chunk.
const NAME_LETTERS_MAX: usize = 256;
