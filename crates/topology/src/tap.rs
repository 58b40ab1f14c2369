//! A look at the tuples that a component emits, while it runs.
//!
//! ```text
//!  tasks of the component --on_tuple--> ring of each look --drain--> who looks
//!                          full: counted, not kept
//! ```
//!
//! Invariants
//!   1. A task never waits: without a look it costs one branch a tuple; a look that is being read just then misses a tuple, and counts it.
//!   2. A look keeps at most [`TUPLES_MAX`] tuples and [`RING_BYTES_MAX`]; what comes then is counted until the ring was drained.
//!
//! Out of scope: how long a look lasts (`worker`), how it is shown.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::ids::{StreamId, TaskId};
use crate::value::Value;
use crate::values::Values;

/// The looks at a component, shared by its tasks of a process.
#[derive(Debug, Default)]
pub struct Tap {
    /// There is a look.
    is_on: AtomicBool,
    /// Tuples that came while looks were being read.
    missed: AtomicU64,
    rings: Mutex<BTreeMap<u64, Ring>>,
}

/// Which tuples a look is at.
#[derive(Clone, Copy, Debug)]
pub struct Choice {
    /// Of this stream; `None`: of all.
    pub stream: Option<StreamId>,
    /// One of so many, at least 1.
    pub every: u64,
}

/// What a look has seen since it was drained last.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Tuples, in the order in which they were emitted.
    pub tuples: Vec<Tapped>,
    /// Tuples that were chosen, and for which there was no room.
    pub skipped: u64,
}

/// A tuple that was emitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tapped {
    /// The task that has emitted it.
    pub task: TaskId,
    /// The stream.
    pub stream: StreamId,
    /// How many values it has.
    pub count: usize,
    /// The first of its values.
    pub values: Vec<TappedValue>,
}

/// A value of a tuple, or its first bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TappedValue {
    bytes: Vec<u8>,
    size: usize,
}

/// A look.
#[derive(Debug)]
struct Ring {
    choice: Choice,
    /// Tuples that it could choose from.
    count: u64,
    bytes: usize,
    seen: Seen,
}

impl Tap {
    /// Begins a look under the number `id`, if there is none under it.
    pub fn open(&self, id: u64, choice: Choice) {
        let mut rings = self.rings();
        rings.entry(id).or_insert_with(|| Ring { choice, count: 0, bytes: 0, seen: Seen::default() });
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Ends the look `id`.
    pub fn close(&self, id: u64) {
        let mut rings = self.rings();
        rings.remove(&id);
        self.is_on.store(!rings.is_empty(), Ordering::Relaxed);
    }

    /// What the look `id` has seen since the last time; nothing if there is none.
    pub fn drain(&self, id: u64) -> Seen {
        let mut rings = self.rings();
        let missed = self.missed.swap(0, Ordering::Relaxed);
        rings.values_mut().for_each(|ring| ring.seen.skipped += missed);
        rings.get_mut(&id).map_or_else(Seen::default, |ring| {
            ring.bytes = 0;
            std::mem::take(&mut ring.seen)
        })
    }

    /// A task has emitted a tuple.
    #[inline]
    pub(crate) fn on_tuple(&self, task: TaskId, stream: StreamId, values: &Values) {
        if self.is_on.load(Ordering::Relaxed) {
            self.keep(task, stream, values);
        }
    }

    #[cold]
    fn keep(&self, task: TaskId, stream: StreamId, values: &Values) {
        let mut rings = match self.rings.try_lock() {
            Ok(rings) => rings,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                self.missed.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        rings.values_mut().for_each(|ring| ring.on_tuple(task, stream, values));
    }

    fn rings(&self) -> MutexGuard<'_, BTreeMap<u64, Ring>> {
        // A ring is whole whatever panics.
        self.rings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ring {
    fn on_tuple(&mut self, task: TaskId, stream: StreamId, values: &Values) {
        if self.choice.stream.is_some_and(|chosen| chosen != stream) {
            return;
        }
        self.count += 1;
        if !self.count.is_multiple_of(self.choice.every) {
            return;
        }
        let is_full = self.seen.tuples.len() == TUPLES_MAX || self.bytes >= RING_BYTES_MAX;
        if is_full {
            self.seen.skipped += 1;
            return;
        }
        let (tapped, bytes) = cut(task, stream, values);
        if self.bytes + bytes > RING_BYTES_MAX {
            // The others are not to overtake it.
            self.bytes = RING_BYTES_MAX;
            self.seen.skipped += 1;
            return;
        }
        self.bytes += bytes;
        self.seen.tuples.push(tapped);
    }
}

/// The begin of a tuple, and what it takes.
fn cut(task: TaskId, stream: StreamId, values: &Values) -> (Tapped, usize) {
    let (mut kept, mut taken) = (Vec::new(), TUPLE_BYTES);
    for value in values.iter() {
        if taken + VALUE_BYTES > TUPLE_BYTES_MAX {
            break;
        }
        let most = VALUE_BYTES_MAX.min(TUPLE_BYTES_MAX - taken - VALUE_BYTES);
        let bytes = value[..value.len().min(most)].to_vec();
        taken += VALUE_BYTES + bytes.len();
        kept.push(TappedValue { bytes, size: value.len() });
    }
    (Tapped { task, stream, count: values.len(), values: kept }, taken)
}

impl TappedValue {
    /// Whether bytes of it are not there.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.bytes.len() < self.size
    }

    /// The value; of one that is cut the first bytes or letters, or null if it is a list.
    #[must_use]
    pub fn value(&self) -> Value<'_> {
        Value::decode_begin(&self.bytes, self.is_cut())
    }
}

/// Most tuples of a look that were not drained.
pub const TUPLES_MAX: usize = 1_000;
/// Most bytes of them.
pub const RING_BYTES_MAX: usize = 256 << 10;
/// Bytes of a value, with one for its kind, that are kept.
pub const VALUE_BYTES_MAX: usize = 1_001;
/// Bytes of a tuple.
const TUPLE_BYTES_MAX: usize = 64 << 10;
/// What a tuple and a value take beside their bytes.
const TUPLE_BYTES: usize = size_of::<Tapped>();
const VALUE_BYTES: usize = size_of::<TappedValue>();

const _: () = assert!(TUPLE_BYTES_MAX <= RING_BYTES_MAX, "each tuple fits an empty ring");

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Choice = Choice { stream: None, every: 1 };

