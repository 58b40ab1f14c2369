//! FUNCTION: libraries, in memory for whoever calls them and in the store for the next start.
//!
//! A change is kept by the store before anybody sees it, and its reply waits for the disk as that of any write does.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use commands::args::is;
use commands::call::Failure;
use commands::glob::Pattern;
use resp::{ArgsView, Writer};
use script::cache::Running;
use script::library::{Libraries, Library, Registered};
use script::{LOAD_TIME_MAX, Outcome, Over, Pace};
use store::{Stop, StoreError};
use ticket::Ticket;

use super::scripts::with_interpreter;
use crate::control::Control;
use crate::errors;
use crate::server::Server;
use crate::transaction::Ahead;

/// Reads the libraries that the store keeps.
///
/// # Errors
/// [`StoreError`] when they cannot be read.
pub(crate) fn recover(server: &Server) -> Result<(), StoreError> {
    let Some(record) = server.store.kept(RECORD)? else { return Ok(()) };
    let libraries = Libraries::decode(&record)
        .ok_or_else(|| StoreError::Open("the record of the libraries of functions is damaged".to_owned()))?;
    server.scripts.set_libraries(libraries);
    Ok(())
}

/// Changes the libraries by `change`, as [`change_of`] does.
fn change(
    control: &mut Control<'_>,
    change: impl FnOnce(&mut Libraries) -> commands::call::Outcome,
) -> commands::call::Outcome {
    control.ticket = change_of(control.server, change)?;
    Ok(())
}

/// Changes the libraries by `change`; then they are as they were if that, or the store, refuses. Returns what the reply depends on.
fn change_of(
    server: &Server,
    change: impl FnOnce(&mut Libraries) -> commands::call::Outcome,
) -> Result<Ticket, Failure> {
    let _alone = server.scripts.changing.lock().unwrap_or_else(PoisonError::into_inner);
    let mut libraries = Libraries::clone(&server.scripts.libraries());
    change(&mut libraries)?;
    let ticket = match server.store.keep(RECORD, &libraries.encode()) {
        Ok(ticket) => ticket,
        Err(Stop::Busy | Stop::Long | Stop::Abandoned | Stop::Locked(_) | Stop::Cold) => {
            return Err(Failure::Wait(server.clock.now() + ROOM_RETRY));
        }
        Err(Stop::Refused(error) | Stop::Damaged(error)) => return Err(errors::of_store(&error)),
    };
    server.scripts.set_libraries(libraries);
    Ok(ticket)
}

/// The library with this code, and its functions; beside a loop it is `running`.
fn loaded(server: &Server, code: &[u8], running: Option<&Arc<Running>>) -> Result<Library, Failure> {
    let library = Arc::new(Library::new(code).map_err(Failure::Bytes)?);
    let pace = Pace::of_library(Arc::clone(&server.clock), running.cloned());
    let functions = with_interpreter(server, |interpreter| interpreter.load_library(&library, pace))?;
    let functions = functions.map_err(|outcome| match outcome {
        Outcome::Error(text) => Failure::Bytes(text),
        Outcome::Memory => {
            let most = server.tuned.script_memory_bytes_max.load(Ordering::Relaxed);
            format!("ERR FUNCTION LOAD needs more memory than script.memory_limit ({most} B)").into()
        }
        Outcome::Over(Over::Killed) => "ERR Script killed by user with FUNCTION KILL.".into(),
        Outcome::Over(_) | Outcome::Reply => format!(
            "ERR FUNCTION LOAD timeout: the code of a library may run for {LOAD_TIME_MAX:?} when it is loaded"
        )
        .into(),
    })?;
    Ok(library.with(functions))
}

pub(crate) fn load(
    control: &mut Control<'_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> commands::call::Outcome {
    control.ticket = match control.take_ahead()? {
        Some(Ahead::Libraries(libraries)) => add(control.server, libraries, args, out)?,
        _ => load_beside(control.server, args, None, out)?,
    };
    Ok(())
}

/// FUNCTION LOAD on whatever thread; returns what the reply depends on.
pub(crate) fn load_beside(
    server: &Server,
    args: ArgsView<'_>,
    running: Option<&Arc<Running>>,
    out: &mut Writer<'_>,
) -> Result<Ticket, Failure> {
    add(server, load_ahead(server, args, running)?, args, out)
}

/// The library of FUNCTION LOAD, which is not kept yet.
pub(crate) fn load_ahead(
    server: &Server,
    args: ArgsView<'_>,
    running: Option<&Arc<Running>>,
) -> Result<Vec<Library>, Failure> {
    replaces(args)?;
    Ok(vec![loaded(server, args.get(args.len() - 1), running)?])
}

