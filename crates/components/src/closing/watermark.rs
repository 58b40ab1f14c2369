//! The watermark of a task with exactly-once, in a hash: for each task that it reads (`COMPONENT:PLACE`) the largest time, and `watermark`.
//!
//! Invariants
//!   1. It never goes back.
//!   2. It does not move before each source has sent something, without those that have sent nothing for `--idle-ms`, since the task began at the earliest.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use clock::Nanos;
use topology::changes::StateKey;
use topology::component::{Context, Fault};
use topology::ids::TaskId;

use super::Settings;
use crate::draft::Draft;

/// What a task knows of its sources: read once, as nobody else changes it.
#[derive(Debug)]
pub(super) struct Watermark {
    hash: Bytes,
    lateness_ms: u64,
    idle: Duration,
    sources: BTreeMap<TaskId, Source>,
    is_read: bool,
    reached_ms: Option<u64>,
}

/// A task that is read.
#[derive(Debug)]
struct Source {
    name: String,
    largest_ms: Option<u64>,
    /// When its last tuple came, or the task began.
    came: Nanos,
}

/// What a tuple changes: of its source, and where the watermark is then.
#[derive(Debug)]
pub(super) struct Moved {
    from: TaskId,
    largest_ms: Option<u64>,
    came: Nanos,
    pub(super) reached_ms: Option<u64>,
}

impl Watermark {
    /// That of the task of `context`, which begins at `now`.
    pub(super) fn new(hash: Bytes, settings: &Settings, context: &Context<'_>, now: Nanos) -> Self {
        let plan = context.plan();
        let source = |task: TaskId| {
            let of = plan.component_of(task);
            let name = format!("{}:{}", plan.component(of).id, task.0 - plan.tasks(of).start);
            (task, Source { name, largest_ms: None, came: now })
        };
        let sources = plan.upstream_tasks(context.component()).into_iter().map(source).collect();
        let idle = Duration::from_millis(settings.idle_ms);
        Self { hash, lateness_ms: settings.lateness_ms, idle, sources, is_read: false, reached_ms: None }
    }

    /// Reads what there is, once.
    ///
    /// # Errors
    /// It is being read.
    pub(super) fn read(&mut self, draft: &mut Draft<'_, '_>) -> Result<(), Fault> {
        if self.is_read {
            return Ok(());
        }
        let names = self.sources.values().map(|source| source.name.as_str()).chain([REACHED]);
        let values = draft.get_all(names.map(|name| self.place(name)))?;
        let time = |text: Bytes| -> Result<u64, Fault> { Ok(std::str::from_utf8(&text)?.parse()?) };
        let mut times =
            values.into_iter().map(|text| text.map(time).transpose()).collect::<Result<Vec<_>, _>>()?;
        self.reached_ms = times.pop().flatten();
        self.sources.values_mut().zip(times).for_each(|(source, time)| source.largest_ms = time);
        self.is_read = true;
        Ok(())
    }

    /// Where it is; `None`: it has not moved.
    pub(super) fn reached_ms(&self) -> Option<u64> {
        self.reached_ms
    }

    /// What a tuple of `from` with this time changes.
    pub(super) fn on_tuple(&self, from: TaskId, time_ms: u64, now: Nanos) -> Moved {
        let largest_ms = self.sources.get(&from).and_then(|source| source.largest_ms).max(Some(time_ms));
        let is_awaited =
            |(task, source): &(&TaskId, &Source)| **task == from || now.since(source.came) <= self.idle;
        let awaited = self.sources.iter().filter(is_awaited);
        // The least one is `None` if something of one is missing.
        let least_ms =
            awaited.map(|(task, source)| if *task == from { largest_ms } else { source.largest_ms }).min();
        let reached_ms = least_ms.flatten().and_then(|least_ms| least_ms.checked_sub(self.lateness_ms));
        Moved { from, largest_ms, came: now, reached_ms: self.reached_ms.max(reached_ms) }
    }

    /// Puts it into a draft.
    pub(super) fn change(&self, draft: &mut Draft<'_, '_>, moved: &Moved) {
        let mut set = |name: &str, old: Option<u64>, new: Option<u64>| {
            if let Some(new) = new.filter(|_| new != old) {
                draft.set(self.place(name), Some(new.to_string().into()));
            }
        };
        if let Some(source) = self.sources.get(&moved.from) {
            set(&source.name, source.largest_ms, moved.largest_ms);
        }
        set(REACHED, self.reached_ms, moved.reached_ms);
    }

    /// The draft was committed.
    pub(super) fn commit(&mut self, moved: &Moved) {
        self.reached_ms = moved.reached_ms;
        if let Some(source) = self.sources.get_mut(&moved.from) {
            (source.largest_ms, source.came) = (moved.largest_ms, moved.came);
        }
    }

    fn place(&self, name: &str) -> StateKey {
        StateKey::of_field(self.hash.clone(), name.to_owned())
    }
}

/// The field of the watermark: no name of a source is without a colon.
const REACHED: &str = "watermark";
