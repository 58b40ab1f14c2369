//! Where tasks are, and what is on its way from one thread to the others.
//!
//! Envelopes for other threads are collected until the end of a turn, so a mailbox is locked once for many of them.
//! A task of another process would be one more kind of place here.

use std::collections::VecDeque;
use std::sync::Arc;

use topology::ids::TaskId;
use topology::message::Envelope;

use crate::mailbox::Mailbox;

/// Where a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The thread.
    pub(crate) thread: usize,
    /// The place among the thread's cells.
    pub(crate) cell: usize,
}

/// All tasks and threads.
#[derive(Debug)]
pub(crate) struct Directory {
    pub(crate) places: Vec<Place>,
    pub(crate) mailboxes: Vec<Arc<Mailbox>>,
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
    /// Envelopes for other threads since the start.
    pub(crate) sent: u64,
}

impl Directory {
    pub(crate) fn place(&self, task: TaskId) -> Place {
        self.places[task.0 as usize]
    }
}

impl Post {
    pub(crate) fn new(directory: Arc<Directory>, thread: usize) -> Self {
        let others = directory.mailboxes.iter().map(|_| Vec::new()).collect();
        Self { directory, thread, outbox: Vec::new(), own: VecDeque::new(), others, sent: 0 }
    }

    /// Sorts what a cell has put out.
    pub(crate) fn sort(&mut self) {
        for envelope in self.outbox.drain(..) {
            let place = self.directory.place(envelope.to);
            if place.thread == self.thread {
                self.own.push_back((place.cell, envelope));
            } else {
                self.others[place.thread].push(envelope);
            }
        }
    }

    /// Delivers what is for other threads.
    pub(crate) fn flush(&mut self) {
        for (envelopes, mailbox) in self.others.iter_mut().zip(&self.directory.mailboxes) {
            if !envelopes.is_empty() {
                self.sent += envelopes.len() as u64;
                mailbox.deliver(envelopes);
            }
        }
    }
}
