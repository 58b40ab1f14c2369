//! `cmsgpack`: values to MessagePack and back.
//!
//! A table whose keys are 1 to n is an array, also an empty one; what cannot be packed is nil, and so is what lies deeper than
//! [`DEPTH_MAX`].

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use super::args::{Given, VALUES_MAX};
use super::meter::{Buffer, Meter};
use super::numbers;
use super::thrown;

/// The module.
pub(super) fn module(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    module.raw_set("_NAME", "cmsgpack")?;
    module.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    module.raw_set("_COPYRIGHT", "Copyright (C) 2012, Redis Ltd.")?;
    module.raw_set("_DESCRIPTION", "MessagePack C implementation for Lua")?;
    let of_run = Rc::clone(meter);
    let pack = move |lua: &Lua, values: MultiValue| pack(lua, &of_run, &values);
    module.raw_set("pack", lua.create_function(pack)?)?;
    let of_run = Rc::clone(meter);
    let all =
        move |lua: &Lua, values: MultiValue| unpack(&of_run, &Given::new(lua, "unpack", &values), 0, 0, true);
    module.raw_set("unpack", lua.create_function(all)?)?;
    let of_run = Rc::clone(meter);
    let one = move |lua: &Lua, values: MultiValue| {
        let given = Given::new(lua, "unpack_one", &values);
        let offset = if given.has(2) { given.integer(2)? } else { 0 };
        unpack(&of_run, &given, 1, offset, false)
    };
    module.raw_set("unpack_one", lua.create_function(one)?)?;
    let of_run = Rc::clone(meter);
    let limited = move |lua: &Lua, values: MultiValue| {
        let given = Given::new(lua, "unpack_limit", &values);
        let limit = given.integer(2)?;
        let offset = if given.has(3) { given.integer(3)? } else { 0 };
        unpack(&of_run, &given, limit, offset, limit == 0 && offset == 0)
    };
    module.raw_set("unpack_limit", lua.create_function(limited)?)?;
    Ok(module)
}

fn pack(lua: &Lua, meter: &Meter, values: &MultiValue) -> mlua::Result<mlua::LuaString> {
    if values.is_empty() {
        return Err(thrown::bad_argument(lua, 0, "pack", "MessagePack pack needs input."));
    }
    let mut packed = Buffer::new(meter, lua);
    for value in values {
        pack_value(meter, value, 0, &mut packed)?;
    }
    lua.create_string(packed.as_slice())
}

fn pack_value(meter: &Meter, value: &Value, depth: usize, packed: &mut Buffer<'_>) -> mlua::Result<()> {
    meter.tick(1)?;
    match value {
        Value::String(text) => {
            pack_head(text.as_bytes().len(), 0xa0, 32, &[(0xd9, 1), (0xda, 2), (0xdb, 4)], packed)?;
            packed.extend(&text.as_bytes())
        }
        Value::Boolean(value) => packed.push(if *value { 0xc3 } else { 0xc2 }),
        Value::Table(table) if depth < DEPTH_MAX => pack_table(meter, table, depth, packed),
        other => match numbers::number(other) {
            Some(number) => pack_number(number, packed),
            None => packed.push(0xc0),
        },
    }
}

/// Writes how long what follows is: in one byte with `fixed` below its limit, or behind the first tag whose width has room.
fn pack_head(
    len: usize,
    fixed: u8,
    below: usize,
    tags: &[(u8, usize)],
    packed: &mut Buffer<'_>,
) -> mlua::Result<()> {
    if len < below {
        return packed.push(fixed | len as u8);
    }
    let fits = |width: usize| width == 4 || len < 1 << (8 * width);
    let (tag, width) = tags.iter().find(|(_, width)| fits(*width)).expect("the last has four bytes");
    packed.push(*tag)?;
    packed.extend(&(len as u32).to_be_bytes()[4 - width..])
}

