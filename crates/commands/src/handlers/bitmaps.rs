//! Strings as arrays of bits: bit 0 is the highest of the first byte.

use std::ops::Range;
use std::sync::atomic::Ordering;

use resp::{ArgsView, Writer};
use store::{EventClass, Value};

use super::ranges::overwrite;
use crate::args::{integer, is, string, string_to_change};
use crate::call::{Data, Failure, Outcome, text};

const OFFSET_RANGE: &str = "ERR bit offset is not an integer or out of range";

/// Where the first of `width` bits lies; with `counts` an offset `#n` is that of the n-th such group.
pub(super) fn bit_offset(data: &Data<'_, '_>, arg: &[u8], width: u64, counts: bool) -> Result<u64, Failure> {
    let (digits, factor) = match arg {
        [b'#', digits @ ..] if counts => (digits, width),
        _ => (arg, 1),
    };
    let number = resp::parse_i64(digits).and_then(|number| u64::try_from(number).ok());
    let offset = number.and_then(|number| number.checked_mul(factor)).ok_or(OFFSET_RANGE)?;
    let bits_max = data.limits.value_bytes_max.load(Ordering::Relaxed).saturating_mul(8);
    match offset.checked_add(width) {
        Some(end) if end <= bits_max => Ok(offset),
        _ => Err(OFFSET_RANGE.into()),
    }
}

fn bit_of(bytes: &[u8], offset: u64) -> bool {
    let byte = usize::try_from(offset / 8).ok().and_then(|at| bytes.get(at)).copied().unwrap_or(0);
    byte & (0x80 >> (offset % 8)) != 0
}

pub(crate) fn getbit(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let offset = bit_offset(data, args.get(2), 1, false)?;
    let found = string(data, args.get(1))?;
    out.integer(found.is_some_and(|found| bit_of(found.value, offset)).into());
    Ok(())
}

pub(crate) fn setbit(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let offset = bit_offset(data, args.get(2), 1, false)?;
    let bit = match args.get(3) {
        b"0" => 0,
        b"1" => 0x80 >> (offset % 8),
        _ => return Err("ERR bit is not an integer or out of range".into()),
    };
    let found = string_to_change(data, args.get(1))?;
    let former = found.map_or(&[][..], |found| found.value);
    let (at, was_set) = ((offset / 8) as usize, bit_of(former, offset));
    let byte = former.get(at).copied().unwrap_or(0) & !(0x80 >> (offset % 8)) | bit;
    if at >= former.len() || was_set != (bit != 0) {
        overwrite(data, args.get(1), at, &[byte])?;
        data.event(EventClass::String, "setbit", args.get(1));
    }
    out.integer(was_set.into());
    Ok(())
}

/// The bits from `start` to `end`, both included and counted from the end if they are negative, in units of `unit` bits.
fn bit_range(start: i64, end: i64, unit: u64, bytes: usize) -> Range<u64> {
    let len = i64::try_from(bytes as u64 * 8 / unit).unwrap_or(i64::MAX);
    let place = |at: i64| if at < 0 { at.saturating_add(len).max(0) } else { at };
    let (start, end) = (place(start), place(end).min(len - 1));
    if start > end { 0..0 } else { start.unsigned_abs() * unit..(end.unsigned_abs() + 1) * unit }
}

/// The unit that BYTE or BIT names.
fn unit(arg: Option<&[u8]>) -> Result<u64, Failure> {
    match arg {
        None => Ok(8),
        Some(arg) if is(arg, "byte") => Ok(8),
        Some(arg) if is(arg, "bit") => Ok(1),
        Some(_) => Err(text::SYNTAX.into()),
    }
}

/// The bytes that `range` touches, those at its ends without the bits outside: their copies come first and last.
fn masked(bytes: &[u8], range: &Range<u64>) -> (u8, Range<usize>, u8) {
    let (first, last) = ((range.start / 8) as usize, ((range.end - 1) / 8) as usize);
    let (head, tail) = (0xff_u8 >> (range.start % 8), 0xff_u8 << (7 - (range.end - 1) % 8));
    if first == last {
        return (bytes[first] & head & tail, 0..0, 0);
    }
    (bytes[first] & head, first + 1..last, bytes[last] & tail)
}

