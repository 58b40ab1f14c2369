//! HELLO, AUTH, SELECT and what else is about the connection itself.

use std::sync::atomic::Ordering;

use commands::args::{is, small_integer};
use commands::call::{Failure, Outcome, text};
use resp::{ArgsView, Writer, parse_i64};

use crate::acl::AclContext;
use crate::acl::log::Reason;
use crate::clients::DEFAULT_USER;
use crate::control::Control;
use crate::permit::note_refusal;
use crate::server::Server;
use crate::session::{Replies, Session};
use crate::strangers::Strangers;
use crate::topologies::Login;

pub(crate) fn ping(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if args.len() > 2 {
        return Err(commands::failure::arity("ping"));
    }
    let message = args.try_get(1);
    if control.session.is_subscribed() && !control.session.resp3 {
        // The form of a message, so that a client that only reads messages can read it.
        out.array(2);
        out.bulk(b"pong");
        out.bulk(message.unwrap_or_default());
    } else if let Some(message) = message {
        out.bulk(message);
    } else {
        out.simple("PONG");
    }
    Ok(())
}

pub(crate) fn echo(_control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.bulk(args.get(1));
    Ok(())
}

pub(crate) fn select(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    control.session.db = selected(control.server, args.get(1))?;
    control.session.client.db.store(control.session.db, Ordering::Relaxed);
    out.ok();
    Ok(())
}

/// The database that SELECT chooses.
pub(crate) fn selected(server: &Server, arg: &[u8]) -> Result<u16, Failure> {
    let number = u16::try_from(small_integer(arg)?).ok();
    number.filter(|number| *number < server.store.databases()).ok_or_else(|| text::DB_RANGE.into())
}

pub(crate) fn quit(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    control.session.closing = true;
    out.ok();
    Ok(())
}

pub(crate) fn reset(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (server, session) = (control.server, &mut *control.session);
    let client = &session.client;
    client.db.store(0, Ordering::Relaxed);
    client.resp3.store(false, Ordering::Relaxed);
    client.channels.store(0, Ordering::Relaxed);
    client.patterns.store(0, Ordering::Relaxed);
    client.shards.store(0, Ordering::Relaxed);
    client.no_evict.store(false, Ordering::Relaxed);
    client.no_touch.store(false, Ordering::Relaxed);
    client.relabel(|labels| labels.name = Box::default());
    if client.monitor.swap(false, Ordering::Relaxed) {
        server.monitors.remove(client.id);
    }
    server.captures.abandon(client);
    if let Some(subscriptions) = session.subscriptions.take() {
        server.pubsub.forget(client.id, &subscriptions);
    }
    if session.tracking.take().is_some() {
        client.set_tracker(None);
        server.notices.tracking.remove(client.id);
        server.notices.refresh();
    }
    session.end_transaction(&server.long);
    session.newest_tx = None;
    session.db = 0;
    session.resp3 = false;
    session.replies = Replies::On;
    session.log_in(Login { user: DEFAULT_USER.into(), rights: None, hold: None });
    if server.wants_password() {
        session.become_stranger(control.now);
    }
    out.set_resp3(false);
    out.simple("RESET");
    Ok(())
}

pub(crate) fn auth(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    match args.len() {
        2 if control.server.acl.default_user().nopass => {
            return Err("ERR AUTH <password> called without any password configured for the default \
                        user. Are you sure your configuration is correct?"
                .into());
        }
        2 => authenticate(control, DEFAULT_USER, args.get(1), args.get(0))?,
        3 => authenticate(control, args.get(1), args.get(2), args.get(0))?,
        _ => return Err(text::SYNTAX.into()),
    }
    out.ok();
    Ok(())
}

/// Refuses who is not who they say, and lets those wait who were not before; `command` is what they sent.
fn authenticate(control: &mut Control<'_>, user: &[u8], password: &[u8], command: &[u8]) -> Outcome {
    let (server, now) = (control.server, control.now);
    if let Some(later) =
        server.strangers.password_at(&mut control.session.stranger, &control.session.client, now)
    {
        // EXEC waited before it ran: this is another password behind a wrong one.
        let refusal = "ERR no password is looked at in a transaction after a wrong one";
        return Err(if control.in_exec { refusal.into() } else { Failure::Wait(later) });
    }
    let Some(login) = login_of(server, control.session.client.id, user, password) else {
        server.strangers.note_wrong_password(&mut control.session.stranger, &control.session.client, now);
        let context = if control.in_exec { AclContext::Exec } else { AclContext::Direct };
        note_refusal(server, &control.session.client, user, Reason::Auth, context, command);
        return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
    };
    Strangers::note_right_password(&mut control.session.stranger);
    control.session.log_in(login);
    Ok(())
}

