//! What survives the workers: sources, keys, the output, dead letters. It may crash itself, and loses what is not durable.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use topology::changes::StateKey;
use topology::epochs::{EpochStore, Group, Refused};
use topology::ids::TaskId;
use topology::parcel::Epoch;
use topology::random::Random;
use topology::tracker::{DeadLetter, Position, Settled};

use crate::shapes::Word;

/// The server.
#[derive(Debug, Default)]
pub struct Server {
    /// What each spout task reads; the position of the first is 1.
    pub inputs: BTreeMap<TaskId, Vec<Word>>,
    /// Positions that are settled, of guarantees without epochs.
    settled: BTreeMap<TaskId, BTreeSet<u128>>,
    /// What users see; without epochs components write it at once.
    visible: State,
    /// Groups that were appended, and up to which they are durable.
    groups: Vec<Group>,
    durable: Epoch,
}

/// What users see.
#[derive(Clone, Debug, Default)]
pub struct State {
    pub keys: BTreeMap<Bytes, Bytes>,
    pub outputs: BTreeMap<String, u64>,
    pub dead: Vec<(TaskId, DeadLetter)>,
    pub positions: BTreeMap<TaskId, Position>,
}

impl Server {
    pub fn new(inputs: BTreeMap<TaskId, Vec<Word>>) -> Self {
        Self { inputs, ..Self::default() }
    }

    /// The next input of `task` after `cursor` that is not settled.
    pub fn read(&self, task: TaskId, cursor: u128) -> Option<(Position, Word)> {
        let words = &self.inputs[&task];
        let is_open = |position: &u128| !self.settled.get(&task).is_some_and(|done| done.contains(position));
        let next = (cursor + 1..=words.len() as u128).find(is_open)?;
        Some((Position(next), words[next as usize - 1].clone()))
    }

    /// Where `task` begins to read when it starts.
    pub fn start(&self, task: TaskId) -> u128 {
        self.state().positions.get(&task).map_or(0, |position| position.0)
    }

    /// A spout is done with a position. Says what is wrong if it was before.
    pub fn settle(&mut self, task: TaskId, settled: Settled) -> Result<(), String> {
        let position = match &settled {
            Settled::Acked(position) => *position,
            Settled::Dead(letter) => letter.original.position,
        };
        if !self.settled.entry(task).or_default().insert(position.0) {
            return Err(format!("{task} settled {position:?} twice"));
        }
        if let Settled::Dead(letter) = settled {
            self.visible.dead.push((task, letter));
        }
        Ok(())
    }

    /// Adds 1 to a number at once.
    pub fn increment(&mut self, key: &str) {
        let count = self.visible.keys.entry(Bytes::copy_from_slice(key.as_bytes())).or_default();
        *count = (number(count) + 1).to_string().into();
    }

    /// Appends to the output at once.
    pub fn output(&mut self, id: &str) {
        *self.visible.outputs.entry(id.to_owned()).or_default() += 1;
    }

    /// The value that the store shows for a key.
    pub fn get(&self, key: &[u8]) -> Option<Bytes> {
        self.visible.keys.get(key).cloned()
    }

    /// Whether every input is settled, or read by an epoch.
    pub fn is_done(&self) -> bool {
        let state = self.state();
        self.inputs.iter().all(|(task, words)| {
            let settled = self.settled.get(task).map_or(0, BTreeSet::len);
            let read = state.positions.get(task).map_or(0, |position| position.0 as usize);
            settled.max(read) == words.len()
        })
    }

    /// All that it shows now.
    pub fn state(&self) -> &State {
        &self.visible
    }

    /// The last epoch that was appended.
    pub fn appended(&self) -> Epoch {
        self.groups.last().map_or(Epoch(0), |group| group.epoch)
    }

    /// The group of that epoch.
    pub fn last_group(&self) -> Option<&Group> {
        self.groups.last()
    }

    /// A sync has returned that covers `epoch`.
    pub fn sync(&mut self, epoch: Epoch) {
        self.durable = self.durable.max(epoch.min(self.appended()));
    }

    /// The power fails: some groups that were not durable are gone; those that are there are durable now.
    pub fn crash(&mut self, random: &mut Random) {
        let first = self.groups.partition_point(|group| group.epoch <= self.durable);
        let kept = first + random.index(self.groups.len() - first + 1);
        self.groups.truncate(kept);
        self.durable = self.appended();
        self.visible = State::default();
        self.groups.iter().for_each(|group| self.visible.apply(group));
    }
}

impl State {
    fn apply(&mut self, group: &Group) {
        for (StateKey { key, .. }, value) in &group.values {
            match value {
                Some(value) => self.keys.insert(key.clone(), value.clone()),
                None => self.keys.remove(key),
            };
        }
        for command in &group.commands {
            *self.outputs.entry(String::from_utf8_lossy(&command[1]).into_owned()).or_default() += 1;
        }
        self.positions.extend(&group.positions);
        self.dead.extend(group.dead.iter().cloned());
    }
}

impl EpochStore for Server {
    fn append(&mut self, group: Group) -> Result<(), Refused> {
        let newest = self.groups.last().map_or(0, |group| group.generation);
        if group.generation < newest || group.epoch != self.appended().next() {
            return Err(Refused);
        }
        self.visible.apply(&group);
        self.groups.push(group);
        Ok(())
    }

    fn durable(&self) -> Epoch {
        self.durable
    }
}

/// The number that a value spells.
pub fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()).unwrap_or(0)
}
