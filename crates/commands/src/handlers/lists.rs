//! Lists: elements in an order of their own, at whose ends commands push, pop and wait.

use std::ops::ControlFlow;

use resp::{ArgsView, Writer};
use store::{Element, EventClass, ListChange, ListChanged, ListEnd, Popped, Sequence, ValueKind};

use super::blocking::{MultiPop, Nothing, first, timeout};
use super::elements::{Part, count, key_of_pops, part, sequence, sequence_to_change};
use crate::args::{integer, is, option_value};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};
use crate::chunked::ChunkedReply;
use crate::ready::Wants;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Left,
    Right,
}

impl End {
    pub(super) fn parse(arg: &[u8]) -> Result<Self, Failure> {
        match arg {
            _ if is(arg, "left") => Ok(Self::Left),
            _ if is(arg, "right") => Ok(Self::Right),
            _ => Err(text::SYNTAX.into()),
        }
    }

    /// The change by which `value` comes to this end.
    pub(super) fn push(self, value: &[u8]) -> ListChange<'_> {
        match self {
            Self::Left => ListChange::PushFront(value),
            Self::Right => ListChange::PushBack(value),
        }
    }

    /// What a push to this end is called.
    pub(super) fn pushed(self) -> &'static str {
        if self == Self::Left { "lpush" } else { "rpush" }
    }

    /// What a pop from this end is called.
    pub(super) fn popped(self) -> &'static str {
        if self == Self::Left { "lpop" } else { "rpop" }
    }

    /// Which of `len` elements is at the end.
    fn index(self, len: usize) -> usize {
        match self {
            Self::Left => 0,
            Self::Right => len - 1,
        }
    }
}

pub(crate) fn lpush(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    push(data, &[args], End::Left, out)
}

pub(crate) fn rpush(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    push(data, &[args], End::Right, out)
}

pub(crate) fn lpush_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    push(data, requests, End::Left, out)
}

pub(crate) fn rpush_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    push(data, requests, End::Right, out)
}

pub(crate) fn lpushx(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    push_if_there(data, args, End::Left, out)
}

pub(crate) fn rpushx(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    push_if_there(data, args, End::Right, out)
}

fn push_if_there(data: &mut Data<'_, '_>, args: ArgsView<'_>, end: End, out: &mut Writer<'_>) -> Outcome {
    if length(data, args.get(1))? == 0 {
        out.integer(0);
        return Ok(());
    }
    push(data, &[args], end, out)
}

/// Pushes the values of each of these requests, all of the same key.
fn push(data: &mut Data<'_, '_>, requests: &[ArgsView<'_>], end: End, out: &mut Writer<'_>) -> Outcome {
    let values = requests.iter().flat_map(|args| args.iter().skip(2));
    let pushes: Vec<ListChange<'_>> = values.map(|value| end.push(value)).collect();
    let changed = change(data, requests[0].get(1), &pushes)?;
    let mut len = changed.len - pushes.len();
    for args in requests {
        len += args.len() - 2;
        out.integer(len as i64);
        data.event(EventClass::List, end.pushed(), requests[0].get(1));
    }
    Ok(())
}

/// How many elements the list at `key` has, for a command that changes it.
fn length(data: &Data<'_, '_>, key: &[u8]) -> Result<usize, Failure> {
    Ok(data.access.count(data.db, key, ValueKind::List)?? as usize)
}

/// Changes the list at `key`.
pub(super) fn change(
    data: &mut Data<'_, '_>,
    key: &[u8],
    changes: &[ListChange<'_>],
) -> Result<ListChanged, Failure> {
    Ok(data.access.change_list(data.db, key, changes)??)
}

/// The elements, to keep.
pub(super) fn kept(elements: Vec<Element<'_>>) -> Vec<Vec<u8>> {
    elements.into_iter().map(|(element, _)| element.to_vec()).collect()
}

pub(crate) fn lpop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    pop(data, args, End::Left, out)
}

pub(crate) fn rpop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    pop(data, args, End::Right, out)
}

fn pop(data: &mut Data<'_, '_>, args: ArgsView<'_>, end: End, out: &mut Writer<'_>) -> Outcome {
    let count = match (args.try_get(2), args.len()) {
        (None, _) => None,
        (Some(count), 3) => Some(crate::args::count(count, text::NOT_POSITIVE)?),
        _ => {
            let command = if end == End::Left { "lpop" } else { "rpop" };
            return Err(format!("ERR wrong number of arguments for '{command}' command").into());
        }
    };
    match count {
        None => {
            let taken = take_one(data, args.get(1), end)?;
            data.taken(EventClass::List, end.popped(), args.get(1), taken.is_some().into())?;
            out.bulk_or_null(taken.as_deref());
        }
        Some(_) if length(data, args.get(1))? == 0 => out.null_array(),
        Some(count) => {
            let taken = take(data, args.get(1), end, count)?;
            data.taken(EventClass::List, end.popped(), args.get(1), (!taken.is_empty()).into())?;
            write_all(&taken, out);
        }
    }
    Ok(())
}

