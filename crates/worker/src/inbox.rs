//! Where what other workers send is put: the mailboxes of the tasks' threads.

use std::sync::Arc;

use topology::epochs::EpochMessage;
use topology::ids::WorkerId;
use topology::message::Envelope;

use crate::epochs::member::Member;
use crate::mailbox::Order;
use crate::post::{Directory, Place};
use crate::quiet::Quiet;

/// Where what other workers send is put.
#[derive(Clone, Debug)]
pub struct Inbox {
    pub(crate) directory: Arc<Directory>,
    pub(crate) quiet: Arc<Quiet>,
    /// With exactly-once.
    pub(crate) member: Option<Arc<Member>>,
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

    /// Takes a word between another worker and the coordinator of epochs.
    pub fn receive(&self, from: WorkerId, talk: EpochMessage) {
        if let Some(member) = &self.member {
            member.receive(from, talk);
        }
    }

    /// Another worker was started anew: those who send to its tasks say where they are; with exactly-once all tasks begin anew.
    pub fn on_new_peer(&self, worker: WorkerId) {
        if let Some(member) = &self.member {
            return member.on_new_peer(worker);
        }
        self.directory.mailboxes.iter().for_each(|mailbox| mailbox.order(Order::Connected(worker)));
    }
}
