//! CLIENT TRACKING, CACHING, TRACKINGINFO, GETREDIR: what a connection keeps copies of.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use commands::args::{integer, is};
use commands::call::{Failure, Outcome, text};
use resp::{ArgsView, Writer};

use crate::control::Control;
use crate::session::{CopiesTracked, Session};
use crate::tracker::TrackingOptions;

pub(crate) fn getredir(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.integer(redirect_of(control.session));
    Ok(())
}

/// Who is told in place of a client: -1 where it does not track, 0 for itself.
fn redirect_of(session: &Session) -> i64 {
    session.tracking.as_ref().map_or(-1, |it| it.tracker.options.redirect.cast_signed())
}

pub(crate) fn trackinginfo(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let mut flags = Vec::new();
    let tracking = control.session.tracking.as_deref();
    match tracking {
        None => flags.push("off"),
        Some(CopiesTracked { tracker, caching, .. }) => {
            let options = &tracker.options;
            flags.push("on");
            for (is_set, name) in [
                (options.bcast, "bcast"),
                (options.optin, "optin"),
                (options.optin && *caching, "caching-yes"),
                (options.optout, "optout"),
                (options.optout && *caching, "caching-no"),
                (options.noloop, "noloop"),
                (tracker.is_broken.load(Ordering::Relaxed), "broken_redirect"),
            ] {
                flags.extend(is_set.then_some(name));
            }
        }
    }
    out.map(3);
    out.bulk(b"flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"redirect");
    out.integer(redirect_of(control.session));
    out.bulk(b"prefixes");
    let prefixes = tracking.map_or(&[][..], |it| &it.tracker.options.prefixes);
    out.array(prefixes.len());
    prefixes.iter().for_each(|prefix| out.bulk(prefix));
    Ok(())
}

pub(crate) fn tracking(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let options = parse(control, args)?;
    match args.get(2) {
        status if is(status, "on") => switch_on(control, options)?,
        status if is(status, "off") => switch_off(control),
        _ => return Err(text::SYNTAX.into()),
    }
    out.ok();
    Ok(())
}

/// The connection keeps copies no more.
pub(crate) fn switch_off(control: &mut Control<'_>) {
    if control.session.tracking.take().is_some() {
        control.session.client.set_tracker(None);
        control.server.notices.tracking.remove(control.session.client.id);
        control.server.notices.refresh();
    }
}

/// Reads the options, which clients may send with OFF, too.
fn parse(control: &Control<'_>, args: ArgsView<'_>) -> Result<TrackingOptions, Failure> {
    let (mut options, mut index) = (TrackingOptions::default(), 3);
    while let Some(option) = args.try_get(index) {
        let value = args.try_get(index + 1);
        if let Some(id) = value.filter(|_| is(option, "redirect")) {
            if options.redirect != 0 {
                return Err("ERR A client can only redirect to a single other client".into());
            }
            let id = u64::try_from(integer(id)?).ok();
            options.redirect = id
                .filter(|id| control.server.clients.find(*id).is_some())
                .ok_or("ERR The client ID you want redirect to does not exist")?;
            index += 1;
        } else if let Some(prefix) = value.filter(|_| is(option, "prefix")) {
            options.prefixes.push(prefix.into());
            index += 1;
        } else {
            let flag = match option {
                _ if is(option, "bcast") => &mut options.bcast,
                _ if is(option, "optin") => &mut options.optin,
                _ if is(option, "optout") => &mut options.optout,
                _ if is(option, "noloop") => &mut options.noloop,
                _ => return Err(text::SYNTAX.into()),
            };
            *flag = true;
        }
        index += 1;
    }
    Ok(options)
}

fn switch_on(control: &mut Control<'_>, mut options: TrackingOptions) -> Outcome {
    let former = control.session.tracking.as_ref().map(|it| &it.tracker.options);
    if !options.bcast && !options.prefixes.is_empty() {
        return Err("ERR PREFIX option requires BCAST mode to be enabled".into());
    }
    if former.is_some_and(|former| former.bcast != options.bcast) {
        let text = "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then \
                    re-enabling it with a different mode.";
        return Err(text.into());
    }
    if options.bcast && (options.optin || options.optout) {
        return Err("ERR OPTIN and OPTOUT are not compatible with BCAST".into());
    }
    if options.optin && options.optout {
        return Err("ERR You can't specify both OPTIN mode and OPTOUT mode".into());
    }
    if former.is_some_and(|former| (options.optin && former.optout) || (options.optout && former.optin)) {
        let text = "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then \
                    re-enabling it with a different mode.";
        return Err(text.into());
    }
    if options.bcast {
        let former = former.map_or(&[][..], |former| &former.prefixes);
        let all = Box::default();
        if options.prefixes.is_empty() && !former.contains(&all) {
            options.prefixes.push(all);
        }
        check_prefixes(former, &options.prefixes)?;
        options.prefixes.splice(0..0, former.iter().cloned());
    }
    let bytes: usize = options.prefixes.iter().map(|prefix| prefix.len() + PREFIX_BYTES).sum();
    let most = control.server.settings.current().connections_subscriptions_max.0;
    if bytes as u64 > most {
        let text = format!(
            "ERR the prefixes of this connection would take more than connections.subscriptions_max ({most} B)"
        );
        return Err(text.into());
    }
    let tracker = control.server.notices.tracking.add(control.session.client.id, options);
    control.server.notices.refresh();
    control.session.client.set_tracker(Some(Arc::clone(&tracker)));
    control.session.tracking = Some(Box::new(CopiesTracked::new(tracker, bytes)));
    Ok(())
}

/// Refuses prefixes of which one begins with another: of a key that has both it would be told twice.
fn check_prefixes(former: &[Box<[u8]>], new: &[Box<[u8]>]) -> Outcome {
    // in order a prefix of others comes right before the first of them
    let mut all: Vec<(&[u8], usize)> = former.iter().map(|prefix| (&prefix[..], 0)).collect();
    all.extend(new.iter().zip(1..).map(|(prefix, number)| (&prefix[..], number)));
    all.sort_unstable();
    let Some(pair) = all.windows(2).find(|pair| pair[1].0.starts_with(pair[0].0)) else { return Ok(()) };
    let (mut first, mut second) = (pair[0], pair[1]);
    // the one that was given first is named first, and one that was there before last
    let comes_later = first.1 == 0 || (second.1 != 0 && second.1 < first.1);
    if comes_later {
        (first, second) = (second, first);
    }
    let kind = if second.1 == 0 { "an existing" } else { "another provided" };
    let text = format!(
        "ERR Prefix '{}' overlaps with {kind} prefix '{}'. Prefixes for a single client must not overlap.",
        first.0.escape_ascii(),
        second.0.escape_ascii()
    );
    Err(text.into())
}

pub(crate) fn caching(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(tracking) = &mut control.session.tracking else {
        let text = "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT \
                    mode enabled";
        return Err(text.into());
    };
    let options = &tracking.tracker.options;
    match args.get(2) {
        choice if is(choice, "yes") && !options.optin => {
            return Err("ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.".into());
        }
        choice if is(choice, "no") && !options.optout => {
            return Err("ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.".into());
        }
        choice if is(choice, "yes") || is(choice, "no") => tracking.caching = true,
        _ => return Err(text::SYNTAX.into()),
    }
    out.ok();
    Ok(())
}

/// What a prefix takes beside its bytes, in two lists.
const PREFIX_BYTES: usize = 192;
