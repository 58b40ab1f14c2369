//! LATENCY: events over the threshold, and histograms of commands.

use resp::{ArgsView, Writer};

use super::args::is;
use crate::call::{Control, Outcome};
use crate::lookup::{Entry, Table};

pub(crate) fn history(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let history = control.server.latency.history(args.get(2)).unwrap_or_default();
    out.array(history.samples.len());
    for sample in history.samples {
        out.array(2);
        out.integer(sample.unix_s.cast_signed());
        out.integer(sample.millis.cast_signed());
    }
    Ok(())
}

pub(crate) fn latest(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let all = control.server.latency.all();
    out.array(all.len());
    for (event, history) in all {
        let last = history.samples.back().copied();
        out.array(4);
        out.bulk(event.as_bytes());
        out.integer(last.map_or(0, |sample| sample.unix_s.cast_signed()));
        out.integer(last.map_or(0, |sample| sample.millis.cast_signed()));
        out.integer(history.max_millis.cast_signed());
    }
    Ok(())
}

pub(crate) fn reset(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let named = |event: &str| args.iter().skip(2).any(|arg| is(arg, event));
    let count = control.server.latency.reset(|event| args.len() == 2 || named(event));
    out.integer(count as i64);
    Ok(())
}

pub(crate) fn histogram(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let table = Table::of_server();
    let stats = &control.server.stats;
    let mut chosen: Vec<&'static Entry> = Vec::new();
    if args.len() == 2 {
        chosen.extend(table.entries());
    }
    for name in args.iter().skip(2) {
        let Some(entry) = table.find_full(name) else { continue };
        let subs = entry.command.subcommands().len();
        let first = usize::from(entry.id);
        chosen.extend(&table.entries()[first..=first + subs]);
    }
    let summaries: Vec<_> = chosen
        .iter()
        .filter_map(|entry| Some((entry, stats.summary(entry.id).filter(|sum| sum.calls > 0)?)))
        .collect();
    out.map(summaries.len());
    for (entry, sum) in summaries {
        out.bulk(entry.command.name.as_bytes());
        out.map(2);
        out.bulk(b"calls");
        out.integer(sum.calls.cast_signed());
        out.bulk(b"histogram_usec");
        let powers = sum.by_powers();
        out.map(powers.len());
        for (micros, count) in powers {
            out.integer(micros.cast_signed());
            out.integer(count.cast_signed());
        }
    }
    Ok(())
}

pub(crate) fn doctor(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let threshold = control.server.settings.current().latency_threshold;
    let mut report = String::new();
    if threshold.is_zero() {
        report.push_str(
            "Latency monitoring is off: nothing is known. Set latency.threshold (CONFIG SET \
             latency-monitor-threshold <milliseconds>) and come back.\n",
        );
    }
    for (event, history) in control.server.latency.all() {
        let count = history.samples.len();
        report += &format!(
            "{event}: over {} ms in {count} seconds, at most {} ms. SLOWLOG GET shows the commands.\n",
            threshold.as_millis(),
            history.max_millis
        );
    }
    if report.is_empty() {
        report.push_str("No command was slower than the threshold.\n");
    }
    out.verbatim(*b"txt", report.as_bytes());
    Ok(())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "DOCTOR",
        "    Return a human readable latency analysis report.",
        "HISTORY <event>",
        "    Return time-latency samples for the <event> class.",
        "LATEST",
        "    Return the latest latency samples for all events.",
        "RESET [<event> ...]",
        "    Reset latency data of one or more <event> classes.",
        "    (default: reset all data for all event classes)",
        "HISTOGRAM [COMMAND ...]",
        "    Return a cumulative distribution of latencies in the format of a histogram for the specified command names.",
        "    If no commands are specified then all histograms are replied",
    ];
    super::help(out, "LATENCY", &lines);
    Ok(())
}
