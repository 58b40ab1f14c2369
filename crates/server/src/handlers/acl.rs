//! ACL: users are made, shown and tried.

use commands::args::{integer, is, shown};
use commands::call::{Failure, Outcome};
use commands::command::Kind;
use resp::{ArgsView, Writer};
use ring::rand::{SecureRandom, SystemRandom};

use super::kill::end;
use crate::acl::file::{UserFile, write};
use crate::acl::log::Kept;
use crate::acl::selector::{CATEGORIES, Denied, Selector, category_of, has_category};
use crate::acl::user::{USER_BYTES_MAX, USER_RULES_MAX, User, hex};
use crate::clients::DEFAULT_USER;
use crate::control::Control;
use crate::message::Message;

pub(crate) fn whoami(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    out.bulk(&control.session.member.name);
    Ok(())
}

pub(crate) fn users(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    write_all(control, out, |user| user.name.to_vec())
}

pub(crate) fn list(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    write_all(control, out, User::line)
}

fn write_all(control: &mut Control<'_>, out: &mut Writer<'_>, text: impl Fn(&User) -> Vec<u8>) -> Outcome {
    let users = control.server.acl.all();
    let start = out.position();
    out.array(users.len());
    for user in users {
        out.bulk(&text(&user));
        control.admit_reply(out.position() - start)?;
    }
    Ok(())
}

pub(crate) fn cat(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(name) = args.try_get(2) else {
        out.array(CATEGORIES.len());
        CATEGORIES.iter().for_each(|name| out.bulk(name.as_bytes()));
        return Ok(());
    };
    if args.len() > 3 {
        return Err(commands::failure::sub_syntax("ACL", args.get(1)));
    }
    let category =
        category_of(name).ok_or_else(|| Failure::from(format!("ERR Unknown category '{}'", shown(name))))?;
    let entries = control.server.table.entries().iter();
    let of_it: Vec<_> = entries.filter(|entry| has_category(entry.command, category)).collect();
    out.array(of_it.len());
    of_it.iter().for_each(|entry| out.bulk(entry.command.name.as_bytes()));
    Ok(())
}

pub(crate) fn getuser(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let Some(user) = control.server.acl.find(args.get(2)) else {
        out.null();
        return Ok(());
    };
    out.map(6);
    out.bulk(b"flags");
    let flags = user.flags();
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"passwords");
    let hashes = user.hashes();
    out.array(hashes.len());
    hashes.iter().for_each(|hash| out.bulk(hash.as_bytes()));
    write_selector(&user.root, out);
    out.bulk(b"selectors");
    out.array(user.selectors.len());
    for selector in &user.selectors {
        out.map(3);
        write_selector(selector, out);
    }
    Ok(())
}

/// Three fields of a map; what is said of databases stands with the keys.
fn write_selector(selector: &Selector, out: &mut Writer<'_>) {
    out.bulk(b"commands");
    out.bulk(&selector.commands_text());
    out.bulk(b"keys");
    let parts = [selector.keys_text(), selector.databases_text()];
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).filter(|part| !part.is_empty()).collect();
    out.bulk(&parts.join(&b' '));
    out.bulk(b"channels");
    out.bulk(&selector.channels_text());
}

pub(crate) fn setuser(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (server, name) = (control.server, args.get(2));
    if name.is_empty() || name.iter().any(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return Err("ERR Usernames can't contain spaces or null characters".into());
    }
    let bytes: usize = args.iter().skip(2).map(<[u8]>::len).sum();
    let rules = args.len() - 3;
    if bytes > USER_BYTES_MAX || rules > USER_RULES_MAX {
        return Err(format!(
            "ERR {rules} rules of {bytes} B are more than the limit of {USER_RULES_MAX} rules and {USER_BYTES_MAX} B"
        )
        .into());
    }
    let settings = server.settings.current();
    let all_channels = settings.acl_all_channels;
    let was_there = server.acl.change_within_bounds(name, |former| {
        let user = former.cloned().unwrap_or_else(|| User::new(name, server.table, all_channels));
        let was_open = user.is_open();
        let user = user.with_rules(args.iter().skip(3), all_channels).map_err(refused)?;
        user.check_size().map_err(|error| Failure::from(format!("ERR {error}")))?;
        if name == DEFAULT_USER && user.is_open() && !was_open && settings.is_protected() {
            return Err("ERR the user default without a password would let other machines in: bind 127.0.0.1, or turn \
                        protected_mode off"
                .into());
        }
        Ok::<_, Failure>(user)
    })?;
    if was_there {
        changed(control, |user| user == name);
    }
    drop(control.wait_for_callbacks());
    tracing::info!(client = control.session.client.address(), user = shown(name), "a user was changed");
    out.ok();
    Ok(())
}

