//! Inputs of a bolt that wait: for values of its state, or for an earlier input.
//!
//! ```text
//!  begin -> the bolt is called -+-> done
//!    ^                          +-> park: a value is being read ----> on_read --\
//!    |                          +-> park: an earlier input waits ---------------+--> next
//!    \----------------------------------------------------------------------------/
//! ```
//!
//! Invariants
//!   1. Inputs that wait for one value go on in the order in which they came.
//!   2. An input that waits for earlier ones goes on when none of them waits.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use topology::bolt::Input;
use topology::changes::StateKey;

/// What an input waits for.
#[derive(Debug)]
pub(super) enum Missing {
    /// This value.
    Value(StateKey),
    /// Those that came before it.
    Earlier,
}

/// Inputs that wait, by the numbers in which they came.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    for_values: HashMap<StateKey, Vec<(u64, Input)>>,
    for_earlier: BTreeMap<u64, Input>,
    /// Those whose value is there.
    again: VecDeque<(u64, Input)>,
    /// All of them.
    numbers: BTreeSet<u64>,
    came: u64,
    /// The one that the bolt is called with.
    current: u64,
}

impl Waiting {
    /// The bolt is called with an input that has not waited.
    pub(super) fn begin(&mut self) {
        self.came += 1;
        self.current = self.came;
    }

    /// The next one whose wait is over: the bolt is called with it.
    pub(super) fn next(&mut self) -> Option<Input> {
        let (number, input) = match self.for_earlier.first_entry() {
            Some(first) if self.numbers.first() == Some(first.key()) => first.remove_entry(),
            _ => self.again.pop_front()?,
        };
        self.numbers.remove(&number);
        self.current = number;
        Some(input)
    }

    /// Whether none waits that came before the one that the bolt is called with.
    pub(super) fn is_first(&self) -> bool {
        self.numbers.first().is_none_or(|first| *first > self.current)
    }

    /// The one that the bolt was called with has to wait.
    pub(super) fn park(&mut self, missing: Missing, input: Input) {
        self.numbers.insert(self.current);
        match missing {
            Missing::Value(key) => self.for_values.entry(key).or_default().push((self.current, input)),
            Missing::Earlier => drop(self.for_earlier.insert(self.current, input)),
        }
    }

    /// A value is there: those that wait for it go on.
    pub(super) fn on_read(&mut self, key: &StateKey) {
        self.again.extend(self.for_values.remove(key).into_iter().flatten());
    }

    /// A value cannot be read: those that wait for it, which do so no more.
    pub(super) fn take(&mut self, key: &StateKey) -> impl Iterator<Item = Input> {
        let taken = self.for_values.remove(key).unwrap_or_default();
        taken.iter().for_each(|(number, _)| _ = self.numbers.remove(number));
        taken.into_iter().map(|(_, input)| input)
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }

    pub(super) fn clear(&mut self) {
        *self = Self { came: self.came, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use topology::bolt::TupleId;
    use topology::ids::{StreamId, TaskId};
    use topology::values::Values;

    use super::*;

    fn key(name: &'static str) -> StateKey {
        StateKey::of_key(name)
    }

    /// A tuple of this number comes, and has to wait.
    fn wait(waiting: &mut Waiting, number: u64, missing: Missing) {
        waiting.begin();
        let (id, values) = (TupleId::numbered(number), Values::new::<&[u8]>(&[]));
        waiting.park(missing, Input::Tuple { id, from: TaskId(0), stream: StreamId(0), values });
    }

    fn next(waiting: &mut Waiting) -> Option<u64> {
        waiting.next().map(|input| match input {
            Input::Tuple { id, .. } => id.number(),
            Input::Tick => panic!("none waits"),
        })
    }

    #[test]
    fn inputs_go_on_when_their_value_is_there_and_no_earlier_one_waits() {
        let mut waiting = Waiting::default();
        wait(&mut waiting, 1, Missing::Value(key("a")));
        wait(&mut waiting, 2, Missing::Value(key("b")));
        waiting.begin();
        assert!(!waiting.is_first());
        wait(&mut waiting, 4, Missing::Earlier);
        wait(&mut waiting, 5, Missing::Value(key("a")));
        assert_eq!((next(&mut waiting), waiting.len()), (None, 4));
        waiting.on_read(&key("b"));
        assert_eq!(next(&mut waiting), Some(2));
        assert!(!waiting.is_first(), "1 waits");
        waiting.park(Missing::Earlier, Input::Tick);
        waiting.on_read(&key("a"));
        assert_eq!(next(&mut waiting), Some(1));
        assert!(waiting.is_first());
        assert!(matches!(waiting.next(), Some(Input::Tick)) && waiting.is_first(), "2 is a tick now");
        assert_eq!((next(&mut waiting), next(&mut waiting), waiting.len()), (Some(4), Some(5), 0));
    }

    #[test]
    fn inputs_whose_value_cannot_be_read_hold_up_nobody() {
        let mut waiting = Waiting::default();
        wait(&mut waiting, 1, Missing::Value(key("a")));
        wait(&mut waiting, 2, Missing::Earlier);
        assert_eq!(waiting.take(&key("a")).count(), 1);
        assert_eq!((next(&mut waiting), waiting.len()), (Some(2), 0));
        wait(&mut waiting, 3, Missing::Value(key("a")));
        waiting.clear();
        waiting.begin();
        assert!(waiting.is_first() && next(&mut waiting).is_none());
    }
}
