//! What is made of several sorted sets, and sets: ZUNION, ZINTER, ZDIFF.
//!
//! Their members are copied: of a long transaction only one key is at hand at a time.

use std::collections::HashMap;

use resp::{ArgsView, Writer};
use store::{ValueKind, score_of};

use super::sorted_sets::{MemberFormat, SORTED_SET, Scored, put_members, write_kept};
use super::together::Together;
use crate::args::{count, integer, is, option_value};
use crate::call::{Data, Failure, Outcome, text};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

/// How the scores of a member become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Aggregate {
    Sum,
    Min,
    Max,
    /// The sum of the weights, whatever the scores are.
    Count,
}

impl Aggregate {
    fn of(self, a: f64, b: f64) -> f64 {
        match self {
            Self::Sum | Self::Count => number(a + b),
            Self::Min => a.min(b),
            Self::Max => a.max(b),
        }
    }
}

/// Infinities of both signs make 0, and an infinity times 0.
fn number(score: f64) -> f64 {
    if score.is_nan() { 0.0 } else { score }
}

/// What a command asks for.
struct Query<'a> {
    operation: Operation,
    keys: Vec<&'a [u8]>,
    weights: Vec<f64>,
    aggregate: Aggregate,
    with_scores: bool,
    /// Of ZINTERCARD.
    limit: usize,
}

/// What a command does with the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Answers,
    Stores,
    Counts,
}

impl<'a> Query<'a> {
    /// Reads the keys, which are counted by argument number `counted_at`.
    fn keys(
        args: ArgsView<'a>,
        counted_at: usize,
        operation: Operation,
        command: &str,
    ) -> Result<Self, Failure> {
        let count = integer(args.get(counted_at))?;
        if count < 1 {
            return Err(format!("ERR at least 1 input key is needed for '{command}' command").into());
        }
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        if count > args.len() - counted_at - 1 {
            return Err(text::SYNTAX.into());
        }
        let keys: Vec<&[u8]> = args.iter().skip(counted_at + 1).take(count).collect();
        let weights = vec![1.0; count];
        Ok(Self { operation, keys, weights, aggregate: Aggregate::Sum, with_scores: false, limit: 0 })
    }

