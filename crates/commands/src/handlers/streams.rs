//! Streams: adding, looking up, trimming entries. XREAD and XREADGROUP are in `stream_reads`, groups of consumers in `groups` and `xgroup`,
//! what XINFO tells in `stream_info`.

use resp::{ArgsView, Writer};
use store::{Element, EventClass, Stop, ValueKind};

use super::elements::{Part, part, sequence, sequence_to_change};
use super::together::Together;
use crate::args::{integer, is, option_value};
use crate::call::{BULK_OVERHEAD_BYTES, Data, Failure, Outcome, text};
use crate::chunked::ChunkedReply;
use crate::stream::{Changes, Entry, Id, IdError, Stream, Tracking, Wanted, add_at_end, automatic_name};

impl From<IdError> for Failure {
    fn from(_: IdError) -> Self {
        "ERR Invalid stream ID specified as stream command argument".into()
    }
}

/// The stream at `key`, for a command that reads it.
pub(super) fn stream<'a, 's>(data: &'a Data<'_, 's>, key: &[u8]) -> Result<Stream<'a, 's>, Failure> {
    Ok(Stream::new(sequence(data, key, ValueKind::Stream)?))
}

/// The stream at `key`, for a command that changes it.
pub(super) fn stream_to_change<'a, 's>(
    data: &'a Data<'_, 's>,
    key: &[u8],
) -> Result<Stream<'a, 's>, Failure> {
    Ok(Stream::new(sequence_to_change(data, key, ValueKind::Stream)?))
}

/// Changes the stream at `key`.
pub(super) fn apply(data: &mut Data<'_, '_>, key: &[u8], changes: &Changes) -> Outcome {
    let settled = changes.settled(stream_to_change(data, key)?)?;
    let changes = settled.as_ref().unwrap_or(changes);
    if !changes.oldest.is_empty() {
        data.access.remove_range(data.db, key, ValueKind::Stream, changes.oldest.clone())??;
    }
    if changes.is_empty() {
        return Ok(());
    }
    data.access.change_stream(data.db, key, &changes.iter().collect::<Vec<_>>())??;
    Ok(())
}

pub(super) fn write_id(id: Id, out: &mut Writer<'_>) {
    id.tell(|text| out.bulk(text));
}

/// Answers with an entry: its identifier, and its fields and values.
pub(super) fn write_entry(entry: &Entry<'_>, out: &mut Writer<'_>) {
    out.array(2);
    write_fields(entry, out);
}

/// What an answer with an entry begins with.
pub(super) fn write_fields(entry: &Entry<'_>, out: &mut Writer<'_>) {
    let parts = entry.parts();
    write_id(entry.id, out);
    out.array(parts.len());
    parts.iter().for_each(|part| out.bulk(part));
}

/// Refuses entries that no connection could hold.
pub(super) fn admit<'e>(data: &Data<'_, '_>, entries: impl Iterator<Item = &'e Entry<'e>>) -> Outcome {
    data.admit_reply(entries.map(told_bytes).sum())
}

/// About the bytes of an entry in an answer.
pub(super) fn told_bytes(entry: &Entry<'_>) -> usize {
    entry.parts().iter().map(|part| part.len() + BULK_OVERHEAD_BYTES).sum::<usize>() + 48
}

/// What XREAD and XREADGROUP may still tell, of all streams together.
#[derive(Clone, Copy, Debug)]
pub(super) struct Left {
    pub(super) entries: usize,
    pub(super) bytes: usize,
    /// Nothing was told yet: the first entry is, however large.
    pub(super) is_fresh: bool,
}

impl Left {
    /// As much as there is.
    pub(super) fn all() -> Self {
        Self { entries: usize::MAX, bytes: usize::MAX, is_fresh: true }
    }

    /// Whether this entry is told, too; once one is not, none is.
    pub(super) fn take(&mut self, entry: &Entry<'_>) -> bool {
        let bytes = if self.bytes == usize::MAX { 0 } else { told_bytes(entry) };
        if self.entries == 0 || (bytes > self.bytes && !self.is_fresh) {
            self.entries = 0;
            return false;
        }
        (self.entries, self.is_fresh) = (self.entries - 1, false);
        self.bytes = self.bytes.saturating_sub(bytes);
        true
    }
}

/// Which entries go.
#[derive(Clone, Copy, Debug)]
enum Keep {
    /// So many stay.
    Newest(usize),
    /// Those from here on stay.
    From(Id),
}

