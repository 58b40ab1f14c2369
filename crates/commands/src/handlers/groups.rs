//! Groups of consumers: who is given which entry of a stream, and what is not acknowledged yet. XGROUP is in `xgroup`.

use std::time::Duration;

use resp::{ArgsView, Writer};
use store::{EventClass, Stop};

use super::stream_reads::Query;
use super::streams::{
    Left, admit, apply, interval, newest, only_those, stream, stream_to_change, write_entry, write_fields,
    write_id,
};
use super::together::Together;
use crate::args::{integer, is, option_value, shown};
use crate::call::{Data, Failure, Outcome, text};
use crate::stream::{Changes, Consumer, Counts, Entry, Group, Id, Pending, Stream};

/// There is no such group.
pub(super) fn no_group(key: &[u8], group: &[u8], rest: &str) -> Failure {
    let (key, group) = (shown(key), shown(group));
    Failure::Bytes(format!("NOGROUP No such key '{key}' or consumer group '{group}'{rest}").into_bytes())
}

/// The group that XREADGROUP reads of key number `nth`, unless it cannot.
pub(super) fn check_read(data: &Data<'_, '_>, query: &Query<'_>, nth: usize) -> Result<Group, Failure> {
    let (key, (name, _)) = (query.key(nth), query.reader.expect("it was asked for"));
    let group = stream_to_change(data, key)?.group(name)?;
    let group = group.ok_or_else(|| no_group(key, name, " in XREADGROUP with GROUP option"))?;
    match query.id(nth) {
        b">" => Ok(group),
        b"$" => {
            let instead = "you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new \
                           messages. The $ ID would just return an empty result set.";
            Err(format!("ERR The $ ID is meaningless in the context of XREADGROUP: {instead}").into())
        }
        b"+" => {
            let instead = "you want to read the history of this consumer by specifying a proper ID, or use the > ID to get new \
                           messages. The + ID would just return an empty result set.";
            Err(format!("ERR The + ID is meaningless in the context of XREADGROUP: {instead}").into())
        }
        id => {
            Id::parse(id, 0)?;
            Ok(group)
        }
    }
}

/// What a consumer was given of a stream.
pub(super) enum Delivered {
    /// So many entries.
    Entries(usize),
    /// There is nothing new.
    Nothing {
        /// When what others have will have been pending for long enough.
        ripe_in: Option<Duration>,
    },
}

/// Who reads a group, when, and how many entries at most.
#[derive(Clone, Copy)]
struct Reading<'q> {
    group: &'q [u8],
    consumer: &'q [u8],
    now_ms: u64,
    most: usize,
}

