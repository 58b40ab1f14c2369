//! Sets.
//!
//! Commands on several sets copy the members that they go on with: of a long transaction only one key is at hand at a time.

use std::collections::HashSet;

use resp::{ArgsView, Writer};
use store::{Drawn, Element, EventClass, Packed, ValueKind, Whole};

use super::elements::{
    Chosen, Scan, answer_counts, change_each, count, delete_each, read, read_all, read_to_change, sample,
    samples, value, values, walk_reply,
};
use super::together::Together;
use crate::args::{count as count_of, integer, is, option_value};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};
use crate::chunked::ChunkedReply;
use crate::hyperloglog::{Sketch, estimate, registers};

pub(crate) fn sadd(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    sadd_series(data, &[args], out)
}

pub(crate) fn sadd_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    let added =
        change_each(data, ValueKind::Set, requests, 1, |set, tag, member| set.add(tag, member.get(0)))?;
    for _ in added.iter().filter(|count| **count > 0) {
        data.event(EventClass::Set, "sadd", requests[0].get(1));
    }
    answer_counts(added, out);
    Ok(())
}

pub(crate) fn srem(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    delete_each(data, ValueKind::Set, &[args], out)
}

pub(crate) fn srem_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    delete_each(data, ValueKind::Set, requests, out)
}

pub(crate) fn scard(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(count(data, args.get(1), ValueKind::Set)? as i64);
    Ok(())
}

pub(crate) fn sismember(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(value(data, args.get(1), ValueKind::Set, args.get(2))?.is_some().into());
    Ok(())
}

pub(crate) fn smismember(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found = values(data, args.get(1), ValueKind::Set, args.iter().skip(2))?;
    out.array(found.len());
    found.into_iter().for_each(|member| out.integer(member.is_some().into()));
    Ok(())
}

pub(crate) fn smembers(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let set = match read_all(data, args.get(1), ValueKind::Set)? {
        Whole::Here(set) => set,
        Whole::Large(snapshot) => {
            out.set(snapshot.count() as usize);
            let write = |(member, _): Element<'_>, out: &mut Writer<'_>| out.bulk(member);
            data.send_rest(ChunkedReply::of_all(snapshot, write, out.is_resp3()));
            return Ok(());
        }
    };
    data.admit_reply(set.iter().map(|(member, _)| member.len() + BULK_OVERHEAD_BYTES).sum())?;
    data.ask(set.len() * size_of::<&[u8]>())?;
    out.set(set.len());
    members(set).into_iter().for_each(|member| out.bulk(member));
    Ok(())
}

/// The members in the order that clients see: integers ascend.
pub(super) fn members(set: Packed<'_>) -> Vec<&[u8]> {
    let mut members: Vec<&[u8]> = set.iter().map(|(member, _)| member).collect();
    if set.form() == store::Form::Integers {
        members.sort_by_cached_key(|member| resp::parse_i64(member));
    }
    members
}

pub(crate) fn smove(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (from, to, member) = (args.get(1), args.get(2), args.get(3));
    let named = std::iter::once(member);
    let Some(found) = data.access.values(data.db, from, ValueKind::Set, named)?? else {
        out.integer(0);
        return Ok(());
    };
    let is_there = found[0].is_some();
    data.access.count(data.db, to, ValueKind::Set)??;
    if is_there && from != to {
        let (kind, db) = (ValueKind::Set, data.db);
        data.access.edit_element(db, from, kind, member, |set, tag| set.delete(tag, member))??;
        data.taken(EventClass::Set, "srem", from, 1)?;
        if data.access.edit_element(db, to, kind, member, |set, tag| set.add(tag, member))?? {
            data.event(EventClass::Set, "sadd", to);
        }
    }
    out.integer(is_there.into());
    Ok(())
}

