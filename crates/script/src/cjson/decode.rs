//! JSON to values: a reader of tokens, and a parser that asks for them; errors name the token and its place.

use mlua::{Lua, LuaString, Table, Value};

use super::Config;
use crate::meter::{Buffer, Meter};
use crate::thrown;

/// The value that `text` is.
///
/// # Errors
/// One for the script: `Expected ... but found ... at character n`.
pub(super) fn decode(lua: &Lua, meter: &Meter, text: &[u8], config: &Config) -> mlua::Result<Value> {
    if text.len() >= 2 && (text[0] == 0 || text[1] == 0) {
        return Err(thrown::text(lua, "JSON parser does not support UTF-16 or UTF-32"));
    }
    let mut decoder = Decoder { lua, meter, config, text, at: 0 };
    let value = decoder.value()?;
    let token = decoder.next()?;
    if !matches!(token.kind, Kind::End) {
        return Err(decoder.expected("the end", &token));
    }
    Ok(value)
}

struct Decoder<'a> {
    lua: &'a Lua,
    meter: &'a Meter,
    config: &'a Config,
    text: &'a [u8],
    at: usize,
}

struct Token<'a> {
    kind: Kind<'a>,
    at: usize,
}

enum Kind<'a> {
    ObjectBegin,
    ObjectEnd,
    ArrayBegin,
    ArrayEnd,
    Colon,
    Comma,
    End,
    String(Buffer<'a>),
    Number(f64),
    Boolean(bool),
    Null,
    Error(&'static str),
}

impl Kind<'_> {
    fn name(&self) -> &'static str {
        match self {
            Self::ObjectBegin => "T_OBJ_BEGIN",
            Self::ObjectEnd => "T_OBJ_END",
            Self::ArrayBegin => "T_ARR_BEGIN",
            Self::ArrayEnd => "T_ARR_END",
            Self::Colon => "T_COLON",
            Self::Comma => "T_COMMA",
            Self::End => "T_END",
            Self::String(_) => "T_STRING",
            Self::Number(_) => "T_NUMBER",
            Self::Boolean(_) => "T_BOOLEAN",
            Self::Null => "T_NULL",
            Self::Error(text) => text,
        }
    }
}

impl<'a> Decoder<'a> {
    /// The byte at `at`; a zero behind the end, as the text would have it in C.
    fn byte(&self, at: usize) -> u8 {
        self.text.get(at).copied().unwrap_or(0)
    }

    fn expected(&self, what: &str, token: &Token<'_>) -> mlua::Error {
        let (found, at) = (token.kind.name(), token.at + 1);
        thrown::text(self.lua, format_args!("Expected {what} but found {found} at character {at}"))
    }

