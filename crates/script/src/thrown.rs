//! Errors that cross Lua: how a function of ours raises one, and what a script sees of it when it catches it.
//!
//! Lua carries any value as an error. Ours are a [`Thrown`], which `mlua` wraps: to a script it is what `pcall` makes of it
//! (`sandbox.lua`).

use std::fmt;

use mlua::{Lua, Value};

/// What a function of ours raises.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Thrown {
    /// An error reply, its code first: scripts see a table with it in `err`, or the text alone, as Redis has it.
    Reply(Vec<u8>),
    /// A text that begins with the place in the script.
    Text(Vec<u8>),
    /// The attempt is over (`meter`).
    Halt,
}

impl fmt::Display for Thrown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Reply(text) | Self::Text(text) => f.write_str(&String::from_utf8_lossy(text)),
            Self::Halt => f.write_str("the run of the script is over"),
        }
    }
}

impl std::error::Error for Thrown {}

impl From<Thrown> for mlua::Error {
    fn from(thrown: Thrown) -> Self {
        mlua::Error::external(thrown)
    }
}

/// The error reply `text`, raised.
pub(crate) fn reply(text: impl Into<Vec<u8>>) -> mlua::Error {
    Thrown::Reply(text.into()).into()
}

/// `text`, raised by a function of ours that a script has called.
pub(crate) fn text(lua: &Lua, text: impl fmt::Display) -> mlua::Error {
    Thrown::Text(format!("{}{text}", place(lua, 1)).into_bytes()).into()
}

/// A wrong argument of the function `name`, as Lua's own functions report it.
pub(crate) fn bad_argument(lua: &Lua, number: usize, name: &str, why: impl fmt::Display) -> mlua::Error {
    text(lua, format_args!("bad argument #{number} to '{name}' ({why})"))
}

/// What Lua puts before a text: where the function at `level` of the stack is.
fn place(lua: &Lua, level: usize) -> String {
    let line = |debug: &mlua::debug::Debug<'_>| {
        let short = debug.source().short_src.map(|name| name.into_owned()).unwrap_or_default();
        debug.current_line().map(|line| format!("{short}:{line}: "))
    };
    lua.inspect_stack(level, line).flatten().unwrap_or_default()
}

/// The source and the line that raised the error that a message handler of ours is called with: those of the script, also where
/// it has called a function that raised it.
pub(crate) fn raised_at(lua: &Lua) -> Option<(String, usize)> {
    let at = |debug: &mlua::debug::Debug<'_>| {
        let name = debug.source().source.map(|name| name.into_owned()).unwrap_or_default();
        (name, debug.current_line())
    };
    for level in 1..LEVELS_MAX {
        match lua.inspect_stack(level, at)? {
            (name, Some(line)) if name != "=sandbox" => return Some((name, line)),
            _ => {}
        }
    }
    None
}

/// The [`Thrown`] that `error` carries through any number of calls.
pub(crate) fn of(error: &mlua::Error) -> Option<&Thrown> {
    match error {
        mlua::Error::CallbackError { cause, .. } => of(cause),
        other => other.downcast_ref::<Thrown>(),
    }
}

/// Whether `error` says that memory is used up.
pub(crate) fn is_memory(error: &mlua::Error) -> bool {
    match error {
        mlua::Error::MemoryError(_) => true,
        mlua::Error::CallbackError { cause, .. } => is_memory(cause),
        _ => false,
    }
}

/// What `error` says, without the trace.
pub(crate) fn message(error: &mlua::Error) -> Vec<u8> {
    match error {
        mlua::Error::CallbackError { cause, .. } => message(cause),
        mlua::Error::RuntimeError(text) | mlua::Error::MemoryError(text) => text.clone().into_bytes(),
        mlua::Error::SyntaxError { message, .. } => message.clone().into_bytes(),
        other => match of(other) {
            Some(Thrown::Reply(text) | Thrown::Text(text)) => text.clone(),
            _ => other.to_string().into_bytes(),
        },
    }
}

/// The name of the type of `value` as Lua spells it.
pub(crate) fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Integer(_) => "number",
        Value::LightUserData(_) | Value::Error(_) => "userdata",
        other => other.type_name(),
    }
}

/// Functions between a script and the message handler.
const LEVELS_MAX: usize = 16;
