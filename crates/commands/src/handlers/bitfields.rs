//! BITFIELD: integers of any width at any bit of a string.

use resp::{ArgsView, Writer};
use store::EventClass;

use super::bitmaps::bit_offset;
use super::ranges::overwrite;
use crate::args::{integer, is, string, string_to_change};
use crate::call::{Data, Failure, Outcome, text};

/// How an integer lies in its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Encoding {
    is_signed: bool,
    bits: u32,
}

impl Encoding {
    fn parse(arg: &[u8]) -> Result<Self, Failure> {
        let wrong = "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.";
        let (is_signed, digits) = match arg {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return Err(wrong.into()),
        };
        let bits = resp::parse_i64(digits).and_then(|bits| u32::try_from(bits).ok());
        let most = if is_signed { 64 } else { 63 };
        let bits = bits.filter(|bits| (1..=most).contains(bits)).ok_or(wrong)?;
        Ok(Self { is_signed, bits })
    }

    fn least(self) -> i128 {
        if self.is_signed { -(1 << (self.bits - 1)) } else { 0 }
    }

    fn greatest(self) -> i128 {
        let bits = if self.is_signed { self.bits - 1 } else { self.bits };
        (1 << bits) - 1
    }

    /// The number that its bits mean.
    fn of_bits(self, bits: u64) -> i64 {
        let unused = 64 - self.bits;
        if self.is_signed { (bits << unused).cast_signed() >> unused } else { bits.cast_signed() }
    }

    /// `number` where it fits, otherwise what `overflow` makes of it; `None`: nothing.
    fn fit(self, number: i128, overflow: Overflow) -> Option<i64> {
        if (self.least()..=self.greatest()).contains(&number) {
            return i64::try_from(number).ok();
        }
        match overflow {
            Overflow::Wrap => Some(self.of_bits(number as u64 & (u64::MAX >> (64 - self.bits)))),
            Overflow::Saturate => i64::try_from(number.clamp(self.least(), self.greatest())).ok(),
            Overflow::Fail => None,
        }
    }
}

/// What becomes of a number that has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Overflow {
    Wrap,
    Saturate,
    Fail,
}