    fn next(&mut self) -> mlua::Result<Token<'a>> {
        self.meter.tick(1)?;
        while matches!(self.byte(self.at), b' ' | b'\t' | b'\n' | b'\r') {
            self.at += 1;
            if self.at.is_multiple_of(SPACES) {
                self.meter.tick(SPACES / 64)?;
            }
        }
        let at = self.at;
        let single = match self.byte(at) {
            b'{' => Some(Kind::ObjectBegin),
            b'}' => Some(Kind::ObjectEnd),
            b'[' => Some(Kind::ArrayBegin),
            b']' => Some(Kind::ArrayEnd),
            b':' => Some(Kind::Colon),
            b',' => Some(Kind::Comma),
            0 => return Ok(Token { kind: Kind::End, at }),
            _ => None,
        };
        if let Some(kind) = single {
            self.at += 1;
            return Ok(Token { kind, at });
        }
        let kind = self.long_token()?;
        // what is wrong is found where the reader stands
        let at = if matches!(kind, Kind::Error(_)) { self.at } else { at };
        Ok(Token { kind, at })
    }

    fn long_token(&mut self) -> mlua::Result<Kind<'a>> {
        let rest = &self.text[self.at..];
        match rest.first() {
            Some(b'"') => return self.string(),
            Some(b'-' | b'0'..=b'9') => {
                if !self.config.decode_invalid && is_invalid_number(rest) {
                    return Ok(Kind::Error("invalid number"));
                }
                return Ok(self.number());
            }
            _ => {}
        }
        for (word, kind) in
            [("true", Kind::Boolean(true)), ("false", Kind::Boolean(false)), ("null", Kind::Null)]
        {
            if rest.starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(kind);
            }
        }
        let is_number = matches!(rest.first(), Some(b'+' | b'f' | b'i' | b'I' | b'n' | b'N' | b't'));
        if is_number && self.config.decode_invalid && is_invalid_number(rest) {
            return Ok(self.number());
        }
        Ok(Kind::Error("invalid token"))
    }

    fn number(&mut self) -> Kind<'a> {
        match leading_number(&self.text[self.at..]) {
            Some((number, len)) => {
                self.at += len;
                Kind::Number(number)
            }
            None => Kind::Error("invalid number"),
        }
    }

    fn string(&mut self) -> mlua::Result<Kind<'a>> {
        self.at += 1;
        let mut text = Buffer::new(self.meter, self.lua);
        loop {
            match self.byte(self.at) {
                b'"' => break,
                0 => return Ok(Kind::Error("unexpected end of string")),
                b'\\' => {
                    let escaped = match self.byte(self.at + 1) {
                        byte @ (b'"' | b'\\' | b'/') => byte,
                        b'b' => 8,
                        b't' => b'\t',
                        b'n' => b'\n',
                        b'f' => 12,
                        b'r' => b'\r',
                        b'u' => {
                            let Some((letter, len)) = self.unicode() else {
                                return Ok(Kind::Error("invalid unicode escape code"));
                            };
                            text.extend(letter.encode_utf8(&mut [0; 4]).as_bytes())?;
                            self.at += len;
                            continue;
                        }
                        _ => return Ok(Kind::Error("invalid escape code")),
                    };
                    text.push(escaped)?;
                    self.at += 2;
                }
                byte => {
                    text.push(byte)?;
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        Ok(Kind::String(text))
    }

    /// The letter of the escape that begins here, one of a pair or alone, and how long the escape is.
    fn unicode(&self) -> Option<(char, usize)> {
        let unit = |at: usize| {
            let digits =
                self.text.get(at + 2..at + 6).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))?;
            u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
        };
        let first = unit(self.at)?;
        if first & 0xf800 != 0xd800 {
            return char::from_u32(first).map(|letter| (letter, 6));
        }
        let next = self.at + 6;
        if first & 0x400 != 0 || self.byte(next) != b'\\' || self.byte(next + 1) != b'u' {
            return None;
        }
        let second = unit(next).filter(|second| second & 0xfc00 == 0xdc00)?;
        let letter = 0x1_0000 + ((first & 0x3ff) << 10) + (second & 0x3ff);
        char::from_u32(letter).map(|letter| (letter, 12))
    }

    /// The value that begins here. What is open is on a list, not on the stack: it may be nested a thousand deep.
    fn value(&mut self) -> mlua::Result<Value> {
        let mut open = Vec::new();
        loop {
            let Some(mut value) = self.begin(&mut open)? else { continue };
            loop {
                let Some(container) = open.last_mut() else { return Ok(value) };
                if !self.add(container, value)? {
                    break;
                }
                value = Value::Table(open.pop().expect("just looked at").table);
            }
        }
    }

    /// Reads a value; `None` if it is a container that has something in it, which is open now.
    fn begin(&mut self, open: &mut Vec<Open>) -> mlua::Result<Option<Value>> {
        // an array has its first token read already, to see whether it has one
        let token = match open.last_mut().and_then(|container| container.first.take()) {
            Some(at) => {
                self.at = at;
                self.next()?
            }
            None => self.next()?,
        };
        let (end, is_array) = match token.kind {
            Kind::String(text) => return Ok(Some(Value::String(self.lua.create_string(text.as_slice())?))),
            Kind::Number(number) => return Ok(Some(Value::Number(number))),
            Kind::Boolean(value) => return Ok(Some(Value::Boolean(value))),
            Kind::Null => return Ok(Some(Value::NULL)),
            Kind::ObjectBegin => (b'}', false),
            Kind::ArrayBegin => (b']', true),
            _ => return Err(self.expected("value", &token)),
        };
        self.descend(open.len() as i64 + 1)?;
        let table = self.lua.create_table()?;
        let at = self.at;
        let token = self.next()?;
        if matches!((&token.kind, end), (Kind::ObjectEnd, b'}') | (Kind::ArrayEnd, b']')) {
            return Ok(Some(Value::Table(table)));
        }
        let mut container = Open { table, index: 0, name: None, first: None };
        if is_array {
            container.first = Some(at);
        } else {
            container.name = Some(self.name(&token)?);
        }
        open.push(container);
        Ok(None)
    }

    /// The name of a field, whose colon is read as well.
    fn name(&mut self, token: &Token<'_>) -> mlua::Result<LuaString> {
        let Kind::String(name) = &token.kind else {
            return Err(self.expected("object key string", token));
        };
        let name = self.lua.create_string(name.as_slice())?;
        let colon = self.next()?;
        if !matches!(colon.kind, Kind::Colon) {
            return Err(self.expected("colon", &colon));
        }
        Ok(name)
    }

    /// Adds `value` to what is open; returns whether that ends there.
    fn add(&mut self, container: &mut Open, value: Value) -> mlua::Result<bool> {
        let Some(name) = container.name.take() else {
            container.index += 1;
            container.table.raw_set(container.index, value)?;
            let token = self.next()?;
            return match token.kind {
                Kind::ArrayEnd => Ok(true),
                Kind::Comma => Ok(false),
                _ => Err(self.expected("comma or array end", &token)),
            };
        };
        container.table.raw_set(name, value)?;
        let token = self.next()?;
        match token.kind {
            Kind::ObjectEnd => Ok(true),
            Kind::Comma => {
                let token = self.next()?;
                container.name = Some(self.name(&token)?);
                Ok(false)
            }
            _ => Err(self.expected("comma or object end", &token)),
        }
    }

    fn descend(&self, depth: i64) -> mlua::Result<()> {
        if depth <= self.config.decode_depth_max.min(DEPTH_MAX) {
            return Ok(());
        }
        let text = format!("Found too many nested data structures ({depth}) at character {}", self.at);
        Err(thrown::text(self.lua, text))
    }
}

