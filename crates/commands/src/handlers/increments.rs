//! INCREX: an increment within bounds, with an expiry.
//!
//! Integers are of 64 bits. Floats are added as INCRBYFLOAT adds them (`decimal`).

use resp::{ArgsView, Writer};
use store::{Deadline, EventClass, Value};

use crate::args::{Unit, expiry, integer, is, option_value, string_to_change};
use crate::call::{Data, Failure, Outcome, text};

/// What becomes of the key's expiry.
#[derive(Clone, Copy, Debug)]
enum Retime<'a> {
    Keep,
    Persist,
    At(Unit, &'a [u8]),
}

/// What INCREX asks for.
struct Increment<'a> {
    /// As many; `None`: 1.
    by: Option<&'a [u8]>,
    is_float: bool,
    least: Option<&'a [u8]>,
    most: Option<&'a [u8]>,
    saturates: bool,
    retime: Retime<'a>,
    /// The expiry is set only where there is none.
    only_untimed: bool,
}

impl<'a> Increment<'a> {
    fn parse(args: ArgsView<'a>) -> Result<Self, Failure> {
        let mut parsed = Self {
            by: None,
            is_float: false,
            least: None,
            most: None,
            saturates: false,
            retime: Retime::Keep,
            only_untimed: false,
        };
        let mut index = 2;
        while let Some(option) = args.try_get(index) {
            index += parsed.take(option, option_value(args, index))?;
        }
        if parsed.only_untimed && !matches!(parsed.retime, Retime::At(..)) {
            return Err(text::SYNTAX.into());
        }
        Ok(parsed)
    }

    /// Takes an option, which has a value or has not; returns how many arguments it took.
    fn take(&mut self, option: &'a [u8], value: Result<&'a [u8], Failure>) -> Result<usize, Failure> {
        let is_timed = !matches!(self.retime, Retime::Keep);
        match option {
            _ if is(option, "saturate") && !self.saturates => self.saturates = true,
            _ if is(option, "enx") && !self.only_untimed => self.only_untimed = true,
            _ if is(option, "persist") && !is_timed => self.retime = Retime::Persist,
            _ => {
                match (Unit::of(option), value?) {
                    (Some(unit), value) if !is_timed => self.retime = Retime::At(unit, value),
                    (None, value) if is(option, "byint") && self.by.is_none() => self.by = Some(value),
                    (None, value) if is(option, "byfloat") && self.by.is_none() => {
                        (self.by, self.is_float) = (Some(value), true);
                    }
                    (None, value) if is(option, "lbound") && self.least.is_none() => self.least = Some(value),
                    (None, value) if is(option, "ubound") && self.most.is_none() => self.most = Some(value),
                    _ => return Err(text::SYNTAX.into()),
                }
                return Ok(2);
            }
        }
        Ok(1)
    }

    /// When a key with this expiry expires after the increment.
    fn expiry(&self, data: &Data<'_, '_>, former: Option<Deadline>) -> Result<Option<Deadline>, Failure> {
        match self.retime {
            Retime::Keep => Ok(former),
            Retime::Persist => Ok(None),
            Retime::At(unit, time) => {
                let at = expiry(time, unit, data.now, "increx")?;
                Ok(former.filter(|_| self.only_untimed).or(Some(at)))
            }
        }
    }

    /// What `former` becomes and what was added; inside, `None` is told of a result that is out of bounds.
    fn integers(&self, former: &[u8]) -> Result<Option<(i64, i64)>, Failure> {
        let bound = |bound: Option<&[u8]>, or: i64| bound.map_or(Ok(or), integer);
        let (least, most) = (bound(self.least, i64::MIN)?, bound(self.most, i64::MAX)?);
        let by = self.by.map_or(Ok(1), integer)?;
        check_bounds(least <= most)?;
        let former = integer(former)?;
        let sum = i128::from(former) + i128::from(by);
        let bounded = sum.clamp(least.into(), most.into());
        if bounded != sum && !self.saturates {
            return Ok(None);
        }
        let bounded = i64::try_from(bounded).expect("between two numbers of 64 bits");
        Ok(Some((bounded, bounded.checked_sub(former).ok_or(text::OVERFLOW)?)))
    }

