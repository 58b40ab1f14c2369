//! `string.find`, `match`, `gmatch` and `gsub`, as Lua 5.1 has them, over a matcher that the end of a run ends (`pattern`).
//!
//! Out of scope: the other functions of `string`, which take no longer than their result.

use std::cell::Cell;
use std::ops::Range;
use std::rc::Rc;

use mlua::{Lua, LuaString, MultiValue, Table, Value};

use super::args::Given;
use super::pattern::{Captured, Fault, Matcher, PATTERN_BYTES_MAX};
use super::thrown;

/// What bounds the functions.
pub(super) struct Bounds {
    /// Fails when the run is over.
    pub(super) tick: Box<dyn Fn() -> mlua::Result<()>>,
    /// The longest result in the making, which Lua does not count yet.
    pub(super) bytes_max: usize,
}

/// The functions by name.
pub(super) fn module(lua: &Lua, bounds: &Rc<Bounds>) -> mlua::Result<Table> {
    let module = lua.create_table()?;
    for (name, finds) in [("find", true), ("match", false)] {
        let bounds = Rc::clone(bounds);
        let function =
            move |lua: &Lua, values: MultiValue| find(lua, &bounds, &Given::new(lua, name, &values), finds);
        module.raw_set(name, lua.create_function(function)?)?;
    }
    let of_all = Rc::clone(bounds);
    module.raw_set("gmatch", lua.create_function(move |lua, values| gmatch(lua, &of_all, &values))?)?;
    let of_changes = Rc::clone(bounds);
    module.raw_set("gsub", lua.create_function(move |lua, values| gsub(lua, &of_changes, &values))?)?;
    Ok(module)
}

fn find(lua: &Lua, bounds: &Bounds, given: &Given<'_>, finds: bool) -> mlua::Result<MultiValue> {
    let (text, pattern) = (given.string(1)?, given.string(2)?);
    let from = if given.has(3) { given.integer(3)? } else { 1 };
    let is_plain = finds && !matches!(given.any(4), Value::Nil | Value::Boolean(false));
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let from = begin(from, text.len());
    let tick = || (bounds.tick)();
    if is_plain || (finds && !has_specials(&pattern)) {
        // takes no longer than to read both
        return Ok(match memchr::memmem::find(&text[from..], &pattern).map(|at| from + at) {
            None => one(Value::Nil),
            Some(at) => MultiValue::from_vec(vec![number(at + 1), number(at + pattern.len())]),
        });
    }
    let (is_anchored, pattern) = anchor(lua, &pattern)?;
    let mut matcher = Matcher::new(&text, pattern, &tick);
    for start in from..=text.len() {
        if let Some(end) = matcher.at(start).map_err(|fault| raise(lua, fault))? {
            let mut results = if finds { vec![number(start + 1), number(end)] } else { Vec::new() };
            let whole = start..end;
            push_captures(lua, &matcher, (!finds).then_some(&whole), &mut results)?;
            return Ok(MultiValue::from_vec(results));
        }
        if is_anchored {
            break;
        }
    }
    Ok(one(Value::Nil))
}

fn gmatch(lua: &Lua, bounds: &Rc<Bounds>, values: &MultiValue) -> mlua::Result<Value> {
    let given = Given::new(lua, "gmatch", values);
    let (text, pattern) = (given.string(1)?, given.string(2)?);
    check_length(lua, &pattern.as_bytes())?;
    let (bounds, next) = (Rc::clone(bounds), Cell::new(0));
    let step = move |lua: &Lua, (): ()| next_match(lua, &bounds, (&text, &pattern), &next);
    lua.create_function(step).map(Value::Function)
}

fn next_match(
    lua: &Lua,
    bounds: &Bounds,
    (text, pattern): (&LuaString, &LuaString),
    next: &Cell<usize>,
) -> mlua::Result<MultiValue> {
    let (text, pattern, tick) = (text.as_bytes(), pattern.as_bytes(), || (bounds.tick)());
    let mut matcher = Matcher::new(&text, &pattern, &tick);
    for start in next.get()..=text.len() {
        if let Some(end) = matcher.at(start).map_err(|fault| raise(lua, fault))? {
            next.set(end + usize::from(end == start));
            let mut results = Vec::new();
            push_captures(lua, &matcher, Some(&(start..end)), &mut results)?;
            return Ok(MultiValue::from_vec(results));
        }
    }
    Ok(MultiValue::new())
}

