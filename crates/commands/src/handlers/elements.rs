//! What commands about collections have in common: reading one, choosing some elements, walking over all.

use std::borrow::Cow;
use std::collections::HashSet;
use std::ops::Range;

use resp::{ArgsView, Writer};
use smallvec::SmallVec;
use store::{
    Edit, Element, EventClass, Packed, Sequence, Shape, Snapshot, Stop, StoreError, ValueKind, Whole,
    score_of,
};

use super::scan::{More, Options, cursor};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};

/// The collection at `key` for a command that reads it, and counts as a hit or a miss; empty when it is absent.
pub(crate) fn read<'a>(data: &'a Data<'_, '_>, key: &[u8], kind: ValueKind) -> Result<Packed<'a>, Failure> {
    let found = read_to_change(data, key, kind)?;
    data.count_lookup(!found.is_empty(), key);
    Ok(found)
}

/// As [`read`], for a reply with all elements: a snapshot of what is to be sent in parts.
pub(crate) fn read_all<'a>(
    data: &'a Data<'_, '_>,
    key: &[u8],
    kind: ValueKind,
) -> Result<Whole<'a>, Failure> {
    let (bytes_max, count_max) =
        if data.in_parts { (CHUNKED_BYTES_MIN, CHUNKED_ELEMENTS_MIN) } else { (u64::MAX, u64::MAX) };
    let whole = data.access.whole(data.db, key, kind, bytes_max, count_max)??;
    data.count_lookup(!matches!(&whole, Whole::Here(found) if found.is_empty()), key);
    Ok(whole)
}

/// Some elements that follow each other.
pub(crate) enum Part<'a> {
    /// All of them.
    Here(Vec<Element<'a>>),
    /// They are to be sent in parts.
    Large(Snapshot),
}

/// Elements number `range` of the collection at `key`, or a snapshot of it if they are too many bytes for one reply.
pub(crate) fn part<'a>(
    data: &'a Data<'_, '_>,
    key: &[u8],
    kind: ValueKind,
    sequence: &Sequence<'a, '_>,
    range: Range<usize>,
) -> Result<Part<'a>, Failure> {
    let in_parts = || -> Result<Option<Snapshot>, Failure> {
        if data.in_parts { Ok(data.access.snapshot(data.db, key, kind)??) } else { Ok(None) }
    };
    let is_large = sequence.bytes_of(range.len()) > CHUNKED_BYTES_MIN;
    if (is_large || range.len() as u64 > CHUNKED_ELEMENTS_MIN)
        && let Some(snapshot) = in_parts()?
    {
        return Ok(Part::Large(snapshot));
    }
    // these may be larger than most
    match sequence.range(range) {
        Ok(elements) => {
            let bytes: usize = elements.iter().map(|(key, value)| key.len() + value.len()).sum();
            let snapshot = if bytes as u64 > CHUNKED_BYTES_MIN { in_parts()? } else { None };
            Ok(snapshot.map_or(Part::Here(elements), Part::Large))
        }
        Err(stop @ (Stop::Long | Stop::Refused(StoreError::ReadTooLarge { .. }))) => match in_parts()? {
            Some(snapshot) => Ok(Part::Large(snapshot)),
            None => Err(stop.into()),
        },
        Err(stop) => Err(stop.into()),
    }
}

/// Collections, and parts of them, of more bytes are sent in parts.
const CHUNKED_BYTES_MIN: u64 = 256 << 10;
/// And so are those of more elements: together they would take a loop long.
const CHUNKED_ELEMENTS_MIN: u64 = 2_048;

/// As [`read`], for a command that changes it: neither a hit nor a miss.
pub(crate) fn read_to_change<'a>(
    data: &'a Data<'_, '_>,
    key: &[u8],
    kind: ValueKind,
) -> Result<Packed<'a>, Failure> {
    Ok(data.access.collection(data.db, key, kind)??)
}

