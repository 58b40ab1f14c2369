//! Hashes: fields with values, each hash one value of the store (`store::Packed`).

use resp::{ArgsView, Writer};
use smallvec::SmallVec;
use store::{Edit, Element, EventClass, ValueKind, Whole};

use super::elements::{
    Counts, Scan, answer_counts, change_each, count, delete_each, read_all, sample, samples, value, values,
    values_bytes, walk_reply,
};
use crate::args::{integer, is};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};
use crate::chunked::{ChunkedReply, WriteElement};

pub(crate) fn hset(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    hset_series(data, &[args], out)
}

pub(crate) fn hset_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    let added = put_all(data, requests, "hset")?;
    answer_counts(added, out);
    Ok(())
}

pub(crate) fn hmset(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    put_all(data, &[args], "hmset")?;
    out.ok();
    Ok(())
}

/// Sets all pairs of field and value of requests of the same key; returns how many fields are new, of each.
fn put_all(data: &mut Data<'_, '_>, requests: &[ArgsView<'_>], command: &str) -> Result<Counts, Failure> {
    if requests.iter().any(|args| !args.len().is_multiple_of(2)) {
        return Err(format!("ERR wrong number of arguments for '{command}' command").into());
    }
    let put = |hash: &mut Edit<'_>, tag, pair: ArgsView<'_>| hash.put(tag, pair.get(0), pair.get(1));
    let counts = change_each(data, ValueKind::Hash, requests, 2, put)?;
    requests.iter().for_each(|args| data.event(EventClass::Hash, "hset", args.get(1)));
    Ok(counts)
}

pub(crate) fn hsetnx(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (field, value) = (args.get(2), args.get(3));
    let set = |hash: &mut Edit<'_>, tag| hash.get(tag, field).is_none() && hash.put(tag, field, value);
    let is_new = data.access.edit_element(data.db, args.get(1), ValueKind::Hash, field, set)??;
    if is_new {
        data.event(EventClass::Hash, "hset", args.get(1));
    }
    out.integer(is_new.into());
    Ok(())
}

pub(crate) fn hget(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.bulk_or_null(value(data, args.get(1), ValueKind::Hash, args.get(2))?);
    Ok(())
}

pub(crate) fn hmget(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let values = values(data, args.get(1), ValueKind::Hash, args.iter().skip(2))?;
    data.admit_reply(values_bytes(&values))?;
    out.array(values.len());
    values.into_iter().for_each(|value| out.bulk_or_null(value));
    Ok(())
}

pub(crate) fn hgetall(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let write: WriteElement = |(field, value), out| {
        out.bulk(field);
        out.bulk(value);
    };
    let bytes = |(field, value): Element<'_>| field.len() + value.len() + 2 * BULK_OVERHEAD_BYTES;
    answer_all(data, args, |out, count| out.map(count), write, bytes, out)
}

pub(crate) fn hkeys(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let write: WriteElement = |(field, _), out| out.bulk(field);
    answer_all(
        data,
        args,
        |out, count| out.array(count),
        write,
        |(field, _)| field.len() + BULK_OVERHEAD_BYTES,
        out,
    )
}

pub(crate) fn hvals(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let write: WriteElement = |(_, value), out| out.bulk(value);
    answer_all(
        data,
        args,
        |out, count| out.array(count),
        write,
        |(_, value)| value.len() + BULK_OVERHEAD_BYTES,
        out,
    )
}

/// Answers with all fields: `begin` appends what comes before so many, `write` one of them, of which `bytes` are in the reply.
fn answer_all(
    data: &Data<'_, '_>,
    args: ArgsView<'_>,
    begin: impl Fn(&mut Writer<'_>, usize),
    write: WriteElement,
    bytes: impl Fn(Element<'_>) -> usize,
    out: &mut Writer<'_>,
) -> Outcome {
    match read_all(data, args.get(1), ValueKind::Hash)? {
        Whole::Here(hash) => {
            data.admit_reply(hash.iter().map(bytes).sum())?;
            begin(out, hash.len());
            hash.iter().for_each(|element| write(element, out));
        }
        Whole::Large(snapshot) => {
            begin(out, snapshot.count() as usize);
            data.send_rest(ChunkedReply::of_all(snapshot, write, out.is_resp3()));
        }
    }
    Ok(())
}

pub(crate) fn hlen(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(count(data, args.get(1), ValueKind::Hash)? as i64);
    Ok(())
}

pub(crate) fn hexists(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(value(data, args.get(1), ValueKind::Hash, args.get(2))?.is_some().into());
    Ok(())
}

pub(crate) fn hstrlen(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let value = value(data, args.get(1), ValueKind::Hash, args.get(2))?;
    out.integer(value.map_or(0, |value| value.len() as i64));
    Ok(())
}

pub(crate) fn hdel(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    delete_each(data, ValueKind::Hash, &[args], out)
}

pub(crate) fn hdel_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    delete_each(data, ValueKind::Hash, requests, out)
}

/// The fields behind the word FIELDS at argument `at` and their number, which nothing follows.
pub(super) fn fields_at(
    args: ArgsView<'_>,
    at: usize,
) -> Result<impl ExactSizeIterator<Item = &[u8]> + Clone, Failure> {
    if !args.try_get(at).is_some_and(|word| is(word, "fields")) {
        return Err("ERR Mandatory argument FIELDS is missing or not at the right position".into());
    }
    let positive = "ERR Number of fields must be a positive integer";
    let count = args.try_get(at + 1).ok_or(text::SYNTAX)?;
    let count = crate::args::count(count, positive)?;
    if count == 0 {
        return Err(positive.into());
    }
    if count != args.len() - at - 2 {
        return Err("ERR The `numfields` parameter must match the number of arguments".into());
    }
    Ok((at + 2..args.len()).map(move |at| args.get(at)))
}

pub(crate) fn hgetdel(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let fields = fields_at(args, 2)?;
    let values = data.access.values(data.db, args.get(1), ValueKind::Hash, fields.clone())??;
    let values = values.unwrap_or_else(|| fields.clone().map(|_| None).collect());
    data.admit_reply(values_bytes(&values))?;
    out.array(values.len());
    let mut told = std::collections::HashSet::new();
    for (field, value) in fields.clone().zip(values) {
        // a field that is named twice is gone the second time
        out.bulk_or_null(value.filter(|_| told.insert(field)));
    }
    let fields: Vec<&[u8]> = fields.collect();
    let (named, mut is_any) = (fields.iter().copied(), false);
    data.access.edit_each(data.db, args.get(1), ValueKind::Hash, named, |hash, tag, number| {
        is_any |= hash.delete(tag, fields[number]);
    })??;
    data.taken(EventClass::Hash, "hdel", args.get(1), is_any.into())?;
    Ok(())
}

pub(crate) fn hincrby(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    hincrby_series(data, &[args], out)
}

pub(crate) fn hincrby_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    let sums = requests.iter().map(|args| integer(args.get(3)));
    let mut sums: SmallVec<[i64; 1]> = sums.collect::<Result<_, Failure>>()?;
    let mut refused = None;
    let fields = requests.iter().map(|args| args.get(2));
    data.access.edit_each(data.db, requests[0].get(1), ValueKind::Hash, fields, |hash, tag, number| {
        match increased(hash, tag, requests[number].get(2), sums[number]) {
            Ok(sum) => sums[number] = sum,
            Err(failure) => refused = Some(failure),
        }
    })??;
    if let Some(failure) = refused {
        return Err(failure);
    }
    requests.iter().for_each(|args| data.event(EventClass::Hash, "hincrby", args.get(1)));
    sums.into_iter().for_each(|sum| out.integer(sum));
    Ok(())
}

/// Adds to the number in a field, which ends when it did; returns the sum.
fn increased(hash: &mut Edit<'_>, tag: u16, field: &[u8], by: i64) -> Result<i64, Failure> {
    let former = match hash.get(tag, field) {
        Some(value) => resp::parse_i64(value).ok_or("ERR hash value is not an integer")?,
        None => 0,
    };
    let sum = former.checked_add(by).ok_or(text::OVERFLOW)?;
    hash.put_kept(tag, field, itoa::Buffer::new().format(sum).as_bytes());
    Ok(sum)
}

pub(crate) fn hincrbyfloat(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (field, by) = (args.get(2), args.get(3));
    let is_finite = decimal::sum(b"0", by).ok_or(text::NOT_FLOAT)?.is_some();
    let add = |hash: &mut Edit<'_>, tag: u16| {
        let sum = decimal::sum(hash.get(tag, field).unwrap_or(b"0"), by);
        let sum = sum.ok_or("ERR hash value is not a float")?;
        let sum = sum.filter(|_| is_finite).ok_or("ERR increment would produce NaN or Infinity")?;
        hash.put_kept(tag, field, sum.as_bytes());
        Ok::<_, Failure>(sum)
    };
    let sum = data.access.edit_element(data.db, args.get(1), ValueKind::Hash, field, add)???;
    data.event(EventClass::Hash, "hincrbyfloat", args.get(1));
    out.bulk(sum.as_bytes());
    Ok(())
}

pub(crate) fn hrandfield(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(count) = args.try_get(2) else {
        out.bulk_or_null(sample(data, args.get(1), ValueKind::Hash)?.map(|(field, _)| field));
        return Ok(());
    };
    let count = integer(count)?;
    super::elements::admit_count(count)?;
    let with_values = match (args.try_get(3), args.len()) {
        (None, _) => false,
        (Some(option), 4) if is(option, "withvalues") => true,
        _ => return Err(text::SYNTAX.into()),
    };
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(text::OUT_OF_RANGE.into());
    }
    let chosen = samples(data, args.get(1), ValueKind::Hash, count)?;
    let pairs_apart = with_values && out.is_resp3();
    out.array(if with_values && !pairs_apart { 2 * chosen.len() } else { chosen.len() });
    for (field, value) in chosen {
        if pairs_apart {
            out.array(2);
        }
        out.bulk(field);
        if with_values {
            out.bulk(value);
        }
    }
    Ok(())
}

pub(crate) fn hscan(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(scan) = Scan::begin(data, args, ValueKind::Hash, out)? else { return Ok(()) };
    walk_reply(data, args.get(1), ValueKind::Hash, &scan, out)
}