/// Reads key number `nth` for a consumer and writes the entries; `checked`: the group, if nothing has changed since it was looked up.
pub(super) fn read_group(
    data: &mut Data<'_, '_>,
    query: &Query<'_>,
    nth: usize,
    left: &mut Left,
    checked: Option<Group>,
    out: &mut Writer<'_>,
) -> Result<Delivered, Failure> {
    let (key, (group_name, consumer)) = (query.key(nth), query.reader.expect("it was asked for"));
    let now_ms = data.now.unix().0;
    let reading = Reading { group: group_name, consumer, now_ms, most: query.most };
    let stream = stream_to_change(data, key)?;
    let group = match checked {
        Some(group) => group,
        None => stream.group(group_name)?.expect("checked before"),
    };
    let mut changes = Changes::with_room(group_name.len() + consumer.len());
    let known = stream.consumer(group_name, consumer)?;
    let is_new = known.is_none();
    let count = if query.id(nth) == b">" {
        let (claimed, ripe_in) = match query.claims_idle_ms {
            None => (Vec::new(), None),
            Some(idle_min_ms) => claim_idle(data, stream, reading, idle_min_ms, left, &mut changes)?,
        };
        let new = match group.last_delivered.after() {
            Some(first) => newest(stream, first, query.most - claimed.len(), left)?,
            None => Vec::new(),
        };
        let count = claimed.len() + new.len();
        if count == 0 {
            if known.is_none() {
                changes.put_consumer(group_name, consumer, Consumer { seen_ms: now_ms, active_ms: 0 });
            }
            if !changes.is_empty() {
                apply(data, key, &changes)?;
            }
            name_consumer(data, key, is_new);
            return Ok(Delivered::Nothing { ripe_in });
        }
        admit(data, claimed.iter().map(|(entry, _)| entry).chain(&new))?;
        changes.put_consumer(group_name, consumer, Consumer { seen_ms: now_ms, active_ms: now_ms });
        if !new.is_empty() {
            deliver(stream, reading, group, &new, query.acknowledges, &mut changes)?;
        }
        for (entry, former) in &claimed {
            write_delivered_entry(entry, former.idle_told(now_ms), former.times.cast_signed(), out);
        }
        new.iter().for_each(|entry| match query.claims_idle_ms {
            Some(_) => write_delivered_entry(entry, 0, 0, out),
            None => write_entry(entry, out),
        });
        count
    } else {
        let active_ms = known.map_or(0, |known| known.active_ms);
        changes.put_consumer(group_name, consumer, Consumer { seen_ms: now_ms, active_ms });
        tell_again(data, stream, reading, query.id(nth), left, &mut changes, out)?
    };
    apply(data, key, &changes)?;
    name_consumer(data, key, is_new);
    Ok(Delivered::Entries(count))
}

/// Names a consumer that a command has made.
fn name_consumer(data: &Data<'_, '_>, key: &[u8], is_new: bool) {
    if is_new {
        data.event(EventClass::Stream, "xgroup-createconsumer", key);
    }
}

/// Entries that were claimed, and what was pending of them.
type Claimed<'a> = Vec<(Entry<'a>, Pending)>;

/// Gives a consumer what has been pending for long, the longest first; returns the entries with what was pending, and when the next will have been
/// pending for long enough.
fn claim_idle<'a>(
    data: &Data<'_, '_>,
    stream: Stream<'a, '_>,
    Reading { group, consumer, now_ms, most }: Reading<'_>,
    idle_min_ms: u64,
    left: &mut Left,
    changes: &mut Changes,
) -> Result<(Claimed<'a>, Option<Duration>), Stop> {
    let (mut idle, mut ripe_in_ms) = (Vec::new(), None);
    for it in stream.pending_from(group, Id::MIN)? {
        let (id, pending) = it?;
        // by blocks alone many would be few
        data.access.charge(1)?;
        match idle_min_ms.saturating_sub(pending.idle_ms(now_ms)) {
            0 => {
                data.access.ask((size_of::<(Id, Pending)>() + pending.consumer.len()) as u64)?;
                idle.push((id, pending));
            }
            left_ms => ripe_in_ms = Some(ripe_in_ms.map_or(left_ms, |before: u64| before.min(left_ms))),
        }
    }
    idle.sort_by_key(|(id, pending)| (pending.delivered_ms, *id));
    let (mut together, mut claimed) = (Together::default(), Vec::new());
    for (id, former) in idle {
        if claimed.len() == most {
            break;
        }
        let Some(found) = together.of(stream.entry(id))? else { continue };
        let Some(entry) = found else {
            // it was deleted, as XAUTOCLAIM finds it
            changes.delete_pending(group, id);
            continue;
        };
        if !left.take(&entry) {
            break;
        }
        let (consumer, times) = (consumer.to_vec(), former.times_again());
        changes.put_pending(group, id, Pending { consumer, delivered_ms: now_ms, times });
        claimed.push((entry, former));
    }
    together.end()?;
    Ok((claimed, ripe_in_ms.map(Duration::from_millis)))
}

/// Answers with an entry, how long it had been idle, and how often it had been delivered: as with CLAIM all are told.
fn write_delivered_entry(entry: &Entry<'_>, idle_ms: i64, times: i64, out: &mut Writer<'_>) {
    out.array(4);
    write_fields(entry, out);
    out.integer(idle_ms);
    out.integer(times);
}

