//! What holds of the state that the journal itself has said. For simulations, after each step; of what a file says nothing is
//! asserted ([`State::apply`] refuses it).

use std::collections::BTreeSet;

use super::{Facts, State};
use crate::types::FileId;

impl State {
    /// Looks whether segments and files are as the module's header says.
    ///
    /// # Panics
    /// If they are not: a bug.
    pub(crate) fn check(&self) {
        let used: BTreeSet<FileId> = self.segments.values().map(|facts| facts.file).collect();
        assert_eq!(used.len(), self.segments.len(), "a file holds two segments");
        assert!(
            used.iter().all(|file| !self.prepared.contains_key(file)),
            "a segment's file waits for another"
        );
        let newest = used.iter().chain(self.prepared.keys()).max();
        assert!(newest.is_none_or(|file| *file < self.next_file), "file {:?} comes again", self.next_file);
        let newest = self.segments.last_key_value();
        assert!(
            newest.is_none_or(|(id, _)| *id < self.next_segment),
            "segment {} comes again",
            self.next_segment
        );
        let pairs = self.segments.values().zip(self.segments.values().skip(1));
        for (facts, next) in pairs {
            let follows = facts.sealed.is_some_and(|sealed| sealed.last_lsn < next.first_lsn);
            assert!(follows, "{next:?} follows {facts:?}");
        }
        self.segments.values().for_each(|facts| self.check_segment(facts));
    }

    fn check_segment(&self, facts: &Facts) {
        let Some(sealed) = facts.sealed else {
            return assert!(facts.footer.is_none(), "a footer before the end: {facts:?}");
        };
        assert!(sealed.next_seq <= self.next_seq, "seqs after {:?} come again: {facts:?}", self.next_seq);
        assert!(sealed.end_bytes <= facts.size_bytes, "longer than its file: {facts:?}");
        if let Some(footer) = &facts.footer {
            let is_behind = footer.offset_bytes >= sealed.end_bytes;
            assert!(is_behind && footer.offset_bytes + footer.len_bytes <= facts.size_bytes, "{facts:?}");
        }
    }
}
