//! COMMAND: the table, told to clients. Everything here is generated from the rows.

use commands::args::{is, pattern};
use commands::call::{Outcome, text};
use commands::command::{Command, Flags, KeySpec};
use commands::lookup::{Entry, Table};
use resp::{ArgsView, Writer};

use crate::arguments;
use crate::control::Control;
use crate::errors;
use crate::server::Server;

pub(crate) fn count(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(control.server.table.commands().count() as i64);
    Ok(())
}

pub(crate) fn info(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let table = control.server.table;
    if args.len() <= 2 {
        out.array(table.commands().count());
        table.commands().for_each(|entry| write_info(table, entry, out));
        return Ok(());
    }
    let start = out.position();
    out.array(args.len() - 2);
    let mut written = vec![0..0; table.entries().len()];
    for name in args.iter().skip(2) {
        match table.find_full(name) {
            // Asked for again: a copy is much cheaper.
            Some(entry) if !written[usize::from(entry.id)].is_empty() => {
                out.repeat(written[usize::from(entry.id)].clone());
            }
            Some(entry) => {
                let from = out.position();
                write_info(table, entry, out);
                written[usize::from(entry.id)] = from..out.position();
            }
            None => out.null(),
        }
        control.admit_reply(out.position() - start)?;
    }
    Ok(())
}

fn write_info(table: &'static Table, entry: &Entry, out: &mut Writer<'_>) {
    let command = entry.command;
    let (first, last, step) = span(command.keys);
    out.array(10);
    out.bulk(command.name.as_bytes());
    out.integer(command.arity.into());
    let flags: Vec<&str> =
        command.flags.names().chain(command.moves_keys().then_some("movablekeys")).collect();
    out.set(flags.len());
    flags.iter().for_each(|flag| out.simple(flag));
    out.integer(first);
    out.integer(last);
    out.integer(step);
    out.set(command.categories.split_whitespace().count());
    command.categories.split_whitespace().for_each(|name| out.simple(&format!("@{name}")));
    out.set(command.tips.split_whitespace().count());
    command.tips.split_whitespace().for_each(|tip| out.bulk(tip.as_bytes()));
    out.set(command.keys.len());
    command.keys.iter().for_each(|spec| write_spec(spec, out));
    let subcommands = table.subcommands(entry);
    out.set(subcommands.len());
    subcommands.iter().for_each(|sub| write_info(table, sub, out));
}

/// First key, last key and step, as clients knew them before there were key specs.
fn span(specs: &[KeySpec]) -> (i64, i64, i64) {
    // keys that are counted are not in this triple
    let fixed = || specs.iter().filter(|spec| !spec.is_counted && spec.keyword.is_empty());
    let last_of = |spec: &KeySpec| {
        let last = i64::from(spec.last);
        if last < 0 { last } else { i64::from(spec.first) + last }
    };
    let Some(first) = fixed().map(|spec| i64::from(spec.first)).min() else { return (0, 0, 0) };
    // an end that is counted from the end is behind all others
    let last = fixed().map(last_of).max_by_key(|last| (*last < 0, *last)).unwrap_or(0);
    (first, last, if let [spec] = specs { spec.step.into() } else { 1 })
}

fn write_spec(spec: &KeySpec, out: &mut Writer<'_>) {
    out.map(3);
    out.bulk(b"flags");
    out.set(spec.flags.split_whitespace().count());
    spec.flags.split_whitespace().for_each(|flag| out.simple(flag));
    out.bulk(b"begin_search");
    out.map(2);
    out.bulk(b"type");
    if spec.keyword.is_empty() {
        out.bulk(b"index");
        out.bulk(b"spec");
        out.map(1);
        out.bulk(b"index");
    } else {
        out.bulk(b"keyword");
        out.bulk(b"spec");
        out.map(2);
        out.bulk(b"keyword");
        out.bulk(spec.keyword.as_bytes());
        out.bulk(b"startfrom");
    }
    out.integer(spec.first.into());
    out.bulk(b"find_keys");
    out.map(2);
    out.bulk(b"type");
    if spec.is_counted {
        out.bulk(b"keynum");
        out.bulk(b"spec");
        out.map(3);
        for (name, number) in [(&b"keynumidx"[..], 0), (b"firstkey", 1), (b"keystep", spec.step.into())] {
            out.bulk(name);
            out.integer(number);
        }
        return;
    }
    out.bulk(b"range");
    out.bulk(b"spec");
    out.map(3);
    out.bulk(b"lastkey");
    out.integer(spec.last.into());
    out.bulk(b"keystep");
    out.integer(spec.step.into());
    out.bulk(b"limit");
    out.integer(spec.limit.into());
}