/// Gives a consumer entries.
fn deliver(
    stream: Stream<'_, '_>,
    Reading { group: name, consumer, now_ms, .. }: Reading<'_>,
    mut group: Group,
    entries: &[Entry<'_>],
    acknowledges: bool,
    changes: &mut Changes,
) -> Result<(), Stop> {
    let extent = stream.extent()?;
    for Entry { id, .. } in entries {
        let id = *id;
        group.read = extent.read_with(group, id)?;
        group.last_delivered = id;
        if !acknowledges {
            let pending = Pending { consumer: consumer.to_vec(), delivered_ms: now_ms, times: 1 };
            changes.put_pending(name, id, pending);
        }
    }
    changes.put_group(name, group);
    Ok(())
}

/// Tells a consumer what it was given and has not acknowledged, behind an identifier.
fn tell_again(
    data: &Data<'_, '_>,
    stream: Stream<'_, '_>,
    Reading { group, consumer, now_ms, most }: Reading<'_>,
    after: &[u8],
    left: &mut Left,
    changes: &mut Changes,
    out: &mut Writer<'_>,
) -> Result<usize, Failure> {
    let Some(first) = Id::parse(after, 0)?.after() else { return Ok(0) };
    // behind what is told, and behind the last of its own, others have the rest
    let most = most.min(pending_at(stream, group, consumer)?);
    if most == 0 {
        return Ok(0);
    }
    let (mut together, mut own, mut entries) = (Together::default(), Vec::new(), Vec::new());
    for it in stream.pending_from(group, first)? {
        let (id, pending) = it?;
        if !pending.is_of(consumer) {
            continue;
        }
        let entry = together.of(stream.entry(id))?.flatten();
        // of an entry that is gone little is told
        if entry.is_some_and(|entry| !left.take(&entry)) {
            break;
        }
        own.push((id, pending));
        entries.push(entry);
        if own.len() == most {
            break;
        }
    }
    together.end()?;
    admit(data, entries.iter().flatten())?;
    for ((id, pending), entry) in own.iter().zip(&entries) {
        let Some(entry) = entry else {
            // It was deleted; what is pending is told, without fields.
            out.array(2);
            write_id(*id, out);
            out.null_array();
            continue;
        };
        write_entry(entry, out);
        let again = Pending { delivered_ms: now_ms, times: pending.times_again(), ..pending.clone() };
        changes.put_pending(group, *id, again);
    }
    Ok(own.len())
}

pub(crate) fn xack(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    xack_series(data, &[args], out)
}

/// Acknowledges what each of these requests names, all of the same group.
pub(crate) fn xack_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    let (key, group) = (requests[0].get(1), requests[0].get(2));
    if requests.iter().any(|args| args.get(2) != group) {
        return Err(text::BY_ITSELF.into());
    }
    let stream = stream_to_change(data, key)?;
    let mut acknowledged = vec![0; requests.len()];
    if stream.group(group)?.is_some() {
        let mut ids = Vec::new();
        for (number, args) in requests.iter().enumerate() {
            for id in args.iter().skip(3) {
                ids.push((Id::parse(id, 0)?, number));
            }
        }
        // an entry counts for the first request that names it
        ids.sort_unstable();
        ids.dedup_by_key(|(id, _)| *id);
        let ids = only_those(ids, |(id, _)| Ok(stream.pending(group, *id)?.is_some()))?;
        let mut changes = Changes::default();
        for (id, number) in ids {
            changes.delete_pending(group, id);
            acknowledged[number] += 1;
        }
        apply(data, key, &changes)?;
    }
    acknowledged.into_iter().for_each(|count| out.integer(count));
    Ok(())
}

/// Which pending entries XPENDING is asked for.
struct Filter<'a> {
    first: Id,
    last: Id,
    most: usize,
    idle_min_ms: u64,
    consumer: Option<&'a [u8]>,
}