    /// The same of floats, as text.
    fn floats(&self, former: &[u8]) -> Result<Option<(String, String)>, Failure> {
        let number = |text: &[u8]| decimal::parse(text).ok_or(text::NOT_FLOAT);
        let least = self.least.map(number).transpose()?;
        let most = self.most.map(number).transpose()?;
        check_bounds(least.zip(most).is_none_or(|(least, most)| least <= most))?;
        let by = self.by.expect("BYFLOAT has an increment");
        let invalid = "ERR increment would produce NaN or Infinity";
        let sum = decimal::sum(former, by).ok_or(text::NOT_FLOAT)?.ok_or(invalid)?;
        let value = number(sum.as_bytes())?;
        let crossed = match (least, most) {
            (Some(least), _) if value < least => self.least,
            (_, Some(most)) if value > most => self.most,
            _ => None,
        };
        let Some(bound) = crossed else {
            let added = decimal::sum(by, b"0").flatten().ok_or(invalid)?;
            return Ok(Some((sum, added)));
        };
        if !self.saturates {
            return Ok(None);
        }
        let bound = decimal::sum(bound, b"0").flatten().ok_or(invalid)?;
        let added = decimal::difference(bound.as_bytes(), former).flatten().ok_or(invalid)?;
        Ok(Some((bound, added)))
    }
}

fn check_bounds(are_in_order: bool) -> Outcome {
    if are_in_order { Ok(()) } else { Err("ERR LBOUND can't be greater than UBOUND".into()) }
}

pub(crate) fn increx(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let increment = Increment::parse(args)?;
    let found = string_to_change(data, args.get(1))?;
    let former = found.map_or(&b"0"[..], |found| found.value);
    let expiry = increment.expiry(data, found.and_then(|found| found.expiry))?;
    if increment.is_float {
        let (value, added, is_changed) = match increment.floats(former)? {
            Some((value, added)) => (value, added, true),
            None => (decimal::sum(former, b"0").flatten().ok_or(text::NOT_FLOAT)?, "0".to_owned(), false),
        };
        write_floats([&value, &added], out);
        return if is_changed {
            put(data, args.get(1), value.as_bytes(), expiry, &increment)
        } else {
            Ok(())
        };
    }
    let changed = increment.integers(former)?;
    let (value, added) = changed.map_or_else(|| Ok::<_, Failure>((integer(former)?, 0)), Ok)?;
    out.array(2);
    out.integer(value);
    out.integer(added);
    if changed.is_none() {
        return Ok(());
    }
    put(data, args.get(1), itoa::Buffer::new().format(value).as_bytes(), expiry, &increment)
}

fn write_floats(texts: [&str; 2], out: &mut Writer<'_>) {
    out.array(2);
    for text in texts {
        match decimal::parse(text.as_bytes()) {
            Some(number) if out.is_resp3() => out.double(number),
            _ => out.bulk(text.as_bytes()),
        }
    }
}

fn put(
    data: &mut Data<'_, '_>,
    key: &[u8],
    value: &[u8],
    expiry: Option<Deadline>,
    increment: &Increment<'_>,
) -> Outcome {
    data.event(EventClass::String, if increment.is_float { "incrbyfloat" } else { "incrby" }, key);
    match increment.retime {
        Retime::Keep => {}
        Retime::Persist => data.event(EventClass::Generic, "persist", key),
        Retime::At(..) => data.event(EventClass::Generic, "expire", key),
    }
    if expiry.is_some_and(|at| data.now.has_passed(at)) {
        data.access.remove(data.db, key)?;
        data.event(EventClass::Expired, "expired", key);
    } else {
        data.access.put(data.db, key, Value::String(value), expiry);
    }
    Ok(())
}