/// Who logs in on connection `id`; `None` if the password is wrong.
fn login_of(server: &Server, id: u64, user: &[u8], password: &[u8]) -> Option<Login> {
    if server.acl.find(user).is_some_and(|user| user.admits(password)) {
        return Some(Login { user: user.into(), rights: None, hold: None });
    }
    // A worker of a topology that this server runs.
    let topologies = server.topologies.as_ref().filter(|_| user == supervisor::USER.as_bytes())?;
    topologies.admit_worker(id, |it| same_secret(it, password))
}

/// Compares in a time that depends on the lengths alone.
fn same_secret(wanted: &[u8], given: &[u8]) -> bool {
    let mut difference = wanted.len() ^ given.len();
    for (index, byte) in given.iter().enumerate() {
        let right = wanted.get(index).copied().unwrap_or(0);
        difference |= usize::from(std::hint::black_box(right ^ byte));
    }
    difference == 0
}

/// Arguments of HELLO.
#[derive(Debug, Default)]
struct Greeting<'a> {
    version: Option<i64>,
    user: Option<(&'a [u8], &'a [u8])>,
    name: Option<&'a [u8]>,
}

impl<'a> Greeting<'a> {
    fn parse(args: ArgsView<'a>) -> Result<Self, Failure> {
        let mut greeting = Greeting::default();
        if let Some(version) = args.try_get(1) {
            let version =
                parse_i64(version).ok_or("ERR Protocol version is not an integer or out of range")?;
            if !(2..=3).contains(&version) {
                return Err("NOPROTO unsupported protocol version".into());
            }
            greeting.version = Some(version);
        }
        let mut index = 2;
        while let Some(option) = args.try_get(index) {
            if is(option, "auth") && args.len() > index + 2 {
                greeting.user = Some((args.get(index + 1), args.get(index + 2)));
                index += 3;
            } else if is(option, "setname") && args.len() > index + 1 {
                greeting.name = Some(args.get(index + 1));
                index += 2;
            } else {
                return Err(
                    format!("ERR Syntax error in HELLO option '{}'", commands::args::shown(option)).into()
                );
            }
        }
        Ok(greeting)
    }
}

/// The version that HELLO, sent by an authenticated client, changes to; `None` if it changes none or is refused.
pub(crate) fn greeted(server: &Server, args: ArgsView<'_>) -> Option<bool> {
    let greeting = Greeting::parse(args).ok()?;
    if greeting.user.is_some_and(|(user, password)| login_of(server, 0, user, password).is_none()) {
        return None;
    }
    greeting.name.map_or(Ok(()), super::client::check_name).ok()?;
    greeting.version.map(|version| version == 3)
}

/// Refuses a stranger.
fn admit(control: &mut Control<'_>, greeting: &Greeting<'_>) -> Outcome {
    match greeting.user {
        Some((user, password)) => authenticate(control, user, password, b"HELLO"),
        None if control.session.authenticated => Ok(()),
        None => Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the \
                     HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and \
                     select the RESP protocol version at the same time"
            .into()),
    }
}

pub(crate) fn hello(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let greeting = Greeting::parse(args)?;
    // A name that is refused lets nobody in.
    greeting.name.map_or(Ok(()), super::client::check_name)?;
    admit(control, &greeting)?;
    if let Some(name) = greeting.name {
        super::client::set_name(control.session, name)?;
    }
    if let Some(version) = greeting.version {
        set_version(control.session, version == 3, out);
    }
    out.map(7);
    out.bulk(b"server");
    out.bulk(b"redis");
    out.bulk(b"version");
    out.bulk(COMPATIBLE_VERSION.as_bytes());
    out.bulk(b"proto");
    out.integer(if control.session.resp3 { 3 } else { 2 });
    out.bulk(b"id");
    out.integer(control.session.client.id.cast_signed());
    out.bulk(b"mode");
    out.bulk(b"standalone");
    out.bulk(b"role");
    out.bulk(b"master");
    out.bulk(b"modules");
    out.array(0);
    Ok(())
}

fn set_version(session: &mut Session, resp3: bool, out: &mut Writer<'_>) {
    session.resp3 = resp3;
    session.client.resp3.store(resp3, Ordering::Relaxed);
    out.set_resp3(resp3);
}

/// The version of Redis whose documentation we follow: clients choose their commands by it.
pub(crate) const COMPATIBLE_VERSION: &str = script::VERSION;
