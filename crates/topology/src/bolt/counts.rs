//! What a task has done with the tuples of each stream that its component reads.

use crate::ids::StreamId;

/// What a task has done with the tuples of one stream since its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputCounts {
    /// The stream, which says who emits it.
    pub stream: StreamId,
    /// Tuples that were given to the component.
    pub executed: u64,
    /// Tuples that it has acknowledged.
    pub acked: u64,
    /// Tuples that have failed.
    pub failed: u64,
}

/// Those of all streams, in their order.
#[derive(Debug)]
pub(super) struct Counts {
    all: Vec<InputCounts>,
    /// The place of the stream that was asked for last: mostly it is the next one, too.
    last: usize,
}

impl Counts {
    /// Of these streams, which are in order.
    pub(super) fn new(streams: Vec<StreamId>) -> Self {
        assert!(streams.is_sorted_by(|one, other| one < other), "each once: {streams:?}");
        let nothing = |stream| InputCounts { stream, executed: 0, acked: 0, failed: 0 };
        Self { all: streams.into_iter().map(nothing).collect(), last: 0 }
    }

    pub(super) fn all(&self) -> &[InputCounts] {
        &self.all
    }

    /// Those of a stream; `None` if the component does not read it: what a peer sends is not trusted.
    pub(super) fn of(&mut self, stream: StreamId) -> Option<&mut InputCounts> {
        if self.all.get(self.last)?.stream != stream {
            self.last = self.all.binary_search_by_key(&stream, |counts| counts.stream).ok()?;
        }
        self.all.get_mut(self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_found_in_any_order_and_those_of_other_streams_are_not_there() {
        let mut counts = Counts::new(vec![StreamId(2), StreamId(5), StreamId(9)]);
        for stream in [9, 9, 2, 5, 2, 7, 5] {
            counts.of(StreamId(stream)).into_iter().for_each(|counts| counts.acked += 1);
        }
        assert_eq!(counts.all().iter().map(|counts| counts.acked).collect::<Vec<_>>(), [2, 2, 2]);
        assert_eq!(counts.of(StreamId(7)), None);
        assert_eq!(Counts::new(Vec::new()).of(StreamId(0)), None);
    }
}
