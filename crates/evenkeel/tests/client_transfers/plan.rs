//! What transfers there are: who takes part, who moves how much, and how the application behaves.

use vfs::sim::Rng;

/// Accounts that each party has.
pub const ACCOUNTS: u64 = 16;
/// What is on each at the beginning.
pub const INITIAL: i64 = 1_000;

/// Who keeps accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Party {
    Postgres,
    MariaDb,
    Keys,
}

impl Party {
    pub const ALL: [Self; 3] = [Self::Postgres, Self::MariaDb, Self::Keys];

    /// As the settings file names it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Postgres => "pg",
            Self::MariaDb => "my",
            Self::Keys => "keys",
        }
    }
}

/// What is done in one party.
#[derive(Clone, Debug)]
pub struct Part {
    pub party: Party,
    /// Account and what is added to it; none: it is only read.
    pub moves: Vec<(u64, i64)>,
    /// The application prepares this branch in a session of its own.
    pub is_own: bool,
}

/// How the application ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    Commits,
    RollsBack,
    /// It says nothing more.
    Leaves,
}

/// A transfer as it is meant.
#[derive(Clone, Debug)]
pub struct Transfer {
    pub number: u64,
    /// In the order in which they are worked on.
    pub parts: Vec<Part>,
    pub ends: Ends,
    /// Enlists its own branches before it works in them, not after it has prepared them.
    pub enlists_first: bool,
    /// Its own session of MariaDB takes the branch's lock; otherwise it is named as OWNER.
    pub takes_lock: bool,
    /// Keeps its own sessions until it has committed.
    pub keeps_sessions: bool,
    /// Goes on to commit although something went wrong.
    pub is_stubborn: bool,
    /// Sends all at once, and looks at no reply before the commit.
    pub is_pipeline: bool,
}

impl Transfer {
    pub fn random(number: u64, rng: &mut Rng) -> Self {
        let mut parties = Party::ALL;
        for at in (1..parties.len()).rev() {
            parties.swap(at, rng.index(at + 1));
        }
        let writers = match rng.below(20) {
            0..=9 => 3,
            10..=17 => 2,
            _ => 1,
        };
        let reads = usize::from(writers < 3 && rng.chance(2, 5));
        let parts = parties.iter().take(writers + reads).enumerate();
        let mut parts: Vec<Part> = parts.map(|(at, party)| part(*party, at < writers, rng)).collect();
        balance(&mut parts, writers, rng);
        let ends = match rng.below(40) {
            0..=1 => Ends::RollsBack,
            2 => Ends::Leaves,
            _ => Ends::Commits,
        };
        let may_be_pipeline = ends == Ends::Commits && parts.iter().all(|part| !part.is_own);
        Self {
            number,
            parts,
            ends,
            is_pipeline: may_be_pipeline && rng.chance(1, 2),
            enlists_first: rng.chance(1, 2),
            takes_lock: rng.chance(3, 4),
            keeps_sessions: rng.chance(1, 4),
            is_stubborn: rng.chance(1, 2),
        }
    }

    /// Parties that this changes.
    pub fn writers(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().filter(|part| !part.moves.is_empty())
    }
}

fn part(party: Party, writes: bool, rng: &mut Rng) -> Part {
    let moves = if writes { vec![(rng.below(ACCOUNTS), 0)] } else { Vec::new() };
    let is_own = writes && party != Party::Keys && rng.chance(1, 4);
    Part { party, moves, is_own }
}

/// Moves an amount from the first writer to the others; a lone one between two of its accounts.
fn balance(parts: &mut [Part], writers: usize, rng: &mut Rng) {
    let others = writers.max(2) as i64 - 1;
    // What no account has is refused by the databases' checks; keys have none.
    let is_too_much = parts[0].party != Party::Keys && rng.chance(1, 15);
    let each = if is_too_much { 1_000_000 } else { 1 + rng.below(20) as i64 };
    parts[0].moves[0].1 = -each * others;
    for other in parts.iter_mut().take(writers).skip(1) {
        other.moves[0].1 = each;
    }
    if writers == 1 {
        let from = parts[0].moves[0].0;
        parts[0].moves.push(((from + 1) % ACCOUNTS, each));
    }
}