    /// Reads the options from argument `index` on.
    fn options(&mut self, args: ArgsView<'_>, mut index: usize, used: Use) -> Outcome {
        let weighs = self.operation != Operation::Difference && used != Use::Counts;
        while let Some(arg) = args.try_get(index) {
            let left = args.len() - index;
            if weighs && is(arg, "weights") && left > self.keys.len() {
                for (at, weight) in self.weights.iter_mut().enumerate() {
                    *weight =
                        decimal::parse(args.get(index + 1 + at)).ok_or("ERR weight value is not a float")?;
                }
                index += self.keys.len();
            } else if weighs && is(arg, "aggregate") && left > 1 {
                self.aggregate = match option_value(args, index)? {
                    word if is(word, "sum") => Aggregate::Sum,
                    word if is(word, "min") => Aggregate::Min,
                    word if is(word, "max") => Aggregate::Max,
                    word if is(word, "count") => Aggregate::Count,
                    _ => return Err(text::SYNTAX.into()),
                };
                index += 1;
            } else if used == Use::Answers && is(arg, "withscores") {
                self.with_scores = true;
            } else if used == Use::Counts && is(arg, "limit") && left > 1 {
                self.limit = count(option_value(args, index)?, "ERR LIMIT can't be negative")?;
                index += 1;
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 1;
        }
        Ok(())
    }

    /// Makes the result, in the order of its scores.
    fn run(&self, data: &mut Data<'_, '_>) -> Result<Vec<Scored>, Failure> {
        let mut all = match self.operation {
            Operation::Union => self.union(data)?,
            Operation::Intersection => {
                let order = self.order(data)?;
                self.narrow(data, &order, if self.limit == 0 { usize::MAX } else { self.limit }, true)?
            }
            Operation::Difference => {
                let order: Vec<usize> = (0..self.keys.len()).collect();
                self.narrow(data, &order, usize::MAX, false)?
            }
        };
        all.sort_by(|(a, score_a), (b, score_b)| {
            (score_a + 0.0).total_cmp(&(score_b + 0.0)).then_with(|| a.cmp(b))
        });
        Ok(all)
    }

    /// The members of key number `at`, a sorted set or a set, where each has the score 1; their scores times its weight, which may be no number.
    fn members(&self, data: &mut Data<'_, '_>, key: &[u8], at: usize) -> Result<Vec<Scored>, Failure> {
        let kind = self.kind(data, key)?;
        let found = data.access.collection(data.db, key, kind)??;
        data.count_lookup(!found.is_empty(), key);
        data.access.charge(found.len())?;
        data.ask(found.iter().map(|(member, _)| member.len() + SCORED_BYTES).sum())?;
        let weighed = |(member, value): (&[u8], &[u8])| (member.to_vec(), self.weighed(at, kind, value));
        Ok(found.iter().map(weighed).collect())
    }

    /// Whether `key` is a set or, as one that is absent, a sorted set.
    fn kind(&self, data: &mut Data<'_, '_>, key: &[u8]) -> Result<ValueKind, Failure> {
        data.turn_to_key(key);
        let is_set = data.access.meta(data.db, key)?.is_some_and(|meta| meta.kind == ValueKind::Set);
        Ok(if is_set { ValueKind::Set } else { SORTED_SET })
    }

    /// The score of a member of key number `at` times its weight.
    fn weighed(&self, at: usize, kind: ValueKind, score: &[u8]) -> f64 {
        let counts_one = kind == ValueKind::Set || self.aggregate == Aggregate::Count;
        self.weights[at] * if counts_one { 1.0 } else { score_of(score) }
    }

    /// The keys by their number, from the smallest set up: in this order scores are added, which tells where infinities of both signs meet.
    fn order(&self, data: &mut Data<'_, '_>) -> Result<Vec<usize>, Failure> {
        let mut sized = Vec::with_capacity(self.keys.len());
        for (at, key) in self.keys.iter().enumerate() {
            let kind = self.kind(data, key)?;
            sized.push((data.access.count(data.db, key, kind)??, at));
        }
        sized.sort_unstable();
        Ok(sized.into_iter().map(|(_, at)| at).collect())
    }

    fn union(&self, data: &mut Data<'_, '_>) -> Result<Vec<Scored>, Failure> {
        let (mut together, mut all) = (Together::default(), HashMap::<Vec<u8>, f64>::new());
        for at in self.order(data)? {
            let members = together.of(self.members(data, self.keys[at], at))?;
            for (member, score) in members.unwrap_or_default() {
                let score = number(score);
                all.entry(member)
                    .and_modify(|known| *known = self.aggregate.of(*known, score))
                    .or_insert(score);
            }
        }
        together.end()?;
        Ok(all.into_iter().collect())
    }

    /// The members of the first that are in all the others, or in none of them; `most` of them.
    fn narrow(
        &self,
        data: &mut Data<'_, '_>,
        order: &[usize],
        most: usize,
        in_all: bool,
    ) -> Result<Vec<Scored>, Failure> {
        let (first, others) = order.split_first().expect("a command has a key at least");
        let mut members = self.members(data, self.keys[*first], *first)?;
        members.iter_mut().for_each(|(_, score)| *score = number(*score));
        let (mut members, mut kept) = (members.into_iter(), Vec::new());
        // all at once, if all are wanted
        let part = if most == usize::MAX { usize::MAX } else { LIMITED_PART };
        while kept.len() < most && members.len() > 0 {
            let mut these: Vec<Scored> = members.by_ref().take(part).collect();
            for at in others {
                if these.is_empty() {
                    break;
                }
                self.narrow_by(data, *at, &mut these, in_all)?;
            }
            kept.append(&mut these);
        }
        kept.truncate(most);
        Ok(kept)
    }

    /// Keeps of `kept` what is in key number `at`, too, or what is not.
    fn narrow_by(
        &self,
        data: &mut Data<'_, '_>,
        at: usize,
        kept: &mut Vec<Scored>,
        in_all: bool,
    ) -> Result<(), Failure> {
        let key = self.keys[at];
        let kind = self.kind(data, key)?;
        data.access.charge(kept.len())?;
        let named = kept.iter().map(|(member, _)| &member[..]);
        let found = data.access.values(data.db, key, kind, named)??;
        let mut others: Vec<Option<f64>> = match &found {
            Some(found) => found.iter().map(|it| it.map(|value| self.weighed(at, kind, value))).collect(),
            None => vec![None; kept.len()],
        };
        data.count_lookup(found.is_some(), key);
        let mut others = others.drain(..);
        kept.retain_mut(|(_, score)| {
            let other = others.next().flatten();
            if let Some(other) = other.filter(|_| in_all) {
                *score = self.aggregate.of(*score, other);
            }
            other.is_some() == in_all
        });
        Ok(())
    }
}

/// What a member with its score takes beside its bytes, in a list and in a table.
const SCORED_BYTES: usize = 96;

/// Refuses keys of other types, before options are read.
fn check_types(data: &mut Data<'_, '_>, keys: &[&[u8]]) -> Outcome {
    for key in keys {
        data.turn_to_key(key);
        let meta = data.access.meta(data.db, key)?;
        if meta.is_some_and(|meta| !matches!(meta.kind, ValueKind::Set | ValueKind::SortedSet)) {
            return Err(text::WRONG_TYPE.into());
        }
    }
    Ok(())
}

fn run<'a>(
    data: &mut Data<'_, '_>,
    args: ArgsView<'a>,
    operation: Operation,
    used: Use,
    command: &str,
) -> Result<(Query<'a>, Vec<Scored>), Failure> {
    let counted_at = if used == Use::Stores { 2 } else { 1 };
    let mut query = Query::keys(args, counted_at, operation, command)?;
    check_types(data, &query.keys)?;
    query.options(args, counted_at + 1 + query.keys.len(), used)?;
    let members = query.run(data)?;
    Ok((query, members))
}

