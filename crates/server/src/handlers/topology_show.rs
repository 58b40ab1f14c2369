//! TOPOLOGY LIST, SHOW, TAP and HELP: what topologies are and have done.

use commands::args::is;
use commands::call::Outcome;
use resp::{ArgsView, Writer};
use supervisor::{ComponentStatus, EdgeStatus, Look, Report, State, TapError};

use super::topology::{number, pair, topologies};
use super::topology_args::{name, text, unknown, within};
use crate::control::Control;

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
    let bytes = components.iter().map(|it| {
        COMPONENT_BYTES + it.last_error.as_ref().map_or(0, String::len) + it.figures.len() * FIGURE_BYTES
    });
    let edges = || components.iter().flat_map(|it| it.edges.iter().map(move |edge| (&*it.id, edge)));
    let of_edges = edges().map(|(from, it)| EDGE_BYTES + from.len() + it.stream.len() + it.to.len());
    let bytes = bytes.sum::<usize>() + of_edges.sum::<usize>() + report.workers.len() * WORKER_BYTES;
    control.admit_reply(bytes)?;
    let letters = topologies.letters(name);
    out.map(8);
    pair(out, "name", &report.name);
    pair(out, "status", status(&report));
    pair(out, "blocked", report.blocked().unwrap_or_default());
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
            return Err(commands::failure::sub_syntax("TOPOLOGY", args.get(1)));
        };
        match word {
            _ if is(word, "stream") => look.stream = Some(text(value, "the stream")?),
            _ if is(word, "sample") => look.every = within("SAMPLE", value, 1..=SAMPLE_MAX)?,
            _ if is(word, "count") => count = within("COUNT", value, 1..=TAPPED_MAX)?,
            _ if is(word, "cursor") => cursor = within("CURSOR", value, 0..=i64::MAX as u64)?,
            _ => return Err(commands::failure::sub_syntax("TOPOLOGY", args.get(1))),
        }
        at += 2;
    }
    let cursor = Some(cursor).filter(|cursor| *cursor > 0);
    let tapped = match topologies.supervisor.tap(name, look, cursor, count as usize) {
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

fn component(it: &ComponentStatus, out: &mut Writer<'_>) {
    out.map(27);
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
    out.bulk(b"last_error_age_ms");
    match it.last_error_age_ms {
        Some(age) => out.integer(i64::try_from(age).unwrap_or(i64::MAX)),
        None => out.null(),
    }
    out.bulk(b"metrics");
    out.array(it.figures.len());
    for figure in &it.figures {
        out.map(4);
        pair(out, "name", &figure.name);
        number(out, "count", figure.count);
        out.bulk(b"sum");
        out.double(figure.sum);
        out.bulk(b"last");
        out.double(figure.last);
    }
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
        "REBALANCE <name> [WORKERS <workers>] [EXECUTORS <component> <count>]...",
        "    Have so many workers share the tasks of a topology, which runs on meanwhile. EXECUTORS starts workers anew, with other numbers of executors.",
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
    commands::words::help(out, "TOPOLOGY", &lines);
    Ok(())
}

/// What Storm calls the status of a topology, and what else there is here.
pub(crate) fn status(report: &Report) -> &'static str {
    match report.state {
        State::Waiting => "waiting",
        State::Active if report.blocked().is_some() => "blocked",
        State::Active => "active",
        State::Inactive if report.is_drained => "drained",
        State::Inactive => "inactive",
        State::Restarting => "restarting",
        State::Rebalancing => "rebalancing",
        State::Killed | State::Gone => "killed",
    }
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

/// Tuples of an answer to TAP, without COUNT and at most.
const TAPPED_USUALLY: u64 = 100;
const TAPPED_MAX: u64 = 1_000;
const SAMPLE_MAX: u64 = 1_000_000_000;
/// More than one component takes in a reply, its last error left out.
const COMPONENT_BYTES: usize = 1_200;
/// More than a figure that a component reports takes.
const FIGURE_BYTES: usize = 300;
/// More than one edge takes, its names left out.
const EDGE_BYTES: usize = 600;
/// More than one worker takes.
const WORKER_BYTES: usize = 200;
