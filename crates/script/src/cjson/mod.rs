//! `cjson`: values to JSON and back, with the results and error texts that scripts of Redis know.
//!
//! By hand: `serde_json` gives neither the texts of the errors, nor numbers with so many digits, nor escapes of `/`. An empty
//! table is an object. What a script sets ([`Config`]) holds until its run ends.

mod decode;
mod encode;

use std::cell::RefCell;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use super::args::Given;
use super::meter::Meter;

/// What the functions of a module go by.
#[derive(Clone, Copy, Debug)]
pub(super) struct Config {
    sparse_convert: bool,
    sparse_ratio: i64,
    sparse_safe: i64,
    encode_depth_max: i64,
    decode_depth_max: i64,
    digits: i64,
    keep_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: bool,
}

/// What becomes of a number that JSON has not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: 1_000,
            decode_depth_max: 1_000,
            digits: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Refused,
            decode_invalid: true,
        }
    }
}

/// A module's config, shared by its functions.
pub(super) type SharedConfig = Rc<RefCell<Config>>;

/// The module, going by `config`.
pub(super) fn module(lua: &Lua, meter: &Rc<Meter>, config: &SharedConfig) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    module.raw_set("_NAME", "cjson")?;
    module.raw_set("_VERSION", "2.1.0")?;
    module.raw_set("null", Value::NULL)?;
    let of_run = Rc::clone(meter);
    add(lua, &module, config, "encode", move |given, config| {
        expect_one(given)?;
        encode::encode(given.lua, &of_run, &given.any(1), &config.borrow())
    })?;
    let of_run = Rc::clone(meter);
    add(lua, &module, config, "decode", move |given, config| {
        expect_one(given)?;
        let text = given.string(1)?;
        decode::decode(given.lua, &of_run, &text.as_bytes(), &config.borrow())
    })?;
    let of_run = Rc::clone(meter);
    let new = move |lua: &Lua, ()| {
        of_run.tick(NEW_TICKS)?;
        self::module(lua, &of_run, &SharedConfig::default())
    };
    module.raw_set("new", lua.create_function(new)?)?;
    add_options(lua, &module, config)?;
    Ok(module)
}

fn add_options(lua: &Lua, module: &Table, config: &SharedConfig) -> mlua::Result<()> {
    add(lua, module, config, "encode_max_depth", |given, config| {
        integer(given, 1, 1, i32::MAX.into(), &mut config.borrow_mut().encode_depth_max)
    })?;
    add(lua, module, config, "decode_max_depth", |given, config| {
        integer(given, 1, 1, i32::MAX.into(), &mut config.borrow_mut().decode_depth_max)
    })?;
    add(lua, module, config, "encode_number_precision", |given, config| {
        integer(given, 1, 1, 14, &mut config.borrow_mut().digits)
    })?;
    add(lua, module, config, "encode_keep_buffer", |given, config| {
        boolean(given, 1, &mut config.borrow_mut().keep_buffer)
    })?;
    add(lua, module, config, "decode_invalid_numbers", |given, config| {
        boolean(given, 1, &mut config.borrow_mut().decode_invalid)
    })?;
    add(lua, module, config, "encode_invalid_numbers", |given, config| {
        let set = &mut config.borrow_mut().encode_invalid;
        match given.any(1) {
            Value::Nil => {}
            Value::Boolean(true) => *set = Invalid::Written,
            Value::Boolean(false) => *set = Invalid::Refused,
            Value::String(word) => match &*word.as_bytes() {
                b"on" => *set = Invalid::Written,
                b"off" => *set = Invalid::Refused,
                b"null" => *set = Invalid::Null,
                other => {
                    let word = String::from_utf8_lossy(other).into_owned();
                    return Err(given.wrong(1, format_args!("invalid option '{word}'")));
                }
            },
            _ => return Err(given.wrong(1, "string expected")),
        }
        match set {
            Invalid::Null => Ok(Value::String(given.lua.create_string("null")?)),
            other => Ok(Value::Boolean(*other == Invalid::Written)),
        }
    })?;
    let shared = Rc::clone(config);
    let sparse = move |lua: &Lua, values: MultiValue| {
        let given = Given::new(lua, "encode_sparse_array", &values);
        let mut config = shared.borrow_mut();
        boolean(&given, 1, &mut config.sparse_convert)?;
        integer(&given, 2, 0, i32::MAX.into(), &mut config.sparse_ratio)?;
        integer(&given, 3, 0, i32::MAX.into(), &mut config.sparse_safe)?;
        Ok((config.sparse_convert, config.sparse_ratio, config.sparse_safe))
    };
    module.raw_set("encode_sparse_array", lua.create_function(sparse)?)
}

fn add(
    lua: &Lua,
    module: &Table,
    config: &SharedConfig,
    name: &'static str,
    function: impl Fn(&Given<'_>, &SharedConfig) -> mlua::Result<Value> + 'static,
) -> mlua::Result<()> {
    let config = Rc::clone(config);
    let called = move |lua: &Lua, values: MultiValue| function(&Given::new(lua, name, &values), &config);
    module.raw_set(name, lua.create_function(called)?)
}

/// Steps of work that a module takes.
const NEW_TICKS: usize = 64;

fn expect_one(given: &Given<'_>) -> mlua::Result<()> {
    if given.count() == 1 { Ok(()) } else { Err(given.wrong(1, "expected 1 argument")) }
}

/// Sets `option` if argument `number` is there, and answers what it is.
fn integer(given: &Given<'_>, number: usize, least: i64, most: i64, option: &mut i64) -> mlua::Result<Value> {
    if given.has(number) {
        let set = given.integer(number)?;
        if !(least..=most).contains(&set) {
            let why = format_args!("expected integer between {least} and {most}").to_string();
            return Err(given.wrong(number, why));
        }
        *option = set;
    }
    Ok(Value::Integer(*option))
}

/// The same for one that is on or off.
fn boolean(given: &Given<'_>, number: usize, option: &mut bool) -> mlua::Result<Value> {
    match given.any(number) {
        Value::Nil => {}
        Value::Boolean(set) => *option = set,
        Value::String(word) => match &*word.as_bytes() {
            b"on" => *option = true,
            b"off" => *option = false,
            other => {
                let word = String::from_utf8_lossy(other).into_owned();
                return Err(given.wrong(number, format_args!("invalid option '{word}'")));
            }
        },
        _ => return Err(given.wrong(number, "string expected")),
    }
    Ok(Value::Boolean(*option))
}
