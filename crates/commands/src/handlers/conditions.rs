//! Changes on a condition: what SET, MSETEX, DELEX and DELIFEQ compare a key's value with, and its digest.
//!
//! A digest is the XXH3 of the value's bytes, 64 bits, written as 16 hexadecimal digits: what Redis documents for DIGEST.

use resp::{ArgsView, Writer};
use xxhash_rust::xxh3::xxh3_64;

use crate::args::{is, string, string_to_change};
use crate::call::{Data, Outcome, text};

/// What must be true of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition<'a> {
    /// There is none.
    Absent,
    Present,
    Equals(&'a [u8]),
    /// It is absent, or its value is another.
    Differs(&'a [u8]),
    HasDigest(&'a [u8]),
    /// It is absent, or its digest is another.
    LacksDigest(&'a [u8]),
}

impl<'a> Condition<'a> {
    /// The condition about presence alone that a word names.
    pub(super) fn of_presence(word: &[u8]) -> Option<Self> {
        match word {
            _ if is(word, "nx") => Some(Self::Absent),
            _ if is(word, "xx") => Some(Self::Present),
            _ => None,
        }
    }

    /// The condition about a value at argument `index`.
    fn of_value(args: ArgsView<'a>, index: usize) -> Option<Self> {
        let (word, operand) = (args.try_get(index)?, args.try_get(index + 1)?);
        match word {
            _ if is(word, "ifeq") => Some(Self::Equals(operand)),
            _ if is(word, "ifne") => Some(Self::Differs(operand)),
            _ if is(word, "ifdeq") => Some(Self::HasDigest(operand)),
            _ if is(word, "ifdne") => Some(Self::LacksDigest(operand)),
            _ => None,
        }
    }

    /// The condition at argument `index`, and how many arguments it takes.
    pub(super) fn of_set(args: ArgsView<'a>, index: usize) -> Option<(Self, usize)> {
        let presence = Self::of_presence(args.try_get(index)?).map(|condition| (condition, 1));
        presence.or_else(|| Self::of_value(args, index).map(|condition| (condition, 2)))
    }

    /// Refuses a digest that is none.
    pub(super) fn check(self) -> Outcome {
        match self {
            Self::HasDigest(digest) | Self::LacksDigest(digest)
                if digest.len() != DIGEST_DIGITS || !digest.iter().all(u8::is_ascii_hexdigit) =>
            {
                Err("ERR digest must be exactly 16 hexadecimal characters".into())
            }
            _ => Ok(()),
        }
    }

    /// Whether the value is looked at, which must be a string then.
    pub(super) fn reads(self) -> bool {
        !matches!(self, Self::Absent | Self::Present)
    }

    /// Whether it is true of a key with this value.
    pub(super) fn holds(self, value: Option<&[u8]>) -> bool {
        match self {
            Self::Absent => value.is_none(),
            Self::Present => value.is_some(),
            Self::Equals(wanted) => value == Some(wanted),
            Self::Differs(unwanted) => value != Some(unwanted),
            Self::HasDigest(wanted) => value.is_some_and(|value| has_digest(value, wanted)),
            Self::LacksDigest(unwanted) => !value.is_some_and(|value| has_digest(value, unwanted)),
        }
    }
}

fn digest_of(value: &[u8]) -> String {
    format!("{:016x}", xxh3_64(value))
}

fn has_digest(value: &[u8], digest: &[u8]) -> bool {
    digest_of(value).as_bytes().eq_ignore_ascii_case(digest)
}

pub(crate) fn digest(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found = string(data, args.get(1))?;
    out.bulk_or_null(found.map(|found| digest_of(found.value)).as_ref().map(String::as_bytes));
    Ok(())
}

pub(crate) fn delex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let condition = match args.len() {
        2 => None,
        4 => Some(Condition::of_value(args, 2).ok_or(text::SYNTAX)?),
        _ => return Err(text::SYNTAX.into()),
    };
    delete_if(data, args.get(1), condition, out)
}

pub(crate) fn delifeq(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    delete_if(data, args.get(1), Some(Condition::Equals(args.get(2))), out)
}

fn delete_if(
    data: &mut Data<'_, '_>,
    key: &[u8],
    condition: Option<Condition<'_>>,
    out: &mut Writer<'_>,
) -> Outcome {
    if let Some(condition) = condition {
        condition.check()?;
        let found = string_to_change(data, key)?;
        if found.is_none() || !condition.holds(found.map(|found| found.value)) {
            out.integer(0);
            return Ok(());
        }
    }
    let was_there = data.access.remove(data.db, key)?;
    data.removed(key, was_there);
    out.integer(was_there.into());
    Ok(())
}

const DIGEST_DIGITS: usize = 16;
