//! SLOWLOG: the newest commands that took longer than slowlog.threshold.

use commands::args::integer;
use commands::call::Outcome;
use resp::{ArgsView, Writer};

use crate::control::Control;

pub(crate) fn get(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let count = match args.try_get(2) {
        _ if args.len() > 3 => return Err(commands::failure::sub_syntax("SLOWLOG", args.get(1))),
        None => 10,
        Some(count) => match integer(count).unwrap_or(-2) {
            -1 => usize::MAX,
            count => usize::try_from(count).map_err(|_| "ERR count should be greater than or equal to -1")?,
        },
    };
    let entries = control.server.slowlog.newest(count);
    let start = out.position();
    out.array(entries.len());
    for entry in entries {
        control.admit_reply(out.position() - start)?;
        out.array(6);
        out.integer(entry.id.cast_signed());
        out.integer(entry.unix_s.cast_signed());
        out.integer(entry.micros.cast_signed());
        out.array(entry.args.len());
        entry.args.iter().for_each(|arg| out.bulk(arg));
        out.bulk(entry.address.as_bytes());
        out.bulk(&entry.name);
    }
    Ok(())
}

pub(crate) fn len(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(control.server.slowlog.len() as i64);
    Ok(())
}

pub(crate) fn reset(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    control.server.slowlog.reset();
    out.ok();
    Ok(())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "GET [<count>]",
        "    Return top <count> entries from the slowlog (default: 10, -1 mean all).",
        "    Entries are made of:",
        "    id, timestamp, time in microseconds, arguments array, client IP and port,",
        "    client name",
        "LEN",
        "    Return the length of the slowlog.",
        "RESET",
        "    Reset the slowlog.",
    ];
    commands::words::help(out, "SLOWLOG", &lines);
    Ok(())
}
