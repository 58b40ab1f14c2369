//! XINFO: what is known of a stream, its groups and their consumers.

use std::collections::HashMap;

use resp::{ArgsView, Writer};
use store::Stop;

use super::streams::{Left, admit, newest, stream, told_bytes, write_entry, write_id};
use super::xgroup::no_consumer_group;
use crate::args::{integer, is, option_value};
use crate::call::{Data, Failure, Outcome, text};
use crate::stream::{Consumer, Extent, Group, Id, Pending, Stream};

/// The stream at argument 2, which must be there.
fn existing<'a, 's>(data: &'a Data<'_, 's>, args: ArgsView<'_>) -> Result<Stream<'a, 's>, Failure> {
    let stream = stream(data, args.get(2))?;
    if stream.exists() { Ok(stream) } else { Err(text::NO_SUCH_KEY.into()) }
}

fn number_or_null(number: Option<i64>, out: &mut Writer<'_>) {
    match number {
        Some(number) => out.integer(number),
        None => out.null(),
    }
}

/// What is pending in a group.
#[derive(Default)]
struct Summary {
    first: Vec<(Id, Pending)>,
    by_consumer: HashMap<Vec<u8>, OfConsumer>,
}

/// What is pending at a consumer.
#[derive(Default)]
struct OfConsumer {
    count: usize,
    first: Vec<(Id, Pending)>,
}

impl Summary {
    /// Keeps the first `most` entries of all, and of each consumer; the others are not looked at, if they are counted.
    fn of(stream: Stream<'_, '_>, group: &[u8], most: usize) -> Result<Self, Stop> {
        let counts = stream.pending_counts(group)?.by_consumer;
        let of_consumer = |count| OfConsumer { count: count as usize, first: Vec::new() };
        let mut all = Self {
            first: Vec::new(),
            by_consumer: counts.into_iter().map(|(name, count)| (name, of_consumer(count))).collect(),
        };
        let mut missing: usize = all.by_consumer.values().map(|own| own.count.min(most)).sum();
        let first_count = most.min(stream.count_pending(group)?);
        for it in stream.pending_from(group, Id::MIN)? {
            let (id, pending) = it?;
            let own = all.by_consumer.get_mut(&pending.consumer).filter(|own| own.first.len() < most);
            if let Some(own) = own.filter(|_| !pending.is_free()) {
                own.first.push((id, pending.clone()));
                missing = missing.saturating_sub(1);
            }
            if all.first.len() < most {
                all.first.push((id, pending));
            }
            if missing == 0 && all.first.len() == first_count {
                break;
            }
        }
        Ok(all)
    }
}

pub(crate) fn xinfo_consumers(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let now_ms = data.now.unix().0;
    let (stream, group) = (existing(data, args)?, args.get(3));
    if stream.group(group)?.is_none() {
        return Err(no_consumer_group(args));
    }
    let consumers = stream.consumers(group)?;
    let pending = stream.pending_counts(group)?.by_consumer;
    data.admit_reply(consumers.iter().map(|(name, _)| name.len() + 96).sum())?;
    out.array(consumers.len());
    for (name, consumer) in consumers {
        out.map(4);
        out.bulk(b"name");
        out.bulk(name);
        out.bulk(b"pending");
        out.integer(pending.get(name).map_or(0, |count| count.cast_signed()));
        out.bulk(b"idle");
        out.integer(now_ms.saturating_sub(consumer.seen_ms).cast_signed());
        out.bulk(b"inactive");
        let inactive = (consumer.active_ms > 0).then(|| now_ms.saturating_sub(consumer.active_ms));
        out.integer(inactive.map_or(-1, u64::cast_signed));
    }
    Ok(())
}