pub(crate) fn spop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let count = match (args.try_get(2), args.len()) {
        (None, _) => None,
        (Some(count), 3) => Some(count_of(count, text::NOT_POSITIVE)?),
        _ => return Err(text::SYNTAX.into()),
    };
    let wanted = i64::try_from(count.unwrap_or(1)).unwrap_or(i64::MAX);
    if let Some(wanted) = count.filter(|wanted| *wanted > 1)
        && let Some(drawn) = data.access.draw(data.db, args.get(1), wanted)??
    {
        return pop_drawn(data, args.get(1), &drawn, out);
    }
    let chosen = Chosen::sampled(data, args.get(1), ValueKind::Set, wanted)?;
    let popped: Vec<Vec<u8>> = chosen.into_iter().map(|(_, (member, _))| member.to_vec()).collect();
    let members = popped.iter().map(|member| &member[..]);
    data.access.edit_each(data.db, args.get(1), ValueKind::Set, members, |set, tag, number| {
        set.delete(tag, &popped[number]);
    })??;
    data.taken(EventClass::Set, "spop", args.get(1), (!popped.is_empty()).into())?;
    match count {
        None => out.bulk_or_null(popped.first().map(|member| &member[..])),
        Some(_) => {
            out.set(popped.len());
            popped.iter().for_each(|member| out.bulk(member));
        }
    }
    Ok(())
}

/// Answers SPOP with many members of a large set.
fn pop_drawn(data: &mut Data<'_, '_>, key: &[u8], drawn: &Drawn, out: &mut Writer<'_>) -> Outcome {
    data.admit_reply(drawn.iter().map(|member| member.len() + BULK_OVERHEAD_BYTES).sum())?;
    data.access.remove_drawn(data.db, key, drawn)?;
    data.taken(EventClass::Set, "spop", key, (!drawn.is_empty()).into())?;
    out.set(drawn.len());
    drawn.iter().for_each(|member| out.bulk(member));
    Ok(())
}

pub(crate) fn srandmember(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(count) = args.try_get(2) else {
        out.bulk_or_null(sample(data, args.get(1), ValueKind::Set)?.map(|(member, _)| member));
        return Ok(());
    };
    if args.len() > 3 {
        return Err(text::SYNTAX.into());
    }
    let count = integer(count)?;
    super::elements::admit_count(count)?;
    let chosen = samples(data, args.get(1), ValueKind::Set, count)?;
    out.array(chosen.len());
    chosen.into_iter().for_each(|(member, _)| out.bulk(member));
    Ok(())
}

pub(crate) fn sscan(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(scan) = Scan::begin(data, args, ValueKind::Set, out)? else { return Ok(()) };
    walk_reply(data, args.get(1), ValueKind::Set, &scan, out)
}

/// What is made of several sets.
#[derive(Clone, Copy)]
enum Operation {
    Union,
    Intersection,
    Difference,
}

impl Operation {
    /// What it is called where the result is stored.
    fn stored(self) -> &'static str {
        match self {
            Self::Union => "sunionstore",
            Self::Intersection => "sinterstore",
            Self::Difference => "sdiffstore",
        }
    }
}

pub(crate) fn sunion(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Operation::Union, out)
}

pub(crate) fn sinter(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Operation::Intersection, out)
}

pub(crate) fn sdiff(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    answer(data, args, Operation::Difference, out)
}

pub(crate) fn sunionstore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    store(data, args, Operation::Union, out)
}

pub(crate) fn sinterstore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    store(data, args, Operation::Intersection, out)
}

pub(crate) fn sdiffstore(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    store(data, args, Operation::Difference, out)
}

fn answer(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    operation: Operation,
    out: &mut Writer<'_>,
) -> Outcome {
    let keys: Vec<&[u8]> = args.iter().skip(1).collect();
    let members = combine(data, &keys, operation, usize::MAX)?;
    data.admit_reply(members.iter().map(|member| member.len() + BULK_OVERHEAD_BYTES).sum())?;
    out.set(members.len());
    members.iter().for_each(|member| out.bulk(member));
    Ok(())
}

