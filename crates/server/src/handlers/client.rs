//! CLIENT: what is known of connections, and what they may ask for themselves. Killing them is in `kill`.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use commands::args::{integer, is, shown, small_integer};
use commands::call::{Failure, Outcome, text};
use resp::{ArgsView, Writer};

use crate::blocked;
use crate::clients::{Client, Labels};
use crate::control::Control;
use crate::describe::describe;
use crate::message::Message;
use crate::server::Server;
use crate::session::{Replies, Session};

pub(crate) fn id(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(control.session.client.id.cast_signed());
    Ok(())
}

pub(crate) fn info(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let line = describe(&control.session.client, control.server.table, control.now);
    out.verbatim(*b"txt", &[line.as_slice(), b"\n"].concat());
    Ok(())
}

pub(crate) fn list(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let clients = match args.try_get(2) {
        None => control.server.clients.all(),
        Some(option) if is(option, "type") && args.len() == 4 => {
            let kind = client_type(args.get(3))?;
            let all = control.server.clients.all();
            all.into_iter().filter(|client| client.kind() == kind).collect()
        }
        Some(option) if is(option, "id") && args.len() > 3 => {
            let mut found = Vec::new();
            for arg in args.iter().skip(3) {
                let id = u64::try_from(integer(arg).map_err(|_| "ERR Invalid client ID")?);
                found.extend(id.ok().and_then(|id| control.server.clients.find(id)));
            }
            found
        }
        Some(_) => return Err(text::SYNTAX.into()),
    };
    let mut lines = Vec::new();
    for client in clients {
        lines.extend_from_slice(&describe(&client, control.server.table, control.now));
        lines.push(b'\n');
        control.admit_reply(lines.len())?;
    }
    out.verbatim(*b"txt", &lines);
    Ok(())
}

/// One of the four kinds of clients; there are only two of them here.
pub(crate) fn client_type(arg: &[u8]) -> Result<&'static str, Failure> {
    [
        ("normal", "normal"),
        ("pubsub", "pubsub"),
        ("replica", "replica"),
        ("slave", "replica"),
        ("master", "master"),
    ]
    .into_iter()
    .find_map(|(word, kind)| is(arg, word).then_some(kind))
    .ok_or_else(|| format!("ERR Unknown client type '{}'", shown(arg)).into())
}

pub(crate) fn getname(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let name = control.session.client.labels().name;
    out.bulk_or_null(Some(&*name).filter(|name| !name.is_empty()));
    Ok(())
}

pub(crate) fn setname(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    set_name(control.session, args.get(2))?;
    out.ok();
    Ok(())
}

/// Names the client; also for HELLO.
pub(crate) fn set_name(session: &Session, name: &[u8]) -> Outcome {
    check_name(name)?;
    session.client.relabel(|labels| labels.name = name.into());
    Ok(())
}

/// Refuses what no client may be called.
pub(crate) fn check_name(name: &[u8]) -> Outcome {
    check_label(name, "Client names")
}

/// What stands in a line of CLIENT LIST must not break it.
fn check_label(label: &[u8], what: &str) -> Outcome {
    if label.len() > LABEL_BYTES_MAX {
        return Err(format!("ERR {what} cannot be longer than {LABEL_BYTES_MAX} bytes.").into());
    }
    if label.iter().any(|byte| !(b'!'..=b'~').contains(byte)) {
        let text = format!("ERR {what} cannot contain spaces, newlines or special characters.");
        return Err(text.into());
    }
    Ok(())
}

pub(crate) fn setinfo(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (option, value) = (args.get(2), args.get(3));
    let label: fn(&mut Labels) -> &mut Box<[u8]> = match option {
        _ if is(option, "lib-name") => |labels| &mut labels.lib_name,
        _ if is(option, "lib-ver") => |labels| &mut labels.lib_ver,
        _ => return Err(format!("ERR Unrecognized option '{}'", shown(option)).into()),
    };
    check_label(value, &shown(option).to_ascii_lowercase())?;
    control.session.client.relabel(|labels| *label(labels) = value.into());
    out.ok();
    Ok(())
}

pub(crate) fn pause(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let all = match args.try_get(3) {
        _ if args.len() > 4 => return Err(commands::failure::sub_syntax("CLIENT", args.get(1))),
        None => true,
        Some(mode) if is(mode, "all") => true,
        Some(mode) if is(mode, "write") => false,
        Some(_) => return Err("ERR CLIENT PAUSE mode must be WRITE or ALL".into()),
    };
    let millis = integer(args.get(2)).map_err(|_| "ERR timeout is not an integer or out of range")?;
    let millis = u64::try_from(millis).map_err(|_| "ERR timeout is negative")?;
    let until = control.now + Duration::from_millis(millis.min(PAUSE_MS_MAX));
    control.server.pause.start(until, all, control.now);
    // What was admitted before is over when the reply leaves.
    let hold = control.wait_for_callbacks();
    control.server.long.wait_for_begun(&hold, all);
    out.ok();
    Ok(())
}

pub(crate) fn unpause(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    for id in control.server.pause.end() {
        control.server.peers.post(id, Message::Retry);
    }
    out.ok();
    Ok(())
}

pub(crate) fn reply(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let mode = args.get(2);
    if is(mode, "on") {
        control.session.replies = Replies::On;
        out.ok();
    } else if is(mode, "off") {
        control.session.replies = Replies::Off;
    } else if is(mode, "skip") {
        if control.session.replies != Replies::Off {
            control.session.replies = Replies::SkipNext;
        }
    } else {
        return Err(text::SYNTAX.into());
    }
    Ok(())
}

