//! TOPOLOGY: topologies that this server runs as worker processes.

use std::sync::Arc;
use std::time::Duration;

use clock::Nanos;
use commands::call::{Failure, Outcome};
use flux::Difference;
use resp::{ArgsView, Writer};
use store::{Stop, StoreError};
use ticket::Ticket;

use super::topology_args::{Rebalancing, Submitted, name, new_name, rebalancing, submitted, unknown, wait};
use crate::clients::DEFAULT_USER;
use crate::control::Control;
use crate::errors;
use crate::message::Message;
use crate::server::Server;
use crate::topologies::record::Definition;
use crate::topologies::trial::{Running, refuse_taken};
use crate::topologies::{Checked, Diff, Former, Placing, Refused, Topologies, count_kept};

/// Reads the topologies that the store keeps.
///
/// # Errors
/// [`StoreError`] when they cannot be read.
pub(crate) fn recover(server: &Arc<Server>) -> Result<(), StoreError> {
    match &server.topologies {
        Some(topologies) => {
            let clients = Arc::downgrade(server);
            topologies.supervisor.on_end(move |connections| {
                if let Some(server) = clients.upgrade()
                    && let Some(peers) = server.peers.get()
                {
                    connections.iter().for_each(|id| _ = peers.kill(*id));
                }
            });
            let ending = topologies.recover(&server.store)?;
            if !ending.is_empty() {
                go_on_removing(server, ending);
            }
            Ok(())
        }
        None => {
            let count = count_kept(&server.store)?;
            if count > 0 {
                tracing::warn!(count, "topologies are kept and do not run: topologies.dir is not set");
            }
            Ok(())
        }
    }
}