pub(crate) fn lpop_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    pop_series(data, requests, End::Left, out)
}

pub(crate) fn rpop_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    pop_series(data, requests, End::Right, out)
}

/// Pops an element for each of these requests, none of which says how many.
fn pop_series(data: &mut Data<'_, '_>, requests: &[ArgsView<'_>], end: End, out: &mut Writer<'_>) -> Outcome {
    let key = key_of_pops(data, requests, ValueKind::List)?;
    let taken = take(data, key, end, requests.len())?;
    data.taken(EventClass::List, end.popped(), key, taken.len())?;
    (0..requests.len()).for_each(|at| out.bulk_or_null(taken.get(at).map(|value| &value[..])));
    Ok(())
}

/// Takes an element from an end of the list at `key`, if there is one.
fn take_one(data: &mut Data<'_, '_>, key: &[u8], end: End) -> Result<Option<Vec<u8>>, Failure> {
    data.admit_reply(POPPED_BYTES_FEW + BULK_OVERHEAD_BYTES)?;
    let list_end = if end == End::Left { ListEnd::Front } else { ListEnd::Back };
    match data.access.pop(data.db, key, list_end, POPPED_BYTES_FEW)?? {
        Popped::Value(value) => Ok(Some(value)),
        Popped::Nothing => Ok(None),
        // how much is told is asked of the budget first
        Popped::TooLarge => Ok(take(data, key, end, 1)?.pop()),
    }
}

/// Takes `count` elements from an end of the list at `key`, or all if there are not so many.
fn take(data: &mut Data<'_, '_>, key: &[u8], end: End, count: usize) -> Result<Vec<Vec<u8>>, Failure> {
    let list = sequence_to_change(data, key, ValueKind::List)?;
    let (len, count) = (list.len(), count.min(list.len()));
    if count == 0 {
        return Ok(Vec::new());
    }
    let from = if end == End::Left { 0 } else { len - count };
    let mut taken = Vec::new();
    list.visit(from..from + count, |(value, _)| taken.push(value.to_vec()))?;
    if end == End::Right {
        taken.reverse();
    }
    data.admit_reply(taken.iter().map(|value| value.len() + BULK_OVERHEAD_BYTES).sum())?;
    change(data, key, &[ListChange::Remove(from, count)])?;
    Ok(taken)
}

pub(super) fn write_all(values: &[Vec<u8>], out: &mut Writer<'_>) {
    out.array(values.len());
    values.iter().for_each(|value| out.bulk(value));
}

pub(crate) fn llen(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(count(data, args.get(1), ValueKind::List)? as i64);
    Ok(())
}

/// Element number `index`, counted from the end if it is negative.
fn place(index: i64, len: usize) -> Option<usize> {
    let at = if index < 0 { index.checked_add_unsigned(len as u64)? } else { index };
    usize::try_from(at).ok().filter(|at| *at < len)
}

pub(crate) fn lindex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let list = sequence(data, args.get(1), ValueKind::List)?;
    if list.is_empty() {
        out.null();
        return Ok(());
    }
    let element = match place(integer(args.get(2))?, list.len()) {
        Some(at) => list.element(at)?,
        None => None,
    };
    out.bulk_or_null(element.map(|(value, _)| value));
    Ok(())
}

pub(crate) fn lset(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let len = length(data, args.get(1))?;
    if len == 0 {
        return Err(text::NO_SUCH_KEY.into());
    }
    let at = place(integer(args.get(2))?, len).ok_or("ERR index out of range")?;
    change(data, args.get(1), &[ListChange::Set(at, args.get(3))])?;
    data.event(EventClass::List, "lset", args.get(1));
    out.ok();
    Ok(())
}

/// The elements from `start` to `stop`, both counted from the end if they are negative, as LRANGE, LTRIM and ZRANGE have it.
pub(super) fn span(start: i64, stop: i64, len: usize) -> std::ops::Range<usize> {
    let len = i64::try_from(len).unwrap_or(i64::MAX);
    let from_end = |at: i64| if at < 0 { at.saturating_add(len) } else { at };
    let (start, stop) = (from_end(start).max(0), from_end(stop).min(len - 1));
    if start > stop || start >= len {
        return 0..0;
    }
    start as usize..stop as usize + 1
}

