//! LATENCY: events over the threshold, and histograms of commands.

use commands::args::{is, shown};
use commands::call::{Failure, Outcome};
use commands::lookup::Entry;
use resp::{ArgsView, Writer};

use crate::control::Control;
use crate::latency::History;

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

pub(crate) fn graph(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let history = control.server.latency.history(args.get(2)).filter(|history| !history.samples.is_empty());
    let Some(history) = history else {
        let text = [b"ERR No samples available for event '", args.get(2), b"'"].concat();
        return Err(Failure::Bytes(text));
    };
    let (event, now_s) = (shown(args.get(2)), control.server.clock.unix_us() / 1_000_000);
    out.verbatim(*b"txt", drawn(&event, &history, now_s).as_bytes());
    Ok(())
}

/// The samples as columns of four rows, each with its age below it, read downwards; 80 to a block, as Redis draws them.
fn drawn(event: &str, history: &History, now_s: u64) -> String {
    let samples: Vec<_> = history.samples.iter().copied().collect();
    let millis = || samples.iter().map(|sample| sample.millis);
    let (high, low) = (millis().max().unwrap_or(0), millis().min().unwrap_or(0));
    let mut text = format!(
        "{event} - high {high} ms, low {low} ms (all time high {} ms)\n{}\n",
        history.max_millis,
        "-".repeat(GRAPH_COLUMNS)
    );
    for block in samples.chunks(GRAPH_COLUMNS) {
        // Twelve steps: three letters in each of the four rows.
        let step = |millis: u64| ((millis - low) * 12 / (high - low).max(1)).min(11);
        for row in (0..4).rev() {
            text.extend(block.iter().map(|sample| match step(sample.millis) {
                step if step < row * 3 => ' ',
                step => ['_', 'o', '#', '|'][(step - row * 3).min(3) as usize],
            }));
            text.push('\n');
        }
        text += &format!("{}\n", " ".repeat(block.len()));
        let ages: Vec<String> = block.iter().map(|sample| age(now_s.saturating_sub(sample.unix_s))).collect();
        for row in 0..ages.iter().map(String::len).max().unwrap_or(0) {
            text.extend(ages.iter().map(|age| age.as_bytes().get(row).copied().map_or(' ', char::from)));
            text.push('\n');
        }
    }
    text
}

/// `elapsed_s` in its largest unit.
fn age(elapsed_s: u64) -> String {
    match elapsed_s {
        0..60 => format!("{elapsed_s}s"),
        60..3_600 => format!("{}m", elapsed_s / 60),
        3_600..86_400 => format!("{}h", elapsed_s / 3_600),
        _ => format!("{}d", elapsed_s / 86_400),
    }
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
    let table = control.server.table;
    let calls = control.server.calls.read();
    let chosen: Vec<&Entry> = if args.len() == 2 {
        table.entries().iter().collect()
    } else {
        // A key of a map is there once, however often it is asked for.
        let mut told = vec![false; table.entries().len()];
        let found = args.iter().skip(2).filter_map(|name| table.find_full(name));
        let rows =
            found.map(|entry| usize::from(entry.id)..=usize::from(entry.id) + usize::from(entry.subcommands));
        let new = rows.flatten().filter(|at| !std::mem::replace(&mut told[*at], true));
        new.map(|at| &table.entries()[at]).collect()
    };
    let summaries: Vec<_> = chosen
        .iter()
        .filter_map(|entry| Some((entry, calls.summary(entry.id).filter(|sum| !sum.latencies.is_empty())?)))
        .collect();
    let start = out.position();
    out.map(summaries.len());
    for (entry, sum) in summaries {
        control.admit_reply(out.position() - start)?;
        out.bulk(entry.command.name.as_bytes());
        out.map(2);
        out.bulk(b"calls");
        out.integer(sum.latencies.len().cast_signed());
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
        "GRAPH <event>",
        "    Return an ASCII latency graph for the <event> class.",
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
    commands::words::help(out, "LATENCY", &lines);
    Ok(())
}

/// Samples side by side.
const GRAPH_COLUMNS: usize = 80;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::Sample;

    #[test]
    fn samples_are_drawn_as_columns_with_their_ages_below() {
        let samples = [(10, 940), (20, 997), (21, 1_000)].map(|(millis, unix_s)| Sample { unix_s, millis });
        let history = History { samples: samples.into(), max_millis: 33 };
        let lines = [
            "command - high 21 ms, low 10 ms (all time high 33 ms)",
            &"-".repeat(80),
            " o#",
            " ||",
            " ||",
            "_||",
            "   ",
            "130",
            "mss",
            "",
        ];
        assert_eq!(drawn("command", &history, 1_000), lines.join("\n"));
        assert_eq!([59, 60, 3_600, 90_000].map(age), ["59s", "1m", "1h", "1d"]);
    }
}
