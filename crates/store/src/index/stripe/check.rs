//! What holds of a stripe between any two steps: what is counted is there, and lists name what exists. For simulations, after each
//! step; costs a walk over all slots.

use std::collections::{BTreeMap, HashSet};

use journal::{Keyspace, LogAddress};

use super::{Deltas, Space, Stripe, hot_bytes};
use crate::hash::KeyHash;
use crate::index::expiry::ExpiryEntry;
use crate::object::WORD_DELTAS;
use crate::record;

impl Stripe {
    /// Looks whether stripe `number` is as its header says.
    ///
    /// # Panics
    /// If it is not: a bug.
    pub(crate) fn check(&self, number: usize) {
        let distinct: HashSet<Keyspace> = self.spaces().map(|(keyspace, _)| keyspace).collect();
        assert_eq!(distinct.len(), self.spaces.len(), "a keyspace has two spaces");
        assert!(self.pending.iter().is_sorted_by_key(|pending| pending.seq), "removals out of order");
        for (keyspace, space) in self.spaces() {
            space.check(number);
            self.check_removals(number, keyspace, space);
        }
        if let Some(locks) = &self.locks {
            locks.check();
        }
        self.watches.check();
    }

    /// The slot of each removal goes when the removal is released: what nothing waits for would stay for ever.
    fn check_removals(&self, number: usize, keyspace: Keyspace, space: &Space) {
        space.table.each(&mut |bits, tag, word| {
            let Some(object) = word.object().filter(|object| object.kind() == record::REMOVED) else {
                return;
            };
            let hash = KeyHash::from_parts(number, bits, tag);
            let is_it = |of: &KeyHash| (of.stripe(), of.bits(), of.tag()) == (number, bits, tag);
            let mut pending = self.pending.iter().filter(|one| one.seq == object.seq());
            let waits = pending.any(|one| one.keyspace == keyspace && is_it(&one.hash));
            assert!(waits, "nothing removes the slot of {object:?} at {hash:?}", object = object.seq());
        });
    }
}

impl Space {
    fn check(&self, number: usize) {
        self.table.check();
        let (mut removed, mut hot, mut based) = (0, 0, HashSet::new());
        let mut deadlines = BTreeMap::<ExpiryEntry, u32>::new();
        self.table.each(&mut |bits, tag, word| {
            hot += hot_bytes(word);
            if word.marks() & WORD_DELTAS != 0 {
                assert!(based.insert(word.address()), "two slots at {:?}", word.address());
            }
            match word.object() {
                Some(object) if object.kind() == record::REMOVED => removed += 1,
                Some(object) => {
                    let hash = KeyHash::from_parts(number, bits, tag);
                    object.expiry().into_iter().for_each(|deadline| {
                        *deadlines.entry(ExpiryEntry::new(deadline, hash)).or_default() += 1;
                    });
                }
                None => {}
            }
        });
        assert_eq!(self.table.live + removed, self.table.slots() as u64, "keys and removals are all slots");
        assert_eq!(self.hot_bytes, hot, "bytes of hot objects");
        self.deltas.check(&based);
        self.expiry.check(&deadlines);
    }
}

impl Deltas {
    /// `based`: the addresses of slots that say they have deltas.
    fn check(&self, based: &HashSet<LogAddress>) {
        assert_eq!(self.lists.len(), based.len(), "lists of deltas, and slots with DELTAS");
        for (base, list) in &self.lists {
            assert!(based.contains(base), "deltas on {base:?}, where no slot has them");
            assert!(!list.deltas.is_empty(), "an empty list of deltas on {base:?}");
            let is_in_order = list.deltas.is_sorted_by(|one, next| one.seq < next.seq);
            assert!(is_in_order, "deltas on {base:?} out of order: {:?}", list.deltas);
        }
        let room: usize = self.lists.values().map(|list| list.deltas.capacity()).sum();
        assert_eq!(self.room, room, "room in the lists of deltas");
        assert_eq!(self.count, self.iter().count(), "deltas in the lists");
    }
}