/// What takes the place of a match.
enum Replacement {
    Text(LuaString),
    Table(Table),
    Function(mlua::Function),
}

fn gsub(lua: &Lua, bounds: &Bounds, values: &MultiValue) -> mlua::Result<MultiValue> {
    let given = Given::new(lua, "gsub", values);
    let (text, pattern) = (given.string(1)?, given.string(2)?);
    let most = if given.has(4) { given.integer(4)? } else { i64::MAX };
    let replacement = match given.any(3) {
        Value::Table(table) => Replacement::Table(table),
        Value::Function(function) => Replacement::Function(function),
        Value::String(_) | Value::Integer(_) | Value::Number(_) => Replacement::Text(given.string(3)?),
        _ => return Err(given.wrong(3, "string/function/table expected")),
    };
    let (text, pattern, tick) = (text.as_bytes(), pattern.as_bytes(), || (bounds.tick)());
    let (is_anchored, pattern) = anchor(lua, &pattern)?;
    let mut matcher = Matcher::new(&text, pattern, &tick);
    let mut out = Out { bytes: Vec::with_capacity(text.len()), bytes_max: bounds.bytes_max };
    let (mut at, mut count) = (0, 0);
    while count < most {
        let end = matcher.at(at).map_err(|fault| raise(lua, fault))?;
        if let Some(end) = end {
            count += 1;
            replacement.add(lua, &matcher, (&text, at..end), &mut out)?;
        }
        match end {
            Some(end) if end > at => at = end,
            _ if at < text.len() => {
                out.bytes.push(text[at]);
                at += 1;
            }
            _ => break,
        }
        if is_anchored {
            break;
        }
    }
    out.bytes.extend_from_slice(&text[at..]);
    Ok(MultiValue::from_vec(vec![Value::String(lua.create_string(&out.bytes)?), Value::Number(count as f64)]))
}

/// A result in the making, which is not in Lua's memory yet.
struct Out {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl Out {
    fn add(&mut self, text: &[u8]) -> mlua::Result<()> {
        if self.bytes.len() + text.len() > self.bytes_max {
            return Err(mlua::Error::MemoryError("not enough memory".to_owned()));
        }
        self.bytes.extend_from_slice(text);
        Ok(())
    }
}

impl Replacement {
    /// Adds what takes the place of the match `whole` of `text`.
    fn add(
        &self,
        lua: &Lua,
        matcher: &Matcher<'_>,
        (text, whole): (&[u8], Range<usize>),
        out: &mut Out,
    ) -> mlua::Result<()> {
        let value = match self {
            Self::Text(with) => return add_text(lua, matcher, &with.as_bytes(), whole, out),
            Self::Table(table) => {
                let captured = matcher.capture(0, whole.clone()).map_err(|fault| raise(lua, fault))?;
                table.get::<Value>(value(lua, captured)?)?
            }
            Self::Function(function) => {
                let mut arguments = Vec::new();
                push_captures(lua, matcher, Some(&whole), &mut arguments)?;
                function.call::<Value>(MultiValue::from_vec(arguments))?
            }
        };
        match &value {
            Value::Nil | Value::Boolean(false) => out.add(&text[whole]),
            Value::String(text) => out.add(&text.as_bytes()),
            Value::Integer(_) | Value::Number(_) => {
                let text = lua.coerce_string(value)?.expect("a number has a text");
                out.add(&text.as_bytes())
            }
            other => {
                let kind = thrown::type_name(other);
                Err(thrown::text(lua, format_args!("invalid replacement value (a {kind})")))
            }
        }
    }
}

/// Adds `with`, in which `%1` is the first capture, and `%0` the match.
fn add_text(
    lua: &Lua,
    matcher: &Matcher<'_>,
    with: &[u8],
    whole: Range<usize>,
    out: &mut Out,
) -> mlua::Result<()> {
    let mut bytes = with.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.bytes.push(byte);
            continue;
        }
        // Lua reads the 0 behind the last byte
        let index = match bytes.next().unwrap_or(0) {
            digit @ b'0'..=b'9' => usize::from(digit - b'0'),
            other => {
                out.bytes.push(other);
                continue;
            }
        };
        let captured = match index {
            0 => matcher.whole(whole.clone()),
            index => matcher.capture(index - 1, whole.clone()).map_err(|fault| raise(lua, fault))?,
        };
        match captured {
            Captured::Text(text) => out.add(text)?,
            Captured::Place(place) => out.add(place.to_string().as_bytes())?,
        }
    }
    Ok(())
}