impl Overflow {
    fn parse(arg: &[u8]) -> Result<Self, Failure> {
        match arg {
            _ if is(arg, "wrap") => Ok(Self::Wrap),
            _ if is(arg, "sat") => Ok(Self::Saturate),
            _ if is(arg, "fail") => Ok(Self::Fail),
            _ => Err("ERR Invalid OVERFLOW type specified".into()),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Act {
    Get,
    Set(i64),
    Add(i64),
}

/// One GET, SET or INCRBY.
#[derive(Clone, Copy, Debug)]
struct Step {
    act: Act,
    encoding: Encoding,
    offset: u64,
    overflow: Overflow,
}

impl Step {
    fn end(&self) -> u64 {
        self.offset + u64::from(self.encoding.bits)
    }
}

fn parse(data: &Data<'_, '_>, args: ArgsView<'_>, only_gets: bool) -> Result<Vec<Step>, Failure> {
    let (mut steps, mut overflow, mut index) = (Vec::new(), Overflow::Wrap, 2);
    while let Some(word) = args.try_get(index) {
        let left = args.len() - index - 1;
        if is(word, "overflow") && left > 0 {
            overflow = Overflow::parse(args.get(index + 1))?;
            index += 2;
            continue;
        }
        let words = match word {
            _ if is(word, "get") => 3,
            _ if is(word, "set") || is(word, "incrby") => 4,
            _ => return Err(text::SYNTAX.into()),
        };
        if left + 1 < words {
            return Err(text::SYNTAX.into());
        }
        let encoding = Encoding::parse(args.get(index + 1))?;
        let offset = bit_offset(data, args.get(index + 2), encoding.bits.into(), true)?;
        let act = match words {
            3 => Act::Get,
            _ if is(word, "set") => Act::Set(integer(args.get(index + 3))?),
            _ => Act::Add(integer(args.get(index + 3))?),
        };
        steps.push(Step { act, encoding, offset, overflow });
        index += words;
    }
    if only_gets && steps.iter().any(|step| step.act != Act::Get) {
        return Err("ERR BITFIELD_RO only supports the GET subcommand".into());
    }
    Ok(steps)
}

/// The bits from `offset` on; those behind the end are 0.
fn read(bytes: &[u8], offset: u64, bits: u32) -> u64 {
    let first = (offset / 8) as usize;
    let window = (0..9)
        .fold(0_u128, |window, at| window << 8 | u128::from(bytes.get(first + at).copied().unwrap_or(0)));
    let shift = 72 - (offset % 8) as u32 - bits;
    (window >> shift) as u64 & (u64::MAX >> (64 - bits))
}

/// Puts bits into `bytes`, which has room for them.
fn write(bytes: &mut [u8], offset: u64, bits: u32, value: u64) {
    for nth in 0..bits {
        let at = offset + u64::from(nth);
        let mask = 0x80_u8 >> (at % 8);
        let byte = &mut bytes[(at / 8) as usize];
        let is_set = value >> (bits - 1 - nth) & 1 != 0;
        *byte = if is_set { *byte | mask } else { *byte & !mask };
    }
}

/// Does one step; returns what it answers with.
fn run(bytes: &mut [u8], step: &Step) -> Option<i64> {
    let Step { act, encoding, offset, overflow } = *step;
    let former = encoding.of_bits(read(bytes, offset, encoding.bits));
    let (number, answer) = match act {
        Act::Get => return Some(former),
        // Without a sign, a number below 0 is one far above what fits.
        Act::Set(value) if !encoding.is_signed => {
            (encoding.fit(value.cast_unsigned().into(), overflow)?, former)
        }
        Act::Set(value) => {
            // Redis subtracts in 64 bits: what is farther below than they reach saturates at the top.
            let distance = encoding.greatest() - i128::from(value);
            let is_far = overflow == Overflow::Saturate && distance > i64::MAX.into();
            let number = if is_far { encoding.greatest() } else { value.into() };
            (encoding.fit(number, overflow)?, former)
        }
        Act::Add(by) => {
            let sum = encoding.fit(i128::from(former) + i128::from(by), overflow)?;
            (sum, sum)
        }
    };
    write(bytes, offset, encoding.bits, number.cast_unsigned() & (u64::MAX >> (64 - encoding.bits)));
    Some(answer)
}

pub(crate) fn bitfield(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let steps = parse(data, args, false)?;
    let written = steps.iter().filter(|step| step.act != Act::Get);
    let Some(end) = written.clone().map(Step::end).max() else { return answer_gets(data, args, &steps, out) };
    let found = string_to_change(data, args.get(1))?;
    let former = found.map_or(&[][..], |found| found.value);
    // What lies before the first step that writes stays as it is, and need not be copied.
    let start = steps.iter().map(|step| step.offset / 8).min().unwrap_or(0) as usize;
    let start = start.min(former.len());
    let ends = steps.iter().map(Step::end).max().unwrap_or(end).div_ceil(8) as usize;
    data.ask(ends.saturating_sub(start))?;
    let mut bytes = former[start..former.len().min(ends)].to_vec();
    let kept = bytes.len().max((end.div_ceil(8) as usize).saturating_sub(start));
    bytes.resize(ends.saturating_sub(start).max(kept), 0);
    let shift = start as u64 * 8;
    let steps = steps.iter().map(|step| Step { offset: step.offset - shift, ..*step });
    let answers: Vec<Option<i64>> = steps.map(|step| run(&mut bytes, &step)).collect();
    // A GET beyond the end does not make the string longer.
    bytes.truncate(kept);
    if former.get(start..start + kept) != Some(&bytes[..]) {
        overwrite(data, args.get(1), start, &bytes)?;
        data.event(EventClass::String, "setbit", args.get(1));
    }
    write_answers(&answers, out);
    Ok(())
}

pub(crate) fn bitfield_ro(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let steps = parse(data, args, true)?;
    answer_gets(data, args, &steps, out)
}

fn answer_gets(data: &Data<'_, '_>, args: ArgsView<'_>, steps: &[Step], out: &mut Writer<'_>) -> Outcome {
    let found = string(data, args.get(1))?;
    let bytes = found.map_or(&[][..], |found| found.value);
    let answer = |step: &Step| Some(step.encoding.of_bits(read(bytes, step.offset, step.encoding.bits)));
    write_answers(&steps.iter().map(answer).collect::<Vec<_>>(), out);
    Ok(())
}

fn write_answers(answers: &[Option<i64>], out: &mut Writer<'_>) {
    out.array(answers.len());
    for answer in answers {
        match answer {
            Some(number) => out.integer(*number),
            None => out.null(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_that_do_not_fit_wrap_saturate_or_fail() {
        let encoding = |text: &str| Encoding::parse(text.as_bytes()).expect("an encoding");
        for (kind, number, wrapped, saturated) in [
            ("u8", 256, 0, 255),
            ("u8", -1, 255, 0),
            ("i8", 128, -128, 127),
            ("i8", -129, 127, -128),
            ("u1", 3, 1, 1),
            ("u63", 1 << 63, 0, i64::MAX),
            ("i64", i128::from(i64::MAX) + 1, i64::MIN, i64::MAX),
            ("i64", i128::from(i64::MIN) - 1, i64::MAX, i64::MIN),
        ] {
            let fit = |overflow| encoding(kind).fit(number, overflow);
            assert_eq!(fit(Overflow::Wrap), Some(wrapped), "{number} as {kind}");
            assert_eq!(fit(Overflow::Saturate), Some(saturated), "{number} as {kind}");
            assert_eq!(fit(Overflow::Fail), None, "{number} as {kind}");
        }
        for wrong in ["u64", "i65", "u0", "i0", "8", "", "i", "u-1", "u 8"] {
            assert!(Encoding::parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_written_at_any_bit_is_read_again_and_nothing_else_changes() {
        for bits in 1..=64 {
            for offset in 0..20 {
                for background in [0x00, 0xff, 0xa5] {
                    let mut bytes = [background; 12];
                    let value = 0x9e37_79b9_7f4a_7c15_u64 >> (64 - bits);
                    write(&mut bytes, offset, bits, value);
                    assert_eq!(read(&bytes, offset, bits), value, "{bits} bits at {offset}");
                    write(&mut bytes, offset, bits, read(&[background; 12], offset, bits));
                    assert_eq!(bytes, [background; 12], "{bits} bits at {offset}");
                }
            }
        }
    }
}