pub(crate) fn docs(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let table = control.server.table;
    let chosen: Vec<&Entry> = if args.len() == 2 {
        table.commands().collect()
    } else {
        // A key of a map is there once, however often it is asked for.
        let mut told = vec![false; table.entries().len()];
        let found = args.iter().skip(2).filter_map(|name| table.find_full(name));
        found.filter(|entry| !std::mem::replace(&mut told[usize::from(entry.id)], true)).collect()
    };
    let start = out.position();
    out.map(chosen.len());
    for entry in chosen {
        write_docs(table, entry, out);
        control.admit_reply(out.position() - start)?;
    }
    Ok(())
}

fn write_docs(table: &'static Table, entry: &Entry, out: &mut Writer<'_>) {
    let (command, subcommands) = (entry.command, table.subcommands(entry));
    let arguments = arguments::parse(command.args).unwrap_or_default();
    let (deprecated_since, replaced_by) = command.deprecated.split_once(' ').unwrap_or_default();
    let texts = [
        ("summary", command.summary),
        ("since", command.since),
        ("group", command.group),
        ("complexity", command.complexity),
        ("deprecated_since", deprecated_since),
        ("replaced_by", replaced_by),
    ];
    let texts = texts.iter().filter(|(_, value)| !value.is_empty());
    let others = [
        !command.deprecated.is_empty(),
        !command.history.is_empty(),
        !arguments.is_empty(),
        !subcommands.is_empty(),
    ];
    out.bulk(command.name.as_bytes());
    out.map(texts.clone().count() + others.iter().filter(|present| **present).count());
    for (name, value) in texts {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    if !command.deprecated.is_empty() {
        out.bulk(b"doc_flags");
        out.set(1);
        out.simple("deprecated");
    }
    if !command.history.is_empty() {
        write_history(command.history, out);
    }
    if !arguments.is_empty() {
        out.bulk(b"arguments");
        arguments::write(&arguments, out);
    }
    if !subcommands.is_empty() {
        out.bulk(b"subcommands");
        out.map(subcommands.len());
        subcommands.iter().for_each(|sub| write_docs(table, sub, out));
    }
}

fn write_history(history: &str, out: &mut Writer<'_>) {
    out.bulk(b"history");
    out.set(history.lines().count());
    for (version, text) in history.lines().filter_map(|line| line.split_once(' ')) {
        out.array(2);
        out.bulk(version.as_bytes());
        out.bulk(text.as_bytes());
    }
}

pub(crate) fn list(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let all = control.server.table.entries().iter();
    let names: Vec<&str> = match (args.len(), args.try_get(2)) {
        (2, _) => all.map(|entry| entry.command.name).collect(),
        (5, Some(by)) if is(by, "filterby") => {
            let (kind, value) = (args.get(3), args.get(4));
            let entries = control.server.table.entries().iter().map(|entry| entry.command);
            if is(kind, "module") {
                Vec::new()
            } else if is(kind, "aclcat") {
                let has = |command: &&Command| command.categories.split_whitespace().any(|c| is(value, c));
                entries.filter(has).map(|command| command.name).collect()
            } else if is(kind, "pattern") {
                let pattern = pattern(value, true)?;
                let fits = |command: &&Command| pattern.matches(command.name.as_bytes(), &mut 0);
                entries.filter(fits).map(|command| command.name).collect()
            } else {
                return Err(text::SYNTAX.into());
            }
        }
        _ => return Err(text::SYNTAX.into()),
    };
    out.array(names.len());
    names.iter().for_each(|name| out.bulk(name.as_bytes()));
    Ok(())
}

/// Finds the row and the keys of the command that `args` holds from 2 on; calls `found` for each key.
fn keys_of<'a>(
    table: &'static Table,
    args: ArgsView<'a>,
    mut found: impl FnMut(&'static Command, usize, &'a [u8]),
) -> Outcome {
    let args = args.from(2);
    let unknown =
        || errors::unsupported(args.get(0)).unwrap_or_else(|| "ERR Invalid command specified".into());
    let mut entry = table.find(args.get(0)).ok_or_else(unknown)?;
    if entry.command.is_container()
        && let Some(name) = args.try_get(1)
    {
        entry = table.find_sub(entry, name).ok_or("ERR Invalid command specified")?;
    }
    let command = entry.command;
    if command.keys.is_empty() {
        return Err("ERR The command has no key arguments".into());
    }
    if !command.takes(args.len()) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    if command.has_miscounted_keys(args) {
        if command.flags.has(Flags::NO_MANDATORY_KEYS) {
            return Ok(());
        }
        return Err("ERR Invalid arguments specified for command".into());
    }
    command.each_key(args, |index| found(command, index, args.get(index)));
    Ok(())
}

