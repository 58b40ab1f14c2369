//! `closing-window` with exactly-once: windows are state of the task. No tuple comes again, so none is remembered.
//!
//! ```text
//!  tuple -> a draft: its windows, the watermark, windows that are due -> commit -> results, or the late tuple
//! ```
//!
//! Keys of a task begin with `--prefix` and its place:
//!
//! | key | has |
//! |---|---|
//! | `:windows` | hash: `START:VALUE` -> `END DUE NUMBER` |
//! | `:by-due` | tree: due, start, value |
//! | `:by-value` | tree of sessions: length of the value, value, start |
//! | `:counts` | hash, by count: `VALUE` -> `TUPLES SUM PANE ...`, of panes of `--every` tuples those that a window may still have |
//! | `:times` | hash: see [`super::watermark`] |
//!
//! Invariants
//!   1. A window is in `by-due` once: at its end, or where its end was before it was lengthened. When that is due it moves to its end. So a tuple that lengthens a
//!      session changes one value.
//!   2. Sessions of a value do not overlap. A tuple is as long as the shortest, so it touches two at most.
//!   3. A tuple adds [`WINDOWS_MAX`] windows at most and closes [`CLOSED_MAX`], which are more: what is due does not become ever more.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::Bytes;
use clock::Clock;
use topology::changes::StateKey;
use topology::component::{Bolt, BoltOut, Context, Fault, Outcome, Outgoing, Tuple};
use topology::value::Value;

use super::watermark::Watermark;
use super::{Settings, Shape};
use crate::convert::{append_field, number_value, sum, text_value};
use crate::counting::added;
use crate::draft::Draft;
use crate::form::Form;
use crate::row::LATE;
use crate::tree::Tree;
use crate::window::{WINDOWS_MAX, starts, time_ms};

/// The bolt.
#[derive(Debug)]
pub(super) struct Exactly {
    settings: Settings,
    form: Form,
    clock: Arc<dyn Clock>,
    /// The task that it is prepared for.
    task: Option<Task>,
}

#[derive(Debug)]
struct Task {
    tasks: u32,
    /// Late tuples are emitted.
    has_late: bool,
    has_sessions: bool,
    windows: Bytes,
    counts: Bytes,
    by_due: Tree,
    by_value: Tree,
    watermark: Watermark,
    /// No window is due before it.
    rests_until_ms: u64,
}

/// What a tuple adds.
#[derive(Debug)]
struct Added {
    value: Bytes,
    number: String,
}

/// A window of a value.
#[derive(Clone, Debug)]
struct Window {
    start: u64,
    end: u64,
    /// Its place in `by-due`.
    due: u64,
    number: String,
}

/// A window that has ended, and its value.
type Closed = (Window, Bytes);

impl Exactly {
    pub(super) fn new(settings: Settings, form: Form, clock: Arc<dyn Clock>) -> Self {
        Self { settings, form, clock, task: None }
    }
}

impl Bolt for Exactly {
    fn prepare(&mut self, context: &Context<'_>) -> Result<(), Fault> {
        self.clock = context.clock_or(&self.clock);
        let key = |name: &str| format!("{}{}:{name}", self.settings.prefix, context.place());
        let watermark = Watermark::new(key("times").into(), &self.settings, context, self.clock.now());
        self.task = Some(Task {
            tasks: context.tasks(),
            has_late: context.plan().stream(context.component(), LATE).is_some(),
            has_sessions: matches!(self.settings.shape, Shape::Session { .. }),
            windows: key("windows").into(),
            counts: key("counts").into(),
            by_due: Tree::new(key("by-due")),
            by_value: Tree::new(key("by-value")),
            watermark,
            rests_until_ms: 0,
        });
        Ok(())
    }

