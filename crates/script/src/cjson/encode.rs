//! Values to JSON: tables with keys from 1 on are arrays, all others objects.

use mlua::{Lua, Table, Value};

use super::{Config, Invalid};
use crate::meter::{Buffer, Meter};
use crate::numbers::{self, general};
use crate::thrown;

/// `value` as JSON.
///
/// # Errors
/// One for the script: `Cannot serialise ...`.
pub(super) fn encode(lua: &Lua, meter: &Meter, value: &Value, config: &Config) -> mlua::Result<Value> {
    let mut encoder = Encoder { lua, meter, config, text: Buffer::new(meter, lua) };
    encoder.value(value, 0)?;
    lua.create_string(encoder.text.as_slice()).map(Value::String)
}

struct Encoder<'a> {
    lua: &'a Lua,
    meter: &'a Meter,
    config: &'a Config,
    text: Buffer<'a>,
}

impl Encoder<'_> {
    // A table may hold tables a thousand deep: what calls itself is kept small.
    fn value(&mut self, value: &Value, depth: i64) -> mlua::Result<()> {
        match value {
            Value::Table(table) => self.table(table, depth + 1),
            other => self.plain(other),
        }
    }

    fn plain(&mut self, value: &Value) -> mlua::Result<()> {
        self.meter.tick(1)?;
        match value {
            Value::Nil => self.text.extend(b"null"),
            Value::LightUserData(data) if data.0.is_null() => self.text.extend(b"null"),
            Value::Boolean(true) => self.text.extend(b"true"),
            Value::Boolean(false) => self.text.extend(b"false"),
            Value::String(text) => self.string(&text.as_bytes()),
            other => match numbers::number(other) {
                Some(number) => self.number(number, other),
                None => Err(self.refused(other, "type not supported")),
            },
        }
    }

    fn refused(&self, value: &Value, why: &str) -> mlua::Error {
        thrown::text(self.lua, format_args!("Cannot serialise {}: {why}", thrown::type_name(value)))
    }

    fn number(&mut self, number: f64, value: &Value) -> mlua::Result<()> {
        let text = match (number.is_finite(), self.config.encode_invalid) {
            (false, Invalid::Refused) => return Err(self.refused(value, "must not be NaN or Inf")),
            (false, Invalid::Null) => "null".to_owned(),
            _ => general(number, usize::try_from(self.config.digits).unwrap_or(14)),
        };
        self.text.extend(text.as_bytes())
    }

    fn string(&mut self, text: &[u8]) -> mlua::Result<()> {
        self.text.reserve(text.len() + 2)?;
        self.text.push(b'"')?;
        for byte in text {
            let short = match byte {
                b'"' => b'"',
                b'\\' => b'\\',
                b'/' => b'/',
                8 => b'b',
                b'\t' => b't',
                b'\n' => b'n',
                12 => b'f',
                b'\r' => b'r',
                0..=0x1f | 0x7f => {
                    self.text.extend(format!("\\u{byte:04x}").as_bytes())?;
                    continue;
                }
                other => {
                    self.text.push(*other)?;
                    continue;
                }
            };
            self.text.extend(&[b'\\', short])?;
        }
        self.text.push(b'"')
    }

    fn table(&mut self, table: &Table, depth: i64) -> mlua::Result<()> {
        if depth > self.config.encode_depth_max.min(DEPTH_MAX) {
            return Err(self.too_deep(depth));
        }
        match self.array_len(table) {
            Ok(Some(len)) if len > 0 => self.array(table, len, depth),
            Ok(_) => self.object(table, depth),
            Err(error) => Err(error),
        }
    }

    fn too_deep(&self, depth: i64) -> mlua::Error {
        thrown::text(self.lua, format_args!("Cannot serialise, excessive nesting ({depth})"))
    }

    fn array(&mut self, table: &Table, len: i64, depth: i64) -> mlua::Result<()> {
        self.text.push(b'[')?;
        for index in 1..=len {
            self.element(table, index, depth)?;
        }
        self.text.push(b']')
    }

    fn element(&mut self, table: &Table, index: i64, depth: i64) -> mlua::Result<()> {
        self.comma(index > 1)?;
        self.value(&table.raw_get(index)?, depth)
    }

    fn object(&mut self, table: &Table, depth: i64) -> mlua::Result<()> {
        self.text.push(b'{')?;
        let mut is_first = true;
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.name(&key, is_first)?;
            is_first = false;
            self.value(&value, depth)?;
        }
        self.text.push(b'}')
    }

    fn name(&mut self, key: &Value, is_first: bool) -> mlua::Result<()> {
        self.meter.tick(1)?;
        self.comma(!is_first)?;
        match key {
            Value::String(name) => self.string(&name.as_bytes())?,
            other => match numbers::number(other) {
                Some(number) => {
                    self.text.push(b'"')?;
                    self.number(number, other)?;
                    self.text.push(b'"')?;
                }
                None => return Err(self.refused(other, "table key must be a number or string")),
            },
        }
        self.text.push(b':')
    }

    fn comma(&mut self, is_wanted: bool) -> mlua::Result<()> {
        if is_wanted { self.text.push(b',') } else { Ok(()) }
    }

    /// The largest index of a table whose keys are all positive integers; `None`: it is an object.
    fn array_len(&self, table: &Table) -> mlua::Result<Option<i64>> {
        let (mut largest, mut count) = (0, 0);
        for pair in table.pairs::<Value, Value>() {
            self.meter.tick(1)?;
            let (key, _) = pair?;
            let Some(index) = numbers::number(&key).and_then(numbers::integer).filter(|index| *index > 0)
            else {
                return Ok(None);
            };
            largest = largest.max(index);
            count += 1;
        }
        let Config { sparse_ratio, sparse_safe, sparse_convert, .. } = *self.config;
        if sparse_ratio > 0 && largest > sparse_safe && largest > sparse_ratio.saturating_mul(count) {
            if !sparse_convert {
                return Err(self.refused(&Value::Table(table.clone()), "excessively sparse array"));
            }
            return Ok(None);
        }
        Ok(Some(largest))
    }
}

/// Deeper than this nothing goes, whatever a script sets: each level takes stack.
const DEPTH_MAX: i64 = 1_000;
