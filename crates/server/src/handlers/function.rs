//! FUNCTION: there are none yet, and every answer says so truthfully.

use resp::{ArgsView, Writer};

use super::args::{is, shown};
use crate::call::{Control, Outcome};

pub(crate) fn flush(_control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    match args.try_get(2) {
        Some(mode) if args.len() > 3 || !(is(mode, "sync") || is(mode, "async")) => {
            Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into())
        }
        _ => {
            out.ok();
            Ok(())
        }
    }
}

pub(crate) fn list(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.array(0);
    Ok(())
}

pub(crate) fn delete(_control: &mut Control<'_>, _args: ArgsView<'_>, _out: &mut Writer<'_>) -> Outcome {
    Err("ERR Library not found".into())
}

pub(crate) fn dump(_control: &mut Control<'_>, args: ArgsView<'_>, _out: &mut Writer<'_>) -> Outcome {
    Err(format!("ERR {} is not supported: there are no functions yet", shown(args.get(1))).into())
}

pub(crate) fn stats(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.map(2);
    out.bulk(b"running_script");
    out.null();
    out.bulk(b"engines");
    out.map(0);
    Ok(())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries. There are none yet.",
        "LIST",
        "    Return general information on all the libraries.",
        "STATS",
        "    Return information about the current function running.",
    ];
    super::help(out, "FUNCTION", &lines);
    Ok(())
}
