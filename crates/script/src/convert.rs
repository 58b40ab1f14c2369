//! Replies of commands as values of Lua, and values that a script returns as its reply.
//!
//! | reply | Lua | | Lua | reply |
//! |---|---|---|---|---|
//! | integer | number | | number | integer, cut |
//! | string | string | | string | string |
//! | array | table from 1 on | | table | array up to the first nil |
//! | status, error | table with `ok`, `err` | | the same | status, error |
//! | null | `false`; nil in RESP3 | | nil, `false` | null |
//! | map, set, double, ... (RESP3) | table with `map`, `set`, `double`, ... | | the same | the same |
//! | true, false (RESP3) | the same | | `true` | 1; true in RESP3 |

use mlua::{Lua, Table, Value};
use resp::{Writer, parse_i64};

use super::meter::Meter;
use super::numbers;

/// The value of the complete reply that `reply` begins with, and what is behind it.
///
/// # Errors
/// What Lua refuses: memory.
///
/// # Panics
/// If `reply` is none: our own handlers write it.
pub(super) fn to_lua<'a>(
    lua: &Lua,
    meter: &Meter,
    reply: &'a [u8],
    resp3: bool,
) -> mlua::Result<(Value, &'a [u8])> {
    meter.tick(1)?;
    let end = memchr::memchr(b'\r', reply).expect("a reply has a line");
    let (kind, line, rest) = (reply[0], &reply[1..end], &reply[end + 2..]);
    let length = || usize::try_from(parse_i64(line).unwrap_or(-1)).ok();
    let null = || if resp3 { Value::Nil } else { Value::Boolean(false) };
    let named = |name: &str, value: Value| {
        let table = lua.create_table_with_capacity(0, 1)?;
        table.raw_set(name, value)?;
        Ok::<_, mlua::Error>(Value::Table(table))
    };
    let text = |bytes: &[u8]| Ok::<_, mlua::Error>(Value::String(lua.create_string(bytes)?));
    Ok(match kind {
        b':' => (Value::Number(parse_i64(line).unwrap_or(0) as f64), rest),
        b'+' => (named("ok", text(line)?)?, rest),
        b'-' => (named("err", text(line)?)?, rest),
        b'_' => (Value::Nil, rest),
        b'#' => (Value::Boolean(line == b"t"), rest),
        b',' => {
            let number =
                std::str::from_utf8(line).ok().and_then(|line| line.parse().ok()).unwrap_or(f64::NAN);
            (named("double", Value::Number(number))?, rest)
        }
        b'(' => (named("big_number", text(line)?)?, rest),
        b'$' | b'=' => match length() {
            None => (null(), rest),
            Some(len) if kind == b'$' => (text(&rest[..len])?, &rest[len + 2..]),
            Some(len) => {
                let table = lua.create_table()?;
                table.raw_set("format", text(&rest[..3])?)?;
                table.raw_set("string", text(&rest[4..len])?)?;
                (named("verbatim_string", Value::Table(table))?, &rest[len + 2..])
            }
        },
        b'*' | b'>' => match length() {
            None => (null(), rest),
            Some(count) => array(lua, meter, rest, count, resp3)?,
        },
        b'%' => {
            let (table, rest) = map(lua, meter, rest, length().unwrap_or(0), resp3)?;
            (named("map", Value::Table(table))?, rest)
        }
        b'~' => {
            let (table, rest) = set(lua, meter, rest, length().unwrap_or(0), resp3)?;
            (named("set", Value::Table(table))?, rest)
        }
        other => unreachable!("no handler writes a reply that begins with {other}"),
    })
}

fn array<'a>(
    lua: &Lua,
    meter: &Meter,
    mut rest: &'a [u8],
    count: usize,
    resp3: bool,
) -> mlua::Result<(Value, &'a [u8])> {
    let table = lua.create_table_with_capacity(count, 0)?;
    for index in 1..=count {
        let (value, behind) = to_lua(lua, meter, rest, resp3)?;
        table.raw_set(index, value)?;
        rest = behind;
    }
    Ok((Value::Table(table), rest))
}