impl<'a> Filter<'a> {
    fn parse(args: ArgsView<'a>) -> Result<Option<Self>, Failure> {
        if args.len() == 3 {
            return Ok(None);
        }
        if !(6..=9).contains(&args.len()) {
            return Err(text::SYNTAX.into());
        }
        let (mut at, mut idle_min_ms) = (3, 0);
        if is(args.get(3), "idle") {
            idle_min_ms = u64::try_from(integer(args.get(4))?).unwrap_or(0);
            if args.len() < 8 {
                return Err(text::SYNTAX.into());
            }
            at = 5;
        }
        let most = usize::try_from(integer(args.get(at + 2))?).unwrap_or(0);
        let (first, last) = interval(args.get(at), args.get(at + 1))?;
        Ok(Some(Self { first, last, most, idle_min_ms, consumer: args.try_get(at + 3) }))
    }
}

pub(crate) fn xpending(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let filter = Filter::parse(args)?;
    let (key, group, now_ms) = (args.get(1), args.get(2), data.now.unix().0);
    let stream = stream(data, key)?;
    if stream.group(group)?.is_none() {
        return Err(no_group(key, group, ""));
    }
    let Some(filter) = filter else { return Ok(summarize(stream, group, out)?) };
    let mut found: Vec<(Id, Pending)> = Vec::new();
    let mut left = match filter.consumer {
        Some(consumer) => pending_at(stream, group, consumer)?,
        None => usize::MAX,
    };
    for it in stream.pending_from(group, filter.first)? {
        let (id, pending) = it?;
        if id > filter.last || found.len() == filter.most || left == 0 {
            break;
        }
        let is_wanted = filter.consumer.is_none_or(|consumer| pending.is_of(consumer));
        left -= usize::from(is_wanted);
        if is_wanted && pending.idle_ms(now_ms) >= filter.idle_min_ms {
            found.push((id, pending));
        }
    }
    data.admit_reply(found.iter().map(|(_, pending)| pending.consumer.len() + 64).sum())?;
    out.array(found.len());
    for (id, pending) in &found {
        out.array(4);
        write_id(*id, out);
        out.bulk(&pending.consumer);
        out.integer(pending.idle_told(now_ms));
        out.integer(pending.times.cast_signed());
    }
    Ok(())
}

/// No more than this is pending at a consumer.
pub(super) fn pending_at(stream: Stream<'_, '_>, group: &[u8], consumer: &[u8]) -> Result<usize, Stop> {
    let counts = stream.kept_counts(group)?;
    let own = |counts: Counts| counts.by_consumer.get(consumer).map_or(0, |count| *count as usize);
    Ok(counts.map_or(usize::MAX, own))
}

/// How much is pending, from where to where, and of whom.
fn summarize(stream: Stream<'_, '_>, group: &[u8], out: &mut Writer<'_>) -> Result<(), Stop> {
    let mut counts = stream.pending_counts(group)?.by_consumer;
    counts.retain(|_, count| *count > 0);
    out.array(4);
    out.integer(stream.count_pending(group)? as i64);
    let Some((first, last)) = stream.ends_of_pending(group)? else {
        out.null();
        out.null();
        out.null_array();
        return Ok(());
    };
    write_id(first, out);
    write_id(last, out);
    out.array(counts.len());
    for (consumer, count) in &counts {
        out.array(2);
        out.bulk(consumer);
        out.bulk(itoa::Buffer::new().format(*count).as_bytes());
    }
    Ok(())
}

/// Options of XCLAIM.
struct Claim {
    ids: Vec<Id>,
    idle_min_ms: u64,
    delivered_ms: u64,
    times: Option<u64>,
    forces: bool,
    only_ids: bool,
    last: Option<Id>,
}

/// How long an entry must have been idle; what is less than 0 is 0.
pub(super) fn idle_min(arg: &[u8], command: &str) -> Result<u64, Failure> {
    let millis = resp::parse_i64(arg);
    let millis = millis.ok_or_else(|| format!("ERR Invalid min-idle-time argument for {command}"))?;
    Ok(u64::try_from(millis).unwrap_or(0))
}

