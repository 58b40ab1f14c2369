//! What carries envelopes to other workers of a topology: all that `post` knows of it. `carrier` is how it is done.

use std::fmt;

use topology::ids::WorkerId;
use topology::message::Envelope;

/// What carries envelopes to other workers.
pub trait Links: Send + Sync + fmt::Debug {
    /// Takes all of `envelopes`, in order. Does not block: it keeps what cannot go now.
    fn send(&self, worker: WorkerId, envelopes: &mut Vec<Envelope>);

    /// Takes a word between a worker and the coordinator of epochs, at most [`MESSAGE_BYTES_MAX`], encoded; in order among themselves. Does not block. `supersedes`:
    /// words for that worker that could not go so far are of no use any more.
    fn tell(&self, worker: WorkerId, talk: Vec<u8>, supersedes: bool);

    /// Whether the other workers have got all that was sent.
    fn is_settled(&self) -> bool;
}

/// No other workers.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLinks;

impl Links for NoLinks {
    fn send(&self, _worker: WorkerId, envelopes: &mut Vec<Envelope>) {
        envelopes.clear();
    }

    fn tell(&self, _worker: WorkerId, _talk: Vec<u8>, _supersedes: bool) {}

    fn is_settled(&self) -> bool {
        true
    }
}

/// A parcel has at most the tuples of a batch or of one call, a capture what a task's tuples of an epoch have changed; what is larger is refused.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 20;
