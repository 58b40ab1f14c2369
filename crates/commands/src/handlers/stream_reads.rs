//! XREAD and XREADGROUP: entries of several streams, or a wait for them.

use std::time::Duration;

use resp::{Args, ArgsView, Writer};
use store::{Stop, ValueKind};

use super::blocking::is_kind;
use super::groups::{self, Delivered};
use super::streams::{Left, newest, stream, stream_to_change, told_bytes, write_entry};
use crate::args::{integer, is, millis};
use crate::call::{Data, Failure, Outcome, Wait, text};
use crate::ready::{Ready, Wants};
use crate::stream::Id;

/// What XREAD and XREADGROUP are asked for.
pub(super) struct Query<'a> {
    pub(super) args: ArgsView<'a>,
    /// Group and consumer.
    pub(super) reader: Option<(&'a [u8], &'a [u8])>,
    /// Entries of a stream.
    pub(super) most: usize,
    all: Left,
    pub(super) acknowledges: bool,
    /// How long entries of others must have been idle to be given to this consumer, if they are to be.
    pub(super) claims_idle_ms: Option<u64>,
    /// How long to wait, if at all; inside, `None` is for ever.
    block: Option<Option<Duration>>,
    /// The index of the first key.
    first: usize,
    /// How many keys, behind which are as many identifiers.
    pub(super) count: usize,
}

impl<'a> Query<'a> {
    fn parse(args: ArgsView<'a>, is_group: bool) -> Result<Self, Failure> {
        let mut query = Self {
            args,
            reader: None,
            most: usize::MAX,
            all: Left::all(),
            acknowledges: false,
            claims_idle_ms: None,
            block: None,
            first: 0,
            count: 0,
        };
        let mut index = 1;
        while let Some(option) = args.try_get(index) {
            let left = args.len() - index - 1;
            if is(option, "block") && left > 0 {
                query.block = Some(millis(args.get(index + 1))?);
                index += 1;
            } else if is(option, "count") && left > 0 {
                let most = integer(args.get(index + 1))?;
                query.most = usize::try_from(most).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
                index += 1;
            } else if is(option, "maxcount") && left > 0 {
                query.all.entries = positive(args.get(index + 1), "MAXCOUNT")?;
                index += 1;
            } else if is(option, "maxsize") && left > 0 {
                query.all.bytes = positive(args.get(index + 1), "MAXSIZE")?;
                index += 1;
            } else if is(option, "streams") && left > 0 {
                if !left.is_multiple_of(2) {
                    let each = "for each stream key an ID or '$' must be specified.";
                    return Err(format!("ERR Unbalanced XREAD list of streams: {each}").into());
                }
                (query.first, query.count) = (index + 1, left / 2);
                break;
            } else if is(option, "group") && left > 1 {
                if !is_group {
                    return Err(only_for_groups("GROUP"));
                }
                query.reader = Some((args.get(index + 1), args.get(index + 2)));
                index += 2;
            } else if is(option, "claim") && left > 0 {
                if !is_group {
                    return Err(only_for_groups("CLAIM"));
                }
                query.claims_idle_ms = Some(groups::idle_min(args.get(index + 1), "XREADGROUP")?);
                index += 1;
            } else if is(option, "noack") {
                if !is_group {
                    return Err(only_for_groups("NOACK"));
                }
                query.acknowledges = true;
            } else {
                return Err(text::SYNTAX.into());
            }
            index += 1;
        }
        if query.count == 0 {
            return Err(text::SYNTAX.into());
        }
        if query.most != usize::MAX && query.all.entries < query.most {
            return Err("ERR MAXCOUNT must not be less than COUNT".into());
        }
        if is_group && query.reader.is_none() {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        Ok(query)
    }

    pub(super) fn key(&self, nth: usize) -> &'a [u8] {
        self.args.get(self.first + nth)
    }

    pub(super) fn id(&self, nth: usize) -> &'a [u8] {
        self.args.get(self.first + self.count + nth)
    }

    /// Whether key number `nth` is looked at now: who waits looks at the one that changed.
    fn looks_at(&self, ready: Ready<'_>, nth: usize) -> bool {
        !matches!(ready, Ready::Changed(changed) if changed != self.key(nth))
    }

    /// The same command, with the identifiers that `$` and `+` stand for now: it is run again with them.
    fn settled(&self, after: &[Id]) -> Args {
        let texts: Vec<String> = after.iter().map(Id::to_string).collect();
        let ids = self.first + self.count;
        let word = |at: usize| match self.args.get(at) {
            b"$" | b"+" if at >= ids => texts[at - ids].as_bytes(),
            word => word,
        };
        let words: Vec<&[u8]> = (0..self.args.len()).map(word).collect();
        Args::from_slices(&words)
    }
}

fn positive(value: &[u8], option: &str) -> Result<usize, Failure> {
    let number = usize::try_from(integer(value)?).ok().filter(|number| *number > 0);
    number.ok_or_else(|| format!("ERR {option} must be a positive integer").into())
}

