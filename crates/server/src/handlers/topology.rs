//! TOPOLOGY: topologies that this server runs as worker processes.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use clock::Nanos;
use flux::Difference;
use resp::{ArgsView, Writer};
use store::{Stop, StoreError};
use supervisor::{ComponentStatus, EdgeStatus, Look, Report, State, TapError};
use ticket::Ticket;

use super::args::{is, shown};
use crate::call::{Failure, Outcome};
use crate::control::Control;
use crate::errors;
use crate::message::Message;
use crate::server::Server;
use crate::topologies::record::Definition;
use crate::topologies::trial::{Running, refuse_taken};
use crate::topologies::{Checked, Former, Refused, Topologies, count_kept};

/// Reads the topologies that the store keeps.
///
/// # Errors
/// [`StoreError`] when they cannot be read.
pub(crate) fn recover(server: &Arc<Server>) -> Result<(), StoreError> {
    match &server.topologies {
        Some(topologies) => {
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

/// `TOPOLOGY SUBMIT name definition [PROPERTY name value]... [FOLDER folder] [WORKERS workers] [REPLACE]`
pub(crate) fn submit(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let topologies = topologies(control.server)?;
    let name = new_name(args.get(2))?;
    unless_ending(topologies, &name)?;
    let Submitted { definition, workers, replaces, .. } = submitted(args, false)?;
    let checked = checked(control, &definition, workers, None)?;
    // What is under way may take as long as a tuple.
    let wait = checked.plan.settings().message_timeout;
    let kept = topologies.submit(&control.server.store, &name, (definition, checked), (replaces, wait));
    let kept = admitted(kept)?;
    tracing::info!(topology = name, client = control.session.client.address(), "a topology was submitted");
    done(control, kept, out)
}

/// `TOPOLOGY DIFF name definition [PROPERTY name value]... [FOLDER folder] [WORKERS workers]`
pub(crate) fn diff(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let Submitted { definition, workers, replaces, .. } = submitted(args, false)?;
    if replaces {
        return Err(errors::sub_syntax("TOPOLOGY", args.get(1)));
    }
    let former = topologies.former(name).ok_or_else(|| unknown(name))?;
    let checked = checked(control, &definition, workers, Some(former))?;
    let diff = checked.diff.as_deref().expect("it was compared");
    let count = diff.settings.len()
        + diff.state.len()
        + diff.components.iter().map(|it| 1 + it.differences.len()).sum::<usize>();
    control.server.tuned.admit_reply(count * DIFFERENCE_BYTES)?;
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

/// What SUBMIT says.
pub(super) struct Submitted {
    pub(super) definition: Definition,
    pub(super) workers: Option<u32>,
    replaces: bool,
    /// For a trial: what keys begin with, where spouts begin, whether programs may run.
    pub(super) prefix: String,
    pub(super) from: String,
    pub(super) allows_programs: bool,
}

/// What the words behind the name say; some are of trials alone.
pub(super) fn submitted(args: ArgsView<'_>, is_trial: bool) -> Result<Submitted, Failure> {
    let mut definition = Definition { text: utf8(args.get(3), "the definition")?, ..Definition::default() };
    let (mut workers, mut replaces, mut at) = (None, false, 4);
    let (mut prefix, mut from, mut allows_programs) = (String::new(), String::new(), false);
    while let Some(word) = args.try_get(at) {
        let more = args.len() - at - 1;
        at += match word {
            _ if is(word, "property") && more >= 2 => {
                let (name, value) =
                    (utf8(args.get(at + 1), "a property")?, utf8(args.get(at + 2), "a property")?);
                definition.properties.insert(name, value);
                3
            }
            _ if is(word, "folder") && more >= 1 && definition.folder.is_none() => {
                definition.folder = Some(utf8(args.get(at + 1), "the folder")?);
                2
            }
            _ if is(word, "workers") && more >= 1 && workers.is_none() => {
                workers = Some(number_of_workers(args.get(at + 1))?);
                2
            }
            _ if is_trial && is(word, "prefix") && more >= 1 => {
                prefix = text(args.get(at + 1), "the prefix")?;
                2
            }
            _ if is_trial && is(word, "from") && more >= 1 => {
                from = text(args.get(at + 1), "the position")?;
                2
            }
            _ if is_trial && is(word, "programs") => {
                allows_programs = true;
                1
            }
            _ if !is_trial && is(word, "replace") => {
                replaces = true;
                1
            }
            _ => return Err(errors::sub_syntax("TOPOLOGY", args.get(1))),
        };
    }
    bounded("the definition", definition.text.len(), DEFINITION_BYTES_MAX)?;
    let rest = definition.bytes() - definition.text.len();
    bounded("all properties and the folder", rest, DEFINITION_BYTES_MAX)?;
    Ok(Submitted { definition, workers, replaces, prefix, from, allows_programs })
}

/// How many workers are to be: the setting is the bound.
fn number_of_workers(arg: &[u8]) -> Result<u32, Failure> {
    let workers = resp::parse_i64(arg).and_then(|workers| u32::try_from(workers).ok());
    workers
        .filter(|workers| *workers > 0)
        .ok_or_else(|| format!("ERR WORKERS {}: a whole number of at least 1", shown(arg)).into())
}

fn bounded(what: &str, bytes: usize, most: usize) -> Outcome {
    if bytes <= most {
        return Ok(());
    }
    Err(format!("ERR {what}: {bytes} B, more than the limit of {most} B").into())
}

/// `TOPOLOGY KILL name [WAIT seconds]`
pub(crate) fn kill(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let wait = wait(args)?;
    unless_ending(topologies, name)?;
    let kept = topologies.kill(&control.server.store, name, wait).ok_or_else(|| unknown(name))?;
    tracing::info!(topology = name, client = control.session.client.address(), "a topology was killed");
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

/// `TOPOLOGY REBALANCE name [WORKERS workers]`
pub(crate) fn rebalance(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let workers = match args.len() {
        3 => None,
        5 if is(args.get(3), "workers") => Some(number_of_workers(args.get(4))?),
        _ => return Err(errors::sub_syntax("TOPOLOGY", args.get(1))),
    };
    unless_ending(topologies, name)?;
    let kept = topologies.rebalance(&control.server.store, name, workers).ok_or_else(|| unknown(name))?;
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

pub(crate) fn list(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let reports = topologies(control.server)?.supervisor.reports();
    out.array(reports.len());
    for report in reports {
        out.map(6);
        pair(out, "name", &report.name);
        pair(out, "status", status(&report));
        pid(out, report.pid);
        number(out, "uptime_ms", report.uptime.as_millis() as u64);
        number(out, "restarts", report.restarts);
        number(out, "workers", report.workers.len() as u64);
    }
    Ok(())
}

pub(crate) fn show(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let report = topologies.supervisor.report(name).ok_or_else(|| unknown(name))?;
    let components = &report.status.components;
    let bytes = components.iter().map(|it| COMPONENT_BYTES + it.last_error.as_ref().map_or(0, String::len));
    let edges = || components.iter().flat_map(|it| it.edges.iter().map(move |edge| (&*it.id, edge)));
    let of_edges = edges().map(|(from, it)| EDGE_BYTES + from.len() + it.stream.len() + it.to.len());
    let bytes = bytes.sum::<usize>() + of_edges.sum::<usize>() + report.workers.len() * WORKER_BYTES;
    control.server.tuned.admit_reply(bytes)?;
    let letters = topologies.letters(name);
    out.map(7);
    pair(out, "name", &report.name);
    pair(out, "status", status(&report));
    pair(out, "last_error", report.last_error.as_deref().unwrap_or_default());
    out.bulk(b"workers");
    out.array(report.workers.len());
    for worker in &report.workers {
        out.map(5);
        number(out, "worker", worker.number.into());
        pid(out, worker.pid);
        number(out, "uptime_ms", worker.uptime.as_millis() as u64);
        number(out, "tasks", worker.tasks as u64);
        number(out, "restarts", worker.restarts);
    }
    out.bulk(b"dead_letters");
    out.array(letters.len());
    letters.iter().for_each(|key| out.bulk(key.as_bytes()));
    out.bulk(b"components");
    out.array(components.len());
    components.iter().for_each(|it| component(it, out));
    out.bulk(b"edges");
    out.array(edges().count());
    edges().for_each(|(from, it)| edge(from, it, out));
    Ok(())
}

/// `TOPOLOGY TAP name component [STREAM stream] [SAMPLE n] [COUNT count] [CURSOR cursor]`
pub(crate) fn tap(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (topologies, name) = (topologies(control.server)?, name(args.get(2))?);
    let component = text(args.get(3), "the component")?;
    let mut look = Look { component, stream: None, every: 1 };
    let (mut cursor, mut count, mut at) = (0, TAPPED_USUALLY, 4);
    while let Some(word) = args.try_get(at) {
        let Some(value) = args.try_get(at + 1) else {
            return Err(errors::sub_syntax("TOPOLOGY", args.get(1)));
        };
        match word {
            _ if is(word, "stream") => look.stream = Some(text(value, "the stream")?),
            _ if is(word, "sample") => look.every = within("SAMPLE", value, 1..=SAMPLE_MAX)?,
            _ if is(word, "count") => count = within("COUNT", value, 1..=TAPPED_MAX)?,
            _ if is(word, "cursor") => cursor = within("CURSOR", value, 0..=i64::MAX as u64)?,
            _ => return Err(errors::sub_syntax("TOPOLOGY", args.get(1))),
        }
        at += 2;
    }
    let cursor = Some(cursor).filter(|cursor| *cursor > 0);
    let tapped = match topologies.supervisor.tap(name, look, (cursor, count as usize)) {
        Ok(tapped) => tapped,
        Err(TapError::NoTopology) => return Err(unknown(name)),
        Err(error) => return Err(format!("ERR {error}").into()),
    };
    out.map(3);
    number(out, "cursor", tapped.cursor);
    number(out, "skipped", tapped.skipped);
    out.bulk(b"tuples");
    out.array(tapped.tuples.len());
    tapped.tuples.iter().for_each(|tuple| out.bulk(tuple.as_bytes()));
    Ok(())
}

/// A whole number within bounds.
fn within(word: &str, arg: &[u8], bounds: RangeInclusive<u64>) -> Result<u64, Failure> {
    let number = resp::parse_i64(arg).and_then(|number| u64::try_from(number).ok());
    number.filter(|number| bounds.contains(number)).ok_or_else(|| {
        let (least, most) = bounds.into_inner();
        format!("ERR {word} {}: a whole number from {least} to {most}", shown(arg)).into()
    })
}

/// A name that a definition may have.
pub(super) fn text(arg: &[u8], what: &str) -> Result<String, Failure> {
    bounded(what, arg.len(), NAMED_BYTES_MAX)?;
    utf8(arg, what)
}

fn component(it: &ComponentStatus, out: &mut Writer<'_>) {
    out.map(25);
    pair(out, "id", &it.id);
    pair(out, "kind", if it.is_spout { "spout" } else { "bolt" });
    number(out, "tasks", it.tasks);
    number(out, "emitted", it.emitted);
    number(out, "transferred", it.transferred);
    number(out, "executed", it.executed);
    number(out, "acked", it.acked);
    number(out, "failed", it.failed);
    number(out, "pending", it.pending);
    number(out, "queued_bytes", it.queued_bytes);
    number(out, "faults", it.faults);
    number(out, "restarts", it.restarts);
    let latencies = &it.latencies;
    number(out, "execute_us", latencies.execute.mean_us());
    number(out, "execute_p99_us", latencies.execute.p99_us());
    number(out, "process_us", latencies.process.mean_us());
    number(out, "process_p99_us", latencies.process.p99_us());
    number(out, "queue_us", latencies.queue.mean_us());
    number(out, "queue_p99_us", latencies.queue.p99_us());
    number(out, "complete_us", latencies.complete.mean_us());
    number(out, "complete_p99_us", latencies.complete.p99_us());
    number(out, "busy_permille", it.shares.busy_permille);
    number(out, "back_pressured_permille", it.shares.back_pressured_permille);
    number(out, "idle_permille", it.shares.idle_permille);
    out.bulk(b"lag_ms");
    match it.lag_ms {
        Some(lag) => out.integer(i64::try_from(lag).unwrap_or(i64::MAX)),
        None => out.null(),
    }
    pair(out, "last_error", it.last_error.as_deref().unwrap_or_default());
}

/// A stream of `from` and one of its readers.
fn edge(from: &str, it: &EdgeStatus, out: &mut Writer<'_>) {
    out.map(13);
    pair(out, "from", from);
    pair(out, "stream", &it.stream);
    pair(out, "to", &it.to);
    number(out, "transferred", it.transferred);
    number(out, "executed", it.executed);
    number(out, "acked", it.acked);
    number(out, "failed", it.failed);
    number(out, "queued_bytes", it.queued_bytes);
    let latencies = &it.latencies;
    number(out, "execute_us", latencies.execute.mean_us());
    number(out, "process_us", latencies.process.mean_us());
    number(out, "process_p99_us", latencies.process.p99_us());
    number(out, "queue_us", latencies.queue.mean_us());
    number(out, "queue_p99_us", latencies.queue.p99_us());
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "ACTIVATE <name>",
        "    Let spouts emit.",
        "DEACTIVATE <name>",
        "    Let spouts emit nothing new.",
        "DIFF <name> <definition> [PROPERTY <name> <value>]... [FOLDER <folder>] [WORKERS <workers>]",
        "    Tell what would change if a definition took the place of a topology, and change nothing.",
        "DRAIN <name> [WAIT <seconds>]",
        "    Deactivate, and answer when nothing is under way any more.",
        "KILL <name> [WAIT <seconds>]",
        "    End a topology when what is under way is finished, and forget it.",
        "LIST",
        "    Tell of each topology its status and its workers.",
        "REBALANCE <name> [WORKERS <workers>]",
        "    Have so many workers share the tasks of a topology, which runs on meanwhile.",
        "RESTART <name> [WAIT <seconds>]",
        "    Start the workers of a topology anew, when what is under way is finished.",
        "SHOW <name>",
        "    Tell what a topology and its components have done.",
        "SUBMIT <name> <definition> [PROPERTY <name> <value>]... [FOLDER <folder>] [WORKERS <workers>] [REPLACE]",
        "    Run a definition in the YAML of Flux.",
        "SWITCH <name> [WAIT <seconds>]",
        "    Put the definition that is tried, with what it has written, in the place of a topology.",
        "TAP <name> <component> [STREAM <stream>] [SAMPLE <n>] [COUNT <count>] [CURSOR <cursor>]",
        "    Tell which tuples a component has emitted since the last time: the cursor of the answer names that.",
        "TRIAL <name>",
        "    Tell where the definition that is tried beside a topology reads and writes.",
        "TRY <name> <definition> PREFIX <prefix> [FROM <position>] [PROGRAMS] [PROPERTY <name> <value>]... [FOLDER <folder>] [WORKERS <workers>]",
        "    Run a definition beside a topology, from a position on, with its keys under a prefix.",
        "UNTRY <name> [WAIT <seconds>]",
        "    End the trial of a definition, and remove the keys that it has written.",
    ];
    super::help(out, "TOPOLOGY", &lines);
    Ok(())
}

/// What Storm calls the status of a topology, and what else there is here.
pub(crate) fn status(report: &Report) -> &'static str {
    match report.state {
        State::Waiting => "waiting",
        State::Active => "active",
        State::Inactive if report.is_drained => "drained",
        State::Inactive => "inactive",
        State::Restarting => "restarting",
        State::Rebalancing => "rebalancing",
        State::Killed | State::Gone => "killed",
    }
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
        Stop::Busy | Stop::Locked(_) | Stop::Cold => Failure::Wait(now + ROOM_RETRY),
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

pub(super) fn unknown(name: impl Display) -> Failure {
    format!("ERR there is no topology '{name}': TOPOLOGY LIST shows which there are").into()
}

/// The name of a topology that there may be.
pub(super) fn name(arg: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(arg).map_err(|_| unknown(shown(arg)))
}

/// A name that a topology may have: it is part of metrics, addresses and the log.
pub(super) fn new_name(arg: &[u8]) -> Result<String, Failure> {
    let fits = |byte: &u8| byte.is_ascii_alphanumeric() || b"_.-".contains(byte);
    if arg.len() <= NAME_BYTES_MAX
        && arg.iter().all(fits)
        && arg.first().is_some_and(u8::is_ascii_alphanumeric)
    {
        return Ok(String::from_utf8_lossy(arg).into_owned());
    }
    Err(format!(
        "ERR '{}' cannot be the name of a topology: 1 to {NAME_BYTES_MAX} letters, digits, and after the first `_`, `.` and `-`",
        shown(arg)
    )
    .into())
}

fn utf8(arg: &[u8], what: &str) -> Result<String, Failure> {
    bounded(what, arg.len(), DEFINITION_BYTES_MAX)?;
    String::from_utf8(arg.to_vec()).map_err(|error| {
        format!("ERR {what} is no UTF-8: byte {} is none", error.utf8_error().valid_up_to()).into()
    })
}

/// The time of `[WAIT seconds]` behind the name.
pub(super) fn wait(args: ArgsView<'_>) -> Result<Duration, Failure> {
    match args.len() {
        3 => Ok(WAIT_USUALLY),
        5 if is(args.get(3), "wait") => {
            let seconds = resp::parse_i64(args.get(4)).and_then(|seconds| u64::try_from(seconds).ok());
            let seconds = seconds.filter(|seconds| *seconds <= WAIT_MAX_S);
            seconds.map(Duration::from_secs).ok_or_else(|| {
                format!("ERR WAIT {}: a whole number of seconds from 0 to {WAIT_MAX_S}", shown(args.get(4)))
                    .into()
            })
        }
        _ => Err(errors::sub_syntax("TOPOLOGY", args.get(1))),
    }
}

pub(super) fn pair(out: &mut Writer<'_>, name: &str, value: &str) {
    out.bulk(name.as_bytes());
    out.bulk(value.as_bytes());
}

fn pid(out: &mut Writer<'_>, pid: Option<u32>) {
    match pid {
        Some(pid) => number(out, "pid", pid.into()),
        None => {
            out.bulk(b"pid");
            out.null();
        }
    }
}

pub(super) fn number(out: &mut Writer<'_>, name: &str, value: u64) {
    out.bulk(name.as_bytes());
    out.integer(i64::try_from(value).unwrap_or(i64::MAX));
}

const OFF: &str =
    "ERR this server runs no topologies: topologies.dir is not set, the folder where their components are";
const NAME_BYTES_MAX: usize = 128;
/// Of a component or stream that is asked for.
const NAMED_BYTES_MAX: usize = 4 << 10;
/// Tuples of an answer to TAP, without COUNT and at most.
const TAPPED_USUALLY: u64 = 100;
const TAPPED_MAX: u64 = 1_000;
const SAMPLE_MAX: u64 = 1_000_000_000;
const DEFINITION_BYTES_MAX: usize = 1 << 20;
/// As long as a tuple has by default.
const WAIT_USUALLY: Duration = Duration::from_secs(30);
const WAIT_MAX_S: u64 = 86_400;
/// More than one component takes in a reply, its last error left out.
const COMPONENT_BYTES: usize = 1_200;
/// More than one edge takes, its names left out.
const EDGE_BYTES: usize = 600;
/// More than one worker takes.
const WORKER_BYTES: usize = 200;
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
