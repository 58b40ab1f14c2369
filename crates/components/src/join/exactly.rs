//! `join` with exactly-once: tuples that wait are state of the task, and are finished when they came.
//!
//! ```text
//!  tuple -> a draft: what is given up; its partner is taken out, or it is put in -> commit -> unmatched tuples, the joined one
//! ```
//!
//! Keys of a task begin with `--prefix` and its place. SIDE is 0 or 1:
//!
//! | key | has |
//! |---|---|
//! | `:tuples` | hash: `SIDE:NUMBER:KEY` -> place in `by-arrival`, values |
//! | `:queues` | hash: `SIDE:KEY` -> `FIRST NEXT`, the numbers of those that wait; `waiting` -> `NEXT WAITING`, the next arrival and how many wait |
//! | `:by-arrival` | tree: arrival, time of arrival (ms since 1970), side, key |
//!
//! Invariants
//!   1. A queue has no gaps: tuples are taken out at its front alone, as the oldest of all is the oldest of its key.
//!   2. A call gives up [`GIVEN_UP_MAX`] tuples at most, and adds one: what is due does not become ever more.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::{Buf, Bytes};
use clock::Clock;
use topology::bolt::TupleId;
use topology::changes::StateKey;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Outgoing, Tuple};
use topology::definition::DEFAULT_STREAM;
use topology::values::Values;

use super::{Settings, joined, side_and_key, tells_unmatched, unmatched};
use crate::draft::Draft;
use crate::form::Form;
use crate::row::UNMATCHED;
use crate::tree::Tree;

/// The bolt.
#[derive(Debug)]
pub(super) struct Exactly {
    settings: Settings,
    form: Form,
    prefix: String,
    clock: Arc<dyn Clock>,
    /// The task that it is prepared for.
    task: Option<Task>,
}

#[derive(Debug)]
struct Task {
    tasks: u32,
    tells_unmatched: bool,
    tuples: Bytes,
    queues: Bytes,
    by_arrival: Tree,
}

/// A tuple that has waited.
#[derive(Debug)]
struct Waiting {
    side: usize,
    key: Bytes,
    values: Values,
}

impl Exactly {
    pub(super) fn new(settings: Settings, form: Form, prefix: String, clock: Arc<dyn Clock>) -> Self {
        Self { settings, form, prefix, clock, task: None }
    }

    fn parts(&self) -> (&Settings, &Task, u64) {
        let task = self.task.as_ref().expect("a bolt is prepared before it has tuples");
        (&self.settings, task, self.clock.unix_ms().0)
    }

    /// Tells what was given up.
    fn tell(&self, given_up: &[Waiting], anchors: &[TupleId], out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let (settings, task, _) = self.parts();
        for Waiting { side, key, values } in given_up.iter().filter(|_| task.tells_unmatched) {
            let values = unmatched(&settings.sources[*side], key, values)?;
            out.send(Outgoing { stream: UNMATCHED, values, anchors, direct: None })?;
        }
        Ok(())
    }
}

impl Bolt for Exactly {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.clock = context.clock_or(&self.clock);
        let key = |name: &str| format!("{}{}:{name}", self.prefix, context.place());
        self.task = Some(Task {
            tasks: context.tasks(),
            tells_unmatched: tells_unmatched(context)?,
            tuples: key("tuples").into(),
            queues: key("queues").into(),
            by_arrival: Tree::new(key("by-arrival")),
        });
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let (settings, task, now_ms) = self.parts();
        let (side, key) = side_and_key(settings, tuple)?;
        let key = Bytes::from(key);
        let mut draft = Draft::new(out);
        self.form.check(&mut draft, task.tasks)?;
        let mut given_up = task.give_up(&mut draft, settings, now_ms)?;
        let partner = task.take(&mut draft, 1 - side, &key)?;
        if partner.is_none() {
            task.put(&mut draft, side, &key, tuple.values(), now_ms)?;
            given_up.extend(task.give_up(&mut draft, settings, now_ms)?);
        }
        draft.commit()?;
        let anchors = &[tuple.id()];
        self.tell(&given_up, anchors, out)?;
        if let Some(Waiting { values: partner, .. }) = partner {
            let values = joined(side, tuple.values(), &partner)?;
            out.send(Outgoing { stream: DEFAULT_STREAM, values, anchors, direct: None })?;
        }
        Ok(Outcome::Ack)
    }

    fn tick(&mut self, out: &mut BoltOut<'_>) -> Result<(), Fault> {
        let (settings, task, now_ms) = self.parts();
        let mut draft = Draft::new(out);
        self.form.check(&mut draft, task.tasks)?;
        let given_up = task.give_up(&mut draft, settings, now_ms)?;
        draft.commit()?;
        self.tell(&given_up, &[], out)
    }
}