impl Claim {
    fn parse(args: ArgsView<'_>, now_ms: u64) -> Result<Self, Failure> {
        let idle_min_ms = idle_min(args.get(4), "XCLAIM")?;
        let ids: Vec<Id> = args.iter().skip(5).map_while(|id| Id::parse(id, 0).ok()).collect();
        let mut index = 5 + ids.len();
        let mut claim = Self {
            ids,
            idle_min_ms,
            delivered_ms: now_ms,
            times: None,
            forces: false,
            only_ids: false,
            last: None,
        };
        while let Some(option) = args.try_get(index) {
            let value = args.try_get(index + 1);
            let number = |name: &str| {
                let number = value.and_then(resp::parse_i64);
                number.ok_or_else(|| Failure::from(format!("ERR Invalid {name} option argument for XCLAIM")))
            };
            // A time that has not come yet is now.
            let past = |ms: i64| u64::try_from(ms).ok().filter(|ms| *ms <= now_ms).unwrap_or(now_ms);
            match option {
                _ if is(option, "force") => claim.forces = true,
                _ if is(option, "justid") => claim.only_ids = true,
                _ if is(option, "idle") && value.is_some() => {
                    claim.delivered_ms = past(now_ms.cast_signed().saturating_sub(number("IDLE")?));
                    index += 1;
                }
                _ if is(option, "time") && value.is_some() => {
                    claim.delivered_ms = past(number("TIME")?);
                    index += 1;
                }
                _ if is(option, "retrycount") && value.is_some() => {
                    claim.times = Some(u64::try_from(number("RETRYCOUNT")?).unwrap_or(0));
                    index += 1;
                }
                _ if is(option, "lastid") && value.is_some() => {
                    claim.last = Some(Id::parse(value.unwrap_or_default(), 0)?);
                    index += 1;
                }
                _ => return Err(format!("ERR Unrecognized XCLAIM option '{}'", shown(option)).into()),
            }
            index += 1;
        }
        Ok(claim)
    }
}

pub(crate) fn xclaim(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (key, group_name, consumer) = (args.get(1), args.get(2), args.get(3));
    let now_ms = data.now.unix().0;
    let stream = stream_to_change(data, key)?;
    let Some(mut group) = stream.group(group_name)? else { return Err(no_group(key, group_name, "")) };
    let claim = Claim::parse(args, now_ms)?;
    let (mut changes, mut claimed) = (Changes::default(), Vec::new());
    if let Some(last) = claim.last.filter(|last| *last > group.last_delivered) {
        group.last_delivered = last;
        changes.put_group(group_name, group);
    }
    let mut ids = claim.ids.clone();
    let mut seen = std::collections::HashSet::new();
    ids.retain(|id| seen.insert(id.bytes()));
    let mut together = Together::default();
    for id in ids {
        let (known, found) = (together.of(stream.pending(group_name, id))?, together.of(stream.entry(id))?);
        let (Some(known), Some(found)) = (known, found) else { continue };
        let Some(entry) = found else {
            if known.is_some() {
                changes.delete_pending(group_name, id);
            }
            continue;
        };
        let is_young = |known: &Pending| known.idle_ms(now_ms) < claim.idle_min_ms;
        let times = match &known {
            None if !claim.forces => continue,
            // as if it had been delivered once, without an answer
            None => 1 + u64::from(!claim.only_ids),
            Some(known) if claim.idle_min_ms > 0 && is_young(known) => continue,
            Some(known) if claim.only_ids => known.times,
            Some(known) => known.times_again(),
        };
        let times = claim.times.unwrap_or(times);
        let pending = Pending { consumer: consumer.to_vec(), delivered_ms: claim.delivered_ms, times };
        changes.put_pending(group_name, id, pending);
        claimed.push(entry);
    }
    together.end()?;
    let is_new = note_consumer(stream, group_name, consumer, now_ms, !claimed.is_empty(), &mut changes)?;
    name_consumer(data, key, is_new);
    write_claimed(data, &claimed, claim.only_ids, out)?;
    apply(data, key, &changes)
}

