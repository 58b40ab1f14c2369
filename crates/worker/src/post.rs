//! Where tasks are, and what is on its way from one thread to the others, and to other workers.
//!
//! Envelopes for other threads and workers are collected until the end of a turn, so a mailbox or a link is locked once for many of them.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use topology::ids::{TaskId, WorkerId};
use topology::message::Envelope;

use crate::links::Links;
use crate::mailbox::Mailbox;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In this worker.
    Here {
        /// The thread.
        thread: usize,
        /// The place among the thread's cells.
        cell: usize,
    },
    /// In another worker.
    At(WorkerId),
}

/// All tasks and threads.
#[derive(Debug)]
pub(crate) struct Directory {
    /// For each task, its place as a number: a task that moves changes it while others read it.
    places: Vec<AtomicU64>,
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
    pub(crate) links: Arc<dyn Links>,
}

/// What one thread sends.
#[derive(Debug)]
pub(crate) struct Post {
    directory: Arc<Directory>,
    thread: usize,
    /// What the cell whose turn it is has put out.
    pub(crate) outbox: Vec<Envelope>,
    /// For tasks of this thread, with their cells.
    pub(crate) own: VecDeque<(usize, Envelope)>,
    /// For each other thread.
    others: Vec<Vec<Envelope>>,
    /// For each other worker.
    remote: BTreeMap<WorkerId, Vec<Envelope>>,
    /// Envelopes for other threads since the start.
    pub(crate) sent: u64,
    /// The same for other workers.
    pub(crate) sent_away: u64,
}

impl Place {
    fn number(self) -> u64 {
        match self {
            Self::Here { thread, cell } => (thread as u64) << 32 | cell as u64,
            Self::At(worker) => AWAY | u64::from(worker.0),
        }
    }

    fn of_number(number: u64) -> Self {
        if number & AWAY != 0 {
            return Self::At(WorkerId(number as u32));
        }
        Self::Here { thread: (number >> 32) as usize, cell: number as u32 as usize }
    }
}

impl Directory {
    pub(crate) fn new(places: &[Place], threads: usize, links: Arc<dyn Links>) -> Self {
        Self {
            places: places.iter().map(|place| AtomicU64::new(place.number())).collect(),
            mailboxes: (0..threads).map(|_| Arc::new(Mailbox::default())).collect(),
            links,
        }
    }

    pub(crate) fn place(&self, task: TaskId) -> Place {
        // What a task is asked for after it has moved is dropped where it was, so no order with other memory is needed.
        Place::of_number(self.places[task.0 as usize].load(Ordering::Relaxed))
    }

    /// The cell of a task of `thread`.
    pub(crate) fn cell(&self, task: TaskId, thread: usize) -> Option<usize> {
        match self.place(task) {
            Place::Here { thread: of, cell } if of == thread => Some(cell),
            _ => None,
        }
    }

    pub(crate) fn set_place(&self, task: TaskId, place: Place) {
        self.places[task.0 as usize].store(place.number(), Ordering::Relaxed);
    }

    /// How many tasks there are, here and elsewhere.
    pub(crate) fn tasks_count(&self) -> u32 {
        self.places.len() as u32
    }
}

impl Post {
    pub(crate) fn new(directory: Arc<Directory>, thread: usize) -> Self {
        Self {
            thread,
            outbox: Vec::new(),
            own: VecDeque::new(),
            others: directory.mailboxes.iter().map(|_| Vec::new()).collect(),
            remote: BTreeMap::new(),
            sent: 0,
            sent_away: 0,
            directory,
        }
    }

    /// Sorts what a cell has put out.
    pub(crate) fn sort(&mut self) {
        for envelope in self.outbox.drain(..) {
            match self.directory.place(envelope.to) {
                Place::Here { thread, cell } if thread == self.thread => {
                    self.own.push_back((cell, envelope));
                }
                Place::Here { thread, .. } => self.others[thread].push(envelope),
                Place::At(worker) => self.remote.entry(worker).or_default().push(envelope),
            }
        }
    }

    /// Delivers what is for other threads and workers.
    pub(crate) fn flush(&mut self) {
        for (envelopes, mailbox) in self.others.iter_mut().zip(&self.directory.mailboxes) {
            if !envelopes.is_empty() {
                self.sent += envelopes.len() as u64;
                mailbox.deliver(envelopes);
            }
        }
        for (&worker, envelopes) in &mut self.remote {
            if !envelopes.is_empty() {
                self.sent_away += envelopes.len() as u64;
                self.directory.links.send(worker, envelopes);
            }
        }
    }
}

/// The bit of places in other workers.
const AWAY: u64 = 1 << 63;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_survives_its_number() {
        let places = [
            Place::Here { thread: 0, cell: 0 },
            Place::Here { thread: 1_000, cell: u32::MAX as usize },
            Place::At(WorkerId(0)),
            Place::At(WorkerId(u32::MAX)),
        ];
        places.into_iter().for_each(|place| assert_eq!(Place::of_number(place.number()), place));
    }
}