/// What becomes of what is pending of an entry that goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum References {
    Stay,
    Go,
    /// Only entries go of which nothing is pending, and which all groups were given.
    Forbid,
}

impl References {
    /// What a word says.
    pub(super) fn of(word: &[u8]) -> Option<Self> {
        match word {
            _ if is(word, "keepref") => Some(Self::Stay),
            _ if is(word, "delref") => Some(Self::Go),
            _ if is(word, "acked") => Some(Self::Forbid),
            _ => None,
        }
    }
}

/// The options of XADD and XTRIM before the identifier or the end.
struct Trim<'a> {
    keep: Option<Keep>,
    /// About so many: none before there is a node's worth of them, as in Redis.
    is_approximate: bool,
    limit: Option<usize>,
    makes_stream: bool,
    references: Option<References>,
    /// The producer, and its name for the entry; inside, `None`: one is made.
    named: Option<(&'a [u8], Option<&'a [u8]>)>,
}

impl<'a> Trim<'a> {
    /// Reads options from argument 2 on; returns the index behind them. XADD's identifier ends them.
    fn parse(args: ArgsView<'a>, adds: bool) -> Result<(Self, usize), Failure> {
        let mut trim = Self {
            keep: None,
            is_approximate: false,
            limit: None,
            makes_stream: true,
            references: None,
            named: None,
        };
        let mut index = 2;
        while let Some(option) = args.try_get(index) {
            let has_more = args.len() > index + 1;
            if adds && option == b"*" {
                break;
            } else if has_more && (is(option, "maxlen") || is(option, "minid")) {
                index = trim.threshold(args, index)?;
            } else if has_more && is(option, "limit") {
                let limit = integer(args.get(index + 1))?;
                trim.limit =
                    Some(usize::try_from(limit).map_err(|_| "ERR The LIMIT argument must be >= 0.")?);
                index += 2;
            } else if adds && is(option, "nomkstream") {
                trim.makes_stream = false;
                index += 1;
            } else if let Some(references) = References::of(option).filter(|_| trim.references.is_none()) {
                trim.references = Some(references);
                index += 1;
            } else if adds && trim.named.is_none() && args.len() > index + 1 && is(option, "idmpauto") {
                trim.named = Some((args.get(index + 1), None));
                index += 2;
            } else if adds && trim.named.is_none() && args.len() > index + 2 && is(option, "idmp") {
                trim.named = Some((args.get(index + 1), Some(args.get(index + 2))));
                index += 3;
            } else if adds {
                // It is refused before the options are.
                Wanted::parse(option)?;
                break;
            } else {
                return Err(text::SYNTAX.into());
            }
        }
        if trim.limit.is_some_and(|limit| limit > 0) && trim.keep.is_none() {
            let without = "LIMIT cannot be used without specifying a trimming strategy";
            return Err(format!("ERR syntax error, {without}").into());
        }
        if trim.keep.is_none() && !adds {
            return Err("ERR syntax error, XTRIM must be called with a trimming strategy".into());
        }
        if trim.limit.is_some() && !trim.is_approximate {
            return Err("ERR syntax error, LIMIT cannot be used without the special ~ option".into());
        }
        Ok((trim, index))
    }

    /// Whether an entry is added and nothing else is to be thought of.
    fn adds_alone(&self) -> bool {
        self.keep.is_none() && self.named.is_none() && self.references.is_none()
    }

    /// MAXLEN or MINID at `index`; returns the index behind it.
    fn threshold(&mut self, args: ArgsView<'_>, mut index: usize) -> Result<usize, Failure> {
        let by_id = is(args.get(index), "minid");
        if self.keep.is_some() {
            let both = "MAXLEN and MINID options at the same time are not compatible";
            return Err(format!("ERR syntax error, {both}").into());
        }
        self.is_approximate = false;
        index += 1;
        if args.len() > index + 1 && matches!(args.get(index), b"~" | b"=") {
            self.is_approximate = args.get(index) == b"~";
            index += 1;
        }
        let threshold = args.get(index);
        self.keep = Some(if by_id {
            Keep::From(Id::parse(threshold, 0)?)
        } else {
            let most = integer(threshold)?;
            Keep::Newest(usize::try_from(most).map_err(|_| "ERR The MAXLEN argument must be >= 0.")?)
        });
        Ok(index + 1)
    }

