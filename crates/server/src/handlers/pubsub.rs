//! PUBLISH, SUBSCRIBE and their relatives.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use resp::{ArgsView, Writer};

use crate::call::{Control, Failure, Outcome};
use crate::glob;
use crate::pubsub::Names;

pub(crate) fn publish(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (channel, payload) = (args.get(1), args.get(2));
    // EXEC asked before it ran.
    if !control.in_exec
        && let Some(later) = control.server.publish_at(control.now)
    {
        return Err(Failure::Wait(later));
    }
    let audience = control.server.pubsub.audience(channel);
    if audience > 0 {
        control.outbox.push((Arc::from(channel), Arc::from(payload)));
    }
    out.integer(audience as i64);
    Ok(())
}

pub(crate) fn subscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    add(control, args, Names::Channels, out)
}

pub(crate) fn psubscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    add(control, args, Names::Patterns, out)
}

pub(crate) fn unsubscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    remove(control, args, Names::Channels, out);
    Ok(())
}

pub(crate) fn punsubscribe(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    remove(control, args, Names::Patterns, out);
    Ok(())
}

fn add(control: &mut Control<'_>, args: ArgsView<'_>, names: Names, out: &mut Writer<'_>) -> Outcome {
    admit(control, args, names)?;
    let id = control.session.client.id;
    for name in args.iter().skip(1) {
        let subscriptions = control.session.subscriptions.get_or_insert_default();
        let own = match names {
            Names::Channels => &mut subscriptions.channels,
            Names::Patterns => &mut subscriptions.patterns,
        };
        if !own.contains(name) {
            let name: Arc<[u8]> = Arc::from(name);
            own.insert(Arc::clone(&name));
            subscriptions.bytes += name_bytes(&name);
            control.server.pubsub.add(names, &name, id);
        }
        let verb: &[u8] = if names == Names::Channels { b"subscribe" } else { b"psubscribe" };
        confirm(out, verb, Some(name), subscriptions.count());
    }
    mirror(control);
    Ok(())
}

/// Refuses names that would take more than one connection may.
fn admit(control: &Control<'_>, args: ArgsView<'_>, names: Names) -> Outcome {
    let most = control.server.settings.current().connections_subscriptions_max.0;
    let held = control.session.subscriptions.as_deref();
    let is_new = |name: &&[u8]| !held.is_some_and(|held| held.of(names).contains(*name));
    let new: u64 = args.iter().skip(1).filter(is_new).map(name_bytes).sum();
    if held.map_or(0, |held| held.bytes) + new > most {
        let text = format!(
            "ERR the channels and patterns of this connection would take more than \
             connections.subscriptions_max ({most} B)"
        );
        return Err(text.into());
    }
    Ok(())
}

/// What a name takes, with its places in the two lists of it.
fn name_bytes(name: &[u8]) -> u64 {
    name.len() as u64 + NAME_OVERHEAD_BYTES
}

fn remove(control: &mut Control<'_>, args: ArgsView<'_>, names: Names, out: &mut Writer<'_>) {
    let verb: &[u8] = if names == Names::Channels { b"unsubscribe" } else { b"punsubscribe" };
    let id = control.session.client.id;
    let mut subscriptions = control.session.subscriptions.take().unwrap_or_default();
    let own = |subscriptions: &crate::session::Subscriptions| match names {
        Names::Channels => subscriptions.channels.iter().cloned().collect::<Vec<_>>(),
        Names::Patterns => subscriptions.patterns.iter().cloned().collect(),
    };
    let named: Vec<Arc<[u8]>> =
        if args.len() > 1 { args.iter().skip(1).map(Arc::from).collect() } else { own(&subscriptions) };
    for name in &named {
        let gone = match names {
            Names::Channels => subscriptions.channels.remove(name),
            Names::Patterns => subscriptions.patterns.remove(name),
        };
        if gone {
            subscriptions.bytes -= name_bytes(name);
            control.server.pubsub.remove(names, name, id);
        }
        confirm(out, verb, Some(name), subscriptions.count());
    }
    if named.is_empty() {
        confirm(out, verb, None, subscriptions.count());
    }
    if subscriptions.count() > 0 {
        control.session.subscriptions = Some(subscriptions);
    }
    mirror(control);
}

fn confirm(out: &mut Writer<'_>, verb: &[u8], name: Option<&[u8]>, count: usize) {
    out.push(3);
    out.bulk(verb);
    out.bulk_or_null(name);
    out.integer(count as i64);
}

/// Shows the counts to CLIENT LIST.
fn mirror(control: &Control<'_>) {
    let counts =
        control.session.subscriptions.as_ref().map_or((0, 0), |s| (s.channels.len(), s.patterns.len()));
    let client = &control.session.client;
    client.channels.store(u32::try_from(counts.0).unwrap_or(u32::MAX), Ordering::Relaxed);
    client.patterns.store(u32::try_from(counts.1).unwrap_or(u32::MAX), Ordering::Relaxed);
}

pub(crate) fn channels(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(crate::errors::sub_syntax("PUBSUB", args.get(1)));
    }
    let pattern = args.try_get(2);
    let fits = |name: &[u8]| pattern.is_none_or(|pattern| glob::matches(pattern, name, false));
    let channels = control.server.pubsub.channels(fits);
    out.array(channels.len());
    channels.iter().for_each(|name| out.bulk(name));
    Ok(())
}

pub(crate) fn numsub(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.array((args.len() - 2) * 2);
    for channel in args.iter().skip(2) {
        out.bulk(channel);
        out.integer(control.server.pubsub.listeners(channel) as i64);
    }
    Ok(())
}

/// There are no shard channels: SSUBSCRIBE is none of our commands.
pub(crate) fn shardchannels(_control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(crate::errors::sub_syntax("PUBSUB", args.get(1)));
    }
    out.array(0);
    Ok(())
}

pub(crate) fn shardnumsub(_control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.array((args.len() - 2) * 2);
    for channel in args.iter().skip(2) {
        out.bulk(channel);
        out.integer(0);
    }
    Ok(())
}

pub(crate) fn numpat(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(control.server.pubsub.counts().1 as i64);
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
        "    Return the currently active shard level channels. There are none.",
        "SHARDNUMSUB [<shardchannel> ...]",
        "    Return the number of subscribers for the specified shard level channel(s)",
    ];
    super::help(out, "PUBSUB", &lines);
    Ok(())
}

/// Two sets and a list of listeners know each name.
const NAME_OVERHEAD_BYTES: u64 = 128;