/// The list, sorted set or stream at `key` for a command that reads parts of it, and counts as a hit or a miss; empty when it is absent.
pub(crate) fn sequence<'a, 's>(
    data: &'a Data<'_, 's>,
    key: &[u8],
    kind: ValueKind,
) -> Result<Sequence<'a, 's>, Failure> {
    let found = sequence_to_change(data, key, kind)?;
    data.count_lookup(!found.is_empty(), key);
    Ok(found)
}

/// As [`sequence`], for a command that changes it: neither a hit nor a miss.
pub(crate) fn sequence_to_change<'a, 's>(
    data: &'a Data<'_, 's>,
    key: &[u8],
    kind: ValueKind,
) -> Result<Sequence<'a, 's>, Failure> {
    Ok(data.access.sequence(data.db, key, kind)??)
}

/// The values of these elements of the hash, set or sorted set at `key`, where they are, for a command that reads them.
pub(crate) fn values<'a, 'e>(
    data: &'a Data<'_, '_>,
    key: &[u8],
    kind: ValueKind,
    elements: impl ExactSizeIterator<Item = &'e [u8]>,
) -> Result<Vec<Option<&'a [u8]>>, Failure> {
    let count = elements.len();
    let found = data.access.values(data.db, key, kind, elements)??;
    data.count_lookup(found.is_some(), key);
    Ok(found.unwrap_or_else(|| vec![None; count]))
}

/// Bytes of a reply that tells `values`.
pub(crate) fn values_bytes(values: &[Option<&[u8]>]) -> usize {
    values.iter().map(|value| value.map_or(0, <[u8]>::len) + BULK_OVERHEAD_BYTES).sum()
}

/// The value of one element, as [`values`] has it.
pub(crate) fn value<'a>(
    data: &'a Data<'_, '_>,
    key: &[u8],
    kind: ValueKind,
    element: &[u8],
) -> Result<Option<&'a [u8]>, Failure> {
    Ok(values(data, key, kind, std::iter::once(element))?[0])
}

/// An element of the hash or set at `key` by chance, for a command that reads it: one is about as likely as any other.
pub(crate) fn sample<'a>(
    data: &'a Data<'_, '_>,
    key: &[u8],
    kind: ValueKind,
) -> Result<Option<Element<'a>>, Failure> {
    let found = Chosen::sampled(data, key, kind, 1)?;
    data.count_lookup(!found.is_empty(), key);
    Ok(found.first().map(|(_, element)| *element))
}

/// The same of some, as [`Chosen::sampled`].
pub(crate) fn samples<'a>(
    data: &'a Data<'_, '_>,
    key: &[u8],
    kind: ValueKind,
    count: i64,
) -> Result<Vec<Element<'a>>, Failure> {
    let found = Chosen::sampled(data, key, kind, count)?;
    // of none that are asked for nothing is found of a collection that is there
    let is_there = !found.is_empty() || (count == 0 && data.access.meta(data.db, key)?.is_some());
    data.count_lookup(is_there, key);
    Ok(found.into_iter().map(|(_, element)| element).collect())
}

/// How many elements the collection at `key` has, for a command that reads it.
pub(crate) fn count(data: &Data<'_, '_>, key: &[u8], kind: ValueKind) -> Result<u64, Failure> {
    let count = data.access.count(data.db, key, kind)??;
    data.count_lookup(count > 0, key);
    Ok(count)
}

/// The elements that requests of the same key name: each `step`-th argument from argument 2 on.
struct Places<'r, 'a> {
    requests: &'r [ArgsView<'a>],
    step: usize,
    /// Of several requests: for each element the request and the argument.
    list: SmallVec<[(u16, u16); PLACES_FEW]>,
}

