//! Sorted sets: members with scores. Ranges of them are in `score_ranges`, what is made of several in `combined`.

use resp::{ArgsView, Writer};
use smallvec::SmallVec;
use store::{Element, EventClass, ValueKind, score_of};

use super::blocking::{MultiPop, Nothing, first, timeout};
use super::elements::{
    self, Chosen, Scan, admit_count, delete_scored, key_of_pops, sequence, sequence_to_change, value, values,
    walk_reply,
};
use crate::args::{count, integer, is};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};
use crate::chunked::WriteElement;
use crate::ready::Wants;

/// A member and its score, to keep.
pub(super) type Scored = (Vec<u8>, f64);

pub(super) const SORTED_SET: ValueKind = ValueKind::SortedSet;

/// A score, or the error that every command gives.
pub(super) fn score(arg: &[u8]) -> Result<f64, Failure> {
    decimal::parse(arg).ok_or_else(|| text::NOT_FLOAT.into())
}

/// What a score of `former` becomes by adding `by`.
fn sum(former: f64, by: f64) -> Result<f64, Failure> {
    let sum = former + by;
    if sum.is_nan() { Err("ERR resulting score is not a number (NaN)".into()) } else { Ok(sum) }
}

/// Options of ZADD.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AddOptions {
    pub(super) only_new: bool,
    pub(super) only_there: bool,
    only_greater: bool,
    only_less: bool,
    pub(super) counts_changed: bool,
    increments: bool,
}

impl AddOptions {
    /// Reads them; returns where the scores begin, too.
    fn parse(args: ArgsView<'_>) -> Result<(Self, usize), Failure> {
        let (mut options, mut index) = (Self::default(), 2);
        while let Some(arg) = args.try_get(index) {
            match arg {
                _ if is(arg, "nx") => options.only_new = true,
                _ if is(arg, "xx") => options.only_there = true,
                _ if is(arg, "gt") => options.only_greater = true,
                _ if is(arg, "lt") => options.only_less = true,
                _ if is(arg, "ch") => options.counts_changed = true,
                _ if is(arg, "incr") => options.increments = true,
                _ => break,
            }
            index += 1;
        }
        let words = args.len() - index;
        if words == 0 || !words.is_multiple_of(2) {
            return Err(text::SYNTAX.into());
        }
        let Self { only_new, only_there, only_greater, only_less, increments, .. } = options;
        if only_new && only_there {
            return Err("ERR XX and NX options at the same time are not compatible".into());
        }
        if (only_greater && only_less) || (only_new && (only_greater || only_less)) {
            return Err("ERR GT, LT, and/or NX options at the same time are not compatible".into());
        }
        if increments && words > 2 {
            return Err("ERR INCR option supports a single increment-element pair".into());
        }
        Ok((options, index))
    }

    /// What ZADD answers without INCR.
    pub(super) fn count(self, done: Added) -> i64 {
        done.added + if self.counts_changed { done.updated } else { 0 }
    }

    /// The score that a member of `former` gets by `given`; `None`: it is left as it is.
    fn settle(self, former: Option<f64>, given: f64) -> Result<Option<f64>, Failure> {
        let Some(former) = former else { return Ok((!self.only_there).then_some(given)) };
        if self.only_new {
            return Ok(None);
        }
        let score = if self.increments { sum(former, given)? } else { given };
        let refused = (self.only_greater && score <= former) || (self.only_less && score >= former);
        Ok((!refused).then_some(score))
    }
}

/// What [`add`] did.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Added {
    added: i64,
    updated: i64,
    /// The score of the last member; `None`: it was left as it was.
    newest: Option<f64>,
}

/// Gives members of the sorted set at `key` their scores.
pub(super) fn add(
    data: &mut Data<'_, '_>,
    key: &[u8],
    options: AddOptions,
    members: &[(&[u8], f64)],
) -> Result<Added, Failure> {
    let mut done = Added::default();
    let named = members.iter().map(|(member, _)| *member);
    let settle = |former: Option<f64>, number: usize| {
        done.newest = options.settle(former, members[number].1)?;
        let changed = done.newest.filter(|score| former != Some(*score));
        let Some(score) = changed else { return Ok(former) };
        *(if former.is_none() { &mut done.added } else { &mut done.updated }) += 1;
        Ok::<_, Failure>(Some(score))
    };
    data.access.rescore(data.db, key, named, settle)???;
    if done.added + done.updated > 0 {
        data.event(EventClass::SortedSet, if options.increments { "zincr" } else { "zadd" }, key);
    }
    Ok(done)
}

