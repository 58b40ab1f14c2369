//! `bit`: operations on the low 32 bits of numbers.

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use super::args::Given;
use super::meter::Meter;

/// The module.
pub(super) fn module(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    add(lua, meter, &module, "tobit", |given| given.bits(1))?;
    add(lua, meter, &module, "bnot", |given| Ok(!given.bits(1)?))?;
    add(lua, meter, &module, "bswap", |given| Ok(given.bits(1)?.swap_bytes()))?;
    add(lua, meter, &module, "band", |given| fold(given, |a, b| a & b))?;
    add(lua, meter, &module, "bor", |given| fold(given, |a, b| a | b))?;
    add(lua, meter, &module, "bxor", |given| fold(given, |a, b| a ^ b))?;
    add(lua, meter, &module, "lshift", |given| Ok(given.bits(1)?.wrapping_shl(given.bits(2)? & 31)))?;
    add(lua, meter, &module, "rshift", |given| Ok(given.bits(1)?.wrapping_shr(given.bits(2)? & 31)))?;
    add(lua, meter, &module, "arshift", |given| {
        Ok(given.bits(1)?.cast_signed().wrapping_shr(given.bits(2)? & 31).cast_unsigned())
    })?;
    add(lua, meter, &module, "rol", |given| Ok(given.bits(1)?.rotate_left(given.bits(2)? & 31)))?;
    add(lua, meter, &module, "ror", |given| Ok(given.bits(1)?.rotate_right(given.bits(2)? & 31)))?;
    let of_run = Rc::clone(meter);
    let hex = move |lua: &Lua, values: MultiValue| {
        of_run.tick(1)?;
        let given = Given::new(lua, "tohex", &values);
        let bits = given.bits(1)?;
        let digits = if given.has(2) { given.bits(2)?.cast_signed() } else { 8 };
        lua.create_string(hex(bits, digits))
    };
    module.raw_set("tohex", lua.create_function(hex)?)?;
    Ok(module)
}

fn add(
    lua: &Lua,
    meter: &Rc<Meter>,
    module: &Table,
    name: &'static str,
    operation: impl Fn(&Given<'_>) -> mlua::Result<u32> + 'static,
) -> mlua::Result<()> {
    let meter = Rc::clone(meter);
    let function = move |lua: &Lua, values: MultiValue| {
        meter.tick(1 + values.len() / 4)?;
        let bits = operation(&Given::new(lua, name, &values))?;
        Ok(Value::Number(bits.cast_signed().into()))
    };
    module.raw_set(name, lua.create_function(function)?)
}

fn fold(given: &Given<'_>, operation: impl Fn(u32, u32) -> u32) -> mlua::Result<u32> {
    let mut bits = given.bits(1)?;
    for number in 2..=given.count() {
        bits = operation(bits, given.bits(number)?);
    }
    Ok(bits)
}

/// The last `digits` hexadecimal digits of `bits`; upper case if `digits` is negative.
fn hex(bits: u32, digits: i32) -> String {
    let count = digits.unsigned_abs().min(8) as usize;
    let all = if digits < 0 { format!("{bits:08X}") } else { format!("{bits:08x}") };
    all[8 - count..].to_owned()
}