fn store(data: &mut Data<'_, '_>, args: ArgsView<'_>, operation: Operation, out: &mut Writer<'_>) -> Outcome {
    let keys: Vec<&[u8]> = args.iter().skip(2).collect();
    let members = combine(data, &keys, operation, usize::MAX)?;
    let tags: Vec<u16> = members.iter().map(|member| data.access.tag(member)).collect();
    let target = args.get(1);
    data.turn_to_key(target);
    let was_there = data.may_go(target)?;
    data.stored(EventClass::Set, operation.stored(), target, !members.is_empty(), was_there);
    data.access.make(data.db, target, ValueKind::Set, |set| {
        members.iter().zip(tags).for_each(|(member, tag)| _ = set.add(tag, member));
    })?;
    out.integer(members.len() as i64);
    Ok(())
}

/// SINTERCARD and its like: sets that are counted, and how many members are counted at most.
struct Counted<'a> {
    keys: Vec<&'a [u8]>,
    most: usize,
    is_approximate: bool,
}

impl<'a> Counted<'a> {
    fn parse(args: ArgsView<'a>, may_approximate: bool) -> Result<Self, Failure> {
        let invalid = || Failure::from("ERR numkeys should be greater than 0");
        let count = integer(args.get(1)).map_err(|_| invalid())?;
        let count = usize::try_from(count).ok().filter(|count| *count > 0).ok_or_else(invalid)?;
        if count > args.len() - 2 {
            return Err("ERR Number of keys can't be greater than number of args".into());
        }
        let (mut limit, mut is_approximate, mut index) = (0, false, 2 + count);
        while let Some(option) = args.try_get(index) {
            if may_approximate && is(option, "approx") {
                is_approximate = true;
                index += 1;
                continue;
            }
            if !is(option, "limit") {
                return Err(text::SYNTAX.into());
            }
            let negative = "ERR LIMIT can't be negative";
            let value = integer(option_value(args, index)?).map_err(|_| Failure::from(negative))?;
            limit = usize::try_from(value).map_err(|_| Failure::from(negative))?;
            index += 2;
        }
        let keys = args.iter().skip(2).take(count).collect();
        Ok(Self { keys, most: if limit == 0 { usize::MAX } else { limit }, is_approximate })
    }

    fn count(&self, data: &mut Data<'_, '_>, operation: Operation) -> Result<usize, Failure> {
        let count = match self.is_approximate {
            true => estimated_union(data, &self.keys)?,
            false => combine(data, &self.keys, operation, self.most)?.len(),
        };
        Ok(count.min(self.most))
    }
}

pub(crate) fn sintercard(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let count = Counted::parse(args, false)?.count(data, Operation::Intersection)?;
    out.integer(count as i64);
    Ok(())
}

pub(crate) fn sunioncard(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let count = Counted::parse(args, true)?.count(data, Operation::Union)?;
    out.integer(count as i64);
    Ok(())
}

pub(crate) fn sdiffcard(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let count = Counted::parse(args, false)?.count(data, Operation::Difference)?;
    out.integer(count as i64);
    Ok(())
}

/// About how many members the union has, without making it.
fn estimated_union(data: &mut Data<'_, '_>, keys: &[&[u8]]) -> Result<usize, Failure> {
    let (mut together, mut sketch) = (Together::default(), Sketch::new());
    for key in keys {
        data.turn_to_key(key);
        let Some(set) = together.of(read(data, key, ValueKind::Set))? else { continue };
        data.access.charge(set.len())?;
        for (member, _) in set.iter() {
            sketch.add(member)?;
        }
    }
    together.end()?;
    Ok(estimate(&registers(&sketch.into_bytes())?) as usize)
}

