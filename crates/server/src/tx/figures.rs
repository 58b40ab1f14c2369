//! Figures of transactions, for INFO and metrics.

use sql::Sessions;
use txn::coordinator::Counters;
use txn::decision_log::LogCounters;
use txn::phases::Phases;
use txn::protocol::State;

use super::Transactions;
use crate::settings::ResourceKind;

/// Transactions at a moment.
#[derive(Clone, Debug, Default)]
pub struct TransactionFigures {
    /// The server's name in databases.
    pub node: String,
    /// Which start of it this is.
    pub epoch: u32,
    /// Where decisions are kept: `journal`, `file` or `none`.
    pub log: String,
    /// Outcomes, and how many are under way or kept.
    pub counters: Counters,
    /// How many are in which state; those that are done and kept count as `committed`.
    pub states: Vec<(&'static str, u64)>,
    /// How long phases took.
    pub phases: Phases,
    /// The decision log.
    pub decisions: LogCounters,
    /// Branches of keys that are prepared.
    pub prepared: u64,
    /// Keys that they hold.
    pub locked_keys: u64,
    /// Databases that prepared branches hold whole.
    pub locked_databases: u64,
    /// Databases.
    pub resources: Vec<ResourceFigures>,
}

/// A database.
#[derive(Clone, Debug)]
pub struct ResourceFigures {
    /// As the settings name it.
    pub name: String,
    /// What it is.
    pub kind: ResourceKind,
    /// Why it takes no branches now; empty if it does.
    pub trouble: String,
    /// Its sessions.
    pub sessions: Sessions,
}

impl ResourceKind {
    /// In a word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Postgres => "postgresql",
            Self::MariaDb => "mariadb",
        }
    }
}

impl Transactions {
    /// The figures, now. Counts all transactions under way.
    pub(crate) fn figures(&self) -> TransactionFigures {
        let counted = self.coordinator.states();
        let count = |state: State| (state.name(), counted.get(&state).copied().unwrap_or(0));
        let states = State::ALL.into_iter().map(count).collect();
        let of_resource = |named: &super::Named| ResourceFigures {
            name: named.name.to_string(),
            kind: named.kind,
            trouble: named.database.ready().err().map_or_else(String::new, |why| why.to_string()),
            sessions: named.database.sessions(),
        };
        TransactionFigures {
            node: self.node.to_string(),
            epoch: self.epoch,
            log: self.log.clone(),
            counters: self.coordinator.counters(),
            states,
            phases: self.coordinator.phases(),
            decisions: self.coordinator.log_counters(),
            prepared: self.shared.keys.prepared(),
            locked_keys: self.shared.keys.locked(),
            locked_databases: self.shared.keys.locked_databases(),
            resources: self.databases.iter().map(of_resource).collect(),
        }
    }
}