fn pack_number(number: f64, packed: &mut Buffer<'_>) -> mlua::Result<()> {
    let Some(integer) = numbers::integer(number) else {
        if f64::from(number as f32) == number {
            packed.push(0xca)?;
            return packed.extend(&(number as f32).to_be_bytes());
        }
        packed.push(0xcb)?;
        return packed.extend(&number.to_be_bytes());
    };
    let (tag, width) = match integer {
        -32..=127 => return packed.push(integer as u8),
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -128..=-33 => (0xd0, 1),
        -32_768..=-129 => (0xd1, 2),
        -2_147_483_648..=-32_769 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    packed.push(tag)?;
    packed.extend(&integer.to_be_bytes()[8 - width..])
}

fn pack_table(meter: &Meter, table: &Table, depth: usize, packed: &mut Buffer<'_>) -> mlua::Result<()> {
    let (mut count, mut largest, mut is_array) = (0_usize, 0_i64, true);
    for pair in table.pairs::<Value, Value>() {
        meter.tick(1)?;
        let (key, _) = pair?;
        let index = numbers::number(&key).and_then(numbers::integer).filter(|index| *index > 0);
        is_array &= index.is_some();
        largest = largest.max(index.unwrap_or(0));
        count += 1;
    }
    if is_array && largest == count as i64 {
        pack_head(count, 0x90, 16, &[(0xdc, 2), (0xdd, 4)], packed)?;
        for index in 1..=count {
            pack_value(meter, &table.raw_get(index)?, depth + 1, packed)?;
        }
        return Ok(());
    }
    pack_head(count, 0x80, 16, &[(0xde, 2), (0xdf, 4)], packed)?;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        pack_value(meter, &key, depth + 1, packed)?;
        pack_value(meter, &value, depth + 1, packed)?;
    }
    Ok(())
}

fn unpack(meter: &Meter, given: &Given<'_>, limit: i64, offset: i64, all: bool) -> mlua::Result<MultiValue> {
    let (lua, text) = (given.lua, given.string(1)?);
    let bytes = text.as_bytes();
    let len = bytes.len();
    if offset < 0 || limit < 0 {
        let text = format!("Invalid request to unpack with offset of {offset} and limit of {len}.");
        return Err(thrown::text(lua, text));
    }
    let Some(rest) = usize::try_from(offset).ok().and_then(|offset| bytes.get(offset..)) else {
        return Err(thrown::text(lua, format!("Start offset {offset} greater than input length {len}.")));
    };
    let (mut input, mut values) = (Input { meter, rest }, Vec::new());
    while !input.rest.is_empty() && (all || (values.len() as i64) < limit) {
        if values.len() == VALUES_MAX {
            return Err(thrown::text(lua, "too many results to unpack"));
        }
        match input.value(lua, 0) {
            Ok(value) => values.push(value),
            Err(Bad::End) => return Err(thrown::text(lua, "Missing bytes in input.")),
            Err(Bad::Format) => return Err(thrown::text(lua, "Bad data format in input.")),
            Err(Bad::Lua(error)) => return Err(error),
        }
    }
    if !all {
        let next = if input.rest.is_empty() { -1 } else { (len - input.rest.len()) as i64 };
        values.insert(0, Value::Integer(next));
    }
    Ok(values.into())
}

/// Why a value could not be unpacked.
enum Bad {
    End,
    Format,
    Lua(mlua::Error),
}