impl<'r, 'a> Places<'r, 'a> {
    fn new(requests: &'r [ArgsView<'a>], step: usize) -> Self {
        let of_request = |(number, args): (u16, &ArgsView<'_>)| {
            (2..args.len() as u16).step_by(step).map(move |at| (number, at))
        };
        let list = match requests {
            [_] => SmallVec::new(),
            many => (0..).zip(many).flat_map(of_request).collect(),
        };
        Self { requests, step, list }
    }

    fn len(&self) -> usize {
        match self.requests {
            [args] => (args.len() - 2).div_ceil(self.step),
            _ => self.list.len(),
        }
    }

    /// The number of the request that has element `number`, and the index of its argument.
    fn place(&self, number: usize) -> (usize, usize) {
        match self.list.get(number) {
            Some((request, at)) => (usize::from(*request), usize::from(*at)),
            None => (0, 2 + number * self.step),
        }
    }

    fn elements(&self) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        (0..self.len()).map(|number| {
            let (request, at) = self.place(number);
            self.requests[request].get(at)
        })
    }
}

/// How many elements each request has changed.
pub(super) type Counts = SmallVec<[i64; 1]>;

/// Lets `change` change each element of the hash or set that these requests, all of the same key, name by each `step`-th argument from argument 2 on: it gets the
/// tag of one, and the arguments from it on. Returns for each request how often it has answered `true`.
pub(super) fn change_each(
    data: &mut Data<'_, '_>,
    kind: ValueKind,
    requests: &[ArgsView<'_>],
    step: usize,
    change: impl Fn(&mut Edit<'_>, u16, ArgsView<'_>) -> bool,
) -> Result<Counts, Failure> {
    let (places, mut counts) = (Places::new(requests, step), Counts::from_elem(0, requests.len()));
    data.access.edit_each(data.db, requests[0].get(1), kind, places.elements(), |edit, tag, number| {
        let (request, at) = places.place(number);
        counts[request] += i64::from(change(edit, tag, requests[request].from(at)));
    })??;
    Ok(counts)
}

/// Answers with how many elements each request has changed.
pub(super) fn answer_counts(counts: Counts, out: &mut Writer<'_>) {
    counts.into_iter().for_each(|count| out.integer(count));
}

/// Deletes the elements that these requests name from argument 2 on; answers each with how many there were.
pub(super) fn delete_each(
    data: &mut Data<'_, '_>,
    kind: ValueKind,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    let deleted =
        change_each(data, kind, requests, 1, |edit, tag, element| edit.delete(tag, element.get(0)))?;
    let (class, name) =
        if kind == ValueKind::Hash { (EventClass::Hash, "hdel") } else { (EventClass::Set, "srem") };
    data.taken(class, name, requests[0].get(1), deleted.iter().filter(|count| **count > 0).count())?;
    answer_counts(deleted, out);
    Ok(())
}

/// The same of members of a sorted set.
pub(super) fn delete_scored(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    let (places, mut deleted) = (Places::new(requests, 1), Counts::from_elem(0, requests.len()));
    let delete = |score: Option<f64>, number: usize| {
        deleted[places.place(number).0] += i64::from(score.is_some());
        Ok::<_, Failure>(None)
    };
    data.access.rescore(data.db, requests[0].get(1), places.elements(), delete)???;
    let times = deleted.iter().filter(|count| **count > 0).count();
    data.taken(EventClass::SortedSet, "zrem", requests[0].get(1), times)?;
    answer_counts(deleted, out);
    Ok(())
}

/// Elements of requests for which nothing is put on the heap.
const PLACES_FEW: usize = 16;

/// Refuses the one number of 64 bits that has no opposite.
pub(crate) fn admit_count(count: i64) -> Outcome {
    if count == i64::MIN {
        let range = format!("value must between {} and {}", -i64::MAX, i64::MAX);
        return Err(format!("ERR value is out of range, {range}").into());
    }
    Ok(())
}

/// Chooses elements by chance.
pub(crate) struct Chosen;

impl Chosen {
    /// One of `len`; `None` if there are none.
    pub(crate) fn one(data: &Data<'_, '_>, len: usize) -> Option<usize> {
        (len > 0).then(|| below(data, len))
    }

    /// As many elements of the hash or set at `key` as `count` says, each once, with their tags; with a negative one so many, and some
    /// perhaps several times. Of one in leaves each comes of another leaf, if they are few beside it.
    ///
    /// # Errors
    /// As [`store::Access::sample`]; a reply that no connection could hold.
    pub(crate) fn sampled<'a>(
        data: &'a Data<'_, '_>,
        key: &[u8],
        kind: ValueKind,
        count: i64,
    ) -> Result<Vec<(u16, Element<'a>)>, Failure> {
        let wanted = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
        // one, so that the type is looked at
        let parts = data.access.sample(data.db, key, kind, wanted.max(1), data.access.random())??;
        if wanted == 0 {
            return Ok(Vec::new());
        }
        if !parts.is_empty() {
            let most = if count < 0 { wanted } else { wanted.min(parts.iter().map(Packed::len).sum()) };
            data.admit_reply(most.saturating_mul(BULK_OVERHEAD_BYTES))?;
            data.ask(most.saturating_mul(CHOSEN_BYTES))?;
        }
        let len: usize = parts.iter().map(Packed::len).sum();
        data.access.charge(if count < 0 && len > 0 { wanted } else { wanted.min(len) })?;
        let element = |part: &Packed<'a>, at: usize| (part.tag(at), part.element(at));
        let any = |part: &Packed<'a>| element(part, below(data, part.len()));
        let chosen: Vec<_> = match &parts[..] {
            [] => Vec::new(),
            parts if count < 0 => (0..wanted).map(|_| any(&parts[below(data, parts.len())])).collect(),
            [all] => Self::distinct(data, all.len(), wanted).into_iter().map(|at| element(all, at)).collect(),
            leaves => leaves.iter().map(any).collect(),
        };
        let bytes = |(_, (key, value)): &(u16, Element<'_>)| key.len() + value.len() + BULK_OVERHEAD_BYTES;
        data.admit_reply(chosen.iter().map(bytes).sum())?;
        Ok(chosen)
    }

    /// As [`Chosen::sampled`], of a sequence.
    ///
    /// # Errors
    /// As there, and as [`Sequence::element`].
    pub(crate) fn of_sequence<'a>(
        data: &Data<'_, '_>,
        sequence: &Sequence<'a, '_>,
        count: i64,
    ) -> Result<Vec<Element<'a>>, Failure> {
        let (len, wanted) = (sequence.len(), usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX));
        if len == 0 || count == 0 {
            return Ok(Vec::new());
        }
        if count > 0 && wanted >= len {
            return Ok(sequence.range(0..len)?);
        }
        data.admit_reply(wanted.saturating_mul(BULK_OVERHEAD_BYTES))?;
        data.access.charge(wanted)?;
        data.ask(wanted.saturating_mul(CHOSEN_BYTES))?;
        let chosen = match count < 0 {
            true => (0..wanted).map(|_| below(data, len)).collect(),
            false => Self::distinct(data, len, wanted),
        };
        Ok(sequence.pick(&chosen)?)
    }

    /// `wanted` of `len`, each once; all of them in order if there are no more.
    ///
    /// Source: Floyd's sampling (Bentley, Floyd 1987).
    pub(crate) fn distinct(data: &Data<'_, '_>, len: usize, wanted: usize) -> Vec<usize> {
        if wanted >= len {
            return (0..len).collect();
        }
        let (mut known, mut chosen) = (HashSet::with_capacity(wanted), Vec::with_capacity(wanted));
        for last in len - wanted..len {
            let at = below(data, last + 1);
            let at = if known.insert(at) { at } else { last };
            known.insert(at);
            chosen.push(at);
        }
        chosen
    }
}

