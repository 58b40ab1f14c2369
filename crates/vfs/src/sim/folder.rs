//! A simulated folder: the names that programs see, the ones on the platter, and the changes between.
//!
//! Changes arrive in order: a power loss keeps a prefix of them (a journalling file system's promise for
//! one folder), never a later one without an earlier one. A rename inside a folder is one change.

use std::collections::BTreeMap;

use super::Rng;

/// Identity of a file; never used again.
pub(super) type InodeId = u64;
type Names = BTreeMap<String, InodeId>;

/// One change of names that no sync of the folder has covered yet.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Set { name: String, inode: InodeId },
    Remove { name: String },
    Move { from: String, to: String },
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            Self::Set { name, inode } => {
                names.insert(name.clone(), *inode);
            }
            Self::Remove { name } => {
                names.remove(name);
            }
            Self::Move { from, to } => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
        }
    }
}

/// A flat folder of files.
#[derive(Clone, Debug, Default)]
pub(super) struct Folder {
    live: Names,
    durable: Names,
    pending: Vec<NameChange>,
}

impl Folder {
    /// What programs see.
    pub(super) fn live(&self) -> &Names {
        &self.live
    }

    /// Applies `change` to what programs see; a power loss may still undo it.
    pub(super) fn change(&mut self, change: NameChange) {
        change.apply(&mut self.live);
        self.pending.push(change);
    }

    /// Makes every name durable.
    pub(super) fn sync(&mut self) {
        self.pending.clear();
        self.durable.clone_from(&self.live);
    }

    /// Every file that some power loss could still show under a name.
    pub(super) fn reachable(&self) -> impl Iterator<Item = InodeId> {
        let added = self.pending.iter().filter_map(|change| match change {
            NameChange::Set { inode, .. } => Some(*inode),
            _ => None,
        });
        self.live.values().chain(self.durable.values()).copied().chain(added)
    }

    /// The folder as a power loss leaves it.
    pub(super) fn crashed(&self, rng: &mut Rng) -> Self {
        let kept = match rng.below(4) {
            0 => 0,
            1 => self.pending.len(),
            _ => rng.index(self.pending.len() + 1),
        };
        let mut names = self.durable.clone();
        for change in &self.pending[..kept] {
            change.apply(&mut names);
        }
        Self { live: names.clone(), durable: names, pending: Vec::new() }
    }
}