fn answer(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    operation: Operation,
    command: &str,
    out: &mut Writer<'_>,
) -> Outcome {
    let (query, members) = run(data, args, operation, Use::Answers, command)?;
    write_kept(
        data,
        &members,
        if query.with_scores { MemberFormat::WithScores } else { MemberFormat::Members },
        out,
    )
}

fn store(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    operation: Operation,
    command: &'static str,
    out: &mut Writer<'_>,
) -> Outcome {
    let (_, members) = run(data, args, operation, Use::Stores, command)?;
    put_members(data, args.get(1), &members, command)?;
    out.integer(members.len() as i64);
    Ok(())
}

pub(crate) fn zunion(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Operation::Union, "zunion", out)
}

pub(crate) fn zinter(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Operation::Intersection, "zinter", out)
}

pub(crate) fn zdiff(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Operation::Difference, "zdiff", out)
}

pub(crate) fn zunionstore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    store(data, args, Operation::Union, "zunionstore", out)
}

pub(crate) fn zinterstore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    store(data, args, Operation::Intersection, "zinterstore", out)
}

pub(crate) fn zdiffstore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    store(data, args, Operation::Difference, "zdiffstore", out)
}

pub(crate) fn zintercard(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (_, members) = run(data, args, Operation::Intersection, Use::Counts, "zintercard")?;
    out.integer(members.len() as i64);
    Ok(())
}

/// Members that are looked for in the other sets at a time, where not all are wanted.
const LIMITED_PART: usize = 256;
