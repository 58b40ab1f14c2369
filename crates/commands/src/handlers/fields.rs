//! When fields of hashes end: the families of HEXPIRE, HTTL and HEXPIRETIME, HGETEX and HSETEX.
//!
//! Their deadlines are of the two kinds that keys have: after a duration, or at a time (`store::Deadline`). What has passed is gone
//! before a handler sees the hash.

use clock::UnixMs;
use resp::{ArgsView, Writer};
use store::{Deadline, Edit, EventClass, Moment, ValueKind};

use super::elements::{values, values_bytes};
use super::expiry::Conditions;
use super::hashes::fields_at;
use crate::args::{Unit, integer, is};
use crate::call::{Data, Failure, Outcome, text};

/// When fields are to end.
#[derive(Clone, Copy, Debug)]
struct Time {
    /// As the wall clock shows it.
    unix_ms: i64,
    deadline: Deadline,
}

impl Time {
    fn parse(arg: &[u8], unit: Unit, now: Moment, command: &str) -> Result<Self, Failure> {
        let number = integer(arg)?;
        let invalid = || Failure::from(format!("ERR invalid expire time in '{command}' command"));
        if number < 0 {
            return Err("ERR invalid expire time, must be >= 0".into());
        }
        let millis = if unit.seconds { number.checked_mul(1_000).ok_or_else(invalid)? } else { number };
        let ms = millis.unsigned_abs();
        if unit.absolute {
            return Ok(Self { unix_ms: millis, deadline: Deadline::at(UnixMs(ms)) });
        }
        let unix_ms = millis.checked_add_unsigned(now.unix().0).ok_or_else(invalid)?;
        Ok(Self { unix_ms, deadline: now.after(ms) })
    }
}

/// What becomes of the times of fields.
#[derive(Clone, Copy, Debug)]
enum Retime {
    Keep,
    Never,
    At(Time),
}

impl Retime {
    /// Lets the field of an edit end then: at once if that is over.
    fn apply(self, edit: &mut Edit<'_>, tag: u16, field: &[u8], now: Moment) {
        match self {
            Self::Keep => {}
            Self::Never => _ = edit.set_deadline(tag, field, None),
            Self::At(time) if now.has_passed(time.deadline) => _ = edit.delete(tag, field),
            Self::At(time) => _ = edit.set_deadline(tag, field, Some(time.deadline)),
        }
    }
}

impl Retime {
    /// Names what became of fields of `key`, if anything did.
    fn name(self, data: &Data<'_, '_>, key: &[u8], is_any: bool) -> Outcome {
        match self {
            _ if !is_any => {}
            Self::Keep => {}
            Self::Never => data.event(EventClass::Hash, "hpersist", key),
            Self::At(time) if data.now.has_passed(time.deadline) => {
                data.taken(EventClass::Hash, "hdel", key, 1)?;
            }
            Self::At(_) => data.event(EventClass::Hash, "hexpire", key),
        }
        Ok(())
    }
}

fn write_integers(answers: &[i64], out: &mut Writer<'_>) {
    out.array(answers.len());
    answers.iter().for_each(|answer| out.integer(*answer));
}

/// What is told of each field.
const NO_FIELD: i64 = -2;
const NEVER: i64 = -1;
const NOT_ALLOWED: i64 = 0;
const SET: i64 = 1;
const DELETED: i64 = 2;

/// Answers with what `change` says of each of these fields of the hash at `key`.
fn answer_each<'e>(
    data: &mut Data<'_, '_>,
    key: &[u8],
    fields: impl Iterator<Item = &'e [u8]>,
    out: &mut Writer<'_>,
    name: &'static str,
    change: impl Fn(&mut Edit<'_>, (u16, &[u8])) -> i64,
) -> Outcome {
    let fields: Vec<&[u8]> = fields.collect();
    let mut answers = vec![0; fields.len()];
    let named = fields.iter().copied();
    data.access.edit_each(data.db, key, ValueKind::Hash, named, |hash, tag, number| {
        answers[number] = change(hash, (tag, fields[number]));
    })??;
    if answers.contains(&SET) {
        data.event(EventClass::Hash, name, key);
    }
    data.taken(EventClass::Hash, "hdel", key, answers.contains(&DELETED).into())?;
    write_integers(&answers, out);
    Ok(())
}