impl From<mlua::Error> for Bad {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

/// What a value begins with.
enum Head {
    Array(usize),
    Map(usize),
    Other(u8),
}

struct Input<'a> {
    meter: &'a Meter,
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Bad::End)?;
        self.rest = rest;
        Ok(taken)
    }

    /// An unsigned integer of `width` bytes.
    fn unsigned(&mut self, width: usize) -> Result<u64, Bad> {
        Ok(self.take(width)?.iter().fold(0, |value, byte| value << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, width: usize) -> Result<i64, Bad> {
        let unused = 64 - 8 * width as u32;
        Ok(self.unsigned(width)?.cast_signed() << unused >> unused)
    }

    // What calls itself is kept small: arrays may be nested deeply.
    fn value(&mut self, lua: &Lua, depth: usize) -> Result<Value, Bad> {
        match self.head() {
            Ok(Head::Array(count)) => self.array(lua, count, depth),
            Ok(Head::Map(count)) => self.map(lua, count, depth),
            Ok(Head::Other(tag)) => self.scalar(lua, tag),
            Err(bad) => Err(bad),
        }
    }

    fn head(&mut self) -> Result<Head, Bad> {
        self.meter.tick(1)?;
        let tag = self.take(1)?[0];
        Ok(match tag {
            0x90..=0x9f => Head::Array(usize::from(tag & 0xf)),
            0x80..=0x8f => Head::Map(usize::from(tag & 0xf)),
            0xdc | 0xdd => Head::Array(self.unsigned(2 << (tag - 0xdc))? as usize),
            0xde | 0xdf => Head::Map(self.unsigned(2 << (tag - 0xde))? as usize),
            _ => Head::Other(tag),
        })
    }

    fn scalar(&mut self, lua: &Lua, tag: u8) -> Result<Value, Bad> {
        let number = |number: f64| Ok(Value::Number(number));
        match tag {
            0x00..=0x7f => number(tag.into()),
            0xe0..=0xff => number(tag.cast_signed().into()),
            0xa0..=0xbf => self.string(lua, usize::from(tag & 0x1f)),
            0xc0 => Ok(Value::Nil),
            0xc2 | 0xc3 => Ok(Value::Boolean(tag == 0xc3)),
            0xca => number(f32::from_bits(self.unsigned(4)? as u32).into()),
            0xcb => number(f64::from_bits(self.unsigned(8)?)),
            // the largest come out negative, as in Redis
            0xcc..=0xcf => number(self.unsigned(1 << (tag - 0xcc))?.cast_signed() as f64),
            0xd0..=0xd3 => number(self.signed(1 << (tag - 0xd0))? as f64),
            0xd9..=0xdb => {
                let len = self.unsigned(1 << (tag - 0xd9))? as usize;
                self.string(lua, len)
            }
            _ => Err(Bad::Format),
        }
    }

    fn string(&mut self, lua: &Lua, len: usize) -> Result<Value, Bad> {
        Ok(Value::String(lua.create_string(self.take(len)?)?))
    }

    fn array(&mut self, lua: &Lua, count: usize, depth: usize) -> Result<Value, Bad> {
        let table = self.nested(lua, depth)?;
        for index in 1..=count {
            self.element(lua, &table, index, depth)?;
        }
        Ok(Value::Table(table))
    }

    fn element(&mut self, lua: &Lua, table: &Table, index: usize, depth: usize) -> Result<(), Bad> {
        let value = self.value(lua, depth + 1)?;
        Ok(table.raw_set(index, value)?)
    }

    fn map(&mut self, lua: &Lua, count: usize, depth: usize) -> Result<Value, Bad> {
        let table = self.nested(lua, depth)?;
        for _ in 0..count {
            self.field(lua, &table, depth)?;
        }
        Ok(Value::Table(table))
    }

    fn field(&mut self, lua: &Lua, table: &Table, depth: usize) -> Result<(), Bad> {
        let (key, value) = (self.value(lua, depth + 1)?, self.value(lua, depth + 1)?);
        Ok(table.raw_set(key, value)?)
    }

    fn nested(&self, lua: &Lua, depth: usize) -> Result<Table, Bad> {
        if depth == UNPACK_DEPTH_MAX { Err(Bad::Format) } else { Ok(lua.create_table()?) }
    }
}

/// Tables in tables that are packed.
const DEPTH_MAX: usize = 16;
/// Arrays in arrays that are unpacked.
const UNPACK_DEPTH_MAX: usize = 512;
