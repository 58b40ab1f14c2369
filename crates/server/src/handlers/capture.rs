//! CAPTURE START and STOP: a capture of all traffic, streamed to the connection that asks for it.
//!
//! The reply to START is the beginning of the file, a bulk string; each chunk follows as a bulk string of its own, without being
//! asked for, and the last one is the end. The connection may be used meanwhile, but who tells replies from chunks is the client.

use capture::Ending;
use commands::args::{integer, is};
use commands::call::{Failure, Outcome, text};
use resp::{ArgsView, Writer};

use crate::capture::what::Wanted;
use crate::control::Control;

pub(crate) fn start(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let wanted = wanted(args)?;
    let header =
        control.server.captures.start(&control.session.client, wanted, control.now).map_err(|id| {
            Failure::from(format!("ERR client {id} captures already: CAPTURE STOP ends that"))
        })?;
    tracing::info!(
        client = control.session.client.address(),
        keys = if wanted.hashes_keys { "hashed" } else { "plain" },
        values = wanted.keeps_values,
        "capture started"
    );
    out.bulk(&header);
    Ok(())
}

pub(crate) fn stop(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let hold = control.hold();
    if !control.server.captures.stop(Ending::Stopped, Some(hold)) {
        return Err("ERR nothing is captured".into());
    }
    out.ok();
    Ok(())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "START [KEYS <HASHED|PLAIN>] [VALUES] [BYTES <max>]",
        "    Streams what all clients send to this connection, keys hashed and values by size.",
        "STOP",
        "    Ends the capture that runs.",
    ];
    commands::words::help(out, "CAPTURE", &lines);
    Ok(())
}

fn wanted(args: ArgsView<'_>) -> Result<Wanted, Failure> {
    let mut wanted = Wanted { hashes_keys: true, keeps_values: false, bytes_max: u64::MAX };
    let mut index = 2;
    while let Some(option) = args.try_get(index) {
        let value = args.try_get(index + 1);
        index += 2;
        match value {
            _ if is(option, "values") => {
                wanted.keeps_values = true;
                index -= 1;
            }
            Some(value) if is(option, "keys") && is(value, "hashed") => wanted.hashes_keys = true,
            Some(value) if is(option, "keys") && is(value, "plain") => wanted.hashes_keys = false,
            Some(value) if is(option, "bytes") => {
                let bytes = u64::try_from(integer(value)?).ok().filter(|bytes| *bytes >= BYTES_LEAST);
                wanted.bytes_max = bytes.ok_or("ERR BYTES must be at least 65536")?;
            }
            _ => return Err(text::SYNTAX.into()),
        }
    }
    Ok(wanted)
}

/// Room for the header and a few chunks.
const BYTES_LEAST: u64 = 64 << 10;
