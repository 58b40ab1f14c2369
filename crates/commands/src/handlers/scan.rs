//! Walking all keys: SCAN, KEYS, RANDOMKEY.

use resp::{ArgsView, Writer};

use crate::args::{integer, is, option_value, pattern};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};
use crate::glob::Pattern;

/// Options of SCAN, HSCAN and SSCAN.
#[derive(Debug)]
pub(super) struct Options<'a> {
    pub(super) pattern: Option<Pattern>,
    kind: Option<&'a [u8]>,
    /// Slots or elements of one step, [`SCAN_BUDGET_MAX`] at most.
    pub(super) count: usize,
    pub(super) without_values: bool,
}

/// Options that some of these commands have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum More {
    None,
    /// TYPE.
    Type,
    /// NOVALUES.
    NoValues,
}

impl<'a> Options<'a> {
    /// Those from argument `index` on.
    pub(super) fn parse(args: ArgsView<'a>, mut index: usize, more: More) -> Result<Self, Failure> {
        let mut options = Options { pattern: None, kind: None, count: 10, without_values: false };
        while let Some(arg) = args.try_get(index) {
            if more == More::NoValues && is(arg, "novalues") {
                options.without_values = true;
                index += 1;
                continue;
            }
            let value = option_value(args, index)?;
            if is(arg, "match") {
                options.pattern = if value == b"*" { None } else { Some(pattern(value, false)?) };
            } else if more == More::Type && is(arg, "type") {
                options.kind = Some(value);
            } else if is(arg, "count") {
                let count = integer(value)?;
                if count < 1 {
                    return Err(text::SYNTAX.into());
                }
                options.count = usize::try_from(count).unwrap_or(usize::MAX).min(SCAN_BUDGET_MAX);
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 2;
        }
        Ok(options)
    }
}

/// A cursor, as `strtoul` reads it: nothing is 0, and a sign is taken.
pub(super) fn cursor(arg: &[u8]) -> Result<u64, Failure> {
    let (negative, digits) = match arg {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        _ => (false, arg),
    };
    let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| b.is_ascii_digit()));
    let number: u64 = digits.and_then(|text| text.parse().ok()).ok_or("ERR invalid cursor")?;
    Ok(if negative { number.wrapping_neg() } else { number })
}

pub(crate) fn scan(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let from = cursor(args.get(1))?;
    let options = Options::parse(args, 2, More::Type)?;
    let mut keys = Kept::default();
    let next = data.access.scan_weighed(data.db, from, options.count, &mut |key, meta| {
        let mut steps = 0;
        let fits = options.pattern.as_ref().is_none_or(|pattern| pattern.matches(key, &mut steps))
            && options.kind.is_none_or(|kind| is(kind, meta.kind.name()));
        if fits {
            keys.push(data, key);
        }
        // the cursor says where to go on, whatever COUNT says
        if keys.bytes > SCAN_BYTES_MAX { SCAN_BUDGET_MAX } else { slots_of(steps) }
    })?;
    keys.admit(data)?;
    out.array(2);
    out.bulk(itoa::Buffer::new().format(next).as_bytes());
    keys.write(out);
    Ok(())
}

/// Keys that are told once all of them are known: in one buffer, for there may be millions.
#[derive(Default)]
struct Kept {
    found: Vec<u8>,
    ends: Vec<usize>,
    /// Bytes of the reply.
    bytes: usize,
    asked_bytes: usize,
    /// Why no more are kept.
    stop: Option<Failure>,
}

impl Kept {
    /// Keeps `key`, if there is memory for it.
    fn push(&mut self, data: &Data<'_, '_>, key: &[u8]) {
        if self.stop.is_some() || self.bytes > data.limits.reply_bytes_max() {
            return;
        }
        self.bytes += key.len() + BULK_OVERHEAD_BYTES;
        if self.bytes > self.asked_bytes {
            // kept, with where each ends, before they are told
            let more_bytes = (self.bytes - self.asked_bytes).next_multiple_of(KEYS_STEP_BYTES);
            self.asked_bytes += more_bytes;
            self.stop = data.ask(3 * more_bytes).err();
            if self.stop.is_some() {
                return;
            }
        }
        self.found.extend_from_slice(key);
        self.ends.push(self.found.len());
    }

    /// Refuses the reply if it is too large, or there is no memory.
    fn admit(&mut self, data: &Data<'_, '_>) -> Outcome {
        self.stop.take().map_or(Ok(()), Err)?;
        data.admit_reply(self.bytes)
    }

    /// Tells all of them.
    fn write(self, out: &mut Writer<'_>) {
        out.array(self.ends.len());
        let mut start = 0;
        for end in self.ends {
            out.bulk(&self.found[start..end]);
            start = end;
        }
    }
}

pub(crate) fn keys(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let pattern = if args.get(1) == b"*" { None } else { Some(pattern(args.get(1), false)?) };
    let mut found = Kept::default();
    data.access.scan_weighed(data.db, 0, usize::MAX, &mut |key, _| {
        let mut steps = 0;
        let fits = |pattern: &Pattern| pattern.matches(key, &mut steps);
        if pattern.as_ref().is_none_or(fits) {
            found.push(data, key);
        }
        slots_of(steps)
    })?;
    found.admit(data)?;
    found.write(out);
    Ok(())
}

pub(crate) fn randomkey(data: &mut Data<'_, '_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let key = data.access.random_key(data.db)?;
    out.bulk_or_null(key.as_deref());
    Ok(())
}

/// As how many slots matching a key counts: a slot takes about as long as so many steps.
fn slots_of(steps: u64) -> usize {
    usize::try_from(steps / SLOT_STEPS).unwrap_or(usize::MAX)
}

/// Steps of a pattern that count as a slot.
const SLOT_STEPS: u64 = 100;
/// Memory for so many bytes of keys is asked for at a time.
const KEYS_STEP_BYTES: usize = 64 << 10;
/// Slots that one SCAN looks at, or elements of one HSCAN, whatever COUNT says: others of its loop wait meanwhile.
const SCAN_BUDGET_MAX: usize = 10_000;
/// Bytes of keys that one SCAN tells, about.
const SCAN_BYTES_MAX: usize = 1 << 20;