/// Whether FUNCTION LOAD replaces a library of the same name.
fn replaces(args: ArgsView<'_>) -> Result<bool, Failure> {
    match args.len() {
        3 => Ok(false),
        4 if is(args.get(2), "replace") => Ok(true),
        4 => Err(Failure::Bytes([b"ERR Unknown option given: ", args.get(2)].concat())),
        _ => Err(commands::failure::sub_syntax("FUNCTION", args.get(1))),
    }
}

/// Keeps what FUNCTION LOAD has loaded; returns what the reply depends on.
fn add(
    server: &Server,
    libraries: Vec<Library>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Result<Ticket, Failure> {
    let replaces = replaces(args)?;
    let name = libraries.first().map(|library| library.name.clone()).unwrap_or_default();
    let ticket = change_of(server, |all| {
        libraries.into_iter().try_for_each(|library| all.add(library, replaces).map_err(Failure::Bytes))
    })?;
    out.bulk(&name);
    Ok(ticket)
}

pub(crate) fn delete(
    control: &mut Control<'_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> commands::call::Outcome {
    change(control, |libraries| {
        if libraries.remove(args.get(2)) { Ok(()) } else { Err("ERR Library not found".into()) }
    })?;
    out.ok();
    Ok(())
}

pub(crate) fn flush(
    control: &mut Control<'_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> commands::call::Outcome {
    match args.try_get(2) {
        _ if args.len() > 3 => return Err(commands::failure::sub_syntax("FUNCTION", args.get(1))),
        Some(mode) if !(is(mode, "sync") || is(mode, "async")) => {
            return Err("ERR FUNCTION FLUSH only supports SYNC|ASYNC option".into());
        }
        _ => {}
    }
    if control.server.scripts.libraries().counts() != (0, 0) {
        change(control, |libraries| {
            *libraries = Libraries::default();
            Ok(())
        })?;
    }
    out.ok();
    Ok(())
}

pub(crate) fn dump(
    control: &mut Control<'_>,
    _args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> commands::call::Outcome {
    let libraries = control.server.scripts.libraries();
    control.admit_reply(2 * libraries.all().map(|library| library.code.len()).sum::<usize>())?;
    out.bulk(&libraries.encode());
    Ok(())
}

pub(crate) fn restore(
    control: &mut Control<'_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> commands::call::Outcome {
    control.ticket = match control.take_ahead()? {
        Some(Ahead::Libraries(libraries)) => add_restored(control.server, libraries, args, out)?,
        _ => restore_beside(control.server, args, None, out)?,
    };
    Ok(())
}

/// FUNCTION RESTORE on whatever thread; returns what the reply depends on.
pub(crate) fn restore_beside(
    server: &Server,
    args: ArgsView<'_>,
    running: Option<&Arc<Running>>,
    out: &mut Writer<'_>,
) -> Result<Ticket, Failure> {
    add_restored(server, restore_ahead(server, args, running)?, args, out)
}

/// Whether FUNCTION RESTORE removes all libraries first, and whether it replaces those of the same names.
fn policy(args: ArgsView<'_>) -> Result<(bool, bool), Failure> {
    match args.try_get(3) {
        _ if args.len() > 4 => Err(commands::failure::sub_syntax("FUNCTION", args.get(1))),
        None => Ok((false, false)),
        Some(policy) if is(policy, "append") => Ok((false, false)),
        Some(policy) if is(policy, "replace") => Ok((false, true)),
        Some(policy) if is(policy, "flush") => Ok((true, false)),
        Some(_) => {
            Err("ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.".into())
        }
    }
}

/// The libraries of FUNCTION RESTORE, which are not kept yet.
pub(crate) fn restore_ahead(
    server: &Server,
    args: ArgsView<'_>,
    running: Option<&Arc<Running>>,
) -> Result<Vec<Library>, Failure> {
    policy(args)?;
    let given = Libraries::decode(args.get(2))
        .ok_or_else(|| Failure::from("ERR DUMP payload version or checksum are wrong"))?;
    // what they register is what this server finds
    given.all().map(|library| loaded(server, &library.code, running)).collect()
}

/// Keeps what FUNCTION RESTORE has loaded; returns what the reply depends on.
fn add_restored(
    server: &Server,
    libraries: Vec<Library>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Result<Ticket, Failure> {
    let (flushes, replaces) = policy(args)?;
    let ticket = change_of(server, |all| {
        if flushes {
            *all = Libraries::default();
        }
        libraries.into_iter().try_for_each(|library| all.add(library, replaces).map_err(Failure::Bytes))
    })?;
    out.ok();
    Ok(ticket)
}

pub(crate) fn list(
    control: &mut Control<'_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> commands::call::Outcome {
    let (mut index, mut with_code, mut pattern) = (2, false, None);
    while let Some(arg) = args.try_get(index) {
        index += match arg {
            _ if is(arg, "withcode") && !with_code => {
                with_code = true;
                1
            }
            _ if is(arg, "libraryname") && pattern.is_none() => match args.try_get(index + 1) {
                Some(given) => {
                    pattern = Some(
                        Pattern::new(given, true).map_err(|error| Failure::from(format!("ERR {error}")))?,
                    );
                    2
                }
                None => return Err("ERR library name argument was not given".into()),
            },
            _ => return Err(Failure::Bytes([b"ERR Unknown argument ", arg].concat())),
        };
    }
    let libraries = control.server.scripts.libraries();
    let fits = |library: &&Arc<Library>| {
        pattern.as_ref().is_none_or(|pattern| pattern.matches(&library.name, &mut 0))
    };
    let listed: Vec<_> = libraries.all().filter(fits).collect();
    let start = out.position();
    out.array(listed.len());
    for library in listed {
        let code_bytes = if with_code { library.code.len() } else { 0 };
        control.admit_reply(out.position() - start + code_bytes)?;
        describe(library, with_code, out);
    }
    Ok(())
}

fn describe(library: &Library, with_code: bool, out: &mut Writer<'_>) {
    out.map(if with_code { 4 } else { 3 });
    out.bulk(b"library_name");
    out.bulk(&library.name);
    out.bulk(b"engine");
    out.bulk(b"LUA");
    out.bulk(b"functions");
    out.array(library.functions.len());
    for Registered { name, flags, description } in &library.functions {
        out.map(3);
        out.bulk(b"name");
        out.bulk(name);
        out.bulk(b"description");
        out.bulk_or_null(description.as_deref());
        out.bulk(b"flags");
        out.set(flags.names().count());
        flags.names().for_each(|name| out.simple(name));
    }
    if with_code {
        out.bulk(b"library_code");
        out.bulk(&library.code);
    }
}

pub(crate) fn kill(
    control: &mut Control<'_>,
    _args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> commands::call::Outcome {
    let hold = control.hold();
    if !control.server.scripts.kill(true, &hold) {
        return Err("NOTBUSY No scripts in execution right now.".into());
    }
    out.ok();
    Ok(())
}

pub(crate) fn stats(
    control: &mut Control<'_>,
    _args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> commands::call::Outcome {
    out.map(2);
    out.bulk(b"running_script");
    match control.server.scripts.running(true) {
        None => out.null(),
        Some(running) => {
            out.map(3);
            out.bulk(b"name");
            out.bulk(&running.name);
            out.bulk(b"command");
            out.array(running.command.len());
            running.command.iter().for_each(|word| out.bulk(word));
            out.bulk(b"duration_ms");
            out.integer(i64::try_from(control.now.since(running.since).as_millis()).unwrap_or(i64::MAX));
        }
    }
    let (libraries, functions) = control.server.scripts.libraries().counts();
    out.bulk(b"engines");
    out.map(1);
    out.bulk(b"LUA");
    out.map(2);
    out.bulk(b"libraries_count");
    out.integer(libraries as i64);
    out.bulk(b"functions_count");
    out.integer(functions as i64);
    Ok(())
}

pub(crate) fn help(
    _control: &mut Control<'_>,
    _args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> commands::call::Outcome {
    let lines = [
        "DELETE <library-name>",
        "    Delete the given library.",
        "DUMP",
        "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE command",
        "FLUSH [ASYNC|SYNC]",
        "    Delete all the libraries.",
        "KILL",
        "    Stop the functions that run beside the event loops; nothing of them has happened.",
        "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
        "    Return general information on all the libraries.",
        "LOAD [REPLACE] <FUNCTION CODE>",
        "    Create a new library with the given code.",
        "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
        "    Restore the libraries of a payload.",
        "STATS",
        "    Return information about the current function running.",
    ];
    commands::words::help(out, "FUNCTION", &lines);
    Ok(())
}

/// What the store keeps the libraries as.
const RECORD: &[u8] = b"libraries";
/// A change asks for room in the journal again after this.
const ROOM_RETRY: Duration = Duration::from_millis(5);
