//! Where messages wait for the coordinator of epochs, and how tasks reach it: it is in this worker or in another one.
//!
//! **Bounds.** For each task a capture and a message that it works, for each worker that it is ready, and failures of at most `max_spout_pending` tuples of each
//! spout task.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use topology::epochs::{EpochMessage, EpochReport};
use topology::ids::WorkerId;
use topology::wire::encode_epoch_message;

use crate::links::{Links, MESSAGE_BYTES_MAX};
use crate::sync::{lock, wait};

/// What the coordinator hears.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// What a worker tells.
    Report(WorkerId, EpochReport),
    /// A worker was started anew: the tasks that it had are gone.
    NewPeer(WorkerId),
    /// Where tasks are to be.
    Dealt(Vec<WorkerId>),
}

/// Where messages wait for the coordinator.
#[derive(Debug, Default)]
pub(crate) struct CoordinatorInbox {
    state: Mutex<Messages>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Messages {
    messages: Vec<Incoming>,
    /// The connection has something.
    has_events: bool,
    is_closed: bool,
}

/// The way to the coordinator.
#[derive(Clone, Debug)]
pub(crate) enum ToCoordinator {
    /// It is in this worker, which has a number.
    Here(Arc<CoordinatorInbox>, WorkerId),
    /// It is in another one.
    Away(Arc<dyn Links>),
}

impl CoordinatorInbox {
    pub(crate) fn put(&self, message: Incoming) {
        lock(&self.state).messages.push(message);
        self.bell.notify_one();
    }

    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.bell.notify_one();
    }

    pub(super) fn ring(&self) {
        lock(&self.state).has_events = true;
        self.bell.notify_one();
    }

    /// Moves messages to `messages` when there are any, or events, at the latest after `timeout`; whether the inbox is open.
    pub(super) fn take(&self, messages: &mut Vec<Incoming>, timeout: Option<Duration>) -> bool {
        let mut state = lock(&self.state);
        if state.messages.is_empty() && !state.has_events && !state.is_closed {
            state = wait(&self.bell, state, timeout);
        }
        state.has_events = false;
        std::mem::swap(&mut state.messages, messages);
        !state.is_closed
    }
}

impl ToCoordinator {
    pub(crate) fn tell(&self, told: EpochReport) {
        match self {
            Self::Here(inbox, worker) => inbox.put(Incoming::Report(*worker, told)),
            Self::Away(links) => {
                // What waits when all tasks are new is of those before.
                let supersedes = matches!(told, EpochReport::Ready { .. });
                links.tell(COORDINATOR, encoded(told), supersedes);
            }
        }
    }
}

/// The bytes of what is told: that it was lost, if they are too many.
fn encoded(told: EpochReport) -> Vec<u8> {
    let generation = told.generation();
    let mut bytes = Vec::new();
    encode_epoch_message(&EpochMessage::Report(told), &mut bytes);
    let size = bytes.len();
    if size > MESSAGE_BYTES_MAX as usize {
        let error = format!(
            "what a task has changed in an epoch has {size} B, more than a worker can send ({MESSAGE_BYTES_MAX} B): lower topology.max.spout.pending"
        );
        bytes.clear();
        encode_epoch_message(&EpochMessage::Report(EpochReport::Lost { generation, error }), &mut bytes);
    }
    bytes
}

/// The worker that has the coordinator: there is always one of this number.
pub(crate) const COORDINATOR: WorkerId = WorkerId(0);

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use topology::changes::{Capture, Changes, StateKey};
    use topology::ids::TaskId;
    use topology::parcel::Epoch;
    use topology::wire::decode_epoch_message;

    #[test]
    fn capture_that_no_link_takes_is_told_as_lost() {
        let value = Bytes::from(vec![0; MESSAGE_BYTES_MAX as usize]);
        let values = [(StateKey::of_key("k"), Some(value))].into();
        let changes = Changes { values, ..Changes::default() };
        let capture = Capture {
            task: TaskId(1),
            generation: 7,
            epoch: Epoch(1),
            changes,
            position: None,
            dead: vec![],
        };
        let talk = decode_epoch_message(&encoded(EpochReport::Capture(capture)).into());
        let Ok(EpochMessage::Report(EpochReport::Lost { generation: 7, error })) = talk else {
            panic!("{talk:?}")
        };
        assert!(error.contains("67108864 B") && error.contains("topology.max.spout.pending"), "{error}");
    }
}