/// What an element takes that was chosen, until it is told: its place, among those that are known, and where it lies.
const CHOSEN_BYTES: usize = 64;

/// A number below `len`, which is not 0.
fn below(data: &Data<'_, '_>, len: usize) -> usize {
    ((u128::from(data.access.random()) * len as u128) >> 64) as usize
}

/// A step of HSCAN, SSCAN or ZSCAN.
pub(crate) struct Scan<'a> {
    from: u64,
    options: Options<'a>,
}

impl<'a> Scan<'a> {
    /// Reads the arguments; answers by itself where there is no such key, as Redis does before it looks at the options.
    pub(crate) fn begin(
        data: &Data<'_, '_>,
        args: ArgsView<'a>,
        kind: ValueKind,
        out: &mut Writer<'_>,
    ) -> Result<Option<Self>, Failure> {
        let from = cursor(args.get(2))?;
        if data.access.count(data.db, args.get(1), kind)?? == 0 {
            data.count_lookup(false, args.get(1));
            write_step(0, &[], out);
            return Ok(None);
        }
        let more = if kind == ValueKind::Hash { More::NoValues } else { More::None };
        Ok(Some(Self { from, options: Options::parse(args, 3, more)? }))
    }
}

/// Answers a step of a scan over the hash, set or sorted set at `key`: a small one whole, of another about as many elements as COUNT says
/// in the order of their hashes. So each element that is there throughout is told once, whatever else comes and goes.
pub(crate) fn walk_reply(
    data: &Data<'_, '_>,
    key: &[u8],
    kind: ValueKind,
    scan: &Scan<'_>,
    out: &mut Writer<'_>,
) -> Outcome {
    let (next, met) = data.access.walk(data.db, key, kind, scan.from, scan.options.count)??;
    data.count_lookup(true, key);
    let shape = kind.shape().expect("a type of collections");
    step_reply(data, shape, next, met.into_iter(), scan, out)
}

