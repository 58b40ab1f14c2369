//! SORT: the elements of a list, a set or a sorted set in an order that other keys may decide.
//!
//! BY and GET name keys that depend on the elements: these are locked when the elements are known, or claimed beside the loops. Keys that are
//! cold are asked for together.

use std::cmp::Ordering;

use resp::{ArgsView, Writer};
use store::{EventClass, KeyRef, ListChange, Stop, ValueKind};

use super::elements::{read_to_change, sequence_to_change};
use super::lists::change;
use super::sets::members;
use crate::args::{integer, is, option_value};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};

/// What a command asks for.
struct Query<'a> {
    by: Option<&'a [u8]>,
    gets: Vec<&'a [u8]>,
    offset: i64,
    count: i64,
    is_descending: bool,
    is_alpha: bool,
    target: Option<&'a [u8]>,
}

impl<'a> Query<'a> {
    fn parse(args: ArgsView<'a>, stores: bool) -> Result<Self, Failure> {
        let mut query = Self {
            by: None,
            gets: Vec::new(),
            offset: 0,
            count: -1,
            is_descending: false,
            is_alpha: false,
            target: None,
        };
        let mut index = 2;
        while let Some(option) = args.try_get(index) {
            let left = args.len() - index - 1;
            let mut words = 1;
            match option {
                _ if is(option, "asc") => query.is_descending = false,
                _ if is(option, "desc") => query.is_descending = true,
                _ if is(option, "alpha") => query.is_alpha = true,
                _ if is(option, "limit") && left > 1 => {
                    query.offset = integer(option_value(args, index)?)?;
                    query.count = integer(args.get(index + 2))?;
                    words = 3;
                }
                _ if stores && is(option, "store") && left > 0 => {
                    query.target = Some(args.get(index + 1));
                    words = 2;
                }
                _ if is(option, "by") && left > 0 => {
                    query.by = Some(args.get(index + 1));
                    words = 2;
                }
                _ if is(option, "get") && left > 0 => {
                    query.gets.push(args.get(index + 1));
                    words = 2;
                }
                _ => return Err(text::SYNTAX.into()),
            }
            index += words;
        }
        Ok(query)
    }

    /// Without a `*` the pattern is the same for all: nothing is sorted.
    fn sorts(&self) -> bool {
        self.by.is_none_or(|by| by.contains(&b'*'))
    }

    /// Which of `len` elements are wanted.
    fn range(&self, len: usize) -> std::ops::Range<usize> {
        let start = usize::try_from(self.offset.max(0)).unwrap_or(usize::MAX).min(len);
        let count = usize::try_from(self.count).unwrap_or(usize::MAX);
        start..start.saturating_add(count).min(len)
    }
}

/// The key that `pattern` names for `element`, and the field of it; `None`: it names the element itself, or nothing.
fn named<'p>(pattern: &'p [u8], element: &[u8]) -> Option<(Vec<u8>, Option<&'p [u8]>)> {
    let star = pattern.iter().position(|byte| *byte == b'*').filter(|_| pattern != b"#")?;
    let arrow = pattern[star..].windows(2).position(|pair| pair == b"->").map(|at| star + at);
    let field = arrow.map(|at| &pattern[at + 2..]).filter(|field| !field.is_empty());
    let end = if field.is_some() { arrow.unwrap_or(pattern.len()) } else { pattern.len() };
    Some(([&pattern[..star], element, &pattern[star + 1..end]].concat(), field))
}

/// Has the keys that `patterns` name for `elements` locked.
///
/// # Errors
/// [`Failure::Keys`] beside the loops; on a loop [`Stop::Long`] if they are many, or others have some.
fn reach(data: &mut Data<'_, '_>, patterns: &[&[u8]], elements: &[Vec<u8>]) -> Outcome {
    let patterns: Vec<&[u8]> = patterns.iter().copied().filter(|it| named(it, b"").is_some()).collect();
    data.access.charge(patterns.len().saturating_mul(elements.len()))?;
    let mut missing = Vec::new();
    for element in elements {
        for (key, _) in patterns.iter().filter_map(|pattern| named(pattern, element)) {
            reach_key(data, &key, &mut missing);
        }
    }
    have(data, missing)
}

fn reach_key(data: &mut Data<'_, '_>, key: &[u8], missing: &mut Vec<(u16, Box<[u8]>)>) {
    if !data.access.include(KeyRef { db: data.db, key }) {
        missing.push((data.db, key.into()));
    }
}