pub(crate) fn lrange(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (start, stop) = (integer(args.get(2))?, integer(args.get(3))?);
    let list = sequence(data, args.get(1), ValueKind::List)?;
    let range = span(start, stop, list.len());
    let elements = match part(data, args.get(1), ValueKind::List, &list, range.clone())? {
        Part::Here(elements) => elements,
        Part::Large(snapshot) => {
            out.array(range.len());
            let write = |(value, _): Element<'_>, out: &mut Writer<'_>| out.bulk(value);
            data.send_rest(ChunkedReply::of_range(snapshot, &range, false, write, out.is_resp3()));
            return Ok(());
        }
    };
    data.admit_reply(elements.iter().map(|(value, _)| value.len() + BULK_OVERHEAD_BYTES).sum())?;
    out.array(elements.len());
    elements.iter().for_each(|(value, _)| out.bulk(value));
    Ok(())
}

pub(crate) fn ltrim(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (start, stop) = (integer(args.get(2))?, integer(args.get(3))?);
    let len = length(data, args.get(1))?;
    let kept = span(start, stop, len);
    if kept.is_empty() {
        data.access.remove(data.db, args.get(1))?;
    } else {
        let removals =
            [(kept.end, len - kept.end), (0, kept.start)].into_iter().filter(|(_, count)| *count > 0);
        let removals: Vec<_> = removals.map(|(from, count)| ListChange::Remove(from, count)).collect();
        change(data, args.get(1), &removals)?;
    }
    data.taken(EventClass::List, "ltrim", args.get(1), (len > 0).into())?;
    out.ok();
    Ok(())
}

pub(crate) fn lrem(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let count = integer(args.get(2))?;
    let most = match usize::try_from(count.unsigned_abs()) {
        Ok(0) | Err(_) => usize::MAX,
        Ok(most) => most,
    };
    let equal = ListChange::RemoveEqual { value: args.get(3), most, from_back: count < 0 };
    let removed = change(data, args.get(1), &[equal])?.removed;
    data.taken(EventClass::List, "lrem", args.get(1), (removed > 0).into())?;
    out.integer(removed as i64);
    Ok(())
}

pub(crate) fn linsert(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let behind = match args.get(2) {
        place if is(place, "before") => 0,
        place if is(place, "after") => 1,
        _ => return Err(text::SYNTAX.into()),
    };
    let list = sequence_to_change(data, args.get(1), ValueKind::List)?;
    let len = list.len();
    let pivot = Position::default().of(&list, args.get(3))?.first().copied();
    let answer = match pivot {
        _ if len == 0 => 0,
        None => -1,
        Some(pivot) => {
            change(data, args.get(1), &[ListChange::Insert(pivot + behind, args.get(4))])?;
            data.event(EventClass::List, "linsert", args.get(1));
            len as i64 + 1
        }
    };
    out.integer(answer);
    Ok(())
}

/// Options of LPOS.
struct Position {
    rank: i64,
    count: Option<usize>,
    most_looked_at: usize,
}

impl Default for Position {
    fn default() -> Self {
        Self { rank: 1, count: None, most_looked_at: usize::MAX }
    }
}

impl Position {
    fn parse(args: ArgsView<'_>) -> Result<Self, Failure> {
        let mut position = Self::default();
        for index in (3..args.len()).step_by(2) {
            let (option, value) = (args.get(index), option_value(args, index)?);
            if is(option, "rank") {
                position.rank = integer(value)?;
                super::elements::admit_count(position.rank)?;
                if position.rank == 0 {
                    let hint = "use 1 to start from the first match, 2 from the second ... or use negative to start from the \
                                end of the list";
                    return Err(format!("ERR RANK can't be zero: {hint}").into());
                }
            } else if is(option, "count") {
                position.count = Some(crate::args::count(value, "ERR COUNT can't be negative")?);
            } else if is(option, "maxlen") {
                let most = crate::args::count(value, "ERR MAXLEN can't be negative")?;
                position.most_looked_at = if most == 0 { usize::MAX } else { most };
            } else {
                return Err(text::SYNTAX.into());
            }
        }
        Ok(position)
    }