pub(crate) fn bitcount(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(found) = string(data, args.get(1))? else {
        out.integer(0);
        return Ok(());
    };
    let bytes = found.value;
    let range = match args.len() {
        2 => 0..bytes.len() as u64 * 8,
        4 | 5 => {
            let (start, end) = (integer(args.get(2))?, integer(args.get(3))?);
            if start < 0 && end < 0 && start > end {
                0..0
            } else {
                bit_range(start, end, unit(args.try_get(4))?, bytes.len())
            }
        }
        _ => return Err(text::SYNTAX.into()),
    };
    charge_bytes(data, (range.end - range.start) as usize / 8)?;
    let count = if range.is_empty() {
        0
    } else {
        let (head, middle, tail) = masked(bytes, &range);
        u64::from(head.count_ones()) + u64::from(tail.count_ones()) + ones(&bytes[middle])
    };
    out.integer(count.cast_signed());
    Ok(())
}

fn ones(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let words: u64 = words.iter().map(|word| u64::from(u64::from_ne_bytes(*word).count_ones())).sum();
    words + rest.iter().map(|byte| u64::from(byte.count_ones())).sum::<u64>()
}

pub(crate) fn bitpos(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let wanted = match integer(args.get(2))? {
        0 => false,
        1 => true,
        _ => return Err("ERR The bit argument must be 1 or 0.".into()),
    };
    let Some(found) = string(data, args.get(1))? else {
        out.integer(if wanted { -1 } else { 0 });
        return Ok(());
    };
    let bytes = found.value;
    let start = args.try_get(3).map_or(Ok(0), integer)?;
    let unit = unit(args.try_get(5))?;
    let end = args.try_get(4).map_or(Ok(-1), integer)?;
    if args.len() > 6 {
        return Err(text::SYNTAX.into());
    }
    let range = bit_range(start, end, unit, bytes.len());
    charge_bytes(data, (range.end - range.start) as usize / 8)?;
    let position = if range.is_empty() { None } else { first_bit(bytes, &range, wanted) };
    out.integer(match position {
        Some(position) => position.cast_signed(),
        // behind the string there are zeroes, unless the end was given
        None if !wanted && args.len() < 5 && !range.is_empty() => range.end.cast_signed(),
        None => -1,
    });
    Ok(())
}

fn first_bit(bytes: &[u8], range: &Range<u64>, wanted: bool) -> Option<u64> {
    let useless = if wanted { 0 } else { 0xff };
    let mut at = range.start;
    while at < range.end {
        if at.is_multiple_of(8) {
            let rest = &bytes[(at / 8) as usize..range.end.div_ceil(8) as usize];
            let skipped = rest.iter().position(|byte| *byte != useless)?;
            at += skipped as u64 * 8;
        }
        let end = (at / 8 * 8 + 8).min(range.end);
        if let Some(found) = (at..end).find(|at| bit_of(bytes, *at) == wanted) {
            return Some(found);
        }
        at = end;
    }
    None
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
    /// In the first, in none of the others.
    Diff,
    /// In one of the others at least, not in the first.
    Diff1,
    /// In the first, and in one of the others at least.
    AndOr,
    /// In one of them and no other.
    One,
}

impl Operation {
    fn parse(arg: &[u8]) -> Result<Self, Failure> {
        match arg {
            _ if is(arg, "and") => Ok(Self::And),
            _ if is(arg, "or") => Ok(Self::Or),
            _ if is(arg, "xor") => Ok(Self::Xor),
            _ if is(arg, "not") => Ok(Self::Not),
            _ if is(arg, "diff") => Ok(Self::Diff),
            _ if is(arg, "diff1") => Ok(Self::Diff1),
            _ if is(arg, "andor") => Ok(Self::AndOr),
            _ if is(arg, "one") => Ok(Self::One),
            _ => Err(text::SYNTAX.into()),
        }
    }

    /// Refuses a number of sources that it does not take.
    fn check(self, sources: usize) -> Outcome {
        let name = match self {
            Self::Not if sources != 1 => {
                return Err("ERR BITOP NOT must be called with a single source key.".into());
            }
            Self::Diff if sources < 2 => "DIFF",
            Self::Diff1 if sources < 2 => "DIFF1",
            Self::AndOr if sources < 2 => "ANDOR",
            _ => return Ok(()),
        };
        Err(format!("ERR BITOP {name} must be called with at least two source keys.").into())
    }

    /// Lets `sum` become what it and `other`, which is as long at most and zero beyond, come to. Of those that cannot be made in one
    /// go `more` keeps the rest: bits of the others, or with [`Self::One`] those that were met twice.
    fn apply(self, sum: &mut [u8], more: &mut Vec<u8>, other: &[u8]) {
        more.resize(if self.keeps_more() { sum.len() } else { 0 }, 0);
        let pairs = sum.iter_mut().zip(other);
        match self {
            Self::Diff | Self::Diff1 | Self::AndOr => more.iter_mut().zip(other).for_each(|(a, b)| *a |= b),
            Self::One => pairs.zip(more).for_each(|((once, b), twice)| {
                *twice |= *once & b;
                *once ^= b;
            }),
            Self::And => {
                pairs.for_each(|(a, b)| *a &= b);
                sum[other.len()..].fill(0);
            }
            Self::Or => pairs.for_each(|(a, b)| *a |= b),
            Self::Xor => pairs.for_each(|(a, b)| *a ^= b),
            Self::Not => {}
        }
    }

