//! CONFIG: the table of settings, read and changed.

use commands::args::{pattern, shown};
use commands::call::{Failure, Outcome, text};
use resp::{ArgsView, Writer};

use crate::control::Control;

pub(crate) fn get(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if args.len() - 2 > PATTERNS_MAX {
        let count = args.len() - 2;
        return Err(format!("ERR {count} patterns are more than the limit of {PATTERNS_MAX}").into());
    }
    let patterns = args.iter().skip(2).map(|arg| pattern(arg, true)).collect::<Result<Vec<_>, _>>()?;
    let fits = |name: &str| patterns.iter().any(|pattern| pattern.matches(name.as_bytes(), &mut 0));
    let mut pairs = control.server.settings.get(fits);
    // What holds, also where the setting leaves it to us: tools compare it with used_memory.
    if let Some((_, value)) = pairs.iter_mut().find(|(name, _)| *name == "maxmemory") {
        *value = control.server.store.memory().limit_bytes.to_string();
    }
    out.map(pairs.len());
    for (name, value) in pairs {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    Ok(())
}

pub(crate) fn set(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if !args.len().is_multiple_of(2) {
        return Err(text::SYNTAX.into());
    }
    let pairs: Vec<(&[u8], &[u8])> =
        (2..args.len()).step_by(2).map(|index| (args.get(index), args.get(index + 1))).collect();
    let set = control.server.settings.set(&pairs);
    set.map_err(|error| Failure::from(format!("ERR {error}")))?;
    control.server.refresh_settings();
    drop(control.wait_for_callbacks());
    tracing::info!(client = control.session.client.address(), names = ?pairs.iter().map(|p| shown(p.0)).collect::<Vec<_>>(), "settings changed");
    out.ok();
    Ok(())
}

pub(crate) fn rewrite(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let changes = control.server.settings.rewrite().map_err(|error| Failure::from(format!("ERR {error}")))?;
    tracing::info!(
        client = control.session.client.address(),
        changes = changes.join(", "),
        "settings written to the file"
    );
    out.ok();
    Ok(())
}

pub(crate) fn resetstat(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let server = control.server;
    server.stats.reset();
    server.calls.reset();
    server.pubsub.reset();
    server.monitors.reset();
    server.strangers.counts.reset();
    server.acl.log.reset();
    out.ok();
    Ok(())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "GET <pattern>",
        "    Return parameters matching the glob-like <pattern> and their values.",
        "SET <directive> <value>",
        "    Set the configuration <directive> to <value>.",
        "RESETSTAT",
        "    Reset statistics reported by the INFO command.",
        "REWRITE",
        "    Rewrite the configuration file.",
    ];
    commands::words::help(out, "CONFIG", &lines);
    Ok(())
}

/// Patterns of one CONFIG GET: each is matched against the names of all settings.
const PATTERNS_MAX: usize = 128;
