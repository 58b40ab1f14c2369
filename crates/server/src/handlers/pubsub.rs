//! PUBLISH, SUBSCRIBE and their relatives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::call::{Failure, Outcome};
use commands::glob::Pattern;
use resp::{ArgsView, Writer};

use crate::control::Control;
use crate::pubsub::{CHANNEL_BYTES_MAX, SLICE_STEPS, compiled_bytes};
use crate::subscriptions::{Names, Publishing};

pub(crate) fn publish(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (channel, payload) = (args.get(1), args.get(2));
    let pubsub = &control.server.pubsub;
    let begun = control.session.pending.as_mut().and_then(|pending| pending.publishing.pop_front());
    admit_channel(channel)?;
    // EXEC waited before it ran, and has looked for the patterns.
    let (mut publishing, is_begun, is_done) = match begun {
        Some(publishing) if control.in_exec => (publishing, false, true),
        begun => {
            if begun.is_none()
                && let Some(later) = control.server.pubsub.publish_at(control.now)
            {
                return Err(Failure::Wait(later));
            }
            let is_begun = begun.is_some();
            let mut publishing = begun.unwrap_or_else(|| Publishing::new(channel, payload));
            let is_done = pubsub.walk_patterns(channel, &mut publishing.walk, &mut { SLICE_STEPS });
            (publishing, is_begun, is_done)
        }
    };
    if !is_begun {
        publishing.walk.audience += pubsub.listeners(Names::Channels, channel);
    }
    if publishing.walk.audience > 0 {
        control.outbox.push(publishing.take((!is_begun).then_some(Names::Channels)));
    }
    if !is_done {
        control.session.pending.get_or_insert_default().publishing.push_back(publishing);
        return Err(Failure::Wait(control.now));
    }
    out.integer(publishing.walk.audience as i64);
    Ok(())
}

pub(crate) fn spublish(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (channel, pubsub) = (args.get(1), &control.server.pubsub);
    admit_channel(channel)?;
    // EXEC waited before it ran
    if !control.in_exec
        && let Some(later) = pubsub.publish_at(control.now)
    {
        return Err(Failure::Wait(later));
    }
    let audience = pubsub.listeners(Names::Shards, channel);
    if audience > 0 {
        control.outbox.push(Publishing::new(channel, args.get(2)).take(Some(Names::Shards)));
    }
    out.integer(audience as i64);
    Ok(())
}

/// Refuses a name that matching could take long for.
pub(crate) fn admit_channel(channel: &[u8]) -> Outcome {
    if channel.len() <= CHANNEL_BYTES_MAX {
        return Ok(());
    }
    let text = format!(
        "ERR a channel's name of {} B is longer than the limit of {CHANNEL_BYTES_MAX} B",
        channel.len()
    );
    Err(text.into())
}

pub(crate) fn subscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    add(control, args, Names::Channels, out)
}

pub(crate) fn psubscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    add(control, args, Names::Patterns, out)
}

pub(crate) fn ssubscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    add(control, args, Names::Shards, out)
}

pub(crate) fn unsubscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    remove(control, args, Names::Channels, out);
    Ok(())
}

pub(crate) fn punsubscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    remove(control, args, Names::Patterns, out);
    Ok(())
}

pub(crate) fn sunsubscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    remove(control, args, Names::Shards, out);
    Ok(())
}

fn add(control: &mut Control<'_>, args: ArgsView<'_>, names: Names, out: &mut Writer<'_>) -> Outcome {
    let patterns = admit(control, args, names)?;
    let id = control.session.client.id;
    for (name, pattern) in args.iter().skip(1).zip(patterns) {
        let subscriptions = control.session.subscriptions.get_or_insert_default();
        let own = subscriptions.of_mut(names);
        if !own.contains(name) {
            let name: Arc<[u8]> = Arc::from(name);
            own.insert(Arc::clone(&name));
            subscriptions.bytes += name_bytes(&name, pattern.as_deref());
            control.server.pubsub.add(names, &name, pattern, id);
        }
        confirm(out, names.verb(), Some(name), subscriptions.confirmed(names));
    }
    mirror(control);
    Ok(())
}

/// Refuses names that are too long, or would take more than one connection may; returns the compiled patterns of those that
/// are new.
fn admit(
    control: &Control<'_>,
    args: ArgsView<'_>,
    names: Names,
) -> Result<Vec<Option<Box<Pattern>>>, Failure> {
    let most = control.server.settings.current().connections_subscriptions_max.0;
    let held = control.session.subscriptions.as_deref();
    let mut bytes = held.map_or(0, |held| held.bytes);
    let mut patterns = Vec::with_capacity(args.len() - 1);
    for name in args.iter().skip(1) {
        if held.is_some_and(|held| held.of(names).contains(name)) {
            patterns.push(None);
            continue;
        }
        let pattern = match names {
            Names::Channels | Names::Shards => {
                admit_channel(name)?;
                None
            }
            Names::Patterns => Some(Box::new(commands::args::pattern(name, false)?)),
        };
        bytes += name_bytes(name, pattern.as_deref());
        patterns.push(pattern);
        if bytes > most {
            let text = format!(
                "ERR the channels and patterns of this connection would take more than \
                 connections.subscriptions_max ({most} B)"
            );
            return Err(text.into());
        }
    }
    Ok(patterns)
}

