//! Who asks for a command, and where it comes from.

use std::sync::Arc;

use super::user::User;
use crate::clients::Client;
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
pub(crate) enum AclContext {
    /// Sent by itself.
    Direct,
    /// Queued for EXEC.
    Queued,
    /// Run by EXEC.
    Exec,
    /// Called by a script.
    Script,
}

impl AclContext {
    /// As ACL LOG names it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "toplevel",
            Self::Queued | Self::Exec => "multi",
            Self::Script => "lua",
        }
    }
}
