//! The one check that decides whether a command may run, wherever it comes from.

use commands::failure::Failure;
use commands::lookup::Entry;
use resp::ArgsView;

use crate::acl::log::{Entry as LogEntry, Reason};
use crate::acl::selector::Denied;
use crate::acl::{AclContext, Permissions};
use crate::clients::Client;
use crate::describe::describe;
use crate::server::Server;
use crate::topologies::guard;

/// Whether the command may run, in database `db` if that is known yet.
///
/// # Errors
/// It may not, and why; ACL LOG has it.
#[inline]
pub(crate) fn check(
    server: &Server,
    permissions: &Permissions,
    entry: &Entry,
    args: ArgsView<'_>,
    db: Option<u16>,
    context: AclContext,
) -> Result<(), Failure> {
    if let Some(user) = &permissions.user {
        match user.check(entry, args, db) {
            // As in Redis the option is refused when the command runs.
            Ok(()) => {}
            Err(Denied::Option(_)) if context == AclContext::Queued => {}
            Err(denied) => return Err(refuse(server, permissions, entry, args, denied, context)),
        }
    }
    if let Some(rights) = &permissions.rights {
        rights.check(entry.command, args)?;
    }
    guard::check(server, permissions.topology.as_deref(), entry.command, args, db)
}

#[cold]
fn refuse(
    server: &Server,
    permissions: &Permissions,
    entry: &Entry,
    args: ArgsView<'_>,
    denied: Denied,
    context: AclContext,
) -> Failure {
    let name = entry.command.name;
    let (reason, object) = match denied {
        Denied::Command | Denied::Option(_) => (Reason::Command, name.as_bytes().to_vec()),
        Denied::Database(db) => {
            (Reason::Database, db.map_or_else(|| b"all".to_vec(), |number| number.to_string().into_bytes()))
        }
        Denied::Key(at) => (Reason::Key, args.get(at).to_vec()),
        Denied::Channel(at) => (Reason::Channel, args.get(at).to_vec()),
    };
    if let (Some(client), Some(user)) = (&permissions.client, &permissions.user) {
        note_refusal(server, client, &user.name, reason, context, &object);
    }
    match (context, denied) {
        (_, Denied::Option(option)) => {
            format!("ERR {option} option of SORT denied due to insufficient ACL permissions.").into()
        }
        (AclContext::Script, _) => script_text(denied).into(),
        (_, Denied::Command) => {
            format!("NOPERM this user has no permissions to run the '{name}' command").into()
        }
        (_, Denied::Database(_)) => {
            "NOPERM this user has no permissions to access one of the databases that the command uses".into()
        }
        (_, Denied::Key(_)) => {
            "NOPERM this user has no permissions to access one of the keys used as arguments".into()
        }
        (_, Denied::Channel(_)) => {
            "NOPERM this user has no permissions to access one of the channels used as arguments".into()
        }
    }
}

/// Keeps what `client` was refused as `user`, for ACL LOG.
pub(crate) fn note_refusal(
    server: &Server,
    client: &Client,
    user: &[u8],
    reason: Reason,
    context: AclContext,
    object: &[u8],
) {
    let line = describe(client, server.table, server.clock.now()).into();
    let (context, object, user) = (context.name(), object.into(), user.into());
    let entry = LogEntry { reason, context, object, user, client: line };
    let length_max = server.settings.current().acl_log_length_max;
    server.acl.log.add(entry, server.clock.unix_us() / 1_000, length_max);
}

/// What a script is told, as Redis 7.0 words it.
fn script_text(denied: Denied) -> &'static str {
    match denied {
        Denied::Command | Denied::Option(_) => {
            "ERR The user executing the script can't run this command or subcommand"
        }
        Denied::Database(_) => "ERR The user executing the script can't access this database",
        Denied::Key(_) => {
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
        }
        Denied::Channel(_) => {
            "ERR The user executing the script can't publish to the channel mentioned in the command"
        }
    }
}
