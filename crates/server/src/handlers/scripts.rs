//! SCRIPT, and the interpreter of a thread.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::args::is;
use commands::call::{Failure, Outcome};
use resp::{ArgsView, Writer};
use script::Interpreter;
use script::cache::{Digest, Script, Scripts};
use ticket::Ticket;

use crate::control::Control;
use crate::server::Server;
use crate::transaction::Ahead;

thread_local! {
    /// A loop's interpreter; made when it runs its first script.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// An interpreter, and of which server.
struct Held {
    interpreter: Interpreter,
    scripts: Arc<Scripts>,
    memory_bytes_max: usize,
    /// What was told of its memory.
    noted_bytes: usize,
}

impl Held {
    fn new(server: &Server, memory_bytes_max: usize) -> Result<Self, Failure> {
        let interpreter = Interpreter::new(memory_bytes_max)
            .map_err(|error| Failure::from(format!("ERR no interpreter: {error}")))?;
        Ok(Self { interpreter, scripts: Arc::clone(&server.scripts), memory_bytes_max, noted_bytes: 0 })
    }

    fn note(&mut self, bytes: usize) {
        self.scripts.note_memory(bytes as i64 - self.noted_bytes as i64);
        self.noted_bytes = bytes;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.note(0);
    }
}

/// Calls `work` with the interpreter of this thread; must not be called within `work`.
///
/// # Errors
/// When there is no memory for one.
pub(crate) fn with_interpreter<T>(
    server: &Server,
    work: impl FnOnce(&mut Interpreter) -> T,
) -> Result<T, Failure> {
    let memory = server.tuned.script_memory_bytes_max.load(Ordering::Relaxed);
    let memory_bytes_max = usize::try_from(memory).unwrap_or(usize::MAX);
    let is_usable = |held: &Held| {
        Arc::ptr_eq(&held.scripts, &server.scripts) && held.memory_bytes_max == memory_bytes_max
    };
    let held = HELD.with(RefCell::take).filter(is_usable);
    let mut held = match held {
        Some(held) => held,
        None => Held::new(server, memory_bytes_max)?,
    };
    let generation = server.scripts.generation();
    if held.interpreter.generation != generation {
        held.interpreter.forget();
        held.interpreter.generation = generation;
    }
    let result = work(&mut held.interpreter);
    held.note(held.interpreter.memory_bytes());
    if !held.interpreter.is_spent() {
        HELD.with(|of_thread| *of_thread.borrow_mut() = Some(held));
    }
    Ok(result)
}

/// The script `source`: known, or compiled now and kept.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn compiled(server: &Server, source: &[u8], is_loaded: bool) -> Result<Arc<Script>, Failure> {
    let digest = Digest::of(source);
    with_interpreter(server, |interpreter| {
        if let Some(script) = interpreter.known(&digest).filter(|_| !is_loaded) {
            return Ok(script);
        }
        let script = match server.scripts.find(&digest) {
            // it was compiled, on whatever thread
            Some(script) if is_loaded => script,
            Some(script) => {
                interpreter.compile(&script).map_err(Failure::Bytes)?;
                script
            }
            None => {
                let script = Arc::new(Script::new(source, digest).map_err(Failure::Bytes)?);
                interpreter.compile(&script).map_err(Failure::Bytes)?;
                script
            }
        };
        server.scripts.add(&script, is_loaded);
        Ok(script)
    })?
}

/// The script with the digest `text`.
///
/// # Errors
/// NOSCRIPT.
pub(crate) fn found(server: &Server, text: &[u8]) -> Result<Arc<Script>, Failure> {
    let unknown = || Failure::from("NOSCRIPT No matching script. Please use EVAL.");
    let digest = Digest::parse(text).ok_or_else(unknown)?;
    let known = with_interpreter(server, |interpreter| interpreter.known(&digest))?;
    known.or_else(|| server.scripts.find(&digest)).ok_or_else(unknown)
}

pub(crate) fn load(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(Ahead::Script(script)) = control.take_ahead()? else {
        return load_beside(control.server, args, out).map(drop);
    };
    control.server.scripts.add(&script, true);
    out.bulk(script.digest.hex().as_bytes());
    Ok(())
}

/// SCRIPT LOAD on whatever thread; returns what the reply depends on.
pub(crate) fn load_beside(
    server: &Server,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Result<Ticket, Failure> {
    let script = compiled(server, args.get(2), true)?;
    out.bulk(script.digest.hex().as_bytes());
    Ok(Ticket::NOTHING)
}

pub(crate) fn exists(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    exists_beside(control.server, args, out)
}

/// SCRIPT EXISTS on whatever thread.
pub(crate) fn exists_beside(server: &Server, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.array(args.len() - 2);
    for text in args.iter().skip(2) {
        let is_there = Digest::parse(text).is_some_and(|digest| server.scripts.has(&digest));
        out.integer(is_there.into());
    }
    Ok(())
}

pub(crate) fn flush(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    match args.try_get(2) {
        _ if args.len() > 3 => return Err(commands::failure::sub_syntax("SCRIPT", args.get(1))),
        Some(mode) if !(is(mode, "sync") || is(mode, "async")) => {
            return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
        }
        _ => {}
    }
    control.server.scripts.flush();
    out.ok();
    Ok(())
}

pub(crate) fn kill(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let hold = control.hold();
    if !control.server.scripts.kill(false, &hold) {
        return Err("NOTBUSY No scripts in execution right now.".into());
    }
    out.ok();
    Ok(())
}

pub(crate) fn debug(_control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if is(args.get(2), "no") {
        out.ok();
        return Ok(());
    }
    if is(args.get(2), "yes") || is(args.get(2), "sync") {
        return Err("ERR scripts cannot be debugged on this server".into());
    }
    Err("ERR Use SCRIPT DEBUG YES/SYNC/NO".into())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "DEBUG NO",
        "    Accepted; scripts cannot be debugged on this server.",
        "EXISTS <sha1> [<sha1> ...]",
        "    Return information about the existence of the scripts in the script cache.",
        "FLUSH [ASYNC|SYNC]",
        "    Forget all scripts.",
        "KILL",
        "    Stop the scripts that run beside the event loops; nothing of them has happened.",
        "LOAD <script>",
        "    Keep a script without running it.",
    ];
    commands::words::help(out, "SCRIPT", &lines);
    Ok(())
}
