//! MEMORY: what keys and parts of the server take.

use commands::args::{integer, is, option_value};
use commands::call::{Data, Outcome, text};
use resp::{ArgsView, Writer};

use crate::control::Control;

pub(crate) fn usage(data: &mut Data<'_, '_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let mut index = 3;
    while let Some(option) = args.try_get(index) {
        if !is(option, "samples") || integer(option_value(args, index)?)? < 0 {
            return Err(text::SYNTAX.into());
        }
        index += 2;
    }
    match data.access.meta(data.db, args.get(2))? {
        // A cold value takes its slot of the index alone.
        Some(meta) => out.integer(meta.memory_bytes.cast_signed() + SLOT_BYTES),
        None => out.null(),
    }
    Ok(())
}

pub(crate) fn stats(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let report = control.server.store.memory();
    let keys: u64 = control.server.store.key_counts().iter().map(|(keys, _)| keys).sum();
    let used = super::info::Used::of(control.server);
    let fields = [
        ("peak.allocated", used.peak_bytes),
        ("total.allocated", used.bytes),
        ("startup.allocated", used.startup_bytes),
        ("clients.normal", control.server.clients.count() as u64 * super::info::CLIENT_BYTES),
        ("index.and.values", report.index_bytes),
        ("buffers", report.reported_bytes),
        ("process", report.process_bytes),
        ("overhead.total", report.reported_bytes + report.process_bytes),
        ("limit", report.limit_bytes),
        ("keys.count", keys),
        ("keys.bytes-per-key", report.index_bytes.checked_div(keys).unwrap_or(0)),
        ("dataset.bytes", report.index_bytes),
    ];
    let percent = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
    let ratios = [
        ("dataset.percentage", percent(report.index_bytes, used.bytes)),
        ("peak.percentage", percent(used.bytes, used.peak_bytes)),
        ("fragmentation", used.fragmentation),
    ];
    out.map(fields.len() + ratios.len());
    for (name, value) in fields {
        out.bulk(name.as_bytes());
        out.integer(value.cast_signed());
    }
    for (name, value) in ratios {
        out.bulk(name.as_bytes());
        out.double(value);
    }
    Ok(())
}

pub(crate) fn doctor(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let report = control.server.store.memory();
    let used = report.used_bytes();
    let text = if report.limit_bytes == 0 {
        format!("{used} bytes are in use and there is no limit: set memory.limit.")
    } else if used > report.limit_bytes / 10 * 9 {
        format!(
            "{used} of {} bytes are in use: clean values are dropped and read again from disk when needed. \
             When nothing can be dropped, writes are refused; raise memory.limit or delete keys.",
            report.limit_bytes
        )
    } else {
        format!("{used} of {} bytes are in use: all is well.", report.limit_bytes)
    };
    out.verbatim(*b"txt", text.as_bytes());
    Ok(())
}

pub(crate) fn malloc_stats(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.verbatim(*b"txt", b"The allocator of this build keeps no statistics.");
    Ok(())
}

/// Does not wait: that would hold up the other clients of this loop.
pub(crate) fn purge(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    control.server.store.purge_memory();
    out.ok();
    Ok(())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "DOCTOR",
        "    Return memory problems reports.",
        "MALLOC-STATS",
        "    Return internal statistics report from the memory allocator.",
        "PURGE",
        "    Give freed memory back to the operating system, within a moment.",
        "STATS",
        "    Return information about the memory usage of the server.",
        "USAGE <key> [SAMPLES <count>]",
        "    Return memory in bytes used by <key> and its value.",
    ];
    commands::words::help(out, "MEMORY", &lines);
    Ok(())
}

/// A slot of the index with its tag and its share of the page.
const SLOT_BYTES: i64 = 18;