fn step_reply<'a>(
    data: &Data<'_, '_>,
    shape: Shape,
    next: u64,
    chosen: impl ExactSizeIterator<Item = Element<'a>>,
    scan: &Scan<'_>,
    out: &mut Writer<'_>,
) -> Outcome {
    data.ask(chosen.len().saturating_mul(2 * size_of::<Cow<'_, [u8]>>()))?;
    let mut items: Vec<Cow<'_, [u8]>> = Vec::with_capacity(2 * chosen.len());
    let mut steps = 0;
    for (key, value) in chosen {
        if scan.options.pattern.as_ref().is_none_or(|pattern| pattern.matches(key, &mut steps)) {
            items.push(key.into());
            match shape {
                Shape::Map if scan.options.without_values => {}
                Shape::Map => items.push(value.into()),
                Shape::Scored => items.push(resp::double_text(score_of(value)).into_bytes().into()),
                Shape::Set | Shape::List | Shape::Ordered => {}
            }
        }
    }
    data.admit_reply(items.iter().map(|item| item.len() + BULK_OVERHEAD_BYTES).sum())?;
    write_step(next, &items, out);
    Ok(())
}

fn write_step(next: u64, items: &[Cow<'_, [u8]>], out: &mut Writer<'_>) {
    out.array(2);
    out.bulk(itoa::Buffer::new().format(next).as_bytes());
    out.array(items.len());
    items.iter().for_each(|item| out.bulk(item));
}

/// The key of a series of which each request pops one element of a list or a sorted set.
///
/// # Errors
/// [`text::BY_ITSELF`] if one says how many, or they are large: each is to run by itself.
pub(super) fn key_of_pops<'r>(
    data: &Data<'_, '_>,
    requests: &[ArgsView<'r>],
    kind: ValueKind,
) -> Result<&'r [u8], Failure> {
    let key = requests[0].get(1);
    let says_how_many = requests.iter().any(|args| args.len() > 2);
    if says_how_many || sequence_to_change(data, key, kind)?.bytes_of(requests.len()) > POPPED_BYTES_MAX {
        return Err(text::BY_ITSELF.into());
    }
    Ok(key)
}

/// About so many bytes a series pops: those of larger elements pop one by one.
const POPPED_BYTES_MAX: u64 = 64 << 10;
