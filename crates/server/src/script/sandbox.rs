//! An interpreter as scripts see it (`sandbox.lua`), and the functions of ours that it is made with.

use std::rc::Rc;

use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, StdLib, Table, Value, VmState};

use super::args::Given;
use super::strings::{self, Bounds};
use super::thrown::{self, Thrown};
use super::{HOOK_INSTRUCTIONS, Shared, api, bit, cjson, cmsgpack, numbers, pack};
use crate::lookup::Table as Commands;

/// A sandbox.
pub(super) struct Made {
    pub(super) lua: Lua,
    /// What is behind `_G` and behind `redis`.
    pub(super) globals: Table,
    pub(super) redis: Table,
    /// Calls a function, and one with keys and arguments.
    pub(super) call: Function,
    pub(super) call_with: Function,
}

/// A new one.
///
/// # Errors
/// What Lua refuses: memory.
pub(super) fn make(shared: &Rc<Shared>, table: &'static Commands) -> mlua::Result<Made> {
    let libraries = StdLib::TABLE | StdLib::STRING | StdLib::MATH;
    let lua = Lua::new_with(libraries, LuaOptions::new().catch_rust_panics(false))?;
    let ours = lua.create_table()?;
    let redis = api::module(&lua, shared, table)?;
    ours.raw_set("redis", &redis)?;
    ours.raw_set("cjson", cjson::module(&lua, &shared.json)?)?;
    ours.raw_set("cmsgpack", cmsgpack::module(&lua)?)?;
    ours.raw_set("struct", pack::module(&lua)?)?;
    ours.raw_set("bit", bit::module(&lua)?)?;
    let of_run = Rc::clone(shared);
    let (tick, bytes_max) = (Box::new(move || of_run.tick()), shared.memory_bytes_max);
    ours.raw_set("string", strings::module(&lua, &Rc::new(Bounds { tick, bytes_max }))?)?;
    add_errors(&lua, shared, &ours)?;
    add_chance(&lua, shared, &ours)?;
    let chunk = lua.load(include_str!("sandbox.lua")).set_name("=sandbox");
    let (shown, globals, call, call_with): (Table, Table, Function, Function) = chunk.call(&ours)?;
    lua.set_globals(shown)?;
    let ticking = Rc::clone(shared);
    lua.set_global_hook(HookTriggers::new().every_nth_instruction(HOOK_INSTRUCTIONS), move |_, _| {
        ticking.tick()?;
        Ok(VmState::Continue)
    })?;
    Ok(Made { lua, globals, redis, call, call_with })
}

fn add_errors(lua: &Lua, shared: &Rc<Shared>, ours: &Table) -> mlua::Result<()> {
    ours.raw_set("raised", lua.create_function(|lua, error: Value| raised(lua, error))?)?;
    ours.raw_set(
        "caught",
        lua.create_function(|lua, error: Value| {
            let error = raised(lua, error)?;
            match &error {
                Value::Table(table) => match table.raw_get("err")? {
                    text @ Value::String(_) => Ok(text),
                    _ => Ok(error),
                },
                _ => Ok(error),
            }
        })?,
    )?;
    ours.raw_set("halts", lua.create_function(|_, error: Value| Ok(halts(&error)))?)?;
    let of_run = Rc::clone(shared);
    ours.raw_set(
        "is_over",
        lua.create_function(move |_, ()| match of_run.over.get() {
            Some(over) => Err(of_run.end(over)),
            None => Ok(()),
        })?,
    )?;
    ours.raw_set("on_error", lua.create_function(on_error)?)
}

/// Whether `error` ends the attempt. A message handler that raised it once more would be called with that, and so on.
fn halts(error: &Value) -> bool {
    matches!(error, Value::Error(inner) if matches!(thrown::of(inner), Some(Thrown::Halt)))
}

/// An error as a script sees it that has caught it.
fn raised(lua: &Lua, error: Value) -> mlua::Result<Value> {
    let Value::Error(inner) = &error else { return Ok(error) };
    match thrown::of(inner) {
        Some(Thrown::Halt) => Err(Thrown::Halt.into()),
        Some(Thrown::Reply(text)) => Ok(Value::Table(api::error_table(lua, text)?)),
        Some(Thrown::Text(text)) => Ok(Value::String(lua.create_string(text)?)),
        None => Ok(Value::String(lua.create_string(thrown::message(inner))?)),
    }
}

/// The error that ends a script, with its code and where it was raised.
fn on_error(lua: &Lua, error: Value) -> mlua::Result<Value> {
    if halts(&error) {
        return Ok(error);
    }
    let place = thrown::raised_at(lua);
    let table = match raised(lua, error)? {
        Value::Table(table) => table,
        other => {
            let text = match &other {
                Value::String(text) => text.as_bytes().to_vec(),
                other => match numbers::number(other) {
                    Some(number) => numbers::general(number, 14).into_bytes(),
                    None => other.to_string()?.into_bytes(),
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
    let clock = move |_: &Lua, ()| {
        let pace = of_run.pace.borrow();
        Ok(pace.as_ref().map_or(0.0, |pace| pace.clock.now().0 as f64 / 1e9))
    };
    ours.raw_set("clock", lua.create_function(clock)?)
}

/// The generator `lrand48` of C, from 0 to below 1.
fn next_random(shared: &Shared) -> f64 {
    let next = shared.random.get().wrapping_mul(0x5_deec_e66d).wrapping_add(0xb) & super::RANDOM_MASK;
    shared.random.set(next);
    let most = u64::from(i32::MAX.unsigned_abs());
    ((next >> 17) % most) as f64 / most as f64
}
