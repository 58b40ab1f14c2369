//! Keys of any type: whether they are there, and where.

use resp::{ArgsView, Writer};
use store::{EventClass, Stop};

use crate::args::{is, option_value, small_integer};
use crate::call::{Data, Failure, Outcome, text};
use crate::relocate::{duplicate, rename as rename_key};

pub(crate) fn del(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (mut count, keys) = (0, data.quick_keys(args, 1));
    for at in 0..keys.count {
        let at = data.turn_to(args, &keys, at);
        let was_there = data.access.remove(data.db, args.get(at))?;
        data.removed(args.get(at), was_there);
        count += i64::from(was_there);
    }
    out.integer(count);
    Ok(())
}

pub(crate) fn unlink(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    del(data, args, out)
}

pub(crate) fn exists(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    count_found(data, args, out, |data, key| Ok(data.access.meta(data.db, key)?.is_some()))
}

pub(crate) fn touch(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    count_found(data, args, out, |data, key| data.access.touch(data.db, key))
}

fn count_found(
    data: &mut Data<'_, '_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
    find: impl Fn(&Data<'_, '_>, &[u8]) -> Result<bool, Stop>,
) -> Outcome {
    let (mut count, keys) = (0, data.keys(args, 1));
    for at in 0..keys.count {
        let at = data.turn_to(args, &keys, at);
        let found = find(data, args.get(at))?;
        data.count_lookup(found, args.get(at));
        count += i64::from(found);
    }
    out.integer(count);
    Ok(())
}

pub(crate) fn type_(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let meta = data.access.meta(data.db, args.get(1))?;
    data.count_lookup(meta.is_some(), args.get(1));
    out.simple(meta.map_or("none", |meta| meta.kind.name()));
    Ok(())
}

pub(crate) fn rename(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    relocate(data, args)?;
    out.ok();
    Ok(())
}

pub(crate) fn renamenx(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if data.access.meta(data.db, args.get(1))?.is_none() {
        return Err(text::NO_SUCH_KEY.into());
    }
    let taken = data.access.meta(data.db, args.get(2))?.is_some();
    if !taken {
        relocate(data, args)?;
    }
    out.integer((!taken).into());
    Ok(())
}

fn relocate(data: &mut Data<'_, '_>, args: ArgsView<'_>) -> Outcome {
    let (from, to) = (args.get(1), args.get(2));
    let replaces = from != to && data.tells_new(data.db, to)?;
    let is_there = rename_key(data.access, data.db, from, to)?;
    if is_there && replaces {
        data.event(EventClass::New, "new", to);
    }
    if is_there && from != to {
        data.event(EventClass::Generic, "rename_from", from);
        data.event(EventClass::Generic, "rename_to", to);
    }
    if is_there { Ok(()) } else { Err(text::NO_SUCH_KEY.into()) }
}

/// The database that MOVE names, if it is a number.
pub(crate) fn move_target(args: ArgsView<'_>) -> Option<u16> {
    u16::try_from(resp::parse_i64(args.get(2))?).ok()
}

pub(crate) fn move_(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (key, target) = (args.get(1), small_integer(args.get(2))?);
    let target = database_of(data, target)?;
    if target == data.db {
        return Err(SAME_OBJECTS.into());
    }
    let from = (data.db, key);
    let possible = data.access.meta(data.db, key)?.is_some() && data.access.meta(target, key)?.is_none();
    if possible && duplicate(data.access, from, (target, key))? {
        data.access.remove(data.db, key)?;
        data.event(EventClass::Generic, "move_from", key);
        data.access.event(EventClass::Generic, "move_to", target, key);
    }
    out.integer(possible.into());
    Ok(())
}

/// Options of COPY.
fn copy_options(args: ArgsView<'_>, databases: u16) -> Result<(Option<u16>, bool), Failure> {
    let (mut target, mut replace) = (None, false);
    let mut index = 3;
    while let Some(arg) = args.try_get(index) {
        if is(arg, "replace") {
            replace = true;
        } else if is(arg, "db") {
            let number = small_integer(option_value(args, index)?)?;
            target = Some(within(number, databases)?);
            index += 1;
        } else {
            return Err(text::SYNTAX.into());
        }
        index += 1;
    }
    Ok((target, replace))
}

/// The database that COPY names, if it is one.
pub(crate) fn copy_target(args: ArgsView<'_>) -> Option<u16> {
    copy_options(args, u16::MAX).ok()?.0
}

pub(crate) fn copy(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (target, replace) = copy_options(args, data.store.databases())?;
    let target = target.unwrap_or(data.db);
    let (from, to) = ((data.db, args.get(1)), (target, args.get(2)));
    if from == to {
        return Err(SAME_OBJECTS.into());
    }
    let taken = !replace && data.access.meta(to.0, to.1)?.is_some();
    let replaces = replace && data.tells_new(to.0, to.1)?;
    let is_there =
        if taken { data.access.meta(from.0, from.1)?.is_some() } else { duplicate(data.access, from, to)? };
    data.count_lookup(is_there, args.get(1));
    if is_there && replaces {
        data.access.event(EventClass::New, "new", to.0, to.1);
    }
    if is_there && !taken {
        data.access.event(EventClass::Generic, "copy_to", to.0, to.1);
    }
    out.integer((is_there && !taken).into());
    Ok(())
}

fn database_of(data: &Data<'_, '_>, number: i32) -> Result<u16, Failure> {
    within(number, data.store.databases())
}

fn within(number: i32, databases: u16) -> Result<u16, Failure> {
    u16::try_from(number).ok().filter(|number| *number < databases).ok_or_else(|| text::DB_RANGE.into())
}

/// The two databases of SWAPDB: both must be numbers before either is looked up.
pub(crate) fn database_pair(data: &Data<'_, '_>, args: ArgsView<'_>) -> Result<(u16, u16), Failure> {
    let number =
        |index, wrong: &'static str| small_integer(args.get(index)).map_err(|_| Failure::from(wrong));
    let first = number(1, "ERR invalid first DB index")?;
    let second = number(2, "ERR invalid second DB index")?;
    Ok((database_of(data, first)?, database_of(data, second)?))
}

const SAME_OBJECTS: &str = "ERR source and destination objects are the same";