/// Removes, on a thread, what trials have written whose removal was cut by a crash.
fn go_on_removing(server: &Arc<Server>, ending: Vec<Running>) {
    let server = Arc::clone(server);
    let work = move || {
        if let Some(topologies) = &server.topologies {
            topologies.go_on_removing(&server.store, &ending);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("trial".to_owned()).spawn(work) {
        tracing::error!(%error, "no thread to remove what trials have written: the next start tries again");
    }
}

/// Removes, on a thread, what the trial of a topology that was killed has written.
fn finish_killed(server: &Arc<Server>, trial: Running, wait: Duration) {
    let server = Arc::clone(server);
    let work = move || {
        if let Some(topologies) = &server.topologies {
            topologies.finish_killed(&server.store, trial, wait);
        }
    };
    if let Err(error) = std::thread::Builder::new().name("trial".to_owned()).spawn(work) {
        tracing::error!(%error, "no thread to remove what a trial has written: the next start does it");
    }
}

/// `TOPOLOGY SUBMIT name definition [PROPERTY name value]... [FOLDER folder] [WORKERS workers] [REPLACE]`
pub(crate) fn submit(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let topologies = topologies(control.server)?;
    let name = new_name(args.get(2))?;
    unless_ending(topologies, &name)?;
    let Submitted { definition, workers, replaces, .. } = submitted(args, false)?;
    let former = if replaces { topologies.former(&name) } else { None };
    let former = former.map(|former| Former { is_asked_for: false, ..former });
    let checked = checked(control, &definition, workers, former)?;
    refuse_blocked(topologies, &name, &checked)?;
    // What is under way may take as long as a tuple.
    let wait = checked.plan.settings().message_timeout;
    let placing = if replaces { Placing::Replaces } else { Placing::New };
    let kept = topologies.submit(&control.server.store, &name, definition, checked, placing, wait);
    let kept = admitted(kept)?;
    tracing::info!(topology = name, client = control.session.client.address(), "a topology was submitted");
    done(control, kept, out)
}

/// Refuses what could not begin with what the topology `name` keeps, unless that one cannot go on either.
fn refuse_blocked(topologies: &Topologies, name: &str, checked: &Checked) -> Outcome {
    let Some((id, why)) = checked.diff.as_deref().and_then(Diff::blocked) else { return Ok(()) };
    if topologies.supervisor.report(name).is_none_or(|report| report.blocked().is_some()) {
        return Ok(());
    }
    Err(format!(
        "ERR the definition is refused, and '{name}' goes on: component `{id}` would be blocked: {why}"
    )
    .into())
}

/// `TOPOLOGY DIFF name definition [PROPERTY name value]... [FOLDER folder] [WORKERS workers]`
pub(crate) fn diff(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let Submitted { definition, workers, replaces, .. } = submitted(args, false)?;
    if replaces {
        return Err(commands::failure::sub_syntax("TOPOLOGY", args.get(1)));
    }
    let former = topologies.former(name).ok_or_else(|| unknown(name))?;
    let checked = checked(control, &definition, workers, Some(former))?;
    let diff = checked.diff.as_deref().expect("it was compared");
    let count = diff.settings.len()
        + diff.state.len()
        + diff.components.iter().map(|it| 1 + it.differences.len()).sum::<usize>();
    control.admit_reply(count * DIFFERENCE_BYTES)?;
    out.map(4);
    pair(out, "name", name);
    out.bulk(b"settings");
    differences(&diff.settings, out);
    out.bulk(b"components");
    out.array(diff.components.len());
    for it in &diff.components {
        out.map(3);
        pair(out, "id", &it.id);
        pair(out, "change", it.change.name());
        out.bulk(b"differences");
        differences(&it.differences, out);
    }
    out.bulk(b"state");
    out.array(diff.state.len());
    for (component, outcome) in &diff.state {
        out.map(3);
        pair(out, "component", component);
        pair(out, "fate", outcome.fate.name());
        pair(out, "what", cut(&outcome.what));
    }
    Ok(())
}

fn differences(all: &[Difference], out: &mut Writer<'_>) {
    out.array(all.len());
    for Difference { what, from, to } in all {
        out.map(3);
        pair(out, "what", cut(what));
        pair(out, "from", cut(from));
        pair(out, "to", cut(to));
    }
}

/// The begin of a text that a definition has, which may be long.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(TEXT_BYTES_MAX)]
}

/// Refuses what cannot be; what the store says of the rest.
pub(super) fn admitted(kept: Result<Ticket, Refused>) -> Result<Result<Ticket, Stop>, Failure> {
    match kept {
        Ok(ticket) => Ok(Ok(ticket)),
        Err(Refused::Store(stop)) => Ok(Err(stop)),
        Err(Refused::Because(why)) => Err(format!("ERR {why}").into()),
    }
}

/// Checks a definition, and compares it with `former`: small ones here, large ones on a thread, which wakes the connection. So does one on trial, for which all
/// keys are looked at.
pub(super) fn checked(
    control: &mut Control<'_>,
    definition: &Definition,
    workers: Option<u32>,
    former: Option<Former>,
) -> Result<Checked, Failure> {
    let mut checked = check_here_or_beside(control, definition, workers, former)?;
    let user = &control.session.member.name;
    checked.user = (**user != *DEFAULT_USER).then(|| Arc::clone(user));
    Ok(checked)
}

fn check_here_or_beside(
    control: &mut Control<'_>,
    definition: &Definition,
    workers: Option<u32>,
    former: Option<Former>,
) -> Result<Checked, Failure> {
    let refused = |why: String| Failure::from(format!("ERR the definition is refused: {why}"));
    let topologies = topologies(control.server)?;
    let former_bytes = former.as_ref().map_or(0, |former| former.job.definition.len());
    let trial = definition.trial.clone();
    if trial.is_none() && definition.bytes() + former_bytes <= SMALL_BYTES {
        return topologies.check(definition, workers, former.as_ref()).map_err(refused);
    }
    let again = control.now + PATIENCE;
    let pending = control.session.pending.get_or_insert_default();
    match &pending.checked {
        Some(result) => return result.clone().map_err(refused),
        // Woken for another reason: the thread still works.
        None if pending.until.is_some() => return Err(Failure::Wait(again)),
        None => {}
    }
    let later = || Failure::Wait(control.now + LOOK_AGAIN);
    let walk = trial.is_some().then(|| topologies.begin_walk().ok_or_else(later)).transpose()?;
    let turn = topologies.begin_check().ok_or_else(later)?;
    let (server, id, definition) =
        (Arc::clone(control.server), control.session.client.id, definition.clone());
    let check = move || {
        let Some(topologies) = server.topologies.as_ref() else { return };
        let result = topologies.check(&definition, workers, former.as_ref());
        drop(turn);
        let result = match trial {
            Some(trial) => {
                result.and_then(|checked| refuse_taken(&server.store, &trial.prefix).map(|()| checked))
            }
            None => result,
        };
        drop(walk);
        server.peers.post(id, Message::Checked(result));
    };
    pending.until = Some(again);
    match std::thread::Builder::new().name("check".to_owned()).spawn(check) {
        Ok(_) => Err(Failure::Wait(again)),
        Err(error) => Err(format!("ERR no thread to check the definition: {error}").into()),
    }
}

/// `TOPOLOGY KILL name [WAIT seconds]`
pub(crate) fn kill(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let wait = wait(args)?;
    unless_ending(topologies, name)?;
    let kept = topologies.kill(&control.server.store, name, wait).ok_or_else(|| unknown(name))?;
    tracing::info!(topology = name, client = control.session.client.address(), "a topology was killed");
    let kept = kept.map(|(ticket, trial)| {
        trial.into_iter().for_each(|trial| finish_killed(control.server, trial, wait));
        ticket
    });
    done(control, kept, out)
}

pub(crate) fn activate(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    set_active(control, args.get(2), true, out)
}

pub(crate) fn deactivate(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    set_active(control, args.get(2), false, out)
}

fn set_active(control: &mut Control<'_>, arg: &[u8], is_active: bool, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(arg)?);
    unless_ending(topologies, name)?;
    let kept = topologies.set_active(&control.server.store, name, is_active).ok_or_else(|| unknown(name))?;
    done(control, kept, out)
}

/// `TOPOLOGY REBALANCE name [WORKERS workers] [EXECUTORS component count]...`
pub(crate) fn rebalance(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let Rebalancing { workers, executors } = rebalancing(args)?;
    unless_ending(topologies, name)?;
    if !executors.is_empty() {
        return redeal(control, name, workers, &executors, out);
    }
    let kept = topologies.rebalance(&control.server.store, name, workers).ok_or_else(|| unknown(name))?;
    done(control, admitted(kept)?, out)
}

/// Gives components other numbers of executors: other workers follow, when what is under way is finished.
fn redeal(
    control: &mut Control<'_>,
    name: &str,
    workers: Option<u32>,
    executors: &[(String, u32)],
    out: &mut Writer<'_>,
) -> Outcome {
    let topologies = topologies(control.server)?;
    if !topologies.has(name) {
        return Err(unknown(name));
    }
    let definition = topologies.redealt(name, executors).ok_or_else(|| {
        format!(
            "ERR '{name}' is on trial, or ends: its definition alone says how many executors components have"
        )
    })?;
    let checked = checked(control, &definition, workers, None)?;
    let wait = checked.plan.settings().message_timeout;
    let kept = topologies.submit(&control.server.store, name, definition, checked, Placing::Same, wait);
    done(control, admitted(kept)?, out)
}

/// `TOPOLOGY RESTART name [WAIT seconds]`
pub(crate) fn restart(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let wait = wait(args)?;
    if !topologies.has(name) {
        return Err(unknown(name));
    }
    topologies.supervisor.restart(name, wait);
    out.ok();
    Ok(())
}

/// `TOPOLOGY DRAIN name [WAIT seconds]`: answers when nothing is under way any more.
pub(crate) fn drain(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let wait = wait(args)?;
    let kept = topologies.set_active(&control.server.store, name, false).ok_or_else(|| unknown(name))?;
    let report = topologies.supervisor.report(name);
    if report.is_some_and(|report| report.is_drained) {
        return done(control, kept, out);
    }
    let now = control.now;
    if let Err(stop) = kept {
        return Err(refused(stop, now));
    }
    let until = *control.session.pending.get_or_insert_default().until.get_or_insert(now + wait);
    if until <= now {
        let seconds = wait.as_secs();
        return Err(format!(
            "TRYAGAIN '{name}' is inactive, and was not finished within {seconds} s: DRAIN it again, or KILL it"
        )
        .into());
    }
    Err(Failure::Wait(until.min(now + LOOK_AGAIN)))
}

pub(super) fn topologies(server: &Server) -> Result<&Topologies, Failure> {
    server.topologies.as_ref().ok_or_else(|| OFF.into())
}

/// Answers with OK once what is kept is durable.
pub(super) fn done(control: &mut Control<'_>, kept: Result<Ticket, Stop>, out: &mut Writer<'_>) -> Outcome {
    control.ticket = kept.map_err(|stop| refused(stop, control.now))?;
    out.ok();
    Ok(())
}

fn refused(stop: Stop, now: Nanos) -> Failure {
    match stop {
        Stop::Busy | Stop::Long | Stop::Abandoned | Stop::Locked(_) | Stop::Cold => {
            Failure::Wait(now + ROOM_RETRY)
        }
        Stop::Refused(error) | Stop::Damaged(error) => errors::of_store(&error),
    }
}

/// Refuses what changes a topology while its trial ends: it is not there meanwhile.
pub(super) fn unless_ending(topologies: &Topologies, name: &str) -> Outcome {
    if !topologies.is_ending(name) {
        return Ok(());
    }
    Err(format!("TRYAGAIN the trial of '{name}' is ending").into())
}

pub(super) fn pair(out: &mut Writer<'_>, name: &str, value: &str) {
    out.bulk(name.as_bytes());
    out.bulk(value.as_bytes());
}

pub(super) fn number(out: &mut Writer<'_>, name: &str, value: u64) {
    out.bulk(name.as_bytes());
    out.integer(i64::try_from(value).unwrap_or(i64::MAX));
}

const OFF: &str = "ERR this server runs no topologies: topologies.dir is not set. Set it to the folder of their programs (an empty one if they have none), \
     and restart the server";
/// More than a difference takes in a reply.
const DIFFERENCE_BYTES: usize = 3 * TEXT_BYTES_MAX + 100;
/// Of each text of a difference.
const TEXT_BYTES_MAX: usize = 1_000;
/// Definitions of so many bytes are checked within about a millisecond.
const SMALL_BYTES: usize = 8 << 10;
/// The message that the thread is done wakes the connection; this only bounds a wait that lost it.
const PATIENCE: Duration = Duration::from_secs(60);
/// A worker says each second whether it is drained.
const LOOK_AGAIN: Duration = Duration::from_millis(50);
/// A change asks for room in the journal again after this.
const ROOM_RETRY: Duration = Duration::from_millis(5);