/// Notes that a consumer asked, and whether it got something; makes it if it is new, which is returned.
fn note_consumer(
    stream: Stream<'_, '_>,
    group: &[u8],
    name: &[u8],
    now_ms: u64,
    got: bool,
    changes: &mut Changes,
) -> Result<bool, Stop> {
    let known = stream.consumer(group, name)?;
    let is_new = known.is_none();
    let active_ms = known.map_or(0, |known| known.active_ms);
    let active_ms = if got { now_ms } else { active_ms };
    changes.put_consumer(group, name, Consumer { seen_ms: now_ms, active_ms });
    Ok(is_new)
}

fn write_claimed(
    data: &Data<'_, '_>,
    entries: &[Entry<'_>],
    only_ids: bool,
    out: &mut Writer<'_>,
) -> Outcome {
    if !only_ids {
        admit(data, entries.iter())?;
    }
    out.array(entries.len());
    for entry in entries {
        if only_ids { write_id(entry.id, out) } else { write_entry(entry, out) }
    }
    Ok(())
}

pub(crate) fn xautoclaim(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (key, group, consumer) = (args.get(1), args.get(2), args.get(3));
    let (idle_min_ms, now_ms) = (idle_min(args.get(4), "XAUTOCLAIM")?, data.now.unix().0);
    let (first, _) = interval(args.get(5), b"+")?;
    let (mut most, mut only_ids, mut index) = (100, false, 6);
    while let Some(option) = args.try_get(index) {
        if is(option, "count") && args.len() > index + 1 {
            let none = "ERR COUNT must be > 0";
            most = crate::args::count(option_value(args, index)?, none)?;
            if most == 0 || most > CLAIMED_MAX {
                return Err(none.into());
            }
            index += 1;
        } else if is(option, "justid") {
            only_ids = true;
        } else {
            return Err(text::SYNTAX.into());
        }
        index += 1;
    }
    let stream = stream_to_change(data, key)?;
    if stream.group(group)?.is_none() {
        return Err(no_group(key, group, ""));
    }
    let (mut changes, mut claimed, mut deleted, mut next) =
        (Changes::default(), Vec::new(), Vec::new(), Id::MIN);
    let (mut together, mut unknown) = (Together::default(), 0);
    for (looked_at, it) in stream.pending_from(group, first)?.enumerate() {
        let (id, known) = it?;
        if claimed.len() + deleted.len() + unknown == most || looked_at == most.saturating_mul(LOOKED_AT_EACH)
        {
            next = id;
            break;
        }
        let Some(found) = together.of(stream.entry(id))? else {
            unknown += 1;
            continue;
        };
        let Some(entry) = found else {
            changes.delete_pending(group, id);
            deleted.push(id);
            continue;
        };
        if idle_min_ms > 0 && known.idle_ms(now_ms) < idle_min_ms {
            continue;
        }
        let times = if only_ids { known.times } else { known.times_again() };
        let pending = Pending { consumer: consumer.to_vec(), delivered_ms: now_ms, times };
        changes.put_pending(group, id, pending);
        claimed.push(entry);
    }
    together.end()?;
    let is_new = note_consumer(stream, group, consumer, now_ms, !claimed.is_empty(), &mut changes)?;
    name_consumer(data, key, is_new);
    out.array(3);
    write_id(next, out);
    write_claimed(data, &claimed, only_ids, out)?;
    out.array(deleted.len());
    deleted.iter().for_each(|id| write_id(*id, out));
    apply(data, key, &changes)
}

/// Of one XAUTOCLAIM.
const CLAIMED_MAX: usize = 1 << 40;
/// Pending entries that XAUTOCLAIM looks at for each that it may claim.
const LOOKED_AT_EACH: usize = 10;