    fn execute(&mut self, tuple: &Tuple<'_>, out: &mut BoltOut<'_>) -> Result<Outcome, Fault> {
        let Self { settings, form, clock, task } = self;
        let task = task.as_mut().expect("a bolt is prepared before it has tuples");
        let mut value = Vec::new();
        append_field(tuple, &settings.by, &mut value)?;
        let number = added(tuple, settings.field.as_deref())?;
        let added = Added { value: value.into(), number };
        let mut draft = Draft::new(out);
        form.check(&mut draft, task.tasks)?;
        let (is_late, closed) = match &settings.shape {
            Shape::Count { size, slide } => {
                let closed = task.add_to_panes(&mut draft, added, *size, *slide)?;
                draft.commit()?;
                (false, closed.into_iter().collect())
            }
            Shape::Time { field, .. } | Shape::Session { field, .. } => {
                let time_ms = time_ms(tuple, field)?;
                task.watermark.read(&mut draft)?;
                let is_late = !task.add(&mut draft, &added, time_ms, &settings.shape)?;
                let moved = task.watermark.on_tuple(tuple.task(), time_ms, clock.now());
                task.watermark.change(&mut draft, &moved);
                let (closed, rests_until_ms) = task.close(&mut draft, moved.reached_ms)?;
                draft.commit()?;
                task.watermark.commit(&moved);
                task.rests_until_ms = rests_until_ms;
                (is_late, closed)
            }
        };
        for (Window { start, end, number, .. }, value) in closed {
            let [start, end] = [start, end].map(|time| Value::Int(time as i64));
            out.emit(&[start, end, text_value(&value), number_value(&number)])?;
        }
        if is_late && task.has_late {
            let (values, anchors) = (tuple.values().clone(), &[tuple.id()]);
            out.send(Outgoing { stream: LATE, values, anchors, direct: None })?;
        }
        Ok(Outcome::Ack)
    }
}

impl Task {
    /// Adds a tuple to its windows that have not ended; whether there is one.
    fn add(
        &mut self,
        draft: &mut Draft<'_, '_>,
        added: &Added,
        time_ms: u64,
        shape: &Shape,
    ) -> Result<bool, Fault> {
        match *shape {
            Shape::Session { gap_ms, .. } => self.add_to_session(draft, added, time_ms, time_ms + gap_ms),
            Shape::Time { size_ms, slide_ms, .. } => {
                let mut starts = starts(time_ms, size_ms, slide_ms);
                starts.retain(|start| self.is_open(start + size_ms));
                let places = starts.iter().map(|start| self.place(*start, &added.value));
                let kept = draft.get_all(places)?;
                for (start, kept) in starts.iter().zip(kept) {
                    let end = start + size_ms;
                    let new = Window { start: *start, end, due: end, number: "0".to_owned() };
                    let is_new = kept.is_none();
                    let window = if is_new { new } else { self.window(draft, *start, &added.value)? };
                    let number = sum(window.number.as_bytes(), &added.number, &A_WINDOW)?;
                    self.keep(draft, &added.value, &Window { number, ..window }, is_new)?;
                }
                Ok(!starts.is_empty())
            }
            Shape::Count { .. } => unreachable!("it has no time"),
        }
    }

    /// The tuple and the sessions that it touches become one session.
    fn add_to_session(
        &mut self,
        draft: &mut Draft<'_, '_>,
        Added { value, number }: &Added,
        start: u64,
        end: u64,
    ) -> Result<bool, Fault> {
        let mut touched: Vec<Window> = Vec::new();
        // Those that begin before its end, the last one first.
        loop {
            let before = touched.last().map_or(end, |session| session.start);
            let last = self.by_value.last_below(draft, &key_by_value(value, before))?;
            let Some(last) = last.and_then(|key| start_of(&key, value)) else { break };
            let session = self.window(draft, last, value)?;
            if session.end <= start {
                break;
            }
            touched.push(session);
        }
        let start = touched.iter().map(|session| session.start).fold(start, u64::min);
        let end = touched.iter().map(|session| session.end).fold(end, u64::max);
        if !self.is_open(end) {
            return Ok(false);
        }
        let add =
            |sum_so_far: String, session: &Window| sum(session.number.as_bytes(), &sum_so_far, &A_WINDOW);
        let number = touched.iter().try_fold(number.clone(), add)?;
        let mut due = None;
        for session in touched {
            if session.start == start {
                due = Some(session.due);
            } else {
                self.by_due.remove(draft, &key_by_due(session.due, session.start, value))?;
                self.forget(draft, session.start, value)?;
            }
        }
        if due.is_none() {
            self.by_value.insert(draft, key_by_value(value, start))?;
        }
        let session = Window { start, end, due: due.unwrap_or(end), number };
        self.keep(draft, value, &session, due.is_none())?;
        Ok(true)
    }