pub(crate) fn zadd(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (options, first) = AddOptions::parse(args)?;
    let pairs = (first..args.len()).step_by(2);
    let members = pairs.map(|at| Ok((args.get(at + 1), score(args.get(at))?)));
    let done = add(data, args.get(1), options, &members.collect::<Result<Vec<_>, Failure>>()?)?;
    match (options.increments, done.newest) {
        (false, _) => out.integer(options.count(done)),
        (true, Some(score)) => out.double(score),
        (true, None) => out.null(),
    }
    Ok(())
}

pub(crate) fn zadd_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    // one score and one member each: no options
    let members = requests.iter().map(|args| match args.len() {
        4 => Ok((args.get(3), score(args.get(2))?)),
        _ => Err(text::BY_ITSELF.into()),
    });
    let members = members.collect::<Result<Vec<_>, Failure>>()?;
    let (mut is_new, mut changes) = (vec![false; members.len()], 0);
    let settle = |former: Option<f64>, number: usize| {
        is_new[number] = former.is_none();
        changes += usize::from(former != Some(members[number].1));
        Ok::<_, Failure>(Some(members[number].1))
    };
    let named = members.iter().map(|(member, _)| *member);
    data.access.rescore(data.db, requests[0].get(1), named, settle)???;
    (0..changes).for_each(|_| data.event(EventClass::SortedSet, "zadd", requests[0].get(1)));
    is_new.into_iter().for_each(|is_new| out.integer(is_new.into()));
    Ok(())
}

pub(crate) fn zincrby(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    zincrby_series(data, &[args], out)
}

pub(crate) fn zincrby_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    let scores = requests.iter().map(|args| score(args.get(2)));
    let mut scores: SmallVec<[f64; 1]> = scores.collect::<Result<_, Failure>>()?;
    let mut changes = 0;
    let add = |former: Option<f64>, number: usize| {
        scores[number] = sum(former.unwrap_or(0.0), scores[number])?;
        changes += usize::from(former != Some(scores[number]));
        Ok::<_, Failure>(Some(scores[number]))
    };
    let named = requests.iter().map(|args| args.get(3));
    data.access.rescore(data.db, requests[0].get(1), named, add)???;
    (0..changes).for_each(|_| data.event(EventClass::SortedSet, "zincr", requests[0].get(1)));
    scores.into_iter().for_each(|score| out.double(score));
    Ok(())
}

pub(crate) fn zrem(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    delete_scored(data, &[args], out)
}

pub(crate) fn zrem_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    delete_scored(data, requests, out)
}

pub(crate) fn zcard(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(elements::count(data, args.get(1), SORTED_SET)? as i64);
    Ok(())
}

fn double_or_null(score: Option<f64>, out: &mut Writer<'_>) {
    match score {
        Some(score) => out.double(score),
        None => out.null(),
    }
}

pub(crate) fn zscore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let score = value(data, args.get(1), SORTED_SET, args.get(2))?;
    double_or_null(score.map(score_of), out);
    Ok(())
}

pub(crate) fn zmscore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let scores = values(data, args.get(1), SORTED_SET, args.iter().skip(2))?;
    out.array(scores.len());
    scores.into_iter().for_each(|score| double_or_null(score.map(score_of), out));
    Ok(())
}

pub(crate) fn zrank(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer_rank(data, args, |at, _| at, out)
}

pub(crate) fn zrevrank(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer_rank(data, args, |at, len| len - 1 - at, out)
}

fn answer_rank(
    data: &Data<'_, '_>,
    args: ArgsView<'_>,
    place: impl Fn(usize, usize) -> usize,
    out: &mut Writer<'_>,
) -> Outcome {
    let with_score = match (args.try_get(3), args.len()) {
        (None, _) => false,
        (Some(option), 4) if is(option, "withscore") => true,
        _ => return Err(text::SYNTAX.into()),
    };
    let Some(score) = value(data, args.get(1), SORTED_SET, args.get(2))? else {
        if with_score {
            out.null_array();
        } else {
            out.null();
        }
        return Ok(());
    };
    let set = sequence_to_change(data, args.get(1), SORTED_SET)?;
    let at = set.rank(args.get(2), score)?;
    if with_score {
        out.array(2);
    }
    out.integer(place(at, set.len()) as i64);
    if with_score {
        out.double(score_of(score));
    }
    Ok(())
}

/// How members with their scores are format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MemberFormat {
    /// Members alone.
    Members,
    /// One after the other; in RESP3 in pairs.
    WithScores,
    /// In one array, whatever the version of the protocol.
    Flat,
    /// In pairs, whatever the version of the protocol.
    Pairs,
}

