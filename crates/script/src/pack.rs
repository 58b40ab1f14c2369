//! `struct`: values to bytes and back, by a format.
//!
//! | option | what |
//! |---|---|
//! | `<` `>` `!n` | little endian, big endian, alignment |
//! | `b` `B` `h` `H` `l` `L` `T` `in` `In` | integers, upper case without sign |
//! | `f` `d` | floating point |
//! | `s` `cn` `x` | a string with a zero behind it, one of `n` bytes (`c0`: as long as the number before it), a zero |

use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use super::args::{Given, VALUES_MAX};
use super::meter::{Buffer, Meter};
use super::numbers;
use super::thrown;

/// The module.
pub(super) fn module(lua: &Lua, meter: &Rc<Meter>) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    let of_run = Rc::clone(meter);
    let pack = move |lua: &Lua, values: MultiValue| pack(&of_run, &Given::new(lua, "pack", &values));
    module.raw_set("pack", lua.create_function(pack)?)?;
    let of_run = Rc::clone(meter);
    let unpack = move |lua: &Lua, values: MultiValue| unpack(&of_run, &Given::new(lua, "unpack", &values));
    module.raw_set("unpack", lua.create_function(unpack)?)?;
    let of_run = Rc::clone(meter);
    let size = move |lua: &Lua, values: MultiValue| size(&of_run, &Given::new(lua, "size", &values));
    module.raw_set("size", lua.create_function(size)?)?;
    Ok(module)
}

/// A format as far as it was read.
struct Format<'a, 'l> {
    given: &'a Given<'l>,
    text: &'a [u8],
    at: usize,
    is_big: bool,
    align: usize,
}

/// An option, and its size as far as the format tells.
struct Part {
    option: u8,
    size: usize,
}

impl<'a, 'l> Format<'a, 'l> {
    fn new(given: &'a Given<'l>, text: &'a [u8]) -> Self {
        Self { given, text, at: 0, is_big: false, align: 1 }
    }

    fn next(&mut self) -> mlua::Result<Option<Part>> {
        let Some(option) = self.text.get(self.at).copied().filter(|byte| *byte != 0) else { return Ok(None) };
        self.at += 1;
        let size = match option {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'f' => 4,
            b'c' => self.number(1)?,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > INTEGER_BYTES_MAX {
                    let text = format!("integral size {size} is larger than limit of {INTEGER_BYTES_MAX}");
                    return Err(thrown::text(self.given.lua, text));
                }
                size
            }
            _ => 0,
        };
        Ok(Some(Part { option, size }))
    }

    fn number(&mut self, default: usize) -> mlua::Result<usize> {
        let digits = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits == 0 {
            return Ok(default);
        }
        let text = std::str::from_utf8(&self.text[self.at..self.at + digits]).unwrap_or_default();
        self.at += digits;
        let number = text.parse::<i32>().ok().and_then(|number| usize::try_from(number).ok());
        number.ok_or_else(|| thrown::text(self.given.lua, "integral size overflow"))
    }

    /// Bytes that are missing at `len` for an element of this size to be aligned.
    fn padding(&self, len: usize, part: &Part) -> usize {
        if part.size == 0 || part.option == b'c' {
            return 0;
        }
        let size = part.size.min(self.align);
        size.wrapping_sub(len & (size - 1)) & (size - 1)
    }

    fn control(&mut self, option: u8) -> mlua::Result<()> {
        match option {
            b' ' => {}
            b'>' => self.is_big = true,
            b'<' => self.is_big = false,
            b'!' => {
                let align = self.number(ALIGN_MAX)?;
                if !align.is_power_of_two() {
                    let text = format!("alignment {align} is not a power of 2");
                    return Err(thrown::text(self.given.lua, text));
                }
                self.align = align;
            }
            other => {
                let why = format!("invalid format option '{}'", char::from(other));
                return Err(self.given.wrong(1, why));
            }
        }
        Ok(())
    }
}

fn pack(meter: &Meter, given: &Given<'_>) -> mlua::Result<mlua::LuaString> {
    let text = given.string(1)?;
    let text = text.as_bytes();
    let (mut format, mut packed, mut next) = (Format::new(given, &text), Buffer::new(meter, given.lua), 2);
    // what the format counts, which an overlong string is not part of
    let mut len = 0;
    while let Some(mut part) = format.next()? {
        meter.tick(1)?;
        let padding = format.padding(len, &part);
        for _ in 0..padding {
            packed.push(0)?;
        }
        len += padding;
        match part.option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                push_integer(given.number(next)?, part.size, format.is_big, &mut packed)?;
                next += 1;
            }
            b'x' => packed.push(0)?,
            b'f' => {
                let bytes = (given.number(next)? as f32).to_bits();
                packed.extend(&if format.is_big { bytes.to_be_bytes() } else { bytes.to_le_bytes() })?;
                next += 1;
            }
            b'd' => {
                let bytes = given.number(next)?.to_bits();
                packed.extend(&if format.is_big { bytes.to_be_bytes() } else { bytes.to_le_bytes() })?;
                next += 1;
            }
            b'c' | b's' => {
                let value = given.string(next)?;
                next += 1;
                let value = value.as_bytes();
                if part.size == 0 {
                    part.size = value.len();
                }
                if value.len() < part.size {
                    return Err(given.wrong(next, "string too short"));
                }
                packed.extend(&value[..part.size])?;
                if part.option == b's' {
                    packed.push(0)?;
                    part.size += 1;
                }
            }
            option => format.control(option)?,
        }
        len += part.size;
    }
    given.lua.create_string(packed.as_slice())
}