    /// Adds a tuple to those of its value: each `slide` of them make a pane, and each further pane ends a window of the last `size`.
    fn add_to_panes(
        &self,
        draft: &mut Draft<'_, '_>,
        Added { value, number }: Added,
        size: u64,
        slide: u64,
    ) -> Result<Option<Closed>, Fault> {
        let place = StateKey::of_field(self.counts.clone(), value.clone());
        let kept = draft.get(&place)?.unwrap_or_else(|| "0 0".into());
        let (tuples, mut sums) = decode_panes(&kept).ok_or_else(|| damaged(&place, &kept))?;
        let tuples = tuples + 1;
        sums[0] = sum(sums[0].as_bytes(), &number, &A_WINDOW)?;
        let mut closed = None;
        if tuples % slide == 0 {
            let pane = std::mem::replace(&mut sums[0], "0".to_owned());
            sums.push(pane);
            let panes = (size / slide) as usize;
            if sums.len() > 1 + panes {
                sums.remove(1);
            }
            if sums.len() == 1 + panes {
                let add = |all: String, pane: &String| sum(pane.as_bytes(), &all, &A_WINDOW);
                let number = sums[1..].iter().try_fold("0".to_owned(), add)?;
                closed = Some((Window { start: tuples - size, end: tuples, due: tuples, number }, value));
            }
        }
        let sums: String = sums.iter().map(|sum| format!(" {sum}")).collect();
        draft.set(place, Some(format!("{tuples}{sums}").into()));
        Ok(closed)
    }

    /// Takes windows out that have ended when the watermark is at `reached_ms`; and until when none is due then.
    fn close(&self, draft: &mut Draft<'_, '_>, reached_ms: Option<u64>) -> Result<(Vec<Closed>, u64), Fault> {
        let Some(reached_ms) = reached_ms.filter(|reached_ms| *reached_ms >= self.rests_until_ms) else {
            return Ok((Vec::new(), self.rests_until_ms));
        };
        let due = self.by_due.take_below(draft, &(reached_ms + 1).to_be_bytes(), CLOSED_MAX)?;
        let due: Vec<(u64, Bytes)> = due.iter().filter_map(window_of).collect();
        // All are asked for before one is waited for.
        draft.get_all(due.iter().map(|(start, value)| self.place(*start, value)))?;
        let mut closed = Vec::new();
        for (start, value) in due {
            let window = self.window(draft, start, &value)?;
            if window.end > reached_ms {
                // It was lengthened.
                self.by_due.insert(draft, key_by_due(window.end, start, &value))?;
                self.set(draft, &value, &Window { due: window.end, ..window });
            } else {
                self.forget(draft, start, &value)?;
                closed.push((window, value));
            }
        }
        let first = self.by_due.first(draft)?;
        Ok((closed, first.map_or(u64::MAX, |key| due_of(&key))))
    }

    /// Changes a window, or has a new one.
    fn keep(
        &mut self,
        draft: &mut Draft<'_, '_>,
        value: &Bytes,
        window: &Window,
        is_new: bool,
    ) -> Result<(), Fault> {
        self.set(draft, value, window);
        if is_new {
            // A draft that is given up leaves a time that is too early, which does no harm.
            self.rests_until_ms = self.rests_until_ms.min(window.due);
            self.by_due.insert(draft, key_by_due(window.due, window.start, value))?;
        }
        Ok(())
    }