    fn keeps_more(self) -> bool {
        matches!(self, Self::Diff | Self::Diff1 | Self::AndOr | Self::One)
    }

    /// Makes the result of what [`Self::apply`] has left.
    fn finish(self, sum: &mut [u8], more: &[u8]) {
        let pairs = sum.iter_mut().zip(more);
        match self {
            Self::Not => sum.iter_mut().for_each(|a| *a = !*a),
            Self::Diff | Self::One => pairs.for_each(|(a, b)| *a &= !b),
            Self::Diff1 => pairs.for_each(|(a, b)| *a = !*a & b),
            Self::AndOr => pairs.for_each(|(a, b)| *a &= b),
            Self::And | Self::Or | Self::Xor => {}
        }
    }
}

/// The longest value first: nothing grows on the way. Of a long transaction only one key is at hand at a time.
pub(crate) fn bitop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let operation = Operation::parse(args.get(1))?;
    operation.check(args.len() - 3)?;
    let (mut sum, mut more, mut is_first) = (Vec::new(), Vec::new(), true);
    for key in args.iter().skip(3) {
        data.turn_to_key(key);
        let found = string(data, key)?;
        let value = found.map_or(&[][..], |found| found.value);
        charge_bytes(data, value.len().max(sum.len()))?;
        let grown = value.len().saturating_sub(sum.len());
        data.ask(if operation.keeps_more() { 2 * grown } else { grown })?;
        if is_first {
            sum.extend_from_slice(value);
        } else {
            sum.resize(sum.len().max(value.len()), 0);
            operation.apply(&mut sum, &mut more, value);
        }
        is_first = false;
    }
    operation.finish(&mut sum, &more);
    let (target, len) = (args.get(2), sum.len());
    data.turn_to_key(target);
    if sum.is_empty() {
        let was_there = data.access.remove(data.db, target)?;
        data.removed(target, was_there);
    } else {
        match data.store.large(sum) {
            Ok(large) => data.access.put(data.db, target, Value::Large(&large), None),
            Err(value) => data.access.put(data.db, target, Value::String(&value), None),
        }
        data.event(EventClass::String, "set", target);
    }
    out.integer(len as i64);
    Ok(())
}

/// Counts bytes that are about to be looked at.
fn charge_bytes(data: &Data<'_, '_>, bytes: usize) -> Outcome {
    Ok(data.access.charge(bytes / BYTES_EACH)?)
}

/// Bytes of a bitmap that take about as long as an element.
const BYTES_EACH: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_found_and_counted_as_one_by_one() {
        let bytes = [0x00, 0xff, 0x0f, 0x80, 0x00, 0x00, 0x01, 0xff, 0xff, 0x7f, 0x10];
        let bits = bytes.len() as u64 * 8;
        for start in 0..bits {
            for end in start + 1..=bits {
                let range = start..end;
                let expected = range.clone().filter(|at| bit_of(&bytes, *at)).count() as u64;
                let (head, middle, tail) = masked(&bytes, &range);
                let counted = u64::from(head.count_ones() + tail.count_ones()) + ones(&bytes[middle]);
                assert_eq!(counted, expected, "{range:?}");
                for wanted in [false, true] {
                    let first = range.clone().find(|at| bit_of(&bytes, *at) == wanted);
                    assert_eq!(first_bit(&bytes, &range, wanted), first, "{wanted} in {range:?}");
                }
            }
        }
    }

    #[test]
    fn ranges_of_bits_clamp_at_every_edge() {
        for (start, end, unit, expected) in [
            (0, -1, 8, 0..24),
            (1, 1, 8, 8..16),
            (-1, -1, 8, 16..24),
            (5, 11, 1, 5..12),
            (-1, -1, 1, 23..24),
            (i64::MIN, i64::MAX, 8, 0..24),
            (i64::MIN, i64::MAX, 1, 0..24),
            (3, 9, 8, 0..0),
            (i64::MAX, i64::MIN, 1, 0..0),
        ] {
            assert_eq!(bit_range(start, end, unit, 3), expected, "{start} to {end} by {unit}");
        }
        assert_eq!(bit_range(0, -1, 8, 0), 0..0);
    }
}
