//! How much an access touches, and how much it may: on a loop a command that would touch more is stopped before others have to wait.
//!
//! What counts is what takes time: elements that are read or changed, nodes of large collections, changes that are staged. One takes about a
//! microsecond. What an access is about to touch is known from the roots of collections, so that most commands are stopped before they begin.

use std::cell::Cell;

use crate::error::Stop;

/// What an access has touched so far, and the most that it may.
pub(super) struct Effort {
    touched: Cell<u64>,
    pub(super) most: u64,
    /// How often a node was used that could be done without.
    extras: Cell<u32>,
}

impl Default for Effort {
    fn default() -> Self {
        Self { touched: Cell::new(0), most: u64::MAX, extras: Cell::new(0) }
    }
}

impl Effort {
    /// Counts `elements` that are about to be touched, unless they are more than may be.
    pub(super) fn charge(&self, elements: usize) -> Result<(), Stop> {
        let touched = self.touched().saturating_add(elements as u64);
        if touched > self.most {
            return Err(Stop::Long);
        }
        self.touched.set(touched);
        Ok(())
    }

    /// Counts `elements` where nothing can be stopped: what is asked next is.
    pub(super) fn note(&self, elements: usize) {
        self.touched.set(self.touched().saturating_add(elements as u64));
    }

    /// Counts the use of a node that could be done without; returns whether it is to be read if it is cold.
    pub(super) fn use_extra(&self) -> bool {
        self.extras.set(self.extras.get().saturating_add(1));
        self.extras.get() <= EXTRAS_MAX
    }

    /// Whether more can be too much.
    pub(super) fn is_bounded(&self) -> bool {
        self.most != u64::MAX
    }

    pub(super) fn touched(&self) -> u64 {
        self.touched.get()
    }
}

/// Nodes that can be done without, and are read for one access although they are cold.
const EXTRAS_MAX: u32 = 8;
