//! Files of large groups: who waits for one, which of them nobody holds, and what to do about them next.
//!
//! ```text
//!  refused request --wish--> wishes --make--> unclaimed --claim--> granted --append--> segment
//!                              |                 ^   |                |
//!                              no space:         |   at rest, or in   not appended
//!                              short             |   the way: given   |
//!                                                |   back to the disk |
//!                                                \____________________/
//! ```
//!
//! Invariants
//!   1. Files that are unclaimed or granted: at most [`OWN_FILES_MAX`].
//!   2. A file is made only for a wish that no unclaimed file fits.
//!   3. The largest wish comes first: the file that is made for it fits every request that waits. A wish that the disk has no
//!      room for is dropped, and the next smaller one is tried: each step ends at least one wish.
//!
//! A request that is refused keeps no place here: it asks again when it is woken, or never (its client has left). Its wish may
//! then lead to a file that nobody claims: it serves the next large group, or is given back after a rest.
//!
//! Out of scope: memory and room (`admission`), I/O and time (`preparer`).

use std::collections::BTreeMap;

use crate::admission::Class;
use crate::segment::ReadyFile;

/// The state of all files of large groups.
#[derive(Debug, Default)]
pub(crate) struct OwnFiles {
    unclaimed: Vec<ReadyFile>,
    /// Credits with such a file that are out.
    granted: usize,
    /// Size of a file that was asked for -> who asked; if anybody did who is no writer, he.
    wishes: BTreeMap<u64, Class>,
    /// The smallest size that the disk had no room for lately.
    short: Option<Short>,
}

/// Why no file could be prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shortage {
    pub(crate) needed_bytes: u64,
    pub(crate) available_bytes: u64,
}

/// What the disk had no room for.
#[derive(Clone, Copy, Debug)]
struct Short {
    size_bytes: u64,
    shortage: Shortage,
    /// When, in nanoseconds of the monotonic clock.
    at_ns: u64,
}

/// What to do next about files of large groups.
#[derive(Debug)]
pub(crate) enum Step {
    Nothing,
    /// A file that nobody holds fits all wishes: who waits may ask again.
    Wake,
    /// Make a file of this size, for a request of this class.
    Make(u64, Class),
    /// Remove this file.
    GiveBack(ReadyFile),
}

impl OwnFiles {
    /// Whether a file is asked for.
    pub(crate) fn is_wanted(&self) -> bool {
        !self.wishes.is_empty()
    }

    /// Whether files stay here that nobody holds or waits for.
    pub(crate) fn is_idle(&self) -> bool {
        self.wishes.is_empty() && !self.unclaimed.is_empty()
    }

    /// How many credits with such a file are out.
    pub(crate) fn granted(&self) -> usize {
        self.granted
    }

    /// Asks for a file of `size_bytes`.
    pub(crate) fn wish(&mut self, size_bytes: u64, class: Class) {
        // Whoever finds no place here is woken with the others, and asks again.
        if self.wishes.len() < WISHES_MAX || self.wishes.contains_key(&size_bytes) {
            let asked = self.wishes.entry(size_bytes).or_insert(class);
            if class != Class::Write {
                *asked = class;
            }
        }
    }

    /// Takes the smallest unclaimed file of at least `size_bytes`.
    pub(crate) fn claim(&mut self, size_bytes: u64) -> Option<ReadyFile> {
        let fitting = self.unclaimed.iter().enumerate().filter(|(_, file)| file.size_bytes >= size_bytes);
        let (at, _) = fitting.min_by_key(|(_, file)| file.size_bytes)?;
        self.granted += 1;
        Some(self.unclaimed.swap_remove(at))
    }

    /// Credits with a file are back; `unused` is the file, unless a group was appended to it.
    pub(crate) fn end_claim(&mut self, unused: Option<ReadyFile>) {
        self.granted -= 1;
        self.unclaimed.extend(unused);
        self.check();
    }

    /// What to do next; `is_at_rest`: nobody has asked for a while.
    pub(crate) fn next(&mut self, is_at_rest: bool) -> Step {
        let Some((&size_bytes, &class)) = self.wishes.last_key_value() else {
            return if is_at_rest { self.give_back() } else { Step::Nothing };
        };
        if self.unclaimed.iter().any(|file| file.size_bytes >= size_bytes) {
            self.wishes.clear();
            return Step::Wake;
        }
        if self.unclaimed.len() + self.granted < OWN_FILES_MAX {
            return Step::Make(size_bytes, class);
        }
        self.give_back()
    }

    /// A file was made.
    pub(crate) fn put(&mut self, file: ReadyFile) {
        self.wishes.retain(|size_bytes, _| *size_bytes > file.size_bytes);
        self.short.take_if(|short| short.size_bytes <= file.size_bytes);
        self.unclaimed.push(file);
        self.check();
    }

    /// The disk has no room for a file of `size_bytes`: returns what to remove for it, if there is anything. If not, who wished
    /// for it is refused, and whether that is news is returned.
    pub(crate) fn on_short(
        &mut self,
        size_bytes: u64,
        shortage: Shortage,
        now_ns: u64,
    ) -> Result<ReadyFile, bool> {
        if let Step::GiveBack(file) = self.give_back() {
            return Ok(file);
        }
        self.wishes.remove(&size_bytes);
        let is_known = self.shortage(size_bytes, now_ns).is_some();
        let known_bytes = self.short.filter(|_| is_known).map_or(u64::MAX, |short| short.size_bytes);
        self.short = Some(Short { size_bytes: size_bytes.min(known_bytes), shortage, at_ns: now_ns });
        Err(!is_known)
    }