fn refused((rule, error): (Vec<u8>, crate::acl::RuleError)) -> Failure {
    use crate::acl::RuleError::OpenParenthesis;
    let text = if error == OpenParenthesis {
        [
            b"ERR Unmatched parenthesis in acl selector starting at '",
            &rule[..rule.len().min(SHOWN_BYTES_MAX)],
            b"'.",
        ]
        .concat()
    } else {
        let rule = &rule[..rule.len().min(SHOWN_BYTES_MAX)];
        [b"ERR Error in ACL SETUSER modifier '", rule, format!("': {error}").as_bytes()].concat()
    };
    Failure::Bytes(text)
}

/// Tells the connections of users that `is_changed`: what waits is looked at again, and what they may not hear they hear no more.
fn changed(control: &mut Control<'_>, is_changed: impl Fn(&[u8]) -> bool) {
    let own = control.session.client.id;
    for client in control.server.clients.all() {
        if client.id != own && is_changed(&client.user()) {
            control.server.peers.post(client.id, Message::UserChanged);
        }
    }
}

pub(crate) fn deluser(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let names = || args.iter().skip(2);
    if names().any(|name| name == DEFAULT_USER) {
        return Err("ERR The 'default' user cannot be removed".into());
    }
    let server = control.server;
    let removed = names().filter(|name| server.acl.remove(name)).count();
    end_clients_without_user(control);
    drop(control.wait_for_callbacks());
    tracing::info!(client = control.session.client.address(), removed, "users were removed");
    out.integer(removed as i64);
    Ok(())
}

/// Ends the connections of users that are there no more.
fn end_clients_without_user(control: &mut Control<'_>) {
    let clients = control.server.clients.all();
    let gone = clients.iter().filter(|client| control.server.acl.find(&client.user()).is_none());
    for client in gone.collect::<Vec<_>>() {
        end(control, client);
    }
}

pub(crate) fn genpass(_control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    if args.len() > 3 {
        return Err(commands::failure::sub_syntax("ACL", args.get(1)));
    }
    let bits = args.try_get(2).map_or(Ok(256), integer)?;
    let bits = usize::try_from(bits).ok().filter(|bits| (1..=4096).contains(bits)).ok_or(
        "ERR ACL GENPASS argument must be the number of bits for the output password, a positive number up to 4096",
    )?;
    let digits = bits.div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    SystemRandom::new().fill(&mut bytes).map_err(|_| "ERR the system gives no random numbers")?;
    out.bulk(&hex(&bytes).as_bytes()[..digits]);
    Ok(())
}

/// Whether a user could run a command, without running it.
pub(crate) fn dryrun(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let (server, name, command) = (control.server, args.get(2), args.from(3));
    let user = server.acl.find(name);
    let user = user.ok_or_else(|| Failure::from(format!("ERR User '{}' not found", shown(name))))?;
    let unknown = || Failure::from(format!("ERR Command '{}' not found", shown(command.get(0))));
    let table = server.table;
    let mut entry = table.find(command.get(0)).ok_or_else(unknown)?;
    if let (Kind::Container, Some(sub)) = (entry.command.kind, command.try_get(1)) {
        entry = table.find_sub(entry, sub).ok_or_else(unknown)?;
    }
    if !entry.command.takes(command.len()) {
        return Err(commands::failure::arity(entry.command.name));
    }
    let db = Some(control.session.db);
    let Err(denied) = user.check(entry, command, db) else {
        out.ok();
        return Ok(());
    };
    let may_not = |what: &[u8], kind: &str| {
        let shown = &what[..what.len().min(SHOWN_BYTES_MAX)];
        [b"This user has no permissions to access the '", shown, format!("' {kind}").as_bytes()].concat()
    };
    out.bulk(&match denied {
        Denied::Command => {
            format!("This user has no permissions to run the '{}' command", entry.command.name).into_bytes()
        }
        Denied::Option(option) => {
            format!("This user has no permissions to use the option {option} of SORT").into_bytes()
        }
        Denied::Database(Some(db)) => may_not(db.to_string().as_bytes(), "database"),
        Denied::Database(None) => b"This user has no permissions to access all databases".to_vec(),
        Denied::Key(at) => may_not(command.get(at), "key"),
        Denied::Channel(at) => may_not(command.get(at), "channel"),
    });
    Ok(())
}