pub(crate) fn xinfo_groups(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let stream = existing(data, args)?;
    let (groups, extent) = (stream.groups()?, stream.extent()?);
    data.admit_reply(groups.iter().map(|(name, _)| name.len() + 160).sum())?;
    out.array(groups.len());
    for (name, group) in groups {
        out.map(6);
        out.bulk(b"name");
        out.bulk(name);
        out.bulk(b"consumers");
        out.integer(stream.consumers(name)?.len() as i64);
        out.bulk(b"pending");
        out.integer(stream.count_pending(name)? as i64);
        write_progress(&extent, group, out)?;
    }
    Ok(())
}

/// How far a group is.
fn write_progress(extent: &Extent<'_, '_>, group: Group, out: &mut Writer<'_>) -> Outcome {
    out.bulk(b"last-delivered-id");
    write_id(group.last_delivered, out);
    out.bulk(b"entries-read");
    number_or_null(group.read.map(u64::cast_signed), out);
    out.bulk(b"lag");
    number_or_null(extent.lag(group)?, out);
    Ok(())
}

pub(crate) fn xinfo_stream(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    existing(data, args)?;
    let full = match (args.try_get(3), args.len()) {
        (None, _) => None,
        (Some(option), 4) if is(option, "full") => Some(10),
        (Some(option), 6) if is(option, "full") && is(args.get(4), "count") => {
            let count = integer(option_value(args, 4)?)?;
            Some(usize::try_from(count).unwrap_or(10))
        }
        _ => return Err(crate::failure::sub_syntax("XINFO", args.get(1))),
    };
    let stream = existing(data, args)?;
    match full {
        None => write_short(data, stream, out),
        Some(most) => write_full(data, stream, if most == 0 { usize::MAX } else { most }, out),
    }
}

/// What both forms begin with. Redis's tree of nodes has no match here: as many nodes as it would have for these entries.
fn write_head(stream: Stream<'_, '_>, out: &mut Writer<'_>) -> Outcome {
    let (meta, len) = (stream.meta()?, stream.len()?);
    let nodes = len.div_ceil(100);
    for (name, number) in [
        ("length", len),
        ("radix-tree-keys", nodes),
        ("radix-tree-nodes", if nodes == 0 { 1 } else { nodes + 1 }),
    ] {
        out.bulk(name.as_bytes());
        out.integer(number as i64);
    }
    out.bulk(b"last-generated-id");
    write_id(meta.last, out);
    out.bulk(b"max-deleted-entry-id");
    write_id(meta.max_deleted, out);
    out.bulk(b"entries-added");
    out.integer(meta.added.cast_signed());
    out.bulk(b"recorded-first-entry-id");
    write_id(stream.first()?.map_or(Id::MIN, |first| first.id), out);
    Ok(())
}

/// How many fields [`write_names`] writes.
fn names_len(stream: Stream<'_, '_>) -> Result<usize, Stop> {
    Ok(if stream.tracking()?.is_some() { 6 } else { 0 })
}

/// What is known of the names that producers give, if they do.
fn write_names(stream: Stream<'_, '_>, out: &mut Writer<'_>) -> Outcome {
    let Some(tracking) = stream.tracking()? else { return Ok(()) };
    let (producers, names) = stream.count_names()?;
    for (name, number) in [
        ("idmp-duration", tracking.seconds),
        ("idmp-maxsize", tracking.most),
        ("pids-tracked", producers),
        ("iids-tracked", names),
        ("iids-added", tracking.named),
        ("iids-duplicates", tracking.again),
    ] {
        out.bulk(name.as_bytes());
        out.integer(number.cast_signed());
    }
    Ok(())
}

fn write_short(data: &Data<'_, '_>, stream: Stream<'_, '_>, out: &mut Writer<'_>) -> Outcome {
    let (first, last) = (stream.first()?, stream.last()?);
    admit(data, first.iter().chain(&last))?;
    out.map(10 + names_len(stream)?);
    write_head(stream, out)?;
    write_names(stream, out)?;
    out.bulk(b"groups");
    out.integer(stream.groups()?.len() as i64);
    for (name, entry) in [("first-entry", first), ("last-entry", last)] {
        out.bulk(name.as_bytes());
        match entry {
            Some(entry) => write_entry(&entry, out),
            None => out.null(),
        }
    }
    Ok(())
}

