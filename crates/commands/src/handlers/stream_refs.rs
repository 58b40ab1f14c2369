//! Entries of streams with what is pending of them: XDELEX, XACKDEL, XNACK; and XCFGSET.

use std::collections::HashSet;

use resp::{ArgsView, Writer};
use store::Stop;

use super::groups::no_group;
use super::streams::{References, apply, stream_to_change};
use super::together::Together;
use crate::args::{count, integer, is, option_value};
use crate::call::{Data, Failure, Outcome, text};
use crate::stream::{Changes, Id, IdError, Pending, Stream};

/// The identifiers behind the word IDS at argument `at` and their number; returns the index behind them.
fn ids(args: ArgsView<'_>, at: usize) -> Result<(Vec<Id>, usize), Failure> {
    let positive = "ERR Number of IDs must be a positive integer";
    let count = count(option_value(args, at)?, positive)?;
    if count == 0 {
        return Err(positive.into());
    }
    if count > args.len() - at - 2 {
        return Err("ERR The `numids` parameter must match the number of arguments".into());
    }
    let ids = args.iter().skip(at + 2).take(count).map(|id| Id::parse(id, 0));
    Ok((ids.collect::<Result<Vec<Id>, IdError>>()?, at + 2 + count))
}

/// What XDELEX and XACKDEL ask for, from argument `index` on.
fn parse_deletion(args: ArgsView<'_>, mut index: usize) -> Result<(References, Vec<Id>), Failure> {
    let (mut references, mut wanted) = (None, None);
    while let Some(option) = args.try_get(index) {
        if let Some(found) = References::of(option).filter(|_| references.is_none()) {
            references = Some(found);
            index += 1;
        } else if is(option, "ids") && wanted.is_none() {
            let (found, behind) = ids(args, index)?;
            (wanted, index) = (Some(found), behind);
        } else {
            return Err(text::SYNTAX.into());
        }
    }
    Ok((references.unwrap_or(References::Stay), wanted.ok_or(text::SYNTAX)?))
}

/// What is told of an entry that is to be deleted.
const NO_ENTRY: i64 = -1;
const DELETED: i64 = 1;
const STILL_REFERRED_TO: i64 = 2;

/// Deletes entries; each once.
struct Deletion<'a, 's> {
    stream: Stream<'a, 's>,
    references: References,
    seen: HashSet<[u8; 16]>,
    last: Option<Id>,
    changes: Changes,
    together: Together,
}

impl<'a, 's> Deletion<'a, 's> {
    fn new(stream: Stream<'a, 's>, references: References) -> Self {
        let (changes, together) = (Changes::default(), Together::default());
        Self { stream, references, seen: HashSet::new(), last: None, changes, together }
    }

    /// Deletes the entry `id` if it may go; what `acknowledged` has of it is pending no more.
    fn delete(&mut self, id: Id, acknowledged: Option<&[u8]>) -> Result<i64, Stop> {
        let (stream, mut groups) = (self.stream, self.stream.groups()?);
        if !self.seen.insert(id.bytes()) {
            return Ok(NO_ENTRY);
        }
        groups.retain(|(name, _)| Some(*name) != acknowledged);
        if self.references == References::Go {
            self.together.of(self.changes.delete_references(stream, &groups, id))?;
        }
        if self.together.of(stream.has(id))? == Some(false) {
            return Ok(NO_ENTRY);
        }
        if self.references == References::Forbid
            && self.together.of(stream.is_done_with(&groups, id))? == Some(false)
        {
            return Ok(STILL_REFERRED_TO);
        }
        self.changes.delete_entry(id);
        self.last = self.last.max(Some(id));
        Ok(DELETED)
    }

    /// What is changed, with what the stream remembers of it.
    fn end(mut self) -> Result<Changes, Stop> {
        self.together.end()?;
        if let Some(last) = self.last {
            let mut meta = self.stream.meta()?;
            meta.max_deleted = meta.max_deleted.max(last);
            self.changes.put_meta(meta);
        }
        Ok(self.changes)
    }
}

fn write_integers(answers: &[i64], out: &mut Writer<'_>) {
    out.array(answers.len());
    answers.iter().for_each(|answer| out.integer(*answer));
}

pub(crate) fn xdelex(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (references, ids) = parse_deletion(args, 2)?;
    let mut deletion = Deletion::new(stream_to_change(data, args.get(1))?, references);
    let answers = ids.into_iter().map(|id| deletion.delete(id, None)).collect::<Result<Vec<i64>, Stop>>()?;
    let changes = deletion.end()?;
    apply(data, args.get(1), &changes)?;
    write_integers(&answers, out);
    Ok(())
}