impl Task {
    /// Puts a tuple at the end of its queue.
    fn put(
        &self,
        draft: &mut Draft<'_, '_>,
        side: usize,
        key: &Bytes,
        values: &Values,
        now_ms: u64,
    ) -> Result<(), Fault> {
        let (queue, counts) = (self.queue(side, key), self.counts());
        let (first, next) = pair(draft, &queue)?;
        let (arrival, waiting) = pair(draft, &counts)?;
        let place = [&arrival.to_be_bytes()[..], &now_ms.to_be_bytes(), &[side as u8], key].concat();
        let record = [&place[..PLACE_BYTES], values.as_bytes()].concat();
        draft.set(self.tuple(side, next, key), Some(record.into()));
        draft.set(queue, Some(format!("{first} {}", next + 1).into()));
        draft.set(counts, Some(format!("{} {}", arrival + 1, waiting + 1).into()));
        self.by_arrival.insert(draft, place.into())
    }

    /// Takes the oldest one that waits on a side for a key.
    fn take(&self, draft: &mut Draft<'_, '_>, side: usize, key: &Bytes) -> Result<Option<Waiting>, Fault> {
        let (queue, counts) = (self.queue(side, key), self.counts());
        let (first, next) = pair(draft, &queue)?;
        if first == next {
            return Ok(None);
        }
        let (arrival, waiting) = pair(draft, &counts)?;
        let tuple = self.tuple(side, first, key);
        let mut record = draft.get(&tuple)?.unwrap_or_default();
        if record.len() < PLACE_BYTES {
            return Err(damaged(&tuple));
        }
        let place = [&record[..PLACE_BYTES], &[side as u8], key].concat();
        record.advance(PLACE_BYTES);
        let values = Values::from_bytes(record).ok_or_else(|| damaged(&tuple))?;
        self.by_arrival.remove(draft, &place)?;
        draft.set(tuple, None);
        draft.set(queue, (first + 1 < next).then(|| format!("{} {next}", first + 1).into()));
        draft.set(counts, Some(format!("{arrival} {}", waiting.saturating_sub(1)).into()));
        Ok(Some(Waiting { side, key: key.clone(), values }))
    }

    /// Takes out what has waited for too long, and the oldest while too many wait.
    fn give_up(
        &self,
        draft: &mut Draft<'_, '_>,
        settings: &Settings,
        now_ms: u64,
    ) -> Result<Vec<Waiting>, Fault> {
        let (within_ms, mut given_up) = (settings.within.as_millis() as u64, Vec::new());
        while given_up.len() < GIVEN_UP_MAX
            && let Some(mut place) = self.by_arrival.first(draft)?
        {
            if place.len() <= PLACE_BYTES {
                return Err(damaged(&self.counts()));
            }
            let since_ms = place.slice(8..).get_u64();
            let (_, waiting) = pair(draft, &self.counts())?;
            if now_ms.saturating_sub(since_ms) < within_ms && waiting <= settings.tuples_max as u64 {
                break;
            }
            let side = usize::from(place[PLACE_BYTES]).min(1);
            let key = place.split_off(PLACE_BYTES + 1);
            let oldest = self.take(draft, side, &key)?;
            given_up.push(oldest.ok_or_else(|| damaged(&self.queue(side, &key)))?);
        }
        Ok(given_up)
    }

    fn queue(&self, side: usize, key: &[u8]) -> StateKey {
        StateKey::of_field(self.queues.clone(), [format!("{side}:").as_bytes(), key].concat())
    }

    fn tuple(&self, side: usize, number: u64, key: &[u8]) -> StateKey {
        StateKey::of_field(self.tuples.clone(), [format!("{side}:{number}:").as_bytes(), key].concat())
    }

    fn counts(&self) -> StateKey {
        StateKey::of_field(self.queues.clone(), "waiting")
    }
}

/// Two numbers; 0 if there are none.
fn pair(draft: &mut Draft<'_, '_>, place: &StateKey) -> Result<(u64, u64), Fault> {
    let Some(text) = draft.get(place)? else { return Ok((0, 0)) };
    let numbers = std::str::from_utf8(&text).ok().and_then(|text| text.split_once(' '));
    let numbers = numbers.and_then(|(one, other)| one.parse().ok().zip(other.parse().ok()));
    numbers.ok_or_else(|| damaged(place))
}

fn damaged(place: &StateKey) -> Fault {
    let field = String::from_utf8_lossy(place.field.as_deref().unwrap_or_default());
    let hash = String::from_utf8_lossy(&place.key);
    Fault::new(format!(
        "the field `{field}` of the hash `{hash}` is not what it was: was it changed by others?"
    ))
}

/// Arrival and time at the beginning of a tuple's place in `by-arrival`.
const PLACE_BYTES: usize = 16;
/// Tuples that one call gives up.
const GIVEN_UP_MAX: usize = 100;