    /// How many of the oldest entries go, where `added` is one more that is not in the stream yet.
    fn count(&self, stream: Stream<'_, '_>, added: Option<Id>) -> Result<usize, Stop> {
        let Some(keep) = self.keep else { return Ok(0) };
        let len = stream.len()? + usize::from(added.is_some());
        let excess = match keep {
            Keep::Newest(most) => len.saturating_sub(most),
            Keep::From(first) => {
                let older = first.before().map_or(Ok(0..0), |last| stream.range(Id::MIN, last))?.len();
                older + usize::from(added.is_some_and(|id| id < first))
            }
        };
        if !self.is_approximate {
            return Ok(excess);
        }
        let most = match self.limit {
            None => 100 * NODE_ENTRIES,
            Some(0) => usize::MAX,
            Some(limit) => limit,
        };
        // The last node is not full, and goes when all of it does.
        let nodes = excess.min(most) / NODE_ENTRIES * NODE_ENTRIES;
        Ok(if excess == len && len <= most { len } else { nodes })
    }
}

/// Removes some of the oldest entries: as many as `trim` says, of which `most` is the number that go at most; returns how many went.
fn remove_oldest(
    trim: &Trim<'_>,
    stream: Stream<'_, '_>,
    most: usize,
    changes: &mut Changes,
) -> Result<usize, Stop> {
    if most == 0 {
        return Ok(0);
    }
    let (groups, references) = (stream.groups()?, trim.references.unwrap_or(References::Stay));
    let last = match trim.keep {
        Some(Keep::From(first)) => first.before().unwrap_or(Id::MIN),
        _ => Id::MAX,
    };
    let mut oldest = stream.range(Id::MIN, last)?;
    if references != References::Forbid {
        oldest.end = oldest.end.min(oldest.start.saturating_add(most));
    }
    if references == References::Stay && oldest.len() >= RANGE_MIN {
        let count = oldest.len();
        changes.oldest = oldest;
        return Ok(count);
    }
    let (mut together, mut count) = (Together::default(), 0);
    for Entry { id, .. } in stream.entries(oldest)? {
        if count == most {
            break;
        }
        if references == References::Forbid && together.of(stream.is_done_with(&groups, id))? == Some(false) {
            continue;
        }
        changes.delete_entry(id);
        if references == References::Go {
            together.of(changes.delete_references(stream, &groups, id))?;
        }
        count += 1;
    }
    together.end()?;
    Ok(count)
}

pub(crate) fn xadd(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (trim, at) = Trim::parse(args, true)?;
    let wanted = args.try_get(at).map(Wanted::parse).transpose()?;
    let parts = args.len().saturating_sub(at + 1);
    let wanted = wanted.filter(|_| parts >= 2 && parts.is_multiple_of(2));
    let wanted = wanted.ok_or("ERR wrong number of arguments for 'xadd' command")?;
    if wanted == Wanted::Exactly(Id::MIN) {
        return Err("ERR The ID specified in XADD must be greater than 0-0".into());
    }
    let now_ms = data.now.unix().0;
    if trim.adds_alone()
        && let Some(ids) = add_at_end(data.access, data.db, args.get(1), &[args], at + 1, wanted, now_ms)??
    {
        data.event(EventClass::Stream, "xadd", args.get(1));
        ids.into_iter().for_each(|id| write_id(id, out));
        return Ok(());
    }
    let stream = stream_to_change(data, args.get(1))?;
    if !stream.exists() && !trim.makes_stream {
        out.null();
        return Ok(());
    }
    let mut meta = stream.meta()?;
    if meta.last == Id::MAX {
        return Err("ERR The stream has exhausted the last possible ID, unable to add more items".into());
    }
    let made = match trim.named {
        Some((_, None)) => automatic_name(args.iter().skip(at + 1)),
        _ => Vec::new(),
    };
    let named = trim.named.map(|(producer, name)| (producer, name.unwrap_or(&made)));
    let mut changes = Changes::with_room(args.iter().skip(at + 1).map(<[u8]>::len).sum());
    if let Some(id) = named.map_or(Ok(None), |(producer, name)| stream.named(producer, name, now_ms))? {
        let tracking = stream.tracking()?.unwrap_or_default();
        changes.put_tracking(Tracking { again: tracking.again.saturating_add(1), ..tracking });
        apply(data, args.get(1), &changes)?;
        write_id(id, out);
        return Ok(());
    }
    let smaller = "ERR The ID specified in XADD is equal or smaller than the target stream top item";
    let id = wanted.settle(meta.last, now_ms).ok_or(smaller)?;
    (meta.last, meta.added) = (id, meta.added.saturating_add(1));
    let trimmed = trim.count(stream, Some(id))?;
    changes.put_meta(meta);
    remove_oldest(&trim, stream, trimmed, &mut changes)?;
    let is_asked_for = trim.references == Some(References::Forbid) && !stream.groups()?.is_empty();
    if trimmed == 0 || trimmed <= stream.len()? || is_asked_for {
        changes.put_entry(id, args.iter().skip(at + 1));
    }
    if let Some((producer, name)) = named {
        changes.put_name(stream, producer, name, id, now_ms)?;
    }
    apply(data, args.get(1), &changes)?;
    data.event(EventClass::Stream, "xadd", args.get(1));
    if trimmed > 0 {
        data.event(EventClass::Stream, "xtrim", args.get(1));
    }
    write_id(id, out);
    Ok(())
}