pub(crate) fn log(control: &mut Control<'_>, args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let log = &control.server.acl.log;
    let count = match args.try_get(2) {
        _ if args.len() > 3 => return Err(commands::failure::sub_syntax("ACL", args.get(1))),
        None => LOG_ENTRIES,
        Some(word) if is(word, "reset") => {
            log.clear();
            out.ok();
            return Ok(());
        }
        Some(count) => usize::try_from(integer(count)?).unwrap_or(0),
    };
    let now_ms = control.server.clock.unix_us() / 1_000;
    let entries = log.newest(count);
    let start = out.position();
    out.array(entries.len());
    for kept in entries {
        write_refusal(&kept, now_ms, out);
        control.admit_reply(out.position() - start)?;
    }
    Ok(())
}

fn write_refusal(kept: &Kept, now_ms: u64, out: &mut Writer<'_>) {
    let Kept { entry, count, id, first_unix_ms, last_unix_ms } = kept;
    out.map(10);
    out.bulk(b"count");
    out.integer(count.cast_signed());
    for (name, value) in [
        (&b"reason"[..], entry.reason.name().as_bytes()),
        (b"context", entry.context.as_bytes()),
        (b"object", &entry.object),
        (b"username", &entry.user),
    ] {
        out.bulk(name);
        out.bulk(value);
    }
    out.bulk(b"age-seconds");
    out.double(now_ms.saturating_sub(*last_unix_ms) as f64 / 1_000.0);
    out.bulk(b"client-info");
    out.bulk(&entry.client);
    for (name, number) in [
        (&b"entry-id"[..], id),
        (b"timestamp-created", first_unix_ms),
        (b"timestamp-last-updated", last_unix_ms),
    ] {
        out.bulk(name);
        out.integer(number.cast_signed());
    }
}

pub(crate) fn save(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let settings = control.server.settings.current();
    let path = settings.acl_file.as_ref().ok_or(NO_FILE)?;
    let users = control.server.acl.all();
    write(path, users.iter().map(|user| user.line()))
        .map_err(|error| Failure::from(format!("ERR the users were not saved: acl.file {error}")))?;
    out.ok();
    Ok(())
}

pub(crate) fn load(control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    let settings = control.server.settings.current();
    let path = settings.acl_file.as_ref().ok_or(NO_FILE)?;
    let file = UserFile::read(path, control.server.table, settings.acl_all_channels)
        .map_err(|error| Failure::from(format!("ERR nothing has changed: acl.file {error}")))?;
    control.server.acl.replace(file.into_users());
    end_clients_without_user(control);
    changed(control, |_| true);
    drop(control.wait_for_callbacks());
    tracing::info!(client = control.session.client.address(), "users were read from acl.file");
    out.ok();
    Ok(())
}

pub(crate) fn help(_control: &mut Control<'_>, _args: ArgsView<'_>, out: &mut Writer<'_>) -> Outcome {
    commands::words::help(
        out,
        "ACL",
        &[
            "CAT [<category>]",
            "    List all commands that belong to <category>, or all command categories",
            "    when no category is specified.",
            "DELUSER <username> [<username> ...]",
            "    Delete a list of users.",
            "DRYRUN <username> <command> [<arg> ...]",
            "    Returns whether the user can execute the given command without executing the command.",
            "GETUSER <username>",
            "    Get the user's details.",
            "GENPASS [<bits>]",
            "    Generate a secure 256-bit user password. The optional `bits` argument can",
            "    be used to specify a different size.",
            "LIST",
            "    Show users details in config file format.",
            "LOAD",
            "    Reload users from the ACL file.",
            "LOG [<count> | RESET]",
            "    Show the ACL log entries.",
            "SAVE",
            "    Save the current config to the ACL file.",
            "SETUSER <username> <attribute> [<attribute> ...]",
            "    Create or modify a user with the specified attributes.",
            "USERS",
            "    List all the registered usernames.",
            "WHOAMI",
            "    Return the current connection username.",
        ],
    );
    Ok(())
}

const NO_FILE: &str = "ERR This server has no file of users: start it with acl.file set";
/// Entries of ACL LOG that are shown without a number.
const LOG_ENTRIES: usize = 10;
/// Bytes of a rule that an error shows.
const SHOWN_BYTES_MAX: usize = 128;
