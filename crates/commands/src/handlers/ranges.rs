//! Parts of strings: lengths, ranges, and growing by APPEND and SETRANGE.

use std::ops::Range;
use std::sync::atomic::Ordering;

use resp::{ArgsView, Writer};
use store::{EventClass, Large, Value, ValueKind};

use crate::args::{integer, string, string_to_change};
use crate::call::{Data, Failure, Outcome, text};
use crate::copies::{Splice, spliced};

pub(crate) fn strlen(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let meta = data.access.meta(data.db, args.get(1))?;
    data.count_lookup(meta.is_some(), args.get(1));
    match meta {
        Some(meta) if meta.kind != ValueKind::String => return Err(text::WRONG_TYPE.into()),
        Some(meta) => out.integer(meta.value_len.cast_signed()),
        None => out.integer(0),
    }
    Ok(())
}

pub(crate) fn append(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    splice(data, args, None, 2, out)
}

pub(crate) fn setrange(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let part = args.get(3);
    let offset = u64::try_from(integer(args.get(2))?).map_err(|_| "ERR offset is out of range")?;
    if part.is_empty() {
        out.integer(string_to_change(data, args.get(1))?.map_or(0, |found| found.value.len() as i64));
        return Ok(());
    }
    splice(data, args, Some(offset), 3, out)
}

/// Puts the argument at `argument` over the value from `at` on (`None`: its end); answers with the length. What gets large is
/// not made while the key is locked, unless others have changed it too often.
fn splice(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    at: Option<u64>,
    argument: usize,
    out: &mut Writer<'_>,
) -> Outcome {
    let (key, part) = (args.get(1), args.get(argument));
    let name = if at.is_some() { "setrange" } else { "append" };
    let found = string_to_change(data, key)?;
    let (former, expiry) = found.map_or((&[][..], None), |found| (found.value, found.expiry));
    let at = at.unwrap_or(former.len() as u64);
    check_size(data, at.saturating_add(part.len() as u64))?;
    let at = at as usize;
    let len = former.len().max(at + part.len());
    out.integer(len as i64);
    // with the zeroes in a gap
    let changed = at.min(former.len())..at + part.len();
    if let Some(made) = data.copies.made(argument, found) {
        data.access.put_part(data.db, key, made, changed, expiry)?;
        data.event(EventClass::String, name, key);
        return Ok(());
    }
    if len >= Large::BYTES_MIN && data.copies.may_ask() {
        return Err(Failure::Make(Splice::new(found, at, argument)));
    }
    overwrite(data, key, at, part)?;
    data.event(EventClass::String, name, key);
    Ok(())
}

/// Puts `part` over the string at `key` from `at` on, with zeroes in a gap before it.
///
/// # Errors
/// A key of another type; a value that would be too large.
pub(super) fn overwrite(data: &mut Data<'_, '_>, key: &[u8], at: usize, part: &[u8]) -> Outcome {
    let found = string_to_change(data, key)?;
    let (former, expiry) = found.map_or((&[][..], None), |found| (found.value, found.expiry));
    check_size(data, (at + part.len()) as u64)?;
    let changed = at.min(former.len())..at + part.len();
    let len = former.len().max(at + part.len());
    if len >= Large::BYTES_MIN {
        data.ask(len)?;
    }
    match data.store.large(spliced(former, at, part)) {
        Ok(large) => data.access.put_part(data.db, key, Value::Large(&large), changed, expiry)?,
        Err(value) => data.access.put_part(data.db, key, Value::String(&value), changed, expiry)?,
    }
    Ok(())
}

/// Refuses a value of `size_bytes` before it is made.
fn check_size(data: &Data<'_, '_>, size_bytes: u64) -> Outcome {
    let limit_bytes = data.limits.value_bytes_max.load(Ordering::Relaxed);
    if size_bytes > limit_bytes {
        let text = format!("ERR string exceeds maximum allowed size (value.max is {limit_bytes} B)");
        return Err(Failure::from(text));
    }
    Ok(())
}

pub(crate) fn getrange(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (start, end) = (integer(args.get(2))?, integer(args.get(3))?);
    match string(data, args.get(1))? {
        Some(found) => data.part(found, range(found.value.len(), start, end), out),
        None => out.bulk(&[]),
    }
    Ok(())
}

pub(crate) fn substr(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    getrange(data, args, out)
}

/// Where the bytes from `start` to `end` of `len` lie, both included; negative ones count from the end.
fn range(len: usize, start: i64, end: i64) -> Range<usize> {
    let len = len as i64;
    if start < 0 && end < 0 && start > end {
        return 0..0;
    }
    let at = |index: i64| if index < 0 { (len.saturating_add(index)).max(0) } else { index };
    let (start, end) = (at(start), at(end).min(len - 1));
    if len == 0 || start > end { 0..0 } else { start as usize..end as usize + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_clamp_at_every_edge() {
        let value = b"This is a string";
        for (start, end, expected) in [
            (0, 3, "This"),
            (-3, -1, "ing"),
            (0, -1, "This is a string"),
            (10, 100, "string"),
            (5, 3, ""),
            (-1, -5, ""),
            (-100, 3, "This"),
            (i64::MIN, i64::MAX, "This is a string"),
            (i64::MAX, i64::MIN, ""),
            (16, 20, ""),
            (-100, -90, "T"),
        ] {
            assert_eq!(&value[range(value.len(), start, end)], expected.as_bytes(), "{start}..{end}");
        }
        assert_eq!(range(0, 0, -1), 0..0);
    }
}
