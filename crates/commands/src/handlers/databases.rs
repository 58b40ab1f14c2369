//! Whole databases: their size, and emptying and exchanging them.

use resp::{ArgsView, Writer};

use super::keys::database_pair;
use crate::args::is;
use crate::call::{Data, Outcome, text};

pub(crate) fn dbsize(data: &mut Data<'_, '_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(data.access.len(data.db)?.cast_signed());
    Ok(())
}

/// FLUSHDB and FLUSHALL are one record either way: SYNC and ASYNC make no difference.
fn check_mode(args: ArgsView<'_>) -> Outcome {
    match args.try_get(1) {
        Some(mode) if args.len() > 2 || !(is(mode, "sync") || is(mode, "async")) => Err(text::SYNTAX.into()),
        _ => Ok(()),
    }
}

pub(crate) fn flushdb(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    check_mode(args)?;
    data.access.flush(data.db)?;
    out.ok();
    Ok(())
}

pub(crate) fn flushall(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    check_mode(args)?;
    data.access.flush_all()?;
    out.ok();
    Ok(())
}

pub(crate) fn swapdb(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (first, second) = database_pair(data, args)?;
    if first != second {
        data.access.swap(first, second)?;
    }
    out.ok();
    Ok(())
}