fn map<'a>(
    lua: &Lua,
    meter: &Meter,
    mut rest: &'a [u8],
    count: usize,
    resp3: bool,
) -> mlua::Result<(Table, &'a [u8])> {
    let table = lua.create_table_with_capacity(0, count)?;
    for _ in 0..count {
        let (key, behind) = to_lua(lua, meter, rest, resp3)?;
        let (value, behind) = to_lua(lua, meter, behind, resp3)?;
        table.raw_set(key, value)?;
        rest = behind;
    }
    Ok((table, rest))
}

fn set<'a>(
    lua: &Lua,
    meter: &Meter,
    mut rest: &'a [u8],
    count: usize,
    resp3: bool,
) -> mlua::Result<(Table, &'a [u8])> {
    let table = lua.create_table_with_capacity(0, count)?;
    for _ in 0..count {
        let (key, behind) = to_lua(lua, meter, rest, resp3)?;
        table.raw_set(key, true)?;
        rest = behind;
    }
    Ok((table, rest))
}

/// How the value that a script returns becomes its reply.
pub(super) struct Returned<'m> {
    /// The script speaks version 3: `true` is true.
    pub(super) script_resp3: bool,
    /// The client does.
    pub(super) client_resp3: bool,
    /// The largest reply.
    pub(super) bytes_max: usize,
    pub(super) meter: &'m Meter,
}

/// Why a value is no reply.
pub(super) enum NoReply {
    TooDeep,
    TooLarge,
    Lua(mlua::Error),
}

impl From<mlua::Error> for NoReply {
    fn from(error: mlua::Error) -> Self {
        Self::Lua(error)
    }
}

impl Returned<'_> {
    /// Appends `value` as a reply to `out`.
    ///
    /// # Errors
    /// [`NoReply`]; what was appended is then to be taken back.
    pub(super) fn write(&self, value: &Value, out: &mut Vec<u8>) -> Result<(), NoReply> {
        self.write_at(value, 0, out.len(), out)
    }

    fn write_at(&self, value: &Value, depth: usize, start: usize, out: &mut Vec<u8>) -> Result<(), NoReply> {
        if depth > DEPTH_MAX {
            return Err(NoReply::TooDeep);
        }
        let bytes = if let Value::String(text) = value { text.as_bytes().len() } else { 0 };
        if out.len() - start + bytes > self.bytes_max {
            return Err(NoReply::TooLarge);
        }
        self.meter.tick(1 + bytes / 1_024)?;
        let mut writer = Writer::new(out, self.client_resp3);
        match value {
            Value::String(text) => writer.bulk(&text.as_bytes()),
            Value::Integer(number) => writer.integer(*number),
            Value::Number(number) => writer.integer(numbers::truncated(*number)),
            Value::Boolean(value) if self.script_resp3 => writer.boolean(*value),
            Value::Boolean(true) => writer.integer(1),
            Value::Table(table) => return self.write_table(table, depth, start, out),
            _ => writer.null(),
        }
        Ok(())
    }

    fn write_table(
        &self,
        table: &Table,
        depth: usize,
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), NoReply> {
        let mut writer = Writer::new(out, self.client_resp3);
        if let Value::String(text) = table.raw_get("err")? {
            writer.error_bytes(trimmed(&text.as_bytes()));
            return Ok(());
        }
        if let Value::String(text) = table.raw_get("ok")? {
            writer.simple(&String::from_utf8_lossy(&text.as_bytes()));
            return Ok(());
        }
        if let Some(number) = numbers::number(&table.raw_get("double")?) {
            writer.double(number);
            return Ok(());
        }
        if let Value::Table(map) = table.raw_get("map")? {
            return self.write_pairs(&map, true, depth, start, out);
        }
        if let Value::Table(set) = table.raw_get("set")? {
            return self.write_pairs(&set, false, depth, start, out);
        }
        if let Value::String(digits) = table.raw_get("big_number")? {
            writer.big_number(&String::from_utf8_lossy(&digits.as_bytes()).replace(['\r', '\n'], " "));
            return Ok(());
        }
        if let Value::Table(verbatim) = table.raw_get("verbatim_string")?
            && let (Value::String(text), Value::String(format)) =
                (verbatim.raw_get("string")?, verbatim.raw_get("format")?)
        {
            let mut three = [b' '; 3];
            format.as_bytes().iter().zip(&mut three).for_each(|(byte, to)| *to = *byte);
            writer.verbatim(three, &text.as_bytes());
            return Ok(());
        }
        let (head, mut count) = (out.len(), 0);
        loop {
            let value: Value = table.raw_get(count + 1)?;
            if value.is_nil() {
                break;
            }
            self.write_at(&value, depth + 1, start, out)?;
            count += 1;
        }
        insert_head(out, head, |writer| writer.array(count), self.client_resp3);
        Ok(())
    }

    /// A map, or the keys of a set.
    fn write_pairs(
        &self,
        table: &Table,
        has_values: bool,
        depth: usize,
        start: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), NoReply> {
        let (head, mut count) = (out.len(), 0);
        for pair in table.pairs::<Value, Value>() {
            let (key, value) = pair?;
            self.write_at(&key, depth + 1, start, out)?;
            if has_values {
                self.write_at(&value, depth + 1, start, out)?;
            }
            count += 1;
        }
        let write = |writer: &mut Writer<'_>| if has_values { writer.map(count) } else { writer.set(count) };
        insert_head(out, head, write, self.client_resp3);
        Ok(())
    }
}

