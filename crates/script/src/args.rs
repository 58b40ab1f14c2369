//! Arguments that a script passes to a function of ours, checked as Lua's own functions check theirs.

use mlua::{Lua, LuaString, MultiValue, Value};

use super::numbers;
use super::thrown;

/// What the function `name` was called with.
pub(super) struct Given<'a> {
    pub(super) lua: &'a Lua,
    name: &'static str,
    values: &'a MultiValue,
}

impl<'a> Given<'a> {
    pub(super) fn new(lua: &'a Lua, name: &'static str, values: &'a MultiValue) -> Self {
        Self { lua, name, values }
    }

    pub(super) fn count(&self) -> usize {
        self.values.len()
    }

    /// Whether argument `number`, from 1 on, is there and not nil.
    pub(super) fn has(&self, number: usize) -> bool {
        self.values.get(number - 1).is_some_and(|value| !value.is_nil())
    }

    /// Argument `number`, whatever it is.
    pub(super) fn any(&self, number: usize) -> Value {
        self.values.get(number - 1).cloned().unwrap_or(Value::Nil)
    }

    /// Argument `number` as a number; a string that is one will do.
    ///
    /// # Errors
    /// One for the script.
    pub(super) fn number(&self, number: usize) -> mlua::Result<f64> {
        let value = self.values.get(number - 1);
        if let Some(found) = value.and_then(numbers::number) {
            return Ok(found);
        }
        let coerced = match value {
            Some(text @ Value::String(_)) => self.lua.coerce_number(text.clone())?,
            _ => None,
        };
        coerced.ok_or_else(|| self.wrong_type(number, "number"))
    }

    /// Argument `number` as an integer, cut.
    ///
    /// # Errors
    /// One for the script.
    pub(super) fn integer(&self, number: usize) -> mlua::Result<i64> {
        Ok(numbers::truncated(self.number(number)?))
    }

    /// The low 32 bits of argument `number`, rounded to the next integer.
    ///
    /// # Errors
    /// One for the script.
    pub(super) fn bits(&self, number: usize) -> mlua::Result<u32> {
        /// Added to a number it leaves the integer in the low bits of the fraction.
        const SHIFT: f64 = 6_755_399_441_055_744.0;
        Ok((self.number(number)? + SHIFT).to_bits() as u32)
    }

    /// Argument `number` as a string; a number will do.
    ///
    /// # Errors
    /// One for the script.
    pub(super) fn string(&self, number: usize) -> mlua::Result<LuaString> {
        let value = self.values.get(number - 1);
        let coerced = match value {
            Some(Value::String(text)) => return Ok(text.clone()),
            Some(found @ (Value::Integer(_) | Value::Number(_))) => self.lua.coerce_string(found.clone())?,
            _ => None,
        };
        coerced.ok_or_else(|| self.wrong_type(number, "string"))
    }

    /// An error about argument `number`.
    pub(super) fn wrong(&self, number: usize, why: impl std::fmt::Display) -> mlua::Error {
        thrown::bad_argument(self.lua, number, self.name, why)
    }

    fn wrong_type(&self, number: usize, expected: &str) -> mlua::Error {
        let found = self.values.get(number - 1).map_or("no value", thrown::type_name);
        self.wrong(number, format_args!("{expected} expected, got {found}"))
    }
}

/// Values that a function of ours returns at most, as many as the stack of Lua has room for in Redis.
pub(super) const VALUES_MAX: usize = 8_000;