/// An array or an object that is being read.
struct Open {
    table: Table,
    /// Elements of an array so far.
    index: i64,
    /// Of an object: the name of the field whose value comes next.
    name: Option<LuaString>,
    /// Of an array that has just begun: where its first element is.
    first: Option<usize>,
}

/// Whether `text` begins with a number that C reads and JSON has not.
fn is_invalid_number(text: &[u8]) -> bool {
    if text.first() == Some(&b'+') {
        return true;
    }
    let text = text.strip_prefix(b"-").unwrap_or(text);
    match (text.first(), text.get(1)) {
        (Some(b'0'), Some(b'x' | b'X' | b'0'..=b'9')) => true,
        (Some(first), _) if *first <= b'9' => false,
        _ => text
            .get(..3)
            .is_some_and(|word| word.eq_ignore_ascii_case(b"inf") || word.eq_ignore_ascii_case(b"nan")),
    }
}

/// The number that `text` begins with, as `strtod` of C reads it, and its length.
fn leading_number(text: &[u8]) -> Option<(f64, usize)> {
    let sign_len = usize::from(matches!(text.first(), Some(b'+' | b'-')));
    let sign = if text.first() == Some(&b'-') { -1.0 } else { 1.0 };
    let rest = &text[sign_len..];
    let has =
        |word: &str| rest.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()));
    if has("infinity") {
        return Some((sign * f64::INFINITY, sign_len + 8));
    }
    if has("inf") {
        return Some((sign * f64::INFINITY, sign_len + 3));
    }
    if has("nan") {
        return Some((f64::NAN, sign_len + 3));
    }
    if has("0x") && rest.get(2).is_some_and(u8::is_ascii_hexdigit) {
        let digits = rest[2..].iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let value = rest[2..2 + digits].iter().fold(0.0, |value: f64, digit| {
            value * 16.0 + f64::from(char::from(*digit).to_digit(16).unwrap_or(0))
        });
        return Some((sign * value, sign_len + 2 + digits));
    }
    let digits = |from: usize| rest[from..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let whole = digits(0);
    let mut len = whole;
    if rest.get(len) == Some(&b'.') {
        let fraction = digits(len + 1);
        if whole + fraction > 0 {
            len += 1 + fraction;
        }
    }
    if len == 0 {
        return None;
    }
    if matches!(rest.get(len), Some(b'e' | b'E')) {
        let signed = len + 1 + usize::from(matches!(rest.get(len + 1), Some(b'+' | b'-')));
        let exponent = if signed <= rest.len() { digits(signed) } else { 0 };
        if exponent > 0 {
            len = signed + exponent;
        }
    }
    let number: f64 = std::str::from_utf8(&rest[..len]).ok()?.parse().ok()?;
    Some((sign * number, sign_len + len))
}

/// White space after which the time is looked at.
const SPACES: usize = 4_096;
/// Deeper than this nothing goes, whatever a script sets: each level takes stack.
const DEPTH_MAX: i64 = 1_000;