/// Puts the head of an array before its elements, whose number is known now.
fn insert_head(out: &mut Vec<u8>, at: usize, write: impl FnOnce(&mut Writer<'_>), resp3: bool) {
    let mut head = Vec::new();
    write(&mut Writer::new(&mut head, resp3));
    out.splice(at..at, head);
}

/// `text` without line ends behind it.
pub(super) fn trimmed(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n')).map_or(0, |last| last + 1);
    &text[..end]
}

/// Arrays in arrays of a reply. Clients read no more, and a table may hold itself.
const DEPTH_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back(reply: &str, resp3: bool) -> String {
        let (lua, meter) = (Lua::new(), &Meter::new(1 << 20));
        let (value, rest) = to_lua(&lua, meter, reply.as_bytes(), resp3).expect("memory");
        assert!(rest.is_empty(), "{reply}");
        let returned = Returned { script_resp3: resp3, client_resp3: resp3, bytes_max: 1_000, meter };
        let mut out = Vec::new();
        assert!(returned.write(&value, &mut out).is_ok());
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn each_type_comes_back_as_it_was() {
        for reply in [
            "+OK\r\n",
            "-ERR no\r\n",
            ":-7\r\n",
            "$3\r\na\r\n\r\n",
            "$-1\r\n",
            "*2\r\n:1\r\n*1\r\n$0\r\n\r\n",
        ] {
            assert_eq!(there_and_back(reply, false), reply);
        }
        for reply in [
            "%1\r\n$1\r\nk\r\n:1\r\n",
            "~1\r\n:1\r\n",
            ",1.5\r\n",
            "#t\r\n",
            "#f\r\n",
            "(12\r\n",
            "=7\r\ntxt:abc\r\n",
            "_\r\n",
        ] {
            assert_eq!(there_and_back(reply, true), reply);
        }
        assert_eq!(there_and_back("*-1\r\n", false), "$-1\r\n");
    }

    #[test]
    fn table_that_holds_itself_is_no_reply() {
        let lua = Lua::new();
        let table = lua.create_table().expect("memory");
        table.raw_set(1, table.clone()).expect("memory");
        let returned = Returned {
            script_resp3: false,
            client_resp3: false,
            bytes_max: 1_000,
            meter: &Meter::new(1 << 20),
        };
        assert!(matches!(returned.write(&Value::Table(table), &mut Vec::new()), Err(NoReply::TooDeep)));
    }

    #[test]
    fn line_ends_in_a_status_or_an_error_forge_no_reply() {
        let lua = Lua::new();
        for name in ["ok", "err", "big_number"] {
            let table = lua.create_table().expect("memory");
            table.raw_set(name, "a\r\n+OK\r\nb").expect("memory");
            let returned = Returned {
                script_resp3: true,
                client_resp3: true,
                bytes_max: 1_000,
                meter: &Meter::new(1 << 20),
            };
            let mut out = Vec::new();
            assert!(returned.write(&Value::Table(table), &mut out).is_ok());
            assert_eq!(out.iter().filter(|byte| **byte == b'\n').count(), 1, "{name}");
        }
    }
}
