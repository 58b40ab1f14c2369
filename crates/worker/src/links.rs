//! What carries envelopes to other workers of a topology: all that `post` knows of it. `carrier` is how it is done.

use std::fmt;

use topology::ids::WorkerId;
use topology::message::Envelope;

/// What carries envelopes to other workers.
pub trait Links: Send + Sync + fmt::Debug {
    /// Takes all of `envelopes`, in order. Does not block: it keeps what cannot go now.
    fn send(&self, worker: WorkerId, envelopes: &mut Vec<Envelope>);

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

    fn is_settled(&self) -> bool {
        true
    }
}
