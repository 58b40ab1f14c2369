//! The one check that decides whether a command may run, wherever it comes from.

use std::sync::Arc;

use commands::failure::Failure;
use commands::lookup::Entry;
use resp::ArgsView;

use super::log;
use super::selector::Denied;
use super::user::User;
use crate::clients::Client;
use crate::server::Server;
use crate::topologies::guard;
use crate::topologies::rights::Rights;

/// Who asks for a command: goes where the command goes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Permissions {
    /// The user, unless it may do everything.
    pub(crate) user: Option<Arc<User>>,
    /// What the topology may do whose worker asks, if its definition names its keys.
    pub(crate) rights: Option<Arc<Rights>>,
    /// The topology whose worker asks.
    pub(crate) topology: Option<Arc<str>>,
    /// The connection; none where nobody is told.
    pub(crate) client: Option<Arc<Client>>,
}

/// Where a command comes from: what ACL LOG calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// Sent by itself.
    Direct,
    /// Queued for EXEC.
    Queued,
    /// Run by EXEC.
    Exec,
    /// Called by a script.
    Script,
}

impl Permissions {
    /// Whether the command may run, in database `db` if that is known yet.
    ///
    /// # Errors
    /// It may not, and why; ACL LOG has it.
    #[inline]
    pub(crate) fn check(
        &self,
        server: &Server,
        entry: &Entry,
        args: ArgsView<'_>,
        db: Option<u16>,
        origin: Origin,
    ) -> Result<(), Failure> {
        if let Some(user) = &self.user {
            match user.check(entry, args, db) {
                // As in Redis the option is refused when the command runs.
                Ok(()) => {}
                Err(Denied::Option(_)) if origin == Origin::Queued => {}
                Err(denied) => return Err(self.refuse(server, entry, args, denied, origin)),
            }
        }
        if let Some(rights) = &self.rights {
            rights.check(entry.command, args)?;
        }
        guard::check(server, self.topology.as_deref(), entry.command, args, db)
    }

    #[cold]
    fn refuse(
        &self,
        server: &Server,
        entry: &Entry,
        args: ArgsView<'_>,
        denied: Denied,
        origin: Origin,
    ) -> Failure {
        let name = entry.command.name;
        let (reason, object) = match denied {
            Denied::Command | Denied::Option(_) => (log::Reason::Command, name.as_bytes().to_vec()),
            Denied::Database(db) => (
                log::Reason::Database,
                db.map_or_else(|| b"all".to_vec(), |number| number.to_string().into_bytes()),
            ),
            Denied::Key(at) => (log::Reason::Key, args.get(at).to_vec()),
            Denied::Channel(at) => (log::Reason::Channel, args.get(at).to_vec()),
        };
        if let (Some(client), Some(user)) = (&self.client, &self.user) {
            server.note_refusal(client, &user.name, reason, origin, &object);
        }
        match (origin, denied) {
            (Origin::Script, _) => script_text(denied).into(),
            (_, Denied::Command) => {
                format!("NOPERM this user has no permissions to run the '{name}' command").into()
            }
            (_, Denied::Option(option)) => {
                format!("ERR {option} option of SORT denied due to insufficient ACL permissions.").into()
            }
            (_, Denied::Database(_)) => {
                "NOPERM this user has no permissions to access one of the databases that the command uses"
                    .into()
            }
            (_, Denied::Key(_)) => {
                "NOPERM this user has no permissions to access one of the keys used as arguments".into()
            }
            (_, Denied::Channel(_)) => {
                "NOPERM this user has no permissions to access one of the channels used as arguments".into()
            }
        }
    }
}

/// What a script is told, as Redis 7.0 words it.
fn script_text(denied: Denied) -> &'static str {
    match denied {
        Denied::Command => "ERR The user executing the script can't run this command or subcommand",
        Denied::Option(_) => "ERR option of SORT denied due to insufficient ACL permissions.",
        Denied::Database(_) => "ERR The user executing the script can't access this database",
        Denied::Key(_) => {
            "ERR The user executing the script can't access at least one of the keys mentioned in the command arguments"
        }
        Denied::Channel(_) => {
            "ERR The user executing the script can't publish to the channel mentioned in the command"
        }
    }
}

impl Origin {
    /// As ACL LOG names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "toplevel",
            Self::Queued | Self::Exec => "multi",
            Self::Script => "lua",
        }
    }
}
