//! When keys end: the families of EXPIRE, TTL and EXPIRETIME.

use clock::UnixMs;
use resp::{ArgsView, Writer};
use store::{Deadline, EventClass, Moment};

use crate::args::{Unit, integer, is};
use crate::call::{Data, Failure, Outcome};

/// Conditions of EXPIRE.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Conditions {
    none: bool,
    some: bool,
    greater: bool,
    less: bool,
}

impl Conditions {
    fn parse(args: ArgsView<'_>) -> Result<Self, Failure> {
        let mut conditions = Conditions::default();
        for arg in args.iter().skip(3) {
            let flag = match arg {
                _ if is(arg, "nx") => &mut conditions.none,
                _ if is(arg, "xx") => &mut conditions.some,
                _ if is(arg, "gt") => &mut conditions.greater,
                _ if is(arg, "lt") => &mut conditions.less,
                _ => return Err(unsupported(arg)),
            };
            *flag = true;
        }
        let Conditions { none, some, greater, less } = conditions;
        if none && (some || greater || less) {
            return Err("ERR NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if greater && less {
            return Err("ERR GT and LT options at the same time are not compatible".into());
        }
        Ok(conditions)
    }

    /// The one that `word` names.
    pub(super) fn of_word(word: &[u8]) -> Option<Self> {
        let none = Conditions::default();
        match word {
            _ if is(word, "nx") => Some(Conditions { none: true, ..none }),
            _ if is(word, "xx") => Some(Conditions { some: true, ..none }),
            _ if is(word, "gt") => Some(Conditions { greater: true, ..none }),
            _ if is(word, "lt") => Some(Conditions { less: true, ..none }),
            _ => None,
        }
    }

    /// Whether a key that expires at `current` may be made to expire at `at`. Never is later than all times.
    pub(super) fn allow(self, current: Option<UnixMs>, at: i64) -> bool {
        let current_ms = current.map(|current| i64::try_from(current.0).unwrap_or(i64::MAX));
        !(self.none && current.is_some()
            || self.some && current.is_none()
            || self.greater && current_ms.is_none_or(|current| at <= current)
            || self.less && current_ms.is_some_and(|current| at >= current))
    }
}

/// Ends of lines at the end are left out, as Redis does in most texts that it formats.
fn unsupported(option: &[u8]) -> Failure {
    let end = option.iter().rposition(|byte| !b"\r\n".contains(byte)).map_or(0, |last| last + 1);
    Failure::Bytes([b"ERR Unsupported option ", &option[..end]].concat())
}

fn expire_by(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
    unit: Unit,
    name: &str,
) -> Outcome {
    let conditions = Conditions::parse(args)?;
    let number = integer(args.get(2))?;
    let invalid = || Failure::from(format!("ERR invalid expire time in '{name}' command"));
    let millis = if unit.seconds { number.checked_mul(1_000).ok_or_else(invalid)? } else { number };
    let base = if unit.absolute { 0 } else { data.now.unix().0 };
    let at = millis.checked_add_unsigned(base).ok_or_else(invalid)?;
    let key = args.get(1);
    let Some(meta) = data.access.meta(data.db, key)? else {
        out.integer(0);
        return Ok(());
    };
    if !conditions.allow(meta.expiry.map(|current| data.now.unix_of(current)), at) {
        out.integer(0);
        return Ok(());
    }
    let deadline = |ms| if unit.absolute { Deadline::at(UnixMs(ms)) } else { data.now.after(ms) };
    match u64::try_from(millis).ok().map(deadline) {
        Some(at) if !data.now.has_passed(at) => {
            data.access.set_expiry(data.db, key, Some(at))?;
            data.event(EventClass::Generic, "expire", key);
        }
        _ => {
            let was_there = data.access.remove(data.db, key)?;
            data.removed(key, was_there);
        }
    }
    out.integer(1);
    Ok(())
}

pub(crate) fn expire(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    expire_by(data, args, out, Unit::EX, "expire")
}

pub(crate) fn pexpire(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    expire_by(data, args, out, Unit::PX, "pexpire")
}

pub(crate) fn expireat(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    expire_by(data, args, out, Unit::EXAT, "expireat")
}

pub(crate) fn pexpireat(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    expire_by(data, args, out, Unit::PXAT, "pexpireat")
}

/// Answers with what `show` makes of the key's expiry: -2 without a key, -1 without an expiry.
fn tell(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
    show: fn(at: Deadline, now: Moment) -> u64,
) -> Outcome {
    let meta = data.access.meta(data.db, args.get(1))?;
    data.count_lookup(meta.is_some(), args.get(1));
    out.integer(match meta.map(|meta| meta.expiry) {
        None => -2,
        Some(None) => -1,
        Some(Some(at)) => show(at, data.now).cast_signed(),
    });
    Ok(())
}

pub(crate) fn ttl(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    tell(data, args, out, |at, now| now.left_ms(at).saturating_add(500) / 1_000)
}

pub(crate) fn pttl(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    tell(data, args, out, |at, now| now.left_ms(at))
}

pub(crate) fn expiretime(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    tell(data, args, out, |at, now| now.unix_of(at).0.saturating_add(500) / 1_000)
}

pub(crate) fn pexpiretime(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    tell(data, args, out, |at, now| now.unix_of(at).0)
}

pub(crate) fn persist(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let expires = data.access.meta(data.db, args.get(1))?.is_some_and(|meta| meta.expiry.is_some());
    if expires {
        data.access.set_expiry(data.db, args.get(1), None)?;
        data.event(EventClass::Generic, "persist", args.get(1));
    }
    out.integer(expires.into());
    Ok(())
}
