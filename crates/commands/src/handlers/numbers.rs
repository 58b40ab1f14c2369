//! Strings as numbers: INCR and its family.

use resp::{ArgsView, Writer};
use store::{EventClass, Value};

use crate::args::{integer, string_to_change};
use crate::call::{Data, Failure, Outcome, text};

pub(crate) fn incr(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    add(data, args, 1, out)
}

pub(crate) fn decr(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    add(data, args, -1, out)
}

pub(crate) fn incrby(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    add(data, args, integer(args.get(2))?, out)
}

pub(crate) fn decrby(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let by = integer(args.get(2))?.checked_neg().ok_or("ERR decrement would overflow")?;
    add(data, args, by, out)
}

fn add(data: &mut Data<'_, '_>, args: ArgsView<'_>, by: i64, out: &mut Writer<'_>) -> Outcome {
    let key = args.get(1);
    let found = string_to_change(data, key)?;
    let (former, expiry) = match &found {
        Some(found) => (integer(found.value)?, found.expiry),
        None => (0, None),
    };
    let sum = former.checked_add(by).ok_or(text::OVERFLOW)?;
    let mut digits = itoa::Buffer::new();
    data.access.put(data.db, key, Value::String(digits.format(sum).as_bytes()), expiry);
    data.event(EventClass::String, "incrby", key);
    out.integer(sum);
    Ok(())
}

pub(crate) fn incrbyfloat(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let key = args.get(1);
    let invalid = || Failure::from(text::NOT_FLOAT);
    let found = string_to_change(data, key)?;
    let expiry = found.and_then(|found| found.expiry);
    let former = found.map_or(b"0".as_slice(), |found| found.value);
    let sum = decimal::sum(former, args.get(2)).ok_or_else(invalid)?;
    let sum = sum.ok_or("ERR increment would produce NaN or Infinity")?;
    data.access.put(data.db, key, Value::String(sum.as_bytes()), expiry);
    data.event(EventClass::String, "incrbyfloat", key);
    out.bulk(sum.as_bytes());
    Ok(())
}