/// Answers with members, and their scores if so format.
///
/// # Errors
/// A reply that no connection could hold.
pub(super) fn write_members<'a>(
    data: &Data<'_, '_>,
    members: impl ExactSizeIterator<Item = (&'a [u8], f64)> + Clone,
    format: MemberFormat,
    out: &mut Writer<'_>,
) -> Outcome {
    data.admit_reply(members.clone().map(|(member, _)| member.len() + 2 * BULK_OVERHEAD_BYTES).sum())?;
    begin_members(format, members.len(), out);
    members.for_each(|(member, score)| write_member(member, score, format, out));
    Ok(())
}

/// Appends what comes before so many members.
pub(super) fn begin_members(format: MemberFormat, count: usize, out: &mut Writer<'_>) {
    let is_flat = format != MemberFormat::Members && !format.in_pairs(out);
    out.array(if is_flat { 2 * count } else { count });
}

fn write_member(member: &[u8], score: f64, format: MemberFormat, out: &mut Writer<'_>) {
    if format.in_pairs(out) {
        out.array(2);
    }
    out.bulk(member);
    if format != MemberFormat::Members {
        out.double(score);
    }
}

impl MemberFormat {
    fn in_pairs(self, out: &Writer<'_>) -> bool {
        self == Self::Pairs || (self == Self::WithScores && out.is_resp3())
    }

    /// How ZRANGE appends a member.
    pub(super) fn writer(self) -> WriteElement {
        match self {
            Self::Members => |(member, _), out| out.bulk(member),
            _ => |(member, score), out| write_member(member, score_of(score), Self::WithScores, out),
        }
    }
}

/// As [`write_members`], of members that were kept.
pub(super) fn write_kept(
    data: &Data<'_, '_>,
    kept: &[Scored],
    format: MemberFormat,
    out: &mut Writer<'_>,
) -> Outcome {
    write_members(data, kept.iter().map(|(member, score)| (&member[..], *score)), format, out)
}

pub(crate) fn zrandmember(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(count) = args.try_get(2) else {
        let set = sequence(data, args.get(1), SORTED_SET)?;
        let chosen = match Chosen::one(data, set.len()) {
            Some(at) => set.element(at)?,
            None => None,
        };
        out.bulk_or_null(chosen.map(|(member, _)| member));
        return Ok(());
    };
    let count = integer(count)?;
    admit_count(count)?;
    let format = match (args.try_get(3), args.len()) {
        (None, _) => MemberFormat::Members,
        (Some(option), 4) if is(option, "withscores") => MemberFormat::WithScores,
        _ => return Err(text::SYNTAX.into()),
    };
    if format == MemberFormat::WithScores && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(text::OUT_OF_RANGE.into());
    }
    let set = sequence(data, args.get(1), SORTED_SET)?;
    let chosen = Chosen::of_sequence(data, &set, count)?;
    write_members(data, chosen.iter().map(|(member, score)| (*member, score_of(score))), format, out)
}

pub(crate) fn zscan(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(scan) = Scan::begin(data, args, SORTED_SET, out)? else { return Ok(()) };
    walk_reply(data, args.get(1), SORTED_SET, &scan, out)
}

/// The lowest scores, or the highest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Min,
    Max,
}

impl Side {
    /// What a pop from this side is called.
    fn popped(self) -> &'static str {
        if self == Self::Min { "zpopmin" } else { "zpopmax" }
    }

    fn parse(arg: &[u8]) -> Result<Self, Failure> {
        match arg {
            _ if is(arg, "min") => Ok(Self::Min),
            _ if is(arg, "max") => Ok(Self::Max),
            _ => Err(text::SYNTAX.into()),
        }
    }
}

/// Takes `count` members from a side of the sorted set at `key`, or all if there are not so many.
fn take(data: &mut Data<'_, '_>, key: &[u8], side: Side, count: usize) -> Result<Vec<Scored>, Failure> {
    let set = sequence_to_change(data, key, SORTED_SET)?;
    let (len, count) = (set.len(), count.min(set.len()));
    let range = match side {
        Side::Min => 0..count,
        Side::Max => len - count..len,
    };
    let mut taken = Vec::new();
    set.visit(range.clone(), |(member, score)| taken.push((member.to_vec(), score_of(score))))?;
    if side == Side::Max {
        taken.reverse();
    }
    data.admit_reply(taken.iter().map(|(member, _)| member.len() + 2 * BULK_OVERHEAD_BYTES).sum())?;
    data.access.remove_range(data.db, key, SORTED_SET, range)??;
    Ok(taken)
}

