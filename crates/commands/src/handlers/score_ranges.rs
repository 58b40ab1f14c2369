//! Ranges of sorted sets: by rank, by score, by member.

use std::ops::Range;

use resp::{ArgsView, Writer};
use store::{Element, EventClass, Sequence, Stop, score_of};

use super::elements::{Part, part, sequence, sequence_to_change};
use super::lists::span;
use super::sorted_sets::{MemberFormat, SORTED_SET, begin_members, kept, put_members, write_members};
use crate::args::{integer, is, option_value};
use crate::call::{Data, Failure, Outcome, text};
use crate::chunked::ChunkedReply;

/// What members are told apart by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Rank,
    Score,
    Member,
}

/// An end of a range.
#[derive(Clone, Copy, Debug)]
struct Bound<T> {
    at: T,
    is_outside: bool,
}

/// A member, or what is before or behind all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Text<'a> {
    First,
    Member(&'a [u8]),
    Last,
}

fn score_bound(arg: &[u8]) -> Option<Bound<f64>> {
    let (is_outside, text) = match arg {
        [b'(', text @ ..] => (true, text),
        _ => (false, arg),
    };
    // As `strtod` has it: nothing is 0, blanks may come first, what is too large is infinite, and what is too small 0.
    let text = text.trim_ascii_start();
    let large = || std::str::from_utf8(text).ok()?.parse().ok().filter(|number: &f64| !number.is_nan());
    let at = if text.is_empty() { Some(0.0) } else { decimal::parse_small(text).or_else(large) };
    Some(Bound { at: at?, is_outside })
}

fn member_bound(arg: &[u8]) -> Option<Bound<Text<'_>>> {
    let (at, is_outside) = match arg {
        b"-" => (Text::First, true),
        b"+" => (Text::Last, true),
        [b'(', member @ ..] => (Text::Member(member), true),
        [b'[', member @ ..] => (Text::Member(member), false),
        _ => return None,
    };
    Some(Bound { at, is_outside })
}

/// What lies between two bounds.
fn between<T: PartialOrd + Copy>(
    set: &Sequence<'_, '_>,
    min: Bound<T>,
    max: Bound<T>,
    of: impl for<'a> Fn(Element<'a>) -> T,
) -> Result<Range<usize>, Stop> {
    let start = set.partition_point(|element| {
        let it = of(element);
        it < min.at || (min.is_outside && it == min.at)
    })?;
    let end = set.partition_point(|element| {
        let it = of(element);
        it < max.at || (!max.is_outside && it == max.at)
    })?;
    Ok(start..end.max(start))
}

/// The places of the members from `min` to `max`.
struct Bounds<'a> {
    by: By,
    min: &'a [u8],
    max: &'a [u8],
}

/// Bounds that were read.
enum Limits<'a> {
    Rank(i64, i64),
    Score(Bound<f64>, Bound<f64>),
    Member(Bound<Text<'a>>, Bound<Text<'a>>),
}

impl<'a> Bounds<'a> {
    fn parse(&self) -> Result<Limits<'a>, Failure> {
        let (min, max) = (self.min, self.max);
        match self.by {
            By::Rank => Ok(Limits::Rank(integer(min)?, integer(max)?)),
            By::Score => {
                let bounds = score_bound(min).zip(score_bound(max)).ok_or("ERR min or max is not a float")?;
                Ok(Limits::Score(bounds.0, bounds.1))
            }
            By::Member => {
                let bounds = member_bound(min).zip(member_bound(max));
                let bounds = bounds.ok_or("ERR min or max not valid string range item")?;
                Ok(Limits::Member(bounds.0, bounds.1))
            }
        }
    }
}

impl Limits<'_> {
    /// Which members are in them; ranks are counted from the end if `is_reversed`.
    fn of(&self, set: &Sequence<'_, '_>, is_reversed: bool) -> Result<Range<usize>, Stop> {
        match *self {
            Self::Rank(start, stop) => {
                let range = span(start, stop, set.len());
                Ok(if is_reversed { set.len() - range.end..set.len() - range.start } else { range })
            }
            Self::Score(min, max) => between(set, min, max, |(_, score)| score_of(score)),
            Self::Member(min, max) => {
                let before = |element: Element<'_>, bound: Bound<Text<'_>>, or_equal: bool| {
                    let it = Text::Member(element.0);
                    it < bound.at || (or_equal && it == bound.at)
                };
                let start = set.partition_point(|element| before(element, min, min.is_outside))?;
                let end = set.partition_point(|element| before(element, max, !max.is_outside))?;
                Ok(start..end.max(start))
            }
        }
    }
}

/// A range as ZRANGE and its relatives ask for it.
struct Query<'a> {
    bounds: Bounds<'a>,
    is_reversed: bool,
    /// OFFSET and COUNT.
    limit: Option<(i64, i64)>,
    format: MemberFormat,
}

