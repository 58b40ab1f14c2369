//! What a task changes in an epoch, before it is durable: state, further commands, input positions, dead letters.
//!
//! ```text
//!   set, command -> staged --barrier--> sealed (in the group under way) --durable--> in the store, as everybody sees it
//! ```
//!
//! Invariants
//!   1. A task reads its own changes: staged ones before sealed ones, both before the store.
//!   2. At most one epoch is sealed: the next barrier comes when the one before is durable.
//!
//! **Bound.** What the tuples of two epochs change; a spout emits at most `max_spout_pending` tuples that are not durable.

use std::collections::{BTreeMap, HashSet};

use bytes::Bytes;

use crate::anchor::Ancestor;
use crate::ids::{ComponentId, TaskId};
use crate::parcel::Epoch;
use crate::tracker::{DeadLetter, Position};

/// Where a value of a bolt's state is: a key of the store, or a field of a hash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateKey {
    /// The key.
    pub key: Bytes,
    /// The field, if the key has a hash.
    pub field: Option<Bytes>,
}

/// A command that changes the store, as its words.
pub type Command = Vec<Bytes>;

/// Changes of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// New values; `None`: removed.
    pub values: BTreeMap<StateKey, Option<Bytes>>,
    /// Commands, in order.
    pub commands: Vec<Command>,
    /// Which tuples they come from, in the order of commands.
    pub causes: Vec<Cause>,
}

/// That a command comes from a tuple of a spout: that one is given up if the store refuses the command. A command may have several causes, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// The command's place among those that it is kept with.
    pub command: u32,
    /// The component that gave the command.
    pub component: ComponentId,
    /// The tuple.
    pub ancestor: Ancestor,
}

/// All that a task contributes to an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture {
    /// The task.
    pub task: TaskId,
    /// Which generation of tasks: what an earlier one sends late is not wanted.
    pub generation: u32,
    /// The epoch.
    pub epoch: Epoch,
    /// What it changed.
    pub changes: Changes,
    /// Of a spout task: the last position that it has emitted, if it ever has.
    pub position: Option<Position>,
    /// Of a spout task: tuples that it skipped because they were tried too often.
    pub dead: Vec<DeadLetter>,
}

/// Changes that are not durable.
#[derive(Debug, Default)]
pub(crate) struct Staging {
    staged: Changes,
    /// Of its commands those that an epoch has once.
    once: HashSet<Command>,
    /// Values of the epoch under way: what its commands do is not read.
    sealed: Option<(Epoch, Values)>,
}

type Values = BTreeMap<StateKey, Option<Bytes>>;

impl StateKey {
    /// The value of a key.
    #[must_use]
    pub fn of_key(key: impl Into<Bytes>) -> Self {
        Self { key: key.into(), field: None }
    }

    /// The field of a hash.
    #[must_use]
    pub fn of_field(key: impl Into<Bytes>, field: impl Into<Bytes>) -> Self {
        Self { key: key.into(), field: Some(field.into()) }
    }
}

impl Changes {
    /// Whether nothing was changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.values.is_empty() && self.commands.is_empty()
    }
}

impl Staging {
    pub(crate) fn set(&mut self, key: StateKey, value: Option<Bytes>) {
        self.staged.values.insert(key, value);
    }

    /// A command of `component`, which comes from `ancestors`.
    pub(crate) fn command(
        &mut self,
        command: Command,
        component: ComponentId,
        ancestors: impl Iterator<Item = Ancestor>,
    ) {
        let place = self.staged.commands.len() as u32;
        self.staged.causes.extend(ancestors.map(|ancestor| Cause { command: place, component, ancestor }));
        self.staged.commands.push(command);
    }

    /// A command that comes from no tuple alone, unless it was called with that command since the last barrier.
    pub(crate) fn command_once(&mut self, command: Command) {
        if !self.once.contains(&command) {
            self.once.insert(command.clone());
            self.staged.commands.push(command);
        }
    }