pub(crate) fn zpopmin(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    pop(data, args, Side::Min, out)
}

pub(crate) fn zpopmax(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    pop(data, args, Side::Max, out)
}

fn pop(data: &mut Data<'_, '_>, args: ArgsView<'_>, side: Side, out: &mut Writer<'_>) -> Outcome {
    let (count, format) = match (args.try_get(2), args.len()) {
        (None, _) => (1, MemberFormat::Flat),
        (Some(arg), 3) => (count(arg, text::NOT_POSITIVE)?, MemberFormat::WithScores),
        _ => return Err(text::SYNTAX.into()),
    };
    let taken = take(data, args.get(1), side, count)?;
    data.taken(EventClass::SortedSet, side.popped(), args.get(1), (!taken.is_empty()).into())?;
    write_kept(data, &taken, format, out)
}

pub(crate) fn zpopmin_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    pop_series(data, requests, Side::Min, out)
}

pub(crate) fn zpopmax_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    pop_series(data, requests, Side::Max, out)
}

/// Pops a member for each of these requests, none of which says how many.
fn pop_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    side: Side,
    out: &mut Writer<'_>,
) -> Outcome {
    let key = key_of_pops(data, requests, SORTED_SET)?;
    let taken = take(data, key, side, requests.len())?;
    data.taken(EventClass::SortedSet, side.popped(), key, taken.len())?;
    for at in 0..requests.len() {
        write_kept(data, taken.get(at..=at).unwrap_or_default(), MemberFormat::Flat, out)?;
    }
    Ok(())
}

/// Pops from the first sorted set with members; `false`: there is none.
fn pop_first(
    data: &mut Data<'_, '_>,
    pop: &MultiPop<Side>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Result<bool, Failure> {
    let Some(key) = first(data, pop.keys.all(args), SORTED_SET)? else { return Ok(false) };
    let key = &key[..];
    let taken = take(data, key, pop.side, pop.count)?;
    data.taken(EventClass::SortedSet, pop.side.popped(), key, (!taken.is_empty()).into())?;
    out.array(2);
    out.bulk(key);
    write_kept(data, &taken, MemberFormat::Pairs, out)?;
    Ok(true)
}

pub(crate) fn zmpop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let pop = MultiPop::parse(args, 1, Side::parse)?;
    if !pop_first(data, &pop, args, out)? {
        out.null_array();
    }
    Ok(())
}

pub(crate) fn bzmpop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let pop = MultiPop::parse(args, 2, Side::parse)?;
    let timeout = timeout(args.get(1))?;
    if pop_first(data, &pop, args, out)? {
        Ok(())
    } else {
        data.wait(timeout, Wants::Any(SORTED_SET), Nothing::Array, out)
    }
}

pub(crate) fn bzpopmin(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    block_and_pop(data, args, Side::Min, out)
}

pub(crate) fn bzpopmax(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    block_and_pop(data, args, Side::Max, out)
}

fn block_and_pop(data: &mut Data<'_, '_>, args: ArgsView<'_>, side: Side, out: &mut Writer<'_>) -> Outcome {
    let last = args.len() - 1;
    let timeout = timeout(args.get(last))?;
    let Some(key) = first(data, args.iter().take(last).skip(1), SORTED_SET)? else {
        return data.wait(timeout, Wants::Any(SORTED_SET), Nothing::Array, out);
    };
    let key = &key[..];
    let taken = take(data, key, side, 1)?;
    data.taken(EventClass::SortedSet, side.popped(), key, (!taken.is_empty()).into())?;
    out.array(3);
    out.bulk(key);
    for (member, score) in &taken {
        out.bulk(member);
        out.double(*score);
    }
    Ok(())
}

/// Members, to keep.
pub(super) fn kept(members: Vec<Element<'_>>) -> Vec<Scored> {
    members.into_iter().map(|(member, score)| (member.to_vec(), score_of(score))).collect()
}

/// Lets the sorted set at `target` consist of these members; none, and the key is gone.
pub(super) fn put_members(
    data: &mut Data<'_, '_>,
    target: &[u8],
    members: &[Scored],
    name: &'static str,
) -> Outcome {
    let tags: Vec<u16> = members.iter().map(|(member, _)| data.access.tag(member)).collect();
    data.turn_to_key(target);
    let was_there = data.may_go(target)?;
    data.stored(EventClass::SortedSet, name, target, !members.is_empty(), was_there);
    data.access.make(data.db, target, SORTED_SET, |set| {
        members.iter().zip(tags).for_each(|((member, score), tag)| _ = set.put_score(tag, member, *score));
    })?;
    Ok(())
}
