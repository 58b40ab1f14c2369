//! `redis.*`: commands, replies of errors and states, the log, and the functions that a library registers.

use std::rc::Rc;

use mlua::{Function, Lua, MultiValue, Table, Value};
use sha1::{Digest as _, Sha1};

use super::args::Given;
use super::cache::hex;
use super::library::{FunctionFlags, Registered, is_name};
use super::meter::Meter;
use super::thrown;
use super::{Shared, invoke};

/// The version of Redis that scripts are told.
pub const VERSION: &str = "7.4.0";

/// The table.
pub(super) fn module(lua: &Lua, shared: &Rc<Shared>) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let constants = [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", 3),
        ("REDIS_VERSION_NUM", version_number()),
    ];
    for (name, value) in constants {
        module.raw_set(name, value)?;
    }
    module.raw_set("REDIS_VERSION", VERSION)?;
    module
        .raw_set("error_reply", lua.create_function(|lua, values: MultiValue| error_reply(lua, &values))?)?;
    module.raw_set(
        "status_reply",
        lua.create_function(|lua, values: MultiValue| status_reply(lua, &values))?,
    )?;
    let of_run = Rc::clone(shared);
    let digest = move |lua: &Lua, values: MultiValue| sha1hex(lua, &of_run.meter, &values);
    module.raw_set("sha1hex", lua.create_function(digest)?)?;
    module.raw_set("log", lua.create_function(|lua, values: MultiValue| log(lua, &values))?)?;
    module.raw_set("set_repl", lua.create_function(|lua, values: MultiValue| set_repl(lua, &values))?)?;
    module.raw_set("replicate_commands", lua.create_function(|_, ()| Ok(true))?)?;
    module.raw_set("breakpoint", lua.create_function(|_, ()| Ok(false))?)?;
    module.raw_set("debug", lua.create_function(|_, _: MultiValue| Ok(()))?)?;
    for (name, raises) in [("call", true), ("pcall", false)] {
        let of_run = Rc::clone(shared);
        let call = move |lua: &Lua, values: MultiValue| invoke(lua, &of_run, &values, raises);
        module.raw_set(name, lua.create_function(call)?)?;
    }
    let of_check = Rc::clone(shared);
    let shared = Rc::clone(shared);
    let setresp = move |lua: &Lua, values: MultiValue| {
        if values.len() != 1 {
            return Err(thrown::reply("ERR redis.setresp() requires one argument."));
        }
        match Given::new(lua, "setresp", &values).integer(1) {
            Ok(2) => shared.resp3.set(false),
            Ok(3) => shared.resp3.set(true),
            _ => return Err(thrown::reply("ERR RESP version must be 2 or 3.")),
        }
        Ok(())
    };
    module.raw_set("setresp", lua.create_function(setresp)?)?;
    let check = move |lua: &Lua, values: MultiValue| super::may(lua, &of_check, &values);
    module.raw_set("acl_check_cmd", lua.create_function(check)?)?;
    Ok(module)
}

fn version_number() -> i64 {
    VERSION.split('.').filter_map(|part| part.parse::<i64>().ok()).fold(0, |number, part| number << 8 | part)
}

/// A table with `text` in `err`.
pub(super) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}

/// `redis.error_reply`: what has no code gets one.
fn error_reply(lua: &Lua, values: &MultiValue) -> mlua::Result<Table> {
    let (Some(Value::String(text)), 1) = (values.front(), values.len()) else {
        return error_table(lua, b"ERR wrong number or type of arguments");
    };
    let text = text.as_bytes();
    let text = super::convert::trimmed(text.strip_prefix(b"-").unwrap_or(&text));
    match text.contains(&b' ') {
        true => error_table(lua, text),
        false => error_table(lua, &[b"ERR ", text].concat()),
    }
}

fn status_reply(lua: &Lua, values: &MultiValue) -> mlua::Result<Table> {
    let (Some(text @ Value::String(_)), 1) = (values.front(), values.len()) else {
        return error_table(lua, b"ERR wrong number or type of arguments");
    };
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set("ok", text)?;
    Ok(table)
}

fn sha1hex(lua: &Lua, meter: &Meter, values: &MultiValue) -> mlua::Result<String> {
    if values.len() != 1 {
        return Err(thrown::reply("ERR wrong number of arguments"));
    }
    let mut digest = Sha1::new();
    if let Some(value @ (Value::String(_) | Value::Integer(_) | Value::Number(_))) = values.front()
        && let Some(text) = lua.coerce_string(value.clone())?
    {
        for part in text.as_bytes().chunks(DIGEST_BYTES) {
            meter.tick(part.len() / 64)?;
            digest.update(part);
        }
    }
    Ok(hex(&digest.finalize()))
}

fn log(lua: &Lua, values: &MultiValue) -> mlua::Result<()> {
    if values.len() < 2 {
        return Err(thrown::reply("ERR redis.log() requires two arguments or more."));
    }
    let Ok(level) = Given::new(lua, "log", values).integer(1) else {
        return Err(thrown::reply("ERR First argument must be a number (log level)."));
    };
    let mut text = String::new();
    for value in values.iter().skip(1).take(LOG_LETTERS_MAX) {
        let Some(word) = lua.coerce_string(value.clone())? else { continue };
        let word = word.as_bytes();
        let word = String::from_utf8_lossy(&word[..word.len().min(4 * LOG_LETTERS_MAX)]);
        text.push_str(if text.is_empty() { "" } else { " " });
        text.extend(word.chars().take(LOG_LETTERS_MAX));
        if text.len() > 4 * LOG_LETTERS_MAX {
            break;
        }
    }
    let text = text.chars().take(LOG_LETTERS_MAX).collect::<String>();
    match level {
        0 => tracing::debug!(script = text),
        1 | 2 => tracing::info!(script = text),
        3 => tracing::warn!(script = text),
        _ => return Err(thrown::reply("ERR Invalid debug level.")),
    }
    Ok(())
}