    /// Where `wanted` is.
    fn of(&self, list: &Sequence<'_, '_>, wanted: &[u8]) -> Result<Vec<usize>, Failure> {
        let (len, most, is_reversed) = (list.len(), self.most_looked_at.min(list.len()), self.rank < 0);
        let range = if is_reversed { len - most..len } else { 0..most };
        let mut skipped = usize::try_from(self.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
        let count = match self.count {
            None => 1,
            Some(0) => usize::MAX,
            Some(count) => count,
        };
        let mut found = Vec::new();
        list.search(wanted, range, is_reversed, |at| {
            if skipped > 0 {
                skipped -= 1;
                return ControlFlow::Continue(());
            }
            found.push(at);
            if found.len() == count { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        Ok(found)
    }
}

pub(crate) fn lpos(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let position = Position::parse(args)?;
    let found = position.of(&sequence(data, args.get(1), ValueKind::List)?, args.get(2))?;
    match (position.count, found.first()) {
        (Some(_), _) => {
            out.array(found.len());
            found.iter().for_each(|at| out.integer(*at as i64));
        }
        (None, Some(at)) => out.integer(*at as i64),
        (None, None) => out.null(),
    }
    Ok(())
}

pub(crate) fn lmove(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (from, to) = (End::parse(args.get(3))?, End::parse(args.get(4))?);
    if !carry(data, args, from, to, out)? {
        out.null();
    }
    Ok(())
}

pub(crate) fn rpoplpush(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if !carry(data, args, End::Right, End::Left, out)? {
        out.null();
    }
    Ok(())
}

/// Moves an element of the list that is argument 1 to the list that is argument 2, and answers with it; `false`: there is none.
fn carry(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    from: End,
    to: End,
    out: &mut Writer<'_>,
) -> Result<bool, Failure> {
    let (source, target) = (args.get(1), args.get(2));
    let list = sequence_to_change(data, source, ValueKind::List)?;
    let len = list.len();
    if len == 0 {
        return Ok(false);
    }
    let at = from.index(len);
    let value = kept(list.range(at..at + 1)?).remove(0);
    length(data, target)?;
    let (taken, added) = (ListChange::Remove(at, 1), to.push(&value));
    match source == target {
        // One change: a list of one element is never gone meanwhile.
        true if len > 1 => _ = change(data, source, &[taken, added])?,
        true => {}
        false => {
            change(data, source, &[taken])?;
            change(data, target, &[added])?;
        }
    }
    data.event(EventClass::List, to.pushed(), target);
    data.taken(EventClass::List, from.popped(), source, 1)?;
    out.bulk(&value);
    Ok(true)
}

pub(crate) fn lmpop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let pop = MultiPop::parse(args, 1, End::parse)?;
    if !pop_first(data, &pop, args, out)? {
        out.null_array();
    }
    Ok(())
}

/// Pops from the first list with elements; `false`: there is none.
fn pop_first(
    data: &mut Data<'_, '_>,
    pop: &MultiPop<End>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Result<bool, Failure> {
    let Some(key) = first(data, pop.keys.all(args), ValueKind::List)? else { return Ok(false) };
    let key = &key[..];
    let taken = take(data, key, pop.side, pop.count)?;
    data.taken(EventClass::List, pop.side.popped(), key, (!taken.is_empty()).into())?;
    out.array(2);
    out.bulk(key);
    write_all(&taken, out);
    Ok(true)
}

pub(crate) fn blpop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    block_and_pop(data, args, End::Left, out)
}

pub(crate) fn brpop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    block_and_pop(data, args, End::Right, out)
}

fn block_and_pop(data: &mut Data<'_, '_>, args: ArgsView<'_>, end: End, out: &mut Writer<'_>) -> Outcome {
    let last = args.len() - 1;
    let timeout = timeout(args.get(last))?;
    let keys = args.iter().take(last).skip(1);
    let Some(key) = first(data, keys, ValueKind::List)? else {
        return data.wait(timeout, Wants::Any(ValueKind::List), Nothing::Array, out);
    };
    let key = &key[..];
    let taken = take_one(data, key, end)?;
    data.taken(EventClass::List, end.popped(), key, taken.is_some().into())?;
    out.array(2);
    out.bulk(key);
    taken.iter().for_each(|value| out.bulk(value));
    Ok(())
}

pub(crate) fn blmpop(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let pop = MultiPop::parse(args, 2, End::parse)?;
    let timeout = timeout(args.get(1))?;
    if pop_first(data, &pop, args, out)? {
        Ok(())
    } else {
        data.wait(timeout, Wants::Any(ValueKind::List), Nothing::Array, out)
    }
}

pub(crate) fn blmove(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (from, to) = (End::parse(args.get(3))?, End::parse(args.get(4))?);
    block_and_carry(data, args, from, to, args.get(5), out)
}

pub(crate) fn brpoplpush(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    block_and_carry(data, args, End::Right, End::Left, args.get(3), out)
}

fn block_and_carry(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    from: End,
    to: End,
    limit: &[u8],
    out: &mut Writer<'_>,
) -> Outcome {
    let timeout = timeout(limit)?;
    let is_there = first(data, std::iter::once(args.get(1)), ValueKind::List)?.is_some();
    if is_there && carry(data, args, from, to, out)? {
        Ok(())
    } else {
        data.wait(timeout, Wants::Any(ValueKind::List), Nothing::Value, out)
    }
}

/// An element with at most so many bytes is taken as it is found.
const POPPED_BYTES_FEW: usize = 4 << 10;