    /// Why no file of `size_bytes` is to be had, if the disk said so lately.
    pub(crate) fn shortage(&self, size_bytes: u64, now_ns: u64) -> Option<Shortage> {
        let is_recent = |short: &Short| now_ns.saturating_sub(short.at_ns) < SHORT_NS;
        let short = self.short.filter(is_recent).filter(|short| short.size_bytes <= size_bytes)?;
        Some(short.shortage)
    }

    /// Space has come free on the disk.
    pub(crate) fn on_space(&mut self) {
        self.short = None;
    }

    /// The smallest unclaimed file goes: a larger one serves more groups.
    fn give_back(&mut self) -> Step {
        let smallest = self.unclaimed.iter().enumerate().min_by_key(|(_, file)| file.size_bytes);
        match smallest.map(|(at, _)| at) {
            Some(at) => Step::GiveBack(self.unclaimed.swap_remove(at)),
            None => Step::Nothing,
        }
    }

    /// Looks whether there are as many files as there may be.
    ///
    /// # Panics
    /// If there are more: a bug.
    pub(crate) fn check(&self) {
        let files = self.unclaimed.len() + self.granted;
        assert!(files <= OWN_FILES_MAX, "{files} files of large groups");
    }
}

/// Files of large groups that are unclaimed or granted, at most: some large groups at a time need not wait for each other.
const OWN_FILES_MAX: usize = 4;
/// Different sizes that are remembered.
const WISHES_MAX: usize = 64;
/// How long the disk counts as short of room for a large file: whoever asks later makes it try again.
const SHORT_NS: u64 = 1_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileId;

    const SHORTAGE: Shortage = Shortage { needed_bytes: 1, available_bytes: 0 };

    fn file(id: u32, size_bytes: u64) -> ReadyFile {
        ReadyFile::in_a_test(FileId(id), size_bytes)
    }

    /// Each refusal asked for another file, although files that fit lay there unclaimed: 900 of them filled a disk.
    #[test]
    fn no_file_is_made_while_an_unclaimed_one_fits() {
        let mut own = OwnFiles::default();
        own.wish(100, Class::Write);
        assert!(matches!(own.next(false), Step::Make(100, Class::Write)));
        own.put(file(1, 100));
        for wish in [100, 50, 100] {
            own.wish(wish, Class::Write);
            assert!(matches!(own.next(false), Step::Wake));
        }
        assert!(matches!(own.next(false), Step::Nothing));
    }

    #[test]
    fn smallest_file_that_fits_is_claimed_and_comes_back_when_it_was_not_used() {
        let mut own = OwnFiles::default();
        own.put(file(1, 300));
        own.put(file(2, 200));
        assert!(own.claim(301).is_none());
        let claimed = own.claim(150).expect("two fit");
        assert_eq!((claimed.size_bytes, own.granted()), (200, 1));
        own.end_claim(Some(claimed));
        assert_eq!(own.claim(200).expect("it is back").size_bytes, 200);
        own.end_claim(None);
        assert!(own.claim(200).is_some_and(|file| file.size_bytes == 300));
    }

    #[test]
    fn wishes_that_grow_for_ever_keep_a_bounded_number_of_files() {
        let mut own = OwnFiles::default();
        for size_bytes in 1..100 {
            own.wish(size_bytes, Class::Write);
            loop {
                match own.next(false) {
                    Step::Make(bytes, _) => own.put(file(bytes as u32, bytes)),
                    Step::GiveBack(removed) => assert!(removed.size_bytes < size_bytes),
                    Step::Wake | Step::Nothing => break,
                }
            }
            assert!(own.unclaimed.len() <= OWN_FILES_MAX);
            assert!(own.unclaimed.iter().any(|file| file.size_bytes >= size_bytes));
        }
    }

    #[test]
    fn files_that_nobody_asks_for_are_given_back_after_a_rest() {
        let mut own = OwnFiles::default();
        own.put(file(1, 300));
        own.put(file(2, 200));
        assert!(own.is_idle());
        assert!(matches!(own.next(false), Step::Nothing));
        assert!(matches!(own.next(true), Step::GiveBack(file) if file.size_bytes == 200));
        assert!(matches!(own.next(true), Step::GiveBack(file) if file.size_bytes == 300));
        assert!(matches!(own.next(true), Step::Nothing));
        assert!(!own.is_idle());
    }

    #[test]
    fn wish_that_the_disk_has_no_room_for_is_refused_and_smaller_ones_are_tried() {
        let mut own = OwnFiles::default();
        own.put(file(1, 50));
        own.wish(1_000, Class::Write);
        own.wish(100, Class::Reclaim);
        assert!(matches!(own.next(false), Step::Make(1_000, Class::Write)));
        assert!(own.on_short(1_000, SHORTAGE, 5).is_ok_and(|removed| removed.size_bytes == 50), "in the way");
        assert!(matches!(own.on_short(1_000, SHORTAGE, 5), Err(true)));
        assert!(matches!(own.next(false), Step::Make(100, Class::Reclaim)), "it may fit");
        assert_eq!(own.shortage(999, 6), None);
        assert_eq!(own.shortage(1_000, 6), Some(SHORTAGE));
        assert_eq!(own.shortage(1_000, 5 + SHORT_NS), None, "the disk is asked again");
        assert!(matches!(own.on_short(100, SHORTAGE, 7), Err(true)));
        assert_eq!(own.shortage(100, 8), Some(SHORTAGE));
        assert!(matches!(own.on_short(2_000, SHORTAGE, 9), Err(false)), "nothing new");
        own.on_space();
        assert_eq!(own.shortage(1_000, 8), None);
    }
}
