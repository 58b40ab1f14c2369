//! Things that are made during lookups and lent for as long as an access lives: each stays where it is.

use std::cell::{Cell, OnceCell};

/// A list that grows while its elements are lent. An empty one allocates nothing.
#[derive(Debug)]
pub(super) struct Lent<T> {
    /// The first of them, the two that follow, the four that follow those, and so on.
    chunks: OnceCell<Box<[Chunk<T>; CHUNKS]>>,
    count: Cell<usize>,
}

type Chunk<T> = OnceCell<Box<[OnceCell<T>]>>;

impl<T> Default for Lent<T> {
    fn default() -> Self {
        Self { chunks: OnceCell::new(), count: Cell::new(0) }
    }
}

impl<T> Lent<T> {
    pub(super) fn len(&self) -> usize {
        self.count.get()
    }

    /// Adds one behind the others; returns it.
    pub(super) fn push(&self, thing: T) -> &T {
        let number = self.count.replace(self.count.get() + 1);
        self.cell(number).get_or_init(|| thing)
    }

    /// The one with this number.
    ///
    /// # Panics
    /// If there are not so many.
    pub(super) fn get(&self, number: usize) -> &T {
        self.cell(number).get().expect("it was added")
    }

    /// Takes all of them out, in order.
    pub(super) fn take(&mut self) -> Vec<T> {
        self.count.set(0);
        let chunks =
            self.chunks.take().into_iter().flat_map(|chunks| *chunks).filter_map(OnceCell::into_inner);
        chunks.flatten().filter_map(OnceCell::into_inner).collect()
    }

    fn cell(&self, number: usize) -> &OnceCell<T> {
        let chunk = (number + 1).ilog2();
        let first = (1 << chunk) - 1;
        let chunks = self.chunks.get_or_init(|| Box::new([const { OnceCell::new() }; CHUNKS]));
        let cells = chunks[chunk as usize].get_or_init(|| (0..1 << chunk).map(|_| OnceCell::new()).collect());
        &cells[number - first]
    }
}

/// Chunks of 2^32 - 1 things: more than an access could hold.
const CHUNKS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_stay_where_they_are_and_are_taken_in_order() {
        let mut lent = Lent::default();
        assert_eq!(lent.len(), 0);
        let all: Vec<&usize> = (0..1_000).map(|number| lent.push(number)).collect();
        assert!(
            all.iter().enumerate().all(|(number, thing)| **thing == number && lent.get(number) == *thing)
        );
        assert_eq!(lent.len(), 1_000);
        assert!(lent.take().into_iter().eq(0..1_000) && lent.len() == 0);
        assert_eq!(lent.push(7), &7);
    }
}