fn switch(args: ArgsView<'_>, flag: &AtomicBool, out: &mut Writer<'_>) -> Outcome {
    let on = match args.get(2) {
        mode if is(mode, "on") => true,
        mode if is(mode, "off") => false,
        _ => return Err(text::SYNTAX.into()),
    };
    flag.store(on, Ordering::Relaxed);
    out.ok();
    Ok(())
}

pub(crate) fn no_evict(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    switch(args, &control.session.client.no_evict, out)
}

pub(crate) fn no_touch(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    switch(args, &control.session.client.no_touch, out)
}

pub(crate) fn unblock(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let with_error = match args.try_get(3) {
        _ if args.len() > 4 => return Err(commands::failure::sub_syntax("CLIENT", args.get(1))),
        None => false,
        Some(mode) if is(mode, "timeout") => false,
        Some(mode) if is(mode, "error") => true,
        Some(_) => return Err("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR".into()),
    };
    let id = u64::try_from(integer(args.get(2))?).unwrap_or(0);
    let client = control.server.clients.find(id);
    let ended = match client {
        None => false,
        Some(client) => match end_wait(control.server, &client, with_error) {
            // what it has found is its own if nobody can wait for that
            None if control.in_exec => false,
            None => return Err(Failure::Wait(control.now + UNBLOCK_RETRY)),
            Some(ended) => ended,
        },
    };
    out.integer(ended.into());
    Ok(())
}

/// Ends the wait of a client, if it waits for others, and has it answered; whether it did, or `None` if that is not known yet.
fn end_wait(server: &Server, client: &Client, with_error: bool) -> Option<bool> {
    match blocked::unblock(server, client, with_error) {
        Some(false) => {}
        known => return known,
    }
    let waited = client.in_wait.swap(false, Ordering::Relaxed);
    if waited {
        client.blocked.store(false, Ordering::Relaxed);
        server.peers.post(client.id, Message::Unblock(with_error));
    }
    Some(waited)
}

/// `CLIENT MOVE id loop`: ours, for operators and for tests of the balancer's mechanism. OK says that the order is given; a
/// newer one replaces one that has not been followed yet.
pub(crate) fn move_(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let id = u64::try_from(integer(args.get(2))?).map_err(|_| "ERR Invalid client ID")?;
    let loop_index = usize::try_from(small_integer(args.get(3))?).map_err(|_| text::NOT_POSITIVE)?;
    let peers = control.server.peers.get().ok_or("ERR the server has no loops yet")?;
    peers.move_connection(id, loop_index).map_err(|error| Failure::from(format!("ERR {error}")))?;
    out.ok();
    Ok(())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "GETNAME",
        "    Return the name of the current connection.",
        "GETREDIR",
        "    Return the client ID we are redirecting to when tracking is enabled.",
        "ID",
        "    Return the ID of the current connection.",
        "INFO",
        "    Return information about the current client connection.",
        "KILL <ip:port>",
        "    Kill connection made from <ip:port>.",
        "KILL <option> <value> [<option> <value> [...]]",
        "    Kill connections. Options are:",
        "    * ADDR (<ip:port>|<unixsocket>:0), LADDR, ID, MAXAGE, SKIPME (YES|NO), TYPE, USER",
        "LIST [TYPE (NORMAL|MASTER|REPLICA|PUBSUB)] [ID <client-id> ...]",
        "    Return information about client connections.",
        "MOVE <client-id> <loop>",
        "    Have a live connection change to another event loop soon; of several orders the last holds.",
        "    CLIENT LIST shows where it is (loop=). Only in Evenkeel.",
        "NO-EVICT (ON|OFF)",
        "    Protect current client connection from eviction.",
        "NO-TOUCH (ON|OFF)",
        "    Will not touch LRU/LFU stats when this mode is on.",
        "PAUSE <timeout> [WRITE|ALL]",
        "    Suspend all, or just write, clients for <timeout> milliseconds.",
        "REPLY (ON|OFF|SKIP)",
        "    Control the replies sent to the current connection.",
        "SETINFO <option> <value>",
        "    Set client meta attr. Options are:",
        "    * LIB-NAME: the client lib name.",
        "    * LIB-VER: the client lib version.",
        "CACHING (YES|NO)",
        "    Enable/disable tracking of the keys for next command in OPTIN/OPTOUT modes.",
        "SETNAME <name>",
        "    Assign the name <name> to the current connection.",
        "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]]",
        "         [OPTIN] [OPTOUT] [NOLOOP]",
        "    Control server assisted client side caching.",
        "TRACKINGINFO",
        "    Report tracking status for the current connection.",
        "UNBLOCK <clientid> [TIMEOUT|ERROR]",
        "    Unblock the specified blocked client.",
        "UNPAUSE",
        "    Stop the current client pause, resuming traffic.",
    ];
    commands::words::help(out, "CLIENT", &lines);
    Ok(())
}

/// Longest name that a client may give itself; each idle connection keeps its own.
const LABEL_BYTES_MAX: usize = 1024;
/// CLIENT UNBLOCK asks again after this whether a client has what it has found.
const UNBLOCK_RETRY: Duration = Duration::from_millis(1);
/// A hundred years: for ever, and no sum with it overflows.
const PAUSE_MS_MAX: u64 = 100 * 365 * 86_400_000;