fn push_integer(number: f64, size: usize, is_big: bool, packed: &mut Buffer<'_>) -> mlua::Result<()> {
    let value = if number < 0.0 { numbers::truncated(number).cast_unsigned() } else { number as u64 };
    let start = packed.len();
    for byte in value.to_le_bytes().into_iter().chain(std::iter::repeat(0)).take(size) {
        packed.push(byte)?;
    }
    if is_big {
        packed.reverse_from(start);
    }
    Ok(())
}

fn unpack(meter: &Meter, given: &Given<'_>) -> mlua::Result<MultiValue> {
    let (text, data) = (given.string(1)?, given.string(2)?);
    let (text, data) = (text.as_bytes(), data.as_bytes());
    let first = if given.has(3) { given.integer(3)? } else { 1 };
    let Some(mut at) = first.checked_sub(1).and_then(|at| usize::try_from(at).ok()) else {
        return Err(given.wrong(2, "data string too short"));
    };
    let (mut format, mut values) = (Format::new(given, &text), Vec::new());
    let short = || given.wrong(2, "data string too short");
    while let Some(mut part) = format.next()? {
        meter.tick(1)?;
        if values.len() >= VALUES_MAX {
            return Err(thrown::text(given.lua, "too many results to unpack"));
        }
        at += format.padding(at, &part);
        let bytes = at.checked_add(part.size).and_then(|end| data.get(at..end)).ok_or_else(short)?;
        match part.option {
            b'b' | b'B' | b'h' | b'H' | b'l' | b'L' | b'T' | b'i' | b'I' => {
                let is_signed = part.option.is_ascii_lowercase();
                values.push(Value::Number(read_integer(bytes, format.is_big, is_signed)));
            }
            b'x' => {}
            b'f' => {
                let bytes: [u8; 4] = bytes.try_into().expect("as long as its option says");
                let bits = if format.is_big { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
                values.push(Value::Number(f32::from_bits(bits).into()));
            }
            b'd' => {
                let bytes: [u8; 8] = bytes.try_into().expect("as long as its option says");
                let bits = if format.is_big { u64::from_be_bytes(bytes) } else { u64::from_le_bytes(bytes) };
                values.push(Value::Number(f64::from_bits(bits)));
            }
            b'c' => {
                if part.size == 0 {
                    let Some(size) = values.pop().as_ref().and_then(numbers::number) else {
                        return Err(thrown::text(given.lua, "format 'c0' needs a previous size"));
                    };
                    part.size = size as usize;
                }
                let bytes = at.checked_add(part.size).and_then(|end| data.get(at..end)).ok_or_else(short)?;
                values.push(Value::String(given.lua.create_string(bytes)?));
            }
            b's' => {
                meter.tick(data.len().saturating_sub(at) / (16 << 10))?;
                let Some(len) = memchr::memchr(0, &data[at..]) else {
                    return Err(thrown::text(given.lua, "unfinished string in data"));
                };
                values.push(Value::String(given.lua.create_string(&data[at..at + len])?));
                part.size = len + 1;
            }
            option => format.control(option)?,
        }
        at += part.size;
    }
    values.push(Value::Integer(at as i64 + 1));
    Ok(values.into())
}

fn read_integer(bytes: &[u8], is_big: bool, is_signed: bool) -> f64 {
    let mut value = 0_u64;
    let mut push = |byte: &u8| value = value.wrapping_shl(8) | u64::from(*byte);
    if is_big {
        bytes.iter().for_each(&mut push);
    } else {
        bytes.iter().rev().for_each(&mut push);
    }
    if !is_signed {
        return value as f64;
    }
    let unused = 64_usize.saturating_sub(bytes.len() * 8) as u32;
    if bytes.is_empty() { 0.0 } else { (value.cast_signed() << unused >> unused) as f64 }
}

fn size(meter: &Meter, given: &Given<'_>) -> mlua::Result<usize> {
    let text = given.string(1)?;
    let text = text.as_bytes();
    let (mut format, mut len) = (Format::new(given, &text), 0);
    while let Some(part) = format.next()? {
        meter.tick(1)?;
        len += format.padding(len, &part);
        match part.option {
            b's' => return Err(given.wrong(1, "option 's' has no fixed size")),
            b'c' if part.size == 0 => return Err(given.wrong(1, "option 'c0' has no fixed size")),
            option if !option.is_ascii_alphanumeric() => format.control(option)?,
            _ => {}
        }
        len += part.size;
    }
    Ok(len)
}

/// The longest integer.
const INTEGER_BYTES_MAX: usize = 32;
/// What `!` alone means.
const ALIGN_MAX: usize = 8;