/// Makes one set of those at `keys`, `most` members of it. Every key is looked at, for its type.
fn combine(
    data: &mut Data<'_, '_>,
    keys: &[&[u8]],
    operation: Operation,
    most: usize,
) -> Result<Vec<Vec<u8>>, Failure> {
    let mut sizes = Vec::with_capacity(keys.len());
    for key in keys {
        data.turn_to_key(key);
        sizes.push(count(data, key, ValueKind::Set)?);
    }
    match operation {
        Operation::Union => union(data, keys),
        Operation::Intersection => {
            let mut order: Vec<usize> = (0..keys.len()).collect();
            order.sort_by_key(|at| sizes[*at]);
            let sorted: Vec<&[u8]> = order.into_iter().map(|at| keys[at]).collect();
            if most == usize::MAX { narrow(data, &sorted, true) } else { narrow_limited(data, &sorted, most) }
        }
        Operation::Difference => narrow(data, keys, false),
    }
}

fn union(data: &mut Data<'_, '_>, keys: &[&[u8]]) -> Result<Vec<Vec<u8>>, Failure> {
    let (mut together, mut known, mut all) = (Together::default(), HashSet::new(), Vec::new());
    for key in distinct(keys) {
        data.turn_to_key(key);
        let Some(set) = together.of(read_to_change(data, key, ValueKind::Set))? else { continue };
        data.access.charge(set.len())?;
        for member in members(set) {
            if !known.contains(member) {
                data.ask(2 * (member.len() + KEPT_BYTES))?;
                known.insert(member.to_vec());
                all.push(member.to_vec());
            }
        }
    }
    together.end()?;
    Ok(all)
}

/// The same keys, each once.
fn distinct<'k>(keys: &[&'k [u8]]) -> Vec<&'k [u8]> {
    let mut known = HashSet::with_capacity(keys.len());
    keys.iter().copied().filter(|key| known.insert(*key)).collect()
}

/// What a member that is kept takes beside its bytes.
const KEPT_BYTES: usize = 64;

/// The members of the first set that are in all the others, or in none of them.
fn narrow(data: &mut Data<'_, '_>, keys: &[&[u8]], in_all: bool) -> Result<Vec<Vec<u8>>, Failure> {
    let (first, others) = keys.split_first().expect("a command has a key at least");
    data.turn_to_key(first);
    let set = read_to_change(data, first, ValueKind::Set)?;
    data.access.charge(set.len())?;
    data.ask(set.iter().map(|(member, _)| member.len() + KEPT_BYTES).sum())?;
    let kept = members(set).into_iter().map(<[u8]>::to_vec).collect();
    narrow_by(data, kept, &distinct(others), in_all)
}

/// `most` members of the first set that are in all the others: as many of it are read as are needed.
fn narrow_limited(data: &mut Data<'_, '_>, keys: &[&[u8]], most: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let (first, others) = keys.split_first().expect("a command has a key at least");
    let (others, mut kept, mut from) = (distinct(others), Vec::new(), 0);
    loop {
        data.turn_to_key(first);
        let (next, part) = data.access.walk(data.db, first, ValueKind::Set, from, LIMITED_PART)??;
        data.access.charge(part.len())?;
        let part = part.into_iter().map(|(member, _)| member.to_vec()).collect();
        kept.append(&mut narrow_by(data, part, &others, true)?);
        from = next;
        if kept.len() >= most || from == 0 {
            kept.truncate(most);
            return Ok(kept);
        }
    }
}

/// Those of `kept` that are in all `others`, or in none of them.
fn narrow_by(
    data: &mut Data<'_, '_>,
    mut kept: Vec<Vec<u8>>,
    others: &[&[u8]],
    in_all: bool,
) -> Result<Vec<Vec<u8>>, Failure> {
    for key in others {
        if kept.is_empty() {
            break;
        }
        data.turn_to_key(key);
        data.access.charge(kept.len())?;
        let members = kept.iter().map(|member| &member[..]);
        let found = data.access.values(data.db, key, ValueKind::Set, members)??;
        let found: Vec<bool> = match found {
            Some(found) => found.into_iter().map(|member| member.is_some()).collect(),
            None => vec![false; kept.len()],
        };
        let mut found = found.into_iter();
        kept.retain(|_| found.next() == Some(in_all));
    }
    Ok(kept)
}

/// Members that are looked for in the other sets at a time, where not all are wanted.
const LIMITED_PART: usize = 256;