pub(crate) fn xadd_series(
    data: &mut Data<'_, '_>,
    requests: &[ArgsView<'_>],
    out: &mut Writer<'_>,
) -> Outcome {
    // nothing but an identifier, fields and values: XADD knows the rest
    let is_plain = |args: &ArgsView<'_>| args.len() > 4 && args.len() % 2 == 1 && args.get(2) == b"*";
    if !requests.iter().all(is_plain) {
        return Err(text::BY_ITSELF.into());
    }
    let (now_ms, key) = (data.now.unix().0, requests[0].get(1));
    let ids = add_at_end(data.access, data.db, key, requests, 3, Wanted::Any, now_ms)??;
    let ids = ids.ok_or(text::BY_ITSELF)?;
    requests.iter().for_each(|_| data.event(EventClass::Stream, "xadd", key));
    ids.into_iter().for_each(|id| write_id(id, out));
    Ok(())
}

pub(crate) fn xtrim(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (trim, _) = Trim::parse(args, false)?;
    let stream = stream_to_change(data, args.get(1))?;
    let mut changes = Changes::default();
    let trimmed = remove_oldest(&trim, stream, trim.count(stream, None)?, &mut changes)?;
    apply(data, args.get(1), &changes)?;
    if trimmed > 0 {
        data.event(EventClass::Stream, "xtrim", args.get(1));
    }
    out.integer(trimmed as i64);
    Ok(())
}

pub(crate) fn xdel(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let stream = stream_to_change(data, args.get(1))?;
    if !stream.exists() {
        out.integer(0);
        return Ok(());
    }
    let mut wanted = args.iter().skip(2).map(|id| Id::parse(id, 0)).collect::<Result<Vec<Id>, IdError>>()?;
    wanted.sort_unstable();
    wanted.dedup();
    let ids = only_those(wanted, |id| stream.has(*id))?;
    let (mut meta, mut changes) = (stream.meta()?, Changes::default());
    if let Some(last) = ids.last() {
        meta.max_deleted = meta.max_deleted.max(*last);
        changes.put_meta(meta);
    }
    ids.iter().for_each(|id| changes.delete_entry(*id));
    apply(data, args.get(1), &changes)?;
    if !ids.is_empty() {
        data.event(EventClass::Stream, "xdel", args.get(1));
    }
    out.integer(ids.len() as i64);
    Ok(())
}

pub(crate) fn xlen(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(stream(data, args.get(1))?.len()? as i64);
    Ok(())
}

/// The identifiers from `start` to `end`, both as arguments.
pub(super) fn interval(start: &[u8], end: &[u8]) -> Result<(Id, Id), Failure> {
    let (first, outside) = Id::parse_bound(start, 0)?;
    let invalid = || Failure::from("ERR invalid start ID for the interval");
    let first = if outside { first.after().ok_or_else(invalid)? } else { first };
    let (last, outside) = Id::parse_bound(end, u64::MAX)?;
    let invalid = || Failure::from("ERR invalid end ID for the interval");
    let last = if outside { last.before().ok_or_else(invalid)? } else { last };
    Ok((first, last))
}

pub(crate) fn xrange(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    range(data, args, false, out)
}

pub(crate) fn xrevrange(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    range(data, args, true, out)
}

fn range(data: &Data<'_, '_>, args: ArgsView<'_>, is_reversed: bool, out: &mut Writer<'_>) -> Outcome {
    let (start, end) = if is_reversed { (3, 2) } else { (2, 3) };
    let (first, last) = interval(args.get(start), args.get(end))?;
    let mut most = None;
    for index in (4..args.len()).step_by(2) {
        if !is(args.get(index), "count") {
            return Err(text::SYNTAX.into());
        }
        most = Some(usize::try_from(integer(option_value(args, index)?)?).unwrap_or(0));
    }
    let stream = stream(data, args.get(1))?;
    if !stream.exists() {
        out.array(0);
        return Ok(());
    }
    if most == Some(0) {
        out.null_array();
        return Ok(());
    }
    let (mut places, most) = (stream.range(first, last)?, most.unwrap_or(usize::MAX));
    let count = places.len().min(most);
    if is_reversed {
        places.start = places.end - count;
    } else {
        places.end = places.start + count;
    }
    let mut entries: Vec<Entry<'_>> =
        match part(data, args.get(1), ValueKind::Stream, stream.elements(), places.clone())? {
            Part::Here(entries) => entries.into_iter().map(Entry::of).collect(),
            Part::Large(snapshot) => {
                out.array(places.len());
                let write =
                    |element: Element<'_>, out: &mut Writer<'_>| write_entry(&Entry::of(element), out);
                data.send_rest(ChunkedReply::of_range(snapshot, &places, is_reversed, write, out.is_resp3()));
                return Ok(());
            }
        };
    if is_reversed {
        entries.reverse();
    }
    admit(data, entries.iter())?;
    out.array(entries.len());
    entries.iter().for_each(|entry| write_entry(entry, out));
    Ok(())
}

pub(crate) fn xsetid(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let last = Id::parse(args.get(2), 0)?;
    let (mut added, mut max_deleted) = (None, None);
    for index in (3..args.len()).step_by(2) {
        let (option, has_value) = (args.get(index), args.len() > index + 1);
        if has_value && is(option, "entriesadded") {
            let count = integer(args.get(index + 1))?;
            added = Some(u64::try_from(count).map_err(|_| "ERR entries_added must be positive")?);
        } else if has_value && is(option, "maxdeletedid") {
            let id = Id::parse(args.get(index + 1), 0)?;
            if last < id {
                let smaller = "smaller than the provided max_deleted_entry_id";
                return Err(format!("ERR The ID specified in XSETID is {smaller}").into());
            }
            max_deleted = Some(id);
        } else {
            return Err(text::SYNTAX.into());
        }
    }
    let stream = stream_to_change(data, args.get(1))?;
    if !stream.exists() {
        return Err(text::NO_SUCH_KEY.into());
    }
    let (mut meta, mut changes) = (stream.meta()?, Changes::default());
    if let Some(newest) = stream.last()? {
        if last < newest.id {
            return Err("ERR The ID specified in XSETID is smaller than the target stream top item".into());
        }
        let len = stream.len()? as u64;
        if added.is_some_and(|added| added < len) {
            let smaller = "smaller than the target stream length";
            return Err(format!("ERR The entries_added specified in XSETID is {smaller}").into());
        }
    }
    meta.last = last;
    meta.added = added.unwrap_or(meta.added);
    meta.max_deleted = max_deleted.filter(|id| *id != Id::MIN).unwrap_or(meta.max_deleted);
    changes.put_meta(meta);
    apply(data, args.get(1), &changes)?;
    data.event(EventClass::Stream, "xsetid", args.get(1));
    out.ok();
    Ok(())
}

/// The entries from `first` on: `most` at most, and as far as may be told.
pub(super) fn newest<'a>(
    stream: Stream<'a, '_>,
    first: Id,
    most: usize,
    left: &mut Left,
) -> Result<Vec<Entry<'a>>, Stop> {
    let mut entries = stream.from(first, most.min(left.entries))?;
    let told = entries.iter().take_while(|entry| left.take(entry)).count();
    entries.truncate(told);
    Ok(entries)
}

/// Those of which `is_wanted` is true: identifiers, and what else is known of each.
pub(super) fn only_those<T>(
    named: Vec<T>,
    is_wanted: impl Fn(&T) -> Result<bool, Stop>,
) -> Result<Vec<T>, Stop> {
    let (mut together, mut wanted) = (Together::default(), Vec::new());
    for one in named {
        if together.of(is_wanted(&one))? == Some(true) {
            wanted.push(one);
        }
    }
    together.end()?;
    Ok(wanted)
}

/// So many entries are removed by whole leaves, fewer by their keys.
const RANGE_MIN: usize = 64;
/// Entries of a node of Redis (`stream-node-max-entries`): it trims no fewer where it may trim about.
const NODE_ENTRIES: usize = 100;