fn only_for_groups(option: &str) -> Failure {
    format!("ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.").into()
}

/// Answers with what was read of some streams; waits if it is nothing.
fn answer(
    data: &Data<'_, '_>,
    query: &Query<'_>,
    found: usize,
    reply: &[u8],
    wait: impl FnOnce(Option<Duration>) -> Wait,
    out: &mut Writer<'_>,
) -> Outcome {
    if found > 0 {
        match out.is_resp3() {
            true => out.map(found),
            false => out.array(found),
        }
        data.ask(reply.len())?;
        out.raw(reply);
        return Ok(());
    }
    match query.block {
        Some(timeout) if !matches!(data.ready, Ready::AnswersAtOnce) => {
            Err(Failure::Blocked(Box::new(wait(timeout))))
        }
        _ => {
            out.null_array();
            Ok(())
        }
    }
}

pub(crate) fn xread(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let query = Query::parse(args, false)?;
    let mut after = Vec::with_capacity(query.count);
    for nth in 0..query.count {
        data.turn_to_key(query.key(nth));
        let is_first_run = matches!(data.ready, Ready::AnswersAtOnce | Ready::Waits);
        if is_first_run {
            // who waits is told nothing of a key that has become of another type
            stream_to_change(data, query.key(nth))?;
        }
        after.push(match query.id(nth) {
            b"$" => stream_to_change(data, query.key(nth))?.meta()?.last,
            b"+" => {
                let stream = stream_to_change(data, query.key(nth))?;
                let before_last = stream.last()?.and_then(|entry| entry.id.before());
                before_last.map_or_else(|| Ok(stream.meta()?.last), Ok::<_, Stop>)?
            }
            b">" => {
                let only = "when calling XREADGROUP using the GROUP <group> <consumer> option.";
                return Err(format!("ERR The > ID can be specified only {only}").into());
            }
            id => Id::parse(id, 0)?,
        });
    }
    let (mut reply, mut found, mut left, ready) = (Vec::new(), 0, query.all, data.ready);
    for nth in (0..query.count).filter(|nth| query.looks_at(ready, *nth)) {
        data.turn_to_key(query.key(nth));
        if matches!(ready, Ready::Changed(_)) && !is_kind(data, query.key(nth), ValueKind::Stream)? {
            continue;
        }
        let stream = stream(data, query.key(nth))?;
        let Some(first) = after[nth].after() else { continue };
        let entries = newest(stream, first, query.most, &mut left)?;
        if entries.is_empty() {
            continue;
        }
        data.admit_reply(reply.len() + entries.iter().map(told_bytes).sum::<usize>())?;
        let mut writer = Writer::new(&mut reply, out.is_resp3());
        begin_stream(query.key(nth), entries.len(), &mut writer);
        entries.iter().for_each(|entry| write_entry(entry, &mut writer));
        found += 1;
    }
    let wait = |timeout| {
        let again = Some(query.settled(&after));
        Wait { timeout, wants: Wants::Own, again, ripe_in: None }
    };
    answer(data, &query, found, &reply, wait, out)
}

/// Begins what is told of a stream: a pair, or in RESP3 a key with its value.
fn begin_stream(key: &[u8], entries: usize, out: &mut Writer<'_>) {
    if !out.is_resp3() {
        out.array(2);
    }
    out.bulk(key);
    out.array(entries);
}

pub(crate) fn xreadgroup(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (query, ready) = (Query::parse(args, true)?, data.ready);
    let mut checked = None;
    for nth in (0..query.count).filter(|nth| query.looks_at(ready, *nth)) {
        data.turn_to_key(query.key(nth));
        let group = groups::check_read(data, &query, nth)?;
        // a stream that is named twice has changed when it is read again
        checked = if query.count == 1 { Some(group) } else { None };
    }
    let (mut reply, mut found, mut left) = (Vec::new(), 0, query.all);
    let mut ripe_in: Option<Duration> = None;
    for nth in (0..query.count).filter(|nth| query.looks_at(ready, *nth)) {
        data.turn_to_key(query.key(nth));
        let mut entries = Vec::new();
        let mut writer = Writer::new(&mut entries, out.is_resp3());
        let count = match groups::read_group(data, &query, nth, &mut left, checked, &mut writer)? {
            Delivered::Entries(count) => count,
            Delivered::Nothing { ripe_in: of_key } => {
                ripe_in = ripe_in.into_iter().chain(of_key).min();
                continue;
            }
        };
        begin_stream(query.key(nth), count, &mut Writer::new(&mut reply, out.is_resp3()));
        reply.extend_from_slice(&entries);
        found += 1;
        data.admit_reply(reply.len())?;
    }
    let wait = |timeout| {
        let wants = match (query.claims_idle_ms, query.reader) {
            (None, Some((group, _))) => Wants::New(group.into()),
            _ => Wants::Own,
        };
        Wait { timeout, wants, again: None, ripe_in }
    };
    answer(data, &query, found, &reply, wait, out)
}