fn write_full(data: &Data<'_, '_>, stream: Stream<'_, '_>, most: usize, out: &mut Writer<'_>) -> Outcome {
    let entries = newest(stream, Id::MIN, most, &mut Left::all())?;
    admit(data, entries.iter())?;
    let (start, mut telling) = (out.position(), entries.iter().map(told_bytes).sum::<usize>());
    out.map(9 + names_len(stream)?);
    write_head(stream, out)?;
    write_names(stream, out)?;
    out.bulk(b"entries");
    out.array(entries.len());
    entries.iter().for_each(|entry| write_entry(entry, out));
    out.bulk(b"groups");
    let (groups, extent) = (stream.groups()?, stream.extent()?);
    out.array(groups.len());
    for (name, group) in groups {
        out.map(7);
        out.bulk(b"name");
        out.bulk(name);
        write_progress(&extent, group, out)?;
        let pending = Summary::of(stream, name, most)?;
        let consumers = stream.consumers(name)?;
        let of_pending = pending.first.iter().map(|(_, it)| it.consumer.len() + PENDING_BYTES);
        let of_consumers = consumers.iter().map(|(name, _)| name.len() + CONSUMER_BYTES);
        // what is told of the group is told of its consumers again
        let again = pending.by_consumer.values().map(|own| own.first.len() * PENDING_BYTES);
        let told = of_pending.chain(of_consumers).chain(again).sum::<usize>();
        telling += told + GROUP_BYTES + name.len();
        data.admit_reply(telling.max(out.position() - start))?;
        out.bulk(b"pel-count");
        out.integer(stream.count_pending(name)? as i64);
        out.bulk(b"pending");
        out.array(pending.first.len());
        for (id, it) in &pending.first {
            out.array(4);
            write_id(*id, out);
            out.bulk(&it.consumer);
            out.integer(it.delivered_ms.cast_signed());
            out.integer(it.times.cast_signed());
        }
        write_consumers(consumers, &pending.by_consumer, out);
    }
    Ok(())
}

fn write_consumers(
    consumers: Vec<(&[u8], Consumer)>,
    pending: &HashMap<Vec<u8>, OfConsumer>,
    out: &mut Writer<'_>,
) {
    out.bulk(b"consumers");
    out.array(consumers.len());
    for (name, consumer) in consumers {
        let (count, first) = pending.get(name).map_or((0, &[][..]), |own| (own.count, &own.first));
        out.map(5);
        out.bulk(b"name");
        out.bulk(name);
        out.bulk(b"seen-time");
        out.integer(consumer.seen_ms.cast_signed());
        out.bulk(b"active-time");
        out.integer(if consumer.active_ms > 0 { consumer.active_ms.cast_signed() } else { -1 });
        out.bulk(b"pel-count");
        out.integer(count as i64);
        out.bulk(b"pending");
        out.array(first.len());
        for (id, it) in first {
            out.array(3);
            write_id(*id, out);
            out.integer(it.delivered_ms.cast_signed());
            out.integer(it.times.cast_signed());
        }
    }
}

pub(crate) fn xinfo_help(_data: &mut Data<'_, '_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "CONSUMERS <key> <groupname>",
        "    Show consumers of <groupname>.",
        "GROUPS <key>",
        "    Show the stream consumer groups.",
        "STREAM <key> [FULL [COUNT <count>]",
        "    Show information about the stream.",
    ];
    crate::words::help(out, "XINFO", &lines);
    Ok(())
}

/// What is told of a group, of a consumer and of what is pending, beside names.
const GROUP_BYTES: usize = 200;
const CONSUMER_BYTES: usize = 150;
const PENDING_BYTES: usize = 80;
