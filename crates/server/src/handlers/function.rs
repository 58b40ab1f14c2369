//! FUNCTION: there are none yet, and every answer says so truthfully.

use resp::{ArgsView, Writer};

use super::args::{is, shown};
use crate::call::{Failure, Outcome};
use crate::control::Control;

pub(crate) fn flush(_control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    match args.try_get(2) {
        _ if args.len() > 3 => Err(crate::errors::sub_syntax("FUNCTION", args.get(1))),
        Some(mode) if !(is(mode, "sync") || is(mode, "async")) => {
            Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into())
        }
        _ => {
            out.ok();
            Ok(())
        }
    }
}

pub(crate) fn list(_control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let mut index = 2;
    while let Some(arg) = args.try_get(index) {
        index += match arg {
            _ if is(arg, "withcode") => 1,
            _ if is(arg, "libraryname") && args.len() > index + 1 => 2,
            _ if is(arg, "libraryname") => return Err("ERR library name argument was not given".into()),
            _ => return Err(Failure::Bytes([b"ERR Unknown argument ", arg].concat())),
        };
    }
    out.array(0);
    Ok(())
}

pub(crate) fn delete(_control: &mut Control<'_>, _args: ArgsView<'_>, _out: &mut Writer<'_>) -> Outcome {
    Err("ERR Library not found".into())
}

pub(crate) fn dump(_control: &mut Control<'_>, args: ArgsView<'_>, _out: &mut Writer<'_>) -> Outcome {
    Err(format!("ERR {} is not supported: there are no functions yet", shown(args.get(1))).into())
}

pub(crate) fn kill(_control: &mut Control<'_>, _args: ArgsView<'_>, _out: &mut Writer<'_>) -> Outcome {
    Err("NOTBUSY No scripts in execution right now.".into())
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
        "KILL",
        "    Kill the current running function. There is none.",
        "LIST",
        "    Return general information on all the libraries.",
        "STATS",
        "    Return information about the current function running.",
    ];
    super::help(out, "FUNCTION", &lines);
    Ok(())
}
