//! Where what other workers send is put: the mailboxes of the tasks' threads.

use std::sync::Arc;

use topology::ids::WorkerId;
use topology::message::Envelope;

use crate::mailbox::Order;
use crate::post::{Directory, Place};
use crate::quiet::Quiet;

/// Where what other workers send is put.
#[derive(Clone, Debug)]
pub struct Inbox {
    pub(crate) directory: Arc<Directory>,
    pub(crate) quiet: Arc<Quiet>,
}

impl Inbox {
    /// Takes an envelope. What is for a task that is not here is dropped: it has moved, and this is of its former start.
    pub fn deliver(&self, envelope: Envelope) {
        if envelope.to.0 >= self.directory.tasks_count() {
            return;
        }
        if let Place::Here { thread, .. } = self.directory.place(envelope.to) {
            self.quiet.receive();
            self.directory.mailboxes[thread].deliver(&mut vec![envelope]);
        }
    }

    /// Another worker was started anew: those who send to its tasks say where they are.
    pub fn on_new_peer(&self, worker: WorkerId) {
        self.directory.mailboxes.iter().for_each(|mailbox| mailbox.order(Order::Connected(worker)));
    }
}