/// `redis.set_repl`: checked, and without effect, for what is logged are a script's effects.
fn set_repl(lua: &Lua, values: &MultiValue) -> mlua::Result<()> {
    if values.len() != 1 {
        return Err(thrown::reply("ERR redis.set_repl() requires two arguments."));
    }
    let flags = Given::new(lua, "set_repl", values).integer(1).unwrap_or(-1);
    if (0..=3).contains(&flags) {
        return Ok(());
    }
    Err(thrown::reply("ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."))
}

/// `redis.register_function`, for the time in which a library is loaded.
pub(super) fn register(lua: &Lua, shared: &Rc<Shared>) -> mlua::Result<Function> {
    let shared = Rc::clone(shared);
    lua.create_function(move |lua, values: MultiValue| {
        let (registered, callback) = registered(lua, &values)?;
        let mut loading = shared.loading.borrow_mut();
        let Some(list) = loading.as_mut() else {
            let text = "ERR redis.register_function can only be called on FUNCTION LOAD command";
            return Err(thrown::reply(text));
        };
        if list.iter().any(|(other, _)| other.name == registered.name) {
            return Err(thrown::reply("ERR Function already exists in the library"));
        }
        if list.len() == FUNCTIONS_MAX {
            return Err(thrown::reply(format!("ERR a library has at most {FUNCTIONS_MAX} functions")));
        }
        list.push((registered, callback));
        Ok(())
    })
}

fn registered(lua: &Lua, values: &MultiValue) -> mlua::Result<(Registered, Function)> {
    let refused = |text: &str| thrown::reply(format!("ERR {text}"));
    let found = match (values.len(), values.front(), values.get(1)) {
        (1, Some(Value::Table(named)), _) => named_function(named)?,
        (1, ..) => {
            return Err(refused(
                "calling redis.register_function with a single argument is only applicable to Lua table \
                 (representing named arguments).",
            ));
        }
        (2, Some(name), Some(Value::Function(callback))) => {
            let Some(name) = lua.coerce_string(name.clone())? else {
                return Err(refused("first argument to redis.register_function must be a string"));
            };
            let (flags, description) = (FunctionFlags::default(), None);
            (Registered { name: name.as_bytes().to_vec().into(), flags, description }, callback.clone())
        }
        (2, Some(Value::String(_)), _) => {
            return Err(refused("second argument to redis.register_function must be a function"));
        }
        (2, ..) => return Err(refused("first argument to redis.register_function must be a string")),
        _ => return Err(refused("wrong number of arguments to redis.register_function")),
    };
    if !is_name(&found.0.name) {
        return Err(refused(
            "Library names can only contain letters, numbers, or underscores(_) and must be at least one \
             character long",
        ));
    }
    Ok(found)
}

fn named_function(named: &Table) -> mlua::Result<(Registered, Function)> {
    let refused = |text: &str| thrown::reply(format!("ERR {text}"));
    let (mut name, mut callback, mut flags, mut description) = (None, None, FunctionFlags::default(), None);
    for pair in named.pairs::<Value, Value>() {
        let (Value::String(key), value) = pair? else {
            return Err(refused("named argument key given to redis.register_function is not a string"));
        };
        match (&*key.as_bytes(), value) {
            (b"function_name", Value::String(text)) => name = Some(text.as_bytes().to_vec()),
            (b"function_name", _) => {
                return Err(refused(
                    "function_name argument given to redis.register_function must be a string",
                ));
            }
            (b"description", Value::String(text)) => description = Some(text.as_bytes().to_vec().into()),
            (b"description", _) => {
                return Err(refused(
                    "description argument given to redis.register_function must be a string",
                ));
            }
            (b"callback", Value::Function(function)) => callback = Some(function),
            (b"callback", _) => {
                return Err(refused("callback argument given to redis.register_function must be a function"));
            }
            (b"flags", Value::Table(list)) => {
                for flag in list.sequence_values::<Value>().take(FLAGS_MAX) {
                    let known = match flag? {
                        Value::String(flag) => flags.set(&flag.as_bytes()),
                        _ => false,
                    };
                    if !known {
                        return Err(refused("unknown flag given"));
                    }
                }
            }
            (b"flags", _) => {
                return Err(refused(
                    "flags argument to redis.register_function must be a table representing function flags",
                ));
            }
            _ => return Err(refused("unknown argument given to redis.register_function")),
        }
    }
    let name = name.ok_or_else(|| refused("redis.register_function must get a function name argument"))?;
    let callback = callback.ok_or_else(|| refused("redis.register_function must get a callback argument"))?;
    Ok((Registered { name: name.into(), flags, description }, callback))
}

/// Bytes after which the time is looked at.
const DIGEST_BYTES: usize = 16 << 10;
/// Letters of a line in the log.
const LOG_LETTERS_MAX: usize = 1_024;
/// Flags of a function that are read.
const FLAGS_MAX: usize = 64;
/// Functions of a library.
const FUNCTIONS_MAX: usize = 1_024;