impl<'a> Query<'a> {
    /// Reads what follows the key at argument `key_at`. What `by` and `is_reversed` leave open, options decide.
    fn parse(
        args: ArgsView<'a>,
        key_at: usize,
        by: Option<By>,
        is_reversed: Option<bool>,
        stores: bool,
    ) -> Result<Self, Failure> {
        let (mut chosen, mut reversed, mut limit, mut format) =
            (by, is_reversed, None, MemberFormat::Members);
        let mut index = key_at + 3;
        while let Some(arg) = args.try_get(index) {
            if !stores && is(arg, "withscores") {
                format = MemberFormat::WithScores;
            } else if is(arg, "limit") && args.len() > index + 2 {
                limit = Some((integer(option_value(args, index)?)?, integer(args.get(index + 2))?));
                index += 2;
            } else if reversed.is_none() && is(arg, "rev") {
                reversed = Some(true);
            } else if chosen.is_none() && is(arg, "bylex") {
                chosen = Some(By::Member);
            } else if chosen.is_none() && is(arg, "byscore") {
                chosen = Some(By::Score);
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 1;
        }
        let (by, is_reversed) = (chosen.unwrap_or(By::Rank), reversed.unwrap_or(false));
        // Redis does not tell LIMIT with a count of -1 from none.
        if by == By::Rank && limit.take_if(|(_, count)| *count == -1).is_none() && limit.is_some() {
            let only = "LIMIT is only supported in combination with either BYSCORE or BYLEX";
            return Err(format!("ERR syntax error, {only}").into());
        }
        if format == MemberFormat::WithScores && by == By::Member {
            return Err("ERR syntax error, WITHSCORES not supported in combination with BYLEX".into());
        }
        let (first, second) = (args.get(key_at + 1), args.get(key_at + 2));
        let is_swapped = is_reversed && by != By::Rank;
        let (min, max) = if is_swapped { (second, first) } else { (first, second) };
        Ok(Self { bounds: Bounds { by, min, max }, is_reversed, limit, format })
    }

    /// Which members are asked for.
    fn range(&self, limits: &Limits<'_>, set: &Sequence<'_, '_>) -> Result<Range<usize>, Stop> {
        let range = limits.of(set, self.is_reversed)?;
        let (offset, count) = self.limit.unwrap_or((0, -1));
        let Ok(offset) = usize::try_from(offset) else { return Ok(0..0) };
        let offset = offset.min(range.len());
        let count = usize::try_from(count).unwrap_or(usize::MAX).min(range.len() - offset);
        if self.is_reversed {
            let end = range.end - offset;
            return Ok(end - count..end);
        }
        Ok(range.start + offset..range.start + offset + count)
    }

    /// What is asked for, in the order in which it is asked for.
    fn members<'m>(&self, range: Range<usize>, set: &Sequence<'m, '_>) -> Result<Vec<Element<'m>>, Stop> {
        let mut members = set.range(range)?;
        if self.is_reversed {
            members.reverse();
        }
        Ok(members)
    }
}

fn answer(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    by: Option<By>,
    is_reversed: Option<bool>,
    out: &mut Writer<'_>,
) -> Outcome {
    let query = Query::parse(args, 1, by, is_reversed, false)?;
    let limits = query.bounds.parse()?;
    let set = sequence(data, args.get(1), SORTED_SET)?;
    let range = query.range(&limits, &set)?;
    let mut members = match part(data, args.get(1), SORTED_SET, &set, range.clone())? {
        Part::Here(members) => members,
        Part::Large(snapshot) => {
            begin_members(query.format, range.len(), out);
            let (write, is_reversed) = (query.format.writer(), query.is_reversed);
            data.send_rest(ChunkedReply::of_range(snapshot, &range, is_reversed, write, out.is_resp3()));
            return Ok(());
        }
    };
    if query.is_reversed {
        members.reverse();
    }
    write_members(data, members.iter().map(|(member, score)| (*member, score_of(score))), query.format, out)
}

pub(crate) fn zrange(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, None, None, out)
}

pub(crate) fn zrevrange(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Some(By::Rank), Some(true), out)
}

pub(crate) fn zrangebyscore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Some(By::Score), Some(false), out)
}

pub(crate) fn zrevrangebyscore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Some(By::Score), Some(true), out)
}

pub(crate) fn zrangebylex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Some(By::Member), Some(false), out)
}

pub(crate) fn zrevrangebylex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Some(By::Member), Some(true), out)
}

pub(crate) fn zrangestore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let query = Query::parse(args, 2, None, None, true)?;
    let limits = query.bounds.parse()?;
    let set = sequence(data, args.get(2), SORTED_SET)?;
    let members = kept(query.members(query.range(&limits, &set)?, &set)?);
    put_members(data, args.get(1), &members, "zrangestore")?;
    out.integer(members.len() as i64);
    Ok(())
}

/// The bounds that are arguments 2 and 3.
fn bounds(args: ArgsView<'_>, by: By) -> Result<Limits<'_>, Failure> {
    Bounds { by, min: args.get(2), max: args.get(3) }.parse()
}

fn count(data: &Data<'_, '_>, args: ArgsView<'_>, by: By, out: &mut Writer<'_>) -> Outcome {
    let limits = bounds(args, by)?;
    let set = sequence(data, args.get(1), SORTED_SET)?;
    out.integer(limits.of(&set, false)?.len() as i64);
    Ok(())
}

pub(crate) fn zcount(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    count(data, args, By::Score, out)
}

pub(crate) fn zlexcount(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    count(data, args, By::Member, out)
}

fn remove(data: &mut Data<'_, '_>, args: ArgsView<'_>, by: By, out: &mut Writer<'_>) -> Outcome {
    let limits = bounds(args, by)?;
    let set = sequence_to_change(data, args.get(1), SORTED_SET)?;
    let range = limits.of(&set, false)?;
    let count = range.len();
    data.access.remove_range(data.db, args.get(1), SORTED_SET, range)??;
    let name = match by {
        By::Rank => "zremrangebyrank",
        By::Score => "zremrangebyscore",
        By::Member => "zremrangebylex",
    };
    data.taken(EventClass::SortedSet, name, args.get(1), (count > 0).into())?;
    out.integer(count as i64);
    Ok(())
}

pub(crate) fn zremrangebyrank(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    remove(data, args, By::Rank, out)
}

pub(crate) fn zremrangebyscore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    remove(data, args, By::Score, out)
}

pub(crate) fn zremrangebylex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    remove(data, args, By::Member, out)
}
