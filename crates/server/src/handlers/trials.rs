//! TOPOLOGY TRY and what follows: a definition that runs beside the one that it is to take the place of.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use commands::args::shown;
use commands::call::{Failure, Outcome};
use resp::{ArgsView, Writer};
use supervisor::Trial;

use super::topology::{admitted, checked, done, number, pair, topologies, unless_ending};
use super::topology_args::{Submitted, name, new_name, submitted, unknown, wait};
use crate::control::Control;
use crate::message::Message;
use crate::server::Server;
use crate::topologies::Placing;
use crate::topologies::trial::{TrialEnd, Tried, name_of_trial};

/// `TOPOLOGY TRY name definition PREFIX prefix [FROM position] [PROGRAMS] [PROPERTY name value]... [FOLDER folder] [WORKERS workers]`
pub(crate) fn begin(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, of) = (topologies(control.server)?, name(args.get(2))?);
    let trial_name = new_name(name_of_trial(of).as_bytes())?;
    unless_ending(topologies, of)?;
    if !topologies.has(of) {
        return Err(unknown(of));
    }
    if topologies.has(&trial_name) {
        return Err(format!("ERR there is a topology '{trial_name}': SWITCH, UNTRY or KILL it before").into());
    }
    let Submitted { mut definition, workers, prefix, from, allows_programs, .. } = submitted(args, true)?;
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.:-".contains(byte);
    if !(1..=PREFIX_BYTES_MAX).contains(&prefix.len()) || !prefix.as_bytes().iter().all(fits) {
        return Err(format!(
            "ERR PREFIX {}: 1 to {PREFIX_BYTES_MAX} letters, digits, `_`, `.`, `:` and `-`",
            shown(prefix.as_bytes())
        )
        .into());
    }
    let from = if from.is_empty() { "start".to_owned() } else { from };
    let trial = Trial { of: of.to_owned(), prefix, from };
    topologies.refuse_shared_prefix(&trial).map_err(|why| format!("ERR {why}"))?;
    definition.trial = Some(trial);
    let checked = checked(control, &definition, workers, None)?;
    if let Some(id) = checked.program.as_ref().filter(|_| !allows_programs) {
        return Err(format!(
            "ERR component `{id}` is a program: what it writes elsewhere cannot be redirected; PROGRAMS runs it all the same"
        )
        .into());
    }
    let store = &control.server.store;
    let kept = topologies.submit(store, &trial_name, definition, checked, Placing::New, Duration::ZERO);
    let kept = admitted(kept)?;
    tracing::info!(topology = of, client = control.session.client.address(), "a definition is tried");
    done(control, kept, out)
}

/// `TOPOLOGY TRIAL name`
pub(crate) fn tell(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, of) = (topologies(control.server)?, name(args.get(2))?);
    let tried = topologies.tried(of).ok_or_else(|| none(of))?;
    let Tried { trial, groups, is_exactly_once } = &*tried;
    out.map(5);
    pair(out, "name", &name_of_trial(of));
    pair(out, "prefix", &trial.prefix);
    pair(out, "from", &trial.from);
    number(out, "exactly_once", (*is_exactly_once).into());
    out.bulk(b"groups");
    out.array(groups.len());
    for group in groups {
        out.map(3);
        pair(out, "stream", &group.stream);
        pair(out, "live", &group.live);
        pair(out, "trial", &group.trial);
    }
    Ok(())
}

/// `TOPOLOGY SWITCH name [WAIT seconds]`
pub(crate) fn switch(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    end(control, args, out, |server, of, wait| {
        let bytes_max = server.tuned.transaction_bytes_max.load(Ordering::Relaxed);
        let topologies = server.topologies.as_ref().ok_or("this server runs no topologies")?;
        topologies.switch(&server.store, of, wait, bytes_max)
    })
}

/// `TOPOLOGY UNTRY name [WAIT seconds]`
pub(crate) fn give_up(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    end(control, args, out, |server, of, wait| {
        let topologies = server.topologies.as_ref().ok_or("this server runs no topologies")?;
        topologies.give_up(&server.store, of, wait)
    })
}

/// Ends a trial on a thread, which wakes the connection.
fn end(
    control: &mut Control<'_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
    end: fn(&Server, &str, Duration) -> Result<TrialEnd, String>,
) -> Outcome {
    let (topologies, of) = (topologies(control.server)?, name(args.get(2))?);
    let wait = wait(args)?;
    let again = control.now + PATIENCE;
    let pending = control.session.pending.get_or_insert_default();
    match pending.trial_end.take() {
        Some(Ok(TrialEnd { ticket, keys })) => {
            control.ticket = ticket;
            out.integer(keys as i64);
            return Ok(());
        }
        Some(Err(why)) => return Err(format!("ERR {why}").into()),
        // Woken for another reason: the thread still works.
        None if pending.until.is_some() => return Err(Failure::Wait(again)),
        None => {}
    }
    if topologies.trial(of).is_none() {
        return Err(none(of));
    }
    pending.until = Some(again);
    let (server, id, of) = (Arc::clone(control.server), control.session.client.id, of.to_owned());
    let work = move || {
        let result = end(&server, &of, wait);
        server.peers.post(id, Message::TrialEnded(result));
    };
    match std::thread::Builder::new().name("trial".to_owned()).spawn(work) {
        Ok(_) => Err(Failure::Wait(again)),
        Err(error) => Err(format!("ERR no thread for the end of the trial: {error}").into()),
    }
}

fn none(of: &str) -> Failure {
    format!("ERR there is no trial of '{of}': TOPOLOGY TRY begins one").into()
}

const PREFIX_BYTES_MAX: usize = 64;
/// The message that the thread is done wakes the connection; this only bounds a wait that lost it.
const PATIENCE: Duration = Duration::from_secs(3600);