fn expire_by(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    unit: Unit,
    name: &str,
    out: &mut Writer<'_>,
) -> Outcome {
    let time = Time::parse(args.get(2), unit, data.now, name)?;
    let conditions = Conditions::of_word(args.get(3));
    let fields = fields_at(args, if conditions.is_some() { 4 } else { 3 })?;
    let (conditions, now) = (conditions.unwrap_or_default(), data.now);
    answer_each(data, args.get(1), fields, out, "hexpire", |hash, (tag, field)| {
        let Some(current) = hash.deadline(tag, field) else { return NO_FIELD };
        if !conditions.allow(current.map(|at| now.unix_of(at)), time.unix_ms) {
            return NOT_ALLOWED;
        }
        Retime::At(time).apply(hash, tag, field, now);
        if now.has_passed(time.deadline) { DELETED } else { SET }
    })
}

pub(crate) fn hexpire(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    expire_by(data, args, Unit::EX, "hexpire", out)
}

pub(crate) fn hpexpire(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    expire_by(data, args, Unit::PX, "hpexpire", out)
}

pub(crate) fn hexpireat(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    expire_by(data, args, Unit::EXAT, "hexpireat", out)
}

pub(crate) fn hpexpireat(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    expire_by(data, args, Unit::PXAT, "hpexpireat", out)
}

/// Answers with what `show` makes of the deadline of each field.
fn tell(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    show: fn(at: Deadline, now: Moment) -> u64,
    out: &mut Writer<'_>,
) -> Outcome {
    let fields = fields_at(args, 2)?;
    let deadlines = data.access.deadlines(data.db, args.get(1), fields.clone())??;
    data.count_lookup(deadlines.is_some(), args.get(1));
    let deadlines = deadlines.unwrap_or_else(|| vec![None; fields.count()]);
    let answer = |deadline: Option<Option<Deadline>>| match deadline {
        None => NO_FIELD,
        Some(deadline) => deadline.map_or(NEVER, |at| show(at, data.now).cast_signed()),
    };
    write_integers(&deadlines.into_iter().map(answer).collect::<Vec<_>>(), out);
    Ok(())
}

/// A field that has some time left has a second left at least.
fn seconds(ms: u64) -> u64 {
    ms.div_ceil(1_000)
}

pub(crate) fn httl(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    tell(data, args, |at, now| seconds(now.left_ms(at)), out)
}

pub(crate) fn hpttl(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    tell(data, args, |at, now| now.left_ms(at), out)
}

pub(crate) fn hexpiretime(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    tell(data, args, |at, now| seconds(now.unix_of(at).0), out)
}

pub(crate) fn hpexpiretime(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    tell(data, args, |at, now| now.unix_of(at).0, out)
}

pub(crate) fn hpersist(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let fields = fields_at(args, 2)?;
    answer_each(data, args.get(1), fields, out, "hpersist", |hash, (tag, field)| {
        match hash.deadline(tag, field) {
            None => NO_FIELD,
            Some(None) => NEVER,
            Some(Some(_)) => {
                hash.set_deadline(tag, field, None);
                SET
            }
        }
    })
}

/// Whether fields that are set must be new, or there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Only {
    New,
    There,
}

/// The options of HGETEX and HSETEX.
struct Options {
    only: Option<Only>,
    retime: Retime,
    /// Where the word FIELDS is.
    fields: usize,
}