/// What a name takes, with its places in the lists of it.
fn name_bytes(name: &[u8], pattern: Option<&Pattern>) -> u64 {
    name.len() as u64 + NAME_OVERHEAD_BYTES + pattern.map_or(0, compiled_bytes)
}

fn remove(control: &mut Control<'_>, args: ArgsView<'_>, names: Names, out: &mut Writer<'_>) {
    let verb = names.verb_of_end();
    let id = control.session.client.id;
    let mut subscriptions = control.session.subscriptions.take().unwrap_or_default();
    let named: Vec<Arc<[u8]>> = match args.len() {
        1 => subscriptions.of(names).iter().cloned().collect(),
        _ => args.iter().skip(1).map(Arc::from).collect(),
    };
    for name in &named {
        if subscriptions.of_mut(names).remove(name) {
            subscriptions.bytes -= name_bytes(name, None) + control.server.pubsub.remove(names, name, id);
        }
        confirm(out, verb, Some(name), subscriptions.confirmed(names));
    }
    if named.is_empty() {
        confirm(out, verb, None, subscriptions.confirmed(names));
    }
    if subscriptions.count() > 0 {
        control.session.subscriptions = Some(subscriptions);
    }
    mirror(control);
}

fn confirm(out: &mut Writer<'_>, verb: &str, name: Option<&[u8]>, count: usize) {
    out.push(3);
    out.bulk(verb.as_bytes());
    out.bulk_or_null(name);
    out.integer(count as i64);
}

/// Shows the counts to CLIENT LIST.
fn mirror(control: &Control<'_>) {
    let (client, subscriptions) = (&control.session.client, control.session.subscriptions.as_deref());
    for (names, shown) in [
        (Names::Channels, &client.channels),
        (Names::Patterns, &client.patterns),
        (Names::Shards, &client.shards),
    ] {
        let count = subscriptions.map_or(0, |subscriptions| subscriptions.of(names).len());
        shown.store(u32::try_from(count).unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}

pub(crate) fn channels(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    list(control, args, Names::Channels, out)
}

pub(crate) fn shardchannels(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    list(control, args, Names::Shards, out)
}

/// Answers with the names of one kind that somebody listens to.
fn list(control: &mut Control<'_>, args: ArgsView<'_>, names: Names, out: &mut Writer<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(commands::failure::sub_syntax("PUBSUB", args.get(1)));
    }
    let pattern = args.try_get(2).map(|pattern| commands::args::pattern(pattern, false)).transpose()?;
    let begun = control.session.pending.as_mut().map(|pending| std::mem::take(&mut pending.walk));
    let mut walk = begun.unwrap_or_default();
    let mut steps_left = if control.in_exec { EXEC_STEPS_MAX } else { SLICE_STEPS };
    let is_done = control.server.pubsub.walk(names, &mut walk, &mut steps_left, |listened, steps| {
        pattern.as_ref().is_none_or(|pattern| pattern.matches(&listened.name, steps))
    });
    if !is_done && control.in_exec {
        return Err("ERR there are too many channels for PUBSUB CHANNELS inside MULTI".into());
    }
    let bytes: usize = walk.found.iter().map(|name| name.len() + commands::call::BULK_OVERHEAD_BYTES).sum();
    control.admit_reply(bytes)?;
    if !is_done {
        control.session.pending.get_or_insert_default().walk = walk;
        return Err(Failure::Wait(control.now));
    }
    out.array(walk.found.len());
    walk.found.iter().for_each(|name| out.bulk(name));
    Ok(())
}

pub(crate) fn numsub(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    count(control, args, Names::Channels, out);
    Ok(())
}

pub(crate) fn shardnumsub(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    count(control, args, Names::Shards, out);
    Ok(())
}

/// Answers how many listen to each channel that is named.
fn count(control: &Control<'_>, args: ArgsView<'_>, names: Names, out: &mut Writer<'_>) {
    out.array((args.len() - 2) * 2);
    for channel in args.iter().skip(2) {
        out.bulk(channel);
        out.integer(control.server.pubsub.listeners(names, channel) as i64);
    }
}

pub(crate) fn numpat(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(control.server.pubsub.counts()[1] as i64);
    Ok(())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let lines = [
        "CHANNELS [<pattern>]",
        "    Return the currently active channels matching a <pattern> (default: '*').",
        "NUMPAT",
        "    Return number of subscriptions to patterns.",
        "NUMSUB [<channel> ...]",
        "    Return the number of subscribers for the specified channels, excluding",
        "    pattern subscriptions(default: no channels).",
        "SHARDCHANNELS [<pattern>]",
        "    Return the currently active shard level channels matching a <pattern> (default: '*').",
        "SHARDNUMSUB [<shardchannel> ...]",
        "    Return the number of subscribers for the specified shard level channel(s)",
    ];
    commands::words::help(out, "PUBSUB", &lines);
    Ok(())
}

/// Two sets, a list and the listeners' list know each name.
const NAME_OVERHEAD_BYTES: u64 = 192;
/// A transaction does not wait between two slices: it looks at so much, some 10 ms, or at nothing.
const EXEC_STEPS_MAX: u64 = 10_000_000;