/// Adds the captures; without any the match, if there is one to add.
fn push_captures(
    lua: &Lua,
    matcher: &Matcher<'_>,
    whole: Option<&Range<usize>>,
    results: &mut Vec<Value>,
) -> mlua::Result<()> {
    let count = if matcher.count() == 0 { usize::from(whole.is_some()) } else { matcher.count() };
    for index in 0..count {
        let captured = matcher.capture(index, whole.cloned().unwrap_or_default());
        results.push(value(lua, captured.map_err(|fault| raise(lua, fault))?)?);
    }
    Ok(())
}

fn value(lua: &Lua, captured: Captured<'_>) -> mlua::Result<Value> {
    Ok(match captured {
        Captured::Text(text) => Value::String(lua.create_string(text)?),
        Captured::Place(place) => number(place),
    })
}

fn number(number: usize) -> Value {
    Value::Number(number as f64)
}

fn one(value: Value) -> MultiValue {
    MultiValue::from_vec(vec![value])
}

/// Where a search begins that is to begin at place `from`, counted from 1 on, or from the end.
fn begin(from: i64, len: usize) -> usize {
    let len = i64::try_from(len).expect("a string in memory");
    let from = if from < 0 { from.saturating_add(len + 1).max(0) } else { from };
    usize::try_from((from - 1).clamp(0, len)).expect("not negative")
}

/// Whether the pattern has more than itself to match; what follows a byte 0 is not looked at.
fn has_specials(pattern: &[u8]) -> bool {
    pattern.iter().take_while(|byte| **byte != 0).any(|byte| b"^$*+?.([%-".contains(byte))
}

/// Whether the pattern matches at the first place alone, and the rest of it.
fn anchor<'a>(lua: &Lua, pattern: &'a [u8]) -> mlua::Result<(bool, &'a [u8])> {
    check_length(lua, pattern)?;
    Ok(match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    })
}

fn check_length(lua: &Lua, pattern: &[u8]) -> mlua::Result<()> {
    if pattern.len() > PATTERN_BYTES_MAX { Err(thrown::text(lua, "pattern too long")) } else { Ok(()) }
}

fn raise(lua: &Lua, fault: Fault) -> mlua::Error {
    match fault {
        Fault::Pattern(text) => thrown::text(lua, text),
        Fault::Over(error) => error,
    }
}

#[cfg(test)]
mod tests {
    use mlua::{Function, LuaOptions, StdLib};

    use super::*;

    /// Random numbers, equal for equal seeds.
    struct Dice(u64);

    impl Dice {
        fn below(&mut self, bound: usize) -> usize {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 33) as usize % bound
        }