pub(crate) fn getkeys(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    getkeys_beside(control.server, args, out)
}

/// COMMAND GETKEYS on whatever thread.
pub(crate) fn getkeys_beside(server: &Server, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let mut keys = Vec::new();
    keys_of(server.table, args, |_, _, key| keys.push(key))?;
    out.array(keys.len());
    keys.iter().for_each(|key| out.bulk(key));
    Ok(())
}

pub(crate) fn getkeysandflags(
    control: &mut Control<'_>,
    args: ArgsView<'_>,
    out: &mut Writer<'_>,
) -> Outcome {
    getkeysandflags_beside(control.server, args, out)
}

/// COMMAND GETKEYSANDFLAGS on whatever thread.
pub(crate) fn getkeysandflags_beside(server: &Server, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let mut keys = Vec::new();
    keys_of(server.table, args, |command, index, key| {
        let spec = command.keys.iter().rev().find(|spec| usize::from(spec.first) <= index);
        keys.push((key, spec.map_or("", |spec| flags_of(spec.flags, args.from(2)))));
    })?;
    out.array(keys.len());
    for (key, flags) in keys {
        out.array(2);
        out.bulk(key);
        out.set(flags.split_whitespace().count());
        flags.split_whitespace().for_each(|flag| out.simple(flag));
    }
    Ok(())
}

/// The flags of a key of `command`, where its options decide: those of SET and BITFIELD.
fn flags_of(flags: &'static str, command: ArgsView<'_>) -> &'static str {
    match flags.strip_suffix(" variable_flags") {
        None => flags,
        Some(most) if is(command.get(0), "bitfield") => {
            let writes = command.iter().any(|word| is(word, "set") || is(word, "incrby"));
            if writes { most } else { "RO access" }
        }
        Some(most) if command.iter().skip(3).any(|option| is(option, "get")) => most,
        Some(_) => "OW update",
    }
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "(no subcommand)",
        "    Return details about all Redis commands.",
        "COUNT",
        "    Return the total number of commands in this Redis server.",
        "LIST",
        "    Return a list of all commands in this Redis server.",
        "INFO [<command-name> ...]",
        "    Return details about multiple Redis commands.",
        "    If no command names are given, documentation details for all",
        "    commands are returned.",
        "DOCS [<command-name> ...]",
        "    Return documentation details about multiple Redis commands.",
        "    If no command names are given, documentation details for all",
        "    commands are returned.",
        "GETKEYS <full-command>",
        "    Return the keys from a full Redis command.",
        "GETKEYSANDFLAGS <full-command>",
        "    Return the keys and the access flags from a full Redis command.",
    ];
    commands::words::help(out, "COMMAND", &lines);
    Ok(())
}