    /// The value that this task has given to `key`, or `None` if the store's holds.
    pub(crate) fn read(&self, key: &StateKey) -> Option<Option<&Bytes>> {
        let sealed = self.sealed.as_ref().map(|(_, values)| values);
        let newest_first = [Some(&self.staged.values), sealed].into_iter().flatten();
        let mut found = newest_first.filter_map(|values| values.get(key));
        found.next().map(Option::as_ref)
    }

    /// A barrier passes: what was staged belongs to `epoch`. The one before is durable, or there was no barrier; a barrier may overtake the
    /// message that says so.
    pub(crate) fn seal(&mut self, epoch: Epoch) -> Changes {
        self.on_durable(epoch.before());
        assert!(self.sealed.is_none(), "one epoch is under way at a time: {:?}", self.sealed);
        self.once.clear();
        let changes = std::mem::take(&mut self.staged);
        self.sealed = Some((epoch, changes.values.clone()));
        changes
    }

    /// The store has `epoch`.
    pub(crate) fn on_durable(&mut self, epoch: Epoch) {
        self.sealed.take_if(|(sealed, _)| *sealed <= epoch);
    }

    pub(crate) fn is_dirty(&self) -> bool {
        !self.staged.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::anchor::RootId;

    fn bytes(text: &str) -> Bytes {
        Bytes::copy_from_slice(text.as_bytes())
    }

    #[test]
    fn task_reads_its_own_changes_until_the_store_has_them() {
        let mut staging = Staging::default();
        let (k, field) = (StateKey::of_key("k"), StateKey::of_field("k", "f"));
        assert_eq!(staging.read(&k), None);
        staging.set(k.clone(), Some(bytes("1")));
        assert_eq!(staging.seal(Epoch(1)).values.len(), 1);
        assert_eq!((staging.read(&k), staging.read(&field)), (Some(Some(&bytes("1"))), None), "sealed");
        staging.set(k.clone(), None);
        assert_eq!(staging.read(&k), Some(None), "removed since");
        staging.on_durable(Epoch(0));
        staging.on_durable(Epoch(1));
        assert_eq!((staging.read(&k), staging.is_dirty()), (Some(None), true));
        assert_eq!(staging.seal(Epoch(2)).values.len(), 1, "the next epoch has only what is new");
        staging.on_durable(Epoch(2));
        assert_eq!(staging.read(&k), None);
    }

    #[test]
    fn barrier_says_that_the_epoch_before_is_durable() {
        let mut staging = Staging::default();
        staging.set(StateKey::of_key("k"), Some(bytes("1")));
        staging.seal(Epoch(1));
        staging.seal(Epoch(2));
        assert_eq!(staging.read(&StateKey::of_key("k")), None);
    }

    #[test]
    fn commands_keep_their_order() {
        let mut staging = Staging::default();
        let root = RootId { spout: TaskId(3), life: 1, number: 7 };
        let from = |count| (0..count).map(move |origin| Ancestor { root, origin });
        for n in 0..3 {
            staging.command(vec![bytes("DEL"), bytes(&n.to_string())], ComponentId(4), from(n));
        }
        let Changes { commands, causes, .. } = staging.seal(Epoch(1));
        assert_eq!(commands.iter().map(|words| &words[1][..]).collect::<Vec<_>>(), [b"0", b"1", b"2"]);
        let causes = causes.iter().map(|cause| (cause.command, cause.ancestor.origin));
        assert_eq!(causes.collect::<Vec<_>>(), [(1, 0), (2, 0), (2, 1)]);
        assert!(!staging.is_dirty());
    }

    #[test]
    fn command_that_an_epoch_has_once_comes_again_with_the_next_one() {
        let mut staging = Staging::default();
        let expire =
            |staging: &mut Staging| staging.command_once(vec![bytes("PEXPIRE"), bytes("k"), bytes("5")]);
        (0..3).for_each(|_| expire(&mut staging));
        assert_eq!(staging.seal(Epoch(1)).commands.len(), 1);
        expire(&mut staging);
        assert_eq!(staging.seal(Epoch(2)).commands.len(), 1);
    }
}
