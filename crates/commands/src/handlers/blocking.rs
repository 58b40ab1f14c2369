//! What commands that wait for an element have in common: their time-outs, their keys, and which key they look at.

use std::borrow::Cow;
use std::time::Duration;

use resp::{ArgsView, Writer};
use store::ValueKind;

use crate::args::{count, is, option_value};
use crate::call::{Data, Failure, Outcome, Wait, text};
use crate::ready::{Ready, Wants};

/// How a command answers that must not wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Nothing {
    /// No array.
    Array,
    /// No value.
    Value,
}

/// The first of `keys` that holds a collection of type `kind`. Who waits goes on waiting where a key has become of another type.
///
/// # Errors
/// A key of another type.
pub(super) fn first<'k>(
    data: &mut Data<'_, '_>,
    keys: impl Iterator<Item = &'k [u8]>,
    kind: ValueKind,
) -> Result<Option<Cow<'k, [u8]>>, Failure> {
    if let Ready::Changed(changed) = data.ready {
        return Ok(is_kind(data, changed, kind)?.then(|| Cow::Owned(changed.to_vec())));
    }
    for key in keys {
        data.turn_to_key(key);
        data.access.charge(1)?;
        if data.access.count(data.db, key, kind)?? > 0 {
            return Ok(Some(Cow::Borrowed(key)));
        }
    }
    Ok(None)
}

/// Whether `key` holds a value of this type.
pub(super) fn is_kind(data: &Data<'_, '_>, key: &[u8], kind: ValueKind) -> Result<bool, Failure> {
    Ok(data.access.meta(data.db, key)?.is_some_and(|it| it.kind == kind))
}

impl Data<'_, '_> {
    /// Waits this long for what it wants, for ever if it is `None`; or answers with `nothing` where a command must not wait.
    pub(crate) fn wait(
        &self,
        timeout: Option<Duration>,
        wants: Wants,
        nothing: Nothing,
        out: &mut Writer<'_>,
    ) -> Outcome {
        if let Ready::AnswersAtOnce = self.ready {
            match nothing {
                Nothing::Array => out.null_array(),
                Nothing::Value => out.null(),
            }
            return Ok(());
        }
        Err(Failure::Blocked(Box::new(Wait { timeout, wants, again: None, ripe_in: None })))
    }
}

/// How long to wait, given in seconds; `None`: for ever.
pub(super) fn timeout(arg: &[u8]) -> Result<Option<Duration>, Failure> {
    let seconds = decimal::parse_small(arg).ok_or("ERR timeout is not a float or out of range")?;
    if seconds < 0.0 {
        return Err("ERR timeout is negative".into());
    }
    if seconds * 1_000.0 >= i64::MAX as f64 {
        return Err("ERR timeout is out of range".into());
    }
    // Redis counts in milliseconds, and rounds up.
    let millis = (seconds * 1_000.0).ceil() as u64;
    Ok((millis > 0).then(|| Duration::from_millis(millis)))
}

/// Keys that are counted by the argument before them.
#[derive(Clone, Copy, Debug)]
pub(super) struct CountedKeys {
    first: usize,
    count: usize,
}

impl CountedKeys {
    /// Those counted by argument number `counted_at`, with an argument behind them.
    fn parse(args: ArgsView<'_>, counted_at: usize) -> Result<Self, Failure> {
        let none = "ERR numkeys should be greater than 0";
        let count = match count(args.get(counted_at), none)? {
            0 => return Err(none.into()),
            count => count,
        };
        let first = counted_at + 1;
        if count >= args.len() - first {
            return Err(text::SYNTAX.into());
        }
        Ok(Self { first, count })
    }

    /// The index of the argument behind them.
    fn end(self) -> usize {
        self.first + self.count
    }

    pub(super) fn all<'a>(self, args: ArgsView<'a>) -> impl Iterator<Item = &'a [u8]> {
        args.iter().skip(self.first).take(self.count)
    }
}

/// LMPOP, ZMPOP and those that wait, from their number of keys on.
pub(super) struct MultiPop<S> {
    pub(super) keys: CountedKeys,
    /// Which elements: those of an end, or of a side.
    pub(super) side: S,
    pub(super) count: usize,
}

impl<S> MultiPop<S> {
    /// Reads the keys, counted by argument number `counted_at`, the word behind them, and the option COUNT.
    pub(super) fn parse(
        args: ArgsView<'_>,
        counted_at: usize,
        side: fn(&[u8]) -> Result<S, Failure>,
    ) -> Result<Self, Failure> {
        let keys = CountedKeys::parse(args, counted_at)?;
        let side = side(args.try_get(keys.end()).ok_or(text::SYNTAX)?)?;
        Ok(Self { keys, side, count: Self::pop_count(args, keys.end() + 1)? })
    }

    /// The option COUNT at argument `at`.
    fn pop_count(args: ArgsView<'_>, at: usize) -> Result<usize, Failure> {
        let Some(option) = args.try_get(at) else { return Ok(1) };
        if !is(option, "count") {
            return Err(text::SYNTAX.into());
        }
        let none = "ERR count should be greater than 0";
        match count(option_value(args, at)?, none)? {
            0 => Err(none.into()),
            _ if args.len() > at + 2 => Err(text::SYNTAX.into()),
            count => Ok(count),
        }
    }
}
