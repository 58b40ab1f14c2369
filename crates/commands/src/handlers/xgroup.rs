//! XGROUP: groups of consumers are made, changed and removed.

use resp::{ArgsView, Writer};
use store::EventClass;

use super::groups::pending_at;
use super::streams::{apply, stream_to_change};
use crate::args::{integer, is, shown};
use crate::call::{Data, Failure, Outcome};
use crate::stream::{Changes, Consumer, Group, Id, Stream};

/// The stream and the group that a subcommand of XGROUP changes.
fn group_of<'a, 's>(
    data: &'a Data<'_, 's>,
    args: ArgsView<'_>,
) -> Result<(Stream<'a, 's>, Option<Group>), Failure> {
    let stream = stream_to_change(data, args.get(2))?;
    if !stream.exists() {
        let hint = "Note that for CREATE you may want to use the MKSTREAM option to create an empty stream automatically.";
        return Err(format!("ERR The XGROUP subcommand requires the key to exist. {hint}").into());
    }
    Ok((stream, stream.group(args.get(3))?))
}

/// As [`no_group`], of XGROUP and XINFO.
pub(super) fn no_consumer_group(args: ArgsView<'_>) -> Failure {
    let (key, group) = (shown(args.get(2)), shown(args.get(3)));
    format!("NOGROUP No such consumer group '{group}' for key name '{key}'").into()
}

fn wrong_words(args: ArgsView<'_>) -> Failure {
    let sub = shown(args.get(1));
    format!("ERR unknown subcommand or wrong number of arguments for '{sub}'. Try XGROUP HELP.").into()
}

/// ENTRIESREAD at `index`; inside, `None`: not known.
fn entries_read(args: ArgsView<'_>, index: usize) -> Result<Option<u64>, Failure> {
    match integer(args.get(index + 1))? {
        -1 => Ok(None),
        number => {
            let negative = "ERR value for ENTRIESREAD must be positive or -1";
            Ok(Some(u64::try_from(number).map_err(|_| negative)?))
        }
    }
}

/// MKSTREAM, where it may be, and ENTRIESREAD.
fn group_options(args: ArgsView<'_>, creates: bool) -> Result<(bool, Option<u64>), Failure> {
    let (mut makes_stream, mut read, mut index) = (false, None, 5);
    while let Some(option) = args.try_get(index) {
        if creates && is(option, "mkstream") {
            makes_stream = true;
            index += 1;
        } else if is(option, "entriesread") && args.len() > index + 1 {
            read = entries_read(args, index)?;
            index += 2;
        } else {
            return Err(wrong_words(args));
        }
    }
    Ok((makes_stream, read))
}

pub(crate) fn xgroup_create(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (makes_stream, read) = group_options(args, true)?;
    let (key, name) = (args.get(2), args.get(3));
    let stream = stream_to_change(data, key)?;
    if !makes_stream {
        group_of(data, args)?;
    }
    let mut changes = Changes::default();
    let last_delivered = match args.get(4) {
        b"$" => stream.meta()?.last,
        id => Id::parse(id, 0)?,
    };
    if !stream.exists() {
        changes.put_meta(stream.meta()?);
    }
    if stream.group(name)?.is_some() {
        return Err("BUSYGROUP Consumer Group name already exists".into());
    }
    changes.put_group(name, Group { last_delivered, read });
    apply(data, key, &changes)?;
    data.event(EventClass::Stream, "xgroup-create", key);
    out.ok();
    Ok(())
}

pub(crate) fn xgroup_setid(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (_, read) = group_options(args, false)?;
    if !matches!(args.len(), 5 | 7) {
        return Err(wrong_words(args));
    }
    let (stream, group) = group_of(data, args)?;
    if group.is_none() {
        return Err(no_consumer_group(args));
    }
    let last_delivered = match args.get(4) {
        b"$" => stream.meta()?.last,
        b"-" => Id::MIN,
        b"+" => Id::MAX,
        id => Id::parse(id, 0)?,
    };
    let mut changes = Changes::default();
    changes.put_group(args.get(3), Group { last_delivered, read });
    apply(data, args.get(2), &changes)?;
    data.event(EventClass::Stream, "xgroup-setid", args.get(2));
    out.ok();
    Ok(())
}

pub(crate) fn xgroup_destroy(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (stream, group) = group_of(data, args)?;
    let mut changes = Changes::default();
    let is_there = group.is_some();
    if is_there {
        changes.delete_group(stream, args.get(3))?;
    }
    apply(data, args.get(2), &changes)?;
    if is_there {
        data.event(EventClass::Stream, "xgroup-destroy", args.get(2));
    }
    out.integer(is_there.into());
    Ok(())
}

pub(crate) fn xgroup_createconsumer(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Outcome {
    let now_ms = data.now.unix().0;
    let (stream, group) = group_of(data, args)?;
    if group.is_none() {
        return Err(no_consumer_group(args));
    }
    let (group, consumer) = (args.get(3), args.get(4));
    let is_new = stream.consumer(group, consumer)?.is_none();
    let mut changes = Changes::default();
    if is_new {
        changes.put_consumer(group, consumer, Consumer { seen_ms: now_ms, active_ms: 0 });
    }
    apply(data, args.get(2), &changes)?;
    if is_new {
        data.event(EventClass::Stream, "xgroup-createconsumer", args.get(2));
    }
    out.integer(is_new.into());
    Ok(())
}

pub(crate) fn xgroup_delconsumer(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Outcome {
    let (stream, group) = group_of(data, args)?;
    if group.is_none() {
        return Err(no_consumer_group(args));
    }
    let (group, consumer) = (args.get(3), args.get(4));
    let (mut changes, mut count) = (Changes::default(), 0);
    let is_there = stream.consumer(group, consumer)?.is_some();
    if is_there {
        let mut left = pending_at(stream, group, consumer)?;
        for it in stream.pending_from(group, Id::MIN)? {
            let (id, pending) = it?;
            if left == 0 {
                break;
            }
            if pending.is_of(consumer) {
                changes.delete_pending(group, id);
                (count, left) = (count + 1, left - 1);
            }
        }
        changes.delete_consumer(group, consumer);
    }
    apply(data, args.get(2), &changes)?;
    if is_there {
        data.event(EventClass::Stream, "xgroup-delconsumer", args.get(2));
    }
    out.integer(count);
    Ok(())
}

pub(crate) fn xgroup_help(_data: &mut Data<'_, '_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "CREATE <key> <groupname> <id|$> [option]",
        "    Create a new consumer group. Options are:",
        "    * MKSTREAM",
        "      Create the empty stream if it does not exist.",
        "    * ENTRIESREAD entries_read",
        "      Set the group's entries_read counter (internal use).",
        "CREATECONSUMER <key> <groupname> <consumer>",
        "    Create a new consumer in the specified group.",
        "DELCONSUMER <key> <groupname> <consumer>",
        "    Remove the specified consumer.",
        "DESTROY <key> <groupname>",
        "    Remove the specified group.",
        "SETID <key> <groupname> <id|$> [ENTRIESREAD entries_read]",
        "    Set the current group ID and entries_read counter.",
    ];
    crate::words::help(out, "XGROUP", &lines);
    Ok(())
}