pub(crate) fn xackdel(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (references, ids) = parse_deletion(args, 3)?;
    let group = args.get(2);
    let stream = stream_to_change(data, args.get(1))?;
    let mut deletion = Deletion::new(stream, references);
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        let pending = deletion.together.of(stream.pending(group, id))?;
        let is_pending =
            pending.is_none_or(|pending| pending.is_some()) && !deletion.seen.contains(&id.bytes());
        if is_pending {
            deletion.changes.delete_pending(group, id);
            answers.push(deletion.delete(id, Some(group))?);
        } else {
            if references == References::Go {
                let groups = stream.groups()?;
                deletion.together.of(deletion.changes.delete_references(stream, &groups, id))?;
            }
            answers.push(NO_ENTRY);
        }
    }
    let changes = deletion.end()?;
    apply(data, args.get(1), &changes)?;
    write_integers(&answers, out);
    Ok(())
}

/// What XNACK does with the number of deliveries.
#[derive(Clone, Copy, Debug)]
enum Nack {
    Silent,
    Fail,
    Fatal,
    Times(u64),
}

impl Nack {
    fn parse(word: &[u8]) -> Result<Self, Failure> {
        match word {
            _ if is(word, "silent") => Ok(Self::Silent),
            _ if is(word, "fail") => Ok(Self::Fail),
            _ if is(word, "fatal") => Ok(Self::Fatal),
            _ => Err(text::SYNTAX.into()),
        }
    }

    fn of(self, times: u64) -> u64 {
        match self {
            Self::Silent => times.saturating_sub(1),
            Self::Fail => times,
            Self::Fatal => i64::MAX.unsigned_abs(),
            Self::Times(times) => times,
        }
    }
}

pub(crate) fn xnack(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (key, group) = (args.get(1), args.get(2));
    let mut nack = Nack::parse(args.get(3))?;
    if !is(args.get(4), "ids") {
        return Err(text::SYNTAX.into());
    }
    let ((ids, mut index), mut forces) = (ids(args, 4)?, false);
    while let Some(option) = args.try_get(index) {
        if is(option, "force") {
            forces = true;
            index += 1;
        } else if is(option, "retrycount") {
            let times = integer(option_value(args, index)?)?;
            nack = Nack::Times(u64::try_from(times).map_err(|_| text::NOT_POSITIVE)?);
            index += 2;
        } else {
            return Err(text::SYNTAX.into());
        }
    }
    let stream = stream_to_change(data, key)?;
    if stream.group(group)?.is_none() {
        return Err(no_group(key, group, ""));
    }
    let (mut together, mut changes, mut seen) = (Together::default(), Changes::default(), HashSet::new());
    for id in ids {
        let known = together.of(stream.pending(group, id))?.flatten();
        let is_there = known.is_some() || (forces && together.of(stream.has(id))? == Some(true));
        if is_there && seen.insert(id.bytes()) {
            let times = nack.of(known.map_or(0, |known| known.times));
            changes.put_pending(group, id, Pending { consumer: Vec::new(), delivered_ms: 0, times });
        }
    }
    together.end()?;
    apply(data, key, &changes)?;
    out.integer(seen.len() as i64);
    Ok(())
}

pub(crate) fn xcfgset(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (mut seconds, mut most) = (None, None);
    for index in (2..args.len()).step_by(2) {
        let (option, value) = (args.get(index), option_value(args, index)?);
        let within = |most: u64, invalid: &'static str| {
            let number = resp::parse_i64(value).and_then(|number| u64::try_from(number).ok());
            number.filter(|number| (1..=most).contains(number)).ok_or_else(|| Failure::from(invalid))
        };
        if is(option, "idmp-duration") && seconds.is_none() {
            seconds = Some(within(86_400, "ERR invalid duration")?);
        } else if is(option, "idmp-maxsize") && most.is_none() {
            most = Some(within(10_000, "ERR invalid maxsize")?);
        } else {
            return Err(text::SYNTAX.into());
        }
    }
    if seconds.is_none() && most.is_none() {
        return Err(text::SYNTAX.into());
    }
    let stream = stream_to_change(data, args.get(1))?;
    if !stream.exists() {
        return Err(text::NO_SUCH_KEY.into());
    }
    let (mut changes, former) = (Changes::default(), stream.tracking()?.unwrap_or_default());
    let mut tracking = former;
    tracking.seconds = seconds.unwrap_or(tracking.seconds);
    tracking.most = most.unwrap_or(tracking.most);
    if tracking != former {
        changes.delete_names(stream)?;
    }
    changes.put_tracking(tracking);
    apply(data, args.get(1), &changes)?;
    out.ok();
    Ok(())
}