fn have(data: &Data<'_, '_>, missing: Vec<(u16, Box<[u8]>)>) -> Outcome {
    match missing.is_empty() {
        true => Ok(()),
        false if data.access.is_claimed() => Err(Failure::Keys(missing)),
        false => Err(Stop::Long.into()),
    }
}

/// Looks up what patterns name. The first stop is kept, so that all that is cold is asked for at once.
struct Lookups<'d, 'a, 's> {
    data: &'d mut Data<'a, 's>,
    stop: Option<Stop>,
}

impl Lookups<'_, '_, '_> {
    /// The value that `pattern` names for `element`: the element itself, a string, or a field of a hash.
    fn find(&mut self, pattern: &[u8], element: &[u8]) -> Option<Vec<u8>> {
        if pattern == b"#" {
            return self.keep(element);
        }
        let (key, field) = named(pattern, element)?;
        self.data.turn_to_key(&key);
        match self.value(&key, field) {
            Ok(value) => self.keep(&value?),
            Err(stop) => {
                self.stop.get_or_insert(stop);
                None
            }
        }
    }

    fn keep(&mut self, value: &[u8]) -> Option<Vec<u8>> {
        if let Err(stop) = self.data.access.ask((value.len() + SORTED_BYTES) as u64) {
            self.stop.get_or_insert(stop);
            return None;
        }
        Some(value.to_vec())
    }

    /// The string at `key`, or the value of a field of the hash there.
    fn value(&self, key: &[u8], field: Option<&[u8]>) -> Result<Option<Vec<u8>>, Stop> {
        let Data { access, db, .. } = &*self.data;
        if let Some(field) = field {
            let found = access.values(*db, key, ValueKind::Hash, std::iter::once(field))?;
            return Ok(found.ok().flatten().and_then(|values| values[0].map(<[u8]>::to_vec)));
        }
        if access.meta(*db, key)?.is_none_or(|meta| meta.kind != ValueKind::String) {
            return Ok(None);
        }
        Ok(access.get(*db, key)?.map(|found| found.value.to_vec()))
    }

    fn end(self) -> Outcome {
        self.stop.map_or(Ok(()), |stop| Err(stop.into()))
    }
}

/// A number as `strtod` reads it: blanks may come first, and nothing is 0.
fn number(text: &[u8]) -> Option<f64> {
    let text = text.trim_ascii_start();
    if text.is_empty() { Some(0.0) } else { decimal::parse(text) }
}

/// The elements of the collection at `key`, in its order: all, or if nothing is sorted those that are wanted.
fn elements(data: &Data<'_, '_>, query: &Query<'_>, key: &[u8]) -> Result<Vec<Vec<u8>>, Failure> {
    let meta = data.access.meta(data.db, key)?;
    data.count_lookup(meta.is_some(), key);
    let Some(meta) = meta else { return Ok(Vec::new()) };
    let owned = |element: &[u8]| element.to_vec();
    match meta.kind {
        ValueKind::Set if query.sorts() => {
            let set = read_to_change(data, key, ValueKind::Set)?;
            Ok(members(set).into_iter().map(owned).collect())
        }
        ValueKind::Set => {
            let wanted = query.range(usize::MAX);
            let mut all = match data.access.leaf_count(data.db, key)? {
                0 => members(read_to_change(data, key, ValueKind::Set)?),
                _ => first_members(data, key, wanted.end)?,
            };
            all.truncate(wanted.end);
            Ok(all.into_iter().skip(wanted.start).map(owned).collect())
        }
        ValueKind::List | ValueKind::SortedSet => {
            let all = sequence_to_change(data, key, meta.kind)?;
            let wanted = if query.sorts() { 0..all.len() } else { query.range(all.len()) };
            let is_reversed = !query.sorts() && query.is_descending;
            let places = if is_reversed { all.len() - wanted.end..all.len() - wanted.start } else { wanted };
            let mut elements: Vec<Vec<u8>> =
                all.range(places)?.into_iter().map(|(element, _)| owned(element)).collect();
            if is_reversed {
                elements.reverse();
            }
            Ok(elements)
        }
        _ => Err(text::WRONG_TYPE.into()),
    }
}

/// The first `most` members of the set at `key`, or all, in the order in which it is walked.
fn first_members<'a>(data: &'a Data<'_, '_>, key: &[u8], most: usize) -> Result<Vec<&'a [u8]>, Failure> {
    let (mut members, mut from) = (Vec::new(), 0);
    while members.len() < most {
        // a step meets about as many as it is asked for
        let (next, met) = data.access.walk(data.db, key, ValueKind::Set, from, most - members.len())??;
        members.extend(met.into_iter().map(|(member, _)| member));
        if next == 0 {
            break;
        }
        from = next;
    }
    Ok(members)
}