    fn is_open(&self, end: u64) -> bool {
        self.watermark.reached_ms().is_none_or(|reached_ms| end > reached_ms)
    }

    fn window(&self, draft: &mut Draft<'_, '_>, start: u64, value: &Bytes) -> Result<Window, Fault> {
        let place = self.place(start, value);
        let text = draft.get(&place)?.unwrap_or_default();
        Window::decode(start, &text).ok_or_else(|| damaged(&place, &text))
    }

    fn set(&self, draft: &mut Draft<'_, '_>, value: &Bytes, window: &Window) {
        draft.set(self.place(window.start, value), Some(window.encode()));
    }

    /// Removes a window, which is not in `by-due` any more.
    fn forget(&self, draft: &mut Draft<'_, '_>, start: u64, value: &Bytes) -> Result<(), Fault> {
        draft.set(self.place(start, value), None);
        if self.has_sessions { self.by_value.remove(draft, &key_by_value(value, start)) } else { Ok(()) }
    }

    fn place(&self, start: u64, value: &Bytes) -> StateKey {
        let field = [format!("{start}:").as_bytes(), value].concat();
        StateKey::of_field(self.windows.clone(), field)
    }
}

impl Window {
    fn encode(&self) -> Bytes {
        let Self { end, due, number, .. } = self;
        format!("{end} {due} {number}").into()
    }

    /// `None`: it is none.
    fn decode(start: u64, text: &[u8]) -> Option<Self> {
        let mut words = std::str::from_utf8(text).ok()?.split(' ');
        let (end, due) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        Some(Self { start, end, due, number: words.next().filter(|text| is_number(text))?.to_owned() })
    }
}

/// How many tuples there were; and the sums of the pane that is not full, and of full ones.
fn decode_panes(text: &[u8]) -> Option<(u64, Vec<String>)> {
    let mut words = std::str::from_utf8(text).ok()?.split(' ');
    let tuples = words.next()?.parse().ok()?;
    let sums: Vec<String> = words.map(str::to_owned).collect();
    (!sums.is_empty() && sums.iter().all(|text| is_number(text))).then_some((tuples, sums))
}

fn is_number(text: &str) -> bool {
    text.parse::<f64>().is_ok_and(f64::is_finite)
}

fn damaged(place: &StateKey, text: &[u8]) -> Fault {
    let field = place.field.as_deref().unwrap_or_default();
    let [hash, field, text] = [&place.key, field, text].map(String::from_utf8_lossy);
    Fault::new(format!(
        "`{text}` in the field `{field}` of the hash `{hash}` is no window: was it changed by others?"
    ))
}

fn key_by_due(due: u64, start: u64, value: &[u8]) -> Bytes {
    [&due.to_be_bytes()[..], &start.to_be_bytes(), value].concat().into()
}

/// The due time of such a key; one that is none is due at once.
fn due_of(key: &[u8]) -> u64 {
    key.first_chunk().map_or(0, |due| u64::from_be_bytes(*due))
}

/// Where the window of such a key begins, and its value.
fn window_of(key: &Bytes) -> Option<(u64, Bytes)> {
    let start = key.get(8..)?.first_chunk()?;
    Some((u64::from_be_bytes(*start), key.slice(16..)))
}

fn key_by_value(value: &[u8], start: u64) -> Bytes {
    [&(value.len() as u32).to_be_bytes()[..], value, &start.to_be_bytes()].concat().into()
}

/// Where the session of such a key begins, if it is one of `value`.
fn start_of(key: &[u8], value: &[u8]) -> Option<u64> {
    let (prefix, start) = key.split_last_chunk()?;
    key_by_value(value, 0).starts_with(prefix).then(|| u64::from_be_bytes(*start))
}

/// Where a number of a window is.
const A_WINDOW: &str = "the number of a window";
/// Windows that one tuple closes, or finds lengthened, at most.
const CLOSED_MAX: usize = 200;
const _: () = assert!(CLOSED_MAX as u64 > WINDOWS_MAX);