    fn emit(tap: &Tap, stream: u16, values: &[Value<'_>]) {
        tap.on_tuple(TaskId(3), StreamId(stream), &Values::encode(values).expect("values"));
    }

    fn numbers(seen: &Seen) -> Vec<Value<'_>> {
        seen.tuples.iter().map(|it| it.values[0].value()).collect()
    }

    #[test]
    fn tuples_are_seen_from_the_begin_of_a_look_to_its_end() {
        let tap = Tap::default();
        emit(&tap, 0, &[Value::Int(1)]);
        tap.open(7, ALL);
        emit(&tap, 0, &[Value::Int(2)]);
        tap.open(7, ALL);
        emit(&tap, 1, &[Value::Int(3)]);
        assert_eq!(numbers(&tap.drain(7)), [Value::Int(2), Value::Int(3)]);
        assert_eq!(tap.drain(7), Seen::default(), "each once");
        tap.close(7);
        emit(&tap, 0, &[Value::Int(4)]);
        assert_eq!(tap.drain(7), Seen::default());
        assert!(!tap.is_on.load(Ordering::Relaxed));
    }

    #[test]
    fn looks_choose_each_for_itself() {
        let tap = Tap::default();
        tap.open(1, Choice { stream: Some(StreamId(1)), every: 1 });
        tap.open(2, Choice { stream: None, every: 3 });
        for number in 0..6 {
            emit(&tap, u16::from(number % 2 == 0), &[Value::Int(number)]);
        }
        assert_eq!(numbers(&tap.drain(1)), [0, 2, 4].map(Value::Int));
        assert_eq!(numbers(&tap.drain(2)), [2, 5].map(Value::Int));
    }

    #[test]
    fn full_ring_counts_what_it_does_not_keep_until_it_was_drained() {
        let tap = Tap::default();
        tap.open(1, ALL);
        for _ in 0..TUPLES_MAX + 5 {
            emit(&tap, 0, &[Value::Null]);
        }
        let seen = tap.drain(1);
        assert_eq!((seen.tuples.len(), seen.skipped), (TUPLES_MAX, 5));
        let large = "x".repeat(2_000);
        for _ in 0..TUPLES_MAX {
            emit(&tap, 0, &[Value::from(large.as_str())]);
        }
        let seen = tap.drain(1);
        assert!((200..256).contains(&seen.tuples.len()), "{}", seen.tuples.len());
        assert_eq!(seen.tuples.len() as u64 + seen.skipped, TUPLES_MAX as u64);
    }

    #[test]
    fn large_values_are_cut_and_so_are_tuples_of_many() {
        let tap = Tap::default();
        tap.open(1, ALL);
        let text = "é".repeat(1_000);
        let list = Value::List(vec![Value::from(text.as_str())]);
        emit(&tap, 0, &[Value::from(text.as_str()), Value::from(&[255_u8; 2_000][..]), list, Value::Int(7)]);
        emit(&tap, 0, &vec![Value::Int(1); 60_000]);
        let seen = tap.drain(1);
        let first: Vec<_> = seen.tuples[0].values.iter().map(|it| (it.value(), it.is_cut())).collect();
        assert_eq!(first[0], (Value::from("é".repeat(500)), true));
        assert_eq!(first[1], (Value::from(&[255; 1_000][..]), true));
        assert_eq!(first[2..], [(Value::Null, true), (Value::Int(7), false)]);
        let second = &seen.tuples[1];
        assert!(second.values.len() < 2_100 && second.count == 60_000, "{}", second.values.len());
    }

    #[test]
    fn task_does_not_wait_for_who_looks() {
        let tap = Tap::default();
        tap.open(1, ALL);
        let reading = tap.rings();
        emit(&tap, 0, &[Value::Null]);
        drop(reading);
        emit(&tap, 0, &[Value::Null]);
        let seen = tap.drain(1);
        assert_eq!((seen.tuples.len(), seen.skipped), (1, 1));
    }
}
