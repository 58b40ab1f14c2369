//! Reading arguments: numbers, options, and the times of SET and EXPIRE.

use std::time::Duration;

use clock::UnixMs;
use resp::{ArgsView, parse_i64};
use store::{Deadline, Found, Moment, ValueKind};

use crate::call::{Data, Failure, text};
use crate::glob::Pattern;
pub use crate::words::{is, shown};

/// An integer, or the error that every command gives.
///
/// # Errors
/// The reply that says what is wrong with it.
pub fn integer(arg: &[u8]) -> Result<i64, Failure> {
    parse_i64(arg).ok_or_else(|| text::NOT_INTEGER.into())
}

/// An integer of 32 bits.
///
/// # Errors
/// The reply that says what is wrong with it.
pub fn small_integer(arg: &[u8]) -> Result<i32, Failure> {
    i32::try_from(integer(arg)?).map_err(|_| {
        format!("ERR value is out of range, value must between {} and {}", i32::MIN, i32::MAX).into()
    })
}

/// A number that counts something, or `wrong`.
pub(crate) fn count(arg: &[u8], wrong: &'static str) -> Result<usize, Failure> {
    parse_i64(arg).and_then(|count| usize::try_from(count).ok()).ok_or_else(|| wrong.into())
}

/// The string at `key` for who asks for it: counts whether it was there.
pub(crate) fn string<'a>(data: &'a Data<'_, '_>, key: &[u8]) -> Result<Option<Found<'a>>, Failure> {
    let found = data.access.get(data.db, key)?;
    data.count_lookup(found.is_some(), key);
    only_string(found)
}

/// The string at `key` for a command that changes it, which is neither a hit nor a miss.
pub(crate) fn string_to_change<'a>(data: &'a Data<'_, '_>, key: &[u8]) -> Result<Option<Found<'a>>, Failure> {
    only_string(data.access.get(data.db, key)?)
}

fn only_string(found: Option<Found<'_>>) -> Result<Option<Found<'_>>, Failure> {
    match found {
        Some(found) if found.kind != ValueKind::String => Err(text::WRONG_TYPE.into()),
        found => Ok(found),
    }
}

/// How a time is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unit {
    pub(crate) seconds: bool,
    pub(crate) absolute: bool,
}

impl Unit {
    pub(crate) const EX: Unit = Unit { seconds: true, absolute: false };
    pub(crate) const PX: Unit = Unit { seconds: false, absolute: false };
    pub(crate) const EXAT: Unit = Unit { seconds: true, absolute: true };
    pub(crate) const PXAT: Unit = Unit { seconds: false, absolute: true };

    /// The unit that an option of SET names.
    pub(crate) fn of(option: &[u8]) -> Option<Unit> {
        [("ex", Self::EX), ("px", Self::PX), ("exat", Self::EXAT), ("pxat", Self::PXAT)]
            .into_iter()
            .find_map(|(word, unit)| is(option, word).then_some(unit))
    }
}

/// When a key set now expires; times that are not positive are refused, as SET does.
pub(crate) fn expiry(arg: &[u8], unit: Unit, now: Moment, command: &str) -> Result<Deadline, Failure> {
    let number = integer(arg)?;
    let invalid = || Failure::from(format!("ERR invalid expire time in '{command}' command"));
    if number <= 0 {
        return Err(invalid());
    }
    let millis = if unit.seconds { number.checked_mul(1_000).ok_or_else(invalid)? } else { number };
    if unit.absolute {
        return Ok(Deadline::at(UnixMs(millis.unsigned_abs())));
    }
    // Redis refuses what ends beyond its numbers
    millis.checked_add_unsigned(now.unix().0).ok_or_else(invalid)?;
    Ok(now.after(millis.unsigned_abs()))
}

/// The value of an option: the argument after `index`.
///
/// # Errors
/// The reply that says what is wrong with it.
pub fn option_value<'a>(args: ArgsView<'a>, index: usize) -> Result<&'a [u8], Failure> {
    args.try_get(index + 1).ok_or_else(|| text::SYNTAX.into())
}

/// The pattern that an argument is; `fold` ignores the case of letters.
///
/// # Errors
/// The reply that says what is wrong with it.
pub fn pattern(arg: &[u8], fold: bool) -> Result<Pattern, Failure> {
    Pattern::new(arg, fold).map_err(|error| format!("ERR {error}").into())
}

/// How long to wait, given in milliseconds; `None`: for ever.
///
/// # Errors
/// The reply that says what is wrong with it.
pub fn millis(arg: &[u8]) -> Result<Option<Duration>, Failure> {
    let millis = parse_i64(arg).ok_or("ERR timeout is not an integer or out of range")?;
    let millis = u64::try_from(millis).map_err(|_| "ERR timeout is negative")?;
    Ok((millis > 0).then(|| Duration::from_millis(millis)))
}