impl Options {
    /// Reads those from argument 2 on. `sets`: of HSETEX.
    fn parse(args: ArgsView<'_>, now: Moment, sets: bool) -> Result<Self, Failure> {
        let command = if sets { "hsetex" } else { "hgetex" };
        let (mut only, mut retime, mut index) = (None, None, 2);
        while let Some(option) = args.try_get(index).filter(|option| !is(option, "fields")) {
            let unit = Unit::of(option);
            let is_retime = unit.is_some() || is(option, if sets { "keepttl" } else { "persist" });
            if is_retime && retime.is_some() {
                let last = if sets { "KEEPTTL" } else { "PERSIST" };
                return Err(format!(
                    "ERR Only one of EX, PX, EXAT, PXAT or {last} arguments can be specified"
                )
                .into());
            }
            if let Some(unit) = unit {
                let time = args.try_get(index + 1).ok_or(text::SYNTAX)?;
                retime = Some(Retime::At(Time::parse(time, unit, now, command)?));
                index += 1;
            } else if is_retime {
                retime = Some(if sets { Retime::Keep } else { Retime::Never });
            } else if sets && (is(option, "fnx") || is(option, "fxx")) {
                if only.is_some() {
                    return Err("ERR Only one of FXX or FNX arguments can be specified".into());
                }
                only = Some(if is(option, "fnx") { Only::New } else { Only::There });
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 1;
        }
        let otherwise = if sets { Retime::Never } else { Retime::Keep };
        Ok(Self { only, retime: retime.unwrap_or(otherwise), fields: index })
    }
}

pub(crate) fn hgetex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let options = Options::parse(args, data.now, false)?;
    let fields = fields_at(args, options.fields)?;
    let values = values(data, args.get(1), ValueKind::Hash, fields.clone())?;
    data.admit_reply(values_bytes(&values))?;
    out.array(values.len());
    values.into_iter().for_each(|value| out.bulk_or_null(value));
    if matches!(options.retime, Retime::Keep) {
        return Ok(());
    }
    let (fields, now, mut is_any) = (fields.collect::<Vec<_>>(), data.now, false);
    let named = fields.iter().copied();
    data.access.edit_each(data.db, args.get(1), ValueKind::Hash, named, |hash, tag, number| {
        let former = hash.deadline(tag, fields[number]);
        is_any |= former.is_some_and(|at| at.is_some() || !matches!(options.retime, Retime::Never));
        options.retime.apply(hash, tag, fields[number], now);
    })??;
    options.retime.name(data, args.get(1), is_any)?;
    Ok(())
}

/// A field with its value.
type Pair<'a> = (&'a [u8], &'a [u8]);

/// The fields of HSETEX with their values, behind the word FIELDS at argument `at` and their number.
fn pairs_at(args: ArgsView<'_>, at: usize) -> Result<Vec<Pair<'_>>, Failure> {
    if args.try_get(at).is_none() {
        return Err("ERR Mandatory argument FIELDS is missing or not at the right position".into());
    }
    let positive = "ERR Number of fields must be a positive integer";
    let count = crate::args::count(args.try_get(at + 1).ok_or(text::SYNTAX)?, positive)?;
    if count == 0 {
        return Err(positive.into());
    }
    if count.checked_mul(2) != Some(args.len() - at - 2) {
        return Err("ERR The `numfields` parameter must match the number of arguments".into());
    }
    Ok((at + 2..args.len()).step_by(2).map(|at| (args.get(at), args.get(at + 1))).collect())
}

pub(crate) fn hsetex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let options = Options::parse(args, data.now, true)?;
    let pairs = pairs_at(args, options.fields)?;
    let fields = pairs.iter().map(|(field, _)| *field);
    if let Some(only) = options.only {
        let there = data.access.values(data.db, args.get(1), ValueKind::Hash, fields.clone())??;
        let there = there.unwrap_or_else(|| vec![None; pairs.len()]);
        if there.iter().any(|value| value.is_some() != (only == Only::There)) {
            out.integer(0);
            return Ok(());
        }
    }
    let now = data.now;
    data.access.edit_each(data.db, args.get(1), ValueKind::Hash, fields, |hash, tag, number| {
        let (field, value) = pairs[number];
        match options.retime {
            Retime::Keep => _ = hash.put_kept(tag, field, value),
            _ => _ = hash.put(tag, field, value),
        }
        options.retime.apply(hash, tag, field, now);
    })??;
    data.event(EventClass::Hash, "hset", args.get(1));
    if matches!(options.retime, Retime::At(_)) {
        options.retime.name(data, args.get(1), true)?;
    }
    out.integer(1);
    Ok(())
}