/// What an element takes beside its bytes while it is sorted.
const SORTED_BYTES: usize = 48;

/// What an element is compared by.
enum Weight {
    Number(f64),
    Text(Option<Vec<u8>>),
}

fn order(
    query: &Query<'_>,
    (a, weight_a): &(Vec<u8>, Weight),
    (b, weight_b): &(Vec<u8>, Weight),
) -> Ordering {
    let ascending = match (weight_a, weight_b) {
        (Weight::Number(x), Weight::Number(y)) => (x + 0.0).total_cmp(&(y + 0.0)).then_with(|| a.cmp(b)),
        (Weight::Text(x), Weight::Text(y)) => x.cmp(y),
        _ => Ordering::Equal,
    };
    if query.is_descending { ascending.reverse() } else { ascending }
}

fn sorted(data: &mut Data<'_, '_>, query: &Query<'_>, all: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, Failure> {
    // each twice: beside what it is sorted by
    data.ask(all.iter().map(|element| 2 * (element.len() + SORTED_BYTES)).sum())?;
    reach(data, &query.by.into_iter().collect::<Vec<_>>(), &all)?;
    let mut lookups = Lookups { data, stop: None };
    let mut weighed = Vec::with_capacity(all.len());
    let mut is_wrong = false;
    for element in all {
        let by = match query.by {
            Some(by) => lookups.find(by, &element),
            None => Some(element.clone()),
        };
        let weight = if query.is_alpha {
            Weight::Text(by)
        } else {
            let number = by.map_or(Some(0.0), |text| number(&text));
            is_wrong |= number.is_none();
            Weight::Number(number.unwrap_or(0.0))
        };
        weighed.push((element, weight));
    }
    lookups.end()?;
    if is_wrong {
        return Err("ERR One or more scores can't be converted into double".into());
    }
    weighed.sort_by(|a, b| order(query, a, b));
    Ok(weighed.into_iter().map(|(element, _)| element).collect())
}

fn run(data: &mut Data<'_, '_>, args: ArgsView<'_>, stores: bool, out: &mut Writer<'_>) -> Outcome {
    let mut query = Query::parse(args, stores)?;
    data.turn_to_key(args.get(1));
    if query.target.is_some()
        && data.access.meta(data.db, args.get(1))?.is_some_and(|it| it.kind == ValueKind::Set)
        && !query.sorts()
    {
        // A set has no order that another run would find again.
        (query.by, query.is_alpha) = (None, true);
    }
    let mut chosen = elements(data, &query, args.get(1))?;
    if query.sorts() {
        chosen = sorted(data, &query, chosen)?;
        let wanted = query.range(chosen.len());
        chosen.truncate(wanted.end);
        chosen.drain(..wanted.start);
    }
    reach(data, &query.gets, &chosen)?;
    let mut lookups = Lookups { data, stop: None };
    let values: Vec<Option<Vec<u8>>> = if query.gets.is_empty() {
        chosen.into_iter().map(Some).collect()
    } else {
        let pairs = chosen.iter().flat_map(|element| query.gets.iter().map(move |get| (element, get)));
        let mut values = Vec::new();
        for (element, get) in pairs {
            values.push(lookups.find(get, element));
            if lookups.stop.is_some() {
                break;
            }
        }
        values
    };
    lookups.end()?;
    let Some(target) = query.target else {
        let bytes = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len) + BULK_OVERHEAD_BYTES;
        data.admit_reply(values.iter().map(bytes).sum())?;
        out.array(values.len());
        values.iter().for_each(|value| out.bulk_or_null(value.as_deref()));
        return Ok(());
    };
    let mut missing = Vec::new();
    reach_key(data, target, &mut missing);
    have(data, missing)?;
    data.turn_to_key(target);
    let was_there = data.access.remove(data.db, target)?;
    data.stored(EventClass::List, "sortstore", target, !values.is_empty(), was_there);
    let pushes = values.iter().map(|value| ListChange::PushBack(value.as_deref().unwrap_or_default()));
    change(data, target, &pushes.collect::<Vec<_>>())?;
    out.integer(values.len() as i64);
    Ok(())
}

pub(crate) fn sort(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    run(data, args, true, out)
}

pub(crate) fn sort_ro(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    run(data, args, false, out)
}
