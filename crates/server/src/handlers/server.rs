//! About the server as a whole: saving, waiting for disks, roles, MONITOR, SHUTDOWN, backups.
//!
//! Saving answers what is true here: everything acknowledged is saved already (under `durability = always`).

use std::sync::atomic::Ordering;
use std::time::Duration;

use commands::args::millis;
use commands::args::{integer, is, small_integer};
use commands::call::{Failure, Outcome, text};
use resp::{ArgsView, Writer};

use crate::control::Control;
use crate::server::ShutdownKind;

pub(crate) fn time(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let micros = control.server.clock.unix_us();
    out.array(2);
    out.bulk(itoa::Buffer::new().format(micros / 1_000_000).as_bytes());
    out.bulk(itoa::Buffer::new().format(micros % 1_000_000).as_bytes());
    Ok(())
}

fn note_save(control: &mut Control<'_>) {
    let now = control.server.clock.unix_us() / 1_000_000;
    control.server.last_save_unix_s.store(now, Ordering::Relaxed);
    // What is told to be saved must be: wait for all that was appended.
    control.ticket = control.server.store.newest();
}

pub(crate) fn module_list(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.array(0);
    Ok(())
}

pub(crate) fn module_help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    commands::words::help(out, "MODULE", &["LIST", "    Return a list of loaded modules: there are none."]);
    Ok(())
}

pub(crate) fn save(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    note_save(control);
    out.ok();
    Ok(())
}

pub(crate) fn bgsave(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    match args.try_get(1) {
        Some(option) if args.len() > 2 || !is(option, "schedule") => return Err(text::SYNTAX.into()),
        _ => note_save(control),
    }
    out.simple("Background saving started");
    Ok(())
}

pub(crate) fn lastsave(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(control.server.last_save_unix_s.load(Ordering::Relaxed).cast_signed());
    Ok(())
}

/// Parks until the timeout is over or CLIENT UNBLOCK came; then the handler goes on.
fn block(control: &mut Control<'_>, timeout: Duration) -> Outcome {
    let now = control.now;
    let pending = control.session.pending.get_or_insert_default();
    let until = *pending.until.get_or_insert(now + timeout);
    let (is_new, unblocked, client) =
        (!std::mem::replace(&mut pending.waits, true), pending.unblocked, &control.session.client);
    if unblocked.is_none() {
        if is_new {
            client.blocked.store(true, Ordering::Relaxed);
            client.in_wait.store(true, Ordering::Relaxed);
        }
        if until > now {
            return Err(Failure::Wait(until));
        }
        if !client.in_wait.swap(false, Ordering::Relaxed) {
            // CLIENT UNBLOCK was first, and its message is on its way.
            return Err(Failure::Wait(now + Duration::MAX));
        }
    }
    client.blocked.store(false, Ordering::Relaxed);
    if unblocked == Some(true) { Err(text::UNBLOCKED.into()) } else { Ok(()) }
}

/// There are no replicas: who wants one waits in vain, as Redis has it.
pub(crate) fn wait(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let replicas = integer(args.get(1))?;
    let timeout = millis(args.get(2))?.unwrap_or(Duration::MAX);
    if replicas > 0 && !control.in_exec {
        block(control, timeout)?;
    }
    out.integer(0);
    Ok(())
}

pub(crate) fn waitaof(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (local, replicas) = (small_integer(args.get(1))?, small_integer(args.get(2))?);
    let timeout = millis(args.get(3))?.unwrap_or(Duration::MAX);
    if !(0..=1).contains(&local) || replicas < 0 {
        return Err(text::OUT_OF_RANGE.into());
    }
    let always = super::info::keeps_first_promise(control.server);
    if local > 0 && !always {
        return Err("ERR WAITAOF cannot be used when numlocal is set but durability is not always.".into());
    }
    if replicas > 0 && !control.in_exec {
        block(control, timeout)?;
    }
    control.ticket = control.session.ticket;
    out.array(2);
    out.integer(always.into());
    out.integer(0);
    Ok(())
}

/// The log is rewritten all the time, as segments are cleaned.
pub(crate) fn bgrewriteaof(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.simple("Background append only file rewriting started");
    Ok(())
}

pub(crate) fn lolwut(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if args.len() > 2 && is(args.get(1), "version") {
        integer(args.get(2))?;
    }
    let art = format!("  ~~~~\\____|____/~~~~\n\nEvenkeel ver. {}\n", control.server.version);
    out.verbatim(*b"txt", art.as_bytes());
    Ok(())
}

/// The tests of the project do that.
pub(crate) fn pfselftest(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.ok();
    Ok(())
}

pub(crate) fn role(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.array(3);
    out.bulk(b"master");
    out.integer(0);
    out.array(0);
    Ok(())
}

pub(crate) fn monitor(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if control.in_exec {
        return Err("ERR MONITOR isn't allowed for DENY BLOCKING client".into());
    }
    let client = &control.session.client;
    if !client.monitor.swap(true, Ordering::Relaxed) {
        control.server.monitors.add(client.id);
    }
    out.ok();
    Ok(())
}

pub(crate) fn shutdown(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let given = |word: &str| args.iter().skip(1).filter(|arg| is(arg, word)).count();
    let (abort, others) = (given("abort"), [given("now"), given("force"), given("save"), given("nosave")]);
    let [now, force, save, nosave] = others;
    let known = abort + others.iter().sum::<usize>() == args.len() - 1;
    // There is nothing to save or not to save, as what was acknowledged is kept either way; but who asks for both errs.
    if !known || (save > 0 && nosave > 0) || (abort > 0 && args.len() - 1 > abort) {
        return Err(text::SYNTAX.into());
    }
    let kind = if now + force > 0 { ShutdownKind::Now } else { ShutdownKind::Clean };
    if abort > 0 {
        return Err("ERR No shutdown in progress.".into());
    }
    tracing::info!(client = control.session.client.address(), "shutdown asked for");
    control.session.closing = true;
    (control.server.shutdown)(kind);
    // Redis answers nothing: the connection ends.
    let _ = out;
    Ok(())
}
