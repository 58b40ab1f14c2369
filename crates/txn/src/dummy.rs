//! A resource that does nothing, at once: what a coordinator costs without its resources.

use crate::id::BranchId;
use crate::resource::{Answer, Reply, Resource, Vote};

/// Votes yes, and is done with everything else.
#[derive(Debug)]
pub struct Dummy {
    name: String,
}

impl Dummy {
    /// One of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }
}

impl Resource for Dummy {
    fn name(&self) -> &str {
        &self.name
    }

    fn prepare(&self, _: BranchId, reply: Reply) {
        reply.answer(Answer::Voted(Vote::Yes));
    }

    fn commit(&self, _: BranchId, reply: Reply) {
        reply.answer(Answer::Done);
    }

    fn commit_one_phase(&self, _: BranchId, reply: Reply) {
        reply.answer(Answer::Done);
    }

    fn rollback(&self, _: BranchId, reply: Reply) {
        reply.answer(Answer::Done);
    }

    fn recover(&self, reply: Reply) {
        reply.answer(Answer::Found(Vec::new()));
    }
}