        fn text(&mut self, pieces: &[&str], most: usize) -> String {
            (0..self.below(most + 1)).map(|_| pieces[self.below(pieces.len())]).collect()
        }
    }

    const PARTS: [&str; 44] = [
        "a", "b", "a", "b", "c", ".", "%a", "%A", "%d", "%w", "%s", "%z", "%p", "[ab]", "[^a]", "[a-c]",
        "[%a-]", "[]a]", "[^]]", "[a-%a]", "%b()", "%f[a]", "%f[^%a]", "%f", "%1", "%2", "(", ")", "(a*)",
        "(.-)", "()", "*", "+", "-", "?", "$", "^", "%", "%%", "[", "\0", "%b(", "%)", "x",
    ];
    const LETTERS: [&str; 14] = ["a", "a", "a", "b", "b", "c", "(", ")", "x", " ", "1", "%", "\0", "]"];
    const REPLACEMENTS: [&str; 8] = ["%0", "%1", "%2", "x", "%%", "%", "<", "%a"];

    /// Results, or the error's text.
    fn shown(lua: &Lua, result: mlua::Result<MultiValue>) -> String {
        let values = match result {
            Ok(values) => values,
            Err(error) => {
                let text = String::from_utf8_lossy(&thrown::message(&error)).into_owned();
                return text.lines().next().unwrap_or_default().to_owned();
            }
        };
        let text = |value: Value| match value {
            Value::Nil => "nil".to_owned(),
            value => format!(
                "{:?}",
                lua.coerce_string(value).expect("memory").map(|text| text.as_bytes().to_vec())
            ),
        };
        values.into_iter().map(text).collect::<Vec<_>>().join(" ")
    }

    /// What a loop over gmatch sees.
    fn looped(lua: &Lua, gmatch: &Function, text: &str, pattern: &str) -> String {
        let next = match gmatch.call::<Function>((text, pattern)) {
            Ok(next) => next,
            Err(error) => return shown(lua, Err(error)),
        };
        let mut all = Vec::new();
        for _ in 0..40 {
            let result = next.call::<MultiValue>(());
            let is_last = result.as_ref().map_or(true, |values| values.is_empty());
            all.push(shown(lua, result));
            if is_last {
                break;
            }
        }
        all.join("; ")
    }

    #[test]
    fn random_patterns_match_capture_replace_and_fail_as_in_lua() {
        let bounds = Rc::new(Bounds { tick: Box::new(|| Ok(())), bytes_max: 1 << 20 });
        let lua = Lua::new_with(StdLib::STRING | StdLib::TABLE, LuaOptions::new()).expect("memory");
        let ours = module(&lua, &bounds).expect("memory");
        let theirs: Table = lua.globals().get("string").expect("it is there");
        let source = "return {a = '1', b = false, [1] = 2}, function(x, y) if x == 'a' then return y end return #tostring(x) end";
        let (table, function): (Table, Function) = lua.load(source).eval().expect("it is good");
        let (mut dice, mut matched, mut failed) = (Dice(7), 0, 0);
        for round in 0..60_000 {
            let (text, pattern) = (dice.text(&LETTERS, 12), dice.text(&PARTS, 7));
            let from = dice.below(20) as i64 - 6;
            for name in ["find", "match"] {
                let answers = [&theirs, &ours].map(|module| {
                    let function: Function = module.get(name).expect("it is there");
                    let plain = round % 16 == 0;
                    shown(&lua, function.call((text.as_str(), pattern.as_str(), from, plain)))
                });
                assert_eq!(answers[0], answers[1], "{name} {text:?} {pattern:?} {from}");
                matched += usize::from(answers[0] != "nil");
                failed += usize::from(answers[0].contains("pattern") || answers[0].contains("capture"));
            }
            let loops = [&theirs, &ours]
                .map(|module| looped(&lua, &module.get("gmatch").expect("there"), &text, &pattern));
            assert_eq!(loops[0], loops[1], "gmatch {text:?} {pattern:?}");
            let with = match round % 4 {
                0 => Value::Table(table.clone()),
                1 => Value::Function(function.clone()),
                _ => Value::String(lua.create_string(dice.text(&REPLACEMENTS, 4)).expect("memory")),
            };
            let most = (round % 3 == 0).then(|| dice.below(4));
            let changes = [&theirs, &ours].map(|module| {
                let gsub: Function = module.get("gsub").expect("it is there");
                shown(&lua, gsub.call((text.as_str(), pattern.as_str(), with.clone(), most)))
            });
            assert_eq!(changes[0], changes[1], "gsub {text:?} {pattern:?} {with:?} {most:?}");
        }
        assert!(matched > 20_000 && failed > 5_000, "{matched} matched, {failed} failed");
    }
}
