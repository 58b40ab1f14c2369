//! DEBUG: the few parts of it that tests of client libraries use.

use std::sync::atomic::Ordering;
use std::time::Duration;

use commands::call::{Data, Failure, Outcome, text};
use commands::encoding_of;
use commands::glob::Pattern;
use resp::{ArgsView, Writer};

use crate::control::Control;

/// Answers later. Only this connection waits: a loop never sleeps.
pub(crate) fn sleep(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let seconds = std::str::from_utf8(args.get(2)).ok().and_then(|text| text.parse::<f64>().ok());
    let seconds = seconds.ok_or(text::NOT_FLOAT)?.clamp(0.0, SLEEP_SECONDS_MAX);
    if seconds > 0.0 && !control.in_exec {
        let now = control.now;
        let pending = control.session.pending.get_or_insert_default();
        let until = *pending.until.get_or_insert(now + Duration::from_secs_f64(seconds));
        if until > now {
            return Err(Failure::Wait(until));
        }
    }
    out.ok();
    Ok(())
}

pub(crate) fn object(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let found = data.access.get(data.db, args.get(2))?.ok_or(text::NO_SUCH_KEY)?;
    out.simple(&format!(
        "Value at:0x0 refcount:1 encoding:{} serializedlength:{} lru:0 lru_seconds_idle:0 seq:{}",
        encoding_of(&found, &data.limits.small),
        found.value.len(),
        found.seq.0
    ));
    Ok(())
}

pub(crate) fn set_active_expire(
    control: &mut Control<'_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Outcome {
    let on = args.get(2) != b"0";
    control.server.active_expiry.store(on, Ordering::Relaxed);
    control.server.store.set_active_expiry(on);
    out.ok();
    Ok(())
}

/// In Redis this saves and loads everything; here what is served is what is saved.
pub(crate) fn reload(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.ok();
    Ok(())
}

/// Answers with an error of the caller's words: client libraries test with it what they make of errors.
pub(crate) fn error(_control: &mut Control<'_>, args: ArgsView<'_>, _out: &mut Writer<'_>) -> Outcome {
    let words = args.get(2).iter().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte });
    Err(Failure::Bytes(words.collect()))
}

/// Whether a string of `a`, so many times, matches the pattern: with Redis a trial of its matcher on long texts.
pub(crate) fn stringmatch_len(
    _control: &mut Control<'_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Outcome {
    let len =
        resp::parse_i64(args.get(2)).and_then(|len| usize::try_from(len).ok()).ok_or(text::NOT_INTEGER)?;
    if len > STRING_BYTES_MAX {
        return Err(format!("ERR the length {len} is more than {STRING_BYTES_MAX}").into());
    }
    let pattern = Pattern::new(args.get(3), false).map_err(|error| Failure::from(format!("ERR {error}")))?;
    out.integer(pattern.matches(&vec![b'a'; len], &mut 0).into());
    Ok(())
}

/// There is no jemalloc whose state it could show.
pub(crate) fn jmap(_control: &mut Control<'_>, _args: ArgsView<'_>, _out: &mut Writer<'_>) -> Outcome {
    Err("ERR Internal allocator statistics are not available: this server does not use jemalloc; see MEMORY STATS".into())
}

/// There is no replication whose identifier it could change.
pub(crate) fn change_repl_id(
    _control: &mut Control<'_>,
    _args: ArgsView<'_>,
    _out: &mut Writer<'_>,
) -> Outcome {
    Err("ERR there is no replication ID to change: this server has no replicas".into())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "CHANGE-REPL-ID",
        "    Refused: there is no replication.",
        "DIGEST",
        "    Output a hex signature representing the current DB content; not that of Redis.",
        "DIGEST-VALUE <key> [<key> ...]",
        "    Output a hex signature of the values of all the specified keys.",
        "ERROR <string>",
        "    Return a Redis protocol error with <string> as message. Useful for clients",
        "    unit tests to simulate Redis errors.",
        "JMAP",
        "    Refused: the server does not use jemalloc.",
        "OBJECT <key>",
        "    Show low level info about `key` and associated value.",
        "RELOAD",
        "    Answer OK: what is served is what is saved.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Setting it to 0 disables expiring keys in background when they are not",
        "    accessed (otherwise the behavior). Setting it to 1 reenables back the",
        "    default.",
        "SLEEP <seconds>",
        "    Answer after <seconds>. Other connections go on. Decimals allowed.",
        "STRINGMATCH-LEN <len> <pattern>",
        "    Whether <len> times the letter `a` matches <pattern>.",
    ];
    commands::words::help(out, "DEBUG", &lines);
    Ok(())
}

/// A string to match: it takes some milliseconds.
const STRING_BYTES_MAX: usize = 1 << 20;
/// An hour.
const SLEEP_SECONDS_MAX: f64 = 3_600.0;
